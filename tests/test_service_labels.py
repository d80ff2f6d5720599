"""The server's late labels: the rules of the library, on the clock of the clients or of the server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
import late
from contracts import settled
from exchangeable import alarms, bets, measures, snapshot
from exchangeable.client import Client, ClientError
from exchangeable.service.alerts import Webhook
from exchangeable.service.clock import server_clock
from exchangeable.service.server_config import Settings
from late_server import Place
from serving import Served, numbered, served

PROMISE = "On exchangeable data the chance that this alarm is ever raised is at most 0.01."
MEASURE = {"kind": "nearest-neighbour", "cap": 10_000}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


def made(server: Served, **labels: Any) -> None:
    server.create("a", measure=MEASURE, bet={"kind": "simple-jumper"}, labels=labels)


def observe(server: Served, seq: int, name: str, **more: Any) -> Any:
    return server.send("a", [{"seq": seq, "x": [float(seq % 3), 1.0], "id": name, **more}]).json()


def label(server: Served, name: str, **more: Any) -> Any:
    return server.label("a", [{"id": name, "y": "fraud", **more}]).json()


class Hand:
    """A clock of the server that is moved by hand."""

    def __init__(self, server: Served, now: float = 1000.0) -> None:
        self.now = now
        server.app.state.engine.clock = lambda: self.now


# ------------------------------------------------------------------ the engine against the library


ALPHA = 0.05


def place_of(path: Path, **labels: Any) -> Place:
    alarm = {"kind": "ville", "alpha": ALPHA}
    return Place(path, {"measure": MEASURE, "bet": {"kind": "simple-jumper"}, "alarm": alarm, "labels": labels})


@pytest.mark.parametrize(
    ("clock", "runs"), [("client", 8), ("server", 2), pytest.param("server", 8, marks=pytest.mark.soak)]
)
def test_traffic_does_not_decide_what_is_tested(tmp_path: Path, clock: str, runs: int) -> None:
    """I.i.d. data, delays that depend on the class, traffic that rises. Counting observations fails on it."""
    false = counted = 0
    for seed in range(runs):
        x, y, events = late.fraud(seed, slow=600, fast=1400)
        place = place_of(tmp_path / f"{seed}.db", wait=1.02 * late.HOUR, clock=clock)
        done = place.play(x, y, events, most=20)
        place.end()
        false += done["state"]["alarm"]
        assert done["expired"] > 100
        if clock == "client":
            monitor = ex.Monitor(measures.NearestNeighbour(), bets.SimpleJumper(), alarms.Ville(ALPHA))
            counted += late.counted(monitor, x, y, events, wait=500).alarm_at is not None
    assert binom.sf(false - 1, runs, ALPHA) > 1e-4, false
    assert clock == "server" or binom.sf(counted - 1, runs, ALPHA) < 1e-6, counted


@pytest.mark.parametrize("clock", ["client", "server"])
@settled(25)
@given(data=st.data())
def test_the_same_events_give_the_steps_of_the_library(
    tmp_path_factory: pytest.TempPathFactory, clock: str, data: st.DataObject
) -> None:
    numbers = st.integers(0, 40).map(float)
    observed = sorted(data.draw(st.lists(numbers, min_size=1, max_size=25)))
    delays = [data.draw(st.one_of(numbers, st.just(np.inf))) for _ in observed]
    wait = data.draw(st.one_of(st.integers(1, 30).map(float), st.just("forever")))
    rng = np.random.default_rng(len(observed))
    x, y = rng.normal(size=(len(observed), 2)), [str(k) for k in rng.integers(0, 2, len(observed))]
    events = late.in_order(observed, delays)
    monitor = ex.Monitor(measures.NearestNeighbour(), bets.SimpleJumper(), alarms.Ville(ALPHA))
    queue, released = late.played(ex.LateLabels(monitor, wait=wait), x, y, events)
    place = place_of(tmp_path_factory.mktemp("late") / "s.db", wait=wait, clock=clock)
    done = place.play(x, y, events)
    place.end()
    assert done["p"].tolist() == [step.p for _, step in released]
    assert done["waiting"] == len(queue.waiting)
    assert done["expired"] == queue.left_out.expired
    shown = queue.left_out.guarantee(monitor.guarantee, queue.wait, server_clock=clock == "server")
    assert done["state"]["guarantee"] == shown


# ------------------------------------------------------------------ the clock of the clients


def test_times_of_the_clients_decide(server: Served) -> None:
    made(server, wait=60)
    for seq, name in enumerate("abcd", 1):
        observe(server, seq, name, time=f"2026-01-01T00:00:{seq:02}Z")
    assert label(server, "b", time="2026-01-01T01:00:30+01:00")["accepted"] == 1
    late_one = label(server, "a", time="2026-01-01T00:01:02Z")  # 61 seconds
    assert (late_one["late"], late_one["expired"], late_one["state"]["n"], late_one["waiting"]) == (1, 1, 1, 2)
    label(server, "c", time="2026-01-01T00:01:03Z")  # 60 seconds
    shown = server.show("a")
    assert (shown["state"]["n"], shown["waiting"]) == (2, 1)
    assert shown["left_out"] == {"expired": 1, "undelivered": 0, "never": 0, "classes": {"fraud": 1}}
    assert shown["state"]["guarantee"] == (
        f"{PROMISE} This holds if the delay of a label depends on its own example only, not on time or traffic."
    )


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T00:00:00", ""])
def test_times_must_be_times(server: Served, time: str) -> None:
    made(server, wait=60)
    for reply in (observe(server, 1, "a", time=time), observe(server, 1, "a", y="b", time=time)):
        assert reply["error"] == "bad-observation"
        assert reply["message"].startswith("time must be a finite number of seconds, or a date and time with a UTC off")
        assert reply["message"].endswith("at seq 1")
    observe(server, 1, "a", time=0)
    assert label(server, "a", time=time)["message"].endswith("for id 'a'")
    assert server.show("a")["waiting"] == 1


def test_both_times_must_be_given_and_in_order(server: Served) -> None:
    made(server, wait=60)
    law = "time must be given with every label, and with every observation without one"
    why = "stream 'a' waits 60 seconds on the clock of its clients"
    assert observe(server, 1, "a")["message"] == f"{law}, at seq 1: {why}"
    assert observe(server, 1, "a", y="b")["accepted"] == 1  # it does not wait
    observe(server, 2, "b", time=5)
    assert label(server, "b")["message"] == f"{law}, for id 'b': {why}"
    early = label(server, "b", time=4.5)
    assert early["message"] == ("time of a label must not be before that of its observation, 5.0, got 4.5 for id 'b'")
    assert label(server, "b", time=5)["waiting"] == 0


def test_a_label_in_time_that_is_delivered_too_late(server: Served) -> None:
    made(server, wait=10)
    observe(server, 1, "a", time=0)
    observe(server, 2, "b", y="x", time=11)
    reply = label(server, "a", time=9)
    assert (reply["late"], reply["duplicates"]) == (1, 0)
    assert label(server, "a", time=9)["duplicates"] == 1
    assert server.label("a", [{"id": "a", "y": "other", "time": 9}]).json()["error"] == "different"
    shown = server.show("a")
    assert (shown["left_out"]["undelivered"], shown["left_out"]["classes"]) == (1, {"fraud": 1})
    condition = "delivered before events that are later than their observation plus 10 seconds (not true for 1)"
    assert condition in shown["state"]["guarantee"]
    assert f"{PROMISE} This holds if " in server.ask("GET", "/v1/streams/a").json()["state"]["guarantee"]


def test_a_refused_request_changes_nothing(server: Served) -> None:
    """Not even the clock: one of its labels had moved it far."""
    made(server, wait=10)
    observe(server, 1, "a", time=0)
    observe(server, 2, "b", time=1)
    before = server.show("a")
    refused = [
        [{"id": "a", "y": "x", "time": 500}, {"id": "nobody", "y": "x", "time": 500}],
        [{"id": "a", "y": "x", "time": 500}, {"id": "b", "y": "x", "time": -500}],
        [{"id": "a", "never": True}, {"id": "a", "y": "x", "time": 500}, {"id": "nobody", "never": True}],
    ]
    for lines in refused:
        assert server.label("a", lines).status_code in (404, 422)
        assert server.show("a") == before
    assert server.label("a", [{"id": name, "y": "x", "time": 10} for name in "ba"]).json()["state"]["n"] == 2


# ------------------------------------------------------------------ the clock of the server


def test_the_server_stamps_both(server: Served) -> None:
    made(server, wait=60, clock="server")
    hand = Hand(server)
    promised = f"{PROMISE} This holds if delays were not changed by outages or by a full queue."
    assert observe(server, 1, "a", time="noon, more or less")["state"]["guarantee"] == promised  # data, and no more
    observe(server, 2, "b")
    hand.now += 60.0
    assert label(server, "a")["state"]["n"] == 1
    hand.now += 0.5
    reply = label(server, "b")
    assert (reply["late"], reply["expired"], reply["waiting"]) == (1, 1, 0)
    assert reply["state"]["guarantee"] == (
        f"{PROMISE} This holds if the delay of a label depends on its own example only, not on time or traffic, "
        "and if delays were not changed by outages or by a full queue."
    )


def test_labels_with_times_are_refused_by_the_clock_of_the_server(server: Served) -> None:
    made(server, wait=60, clock="server")
    observe(server, 1, "a")
    reply = label(server, "a", time=7)
    assert reply["message"] == (
        "time must be left out of labels in stream 'a', which uses the server's clock, got 7.0 for id 'a'"
    )
    assert label(server, "a")["accepted"] == 1


def test_reading_does_not_change_what_is_tested(server: Served) -> None:
    """A label with a delay beyond the wait is not used, and one within it is, whether or not somebody reads."""
    made(server, wait=60, clock="server")
    hand = Hand(server)
    for seq, name in enumerate("abc", 1):
        observe(server, seq, name)
    hand.now += 59.0
    for _ in range(3):
        assert server.ask("GET", "/v1/streams/a/waiting").json()["total"] == 3
        server.show("a")
    assert label(server, "b")["accepted"] == 1
    hand.now += 2.0
    for _ in range(3):
        server.show("a")
    assert label(server, "c")["late"] == 1
    shown = server.show("a")
    assert (shown["state"]["n"], shown["expired"], shown["waiting"]) == (1, 2, 0)  # "a" was overdue too
    assert label(server, "a")["late"] == 1


def test_the_clock_of_the_server_never_goes_back(server: Served) -> None:
    made(server, wait=60, clock="server")
    hand = Hand(server)
    observe(server, 1, "a")
    hand.now -= 500.0
    observe(server, 2, "b")
    assert label(server, "a")["state"]["n"] == 1
    hand.now += 559.0
    assert label(server, "b")["accepted"] == 1
    assert server.show("a")["expired"] == 0


def test_stamps_survive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one after which the system's clock is decades earlier."""
    path = tmp_path / "s.db"
    stamps: list[float] = []
    for back in (0.0, 1e9, 2e9):
        monkeypatch.setattr("exchangeable.service.clock.time.time", lambda back=back: 1.8e9 - back)
        with served(path) as server:
            made(server, wait=1e6, clock="server")
            observe(server, len(stamps) + 1, f"i{len(stamps)}")
        with closing(sqlite3.connect(path)) as connection:
            times = [time for (time,) in connection.execute("SELECT time FROM waiting ORDER BY seq")]
        assert times[: len(stamps)] == stamps
        stamps = times
    assert stamps == sorted(stamps)
    assert stamps[0] >= 1.8e9
    with served(path) as server:
        assert label(server, "i2")["late"] == 0
        assert label(server, "i0")["accepted"] == 1


