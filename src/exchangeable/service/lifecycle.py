"""Creating, resetting and deleting streams."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from exchangeable.pvalues import draw_seed
from exchangeable.service import fleet
from exchangeable.service.announcements import Announcements, StreamEvent, mark
from exchangeable.service.bulk import NewStream
from exchangeable.service.checksums import damage
from exchangeable.service.late_labels import clear_queue
from exchangeable.service.problems import Problem
from exchangeable.service.reference import read_reference, store_reference
from exchangeable.service.schema import TABLES_OF_STREAMS, load_json
from exchangeable.service.server_config import Settings
from exchangeable.service.stream import LiveStream, read_row
from exchangeable.service.stream_cache import StreamCache
from exchangeable.service.stream_config import Configuration, load_configuration
from exchangeable.service.stream_summary import read_summary, unknown_stream, with_configuration
from exchangeable.service.table_test import TableTest

log: logging.Logger = logging.getLogger(__name__)


class Reference(NamedTuple):
    """A reference as it was sent, and the test that was built from it for a configuration."""

    media: str
    body: bytes
    configuration: str
    test: TableTest
    snapshot: bytes


class Creation(NamedTuple):
    """A new stream that is not stored yet (None if it exists), its configuration, and the text stored for it."""

    configuration: Configuration
    text: str
    stream: LiveStream | None
    wanted: Configuration  # as it was sent, perhaps without a seed
    retention: dict[str, int] = {}  # noqa: RUF012 - never changed


class Reset(NamedTuple):
    """A stream with a new test that is not stored yet, and the snapshot of its monitor."""

    stream: LiveStream
    snapshot: bytes


class Lifecycle:
    """The operations that start and end tests, in transactions of the writer thread.

    Those named ``plan_...`` only read, and may run in other threads before.
    """

    def __init__(self, streams: StreamCache, announcements: Announcements, settings: Settings) -> None:
        self._streams = streams
        self._announcements = announcements
        self._settings = settings

    def configure(self, settings: Settings) -> None:
        """Take over new settings."""
        self._settings = settings

    def plan_creation(self, connection: sqlite3.Connection, name: str, configuration: Configuration) -> Creation:
        """Prepare a new stream, unless it exists with the same configuration."""
        row = connection.execute("SELECT configuration, retention FROM streams WHERE name = ?", (name,)).fetchone()
        if row is None:
            stream = LiveStream.new(name, configuration.with_seed(draw_seed()), time.time())
            return Creation(stream.configuration, stream.configuration.canonical(), stream, configuration)
        existing = load_configuration(row[0])
        if existing.canonical() != configuration.like(existing).canonical():
            raise Problem(409, "conflict", f"stream {name!r} exists with another configuration")
        return Creation(existing, row[0], None, configuration, load_json(row[1] or "{}"))

    def create(self, connection: sqlite3.Connection, name: str, creation: Creation) -> tuple[bool, dict[str, Any]]:
        """Store a stream that was prepared; return whether it is new, and its description."""
        if creation.stream is not None and self._exists(connection, name):  # it was created meanwhile
            creation = self.plan_creation(connection, name, creation.wanted)
        configuration, text, stream, _, retention = creation
        if stream is None:
            return False, with_configuration(read_summary(connection, name), configuration, retention)
        summary = self._store(connection, stream, text)
        self._streams.put(stream)
        return True, with_configuration(summary, configuration, retention)

    def _exists(self, connection: sqlite3.Connection, name: str) -> bool:
        return connection.execute("SELECT 1 FROM main.streams WHERE name = ?", (name,)).fetchone() is not None

    def _store(self, connection: sqlite3.Connection, stream: LiveStream, configuration: str) -> dict[str, Any]:
        """Store a new stream; return its summary."""
        limit = self._settings.limits.streams
        if is_full(connection, limit):
            raise Problem(409, "too-many-streams", f"there must be at most {limit} streams; delete one first")
        fleet.join(connection, stream.name, self._settings.fleet_size)
        stream.store(connection, configuration)
        return self._announcements.add(stream, kind="created")

    def create_many(self, connection: sqlite3.Connection, streams: Sequence[NewStream]) -> list[bool | Problem]:
        """Create streams unless they exist; return for each whether it is new, or why it was rejected.

        They are not kept in memory.
        """
        outcomes: list[bool | Problem] = []
        for new in streams:
            try:
                outcomes.append(self._create_copy(connection, new))
            except Problem as problem:
                outcomes.append(problem)
        return outcomes

    def _create_copy(self, connection: sqlite3.Connection, new: NewStream) -> bool:
        configuration = new.template.configuration
        if self._exists(connection, new.name):
            self.plan_creation(connection, new.name, configuration)
            return False
        configuration = configuration.with_seed(draw_seed())
        stream = replace(new.template, name=new.name, configuration=configuration, created=time.time())
        self._store(connection, stream, configuration.canonical())
        return True

    def set_reference(
        self, connection: sqlite3.Connection, name: str, reference: Reference
    ) -> tuple[bool, dict[str, Any]]:
        """Give a stream of rows its reference; return whether it is new, and the stream's description."""
        stream = self._streams.get(connection, name)
        if stream.configuration.canonical() != reference.configuration:
            raise Problem(409, "conflict", f"stream {name!r} was replaced meanwhile: send the reference again")
        stored = read_reference(connection, stream.id)
        if stored is not None:
            if stored != (reference.media, reference.body):
                advice = "delete the stream, or create one under another name"
                raise Problem(409, "conflict", f"stream {name!r} has another reference: {advice}")
            return False, stream.describe()
        with self._streams.changing(stream):
            store_reference(connection, stream.id, reference.media, reference.body)
            stream.monitor, stream.snapshot_n = reference.test, -1
            stream.save_snapshot(connection, reference.snapshot)
            stream.update_row(connection)
            self._announcements.add(stream)
        return True, stream.describe()

    def set_retention(
        self, connection: sqlite3.Connection, stream: LiveStream, retention: dict[str, int], snapshot: bytes
    ) -> dict[str, Any]:
        """Change how much history of a stream is kept; return the stream's description. No result depends on it.

        The snapshot of the monitor is stored, since only steps before it can be deleted.
        """
        with self._streams.changing(stream):
            stream.retention = retention
            stream.save_snapshot(connection, snapshot)
            stream.update_row(connection)
            self._announcements.add(stream)
        return stream.describe()

    def plan_reset(self, connection: sqlite3.Connection, name: str) -> Reset:
        """Prepare a new test of a stream."""
        stream = LiveStream.load_reset(connection, name)
        return Reset(stream, stream.encode())

    def reset(self, connection: sqlite3.Connection, name: str, planned: Reset) -> dict[str, Any]:
        """Start a new test with the next observation; return the stream's description."""
        stream = planned.stream
        self._announcements.resolve(connection, read_row(connection, name), "reset")
        clear_queue(connection, stream)
        mark(connection, stream, stream.monitor.n, "reset")
        stream.save_snapshot(connection, planned.snapshot)
        stream.update_row(connection)
        self._streams.put(stream)
        summary = self._announcements.add(stream, kind="reset")
        return with_configuration(summary, stream.configuration, stream.retention)

    def delete(self, connection: sqlite3.Connection, name: str) -> None:
        """Delete a stream and its history. Its position in the fleet and the number of its tests are kept."""
        row = connection.execute("SELECT id, resets FROM main.streams WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise unknown_stream(name)
        try:
            self._announcements.resolve(connection, read_row(connection, name), "deleted")
        except sqlite3.Error as error:
            if damage(connection, error) is error:
                raise
            log.warning("stream %s is damaged and was deleted; no alert is resolved", name)
        for table in TABLES_OF_STREAMS:
            connection.execute(f"DELETE FROM main.{table} WHERE stream = ?", (row[0],))  # noqa: S608
        connection.execute("DELETE FROM main.streams WHERE id = ?", (row[0],))
        fleet.leave(connection, name, row[1] + 1)
        self._streams.drop(name)
        self._announcements.events.append(StreamEvent(name, None, {"name": name}, "gone"))


def is_full(connection: sqlite3.Connection, limit: int) -> bool:
    """Return whether there are as many streams as are allowed. They are only counted if some have been deleted."""
    (largest,) = connection.execute("SELECT coalesce(max(id), 0) FROM main.streams").fetchone()  # at least their number
    return largest >= limit and int(connection.execute("SELECT count(*) FROM main.streams").fetchone()[0]) >= limit
