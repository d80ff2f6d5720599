"""The simple mixture of power bets in closed form, for every number of steps.

With ``s = n + 1`` and ``a = -sum ln p_i``,

    S_n = int_0^1 eps^n e^{a (1 - eps)} d eps = e^a gamma(s, a) / a^s .

Three forms, each used where all its terms are positive or tiny, so that nothing large cancels:

- Kummer's series ``S_n = sum_k a^k / (s (s+1) ... (s+k))`` for small s, and wherever it converges fast (a < s/2);
- the uniform expansion of Temme around a = s, with ``eta^2/2 = a/s - 1 - ln(a/s)``,
  ``P(s, a) = erfc(-eta sqrt(s/2))/2 - e^{-s eta^2/2} / sqrt(2 pi s) * sum_k c_k(eta) s^-k``; below a = s the factor
  ``e^{-s eta^2/2}`` cancels against S_n's own, and erfcx takes the place of erfc;
- far above, P = 1 to the last bit, and S_n is elementary.

References: DLMF 8.7, 8.12; Temme (1979); Fedorova et al. (2012), equation (7).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from exchangeable.kernels.compilation import compiled
from exchangeable.kernels.summation import add

LEVELS, TERMS = 9, 26  # powers of 1/s and of eta: below 1e-16 for s >= 100 and a >= s/2
SMALL = 100.0  # below it Kummer's series takes at most a few hundred terms


def expansion(levels: int, terms: int) -> NDArray[np.float64]:
    """Taylor coefficients of c_k(eta), exact rationals rounded once (DLMF 8.12.8 to 8.12.10).

    >>> expansion(2, 2)
    array([[-0.33333333,  0.08333333],
           [-0.00185185, -0.00347222]])
    """
    order = terms + 2 * levels + 1
    mu = [Fraction(0), Fraction(1)]  # a/s - 1 as a power series in eta
    for k in range(2, order + 1):
        products = sum((j * mu[j] * mu[k + 1 - j] for j in range(2, k)), Fraction(0))
        mu.append((mu[k - 1] - products) / (k + 1))
    inverse = [Fraction(1)]  # eta / mu
    for k in range(1, order):
        inverse.append(-sum((mu[j + 1] * inverse[k - j] for j in range(1, k + 1)), Fraction(0)))
    rows = [inverse[1:]]
    for _ in range(1, levels):
        last = rows[-1]
        rows.append([(i + 2) * last[i + 2] - last[1] * inverse[i + 1] for i in range(len(last) - 2)])
    return np.array([[float(value) for value in row[:terms]] for row in rows])


COEFFICIENTS = expansion(LEVELS, TERMS)


@compiled()
def _kummer(s, a):  # type: ignore[no-untyped-def]
    term = 1.0 / s
    total = term
    while term > total * 1e-18:
        s += 1.0
        term *= a / s
        total += term
    return math.log(total)


@compiled()
def _half_eta_squared(mu):  # type: ignore[no-untyped-def]
    """``mu - log1p(mu)`` without cancellation."""
    if abs(mu) > 0.1:
        return mu - math.log1p(mu)
    total = 0.0
    for k in range(18, 1, -1):
        total = 1.0 / k - mu * total
    return mu * mu * total


@compiled()
def _erfcx(z):  # type: ignore[no-untyped-def]
    """``exp(z^2) erfc(z)`` for z >= 0."""
    if z < 10.0:
        return math.exp(z * z) * math.erfc(z)
    total = 1.0
    for k in range(16, 0, -1):
        total = 1.0 - (k - 0.5) / (z * z) * total
    return total / (z * math.sqrt(math.pi))


@compiled()
def _correction(s, eta):  # type: ignore[no-untyped-def]
    """``sum_k c_k(eta) s^-k / sqrt(2 pi s)``, with as many terms as the last bit of a double needs."""
    levels = LEVELS if s < 1e4 else (5 if s < 1e6 else 3)
    terms = TERMS if abs(eta) > 0.1 else 12
    total = 0.0
    for k in range(levels - 1, -1, -1):
        row = 0.0
        for i in range(terms - 1, -1, -1):
            row = row * eta + COEFFICIENTS[k, i]
        total = total / s + row
    return total / math.sqrt(2.0 * math.pi * s)


@compiled()
def _log_stirling(s):  # type: ignore[no-untyped-def]
    """``lnGamma(s) - s ln s + s`` for s >= 100."""
    r = 1.0 / (s * s)
    return 0.5 * math.log(2.0 * math.pi / s) + (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r / 1680.0))) / s


@compiled()
def log_value(n, a, carry):  # type: ignore[no-untyped-def]
    """Log S_n of the simple mixture after n p-values with ``-sum ln p = a + carry``."""
    s = n + 1.0
    if s < SMALL:
        if a < s + 200.0:
            return _kummer(s, a + carry)
        return a + carry + math.lgamma(s) - s * math.log(a)
    if a < 0.5 * s:
        return _kummer(s, a + carry)
    mu = ((a - s) + carry) / s
    half = _half_eta_squared(mu)
    z = math.sqrt(s * half)  # |eta| sqrt(s/2)
    if mu > 0.0:
        value = s * half + _log_stirling(s)
        if z < 6.5:  # beyond, Q < 1e-19
            q = 0.5 * math.erfc(z) + math.exp(-s * half) * _correction(s, math.sqrt(2.0 * half))
            value += math.log1p(-q)
        return value
    return _log_stirling(s) + math.log(0.5 * _erfcx(z) - _correction(s, -math.sqrt(2.0 * half)))


@compiled()
def log_density(state, p):  # type: ignore[no-untyped-def]
    """Log of the betting function at p; ``state = (n, a, carry, log S_n)``."""
    a, carry = add(state[1], state[2], -math.log(p))
    return log_value(state[0] + 1.0, a, carry) - state[3]


@compiled()
def extend(state, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then learn it."""
    for i in range(len(p)):
        a, carry = add(state[1], state[2], -math.log(p[i]))
        value = log_value(state[0] + 1.0, a, carry)
        out[i] = value - state[3]
        state[0] += 1.0
        state[1], state[2], state[3] = a, carry, value


@compiled()
def gamma_log_value(n, a, shape, rate):  # type: ignore[no-untyped-def]
    """Log S_n of the power bets mixed over epsilon ~ Gamma(shape, rate), written so that nothing large cancels.

    ``a + b ln c + lnG(n + b) - lnG(b) - (n + b) ln(a + c)``, with s = n + b and y = (a + c)/s - 1 equal to
    ``b ln c - lnG(b) - c + (lnG(s) - s ln s + s) + s (y - ln(1 + y))``.
    """
    s = n + shape
    stirling = _log_stirling(s) if s >= SMALL else math.lgamma(s) - s * math.log(s) + s
    y = ((a - s) + rate) / s
    half = _half_eta_squared(y) if y > -0.5 else y - math.log((a + rate) / s)  # 1 + y as it is, not as rounded
    return shape * math.log(rate) - math.lgamma(shape) - rate + stirling + s * half


@compiled()
def gamma_extend(state, shape, rate, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then learn it; ``state = (n, a, carry, log S_n)``."""
    for i in range(len(p)):
        a, carry = add(state[1], state[2], -math.log(p[i]))
        value = gamma_log_value(state[0] + 1.0, a + carry, shape, rate)
        out[i] = value - state[3]
        state[0] += 1.0
        state[1], state[2], state[3] = a, carry, value
