"""Many streams on Spark: `test_streams` against a plain loop over the streams on one core, and e-BH over the result."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench_spark_live import processor_time
from exchangeable import Monitor, bets, measures
from exchangeable.fleet import stream_seed
from workloads import best, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLEETS = ((400, 1_000), (1_000, 1_000), (100_000, 10))  # streams, and examples of each
LOOPED = 10_000  # streams of a plain loop, at most; more take as much longer
ROWS = 200  # of features and labels, a stream, in a fleet of 1-NN
CORES = 2


class Speed(NamedTuple):
    """Seconds for all streams; ``over`` is processor time against that of the same query without a test."""

    spark: float
    loop: float
    over: float


def fleet(folder: Path, streams: int, examples: int) -> Path:
    """Rows of all streams in no order, in a Parquet file."""
    rng = np.random.default_rng(0)
    order = rng.permutation(streams * examples)
    columns = {"k": order // examples, "o": order % examples, "x": rng.normal(size=len(order))}
    path = folder / f"{streams}x{examples}.parquet"
    pq.write_table(pa.table({**columns, "z": rng.normal(size=len(order)), "y": order % 2}), path)
    return path


def session() -> SparkSession:
    from exchangeable.spark import session as started

    spark = started(f"local[{CORES}]", settings={"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "8"})
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def done(frame: DataFrame) -> None:
    """Compute all rows, and keep none of them."""
    frame.write.format("noop").mode("overwrite").save()


def without_test(frame: DataFrame, features: str | list[str], label: str | None) -> DataFrame:
    """The rows sorted by key and order, and sent to a Python function that does nothing."""

    def ignore(batches: Iterable[Any]) -> Iterator[Any]:  # a local function: executors cannot import this module
        for _ in batches:
            pass
        return iter(())

    x = [features] if isinstance(features, str) else features
    rows = frame.select("k", "o", *x, *([] if label is None else [label])).repartition(8, "k")
    return rows.sortWithinPartitions("k", "o").mapInArrow(ignore, "n long")


def over(spark: SparkSession, tested: DataFrame, nothing: DataFrame) -> float:
    """The processor time of a query as a multiple of that of another: the median of five pairs."""
    ratios = []
    for _ in range(5):
        times = [processor_time(spark)]
        for frame in (tested, nothing):
            done(frame)
            times.append(processor_time(spark))
        ratios.append((times[1] - times[0]) / (times[2] - times[1]))
    return sorted(ratios)[2]


def numbers(spark: SparkSession, path: Path, streams: int) -> Speed:
    """Numbers with the composite jumper."""
    from exchangeable.spark import test_streams

    def looped() -> None:
        rows = pq.read_table(path, filters=[("k", "<", LOOPED)]).sort_by([("k", "ascending"), ("o", "ascending")])
        x = rows["x"].to_numpy().reshape(min(streams, LOOPED), -1)
        for key, own in enumerate(x):
            Monitor(measures.Value(), bets.CompositeJumper(), seed=stream_seed(0, key)).extend(own.copy())

    frame = spark.read.parquet(str(path))
    tested = test_streams(frame, "k", "o", "x", bet=bets.CompositeJumper(), seed=0)
    time = best(lambda: done(tested))
    ratio = over(spark, tested, without_test(frame, "x", None))
    return Speed(time, best(looped, repeats=2) * max(1.0, streams / LOOPED), ratio)


def neighbours(spark: SparkSession, path: Path, streams: int) -> Speed:
    """Rows of two features with a label: the defaults of `Monitor`."""
    from exchangeable.spark import test_streams

    def looped() -> None:
        rows = pq.read_table(path).sort_by([("k", "ascending"), ("o", "ascending")])
        X, y = np.column_stack([rows["x"], rows["z"]]), rows["y"].to_numpy()
        for key, own in enumerate(np.split(np.arange(len(X)), streams)):
            Monitor(seed=stream_seed(0, key)).extend(X[own], y[own])

    frame = spark.read.parquet(str(path))
    tested = test_streams(frame, "k", "o", ["x", "z"], "y", seed=0)
    ratio = over(spark, tested, without_test(frame, ["x", "z"], "y"))
    return Speed(best(lambda: done(tested)), best(looped, repeats=2), ratio)


def report(spark: SparkSession, streams: int) -> float:
    """Seconds of e-BH over so many streams."""
    from exchangeable.spark import fleet_report

    capital = "case when id % 1000 = 0 then 12.0D else rand(0) - 2.0 end as log10_martingale"
    frame = spark.range(streams).selectExpr("id as k", "9L as n", capital, "12.0D as log10_max", "false as alarm")
    return best(lambda: done(fleet_report(frame)))


def row(name: str, streams: int, examples: int, speed: Speed) -> list[str]:
    events = streams * examples
    rates = (f"{events / time:,.0f}" for time in (speed.spark, speed.loop))
    return [name, f"{streams:,}", f"{examples:,}", *rates, f"{speed.loop / speed.spark:.2f}", f"{speed.over:.2f}"]


def main() -> str:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        spark = session()
        try:
            for streams, examples in FLEETS:
                speed = numbers(spark, fleet(Path(folder), streams, examples), streams)
                rows.append(row("`Value`, `CompositeJumper`", streams, examples, speed))
            speed = neighbours(spark, fleet(Path(folder), ROWS, 1_000), ROWS)
            rows.append(row("`NearestNeighbour`, `Adaptive`", ROWS, 1_000, speed))
            seconds = report(spark, 1_000_000)
        finally:
            spark.stop()
    columns = ["recipe", "streams", "examples of each", "Spark, events/s", "loop, events/s", "loop / Spark, time"]
    columns.append("processor time / that of a query whose function does nothing")
    said = (
        f"`test_streams` on `local[{CORES}]` against a loop over the streams on one core, each from one Parquet file of"
        " unsorted rows to one row a stream. Short streams are taken many at a time, which the loop does not do. The"
        " last column is the processor time of Java and Python, against a query that sorts the same rows and sends"
        " them to a Python function that does nothing.\n\n"
    )
    after = f"\n`fleet_report` over a million streams: {seconds:.1f} s.\n"
    return "## Many streams on Spark\n\n" + said + table(columns, rows) + after


if __name__ == "__main__":
    print(main())
