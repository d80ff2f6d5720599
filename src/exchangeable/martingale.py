"""The martingale: the capital of a bet on a stream of p-values."""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
from numpy.typing import ArrayLike

from exchangeable import native
from exchangeable.bets.learner import step
from exchangeable.protocols import Bet, Floats, has_role
from exchangeable.validation import check_p, check_p_array

DIGITS = 12  # significant digits of an amount: the logarithm does not determine more
LN10 = math.log(10.0)
MAX_EXPONENT = 700.0  # exp of it, and of its negative, are normal float64 numbers


class Martingale:
    """The capital of a gambler who bets on every p-value, stored as its logarithm.

        log S_n = sum_{i<=n} log f_i(p_i),   f_i a density that depends on p_1 .. p_{i-1} only

    On exchangeable data S_n is a martingale with S_0 = 1. Sums are compensated, so log S_n does not drift however
    long the stream; bankruptcy is ``-inf`` and is final. Time and memory are those of the bet.

    >>> from exchangeable.bets import Power
    >>> martingale = Martingale(Power(0.5))
    >>> martingale.extend([0.25, 1.0, 0.01]).round(3)
    array([ 0.   , -0.693,  0.916])
    >>> round(martingale.update(0.04), 3)
    1.833

    Reference: Fedorova et al. (2012), section 3, equation (4).
    """

    def __init__(self, bet: Bet) -> None:
        if not has_role(bet, Bet):
            raise ValueError(f"bet must have log_density, update and extend, got {bet!r}")
        self.bet = bet
        self.n: int = 0
        self._sum = np.zeros(2)

    @property
    def log_value(self) -> float:
        """The current log S_n; 0 before the first p-value."""
        total, carry = self._sum.tolist()
        return float(total + carry)

    def update(self, p: float) -> float:
        """Bet on one p-value, learn it, and return log S_n."""
        value = native.accumulate(self._sum, step(self.bet, check_p(p)), None)
        self.n += 1
        return value

    def extend(self, p: ArrayLike) -> Floats:
        """Bet on many p-values, one after the other, and return log S after each."""
        gains = np.ascontiguousarray(self.bet.extend(check_p_array(p)), np.float64)
        values = np.empty(len(gains))
        native.accumulate(self._sum, gains, values)
        self.n += len(gains)
        return values


def amount(log: float) -> float | Decimal:
    """Return the number with this natural logarithm: a float if float64 can hold it, otherwise a `Decimal`.

    >>> amount(0.0), amount(-math.inf), amount(3000.0)
    (1.0, 0.0, Decimal('7.64620098905E+1302'))
    """
    if -MAX_EXPONENT <= log <= MAX_EXPONENT or log == -math.inf:
        return math.exp(log)
    wide = Context(prec=DIGITS + 15, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return Context(prec=DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN).plus(wide.exp(Decimal(log)))
