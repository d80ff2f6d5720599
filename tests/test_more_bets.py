"""The bets beyond the paper, against their definitions."""

from __future__ import annotations

import copy
import math

import mpmath
import numpy as np
import pytest

import naive
from contracts import adaptive_parts
from exchangeable import Martingale, bets, native
from exchangeable.bets import adaptive
from exchangeable.bets.beta import grid
from exchangeable.bets.kernel import weights
from exchangeable.protocols import Bet

RNG = np.random.default_rng(11)
P = RNG.beta(0.7, 1.2, 300)
P[::50] = 1.0
P[7] = 1e-300


def test_simple_jumper() -> None:
    np.testing.assert_allclose(bets.SimpleJumper(0.05).extend(P), naive.simple_jumper(P, 0.05), rtol=0, atol=1e-14)


def test_composite_jumper_is_the_average() -> None:
    capital = [np.cumsum(naive.simple_jumper(P, rate)) for rate in (1e-4, 1e-3, 1e-2, 1e-1, 1.0)]
    expected = np.log(np.mean(np.exp(capital), axis=0))
    np.testing.assert_allclose(Martingale(bets.CompositeJumper()).extend(P), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n", [1, 5, 98, 99, 100, 10_000, 10**6, 10**9])
@pytest.mark.parametrize("ratio", [0.0, 1e-6, 0.5, 0.999, 1.0, 1.001, 3.0, 690.0])
@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (0.5, 3.0)])
def test_gamma_mixture_against_50_digits(n: int, ratio: float, shape: float, rate: float) -> None:
    a = ratio * n
    expected = naive.gamma_mixture(n, a, shape, rate)
    ours = native.gamma_mixture_log_value(float(n), a, shape, rate)
    assert abs(ours - expected) < 1e-12 * max(1.0, abs(expected))


def test_gamma_mixture_path() -> None:
    a = [float(naive.minus_log_sum(P[: i + 1])) for i in range(len(P))]
    expected = [float(naive.gamma_mixture(i + 1, a[i], 2.0, 0.5)) for i in range(len(P))]
    np.testing.assert_allclose(Martingale(bets.GammaMixture(2.0, 0.5)).extend(P), expected, rtol=1e-12, atol=1e-12)


def test_histogram() -> None:
    counts = [0] * 7
    for value, gain in zip(P, bets.Histogram(7).extend(P), strict=True):
        b = min(int(value * 7), 6)
        assert gain == pytest.approx(math.log(7 * (counts[b] + 0.5) / (sum(counts) + 3.5)), abs=1e-14)
        counts[b] += 1