def test_the_clock_of_the_server_goes_on_from_its_own_last_stamp(tmp_path: Path) -> None:
    """Times of clients may be in other units and do not matter."""
    with served(tmp_path / "s.db") as server:
        made(server, wait=60)
        observe(server, 1, "a", time=1e15)
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        clock = server_clock(connection)
    assert clock() < 1e11
    assert clock() <= clock()


# ------------------------------------------------------------------ forever, never, and a full queue


def test_forever_leaves_nothing_out(server: Served) -> None:
    made(server)
    observe(server, 1, "a", time="whenever")
    observe(server, 2, "b", y="x", time=1e12)
    observe(server, 3, "c", y="x", time=-1e12)
    assert server.show("a")["waiting"] == 3
    reply = label(server, "a", time="tomorrow")
    assert (reply["state"]["n"], reply["expired"], reply["state"]["guarantee"]) == (3, 0, PROMISE)


def test_a_label_that_never_comes(server: Served) -> None:
    made(server)
    for seq, name in enumerate("abc", 1):
        observe(server, seq, name)
    assert label(server, "c")["accepted"] == 1
    reply = server.label("a", [{"id": "b", "never": True}, {"id": "b", "never": True}]).json()
    assert (reply["accepted"], reply["duplicates"], reply["waiting"], reply["state"]["n"]) == (1, 1, 2, 0)
    assert server.label("a", [{"id": "a", "never": True}]).json()["state"]["n"] == 1
    assert label(server, "b")["late"] == 1
    shown = server.show("a")
    assert shown["left_out"] == {"expired": 0, "undelivered": 0, "never": 2, "classes": {}}
    assert shown["state"]["guarantee"].endswith("if whether a label never comes depends on its own example only.")
    assert server.label("a", [{"id": "c", "never": True}]).json()["error"] == "different"


