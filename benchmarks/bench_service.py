"""The server: its load against bare SQLite inserts of the same rows, how it grows, restarts and opens a history."""

from __future__ import annotations

import multiprocessing
import signal
import socket
import sqlite3
import tempfile
import threading
import time
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
from workloads import Floats, best, table

BATCH = 1_000
STREAMS, BATCHES = 4, 50  # of the load: 200,000 observations
HOUR = 3_600_000  # observations: a thousand a second for an hour
LONG = 10_000_000
MANY = 1_000  # streams
READERS = 200
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
        parts.append(f"{shown}\nThe file has {size / MB:.0f} MB at the end.\n")
    said = (
        f"\nAn hour at a thousand a second, as quickly as it goes, in batches of {BATCH:,}; and a stream that keeps all"
    )
    return f"{said} its numbers, because each is ranked among all. (Retention: the newest million.)\n\n" + "\n".join(
        parts
    )


# ------------------------------------------------------------------ many


def many() -> str:
    """A thousand streams: to make, to fill in turn, to look at."""
    names = [f"stream-{i:04d}" for i in range(MANY)]
    with served() as server, closing(Caller(server.port)) as caller:
        before = server.resident()
        making = timed(lambda: [caller("PUT", f"/v1/streams/{name}", {}) for name in names])
        body = lines(1, numbers(100))

        def fill(part: list[str]) -> None:
            for name in part:
                send(server.port, name, [body])

        def all_parts() -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(fill, (names[i::4] for i in range(4))))

        filling = timed(all_parts)
        resident = server.resident() - before
        looks = {
            "list of 50, with spark lines": "/v1/streams?limit=50&spark=100",
            "fleet": "/v1/fleet",
            "metrics": "/metrics",
        }
        rows = [
            ["make them all", f"{making / MANY * 1e3:.1f} ms a stream"],
            ["100 observations to each", f"{filling / MANY * 1e3:.1f} ms a stream"],
            ["memory", f"{resident / MANY / 1e3:.0f} kB a stream"],
        ]
        for look, path in looks.items():
            rows.append([look, f"{1e3 * best(lambda path=path: caller('GET', path)):.0f} ms"])  # type: ignore[misc]
    return f"\n{MANY:,} streams (`value`, `adaptive`):\n\n" + table(["", ""], rows)


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
    """Two hundred readers of one stream."""
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
    columns = ["readers of events", "observations a second", "told of the last step", "after the last reply", "memory"]
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
    for count in (LONG // 100, LONG):
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
    columns = ["observations", "ready", "first batch acknowledged", "history opens", "its second half", "file"]
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


def main() -> str:
    return "## The server\n\n" + "".join(part() for part in (load, grown, many, watched, long))


if __name__ == "__main__":
    print(main())
