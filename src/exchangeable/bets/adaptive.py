"""The default bet: a fixed portfolio of all the others."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.beta import check_weights
from exchangeable.bets.histogram import check_tree
from exchangeable.bets.kernel import check_sums
from exchangeable.bets.learner import Learner, State, check_shares, check_within
from exchangeable.bets.power import check_mixture
from exchangeable.protocols import Floats

PARTS = {  # the parts of the state, in the order of the struct in native/adaptive.c
    "sums": (64, 8),  # Jackson kernels: sums of cosines, for each forgetting factor
    "pairs": (2, 16, 16),  # Markov kernels: sums of products of cosines, for each forgetting factor
    "last": (16,),  # and the cosines of the last p-value
    "grids": (6, 15, 16),  # Beta grids: weights for each switching rate
    "bayes": (3, 80),  # Bayes blend: log shares, shares, and products of the densities since then
    "fixed": (80,),  # fixed share: shares
    "parts": (3, 8),  # the blend, the fixed share and idleness: laid out as bayes
    "totals": (9,),  # of the grids, of bayes, fixed and parts
    "mixture": (4,),
    "rough": (2**10, 3),
    "smooth": (2**6, 3),
}
COLUMNS = 73


class Adaptive(Learner):
    """The default: no parameters, good against anything. A fixed portfolio of 73 bets, mixed in two ways, and idleness.

    - `Kernel` of orders 2, 3, 4, 6, 8, 12, 16, 32, 64 x forgetting 1, 0.999, 0.99, 0.98, 0.95, 0.9;
      `Markov` of orders 2, 3, 4, 8, 16 x forgetting 1, 0.99;
      `Beta` with switching 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3;
      `SimpleMixture`, `Tree(10)` and `Tree(6, prior="smooth")`;
    - 0.40 of the capital is shared among them once (as `Blend` does), 0.35 switches between them (`Switching` with
      share 0.001), and 0.25 stays idle, so that log10 S never falls below -0.61.

    The same as ``Blend([Blend(bets), Switching(bets), Idle()], [0.40, 0.35, 0.25])``, in less time. O(1) time a step
    and memory (49 kB).

    >>> bool(Adaptive().extend(np.full(50, 0.9)).sum() > 20.0)
    True

    Reference: Fedorova et al. (2012), section 5, ask whether a Bayesian approach can be efficient.
    """

    def __init__(self) -> None:
        self._state = (_fresh().copy(),)

    def _play(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.adaptive(state[0], _tables(), p, gains)

    def _check_state(self) -> None:
        """Check a state from a snapshot."""
        part = parts(self._state[0])
        check_sums(part["sums"], part["sums"][0])
        check_within("cosines", part["last"], -1.001, 1.001)
        for pairs in part["pairs"]:
            check_sums(pairs, pairs[0, 0])
        for weights, total in zip(part["grids"], part["totals"], strict=False):
            check_weights(weights, total, 15)
        check_mixture(part["mixture"])
        check_tree(part["rough"], False)
        check_tree(part["smooth"], True)
        _check_blend(part["bayes"], part["totals"][6], COLUMNS)
        _check_blend(part["parts"], part["totals"][8], 3)
        check_weights(part["fixed"][np.newaxis], part["totals"][7], COLUMNS)


def parts(state: Floats) -> dict[str, Floats]:
    """The parts of the state of `Adaptive`, as views."""
    ends = np.cumsum([math.prod(shape) for shape in PARTS.values()])
    pieces = np.split(state, ends[:-1])
    return {name: piece.reshape(shape) for piece, (name, shape) in zip(pieces, PARTS.items(), strict=True)}


def _check_blend(blend: Floats, total: float, count: int) -> None:
    log_shares, shares, products = blend
    check_shares("shares", shares)
    check_within("products", products, 2.0**-300, 2.0**300)
    agree = np.abs(np.exp(log_shares) - shares) <= 1e-6
    if not agree.all() or shares[count:].any() or (log_shares[count:] != -math.inf).any():
        raise ValueError("log shares must be the logarithms of the shares, got others")
    if not abs(shares @ products / total - 1.0) <= 1e-6:
        raise ValueError("total must be that of the shares times the products, got another")


@cache
def _fresh() -> Floats:
    state = np.empty(native.ADAPTIVE_STATE)
    native.adaptive_fresh(state)
    return state


@cache
def _tables() -> Floats:
    """Constants that all instances share: the weights of the Jackson kernels, and the Beta grid."""
    tables = np.empty(native.ADAPTIVE_TABLES)
    native.adaptive_tables(tables)
    tables.flags.writeable = False
    return tables
