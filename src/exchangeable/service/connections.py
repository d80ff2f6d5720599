"""Connections: how many may be open, and how long a client may take to send a head, and to read a reply."""

from __future__ import annotations

import asyncio
import json
import logging
import resource

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from exchangeable.service.problems import Problem

__all__ = ["LimitedProtocol", "allowed_connections", "limited_protocol"]
log: logging.Logger = logging.getLogger(__name__)
RESERVED_FILES = 100  # descriptors for the database, its readers, webhooks and files of the page
SPARE = 16  # connections above the cap that may be about to ask one of these
ABOVE_CAP = 48  # connections above the cap, with those that are being answered
PROBES = (b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz ")
BUSY = Problem(503, "overload", "too many connections are open: try again in a second", retry_after=1)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a cap on connections, and deadlines for each head of a request and each reply.

    At the cap, a new connection takes the place of the one that has been idle longest between two requests. If there
    is none, it may only ask whether the server is alive or ready: anything else gets 503, and it is closed after one
    reply. A few such connections are open at once; one more takes the place of the oldest that has not asked yet.
    A connection is closed without a reply if its client has not completed the head of its next request
    ``head_seconds`` after its first byte (or after connecting), or has not read a part of a reply after
    ``read_seconds``.
    """

    max_connections: int
    head_seconds: float
    read_seconds: float
    idle: dict[LimitedProtocol, None]  # connections whose last request was answered, the oldest reply first
    spare: list[LimitedProtocol]  # connections above the cap that have not asked yet
    above_cap: int  # how many connections above the cap are open
    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _start: bytes | None = None  # of the first request, on a connection above the cap until it is known to be a probe
    _is_spare = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if there are too many, only for one question whether the server is ready."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # writing is paused as long as the client has not read everything
        self._wait_for_head()
        if len(self.connections) - self.above_cap > self.max_connections and not self._close_idle():
            self._accept_above_cap()

    def _close_idle(self) -> bool:
        """Close the connection that has been idle longest, and return whether there is one."""
        oldest = next((one for one in self.idle if not one.transport.get_write_buffer_size()), None)
        if oldest is None:
            return False
        del self.idle[oldest]
        self.connections.discard(oldest)
        oldest.timeout_keep_alive_handler()
        return True

    def _accept_above_cap(self) -> None:
        type(self).above_cap += 1
        self._is_spare, self._start = True, b""
        self.spare.append(self)
        if self.above_cap > ABOVE_CAP:
            self._turn_away()
        elif len(self.spare) > SPARE:
            self.spare[0]._turn_away()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client; the first ones of a head start its deadline, the last ones end it."""
        self.idle.pop(self, None)
        if self._start is not None:
            data = self._start = self._start + data
            if not data.startswith(PROBES):
                if not any(probe.startswith(data) for probe in PROBES):
                    self._turn_away()
                return
            self._start = None
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
            self._leave_spare()
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """Close a connection above the cap after its reply; another one is idle until its next request."""
        if self._is_spare:
            self.transport.close()
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.idle[self] = None

    def pause_writing(self) -> None:
        """Start the deadline for the client to read."""
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.read_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """End the deadline, since everything has been sent."""
        super().resume_writing()
        self._stop_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_waiting()
        self._stop_reading()
        self._leave_spare()
        self.idle.pop(self, None)
        self._leave_above_cap()
        super().connection_lost(exc)

    def _turn_away(self) -> None:
        """Reply that there are too many connections, and close this one."""
        self._stop_waiting()
        self._leave_spare()
        self._leave_above_cap()
        log.warning("connections are rejected: %d are open", self.max_connections)
        self.transport.write(_reply(BUSY))
        self.transport.close()

    def _leave_above_cap(self) -> None:
        if self._is_spare:
            self._is_spare = False
            type(self).above_cap -= 1
            self.connections.discard(self)

    def _leave_spare(self) -> None:
        if self in self.spare:
            self.spare.remove(self)

    def _stop_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self._start is None:
            self.transport.abort()
        else:
            self._turn_away()


def limited_protocol(max_connections: int, head_seconds: float, read_seconds: float) -> type[LimitedProtocol]:
    """Return the protocol with these limits, for `uvicorn.Config`, which takes a class."""
    limits = {"max_connections": max_connections, "head_seconds": head_seconds, "read_seconds": read_seconds}
    return type("Protocol", (LimitedProtocol,), {**limits, "idle": {}, "spare": [], "above_cap": 0})


def allowed_connections(wanted: int) -> int:
    """Return how many connections the limit on open files allows, at most those wanted.

    The soft limit is raised to the hard one, as far as it is needed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - RESERVED_FILES), 1)
    if allowed < wanted:
        message = "limits.connections is %d, but the limit of %d open files (LimitNOFILE) allows only %d connections"
        log.warning(message, wanted, soft, allowed)
    return allowed


def _reply(problem: Problem) -> bytes:
    body = json.dumps(problem.body).encode("ascii")
    head = (
        f"HTTP/1.1 {problem.status} Service Unavailable\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
