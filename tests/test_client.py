"""The client: it numbers, batches and retries against the real server, and nothing is lost or counted twice."""

from __future__ import annotations

import http.client
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from contracts import check_each
from exchangeable import measures, snapshot
from exchangeable.client import Client, ClientError, Stream
from exchangeable.client.errors import TransientError
from exchangeable.martingale import LN10
from exchangeable.service import access
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import open_database
from serving import Served, served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with Client(server.url, patience=5.0) as speaker:
        yield speaker


def stream(n: int, change: int | None = None) -> list[float]:
    x = np.random.default_rng(8).normal(size=n)
    x[n if change is None else change :] += 2.0
    return x.tolist()  # type: ignore[no-any-return]


def library(x: list[float], seed: int) -> ex.Monitor:
    monitor = ex.Monitor(measures.Value(), seed=seed)
    monitor.extend(x)
    return monitor


def assert_same(sent: Stream, x: list[float]) -> None:
    """The server stands exactly where the library does."""
    assert sent.pending == 0
    assert sent.state["n"] == len(x)
    found = sent.export()
    assert isinstance(found, ex.Monitor)
    assert snapshot.encode(found) == snapshot.encode(library(x, found.seed))


# ------------------------------------------------------------------ sending


@pytest.mark.quick
def test_numbers_arrive_in_order(client: Client, server: Served) -> None:
    client.create("a")
    x = stream(2_500, change=1_500)
    with client.stream("a", batch=400) as sent:
        assert sent.next_seq == 1
        sent.extend(x[:1_000])
        for value in x[1_000:1_010]:
            sent.send(value)
        sent.extend(np.array(x[1_010:]))
    assert sent.next_seq == 2_501
    assert_same(sent, x)
    assert server.show("a")["state"]["alarm"] is sent.state["alarm"] is True
    more = client.stream("a")
    assert more.next_seq == 2_501
    more.send(0.5)
    assert more.state["n"] == 2_501  # who looks, flushes


@pytest.fixture(scope="module")
def cancer() -> Any:
    """A real table, with a category, integers that are missing, a date and a boolean added."""
    pd = pytest.importorskip("pandas")
    frame = pytest.importorskip("sklearn.datasets").load_breast_cancer(as_frame=True).frame
    frame = frame.iloc[:, [0, 1, 2, -1]].sample(frac=1.0, random_state=0).reset_index(drop=True)
    rng = np.random.default_rng(0)
    frame["site"] = pd.Series(rng.choice(["north", "south"], len(frame))).astype("category")
    frame["count"] = pd.array(rng.integers(0, 5, len(frame)), dtype="Int64")
    frame.loc[::7, "count"] = pd.NA
    frame["seen"] = pd.date_range("2026-01-01", periods=len(frame), freq="h")
    frame["flag"] = rng.random(len(frame)) < 0.3
    return frame


def test_rows_of_a_real_table(client: Client, cancer: Any, tmp_path: Path) -> None:
    reference, new = cancer[:350], cancer[350:]
    measure = {"kind": "table", "label": "target", "bins": 32}
    like = ex.TableMonitor(reference, "target", bins=32, seed=3, max_rows=10_000)
    like.extend(new)
    reference.to_parquet(tmp_path / "reference.parquet")
    for name, data in {"frame": reference, "file": tmp_path / "reference.parquet"}.items():
        client.create(name, {"measure": measure, "seed": 3})
        with client.stream(name, batch=50) as sent:
            assert sent.set_reference(data)["state"]["table"]["reference"] is True
            assert sent.set_reference(data)["name"] == name  # again: nothing changes
            sent.extend(new[:100])
            for row in new[100:110].to_dict("records"):
                sent.send(row)
            sent.extend(new[110:].to_dict("list"))
        assert sent.state["log10_martingale"] == like.log_value / LN10
        found = sent.export()
        assert isinstance(found, ex.TableMonitor)
        assert found.explain() == like.explain()
        assert [line["name"] for line in sent.columns()["columns"]] == [finding.name for finding in like.explain()]


