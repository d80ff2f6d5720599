"""`RateMonitor`, written down plainly: every start and every rate on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

Floats = NDArray[np.float64]
GRID: Floats = np.linspace(-13.75, 13.75, 111)  # log odds
RATES: Floats = 1.0 / (1.0 + np.exp(-GRID))


def log_kt(n: int, k: int) -> float:
    """The log of the Krichevsky-Trofimov probability of n events, k of them ones."""
    return float(gammaln(k + 0.5) + gammaln(n - k + 0.5) - gammaln(n + 1.0) - math.log(math.pi))


def log_greatest(n: int, k: int) -> float:
    """The log of the greatest likelihood, max_q q^k (1 - q)^(n-k)."""
    return float(xlogy(k, k / n) + xlogy(n - k, 1.0 - k / n)) if n else 0.0


def weights(n: int, k: int, directions: str = "both") -> Floats:
    """Of the rates after a change, if there were k ones in n events before it."""
    start = 0.25 * round(math.log((k + 0.5) / (n - k + 0.5)) / 0.25)
    start = min(max(start, GRID[0]), GRID[-1])
    row, least = raw_weights(start, directions), raw_weights(min(max(start, -9.25), 9.25), directions)
    return np.asarray(row / least.sum())


def raw_weights(start: float, directions: str) -> Floats:
    """Before they are divided by a sum, for these log odds before the change."""
    before, odds = 1.0 / (1.0 + math.exp(-start)), GRID - start
    entropy = RATES * np.log(RATES / before) + (1.0 - RATES) * np.log((1.0 - RATES) / (1.0 - before))
    towards = np.where(odds * start < 0.0, 2.0, 1.0) if start else 1.5
    row = towards * np.exp(-2.0 * np.abs(odds)) * -np.expm1(-100.0 * entropy)
    row[odds == 0.0] = 0.0
    row[{"up": odds < 0.0, "down": odds > 0.0, "both": odds > math.inf}[directions]] = 0.0
    return np.asarray(row)


def start_weight(m: int, cuts: int = 1) -> float:
    """s_i for a start after m events."""
    m = min(m, 2**20)
    return 1.0 if m < 32 else 1.25 * math.sqrt(m / math.log(1600.0 * cuts**2 * m))


def paths(y: Sequence[int], directions: str = "both", cuts: int = 1) -> tuple[Floats, Floats, list[int]]:
    """Log evidence and log statistic after each event, and the start of the largest summand of the statistic."""
    sums = np.concatenate([[0], np.cumsum(y)])
    evidence, statistic, change = [], [], []
    for n in range(1, len(y) + 1):
        log_parts = np.empty((n, len(GRID)))  # by start and rate
        for i in range(n):
            ones, count = int(sums[n] - sums[i]), n - i
            with np.errstate(divide="ignore"):
                log_parts[i] = np.log(weights(i, int(sums[i]), directions))
            log_parts[i] += ones * np.log(RATES) + (count - ones) * np.log1p(-RATES)
            log_parts[i] += log_kt(i, int(sums[i])) - log_greatest(n, int(sums[n]))
        shares = np.array([(i + 1.0) ** -0.25 - (i + 2.0) ** -0.25 for i in range(n)])
        starts = np.array([start_weight(i, cuts) for i in range(n)])
        rest = (n + 1.0) ** -0.25 * math.exp(log_kt(n, int(sums[n])) - log_greatest(n, int(sums[n])))
        parts = np.exp(log_parts)
        evidence.append(math.log(shares @ parts.sum(axis=1) + rest))
        with np.errstate(divide="ignore"):
            statistic.append(float(np.log(starts @ parts.sum(axis=1))))
        best = (np.log(starts)[:, np.newaxis] + log_parts).max(axis=1)
        change.append(int(best[1:].argmax()) + 1 if n > 1 else 0)
    return np.array(evidence), np.array(statistic), change


def long_paths(y: NDArray[np.int64], directions: str) -> tuple[Floats, Floats]:
    """Log evidence and log statistic after each event, by sums of logarithms over all starts with one rate."""
    psi, part = np.full((2, len(GRID)), -np.inf)
    evidence, statistic = np.empty((2, len(y)))
    ones = 0
    for n, event in enumerate(y.tolist()):
        with np.errstate(divide="ignore"):
            fresh = np.log(weights(n, ones, directions)) + log_kt(n, ones)
        share = (n + 1.0) ** -0.25 - (n + 2.0) ** -0.25
        likelihood = np.log(RATES) if event else np.log1p(-RATES)
        psi = np.logaddexp(psi, fresh + math.log(start_weight(n))) + likelihood
        part = np.logaddexp(part, fresh + math.log(share)) + likelihood
        ones += event
        greatest, rest = log_greatest(n + 1, ones), log_kt(n + 1, ones) - 0.25 * math.log(n + 2.0)
        evidence[n] = np.logaddexp(np.logaddexp.reduce(part), rest) - greatest
        statistic[n] = np.logaddexp.reduce(psi) - greatest
    return evidence, statistic


def mass(m: int, missed: float) -> float:
    """sup_q KT(the sequences of m events with KT <= P_q/missed), exactly but for rounding.

    For k ones the rates q with P_q >= missed KT are an interval around k/m, so this is the largest total weight of
    intervals that share a point. Intervals are found by bisection in asin(sqrt(q)), and rounded outwards.
    """
    k = np.arange(m + 1.0)
    log_kts = gammaln(k + 0.5) + gammaln(m - k + 0.5) - gammaln(m + 1.0) - math.log(math.pi)
    share = np.exp(log_kts + gammaln(m + 1.0) - gammaln(k + 1.0) - gammaln(m - k + 1.0))
    best = np.arcsin(np.sqrt(k / m))

    def outside(far: Floats) -> Floats:
        near = best.copy()
        for _ in range(45):
            middle = 0.5 * (far + near)
            with np.errstate(divide="ignore"):
                inside = 2.0 * (xlogy(k, np.sin(middle)) + xlogy(m - k, np.cos(middle))) >= log_kts + math.log(missed)
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return far

    left, right = outside(np.zeros(m + 1)), outside(np.full(m + 1, 0.5 * math.pi))
    left[0], right[-1] = 0.0, 0.5 * math.pi
    at, change = np.concatenate([left, right]), np.concatenate([share, -share])
    return float(np.cumsum(change[np.lexsort((-change, at))]).max())
