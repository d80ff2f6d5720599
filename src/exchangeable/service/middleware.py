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
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from exchangeable.service.budgets import BodyBudget
from exchangeable.service.logs import REQUEST
from exchangeable.service.origins import (
    LOCAL_NAMES,
    Authority,
    Headers,
    HostList,
    check_host,
    parse_origin,
    reject_cross_site,
)
from exchangeable.service.problems import Problem, out_of_memory

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from exchangeable.service.server_config import Limits, Settings

__all__ = ["POLICY", "SecurityMiddleware"]
LOG = logging.getLogger("exchangeable.service")
MIN_BODY_RATE = 8_192  # bytes per second, after the first seconds
PART = 1 << 16  # bytes of a reply that are given to the connection at a time
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
STREAM = re.compile(r"/v1/streams/([a-z0-9][a-z0-9._-]{0,63})(?:/|$)")
PROBES = frozenset({"/healthz", "/readyz"})  # hold no data, and are called by the address of a pod
AUDIT = logging.getLogger("exchangeable.audit")
ACCESS = logging.getLogger("exchangeable.access")


class SecurityMiddleware:
    """Checks requests and adds headers to responses. O(headers) for each request.

    ``policies`` sets another content security policy for single paths; ``count_rejected`` is called with the error code
    of each request that is rejected here; ``subscribe`` gets a function that takes over new settings.

    ``app.add_middleware(SecurityMiddleware, settings=settings, policies={"/docs": ...})``
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        policies: Mapping[str, str] | None = None,
        count_rejected: Callable[[str], None] = lambda code: None,
        subscribe: Callable[[Callable[[Settings], None]], None] = lambda use: None,
    ) -> None:
        self.app = app
        self.count_rejected = count_rejected
        self.budget: BodyBudget = BodyBudget(0, 0)
        self.policies: dict[str, bytes] = {path: policy.encode("ascii") for path, policy in (policies or {}).items()}
        self.configure(settings)
        subscribe(self.configure)

    def configure(self, settings: Settings) -> None:
        """Take over new settings, for the requests that arrive from now on."""
        limits = settings.limits
        self.budget.total = limits.bodies_bytes
        self.budget.each = max(limits.client_bodies_bytes, limits.body_bytes)
        self.hosts: frozenset[str] = LOCAL_NAMES | settings.trusted
        self.origin: tuple[str, int | None] | None = parse_origin(settings.external_url or "")
        self.limits: Limits = limits
        self.metrics_hosts: HostList = HostList(settings.metrics_hosts)
        self.access_log: bool = settings.access_log

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
        context = _log_context(scope)
        headers = {**self._response_headers(scope["path"]), b"x-request-id": context["request"].encode("ascii")}
        cycle = _RequestCycle(receive, send, headers, limit, self.limits.body_seconds)
        cycle.account(self.budget, scope, context)
        started = time.perf_counter()
        try:
            await self._respond(scope, cycle)
        finally:
            cycle.release()
            self._log(scope, context, cycle.status, time.perf_counter() - started)

    async def _respond(self, scope: Scope, cycle: _RequestCycle) -> None:
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
        authority = self._check_host(scope["path"], headers)
        reject_cross_site(scope["method"], headers, {authority, self.origin})
        if any(value.strip().lower() != b"identity" for value in headers.get(b"content-encoding", [])):
            raise Problem(415, "unsupported-media-type", "a body must not be compressed: send no Content-Encoding")
        cycle.check_length(headers)

    def _check_host(self, path: str, headers: Headers) -> Authority | None:
        if path in PROBES:
            return None
        return check_host(headers, self.hosts, self.metrics_hosts if path == "/metrics" else None)

    def _log(self, scope: Scope, context: dict[str, Any], status: int | None, seconds: float) -> None:
        """Log an admin action, or an attempt without access, and every request if the settings say so."""
        extra = {"method": scope["method"], "path": scope["path"][:200], "status": status, "seconds": round(seconds, 6)}
        extra |= {"token": context.get("token"), "client": (scope.get("client") or ("?",))[0]}
        if context.get("scope") == "admin" and context.get("granted"):
            AUDIT.info("admin action", extra=extra)
        elif context.get("scope") == "admin":  # a warning, since these are not repeated without end
            AUDIT.warning("admin action denied", extra=extra)
        if self.access_log:
            ACCESS.info("request", extra=extra)

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
        self._budget: BodyBudget | None = None
        self._only_reads = False
        self._context: dict[str, Any] = {}
        self._client = "?"
        self._reserved = 0  # bytes of the budget
        self.status: int | None = None  # of the response
        self.problem: Problem | None = None  # with the body

    @property
    def can_respond(self) -> bool:
        """Whether the client is connected and the response has not started; a started response is cut off instead."""
        return not self._started and not self._disconnected

    def explains(self, error: Exception) -> bool:
        """Return whether an exception follows from a rejected body or a client that has disconnected."""
        return self.problem is not None or (self._disconnected and isinstance(error, ClientDisconnect))

    def account(self, budget: BodyBudget, scope: Scope, context: dict[str, Any]) -> None:
        """Charge the bytes of the body and of a long reply to a budget: to the request's token or else its address."""
        self._budget, self._context, self._only_reads = budget, context, scope["method"] == "GET"
        self._client = f"address {(scope.get('client') or ('?',))[0]}"

    def _reserve(self, count: int) -> Problem | None:
        if self._budget is None or not count:
            return None
        if not self._reserved:
            self._client = self._context.get("token") or self._client
        problem = self._budget.take(self._client, count)
        self._reserved += 0 if problem else count
        return problem

    def release(self) -> None:
        """Return what was charged to the budget."""
        if self._budget is not None and self._reserved:
            self._budget.release(self._client, self._reserved)
            self._reserved = 0

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
        else:
            self.problem = self._reserve(len(message.get("body", b"")))
        if self.problem:
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
        """Send a part of the response with our headers, unless the body was rejected before it started.

        A long reply is charged to the budget too, and given to the connection in parts, each when the client has read
        the one before.
        """
        if message["type"] == "http.response.start":
            self.problem = self.problem or self._reserve_reply(message.get("headers", []))
            if self.problem and not self._started:
                return
            self._started, self.status = True, message["status"]
            message = {**message, "headers": self._with_headers(message.get("headers", []))}
        if not self._started:
            return
        body, start = message.get("body", b""), 0
        while start + PART < len(body):
            await self._send({**message, "body": body[start : start + PART], "more_body": True})
            start += PART
        await self._send({**message, "body": body[start:]} if start else message)

    def _reserve_reply(self, headers: Iterable[tuple[bytes, bytes]]) -> Problem | None:
        """Charge a long reply to the budget, unless the request has changed something.

        A reply of any length is sent to a client that receives nothing else.
        """
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
        if self._budget is None or length <= PART or not self._only_reads:
            return None
        return self._reserve(min(length, self._budget.each))

    def _with_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        added = {**self._headers, **({} if self._complete else {b"connection": b"close"})}  # the rest is never read
        others = [(name, value) for name, value in headers if name.lower() not in added and name.lower() != b"server"]
        return others + list(added.items())

    async def reject(self, problem: Problem) -> None:
        """Respond with the problem."""
        self.problem, self._started, self.status = None, True, problem.status
        body = json.dumps(problem.body).encode("ascii")
        size = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", size), (b"cache-control", b"no-store")]
        if "retry_after" in problem.extra:
            headers.append((b"retry-after", str(problem.extra["retry_after"]).encode("ascii")))
        start = {"type": "http.response.start", "status": problem.status, "headers": self._with_headers(headers)}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _log_context(scope: Scope) -> dict[str, Any]:
    """Start the log context of a request: its number and its stream. The access check adds token and scope."""
    match = STREAM.match(scope["path"])
    context: dict[str, Any] = {"request": secrets.token_hex(8), "stream": match[1] if match else None}
    REQUEST.set(context)
    return context


def _report_incident(scope: Scope, error: Exception) -> Problem:
    """Log an unexpected exception under an incident number; the client gets only this number."""
    if isinstance(error, MemoryError):
        LOG.error("out of memory: a request was rejected")
        return out_of_memory()
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
