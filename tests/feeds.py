"""Files of events for streaming queries, and what the library says of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from exchangeable import Monitor
from exchangeable.fleet import stream_seed

NUMBERS = ["n", "p", "log10_martingale", "alarm", "changepoint"]
LOG10 = math.log(10.0)


def add(folder: Path, number: int, table: Any) -> None:
    """Put a file into the folder of a source, at once, and younger than those of smaller numbers."""
    folder.mkdir(exist_ok=True, parents=True)
    hidden = folder / f"_{number}"
    pq.write_table(table, hidden)
    os.utime(hidden, (10**9 + number, 10**9 + number))
    hidden.rename(folder / f"part-{number:05d}.parquet")


def events(data: Mapping[Any, Any], key: Any = None) -> Any:
    """The events of all streams, one after the other: key, seq (1, 2, ...), x."""
    lengths = [len(x) for x in data.values()]
    names = pa.array(list(data), key or pa.string()).take(pa.array(np.repeat(np.arange(len(data)), lengths)))
    seq = np.concatenate([np.arange(1, length + 1) for length in lengths])
    return pa.table({"key": names, "seq": seq, "x": np.concatenate(list(data.values()))})


def shuffled(table: Any, seed: int = 0) -> Any:
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def walks(keys: list[Any], length: int, seed: int = 1) -> dict[Any, Any]:
    """Numbers with ties, for each key; in the middle every third stream moves."""
    rng = np.random.default_rng(seed)
    found = {key: rng.normal(size=length).round(2) for key in keys}
    for x in list(found.values())[::3]:
        x[length // 2 :] += 1.5
    return found


def library(recipe: Callable[[], Monitor], seed: int, key: Any, X: Any, y: Any = None) -> pd.DataFrame:
    """The steps of one stream on one machine."""
    fresh = recipe()
    own = Monitor(
        fresh.measure, fresh.martingale.bet, fresh.alarm, seed=stream_seed(seed, key), on_alarm=fresh.on_alarm
    )
    path = own.extend(X, y)
    change = [int(lowest) if alarm else None for lowest, alarm in zip(path.lowest, path.alarm, strict=True)]
    columns = [path.n, path.p, path.log_value / LOG10, path.alarm, pd.array(change, "Int64")]
    found = pd.DataFrame(dict(zip(NUMBERS, columns, strict=True)))
    if fresh.on_alarm == "restart":
        found["test"] = 1 + np.cumsum(path.alarm) - path.alarm
    return found


def steps(rows: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """The steps of each stream, in the order of their numbers; nothing may be there twice."""
    found = rows[rows["kind"] == "step"]
    key = found.columns[0]
    names = [name for name in [*NUMBERS, "test"] if name in found]
    kinds = {"n": np.int64, "alarm": bool, "changepoint": "Int64"} | ({"test": np.int64} if "test" in names else {})
    typed = found.astype(kinds).sort_values("n")
    return {name: part[names].reset_index(drop=True) for name, part in typed.groupby(key)}


def assert_steps(rows: pd.DataFrame, recipe: Callable[[], Monitor], seed: int, data: Mapping[Any, Any]) -> None:
    """Whether the rows are those of the library: all of them, none twice, each number the same bit for bit."""
    found = steps(rows)
    assert found.keys() == data.keys()
    for key, x in data.items():
        pd.testing.assert_frame_equal(found[key], library(recipe, seed, key, x), check_exact=True)
