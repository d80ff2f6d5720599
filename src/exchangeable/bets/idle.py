"""Not betting at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exchangeable.protocols import Floats, called, many_p, one_p


class Idle:
    """Bets nothing, ``f = 1``: in a blend it keeps a share of the capital safe. O(1) time and memory.

    >>> Idle().extend([0.1, 0.9])
    array([0., 0.])
    """

    def __repr__(self) -> str:
        return called(self)

    def log_density(self, p: float) -> float:
        """Always 0."""
        return 0.0 * one_p(p)

    def update(self, p: float) -> None:
        """Nothing to learn."""
        one_p(p)

    def extend(self, p: ArrayLike) -> Floats:
        """Zeros."""
        return np.zeros(len(many_p(p)))

    def _step(self, p: float) -> float:
        return 0.0
