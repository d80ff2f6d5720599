"""Detectors of a change in a stream of numbers, all with one way to be called.

A detector has one knob, its level: the higher, the rarer its alarms. ``peak(x)`` is the highest level at which it
would sound on x, ``first(x, level)`` the step (from 0) at which it first does, or ``len(x)``. That is all it needs to
set every detector to the same rate of false alarms, and to time it.

`PageHinkley` and `KSWIN` of river are computed here from their definitions, because river's own need 0.4 ms a step and
tell one threshold at a time; ``check`` compares each with river's own, alarm by alarm.
"""

from __future__ import annotations

import math
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy import signal, stats

import peers
from exchangeable import Martingale, PValues, alarms, bets, measures
from exchangeable.protocols import Bet

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Detector(ABC):
    """One that watches numbers; ``level`` is its default."""

    def __init__(self, name: str, level: float, default: str) -> None:
        self.name, self.level, self.default = name, level, default

    @abstractmethod
    def peak(self, x: Floats, seed: int) -> float:
        """The highest level that would sound on x."""

    @abstractmethod
    def first(self, x: Floats, seed: int, level: float) -> int:
        """The first step at which it sounds, or ``len(x)``."""


class Path(Detector):
    """One that compares a statistic with a threshold: ``statistic(x, seed)`` after each step."""

    def __init__(self, name: str, level: float, default: str, statistic: Callable[[Floats, int], Floats]) -> None:
        super().__init__(name, level, default)
        self.statistic = statistic

    def peak(self, x: Floats, seed: int) -> float:
        """The maximum of the statistic; NaN is no evidence."""
        return float(np.nanmax(self.statistic(x, seed), initial=-np.inf))

    def first(self, x: Floats, seed: int, level: float) -> int:
        """The first time that the statistic is there."""
        return crossing(self.statistic(x, seed), level)


class Adwin(Detector):
    """River's ADWIN. Its knob is delta, level = -ln delta; before the first alarm it keeps all, so alarms are nested.

    Calibration may choose a delta above 1, which river takes and which then is a mere knob.
    """

    LOW, HIGH = -6.0, 60.0

    def peak(self, x: Floats, seed: int) -> float:
        """By bisection."""
        values = x.tolist()
        low, high = self.LOW, self.HIGH
        while high - low > 0.02:
            middle = 0.5 * (low + high)
            if self._first(values, middle) < len(values):
                low = middle
            else:
                high = middle
        return low

    def first(self, x: Floats, seed: int, level: float) -> int:
        """Where it detects a drift."""
        return self._first(x.tolist(), level)

    def _first(self, values: list[float], level: float) -> int:
        from river import drift

        adwin = drift.ADWIN(delta=math.exp(-level))
        return first_drift(adwin, values)


class Dummy(Detector):
    """Sounds at every step, whatever the level: for scale."""

    def peak(self, x: Floats, seed: int) -> float:
        """Any level."""
        return math.inf

    def first(self, x: Floats, seed: int, level: float) -> int:
        """At once."""
        return 0


def crossing(statistic: Floats, level: float) -> int:
    """The first step with ``statistic >= level``, or the number of steps; NaN is below everything."""
    above = statistic >= level
    return int(above.argmax()) if above.any() else len(above)


def first_drift(detector: Any, values: list[float]) -> int:
    """The first step at which one of river's detectors detects a drift."""
    for i, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            return i
    return len(values)


def page_hinkley(x: Floats, seed: int = 0) -> Floats:
    """The larger of river's two sums, from the 30th step on: delta 0.005, forgetting 0.9999, both sides.

    ``m_n = 0.9999 m_{n-1} + x_n - mean_n -+ 0.005``; it compares m - min m, and max m - m, with the threshold.
    """
    deviation = x - np.cumsum(x) / np.arange(1, len(x) + 1)
    up = signal.lfilter([1.0], [1.0, -0.9999], deviation - 0.005)
    down = signal.lfilter([1.0], [1.0, -0.9999], deviation + 0.005)
    highest = np.maximum.accumulate(np.maximum(down, -1.0))  # river's maximum begins at -1
    both = np.maximum(up - np.minimum.accumulate(up), highest - down)
    both[:29] = -np.inf
    return np.asarray(both)


WINDOW, RECENT = 100, 30  # river's defaults for KSWIN


