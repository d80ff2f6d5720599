"""What every bet, measure and alarm must satisfy, written once and for all of them.

Each contract is a function that raises AssertionError when it is broken; test_contracts.py applies every contract to
every implementation, and a new implementation joins by one line in ``BETS``, ``MEASURES`` or ``ALARMS``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

import naive
import naive_scores
import naive_sentinel
import portfolio
from exchangeable import alarms, bets, measures, snapshot
from exchangeable.protocols import Alarm, Bet, Measure
from naive_scores import Law

Floats = NDArray[np.float64]
Counts = list[tuple[int, int, int]]
Case = TypeVar("Case")

TINY = 5e-324  # the smallest p that a double can hold
NEAR_ONE = 1e-6  # -log p below which a density that is infinite at one is integrated exactly
FLOOR = math.exp(-700.0)  # integrals are numerical above it, where doubles have all their digits, and exact below


def settled(examples: int) -> settings:
    """Return settings of Hypothesis with the same examples on every run and every machine.

    The profile (conftest.py) says how many percent of the examples are tried: ``make soak`` tries all of them.
    """
    return settings(
        max_examples=max(examples * settings().max_examples // 100, min(examples, 10)),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.function_scoped_fixture,
        ],
    )


def check_each(check: Callable[[Case], object], cases: Iterable[tuple[str, Case]]) -> None:
    """Run a check on every named case and report all failures together."""
    failures: list[BaseException] = []
    for name, case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001
            failure.add_note(f"case: {name}")
            failures.append(failure)
    if failures:
        raise BaseExceptionGroup("not all cases pass", failures)


# ------------------------------------------------------------------ the implementations


class BetCase(NamedTuple):
    make: Callable[[], Bet]
    beyond: Callable[[Sequence[float]], float]  # mass of the next bet in (0, FLOOR], in [exp(-start), 1], and in holes
    start: float = 0.0  # of the numerical integral, in -log p
    depth: int = 4  # the density may jump at multiples of 2^-depth
    edges: Callable[[Sequence[float]], Iterable[float]] = lambda history: ()  # p where it may jump or be steep, too
    holes: Callable[[Sequence[float]], Sequence[tuple[float, float]]] = lambda history: ()  # left to ``beyond``


def _mixture_beyond(history: Sequence[float]) -> float:
    """int eps^n e^(a (1 - eps)) FLOOR^eps d eps / S_n."""
    n, a = len(history), naive.minus_log_sum(history)
    return float(mpmath.exp(naive.mixture(n, a + 700, 20) - 700 - naive.mixture(n, a, 20)))


def _jumper(waking: float, jumping: float, grid: int) -> BetCase:
    return BetCase(
        lambda: bets.SleepyJumper(waking=waking, jumping=jumping, grid=grid),
        lambda history: naive.jumper_mass_below(history, FLOOR, waking, jumping, grid),
    )


def _power(epsilon: float) -> BetCase:
    return BetCase(lambda: bets.Power(epsilon), lambda history: FLOOR**epsilon)


def _gamma_beyond(history: Sequence[float]) -> float:
    """int eps^n e^(a (1 - eps)) FLOOR^eps pi(eps) d eps / S_n, for pi the exponential density."""
    n, a = len(history), naive.minus_log_sum(history)
    return float(mpmath.exp(naive.gamma_mixture(n, a + 700) - 700 - naive.gamma_mixture(n, a)))


def _bounded(make: Callable[[], Bet]) -> BetCase:
    return BetCase(make, lambda history: 0.0)


def _beta(switching: float, size: int, reach: float, memory: float = 0.0) -> BetCase:
    return BetCase(
        lambda: bets.Beta(switching, memory=memory, size=size, reach=reach),
        lambda history: naive.beta_mass_outside(history, FLOOR, HIGH, switching, size, reach, memory),
        NEAR_ONE,
    )


HIGH = -math.expm1(-NEAR_ONE)  # exp(-NEAR_ONE) = 1 - HIGH


def _normal(make: Callable[[], Bet], laws: Callable[[Sequence[float]], Sequence[Law]]) -> BetCase:
    """A bet on a normal law of the score."""

    def beyond(history: Sequence[float]) -> float:
        law = laws(history)[-1]
        return law.below(FLOOR) + law.above(math.exp(-NEAR_ONE))

    return BetCase(make, beyond, NEAR_ONE, 1, lambda history: steep(laws(history)[-1]))


def steep(law: Law) -> list[float]:
    """The p-values from 8 deviations below the mean to 8 above it, by halves."""
    z = law.mean + math.sqrt(law.variance) * np.arange(-8.0, 8.5, 0.5)
    return [float(p) for p in ndtr(-z) if FLOOR < p < math.exp(-NEAR_ONE)]


def _chain(walk: float, share: float, memory: float) -> BetCase:
    def beyond(history: Sequence[float]) -> float:
        return naive_scores.chain_mass_outside(naive_scores.power_chain(history, walk, share, memory)[1], FLOOR, HIGH)

    return BetCase(lambda: bets.PowerChain(walk, share=share, memory=memory), beyond, NEAR_ONE)


def _fade_edges(history: Sequence[float]) -> list[float]:
    edges = naive_scores.fade_edges()[1:]
    return [*edges.tolist(), *(1.0 - edges).tolist()]


def _copula() -> bets.Copula:
    return bets.Copula(
        bets.MemoryShare([bets.Kernel(4), bets.Kernel(8, 0.9)], 0.1, 0.5), bets.Regression(seasons=False)
    )


def _copula_law(history: Sequence[float]) -> tuple[bets.Copula, Law]:
    bet, us = _copula(), []
    for p in history:
        us.append(bet.marginal.tails(p)[0])
        bet.update(p)
    return bet, naive_scores.regression(us, 0.998, 0.998, False)[-1]


def _copula_beyond(history: Sequence[float]) -> float:
    bet, law = _copula_law(history)
    return law.below(bet.marginal.tails(FLOOR)[0]) + law.above(bet.marginal.tails(math.exp(-NEAR_ONE))[0])


def _copula_edges(history: Sequence[float]) -> list[float]:
    bet, law = _copula_law(history)
    return inverted(bet.marginal, steep(law))


def inverted(marginal: Any, us: Sequence[float]) -> list[float]:
    """The p-values with these masses below them, by halving; approximate, for they only divide the integral."""
    low, high = np.zeros(len(us)), np.ones(len(us))
    for _ in range(40):
        middle = 0.5 * (low + high)
        below = np.array([marginal.tails(float(p))[0] for p in middle]) < np.asarray(us)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return [float(p) for p in low if FLOOR < p < math.exp(-NEAR_ONE)]


def _adaptive_beyond(history: Sequence[float]) -> float:
    """From the columns that are not bounded, by their shares of the next bet; the others are even at the upper end."""
    bet, learnt = bets.Adaptive(), portfolio.replay(history)
    bet.extend(history)

    def others(p: float) -> float:
        return math.exp(bet.log_density(p)) - float(learnt.shares @ learnt.point(p))

    total = float(learnt.shares @ learnt.outside(FLOOR, HIGH)) + HIGH * others(math.exp(-0.5 * NEAR_ONE))
    for low, high in _adaptive_holes(history):
        sharp = learnt.shares[portfolio.SPREAD] * learnt.spread.above(1.0 - HOLE)
        rest = [
            math.exp(bet.log_density(p)) - learnt.shares[portfolio.SPREAD] * learnt.point(p)[portfolio.SPREAD]
            for p in (low, high)
        ]
        total += sharp + (high - low) * 0.5 * sum(rest)
    return total


HOLE = (
    1e-5  # the mass around the median of the seasonal regression, where a bet on the two-sided p-value may be infinite
)


def _adaptive_holes(history: Sequence[float]) -> list[tuple[float, float]]:
    law = portfolio.replay(history).laws[1]
    z = law.mean + math.sqrt(law.variance) * ndtri(0.5 + 0.5 * HOLE) * np.array([1.0, -1.0])
    low, high = ndtr(-z)
    return [(float(low), float(high))]


def _adaptive_edges(history: Sequence[float]) -> list[float]:
    learnt = portfolio.replay(history)
    found = [p for law in learnt.laws for p in steep(law)]
    rest = [*(1.0 - p for p in steep(learnt.spread)), *(10.0 ** (-k / 4) for k in range(1, 21))]  # 1 - 2 min(u, 1 - u)
    seasonal = learnt.laws[1]
    z = seasonal.mean + math.sqrt(seasonal.variance) * ndtri(0.5 + 0.5 * np.array([*rest, *(-r for r in rest)]))
    found += [float(p) for p in ndtr(-z) if FLOOR < p < math.exp(-NEAR_ONE)]
    return [*found, *inverted(learnt.marginal, steep(learnt.pit)), *_fade_edges(history)]


def _stayer(waking: float, grid: int) -> BetCase:
    edges = [j / grid for j in range(1, grid)]
    return BetCase(
        lambda: bets.SleeperStayer(waking=waking, grid=grid), lambda history: 0.0, edges=lambda history: edges
    )


def _drifter(waking: float, every: int, grid: int) -> BetCase:
    return BetCase(
        lambda: bets.SleeperDrifter(waking=waking, every=every, grid=grid),
        lambda history: 0.0,
        edges=lambda history: naive.drifter_edges(len(history), every, grid),
    )


BETS: dict[str, BetCase] = {
    "Adaptive": BetCase(bets.Adaptive, _adaptive_beyond, NEAR_ONE, 10, _adaptive_edges, _adaptive_holes),
    "Sentinel": BetCase(bets.Sentinel, lambda history: 0.0, edges=lambda history: naive_sentinel.FINE[1:-1].tolist()),
    "Beta": _beta(0.001, 15, 2.5),
    "Beta(small)": _beta(0.3, 4, 1.0),
    "Beta(remembers)": _beta(0.1, 5, 1.0, 0.8),
    "PowerChain": _chain(0.004, 1e-4, 0.0),
    "PowerChain(remembers)": _chain(0.3, 0.05, 0.9),
    "Fade": BetCase(bets.Fade, lambda history: 0.0, edges=_fade_edges),
    "Volatility": _normal(bets.Volatility, naive_scores.volatility),
    "Season": _normal(bets.Season, naive_scores.season),
    "Regression": _normal(bets.Regression, lambda p: naive_scores.regression(p, 0.998, 0.998, True)),
    "Regression(forgets)": _normal(
        lambda: bets.Regression(0.9, noise=0.8, seasons=False), lambda p: naive_scores.regression(p, 0.9, 0.8, False)
    ),
    "Copula": BetCase(_copula, _copula_beyond, NEAR_ONE, 1, _copula_edges),
    "TwoSided": _bounded(lambda: bets.TwoSided(bets.Markov(6, 0.9))),
    "Idle": _bounded(bets.Idle),
    "SimpleJumper": _bounded(bets.SimpleJumper),
    "CompositeJumper": _bounded(bets.CompositeJumper),
    "GammaMixture": BetCase(bets.GammaMixture, _gamma_beyond),
    "Histogram": _bounded(lambda: bets.Histogram(8)),
    "Tree": _bounded(lambda: bets.Tree(4)),
    "Tree(smooth)": _bounded(lambda: bets.Tree(3, prior="smooth")),
    "Kernel": _bounded(lambda: bets.Kernel(8, 0.9)),
    "Kernel(forgets nothing)": BetCase(lambda: bets.Kernel(32), lambda history: 0.0, depth=6),
    "Markov": _bounded(lambda: bets.Markov(6, 0.95)),
    "Blend": _bounded(lambda: bets.Blend([bets.Kernel(4), bets.Histogram(4), bets.Idle()], [0.5, 0.25, 0.25])),
    "MemoryShare": _bounded(
        lambda: bets.MemoryShare([bets.Kernel(4), bets.SimpleJumper(), bets.Idle()], 0.1, 0.7, [0.5, 0.25, 0.25])
    ),
    "Switching": _bounded(lambda: bets.Switching([bets.Kernel(4), bets.SimpleJumper()], 0.1)),
    "Cautious": _bounded(lambda: bets.Cautious(bets.Kernel(4), factor=1.5, window=6)),
    "Power(0.01)": _power(0.01),
    "Power(0.5)": _power(0.5),
    "Power(1)": _power(1.0),
    "Power(3)": _power(3.0),
    "SimpleMixture": BetCase(bets.SimpleMixture, _mixture_beyond),
    "SleepyJumper": _jumper(0.01, 0.001, 100),
    "SleepyJumper(wide awake)": _jumper(1.0, 1.0, 7),
    "SleepyJumper(never jumps)": _jumper(0.25, 0.0, 12),
    "SleepyJumper(one rung)": _jumper(0.5, 0.5, 1),
    "SleeperStayer": _stayer(0.001, 10),
    "SleeperStayer(wide awake)": _stayer(0.9, 3),
    "SleeperDrifter": _drifter(0.1, 100, 10),
    "SleeperDrifter(wakes often)": _drifter(0.3, 7, 4),
    "SleeperDrifter(every step)": _drifter(0.01, 1, 2),
    "Plugin": BetCase(bets.Plugin, lambda history: 0.0),  # a bounded density
}


class AlarmCase(NamedTuple):
    make: Callable[[], Alarm]
    statistic: Callable[[Sequence[float]], list[float]]  # by definition, of finite log values
    level: float


def _ville(alpha: float) -> AlarmCase:
    return AlarmCase(lambda: alarms.Ville(alpha), list, -math.log(alpha))


ALARMS: dict[str, AlarmCase] = {
    "Ville": _ville(0.01),
    "Ville(0.5)": _ville(0.5),
    "Ville(1e-300)": _ville(1e-300),
    "Cusum": AlarmCase(alarms.Cusum, naive.cusum, math.log(10_000.0)),
    "Cusum(3)": AlarmCase(lambda: alarms.Cusum(3), naive.cusum, math.log(3.0)),
    "ShiryaevRoberts": AlarmCase(alarms.ShiryaevRoberts, naive.shiryaev_roberts, math.log(10_000.0)),
    "ShiryaevRoberts(9)": AlarmCase(lambda: alarms.ShiryaevRoberts(9), naive.shiryaev_roberts, math.log(9.0)),
}

# ------------------------------------------------------------------ the measures, and what they take

Bad = dict[str, tuple[Any, Any, str]]  # X, y (or x, y), and the argument that the message must name


def rows_with_labels(X: Any, y: Any) -> tuple[Any, Any]:
    """Rows of features with labels: what every contract is written in. The others take what they can use of it."""
    return X, y


def rows(X: Any, y: Any) -> tuple[Any, Any]:
    """No labels."""
    return X, None


def rows_with_numbers(X: Any, y: Any) -> tuple[Any, Any]:
    """Labels that are real numbers."""
    return X, [float(ord(label)) if isinstance(label, str) else float(label) / 4 for label in y]


def numbers(X: Any, y: Any) -> tuple[Any, Any]:
    """A stream of single numbers without labels: the first feature."""
    return [float(x[0]) for x in X], None


def numbers_with_labels(X: Any, y: Any) -> tuple[Any, Any]:
    """A stream of single numbers with labels."""
    return [float(x[0]) for x in X], y


GOOD_X, GOOD_Y = [[0.0, 1.0], [2.0, 0.5], [0.0, 1.0]], ["a", "b", "b"]
MIDDLE = np.zeros((700, 2))
MIDDLE[555, 1] = math.nan
BAD_ROWS: Bad = {
    "too narrow": ([[1.0]], ["a"], "X"),
    "too wide": ([[1.0, 2.0, 3.0]], ["a"], "X"),
    "nan": ([[1.0, math.nan]], ["a"], "X"),
    "inf": ([[math.inf, 1.0]], ["a"], "X"),
    "-inf": ([[1.0, 1.0], [-math.inf, 1.0]], ["a", "b"], "X"),
    "nan in the middle": (MIDDLE, ["new label"] * 700, "X"),
    "None inside": ([[None, 1.0]], ["a"], "X"),
    "text": ([["a", "b"]], ["a"], "X"),
    "numbers as text": ([["1", "2"]], ["a"], "X"),
    "bytes": ([[b"1", b"2"]], ["a"], "X"),
    "dates": (np.array([["2012-06-26", "2012-06-27"]], "M8[D]"), ["a"], "X"),
    "complex": ([[1.0 + 2.0j, 1.0]], ["a"], "X"),
    "too large": ([[1e200, 1.0]], ["a"], "X"),
    "an enormous integer": ([[10**400, 1.0]], ["a"], "X"),
    "no features": (np.empty((1, 0)), ["a"], "X"),
    "no features in a list": ([[]], ["a"], "X"),
    "one-dimensional": ([1.0, 2.0], ["a", "b"], "X"),
    "an empty list": ([], [], "X"),
    "three-dimensional": ([[[1.0, 2.0]]], ["a"], "X"),
    "a number": (1.0, ["a"], "X"),
    "a string": ("1.0", ["a"], "X"),
    "nothing": (None, ["a"], "X"),
    "ragged": ([[1.0, 2.0], [1.0]], ["a", "b"], "X"),
    "text among objects": (np.array([["1", 2.0]], object), ["a"], "X"),
    "a masked value": (np.ma.array([[1.0, 2.0]], mask=[[False, True]]), ["a"], "X"),
}
BAD_LABELS: Bad = {
    "no labels": ([[1.0, 2.0]], None, "y"),
    "too few labels": ([[1.0, 2.0], [3.0, 4.0]], ["a"], "y"),
    "too many labels": ([[1.0, 2.0]], ["a", "b"], "y"),
    "labels without examples": (np.empty((0, 2)), ["a"], "y"),
    "nan label": ([[1.0, 2.0], [3.0, 4.0]], ["new label", math.nan], "y"),
    "nan in an array of labels": ([[1.0, 2.0], [3.0, 4.0]], np.array([1.0, math.nan]), "y"),
    "unhashable label": ([[1.0, 2.0], [3.0, 4.0]], ["new label", ["a"]], "y"),
    "array of labels with two columns": ([[1.0, 2.0]], np.array([[1, 2]]), "y"),
    "None label": ([[1.0, 2.0], [3.0, 4.0]], ["new label", None], "y"),
    # regression: TypeError for the next two
    "a label that is no column": ([[1.0, 2.0]], 5, "y"),
    "a label that is an array without dimensions": ([[1.0, 2.0]], np.array(5), "y"),
}
BAD_TABLES: Bad = {**BAD_ROWS, **BAD_LABELS}
BAD_ROW: Bad = {
    "too narrow": ([1.0], "a", "x"),
    "too wide": ([1.0, 2.0, 3.0], "a", "x"),
    "nan": ([1.0, math.nan], "a", "x"),
    "inf": ([1.0, -math.inf], "a", "x"),
    "text": (["a", "b"], "a", "x"),
    "a string": ("ab", "a", "x"),
    "complex": ([1.0j, 1.0], "a", "x"),
    "too large": ([1.0, -1e200], "a", "x"),
    "no features": ([], "a", "x"),
    "two-dimensional": ([[1.0, 2.0]], "a", "x"),
    "a number": (1.0, "a", "x"),
    "nothing": (None, "a", "x"),
    "ragged": ([[1.0], 2.0], "a", "x"),
}
BAD_LABEL: Bad = {
    "no label": ([1.0, 2.0], None, "y"),
    "nan label": ([1.0, 2.0], math.nan, "y"),
    "a list": ([1.0, 2.0], ["a"], "y"),
    "a dictionary": ([1.0, 2.0], {}, "y"),
    "an array": ([1.0, 2.0], np.array([1, 2]), "y"),
}
BAD_EXAMPLES: Bad = {**BAD_ROW, **BAD_LABEL}
BAD_REAL_LABELS: Bad = {
    "no numbers": ([[1.0, 2.0]], None, "y"),
    "too few numbers": ([[1.0, 2.0], [3.0, 4.0]], [1.0], "y"),
    "too many numbers": ([[1.0, 2.0]], [1.0, 2.0], "y"),
    "numbers without examples": (np.empty((0, 2)), [1.0], "y"),
    "nan as a number": ([[1.0, 2.0], [3.0, 4.0]], [1.0, math.nan], "y"),
    "an infinite number": ([[1.0, 2.0], [3.0, 4.0]], [-math.inf, 1.0], "y"),
    "too large a number": ([[1.0, 2.0]], [1e200], "y"),
    "too large an integer": ([[1.0, 2.0]], [10**400], "y"),
    "labels in words": ([[1.0, 2.0], [3.0, 4.0]], ["a", "b"], "y"),
    "labels in digits": ([[1.0, 2.0]], ["1"], "y"),
    "None among numbers": ([[1.0, 2.0], [3.0, 4.0]], [1.0, None], "y"),
    "text among numbers": ([[1.0, 2.0], [3.0, 4.0]], np.array([1.0, "2"], object), "y"),
    "a complex number": ([[1.0, 2.0]], [1.0 + 2.0j], "y"),
    "a masked number": ([[1.0, 2.0]], np.ma.array([1.0], mask=[True]), "y"),
    "a column of width one": ([[1.0, 2.0]], [[1.0]], "y"),
    "ragged numbers": ([[1.0, 2.0], [3.0, 4.0]], [1.0, [2.0]], "y"),
    "a number that is no column": ([[1.0, 2.0]], 5.0, "y"),
}
BAD_REAL_LABEL: Bad = {
    "no number": ([1.0, 2.0], None, "y"),
    "nan as a number": ([1.0, 2.0], math.nan, "y"),
    "an infinite number": ([1.0, 2.0], math.inf, "y"),
    "too large a number": ([1.0, 2.0], -1e200, "y"),
    "a word": ([1.0, 2.0], "a", "y"),
    "a digit as text": ([1.0, 2.0], "1", "y"),
    "a complex number": ([1.0, 2.0], 1.0j, "y"),
    "a list of one": ([1.0, 2.0], [1.0], "y"),
    "two numbers": ([1.0, 2.0], np.array([1.0, 2.0]), "y"),
    "a mapping": ([1.0, 2.0], {}, "y"),
}
BAD_NUMBERS: Bad = {
    "nan": ([1.0, math.nan], None, "X"),
    "inf": ([math.inf], None, "X"),
    "-inf": ([0.5, -math.inf, 1.0], None, "X"),
    "nan in the middle": (MIDDLE[:, 1], None, "X"),
    "None inside": ([1.0, None], None, "X"),
    "text": (["a", "b"], None, "X"),
    "numbers as text": (["1", "2"], None, "X"),
    "bytes": ([b"1"], None, "X"),
    "dates": (np.array(["2012-06-26"], "M8[D]"), None, "X"),
    "complex": ([1.0 + 2.0j], None, "X"),
    "an enormous integer": ([1.0, 10**400], None, "X"),
    "a column of width one": ([[1.0], [2.0]], None, "X"),
    "rows": ([[1.0, 2.0]], None, "X"),
    "a number": (1.0, None, "X"),
    "a string": ("1.0", None, "X"),
    "nothing": (None, None, "X"),
    "ragged": ([[1.0, 2.0], [1.0]], None, "X"),
    "text among objects": (np.array(["1", 2.0], object), None, "X"),
    "a masked value": (np.ma.array([1.0, 2.0], mask=[False, True]), None, "X"),
}
BAD_NUMBER: Bad = {
    "nan": (math.nan, None, "x"),
    "inf": (-math.inf, None, "x"),
    "text": ("a", None, "x"),
    "a number as text": ("1", None, "x"),
    "complex": (1.0j, None, "x"),
    "an enormous integer": (10**400, None, "x"),
    "a list": ([1.0], None, "x"),
    "a row": ([1.0, 2.0], None, "x"),
    "an array": (np.array([[1.0]]), None, "x"),
    "nothing": (None, None, "x"),
}
GOOD_FRESH = {"too narrow", "too wide"}  # refused by a measure that knows the width, lawful at the start


class MeasureCase(NamedTuple):
    """A measure, what it takes of rows with labels (example by example), and what it must refuse.

    ``within``: the newest is ranked among the examples of its own label only, and ``n`` is their number.
    """

    make: Callable[[], Measure]
    takes: Callable[[Any, Any], tuple[Any, Any]] = rows_with_labels
    bad_tables: Bad = BAD_TABLES
    bad_examples: Bad = BAD_EXAMPLES
    within: bool = False

    def ranks(self, measure: Measure, X: Any, y: Any, cuts: Sequence[int] | None = None) -> Counts:
        """What it says of rows with labels, in pieces if cuts are given."""
        return ranked_in_pieces(measure, *self.takes(X, y), [len(y)] if cuts is None else cuts)

    def n(self, y: Sequence[Hashable]) -> list[int]:
        """The ``n`` that its ranks must show."""
        return [list(y[:i]).count(y[i - 1]) if self.within else i for i in range(1, len(y) + 1)]


def _unlabelled(make: Callable[[], Measure]) -> MeasureCase:
    return MeasureCase(make, rows, BAD_ROWS, BAD_ROW)


def _regression(make: Callable[[], Measure]) -> MeasureCase:
    tables = {name: (X, [1.0] * len(y), argument) for name, (X, y, argument) in BAD_ROWS.items()}
    examples = {name: (x, 1.0, argument) for name, (x, _, argument) in BAD_ROW.items()}
    return MeasureCase(make, rows_with_numbers, {**tables, **BAD_REAL_LABELS}, {**examples, **BAD_REAL_LABEL})


def _numeric(make: Callable[[], Measure]) -> MeasureCase:
    return MeasureCase(make, numbers, BAD_NUMBERS, BAD_NUMBER)


def _within(make: Callable[[], Measure]) -> MeasureCase:
    return MeasureCase(lambda: measures.Conditional(make()), within=True)


def _numeric_within(make: Callable[[], Measure]) -> MeasureCase:
    tables = {name: (X, ["a"], argument) for name, (X, _, argument) in BAD_NUMBERS.items()}
    labels = {name: (*numbers_with_labels(X, y), argument) for name, (X, y, argument) in BAD_LABELS.items()}
    examples = {name: (x, "a", argument) for name, (x, _, argument) in BAD_NUMBER.items()}
    label = {name: (x[0], y, argument) for name, (x, y, argument) in BAD_LABEL.items()}
    make_within = _within(make).make
    return MeasureCase(make_within, numbers_with_labels, {**tables, **labels}, {**examples, **label}, within=True)


MEASURES: dict[str, MeasureCase] = {
    "NearestNeighbour": MeasureCase(measures.NearestNeighbour),
    "NearestNeighbour(3)": MeasureCase(lambda: measures.NearestNeighbour(3)),
    "NearestDistance": _unlabelled(measures.NearestDistance),
    "NearestDistance(3)": _unlabelled(lambda: measures.NearestDistance(3)),
    "NearestResidual": _regression(measures.NearestResidual),
    "NearestResidual(3)": _regression(lambda: measures.NearestResidual(3)),
    "Value": _numeric(measures.Value),
    "Frozen": _numeric(measures.Frozen),
    "Frozen(bins)": _numeric(lambda: measures.Frozen(bins=8, reference=[0.0, 0.1, 0.2, 0.3, 1.0, 2.0])),
    "Frozen(function)": MeasureCase(lambda: measures.Frozen(lambda X, y: np.asarray(X)[:, 0]), rows, {}, {}),
    "Conditional(NearestNeighbour)": _within(measures.NearestNeighbour),
    "Conditional(NearestDistance)": _within(lambda: measures.NearestDistance(2)),
    "Conditional(Value)": _numeric_within(measures.Value),
    "Conditional(Frozen)": _numeric_within(lambda: measures.Frozen(bins=4, reference=[0.0, 1.0, 2.0, 3.0])),
}

# ------------------------------------------------------------------ what they are tried on

P_VALUES = st.one_of(
    st.sampled_from([1.0, 0.5, 0.25, 1e-3, 1e-300, TINY, math.nextafter(1.0, 0.0)]),
    st.floats(min_value=0.0, max_value=1.0, exclude_min=True),
    st.floats(min_value=0.0, max_value=700.0).map(lambda t: math.exp(-t)),
)


def _repeated(values: list[float], times: int) -> list[float]:
    return values * times


HISTORIES = st.one_of(
    st.lists(P_VALUES, max_size=40),
    st.builds(_repeated, st.lists(P_VALUES, min_size=1, max_size=3), st.integers(1, 40)),
)
CUTS = st.lists(st.integers(0, 6), min_size=1, max_size=40)  # 0: one by one; k: a batch of k

BAD_P: list[Any] = [
    0.0,
    -0.0,
    -0.1,
    1.0000001,
    math.nextafter(1.0, 2.0),
    math.nan,
    math.inf,
    -math.inf,
    None,
    "a",
    "",
    "0.5",
    b"0.5",
    0.5 + 0.5j,
    [0.5],
    [[0.5]],
    np.array([0.5, 0.5]),
    {},
    Ellipsis,
]
BAD_P_COLUMNS: list[Any] = [
    [0.0],
    [0.5, 0.25, -0.1, 0.75],
    [0.5, math.nan, 0.5],
    [0.5, 0.5, 1.0000001],
    [math.inf],
    [-math.inf, 0.5],
    [None],
    None,
    "a",
    ["a", "b"],
    ["0.5"],
    np.array(["0.5"], object),
    np.ma.array([0.5, 0.5], mask=[False, True]),
    [0.5 + 0.5j],
    [[0.5, 0.5]],
    np.full((2, 2), 0.5),
    np.full((2, 0), 0.5),
    [[0.5], [0.5, 0.25]],
    {},
    Ellipsis,
]
# They convert to a float by dropping something, or overflow on the way, or are a scalar that passes for a column.
SLY_P: list[Any] = [np.complex128(0.5 + 0.5j), 10**400]
SLY_P_COLUMNS: list[Any] = [np.array([0.5 + 0.5j]), [0.5, 10**400], 0.5]


def grid_examples(
    max_size: int = 14, min_size: int = 1, labels: str = "aabc"
) -> st.SearchStrategy[list[tuple[list[float], str]]]:
    """Examples on a coarse grid: ties and duplicates are the rule, at the start too; sometimes one label only."""
    coordinate = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 0.1, 0.2, 0.30000000000000004, -1.0])

    def examples(width: int, letters: str, clones: int) -> st.SearchStrategy[list[tuple[list[float], str]]]:
        row = st.lists(coordinate, min_size=width, max_size=width)
        rest = st.lists(st.tuples(row, st.sampled_from(letters)), min_size=min_size, max_size=max_size)
        first = st.lists(st.tuples(st.just([0.0] * width), st.sampled_from(letters)), max_size=clones)
        return st.tuples(first, rest).map(lambda pair: pair[0] + pair[1])

    shapes = st.tuples(st.integers(1, 3), st.sampled_from([labels, labels[:1]]), st.sampled_from([0, 5]))
    return shapes.flatmap(lambda shape: examples(*shape))


# ------------------------------------------------------------------ state


def state(thing: Any) -> Any:
    """Everything an object holds, as nested plain data that can be compared with ``==``."""
    if isinstance(thing, np.ndarray):
        return ("array", str(thing.dtype), thing.shape, thing.tobytes())
    if isinstance(thing, dict):
        return {key: state(value) for key, value in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [state(value) for value in thing]
    if hasattr(thing, "__dict__"):
        return (type(thing).__name__, {name: state(value) for name, value in vars(thing).items()})
    return repr(thing) if isinstance(thing, float) else thing  # repr tells -0.0 from 0.0, and nan is equal to nan


def same_bits(left: Any, right: Any) -> bool:
    """Equal to the last bit, as columns of doubles."""
    a, b = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def refused(call: Callable[[], object], *things: Any) -> str:
    """The call raises ValueError and leaves the things as they were; its message."""
    before = [state(thing) for thing in things]
    try:
        call()
    except ValueError as error:
        assert [state(thing) for thing in things] == before, "a refused call changed the state"
        return str(error)
    raise AssertionError("nothing was raised")


def check_saved_and_loaded_it_continues(thing: Any, go_on: Callable[[Any], Any]) -> None:
    """Bit for bit: what it says of the rest of the stream, and then its state."""
    data = snapshot.encode(thing)
    twin = snapshot.decode(data, score=getattr(thing, "score", None))
    assert snapshot.encode(twin) == snapshot.encode(thing) == data
    assert go_on(twin) == go_on(thing), "loaded, it does not continue like the original"
    assert snapshot.encode(twin) == snapshot.encode(thing)


# ------------------------------------------------------------------ bets

_COARSE = (0.2, 0.4, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 24.0, 48.0, 96.0, 192.0, 384.0, 700.0)
_FEW, _MANY = (list(zip(*np.polynomial.legendre.leggauss(size), strict=True)) for size in (6, 32))
_TOWARDS_ONE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2)


def integral(log_density: Callable[[float], float], case: BetCase, history: Sequence[float]) -> float:
    """Of the density over (0, 1], in t = -log p: ``int f(e^-t) e^-t dt`` by Gauss-Legendre; the rest is given."""
    jumps = {-math.log(j / 2.0**case.depth) for j in range(1, 2**case.depth + 1)}
    holes = [(-math.log(high), -math.log(low)) for low, high in case.holes(history)]
    more = {-math.log(p) for p in case.edges(history)} | {t for hole in holes for t in hole}
    near_one = _TOWARDS_ONE if case.start else ()
    edges = sorted(t for t in {case.start, *jumps, *more, *_COARSE, *near_one} if t >= case.start)
    total = [case.beyond(history)]
    for low, high in pairwise(edges):
        if any(left <= low and high <= right for left, right in holes):
            continue
        for node, weight in _FEW if high < 1.2 * low else _MANY:
            t = 0.5 * (low + high) + 0.5 * (high - low) * node
            total.append(0.5 * (high - low) * weight * math.exp(log_density(math.exp(-t)) - t))
    return math.fsum(total)


def check_integrates_to_one(bet: Bet, case: BetCase, history: Sequence[float], tolerance: float = 1e-9) -> None:
    whole = integral(bet.log_density, case, history)
    assert abs(whole - 1.0) < tolerance, f"the bet integrates to {whole!r}"


def check_log_density_is_pure(bet: Bet, probes: Iterable[float]) -> None:
    before = state(bet)
    for p in probes:
        first = bet.log_density(p)
        assert isinstance(first, float)
        assert bet.log_density(p) == first
    assert state(bet) == before


def check_log_density_is_the_bet_placed(bet: Bet, p: float) -> None:
    said = bet.log_density(p)
    assert same_bits(bet.extend([p]), [said])


def check_copies_learn_apart(bet: Bet, p: Sequence[float]) -> None:
    before, twin = state(bet), copy.deepcopy(bet)
    learnt = twin.extend(p)
    assert state(bet) == before, "a copy taught its original"
    assert same_bits(bet.extend(p), learnt), "a copy does not continue like its original"
    assert state(bet) == state(twin)


def check_bet_refuses(bet: Bet, p: Any) -> None:
    assert refused(lambda: bet.log_density(p), bet).startswith("p must")
    assert refused(lambda: bet.update(p), bet).startswith("p must")


def check_bet_refuses_column(bet: Bet, p: Any) -> None:
    assert refused(lambda: bet.extend(p), bet).startswith("p must")


# ------------------------------------------------------------------ batches


def in_pieces(length: int, cuts: Sequence[int]) -> list[tuple[int, int, bool]]:
    """(start, stop, one by one?) until ``length`` is used up, the cuts taken round and round."""
    pieces, start, k = [], 0, 0
    if not any(cuts):
        cuts = [*cuts, 0]
    while start < length:
        size = cuts[k % len(cuts)]
        stop = min(start + max(size, 1), length)
        pieces.append((start, stop, size == 0))
        start, k = stop, k + 1
    return pieces


def bet_in_pieces(bet: Bet, p: Sequence[float], cuts: Sequence[int]) -> Floats:
    """Log f_i(p_i) by log_density then update, or by batches."""
    gains: list[float] = []
    for start, stop, single in in_pieces(len(p), cuts):
        if single:
            gains.append(bet.log_density(p[start]))
            bet.update(p[start])
        else:
            gains.extend(bet.extend(p[start:stop]).tolist())
    return np.array(gains)


def ranked_in_pieces(measure: Measure, X: Sequence[Any], y: Sequence[Any] | None, cuts: Sequence[int]) -> Counts:
    """Ranks by update, or by batches; without labels where there are none."""
    counts: Counts = []
    for start, stop, single in in_pieces(len(X), cuts):
        if single:
            rank = measure.update(X[start]) if y is None else measure.update(X[start], y[start])
            counts.append((rank.greater, rank.equal, rank.n))
        else:
            ranks = measure.extend(X[start:stop]) if y is None else measure.extend(X[start:stop], y[start:stop])
            counts.extend(zip(*(column.tolist() for column in ranks), strict=True))
    return counts


# ------------------------------------------------------------------ measures


def check_order_does_not_matter(
    case: MeasureCase, examples: Sequence[tuple[Sequence[float], Hashable]], order: Sequence[int], singly: bool
) -> None:
    """The validity condition: the newest example's rank depends on the bag of the earlier ones only."""
    shuffled = [examples[i] for i in order] + [examples[-1]]
    assert _last_rank(case, examples, False) == _last_rank(case, shuffled, singly)


