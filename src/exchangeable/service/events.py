"""Server-sent events: clients that stay connected receive the changes of each commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import numpy as np

from exchangeable.protocols import Floats
from exchangeable.service import history
from exchangeable.service.announcements import StreamEvent
from exchangeable.service.problems import Problem
from exchangeable.service.tokens import Names

BACKLOG = 64  # events that wait for a reader; one that falls behind gets the rest from the history
HEARTBEAT = 15.0  # seconds
CHECK_INTERVAL = 1.0  # seconds between two checks of a reader's token, if there are events
ALL_STREAMS_INTERVAL = 0.5  # seconds between two events about all streams
MAX_POINTS = 200  # points of a batch in an event about its stream
TAIL_POINTS = 20  # points of a stream in an event about all streams
MAX_RESUMED_POINTS = 2000  # points for a reader that reconnects
RETRY = b"retry: 2000\n\n"
KEEP_ALIVE = b": alive\n\n"

CheckAccess = Callable[[], None]  # raises `Problem` if the reader's token was revoked
Query = Callable[[int | None], Awaitable[tuple[dict[str, Any], history.Points | None]]]


def encode(value: Any) -> bytes:
    """Encode a value as JSON; numbers that are not finite become null."""
    return msgspec.json.encode(value)


def point_columns(points: history.Points) -> dict[str, list[Any]]:
    """Return points as lists. A capital of 0, and a p-value that was not read, is None."""
    return {"n": points.n.tolist(), "log10": nullable(points.log10), "p": nullable(points.p)}


def nullable(values: Floats) -> list[float | None]:
    """Return numbers as a list, with None for those that are not finite."""
    return [value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values), strict=True)]


def _tail(event: StreamEvent) -> dict[str, list[Any]]:
    """Return the last points of an event."""
    if event.points is None:
        return {"n": [], "log10": []}
    n, log10, p, exact, width = event.points
    return point_columns(history.Points(n[-TAIL_POINTS:], log10[-TAIL_POINTS:], p[-TAIL_POINTS:], exact, width))


def _thin(event: StreamEvent) -> StreamEvent:
    if event.points is None:
        return event
    n, log10, p, *_ = event.points
    return event._replace(points=history.thin(n, log10, p, MAX_POINTS))


# ------------------------------------------------------------------ readers


class StreamReader:
    """A client that reads the events of one stream. Events are queued and sent as fast as the client reads them."""

    def __init__(self, name: str | None) -> None:
        self.name = name  # of the stream; None for all streams
        self.events: deque[StreamEvent] = deque()
        self.lagging: bool = False
        self.wake: asyncio.Event = asyncio.Event()
        self.checked: float = 0.0  # when the token was last checked

    def push(self, event: StreamEvent, tail: dict[str, list[Any]]) -> None:
        """Queue an event; if the reader is slow, only record that it lags."""
        if len(self.events) >= BACKLOG and event.kind == "steps":
            self.lagging = True
        else:
            self.events.append(event)
        self.wake.set()


class AllStreamsReader(StreamReader):
    """A client that reads the latest summary of each stream that changes."""

    def __init__(self, names: Names | None = None) -> None:
        super().__init__(None)
        self.names = names  # of the streams that the reader may see; None for all
        self.streams: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, None] = {}

    def push(self, event: StreamEvent, tail: dict[str, list[Any]]) -> None:
        """Replace the queued summary of the stream, if the reader may see it."""
        if self.names is not None and not self.names.cover(event.name):
            return
        if event.kind == "gone":
            self.streams.pop(event.name, None)
            self.removed[event.name] = None
        else:
            self.removed.pop(event.name, None)
            before = self.streams.get(event.name, {}).get("tail", {"n": [], "log10": []})
            joined = {key: (before[key] + tail[key])[-TAIL_POINTS:] for key in ("n", "log10")}
            self.streams[event.name] = {**event.stream, "tail": joined}
        self.wake.set()

    def drain(self) -> dict[str, Any]:
        """Return what is queued, as one event, and empty the queue."""
        queued = {"streams": list(self.streams.values()), "removed": list(self.removed)}
        self.streams, self.removed = {}, {}
        return queued


class Feed:
    """Delivers events from the writer thread to the readers, on the event loop."""

    def __init__(self, max_readers: int) -> None:
        self.max_readers = max_readers
        self.closed: bool = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[str | None, set[StreamReader]] = {}

    def open(self) -> None:
        """Deliver on the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """End the events of all readers."""
        self.closed = True
        for readers in self._readers.values():
            for reader in readers:
                reader.wake.set()

    def publish(self, events: list[StreamEvent]) -> None:
        """Deliver events. Called in the writer thread, which thins their steps if there are readers for them."""
        wanted = [event for event in events if None in self._readers or event.name in self._readers]
        if wanted and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, [_thin(event) for event in wanted])

    def _deliver(self, events: list[StreamEvent]) -> None:
        for event in events:
            tail = _tail(event)
            for name in (event.name, None):
                for reader in self._readers.get(name, ()):
                    reader.push(event, tail)

    @property
    def readers(self) -> int:
        """The number of readers."""
        return sum(map(len, self._readers.values()))

    def join(self, reader: StreamReader) -> None:
        """Add a reader."""
        if self.closed:
            raise Problem(503, "not-ready", "the server is stopping; try again later", retry_after=5)
        if self.readers >= self.max_readers:
            message = f"at most {self.max_readers} readers of events are served; try again later"
            raise Problem(429, "overload", message, retry_after=10)
        self._readers.setdefault(reader.name, set()).add(reader)

    def leave(self, reader: StreamReader) -> None:
        """Remove a reader."""
        readers = self._readers.get(reader.name, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(reader.name, None)

    async def wait(self, reader: StreamReader, check_access: CheckAccess) -> bool:
        """Wait until there is something for a reader; return False if a heartbeat is due first."""
        try:
            await asyncio.wait_for(reader.wake.wait(), HEARTBEAT)
            reader.wake.clear()
            woken = True
        except TimeoutError:
            woken = False
        now = asyncio.get_running_loop().time()
        if now - reader.checked >= CHECK_INTERVAL:  # not only with heartbeats, which a busy stream does not have
            check_access()
            reader.checked = now
        return woken


# ------------------------------------------------------------------ encoding


def encode_event(kind: str, data: Any, id: int | None = None) -> bytes:  # noqa: A002
    """Encode a server-sent event.

    >>> encode_event("steps", {"n": [1]}, id=1)
    b'event: steps\\nid: 1\\ndata: {"n":[1]}\\n\\n'
    """
    id_line = b"" if id is None else b"id: %d\n" % id
    return b"event: " + kind.encode() + b"\n" + id_line + b"data: " + encode(data) + b"\n\n"


def _encode_steps(points: history.Points, stream: dict[str, Any], after: int) -> bytes:
    """Encode the steps after step ``after``."""
    later = points.n > after
    n, log10, p, exact, width = points
    selected = history.Points(n[later], log10[later], p[later], exact, width)
    last = int(n[-1])
    return encode_event("steps", {"first": after + 1, "last": last, **point_columns(selected), "stream": stream}, last)


def _encode_change(event: StreamEvent, sent: int) -> bytes:
    """Encode what is new in an event for a reader that has the steps up to ``sent``; nothing if it has them all."""
    if event.kind == "gone":
        return encode_event("gone", {"name": event.name})
    n = event.stream["state"]["n"]
    if event.kind == "reset":
        return encode_event("reset", {"stream": event.stream}, n)
    if event.points is None:
        return encode_event("state", event.stream, n)
    return _encode_steps(event.points, event.stream, sent) if event.points.n[-1] > sent else b""


async def stream_events(
    feed: Feed, reader: StreamReader, last: int | None, query: Query, check_access: CheckAccess
) -> AsyncIterator[bytes]:
    """Yield what happens in one stream, from the step after ``last`` on if it is given.

    ``query(after)`` reads the summary of the stream and its points after a step from the database.
    """
    try:
        yield RETRY
        stream, points = await query(last)
        sent = stream["state"]["n"]
        if last is not None and points is not None and len(points.n):
            yield _encode_steps(points, stream, last)
        else:  # also if there are no new steps, since the stream may have been reset
            yield encode_event("state", stream, sent)
        while not feed.closed:
            if not await feed.wait(reader, check_access):
                yield KEEP_ALIVE
                continue
            while reader.events:
                event = reader.events.popleft()
                if change := _encode_change(event, sent):
                    yield change
                if event.kind == "gone":
                    return
                sent = max(sent, _last_step(event.points))
            if reader.lagging:
                reader.lagging = False
                stream, points = await query(sent)
                if points is not None and len(points.n):
                    yield _encode_steps(points, stream, sent)
                    sent = _last_step(points)
    except Problem:  # the token was revoked, or the stream was deleted
        return
    finally:
        feed.leave(reader)


def _last_step(points: history.Points | None) -> int:
    return 0 if points is None else int(points.n[-1])


async def all_events(feed: Feed, reader: AllStreamsReader, check_access: CheckAccess) -> AsyncIterator[bytes]:
    """Yield what happens in all streams: the summaries of those that changed, at most twice a second."""
    try:
        yield RETRY
        while not feed.closed:
            if not await feed.wait(reader, check_access):
                yield KEEP_ALIVE
                continue
            yield encode_event("streams", reader.drain())
            await asyncio.sleep(ALL_STREAMS_INTERVAL)
    except Problem:  # the token was revoked
        return
    finally:
        feed.leave(reader)
