"""The bet for change detection in streams without end."""

from __future__ import annotations

from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.beta import REACH, SIZE, grid
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats

EPSILONS, MIXED = np.array([0.1, 0.3, 0.6]), np.array([0.02, 0.05, 0.1, 0.2, 0.5])
WIDTHS, STEPPED = np.array([1 / 64, 1 / 32, 1 / 8, 3 / 16, 3 / 8]), np.array([0.1, 0.3])
COUNTS = SIZE**2, 3 * len(EPSILONS) * len(MIXED), 2 * len(WIDTHS) * len(STEPPED)
SHARES = (0.4, 0.4, 0.2)  # of the Beta densities, the powers and the steps


class Watchful(Learner):
    """For change detection with `ShiryaevRoberts` or `Cusum`: it is always equally ready for a change.

    For each of 290 fixed densities f_k, with weights w_k, betting starts again before every example:

        psi_k <- (w_k + psi_k) f_k(p) ,   f(p) = sum_k (w_k + psi_k) f_k(p) / (1 + sum_k psi_k) .

    So the statistic of `ShiryaevRoberts` on this bet is sum_k psi_k, the mixture of the statistics of each density
    alone: nothing has to be learnt or unlearnt when the change comes. `Adaptive` gains more from a long departure.

    The densities: Beta(a, b) on the grid of `Beta` (225, weight 0.4 in all); powers at one end or at both, mixed with
    the uniform density (45, weight 0.4); steps at one end, mixed with it (20, weight 0.2). O(1) time and memory.

    >>> Watchful().extend([0.5, 0.01, 0.01, 0.01]).round(3)
    array([-0.3  ,  0.729,  1.693,  2.388])

    Reference: Shiryaev (1963), Roberts (1966); Pollak (1987) for mixtures of alternatives.
    """

    def __init__(self) -> None:
        self._state = np.zeros(sum(COUNTS)), np.zeros(2)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.watchful(state[0], state[1], *_tables(), EPSILONS, MIXED, WIDTHS, STEPPED, p, gains)


@cache
def _tables() -> tuple[Floats, Floats, Floats]:
    """Return the weights of all densities, and the shapes and norms of the Beta densities."""
    table = grid(SIZE, REACH)
    weights = np.concatenate([np.full(n, share / n) for n, share in zip(COUNTS, SHARES, strict=True)])
    return weights, table[0, :SIZE].copy(), table[1:, :SIZE].copy()
