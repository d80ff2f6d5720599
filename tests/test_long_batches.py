"""Batches that take long: other streams do not wait for them, and their own stream keeps its order."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exchangeable import Monitor, alarms, bets, measures, snapshot
from exchangeable.client import Client, ClientError
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats
from exchangeable.service import costs, stream, stream_cache
from exchangeable.service.engine import Engine
from exchangeable.service.lookahead import TakingTurns
from exchangeable.service.parsing import Batch, Extras, LateLabel
from exchangeable.service.problems import Problem
from exchangeable.service.routes import operations
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import Store
from exchangeable.service.stream import Slices
from exchangeable.service.stream_config import parse_configuration
from servers import NDJSON, Caller, Reply, Server, lines
from serving import NDJSON as NDJSON_TYPE
from serving import Served, numbered, served

ROWS = np.random.default_rng(1).normal(size=(6000, 16)).round(2)
LABELS = [f"class {i % 3}" for i in range(6000)]
NEAR: dict[str, Any] = {"measure": {"kind": "nearest-neighbour"}, "seed": 0}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "streams.db") as running:
        yield running


class Sending(threading.Thread):
    """One request in a thread."""

    def __init__(self, server: Server, name: str, body: bytes) -> None:
        super().__init__()
        self.server, self.name_, self.body = server, name, body
        self.reply: Reply | None = None
        self.start()

    def run(self) -> None:
        self.reply = self.server.ask("POST", f"/v1/streams/{self.name_}/observations", self.body, kind=NDJSON)


def near_state(x: Floats, y: list[Any]) -> tuple[float, float]:
    monitor = Monitor(measures.NearestNeighbour(), bets.Adaptive(), alarms.Ville(0.01), seed=0)
    monitor.extend(x, y)
    assert monitor.last is not None
    return monitor.last.p, monitor.last.log_value / LN10


def test_a_quiet_stream_is_served_while_a_long_batch_is_computed(server: Server) -> None:
    assert server.ask("PUT", "/v1/streams/near", NEAR).status == 201
    assert server.ask("PUT", "/v1/streams/quiet", {}).status == 201
    long = Sending(server, "near", lines(1, ROWS, y=LABELS))
    answered = 0
    with closing(Caller(server.port)) as caller:
        while long.is_alive():
            reply = caller(
                "POST", "/v1/streams/quiet/observations", lines(answered + 1, ROWS[answered % 6000, :1]), kind=NDJSON
            )
            assert reply.status == 200
            answered += long.is_alive()
    long.join()
    assert long.reply is not None
    state = long.reply.body["state"]
    assert (state["p"], state["log10_martingale"]) == near_state(ROWS, LABELS)
    assert answered >= 3  # at most one before the batch has arrived, and one as it ends, if the batch held the server


def test_requests_behind_a_long_batch_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch of some rows counts as long here, and its computation waits for the others to arrive."""
    monkeypatch.setattr(costs, "HEAVY", 50_000)
    with served(tmp_path / "streams.db") as server:
        engine = server.app.state.engine
        arrived = threading.Event()
        server.create("near", **NEAR)
        server.create("quiet")
        stream = engine.write(lambda connection: engine.streams.get(connection, "near")).result()
        extend = stream.extend
        monkeypatch.setattr(stream, "extend", lambda *values: arrived.wait(30) and extend(*values))
        first = [engine.observe("near", _batch(*part)) for part in ((1, 40), (41, 1), (42, 60))]
        futures = [*first, engine.export("near"), engine.observe("near", _batch(102, 5))]
        gap = engine.observe("near", _batch(200, 5))
        reset = engine.reset("near")
        after = engine.observe("near", _batch(107, 10))
        assert server.take("quiet", numbered([1.0, 2.0]))["accepted"] == 2
        assert not any(future.done() for future in [*futures, gap, reset, after])
        arrived.set()
        assert [futures[i].result(60)["next_seq"] for i in (0, 1, 2, 4)] == [41, 42, 102, 107]
        state = futures[4].result()["state"]
        assert (state["p"], state["log10_martingale"]) == near_state(ROWS[:106], LABELS[:106])
        assert gap.exception(60).code == "gap"
        assert reset.result(60)["since"] == 106
        assert after.result(60)["state"]["n"] == 116
        assert engine.queued_requests == engine.queued_rows == 0


def _batch(first: int, size: int, *, labelled: bool = True) -> Batch:
    rows = slice(first - 1, first - 1 + size)
    extras = Extras(y=list(LABELS[rows])) if labelled else Extras(id=[f"i{i}" for i in range(first, first + size)])
    return Batch(np.arange(first, first + size), ROWS[rows], extras)


