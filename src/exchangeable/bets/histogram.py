"""Histograms of the past p-values: one of fixed width, and a mixture of all dyadic ones."""

from __future__ import annotations

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_p


class Histogram(Learner):
    """Bets the histogram of the past p-values, with half a pseudo-count per bin: ``f = B (c_b + 1/2)/(n + B/2)``.

    It loses at most about ``(B - 1)/2 ln n`` against the best histogram in hindsight. O(1) time per step in `extend`,
    O(B) for a single `update`; O(B) memory.

    >>> Histogram(2).extend([0.1, 0.2, 0.9]).round(3)
    array([ 0.   ,  0.405, -1.099])

    Reference: Krichevsky and Trofimov (1981).
    """

    def __init__(self, bins: int = 10) -> None:
        self.bins: int = check_integer("bins", bins, 1, 10**8)
        self._state = (np.zeros(self.bins),)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.histogram(state[0], p, gains)


class Tree(Learner):
    """All dyadic histograms of up to 2^depth bins, mixed exactly: context-tree weighting, or an optional Polya tree.

    At each dyadic interval s, of depth d and with p-values split c_left + c_right, with pseudo-count a,

        KT_s = prod 2 (c + a)/(n_s + 2 a),    W_s = 1/2 + 1/2 KT_s W_left W_right,    S_n = W_[0,1] .

    It finds peaks and steps of any width and position. The "smooth" prior has pseudo-counts ``(d + 1)^2`` that grow
    with depth, the "rough" one 1/2. O(depth) time per step, O(2^depth) memory.

    >>> Tree(4).extend([0.1, 0.1, 0.1]).round(3)
    array([0.   , 0.521, 1.151])

    Reference: Willems, Shtarkov, Tjalkens (1995); Wong and Ma (2010).
    """

    def __init__(self, depth: int = 10, *, prior: str = "rough") -> None:
        self.depth: int = check_integer("depth", depth, 1, 24)
        if prior not in ("rough", "smooth"):
            raise ValueError(f"prior must be 'rough' or 'smooth', got {prior!r}")
        self.prior = prior
        self._state = (np.tile([0.0, 1.0, 0.0], (2**self.depth, 1)),)

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p, without a copy: only one path of the tree is read."""
        return native.tree_at(self._state[0], self.depth, self.prior == "smooth", check_p(p))

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.tree(state[0], self.depth, self.prior == "smooth", p, gains)
