"""A streaming query in a separate process, which tests kill: ``python live_driver.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from exchangeable import alarms
from exchangeable.spark import monitor_streams, session
from sparks import FEW

BUCKETS = 8


def main(folder: Path) -> None:
    """Continue from the checkpoint to the end of the source, then write all rows, as Spark reads them."""
    spark = session("local[1]", settings={**FEW, "spark.local.dir": str(folder / "local")})
    spark.sparkContext.setLogLevel("OFF")
    frame = spark.readStream.schema("key string, seq bigint, x double").option("maxFilesPerTrigger", 1)
    checkpoint = str(folder / "checkpoint")  # a seed is drawn at the first start
    rows = monitor_streams(
        frame.parquet(str(folder / "in")),
        "key",
        "seq",
        "x",
        alarm=alarms.Ville(0.05),
        checkpoint=checkpoint,
        buckets=BUCKETS,
    )
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    found: Any = spark.read.parquet(str(folder / "out")).toPandas()
    found.to_parquet(folder / "rows.parquet")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
