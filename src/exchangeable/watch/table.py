"""The main loop of a watch of rows with named columns, which are compared with a reference table."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from exchangeable.data.events.errors import LineError
from exchangeable.table_monitor import TableMonitor
from exchangeable.watch.loop import Loop
from exchangeable.watch.rows import LateLabel, Row, RowBatch, RowReader
from exchangeable.watch.source import Block, Signals, Source, Stopped
from exchangeable.watch.state import StateFile

MOST = 512  # rows in one batch
REPLAYED = 1024  # rows after which the monitor is copied again, to be able to return to a row that raised the alarm

Item = Row | LateLabel


class TableWatch(Loop):
    """Reads rows and late labels, and writes a line for each new alarm, for every N-th row, and at the end.

    A batch may go past the row that raises an alarm. The line is about that row, so the loop then returns to a copy of
    the monitor, at most `REPLAYED` rows older, and consumes the rows up to the alarm again: any split into batches
    gives the same numbers.
    """

    def __init__(
        self,
        monitor: TableMonitor,
        reader: RowReader,
        source: Source,
        out: BinaryIO,
        *,
        every: int | None = None,
        alarms_only: bool = False,
        quiet: bool = False,
        state: StateFile | None = None,
        save_every: float = 5.0,
    ) -> None:
        super().__init__(monitor, reader, source, out, state=state, save_every=save_every)
        self.monitor = monitor
        self.reader = reader
        self.every = every
        self.alarms_only = alarms_only
        self.quiet = quiet
        self._is_written = False  # whether a line about the present state has been written
        self._copy: TableMonitor | None = None
        self._since: list[Item] = []  # what was consumed since the copy

    def run(self, signals: Signals) -> bool:
        """Run as `Loop` does, and write a last line about all rows so far."""
        try:
            alarm = super().run(signals)
        except (LineError, Stopped):
            self._write_end()
            raise
        self._write_end()
        return alarm

    def _write_end(self) -> None:
        if self.monitor.n and not (self._is_written or self.alarms_only or self.quiet):
            self._emit([self._line()])

    def _test(self, block: Block) -> LineError | None:
        batch = self._new_rows(self.reader.read(block.lines, block.first))
        lines: list[str] = []
        done, size = 0, MOST
        while done < len(batch.items):
            items = self._next(batch.items[done : done + size])
            try:
                done += self._consume(items, lines)
            except ValueError as error:
                if len(items) == 1:
                    self._emit(lines)
                    return LineError(batch.line[done], str(error))
                size = len(items) // 2  # to find the invalid line
        self._emit(lines)
        return batch.fault

    def _new_rows(self, batch: RowBatch) -> RowBatch:
        """Drop the rows whose sequence number was seen before, and stop at a gap."""
        rows = [(i, item.seq) for i, item in enumerate(batch.items) if isinstance(item, Row)]
        if all(seq is None for _, seq in rows):
            return batch
        steps, fault = self._new_numbers([seq for _, seq in rows], [batch.line[i] for i, _ in rows])
        dropped = {i for i, _ in rows} - {rows[step][0] for step in steps}
        kept = [i for i, line in enumerate(batch.line) if i not in dropped and (fault is None or line < fault.line)]
        return RowBatch([batch.line[i] for i in kept], [batch.items[i] for i in kept], fault or batch.fault)

    def _next(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return a late label, or the rows with the same columns up to the next line that is written."""
        if isinstance(items[0], LateLabel):
            return items[:1]
        size = len(items) if self.every is None else self.every - self.monitor.n % self.every
        return items[: min(size, _run_length(items))]

    def _consume(self, items: Sequence[Item], lines: list[str]) -> int:
        """Consume items up to a new alarm; return how many were consumed."""
        if self._latched:
            _apply(self.monitor, items)
            self._report(lines, False)
            return len(items)
        if self._copy is None or len(self._since) > REPLAYED:
            self._copy, self._since = copy.deepcopy(self.monitor), []
        at = _apply(self.monitor, items)
        if at is None:
            self._since += items
            self._report(lines, False)
            return len(items)
        self._since += items[: at + 1]
        if at < len(items) - 1:
            self.monitor = self.tracker = _replay(self._copy, self._since)
        self._report(lines, True)
        self._copy, self._since, self._alarm_raised = None, [], True
        return at + 1

    @property
    def _latched(self) -> bool:
        return self.monitor.on_alarm == "latch" and self.monitor.alarm_at is not None

    def _report(self, lines: list[str], new_alarm: bool) -> None:
        """Add the line about the present state, if there is to be one."""
        due = self.every is not None and self.monitor.n % self.every == 0 and not self.alarms_only
        self._is_written = (new_alarm or due) and not self.quiet
        if self._is_written:
            lines.append(self._line(new_alarm))

    def _line(self, new_alarm: bool = False) -> str:
        """Return the line about the present state; after a restart, with the evidence of the test that has ended."""
        monitor = self.monitor
        findings = (monitor.alarm_explanation if new_alarm else None) or monitor.explain()
        record: dict[str, Any] = {
            "n": monitor.n,
            "log10_evidence": _finite(max(finding.log10_evidence for finding in findings)),
            "alarm": new_alarm or self._latched,
            "alarm_at": monitor.alarm_at,
            "changepoint": monitor.changepoint,
            "rejected_by": monitor.rejected_by,
            "columns": {f.name: _finite(f.log10_evidence) for f in findings if f.rejected or f.log10_evidence > 0.0},
        }
        if monitor.bins is None:
            record["stopped"] = monitor.stopped
        if monitor.invalid == "missing":
            record["invalid_cells"] = monitor.invalid_cells
        if monitor.wait is not None:
            record |= {"waiting": len(monitor.waiting), "ignored_labels": monitor.ignored_labels}
        return json.dumps(record) + "\n"


def _finite(log10: float) -> float | None:
    return None if log10 == -math.inf else log10


def _run_length(items: Sequence[Item]) -> int:
    """Return how many items from the first on are rows with the same columns."""
    first = items[0]
    assert isinstance(first, Row)  # noqa: S101
    for i, item in enumerate(items):
        if isinstance(item, LateLabel) or item.cells.keys() != first.cells.keys():
            return i
    return len(items)


def _apply(monitor: TableMonitor, items: Sequence[Item]) -> int | None:
    """Consume a late label, or rows with the same columns; return the position of the first new alarm, if any."""
    before, test, first = monitor.alarm_at, monitor.test, items[0]
    if isinstance(first, LateLabel):
        monitor.label(first.id, first.y, time=first.time)
        return 0 if (monitor.alarm_at, monitor.test) != (before, test) else None
    rows = [item for item in items if isinstance(item, Row)]
    if len(rows) == 1:
        alarm = np.array([monitor.update(first.cells, first.id, first.time).alarm])
    else:
        cells = {name: [row.cells[name] for row in rows] for name in first.cells}
        late = monitor.wait is not None
        ids, times = [row.id for row in rows] if late else None, [row.time for row in rows] if late else None
        alarm = monitor.extend(cells, ids, times).alarm  # type: ignore[arg-type]
    new = bool(alarm.any()) and (monitor.on_alarm == "restart" or before is None)
    return int(alarm.argmax()) if new else None


def _replay(monitor: TableMonitor, items: Sequence[Item]) -> TableMonitor:
    """Return a copy of a monitor that has consumed these items."""
    monitor, done = copy.deepcopy(monitor), 0
    while done < len(items):
        size = 1 if isinstance(items[done], LateLabel) else _run_length(items[done:])
        _apply(monitor, items[done : done + size])
        done += size
    return monitor
