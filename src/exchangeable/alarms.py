"""Alarms: when is the capital large enough to speak up?

`Ville` bounds the chance of *ever* a false alarm. `Cusum` and `ShiryaevRoberts` are for watching without end: they
bound how often false alarms come, and find a change soon even after a long quiet time, in which capital shrinks. They
read the increments of the log martingale only, so nothing underflows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.protocols import Floats
from exchangeable.validation import call_repr, check_integer, check_interval

__all__ = ["Cusum", "Difference", "ShiryaevRoberts", "Ville"]
SMALLEST = 1e-300  # so that 1/alpha is a number
Sounds = NDArray[np.bool_]


class Ville:
    """Sounds whenever the capital stands at 1/alpha or more.

    The promise: on exchangeable data the probability that it *ever* sounds, however long one watches, is at most
    alpha (Ville's inequality: P(S_n >= c for some n) <= 1/c for a nonnegative martingale with S_0 = 1).
    O(1) time and memory; it has no state.

    >>> alarm = Ville(0.01)
    >>> alarm.threshold, alarm.update(4.6), alarm.update(4.7)
    (100.0, False, True)

    Reference: Ville (1939); Fedorova et al. (2012), section 3.
    """

    def __init__(self, alpha: float = 0.01) -> None:
        self.alpha: float = check_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
        if self.alpha < SMALLEST:
            raise ValueError(f"alpha must be at least {SMALLEST:g}, got {alpha}")

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def threshold(self) -> float:
        """The capital that sounds the alarm, 1/alpha."""
        return 1.0 / self.alpha

    @property
    def log_threshold(self) -> float:
        """Its logarithm."""
        return -native.log(self.alpha, None)

    @property
    def guarantee(self) -> str:
        """The promise in words."""
        return f"On exchangeable data the chance that this alarm ever sounds is at most {self.alpha:g}."

    @property
    def guarantee_with_restarts(self) -> str:
        """The promise for a monitor that begins again after each alarm: k alarms have probability at most alpha^k."""
        return (
            f"On exchangeable data the chance of a false alarm after any one start is at most {self.alpha:g}, and the "
            f"expected number of false alarms, however long one watches, at most {self.alpha / (1.0 - self.alpha):.3g}."
        )

    def update(self, log_value: float) -> bool:
        """Whether S_n >= 1/alpha."""
        return _one(log_value) >= self.log_threshold

    def extend(self, log_values: ArrayLike) -> Sounds:
        """The same for many values, one after the other."""
        return np.asarray(_many(log_values) >= self.log_threshold)


class _Watching(ABC):
    """What alarms for watching without end have in common: a statistic of the increments, and a period."""

    _state: tuple[Floats, ...]
    n: int = 0  # values read
    period: float

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The value of the statistic that sounds the alarm."""

    @abstractmethod
    def _play(self, log_values: Floats | float, out: Floats | None) -> Any:
        """Put the statistic after each log value into out. If there is one, out is None, and it is returned."""

    def update(self, log_value: float) -> bool:
        """Take the next log value; does the alarm sound?"""
        statistic: float = self._play(_one(log_value), None)
        self.n += 1
        return statistic >= self._level()

    def extend(self, log_values: ArrayLike) -> Sounds:
        """The same for many values, one after the other."""
        values = _many(log_values)
        statistic = np.empty(len(values))
        self._play(values, statistic)
        self.n += len(values)
        return np.asarray(statistic >= self._level())

    def _level(self) -> float:
        return native.log(self.threshold, None)

    @property
    def guarantee(self) -> str:
        """The promise in words."""
        return (
            f"On exchangeable data the mean time to a false alarm is at least {self.period:g} examples, and the chance "
            f"of one within the first n examples at most n/{self.period:g}."
        )

    @property
    def guarantee_with_restarts(self) -> str:
        """The promise for a monitor that begins again after each alarm."""
        return (
            f"On exchangeable data the mean time between false alarms is at least {self.period:g} examples, and their "
            f"expected number within n examples at most n/{self.period:g}."
        )


class Cusum(_Watching):
    """Sounds when the capital stands at ``period`` times its lowest value so far, or more.

        gamma_n = max_{i<n} S_n / S_i ,   log gamma_n = g_n + max(log gamma_{n-1}, 0) ,   g_n = log S_n - log S_{n-1}

    The promise: on exchangeable data the mean time to a false alarm is at least ``period`` examples, because gamma is
    at most the statistic of `ShiryaevRoberts`. O(1) time and memory.

    >>> alarm = Cusum(period=100)
    >>> [alarm.update(value) for value in (-9.0, -18.0, -15.0, -13.0)]
    [False, False, False, True]

    Reference: Page (1954); Volkhonskiy et al. (2017); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    def __init__(self, period: float = 10_000.0) -> None:
        self.period: float = _period(period)
        self._state = (np.zeros(2),)

    @property
    def threshold(self) -> float:
        """The value of gamma that sounds the alarm, the period."""
        return self.period

    def _play(self, log_values: Floats | float, out: Floats | None) -> float | None:
        return native.cusum(self._state[0], log_values, out)


class ShiryaevRoberts(_Watching):
    """Sounds when the gains of all gamblers together, one of whom starts before each example, reach ``period``.

        psi_n = sum_{i<n} S_n / S_i ,   log psi_n = g_n + log(1 + psi_{n-1})

    The promise: on exchangeable data ``psi_n - n`` is a martingale, so that the mean time to a false alarm is at least
    ``period`` examples. Sounds no later than `Cusum`; soonest with the bet `Watchful`. O(1) time and memory.

    >>> alarm = ShiryaevRoberts(period=100)
    >>> [alarm.update(value) for value in (-9.0, -18.0, -15.0, -13.0)]
    [False, False, False, True]

    Reference: Shiryaev (1963), Roberts (1966); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    def __init__(self, period: float = 10_000.0) -> None:
        self.period: float = _period(period)
        self._state = (np.array([0.0, -math.inf]),)  # psi_0 = 0

    @property
    def threshold(self) -> float:
        """The value of psi that sounds the alarm, the period."""
        return self.period

    def _play(self, log_values: Floats | float, out: Floats | None) -> float | None:
        return native.shiryaev_roberts(self._state[0], log_values, out)


class Difference(_Watching):
    """Sounds when a gambler of fixed stakes has won much within the last ``window`` examples; for comparison.

        D_n = sum_{n-W < i <= n} (min(f_i(p_i), K) - 1) >= K sqrt(W ln(period) / 2) ,   W = window, K = bound

    The promise: on exchangeable data the summands have mean at most 0 and lie in [-1, K - 1], so that by the
    Hoeffding-Azuma inequality the chance of an alarm at any one example is at most 1/period; within n examples it is at
    most n/period, and the mean time to a false alarm at least period/2. `Cusum` promises more and finds more.
    O(1) time a step, O(window) memory.

    >>> alarm = Difference(period=100, window=20, bound=2.0)
    >>> float(round(alarm.threshold, 2)), alarm.extend(np.arange(1, 16) * 0.7).sum()
    (13.57, np.int64(2))

    Reference: Ho (2005), section 3.2, whose test of capital this makes exact.
    """

    def __init__(self, period: float = 10_000.0, *, window: int = 100, bound: float = 2.0) -> None:
        self.period: float = _period(period)
        self.window: int = check_integer("window", window, 1, 10**8)
        self.bound: float = check_interval("bound", bound, 1.0, 1e6, "(1, 1e6]")
        most = self.window * (self.bound - 1.0)
        if most < self.threshold:
            raise ValueError(
                f"window must be longer, or bound higher, for a period of {self.period:g}: the win can reach {most:g} "
                f"at most and the alarm is at {self.threshold:g}, got window {window} and bound {bound}"
            )
        self._state = np.zeros(3), np.zeros(self.window)

    @property
    def threshold(self) -> float:
        """The win that sounds the alarm."""
        return self.bound * math.sqrt(0.5 * self.window * native.log(self.period, None))

    def _level(self) -> float:
        return self.threshold

    @property
    def guarantee(self) -> str:
        """The promise in words."""
        return (
            f"On exchangeable data the chance of a false alarm within the first n examples is at most "
            f"n/{self.period:g}, and the mean time to one at least {0.5 * self.period:g} examples."
        )

    @property
    def guarantee_with_restarts(self) -> str:
        """The promise for a monitor that begins again after each alarm."""
        return (
            f"On exchangeable data the chance of a false alarm within n examples after any one start is at most "
            f"n/{self.period:g}, and the mean time between false alarms at least {0.5 * self.period:g} examples."
        )

    def _play(self, log_values: Floats | float, out: Floats | None) -> float | None:
        return native.difference(self._state[0], self._state[1], self.bound, log_values, out)


def _period(period: float) -> float:
    return check_interval("period", period, 1.0, 1e300, "(1, 1e300]")


def _one(log_value: Any) -> float:
    if type(log_value) is float and not math.isnan(log_value):  # nearly always: single steps are quick
        return log_value
    try:
        value = float(log_value) if isinstance(log_value, (float, int, np.floating, np.integer)) else math.nan
    except OverflowError:
        value = math.nan
    if math.isnan(value):
        raise ValueError(f"log_value must be a number, got {log_value!r}")
    return value


def _many(log_values: ArrayLike) -> Floats:
    try:
        given = np.asarray(log_values)
    except ValueError:  # ragged
        given = np.empty(0, object)
    if given.ndim != 1 or (given.dtype.kind not in "biuf" and given.size) or given.dtype.kind == "O":
        raise ValueError("log_values must be a one-dimensional array of numbers")
    bad = np.flatnonzero(np.isnan(given))
    if bad.size:
        raise ValueError(f"log_values must be numbers, got {given[bad[0]]} at position {bad[0]}")
    return np.ascontiguousarray(given, np.float64)
