"""Progress of a streaming query, reported by Spark's listener."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from exchangeable.keyed import KINDS
from exchangeable.spark.lives import EXPIRED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRICS = "exchangeable"  # the name of the counts in Spark's progress


class MicroBatch(NamedTuple):
    """The progress of one micro-batch."""

    number: int
    rows: int
    seconds: float
    counts: dict[str, int]  # events of each kind, and steps where the alarm is on


def with_counts(rows: DataFrame) -> DataFrame:
    """Return the rows of ``monitor_streams``; Spark counts their kinds in the progress of the query."""
    from pyspark.sql import functions as F

    kinds = (*KINDS, EXPIRED)
    counts = [F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col("count"))), F.lit(0)).alias(kind) for kind in kinds]
    alarms = F.coalesce(F.sum(F.when(F.col("alarm"), 1)), F.lit(0)).alias("alarm")
    return rows.observe(METRICS, *counts, alarms)


class Listener(StreamingQueryListener):
    """Calls ``report`` after each micro-batch."""

    def __init__(self, report: Callable[[MicroBatch], None]) -> None:
        self.report = report

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: there is no micro-batch yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report a micro-batch that has ended."""
        progress = json.loads(event.progress.json)
        counts = progress.get("observedMetrics", {}).get(METRICS, {})
        seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000.0
        self.report(MicroBatch(progress["batchId"], progress["numInputRows"], seconds, counts))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing while the query waits for data."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the caller that waits for the query gets its error."""
