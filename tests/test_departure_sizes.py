"""Numbers and words of a departure are those of the data."""

from __future__ import annotations

import re

import numpy as np
import pytest

import exchangeable as ex
from exchangeable.analysis.advice import describe_departure
from exchangeable.analysis.departure import Departure
from exchangeable.analysis.formats import count_of
from exchangeable.analysis.series import nearest_rows
from exchangeable.analysis.timeline import Timeline


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def departure_of(result: ex.Result) -> Departure:
    assert result.departure is not None
    return result.departure


def percentages(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+) %", text)]


@pytest.mark.parametrize("period", [7.3, 5.62, 24.0])
def test_a_wave_has_its_period_and_its_share_of_the_variance(period: float) -> None:
    x = np.sin(2.0 * np.pi * np.arange(1000) / period) + 0.5 * rng(1).normal(size=1000)
    found = departure_of(ex.test({"x": x}))
    assert found.kind == "seasonal pattern"
    assert found.period == round(period, 1)
    (share,) = percentages(found.size)
    assert 0.5 / 0.75 - 0.15 <= share / 100.0 <= 0.5 / 0.75 + 0.05  # on the scale of normal scores


@pytest.mark.parametrize("values", [["a", "b"], ["a", "a", "b"], ["a", "b", "c"], [1.0, 2.0]])
def test_a_strict_cycle_explains_all_of_the_variance(values: list[str] | list[float]) -> None:
    table = {"x": values * (300 // len(values)), "z": rng(2).normal(size=300)}
    found = departure_of(ex.test(table))
    assert (found.kind, found.period) == ("seasonal pattern", len(values))
    assert percentages(found.size) == [100]


def test_the_same_category_follows_as_often_as_it_does() -> None:
    """Also with more categories than those that the kind is read from."""
    codes = np.repeat(rng(3).integers(0, 60, 300), 10)
    found = departure_of(ex.test({"c": [f"k{code}" for code in codes], "z": rng(4).normal(size=3000)}))
    assert found.kind == "serial dependence"
    same, chance = np.mean(codes[1:] == codes[:-1]), ((np.bincount(codes) / 3000) ** 2).sum()
    assert percentages(found.size) == [round(100.0 * same), round(100.0 * chance)]


def test_one_row_is_singular() -> None:
    one = Departure("outliers", "size", rows=[57], size=count_of(1, "row"))
    words = describe_departure(one, None, Timeline())
    assert words == "outliers: values of size far from the rest, in 1 row (57); without them, no pattern is found."
    again = describe_departure(Departure("repeated rows", "full rows", period=1, size="9 copies"), None, Timeline())
    assert "most of them 1 row after the original" in again
    assert count_of(1200, "row") == "1,200 rows"


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, -1.0, float("nan")])
def test_the_confidence_of_a_change_is_validated(confidence: float) -> None:
    result = ex.test({"x": np.repeat([0.0, 1.0], 50)})
    with pytest.raises(ValueError, match="confidence must lie"):
        result.locate_change(confidence)


def test_columns_with_equal_evidence_come_in_the_same_order() -> None:
    """Shares of equal columns have the same evidence, whatever the order of the columns."""
    flag = (rng(5).random(300) < np.repeat([0.2, 0.8], 150)).astype(float)
    table = {"b": flag, "a": flag.copy(), "z": rng(6).normal(size=300)}
    first, second = ex.test(table), ex.test({name: table[name] for name in ("z", "a", "b")})
    assert first.strongest.name == second.strongest.name == "shares of a"
    assert str(first) == str(second)
    assert str(first.explain()) == str(second.explain())


def test_neighbours_of_rows_far_from_zero() -> None:
    X = np.round(rng(7).normal(size=(60, 2)), 2)
    assert (nearest_rows(X + 1e9, 1, 0) == nearest_rows(X, 1, 0)).mean() > 0.95


def test_a_pattern_has_no_before_and_after() -> None:
    """The best single change in a table with a pattern means nothing."""
    x = rng(8).normal(size=600) + np.repeat([0.0, 2.0], 300)
    explanation = ex.test({"c": list("ab") * 300, "x": x}).explain()
    assert explanation.departure is not None
    assert (explanation.departure.kind, explanation.departure.subject) == ("seasonal pattern", "c")
    assert all((feature.effect, feature.changepoint) == (None, None) for feature in explanation.features)
    assert "Size:" not in str(ex.test({"c": list("ab") * 300, "x": x}))
    copies = ex.test(np.repeat(rng(9).normal(size=(200, 3)), 2, axis=0)).explain()
    assert all(feature.effect is None for feature in copies.features)
