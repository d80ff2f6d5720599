"""The table ``rollups``: the lowest, highest and last log10 capital of blocks of steps, and where they occurred.

A roll-up of level k covers ``SIZES[k]`` steps: 1 to 1,024, 1,025 to 2,048, ... at level 0. It is stored when its block
is complete.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np

from exchangeable.protocols import Floats

BLOCK, FACTOR = 1024, 32
SIZES = tuple(BLOCK * FACTOR**level for level in range(4))  # 1,024, 32,768, 1,048,576 and 33,554,432 steps


def add_blocks(connection: sqlite3.Connection, stream: int, first: int, blocks: Floats) -> None:
    """Store the roll-ups of complete blocks, one in each row. The first block starts at step ``first``."""
    starts = first + BLOCK * np.arange(len(blocks))
    low, high = blocks.argmin(axis=1), blocks.argmax(axis=1)
    rows = np.arange(len(blocks))
    columns = (starts, blocks[rows, low], starts + low, blocks[rows, high], starts + high, blocks[:, -1])
    _insert(connection, stream, 0, list(zip(*(column.tolist() for column in columns), strict=True)))


def _insert(connection: sqlite3.Connection, stream: int, level: int, rows: list[tuple[Any, ...]]) -> None:
    """Store roll-ups of one level, and those of the levels above that they complete."""
    connection.executemany(
        "INSERT INTO main.rollups (stream, level, first, low, low_at, high, high_at, last)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(stream, level, *row) for row in rows],
    )
    if level + 1 < len(SIZES):
        ends = (row[0] - 1 + SIZES[level] for row in rows)
        starts = [end - SIZES[level + 1] + 1 for end in ends if end % SIZES[level + 1] == 0]
        if starts:
            _insert(connection, stream, level + 1, [_combined(connection, stream, level, start) for start in starts])


def _combined(connection: sqlite3.Connection, stream: int, level: int, first: int) -> tuple[Any, ...]:
    """Combine the roll-ups of one level from step ``first`` on into one of the next level."""
    parts = connection.execute(
        "SELECT low, low_at, high, high_at, last FROM rollups"
        " WHERE stream = ? AND level = ? AND first >= ? AND first < ? ORDER BY first",
        (stream, level, first, first + SIZES[level + 1]),
    ).fetchall()
    if len(parts) != FACTOR:
        raise ValueError(f"stream {stream} must have {FACTOR} roll-ups of level {level} from {first}, got {len(parts)}")
    return combine(first, parts)


def of_block(first: int, log10: Floats) -> tuple[Any, ...]:
    """Return the roll-up of one block of steps."""
    low, high = int(log10.argmin()), int(log10.argmax())
    return first, float(log10[low]), first + low, float(log10[high]), first + high, float(log10[-1])


def combine(first: int, parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the roll-up of consecutive ones: their low, where it is, high, where it is, and last."""
    low, high = min(parts, key=lambda part: part[0]), max(parts, key=lambda part: part[2])
    return first, low[0], low[1], high[2], high[3], parts[-1][4]
