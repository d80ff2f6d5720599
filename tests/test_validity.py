"""The promise, on the whole line: p-values independent and uniform on exchangeable data, false alarms at most alpha.

Exact binomial and Kolmogorov-Smirnov tests with fixed seeds: a failure is a bug, not bad luck. The last part shows that
these very tests reject recipes that are known to be wrong (the peers' ones among them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, chi2_contingency, kstest

import contracts
from exchangeable import Martingale, Monitor, PValues, thetas
from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.bets import (
    Adaptive,
    Beta,
    Cautious,
    CompositeJumper,
    Kernel,
    Markov,
    Plugin,
    Power,
    Sentinel,
    SimpleMixture,
    SleeperDrifter,
    SleeperStayer,
    SleepyJumper,
)
from exchangeable.measures import Conditional, Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.protocols import Bet, Measure

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

RUNS, HORIZON, ALPHA = 2000, 150, 0.1
POSITIONS = (1, 2, 3, 5, 20)
SIGNIFICANT = 1e-4

BETS: dict[str, Callable[[], Bet]] = {
    "Plugin": Plugin,
    "SimpleMixture": SimpleMixture,
    "SleepyJumper": SleepyJumper,
    "SleepyJumper(bold)": lambda: SleepyJumper(waking=0.3, jumping=0.1),
    "SleeperStayer": lambda: SleeperStayer(waking=0.05),
    "SleeperDrifter": lambda: SleeperDrifter(waking=0.3, every=10, grid=5),
    "Power(0.5)": lambda: Power(0.5),
    "Power(2)": lambda: Power(2.0),
    "Adaptive": Adaptive,
    "Sentinel": Sentinel,
    "CompositeJumper": CompositeJumper,
    "Markov": lambda: Markov(6, 0.99),
    "Beta": Beta,
    "Cautious": lambda: Cautious(Kernel(8, 0.95), factor=1.5, window=50),
}


# ------------------------------------------------------------------ exchangeable data


def continuous(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) + y[:, None], y


def ties(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    return rng.integers(0, 4, (n, 2)).astype(np.float64), rng.integers(0, 3, n)


def one_label(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    return rng.normal(size=(n, 1)), np.zeros(n, np.int64)


def identical(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    """All rows equal (regression: scores went wrong while no two rows differed, and with them validity)."""
    return np.zeros((n, 1)), rng.integers(0, 2, n)


def shuffled(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    """Exchangeable but not independent: a fixed bag, drawn without replacement."""
    order = rng.permutation(n)
    return (np.arange(n) ** 2 % 37 / 4.0)[order, None], (np.arange(n) % 3)[order]


def common_cause(rng: np.random.Generator, n: int) -> tuple[Floats, Labels]:
    """Exchangeable but not independent: every run has its own centres, scale and frequencies."""
    y = (rng.random(n) < rng.random()).astype(np.int64)
    centres = 3.0 * rng.normal(size=(2, 2))
    return centres[y] + math.exp(rng.normal()) * rng.standard_t(2, (n, 2)), y


KINDS = {kind.__name__: kind for kind in (continuous, ties, one_label, identical, shuffled, common_cause)}


@cache
def p_values(kind: str, runs: int = RUNS, horizon: int = HORIZON) -> Floats:
    """A row of p-values for each run; the run's number seeds its data and its thetas."""
    table = np.empty((runs, horizon))
    for run in range(runs):
        X, y = KINDS[kind](np.random.default_rng([run, 77]), horizon)
        table[run] = PValues(NearestNeighbour(), seed=run).extend(X, y)
    return table


# ------------------------------------------------------------------ the tests of validity


def highest(make: Callable[[], Bet], table: Floats) -> Floats:
    """The greatest log capital of each run."""
    return np.array([Martingale(make()).extend(row).max() for row in table])


@cache
def heights(name: str, kind: str) -> Floats:
    return highest(BETS[name], p_values(kind))


def check_false_alarms(heights: Floats, alpha: float = ALPHA) -> None:
    """An exact binomial test of how many runs ever reach 1/alpha."""
    count = sum(map(Ville(alpha).update, heights.tolist()))
    evidence = binomtest(count, len(heights), alpha, alternative="greater").pvalue
    assert evidence > SIGNIFICANT, f"{count} false alarms in {len(heights)} runs at alpha = {alpha}"


