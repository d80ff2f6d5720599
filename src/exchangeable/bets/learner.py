"""What bets that learn have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from exchangeable.protocols import Floats, many_p, one_p

State = tuple[Any, ...]  # of arrays, and of tuples of arrays


class Learner(ABC):
    """A bet whose memory is a tuple of arrays, and whose recursion is one compiled loop over p-values.

    A subclass sets ``_state`` and plays; the betting function at p is what it would gain there, found on a copy.
    """

    _state: State

    @abstractmethod
    def _play(self, state: State, p: Floats, gains: Floats) -> None:
        """Bet on each p, put the log density into gains, then let the state learn p."""

    def log_density(self, p: float) -> float:
        """Log of the betting function at p; changes nothing."""
        gains = np.empty(1)
        self._play(copied(self._state), np.array([one_p(p)]), gains)
        return float(gains[0])

    def update(self, p: float) -> None:
        """Learn p."""
        self.extend([one_p(p)])

    def extend(self, p: ArrayLike) -> Floats:
        """Log f_i(p_i): bet on each p, then learn it."""
        values = many_p(p)
        gains = np.empty(len(values))
        self._play(self._state, values, gains)
        return gains


def copied(state: State) -> State:
    """The same numbers in other arrays."""
    return tuple(copied(part) if isinstance(part, tuple) else part.copy() for part in state)
