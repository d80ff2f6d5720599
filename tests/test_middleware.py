"""What every request passes: hosts, other sites, bodies; and what every response carries."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import BaseModel

from exchangeable.service.middleware import HEADERS, POLICY, SecurityMiddleware
from exchangeable.service.origins import check_bindable, is_exposed
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Limits, Settings
from web import PARSERS, Reply, read, serving, talk

SECRET = "ex_abcdefgh_" + "s" * 43
DOCS = "default-src 'self'"
LIMIT = 4_096
SETTINGS = Settings(
    limits=Limits(body_bytes=LIMIT, configuration_bytes=1_024, body_seconds=1),
    hosts=("monitor.example.org", "[2001:db8::1]"),
    external_url="https://front.example.org/watch/",
)
Pair = tuple[str, str]


class Row(BaseModel):
    x: float


def make(settings: Settings = SETTINGS) -> FastAPI:
    app = FastAPI(docs_url=None)
    app.state.pieces = []  # of bodies, as the routes saw them
    app.add_middleware(SecurityMiddleware, settings=settings, policies={"/docs": DOCS})

    @app.exception_handler(Problem)
    def answer(_: Request, problem: Problem) -> JSONResponse:
        return JSONResponse(problem.body, problem.status)

    @app.get("/v1/hello")
    def hello() -> str:
        return "hello"

    @app.api_route("/v1/echo", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    async def echo(request: Request) -> int:
        async for piece in request.stream():
            app.state.pieces.append(len(piece))
        return sum(app.state.pieces)

    @app.post("/v1/model")
    def model(row: Row) -> float:  # FastAPI makes a 400 of whatever goes wrong while it reads the body
        return row.x

    @app.post("/v1/stubborn")
    async def stubborn(request: Request) -> str:
        try:
            return str(len(await request.body()))
        except Exception:  # noqa: BLE001
            return "fine by me"

    @app.post("/v1/deaf")
    async def deaf() -> str:
        return "what?"

    @app.get("/v1/refused")
    def refused() -> None:
        raise Problem(409, "conflict", "no")

    @app.get("/docs")
    def docs() -> HTMLResponse:
        headers = {"Server": "mine", "Content-Security-Policy": "default-src *", "Referrer-Policy": "unsafe-url"}
        return HTMLResponse("<p>", headers=headers)

    @app.get("/plain")
    def plain() -> HTMLResponse:
        return HTMLResponse("<p>", headers={"Cache-Control": "max-age=60"})

    @app.post("/v1/boom")
    async def boom(request: Request) -> None:
        body = (await request.body()).decode()
        try:
            raise KeyError(body)
        except KeyError as error:
            raise ValueError(body, request.headers["authorization"]) from error

    @app.get("/v1/disk")
    def disk() -> None:
        raise OSError(5, "input/output error")

    @app.get("/v1/events")
    async def events() -> StreamingResponse:
        async def tell() -> AsyncIterator[bytes]:
            for number in range(10_000):
                yield b"data: %d\n\n" % number
                await asyncio.sleep(0.02)

        return StreamingResponse(tell(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    @app.get("/v1/late")
    async def late() -> StreamingResponse:
        async def tell() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            raise ValueError(SECRET)

        return StreamingResponse(tell())

    return app


def ask(
    path: str = "/v1/hello",
    method: str = "GET",
    headers: Sequence[Pair] = (("host", "localhost"),),
    body: Sequence[bytes] = (),
    *,
    app: FastAPI | None = None,
    pause: float = 0.0,
    leave: bool = False,
) -> Reply:
    """One request by hand, without any server; the last piece of the body ends it, or else the client leaves."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": one, "more_body": True} for one in body or [b""]]
    waiting[-1]["more_body"] = leave
    waiting.append({"type": "http.disconnect"})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    asyncio.run((app or make())(scope, receive, send))
    start, *rest = sent or [{"status": 0, "headers": []}]
    pairs = [(name.decode(), value.decode()) for name, value in start["headers"]]
    return Reply(start["status"], pairs, b"".join(message.get("body", b"") for message in rest))


