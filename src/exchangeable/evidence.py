"""The base class of monitors that need no p-values: `RateMonitor` and `Risk`."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers
from exchangeable.tracker import Tracker
from exchangeable.validation import call_repr


class EvidenceStep(NamedTuple):
    """One value seen: its number (from 1), the log evidence, the log statistic, and whether the alarm is raised."""

    n: int
    log_value: float
    statistic: float
    alarm: bool


class EvidenceMonitor(Tracker):
    """A monitor with two numbers: the evidence, for an alarm with alpha, and a statistic, for one with a period.

    A subclass sets ``alpha`` and ``period``, and implements the abstract methods. The first fields of its paths are n,
    log_value, statistic, alarm, lowest and test.
    """

    alpha: float | None
    period: float | None

    def __init__(self, on_alarm: str, start: int) -> None:
        super().__init__(on_alarm, start)
        self.last: EvidenceStep | None = None

    def __repr__(self) -> str:
        return call_repr(self)

    def parts(self) -> list[tuple[str, str]]:
        """Return the monitor as its only part."""
        return [("monitor", repr(self))]

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The level that raises the alarm: of the evidence with alpha, and of the statistic with a period."""

    @property
    def log_threshold(self) -> float:
        """The log of the threshold."""
        return native.log(self.threshold, None)

    @property
    def log_value(self) -> float:
        """The log evidence of the current test."""
        return 0.0 if self.last is None or self._is_new_test else self.last.log_value

    @property
    def capital_level(self) -> float | None:
        """The evidence that raises the alarm; None with a period."""
        return None if self.period is not None else self.threshold

    def update(self, x: Any) -> EvidenceStep:
        """Consume one value. If it is rejected, the monitor stays as it was."""
        log_value, statistic, alarm = self._run_one(self._check_value(x))
        self._history.update(self._integers, log_value, self.on_alarm == "restart")
        self.last = EvidenceStep(self.n, log_value, statistic, bool(alarm))
        return self.last

    @abstractmethod
    def extend(self, X: Any) -> Any:
        """Consume many values, and return the path."""

    def _extend(self, X: Any) -> Any:
        """Consume many values; a call of the compiled loop ends at a restart."""
        values = self._check_values(X)
        path = self._new_path(len(values))
        columns = [column for column in path if isinstance(column, np.ndarray)]
        before, done = copy.deepcopy(vars(self)), 0
        try:
            while done < len(values):
                used = self._run(values[done:], [column[done:] for column in columns], path)
                log_values = path.log_value[done : done + used]
                self._history.extend(self._integers, log_values, self.on_alarm == "restart")
                done += used
        except BaseException:  # interrupted
            vars(self).update(before)
            raise
        if len(values):
            self.last = EvidenceStep(*(column[-1].item() for column in path[:4]))
        return path

    @abstractmethod
    def _check_value(self, x: Any) -> Any:
        """Check one value, and return it as the compiled loop expects it."""

    @abstractmethod
    def _check_values(self, X: Any) -> NDArray[Any]:
        """Check many values, and return them as the compiled loop expects them."""

    @abstractmethod
    def _new_path(self, size: int) -> Any:
        """Return a path for this many steps, to be filled."""

    @abstractmethod
    def _run(self, values: NDArray[Any], columns: list[Any], path: Any) -> int:
        """Consume values up to a restart, and fill the columns of the path; return how many were consumed."""

    @abstractmethod
    def _run_one(self, value: Any) -> tuple[float, float, int]:
        """Consume one value; return the log evidence, the log statistic, and whether the alarm is on."""

    @property
    def _is_new_test(self) -> bool:
        return bool(self._integers[native.TRACK_N] == self._integers[native.TRACK_START])

    @abstractmethod
    def _check_state(self) -> None:
        """Check the fields of a loaded monitor."""


def new_columns(size: int) -> tuple[Integers, Floats, Floats, NDArray[np.bool_], Integers, Integers]:
    """Return the columns that all paths have: n, log_value, statistic, alarm, lowest and test.

    >>> len(new_columns(5))
    6
    """
    n, lowest, test = np.empty((3, size), np.int64)
    log_value, statistic = np.empty((2, size))
    return n, log_value, statistic, np.empty(size, np.bool_), lowest, test