def check_uniform(column: Floats) -> None:
    assert kstest(column, "uniform").pvalue > SIGNIFICANT


def check_independent(one: Floats, two: Floats) -> None:
    """Of two columns of p-values: no association in a table of quarters, none in rank correlation."""
    quarters = np.histogram2d(one, two, bins=4, range=((0.0, 1.0), (0.0, 1.0)))[0]
    assert chi2_contingency(quarters).pvalue > SIGNIFICANT
    assert abs(np.corrcoef(one, two)[0, 1]) * math.sqrt(len(one)) < 4.0


# ------------------------------------------------------------------ what we promise


def one_kind_each(names: Iterable[str], kinds: Iterable[str]) -> pytest.MarkDecorator:
    """Try every name with the kinds of data in turn; the other pairs are for ``make soak``."""
    kinds = list(kinds)
    pairs = [
        pytest.param(name, kind, marks=() if j == i % len(kinds) else pytest.mark.soak)
        for i, name in enumerate(names)
        for j, kind in enumerate(kinds)
    ]
    return pytest.mark.parametrize(("name", "kind"), pairs)


@one_kind_each(BETS, KINDS)
def test_false_alarms(name: str, kind: str) -> None:
    check_false_alarms(heights(name, kind))


@one_kind_each(BETS, ("continuous", "ties"))
def test_false_alarms_at_other_levels(name: str, kind: str) -> None:
    for alpha in (0.01, 0.02, 0.5, 0.9):
        check_false_alarms(heights(name, kind), alpha)


@pytest.mark.parametrize("name", ["Power(0.5)", "Power(2)", "SimpleMixture"])
def test_the_tests_have_something_to_count(name: str) -> None:
    assert (heights(name, "continuous") >= math.log(1.0 / ALPHA)).sum() > 0.02 * RUNS


def test_capital_is_fair_on_average() -> None:
    for kind in ("continuous", "ties"):
        for make in (Plugin, lambda: Power(0.8), lambda: Power(2.0)):  # bets of finite variance
            gains = np.array([np.exp(Martingale(make()).extend(row[:3])) for row in p_values(kind)])
            for column in gains.T:  # E S_n = 1, within four standard errors
                assert abs(column.mean() - 1.0) < 4.0 * column.std() / math.sqrt(RUNS) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_p_is_uniform_at_each_step(kind: str) -> None:
    for n in POSITIONS:
        check_uniform(p_values(kind)[:, n - 1])


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_are_uniform_together(kind: str) -> None:
    check_uniform(p_values(kind)[:200].ravel())


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_are_independent_pairwise(kind: str) -> None:
    for i, j in combinations((*POSITIONS, 21), 2):
        check_independent(p_values(kind)[:, i - 1], p_values(kind)[:, j - 1])


def test_the_monitor_counts_the_same_alarms() -> None:
    for kind in ("continuous", "ties"):
        alarms = 0
        for run in range(100):
            X, y = KINDS[kind](np.random.default_rng([run, 77]), HORIZON)
            alarms += bool(Monitor(bet=SimpleMixture(), alarm=Ville(0.5), seed=run).extend(X, y).alarm.any())
        assert alarms == (heights("SimpleMixture", kind)[:100] >= Ville(0.5).log_threshold).sum() > 0


# ------------------------------------------------------------------ the other measures and alarms

REFERENCE = np.random.default_rng(79).normal(size=300)


class Line(NamedTuple):
    """A measure, and what it takes of labelled rows."""

    make: Callable[[], Measure]
    takes: Callable[[Floats, Labels], tuple[Any, Any]] = lambda X, y: (X, y)


def _first_feature(X: Floats, y: Labels) -> tuple[Any, Any]:
    return X[:, 0], y