@pytest.mark.parametrize(
    ("line", "law"),
    [
        ({"id": "a"}, "either y or never: true must be given, not both"),
        ({"id": "a", "never": False}, "either y or never: true must be given, not both"),
        ({"id": "a", "never": True, "y": 1}, "either y or never: true must be given, not both"),
        ({"id": "a", "never": True, "time": 1}, "time must be left out if the label will never arrive"),
        ({"id": "a", "never": "yes"}, "never must be true or false"),
        ({"id": "a", "y": 1, "time": []}, "time must be a string or a finite number"),
    ],
)
def test_labels_have_a_form(server: Served, line: dict[str, Any], law: str) -> None:
    made(server)
    observe(server, 1, "a")
    reply = server.label("a", [line])
    assert (reply.status_code, law in reply.json()["message"]) == (422, True)
    assert server.show("a")["waiting"] == 1


def test_a_full_queue_rejects_new_observations_and_keeps_the_old(server: Served) -> None:
    made(server, wait=100, most=3)
    observe(server, 1, "a", y="x", time=0)
    for seq, name in enumerate("bcd", 2):
        observe(server, seq, name, time=seq)
    before = server.show("a")
    reply = server.send("a", [{"seq": 5, "x": [1.0, 1.0], "id": "e", "time": 50}])
    assert (reply.status_code, reply.json()["error"], reply.headers["retry-after"]) == (429, "too-many-waiting", "5")
    assert reply.json()["message"] == (
        "at most 3 observations of stream 'a' may wait for their labels: send this again when labels have arrived "
        "(skipping it would invalidate the guarantee of the alarm)"
    )
    assert server.show("a") == before
    assert 'rejects_total{reason="too-many-waiting"} 1.0' in server.ask("GET", "/metrics").text
    some = server.send("a", numbered([[1.0, 1.0]] * 4, 5, id="efgh", time=[102.5] * 4))
    assert some.json()["room"] == 1  # by then "b" is given up
    assert observe(server, 5, "e", time=102.5)["expired"] == 1
    assert label(server, "c", time=103)["waiting"] == 2


