"""Each bet against its definition: mpmath at fifty digits, the paper transcribed, and R."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

import contracts
import naive
from exchangeable import Martingale, native
from exchangeable.bets import Plugin, Power, SimpleMixture, SleeperDrifter, SleeperStayer, SleepyJumper

Floats = NDArray[np.float64]
MILLION = 10**6


def uniform(seed: int, n: int) -> Floats:
    return 1.0 - np.random.default_rng(seed).random(n)


# ------------------------------------------------------------------ Power


@pytest.mark.parametrize("epsilon", [1e-300, 0.01, 0.5, 1.0, 3.0, 40.0])
def test_power_is_its_formula(epsilon: float) -> None:
    p = [1.0, 0.999, 0.5, 1e-3, 1e-7]
    assert np.allclose(Power(epsilon).extend(p), naive.power(p, epsilon), rtol=1e-13, atol=1e-13)


def test_power_at_the_smallest_p() -> None:
    for p in (1e-300, 5e-324):
        assert math.isclose(Power(0.5).log_density(p), math.log(0.5) - 0.5 * math.log(p), rel_tol=1e-15)


def test_the_boldest_power_does_not_overflow() -> None:
    for epsilon in (5e-324, 1e6):  # regression: RuntimeWarning with an epsilon of 1e308
        assert np.isfinite(Power(epsilon).extend([5e-324, 1e-300, 0.5, 1.0])).all()


@pytest.mark.parametrize("seed", range(8))
def test_the_best_power_is_the_best(seed: int) -> None:
    p = uniform(seed, 30) ** (1 + seed)
    best = Power.best(p)
    found = minimize_scalar(
        lambda e: -Power(e).extend(p).sum(), bounds=(1e-6, 1.0), method="bounded", options={"xatol": 1e-10}
    )
    assert Power(best).extend(p).sum() >= -found.fun - 1e-9
    assert abs(best - found.x) < 1e-6
    grid = np.linspace(1e-3, 1.0, 2000)
    assert Power(best).extend(p).sum() >= max(Power(e).extend(p).sum() for e in grid) - 1e-9


def test_the_best_power_at_the_edges() -> None:
    assert Power.best([1.0, 1.0, 1.0]) == 1.0
    assert Power.best([0.9] * 10) == 1.0
    assert Power.best([math.exp(-1.0)]) == 1.0
    assert math.isclose(Power.best([1e-300]), -1.0 / math.log(1e-300))
    assert 0.0 < Power.best([5e-324]) < 0.0014
    nothing: list[list[float] | Floats] = [[], np.empty(0)]
    for empty in nothing:
        with pytest.raises(ValueError, match=r"^p must hold at least one"):
            Power.best(empty)
    for bad in ([0.0], [0.5, math.nan], [[0.5]]):
        with pytest.raises(ValueError, match=r"^p must"):
            Power.best(bad)


# ------------------------------------------------------------------ SimpleMixture

STEPS = [0, 1, 2, 3, 4, 5, 50, 98, 99, 100, 101, 1000, 10**4, 10**5, 10**6, 10**9]
LONG_STEPS = (1000, 10**4, 10**5, 10**6)
RATIOS = [0.0, 1e-6, 0.1, 0.45, 0.4999, 0.5001, 0.8, 0.99, 1.0, 1.01, 1.1, 1.5, 3.0, 20.0, 690.0, 745.0]
NEAR_ONE = [-12.0, -6.0, -3.0, -1.0, -0.1, 0.1, 1.0, 3.0, 6.0, 9.0, 10.0, 12.0]


@pytest.mark.parametrize("n", [pytest.param(n, marks=pytest.mark.soak if n in LONG_STEPS else ()) for n in STEPS])
def test_the_mixture_against_fifty_digits(n: int) -> None:
    m = max(n, 1)
    for ratio in sorted({*RATIOS, *(1.0 + k / math.sqrt(m) for k in NEAR_ONE)}):
        if ratio >= 0.0:
            a = float(m * ratio)
            expected = naive.mixture(n, a)
            error = abs(mpmath.mpf(native.simple_mixture_log_value(float(n), a, 0.0)) - expected)
            assert error < 1e-13 * max(abs(expected), 1), (n, ratio)


def test_the_series_and_the_quadrature_of_the_judge_agree() -> None:
    for n, a in [(3, 2.0), (50, 20.0), (50, 50.0), (300, 290.0), (300, 310.0), (400, 1500.0)]:
        with mpmath.workdps(50):
            assert abs(naive.mixture(n, a) - naive.mixture_by_quadrature(n, a)) < 1e-40
    # and with the definition, int_0^1 prod eps p_i^(eps - 1) d eps
    p = [0.3, 0.01, 0.9]
    direct = mpmath.quad(lambda e: mpmath.fprod(e * mpmath.mpf(v) ** (e - 1) for v in p), [0, 0.2, 0.5, 1])
    assert abs(mpmath.log(direct) - naive.mixture(3, naive.minus_log_sum(p))) < 1e-12


def test_the_carry_of_the_sum_is_used() -> None:
    for n, a in [(5, 20.0), (50, 900.0), (200, 30.0), (200, 190.0), (200, 230.0), (10**6, 1.0e6), (10**6, 3.0e6)]:
        left = native.simple_mixture_log_value(float(n), a - a * 2.0**-42, a * 2.0**-42)
        assert math.isclose(left, native.simple_mixture_log_value(float(n), a, 0.0), rel_tol=1e-13, abs_tol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_the_mixture_along_a_path(seed: int) -> None:
    p = uniform(seed, 300) ** (1 + seed)
    values = Martingale(SimpleMixture()).extend(p)
    for n in (1, 2, 3, 10, 99, 100, 101, 299, 300):
        expected = float(naive.mixture(n, naive.minus_log_sum(p[:n].tolist()), 30))
        assert abs(values[n - 1] - expected) < 1e-12 * max(abs(expected), 1.0)


@pytest.mark.parametrize("p", [1e-300, 0.5, 1.0])
def test_a_million_equal_p_values_in_the_mixture(p: float) -> None:
    value = Martingale(SimpleMixture()).extend(np.full(MILLION, p))[-1]
    with mpmath.workdps(50):
        expected = naive.mixture(MILLION, -MILLION * mpmath.log(mpmath.mpf(p)))
        assert abs(value - expected) < 1e-9 * abs(expected)


def test_a_million_p_values_that_are_ones_lose_no_digit() -> None:
    assert math.isclose(Martingale(SimpleMixture()).extend(np.ones(MILLION))[-1], -math.log(MILLION + 1), rel_tol=1e-14)


def coefficients() -> Floats:
    """The table of Temme's expansion that the kernel uses."""
    table = np.empty((native.MIXTURE_LEVELS, native.MIXTURE_TERMS))
    native.mixture_coefficients(table)
    return table