@pytest.mark.parametrize("prior", ["rough", "smooth"])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_tree_is_the_recursion(depth: int, prior: str) -> None:
    path = Martingale(bets.Tree(depth, prior=prior)).extend(P)
    for n in (1, 2, 17, 150, 300):
        assert path[n - 1] == pytest.approx(naive.tree(P[:n].tolist(), depth, prior == "smooth"), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize(("order", "forgetting"), [(2, 1.0), (5, 0.9), (33, 0.99)])
def test_kernel_and_markov_are_direct_sums(order: int, forgetting: float) -> None:
    p = P.tolist()
    np.testing.assert_allclose(bets.Kernel(order, forgetting).extend(p), naive.kernel(p, order, forgetting), atol=1e-10)
    np.testing.assert_allclose(bets.Markov(order, forgetting).extend(p), naive.markov(p, order, forgetting), atol=1e-9)


def family() -> list[Bet]:
    return [bets.Kernel(6, 0.95), bets.SimpleMixture(), bets.Power(0.4), bets.Idle()]


def test_blend_is_the_weighted_capital() -> None:
    weights = [0.4, 0.3, 0.2, 0.1]
    paths = [Martingale(bet).extend(P) for bet in family()]
    with mpmath.workdps(40):
        expected = [
            float(mpmath.log(sum(w * mpmath.exp(path[i]) for w, path in zip(weights, paths, strict=True))))
            for i in range(len(P))
        ]
    np.testing.assert_allclose(Martingale(bets.Blend(family(), weights)).extend(P), expected, rtol=0, atol=1e-10)


def test_switching_is_fixed_share() -> None:
    gains = np.column_stack([bet.extend(P) for bet in family()])
    with mpmath.workdps(40):
        shares = [mpmath.mpf(1) / 4] * 4
        expected = []
        for row in gains:
            s = mpmath.mpf(0.02)
            moved = [((1 - s) * w + s / 4) * mpmath.exp(g) for w, g in zip(shares, row, strict=True)]
            expected.append(float(mpmath.log(sum(moved))))
            shares = [w / sum(moved) for w in moved]
    np.testing.assert_allclose(bets.Switching(family(), 0.02).extend(P), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("factor", "window"), [(1.5, 5), (1.2, 1), (2.0, 1000)])
def test_cautious_bets_while_the_shadow_rises(factor: float, window: int) -> None:
    p = np.concatenate([RNG.random(80), RNG.beta(0.3, 1.0, 80), RNG.random(80)])
    gains = bets.Kernel(4, 0.95).extend(p)
    shadow = [0.0, *np.cumsum(gains)]
    expected = [
        gain if shadow[i] - min(shadow[max(0, i - window) : i + 1]) >= math.log(factor) else 0.0
        for i, gain in enumerate(gains)
    ]
    assert any(expected)
    assert 0.0 in expected
    np.testing.assert_allclose(
        bets.Cautious(bets.Kernel(4, 0.95), factor=factor, window=window).extend(p), expected, rtol=0, atol=1e-12
    )


def test_a_bankrupt_bet_in_a_blend() -> None:
    """Capital that is gone stays gone, and the rest bets on."""

    class Nought:
        def log_density(self, p: float) -> float:
            return -math.inf

        def update(self, p: float) -> None:
            pass

        def extend(self, p: object) -> np.ndarray:
            return np.full(len(np.asarray(p)), -math.inf)

    half = Martingale(bets.Blend([Nought(), bets.Idle()])).extend([0.5, 0.5, 0.5])
    np.testing.assert_allclose(half, np.log(0.5))
    assert Martingale(bets.Blend([Nought()])).extend([0.5, 0.5]).tolist() == [-math.inf, -math.inf]
    assert np.isfinite(Martingale(bets.Switching([Nought(), bets.Idle()], 0.1)).extend([0.5, 0.5])).all()


def test_a_blend_does_not_share_its_bets() -> None:
    bet = bets.Kernel(4)
    blend = bets.Blend([bet, bet])
    blend.extend(P)
    assert bet.log_density(0.2) == 0.0
    np.testing.assert_allclose(blend.log_density(0.2), blend.bets[0].log_density(0.2))


@pytest.mark.parametrize(
    "make",
    [
        lambda: bets.SimpleJumper(0.0),
        lambda: bets.GammaMixture(0.0),
        lambda: bets.GammaMixture(1.0, math.nan),
        lambda: bets.Histogram(0),
        lambda: bets.Histogram(2.5),  # type: ignore[arg-type]
        lambda: bets.Tree(0),
        lambda: bets.Tree(25),
        lambda: bets.Tree(3, prior="plain"),
        lambda: bets.Kernel(1),
        lambda: bets.Kernel(4, 0.0),
        lambda: bets.Kernel(4, 1.5),
        lambda: bets.Markov(4, -1.0),
        lambda: bets.Blend([]),
        lambda: bets.Blend([bets.Idle], None),  # type: ignore[list-item]
        lambda: bets.Blend([bets.Idle(), bets.Idle()], [0.5, 0.6]),
        lambda: bets.Blend([bets.Idle(), bets.Idle()], [1.0]),
        lambda: bets.Blend([bets.Idle(), bets.Idle()], [1.5, -0.5]),
        lambda: bets.Switching([], 0.1),
        lambda: bets.Switching([bets.Idle()], 0.0),
        lambda: bets.Cautious(bets.Idle(), factor=1.0),
        lambda: bets.Cautious(bets.Idle(), window=0),
    ],
)
def test_lawless_parameters(make: object) -> None:
    with pytest.raises(ValueError, match="must"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("switching", "size", "reach"), [(0.001, 15, 2.5), (1.0, 5, 2.9), (1e-5, 6, 0.5)])
def test_beta(switching: float, size: int, reach: float) -> None:
    expected = naive.beta(P, switching, size, reach)[0]
    np.testing.assert_allclose(bets.Beta(switching, size=size, reach=reach).extend(P), expected, rtol=0, atol=1e-11)


def test_beta_for_long() -> None:
    """The weights grow by two thirds a step, and are brought back by powers of two."""
    p = np.concatenate([np.full(600, 0.3), np.full(600, 0.9), P])
    expected = naive.beta(p, 0.3, 15, 2.5)[0]
    np.testing.assert_allclose(bets.Beta(0.3).extend(p), expected, rtol=0, atol=1e-11)


def test_the_density_of_beta_at_one_is_the_mean_over_what_rounds_to_one() -> None:
    for a, b in ((0.3, 0.2), (1.0, 0.08), (2.0, 3.0)):
        with mpmath.workdps(30):
            mass = mpmath.betainc(b, a, 0, mpmath.mpf(2) ** -54, regularized=True)
            expected = float(mpmath.log(mass * mpmath.mpf(2) ** 54))
        assert math.isclose(naive.beta_log_density(1.0, a, b), expected, rel_tol=1e-12)


def adaptive_by_definition() -> bets.Blend:
    """The portfolio as its docstring has it, of single bets."""

    def portfolio() -> list[Bet]:
        return [
            *(bets.Kernel(o, f) for o in (2, 3, 4, 6, 8, 12, 16, 32, 64) for f in (1.0, 0.999, 0.99, 0.98, 0.95, 0.9)),
            *(bets.Markov(order, forgetting) for order in (2, 3, 4, 8, 16) for forgetting in (1.0, 0.99)),
            *(bets.Beta(switching) for switching in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3)),
            bets.SimpleMixture(),
            bets.Tree(10),
            bets.Tree(6, prior="smooth"),
        ]

    whole: list[Bet] = [bets.Blend(portfolio()), bets.Switching(portfolio(), 0.001), bets.Idle()]
    return bets.Blend(whole, [0.40, 0.35, 0.25])


