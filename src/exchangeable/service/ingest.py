"""Accepting observations and labels: test what is ready, store the steps, and record alarms."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import Future
from typing import Any

from exchangeable.data.events.schema import LateLabel
from exchangeable.martingale import LN10
from exchangeable.service import history
from exchangeable.service.announcements import Announcements
from exchangeable.service.late_labels import LabelQueue, Ready
from exchangeable.service.lookahead import Lookahead
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Settings
from exchangeable.service.stream import AnyPath, LiveStream, p_values
from exchangeable.service.stream_cache import StreamCache

SNAPSHOT_BYTES_PER_STEP = 32  # written for a snapshot, at most, per step since the previous one
PRUNE_STEPS = 16 * history.BLOCK  # old steps are deleted when there are this many


class Ingest:
    """The operations that advance a stream. Each runs in a transaction of the writer thread."""

    def __init__(
        self, streams: StreamCache, lookahead: Lookahead, announcements: Announcements, settings: Settings
    ) -> None:
        self._streams = streams
        self._lookahead = lookahead
        self._announcements = announcements
        self._settings = settings

    def observe(self, connection: sqlite3.Connection, name: str, batch: Batch, now: float) -> dict[str, Any]:
        """Accept observations, all or none; return the counts and the state."""
        stream, _, new, duplicates, path = self._lookahead.take(connection, name, batch, now)
        with self._streams.changing(stream):
            stream.duplicates += duplicates
            if len(new):
                self._prune_labels(connection, stream, stream.next_seq + len(new))
                stream.next_seq += len(new)
                stream.observations += len(new)
                stream.observed_at, stream.width = time.time(), new.x.shape[1]
            ready = LabelQueue(connection, stream, now).add(new)
            points = self._test(connection, stream, ready, path)
        return self._finish(connection, stream, points, accepted=len(new), duplicates=duplicates)

    def label(self, connection: sqlite3.Connection, name: str, labels: list[LateLabel], now: float) -> dict[str, Any]:
        """Accept labels of waiting observations, all or none; return the counts and the state."""
        stream = self._streams.get(connection, name)
        if not stream.configuration.needs_labels:
            kind = stream.configuration.measure.kind
            raise Problem(409, "conflict", f"stream {name!r} does not use labels: its measure is {kind}")
        queue = LabelQueue(connection, stream, now)
        counts = queue.label(labels)
        with self._streams.changing(stream):
            points = self._test(connection, stream, queue.release())
        return self._finish(connection, stream, points, **counts)

    def _finish(
        self, connection: sqlite3.Connection, stream: LiveStream, points: history.Points | None, **counts: int
    ) -> dict[str, Any]:
        """Store the counters, announce the change, and return the reply."""
        stream.update_row(connection)
        summary = self._announcements.add(stream, points)
        return {**counts, **{key: summary[key] for key in ("next_seq", "state", "waiting", "expired")}}

    def _test(
        self, connection: sqlite3.Connection, stream: LiveStream, ready: Ready, ahead: Future[AnyPath] | None = None
    ) -> history.Points | None:
        """Test observations, unless that was done ahead, and store the steps."""
        if not len(ready.seq):
            return None
        try:
            path = stream.extend(ready.x, ready.y) if ahead is None else ahead.result()
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error}") from error
        log10, p = path.log_value / LN10, p_values(path)
        stream.tail = history.append(
            connection, stream.id, stream.tail, p, log10, x=ready.x, seq=ready.seq, extra=ready.columns
        )
        stream.count_steps(path)
        self._announcements.record_alarms(connection, stream, path)
        self._save_and_prune(connection, stream)
        return history.Points(path.n, log10, p, True, 1)

    def _save_and_prune(self, connection: sqlite3.Connection, stream: LiveStream) -> None:
        """Save a snapshot if there were enough steps since the last one, and delete steps that need not be retained."""
        n, retention = stream.monitor.n, self._settings.retention
        min_steps = max(self._settings.snapshot_every, stream.snapshot_bytes // SNAPSHOT_BYTES_PER_STEP)
        if n - stream.snapshot_n >= min_steps:
            stream.save_snapshot(connection)
        keep_from = min(n - retention.observations, stream.snapshot_n) + 1
        if keep_from - stream.kept >= PRUNE_STEPS:
            keep_from = min(keep_from, stream.kept + 4 * PRUNE_STEPS)  # in small portions
            stream.kept = history.prune(connection, stream.id, keep_from, n - retention.rollups + 1)

    def _prune_labels(self, connection: sqlite3.Connection, stream: LiveStream, next_seq: int) -> None:
        """Delete labels and expired observations that need not be retained, at every multiple of ``PRUNE_STEPS``."""
        if stream.configuration.needs_labels and next_seq // PRUNE_STEPS != stream.next_seq // PRUNE_STEPS:
            seq = next_seq - self._settings.retention.observations
            for table in ("labels", "expired"):
                connection.execute(f"DELETE FROM {table} WHERE stream = ? AND seq < ?", (stream.id, seq))  # noqa: S608
