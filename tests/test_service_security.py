"""The whole server under attack: every route with every token, and the tricks by name."""

from __future__ import annotations

import http.client
import io
import json
import logging
import math
import re
import socket
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import hypothesis.strategies as st
import pytest
import schemathesis
import uvicorn
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import given
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from contracts import settled
from exchangeable.service import access, events, parsing, tokens
from exchangeable.service.app import create_app
from exchangeable.service.logs import JsonLines
from exchangeable.service.middleware import POLICY
from exchangeable.service.page import page_files
from exchangeable.service.problems import Problem
from exchangeable.service.run import ServeError, serve
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import Store, open_database
from web import Reply, read, serving

# Every route and the scope it needs, written by hand: a route that is not here fails the test. None: open to all.
SCOPES: dict[tuple[str, str], str | None] = {
    ("PUT", "/v1/streams/{name}"): "admin",
    ("GET", "/v1/streams/{name}"): "read",
    ("DELETE", "/v1/streams/{name}"): "admin",
    ("PUT", "/v1/streams/{name}/retention"): "admin",
    ("GET", "/v1/streams"): "read",
    ("POST", "/v1/streams/{name}/observations"): "ingest",
    ("POST", "/v1/streams/{name}/labels"): "ingest",
    ("GET", "/v1/streams/{name}/waiting"): "read",
    ("GET", "/v1/streams/{name}/history"): "read",
    ("GET", "/v1/streams/{name}/values"): "read",
    ("GET", "/v1/streams/{name}/bet"): "read",
    ("GET", "/v1/streams/{name}/events"): "read",
    ("GET", "/v1/events"): "read",
    ("POST", "/v1/streams"): "admin",
    ("POST", "/v1/streams/{name}/reset"): "admin",
    ("GET", "/v1/streams/{name}/export"): "read",
    ("PUT", "/v1/streams/{name}/reference"): "admin",
    ("GET", "/v1/streams/{name}/columns"): "read",
    ("GET", "/v1/fleet"): "read",
    ("GET", "/v1/alerts"): "read",
    ("POST", "/v1/alerts/{id}/retry"): "admin",
    ("GET", "/metrics"): "read",
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
    ("GET", "/openapi.json"): None,
    ("HEAD", "/openapi.json"): None,
}
HELD: dict[str, set[str]] = {  # what the holder of a token may do
    "read": {"read"},
    "ingest": {"ingest"},
    "read,ingest": {"read", "ingest"},
    "admin": {"read", "ingest", "admin"},
}
NDJSON, JSON = "application/x-ndjson", "application/json"
LIMITS = Limits(
    wrong_tokens=1_000_000,
    body_bytes=1 << 20,
    configuration_bytes=1 << 19,
    body_seconds=2,
    streams=60,
    events_readers=8,
)


