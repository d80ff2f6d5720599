"""River's detectors for numbers, ADWIN, KSWIN and PageHinkley, as statistics that do not depend on the threshold.

Before its first alarm none of them has forgotten anything because of its threshold, so one pass tells when it would
sound at every threshold. ``check`` compares each with river's own, alarm by alarm.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import signal, stats

from detectors import Floats, Integers, Path, crossing, from_step

# ------------------------------------------------------------------ ADWIN

CLOCK, MIN_PART, MAX_BUCKETS = 32, 5, 5  # river's defaults
WIDEST = -math.log(2.0 * math.log(CLOCK))  # below this level river takes the root of a negative number at its 1st check


def _bucket_ends(length: int) -> Iterator[tuple[int, Integers]]:
    """At each step at which ADWIN looks, where its buckets end; this depends on the number of steps alone."""
    rows = [0] * 64  # how many buckets of 1, 2, 4, ... values
    for n in range(1, length + 1):
        rows[0] += 1
        i = 0
        while rows[i] > MAX_BUCKETS:
            rows[i], rows[i + 1], i = rows[i] - 2, rows[i + 1] + 1, i + 1
        if n % CLOCK == 0:
            yield n, np.cumsum(np.repeat(2 ** np.arange(63, -1, -1), rows[::-1]))


@cache
def adwin_cuts(length: int) -> tuple[Integers, Integers, Integers]:
    """Every cut that ADWIN tries: its step n, the number of values before it, and where the cuts of each n begin."""
    kept = [(n, end[(end >= MIN_PART) & (n - end >= MIN_PART)]) for n, end in _bucket_ends(length)]
    sizes = [len(end) for _, end in kept]
    steps = np.repeat([n for n, _ in kept], sizes)
    return steps, np.concatenate([end for _, end in kept]), np.cumsum([0, *sizes[:-1]])


def adwin(x: Floats, seed: int = 0) -> Floats:
    """The largest ``-ln delta`` at which a cut is significant.

    With m = 1/(n0 - 4) + 1/(n1 - 4) and v the variance of all, a cut is significant if the means differ by more than
    ``sqrt(2 m v d) + 2 m d/3``, ``d = ln(2 ln(n)/delta)``: a quadratic equation for the root of d.
    """
    n, n0, starts = adwin_cuts(len(x))
    centred = x - x[:CLOCK].mean()
    total, squares = np.cumsum(centred), np.cumsum(centred * centred)
    n1, before, whole = n - n0, total[n0 - 1], total[n - 1]
    variance = np.maximum(squares[n - 1] / n - (whole / n) ** 2, 0.0)
    m = 1.0 / (n0 - MIN_PART + 1) + 1.0 / (n1 - MIN_PART + 1)
    linear, quadratic = np.sqrt(2.0 * m * variance), 2.0 / 3.0 * m
    difference = np.abs(before / n0 - (whole - before) / n1)
    root = (np.sqrt(linear * linear + 4.0 * quadratic * difference) - linear) / (2.0 * quadratic)
    found = np.maximum.reduceat(root * root - np.log(2.0 * np.log(n)), starts)
    statistic = np.full(len(x), -np.inf)
    statistic[n[starts] - 1] = np.where(found >= WIDEST, found, -np.inf)
    return statistic


# ------------------------------------------------------------------ PageHinkley


def page_hinkley(x: Floats, seed: int = 0) -> Floats:
    """The larger of river's two sums, from the 30th step on: delta 0.005, forgetting 0.9999, both sides.

    ``m_n = 0.9999 m_{n-1} + x_n - mean_n -+ 0.005``; it compares m - min m, and max m - m, with the threshold.
    """
    deviation = x - np.cumsum(x) / np.arange(1, len(x) + 1)
    up = signal.lfilter([1.0], [1.0, -0.9999], deviation - 0.005)
    down = signal.lfilter([1.0], [1.0, -0.9999], deviation + 0.005)
    highest = np.maximum.accumulate(np.maximum(down, -1.0))  # river's maximum begins at -1
    return from_step(30, np.maximum(up - np.minimum.accumulate(up), highest - down))


# ------------------------------------------------------------------ KSWIN

WINDOW, RECENT = 100, 30  # river's defaults


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
    keys = np.random.default_rng([seed, 30]).random((len(x) - WINDOW + 1, WINDOW - RECENT), dtype=np.float32)
    return kswin(x, np.argpartition(keys, RECENT, axis=1)[:, :RECENT])


# ------------------------------------------------------------------ comparison with river's own


def first_drift(detector: Any, values: list[Any]) -> int:
    """The first step at which one of river's detectors detects a drift."""
    for i, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            return i
    return len(values)


def agree(name: str, own: int, theirs: int) -> None:
    """Raise an error unless both alarms come at the same step."""
    if own != theirs:
        raise AssertionError(f"{name} sounds at {theirs}, ours at {own}")


def check(x: Floats) -> None:
    """Raise an error unless these statistics sound when river's own detectors do."""
    from river import drift

    values, above = x.tolist(), math.inf
    for level in (-1.0, 0.5, 2.0, 6.0):
        ours = crossing(adwin(x), math.nextafter(level, above))
        agree("ADWIN", ours, first_drift(drift.ADWIN(delta=math.exp(-level)), values))
    for threshold in (5.0, 20.0, 50.0):
        ours = crossing(page_hinkley(x), math.nextafter(threshold, above))
        agree("PageHinkley", ours, first_drift(drift.PageHinkley(threshold=threshold), values))
    chance = random.Random(0)
    drawn = np.array([chance.sample(range(WINDOW - RECENT), RECENT) for _ in range(len(x) - WINDOW + 1)])
    for alpha in (0.005, 0.0001):
        agree("KSWIN", crossing(kswin(x, drawn), -math.log(alpha)), first_drift(drift.KSWIN(alpha, seed=0), values))


TOOLS = [
    Path("river ADWIN", -math.log(0.002), "delta = 0.002", adwin),
    Path("river KSWIN", -math.log(0.005), "alpha = 0.005", kswin_path),
    Path("river PageHinkley", 50.0, "threshold = 50", page_hinkley),
]