def test_labels_of_rows_that_come_later(client: Client) -> None:
    rng = np.random.default_rng(4)
    rows = [{"size": float(size), "y": float(size)} for size in rng.normal(size=200)]
    client.create("a", {"measure": {"kind": "table", "label": "y", "bins": 8}, "labels": {"wait": 60}, "seed": 1})
    like = ex.TableMonitor(rows[:100], "y", bins=8, wait=60, seed=1)
    sent = client.stream("a")
    sent.set_reference(rows[:100])
    new = [{"size": row["size"]} for row in rows[100:]]
    sent.extend(new, ids=[f"r{i}" for i in range(100)], times=range(100))
    like.extend(new, [f"r{i}" for i in range(100)], list(range(100)))
    for i in (99, 50, 0):
        sent.label(f"r{i}", rows[100 + i]["y"], time=100.0)
        like.label(f"r{i}", rows[100 + i]["y"], time=100.0)
    assert sent.show()["waiting"] == len(like.waiting)
    assert sent.state["log10_martingale"] == like.log_value / LN10


@pytest.mark.parametrize("kind", [ex.RateMonitor, ex.Risk])
def test_streams_of_rates_and_risks(client: Client, kind: Any) -> None:
    x = np.random.default_rng(5).random(400) < 0.3
    measure = {"kind": "rate"} if kind is ex.RateMonitor else {"kind": "risk", "limit": 0.1}
    like = kind(alpha=0.01) if kind is ex.RateMonitor else kind(0.1)
    like.extend(x)
    client.create("a", {"measure": measure})
    with client.stream("a") as sent:
        sent.extend(x[:300])
        sent.extend(x[300:].tolist())
    assert snapshot.encode(sent.export()) == snapshot.encode(like)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"a": np.inf}, "column 'a' of a row must be text, a finite number, a boolean, a date, a time, or missing"),
        ({"a": [1]}, "column 'a' of a row must be text"),
        ({"a": "\ud800"}, "strings must be valid Unicode"),
    ],
)
def test_a_row_that_cannot_be_sent_is_not_buffered(client: Client, row: Any, message: str) -> None:
    client.create("a", {"measure": {"kind": "table"}})
    sent = client.stream("a")
    with pytest.raises(ValueError, match=message):
        sent.extend([{"a": 1.0}, row])
    with pytest.raises(ValueError, match="y must be left out with a row"):
        sent.send({"a": 1.0}, 3)
    with pytest.raises(ValueError, match="ids must hold one id for each row of X, got 1 ids for 2 rows"):
        sent.extend([{"a": 1.0}, {"a": 2.0}], ids=["u"])
    assert sent.pending == 0


def test_size_and_age_decide_when(client: Client, server: Served) -> None:
    client.create("a")
    sent = client.stream("a", batch=3, age=1000.0)
    sent.send(1.0)
    sent.send(2.0)
    assert (sent.pending, server.show("a")["next_seq"]) == (2, 1)
    sent.send(3.0)
    assert (sent.pending, server.show("a")["next_seq"]) == (0, 4)
    aged = client.stream("a", age=0.05)
    aged.send(4.0)
    assert aged.pending == 1
    time.sleep(0.06)
    aged.send(5.0)
    assert (aged.pending, server.show("a")["next_seq"]) == (0, 6)
    aged.send(6.0)
    state = aged.flush()
    assert state is not None
    assert state["n"] == 6
    assert aged.flush() is None


def test_rows_labels_ids_and_times(client: Client, server: Served) -> None:
    client.create("a", {"measure": {"kind": "nearest-neighbour"}})
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    sent = client.stream("a")
    sent.extend(X[:20], y[:20])
    sent.send(X[20], y[20], id="a", time="2026-01-01T00:00:00Z")
    sent.send(tuple(X[21]), id="late", time=5)
    assert sent.show()["waiting"] == 1
    assert sent.label("late", y[21])["waiting"] == 0
    sent.extend(X[22:], y[22:].tolist())
    monitor = ex.Monitor()
    monitor.extend(X, y.tolist())
    sent.flush()
    twin = sent.export()
    assert isinstance(twin, ex.Monitor)
    assert (twin.last, twin.update([0.5, 0.5], 1)) == (monitor.last, monitor.update([0.5, 0.5], 1))


