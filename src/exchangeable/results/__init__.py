"""Tests of whole tables in one call: verdict, explanation, report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exchangeable.results.call import check_split, test
    from exchangeable.results.explanation import Explanation
    from exchangeable.results.result import Result

__all__ = ["Explanation", "Result", "check_split", "test"]
PLACES = {"Explanation": "explanation", "Result": "result", "check_split": "call", "test": "call"}


def __getattr__(name: str) -> Any:
    if name in PLACES:  # only when asked for, since some commands need none of it
        return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
