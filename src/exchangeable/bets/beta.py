"""Beta densities, for p-values that concentrate at the ends."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_interval

SIZE, REACH = 15, 2.5  # defaults of the grid; native/adaptive.c has the same


@lru_cache(maxsize=64)
def grid(size: int, reach: float) -> Floats:
    """Return the shapes a in row 0 and 1/B(a_j, a_k) in row j + 1; rows are padded with zeros to a multiple of 16.

    >>> grid(3, 0.7)[:, :3].round(3)
    array([[0.497, 1.   , 2.014],
           [0.315, 0.497, 0.746],
           [0.497, 1.   , 2.014],
           [0.746, 2.014, 6.139]])
    """
    table = np.empty((size + 1, -(-size // 16) * 16))
    native.beta_grid(size, reach, table)
    table.flags.writeable = False
    return table


class Beta(Learner):
    """Bets a mixture of Beta densities with changing weights: for p-values near one end, near both, or in between.

        w_k <- ((1 - s) w_k + s/m) Beta(p; a_k, b_k) ,   s = switching, m = size^2

    over the grid ``ln a, ln b = reach t |t|`` for ``size`` even steps t from -1 to 1, which is denser near 0, where the
    density is uniform. At p = 1 the density is its mean over the p-values that round to 1. O(size^2) time and memory.

    >>> Beta(0.01).extend([0.01, 0.01, 0.01]).round(3)
    array([1.057, 2.037, 2.286])

    Reference: Herbster and Warmuth (1998) for the switching.
    """

    def __init__(self, switching: float = 0.001, *, size: int = SIZE, reach: float = REACH) -> None:
        self.switching: float = check_interval("switching", switching, math.nextafter(1e-100, 0.0), 1.0, "[1e-100, 1]")
        self.size: int = check_integer("size", size, 2, 200)
        self.reach: float = check_interval("reach", reach, 0.0, 2.9, "(0, 2.9]")  # so that all densities are finite
        weights = np.zeros_like(grid(self.size, self.reach)[1:])
        weights[:, : self.size] = 1.0 / self.size**2
        self._state = weights, np.ones(1)  # and their sum

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.beta(state[0], state[1], grid(self.size, self.reach), self.switching, p, gains)
