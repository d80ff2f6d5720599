"""The test of a stream of rows: a `TableMonitor` whose count of rows continues that of earlier tests."""

from __future__ import annotations

import copy
import json
from collections import deque
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import snapshot
from exchangeable.late_labels import LeftOut
from exchangeable.protocols import Floats, Integers
from exchangeable.table_monitor import TableMonitor, TableStep
from exchangeable.table_monitor.cells import open_cells
from exchangeable.table_monitor.constants import ColumnConstants, table_scores
from exchangeable.table_monitor.monitor import label_scores

MIN_PART = 64  # rows between two records of the evidence of each column, at first
MAX_NAMES = 20  # columns and views that are named in a state, an alert or metrics, the strongest first
NO_REFERENCE = "This stream has no reference yet: send it with PUT /v1/streams/{name}/reference."


class RowPath(NamedTuple):
    """Many steps as columns; ``n`` counts the rows of all tests of the stream."""

    n: Integers
    log_value: Floats
    alarm: NDArray[np.bool_]
    lowest: list[int | None]  # the change point; only that of the latest alarm is known
    evidence: dict[int, dict[str, float]]  # log10 of the evidence of each column and view, after some of the rows


class LateRows(NamedTuple):
    """The ids of rows whose labels may come later, and their times on the clock of the stream."""

    ids: list[str | int]
    times: list[float | None]

    def part(self, rows: slice) -> LateRows:
        """Return the part for some of the rows."""
        return LateRows(self.ids[rows], self.times[rows])


class LabelEvent(NamedTuple):
    """A label that came after the first n rows, or the statement that it never comes."""

    n: int
    id: str
    y: Any
    time: float | None
    never: bool


