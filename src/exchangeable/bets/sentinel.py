"""The bet for change detection in streams without end."""

from __future__ import annotations

from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, shared_table
from exchangeable.protocols import Floats


class Sentinel(Learner):
    """For change detection with `ShiryaevRoberts` or `Cusum`: it is always equally ready for a change.

    Each of 206 bets f_k, with weight w_k, makes a fresh start before every example. With psi_k = 0 at first:

        psi_k <- (w_k + psi_k) f_k(p) ,   f(p) = sum_k (w_k + psi_k) f_k(p) / (1 + sum_k psi_k) .

    So the statistic of `ShiryaevRoberts` on this bet is sum_k psi_k, the mixture of the statistics of each bet alone:
    nothing has to be learnt or unlearnt when the change comes. `Adaptive` gains more from a long departure.

    The bets and their shares, with z the normal score of p: a shift of z (20 %), powers of p (10 %), a wider or a
    narrower distribution of z (5 % each), heavy tails (12 %), spikes at the ends (8 %), a block at one end (9 %) or
    away from it (6 %), dependence of z on the z before (6 %), and kernel density estimates of the last 30 to 500
    p-values (19 %). native/sentinel.c lists them. Densities are constant on each of up to 466 cells, which are narrower
    towards 0 and 1; the mass of each cell is exact. O(1) time and memory: 3.6 kB, and 1 MB that all instances share.

    >>> Sentinel().extend([0.5, 0.01, 0.01, 0.01]).round(3)
    array([-0.071,  0.23 ,  1.321,  2.325])

    Reference: Shiryaev (1963), Roberts (1966); Pollak (1987) for mixtures of alternatives.
    """

    def __init__(self) -> None:
        state = np.zeros(native.SENTINEL_STATE)
        state[native.SENTINEL_LAST] = -1.0
        self._state = (state,)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.sentinel(state[0], sentinel_tables(), p, gains)


@cache
def sentinel_tables() -> Floats:
    """Return the constants that all instances share: weights, and the densities in all cells."""
    return shared_table(native.SENTINEL_TABLES, native.sentinel_tables)
