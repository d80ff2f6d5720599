"""Ours: martingales on the ranks of the numbers, and detectors that see the numbers themselves.

``choice`` names the one that a user would take, by the kind of data and by nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from detectors import BINARY, STARS, Detector, Floats, Path, crossing
from exchangeable import Martingale, PValues, RateMonitor, alarms, bets, measures
from exchangeable.protocols import Bet

DEFAULT = "Sentinel, ShiryaevRoberts"  # what a monitor with a period is made of


def p_values(x: Floats, seed: int) -> Floats:
    """What every martingale bets on: the ranks of the numbers among all so far."""
    return PValues(measures.Value(), seed=seed).extend(x)


def cusum(log_value: Floats) -> Floats:
    """``log max_{i<n} S_n/S_i``."""
    return np.asarray(log_value - np.minimum.accumulate(np.append(0.0, log_value))[:-1])


def shiryaev_roberts(log_value: Floats) -> Floats:
    """``log sum_{i<n} S_n/S_i``."""
    return np.asarray(log_value + np.logaddexp.accumulate(np.append(0.0, -log_value))[:-1])


def itself(log_value: Floats) -> Floats:
    """The log capital, for Ville's alarm."""
    return log_value


ALARMS: Mapping[str, tuple[Callable[[Floats], Floats], float, str]] = {  # statistic, default level, how it is set
    "Ville": (itself, alarms.Ville().log_threshold, f"alpha = {alarms.Ville().alpha:g}"),
    "Cusum": (cusum, alarms.Cusum().log_threshold, f"period = {alarms.Cusum().period:,.0f}"),
    "ShiryaevRoberts": (
        shiryaev_roberts,
        alarms.ShiryaevRoberts().log_threshold,
        f"period = {alarms.ShiryaevRoberts().period:,.0f}",
    ),
}


def on_ranks(make: Callable[[], Bet], alarm: str, name: str | None = None) -> Path:
    """A bet and an alarm; it is given p-values."""
    statistic, level, setting = ALARMS[alarm]
    name = name or f"{make().__class__.__name__}, {alarm}"
    return Path(name, level, setting, lambda p, seed: statistic(Martingale(make()).extend(p)))


RANKS: Sequence[Detector] = [
    on_ranks(bets.Sentinel, "ShiryaevRoberts"),
    on_ranks(bets.Sentinel, "Cusum"),
    on_ranks(bets.Adaptive, "Ville"),
]


def rate(name: str, kind: str, values: Sequence[int] = (0, 1), direction: str = "both") -> Path:
    """A monitor of the rate of events, or of ratings; it sees the numbers."""
    make = partial(RateMonitor, values=values, direction=direction)
    level = math.log(make().threshold)
    return Path(name, level, "period = 10,000", lambda x, seed: make().extend(x).statistic, kind)


RAW: Sequence[Detector] = [
    rate("RateMonitor", BINARY),
    rate('RateMonitor, "up"', BINARY, direction="up"),
    rate("RateMonitor, stars", STARS, (1, 2, 3, 4, 5)),
]


def choice(kind: str) -> str:
    """Our choice for this kind of data: the first of the monitors of rates that is made for it, else the default."""
    return next((tool.name for tool in RAW if tool.applies(kind)), DEFAULT)


def check(x: Floats) -> None:
    """Raise an error unless the alarms of the package are raised when their statistics say so."""
    log_value = Martingale(bets.Adaptive()).extend(p_values(x, 0))
    for alarm, statistic in ((alarms.Cusum(100), cusum), (alarms.ShiryaevRoberts(100), shiryaev_roberts)):
        sounds = np.append(alarm.extend(log_value), True)
        if crossing(statistic(log_value), math.log(100)) != int(sounds.argmax()):
            raise AssertionError(f"{alarm} does not sound when its statistic says so")
