"""Density estimates that forget: Jackson kernels, and their Markov version."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import kernels
from exchangeable.protocols import Floats, in_interval, many_p, one_p, whole


class Kernel:
    """Bets a density estimate with the Jackson kernel: smooth, nonnegative, integral exactly one, and it may forget.

        f(p) = (1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i)) ,   lam = forgetting
        K_J(x, y) = 1 + 2 sum_{k<K} g_k cos(k pi x) cos(k pi y) ,            K = order

    Its bandwidth is about 1/order; forgetting 0.99 remembers about 100 steps. O(order) time and memory.

    >>> Kernel(4, 0.99).extend([0.1, 0.1, 0.1]).round(3)
    array([0.   , 0.729, 0.887])

    Reference: Jackson (1912); Weisse et al. (2006), section II.C.
    """

    def __init__(self, order: int = 16, forgetting: float = 1.0) -> None:
        self.order = whole("order", order, 2, 4096)
        self.forgetting = in_interval("forgetting", forgetting, 0.0, 1.0, "(0, 1]")
        self._weights = kernels.jackson.weights(self.order)
        self._sums = np.zeros(self.order)

    def log_density(self, p: float) -> float:
        """Log of the betting function at p."""
        gain = np.empty(1)
        kernels.jackson.kernel(self._sums.copy(), self._weights, self.forgetting, np.array([one_p(p)]), gain)
        return float(gain[0])

    def update(self, p: float) -> None:
        """Learn p."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        kernels.jackson.kernel(self._sums, self._weights, self.forgetting, values, gains)
        return gains


class Markov:
    """Bets the density of p_n given p_{n-1}: finds serial dependence that each p-value alone does not show.

        f(p | q) = (1 + sum_t lam^(n-t) K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum_t lam^(n-t) K_J(q, p_{t-1}))

    O(order^2) time and memory.

    >>> Markov(4).extend([0.1, 0.9, 0.1, 0.9]).round(3)
    array([ 0.   ,  0.   , -0.025,  0.96 ])

    Reference: the kernel of `Kernel`, in two dimensions.
    """

    def __init__(self, order: int = 8, forgetting: float = 1.0) -> None:
        self.order = whole("order", order, 2, 256)
        self.forgetting = in_interval("forgetting", forgetting, 0.0, 1.0, "(0, 1]")
        self._weights = kernels.jackson.weights(self.order)
        self._last = np.zeros(self.order)  # cosines of the last p
        self._sums = np.zeros((self.order, self.order))

    def log_density(self, p: float) -> float:
        """Log of the betting function at p."""
        gain = np.empty(1)
        state = self._last.copy(), self._sums.copy()
        kernels.jackson.markov(*state, self._weights, self.forgetting, np.array([one_p(p)]), gain)
        return float(gain[0])

    def update(self, p: float) -> None:
        """Learn p."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        kernels.jackson.markov(self._last, self._sums, self._weights, self.forgetting, values, gains)
        return gains
