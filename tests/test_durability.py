"""Nothing is lost when the real server is killed, runs out of disk, or is upgraded; its state equals the library's."""

from __future__ import annotations

import http.client
import json
import math
import os
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import late
from exchangeable import LateLabels, Monitor, alarms, bets, measures, snapshot
from exchangeable.pvalues import Precomputed
from exchangeable.service import history, ingest, schema, store
from servers import FAILURES, NDJSON, PATIENCE, Caller, Reply, Server, lines

Floats = NDArray[np.float64]
SETTINGS = "snapshot_every = 700\n[retention]\nobservations = 4000\n"
EVERY = 700
LONG_PATIENCE = 5 * PATIENCE  # of a client whose server is killed again and again, on a machine that may be slow
SCORES = np.random.default_rng(5).normal(size=500)
LN10 = math.log(10.0)


# ------------------------------------------------------------------ streams, and the library's answer to each


def numbers(seed: int, *changes: int) -> Floats:
    """Return a quarter of a million numbers whose mean moves at each change."""
    x = np.random.default_rng(seed).normal(size=250_000).round(3)
    for change in changes:
        x[change:] += 1.0
    return x


def rows(seed: int) -> tuple[Floats, list[Any]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 6000)
    return rng.normal(size=(6000, 3)).round(2) + y[:, None], [f"label {label}" for label in y]


def state(monitor: Monitor) -> dict[str, Any]:
    """Return what the server must report about a monitor."""
    last = monitor.last
    value = 0.0 if last is None else last.log_value / LN10
    return {
        "n": monitor.n,
        "p": None if last is None else last.p,
        "log10_martingale": value if math.isfinite(value) else None,
        "log10_max": monitor.log_max / LN10,
        "alarm": last is not None and last.alarm,
        "alarm_at": monitor.alarm_at,
        "changepoint": monitor.changepoint,
        "guarantee": monitor.guarantee,
    }


