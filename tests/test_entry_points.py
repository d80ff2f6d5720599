"""The certificate of the entry points: none is broken, and each defect that there was, switched on again, is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike

pytest.importorskip("river", reason="the extra 'river' is not installed")
pytest.importorskip("sklearn", reason="the extra 'sklearn' is not installed")
pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
import false_alarms
from entry_points import LIVE, LIVE_TEMPTING, ONE_FOR_BOTH, SCENARIOS, TEMPTING, any_seed, growing_table
from exchangeable import bets, measures
from exchangeable.analysis import run
from exchangeable.data import schema
from exchangeable.data.table import TableColumn
from exchangeable.data.values import Column
from exchangeable.measures import frozen
from exchangeable.protocols import Floats
from false_alarms import LEVELS, Outcome, Scenario, judge

Generator = np.random.Generator
SHARE = 0.02  # of the runs of the certificate


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of the linear algebra cost more than they save on small matrices, above all on busy machines."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # of scikit-learn

    with threadpool_limits(1):
        yield


def is_broken(play: Callable[[Generator], Outcome], runs: int = 30) -> bool:
    """What the certificate would say of it."""
    return bool(judge([Scenario("an entry point", "data", play, runs)]).broken)


def play_of(entry: str, scenarios: list[Scenario] = SCENARIOS) -> Callable[[Generator], Outcome]:
    (play,) = {one.play for one in scenarios if one.entry == entry}
    return play


@pytest.mark.parametrize("scenario", [*SCENARIOS, *LIVE], ids=lambda one: one.name)
def test_every_entry_point_keeps_its_level(scenario: Scenario) -> None:
    assert not judge([scenario], share=SHARE).broken


def test_the_names_are_different() -> None:
    names = [one.name for one in (*SCENARIOS, *TEMPTING, *LIVE, *LIVE_TEMPTING)]
    assert len({*names}) == len(names)


def test_nothing_is_drawn_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise AssertionError("a seed was drawn from the system")

    import_module("exchangeable.service.lifecycle")  # it must not import the function that is replaced below
    monkeypatch.setattr("exchangeable.pvalues.draw_seed", refused)
    monkeypatch.setattr("exchangeable.shift.draw_seed", refused)
    for one in (*SCENARIOS, *LIVE, *TEMPTING[:1]):
        one.play(np.random.default_rng(0))


# ------------------------------------------------------------------ the defects


@pytest.mark.filterwarnings("ignore:score gives single rows and batches different outputs")
def test_scores_that_depend_on_the_batch_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model is no part of this test: whether its last bits differ depends on the machine."""
    play = play_of("`measures.Frozen`, function")
    assert not is_broken(play)
    monkeypatch.setattr(frozen, "round_outputs", lambda values, scale=1.0: np.asarray(values, np.float64))
    with pytest.warns(UserWarning, match="single rows and batches different outputs"):
        assert is_broken(play)


def test_a_wait_that_counts_observations_is_caught() -> None:
    assert is_broken(play_of("late labels, the oldest of 300 left out", TEMPTING), 10)


@pytest.mark.parametrize(
    "entry", ["`fleet.e_bh`, K so far", "`fleet.e_bh`, K of those left", "`fleet.e_bh`, K of those left, adjusted"]
)
def test_a_fleet_that_is_counted_while_it_changes_is_caught(entry: str) -> None:
    assert is_broken(play_of(entry, TEMPTING), 100)


def test_a_table_that_is_tested_while_it_grows_is_caught() -> None:
    """Whoever takes the promise for one of "ever"."""
    looks = range(25, 201, 25)
    assert not is_broken(partial(growing_table, looks[-1:], bets.Kernel), 30)
    assert is_broken(partial(growing_table, looks, bets.Kernel), 30)


def test_one_seed_for_everybody_is_caught_by_constant_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that are all equal have nothing but theta: with some seeds they were rejected, for every user alike."""
    equal = [2.5] * 100
    peaks = ((ex.Monitor(measures.Value(), seed=seed).extend(equal).log_value.max(), seed) for seed in range(400))
    unlucky = next(seed for peak, seed in peaks if peak >= math.log(20.0))

    def play(rng: Generator) -> Outcome:
        return ex.test(
            rng.normal(size=100), measure=measures.Frozen(lambda X, y: np.zeros(len(X))), seed=unlucky
        ).p_value

    assert not is_broken(play, 10)
    monkeypatch.setattr(run, "all_equal", lambda *table: False)
    assert is_broken(play, 10)


def test_one_seed_for_everybody_is_caught_by_single_p_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The p-value of the last of 28 examples, which is 0 or 1: the 28th theta of seed 0 is small."""

    def play(rng: Generator) -> Outcome:
        x = rng.permutation([0.0, 1.0, *(rng.random(26) < 0.1)])  # never constant
        return float(ex.test(x, bet=bets.Idle()).path.p[-1])

    assert not is_broken(play, 200)
    monkeypatch.setattr(run, "table_seed", lambda table: 0)
    assert is_broken(play, 200)