def expansion(levels: int, terms: int) -> list[list[Fraction]]:
    """Taylor coefficients of c_k(eta) as exact rationals (DLMF 8.12.8 to 8.12.10)."""
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
    return [row[:terms] for row in rows]


def test_temme_coefficients_are_exact_rationals_rounded_once() -> None:
    table = coefficients()
    expected = expansion(*table.shape)
    assert table.tolist() == [[float(value) for value in row] for row in expected]


def test_temme_coefficients() -> None:
    # DLMF 8.12.11 to 8.12.13 and the tables of Cephes (igam.h), which were made elsewhere
    known = [
        [
            Fraction(-1, 3),
            Fraction(1, 12),
            Fraction(-2, 135),
            Fraction(1, 864),
            Fraction(1, 2835),
            Fraction(-139, 777600),
        ],
        [Fraction(-1, 540), Fraction(-1, 288), Fraction(1, 378), Fraction(-77, 77760)],
        [Fraction(25, 6048), Fraction(-139, 51840), Fraction(1, 1296)],
        [Fraction(101, 155520), Fraction(571, 2488320)],
    ]
    table = coefficients()
    for row, values in zip(table, known, strict=False):
        assert row[: len(values)].tolist() == [float(value) for value in values]


def test_temme_first_row_is_its_closed_form() -> None:
    row = coefficients()[0]
    for mu in (0.05, 0.3, -0.2, -0.4):
        eta = math.copysign(math.sqrt(2.0 * (mu - math.log1p(mu))), mu)
        series = math.fsum(c * eta**i for i, c in enumerate(row.tolist()))
        assert abs(series - (1.0 / mu - 1.0 / eta)) < 1e-12