@cache
def kolmogorov_smirnov() -> Floats:
    """-ln of the p-value for each distance k/30 of two samples of 30; nothing below 0.1, as in river."""
    low = np.arange(RECENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # as river does: where the exact p-value fails, scipy warns
        tests = [stats.ks_2samp(low, low + k).pvalue for k in range(RECENT + 1)]
    levels = -np.log(np.array(tests))
    levels[: RECENT // 10 + 1] = -np.inf  # river asks for a distance above 0.1
    return np.asarray(levels)


def distances(first: Floats, second: Floats) -> Integers:
    """The Kolmogorov-Smirnov distance of each pair of rows, in units of one over their length."""
    both = np.concatenate([first, second], axis=1)
    order = np.argsort(both, axis=1)
    rise = np.cumsum(np.where(order < first.shape[1], 1, -1), axis=1)
    ordered = np.take_along_axis(both, order, axis=1)
    last = np.ones_like(order, dtype=bool)  # of its ties: only there do both distribution functions stand
    last[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
    return np.asarray(np.abs(np.where(last, rise, 0)).max(axis=1))


def kswin(x: Floats, drawn: Integers) -> Floats:
    """-ln of KSWIN's p-value after each step; ``drawn`` are the places of the older window that each test looks at."""
    statistic = np.full(len(x), -np.inf)
    windows = sliding_window_view(x, WINDOW)
    older = np.take_along_axis(windows, drawn, axis=1)
    statistic[WINDOW - 1 :] = kolmogorov_smirnov()[distances(older, windows[:, WINDOW - RECENT :])]
    return statistic


def kswin_path(x: Floats, seed: int) -> Floats:
    """KSWIN with its random choices by numpy."""
    keys = np.random.default_rng([seed, 30]).random((len(x) - WINDOW + 1, WINDOW - RECENT))
    return kswin(x, np.argpartition(keys, RECENT, axis=1)[:, :RECENT])


def check(x: Floats) -> None:
    """Whether our PageHinkley and KSWIN sound when river's own do, and the alarms when their statistics say so."""
    from river import drift

    values = x.tolist()
    for threshold in (5.0, 20.0, 50.0):
        own = crossing(page_hinkley(x), math.nextafter(threshold, math.inf))
        if own != (theirs := first_drift(drift.PageHinkley(threshold=threshold), values)):
            raise AssertionError(f"PageHinkley sounds at {theirs}, ours at {own}")
    chance = random.Random(0)
    older = range(WINDOW - RECENT)
    drawn = np.array([chance.sample(older, RECENT) for _ in range(len(x) - WINDOW + 1)])
    for alpha in (0.005, 0.0001):
        own = crossing(kswin(x, drawn), -math.log(alpha))
        if own != (theirs := first_drift(drift.KSWIN(alpha=alpha, seed=0), values)):
            raise AssertionError(f"KSWIN sounds at {theirs}, ours at {own}")
    log_value = Martingale(bets.Adaptive()).extend(p_values(x, 0))
    for alarm, statistic in ((alarms.Cusum(100), cusum), (alarms.ShiryaevRoberts(100), shiryaev_roberts)):
        sounds = np.append(alarm.extend(log_value), True)
        if crossing(statistic(log_value), math.log(100)) != int(sounds.argmax()):
            raise AssertionError(f"{alarm} does not sound when its statistic says so")


def p_values(x: Floats, seed: int) -> Floats:
    """What every martingale bets on: the ranks of the numbers among all so far."""
    return PValues(measures.Value(), seed=seed).extend(x)


def own(x: Floats, seed: int) -> dict[str, Floats]:
    """The statistics of all of ours; what shares a bet shares its capital."""
    p = p_values(x, seed)
    capital = {make: Martingale(make()).extend(p) for make in {make for make, _ in OURS.values()}}
    return {name: ALARMS[alarm][0](capital[make]) for name, (make, alarm) in OURS.items()}


def cusum(log_value: Floats) -> Floats:
    """``log max_{i<n} S_n/S_i``."""
    return np.asarray(log_value - np.minimum.accumulate(np.append(0.0, log_value))[:-1])


def shiryaev_roberts(log_value: Floats) -> Floats:
    """``log sum_{i<n} S_n/S_i``."""
    return np.asarray(log_value + np.logaddexp.accumulate(np.append(0.0, -log_value))[:-1])


def itself(log_value: Floats) -> Floats:
    """The log capital, for Ville's alarm."""
    return log_value


ALARMS: Mapping[str, tuple[Callable[[Floats], Floats], float, str]] = {
    "Ville": (itself, alarms.Ville().log_threshold, f"alpha = {alarms.Ville().alpha:g}"),
    "Cusum": (cusum, math.log(alarms.Cusum().threshold), f"period = {alarms.Cusum().period:,.0f}"),
    "ShiryaevRoberts": (
        shiryaev_roberts,
        math.log(alarms.ShiryaevRoberts().threshold),
        f"period = {alarms.ShiryaevRoberts().period:,.0f}",
    ),
}
OURS: Mapping[str, tuple[Callable[[], Bet], str]] = {  # a bet and an alarm each
    "Adaptive, Ville": (bets.Adaptive, "Ville"),
    "Adaptive, ShiryaevRoberts": (bets.Adaptive, "ShiryaevRoberts"),
    "Watchful, Cusum": (bets.Watchful, "Cusum"),
    "Watchful, ShiryaevRoberts": (bets.Watchful, "ShiryaevRoberts"),
}
RIVER = [
    Adwin("river ADWIN", -math.log(0.002), "delta = 0.002"),
    Path("river KSWIN", -math.log(0.005), "alpha = 0.005", kswin_path),
    Path("river PageHinkley", 50.0, "threshold = 50", page_hinkley),
]
DUMMY = Dummy("always", 0.0, "none")
PEERS: Mapping[str, Sequence[str]] = {  # those quick enough for hundreds of runs
    "peers": (
        "MAPIE jumper",
        "crepes SimpleJumper",
        "crepes SleeperStayer",
        "crepes SleeperDrifter",
        "online-cp SimpleMixture",
    ),
    "slow peers": ("nonconform SimpleJumper, restarted",),
}


def martingales(names: Sequence[str]) -> list[Path]:
    """The peers' martingales of these names that are installed; they get our exact p-values.

    Where a library names no threshold, 100 is taken.
    """
    found = [peer for peer in peers.installed(peers.PATHS) if peer.name in names]
    return [
        Path(
            peer.name,
            math.log(20.0 if peer.library == "MAPIE" else 100.0),
            "capital 20" if peer.library == "MAPIE" else "capital 100",
            lambda p, seed, path=peer.path: peers.quietly(path, p),  # type: ignore[misc]
        )
        for peer in found
    ]
