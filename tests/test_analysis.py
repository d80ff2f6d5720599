"""One call: what goes in, what comes out, and that its promise is kept."""

from __future__ import annotations

import json
import math
from decimal import Decimal
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
from exchangeable.data.frames import build_table, read_examples
from exchangeable.data.scaling import scaled
from exchangeable.martingale import amount
from exchangeable.protocols import Floats

LN10 = math.log(10.0)


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
    X = np.column_stack(
        [data["size"], data["count"], *(coat == c for c in ("blue", "grey", "red")), data["wild"]]
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


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "NaN": ({"a": [1.0, math.nan]}, {}, r"row 1, column 'a': nan is missing"),
    "null": (pl.DataFrame({"a": [1, None]}), {}, r"row 1, column 'a': None is missing"),
    "pandas NA": (pd.DataFrame({"a": pd.array([1, None], "Int64")}), {}, r"row 1, column 'a': None is missing"),
    "infinite": (np.array([1.0, math.inf]), {}, r"row 1, column 'x0': .*inf.* is not finite"),
    "huge": ({"a": [1.0, 1e200]}, {}, r"row 1, column 'a': .*1e\+200.* is beyond 1e\+150"),
    "beyond 2**53": ({"a": [1, 2**60]}, {}, r"row 1, column 'a': .* is beyond 2\*\*53"),
    "missing category": ({"a": ["u", None]}, {}, r"row 1, column 'a': None is missing"),
    "a date": (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 2)}), {}, "column 'a' is of type Datetime"),
    "lists": (pl.DataFrame({"a": [[1], [2]]}), {}, "column 'a' is of type List"),
    "objects": (pd.DataFrame({"a": [1, "x"]}), {}, r"row 0, column 'a': Python objects must be text"),
    "ragged": ([[1.0], [1.0, 2.0]], {}, "data must be a frame, or an array of numbers"),
    "text": ("data.csv", {}, "got the text 'data.csv'; read a file first"),
    "nothing": (None, {}, "data must be a frame"),
    "no rows": (np.empty((0, 2)), {}, "data must have at least one row"),
    "one row": ([[1.0, 2.0]], {}, "the data must have at least two rows, got 1"),
    "no columns": (np.empty((3, 0)), {}, "must have one or two dimensions, and a column"),
    "a cube": (np.zeros((2, 2, 2)), {}, "must have one or two dimensions"),
    "lazy": (pl.LazyFrame({"a": [1.0, 2.0]}), {}, "got a lazy frame; collect"),
    "unknown label": ({"a": [1.0, 2.0]}, {"label": "y"}, "label must name columns of data, got 'y'; they are 'a'"),
    "unknown drop": ({"a": [1.0, 2.0]}, {"drop": ["y"]}, "drop must name columns"),
    "unknown category": ({"a": [1.0, 2.0]}, {"categorical": ["y"]}, "categorical must name columns"),
    "drop text": ({"a": [1.0, 2.0]}, {"drop": "a"}, "drop must be a list of columns"),
    "both": ({"a": [1.0, 2.0]}, {"drop": ["a"], "categorical": ["a"]}, "named by categorical and drop"),
    "nothing left": ({"a": [1.0, 2.0]}, {"drop": ["a"]}, "at least one feature column"),
    "two names": (pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), {}, "narwhals can read, got: .*unique column"),
    "a row index": ({"Unnamed: 0": [0, 1], "a": [1.0, 2.0]}, {}, "like a saved row index"),
    "few labels": ([1.0, 2.0, 3.0], {"label": ["a", "b"]}, "one label for each row, got 2 for 3 rows"),
    "a label missing": ([1.0, 2.0], {"label": ["a", None]}, "row 1, column 'label': None is missing"),
    "labels of lists": ([1.0, 2.0], {"label": [[1], [2]]}, "one label for each row, got"),
    "one class": ([1.0, 2.0], {"label": ["a", "a"]}, "at least two classes"),
    "names as classes": ({"a": [1.0, 2.0], "y": ["u", "v"]}, {"label": "y"}, "some of them more than once"),
    "text as numbers": ([1.0, 2.0], {"label": ["a", "b"], "measure": measures.NearestResidual()}, "must hold numbers"),
    "no label": ([[1.0, 2.0]] * 3, {"measure": measures.NearestNeighbour()}, "label must be given"),
    "two columns": ([[1.0, 2.0]] * 3, {"measure": measures.Value()}, "must be given one column of numbers, got 2"),
    "many categories": ({"a": [f"c{i}" for i in range(1001)]}, {}, "at most 1000 categories"),
    "alpha": ([1.0, 2.0], {"alpha": 2}, "alpha must lie in"),
    "seed": ([1.0, 2.0], {"seed": -1}, "seed must be"),
    "scale": ([1.0, 2.0], {"scale": "wide"}, "scale must be one of"),
    "columns": ([1.0, 2.0], {"columns": "all"}, "columns must be 'auto', 'each' or 'none'"),
    "beyond 2**53 in an array": (np.array([1, 2**60]), {}, r"row 1, column 'x0': 11529215\d+ is beyond"),
    "complex": (np.array([1j, 2.0]), {}, "data must be a frame, or an array of numbers"),
    "sparse complex": (sparse.csr_matrix([[1j], [2.0]]), {}, "data must be a matrix of real numbers, got complex128"),
    "sparse in one dimension": (sparse.coo_array([1.0, 2.0]), {}, "matrix of real numbers, got float64 of shape"),
    "rows of other columns": ([{"a": 1.0}, {"a": 2.0, "b": 3.0}], {}, "the same columns in every row"),
    "a mapping of labels": ([1.0, 2.0], {"label": {0: "a", 1: "b"}}, "label must name a column, or hold one label"),
    "a set of labels": ([1.0, 2.0], {"label": {"a", "b"}}, "label must name a column, or hold one label"),
    "a table of labels": ([1.0, 2.0], {"label": pd.DataFrame({"a": [1, 2]})}, "label must name a column, or hold one"),
    "many categories in an array": (np.arange(1001.0), {"categorical": ["x0"]}, "at most 1000 categories"),
    "a measure's class": ([1.0, 2.0], {"measure": measures.Value}, r"such as measures.NearestDistance\(\), got"),
    "too long": (np.zeros((101, 2)), {"max_rows": 100}, "at most max_rows=100 rows, got 101: the time of nearest"),
    "a bet": ([1.0, 2.0], {"bet": "plugin"}, "bet must"),
    "sparse": (sparse.csr_matrix(([1.0] * 40_000, ([0] * 40_000, range(40_000))), (9_000, 40_000)), {}, "sparse"),
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
    rng = np.random.default_rng(0)
    zeros = np.array([0.0, -0.0, 1.0, -1.0] * 15)
    truths = [True, 1, 1.0, "1", 2] * 12
    for column in (zeros, pd.Series(truths, dtype=object)):
        frame = pd.DataFrame({"a": rng.normal(size=60), "c": column})
        tables = [build_table(read_examples(one, categorical=["c"])) for one in (frame, frame[::-1])]
        assert tables[0].features == tables[1].features
        assert np.array_equal(tables[0].X, tables[1].X[::-1])
        for label in (list(column), list(column)[::-1]):
            lines = ex.test(
                frame["a"].to_numpy(), label, measure=measures.NearestNeighbour(), columns="each"
            ).column_tests
            assert lines[1].kind == "label"
    labels = [True, 1, 0, "1"] * 15
    codes = [select_columns(build_table(read_examples(np.arange(60.0), one)))[1][1] for one in (labels, labels[::-1])]
    assert np.array_equal(codes[0], codes[1][::-1])


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
    empty = ex.compare(sparse.csr_matrix((9, 3)), sparse.csr_matrix((4, 3)), columns="none")
    assert empty.features == ["x0"]
    with pytest.raises(ValueError, match="both sets must have the same columns, got 'x6' in one of them only"):
        ex.compare(sparse.csr_matrix(X[:80]), sparse.csr_matrix(np.ones((9, 7))))
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
    assert np.array_equal(both.measured[150:], scores[150:][both.split.rows])
    within = ex.test(late, labels, measure=measures.Conditional(measures.Frozen(model)), seed=3)
    conditional = ex.Monitor(measures.Conditional(measures.Frozen(model)), seed=3).extend(late, labels.tolist())
    assert np.array_equal(within.path.p, conditional.p)


