"""The streams in memory."""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from exchangeable.service.stream import LiveStream


class StreamCache:
    """The most recently used streams. Others are loaded from the database when they are needed."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._streams: OrderedDict[str, LiveStream] = OrderedDict()

    def get(self, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Return a stream, loaded if necessary."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = LiveStream.load(connection, name)
        self._streams.move_to_end(name)
        return stream

    def put(self, stream: LiveStream) -> None:
        """Add a stream, or replace the one of the same name."""
        self._streams[stream.name] = stream

    def drop(self, name: str) -> None:
        """Remove a stream from memory."""
        self._streams.pop(name, None)

    def clear(self) -> None:
        """Remove all streams from memory, since any of them may differ from the database."""
        self._streams.clear()

    @contextmanager
    def changing(self, stream: LiveStream) -> Iterator[None]:
        """Drop a stream that is only partly changed if the block raises, so that it is loaded again."""
        try:
            yield
        except BaseException:
            self.drop(stream.name)
            raise

    def evict(self, busy: Collection[str], connection: sqlite3.Connection | None = None) -> None:
        """Drop the least recently used streams above the capacity, except busy ones; save snapshots if possible."""
        excess = max(len(self._streams) - self.capacity, 0)
        for name in [name for name in self._streams if name not in busy][:excess]:
            stream = self._streams.pop(name)
            if connection is not None:
                stream.save_snapshot(connection)

    def save_snapshots(self, connection: sqlite3.Connection) -> None:
        """Save the snapshots of all streams, so that nothing need be replayed after a restart."""
        for stream in self._streams.values():
            stream.save_snapshot(connection)