class Service(NamedTuple):
    port: int
    app: FastAPI
    database: Path
    tokens: dict[str, str]

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        token: str | None = "admin",
        headers: tuple[str, ...] = (),
        media: str = JSON,
        host: str = "localhost",
    ) -> Reply:
        """One request over a socket, byte by byte as given: nothing is quoted or tidied."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
        if token is not None:
            lines.append(f"Authorization: Bearer {self.tokens.get(token, token)}")
        if body is not None:
            lines += [f"Content-Length: {len(body)}", f"Content-Type: {media}"]
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as line:
            line.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
            return read(line)

    def stream(self, name: str, **configuration: Any) -> None:
        self.ask("DELETE", f"/v1/streams/{name}")
        reply = self.ask("PUT", f"/v1/streams/{name}", json.dumps(configuration).encode())
        assert reply.status == 201, reply

    def state(self, name: str) -> Any:
        reply = self.ask("GET", f"/v1/streams/{name}")
        assert reply.status == 200, reply
        return reply.json()

    def names(self) -> list[str]:
        return [stream["name"] for stream in self.ask("GET", "/v1/streams?limit=500&order=name").json()["streams"]]

    def observe(self, name: str, body: bytes, media: str = NDJSON) -> Reply:
        return self.ask("POST", f"/v1/streams/{name}/observations", body, media=media)


@contextmanager
def running(folder: Path, *, tokens: bool = True, loopback: bool = True, limits: Limits = LIMITS) -> Iterator[Service]:
    database = folder / "streams.db"
    store = Store(database)
    app = create_app(store, Settings(limits=limits), loopback=loopback)
    made = {scopes: grant(database, scopes) for scopes in HELD} if tokens else {}
    try:
        with serving(app) as port:
            yield Service(port, app, database, made)
    finally:
        store.close()


def grant(database: Path, scopes: str, **more: Any) -> str:
    """As the command line does: another connection, beside the server."""
    with closing(open_database(database)) as connection:
        return access.create(connection, scopes.split(","), **more)


def rotated(database: Path, token: str, **more: Any) -> str:
    with closing(open_database(database)) as connection:
        return tokens.rotate(connection, token, **more)


def withdraw(database: Path, token: str) -> None:
    connection = open_database(database)
    try:
        access.revoke(connection, token)
    finally:
        connection.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


def refusal(reply: Reply, *statuses: int) -> str:
    """A refusal in the agreed form: never a 5xx, one sentence."""
    assert reply.status in (statuses or range(400, 500)), reply
    body = reply.json()
    assert re.fullmatch(r"[a-z0-9-]+", body["error"])
    assert body["message"]
    assert "\n" not in body["message"]
    assert "Traceback" not in reply.body.decode()
    return str(body["error"])


# ------------------------------------------------------------------ every route, every token


def routes(router: Any) -> Iterator[tuple[str, str, Any]]:
    """All of them, those of included routers too, whether this FastAPI copies them or points at them."""
    for route in router.routes:
        if hasattr(route, "original_router"):
            yield from routes(route.original_router)
        else:
            yield from ((method, route.path, route) for method in sorted(route.methods))


def concrete(path: str) -> str:
    return path.replace("{name}", "guarded").replace("{id}", "1")


def test_every_route_is_in_the_table_or_is_a_file_of_the_page(service: Service) -> None:
    files = {(method, path) for path in page_files() for method in ("GET", "HEAD")}
    found = {(method, path) for method, path, _ in routes(service.app)}
    assert found - files == set(SCOPES)
    assert files <= found
    assert not files & set(SCOPES)


def test_every_route_depends_on_its_scope_and_on_no_other(service: Service) -> None:
    for method, path, route in routes(service.app):
        parts = route.dependant.dependencies if isinstance(route, APIRoute) else []
        guards = [part.call.scope for part in parts if isinstance(part.call, access.Allow)]
        wanted = SCOPES.get((method, path))
        assert guards == ([wanted] if wanted else []), (method, path)


def test_openapi_says_which_routes_need_a_token(service: Service) -> None:
    schema = service.ask("GET", "/openapi.json").json()
    documented = {
        (method.upper(), path): "security" in operation
        for path, item in schema["paths"].items()
        for method, operation in item.items()
    }
    shown = {place: scope is not None for place, scope in SCOPES.items() if place[1] != "/openapi.json"}
    assert documented == shown


FILTERED = {"/v1/streams", "/v1/events"}  # a token for some streams sees only these there


def check_tokens_for_some_streams(
    service: Service, method: str, place: str, wanted: str | None, body: bytes | None
) -> None:
    """Tokens of every scope, for this stream, for others, expired and replaced."""
    now = time.time()
    for held, allowed in HELD.items():
        old = grant(service.database, held, now=now - 100.0, expires=now - 50.0)
        before = grant(service.database, held)
        for_none = [old, before]
        renewed = rotated(service.database, before)
        if wanted is None or wanted not in allowed:
            continue
        for token in for_none:
            assert (service.ask(method, place, body, token=token).status) == 401
        elsewhere = grant(service.database, held, streams=["guard", "guarded-*", "other*"])
        reply = service.ask(method, place, body, token=elsewhere)
        if place in FILTERED and method == "GET":
            assert reply.status == 200, reply
            assert b"guarded" not in reply.body
        else:
            assert (reply.status, refusal(reply)) == (403, "forbidden"), reply
            assert "this token is for the streams guard, guarded-*, other*" in reply.json()["message"]
        if method == "GET":
            assert service.ask(method, place, body, token=renewed).status < 400 or "columns" in place
            here = grant(service.database, held, streams=["guard*"])
            reply = service.ask(method, place, body, token=here)
            named = "guarded" in place or place in FILTERED
            assert (reply.status == 403) == (not named), reply


def test_openapi_names_each_route_in_plain_words(service: Service) -> None:
    schema = service.ask("GET", "/openapi.json").json()
    summaries = [operation["summary"] for item in schema["paths"].values() for operation in item.values()]
    assert len(set(summaries)) == len(summaries)
    for summary in summaries:  # a sentence, and not the name of a function in capital letters
        assert not re.search(" [A-Z]", summary.replace(" Prometheus", "")), summary


@pytest.mark.parametrize(("method", "path"), SCOPES)
def test_the_matrix_of_routes_and_tokens(service: Service, method: str, path: str) -> None:
    wanted, place = SCOPES[method, path], concrete(path)
    service.stream("guarded")
    revoked = grant(service.database, "admin")
    withdraw(service.database, revoked)
    admin = service.tokens["admin"]
    strangers = {
        "none": None,
        "garbage": "garbage",
        "empty": "",
        "of the right form": "ex_00000000_" + "A" * 43,
        "revoked": revoked,
        "cut": admin[:-1],
        "with the secret of another": admin[:12] + service.tokens["read"][12:],
    }
    body = None if method in ("GET", "HEAD") else b"{}"
    for kind, token in strangers.items():
        reply = service.ask(method, place, body, token=token)
        if wanted is None:
            assert reply.status in (200, 405), (kind, reply)
        else:
            assert (reply.status, refusal(reply)) == (401, "unauthorised"), (kind, reply)
            assert reply.header("www-authenticate") == "Bearer"
    check_tokens_for_some_streams(service, method, place, wanted, body)
    for held, allowed in HELD.items():
        reply = service.ask(method, place, body, token=held)
        if wanted is None or wanted in allowed:
            assert reply.status not in (401, 403), (held, reply)
            assert reply.status < 500
        else:
            assert (reply.status, refusal(reply)) == (403, "forbidden"), (held, reply)
    if wanted not in (None, "admin"):
        assert "guarded" in service.names()


def test_admin_requests_are_logged_denied_ones_too(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.stream("audited")
    elsewhere = grant(service.database, "admin", streams=["other"])
    expired = grant(service.database, "admin", now=1.0, expires=2.0)
    handler = logging.StreamHandler(text := io.StringIO())
    handler.setFormatter(JsonLines())
    audit = logging.getLogger("exchangeable.audit")
    audit.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "exchangeable"):
            for token in ("admin", "ingest", elsewhere, expired, None):
                service.ask("POST", "/v1/streams/audited/reset", b"", token=token)
                service.ask("GET", "/v1/streams/audited", token=token)  # no admin request
    finally:
        audit.removeHandler(handler)
    lines = [json.loads(line) for line in text.getvalue().splitlines()]
    done, denied = "admin action", "admin action denied"
    held = service.tokens["ingest"]
    assert [(line["level"], line["message"], line["status"], line.get("token")) for line in lines] == [
        ("info", done, 200, service.tokens["admin"][3:11]),
        ("warning", denied, 403, held[3:11]),
        ("warning", denied, 403, elsewhere[3:11]),
        ("warning", denied, 401, None),
        ("warning", denied, 401, None),
    ]
    assert {line["stream"] for line in lines} == {"audited"}


@pytest.mark.parametrize(("method", "path"), [place for place, scope in SCOPES.items() if scope])
@pytest.mark.parametrize("way", ["?token={}", "?access_token={}", "?authorization=Bearer%20{}"])
def test_no_route_takes_a_token_from_the_address(service: Service, method: str, path: str, way: str) -> None:
    token = service.tokens["admin"]
    for header in (None, "admin"):
        reply = service.ask(method, concrete(path) + way.format(token), token=header)
        assert refusal(reply, 401) == "unauthorised"
        assert token.encode() not in reply.body


def test_tokens_do_not_come_twice_or_in_other_clothes(service: Service) -> None:
    token = service.tokens["admin"]
    for headers in (
        (f"Authorization: Bearer {token}", f"Authorization: Bearer {token}"),
        ("Authorization: Bearer x", f"Authorization: Bearer {token}"),
        (f"Authorization: Basic {token}",),
        (f"Authorization: {token}",),
        (f"Cookie: Authorization=Bearer {token}",),
        (f"X-Authorization: Bearer {token}",),
        (f"Proxy-Authorization: Bearer {token}",),
    ):
        assert refusal(service.ask("GET", "/v1/streams", token=None, headers=headers), 401)


def test_the_token_is_asked_for_before_the_body_is_read(service: Service) -> None:
    for method, path in (("PUT", "/v1/streams/guarded"), ("POST", "/v1/streams/guarded/observations")):
        with socket.create_connection(("127.0.0.1", service.port), timeout=1.5) as line:  # before its 2 s are over
            line.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n".encode())
            assert refusal(read(line), 401)


@pytest.mark.parametrize("path", ["/v1/streams/guarded", "/v1/streams", "/v1/nothing", "/v2", "/admin", "/v1/streams/"])
@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "TRACE", "PATCH", "CONNECT", "PROPFIND", "GET\x0b"])
def test_other_methods_get_nothing(service: Service, method: str, path: str) -> None:
    assert service.ask(method, path, token=None).status in (400, 401, 403, 404, 405)


def test_without_tokens_the_server_is_open_to_this_machine_only(tmp_path: Path) -> None:
    with running(tmp_path, tokens=False) as service:
        assert service.ask("PUT", "/v1/streams/a", b"{}", token=None).status == 201
        assert service.ask("GET", "/v1/streams", token=None).status == 200
        assert refusal(service.ask("GET", "/v1/streams", token="ex_00000000_" + "A" * 43), 401)
        token = grant(service.database, "ingest")  # from here on it is closed
        for method, path in SCOPES:
            reply = service.ask(method, concrete(path), token=None)
            assert (reply.status == 401) == (SCOPES[method, path] is not None), (method, path)
        assert refusal(service.ask("GET", "/v1/streams", token=token), 403)


def test_without_tokens_a_server_for_others_is_shut(tmp_path: Path) -> None:
    with running(tmp_path, tokens=False, loopback=False) as service:
        for method, path in SCOPES:
            reply = service.ask(method, concrete(path), token=None)
            assert (reply.status == 401) == (SCOPES[method, path] is not None), (method, path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", ""])
def test_it_does_not_listen_to_others_without_a_token(tmp_path: Path, host: str) -> None:
    message = r"^host must be a loopback address such as 127\.0\.0\.1 while there is no token"
    with pytest.raises(ServeError, match=message):
        serve(tmp_path / "streams.db", host, 0, Settings(), page=False)


def test_it_does_not_go_by_a_public_name_without_a_token(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"while there is no token, got monitor\.example\.org$"):
        serve(tmp_path / "streams.db", "127.0.0.1", 0, Settings(hosts=("monitor.example.org",)), page=False)


def test_it_runs_without_a_log_of_addresses_and_trusts_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[uvicorn.Config] = []

    def note(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        made.append(server.config)
        sockets[0].close()

    monkeypatch.setattr(uvicorn.Server, "run", note)
    serve(tmp_path / "streams.db", "127.0.0.1", 0, Settings(), page=False)
    (config,) = made
    assert config.access_log is False  # an address may hold a token by mistake
    assert config.proxy_headers is False
    assert config.server_header is False
    assert config.ws == "none"


def test_nobody_else_can_read_the_database(service: Service) -> None:
    for file in service.database.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0, file


# ------------------------------------------------------------------ revocation reaches those who are in


def listen(service: Service, path: str, token: str) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", service.port), timeout=10)
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    status = read(line).status
    if status != 200:
        line.close()
    assert status == 200
    return line


def drained(line: socket.socket, seconds: float) -> bool:
    """Whether the server ends the events in time: by the last chunk, or by hanging up."""
    end, received = time.monotonic() + seconds, b""
    line.settimeout(0.2)
    while time.monotonic() < end:
        try:
            piece = line.recv(65_536)
            received = (received + piece)[-7:]
            if not piece or received == b"\r\n0\r\n\r\n":
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


@pytest.mark.parametrize("path", ["/v1/streams/watched/events", "/v1/events"])
@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
def test_a_revoked_token_reads_no_more_events(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str, busy: bool
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.3)
    service.stream("watched")
    token = grant(service.database, "read")
    stop = threading.Event()

    def feeding() -> None:
        seq = 0
        while not stop.wait(0.02):
            seq += 1
            assert service.observe("watched", b'{"seq": %d, "x": 1}' % seq).status == 200

    worker = threading.Thread(target=feeding)
    if busy:
        worker.start()
    try:
        with listen(service, path, token) as line:
            assert not drained(line, 1.0)
            withdraw(service.database, token)
            assert drained(line, 20.0)
    finally:
        stop.set()
        if busy:
            worker.join()
    assert "incident" not in caplog.text
    assert token[12:] not in caplog.text


def test_a_token_for_some_streams_lists_and_hears_only_these(service: Service) -> None:
    for name in ("mine-1", "mine-2", "yours"):
        service.stream(name)
    token = grant(service.database, "read,ingest", streams=["mine-*"])
    for query in ("", "?q=mine", "?q=s", "?order=name&limit=1&offset=1", "?spark=20"):
        page = service.ask("GET", f"/v1/streams{query}", token=token).json()
        assert {stream["name"] for stream in page["streams"]} <= {"mine-1", "mine-2"}
        assert page["total"] == (0 if query == "?q=s" else 2)
    with listen(service, "/v1/events", token) as line:
        for name in ("yours", "mine-2"):
            assert service.observe(name, b'{"x": 1}').status == 200
        assert refusal(service.ask("DELETE", "/v1/streams/yours", token=token), 403)
        assert service.ask("DELETE", "/v1/streams/yours").status == 204
        assert service.observe("mine-1", b'{"x": 1}').status == 200
        heard, end = b"", time.monotonic() + 10.0
        while b"mine-1" not in heard:
            assert time.monotonic() < end
            heard += line.recv(65536)
    assert b"mine-2" in heard
    assert b"yours" not in heard


def test_readers_that_come_and_go_leave_no_trace(service: Service) -> None:
    service.stream("watched")
    for _ in range(3 * LIMITS.events_readers):
        for path in ("/v1/events", "/v1/streams/watched/events"):
            with socket.create_connection(("127.0.0.1", service.port), timeout=10) as line:
                head = (
                    f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.tokens['read']}\r\n\r\n"
                )
                line.sendall(head.encode())  # and gone, without a word
    assert deserted(service)


def deserted(service: Service) -> bool:
    """Whether all readers have left, for a while: some may be on their way in yet."""
    end, empty = time.monotonic() + 10.0, 0
    while empty < 10 and time.monotonic() < end:
        empty = 0 if service.app.state.feed.readers else empty + 1
        time.sleep(0.05)
    return empty == 10


def test_there_is_a_limit_to_readers(service: Service) -> None:
    assert deserted(service)
    with ExitStack() as lines:
        for _ in range(LIMITS.events_readers):
            lines.enter_context(listen(service, "/v1/events", service.tokens["read"]))
        reply = service.ask("GET", "/v1/events")
        assert refusal(reply, 429) == "overload"
        assert int(reply.header("retry-after") or 0) > 0


# ------------------------------------------------------------------ traversal

PATHS = [  # as they stand in the request
    "..",
    ".",
    "%2e",
    "%2e%2e",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cwindows%5cwin.ini",
    "../../etc/passwd",
    "a/../../b",
    "a%2fb",
    "a%2Fobservations",
    "%252e%252e%252f",
    "%c0%ae%c0%ae%c0%af",  # overlong dots and slash
    "%e0%80%ae",
    "%ef%bc%8e%ef%bc%8e%ef%bc%8f",  # full-width
    "%e2%80%a4%e2%80%a4",  # one dot leaders
    "%00",
    "a%00",
    "a%00.db",
    "a%0a",
    "a%0d%0aSet-Cookie:x=1",
    "a%20b",
    "%20a",
    "a;b",
    "a%3fb",
    "a%23b",
    "A",
    "%c3%a9",
    "%ed%a0%80",  # a lone surrogate
    "%ff",
    "-a",
    ".a",
    "_a",
    "a" * 65,
    "a" * 5_000,
    "file:%2f%2f%2fetc%2fpasswd",
    "http:%2f%2f169.254.169.254%2flatest",
    "%3cscript%3ealert(1)%3c%2fscript%3e",
    "a'%20or%20'1'='1",
    "%d0%b0dmin",  # a Cyrillic a
    "a%e2%80%8b",  # an invisible space
]


@pytest.mark.parametrize("name", PATHS)
def test_a_name_is_a_plain_word(service: Service, name: str) -> None:
    before = service.names()
    for method, path, body in (
        ("PUT", f"/v1/streams/{name}", b"{}"),
        ("GET", f"/v1/streams/{name}", None),
        ("DELETE", f"/v1/streams/{name}", None),
        ("POST", f"/v1/streams/{name}/observations", b'{"seq": 1, "x": 1}'),
        ("GET", f"/v1/streams/{name}/export", None),
        ("GET", f"/v1/streams/{name}/events", None),
    ):
        reply = service.ask(method, path, body)
        refusal(reply, 400, 404, 405, 422)
        assert b"root:" not in reply.body
        assert reply.header("set-cookie") is None
    assert service.names() == before


@pytest.mark.parametrize(
    "name", ["a", "0", "a..b", "a-_.", "a" * 64, "..".join("ab"), "null", "undefined", "con", "nul"]
)
def test_a_plain_word_is_a_name_and_nothing_else(service: Service, name: str) -> None:
    before = sorted(service.database.parent.iterdir())
    service.stream(name)
    assert service.state(name)["name"] == name
    assert sorted(service.database.parent.iterdir()) == before
    assert service.ask("DELETE", f"/v1/streams/{name}").status == 204


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/page/../__init__.py",
        "/page/..%2f__init__.py",
        "/page/%2e%2e/app.py",
        "/page//etc/passwd",
        "/page/vendor/../../store.py",
        "/page/style.css%00.html",
        "/page/style.css/",
        "/page/",
        "/page",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/streams.db",
        "/page/__init__.py",
        "/.git/config",
        "/static/..%5c..%5capp.py",
    ],
)
def test_only_the_files_of_the_table_are_served(service: Service, path: str) -> None:
    reply = service.ask("GET", path, token=None)
    assert refusal(reply, 400, 404) in ("bad-request", "not-found")
    assert b"import " not in reply.body


def test_the_page_of_any_name_is_the_same_file(service: Service) -> None:
    pages = {service.ask("GET", f"/streams/{name}", token=None).body for name in ("a", "%3cscript%3e", "..%2e", "%00")}
    assert len({page for page in pages if b"<html" in page}) == 1
    assert not any(b"<script>e" in page for page in pages)


# ------------------------------------------------------------------ rebinding, forged requests


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "0.0.0.0", "192.168.0.1"]
)
def test_a_rebound_name_reaches_no_route(service: Service, host: str) -> None:
    probes = {"/healthz", "/readyz"}  # which say nothing about streams
    for method, path in [*SCOPES, *(("GET", path) for path in page_files())]:
        if path in probes:
            continue
        reply = service.ask(method, concrete(path), host=f"{host}:{service.port}")
        assert reply.status == 421, (method, path)
        assert method == "HEAD" or refusal(reply, 421) == "untrusted-host"


FORGED = [
    ("Origin: http://evil.example",),
    ("Origin: null",),
    ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
    ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
    ("Sec-Fetch-Site: same-site",),
    ("Origin: http://localhost:1",),
]


@pytest.mark.parametrize("headers", FORGED)
def test_another_site_changes_nothing_even_on_an_open_server(tmp_path: Path, headers: tuple[str, ...]) -> None:
    with running(tmp_path, tokens=False) as service:
        assert service.ask("PUT", "/v1/streams/a", b"{}", token=None).status == 201
        before = service.ask("GET", "/v1/streams", token=None).json()
        for (method, path), scope in SCOPES.items():
            if method in ("PUT", "POST", "DELETE"):
                place = path.replace("{name}", "a").replace("{id}", "1")
                for media in ("text/plain", "application/x-www-form-urlencoded", JSON):
                    body = b'{"seq": 1, "x": 1}'
                    reply = service.ask(method, place, body, token=None, headers=headers, media=media)
                    assert (reply.status, scope is not None) == (403, True), (method, path)
        assert service.ask("GET", "/v1/streams", token=None).json() == before


def test_a_form_is_not_an_observation(service: Service) -> None:
    """What a page can post without asking: three media types, none of which is taken."""
    service.stream("forms")
    for media in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "text/json",
    ):
        for path in ("observations", "labels"):
            reply = service.ask("POST", f"/v1/streams/forms/{path}", b'{"seq": 1, "x": 1}', media=media)
            assert refusal(reply, 415) == "unsupported-media-type"
    assert service.state("forms")["next_seq"] == 1


def test_there_is_no_cors_and_every_answer_is_dressed(service: Service) -> None:
    for method, path in [
        *SCOPES,
        ("GET", "/"),
        ("GET", "/nowhere"),
        ("POST", "/v1/streams"),
        ("OPTIONS", "/v1/streams"),
    ]:
        for token in (None, "admin"):
            reply = service.ask(method, concrete(path), token=token, headers=("Access-Control-Request-Method: PUT",))
            assert reply.header("content-security-policy") == POLICY
            assert reply.header("x-content-type-options") == "nosniff"
            assert reply.header("referrer-policy") == "no-referrer"
            assert reply.header("cross-origin-resource-policy") == "same-origin"
            assert reply.header("server") is None
            assert not [name for name, _ in reply.headers if name.startswith("access-control")]
            if path.startswith("/v1"):
                assert reply.header("cache-control") == "no-store"


def test_the_documentation_runs_no_inline_script(service: Service) -> None:
    policy = service.ask("GET", "/docs", token=None).header("content-security-policy") or ""
    assert "script-src 'self';" in policy
    assert "'unsafe-eval'" not in policy
    assert "http" not in policy
    for path, file in page_files().items():
        if file.media_type.startswith("text/html"):
            page = service.ask("GET", path.replace("{name}", "a"), token=None).body.decode()
            assert not re.search(r"<script(?![^>]*\bsrc=)", page), path
            assert not re.search(r"\son[a-z]+\s*=", page), path
            assert not re.search(r"(src|href)=[\"'](https?:)?//", page), path
            assert "javascript:" not in page


# ------------------------------------------------------------------ bodies


def rejected(service: Service, body: bytes, *statuses: int, media: str = NDJSON, name: str = "bodies") -> str:
    """Refused, and the stream is as before."""
    before = service.state(name)
    code = refusal(service.observe(name, body, media), *statuses)
    assert service.state(name) == before
    return code


def shown(body: bytes) -> str:
    return repr(body[:40])


@pytest.fixture
def bodies(service: Service) -> Service:
    service.stream("bodies")
    assert service.observe("bodies", b'{"seq": 1, "x": 0.5}').status == 200
    return service


NUMBERS = [
    "NaN",
    "-NaN",
    "nan",
    "Infinity",
    "-Infinity",
    "inf",
    "1e999",
    "-1e999",
    "1e309",
    "9" * 400,
    "-" + "9" * 400,
    "9" * 100_000,
    "1" + "0" * 308 + "e1",
    "0x10",
    "1_000",
    "01",
    "+1",
    ".5",
    "1.",
    "1e",
    "--1",
    "true",
    "false",
    "null",
    '"1"',
    '"NaN"',
    "{}",
    "[]",
    "[NaN]",
    "[1, Infinity]",
    "[1e999]",
    "[true]",
    "[[1]]",
    '{"$numberDouble": "NaN"}',
    "1 2",
    "1/2",
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:20])
def test_what_is_not_a_finite_number_is_refused(bodies: Service, number: str) -> None:
    for media in (JSON, NDJSON):
        rejected(bodies, b'{"seq": 2, "x": %s}' % number.encode(), 400, 422, media=media)
    first = b'{"seq": 2, "x": 1}\n'
    rejected(bodies, first + b'{"seq": 3, "x": %s}' % number.encode(), 400, 422)  # all or nothing


@pytest.mark.parametrize(
    "seq",
    ["0", "-1", "1.0", "1e0", "true", '"2"', "null", "[2]", "9007199254740992", "18446744073709551618", "9" * 5_000],
)
def test_seq_is_a_whole_number(bodies: Service, seq: str) -> None:
    rejected(bodies, b'{"seq": %s, "x": 1}' % seq.encode(), 400, 422)


def test_the_last_seq_of_all_is_a_gap(bodies: Service) -> None:
    assert rejected(bodies, b'{"seq": 9007199254740991, "x": 1}', 409) == "gap"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"\n\n\n",
        b"\x00",
        b"null",
        b"[]",
        b"2",
        b'"text"',
        b"{",
        b"}",
        b'{"seq": 2, "x": 1',
        b'{"seq": 2, "x": 1}}',
        b'{"seq": 2, "x": 1},',
        b'[[{"seq": 2, "x": 1}]]',
        b'{"seq": 2}',
        b'{"y": 1}',
        b'{"seq": 2, "x": 1, "path": "/etc/passwd"}',
        b'{"seq": 2, "x": 1, "__proto__": {}}',
        b"{'seq': 2, 'x': 1}",
        b'{"seq": 2, "x": 1} // comment',
        b'/* */ {"seq": 2, "x": 1}',
        b'{"seq": 2, "x": 1, "id": ""}',
        b'{"seq": 2, "x": 1, "id": 7}',
        b'{"seq": 2, "x": 1, "id": "%s"}' % (b"a" * 257),
        b'{"seq": 2, "x": 1, "y": "%s"}' % (b"a" * 257),
        b'{"seq": 2, "x": 1, "time": "%s"}' % (b"a" * 257),
        b'{"seq": 2, "x": 1, "y": %s}' % (b"9" * 30),
        b'{"seq": 2, "x": 1, "y": true}',
        b'{"seq": 2, "x": 1, "y": [1]}',
        b'{"seq": 2, "x": 1, "id": "\\ud800"}',  # lone surrogates
        b'{"seq": 2, "x": 1, "y": "\\udc00\\ud800"}',
        b'{"seq": 2, "x": 1, "y": "\xed\xa0\x80"}',
        b'{"seq": 2, "x": 1, "y": "\xff"}',
        b'{"seq": 2, "x": 1, "y": "\xc0\xae"}',
        b'{"seq": 2, "x": 1, "y": "a\nb"}',
        b'\xef\xbb\xbf{"seq": 2, "x": 1}',  # a byte order mark
        '{"seq": 2, "x": 1}'.encode("utf-16"),
        '{"seq": 2, "x": 1}'.encode("utf-16-le"),
        '{"seq": 2, "x": 1}'.encode("utf-32"),
        '{"seq": 2, "x": 1, "y": "é"}'.encode("latin-1"),
        b"\x1f\x8b\x08\x00",
        b"PK\x03\x04",
        b"\x80\x04\x95",  # a pickle
        b'{"seq": 2, "x": ' + b"[" * 10_000,
        b'{"seq": 2, "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"a":' * 10_000,
        b'{"seq": 2, "x": 1, "y": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
        b"[" * 500_000,
        b'{"seq": 2, "x": [%s]}' % b",".join([b"1"] * 4_097),
        b'{"seq": 2, "x": [1, 2]}',  # not a number, which this measure wants
        b'{"seq": 2, "x": 1}\n{"seq": 3, "x": [1, 2]}',
        b'{"seq": 3, "x": 1}\n{"seq": 2, "x": 1}',
        b'{"seq": 2, "x": 1}\n{"seq": 2, "x": 2}',
        b'{"seq": 1, "x": 0.75}',
    ],
    ids=shown,
)
def test_what_is_not_an_observation_is_refused(bodies: Service, body: bytes) -> None:
    rejected(bodies, body, 400, 409, 413, 422)
    rejected(bodies, body, 400, 409, 413, 422, media=JSON)


@pytest.mark.parametrize(
    "body",
    [
        b'{"seq": 9, "seq": 2, "x": 0.25}',
        b'{"seq": 2, "x": 7, "x": 0.25}',
        b'{"seq": 2, "x": 7, "\\u0078": 0.25}',
        b'{"seq": 2, "x": 7, "y": 1, "y": 1}\n{"seq": 3, "x": 7}',
        b'{"seq": 2, "x": 7, "y": "x", "x": 7}',
        b'{"seq": 2, "x": 7} {"seq": 3, "x": 7, "x": 0.25}',
        b'{"seq": 2, "x": 7,\n"x": 0.25}',
    ],
)
def test_a_key_that_comes_twice_is_refused(bodies: Service, body: bytes) -> None:
    assert rejected(bodies, body, 400) == "bad-json"


@pytest.mark.parametrize("y", ["x", "seq", 'a "x" b', "\\", "y"])
def test_a_text_that_looks_like_a_key_is_no_key(bodies: Service, y: str) -> None:
    line = json.dumps({"seq": 2, "x": 0.25, "y": y}).encode()
    assert bodies.observe("bodies", line).json()["next_seq"] == 3


def test_an_unknown_field_may_have_any_name(bodies: Service) -> None:
    assert rejected(bodies, b'{"seq": 2, "x": 1, " - at `$.z": 2}', 422) == "bad-observation"


def test_a_batch_has_at_most_ten_thousand_lines(bodies: Service) -> None:
    lines = [b'{"seq": %d, "x": 1}' % seq for seq in range(2, 10_003)]
    assert rejected(bodies, b"\n".join(lines), 413) == "too-large"
    assert rejected(bodies, b"\n" * 100_000, 413) == "too-large"
    reply = bodies.observe("bodies", b"\n".join(lines[:-1]))
    assert (reply.status, reply.json()["accepted"]) == (200, 10_000)


def test_lines_may_end_as_on_other_systems(bodies: Service) -> None:
    body = b'{"seq": 2, "x": 1}\r\n\r\n{"seq": 3, "x": 1}\r\n\n \n{"seq": 4, "x": 1}\n'
    assert bodies.observe("bodies", body).json()["accepted"] == 3


def test_odd_but_lawful_texts_are_kept(bodies: Service) -> None:
    bodies.stream("odd", measure={"kind": "nearest-neighbour", "cap": 100})
    ids = [
        "\x00",
        "\u202e",
        "\U0001f600",
        "<script>",
        "'; DROP TABLE streams; --",
        "a" * 256,
        "../../x",
        "%s%n",
        "\ufeff",
    ]
    lines = [json.dumps({"seq": seq, "x": [1.0, seq], "id": name}).encode() for seq, name in enumerate(ids, 1)]
    assert bodies.observe("odd", b"\n".join(lines)).json()["waiting"] == len(ids)
    waiting = bodies.ask("GET", "/v1/streams/odd/waiting").json()["waiting"]
    assert [one["id"] for one in waiting] == ids
    labels = b"\n".join(json.dumps({"id": name, "y": "\x00<b>"}).encode() for name in ids)
    reply = bodies.ask("POST", "/v1/streams/odd/labels", labels, media=NDJSON)
    assert (reply.status, reply.json()["accepted"]) == (200, len(ids))


def test_bodies_over_the_limit_are_refused_fixed_or_chunked(bodies: Service) -> None:
    before = bodies.state("bodies")
    big = b'{"seq": 2, "x": 1, "y": "' + b"a" * LIMITS.body_bytes + b'"}'
    assert refusal(bodies.observe("bodies", big), 413) == "too-large"
    head = (
        f"POST /v1/streams/bodies/observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        f"Authorization: Bearer {bodies.tokens['ingest']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", bodies.port), timeout=20) as line:
        line.sendall(head)
        with suppress(ConnectionError):
            for _ in range(200):
                line.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
        assert refusal(read(line), 413) == "too-large"
    put = b'{"seed": 1' + b" " * LIMITS.configuration_bytes + b"}"
    assert refusal(bodies.ask("PUT", "/v1/streams/huge", put), 413) == "too-large"
    assert bodies.state("bodies") == before


def test_a_chunked_body_is_taken(bodies: Service) -> None:
    head = (
        f"POST /v1/streams/bodies/observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        f"Authorization: Bearer {bodies.tokens['ingest']}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", bodies.port), timeout=20) as line:
        line.sendall(head + b'5\r\n{"seq\r\n' + b'd\r\n": 2, "x": 1}\r\n' + b"0\r\n\r\n")
        assert read(line).json()["accepted"] == 1


def test_a_smuggled_request_is_not_seen(bodies: Service) -> None:
    before = bodies.names()
    bearer = f"Authorization: Bearer {bodies.tokens['admin']}"
    inner = f"DELETE /v1/streams/bodies HTTP/1.1\r\nHost: localhost\r\n{bearer}\r\n\r\n"
    for framing in (
        f"Content-Length: {len(inner)}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
        "Content-Length: +0\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", bodies.port), timeout=20) as line:
            line.sendall(f"POST /v1/streams/bodies/reset HTTP/1.1\r\nHost: localhost\r\n{framing}{inner}".encode())
            assert read(line).status in (400, 401, 501)
            with suppress(ConnectionError):
                assert line.recv(1_000) == b""
    assert bodies.names() == before


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_bombs_are_not_unpacked(bodies: Service, coding: str) -> None:
    headers = (f"Content-Encoding: {coding}",)
    reply = bodies.ask("POST", "/v1/streams/bodies/observations", b"\x1f\x8b", headers=headers, media=NDJSON)
    assert refusal(reply, 415) == "unsupported-media-type"


# ------------------------------------------------------------------ configurations


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b"1",
        b"{",
        b'{"seed": NaN}',
        b'{"alarm": {"kind": "ville", "alpha": NaN}}',
        b'{"alarm": {"kind": "ville", "alpha": 1e999}}',
        b'{"alarm": {"kind": "ville", "alpha": 0}}',
        b'{"alarm": {"kind": "ville", "alpha": 2}}',
        b'{"alarm": {"kind": "ville", "alpha": "0.1"}}',
        b'{"alarm": {"kind": "ville", "alpha": 1e-308}}',
        b'{"alarm": {"kind": "cusum", "period": 1e999}}',
        b'{"alarm": {"kind": "cusum", "period": 0}}',
        b'{"seed": -1}',
        b'{"seed": true}',
        b'{"seed": 1.5}',
        b'{"seed": %s}' % (b"9" * 400),
        b'{"seed": %s}' % (b"9" * 5_000),
        b'{"seed": 1, "seed": 2}',
        b'{"measure": {"kind": "value"}, "measure": {"kind": "p-values"}}',
        b'{"measure": {"kind": "no-such-thing"}}',
        b'{"measure": {"kind": "../../etc/passwd"}}',
        b'{"measure": {"kind": "os.system"}}',
        b'{"measure": {"kind": "__import__(\'os\')"}}',
        b'{"measure": {"kind": ["value"]}}',
        b'{"measure": "value"}',
        b'{"measure": {"kind": "value", "function": "lambda x: x"}}',
        b'{"measure": {"kind": "frozen"}}',
        b'{"measure": {"kind": "frozen", "reference": "/etc/passwd"}}',
        b'{"measure": {"kind": "frozen", "reference": "http://169.254.169.254/"}}',
        b'{"measure": {"kind": "frozen", "reference": []}}',
        b'{"measure": {"kind": "frozen", "reference": [1, NaN]}}',
        b'{"measure": {"kind": "frozen", "reference": [1, 1e999]}}',
        b'{"measure": {"kind": "frozen", "reference": [1, 2], "bins": 1e9}}',
        b'{"measure": {"kind": "frozen", "reference": [%s]}}' % b",".join([b"1"] * 100_001),
        b'{"measure": {"kind": "nearest-neighbour", "cap": 50001}}',
        b'{"measure": {"kind": "nearest-neighbour", "cap": 0}}',
        b'{"measure": {"kind": "nearest-neighbour", "cap": 1e3}}',
        b'{"bet": {"kind": "eval"}}',
        b'{"bet": {"kind": "adaptive", "code": "1"}}',
        b'{"bet": {"kind": null}}',
        b'{"measure": {"kind": "nearest-neighbour"}, "labels": {"most": 100001}}',
        b'{"labels": {"wait": -1}}',
        b'{"on_alarm": "exec"}',
        b'{"webhook": "http://169.254.169.254/latest/meta-data"}',
        b'{"url": "http://127.0.0.1:22"}',
        b'{"path": "/etc/passwd"}',
        b'{"__class__": "x"}',
        b'{"\\ud800": 1}',
        b'{"bet": {"kind": "\\ud800"}}',
        b'{"measure": {"kind": "\\udfff\\ud800"}}',
        b'{"on_alarm": "\\ud800"}',
        b'\xef\xbb\xbf{"seed": 1}',
        '{"seed": 1}'.encode("utf-16"),
        b'{"seed": "\xff"}',
        b'{"a": ' * 5_000,
        b'{"measure": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"measure": ' * 9 + b"1" + b"}" * 9,
    ],
    ids=shown,
)
def test_what_is_not_a_configuration_is_refused(service: Service, body: bytes) -> None:
    service.ask("DELETE", "/v1/streams/configured")
    refusal(service.ask("PUT", "/v1/streams/configured", body), 400, 413, 422)
    assert "configured" not in service.names()


def test_there_is_a_limit_to_streams(tmp_path: Path) -> None:
    with running(tmp_path, limits=Limits(streams=3)) as service:
        for number in range(3):
            service.stream(f"s{number}")
        assert refusal(service.ask("PUT", "/v1/streams/s3", b"{}"), 409) == "too-many-streams"
        assert service.ask("PUT", "/v1/streams/s2", b"{}").status == 200
        assert service.ask("DELETE", "/v1/streams/s2").status == 204
        assert service.ask("PUT", "/v1/streams/s3", b"{}").status == 201


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=1e3",
        "limit=" + "9" * 5_000,
        "offset=-1",
        "offset=9223372036854775808",
        "order=name;drop",
        "order=",
        "spark=201",
        "spark=-1",
        "q=" + "a" * 65,
        "limit=%00",
        "limit=\u0661".encode().decode("latin-1"),
    ],
    ids=lambda query: query[:20],
)
def test_questions_have_limits(service: Service, query: str) -> None:
    assert refusal(service.ask("GET", f"/v1/streams?{quote(query, safe='=&%;')}"), 422) == "bad-request"


@pytest.mark.parametrize("q", ["%25", "_", "'", "%00", "%ed%a0%80", "%ff", "*", "%5c", "a%27%20OR%201=1--"])
def test_a_search_is_a_text(service: Service, q: str) -> None:
    service.stream("searched")
    assert service.ask("GET", f"/v1/streams?q={q}").json()["streams"] == []


@pytest.mark.parametrize("alpha", ["0", "1", "-1", "nan", "inf", "1e-400", "x", ""])
def test_alpha_is_a_probability(service: Service, alpha: str) -> None:
    refusal(service.ask("GET", f"/v1/fleet?alpha={alpha}"), 422)


@pytest.mark.parametrize("given_", ["x", "-1", "9" * 30, "1.5", "%00", "\xff", " "])
def test_a_garbled_last_event_is_no_harm(service: Service, given_: str) -> None:
    service.stream("watched")
    reply = service.ask("GET", "/v1/streams/watched/events", headers=(f"Last-Event-ID: {given_}",))
    assert reply.status in (200, 400, 422)


# ------------------------------------------------------------------ what is written down


def test_no_secret_reaches_the_log_or_the_answer(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    service.stream("logged")
    secret = service.tokens["admin"][12:]
    marker = "confidential-4711"
    replies = [
        service.observe("logged", json.dumps({"seq": 1, "x": 1, "id": marker}).encode()),
        service.observe("logged", json.dumps({"seq": 1, "x": 1, marker: 1}).encode()[:-1]),
        service.ask("PUT", "/v1/streams/other", json.dumps({"seed": marker}).encode(), token="ingest"),
        service.ask("GET", f"/v1/streams?token={service.tokens['admin']}"),
        service.ask("GET", "/v1/streams", token=service.tokens["admin"][:-1] + "!"),
    ]
    logged = [record.getMessage() for record in caplog.records if record.name != "uvicorn.access"]  # ours is off
    assert not [line for line in logged if marker in line or secret in line]
    assert all(secret.encode() not in reply.body for reply in replies)


def test_an_accident_within_is_a_number_and_nothing_changes(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    service.stream("accident")
    before = service.state("accident")

    secret = "".join(["confi", "dential"])  # the log shows lines of code

    def fall(*_: Any, **__: Any) -> None:
        raise RuntimeError(secret)

    with monkeypatch.context() as patch:
        patch.setattr(service.app.state.engine.ingest, "observe", fall)
        reply = service.observe("accident", b'{"seq": 1, "x": 1}')
    assert (reply.status, reply.json()["error"]) == (500, "internal")
    assert reply.json()["incident"] in caplog.text
    assert secret not in caplog.text + reply.body.decode()
    assert service.state("accident") == before
    assert service.observe("accident", b'{"seq": 1, "x": 1}').status == 200


def served(service: Service) -> bool:
    """Whether the one thread that writes still does."""
    future = service.app.state.engine.probe()
    try:
        future.result(timeout=3.0)
    except TimeoutError:
        return False
    return True


def test_an_accident_between_requests_does_not_end_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(*_: Any, **__: Any) -> None:
        raise RuntimeError("an accident")

    with running(tmp_path) as service:
        service.stream("accident")
        with monkeypatch.context() as patch:
            patch.setattr(service.app.state.engine.streams, "evict", fall)
            future = service.app.state.engine.reset("accident")
            with pytest.raises((RuntimeError, Problem)):
                future.result(timeout=3.0)
        assert served(service)


def test_a_caller_that_gives_up_does_not_end_the_service(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        service.stream("given-up")
        for ask in (service.app.state.engine.reset, service.app.state.engine.bet):
            while not ask("given-up").cancel():  # some are served before that
                pass
            assert served(service)


# ------------------------------------------------------------------ fuzzing the parser

LINE = st.fixed_dictionaries(
    {
        "seq": st.integers(1, 2**53 - 1),
        "x": st.floats(allow_nan=False, allow_infinity=False) | st.lists(st.integers(-9, 9)),
    },
    optional={
        "y": st.text(max_size=5) | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False),
        "id": st.text(max_size=5),
        "time": st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False) | st.none(),
    },
)
PIECES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"1e999", b"-0", b"\\u0000"),
        *(b"null", b"true", b"9" * 400, b"\x00", b"\xef\xbb\xbf", b'"x":', b'"seq":1,', b" ", b"\t", b"\x0b", b"[["),
        *(b"E", b"-", b"\\ud800", b"\xff"),
    ]
)


@st.composite
def mangled(draw: st.DrawFn, text: bytes) -> bytes:
    """A text with a few pieces cut out, doubled or put in."""
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        stop = min(len(text), start + draw(st.integers(0, 6)))
        text = text[:start] + draw(PIECES | st.binary(max_size=3) | st.just(text[start:stop] * 2)) + text[stop:]
    return text


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(LINE, max_size=4))
    ascii_ = draw(st.booleans())
    return draw(mangled(b"\n".join(json.dumps(line, ensure_ascii=ascii_).encode("utf-8", "replace") for line in lines)))


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    lines = draw(st.lists(LINE | st.fixed_dictionaries({"x": st.integers(-9, 9)}), max_size=4))
    return draw(mangled(json.dumps(lines, indent=draw(st.none() | st.just(1))).encode()))


def _slowly(body: bytes, many: bool) -> list[dict[str, Any]]:
    """The standard library's reading."""

    def refuse(word: str) -> float:
        raise ValueError(word)

    decoder = json.JSONDecoder(parse_constant=refuse)
    text, place, found = body.decode("utf-8"), 0, []
    while text[place:].strip(" \t\r\n"):
        place += len(text[place:]) - len(text[place:].lstrip(" \t\r\n"))
        value, place = decoder.raw_decode(text, place)
        found.append(value)
    assert many or len(found) == 1
    return found[0] if not many and isinstance(found[0], list) else found