# ------------------------------------------------------------------ scaling


def test_scaling_is_blind_to_order_and_to_units() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": 1e5 * rng.normal(size=60) + 7.0, "c": list("uvw") * 20})
    table = build_table(read_examples(frame))
    X, done = scaled(table, "auto")
    assert done == "deviation"
    assert np.allclose(X[:, :2].std(axis=0), 1.0)
    assert np.array_equal(X[:, 2:], table.X[:, 2:])
    order = rng.permutation(60)
    assert np.array_equal(scaled(build_table(read_examples(frame.iloc[order])), "auto")[0], X[order])
    assert scaled(table, "none")[0] is table.X
    assert scaled(table, "none")[1] == "none"
    even = build_table(read_examples(frame.assign(b=frame["b"] / 1e5)))
    assert scaled(even, "auto")[1] == "none"
    assert scaled(even, "deviation")[1] == "deviation"


def test_constant_columns_and_extremes_are_scaled() -> None:
    X = np.column_stack([np.ones(9), np.arange(9.0) * 1e149, np.arange(9.0) * 1e-200, np.arange(9.0)])
    made, done = scaled(build_table(read_examples(X)), "auto")
    assert done == "deviation"
    assert np.isfinite(made).all()
    assert np.allclose(made[:, 1:].std(axis=0), 1.0)
    assert (made[:, 0] == 1.0).all()


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
    assert (result.rejected, result.rejected_at, result.changepoint) == (True, monitor.alarm_at, monitor.changepoint)
    assert result.log10_max == path.log_value.max() / LN10
    assert result.e_value == math.exp(path.log_value[-1])
    assert result.p_value == math.exp(-path.log_value.max())
    promise = "On exchangeable data the probability that one test of this table rejects is at most 0.05."
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
    before = np.array([0.0, *paths[2][: first - 1]])
    assert result.changepoint == max(i for i, v in enumerate(before) if v <= before.min() + 0.2)
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
    assert [line.name for line in ex.test(pd.DataFrame({"c": y}, dtype=str)).column_tests] == ["c"]
    assert ex.test(wide[:, :2], measure=measures.NearestDistance()).column_tests == []
    assert len(ex.test(wide[:, :2], measure=measures.NearestDistance(), columns="each").column_tests) == 2
    assert math.isclose(sum(line.weight for line in ex.test(wide[:, :7]).tests), 1.0)


