"""Histograms of the past p-values: of fixed width, and all dyadic ones at once."""

from __future__ import annotations

import math

import numpy as np

from exchangeable import kernels
from exchangeable.bets.learner import Learner, State, check_counts, check_within
from exchangeable.protocols import Floats, one_p, whole


class Histogram(Learner):
    """Bets the histogram of the past p-values, with half a pseudo-count a bin: ``f = B (c_b + 1/2)/(n + B/2)``.

    Loses at most about ``(B - 1)/2 ln n`` against the best histogram in hindsight. O(1) time, O(B) memory.

    >>> Histogram(2).extend([0.1, 0.2, 0.9]).round(3)
    array([ 0.   ,  0.405, -1.099])

    Reference: Krichevsky and Trofimov (1981).
    """

    def __init__(self, bins: int = 10) -> None:
        self.bins: int = whole("bins", bins, 1, 10**8)
        self._state = (np.zeros(self.bins),)

    def _play(self, state: State, p: Floats, gains: Floats) -> None:
        kernels.blend.histogram(*state, p, gains)

    def _check_state(self) -> None:
        """Admit a state from a snapshot."""
        check_counts("counts", *self._state)


class Tree(Learner):
    """All dyadic histograms of up to 2^depth bins, mixed exactly: context-tree weighting, or an optional Polya tree.

    At each dyadic interval s, of depth d and with p-values split c_left + c_right, with pseudo-count a,

        KT_s = prod 2 (c + a)/(n_s + 2 a),    W_s = 1/2 + 1/2 KT_s W_left W_right,    S_n = W_[0,1] .

    Finds peaks and steps of any width and place. The "smooth" prior has pseudo-counts ``(d + 1)^2`` that grow with
    depth, the "rough" one 1/2. O(depth) time a step, O(2^depth) memory.

    >>> Tree(4).extend([0.1, 0.1, 0.1]).round(3)
    array([0.   , 0.521, 1.151])

    Reference: Willems, Shtarkov, Tjalkens (1995); Wong and Ma (2010).
    """

    def __init__(self, depth: int = 10, *, prior: str = "rough") -> None:
        self.depth: int = whole("depth", depth, 1, 24)
        if prior not in ("rough", "smooth"):
            raise ValueError(f"prior must be 'rough' or 'smooth', got {prior!r}")
        self.prior = prior
        self._state = tuple(np.zeros(2 ** (self.depth + 1)) for _ in range(3))  # counts, log KT, log W of the nodes

    def log_density(self, p: float) -> float:
        """Log of the betting function at p: along one path from the root, without a copy of the tree."""
        return float(kernels.blend.tree_step(*self._state, self.depth, self.prior == "smooth", one_p(p), False))

    def _play(self, state: State, p: Floats, gains: Floats) -> None:
        kernels.blend.tree(*state, self.depth, self.prior == "smooth", p, gains)

    def _check_state(self) -> None:
        """Admit a state from a snapshot."""
        check_tree(*self._state)


def check_tree(counts: Floats, log_own: Floats, log_mixed: Floats) -> None:
    """Admit the state of a tree from a snapshot: every node is what its halves make it."""
    check_counts("counts", counts)
    check_within("log KT", log_own, -1e15, 1e15)
    check_within("log W", log_mixed, -1.0, 1e15)
    inner = slice(1, len(counts) // 2)
    split = log_own[inner] + (log_mixed[2::2] + log_mixed[3::2])
    wrong = np.abs(np.logaddexp(split, 0.0) - math.log(2.0) - log_mixed[inner]) > 1e-6 * (1.0 + np.abs(split))
    if wrong.any() or (counts[inner] != counts[2::2] + counts[3::2]).any():
        raise ValueError("counts and log W must be at every node what its halves make them, got others")
