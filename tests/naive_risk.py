"""`Risk`, written down plainly: every start and every bet on its own, in logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

FIXED = [0.96 * 2.0 ** (-k / 2.0) for k in range(20)]
FORGET = (1.0, 0.99, 0.97, 0.9)
WEIGHTS = [0.75 / 20.0] * 20 + [0.25 / 4.0] * 4


def factors(x: Sequence[float], limit: float) -> NDArray[np.float64]:
    """By loss and bet: what the bet multiplies its capital by."""
    rows = []
    for t, loss in enumerate(x):
        fractions = list(FIXED)
        for forget in FORGET:
            powers = [forget ** (t - 1 - i) for i in range(t)]
            first = sum(w * (x[i] - limit) for i, w in enumerate(powers))
            second = sum(w * (x[i] - limit) ** 2 for i, w in enumerate(powers)) + limit * (1.0 - limit)
            fractions.append(min(max(limit * first / second, 0.0), 0.5))
        rows.append([1.0 + f / limit * (loss - limit) for f in fractions])
    return np.array(rows)


def paths(x: Sequence[float], limit: float) -> tuple[list[float], list[float]]:
    """Log evidence and log statistic after each loss."""
    table = factors(x, limit)
    evidence, statistic = [], []
    for n in range(1, len(x) + 1):
        products = [np.prod(table[i:n], axis=0) @ WEIGHTS for i in range(n)]
        rest = [(i + 1.0) ** -0.25 for i in range(n + 1)]
        evidence.append(math.log(sum((rest[i] - rest[i + 1]) * products[i] for i in range(n)) + rest[n]))
        statistic.append(math.log(sum(products)))
    return evidence, statistic


def radius(x: Sequence[float], alpha: float) -> float:
    """Half the width of the interval of the mean, before it is cut to [0, 1]."""
    predictions = [(sum(x[:i]) + 0.5) / (i + 1.0) for i in range(len(x))]
    squares = sum((loss - guess) ** 2 for loss, guess in zip(x, predictions, strict=True))
    grid = [0.9 * 2.0 ** (-k / 2.0) for k in range(32)]
    weights = np.array([1.0 / (k + 1) for k in range(32)])

    def excess(reach: float) -> float:
        logs = [y * reach - (-math.log1p(-y) - y) * squares for y in grid]
        return float(np.logaddexp.reduce(np.log(weights / weights.sum()) + logs) - math.log(2.0 / alpha))

    return float(brentq(excess, 0.0, 1e9, xtol=1e-12)) / len(x)
