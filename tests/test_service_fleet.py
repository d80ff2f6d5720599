"""The fleet of the server: names join once, deletion frees nothing, and no sequence of requests breaks the promise."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import exchangeable as ex
from exchangeable import bets
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.run import ServeError, serve
from exchangeable.service.server_config import Retention, Settings
from exchangeable.service.stream_config import parse_configuration
from serving import Served, numbered, served

LN10 = math.log(10.0)
GIVEN: dict[str, Any] = {"measure": {"kind": "p-values"}, "bet": {"kind": "power"}}
LOW = 50 * bets.Power(0.92).log_density(0.001)  # what 50 p-values of 0.001 gain


def loud(server: Served, name: str, start: int = 1) -> None:
    server.take(name, numbered([0.001] * 50, start))


def look(server: Served, **params: Any) -> dict[str, Any]:
    reply = server.ask("GET", "/v1/fleet", params={"method": "current", **params})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def evidence(reply: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the position, the number of the test and the log evidence of the streams found."""
    return {row["name"]: (row["joined"], row["test"], row["log10_e"] * LN10) for row in reply["found"]}


def counts(reply: dict[str, Any]) -> tuple[str, int, int, int | None]:
    return reply["rule"], reply["streams"], reply["deleted"], reply["fleet_size"]


# ------------------------------------------------------------------ the promise, whoever tries

ALPHA, STEPS, TRIES = 0.3, 100, 25


def lucky(rng: np.random.Generator) -> list[float]:
    """Uniform p-values, up to where a fair gambler has what one first test of one stream needs, or no time is left."""
    p = rng.random(STEPS)
    path = ex.Martingale(bets.Histogram()).extend(p)
    high = np.flatnonzero(path >= math.log(2.0 / ALPHA) + 1e-9)
    return [float(value) for value in p[: high[0] + 1 if high.size else STEPS]]


def capital(p: list[float]) -> float:
    return float(ex.Martingale(bets.Histogram()).extend(np.array(p))[-1])


def batch(p: list[float]) -> Batch:
    return Batch(np.arange(1, len(p) + 1), np.array(p).reshape(-1, 1), Extras())


CANDIDATE = parse_configuration({"measure": {"kind": "p-values"}, "bet": {"kind": "histogram"}})


def best_of_many(server: Served, rng: np.random.Generator) -> bool:
    """Create many streams of which none has changed, delete all but the best, and query the fleet."""
    engine, given = server.app.state.engine, {f"s{i}": lucky(rng) for i in range(TRIES)}
    for jobs in (
        [engine.create(name, CANDIDATE) for name in given],
        [engine.observe(name, batch(p)) for name, p in given.items()],
        [engine.delete(name) for name in sorted(given, key=lambda name: capital(given[name]))[:-1]],
    ):
        for job in jobs:
            job.result(60)
    return bool(look(server, alpha=ALPHA)["found"])


def again_and_again(server: Served, rng: np.random.Generator) -> bool:
    """Create a stream, query the fleet, delete it, and create it again, until it is found."""
    for _ in range(TRIES):
        engine = server.app.state.engine
        engine.create("s", CANDIDATE).result(60)
        engine.observe("s", batch(lucky(rng))).result(60)
        if look(server, alpha=ALPHA)["found"]:
            return True
        engine.delete("s").result(60)
    return False