def refused(reply: Reply, status: int, code: str) -> str:
    assert reply.status == status, reply
    assert reply.header("content-type") == "application/json"
    assert reply.header("content-length") == str(len(reply.body))
    protected(reply)
    body = reply.json()
    assert body["error"] == code
    message = body["message"]
    assert isinstance(message, str)
    assert "\n" not in message
    return message


def protected(reply: Reply, policy: str = POLICY) -> None:
    for name, value in HEADERS.items():
        assert reply.header(name.decode()) == value.decode()
    assert reply.header("content-security-policy") == policy
    assert reply.header("server") is None
    assert not [name for name, _ in reply.headers if name.startswith("access-control-")]


LOCAL: Pair = ("host", "localhost:8000")


# ------------------------------------------------------------------ trusted hosts


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:1",
        "LOCALHOST:65535",
        "127.0.0.1",
        "127.0.0.1:8000",
        "[::1]",
        "[::1]:8000",
        "[0:0:0:0:0:0:0:1]:8000",
        "monitor.example.org",
        "Monitor.Example.ORG:443",
        "front.example.org",
        "[2001:DB8:0::1]:80",
    ],
)
def test_names_of_ours_are_served(host: str) -> None:
    assert ask(headers=[("host", host)]).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.localhost",
        "localhost.",
        "127.0.0.1.nip.io",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "192.168.0.1",
        "example.org",
        "a.monitor.example.org",
        "monitor.example.org.evil.example",
    ],
)
def test_a_name_of_somebody_else_is_misdirected(host: str) -> None:
    reply = ask(headers=[("host", host)])
    assert "hosts in its settings" in refused(reply, 421, "untrusted-host")
    assert host.encode() not in reply.body


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        ":8000",
        "localhost:",
        "localhost:0",
        "localhost:65536",
        "localhost:-1",
        "localhost:8000:8000",
        "localhost:80@evil.example",
        "user@localhost",
        "localhost/evil",
        "localhost#",
        "localhost,evil.example",
        "localhost evil.example",
        "localhost\x00",
        "localhost\t",
        "[::1",
        "::1",
        "[::1%lo]",
        "[localhost]",
        "[::1]evil",
        "l\xf6calhost",
        "http://localhost",
    ],
)
def test_what_is_not_a_host_is_refused(host: str) -> None:
    refused(ask(headers=[("host", host)]), 400, "bad-request")


def test_host_must_come_once() -> None:
    refused(ask(headers=[]), 400, "bad-request")
    refused(ask(headers=[LOCAL, LOCAL]), 400, "bad-request")
    refused(ask(headers=[LOCAL, ("host", "evil.example")]), 400, "bad-request")


def test_forwarded_names_are_not_listened_to() -> None:
    evil = [("host", "evil.example"), ("x-forwarded-host", "localhost"), ("forwarded", "host=localhost")]
    refused(ask(headers=evil), 421, "untrusted-host")


@pytest.mark.parametrize("target", ["*", "http://evil.example/v1/hello", "v1/hello", ""])
def test_a_target_is_a_path(target: str) -> None:
    refused(ask(target, headers=[LOCAL]), 400, "bad-request")


# ------------------------------------------------------------------ other sites

