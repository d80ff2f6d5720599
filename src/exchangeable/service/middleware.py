"""Checks of every request before a route sees it, and headers of every response.

Requests must name a trusted host (against DNS rebinding), must not be started by another site unless they are safe
(against request forgery), and their bodies must be of limited length and arrive in time. Responses get security
headers, and an unexpected exception becomes a 500 with an incident number. CORS stays off: no ``Access-Control-*``
header is ever sent. This is plain ASGI middleware, which does not buffer server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from exchangeable.service.origins import LOCAL_NAMES, Headers, check_host, parse_origin, reject_cross_site
from exchangeable.service.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from exchangeable.service.server_config import Limits, Settings

__all__ = ["POLICY", "SecurityMiddleware"]
LOG = logging.getLogger("exchangeable.service")
MIN_BODY_RATE = 8_192  # bytes per second, after the first seconds
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = MappingProxyType(
    {
        b"x-content-type-options": b"nosniff",
        b"referrer-policy": b"no-referrer",
        b"cross-origin-opener-policy": b"same-origin",
        b"cross-origin-resource-policy": b"same-origin",
        b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    }
)
LENGTH = re.compile(rb"[0-9]{1,18}")


class SecurityMiddleware:
    """Checks requests and adds headers to responses. O(headers) for each request.

    ``policies`` sets another content security policy for single paths; ``count_rejected`` is called with the error code
    of each request that is rejected here.

    ``app.add_middleware(SecurityMiddleware, settings=settings, policies={"/docs": ...})``
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        policies: Mapping[str, str] | None = None,
        count_rejected: Callable[[str], None] = lambda code: None,
    ) -> None:
        self.app = app
        self.count_rejected = count_rejected
        self.hosts: frozenset[str] = LOCAL_NAMES | settings.trusted
        self.origin: tuple[str, int | None] | None = parse_origin(settings.external_url or "")
        self.limits: Limits = settings.limits
        self.policies: dict[str, bytes] = {path: policy.encode("ascii") for path, policy in (policies or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":  # not supported
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._handle_http(scope, receive, send)

    async def _handle_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self.limits.configuration_bytes if scope["method"] == "PUT" else self.limits.body_bytes
        cycle = _RequestCycle(receive, send, self._response_headers(scope["path"]), limit, self.limits.body_seconds)
        problem: Problem | None = None
        try:
            self._check_head(scope, cycle)
            await self.app(scope, cycle.receive, cycle.send)
        except Problem as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - every other exception becomes a 500
            problem = None if cycle.explains(error) else _report_incident(scope, error)
        problem = problem or cycle.problem
        if problem and cycle.can_respond:
            self.count_rejected(problem.code)
            await cycle.reject(problem)

    def _check_head(self, scope: Scope, cycle: _RequestCycle) -> None:
        """Check the path and headers of a request, before its body is read."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        cycle.expect_body(headers)
        if not scope["path"].startswith("/"):
            raise Problem(400, "bad-request", "the target of a request must be a path")
        authority = check_host(headers, self.hosts)
        reject_cross_site(scope["method"], headers, {authority, self.origin})
        if any(value.strip().lower() != b"identity" for value in headers.get(b"content-encoding", [])):
            raise Problem(415, "unsupported-media-type", "a body must not be compressed: send no Content-Encoding")
        cycle.check_length(headers)

    def _response_headers(self, path: str) -> dict[bytes, bytes]:
        policy = self.policies.get(path, POLICY.encode("ascii"))
        caching = {b"cache-control": b"no-store"} if path.startswith("/v1/") or path == "/v1" else {}
        return {**HEADERS, b"content-security-policy": policy, **caching}


class _RequestCycle:
    """The receive and send channels of one request: limits its body, and adds headers to its response."""

    def __init__(
        self, receive: Receive, send: Send, headers: dict[bytes, bytes], max_bytes: int, patience: float
    ) -> None:
        self._receive, self._send, self._headers = receive, send, headers
        self._max_bytes, self._patience = max_bytes, patience
        self._waiting_since = 0.0  # when the body was first waited for
        self._received = 0  # bytes of the body
        self._complete = True  # the body has been received
        self._disconnected = False
        self._started = False  # the response has started
        self.problem: Problem | None = None  # with the body

    @property
    def can_respond(self) -> bool:
        """Whether the client is connected and the response has not started; a started response is cut off instead."""
        return not self._started and not self._disconnected

    def explains(self, error: Exception) -> bool:
        """Return whether an exception follows from a rejected body or a client that has disconnected."""
        return self.problem is not None or (self._disconnected and isinstance(error, ClientDisconnect))

    def expect_body(self, headers: Headers) -> None:
        """Record whether the request has a body."""
        lengths = headers.get(b"content-length", [])
        self._complete = b"transfer-encoding" not in headers and all(length.strip(b"0") == b"" for length in lengths)

    def check_length(self, headers: Headers) -> None:
        """Check the announced length of the body: one number within the limit, or chunked."""
        lengths, codings = headers.get(b"content-length", []), headers.get(b"transfer-encoding", [])
        if codings and (lengths or [coding.strip().lower() for coding in codings] != [b"chunked"]):
            raise Problem(400, "bad-request", "a body must be sent with a Content-Length or chunked, not with both")
        if len(lengths) > 1 or not all(LENGTH.fullmatch(length) for length in lengths):
            raise Problem(400, "bad-request", "Content-Length must be one integer")
        if lengths and int(lengths[0]) > self._max_bytes:
            raise self._too_large()

    async def receive(self) -> Message:
        """Return the next part of the body; raise ``Problem`` if it is too long or too slow."""
        if self.problem:
            raise self.problem
        message = await (self._receive() if self._complete else self._receive_in_time())
        if message["type"] != "http.request":
            self._disconnected = True
            return message
        self._received += len(message.get("body", b""))
        if self._received > self._max_bytes:
            self.problem = self._too_large()
            raise self.problem
        self._complete = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        """Wait for the next part. Bytes that arrive extend the time limit: slow is accepted, stalled is not."""
        self._waiting_since = self._waiting_since or asyncio.get_running_loop().time()
        limit = self._waiting_since + self._patience + self._received / MIN_BODY_RATE
        try:
            async with asyncio.timeout_at(limit):
                return await self._receive()
        except TimeoutError:
            self.problem = Problem(408, "too-slow", f"a body must arrive with {MIN_BODY_RATE} bytes per second or more")
            raise self.problem from None

    def _too_large(self) -> Problem:
        limit = self._max_bytes
        return Problem(413, "too-large", f"the body must hold at most {limit} bytes", limit=limit)

    async def send(self, message: Message) -> None:
        """Send a part of the response with our headers, unless the body was rejected before it started."""
        if message["type"] == "http.response.start":
            if self.problem and not self._started:
                return
            self._started = True
            message = {**message, "headers": self._with_headers(message.get("headers", []))}
        if self._started:
            await self._send(message)

    def _with_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        added = {**self._headers, **({} if self._complete else {b"connection": b"close"})}  # the rest is never read
        others = [(name, value) for name, value in headers if name.lower() not in added and name.lower() != b"server"]
        return others + list(added.items())

    async def reject(self, problem: Problem) -> None:
        """Respond with the problem."""
        self.problem, self._started = None, True
        body = json.dumps(problem.body).encode("ascii")
        size = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", size), (b"cache-control", b"no-store")]
        start = {"type": "http.response.start", "status": problem.status, "headers": self._with_headers(headers)}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _report_incident(scope: Scope, error: Exception) -> Problem:
    """Log an unexpected exception under an incident number; the client gets only this number."""
    number = secrets.token_hex(6)
    LOG.error("incident %s: %s %.200s\n%s", number, scope["method"], ascii(scope["path"]), _format_trace(error))
    message = "an unexpected error occurred; the server's log describes it under this incident number"
    return Problem(500, "internal", message, incident=number)


def _format_trace(error: BaseException | None) -> str:
    """Return where an exception was raised, and its type, but not its message, which may hold what the client sent."""
    parts: list[str] = []
    while error is not None and len(parts) < 8:
        message = f": {error}" if isinstance(error, (OSError, sqlite3.Error)) else ""
        inner = [_format_trace(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
        parts.append("".join([*traceback.format_tb(error.__traceback__), type(error).__qualname__, message, *inner]))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nafter\n".join(parts)
