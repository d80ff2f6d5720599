"""Bets on a function of p that is uniform if p is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.bets.blend import check_bet
from exchangeable.bets.learner import step
from exchangeable.protocols import Bet, Floats
from exchangeable.validation import call_repr, check_p, check_p_array


@runtime_checkable
class Marginal(Bet, Protocol):
    """A bet that knows the masses of its density on both sides of p."""

    def tails(self, p: float) -> tuple[float, float]:
        """Return the mass of the next bet below p, and above it, both in (0, 1]."""
        ...


class Copula:
    """Bets on the marginal density of the p-values, and on the dependence that it leaves.

        f(p) = m(p) c(u) ,   u = int_0^p m

    where m is the density of ``marginal``, and c that of ``serial``, which bets on the sequence of the transformed
    p-values u. It is a density, since ``int m(p) c(u) dp = int c(u) du = 1``. The marginal is a `Kernel`, a
    `Regression`, an `Idle`, a mixture of these (`Blend`, `Switching`, `MemoryShare`), or another bet with a method
    ``tails``. Time and memory are those of the two bets.

    >>> from exchangeable.bets import Kernel, Markov
    >>> bet = Copula(Kernel(8), Markov(8))
    >>> bet.extend([0.1, 0.4, 0.1, 0.4, 0.1, 0.4]).round(3)
    array([ 0.   , -0.665,  0.565,  1.179,  1.742,  1.46 ])

    Reference: Rosenblatt (1952); Sklar (1959).
    """

    def __init__(self, marginal: Marginal, serial: Bet) -> None:
        if not isinstance(marginal, Marginal):
            raise ValueError(
                f"marginal must be a bet with a method tails, such as Kernel or Regression, got {marginal!r}"
            )
        self.marginal: Marginal = check_bet("marginal", marginal)
        self.serial: Bet = check_bet("serial", serial)
        self._transform(0.5)  # fails if the parts of a mixture have no tails

    def __repr__(self) -> str:
        return call_repr(self)

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        value = check_p(p)
        return float(self.marginal.log_density(value)) + float(self.serial.log_density(self._transform(value)))

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it; return the log densities."""
        return np.array([self._step(value) for value in check_p_array(p).tolist()])

    def _step(self, p: float) -> float:
        u = self._transform(p)
        return step(self.marginal, p) + step(self.serial, u)

    def _transform(self, p: float) -> float:
        u = self.marginal.tails(p)[0]
        if not 0.0 < u <= 1.0:
            raise ValueError(f"tails of the marginal must return masses in (0, 1], got {u!r}")
        return u


class TwoSided:
    """Bets on the two-sided p-value: ``f(p) = g(2 min(p, 1 - p))``, with g the density of a bet.

    The two-sided p-value is small where p is near 0 or 1. With `Regression` or `Season` it finds clusters and seasons
    in the spread of the values. Time and memory are those of the bet.

    >>> from exchangeable.bets import Power
    >>> TwoSided(Power(0.5)).extend([0.5, 0.01, 0.99]).round(3)
    array([-0.693,  1.263,  1.263])

    Reference: Cox and Hinkley (1974), section 3.4, for two-sided p-values.
    """

    def __init__(self, bet: Bet) -> None:
        self.bet: Bet = check_bet("bet", bet)

    def __repr__(self) -> str:
        return call_repr(self)

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        return float(self.bet.log_density(native.two_sided(check_p(p), None)))

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it; return the log densities."""
        values = check_p_array(p)
        both = np.empty(len(values))
        native.two_sided(values, both)
        return np.asarray(self.bet.extend(both))

    def _step(self, p: float) -> float:
        return step(self.bet, native.two_sided(p, None))
