"""Tiles against the one-machine kernel: in one process, on Spark, and on paper for a hundred machines."""

from __future__ import annotations

import heapq
import json
import math
import os
import shutil
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np

from exchangeable.measures import NearestNeighbour
from exchangeable.measures.tiles import MEMORY, Block, Segment, Tiles, block_size, plan, rows_within, search
from exchangeable.protocols import Floats
from workloads import best, labelled, table

WIDTH = 256
ALONE = (5_000, 10_000, 20_000, 40_000)
SPARK = (10_000, 20_000, 40_000)
HUGE, MACHINES, CORES = 10_000_000, 100, 16
LIMIT = 2.0  # distances an example and later round: one fall or birth on each side
GBIT = 10  # what the network of such machines is taken to carry, Gbit/s
ONE_THREAD = dict.fromkeys(("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

ON_SPARK = """
import json, sys, tempfile, time
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
sys.path.insert(0, "benchmarks")
from workloads import labelled
from exchangeable import PValues, measures
from exchangeable.spark import pvalues, session, table
master, width, *sizes = sys.argv[1], *map(int, sys.argv[2:])
spark = session(master, settings={"spark.sql.shuffle.partitions": "4", "spark.log.level": "OFF"})
took = {}
def timed(name):
    inner = getattr(table, name)
    def outer(*given):
        start = time.perf_counter()
        try:
            return inner(*given)
        finally:
            took[name] = time.perf_counter() - start
    setattr(table, name, outer)
timed("_pieces")
timed("_ranks")
def read(n, folder):
    X, y = labelled(n, width)
    x = pa.ListArray.from_arrays(np.arange(0, n * width + 1, width, dtype=np.int32), X.ravel())
    rows = pa.table({"t": np.arange(n), "x": x, "y": y}).take(np.random.default_rng(0).permutation(n))
    for part in range(4):
        pq.write_table(rows.slice(part * n // 4, n // 4), f"{folder}/{part}.parquet")
    return X, y
rows, equal = [], True
for n in (sizes[0], *sizes):  # the first one compiles, and starts the workers
    with tempfile.TemporaryDirectory() as folder:
        X, y = read(n, folder)
        frame = spark.read.parquet(folder)
        start = time.perf_counter()
        found = pvalues(frame, "t", "x", "y", seed=1)
        rows.append([n, time.perf_counter() - start, took["_pieces"], took["_ranks"]])
        if n == sizes[0]:
            p = PValues(measures.NearestNeighbour(), seed=1).extend(X, y)
            equal &= bool((found.toArrow()["p"].to_numpy() == p).all())
empty = lambda: spark.sparkContext.parallelize(range(400), 400).map(lambda x: x).sum()
empty()
start = time.perf_counter()
empty()
print(json.dumps([rows[1:], equal, (time.perf_counter() - start) / 400]))
spark.stop()
"""


class Loop:
    """All tiles of a table in one process, one after the other."""

    def __init__(self, X: Floats, y: Any, size: int) -> None:
        self.X, self.code, self.size = X, np.asarray(y, np.int32), size
        self.tiles = Tiles(len(X), size)
        self.reported: list[float] = []  # distances an example, by round
        self.sweep = 0.0  # seconds

    def block(self, number: int) -> Block:
        part = slice(number * self.size, (number + 1) * self.size)
        return Block(self.X[part], self.code[part])

    def run(self) -> None:
        for segments in plan(self.tiles.n, self.size):
            bounds = self.tiles.bounds()
            found = [self.search(segment, bounds) for segment in segments]
            self.reported.append(sum(len(falls.time) for falls in found) / self.tiles.n)
            self.tiles.end_round(found)
        start = time.perf_counter()
        self.tiles.ranks()
        self.sweep = time.perf_counter() - start

    def search(self, segment: Segment, bounds: Floats) -> Any:
        return search(segment, self.size, self.block, lambda b: bounds[b * self.size : (b + 1) * self.size])


def compare(X: Floats, y: Any) -> None:
    loop = Loop(X, y, 500)
    loop.run()
    for got, expected in zip(loop.tiles.ranks(), NearestNeighbour().extend(X, y), strict=True):
        if (got != expected).any():
            raise RuntimeError("the ranks of tiles are not those of the kernel")


def in_one_process() -> dict[str, Any]:
    """Runs in a process with one thread for the matrix product: tiles and kernel in turns."""
    Loop(*labelled(600, 8), 100).run()
    NearestNeighbour().extend(*labelled(600, 8))
    compare(*labelled(ALONE[0], WIDTH))
    rows = []
    for n in ALONE:
        X, y = labelled(n, WIDTH)
        repeats = 3 if n <= 20_000 else 1
        alone = best(lambda X=X, y=y: NearestNeighbour().extend(X, y), repeats=repeats)  # type: ignore[misc]
        size = block_size(n, WIDTH, 2)
        loops = [Loop(X, y, size) for _ in range(repeats)]
        left = list(loops)
        tiled = best(lambda left=left: left.pop().run(), repeats=repeats)  # type: ignore[misc]
        rows.append([n, size, alone, tiled, loops[0].reported, min(loop.sweep for loop in loops)])
    size = block_size(HUGE, WIDTH, MACHINES * CORES)
    loop = Loop(*labelled(2 * size, WIDTH), size)
    infinite = loop.tiles.bounds()
    own = best(lambda: loop.search(Segment(0, 0, 1), infinite))
    loop.tiles.end_round([loop.search(Segment(b, b, b + 1), infinite) for b in range(2)])
    bounds = loop.tiles.bounds()
    return {"rows": rows, "size": size, "own": own, "tile": best(lambda: loop.search(Segment(1, 0, 1), bounds))}


def child(code: str, *arguments: str) -> Any:
    given = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(given, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    return json.loads(done.stdout.splitlines()[-1])


def alone_section(measured: dict[str, Any]) -> str:
    rows = [
        [
            f"{n:,}",
            f"{size:,}",
            f"{tiled:.2f}",
            f"{alone:.2f}",
            f"{tiled / alone:.2f}",
            ", ".join(f"{r:.1f}" for r in reported),
        ]
        for n, size, alone, tiled, reported, _ in measured["rows"]
    ]
    columns = [
        "n",
        "rows in a block",
        "tiles, s",
        "kernel, s",
        "tiles / kernel",
        "distances reported an example, by round",
    ]
    title = f"### Tiles in one process, n x {WIDTH}, one thread\n\n"
    return title + table(columns, rows) + "\nThe same ranks, bit for bit. A reported distance takes 16 bytes.\n"


def spark_section(measured: dict[str, Any], one: list[list[float]], two: list[list[float]]) -> str:
    kernel = {n: alone for n, _, alone, *_ in measured["rows"]}
    rows = []
    for (n, total1, _, tiles1), (_, total2, _, tiles2) in zip(one, two, strict=True):
        alone = kernel[int(n)]
        cells = [f"{alone:.1f}", f"{total1:.1f}", f"{tiles1:.1f}", f"{total2:.1f}", f"{tiles2:.1f}"]
        rows.append([f"{int(n):,}", *cells, f"{tiles1 / tiles2:.2f}", f"{total2 / alone:.2f}"])
    columns = [
        "n",
        "kernel, one thread, s",
        "Spark, 1 core, s",
        "of it tiles, s",
        "Spark, 2 cores, s",
        "of it tiles, s",
    ]
    columns += ["tiles: 1 core / 2 cores", "Spark, 2 cores / kernel"]
    growth = " and ".join(f"{b[3] / a[3]:.1f}" for a, b in pairwise(two))
    text = (
        "\nFrom Parquet files to a frame of p-values; sorted, packed and sent to the workers in between; not the first"
        " run of a session, which also starts the workers. The p-values are those of the library, compared in this run."
        f" Twice the rows are four times the work: from row to row the tiles took {growth} times as long on 2 cores.\n"
    )
    return f"### `spark.pvalues` on this machine, n x {WIDTH}\n\n" + table(columns, rows) + text


def lasting(seconds: float) -> str:
    """In the unit that one would say it in."""
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def schedule(rounds: list[list[Segment]], cores: int, own: float, tile: float, task: float) -> list[float]:
    """How long each round takes: the next free core takes the next segment."""
    times = []
    for segments in rounds:
        free = [0.0] * cores
        for segment in segments:
            work = own if segment.first == segment.rows else tile * (segment.last - segment.first)
            heapq.heapreplace(free, free[0] + work + task)
        times.append(max(free))
    return times


def paper_section(measured: dict[str, Any], run: list[float], task: float) -> str:
    size, cores, blocks = measured["size"], MACHINES * CORES, math.ceil(HUGE / measured["size"])
    rounds = plan(HUGE, size, cores)
    times = schedule(rounds, cores, measured["own"], measured["tile"], task)
    n, *_, reported, sweep = measured["rows"][-1]
    example = 8 * WIDTH + 4
    out, bounds = HUGE * example, 16 * HUGE * len(rounds)
    back = HUGE * 16 * (reported[0] + max(LIMIT, *reported[1:]) * (len(rounds) - 1))
    seconds = {
        "pack": run[2] * HUGE / run[0] * 2 / cores,  # measured on 2 cores
        "pull": (run[1] - run[2] - run[3]) * HUGE / run[0],
        "send": (out + bounds) / (GBIT / 8 * 1e9),
        "tiles": sum(times),
        "sweep": sweep * HUGE / n * math.log(HUGE) / math.log(n),
    }
    took = {name: lasting(value) for name, value in seconds.items()}
    tiles = sum(segment.last - segment.first for segments in rounds for segment in segments)
    alone = HUGE**2 / n**2 * measured["rows"][-1][2] / 3600
    rows = [
        ["blocks", f"{blocks:,} of {size:,} rows, {size * example / 1e6:.1f} MB each"],
        ["tiles, tasks, rounds", f"{tiles:,}, {sum(map(len, rounds)):,}, {len(rounds)}"],
        ["one tile, measured here", f"{measured['tile']:.2f} s, of a block with itself {measured['own']:.2f} s"],
        ["an empty task, measured here", f"{1e3 * task:.0f} ms"],
        ["memory of a task", f"{MEMORY / 1e6 * size / rows_within(MEMORY, WIDTH):.0f} MB and the interpreter's"],
        ["table to every machine", f"{out / 1e9:.1f} GB, {out * MACHINES / 1e12:.2f} TB in all, from one to the next"],
        ["bounds to every machine", f"{bounds / 1e9:.1f} GB, {bounds * MACHINES / 1e12:.2f} TB in all"],
        ["distances to the driver", f"{back / 1e9:.1f} GB in all"],
        ["to sort and pack the table", f"{took['pack']} on all cores"],
        ["to pull it into blocks", f"{took['pull']} in the driver"],
        ["to send it to all", f"{took['send']} at {GBIT} Gbit/s"],
        ["tiles", f"{took['tiles']} on all cores, {lasting(times[-1])} of it in the last round"],
        ["sweep", f"{took['sweep']} in the driver"],
        ["**in all**", f"**{sum(seconds.values()) / 3600:.2f} h**"],
        ["the kernel on one core", f"{alone:,.0f} h, if it had {1.5 * HUGE * 8 * WIDTH / 1e9:.0f} GB of memory"],
    ]
    title = f"### On paper: {HUGE // 10**6} million x {WIDTH} on {MACHINES} machines of {CORES} cores\n\n"
    text = (
        "\nTiles and tasks are those that `plan` makes, given to the next free core; no core slows another. The"
        f" distances reported an example and round are taken to be {LIMIT:.0f}, to which they tend for many blocks.\n"
    )
    return title + table(["", "from the figures above"], rows).replace("---:|", "---|") + text


def main() -> str:
    code = "import json, sys; sys.path.insert(0, 'benchmarks'); import bench_tiles"
    measured = child(f"{code}; print(json.dumps(bench_tiles.in_one_process()))")
    sections = ["## One huge table, in tiles\n", alone_section(measured)]
    if shutil.which("java") is None:
        return "\n".join([*sections, "Spark was not run: there is no Java.\n"])
    sizes = [str(WIDTH), *map(str, SPARK)]
    one, one_equal, task = child(ON_SPARK, "local[1]", *sizes)
    two, two_equal, _ = child(ON_SPARK, "local[2]", *sizes)
    if not (one_equal and two_equal):
        raise RuntimeError("the p-values of Spark are not those of the library")
    return "\n".join([*sections, spark_section(measured, one, two), paper_section(measured, two[-1], task)])


if __name__ == "__main__":
    print(main())
