"""Creating, resetting and deleting streams."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from exchangeable.pvalues import draw_seed
from exchangeable.service import fleet
from exchangeable.service.announcements import Announcements, StreamEvent, mark
from exchangeable.service.late_labels import LabelQueue
from exchangeable.service.problems import Problem
from exchangeable.service.schema import TABLES_OF_STREAMS
from exchangeable.service.server_config import Settings
from exchangeable.service.stream import LiveStream, read_row
from exchangeable.service.stream_cache import StreamCache
from exchangeable.service.stream_config import Configuration, load_configuration
from exchangeable.service.stream_summary import describe_stream


class Lifecycle:
    """The operations that start and end tests. Each runs in a transaction of the writer thread."""

    def __init__(self, streams: StreamCache, announcements: Announcements, settings: Settings) -> None:
        self._streams = streams
        self._announcements = announcements
        self._settings = settings

    def create(
        self, connection: sqlite3.Connection, name: str, configuration: Configuration
    ) -> tuple[bool, dict[str, Any]]:
        """Create a stream unless it exists; return whether it is new, and its description."""
        row = connection.execute("SELECT configuration FROM streams WHERE name = ?", (name,)).fetchone()
        if row is not None:
            existing = load_configuration(row[0])
            if existing.canonical() != configuration.like(existing).canonical():
                raise Problem(409, "conflict", f"stream {name!r} exists with another configuration")
            return False, describe_stream(connection, name)
        limit = self._settings.limits.streams
        if connection.execute("SELECT count(*) FROM streams").fetchone()[0] >= limit:
            raise Problem(409, "too-many-streams", f"there must be at most {limit} streams; delete one first")
        fleet.join(connection, name, self._settings.fleet_size)
        stream = LiveStream.create(connection, name, configuration.with_seed(draw_seed()), time.time())
        self._streams.put(stream)
        self._announcements.add(stream, kind="created")
        return True, stream.describe()

    def reset(self, connection: sqlite3.Connection, name: str) -> dict[str, Any]:
        """Start a new test with the next observation; return the stream's description."""
        self._announcements.resolve(connection, read_row(connection, name), "reset")
        stream = LiveStream.load_reset(connection, name)
        LabelQueue(connection, stream, 0.0).clear()
        mark(connection, stream, stream.monitor.n, "reset")
        stream.save_snapshot(connection)
        stream.update_row(connection)
        self._streams.put(stream)
        self._announcements.add(stream, kind="reset")
        return stream.describe()

    def delete(self, connection: sqlite3.Connection, name: str) -> None:
        """Delete a stream and its history. Its position in the fleet and the number of its tests are kept."""
        row = read_row(connection, name)
        self._announcements.resolve(connection, row, "deleted")
        for table in TABLES_OF_STREAMS:
            connection.execute(f"DELETE FROM {table} WHERE stream = ?", (row["id"],))  # noqa: S608
        connection.execute("DELETE FROM streams WHERE id = ?", (row["id"],))
        fleet.leave(connection, name, row["resets"] + 1)
        self._streams.drop(name)
        self._announcements.events.append(StreamEvent(name, None, {"name": name}, "gone"))
