"""Beta densities, for p-values that concentrate at the ends, or in between."""

from __future__ import annotations

import math
from functools import cache, lru_cache, partial

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, shared_table
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_interval

SIZE, REACH = 15, 2.5  # defaults of the grid


@lru_cache(maxsize=64)
def grid(size: int, reach: float) -> Floats:
    """Return the shapes a in row 0 and 1/B(a_j, a_k) in row j + 1; rows are padded with zeros to a multiple of 8.

    >>> grid(3, 0.7)[:, :3].round(3)
    array([[0.497, 1.   , 2.014],
           [0.315, 0.497, 0.746],
           [0.497, 1.   , 2.014],
           [0.746, 2.014, 6.139]])
    """
    return shared_table((size + 1, -(-size // 8) * 8), partial(native.beta_grid, size, reach))


class Beta(Learner):
    """Bets a mixture of Beta densities with changing weights: for p-values near one end, near both, or in between.

        w_k <- ((1 - s) w_k + s ((1 - g)/m + g r_k)) Beta(p; a_k, b_k) / f(p)

    with s = switching, g = memory, m = size^2, and r and f as in `MemoryShare`. a and b each run over exp(reach t |t|)
    for ``size`` evenly spaced t from -1 to 1; the grid is denser near t = 0, where the density is nearly uniform. At
    p = 1 the density is its mean over the p-values that round to 1. O(size^2) time and memory.

    >>> Beta(0.01).extend([0.01, 0.01, 0.01]).round(3)
    array([1.057, 2.037, 2.286])

    Reference: Herbster and Warmuth (1998), Bousquet and Warmuth (2002) for the switching.
    """

    def __init__(
        self, switching: float = 0.001, *, memory: float = 0.0, size: int = SIZE, reach: float = REACH
    ) -> None:
        self.switching: float = check_interval("switching", switching, math.nextafter(1e-100, 0.0), 1.0, "[1e-100, 1]")
        self.memory: float = check_interval("memory", memory, -math.ulp(0.0), 1.0, "[0, 1]")
        self.size: int = check_integer("size", size, 2, 200)
        self.reach: float = check_interval("reach", reach, 0.0, 2.9, "(0, 2.9]")  # so that all densities are finite
        weights, targets = np.empty((2, *grid(self.size, self.reach)[1:].shape))
        native.beta_fresh(weights, targets)
        self._state = weights, targets, np.array([1.0, 0.0])  # the sum of the weights, and the number of steps

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        weights, targets, scalars = state
        table = grid(self.size, self.reach)
        return native.beta(weights, targets, scalars, table, self.switching, self.memory, p, gains)


class PowerChain(Learner):
    """Bets that p-values are near one end, with a strength that changes slowly, or suddenly.

    The components are Beta(a, 1) and Beta(1, a), for 29 shapes a from 0.08 to 12, spaced as in `Beta` and arranged in
    two lines. Before each step a fraction ``walk`` of each component's share moves to its neighbours in the line, half
    to each (at an end, the outer half stays). Then, with v the shares after the walk, s = share, g = memory, m = 58,
    and r and f as in `MemoryShare`,

        w_k <- ((1 - s) v_k + s ((1 - g)/m + g r_k)) f_k(p) / f(p) .

    O(1) time and memory.

    >>> PowerChain().extend([0.01, 0.02, 0.01]).round(3)
    array([0.761, 1.398, 1.96 ])

    Reference: Bousquet and Warmuth (2002) for the memory.
    """

    def __init__(self, walk: float = 0.002, *, share: float = 1e-4, memory: float = 0.0) -> None:
        self.walk: float = check_interval("walk", walk, -math.ulp(0.0), 1.0, "[0, 1]")
        self.share: float = check_interval("share", share, math.nextafter(1e-100, 0.0), 1.0, "[1e-100, 1]")
        self.memory: float = check_interval("memory", memory, -math.ulp(0.0), 1.0, "[0, 1]")
        state = np.empty(native.CHAIN_STATE)
        native.power_chain_fresh(state, _chain_tables())
        self._state = (state,)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.power_chain(state[0], _chain_tables(), self.walk, self.share, self.memory, p, gains)


@cache
def _chain_tables() -> Floats:
    """Return the constants that all instances share: shapes, and factors of the densities."""
    return shared_table(native.CHAIN_TABLES, partial(native.power_chain_tables, REACH))
