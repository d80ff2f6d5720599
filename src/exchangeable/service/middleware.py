"""What every request passes before any route sees it, and every response on its way out: plain ASGI, so events stream.

In: trusted hosts (against DNS rebinding), no unsafe requests from other sites (against forged ones), bodies of lawful
length that arrive in time. Out: security headers; an unexpected exception becomes a 500 with an incident's number. CORS
stays off: nothing here or elsewhere sends an ``Access-Control-*`` header.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import re
import secrets
import socket
import sqlite3
import traceback
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from exchangeable.service.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from exchangeable.service.server_config import Limits, Settings

__all__ = ["POLICY", "Doors", "bindable", "exposed"]
LOG = logging.getLogger("exchangeable.service")
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
SLOWEST = 8_192  # bytes a second that a body must come with, after the first seconds
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
PLACE = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
ADDRESS = re.compile(r"https?://([^/]*)(?:/.*)?")
DIGITS = re.compile(rb"[0-9]{1,18}")


class Doors:
    """The middleware; ``policies`` gives single paths a content security policy of their own, ``refused`` counts.

    ``app.add_middleware(Doors, settings=settings, policies={"/docs": ...})``. O(headers) a request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        policies: Mapping[str, str] | None = None,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self.app = app
        self.refused = refused
        self.hosts: frozenset[str] = LOCAL | settings.trusted
        self.origin: tuple[str, int | None] | None = _origin(settings.external_url or "")
        self.limits: Limits = settings.limits
        self.policies: dict[str, bytes] = {path: policy.encode("ascii") for path, policy in (policies or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request and its response."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":  # there are none
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self.limits.configuration_bytes if scope["method"] == "PUT" else self.limits.body_bytes
        exchange = _Exchange(receive, send, self._headers(scope["path"]), limit, self.limits.body_seconds, self.refused)
        try:
            self._admit(scope, exchange)
            await self.app(scope, exchange.receive, exchange.send)
        except Problem as problem:
            await exchange.refuse(problem)
        except Exception as error:  # noqa: BLE001 - the last door
            if not exchange.explains(error):
                await exchange.refuse(_incident(scope, error))
        if exchange.problem and not exchange.started:
            await exchange.refuse(exchange.problem)

    def _admit(self, scope: Scope, exchange: _Exchange) -> None:
        """The head of a request, before anything of its body is read."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        exchange.expect(headers)
        if not scope["path"].startswith("/"):
            raise Problem(400, "bad-request", "the target of a request must be a path")
        place = _trusted(headers, self.hosts)
        _refuse_other_sites(scope["method"], headers, {place, self.origin})
        _refuse_encodings(headers)
        exchange.measure(headers)

    def _headers(self, path: str) -> dict[bytes, bytes]:
        policy = self.policies.get(path, POLICY.encode("ascii"))
        stored = {b"cache-control": b"no-store"} if path.startswith("/v1/") or path == "/v1" else {}
        return {**HEADERS, b"content-security-policy": policy, **stored}


class _Exchange:
    """One request and its response, with what is counted on the way."""

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: dict[bytes, bytes],
        limit: int,
        patience: float,
        refused: Callable[[str], None],
    ) -> None:
        self._receive, self._send, self._headers, self._refused = receive, send, headers, refused
        self._limit, self._patience = limit, patience
        self._since = 0.0  # when the body was first waited for
        self._got = 0  # bytes of it
        self._whole = True  # nothing of it is to come
        self.gone = False  # so is the client
        self.started = False  # the response is
        self.problem: Problem | None = None  # of the body

    def explains(self, error: Exception) -> bool:
        """Is this exception no news: the body was refused, or the client went away?"""
        return self.problem is not None or (self.gone and isinstance(error, ClientDisconnect))

    def expect(self, headers: Mapping[bytes, list[bytes]]) -> None:
        """Will a body come?"""
        lengths = headers.get(b"content-length", [])
        self._whole = b"transfer-encoding" not in headers and all(length.strip(b"0") == b"" for length in lengths)

    def measure(self, headers: Mapping[bytes, list[bytes]]) -> None:
        """Its length as announced: one number, or chunked, within the limit."""
        lengths, codings = headers.get(b"content-length", []), headers.get(b"transfer-encoding", [])
        if codings and (lengths or [coding.strip().lower() for coding in codings] != [b"chunked"]):
            raise Problem(400, "bad-request", "a body must come with a Content-Length or chunked, not with both")
        if len(lengths) > 1 or not all(DIGITS.fullmatch(length) for length in lengths):
            raise Problem(400, "bad-request", "Content-Length must be one integer")
        if lengths and int(lengths[0]) > self._limit:
            raise self._too_large()

    async def receive(self) -> Message:
        """The next piece of the body; too much or too late is refused, whatever the route makes of it."""
        if self.problem:
            raise self.problem
        message = await (self._receive() if self._whole else self._in_time())
        if message["type"] != "http.request":
            self.gone = True
            return message
        self._got += len(message.get("body", b""))
        if self._got > self._limit:
            self.problem = self._too_large()
            raise self.problem
        self._whole = not message.get("more_body", False)
        return message

    async def _in_time(self) -> Message:
        """A body may be slow as a poor line is, not as an attacker is: bytes so far earn time for those to come."""
        self._since = self._since or asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._since + self._patience + self._got / SLOWEST):
                return await self._receive()
        except TimeoutError:
            self.problem = Problem(408, "too-slow", f"a body must come with {SLOWEST} bytes a second or more")
            raise self.problem from None

    def _too_large(self) -> Problem:
        return Problem(413, "too-large", f"the body must hold at most {self._limit} bytes", limit=self._limit)

    async def send(self, message: Message) -> None:
        """Pass the response on with our headers, unless the body was refused before it began."""
        if message["type"] == "http.response.start":
            if self.problem and not self.started:
                return
            self.started = True
            message = {**message, "headers": self._dressed(message.get("headers", []))}
        if self.started:
            await self._send(message)

    def _dressed(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        own = {**self._headers, **({} if self._whole else {b"connection": b"close"})}  # the rest is never read
        kept = [(name, value) for name, value in headers if name.lower() not in own and name.lower() != b"server"]
        return kept + list(own.items())

    async def refuse(self, problem: Problem) -> None:
        """Answer with the problem; where a response has begun it is broken off, which the client sees."""
        if self.started or self.gone:
            return
        self.problem, self.started = None, True
        self._refused(problem.code)
        body = json.dumps(problem.body).encode("ascii")
        size = str(len(body)).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"content-length", size), (b"cache-control", b"no-store")]
        await self._send({"type": "http.response.start", "status": problem.status, "headers": self._dressed(headers)})
        await self._send({"type": "http.response.body", "body": body})


def _trusted(headers: Mapping[bytes, list[bytes]], hosts: frozenset[str]) -> tuple[str, int | None]:
    """The name and port under which the client reached us: a name of ours.

    A hostile page may let its own name point at 127.0.0.1 (DNS rebinding) and so become "same origin" with us; but in
    Host the browser still says that name.
    """
    given = headers.get(b"host", [])
    place = _place(given[0].decode("latin-1")) if len(given) == 1 else None
    if place is None:
        raise Problem(400, "bad-request", "a request must have one header Host with a name and perhaps a port")
    if place[0] not in hosts:
        raise Problem(421, "untrusted-host", "this name is not one of this server's: hosts in its settings holds them")
    return place


def _refuse_other_sites(
    method: str, headers: Mapping[bytes, list[bytes]], own: set[tuple[str, int | None] | None]
) -> None:
    """Browsers say where a request comes from. What another site starts may navigate here, and no more."""
    said = {value.strip().lower() for value in headers.get(b"sec-fetch-site", [])}
    foreign = not said <= {b"same-origin", b"none"}
    if method in SAFE:
        foreign = foreign and headers.get(b"sec-fetch-mode") != [b"navigate"]
    elif b"origin" in headers:
        foreign = foreign or len(headers[b"origin"]) > 1 or not _ours(headers[b"origin"][0].decode("latin-1"), own)
    if foreign:
        raise Problem(403, "forbidden", "requests that another web site starts are refused")


def _ours(origin: str, own: set[tuple[str, int | None] | None]) -> bool:
    """Whether an origin is among our places; a default port may be said or not."""
    place = _origin(origin)
    if place is None:
        return False
    usual = 443 if origin.lower().startswith("https:") else 80
    return (place[0], place[1] or usual) in {(one[0], one[1] or usual) for one in own if one}


def _refuse_encodings(headers: Mapping[bytes, list[bytes]]) -> None:
    if any(value.strip().lower() != b"identity" for value in headers.get(b"content-encoding", [])):
        raise Problem(415, "unsupported-media-type", "a body must come without Content-Encoding, not compressed")


def _place(text: str) -> tuple[str, int | None] | None:
    """Host or host:port; None for anything else.

    >>> _place("[::1]:8000"), _place("LocalHost"), _place("localhost:80@example.org")
    (('::1', 8000), ('localhost', None), None)
    """
    found = PLACE.fullmatch(text.lower())
    if found is None or int(found["port"] or 1) not in range(1, 65_536):
        return None
    try:
        name = found["name"] or ipaddress.IPv6Address(found["address"]).compressed
    except ValueError:
        return None
    return name, int(found["port"]) if found["port"] else None


def _origin(url: str) -> tuple[str, int | None] | None:
    """The place of a web address.

    >>> _origin("https://monitor.example.org/page"), _origin("null")
    (('monitor.example.org', None), None)
    """
    found = ADDRESS.fullmatch(url.lower())
    return _place(found[1]) if found else None


def _incident(scope: Scope, error: Exception) -> Problem:
    """Log an unexpected exception under a number and give that number to the client, nothing else."""
    number = secrets.token_hex(6)
    LOG.error("incident %s: %s %.200s\n%s", number, scope["method"], ascii(scope["path"]), _trace(error))
    return Problem(500, "internal", "something went wrong here; the log has more under this number", incident=number)


def _trace(error: BaseException | None) -> str:
    """Where it happened, and what kind of exception; its message may hold what the client sent, so it stays out."""
    parts: list[str] = []
    while error is not None and len(parts) < 8:
        known = f": {error}" if isinstance(error, (OSError, sqlite3.Error)) else ""
        inner = [_trace(one) for one in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
        parts.append("".join([*traceback.format_tb(error.__traceback__), type(error).__qualname__, known, *inner]))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\nafter\n".join(parts)


def exposed(host: str, names: Iterable[str] = ()) -> bool:
    """Whether anybody but this machine can get to a server on this address that is known under these names.

    >>> exposed("127.0.0.1"), exposed("0.0.0.0"), exposed("127.0.0.1", ["monitor.example.org"])
    (False, True, True)
    """
    return not all(map(_loopback, _addresses(host))) or not LOCAL.issuperset(names)


def bindable(host: str, tokens_exist: bool, names: Iterable[str] = ()) -> None:
    """Refuse to listen where others can come in, unless there is a token.

    >>> bindable("0.0.0.0", tokens_exist=False)
    Traceback (most recent call last):
    ...
    ValueError: host must be a loopback address such as 127.0.0.1 while there is no token, got '0.0.0.0'
    """
    if tokens_exist:
        _addresses(host)
    elif exposed(host):
        raise ValueError(f"host must be a loopback address such as 127.0.0.1 while there is no token, got {host!r}")
    elif exposed(host, names):
        public = ", ".join(sorted(set(names) - LOCAL))
        raise ValueError(f"hosts and external_url must stay out of the settings while there is no token, got {public}")


def _addresses(host: str) -> list[str]:
    """All that a name stands for: it is loopback only if each of them is."""
    if host == "":
        return ["0.0.0.0", "::"]  # noqa: S104 - what an empty name means to a socket
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ValueError(f"host must be an address or a name that resolves to one, got {host!r}") from None
    return [str(address[0]) for *_, address in found]


def _loopback(address: str) -> bool:
    """Not so an IPv4 address within an IPv6 one, on which Pythons disagree."""
    place = ipaddress.ip_address(address)
    return place.is_loopback and (place.version == 4 or place.ipv4_mapped is None)
