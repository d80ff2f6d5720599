"""`monitor_streams`: Structured Streaming, with the state of all keys in Spark's state store."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type

from exchangeable.alarms import Ville
from exchangeable.bets import Adaptive, CompositeJumper
from exchangeable.keyed import Monitors
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import Monitor, default_bet
from exchangeable.protocols import Alarm, Bet, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.spark import seeds, state
from exchangeable.spark.columns import EPOCH, INTEGERS, lacks_key, validate
from exchangeable.spark.lives import check_expire
from exchangeable.spark.sessions import ROCKSDB
from exchangeable.validation import check_integer, format_value

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
MAX_BUCKETS = 2**15


def monitor_streams(
    df: DataFrame,
    key: str,
    order: str,
    features: str | Sequence[str],
    label: str | None = None,
    *,
    measure: Measure | Precomputed | None = None,
    bet: Bet | None = None,
    alarm: Alarm | None = None,
    on_alarm: str = "latch",
    seed: int | None = None,
    checkpoint: str | None = None,
    bad: str = "fail",
    buckets: int = 128,
    most: int = 4096,
    gaps: bool = True,
    expire: timedelta | None = None,
) -> DataFrame:
    """Monitor every stream of a streaming frame: a row for each event, with the same numbers as on one machine.

        key, order, kind, n, p, log10_martingale, alarm, changepoint, count, detail, seed

    Write the result in append mode, to any sink, with its own checkpoint folder, from which a restart continues. The
    stream of key k has the numbers of ``Monitor(measure, bet, alarm, seed=stream_seed(seed, k), on_alarm=on_alarm)`` on
    its events in order, regardless of micro-batches, retries and restarts.

    ``order`` is a sequence number of each key (1, 2, 3, ...), a date or a timestamp. Within a micro-batch the events
    are sorted by it. Rows of kind "step" were bet on. All others were not, and ``detail`` says why: "duplicate" (seen
    before; ``count`` events), "late" (its number was skipped before), "gap" (from ``order`` on, ``count`` numbers are
    missing), "conflict" (different rows with one number), "bad" (an invalid row), "full" (see ``most``). Pass
    ``gaps=False`` if numbers increase but may be skipped, such as the offsets of a topic: then no gap is reported.

    With ``bad="fail"`` an invalid row (a null key, a NaN, text among numbers), or a conflict, fails the query with a
    message, which `refusal` finds in ``query.exception()``. With "report" it becomes a row of that kind.

    ``measure`` must have bounded memory: `Value` (the default: one column of numbers), `Frozen` with bins (scores, or
    ``features`` and ``label`` of a model that scores each row separately), or `Precomputed` (a column of p-values). The
    pool of `Value` holds up to ``most`` distinct numbers, 10 bytes each; the step that fills it is the last of that
    key. The default bet depends on the alarm: `Sentinel` for `ShiryaevRoberts` and `Cusum`, 3.6 kB per key besides the
    pool; for other alarms `CompositeJumper`, 0.3 kB, because `Adaptive`, the default of `Monitor`, takes 91 kB.

    ``seed`` is for random tie-breaking. A restarted query must continue with the seed that it started with. So pass an
    integer below 2^63, or None together with ``checkpoint``, the folder that you give to Spark as
    ``checkpointLocation``: the first call draws a seed and stores it there, and later calls read it. All rows contain
    it in the column ``seed``. With Spark Connect, pass a seed.

    Keys are hashed into ``buckets``. Each bucket has one state in Spark's RocksDB store, which is read and written in
    full in each micro-batch with events of the bucket: choose their number so that a state has 0.1 to 4 MB. Recipe,
    seed and buckets are fixed for the life of a checkpoint; a query with others is rejected. Spark fixes
    ``spark.sql.shuffle.partitions`` too: set it to one or two times the number of cores before the first start.

    With ``on_alarm="restart"`` there is one more column, ``test``: the number of the test, from 1.

    ``expire`` removes keys that had no events for this long, by the clock of the micro-batches, when their bucket has
    its next events. A row of kind "expired" reports each of them, and its evidence stays in the output. A key that
    returns is a new stream, with fresh evidence and any sequence number. So there is one more column, ``life``: when
    this life of the key began. `fleet_report` counts each life as a stream: K must include them.
    """
    milliseconds = check_expire(expire)
    _check(df, bad, buckets, gaps)
    seed_file = None if checkpoint is None else seeds.SeedFile(df.sparkSession, checkpoint)
    recipe = _recipe(measure, bet, alarm, on_alarm)
    rows = validate(df, key=key, order=order, features=features, label=label, sequence=True)
    _check_columns(recipe.measure, rows, features)
    kind = next(field.dataType for field in df.schema.fields if field.name == order)
    times = "" if isinstance(kind, INTEGERS) else kind.simpleString()
    roles = f"key {key!r}, order {order!r}, features {features!r}, label {label!r}"
    extra = f"{buckets} buckets of keys of {_key_type(rows)}, order of {times or 'integers'}; columns {roles}"
    extra += "" if milliseconds is None else f"; keys expire after {expire}"
    seed = _seed(seed, recipe.measure) if seed_file is None else seed_file.choose(seed)
    monitors = Monitors(recipe, seed=seed, contiguous=gaps and not times, most=most, extra=extra)
    with_buckets = _with_buckets(rows, recipe.measure, buckets)
    tested = _transform(with_buckets, monitors, fail=bad == "fail", order=times, expire=milliseconds)
    names = _names(key, order, tested.columns)
    columns = [F.col("key"), _from_long(F.col("order"), kind), *(F.col(name) for name in names[2:])]
    if seed_file is not None:
        seed_file.store(seed)
    renamed = tested.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))
    return seeds.add_column(renamed, seed)


def _transform(rows: DataFrame, monitors: Monitors, *, fail: bool, order: str, expire: int | None) -> DataFrame:
    """Connect the three stages: validated rows with their buckets in, rows of the monitors out."""
    key = to_arrow_type(rows.schema["key"].dataType)
    tests = monitors.recipe.on_alarm == "restart"
    events, output = state.events_schema(key), state.rows_schema(key, tests=tests, lives=expire is not None)
    packer = state.EventPacker(monitors.recipe.measure, events, order=order, fail=fail)
    bucket = state.Bucket(monitors, state.BucketFormat(events, output, order, fail, expire))
    packed = rows.mapInArrow(packer.pack, state.PACKED_EVENTS)
    if expire is not None:  # the time of the micro-batch, which is the same if it is repeated
        packed = packed.withColumn("now", F.unix_millis(F.current_timestamp()))
    tested = packed.groupBy("bucket").transformWithState(bucket, state.PACKED_ROWS, "Append", "None")
    return tested.mapInArrow(state.RowUnpacker(output).unpack, from_arrow_schema(output))


def _with_buckets(rows: DataFrame, measure: object, buckets: int) -> DataFrame:
    """Add the bucket of each row, and a hash of its content where equal scores could hide that rows differ."""
    key = F.when(lacks_key(), F.xxhash64("order")).otherwise(key_hash(rows))  # spreads rows without a key
    with_bucket = rows.withColumn("bucket", bucket_of(key, buckets))
    if not isinstance(measure, Frozen) and "y" not in rows.columns:
        return with_bucket
    return with_bucket.withColumn("content", F.xxhash64(*(name for name in ("x", "y") if name in rows.columns)))


def key_hash(rows: DataFrame) -> Column:
    """Return the hash of the column ``key``, the same for integers of every width."""
    return F.xxhash64(F.col("key").cast("long") if _key_type(rows) == "integers" else F.col("key"))


def bucket_of(key: Column, buckets: int) -> Column:
    """Return the bucket of a hash."""
    return F.pmod(key, F.lit(buckets)).cast("int")


def _key_type(rows: DataFrame) -> str:
    kind = rows.schema["key"].dataType
    return "bytes" if isinstance(kind, T.BinaryType) else "integers" if isinstance(kind, INTEGERS) else "text"


def _from_long(order: Column, kind: T.DataType) -> Column:
    """Turn an order back from a long to its original type."""
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(order.cast("int"))
    if isinstance(kind, T.TimestampType):
        return F.timestamp_micros(order)
    if isinstance(kind, T.TimestampNTZType):
        return F.timestamp_add("MICROSECOND", order, F.lit(EPOCH).cast(kind))
    return order.cast(kind)


# ------------------------------------------------------------------ validation


def _check(df: DataFrame, bad: str, buckets: int, gaps: bool) -> None:
    if not df.isStreaming:
        raise ValueError("df must be a streaming frame (from spark.readStream), got a batch frame: use test_streams")
    if bad not in ("fail", "report"):
        raise ValueError(f"bad must be 'fail' or 'report', got {format_value(bad)}")
    check_integer("buckets", buckets, 1, MAX_BUCKETS)
    if not isinstance(gaps, bool):
        raise ValueError(f"gaps must be True or False, got {format_value(gaps)}")
    provider = str(df.sparkSession.conf.get(PROVIDER, None))
    if not provider.endswith(ROCKSDB.rpartition(".")[2]):
        raise ValueError(f"the setting {PROVIDER} must be {ROCKSDB}, got {provider}")


def _recipe(measure: Any, bet: Bet | None, alarm: Alarm | None, on_alarm: str) -> Monitor:
    """Return the monitor that each stream gets a copy of; the arguments are copied."""
    measure = Value() if measure is None else copy.deepcopy(measure)
    default = default_bet(Ville() if alarm is None else alarm)
    small = CompositeJumper() if isinstance(default, Adaptive) else default
    return Monitor(measure, small if bet is None else copy.deepcopy(bet), alarm, seed=0, on_alarm=on_alarm)


def _seed(seed: int | None, measure: object) -> int:
    """Return the seed of a query whose checkpoint folder is not known."""
    if seed is None and isinstance(measure, Precomputed):
        return Precomputed.seed  # nothing is random
    if seed is None:
        raise ValueError(
            "seed or checkpoint must be given, got neither: a restarted query must continue with the same seed. Pass "
            "checkpoint, the checkpoint folder of the query, or an integer that you keep with your settings"
        )
    return seeds.choose(seed)


def _check_columns(measure: Any, rows: DataFrame, features: str | Sequence[str]) -> None:
    """Check that the measure can use columns of these types, as far as that is known in advance."""
    scored = isinstance(measure, Frozen) and measure.score is not None
    if not scored and isinstance(rows.schema["x"].dataType, T.ArrayType):
        expected = f"features must name one column of numbers for {type(measure).__name__}"
        raise ValueError(f"{expected}, got {format_value(features)}")


def _names(key: str, order: str, ours: Sequence[str]) -> list[str]:
    """Return the names of the columns; the user's names of key and order must differ from ours."""
    for role, name in (("key", key), ("order", order)):
        if name.lower() in (*ours[2:], seeds.COLUMN):
            raise ValueError(f"{role} must not be named {name!r}, like a column of the result: rename it")
    if key.lower() == order.lower():
        raise ValueError(f"key and order must have names that differ by more than case, got {key!r} and {order!r}")
    return [key, order, *ours[2:]]
