"""`test_streams`: test many streams of a batch frame, in parallel over keys."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from exchangeable.measures import Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.conditional import Conditional
from exchangeable.measures.neighbours import Neighbours
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.spark import seeds
from exchangeable.spark.batch import Recipe, run_partition
from exchangeable.spark.columns import lacks_order, validate
from exchangeable.spark.output import REAL, Layout
from exchangeable.validation import check_integer, format_value

OTHER_TYPES: dict[str, T.DataType] = {"alarm": T.BooleanType(), "kind": T.StringType(), "detail": T.StringType()}


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
    """Test every stream of a batch frame: one row for each key, with the same numbers as on one machine, bit for bit.

        key, n, log10_martingale, log10_max, alarm, alarm_at, changepoint, refused, seed

    The rows of one ``key`` form a stream, sorted by the column ``order``. ``features`` is one column of numbers, arrays
    or vectors, or a list of columns; ``label`` is for measures that use one. The stream of key k has the numbers of
    ``Monitor(measure, bet, alarm, seed=stream_seed(seed, k), on_alarm=on_alarm)``, regardless of partitions, retries
    and batches. ``measure``, ``bet`` and ``alarm`` must be fresh; each stream gets copies. The defaults are those of
    `Monitor` (the bet depends on the alarm), but without a label the measure is `Value` for one column of numbers, else
    `NearestDistance`. ``seed=None`` draws a seed from the operating system, once, in this call, so computing the result
    again gives the same numbers. The column ``seed`` holds it. Pass an integer below 2^63 to repeat a run.

    Equal rows with the same key and order are duplicates: one of them is bet on. Different rows with the same key and
    order are a conflict: none is bet on, because choosing one could bias the test. With ``bad="fail"`` a conflict, or
    an invalid row (a null, a NaN, text among numbers, another width than the first row of its stream), fails the job
    with a message, which `refusal` finds. With ``bad="report"`` it is counted in ``refused`` and never bet on; rows
    without a key are then counted in a row whose key is null.

    With ``steps=True`` the rows are those of `monitor_streams`: one for each example that was bet on (kind "step"), and
    side rows (kinds "bad", "conflict" and "duplicate"; "gap" if orders are integers, unless ``gaps=False`` says that
    numbers may be skipped). With ``on_alarm="restart"`` there is one more column, ``test``: the number of the test,
    from 1. A summary then describes the latest test.

    Spark sorts the rows by key and order into ``partitions`` parts (default: ``spark.sql.shuffle.partitions``), on disk
    if they do not fit in memory. A task processes one stream after the other. Time and memory are those of the measure.
    """
    if bad not in ("fail", "report"):
        raise ValueError(f"bad must be 'fail' or 'report', got {format_value(bad)}")
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a streaming frame: use monitor_streams")
    parts = _partitions(df, partitions)
    measure = measure if measure is not None else _default_measure(df, features, label)
    features = [features] if isinstance(features, str) and _needs_rows(measure) else features
    rows = validate(df, key=key, order=order, features=features, label=label)
    _check_columns(measure, rows, features, label)
    seed = seeds.choose(seed)
    recipe = _recipe(measure, bet, alarm, on_alarm)
    layout = Layout(bool(steps), recipe.on_alarm == "restart", key, order)
    schema = _schema(rows, layout)
    tested = Recipe(recipe, seed, bad == "fail", bool(gaps), layout)
    sorted_rows = rows.repartition(parts, "key").sortWithinPartitions("key", lacks_order(), "order")
    return seeds.add_column(sorted_rows.mapInArrow(_task(tested), schema), seed)


test_streams.__test__ = False  # type: ignore[attr-defined]  # pytest must not collect it


def _task(recipe: Recipe) -> Any:
    def task(batches: Iterable[Any]) -> Iterator[Any]:
        return run_partition(recipe, batches)

    return task


def _partitions(df: DataFrame, partitions: int | None) -> int:
    """Return the number of partitions. By default Spark would merge small partitions, which may take long to test."""
    if partitions is None:
        return int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
    return check_integer("partitions", partitions, 1, 10**6)


# ------------------------------------------------------------------ the recipe


def _default_measure(df: DataFrame, features: str | Sequence[str], label: str | None) -> Measure:
    if label is not None:
        return NearestNeighbour()
    kind = next((f.dataType for f in df.schema.fields if f.name == features), None)
    single = isinstance(features, str) and not isinstance(kind, (T.ArrayType, T.UserDefinedType))
    return Value() if single else NearestDistance()


def _recipe(measure: Measure | Precomputed, bet: Bet | None, alarm: Alarm | None, on_alarm: str) -> Monitor:
    """Return the monitor that each stream gets a copy of; the arguments are copied."""
    seen = getattr(measure, "n", 0)
    if seen:
        raise ValueError(f"measure must be fresh, got one that has seen {seen} examples")
    return Monitor(copy.deepcopy(measure), copy.deepcopy(bet), alarm, seed=0, on_alarm=on_alarm)


def _inner(measure: object) -> object:
    return measure.measure if isinstance(measure, Conditional) else measure


def _needs_rows(measure: object) -> bool:
    return isinstance(_inner(measure), Neighbours)


def _check_columns(
    measure: Measure | Precomputed, rows: DataFrame, features: str | Sequence[str], label: str | None
) -> None:
    """Check that the measure can use columns of these types, as far as that is known in advance."""
    inner, kinds = _inner(measure), {field.name: field.dataType for field in rows.schema.fields}
    numbers = isinstance(inner, (Value, Precomputed)) or (isinstance(inner, Frozen) and inner.score is None)
    name = type(inner).__name__
    if numbers and isinstance(kinds["x"], T.ArrayType):
        raise ValueError(f"features must name one column of numbers for {name}, got {format_value(features)}")
    if label is None and (isinstance(inner, (NearestNeighbour, NearestResidual)) or isinstance(measure, Conditional)):
        raise ValueError(f"label must name a column for {type(measure).__name__}, got None")
    if isinstance(inner, NearestResidual) and isinstance(kinds["y"], T.StringType):
        raise ValueError(f"label must name a column of numbers for {name}, got {format_value(label)} of type string")


def _schema(rows: DataFrame, layout: Layout) -> T.StructType:
    """Return the schema of the result; the user's names of key and order must differ from ours."""
    if layout.key == layout.order:
        raise ValueError(f"key and order must be different columns, got {format_value(layout.key)} for both")
    roles = {"key": layout.key, "order": layout.order} if layout.steps else {"key": layout.key}
    ours = layout.columns[len(roles) :]
    for role, name in roles.items():
        if name.lower() in (*ours, seeds.COLUMN):
            raise ValueError(f"{role} must not be named {name!r}, like a column of the result: rename it")
    if layout.steps and layout.key.lower() == layout.order.lower():
        raise ValueError(
            f"key and order must have names that differ by more than case, got {layout.key!r} and {layout.order!r}"
        )
    fields = [T.StructField(name, rows.schema[role].dataType) for role, name in roles.items()]
    return T.StructType(fields + [T.StructField(name, _type(name)) for name in ours])


def _type(name: str) -> T.DataType:
    return T.DoubleType() if name in REAL else OTHER_TYPES.get(name, T.LongType())