UNSAFE = ["POST", "PUT", "PATCH", "DELETE"]


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize(
    "headers",
    [
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
        [("sec-fetch-site", "something-new")],
        [("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],  # a form that is posted
        [("origin", "http://evil.example")],
        [("origin", "null")],
        [("origin", "")],
        [("origin", "http://localhost:3000")],
        [("origin", "http://127.0.0.1:8000")],
        [("origin", "http://localhost")],
        [("origin", "http://localhost:8000@evil.example")],
        [("origin", "http://localhost:8000.evil.example")],
        [("origin", "http://localhost:8000"), ("origin", "http://evil.example")],
        [("origin", "file://localhost:8000")],
        [("origin", "chrome-extension://localhost:8000")],
        [("origin", "localhost:8000")],
        [("origin", "http://[::1")],
        [("origin", "http://monitor.example.org:8000")],
        [("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
    ],
)
def test_another_site_cannot_change_anything(method: str, headers: list[Pair]) -> None:
    reply = ask("/v1/echo", method, [LOCAL, *headers])
    assert refused(reply, 403, "forbidden") == "requests that another web site starts are rejected"


@pytest.mark.parametrize("method", UNSAFE)
@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("localhost:8000", []),  # no browser
        ("localhost:8000", [("sec-fetch-site", "none")]),
        ("localhost:8000", [("sec-fetch-site", "same-origin"), ("origin", "http://localhost:8000")]),
        ("localhost:8000", [("origin", "http://LocalHost:8000")]),
        ("localhost", [("origin", "http://localhost")]),
        ("localhost:80", [("origin", "http://localhost")]),
        ("[::1]:8000", [("origin", "http://[::1]:8000")]),
        ("monitor.example.org", [("origin", "https://monitor.example.org")]),
        ("monitor.example.org:443", [("origin", "https://monitor.example.org")]),
        ("127.0.0.1:8000", [("origin", "https://front.example.org")]),  # a proxy that changes Host
    ],
)
def test_our_own_page_and_programs_can(method: str, host: str, headers: list[Pair]) -> None:
    assert ask("/v1/echo", method, [("host", host), *headers]).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["no-cors", "cors", "same-origin", "websocket", None])
def test_another_site_cannot_fetch(site: str, mode: str | None) -> None:
    headers = [LOCAL, ("sec-fetch-site", site), *([("sec-fetch-mode", mode)] if mode else [])]
    refused(ask(headers=headers), 403, "forbidden")
    refused(ask(method="OPTIONS", headers=headers), 403, "forbidden")


def test_another_site_can_link_to_us() -> None:
    navigation = [LOCAL, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]
    assert ask("/plain", headers=navigation).status == 200


def test_there_is_no_cors() -> None:
    preflight = [LOCAL, ("origin", "http://evil.example"), ("access-control-request-method", "PUT")]
    for reply in (ask("/v1/echo", "OPTIONS", preflight), ask(headers=[LOCAL, ("origin", "http://evil.example")])):
        protected(reply)


def test_a_form_posted_as_text_is_refused_by_its_origin() -> None:
    form = [LOCAL, ("origin", "http://evil.example"), ("content-type", "text/plain"), ("content-length", "8")]
    app = make()
    refused(ask("/v1/echo", "POST", form, [b'{"x": 1}'], app=app), 403, "forbidden")
    assert app.state.pieces == []


# ------------------------------------------------------------------ bodies


def sized(length: object) -> list[Pair]:
    return [LOCAL, ("content-length", str(length))]


CHUNKED: list[Pair] = [LOCAL, ("transfer-encoding", "chunked")]


def test_a_body_of_the_lawful_length_is_read() -> None:
    assert ask("/v1/echo", "POST", sized(LIMIT), [b"x" * 4_000, b"x" * 96]).json() == LIMIT
    assert ask("/v1/echo", "POST", CHUNKED, [b"x" * 4_000, b"x" * 96]).json() == LIMIT
    assert ask("/v1/echo", "PUT", sized(1_024), [b"x" * 1_024]).json() == 1_024


def test_a_body_announced_too_long_is_not_read() -> None:
    app = make()
    reply = ask("/v1/echo", "POST", sized(LIMIT + 1), [b"x" * (LIMIT + 1)], app=app)
    assert refused(reply, 413, "too-large") == f"the body must hold at most {LIMIT} bytes"
    assert reply.json()["limit"] == LIMIT
    assert reply.header("connection") == "close"
    assert app.state.pieces == []
    refused(ask("/v1/echo", "PUT", sized(1_025), [b"x" * 1_025]), 413, "too-large")
    refused(ask("/v1/echo", "GET", sized(10**17), []), 413, "too-large")


def test_a_chunked_body_is_counted_and_not_read_on() -> None:
    app = make()
    pieces = [b"x" * 1_000] * 20
    reply = ask("/v1/echo", "POST", CHUNKED, pieces, app=app)
    refused(reply, 413, "too-large")
    assert reply.header("connection") == "close"
    assert app.state.pieces == [1_000] * 4


@pytest.mark.parametrize("path", ["/v1/model", "/v1/stubborn"])
def test_whatever_the_route_makes_of_it_the_answer_is_413(path: str) -> None:
    reply = ask(path, "POST", [*CHUNKED, ("content-type", "application/json")], [b" " * LIMIT, b'{"x": 1}'])
    refused(reply, 413, "too-large")
    assert ask(path, "POST", [*CHUNKED, ("content-type", "application/json")], [b'{"x": 1}']).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [("content-length", "-1")],
        [("content-length", "+1")],
        [("content-length", "1.0")],
        [("content-length", "0x10")],
        [("content-length", "1e3")],
        [("content-length", "")],
        [("content-length", "1 1")],
        [("content-length", "1, 1")],
        [("content-length", "\xb2")],
        [("content-length", "9" * 5_000)],
        [("content-length", "1"), ("content-length", "2")],
        [("content-length", "1"), ("content-length", "1")],
        [("content-length", "1"), ("transfer-encoding", "chunked")],
        [("content-length", "0"), ("transfer-encoding", "chunked")],
        [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        [("transfer-encoding", "gzip, chunked")],
        [("transfer-encoding", "identity")],
        [("transfer-encoding", "xchunked")],
        [("transfer-encoding", "")],
    ],
)
def test_a_garbled_length_is_refused(headers: list[Pair]) -> None:
    app = make()
    reply = ask("/v1/echo", "POST", [LOCAL, *headers], [b"x"], app=app)
    refused(reply, 400, "bad-request")
    assert app.state.pieces == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "x", "", "identity, gzip", "gzip, identity"])
