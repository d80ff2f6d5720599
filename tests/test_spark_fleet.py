"""e-BH as Spark aggregations: the streams that `fleet.e_bh` finds, and its threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exchangeable import bets
from exchangeable.fleet import adjusted, e_bh, log_threshold
from exchangeable.spark import fleet_report
from exchangeable.spark import test_streams as tested
from exchangeable.spark.fleet import _least

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG10 = math.log(10.0)
COLUMNS = ["n", "log10_martingale", "log10_max", "alarm", "log10_evidence", "found", "log10_threshold"]


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


def fleet(spark: SparkSession, values: Any, peaks: Any = None) -> DataFrame:
    """Streams 0, 1, 2, .. with these capitals, and highest ones."""
    peaks = np.maximum(values, 0.0) if peaks is None else peaks
    numbers = {"log10_martingale": np.asarray(values, float), "log10_max": np.asarray(peaks, float)}
    frame = spark.createDataFrame(pa.table({"k": np.arange(len(values)), **numbers}))  # pandas would make null of NaN
    return frame.selectExpr("k", "9L as n", *numbers, "false as alarm").repartition(3)


def check(report: DataFrame, values: Any, alpha: float) -> int:
    """The report says what ``e_bh`` says; how many are found."""
    found: Any = report.toPandas()
    found = found.sort_values("k")
    rule = e_bh(np.asarray(values, float), alpha, base=10.0)
    assert list(found.columns) == ["k", *COLUMNS]
    assert found.found.tolist() == rule.rejected.tolist()
    assert set(found.log10_threshold) == {rule.log_threshold / LOG10}
    assert found.log10_evidence.tolist() == found.log10_martingale.tolist() == list(values)
    return int(found.found.sum())


def on_the_threshold(count: int, alpha: float) -> Any:
    """Log10 capitals that stand exactly on the thresholds of k = 1, 2, .., as the rule computes them, or just below."""
    thresholds = log_threshold(count, np.arange(1, count + 1), alpha)
    values = thresholds / LOG10
    for _ in range(3):  # the product is rounded again
        values = np.where(values * LOG10 < thresholds, np.nextafter(values, math.inf), values)
    return values


CASES: dict[str, tuple[Any, float]] = {
    "one stream, found": ([2.0], 0.05),
    "one stream, not found": ([1.0], 0.05),
    "one stream on the threshold": (on_the_threshold(1, 0.05), 0.05),
    "none": ([0.1, -math.inf, -3.0], 0.05),
    "all": ([5.0, 6.0, 5.0], 0.05),
    "bankrupt ones": ([-math.inf, 4.0, -math.inf], 0.5),
    "ties": ([1.2, 1.2, 1.2, 0.0, 1.2], 0.1),
    "ties that are too weak": ([1.0, 1.0, 1.0, 0.0], 0.1),
    "on the thresholds": (on_the_threshold(40, 0.1), 0.1),
    "below the thresholds": (np.nextafter(on_the_threshold(40, 0.1), -math.inf) - 1e-12, 0.1),
    "below but the last": (np.append(np.nextafter(on_the_threshold(40, 0.1), -math.inf)[:-1], 1.0) - 1e-12, 0.1),
    "many": (np.random.default_rng(0).exponential(0.8, 500), 0.05),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_that_of_the_library(spark: SparkSession, name: str) -> None:
    values, alpha = CASES[name]
    count = check(fleet_report(fleet(spark, values), alpha), values, alpha)
    if name in ("all", "on the thresholds", "one stream, found", "one stream on the threshold"):
        assert count == len(values)
    if name in ("none", "below the thresholds", "one stream, not found"):
        assert count == 0


@pytest.mark.soak
def test_a_hundred_thousand_streams(spark: SparkSession) -> None:
    """A long staircase, on which a rule that steps down one by one would take hours."""
    count, alpha = 100_000, 0.05
    values = np.random.default_rng(1).normal(-2.0, 1.0, count)
    stairs = on_the_threshold(count, alpha)
    values[:5_000] = stairs[:5_000]
    values[5_000:30_000] = stairs[5_001:30_001] - 1e-9
    own = np.random.default_rng(2).permutation(values)
    assert check(fleet_report(fleet(spark, own), alpha), own, alpha) > 4_000


@pytest.mark.parametrize("more", [0, 1, 300, 10**7])
def test_a_number_of_streams_fixed_in_advance(spark: SparkSession, more: int) -> None:
    values, alpha = CASES["many"]
    K = len(values) + more
    report: Any = fleet_report(fleet(spark, values), alpha, streams=K).toPandas()
    rule = e_bh(values, alpha, base=10.0, streams=K)
    assert report.sort_values("k").found.tolist() == rule.rejected.tolist()
    assert set(report.log10_threshold) == {rule.log_threshold / LOG10}


def test_evidence_that_is_adjusted(spark: SparkSession) -> None:
    rng = np.random.default_rng(3)
    peaks = np.concatenate([[0.0, 0.3, 300.0], rng.exponential(1.5, 200)])
    report: Any = fleet_report(fleet(spark, peaks - 3.0, peaks), 0.1, evidence="adjusted").toPandas()
    report = report.sort_values("k")
    evidence = adjusted(peaks * LOG10)
    rule = e_bh(evidence, 0.1)
    assert report.found.tolist() == rule.rejected.tolist()
    assert report.log10_evidence.tolist() == (evidence / LOG10).tolist()
    assert set(report.log10_threshold) == {rule.log_threshold / LOG10}
    assert 0 < report.found.sum() < len(peaks)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
@pytest.mark.parametrize("count", [1, 2, 3, 1000, 10**9])
def test_the_least_number_is_the_least(count: int, alpha: float) -> None:
    values = np.random.default_rng(4).uniform(-math.log(alpha), math.log(count) - math.log(alpha) + 1.0, 200)
    least = _least(pd.Series(values), count, alpha).to_numpy()
    assert (values >= log_threshold(count, least, alpha)).all()
    before = np.maximum(least - 1, 1)
    assert ((least == 1) | (values < log_threshold(count, before, alpha))).all()


# ------------------------------------------------------------------ from streams


def test_summaries_and_steps_of_the_same_streams_agree(spark: SparkSession) -> None:
    rows = spark.range(3000).selectExpr("concat('s', id % 30) as k", "id div 30 as o", "id % 30 as s", "rand(3) as u")
    value = "case when s < 10 and o > 40 then u + 1.0 when k = 's29' then null else u end as x"
    rows = rows.selectExpr("if(s = 28, null, k) as k", "o", value)  # rows without a key are no stream
    more: dict[str, Any] = {"bet": bets.CompositeJumper(), "bad": "report", "seed": 0}
    summaries = tested(rows, "k", "o", "x", **more)
    steps = tested(rows, "k", "o", "x", steps=True, **more).persist()
    kinds = {row.kind for row in steps.select("kind").distinct().collect()}
    assert kinds == {"step", "bad"}
    for evidence in ("current", "adjusted"):
        of_streams = fleet_report(summaries, 0.1, evidence=evidence).sort("k").collect()
        assert of_streams == fleet_report(steps, 0.1, evidence=evidence).sort("k").collect()
        assert {row.k for row in of_streams} == {f"s{i}" for i in range(30) if i != 28}
        assert [row.k for row in of_streams if row.found][:2] == ["s0", "s1"]
        assert [tuple(row)[1:5] for row in of_streams if row.k == "s29"] == [(0, 0.0, 0.0, False)]
    steps.unpersist()


def test_any_column_may_be_the_key(spark: SparkSession) -> None:
    frame = fleet(spark, [3.0, 0.0]).select("n", F.col("k").alias("the.key`"), "log10_martingale", "log10_max", "alarm")
    report = fleet_report(frame, key="the.key`")
    assert report.columns == ["the.key`", *COLUMNS]
    assert {row[0]: row.found for row in report.collect()} == {0: True, 1: False}


def test_nothing_stays_in_memory(spark: SparkSession) -> None:
    before = spark.sparkContext._jsc.sc().getPersistentRDDs().size()
    fleet_report(fleet(spark, [3.0, 0.0]))
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() == before


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([1.0, math.nan], "log10_martingale must be a number below inf for each stream, got nan for 1"),
        ([1.0, math.inf], "log10_martingale must be a number below inf for each stream, got inf for 1"),
        ([1.0, 1.7e308], "log10_martingale must be a number below inf for each stream, got 1.7e+308 for 1"),
    ],
)
def test_evidence_that_is_no_number_is_refused(spark: SparkSession, values: list[float], sentence: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        fleet_report(fleet(spark, values, [1.0, 1.0]))
    assert str(error.value) == sentence


def test_frames_that_are_no_fleet_are_refused(spark: SparkSession) -> None:
    frame = fleet(spark, [1.0, 2.0])
    no_key = r"^key must name one of the columns \['k', .*\], got 'q'$"
    refused: list[tuple[DataFrame, dict[str, Any], str]] = [
        (frame, {"key": "q"}, no_key),
        (frame, {"alpha": 1.0}, r"^alpha must lie in \(0, 1\), got 1.0$"),
        (frame, {"evidence": "most"}, r"^evidence must be 'current' or 'adjusted', got 'most'$"),
        (frame, {"streams": 1}, r"^streams must be an integer from 2, the number of streams given, to 2\*\*53, got 1$"),
        (frame.withColumn("test", F.lit(1)), {}, r"^df must hold tests without restarts"),
        (frame.drop("n"), {}, r"^df must be the result of test_streams or monitor_streams, got no column 'n'$"),
        (frame.where("k > 5"), {}, r"^df must hold at least one stream, got none$"),
        (
            frame.union(frame.where("k = 1")),
            {},
            r"^df must hold each stream or step once, got several rows for 1$",
        ),
        (frame.withColumn("log10_martingale", F.lit(None).cast("double")), {}, r"got None for [01]$"),
        (fleet(spark, [1.0], [-1.0]), {"evidence": "adjusted"}, r"^log10_max must be .* got -1.0 for 0$"),
        (spark.readStream.format("rate").load(), {}, r"^df must be a batch frame, got a stream"),
    ]
    for wrong, more, sentence in refused:
        with pytest.raises(ValueError, match=sentence):
            fleet_report(wrong, **more)
