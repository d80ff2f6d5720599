"""Appending steps to the history of a stream, and pruning old ones."""

from __future__ import annotations

import sqlite3
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from exchangeable.protocols import Floats
from exchangeable.service.history import points, rollups, rows


class Tail(NamedTuple):
    """The end of a stream's history: what ``append`` needs to know without reading it back.

    A tail is never changed: ``append`` returns the next one. If the transaction fails, the earlier one is still valid.
    """

    n: int = 0
    block: Floats = np.empty(0)  # log10 capitals of the incomplete block, in the first n % BLOCK entries
    rows: int = 0  # small rows of equal width at the end of the table
    steps: int = 0  # the steps in these rows
    width: int = 0  # the numbers in each of their observations

    @staticmethod
    def load(connection: sqlite3.Connection, stream: int, n: int) -> Tail:
        """Return the tail of a stream with n stored steps. O(BLOCK)."""
        if n == 0:
            return Tail()
        last = rows.last_step(connection, stream)
        if last != n:
            raise ValueError(f"the steps of stream {stream} must end at n = {n}, got {last}")
        block, filled = np.empty(rollups.BLOCK), n % rollups.BLOCK
        if filled:
            block[:filled] = points.stored_points(connection, stream, n - filled + 1, n).log10
        return Tail(n, block, *rows.small_rows(connection, stream))


def append(
    connection: sqlite3.Connection,
    stream: int,
    tail: Tail,
    p: ArrayLike,
    log10: ArrayLike,
    *,
    x: Floats,
    seq: ArrayLike | None = None,
    extra: dict[str, list[Any]] | None = None,
    encoded: str | None = None,
) -> Tail:
    """Store the next steps and return the new tail, which is valid once the transaction is committed.

    ``x`` holds one observation per row. ``seq`` defaults to the numbers of the steps. ``extra`` holds further columns
    (``y``, ``id``, ``time``, ``late``), and ``encoded`` their JSON, if it is known already. O(steps), and a merge of
    small rows after every ``SMALL`` of them.
    """
    values = np.asarray(log10, np.float64)
    count = len(values)
    if count == 0:
        return tail
    first = tail.n + 1
    seqs = np.arange(first, first + count) if seq is None else np.asarray(seq, np.int64)
    rows.insert(connection, stream, rows.Steps(first, seqs, x, extra or {}, np.asarray(p, np.float64), values), encoded)
    block = _add_to_block(connection, stream, tail, values)
    return Tail(tail.n + count, block, *_merge_small(connection, stream, tail, count, x.shape[1]))


def _add_to_block(connection: sqlite3.Connection, stream: int, tail: Tail, values: Floats) -> Floats:
    """Store the roll-ups of the blocks that are now complete, and return the incomplete one."""
    size, filled = rollups.BLOCK, tail.n % rollups.BLOCK
    if filled > 0 and filled + len(values) < size:
        tail.block[filled : filled + len(values)] = values  # beyond what the earlier tail refers to
        return tail.block
    joined = np.concatenate([tail.block[:filled], values])
    complete = len(joined) - len(joined) % size
    if complete:
        rollups.add_blocks(connection, stream, tail.n - filled + 1, joined[:complete].reshape(-1, size))
    block = np.empty(size)  # a new array, since the earlier tail must stay valid
    block[: len(joined) - complete] = joined[complete:]
    return block


def _merge_small(
    connection: sqlite3.Connection, stream: int, tail: Tail, count: int, width: int
) -> tuple[int, int, int]:
    """Merge the small rows at the end if there are many; return how many remain, their steps, and their width."""
    if count >= rows.SMALL:
        return 0, 0, 0
    small, steps = (tail.rows, tail.steps) if width == tail.width else (0, 0)
    small, steps = small + 1, steps + count
    if small < rows.SMALL and steps < rollups.BLOCK:
        return small, steps, width
    rows.merge(connection, stream, tail.n + count - steps + 1)
    return 0, 0, 0


def prune(connection: sqlite3.Connection, stream: int, keep_from: int, level0_from: int) -> int:
    """Delete the rows before step ``keep_from`` and the level-0 roll-ups before step ``level0_from``.

    Nothing that a restart needs may lie before ``keep_from``: a snapshot must cover it. Rows that reach beyond
    ``keep_from``, an incomplete block and the newest row are never deleted. A level-0 roll-up is deleted only if one of
    level 1 covers it and its rows are gone. Returns the first step that is still stored.
    """
    last = rows.last_step(connection, stream)
    if last == 0:
        return 1
    keep_from = min(keep_from, last - last % rollups.BLOCK + 1)
    connection.execute(
        "DELETE FROM main.steps WHERE stream = ?1 AND first < ?2 AND first + count <= min(?2, ?3)",
        (stream, keep_from, last),
    )
    (first,) = connection.execute("SELECT min(first) FROM steps WHERE stream = ?", (stream,)).fetchone()
    covered = min(level0_from, first) - 1
    covered -= covered % rollups.SIZES[1]
    connection.execute("DELETE FROM main.rollups WHERE stream = ? AND level = 0 AND first <= ?", (stream, covered))
    return int(first)