def test_compressed_bodies_are_refused(coding: str) -> None:
    refused(ask("/v1/echo", "POST", [*sized(1), ("content-encoding", coding)], [b"x"]), 415, "unsupported-media-type")


def test_identity_is_no_compression() -> None:
    assert ask("/v1/echo", "POST", [*sized(1), ("content-encoding", "Identity")], [b"x"]).status == 200
    two = [("content-encoding", "identity"), ("content-encoding", "gzip")]
    refused(ask("/v1/echo", "POST", [*sized(1), *two], [b"x"]), 415, "unsupported-media-type")


def test_a_body_that_drips_is_given_up() -> None:
    began = time.monotonic()
    reply = ask("/v1/echo", "POST", CHUNKED, [b"x"] * 100, pause=0.3)
    assert refused(reply, 408, "too-slow") == "a body must arrive with 8192 bytes per second or more"
    assert reply.header("connection") == "close"
    assert 0.9 < time.monotonic() - began < 2.0


def test_bytes_that_came_earn_time_for_the_rest() -> None:
    pieces = [b"x" * 2_048, *([b"x"] * 4)]  # 1 s, and a quarter of a second for 2,048 bytes
    assert ask("/v1/echo", "POST", CHUNKED, pieces, pause=0.23).status == 200
    refused(ask("/v1/echo", "POST", CHUNKED, [b"x"] * 5, pause=0.23), 408, "too-slow")


def test_a_client_that_leaves_in_the_middle_is_no_incident(caplog: pytest.LogCaptureFixture) -> None:
    reply = ask("/v1/echo", "POST", CHUNKED, [b"x"], leave=True)
    assert reply.status == 0
    assert caplog.records == []


