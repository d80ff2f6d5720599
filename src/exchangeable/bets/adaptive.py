"""The default bet: a fixed portfolio of all the others."""

from __future__ import annotations

import numpy as np

from exchangeable import native
from exchangeable.bets.banks import Bank, Betas, Kernels, Markovs
from exchangeable.bets.histogram import Tree, check_tree
from exchangeable.bets.learner import Learner, State, check_counts, check_shares, check_within
from exchangeable.bets.power import SimpleMixture, check_mixture
from exchangeable.protocols import Floats

ORDERS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
FORGETTING = (1.0, 0.999, 0.99, 0.98, 0.95, 0.9)
MARKOV_ORDERS = (2, 3, 4, 8, 16)
MARKOV_FORGETTING = (1.0, 0.99)
SWITCHING = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3)
DEPTHS = (10, 6)  # of the rough and the smooth tree
SHARE = 1e-3
WEIGHTS = (0.4, 0.35, 0.25)  # of the Bayes blend, of fixed share, and of idleness


class Adaptive(Learner):
    """The default: no parameters, good against anything. A fixed portfolio of 73 bets, mixed in two ways, and idleness.

    - `Kernel` of orders 2, 3, 4, 6, 8, 12, 16, 32, 64 x forgetting 1, 0.999, 0.99, 0.98, 0.95, 0.9;
      `Markov` of orders 2, 3, 4, 8, 16 x forgetting 1, 0.99;
      `Beta` with switching 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3;
      `SimpleMixture`, `Tree(10)` and `Tree(6, prior="smooth")`;
    - 0.40 of the capital is shared among them once (as `Blend` does), 0.35 switches between them (`Switching` with
      share 0.001), and 0.25 stays idle, so that log10 S never falls below -0.61.

    The same as ``Blend([Blend(bets), Switching(bets), Idle()], [0.40, 0.35, 0.25])``, in less time. O(1) time a step
    and memory (0.1 MB).

    >>> bool(Adaptive().extend(np.full(50, 0.9)).sum() > 20.0)
    True

    Reference: Fedorova et al. (2012), section 5, ask whether a Bayesian approach can be efficient.
    """

    def __init__(self) -> None:
        banks: list[Bank] = [
            Kernels(ORDERS, FORGETTING),
            Markovs(MARKOV_ORDERS, MARKOV_FORGETTING),
            Betas(SWITCHING, 15, 2.5),
        ]
        bets = SimpleMixture(), Tree(DEPTHS[0]), Tree(DEPTHS[1], prior="smooth")
        columns = sum(bank.columns for bank in banks) + len(bets)
        self._fixed = tuple(bank.fixed for bank in banks)
        self._state = (*(bank.fresh() for bank in banks), *(bet._state for bet in bets), _even(columns))

    def _play(self, state: State, p: Floats, gains: Floats) -> None:
        arrays = [array for part in state for array in part]
        native.adaptive(*arrays, *(array for part in self._fixed for array in part), *DEPTHS, SHARE, p, gains)

    def _check_state(self) -> None:
        """Admit a state from a snapshot."""
        sums, chains, betas, mixed, rough, smooth, (log_shares, linear, products, steps, shares, log_parts) = (
            self._state
        )
        for bank, state in ((Kernels, sums), (Markovs, chains), (Betas, betas)):
            bank.check(state)
        check_mixture(*mixed)
        for tree in (rough, smooth):
            check_tree(*tree)
        for name, part in (("shares", np.exp(log_shares)), ("shares", shares), ("parts", np.exp(log_parts))):
            check_shares(name, part)
        check_counts("steps", steps[:1])
        check_within("steps", steps[:1], 0, native.PORTFOLIO_EVERY - 1)
        check_within("products", products, 1e-200, 1e200)
        if not (np.abs(np.exp(log_shares + np.log(products) - steps[1]) - linear) <= 1e-6).all():
            raise ValueError("linear must be the shares as their bets have changed them, got others")


def _even(columns: int) -> State:
    """Of the Bayes blend: log shares, shares, products, steps; of the fixed share: shares; log shares of the parts."""
    even = np.full(columns, 1.0 / columns)
    return np.log(even), even, np.ones(columns), np.zeros(2), even.copy(), np.log(WEIGHTS)
