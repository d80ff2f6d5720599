"""The default bet: a fixed portfolio of other bets."""

from __future__ import annotations

from functools import cache

import numpy as np

from exchangeable import native
from exchangeable.bets.learner import Learner, State, shared_table
from exchangeable.protocols import Floats


class Adaptive(Learner):
    """The default: a fixed portfolio of 21 bets, mixed by `MemoryShare` at three switching rates. No parameters.

    The bets, with the relative weights of their groups (normalised to sum to 1, and divided evenly within a group):

    - 0.9, 0.6, 0.25: three mixtures ``MemoryShare(kernels, s, g)`` with (s, g) = (1e-5, 0), (1e-3, 0.8), (1e-2, 0.8).
      The kernels are `Kernel` of orders 2, 4, 8, 16, 32, 64 x forgetting 1, 0.999, 0.995, 0.99, 0.97, 0.94, 0.88, 0.75,
      the latter with weights 0.4, 0.2 and six times 0.4/6;
    - 0.3: three times ``Copula(fast, serial)``. ``fast`` is the last of these mixtures, ``serial`` is ``Markov(8)``,
      ``Markov(16, 0.97)`` and ``Regression(seasons=False)``;
    - 0.15: ``Markov(16)`` and ``Markov(16, 0.99)``;
    - 0.3: ``GammaMixture()`` and ``Tree(10)``;
    - 0.6: ``PowerChain(walk, share=s, memory=g)`` with (walk, s, g) = (0.002, 1e-4, 0), (0, 0.01, 0.95) and
      (0, 0.03, 0.9);
    - 0.2: ``Beta(0.01, memory=0.95, size=8)``;
    - 0.3: ``Fade()``;
    - 0.5: ``Regression(1.0, noise=1.0, seasons=False)``, ``Regression()``, ``Regression(noise=0.95)`` and
      ``Copula(Regression(), TwoSided(Regression()))``;
    - 0.05: ``Volatility()``;
    - 0.15: ``Season()``.

    0.40 of the capital is in ``MemoryShare(bets, 1e-7, 0.9, weights)`` with these weights, 0.175 in each of the same
    with rates 0.001 and 0.01, and 0.25 stays idle, so log10 S never falls below -0.61. It is equal to the `Blend` of
    these four, but much faster: O(1) time per step, constant memory (91 kB).

    >>> bool(Adaptive().extend(np.full(50, 0.9)).sum() > 20.0)
    True

    Reference: Fedorova et al. (2012), section 5, ask whether a Bayesian approach can be efficient.
    """

    def __init__(self) -> None:
        self._state = (_fresh().copy(),)

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.adaptive(state[0], adaptive_tables(), p, gains)


@cache
def _fresh() -> Floats:
    """Return the state before the first p-value."""
    state = np.empty(native.ADAPTIVE_STATE)
    native.adaptive_fresh(state, adaptive_tables())
    return state


@cache
def adaptive_tables() -> Floats:
    """Return the constants that all instances share: weights and priors, and the densities of grids and cells."""
    return shared_table(native.ADAPTIVE_TABLES, native.adaptive_tables)
