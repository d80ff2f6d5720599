"""The compiled loops: pure functions on arrays, one for each recursion, written in C.

Python owns the arrays; a call checks dtype, contiguity, writability and shapes, and releases the GIL.
Where a function takes p-values and a place for its results, one float and None do too: it then returns the one result.
"""

from __future__ import annotations

try:
    from exchangeable.native._native import *  # noqa: F403 (typed in _native.pyi)
except ImportError as _error:
    raise ImportError(
        "the compiled part of exchangeable is missing, or was built for another platform; install exchangeable again "
        "(from a clone: pip install .)"
    ) from _error
