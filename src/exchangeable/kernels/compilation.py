"""How the loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile on first use, without the interpreter's lock, and keep the result on disk where there is a place for it.

    A read-only installation without a home folder has none: there the compiled code lives as long as the process.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError:  # numba: no locator available
            return numba.njit(nogil=True, **options)(function)  # type: ignore[no-any-return]

    return decorate
