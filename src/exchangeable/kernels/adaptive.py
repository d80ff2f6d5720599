"""The adaptive portfolio: all its loops in one call, so that a single step costs little more than its arithmetic."""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.beta import beta
from exchangeable.kernels.blend import portfolio, tree
from exchangeable.kernels.compilation import compiled
from exchangeable.kernels.jackson import kernel, markov
from exchangeable.kernels.mixture import extend as mixture

BLOCK = 1024  # steps whose densities are held at a time
TINY, UNIT = 1e-200, 400.0  # below that p, densities are in units of e^400, where they are numbers


@compiled()
def _units(p):  # type: ignore[no-untyped-def]
    units = np.zeros(len(p))
    for i in range(len(p)):
        if p[i] < TINY:
            units[i] = UNIT
    return units


@compiled()
def _fill(densities, start, table, units):  # type: ignore[no-untyped-def]
    """Put the densities of a bank into the columns from ``start`` on."""
    for i in range(len(table)):
        factor = math.exp(-units[i])
        for k in range(table.shape[1]):
            densities[i, start + k] = table[i, k] * factor
    return start + table.shape[1]


@compiled()
def _fill_logs(densities, column, gains, units):  # type: ignore[no-untyped-def]
    """Put the densities of a bet with these log densities into a column."""
    for i in range(len(gains)):
        densities[i, column] = math.exp(gains[i] - units[i])
    return column + 1


@compiled()
def play(state, fixed, depths, share, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, put the log densities into ``out``, then learn it.

    ``state`` holds those of the kernels, Markov kernels, Beta densities, the simple mixture, a rough and a smooth tree
    of these depths, and the portfolio; ``fixed`` what the first three are made of.
    """
    kernels, markovs, betas, mixed, rough, smooth, shares = state
    of_kernels, of_markovs, of_betas = fixed
    columns = len(shares[0])
    width_k = len(of_kernels[1]) * len(of_kernels[2])
    width_m = len(of_markovs[1]) * len(of_markovs[2])
    for lo in range(0, len(p), BLOCK):
        part, gains = p[lo : lo + BLOCK], out[lo : lo + BLOCK]
        n, units = len(part), _units(part)
        densities = np.empty((n, columns))
        table = np.empty((n, width_k))
        kernel(*kernels, *of_kernels, part, table)
        at = _fill(densities, 0, table, units)
        table = np.empty((n, width_m))
        markov(*markovs, *of_markovs, part, table)
        at = _fill(densities, at, table, units)
        table = np.empty((n, len(of_betas[0])))
        beta(*betas, *of_betas, part, table)
        at = _fill(densities, at, table, units)
        mixture(*mixed, part, gains)
        at = _fill_logs(densities, at, gains, units)
        tree(*rough, depths[0], False, part, gains)
        at = _fill_logs(densities, at, gains, units)
        tree(*smooth, depths[1], True, part, gains)
        at = _fill_logs(densities, at, gains, units)
        portfolio(*shares, share, densities, units, gains)
