"""Many streams in a batch frame: the numbers of `Monitor` for each key, whatever Spark does with the rows."""

from __future__ import annotations

import copy
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

import pandas as pd
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exchangeable import Monitor, alarms, bets, measures
from exchangeable.monitor import BetWarning
from exchangeable.pvalues import Precomputed
from exchangeable.spark import RefusedError, WorkerError, clear_errors, fleet_report, refusal, stream_seed
from exchangeable.spark import test_streams as of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def table(rng: np.random.Generator, streams: int = 12, most: int = 80) -> pd.DataFrame:
    """Streams of many lengths, one of which has half of all rows and one only one; some change."""
    lengths = [1, *rng.integers(2, most, streams - 2).tolist()]
    lengths.append(sum(lengths))
    parts = []
    for i, n in enumerate(lengths):
        late = (np.arange(n) > n // 2) & (i % 3 == 0)
        part = {"k": f"stream {i}", "o": np.arange(n), "a": rng.normal(size=n).round(1) + 4.0 * late}
        parts.append(pd.DataFrame({**part, "b": rng.normal(size=n), "y": rng.integers(0, 2, n) + 2 * late}))
    return pd.concat(parts, ignore_index=True)


def shuffled(spark: SparkSession, rows: pd.DataFrame, partitions: int = 3) -> DataFrame:
    return spark.createDataFrame(rows.sample(frac=1.0, random_state=1)).repartition(partitions)


def seeded(frame: DataFrame, *columns: Any, **more: Any) -> DataFrame:
    """With a seed that is fixed, unless another is given."""
    return of_spark(frame, *columns, **{"seed": 0, **more})


def monitor(key: Any, seed: int = 0, **parts: Any) -> Monitor:
    fresh = copy.deepcopy({name: part for name, part in parts.items() if name != "on_alarm"})
    on_alarm = parts.get("on_alarm", "latch")
    return Monitor(**fresh, seed=stream_seed(seed, key), on_alarm=on_alarm)


def expected(rows: pd.DataFrame, columns: Any, label: str | None = None, seed: int = 0, **parts: Any) -> list[Any]:
    """The same streams, one after the other, with the library."""
    found = []
    for key, own in sorted((key, own.sort_values("o")) for key, own in rows.groupby("k")):
        one = monitor(key, seed, **parts)
        one.extend(own[columns].to_numpy(), None if label is None else own[label].to_numpy())
        assert one.last is not None
        logs = one.last.log_value / math.log(10.0), one.log_max / math.log(10.0)
        found.append((key, one.n, *logs, one.alarm_at is not None, one.alarm_at, one.changepoint, 0, seed))
    return found


def pandas(frame: DataFrame) -> Any:
    return frame.toPandas()


def collected(frame: DataFrame) -> list[Any]:
    return sorted(tuple(row) for row in frame.collect())


# ------------------------------------------------------------------ the numbers

MEASURES: dict[str, tuple[Any, Any, str | None]] = {
    "value": (measures.Value(), "a", None),
    "nearest neighbour": (measures.NearestNeighbour(), ["a", "b"], "y"),
    "nearest distance": (measures.NearestDistance(2), ["a", "b"], None),
    "nearest residual": (measures.NearestResidual(), ["b"], "a"),
    "a function": (measures.Frozen(lambda X, y: np.abs(X).sum(axis=1) + y), ["a", "b"], "y"),
}


@pytest.mark.parametrize("name", MEASURES)
def test_every_key_has_the_numbers_of_a_monitor(spark: SparkSession, name: str) -> None:
    rows = table(np.random.default_rng(0))
    measure, columns, label = MEASURES[name]
    parts: dict[str, Any] = {"measure": measure, "bet": bets.SimpleJumper(0.05), "alarm": alarms.Ville(0.7)}
    frame, numbers = shuffled(spark, rows), expected(rows, columns, label, 3, **parts)
    assert any(row[4] for row in numbers)
    small, usual = 7, 10_000
    for batch, partitions, adaptive in ((small, None, "true"), (usual, 5, "false")):
        with setting(spark, BATCH, str(batch)), setting(spark, "spark.sql.adaptive.enabled", adaptive):
            result = seeded(frame, "k", "o", columns, label, seed=3, partitions=partitions, **parts)
            assert collected(result) == numbers
    assert measure.n == 0


def test_every_step_has_the_numbers_of_a_monitor(spark: SparkSession) -> None:
    rows = table(np.random.default_rng(1))
    parts: dict[str, Any] = {"measure": measures.Value(), "bet": bets.CompositeJumper(), "alarm": alarms.Ville(0.2)}
    result = seeded(shuffled(spark, rows), "k", "o", "a", steps=True, on_alarm="restart", **parts)
    found = pandas(result).sort_values(["k", "o"])
    assert list(found.columns) == [
        *("k", "o", "kind", "n", "p", "log10_martingale", "alarm", "changepoint", "count", "detail", "test", "seed")
    ]
    assert set(found["kind"]) == {"step"}
    for key, own in found.groupby("k"):
        path = monitor(key, **parts, on_alarm="restart").extend(rows[rows.k == key].a.to_numpy())
        assert own.n.tolist() == path.n.tolist()
        assert own.p.tolist() == path.p.tolist()
        assert own.log10_martingale.tolist() == (path.log_value / math.log(10.0)).tolist()
        assert own.alarm.tolist() == path.alarm.tolist()
        assert own.changepoint[own.alarm].tolist() == path.lowest[path.alarm].tolist()
        assert own.test.tolist() == (1 + np.cumsum(path.alarm) - path.alarm).tolist()
    assert found.alarm.sum() > 1


def test_what_is_left_out(spark: SparkSession) -> None:
    """The parts of `Monitor`; without a label numbers are their own scores, and rows have distances."""
    rows = table(np.random.default_rng(2), 5, 30)
    frame = shuffled(spark, rows)
    assert collected(seeded(frame, "k", "o", "a")) == expected(rows, "a", measure=measures.Value())
    both = ["a", "b"]
    assert collected(seeded(frame, "k", "o", both)) == expected(rows, both, measure=measures.NearestDistance())
    assert collected(seeded(frame, "k", "o", both, "y")) == expected(rows, both, "y")
    arrays = frame.select("k", "o", "y", F.array("a", "b").alias("v"))
    assert collected(seeded(arrays, "k", "o", "v")) == expected(rows, both, measure=measures.NearestDistance())
    assert collected(seeded(frame, "k", "o", "a", "y")) == expected(rows, ["a"], "y")


def test_keys_and_orders_of_other_types(spark: SparkSession) -> None:
    rows = table(np.random.default_rng(3), 6, 20)
    numbers = {f"stream {i}": value for i, value in enumerate([-128, 0, 127, 5, 6, 7])}
    kinds: dict[str, dict[str, Any]] = {
        "tinyint": numbers,
        "binary": {key: bytes([255, i]) for i, key in enumerate(numbers)},
        "string": dict(zip(numbers, ["", "'; --", "a\x00b\n", "\U0001f600", "x" * 100_000, "Ä`$"], strict=True)),
    }
    orders = ["timestamp", "date", "decimal(20,3)"]
    for (kind, keys), order in zip(kinds.items(), orders, strict=True):
        own = rows.assign(k=rows.k.map(keys))
        frame = spark.createDataFrame(own.assign(k=own.k.map(_plain)))
        frame = frame.withColumn("k", F.unhex("k").cast("string").cast(kind) if kind != "binary" else F.unhex("k"))
        days = F.date_add(F.lit("2024-01-01").cast("date"), F.col("o").cast("int"))
        frame = frame.withColumn("o", days.cast(order) if order != "decimal(20,3)" else F.col("o").cast(order) / 8)
        result = seeded(frame, "k", "o", "a", steps=True, gaps=False)
        assert result.schema["k"].dataType == frame.schema["k"].dataType
        assert result.schema["o"].dataType == frame.schema["o"].dataType
        found = pandas(result.select("k", "n", "p"))
        named = found.k.map(bytes) if kind == "binary" else found.k
        for key, part in found.assign(k=named).groupby("k"):
            path = monitor(key, measure=measures.Value()).extend(own[own.k == key].a.to_numpy())
            assert part.sort_values("n").p.tolist() == path.p.tolist()


def _plain(key: Any) -> str:
    return (key if isinstance(key, bytes) else str(key).encode()).hex()


def test_given_p_values(spark: SparkSession) -> None:
    rows = table(np.random.default_rng(4), 5, 30).assign(p=lambda rows: (rows.b.abs() % 1.0) + 1e-9)
    found = collected(seeded(shuffled(spark, rows), "k", "o", "p", measure=Precomputed()))
    assert found == expected(rows, "p", measure=Precomputed())


# ------------------------------------------------------------------ the seed, and the bet


@pytest.mark.usefixtures("system_seeds")
def test_a_seed_that_is_left_out_is_drawn_once_and_told(spark: SparkSession) -> None:
    """Each call has its own, computing the result again draws no other, and with it anybody can check a stream."""
    rows = table(np.random.default_rng(6), 6, 30)
    frame = shuffled(spark, rows)
    parts: dict[str, Any] = {"measure": measures.Value(), "bet": bets.CompositeJumper()}
    seeds = set()
    for more in ({}, {"steps": True}, {"on_alarm": "restart"}):
        result = of_spark(frame, "k", "o", "a", **parts, **more)
        found = collected(result)
        assert found == collected(result)
        assert found == collected(seeded(frame, "k", "o", "a", seed=found[0][-1], **parts, **more))
        assert result.columns[-1] == "seed"
        assert dict(result.dtypes)["seed"] == "bigint"
        seeds |= {row[-1] for row in found}
        if not more:
            assert found == expected(rows, "a", seed=found[0][-1], **parts)
    assert len(seeds) == 3
    assert max(seeds) < 2**53
    assert collected(seeded(frame, "k", "o", "a", seed=2**63 - 1, **parts))[0][-1] == 2**63 - 1


def test_a_fleet_report_takes_the_rows_with_their_seed(spark: SparkSession) -> None:
    frame = shuffled(spark, table(np.random.default_rng(6), 6, 30))
    for steps in (False, True):
        report = fleet_report(of_spark(frame, "k", "o", "a", bet=bets.CompositeJumper(), steps=steps))
        assert report.count() == 6


@pytest.mark.parametrize("alarm", [alarms.Cusum(50.0), alarms.ShiryaevRoberts(50.0)])
def test_the_bet_follows_the_alarm(spark: SparkSession, alarm: Any) -> None:
    rows = table(np.random.default_rng(2), 5, 30)
    found = collected(seeded(shuffled(spark, rows), "k", "o", "a", alarm=alarm))
    assert found == expected(rows, "a", measure=measures.Value(), bet=bets.Sentinel(), alarm=alarm)


@pytest.mark.filterwarnings("ignore::exchangeable.monitor.BetWarning")
@pytest.mark.parametrize("measure", [measures.Value(), measures.NearestDistance()])
def test_a_bet_that_does_not_suit_the_alarm_is_taken_with_a_warning(spark: SparkSession, measure: Any) -> None:
    rows = table(np.random.default_rng(2), 5, 30)
    parts: dict[str, Any] = {"measure": measure, "bet": bets.Adaptive(), "alarm": alarms.ShiryaevRoberts(50.0)}
    columns = "a" if isinstance(measure, measures.Value) else ["a"]
    with pytest.warns(BetWarning, match="use Sentinel"):
        result = seeded(shuffled(spark, rows), "k", "o", columns, **parts)
    assert collected(result) == expected(rows, columns, **parts)


# ------------------------------------------------------------------ disorder


def disorder(spark: SparkSession) -> DataFrame:
    rows = [
        ("a", 1, 1.0),
        ("a", 2, 2.0),
        ("a", 2, 2.0),
        ("a", 3, 3.0),
        ("a", 3, 4.0),
        ("a", 5, math.nan),
        ("a", 6, 0.5),
    ]
    rows += [("a", None, 1.0), (None, 1, 1.0), (None, None, 2.0), ("", 1, 9.0), ("b", 1, None), ("c", 7, 1.0)]  # type: ignore[list-item]
    return spark.createDataFrame(rows, "k string, o int, x double").repartition(4)


def test_disorder_is_reported_and_never_bet_on(spark: SparkSession) -> None:
    summary = {row.k: row for row in seeded(disorder(spark), "k", "o", "x", bad="report").collect()}
    assert {key: (row.n, row.refused) for key, row in summary.items()} == {
        "a": (3, 4),
        "b": (0, 1),
        "c": (1, 0),
        "": (1, 0),
        None: (0, 2),
    }
    one = monitor("a", measure=measures.Value())
    assert summary["a"].log10_martingale == one.extend([1.0, 2.0, 0.5]).log_value[-1] / math.log(10.0)
    assert tuple(summary["b"]) == ("b", 0, 0.0, 0.0, False, None, None, 1, 0)
    assert tuple(summary[None]) == (None, 0, None, None, None, None, None, 2, 0)
    steps = seeded(disorder(spark), "k", "o", "x", bad="report", steps=True).where("kind <> 'step'")
    reported = sorted((str(row.k), str(row.o), row.kind, row["count"], row.detail) for row in steps.collect())
    null = "must not be null, got null in column"
    assert reported == [
        ("None", "1", "bad", 1, f"key {null} 'k'"),
        ("None", "None", "bad", 1, f"key and order {null} 'o'"),
        ("a", "2", "duplicate", 1, "1 repeated event, the first with order 2: dropped"),
        ("a", "3", "conflict", 2, "2 different events with order 3: none is bet on"),
        ("a", "4", "gap", 1, "order 4 is missing"),
        ("a", "5", "bad", 1, "x must be a finite number, got NaN in column 'x'"),
        ("a", "None", "bad", 1, f"order {null} 'o'"),
        ("b", "1", "bad", 1, "x must be a finite number, got null in column 'x'"),
    ]


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("o = 5", "key 'a', order 5: x must be a finite number, got NaN in column 'x'"),
        ("k is null and o = 1", "key must not be null, got null in column 'k' (order 1)"),
        ("o = 3", "key 'a', order 3: rows with the same key and order must be equal, got 2 that differ"),
    ],
)
def test_disorder_fails_the_job_with_one_sentence(spark: SparkSession, where: str, sentence: str) -> None:
    with pytest.raises(Exception, match="RefusedError") as error:
        seeded(disorder(spark).where(where), "k", "o", "x").collect()
    assert refusal(error.value) == sentence
    with pytest.raises(RefusedError) as clear, clear_errors():
        seeded(disorder(spark).where(where), "k", "o", "x").collect()
    assert str(clear.value) == sentence
    assert clear.value.__suppress_context__  # no page of tracebacks


