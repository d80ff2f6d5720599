"""Limits of the server: connections, heads, bodies, rates, logs, the disk. Each against the real process."""

from __future__ import annotations

import http.client
import io
import json
import logging
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exchangeable.service import access
from exchangeable.service.logs import REQUEST, JsonLines, Repetitions
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import open_database
from servers import NDJSON, Server, lines
from serving import numbered, served
from test_durability import _fill, _fill_up, numbers, post, small_disk

__all__ = ["small_disk"]
SETTINGS = """
metrics_hosts = ["10.0.0.0/8", "scraper.example.org"]
[limits]
connections = 20
head_seconds = 1
body_bytes = 1_000_000
bodies_bytes = 4_000_000
client_bodies_bytes = 2_500_000
"""
RATES = "[limits]\nwrong_tokens = 5\nrequests_per_second = 2\nobservations_per_second = 300\n"


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("limits") / "streams.db", SETTINGS) as server:
        yield server


def ask(
    server: Server, path: str, method: str = "GET", body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Return the status and the body of a reply."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request(method, path, body or None, headers or {})
        reply = connection.getresponse()
        text = reply.read()
        return reply.status, json.loads(text) if reply.headers.get_content_type() == "application/json" else text


def wait_for(server: Server, path: str = "/healthz") -> None:
    """Wait until a request is accepted."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        with suppress(OSError, http.client.HTTPException):
            if ask(server, path)[0] == 200:
                return
        time.sleep(0.02)
    raise AssertionError("no request was accepted")


@pytest.mark.parametrize("host", ["10.1.2.3:8000", "anything.example.org", "[fe80::1]", "not a host"])
def test_probes_are_answered_whatever_the_host_header_says(tight: Server, host: str) -> None:
    wait_for(tight)
    assert ask(tight, "/healthz", headers={"Host": host}) == (200, {"status": "ok"})
    assert ask(tight, "/readyz", headers={"Host": host}) == (200, {"status": "ok"})
    assert ask(tight, "/v1/streams", headers={"Host": host})[0] in (400, 421)


@pytest.mark.parametrize(
    ("host", "status"), [("10.9.8.7:8000", 200), ("scraper.example.org", 200), ("11.0.0.1", 421), ("evil.org", 421)]
)
def test_metrics_have_their_own_host_list(tight: Server, host: str, status: int) -> None:
    assert ask(tight, "/metrics", headers={"Host": host})[0] == status


def test_idle_connections_get_503_above_the_cap_and_end_without_a_head(tight: Server) -> None:
    wait_for(tight)
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", tight.port))) for _ in range(40)]
        assert ask(tight, "/healthz") == ask(tight, "/readyz") == (200, {"status": "ok"})
        status, refusal = ask(tight, "/v1/streams")
        assert (status, refusal["error"]) == (503, "overload")
        assert _pipelined(tight, b"/healthz", b"/v1/streams") == 1  # one reply, to the probe
        refused = [one for one in idle[20:] if one.recv(100).startswith(b"HTTP/1.1 503 ")]
        assert len(refused) >= 19
        idle[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: ")  # a head that is never completed
        wait_for(tight, "/v1/streams")  # the deadline has freed the others
        assert tight.said().count("connections are rejected") <= 6
        for one in idle[:20]:
            one.settimeout(10)
            with suppress(ConnectionResetError):
                assert one.recv(100) == b""


def test_at_the_cap_the_connection_that_was_idle_longest_is_closed(tight: Server) -> None:
    wait_for(tight)
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", tight.port), timeout=30)) for _ in range(20)]
        for one in idle:
            assert _is_alive(one)
        for _ in range(3):
            assert ask(tight, "/v1/streams")[0] == 200
        assert idle[0].recv(1000) == b""
        assert _is_alive(idle[-1])


def _is_alive(connection: socket.socket) -> bool:
    """Ask on a connection whether the server is alive, and read the whole reply."""
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    reply = b""
    while not reply.endswith(b'{"status":"ok"}'):
        part = connection.recv(1000)
        if not part:
            return False
        reply += part
    return True


def test_connections_with_half_a_probe_are_bounded_too(tmp_path: Path) -> None:
    settings = "[limits]\nconnections = 4\nhead_seconds = 60\n"
    with Server(tmp_path / "streams.db", settings) as server, ExitStack() as stack:
        assert server.process is not None
        files = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(files.iterdir()))
        for _ in range(100):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            assert ask(server, "/readyz") == (200, {"status": "ok"})  # by then the half has been read
        assert len(list(files.iterdir())) < before + 60


SLOW = """
[limits]
connections = 4
body_seconds = 1
bodies_bytes = 12_000_000
client_bodies_bytes = 1_000_000
body_bytes = 10_000_000
"""


def test_clients_that_do_not_read_their_replies_are_disconnected(tmp_path: Path) -> None:
    """A reply of 8 MB is more than the kernel buffers; only one of them fits into the budget of a client."""
    with Server(tmp_path / "streams.db", SLOW) as server, ExitStack() as stack:
        made = {"measure": {"kind": "nearest-distance", "cap": 1000}}
        assert server.ask("PUT", "/v1/streams/wide", made).status == 201
        for part in range(4):
            body = lines(1 + 125 * part, np.zeros((125, 2000)))
            assert server.ask("POST", "/v1/streams/wide/observations", body, kind=NDJSON).status == 200
        replies = []
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(30)
            one.connect(("127.0.0.1", server.port))
            one.sendall(b"GET /v1/streams/wide/export HTTP/1.1\r\nHost: localhost\r\n\r\n")
            replies.append((one, one.recv(16)))
        assert [head[9:12] for _, head in replies] == [b"200", b"429", b"429", b"429"]
        wait_for(server, "/v1/streams/wide/export")  # the first one was disconnected, and its bytes were returned
        with suppress(ConnectionResetError):
            assert sum(map(len, iter(lambda: replies[0][0].recv(1 << 16), b""))) < 8_000_000


def _pipelined(server: Server, *paths: bytes) -> int:
    """Send several requests at once, a byte at a time first; return how many are answered with 200."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sent = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths)
        for byte in sent[:3]:
            one.sendall(bytes([byte]))
        one.sendall(sent[3:])
        replies = b""
        with suppress(ConnectionResetError):
            while part := one.recv(10_000):
                replies += part
    return replies.count(b"HTTP/1.1 200 OK")


def test_a_connection_may_stay_open_between_requests(tight: Server) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", tight.port)) as connection:
        for pause in (1.5, 0.0):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            time.sleep(pause)


def test_unfinished_bodies_are_bounded_for_each_client(tight: Server) -> None:
    assert ask(tight, "/v1/streams/bodies", method="PUT")[0] in (200, 201)
    head = f"POST /v1/streams/bodies/observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
    with ExitStack() as stack:
        replies = []
        for _ in range(6):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", tight.port), timeout=10))
            connection.sendall(f"{head}Content-Length: 900000\r\n\r\n".encode())
            with suppress(OSError):
                connection.sendall(b" " * 800_000)
            connection.settimeout(0.5)
            with suppress(OSError):
                replies.append(connection.recv(30))
        assert len(replies) == 3
        assert all(reply.startswith(b"HTTP/1.1 429 ") for reply in replies)
    wait_for(tight)
    time.sleep(0.3)
    assert ask(tight, "/v1/streams/bodies/observations", method="POST", body=b'{"seq":1,"x":1}', headers=JSON)[0] == 200


JSON = {"Content-Type": "application/json"}


def test_rates_of_requests_observations_and_wrong_tokens(tmp_path: Path) -> None:
    with Server(tmp_path / "streams.db", RATES) as server:
        connection = open_database(server.db)
        token, other = (access.create(connection, ["admin"]) for _ in range(2))
        connection.close()
        valid, wrong = ({"Authorization": f"Bearer {one}"} for one in (token, token[:-4] + "AAAA"))
        statuses = [ask(server, "/v1/streams", headers=wrong)[0] for _ in range(12)]
        assert statuses[:5] == [401] * 5
        assert 429 in statuses[5:]
        assert ask(server, "/v1/streams/a", method="PUT", headers=valid)[0] == 201  # a valid token is not locked out
        body = lines(1, np.zeros(2000))
        path, sent = "/v1/streams/a/observations", {**valid, "Content-Type": NDJSON}
        assert ask(server, path, method="POST", body=body, headers=sent)[0] == 200
        status, refusal = ask(server, path, method="POST", body=body, headers=sent)
        assert (status, refusal["error"]) == (429, "rate-limit")
        assert 1 <= refusal["retry_after"] <= 3
        assert 429 in [ask(server, "/v1/streams", headers=valid)[0] for _ in range(30)]
        assert (
            ask(server, "/v1/streams", headers={"Authorization": f"Bearer {other}"})[0] == 200
        )  # each token has its own


def test_denied_requests_and_labels_count_for_the_rates(tmp_path: Path) -> None:
    with Server(tmp_path / "streams.db", RATES) as server:
        assert ask(server, "/v1/streams/a", method="PUT", body=b'{"measure": {"kind": "nearest-neighbour"}}')[0] == 201
        labels = b"\n".join(b'{"id": "i%d", "y": 1}' % i for i in range(2000))
        path, sent = "/v1/streams/a/labels", {"Content-Type": NDJSON}
        assert ask(server, path, method="POST", body=labels, headers=sent)[0] == 404  # unknown ids
        status, refusal = ask(server, path, method="POST", body=labels, headers=sent)
        assert (status, refusal["error"]) == (429, "rate-limit")
        assert refusal["message"].startswith("this address has reached its limit of observations and labels a second")
        connection = open_database(server.db)
        reader = {"Authorization": f"Bearer {access.create(connection, ['read'])}"}
        connection.close()
        denied = [ask(server, "/v1/streams/b", method="PUT", headers=reader) for _ in range(30)]
        assert denied[0][0] == 403
        assert (429, "rate-limit") in [(status, reply["error"]) for status, reply in denied]


def test_a_measure_without_memory_is_503_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(nodes: int) -> None:
        raise MemoryError

    with served(tmp_path / "streams.db") as server:
        server.create("a")
        before = server.take("a", numbered([0.5, 1.5]))
        monkeypatch.setattr("exchangeable.measures.pools._empty", empty)
        reply = server.send("a", numbered(np.arange(5000) / 8, 3))
        assert (reply.status_code, reply.json()["error"]) == (503, "out-of-memory")
        engine = server.app.state.engine
        engine.write(lambda connection: engine.streams.drop("a")).result()
        assert server.ask("GET", "/v1/streams/a/bet").json()["error"] == "out-of-memory"  # it is loaded from the disk
        assert server.ask("PUT", "/v1/streams/b", json={}).json()["error"] == "out-of-memory"
        monkeypatch.undo()
        assert server.show("a")["state"] == before["state"]
        assert server.take("a", numbered([2.5], 3))["accepted"] == 1


def test_a_full_disk_is_relieved_by_deleting_and_resetting(tmp_path: Path, small_disk: Path) -> None:
    settings = "[limits]\nreserve_bytes = 1_500_000\n"
    x = numbers(1)[:100_000]
    with Server(small_disk / "streams.db", settings, folder=tmp_path) as server:
        for name in ("full", "kept"):
            assert server.ask("PUT", f"/v1/streams/{name}", {"seed": 0}).status == 201
        assert post(server, "kept", 1, x[:500]).status == 200
        taken, _ = _fill(server, "full", x, 0)
        _fill_up(small_disk / "dust")
        first = 501
        while (reply := post(server, "kept", first, x[first - 1 : first + 499])).status == 200:
            first += 500  # fits into pages that were free
        assert reply.status == 507
        assert server.ask("POST", "/v1/streams/kept/reset").status == 200
        assert post(server, "kept", first, x[first - 1 : first + 499]).status in (200, 507)
        assert server.ask("DELETE", "/v1/streams/full").status == 204
        first = server.ask("GET", "/v1/streams/kept").body["next_seq"]
        until, batch = time.monotonic() + 30, x[first - 1 : first + 499]
        while (reply := post(server, "kept", first, batch)).status == 507 and time.monotonic() < until:
            time.sleep(0.02)  # the space is given back in small steps
        assert reply.body["accepted"] == 500
        assert server.ask("GET", "/readyz").status == 200
        assert taken > 1000
        assert "Traceback" not in server.said()


def test_a_full_disk_is_relieved_by_a_shorter_retention(tmp_path: Path, small_disk: Path) -> None:
    x = numbers(1)[:100_000]
    with Server(small_disk / "streams.db", "[limits]\nreserve_bytes = 1_500_000\n", folder=tmp_path) as server:
        assert server.ask("PUT", "/v1/streams/full", {"seed": 0, "bet": {"kind": "simple-jumper"}}).status == 201
        _fill(server, "full", x, 0)
        _fill_up(small_disk / "dust")
        state = server.ask("GET", "/v1/streams/full").body["state"]
        reply = server.ask("PUT", "/v1/streams/full/retention", {"observations": 100})
        assert (reply.status, reply.body["state"]) == (200, state)
        first, until = reply.body["next_seq"], time.monotonic() + 30
        while (reply := post(server, "full", first, x[first - 1 : first + 99])).status == 507:
            assert time.monotonic() < until
            time.sleep(0.02)  # the space is given back in small steps
        assert reply.body["accepted"] == 100


def test_a_quota_rejects_what_grows_until_something_is_deleted(tmp_path: Path) -> None:
    with Server(tmp_path / "streams.db", "[limits]\ndatabase_bytes = 1_000_000\n") as server:
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
        _, refusal = _fill(server, "a", numbers(1), 0)
        assert (refusal.status, refusal.body["error"]) == (507, "storage-full")
        assert "limits.database_bytes" in refusal.body["message"]
        assert server.ask("PUT", "/v1/streams/b", {}).status == 507
        assert server.ask("DELETE", "/v1/streams/a").status == 204
        assert server.ask("PUT", "/v1/streams/b", {}).status == 201
        until = time.monotonic() + 30
        while server.db.stat().st_size > 500_000 and time.monotonic() < until:  # the space is given back
            time.sleep(0.02)
        assert server.db.stat().st_size <= 500_000


def logged_with(repetitions: Repetitions, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that are written of records of the logger "a"."""
    logger, text = logging.getLogger("a"), io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonLines())
    handler.addFilter(repetitions)
    logger.addHandler(handler)
    try:
        for record in records:
            logger.handle(logging.makeLogRecord({"name": "a", "levelno": logging.WARNING, **record}))
    finally:
        logger.removeHandler(handler)
    return [json.loads(line) for line in text.getvalue().splitlines()]


def test_repeated_messages_are_counted_instead_of_written() -> None:
    now = [0.0]
    repetitions = Repetitions(2, clock=lambda: now[0])

    def messages(*texts: str, level: int = logging.WARNING) -> list[str]:
        return [line["message"] for line in logged_with(repetitions, [{"msg": t, "levelno": level} for t in texts])]

    assert messages(*["accept failed"] * 5) == ["accept failed"] * 2
    assert messages("other") == ["other"]
    assert messages(*["audit"] * 3, level=logging.INFO) == ["audit"] * 3
    now[0] = 61.0
    lines = logged_with(repetitions, [{"msg": "later", "levelno": logging.INFO}])
    assert [(line["message"], line.get("left_out")) for line in lines] == [
        ("left out in the minute before: accept failed", 3),
        ("later", None),
    ]
    assert messages(*["accept failed"] * 3) == ["accept failed"] * 2


def test_one_sender_cannot_hide_what_is_logged_of_another() -> None:
    """Neither by repeating a message, nor by using up the memory of the different messages."""
    now = [0.0]
    repetitions = Repetitions(2, clock=lambda: now[0])
    noisy = [{"msg": "denied", "client": "10.0.0.1"}] * 9 + [{"msg": "denied", "receiver": "down"}] * 9
    assert len(logged_with(repetitions, noisy)) == 4
    others = [{"token": "b", "client": "10.0.0.1"}, {"client": "10.0.0.2"}, {"receiver": "up"}]
    lines = logged_with(repetitions, [{"msg": "denied", **other} for other in others])
    assert [line.items() >= other.items() for line, other in zip(lines, others, strict=True)] == [True] * 3
    assert len(logged_with(repetitions, [{"msg": f"{k}"} for k in range(2000)])) == 997  # 995 of them, 2 of the rest
    now[0] = 61.0
    token = REQUEST.set({"request": "0" * 16, "stream": "s"})  # the request whose line comes next
    lines = logged_with(repetitions, [{"msg": "next"}])
    REQUEST.reset(token)
    assert [(line.get("client"), line.get("receiver"), line.get("left_out"), line.get("stream")) for line in lines] == [
        ("10.0.0.1", None, 7, None),
        (None, "down", 7, None),
        (None, None, 1003, None),
        (None, None, None, "s"),
    ]


def test_the_log_is_json_with_the_stream_and_the_token(tmp_path: Path) -> None:
    db = tmp_path / "streams.db"
    connection = open_database(db)
    token = access.create(connection, ["admin"])
    connection.close()
    server = Server(db, "access_log = true\n")
    server.start()
    wait_for(server)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        assert ask(server, "/v1/streams/a", method="PUT", headers=headers)[0] == 201
        names = [{"name": "a"}, *({"name": f"s{k}"} for k in range(60))]
        body = "\n".join(map(json.dumps, names)).encode()
        assert ask(server, "/v1/streams", "POST", body, {**headers, "Content-Type": NDJSON})[0] == 200
    finally:
        server.end()
    logged = [json.loads(line) for line in server.said().splitlines() if line.startswith("{")]
    audit, many = (line for line in logged if line["logger"] == "exchangeable.audit")
    assert (many["created_streams"], many["names"]) == (60, [f"s{k}" for k in range(10)])
    assert audit["client"] == "127.0.0.1"
    assert (audit["stream"], audit["token"], audit["method"], audit["status"]) == ("a", token[3:11], "PUT", 201)
    assert re.fullmatch("[0-9a-f]{16}", audit["request"])
    assert any(line["logger"] == "exchangeable.access" and line["path"] == "/healthz" for line in logged)
    assert token[12:] not in server.said()


def test_the_cap_follows_the_limit_of_open_files() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400));"
        "from exchangeable.service.connections import allowed_connections as f; print(f(150), f(250), f(5000))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["150", "250", "300"]
    assert "LimitNOFILE" in result.stderr


def test_batches_that_were_computed_ahead_and_rejected_leave_no_trace(tmp_path: Path) -> None:
    names, x = [f"s{i}" for i in range(8)], np.arange(50) / 50
    with served(tmp_path / "s.db", Settings(limits=Limits(database_bytes=300_000, reserve_bytes=0))) as server:
        for name in names:
            server.create(name, seed=0)

        def send(name: str) -> list[int]:
            replies: list[int] = []
            while replies[-5:] != [507] * 5:
                first = server.ask("GET", f"/v1/streams/{name}").json()["next_seq"]
                reply = server.ask(
                    "POST",
                    f"/v1/streams/{name}/observations",
                    content=lines(first, x),
                    headers={"Content-Type": NDJSON},
                )
                replies.append(reply.status_code)
            return replies

        with ThreadPoolExecutor(len(names)) as pool:
            assert {code for replies in pool.map(send, names) for code in replies} <= {200, 507}
        assert not server.app.state.engine.lookahead.names
        assert server.ask("GET", f"/v1/streams/{names[0]}/bet").status_code == 200
        states = {name: server.ask("GET", f"/v1/streams/{name}").json()["state"] for name in names}
    with served(tmp_path / "s.db", Settings(limits=Limits(reserve_bytes=0))) as server:
        for name in names:
            assert server.ask("GET", f"/v1/streams/{name}/bet").status_code == 200
            assert server.ask("GET", f"/v1/streams/{name}").json()["state"] == states[name]
