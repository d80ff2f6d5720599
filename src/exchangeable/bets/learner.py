"""The base class of bets that learn."""

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

State = tuple[Any, ...]  # arrays, or nested tuples of arrays
LOST = 2.0**-55  # stands for a mass that is lost when it is subtracted from 1 (native/pit.h)


class Learner(ABC):
    """A bet whose state is a tuple of arrays and whose recursion is one compiled loop over p-values.

    A subclass sets ``_state`` and implements ``_run``. The log density at p is the gain of a copy of the state at p.
    ``_step`` and ``_run`` expect p-values that have been validated.
    """

    _state: State

    def __repr__(self) -> str:
        return call_repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that learns independently; the parameters never change and are shared."""
        twin = copy.copy(self)
        twin._state = copy_state(self._state)
        return twin

    @abstractmethod
    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> Any:
        """Bet on each p, write the log densities to ``gains``, and update the state.

        If p is one number, ``gains`` is None, and the log density is returned.
        """

    def _step(self, p: float) -> float:
        """Bet on one p, then learn it; return the log density at p."""
        gain: float = self._run(self._state, p, None)
        return gain

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p, without learning p."""
        gain: float = self._run(copy_state(self._state), check_p(p), None)
        return gain

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it; return log f_i(p_i)."""
        values = check_p_array(p)
        gains = np.empty(len(values))
        self._run(self._state, values, gains)
        return gains


def step(bet: Bet, p: float) -> float:
    """Bet on one p, which has been validated, then learn it; return the log density at p.

    >>> from exchangeable.bets import Power
    >>> round(step(Power(0.5), 0.01), 3)
    1.609
    """
    fast = _fast_step(type(bet))
    return float(bet.extend(np.array([p]))[0]) if fast is None else fast(bet, p)


@lru_cache(maxsize=256)
def _fast_step(kind: type) -> Callable[[Bet, float], float] | None:
    """Return the ``_step`` of a class of this package; None if there is none, or if a subclass overrides ``extend``.

    Bets of users follow the `Bet` protocol, in which ``_step`` has no meaning.
    """
    for base in kind.__mro__:
        if "_step" in vars(base) and base.__module__.startswith("exchangeable."):
            method: Callable[[Bet, float], float] = vars(base)["_step"]
            return method
        if "extend" in vars(base):
            return None
    return None


def shared_table(shape: int | tuple[int, ...], fill: Callable[[Floats], None]) -> Floats:
    """Return constants that all bets of a class share, and that nobody can change."""
    table = np.empty(shape)
    fill(table)
    table.flags.writeable = False
    return table


def logs(shares: Floats) -> Floats:
    """Return the logarithms of shares, with the same bits on every machine."""
    out = np.empty(len(shares))
    native.log(shares, out)
    return out


def copy_state(state: State) -> State:
    """Return a copy of the arrays of a state."""
    return tuple(copy_state(part) if isinstance(part, tuple) else part.copy() for part in state)