def test_other_errors_of_spark_are_left_as_they_are(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException), clear_errors():
        spark.range(3).select("nothing")


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (ModuleNotFoundError("No module named 'exchangeable'"), "has no module 'exchangeable': install ex"),
        (ModuleNotFoundError("No module named 'pyarrow.compute'"), "has no module 'pyarrow.compute'"),
        (
            RuntimeError(
                "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, .."
            ),
            "has version 3.12, that of the driver 3.11: both must have the same",
        ),
    ],
)
def test_executors_that_cannot_run_the_package(spark: SparkSession, fault: Exception, sentence: str) -> None:
    """The errors of an interpreter without the package, or of another version, raised by one that has it."""

    def fails(_: Any) -> Any:
        raise fault

    with pytest.raises(WorkerError, match=sentence) as error, clear_errors():
        spark.range(3).mapInArrow(fails, "id long").collect()
    assert "\n" not in str(error.value)
    assert "PYSPARK_PYTHON" in str(error.value)


def test_an_empty_frame_has_no_streams(spark: SparkSession) -> None:
    empty = spark.createDataFrame([], "k string, o int, x double")
    assert seeded(empty, "k", "o", "x").collect() == []
    assert seeded(empty, "k", "o", "x", steps=True).collect() == []


# ------------------------------------------------------------------ validation


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"bad": "drop"}, "bad must be 'fail' or 'report', got 'drop'"),
        ({"on_alarm": "stop"}, "on_alarm must be 'latch' or 'restart', got 'stop'"),
        ({"seed": -1}, "seed must be an integer from 0 to 9223372036854775807, got -1"),
        ({"seed": 2**63}, "seed must be an integer from 0 to 9223372036854775807, got 9223372036854775808"),
        ({"partitions": 0}, "partitions must be an integer from 1 to 1000000, got 0"),
        ({"order": "k"}, "order must be a column of"),
        ({"order": "o", "key": "o"}, "key and order must be different columns, got 'o' for both"),
        ({"key": "alarm"}, "key must not be named 'alarm', like a column of the result: rename it"),
        ({"key": "N"}, "key must not be named 'N', like a column of the result: rename it"),
        ({"key": "Seed"}, "key must not be named 'Seed', like a column of the result: rename it"),
        (
            {"order": "count", "steps": True},
            "order must not be named 'count', like a column of the result: rename it",
        ),
        (
            {"key": "test", "on_alarm": "restart"},
            "key must not be named 'test', like a column of the result: rename it",
        ),
        (
            {"features": ["a"], "measure": measures.Value()},
            "features must name one column of numbers for Value, got ['a']",
        ),
        (
            {"features": "v", "measure": measures.Frozen()},
            "features must name one column of numbers for Frozen, got 'v'",
        ),
        ({"measure": measures.NearestNeighbour()}, "label must name a column for NearestNeighbour, got None"),
        (
            {"measure": measures.NearestResidual(), "label": "k"},
            "label must name a column of numbers for NearestResidual, got 'k' of type string",
        ),
        ({"measure": "nearest"}, "measure must be a measure"),
        ({"bet": bets.Power}, "bet must have log_density, update and extend"),
        ({"alarm": 3}, "alarm must be an alarm"),
    ],
)
def test_invalid_arguments_are_rejected_at_once(spark: SparkSession, change: dict[str, Any], sentence: str) -> None:
    columns = "k string, o int, a double, v array<double>, alarm string, N string, count int, test string, Seed string"
    given = {"key": "k", "order": "o", "features": "a", **change}
    with pytest.raises(ValueError) as error:  # noqa: PT011
        seeded(spark.createDataFrame([], columns), **given)
    assert str(error.value).startswith(sentence)