LINES: dict[str, Line] = {
    "NearestNeighbour(3)": Line(lambda: NearestNeighbour(3)),
    "NearestDistance": Line(NearestDistance),
    "NearestDistance(4)": Line(lambda: NearestDistance(4)),
    "NearestResidual(2)": Line(lambda: NearestResidual(2), lambda X, y: (X[:, :1], X[:, -1] + y)),
    "Value": Line(Value, _first_feature),
    "Frozen": Line(lambda: Frozen(lambda X, y: X[:, 0] - y)),
    "Frozen(bins)": Line(lambda: Frozen(bins=6, reference=REFERENCE), _first_feature),
    "Conditional(NearestNeighbour)": Line(lambda: Conditional(NearestNeighbour())),
    "Conditional(NearestDistance)": Line(lambda: Conditional(NearestDistance())),
    "Conditional(Value)": Line(lambda: Conditional(Value()), _first_feature),
}
each_line = one_kind_each(LINES, ("continuous", "ties", "shuffled"))


@cache
def line_p_values(name: str, kind: str, runs: int = 1000, horizon: int = 40) -> Floats:
    table = np.empty((runs, horizon))
    for run in range(runs):
        X, y = LINES[name].takes(*KINDS[kind](np.random.default_rng([run, 80]), horizon))
        table[run] = PValues(LINES[name].make(), seed=run).extend(X, y)
    return table


@each_line
def test_every_measure_gives_uniform_and_independent_p_values(name: str, kind: str) -> None:
    table = line_p_values(name, kind)
    for n in POSITIONS:
        check_uniform(table[:, n - 1])
    for i, j in combinations((*POSITIONS, 21, 40), 2):
        check_independent(table[:, i - 1], table[:, j - 1])


@each_line
def test_every_measure_keeps_the_promise(name: str, kind: str) -> None:
    for make in (Adaptive, lambda: Power(0.5)):
        check_false_alarms(highest(make, line_p_values(name, kind)))


@pytest.mark.parametrize("make", [Cusum, ShiryaevRoberts])
def test_false_alarms_within_n_steps(make: type[Cusum]) -> None:
    period = HORIZON / ALPHA
    for bet in (Adaptive, Sentinel, lambda: SleepyJumper(waking=0.3, jumping=0.1), lambda: Power(2.0)):
        paths = (Martingale(bet()).extend(row) for row in p_values("continuous"))
        count = sum(bool(make(period).extend(path).any()) for path in paths)
        assert binomtest(count, RUNS, ALPHA, alternative="greater").pvalue > SIGNIFICANT


def test_restarts_keep_their_promise() -> None:
    """Ville with restarts: the expected number of false alarms is at most alpha/(1 - alpha)."""
    counts = []
    for run in range(1500):
        x = np.random.default_rng([run, 81]).normal(size=200)
        monitor = Monitor(Value(), Power(0.6), Ville(0.2), seed=run, on_alarm="restart")
        counts.append(int(monitor.extend(x).alarm.sum()))
    mean, error = np.mean(counts), np.std(counts) / math.sqrt(len(counts))
    assert 0.1 < mean < 0.25 + 3.0 * error
    twice = sum(count >= 2 for count in counts)  # of probability at most alpha^2
    assert binomtest(twice, len(counts), 0.04, alternative="greater").pvalue > SIGNIFICANT


# ------------------------------------------------------------------ the tests can fail


def scored(run: int, n: int, levels: int | None) -> Floats:
    """Independent scores, with ties if there are only so many levels."""
    scores = np.random.default_rng([run, 78]).random(n)
    return scores if levels is None else np.floor(levels * scores)


def growing(scores: Floats, theta: Floats) -> Floats:
    """The exact recipe: each score among all so far, itself included."""
    p = np.empty(len(scores))
    for i, score in enumerate(scores):
        seen = scores[: i + 1]
        p[i] = ((seen > score).sum() + theta[i] * (seen == score).sum()) / (i + 1)
    return p


def frozen(scores: Floats, theta: Floats, m: int = 40) -> Floats:
    """One calibration set for ever: each p is uniform, but they are not independent."""
    reference = scores[:m]
    return np.array([((reference > s).sum() + t) / (m + 1) for s, t in zip(scores[m:], theta[m:], strict=True)])


def not_randomised(scores: Floats, theta: Floats) -> Floats:
    """No theta: ties count in full."""
    return growing(scores, np.ones(len(theta)))


def ties_for_nothing(scores: Floats, theta: Floats) -> Floats:
    """No theta: ties do not count (but for p > 0)."""
    return growing(scores, np.full(len(theta), 1e-3))