def test_a_queue_of_length_zero_accepts_labelled_observations_only(server: Served) -> None:
    made(server, most=0)
    assert observe(server, 1, "a")["error"] == "too-many-waiting"
    assert observe(server, 1, "a", y="x")["accepted"] == 1


def test_a_reset_counts_from_zero(server: Served) -> None:
    """Also time: a client that sent one far in the future could otherwise never queue anything again."""
    made(server, wait=10)
    observe(server, 1, "a", time=0)
    observe(server, 2, "b", y="x", time=1e8)
    observe(server, 3, "c", time=1)
    assert server.show("a")["expired"] == 2
    server.ask("POST", "/v1/streams/a/reset")
    assert label(server, "a", time=1)["late"] == 1
    assert observe(server, 4, "d", time=2)["waiting"] == 1
    assert label(server, "d", time=3)["state"]["n"] == 2
    shown = server.show("a")
    assert (shown["expired"], shown["left_out"]["classes"], shown["state"]["guarantee"]) == (0, {}, PROMISE)


# ------------------------------------------------------------------ what is shown


def test_expired_ones_are_shown_by_label(server: Served) -> None:
    made(server, wait=10)
    for seq in range(1, 31):
        observe(server, seq, f"i{seq}", time=20.0 * seq)
    for seq in range(1, 30):
        lines = [{"id": f"i{seq}", "y": "fraud" if seq % 2 else f'"{seq}"\n', "time": 700.0}]
        assert server.label("a", lines).json()["late"] == 1
    waiting = server.ask("GET", "/v1/streams/a/waiting").json()
    assert (waiting["limit"], waiting["left_out"]["expired"], waiting["expired"]) == (10_000, 30, 30)
    assert len(waiting["left_out"]["classes"]) == 11
    text = server.ask("GET", "/metrics").text
    assert 'exchangeable_stream_expired_total{stream="a"} 30.0' in text
    assert 'exchangeable_stream_expired_labelled_total{label="fraud",stream="a"} 15.0' in text
    assert 'exchangeable_stream_expired_labelled_total{label="other",stream="a"} 5.0' in text


