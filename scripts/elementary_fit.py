"""Print the constants of ``src/exchangeable/native/elementary.h``: ``python scripts/elementary_fit.py``.

Each polynomial interpolates its function at Chebyshev points, which gives nearly the best polynomial of its degree.
Everything is computed with 200 bits, and the coefficients are rounded to doubles at the end. Leading coefficients that
are known exactly are left out where the code adds their terms separately.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
from mpmath import mp, mpf

mp.prec = 200
Function = Callable[[mpf], mpf]
NEAR = mpf(10) ** -25  # this close to a point where a quotient is 0/0, its limit is used


def print_fit(name: str, function: Function, ends: tuple[mpf, mpf], terms: int, drop: int = 0) -> None:
    """Print the coefficients, constant term first, without the first ``drop``."""
    rows = [float(each).hex() for each in mpmath.chebyfit(function, list(ends), terms)[::-1][drop:]]
    print(f"static const double {name}[] = {{")
    for k in range(0, len(rows), 4):
        print(f"    {', '.join(rows[k : k + 4])},")
    print("};")


def print_split(name: str, value: mpf, bits: int) -> None:
    """Print a number as the sum of two doubles, of which the first has this many bits."""
    unit = mpf(2) ** (mpmath.floor(mpmath.log(value, 2)) + 1 - bits)
    high = mpmath.nint(value / unit) * unit
    print(f"static const double {name}_HIGH = {float(high).hex()}, {name}_LOW = {float(value - high).hex()};")


def atanh(z: mpf) -> mpf:
    """Return 2 atanh(s)/s as a function of z = s^2."""
    return 2 * mpmath.atanh(mpmath.sqrt(z)) / mpmath.sqrt(z) if z > NEAR else mpf(2)


def sine(z: mpf) -> mpf:
    """Return sin(pi r)/r as a function of z = r^2."""
    return mpmath.sin(mp.pi * mpmath.sqrt(z)) / mpmath.sqrt(z) if z > NEAR else mp.pi


def gamma(u: mpf) -> mpf:
    """Return log Gamma(1 + t) / (t (t - 1)) as a function of u = t - 1/2."""
    t = u + mpf(1) / 2
    if min(abs(t), abs(t - 1)) < NEAR:
        return mp.euler if t < 0.5 else 1 - mp.euler
    return mpmath.loggamma(1 + t) / (t * (t - 1))


def stirling(z: mpf) -> mpf:
    """Return x (log Gamma(x) - (x - 1/2) log x + x - log(2 pi)/2) as a function of z = 1/x^2."""
    if z < NEAR:
        return mpf(1) / 12
    x = 1 / mpmath.sqrt(z)
    return x * (mpmath.loggamma(x) - (x - mpf(1) / 2) * mpmath.log(x) + x - mpmath.log(2 * mp.pi) / 2)


def scaled_erfcx(t: mpf) -> mpf:
    """Return ((1 + 2 x) erfcx(x) - 1) / (1 + t) as a function of t = (x - 3.75)/(x + 3.75)."""
    if min(1 + t, 1 - t) < NEAR:
        return (2 - 2 / mpmath.sqrt(mp.pi)) * mpf("1.875") if t < 0 else 1 / mpmath.sqrt(mp.pi) - mpf(1) / 2
    x = mpf("3.75") * (1 + t) / (1 - t)
    if x < 200:
        value = mpmath.exp(x * x) * mpmath.erfc(x)
    else:  # the asymptotic series
        value = mpmath.nsum(lambda k: mpmath.fac2(2 * k - 1) * (-2 * x * x) ** -k, [0, 20]) / (x * mpmath.sqrt(mp.pi))
    return ((1 + 2 * x) * value - 1) / (1 + t)


if __name__ == "__main__":
    half, sixteenth = mpmath.log(2) / 2, mpf(1) / 16
    root = mpmath.sqrt(2)
    print_split("LN2", mpmath.log(2), 42)
    print(f"INVERSE_LN2 = {float(1 / mpmath.log(2)).hex()}")
    print_fit("EXP", mpmath.exp, (-half, half), 12, drop=2)
    print_fit("LOG", atanh, (mpf(0), ((root - 1) / (root + 1)) ** 2), 8, drop=1)
    print_split("PI", mp.pi, 36)
    print_split("SQUARE", mp.pi**2 / 2, 19)
    print_fit("SIN", sine, (mpf(0), sixteenth), 7, drop=1)
    print_fit("COS", lambda z: mpmath.cos(mp.pi * mpmath.sqrt(z)), (mpf(0), sixteenth), 8, drop=2)
    print_fit("GAMMA", gamma, (-mpf(1) / 2, mpf(1) / 2), 21)
    print_fit("STIRLING", stirling, (mpf(0), mpf(1) / 64), 6)
    print_fit("ERFCX", scaled_erfcx, (mpf(-1), mpf(1)), 23)
