"""Long tables and tables with times: which rows are used, how alpha is shared, and the texts of the results."""

from __future__ import annotations

import copy
import datetime as dt
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import binomtest

import exchangeable as ex
from exchangeable import alarms, bets, measures
from exchangeable.analysis import sample
from exchangeable.analysis.columns import column_p_values, select_columns
from exchangeable.analysis.result import Result
from exchangeable.analysis.timeline import Timeline, format_time
from exchangeable.data.canonical import column_stream
from exchangeable.data.table import Table, TableColumn
from exchangeable.protocols import Floats

LN10 = math.log(10.0)


def moved(n: int = 600, d: int = 3, by: float = 2.0, seed: int = 0) -> Floats:
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[n // 2 :] += by
    return X


# ------------------------------------------------------------------ some rows for nearest neighbours


def chosen(n: int, limit: int, seed: int) -> list[int]:
    """Return the rows with the smallest random numbers of the stream for rows, in the order of the table."""
    keys = ex.thetas(seed, 0, n, 2**32 - 3)
    return sorted(sorted(range(n), key=lambda row: keys[row])[:limit])


def test_full_rows_use_some_rows_and_columns_use_all() -> None:
    X = moved()
    result, every = ex.test(X, max_rows=150, seed=8), ex.test(X, seed=8)
    rows = chosen(600, 150, 8)
    assert result.sample.rows is not None
    assert result.sample.rows.tolist() == rows
    path = ex.Monitor(measures.NearestDistance(), seed=8).extend(X[rows])
    assert np.array_equal(result.path.p[rows], path.p)
    assert np.isnan(np.delete(result.path.p, rows)).all()
    assert result.path.n.tolist() == list(range(1, 601))
    capital = 0.0
    for i in range(600):  # between the rows the capital stays
        capital = path.log_value[rows.index(i)] if i in rows else capital
        assert result.path.log_value[i] == capital
    for one, other in zip(result.column_tests, every.column_tests, strict=True):
        assert np.array_equal(one.log_value, other.log_value)
    evidence = np.maximum.reduce([test.log_value + math.log(test.weight) for test in result.tests])
    assert result.log10_evidence == evidence.max() / LN10
    assert result.rejected_at == int((evidence >= math.log(100.0)).argmax()) + 1
    frame = result.frame("pandas")
    assert (len(frame), frame["p"].notna().sum()) == (600, 150)
    [note] = [note for note in result.notes if "chosen at random by the seed" in note]
    assert note.startswith("full rows were tested on 150 of 600 rows")
    assert "columns were tested on all rows" in note
    assert every.notes == []


def test_numbers_of_rows_are_those_of_the_table() -> None:
    X = moved(by=3.0)
    result = ex.test(X, max_rows=200, columns="none", seed=1)
    rows = np.array(chosen(600, 200, 1))
    monitor = ex.Monitor(measures.NearestDistance(), seed=1)
    path = monitor.extend(X[rows])
    assert monitor.alarm_at is not None
    assert result.rejected_at is not None
    assert result.rejected_at == rows[monitor.alarm_at - 1] + 1
    assert (result.changepoint or 0) - 1 in rows  # the last one of the rows before the change
    assert abs((result.changepoint or 0) - 300) <= 20
    assert np.flatnonzero(result.path.alarm).tolist() == list(range(result.rejected_at - 1, 600))
    explanation = result.explain()
    order = np.argsort(path.p)
    assert [row.n - 1 for row in explanation.smallest_p] == rows[order[:5]].tolist()
    assert [row.n - 1 for row in explanation.largest_p] == rows[order[::-1][:5]].tolist()
    assert explanation.n == 200
    change = explanation.change
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    backwards = ex.PValues(measures.NearestDistance(), seed=1, stream=2).extend(X[rows][::-1])
    reached = ex.Martingale(bets.Adaptive()).extend(backwards) >= math.log(40.0)
    assert reached.any()
    assert change.low == rows[::-1][reached.argmax()] + 1
    assert change.high == rows[(path.log_value >= math.log(40.0)).argmax()]
    assert change.low < 300 < change.high


def test_restarts_of_some_rows() -> None:
    X = moved(900, 2, 0.0)
    y = X[:, 0] + 5.0 * (np.arange(900) // 300)
    result = ex.test(X, y, max_rows=600, on_alarm="restart", seed=1)
    rows = np.array(chosen(900, 600, 1))
    monitor = ex.Monitor(measures.NearestResidual(), seed=1, on_alarm="restart")
    path = monitor.extend(X[rows], y[rows])
    raised = np.flatnonzero(path.alarm)
    assert len(raised) > 1
    assert result.verdict.alarms == (rows[raised] + 1).tolist()
    assert result.verdict.changepoints == [rows[i - 1] + 1 if i else 0 for i in path.lowest[raised].tolist()]
    assert f"The alarm was raised {len(raised)} times in 900 rows, at rows {rows[raised[0]] + 1}" in str(result)
    assert result.path.test[-1] == path.test[-1] == len(raised) + 1
    assert "After each alarm the test starts again" in _page(result)


def test_labels_and_shift_of_some_rows() -> None:
    rng = np.random.default_rng(0)
    y = rng.random(500) < np.repeat([0.2, 0.8], 250)
    X = rng.normal(size=(500, 2)) + 3.0 * y[:, np.newaxis]
    labels = np.where(y, "u", "v")
    result = ex.test(X, labels, max_rows=300, seed=2)
    rows = chosen(500, 300, 2)
    assert np.array_equal(
        result.path.p[rows], ex.Monitor(measures.NearestNeighbour(), seed=2).extend(X[rows], labels[rows].tolist()).p
    )
    shift = result.explain().shift
    plain = ex.shift_test(X[rows], labels[rows], seed=2)
    assert shift is not None
    assert plain.label.alarm_at is not None
    assert (shift.verdict, shift.label.alarm_at) == ("label shift", rows[plain.label.alarm_at - 1] + 1)
    assert shift.label.log_value[rows].tolist() == plain.label.log_value.tolist()
    scored = ex.test(X, labels, measure=measures.Frozen(lambda x, y: x[:, 0]), max_rows=300, seed=2)
    assert scored.sample.rows is None  # scores are ranked in O(n log n)
    again = scored.explain().shift
    assert again is not None
    assert np.array_equal(again.concept.log_value, shift.concept.log_value)


def test_two_long_sets() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(400, 2)), rng.normal(size=(60, 2)) + 2.0
    result, every = ex.compare(a, b, max_rows=100, seed=3), ex.compare(a, b, seed=3)
    rows = result.sample.rows
    assert rows is not None
    assert rows.tolist() == [*range(50), *range(400, 450)]
    assert np.array_equal(result.sample.measured, every.sample.measured[rows])
    p = ex.PValues(measures.NearestDistance(), seed=3).extend(every.sample.measured[rows])[50:]
    assert np.array_equal(result.path.p[:50], p)
    assert np.isnan(result.path.p[50:]).all()
    assert result.path.n.tolist() == list(range(401, 461))
    assert result.path.log_value[50:].tolist() == [result.path.log_value[49]] * 10
    assert [test.log_value[-1] for test in result.column_tests] == [test.log_value[-1] for test in every.column_tests]
    assert result.rejected
    result.explain()
    few = ex.compare(a, b[:10], max_rows=100).sample.rows
    assert few is not None
    assert few.tolist() == [*range(90), *range(400, 410)]


def test_a_wide_table_uses_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MAX_CELLS", 400)
    result = ex.test(moved(100, 8))
    assert len(result.sample.measured) == 50
    assert any("50 of 100 rows, chosen at random by the seed (the features of more rows" in n for n in result.notes)
    assert ex.test(moved(100, 8), measure=measures.Frozen(lambda x, y=None: x[:, 0])).sample.rows is None


@pytest.mark.parametrize("kind", ["test", "compare"])
def test_false_rejections_stay_rare_with_some_rows(kind: str) -> None:
    count = 0
    for seed in range(200):
        X = np.random.default_rng([5, seed]).integers(0, 4, (90, 2))
        if kind == "test":
            count += ex.test(X, max_rows=40, alpha=0.2).rejected
        else:
            count += ex.compare(X[:60], X[60:], max_rows=40, alpha=0.2).rejected
    assert binomtest(count, 200, 0.2, alternative="greater").pvalue > 1e-3


def test_columns_in_parts_give_the_same_p_values(monkeypatch: pytest.MonkeyPatch) -> None:
    column = TableColumn("a", np.random.default_rng(0).integers(0, 50, 1000).astype(float))
    whole = ex.PValues(measures.Value(), seed=4, stream=column_stream("a")).extend(column.values)
    monkeypatch.setattr("exchangeable.analysis.columns.CHUNK", 37)
    for start in (0, 30, 37, 100):
        assert np.array_equal(np.concatenate(list(column_p_values(column, 4, start=start))), whole[start:])


def test_progress_is_reported() -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    result = ex.test(moved(5000, 2, 0.0), progress=lambda task, *done: seen.setdefault(task, []).append(done))
    assert list(seen) == ["full rows", "each column", "each view"]
    assert seen["each column"] == [(0, 2), (1, 2), (2, 2)]
    done = [part / total for part, total in seen["full rows"]]
    assert (done[0], done[-1], len(done)) == (0.0, 1.0, 4)
    assert done == sorted(done)
    plain = ex.Monitor(measures.NearestDistance(), seed=result.seed).extend(result.sample.measured)
    assert np.array_equal(plain.p, result.path.p)


# ------------------------------------------------------------------ shares of alpha


def test_the_share_of_a_sorted_column_is_not_given_to_others() -> None:
    X = moved(300, 3, 0.5)
    frame = pd.DataFrame(X, columns=list("abc"))
    result, sorted_too = ex.test(frame, seed=1), ex.test(frame.assign(year=np.arange(300) // 10), seed=1)
    views = [0.1 / 3] * 3  # components
    assert np.allclose([test.weight for test in result.tests], [0.55, *[0.35 / 3] * 3, *views])
    assert np.allclose([test.weight for test in sorted_too.tests], [0.55, *[0.35 / 4] * 3, *views])
    assert [test.name for test in sorted_too.column_tests] == ["a", "b", "c"]
    for one, other in zip(result.tests, sorted_too.tests, strict=True):
        assert np.array_equal(one.log_value, other.log_value)
    rows_only = ex.test(frame.assign(year=np.arange(300)), columns="none", seed=1)
    capital = float(sorted_too.column_tests[0].log_value.max())
    for result, features, weight in ((sorted_too, None, 0.35 / 4), (rows_only, None, 1 / 4), (sorted_too, ["a"], 1.0)):
        evidence = {feature.name: feature.log10_evidence for feature in result.explain(features=features).features}
        assert math.isclose(evidence["a"], (capital + math.log(weight)) / LN10)
    assert "the share of 1 sorted column, set aside, stays unspent" in _page(sorted_too).lower()


def test_columns_are_counted_before_sorted_ones_are_set_aside() -> None:
    X = np.random.default_rng(0).normal(size=(50, 64))
    assert len(ex.test(X).column_tests) == 64
    assert ex.test(np.column_stack([X, np.arange(50)])).column_tests == []


def test_a_single_column_beside_sorted_ones() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=300) + 1.5 * (np.arange(300) >= 150)
    plain, beside = ex.test(x, seed=1), ex.test({"x": x, "year": np.arange(300), "t": -np.arange(300.0)}, seed=1)
    assert np.allclose([plain.tests[0].weight, beside.tests[0].weight], [1.0, 0.65 + 0.35 / 3])
    assert np.array_equal(plain.path.log_value, beside.path.log_value)
    assert (beside.measure, beside.column_tests, beside.log10_martingale) == ("value", [], plain.log10_martingale)
    level = math.log(100.0 / beside.tests[0].weight)
    assert beside.rejected_at == int((plain.path.log_value >= level).argmax()) + 1 >= (plain.rejected_at or 0)
    assert math.isclose(float(beside.p_value), float(plain.p_value) / beside.tests[0].weight)
    assert beside.changepoint == plain.changepoint
    assert f"Kind: one change, after about {beside.changepoint} rows." in str(beside)
    assert f"(alarm at 100, raised at row {beside.rejected_at})." in str(beside)
    assert "of reaching evidence of 100 would be at most 1 %, plus at most 6e-7 for each column" in str(beside)
    assert "plus" not in plain.guarantee
    assert beside.frame()["log10_evidence"].to_list()[-1] == beside.log_evidence[-1] / LN10
    assert beside.to_dict()["log10_evidence"] == (plain.path.log_value.max() + math.log(beside.tests[0].weight)) / LN10
    assert "This test has 76.67 % of the significance level." in _page(beside)
    asked: list[dict[str, Any]] = [{"columns": "none"}, {"measure": measures.Value()}, {"alarm": alarms.Cusum()}]
    for options in asked:
        assert ex.test({"x": x, "year": np.arange(300)}, **options).tests[0].weight == 1.0


@pytest.mark.parametrize("d", [1, 3])
def test_exchangeable_tables_with_a_sorted_column_are_rarely_rejected(d: int) -> None:
    count = 0
    for seed in range(200):
        X = np.random.default_rng([6, seed]).integers(0, 5, (60, d)).astype(float)
        count += ex.test(np.column_stack([np.arange(60), X]), alpha=0.2, seed=seed).rejected
    assert binomtest(count, 200, 0.2, alternative="greater").pvalue > 1e-3


# ------------------------------------------------------------------ alarms


def test_other_alarms_and_restarts() -> None:
    x = np.random.default_rng(0).normal(size=400) + 2.0 * (np.arange(400) >= 300)
    for alarm in (alarms.Cusum(500), alarms.ShiryaevRoberts(500)):
        given = copy.deepcopy(alarm)
        result = ex.test(x, alarm=alarm, seed=1)
        monitor = ex.Monitor(measures.Value(), alarm=given, seed=1)
        path = monitor.extend(x)
        assert (result.bet, result.rejected_at, result.alpha) == ("sentinel", monitor.alarm_at, None)
        assert np.array_equal(result.path.log_value, path.log_value)
        assert result.guarantee == monitor.guarantee
        assert alarm.n == 0
    wide = ex.test(moved(200), alarm=alarms.Cusum(500))
    assert wide.column_tests == []
    restarted = ex.test(np.concatenate([x, x]), on_alarm="restart", alpha=0.05, seed=1)
    assert len(restarted.verdict.alarms) > 1
    assert (restarted.column_tests, restarted.alpha) == ([], 0.05)


# ------------------------------------------------------------------ times


def dated(n: int = 400, **columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"day": pd.date_range("2024-01-01", periods=n), "a": rng.normal(size=n) + 2.0 * (np.arange(n) >= n / 2)}
        | {"b": rng.normal(size=n)}
        | columns
    )


def day(n: int) -> dt.date:
    """Return the day of row n."""
    return dt.date(2024, 1, 1) + dt.timedelta(days=n - 1)


def test_times_are_formatted() -> None:
    assert format_time(np.datetime64("2024-03-14"), "D") == "14 March 2024"
    assert format_time(np.datetime64("2024-03-14T09:05:07", "ns"), "auto") == "14 March 2024, 09:05:07"
    assert format_time(np.datetime64("2024-03-14"), "auto") == "14 March 2024, 00:00"
    assert format_time(np.datetime64("NaT"), "auto") == ""
    assert format_time(np.datetime64(10**6, "Y"), "Y").startswith("10019")
    timeline = Timeline(np.array(["2024-03-14T09:00", "NaT"], "datetime64[us]"), np.array([7, 9]))
    assert timeline.describe(1) == " (row 7 of the data, 14 March 2024, 09:00)"
    assert timeline.describe(2, "more") == " (row 9 of the data, more)"
    assert (timeline.iso(1), timeline.iso(2), timeline.iso(None), timeline.axis) == (
        "2024-03-14T09:00",
        None,
        None,
        None,
    )
    for wrong in (["2024-01-01"] * 2, ["2024-01-02", "2024-01-01"], ["2024-01-01", "20000-01-01"]):
        assert Timeline(np.array(wrong, "datetime64[us]")).axis is None
    years = Timeline(np.array(["1871", "1872"], "datetime64[us]"))
    assert (years.describe(2), years.iso(2), years.unit) == (" (1872)", "1872", "Y")
    assert (Timeline().describe(3), Timeline().iso(3), Timeline().axis) == ("", None, None)


def test_results_show_times() -> None:
    result = ex.test(dated())
    at, before = result.rejected_at, result.changepoint
    assert at is not None
    assert before is not None
    text = str(result)
    assert f"raised at row {at} ({day(at):%-d %B %Y}))." in text
    assert f"after about {before} rows ({day(before):%-d %B %Y})." in text
    record = json.loads(result.to_json())
    times = (record["rejected_at_time"], record["changepoint_time"], record["time_column"])
    assert times == (f"{day(at):%Y-%m-%d}", f"{day(before):%Y-%m-%d}", "day")
    assert (result.rejected_at_time, result.changepoint_time) == times[:2]
    explanation = result.explain()
    change = explanation.change
    assert change is not None
    assert change.low is not None
    assert f"the change came after one of rows {change.low} ({day(change.low):%-d %B %Y}) to " in str(explanation)
    first = explanation.smallest_p[0]
    assert f"Strangest rows: {first.n} ({day(first.n):%-d %B %Y}, p = " in str(explanation)
    plain = explanation.to_dict()
    assert plain["change"]["low_time"] == f"{day(change.low):%Y-%m-%d}"
    assert plain["smallest_p"][0]["n_time"] == f"{day(first.n):%Y-%m-%d}"
    flagged = explanation.features[0]
    assert flagged.rejected_at is not None
    assert plain["features"][0]["rejected_at_time"] == f"{day(flagged.rejected_at):%Y-%m-%d}"
    frame = result.frame()
    assert frame["time"].tolist() == dated()["day"].tolist()
    for card in (_page(result), explanation._repr_html_()):
        assert f"{day(change.low):%-d %B %Y}" in card


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_times_in_frames_of_each_library(library: str) -> None:
    frame = ex.test(pl.from_pandas(dated(20))).frame(library)
    column = pl.DataFrame(frame)["time"] if library != "pandas" else pl.from_pandas(frame)["time"]
    assert column.to_list() == [stamp.to_pydatetime() for stamp in dated(20)["day"]]


def test_rows_that_were_reordered_or_left_out_keep_their_numbers() -> None:
    frame = dated(400)
    order = np.random.default_rng(1).permutation(400)
    result, plain = ex.test(frame.iloc[order], order="day"), ex.test(frame)
    assert result.rejected_by == plain.rejected_by
    made = result.frame()
    assert made["row"].tolist() == (np.argsort(order) + 1).tolist()
    assert made["time"].tolist() == frame["day"].tolist()
    assert made.index.tolist() == list(range(400))
    at = result.rejected_at
    assert at is not None
    assert f"at row {at} (row {np.argsort(order)[at - 1] + 1} of the data, {day(at):%-d %B %Y})" in str(result)
    labels = [None, *(["u", "v"] * 200)[:399]]
    left = ex.test(frame, labels, seed=1)
    assert left.n == 399
    assert left.frame()["row"].tolist() == list(range(2, 401))
    assert left.frame().index.tolist() == list(range(1, 400))
    assert "row" not in plain.frame().columns


def test_axes_show_times_only_if_they_ascend() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.dates import ConciseDateFormatter, num2date

    frame = dated()
    result = ex.test(frame)
    ax = result.plot()
    assert isinstance(ax.xaxis.get_major_formatter(), ConciseDateFormatter)
    assert ax.get_xlabel() == "time"
    line = np.asarray(ax.lines[0].get_xdata())
    assert len(line) == 401
    days = [f"{date:%Y-%m-%d}" for date in num2date(line[[0, 1, -1]])]  # type: ignore[no-untyped-call]
    assert days == ["2024-01-01", "2024-01-01", "2025-02-03"]
    mark = next(line for line in ax.lines if line.get_label() == "estimated change point")
    assert f"{num2date(np.asarray(mark.get_xdata())[0]):%Y-%m-%d}" == result.changepoint_time  # type: ignore[no-untyped-call]
    back = ex.test(frame[::-1])
    assert back.plot().get_xlabel() == "rows seen"
    assert np.asarray(back.plot().lines[0].get_xdata())[-1] == 400
    assert back.rejected_at_time is not None
    clock = ex.test(frame.assign(day=pd.date_range("2024-01-01", periods=400, freq="min")))
    assert ", 0" in str(clock).split("raised at row")[1][:80]


def test_two_sets_have_no_times() -> None:
    result = ex.compare(dated()[:200], dated()[200:])
    assert (result.timeline.times, result.rejected_at_time) == (None, None)
    assert result.frame()["row"].min() == 1
    assert result.frame()["row"].max() == 200


def test_a_table_made_by_hand() -> None:
    """Notes and treatments of the schema step reach the result."""
    table = Table([TableColumn("a", np.arange(4.0))], notes=("a note",), treatments={"a": "numbers", "id": "left out"})
    assert [one.column.name for one in select_columns(table)] == ["a"]
    frame = dated(60, key=np.arange(60) % 7, year=np.arange(60))
    result = ex.test(frame)
    assert result.schema["year"] == "set aside: sorted"
    assert result.schema["day"] == "time"
    assert any(note.startswith("column 'year' is sorted") for note in result.notes)
    assert "How columns were read" in _page(result)


def _page(result: Result) -> str:
    from exchangeable.analysis import report

    return report.document(result, result.explain())
