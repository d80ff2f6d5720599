"""The bets beyond the paper, against their definitions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

import naive
import naive_scores
import naive_sentinel
import portfolio
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


@pytest.mark.parametrize("n", [0, 1, 5, 100, 10_000, 10**6, 10**9])
@pytest.mark.parametrize("ratio", [0.0, 1e-6, 0.5, 0.999, 1.0, 1.001, 3.0, 690.0])
@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (0.5, 3.0)])
def test_gamma_mixture_against_50_digits(n: int, ratio: float, shape: float, rate: float) -> None:
    a = ratio * n
    for p in (1e-300, 0.01, 0.9, 1.0):
        with mpmath.workdps(50):
            after = naive.gamma_mixture(n + 1, mpmath.mpf(a) - mpmath.log(p), shape, rate)
            expected = float(after - naive.gamma_mixture(n, a, shape, rate))
        ours = native.gamma_mixture(np.array([float(n), a, 0.0]), shape, rate, p, None)
        assert abs(ours - expected) < 1e-13 * max(1.0, abs(expected), -math.log(p))


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


@pytest.mark.parametrize(("share", "memory"), [(0.02, 0.7), (1e-7, 0.9), (1.0, 1.0), (0.3, 0.0)])
def test_memory_share(share: float, memory: float) -> None:
    weights = [0.4, 0.3, 0.2, 0.1]
    gains = np.column_stack([bet.extend(P) for bet in family()])
    expected, shares = naive_scores.memory_share(gains, np.array(weights), share, memory)
    mixed = bets.MemoryShare(family(), share, memory, weights)
    np.testing.assert_allclose(mixed.extend(P), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(mixed._next_shares(), shares, rtol=1e-11, atol=1e-14)
    if memory == 0.0:
        even = bets.MemoryShare(family(), share, 0.0)
        assert bets.Switching(family(), share).extend(P).tolist() == even.extend(P).tolist()


def test_a_regime_that_returns_is_found_at_once() -> None:
    """In the first 5 steps after a turn memory share wins more than fixed share, which has to find one bet of 42."""
    p = np.resize(np.repeat([0.05, 0.95], 100), 2_000)
    parts: list[Bet] = [bets.Power(0.2), bets.Power(5.0), *[bets.Idle()] * 40]
    with_memory, without = (bets.MemoryShare(parts, 0.01, memory).extend(p).reshape(-1, 100) for memory in (0.9, 0.0))
    assert (with_memory[2:, :5].sum(axis=1) > without[2:, :5].sum(axis=1) + 2.0).all()


@pytest.mark.parametrize(
    ("walk", "share", "memory"), [(0.0, 1e-4, 0.0), (0.004, 1e-5, 0.0), (0.2, 0.01, 0.95), (1.0, 1.0, 1.0)]
)
def test_power_chain(walk: float, share: float, memory: float) -> None:
    expected = naive_scores.power_chain(P, walk, share, memory)[0]
    np.testing.assert_allclose(
        bets.PowerChain(walk, share=share, memory=memory).extend(P), expected, rtol=1e-12, atol=1e-12
    )


SERIAL = np.concatenate([P[:150], ndtr(np.sin(np.arange(250) * 2.0 * np.pi / 7.0) + 0.7 * RNG.standard_normal(250))])
SERIAL[[20, 21, 22, 23]] = 5e-324, 0.5, 1.0 - 2.0**-53, 1.0


def test_fade() -> None:
    np.testing.assert_allclose(bets.Fade().extend(SERIAL), naive_scores.fade(SERIAL)[0], rtol=0, atol=1e-12)


def test_volatility() -> None:
    expected = naive_scores.gains(naive_scores.volatility(SERIAL, 0.2), SERIAL)
    np.testing.assert_allclose(bets.Volatility(0.2).extend(SERIAL), expected, rtol=1e-12, atol=1e-12)


def test_season() -> None:
    laws = naive_scores.season(SERIAL)
    assert any(law.mean for law in laws)
    np.testing.assert_allclose(bets.Season().extend(SERIAL), naive_scores.gains(laws, SERIAL), rtol=1e-12, atol=1e-12)


def test_season_over_all_periods() -> None:
    """A season of 365 steps, by its lag and by its mean."""
    z = np.resize(np.random.default_rng(15).standard_normal(365), 800)
    p = ndtr(z + 0.4 * np.random.default_rng(16).standard_normal(800))
    choice = [found for _, found in naive_scores.choices(p)][-1]
    assert choice.periods[choice.bets or 0] == 365
    expected = naive_scores.gains(naive_scores.season(p), p)
    np.testing.assert_allclose(bets.Season().extend(p), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("forgetting", "noise", "seasons"),
    [(1.0, 1.0, False), (0.998, 0.998, True), (0.998, 0.95, True), (0.9, 0.8, True), (0.9, 0.8, False)],
)
def test_regression(forgetting: float, noise: float, seasons: bool) -> None:
    laws = naive_scores.regression(SERIAL, forgetting, noise, seasons)
    bet = bets.Regression(forgetting, noise=noise, seasons=seasons)
    np.testing.assert_allclose(bet.extend(SERIAL), naive_scores.gains(laws, SERIAL), rtol=1e-11, atol=1e-11)
    for p in (1e-300, 0.01, 0.5, 0.9, 1.0 - 1e-12):
        np.testing.assert_allclose(bet.tails(p), [laws[-1].below(p), laws[-1].above(p)], rtol=1e-11)


def test_tails_of_a_kernel_are_its_integrals() -> None:
    bet = bets.Kernel(12, 0.95)
    bet.extend(P)
    nodes, weights = np.polynomial.legendre.leggauss(60)
    for p in (1e-9, 0.1, 0.5, 0.77, 1.0 - 1e-9):
        for start, stop, mass in ((0.0, p, bet.tails(p)[0]), (p, 1.0, bet.tails(p)[1])):
            at = 0.5 * (start + stop) + 0.5 * (stop - start) * nodes
            inside = [math.exp(bet.log_density(float(x))) for x in at]
            assert mass == pytest.approx(0.5 * (stop - start) * float(weights @ inside), rel=1e-7)
    middle = 2.0**-55 * math.exp(bet.log_density(1.0))
    below, above = bet.tails(1.0)  # p = 1 is the middle of what rounds to it
    assert below == 1.0
    assert above == pytest.approx(middle, rel=1e-12)
    assert bet.tails(5e-324)[0] == 5e-324 * round(math.exp(bet.log_density(5e-324)))


def test_tails_of_a_mixture_are_those_of_its_bets() -> None:
    parts: list[Bet] = [bets.Kernel(4), bets.Regression(seasons=False), bets.Idle()]
    for mixed in (bets.Blend(parts, [0.5, 0.3, 0.2]), bets.MemoryShare(parts, 0.1, 0.5), bets.Switching(parts, 0.2)):
        mixed.extend(P)
        shares = mixed._next_shares()
        assert shares.sum() == pytest.approx(1.0, rel=1e-12)
        for p in (1e-200, 0.2, 0.8, 1.0 - 1e-10):
            below, above = (sum(w * bet.tails(p)[k] for w, bet in zip(shares, mixed.bets, strict=True)) for k in (0, 1))  # type: ignore[attr-defined]
            np.testing.assert_allclose(mixed.tails(p), (below, above), rtol=1e-12)
    assert bets.Switching([bets.Idle()]).tails(5e-324) == (5e-324, 1.0)
    with pytest.raises(ValueError, match="every bet must have a method tails"):
        bets.Blend([bets.Histogram()]).tails(0.5)


def test_copula_is_the_marginal_times_the_serial_bet_on_its_transform() -> None:
    bet, marginal, serial = bets.Copula(bets.Kernel(8, 0.99), bets.Markov(6)), bets.Kernel(8, 0.99), bets.Markov(6)
    expected = []
    for p in P.tolist():
        u = marginal.tails(p)[0]
        expected.append(marginal.log_density(p) + serial.log_density(u))
        marginal.update(p)
        serial.update(u)
    assert bet.extend(P).tolist() == expected


@pytest.mark.parametrize("mix", [bets.Blend, bets.Switching, bets.MemoryShare])
def test_the_mass_below_p_does_not_exceed_one(mix: type[bets.Blend | bets.MemoryShare]) -> None:
    """Nearly all mass of each bet is below p, so that the weighted sum may round to more than 1."""
    parts = [bets.Regression(f, noise=n, seasons=False) for f, n in [(1.0, 1.0), (0.998, 0.998), (0.99, 0.9)]]
    marginal = mix(parts)
    bet, drawn = bets.Copula(marginal, bets.Markov(8)), np.random.default_rng(0)
    p = 1e-4 * (1.0 + 0.01 * drawn.random(1500))
    p[500::37] = 0.4 + 0.05 * drawn.random(len(p[500::37]))
    assert np.isfinite(bet.extend(p)).all()
    for value in (1e-4, 0.4, 0.5, 0.6, 1.0):
        assert all(0.0 < mass <= 1.0 for mass in bet.marginal.tails(value))


def test_copula_sees_what_the_marginal_leaves() -> None:
    """A marginal that is not uniform, and dependence: the copula sees both, and each bet alone sees one."""
    z = np.zeros(3000)
    drawn = np.random.default_rng(17)
    for t in range(1, 3000):
        z[t] = 0.6 * z[t - 1] + 0.8 * drawn.standard_normal()
    p = ndtr(z) ** 3.0
    both = bets.Copula(bets.Kernel(16), bets.Markov(8)).extend(p).sum()
    assert both > bets.Kernel(16).extend(p).sum() + 200.0
    assert both > bets.Markov(8).extend(p).sum() + 20.0


def test_two_sided_is_a_bet_on_twice_the_smaller_tail() -> None:
    p = np.array([0.5, 0.25, 0.75, 1e-300, 1.0, 1.0 - 2.0**-53])
    both = np.array([1.0, 0.5, 0.5, 2e-300, 2.0**-54, 2.0**-52])
    assert bets.TwoSided(bets.SimpleMixture()).extend(p).tolist() == bets.SimpleMixture().extend(both).tolist()


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
        lambda: bets.Blend([bets.Idle()], 3),  # type: ignore[arg-type]
        lambda: bets.Blend([bets.Idle()], "1"),  # type: ignore[arg-type]
        lambda: bets.Blend([bets.Idle()], ["1"]),  # type: ignore[list-item]
        lambda: bets.Blend([bets.Idle()], [None]),  # type: ignore[list-item]
        lambda: bets.Blend([bets.Idle()], [[1.0]]),  # type: ignore[list-item]
        lambda: bets.Blend([bets.Idle()], [10**400]),
        lambda: bets.Blend([bets.Idle(), bets.Idle()], [0.5 + 4e-13] * 2),
        lambda: bets.Switching([], 0.1),
        lambda: bets.Switching([bets.Idle()], 0.0),
        lambda: bets.MemoryShare([bets.Idle()], 0.1, 1.5),
        lambda: bets.MemoryShare([bets.Idle()], 0.1, -0.1),
        lambda: bets.MemoryShare([bets.Idle()], 0.1, 0.5, [0.5]),
        lambda: bets.Beta(memory=2.0),
        lambda: bets.PowerChain(1.5),
        lambda: bets.PowerChain(share=0.0),
        lambda: bets.Volatility(0.0),
        lambda: bets.Regression(0.4),
        lambda: bets.Regression(noise=2.0),
        lambda: bets.Regression(seasons=1),  # type: ignore[arg-type]
        lambda: bets.Copula(bets.Histogram(), bets.Idle()),  # type: ignore[arg-type]
        lambda: bets.Copula(bets.Blend([bets.Histogram()]), bets.Idle()),
        lambda: bets.Copula(bets.Idle(), 3),  # type: ignore[arg-type]
        lambda: bets.TwoSided(bets.Idle),  # type: ignore[arg-type]
        lambda: bets.Cautious(bets.Idle(), factor=1.0),
        lambda: bets.Cautious(bets.Idle(), window=0),
    ],
)
def test_lawless_parameters(make: object) -> None:
    with pytest.raises(ValueError, match="must"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("switching", "size", "reach", "memory"),
    [(0.001, 15, 2.5, 0.0), (1.0, 5, 2.9, 0.0), (1e-5, 6, 0.5, 0.0), (0.01, 8, 2.5, 0.95), (1.0, 9, 1.0, 1.0)],
)
def test_beta(switching: float, size: int, reach: float, memory: float) -> None:
    bet = bets.Beta(switching, memory=memory, size=size, reach=reach)
    expected = naive.beta(P, switching, size, reach, memory)[0]
    np.testing.assert_allclose(bet.extend(P), expected, rtol=0, atol=1e-11)


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


EXTREME = {"ones": 1.0, "tiny": 5e-324, "small": 1e-250, "halves": 0.5}


@pytest.mark.parametrize("power", [1.0, 0.2, 5.0, 60.0])
def test_adaptive_is_the_portfolio_that_it_says_it_is(power: float) -> None:
    p = (1.0 - np.random.default_rng(6).random(1000)) ** power
    for start, value in zip(range(500, 580, 20), EXTREME.values(), strict=True):
        p[start : start + 20] = value
    p[::31] = 0.5
    ours, expected = bets.Adaptive(), portfolio.by_definition()
    capital, by_definition = np.cumsum(ours.extend(p)), np.cumsum(expected.extend(p))
    np.testing.assert_allclose(capital, by_definition, rtol=1e-12, atol=1e-12)
    for probe in (5e-324, 1e-201, 0.3, 0.5, 0.999, 1.0):
        assert math.isclose(ours.log_density(probe), expected.log_density(probe), rel_tol=1e-12, abs_tol=1e-12)


def test_adaptive_is_its_portfolio_on_dependent_and_seasonal_p_values() -> None:
    drawn = np.random.default_rng(13)
    z = np.zeros(1500)
    for t in range(1, 1500):
        z[t] = 0.5 * z[t - 1] + (1.5 if t % 7 == 3 else 0.8) * drawn.standard_normal() + 0.8 * math.sin(t / 4.0)
    p = ndtr(z)
    ours, expected = bets.Adaptive().extend(p), portfolio.by_definition().extend(p)
    assert expected.sum() > 100.0
    np.testing.assert_allclose(np.cumsum(ours), np.cumsum(expected), rtol=1e-12, atol=1e-12)


def test_adaptive_never_loses_more_than_three_quarters() -> None:
    for power in (1.0, 1.02):
        p = (1.0 - np.random.default_rng(7).random(20_000)) ** power
        assert Martingale(bets.Adaptive()).extend(p).min() >= math.log(0.25)


def test_adaptive_recovers_a_share_that_had_vanished() -> None:
    # 800 steps make the capital of most parts vanish beyond what a double holds; then the world is turned round
    draws = 1.0 - np.random.default_rng(8).random(1600)
    p = np.where(np.arange(1600) < 800, draws**30, 1.0 - draws**30 * (1.0 - 2.0**-53))
    ours, expected = Martingale(bets.Adaptive()).extend(p), Martingale(portfolio.by_definition()).extend(p)
    np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "make", [bets.Adaptive, bets.Regression, bets.Season, bets.Volatility, bets.Fade, bets.PowerChain]
)
@pytest.mark.parametrize(
    "pattern", [[0.5], [1.0], [5e-324], [1e-300, 1.0], [0.3], [0.125, 1.0, 1.0], [1.0 - 2.0**-53, 0.1, 0.5], None]
)
def test_long_streams_of_a_few_values_stay_finite(make: Callable[[], Bet], pattern: list[float] | None) -> None:
    """Regression: the covariance of the regression lost its symmetry, and after 60,000 steps there was no number."""
    drawn = np.random.default_rng(14)
    p = drawn.choice([0.125, 1.0], 200_000) if pattern is None else np.resize(pattern, 200_000)
    assert np.isfinite(make().extend(p)).all()


def test_a_covariance_that_is_not_positive_starts_again() -> None:
    bet = bets.Regression(seasons=False)
    bet.extend(P)
    bet._state[0][:64] *= -1.0
    assert np.isfinite(bet.extend(P)).all()
    covariance = bet._state[0][:64].reshape(8, 8)
    assert (np.linalg.eigvalsh(covariance)[2:] > 0.0).all()
    assert not covariance[6:].any()


DRAWN = np.random.default_rng(12).random((2, 600))


def test_the_state_of_adaptive_is_small() -> None:
    assert 8 * native.ADAPTIVE_STATE < 95_000


def test_what_never_changes_is_shared() -> None:
    assert adaptive.adaptive_tables() is adaptive.adaptive_tables()
    for table in (adaptive.adaptive_tables(), weights(8), grid(15, 2.5)):
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


def test_sentinel() -> None:
    p = P.copy()
    p[250:270] = 5e-324
    np.testing.assert_allclose(bets.Sentinel().extend(p), naive_sentinel.gains(p), rtol=1e-11, atol=1e-11)


def test_shiryaev_roberts_on_sentinel_is_the_mixture_of_their_statistics() -> None:
    p = np.concatenate([1.0 - np.random.default_rng(9).random(100), np.full(20, 0.003)])
    log_value = Martingale(bets.Sentinel()).extend(p)
    densities, psi, every = naive_sentinel.Densities(), np.zeros(206), []
    for value in p.tolist():  # each bet alone, started again before each example
        psi = (1.0 + psi) * densities(value)
        every.append(math.log(naive_sentinel.bets().weights @ psi))
    np.testing.assert_allclose(naive.shiryaev_roberts(log_value.tolist()), every, rtol=0, atol=1e-9)


def test_sentinel_never_overflows_nor_forgets_to_watch() -> None:
    rng = np.random.default_rng(10)
    p = np.concatenate([rng.random(2000) ** 60 + 1e-300, 1.0 - rng.random(200_000), rng.random(300) ** 2 + 1e-300])
    gains = bets.Sentinel().extend(p)
    assert np.isfinite(gains).all()
    assert gains[-250:].sum() > 20.0
