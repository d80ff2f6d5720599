"""The streams in memory."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from exchangeable.service import costs
from exchangeable.service.stream import LiveStream

EVICTED_STEPS = 256  # a stream that is dropped with fewer new steps replays them: that costs less than a snapshot


class _Entry(NamedTuple):
    """What is known of a stream in memory: its bytes, when it was used, and its place in the list of names."""

    bytes: int
    used: int
    place: int


class StreamCache:
    """The streams in memory, at most ``capacity`` of them and ``max_bytes``. Others are loaded when they are needed.

    If there are too many, two are drawn at random, and the one that was used longer ago is dropped; a stream counts
    the less, the more memory it takes and the faster it is loaded. If more streams are active than fit, in turn, most
    of those in memory are then still there when they are needed next: dropping the oldest one would drop them all.
    """

    def __init__(self, capacity: int, max_bytes: int) -> None:
        self.capacity, self.max_bytes = capacity, max_bytes
        self.bytes: int = 0  # of all streams, as of the last call of `evict`
        self._streams: dict[str, LiveStream] = {}
        self._entries: dict[str, _Entry] = {}
        self._names: list[str] = []  # those of the entries, for drawing one
        self._touched: set[str] = set()  # since the last call of `evict`
        self._now = 0  # counts uses
        self._random = random.Random(0)  # noqa: S311 - not for secrets

    def __len__(self) -> int:
        return len(self._streams)

    def get(self, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Return a stream, loaded if necessary."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = LiveStream.load(connection, name)
        self._touched.add(name)
        return stream

    def peek(self, name: str) -> LiveStream | None:
        """Return a stream if it is in memory. Other threads may call this and read what never changes."""
        return self._streams.get(name)

    def put(self, stream: LiveStream) -> None:
        """Add a stream, or replace the one of the same name."""
        self._streams[stream.name] = stream
        self._touched.add(stream.name)

    def pop(self, name: str) -> LiveStream | None:
        """Remove a stream from memory, and return it if it was there."""
        self._touched.add(name)
        return self._streams.pop(name, None)

    def drop(self, name: str) -> None:
        """Remove a stream from memory."""
        self.pop(name)

    def clear(self) -> None:
        """Remove all streams from memory, since any of them may differ from the database."""
        self._touched |= self._streams.keys()
        self._streams.clear()

    @contextmanager
    def changing(self, stream: LiveStream) -> Iterator[None]:
        """Drop a stream that is only partly changed if the block raises, so that it is loaded again."""
        try:
            yield
        except BaseException:
            self.drop(stream.name)
            raise

    def evict(self, busy: Collection[str | None], connection: sqlite3.Connection | None = None) -> list[str]:
        """Drop streams above the limits, except busy ones; save snapshots where replaying would take longer.

        Return the names of streams that are to be dropped once their snapshot is saved, which takes too long here.
        """
        for name in self._touched:
            self._update(name)
        self._touched.clear()
        large: list[str] = []
        for _ in range(2 * len(self._names)):
            if len(self._streams) <= self.capacity and self.bytes <= self.max_bytes:
                break
            name = max(self._random.choices(self._names, k=2), key=self._worthlessness)
            if name in busy or name in large:
                continue
            stream = self._streams[name]
            if connection is None or stream.monitor.n - stream.snapshot_n < EVICTED_STEPS:
                self._remove(name)
            elif costs.state_cost(stream) <= costs.HEAVY:
                stream.save_snapshot(connection)
                self._remove(name)
            else:
                large.append(name)
                self.bytes -= self._entries[name].bytes
        self.bytes += sum(self._entries[name].bytes for name in large)
        return large

    def _worthlessness(self, name: str) -> float:
        """Return how little is lost if a stream is dropped: the time since it was used, by the cost of keeping it."""
        size, used, _ = self._entries[name]
        return (self._now - used) * size / costs.reload_cost(self._streams[name])

    def _update(self, name: str) -> None:
        """Update what is known of a stream that was used."""
        self._now += 1
        entry, stream = self._entries.get(name), self._streams.get(name)
        self.bytes -= 0 if entry is None else entry.bytes
        if stream is not None:
            place = len(self._names) if entry is None else entry.place
            self._entries[name] = _Entry(stream.bytes, self._now, place)
            self.bytes += stream.bytes
            if entry is None:
                self._names.append(name)
        elif entry is not None:
            self._forget(name)

    def _remove(self, name: str) -> None:
        self.bytes -= self._entries[name].bytes
        del self._streams[name]
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove an entry; the last name takes its place."""
        place, last = self._entries.pop(name).place, self._names.pop()
        if last != name:
            self._names[place] = last
            self._entries[last] = self._entries[last]._replace(place=place)

    def save_snapshots(self, connection: sqlite3.Connection) -> None:
        """Save the snapshots of all streams, so that nothing need be replayed after a restart."""
        for stream in self._streams.values():
            stream.save_snapshot(connection)
