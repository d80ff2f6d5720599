"""Detectors of frouros that river lacks: CUSUM, GeometricMovingAverage, RDDM, ECDD-WT and STEPD, as statistics.

frouros 0.9 asks for Python < 3.13, numpy < 2.2 and scipy < 1.15, so it cannot be installed next to the other tools of
this benchmark. Its detectors are therefore written down here from their definitions; ``check`` compares each with
frouros' own, alarm by alarm, in an environment of its own (numpy, scipy, frouros). BOCD is left out: it keeps a matrix
of n^2 numbers, and its decision has no threshold. All but STEPD watch for larger numbers only; CUSUM and
GeometricMovingAverage are also run on the negated numbers, as one must if the direction is not known.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import ndimage, signal, stats

from detectors import BINARY, Floats, Path, crossing, from_step


def deviations(x: Floats) -> Floats:
    """Each number minus the mean of all up to it."""
    return np.asarray(x - np.cumsum(x) / np.arange(1, len(x) + 1))


def cusum(x: Floats, seed: int = 0) -> Floats:
    """``s_n = max(0, s_{n-1} + x_n - mean_n - 0.005)`` from the 30th step on."""
    walk = np.cumsum(deviations(x) - 0.005)
    return from_step(30, walk - np.minimum.accumulate(np.minimum(walk, 0.0)))


def moving_average(x: Floats, seed: int = 0) -> Floats:
    """``s_n = 0.99 s_{n-1} + 0.01 (x_n - mean_n)`` from the 30th step on."""
    return from_step(30, np.asarray(signal.lfilter([0.01], [1.0, -0.99], deviations(x))))


RDDM_WARNING = 1.773 / 2.258  # of the drift level: the ratio of the defaults
RDDM_WARNINGS = 1_401  # so many steps in a row at the warning level are an alarm


def rddm(x: Floats, seed: int = 0) -> Floats:
    """``(p + s - p_min)/s_min`` as in DDM, from the 129th step on, or 1,401 steps in a row at the warning level.

    Up to 40,000 steps, where it begins to forget. The knob moves both levels in proportion.
    """
    n = np.arange(1, len(x) + 1)
    p = np.cumsum(x) / n
    s = np.sqrt(p * (1.0 - p) / n)
    both = np.where(n >= 129, p + s, np.inf)
    lowest = both < np.append(np.inf, np.minimum.accumulate(both)[:-1])
    last = np.maximum.accumulate(np.where(lowest, np.arange(len(x)), 0))
    statistic = from_step(129, (p + s - p[last]) / s[last])
    filled = np.where(np.isnan(statistic), -np.inf, statistic)
    lasting = ndimage.minimum_filter1d(filled, RDDM_WARNINGS, mode="constant", cval=-np.inf)
    lasting = np.append(np.full(RDDM_WARNINGS // 2, -np.inf), lasting)[: len(x)]  # of the steps up to this one
    return np.asarray(np.fmax(statistic, lasting / RDDM_WARNING))


def control_limit(p: Floats) -> Floats:
    """How many deviations ECDD allows at error rate p, for an average run length of 400."""
    return 3.97 - 6.56 * p + 48.73 * p**3 - 330.13 * p**5 + 848.18 * p**7


def ecdd(x: Floats, seed: int = 0) -> Floats:
    """The exponentially weighted mean (0.2) minus the mean, in units of its control limit, from the 30th step on."""
    n = np.arange(1, len(x) + 1)
    p = np.cumsum(x) / n
    weighted = signal.lfilter([0.2], [1.0, -0.8], x)
    deviation = np.sqrt(0.2 / 1.8 * (1.0 - 0.8 ** (2.0 * n)) * p * (1.0 - p))
    return from_step(30, (weighted - p) / (control_limit(p) * deviation))


def stepd(x: Floats, seed: int = 0) -> Floats:
    """The absolute z-statistic of the last 30 against all before, with correction for continuity, from 60 steps on.

    As in frouros, 60 equal numbers at the start are an alarm at every level.
    """
    n, total = np.arange(1, len(x) + 1), np.cumsum(x)
    recent = total - np.append(np.zeros(30), total[:-30])
    p, both = total / n, 1.0 / np.maximum(n - 30, 1) + 1.0 / 30.0
    difference = np.abs((total - recent) / np.maximum(n - 30, 1) - recent / 30.0)
    return from_step(60, np.abs((difference - 0.5 * both) / np.sqrt(p * (1.0 - p) * both)))


def first_drift(detector: Any, values: list[Any]) -> int:
    """The first step at which one of frouros' detectors detects a drift."""
    for i, value in enumerate(values):
        detector.update(value=value)
        if detector.drift:
            return i
    return len(values)


def theirs(name: str, level: float) -> Any:
    """The detector of frouros with this knob; that of ECDD-WT multiplies its control limit."""
    from frouros.detectors import concept_drift as drift

    if name == "CUSUM":
        return drift.CUSUM(drift.CUSUMConfig(lambda_=level))
    if name == "GeometricMovingAverage":
        return drift.GeometricMovingAverage(drift.GeometricMovingAverageConfig(lambda_=level))
    if name == "RDDM":
        return drift.RDDM(drift.RDDMConfig(drift_level=level, warning_level=level * RDDM_WARNING))
    if name == "STEPD":
        return drift.STEPD(drift.STEPDConfig(alpha_d=float(stats.norm.sf(level)), alpha_w=1.0))
    settings = drift.ECDDWTConfig()
    settings.control_limit_func = lambda p: level * control_limit(p)
    return drift.ECDDWT(settings)


LEVELS = {
    "CUSUM": (2.0, 10.0, 50.0),
    "GeometricMovingAverage": (0.05, 0.1, 1.0),
    "RDDM": (1.5, 2.258, 4.0),
    "ECDD-WT": (0.7, 1.0, 1.3),
    "STEPD": (2.0, 2.75, 4.0),
}


ONE_SIDED: Mapping[str, Callable[[Floats], Floats]] = {
    "CUSUM": cusum,
    "GeometricMovingAverage": moving_average,
    "RDDM": rddm,
    "ECDD-WT": ecdd,
    "STEPD": stepd,
}


def check(x: Floats) -> None:
    """Raise an error unless these sound when frouros' own do, on 0 and 1."""
    for name, statistic in ONE_SIDED.items():
        with np.errstate(divide="ignore", invalid="ignore"):
            path = statistic(x)
            for level in LEVELS[name]:
                found = first_drift(theirs(name, level), x.tolist())
                if found != (ours := crossing(path, math.nextafter(level, math.inf))):
                    raise AssertionError(f"{name} at {level} sounds at {found}, ours at {ours}")


def both_sides(statistic: Callable[[Floats], Floats]) -> Callable[[Floats, int], Floats]:
    """The larger of the statistics of the numbers and of the negated numbers."""
    return lambda x, seed: np.maximum(statistic(x), statistic(-x))


TOOLS = [
    Path("frouros CUSUM, both sides", 50.0, "lambda_ = 50", both_sides(cusum)),
    Path("frouros GeometricMovingAverage, both sides", 1.0, "lambda_ = 1", both_sides(moving_average)),
    Path("frouros RDDM", 2.258, "drift_level = 2.258", rddm, BINARY),
    Path("frouros ECDD-WT", 1.0, "average_run_length = 400", ecdd, BINARY),
    Path("frouros STEPD", float(stats.norm.isf(0.003)), "alpha_d = 0.003", stepd, BINARY),
]
