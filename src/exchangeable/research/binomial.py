"""Exact binomial tests of a rate: intervals, and the power to detect an excess."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from exchangeable.protocols import Floats

CONFIDENCE = 0.99  # of the intervals; a promise counts as broken at half of 1 - CONFIDENCE
EXCESS = 1.3  # times the promised rate: an excess that the runs should detect


def interval(count: int, runs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the Clopper-Pearson interval: the probabilities that an exact binomial test would not reject. O(runs).

    >>> [round(end, 4) for end in interval(200, 4000)]
    [0.0415, 0.0596]

    Reference: Clopper and Pearson (1934).
    """
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if count == 0 else _least_probability(count, runs, tail)
    high = 1.0 if count == runs else 1.0 - _least_probability(runs - count, runs, tail)
    return low, high


def _least_probability(count: int, runs: int, tail: float) -> float:
    """Return the probability p with ``P(Bin(runs, p) >= count) = tail``, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if _at_least(runs, middle)[count] < tail else (low, middle)
    return high


def _at_least(runs: int, p: float) -> Floats:
    """Return ``P(Bin(runs, p) >= k)`` for ``k = 0, ..., runs``, 0 < p < 1, with the smallest terms added first."""
    k = np.arange(runs + 1)
    chances: Floats = np.exp(_log_binomials(runs) + k * math.log(p) + (runs - k) * math.log1p(-p))
    sums: Floats = np.cumsum(chances[::-1])[::-1]
    return sums


@lru_cache(maxsize=16)
def _log_binomials(runs: int) -> Floats:
    """Return ``ln(runs over k)`` for ``k = 0, ..., runs``."""
    logs: Floats = np.array([math.lgamma(k + 1.0) for k in range(runs + 1)])
    binomials: Floats = logs[-1] - logs - logs[::-1]
    return binomials


def power(promise: float, runs: int, *, excess: float = EXCESS, confidence: float = CONFIDENCE) -> float:
    """Return the exact probability that a rate of ``excess`` times the promise would count as broken.

    That is ``P(Bin(runs, excess * promise) >= k)`` for the least k with ``P(Bin(runs, promise) >= k) <= tail``.

    >>> round(power(0.05, 4000), 3)
    0.936
    """
    if promise >= 1.0:
        return 0.0
    broken = np.flatnonzero(_at_least(runs, promise) <= (1.0 - confidence) / 2.0)
    if not len(broken):  # every run may raise an alarm without counting as broken
        return 0.0
    return 1.0 if excess * promise >= 1.0 else float(_at_least(runs, excess * promise)[broken[0]])
