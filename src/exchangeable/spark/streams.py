"""Many streams in a batch frame: parallel over keys, never within one."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from exchangeable.measures import Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.conditional import Conditional
from exchangeable.measures.neighbours import Neighbours
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.spark import seeds
from exchangeable.spark.batch import Recipe, test_partition
from exchangeable.spark.columns import admitted
from exchangeable.spark.output import REAL, Form
from exchangeable.validation import check_integer, format_value

OTHERS: dict[str, T.DataType] = {"alarm": T.BooleanType(), "kind": T.StringType(), "detail": T.StringType()}


def test_streams(
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
    bad: str = "fail",
    steps: bool = False,
    gaps: bool = True,
    partitions: int | None = None,
) -> DataFrame:
    """Test every stream of a frame: one row for each key, the numbers of the library on one machine, bit for bit.

        key, n, log10_martingale, log10_max, alarm, alarm_at, changepoint, refused, seed

    The rows of one ``key`` are a stream, in the order of the column ``order``. ``features`` is one column of numbers,
    or of arrays or vectors, or a list of columns; ``label`` is for measures that use one. The stream of key k has the
    numbers of ``Monitor(measure, bet, alarm, seed=stream_seed(seed, k), on_alarm=on_alarm)``, whatever the partitions,
    retries and batches. ``measure``, ``bet`` and ``alarm`` are fresh, and copied for each stream; left out, they are
    those of `Monitor` (the bet depends on the alarm), but without a label the measure is `Value` for one column of
    numbers, else `NearestDistance`. ``seed=None`` draws a seed from the operating system, once, in this call: computing
    the result again gives the same numbers. The column ``seed`` holds it; an integer below 2^63 repeats a run.

    Order is data. Rows of equal key and order that are alike are one row, repeated: one is taken. Rows that differ are
    a conflict: none is taken, since choosing would be ours. With ``bad="fail"`` a conflict, or a row that is not lawful
    (a null, a NaN, text among numbers, a row of another width than the first of its stream), fails the job with one
    sentence, which `refusal` finds; with ``bad="report"`` it is counted in ``refused`` and never bet on. Rows without a
    key are then counted in a row whose key is null.

    With ``steps=True`` the rows are those of `monitor_streams`, one for each example taken (kind "step"), and side rows
    (kinds "bad", "conflict", "duplicate", and where orders are integers "gap", unless ``gaps=False`` says that
    they only rise). With ``on_alarm="restart"`` there is one more column, ``test``: the number of the test, from 1; the
    rest of a summary is that of the latest.

    Spark sorts the rows by key and order, in ``partitions`` parts (else ``spark.sql.shuffle.partitions``), on disk
    where they do not fit; a task walks over its part and holds one stream at a time. Time and memory are the measure's.
    """
    if bad not in ("fail", "report"):
        raise ValueError(f"bad must be 'fail' or 'report', got {format_value(bad)}")
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a stream: monitor_streams is for streams")
    parts = _partitions(df, partitions)
    measure = measure if measure is not None else _default(df, features, label)
    features = [features] if isinstance(features, str) and _of_rows(measure) else features
    rows = admitted(df, key=key, order=order, features=features, label=label)
    _check_columns(measure, rows, features, label)
    seed = seeds.chosen(seed)
    recipe = _recipe(measure, bet, alarm, on_alarm)
    form = Form(bool(steps), recipe.on_alarm == "restart", key, order)
    schema = _schema(rows, form)
    tested = Recipe(recipe, seed, bad == "fail", bool(gaps), form)
    unordered = F.coalesce(F.startswith("bad", F.lit("order ")), F.lit(False))
    placed = rows.repartition(parts, "key").sortWithinPartitions("key", unordered, "order")
    return seeds.told(placed.mapInArrow(_task(tested), schema), seed)


test_streams.__test__ = False  # type: ignore[attr-defined]  # for pytest: a function of ours, not a test


def _task(recipe: Recipe) -> Any:
    def task(batches: Iterable[Any]) -> Iterator[Any]:
        return test_partition(recipe, batches)

    return task


def _partitions(df: DataFrame, partitions: int | None) -> int:
    """Always a number: Spark would join small parts, though it is the arithmetic in them that takes the time."""
    if partitions is None:
        return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    return check_integer("partitions", partitions, 1, 10**6)


# ------------------------------------------------------------------ the recipe


def _default(df: DataFrame, features: str | Sequence[str], label: str | None) -> Measure:
    if label is not None:
        return NearestNeighbour()
    kind = next((f.dataType for f in df.schema.fields if f.name == features), None)
    single = isinstance(features, str) and not isinstance(kind, (T.ArrayType, T.UserDefinedType))
    return Value() if single else NearestDistance()


def _recipe(measure: Measure | Precomputed, bet: Bet | None, alarm: Alarm | None, on_alarm: str) -> Monitor:
    """The monitor that all streams have a copy of; what it is given stays as it is."""
    seen = getattr(measure, "n", 0)
    if seen:
        raise ValueError(f"measure must be fresh, got one that has seen {seen} examples")
    return Monitor(copy.deepcopy(measure), copy.deepcopy(bet), alarm, seed=0, on_alarm=on_alarm)


def _inner(measure: object) -> object:
    return measure.measure if isinstance(measure, Conditional) else measure


def _of_rows(measure: object) -> bool:
    return isinstance(_inner(measure), Neighbours)


def _check_columns(
    measure: Measure | Precomputed, rows: DataFrame, features: str | Sequence[str], label: str | None
) -> None:
    """Whether the measure can use columns of these kinds, as far as that can be told in advance."""
    inner, kinds = _inner(measure), {field.name: field.dataType for field in rows.schema.fields}
    numbers = isinstance(inner, (Value, Precomputed)) or (isinstance(inner, Frozen) and inner.score is None)
    name = type(inner).__name__
    if numbers and isinstance(kinds["x"], T.ArrayType):
        raise ValueError(f"features must name one column of numbers for {name}, got {format_value(features)}")
    if label is None and (isinstance(inner, (NearestNeighbour, NearestResidual)) or isinstance(measure, Conditional)):
        raise ValueError(f"label must name a column for {type(measure).__name__}, got None")
    if isinstance(inner, NearestResidual) and isinstance(kinds["y"], T.StringType):
        raise ValueError(f"label must name a column of numbers for {name}, got {format_value(label)} of type string")


def _schema(rows: DataFrame, form: Form) -> T.StructType:
    """Of what comes out; the user's names stand beside ours."""
    if form.key == form.order:
        raise ValueError(f"key and order must be two columns, got {format_value(form.key)} for both")
    own = {"key": form.key, "order": form.order} if form.steps else {"key": form.key}
    ours = form.columns[len(own) :]
    for role, name in own.items():
        if name.lower() in (*ours, seeds.COLUMN):
            raise ValueError(f"{role} must not be called {name!r}, as a column of the result is: rename it")
    if form.steps and form.key.lower() == form.order.lower():
        raise ValueError(
            f"key and order must have names that Spark can tell apart, got {form.key!r} and {form.order!r}"
        )
    fields = [T.StructField(name, rows.schema[role].dataType) for role, name in own.items()]
    return T.StructType(fields + [T.StructField(name, _type(name)) for name in ours])


def _type(name: str) -> T.DataType:
    return T.DoubleType() if name in REAL else OTHERS.get(name, T.LongType())
