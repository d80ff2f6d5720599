"""Many streams without end: Structured Streaming, with the state of each key in Spark's own state store."""

from __future__ import annotations

import copy
from collections.abc import Sequence
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
from exchangeable.spark import buckets as states
from exchangeable.spark import packs, seeds
from exchangeable.spark.columns import LEAST_TIME, WHOLE, admitted
from exchangeable.spark.sessions import ROCKSDB
from exchangeable.validation import check_integer, format_value

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
MOST_BUCKETS = 2**15


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
) -> DataFrame:
    """Monitor every stream of a streaming frame: a row for each event, the numbers of the library, bit for bit.

        key, order, kind, n, p, log10_martingale, alarm, changepoint, count, detail, seed

    Write it in append mode, to any sink, with a checkpoint folder of its own: what a restart goes on from. The stream
    of key k has the numbers of ``Monitor(measure, bet, alarm, seed=stream_seed(seed, k), on_alarm=on_alarm)`` on its
    events in order, whatever the micro-batches, retries and restarts.

    ``order`` is a sequence number of each key (1, 2, 3, ...), a date or a timestamp. Within a micro-batch the events
    are sorted by it. Rows of kind "step" were bet on. All others were not, and ``detail`` says why: "duplicate" (seen
    before; ``count`` of them), "late" (its number was passed over before), "gap" (from ``order`` on, ``count`` numbers
    are missing), "conflict" (several rows of one number that differ), "bad" (not lawful), "full" (see ``most``). Where
    numbers only rise, such as offsets of a topic, ``gaps=False`` reports none, and what comes too late is "late".

    With ``bad="fail"`` a row that is not lawful (a null key, a NaN, text among numbers), or a conflict, fails the query
    with one sentence, which `refusal` finds in ``query.exception()``; with "report" it is a row of that kind.

    ``measure`` is one of bounded memory: `Value` (the default: one column of numbers), `Frozen` with bins (scores, or
    ``features`` and ``label`` of a model, which scores each row by itself), or `Precomputed` (a column of
    p-values). The pool of `Value` holds up to ``most`` distinct numbers, 10 bytes each; the step that fills it is the
    last of that key. The default bet depends on the alarm: `Watchful` for `ShiryaevRoberts` and `Cusum`, 2.5 kB per
    key beside the pool; for other alarms `CompositeJumper`, 0.3 kB, because the `Adaptive` of `Monitor` takes 49 kB.

    ``seed`` is for the random tie-breaking. A restarted query must continue with the seed that it began with. So pass
    an integer below 2^63, or None together with ``checkpoint``, the folder that you give to Spark as
    ``checkpointLocation``: the first call draws a seed and stores it there, and later calls read it. All rows contain
    it in the column ``seed``. With Spark Connect, pass a seed.

    Keys are hashed into ``buckets``, each with one state in Spark's RocksDB store, which is read and written whole in
    each micro-batch that has events of the bucket: so many that a state stays at 0.1 to 4 MB. Recipe, seed and buckets
    are fixed for the life of a checkpoint; others are refused. ``spark.sql.shuffle.partitions`` is fixed with it too:
    set it to one or two times the cores before the first start.

    With ``on_alarm="restart"`` there is one more column, ``test``: the number of the test, from 1.
    """
    _check(df, bad, buckets, gaps)
    kept = None if checkpoint is None else seeds.SeedFile(df.sparkSession, checkpoint)
    recipe = _recipe(measure, bet, alarm, on_alarm)
    rows = admitted(df, key=key, order=order, features=features, label=label, sequence=True)
    _check_columns(recipe.measure, rows, features)
    kind = next(field.dataType for field in df.schema.fields if field.name == order)
    times = "" if isinstance(kind, WHOLE) else kind.simpleString()
    columns = f"key {key!r}, order {order!r}, features {features!r}, label {label!r}"
    extra = f"{buckets} buckets of keys of {_word(rows)}, order of {times or 'integers'}; columns {columns}"
    seed = _seed(seed, recipe.measure) if kept is None else kept.choose(seed)
    monitors = Monitors(recipe, seed=seed, contiguous=gaps and not times, most=most, extra=extra)
    found = _transformed(_placed(rows, recipe.measure, buckets), monitors, fail=bad == "fail", order=times)
    names = _names(key, order, found.columns)
    own = [F.col("key"), _uncounted(F.col("order"), kind), *(F.col(name) for name in names[2:])]
    if kept is not None:
        kept.keep(seed)
    return seeds.told(found.select(*(column.alias(name) for column, name in zip(own, names, strict=True))), seed)


