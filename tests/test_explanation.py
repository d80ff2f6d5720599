"""What changed, and when: right where the answer is known."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

import exchangeable as ex
from exchangeable import bets, measures
from exchangeable.analysis.explain import Explanation
from exchangeable.data.canonical import column_stream

LN10 = math.log(10.0)


def moved(seed: int, n: int = 400, d: int = 8, by: float = 1.0, at: int | None = None) -> tuple[pd.DataFrame, str]:
    """Normal features, one of which moves."""
    rng = np.random.default_rng([3, seed])
    frame = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{k}" for k in range(d)])
    which = f"f{rng.integers(d)}"
    frame.loc[n // 2 if at is None else at :, which] += by
    return frame, which


def test_the_feature_that_moved_by_one_deviation_is_ranked_first() -> None:
    right = rejected = 0
    for seed in range(100):
        frame, which = moved(seed)
        result = ex.test(frame, seed=seed)
        right += result.explain().features[0].name == which
        rejected += result.rejected
    assert right >= 95
    assert rejected >= 95


def test_unchanged_columns_are_flagged_as_rarely_as_promised() -> None:
    wrong = 0
    for seed in range(200):
        frame, which = moved(seed, n=100, d=5, by=1.5)
        named = ex.test(frame, columns="none", alpha=0.2, seed=seed).explain().changed
        wrong += bool(set(named) - {which})
    assert binomtest(wrong, 200, 0.2, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("columns", ["none", "each"])
def test_the_interval_covers_the_change_as_often_as_promised(columns: str) -> None:
    covered, detected = 0, 0
    for seed in range(100):
        rng = np.random.default_rng([4, seed])
        at = int(rng.integers(60, 240))
        X = rng.normal(size=(300, 1 if columns == "none" else 3))
        X[at:, 0] += 1.5
        change = ex.test(X, columns=columns, seed=seed).explain(confidence=0.8).change
        if change is not None:
            detected += 1
            covered += change.low is not None and change.high is not None and change.low <= at <= change.high
    assert detected >= 95
    assert binomtest(covered, detected, 0.8, alternative="less").pvalue > 1e-3


def test_the_interval_is_that_of_both_directions() -> None:
    X = np.random.default_rng(0).normal(size=300)
    X[150:] += 1.5
    result = ex.test(X, seed=2)
    change = result.explain(confidence=0.9).change
    level = math.log(20.0)
    back = ex.PValues(measures.Value(), seed=2, stream=2).extend(X[::-1])
    forwards = int((result.path.log_value >= level).argmax()) + 1
    backwards = int((ex.Martingale(bets.Adaptive()).extend(back) >= level).argmax()) + 1
    assert change is not None
    assert tuple(change) == (result.changepoint, 300 - backwards + 1, forwards - 1, 0.9)
    assert change.single


def test_a_drift_is_no_single_change() -> None:
    rng = np.random.default_rng(0)
    change = ex.test(rng.normal(size=2000) + np.linspace(0.0, 6.0, 2000)).explain().change
    assert change is not None
    assert (change.low, change.high, change.single) == (None, None, False)
    assert "Kind: a drift: x0 changes gradually." in str(ex.test(rng.normal(size=900) + np.arange(900) / 150).explain())


def test_without_a_rejection_there_is_no_change() -> None:
    explanation = ex.test(np.random.default_rng(0).normal(size=(200, 3))).explain()
    assert (explanation.change, explanation.changed) == (None, [])
    assert "When:" not in str(explanation)
    assert "no single column gives convincing evidence" in str(explanation)


def test_evidence_of_a_column_is_its_own_martingale() -> None:
    frame, which = moved(1)
    for result, share in ((ex.test(frame, columns="none", seed=6), 1.0), (ex.test(frame, seed=6), 0.35)):
        explanation = result.explain()
        evidence = [feature.log10_evidence for feature in explanation.features]
        assert evidence == sorted(evidence, reverse=True)
        for feature in explanation.features:
            p = ex.PValues(measures.Value(), seed=6, stream=column_stream(feature.name)).extend(
                frame[feature.name].to_numpy()
            )
            path = ex.Martingale(bets.Adaptive()).extend(p)
            assert math.isclose(feature.log10_evidence, (path.max() + math.log(share / 8)) / LN10)
            reached = path + math.log(share / 8) >= math.log(100.0)
            assert feature.flagged == reached.any() == (feature.name == which)
            if feature.flagged:
                assert feature.rejected_at == int(reached.argmax()) + 1
                assert abs((feature.changepoint or 0) - 200) <= 5


def test_fewer_features_need_less_evidence() -> None:
    frame, which = moved(2)
    explanation = ex.test(frame, columns="none").explain(features=[which])
    assert [(feature.name, feature.flagged) for feature in explanation.features] == [(which, True)]
    assert explanation.views == []
    for bad in ("f1", ["f1", "g"], [], 3, [["f1"]], (name for name in ["f1"])):
        with pytest.raises(ValueError, match="features must"):
            ex.test(frame, columns="none").explain(features=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence must lie in"):
        ex.test(frame).explain(confidence=1.0)


def test_categories_and_labels_are_columns_too() -> None:
    rng = np.random.default_rng(0)
    n = 600
    late = np.arange(n) >= 300
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "coat": np.where(rng.random(n) < np.where(late, 0.7, 0.2), "red", rng.choice(["blue", "grey"], n)),
            "price": rng.normal(size=n) + 1.5 * late,
        }
    )
    result = ex.test(frame, "price")
    found = {feature.name: feature for feature in result.explain().features}
    assert {name: (one.kind, one.flagged) for name, one in found.items()} == {
        "a": ("numbers", False),
        "coat": ("categories", True),
        "price": ("label", True),
    }
    assert found["coat"].difference.startswith("share of red ")
    assert found["price"].difference.startswith("mean ")
    classes = ex.test(frame.assign(kind=np.where(late, "u", "v")), "kind").explain()
    assert ("kind", "label") in [(one.name, one.kind) for one in classes.features if one.flagged]


@pytest.mark.parametrize("kind", ["label shift", "concept shift", "both", "neither found"])
def test_label_shift_and_concept_shift(kind: str) -> None:
    rng = np.random.default_rng(3)
    late = np.arange(500) >= 250
    y = rng.random(500) < np.where(late & (kind in ("label shift", "both")), 0.9, 0.4)
    turned = y ^ (late & (kind in ("concept shift", "both")))
    X = rng.normal(size=(500, 2)) + 4.0 * turned[:, np.newaxis]
    explanation = ex.test(X, np.where(y, "u", "v"), seed=1).explain()
    assert explanation.shift is not None
    assert explanation.shift.verdict == kind
    assert f"Labels: {kind.upper() if kind != 'both' else 'LABEL SHIFT AND CONCEPT SHIFT'}" in str(explanation)
    whole = ex.shift_test(X, np.where(y, "u", "v"), seed=1)
    assert np.array_equal(explanation.shift.concept.p, whole.concept.p)


def test_the_strangest_and_the_most_typical() -> None:
    result = ex.test(np.random.default_rng(0).normal(size=(300, 2)))
    explanation = result.explain()
    order = np.argsort(result.path.p)
    assert [odd.n - 1 for odd in explanation.smallest_p] == order[:5].tolist()
    assert [odd.n - 1 for odd in explanation.largest_p] == order[::-1][:5].tolist()
    assert [odd.p for odd in explanation.smallest_p] == result.path.p[order[:5]].tolist()


def test_explanations_are_cached_and_plain_data() -> None:
    frame, which = moved(4)
    result = ex.test(frame.assign(kind=np.random.default_rng(0).choice(["u", "v"], 400)), "kind")
    asked: list[Any] = []
    explanation = result.explain(progress=lambda *done: asked.append(done))
    assert isinstance(explanation, Explanation)
    assert result.explain() is explanation
    assert asked[-1] == (f"{which} backwards", 1, 1)
    record = json.loads(explanation.to_json())
    assert record["features"][0]["name"] == which
    described = {"change", "departure", "features", "views", "shift", "smallest_p", "largest_p"}
    assert set(record) == described | {"alpha", "guarantee"}
    assert record["shift"]["verdict"] == "neither found"
    assert f"  1. {which}: evidence 10^" in str(explanation)
    assert "at most 0.01" in explanation.guarantee
