"""`bets.Sentinel`, written down plainly: its table of bets, with the masses of cells by distribution functions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Floats = NDArray[np.float64]


def edges(octaves: int, each: int) -> Floats:
    """Of the cells of [0, 1]: 0, 2^-octaves, ``each`` an octave up to 1/2, and the same mirrored."""
    lower = [2.0**-octaves * (1.0 + j / each) * 2.0**k for k in range(octaves - 1) for j in range(each)]
    return np.array([0.0, *lower, 0.5, *(1.0 - x for x in reversed(lower)), 1.0])


FINE, COARSE = edges(30, 8), edges(8, 4)


def mirrored(density: Floats, end: str) -> Floats:
    """A density by cells, at the lower end of [0, 1], the upper, or both."""
    return {"low": density, "high": density[::-1], "both": 0.5 * (density + density[::-1])}[end]


def power(a: float, end: str) -> Floats:
    """The density of Beta(a, 1) in each fine cell, or of Beta(1, a), or of their average."""
    x, y = FINE[:-1], FINE[1:]
    lower = np.diff(FINE[:234])
    width = np.concatenate([lower, lower[::-1]])
    with np.errstate(divide="ignore"):
        log_ratio = np.where(y <= 0.5, np.log(x / y), np.log1p(-width / y))  # near 1 x/y is rounded
    return mirrored(-np.expm1(a * log_ratio) * y**a / width, end)


def normal(mean: float, scale: float, cells: Floats) -> Floats:
    """The density of z ~ N(mean, scale^2) in each cell, z = Phi^-1(1 - p)."""
    lower = cells[: len(cells) // 2 + 1]
    low, high = (np.diff(norm.sf(norm.isf(lower), sign * mean, scale)) / np.diff(lower) for sign in (1, -1))
    return np.concatenate([low, high[::-1]])


class Bets(NamedTuple):
    weights: Floats
    fixed: Floats  # by bet and fine cell
    serial: Floats  # by bet, cell before, cell
    kernels: Floats  # by kernel, cell, counted cell


def _fixed() -> tuple[list[float], list[Floats]]:
    weights: list[float] = []
    rows: list[Floats] = []

    def family(share: float, members: list[tuple[float, Floats]]) -> None:
        total = sum(weight for weight, _ in members)
        weights.extend(share * weight / total for weight, _ in members)
        rows.extend(row for _, row in members)

    means = [0.15 * 1.6**j for j in range(7)]
    family(0.20, [(1.0 / m, normal(sign * m, 1.0, FINE)) for m in means for sign in (1, -1)])
    family(0.05, [(1.0, normal(0.0, s, FINE)) for s in (1.15, 1.3, 1.5, 2.0, 3.0)])
    family(0.05, [(1.0, normal(0.0, s, FINE)) for s in (0.87, 0.75, 0.6, 0.4)])
    shapes = (1 / 3, 1 / 2, 2 / 3, 0.8, 1.25, 1.5, 2.0, 3.0)
    family(0.10, [(1.0, power(a, end)) for a in shapes for end in ("low", "high")])
    ends = ("low", "high", "both")
    tails = [(e, w, end) for e in (0.1, 0.4) for w in (0.03, 0.1, 0.3) for end in ends]
    family(0.12, [(1.0, 1.0 - w + w * power(e, end)) for e, w, end in tails])
    spikes = [(2.0**-k, w, end) for k in (6, 7, 8, 9, 11) for w in (0.05, 0.15, 0.4) for end in ends]
    family(0.08, [(1.0, 1.0 - w + w * mirrored(np.where(FINE[1:] <= a, 1.0 / a, 0.0), end)) for a, w, end in spikes])
    family(0.09, [(1.0, row) for k in range(1, 7) for row in _raised(0.0, 2.0**-k)])
    family(0.06, [(1.0, row) for k in range(2, 7) for row in _raised(2.0**-k, 2.0**-k)])
    return weights, rows


def _raised(start: float, a: float) -> list[Floats]:
    """Height h on an interval of length a, the rest even; at the lower end and at the upper."""
    rows = []
    for amplitude in (0.3, 0.6, 1.2):
        h = 1.0 + amplitude * math.sqrt((1.0 - a) / a)
        if a * h < 0.95:
            inside = (FINE[:-1] >= start) & (FINE[1:] <= start + a)
            row = np.where(inside, h, (1.0 - a * h) / (1.0 - a))
            rows += [row, row[::-1]]
    return rows


def _jackson(order: int) -> Floats:
    """The mean of Jackson's kernel over each pair of cells."""
    turn = math.pi / (order + 1)
    table = np.ones((len(COARSE) - 1, len(COARSE) - 1))
    for k in range(1, order):
        g = ((order - k + 1) * math.cos(k * turn) + math.sin(k * turn) / math.tan(turn)) / (order + 1)
        mean = np.diff(np.sin(k * math.pi * COARSE)) / (k * math.pi * np.diff(COARSE))
        table += 2.0 * g * np.outer(mean, mean)
    return table


@cache
def bets() -> Bets:
    weights, rows = _fixed()
    middle = norm.isf(0.5 * (COARSE[:-1] + COARSE[1:]))

    def pairs(rho: float) -> Floats:  # by the cell before, and the cell
        return np.array([normal(rho * z, math.sqrt(1.0 - rho**2), COARSE) for z in middle])

    serial = [pairs(sign * rho) for rho in (0.2, 0.4, 0.6, 0.8) for sign in (1, -1)]
    kernels = [pairs(r).T for r in (0.6, 0.8, 0.9, 0.96)] + [_jackson(order) for order in (2, 3, 4, 8)]
    every = [*weights, *[0.06 / 8] * 8, *[0.19 / 32] * 32]
    return Bets(np.array(every), np.array(rows), np.array(serial), np.array(kernels))


def cell(grid: Floats, p: float) -> int:
    """The cell of p; the one at 1/2 belongs to the upper half, and a mirrored edge to the cell below it."""
    lower = len(grid) // 2
    if p < 0.5:
        return int(np.searchsorted(grid, p, side="right")) - 1
    rest = min(int(np.searchsorted(grid, 1.0 - p, side="right")) - 1, lower - 1)
    return len(grid) - 2 - rest


class Densities:
    """The densities of the 206 bets at one p after the other."""

    MEMORIES = (0.998, 0.995, 0.99, 0.97)

    def __init__(self) -> None:
        self.last: int | None = None
        self.counts = np.zeros((4, len(COARSE) - 1))

    def __call__(self, p: float) -> Floats:
        table, fine, coarse = bets(), cell(FINE, p), cell(COARSE, p)
        serial = np.ones(8) if self.last is None else table.serial[:, self.last, coarse]
        learners = [(1.0 + table.kernels[:, coarse] @ count) / (1.0 + count.sum()) for count in self.counts]
        self.counts *= np.array(self.MEMORIES)[:, np.newaxis]
        self.counts[:, coarse] += 1.0
        self.last = coarse
        return np.concatenate([table.fixed[:, fine], serial, *learners])


def gains(p: Iterable[float]) -> list[float]:
    """The log densities of the mixture of Shiryaev-Roberts statistics."""
    weights, psi, densities = np.log(bets().weights), np.full(206, -np.inf), Densities()
    found = []
    for value in p:
        before = np.logaddexp(weights, psi)
        psi = before + np.log(densities(value))
        found.append(float(np.logaddexp.reduce(psi) - np.logaddexp.reduce(before)))
    return found
