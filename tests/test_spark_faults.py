"""Processes killed: the driver in mid-stream, executors and workers under way; the numbers stay the library's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import feeds
import live_driver
import sparks
from standalone import SETTINGS, Standalone, standalone, until

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from exchangeable import Monitor, alarms, bets, measures
from exchangeable.pvalues import PValues
from exchangeable.spark import monitor_streams, pvalues, test_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SEED, BATCHES, KILLS = 11, 12, 2


def recipe() -> Monitor:
    return Monitor(measures.Value(), bets.CompositeJumper(), alarms.Ville(0.05))


def filled(folder: Path, batches: int = BATCHES) -> dict[str, Any]:
    """Files for so many micro-batches, each of which has events of most streams, in any order."""
    data = feeds.walks([f"device {i}" for i in range(100)], 24) | feeds.walks(["hot"], 2400, seed=2)
    events = feeds.shuffled(feeds.events(data))
    seq, lengths = np.asarray(events["seq"]), np.array([len(data[key]) for key in events["key"].to_pylist()])
    part = (seq - 1) * batches // lengths
    for number in range(batches):
        feeds.add(folder / "in", number, events.filter(part == number))
    return data


# ------------------------------------------------------------------ the driver


@pytest.mark.soak
@pytest.mark.parametrize("kills", [1, KILLS])
def test_a_driver_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path, kills: int) -> None:
    if sparks.missing() is not None:
        pytest.skip(str(sparks.missing()))
    data = filled(tmp_path)
    rng, commits = np.random.default_rng(15), tmp_path / "checkpoint" / "commits"
    moments = rng.uniform(0.0, 1.0, KILLS)

    def committed() -> int:
        return sum(path.name.isdigit() for path in commits.iterdir()) if commits.is_dir() else 0

    for moment in moments[:kills]:
        before = committed()
        driver = start_driver(tmp_path)
        until(lambda: committed() > before or driver.poll() is not None)  # noqa: B023
        time.sleep(moment)
        assert driver.poll() is None, "the driver ended before it was killed"
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert before < committed() < BATCHES
    assert start_driver(tmp_path).wait(120) == 0
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert set(rows["kind"]) == {"step"}, moments
    (seed,) = rows["seed"].unique()
    feeds.assert_steps(rows, recipe, int(seed), data)


def start_driver(folder: Path) -> subprocess.Popen[bytes]:
    """A driver, with its Java in one group of processes."""
    with (folder / "driver.log").open("ab") as log:
        command = [sys.executable, live_driver.__file__, str(folder)]
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


# ------------------------------------------------------------------ executors and workers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    if sparks.missing() is not None:
        pytest.skip(str(sparks.missing()))
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running
        sparks.end()


def connected(cluster: Standalone) -> SparkSession:
    return sparks.shared(cluster.url, **SETTINGS)


def watched(spark: SparkSession, folder: Path) -> DataFrame:
    frame = spark.readStream.schema("key string, seq bigint, x double").option("maxFilesPerTrigger", 1)
    source = frame.parquet(str(folder / "in"))
    return monitor_streams(source, "key", "seq", "x", alarm=alarms.Ville(0.05), seed=SEED, buckets=8)


def started(rows: DataFrame, folder: Path) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def killed_in_mid_stream(spark: SparkSession, folder: Path, victim: int) -> pd.DataFrame:
    """All rows of a query under which a process was killed after the first micro-batch."""
    query = started(watched(spark, folder), folder)
    until(lambda: len(query.recentProgress) > 0 or not query.isActive)
    time.sleep(np.random.default_rng(16).uniform(0.0, 0.5))
    assert query.isActive
    os.kill(victim, signal.SIGKILL)
    assert query.awaitTermination(120)
    return spark.read.parquet(str(folder / "out")).toPandas()


@pytest.mark.soak
def test_a_stream_goes_on_when_an_executor_is_killed(cluster: Standalone, tmp_path: Path) -> None:
    data, spark = filled(tmp_path, 6), connected(cluster)
    until(lambda: len(cluster.executors()) == 2)
    victim = cluster.executors()[0]
    rows = killed_in_mid_stream(spark, tmp_path, victim)
    assert victim not in cluster.executors()
    feeds.assert_steps(rows, recipe, SEED, data)


def slow(pause: float) -> measures.Frozen:
    """The numbers as scores that take their time, so that there is some to kill in."""

    def slowly(X: Any, y: Any) -> Any:  # within a function: executors know nothing of the tests
        time.sleep(pause)
        return X

    return measures.Frozen(slowly)


def test_a_batch_goes_on_when_an_executor_is_killed(cluster: Standalone, tmp_path: Path) -> None:
    spark, data = connected(cluster), feeds.walks([f"device {i}" for i in range(40)], 50)
    feeds.add(tmp_path / "in", 0, feeds.shuffled(feeds.events(data)))
    until(lambda: len(cluster.executors()) == 2)
    frame, bet = spark.read.parquet(str(tmp_path / "in")), bets.CompositeJumper()
    rows = test_streams(frame, "key", "seq", "x", measure=slow(0.1), bet=bet, seed=SEED, partitions=6)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(rows.toPandas)
        until(lambda: tasks_done(spark) > 1 or job.done())
        assert not job.done()
        os.kill(cluster.executors()[0], signal.SIGKILL)
        found = job.result(120).set_index("key")
    assert found.index.is_unique
    for key, x in data.items():
        last = feeds.library(lambda: Monitor(slow(0.0), bets.CompositeJumper()), SEED, key, x).iloc[-1]  # rounds too
        assert tuple(found.loc[key, ["n", "log10_martingale"]]) == tuple(last[["n", "log10_martingale"]])


def tasks_done(spark: SparkSession) -> int:
    """Of the stages that run."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks > 2)


@pytest.mark.soak
def test_a_stream_goes_on_when_a_worker_is_killed(cluster: Standalone, tmp_path: Path) -> None:
    data, spark = filled(tmp_path, 6), connected(cluster)
    until(lambda: len(cluster.executors()) == 2)
    rows = killed_in_mid_stream(spark, tmp_path, cluster.workers[0].pid)
    assert cluster.workers[0].wait(10) == -signal.SIGKILL
    feeds.assert_steps(rows, recipe, SEED, data)


# ------------------------------------------------------------------ executors that are processes of their own


@pytest.mark.soak
def test_all_of_it_on_executors_that_are_processes(tmp_path: Path) -> None:
    spark, data = sparks.cluster(), filled(tmp_path, 3)
    started(watched(spark, tmp_path), tmp_path).awaitTermination()
    feeds.assert_steps(spark.read.parquet(str(tmp_path / "out")).toPandas(), recipe, SEED, data)
    parts: dict[str, Any] = {"bet": bets.CompositeJumper(), "alarm": alarms.Ville(0.05), "seed": SEED}
    rows = test_streams(spark.read.parquet(str(tmp_path / "in")), "key", "seq", "x", **parts, steps=True)
    feeds.assert_steps(rows.toPandas(), recipe, SEED, data)

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    table = pd.DataFrame({"t": np.arange(400), "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}).sample(
        frac=1.0, random_state=1
    )
    found: Any = pvalues(spark.createDataFrame(table), "t", ["a", "b", "c"], "y", seed=SEED, block=150).toPandas()
    expected = PValues(measures.NearestNeighbour(), seed=SEED).extend(X, y.tolist())
    assert found.sort_values("t")["p"].tolist() == expected.tolist()
