"""The compiled loops: pure functions on arrays. Each module is imported, and so compiled, on first use."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exchangeable.kernels import (
        adaptive,
        alarms,
        beta,
        blend,
        crowd,
        jackson,
        jumper,
        mixture,
        philox,
        plugin,
        summation,
        watchful,
    )

__all__ = [
    "adaptive",
    "alarms",
    "beta",
    "blend",
    "crowd",
    "jackson",
    "jumper",
    "mixture",
    "philox",
    "plugin",
    "summation",
    "watchful",
]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
