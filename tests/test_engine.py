"""The engine compared with the library: bursts of random requests, so that groups share commits and bets run ahead."""

from __future__ import annotations

import math
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from exchangeable import snapshot
from exchangeable.service import history
from exchangeable.service.engine import Engine
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Retention, Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_config import Configuration, RateMeasure, parse_configuration

KINDS: list[dict[str, Any]] = [
    {"bet": {"kind": "simple-mixture"}},
    {"bet": {"kind": "adaptive"}, "seed": 3},
    {"bet": {"kind": "simple-jumper"}, "alarm": {"kind": "cusum", "period": 30}, "on_alarm": "restart"},
    {"measure": {"kind": "frozen", "reference": [k / 50 for k in range(50)], "bins": 8}, "bet": {"kind": "tree"}},
    {"measure": {"kind": "p-values"}, "bet": {"kind": "power"}},
    {"measure": {"kind": "rate"}},
    {
        "measure": {"kind": "rate", "values": [1, 2, 5], "direction": "up"},
        "alarm": {"kind": "shiryaev-roberts", "period": 20},
        "on_alarm": "restart",
    },
]


class Model:
    """What a stream must report, computed with the library."""

    def __init__(self, kind: dict[str, Any]) -> None:
        self.configuration: Configuration = parse_configuration(kind)
        self.monitor: Any = self.configuration.monitor()
        self.seen: list[float] = []
        self.total = self.peak = 0.0  # log capital of a gambler who goes on over restarts

    def draw(self, rng: random.Random, count: int) -> list[float]:
        """Numbers that this kind of stream accepts; now and then many small ones in a row."""
        measure = self.configuration.measure
        if isinstance(measure, RateMeasure):
            return rng.choices(
                measure.values, rng.choice([[1, 5, 0], [5, 1, 0], [1, 1, 8]])[: len(measure.values)], k=count
            )
        return [rng.uniform(0.01, 1.0) for _ in range(count)]

    def take(self, x: list[float]) -> None:
        self.seen += x
        for value in x:
            last = self.monitor.last
            fresh = last is None or (last.alarm and self.monitor.on_alarm == "restart")
            gained = self.monitor.update(value).log_value
            self.total += gained if fresh or last is None else gained - last.log_value
            self.peak = max(self.peak, self.total)

    def reset(self) -> None:
        self.monitor = self.configuration.monitor(start=self.monitor.n)
        self.total = self.peak = 0.0


class Place:
    """An engine on a database, which can be killed and restarted. Requests are answered in the order they were made."""

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path, self.settings = path, settings
        self.start()

    def start(self) -> None:
        self.store = Store(self.path)
        self.engine = Engine(self.store, self.settings, lambda news, alerted: None)
        self.engine.start()

    def stop(self, *, gracefully: bool) -> None:
        if not gracefully:
            self.engine.streams.save_snapshots = lambda connection: None  # type: ignore[method-assign]
        self.engine.stop()
        self.store.close()


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    rng = random.Random(request.param)
    retention = Retention(observations=rng.choice([0, 200, 10**6]))
    settings = Settings(
        snapshot_every=rng.choice([1, 30, 8192]), live_streams=rng.choice([1, 3, 100]), retention=retention
    )
    place = Place(tmp_path / "s.db", settings)
    yield place
    place.stop(gracefully=True)


def batch(x: list[float], first: int) -> Batch:
    return Batch(np.arange(first, first + len(x)), np.array(x).reshape(-1, 1), Extras())


