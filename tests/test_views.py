"""Views of a table: what they show, that no order matters for them, and that they keep the promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import exchangeable as ex
from exchangeable import measures
from exchangeable.analysis import report
from exchangeable.analysis.columns import ALPHA_SHARES
from exchangeable.analysis.figures import plotted_tests
from exchangeable.analysis.views import MAX_FEATURES, view_columns
from exchangeable.data.schema import Preparation, prepare
from exchangeable.data.table import Table

Floats = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def table_of(data: Any, label: Any = None) -> Table:
    return prepare(data, Preparation(label)).table


def mixed(n: int = 200, seed: int = 0) -> pd.DataFrame:
    drawn = rng(seed)
    return pd.DataFrame(
        {
            "b": drawn.integers(0, 4, n).astype(float),
            "a": drawn.normal(size=n).round(1) * 1e6,
            "c": drawn.choice(list("uvw"), n),
            "y": drawn.normal(size=n).round(1),
            "k": drawn.choice(["no", "yes"], n),
        }
    )


def views_of(data: Any, label: Any = None) -> dict[str, Floats]:
    return {one.column.name: one.column.values for one in view_columns(table_of(data, label))}


# ------------------------------------------------------------------ what they are


def test_components_are_those_of_the_correlation_matrix() -> None:
    X = rng().normal(size=(300, 5)) @ rng(1).normal(size=(5, 5))
    views = views_of(X)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    variances, directions = np.linalg.eigh(np.corrcoef(X.T))
    assert [name.split(" (")[0] for name in views] == [f"component {k}" for k in (1, 2, 4, 5)]
    for values, k in zip(views.values(), (4, 3, 1, 0), strict=True):
        expected = Z @ directions[:, k]
        assert np.allclose(values, math.copysign(1.0, values @ expected) * expected, atol=1e-4)
        assert np.isclose(values.var(), variances[k], rtol=1e-3)


def test_a_component_is_named_by_its_largest_loadings() -> None:
    X = rng().normal(size=(500, 4))
    X[:, 1] = -X[:, 0] + 0.1 * X[:, 1]
    first, *_, last = views_of(dict(zip("pqrs", X.T, strict=True)))
    assert (first, last) in {
        ("component 1 (p, -q)", "component 4 (p, q)"),
        ("component 1 (q, -p)", "component 4 (q, p)"),
    }


def test_components_that_are_constant_are_left_out() -> None:
    frame = mixed()[["c"]].assign(x=rng(7).normal(size=200), z=2.0)  # three columns of 0 and 1, which sum to 1
    frame["x"] += frame["c"] == "u"
    names = list(views_of(frame))
    assert [name for name in names if "x" not in name] == []
    assert len(names) == 2
    assert view_columns(table_of(mixed()[["c"]])) == []  # components of one column
    assert view_columns(table_of(rng().normal(size=(50, 1)))) == []
    assert view_columns(table_of({"x": np.ones(50), "z": rng().normal(size=50)})) == []
    assert view_columns(table_of(rng().normal(size=(20, MAX_FEATURES + 1)))) == []


def test_residuals_are_those_of_ridge_regression() -> None:
    X = rng().normal(size=(300, 3))
    y = X @ [1.0, 0.0, -2.0] + rng(1).normal(size=300)
    views = views_of(X, y)
    Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    fit = Z @ np.linalg.solve(Z.T @ Z + np.eye(3), Z.T @ t)
    assert np.allclose(views["residual of label"], t - fit, atol=1e-5)
    assert np.allclose(views["residual x prediction of label"], (t - fit) * fit, atol=1e-4)
    k = ["high" if value > 0 else "low" for value in y]
    own = np.array([[name == "high", name == "low"] for name in k], float)
    shares = own.mean(axis=0)
    predicted = shares + Z @ np.linalg.solve(Z.T @ Z + np.eye(3), Z.T @ (own - shares))
    found = views_of(X, k)["residual of label"]
    assert np.allclose(found, 1.0 - (predicted * own).sum(axis=1), atol=1e-5)


# ------------------------------------------------------------------ no order matters


@pytest.mark.parametrize("label", [None, "y", "k"])
def test_views_do_not_depend_on_the_order_of_rows_or_columns(label: str | None) -> None:
    """Bit for bit: equal rows have equal numbers, wherever they stand."""
    frame = pd.concat([mixed(), mixed(), mixed(50, seed=1)], ignore_index=True)
    plain = views_of(frame, label)
    assert len(plain) >= 4
    for seed in range(3):
        order = rng(seed).permutation(len(frame))
        columns = rng(seed).permutation(frame.columns)
        moved = views_of(frame.iloc[order][columns].reset_index(drop=True), label)
        assert list(moved) == list(plain)
        assert all(np.array_equal(moved[name], values[order]) for name, values in plain.items())
    for values in plain.values():
        assert np.array_equal(values[:200], values[200:400])


def test_the_label_is_not_changed() -> None:
    frame = mixed()
    table = table_of(frame, "y")
    view_columns(table)
    assert np.array_equal(np.asarray(table.y), frame["y"])


# ------------------------------------------------------------------ what they show


def correlated(seed: int, columns: int) -> tuple[Floats, None]:
    X = rng(seed).normal(size=(600, columns))
    X[300:, 1] = 0.8 * X[300:, 0] + 0.6 * X[300:, 1]
    return X, None


def bent(seed: int, columns: int) -> tuple[Floats, Floats]:
    X = rng(seed).normal(size=(600, columns))
    slope = np.where(np.arange(600) < 300, 1.0, 0.3)
    return X, slope * X[:, 0] + 0.5 * rng(seed + 1000).normal(size=600)


@pytest.mark.parametrize(
    ("make", "columns", "view"), [(correlated, 2, "component"), (correlated, 20, "component"), (bent, 5, "residual")]
)
def test_changes_of_relations_are_found(make: Any, columns: int, view: str) -> None:
    results = [ex.test(*make(seed, columns), alpha=0.05) for seed in range(8)]
    assert all(any(one.flagged and one.kind == view for one in result.explain().views) for result in results)
    explanation = results[0].explain()
    assert explanation.views[0].flagged
    assert f"View: {explanation.views[0].name}: evidence 10^" in str(explanation)
    assert explanation.change is not None
    assert 200 < (explanation.change.low or 0) <= 300 <= (explanation.change.high or 0) < 420


def test_less_predictable_labels_are_found() -> None:
    found = 0
    for seed in range(8):
        drawn = rng(seed)
        truth = drawn.integers(0, 2, 1000)
        X = drawn.normal(size=(1000, 10)) + 1.5 * truth[:, np.newaxis]
        wrong = drawn.random(1000) < np.where(np.arange(1000) < 500, 0.02, 0.2)
        result = ex.test(X, ["ab"[value] for value in truth ^ wrong], alpha=0.05)
        found += any(test.log_peak >= math.log(20.0) for test in result.view_tests if test.kind != "component")
    assert found >= 7


def test_two_sets_are_compared_through_views_too() -> None:
    X, _ = correlated(0, 3)
    result = ex.compare(X[:300], X[300:])
    assert result.rejected_by[0].startswith("component")
    assert [test.kind for test in result.tests][:4] == ["rows", "numbers", "numbers", "numbers"]
    assert {test.kind for test in result.tests[4:]} == {"component"}


# ------------------------------------------------------------------ the shares of alpha


@pytest.mark.parametrize("label", [None, "y", "k"])
def test_the_weights_are_those_written_down(label: str | None) -> None:
    tests = ex.test(mixed(), label).tests
    spent = {
        kind: sum(test.weight for test in tests if test.kind == kind) for kind in ALPHA_SHARES if kind != "columns"
    }
    assert sum(test.weight for test in tests if test.is_column) == pytest.approx(ALPHA_SHARES["columns"])
    for kind, share in spent.items():
        assert share == pytest.approx(ALPHA_SHARES[kind] if kind in ("component", "shares") or label else 0.0)
    assert sum(test.weight for test in tests) == pytest.approx(1.0)
    assert ("neighbours" in {test.kind for test in tests}) == (label is not None)


def test_a_test_of_full_rows_alone_has_no_views() -> None:
    for options in ({"columns": "none"}, {"measure": measures.NearestDistance()}):
        result = ex.test(rng().normal(size=(50, 3)), **options)
        assert (len(result.tests), result.tests[0].weight) == (1, 1.0)


def test_neighbours_are_the_measure_with_more_of_them() -> None:
    X, y = bent(3, 4)
    result = ex.test(X, y, seed=5, max_rows=200)
    test = result.view_tests[-1]
    p = ex.PValues(measures.NearestResidual(15), seed=5, stream=4).extend(*result.sample[:2])
    path = ex.Martingale(ex.bets.Adaptive()).extend(p)
    assert test.log_value[-1] == path[-1]
    assert np.array_equal(test.log_value[np.asarray(result.sample.rows)], path)


def test_false_alarms_of_views_are_rare() -> None:
    """Each view alone, at a level of one half."""
    rejected: dict[str, int] = {}
    runs = 300
    for seed in range(runs):
        frame = mixed(60, seed)
        for test in ex.test(frame, "y" if seed % 2 else "k", seed=seed).view_tests:
            rejected[test.kind] = rejected.get(test.kind, 0) + (float(test.log_value.max()) >= math.log(2.0))
    counts = {"component": 4 * runs, "residual": 1.5 * runs, "neighbours": runs}
    assert all(rejected[kind] <= 0.5 * counts[kind] for kind in counts)


# ------------------------------------------------------------------ what is shown


def test_the_view_that_raised_the_alarm_is_named() -> None:
    """All columns move a little: a component sees it long before the first column does."""
    X = rng(1).normal(size=(600, 30)) + 0.35 * (np.arange(600) >= 300)[:, np.newaxis]
    result = ex.test(X)
    strongest = result.strongest
    assert (strongest.kind, strongest.name) == ("component", result.rejected_by[0])
    assert strongest.first_reaching(math.log(100.0)) == result.rejected_at
    assert f"tests: {strongest.name}, evidence 10^" in str(result)
    assert strongest.name in plotted_tests(result)
    assert f"View: {strongest.name}: evidence 10^" in str(result.explain())
    assert "mean" in result.explain().views[0].difference


def test_views_of_wide_tables_are_in_the_report() -> None:
    pytest.importorskip("jinja2")
    X = rng().normal(size=(800, 60))
    X[400:, 1] = 0.95 * X[400:, 0] + 0.3 * X[400:, 1]
    result = ex.test(X)
    page = report.document(result, result.explain())
    assert result.rejected_by[0].startswith("component 60 (")
    assert page.count(result.rejected_by[0]) >= 2
    assert "larger than most" in page


def test_long_names_stay_apart() -> None:
    X = rng().normal(size=(600, 2))
    y = np.where(np.arange(600) < 300, 1.0, 0.2) * X[:, 0] + 0.3 * rng(1).normal(size=600)
    label = "the annualised net contribution of the customer after discounts, in euros"
    frame = pd.DataFrame({"average consumption of electricity": X[:, 0], "average consumption of gas": X[:, 1]})
    result = ex.test(frame.assign(**{label: y}), label)
    names = [test.name for test in result.view_tests]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) < 80
    assert [name for name in names if name.startswith("residual")] == [
        "residual of the annualised ne...",
        "residual x prediction of the annualised ne...",
    ]


def test_a_constant_label_has_no_views() -> None:
    kinds = {test.kind for test in ex.test(rng().normal(size=(60, 3)), np.full(60, 2.5)).tests}
    assert kinds == {"rows", "numbers", "component"}
