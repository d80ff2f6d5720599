"""Streams without end on Spark: `monitor_streams` against the same query with a state function that does nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle
from pyspark.sql import Row

from exchangeable import measures
from exchangeable.spark import monitor_streams, session, state
from exchangeable.spark.state import QUERY_BUCKET, from_bytes, to_bytes
from workloads import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BINS = 64
SKIPPED, TIMED = 2, 3  # micro-batches: the first has every key, the second warms up
FLEETS = [(1_000, 100_000, 128), (10_000, 100_000, 128), (100_000, 100_000, 128), (100_000, 100_000, 512)]
FLEETS += [(100_000, 100_000, 2048)]  # keys, events of a micro-batch, buckets; others as arguments: 1000000,500000,128
CORES = 2

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # not the executors' to import


class Nothing(state.Bucket):
    """Rows out as events come in, and no state at all."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        if key[0] != QUERY_BUCKET:
            yield Row(rows=to_bytes(self._rows(from_bytes((bytes(row.events) for row in rows), self.form.events))))

    def _rows(self, events: Any) -> Any:
        count, x = events.num_rows, events["x"]
        whole, no = np.ones(count, np.int64), pa.array(np.zeros(count, np.bool_))
        blank = pa.nulls(count, pa.int64()), whole, pa.nulls(count, pa.large_string())
        kinds = pa.repeat(pa.scalar("step", pa.large_string()), count)
        columns = [events["key"], events["order"], kinds, whole, x, x, no, *blank]
        return pa.RecordBatch.from_arrays(columns, schema=self.form.rows)


class Bytes(Nothing):
    """The same, and a state of so many bytes that is read and written."""

    size = 0

    def _rows(self, events: Any) -> Any:
        held = self._state.get()
        state = os.urandom(self.size) if held is None else bytes(held[0])
        self._state.update((state[64:] + os.urandom(64),))
        return super()._rows(events)


class Timed(NamedTuple):
    """What one query took, from the third micro-batch on."""

    seconds: float
    cpu: float  # seconds of Java and Python
    events: int
    state: int  # bytes in all buckets, when all keys are known and in the end
    later: int
    python: list[int]  # bytes of the Python workers, all the time

    @property
    def cost(self) -> float:
        """Microseconds an event."""
        return 1e6 * self.seconds / self.events

    @property
    def work(self) -> float:
        """Microseconds of a processor an event."""
        return 1e6 * self.cpu / self.events