def test_the_export_and_the_history_know_of_used_ones_only(server: Served) -> None:
    made(server, wait=10)
    observe(server, 1, "a", time=0)
    observe(server, 2, "b", y="x", time=20)
    observe(server, 3, "c", y="z", time=30)
    monitor = ex.Monitor(measures.NearestNeighbour(), bets.SimpleJumper())
    monitor.extend([[2.0, 1.0], [0.0, 1.0]], ["x", "z"])
    exported = snapshot.decode(server.ask("GET", "/v1/streams/a/export").content)
    assert (exported.n, exported.last) == (2, monitor.last)
    assert server.ask("GET", "/v1/streams/a/history").json()["n"] == [1, 2]
    assert observe(server, 1, "a", time=0)["duplicates"] == 1
    assert observe(server, 1, "a", time=1)["error"] == "different"


def test_a_count_of_earlier_versions_is_dropped(tmp_path: Path) -> None:
    path, expected = tmp_path / "s.db", {"expired": 0, "undelivered": 0, "never": 0, "classes": {}}
    with served(path) as server:
        made(server, wait=10)
        observe(server, 1, "a", time=0)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE streams SET left_out = json_set(left_out, '$.crowded', 0)")
    with served(path) as server:
        assert server.show("a")["left_out"] == expected
        assert server.ask("GET", "/v1/streams/a/waiting").json()["left_out"] == expected
        assert observe(server, 2, "b", time=1)["waiting"] == 2
    with closing(sqlite3.connect(path)) as connection:
        assert "crowded" not in connection.execute("SELECT left_out FROM streams").fetchone()[0]


def test_an_alert_states_the_conditions(tmp_path: Path) -> None:
    webhooks = (Webhook("one", "http://127.0.0.1:9/", allow_private=True),)
    with served(tmp_path / "s.db", Settings(webhooks=webhooks)) as server:
        made(server, wait=10)
        observe(server, 1, "a", time=0)
        x = [[0.0, 0.0]] * 60 + [[1.0, 1.0]] * 60
        server.take("a", numbered(x, 2, y=["x"] * 60 + ["z"] * 60, time=range(20, 140)))
        rng = np.random.default_rng(0)
        y = [str(k) for k in rng.integers(0, 2, 300)]
        moved = rng.normal(size=(300, 2)) + np.arange(300)[:, None]
        assert server.take("a", numbered(moved.tolist(), 122, y=y))["state"]["alarm"]
        (sent, *_) = server.ask("GET", "/v1/alerts").json()["alerts"]
        with server.app.state.store.read() as connection:
            (text,) = connection.execute("SELECT alert FROM outbox LIMIT 1").fetchone()
    assert sent["stream"] == "a"
    assert "not on time or traffic" in text


# ------------------------------------------------------------------ the client


def test_the_client_labels_with_times(server: Served) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with Client(server.url) as client:
        client.create("a", {"measure": MEASURE, "labels": {"wait": 60}})
        stream = client.stream("a")
        for k, name in enumerate("abcd"):
            stream.send([float(k)], id=name, time=start + timedelta(seconds=k))
        assert stream.label("a", 1, start + timedelta(seconds=30))["state"]["n"] == 1
        assert stream.label("b", "x", time=(start + timedelta(seconds=61.5)).timestamp())["late"] == 1
        assert stream.never("c")["state"]["n"] == 1
        with pytest.raises(ClientError, match="time must be given"):
            stream.label("d", "x")
        assert stream.show()["left_out"]["never"] == 1


def test_the_client_sends_labels_while_its_observations_are_held_up(server: Served) -> None:
    with Client(server.url, patience=2.0) as client:
        client.create("a", {"measure": MEASURE, "labels": {"most": 3}})
        stream = client.stream("a", batch=10)
        for k in range(8):
            stream.send([float(k)], id=f"i{k}")
        with pytest.raises(ClientError, match="at most 3 observations of stream 'a' may wait"):
            stream.flush()
        assert stream.pending == 5  # as many as there was room for have gone
        with pytest.raises(ClientError, match="at most 3 observations of stream 'a' may wait"):
            stream.label("i7", "x")
        for k in range(8):
            stream.label(f"i{k}", "x")
        assert stream.pending == 0
        assert stream.state["n"] == 8
