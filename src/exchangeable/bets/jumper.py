"""Jumpers: gamblers who change their strategy at random."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import kernels
from exchangeable.protocols import Floats, in_interval, many_p, one_p


class SleepyJumper:
    """Power bets that fall asleep, wake up and jump: for p-values that are small only at times.

    Asleep capital A does not bet; awake capital w_eps bets ``eps p^(eps - 1)``, eps = 1/G, 2/G, .., 1. With
    ``W = sum w``, ``R = waking``, ``J = jumping``, in each step

        A <- (1 - R) A + R W,    w_eps <- (R A/G + (1 - R) ((1 - J) w_eps + J W/G)) eps p^(eps - 1) .

    All capital is asleep at first. O(G) time and memory a step.

    >>> SleepyJumper().extend([0.001, 0.001]).round(3)
    array([0.181, 1.982])

    Reference: Vovk, Gammerman, Shafer (2005), section 7.1 (the transitions are reconstructed from its description).
    """

    def __init__(self, *, waking: float = 0.01, jumping: float = 0.001, grid: int = 100) -> None:
        self.waking = in_interval("waking", waking, 0.0, 1.0, "(0, 1]")
        self.jumping = in_interval("jumping", jumping, math.nextafter(0.0, -1.0), 1.0, "[0, 1]")
        if isinstance(grid, bool) or not isinstance(grid, (int, np.integer)) or grid < 1:
            raise ValueError(f"grid must be a whole number of at least 1, got {grid!r}")
        self.grid = int(grid)
        self._weights = np.zeros(self.grid + 1)
        self._weights[0] = 1.0

    def log_density(self, p: float) -> float:
        """Log of the betting function at p."""
        return float(kernels.jumper.log_density(self._weights, self.waking, self.jumping, one_p(p)))

    def update(self, p: float) -> None:
        """Learn p: the bets that foresaw it gain weight."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        kernels.jumper.extend(self._weights, self.waking, self.jumping, values, gains)
        return gains