def _last_rank(
    case: MeasureCase, examples: Sequence[tuple[Sequence[float], Hashable]], singly: bool
) -> tuple[int, int, int]:
    X, y = [list(x) for x, _ in examples], [label for _, label in examples]
    return case.ranks(case.make(), X, y, [0] if singly else None)[-1]


def check_inputs_stay_the_callers(case: MeasureCase, X: Floats, y: Sequence[Hashable], more: Floats) -> None:
    """The measure changes no argument, and keeps none: what the caller does to it later is not seen."""
    taken, labels = case.takes(X, y)
    mine, given = np.array(taken), None if labels is None else list(labels)
    measure = case.make()
    measure.extend(mine, given)
    assert mine.tobytes() == np.array(taken).tobytes(), "the measure changed its argument"
    assert given == (None if labels is None else list(labels))
    mine[:] = 0.0
    untroubled = case.make()
    case.ranks(untroubled, X, y)
    assert case.ranks(measure, more, y) == case.ranks(untroubled, more, y), "the measure kept its argument"


def check_copies_of_a_measure_learn_apart(case: MeasureCase, X: Floats, y: Sequence[Hashable], more: Floats) -> None:
    measure = case.make()
    case.ranks(measure, X, y)
    before, twin = state(measure), copy.deepcopy(measure)
    learnt = case.ranks(twin, more, y)
    assert state(measure) == before, "a copy taught its original"
    assert case.ranks(measure, more, y) == learnt, "a copy does not continue like its original"


# ------------------------------------------------------------------ alarms


def check_alarm_is_its_definition(case: AlarmCase, log_values: Sequence[float]) -> None:
    """Wherever rounding cannot decide."""
    alarm = case.make()
    got = [alarm.update(value) for value in log_values]
    assert all(isinstance(sound, bool) for sound in got)
    for sound, statistic in zip(got, case.statistic(log_values), strict=True):
        if abs(statistic - case.level) > 1e-9:
            assert sound == (statistic >= case.level)
