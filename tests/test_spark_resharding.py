"""Another number of buckets for a checkpoint, and keys that expire."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import feeds
import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from exchangeable import Monitor, alarms, bets, measures
from exchangeable.keyed import Monitors, resharding
from exchangeable.protocols import Measure
from exchangeable.spark import fleet_report, monitor_streams
from exchangeable.spark.lives import check_expire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from conftest import Run

SEED = 5
RNG = np.random.default_rng(0)
FROZEN = [measures.Frozen(bins=bins, reference=RNG.normal(size=5 * bins)) for bins in (8, 3000)]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return sparks.local()


def recipe(**more: Any) -> Monitor:
    return Monitor(measures.Value(), bets.CompositeJumper(), alarms.Ville(0.05), **more)


# ------------------------------------------------------------------ states, without Spark


@pytest.mark.parametrize("measure", [measures.Value(), *FROZEN], ids=["value", "few bins", "many bins"])
@pytest.mark.parametrize("key", [str, int, lambda i: str(i).encode()], ids=["text", "integers", "bytes"])
def test_states_divided_and_joined_give_the_same_numbers(measure: Measure, key: Any) -> None:
    def fresh(extra: str) -> Monitors:
        return Monitors(Monitor(measure, bets.CompositeJumper(), alarms.Ville(0.05)), seed=SEED, extra=extra)

    rng = np.random.default_rng(1)
    x = rng.normal(size=600)
    keys = [key(i) for i in rng.integers(0, 20, 600).tolist()]
    scores = measure.scores(x) if isinstance(measure, measures.Frozen) else x
    order = 2 * np.arange(600)  # with gaps, which are remembered
    monitors = fresh("one")
    monitors.extend(keys[:400], order[:400], scores[:400])
    rows = resharding.to_rows(monitors.encode())
    part = np.arange(rows.num_rows) % 3
    states = [resharding.from_rows(rows.filter(pa.array(part == i)), monitors.encode(), "three") for i in range(3)]
    assert sum(len(fresh("three").like(state)) for state in states) == len(monitors)
    joined = pa.Table.from_batches([resharding.to_rows(state) for state in states])
    twin = fresh("one").like(resharding.from_rows(joined, states[0], "one"))
    assert resharding.extra_of(states[0]) == "three"
    expected = monitors.extend(keys[400:], order[400:], scores[400:])
    for name, column in twin.extend(keys[400:], order[400:], scores[400:])._asdict().items():
        np.testing.assert_array_equal(column, getattr(expected, name), err_msg=name)
    assert resharding.to_rows(twin.encode()).equals(resharding.to_rows(_sorted(monitors)))


def _sorted(monitors: Monitors) -> bytes:
    return resharding.from_rows(resharding.to_rows(monitors.encode()), monitors.encode(), "one")


def test_no_keys_are_a_state_too() -> None:
    empty = Monitors(recipe(), seed=SEED).encode()
    assert len(Monitors(recipe(), seed=SEED).like(resharding.from_rows(resharding.to_rows(empty), empty, ""))) == 0


# ------------------------------------------------------------------ checkpoints


def watch(spark: SparkSession, folder: Path, checkpoint: str, **more: Any) -> DataFrame:
    """Until the source has no more; returns all that was ever written."""
    source = spark.readStream.schema("key string, seq bigint, x double").option("maxFilesPerTrigger", 1)
    name = str(folder / checkpoint)
    options = {"alarm": alarms.Ville(0.05), "seed": SEED, "checkpoint": name, **more}
    rows = monitor_streams(source.parquet(str(folder / "in")), "key", "seq", "x", **options)
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out")).option("checkpointLocation", name)
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(str(folder / "out"))


def test_a_checkpoint_with_another_number_of_buckets(spark: SparkSession, tmp_path: Path, run: Run) -> None:
    data = feeds.walks([f"device {i}" for i in range(30)], 30)
    events = feeds.shuffled(feeds.events(data))
    part = (np.asarray(events["seq"]) - 1) // 10
    for number in range(2):
        feeds.add(tmp_path / "in", number, events.filter(part == number))
    watch(spark, tmp_path, "old", buckets=8, expire=timedelta(days=1))
    old, new, newer = (str(tmp_path / name) for name in ("old", "new", "newer"))
    done = run("spark", "reshard", old, new, "--buckets", 3)
    assert (done.code, done.out) == (0, f"{new}: 30 keys in 3 buckets (before: 8), all compared\n"), done.err
    assert not (tmp_path / "new-resharding").exists()
    feeds.add(tmp_path / "in", 2, events.filter(part == 2))
    rows: Any = watch(spark, tmp_path, "new", buckets=3, expire=timedelta(days=1)).toPandas()
    feeds.assert_steps(rows, recipe, SEED, data)
    assert (rows.groupby("key")["life"].nunique() == 1).all()
    (tmp_path / "newer-resharding").mkdir()
    refused = run("spark", "reshard", new, newer, "--buckets", 5)
    assert (refused.code, "the folder for temporary files must not exist" in refused.err) == (2, True)
    (tmp_path / "newer-resharding").rmdir()
    shutil.copy(tmp_path / "new/offsets/2", tmp_path / "new/offsets/3")
    for arguments, sentence in (
        ((old, new), "target must not exist"),
        ((str(tmp_path / "in"), newer), "checkpoint must be that of a query with a completed micro-batch"),
        ((new, newer), "was interrupted: start the query once more"),
    ):
        refused = run("spark", "reshard", *arguments, "--buckets", 5)
        assert (refused.code, sentence in refused.err) == (2, True), refused.err
        assert not (tmp_path / "newer").exists()


# ------------------------------------------------------------------ keys that expire


def test_each_life_of_a_key_is_a_stream_of_the_fleet(spark: SparkSession) -> None:
    steps = [("a", 1, n, 0.5 * n, False, "2026-01-01") for n in (1, 2)]
    steps += [("a", 9, 1, 3.0, False, "2026-02-01"), ("b", 1, 1, 0.1, False, "2026-01-01")]
    columns = "key string, seq int, n int, log10_martingale double, alarm boolean, life string"
    frame = spark.createDataFrame(steps, columns).selectExpr("*", "'step' as kind")
    report: Any = fleet_report(frame).orderBy("key", "life").toPandas()
    assert report[["key", "life", "n", "log10_max", "found"]].to_numpy().tolist() == [
        ["a", "2026-01-01", 2, 1.0, False],
        ["a", "2026-02-01", 1, 3.0, True],
        ["b", "2026-01-01", 1, 0.1, False],
    ]


@pytest.mark.parametrize("expire", [5, "5 days", timedelta(0), timedelta(microseconds=1)])
def test_a_duration_is_at_least_a_second(expire: Any) -> None:
    with pytest.raises(ValueError, match="expire must be a timedelta of at least a second, got"):
        check_expire(expire)


def test_commands_refuse_what_cannot_work_before_java_starts(run: Run, tmp_path: Path) -> None:
    words = ("spark", "monitor", "in", "--key", "k", "--order", "o", "--features", "x", "--checkpoint", "new")
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("k,o,x\n")
    done = run(*words, "--output", "out")
    assert (done.code, "--output must not exist, got 'out'" in done.err) == (2, True)
    done = run(*words, "--output", "other", "--expire", "soon")
    assert (done.code, "--expire must be a number of seconds, minutes, hours or days, got 'soon'" in done.err) == (
        2,
        True,
    )
