"""Test tables in one call: verdict, explanation and report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Explanation
    from exchangeable.analysis.result import Result
    from exchangeable.analysis.run import compare, test
    from exchangeable.analysis.shift import ShiftResult, shift_test

__all__ = ["Explanation", "Result", "ShiftResult", "compare", "shift_test", "test"]
MODULES = {
    "Explanation": "explain",
    "Result": "result",
    "ShiftResult": "shift",
    "compare": "run",
    "shift_test": "shift",
    "test": "run",
}


def __getattr__(name: str) -> Any:
    if name in MODULES:  # imported on first use: some commands need none of it
        return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
