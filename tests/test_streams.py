"""`test_streams`: the numbers of one monitor for each stream, bit for bit, whatever the form and order of the data."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import exchangeable as ex
from conftest import Done, Run
from exchangeable import alarms, bets, measures
from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.schema import ORDER_STREAM
from exchangeable.fleet import e_bh, stream_seed
from exchangeable.keyed.whole import WholeStreams
from exchangeable.martingale import LN10
from exchangeable.streams import Options, Wanted, blocks, report, single, tester
from exchangeable.streams import run as run_streams

LENGTHS = (60, 1, 400, 13, 200, 2300)
MAKE: dict[str, Callable[[], Any]] = {
    "composite": bets.CompositeJumper,
    "adaptive": bets.Adaptive,
    "sentinel": bets.Sentinel,
    "power": lambda: bets.Power(0.5),
    "histogram": bets.Histogram,
    "growing state": bets.SleeperDrifter,
}


def readings(lengths: tuple[int, ...] = LENGTHS, decimals: int = 1) -> pl.DataFrame:
    """Streams with ties in x, and in time; the second half of the third has changed."""
    rng, parts = np.random.default_rng(3), []
    for i, n in enumerate(lengths):
        x = rng.normal(size=n).round(decimals)
        x[n // 2 :] += 3.0 * (i == 2)
        time = np.arange(n) // 2
        parts.append(pl.DataFrame({"device": [f"d{i}"] * n, "time": time, "x": x}))
    return pl.concat(parts)


def in_order(rows: pl.DataFrame, seed: int, key: Any, columns: tuple[str, ...] = ("x",)) -> pl.DataFrame:
    """Sort a stream by its times, ties in the random order of the seed: as documented, written plainly."""
    table = rows.sort("time", *columns)
    random = ex.thetas(stream_seed(seed, key), 0, len(table), ORDER_STREAM)
    return table.with_columns(pl.Series("random", random)).sort("time", "random")


def alone(x: Any, seed: int, key: Any, measure: Any, bet: Any, **options: Any) -> tuple[ex.Monitor, ex.Path]:
    monitor = ex.Monitor(measure, bet, seed=stream_seed(seed, key), **options)
    return monitor, monitor.extend(x)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    if isinstance(frame, pd.DataFrame):
        frame = pl.from_pandas(frame)
    return (frame if isinstance(frame, pl.DataFrame) else pl.from_arrow(frame)).to_dicts()  # type: ignore[union-attr]


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("bet", MAKE)
def test_streams_have_the_numbers_of_single_monitors(bet: str, on_alarm: str) -> None:
    frame = readings()
    options = {"bet": MAKE[bet](), "on_alarm": on_alarm, "seed": 5}
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    steps = ex.test_streams(shuffled, "device", "time", steps=True, threads=1, **options)
    result = {} if on_alarm == "restart" else by_key(ex.test_streams(shuffled, "device", "time", **options))
    for key in frame["device"].unique().to_list():
        table = in_order(frame.filter(pl.col("device") == key), 5, key)
        monitor, path = alone(table["x"].to_numpy(), 5, key, measures.Value(), MAKE[bet](), on_alarm=on_alarm)
        mine = steps.filter(pl.col("device") == key)
        assert np.array_equal(mine["p"], path.p)
        assert np.array_equal(mine["log10_martingale"], path.log_value / LN10)
        assert np.array_equal(mine["alarm"], path.alarm)
        assert np.array_equal(mine["test"], path.test)
        if result:
            row = result[key]
            assert (row["n"], row["alarm_at"], row["changepoint"]) == (monitor.n, monitor.alarm_at, monitor.changepoint)
            assert row["log10_martingale"] == path.log_value[-1] / LN10
            assert row["log10_max"] == monitor.log_max / LN10
            assert row["p_value"] == np.exp(-monitor.log_max)


def by_key(frame: Any) -> dict[Any, dict[str, Any]]:
    return {row["device"]: row for row in rows_of(frame)}


def test_a_test_that_restarts_discovers_nothing() -> None:
    with pytest.raises(ValueError, match="on_alarm='restart' requires steps=True"):
        ex.test_streams(readings(), "device", "time", on_alarm="restart")


@pytest.mark.parametrize("measure", ["frozen", "exact", "score", "given"])
def test_measures_of_fixed_scores(measure: str) -> None:
    make: dict[str, Callable[[], Any]] = {
        "frozen": lambda: measures.Frozen(bins=8, reference=np.arange(30.0)),
        "exact": measures.Frozen,
        "score": lambda: measures.Frozen(lambda X, y: np.abs(X[:, 0])),
        "given": ex.Precomputed,
    }
    x = np.random.default_rng(0).uniform(0.0, 1.0, 400)
    frame = pl.DataFrame({"k": np.repeat([1, 2], 200), "x": x})
    result = ex.test_streams(frame, "k", measure=make[measure](), bet=bets.CompositeJumper(), seed=2)
    for i, row in enumerate(rows_of(result)):
        values = x[200 * i : 200 * i + 200]
        values = values[:, np.newaxis] if measure == "score" else values
        _, path = alone(values, 2, i + 1, make[measure](), bets.CompositeJumper())
        assert row["log10_martingale"] == path.log_value[-1] / LN10


@pytest.mark.parametrize(("label", "measure"), [(None, "NearestDistance"), ("c", "NearestNeighbour")])
def test_several_features_and_labels(label: str | None, measure: str) -> None:
    rng = np.random.default_rng(4)
    columns = {"k": np.repeat(["a", "b", "c"], 50), "time": np.tile(np.arange(50) // 2, 3), "u": rng.normal(size=150)}
    frame = pl.DataFrame(columns | {"v": rng.normal(size=150), "c": rng.choice(["x", "y"], 150)})
    result = ex.test_streams(
        frame.sample(fraction=1.0, shuffle=True, seed=3), "k", "time", ["u", "v"], label, seed=1, threads=2
    )
    for row in rows_of(result):
        table = in_order(frame.filter(pl.col("k") == row["k"]), 1, row["k"], ("v",) if label is None else ("c", "v"))
        monitor = ex.Monitor(getattr(measures, measure)(), seed=stream_seed(1, row["k"]))
        path = monitor.extend(table.select("u", "v").to_numpy(), None if label is None else table["c"].to_list())
        assert row["log10_martingale"] == path.log_value[-1] / LN10
    numeric = ex.test_streams(frame.with_columns(c=pl.col("u") * 2.0), "k", "time", ["u", "v"], "c", seed=1)
    assert len(numeric) == 3


def test_ties_of_any_number_of_rows_are_shuffled_by_the_seed() -> None:
    rng = np.random.default_rng(6)
    columns = {"k": rng.choice(["a", "b", "c"], 200), "time": rng.integers(0, 40, 200) * 10**15}
    frame = pl.DataFrame(columns | {"u": rng.integers(0, 3, 200) * 1.0, "v": rng.normal(size=200)})
    assert frame.group_by("k", "time").len()["len"].n_unique() > 4
    for features in (["u"], ["u", "v"]):
        for row in rows_of(ex.test_streams(frame, "k", "time", features, seed=1)):
            table = in_order(frame.filter(pl.col("k") == row["k"]), 1, row["k"], tuple(reversed(features)))
            measure = measures.Value() if len(features) == 1 else measures.NearestDistance()
            x = table.select(features).to_numpy()
            _, path = alone(x[:, 0] if len(features) == 1 else x, 1, row["k"], measure, None)
            assert row["log10_martingale"] == path.log_value[-1] / LN10


def test_forms_of_data_chunks_and_threads_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = readings().with_columns(x=pl.col("x") + pl.int_range(pl.len()) * 1e-9, time=pl.int_range(pl.len()))
    frame = frame.sort("time")
    options: dict[str, Any] = {"bet": bets.CompositeJumper(), "seed": 5}
    expected = ex.test_streams(frame, "device", "time", **options)
    table = frame.to_arrow()
    frame.write_csv(tmp_path / "data.csv")
    (tmp_path / "folder").mkdir()
    pq.write_table(table.slice(0, 1000), tmp_path / "folder" / "a.parquet", row_group_size=37)
    pq.write_table(table.slice(1000), tmp_path / "folder" / "b.parquet")

    def same(result: Any) -> None:
        assert rows_of(result) == rows_of(expected)

    monkeypatch.setattr(tester, "CHUNK_ROWS", 70)
    for data in (frame, frame.to_pandas(), table, tmp_path / "data.csv", str(tmp_path / "folder")):
        same(ex.test_streams(data, "device", "time", threads=3, **options))
    assert isinstance(ex.test_streams(table, "device", "time", **options), pa.Table)
    assert isinstance(ex.test_streams(frame.to_pandas(), "device", "time", **options), pd.DataFrame)
    same(ex.test_streams(iter(table.to_batches(100)), "device", "time", **options))
    monkeypatch.setattr(blocks, "IN_MEMORY", 5000)
    same(ex.test_streams(iter(table.to_batches(100)), "device", "time", **options))
    monkeypatch.setattr(blocks, "BLOCK", 200)
    same(ex.test_streams(iter(table.to_batches(100)), "device", "time", presorted=True, **options))
    steps = ex.test_streams(iter(table.to_batches(100)), "device", "time", presorted=True, steps=True, **options)
    assert rows_of(steps) == rows_of(ex.test_streams(table, "device", "time", steps=True, **options))
    monkeypatch.setattr(blocks, "BLOCK", 60)
    again = pa.concat_tables([table, table.slice(0, 60)])
    with pytest.raises(DataError, match=r"data must be sorted by key, got key 'd[0-9]' again"):
        ex.test_streams(iter(again.to_batches(50)), "device", "time", presorted=True)


def test_discoveries_are_those_of_e_bh_and_rows_are_found() -> None:
    frame = readings().with_row_index("row")
    result = ex.test_streams(frame, "device", "time", "x", seed=5, bet=bets.CompositeJumper())
    found = e_bh(result, 0.05, stream="device", log_value="log10_martingale", base=10)
    assert result["discovered"].to_list() == found.rejected.tolist()
    assert found.names == ["d2"]
    more = ex.test_streams(frame, "device", "time", "x", seed=5, bet=bets.CompositeJumper(), streams=10**15)
    assert (
        more["discovered"].to_list()
        == e_bh(result, 0.05, stream="device", log_value="log10_martingale", base=10, streams=10**15).rejected.tolist()
    )
    row = result.row(by_predicate=pl.col("device") == "d2", named=True)
    table = in_order(frame.filter(pl.col("device") == "d2"), 5, "d2")
    assert frame["x"][row["alarm_row"] - 1] == table["x"][row["alarm_at"] - 1]
    assert row["alarm_time"] == table["time"][row["alarm_at"] - 1]
    assert row["change_time"] == table["time"][row["changepoint"]]


def test_refused_rows_are_counted_and_not_tested() -> None:
    x = [0.5, None, 0.2, float("inf"), 0.1, float("nan"), 0.3, 0.4]
    frame = pl.DataFrame({"k": ["a"] * 7 + ["b"], "t": [1, 2, 3, 4, None, 6, 7, None], "x": x})
    result = ex.test_streams(frame, "k", "t", seed=1, bet=bets.CompositeJumper())
    assert result.select("k", "n", "refused").rows() == [("a", 3, 4), ("b", 0, 1)]
    _, path = alone([0.5, 0.2, 0.3], 1, "a", measures.Value(), bets.CompositeJumper())
    assert result["log10_martingale"].to_list() == [path.log_value[-1] / LN10, 0.0]
    given = pl.DataFrame({"k": ["a", "a"], "p": [0.0, 1.0]})
    assert ex.test_streams(given, "k", measure=ex.Precomputed())["refused"].to_list() == [1]
    huge = pl.DataFrame({"k": ["a"] * 3, "x": [1.0, 2.0, 1e200], "z": [1.0, 2.0, 3.0], "c": ["u", "v", "u"]})
    same = measures.Conditional(measures.NearestDistance())
    for options in ({"features": ["x", "z"]}, {"features": ["x", "z"], "label": "c", "measure": same}):
        assert ex.test_streams(huge, "k", **options).select("n", "refused").rows() == [(2, 1)]
    assert ex.test_streams(huge, "k", features="x")["refused"].to_list() == [0]


@pytest.mark.parametrize(
    ("keys", "seed_key"),
    [
        ([7, 7], 7),
        ([dt.date(2024, 1, 31)] * 2, "2024-01-31"),
        (["ä", "ä"], "ä"),
        (pl.Series(["c", "c"], dtype=pl.Categorical), "c"),
        ([dt.datetime(2024, 1, 31, 5)] * 2, "2024-01-31T05:00:00"),
        ([dt.datetime(2024, 1, 31, 5, microsecond=500)] * 2, "2024-01-31T05:00:00.000500"),
        ([dt.time(5)] * 2, "05:00:00"),
        (pl.Series([dt.datetime(2024, 1, 31, 5)] * 2).dt.replace_time_zone("Asia/Tokyo"), "2024-01-30T20:00:00"),
    ],
)
def test_keys_and_their_seeds(keys: Any, seed_key: Any) -> None:
    frame = pl.DataFrame({"k": keys, "x": [1.0, 1.0]})
    result = ex.test_streams(frame, "k", seed=3, bet=bets.Power(0.5), steps=True)
    _, path = alone([1.0, 1.0], 3, seed_key, measures.Value(), bets.Power(0.5))
    assert np.array_equal(result["p"], path.p)
    assert result["k"][0] == keys[0]


def test_the_unit_of_times_does_not_matter(tmp_path: Path) -> None:
    times = [dt.datetime(2024, 1, 31, i // 20) for i in range(60)]
    frame = pl.DataFrame({"device": times, "x": np.random.default_rng(0).normal(size=60)})
    frame.write_csv(tmp_path / "data.csv")
    units = [frame.with_columns(pl.col("device").cast(pl.Datetime(unit))) for unit in ("ms", "us", "ns")]
    seconds = frame.to_pandas().astype({"device": "datetime64[s]"})
    utc = frame.with_columns(pl.col("device").dt.replace_time_zone("UTC"))
    for data in (*units, seconds, utc, tmp_path / "data.csv"):
        for row, key in zip(rows_of(ex.test_streams(data, "device", seed=1)), times[::20], strict=True):
            x = frame.filter(pl.col("device") == key)["x"]
            _, path = alone(x, 1, key.isoformat(), measures.Value(), None)
            assert row["log10_martingale"] == path.log_value[-1] / LN10
    exact = pl.DataFrame({"k": pl.Series([1, 1]).cast(pl.Datetime("ns")), "x": [1.0, 1.0]})
    _, path = alone([1.0, 1.0], 1, "1970-01-01T00:00:00.000000001", measures.Value(), bets.Power(0.5))
    result = ex.test_streams(exact, "k", seed=1, bet=bets.Power(0.5))
    assert result["log10_martingale"][0] == path.log_value[-1] / LN10


def test_streams_are_sorted_by_instant_when_the_clock_is_turned_back() -> None:
    start = dt.datetime(2024, 10, 27, 0, 30)
    key = pl.Series([start, start + dt.timedelta(hours=1)]).dt.replace_time_zone("UTC")
    frame = pl.DataFrame({"k": key.dt.convert_time_zone("Europe/Berlin"), "x": [1.0, 2.0]})
    assert ex.test_streams(frame, "k", seed=1)["k"].equals(frame["k"])


def test_a_seed_is_drawn_and_returned(system_seeds: None) -> None:
    frame = readings((30,))
    one, other = (ex.test_streams(frame, "device", "time") for _ in range(2))
    assert one["seed"][0] != other["seed"][0]
    again = ex.test_streams(frame, "device", "time", seed=one["seed"][0])
    assert again.equals(one)


GOOD = {"k": ["a", "b"], "x": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("data", "arguments", "kind", "message"),
    [
        (GOOD | {"k": ["a", None]}, {}, DataError, "key 'k' must be present in every row, got none in row 2"),
        (GOOD | {"k": [1.5, 2.5]}, {}, DataError, "key must be a column of text, integers, dates or times, got 'k' of"),
        (GOOD, {"key": None}, ColumnError, "key must name the column that holds the stream of each row, got None"),
        (GOOD, {"progress": True}, ValueError, "progress must be a function or None, got True"),
        (GOOD, {"key": "q"}, ColumnError, "key must name a column of the data, got 'q'; the columns are 'k', 'x'"),
        (GOOD, {"order": "k"}, ColumnError, "column 'k' must have one use only"),
        (GOOD | {"t": ["x", "y"]}, {"order": "t"}, DataError, "order must be a column of integers, numbers, dates or"),
        (GOOD | {"x": ["u", "v"]}, {}, DataError, "features must be columns of numbers: 'x' must hold numbers in at"),
        (GOOD | {"x": [2**60, 1]}, {}, DataError, r"column 'x' must hold integers of at most 2\*\*53"),
        ({"k": ["a"]}, {}, ColumnError, "features must name at least one column"),
        ({"k": [], "x": []}, {}, DataError, "data must have at least one row"),
        (3, {}, DataError, "data must be a frame, a file, a folder of Parquet files or an iterator of Arrow batches"),
        (iter([]), {}, DataError, "data must hold at least one batch"),
        (iter([1]), {}, DataError, "data must be an iterator of Arrow batches, got one of 1"),
        (GOOD, {"alpha": 2.0}, ValueError, r"alpha must be in|alpha must lie in|alpha"),
        (GOOD, {"threads": 0}, ValueError, "threads must be"),
        (GOOD, {"streams": 1}, ValueError, "streams must be an integer from 2"),
        ({"n": ["a"], "x": [1.0]}, {"key": "n"}, ValueError, "key must not be named 'n'"),
        (GOOD | {"z": [1.0, 2.0]}, {"measure": measures.Value()}, ColumnError, r"features must name one column for Va"),
        (GOOD, {"features": 3}, ColumnError, "features must be the name of a column, or a list of names, got 3"),
        (GOOD, {"measure": measures.Value}, ValueError, r"measure must be an object, such as Value\(\), got the class"),
        (GOOD, {"presorted": "no"}, ValueError, "presorted must be True or False, got 'no'"),
        (GOOD, {"order": "x", "steps": 1}, ValueError, "steps must be True or False, got 1"),
        ("", {}, DataError, "data must name a file or a folder, got ''"),
        (GOOD | {"k": ["a", "b"], "n": [1, 2]}, {"order": "n", "steps": True}, ValueError, "order must not be named"),
        ({"k": ["a", "b", "a"], "x": [1.0] * 3}, {"presorted": True}, DataError, "sorted by key, got key 'a' again"),
        (GOOD | {"y": [None, None]}, {"label": "y"}, DataError, "'y' must hold classes or numbers, got no values"),
        (GOOD | {"y": ["a", "a"]}, {"label": "y"}, DataError, "'y' must hold at least two classes, got only 'a'"),
        (
            GOOD | {"y": ["a", "a"]},
            {"label": "y", "measure": measures.NearestResidual()},
            ColumnError,
            "label must name a column of numbers",
        ),
        (
            pd.DataFrame([["a", 1.0, 2.0]], columns=["k", "x", "x"]),
            {},
            DataError,
            "two columns are named 'x'; the names must differ",
        ),
    ],
)
def test_errors(data: Any, arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    data = pl.DataFrame(data) if isinstance(data, dict) else data
    with pytest.raises(kind, match=message):
        ex.test_streams(data, **({"key": "k"} | arguments))


LABELS: dict[str, tuple[Any, Any]] = {  # the labels of 40 streams of 50 rows, and a measure if it must be given
    "none in the first blocks": ([None] * 1000 + ["a", "b"] * 500, None),
    "integers with more values later": (list(np.arange(1000) % 3) + list(range(1000)), measures.NearestResidual),
    "integers": ([7] * 1000 + [8] * 1000, measures.NearestNeighbour),
    "one class in a block": (["a"] * 1000 + ["b"] * 1000, None),
    "booleans": ([True, False] * 1000, None),
    "numbers": (list(np.arange(2000) * 0.5), measures.NearestResidual),
    "no label": (None, None),
}
KEY_KINDS: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "integers": lambda k: k,
    "categories": lambda k: k.cast(pl.String).cast(pl.Categorical),
    "text": lambda k: k.cast(pl.String),
    "dates": lambda k: pl.date(2024, 1, 1) + pl.duration(days=k),
    "times": lambda k: pl.datetime(2024, 1, 1) + pl.duration(seconds=k),
}


def divided_and_presorted(frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, path: Path, **options: Any) -> None:
    """Compare all ways of reading the same rows, which are sorted by key."""
    frame.write_parquet(path / "data.parquet", row_group_size=37)
    whole = ex.test_streams(frame, "k", "t", seed=1, bet=bets.CompositeJumper(), **options)

    def same(data: Any, **how: Any) -> None:
        result = ex.test_streams(data, "k", "t", seed=1, bet=bets.CompositeJumper(), **(options | how))
        assert rows_of(result) == rows_of(whole)

    def batches() -> Any:
        return iter([batch for part in frame.iter_slices(90) for batch in part.to_arrow().to_batches()])

    same(path / "data.parquet")
    same(frame.lazy())
    monkeypatch.setattr(blocks, "IN_MEMORY", 3000)
    monkeypatch.setattr(blocks, "BATCH", 150)
    with monkeypatch.context() as no_files:
        no_files.setattr("tempfile.TemporaryDirectory", None)
        same(frame)
    same(batches())
    same(path / "data.parquet")
    monkeypatch.setattr(blocks, "BLOCK", 100)
    same(path / "data.parquet", presorted=True)
    if "measure" not in options and frame.schema.get("y", pl.String).is_numeric():
        with pytest.raises(ValueError, match="measure must be given if labels in presorted batches are numbers"):
            same(batches(), presorted=True)
    else:
        same(batches(), presorted=True)


@pytest.mark.parametrize(
    ("label", "given"), [*((name, False) for name in LABELS), *((name, True) for name in LABELS if LABELS[name][1])]
)
def test_data_in_parts_gives_the_numbers_of_the_whole(
    label: str, given: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    y, measure = LABELS[label]
    rng = np.random.default_rng(2)
    frame = pl.DataFrame({"k": np.repeat(np.arange(40), 50), "t": np.tile(np.arange(50) // 2, 40)})
    frame = frame.with_columns(x=pl.Series(rng.normal(size=2000).round(1)))
    frame = frame if y is None else frame.with_columns(y=pl.Series(y))
    options = {"label": None if y is None else "y"} | ({"measure": measure()} if given else {})
    divided_and_presorted(frame, monkeypatch, tmp_path, **options)
    if measure is not None and not given:
        chosen = ex.test_streams(frame, "k", "t", label="y", seed=1, bet=bets.CompositeJumper(), measure=measure())
        assert rows_of(chosen) == rows_of(
            ex.test_streams(frame, "k", "t", label="y", seed=1, bet=bets.CompositeJumper())
        )


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_keys_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    key = KEY_KINDS[kind](pl.int_range(pl.len(), dtype=pl.Int64) // 50 + 10)
    frame = pl.DataFrame({"x": rng.normal(size=2000), "__row": rng.normal(size=2000)}).with_columns(
        k=key, t=pl.int_range(pl.len())
    )
    divided_and_presorted(frame, monkeypatch, tmp_path, features=["__row"])


def test_batches_with_dictionaries_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [pa.table({"k": pa.array([k, k]).dictionary_encode(), "x": [0.1, 0.2]}) for k in ("b", "a", "c")]
    tables.append(pa.table({"k": ["d"], "x": pa.array([1], pa.int8())}))  # other types for the same values
    monkeypatch.setattr(blocks, "IN_MEMORY", 10)
    assert ex.test_streams(iter(tables), "k", seed=1)["k"].to_pylist() == ["a", "b", "c", "d"]
    with pytest.raises(DataError, match="batch 5: column 'k' must have one type in all of the data, got int64 after"):
        ex.test_streams(iter([*tables, pa.table({"k": [1], "x": [1.0]})]), "k")
    with pytest.raises(DataError, match="batch 5: key 'k' must be present in every row, got none in row 8"):
        ex.test_streams(iter([*tables, pa.table({"k": pa.array([None], pa.string()), "x": [1.0]})]), "k")


def test_a_part_that_is_still_too_large_is_divided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"k": np.arange(6000) % 1500, "x": np.random.default_rng(0).normal(size=6000)})
    whole = ex.test_streams(frame, "k", seed=1, bet=bets.CompositeJumper())
    monkeypatch.setattr(blocks, "IN_MEMORY", 2500)
    monkeypatch.setattr(blocks, "BATCH", 1000)
    depths: set[int] = set()

    def divide(folder: Path, tables: Any, key: str, depth: int, divided: Any = blocks._divided) -> Any:
        depths.add(depth)
        return divided(folder, tables, key, depth)

    monkeypatch.setattr(blocks, "_divided", divide)
    result = ex.test_streams(iter(frame.to_arrow().to_batches(500)), "k", seed=1, bet=bets.CompositeJumper())
    assert rows_of(result) == rows_of(whole)
    assert depths == {0, 1, 2}


def test_a_long_presorted_stream_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 10)
    looked: list[int] = []

    def look(column: Any, last_start: Any = blocks._last_start) -> int:
        looked.append(len(column))
        return int(last_start(column))

    monkeypatch.setattr(blocks, "_last_start", look)
    table = pa.table({"k": ["a"] * 500 + ["b"] * 20, "x": np.arange(520.0)})
    assert [len(block.table) for block in blocks.sorted_blocks(iter(table_slices(table, 10)), "k")] == [500, 20]
    assert sum(looked) == 520


def table_slices(table: Any, rows: int) -> list[Any]:
    return [table.slice(i, rows) for i in range(0, len(table), rows)]


def test_text_among_numbers_and_orders(tmp_path: Path) -> None:
    x = [f"{i}.5" for i in range(30)]
    frame = pl.DataFrame({"k": ["a"] * 30, "x": [*x[:-1], "broken"]})
    frame.write_csv(tmp_path / "data.csv")
    for data in (frame, tmp_path / "data.csv", iter(frame.to_arrow().to_batches(7))):
        assert rows_of(ex.test_streams(data, "k", seed=1))[0]["refused"] == 1
    with pytest.raises(DataError, match=r"at least 90% .*, got 10 others among 30, such as 'u' in row 1"):
        ex.test_streams(pl.DataFrame({"k": ["a"] * 30, "x": ["u"] * 10 + x[10:]}), "k")
    for day, shown in ((("2024-01-%02d"), None), ("%02d/01/2024", "'01/01/2024'")):
        dated = pl.DataFrame({"k": ["a"] * 30, "t": [day % (i + 1) for i in range(30)], "x": np.arange(30.0)})
        whole = ex.test_streams(dated, "k", "t", seed=1, steps=True)
        assert whole["t"][0] == dt.datetime(2024, 1, 1)
        if shown is None:
            parts = ex.test_streams(iter(dated.to_arrow().to_batches(7)), "k", "t", seed=1, steps=True)
            assert rows_of(parts) == rows_of(whole)
        else:
            with pytest.raises(DataError, match=f"ISO format, if the data arrives in parts, got 't' with {shown}"):
                ex.test_streams(iter(dated.to_arrow().to_batches(7)), "k", "t")
    padded = pl.DataFrame({"k": ["a"] * 30, "t": [f"{i:03d}" for i in range(29, -1, -1)], "x": np.arange(30.0)})
    padded.write_csv(tmp_path / "data.csv")
    numbers = ex.test_streams(padded.with_columns(pl.col("t").cast(int)), "k", "t", seed=1)
    for data in (padded, tmp_path / "data.csv"):
        assert rows_of(ex.test_streams(data, "k", "t", seed=1)) == rows_of(numbers)
    codes = padded.with_columns(x=pl.Series(["1.5"] * 29 + ["007"]))
    with pytest.raises(DataError, match="'x' holds text with codes, such as '007' in row 30: convert the column"):
        ex.test_streams(codes, "k", "t")
    with pytest.raises(DataError, match="order must be a column of numbers: 't' must hold numbers in at least 90%"):
        ex.test_streams(padded.with_columns(t=pl.Series(["1.5"] + ["1" * 5000] * 29)), "k", "t")
    low = pl.DataFrame({"k": ["a", "a"], "t": [-(2**63), 0], "x": [1.0, 2.0]})
    assert ex.test_streams(low, "k", "t")["refused"].to_list() == [0]


def test_a_folder_of_parquet_files(tmp_path: Path) -> None:
    pl.DataFrame({"k": ["a", "a"], "x": pl.Series([0.5, 0.25], dtype=pl.Float32)}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"k": ["a", "b"], "x": pl.Series([1, 2], dtype=pl.Int32)}).write_parquet(tmp_path / "b.parquet")
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "c.parquet").write_text("not finished")
    assert ex.test_streams(tmp_path, "k")["n"].to_list() == [3, 1]
    pl.DataFrame({"k": [1, 2], "x": [1.0, 2.0]}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet: column 'k' must have one type in all of the data, got int64"):
        ex.test_streams(tmp_path, "k")
    (tmp_path / "c.parquet").write_text("junk")
    with pytest.raises(DataError, match=r"c\.parquet: the file cannot be read as Parquet"):
        ex.test_streams(tmp_path, "k")
    (tmp_path / "c.parquet").unlink()
    (tmp_path / "d.csv").write_text("k,x\na,1\n")
    with pytest.raises(DataError, match=r"must hold Parquet files \(.parquet\) and no other data, got 'd.csv'"):
        ex.test_streams(tmp_path, "k")


def test_columns_of_other_lengths_and_folders_as_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data must have columns of one length and one type each, got: "):
        ex.test_streams({"k": ["a", "b"], "x": [1.0]}, "k")
    pl.DataFrame({"k": ["a"], "x": [1.0]}).write_parquet(tmp_path, partition_by="k")
    with pytest.raises(DataError, match=r"'k' must be in the files, got it in the name of a folder, 'k=a': polars\."):
        ex.test_streams(tmp_path, "k")
    assert ex.test_streams(pl.scan_parquet(tmp_path, hive_partitioning=True), "k")["n"].to_list() == [1]


def test_a_first_batch_without_orders() -> None:
    frame = pl.DataFrame({"k": ["a"] * 4, "t": [None, None, "2024-01-01", "2024-01-02"], "x": [1.0] * 4})
    with pytest.raises(DataError, match=r"'t' must have a value in the first part of the data, .* got timestamp"):
        ex.test_streams(iter(frame.to_arrow().to_batches(2)), "k", "t")


def test_progress_is_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = readings((40, 40)).to_arrow().to_batches(10)
    calls: list[tuple[str, int, int]] = []
    options: dict[str, Any] = {"bet": bets.CompositeJumper(), "progress": lambda *call: calls.append(call)}
    monkeypatch.setattr(blocks, "BATCH", 40)
    monkeypatch.setattr(blocks, "IN_MEMORY", 100)
    ex.test_streams(iter(batches), "device", **options)
    assert calls[:2] == [("dividing the data by key", 40, 0), ("dividing the data by key", 80, 0)]
    assert calls[-1] == ("testing streams", 80, 80)
    calls.clear()
    monkeypatch.setattr(blocks, "BLOCK", 20)
    ex.test_streams(iter(batches), "device", presorted=True, **options)
    assert [call[1:] for call in calls] == [(40, 0), (80, 80)]


def test_whole_streams_refuse_what_needs_a_monitor_of_its_own() -> None:
    assert WholeStreams.create(ex.Monitor(measures.Value(), bets.SleeperDrifter())) is None
    assert WholeStreams.create(ex.Monitor(measures.NearestDistance())) is None
    assert WholeStreams.create(ex.Monitor(measures.Value(), alarm=alarms.Cusum(100))) is not None


# ------------------------------------------------------------------ the command


def test_the_command(run: Run, tmp_path: Path) -> None:
    def command(*arguments: str) -> Done:
        return run("streams", *arguments)

    path, report = tmp_path / "data.csv", tmp_path / "fleet.html"
    frame = readings((40, 40, 300, 40))
    frame.with_columns(device=pl.col("device") + "<b>\u202e").write_csv(path)
    options = [str(path), "--key", "device", "--order", "time", "--seed", "5", "--bet", "composite-jumper"]
    text = command(*options, "--report", str(report))
    assert (text.code, text.err) == (1, "")
    assert text.out.startswith("1 of 4 streams has changed, at a false discovery rate of 5 %.")
    assert "\u202e" not in text.out
    page = report.read_text()
    assert page.count("<polyline") == 1
    assert "<b>" not in page.split("</style>")[1]
    assert page.count('href="fleet_files/001-d2-b.html"') == 1
    (page_of_one,) = (tmp_path / "fleet_files").iterdir()
    assert page_of_one.name == "001-d2-b.html"
    assert "<b>" not in page_of_one.read_text().split("</style>")[1]
    assert 'href="../fleet.html"' in page_of_one.read_text()
    assert page_of_one.read_text().count("<svg") == 2
    assert "It has reached evidence of at least 80." in text.out
    assert "The seed is 5." in text.out
    found = json.loads(command(*options, "--format", "json", "--streams", "400").out)
    assert (found["n_streams"], found["fleet_size"]) == (4, 400)
    result = ex.test_streams(path, "device", "time", seed=5, bet=bets.CompositeJumper())
    assert found["discovered"][0]["log10_martingale"] == result.filter("discovered")["log10_martingale"][0]
    csv = command(*options, "--format", "csv")
    assert len(csv.out.splitlines()) == 5
    steps = command(*options, "--format", "csv", "--steps")
    assert len(steps.out.splitlines()) == len(frame) + 1
    quiet = command(*options, "--streams", "1000000000000000")
    assert quiet.code == 0
    assert quiet.out.startswith("No change was found in any of 4 streams, at a false discovery rate of 5 %.")


def test_the_report_says_how_many_streams_there_will_be() -> None:
    frame = pl.DataFrame({"k": [1] * 300 + [2] * 300, "x": [*map(float, range(300)), *[0.0] * 300]})
    fixed = run_streams(frame, Wanted("k", None, None, None), Options(seed=1, streams=100_000))
    assert "by e-BH among 100,000 streams, the largest number that there will ever be." in report.document(fixed)
    given = run_streams(frame, Wanted("k", None, None, None), Options(seed=1))
    assert "by e-BH among 2 streams." in report.document(given)
    assert "<h1><bdi>k</bdi> <bdi>1</bdi> has changed</h1>" in single.document(given, 0, "fleet.html")


def test_alarms_of_tests_that_restart_are_no_discoveries(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    readings((40, 40, 300, 40)).write_csv(path)
    options = [str(path), "--key", "device", "--order", "time", "--seed", "5", "--bet", "composite-jumper"]
    options += ["--on-alarm", "restart", "--steps", "--format", "csv"]
    loud = run("streams", *options)
    assert (loud.code, "true" in loud.out) == (1, True)
    quiet = run("streams", *options, "--alarm-alpha", "1e-300")
    assert (quiet.code, "true" in quiet.out) == (0, False)
    refused = run("streams", *options, "--report", str(tmp_path / "fleet.html"))
    assert refused.code == 2
    assert "--report needs --on-alarm latch: the capital after a restart is not evidence" in refused.err
    restarts = Options(on_alarm="restart", steps=True, seed=5)
    result = run_streams(path, Wanted("device", "time", None, None), restarts)
    assert (result.changed, len(result.discovered)) == (True, 0)
    with pytest.raises(ValueError, match="a report needs on_alarm='latch', got 'restart'"):
        report.save_report(result, tmp_path / "fleet.html")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--key", "q"], 2, "key must name a column"),
        (["--key", "device", "--alpha", "3"], 2, "alpha"),
        (["--key", "x"], 3, "key must be a column of text"),
        (["--key", "device", "--title", "t"], 2, "--title is for a report"),
        (["--key", "device", "--steps"], 2, "it needs --format csv"),
        (["--key", "device", "--on-alarm", "restart"], 2, "on_alarm='restart' requires steps=True"),
    ],
)
def test_the_command_refuses(run: Run, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    path = tmp_path / "data.csv"
    readings((10, 10)).write_csv(path)
    refused = run("streams", str(path), *arguments)
    assert refused.code == code
    assert message in refused.err
    assert not refused.out


@pytest.mark.parametrize("dated", [False, True])
def test_changes_at_one_time_are_together_wherever_the_streams_start(dated: bool, tmp_path: Path) -> None:
    rng, parts = np.random.default_rng(0), []
    for k in range(5):
        t = np.arange(int(rng.integers(0, 150)), 400)
        parts.append(pl.DataFrame({"k": [k] * len(t), "t": t, "x": rng.normal(size=len(t)) + 4.0 * (t >= 200)}))
    frame = pl.concat(parts)
    frame = frame.with_columns(t=pl.datetime(2024, 1, 1) + pl.duration(hours=pl.col("t"))) if dated else frame
    options = Options(bet=bets.CompositeJumper(), seed=1)
    ordered, placed = (run_streams(frame, Wanted("k", t, ("x",), None), options) for t in ("t", None))
    assert "of 5 changes lie within one tenth of the time of the data: look for a common cause" in report.document(
        ordered
    )
    assert "of the rows of their streams" in report.document(placed)
    report.save_report(ordered, tmp_path / "fleet.html")
    assert len(list((tmp_path / "fleet_files").iterdir())) == 5
    few = run_streams(frame.filter(pl.col("k") < 2), Wanted("k", "t", ("x",), None), options)
    report.save_report(few, tmp_path / "fleet.html")  # those of the earlier report are gone
    assert len(list((tmp_path / "fleet_files").iterdir())) == 2


def test_partitions_of_dask_give_the_numbers_of_the_whole() -> None:
    """The recipe of docs/recipes/many-streams.md."""
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    frame = readings((40, 40, 300, 40)).to_pandas()
    options: dict[str, Any] = {"key": "device", "order": "time", "seed": 5, "bet": bets.CompositeJumper()}
    sample = ex.test_streams(frame.head(1), **options)

    def test_part(part: Any) -> Any:
        return ex.test_streams(part, **options) if len(part) else sample.head(0)

    parts = dd.from_pandas(frame.sample(frac=1.0, random_state=1), npartitions=6).shuffle("device")
    tested = parts.map_partitions(test_part, meta=sample.head(0)).compute()
    tested["discovered"] = e_bh(tested, 0.05, stream="device", log_value="log10_martingale", base=10).rejected
    whole = ex.test_streams(frame, **options)
    timed = [name for name in whole if not name.endswith("_row")]
    tested = tested.sort_values("device").reset_index(drop=True)
    pd.testing.assert_frame_equal(tested[timed], whole[timed], check_dtype=False)


# ------------------------------------------------------------------ streams of tables


def table_rows(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    state = rng.choice(["on", "off", "new"], n, p=[0.6, 0.3, 0.1])
    temperature = [None if i % 7 == 3 else x for i, x in enumerate(rng.normal(size=n).round(2).tolist())]
    return pl.DataFrame(
        {"temperature": temperature, "state": state, "ok": [("yes", None)[i] for i in rng.integers(0, 2, n)]}
    )


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("label", [None, "ok"])
def test_streams_of_tables_have_the_numbers_of_single_table_monitors(label: str | None, on_alarm: str) -> None:
    lengths = {"a": 40, "b": 1, "c": 120}
    parts = [
        table_rows(n, i).with_columns(k=pl.lit(k), t=pl.int_range(pl.len())) for i, (k, n) in enumerate(lengths.items())
    ]
    frame = pl.concat(parts).with_columns(
        temperature=pl.col("temperature") + 5.0 * ((pl.col("k") == "c") & (pl.col("t") >= 60))
    )
    schema: dict[str, Any] = {"temperature": "number", "state": ["on", "off"]} | (
        {"ok": ["yes", "no"]} if label else {}
    )
    model = ex.TableMonitor(schema=schema, label=label)
    options: dict[str, Any] = {"measure": model, "seed": 4, "on_alarm": on_alarm}
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    steps = ex.test_streams(shuffled, "k", "t", steps=True, **options)
    batches = iter(shuffled.to_arrow().to_batches(30))
    assert rows_of(ex.test_streams(batches, "k", "t", steps=True, threads=1, **options)) == rows_of(steps)
    columns = ["temperature", "state", *([label] if label else [])]
    for key in lengths:
        monitor = ex.TableMonitor(schema=schema, label=label, seed=stream_seed(4, key), on_alarm=on_alarm)
        path = monitor.extend(frame.filter(pl.col("k") == key).select(columns))
        mine = steps.filter(pl.col("k") == key)
        assert np.array_equal(mine["log10_martingale"], path.log_value / LN10)
        assert np.array_equal(mine["alarm"], path.alarm)
        if on_alarm == "latch":
            row = ex.test_streams(frame, "k", "t", **options).filter(pl.col("k") == key).row(0, named=True)
            assert (row["alarm_at"], row["changepoint"]) == (monitor.alarm_at, monitor.changepoint)
            assert row["log10_max"] == monitor.log_max / LN10
            assert (row["n"], row["discovered"]) == (lengths[key], key == "c")


def test_table_monitors_that_cannot_be_used() -> None:
    frame = table_rows(60, 0).with_columns(k=pl.lit("a"))
    model = ex.TableMonitor(schema={"temperature": "number", "state": ["on", "off"]})

    def refused(message: str, kind: type[Exception] = ValueError, **arguments: Any) -> None:
        with pytest.raises(kind, match=message):
            ex.test_streams(frame, "k", **({"measure": model} | arguments))

    reference = ex.TableMonitor(frame.drop("k"), seed=1)
    refused("must be a TableMonitor with a schema and without wait, got one with a reference", measure=reference)
    refused("bet must not be given with a TableMonitor", bet=bets.Power(0.5))
    refused("features must be the columns of the schema", ColumnError, features="temperature")
    refused("label must be that of the schema, none, got 'ok'", ColumnError, label="ok")
    wrong = ex.TableMonitor(schema={"temperature": "number", "state": "number"})
    refused("column 'state' must be a number .* in row 1", DataError, measure=wrong)
    used = ex.TableMonitor(schema={"state": ["on"]})
    used.update({"state": "on"})
    refused("measure must be fresh, got a TableMonitor that has seen 1 rows", measure=used)
