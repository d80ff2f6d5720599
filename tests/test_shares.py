"""Shares of categories: an e-value given the bag, what it finds, and that every entry point can show it."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

import exchangeable as ex
from conftest import Run
from exchangeable.analysis.columns import ALPHA_SHARES, select_columns
from exchangeable.analysis.figures import plotted_tests
from exchangeable.analysis.shares import MAX_CATEGORIES, log_e_value, log_ratios, share_columns, strongest_ranked
from exchangeable.data.schema import Preparation, prepare

Codes = NDArray[np.intp]
GRID = {4.0: Fraction(7, 10), 8.0: Fraction(2, 10), 16.0: Fraction(1, 10)}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def shares_of(result: ex.Result) -> dict[str, float]:
    """Return the log of each e-value."""
    return {test.name: float(test.log_value[-1]) for test in result.tests if test.kind == "shares"}


def changed(n: int = 600, seed: int = 0, at: float = 0.5) -> pd.DataFrame:
    """Draw a table in which the shares of three categories change."""
    drawn, late = rng(seed), np.arange(n) >= at * n
    which = np.where(late, drawn.choice(3, n, p=[0.55, 0.3, 0.15]), drawn.choice(3, n))
    return pd.DataFrame({"x": drawn.normal(size=n), "kind": np.array(["u", "v", "w"])[which]})


# ------------------------------------------------------------------ the e-value


def naive_category(ones: list[bool], tau: int) -> Fraction:
    """Average the likelihood ratios of one category over the odds ratios, in exact arithmetic but for their values."""
    n, K, k = len(ones), sum(ones), sum(ones[:tau])
    total = Fraction(0)
    deviation = math.sqrt(K * (n - K) * (tau / n) * (1.0 - tau / n) / max(1, n - 1))
    for effect, weight in GRID.items():
        for sign in (1.0, -1.0):
            psi = Fraction(math.exp(sign * effect / max(deviation, effect / 20.0)))
            mean = sum(
                Fraction(math.comb(K, j) * math.comb(n - K, tau - j), math.comb(n, tau)) * psi**j
                for j in range(max(0, K + tau - n), min(K, tau) + 1)
            )
            total += weight / 2 * psi**k / mean
    return total


def naive(codes: list[int], start: int = 0) -> float:
    n, total = len(codes), Fraction(0)
    cuts = {start: Fraction(1)} if start else {}
    for i in range(1, 8) if not start else ():
        cuts[n * i // 8] = cuts.get(n * i // 8, Fraction(0)) + Fraction(min(i, 8 - i), 16)
    for category in set(codes):
        ones = [code == category for code in codes]
        total += sum(weight * naive_category(ones, tau) for tau, weight in cuts.items())
    return float(total / len(set(codes)))


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("bag", ["0001", "00011", "0000001", "0000111", "00001111", "0012", "0001122", "0001223"])
def test_the_mean_over_all_orders_is_one(bag: str, start: int) -> None:
    orders = set(itertools.permutations(map(int, bag)))
    values = [math.exp(log_e_value(np.array(order, np.intp), start)) for order in orders]
    assert math.fsum(values) / len(values) == pytest.approx(1.0, rel=1e-12)
    assert max(values) > 1.05 > 0.95 > min(values)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_the_definition_in_exact_arithmetic(seed: int) -> None:
    drawn = rng(seed)
    codes = drawn.integers(0, 2 + seed % 3, int(drawn.integers(2, 60)))
    codes[: len(codes) // 3] = codes[0]
    for start in (0, len(codes) // 2 or 1):
        found = log_e_value(codes.astype(np.intp), start)
        assert math.exp(found) == pytest.approx(naive(codes.tolist(), start), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "ones", "tau", "k"),
    [(20_000, 9_000, 10_000, 4_600), (20_000, 3, 2_500, 0), (20_000, 500, 19_990, 495), (100_000, 1_000, 1_000, 40)],
)
def test_sums_of_many_terms(n: int, ones: int, tau: int, k: int) -> None:
    """All terms, with 40 digits: those that are left out do not matter, and little is lost to rounding."""
    mp = pytest.importorskip("mpmath").mp.clone()
    mp.dps = 40
    deviation = math.sqrt(ones * (n - ones) * (tau / n) * (1.0 - tau / n) / (n - 1))
    effects = [sign * effect for sign in (-1.0, 1.0) for effect in GRID]
    found = log_ratios(n, ones, np.array([tau]), np.array([k]))[0]
    for effect, value in zip(effects, found[[2, 1, 0, 3, 4, 5]].tolist(), strict=True):
        log_psi = mp.mpf(effect / max(deviation, abs(effect) / 20.0))
        low, high = max(0, ones + tau - n), min(ones, tau)
        term = mp.binomial(ones, low) * mp.binomial(n - ones, tau - low) / mp.binomial(n, tau) * mp.exp(log_psi * low)
        total = mp.mpf(0)
        for j in range(low, high + 1):
            total += term
            term *= mp.exp(log_psi) * (ones - j) * (tau - j) / ((j + 1) * mp.mpf(n - ones - tau + j + 1))
        expected = log_psi * k - mp.log(total)
        assert abs(float(expected - mp.mpf(value))) <= 1e-12 * max(1.0, abs(value))


def test_swapping_two_categories_changes_nothing() -> None:
    codes = (rng().random(400) < np.linspace(0.1, 0.6, 400)).astype(np.intp)
    assert log_e_value(codes) == pytest.approx(log_e_value(1 - codes), rel=1e-12)
    assert log_e_value(codes) > 4.0


def test_a_million_rows() -> None:
    """The mean of one tau over many draws of k stays 1, and a small change of a share is found."""
    n, ones, tau = 10**6, 400_000, np.array([500_000])
    k = rng().hypergeometric(ones, n - ones, tau[0], 2_000)
    small = np.exp([log_ratios(n, ones, tau, np.array([one]))[0, [2, 3]] for one in k.tolist()])  # effects of 4
    z = (k - ones / 2) / math.sqrt(ones * (n - ones) / 4.0 / n)
    assert np.allclose(np.log(small), np.outer(z, [-4.0, 4.0]) - 8.0, atol=0.1)  # as good as normal
    codes = (rng().random(n) < np.where(np.arange(n) < n // 2, 0.4, 0.405)).astype(np.intp)
    assert log_e_value(codes) > 5.0


@pytest.mark.parametrize("codes", [[0, 1], [1, 0], [0, 1, 1], [0] * 50 + [1], [0, 1, 2]])
def test_tiny_bags(codes: list[int]) -> None:
    assert math.exp(log_e_value(np.array(codes, np.intp))) == pytest.approx(naive(codes), rel=1e-12)


# ------------------------------------------------------------------ which columns


def test_which_columns_have_shares() -> None:
    n = 130
    frame = pd.DataFrame(
        {
            "two": np.where(np.arange(n) % 3, 2.5, -1.0),
            "three": np.arange(n) % 3,
            "kind": np.array(["u", "v"])[rng().integers(0, 2, n)],
            "same": ["a"] * n,
            "flag": rng().random(n) < 0.5,
            "many": [f"c{i % (MAX_CATEGORIES + 1)}" for i in range(n)],
            "absent": np.where(np.arange(n) % 7, 1.0 + rng().normal(size=n), np.nan),
            "y": np.array(["no", "yes"])[rng().integers(0, 2, n)],
        }
    )
    table = prepare(frame, Preparation("y", keep=("many",))).table
    names = [one.column.name for one in share_columns(select_columns(table))]
    assert names == [f"shares of {name}" for name in ("two", "kind", "flag", "absent is missing", "y")]


def test_negative_zero_is_zero() -> None:
    values = rng().integers(0, 2, 200).astype(float)
    signed = np.where((values == 0.0) & (np.arange(200) % 2 == 0), -0.0, values)
    x = rng(1).normal(size=200)
    plain, other = (shares_of(ex.test({"v": column, "x": x}, seed=1)) for column in (values, signed))
    assert plain == other
    assert list(plain) == ["shares of v"]
    assert shares_of(ex.test({"v": values * 0.0 * np.where(values, 1.0, -1.0), "x": x})) == {}


def test_the_order_of_columns_does_not_matter() -> None:
    frame = changed().assign(flag=rng(4).integers(0, 2, 600), zone=rng(5).choice(list("pqrst"), 600))
    plain = shares_of(ex.test(frame))
    assert len(plain) == 3
    assert shares_of(ex.test(frame[frame.columns[::-1]])) == plain


def test_the_share_of_alpha_is_divided_evenly() -> None:
    frame = changed().assign(flag=rng(4).integers(0, 2, 600))
    tests = ex.test(frame).tests
    assert [test.weight for test in tests if test.kind == "shares"] == [ALPHA_SHARES["shares"] / 2.0] * 2
    assert math.fsum(test.weight for test in tests) == pytest.approx(1.0)
    numbers = ex.test(frame[["x"]].assign(z=rng(6).normal(size=600))).tests
    assert math.fsum(test.weight for test in numbers) == pytest.approx(1.0)
    assert numbers[0].weight == pytest.approx(tests[0].weight + ALPHA_SHARES["shares"])


# ------------------------------------------------------------------ false alarms and power


def quiet(seed: int) -> pd.DataFrame:
    drawn = rng(seed)
    return pd.DataFrame(
        {
            "kind": drawn.choice(list("uvw"), 40, p=[0.6, 0.3, 0.1]),
            "flag": (drawn.random(40) < 0.2).astype(float),
            "y": drawn.choice(["no", "yes"], 40),
        }
    )


def test_false_alarms_are_rare() -> None:
    """Of all tests together, and of each e-value alone."""
    runs, rejected, alone = 300, 0, {"shares of kind": 0, "shares of flag": 0, "shares of y": 0}
    for seed in range(runs):
        result = ex.test(quiet(seed), "y" if seed % 2 else None, alpha=0.2)
        rejected += result.rejected
        for name, log_value in shares_of(result).items():
            alone[name] += log_value >= math.log(5.0)
    for count in (rejected, *alone.values()):
        assert binomtest(count, runs, 0.2, alternative="greater").pvalue > 1e-3
    assert sum(alone.values()) > 0


def test_false_alarms_of_two_sets_are_rare() -> None:
    runs = 200
    rejected = sum(ex.compare(quiet(seed)[:25], quiet(seed)[25:], alpha=0.2).rejected for seed in range(runs))
    assert binomtest(rejected, runs, 0.2, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("at", [0.35, 0.5, 0.7])
def test_changes_of_shares_are_found(at: float) -> None:
    results = [ex.test(changed(1000, seed, at), alpha=0.05) for seed in range(10)]
    found = [result for result in results if shares_of(result)["shares of kind"] >= math.log(200.0)]
    assert len(found) >= 7
    assert all(result.rejected for result in found)
    last = [result for result in found if result.rejected_at == 1000]
    assert all(abs((result.changepoint or 0) - 1000 * at) < 150 for result in last)


def test_more_missing_values_are_found() -> None:
    found = 0
    for seed in range(10):
        X = rng(seed).normal(size=(1000, 4))
        X[rng(seed + 99).random(1000) < np.where(np.arange(1000) < 500, 0.02, 0.1), 0] = np.nan
        found += "shares of x0 is missing" in ex.test(X, alpha=0.05).rejected_by
    assert found >= 8


def test_two_sets_are_compared_at_their_boundary() -> None:
    """Whatever the order within each set, and by one tau only."""
    frame = changed(300, 5, 0.7)
    first, second = frame[:210], frame[210:]
    result = ex.compare(first, second, alpha=0.05)
    codes = {name: i for i, name in enumerate("uvw")}
    expected = log_e_value(frame["kind"].map(codes).to_numpy(np.intp), 210)
    assert shares_of(result)["shares of kind"] == pytest.approx(expected, rel=1e-12)
    assert shares_of(ex.compare(first.sample(frac=1.0, random_state=3), second)) == shares_of(result)
    assert result.rejected_by == ["shares of kind"]
    assert result.rejected_at == 300
    assert "the shares of categories differ" in str(result.explain())
    before, after = (100.0 * part["kind"].value_counts(normalize=True) for part in (first, second))
    most = (after - before).abs().idxmax()
    difference = result.explain().views[0].difference
    assert difference.startswith(f"share of {most} {before[most]:.3g} % -> {after[most]:.3g} % (")
    assert "shares of kind" in result._repr_html_()


# ------------------------------------------------------------------ every entry point shows it


@pytest.fixture(scope="module")
def result() -> ex.Result:
    """Return a result that only shares of categories reject."""
    return ex.test(changed(600, 3), alpha=0.05)


def test_the_sentences(result: ex.Result) -> None:
    assert result.rejected_by == ["shares of kind"]
    assert (result.strongest.kind, result.rejected_at) == ("shares", 600)
    text = str(result)
    assert f"Strongest of {len(result.tests)} tests: shares of kind, evidence " in text
    assert "(alarm at 20, raised at row 600)" in text
    assert "Size: shares of kind: share of " in text
    assert result.departure is not None
    assert (result.departure.kind, result.departure.subject) == ("one change", "kind")
    assert np.array_equal(result.strongest.log_value[:-1], np.zeros(599))


def test_the_explanation(result: ex.Result) -> None:
    explanation = result.explain()
    view = explanation.views[0]
    assert (view.name, view.kind, view.flagged, view.rejected_at) == ("shares of kind", "shares", True, 600)
    assert view.difference.startswith("share of ")
    assert explanation.changed == []
    assert "What: the shares of categories changed (see the views)" in str(explanation)
    assert "View: shares of kind: evidence " in str(explanation)
    change = explanation.change
    assert change is not None
    assert change.estimate == result.changepoint
    assert (change.low or 0) <= change.estimate <= (change.high or 0)
    assert json.loads(explanation.to_json())["views"][0]["kind"] == "shares"
    assert result.explain(features=["kind"]).views == []


def test_records_and_figures(result: ex.Result, tmp_path: Path) -> None:
    record = json.loads(result.to_json())
    assert record["rejected_by"] == ["shares of kind"]
    assert record["views_tested"] == len(result.view_tests)
    pytest.importorskip("matplotlib")
    assert "shares of kind" in plotted_tests(result)
    assert result.plot().get_legend() is not None
    pytest.importorskip("jinja2")
    assert "shares of kind" in result._repr_html_()
    assert "shares of kind" in result.explain()._repr_html_()
    result.save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "shares of kind" in page
    assert "near 0 if its category comes late in the alphabet" in page
    assert strongest_ranked(result.tests).name == "kind"


def test_a_change_that_shares_and_the_column_show_is_described_once() -> None:
    result = ex.test(changed(600, 1), alpha=0.05)
    assert result.rejected_by == ["shares of kind", "kind"]
    assert "Also: column kind (" in str(result)
    assert "Size: kind: share of " in str(result)
    assert str(result).count("share of ") == 1
    assert result.explain().changed == ["kind"]


def test_the_report_of_two_sets(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    frame = changed(300, 5, 0.7)
    result = ex.compare(frame[:210], frame[210:], alpha=0.05)
    assert result.strongest.kind == "shares"
    result.save_html(tmp_path / "report.html")
    assert "shares of kind" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_command_line(run: Run, result: ex.Result, tmp_path: Path) -> None:
    pytest.importorskip("polars")
    changed(600, 3).to_csv(tmp_path / "t.csv", index=False)
    done = run("test", "t.csv", "--alpha", 0.05, "--report", "r.html", "--format", "json")
    assert done.code == 1
    assert json.loads(done.out)["rejected_by"] == result.rejected_by
    assert "shares of kind" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "shares of kind, evidence " in run("test", "t.csv", "--alpha", 0.05).out
