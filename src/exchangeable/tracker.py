"""What all monitors share: the record of their tests, a history of the evidence for plots, and a card in notebooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable import native
from exchangeable.history import History
from exchangeable.martingale import amount
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_integer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_COUNT = 2**53  # the largest count that is stored
MAX_START = 2**52


class Tracker(ABC):
    """The base class of monitors: when the alarm was raised, the change point, and the evidence over time.

    A subclass writes the record (see native/track.c) and the history. ``start`` is the number of examples before the
    first test.
    """

    last: Any  # the latest step, or None

    def __init__(self, on_alarm: str, start: int) -> None:
        if on_alarm not in ("latch", "restart"):
            raise ValueError(f"on_alarm must be 'latch' or 'restart', got {on_alarm!r}")
        self.on_alarm = on_alarm
        start = check_integer("start", start, 0, MAX_START)
        self._integers, self._reals = new_record(start)
        self._history = History(start)

    @property
    def n(self) -> int:
        """The number of examples so far."""
        return int(self._integers[native.TRACK_N])

    @property
    def alarm_at(self) -> int | None:
        """The number of the example that raised the alarm, with restarts the latest one; None without an alarm."""
        return _count(self._integers[native.TRACK_ALARM])

    @property
    def changepoint(self) -> int | None:
        """The number of examples before the change, as estimated at the alarm; None without an alarm."""
        return _count(self._integers[native.TRACK_CHANGE])

    @property
    def test(self) -> int:
        """The number of the test that the next example belongs to: 1, and one more after each restart."""
        return int(self._integers[native.TRACK_TEST])

    @property
    def log_max(self) -> float:
        """The highest log capital of the test that the latest step belongs to; at least 0, since S_0 = 1."""
        return float(self._reals[native.TRACK_HIGH])

    @property
    def anytime_p(self) -> float | Decimal:
        """One over the highest capital so far: a p-value that is valid at every example, not only at a chosen one.

        Where the guarantee of the monitor applies, the probability that it is *ever* at most a, however long one
        watches, is at most a. It is a `Decimal` where float64 cannot hold it. It is not defined with restarts, since
        each start is another chance.
        """
        if self.on_alarm == "restart":
            raise ValueError("anytime_p is not defined for a monitor that restarts: each start is another chance")
        return amount(-self.log_max)

    @property
    @abstractmethod
    def log_value(self) -> float:
        """The log capital of the current test: the evidence so far."""

    @property
    @abstractmethod
    def capital_level(self) -> float | None:
        """The capital that raises the alarm; None if the alarm depends on more than the capital."""

    @property
    @abstractmethod
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the capital over the examples on a log scale, with the alarms and the change point of the latest one.

        A dashed line is the capital that raises the alarm. Alarms with a period have none: they compare another
        statistic with their threshold, not the capital itself. The history is kept in constant memory: after more than
        256 examples the curve shows the lowest and the highest capital of each of 128 to 256 groups of consecutive
        examples, and at most one alarm of each. A capital of 0 is drawn at the lower edge. Needs the extra ``plots``.

        >>> from exchangeable import Monitor, Precomputed
        >>> monitor = Monitor(Precomputed())
        >>> _ = monitor.extend([0.5, 0.25, 0.75])
        >>> monitor.plot().get_xlabel()
        'examples seen'
        """
        from exchangeable import plots

        ax = plots.curves(
            {"capital": self._history.curve(self.n, self.log_value)},
            thresholds=[] if self.capital_level is None else [self.capital_level],
            changepoints=[] if self.changepoint is None else [self.changepoint],
            alarms=self._history.alarms(self.n, self.alarm_at),
            title=self._title,
            ax=ax,
        )
        if self.n == self._history.start:
            ax.set(xlim=(self.n, self.n + 1), xticks=[self.n], ylim=(-1.0, 1.0))
            ax.text(0.5, 0.6, "no examples yet", transform=ax.transAxes, ha="center", va="center", color="#666666")
        return ax

    _title = "Evidence against exchangeability"
    claim = "the order of the examples matters"
    """What an alarm says."""

    def describe_change(self, where: str) -> str:
        """Return a sentence about the change at the alarm, which came ``where``."""
        return (
            f"The evidence was lowest {where}: the change occurred around there or later (an estimate, without a "
            "guarantee)."
        )

    def findings(self) -> list[str]:
        """Return sentences about the parts that the alarm is about; none if there is only one."""
        return []

    def parts(self) -> list[tuple[str, str]]:
        """Return the parts that the monitor is made of, by name, if they are not a measure, a bet and an alarm."""
        return []

    def _repr_html_(self) -> str:
        report = import_module("exchangeable.analysis.report")  # by name, since it is built on top of this module
        return str(report.monitor_card(self))

    def _check_record(self) -> None:
        """Check the record and the history of a loaded monitor."""
        check_records(self._integers[np.newaxis], self._reals[np.newaxis])
        self._history.check(self.n, self.alarm_at)


# ------------------------------------------------------------------ the record of a test: see native/track.c


def new_record(n: int) -> tuple[Integers, Floats]:
    """Return the integers and reals of a stream whose first test starts after ``n`` examples."""
    integers = np.empty(native.TRACK_INTEGERS, np.int64)
    integers[[native.TRACK_N, native.TRACK_START, native.TRACK_LOWEST]] = n
    integers[[native.TRACK_ALARM, native.TRACK_CHANGE, native.TRACK_TEST]] = -1, -1, 1
    return integers, np.zeros(native.TRACK_REALS)


def check_records(integers: Integers, reals: Floats) -> None:
    """Check stored records, one in each row: counts must be consistent, and capitals must be numbers."""
    n, start, lowest, alarm_at, changepoint, test = integers[:, : native.TRACK_INTEGERS].T
    low, high = reals[:, : native.TRACK_REALS].T
    rules = {
        "n": (start >= 0) & (start <= n) & (n <= MAX_COUNT),
        "lowest": (start <= lowest) & (lowest <= n),
        "alarm_at": (alarm_at == -1) | (alarm_at > 0) & (alarm_at <= n),
        "changepoint": (changepoint >= -1) & (changepoint <= n),
        "test": (test >= 1) & (test <= MAX_COUNT),
        "log_max": (low <= 0.0) & (high >= 0.0),
    }
    for name, valid in rules.items():
        if not valid.all():
            raise ValueError(f"{name} of every stream must be valid, got an invalid one")


def _count(value: np.int64) -> int | None:
    return int(value) if value >= 0 else None
