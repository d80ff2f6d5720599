"""Computing the steps of queued batches in other threads while the database is written."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Set
from concurrent.futures import ThreadPoolExecutor

from exchangeable.service.batch import CheckedBatch, check_batch
from exchangeable.service.parsing import Batch
from exchangeable.service.stream_cache import StreamCache

MAX_THREADS = 8


class Lookahead:
    """Extends the monitors of several streams at a time, since the compiled loops release the interpreter lock.

    A monitor that is extended ahead of the database must not be read by anything else until its batch is served.
    """

    def __init__(self, streams: StreamCache) -> None:
        self._streams = streams
        self._started: dict[str, CheckedBatch] = {}
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, MAX_THREADS), "exchangeable-bets")

    @property
    def names(self) -> Set[str]:
        """The streams whose monitors are extended ahead."""
        return self._started.keys()

    def start(
        self,
        connection: sqlite3.Connection,
        requests: Iterable[tuple[str | None, Batch | None]],
        busy: Set[str | None] = frozenset(),
    ) -> None:
        """Start on the first batch of each stream that is not busy.

        A request without a batch may concern any stream, so it and all after it are left for later.
        """
        skipped = {*busy, *self._started}
        for name, batch in requests:
            if name is None or batch is None:
                return
            if name not in skipped:
                skipped.add(name)
                self._start(connection, name, batch)

    def _start(self, connection: sqlite3.Connection, name: str, batch: Batch) -> None:
        try:
            stream = self._streams.get(connection, name)
            if stream.configuration.needs_labels:  # the observations may have to wait
                return
            checked = check_batch(connection, stream, batch, now=0.0)
        except sqlite3.Error:
            raise
        except Exception:  # noqa: BLE001 - the request is rejected when it is served
            return
        if len(checked.new):
            path = self._pool.submit(stream.extend, checked.new.x)
            self._started[name] = checked._replace(path=path)

    def take(self, connection: sqlite3.Connection, name: str, batch: Batch, now: float) -> CheckedBatch:
        """Return a checked batch, with its steps if they were computed ahead."""
        started = self._started.pop(name, None)
        stream = self._streams.get(connection, name)
        if started is not None and started.stream is stream:
            if started.batch is batch:
                return started
            self._streams.drop(name)  # its monitor was extended by another batch, which was never served
            stream = self._streams.get(connection, name)
        return check_batch(connection, stream, batch, now)

    def clear(self) -> None:
        """Discard everything that was started."""
        self._started.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()
