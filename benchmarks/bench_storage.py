"""Damage, backups and recovery of the server: flipped bits, a backup beside a loaded server, a takeover."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bench_service import CONSTANT, MB, batches, numbers, put, send
from exchangeable.service import history
from exchangeable.service.problems import Problem
from exchangeable.service.routes.replies import read_stream
from exchangeable.service.store import Store, StoreError
from exchangeable.service.stream_summary import describe_stream
from exchangeable.service.verify import verify
from servers import NDJSON, Caller, Server, lines
from workloads import table

FLIPS = 200
STREAMS, STEPS = 4, 100_000  # of the database that is backed up
PACE = 0.01  # seconds between two posts while it is


def command(*words: str | Path) -> float:
    """Seconds that a command takes in a process of its own."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "exchangeable", *map(str, words)], check=True, capture_output=True)
    return time.perf_counter() - start


# ------------------------------------------------------------------ flipped bits


def answer(path: Path) -> Any:
    """The description and the history of each stream; None where it is refused."""
    try:
        opened = Store(path)
    except StoreError:
        return None
    found: list[Any] = []
    with closing(opened):
        for name in ("a", "b"):
            try:
                with opened.read() as connection:
                    stream, _, _ = read_stream(connection, name)
                    points = history.read(connection, stream, 1, 10**9, 10_000)
                    found.append((describe_stream(connection, name), points.log10.tobytes(), points.p.tobytes()))
            except (Problem, sqlite3.Error) as error:
                found.append("not found" if getattr(error, "status", 0) == 404 else None)
    return found


def flips() -> str:
    """Flip single random bits of a file: how many change an answer, and are they refused and found?"""
    rng, counts = random.Random(0), {"the same answers": 0, "refused": 0, "changed silently": 0, "missed by verify": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bench.db")
        with Server(path) as server:
            for name in ("a", "b"):
                put(server, name, CONSTANT)
                send(server.port, name, batches(8))
            server.end()
        data, right = path.read_bytes(), answer(path)
        for _ in range(FLIPS):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(changed)
            now = answer(path)
            same = now is None or all(one in (None, two) for one, two in zip(now, right, strict=True))
            kind = "the same answers" if now == right else "refused" if same else "changed silently"
            counts[kind] += 1
            counts["missed by verify"] += now != right and not _found(path)
    columns = ["bits flipped, one at a time", *counts]
    return "\nCompared: stream descriptions and complete histories.\n\n" + table(
        columns, [[f"{FLIPS}", *map(str, counts.values())]]
    )


def _found(path: Path) -> bool:
    try:
        return bool(verify(path).damage)
    except StoreError:
        return True


# ------------------------------------------------------------------ backup and recovery


def rest(*_: Path) -> float:
    """Two seconds without any other work."""
    time.sleep(2.0)
    return 2.0


WORKS: dict[str, Callable[[Path, Path], float]] = {
    "nothing": rest,
    "a backup": lambda path, copy: command("backup", path, copy),
    "a second backup": lambda path, copy: command("backup", path, copy),
    "verify": lambda path, copy: command("verify", path),
}


def posting(port: int, stop: threading.Event, spent: list[float]) -> None:
    """Post batches of 100 to a stream at a steady pace, and record how long each takes."""
    with closing(Caller(port)) as caller:
        while not stop.wait(PACE):
            body = lines(100 * len(spent) + 1, numbers(100))
            start = time.perf_counter()
            assert caller("POST", "/v1/streams/busy/observations", body, kind=NDJSON).status == 200
            spent.append(time.perf_counter() - start)


def copies() -> str:
    """A backup beside a loaded server, a second one, and a takeover by another server."""
    with tempfile.TemporaryDirectory() as folder:
        path, copy, other = (Path(folder, name) for name in ("bench.db", "copy.db", "other.db"))
        with Server(path) as server:
            put(server, "busy", CONSTANT)
            for stream in range(STREAMS):
                put(server, f"s{stream}", CONSTANT)
                send(server.port, f"s{stream}", batches(STEPS // 1000))
            times: dict[str, tuple[float, list[float]]] = {}
            total: list[float] = []
            for what in WORKS:
                stop, before = threading.Event(), len(total)
                thread = threading.Thread(target=posting, args=(server.port, stop, total))
                thread.start()
                seconds = WORKS[what](path, copy)
                stop.set()
                thread.join()
                times[what] = seconds, total[before:]
            size = path.stat().st_size
        start = time.perf_counter()
        command("restore", copy, other)
        restored = time.perf_counter() - start
        with Server(other) as server:
            send(server.port, "s0", [lines(STEPS + 1, numbers(1000))])
            recovered = time.perf_counter() - start
    rows = [
        [what, f"{seconds:.1f} s", *(f"{1e3 * ms:.1f} ms" for ms in np.quantile(spent, [0.5, 0.99]))]
        for what, (seconds, spent) in times.items()
    ]
    load = table(["beside", "takes", "median of a post", "99 %"], rows)
    recovery = table(
        ["`exchangeable restore`", "from its start until the first batch is acknowledged"],
        [[f"{restored:.1f} s", f"{recovered:.1f} s"]],
    )
    title = f"A database of {size / MB:.0f} MB while 100 observations are posted every {1e3 * PACE:.0f} ms"
    return f"\n{title}:\n\n{load}\nA standby takes over from the backup:\n\n{recovery}"