# ------------------------------------------------------------------ SleepyJumper


@pytest.mark.parametrize(
    ("waking", "jumping", "grid"), [(0.01, 0.001, 100), (0.3, 0.2, 10), (1.0, 0.5, 3), (0.5, 0.0, 5), (0.2, 1.0, 1)]
)
def test_the_jumper_against_the_recursion(waking: float, jumping: float, grid: int) -> None:
    p = np.concatenate(
        [uniform(1, 60), uniform(2, 40) ** 6, [1.0, 1.0, 1e-300, 5e-324, 1e-300, 1.0, 0.5], uniform(3, 30)]
    )
    expected = naive.jumper(p.tolist(), waking, jumping, grid)
    got = SleepyJumper(waking=waking, jumping=jumping, grid=grid).extend(p)
    assert np.allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_the_jumper_keeps_shares_that_sum_to_one() -> None:
    bet = SleepyJumper()
    bet.extend(uniform(1, 20_000) ** 2)
    assert math.isclose(bet._state[0].sum(), 1.0, rel_tol=1e-14)
    assert (bet._state[0] >= 0.0).all()


@pytest.mark.parametrize("p", [1e-300, 5e-324, 0.5, 1.0])
def test_the_jumper_for_ever(p: float) -> None:
    gains = SleepyJumper().extend(np.full(100_000, p))
    assert np.isfinite(gains).all()
    assert math.isclose(gains[-1], gains[-1000], rel_tol=1e-9)  # it has settled
    settled = naive.jumper([p] * 60)  # the recursion is a contraction: sixty steps suffice for the extremes
    if p < 1e-200:
        assert math.isclose(gains[-1], settled[-1], rel_tol=1e-9)


