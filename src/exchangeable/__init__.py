"""Is this data still exchangeable (i.i.d.)? Conformal test martingales with a guarantee, exact and fast.

    example --Measure--> rank --theta--> p --Bet--> log f(p) --sum--> log S --Alarm--> bool

``test`` does all of this for a table. Each step is available separately: ``Monitor`` for examples, ``Martingale`` for
p-values, ``alarms`` for evidence.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from exchangeable import alarms, bets, measures
from exchangeable.late_labels import LateLabels
from exchangeable.martingale import Martingale
from exchangeable.monitor import Monitor
from exchangeable.protocols import Path, Rank, Ranks, Step
from exchangeable.pvalues import Precomputed, PValues, thetas
from exchangeable.rate import RateMonitor
from exchangeable.risk import Risk
from exchangeable.shift import Shift

if TYPE_CHECKING:
    from exchangeable import fleet, plots, research, snapshot
    from exchangeable.analysis import Result, compare, shift_test, test
    from exchangeable.data.files import read
    from exchangeable.keyed import Monitors
    from exchangeable.snapshot import load, save
    from exchangeable.streams import test_streams
    from exchangeable.table_monitor import TableMonitor

__all__ = [
    "LateLabels",
    "Martingale",
    "Monitor",
    "Monitors",
    "PValues",
    "Path",
    "Precomputed",
    "Rank",
    "Ranks",
    "RateMonitor",
    "Result",
    "Risk",
    "Shift",
    "Step",
    "TableMonitor",
    "alarms",
    "bets",
    "compare",
    "fleet",
    "load",
    "measures",
    "plots",
    "read",
    "research",
    "save",
    "shift_test",
    "snapshot",
    "test",
    "test_streams",
    "thetas",
]
__version__ = "0.2.0"  # the only place that states it: pyproject.toml reads it from here


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in {"fleet", "plots", "research", "snapshot"}:  # heavier, so imported on first use
        return import_module(f"{__name__}.{name}")
    if name in {"load", "save"}:
        return getattr(import_module(f"{__name__}.snapshot"), name)
    if name == "TableMonitor":
        return import_module(f"{__name__}.table_monitor").TableMonitor
    if name == "Monitors":
        return import_module(f"{__name__}.keyed").Monitors
    if name == "read":
        return import_module(f"{__name__}.data.files").read
    if name == "test_streams":
        return import_module(f"{__name__}.streams").test_streams
    if name in {"Result", "compare", "shift_test", "test"}:
        return getattr(import_module(f"{__name__}.analysis"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
