"""Columns of a table over time: their evidence, which is recorded, and their values, from the stored rows."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from exchangeable.protocols import Floats, Integers
from exchangeable.service.schema import dump_json, load_json
from exchangeable.service.stream_summary import unknown_stream
from exchangeable.service.table_test import RowPath, part_size
from exchangeable.table_monitor.constants import NEW, ColumnConstants

WINDOWS = 48  # points of each column
MAX_BYTES = 16 << 20  # of stored rows that are read, so that a request takes less than a second


def record_evidence(connection: sqlite3.Connection, stream: int, path: RowPath) -> None:
    """Store the evidence of each column and view after some of the rows of a path, in constant space.

    Of the records within each part of the stream, the last is kept; parts grow with the stream.
    """
    records = [(stream, n, dump_json(_plain(evidence))) for n, evidence in path.evidence.items()]
    connection.executemany("INSERT INTO main.evidence (stream, n, log10) VALUES (?, ?, ?)", records)
    size = part_size(int(path.n[-1]))
    connection.execute(
        "DELETE FROM main.evidence WHERE stream = ?1 AND n NOT IN"
        " (SELECT max(n) FROM evidence WHERE stream = ?1 GROUP BY (n - 1) / ?2)",
        (stream, size),
    )


def _plain(evidence: dict[str, float]) -> dict[str, float | None]:
    return {name: round(log10, 3) if math.isfinite(log10) else None for name, log10 in evidence.items()}


def read_evidence(connection: sqlite3.Connection, name: str) -> dict[str, dict[str, list[Any]]]:
    """Return the recorded evidence of each column and view in the current test, by its name."""
    rows = connection.execute(
        "SELECT evidence.n, evidence.log10 FROM evidence JOIN streams ON id = stream"
        " WHERE name = ? AND evidence.n > since ORDER BY evidence.n",
        (name,),
    ).fetchall()
    curves: dict[str, dict[str, list[Any]]] = {}
    for n, log10 in rows:
        for line, value in load_json(log10).items():
            curve = curves.setdefault(line, {"n": [], "log10": []})
            curve["n"].append(n)
            curve["log10"].append(value)
    return curves


def read_values(
    connection: sqlite3.Connection, name: str, columns: Sequence[ColumnConstants]
) -> dict[str, dict[str, Any]]:
    """Return the values of each column over the rows of the current test that are still stored.

    The rows are divided into at most 48 windows. If they are many, only some of them are read, evenly spaced.
    """
    n, rows = _read_rows(connection, name)
    if not rows:
        return {}
    window = max(1, -(-(int(n[-1]) - int(n[0]) + 1) // WINDOWS))
    places, starts = np.unique((n - n[0]) // window, return_index=True)
    middles = (int(n[0]) + places * window + window // 2).tolist()
    bounds = [*starts.tolist(), len(rows)]
    return {column.name: {"n": middles, **_values(column, rows, bounds)} for column in columns}


def _read_rows(connection: sqlite3.Connection, name: str) -> tuple[Integers, list[dict[str, Any]]]:
    """Return rows of the current test, and their numbers."""
    stream = connection.execute("SELECT id, since FROM streams WHERE name = ?", (name,)).fetchone()
    if stream is None:
        raise unknown_stream(name)
    blocks = connection.execute(
        "SELECT first, length(extra) FROM main.steps WHERE stream = ? AND first + count - 1 > ? ORDER BY first", stream
    ).fetchall()
    total = sum(size for _, size in blocks)
    every = max(1, -(-total // MAX_BYTES))
    numbers, rows = [], []
    for first, _ in blocks[::-1][::every][::-1]:  # the newest block is always read
        query = "SELECT extra FROM steps WHERE stream = ? AND first = ?"
        part = load_json(connection.execute(query, (stream[0], first)).fetchone()[0])["row"]
        skipped = max(0, stream[1] + 1 - first)
        rows += part[skipped:]
        numbers.append(np.arange(first + skipped, first + len(part)))
    return np.concatenate([*numbers, np.empty(0, np.int64)]), rows


def _values(column: ColumnConstants, rows: list[dict[str, Any]], bounds: list[int]) -> dict[str, Any]:
    scores, _ = column.scores([row.get(column.name) for row in rows])
    windows = [scores[a:b] for a, b in pairwise(bounds)]
    if column.categories is None:
        means = [_mean(part[(part != column.missing_score) & np.isfinite(part)]) for part in windows]
        return {"value": means, "reference": column.mean, "category": None}
    names = (*column.categories, NEW)
    before = np.append(column.summary, 0.0)
    shares = np.array([[np.mean(part == k) for k in range(len(names))] for part in windows])
    most = int(np.abs(shares[len(shares) // 2 :].mean(axis=0) - before).argmax())
    return {"value": shares[:, most].tolist(), "reference": float(before[most]), "category": names[most]}


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None