@pytest.mark.parametrize("power", [1.0, 0.2, 5.0, 60.0])
def test_adaptive_is_the_portfolio_that_it_says_it_is(power: float) -> None:
    p = (1.0 - np.random.default_rng(6).random(1500)) ** power
    p[700:720] = 1.0
    p[720:740] = 5e-324
    p[740:760] = 1e-250
    p[::31] = 0.5
    ours, expected = bets.Adaptive(), adaptive_by_definition()
    capital, by_definition = np.cumsum(ours.extend(p)), np.cumsum(expected.extend(p))
    np.testing.assert_allclose(capital, by_definition, rtol=1e-12, atol=1e-10)
    for probe in (5e-324, 1e-201, 0.3, 0.999, 1.0):
        assert math.isclose(ours.log_density(probe), expected.log_density(probe), rel_tol=1e-10, abs_tol=1e-10)


def test_adaptive_never_loses_more_than_three_quarters() -> None:
    for power in (1.0, 1.02):
        p = (1.0 - np.random.default_rng(7).random(20_000)) ** power
        assert Martingale(bets.Adaptive()).extend(p).min() >= math.log(0.25)


def test_adaptive_recovers_a_share_that_had_vanished() -> None:
    # 3,000 steps make the shares of most bets vanish beyond what a double holds; then the world is turned round
    draws = 1.0 - np.random.default_rng(8).random(6000)
    p = np.where(np.arange(6000) < 3000, draws**30, 1.0 - draws**30 * (1.0 - 2.0**-53))
    ours, expected = Martingale(bets.Adaptive()).extend(p), Martingale(adaptive_by_definition()).extend(p)
    np.testing.assert_allclose(ours, expected, rtol=1e-11, atol=0)


DRAWN = np.random.default_rng(12).random((2, 600))


def test_the_parts_of_adaptive_are_those_of_the_struct() -> None:
    bet = bets.Adaptive()
    assert sum(part.size for part in adaptive_parts(bet._state[0]).values()) == native.ADAPTIVE_STATE
    assert 8 * native.ADAPTIVE_STATE < 55_000
    bet.extend(P)
    part = adaptive_parts(bet._state[0])
    assert part["sums"][0, 0] == part["mixture"][0] == part["rough"][0, 0] == part["smooth"][0, 0] == len(P)
    assert part["pairs"][0, 0, 0] == len(P) - 1
    assert part["last"][0] == 1.0
    assert part["last"][1] == pytest.approx(math.cos(math.pi * P[-1]), abs=1e-15)
    np.testing.assert_allclose(part["totals"][:6], part["grids"].sum(axis=(1, 2)), rtol=1e-13)
    np.testing.assert_allclose(part["totals"][7], part["fixed"].sum(), rtol=1e-13)


def test_what_never_changes_is_shared() -> None:
    assert adaptive._tables() is adaptive._tables()
    for table in (adaptive._tables(), weights(8), grid(15, 2.5)):
        assert not table.flags.writeable
    before = adaptive._fresh().copy()
    bets.Adaptive().extend(P)
    assert (adaptive._fresh() == before).all()