def check_problem(problem: Problem) -> None:
    """The client's fault, in words that can be sent."""
    assert 400 <= problem.status < 500
    problem.message.encode("utf-8")
    json.dumps(problem.body)


@settled(800)
@given(st.binary(max_size=60) | batches() | arrays(), st.sampled_from(["json", "ndjson"]))
def test_the_parser_refuses_or_agrees_with_another(body: bytes, form: parsing.Form) -> None:
    try:
        batch = parsing.observations(body, form, batch=3, width=5, text=4)
    except Problem as problem:
        check_problem(problem)
        return
    lines = _slowly(body, form == "ndjson")
    assert 1 <= len(lines) == len(batch) <= 3
    assert batch.x.shape[1] <= 5
    for place, line in enumerate(lines):
        assert set(line) <= {"seq", "x", "y", "id", "time"}
        assert type(line.get("seq")) is (int if batch.numbered else type(None))
        assert line.get("seq", place + 1) in (None, batch.seq[place])
        assert batch.seq[place] >= 1
        x = line["x"] if isinstance(line["x"], list) else [line["x"]]
        assert [float(value) for value in x] == batch.x[place].tolist()
        assert all(math.isfinite(value) for value in batch.x[place])
        for key in ("y", "id", "time"):
            column = getattr(batch.extras, key)
            assert line.get(key) == (column[place] if column else None)
            assert not isinstance(line.get(key), str) or len(line[key]) <= 4