def test_the_jumper_bets_no_more_than_it_has() -> None:
    """Long without a jump, it has lost its boldest bets; a tiny p must not make its total underflow."""
    p = [1.0] * 700 + [5e-324, 1.0, 5e-324]
    got = SleepyJumper(waking=1.0, jumping=0.0, grid=20).extend(p)
    assert np.allclose(got, naive.jumper(p, 1.0, 0.0, 20), rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------ sleepers

MIXED = np.concatenate([uniform(1, 60), uniform(2, 40) ** 6, [1.0, 1e-300, 5e-324, 1.0, 0.3, 0.5], uniform(3, 30)])


@pytest.mark.parametrize(("waking", "grid"), [(0.001, 10), (0.3, 4), (0.999, 2), (1e-100, 5)])
def test_the_stayer_against_the_recursion(waking: float, grid: int) -> None:
    got = SleeperStayer(waking=waking, grid=grid).extend(MIXED)
    assert np.allclose(got, naive.sleeper_stayer(MIXED.tolist(), waking, grid), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("waking", "every", "grid"), [(0.1, 20, 10), (0.3, 7, 4), (0.999, 1, 2), (1e-100, 30, 5), (0.1, 1000, 10)]
)
def test_the_drifter_against_the_recursion(waking: float, every: int, grid: int) -> None:
    got = SleeperDrifter(waking=waking, every=every, grid=grid).extend(MIXED)
    assert np.allclose(got, naive.sleeper_drifter(MIXED.tolist(), waking, every, grid), rtol=1e-12, atol=1e-13)


def test_a_sleeper_forgets_no_amount() -> None:
    """The amounts of the pairs differ by a factor of 10^700, and then the smallest overtakes."""
    p = np.repeat([0.05, 0.95, 0.05], [400, 900, 200])
    stayer = naive.sleeper_stayer(p.tolist(), 0.01, 4)
    assert max(np.cumsum(stayer)) > 400.0
    assert np.allclose(SleeperStayer(waking=0.01, grid=4).extend(p), stayer, rtol=1e-12, atol=1e-13)
    drifter = naive.sleeper_drifter(p.tolist(), 0.1, 200, 4)
    assert np.allclose(SleeperDrifter(every=200, grid=4).extend(p), drifter, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("p", [5e-324, 0.5, 1.0])
def test_the_sleepers_for_ever(p: float) -> None:
    gains = SleeperStayer().extend(np.full(100_000, p))
    assert math.isclose(gains[-1], math.log(9.0 if p != 0.5 else 1.8), rel_tol=1e-9)  # all capital is in one pair
    assert np.isfinite(SleeperDrifter().extend(np.full(5_000, p))).all()


def test_the_sleepers_of_crepes() -> None:
    """Its Stayer is ours. Its Drifter bets as if M - 1 p-values had come before, and once more with a' = a."""
    crepes = pytest.importorskip("crepes.martingales")
    p = uniform(4, 3000)
    p[1000:] **= 1.5
    theirs = np.log(crepes.SleeperStayer().apply(p))
    assert np.allclose(np.cumsum(SleeperStayer().extend(p)), theirs, rtol=0.0, atol=1e-10)
    drifted = np.log(crepes.SleeperDrifter(M=20).apply(p))[-1]
    shifted = np.concatenate([np.ones(19), p])
    assert abs(SleeperDrifter(every=20).extend(shifted).sum() - drifted) < 0.02 * drifted


# ------------------------------------------------------------------ Plugin


def u_shaped(seed: int, n: int) -> Floats:
    return np.clip(np.random.default_rng(seed).beta(0.2, 0.2, n), 5e-324, 1.0)


def streams() -> dict[str, tuple[Floats, float]]:
    """p-values and the tolerance in log S, at every step."""
    rng = np.random.default_rng(7)
    changed = np.concatenate([uniform(8, 2000), uniform(9, 2000) ** 4])
    return {
        "uniform": (uniform(1, 10_000), 1e-9),
        "beta(.5, 1)": (rng.beta(0.5, 1.0, 4000), 1e-9),
        "beta(5, 1)": (rng.beta(5.0, 1.0, 4000), 1e-9),
        "constant": (np.full(4000, 0.3), 1e-9),
        "ones": (np.ones(1500), 1e-9),
        "all but zero": (np.full(1500, 1e-300), 1e-9),
        "a change": (changed, 1e-9),
        "a change from an atom": (np.concatenate([np.full(1000, 0.9), uniform(3, 1500)]), 1e-9),
        "two atoms": (np.where(uniform(4, 2000) < 0.5, 0.25, 0.75), 1e-9),
        "twelve values": (np.ceil(12 * uniform(5, 2000)) / 12, 1e-9),
        "nearly a grid": (rng.permutation(np.arange(1, 2001) / 2000), 1e-9),
        "beta(.2, .2)": (u_shaped(2, 10_000), 1e-3),
        "zeros and ones": (np.where(uniform(6, 2000) < 0.5, 1e-300, 1.0), 1e-9),
    }


@pytest.mark.parametrize("name", streams())
def test_the_plugin_against_direct_sums(name: str) -> None:
    p, tolerance = streams()[name]
    expected = np.cumsum(naive.plugin(p))
    assert np.abs(Martingale(Plugin()).extend(p) - expected).max() < tolerance


def test_the_quartile_branch_is_taken_by_u_shapes() -> None:
    x = naive.extended(u_shaped(2, 2000))
    assert (np.percentile(x, 75) - np.percentile(x, 25)) / 1.34 < x.std(ddof=1)


def test_the_judge_of_long_streams_is_the_judge() -> None:
    for p in (uniform(1, 80), u_shaped(1, 80), np.full(20, 0.5), np.array([1e-300, 1.0, 5e-324, 0.5])):
        expected = [naive.plugin_log_density(p[:i], value) for i, value in enumerate(p.tolist())]
        assert np.allclose(naive.plugin(p), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 9, 30, 200, 1500, 2500])
@pytest.mark.parametrize("shape", ["uniform", "u", "small", "atom"])
def test_the_plugin_density_everywhere(shape: str, n: int) -> None:
    history = {"uniform": uniform(n, n), "u": u_shaped(n, n), "small": uniform(n, n) ** 9, "atom": np.full(n, 0.75)}[
        shape
    ]
    bet = Plugin()
    bet.extend(history)
    for p in (5e-324, 1e-300, 1e-5, 0.01, 0.2, 0.5, 0.7499, 0.75, 0.9, math.nextafter(1.0, 0.0), 1.0):
        expected = naive.plugin_log_density(history, p)
        assert abs(bet.log_density(p) - expected) < (1e-4 if shape == "u" else 1e-9) * max(1.0, abs(expected)), p


@pytest.mark.parametrize(
    "history", [[1e-300], [5e-324], [1.0], [1.0, 5e-324], [5e-324] * 3, [1.0] * 7, [1e-300, 1.0, 1e-300]]
)
def test_the_plugin_at_the_ends(history: list[float]) -> None:
    bet = Plugin()
    bet.extend(history)
    for p in (5e-324, 1e-300, 0.5, 1.0):
        assert math.isclose(bet.log_density(p), naive.plugin_log_density(history, p), rel_tol=1e-9, abs_tol=1e-10)


@pytest.mark.parametrize("atom", [1e-300, 0.125, 0.3, 0.5, 1.0])
def test_a_million_equal_p_values_in_the_plugin(atom: float) -> None:
    bet = Plugin()
    gains = bet.extend(np.full(MILLION, atom))
    for n in (3, 10, 100, 1234, 4299, 4300, 4301, 50_000, MILLION - 1):
        assert math.isclose(gains[n], naive.equal_log_density(n, atom, atom), rel_tol=1e-9)
    for p in (1e-300, 0.01, 0.1, 0.49, 0.5, 0.9, 1.0):  # far from the atom the density underflows, its log does not
        expected = naive.equal_log_density(MILLION, atom, p)
        assert math.isclose(bet.log_density(p), expected, rel_tol=1e-12, abs_tol=1e-9)


def test_far_from_an_atom_the_loss_is_finite() -> None:
    bet = Plugin()
    bet.extend(np.full(MILLION, 0.5))
    h = naive.equal_bandwidth(MILLION, 0.5)
    assert math.isclose(bet.log_density(1.0), -0.5 * (0.5 / h) ** 2, rel_tol=0.05)


def test_the_plugin_needs_constant_memory() -> None:
    bet = Plugin()
    before = sum(array.nbytes for array in bet._state)
    bet.extend(uniform(1, 20_000))
    assert sum(array.nbytes for array in bet._state) == before < 4_000_000


def test_the_nodes_of_the_plugin() -> None:
    """Chebyshev nodes and their barycentric weights, which stand in C as numbers."""
    points, weights = np.empty(native.PLUGIN_NODES), np.empty(native.PLUGIN_NODES)
    native.plugin_tables(points, weights)
    with mpmath.workdps(50):
        angles = [(2 * j + 1) * mpmath.pi / (2 * len(points)) for j in range(len(points))]
        assert max(abs(x - (1 - mpmath.cos(a)) / 2) for x, a in zip(points, angles, strict=True)) < 2e-16
        assert max(abs(w - (-1) ** j * mpmath.sin(angles[j])) for j, w in enumerate(weights)) < 2e-16


STATE = ("head", "nodes", "waves", "cells", "cursors", "grid", "blocks")


@pytest.mark.parametrize(
    ("array", "at", "value", "message"),
    [
        ("head", native.PLUGIN_N, -1.0, "number of p-values"),
        ("head", native.PLUGIN_N, math.nan, "number of p-values"),
        ("head", native.PLUGIN_ACTIVE, 17.0, "number of cosine sums"),
        ("head", native.PLUGIN_ACTIVE, 528.0, "number of cosine sums"),
        ("head", native.PLUGIN_ACTIVE, math.nan, "number of cosine sums"),
        ("cursors", (0, 0), -1.0, "cursors must lie in the grid"),
        ("cursors", (1, 0), float(native.PLUGIN_GRID_SIZE), "cursors must lie in the grid"),
        ("cursors", (1, 0), math.nan, "cursors must lie in the grid"),
    ],
)
def test_the_plugin_stays_within_its_arrays(array: str, at: int, value: float, message: str) -> None:
    """Even if a state was forged, and nobody looked at it."""
    bet = Plugin()
    bet.extend(uniform(1, 100))
    bet._state[STATE.index(array)][at] = value
    for call in (bet.log_density, bet.update):
        with pytest.raises(ValueError, match=message):
            call(0.5)


@pytest.mark.parametrize("array", STATE)
@pytest.mark.parametrize("value", [0.0, -1.0, -1e-300, 1e300, -1e300, math.inf, math.nan])
def test_the_plugin_ends_whatever_its_state_holds(array: str, value: float) -> None:
    """The numbers are worthless then, but no loop runs forever or leaves its array."""
    bet = Plugin()
    bet.extend(u_shaped(1, 500))
    numbers = bet._state[STATE.index(array)]
    kept = bet._state[0][[native.PLUGIN_N, native.PLUGIN_ACTIVE]], bet._state[4][:, 0].copy()
    numbers[...] = value
    bet._state[0][[native.PLUGIN_N, native.PLUGIN_ACTIVE]], bet._state[4][:, 0] = kept
    assert isinstance(bet.log_density(0.3), float)
    bet.extend(u_shaped(2, 500))


@pytest.mark.parametrize("i", range(len(STATE)))
def test_the_plugin_takes_no_array_of_another_size(i: int) -> None:
    bet = Plugin()
    vars(bet)["_state"] = (*bet._state[:i], np.zeros(bet._state[i].size - 1), *bet._state[i + 1 :])
    with pytest.raises(ValueError, match="must have their sizes"):
        bet.log_density(0.5)


def test_the_plugin_takes_p_values_of_their_range_only() -> None:
    with pytest.raises(ValueError, match="p must lie in"):
        native.plugin_extend(*Plugin()._state, np.array([0.5, math.nan]), np.empty(2))
    with pytest.raises(ValueError, match="out must be as long"):
        native.plugin_extend(*Plugin()._state, np.array([0.5]), np.empty(2))


# ------------------------------------------------------------------ R


def oracle() -> dict[str, dict[str, list[tuple[float, float]]]]:
    """tests/data/r_density.csv: sample -> what -> [(at, value)]."""
    table: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    with (Path(__file__).parent / "data" / "r_density.csv").open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            table[row["sample"]][row["what"]].append((float(row["at"]), float(row["value"])))
    return table


ORACLE = oracle()
each_sample = pytest.mark.parametrize("sample", ORACLE)


def _p(sample: str) -> Sequence[float]:
    return [value for _, value in ORACLE[sample]["p"]]


@each_sample
def test_the_judge_against_r(sample: str) -> None:
    x = naive.extended(_p(sample))
    assert math.isclose(naive.nrd0(x), ORACLE[sample]["bw"][0][1], rel_tol=1e-13)
    for at, value in ORACLE[sample]["kernel"]:
        assert math.isclose(naive.plugin_log_density(_p(sample), at), math.log(value), rel_tol=1e-11, abs_tol=1e-11)


@each_sample
def test_the_plugin_against_r(sample: str) -> None:
    bet = Plugin()
    bet.extend(_p(sample))
    h = float(bet._state[0][native.PLUGIN_WIDTH])
    by_quartiles = bool(ORACLE[sample]["iqr"][0][1])
    assert math.isclose(h, ORACLE[sample]["bw"][0][1], rel_tol=1e-5 if by_quartiles else 1e-13)
    for at, value in ORACLE[sample]["kernel"]:
        assert math.isclose(
            bet.log_density(at), math.log(value), rel_tol=1e-10, abs_tol=1e-4 if by_quartiles else 1e-10
        )


@each_sample
def test_the_plugin_against_rs_own_density(sample: str) -> None:
    p, bet = _p(sample), Plugin()
    bet.extend(p)
    x = naive.extended(p)
    h = naive.nrd0(x)
    mass = np.mean([0.5 * math.erfc((v - 1.0) / h / 2**0.5) - 0.5 * math.erfc(v / h / 2**0.5) for v in x.tolist()])
    for at, value in ORACLE[sample]["density"]:
        assert math.isclose(math.exp(bet.log_density(at)) * mass, value, abs_tol=5e-4)


def test_r_was_asked_about_both_branches() -> None:
    assert {ORACLE[sample]["iqr"][0][1] for sample in ORACLE} == {0.0, 1.0}
    assert {len(_p(sample)) for sample in ORACLE} == {1, 2, 3, 5, 10, 50, 500}


# ------------------------------------------------------------------ all together


def test_bets_place_the_first_bet_without_knowledge() -> None:
    assert Plugin().log_density(0.3) == 0.0
    assert math.isclose(SimpleMixture().log_density(1.0), -math.log(2.0))
    assert contracts.same_bits(Plugin().extend([0.3]), [0.0])