def _transformed(rows: DataFrame, monitors: Monitors, *, fail: bool, order: str) -> DataFrame:
    """Rows of the door with their bucket in; rows of the monitors out."""
    key = to_arrow_type(rows.schema["key"].dataType)
    events, told = packs.events_schema(key), states.rows_schema(key, tests=monitors.recipe.on_alarm == "restart")
    packer = packs.Packer(monitors.recipe.measure, events, order=order, fail=fail)
    bucket = states.Bucket(monitors, states.Form(events, told, order, fail))
    packed = rows.mapInArrow(packer.packed, packs.PACKED).groupBy("bucket")
    found = packed.transformWithState(bucket, states.PACKED, "Append", "None")
    return found.mapInArrow(packs.Unpacker(told).unpacked, from_arrow_schema(told))


def _placed(rows: DataFrame, measure: object, buckets: int) -> DataFrame:
    """The rows with the bucket of each, and where scores could hide that rows differ, what they were made of."""
    nameless = F.coalesce(F.startswith("bad", F.lit("key ")), F.lit(False))
    key = F.col("key").cast("long") if _word(rows) == "integers" else F.col("key")  # 1 is 1, of whatever width
    name = F.when(nameless, F.xxhash64("order")).otherwise(F.xxhash64(key))  # such rows need no bucket of their own
    placed = rows.withColumn("bucket", F.pmod(name, F.lit(buckets)).cast("int"))
    if not isinstance(measure, Frozen) and "y" not in rows.columns:
        return placed
    return placed.withColumn("content", F.xxhash64(*(name for name in ("x", "y") if name in rows.columns)))


def _word(rows: DataFrame) -> str:
    """What the keys are."""
    kind = rows.schema["key"].dataType
    return "bytes" if isinstance(kind, T.BinaryType) else "integers" if isinstance(kind, WHOLE) else "text"


# ------------------------------------------------------------------ the order, and its own type


def _uncounted(order: Column, kind: T.DataType) -> Column:
    """The order as it was before the door counted it."""
    if isinstance(kind, T.DateType):
        return F.date_from_unix_date(order.cast("int"))
    if isinstance(kind, T.TimestampType):
        return F.timestamp_micros(order)
    if isinstance(kind, T.TimestampNTZType):
        return F.timestamp_add("MICROSECOND", order, F.lit(LEAST_TIME).cast(kind))
    return order.cast(kind)


# ------------------------------------------------------------------ at the door


def _check(df: DataFrame, bad: str, buckets: int, gaps: bool) -> None:
    if not df.isStreaming:
        raise ValueError("df must be a streaming frame (of spark.readStream), got a batch: test_streams is for batches")
    if bad not in ("fail", "report"):
        raise ValueError(f"bad must be 'fail' or 'report', got {format_value(bad)}")
    check_integer("buckets", buckets, 1, MOST_BUCKETS)
    if not isinstance(gaps, bool):
        raise ValueError(f"gaps must be True or False, got {format_value(gaps)}")
    provider = str(df.sparkSession.conf.get(PROVIDER, None))
    if not provider.endswith(ROCKSDB.rpartition(".")[2]):
        raise ValueError(f"the setting {PROVIDER} must be {ROCKSDB}, got {provider}")


def _recipe(measure: Any, bet: Bet | None, alarm: Alarm | None, on_alarm: str) -> Monitor:
    """The monitor that all streams have a copy of; what it is given stays as it is."""
    measure = Value() if measure is None else copy.deepcopy(measure)
    usual = default_bet(Ville() if alarm is None else alarm)
    small = CompositeJumper() if isinstance(usual, Adaptive) else usual
    return Monitor(measure, small if bet is None else copy.deepcopy(bet), alarm, seed=0, on_alarm=on_alarm)


def _seed(seed: int | None, measure: object) -> int:
    """The seed of a query whose checkpoint folder is not known."""
    if seed is None and isinstance(measure, Precomputed):
        return Precomputed.seed  # nothing is random
    if seed is None:
        law = "seed must be given, or the checkpoint folder of the query, in which a drawn seed is stored"
        raise ValueError(
            f"{law}, got neither: a restarted query must go on with the same seed (seed=secrets.randbits(53), stored "
            "with your settings, or checkpoint=)"
        )
    return seeds.chosen(seed)


def _check_columns(measure: Any, rows: DataFrame, features: str | Sequence[str]) -> None:
    """Whether the measure can use columns of these kinds, as far as that can be told in advance."""
    scored = isinstance(measure, Frozen) and measure.score is not None
    if not scored and isinstance(rows.schema["x"].dataType, T.ArrayType):
        law = f"features must name one column of numbers for {type(measure).__name__}"
        raise ValueError(f"{law}, got {format_value(features)}")


def _names(key: str, order: str, ours: Sequence[str]) -> list[str]:
    """What the columns are called: key and order by their own names, which stand beside ours."""
    for role, name in (("key", key), ("order", order)):
        if name.lower() in (*ours[2:], seeds.COLUMN):
            raise ValueError(f"{role} must not be called {name!r}, as a column of the result is: rename it")
    if key.lower() == order.lower():
        raise ValueError(f"key and order must have names that Spark can tell apart, got {key!r} and {order!r}")
    return [key, order, *ours[2:]]