def test_rows_with_equal_times_in_the_order_of_the_file_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    play = play_of("`ex.test(order=)`")
    assert not is_broken(play)
    monkeypatch.setattr(schema, "thetas", lambda seed, start, stop, stream: np.arange(stop - start))
    assert is_broken(play)


def test_missing_values_that_are_filled_with_earlier_ones_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever fills forwards looks at the order: a row is then more similar to the ones before it than by chance."""

    def play(rng: Generator) -> Outcome:
        x = np.where(rng.random(200) < 0.7, np.nan, rng.normal(size=200))
        return ex.test({"x": x}, bet=bets.Markov()).p_value

    def fill_forwards(columns: list[Column]) -> list[TableColumn]:
        return [TableColumn(each.name, pd.Series(each.values).ffill().bfill().to_numpy()) for each in columns]

    assert not is_broken(play)
    monkeypatch.setattr(schema, "encode", fill_forwards)
    assert is_broken(play)


# ------------------------------------------------------------------ a stratified split


class EqualShares:
    """A bet that expects as many zeros as ones among the next ``size`` examples. Ones have small p-values."""

    def __init__(self, size: int) -> None:
        self.left = [size / 2.0, size / 2.0]  # ones, zeros

    def log_density(self, p: float) -> float:
        expected = 2.0 * self.left[p > 0.5] / sum(self.left) if min(self.left) > 0.0 else 1.0
        return math.log(0.1 + 0.9 * expected)

    def update(self, p: float) -> None:
        self.left[p > 0.5] -= 1.0

    def extend(self, p: ArrayLike) -> Floats:
        gains = []
        for each in np.asarray(p, np.float64).tolist():
            gains.append(self.log_density(each))
            self.update(each)
        return np.array(gains)


def test_a_stratified_split_is_not_a_random_one() -> None:
    """Labels that agree better than by chance: the promise is one of random splits, and a bet can tell the two."""

    def play(stratified: bool, rng: Generator) -> Outcome:
        pool = np.tile([0.0, 1.0], 200)  # whose halves have equal shares
        sets = np.split(pool if stratified else rng.permutation(pool), 2)
        return ex.compare(*sets, bet=EqualShares(200), seed=any_seed(rng)).p_value

    assert not is_broken(partial(play, False), 100)
    assert is_broken(partial(play, True), 100)


# ------------------------------------------------------------------ the counting


def uniform(rng: Generator) -> Outcome:
    return float(rng.random())


def too_small(rng: Generator) -> Outcome:
    return float(rng.random() ** 1.5)


def test_a_level_just_kept_and_one_exceeded() -> None:
    assert not is_broken(uniform, 2000)
    assert is_broken(too_small, 2000)
    assert is_broken(lambda rng: {level: float(rng.random()) ** 2.0 < level for level in LEVELS}, 200)


def test_what_looks_broken_is_counted_again_on_fresh_data() -> None:
    made: list[float] = []

    def play(rng: Generator) -> Outcome:
        made.append(float(rng.random()))
        return made[-1] if len(made) > 50 else 0.0  # bad luck in the first 50 runs

    found = judge([Scenario("an entry point", "data", play, 50)])
    assert [one.alarms for one in found.counted] == [(50, 50, 50)]
    assert [one.runs for one in found.again] == [200]
    assert found.broken == []
    assert len({*made}) == 250


def test_processes_change_nothing() -> None:
    chosen = [Scenario("a", "b", uniform, 70), Scenario("c", "d", too_small, 30)]
    assert false_alarms.count(chosen, 3, processes=2) == false_alarms.count(chosen, 3)


@pytest.mark.parametrize("play", [uniform, too_small])
def test_the_section(play: Any) -> None:
    found = judge([Scenario("an entry point", "data", play, 2000)])
    text = false_alarms.section(false_alarms.ENTRY_POINTS, found, false_alarms.count(TEMPTING[-1:], 0, SHARE))
    assert ("**BROKEN: an entry point, data.**" in text) == (play is too_small)
    assert ("| an entry point | data | 2,000 | **" in text) == (play is too_small)
    assert f"| {TEMPTING[-1].entry} | " in text.split("### Not promised")[1]


def test_rows_that_fix_constants_and_fill_pools_are_caught() -> None:
    assert is_broken(play_of(ONE_FOR_BOTH, LIVE_TEMPTING), 15)
