"""The paper's experiments, reproduced: on the real data where it is at hand, by simulation everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

import naive
import published
from exchangeable.bets import Power, SleepyJumper
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.pvalues import from_ranks
from exchangeable.research import datasets, paper
from exchangeable.research.datasets import Dataset

SHARED = Path(__file__).parents[1].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the paper's datasets are not on this machine")

# An independent implementation in R: mean and standard deviation over 20 seeds of theta (log10 of the capital).
R_VALUES = {
    ("satellite", "original", 1000): {"simple mixture": (-1.913, 0.016), "plug-in": (15.05, 0.29)},
    ("satellite", "original", 6435): {"simple mixture": (2.549, 0.095), "plug-in": (16.89, 0.16)},
    ("usps", "original", 9298): {"simple mixture": (10.32, 0.11), "plug-in": (8.35, 0.13)},
    ("usps-raw", "original", 9298): {"simple mixture": (9.09, 0.13), "plug-in": (7.10, 0.13)},
}
BEST_EPSILON = {"satellite": 0.948, "usps": 0.927, "usps-raw": 0.931}
SEEDS = 20


@needs_data
@pytest.mark.parametrize("name", ["satellite", "usps", "usps-raw"])
def test_original_order_agrees_with_r_to_the_spread_of_theta(name: str) -> None:
    result = paper.run(name, paper.READERS[name](SHARED), "original", SEEDS)
    for row in paper.rows(result):
        mean, deviation = R_VALUES[name, "original", row.n][row.martingale]
        ours = result.log_value[row.martingale][:, row.n - 1] / LN10
        error = deviation * np.sqrt(2.0 / SEEDS)  # of the difference of two means of 20
        assert abs(ours.mean() - mean) < 4.0 * error
        assert deviation / 2.5 < ours.std(ddof=1) < deviation * 2.5
    assert abs(Power.best(result.p) - BEST_EPSILON[name]) < 0.003


@needs_data
@pytest.mark.parametrize("seeds", [6, pytest.param(SEEDS, marks=pytest.mark.soak)])
def test_published_values_are_near(seeds: int) -> None:
    """Each published value is one draw of theta: it must look like one of ours."""
    rows = paper.reproduce("satellite", data=SHARED, seeds=seeds)
    assert len(rows) == 6
    for row in rows:
        assert row.published_log10 is not None
        span = row.max_log10 - row.min_log10
        assert row.min_log10 - 0.6 * span <= row.published_log10 <= row.max_log10 + 0.6 * span


def test_the_sleepers_reach_the_values_of_the_book() -> None:
    """Bernoulli(0.1), then Bernoulli(0.4); each published value is one draw of the data."""
    for name, ours in published.binary(20).items():
        assert abs(ours.mean() - published.BINARY[name]) < ours.std(ddof=1), name


@needs_data
def test_the_sleepy_jumper_comes_near_its_published_value() -> None:
    """Published for USPS in 2003: above 10^18."""
    ranks = NearestNeighbour().extend(*datasets.usps(SHARED))
    path = Martingale(SleepyJumper()).extend(from_ranks(ranks, seed=0)) / LN10
    assert abs(path[-1] - 17.8) < 0.1
    assert path.max() > 18.0


@needs_data
def test_satellite_peak() -> None:
    """The simple mixture peaks near 10^11.4 about n = 2420, then falls."""
    result = paper.run("satellite", datasets.satellite(SHARED), "original", 3)
    path = result.log_value["simple mixture"][0] / LN10
    assert abs(path.argmax() - 2420) < 60
    assert abs(path.max() - 11.4) < 0.6


@pytest.mark.soak
@needs_data
def test_no_exact_tie_of_satellite_is_missed() -> None:
    """Its features are integers; a ratio of square roots, rounded, misses 24 of the ties."""
    X, y = datasets.satellite(SHARED)
    ranks = NearestNeighbour().extend(X, y)
    assert list(zip(*(column.tolist() for column in ranks), strict=True)) == naive.exact_ranks(X, y)


def small(n: int = 300) -> Dataset:
    rng = np.random.default_rng(0)
    return Dataset(rng.normal(size=(n, 4)), rng.integers(0, 3, n))


def test_rows_of_a_run() -> None:
    result = paper.run("satellite", small(), "shuffled", 5)
    rows = paper.rows(result)
    assert [row.martingale for row in rows] == ["simple mixture", "plug-in"]
    for row in rows:
        final = result.log_value[row.martingale][:, -1] / LN10
        assert (row.n, row.seeds, row.order) == (300, 5, "shuffled")
        assert (row.min_log10, row.max_log10) == (final.min(), final.max())
        assert row.median_log10 == np.median(final)
        assert row.published_log10 is None
        assert row.inside is None


def test_seeds_differ_and_repeat() -> None:
    first = paper.run("usps", small(), "original", 3)
    again = paper.run("usps", small(), "original", 2)
    assert (first.log_value["plug-in"][:2] == again.log_value["plug-in"]).all()
    assert len(set(first.log_value["plug-in"][:, -1])) == 3


def test_inside() -> None:
    row = paper.Row("usps", "original", 1, "plug-in", 2.0, 2.0, 1.0, 3.0, 9)
    assert row.inside is True
    assert row._replace(published_log10=3.1).inside is False
    assert "| no |" in paper.markdown([row._replace(published_log10=3.1)])


@pytest.mark.parametrize(("order", "seeds"), [("sorted", 1), ("original", 0)])
def test_bad_requests(order: str, seeds: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        paper.run("usps", small(20), order, seeds)
    with pytest.raises(ValueError, match="name must be one of usps, satellite, all"):
        paper.reproduce("mnist")


def test_closing_remark() -> None:
    """Noise that decreases: p-values gather near 1, the plug-in grows, no power martingale does."""
    p, paths, best = paper.decreasing_noise()
    assert (p > 0.5).mean() > 0.6
    assert paths["plug-in"][-1] > 100.0
    assert best == 1.0
    assert paths["simple mixture"][-1] < 0.0
    assert paths["best power"][-1] == 0.0


def test_theorem_1() -> None:
    p = paper.theorem_1(runs=1500)
    for n in range(p.shape[1]):
        assert kstest(p[:, n], "uniform").pvalue > 1e-4
    correlation = np.asarray(np.corrcoef(p, rowvar=False))[np.triu_indices(p.shape[1], 1)]
    assert np.abs(correlation).max() < 5.0 / np.sqrt(len(p))


def test_theorem_2() -> None:
    rates, bound = paper.theorem_2()
    finals = {name: rate[-1] for name, rate in rates.items()}
    plugin = finals.pop("plug-in")
    assert all(plugin > rate for rate in finals.values())
    assert 0.6 * bound < plugin < bound
    assert rates["plug-in"][999] < plugin  # it still climbs


def test_figures_of_a_small_run(tmp_path: Path) -> None:
    result = paper.run("usps", small(), "original", 2)
    paper.save(paper.growth_figure(result), tmp_path / "new", "growth")
    paper.save(paper.betting_figure(result), tmp_path / "new", "betting")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"{name}.{suffix}" for name in ("growth", "betting") for suffix in ("png", "svg")
    }
    assert (tmp_path / "new" / "growth.svg").read_text(encoding="utf-8").count("<path") > 5


def test_simulated_figures(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    paper.simulations(tmp_path, lambda *what: seen.append(what))
    assert len(list(tmp_path.glob("*.png"))) == len(list(tmp_path.glob("*.svg"))) == 4
    assert seen[-1] == ("simulations", 4, 4)