@contextmanager
def workplace() -> Iterator[tuple[SparkSession, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="exchangeable-bench-"))
    settings = {"spark.sql.shuffle.partitions": str(CORES), "spark.driver.memory": "2g"}
    spark = session(f"local[{CORES}]", settings={**settings, "spark.local.dir": str(folder)})
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark, folder
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def written(folder: Path, keys: int, events: int) -> Path:
    """A file for each micro-batch: every key once, then events of keys at random."""
    place = folder / f"{keys}-{events}"
    if place.exists():
        return place
    place.mkdir()
    rng, seen = np.random.default_rng(0), np.zeros(keys, np.int64)
    names = pa.array([f"sensor-{i:07d}" for i in range(keys)])
    for number in range(SKIPPED + TIMED):
        key = rng.permutation(keys) if number == 0 else rng.integers(0, keys, events)
        by = np.argsort(key, kind="stable")
        first = np.concatenate([[True], np.diff(key[by]) > 0])
        since = np.arange(len(key)) - np.maximum.accumulate(np.where(first, np.arange(len(key)), 0))
        seq = np.empty(len(key), np.int64)
        seq[by] = seen[key[by]] + since + 1
        np.add.at(seen, key, 1)
        columns = {"device": names.take(pa.array(key)), "seq": seq, "x": rng.normal(size=len(key))}
        file = place / f"{number:03d}.parquet"
        pq.write_table(pa.table(columns), file, row_group_size=max(1, len(key) // CORES))
        os.utime(file, (10**9 + number, 10**9 + number))
    return place


def monitored(spark: SparkSession, place: Path, buckets: int) -> DataFrame:
    frame = spark.readStream.schema("device string, seq bigint, x double").option("maxFilesPerTrigger", 1)
    measure = measures.Frozen(bins=BINS, reference=np.random.default_rng(1).normal(size=10_000))
    return monitor_streams(frame.parquet(str(place)), "device", "seq", "x", measure=measure, seed=0, buckets=buckets)


def timed(spark: SparkSession, folder: Path, rows: DataFrame) -> Timed:
    """Run the query to the end of its source."""
    checkpoint = folder / "checkpoint"
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    python, begun = [resident(spark)], 0.0
    while not query.awaitTermination(0.1):  # type: ignore[arg-type]
        if len(query.recentProgress) <= SKIPPED:
            begun = processor_time(spark)
        python.append(resident(spark))
    cpu = processor_time(spark) - begun
    progress = [json.loads(step.json) for step in query.recentProgress]
    later = progress[SKIPPED:]
    seconds = sum(step["durationMs"]["triggerExecution"] for step in later) / 1000.0
    state, last = (stored(spark, checkpoint, number) for number in (SKIPPED, len(progress) - 1))
    shutil.rmtree(checkpoint)
    return Timed(seconds, cpu, sum(step["numInputRows"] for step in later), state, last, python)


def stored(spark: SparkSession, checkpoint: Path, batch: int) -> int:
    """Bytes of all states after a micro-batch."""
    reader = spark.read.format("statestore").option("stateVarName", "monitors").option("batchId", batch)
    found = reader.load(str(checkpoint)).selectExpr("coalesce(sum(length(value.data)), 0)").first()
    assert found is not None
    return int(found[0])


def resident(spark: SparkSession) -> int:
    """Bytes of memory of the Python workers."""
    return sum(process.pages for process in processes(spark) if process.depth == 2) * os.sysconf("SC_PAGE_SIZE")


def processor_time(spark: SparkSession) -> float:
    """Seconds that Java and its Python processes have worked."""
    return sum(process.ticks for process in processes(spark)) / os.sysconf("SC_CLK_TCK")


class Process(NamedTuple):
    """One of a session: Java (0), a daemon that forks (1), a worker (2)."""

    depth: int
    ticks: int
    pages: int


def processes(spark: SparkSession) -> list[Process]:
    """All that run, as Linux tells of them."""
    told: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                told[int(folder.name)] = [
                    int(word) for word in (folder / "stat").read_text().rpartition(")")[2].split()[1:22]
                ]
    generation, depth, found = {spark.sparkContext._gateway.proc.pid}, 0, []  # type: ignore[union-attr]
    while generation:
        found += [Process(depth, sum(told[pid][10:14]), told[pid][20]) for pid in generation if pid in told]
        generation, depth = {pid for pid, words in told.items() if words[0] in generation}, depth + 1
    return found


def compared(spark: SparkSession, folder: Path, keys: int, events: int, buckets: int) -> tuple[list[str], Timed]:
    place = written(folder, keys, events)
    ours = timed(spark, folder, monitored(spark, place, buckets))
    with mock.patch.object(state, "Bucket", Nothing):
        nothing = timed(spark, folder, monitored(spark, place, buckets))
    Bytes.size = ours.state // buckets
    with mock.patch.object(state, "Bucket", Bytes):
        bytes_ = timed(spark, folder, monitored(spark, place, buckets))
    row = [f"{keys:,}", f"{events:,}", f"{buckets:,}", f"{ours.state / keys:,.0f}", f"{ours.state / buckets / 1e6:.2f}"]
    row += [
        f"{ours.events / ours.seconds:,.0f}",
        *(f"{each.cost:.1f} ({each.work:.1f})" for each in (ours, nothing, bytes_)),
    ]
    return [*row, *(f"{ours.cost / each.cost:.2f} ({ours.work / each.work:.2f})" for each in (nothing, bytes_))], ours


def main(fleets: list[tuple[int, int, int]] = FLEETS) -> str:
    with workplace() as (spark, folder):
        timed(spark, folder, monitored(spark, written(folder, 1_000, 20_000), 16))  # warms Java up
        found = [compared(spark, folder, *fleet) for fleet in fleets]
    columns = ["keys", "events a micro-batch", "buckets", "bytes a key", "MB a bucket", "events/s"]
    columns += ["us an event", "nothing", "bytes", "ratio to nothing", "ratio to bytes"]
    large = max(found, key=lambda row: int(row[0][0].replace(",", "")))
    said = (
        f"`monitor_streams` with `Frozen` of {BINS} bins and `CompositeJumper` on {CORES} cores, every event a row out;"
        " against the same query whose state function does nothing at all, and one that reads and writes states of as"
        " many bytes. Times are of whole micro-batches; in parentheses the time of all processors.\n\n"
    )
    return "## Streams on Spark\n\n" + said + table(columns, [row for row, _ in found]) + "\n" + _flat(*large)


def _flat(row: list[str], ours: Timed) -> str:
    half = len(ours.python) // 2
    before, after = max(ours.python[:half], default=0), max(ours.python[half:], default=0)
    return (
        f"Flat, with {row[0]} keys: the states held {ours.state / 1e6:.1f} MB once all keys were known and"
        f" {ours.later / 1e6:.1f} MB after {TIMED - 1} more micro-batches; the Python workers {before / 1e6:.0f} MB"
        f" in the first half of the time and {after / 1e6:.0f} MB in the second.\n"
    )


if __name__ == "__main__":
    print(main([tuple(map(int, words.split(","))) for words in sys.argv[1:]] or FLEETS))  # type: ignore[misc]
