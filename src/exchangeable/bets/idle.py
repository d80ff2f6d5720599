"""The bet that stakes nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exchangeable.bets.learner import LOST
from exchangeable.protocols import Floats
from exchangeable.validation import call_repr, check_p, check_p_array


class Idle:
    """Bets nothing, ``f = 1``: in a blend it keeps a share of the capital safe. O(1) time and memory.

    >>> Idle().extend([0.1, 0.9])
    array([0., 0.])
    """

    def __repr__(self) -> str:
        return call_repr(self)

    def log_density(self, p: float) -> float:
        """Return 0, the log of the constant density 1."""
        return 0.0 * check_p(p)

    def update(self, p: float) -> None:
        """Check p; there is nothing to learn."""
        check_p(p)

    def extend(self, p: ArrayLike) -> Floats:
        """Return 0 for each p."""
        return np.zeros(len(check_p_array(p)))

    def tails(self, p: float) -> tuple[float, float]:
        """Return the mass below p, which is p, and above it."""
        value = check_p(p)
        return value, max(1.0 - value, LOST)

    def _step(self, p: float) -> float:
        return 0.0
