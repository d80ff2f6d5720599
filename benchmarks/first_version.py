"""`Adaptive` of version 0.1, for comparison: 73 bets in a Bayes blend, fixed share among them, and an idle share."""

from __future__ import annotations

import numpy as np

from exchangeable import bets, native
from exchangeable.protocols import Bet, Floats

SHARE, CAPITAL = 0.001, (0.40, 0.35, 0.25)


def portfolio() -> list[Bet]:
    return [
        *(bets.Kernel(o, f) for o in (2, 3, 4, 6, 8, 12, 16, 32, 64) for f in (1.0, 0.999, 0.99, 0.98, 0.95, 0.9)),
        *(bets.Markov(order, forgetting) for order in (2, 3, 4, 8, 16) for forgetting in (1.0, 0.99)),
        *(bets.Beta(switching) for switching in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3)),
        bets.SimpleMixture(),
        bets.Tree(10),
        bets.Tree(6, prior="smooth"),
    ]


def first_version(p: Floats) -> Floats:
    """Log capital after each p-value."""
    gains = np.column_stack([bet.extend(p) for bet in portfolio()])
    even, switched = np.full(gains.shape[1], 1.0 / gains.shape[1]), np.empty(len(p))
    native.memory_share(even.copy(), even.copy(), np.zeros(1), even, SHARE, 0.0, gains, switched)
    blended = np.logaddexp.reduce(np.cumsum(gains, axis=0) + np.log(even), axis=1)
    parts = np.stack([blended, np.cumsum(switched), np.zeros(len(p))])
    return np.asarray(np.logaddexp.reduce(parts + np.log(CAPITAL)[:, np.newaxis], axis=0))
