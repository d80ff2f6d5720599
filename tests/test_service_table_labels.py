"""Streams of rows whose labels come later: the numbers of the library, after a kill too, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from exchangeable import snapshot
from exchangeable.martingale import LN10
from exchangeable.service import costs, table_test
from exchangeable.service.server_config import Settings
from serving import Served, served
from test_service_labels import Hand
from test_service_tables import create, make_rows, monitor

MOST = 10_000
WAIT = 50.0
Event = tuple[str, list[dict[str, Any]]]  # "rows" or "labels", with one request


def library(**more: Any) -> ex.TableMonitor:
    return monitor(max_rows=10_000, most=MOST, **more)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


def late_rows(rows: list[dict[str, Any]], *, timed: bool, batch: int = 7, seed: int = 0) -> list[Event]:
    """Requests: rows one second apart, and labels after delays; some come with their rows, late, or never."""
    rng = np.random.default_rng(seed)
    moments: list[tuple[float, str, dict[str, Any]]] = []
    for i, row in enumerate(rows):
        cells, delay = dict(row), float(rng.choice([3.0, 12.0, 40.0, 2.0 * WAIT]))
        time = {"time": float(i)} if timed else {}
        with_label = i % 11 == 0
        y = cells["y"] if with_label else cells.pop("y")
        moments.append((float(i), "rows", {"seq": i + 1, "row": cells, "id": f"r{i}", **time}))
        if not with_label and i % 13:
            moments.append((i + delay, "labels", {"id": f"r{i}", "y": y, **({"time": i + delay} if timed else {})}))
        elif not with_label and i % 2:
            moments.append((i + delay, "labels", {"id": f"r{i}", "never": True}))
    events: list[Event] = []
    for _, kind, item in sorted(moments, key=lambda moment: moment[0]):
        if not events or events[-1][0] != kind or len(events[-1][1]) >= batch:
            events.append((kind, []))
        events[-1][1].append(item)
    return events


def send(server: Served, event: Event) -> dict[str, Any]:
    kind, items = event
    if kind == "rows":
        return server.take("a", items)
    reply = server.label("a", items)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def consume(like: ex.TableMonitor, event: Event, now: float | None = None) -> None:
    """Give the library the same events, one by one; ``now`` is the time of a clock of the server."""
    for item in event[1]:
        if item.get("never"):
            if item["id"] in like.waiting:  # else it was left out before
                like.never(item["id"])
            continue
        time = item.get("time") if now is None else now
        if event[0] == "rows":
            like.update(item["row"], id=item["id"], time=time)
        else:
            like.label(item["id"], item["y"], time=time)


def check(server: Served, like: ex.TableMonitor) -> None:
    shown = server.show("a")
    state = shown["state"]
    assert like.last is not None
    assert (state["n"], state["log10_martingale"]) == (like.n, like.last.log_value / LN10)
    assert (state["alarm_at"], state["changepoint"]) == (like.alarm_at, like.changepoint)
    assert (state["log10_max"], state["guarantee"]) == (like.log_max / LN10, like.guarantee)
    assert shown["waiting"] == len(like.waiting)
    listed = server.ask("GET", "/v1/streams/a/waiting?limit=500").json()
    assert [row["id"] for row in listed["waiting"]] == like.waiting
    exported = server.ask("GET", "/v1/streams/a/export").content
    assert exported == snapshot.encode(like)


@pytest.mark.parametrize(
    ("wait", "on_alarm", "bins"),
    [("forever", "latch", None), ("forever", "restart", 16), (WAIT, "latch", 16), (WAIT, "restart", None)],
)
@pytest.mark.parametrize("heavy", [costs.HEAVY, 0])
def test_the_numbers_are_those_of_the_library_also_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heavy: int, wait: Any, on_alarm: str, bins: int | None
) -> None:
    """A kill after every third request, with a snapshot now and then: what is restored continues exactly."""
    monkeypatch.setattr(costs, "HEAVY", heavy)
    events = late_rows(make_rows(2, 40) + make_rows(3, 30, 3.0), timed=wait != "forever")
    like = library(wait=wait, on_alarm=on_alarm, bins=bins)
    path, settings = tmp_path / "0.db", Settings(snapshot_every=23)
    for k in range(4):
        with served(path, settings) as server:
            if not k:
                create(server, measure={"bins": bins}, on_alarm=on_alarm, labels={"wait": wait})
            for event in events[k * len(events) // 4 : (k + 1) * len(events) // 4]:
                send(server, event)
                consume(like, event)
            check(server, like)
            path = tmp_path / f"{k + 1}.db"
            with sqlite3.connect(tmp_path / f"{k}.db") as data:
                data.execute("VACUUM INTO ?", (str(path),))  # as after a kill: without a snapshot at the end
    assert like.alarm_at is not None
    with served(path, settings) as server:
        check(server, like)
        assert server.show("a")["left_out"] == asdict(like.left_out)
        assert (like.left_out.expired > 0) == (wait == WAIT)
        assert like.left_out.never > 0


def test_a_label_can_raise_the_alarm(server: Served) -> None:
    """The columns are quiet, and only the concept has changed."""
    rows = [{**row, "y": -3.0 * row["size"]} for row in make_rows(8, 150)]
    create(server, labels={})
    like = library(wait="forever")
    quiet = [{"seq": i, "id": f"r{i}", "row": {**row, "y": None}} for i, row in enumerate(rows, 1)]
    labels = [{"id": f"r{i}", "y": row["y"]} for i, row in enumerate(rows, 1)]
    assert server.take("a", quiet)["state"]["alarm"] is False
    consume(like, ("rows", quiet))
    reply = send(server, ("labels", labels))
    consume(like, ("labels", labels))
    check(server, like)
    assert (reply["accepted"], reply["state"]["alarm"], reply["state"]["alarm_at"]) == (150, True, 150)
    assert "residual of y" in reply["state"]["table"]["rejected_by"]
    assert server.show("a")["alarms"] == 1
    assert server.ask("GET", "/v1/streams/a/history").json()["marks"][0]["n"] == 150
    again = send(server, ("labels", labels[:10]))
    assert (again["accepted"], again["duplicates"], again["state"]) == (0, 10, reply["state"])


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_the_clock_of_the_server(tmp_path: Path, on_alarm: str) -> None:
    with served(tmp_path / "streams.db") as server:
        clock = Hand(server)
        create(server, on_alarm=on_alarm, labels={"wait": WAIT, "clock": "server"})
        like = library(wait=WAIT, on_alarm=on_alarm)
        for event in late_rows(make_rows(4, 40) + make_rows(5, 20, 3.0), timed=False, seed=1):
            clock.now += 3.0
            send(server, event)
            consume(like, event, clock.now)
        state = server.show("a")["state"]
        assert like.last is not None
        assert state["log10_martingale"] == like.last.log_value / LN10
        assert state["alarm_at"] == like.alarm_at
        assert state["guarantee"].startswith(like.guarantee)
        assert state["guarantee"].endswith("if delays were not changed by outages or by a full queue.")
        assert server.show("a")["waiting"] == len(like.waiting)


def test_a_long_batch_is_computed_aside_with_the_same_numbers(server: Served) -> None:
    rows = make_rows(6, 500)
    create(server, labels={})
    like = library(wait="forever")
    event = "rows", [{"seq": i, "id": f"r{i}", "row": row} for i, row in enumerate(rows, 1)]
    send(server, event)
    consume(like, event)
    check(server, like)


def test_a_reset_begins_with_the_reference_again(server: Served) -> None:
    create(server, labels={"wait": WAIT})
    for event in late_rows(make_rows(7, 40), timed=True):
        send(server, event)
    assert server.ask("POST", "/v1/streams/a/reset").json()["state"]["n"] == 40
    shown = server.show("a")
    assert (shown["waiting"], shown["state"]["log10_martingale"], shown["left_out"]["expired"]) == (0, 0.0, 0)
    reply = server.take("a", [{"seq": 41, "id": "new", "time": 900, "row": {"size": 1.0, "colour": "red"}}])
    assert (reply["waiting"], reply["state"]["n"]) == (1, 41)
    reply = send(server, ("labels", [{"id": "r39", "y": 1.0, "time": 901}]))
    assert (reply["late"], reply["waiting"]) == (1, 1)  # a row of the earlier test
    assert send(server, ("labels", [{"id": "new", "y": 1.0, "time": 902}]))["waiting"] == 0


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"row": {"size": 1.0, "colour": "red"}}, 422, "the label must be given, or an id under which"),
        ({"row": {"size": 1.0, "colour": "red"}, "id": "b"}, 422, "time must be given with every label, and with"),
        ({"row": {"size": 1.0, "colour": "red"}, "id": "a", "time": 2}, 422, "id must be new in stream 'a', got 'a'"),
        ({"row": {"size": 1.0, "colour": "red", "y": "low"}, "id": "b", "time": 2}, 422, "label 'y' must be a finite"),
    ],
)
def test_bad_rows_change_nothing(server: Served, body: dict[str, Any], status: int, message: str) -> None:
    create(server, labels={"wait": WAIT})
    server.take("a", [{"seq": 1, "id": "a", "time": 1, "row": {"size": 1.0, "colour": "red"}}])
    before = server.show("a")
    refused = server.send("a", [{"seq": 2, **body}])
    assert (refused.status_code, message in refused.json()["message"]) == (status, True), refused.text
    assert server.show("a") == before


@pytest.mark.parametrize(
    ("labels", "status", "message"),
    [
        ([{"id": "z", "y": 1.0, "time": 2}], 404, "id must be that of an observation that waits"),
        ([{"id": "a", "y": 1.0}], 422, "time must be given with every label"),
        ([{"id": "a", "y": "low", "time": 2}], 422, "stream 'a': label 'y' must be a finite number"),
        ([{"id": "a", "y": 1.0, "time": 0}], 422, "time of a label must not be before that of its observation"),
        ([{"id": "b", "y": 2.0, "time": 3}], 422, "id 'b' already has another label"),
        ([{"id": "a", "y": 1.0, "time": 2}, {"id": "a", "y": 2.0, "time": 2}], 422, "already has another label"),
    ],
)
def test_bad_labels_change_nothing(server: Served, labels: list[dict[str, Any]], status: int, message: str) -> None:
    create(server, labels={"wait": WAIT})
    like = library(wait=WAIT)
    first: Event = (
        "rows",
        [
            {"seq": 1, "id": "a", "time": 1.0, "row": {"size": 1.0, "colour": "red"}},
            {"seq": 2, "id": "b", "time": 1.0, "row": {"size": 1.0, "colour": "red", "y": 1.0}},
        ],
    )
    send(server, first)
    consume(like, first)
    refused = server.label("a", [{"id": "a", "y": 1.0, "time": 1.5}, *labels] if "z" in str(labels) else labels)
    assert (refused.status_code, message in refused.json()["message"]) == (status, True), refused.text
    check(server, like)
    later: Event = "labels", [{"id": "a", "y": 1.0, "time": 2.0}]
    assert send(server, later)["accepted"] == 1
    consume(like, later)
    check(server, like)


@pytest.mark.parametrize("heavy", [costs.HEAVY, 0])
def test_labels_after_which_a_row_expires_are_stored_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heavy: int
) -> None:
    """The first label ends the wait of other rows, whose labels come later in the same request, or never."""
    monkeypatch.setattr(costs, "HEAVY", heavy)
    rows = [{"id": f"r{i}", "time": float(i), "row": {"size": 1.0 + i, "colour": "red"}} for i in range(4)]
    labels = [{"id": "r3", "y": 1.0, "time": WAIT + 2.5}, {"id": "r0", "y": 2.0, "time": 9.0}]
    stored = []
    for requests in ([labels], [[label] for label in labels]):
        with served(tmp_path / f"{len(requests)}.db") as server:
            create(server, labels={"wait": WAIT})
            server.take("a", rows)
            replies = [send(server, ("labels", request)) for request in requests]
            assert sum(reply["late"] for reply in replies) == 1
            assert server.show("a")["left_out"]["undelivered"] == 1
            with sqlite3.connect(tmp_path / f"{len(requests)}.db") as data:
                columns = {"waiting": "id, y, time", "expired": "id, y, time", "labels": "id, y"}
                tables = [data.execute(f"SELECT {some} FROM {table} ORDER BY id") for table, some in columns.items()]
                stored.append([table.fetchall() for table in tables])
    assert stored[0] == stored[1]
    assert stored[0][1] == [("r0", "2.0", 0.0), ("r1", None, 1.0), ("r2", None, 2.0)]


def test_labels_that_fail_half_way_leave_no_trace(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is loaded again, since its test has consumed some of them."""
    rows = make_rows(6, 60)
    create(server, labels={})
    like = library(wait="forever")
    quiet: Event = "rows", [{"id": f"r{i}", "row": {**row, "y": None}} for i, row in enumerate(rows)]
    send(server, quiet)
    consume(like, quiet)
    labels: Event = "labels", [{"id": f"r{i}", "y": row["y"]} for i, row in enumerate(rows)]
    consumed = []
    label = table_test.TableTest.label

    def fail_at_last(test: table_test.TableTest, event: table_test.LabelEvent) -> bool:
        consumed.append(event)
        if len(consumed) == len(rows):
            raise MemoryError
        return label(test, event)

    for heavy in (costs.HEAVY, 0):
        monkeypatch.setattr(costs, "HEAVY", heavy)
        monkeypatch.setattr(table_test.TableTest, "label", fail_at_last)
        consumed.clear()
        assert server.label("a", labels[1]).json()["error"] == "out-of-memory"
        monkeypatch.setattr(table_test.TableTest, "label", label)
        check(server, like)
    send(server, labels)
    consume(like, labels)
    check(server, like)


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_a_full_queue_stops_no_columns(server: Served, on_alarm: str) -> None:
    """The lines of the label begin again, as in the library."""
    create(server, on_alarm=on_alarm, labels={"most": 5})
    like, late = monitor(max_rows=10_000, most=5, wait="forever", on_alarm=on_alarm), 0
    for event in late_rows(make_rows(9, 30) + make_rows(10, 25, 3.0), timed=False, seed=3):
        reply = send(server, event)
        for item in event[1]:
            with suppress(ValueError):  # the monitor remembers only so many ids, and the server more
                consume(like, (event[0], [item]))
        check(server, like)
        late += reply.get("late", 0)
    assert like.alarm_at is not None
    assert late > 5


