"""`reshard`: the checkpoint of a stopped query, copied with another number of buckets.

The state of all keys is read by Spark's reader of states, divided by key, and stored by a query of one micro-batch into
the new checkpoint. Its offsets are then replaced by those of the old one, so that the next start continues there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from exchangeable.keyed import resharding
from exchangeable.spark.folders import Folder
from exchangeable.spark.seeds import FILE
from exchangeable.spark.state import PACKED_ROWS, QUERY_BUCKET, STATE
from exchangeable.spark.streaming import MAX_BUCKETS, bucket_of, key_hash
from exchangeable.validation import check_integer

BUCKETS = re.compile(r"\A(\d+)(?= buckets of keys of )")
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
STORED = "bucket int, data binary, lives binary"


class Resharded(NamedTuple):
    """What was done."""

    keys: int
    before: int  # buckets
    after: int


class Query(NamedTuple):
    """The query of a checkpoint."""

    state: bytes  # of the recipe, without keys
    buckets: int
    lives: bool  # whether keys expire
    batch: int  # the last micro-batch that was completed


def reshard(spark: SparkSession, checkpoint: str, target: str, buckets: int) -> Resharded:
    """Copy the checkpoint of `monitor_streams` to ``target``, with its keys divided into another number of buckets.

    Stop the query first. Then start it with ``checkpoint=target`` and ``buckets=buckets``, and the same output: it
    continues after its last micro-batch, with the same numbers. The old checkpoint is only read, and must not be used
    again, because the output knows micro-batches by their numbers. The new one has the ``spark.sql.shuffle.partitions``
    of the session. Every key is compared before this returns.
    """
    check_integer("buckets", buckets, 1, MAX_BUCKETS)
    old, new = Folder(spark, checkpoint), Folder(spark, target)
    if new.exists():
        raise ValueError(f"target must not exist, got {target!r}: choose another folder")
    query = _read_query(spark, old)
    scratch = Folder(spark, f"{target.rstrip('/')}-resharding")
    if scratch.exists():
        reason = "an interrupted reshard left it, or another one is running: remove it, or choose another target"
        raise ValueError(f"the folder for temporary files must not exist, got {scratch.name!r}: {reason}")
    try:
        rows = _key_rows(spark, old, query.lives).persist()
        _divided(rows, query, buckets).write.parquet(scratch.name)
        _store(spark, scratch, new, query)
        count = _compare(rows, _key_rows(spark, new, query.lives), buckets)
        rows.unpersist()
        _continue_from(old, new, query.batch)
    except BaseException:
        new.delete()
        raise
    finally:
        scratch.delete()
    return Resharded(count, query.buckets, buckets)


def _read_query(spark: SparkSession, old: Folder) -> Query:
    """Describe the query of a checkpoint, which must have ended a micro-batch and started no other."""
    batch, started = old.newest("commits"), old.newest("offsets")
    if batch is None:
        raise ValueError(f"checkpoint must be that of a query with a completed micro-batch, got {old.name!r}")
    if started != batch:
        advice = "start the query once more with --available-now (trigger availableNow), then try again"
        raise ValueError(f"the last micro-batch of {old.name!r} was interrupted: {advice}")
    try:
        states = _states(spark, old, "monitors")
        lives = "lives" in {row[0] for row in _variables(spark, old)}
    except (PySparkException, Py4JJavaError) as error:
        raise ValueError(
            f"checkpoint must be that of monitor_streams, got {old.name!r}: {_first_line(error)}"
        ) from None
    row = states.where(F.col("bucket") == QUERY_BUCKET).first()
    found = BUCKETS.match(resharding.extra_of(bytes(row["data"]))) if row is not None else None
    if row is None or found is None:
        raise ValueError(f"checkpoint must be that of monitor_streams, got {old.name!r}")
    return Query(bytes(row["data"]), int(found[1]), lives, batch)


def _variables(spark: SparkSession, folder: Folder) -> list[Row]:
    """Return the names of the state variables of a checkpoint."""
    metadata = spark.read.format("state-metadata").load(folder.name)
    properties = metadata.select(F.from_json("operatorProperties", "stateVariables string").alias("p"))
    names = F.explode(F.from_json("p.stateVariables", "array<struct<stateName string>>"))
    return properties.select(names.alias("v")).select("v.stateName").collect()


def _states(spark: SparkSession, folder: Folder, variable: str) -> DataFrame:
    """Return the values of a state variable by bucket."""
    reader = spark.read.format("statestore").option("stateVarName", variable)
    return reader.load(folder.name).select(F.col("key.bucket").alias("bucket"), F.col("value.data").alias("data"))


def _key_rows(spark: SparkSession, folder: Folder, lives: bool) -> DataFrame:
    """Return one row for each key: its bucket, the key, and its parts of the state."""
    states = _states(spark, folder, "monitors").where(F.col("bucket") != QUERY_BUCKET)
    if lives:
        states = states.join(_states(spark, folder, "lives").withColumnRenamed("data", "lives"), "bucket")
    else:
        states = states.withColumn("lives", F.lit(None).cast("binary"))
    first = states.first()
    if first is None:
        raise ValueError(f"checkpoint must hold the state of at least one key, got {folder.name!r}")
    sample = resharding.to_rows(bytes(first["data"])).schema.append(pa.field("lives", pa.large_binary()))
    schema = pa.schema([pa.field("bucket", pa.int32()), *sample])
    return states.mapInArrow(_divide_states, from_arrow_schema(schema))


def _divide_states(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for bucket, data, lives in zip(*(batch[name] for name in ("bucket", "data", "lives")), strict=True):
            rows = resharding.to_rows(data.as_py())
            parts = pa.nulls(rows.num_rows, pa.large_binary()) if not lives.is_valid else _lives_of(lives.as_py())
            columns = [pa.repeat(bucket, rows.num_rows), *rows.columns, parts]
            yield pa.RecordBatch.from_arrays(columns, ["bucket", *rows.schema.names, "lives"])


def _lives_of(data: bytes) -> Any:
    """Return the two times of each key as 16 bytes."""
    count = len(data) // 16
    began, seen = (memoryview(data)[8 * count * part : 8 * count * (part + 1)] for part in (0, 1))
    pairs = [bytes(began[8 * i : 8 * i + 8]) + bytes(seen[8 * i : 8 * i + 8]) for i in range(count)]
    return pa.array(pairs, pa.large_binary())


def _divided(rows: DataFrame, query: Query, buckets: int) -> DataFrame:
    """Return the state of each new bucket, and that of the query."""
    extra = BUCKETS.sub(str(buckets), resharding.extra_of(query.state))
    empty = resharding.from_rows(resharding.to_rows(query.state), query.state, extra)

    def join(table: Any) -> Any:
        table = table.sort_by("key").combine_chunks()
        state = resharding.from_rows(table.drop_columns(["bucket", "lives"]), query.state, extra)
        lives = None
        if query.lives:
            pairs = [pair.as_py() for pair in table["lives"]]
            lives = b"".join(pair[:8] for pair in pairs) + b"".join(pair[8:] for pair in pairs)
        columns = [table["bucket"][:1], pa.array([state], pa.binary()), pa.array([lives], pa.binary())]
        return pa.table(columns, ["bucket", "data", "lives"])

    keyed = rows.withColumn("bucket", bucket_of(key_hash(rows), buckets))
    divided = keyed.groupBy("bucket").applyInArrow(join, STORED)
    of_query = rows.sparkSession.createDataFrame([(QUERY_BUCKET, bytearray(empty), None)], STORED)
    return divided.unionByName(of_query)


class _Loader(StatefulProcessor):
    """Stores the state of a bucket as it is."""

    def __init__(self, lives: bool) -> None:
        self.lives = lives

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("monitors", STATE)
        self._lives = handle.getValueState("lives", STATE) if self.lives else None

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        for row in rows:
            self._state.update((bytes(row.data),))
            if self._lives is not None and row.lives is not None:
                self._lives.update((bytes(row.lives),))
        yield from ()

    def close(self) -> None:
        pass


def _store(spark: SparkSession, scratch: Folder, new: Folder, query: Query) -> None:
    """Store the states in a new checkpoint, by a query of one micro-batch; version 1 becomes a snapshot."""
    changelog = spark.conf.get(CHANGELOG, "false") or "false"
    spark.conf.set(CHANGELOG, "false")
    states = spark.readStream.schema(STORED).parquet(scratch.name).groupBy("bucket")
    stored = states.transformWithState(_Loader(query.lives), PACKED_ROWS, "Append", "None")
    writer = stored.writeStream.format("noop").option("checkpointLocation", new.name).trigger(availableNow=True)
    try:
        writer.start().awaitTermination()
    finally:
        spark.conf.set(CHANGELOG, changelog)
    if new.newest("commits") != 0:
        raise RuntimeError(
            "the states must be stored in one micro-batch; set spark.sql.streaming.noDataMicroBatches.enabled to false"
        )


def _continue_from(old: Folder, new: Folder, batch: int) -> None:
    """Give the new checkpoint the sources, the seed and the last micro-batch of the old one.

    Its states have version 1, that after micro-batch 0. They become those after ``batch``, because the output of the
    query knows its micro-batches by number.
    """
    version, settings = new.read("offsets/0").split("\n")[:2]
    offsets = old.read(f"offsets/{batch}").split("\n")[2:]
    new.delete("sources")
    for name in ("sources", FILE):
        if old.exists(name):
            old.copy(name, new)
    if batch:
        new.move("commits/0", f"commits/{batch}")
        new.delete("offsets/0")
        new.write(f"offsets/{batch - 1}", old.read(f"offsets/{batch - 1}"))
        for partition in new.names("state/0"):
            if partition.isdigit():
                new.delete(f"state/0/{partition}/1.changelog")
                new.move(f"state/0/{partition}/1.zip", f"state/0/{partition}/{batch + 1}.zip")
    new.write(f"offsets/{batch}", "\n".join([version, settings, *offsets]))


def _compare(before: DataFrame, after: DataFrame, buckets: int) -> int:
    """Check that all keys have the same state as before, and are in their buckets; return their number."""
    names = [name for name in before.columns if name not in ("bucket", "key")]
    same = F.lit(True)
    for name in names:
        same &= F.col(f"a.{name}").eqNullSafe(F.col(f"b.{name}"))
    right = F.col("b.bucket") == F.col("b.expected")
    expected = after.withColumn("expected", bucket_of(key_hash(after), buckets)).alias("b")
    joined = before.alias("a").join(expected, F.col("a.key") == F.col("b.key"), "full")
    total, equal = joined.agg(F.count("*"), F.sum(F.when(same & right, 1).otherwise(0))).first() or (0, 0)
    if total != equal:
        raise RuntimeError(f"{total - equal} of {total} keys differ after the copy: please report this as a bug")
    return int(total)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