def test_a_failed_commit_computes_the_batch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "HEAVY", 0)
    with served(tmp_path / "streams.db") as server:
        engine = server.app.state.engine
        server.create("near", **NEAR)
        started = threading.Event()
        stream = engine.write(lambda connection: engine.streams.get(connection, "near")).result()
        extend = stream.extend
        monkeypatch.setattr(stream, "extend", lambda *values: started.wait(30) and extend(*values))
        future = engine.observe("near", _batch(1, 50))

        def fail(connection: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        assert engine.write(fail).exception(60) is not None  # all streams are forgotten
        started.set()
        state = future.result(60)["state"]
        assert (state["p"], state["log10_martingale"]) == near_state(ROWS[:50], LABELS[:50])


TABLE: dict[str, Any] = {"measure": {"kind": "table"}, "seed": 0}
LATE: dict[str, Any] = {"measure": {"kind": "table", "label": "b"}, "labels": {}, "seed": 0}
CELLS = [{"a": a, "b": b} for a, b in ROWS[:60, :2].tolist()]


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, threading.Event]]:
    """A server whose threads for heavy requests wait until the gate is opened; every other request counts as heavy."""
    gate = threading.Event()
    turn = TakingTurns._turn
    with served(tmp_path / "streams.db") as server:
        server.create("quiet")
        server.create("near", **NEAR)
        server.take("near", numbered(ROWS[:50].tolist(), id=[f"i{i}" for i in range(50)]))
        reference = "\n".join(map(json.dumps, CELLS))
        for name, made in (("table", TABLE), ("late", LATE)):
            server.create(name, **made)
            reply = server.ask("PUT", f"/v1/streams/{name}/reference", content=reference, headers=NDJSON_TYPE)
            assert reply.status_code == 201
        server.take("table", [{"seq": i, "row": row} for i, row in enumerate(CELLS, 1)])
        server.take("late", [{"id": f"i{i}", "row": {"a": row["a"]}} for i, row in enumerate(CELLS)])
        monkeypatch.setattr(costs, "HEAVY", 20_000)
        monkeypatch.setattr(stream, "SLICE", 1)  # a row at a time
        monkeypatch.setattr(TakingTurns, "_turn", lambda *values: gate.wait(60) and turn(*values))
        yield server, gate
        gate.set()


FROZEN: dict[str, Any] = {"measure": {"kind": "frozen", "reference": ROWS[:, 0].tolist(), "bins": 64}}
HEAVY_REQUESTS: dict[str, Callable[[Engine], Future[Any]]] = {
    "batch": lambda engine: engine.observe("table", _rows_of_table(61, 20)),
    "waiting": lambda engine: engine.observe("near", _batch(51, 20, labelled=False)),
    "release": lambda engine: engine.label("near", [LateLabel("i0", LABELS[0])]),
    "labels": lambda engine: engine.label("late", [LateLabel(f"i{i}", CELLS[i]["b"]) for i in range(60)]),
    "create": lambda engine: engine.create("frozen", parse_configuration(FROZEN)),
    "reset": lambda engine: engine.reset("table"),
    "export": lambda engine: engine.export("near"),
    "columns": lambda engine: engine.columns("table"),
    "bet": lambda engine: engine.bet("near"),
}
LOADED: dict[str, Callable[[Engine], Future[Any]]] = {"schema": lambda engine: engine.schema("table")}  # from disk


CASES = [(name, cold) for name in HEAVY_REQUESTS for cold in (False, True)] + [(name, True) for name in LOADED]


@pytest.mark.parametrize(("name", "cold"), CASES)
def test_a_quiet_stream_does_not_wait_for_a_heavy_request(
    gated: tuple[Served, threading.Event], name: str, cold: bool
) -> None:
    server, gate = gated
    engine = server.app.state.engine
    if cold:
        engine.write(lambda connection: [engine.streams.drop(one) for one in ("near", "table", "late")]).result()
    heavy = {**HEAVY_REQUESTS, **LOADED}[name](engine)
    assert server.take("quiet", numbered([1.0]))["accepted"] == 1
    assert not heavy.done()
    gate.set()
    heavy.result(60)
    assert engine.queued_requests == engine.queued_rows == 0


def _rows_of_table(first: int, size: int) -> Batch:
    return Batch(np.arange(first, first + size), np.empty((size, 0)), Extras(row=CELLS[:size]))