def test_parts_that_are_not_fresh_are_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([], "k string, o int, x double")
    measure, alarm = measures.Value(), alarms.Cusum(100)
    measure.update(1.0)
    alarm.update(1.0)
    with pytest.raises(ValueError, match=r"^measure must be fresh, got one that has seen 1 examples$"):
        seeded(frame, "k", "o", "x", measure=measure)
    with pytest.raises(ValueError, match=r"^alarm must be fresh, got one that has read 1 values$"):
        seeded(frame, "k", "o", "x", alarm=alarm)


def test_a_stream_is_refused(spark: SparkSession) -> None:
    live = spark.readStream.format("rate").load()
    with pytest.raises(ValueError, match=r"^df must be a batch frame, got a streaming frame: use monitor_streams$"):
        seeded(live, "value", "timestamp", "value")


# ------------------------------------------------------------------ many, and processes that die


@pytest.mark.soak
def test_a_hundred_thousand_keys(spark: SparkSession) -> None:
    rows = spark.range(300_000).selectExpr("id % 100000 as k", "id div 100000 as o", "hash(id) / 2147483648D as x")
    found = pandas(seeded(rows, "k", "o", "x", bet=bets.CompositeJumper(), seed=1)).sort_values("k")
    assert found.k.tolist() == list(range(100_000))
    assert set(found.n) == {3}
    own = pandas(rows.where("k < 20"))
    parts: dict[str, Any] = {"measure": measures.Value(), "bet": bets.CompositeJumper()}
    numbers = expected(own, "x", seed=1, **parts)
    assert found.log10_martingale[:20].tolist() == [row[2] for row in numbers]
    assert found.log10_max[:20].tolist() == [row[3] for row in numbers]


