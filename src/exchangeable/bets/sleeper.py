"""Sleepers: capital that wakes up bit by bit, and bets from then on that the p-values have changed."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_interval, check_p, check_p_array, check_stored

LEAST_WAKING = 1e-100
MAX_STEPS = 2**53  # floats count exactly up to here


class SleeperStayer(Learner):
    """Bets that, from some time on, a p-value is at most a with probability b: for one change at an unknown time.

    For each pair (a, b) of numbers 1/G, 2/G, .., (G - 1)/G, with ``G = grid``, there is a bet

        f_ab(p) = b/a  if p <= a,  else  (1 - b)/(1 - a) .

    All capital sleeps at first. Before each step, a fraction ``waking`` of the sleeping capital is spread evenly over
    the pairs, and bets f_ab from then on. O(G^2) time per step, O(G^2) memory.

    >>> SleeperStayer(waking=0.1).extend([0.01, 0.01, 0.01]).round(3)
    array([0.056, 0.345, 1.066])

    Reference: Vovk, Gammerman, Shafer (2022), Algorithm 9.4.
    """

    def __init__(self, *, waking: float = 0.001, grid: int = 10) -> None:
        self.waking: float = _check_waking(waking)
        self.grid: int = check_integer("grid", grid, 2, native.SLEEPER_GRID)
        self._state = (np.zeros((2, _pairs(self.grid))),)  # see native/sleeper.c

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.sleeper_stayer(state[0], self.waking, self.grid, p, gains)


class SleeperDrifter(Learner):
    """Like `SleeperStayer`, for rank p-values: models how the traces of a change fade as the pool of ranks fills.

    After every M-th step, with ``M = every``, a fraction ``waking`` of the sleeping capital is spread evenly over
    the pairs (a, b). Capital that woke up after step s bets in step i that a p-value is at most a' with probability b,

        f(p) = b/a'  if p <= a',  else  (1 - b)/(1 - a') ,   a' = a s/i + b (1 - s/i) ,

    because a fraction s/i of the pool dates from before the change. All capital sleeps during the first M steps; this
    is our reading of the book. In crepes a fraction bets from the first step on, as if M - 1 p-values had come before.

    Each wake-up stores 2 (G - 1)^2 numbers, so step n takes O(G^2 n/M) time, and memory is O(G^2 n/M): by default 30
    microseconds and 130 kB at step 10,000. `Fade` models the same in constant time and memory.

    >>> SleeperDrifter(every=2).extend([0.5, 0.01, 0.01, 0.01]).round(3)
    array([0.   , 0.   , 0.008, 0.022])

    Reference: Vovk, Gammerman, Shafer (2022), Algorithm 9.5.
    """

    def __init__(self, *, waking: float = 0.1, every: int = 100, grid: int = 10) -> None:
        self.waking: float = _check_waking(waking)
        self.every: int = check_integer("every", every, 1, MAX_STEPS)
        self.grid: int = check_integer("grid", grid, 2, native.SLEEPER_GRID)
        head = np.array([0.0, 1.0, 0.0, 1.0, 0.0])  # steps; what sleeps, and the total: see native/sleeper.c
        self._state = head, np.zeros((0, 2, _pairs(self.grid)))  # and the amounts of each wake-up

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        head, blocks = self._state
        return native.sleeper_drifter_at(head, blocks, self.waking, self.every, self.grid, check_p(p))

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on each p, then learn it; return log f_i(p_i)."""
        values = check_p_array(p)
        self._grow(len(values))
        return super().extend(values)

    def _step(self, p: float) -> float:
        self._grow(1)
        return super()._step(p)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        head, blocks = state
        return native.sleeper_drifter(head, blocks, self.waking, self.every, self.grid, p, gains)

    def _grow(self, steps: int) -> None:
        """Make room for the wake-ups of this many further steps."""
        head, blocks = self._state
        more = (int(head[0]) + steps) // self.every - len(blocks)
        if more:
            self._state = head, np.concatenate([blocks, np.zeros((more, *blocks.shape[1:]))])

    def _get_state(self) -> dict[str, Any]:
        head, blocks = self._state
        return {"waking": self.waking, "every": self.every, "grid": self.grid, "head": head, "blocks": blocks}

    @classmethod
    def _from_state(cls, *, waking: Any, every: Any, grid: Any, head: Any, blocks: Any) -> Self:
        bet = cls(waking=waking, every=every, grid=grid)
        n = check_stored("head", head, np.float64, 5)[0]
        if not 0.0 <= n <= MAX_STEPS or n != math.floor(n):
            raise ValueError(f"head must begin with an integer from 0 to {MAX_STEPS}, got {n}")
        bet._state = head, check_stored("blocks", blocks, np.float64, int(n) // bet.every, 2, _pairs(bet.grid))
        return bet


def _pairs(grid: int) -> int:
    return (grid - 1) ** 2


def _check_waking(waking: float) -> float:
    low, high = math.nextafter(LEAST_WAKING, 0.0), math.nextafter(1.0, 0.0)
    return check_interval("waking", waking, low, high, f"[{LEAST_WAKING}, 1)")