def test_a_read_does_not_wait_for_a_batch_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch is started ahead during the commit of the first, and comes after the read."""
    monkeypatch.setattr("exchangeable.service.writer.GROUP", 2)
    store = Store(tmp_path / "s.db")
    engine = Engine(store, Settings(), lambda news, alerted: None)
    created = engine.create("a", parse_configuration({})), engine.create("b", parse_configuration({}))
    first, read = engine.observe("b", batch([0.5] * 5, 1)), engine.export("a")
    second = engine.observe("a", batch([0.25] * 5, 1))
    engine.start()
    for future in (*created, first, read, second):
        future.result(30)
    assert second.result()["next_seq"] == 6
    engine.stop()
    store.close()


def outcome(future: Future[Any]) -> Any:
    """Return the reply, or the code of the problem."""
    try:
        return future.result(60)
    except Problem as problem:
        return problem.code


def burst(place: Place, models: dict[str, Model], rng: random.Random) -> None:
    """Make several requests at once and check the replies."""
    asked: list[tuple[Future[Any], Any]] = []
    for _ in range(rng.choice([1, 2, 6, 20])):
        name = rng.choice(list(models))
        model, dice = models[name], rng.random()
        x = model.draw(rng, rng.choice([1, 3, 40]))
        if dice < 0.05:
            model.reset()
            asked.append((place.engine.reset(name), ("reset", model.monitor.n)))
        elif dice < 0.1:
            asked.append((place.engine.observe(name, batch(x, len(model.seen) + 2)), "gap"))
        elif dice < 0.2 and model.seen:
            back = min(len(model.seen), len(x))
            again = model.seen[-back:] + x
            asked.append((place.engine.observe(name, batch(again, len(model.seen) + 1 - back)), ("accepted", back)))
            model.take(x)
        elif dice < 0.25 and model.configuration.measure.kind in ("p-values", "rate"):
            asked.append((place.engine.observe(name, batch([*x, 1.5], len(model.seen) + 1)), "bad-observation"))
        elif dice < 0.3:
            asked.append((place.engine.export(name), ("export", None)))
        else:
            asked.append((place.engine.observe(name, batch(x, len(model.seen) + 1)), ("accepted", 0)))
            model.take(x)
    for future, expected in asked:
        got = outcome(future)
        if isinstance(expected, str):
            assert got == expected
        elif expected[0] == "accepted":
            assert got["duplicates"] == expected[1]
        elif expected[0] == "reset":
            assert got["state"]["n"] == expected[1]
        else:
            assert isinstance(snapshot.decode(got), (ex.Monitor, ex.RateMonitor))


def compare(place: Place, models: dict[str, Model]) -> None:
    for name, model in models.items():
        shown = place.engine.create(name, model.configuration).result(60)[1]
        monitor = model.monitor
        last = monitor.last
        assert shown["next_seq"] == len(model.seen) + 1
        assert shown["state"]["n"] == monitor.n
        assert shown["state"]["log10_martingale"] == (last.log_value / math.log(10.0) if last else 0.0)
        assert shown["state"]["p"] == getattr(last, "p", None)
        if isinstance(monitor, ex.RateMonitor):
            assert shown["state"]["rate"]["shares"] == list(monitor.shares.values())
        assert (shown["state"]["alarm_at"], shown["state"]["changepoint"]) == (monitor.alarm_at, monitor.changepoint)
        assert place.engine.export(name).result(60) == snapshot.encode(monitor)
        with place.store.read() as connection:
            evidence = connection.execute("SELECT total, peak FROM streams WHERE name = ?", (name,)).fetchone()
        assert evidence == pytest.approx((model.total, model.peak), abs=1e-9)


@pytest.mark.parametrize("place", range(6), indirect=True)
def test_random_requests_lead_to_the_state_of_the_library(place: Place, request: pytest.FixtureRequest) -> None:
    rng = random.Random(request.node.callspec.params["place"] + 100)
    models = {f"s{k}": Model(kind) for k, kind in enumerate(KINDS)}
    for name, model in models.items():
        place.engine.create(name, model.configuration).result(60)
    for turn in range(40):
        burst(place, models, rng)
        if turn % 8 == 7:
            compare(place, models)
            place.stop(gracefully=rng.random() < 0.5)
            place.start()
    compare(place, models)


class Failing:
    """A store whose commits fail now and then."""

    def __init__(self, store: Store, rng: random.Random) -> None:
        self.write_as_before = store.write
        self.rng = rng
        store.write = self.write  # type: ignore[method-assign]

    def write(self) -> Any:
        before = self.write_as_before()
        fails = self.rng.random() < 0.3

        class Write:
            def __enter__(self) -> sqlite3.Connection:
                self.connection = before.__enter__()
                return self.connection

            def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
                if kind is None and fails:
                    full = sqlite3.OperationalError("database or disk is full")
                    full.sqlite_errorcode = sqlite3.SQLITE_FULL
                    before.__exit__(type(full), full, None)
                    raise full
                return before.__exit__(kind, error, trace)

        return Write()


@pytest.mark.parametrize("place", range(3), indirect=True)
def test_what_was_in_a_failed_commit_can_be_sent_again(place: Place, request: pytest.FixtureRequest) -> None:
    rng = random.Random(request.node.callspec.params["place"] + 200)
    models = {f"s{k}": Model(kind) for k, kind in enumerate(KINDS)}
    for name, model in models.items():
        place.engine.create(name, model.configuration).result(60)
    Failing(place.store, rng)
    refused = 0
    for _ in range(60):
        sent = {name: model.draw(rng, rng.choice([1, 30])) for name, model in models.items()}
        while sent:  # all at once, and what was refused again
            asked = {name: place.engine.observe(name, batch(x, len(models[name].seen) + 1)) for name, x in sent.items()}
            for name, future in asked.items():
                got = outcome(future)
                if got == "storage-full":
                    refused += 1
                else:
                    assert got["accepted"] == len(sent[name])
                    models[name].take(sent.pop(name))
    assert refused > 20
    del place.store.write
    compare(place, models)


@pytest.mark.parametrize("place", [0], indirect=True)
def test_a_group_that_fails_leaves_nothing_running_ahead(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bets of the second stream were computed ahead; reading it must not wait for them forever."""
    for name in "ab":
        place.engine.create(name, parse_configuration({})).result(60)
    entered, gate, append = threading.Event(), threading.Event(), history.append

    def hold(connection: object) -> None:
        entered.set()
        gate.wait(60)

    def fails(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(history, "append", append)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(history, "append", fails)
    held = place.engine.write(hold)
    entered.wait(60)  # what is asked from now on comes as one group
    asked = [place.engine.observe(name, batch([0.5], 1)) for name in "ab"]
    gate.set()
    held.result(60)
    assert [outcome(future) for future in asked] == ["storage", "storage"]
    assert place.engine.bet("b").result(60)["n"] == 0
    assert place.engine.observe("a", batch([0.5], 1)).result(60)["accepted"] == 1
