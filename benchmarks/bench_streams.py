"""Many streams on one machine: `test_streams` against a loop of monitors and what people use around it.

Run as ``make streams`` (about ten minutes), or ``python bench_streams.py --small`` to see whether all ways work; it
writes STREAMS.md. A way whose package is missing is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from many_streams import WAYS
from workloads import heading, table

SIZES = ((2_000, 200, "CompositeJumper"), (400, 1_000, "CompositeJumper"), (40_000, 10, "CompositeJumper"))
SLOW = ((2_000, 200, "Adaptive"), (400, 1_000, "Adaptive"), (2_000, 10, "Adaptive"))
LARGE = (1_000_000, 20, "CompositeJumper")
LARGE_WAYS = (*tuple(WAYS)[:4], "loop")
SLOW_WAYS = tuple(WAYS)[:7]  # in this process, and joblib
NEEDED = {"joblib": "joblib", "DuckDB sort + loop": "duckdb", "Ray": "ray", "Dask": "dask", "Spark local": "pyspark"}
GOALS = {SIZES[0]: 3.0, SIZES[1]: 1.8, SIZES[2]: 20.0, SLOW[0]: 2.0, SLOW[1]: 2.0}  # times as fast as the loop
OVERHEAD = 1.5  # times as long as the compiled loops alone, on one thread, at most
INTERVAL = 0.05  # seconds between two looks at the memory
MEGABYTE = 2**20
Size = tuple[int, int, str]


class Run(NamedTuple):
    """The seconds of a way, the peak memory of its processes in bytes, and a digest of its numbers."""

    seconds: float
    memory: int
    digest: str


def run(way: str, size: Size) -> Run | None:
    """Run a way in a process of its own; None if its package is missing."""
    package = NEEDED.get(way)
    if (
        package is not None
        and subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True).returncode
    ):
        return None
    script = Path(__file__).with_name("many_streams.py")
    command, most = [sys.executable, str(script), way, *map(str, size)], 0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as error:  # a pipe could be full
        process = subprocess.Popen(command, stdout=output, stderr=error, text=True)
        while process.poll() is None:
            most = max(most, memory(process.pid))
            time.sleep(INTERVAL)
        output.seek(0)
        error.seek(0)
        if process.returncode:
            raise RuntimeError(f"{way} failed: {error.read()[-2000:]}")
        found = json.loads(output.read().splitlines()[-1])
    return Run(found["seconds"], most, found["digest"])


def memory(root: int) -> int:
    """The memory of a process and of those it has started; shared pages count once."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended
            continue
        children.setdefault(int(parent), []).append(int(name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += children.get(process, [])
        total += proportional(process)
    return total


def proportional(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def compare(size: Size, ways: tuple[str, ...]) -> str:
    """A table of all ways at one size."""
    found = {way: result for way in ways if (result := run(way, size)) is not None}
    loop, digests = found["loop"].seconds, {result.digest for result in found.values()}
    rows = [
        [way, f"{one.seconds:.3g}", f"{loop / one.seconds:.2f}", f"{one.memory / MEGABYTE:,.0f}"]
        for way, one in found.items()
    ]
    streams, length, bet = size
    two, alone = found["test_streams, 2 threads"], found["compiled loops alone"]
    ratio = found["test_streams, 1 thread"].seconds / alone.seconds
    notes = [
        f"All numbers have {'the same bits' if len(digests) == 1 else '**different bits**'}.",
        f"On one thread `test_streams` takes {ratio:.2f} times as long as the compiled loops alone (goal: at most "
        f"{OVERHEAD:g}, {verdict(ratio <= OVERHEAD)}).",
    ]
    if size in GOALS:
        reached = verdict(loop / two.seconds >= GOALS[size])
        notes.append(f"Goal on two threads: {GOALS[size]:g} times as fast as the loop ({reached}).")
    head = f"\n## {streams:,} streams x {length:,}, `{bet}`\n\n"
    return head + table(["way", "seconds", "times as fast as the loop", "MB"], rows) + "\n" + " ".join(notes) + "\n"


def verdict(reached: bool) -> str:
    return "reached" if reached else "**missed**"


def main(path: Path, *, small: bool) -> None:
    """Write the document."""
    part = 20 if small else 1
    text = (
        "\nThe wall time of the whole job, from a Polars frame sorted by key to the evidence of each stream, and the "
        "peak memory of all its processes (shared pages count once). Each way runs in its own processes; workers and "
        "the JVM are started before the clock. joblib, Ray, Dask and Spark use two. Where a way takes less than two "
        "seconds, the best of three runs counts. Spark reads the data from a Parquet file. One way gets its rows in "
        "random order, and uses two threads.\n"
    )
    plan = [*((size, tuple(WAYS)) for size in SIZES), *((size, SLOW_WAYS) for size in SLOW), (LARGE, LARGE_WAYS)]
    parts = [compare((streams // part, rows, bet), ways) for (streams, rows, bet), ways in plan]
    head = heading("Many streams on one machine", "make streams", ["exchangeable", "numpy", "polars", "pyarrow"])
    path.write_text(head + text + "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="a twentieth of the streams")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("STREAMS.md"))
    arguments = parser.parse_args()
    main(arguments.output, small=arguments.small)
