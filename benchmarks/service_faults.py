"""Faults of the server: kills at random moments and I/O errors, and whether anything was lost or changed."""

from __future__ import annotations

import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from exchangeable.martingale import LN10
from exchangeable.service.engine import Engine
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_config import parse_configuration
from servers import FAILURES, NDJSON, Caller, Server, lines
from workloads import Floats, table

SMALL = 10 if "--small" in sys.argv else 1
KILLS = 40 // SMALL
ERRORS = 400 // SMALL  # requests, a third of them while writes fail
KINDS: dict[str, dict[str, Any]] = {
    "value": {"seed": 0},
    "frozen": {"measure": {"kind": "frozen", "reference": np.linspace(-3, 3, 500).tolist(), "bins": 64}, "seed": 1},
    "distance": {"measure": {"kind": "nearest-distance", "cap": 50_000}, "seed": 2},
}


def values(count: int) -> Floats:
    return np.random.default_rng(5).normal(size=count)


def expected(kind: str, n: int) -> tuple[Any, ...]:
    """The state after n observations, computed with the library."""
    monitor: Any = parse_configuration(KINDS[kind]).monitor()
    monitor.extend(values(n) if kind != "distance" else values(n)[:, None])
    return n, monitor.last.p, monitor.last.log_value / LN10, monitor.alarm_at


def state_of(reply: dict[str, Any]) -> tuple[Any, ...]:
    state = reply["state"]
    return state["n"], state["p"], state["log10_martingale"], state["alarm_at"]


# ------------------------------------------------------------------ kills


class Feeder(threading.Thread):
    """Sends a stream in batches of random sizes, and continues after every failure where the server is."""

    def __init__(self, port: int, kind: str) -> None:
        super().__init__()
        self.port, self.kind, self.acknowledged = port, kind, 0
        self.stopped = threading.Event()
        self.lost = 0  # observations that were acknowledged and are gone

    def run(self) -> None:
        rng = random.Random(self.kind)
        while not self.stopped.is_set():
            with suppress(*FAILURES), closing(Caller(self.port)) as caller:
                taken = caller("GET", f"/v1/streams/{self.kind}").body["next_seq"] - 1
                self.lost += max(self.acknowledged - taken, 0)
                while not self.stopped.is_set():
                    size = rng.randint(1, 200)
                    body = lines(taken + 1, values(taken + size)[taken:])
                    assert caller("POST", f"/v1/streams/{self.kind}/observations", body, kind=NDJSON).status == 200
                    taken = self.acknowledged = taken + size
            time.sleep(0.02)


def kills() -> str:
    """Kill the server at random moments under load; after each restart every stream must be as the library has it."""
    rng, wrong, spans = random.Random(1), 0, []
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder, "kills.db"), "snapshot_every = 1000") as server:
        for kind, made in KINDS.items():
            assert server.ask("PUT", f"/v1/streams/{kind}", made).status == 201
        feeders = [Feeder(server.port, kind) for kind in KINDS]
        for feeder in feeders:
            feeder.start()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.05, 1.0))
            server.end(signal.SIGKILL)
            started = time.perf_counter()
            server.start()
            server.ready()
            spans.append(time.perf_counter() - started)
        for feeder in feeders:
            feeder.stopped.set()
            feeder.join()
        for feeder in feeders:
            reply = server.ask("GET", f"/v1/streams/{feeder.kind}").body
            wrong += state_of(reply) != expected(feeder.kind, reply["next_seq"] - 1)
        lost, taken = sum(feeder.lost for feeder in feeders), sum(feeder.acknowledged for feeder in feeders)
    columns = [
        "kills",
        "observations acknowledged",
        "of these lost",
        "streams that differ from the library",
        "ready again",
    ]
    return "\nKilled (SIGKILL) at random moments while three streams are fed:\n\n" + table(
        columns,
        [
            [
                f"{KILLS}",
                f"{taken:,}",
                f"{lost}",
                f"{wrong} of {len(KINDS)}",
                f"{np.median(spans):.1f} s, at most {max(spans):.1f} s",
            ]
        ],
    )


# ------------------------------------------------------------------ I/O errors


@contextmanager
def failing(size: int) -> Iterator[None]:
    """Let the operating system refuse to write beyond some size of a file: a real error of the write call."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def io_errors() -> str:
    """Let writes fail at random; nothing may be half accepted, and all streams must be as the library has them."""
    rng, outcomes, wrong = random.Random(2), Counter[str](), 0
    taken = dict.fromkeys(KINDS, 0)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as folder, closing(Store(Path(folder, "errors.db"))) as store:
        engine = Engine(store, Settings(snapshot_every=500), lambda events, alerted: None)
        engine.start()
        for kind, made in KINDS.items():
            engine.create(kind, parse_configuration(made)).result()
        for _ in range(ERRORS):
            kind = rng.choice(list(KINDS))
            size = rng.randint(1, 3000 if kind == "value" else 300)
            if rng.random() < 1 / 3:
                with failing(rng.choice([4096, 100_000, 400_000])):
                    future = observe(engine, kind, taken[kind], size)
                    outcome = result(future)
            else:
                outcome = result(observe(engine, kind, taken[kind], size))
            taken[kind] += size * (outcome == "accepted")
            outcomes[outcome] += 1
        for kind, n in taken.items():
            reply = engine.observe(kind, batch(n - 1, 1)).result()  # a repetition, which changes nothing
            wrong += state_of(reply) != expected(kind, n)
        engine.stop()
    rows = [[outcome, f"{count}"] for outcome, count in sorted(outcomes.items())]
    said = f"Streams that differ from the library in the end: {wrong} of {len(KINDS)}."
    return (
        f"\n{ERRORS} batches, a third of them while the system refuses to write (`RLIMIT_FSIZE`). {said}\n\n"
        + table(["outcome", "batches"], rows)
    )


def batch(taken: int, size: int) -> Batch:
    return Batch(np.arange(taken + 1, taken + size + 1), values(taken + size)[taken:, None], Extras())


def observe(engine: Engine, kind: str, taken: int, size: int) -> Future[dict[str, Any]]:
    return engine.observe(kind, batch(taken, size))


def result(future: Future[dict[str, Any]]) -> str:
    """Accepted, or the code of the problem."""
    try:
        future.result(60)
    except Problem as problem:
        return f"{problem.status} `{problem.code}`"
    return "accepted"


def faults() -> str:
    return kills() + io_errors()
