"""The compiled loops, written in C: pure functions on arrays, one for each recursion.

Python owns the arrays. A call checks dtype, alignment, contiguity, writability and shapes, and releases the GIL unless
it is short. A function with an array of p-values and an array for its results also accepts one float and None, and then
returns the one result.
"""

from __future__ import annotations

try:
    from exchangeable.native._native import *  # noqa: F403 (typed in _native.pyi)
except ImportError as _error:
    raise ImportError(
        "the compiled part of exchangeable is missing, or was built for another platform; install exchangeable again "
        "(from a clone: pip install .)"
    ) from _error
