"""The table ``steps``: rows of consecutive steps, with their observations as columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exchangeable.protocols import Floats, Integers
from exchangeable.service.checksums import damaged
from exchangeable.service.schema import dump_json, load_json

SMALL = 256  # a row of fewer steps is small; this many small rows in a sequence are merged into one


class Steps(NamedTuple):
    """Consecutive steps with their observations."""

    first: int  # the number of the first step
    seq: Integers
    x: Floats  # one row per step
    extra: dict[str, list[Any]]  # y, id, time and late, where there are any
    p: Floats
    log10: Floats

    def part(self, selected: slice) -> Steps:
        """Return some of the steps; ``selected`` must have a start."""
        first, seq, x, extra, p, log10 = self
        extra = {name: values[selected] for name, values in extra.items()}
        return Steps(first + selected.start, seq[selected], x[selected], extra, p[selected], log10[selected])


def insert(connection: sqlite3.Connection, stream: int, steps: Steps, encoded: str | None = None) -> None:
    """Store steps as one row. The seqs are left out if each equals the number of its step.

    ``encoded`` is what is stored of ``extra``, if it was encoded already.
    """
    first, seq, x, extra, p, log10 = steps
    numbered = np.array_equal(seq, np.arange(first, first + len(seq)))
    values = (
        stream,
        first,
        len(p),
        None if numbered else np.asarray(seq, "<i8").tobytes(),
        np.ascontiguousarray(x, "<f8").tobytes(),
        encoded or (dump_json(extra) if extra else None),
        np.asarray(p, "<f8").tobytes(),
        np.asarray(log10, "<f8").tobytes(),
    )
    connection.execute(
        "INSERT INTO main.steps (stream, first, count, seq, x, extra, p, log10) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values
    )


class Extent(NamedTuple):
    """The steps of a stream that are stored one by one: from ``kept`` to ``n``."""

    kept: int
    n: int


def extent(connection: sqlite3.Connection, stream: int) -> Extent:
    """Return which steps of a stream must be stored one by one, according to its row; raise if the last is missing."""
    row = connection.execute("SELECT kept, n FROM streams WHERE id = ?", (stream,)).fetchone()
    last = last_step(connection, stream)
    if row is None:
        return Extent(max(last, 1), last)
    if last != row[1]:
        raise damaged(connection, "steps", stream)
    return Extent(*row)


def last_step(connection: sqlite3.Connection, stream: int) -> int:
    """Return the number of the newest step, or 0 if there is none."""
    row = connection.execute(
        "SELECT first + count - 1 FROM steps WHERE stream = ? ORDER BY first DESC LIMIT 1", (stream,)
    ).fetchone()
    return int(row[0]) if row else 0


def read_rows(connection: sqlite3.Connection, stream: int, n: int) -> Iterator[Steps]:
    """Yield the rows in order, from the one that contains step n on; raise if one is missing between them."""
    expected = None
    for first, count, seq, x, extra, p, log10 in connection.execute(
        "SELECT first, count, seq, x, extra, p, log10 FROM steps WHERE stream = ? AND first >="
        " coalesce((SELECT max(first) FROM steps WHERE stream = ? AND first <= ?), 0) ORDER BY first",
        (stream, stream, n),
    ):
        if expected not in (None, first):
            raise damaged(connection, "steps", stream)
        expected = first + count
        table = np.frombuffer(x, "<f8").reshape(count, -1) if x else np.empty((count, 0))
        extras = {} if extra is None else load_json(extra)
        yield Steps(
            first, decode_seq(first, count, seq), table, extras, np.frombuffer(p, "<f8"), np.frombuffer(log10, "<f8")
        )


def decode_seq(first: int, count: int, seq: bytes | None) -> Integers:
    """Return the seqs of a row; if none are stored, they are the numbers of the steps."""
    return np.arange(first, first + count) if seq is None else np.frombuffer(seq, "<i8")


# ------------------------------------------------------------------ merging small rows


def small_rows(connection: sqlite3.Connection, stream: int) -> tuple[int, int, int]:
    """Count the small rows of equal width at the end of the table: how many, their steps, and their width."""
    rows, steps, width = 0, 0, 0
    for count, length in connection.execute(
        "SELECT count, length(x) FROM steps WHERE stream = ? ORDER BY first DESC", (stream,)
    ):
        if count >= SMALL or (rows and length // (8 * count) != width):
            break
        rows, steps, width = rows + 1, steps + count, length // (8 * count)
    return rows, steps, width


def merge(connection: sqlite3.Connection, stream: int, first: int) -> None:
    """Merge all rows from step ``first`` on, which are of equal width, into one."""
    parts = list(read_rows(connection, stream, first))
    connection.execute("DELETE FROM main.steps WHERE stream = ? AND first >= ?", (stream, first))
    seq, x, p, log10 = (np.concatenate([getattr(part, name) for part in parts]) for name in ("seq", "x", "p", "log10"))
    insert(connection, stream, Steps(first, seq, x, _concatenated(parts), p, log10))


def _concatenated(parts: Iterable[Steps]) -> dict[str, list[Any]]:
    """Concatenate the extras; where a part lacks a column, it has None for each of its steps."""
    names = dict.fromkeys(name for part in parts for name in part.extra)
    return {name: [value for part in parts for value in part.extra.get(name, [None] * len(part.p))] for name in names}
