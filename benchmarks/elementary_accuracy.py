"""Errors of the elementary functions (src/exchangeable/native/elementary.h) against mpmath, in units in the last place.

    python benchmarks/elementary_accuracy.py 3000000

prints the largest error of each function on this many arguments, and where. Where long doubles have 64 bits, they find
the thousand worst arguments, and mpmath (200 bits) judges those; the other functions are judged by mpmath alone, on a
tenth of the arguments. tests/test_elementary.py does the same on fewer arguments, and bounds the errors.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf
from numpy.typing import NDArray

from exchangeable import native

Floats = NDArray[np.float64]
Long = NDArray[np.longdouble]
LONG = np.finfo(np.longdouble).nmant == 63
WORST = 1000  # arguments that mpmath judges, of those that long doubles have seen
mp.prec = 200


class Function(NamedTuple):
    """A function: what computes it, what is exact, what is nearly exact and fast, and on which arguments."""

    native: Callable[[Floats, Floats], None]
    exact: Callable[[mpf], mpf]
    long: Callable[[Long], Long] | None
    arguments: Callable[[int, np.random.Generator], Floats]
    bound: float  # of the error, in units in the last place

    def __call__(self, x: Floats) -> Floats:
        """What our function says."""
        out = np.empty_like(x)
        self.native(x, out)
        return out

    def errors(self, x: Floats) -> Floats:
        """Of each argument, by mpmath."""
        return np.array([ulps(got, self.exact(mpf(at))) for at, got in zip(x.tolist(), self(x).tolist(), strict=True)])

    def screened(self, x: Floats) -> Floats:
        """Of each argument, by long doubles (results that are not normal count nothing)."""
        assert self.long is not None
        with np.errstate(all="ignore"):
            exact, got = self.long(x.astype(np.longdouble)), self(x)
            size = np.abs(exact).astype(np.float64)
            error = np.abs(got.astype(np.longdouble) - exact).astype(np.float64) / np.spacing(size)
        return np.where((size > 2.0**-1022) & (size < 2.0**1023), error, 0.0)

    def worst(self, x: Floats) -> tuple[float, float]:
        """The largest error, and its argument."""
        if self.long is not None and LONG and len(x) > WORST:
            x = x[np.argpartition(self.screened(x), -WORST)[-WORST:]]
        errors = self.errors(x)
        return float(errors.max()), float(x[errors.argmax()])


def ulps(got: float, exact: mpf) -> float:
    """The error in units in the last place of the exact value as a double."""
    rounded = float(exact)
    if not math.isfinite(rounded) or not math.isfinite(got):
        return 0.0 if got == rounded else math.inf
    return float(abs(got - exact) / mpf(math.ulp(rounded)))


# ------------------------------------------------------------------ exact values


def _lgamma(x: mpf) -> mpf:
    return mpmath.loggamma(x)


def _erfc(x: mpf) -> mpf:
    return mpmath.erfc(x)


def _erfcx(x: mpf) -> mpf:
    """By the asymptotic series where exp(x^2) is too large; its terms fall below 2^-200 there."""
    if x < 30:
        return mpmath.exp(x * x) * mpmath.erfc(x)
    total, term = mpf(0), mpf(1)
    for k in range(60):
        total, term = total + term, -term * (2 * k + 1) / (2 * x * x)
    return total / (x * mpmath.sqrt(mp.pi))


def _long_sinpi(x: Long, cosine: int = 0) -> Long:
    x = x - 2.0 * np.rint(0.5 * x)
    n = np.rint(2.0 * x)
    angle = np.longdouble("3.14159265358979323846264338327950288") * (x - 0.5 * n)
    n = (n + cosine) % 4
    value: Long = np.where(n % 2 == 1, np.cos(angle), np.sin(angle)) * np.where(n >= 2, -1.0, 1.0)
    return value


# ------------------------------------------------------------------ arguments


def _signs(n: int, rng: np.random.Generator) -> Floats:
    return rng.choice([-1.0, 1.0], n)


def _scales(n: int, rng: np.random.Generator, low: float, high: float) -> Floats:
    """Positive numbers whose binary exponents are uniform between these two."""
    return np.exp2(rng.uniform(low, high, n))


def _around(centres: Floats, n: int, rng: np.random.Generator) -> Floats:
    """The numbers next to some of these, and others close to them."""
    chosen = rng.choice(centres, n)
    moved = chosen * (1.0 + _signs(n, rng) * _scales(n, rng, -52, -10))
    return np.where(rng.random(n) < 0.5, moved, np.nextafter(chosen, _signs(n, rng) * math.inf))


def _of_exp(n: int, rng: np.random.Generator) -> Floats:
    k = np.arange(-2150, 2049) / 2.0
    borders = k[(k * math.log(2) > -746) & (k * math.log(2) < 710)] * math.log(2)
    parts = [rng.uniform(-745.5, 709.9, n), rng.uniform(-1, 1, n), rng.uniform(-745.5, -708, n // 8)]
    return np.concatenate([*parts, _signs(n, rng) * _scales(n, rng, -70, 9), _around(borders, n, rng)])


def _of_log(n: int, rng: np.random.Generator) -> Floats:
    borders = np.concatenate([[1.0], np.exp2(np.arange(-1021.5, 1023.5, 0.5))])
    anywhere = rng.integers(1, 0x7FF0 << 48, n).view(np.float64)
    near_one = 1.0 + _signs(n, rng) * _scales(n, rng, -53, -1)
    return np.concatenate([anywhere, near_one, rng.uniform(0.5, 2.0, n), _around(borders, n, rng)])


def _of_log1p(n: int, rng: np.random.Generator) -> Floats:
    borders = np.exp2(np.arange(-53.5, 60.0, 0.5)) - 1.0
    parts = [
        rng.uniform(-1, 1, n),
        _signs(n, rng) * _scales(n, rng, -1074, -1),
        _signs(n, rng) * _scales(n, rng, -60, 0),
    ]
    large = [_scales(n, rng, 0, 1024), rng.uniform(0, 8, n), _scales(n, rng, -53, 0) - 1.0]
    x = np.concatenate([*parts, *large, _around(borders[borders != 0.0], n, rng)])
    return x[x > -1.0]


def _of_turns(n: int, rng: np.random.Generator) -> Floats:
    quarters = np.concatenate([np.arange(1, 65) / 4.0, np.exp2(np.arange(45, 55)) + 0.75])
    parts = [rng.uniform(-1, 1, n), rng.uniform(0, 0.25, n), _signs(n, rng) * _scales(n, rng, -1074, -2)]
    return np.concatenate(
        [*parts, _signs(n, rng) * _scales(n, rng, -2, 60), _signs(n, rng) * _around(quarters, n, rng)]
    )


def _of_lgamma(n: int, rng: np.random.Generator) -> Floats:
    borders = np.arange(1.0, 10.0)
    parts = [rng.uniform(0, 3, n), rng.uniform(0, 12, n), _scales(n, rng, -1022, 996), _scales(n, rng, -6, 20)]
    return np.concatenate([*parts, _around(borders, n, rng)])


def _of_erfcx(n: int, rng: np.random.Generator) -> Floats:
    return np.concatenate(
        [rng.uniform(0, 4, n), rng.uniform(0, 40, n), _scales(n, rng, -60, 0), _scales(n, rng, 2, 996)]
    )


def _of_erfc(n: int, rng: np.random.Generator) -> Floats:
    return np.concatenate([rng.uniform(-6, 6, n), rng.uniform(0, 27.5, n), _signs(n, rng) * _scales(n, rng, -60, 0)])


def _of_root(n: int, rng: np.random.Generator) -> Floats:
    return np.concatenate([rng.uniform(1, 100, n), np.arange(1.0, n + 1.0), _scales(n, rng, 0, 80)])


FUNCTIONS: dict[str, Function] = {
    "exp": Function(native.exp, mpmath.exp, np.exp, _of_exp, 0.9),
    "log": Function(native.log, mpmath.log, np.log, _of_log, 0.9),
    "log1p": Function(native.log1p, mpmath.log1p, np.log1p, _of_log1p, 0.9),
    "sinpi": Function(native.sinpi, mpmath.sinpi, _long_sinpi, _of_turns, 0.9),
    "cospi": Function(native.cospi, mpmath.cospi, lambda x: _long_sinpi(x, 1), _of_turns, 0.9),
    "lgamma": Function(native.lgamma, _lgamma, None, _of_lgamma, 45.0),
    "erfc": Function(native.erfc, _erfc, None, _of_erfc, 45.0),
    "erfcx": Function(native.erfcx, _erfcx, None, _of_erfcx, 45.0),
    "inverse_fifth_root": Function(
        native.inverse_fifth_root,
        lambda x: x ** (-mpf(1) / 5),
        lambda x: np.power(x, np.longdouble(-1) / 5),
        _of_root,
        4.0,
    ),
}


def sample(name: str, size: int, seed: int = 0) -> Floats:
    """About this many arguments of a function."""
    draw = FUNCTIONS[name].arguments
    parts = len(draw(64, np.random.default_rng(seed))) / 64
    return draw(max(int(size / parts), 1), np.random.default_rng(seed))


def main() -> None:
    """Print a line for each function."""
    size = int(sys.argv[1])
    for name, function in FUNCTIONS.items():
        x = sample(name, size if function.long is not None and LONG else size // 10, seed=1)
        error, at = function.worst(x)
        print(f"{name:20} {error:7.3f} ulp at {at!r:25} of {len(x):,} arguments", flush=True)


if __name__ == "__main__":
    main()