@pytest.mark.parametrize("runs", [7, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("attempt", "size"), [(best_of_many, None), (best_of_many, TRIES), (again_and_again, None)])
def test_deletions_do_not_lead_to_false_discoveries(tmp_path: Path, attempt: Any, size: int | None, runs: int) -> None:
    """When deleted streams were forgotten, each of these attempts succeeded in nearly all runs, at a nominal 30 %."""
    count = 0
    for run in range(runs):
        with served(tmp_path / f"{run}.db", Settings(fleet_size=size)) as server:
            count += attempt(server, np.random.default_rng([run, 16]))
    assert binomtest(count, runs, ALPHA, alternative="greater").pvalue > 1e-3


# ------------------------------------------------------------------ positions and tests


def test_a_name_keeps_its_position_and_its_tests_over_deletion(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        assert counts(look(server)) == ("joined", 0, 0, None)
        for name in ("a", "b", "c"):
            server.create(name, **GIVEN)
            loud(server, name)
        assert evidence(look(server)) == {
            name: (j, 1, pytest.approx(LOW - math.log(2.0))) for j, name in enumerate("abc", 1)
        }
        server.ask("POST", "/v1/streams/b/reset")
        loud(server, "b", 51)
        for name in ("a", "b"):
            server.ask("DELETE", f"/v1/streams/{name}")
        assert counts(look(server)) == ("joined", 1, 2, None)
        server.create("d", **GIVEN)
        server.create("b", **GIVEN, seed=7)  # another configuration is still the same name
        for name in ("d", "b"):
            loud(server, name)
        reply = look(server)
        assert counts(reply) == ("joined", 3, 1, None)
        assert evidence(reply) == {
            "c": (3, 1, pytest.approx(LOW - math.log(2.0))),
            "d": (4, 1, pytest.approx(LOW - math.log(2.0))),
            "b": (2, 3, pytest.approx(LOW - math.log(12.0))),  # the third test: 1/(3 * 4)
        }
        assert reply["log10_threshold"] == pytest.approx(-math.log10(0.05 * 3))
        server.ask("DELETE", "/v1/streams/b")
        server.create("b", **GIVEN)
        server.ask("POST", "/v1/streams/b/reset")
        loud(server, "b")
        assert evidence(look(server))["b"] == (2, 5, pytest.approx(LOW - math.log(30.0)))


def test_the_rule_is_the_librarys_with_weights(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        for i in range(12):
            server.create(f"s{i}", **GIVEN)
            server.take(f"s{i}", numbered([0.001] * (8 * i + 8)))
        for i in (1, 4):
            server.ask("DELETE", f"/v1/streams/s{i}")
        places = {f"s{i}": i + 1 for i in range(12) if i not in (1, 4)}
        missed = 0
        for method in ("current", "adjusted"):
            logs = np.array([8 * place * bets.Power(0.92).log_density(0.001) for place in places.values()])
            values = (logs if method == "current" else ex.fleet.adjusted(logs)) - math.log(2.0)
            for alpha in (0.001, 0.05, 0.5):
                rule = ex.fleet.e_bh(dict(zip(places, values, strict=True)), alpha, joined=places)
                reply = look(server, alpha=alpha, method=method)
                assert [row["name"] for row in reply["found"]] == rule.names
                assert reply["log10_threshold"] == rule.log_threshold / LN10
                alarms = {one["name"] for one in server.ask("GET", "/v1/streams").json()["streams"] if one["alarms"]}
                assert {row["name"] for row in reply["missed"]} == alarms - {*rule.names}
                assert reply["missed_count"] == len(reply["missed"])
                missed += len(reply["missed"])
                for row in reply["missed"]:
                    for nudge, enough in ((1e-9, True), (-1e-9, False)):
                        changed = dict(zip(places, values, strict=True))
                        assert changed[row["name"]] == pytest.approx(row["log10_e"] * LN10)
                        changed[row["name"]] = row["log10_needed"] * LN10 + nudge
                        assert (row["name"] in ex.fleet.e_bh(changed, alpha, joined=places).names) == enough
        assert "1/(j (j + 1))" in reply["promise"]
        assert missed > 0


def test_the_fleet_survives_restart_pruning_and_backup(tmp_path: Path) -> None:
    settings = Settings(snapshot_every=10, retention=Retention(observations=0, rollups=0), live_streams=1)
    with served(tmp_path / "s.db", settings) as server:
        for name in ("a", "b", "c"):
            server.create(name, **GIVEN)
            loud(server, name)
        server.ask("DELETE", "/v1/streams/b")
        said = look(server)
    with served(tmp_path / "s.db", settings) as server:
        assert look(server) == said
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.execute(f"VACUUM INTO '{tmp_path / 'copy.db'}'")
    with served(tmp_path / "copy.db") as server:
        assert look(server) == said
        server.create("b", **GIVEN)
        server.create("d", **GIVEN)
        loud(server, "b")
        loud(server, "d")
        assert {name: row[:2] for name, row in evidence(look(server)).items()} == {
            "a": (1, 1), "b": (2, 2), "c": (3, 1), "d": (4, 1),
        }  # fmt: skip


def test_a_refused_stream_does_not_join(tmp_path: Path) -> None:
    with served(tmp_path / "s.db") as server:
        server.create("a", **GIVEN)
        assert server.ask("PUT", "/v1/streams/b", json={"bet": {"kind": "none"}}).status_code == 422
        assert server.ask("PUT", "/v1/streams/a", json=GIVEN).status_code == 200
        server.create("c", **GIVEN)
        loud(server, "c")
        assert evidence(look(server)) == {"c": (2, 1, pytest.approx(LOW - math.log(2.0)))}


# ------------------------------------------------------------------ a size fixed in advance


def test_the_size_of_the_fleet_is_fixed_by_the_first_stream(tmp_path: Path) -> None:
    database = tmp_path / "s.db"
    with served(database, Settings(fleet_size=7)) as server:
        assert counts(look(server)) == ("fixed", 0, 0, 7)
    with served(database, Settings(fleet_size=3)) as server:  # nothing has joined: it may be changed
        server.create("a", **GIVEN)
        loud(server, "a")
        server.create("b", **GIVEN)
        reply = look(server)
        assert counts(reply) == ("fixed", 2, 0, 3)
        assert reply["log10_threshold"] == pytest.approx(math.log10(3 / 0.05))
        assert "fixed in advance at 3 names" in reply["promise"]
    with served(database) as server:  # it is stored: a setting that is left out changes nothing
        server.ask("DELETE", "/v1/streams/b")
        server.create("c", **GIVEN)
        full = server.ask("PUT", "/v1/streams/d", json=GIVEN)
        assert (full.status_code, full.json()["error"]) == (409, "too-many-streams")
        assert "fixed at 3 names, deleted ones included" in full.json()["message"]
        server.create("b", **GIVEN)
        loud(server, "b")
        assert evidence(look(server))["b"][:2] == (2, 2)
        assert counts(look(server)) == ("fixed", 3, 0, 3)


@pytest.mark.parametrize(("first", "then", "said"), [(3, 4, "with fleet_size = 3, got 4"), (None, 4, "without a size")])
def test_another_size_is_refused_at_the_start(tmp_path: Path, first: int | None, then: int, said: str) -> None:
    with served(tmp_path / "s.db", Settings(fleet_size=first)) as server:
        server.create("a", **GIVEN)
    with pytest.raises(ServeError, match=f"^fleet_size cannot be changed after the first stream has joined: .*{said}"):
        serve(tmp_path / "s.db", "127.0.0.1", 0, Settings(fleet_size=then), page=False)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "5"])
def test_a_bad_size_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=r"^fleet_size must be "):
        Settings(fleet_size=size)
