"""Density estimates that can forget: Jackson kernels, and their Markov version."""

from __future__ import annotations

from functools import cache, partial

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, shared_table
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_interval, check_p


@cache
def weights(order: int) -> Floats:
    """Return the weights of cos(k pi x) cos(k pi y) in the Jackson kernel, padded with zeros to a multiple of 8.

    >>> weights(3).round(3)
    array([1.   , 1.414, 0.5  , 0.   , 0.   , 0.   , 0.   , 0.   ])
    """
    return shared_table(-(-order // 8) * 8, partial(native.jackson_weights, order))


class Kernel(Learner):
    """Bets a density estimate with the Jackson kernel: smooth, nonnegative, and with integral one; it can forget.

        f(p) = (1 + sum_i lam^(n-i) K_J(p, p_i)) / (1 + sum_i lam^(n-i)) ,   lam = forgetting
        K_J(x, y) = 1 + sum_{0<k<K} w_k cos(k pi x) cos(k pi y) ,            K = order

    with the Jackson weights w_k. Its bandwidth is about 1/order. With forgetting 0.99 it remembers about 100 steps.
    O(order) time and memory.

    >>> Kernel(4, 0.99).extend([0.1, 0.1, 0.1]).round(3)
    array([0.   , 0.729, 0.887])

    Reference: Jackson (1912); Weisse et al. (2006), section II.C.
    """

    def __init__(self, order: int = 16, forgetting: float = 1.0) -> None:
        self.order: int = check_integer("order", order, 2, 1024)
        self.forgetting: float = check_interval("forgetting", forgetting, 0.0, 1.0, "(0, 1]")
        self._state = (np.zeros(len(weights(self.order))),)  # sums of cosines

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.kernel(state[0], weights(self.order), self.forgetting, p, gains)

    def tails(self, p: float) -> tuple[float, float]:
        """Return the mass of the next bet below p, and above it."""
        return native.kernel_tails(self._state[0], weights(self.order), check_p(p))


class Markov(Learner):
    """Bets the density of p_n given p_{n-1}: finds serial dependence, which single p-values do not show.

        f(p | q) = (1 + sum_t lam^(n-t) K_J(q, p_{t-1}) K_J(p, p_t)) / (1 + sum_t lam^(n-t) K_J(q, p_{t-1}))

    with q = p_{n-1}, and K_J and lam as in `Kernel`. O(order^2) time and memory.

    >>> Markov(4).extend([0.1, 0.9, 0.1, 0.9]).round(3)
    array([ 0.   ,  0.   , -0.025,  0.96 ])

    Reference: the kernel of `Kernel`, in two dimensions.
    """

    def __init__(self, order: int = 8, forgetting: float = 1.0) -> None:
        self.order: int = check_integer("order", order, 2, 256)
        self.forgetting: float = check_interval("forgetting", forgetting, 0.0, 1.0, "(0, 1]")
        terms = len(weights(self.order))
        self._state = np.zeros(terms), np.zeros((self.order, terms))  # cosines of the last p-value, sums of products

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.markov(state[0], state[1], weights(self.order), self.forgetting, p, gains)
