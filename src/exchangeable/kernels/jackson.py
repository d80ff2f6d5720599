"""Density estimates with the Jackson kernel: finite cosine sums that are nonnegative and integrate to one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from exchangeable.kernels.compilation import compiled


def weights(order: int) -> NDArray[np.float64]:
    """The weights of cos(k pi x) cos(k pi y), k < K, in the Jackson kernel of order K.

    ``((K - k + 1) cos(pi k/(K + 1)) + sin(pi k/(K + 1)) cot(pi/(K + 1))) / (K + 1)``, doubled for k > 0.

    >>> weights(3).round(3)
    array([1.   , 1.414, 0.5  ])
    """
    k, turn = np.arange(order), np.pi / (order + 1)
    g: NDArray[np.float64] = ((order - k + 1) * np.cos(k * turn) + np.sin(k * turn) / np.tan(turn)) / (order + 1)
    return np.where(k == 0, 1.0, 2.0 * g)


@compiled()
def _cosines(p, out):  # type: ignore[no-untyped-def]
    """``cos(k pi p)`` for k = 0 .. len(out) - 1, by rotation."""
    turn_c, turn_s = math.cos(math.pi * p), math.sin(math.pi * p)
    c, s = 1.0, 0.0
    for k in range(len(out)):
        out[k] = c
        c, s = c * turn_c - s * turn_s, s * turn_c + c * turn_s


@compiled()
def kernel(sums, weights, forgetting, p, out):  # type: ignore[no-untyped-def]
    """Log of ``(1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i))``.

    ``sums[k] = sum_i lam^(n-i) cos(k pi p_i)``.
    """
    cosines = np.empty(len(sums))
    for i in range(len(p)):
        _cosines(p[i], cosines)
        total, mass = 1.0, sums[0]
        for k in range(len(sums)):
            total += weights[k] * sums[k] * cosines[k]
            sums[k] = forgetting * sums[k] + cosines[k]
        out[i] = math.log(total / (1.0 + mass))


@compiled()
def markov(last, sums, weights, forgetting, p, out):  # type: ignore[no-untyped-def]
    """Log of ``(1 + sum K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum K_J(q, p_{t-1}))``, q the p before.

    ``sums[j, k] = sum_t lam^(n-t) cos(j pi p_{t-1}) cos(k pi p_t)``; ``last`` holds q's cosines, zeros at first.
    """
    cosines, folded = np.empty(len(last)), np.empty(len(last))
    for i in range(len(p)):
        _cosines(p[i], cosines)
        folded[:] = 0.0
        for j in range(len(last)):
            u, row = weights[j] * last[j], sums[j]
            for k in range(len(folded)):
                folded[k] += u * row[k]
                row[k] = forgetting * row[k] + last[j] * cosines[k]
        total = 1.0
        for k in range(len(folded)):
            total += weights[k] * cosines[k] * folded[k]
        out[i] = math.log(total / (1.0 + folded[0]))
        last[:] = cosines
