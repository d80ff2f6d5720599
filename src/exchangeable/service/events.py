"""Events: what commits brought, for readers who stay (server-sent events)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import numpy as np

from exchangeable.service import history
from exchangeable.service.engine import Steps
from exchangeable.service.problems import Problem

BACKLOG = 64  # events that wait for a reader; one who falls behind is told of the rest from the history
HEARTBEAT = 15.0  # seconds
CHECKED = 1.0  # seconds between two looks at a reader's token, if there is anything to tell
PACE = 0.5  # seconds between two events about all streams
SHOWN = 200  # points of a batch in an event
NEWEST = 20  # points of a stream in them
RESUMED = 2000  # points for a reader who comes back

Watch = Callable[[], None]  # raises where the reader must not go on


def encode(value: Any) -> bytes:
    """JSON; what is no finite number is null."""
    return msgspec.json.encode(value)


def columns(points: history.Points) -> dict[str, list[Any]]:
    """Points as JSON holds them: null for a bankrupt capital, and for a p-value that is not at hand."""
    return {"n": points.n.tolist(), "log10": _nullable(points.log10), "p": _nullable(points.p)}


def _nullable(values: Any) -> list[Any]:
    return [value if lawful else None for value, lawful in zip(values.tolist(), np.isfinite(values), strict=True)]


def _newest(event: Steps) -> dict[str, list[Any]]:
    """The last points of an event, made once for all readers."""
    if event.points is None:
        return {"n": [], "log10": []}
    n, log10, p, exact, width = event.points
    return columns(history.Points(n[-NEWEST:], log10[-NEWEST:], p[-NEWEST:], exact, width))


def _thinned(event: Steps) -> Steps:
    if event.points is None:
        return event
    n, log10, p, *_ = event.points
    return event._replace(points=history.thin(n, log10, p, SHOWN))


class Reader:
    """One who reads of a stream: events come in on the loop's side, and go out at the reader's pace."""

    def __init__(self, name: str | None) -> None:
        self.name = name  # of the stream; None: all
        self.events: deque[Steps] = deque()
        self.lagging: bool = False
        self.wake: asyncio.Event = asyncio.Event()
        self.checked: float = 0.0  # when the reader's token was last looked at

    def take(self, event: Steps, newest: dict[str, list[Any]]) -> None:
        """Keep an event, or, if the reader is slow, only that there was one."""
        if len(self.events) >= BACKLOG and event.kind == "steps":
            self.lagging = True
        else:
            self.events.append(event)
        self.wake.set()


class Overlooker(Reader):
    """One who reads of all streams: what is known last of each that has changed."""

    def __init__(self) -> None:
        super().__init__(None)
        self.streams: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, None] = {}

    def take(self, event: Steps, newest: dict[str, list[Any]]) -> None:
        """Put an event in the place of those before it."""
        if event.kind == "gone":
            self.streams.pop(event.name, None)
            self.removed[event.name] = None
        else:
            self.removed.pop(event.name, None)
            tail = self.streams.get(event.name, {}).get("tail", {"n": [], "log10": []})
            joined = {key: (tail[key] + newest[key])[-NEWEST:] for key in ("n", "log10")}
            self.streams[event.name] = {**event.stream, "tail": joined}
        self.wake.set()

    def together(self) -> dict[str, Any]:
        """All that waits, as one event."""
        taken = {"streams": list(self.streams.values()), "removed": list(self.removed)}
        self.streams, self.removed = {}, {}
        return taken


class Feed:
    """Brings events from the engine's thread to the readers."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.closed: bool = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: dict[str | None, set[Reader]] = {}

    def open(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Send every reader home."""
        self.closed = True
        for readers in self._readers.values():
            for reader in readers:
                reader.wake.set()

    def publish(self, events: list[Steps]) -> None:
        """From the engine's thread. Steps are thinned there, and only if somebody reads of them."""
        wanted = [event for event in events if None in self._readers or event.name in self._readers]
        if wanted and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver, [_thinned(event) for event in wanted])

    def _deliver(self, events: list[Steps]) -> None:
        for event in events:
            newest = _newest(event)
            for name in (event.name, None):
                for reader in self._readers.get(name, ()):
                    reader.take(event, newest)

    @property
    def readers(self) -> int:
        """How many read."""
        return sum(map(len, self._readers.values()))

    def join(self, reader: Reader) -> None:
        """One more reader, of one stream or of all."""
        if self.closed:
            raise Problem(503, "not-ready", "the server is stopping; try again later", retry_after=5)
        if self.readers >= self.most:
            message = f"at most {self.most} readers of events are served; try again later"
            raise Problem(429, "overload", message, retry_after=10)
        self._readers.setdefault(reader.name, set()).add(reader)

    def leave(self, reader: Reader) -> None:
        """The reader has gone."""
        readers = self._readers.get(reader.name, set())
        readers.discard(reader)
        if not readers:
            self._readers.pop(reader.name, None)

    async def wait(self, reader: Reader, watch: Watch) -> bool:
        """Until something happened for a reader: True; False after a heartbeat's time without."""
        try:
            await asyncio.wait_for(reader.wake.wait(), HEARTBEAT)
            reader.wake.clear()
            woken = True
        except TimeoutError:
            woken = False
        now = asyncio.get_running_loop().time()
        if now - reader.checked >= CHECKED:  # on a busy stream no heartbeat comes
            watch()
            reader.checked = now
        return woken


