"""The service: order, repeats, gaps, late labels, resets, restarts, and the numbers of the library."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from exchangeable import alarms, bets, measures, snapshot
from exchangeable.catalogue import BETS
from exchangeable.service.server_config import Limits, Retention, Settings
from exchangeable.service.store import open_database
from serving import JSON, NDJSON, Served, numbered, served

LN10 = math.log(10.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


def numbers(seed: int, n: int, change: int | None = None) -> list[float]:
    x = np.random.default_rng(seed).normal(size=n)
    x[change if change is not None else n :] += 2.0
    return [float(value) for value in x]


def state_of(monitor: ex.Monitor) -> dict[str, Any]:
    """What the service must say of a library monitor."""
    assert monitor.last is not None
    return {
        "n": monitor.n,
        "p": monitor.last.p,
        "log10_martingale": monitor.last.log_value / LN10,
        "log10_max": monitor.log_max / LN10,
        "alarm": monitor.last.alarm,
        "alarm_at": monitor.alarm_at,
        "changepoint": monitor.changepoint,
        "guarantee": monitor.guarantee,
    }


# ------------------------------------------------------------------ streams


def test_a_stream_is_made_once_and_parts_left_out_take_defaults(server: Served) -> None:
    first = server.ask("PUT", "/v1/streams/a", json={"seed": 7})
    assert first.status_code == 201
    assert first.json()["configuration"] == {
        "measure": {"kind": "value"},
        "bet": {"kind": "adaptive"},
        "alarm": {"kind": "ville", "alpha": 0.01},
        "seed": 7,
        "on_alarm": "latch",
        "labels": {"wait": "forever", "clock": "client", "most": 10_000},
    }
    assert first.json()["state"]["n"] == 0
    again = server.ask("PUT", "/v1/streams/a", json={"seed": 7, "bet": {"kind": "adaptive"}})
    assert (again.status_code, again.json()["created"]) == (200, first.json()["created"])
    for same in ({}, {"bet": {"kind": "adaptive"}}):  # a seed that is left out is the one that was drawn or given
        assert server.ask("PUT", "/v1/streams/a", json=same).status_code == 200
    other = server.ask("PUT", "/v1/streams/a", json={"seed": 8})
    assert (other.status_code, other.json()["error"]) == (409, "conflict")
    assert server.ask("GET", "/v1/streams/a").json() == first.json()
    assert server.ask("DELETE", "/v1/streams/a").status_code == 204
    assert server.ask("GET", "/v1/streams/a").status_code == 404
    assert server.ask("DELETE", "/v1/streams/a").status_code == 404
    assert server.ask("PUT", "/v1/streams/a", json={"seed": 8}).status_code == 201


def test_a_part_that_is_left_out_is_that_of_the_stream(server: Served) -> None:
    """Whatever the defaults were when it was made."""
    watched = {"alarm": {"kind": "shiryaev-roberts", "period": 2000}}
    made = server.ask("PUT", "/v1/streams/a", json={**watched, "bet": {"kind": "adaptive"}}).json()
    assert "is raised after about 2,000 examples" in made["notes"][0]
    assert server.ask("PUT", "/v1/streams/a", json=watched).status_code == 200
    assert server.ask("PUT", "/v1/streams/a", json={**watched, "bet": {"kind": "sentinel"}}).status_code == 409
    fresh = server.ask("PUT", "/v1/streams/b", json=watched).json()
    assert (fresh["configuration"]["bet"]["kind"], fresh["notes"]) == ("sentinel", [])


@pytest.mark.parametrize("name", ["A", "a" * 65, "-a", ".a", "a b", "ä", "a%2Fb", "..%2f..", "a%00"])
def test_a_stream_with_an_unlawful_name_is_refused(server: Served, name: str) -> None:
    assert server.ask("PUT", f"/v1/streams/{name}", json={}).status_code in (404, 422)
    assert server.ask("GET", "/v1/streams").json()["total"] == 0


@pytest.mark.parametrize(
    ("configuration", "where"),
    [
        ({"alarm": {"alpha": 0.0}}, "configuration.alarm.alpha"),
        ({"alarm": {"kind": "cusum", "period": 1.0}}, "configuration.alarm.period"),
        ({"bet": {"kind": "no-such"}}, "configuration.bet.kind"),
        ({"measure": {"kind": "frozen"}}, "configuration.measure.reference"),
        ({"measure": {"kind": "frozen", "reference": [1.0, 1.0]}}, "reference"),
        ({"measure": {"kind": "nearest-neighbour", "cap": 10**6}}, "configuration.measure.cap"),
        ({"measure": {"kind": "value", "cap": 5}}, "configuration.measure.cap"),
        *(
            ({"measure": {"kind": "rate", "values": values}}, "values must be 2 to 64 different numbers of magnitude")
            for values in (
                [1],
                [1, 1],
                ["bad", "good"],
                [True, False],
                [1, 10**400],
                [1, 2**53 + 1],
                7,
                list(range(65)),
            )
        ),
        ({"measure": {"kind": "rate", "direction": "left"}}, "configuration.measure.direction"),
        (
            {"measure": {"kind": "rate"}, "bet": {"kind": "adaptive"}},
            "configuration.bet must be left out for the measure",
        ),
        ({"measure": {"kind": "rate"}, "alarm": {"kind": "cusum"}}, "configuration.alarm.kind must be ville or"),
        ({"bet": None}, "configuration.bet.kind"),
        ({"seed": -1}, "configuration.seed"),
        ({"seed": True}, "configuration.seed"),
        ({"on_alarm": "sing"}, "configuration.on_alarm"),
        ({"labels": {"wait": 0}}, "configuration.labels.wait must be 'forever', or a number of seconds above 0"),
        ({"labels": {"clock": "wall"}}, "configuration.labels.clock"),
        ({"measure": {"kind": "nearest-neighbour"}, "labels": {"most": 10**6}}, "configuration.labels.most"),
        ({"extra": 1}, "configuration.extra"),
    ],
)
def test_a_bad_configuration_gets_one_sentence_that_says_where(
    server: Served, configuration: dict[str, Any], where: str
) -> None:
    reply = server.ask("PUT", "/v1/streams/a", json=configuration)
    assert reply.status_code == 422
    assert reply.json()["error"] == "bad-configuration"
    assert where in reply.json()["message"]
    assert server.ask("GET", "/v1/streams/a").status_code == 404


def test_a_stream_of_events_is_a_rate_monitor(server: Served) -> None:
    alarm = {"kind": "shiryaev-roberts", "period": 500}
    made = server.ask("PUT", "/v1/streams/a", json={"measure": {"kind": "rate"}, "alarm": alarm}).json()
    assert made["configuration"]["measure"] == {"kind": "rate", "values": [0, 1], "direction": "both"}
    assert (made["configuration"]["bet"], made["bet"], made["notes"]) == (None, None, [])
    assert made["state"]["rate"] == {"shares": [], "change": None}
    monitor = ex.RateMonitor(500)
    rng = np.random.default_rng(3)
    events = np.append(rng.random(600) < 0.02, rng.random(100) < 0.3).astype(int).tolist()
    monitor.extend(events)
    server.take("a", numbered([bool(event) for event in events[:250]]))
    refused = server.send("a", numbered([1, 0.5], 251))
    assert refused.status_code == 422
    assert refused.json()["message"] == "x must be one of [0, 1] in stream 'a', got 0.5 at seq 252"
    server.take("a", numbered(events[250:], 251))
    state = server.ask("GET", "/v1/streams/a").json()["state"]
    assert (state["n"], state["p"], state["alarm_at"], state["changepoint"]) == (
        700,
        None,
        monitor.alarm_at,
        monitor.changepoint,
    )
    assert state["log10_martingale"] == monitor.log_value / math.log(10.0)
    assert state["guarantee"] == monitor.guarantee
    assert monitor.change is not None
    assert state["rate"] == {"shares": list(monitor.shares.values()), "change": monitor.change._asdict()}
    history = server.ask("GET", "/v1/streams/a/history").json()
    assert history["p"] == [None] * 700
    assert history["marks"][0]["n"] == monitor.alarm_at
    bet = server.ask("GET", "/v1/streams/a/bet")
    assert (bet.status_code, bet.json()["message"]) == (409, "stream 'a' does not bet on p-values: its measure is rate")
    exported = ex.snapshot.decode(server.ask("GET", "/v1/streams/a/export").content)
    assert isinstance(exported, ex.RateMonitor)
    assert ex.snapshot.encode(exported) == ex.snapshot.encode(monitor)


def test_a_stream_of_losses_is_a_risk_monitor(server: Served) -> None:
    made = server.create("a", measure={"kind": "risk", "limit": 0.2, "bounds": [-1, 2]}, on_alarm="restart")
    assert (made["configuration"]["bet"], made["bet"], made["notes"]) == (None, None, [])
    assert made["state"]["risk"] == {"limit": 0.2, "mean": None, "low": -1.0, "high": 2.0, "change": None}
    monitor = ex.Risk(0.2, bounds=(-1, 2), on_alarm="restart")
    losses = [*np.random.default_rng(1).uniform(-0.5, 0.5, 300), *[1.5] * 60]
    path = monitor.extend(losses)
    server.take("a", numbered(losses[:200]))
    refused = server.send("a", numbered([0.5, 2.5], 201))
    message = "x must be a loss from -1 to 2 in stream 'a', got 2.5 at seq 202"
    assert (refused.status_code, refused.json()["message"]) == (422, message)
    server.take("a", numbered(losses[200:], 201))
    shown = server.show("a")
    assert monitor.change is not None
    expected = {"limit": 0.2, "mean": monitor.mean, **monitor.interval._asdict(), "change": monitor.change._asdict()}
    assert shown["state"]["risk"] == expected
    assert (shown["alarms"], shown["state"]["alarm_at"]) == (int(path.alarm.sum()), monitor.alarm_at)
    history = server.ask("GET", "/v1/streams/a/history?from=1").json()
    assert [mark["n"] for mark in history["marks"]] == path.n[path.alarm].tolist()
    assert history["risk"] == {name: column.tolist() for name, column in monitor.band._asdict().items()}
    bet = server.ask("GET", "/v1/streams/a/bet")
    assert (bet.status_code, bet.json()["message"]) == (409, "stream 'a' does not bet on p-values: its measure is risk")
    exported = ex.snapshot.decode(server.ask("GET", "/v1/streams/a/export").content)
    assert ex.snapshot.encode(exported) == ex.snapshot.encode(monitor)
    reset = server.ask("POST", "/v1/streams/a/reset").json()["state"]
    assert (reset["n"], reset["risk"]["mean"]) == (360, None)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({}, "configuration.measure.limit must be given"),
        ({"limit": 1.5}, "limit must lie between the bounds of the loss, 0 and 1, got 1.5"),
        ({"limit": 0.1, "bounds": [1, 0]}, "bounds must be the smallest and the largest possible loss"),
        ({"limit": 0.1, "bounds": [0]}, "configuration.measure.bounds must"),
    ],
)
def test_a_risk_must_have_a_limit_within_its_bounds(
    server: Served, configuration: dict[str, Any], message: str
) -> None:
    refused = server.ask("PUT", "/v1/streams/a", json={"measure": {"kind": "risk", **configuration}})
    assert refused.status_code == 422
    assert message in refused.json()["message"]


def test_streams_are_listed_in_pages_with_alarms_first(server: Served) -> None:
    for name in ("quiet-1", "quiet-2", "loud"):
        server.create(name, bet={"kind": "simple-mixture"})
    server.take("loud", numbered(range(200)))
    server.take("quiet-2", numbered(numbers(1, 50)))
    listed = server.ask("GET", "/v1/streams", params={"limit": 2, "spark": 10}).json()
    assert listed["streams"][0]["name"] == "loud"
    assert (listed["total"], listed["limit"], len(listed["streams"])) == (3, 2, 2)
    spark = listed["streams"][0]["spark"]
    assert spark["n"][-1] == 200
    assert len(spark["n"]) <= 10
    assert "configuration" not in listed["streams"][0]
    rest = server.ask("GET", "/v1/streams", params={"limit": 2, "offset": 2}).json()
    assert len(rest["streams"]) == 1
    found = server.ask("GET", "/v1/streams", params={"q": "quiet", "order": "name"}).json()
    assert [stream["name"] for stream in found["streams"]] == ["quiet-1", "quiet-2"]


def test_there_is_a_limit_to_the_number_of_streams(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(limits=Limits(streams=2))) as server:
        server.create("a")
        server.create("b")
        reply = server.ask("PUT", "/v1/streams/c", json={})
        assert (reply.status_code, reply.json()["error"]) == (409, "too-many-streams")


# ------------------------------------------------------------------ observations: the numbers are the library's


CONFIGURATIONS: dict[str, tuple[dict[str, Any], Any]] = {
    "value": ({"seed": 3}, lambda: ex.Monitor(measures.Value(), seed=3)),
    "cusum": (
        {"alarm": {"kind": "cusum", "period": 500}, "bet": {"kind": "sentinel"}},
        lambda: ex.Monitor(measures.Value(), bets.Sentinel(), alarms.Cusum(500.0)),
    ),
    "restart": (
        {"on_alarm": "restart", "alarm": {"alpha": 0.05}, "bet": {"kind": "simple-jumper"}, "seed": 1},
        lambda: ex.Monitor(measures.Value(), bets.SimpleJumper(), alarms.Ville(0.05), seed=1, on_alarm="restart"),
    ),
    "frozen": (
        {"measure": {"kind": "frozen", "reference": numbers(9, 100), "bins": 16}, "bet": {"kind": "plugin"}},
        lambda: ex.Monitor(measures.Frozen(reference=numbers(9, 100), bins=16), bets.Plugin()),
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_the_state_is_the_librarys_bit_for_bit(server: Served, kind: str) -> None:
    configuration, make = CONFIGURATIONS[kind]
    x = numbers(5, 700, change=400)
    server.create("a", **configuration)
    monitor = make()
    done = 0
    for size in (1, 3, 96, 250, 350):
        reply = server.take("a", numbered(x[done : done + size], done + 1))
        path = monitor.extend(x[done : done + size])
        done += size
        assert (reply["accepted"], reply["duplicates"], reply["next_seq"]) == (size, 0, done + 1)
        assert reply["state"] == state_of(monitor)
    assert monitor.alarm_at is not None
    assert server.show("a")["state"] == state_of(monitor)
    loaded = snapshot.decode(server.ask("GET", "/v1/streams/a/export").content)
    assert isinstance(loaded, ex.Monitor)
    assert loaded.update(0.5) == monitor.update(0.5)
    assert path.n[-1] == 700


def test_p_values_are_taken_as_they_are(server: Served) -> None:
    server.create("a", measure={"kind": "p-values"}, bet={"kind": "simple-mixture"})
    p = [float(value) for value in np.random.default_rng(2).beta(0.5, 1.0, 100)]
    monitor = ex.Monitor(ex.Precomputed(), bets.SimpleMixture())
    monitor.extend(p)
    assert server.take("a", numbered(p))["state"] == state_of(monitor)
    reply = server.send("a", numbered([0.0], 101))
    assert (reply.status_code, reply.json()["error"]) == (422, "bad-observation")
    assert "(0, 1]" in reply.json()["message"]
    assert server.show("a")["state"]["n"] == 100


@pytest.mark.parametrize("bet", BETS)
def test_every_bet_of_the_command_line_can_be_named(server: Served, bet: str) -> None:
    server.create("a", bet={"kind": bet})
    monitor = ex.Monitor(measures.Value(), BETS[bet]())
    monitor.extend(numbers(1, 60))
    assert server.take("a", numbered(numbers(1, 60)))["state"] == state_of(monitor)
    curve = server.ask("GET", "/v1/streams/a/bet").json()
    assert len(curve["density"]) == len(curve["p"]) == 101
    assert sum(curve["histogram"]) == sum(curve["recent"]) == 60
    assert curve["density"][50] == pytest.approx(math.exp(monitor.martingale.bet.log_density(curve["p"][50])))


def test_one_observation_comes_as_json(server: Served) -> None:
    server.create("a")
    reply = server.ask("POST", "/v1/streams/a/observations", content=b'{"seq": 1, "x": [2.5]}', headers=JSON)
    assert (reply.status_code, reply.json()["accepted"]) == (200, 1)
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": ""}):
        reply = server.ask("POST", "/v1/streams/a/observations", content=b'{"seq": 2, "x": 1}', headers=headers)
        assert (reply.status_code, reply.json()["error"]) == (415, "unsupported-media-type")


# ------------------------------------------------------------------ order is data


def test_a_repeat_is_counted_and_has_no_effect(server: Served) -> None:
    server.create("a")
    lines = numbered(numbers(1, 20), time=[f"2026-01-01T00:00:{i:02}Z" for i in range(20)])
    before = server.take("a", lines)
    for part in (lines, lines[3:9], lines[-1:]):
        again = server.take("a", part)
        assert (again["accepted"], again["duplicates"]) == (0, len(part))
        assert again["state"] == before["state"]
    over = server.take("a", [*lines[15:], {"seq": 21, "x": 0.5}, {"seq": 21, "x": 0.5}])
    assert (over["accepted"], over["duplicates"], over["next_seq"]) == (1, 6, 22)
    twice = server.take("a", [{"seq": 22, "x": 0.5}, {"seq": 22, "x": 0.5}])
    assert (twice["accepted"], twice["duplicates"], twice["next_seq"]) == (1, 1, 23)


@pytest.mark.parametrize(
    "other", [{"x": 9.0}, {"x": [1.0, 2.0]}, {"id": "b"}, {"time": 3.0}, {"y": "b"}, {"time": None}, {"y": 1}]
)
def test_another_observation_under_a_used_seq_is_refused(server: Served, other: dict[str, Any]) -> None:
    server.create("a")
    line = {"seq": 2, "x": 1.5, "y": "1", "id": "i", "time": 2.0}
    server.take("a", [{"seq": 1, "x": 0.5}, line])
    reply = server.send("a", [{**line, **other}])
    assert (reply.status_code, reply.json()["error"], reply.json()["seq"]) == (422, "different", 2)
    assert server.show("a")["next_seq"] == 3


def test_a_gap_is_refused_with_what_is_expected(server: Served) -> None:
    server.create("a")
    server.take("a", numbered(numbers(1, 5)))
    for lines in ([{"seq": 7, "x": 1.0}], [{"seq": 6, "x": 1.0}, {"seq": 8, "x": 1.0}]):
        reply = server.send("a", lines)
        assert (reply.status_code, reply.json()["error"]) == (409, "gap")
        assert reply.json()["expected_seq"] == (6 if len(lines) == 1 else 7)
        assert server.show("a")["next_seq"] == 6


def test_a_batch_is_taken_wholly_or_not_at_all(server: Served) -> None:
    server.create("a")
    before = server.take("a", numbered(numbers(1, 5)))
    good = numbered(numbers(2, 5), 6)
    for bad in ("{", '{"seq": 11}', '{"seq": 11, "x": NaN}', '{"seq": 11, "x": 1e999}', '{"seq": 11, "x": "a"}'):
        body = "\n".join([*map(json.dumps, good), bad])
        reply = server.ask("POST", "/v1/streams/a/observations", content=body, headers=NDJSON)
        assert reply.status_code in (400, 422)
        assert reply.json()["line"] == 6
    for bad_line in ({"seq": 11, "x": [1.0, 2.0]}, {"seq": 11, "x": []}, {"seq": 12, "x": 1.0}):
        assert server.send("a", [*good, bad_line]).status_code in (409, 422)
    assert server.show("a")["state"] == before["state"]
    assert server.take("a", good)["accepted"] == 5


def test_the_width_of_a_stream_is_fixed_by_its_first_observation(server: Served) -> None:
    server.create("a", measure={"kind": "nearest-distance", "cap": 100})
    server.take("a", numbered([[1.0, 2.0]]))
    reply = server.send("a", numbered([[1.0, 2.0, 3.0]], 2))
    assert (reply.status_code, reply.json()["message"]) == (422, "x must hold 2 numbers in stream 'a', got 3")


def test_a_pool_with_a_cap_refuses_more_until_it_is_reset(server: Served) -> None:
    server.create("a", measure={"kind": "nearest-distance", "cap": 10})
    server.take("a", numbered([[value] for value in numbers(1, 10)]))
    reply = server.send("a", numbered([[1.0]], 11))
    assert (reply.status_code, reply.json()["error"]) == (409, "full")
    server.ask("POST", "/v1/streams/a/reset")
    assert server.take("a", numbered([[1.0]], 11))["state"]["n"] == 11


def test_many_clients_at_once_keep_their_streams_apart(server: Served) -> None:
    """The bets of a group of requests are computed side by side; the numbers are those of each stream alone."""
    data = {f"s{k}": numbers(k, 300, change=150) for k in range(8)}
    for name in data:
        server.create(name, seed=4)
    failures: list[str] = []

    def send(name: str) -> None:
        for start in range(0, 300, 30):
            reply = server.send(name, numbered(data[name][start : start + 30], start + 1))
            if reply.status_code != 200:
                failures.append(reply.text)

    threads = [threading.Thread(target=send, args=(name,)) for name in data]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    for name, x in data.items():
        monitor = ex.Monitor(measures.Value(), seed=4)
        monitor.extend(x)
        assert server.show(name)["state"] == state_of(monitor)


# ------------------------------------------------------------------ labels that come late


def labelled(server: Served, **labels: Any) -> None:
    server.create("a", measure={"kind": "nearest-neighbour", "cap": 100}, labels=labels)


def two_classes(n: int) -> tuple[list[list[float]], list[str]]:
    rng = np.random.default_rng(6)
    return rng.normal(size=(n, 2)).tolist(), [str(label) for label in rng.integers(0, 2, n)]


def test_an_observation_waits_for_its_label_and_all_behind_it_wait_too(server: Served) -> None:
    labelled(server, most=5)
    x, y = two_classes(6)
    lines = numbered(x, y=y, id=[f"i{k}" for k in range(6)])
    del lines[2]["y"]
    taken = server.take("a", lines)
    assert (taken["accepted"], taken["waiting"], taken["state"]["n"], taken["next_seq"]) == (6, 4, 2, 7)
    shown = server.ask("GET", "/v1/streams/a/waiting").json()
    assert [(row["seq"], row["id"], row["labelled"]) for row in shown["waiting"]] == [
        (3, "i2", False),
        (4, "i3", True),
        (5, "i4", True),
        (6, "i5", True),
    ]
    assert (shown["total"], shown["limit"], shown["expired"]) == (4, 5, 0)
    assert server.take("a", lines)["duplicates"] == 6  # as sent, without the label
    reply = server.label("a", [{"id": "i2", "y": y[2]}]).json()
    assert (reply["accepted"], reply["waiting"], reply["state"]["n"]) == (1, 0, 6)
    monitor = ex.Monitor(measures.NearestNeighbour())
    monitor.extend(x, y)
    assert reply["state"] == state_of(monitor)
    assert server.take("a", lines)["duplicates"] == 6
    assert server.label("a", [{"id": "i2", "y": y[2]}]).json()["duplicates"] == 1
    assert server.label("a", [{"id": "i2", "y": "other"}]).status_code == 422
    unknown = server.label("a", [{"id": "nobody", "y": "1"}])
    assert (unknown.status_code, unknown.json()["error"], unknown.json()["ids"]) == (404, "unknown-id", ["nobody"])


def test_what_has_waited_too_long_is_set_aside_and_never_bet_on(server: Served) -> None:
    labelled(server, wait=2)
    x, y = two_classes(8)
    lines = numbered(x, y=y, id=[f"i{k}" for k in range(8)], time=range(8))
    for k in (1, 4):
        del lines[k]["y"]
    assert server.take("a", lines[:4])["waiting"] == 3
    taken = server.take("a", lines[4:5])  # more than 2 seconds later: the first that waits goes, and frees the others
    assert (taken["waiting"], taken["expired"], taken["state"]["n"]) == (1, 1, 3)
    assert server.label("a", [{"id": "i1", "y": y[1], "time": 5}]).json()["late"] == 1
    last = server.take("a", lines[5:])
    assert (last["waiting"], last["expired"], last["state"]["n"], last["next_seq"]) == (0, 2, 6, 9)
    kept = [k for k in range(8) if k not in (1, 4)]
    queue = ex.LateLabels(ex.Monitor(measures.NearestNeighbour()), wait=2)
    queue.monitor.extend([x[k] for k in kept], [y[k] for k in kept])
    queue.left_out.expired = 2
    assert last["state"] == {**state_of(queue.monitor), "guarantee": queue.guarantee}
    assert server.take("a", lines)["duplicates"] == 8
    changed = [{**lines[1], "x": [0.0, 0.0]}]
    assert server.send("a", changed).json()["error"] == "different"


def test_a_label_or_an_id_must_come_and_ids_that_wait_must_differ(server: Served) -> None:
    labelled(server)
    reply = server.send("a", [{"seq": 1, "x": [1.0]}])
    assert (reply.status_code, "y must be given" in reply.json()["message"]) == (422, True)
    reply = server.send("a", [{"seq": 1, "x": [1.0], "id": "i"}, {"seq": 2, "x": [1.0], "id": "i"}])
    assert (reply.status_code, "id must be new in stream" in reply.json()["message"]) == (422, True)
    assert server.show("a")["next_seq"] == 1
    server.create("b")
    assert server.label("b", [{"id": "i", "y": 1}]).status_code == 409


def test_an_id_is_used_once_so_that_a_label_sent_again_finds_no_other(server: Served) -> None:
    labelled(server)
    server.take("a", [{"seq": 1, "x": [1.0], "id": "i"}])
    assert server.label("a", [{"id": "i", "y": "1"}]).json()["accepted"] == 1
    server.take("a", [{"seq": 2, "x": [2.0], "y": "1", "id": "k"}])
    for name in ("i", "k"):
        reply = server.send("a", [{"seq": 3, "x": [3.0], "id": name}])
        assert (reply.status_code, reply.json()["seq"]) == (422, 3)
        assert server.label("a", [{"id": name, "y": "1"}]).json()["duplicates"] == 1


@pytest.mark.parametrize("line", [{"x": [1e200]}, {"x": [1.0], "y": 1e200}, {"x": [1.0], "y": "text"}])
def test_what_could_not_be_ranked_later_does_not_get_into_the_queue(server: Served, line: dict[str, Any]) -> None:
    server.create("a", measure={"kind": "nearest-residual", "cap": 100})
    server.take("a", [{"seq": 1, "x": [1.0], "id": "i"}])
    assert server.send("a", [{"seq": 2, "id": "k", **line}]).status_code == 422
    assert server.take("a", [{"seq": 2, "x": [1.0], "y": 2.0}])["waiting"] == 2
    assert server.label("a", [{"id": "i", "y": 1.0}]).json()["state"]["n"] == 2


def test_a_reset_sets_aside_what_waits(server: Served) -> None:
    server.create("a", measure={"kind": "nearest-neighbour", "cap": 3})
    server.take("a", [{"seq": k, "x": [1.0], "id": f"i{k}"} for k in (1, 2, 3)])
    assert server.send("a", [{"seq": 4, "x": [1.0], "y": "1"}]).json()["error"] == "full"
    after = server.ask("POST", "/v1/streams/a/reset").json()
    assert (after["waiting"], after["expired"]) == (0, 0)  # they belong to the test before
    assert server.take("a", [{"seq": 4, "x": [1.0], "y": "1"}])["state"]["n"] == 1
    assert server.label("a", [{"id": "i1", "y": "1"}]).json()["late"] == 1


def test_waiting_survives_a_restart(tmp_path: Path) -> None:
    x, y = two_classes(6)
    lines = numbered(x, y=y, id=[f"i{k}" for k in range(6)])
    del lines[0]["y"]
    with served(tmp_path / "s.db") as server:
        labelled(server)
        server.take("a", lines)
    with served(tmp_path / "s.db") as server:
        assert server.show("a")["waiting"] == 6
        reply = server.label("a", [{"id": "i0", "y": y[0]}]).json()
    monitor = ex.Monitor(measures.NearestNeighbour())
    monitor.extend(x, y)
    assert reply["state"] == state_of(monitor)


# ------------------------------------------------------------------ alarms, resets, history


def test_a_reset_begins_a_new_test_and_the_order_goes_on(server: Served) -> None:
    server.create("a", bet={"kind": "simple-mixture"}, seed=2)
    server.take("a", numbered(range(200)))
    assert server.show("a")["state"]["alarm"]
    after = server.ask("POST", "/v1/streams/a/reset").json()
    assert (after["state"]["n"], after["state"]["alarm"], after["state"]["log10_martingale"]) == (200, False, 0.0)
    assert (after["next_seq"], after["since"], after["resets"], after["alarms"]) == (201, 200, 1, 1)
    assert after["state"]["p"] is None
    taken = server.take("a", numbered([1.0] * 30, 201))
    monitor = ex.Monitor(measures.Value(), bets.SimpleMixture(), seed=2, start=200)
    monitor.extend([1.0] * 30)
    assert taken["state"] == state_of(monitor)
    marks = server.ask("GET", "/v1/streams/a/history").json()["marks"]
    assert [(mark["kind"], mark["n"]) for mark in marks] == [("alarm", marks[0]["n"]), ("reset", 200)]
    assert sum(server.ask("GET", "/v1/streams/a/bet").json()["histogram"]) == 30


def test_history_is_exact_when_short_and_keeps_lows_and_highs_when_long(server: Served) -> None:
    server.create("a", bet={"kind": "simple-mixture"})
    x = numbers(3, 3000, change=2000)
    server.take("a", numbered(x))
    log10 = ex.Monitor(measures.Value(), bets.SimpleMixture()).extend(x).log_value / LN10
    short = server.ask("GET", "/v1/streams/a/history", params={"from": 100, "to": 160}).json()
    assert (short["exact"], short["n"]) == (True, list(range(100, 161)))
    assert short["log10"] == log10[99:160].tolist()
    thin = server.ask("GET", "/v1/streams/a/history", params={"max_points": 50}).json()
    assert not thin["exact"]
    assert len(thin["n"]) <= 50
    assert min(thin["log10"]) == log10.min()
    assert max(thin["log10"]) == log10.max()
    assert thin["log10"] == [log10[n - 1] for n in thin["n"]]
    assert (thin["n"][0], thin["n"][-1], thin["stop"]) == (1, 3000, 3000)
    values = server.ask("GET", "/v1/streams/a/values", params={"max_points": 50}).json()
    assert (min(values["value"]), max(values["value"]), values["exact"], values["width"]) == (min(x), max(x), False, 1)
    assert values["value"] == [x[n - 1] for n in values["n"]]
    some = server.ask("GET", "/v1/streams/a/values", params={"from": 100, "to": 160, "times": True}).json()
    assert (some["exact"], some["value"]) == (True, x[99:160])
    assert all(0 <= time.time() - arrived < 600 for arrived in some["arrived"])
    assert some["time"] == [None] * 61


def test_times_of_observations_are_in_the_history(server: Served) -> None:
    server.create("a")
    server.take("a", [{"seq": k, "x": k, "time": 1000.0 + 60 * k} for k in range(1, 101)])
    server.ask("DELETE", "/v1/streams/a")
    server.create("a")  # its own times are those of the new stream
    server.take("a", [{"seq": k, "x": k, "time": 60.0 * k} for k in range(1, 101)])
    shown = server.ask("GET", "/v1/streams/a/history", params={"times": True}).json()
    assert shown["time"] == [60.0 * k for k in range(1, 101)]
    assert "time" not in server.ask("GET", "/v1/streams/a/history").json()


def test_fleet_is_the_librarys_rule(server: Served) -> None:
    assert server.ask("GET", "/v1/fleet").json()["found"] == []
    for k in range(5):
        server.create(f"s{k}")
        server.take(f"s{k}", numbered(range(100) if k < 2 else numbers(k, 100)))
    for method in ("adjusted", "current"):
        reply = server.ask("GET", "/v1/fleet", params={"alpha": 0.05, "method": method}).json()
        states = {f"s{k}": server.show(f"s{k}")["state"] for k in range(5)}
        if method == "adjusted":
            peaks = ex.fleet.adjusted([state["log10_max"] * LN10 for state in states.values()])
            evidence = dict(zip(states, (peaks - math.log(2.0)).tolist(), strict=True))
        else:
            evidence = {name: state["log10_martingale"] * LN10 - math.log(2.0) for name, state in states.items()}
        assert [row["name"] for row in reply["found"]] == ex.fleet.e_bh(evidence, 0.05, joined=[1, 2, 3, 4, 5]).names
        assert {row["name"] for row in reply["found"]} == {"s0", "s1"}
    assert server.ask("GET", "/v1/fleet", params={"alpha": 1.5}).status_code == 422


# ------------------------------------------------------------------ restart, retention


def test_fleet_carries_evidence_over_restarts_and_forgets_it_at_a_reset(server: Served) -> None:
    """The capital of a restarted test is no e-value of the stream: a restart may lift it. The product of all is."""
    configuration = {"bet": {"kind": "power"}, "alarm": {"kind": "cusum", "period": 5}, "on_alarm": "restart"}
    server.create("a", measure={"kind": "p-values"}, **configuration)
    p = [float(value) for value in np.random.default_rng(4).beta(0.8, 1.0, 600)]
    for start in range(0, 600, 100):
        server.take("a", numbered(p[start : start + 100], start + 1))
    assert server.show("a")["alarms"] > 3
    total = np.cumsum([bets.Power(0.92).log_density(value) for value in p])  # the bet does not learn: one product
    for method, evidence in (("current", total[-1]), ("adjusted", ex.fleet.adjusted([total.max(initial=0.0)])[0])):
        reply = server.ask("GET", "/v1/fleet", params={"alpha": 0.999, "method": method}).json()
        assert [row["log10_e"] * LN10 for row in reply["found"]] == [pytest.approx(evidence - math.log(2.0))]
    server.ask("POST", "/v1/streams/a/reset")
    assert server.ask("GET", "/v1/fleet", params={"alpha": 0.9}).json()["found"] == []
    server.take("a", numbered([0.001] * 50, 601))  # a second test, which counts a sixth
    gained = 50 * bets.Power(0.92).log_density(0.001)
    reply = server.ask("GET", "/v1/fleet", params={"alpha": 0.999, "method": "current"}).json()
    assert [row["log10_e"] * LN10 for row in reply["found"]] == [pytest.approx(gained - math.log(6.0))]


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_a_stopped_server_goes_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    configuration, make = CONFIGURATIONS[kind]
    settings = Settings(snapshot_every=100, live_streams=1)
    x = numbers(5, 900, change=500)
    monitor = make()
    for start in range(0, 900, 300):
        with served(tmp_path / "s.db", settings) as server:
            server.create("other")  # with room for one stream in memory, the two put each other to rest
            server.create("a", **configuration)
            for first in range(start, start + 300, 60):
                taken = server.take("a", numbered(x[first : first + 60], first + 1))
                server.ask("POST", "/v1/streams/other/reset")
        monitor.extend(x[start : start + 300])
        assert taken["state"] == state_of(monitor)


def test_a_stream_that_cannot_be_resumed_is_refused_but_can_be_reset_or_deleted(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        for name in ("a", "b", "c", "d"):
            server.create(name, bet={"kind": "simple-mixture"})
            server.take(name, numbered(range(100)))
    with closing(open_database(tmp_path / "s.db")) as connection:
        connection.execute("UPDATE main.snapshots SET data = x'00' WHERE stream = 1")
        connection.execute("UPDATE main.snapshots SET data = x'' WHERE stream = 2")
        connection.execute("DELETE FROM main.snapshots WHERE stream = 4")
        words = connection.execute("SELECT state FROM streams WHERE name = 'c'").fetchone()[0].replace("exch", "Exch")
        connection.execute("UPDATE main.streams SET state = ? WHERE name = 'c'", (words,))
    with served(tmp_path / "s.db") as server:
        for name in ("a", "b"):
            reply = server.send(name, numbered([1.0], 101))
            assert (reply.status_code, reply.json()["error"]) == (503, "storage")
            assert server.show(name)["state"]["n"] == 100
        assert server.take("c", numbered([1.0], 101))["state"]["n"] == 101  # another sentence is no other state
        assert server.take("d", numbered([1.0], 101))["state"]["n"] == 101  # replayed from its first step
        after = server.ask("POST", "/v1/streams/a/reset").json()
        assert (after["state"]["n"], after["state"]["alarm"], after["next_seq"]) == (100, False, 101)
        assert server.take("a", numbered([1.0], 101))["state"]["n"] == 101
        assert server.ask("DELETE", "/v1/streams/b").status_code == 204
        assert server.ask("GET", "/v1/streams/b").status_code == 404


def test_a_stream_whose_rows_are_damaged_can_be_deleted(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        for name in ("a", "b"):
            server.create(name, bet={"kind": "simple-mixture"})
            server.take(name, numbered(range(100)))
    with closing(open_database(tmp_path / "s.db")) as connection:
        connection.execute("DELETE FROM main.steps WHERE stream = 1")
        connection.execute(
            "UPDATE main.streams SET configuration = replace(configuration, 'ville', 'none') WHERE id = 2"
        )
    with served(tmp_path / "s.db") as server:
        for name, expected in (
            ("a", (503, "storage")),
            ("b", (500, "damaged")),
        ):  # its configuration is not the stored one
            for reply in (server.send(name, numbered([1.0], 101)), server.ask("POST", f"/v1/streams/{name}/reset")):
                assert (reply.status_code, reply.json()["error"]) == expected
            assert server.ask("DELETE", f"/v1/streams/{name}").status_code == 204
        assert server.ask("GET", "/v1/streams").json()["total"] == 0


def test_the_state_never_depends_on_what_was_pruned(tmp_path: Path) -> None:
    settings = Settings(snapshot_every=1000, retention=Retention(observations=2000))
    x = numbers(5, 60_000)
    with served(tmp_path / "s.db", settings) as server:
        server.create("a", bet={"kind": "simple-mixture"})
        for start in range(0, 60_000, 10_000):
            server.take("a", numbered(x[start : start + 10_000], start + 1))
        with server.app.state.store.read() as connection:
            (kept,) = connection.execute("SELECT sum(count) FROM steps").fetchone()
        assert kept < 40_000
        reply = server.take("a", numbered(x[:100]))  # pruned: can only be believed
        assert reply["duplicates"] == 100
        thin = server.ask("GET", "/v1/streams/a/history", params={"max_points": 100}).json()
        assert thin["n"][0] <= 1024
    with served(tmp_path / "s.db", settings) as server:
        taken = server.take("a", numbered([0.5], 60_001))
    monitor = ex.Monitor(measures.Value(), bets.SimpleMixture())
    monitor.extend([*x, 0.5])
    assert taken["state"] == state_of(monitor)


# ------------------------------------------------------------------ overload and small things


def test_overload_is_429_with_retry_after(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(limits=Limits(queue_rows=10))) as server:
        server.create("a")
        engine = server.app.state.engine
        gate, entered = threading.Event(), threading.Event()

        def block(connection: object) -> None:
            entered.set()
            gate.wait(30)

        engine.write(block)
        entered.wait(30)
        first = threading.Thread(target=server.take, args=("a", numbered(range(8))))
        first.start()
        while engine.queued_rows < 8:
            pass
        reply = server.send("a", numbered(range(5), 9))
        gate.set()
        first.join()
        assert (reply.status_code, reply.json()["error"]) == (429, "overload")
        assert int(reply.headers["Retry-After"]) >= 1
        assert server.take("a", numbered(range(5), 9))["accepted"] == 5


def test_operation_routes(server: Served) -> None:
    assert server.ask("GET", "/healthz").json() == {"status": "ok"}
    assert server.ask("GET", "/readyz").json() == {"status": "ok"}
    assert server.ask("GET", "/v1/alerts").json() == {"pending": 0, "dead": 0, "alerts": []}
    server.create("a")
    server.send("a", numbered([1.0], 5))
    text = server.ask("GET", "/metrics").text
    assert 'exchangeable_rejects_total{reason="gap"} 1.0' in text
    assert server.ask("GET", "/no/such/path").json()["error"] == "not-found"
    assert server.ask("POST", "/healthz").json()["error"] == "method-not-allowed"


# ------------------------------------------------------------------ events


def events(lines: Iterator[str], wanted: int) -> list[tuple[str, dict[str, Any], str | None]]:
    found: list[tuple[str, dict[str, Any], str | None]] = []
    kind, place = "", None
    for line in lines:
        if line.startswith("event: "):
            kind, place = line[7:], None
        elif line.startswith("id: "):
            place = line[4:]
        elif line.startswith("data: "):
            found.append((kind, json.loads(line[6:]), place))
            if len(found) == wanted:
                break
    return found


def test_events_tell_of_steps_resets_and_the_end(server: Served) -> None:
    server.create("a", bet={"kind": "simple-mixture"})
    server.take("a", numbered(numbers(1, 10)))
    with server.http.stream("GET", "/v1/streams/a/events") as stream:
        lines = stream.iter_lines()
        assert [kind for kind, _, _ in events(lines, 1)] == ["state"]
        server.take("a", numbered(numbers(2, 500), 11))
        server.ask("POST", "/v1/streams/a/reset")
        server.ask("DELETE", "/v1/streams/a")
        (steps, reset, gone) = events(lines, 3)
    assert (steps[0], steps[2], steps[1]["first"], steps[1]["last"]) == ("steps", "510", 11, 510)
    assert len(steps[1]["n"]) <= 200
    assert (reset[0], reset[1]["stream"]["since"]) == ("reset", 510)
    assert gone[0] == "gone"
    assert server.ask("GET", "/v1/streams/a/events").status_code == 404


def test_events_resume_after_the_last_one_seen(server: Served) -> None:
    server.create("a", bet={"kind": "simple-mixture"})
    server.take("a", numbered(numbers(1, 100)))
    with server.http.stream("GET", "/v1/streams/a/events", headers={"Last-Event-ID": "40"}) as stream:
        ((kind, data, place),) = events(stream.iter_lines(), 1)
    assert (kind, place, data["n"]) == ("steps", "100", list(range(41, 101)))


def test_events_of_all_streams_are_told_together(server: Served) -> None:
    server.create("a")
    with server.http.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        server.create("b")
        server.take("a", numbered([1.0, 2.0]))
        server.take("a", numbered([3.0], 3))
        seen: dict[str, Any] = {}
        while seen.get("a", {}).get("state", {}).get("n") != 3:
            ((_, data, _),) = events(lines, 1)
            seen.update({one["name"]: one for one in data["streams"]})
    assert seen["b"]["state"]["n"] == 0
    assert seen["a"]["tail"]["n"][-1] == 3


def test_there_is_a_limit_to_the_readers_of_events(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(limits=Limits(events_readers=1))) as server:
        server.create("a")
        with server.http.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()  # held: a generator that is thrown away would end the request
            next(lines)
            reply = server.ask("GET", "/v1/streams/a/events")
            assert (reply.status_code, reply.json()["error"]) == (429, "overload")


def test_the_current_bet_is_shown_where_recent_steps_are_pruned(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(snapshot_every=100, retention=Retention(observations=0))) as server:
        server.create("a", bet={"kind": "power"})
        for start in range(0, 20_000, 5000):
            server.take("a", numbered(numbers(1, 5000), start + 1))
        curve = server.ask("GET", "/v1/streams/a/bet").json()
        assert sum(curve["histogram"]) == 20_000
        assert 0 < sum(curve["recent"]) <= 1024
