"""Connections: how many may be open, and how long a client may take for the head of a request."""

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
PROBES = (b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz ")
BUSY = Problem(503, "overload", "too many connections are open: try again in a second", retry_after=1)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with a cap on connections, and a deadline for each head of a request.

    A connection above the cap may only ask whether the server is alive or ready: anything else gets 503, and it is
    closed after one reply. A few such connections are open at once; one more takes the place of the oldest that has
    not asked yet. A connection whose client has not completed the head of its next request ``head_seconds`` after its
    first byte (or after connecting) is closed without a reply.
    """

    max_connections: int
    head_seconds: float
    spare: list[LimitedProtocol]  # connections above the cap that have not asked yet
    above_cap: int  # how many connections above the cap are open
    _head_timer: asyncio.TimerHandle | None = None
    _start: bytes | None = None  # of the first request, on a connection above the cap until it has asked
    _is_spare = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection; if there are too many, only for one question whether the server is ready."""
        super().connection_made(transport)
        kind = type(self)
        if len(self.connections) - kind.above_cap > self.max_connections:
            kind.above_cap += 1
            self._is_spare, self._start = True, b""
            self.spare.append(self)
            if len(self.spare) > SPARE:
                self.spare[0]._turn_away()
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the client; the first ones of a head start its deadline, the last ones end it."""
        if self._start is not None:
            data = self._start = self._start + data
            if not data.startswith(PROBES):
                if not any(probe.startswith(data) for probe in PROBES):
                    self._turn_away()
                return
            self._forget_start()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """Close a connection above the cap after its reply."""
        if self._is_spare:
            self.transport.close()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_waiting()
        self._forget_start()
        if self._is_spare:
            type(self).above_cap -= 1
        super().connection_lost(exc)

    def _turn_away(self) -> None:
        """Reply that there are too many connections, and close this one."""
        self._forget_start()
        log.warning("connections are rejected: %d are open", self.max_connections)
        self.transport.write(_reply(BUSY))
        self.transport.close()

    def _forget_start(self) -> None:
        if self._start is not None:
            self._start = None
            self.spare.remove(self)

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


def limited_protocol(max_connections: int, head_seconds: float) -> type[LimitedProtocol]:
    """Return the protocol with these limits, for `uvicorn.Config`, which takes a class."""
    limits = {"max_connections": max_connections, "head_seconds": head_seconds, "spare": [], "above_cap": 0}
    return type("Protocol", (LimitedProtocol,), limits)


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
