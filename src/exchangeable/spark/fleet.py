"""After the streams: which of them have changed, by e-BH as Spark aggregations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from exchangeable import fleet
from exchangeable.martingale import LN10
from exchangeable.protocols import Integers
from exchangeable.validation import check_interval, format_value

BLOCKS = 1024  # parts of a running sum, whose totals are all that is collected
NEEDED = ("n", "log10_martingale", "alarm")


def fleet_report(
    df: DataFrame,
    alpha: float = 0.05,
    *,
    key: str | None = None,
    evidence: str = "current",
    streams: int | None = None,
) -> DataFrame:
    """Which streams have changed, the false discovery rate being at most alpha: `fleet.e_bh` over all keys.

        key, n, log10_martingale, log10_max, alarm, log10_evidence, found, log10_threshold

    ``df`` is what `test_streams` or `monitor_streams` gave (the latter as a batch frame, read from where the query
    wrote it): one row for each stream, or its steps. ``key`` is the first column, unless another is named.

    ``evidence`` says what is compared with the threshold: "current" capital, an e-value at a time fixed in advance or
    decided by the stream itself; or "adjusted" highest capital (`fleet.adjusted`), lawful at any time whatsoever for
    streams watched together. See `fleet.e_bh` for when the promise holds. Frames of restarted tests are refused: their
    capital is no e-value of the stream. Rows without a key are no stream and are left out.

    ``streams`` is K, the most streams there will ever be, deleted ones included, fixed before the first look. By
    default K is the number of keys in ``df``. That is valid for one batch that holds all keys, but not for repeated
    looks at a live fleet whose keys come and go.

    The numbers are those of ``e_bh(.., base=10)``; nothing but counts is collected. O(K) time and a shuffle for K keys.
    ``df`` is computed for the threshold, and again with the result: what took long is best written or persisted first.
    """
    level = check_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    if evidence not in ("current", "adjusted"):
        raise ValueError(f"evidence must be 'current' or 'adjusted', got {format_value(evidence)}")
    each, name = _streams(df, key)
    valued = each.withColumn("value", _values(evidence)).persist()
    try:
        count = fleet.fleet_size(streams, _check(valued, evidence))
        threshold = fleet.log_threshold(count, max(1, _found(valued, count, level)), level)
    finally:
        valued.unpersist()
    own = F.col("log10_martingale") if evidence == "current" else F.col("value") / LN10
    told = valued.withColumns(
        {
            "log10_evidence": own,
            "found": F.col("value") >= threshold,
            "log10_threshold": F.lit(threshold / LN10),
        }
    )
    columns = ("n", "log10_martingale", "log10_max", "alarm", "log10_evidence", "found", "log10_threshold")
    return told.select(F.col("key").alias(name), *columns)


# ------------------------------------------------------------------ one row for each stream


def _streams(df: DataFrame, key: str | None) -> tuple[DataFrame, str]:
    """The columns key, n, log10_martingale, log10_max, alarm and rows, one row for each key; and the key's name."""
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a stream: read what the query has written")
    names = df.columns
    key = names[0] if key is None and names else key
    if not isinstance(key, str) or names.count(key) != 1:
        raise ValueError(f"key must name one of the columns {format_value(names)}, got {format_value(key)}")
    if "test" in names:
        law = "df must be of streams that were not restarted: the capital of a later test is no e-value of the stream"
        raise ValueError(f"{law}, got one with the column 'test'")
    steps = "kind" in names
    for needed in NEEDED if steps else (*NEEDED, "log10_max"):
        if names.count(needed) != 1 or needed == key:
            raise ValueError(f"df must be the result of test_streams or monitor_streams, got no column {needed!r}")
    plain = df.toDF(*("key" if name == key else f"own {name}" for name in names)).where("key is not null")
    return plain.groupBy("key").agg(*(_of_steps() if steps else _of_summaries())), key


def _of_steps() -> list[Column]:
    """At the latest step; side rows hold nulls, which are passed over. A stream without a step stands at 1."""
    n, value = F.col("own n"), F.col("own log10_martingale")
    return [
        F.coalesce(F.max(n), F.lit(0)).alias("n"),
        F.when(F.max(n).isNull(), 0.0).otherwise(F.max_by(value, n)).alias("log10_martingale"),
        F.greatest(F.lit(0.0), F.max(value)).alias("log10_max"),
        F.coalesce(F.bool_or("own alarm"), F.lit(False)).alias("alarm"),
        F.when(F.count(n) > F.max(n), 2).otherwise(1).alias("rows"),  # more steps than the latest says there were
    ]