def test_heavy_requests_take_turns() -> None:
    """The first work ends only after the second one has: with one thread, it must let it pass."""
    turns, ended, results = TakingTurns(), threading.Event(), [Future[str](), Future[str]()]

    def first() -> Slices[str]:
        while not ended.is_set():
            yield
        return "first"

    def second() -> Slices[str]:
        yield
        ended.set()
        return "second"

    for _ in range(8):  # as many threads as there may be
        turns.start(first(), Future(), lambda: None)
    for work, result in zip((first(), second()), results, strict=True):
        turns.start(work, result, lambda: None)
    assert [result.result(60) for result in results] == ["first", "second"]
    turns.close()


@pytest.mark.parametrize("seed", range(3))
def test_heavy_and_light_requests_have_the_same_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same requests in this thread, and aside in slices of one row: all replies and exports are equal."""
    outcomes = []
    for heavy in (2**62, 0):
        monkeypatch.setattr(costs, "HEAVY", heavy)
        monkeypatch.setattr(stream, "SLICE", 1 if heavy == 0 else 2**62)
        monkeypatch.setattr(stream_cache, "EVICTED_STEPS", 3)
        settings = Settings(snapshot_every=40, live_bytes=1 if heavy == 0 else 2**40)
        store = Store(tmp_path / f"{heavy}.db")
        engine = Engine(store, settings, lambda events, alerted: None)
        engine.start()
        outcomes.append([_plain(future) for future in _requests(engine, np.random.default_rng(seed))])
        engine.stop()  # streams may still have been on their way out of memory
        assert engine.queued_requests == engine.queued_rows == 0
        store.close()
    assert outcomes[0] == outcomes[1]
    assert sum(isinstance(outcome, str) for outcome in outcomes[0]) >= 2  # problems
    assert sum(not isinstance(outcome, str) for outcome in outcomes[0]) > 50


def _requests(engine: Engine, rng: np.random.Generator) -> Iterator[Future[Any]]:
    """Make random requests for three streams, some of them invalid, in bursts."""
    engine.clock = lambda: 0.0
    labels: dict[str, Any] = {"measure": {"kind": "nearest-neighbour", "cap": 400}, "labels": {"wait": 30, "most": 40}}
    for name in ("near", "other"):
        yield engine.create(name, parse_configuration({**labels, "seed": 1}))
    yield engine.create("value", parse_configuration({"seed": 2, "on_alarm": "restart"}))
    sent = {"near": 0, "other": 0}
    asked: list[Future[Any]] = []
    for turn in range(70):
        name = str(rng.choice(["near", "other"]))
        first, size, dice = sent[name] + 1, int(rng.integers(1, 12)), rng.random()
        if dice < 0.6:
            again = int(rng.integers(0, 3)) if first > 3 else 0
            rows = np.arange(first - again, first + size)
            known: list[Any] = [LABELS[i] if i % 4 == 0 else None for i in rows.tolist()]
            extras = Extras(known, [f"i{i}" for i in rows.tolist()], [float(i) for i in rows.tolist()])
            asked.append(engine.observe(name, Batch(rows, ROWS[rows], extras)))
            if not isinstance(_plain(asked[-1]), str):
                sent[name] += size
        elif dice < 0.9 and first > 1:
            numbers = [int(i) for i in rng.integers(max(1, first - 25), first, size)]
            never = rng.random() < 0.1
            late = [
                LateLabel(f"i{i}", None, None, never=True)
                if never
                else LateLabel(f"i{i}", LABELS[i], float(i + rng.integers(0, 40)))
                for i in dict.fromkeys(numbers)
                if i % 4
            ]
            asked.append(engine.label(name, late or [LateLabel("unknown", "a", 1.0)]))
        else:
            asked.append(engine.reset(name) if dice > 0.98 else engine.export(name))
        rows = np.arange(turn * 5, turn * 5 + 5)
        asked.append(engine.observe("value", Batch(rows + 1, ROWS[rows, :1], Extras())))
        yield from asked[-2:]
    for name in ("near", "other", "value"):
        yield engine.export(name)
    yield engine.label("near", [LateLabel("unknown", "a", 1.0)])
    yield engine.observe("value", Batch(np.array([10_000]), ROWS[:1, :1], Extras()))


def _plain(future: Future[Any]) -> Any:
    """Return the reply without times, or the message of the problem."""
    try:
        reply = future.result(60)
    except Problem as problem:
        return str(problem)
    if isinstance(reply, bytes):  # where a measure has centred its pool may depend on the parts, but no result
        monitor: Any = snapshot.decode(reply)
        return monitor.n, monitor.last, monitor.log_max, monitor.alarm_at, monitor.changepoint
    described = reply[1] if isinstance(reply, tuple) else reply
    return {key: value for key, value in described.items() if key not in ("created", "observed_at")}


def test_memory_is_bounded_in_bytes_and_large_states_are_encoded_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "HEAVY", 1_000_000)  # an export is heavy, and so is a snapshot
    names, x = [f"s{i}" for i in range(20)], ROWS[:300, 0]
    settings = Settings(live_bytes=1_000_000)
    parked: list[int] = []
    with served(tmp_path / "streams.db", settings) as server:
        engine = server.app.state.engine
        finish = engine._finish_parking

        def counted(*values: Any) -> None:
            parked.append(1)
            finish(*values)

        monkeypatch.setattr(engine, "_finish_parking", counted)
        for name in names:
            server.create(name, seed=0)
        for part in (slice(0, 299), slice(299, 300)):
            for name in names:
                server.take(name, numbered(x[part].tolist(), part.start + 1))
        engine.write(lambda connection: None).result()
        assert engine.streams.bytes <= 1_000_000
        assert 4 <= len(engine.streams) < 12
        assert len({json.dumps(server.show(name)["state"]) for name in names}) == 1
        metrics = server.ask("GET", "/metrics").text
    assert len(parked) >= 10
    assert f"exchangeable_live_streams {len(engine.streams)}.0" in metrics
    monitor: Any = parse_configuration({"seed": 0}).monitor()
    monitor.extend(x)
    with served(tmp_path / "streams.db") as server:
        assert server.show("s7")["state"]["p"] == monitor.last.p
        assert server.take("s7", numbered([0.5], 301))["accepted"] == 1


def test_a_long_transaction_makes_the_server_unready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path / "streams.db") as server:
        engine, begun, gate = server.app.state.engine, threading.Event(), threading.Event()
        assert server.ask("GET", "/readyz").status_code == 200

        def block(connection: sqlite3.Connection) -> None:
            begun.set()
            gate.wait(60)

        stuck = engine.write(block)
        assert begun.wait(60)
        assert server.ask("GET", "/readyz").status_code == 200  # not yet long
        monkeypatch.setattr(operations, "PATIENCE", 0.0)
        reply = server.ask("GET", "/readyz")
        assert (reply.status_code, reply.json()["error"]) == (503, "not-ready")
        assert server.ask("GET", "/healthz").status_code == 200
        assert "exchangeable_writer_busy_seconds 0.0\n" not in server.ask("GET", "/metrics").text
        gate.set()
        stuck.result(60)
        while engine.busy_seconds:
            pass
        assert server.ask("GET", "/readyz").status_code == 200
        engine.failing = Problem(503, "storage", "as after a failed commit")
        gate.clear()
        stuck = engine.write(block)
        monkeypatch.setattr(engine.__class__, "busy_seconds", 0.0)
        assert server.ask("GET", "/readyz").status_code == 503  # the probe does not finish
        gate.set()
        stuck.result(60)


def test_a_server_that_stops_finishes_its_long_batch(server: Server) -> None:
    assert server.ask("PUT", "/v1/streams/near", NEAR).status == 201
    long = Sending(server, "near", lines(1, ROWS[:2000], y=LABELS[:2000]))
    while server.ask("GET", "/metrics").body.count(b"exchangeable_queue_requests 0"):
        assert long.is_alive() or long.reply is not None
        if not long.is_alive():
            break
    assert server.end() == 0
    long.join()
    assert long.reply is not None
    assert long.reply.body["accepted"] == 2000


def test_an_empty_stream_takes_little_space_and_survives_a_kill(tmp_path: Path) -> None:
    with served(tmp_path / "streams.db") as server:
        for i in range(100):
            server.create(f"s{i}")
        state = server.take("s0", numbered(np.arange(300) / 7))["state"]
    assert (tmp_path / "streams.db").stat().st_size < 100 * 4096 + 400_000
    with served(tmp_path / "streams.db") as server:
        assert server.show("s0")["state"] == state
        assert server.take("s1", numbered([0.5]))["accepted"] == 1


def test_streams_are_created_in_bulk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(limits=Limits(streams=130))
    with served(tmp_path / "streams.db", settings) as server, Client(server.url) as client:
        names = [f"s{i:03d}" for i in range(120)]
        wanted: dict[str, Any] = {name: {"seed": i} if i % 2 else None for i, name in enumerate(names)}
        assert client.create_many(wanted) == {"created": 120, "existing": 0}
        assert client.create_many(wanted) == {"created": 0, "existing": 120}  # it may be sent again
        server.create("single", seed=7)
        assert server.take("s007", numbered(ROWS[:20, 0].tolist()))["state"] == {
            **server.take("single", numbered(ROWS[:20, 0].tolist()))["state"]
        }
        assert [stream["name"] for stream in client.streams()] == sorted([*names, "single"])
        assert server.show("s001")["configuration"] == {**server.show("single")["configuration"], "seed": 1}
        with pytest.raises(ClientError) as rejected:
            client.create_many({"new": {}, "s001": {"seed": 2}, **{f"more{i}": {} for i in range(20)}})
        body = rejected.value.body
        assert (body["error"], body["created"], body["rejected"]) == ("conflict", 9, 13)
        assert body["errors"][0] == {
            "line": 2,
            "name": "s001",
            "error": "conflict",
            "message": "stream 's001' exists with another configuration",
        }
        assert {error["error"] for error in body["errors"][1:]} == {"too-many-streams"}
        assert server.ask("DELETE", "/v1/streams/s000").status_code == 204
        assert client.create_many({"after": {}}) == {"created": 1, "existing": 0}  # there is room again


@pytest.mark.parametrize(
    ("body", "line", "rule"),
    [
        (b'{"name": "a"}\n{"name": "b", "measure": 3}', 2, "configuration.measure must be a JSON object"),
        (
            b'{"name": "a"}\n\n{"seed": 1}',
            3,
            "name must have 1 to 64 characters of a-z, 0-9, '.', '_' and '-', got None",
        ),
        (b'{"name": "a"}\n{"name": "A"}', 2, "name must have"),
        (b'{"name": "a"}\n{"name": "a"}', 2, "name must occur once in a request, got 'a' in line 1 too"),
        (b'{"name": "a"}\n{"name": "b"', 2, "the body must be a JSON object"),
    ],
)
def test_an_invalid_line_creates_nothing(tmp_path: Path, body: bytes, line: int, rule: str) -> None:
    with served(tmp_path / "streams.db") as server:
        reply = server.ask("POST", "/v1/streams", content=body, headers=NDJSON_TYPE)
        assert reply.status_code == 422
        (error,) = reply.json()["errors"]
        assert error["line"] == line
        assert error["message"].startswith(rule)
        assert server.ask("POST", "/v1/streams", content=b'{"name": "a"}').status_code == 415
        assert server.ask("GET", "/v1/streams").json()["total"] == 0


def test_a_batch_is_not_computed_ahead_of_labels_of_its_stream_that_are_put_off(tmp_path: Path) -> None:
    """A read and labels of one stream, batches of another, and a batch of the first: the labels come before it."""
    store = Store(tmp_path / "streams.db")
    engine = Engine(store, Settings(), lambda events, alerted: None)
    engine.start()
    near = {**NEAR, "labels": {"wait": 10, "clock": "client"}}
    engine.create("near", parse_configuration(near)).result(30)
    engine.create("value", parse_configuration({"seed": 0})).result(30)
    ids = [f"i{i}" for i in range(800)]
    x = ROWS[:, :4]
    engine.observe("near", Batch(np.arange(1, 801), x[:800], Extras(id=[*ids], time=[0.0] * 800))).result(30)
    engine.observe("near", Batch(np.array([801]), x[800:801], Extras(y=["a"], time=[1000.0]))).result(30)
    blocked, go_on = threading.Event(), threading.Event()

    def block(connection: sqlite3.Connection) -> None:
        blocked.set()
        go_on.wait(30)

    engine.write(block)
    assert blocked.wait(30)
    asked: list[Future[Any]] = [engine.bet("near")]
    asked.append(engine.label("near", [LateLabel(id=id_, y="a", time=5000.0) for id_ in ids]))
    asked += [engine.observe("value", Batch(np.array([k + 1]), x[k : k + 1, :1], Extras())) for k in range(62)]
    rows = Batch(np.arange(802, 812), x[1000:1010], Extras(y=["a"] * 10, time=[1001.0] * 10))
    asked.append(engine.observe("near", rows))
    go_on.set()
    for future in asked:
        future.result(30)
    left, clock = engine.write(
        lambda c: (engine.streams.get(c, "near").left_out, engine.streams.get(c, "near").clock)
    ).result(30)
    assert (left.classes, clock) == ({"a": 800}, 5000.0)
    engine.stop()
    store.close()
