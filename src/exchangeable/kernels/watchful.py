"""A mixture of Shiryaev-Roberts statistics over fixed densities, played as a bet."""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.adaptive import TINY, UNIT
from exchangeable.kernels.beta import LOG_CELL, heights
from exchangeable.kernels.compilation import compiled

LARGE = 1e100  # beyond it, or below its inverse, the sums are brought back near one


@compiled()
def _powers_at_the_ends(p, epsilon, unit):  # type: ignore[no-untyped-def]
    """``eps p^(eps - 1)`` and ``eps (1 - p)^(eps - 1)``; at p = 1 the mean over the p-values that round to it."""
    low = epsilon * math.exp((epsilon - 1.0) * math.log(p) - unit)
    if p < 1.0:
        return low, epsilon * math.exp((epsilon - 1.0) * math.log1p(-p) - unit)
    return low, math.exp((epsilon - 1.0) * LOG_CELL - unit)


@compiled()
def _tails(p, epsilons, parts, unit, out):  # type: ignore[no-untyped-def]
    """``1 - w + w g`` for powers g at the lower end, at the upper, at both."""
    at, rest = 0, math.exp(-unit)
    for e in range(len(epsilons)):
        low, high = _powers_at_the_ends(p, epsilons[e], unit)
        for w in range(len(parts)):
            keep, part = (1.0 - parts[w]) * rest, parts[w]
            out[at], out[at + 1], out[at + 2] = keep + part * low, keep + part * high, keep + part * 0.5 * (low + high)
            at += 3
    return at


@compiled()
def _steps(p, widths, parts, unit, out):  # type: ignore[no-untyped-def]
    """``1 - w + w g`` for g uniform on [0, a], and on [1 - a, 1]."""
    at, rest = 0, math.exp(-unit)
    for a in range(len(widths)):
        low = rest / widths[a] if p < widths[a] else 0.0
        high = rest / widths[a] if p >= 1.0 - widths[a] else 0.0
        for w in range(len(parts)):
            keep, part = (1.0 - parts[w]) * rest, parts[w]
            out[at], out[at + 1] = keep + part * low, keep + part * high
            at += 2
    return at


@compiled()
def play(sums, scale, weights, shapes, norm, epsilons, mixed, widths, stepped, p, out):  # type: ignore[no-untyped-def]
    """``f = sum_k (w_k + psi_k) f_k(p) / (1 + sum_k psi_k)``, then ``psi_k <- (w_k + psi_k) f_k(p)``.

    ``sums`` holds psi_k in units of ``exp(scale[0])``, and ``scale[1]`` their total, which is kept near one.
    """
    densities = np.empty(len(sums))
    grid = np.empty(norm.shape)
    for i in range(len(p)):
        unit = UNIT if p[i] < TINY else 0.0
        factor = math.exp(heights(p[i], shapes, norm, grid) - unit)
        at = norm.size
        for k in range(at):
            densities[k] = factor * grid.flat[k]
        at += _tails(p[i], epsilons, mixed, unit, densities[at:])
        _steps(p[i], widths, stepped, unit, densities[at:])
        fresh = math.exp(-scale[0])
        total = 0.0
        for k in range(len(sums)):
            sums[k] = (weights[k] * fresh + sums[k]) * densities[k]
            total += sums[k]
        out[i] = math.log(total) + unit - math.log(fresh + scale[1])
        scale[0] += unit
        scale[1] = total
        if not 1.0 / LARGE < total < LARGE:
            _rescale(sums, scale)


@compiled()
def _rescale(sums, scale):  # type: ignore[no-untyped-def]
    """Make the total one again, but never with a unit below one: then what is fresh counts for more than the rest."""
    level = max(scale[0] + math.log(scale[1]), 0.0)
    factor = math.exp(scale[0] - level)
    total = 0.0
    for k in range(len(sums)):
        sums[k] *= factor
        total += sums[k]
    scale[0], scale[1] = level, total
