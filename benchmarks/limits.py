"""Two limits for streams whose law is constant before the change and after it: Shiryaev-Roberts that knows both laws.

*Knows both*: ``psi <- (1 + psi) g(x)`` with g the ratio of the laws. *By ranks*: it sees the rank p-values alone. If
the change came after tau of n examples, the pool holds the parts w = tau/n of the old law and 1 - w of the new one; a
new value at the old quantile v then has p = w v + (1 - w) G(v), whose density is g/(w + (1 - w) g). One statistic sums
over all tau, each with its own w.

The laws are taken from large samples, on cells. So the limits are those of who knows the laws on these cells: no finer
than 2^-12 of either law, and 2^-10 of the old one by ranks, since a pool of a thousand resolves no finer p-values.
A value that is common after the change but has no mass before (*stuck at 0*) is a cell of its own for the first limit,
not for the second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from changes import Change
from detectors import Floats, Integers, Together

SAMPLE, PART = 200_000, 10_000  # numbers of each law, drawn in parts
ATOM = 0.005  # a value with at least this mass is a cell of its own
ENOUGH = 100  # numbers in a cell, of both samples together
VARYING = frozenset(  # dependent, or not of one law after the change: no limit
    [
        "gradual drift",
        "a visit",
        "serial",
        "season sets in",
        "slow, then abrupt",
        "wandering mean",
        "errors in bursts",
        "repeated readings",
        "growing spread",
    ]
)


def drawn(change: Change, late: bool) -> Floats:
    """A large sample of the law before the change, or of the one after it."""
    rng = np.random.default_rng([8, late])
    parts = [change(rng, 0 if late else PART, PART if late else 0) for _ in range(SAMPLE // PART)]
    return np.concatenate(parts)


def probabilities(finest: int) -> Floats:
    """Edges of cells: 64 even ones in the middle, four an octave towards both ends, down to 2^-finest."""
    low = 2.0 ** -np.arange(finest, 4.0, -0.25)
    return np.concatenate([[0.0], low, np.linspace(2.0**-4, 1.0 - 2.0**-4, 57), 1.0 - low[::-1], [1.0]])


def atoms(x: Floats) -> Floats:
    """The values that are common."""
    values, counts = np.unique(x, return_counts=True)
    return np.asarray(values[counts >= ATOM * len(x)])


# ------------------------------------------------------------------ knows both laws


class Ratio(NamedTuple):
    """The log ratio of two laws, constant on cells: below ``edges[0]``, from it to the next, and so on."""

    edges: Floats
    log_ratio: Floats

    def __call__(self, x: Floats) -> Floats:
        """At each of these numbers."""
        return np.asarray(self.log_ratio[np.searchsorted(self.edges, x, side="right")])


def ratio(old: Floats, new: Floats) -> Ratio:
    """The ratio of the laws of two samples; half a number is added to each cell."""
    common = np.concatenate([atoms(old), atoms(new)])
    quantiles = [np.quantile(x, probabilities(12)[1:-1], method="higher") for x in (old, new)]
    edges = np.unique(np.concatenate([*quantiles, common, np.nextafter(common, math.inf)]))
    edges = filled(edges, np.sort(np.concatenate([old, new])))
    counts = [np.bincount(np.searchsorted(edges, x, side="right"), minlength=len(edges) + 1) for x in (old, new)]
    return Ratio(edges, np.log((counts[1] + 0.5) / (counts[0] + 0.5)))


def filled(edges: Floats, ordered: Floats) -> Floats:
    """The edges of cells that hold enough of these numbers; smaller cells are joined to the next."""
    kept, last = [], 0
    for edge, below in zip(edges.tolist(), np.searchsorted(ordered, edges).tolist(), strict=True):
        if below - last >= ENOUGH:
            kept.append(edge)
            last = below
    return np.array(kept)


def shiryaev_roberts(log_ratio: Floats) -> Floats:
    """``ln psi`` after each step of each run (row); the statistic stops at e^600, far above every threshold."""
    psi, found = np.zeros(len(log_ratio)), np.empty(log_ratio.shape)
    for n, factor in enumerate(np.exp(log_ratio.T)):
        psi = np.minimum((1.0 + psi) * factor, math.exp(600.0))
        found[:, n] = psi
    return np.log(found)


def knows_both(change: Change) -> Together:
    """The first limit; it is given the numbers."""
    known = ratio(drawn(change, False), drawn(change, True))
    return Together("limit", None, "none", lambda X: shiryaev_roberts(known(X)))


# ------------------------------------------------------------------ by ranks

BLOCK = 8  # starts that share their w
NEW_PARTS = np.append(0.0, 2.0 ** np.arange(-10.0, 0.01, 0.25))  # of the pool: the levels of 1 - w


class Cells(NamedTuple):
    """The cumulative masses of both laws at the edges of cells, from the largest values to the smallest."""

    old: Floats
    new: Floats

    def densities(self, p: Floats, part: float) -> Floats:
        """The density of each p if the new law has this part of the pool."""
        edges = (1.0 - part) * self.old + part * self.new
        heights = np.diff(self.new) / np.diff(edges)
        return np.asarray(heights[np.searchsorted(edges, p).clip(1, len(heights)) - 1])


def above(old: Floats, x: Floats) -> Floats:
    """The mass of the old law above each number, ties shared out at random."""
    ordered, chance = np.sort(old), np.random.default_rng(9).random(len(x))
    greater = len(old) - np.searchsorted(ordered, x, side="right")
    equal = len(old) - np.searchsorted(ordered, x, side="left") - greater
    return np.asarray((greater + chance * equal) / len(old))


def cells(old: Floats, new: Floats) -> Cells:
    """Cells by the quantiles of the old law, with edges where its common values begin and end."""
    common = atoms(old)
    ends = [(old > value).mean() for value in common] + [(old >= value).mean() for value in common]
    edges = np.unique(np.append(probabilities(10), ends).round(12))
    counts = np.histogram(above(old, new), edges)[0] + 0.5
    return Cells(edges, np.append(0.0, np.cumsum(counts / counts.sum())))


def levels(n: int) -> Integers:
    """For each block of starts the level of 1 - w that is nearest after n steps, as a ratio."""
    starts = np.arange(0, n, BLOCK) + 0.5 * BLOCK
    part = np.maximum(n - starts, 1.0) / n
    nearest = np.rint(4.0 * np.log2(part)).astype(np.int64) + len(NEW_PARTS) - 1
    return np.asarray(np.maximum(nearest, 0))


def by_ranks_path(law: Cells, P: Floats) -> Floats:
    """``ln`` of the sum over all starts, after each step of each run (row); it stops at e^600 like the first."""
    runs, steps = P.shape
    densities = np.array([law.densities(P, part) for part in NEW_PARTS]).transpose(2, 0, 1)  # step, level, run
    psi, found = np.zeros((steps // BLOCK + 1, runs)), np.empty((steps, runs))
    for n in range(1, steps + 1):
        psi[(n - 1) // BLOCK] += 1.0
        begun = psi[: (n - 1) // BLOCK + 1]
        begun *= densities[n - 1, levels(n)]
        np.minimum(begun, math.exp(600.0), out=begun)
        found[n - 1] = begun.sum(axis=0)
    return np.asarray(np.log(found).T)


def by_ranks(change: Change) -> Together:
    """The second limit; it is given p-values."""
    law = cells(drawn(change, False), drawn(change, True))
    return Together("limit by ranks", None, "none", lambda P: by_ranks_path(law, P))
