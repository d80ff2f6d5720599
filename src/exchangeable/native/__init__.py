"""The compiled loops: pure functions on arrays, one for each recursion, written in C.

Python owns the arrays. A call checks dtype, alignment, contiguity, writability and shapes, and releases the GIL unless
it is brief. A function that takes an array of p-values and an array for its results also takes one float and None: it
then returns the one result.
"""

from __future__ import annotations

try:
    from exchangeable.native._native import *  # noqa: F403 (typed in _native.pyi)
except ImportError as _error:
    raise ImportError(
        "the compiled part of exchangeable is missing, or was built for another platform; install exchangeable again "
        "(from a clone: pip install .)"
    ) from _error
