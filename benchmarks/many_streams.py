"""Ways to test many streams on one machine, each run in a process of its own by `bench_streams.py`.

``python many_streams.py WAY STREAMS ROWS BET`` writes the seconds, and a digest of the evidence of all streams.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import exchangeable as ex
from exchangeable import bets
from exchangeable.fleet import stream_seed, stream_seeds
from exchangeable.keyed.whole import WholeStreams
from exchangeable.martingale import LN10

CORES = 2
BETS: dict[str, Callable[[], Any]] = {"CompositeJumper": bets.CompositeJumper, "Adaptive": bets.Adaptive}
REPEATS, LONG = 3, 2.0  # a way that takes more than so many seconds is run once
Values = NDArray[np.float64]
Work = Callable[[pl.DataFrame, int, str], Values]  # the readings, rows of a stream, the bet: the evidence of each


def readings(streams: int, rows: int) -> pl.DataFrame:
    """Sorted readings of streams with integer keys."""
    x = np.random.default_rng(0).normal(size=streams * rows)
    return pl.DataFrame({"key": np.repeat(np.arange(streams), rows), "time": np.tile(np.arange(rows), streams), "x": x})


def one(key: int, x: Any, bet: str) -> float:
    monitor = ex.Monitor(ex.measures.Value(), BETS[bet](), seed=stream_seed(1, key))
    monitor.extend(x)
    return monitor.log_value


def several(keys: Any, x: Any, bet: str) -> list[float]:
    return [one(key, part, bet) for key, part in zip(keys, x, strict=True)]


def shares(frame: pl.DataFrame, rows: int) -> list[tuple[Any, Any]]:
    """The keys and readings of a few streams at a time, for pools of processes."""
    x = frame["x"].to_numpy().reshape(-1, rows)
    return list(zip(*(np.array_split(part, 8) for part in (np.arange(len(x)), x)), strict=True))


def _ours(threads: int) -> Work:
    def work(frame: pl.DataFrame, rows: int, bet: str) -> Values:
        result = ex.test_streams(frame, "key", "time", bet=BETS[bet](), seed=1, threads=threads)
        return np.asarray(result["log10_martingale"])

    return work


def _native(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    """The compiled loops alone, on one thread, in chunks."""
    whole = WholeStreams(ex.Monitor(ex.measures.Value(), BETS[bet]()))
    x, many = frame["x"].to_numpy().reshape(-1, rows), max(1, min(2**14 // rows, 2**19 // whole.width))
    found = []
    for start in range(0, len(x), many):
        part = x[start : start + many]
        seeds = stream_seeds(1, range(start, start + len(part)))
        found.append(whole.test(seeds, np.full(len(part), rows), part.ravel())[1].log_value)
    return np.concatenate(found) / LN10


def _loop(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    x = frame["x"].to_numpy().reshape(-1, rows)
    return np.array(several(range(len(x)), x, bet)) / LN10


def _joblib(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    found = Parallel(CORES)(delayed(several)(keys.tolist(), x, bet) for keys, x in shares(frame, rows))
    return np.concatenate(found) / LN10


def _polars(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    def group(part: pl.DataFrame) -> pl.DataFrame:
        return pl.DataFrame({"log_value": [one(part["key"][0], part["x"].to_numpy(), bet)]})

    return frame.group_by("key", maintain_order=True).map_groups(group)["log_value"].to_numpy() / LN10


def _duckdb(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    """Sorted by DuckDB, then the loop."""
    duckdb: Any = import_module("duckdb")
    table = duckdb.sql("select x from frame order by key, time").fetchnumpy()
    x = np.asarray(table["x"]).reshape(-1, rows)
    return np.array(several(range(len(x)), x, bet)) / LN10


def _ray(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    ray: Any = import_module("ray")
    task = ray.remote(several)
    found = ray.get([task.remote(keys.tolist(), x, bet) for keys, x in shares(frame, rows)])
    return np.concatenate(found) / LN10


def _dask(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    dask: Any = import_module("dask")
    tasks = [dask.delayed(several)(keys.tolist(), x, bet) for keys, x in shares(frame, rows)]
    found = dask.compute(*tasks, scheduler="processes", num_workers=CORES)
    return np.concatenate(found) / LN10


def _spark(frame: pl.DataFrame, rows: int, bet: str) -> Values:
    """From a Parquet file, which Spark reads in parallel, to a pandas frame."""
    from exchangeable.spark import session, test_streams

    with tempfile.TemporaryDirectory() as folder:
        frame.write_parquet(Path(folder) / "data.parquet", row_group_size=max(1, len(frame) // 4))
        table = session().read.parquet(folder)
        result = test_streams(table, "key", "time", "x", bet=BETS[bet](), seed=1)
        found: Any = result.select("key", "log10_martingale").toPandas()
    return np.asarray(found.sort_values("key")["log10_martingale"], np.float64)


WAYS: dict[str, Work] = {
    "test_streams, 1 thread": _ours(1),
    "test_streams, 2 threads": _ours(CORES),
    "test_streams, shuffled rows": _ours(CORES),
    "compiled loops alone": _native,
    "loop": _loop,
    "joblib": _joblib,
    "Polars group_by": _polars,
    "DuckDB sort + loop": _duckdb,
    "Ray": _ray,
    "Dask": _dask,
    "Spark local": _spark,
}


@contextmanager
def started(way: str) -> Iterator[None]:
    """What a way starts before it is timed: workers, or a JVM."""
    if way == "Ray":
        ray: Any = import_module("ray")
        ray.init(num_cpus=CORES, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    elif way == "Spark local":
        from exchangeable.spark import session

        settings = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"}
        session(f"local[{CORES}]", settings=settings).sparkContext.setLogLevel("ERROR")
    yield
    if way == "Ray":
        ray.shutdown()
    elif way == "Spark local":
        session().stop()


def main(way: str, streams: int, rows: int, bet: str) -> None:
    """Run a way on a few streams, so that all is loaded, then on all of them."""
    frame, work = readings(streams, rows), WAYS[way]
    frame = frame.sample(fraction=1.0, shuffle=True, seed=0) if way.endswith("shuffled rows") else frame
    with started(way):
        work(frame.head(16 * rows), rows, bet)
        seconds: list[float] = []
        while not seconds or (seconds[0] < LONG and len(seconds) < REPEATS):
            start = time.perf_counter()
            found = work(frame, rows, bet)
            seconds.append(time.perf_counter() - start)
    digest = hashlib.sha256(np.ascontiguousarray(found, np.float64).tobytes()).hexdigest()
    print(json.dumps({"seconds": min(seconds), "digest": digest}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