def test_what_is_no_observation_is_not_taken(client: Client) -> None:
    client.create("a")
    sent = client.stream("a")

    def check(x: Any) -> None:
        with pytest.raises(ValueError, match="x must be a finite number, true, false, or a list of finite numbers"):
            sent.extend([1.0, x, 2.0])
        assert sent.pending == 0

    nan: Any = float("nan")
    bad = [nan, float("inf"), "1", None, [True], [], [1.0, nan], [[1.0]], ["1"], 1j, np.nan]
    check_each(check, [(repr(x), x) for x in bad])


def test_other_values_that_are_refused_at_once(client: Client) -> None:
    sent = client.stream("a")
    with pytest.raises(ValueError, match="y must hold one label"):
        sent.extend([1.0], [])
    with pytest.raises(ValueError, match="y must be a string or a finite number"):
        sent.send(1.0, y=float("nan"))
    for name in ("batch", "age", "capacity"):
        with pytest.raises(ValueError, match=f"{name} must"):
            client.stream("a", **{name: 0})
    with pytest.raises(ValueError, match="patience must"):
        Client("http://127.0.0.1:1", patience=0)


# ------------------------------------------------------------------ refusals


def test_a_refusal_stays_until_what_waits_is_given_up(client: Client) -> None:
    client.create("a")
    sent = client.stream("a", batch=10)
    sent.extend(range(5))
    with pytest.raises(ClientError) as refused:
        sent.extend([1.0, [1.0, 2.0], *range(10)])
    assert (refused.value.status, refused.value.code, refused.value.buffered) == (422, "bad-observation", 5)
    assert "line 7" in refused.value.message
    for _ in range(2):
        with pytest.raises(ClientError) as again:
            sent.send(1.0)
        assert (again.value.message, again.value.buffered) == (refused.value.message, 0)
    assert [line["x"] for line in sent.discard()] == [0, 1, 2, 3, 4, 1.0, [1.0, 2.0], 0, 1, 2]
    sent.extend([1.0, 2.0])
    assert sent.state["n"] == 2


def test_two_writers(client: Client) -> None:
    client.create("a")
    first, second = client.stream("a"), client.stream("a")
    assert first.next_seq == second.next_seq == 1
    first.extend([1.0, 2.0])
    first.flush()
    second.send(5.0)
    with pytest.raises(ClientError, match="another writer") as refused:
        second.flush()
    assert (refused.value.status, refused.value.code) == (422, "different")
    assert first.state["n"] == 2


def test_unknown_streams_and_configurations(client: Client) -> None:
    sent = client.stream("nobody")
    with pytest.raises(ClientError) as unknown:
        _ = sent.next_seq
    assert (unknown.value.status, unknown.value.code) == (404, "not-found")
    client.create("a", {"seed": 1})
    assert client.create("a", {"seed": 1})["configuration"]["seed"] == 1
    with pytest.raises(ClientError) as other:
        client.create("a", {"seed": 2})
    assert (other.value.status, other.value.code) == (409, "conflict")
    with pytest.raises(ClientError) as bad:
        client.create("b", {"alarm": {"alpha": 2}})
    assert (bad.value.status, bad.value.code) == (422, "bad-configuration")
    with pytest.raises(ClientError) as name:
        client.create("../a")
    assert name.value.status in (404, 422)


def test_batches_that_are_too_large_are_cut(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(limits=Limits(body_bytes=2_000))) as server, Client(server.url) as client:
        client.create("a")
        x = stream(300)
        with client.stream("a") as sent:
            sent.extend(x)
        assert_same(sent, x)


