"""Run the benchmarks on Apache Spark and write SPARK.md beside this file."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import bench_spark_live
import bench_spark_streams
import bench_tiles
from workloads import processor


def heading() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "numpy"))
    return (
        "# Benchmarks on Apache Spark\n\nWritten by `make spark`, never by hand. Ratios compare two measurements of the"
        " same run; absolute times are of a shared machine.\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {processor()}, "
        f"Python {platform.python_version()}, {libraries}.\n"
    )


def main() -> None:
    sections = [heading()]
    for bench in (bench_spark_streams, bench_tiles, bench_spark_live):
        sections.append(bench.main())
        print(sections[-1], flush=True)
        Path(__file__).with_name("SPARK.md").write_text("\n".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
