"""The script that measures invalid recipes: what it calls exact keeps the promise, what it calls invalid breaks it."""

from __future__ import annotations

import math
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

import invalid_recipes
import naive
from invalid_recipes import ALPHA, EXACT, FLEETS, INVALID, RECIPES, STEPS, STREAMS, Counts, counted, doublings

SIGNIFICANT = 1e-3
QUIET = {  # no bet of ours finds what is wrong, or only in many runs
    "sliding window: the last 100",
    "the best of 5 thetas",
    "the average over 5 thetas",
}


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """One bet, to save time."""
    name: str = request.param
    monkeypatch.setattr(invalid_recipes, "BETS", {name: invalid_recipes.BETS[name]})
    return name


def false_alarms(name: str, runs: int) -> int:
    """Of one recipe, with the only bet."""
    total = counted(invalid_recipes.alarms, name, range(runs))
    return int(total[invalid_recipes.together(name).index(name), 0])


def more_than_promised(count: int, runs: int) -> float:
    return float(binomtest(count, runs, ALPHA, alternative="greater").pvalue)


KEPT = [
    ("growing ranks", "SimpleJumper", 150),
    ("growing ranks", "Plugin", 60),
    ("growing ranks", "Adaptive", 60),
    ("growing ranks, coarse scores, theta", "SimpleJumper", 150),
    ("growing ranks, coarse scores, theta", "Adaptive", 60),
    ("the best of 5 thetas, each with a share of 1/5", "SimpleJumper", 50),
    ("the best of 5 measures, each with a share of 1/5", "SimpleJumper", 50),
]


@pytest.mark.parametrize(("name", "only", "runs"), KEPT, indirect=["only"])
def test_exact_recipes_keep_the_promise(name: str, only: str, runs: int) -> None:
    assert more_than_promised(false_alarms(name, runs), runs) > SIGNIFICANT


LOUD = [
    ("one frozen calibration set of 200", "Plugin", 40),
    ("one frozen calibration set of 200", "Adaptive", 10),
    ("one frozen calibration set of 1,000", "Adaptive", 120),
    ("sliding window: the last 2", "Adaptive", 10),
    ("sliding window: 100, and 100 steps behind", "SimpleJumper", 100),
    ("window of 100, renewed every 100 steps", "Adaptive", 40),
    ("reservoir of 50", "SimpleJumper", 40),
    ("stored residuals, 10 features", "SimpleJumper", 20),
    ("no theta: ties count in full", "SimpleJumper", 10),
    ("no theta: ties count by half", "Adaptive", 10),
    ("own rank not randomised", "Adaptive", 10),
    ("the best of 5 measures", "SimpleJumper", 100),
]


@pytest.mark.parametrize(("name", "only", "runs"), LOUD, indirect=["only"])
def test_invalid_recipes_break_the_promise(name: str, only: str, runs: int) -> None:
    assert more_than_promised(false_alarms(name, runs), runs) < SIGNIFICANT


def test_no_recipe_is_forgotten() -> None:
    assert {name for name, _, _ in LOUD} | QUIET == set(INVALID)
    assert {name for name, _, _ in KEPT} == set(EXACT)


@pytest.mark.parametrize("only", ["SimpleJumper"], indirect=True)
def test_shuffling_takes_the_power(only: str) -> None:
    assert false_alarms("in the order of arrival", 20) == 20
    assert false_alarms("shuffled first", 20) < 5


def test_ranks_are_those_of_the_definition() -> None:
    rng = np.random.default_rng(0)
    theta = rng.random(40)
    for scores in (rng.normal(size=40), rng.integers(0, 3, 40).astype(np.float64)):
        for width in (1, 2, 7, 40):
            pools = [scores[max(0, i + 1 - width) : i + 1] for i in range(40)]
            counts = [(int((pool > pool[-1]).sum()), int((pool == pool[-1]).sum()), len(pool)) for pool in pools]
            assert np.allclose(invalid_recipes.ranked(scores, theta, width), naive.p_values(counts, theta), rtol=1e-15)


@pytest.mark.parametrize("name", ["one frozen calibration set of 200", "sliding window: the last 2", "reservoir of 50"])
def test_what_is_wrong_is_not_the_single_p_value(name: str) -> None:
    """These recipes are tempting because each p-value alone is uniform."""
    p = np.array([RECIPES[name].p_values(np.random.default_rng([run, 8])) for run in range(150)])
    for step in (5, 300, STEPS - 1):
        assert kstest(p[:, step], "uniform").pvalue > SIGNIFICANT


# ------------------------------------------------------------------ fleets


def test_the_streams_of_the_fleet_are_fair() -> None:
    """P(doublings >= j) = 2^-j, within four standard errors, from the height on where e-BH can name a stream."""
    runs = [doublings(np.random.default_rng([run, 9])) for run in range(3000)]
    for height in (5, 7, 9):
        share = np.array([(reached >= height).mean() for reached in runs])
        assert abs(share.mean() - 0.5**height) < 4.0 * share.std() / math.sqrt(len(runs))
    assert all(len(reached) == STREAMS for reached in runs)


@pytest.mark.parametrize("name", FLEETS)
def test_the_running_maximum_is_not_an_e_value(name: str) -> None:
    runs = 1000
    count = int(counted(invalid_recipes.false_discoveries, name, range(runs))[0, 0])
    assert (more_than_promised(count, runs) < SIGNIFICANT) is (name == "running maxima")


# ------------------------------------------------------------------ the document


def test_cells() -> None:
    assert invalid_recipes.cell(100, 2000) == "5.0 % (3.8 to 6.4)"
    assert invalid_recipes.cell(200, 2000).startswith("**10.0 % (")
    low, high = invalid_recipes.interval(0, 100)
    assert (low, round(high, 6)) == (0.0, round(1.0 - 0.005**0.01, 6))


def test_the_document_holds_every_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(pool: Executor, outcome: invalid_recipes.Outcome, name: str, runs: int) -> Counts:
        rows = 1 if name in FLEETS else len(invalid_recipes.together(name))
        return np.zeros((rows, 1 if name in FLEETS else len(invalid_recipes.BETS)), np.int64)

    monkeypatch.setattr(invalid_recipes, "measured", nothing)
    monkeypatch.setattr(invalid_recipes, "ProcessPoolExecutor", ThreadPoolExecutor)
    text = invalid_recipes.document(20)
    for name in (*RECIPES, *FLEETS, *invalid_recipes.BETS):
        assert f"| {name} |" in text
    assert "{" not in text
    written = invalid_recipes.DOCUMENT.read_text(encoding="utf-8")
    words = [line for line in text.splitlines() if not line.startswith("|") and "runs" not in line]
    assert set(words) <= set(written.splitlines())  # the script's text is the document's: it was run after a change