def own_rank_in_full(scores: Floats, theta: Floats) -> Floats:
    """``(1 + #greater + theta #equal) / (n + 1)`` among the earlier ones."""
    p = np.empty(len(scores))
    for i, score in enumerate(scores):
        seen = scores[:i]
        p[i] = (1.0 + (seen > score).sum() + theta[i] * (seen == score).sum()) / (i + 1)
    return p


def never_recomputed(scores: Floats, theta: Floats) -> Floats:
    """Each score is the distance to the nearest *earlier* example, stored as it was."""
    stored = np.array([np.abs(scores[:i] - score).min() if i else 1.0 for i, score in enumerate(scores)])
    return growing(stored, theta)


def table_of(recipe: Callable[[Floats, Floats], Floats], levels: int | None, runs: int, n: int) -> Floats:
    return np.array([recipe(scored(run, n, levels), thetas(run, 0, n)) for run in range(runs)])


def test_the_exact_recipe_passes() -> None:
    for levels in (None, 3):
        table = table_of(growing, levels, 500, 150)
        for make in BETS.values():
            check_false_alarms(highest(make, table))
        for n in POSITIONS:
            check_uniform(table[:, n - 1])


@pytest.mark.parametrize(
    ("recipe", "levels", "bet"),
    [
        (frozen, None, "Plugin"),
        (frozen, None, "SimpleMixture"),
        (not_randomised, 3, "Plugin"),
        (not_randomised, 3, "Power(2)"),
        (ties_for_nothing, 3, "Plugin"),
        (ties_for_nothing, 3, "SimpleMixture"),
        (ties_for_nothing, 3, "SleepyJumper"),
        (ties_for_nothing, 3, "Power(0.5)"),
        (never_recomputed, None, "Plugin"),
    ],
)
def test_wrong_p_values_are_caught_by_false_alarms(
    recipe: Callable[[Floats, Floats], Floats], levels: int | None, bet: str
) -> None:
    with pytest.raises(AssertionError, match="false alarms"):
        check_false_alarms(highest(BETS[bet], table_of(recipe, levels, 500, 300)))


@pytest.mark.parametrize(
    ("recipe", "levels", "n"),
    [
        (not_randomised, 3, 1),
        (not_randomised, 3, 20),
        (not_randomised, None, 3),
        (ties_for_nothing, 3, 5),
        (own_rank_in_full, None, 1),
        (own_rank_in_full, None, 5),
        (never_recomputed, None, 20),
    ],
)
def test_wrong_p_values_are_caught_by_uniformity(
    recipe: Callable[[Floats, Floats], Floats], levels: int | None, n: int
) -> None:
    with pytest.raises(AssertionError):
        check_uniform(table_of(recipe, levels, 1000, 20)[:, n - 1])


def test_a_frozen_calibration_set_is_caught_by_independence() -> None:
    table = np.array([frozen(scored(run, 12, None), thetas(run, 0, 12), 10) for run in range(2000)])
    check_uniform(table[:, 0])  # each alone is uniform
    check_uniform(table[:, 1])
    with pytest.raises(AssertionError):
        check_independent(table[:, 0], table[:, 1])


class Generous(Power):
    """A density with integral 1.05."""

    def extend(self, p: ArrayLike) -> Floats:
        return super().extend(p) + math.log(1.05)

    def log_density(self, p: float) -> float:
        return float(self.extend([p])[0])


class Peeking(Power):
    """Chooses the better of two bets after it has seen p."""

    def extend(self, p: ArrayLike) -> Floats:
        return np.maximum(super().extend(p), 0.0)

    def log_density(self, p: float) -> float:
        return float(self.extend([p])[0])


@pytest.mark.parametrize("make", [lambda: Generous(0.8), lambda: Generous(1.0), lambda: Peeking(0.8)])
def test_wrong_bets_are_caught(make: Callable[[], Bet]) -> None:
    with pytest.raises(AssertionError, match="false alarms"):
        check_false_alarms(highest(make, p_values("continuous")[:500]))
    with pytest.raises(AssertionError, match="integrates to"):
        contracts.check_integrates_to_one(make(), contracts.BETS["Power(0.5)"], [])