class Feeder(threading.Thread):
    """A client that posts batches of random sizes, with the same seqs again when the server dies, and checks replies.

    Beside it runs a monitor of the library, fed with what the server has acknowledged, in other batches.
    """

    def __init__(
        self,
        port: int,
        name: str,
        configuration: dict[str, Any],
        monitor: Callable[[int], Monitor],
        x: Floats,
        *,
        most: int = 1500,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.configuration = {"seed": 0, **configuration}
        self.fresh = monitor
        self.monitor = monitor(0)
        self.x = x
        self.most = most
        self.taken = 0  # observations that the server has acknowledged
        self.interrupted = 0  # requests that were not answered
        self.found = 0  # of these, requests that the server had taken nevertheless
        self.enough = threading.Event()
        self.failure: Exception | None = None
        self.rng = np.random.default_rng(len(name))
        self.caller = Caller(port)

    def run(self) -> None:
        try:
            assert self.insist("PUT", "", self.configuration).status in (200, 201)
            while not self.enough.is_set():
                self.turn()
        except Exception as failure:  # noqa: BLE001 - told by the test
            self.failure = failure
        finally:
            self.caller.close()

    def turn(self) -> None:
        """Post one batch, which may repeat old observations before the new ones."""
        again = int(self.rng.integers(0, min(self.taken, 300) + 1)) if self.rng.random() < 0.3 else 0
        size = min(int(self.most ** self.rng.random()), len(self.x) - self.taken)
        self.post(self.taken - again, self.taken + size, again)

    def post(self, start: int, stop: int, again: int) -> None:
        if start == stop:
            self.enough.wait(0.01)
            return
        before = self.interrupted
        reply = self.insist("POST", "/observations", self.lines(start, stop), kind=NDJSON)
        assert reply.status == 200, reply
        counts = (reply.body["accepted"], reply.body["duplicates"])
        if counts == (0, stop - start) and self.interrupted > before and again < stop - start:
            self.found += 1
        else:
            assert counts == (stop - start - again, again)
        assert reply.body["next_seq"] == stop + 1
        self.acknowledged(stop)
        assert reply.body["state"] == state(self.monitor)

    def lines(self, start: int, stop: int) -> bytes:
        return lines(start + 1, self.x[start:stop])

    def acknowledged(self, stop: int) -> None:
        if stop > self.taken:
            self.monitor.extend(self.x[self.taken : stop])
            self.taken = stop

    def insist(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Reply:
        """Repeat a request until it is answered."""
        until = time.monotonic() + LONG_PATIENCE
        while time.monotonic() < until:
            try:
                reply = self.caller(method, f"/v1/streams/{self.name}{path}", body, kind=kind)
            except FAILURES as failure:
                self.interrupted += not isinstance(failure, ConnectionRefusedError)
                time.sleep(0.003)
                continue
            if reply.status not in (429, 503):
                return reply
            time.sleep(0.01)
        raise AssertionError(f"no answer for {LONG_PATIENCE} seconds")

    def check(self) -> None:
        """Check that the state and the exported monitor are the library's."""
        stream = self.insist("GET", "").body
        assert stream["state"] == state(self.monitor)
        assert stream["next_seq"] == self.taken + 1
        self.same(self.insist("GET", "/export").body)

    def same(self, exported: bytes) -> None:
        assert exported == snapshot.encode(self.monitor), self.name


class Resetting(Feeder):
    """A client that sometimes starts a new test."""

    def turn(self) -> None:
        if self.rng.random() < 0.05:
            self.reset()
        super().turn()

    def reset(self) -> None:
        """Reset the stream. A reset has no number, so after a failure the client must query whether it took place."""
        before = self.insist("GET", "").body["resets"]
        while self.insist("GET", "").body["resets"] == before:
            with suppress(*FAILURES):
                self.caller("POST", f"/v1/streams/{self.name}/reset")
        self.monitor = self.fresh(self.taken)
        reply = self.insist("GET", "").body
        assert (reply["resets"], reply["since"]) == (before + 1, self.taken)
        assert reply["state"] == state(self.monitor)


class Labelled(Feeder):
    """Rows with labels."""

    y: list[Any]

    def lines(self, start: int, stop: int) -> bytes:
        return lines(start + 1, self.x[start:stop], y=self.y[start:stop])

    def acknowledged(self, stop: int) -> None:
        if stop > self.taken:
            self.monitor.extend(self.x[self.taken : stop], self.y[self.taken : stop])
            self.taken = stop

    def same(self, exported: bytes) -> None:
        """Compare later steps only: where the pool is centred, for speed, depends on the batches."""
        x, y = rows(0)
        ours, theirs = (monitor.extend(x[:300], y[:300]) for monitor in (self.monitor, snapshot.decode(exported)))
        assert ours.p.tobytes() == theirs.p.tobytes()
        assert ours.log_value.tobytes() == theirs.log_value.tobytes()


class Late(Labelled):
    """Rows whose labels come later, in any order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.waiting: list[int] = []
        self.posted = 0

    def lines(self, start: int, stop: int) -> bytes:
        names = [f"id-{i}" for i in range(start, stop)]
        known = [y if i % 4 == 0 else None for i, y in enumerate(self.y[start:stop], start)]
        return lines(start + 1, self.x[start:stop], y=known, id=names)

    def turn(self) -> None:
        size = min(int(self.most ** self.rng.random()), len(self.x) - self.posted, 80 - len(self.waiting))
        if size > 0:
            reply = self.insist("POST", "/observations", self.lines(self.posted, self.posted + size), kind=NDJSON)
            assert reply.status == 200, reply
            assert (reply.body["accepted"], reply.body["duplicates"]) in ((size, 0), (0, size))
            self.waiting += [i for i in range(self.posted, self.posted + size) if i % 4]
            self.posted += size
            self.released(reply)
        self.label(int(self.rng.integers(0, len(self.waiting) + 1)))

    def label(self, count: int) -> None:
        chosen = self.rng.permutation(self.waiting)[:count].tolist()
        if not chosen:
            return
        text = "\n".join(json.dumps({"id": f"id-{i}", "y": self.y[i]}) for i in chosen).encode()
        reply = self.insist("POST", "/labels", text, kind=NDJSON)
        assert reply.status == 200, reply
        assert (reply.body["accepted"], reply.body["duplicates"]) in ((count, 0), (0, count))
        self.waiting = [i for i in self.waiting if i not in chosen]
        self.released(reply)

    def released(self, reply: Reply) -> None:
        self.acknowledged(min(self.waiting, default=self.posted))
        assert reply.body["state"] == state(self.monitor)
        assert reply.body["waiting"] == self.posted - self.taken
        assert reply.body["next_seq"] == self.posted + 1

    def check(self) -> None:
        self.label(len(self.waiting))
        super().check()


def feeders(port: int) -> list[Feeder]:
    """Streams of every kind."""

    def feeder(
        cls: type[Feeder],
        name: str,
        x: Floats,
        make: Callable[[], tuple[Any, Any, Any]],
        configuration: dict[str, Any],
        most: int = 1500,
    ) -> Feeder:
        seed, on_alarm = configuration.get("seed", 0), configuration.get("on_alarm", "latch")

        def monitor(start: int) -> Monitor:
            return Monitor(*make(), seed=seed, on_alarm=on_alarm, start=start)

        return cls(port, name, configuration, monitor, x, most=most)

    p = np.random.default_rng(8).uniform(1e-9, 1.0, 250_000)
    p[20_000:] **= 1.5
    near, near_y = rows(6)
    far, far_y = rows(7)
    made = [
        feeder(
            Feeder,
            "value",
            numbers(1, 9000),
            lambda: (measures.Value(), bets.Adaptive(), alarms.Ville(0.01)),
            {"measure": {"kind": "value"}, "seed": 7},
            600,
        ),
        feeder(
            Feeder,
            "frozen",
            numbers(2, 60_000),
            lambda: (measures.Frozen(reference=SCORES, bins=64), bets.SimpleMixture(), alarms.Cusum(1000.0)),
            {
                "measure": {"kind": "frozen", "reference": SCORES.tolist(), "bins": 64},
                "bet": {"kind": "simple-mixture"},
                "alarm": {"kind": "cusum", "period": 1000.0},
            },
        ),
        feeder(
            Feeder,
            "p-values",
            p,
            lambda: (Precomputed(), bets.Sentinel(), alarms.ShiryaevRoberts(10_000.0)),
            {
                "measure": {"kind": "p-values"},
                "bet": {"kind": "sentinel"},
                "alarm": {"kind": "shiryaev-roberts", "period": 10_000.0},
            },
        ),
        feeder(
            Feeder,
            "restarting",
            numbers(3, 500, 1500, 4000, 12_000),
            lambda: (measures.Value(), bets.SimpleJumper(), alarms.Ville(0.05)),
            {
                "bet": {"kind": "simple-jumper"},
                "alarm": {"kind": "ville", "alpha": 0.05},
                "seed": 11,
                "on_alarm": "restart",
            },
            600,
        ),
        feeder(
            Resetting,
            "reset",
            numbers(4, 3000),
            lambda: (measures.Value(), bets.Plugin(), alarms.Cusum(10_000.0)),
            {"bet": {"kind": "plugin"}, "alarm": {"kind": "cusum", "period": 10_000.0}},
            100,
        ),
        feeder(
            Labelled,
            "labelled",
            near,
            lambda: (measures.NearestNeighbour(), bets.Adaptive(), alarms.Ville(0.001)),
            {"measure": {"kind": "nearest-neighbour", "cap": 6000}, "alarm": {"kind": "ville", "alpha": 0.001}},
            30,
        ),
        feeder(
            Late,
            "late",
            far,
            lambda: (measures.NearestNeighbour(), bets.SimpleMixture(), alarms.Ville(0.01)),
            {
                "measure": {"kind": "nearest-neighbour", "cap": 6000},
                "bet": {"kind": "simple-mixture"},
                "labels": {"most": 100},
            },
            20,
        ),
    ]
    for one, labels in ((made[-2], near_y), (made[-1], far_y)):
        assert isinstance(one, Labelled)
        one.y = labels
    return made


# ------------------------------------------------------------------ killed


LOADED = """
import ctypes, json, os, signal, sqlite3, sys, time
import numpy as np
import exchangeable.service.run
from exchangeable import cli
from exchangeable.service.stream_config import parse_configuration
connect = sqlite3.connect
class Slow(sqlite3.Connection):
    def execute(self, sql, *values):
        time.sleep(0.02 * (sql == "COMMIT"))
        result = super().execute(sql, *values)
        time.sleep(0.02 * (sql == "COMMIT"))
        return result
for given in json.loads(sys.stdin.readline()):
    made = parse_configuration(given)
    x = np.linspace(0.1, 0.9, 60)
    made.monitor().extend(x if made.scalar else x.reshape(-1, 3), ["a", "b"] * 10 if made.needs_labels else None)
for line in sys.stdin:
    task = json.loads(line)
    if isinstance(task, int):
        until = time.monotonic() + 30.0
        while not (ended := os.waitpid(task, os.WNOHANG))[0]:
            time.sleep(0.005)
            if time.monotonic() > until:
                os.kill(task, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(ended[1]), flush=True)
        continue
    words, log, slow = task
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with its parent
        if slow:
            sqlite3.connect = lambda *values, **named: connect(*values, factory=Slow, **named)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.dup2(file, 1); os.dup2(file, 2)
        sys.argv = ["exchangeable", *words]
        cli.main()
    print(child, flush=True)
"""


class Loaded:
    """A process that has imported the program, and forks real servers, which start at once."""

    def __init__(self) -> None:
        self.parent = subprocess.Popen([sys.executable, "-c", LOADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.say([feeder.configuration for feeder in feeders(1)])

    def say(self, task: Any) -> None:
        assert self.parent.stdin is not None
        self.parent.stdin.write(json.dumps(task).encode() + b"\n")
        self.parent.stdin.flush()

    def ask(self, task: Any) -> int:
        self.say(task)
        assert self.parent.stdout is not None
        assert select.select([self.parent.stdout], [], [], PATIENCE)[0]
        return int(self.parent.stdout.readline())


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    parent = Loaded()
    yield parent
    parent.parent.communicate(timeout=PATIENCE)


class Quick(Server):
    """A server forked from a loaded process; its commits can be made slow, so that kills hit them."""

    slow = False

    def __init__(self, loaded: Loaded, db: Path, settings: str = "", *, folder: Path | None = None) -> None:
        super().__init__(db, settings, folder=folder)
        self.loaded = loaded
        self.child = 0

    def start(self, program: Sequence[str] = ()) -> None:
        self.child = self.loaded.ask([self.words, str(self.log), self.slow])

    def runs(self) -> bool:
        return self.child != 0

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        child, self.child = self.child, 0
        os.kill(child, how)
        return self.loaded.ask(child)

    def wait(self) -> int:
        """Wait for a server that ends without a signal."""
        child, self.child = self.child, 0
        return self.loaded.ask(child)


@pytest.mark.parametrize(("kills", "plain_kills"), [(10, 2), pytest.param(100, 10, marks=pytest.mark.soak)])
def test_killed_at_random_moments_under_load(tmp_path: Path, loaded: Loaded, kills: int, plain_kills: int) -> None:
    """What was acknowledged is there, nothing counts twice, and every state is that of an uninterrupted run.

    ``kills`` processes are forked from one that has loaded everything, ``plain_kills`` are started from nothing.
    """
    quick = Quick(loaded, tmp_path / "killed.db", SETTINGS)
    plain = Server(quick.db, SETTINGS)
    plain.port, plain.words = quick.port, quick.words
    clients = feeders(quick.port)
    rng = np.random.default_rng(99)
    try:
        for kill in range(kills + plain_kills):
            server = plain if kill % ((kills + plain_kills) // plain_kills) == 0 else quick
            quick.slow = kill % 2 == 1
            server.start()
            if kill == 0:
                for client in clients:
                    client.start()
            if rng.random() < 0.75:
                server.ready()
                time.sleep(rng.uniform(0.0, 3.0 if server is plain else 0.4))  # a plain one must load its kernels first
            else:  # while it starts
                time.sleep(rng.uniform(0.0, 1.5 if server is plain else 0.4))
            server.end(signal.SIGKILL)
            assert not [(client.name, client.failure) for client in clients if client.failure]
        quick.slow = False
        with quick:
            for client in clients:
                client.enough.set()
            for client in clients:
                client.join(LONG_PATIENCE)
                assert client.failure is None, (client.name, client.failure)
            assert all(client.taken > 0 for client in clients)
            assert sum(client.interrupted for client in clients) >= kills / 2  # there was load to interrupt,
            assert sum(client.found for client in clients) >= kills // 20  # also between a commit and its answer
            for client in clients:
                client.check()
                client.caller.close()
            assert quick.end() == 0
    finally:
        for client in clients:
            client.enough.set()
        for server in (plain, quick):
            if server.runs():
                server.end(signal.SIGKILL)
    _stored(quick.db, clients)


def _stored(db: Path, clients: list[Feeder]) -> None:
    """Check that the file is intact and holds each step of the library once, in order."""
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for client in clients:
            stream, n, observations, alarms_, kept = connection.execute(
                "SELECT id, n, observations, alarms, kept FROM streams WHERE name = ?", (client.name,)
            ).fetchone()
            assert (n, observations) == (client.taken, client.taken)
            parts = list(history.replay(connection, stream, 0))
            x, p, log10 = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "p", "log10"))
            assert parts[0].first == kept == n - len(x) + 1
            assert kept == 1 or len(x) >= 4000
            assert np.array_equal(x, client.x[kept - 1 : n].reshape(len(x), -1))
            if isinstance(client, Resetting):
                continue
            y = getattr(client, "y", None)
            path = client.fresh(0).extend(client.x[:n], None if y is None else y[:n])
            whole = path.log_value / LN10
            assert p.tobytes() == path.p[kept - 1 :].tobytes()
            assert log10.tobytes() == whole[kept - 1 :].tobytes()
            points = history.read(connection, stream, 1, n, 500)
            assert points.log10.tolist() == whole[points.n - 1].tolist()
            assert (points.log10.min(), points.log10.max()) == (whole.min(), whole.max())
            sounded = path.n[path.alarm] if client.monitor.on_alarm == "restart" else path.n[path.alarm][:1]
            marks = connection.execute("SELECT n FROM marks WHERE stream = ? AND kind = 'alarm' ORDER BY n", (stream,))
            assert [mark for (mark,) in marks] == sounded.tolist()
            assert alarms_ == len(sounded)


@pytest.fixture
def quick(tmp_path: Path, loaded: Loaded) -> Iterator[Quick]:
    """A server that is up."""
    with Quick(loaded, tmp_path / "service.db", SETTINGS) as server:
        yield server


def post(server: Server, name: str, first: int, x: Floats) -> Reply:
    """Observations with seqs from ``first`` on."""
    return server.ask("POST", f"/v1/streams/{name}/observations", lines(first, x), kind=NDJSON)


@contextmanager
def database(server: Server) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(server.db)) as connection:
        yield connection


def monitored(x: Floats, **options: Any) -> Monitor:
    """Return the library's monitor of a stream with the default configuration."""
    monitor = Monitor(measures.Value(), bets.Adaptive(), alarms.Ville(0.01), **options)
    monitor.extend(x)
    return monitor


def test_what_was_accepted_is_recognised_after_a_kill(quick: Quick) -> None:
    """A repeat is a duplicate, another observation under the same seq is rejected, and so is a gap, as before."""
    x = numbers(1)[:1000]
    assert quick.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
    assert post(quick, "a", 1, x).body["accepted"] == 1000
    quick.end(signal.SIGKILL)
    with quick:
        repeated = post(quick, "a", 501, x[500:])
        assert (repeated.status, repeated.body["accepted"], repeated.body["duplicates"]) == (200, 0, 500)
        other = post(quick, "a", 501, x[500:] + (np.arange(500) == 7))
        assert (other.status, other.body["error"], other.body["seq"]) == (422, "different", 508)
        gap = post(quick, "a", 1002, x[:3])
        assert (gap.status, gap.body["error"], gap.body["expected_seq"]) == (409, "gap", 1001)
        assert quick.ask("GET", "/v1/streams/a").body["state"] == state(monitored(x))
        assert quick.ask("PUT", "/v1/streams/a").status == 200
        assert quick.ask("PUT", "/v1/streams/a", {"seed": 1}).status == 409


CONSTANT: dict[str, dict[str, Any]] = {
    "frozen": {"measure": {"kind": "frozen", "reference": SCORES.tolist(), "bins": 64}, "bet": {"kind": "markov"}},
    "p-values": {"measure": {"kind": "p-values"}, "bet": {"kind": "simple-jumper"}},
    "adaptive": {"measure": {"kind": "p-values"}, "bet": {"kind": "adaptive"}},
}


def test_a_restart_replays_no_more_than_between_two_snapshots(quick: Quick) -> None:
    """It replays fewer steps than ``snapshot_every``, or, if the snapshot is large, than its bytes are worth."""
    p = np.random.default_rng(1).uniform(1e-9, 1.0, 20_000)
    rng = np.random.default_rng(2)
    longest = 0
    for name, configuration in CONSTANT.items():
        assert quick.ask("PUT", f"/v1/streams/{name}", configuration).status == 201
        first = 1
        while first < 8000:
            size = int(rng.integers(1, 900))
            assert post(quick, name, first, p[first - 1 : first + size - 1]).status == 200
            first += size
            with database(quick) as connection:
                stream, n, at, size = connection.execute(
                    "SELECT id, streams.n, coalesce(snapshots.n, 0), coalesce(length(data), 0)"
                    " FROM streams LEFT JOIN snapshots ON stream = id"
                    " WHERE name = ?",
                    (name,),
                ).fetchone()
                replayed = sum(len(part.p) for part in history.replay(connection, stream, at))
            assert n == first - 1
            assert replayed == n - at
            assert replayed < (EVERY if name != "adaptive" else max(EVERY, size // ingest.SNAPSHOT_BYTES_PER_STEP))
            assert size < 1e5
            longest = max(longest, replayed)
    assert longest > EVERY / 2  # not a snapshot for each batch either


def test_a_stopped_server_answers_first_and_leaves_snapshots(quick: Quick) -> None:
    """A request of which half has arrived when SIGTERM comes is still answered, and its observations are there."""
    x = numbers(1)[:3000]
    assert quick.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
    assert post(quick, "a", 1, x[:1000]).status == 200
    body = lines(1001, x[1000:])
    with closing(socket.create_connection(("127.0.0.1", quick.port))) as connection:
        connection.settimeout(PATIENCE)
        head = f"POST /v1/streams/a/observations HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:9999])
        time.sleep(0.2)
        child, quick.child = quick.child, 0
        os.kill(child, signal.SIGTERM)
        time.sleep(0.2)
        connection.sendall(body[9999:])
        reply = http.client.HTTPResponse(connection)
        reply.begin()
        assert (reply.status, json.loads(reply.read())["accepted"]) == (200, 2000)
    assert quick.loaded.ask(child) == 0
    assert "Traceback" not in quick.said()
    with database(quick) as connection:
        assert connection.execute("SELECT n FROM snapshots").fetchall() == [(3000,)]
        n, text = connection.execute("SELECT n, state FROM streams").fetchone()
        assert (n, json.loads(text)) == (3000, state(monitored(x)))
    assert not Path(f"{quick.db}-wal").exists()  # all is in the one file: it may be copied


def test_readers_of_events_do_not_hold_up_the_stop(quick: Quick) -> None:
    assert quick.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
    with closing(socket.create_connection(("127.0.0.1", quick.port))) as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(b"GET /v1/streams/a/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1) == b"H"
        start = time.monotonic()
        assert quick.end() == 0
        assert time.monotonic() - start < 8.0  # it would wait for 10
        while connection.recv(65536):
            pass


# ------------------------------------------------------------------ disk full


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip(f"mounting a small file system is not allowed here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(server: Server, name: str, x: Floats, taken: int) -> tuple[int, Reply]:
    """Post batches until one is rejected; return how many observations were accepted, and the reply."""
    while taken + 500 <= len(x):
        reply = post(server, name, taken + 1, x[taken : taken + 500])
        if reply.status != 200:
            return taken, reply
        taken += 500
    raise AssertionError("the disk took everything")


def _fill_up(path: Path) -> None:
    """Fill the disk."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_loses_nothing_and_recovers(tmp_path: Path, small_disk: Path, loaded: Loaded) -> None:
    x = numbers(1)[:100_000]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_500_000))
    with Quick(loaded, small_disk / "service.db", SETTINGS, folder=tmp_path) as server:
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
        taken, refusal = _fill(server, "a", x, 0)
        assert taken >= 500
        assert (refusal.status, refusal.body["error"]) in ((507, "storage-full"), (503, "storage"))
        monitor = monitored(x[:taken])
        assert server.ask("GET", "/v1/streams/a").body["state"] == state(monitor)  # one may still look
        assert server.ask("GET", "/v1/streams/a/history").status == 200
        assert server.ask("GET", "/v1/streams/a/export").body == snapshot.encode(monitor)
        _fill_up(small_disk / "dust")
        assert post(server, "a", taken + 1, x[taken : taken + 500]).status in (503, 507)  # and again
        assert server.ask("GET", "/readyz").status == 503
        assert server.ask("GET", "/healthz").status == 200
        (small_disk / "dust").unlink()
        ballast.unlink()
        assert server.ask("GET", "/readyz").status == 200
        more, refusal = _fill(server, "a", x, taken)  # there is room: it goes on by itself
        assert more > taken
        assert refusal.status in (503, 507)
        monitor.extend(x[taken:more])
        server.end(signal.SIGKILL)
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        server.start()
        server.ready()
        assert server.ask("GET", "/v1/streams/a").body["state"] == state(monitor)
        assert post(server, "a", more + 1, x[more : more + 500]).body["accepted"] == 500
        monitor.extend(x[more : more + 500])
        assert server.ask("GET", "/v1/streams/a").body["state"] == state(monitor)
        assert server.end() == 0
        assert "Traceback" not in server.said()
        with database(server) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (kept,) = connection.execute("SELECT kept FROM streams").fetchone()
            parts = list(history.replay(connection, 1, 0))
            assert np.concatenate([part.x[:, 0] for part in parts]).tolist() == x[kept - 1 : more + 500].tolist()


def test_a_server_started_on_a_full_disk_changes_nothing(tmp_path: Path, small_disk: Path, loaded: Loaded) -> None:
    x = numbers(1)[:2000]
    with Quick(loaded, small_disk / "service.db", SETTINGS, folder=tmp_path) as server:
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
        assert post(server, "a", 1, x[:1000]).status == 200
        server.end(signal.SIGKILL)
        _fill_up(small_disk / "dust")
        server.start()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and server.runs() and "exchangeable" not in server.said().split("\n", 1)[1]:
            time.sleep(0.02)
        if "serves" in server.said().split("\n", 1)[1]:
            server.ready()
            assert post(server, "a", 1001, x[1000:]).status in (200, 503, 507)
            server.end(signal.SIGKILL)
        else:
            assert server.wait() == 3
        assert "Traceback" not in server.said()
        (small_disk / "dust").unlink()
        with server:
            assert post(server, "a", 1001, x[1000:]).status == 200
            assert server.ask("GET", "/v1/streams/a").body["state"] == state(monitored(x))


# ------------------------------------------------------------------ who may open the database


def refused(loaded: Loaded, db: Path, folder: Path) -> str:
    """Return the message of a server that cannot start and ends with exit code 3."""
    other = Quick(loaded, db, folder=folder)
    other.log.unlink(missing_ok=True)
    other.start()
    assert other.wait() == 3
    said = other.said().strip()
    assert said.startswith("exchangeable: ")
    assert "\n" not in said
    return said.removeprefix("exchangeable: ")


def test_a_second_process_is_rejected_on_any_path_to_the_file(quick: Quick, loaded: Loaded, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link.db").symlink_to(quick.db)
    (tmp_path / "chain.db").symlink_to(tmp_path / "link.db")
    (tmp_path / "folder").symlink_to(tmp_path)
    paths = ["service.db", "other/../service.db", "link.db", "chain.db", "folder/service.db", "./service.db"]
    for path in paths:
        said = refused(loaded, Path(f"{tmp_path}/{path}"), tmp_path / "other")
        assert "database must be served by one process" in said
        assert "which another process serves" in said
    assert quick.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
    assert post(quick, "a", 1, numbers(1)[:10]).status == 200
    quick.end(signal.SIGKILL)
    with quick:  # the lock of one that was killed does not stay
        assert quick.ask("GET", "/v1/streams/a").body["state"]["n"] == 10


def _sound(folder: Path, loaded: Loaded) -> Path:
    """A database that was in use and stopped."""
    with Quick(loaded, folder / "sound.db") as server:
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
        assert post(server, "a", 1, numbers(1)[:5000]).status == 200
        assert server.end() == 0
    return server.db


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2 // 4096 * 4096]


def _wiped(data: bytes) -> bytes:
    return data[:100] + bytes(4096) + data[4196:]


def _foreign(folder: Path) -> bytes:
    path = folder / "foreign.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE streams (id INTEGER PRIMARY KEY, name TEXT)")
        connection.commit()
    return path.read_bytes()


def test_a_damaged_or_foreign_database_is_rejected_and_unchanged(tmp_path: Path, loaded: Loaded) -> None:
    sound = _sound(tmp_path, loaded).read_bytes()
    cases = {
        "half": (_half(sound), "database must be a readable SQLite file"),
        "cut": (sound[:-1000], "database must be a readable SQLite file"),
        "wiped": (_wiped(sound), "database must be a readable SQLite file"),
        "text": (b"name,x\n" * 999, "database must be a readable SQLite file"),
        "noise": (np.random.default_rng(0).bytes(50_000), "database must be a readable SQLite file"),
        "foreign": (_foreign(tmp_path), "database must be an exchangeable database"),
    }
    for name, (data, law) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        path = folder / "service.db"
        path.write_bytes(data)
        said = refused(loaded, path, tmp_path)
        assert said.startswith(law), (name, said)
        assert path.read_bytes() == data
        assert {file.name for file in folder.iterdir()} <= {"service.db", "service.db.lock"}, name


def test_a_folder_or_a_missing_folder_is_rejected(tmp_path: Path, loaded: Loaded) -> None:
    assert refused(loaded, tmp_path / "missing" / "service.db", tmp_path).startswith(
        "database must be in a writable folder"
    )
    (tmp_path / "folder.db").mkdir()
    assert refused(loaded, tmp_path / "folder.db", tmp_path).startswith("database must be a readable SQLite file")


# ------------------------------------------------------------------ versions


def test_a_newer_database_is_rejected_and_unchanged(tmp_path: Path, loaded: Loaded) -> None:
    path = _sound(tmp_path, loaded)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.newest_version() + 1}")
    before = path.read_bytes()
    (tmp_path / "log").mkdir()
    said = refused(loaded, path, tmp_path / "log")
    assert said.startswith(f"database must have schema version {schema.newest_version()} or older, got version")
    assert path.read_bytes() == before


VERSION_1 = Path(__file__).parent / "data" / "service-1.sql"  # of version 0.1
OLD: dict[str, dict[str, Any]] = {
    "value": {"bet": {"kind": "simple-mixture"}, "seed": 3},
    "p-values": {"measure": {"kind": "p-values"}, "bet": {"kind": "simple-jumper"}, "on_alarm": "restart"},
    "late": {
        "measure": {"kind": "nearest-neighbour"},
        "bet": {"kind": "simple-jumper"},
        "labels": {"most": 50},
        "seed": 0,
    },
}


def old_data(name: str) -> tuple[Floats, list[Any]]:
    if name == "late":
        x, y = rows(9)
        return x[:60], y[:60]
    x = np.random.default_rng(12).uniform(1e-9, 1.0, 300).round(6)
    x[:200] **= 2.0
    return x, [None] * 300


def old_monitor(name: str) -> Monitor:
    if name == "value":
        return Monitor(measures.Value(), bets.SimpleMixture(), alarms.Ville(0.01), seed=3)
    if name == "p-values":
        return Monitor(Precomputed(), bets.SimpleJumper(), alarms.Ville(0.01), on_alarm="restart")
    return Monitor(measures.NearestNeighbour(), bets.SimpleJumper(), alarms.Ville(0.01))


def post_old(server: Server, name: str, start: int, stop: int) -> Reply:
    """Post observations after ``start``; in the stream whose labels come late, one in three has none yet."""
    x, y = old_data(name)
    known = [label if i % 3 else None for i, label in enumerate(y)]
    names = [f"id-{i}" for i in range(len(x))]
    body = lines(start + 1, x[start:stop], y=known[start:stop], id=names[start:stop])
    return server.ask("POST", f"/v1/streams/{name}/observations", body, kind=NDJSON)


def post_labels(server: Server, start: int, stop: int) -> Reply:
    _, y = old_data("late")
    text = "\n".join(json.dumps({"id": f"id-{i}", "y": y[i]}) for i in range(start, stop) if i % 3 == 0)
    return server.ask("POST", "/v1/streams/late/labels", text.encode(), kind=NDJSON)


def database_in_use(folder: Path) -> str:
    """Dump a database whose server was killed: snapshots are behind the steps, and observations wait."""
    server = Server(folder / "old.db", "snapshot_every = 100\n")
    with server:
        for name, configuration in OLD.items():
            assert server.ask("PUT", f"/v1/streams/{name}", configuration).status == 201
            for start in range(0, 150 if name != "late" else 30, 15):
                assert post_old(server, name, start, start + 15).status == 200
        assert post_labels(server, 0, 24).status == 200
        server.end(signal.SIGKILL)
    with closing(sqlite3.connect(server.db)) as connection:
        lines = [*connection.iterdump(), f"PRAGMA application_id = {schema.APPLICATION};"]
    return "\n".join([*lines, f"PRAGMA user_version = {schema.newest_version()};", ""])


def restored(path: Path, text: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(text)
    return connection


def version_1(path: Path) -> sqlite3.Connection:
    return restored(path, VERSION_1.read_text("utf-8"))


def test_a_database_restored_from_a_dump_goes_on(tmp_path: Path, loaded: Loaded) -> None:
    """Every stream goes on as in the library."""
    path = tmp_path / "service.db"
    restored(path, database_in_use(tmp_path)).close()
    with Quick(loaded, path) as server:
        assert post_labels(server, 24, 30).status == 200
        for name, configuration in OLD.items():
            assert server.ask("PUT", f"/v1/streams/{name}", configuration).status == 200
            monitor, (x, y) = old_monitor(name), old_data(name)
            taken = 30 if name == "late" else 150
            monitor.extend(x[:taken], y[:taken])
            assert server.ask("GET", f"/v1/streams/{name}").body["state"] == state(monitor)
            again = post_old(server, name, taken - 10, len(x))
            assert (again.status, again.body["duplicates"]) == (200, 10)
            monitor.extend(x[taken:], y[taken:])
            if name == "late":
                assert post_labels(server, 30, len(x)).status == 200
            assert server.ask("GET", f"/v1/streams/{name}").body["state"] == state(monitor)
        assert server.end() == 0


def test_a_database_from_before_0_2_is_rejected_and_unchanged(tmp_path: Path, loaded: Loaded) -> None:
    path = tmp_path / "service.db"
    version_1(path).close()
    before = path.read_bytes()
    (tmp_path / "log").mkdir()
    said = refused(loaded, path, tmp_path / "log")
    law = f"database must have schema version {schema.FIRST_VERSION} or newer, got version 1 in {str(path)!r}"
    assert (
        said.strip()
        == f"{law}: it was written by an earlier release, which can export its history; start with a new database"
    )
    assert path.read_bytes() == before


def test_migrations_keep_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of the first version is migrated to the newest in one transaction."""

    def rename(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE marks RENAME COLUMN kind TO sort")

    monkeypatch.setattr(schema, "MIGRATIONS", ())
    path = tmp_path / "old.db"
    with closing(store.open_database(path, migrate=True)) as connection:
        connection.execute("INSERT INTO main.marks (stream, n, kind, time) VALUES (1, 2, 'alarm', 3.0)")
    later = ("ALTER TABLE marks ADD COLUMN note TEXT; CREATE TABLE more(id INTEGER) STRICT", rename)
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    for _ in range(2):  # the second time there is nothing to do
        with closing(store.open_database(path, migrate=True)) as connection:
            assert connection.execute("SELECT stream, n, sort, note FROM marks").fetchall() == [(1, 2, "alarm", None)]
            assert connection.execute("PRAGMA user_version").fetchone() == (schema.FIRST_VERSION + 2,)
            assert connection.execute("SELECT count(*) FROM more").fetchone() == (0,)
    with closing(store.open_database(tmp_path / "new.db")) as connection:  # a new one has all that they add
        assert connection.execute("SELECT stream, n, sort, note FROM marks").fetchall() == []
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.FIRST_VERSION + 2,)


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", ())
    path = tmp_path / "old.db"
    store.open_database(path).close()
    before = path.read_bytes()
    later = ("CREATE TABLE more(id INTEGER) STRICT", "ALTER TABLE absent ADD COLUMN note TEXT")
    monkeypatch.setattr(schema, "MIGRATIONS", later)
    with pytest.raises(store.StoreError, match="no such table: absent"):
        store.open_database(path, migrate=True)
    assert path.read_bytes() == before


# ------------------------------------------------------------------ labels that come late


@pytest.mark.parametrize(("scale", "expired"), [(1, 3), pytest.param(3, 20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("clock", ["client", "server"])
def test_a_queue_of_late_labels_survives_kills(quick: Quick, clock: str, scale: int, expired: int) -> None:
    """Every request is sent again, as by a client that got no answer, and one in ten kills the server before that."""
    wait = 1.02 * late.HOUR if clock == "client" else 30 * late.HOUR
    x, y, events = late.fraud(1, slow=20 * scale, fast=40 * scale)
    if clock == "server":
        events = [event for event in events if event.kind == "observe" or event.i < 50 * scale]
    configuration = {"measure": {"kind": "nearest-neighbour"}, "labels": {"wait": wait, "clock": clock}, "seed": 0}
    assert quick.ask("PUT", "/v1/streams/a", configuration).status == 201
    queue = LateLabels(Monitor(measures.NearestNeighbour()), wait=wait)
    rng = np.random.default_rng(0)
    stamps: dict[int, float] = {}
    for time_, kind, i in events:
        timed = {"time": time_} if clock == "client" else {}
        line = {"seq": i + 1, "x": x[i].tolist()} if kind == "observe" else {"y": y[i]}
        body = {"id": f"{i}", **line, **timed}
        path = f"/v1/streams/a/{'observations' if kind == 'observe' else 'labels'}"
        assert quick.ask("POST", path, body).status == 200
        if rng.random() < 0.1:
            quick.end(signal.SIGKILL)
            quick.start()
            quick.ready()
        again = quick.ask("POST", path, body)
        assert (again.status, again.body["duplicates"]) == (200, 1)
        _ = queue.observe(i, x[i], time=time_) if kind == "observe" else queue.label(i, y[i], time=time_)
        assert again.body["waiting"] == len(queue.waiting)
        with database(quick) as connection:
            times = dict(connection.execute("SELECT seq, time FROM waiting"))
        assert all(stamps.get(seq, stamp) == stamp for seq, stamp in times.items())  # drawn once
        assert list(times.values()) == sorted(times.values())
        stamps |= times
    shown = quick.ask("GET", "/v1/streams/a").body
    assert (queue.left_out.expired > expired) == (clock == "client")
    assert {**shown["state"], "guarantee": ""} == {**state(queue.monitor), "guarantee": ""}
    assert shown["left_out"] == asdict(queue.left_out)


# ------------------------------------------------------------------ clocks


JUMPING = """
import random, sys, time
real, wild = time.time, random.Random(0)
time.time = lambda: real() + wild.choice([-1.5e9, -3600.0, 0.0, 86400.0, 2e9])
from exchangeable import cli
sys.argv[0] = "exchangeable"
cli.main()
"""


def test_clock_jumps_do_not_matter(tmp_path: Path) -> None:
    """The clock jumps by decades, back and forth, within a run and across a restart."""
    x = numbers(1)[:3000]
    server = Server(tmp_path / "service.db", SETTINGS)
    try:
        server.start(("-c", JUMPING))
        server.ready()
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0}).status == 201
        for start in range(0, 1500, 100):
            assert post(server, "a", start + 1, x[start : start + 100]).status == 200
        server.end(signal.SIGKILL)
        server.start(("-c", JUMPING))
        server.ready()
        for start in range(1400, 3000, 100):
            assert post(server, "a", start + 1, x[start : start + 100]).status == 200
        assert server.ask("GET", "/v1/streams/a").body["state"] == state(monitored(x))
        assert server.ask("GET", "/v1/streams/a/export").body == snapshot.encode(monitored(x))
        assert server.ask("GET", "/v1/streams").body["total"] == 1
        assert server.ask("GET", "/metrics").status == 200
        assert server.end() == 0
    finally:
        if server.runs():
            server.end(signal.SIGKILL)
