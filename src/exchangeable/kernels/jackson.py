"""Density estimates with the Jackson kernel: finite cosine sums that are nonnegative and integrate to one.

Many orders and forgettings cost little more than one: they share the cosines, and the forgettings stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exchangeable.kernels.compilation import compiled


def weights(orders: Sequence[int]) -> NDArray[np.float64]:
    """The weights of cos(k pi x) cos(k pi y) in the Jackson kernels of these orders: a row an order, 0 from k = K on.

    ``((K - k + 1) cos(pi k/(K + 1)) + sin(pi k/(K + 1)) cot(pi/(K + 1))) / (K + 1)``, doubled for k > 0.

    >>> weights([2, 3]).round(3)
    array([[1.   , 1.   , 0.   ],
           [1.   , 1.414, 0.5  ]])
    """
    table = np.zeros((len(orders), max(orders)))
    for row, K in zip(table, orders, strict=True):
        k, turn = np.arange(K), np.pi / (K + 1)
        row[:K] = 2.0 * ((K - k + 1) * np.cos(k * turn) + np.sin(k * turn) / np.tan(turn)) / (K + 1)
    table[:, 0] = 1.0
    return table


@compiled()
def _cosines(p, out):  # type: ignore[no-untyped-def]
    """``cos(k pi p)`` for k = 0 .. len(out) - 1, by rotation."""
    turn_c, turn_s = math.cos(math.pi * p), math.sin(math.pi * p)
    c, s = 1.0, 0.0
    for k in range(len(out)):
        out[k] = c
        c, s = c * turn_c - s * turn_s, s * turn_c + c * turn_s


@compiled()
def kernel(sums, weights, orders, forgetting, p, out):  # type: ignore[no-untyped-def]
    """``(1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i))`` for each order and forgetting.

    ``sums[k, l] = sum_i lam_l^(n-i) cos(k pi p_i)``; ``out`` is steps x (orders x forgettings).
    """
    terms, lanes = sums.shape
    cosines, products = np.empty(terms), np.empty((terms, lanes))
    totals, mass = np.empty(lanes), np.empty(lanes)
    for i in range(len(p)):
        _cosines(p[i], cosines)
        mass[:] = sums[0]
        for k in range(terms):
            row, product, c = sums[k], products[k], cosines[k]
            for m in range(len(row)):
                product[m] = row[m] * c
                row[m] = forgetting[m] * row[m] + c
        for o in range(len(orders)):
            totals[:] = 1.0
            for k in range(orders[o]):
                product, w = products[k], weights[o, k]
                for m in range(len(totals)):
                    totals[m] += w * product[m]
            for m in range(lanes):
                out[i, o * lanes + m] = totals[m] / (1.0 + mass[m])


@compiled()
def markov(last, sums, weights, orders, forgetting, p, out):  # type: ignore[no-untyped-def]
    """``(1 + sum K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum K_J(q, p_{t-1}))``, q the p before: each forgetting and order.

    ``sums[l, j, k] = sum_t lam_l^(n-t) cos(j pi p_{t-1}) cos(k pi p_t)``; ``last`` holds q's cosines, zeros at first.
    """
    size = len(last)
    cosines, folded = np.empty(size), np.empty(size)
    for i in range(len(p)):
        _cosines(p[i], cosines)
        for f in range(len(forgetting)):
            for o in range(len(orders)):
                K = orders[o]
                w, row = weights[o, :K], folded[:K]
                row[:] = 0.0
                for j in range(K):
                    u, source = w[j] * last[j], sums[f, j][:K]
                    for k in range(len(row)):
                        row[k] += u * source[k]
                total = 1.0
                for k in range(len(row)):
                    total += w[k] * cosines[k] * row[k]
                out[i, f * len(orders) + o] = total / (1.0 + row[0])
            if last[0] > 0.0:
                for j in range(size):
                    target, q = sums[f, j], last[j]
                    for k in range(len(target)):
                        target[k] = forgetting[f] * target[k] + q * cosines[k]
        last[:] = cosines