@settled(400)
@given(
    st.binary(max_size=60) | st.builds(lambda y, i: json.dumps({"id": i, "y": y}).encode(), st.integers(), st.text())
)
def test_the_parser_of_labels_refuses_or_agrees(body: bytes) -> None:
    try:
        (label,) = parsing.labels(body, "json")
    except Problem as problem:
        check_problem(problem)
        return
    assert json.loads(body) == {"id": label.id, "y": label.y}


@settled(100)
@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    ).map(lambda value: json.dumps(value).encode())
)
def test_the_parser_of_objects_refuses_or_agrees(body: bytes) -> None:
    try:
        value = parsing.json_object(body, 4)
    except Problem as problem:
        check_problem(problem)
        return
    assert value == json.loads(body)


# ------------------------------------------------------------------ fuzzing the server


@st.composite
def tails(draw: st.DrawFn) -> Callable[[int], bytes]:
    """Lines that would be right, numbered from where the stream stands, and then mangled."""
    values = draw(
        st.lists(st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4)
    )
    seed = draw(mangled(b"\n".join(b'{"seq": <%d>, "x": %s}' % (i, repr(x).encode()) for i, x in enumerate(values))))
    return lambda first: re.sub(rb"<(\d)>", lambda found: b"%d" % (first + int(found[1])), seed)


