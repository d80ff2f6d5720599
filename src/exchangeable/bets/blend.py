"""Bets that combine other bets on the same p-values."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.bets.learner import LOST, State, copy_state, logs, step
from exchangeable.protocols import Bet, Floats
from exchangeable.validation import call_repr, check_column, check_integer, check_interval, check_p, check_p_array

T = TypeVar("T")
TINY = math.ulp(0.0)


class _Mixture(ABC):
    """Several bets that share the capital."""

    bets: list[Bet]
    _state: State

    def __repr__(self) -> str:
        return call_repr(self)

    @abstractmethod
    def _mix(self, state: State, table: Floats, gains: Floats | None) -> Any:
        """Compute log densities of the mixture from those of its bets (steps x bets), and update the state.

        They are written to ``gains``. If that is None, there is one step, and its log density is returned.
        """

    @abstractmethod
    def _next_shares(self) -> Floats:
        """Return the shares of the bets in the next step; they sum to one."""

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        value = check_p(p)
        gain: float = self._mix(copy_state(self._state), np.array([bet.log_density(value) for bet in self.bets]), None)
        return gain

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def _step(self, p: float) -> float:
        gain: float = self._mix(self._state, np.array([step(bet, p) for bet in self.bets]), None)
        return gain

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it; return the log densities."""
        values = check_p_array(p)
        gains = np.empty(len(values))
        table = np.column_stack([bet.extend(values) for bet in self.bets])
        self._mix(self._state, np.ascontiguousarray(table, np.float64), gains)
        return gains

    def tails(self, p: float) -> tuple[float, float]:
        """Return the mass of the next bet below p, and above it, if all bets know theirs (see `Copula`)."""
        value, shares = check_p(p), self._next_shares()
        for bet in self.bets:
            if not hasattr(bet, "tails"):
                raise ValueError(f"every bet must have a method tails, as Kernel and Regression do, got {bet!r}")
        tails = [bet.tails(value) for bet in self.bets]  # type: ignore[attr-defined]
        far = value > 0.5  # the mass on the nearer side has more digits
        mass = math.fsum(share * tail[far] for share, tail in zip(shares.tolist(), tails, strict=True))
        mass = min(max(mass, TINY), 1.0)
        rest = max(1.0 - mass, LOST)
        return (rest, mass) if far else (mass, rest)


class Blend(_Mixture):
    """Bayes mixture: the capital is shared once, and each share grows or shrinks by its own bet.

        S_n = sum_k w_k S_n^k ,   so  log S_n >= log S_n^k + log w_k  for every k

    It loses little against whichever of its bets turns out best. Any mixture of bets on *one* sequence of p-values is a
    martingale. Time and memory are those of the bets.

    >>> from exchangeable.bets import Idle, Power
    >>> Blend([Power(0.5), Idle()]).extend([0.01, 0.01]).round(3)
    array([1.099, 1.466])

    Reference: Vovk, Gammerman, Shafer (2022), section 8.1; Fedorova et al. (2012), section 5.
    """

    def __init__(self, bets: Sequence[Bet], weights: Sequence[float] | None = None) -> None:
        self.bets: list[Bet] = _check_bets(bets)
        self.weights: list[float] = _check_weights(weights, len(self.bets))
        self._state = (logs(np.array(self.weights)),)

    def _mix(self, state: State, table: Floats, gains: Floats | None) -> float | None:
        return native.blend(state[0], table, gains)

    def _next_shares(self) -> Floats:
        out = np.empty(len(self.bets))
        native.exp(self._state[0], out)
        return out


class MemoryShare(_Mixture):
    """Follows the best bet when the best one changes, and quickly returns to one that was good before.

    Before each step a fraction ``share`` of the capital moves. A part ``memory`` of it goes to the bets that had
    capital in the past, the rest to all bets by their ``weights``. With s = share, g = memory, and r the mean of
    ``weights`` and of the shares w after steps 8, 16, 24, ...,

        w_k <- ((1 - s) w_k + s ((1 - g) weights_k + g r_k)) f_k(p) / f(p) .

    Time and memory are those of the bets.

    >>> from exchangeable.bets import Idle, Power
    >>> MemoryShare([Power(0.5), Idle()], 0.01).extend([0.01, 0.01]).round(3)
    array([1.099, 1.463])

    Reference: Bousquet and Warmuth (2002), mixing past posteriors with a uniform past.
    """

    def __init__(
        self, bets: Sequence[Bet], share: float = 0.001, memory: float = 0.9, weights: Sequence[float] | None = None
    ) -> None:
        self.bets: list[Bet] = _check_bets(bets)
        self.share: float = check_interval("share", share, math.nextafter(1e-100, 0.0), 1.0, "[1e-100, 1]")
        self.memory: float = check_interval("memory", memory, -TINY, 1.0, "[0, 1]")
        self.weights: list[float] = _check_weights(weights, len(self.bets))
        shares = np.array(self.weights)
        self._state = shares, shares.copy(), np.zeros(1)  # and where moved capital goes, and the number of steps

    def _mix(self, state: State, table: Floats, gains: Floats | None) -> float | None:
        shares, targets, n = state
        weights = np.array(self.weights)
        return native.memory_share(shares, targets, n, weights, self.share, self.memory, table, gains)

    def _next_shares(self) -> Floats:
        shares, targets, _ = self._state
        next_shares: Floats = (1.0 - self.share) * shares + self.share * targets
        return next_shares