def test_websockets_are_closed() -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/hello", "headers": [(b"host", b"localhost")]}
    asyncio.run(make()(scope, receive, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]


# ------------------------------------------------------------------ responses


@pytest.mark.parametrize("path", ["/v1/hello", "/v1/refused", "/nowhere", "/v1/../hello", "/plain", "/openapi.json"])
def test_every_response_carries_the_headers(path: str) -> None:
    protected(ask(path))
    protected(ask(path, "TRACE"))


def test_a_page_may_have_a_policy_of_its_own_and_only_ours() -> None:
    reply = ask("/docs")
    protected(reply, DOCS)
    assert reply.header("referrer-policy") == "no-referrer"


def test_what_the_api_says_is_not_stored() -> None:
    for path in ("/v1/hello", "/v1/refused", "/v1/nowhere", "/v1"):
        assert ask(path).header("cache-control") == "no-store"
    assert ask("/plain").header("cache-control") == "max-age=60"
    assert ask("/plain", headers=[]).header("cache-control") == "no-store"  # a refusal


def test_the_policy_has_no_inline_script_and_no_other_site() -> None:
    assert "unsafe" not in POLICY
    assert "http" not in POLICY
    assert "*" not in POLICY
    assert POLICY.startswith("default-src 'none'; script-src 'self';")


def test_an_incident_has_a_number_and_tells_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    body = b"the body is a secret"
    headers = [*sized(len(body)), ("authorization", f"Bearer {SECRET}")]
    reply = ask("/v1/boom", "POST", headers, [body])
    assert (
        refused(reply, 500, "internal")
        == "an unexpected error occurred; the server's log describes it under this incident number"
    )
    assert set(reply.json()) == {"error", "message", "incident"}
    (record,) = caplog.records
    logged = record.getMessage()
    assert (record.name, record.levelno, record.exc_info) == ("exchangeable.service", logging.ERROR, None)
    assert f"incident {reply.json()['incident']}: POST '/v1/boom'" in logged
    assert "test_middleware.py" in logged
    assert "in boom" in logged
    assert "ValueError" in logged
    assert "KeyError" in logged  # what came before
    for secret in (SECRET, "the body", "Bearer"):
        assert secret not in logged
        assert secret.encode() not in reply.body


def test_what_the_machine_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    refused(ask("/v1/disk"), 500, "internal")
    assert "OSError: [Errno 5] input/output error" in caplog.text


def test_a_path_cannot_forge_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    app = make()

    @app.get("/v1/any/{name}")
    def anything(name: str) -> None:
        raise ValueError(name)

    ask("/v1/any/a\nincident 0: all is well\x1b[2J\u2028" + "x" * 1_000, app=app)
    (record,) = caplog.records
    first = record.getMessage().splitlines()[0]
    assert first.isascii()
    assert first.isprintable()
    assert len(first) < 300
    assert "\nincident 0" not in record.getMessage()


def test_incidents_have_different_numbers() -> None:
    assert len({ask("/v1/disk").json()["incident"] for _ in range(5)}) == 5


# ------------------------------------------------------------------ over a real socket


@pytest.fixture(scope="module", params=PARSERS)
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    with serving(make(), http=request.param) as port:
        yield port


POST = b"POST /v1/echo HTTP/1.1\r\nHost: localhost\r\n"


def test_over_a_socket_all_is_well(port: int) -> None:
    reply = talk(port, POST + b"Content-Length: 3\r\n\r\nabc")
    assert reply.status == 200
    protected(reply)
    assert reply.header("connection") is None


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/hello HTTP/1.1\r\n\r\n",
        b"GET /v1/hello HTTP/1.0\r\n\r\n",
        b"GET /v1/hello HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n Host: evil.example\r\n\r\n",
        b"GET /v1/hello HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: abc\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n",
    ],
)
def test_malformed_requests_are_400(port: int, head: bytes) -> None:
    assert talk(port, head).status == 400