def _descendants(pid: int) -> Iterator[int]:
    """Processes below this one, by the system's own records."""
    for entry in Path("/proc").iterdir():
        try:
            parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1]) if entry.name.isdigit() else -1
        except OSError:  # it has just ended
            continue
        if parent == pid:
            yield int(entry.name)
            yield from _descendants(int(entry.name))


def _executors() -> list[int]:
    """The executors of a session of this process."""
    found = []
    for pid in _descendants(os.getpid()):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in words and b"java" in words.split(b"\0")[0]:
            found.append(pid)
    return found


def _kill_one(started: Path) -> None:
    deadline = time.monotonic() + 120.0
    while not started.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in _executors()[:1]:
        os.kill(pid, signal.SIGKILL)


def _slow(folder: str) -> Any:
    """A score that takes its time, and tells that it has begun."""

    def score(X: Any, y: Any) -> Any:
        import pathlib
        import time

        pathlib.Path(folder, "started").touch()
        time.sleep(0.3)
        return X.sum(axis=1)

    return score


@pytest.mark.soak  # test_spark_faults.py kills an executor too
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to find the executors in")
def test_an_executor_that_is_killed_changes_no_number(tmp_path: Path) -> None:
    """On processes of their own."""
    spark = sparks.cluster()
    rows = table(np.random.default_rng(5), 14, 30)
    frame = shuffled(spark, rows)
    assert collected(seeded(frame, "k", "o", "a", partitions=4)) == expected(rows, "a", measure=measures.Value())
    before = set(_executors())
    assert len(before) == 2
    killer = threading.Thread(target=_kill_one, args=(tmp_path / "started",))
    killer.start()
    slow = measures.Frozen(_slow(str(tmp_path)))
    found = collected(seeded(frame, "k", "o", ["a", "b"], partitions=6, measure=slow))
    killer.join()
    assert before - set(_executors())
    plain = measures.Frozen(lambda X, y: X.sum(axis=1))
    assert found == expected(rows, ["a", "b"], measure=plain)