def _of_summaries() -> list[Column]:
    names = ("n", "log10_martingale", "log10_max", "alarm")
    return [*(F.first(f"own {name}").alias(name) for name in names), F.count("*").alias("rows")]


def _values(evidence: str) -> Column:
    """Natural logs of e-values, as ``e_bh`` makes them."""
    if evidence == "current":
        return F.col("log10_martingale") * LN10
    return _of_series(_adjusted, "double", F.col("log10_max") * LN10)


def _adjusted(peaks: Any) -> Any:
    """Of running maxima; of what is no such thing NaN, to be refused with its key."""
    lawful = (peaks >= 0.0) & (peaks < math.inf)
    values = np.full(len(peaks), math.nan)
    values[lawful] = fleet.adjusted(peaks[lawful].to_numpy())
    return type(peaks)(values)


def _check(valued: DataFrame, evidence: str) -> int:
    """The number of streams, K, after each was found to have one row and lawful evidence."""
    value, given = F.col("value"), "log10_martingale" if evidence == "current" else "log10_max"
    wrong = value.isNull() | ~(value < math.inf)
    told = valued.agg(
        F.count("*").alias("streams"),
        F.first(F.when(F.col("rows") > 1, F.col("key")), ignorenulls=True).alias("twice"),
        F.first(F.when(wrong, F.struct("key", F.col(given).alias("value"))), ignorenulls=True).alias("wrong"),
    ).first()
    if told is None or not told["streams"]:
        raise ValueError("df must hold at least one stream, got none")
    if told["twice"] is not None:
        raise ValueError(
            f"df must hold one row for each stream, or each step once, got more of {_shown(told['twice'])}"
        )
    if told["wrong"] is not None:
        got, of = told["wrong"]["value"], _shown(told["wrong"]["key"])
        raise ValueError(f"{given} must be a number below inf for each stream, got {got} for {of}")
    return int(told["streams"])


# ------------------------------------------------------------------ e-BH


def _found(valued: DataFrame, count: int, alpha: float) -> int:
    """How many streams are found: the greatest k with F(k) >= k, where F(k) = #{value >= threshold of k}.

    A stream counts from some least k on. With the streams sorted by that number, F is a running sum, and k the last of
    its values that reaches the number it stands at. It is summed in blocks, whose totals the driver adds up.
    """
    strong = valued.where(F.col("value") >= fleet.log_threshold(count, count, alpha))
    least = _of_series(lambda values: _least(values, count, alpha), "long", F.col("value"))
    width = -(-count // BLOCKS)
    counts = strong.select(least.alias("least")).groupBy("least").count()
    counts = counts.withColumn("block", F.expr(f"int((least - 1) div {width})")).persist()
    try:
        totals = np.zeros(BLOCKS + 1, np.int64)
        for block, total in counts.groupBy("block").agg(F.sum("count")).collect():
            totals[block + 1] = total
        before = ", ".join(f"{total}L" for total in np.cumsum(totals)[:-1].tolist())
        running = F.expr(f"element_at(array({before}), block + 1)") + F.sum("count").over(
            Window.partitionBy("block").orderBy("least")
        )
        reached = counts.withColumn("running", running).where("running >= least").agg(F.max("running")).first()
    finally:
        counts.unpersist()
    return 0 if reached is None or reached[0] is None else int(reached[0])


def _least(values: Any, count: int, alpha: float) -> Any:
    """The least k whose threshold each value reaches; all reach that of ``count``. By halving: O(log K) a value."""
    given = values.to_numpy()
    low, high = np.zeros(len(given), np.int64), np.full(len(given), count, np.int64)
    while (high - low > 1).any():
        middle: Integers = np.maximum((low + high) // 2, 1)
        reached = given >= fleet.log_threshold(count, middle, alpha)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return type(values)(high)


def _of_series(function: Callable[[Any], Any], kind: str, column: Column) -> Column:
    """A function of a pandas series, of a column."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def called(values: Any) -> Any:
        return function(values)

    called.__annotations__ = {"values": pd.Series, "return": pd.Series}  # by which Spark knows what to hand over
    made: Column = pandas_udf(called, kind)(column)  # type: ignore[call-overload]
    return made


def _shown(key: object) -> str:
    return format_value(bytes(key) if isinstance(key, bytearray) else key)
