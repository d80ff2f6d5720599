"""Late labels of rows of a table: their test decides which rows it uses, and the queue in the database follows it.

A row is tested for its columns at once. The lines of the label use it when its label has come, in the order of rows.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from exchangeable.data.events.schema import LateLabel
from exchangeable.service.late_labels import KnownId, LabelQueue, move_to_expired
from exchangeable.service.problems import Problem, invalid
from exchangeable.service.stream import LiveStream, Slices
from exchangeable.service.table_test import LabelEvent, RowPath


class RowLabels(NamedTuple):
    """Late labels of rows, which can be accepted, and what is stored of these rows."""

    labels: list[LateLabel]
    known: dict[str, KnownId]


def plan_row_labels(queue: LabelQueue, labels: list[LateLabel]) -> RowLabels:
    """Raise ``Problem`` if one of the labels cannot be accepted. Nothing changes."""
    LabelQueue(queue.connection, queue.stream, queue.now).mark(labels)
    for label in labels:
        if not label.never:
            _check_label(queue.stream, label)
    return RowLabels(labels, queue.find(labels))


def label_rows(queue: LabelQueue, planned: RowLabels, counts: dict[str, int]) -> Slices[list[RowPath]]:
    """Let the test consume labels, one by one; count what came of each, and return the alarms that they raise.

    The queue is told of the rows that the test has left out meanwhile and whose labels come now; `store` follows with
    the others.
    """
    stream, known, alarms = queue.stream, planned.known, list[RowPath]()
    for label in planned.labels:
        before = known[label.id]
        if before.table == "waiting" and before.y is None and not stream.table.is_waiting(label.id):
            known[label.id] = queue.leave_out(label.id, before, timed=stream.table.has_expired(label.id))
        outcome = queue.apply(label, known)
        counts[outcome] += 1
        if outcome == "duplicates":
            continue
        time = None if label.never else queue.label_time(label)
        try:
            alarm = stream.label(LabelEvent(stream.table.n, label.id, label.y, time, label.never))
        except ValueError as error:
            raise invalid(error, "bad-observation", f"stream {stream.name!r}: {error}") from error
        alarms += [] if alarm is None else [alarm]
        yield
    return alarms


def store(connection: sqlite3.Connection, queue: LabelQueue) -> None:
    """Store labels that the test has consumed."""
    queue.store(connection)
    queue.stream.store_label_events(connection)
    follow(connection, queue.stream)


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