@pytest.mark.hypothesis
def test_no_body_breaks_the_server_and_what_is_refused_changes_nothing(service: Service) -> None:
    service.stream("fuzzed")
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    bearer = {"Authorization": f"Bearer {service.tokens['admin']}", "Host": "localhost"}
    taken = []

    def ask(method: str, path: str, body: bytes | None = None, media: str = NDJSON) -> tuple[int, Any]:
        connection.request(method, path, body, {**bearer, "Content-Type": media})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())

    @settled(300)
    @given(tails() | st.binary(max_size=40).map(lambda body: lambda _: body), st.sampled_from([NDJSON, JSON]))
    def attempt(make: Callable[[int], bytes], media: str) -> None:
        _, before = ask("GET", "/v1/streams/fuzzed")
        status, body = ask("POST", "/v1/streams/fuzzed/observations", make(before["next_seq"]), media)
        _, after = ask("GET", "/v1/streams/fuzzed")
        assert status == 200 or 400 <= status < 500, body
        if status == 200:
            taken.append(body["accepted"])
            assert after["next_seq"] == body["next_seq"] == before["next_seq"] + body["accepted"]
            assert after["state"] == body["state"]
        else:
            assert {"error", "message"} <= set(body)
            assert after == before

    attempt()
    assert sum(taken) > 20  # not all was refused
    connection.close()


