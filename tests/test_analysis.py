"""One call: what goes in, what comes out, and that its promise is kept."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.stats import binomtest

import exchangeable as ex
from exchangeable import alarms, bets, measures
from exchangeable.analysis.columns import ColumnTest, log_evidence, select_columns
from exchangeable.analysis.verdict import Method, part_name
from exchangeable.data.canonical import column_stream
from exchangeable.data.design import design_matrix, resolve_scale
from exchangeable.data.schema import Preparation, prepare
from exchangeable.data.table import Table
from exchangeable.martingale import amount
from exchangeable.protocols import Floats

LN10 = math.log(10.0)


def table_of(data: Any, **how: Any) -> Table:
    return prepare(data, Preparation(**how)).table


def mixed(n: int = 120, seed: int = 0) -> dict[str, list[Any]]:
    """Numbers, categories, classes and a real-valued label."""
    rng = np.random.default_rng(seed)
    return {
        "size": rng.normal(size=n).tolist(),
        "count": rng.integers(0, 5, n).tolist(),
        "coat": rng.choice(["red", "grey", "blue"], n).tolist(),
        "wild": (rng.random(n) < 0.5).tolist(),
        "kind": rng.choice(["cat", "dog"], n).tolist(),
        "price": rng.normal(size=n).tolist(),
    }


# ------------------------------------------------------------------ kinds of data

FRAMES = {
    "pandas": pd.DataFrame,
    "pandas categorical": lambda data: pd.DataFrame(data).astype({"coat": "category", "kind": "category"}),
    "pandas nullable": lambda data: pd.DataFrame(data).convert_dtypes(),
    "pandas objects": lambda data: pd.DataFrame(data).astype({"coat": object}),
    "polars": pl.DataFrame,
    "polars categorical": lambda data: pl.DataFrame(data).with_columns(pl.col("coat").cast(pl.Categorical)),
    "pyarrow": pa.table,
    "mapping": dict,
    "rows": lambda data: pa.table(data).to_pylist(),
}


@pytest.mark.quick
@pytest.mark.parametrize("label", ["kind", "price", None])
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_every_kind_of_frame_gives_the_same_numbers(make: Any, label: str | None) -> None:
    data = mixed()
    drop = [name for name in ("kind", "price") if name != label]
    result = ex.test(make(data), label, drop=drop, seed=3)
    coat = np.array(data["coat"])
    X = np.column_stack(  # columns sorted by name
        [*(coat == c for c in ("blue", "grey", "red")), data["count"], data["size"], data["wild"]]
    ).astype(float)
    measure: dict[Any, Any] = {
        "kind": measures.NearestNeighbour,
        "price": measures.NearestResidual,
        None: measures.NearestDistance,
    }
    path = ex.Monitor(measure[label](), seed=3).extend(X, None if label is None else data[label])
    assert np.array_equal(result.path.p, path.p)
    assert result.log10_martingale == path.log_value[-1] / LN10
    assert result.measure == part_name(measure[label]())
    assert result.table.features == ["size", "count", "coat=blue", "coat=grey", "coat=red", "wild"]
    assert (result.features, result.n, result.n_features) == (["size", "count", "coat", "wild"], 120, 6)


def test_arrays_lists_and_sparse_matrices() -> None:
    X = np.where(np.random.default_rng(0).random((80, 5)) < 0.3, 1.5, 0.0)
    X[:, 2] = 0.0
    y = ["a", "b"] * 40
    whole = ex.test(X, y).path
    for data in (X.tolist(), pd.DataFrame(X), sparse.csr_matrix(X), sparse.csc_array(X), sparse.coo_matrix(X)):
        for given, plain in zip(ex.test(data, y).path[:3], whole[:3], strict=True):
            assert np.array_equal(given, plain)
    assert ex.test(X).table.features == ["x0", "x1", "x2", "x3", "x4"]


def test_one_column_of_numbers_is_ranked_as_such() -> None:
    x = np.random.default_rng(0).normal(size=50)
    path = ex.Monitor(measures.Value(), seed=0).extend(x)
    for data in (x, x.tolist(), pd.Series(x), pl.Series(x), pd.DataFrame({"a": x}), x[:, np.newaxis]):
        result = ex.test(data, seed=0)
        assert (result.measure, result.column_tests) == ("value", [])
        assert np.array_equal(result.path.log_value, path.log_value)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ([0, 1] * 30, "classes"),
        ([0, 1, 2] * 20, "classes"),
        ([True, False] * 30, "classes"),
        (list("ab") * 30, "classes"),
        (np.arange(60), "numbers"),
        ([float(i % 30) for i in range(60)], "numbers"),
        ([0.5, 1.5] * 30, "numbers"),
    ],
)
def test_what_labels_are_taken_for(label: Any, kind: str) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = ex.test(X, label).table.y
    assert isinstance(y, list) == (kind == "classes")
    assert ex.test(pd.DataFrame({"a": X[:, 0], "y": label}), "y").measure == ex.test(X, label).measure


def test_classes_may_be_declared_and_a_measure_decides() -> None:
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=60), "y": np.arange(60) // 2})
    assert ex.test(frame, "y").measure == "nearest-residual"
    assert ex.test(frame, "y", categorical=["y"]).measure == "nearest-neighbour"
    assert isinstance(ex.test(frame, "y", measure=measures.NearestNeighbour()).table.y, list)
    few = pd.DataFrame({"a": frame["a"], "y": [0, 1] * 30})
    assert not isinstance(ex.test(few, "y", measure=measures.NearestResidual()).table.y, list)


PAIRS = [[1.0, 2.0], [2.0, 1.0], [3.0, 5.0]]
BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "infinite": (np.array([1.0, math.inf]), {}, "not finite numbers, or are too large: 'x0' .1: 'inf' in row 2."),
    "no rows": (np.empty((0, 2)), {}, "the data must have at least 2 rows, got 0"),
    "no columns": (np.empty((3, 0)), {}, "must have one or two dimensions and at least one column"),
    "all equal": ([[1.0, 2.0]] * 3, {}, "must have rows that differ, got 3 rows that are all equal"),
    "unknown label": ({"a": [1.0, 2.0]}, {"label": "y"}, "label must name a column of the data, got 'y'"),
    "few labels": ([1.0, 2.0, 3.0], {"label": ["a", "b"]}, "one label for each row, got 2 for 3 rows"),
    "one class": ([1.0, 2.0], {"label": ["a", "a"]}, "at least two classes"),
    "names as classes": ({"a": [1.0, 2.0], "y": ["u", "v"]}, {"label": "y"}, "some of which occur more than once"),
    "text as numbers": ([1.0, 2.0], {"label": ["a", "b"], "measure": measures.NearestResidual()}, "must hold numbers"),
    "no label": (PAIRS, {"measure": measures.NearestNeighbour()}, "label must be given for the measure Nearest"),
    "two columns": (PAIRS, {"measure": measures.Value()}, "must be given one column of numbers, got 2"),
    "a measure's class": (PAIRS, {"measure": measures.Value}, r"such as measures.NearestDistance\(\), got"),
    "alpha": (PAIRS, {"alpha": 2}, "alpha must lie in"),
    "seed": (PAIRS, {"seed": -1}, "seed must be"),
    "scale": (PAIRS, {"scale": "wide"}, "scale must be one of"),
    "columns": (PAIRS, {"columns": "all"}, "columns must be 'auto', 'each' or 'none', got 'all'"),
    "max_rows": (PAIRS, {"max_rows": 1}, "max_rows must be an integer from 2 to"),
    "a bet": (PAIRS, {"bet": "plugin"}, "bet must"),
    "an alarm": (PAIRS, {"alarm": "cusum"}, "alarm must be an alarm"),
    "on_alarm": (PAIRS, {"on_alarm": "stop"}, "on_alarm must be 'latch' or 'restart', got 'stop'"),
    "alarm and alpha": (PAIRS, {"alarm": alarms.Cusum(), "alpha": 0.02}, "alpha and alarm cannot both be given"),
    "columns of Cusum": (PAIRS, {"alarm": alarms.Cusum(), "columns": "each"}, "unless the alarm is Ville and on_alarm"),
    "columns of restarts": (
        PAIRS,
        {"on_alarm": "restart", "columns": "each"},
        "unless the alarm is Ville and on_alarm",
    ),
}


@pytest.mark.parametrize(("data", "options", "message"), BAD.values(), ids=BAD)
def test_refusals_are_one_sentence(data: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        ex.test(data, **options)
    assert "\n" not in str(refused.value)


def test_names_of_any_kind_and_labels_of_many_kinds() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 2)), ["u", "v"] * 20
    plain = ex.test(x, y)
    wide = pd.DataFrame(x, columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))
    assert ex.test(wide, y).features == ["('a', 'b')", "('a', 'c')"]
    assert ex.test(pd.Series(x[:, 0], name=("a", 1))).features == ["('a', 1)"]
    assert ex.test({1: x[:, 0], 2: x[:, 1]}, y).features == ["1", "2"]
    series = pd.Series(y, name="x0")
    for label in (pa.chunked_array([y]), pa.array(y), pd.Categorical(y), series, tuple(y), np.array(y)):
        found = ex.test(x, label)
        assert np.array_equal(found.path.log_value, plain.path.log_value)
        assert found.table.label == "label"


def test_equal_values_are_one_category_whatever_their_order() -> None:
    labels = [True, 1, 0, "1"] * 15
    data = np.random.default_rng(0).normal(size=60)
    codes = [select_columns(table_of(data, label=one))[1].column.values for one in (labels, labels[::-1])]
    assert np.array_equal(codes[0], codes[1][::-1])
    assert select_columns(table_of(data, label=["b", "a", "b"] * 20))[1].column.values[:3].tolist() == [1.0, 0.0, 1.0]


def test_options_are_checked_before_the_data_is_read() -> None:
    with pytest.raises(ValueError, match="alpha must lie in"):
        ex.test("no such file.csv", alpha=2.0)


def test_a_wide_sparse_matrix_is_no_wider_than_its_entries() -> None:
    wide = sparse.csr_matrix((np.ones(50), (range(50), range(0, 10**6, 20_000))), (50, 10**6))
    result = ex.test(wide)
    assert (result.n_features, result.features[1], len(result.column_tests)) == (50, "x20000", 50)


def test_sparse_sets_need_no_entry_in_the_same_columns() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(120, 6)) * (rng.random((120, 6)) < 0.3)
    X[:80, 1] = X[80:, 3] = X[:, 4] = 0.0  # x1 has no entry in the first set, x3 none in the second, x4 none at all
    result = ex.compare(sparse.csr_matrix(X[:80]), sparse.coo_matrix(X[80:]), columns="none")
    plain = ex.compare(X[:80], X[80:], columns="none", drop=["x4"])
    assert result.features == plain.features == ["x0", "x1", "x2", "x3", "x5"]
    assert np.array_equal(result.path.p, plain.path.p)
    mixed = ex.compare(sparse.csr_matrix(X[:80]), X[80:], columns="none")
    assert mixed.features == [f"x{i}" for i in range(6)]
    assert ex.test(sparse.csr_matrix(X), drop=["x4"], columns="none").features == plain.features
    moved = X[80:] + np.array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0])
    assert ex.compare(sparse.csr_matrix(X[:80]), sparse.csr_matrix(moved)).rejected
    with pytest.raises(ValueError, match="must have rows that differ"):
        ex.compare(sparse.csr_matrix((9, 3)), sparse.csr_matrix((4, 3)), columns="none")
    wider = ex.compare(sparse.csr_matrix(X[:80]), sparse.csr_matrix(rng.normal(size=(9, 7))))
    assert wider.schema_differences == ["reference lacks 'x6', which current has"]
    with pytest.raises(ValueError, match="data must be a matrix of real numbers, got float64 of shape"):
        ex.compare(sparse.csr_matrix(X[:80]), sparse.coo_array([1.0, 2.0]))


def test_a_fitted_model_scores_all_columns_of_a_sparse_matrix() -> None:
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 6)) * (rng.random((150, 6)) < 0.3)
    y, X[50:, 2] = X.sum(axis=1), 0.0
    model, measure = Ridge().fit(X[:50], y[:50]), measures.Frozen
    expected = ex.Monitor(measure(model), seed=0).extend(X[50:], y[50:]).p
    assert np.array_equal(ex.test(sparse.csr_matrix(X[50:]), y[50:], measure=measure(model), seed=0).path.p, expected)
    named = sparse.csr_matrix(np.column_stack([X[:, :3], y, X[:, 3:]]))
    assert np.array_equal(ex.test(named[50:], "x3", measure=measure(model), seed=0).path.p, expected)


def test_dropped_columns_are_not_tested() -> None:
    data = pd.DataFrame({"a": [1.0, 2.0, 4.0], "when": pd.to_datetime(["2020-01-01"] * 3), "b": [1.0, math.nan, 2.0]})
    assert ex.test(data, drop=["when", "b"]).features == ["a"]


def test_measures_and_bets_that_are_given_are_not_changed() -> None:
    measure, bet = measures.NearestDistance(2), bets.Plugin()
    X = np.random.default_rng(0).normal(size=(40, 2))
    results = [ex.test(X, measure=measure, bet=bet) for _ in range(2)]
    assert (measure.n, results[0].log10_martingale) == (0, results[1].log10_martingale)
    assert (results[0].measure, results[0].bet, results[0].verdict.neighbours) == ("nearest-distance", "plugin", 2)
    measure.update([0.0, 0.0])
    with pytest.raises(ValueError, match="measure must be fresh, got one that has seen 1 examples"):
        ex.test(X, measure=measure)


def test_a_fitted_model_scores_the_features_as_they_are_given() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": 1000.0 * rng.normal(size=300), "b": rng.normal(size=300)})
    y = (frame["b"] + 0.3 * rng.normal(size=300) > 0).astype(int)
    model = LogisticRegression().fit(frame[:100], y[:100])  # a warning, were the names of columns lost
    late, labels = frame[100:], y[100:]
    result = ex.test(late, labels, measure=measures.Frozen(model), seed=3)
    path = ex.Monitor(measures.Frozen(model), seed=3).extend(late, labels)
    assert np.array_equal(result.path.p, path.p)
    assert result.measure == "frozen"
    assert len(result.explain().features) == 3
    both = ex.compare(late[:150].assign(y=labels), late[150:].assign(y=labels), "y", measure=measures.Frozen(model))
    assert both.split is not None
    scores = measures.Frozen(model).scores(late, labels)
    assert np.array_equal(both.sample.measured[150:], scores[150:][both.split.rows - 1])
    within = ex.test(late, labels, measure=measures.Conditional(measures.Frozen(model)), seed=3)
    conditional = ex.Monitor(measures.Conditional(measures.Frozen(model)), seed=3).extend(late, labels.tolist())
    assert np.array_equal(within.path.p, conditional.p)


# ------------------------------------------------------------------ scaling


def test_scaling_is_blind_to_order_and_to_units() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": 1e5 * rng.normal(size=60) + 7.0, "c": list("uvw") * 20})
    table = table_of(frame)
    assert resolve_scale(table, "auto") == "deviation"
    X = design_matrix(table, "deviation")
    assert np.allclose(X[:, :2].std(axis=0), 1.0)
    assert np.array_equal(X[:, 2:], np.eye(3)[np.arange(60) % 3])
    order = rng.permutation(60)
    assert np.array_equal(design_matrix(table_of(frame.iloc[order]), "deviation"), X[order])
    assert np.array_equal(design_matrix(table, "deviation", np.arange(5, 9)), X[5:9])
    assert np.array_equal(design_matrix(table)[:, 1], frame["b"])
    even = table_of(frame.assign(b=frame["b"] / 1e5))
    assert (resolve_scale(even, "auto"), resolve_scale(even, "deviation")) == ("none", "deviation")


def test_constant_columns_and_extremes_are_scaled() -> None:
    order = np.random.default_rng(0).permutation(9).astype(float)
    X = np.column_stack([np.ones(9), order * 1e149, order * 1e-200, order])
    table = table_of(X)
    made = design_matrix(table, resolve_scale(table, "auto"))
    assert made.shape == (9, 3)
    assert np.isfinite(made).all()
    assert np.allclose(made.std(axis=0), 1.0)


# ------------------------------------------------------------------ the verdict


def shifted(n: int = 300, d: int = 4, by: float = 2.0, seed: int = 0) -> Floats:
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[n // 2 :, 1] += by
    return X


def test_the_plain_test_is_the_monitor() -> None:
    X = shifted(by=6.0)
    result = ex.test(X, columns="none", alpha=0.05, seed=2)
    monitor = ex.Monitor(measures.NearestDistance(), alarm=alarms.Ville(0.05), seed=2)
    path = monitor.extend(X)
    assert all(np.array_equal(one, other) for one, other in zip(result.path[:5], path[:5], strict=True))
    assert (result.rejected, result.rejected_at) == (True, monitor.alarm_at)
    assert result.log10_max == path.log_value.max() / LN10
    assert result.e_value == math.exp(path.log_value[-1])
    assert result.p_value == math.exp(-path.log_value.max())
    promise = (
        "On exchangeable data the probability that one test of this table rejects is at most 0.05, plus at most 6e-7 "
        "for each column that was checked for being sorted."
    )
    assert (result.guarantee, result.alpha, result.seed) == (promise, 0.05, 2)
    assert result.rejected_by == ["full rows"]


def test_columns_are_tested_one_by_one() -> None:
    X = shifted()
    result = ex.test(X, alpha=0.02, seed=5)
    paths = [ex.Martingale(bets.Adaptive()).extend(result.path.p)]
    for k in range(4):
        p = ex.PValues(measures.Value(), seed=5, stream=column_stream(f"x{k}")).extend(X[:, k])
        paths.append(ex.Martingale(bets.Adaptive()).extend(p))
    levels = np.log([2.0 / 0.02, *[8.0 / 0.02] * 4])
    reached = [next((i + 1 for i, v in enumerate(path) if v >= c), None) for path, c in zip(paths, levels, strict=True)]
    first = min(at for at in reached if at is not None)
    assert reached[2] == first
    assert (result.rejected, result.rejected_at) == (True, first)
    assert abs((result.changepoint or 0) - 150) <= 2
    assert result.rejected_by[0] == "x1"
    assert np.isclose(float(result.p_value), 8.0 * math.exp(-paths[2].max()))
    assert result.log10_martingale == paths[0][-1] / LN10
    assert result.path.alarm.tolist() == [i + 1 >= first for i in range(300)]


def test_which_columns_are_tested() -> None:
    rng = np.random.default_rng(0)
    wide, y = rng.normal(size=(20, 65)), [0, 1] * 10
    assert len(ex.test(wide[:, :64]).column_tests) == 64
    assert len(ex.test(wide).column_tests) == 0
    assert len(ex.test(wide[:, :64], y).column_tests) == 0  # the label is the 65th
    assert len(ex.test(wide, columns="each").column_tests) == 65
    assert [line.name for line in ex.test(wide[:, :1], y).column_tests] == ["x0", "label"]
    assert any("more than 64 columns" in note for note in ex.test(wide).notes)
    assert ex.test(wide[:, :64]).notes == []
    assert [line.name for line in ex.test(pd.DataFrame({"c": list("ab") * 10})).column_tests] == ["c"]
    assert ex.test(wide[:, :2], measure=measures.NearestDistance()).column_tests == []
    assert len(ex.test(wide[:, :2], measure=measures.NearestDistance(), columns="each").column_tests) == 2
    assert math.isclose(sum(line.weight for line in ex.test(wide[:, :7]).tests), 1.0)


def test_the_joint_evidence_is_the_weighted_maximum() -> None:
    lines = [
        ColumnTest("a", "rows", 0.5, np.array([1.0, -math.inf])),
        ColumnTest("b", "numbers", 0.25, np.array([9.0, 0.0])),
    ]
    assert log_evidence(lines).tolist() == [9.0 + math.log(0.25), math.log(0.25)]


@pytest.mark.parametrize("log", [-5.0, 0.0, 700.0, -700.0])
def test_amounts_that_float64_holds(log: float) -> None:
    assert amount(log) == math.exp(log)


def test_amounts_beyond_float64_are_exact_to_the_last_digit_that_is_known() -> None:
    assert amount(-math.inf) == 0.0
    large, small = amount(3000.0 * LN10), amount(-3000.0 * LN10)
    assert isinstance(large, Decimal)
    assert abs(large / Decimal(10) ** 3000 - 1) < Decimal("1e-11")
    assert isinstance(small, Decimal)
    assert abs(large * small - 1) < Decimal("1e-10")
    assert amount(1e9) > amount(1e9 - 1.0) > 10**300
    X = np.concatenate([np.zeros(3000), np.ones(9000)]) + 1e-3 * np.random.default_rng(0).random(12_000)
    result = ex.test(X)
    assert result.log10_max > 320
    assert isinstance(result.p_value, Decimal)
    assert 0 < result.p_value < Decimal("1e-320")
    record = json.loads(result.to_json())
    assert (record["p_value"], record["rejected"]) == (None, True)
    assert record["log10_max"] == result.log10_max


def test_the_frame_is_in_the_library_of_the_data() -> None:
    data = mixed(30)
    frame = pd.DataFrame(data, index=[f"row {i}" for i in range(30)])
    made = ex.test(frame, "kind").frame()
    assert isinstance(made, pd.DataFrame)
    assert list(made.index) == list(frame.index)
    assert list(made.columns) == ["n", "p", "log10_martingale", "alarm", "log10_evidence"]
    assert list(ex.test(frame, "kind", columns="none").frame().columns) == ["n", "p", "log10_martingale", "alarm"]
    polars, array = ex.test(pl.DataFrame(data), "kind").frame(), ex.test(np.arange(9.0)).frame()
    assert isinstance(polars, pl.DataFrame)
    assert isinstance(array, pl.DataFrame)
    assert isinstance(ex.test(pa.table(data), "kind").frame(), pa.Table)
    assert polars["p"].to_list() == made["p"].tolist()
    assert isinstance(ex.test(np.arange(9.0)).frame("pandas"), pd.DataFrame)
    with pytest.raises(ValueError, match="library must be"):
        ex.test(np.arange(9.0)).frame("excel")


class Ruin(bets.Idle):
    """Loses everything at once."""

    def extend(self, p: Any) -> Floats:
        return np.full(len(p), -math.inf)


def test_a_capital_of_nothing_is_json() -> None:
    result = ex.test(np.arange(5.0), bet=Ruin())
    assert (result.e_value, result.p_value) == (0.0, 1.0)
    record = json.loads(result.to_json(), parse_constant=pytest.fail)
    assert (record["log10_martingale"], record["e_value"]) == (None, 0.0)
    json.loads(result.explain().to_json(), parse_constant=pytest.fail)
    assert "at the end 0 (alarm at 100)." in str(result)


def test_words_and_record() -> None:
    found, quiet = ex.test(shifted()), ex.test(shifted(by=0.0))
    assert "\nREJECTED (1 %)" in str(found)
    assert f"Strongest of {len(found.tests)} tests: column x1, evidence 10^" in str(found)
    assert "NOT REJECTED (1 %)" in str(quiet)
    assert f"Strongest of {len(quiet.tests)} tests: " in str(quiet)
    assert str(quiet).count("(alarm at 100).") == 1
    odd = ex.test(pd.DataFrame(shifted(), columns=["a", "b\nMeans: all is well", "c", "d" * 999]))
    assert "\nMeans: all is well" not in str(odd) + str(odd.explain())
    assert max(map(len, (str(odd) + str(odd.explain())).split())) < 90
    for result in (found, quiet):
        record = json.loads(result.to_json())
        assert record["rejected"] == result.rejected
        assert record["guarantee"] == result.guarantee
        assert repr(result).startswith(f"<Result: {'' if result.rejected else 'not '}rejected, log10_evidence=")


def test_the_names_of_parts_are_those_of_the_command_line() -> None:
    from exchangeable import catalogue

    for names in (catalogue.MEASURES, catalogue.BETS, catalogue.ALARMS):
        assert all(part_name(make()) == name for name, make in names.items())
    assert Method.of(ex.Monitor(bet=bets.Power(0.5)))[2:4] == ("power", 0.5)


def test_plot() -> None:
    pytest.importorskip("matplotlib")
    ax = ex.test(shifted()).plot()
    assert [line.get_label() for line in ax.lines][:2] == ["full rows", "column x1"]
    begin = [np.asarray(line.get_ydata())[0] for line in ax.lines[:2]]
    assert np.allclose(begin, np.log10([0.55, 0.35 / 4]))  # their weights
    assert ax.get_title() == "the data: evidence against exchangeability"


# ------------------------------------------------------------------ two sets


def test_a_random_split_is_a_permutation_and_bets_on_the_smaller_set() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(90, 3)), rng.normal(size=(40, 3))
    for sets, names in (((train, test), ("reference", "current")), ((test, train), ("current", "reference"))):
        result = ex.compare(*sets, seed=4)
        assert (result.start, result.n, len(result.path.n)) == (90, 130, 40)
        assert result.split is not None
        assert result.sets == names
        X = result.sample.measured
        assert sorted(map(tuple, X.tolist())) == sorted(map(tuple, np.vstack(sets).tolist()))
        assert np.array_equal(X[90:], test[result.split.rows - 1])
        assert sorted(result.split.rows) == list(range(1, 41))
        assert result.frame()["row"].to_list() == result.split.rows.tolist()
        assert json.loads(result.to_json())["n"] == 130
        p = ex.PValues(measures.NearestDistance(), seed=4).extend(X)[90:]
        assert np.array_equal(result.path.p, p)
        assert (result.changepoint, result.verdict.changepoints) == (None, [])


def test_a_split_by_value_is_rejected_and_described() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=400), "c": rng.choice(list("uv"), 400), "y": rng.choice(list("01"), 400)}
    )
    late = frame[300:].assign(c="new")
    same, other = ex.compare(frame[:300], frame[300:], "y"), ex.compare(frame[:300], late, "y")
    assert (same.rejected, other.rejected, other.rejected_by[0]) == (False, True, "c")
    assert "random sample of reference and current combined" in str(other)
    assert "no convincing evidence that reference and current differ" in str(same)
    assert other.explain().changed == ["c"]
    assert "c: share of new 0 % -> 100 % (large); new: new; gone: u, v" in str(other)
    assert next(iter(other.frame().columns)) == "row"
    assert "random split of one" in other.guarantee


def test_differences_of_the_columns_come_before_the_statistics() -> None:
    rng = np.random.default_rng(0)
    a = pd.DataFrame({"a": rng.normal(size=40), "b": rng.integers(0, 3, 40), "c": ["u", "v"] * 20})
    b = pd.DataFrame({"c": ["u", "v"] * 9 + ["u", "w"], "b": ["x"] * 20, "a": rng.normal(size=20), "d": 1.0})
    result = ex.compare(a, b)
    assert result.features == ["a", "c"]
    line = str(result).split("\n")[1]
    assert line.startswith("Columns: reference lacks 'd', which current has; column ")
    assert "column 'c': 'w' occurs in current only" in line
    assert all(difference in line for difference in result.schema_differences)
    assert json.loads(result.to_json())["schema_differences"] == result.schema_differences
    assert (result.same_columns, ex.compare(a[:20], a[20:]).schema_differences) == (False, [])
    assert not result.rejected  # that is for the statistics to say


def test_labels_of_two_sets() -> None:
    a, b = pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}), pd.DataFrame({"b": [1, 2], "a": [3.0, 4.0]})
    for one in ((["u", "v"], None), (None, ["u", "v"])):
        with pytest.raises(ValueError, match="label must be given for both sets, or for neither"):
            ex.compare(a, b, one)
    assert ex.compare(a.to_numpy(), b.to_numpy(), (["u", "v"], ["u", "u"])).measure == "nearest-neighbour"


# ------------------------------------------------------------------ the promise


def rejections(kind: str, runs: int, alpha: float) -> int:
    """How often exchangeable data of this kind is rejected."""
    count = 0
    for seed in range(runs):
        rng = np.random.default_rng([7, seed])
        y = rng.choice(["u", "v"], 60)
        frame = pd.DataFrame(
            {
                "a": 300.0 * rng.normal(size=60) + 200.0 * (y == "u"),
                "b": rng.integers(0, 3, 60),
                "c": rng.choice(list("xyz"), 60),
            }
        )
        if kind == "split":
            result = ex.compare(frame[:40].assign(y=y[:40]), frame[40:].assign(y=y[40:]), "y", alpha=alpha, seed=seed)
        else:
            labels = {"classes": y, "numbers": rng.normal(size=60), "none": None}[kind]
            result = ex.test(frame, labels, alpha=alpha, seed=seed)
        count += result.rejected
    return count


@pytest.mark.parametrize("kind", ["classes", "numbers", "none", "split"])
def test_false_rejections_are_rare(kind: str) -> None:
    count = rejections(kind, 250, 0.2)
    assert binomtest(count, 250, 0.2, alternative="greater").pvalue > 1e-3


def test_a_split_does_not_see_the_order_within_the_sets() -> None:
    x = np.sort(np.random.default_rng(0).permutation(np.arange(400.0)))
    odd, even = x[::2], x[1::2]  # each sorted, and alike
    assert ex.test(odd).rejected
    assert not ex.compare(odd, even).rejected


def test_two_sets_may_swap() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    first, second = ex.compare(X[:40], X[40:]), ex.compare(X[40:], X[:40])
    assert (first.seed, first.p_value) == (second.seed, second.p_value)
    assert (first.path.log_value == second.path.log_value).all()


def test_full_rows_and_a_single_column_have_different_names() -> None:
    result = ex.test(np.repeat([0.0, 1.0], 100), columns="each")
    assert result.rejected_by == ["shares of x0", "full rows", "x0"]
    assert ex.test(np.repeat([0.0, 1.0], 100)).rejected_by == ["x0"]


def test_two_sets_that_share_rows_get_a_note() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    assert "100 of 100 rows of current are also in reference" in ex.compare(x, x[:100]).notes[0]
    assert ex.compare(x[:150], x[150:]).notes == []
    few = np.random.default_rng(0).integers(0, 3, (200, 2))  # rows that occur often in each set
    assert ex.compare(few[:150], few[150:]).notes == []


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder, text in (("a", "x;y\n1;2\n3;4\n"), ("b", "x;y\n1;\n2;inf\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=r"^t\.csv \(current\): .*'inf' in row 2"):
        ex.compare(tmp_path / "a" / "t.csv", tmp_path / "b" / "t.csv")
