"""The elementary functions of the kernels: against mpmath on many arguments, and on every edge."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from elementary_accuracy import FUNCTIONS, sample
from exchangeable import native
from exchangeable.native import _native

inf, nan = math.inf, math.nan
TINY, SMALLEST, LARGEST = 5e-324, 2.0**-1022, math.nextafter(inf, 0.0)
UNDERFLOW, OVERFLOW = -745.1332191019411, 709.782712893384  # the last arguments whose exp is neither 0 nor infinite
EDGES: dict[str, list[tuple[float, float]]] = {
    "exp": [
        *((0.0, 1.0), (-0.0, 1.0), (TINY, 1.0), (-TINY, 1.0), (inf, inf), (-inf, 0.0), (LARGEST, inf), (-LARGEST, 0.0)),
        *((OVERFLOW, 1.7976931348622732e308), (math.nextafter(OVERFLOW, inf), inf), (1000.0, inf), (1001.0, inf)),
        *((UNDERFLOW, TINY), (math.nextafter(UNDERFLOW, -inf), 0.0), (-1000.0, 0.0), (-1001.0, 0.0), (nan, nan)),
    ],
    "log": [
        *((0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf), (-inf, nan), (nan, nan), (-TINY, nan), (-1.0, nan)),
        *((TINY, -744.4400719213812), (SMALLEST, -708.3964185322641), (LARGEST, 709.782712893384), (-LARGEST, nan)),
    ],
    "log1p": [
        *(
            (0.0, 0.0),
            (-0.0, -0.0),
            (TINY, TINY),
            (-TINY, -TINY),
            (SMALLEST, SMALLEST),
            (1e-17, 1e-17),
            (-1e-17, -1e-17),
        ),
        *((-1.0, -inf), (math.nextafter(-1.0, 0.0), -36.7368005696771), (math.nextafter(-1.0, -2.0), nan), (-2.0, nan)),
        *((LARGEST, 709.782712893384), (inf, inf), (-inf, nan), (-LARGEST, nan), (nan, nan)),
    ],
    "sinpi": [
        *((0.0, 0.0), (-0.0, -0.0), (0.5, 1.0), (-0.5, -1.0), (1.0, 0.0), (-1.0, -0.0), (1.5, -1.0), (2.0, 0.0)),
        *((2.5, 1.0), (7.0, 0.0), (2.0**51 + 0.5, 1.0), (2.0**51 + 1.5, -1.0), (2.0**52 + 1, 0.0), (2.0**53, 0.0)),
        *((LARGEST, 0.0), (-LARGEST, -0.0), (inf, nan), (-inf, nan), (nan, nan), (TINY, 3 * TINY), (-TINY, -3 * TINY)),
    ],
    "cospi": [
        *((0.0, 1.0), (-0.0, 1.0), (0.5, 0.0), (-0.5, 0.0), (1.0, -1.0), (-1.0, -1.0), (1.5, 0.0), (2.0, 1.0)),
        *((2.5, 0.0), (7.0, -1.0), (2.0**51 + 0.5, 0.0), (2.0**52 + 1, -1.0), (2.0**53 - 1, -1.0), (2.0**53, 1.0)),
        *((LARGEST, 1.0), (TINY, 1.0), (inf, nan), (-inf, nan), (nan, nan)),
    ],
    "lgamma": [
        *((0.0, inf), (-0.0, inf), (1.0, 0.0), (2.0, 0.0), (inf, inf), (LARGEST, inf), (nan, nan)),
        *((-TINY, nan), (-1.0, nan), (-inf, nan)),
    ],
    "erfc": [
        *((0.0, 1.0), (-0.0, 1.0), (TINY, 1.0), (inf, 0.0), (LARGEST, 0.0), (28.0, 0.0), (29.0, 0.0), (nan, nan)),
        *((-6.0, 2.0), (-28.0, 2.0), (-LARGEST, 2.0), (-inf, 2.0)),
    ],
    "erfcx": [
        *((0.0, 1.0), (-0.0, 1.0), (TINY, 1.0), (inf, 0.0), (nan, nan), (-TINY, nan), (-1.0, nan), (-inf, nan)),
    ],
    "inverse_fifth_root": [(1.0, 1.0), (32.0, 0.5), (2.0**40, 2.0**-8), (1e300, 1e-60), (nan, nan)],
}


def _one(name: str) -> Callable[[float, None], float]:
    return getattr(native, name)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_against_mpmath(name: str) -> None:
    function = FUNCTIONS[name]
    x = sample(name, 20_000 if name != "erfcx" else 8_000)  # exact erfcx is slow
    error, at = function.worst(x)
    assert error < function.bound, at
    judged = function.errors(np.random.default_rng(2).choice(x, 2_000))  # without the screen of long doubles
    assert judged.max() < function.bound


@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges(name: str) -> None:
    for x, value in EDGES[name]:
        got = _one(name)(x, None)
        assert got == value or (math.isnan(got) and math.isnan(value)), (name, x, got)
        assert math.isnan(value) or math.copysign(1.0, got) == math.copysign(1.0, value), (name, x, got)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_number_and_vectors_have_the_same_bits(name: str) -> None:
    edges = np.array([x for x, _ in EDGES[name]])
    for x in (sample(name, 1_000)[:1_001], edges, edges[:1], edges[:0]):  # whatever remains of the vectors
        out = FUNCTIONS[name](x)
        np.testing.assert_array_equal(out, [_one(name)(at, None) for at in x.tolist()])
        again = x.copy()
        getattr(native, name)(again, again)
        np.testing.assert_array_equal(again, out)


def test_subnormal_results() -> None:
    """They are on the grid of the subnormal numbers, off by less than one step of it."""
    for name, x in {
        "exp": np.linspace(-745.2, -708.3, 2_001),
        "sinpi": np.exp2(np.linspace(-1074, -1020, 2_001)),
        "log1p": -np.exp2(np.linspace(-1074, -1020, 2_001)),
        "erfc": np.linspace(26.5, 27.3, 2_001),
    }.items():
        assert FUNCTIONS[name].errors(x).max() < FUNCTIONS[name].bound, name


def test_functions_do_not_fall() -> None:
    """Where exp and log rise, rounding makes them fall nowhere, at no border of the reductions either."""
    borders = np.arange(-40, 41) * (0.5 * math.log(2))
    for name, centres in {"exp": borders, "log": np.exp(borders)}.items():
        steps = np.arange(-50, 51) * np.spacing(np.abs(centres))[:, None]
        out = FUNCTIONS[name]((centres[:, None] + steps).ravel()).reshape(steps.shape)
        assert (np.diff(out, axis=1) >= 0).all(), name


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="out must be as long as x"):
        native.exp(np.zeros(3), np.zeros(2))


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("nm") is None, reason="needs nm, on Linux")
def test_the_library_calls_no_elementary_function_of_the_system() -> None:
    listed = subprocess.run(
        ["nm", "-D", "-u", str(_native.__file__)], capture_output=True, text=True, check=True
    ).stdout
    called = {line.split()[-1].partition("@")[0].lstrip("_") for line in listed.splitlines()}
    assert "PyModuleDef_Init" in called
    inexact = (
        "exp exp2 exp10 expm1 log log2 log10 log1p pow cbrt hypot sin cos tan sincos asin acos atan atan2 sinh cosh"
    )
    inexact += " tanh asinh acosh atanh lgamma lgamma_r tgamma erf erfc fma"
    names = {
        f"{name}{kind}{ending}" for name in inexact.split() for kind in ("", "f", "l") for ending in ("", "_finite")
    }
    assert not called & names
    assert not [name for name in called if name.startswith(("ZGV", "svml"))]