@pytest.mark.parametrize("order", [2, 3, 8, 9, 64, 1024])
def test_the_weights_are_those_of_jackson(order: int) -> None:
    with mpmath.workdps(30):
        turn = mpmath.pi / (order + 1)
        expected = [
            2 * ((order - k + 1) * mpmath.cos(k * turn) + mpmath.sin(k * turn) * mpmath.cot(turn)) / (order + 1)
            for k in range(order)
        ]
    expected[0] = mpmath.mpf(1)
    np.testing.assert_allclose(weights(order)[:order], np.array(expected, float), rtol=0, atol=4e-15)
    assert not weights(order)[order:].any()


@pytest.mark.parametrize(("size", "reach"), [(2, 2.9), (15, 2.5), (33, 2.9), (16, 0.1)])
def test_the_grid_is_that_of_beta(size: int, reach: float) -> None:
    table = grid(size, reach)
    steps = [mpmath.mpf(2 * k - size + 1) / (size - 1) for k in range(size)]
    with mpmath.workdps(30):
        shapes = [mpmath.exp(mpmath.mpf(reach) * t * abs(t)) for t in steps]
        norms = [[float(1 / mpmath.beta(a, b)) for b in shapes] for a in shapes]
    np.testing.assert_allclose(table[0, :size], np.array(shapes, float), rtol=1e-15)
    np.testing.assert_allclose(table[1:, :size], norms, rtol=5e-14)
    assert (table[0, size:] == 1.0).all()
    assert not table[1:, size:].any()


def test_odds_of_a_tree_beyond_the_numbers() -> None:
    """Twice 2,000 equal p-values make the odds of being split larger than any double, and smaller than any again."""
    p = np.concatenate([np.full(2000, 0.3), np.full(1500, 0.8), 1.0 - DRAWN[0, :500]])
    bet = bets.Tree(3)
    path = np.cumsum(bet.extend(p))
    assert bet._state[0][:, 2].max() > 1.0
    for n in (1000, 2000, 2500, 3500, 4000):
        assert path[n - 1] == pytest.approx(naive.tree(p[:n].tolist(), 3), rel=1e-12)


def test_a_tree_that_is_not_split() -> None:
    """Where no interval has to be split, odds fall below every double, and come back."""
    p = (np.arange(6000) * 0.6180339887498949) % 1.0
    bet = bets.Tree(11, prior="rough")
    path = np.cumsum(bet.extend(np.concatenate([np.maximum(p, 1e-9), np.full(50, 0.3)])))
    assert path[5999] > -1.0
    assert path[-1] > path[5999] + 10.0


def test_log_density_of_a_tree_learns_nothing() -> None:
    bet = bets.Tree(6)
    bet.extend(P)
    before = bet._state[0].copy()
    for p in (5e-324, 0.3, 1.0):
        assert bet.log_density(p) == copy.deepcopy(bet).extend([p])[0]
    assert (bet._state[0] == before).all()


def test_watchful() -> None:
    p = P.copy()
    p[250:270] = 5e-324
    np.testing.assert_allclose(bets.Watchful().extend(p), naive.watchful(p)[0], rtol=1e-11, atol=1e-11)


def test_shiryaev_roberts_on_watchful_is_the_mixture_of_their_statistics() -> None:
    p = np.concatenate([1.0 - np.random.default_rng(9).random(100), np.full(20, 0.003)])
    log_value = Martingale(bets.Watchful()).extend(p)
    weights = np.log(np.repeat([0.4 / 225, 0.4 / 45, 0.2 / 20], [225, 45, 20]))
    densities = np.array([naive.watchful_log_densities(value) for value in p.tolist()])
    statistics = _statistics(densities)
    single = np.array([naive.shiryaev_roberts(np.cumsum(column).tolist()) for column in densities[:, ::29].T])
    every = np.logaddexp.reduce(weights[:, np.newaxis] + statistics)
    np.testing.assert_allclose(naive.shiryaev_roberts(log_value.tolist()), every, rtol=0, atol=1e-9)
    np.testing.assert_allclose(single, statistics[::29], rtol=0, atol=1e-9)


def _statistics(densities: np.ndarray) -> np.ndarray:
    """``log psi_n = g_n + log(1 + psi_{n-1})`` of each fixed density."""
    rows, psi = [], np.full(290, -np.inf)
    for gains in densities:
        psi = gains + np.logaddexp(0.0, psi)
        rows.append(psi)
    return np.array(rows).T


def test_watchful_never_overflows_nor_forgets_to_watch() -> None:
    rng = np.random.default_rng(10)
    p = np.concatenate([rng.random(2000) ** 60 + 1e-300, 1.0 - rng.random(200_000), rng.random(300) ** 2 + 1e-300])
    gains = bets.Watchful().extend(p)
    assert np.isfinite(gains).all()
    assert gains[-250:].sum() > 20.0