def test_a_rebound_name_is_refused_over_a_socket(port: int) -> None:
    refused(talk(port, b"GET /v1/hello HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 421, "untrusted-host")
    for target in (b"http://localhost/v1/hello", b"http://evil.example/v1/hello"):  # as to a proxy: Host still counts
        head = b"GET " + target + b" HTTP/1.1\r\nHost: "
        assert talk(port, head + b"evil.example\r\n\r\n").status in (400, 421)
        assert talk(port, head + b"localhost\r\n\r\n").status in (200, 400)  # httptools takes the path, h11 all of it


def test_too_long_a_body_is_answered_before_it_is_sent(port: int) -> None:
    reply = talk(port, POST + b"Content-Length: 4097\r\n\r\n")  # nothing of it
    refused(reply, 413, "too-large")
    assert reply.header("connection") == "close"


def test_expect_continue_is_not_continued_when_too_long(port: int) -> None:
    head = POST + b"Expect: 100-continue\r\n"
    refused(talk(port, head + b"Content-Length: 4097\r\n\r\n"), 413, "too-large")
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(head + b"Content-Length: 3\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 100 ")
        line.sendall(b"abc")
        assert read(line).status == 200


def test_an_endless_chunked_body_is_cut_off(port: int) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(ConnectionError):  # noqa: PT012
            while sent < 2**30:
                line.sendall(b"400\r\n" + b"x" * 1_024 + b"\r\n")
                sent += 1_024
        refused(read(line), 413, "too-large")
    assert sent < 2**24  # what the system's buffers take


def test_the_answer_to_a_long_body_is_read_by_a_client_that_sends_it_all(port: int) -> None:
    refused(talk(port, POST + b"Content-Length: 100000\r\n\r\n", b"x" * 100_000), 413, "too-large")


def test_a_body_that_nobody_reads_ends_the_connection(port: int) -> None:
    head = b"POST /v1/deaf HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(head)
        reply = read(line)
        assert (reply.status, reply.header("connection")) == (200, "close")
        line.sendall(b"GET /v1/hello HTTP/1.1\r\nHost: localhost\r\n\r\n")  # within the body: not a request
        with suppress(ConnectionError):
            assert line.recv(100) == b""


def test_one_connection_serves_many_requests(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        for _ in range(3):
            line.sendall(POST + b"Content-Length: 3\r\n\r\nabc")
            assert read(line).status == 200
            line.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
            assert read(line).status == 200


def test_a_slow_body_is_given_up(port: int) -> None:
    began = time.monotonic()
    refused(talk(port, POST + b"Content-Length: 100\r\n\r\nx"), 408, "too-slow")
    assert 0.9 < time.monotonic() - began < 3.0


def test_events_stream_through_the_doors(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received, pieces, began = b"", 0, time.monotonic()
        while b"data: 60\n" not in received:  # longer than the patience with bodies
            received += line.recv(65_536)
            pieces += 1
        assert pieces > 20  # as they come, not all at once
        assert time.monotonic() - began > 1.1
        assert b"cache-control: no-store\r\n" in received


def test_a_response_that_breaks_is_broken_off(port: int, caplog: pytest.LogCaptureFixture) -> None:
    reply = talk(port, b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"data: 1" in reply.body
    assert not reply.body.endswith(b"0\r\n\r\n")  # the last chunk of a whole response
    assert "incident" in caplog.text
    assert SECRET not in caplog.text


def test_a_body_may_come_byte_by_byte_if_it_comes(port: int) -> None:
    assert talk(port, POST + b"Content-Length: 5\r\n\r\n", *[b"x"] * 5, wait=0.02).status == 200


# ------------------------------------------------------------------ where to listen


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2", "127.255.255.254", "127.1"])
def test_loopback_needs_no_token(host: str) -> None:
    check_bindable(host, tokens_exist=False)
    assert not is_exposed(host)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "::",
        "",
        "0",
        "192.168.1.7",
        "8.8.8.8",
        "fe80::1%lo",
        "::ffff:127.0.0.1",
        "::ffff:0.0.0.0",
        "fd00::1",
    ],
)
def test_any_other_address_needs_a_token(host: str) -> None:
    with pytest.raises(
        ValueError, match=r"^host must be a loopback address such as 127\.0\.0\.1 while there is no token"
    ):
        check_bindable(host, tokens_exist=False)
    check_bindable(host, tokens_exist=True)


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


def test_a_name_is_loopback_only_if_all_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.0.1", "::1")
    check_bindable("here", tokens_exist=False)
    resolving(monkeypatch, "127.0.0.1", "10.0.0.7")
    with pytest.raises(ValueError, match=r"got 'here'$"):
        check_bindable("here", tokens_exist=False)


@pytest.mark.parametrize(
    "host", ["no such host", "a..b", "127.0.0.1:80", "http://127.0.0.1", "x" * 300, "nowhere.invalid"]
)
def test_a_name_without_an_address_is_refused(host: str) -> None:
    for tokens in (True, False):
        with pytest.raises(ValueError, match=r"^host must be an address or a name that resolves to one, got "):
            check_bindable(host, tokens_exist=tokens)


def test_public_names_need_a_token_too() -> None:
    names = Settings(external_url="https://front.example.org/").trusted
    with pytest.raises(ValueError, match=r"while there is no token, got front\.example\.org$"):
        check_bindable("127.0.0.1", tokens_exist=False, names=names)
    check_bindable("127.0.0.1", tokens_exist=True, names=names)
    check_bindable("127.0.0.1", tokens_exist=False, names=Settings(hosts=("localhost", "127.0.0.1")).trusted)


def test_json_of_refusals_is_ascii() -> None:
    assert json.loads(ask(headers=[]).body.decode("ascii"))["error"] == "bad-request"
