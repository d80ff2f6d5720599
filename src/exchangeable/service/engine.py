"""The engine: the requests that change or read streams, each served by the writer thread in the order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from exchangeable import snapshot
from exchangeable.data.events.schema import LateLabel
from exchangeable.service.clock import server_clock
from exchangeable.service.ingest import Ingest
from exchangeable.service.lifecycle import Lifecycle
from exchangeable.service.parsing import Batch
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_config import Configuration
from exchangeable.service.writer import Job, Publish, Writer

NUMBERS_PER_ROW = 8  # numbers of an observation that count as one row in the queue


class Engine(Writer):
    """The requests that may be made from any thread. The future of a request is done when it is committed."""

    def __init__(self, store: Store, settings: Settings, publish: Publish) -> None:
        super().__init__(store, settings, publish)
        with store.read() as connection:
            self.clock: Callable[[], float] = server_clock(connection)
        self.lifecycle: Lifecycle = Lifecycle(self.streams, self.announcements, settings)
        self.ingest: Ingest = Ingest(self.streams, self.lookahead, self.announcements, settings)

    def create(self, name: str, configuration: Configuration) -> Future[tuple[bool, dict[str, Any]]]:
        """Create a stream unless it exists; the result is whether it is new, and its description."""
        return self.submit(Job(lambda connection: self.lifecycle.create(connection, name, configuration)))

    def delete(self, name: str) -> Future[None]:
        """Delete a stream and its history. Its position in the fleet and the number of its tests are kept."""
        return self.submit(Job(lambda connection: self.lifecycle.delete(connection, name)))

    def reset(self, name: str) -> Future[dict[str, Any]]:
        """Start a new test with the next observation; the result is the stream's description."""
        return self.submit(Job(lambda connection: self.lifecycle.reset(connection, name)))

    def observe(self, name: str, batch: Batch) -> Future[dict[str, Any]]:
        """Accept observations; the result is how many were new, and the state."""
        now = self.clock()
        rows = max(len(batch), batch.x.size // NUMBERS_PER_ROW)
        work = lambda connection: self.ingest.observe(connection, name, batch, now)  # noqa: E731
        return self.submit(Job(work, rows, stream=name, batch=batch))

    def label(self, name: str, labels: list[LateLabel]) -> Future[dict[str, Any]]:
        """Accept labels of waiting observations; the result is how many were new, and the state."""
        now = self.clock()
        return self.submit(Job(lambda connection: self.ingest.label(connection, name, labels, now), len(labels)))

    def export(self, name: str) -> Future[bytes]:
        """Encode the monitor of a stream."""
        work = lambda connection: snapshot.encode(self.streams.get(connection, name).monitor)  # noqa: E731
        return self.submit(Job(work, writes=False, stream=name))

    def bet(self, name: str) -> Future[dict[str, Any]]:
        """Describe the betting function for the next p-value, and the p-values of this test."""
        work = lambda connection: self.streams.get(connection, name).describe_bet(connection)  # noqa: E731
        return self.submit(Job(work, writes=False, stream=name))
