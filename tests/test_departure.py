"""The kind of a departure, the change point, effect sizes and advice: right where the answer is known."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

import exchangeable as ex
from exchangeable.analysis.advice import advise, describe_departure
from exchangeable.analysis.change import Change
from exchangeable.analysis.departure import Departure
from exchangeable.analysis.effects import describe_effect, effect_of
from exchangeable.analysis.patterns import Series, _segments, change_evidence, patterns
from exchangeable.analysis.series import column_series, nearest_rows, normal_scores
from exchangeable.analysis.timeline import Timeline
from exchangeable.data.table import TableColumn
from kinds import KINDS, N

Floats = NDArray[np.float64]
EVERY_KIND = [*KINDS, "unclear"]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def kind_of(data: Any, label: Any = None, **options: Any) -> str:
    departure = ex.test(data, label, **options).departure
    assert departure is not None
    return departure.kind


# ------------------------------------------------------------------ known kinds


@pytest.mark.parametrize("kind", KINDS)
def test_known_kinds_are_named(kind: str) -> None:
    """The benchmark has 25 runs of each table; the seeds here are others."""
    named = []
    for draw in KINDS[kind].values():
        for seed in (101, 102, 103):
            drawn = draw(rng(seed), N)
            result = ex.test(pd.DataFrame(drawn.columns), drawn.label, alpha=0.05)
            named += [result.departure.kind] if result.departure is not None else []
    assert len(named) >= 3
    assert named.count(kind) >= 0.7 * len(named)


def test_nothing_is_named_without_a_rejection() -> None:
    quiet = ex.test(rng().normal(size=(200, 3)))
    compared = ex.compare(rng().normal(size=(200, 2)), rng(1).normal(size=(100, 2)) + 3.0)
    restarted = ex.test(np.repeat([0.0, 6.0, 0.0], 200) + rng().normal(size=600), on_alarm="restart")
    for result in (quiet, compared, restarted):
        assert (result.departure, result.change, result.subject) == (None, None, None)
        assert "Kind:" not in str(result)
        assert json.loads(result.to_json())["departure"] is None
    assert compared.rejected
    assert restarted.rejected


def test_short_and_odd_tables_are_unclear_or_named_without_an_error() -> None:
    short = ex.test([float(k % 2) for k in range(16)], alpha=0.9)
    assert short.departure is None or short.departure.kind in EVERY_KIND
    for values in (np.arange(60.0), -np.arange(60.0), np.repeat([0.0, 1e100], 30), np.repeat([0.0, 1e-300], 30)):
        result = ex.test(values)
        assert result.departure is not None
        assert str(result)
        json.loads(result.explain().to_json(), parse_constant=pytest.fail)


def test_rows_that_are_equal_by_chance_are_not_repeated() -> None:
    draw = rng(3)
    frame = pd.DataFrame({"a": draw.choice(list("uv"), 600), "b": draw.integers(0, 2, 600).astype(float)})
    frame.loc[300:, "b"] = 1.0
    assert kind_of(frame) != "repeated rows"
    X = draw.normal(size=(300, 2))
    again = np.concatenate([X, X])[draw.permutation(600)]  # copies anywhere are exchangeable
    again[300:, 0] += 2.0
    assert kind_of(again) == "one change"


def test_a_table_without_columns_that_reject_is_read_from_its_neighbours() -> None:
    X = rng(4).normal(size=(1000, 5))
    X[500:] += 1.2
    result = ex.test(X, columns="none", seed=1)
    assert result.departure is not None
    assert (result.departure.kind, result.departure.subject) == ("one change", "full rows")
    assert abs((result.changepoint or 0) - 500) <= 10


# ------------------------------------------------------------------ the change point


def test_there_is_one_change_point() -> None:
    X = rng(5).normal(size=(600, 3))
    X[400:, 1] += 1.2
    result = ex.test(X)
    record = json.loads(result.to_json())
    change = result.change
    assert change is not None
    assert result.changepoint == change.estimate == record["changepoint"] == record["change"]["estimate"]
    assert result.explain().change == change
    assert result.locate_change(0.8) == result.explain(confidence=0.8).change
    assert f"after about {change.estimate} rows" in str(result)
    assert f"the change came after one of rows {change.low} to {change.high} (95 % confidence)" in str(result)


def test_the_estimate_is_close() -> None:
    errors = []
    for seed in range(40):
        draw = rng([6, seed])  # type: ignore[arg-type]
        at = int(draw.integers(100, 500))
        x = draw.normal(size=600)
        x[at:] += 1.0
        change = ex.test(x, seed=seed).change
        errors += [] if change is None else [abs(change.estimate - at)]
    assert len(errors) >= 35
    assert np.median(errors) <= 3


# ------------------------------------------------------------------ patterns against plain versions


def test_the_evidence_of_a_change_is_its_formula() -> None:
    x = rng(7).normal(size=40)
    x[15:] += 2.0
    series = column_series(TableColumn("x", x))
    z = norm.ppf((rankdata(x) - 0.5) / 40)
    channels = [(z - z.mean()) / z.std()]
    s = norm.ppf((rankdata(np.abs(channels[0]).round(9)) - 0.5) / 40)
    channels.append((s - s.mean()) / s.std())
    assert np.allclose(series.channels, channels, atol=5e-3)
    for i, found in enumerate(change_evidence(series)):
        total = 0.0
        for channel in series.channels:
            parts = channel[: 5 + i], channel[5 + i :]
            rest = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
            total += np.logaddexp(0.0, 20.0 * math.log(40.0 / rest) - 0.5 * math.log(40.0)) - math.log(2.0)
        assert math.isclose(found, total, rel_tol=1e-9, abs_tol=1e-9)


def test_several_changes_are_the_best_segments() -> None:
    x = rng(8).normal(size=(2, 12)) + np.repeat([0.0, 3.0, -2.0], 4)
    edges = np.arange(13)
    sums = np.concatenate([np.zeros((2, 1)), np.cumsum(x, axis=1)], axis=1)

    def value(cuts: tuple[int, ...]) -> float:
        parts = zip((0, *cuts), (*cuts, 12), strict=True)
        squares = sum(float((x[:, a:b].sum(axis=1) ** 2).sum()) / (b - a) for a, b in parts)
        return 0.5 * squares - 2.0 * len(cuts)

    best = max((cuts for k in range(5) for cuts in combinations(range(1, 12), k)), key=value)
    assert _segments(sums, edges, 2.0) == [0, *best, 12]


def test_categories_are_standardised_indicators() -> None:
    codes = rng(9).choice(3, 300, p=[0.5, 0.3, 0.2]).astype(float)
    series = column_series(TableColumn("c", codes, ("u", "v", "w")))
    assert series.discrete
    first, second = codes[:150], codes[150:]
    table = np.array([[(part == c).sum() for c in range(3)] for part in (first, second)])
    expected = table.sum(axis=0) / 2.0
    chi_squared = float(((table - expected) ** 2 / expected).sum())
    penalised = 0.5 * chi_squared - 0.5 * 2 * math.log(300)
    assert math.isclose(change_evidence(series)[145], np.logaddexp(0.0, penalised) - math.log(2.0), abs_tol=1e-9)


def test_noise_has_no_pattern() -> None:
    strong = sum(
        patterns(column_series(TableColumn("x", rng([10, seed]).normal(size=400))))[0].evidence > 3.0  # type: ignore[arg-type]
        for seed in range(60)
    )
    assert strong <= 3
    assert patterns(Series(np.zeros((2, 10)))) == []


def test_scores_and_neighbours_are_plain() -> None:
    x = rng(11).integers(0, 30, 500).astype(float)
    z = norm.ppf((rankdata(x) - 0.5) / 500)
    assert np.allclose(normal_scores(x), (z - z.mean()) / z.std(), atol=2e-3)
    X = rng(12).normal(size=(30, 3))
    distances = ((X[:, np.newaxis] - X) ** 2).sum(axis=2)
    for i, found in enumerate(nearest_rows(X, 4, 2)):
        allowed = [j for j in range(30) if abs(i - j) > 2]
        assert set(found.tolist()) == set(sorted(allowed, key=lambda j: distances[i, j])[:4])


# ------------------------------------------------------------------ effects


def test_effects_are_those_of_the_values() -> None:
    x = np.concatenate([rng(13).normal(10.0, 2.0, 300), rng(14).normal(11.2, 4.0, 100)])
    effect = effect_of(TableColumn("x", x), 300)
    pooled = math.sqrt((300 * x[:300].var() + 100 * x[300:].var()) / 398)
    assert math.isclose(effect.before, x[:300].mean())
    assert math.isclose(effect.after, x[300:].mean())
    assert math.isclose(effect.size, (x[300:].mean() - x[:300].mean()) / pooled)
    text = describe_effect(effect, str)
    size = f"{effect.size:+.2f} sd, {effect.magnitude}"
    assert text.startswith(f"mean {effect.before:.4g} -> {effect.after:.4g} ({size})")
    assert f"sd {x[:300].std():.3g} -> {x[300:].std():.3g}" in text
    assert ", sd" not in describe_effect(effect_of(TableColumn("x", x[:300]), 150), str)


@pytest.mark.parametrize(("by", "word"), [(0.1, "very small"), (0.3, "small"), (0.6, "medium"), (2.0, "large")])
def test_sizes_have_the_usual_names(by: float, word: str) -> None:
    x = np.tile([-1.0, 1.0], 100)
    x[100:] -= by * math.sqrt(200 / 198)
    effect = effect_of(TableColumn("x", x), 100)
    assert math.isclose(effect.size, -by)
    assert effect.magnitude == word


def test_effects_of_categories() -> None:
    codes = np.repeat([0.0, 1.0, 0.0, 2.0], [80, 20, 40, 60])
    effect = effect_of(TableColumn("c", codes, ("u", "v", "w")), 100)
    assert (effect.category, effect.before, effect.after) == ("w", 0.0, 0.6)
    assert (effect.new, effect.vanished) == (("w",), ("v",))
    assert describe_effect(effect, str) == "share of w 0 % -> 60 % (large); new: w; gone: v"
    many = np.concatenate([np.zeros(50), np.arange(1.0, 51.0)])
    assert "and 47 more" in describe_effect(effect_of(TableColumn("c", many, tuple(map(str, range(51)))), 50), str)


def test_a_drift_compares_the_first_and_the_last_fifth() -> None:
    x = rng(18).normal(size=1000) + np.linspace(0.0, 3.0, 1000)
    (feature,) = ex.test(x).explain().features
    assert feature.effect is not None
    assert math.isclose(feature.effect.before, x[:200].mean())
    assert math.isclose(feature.effect.after, x[800:].mean())
    assert " sd, large; first and last fifth of the rows)" in feature.difference


def test_effects_of_constants_and_extremes() -> None:
    step = effect_of(TableColumn("x", np.repeat([1.0, 2.0], 5)), 5)
    assert step.size == math.inf
    assert describe_effect(step, str) == "mean 1 -> 2 (large)"
    assert effect_of(TableColumn("x", np.ones(10)), 5).size == 0.0
    huge = effect_of(TableColumn("x", np.repeat([-1e308, 1e308], 5) * np.tile([1.0, 0.9], 5)), 5)
    assert math.isfinite(huge.size)


# ------------------------------------------------------------------ words


def departure_of(kind: str) -> Departure:
    changes = {"one change": [300], "last part": [950], "several changes": [100, 250, 400]}.get(kind, [])
    return Departure(kind, "size", changes, 7, [5, 9], "4 rows")


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_kind_has_its_words(kind: str) -> None:
    days = np.arange("2024-01-01", "2026-09-27", dtype="datetime64[D]")
    for timeline in (Timeline(), Timeline(days)):
        departure = departure_of(kind)
        words = describe_departure(departure, None, timeline)
        assert words.endswith(".")
        assert words[0].islower() or words[0].isdigit()
        assert advise(departure, timeline).endswith(".")
        dated = kind in ("one change", "last part", "several changes", "outliers")
        assert ("(20" in words or " 20" in words) is (timeline.times is not None and dated)
    assert len({advise(departure_of(one), Timeline()) for one in EVERY_KIND}) == len(EVERY_KIND)


def test_an_empty_interval_contradicts_a_single_change() -> None:
    words = describe_departure(departure_of("one change"), Change(300, None, None, 0.95), Timeline())
    assert "This is not the only change" in words
    assert "the change came after" not in words


def test_the_summary_has_sizes_of_several_columns() -> None:
    X = rng(15).normal(size=(600, 5))
    X[300:, :4] += [1.0, 2.0, 1.5, 1.2]
    text = str(ex.test(X))
    assert text.count(" sd, large)") == 3
    assert "Size: x1: mean " in text
    assert re.search(r"Size: .* and \d more\.", text)


def test_what_the_record_holds() -> None:
    x = np.sin(2.0 * np.pi * np.arange(700) / 7.0) + 0.5 * rng(16).normal(size=700)
    record = json.loads(ex.test({"x": x, "z": rng(17).normal(size=700)}).to_json())
    assert record["departure"]["kind"] == "seasonal pattern"
    assert record["departure"]["period"] == 7
    assert record["departure"]["subject"] == "x"