# ------------------------------------------------------------------ the schema


@pytest.fixture(scope="module")
def schema(service: Service) -> Any:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{service.port}/openapi.json")


# events do not end, and no generator writes the rows of a reference, or lines of configurations
LEFT_OUT = ("events", ".json", "reference")
ENDING = [place for place in SCOPES if not place[1].endswith(LEFT_OUT) and place != ("POST", "/v1/streams")]
MODES = [
    (*place, mode)
    for place in ENDING
    for mode in schemathesis.GenerationMode
    if mode == schemathesis.GenerationMode.POSITIVE or place[1] not in ("/healthz", "/readyz")  # nothing to break there
]
UNASKED = [negative_data_rejection, positive_data_acceptance]  # unknown questions are ignored; gaps are refused


@pytest.mark.hypothesis
@pytest.mark.parametrize(("method", "path", "mode"), MODES)
def test_the_server_keeps_to_its_schema(
    service: Service, schema: Any, method: str, path: str, mode: schemathesis.GenerationMode
) -> None:
    """Valid and invalid requests about an existing stream: no 5xx, and only replies that the schema allows."""
    service.stream("described", measure={"kind": "nearest-neighbour", "cap": 100})
    assert (
        service.observe("described", b'{"seq": 1, "x": [1, 2], "y": 1}\n{"seq": 2, "x": [1, 3], "id": "a"}').status
        == 200
    )
    valid = mode == schemathesis.GenerationMode.POSITIVE
    names = {"name": "described"} if valid and "{name}" in path else None

    @settled(15)
    @given(schema[path][method].as_strategy(generation_mode=mode, path_parameters=names))
    def attempt(case: Any) -> None:
        bearer = {"Authorization": f"Bearer {service.tokens['admin']}"}
        case.call_and_validate(headers=bearer, timeout=20, excluded_checks=UNASKED)

    attempt()


def test_the_database_is_sound_after_all_this(service: Service) -> None:
    connection = sqlite3.connect(service.database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()
    assert service.ask("GET", "/readyz", token=None).status == 200
