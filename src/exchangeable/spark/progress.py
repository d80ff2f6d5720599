"""What a streaming query tells of itself, by Spark's own listener."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED = "exchangeable"  # the name of the counts within Spark's progress


class Batch(NamedTuple):
    """One micro-batch, as Spark and the counts report it."""

    number: int
    rows: int
    seconds: float
    counts: dict[str, int]  # steps, alarms (rows where the alarm is on), and rows of each other kind


def counted(rows: DataFrame) -> DataFrame:
    """The rows of ``monitor_streams``, with counts of their kinds in the progress of the query."""
    from pyspark.sql import functions as F

    kinds = ("step", "duplicate", "late", "gap", "conflict", "bad", "full")
    counts = [F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col("count"))), F.lit(0)).alias(kind) for kind in kinds]
    alarms = F.coalesce(F.sum(F.when(F.col("alarm"), 1)), F.lit(0)).alias("alarm")
    return rows.observe(COUNTED, *counts, alarms)


class Listener(StreamingQueryListener):
    """Calls ``tell`` after each micro-batch."""

    def __init__(self, tell: Callable[[Batch], None]) -> None:
        self.tell = tell

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing to tell yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """A micro-batch is done."""
        progress = json.loads(event.progress.json)
        counts = progress.get("observedMetrics", {}).get(COUNTED, {})
        seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000.0
        self.tell(Batch(progress["batchId"], progress["numInputRows"], seconds, counts))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Waiting for data."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The query itself says why."""
