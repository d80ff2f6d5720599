"""Beta densities, for p-values that gather at the ends."""

from __future__ import annotations

import math

from exchangeable.bets.banks import Betas, FromBank
from exchangeable.protocols import in_interval, whole


class Beta(FromBank):
    """Bets a mixture of Beta densities whose weights may change: for p-values that gather at an end, at both, between.

        w_k <- ((1 - s) w_k + s/m) Beta(p; a_k, b_k) ,   s = switching, m = size^2

    over the grid ``ln a, ln b = reach t |t|`` for ``size`` even steps t from -1 to 1, which is denser near 0, where the
    density is uniform. At p = 1, which stands for the p-values that round to it, the density is its mean over them.
    O(size^2) time and memory.

    >>> Beta(0.01).extend([0.01, 0.01, 0.01]).round(3)
    array([1.057, 2.037, 2.286])

    Reference: Herbster and Warmuth (1998) for the switching.
    """

    def __init__(self, switching: float = 0.001, *, size: int = 15, reach: float = 2.5) -> None:
        self.switching: float = in_interval("switching", switching, math.nextafter(1e-100, 0.0), 1.0, "[1e-100, 1]")
        self.size: int = whole("size", size, 2, 200)
        # the reach is bounded so that every density at every p is a number
        self.reach: float = in_interval("reach", reach, 0.0, 2.9, "(0, 2.9]")
        super().__init__(Betas([self.switching], self.size, self.reach))
