"""The engine: the requests that change or read streams, each served by the writer thread in the order of arrival."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from exchangeable.data.events.schema import LateLabel
from exchangeable.service.batch import no_reference, plan_batch, plan_labels
from exchangeable.service.bulk import NewStream
from exchangeable.service.clock import server_clock
from exchangeable.service.costs import batch_cost, configuration_cost, labels_cost, reset_cost, state_cost
from exchangeable.service.ingest import Ingest
from exchangeable.service.lifecycle import Lifecycle, Reference
from exchangeable.service.metrics import Load
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.row_fields import RowFields
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream import LiveStream
from exchangeable.service.stream_config import Configuration
from exchangeable.service.writer import Job, Publish, Task, Writer
from exchangeable.table_monitor.constants import ColumnConstants

T = TypeVar("T")
NUMBERS_PER_ROW = 8  # numbers of an observation that count as one row in the queue


class Engine(Writer):
    """The requests that may be made from any thread. The future of a request is done when it is committed."""

    def __init__(self, store: Store, settings: Settings, publish: Publish) -> None:
        super().__init__(store, settings, publish)
        with store.read() as connection:
            self.clock: Callable[[], float] = server_clock(connection)
        self.lifecycle: Lifecycle = Lifecycle(self.streams, self.announcements, settings)
        self.ingest: Ingest = Ingest(self.streams, self.lookahead, self.announcements, settings)

    def configure(self, settings: Settings) -> None:
        """Take over new settings, from the next request on."""
        self.settings = settings
        self.streams.capacity, self.streams.max_bytes = settings.live_streams, settings.live_bytes
        self.announcements.webhooks = settings.receivers
        self.lifecycle.configure(settings)
        self.ingest.configure(settings)

    def answer(self) -> Future[None]:
        """Do nothing in the writer thread: the result shows that it serves its queue."""
        return self.submit(Job(lambda connection: None, writes=False), limited=False)

    def load(self) -> Load:
        """Return what the engine does at the moment."""
        return Load(self.queued_rows, self.queued_requests, self.busy_seconds, len(self.streams), self.streams.bytes)

    def create(self, name: str, configuration: Configuration) -> Future[tuple[bool, dict[str, Any]]]:
        """Create a stream unless it exists; the result is whether it is new, and its description."""
        task = Task(
            cost=lambda stream: configuration_cost(configuration),
            plan=lambda connection, stream: self.lifecycle.plan_creation(connection, name, configuration),
            finish=lambda connection, creation: self.lifecycle.create(connection, name, creation),
            loads=False,
        )
        return self._submit(name, task, grows=True)

    def create_many(self, streams: Sequence[NewStream]) -> Future[list[bool | Problem]]:
        """Create streams unless they exist; the result says of each whether it is new, or why it was rejected."""
        return self.submit(Job(lambda connection: self.lifecycle.create_many(connection, streams), grows=True))

    def set_reference(self, name: str, reference: Reference) -> Future[tuple[bool, dict[str, Any]]]:
        """Give a stream of rows its reference; the result is whether it is new, and the stream's description."""
        work = lambda connection: self.lifecycle.set_reference(connection, name, reference)  # noqa: E731
        return self.submit(Job(work, stream=name, grows=True))

    def set_retention(self, name: str, retention: dict[str, int]) -> Future[dict[str, Any]]:
        """Change how much history of a stream is kept, and delete the rest; the result is the stream's description."""

        def finish(connection: sqlite3.Connection, planned: tuple[LiveStream, bytes]) -> dict[str, Any]:
            description = self.lifecycle.set_retention(connection, planned[0], retention, planned[1])
            self._prune(connection, planned[0])
            return description

        task = Task(cost=state_cost, plan=lambda connection, stream: (stream, stream.encode()), finish=finish)
        return self._submit(name, task, frees=True)

    def _prune(self, connection: sqlite3.Connection, stream: LiveStream) -> None:
        """Delete history that need not be retained, in portions: each is a job behind the requests of clients."""
        if self.ingest.prune(connection, stream):
            task = Task(cost=lambda stream: 0, plan=lambda connection, stream: stream, finish=self._prune)
            with suppress(Problem):  # the server is stopping or busy: the rest is deleted with later observations
                self._submit(stream.name, task, frees=True)

    def columns(self, name: str) -> Future[tuple[int, dict[str, Any], list[ColumnConstants]]]:
        """Describe the columns and views of a stream of rows."""
        return self._read_stream(name, lambda connection, stream: stream.describe_columns())

    def schema(self, name: str) -> Future[RowFields]:
        """Return the columns of a stream of rows; at once if the stream is in memory."""
        known, done = self.streams.peek(name), Future[RowFields]()
        if known is not None and known.row_fields is not None:
            done.set_result(known.row_fields)
            return done

        def read(connection: sqlite3.Connection, stream: LiveStream) -> RowFields:
            if stream.row_fields is None:
                raise no_reference(name)
            return stream.row_fields

        task = Task(cost=lambda stream: 0, plan=read, finish=lambda connection, fields: fields)
        return self._submit(name, task, writes=False)

    def delete(self, name: str) -> Future[None]:
        """Delete a stream and its history. Its position in the fleet and the number of its tests are kept."""
        return self.submit(Job(lambda connection: self.lifecycle.delete(connection, name), stream=name, frees=True))

    def reset(self, name: str) -> Future[dict[str, Any]]:
        """Start a new test with the next observation; the result is the stream's description."""
        task = Task(
            cost=lambda stream: self._reset_cost(name),
            plan=lambda connection, stream: self.lifecycle.plan_reset(connection, name),
            finish=lambda connection, planned: self.lifecycle.reset(connection, name, planned),
            loads=False,
        )
        return self._submit(name, task, frees=True)

    def observe(self, name: str, batch: Batch) -> Future[dict[str, Any]]:
        """Accept observations; the result is how many were new, and the state."""
        now = self.clock()
        task = Task(
            cost=lambda stream: batch_cost(stream, batch) + self._snapshot_cost(stream, len(batch)),
            plan=lambda connection, stream: plan_batch(connection, stream, batch, now),
            compute=self.ingest.computing,
            finish=self.ingest.commit,
        )
        rows = max(len(batch), batch.x.size // NUMBERS_PER_ROW)
        work = lambda connection: self.ingest.observe(connection, name, batch, now)  # noqa: E731
        return self.submit(Job(work, rows, stream=name, batch=batch, now=now, task=task, grows=True))

    def label(self, name: str, labels: list[LateLabel]) -> Future[dict[str, Any]]:
        """Accept labels of waiting observations; the result is how many were new, and the state."""
        now = self.clock()
        task = Task(
            cost=lambda stream: (
                labels_cost(stream, len(labels)) + self._snapshot_cost(stream, stream.waiting + len(labels))
            ),
            plan=lambda connection, stream: plan_labels(connection, stream, labels, now),
            compute=self.ingest.computing,
            finish=self.ingest.commit,
        )
        return self._submit(name, task, rows=len(labels), grows=True)

    def _reset_cost(self, name: str) -> int:
        with self.store.read() as connection:
            return reset_cost(connection, name)

    def _snapshot_cost(self, stream: LiveStream, steps: int) -> int:
        due = self.ingest.is_snapshot_due(stream, stream.monitor.n + steps)
        return state_cost(stream) if due else 0

    def export(self, name: str) -> Future[bytes]:
        """Encode the monitor of a stream."""
        return self._read_stream(name, lambda connection, stream: stream.export())

    def bet(self, name: str) -> Future[dict[str, Any]]:
        """Describe the betting function for the next p-value, and the p-values of this test."""
        return self._read_stream(name, lambda connection, stream: stream.describe_bet(connection))

    def band(self, name: str, start: int, to: int) -> Future[dict[str, Any] | None]:
        """Describe the mean loss and its interval between two steps; None unless the risk is monitored."""
        return self._read_stream(name, lambda connection, stream: stream.describe_band(start, to))

    def _read_stream(self, name: str, read: Callable[[sqlite3.Connection, LiveStream], T]) -> Future[T]:
        """Read the monitor of a stream."""
        task = Task(cost=state_cost, plan=read, finish=lambda connection, read: read)
        return self._submit(name, task, writes=False)

    def _submit(self, name: str, task: Task, **more: Any) -> Future[Any]:
        return self.submit(
            Job(lambda connection: self.serve_now(connection, name, task), stream=name, task=task, **more)
        )