def test_several_senders_append_to_one_stream(server: Served, client: Client) -> None:
    seed = client.create("shared")["configuration"]["seed"]
    client.create("rows", {"measure": {"kind": "nearest-neighbour"}})
    x = stream(40)
    with Client(server.url) as other:
        replies = [(client, other)[i % 2].append("shared", x[10 * i : 10 * i + 10]) for i in range(4)]
    assert [(reply["first_seq"], reply["last_seq"]) for reply in replies] == [(1, 10), (11, 20), (21, 30), (31, 40)]
    assert client.stream("shared").state["log10_martingale"] == library(x, seed).last.log_value / LN10  # type: ignore[union-attr]
    assert client.append("rows", np.eye(3), ["a", "b", 1])["accepted"] == 3
    with pytest.raises(ClientError) as refused:
        client.append("shared", [1.0, [2.0, 3.0]])
    assert (refused.value.status, client.stream("shared").next_seq) == (422, 41)
    with pytest.raises(ValueError, match="y must hold one label"):
        client.append("rows", [[1.0]], [])


def test_an_append_that_fails_is_not_repeated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create("once")
    requests: list[str] = []
    real = client._transport.request

    def lost(method: str, path: str, **options: Any) -> Any:
        requests.append(path)
        real(method, path, **options)
        raise TransientError(ClientError(None, "connection", "the reply is lost"))

    monkeypatch.setattr(client._transport, "request", lost)
    with pytest.raises(ClientError, match="the reply is lost"):
        client.append("once", [1.0])
    assert len(requests) == 1


def test_the_retention_of_a_stream_is_set_and_taken_back(client: Client) -> None:
    client.create("a")
    assert client.set_retention("a", observations=5)["retention"] == {"observations": 5, "rollups": None}
    assert client.set_retention("a")["retention"] == {"observations": None, "rollups": None}


