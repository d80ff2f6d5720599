"""The bet on a change whose traces fade as the pool of ranks fills."""

from __future__ import annotations

from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats


class Fade(Learner):
    """Bets that the values changed their law at some time, and knows how rank p-values dilute afterwards.

    If a law P1 of the values replaces P0 after tau of n examples, the pool of ranks is w P0 + (1 - w) P1 with
    w = tau/n. With v the mass above a value under P0, G(v) that under P1, and g = G',

        p = w v + (1 - w) G(v)   has the density   g(v) / (w + (1 - w) g(v)) .

    48 changes of N(0, 1), at six levels of w: shifts of 0.12 x 1.27^j, j < 14, up or down; scales of exp(+-0.1) to
    exp(+-1); outliers in 1.5 or 6 % of the values, on both sides or on one. Before step n each change begins with
    probability h = min(0.3/n, 0.5) in all, and ends with h; shares move to the next level as w falls. Densities are
    constant on 234 cells of p, four per octave down to 2^-30 at both ends, with exact masses. O(1) time and memory.

    >>> Fade().extend([0.3, 0.04, 0.02, 0.03, 0.01]).round(3)
    array([-0.039,  0.081,  0.447,  0.87 ,  1.863])

    Reference: Bayes' rule for a hidden change; Adams and MacKay (2007) for the recursion over its time.
    """

    def __init__(self) -> None:
        state = np.empty(native.FADE_STATE)
        native.fade_fresh(state)
        self._state = (state,)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.fade(state[0], _tables(), p, gains)


@cache
def _tables() -> Floats:
    """Return the constants that all instances share: the prior, the rates, and the densities of all cells."""
    tables = np.empty(native.FADE_TABLES)
    native.fade_tables(tables)
    tables.flags.writeable = False
    return tables