def event(kind: str, data: Any, id: int | None = None) -> bytes:  # noqa: A002
    """One event as it goes over the wire.

    >>> event("steps", {"n": [1]}, id=1)
    b'event: steps\\nid: 1\\ndata: {"n":[1]}\\n\\n'
    """
    place = b"" if id is None else b"id: %d\n" % id
    return b"event: " + kind.encode() + b"\n" + place + b"data: " + encode(data) + b"\n\n"


async def of_stream(
    feed: Feed, reader: Reader, last: int | None, look: Callable[[int | None], Any], watch: Watch
) -> AsyncIterator[bytes]:
    """What happens in one stream. ``look(after)`` gives the stream and the points after a step, from the database."""
    try:
        yield b"retry: 2000\n\n"
        stream, points = await look(last)
        sent = stream["state"]["n"]
        if last is None or last > sent:
            yield event("state", stream, sent)
        elif points is not None and len(points.n):
            yield _steps(points, stream, last + 1)
        else:  # nothing new to be seen, but a reset may have been
            yield event("state", stream, sent)
        while not feed.closed:
            if not await feed.wait(reader, watch):
                yield b": alive\n\n"
                continue
            while reader.events:
                news = reader.events.popleft()
                if news.kind == "gone":
                    yield event("gone", {"name": news.name})
                    return
                if news.kind == "reset":
                    yield event("reset", {"stream": news.stream}, news.stream["state"]["n"])
                elif news.points is None:
                    yield event("state", news.stream, news.stream["state"]["n"])
                elif int(news.points.n[-1]) > sent:
                    yield _steps(_after(news.points, sent), news.stream, max(sent, 0) + 1)
                    sent = int(news.points.n[-1])
            if reader.lagging:
                reader.lagging = False
                stream, points = await look(sent)
                if points is not None and len(points.n):
                    yield _steps(points, stream, sent + 1)
                    sent = int(points.n[-1])
    except Problem:  # the token was revoked, or the stream is gone: the events end
        return
    finally:
        feed.leave(reader)


def _steps(points: history.Points, stream: dict[str, Any], first: int) -> bytes:
    last = int(points.n[-1])
    return event("steps", {"first": first, "last": last, **columns(points), "stream": stream}, last)


def _after(points: history.Points, n: int) -> history.Points:
    later = points.n > n
    return history.Points(points.n[later], points.log10[later], points.p[later], points.exact, points.width)


async def of_all(feed: Feed, reader: Overlooker, watch: Watch) -> AsyncIterator[bytes]:
    """What happens in all streams: each that has changed, at most twice a second."""
    try:
        yield b"retry: 2000\n\n"
        while not feed.closed:
            if not await feed.wait(reader, watch):
                yield b": alive\n\n"
                continue
            yield event("streams", reader.together())
            await asyncio.sleep(PACE)
    except Problem:  # the token was revoked, or the stream is gone: the events end
        return
    finally:
        feed.leave(reader)
