"""`fleet_report`: which of many streams have changed, by e-BH in Spark aggregations."""

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

BLOCKS = 1024  # of a running sum; only their totals are collected
LIFE = "life"
NEEDED = ("n", "log10_martingale", "alarm")


def fleet_report(
    df: DataFrame,
    alpha: float = 0.05,
    *,
    key: str | None = None,
    evidence: str = "current",
    streams: int | None = None,
) -> DataFrame:
    """Report which streams have changed, at a false discovery rate of at most alpha: `fleet.e_bh` over all keys.

        key, n, log10_martingale, log10_max, alarm, log10_evidence, found, log10_threshold

    ``df`` is the result of `test_streams` or `monitor_streams` (the latter as a batch frame, read from the output of
    the query): one row for each stream, or its steps. ``key`` is the first column by default.

    ``evidence`` is what is compared with the threshold: the "current" capital, which is an e-value at a time that is
    fixed in advance or chosen by the stream itself, or the "adjusted" highest capital (`fleet.adjusted`), which is
    valid at any time for streams that are watched together. See `fleet.e_bh` for when the guarantee holds. Results of
    restarted tests are rejected, because their capital is not an e-value of the stream. Rows without a key are ignored.

    ``streams`` is K, the largest number of streams there will ever be, deleted ones included, fixed before the first
    report. By default K is the number of keys in ``df``. That is valid for one batch that holds all keys, but not for
    repeated reports on a live fleet whose keys come and go. Where keys expire (column ``life``), each life of a key
    is a stream: it has a row of its own, and K counts it.

    The numbers are those of ``e_bh(.., base=10)``; only counts are collected. O(K) time and a shuffle for K keys.
    ``df`` is computed twice, for the threshold and for the result: write or persist it first if that takes long.
    """
    level = check_interval("alpha", alpha, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    if evidence not in ("current", "adjusted"):
        raise ValueError(f"evidence must be 'current' or 'adjusted', got {format_value(evidence)}")
    summaries, name = _summarise(df, key)
    e_values = summaries.withColumn("value", _values(evidence)).persist()
    try:
        count = fleet.fleet_size(streams, _check(e_values, evidence))
        threshold = fleet.log_threshold(count, max(1, _count_found(e_values, count, level)), level)
    finally:
        e_values.unpersist()
    log10_evidence = F.col("log10_martingale") if evidence == "current" else F.col("value") / LN10
    result = {
        "log10_evidence": log10_evidence,
        "found": F.col("value") >= threshold,
        "log10_threshold": F.lit(threshold / LN10),
    }
    columns = (*_life(df), "n", "log10_martingale", "log10_max", "alarm", *result)
    return e_values.withColumns(result).select(F.col("key").alias(name), *columns)


# ------------------------------------------------------------------ one row for each stream


def _summarise(df: DataFrame, key: str | None) -> tuple[DataFrame, str]:
    """Return key, n, log10_martingale, log10_max, alarm and rows, one row for each key; and the name of the key."""
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a streaming frame: read the output of the query")
    names = df.columns
    key = names[0] if key is None and names else key
    if not isinstance(key, str) or names.count(key) != 1:
        raise ValueError(f"key must name one of the columns {format_value(names)}, got {format_value(key)}")
    if "test" in names:
        expected = "df must hold tests without restarts, because the capital of a later test is not an e-value"
        raise ValueError(f"{expected}, got the column 'test'")
    steps = "kind" in names
    for needed in NEEDED if steps else (*NEEDED, "log10_max"):
        if names.count(needed) != 1 or needed == key:
            raise ValueError(f"df must be the result of test_streams or monitor_streams, got no column {needed!r}")
    kept = ("key" if name == key else name if name == LIFE else f"input {name}" for name in names)
    plain = df.toDF(*kept).where(" and ".join(f"{name} is not null" for name in ("key", *_life(df))))
    return plain.groupBy("key", *_life(df)).agg(*(_summary_of_steps() if steps else _existing_summary())), key


def _life(df: DataFrame) -> list[str]:
    """Return the column that tells the lives of a key apart, if keys expire: each life is a stream of its own."""
    return [LIFE] if LIFE in df.columns else []


def _summary_of_steps() -> list[Column]:
    """Summarise the steps of a stream. Side rows hold nulls, which are ignored; without a step the capital is 1."""
    n, value = F.col("input n"), F.col("input log10_martingale")
    return [
        F.coalesce(F.max(n), F.lit(0)).alias("n"),
        F.when(F.max(n).isNull(), 0.0).otherwise(F.max_by(value, n)).alias("log10_martingale"),
        F.greatest(F.lit(0.0), F.max(value)).alias("log10_max"),
        F.coalesce(F.bool_or("input alarm"), F.lit(False)).alias("alarm"),
        F.when(F.count(n) > F.max(n), 2).otherwise(1).alias("rows"),  # a step occurs twice
    ]


def _existing_summary() -> list[Column]:
    names = ("n", "log10_martingale", "log10_max", "alarm")
    return [*(F.first(f"input {name}").alias(name) for name in names), F.count("*").alias("rows")]


def _values(evidence: str) -> Column:
    """Return the natural logs of e-values, as ``e_bh`` computes them."""
    if evidence == "current":
        return F.col("log10_martingale") * LN10
    return _apply(_adjusted, "double", F.col("log10_max") * LN10)


def _adjusted(peaks: Any) -> Any:
    """Adjust running maxima; invalid ones become NaN, which `_check` reports with its key."""
    valid = (peaks >= 0.0) & (peaks < math.inf)
    values = np.full(len(peaks), math.nan)
    values[valid] = fleet.adjusted(peaks[valid].to_numpy())
    return type(peaks)(values)


def _check(e_values: DataFrame, evidence: str) -> int:
    """Check that each stream has one row and valid evidence, and return the number of streams."""
    value, column = F.col("value"), "log10_martingale" if evidence == "current" else "log10_max"
    invalid = value.isNull() | ~(value < math.inf)
    checked = e_values.agg(
        F.count("*").alias("streams"),
        F.first(F.when(F.col("rows") > 1, F.col("key")), ignorenulls=True).alias("twice"),
        F.first(F.when(invalid, F.struct("key", F.col(column).alias("value"))), ignorenulls=True).alias("invalid"),
    ).first()
    if checked is None or not checked["streams"]:
        raise ValueError("df must hold at least one stream, got none")
    if checked["twice"] is not None:
        raise ValueError(f"df must hold each stream or step once, got several rows for {_format_key(checked['twice'])}")
    if checked["invalid"] is not None:
        got, key = checked["invalid"]["value"], _format_key(checked["invalid"]["key"])
        raise ValueError(f"{column} must be a number below inf for each stream, got {got} for {key}")
    return int(checked["streams"])


# ------------------------------------------------------------------ e-BH


def _count_found(e_values: DataFrame, count: int, alpha: float) -> int:
    """Return how many streams are found: the greatest k with F(k) >= k, where F(k) = #{value >= threshold of k}.

    Each stream has a least k whose threshold it reaches. With the streams sorted by it, F is a running sum, and the
    result is the last value of F that is at least its k. The sum is computed in blocks, whose totals the driver adds.
    """
    strong = e_values.where(F.col("value") >= fleet.log_threshold(count, count, alpha))
    least = _apply(lambda values: _least(values, count, alpha), "long", F.col("value"))
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
    """Return the least k whose threshold each value reaches, by bisection: O(log K) per value.

    All values reach the threshold of ``count``.
    """
    array = values.to_numpy()
    low, high = np.zeros(len(array), np.int64), np.full(len(array), count, np.int64)
    while (high - low > 1).any():
        middle: Integers = np.maximum((low + high) // 2, 1)
        reached = array >= fleet.log_threshold(count, middle, alpha)
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    return type(values)(high)


def _apply(function: Callable[[Any], Any], kind: str, column: Column) -> Column:
    """Apply a function of a pandas series to a column."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def call(values: Any) -> Any:
        return function(values)

    call.__annotations__ = {"values": pd.Series, "return": pd.Series}  # Spark reads the types of arguments here
    result: Column = pandas_udf(call, kind)(column)  # type: ignore[call-overload]
    return result


def _format_key(key: object) -> str:
    return format_value(bytes(key) if isinstance(key, bytearray) else key)
