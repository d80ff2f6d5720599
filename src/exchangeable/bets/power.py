"""Power bets and mixtures of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.bets.learner import Learner, State
from exchangeable.protocols import Floats
from exchangeable.validation import call_repr, check_interval, check_p, check_p_array


class Power:
    """Bets on small or large p-values with a fixed strength: ``f(p) = epsilon p^(epsilon - 1)``, epsilon in (0, 1e6].

    Epsilon below 1 bets on small p-values, above 1 on large ones; 1 does not bet. O(1) time and memory.

    >>> Power(0.5).extend([0.25, 1.0]).round(3)
    array([ 0.   , -0.693])

    Reference: Vovk, Nouretdinov, Gammerman (2003); Fedorova et al. (2012), equation (5).
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon: float = check_interval("epsilon", epsilon, 0.0, 1e6, "(0, 1e6]")

    def __repr__(self) -> str:
        return call_repr(self)

    @staticmethod
    def best(p: ArrayLike) -> float:
        """Return the epsilon in (0, 1] with the highest final capital on these p-values. It is known only in hindsight.

        ``log S = n ln(epsilon) + (1 - epsilon) a`` with ``a = -sum ln p`` has its maximum at ``n / a``.

        >>> round(Power.best([0.1, 0.2, 0.5]), 4)
        0.6514
        """
        values = check_p_array(p)
        if not len(values):
            raise ValueError("p must hold at least one p-value, got none")
        a = -math.fsum(np.log(values))
        return 1.0 if a <= len(values) else len(values) / a

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p."""
        return self._step(check_p(p))

    def update(self, p: float) -> None:
        """Check p; there is nothing to learn."""
        check_p(p)

    def extend(self, p: ArrayLike) -> Floats:
        """Return the log density at each p."""
        values = check_p_array(p)
        gains = np.empty(len(values))
        native.power(self.epsilon, values, gains)
        return gains

    def _step(self, p: float) -> float:
        return native.power(self.epsilon, p, None)


class SimpleMixture(Learner):
    """The uniform mixture of all power bets, ``S_n = int_0^1 prod_i (eps p_i^(eps - 1)) d eps``, in closed form.

    The classical martingale of the field. Good when p-values concentrate near 0; otherwise it loses about ``ln(n)/2``.
    With ``a = -sum ln p_i`` it is ``e^a gamma(n + 1, a) / a^(n + 1)``, here computed to 1e-13 (relative, in log S) for
    n up to 1e9 and any p-values. O(1) time and memory.

    >>> SimpleMixture().extend([0.01, 0.01]).round(3)
    array([1.493, 1.744])

    Reference: Vovk, Nouretdinov, Gammerman (2003); Fedorova et al. (2012), equation (6).
    """

    def __init__(self) -> None:
        self._state = (np.zeros(4),)  # n, -sum ln p and its carry, log S_n

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.simple_mixture(state[0], p, gains)


class GammaMixture(Learner):
    """The mixture of power bets with epsilon ~ Gamma(shape, rate), in closed form. It bets on large p too.

    With ``a = -sum ln p_i``: ``log S = a + b ln c + lnG(n + b) - lnG(b) - (n + b) ln(a + c)``, b = shape, c = rate,
    computed without cancellation for every n. O(1) time and memory.

    >>> GammaMixture().extend([0.01, 0.01]).round(3)
    array([1.158, 1.775])

    Reference: Vovk and Wang (2021), conjugate mixtures of power bets.
    """

    def __init__(self, shape: float = 1.0, rate: float = 1.0) -> None:
        self.shape: float = check_interval("shape", shape, 0.0, 1e6, "(0, 1e6]")
        self.rate: float = check_interval("rate", rate, 0.0, 1e6, "(0, 1e6]")
        self._state = (np.zeros(3),)  # n, -sum ln p and its carry

    def _run(self, state: State, p: Floats | float, gains: Floats | None) -> float | None:
        return native.gamma_mixture(state[0], self.shape, self.rate, p, gains)
