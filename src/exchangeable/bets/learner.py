"""What bets that learn have in common."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.protocols import Bet, Floats
from exchangeable.validation import call_repr, check_p, check_p_array

State = tuple[Any, ...]  # of arrays, and of tuples of arrays


class Learner(ABC):
    """A bet whose memory is a tuple of arrays, and whose recursion is one compiled loop over p-values.

    A subclass sets ``_state`` and plays; the betting function at p is what it would gain there, found on a copy.
    ``_step`` and ``_play`` take p-values that have been validated.
    """

    _state: State

    def __repr__(self) -> str:
        return call_repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that learns independently; the parameters never change and are shared."""
        twin = copy.copy(self)
        twin._state = copied(self._state)
        return twin

    @abstractmethod
    def _play(self, state: State, p: Floats | float, gains: Floats | None) -> Any:
        """Bet on each p, put the log density into gains, then let the state learn p.

        If p is one number, gains is None, and the log density is returned.
        """

    def _step(self, p: float) -> float:
        """Bet on one p, then learn it; return the log density at p."""
        gain: float = self._play(self._state, p, None)
        return gain

    def log_density(self, p: float) -> float:
        """Log of the betting function at p; changes nothing."""
        gain: float = self._play(copied(self._state), check_p(p), None)
        return gain

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def extend(self, p: ArrayLike) -> Floats:
        """Log f_i(p_i): bet on each p, then learn it."""
        values = check_p_array(p)
        gains = np.empty(len(values))
        self._play(self._state, values, gains)
        return gains


def step(bet: Bet, p: float) -> float:
    """Bet on one p, which has been validated, then learn it; return the log density at p.

    >>> from exchangeable.bets import Power
    >>> round(step(Power(0.5), 0.01), 3)
    1.609
    """
    own = _own_step(type(bet))
    return float(bet.extend(np.array([p]))[0]) if own is None else own(bet, p)


@lru_cache(maxsize=256)
def _own_step(kind: type) -> Callable[[Bet, float], float] | None:
    """The method ``_step`` of one of our classes; None if there is none, or if a subclass has its own ``extend``.

    Bets of users follow the protocol, in which ``_step`` means nothing.
    """
    for base in kind.__mro__:
        if "_step" in vars(base) and base.__module__.startswith("exchangeable."):
            own: Callable[[Bet, float], float] = vars(base)["_step"]
            return own
        if "extend" in vars(base):
            return None
    return None


def logs(shares: Floats) -> Floats:
    """Their logarithms, with the same bits on every machine."""
    out = np.empty(len(shares))
    native.log(shares, out)
    return out


def check_counts(name: str, counts: Floats) -> None:
    """Admit, from a snapshot, integers that count something.

    >>> check_counts("counts", np.array([1.0, -1.0]))
    Traceback (most recent call last):
    ...
    ValueError: counts must be integers from 0 on, got -1
    """
    bad = counts[~((counts >= 0.0) & (counts <= 2.0**53) & (counts == np.floor(counts)))]
    if bad.size:
        raise ValueError(f"{name} must be integers from 0 on, got {bad.flat[0]:g}")


def copied(state: State) -> State:
    """The same numbers in other arrays."""
    return tuple(copied(part) if isinstance(part, tuple) else part.copy() for part in state)
