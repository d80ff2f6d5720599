"""The table ``times``: when steps arrived, and the times that their observations carry, at some of the steps.

The first and the last step of each batch have a row, and every ``EVERY``-th between them, so that linear interpolation
is exact for arrivals. Batches within one second share their rows: an arrival is then wrong by less than a second. Far
back in the history one row for each block of steps is kept.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from exchangeable.late_labels.rule import seconds
from exchangeable.protocols import Floats, Integers
from exchangeable.service.history.rollups import BLOCK

EVERY = 64


def record(
    connection: sqlite3.Connection,
    stream: int,
    steps: range,
    arrived: float,
    times: Sequence[str | float | None] | None,
) -> None:
    """Store the arrival of new steps, and the times of their observations if they have any."""
    chosen = sorted({steps[0], *steps[EVERY - 1 :: EVERY], steps[-1]})
    own = [None if times is None else _seconds(times[n - steps[0]]) for n in chosen]
    connection.execute(  # the last row of the same second, unless it is the only one
        "DELETE FROM main.times WHERE stream = ?1 AND n = ?2 AND arrived >= ?3 AND"
        " (SELECT arrived FROM main.times WHERE stream = ?1 AND n < ?2 ORDER BY n DESC LIMIT 1) >= ?3",
        (stream, steps[0] - 1, math.floor(arrived)),
    )
    connection.executemany(
        "INSERT INTO main.times (stream, n, arrived, own) VALUES (?, ?, ?, ?)",
        [(stream, n, arrived, time) for n, time in zip(chosen, own, strict=True)],
    )


def _seconds(time: str | float | None) -> float | None:
    """Return a time in seconds; None if it is another text, which streams without late labels may use."""
    with suppress(ValueError):
        return None if time is None else seconds(time)
    return None


def times_at(connection: sqlite3.Connection, stream: int, n: Integers) -> tuple[Floats, Floats]:
    """Return when steps arrived, and the times of their observations, interpolated; NaN where they are unknown."""
    wanted = json.dumps(n.tolist())
    rows = connection.execute(
        "SELECT n, arrived, own FROM times WHERE stream = ?1 AND n IN ("
        " SELECT (SELECT max(n) FROM main.times WHERE stream = ?1 AND n <= value) FROM json_each(?2) UNION"
        " SELECT (SELECT min(n) FROM main.times WHERE stream = ?1 AND n >= value) FROM json_each(?2)) ORDER BY n",
        (stream, wanted),
    ).fetchall()
    if not rows:
        return np.full(len(n), np.nan), np.full(len(n), np.nan)
    known, arrived, own = np.array(rows, np.float64).T  # exact, since no stream has 2**53 steps; None becomes NaN
    interpolated = [np.interp(n, known, values, left=np.nan, right=np.nan) for values in (arrived, own)]
    return interpolated[0], interpolated[1]


def prune_times(connection: sqlite3.Connection, stream: int, start: int, stop: int) -> None:
    """Keep one row for each block of the steps from ``start`` to ``stop - 1``."""
    connection.execute(
        f"DELETE FROM main.times WHERE stream = ?1 AND n >= ?2 AND n < ?3 AND n NOT IN"  # noqa: S608
        f" (SELECT max(n) FROM main.times WHERE stream = ?1 AND n >= ?2 AND n < ?3 GROUP BY (n - 1) / {BLOCK})",
        (stream, start, stop),
    )
