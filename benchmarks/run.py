"""Run every benchmark and write RESULTS.md beside this file."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import bench_bets
import bench_cli
import bench_fleet
import bench_measures
import bench_nearest
from workloads import processor


def heading() -> str:
    names = ("numpy", "scipy", "MAPIE", "online-cp")
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        "# Benchmarks\n\nWritten by `make bench`, never by hand. Ratios compare two measurements of the same run;"
        " absolute times are of a shared machine.\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {processor()}, "
        f"Python {platform.python_version()}, {libraries}.\n"
    )


def main() -> None:
    sections = [heading()]
    for bench in (bench_nearest, bench_measures, bench_bets, bench_fleet, bench_cli):
        sections.append(bench.main())
        print(sections[-1], flush=True)
    Path(__file__).with_name("RESULTS.md").write_text("\n".join(sections), encoding="utf-8")


if __name__ == "__main__":
    main()
