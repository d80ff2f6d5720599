"""The server: rates, a quiet stream beside heavy requests, many streams and readers, restarts, faults, backups.

Writes SERVICE.md beside this file. ``--small`` runs it with small sizes, and the document says so.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from exchangeable.service.engine import Engine
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_config import Configuration, parse_configuration
from servers import NDJSON, Caller, Server, lines
from service_faults import faults
from workloads import Floats, best, heading, table

SMALL = 20 if "--small" in sys.argv else 1  # sizes are divided by it
BATCH = 1_000
STREAMS, BATCHES = 4, max(50 // SMALL, 5)  # of the load: 200,000 observations
HOUR = 3_600_000 // SMALL  # observations: a thousand a second for an hour
LONG = 10_000_000 // SMALL
MANY = 100_000 // SMALL  # streams
ACTIVE = 12_000 // SMALL  # of them that get observations, in turn
READERS = 500 // SMALL
POSTS = 1_000 // SMALL  # to a quiet stream, at least, beside each load
GOAL = 5.0  # times as long, at most, a single post may take beside heavy requests
CONSTANT = {"measure": {"kind": "frozen", "reference": list(np.linspace(-3.0, 3.0, 2001)), "bins": 1024}}
MB = 1e6


def numbers(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=count)


@contextmanager
def served(settings: str = "") -> Iterator[Server]:
    """A server on an empty database, its kernels loaded."""
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder, "bench.db"), settings) as server:
        put(server, "warm")
        send(server.port, "warm", [lines(1, numbers(BATCH))])
        yield server


def put(server: Server, name: str, given: dict[str, Any] | None = None) -> None:
    assert server.ask("PUT", f"/v1/streams/{name}", given or {}).status == 201


def send(port: int, name: str, bodies: list[bytes]) -> None:
    """One client: batch after batch, each when the one before is acknowledged."""
    with closing(Caller(port)) as caller:
        for body in bodies:
            reply = caller("POST", f"/v1/streams/{name}/observations", body, kind=NDJSON)
            assert reply.status == 200, reply


def batches(count: int, *, first: int = 1, seed: int = 0) -> list[bytes]:
    x = numbers(count * BATCH, seed)
    return [lines(first + start, x[start : start + BATCH]) for start in range(0, len(x), BATCH)]


def timed(work: Callable[[], object]) -> float:
    return best(work, repeats=1)


# ------------------------------------------------------------------ against bare inserts


def bare(folder: Path, streams: int) -> float:
    """Rows a second: the same rows, one for each observation, a transaction for each batch, as durable."""
    x = numbers(BATCHES * BATCH).tolist()
    path = folder / f"bare-{time.monotonic_ns()}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE observations (stream INTEGER, seq INTEGER, x REAL, PRIMARY KEY (stream, seq))")
        start = time.perf_counter()
        for first in range(0, len(x), BATCH):
            for stream in range(streams):
                rows = [(stream, first + i + 1, value) for i, value in enumerate(x[first : first + BATCH])]
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany("INSERT INTO observations VALUES (?, ?, ?)", rows)
                connection.execute("COMMIT")
        return streams * len(x) / (time.perf_counter() - start)


def taken(server: Server, streams: int, made: dict[str, Any]) -> float:
    """Observations a second, each stream from a client of its own."""
    stamp = time.monotonic_ns()
    names = [f"load-{stamp}-{i}" for i in range(streams)]
    bodies = batches(BATCHES)
    for name in names:
        put(server, name, made)
    with ThreadPoolExecutor(streams) as pool:
        start = time.perf_counter()
        for done in [pool.submit(send, server.port, name, bodies) for name in names]:
            done.result()
        return streams * BATCHES * BATCH / (time.perf_counter() - start)


def load() -> str:
    kinds: dict[str, dict[str, Any]] = {
        "`value`, bet `adaptive`": {},
        "`value`, bet `simple-jumper`": {"bet": {"kind": "simple-jumper"}},
        "`frozen`, bet `adaptive`": CONSTANT,
    }
    rows = []
    with served() as server:
        folder = server.db.parent
        for kind, made in kinds.items():
            for streams in (1, STREAMS):
                raw, ours = 0.0, 0.0
                for _ in range(3):  # in turn, so that a busy moment of the machine meets both
                    raw, ours = max(raw, bare(folder, streams)), max(ours, taken(server, streams, made))
                rows.append([kind, f"{streams}", f"{ours:,.0f}", f"{raw:,.0f}", f"{ours / raw:.2f}"])
    columns = ["streams of", "at once", "observations a second", "bare inserts a second", "ratio"]
    return (
        f"NDJSON in batches of {BATCH:,}, each acknowledged when it is on disk, against bare SQLite inserts of the same"
        " rows (one a row, a transaction a batch, `synchronous=FULL`) in turn; the clients share the cores.\n\n"
        + table(columns, rows)
    )


# ------------------------------------------------------------------ single observations


def single() -> str:
    """One observation a request, against a commit of bare SQLite and a request that does nothing, in turn."""
    kinds: dict[str, list[float]] = {"a commit of one row by SQLite": [], "`GET /healthz`": [], "`POST` of one": []}
    with served() as server, closing(Caller(server.port)) as caller:
        put(server, "quiet")
        with closing(sqlite3.connect(server.db.parent / "single.db", isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("CREATE TABLE observations (seq INTEGER PRIMARY KEY, x REAL)")
            works: list[Callable[[int], object]] = [
                lambda i: connection.execute("INSERT INTO observations VALUES (?, ?)", (i, 0.5)),
                lambda i: caller("GET", "/healthz"),
                lambda i: caller("POST", "/v1/streams/quiet/observations", lines(i, numbers(1, i)), kind=NDJSON),
            ]
            for i in range(1, POSTS + 1):
                for spent, work in zip(kinds.values(), works, strict=True):
                    spent.append(1e3 * timed(lambda work=work, i=i: work(i)))  # type: ignore[misc]
    commit, nothing = (np.median(kinds[name]) for name in list(kinds)[:2])
    rows = [
        [
            name,
            *(f"{ms:.2f} ms" for ms in np.quantile(spent, [0.5, 0.99])),
            f"{np.median(spent) / (commit + nothing):.2f}",
        ]
        for name, spent in kinds.items()
    ]
    columns = ["one at a time", "median", "99 %", "median, relative to the first two together"]
    return f"\nSingle requests, {POSTS:,} of each in turn:\n\n" + table(columns, rows)


# ------------------------------------------------------------------ a quiet stream beside a heavy one

WIDE = np.random.default_rng(0).normal(size=(10_000 // SMALL, 16)).round(3)
REFERENCE = {"measure": {"kind": "frozen", "reference": numbers(100_000 // SMALL).tolist(), "bins": 2**20 // SMALL}}
Loads = Iterator[tuple[str, Callable[[int], object]]]


class Quiet(threading.Thread):
    """Posts single observations to a quiet stream until it is told to stop, and measures each."""

    def __init__(self, port: int, name: str = "quiet") -> None:
        super().__init__()
        self.port, self.path = port, f"/v1/streams/{name}"
        self.stopped = threading.Event()
        self.spent: list[float] = []

    def run(self) -> None:
        with closing(Caller(self.port)) as caller:
            first = caller("GET", self.path).body["next_seq"]
            while not self.stopped.is_set():
                body = lines(first + len(self.spent), numbers(1))
                start = time.perf_counter()
                assert caller("POST", f"{self.path}/observations", body, kind=NDJSON).status == 200
                self.spent.append(1e3 * (time.perf_counter() - start))


def ask(server: Server, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
    reply = server.ask(method, f"/v1/streams/{path}".rstrip("/"), body, kind=kind)
    assert reply.status in (200, 201, 204), reply
    return reply.body


def table_rows(count: int, *, numbered: bool, labelled: bool = True) -> bytes:
    """Rows of a table of 8 columns; without the last one, the label, they have an id."""
    cells = numbers(8 * count).reshape(-1, 8).round(3).tolist()
    rows: list[dict[str, Any]] = [dict(zip("abcdefgh", row, strict=True)) for row in cells]
    if not labelled:
        rows = [{"id": f"i{i}", **row, "h": None} for i, row in enumerate(rows)]
    return "\n".join(json.dumps({"seq": i, "row": row} if numbered else row) for i, row in enumerate(rows, 1)).encode()


def heavy_loads(server: Server) -> Loads:
    """Yield requests that are as heavy as the limits allow, each as a function of how often it was called."""
    count = len(WIDE)
    near = lines(1, WIDE, y=[i % 3 for i in range(count)])
    waiting = lines(1, WIDE[: count * 9 // 10], id=[f"i{i}" for i in range(count * 9 // 10)])
    labels = [json.dumps({"id": f"i{i}", "y": i % 3}).encode() for i in range(count * 9 // 10)]
    reference, rows = table_rows(20_000 // SMALL, numbered=False), table_rows(5_000 // SMALL, numbered=True)

    made_of: Counter[str] = Counter()

    def fresh(i: int, name: str, made: dict[str, Any]) -> str:
        ask(server, "PUT", f"{name}{i}", made)
        made_of[name] += 1
        return f"{name}{i}"

    def send_near(i: int) -> None:
        ask(server, "POST", f"{fresh(i, 'near', NEAR)}/observations", near, NDJSON)

    def send_late(i: int) -> None:
        name = fresh(i, "late", NEAR)
        ask(server, "POST", f"{name}/observations", waiting, NDJSON)
        ask(server, "POST", f"{name}/labels", b"\n".join(labels[1:]), NDJSON)
        ask(server, "POST", f"{name}/labels", labels[0], NDJSON)  # releases all others

    def send_table(i: int) -> None:
        name = fresh(i, "table", {"measure": {"kind": "table"}})
        ask(server, "PUT", f"{name}/reference", reference, NDJSON)
        ask(server, "POST", f"{name}/observations", rows, NDJSON)

    late_rows, late_labels = table_rows(3_000 // SMALL, numbered=False, labelled=False), 3_000 // SMALL
    late_given = b"\n".join(b'{"id": "i%d", "y": 0.5}' % i for i in range(late_labels))

    def send_late_rows(i: int) -> None:
        made = {"measure": {"kind": "table", "label": "h"}, "labels": {}}
        name = fresh(i, "late-rows", made)
        ask(server, "PUT", f"{name}/reference", exact_reference, NDJSON)
        ask(server, "POST", f"{name}/observations", late_rows, NDJSON)
        ask(server, "POST", f"{name}/labels", late_given, NDJSON)

    exact_reference = table_rows(3_000 // SMALL, numbered=False)
    shape = f"{count:,} x 16"
    yield f"nearest neighbours, {shape}", send_near
    yield f"late labels, {len(labels):,} released by one", send_late
    yield "references: 100,000 scores and 2^20 bins created", lambda i: fresh(i, "frozen", REFERENCE)
    yield "the same, loaded from the disk", lambda i: ask(server, "GET", f"frozen{i % made_of['frozen']}/bet")
    yield (
        "the same, in batches of 10,000",
        lambda i: ask(server, "POST", "frozen0/observations", lines(1 + i * count, numbers(count)), NDJSON),
    )
    yield "a table: 20,000 x 8 as reference, 5,000 rows", send_table
    yield "the same table, reset", lambda i: ask(server, "POST", "table0/reset")
    yield (
        "the same table, its columns and its export",
        lambda i: [ask(server, "GET", f"table0/{what}") for what in ("columns", "export")],
    )
    yield f"a table: {late_labels:,} rows, and then their labels", send_late_rows
    exact = fresh(0, "exact", {"measure": {"kind": "table", "bins": None}})
    ask(server, "PUT", f"{exact}/reference", exact_reference, NDJSON)
    ask(server, "POST", f"{exact}/observations", rows, NDJSON)
    row = table_rows(1, numbered=False)
    yield (
        "a table without bins, 5,000 rows, loaded after a kill by one row",
        lambda i: ask(server, "POST", f"{exact}/observations", row, NDJSON),
    )
    yield (
        "1,000 streams created with one request",
        lambda i: ask(server, "POST", "", b"\n".join(b'{"name": "bulk-%d-%d"}' % (i, k) for k in range(1000)), NDJSON),
    )


NEAR = {"measure": {"kind": "nearest-neighbour"}}


def beside() -> str:
    """Single posts to a quiet stream, alone and while other requests are as heavy as the limits allow."""
    rows, ratios = [], []
    with served() as server:
        put(server, "quiet")
        idle = _beside(server, lambda i: time.sleep(0.4))
        base = float(np.quantile(idle[0], 0.99))
        rows.append(_line("nothing", idle, base))
        for name, work in heavy_loads(server):
            if "loaded" in name:  # nothing is in memory after a restart, and after a kill, steps must be replayed
                server.end(signal.SIGKILL if "kill" in name else signal.SIGTERM)
                server.start()
                server.ready()
            measured = _beside(server, work)
            ratios.append(float(np.quantile(measured[0], 0.99)) / base)
            rows.append(_line(name, measured, base))
    columns = ["beside", "posts", "heavy requests", "median", "99 %", "99 %, relative to idle", "longest"]
    said = "Single observations posted to a quiet stream, while others send what is heaviest."
    reached = sum(ratio <= GOAL for ratio in ratios)
    goal = f"The goal is a 99 % quantile of at most {GOAL} times that without them: it was reached beside {reached} of"
    return f"\n{said} {goal} {len(ratios)} (worst ratio: {max(ratios):.1f}).\n\n" + table(columns, rows)


def _beside(server: Server, work: Callable[[int], object]) -> tuple[list[float], int]:
    """Repeat some work until there were enough posts, or for some seconds; return their times, and the repetitions."""
    quiet, repeated, end = Quiet(server.port), 0, time.monotonic() + 10.0
    quiet.start()
    try:
        while repeated == 0 or (len(quiet.spent) < POSTS and repeated < 25 and time.monotonic() < end):
            work(repeated)
            repeated += 1
    finally:
        quiet.stopped.set()
        quiet.join()
    return quiet.spent, repeated


def _line(name: str, measured: tuple[list[float], int], idle: float) -> list[str]:
    spent, repeated = measured
    median, p99 = np.quantile(spent, [0.5, 0.99])
    times = [f"{ms:.1f} ms" for ms in (median, p99)]
    return [name, f"{len(spent)}", f"{repeated}", *times, f"{p99 / idle:.1f}", f"{max(spent):.0f} ms"]


# ------------------------------------------------------------------ growth, and memory over an hour


def growth(server: Server, name: str, marks: list[int]) -> tuple[list[float], list[int]]:
    """Observations a second up to each length of a stream, and the memory of the server then."""
    rates, memories, sent = [], [], 0
    for mark in marks:
        spent, before = 0.0, sent
        while sent < mark:
            bodies = batches(min(100, (mark - sent) // BATCH), first=sent + 1, seed=sent)
            spent += timed(lambda bodies=bodies: send(server.port, name, bodies))  # type: ignore[misc]
            sent += len(bodies) * BATCH
        rates.append((sent - before) / spent)
        memories.append(server.resident())
    return rates, memories


def grown() -> str:
    """Rate and memory over an hour of a stream whose memory is constant, and of one that keeps every number."""
    parts = []
    for kind, made, end in (("frozen", CONSTANT, HOUR), ("value", {}, HOUR // 6)):
        marks = [end // (6 * BATCH) * BATCH * i for i in range(1, 7)]
        with served() as server:
            put(server, "growing", made)
            rates, memories = growth(server, "growing", marks)
            size = server.db.stat().st_size
        rows = [
            ["rate, first = 1", *(f"{rate / rates[0]:.2f}" for rate in rates)],
            ["memory of the server", *(f"{memory / MB:.0f} MB" for memory in memories)],
        ]
        shown = table([f"`{kind}`, after observations", *(f"{mark:,}" for mark in marks)], rows)
        parts.append(f"{shown}\nThe file is {size / MB:.0f} MB at the end.\n")
    said = (
        f"An hour's data at 1,000 a second, sent as fast as possible, in batches of {BATCH:,}; and a stream that keeps"
    )
    why = "all its numbers, because each is ranked among all. (Retention: the newest million.)"
    return f"\n{said} {why}\n\n" + "\n".join(parts)


# ------------------------------------------------------------------ many


def many() -> str:
    """A hundred thousand streams: to create in bulk, to list, to scrape, to feed in turn."""
    names = [f"stream-{i:06d}" for i in range(MANY)]
    with served("[limits]\nstreams = 200_000") as server, closing(Caller(server.port, timeout=600.0)) as caller:
        before, size = server.resident(), server.db.stat().st_size
        bodies = [
            "\n".join(json.dumps({"name": name}) for name in names[i : i + 10_000]) for i in range(0, MANY, 10_000)
        ]
        making = timed(lambda: [caller("POST", "/v1/streams", body.encode(), kind=NDJSON) for body in bodies])
        assert caller("GET", "/v1/streams?limit=1").body["total"] == MANY + 1  # and that of `served`
        disk = server.ask("GET", "/metrics").body
        rows = [
            ["create them, 10,000 a request", f"{making:.1f} s, {making / MANY * 1e6:.0f} us a stream"],
            ["disk", f"{(_metric(disk, 'exchangeable_database_bytes') - size) / MANY:.0f} bytes a stream"],
            ["memory", f"{(server.resident() - before) / MANY:.0f} bytes a stream, before it gets observations"],
        ]
        looks = {
            "list of 50, with spark lines": "/v1/streams?limit=50&spark=100",
            "the last 50 by name": f"/v1/streams?limit=50&order=name&offset={MANY - 50}",
            "fleet": "/v1/fleet",
            "metrics (of 2,000)": "/metrics",
        }
        for look, path in looks.items():
            rows.append([look, f"{1e3 * best(lambda path=path: caller('GET', path)):.0f} ms"])  # type: ignore[misc]
        active = names[:ACTIVE]
        rows.append(
            [f"feed {ACTIVE:,} of them in turn, one observation each", f"{_feed(server, active, 1):.0f} a second"]
        )
        rows.append(["the same again: more than fit into memory", f"{_feed(server, active, 2):.0f} a second"])
        _feed(server, active[: ACTIVE // 10], 3)
        fits = _feed(server, active[: ACTIVE // 10], 4)
        rows.append(["a tenth of these, which are in memory", f"{fits:.0f} a second"])
        scraped = server.ask("GET", "/metrics").body
        live, held = (_metric(scraped, f"exchangeable_live_{what}") for what in ("streams", "bytes"))
        rows.append(
            ["in memory then", f"{live:.0f} streams, {held / MB:.0f} MB; the server {server.resident() / MB:.0f} MB"]
        )
    return f"\n{MANY:,} streams (`value`, `adaptive`):\n\n" + table(["", ""], rows)


def _metric(text: bytes, name: str) -> float:
    return next(float(line.split()[1]) for line in text.decode().splitlines() if line.startswith(f"{name} "))


def _feed(server: Server, names: list[str], seq: int) -> float:
    """Send one observation to each stream, by four clients; return the observations a second."""

    def feed(part: list[str]) -> None:
        with closing(Caller(server.port)) as caller:
            for name in part:
                reply = caller("POST", f"/v1/streams/{name}/observations", lines(seq, numbers(1, seq)), kind=NDJSON)
                assert reply.status == 200, reply

    with ThreadPoolExecutor(4) as pool:
        return len(names) / timed(lambda: list(pool.map(feed, (names[i::4] for i in range(4)))))


class Listener(threading.Thread):
    """Reads events of a stream until the last step has come."""

    def __init__(self, port: int, last: int) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(60.0)
        self.socket.sendall(b"GET /v1/streams/watched/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.last = b'"last":%d' % last
        self.complete = False
        self.events = 0
        self.socket.recv(10)

    def run(self) -> None:
        held = b""
        while not self.complete:
            data = self.socket.recv(1 << 16)
            if not data:
                break
            held = held[-40:] + data
            self.events += data.count(b"event: ")
            self.complete = self.last in held
        self.socket.close()


def watched() -> str:
    """Many readers of one stream."""
    rows = []
    with served() as server:
        for readers in (0, READERS):
            put(server, "watched")
            bodies = batches(BATCHES)
            listeners = [Listener(server.port, BATCHES * BATCH) for _ in range(readers)]
            for listener in listeners:
                listener.start()
            spent = timed(lambda bodies=bodies: send(server.port, "watched", bodies))  # type: ignore[misc]
            late = timed(lambda listeners=listeners: [listener.join(60.0) for listener in listeners])  # type: ignore[misc]
            complete = sum(listener.complete for listener in listeners)
            memory = server.resident()
            rows.append(
                [
                    f"{readers}",
                    f"{BATCHES * BATCH / spent:,.0f}",
                    f"{complete} of {readers}",
                    f"{late:.2f} s",
                    f"{memory / MB:.0f} MB",
                ]
            )
            assert server.ask("DELETE", "/v1/streams/watched").status == 204
    columns = ["readers of events", "observations a second", "received the last step", "after the last reply", "memory"]
    return f"\nReaders of one stream's events while {BATCHES * BATCH:,} observations come:\n\n" + table(columns, rows)


# ------------------------------------------------------------------ ten million


def made(path: Path, given: Configuration, count: int) -> Engine:
    """A database with one stream, without HTTP but through the engine, in batches of ten thousand."""
    engine = Engine(Store(path), Settings(), lambda *news: None)
    engine.start()
    engine.create("long", given).result()
    for start in range(0, count, 10_000):
        seq = np.arange(start + 1, start + 10_001)
        engine.observe("long", Batch(seq, numbers(10_000, start)[:, None], Extras())).result()
    engine.observe("long", Batch(np.array([count + 1]), np.zeros((1, 1)), Extras())).result()
    return engine


def long() -> str:
    rows = []
    for count in (max(LONG // 100, 10_000), LONG):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "bench.db")
            _killed(made, path, parse_configuration(CONSTANT), count)
            server = Server(path)
            start = time.perf_counter()
            with server:
                ready = time.perf_counter() - start
                send(server.port, "long", [lines(count + 2, numbers(BATCH))])
                first = time.perf_counter() - start
                opened = best(lambda: server.ask("GET", "/v1/streams/long/history?max_points=1000"))  # noqa: B023
                zoomed = best(
                    lambda: server.ask("GET", f"/v1/streams/long/history?from={count // 2}&max_points=1000")  # noqa: B023
                )
                server.end(signal.SIGKILL)
            rows.append(
                [
                    f"{count:,}",
                    f"{ready:.1f} s",
                    f"{first:.1f} s",
                    f"{1e3 * opened:.0f} ms",
                    f"{1e3 * zoomed:.0f} ms",
                    f"{path.stat().st_size / MB:.0f} MB",
                ]
            )
    columns = [
        "observations",
        "ready",
        "first batch acknowledged",
        "history opens",
        "history of the second half",
        "file",
    ]
    return (
        "\nA stream of constant memory (`frozen`, `adaptive`) after a kill: from the start of the process until it is"
        " ready, and until it has acknowledged the next batch (the snapshot is read and the rest replayed).\n\n"
        + table(columns, rows)
    )


def _killed(work: Callable[..., object], *arguments: Any) -> None:
    """Do something in a process of its own, which is killed when it is done."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(sender, work, *arguments))
    process.start()
    sender.close()
    receiver.recv()
    process.kill()
    process.join()


def _told(sender: Any, work: Callable[..., object], *arguments: Any) -> None:
    held = work(*arguments)
    sender.send(held is not None)
    signal.pause()


PARTS = (load, single, beside, grown, many, watched, long, faults)


def main() -> None:
    from bench_storage import copies, flips  # which uses this module

    document = heading("The server", "make service", ("numpy", "uvicorn", "fastapi"))
    document += "\nClients and server share the cores. Ratios compare measurements of the same run.\n\n"
    if SMALL > 1:
        document += f"**A trial: all sizes are divided by up to {SMALL}, so the figures say little.**\n\n"
    for part in (*PARTS, flips, copies):
        started = time.perf_counter()
        text = part()
        print(f"{text}\n({part.__name__}: {time.perf_counter() - started:.0f} s)", flush=True)
        document += text
    Path(__file__).with_name("SERVICE.md").write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