class Switching(MemoryShare):
    """Fixed share: follows the best bet even when the best one changes. It is `MemoryShare` without memory.

    Before each step a fraction ``share`` of the capital is spread evenly over the m bets,

        w_k <- ((1 - share) w_k + share / m) f_k(p) / f(p) .

    Time and memory are those of the bets.

    >>> from exchangeable.bets import Idle, Power
    >>> Switching([Power(0.5), Idle()], 0.01).extend([0.01, 0.01]).round(3)
    array([1.099, 1.463])

    Reference: Herbster and Warmuth (1998).
    """

    def __init__(self, bets: Sequence[Bet], share: float = 0.001) -> None:
        super().__init__(bets, share, 0.0)


class Cautious:
    """Places a bet only while that bet has been winning.

    A shadow account places the bet at every step. The bet is placed for real while the shadow capital is at least
    ``factor`` times its minimum over the last ``window`` steps. O(1) time per step in addition to that of
    the bet, O(window) memory.

    >>> from exchangeable.bets import Power
    >>> Cautious(Power(0.5), factor=4.0, window=100).extend([0.01, 0.01, 0.01]).round(3)
    array([0.   , 1.609, 1.609])

    Reference: Eliades and Papadopoulos (2022).
    """

    def __init__(self, bet: Bet, *, factor: float = 100.0, window: int = 5000) -> None:
        self.bet: Bet = check_bet("bet", bet)
        self.factor: float = check_interval("factor", factor, 1.0, 1e300, "(1, 1e300]")
        self.window: int = check_integer("window", window, 1, 10**8)
        self._state = np.array([0.0, 0.0, 0.0, 1.0])  # steps, shadow log capital, and the used part of the ring
        self._ring = np.zeros((2, self.window + 1))

    def __repr__(self) -> str:
        return call_repr(self)

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        gain = float(self.bet.log_density(check_p(p)))
        return native.cautious(self._state.copy(), self._ring.copy(), native.log(self.factor, None), gain, None)

    def update(self, p: float) -> None:
        """Learn p."""
        self._step(check_p(p))

    def _step(self, p: float) -> float:
        return native.cautious(self._state, self._ring, native.log(self.factor, None), step(self.bet, p), None)

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p while the shadow has been winning, then learn it; return the log densities."""
        values = check_p_array(p)
        gains = np.empty(len(values))
        shadow_gains = np.ascontiguousarray(self.bet.extend(values), np.float64)
        native.cautious(self._state, self._ring, native.log(self.factor, None), shadow_gains, gains)
        return gains


def check_bet(name: str, bet: T) -> T:
    """Check that this is a bet, and return a copy: an object used twice would learn everything twice.

    >>> from exchangeable.bets import Idle
    >>> check_bet("bet", Idle())
    Idle()
    """
    if isinstance(bet, type) or not isinstance(bet, Bet):
        raise ValueError(f"{name} must have log_density, update and extend, got {bet!r}")
    return copy.deepcopy(bet)


def _check_bets(bets: Sequence[Bet]) -> list[Bet]:
    try:
        parts = list(bets)
    except TypeError:
        raise ValueError(f"bets must be a list of bets, got {bets!r}") from None
    if not parts:
        raise ValueError("bets must hold at least one bet, got none")
    return [check_bet(f"bets[{i}]", bet) for i, bet in enumerate(parts)]


def _check_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    if weights is None:
        return [1.0 / count] * count
    shares: list[float] = check_column("weights", weights).tolist()
    if len(shares) != count:
        raise ValueError(f"weights must hold one number for each of the {count} bets, got {len(shares)}")
    if not all(0.0 <= weight <= 1.0 for weight in shares) or abs(math.fsum(shares) - 1.0) > 1e-15:
        raise ValueError(f"weights must lie in [0, 1] and sum to 1 (divide them by their sum), got {shares}")
    return shares
