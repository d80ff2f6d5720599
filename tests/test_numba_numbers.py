"""The numbers of version 0.1, whose kernels were compiled by numba: those of today must agree with them.

Ranks and p-values agree exactly, and log10 S within 1e-13 x max(1, |log10 S|), which is what other last digits of exp,
log and cos may change. The fixture holds the p-values too; how it was made stands in tests/data/README.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from exchangeable import Martingale, Monitor, Precomputed, PValues, alarms, bets, measures
from exchangeable.keyed import Monitors
from first_version import first_version

Floats = NDArray[np.float64]
FIXTURE = Path(__file__).parent / "data" / "numba.npz"
EVERY, LONG = 25, 10_000
ROWS = 600  # of each table
STREAMS = ("uniform", "Beta(1/2, 1)", "Beta(1, 2)", "tiny and one", "alternating", "ranks with a change")
BETS = (
    "Plugin()",
    "Beta()",
    "Beta(switching=0.3, size=4, reach=1.0)",
    "Idle()",
    "SimpleJumper()",
    "CompositeJumper()",
    "Power(epsilon=0.5)",
    "Power(epsilon=3.0)",
    "SimpleMixture()",
    "GammaMixture()",
    "GammaMixture(shape=2.5, rate=0.5)",
    "Histogram()",
    "Tree(depth=10)",
    "Tree(depth=3, prior='smooth')",
    "Tree(depth=10, prior='smooth')",
    "Kernel()",
    "Kernel(order=8, forgetting=0.9)",
    "Kernel(order=32)",
    "Markov()",
    "Markov(order=6, forgetting=0.95)",
    "Blend(bets=[Kernel(order=4), Histogram(bins=4), Idle()], weights=[0.5, 0.25, 0.25])",
    "Switching(bets=[Kernel(order=4), SimpleJumper()], share=0.1)",
    "Cautious(bet=Kernel(order=4), factor=1.5, window=6)",
    "Cautious(bet=SimpleMixture(), factor=2.0)",
)
LIMITS = {"bet Beta()": 2e-13}  # numba's numbers themselves are 1.2e-13 off: the shapes of its grid were rounded twice
KEYED = (
    "CompositeJumper()",
    "GammaMixture()",
    "Histogram()",
    "Power(epsilon=0.5)",
    "SimpleJumper()",
    "SimpleMixture()",
)
ALARMS = ("Cusum()", "ShiryaevRoberts()")


def capital(bet: str, p: Floats) -> Floats:
    """Log10 S of a bet after every 25th p-value of each stream."""
    return np.array([Martingale(made(bets, bet)).extend(stream)[EVERY - 1 :: EVERY] for stream in p]) / math.log(10.0)


def long_run(bet: str, p: Floats) -> Floats:
    """Log10 S after 10,000 steps of each stream, which is repeated."""
    return np.array([Martingale(made(bets, bet)).extend(np.resize(s, LONG))[-1] for s in p]) / math.log(10.0)


def statistic(alarm: str, p: Floats) -> Floats:
    """An alarm's statistic after every 25th of some log values."""
    out = np.empty(p.shape)
    for stream, statistics in zip(p, out, strict=True):
        made(alarms, alarm)._log_statistic(np.cumsum(1.25 * (0.5 - stream)), statistics)
    return out[:, EVERY - 1 :: EVERY]


# ------------------------------------------------------------------ measures


def ties(p: Floats) -> Floats:
    """A table with many ties."""
    return np.floor(8.0 * p[0, : 3 * ROWS].reshape(ROWS, 3)) / 8.0


def wide(p: Floats) -> Floats:
    """A wide table with some duplicates, and features of 1e-300."""
    X = p[:4].reshape(-1, 12)[-ROWS:].copy()
    X[500:600] = X[100:200]
    return X


def labels(p: Floats) -> list[str]:
    return ["abc"[int(3.0 * value)] for value in p[4, :ROWS]]


def with_labels(X: Floats, p: Floats) -> tuple[Any, ...]:
    return X, labels(p)


def with_values(X: Floats, p: Floats) -> tuple[Any, ...]:
    return X, np.floor(32.0 * p[4, :ROWS]) / 4.0


def rows(X: Floats, p: Floats) -> tuple[Any, ...]:
    return (X,)


def numbers(X: Floats, p: Floats) -> tuple[Any, ...]:
    return (X[:, 0],)


def numbers_with_labels(X: Floats, p: Floats) -> tuple[Any, ...]:
    return X[:, 0], labels(p)


