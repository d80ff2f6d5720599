"""Late labels of rows of a table: their test decides which rows it uses, and the queue in the database follows it.

A row is tested for its columns at once. The lines of the label use it when its label has come, in the order of rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from exchangeable.data.events.schema import LateLabel
from exchangeable.service.late_labels import LabelQueue, move_to_expired
from exchangeable.service.problems import Problem
from exchangeable.service.stream import LiveStream
from exchangeable.service.table_test import LabelEvent, RowPath


def label_rows(
    connection: sqlite3.Connection, stream: LiveStream, labels: list[LateLabel], now: float, counts: dict[str, int]
) -> Iterator[RowPath]:
    """Give labels to rows, one by one; count what came of each, and yield the alarms that they raise.

    Nothing is changed if one of them cannot be accepted.
    """
    LabelQueue(connection, stream, now).mark(labels)  # raises if one of them cannot be accepted
    for label in labels:
        if not label.never:
            _check_label(stream, label)
    for label in labels:
        queue = LabelQueue(connection, stream, now)
        (outcome,) = (name for name, count in queue.mark([label]).items() if count)
        counts[outcome] += 1
        if outcome == "duplicates":
            continue
        queue.store(connection)
        time = None if label.never else queue.label_time(label)
        event = LabelEvent(stream.table.n, label.id, label.y, time, label.never)
        stream.store_label_event(connection, event)
        alarm = stream.count_label(stream.table.label(event))
        follow(connection, stream)
        if alarm is not None:
            yield alarm


def _check_label(stream: LiveStream, label: LateLabel) -> None:
    try:
        stream.table.check_label(label.y)
    except ValueError as error:
        raise Problem(422, "bad-observation", f"stream {stream.name!r}: {error}") from error


def follow(connection: sqlite3.Connection, stream: LiveStream) -> None:
    """Let rows leave the queue as they have left that of their test."""
    table, here = stream.table, (stream.id, _first_waiting(connection, stream))
    labelled = "waiting WHERE stream = ?1 AND seq < ?2 AND y IS NOT NULL"
    named = f"INSERT OR REPLACE INTO main.labels (stream, id, y, seq) SELECT stream, id, y, seq FROM {labelled}"  # noqa: S608
    connection.execute(f"{named} AND id IS NOT NULL", here)
    left = connection.execute(f"DELETE FROM main.{labelled}", here).rowcount  # noqa: S608
    others = [id_ for (id_,) in connection.execute("SELECT id FROM waiting WHERE stream = ? AND seq < ?", here)]
    for timed in (True, False):
        ids = [id_ for id_ in others if table.has_expired(id_) == timed]
        move_to_expired(connection, stream.id, "id = ?2", ids, timed=timed)
    stream.waiting -= left + len(others)
    stream.clock, stream.left_out = table.clock, table.left_out


def _first_waiting(connection: sqlite3.Connection, stream: LiveStream) -> int:
    """Return the number of the first row that waits in the queue of the test; if none does, one beyond all."""
    first = stream.table.first_waiting
    if first is None:
        return stream.next_seq
    if isinstance(first, int):  # a row without an id
        return first
    query = "SELECT seq FROM waiting WHERE stream = ? AND id = ?"
    return int(connection.execute(query, (stream.id, first)).fetchone()[0])
