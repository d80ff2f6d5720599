"""Beta densities on a grid of shapes, with switching between them."""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.compilation import compiled

LOG_CELL = -54.0 * math.log(2.0)  # the p-values in (1 - 2^-54, 1] round to one


@compiled()
def _powers(exponents, log_x, out):  # type: ignore[no-untyped-def]
    """``x^(e - 1)`` for each exponent, relative to the largest, whose logarithm is returned."""
    top = -math.inf
    for k in range(len(exponents)):
        out[k] = (exponents[k] - 1.0) * log_x
        top = max(top, out[k])
    for k in range(len(exponents)):
        out[k] = math.exp(out[k] - top)
    return top


@compiled()
def _last_powers(exponents, out):  # type: ignore[no-untyped-def]
    """The mean of ``x^(e - 1)`` over the x in [0, 2^-54), whose 1 - x rounds to one, relative to a common factor."""
    top = _powers(exponents, LOG_CELL, out)
    for k in range(len(exponents)):
        out[k] /= exponents[k]
    return top


@compiled()
def heights(p, shapes, norm, out):  # type: ignore[no-untyped-def]
    """``Beta(p; a_j, b_k)`` for a, b from the shapes, relative to a common factor whose logarithm is returned.

    p = 1 stands for the p-values that round to it: there a Beta density is its mean over them, which is finite.
    """
    left, right = np.empty(len(shapes)), np.empty(len(shapes))
    top = _powers(shapes, math.log(p), left)
    top += _powers(shapes, math.log1p(-p), right) if p < 1.0 else _last_powers(shapes, right)
    for j in range(len(shapes)):
        for k in range(len(shapes)):
            out[j, k] = left[j] * right[k] * norm[j, k]
    return top


@compiled()
def _step(share, stay, move, heights, columns):  # type: ignore[no-untyped-def]
    """``w <- (stay w + move) h``, and the sum of the new w; added up by columns, so that the compiler vectorises it."""
    columns[:] = 0.0
    for j in range(len(heights)):
        row, height = share[j], heights[j]
        for k in range(len(columns)):
            row[k] = (stay * row[k] + move) * height[k]
            columns[k] += row[k]
    return columns.sum()


@compiled()
def beta(shares, totals, rates, shapes, norm, p, out):  # type: ignore[no-untyped-def]
    """``w_jk <- ((1 - s) w_jk + s/m) Beta(p; a_j, b_k)`` for each rate s; a, b from the shapes, m = size of the grid.

    ``norm[j, k] = 1/B(a_j, b_k)``; ``shares[r, j, k]`` sum to ``totals[r]``.
    """
    size = len(shapes)
    columns, grid = np.empty(size), np.empty((size, size))
    for i in range(len(p)):
        top = heights(p[i], shapes, norm, grid)
        for r in range(len(rates)):
            stay, move = (1.0 - rates[r]) / totals[r], rates[r] / norm.size
            totals[r] = _step(shares[r], stay, move, grid, columns)
            out[i, r] = math.exp(top) * totals[r]
