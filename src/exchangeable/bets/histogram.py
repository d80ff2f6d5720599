"""Histograms of the past p-values: of fixed width, and all dyadic ones at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import kernels
from exchangeable.protocols import Floats, many_p, one_p, whole


class Histogram:
    """Bets the histogram of the past p-values, with half a pseudo-count a bin: ``f = B (c_b + 1/2)/(n + B/2)``.

    Loses at most about ``(B - 1)/2 ln n`` against the best histogram in hindsight. O(1) time, O(B) memory.

    >>> Histogram(2).extend([0.1, 0.2, 0.9]).round(3)
    array([ 0.   ,  0.405, -1.099])

    Reference: Krichevsky and Trofimov (1981).
    """

    def __init__(self, bins: int = 10) -> None:
        self.bins = whole("bins", bins, 1, 10**8)
        self._counts = np.zeros(self.bins)

    def log_density(self, p: float) -> float:
        """Log of the betting function at p."""
        gain = np.empty(1)
        kernels.blend.histogram(self._counts.copy(), np.array([one_p(p)]), gain)
        return float(gain[0])

    def update(self, p: float) -> None:
        """Learn p."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        kernels.blend.histogram(self._counts, values, gains)
        return gains


class Tree:
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
        self.depth = whole("depth", depth, 1, 24)
        if prior not in ("rough", "smooth"):
            raise ValueError(f"prior must be 'rough' or 'smooth', got {prior!r}")
        self.prior = prior
        self._counts, self._log_own, self._log_mixed = (np.zeros(2 ** (self.depth + 1)) for _ in range(3))

    def log_density(self, p: float) -> float:
        """Log of the betting function at p."""
        state = self._counts, self._log_own, self._log_mixed
        return float(kernels.blend.tree_step(*state, self.depth, self.prior == "smooth", one_p(p), False))

    def update(self, p: float) -> None:
        """Learn p."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        state = self._counts, self._log_own, self._log_mixed
        kernels.blend.tree(*state, self.depth, self.prior == "smooth", values, gains)
        return gains