def test_tokens(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")) as connection:
        tokens = {scope: access.create(connection, [scope]) for scope in access.SCOPES}
    with served(tmp_path / "s.db") as server:
        with Client(server.url, tokens["admin"]) as admin:
            admin.create("a", {"measure": {"kind": "nearest-distance"}})
        with Client(server.url) as nobody, pytest.raises(ClientError) as refused:
            nobody.create("b")
        assert (refused.value.status, refused.value.code) == (401, "unauthorised")
        with Client(server.url, tokens["ingest"]) as sensor:  # it may not read, and yet numbers go on
            for _ in range(2):
                with sensor.stream("a") as sent:
                    sent.extend([[1.0, 2.0], [3.0, 4.0]])
            with pytest.raises(ClientError) as forbidden:
                _ = sent.state
            assert (forbidden.value.status, forbidden.value.code) == (403, "forbidden")
        with Client(server.url, tokens["read"]) as looker:
            assert looker.stream("a").state["n"] == 4
            with pytest.raises(ClientError):
                looker.stream("a", batch=1).send([5.0, 6.0])


# ------------------------------------------------------------------ looking


def test_looking(client: Client) -> None:
    for name in ("a", "b", "other"):
        client.create(name)
    x = stream(500, change=100)
    sent = client.stream("a")
    sent.extend(x)
    history = sent.history(max_points=100)
    assert (history["n"][-1], len(history["n"]) <= 100, history["stop"]) == (500, True, 500)
    assert sent.history(490, 495)["n"] == [490, 491, 492, 493, 494, 495]
    assert [one["name"] for one in client.streams(page=2)] == ["a", "b", "other"]
    assert [one["name"] for one in client.streams("oth")] == ["other"]
    assert [one["name"] for one in client.fleet(0.05)["found"]] == ["a"]
    assert client.fleet(0.05, "current")["method"] == "current"
    assert sent.state["alarm"] is True
    sent.send(1.0)
    assert (sent.reset()["state"]["alarm"], sent.state["n"]) == (False, 501)
    client.delete("b")
    assert len(list(client.streams())) == 2


def test_events_go_on_after_a_break(tmp_path: Path) -> None:
    port = free_port()
    seen: list[tuple[str, int | None]] = []
    steps: list[int] = []

    def listen() -> None:
        with Client(f"http://127.0.0.1:{port}") as reader:
            for event in reader.stream("a").events():
                seen.append((event.kind, event.id))
                if event.kind == "steps":
                    steps.extend(event.data["n"])

    with Client(f"http://127.0.0.1:{port}") as client:
        with process(tmp_path / "s.db", port):
            client.create("a")
            thread = threading.Thread(target=listen)
            thread.start()
            wait(lambda: seen)
            with client.stream("a") as sent:
                sent.extend(stream(20))
            wait(lambda: len(steps) == 20)
        with process(tmp_path / "s.db", port):
            with client.stream("a") as sent:
                sent.extend(stream(20))
            wait(lambda: len(steps) == 40)
            client.delete("a")
            thread.join(30)
    assert (seen[0], seen[-1][0], steps) == (("state", 0), "gone", list(range(1, 41)))


# ------------------------------------------------------------------ faults


def wait(what: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


class Lossy(ThreadingHTTPServer):
    """Between client and server: loses requests before, and replies after, the server has had them; or refuses."""

    daemon_threads = True

    def __init__(self, port: int, seed: int, odds: float) -> None:
        super().__init__(("127.0.0.1", 0), Between)
        self.behind, self.rng, self.odds, self.faults, self.refusals = port, random.Random(seed), odds, 0, 0
        self.once: list[tuple[int, dict[str, str]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Between(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Lossy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chance = self.server.rng.random() / self.server.odds if self.server.odds else 9.0
        if self.server.once:
            status, headers = self.server.once.pop()
            return self._say(status, headers, b"{}")
        if chance < 0.3:
            self.server.faults += 1
            return self._lose()
        if chance < 0.5:
            self.server.refusals += 1
            return self._say(self.server.rng.choice([429, 502, 503, 504, 507]), {"Retry-After": "0"}, b"busy")
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.behind)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers))
            reply = connection.getresponse()
            body = reply.read()
        if chance < 1.0:
            self.server.faults += 1
            return self._lose()
        return self._say(reply.status, {"Content-Type": "application/json"}, body)

    do_GET = do_PUT = do_DELETE = do_POST  # noqa: N815

    def _lose(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def lossy(server: Served, seed: int = 0, odds: float = 0.0) -> Iterator[Lossy]:
    between = Lossy(int(server.url.rpartition(":")[2]), seed, odds)
    thread = threading.Thread(target=between.serve_forever)
    thread.start()
    try:
        yield between
    finally:
        between.shutdown()
        thread.join()
        between.server_close()


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rests are short where faults are many."""
    monkeypatch.setattr("exchangeable.client.transport.FIRST_DELAY", 0.005)
    monkeypatch.setattr("exchangeable.client.transport.LONGEST_DELAY", 0.1)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak), pytest.param(3, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("brief")
def test_a_lossy_line(server: Served, seed: int) -> None:
    """Requests and replies get lost: the same observations come again under the same numbers."""
    x = stream(1_500)
    with lossy(server, seed, odds=0.5) as between, Client(between.url, timeout=10.0) as client:
        client.create("a")
        with client.stream("a", batch=20, age=0.01) as sent:
            for value in x[:300]:
                sent.send(value)
            sent.extend(x[300:])
        assert between.faults > 10
        assert between.refusals > 5
        assert_same(sent, x)
    assert server.ask("GET", "/v1/streams/a").json()["next_seq"] == 1_501


def test_the_server_says_how_long_to_wait(server: Served) -> None:
    with lossy(server) as between, Client(between.url) as client:
        client.create("a")
        sent = client.stream("a")
        sent.send(1.0)
        assert sent.next_seq == 2
        between.once = [(429, {"Retry-After": "1"})]
        began = time.monotonic()
        sent.flush()
        assert 1.0 <= time.monotonic() - began < 5.0


def test_a_buffer_with_an_end(tmp_path: Path) -> None:
    """Without a server the buffer fills; then send waits, and says that it did not take any more."""
    port, x = free_port(), stream(30)
    with Client(f"http://127.0.0.1:{port}", patience=0.5) as client:
        sent = client.stream("a", batch=4, capacity=10)
        for value in x[:10]:
            sent.send(value)
        began = time.monotonic()
        with pytest.raises(ClientError, match="cannot be reached") as full:
            sent.send(x[10])
        assert 0.1 < time.monotonic() - began < 5.0
        assert (full.value.status, full.value.code, full.value.buffered, sent.pending) == (None, "unreachable", 0, 10)
        with pytest.raises(ClientError) as some:
            sent.extend(x[10:])
        assert some.value.buffered == 0
        with process(tmp_path / "s.db", port):
            client.create("a")
            sent.extend(x[10:])
            sent.flush()
            assert_same(sent, x)


def test_a_with_block_does_not_hide_an_error(tmp_path: Path) -> None:
    with Client(f"http://127.0.0.1:{free_port()}", patience=0.1) as client:
        with pytest.raises(KeyError), client.stream("a") as sent:  # noqa: PT012
            sent.send(1.0)
            raise KeyError
        with pytest.raises(ClientError), client.stream("a") as sent:
            sent.send(1.0)


@pytest.mark.parametrize("room", [pytest.param(1000, marks=pytest.mark.soak), 10])
def test_a_server_that_went_back(tmp_path: Path, room: int) -> None:
    """Restored from a backup, it gets again what it has lost, as far as the client still has it."""
    x, database = stream(120), tmp_path / "s.db"
    port = free_port()
    with Client(f"http://127.0.0.1:{port}") as client:
        sent = client.stream("a", batch=10, capacity=room)
        with process(database, port):
            client.create("a")
            sent.extend(x[:50])
            sent.flush()
        shutil.copy(database, tmp_path / "backup.db")
        with process(database, port):
            sent.extend(x[50:100])
            sent.flush()
        shutil.copy(tmp_path / "backup.db", database)
        for ending in ("-wal", "-shm"):
            Path(f"{database}{ending}").unlink(missing_ok=True)
        with process(database, port):
            if room == 1000:
                sent.extend(x[100:])
                sent.flush()
                assert_same(sent, x)
            else:
                with pytest.raises(ClientError, match="no longer has") as lost:
                    sent.extend(x[100:])
                assert lost.value.code == "gap"
                assert lost.value.body["expected_seq"] == 51


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def process(database: Path, port: int, end: signal.Signals = signal.SIGTERM) -> Iterator[subprocess.Popen[bytes]]:
    """The server as a user starts it, in a process of its own."""
    words = ["serve", "--db", str(database), "--port", str(port), "--no-page"]
    running = subprocess.Popen([sys.executable, "-m", "exchangeable", *words], stderr=subprocess.PIPE)
    assert running.stderr is not None
    try:
        line = running.stderr.readline()
        assert line == b"exchangeable serves http://127.0.0.1:%d\n" % port, line + running.stderr.read()
        yield running
    finally:
        running.send_signal(end)
        running.wait(60)
        running.stderr.close()


@pytest.mark.parametrize("most", [1, pytest.param(3, marks=pytest.mark.soak)])
@pytest.mark.usefixtures("brief")
def test_a_server_that_is_killed(tmp_path: Path, most: int) -> None:
    """Killed while observations arrive, and started again; in the end it stands where the library does."""
    port, rng, x = free_port(), random.Random(4), stream(1_500 * most)
    done = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        while not done.is_set():
            with process(tmp_path / "s.db", port, signal.SIGKILL if kills < most else signal.SIGTERM):
                done.wait(0.2 + rng.random() / 2 if kills < most else 600.0)
            kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with Client(f"http://127.0.0.1:{port}", timeout=10.0) as client:
            client.create("a")
            sent = client.stream("a", batch=20, age=0.01, capacity=200)  # so that it waits for the server
            for start in range(0, len(x), 10):
                sent.extend(x[start : start + 10])
                time.sleep(0.004)
            assert kills == most
            sent.flush()
            assert_same(sent, x)
    finally:
        done.set()
        killer.join()
