"""Research tools: the tables and figures of the paper, its datasets, and certificates of validity."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["certificate", "datasets", "paper"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