def test_the_joint_evidence_is_the_weighted_maximum() -> None:
    p = np.full(3, 0.5)
    lines = [
        ColumnTest("a", "examples", 0.5, p, np.array([1.0, -math.inf])),
        ColumnTest("b", "numbers", 0.25, p, np.array([9.0, 0.0])),
    ]
    assert log_evidence(lines).tolist() == [9.0 + math.log(0.25), math.log(0.25)]
    assert ColumnTest("a", "numbers", 1.0, p, np.array([-1.0, -1.0, 5.0])).rise_start(3) == 2
    assert ColumnTest("a", "numbers", 1.0, p, np.array([3.0, 4.0])).rise_start(2) == 0


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
    polars, arrow = ex.test(pl.DataFrame(data), "kind").frame(), ex.test(np.arange(9.0)).frame()
    assert isinstance(polars, pl.DataFrame)
    assert isinstance(arrow, pa.Table)
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
    assert "at the end 0;" in str(result)


def test_words_and_record() -> None:
    found, quiet = ex.test(shifted()), ex.test(shifted(by=0.0))
    assert "REJECTED at level 1 %" in str(found)
    assert "x1 10^" in str(found)
    assert "NOT REJECTED at level 1 %" in str(quiet)
    assert "for full rows (alarm level 200); for 4 columns tested one by one (alarm level 800 each): at most " in str(
        quiet
    )
    odd = ex.test(pd.DataFrame(shifted(), columns=["a", "b\nMeans: all is well", "c", "d" * 999]))
    assert "\nMeans: all is well" not in str(odd) + str(odd.explain())
    assert max(map(len, (str(odd) + str(odd.explain())).split())) < 90
    for result in (found, quiet):
        record = json.loads(result.to_json())
        assert record["rejected"] == result.rejected
        assert record["guarantee"] == result.guarantee
        assert repr(result).startswith(f"<Result: {'' if result.rejected else 'not '}rejected, log10_evidence=")
    rising = ex.test(pd.DataFrame({"id": range(60), "a": np.random.default_rng(0).normal(size=60)}))
    assert any("increases in every row" in note for note in rising.notes)
    assert "Note: column 'id' increases in every row" in str(rising)
    identified = ex.test(pd.DataFrame({"user": [f"u{i}" for i in range(60)], "a": rising.X[:, 1]}))
    assert any("'user' has 60 different values in 60 rows, like identifiers or dates" in n for n in identified.notes)


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
    assert np.allclose(begin, np.log10([0.5, 0.125]))  # their weights
    assert ax.get_title() == "the data: evidence against exchangeability"


