"""Alarms: they decide when the capital is enough evidence of a change.

`Ville` bounds the probability that there is *ever* a false alarm. `Cusum` and `ShiryaevRoberts` are for streams without
end: they bound how often false alarms occur, and detect a change quickly even after a long time without one, during
which the capital shrinks. They use only the increments of the log martingale, so nothing underflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.protocols import Floats
from exchangeable.validation import call_repr, check_interval

__all__ = ["Cusum", "ShiryaevRoberts", "Ville"]
MIN_ALPHA = 1e-300  # so that 1/alpha is finite
Bools = NDArray[np.bool_]


class Ville:
    """An alarm that is raised whenever the capital is at least 1/alpha.

    Guarantee: on exchangeable data the probability that it is *ever* raised, however long one watches, is at most
    alpha (Ville's inequality: P(S_n >= c for some n) <= 1/c for a nonnegative martingale with S_0 = 1).
    O(1) time and memory; it has no state.

    >>> alarm = Ville(0.01)
    >>> alarm.threshold, alarm.update(4.6), alarm.update(4.7)
    (100.0, False, True)

    Reference: Ville (1939); Fedorova et al. (2012), section 3.
    """

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha: float = check_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
        if self.alpha < MIN_ALPHA:
            raise ValueError(f"alpha must be at least {MIN_ALPHA:g}, got {alpha}")

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def threshold(self) -> float:
        """The capital that raises the alarm, 1/alpha."""
        return 1.0 / self.alpha

    @property
    def log_threshold(self) -> float:
        """The logarithm of the threshold."""
        return -native.log(self.alpha, None)

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee."""
        return f"On exchangeable data the chance that this alarm is ever raised is at most {self.alpha:g}."

    @property
    def guarantee_with_restarts(self) -> str:
        """The guarantee for a monitor that restarts after each alarm: k alarms have probability at most alpha^k."""
        return (
            f"On exchangeable data the chance of a false alarm after any one start is at most {self.alpha:g}, and the "
            f"expected number of false alarms, however long one watches, at most {self.alpha / (1.0 - self.alpha):.3g}."
        )

    def update(self, log_value: float) -> bool:
        """Return whether S_n >= 1/alpha."""
        return _check_log_value(log_value) >= self.log_threshold

    def extend(self, log_values: ArrayLike) -> Bools:
        """Return the result of ``update`` for each value, one after the other."""
        return np.asarray(_check_log_values(log_values) >= self.log_threshold)


class _PeriodAlarm(ABC):
    """The base class of alarms for streams without end: a statistic of the increments, and a period."""

    _INITIAL: tuple[float, float]  # the state before the first value: the last log value, and the log statistic
    n: int = 0  # values read

    def __init__(self, period: float = 10_000.0) -> None:
        self.period: float = check_interval("period", period, 1.0, 1e300, "(1, 1e300]")
        self._state: tuple[Floats] = (np.array(self._INITIAL),)

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def threshold(self) -> float:
        """The value of the statistic that raises the alarm: the period."""
        return self.period

    @property
    def log_threshold(self) -> float:
        """The logarithm of the threshold."""
        return native.log(self.threshold, None)

    @abstractmethod
    def _log_statistic(self, log_values: Floats | float, out: Floats | None) -> Any:
        """Write the log statistic after each log value to ``out``; for a single value, with None, return it."""

    def update(self, log_value: float) -> bool:
        """Read the next log value; return whether the alarm is raised."""
        statistic: float = self._log_statistic(_check_log_value(log_value), None)
        self.n += 1
        return statistic >= self.log_threshold

    def extend(self, log_values: ArrayLike) -> Bools:
        """Return the result of ``update`` for each value, one after the other."""
        values = _check_log_values(log_values)
        statistic = np.empty(len(values))
        self._log_statistic(values, statistic)
        self.n += len(values)
        return np.asarray(statistic >= self.log_threshold)

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee."""
        return (
            f"On exchangeable data the mean time to a false alarm is at least {self.period:g} examples, and the chance "
            f"of one within the first n examples at most n/{self.period:g}."
        )

    @property
    def guarantee_with_restarts(self) -> str:
        """The guarantee for a monitor that restarts after each alarm."""
        return (
            f"On exchangeable data the mean time between false alarms is at least {self.period:g} examples, and their "
            f"expected number within n examples at most n/{self.period:g}."
        )


class Cusum(_PeriodAlarm):
    """An alarm that is raised when the capital is at least ``period`` times its lowest value so far.

        gamma_n = max_{i<n} S_n / S_i ,   log gamma_n = g_n + max(log gamma_{n-1}, 0) ,   g_n = log S_n - log S_{n-1}

    Guarantee: on exchangeable data the mean time to a false alarm is at least ``period`` examples, because gamma is
    at most the statistic of `ShiryaevRoberts`. O(1) time and memory.

    >>> alarm = Cusum(period=100)
    >>> [alarm.update(value) for value in (-9.0, -18.0, -15.0, -13.0)]
    [False, False, False, True]

    Reference: Page (1954); Volkhonskiy et al. (2017); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    _INITIAL = (0.0, 0.0)

    def _log_statistic(self, log_values: Floats | float, out: Floats | None) -> float | None:
        return native.cusum(self._state[0], log_values, out)


class ShiryaevRoberts(_PeriodAlarm):
    """An alarm that is raised when many gamblers, one of whom starts before each example, hold ``period`` in total.

        psi_n = sum_{i<n} S_n / S_i ,   log psi_n = g_n + log(1 + psi_{n-1})

    Guarantee: on exchangeable data ``psi_n - n`` is a martingale, so that the mean time to a false alarm is at least
    ``period`` examples. It is raised no later than `Cusum`, and soonest with the bet `Sentinel`. O(1) time and memory.

    >>> alarm = ShiryaevRoberts(period=100)
    >>> [alarm.update(value) for value in (-9.0, -18.0, -15.0, -13.0)]
    [False, False, False, True]

    Reference: Shiryaev (1963), Roberts (1966); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    _INITIAL = (0.0, -math.inf)  # psi_0 = 0

    def _log_statistic(self, log_values: Floats | float, out: Floats | None) -> float | None:
        return native.shiryaev_roberts(self._state[0], log_values, out)


def _check_log_value(log_value: Any) -> float:
    if type(log_value) is float and not math.isnan(log_value):  # the usual case, without further checks
        return log_value
    try:
        value = float(log_value) if isinstance(log_value, (float, int, np.floating, np.integer)) else math.nan
    except OverflowError:
        value = math.nan
    if math.isnan(value):
        raise ValueError(f"log_value must be a number, got {log_value!r}")
    return value


def _check_log_values(log_values: ArrayLike) -> Floats:
    try:
        values = np.asarray(log_values)
    except ValueError:  # ragged
        values = np.empty(0, object)
    if values.ndim != 1 or (values.dtype.kind not in "biuf" and values.size) or values.dtype.kind == "O":
        raise ValueError("log_values must be a one-dimensional array of numbers")
    bad = np.flatnonzero(np.isnan(values))
    if bad.size:
        raise ValueError(f"log_values must be numbers, got {values[bad[0]]} at position {bad[0]}")
    return np.ascontiguousarray(values, np.float64)