class TableTest:
    """A test of a stream of rows. Before the stream has a reference, there is no monitor, and nothing is tested.

    ``start`` is the number of rows before the monitor, which counts from 1.
    """

    def __init__(self, monitor: TableMonitor | None, on_alarm: str, start: int = 0) -> None:
        self.monitor = monitor
        self.on_alarm = on_alarm
        self.start = start

    @property
    def n(self) -> int:
        """The number of rows so far, of all tests."""
        return self.start + (0 if self.monitor is None else self.monitor.n)

    @property
    def last(self) -> TableStep | None:
        """The latest step of this test."""
        return None if self.monitor is None else self.monitor.last

    @property
    def log_max(self) -> float:
        """The highest log evidence of this test; at least 0."""
        return 0.0 if self.monitor is None else self.monitor.log_max

    @property
    def alarm_at(self) -> int | None:
        """The row that raised the alarm."""
        return None if self.monitor is None else self._count(self.monitor.alarm_at)

    @property
    def changepoint(self) -> int | None:
        """The number of rows before the change, as estimated at the alarm."""
        return None if self.monitor is None else self._count(self.monitor.changepoint)

    @property
    def log_value(self) -> float:
        """The log evidence of the current test; 0 at its start."""
        return 0.0 if self.monitor is None else self.monitor.log_value

    @property
    def keep_from(self) -> int | None:
        """The first row to keep for retraining, after the latest alarm."""
        found = None if self.monitor is None else self.monitor.alarm_explanation
        return None if found is None else self._count(found.keep_from)

    @property
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees."""
        return NO_REFERENCE if self.monitor is None else self.monitor.guarantee

    def _count(self, n: int | None) -> int | None:
        return None if n is None else self.start + n

    def _required(self) -> TableMonitor:
        if self.monitor is None:
            raise ValueError("a table without a reference cannot be tested")
        return self.monitor

    def check(self, rows: list[dict[str, Any]]) -> None:
        """Raise ``ValueError`` if the monitor would reject rows; nothing changes."""
        monitor, first = self._required(), self.n + 1
        if monitor.invalid == "missing":
            return
        cells, label = open_cells(rows), monitor.schema.label
        table_scores(monitor.schema, cells, invalid="error", first=first)
        if label is not None:
            label_scores(label, [row.get(label.name) for row in rows], "error", first)

    def labels(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Return the label of each row, None for a row without one."""
        label = self._required().schema.label
        if label is None:
            return [None] * len(rows)
        cells = [row.get(label.name) for row in rows]
        missing = np.isnan(label_scores(label, cells, "missing", None)[0])
        return [None if absent else cell for cell, absent in zip(cells, missing.tolist(), strict=True)]

    def check_label(self, y: Any) -> None:
        """Raise ``ValueError`` unless this is a label that may come later than its row."""
        label = self._required().schema.label
        if label is None or np.isnan(label_scores(label, [y], "error", None)[0][0]):
            raise ValueError(f"y must be a label, got {y!r}")

    @property
    def clock(self) -> float | None:
        """The latest time of a row or a label, if labels may come later."""
        queue = None if self.monitor is None else self.monitor._queue
        return None if queue is None else queue._latest

    @property
    def left_out(self) -> LeftOut:
        """Counts of the rows that the lines of the label have left out."""
        return LeftOut() if self.monitor is None else copy.deepcopy(self.monitor.left_out)

    @property
    def first_waiting(self) -> str | int | None:
        """The id of the first row that waits for its label, or for those of earlier rows."""
        queue = None if self.monitor is None else self.monitor._queue
        return None if queue is None else next(iter(queue._queue), None)

    def is_waiting(self, id: str) -> bool:  # noqa: A002
        """Whether a row waits for its label, or for those of earlier rows."""
        queue = None if self.monitor is None else self.monitor._queue
        return queue is not None and id in queue._queue

    def has_expired(self, id: str) -> bool:  # noqa: A002
        """Whether a row was left out because its label had not come within the wait."""
        queue = None if self.monitor is None else self.monitor._queue
        return queue is not None and id in queue._expired

    def label(self, event: LabelEvent) -> bool:
        """Give a row its label; return whether this has raised an alarm.

        A row that the monitor no longer knows, since it was left out long before, gets no label.
        """
        monitor = self._required()
        before, queue = (monitor.alarm_at, monitor.test), monitor._queue
        if queue is None or not any(event.id in known for known in (queue._queue, queue._expired, monitor._dropped)):
            return False
        if event.never:
            monitor.never(event.id)
        else:
            monitor.label(event.id, event.y, time=event.time)
        return (monitor.alarm_at, monitor.test) != before

    def replay(self, rows: list[dict[str, Any]], late: LateRows, events: deque[LabelEvent]) -> None:
        """Consume rows, and the labels that came between them: events are removed as they are consumed."""
        while rows:
            while events and events[0].n <= self.n:
                self.label(events.popleft())
            count = min(events[0].n - self.n, len(rows)) if events else len(rows)
            self.extend(rows[:count], late.part(slice(0, count)))
            rows, late = rows[count:], late.part(slice(count, None))

    def extend(self, rows: list[dict[str, Any]], late: LateRows | None = None) -> RowPath:
        """Consume rows, in parts after which the evidence of each column and view is recorded."""
        monitor, paths, evidence, done = self._required(), [], {}, 0
        while done < len(rows):
            size = part_size(monitor.n)
            part = slice(done, done + size - monitor.n % size)
            paths.append(monitor.extend(rows[part], *(() if late is None else late.part(part))))
            done += len(paths[-1].n)
            if monitor.n % part_size(monitor.n) == 0:
                evidence[self.n] = {finding.name: finding.log10_evidence for finding in monitor.explain()}
        n, log_value, alarm = (np.concatenate([path[k] for path in paths]) for k in range(3))
        lowest = [self.changepoint if i == monitor.alarm_at or self.on_alarm == "latch" else None for i in n.tolist()]
        return RowPath(self.start + n, log_value, alarm, lowest, evidence)

    @property
    def columns(self) -> int:
        """The number of columns that are tested."""
        return 0 if self.monitor is None else len(self.monitor.schema.columns)

    def state(self) -> dict[str, Any]:
        """Return what the state of the stream says of its columns."""
        rejected = [] if self.monitor is None else self.monitor.rejected_by
        return {
            "reference": self.monitor is not None,
            "columns": self.columns,
            "rejected_by": rejected[:MAX_NAMES],
            "rejected": len(rejected),
            "invalid_cells": 0 if self.monitor is None else self.monitor.invalid_cells,
        }

    def describe(self) -> tuple[int, dict[str, Any], list[ColumnConstants]]:
        """Describe the columns and views, the strongest first; return also the number of rows, and the constants."""
        if self.monitor is None:
            return self.n, {"columns": [], "aside": {}}, []
        schema = self.monitor.schema
        return self.n, {"columns": self._lines(self.monitor), "aside": dict(schema.aside)}, list(schema.columns)

    def _lines(self, monitor: TableMonitor) -> list[dict[str, Any]]:
        """Describe each column and view."""
        lines = []
        for finding in monitor.explain():
            counted = {key: self._count(getattr(finding, key)) for key in ("alarm_at", "changepoint")}
            rows = [self.start + n for n in finding.rows]
            lines.append({**finding._asdict(), **counted, "part": finding.part, "rows": rows})
        return lines

    def encode(self) -> bytes:
        """Return the test as bytes: the number of earlier rows in a line, and the snapshot of the monitor."""
        head = json.dumps({"start": self.start}).encode()
        return head + b"\n" + (b"" if self.monitor is None else snapshot.encode(self.monitor))

    @classmethod
    def decode(cls, data: bytes, on_alarm: str) -> TableTest:
        """Return a test from bytes, or raise ``ValueError``."""
        head, _, body = data.partition(b"\n")
        try:
            start = json.loads(head)["start"]
        except (KeyError, TypeError, ValueError):
            start = None
        if type(start) is not int or not 0 <= start < 2**52:
            raise ValueError("its snapshot is of another kind of monitor")
        monitor = snapshot.decode(body) if body else None
        if monitor is not None and not isinstance(monitor, TableMonitor):
            raise ValueError("its snapshot is of another kind of monitor")
        return cls(monitor, on_alarm, start)


def part_size(n: int) -> int:
    """Return how many rows lie between two records of the evidence of columns, so that there are at most 64.

    >>> part_size(100), part_size(100_000)
    (64, 2048)
    """
    return MIN_PART << max(0, (n // (MIN_PART * 64)).bit_length())