MEASURES: dict[str, Callable[[Floats, Floats], tuple[Any, ...]]] = {  # and what they take
    "NearestNeighbour()": with_labels,
    "NearestNeighbour(k=3)": with_labels,
    "NearestDistance()": rows,
    "NearestDistance(k=3)": rows,
    "NearestResidual()": with_values,
    "NearestResidual(k=3)": with_values,
    "Value()": numbers,
    "Frozen()": numbers,
    "Frozen(bins=4, reference=[0.0, 0.1, 0.2, 0.3, 0.5, 0.9])": numbers,
    "Frozen(lambda X, y: X[:, 1])": rows,
    "Conditional(measure=NearestNeighbour())": with_labels,
    "Conditional(measure=NearestDistance(k=2))": with_labels,
    "Conditional(measure=Value())": numbers_with_labels,
}


def ranks(measure: str, table: Callable[[Floats], Floats], p: Floats) -> NDArray[np.int16]:
    """How many scores are greater than, and equal to, that of each example."""
    found = made(measures, measure).extend(*MEASURES[measure](table(p), p))
    return np.array([found.greater, found.equal]).astype(np.int16)


def p_values(p: Floats) -> Floats:
    """Ties broken by the generator of thetas."""
    return PValues(measures.Value(), seed=2**63 + 5).extend(ties(p)[:, 0])


# ------------------------------------------------------------------ many streams


def keyed(bet: str, measure: Any, p: Floats) -> Floats:
    """Log10 S of five streams that begin again after alarms, in three calls."""
    recipe = Monitor(measure, made(bets, bet), alarms.Cusum(2000.0), on_alarm="restart")
    monitors, found = Monitors(recipe, seed=3), []
    for call in np.array_split(np.arange(3000), 3):
        rows = monitors.extend(call % 5, call // 5, p[3, call] if isinstance(measure, Precomputed) else p[5, call])
        found.append(rows.log_value)
    return np.concatenate(found)[::10] / math.log(10.0)


def events(alarm: str, p: Floats) -> NDArray[np.int64]:
    """What became of events of which some are missing, late, repeated or contradict others."""
    recipe = Monitor(measures.Value(), bets.CompositeJumper(), made(alarms, alarm), on_alarm="restart")
    monitors, found = Monitors(recipe, seed=3, most=256), []
    for call in np.array_split(np.arange(2000), 4):
        keys, order = call % 7, np.floor(call / 7 + 12.0 * p[0, call] ** 8)
        rows = monitors.extend(keys, order.astype(np.int64), np.floor(300.0 * p[5, call]))
        whole = rows.key, rows.order, rows.kind, rows.n, rows.alarm, rows.changepoint, rows.count, rows.test
        found.append(np.stack([np.asarray(column).astype(np.int64) for column in whole]))
    return np.concatenate(found, axis=1)


# ------------------------------------------------------------------ all of them


def made(module: Any, call: str) -> Any:
    """What a call in a module gives: `made(bets, "Tree(depth=4)")`."""
    return eval(call, vars(module))


def first_adaptive(p: Floats) -> Floats:
    """Log10 S of the first version of `Adaptive`, with which the benchmarks compare the present one."""
    return np.array([first_version(stream)[EVERY - 1 :: EVERY] for stream in p]) / math.log(10.0)


NUMBERS: dict[str, Callable[[Floats], NDArray[Any]]] = {
    "bet Adaptive()": first_adaptive,
    **{f"bet {bet}": partial(capital, bet) for bet in BETS},
    **{f"long run of {bet}": partial(long_run, bet) for bet in ("Plugin()",)},
    **{f"alarm {alarm}": partial(statistic, alarm) for alarm in ALARMS},
    **{f"ties {measure}": partial(ranks, measure, ties) for measure in MEASURES},
    **{f"wide {measure}": partial(ranks, measure, wide) for measure in MEASURES if "Value" not in measure},
    "p-values": p_values,
    **{f"keyed {bet}": partial(keyed, bet, measures.Value()) for bet in KEYED},
    **{f"keyed p-values {bet}": partial(keyed, bet, Precomputed()) for bet in ("CompositeJumper()", "SimpleMixture()")},
    **{f"events {alarm}": partial(events, alarm) for alarm in ("Ville(0.5)", "Cusum(20.0)", "ShiryaevRoberts(60.0)")},
}


@pytest.fixture(scope="module")
def numba() -> dict[str, NDArray[Any]]:
    with np.load(FIXTURE) as file:
        return dict(file)


def test_every_number_is_there(numba: dict[str, NDArray[Any]]) -> None:
    assert set(numba) == {"p", *NUMBERS}
    assert numba["p"].shape == (len(STREAMS), 3000)


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_are_those_of_numba(name: str, numba: dict[str, NDArray[Any]]) -> None:
    expected, got = numba[name], NUMBERS[name](numba["p"])
    assert got.shape == expected.shape
    if expected.dtype.kind == "i" or name == "p-values":
        np.testing.assert_array_equal(got, expected)
    else:
        assert np.isfinite(expected[~np.isnan(expected)]).all()
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))  # of rows that are no steps
        worst = np.nanmax(np.abs(got - expected) / np.maximum(1.0, np.abs(expected)))
        assert worst <= LIMITS.get(name, 1e-13)
