"""Reading stored observations: by seq, to compare a repeated one, and after a step, to replay them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats, Integers
from exchangeable.service.history.rows import Steps, decode_seq, read_rows


class Observations(NamedTuple):
    """The stored observations of consecutive seqs, as columns with one entry for each seq."""

    stored: NDArray[np.bool_]  # False: pruned, expired, or not received yet
    width: Integers  # numbers in x; -1 where nothing is stored
    x: Floats  # as wide as the widest observation; NaN where there is no number
    extra: dict[str, list[Any]]  # None where there is no value


def observations(connection: sqlite3.Connection, stream: int, first_seq: int, last_seq: int) -> Observations:
    """Return the stored observations of the seqs ``first_seq`` to ``last_seq``.

    Steps are in the order of seq. A seq has no step if its label never arrived, so ``n <= seq``, and the first row
    is found by bisection. O(log n) rows are read, in addition to those that hold the result.
    """
    count = last_seq - first_seq + 1
    parts = [part for part in _between(connection, stream, first_seq, last_seq) if len(part.seq)]
    stored, width = np.zeros(count, np.bool_), np.full(count, -1, np.int64)
    x = np.full((count, max((part.x.shape[1] for part in parts), default=0)), np.nan)
    extra: dict[str, list[Any]] = {}
    for part in parts:
        positions = part.seq - first_seq
        stored[positions], width[positions] = True, part.x.shape[1]
        x[positions, : part.x.shape[1]] = part.x
        for name, values in part.extra.items():
            column = extra.setdefault(name, [None] * count)
            for i, value in zip(positions.tolist(), values, strict=True):
                column[i] = value
    return Observations(stored, width, x, extra)


def _between(connection: sqlite3.Connection, stream: int, first_seq: int, last_seq: int) -> Iterator[Steps]:
    for row in read_rows(connection, stream, _find_row(connection, stream, first_seq)):
        if row.seq[0] > last_seq:
            return
        start, stop = np.searchsorted(row.seq, [first_seq, last_seq + 1]).tolist()
        yield row.part(slice(start, stop))


def _find_row(connection: sqlite3.Connection, stream: int, seq: int) -> int:
    """Return a step of the last row that starts at or before a seq; 1 if there is none."""
    low, high, probe = 1, seq, seq  # the first probe assumes n = seq, which is nearly always right
    while low < high:
        row = connection.execute(
            "SELECT first, count, seq FROM steps WHERE stream = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (stream, probe),
        ).fetchone()
        if row is None or decode_seq(*row)[0] <= seq:
            low = probe
        else:
            high = row[0] - 1
        probe = (low + high + 1) // 2
    return low


def replay(connection: sqlite3.Connection, stream: int, after: int) -> Iterator[Steps]:
    """Yield the steps after step ``after`` in order, to bring a snapshot of that step up to date."""
    for row in read_rows(connection, stream, after + 1):
        later = row.part(slice(max(after + 1 - row.first, 0), None))
        if len(later.p):
            yield later


MAX_BYTES = 16 << 20  # of stored observations that ``read_column`` reads, so that a request takes less than a second


def read_column(
    connection: sqlite3.Connection, stream: int, column: int, start: int, stop: int
) -> tuple[Integers, Floats, int]:
    """Return steps between two of them, a number of each of their observations, and how many numbers the newest has.

    Only the newest ``MAX_BYTES`` of observations are read. Steps whose observations have no such number are left out.
    """
    rows = connection.execute(
        "SELECT first, count, x FROM steps WHERE stream = ? AND first <= ? ORDER BY first DESC", (stream, stop)
    )
    parts: list[tuple[Integers, Floats]] = []
    width, size = 0, 0
    for first, count, x in rows:
        table = np.frombuffer(x, "<f8").reshape(count, -1)
        width, size = width or table.shape[1], size + len(x)
        if table.shape[1] > column:
            parts.append((np.arange(first, first + count), table[:, column]))
        if size > MAX_BYTES or first <= start:
            break
    n, values = (np.concatenate(columns) for columns in zip(*reversed(parts), strict=True)) if parts else _NOTHING
    inside = (n >= start) & (n <= stop)
    return n[inside], values[inside], width


_NOTHING = (np.empty(0, np.int64), np.empty(0))