def test_where_labels_may_come_later(server: Served) -> None:
    refused = server.ask("PUT", "/v1/streams/b", json={"measure": {"kind": "table"}, "labels": {"wait": 60}})
    assert refused.status_code == 422
    assert "configuration.labels must be left out for a table without measure.label" in refused.json()["message"]
    refused = server.ask("PUT", "/v1/streams/b", json={"measure": {"kind": "value"}, "labels": None})
    assert "configuration.labels must be an object, got None" in refused.json()["message"]
    assert server.create("b", measure={"kind": "table", "label": "y"})["configuration"]["labels"] is None
    made = server.create("c", measure={"kind": "table", "label": "y"}, labels={"wait": 60})
    assert made["configuration"]["labels"] == {"wait": 60.0, "clock": "client", "most": 10_000}
    assert server.ask("GET", "/v1/streams/b/waiting").json()["limit"] == 0


def test_a_label_after_a_restart_counts_no_capital_twice(server: Served, tmp_path: Path) -> None:
    """Labels between an alarm that starts a new test and the next row leave the capital of all tests as it is."""
    create(server, labels={"wait": "forever"}, on_alarm="restart")
    for seq, row in enumerate(make_rows(3, 80, 50.0), 1):
        cells = {"size": row["size"], "colour": row["colour"]}
        if server.take("a", [{"seq": seq, "row": cells, "id": f"r{seq}"}])["state"]["alarm"]:
            break
    carried, total, _ = capital(tmp_path)
    assert carried == total > 0.0
    for number in range(1, seq):
        assert server.label("a", [{"id": f"r{number}", "y": 1.0}]).status_code == 200
        assert capital(tmp_path) == (carried, total, total)


def capital(folder: Path) -> tuple[float, ...]:
    """Return what is stored of the capital of all tests: before the current one, now, and at its highest."""
    with sqlite3.connect(folder / "streams.db") as connection:
        return tuple(connection.execute("SELECT carried, total, peak FROM streams").fetchone())
