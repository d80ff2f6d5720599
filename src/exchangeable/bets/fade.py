"""The bet on a change whose traces fade as the pool of ranks fills."""

from __future__ import annotations

from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, shared_table
from exchangeable.protocols import Floats


class Fade(Learner):
    """Bets that the distribution of the values changed once, and models how the change fades from rank p-values.

    If the distribution P1 of the values replaces P0 after tau of n examples, the values are ranked in a pool that
    follows w P0 + (1 - w) P1 with w = tau/n. For a value from P1, with v the mass of P0 above it, G(v) that of P1, and
    g = G', the p-value

        p = w v + (1 - w) G(v)   has the density   g(v) / (w + (1 - w) g(v)) .

    Ranks do not depend on the scale, so P0 is N(0, 1). The bet mixes 48 alternatives P1, each at six levels of w from 1
    to 0.25: shifts by 0.12 x 1.27^j, j < 14, up or down; scales from exp(+-0.1) to exp(+-1); outliers in 1.5 or 6 % of
    the values, on one side or both. If there is no change, one begins before step n with probability h = min(0.3/n,
    0.5), of a kind drawn from a fixed prior; a change ends with probability h. Shares move on to the next level as w
    falls. Densities are constant on 234 cells of p, four per octave down to 2^-30 at both ends, with exact masses. O(1)
    time and memory.

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
    return shared_table(native.FADE_TABLES, native.fade_tables)
