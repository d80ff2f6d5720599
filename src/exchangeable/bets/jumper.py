"""Jumpers: capital that moves between strategies at random."""

from __future__ import annotations

import math

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, logs
from exchangeable.protocols import Floats
from exchangeable.validation import check_integer, check_interval

JUMPERS = native.COMPOSITE_JUMPERS


class SleepyJumper(Learner):
    """Power bets that fall asleep, wake up and jump: for p-values that are small only from time to time.

    Waking capital w_eps bets ``eps p^(eps - 1)``, eps = 1/G, 2/G, .., 1, and may jump to another eps. Sleeping capital
    a_eps does not bet and keeps its eps. With ``W = sum w``, ``R = waking`` and ``J = jumping``, each step does (both
    updates at once)

        w'_eps = (1 - J) w_eps + J W/G ,
        a_eps <- (1 - R) a_eps + R w'_eps ,    w_eps <- ((1 - R) w'_eps + R a_eps) eps p^(eps - 1) .

    At the start all capital is asleep, with 1/G for each eps. With ``jumping=0``, an eps whose share of the capital
    falls below 1e-308 is lost for good. O(G) time per step, O(G) memory.

    >>> SleepyJumper().extend([0.001, 0.001]).round(3)
    array([0.181, 1.982])

    Reference: Vovk, Nouretdinov, Gammerman (2003). We could not read its text; we chose this rule because it comes
    near the published capital (docs/paper.md).
    """

    def __init__(self, *, waking: float = 0.01, jumping: float = 0.001, grid: int = 100) -> None:
        self.waking: float = check_interval("waking", waking, 0.0, 1.0, "(0, 1]")
        self.jumping: float = check_interval("jumping", jumping, math.nextafter(0.0, -1.0), 1.0, "[0, 1]")
        self.grid: int = check_integer("grid", grid, 1, 10**6)
        self._state = (np.repeat([[1.0 / self.grid], [0.0]], self.grid, axis=1),)  # asleep, awake

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.sleepy_jumper(state[0], self.waking, self.jumping, p, gains)


class SimpleJumper(Learner):
    """Capital that moves between three strategies: betting on small p-values, on large ones, and not betting.

    ``f_e(p) = 1 + e (p - 1/2)`` with e = -1, 0, 1; ``C_e <- (1 - rate) C_e + (rate/3) C``, then ``C_e <- C_e f_e(p)``.
    Robust and cautious: log S cannot grow by more than log 3/2 in a step. O(1) time and memory.

    >>> SimpleJumper().extend([0.01, 0.01]).round(3)
    array([0.   , 0.147])

    Reference: Vovk, Gammerman, Shafer (2022), section 8.1.
    """

    def __init__(self, rate: float = 0.01) -> None:
        self.rate: float = check_interval("rate", rate, 0.0, 1.0, "(0, 1]")
        self._state = (np.full(3, 1.0 / 3.0),)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.simple_jumper(state[0], self.rate, p, gains)


class CompositeJumper(Learner):
    """The average of five simple jumpers with rates 1e-4, 1e-3, 1e-2, 1e-1 and 1, so that there is no rate to choose.

    Equal to ``Blend([SimpleJumper(rate) for rate in rates])``, in one loop. O(1) time and memory.

    >>> CompositeJumper().extend([0.01, 0.01]).round(3)
    array([0.   , 0.117])

    Reference: Vovk et al. (2021), *Retrain or not retrain*.
    """

    def __init__(self) -> None:
        shares = np.full(JUMPERS, 1.0 / JUMPERS)
        self._state = (np.concatenate([logs(shares), np.full(3 * JUMPERS, 1.0 / 3.0)]),)  # log shares, then weights

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.composite_jumper(state[0], p, gains)