# ------------------------------------------------------------------ two sets


def test_a_random_split_is_a_permutation_and_bets_on_the_smaller_set() -> None:
    rng = np.random.default_rng(0)
    train, test = rng.normal(size=(90, 3)), rng.normal(size=(40, 3))
    for sets, names in (((train, test), ("train", "test")), ((test, train), ("test", "train"))):
        result = ex.compare(*sets, seed=4)
        assert (result.start, result.n, len(result.path.n)) == (90, 130, 40)
        assert result.split is not None
        assert result.sets == ((names[0], names[1]) if names[0] == "train" else ("test", "train"))
        assert sorted(map(tuple, result.X.tolist())) == sorted(map(tuple, np.vstack(sets).tolist()))
        assert np.array_equal(result.X[90:], test[result.split.rows])
        assert sorted(result.split.rows) == list(range(40))
        assert json.loads(result.to_json())["n"] == 130
        p = ex.PValues(measures.NearestDistance(), seed=4).extend(result.X)[90:]
        assert np.array_equal(result.path.p, p)
        assert (result.changepoint, result.verdict.changepoints) == (None, [])


def test_a_split_by_value_is_rejected_and_described() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=400), "c": rng.choice(list("uv"), 400), "y": rng.choice(list("01"), 400)}
    )
    late = frame[300:].assign(c="new")
    same, other = ex.compare(frame[:300], frame[300:], "y"), ex.compare(frame[:300], late, "y")
    assert (same.rejected, other.rejected, other.rejected_by) == (False, True, ["c"])
    assert "random sample of train and test combined" in str(other)
    assert "no convincing evidence that train and test differ" in str(same)
    assert other.explain().changed == ["c"]
    assert "share of new: 0 % -> 100 %" in str(other.explain())
    assert next(iter(other.frame().columns)) == "row"
    assert "random split of one" in other.guarantee


def test_sets_must_fit_together() -> None:
    a, b = pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}), pd.DataFrame({"b": [1, 2], "a": [3.0, 4.0]})
    assert ex.compare(a, b).features == ["a", "b"]
    with pytest.raises(ValueError, match="same columns, got 'c' in one of them only"):
        ex.compare(a, b.assign(c=1))
    with pytest.raises(ValueError, match="numbers in both sets, or text or categories in both"):
        ex.compare(a, b.assign(a=["u", "v"]))
    for bad in ([1, 2, 3], 3.5, object()):
        with pytest.raises(ValueError, match="label must name a column of both sets, or be a pair of sequences"):
            ex.compare(a, b, bad)
    for one in ((["u", "v"], None), (None, ["u", "v"])):
        with pytest.raises(ValueError, match="label must be given for both sets, or for neither"):
            ex.compare(a, b, one)
    assert ex.compare(a.to_numpy(), b.to_numpy(), (["u", "v"], ["u", "u"])).measure == "nearest-neighbour"
    assert ex.compare(a, b[:1]).n == 3


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
