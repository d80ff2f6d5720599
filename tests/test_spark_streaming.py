"""`monitor_streams` on Spark: the numbers of the library, bit for bit; nothing silent, nothing lost at a restart."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import feeds
import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from bench_spark_live import resident, stored
from exchangeable import Monitor, alarms, bets, measures
from exchangeable.monitor import BetWarning
from exchangeable.pvalues import Precomputed
from exchangeable.spark import monitor_streams, refusal
from exchangeable.spark.columns import validate
from exchangeable.spark.seeds import FILE, SeedFile
from exchangeable.spark.streaming import _from_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEED = 5
HOSTILE = ["", " ", "a\x00b", "é😀", "a.b`c", "'; DROP TABLE x; --", "x" * 20_000, "null", "\r\n"]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return sparks.local()


def source(spark: SparkSession, folder: Path, schema: str | T.StructType) -> DataFrame:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def started(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def run(rows: DataFrame, folder: Path) -> pd.DataFrame:
    """Until the source has no more, and then all that was ever written."""
    started(rows, folder).awaitTermination()
    return rows.sparkSession.read.parquet(str(folder / "out")).toPandas()


def failure(rows: DataFrame, folder: Path) -> str | None:
    query = started(rows, folder)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    return refusal(query.exception())


def recipe(**more: Any) -> Monitor:
    return Monitor(measures.Value(), bets.CompositeJumper(), alarms.Ville(0.05), **more)


SIMPLE = "key string, seq bigint, x double"


def watched(spark: SparkSession, folder: Path, schema: str = SIMPLE, **more: Any) -> DataFrame:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    frame = source(spark, folder / "in", schema)
    return monitor_streams(
        frame, "key", "seq", "x", **{"alarm": alarms.Ville(0.05), "seed": SEED, "buckets": 8, **more}
    )


def add(folder: Path, number: int, *rows: tuple[Any, ...]) -> None:
    """A file of a few events."""
    columns = zip(*rows, strict=True)
    kinds = pa.string(), pa.int64(), pa.float64()
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    feeds.add(folder / "in", number, pa.table(arrays, ["key", "seq", "x"]))


# ------------------------------------------------------------------ the numbers


def test_many_streams_over_micro_batches_and_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    data = feeds.walks([*HOSTILE, *(f"device {i}" for i in range(200))], 12)
    data |= feeds.walks(["hot"], 2500, seed=2) | feeds.walks(["once"], 1, seed=3)
    events = feeds.shuffled(feeds.events(data))
    seq, lengths = np.asarray(events["seq"]), np.array([len(data[key]) for key in events["key"].to_pylist()])
    part = (seq - 1) * 4 // lengths  # which quarter of its stream
    for number in range(2):
        feeds.add(tmp_path / "in", number, events.filter(part == number))
    half = run(watched(spark, tmp_path), tmp_path)
    assert len(half) == (part < 2).sum()
    for number in range(2, 4):
        feeds.add(tmp_path / "in", number, events.filter(part == number))
    rows = run(watched(spark, tmp_path), tmp_path)
    assert list(rows.columns) == ["key", "seq", "kind", *feeds.NUMBERS, "count", "detail", "seed"]
    assert set(rows["kind"]) == {"step"}
    assert rows["alarm"].any()
    assert (rows["seq"] == rows["n"]).all()
    feeds.assert_steps(rows, recipe, SEED, data)


def test_a_model_labels_times_small_keys_and_restarts(spark: SparkSession, tmp_path: Path) -> None:
    model = pytest.importorskip("sklearn.linear_model").LogisticRegression()
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(300, 3)), np.array(["no", "yes"])
    model.fit(X, labels[(X[:, 0] > 0).astype(int)])

    def again() -> Monitor:
        measure = measures.Frozen(model, bins=16, reference=(X, labels[(X[:, 0] > 0).astype(int)]))
        return Monitor(measure, bets.CompositeJumper(), alarms.Ville(0.2), on_alarm="restart")

    noon = dt.datetime(2025, 11, 16, 12, tzinfo=dt.UTC)
    rows_of = {key: rng.normal(size=(90, 3)).round(3) for key in (-7, 0, 32767)}
    wrong = np.arange(90) > 30
    streams = {key: (x, labels[((x[:, 0] > 0) ^ wrong).astype(int)]) for key, x in rows_of.items()}
    tables = [
        pa.table(
            {
                "the key": pa.array([key] * 90, pa.int16()),
                "when?": pa.array(
                    [noon + dt.timedelta(microseconds=i * i) for i in range(90)], pa.timestamp("us", "UTC")
                ),
                "x.y": pa.array(x.tolist(), pa.list_(pa.float64())),
                "`": pa.array(y.tolist()),
            }
        )
        for key, (x, y) in streams.items()
    ]
    events = feeds.shuffled(pa.concat_tables(tables))
    early = np.asarray(events["when?"].cast(pa.int64())) < noon.timestamp() * 1e6 + 40**2
    feeds.add(tmp_path / "in", 0, events.filter(early))
    feeds.add(tmp_path / "in", 1, events.filter(~early))
    frame = source(spark, tmp_path / "in", "`the key` smallint, `when?` timestamp, `x.y` array<double>, ```` string")
    parts: dict[str, Any] = {"measure": again().measure, "bet": bets.CompositeJumper(), "alarm": alarms.Ville(0.2)}
    rows = monitor_streams(frame, "the key", "when?", "x.y", "`", **parts, on_alarm="restart", seed=SEED, buckets=3)
    assert [field.dataType for field in rows.schema.fields[:2]] == [T.ShortType(), T.TimestampType()]
    assert rows.columns == ["the key", "when?", "kind", *feeds.NUMBERS, "count", "detail", "test", "seed"]
    found = run(rows, tmp_path)
    steps = feeds.steps(found)
    for key, (x, y) in streams.items():
        pd.testing.assert_frame_equal(steps[key], feeds.library(again, SEED, key, x, y.tolist()), check_exact=True)
    assert found["test"].max() > 1
    assert found["when?"].min() == noon.replace(tzinfo=None)  # the session is in UTC


def test_p_values_binary_keys_days_and_a_function_for_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    data = {key: 1.0 - np.random.default_rng(i).random(20) for i, key in enumerate([b"", b"\x00\xff", b"a"])}
    events = feeds.events(data, pa.binary())
    days = events["seq"].cast(pa.int32()).cast(pa.date32())
    feeds.add(tmp_path / "in", 0, feeds.shuffled(events.set_column(1, "seq", days)))
    gathered: list[pd.DataFrame] = []
    setting = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(setting, "true")
    try:
        rows = watched(spark, tmp_path, "key binary, seq date, x double", measure=Precomputed(), bet=bets.Histogram())
        writer = rows.writeStream.foreachBatch(lambda batch, _: gathered.append(batch.toPandas()))
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    finally:
        spark.conf.unset(setting)
    found = pd.concat(gathered)
    assert found["seq"].min() == dt.date(1970, 1, 2)
    found["key"] = found["key"].map(bytes)
    feeds.assert_steps(found, lambda: Monitor(Precomputed(), bets.Histogram(), alarms.Ville(0.05)), SEED, data)


# ------------------------------------------------------------------ the bet


@pytest.mark.parametrize(
    "alarm", [alarms.Cusum(20.0), pytest.param(alarms.ShiryaevRoberts(20.0), marks=pytest.mark.soak)]
)
def test_the_bet_follows_the_alarm(spark: SparkSession, tmp_path: Path, alarm: Any) -> None:
    data = feeds.walks(["a", "b"], 60)
    feeds.add(tmp_path / "in", 0, feeds.shuffled(feeds.events(data)))
    rows = run(watched(spark, tmp_path, alarm=alarm), tmp_path)
    assert rows["alarm"].any()
    feeds.assert_steps(rows, lambda: Monitor(measures.Value(), bets.Sentinel(), alarm), SEED, data)


def test_a_bet_that_does_not_suit_the_alarm_is_taken_with_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.warns(BetWarning, match="use Sentinel"):
        watched(spark, tmp_path, bet=bets.Adaptive(), alarm=alarms.ShiryaevRoberts(20.0))


# ------------------------------------------------------------------ the seed


def drawing(spark: SparkSession, folder: Path, **more: Any) -> DataFrame:
    """A query whose seed is left out."""
    return watched(spark, folder, **{"seed": None, "checkpoint": str(folder / "checkpoint"), **more})


def stored_seed(folder: Path) -> int:
    return int(json.loads((folder / "checkpoint" / FILE).read_text())["seed"])


@pytest.mark.usefixtures("system_seeds")
def test_a_seed_that_is_drawn_outlives_restarts(spark: SparkSession, tmp_path: Path) -> None:
    """A query that was stopped and restarted has the numbers of an unbroken one, and of the library."""
    data = feeds.walks(["a", "b", "c"], 40)
    events = feeds.events(data)
    late = np.asarray(events["seq"]) > 20
    one, other = tmp_path / "one", tmp_path / "other"
    feeds.add(one / "in", 0, events.filter(~late))
    run(drawing(spark, one), one)
    seed = stored_seed(one)
    feeds.add(one / "in", 1, events.filter(late))
    rows = run(drawing(spark, one), one)
    assert set(rows["seed"]) == {seed}
    assert seed < 2**53
    feeds.assert_steps(rows, recipe, seed, data)
    feeds.add(other / "in", 0, events)
    unbroken = run(watched(spark, other, seed=seed), other)
    pd.testing.assert_frame_equal(*(each.sort_values(["key", "n"], ignore_index=True) for each in (rows, unbroken)))
    third = tmp_path / "third"
    drawing(spark, third)
    assert stored_seed(third) != seed


@pytest.mark.soak
def test_a_checkpoint_takes_no_other_seed(spark: SparkSession, tmp_path: Path) -> None:
    drawing(spark, tmp_path, seed=7)  # given seeds are stored too
    drawing(spark, tmp_path, seed=7)
    drawing(spark, tmp_path)
    assert stored_seed(tmp_path) == 7
    expected = r"^seed must be 7, with which checkpoint '.*' was started, got 8: another seed needs a new checkpoint$"
    with pytest.raises(ValueError, match=expected):
        drawing(spark, tmp_path, seed=8)
    with pytest.raises(ValueError, match=r"^seed must be an integer"):
        drawing(spark, tmp_path, seed=7.0)
    add(tmp_path, 0, ("a", 1, 0.1))
    assert set(run(drawing(spark, tmp_path), tmp_path)["seed"]) == {7}
    add(tmp_path, 1, ("a", 2, 0.1))
    message = "a checkpoint can be used only by the query that started it: seed must be what it was when the state"
    assert str(failure(watched(spark, tmp_path, seed=8), tmp_path)).startswith(f"{message} was stored, 7, got 8")


@pytest.mark.soak
def test_a_checkpoint_that_was_begun_with_a_seed_of_its_own_needs_it(spark: SparkSession, tmp_path: Path) -> None:
    """A drawn seed would not be that of the state, and stored it would stand in the way of the right one."""
    add(tmp_path, 0, ("a", 1, 0.1))
    run(watched(spark, tmp_path), tmp_path)
    with pytest.raises(ValueError, match=r"^seed must be given for checkpoint .* in the column 'seed' of the output$"):
        drawing(spark, tmp_path)
    add(tmp_path, 1, ("a", 2, 0.1))
    assert len(run(drawing(spark, tmp_path, seed=SEED), tmp_path)) == 2
    assert not (tmp_path / "checkpoint" / FILE).exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"format": "exchangeable seed", "version": 1, "seed": 7',
        b'{"format": "exchangeable seed", "version": 1, "seed": -7}',
        b'{"format": "exchangeable seed", "version": 1, "seed": true}',
        b'{"format": "exchangeable seed", "version": 1, "seed": "7"}',
        b'{"format": "exchangeable seed", "version": 1, "seed": 9223372036854775808}',
        b'{"format": "exchangeable seed", "version": 2, "seed": 7}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_seed_is_refused_in_one_sentence(spark: SparkSession, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / FILE).write_bytes(content)
    for seed in (None, 7):
        with pytest.raises(ValueError, match=rf"/{FILE} must hold the seed of the query, but is damaged: .*"):
            SeedFile(spark, str(tmp_path / "checkpoint")).choose(seed)
    assert (tmp_path / "checkpoint" / FILE).read_bytes() == content


def test_a_seed_that_was_changed_behind_the_back_of_the_file_system_is_damaged(
    spark: SparkSession, tmp_path: Path
) -> None:
    drawing(spark, tmp_path, seed=7)
    place = tmp_path / "checkpoint" / FILE
    place.write_text(place.read_text().replace("7", "8"))
    with pytest.raises(ValueError, match="but is damaged"):
        drawing(spark, tmp_path)


def test_a_call_that_is_refused_stores_no_seed(spark: SparkSession, tmp_path: Path) -> None:
    for more in ({"most": 1}, {"buckets": 0}, {"measure": measures.Frozen()}):
        with pytest.raises(ValueError, match="must"):
            drawing(spark, tmp_path, **more)
    assert not (tmp_path / "checkpoint").exists()


def test_a_folder_that_cannot_hold_a_seed_is_told_in_one_sentence(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("nowhere://host/kept", "a:b:c", str(tmp_path / "file" / "kept")):
        with pytest.raises(OSError, match=r"^the checkpoint folder '.*' cannot hold the seed: ") as error:
            drawing(spark, tmp_path, checkpoint=place)
        assert "\n" not in str(error.value)


@pytest.mark.usefixtures("system_seeds")
def test_of_two_first_starts_at_once_only_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (SeedFile(spark, str(tmp_path / "checkpoint")) for _ in range(2))
    seed, late = one.choose(None), other.choose(None)
    one.store(seed)
    with pytest.raises(ValueError, match=f"^seed must be {seed}, "):
        other.store(late)
    assert stored_seed(tmp_path) == seed
    other._create(b"never")
    assert stored_seed(tmp_path) == seed


def test_p_values_need_no_seed(spark: SparkSession, tmp_path: Path) -> None:
    assert watched(spark, tmp_path, measure=Precomputed(), seed=None).columns[-1] == "seed"


def test_spark_connect_has_no_files(tmp_path: Path) -> None:
    """Its sessions lack the attributes that lead to Java."""
    with pytest.raises(ValueError, match=r"^checkpoint must be None with Spark Connect, .*: pass a seed instead$"):
        SeedFile(object(), str(tmp_path))  # type: ignore[arg-type]


# ------------------------------------------------------------------ what is not bet on


def test_nothing_is_silent(spark: SparkSession, tmp_path: Path) -> None:
    add(tmp_path, 0, ("a", 1, 0.1), ("a", 3, 0.3), ("a", 3, 0.3), (None, 1, 0.5), ("b", 1, np.nan), ("c", None, 1.0))
    add(tmp_path, 1, ("a", 2, 0.2), ("a", 3, 0.3), ("a", 4, 0.4), ("a", 5, 0.5), ("a", 5, 0.6), (None, None, None))
    rows = run(watched(spark, tmp_path, bad="report"), tmp_path)
    no, nan = "must not be null, got null in column", "x must be a finite number, got NaN in column 'x'"
    found = [
        (key, None if seq is None else int(seq), kind, count, detail)
        for key, seq, kind, count, detail in rows[["key", "seq", "kind", "count", "detail"]].astype(object).where(
            lambda cell: cell.notna(), None
        ).itertuples(index=False)
    ]  # fmt: skip
    expected = [
        ("a", 1, "step", 1, None),
        ("a", 3, "step", 1, None),
        ("a", 2, "gap", 1, "order 2 is missing"),
        ("a", 3, "duplicate", 1, "1 repeated event, the first with order 3: dropped"),
        (None, 1, "bad", 1, f"key {no} 'key'"),
        ("b", 1, "bad", 1, nan),
        ("c", None, "bad", 1, f"order {no} 'seq'"),
        ("a", 2, "late", 1, "order 2 came after a higher one: late, not bet on"),
        ("a", 3, "duplicate", 1, "1 repeated event, the first with order 3: dropped"),
        ("a", 4, "step", 1, None),
        ("a", 5, "conflict", 2, "2 different events with order 5: none is bet on"),
        (None, None, "bad", 1, f"key and order {no} 'seq'"),
    ]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    feeds.assert_steps(rows, recipe, SEED, {"a": [0.1, 0.3, 0.4]})


def test_a_query_fails_with_one_sentence_and_a_checkpoint_takes_no_other_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    add(tmp_path, 0, ("a", 1, 0.1), ("b", 1, 0.1))
    run(watched(spark, tmp_path), tmp_path)
    add(tmp_path, 1, ("b", 2, 0.1), ("it's", 17, np.inf))
    message = "a checkpoint can be used only by the query that started it: "
    reported = failure(watched(spark, tmp_path, buckets=9, bad="report"), tmp_path)
    assert reported is not None
    assert reported.startswith(f"{message}extra must be")
    assert "8 buckets of keys of text" in reported
    assert ", got 9 buckets of" in reported
    reported = failure(watched(spark, tmp_path), tmp_path)
    assert reported == "key \"it's\", order 17: x must be a finite number, got Infinity in column 'x'"
    rows = run(watched(spark, tmp_path, bad="report"), tmp_path)  # what failed is tried again
    feeds.assert_steps(rows, recipe, SEED, {"a": [0.1], "b": [0.1, 0.1]})


# ------------------------------------------------------------------ memory


@pytest.mark.soak
def test_twenty_thousand_streams_in_flat_memory(spark: SparkSession, tmp_path: Path) -> None:
    keys, batches, rng = 20_000, 5, np.random.default_rng(0)
    names, x = [f"device {i}" for i in range(keys)], rng.normal(size=(batches, keys))
    for number in range(batches):
        seq = np.full(keys, number + 1)
        feeds.add(tmp_path / "in", number, feeds.shuffled(pa.table({"key": names, "seq": seq, "x": x[number]})))

    def measure() -> measures.Frozen:
        return measures.Frozen(bins=32, reference=np.linspace(-3.0, 3.0, 1000))

    query = started(watched(spark, tmp_path, measure=measure()), tmp_path)
    python: dict[int, int] = {}
    while query.isActive:
        time.sleep(0.05)
        python[len(query.recentProgress)] = resident(spark)
    query.awaitTermination()
    states = [stored(spark, tmp_path / "checkpoint", number) for number in (1, batches - 1)]
    assert states[1] <= 1.01 * states[0]
    assert states[1] < 400 * keys
    assert python[batches - 1] <= 1.1 * python[2]
    rows = spark.read.parquet(str(tmp_path / "out"))
    assert rows.count() == batches * keys
    some = rows.where("key IN ('device 0', 'device 19999')").toPandas()
    data = {names[i]: x[:, i] for i in (0, keys - 1)}
    feeds.assert_steps(some, lambda: Monitor(measure(), bets.CompositeJumper(), alarms.Ville(0.05)), SEED, data)


# ------------------------------------------------------------------ validation


@pytest.mark.parametrize("text", ["2025-11-02 01:30:00.123456", "2025-03-09 02:30:00.123456"])
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])  # at both times somebody there changes the clocks
def test_an_order_of_any_type_comes_out_as_it_was(spark: SparkSession, zone: str, text: str) -> None:
    kinds = {
        "tinyint": -128,
        "int": 2**31 - 1,
        "bigint": -(2**63),
        "date": text,
        "timestamp": text,
        "timestamp_ntz": text,
    }
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        columns = [f"CAST('{value}' AS {kind}) AS `{kind}`" for kind, value in kinds.items()]
        frame = spark.range(1).selectExpr("id AS key", "id AS x", *columns)
        for kind in kinds:
            validated = validate(frame, key="key", order=kind, features="x", label=None, sequence=True)
            found = validated.select(_from_long(F.col("order"), frame.schema[kind].dataType).alias("order"))
            assert found.schema["order"].dataType == frame.schema[kind].dataType
            assert found.first() == frame.select(F.col(kind).alias("order")).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"bad": "drop"}, "bad must be 'fail' or 'report', got 'drop'"),
        ({"buckets": 0}, "buckets must be an integer from 1 to 32768, got 0"),
        ({"gaps": 1}, "gaps must be True or False, got 1"),
        ({"most": 1}, "most must be an integer from 2 to 1048576, got 1"),
        ({"seed": -1}, "seed must be an integer from 0 to 9223372036854775807, got -1"),
        ({"seed": 2**63}, "seed must be an integer from 0 to 9223372036854775807, got 9223372036854775808"),
        (
            {"seed": None},
            "seed or checkpoint must be given, got neither: ",
        ),
        ({"checkpoint": ""}, "checkpoint must be the checkpoint folder of the query, got ''"),
        ({"checkpoint": Path("kept")}, "checkpoint must be the checkpoint folder of the query, got PosixPath"),
        ({"key": "Seed"}, "key must not be named 'Seed', like a column of the result: rename it"),
        ({"measure": measures.NearestNeighbour()}, "recipe must have a measure of bounded memory: Value, Frozen"),
        ({"measure": measures.Frozen()}, "recipe must have a measure of bounded memory: Value, Frozen"),
        ({"key": "n"}, "key must not be named 'n', like a column of the result: rename it"),
        ({"order": "Count"}, "order must not be named 'Count', like a column of the result: rename it"),
        ({"key": "P", "order": "p"}, "key must not be named 'P', like a column of the result: rename it"),
        ({"key": "a", "order": "A"}, "key and order must have names that differ by more than case, got 'a' and 'A'"),
        ({"order": "x"}, "order must be a column of integers, dates or timestamps"),
        ({"features": ["x"]}, r"features must name one column of numbers for Value, got \['x'\]"),
    ],
)
def test_what_cannot_be_monitored_is_refused_at_once(
    spark: SparkSession, tmp_path: Path, more: dict[str, Any], expected: str
) -> None:
    columns = (
        "key string, seq bigint, x double, n string, Count bigint, P string, p bigint, a string, A bigint, Seed string"
    )
    frame = source(spark, tmp_path, columns)
    with pytest.raises(ValueError, match=f"^{expected}"):
        monitor_streams(frame, **{"key": "key", "order": "seq", "features": "x", "seed": SEED, **more})


def test_what_is_given_stays_fresh_and_a_used_measure_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = source(spark, tmp_path, SIMPLE)
    measure, bet, alarm = measures.Value(), bets.CompositeJumper(), alarms.Ville()
    monitor_streams(frame, "key", "seq", "x", measure=measure, bet=bet, alarm=alarm, seed=SEED)
    measure.update(1.0)
    with pytest.raises(ValueError, match=r"^recipe must be fresh, got a monitor"):
        monitor_streams(frame, "key", "seq", "x", measure=measure, seed=SEED)


def test_a_batch_and_another_state_store_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^df must be a streaming frame .* got a batch frame: use test_streams"):
        monitor_streams(spark.range(3).selectExpr("id key", "id seq", "id x"), "key", "seq", "x")
    setting = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(setting)
    other = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    spark.conf.set(setting, other)
    try:
        with pytest.raises(ValueError, match=f"^the setting {setting} must be {before}, got {other}$"):
            monitor_streams(source(spark, tmp_path, SIMPLE), "key", "seq", "x")
    finally:
        spark.conf.set(setting, str(before))
