"""Accepting observations and labels: test what is ready, store the steps, and record alarms."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from typing import Any

from exchangeable.martingale import LN10
from exchangeable.service import history, late_rows
from exchangeable.service.announcements import Announcements
from exchangeable.service.batch import Plan, steps_of
from exchangeable.service.late_rows import RowLabels, follow, label_rows
from exchangeable.service.lookahead import Lookahead
from exchangeable.service.parsing import Batch
from exchangeable.service.schema import dump_json
from exchangeable.service.server_config import Retention, Settings
from exchangeable.service.stream import LiveStream, Slices, finish, p_values
from exchangeable.service.stream_cache import StreamCache
from exchangeable.service.table_test import RowPath
from exchangeable.service.table_values import record_evidence

SNAPSHOT_BYTES_PER_STEP = 32  # written for a snapshot, at most, per step since the previous one
PRUNE_STEPS = 16 * history.BLOCK  # old steps are deleted when there are this many
PRUNE_LABELS = 1_024  # the same for labels, which are rows of their own


class Ingest:
    """The operations that advance a stream, in transactions of the writer thread; `computing` runs before them."""

    def __init__(
        self, streams: StreamCache, lookahead: Lookahead, announcements: Announcements, settings: Settings
    ) -> None:
        self._streams = streams
        self._lookahead = lookahead
        self._announcements = announcements
        self._settings = settings

    def configure(self, settings: Settings) -> None:
        """Take over new settings."""
        self._settings = settings

    def observe(self, connection: sqlite3.Connection, name: str, batch: Batch, now: float) -> dict[str, Any]:
        """Accept observations, all or none; return the counts and the state."""
        return self.commit(connection, self._lookahead.take(connection, name, batch, now))

    def computing(self, plan: Plan) -> Slices[Plan]:
        """Compute the steps of a plan ahead, in slices, and encode what will be stored."""
        if plan.labels is not None:
            plan.alarms = yield from label_rows(plan.queue, plan.labels, plan.counts)
        elif len(plan.ready.seq):
            path = yield from steps_of(plan.stream, plan.ready)
            plan.path = lambda: path
            plan.columns = dump_json(plan.ready.columns) if plan.ready.columns else None
            yield
        else:
            return plan
        if self.is_snapshot_due(plan.stream, plan.stream.monitor.n):
            plan.snapshot = plan.stream.encode()
        return plan

    def commit(self, connection: sqlite3.Connection, plan: Plan) -> dict[str, Any]:
        """Store what a plan changes, and announce it; return the reply."""
        stream, new, points = plan.stream, plan.new, None
        with self._streams.changing(stream):
            stream.duplicates += plan.counts["duplicates"] if new is not None else 0
            if new:
                self._prune_labels(connection, stream, stream.next_seq + len(new))
                stream.next_seq += len(new)
                stream.observations += len(new)
                stream.observed_at, stream.width = time.time(), new.x.shape[1]
            if plan.labels is not None:
                self._store_labels(connection, plan, plan.labels)
            else:
                plan.queue.store(connection)
            if len(plan.ready.seq):
                points = self._store_steps(connection, plan)
            stream.update_row(connection)
        summary = self._announcements.add(stream, points)
        reply = {**plan.counts, **{key: summary[key] for key in ("next_seq", "state", "waiting", "expired")}}
        if new is None:
            return reply
        numbers = new.seq[[0, -1]].tolist() if len(new) else [None, None]
        return {**reply, "first_seq": numbers[0], "last_seq": numbers[1]}

    def _store_labels(self, connection: sqlite3.Connection, plan: Plan, labels: RowLabels) -> None:
        """Let the lines of the label use rows whose labels have come, unless that was done ahead; store the labels."""
        alarms = finish(label_rows(plan.queue, labels, plan.counts)) if plan.alarms is None else plan.alarms
        late_rows.store(connection, plan.queue)
        for alarm in alarms:
            self._announcements.record_alarms(connection, plan.stream, alarm)
        self._save_and_prune(connection, plan)

    def _store_steps(self, connection: sqlite3.Connection, plan: Plan) -> history.Points:
        """Test observations, unless that was done ahead, and store the steps."""
        stream, ready = plan.stream, plan.ready
        path = finish(steps_of(stream, ready)) if plan.path is None else plan.path()
        log10, p = path.log_value / LN10, p_values(path)
        stream.tail = history.append(
            connection,
            stream.id,
            stream.tail,
            p,
            log10,
            x=ready.x,
            seq=ready.seq,
            extra=ready.columns,
            encoded=plan.columns,
        )
        steps = range(stream.tail.n - len(ready.seq) + 1, stream.tail.n + 1)
        history.record(connection, stream.id, steps, time.time(), ready.columns.get("time"))
        stream.count_steps(path)
        if isinstance(path, RowPath) and path.evidence:
            record_evidence(connection, stream.id, path)
        self._announcements.record_alarms(connection, stream, path)
        if ready.late is not None:
            follow(connection, stream)
        self._save_and_prune(connection, plan)
        return history.Points(path.n, log10, p, True, 1)

    def is_snapshot_due(self, stream: LiveStream, n: int) -> bool:
        """Return whether there are enough steps since the last snapshot, or will be at step n."""
        min_steps = max(
            self._settings.snapshot_every, stream.snapshot_bytes // (SNAPSHOT_BYTES_PER_STEP * stream.width_of_steps)
        )
        return n - stream.snapshot_n + stream.label_events >= min_steps

    def _save_and_prune(self, connection: sqlite3.Connection, plan: Plan) -> None:
        """Save a snapshot if there were enough steps since the last one, and delete steps that need not be retained."""
        if self.is_snapshot_due(plan.stream, plan.stream.monitor.n):
            plan.stream.save_snapshot(connection, plan.snapshot)
        self._prune(connection, plan.stream, PRUNE_STEPS)

    def prune(self, connection: sqlite3.Connection, stream: LiveStream) -> bool:
        """Delete steps and labels that need not be retained, in a portion; return whether there may be more of them."""
        with self._streams.changing(stream):
            before = stream.kept
            self._prune(connection, stream, history.BLOCK)
            if stream.configuration.takes_labels:
                self._delete_labels(connection, stream, stream.next_seq)
            stream.update_row(connection)
        return stream.kept > before

    def _prune(self, connection: sqlite3.Connection, stream: LiveStream, min_steps: int) -> None:
        """Delete a portion of the steps that need not be retained, if there are this many."""
        n, retention = stream.monitor.n, self._retention(stream)
        keep_from = min(n - retention.observations, stream.snapshot_n) + 1
        if keep_from - stream.kept >= min_steps:
            portion = 4 * PRUNE_STEPS + self._settings.limits.batch  # more than the steps of one row
            keep_from = min(keep_from, stream.kept + portion)
            history.prune_times(connection, stream.id, stream.kept, keep_from)
            stream.kept = history.prune(connection, stream.id, keep_from, n - retention.rollups + 1)

    def _retention(self, stream: LiveStream) -> Retention:
        """Return the retention of a stream: its own, or that of the settings."""
        return replace(self._settings.retention, **stream.retention) if stream.retention else self._settings.retention

    def _prune_labels(self, connection: sqlite3.Connection, stream: LiveStream, next_seq: int) -> None:
        """Delete labels and expired observations that need not be retained, at every multiple of ``PRUNE_LABELS``."""
        if stream.configuration.takes_labels and next_seq // PRUNE_LABELS != stream.next_seq // PRUNE_LABELS:
            self._delete_labels(connection, stream, next_seq)

    def _delete_labels(self, connection: sqlite3.Connection, stream: LiveStream, next_seq: int) -> None:
        seq = next_seq - self._retention(stream).observations
        for table in ("labels", "expired"):
            connection.execute(f"DELETE FROM main.{table} WHERE stream = ? AND seq < ?", (stream.id, seq))  # noqa: S608
