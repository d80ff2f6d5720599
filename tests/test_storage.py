"""Damage and loss are noticed: checksums, `exchangeable verify`, backups, restores, migrations, removed files."""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

from exchangeable import Monitor, alarms, bets, measures, snapshot
from exchangeable.cli import program
from exchangeable.service import checksums, copying, fleet, history, schema, store, verify
from exchangeable.service.backup import DamagedError, backup, restore
from exchangeable.service.engine import Engine
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.problems import Problem
from exchangeable.service.routes.monitoring import _marks
from exchangeable.service.routes.replies import read_stream
from exchangeable.service.server_config import Retention, Settings
from exchangeable.service.store import Store, StoreError, open_database
from exchangeable.service.stream_config import parse_configuration
from exchangeable.service.stream_summary import SUMMARY_COLUMNS, describe_stream
from servers import NDJSON, Server, lines
from serving import NDJSON as JSON_LINES
from serving import numbered, served

RNG = np.random.default_rng(3)
X = RNG.normal(size=70_000).round(3)
X[500:1500] += 2.0
STREAMS: dict[str, dict[str, Any]] = {
    "frozen": {
        "measure": {"kind": "frozen", "reference": [k / 50 for k in range(50)], "bins": 8},
        "bet": {"kind": "simple-jumper"},
        "seed": 1,
    },
    "restarting": {
        "bet": {"kind": "simple-mixture"},
        "alarm": {"kind": "cusum", "period": 30},
        "on_alarm": "restart",
        "seed": 2,
    },
    "near": {"measure": {"kind": "nearest-neighbour"}, "seed": 3},
}


def observe(engine: Engine, name: str, x: Any, first: int = 1, **extras: Any) -> None:
    table = np.asarray(x, np.float64).reshape(len(x), -1)
    engine.observe(name, Batch(np.arange(first, first + len(x)), table, Extras(**extras))).result(60)


def make(path: Path, settings: Settings | None = None, count: int = 5000) -> None:
    """A database with streams of several kinds, one of them reset in the middle."""
    with closing(Store(path)) as opened:
        engine = Engine(opened, settings or Settings(), lambda events, alerted: None)
        engine.start()
        for name, configuration in STREAMS.items():
            engine.create(name, parse_configuration(configuration)).result(60)
        for start in range(0, count, 1000):
            for name in ("frozen", "restarting"):
                observe(engine, name, X[start : start + 1000], start + 1)
            if start == 1000:
                engine.reset("restarting").result(60)
        observe(engine, "near", X[:40], y=["a", "b"] * 20)
        engine.stop()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "s.db"
    make(path)
    return path


@pytest.fixture
def database(made: Path, tmp_path: Path) -> Path:
    shutil.copy(made, tmp_path / "s.db")
    return tmp_path / "s.db"


# ------------------------------------------------------------------ bit flips


def answer(connection: sqlite3.Connection, name: str) -> Any:
    """What the server answers about a stream: its description, and its history in several ranges."""
    id_, _, stream = read_stream(connection, name)
    ranges = [(1, 5000, 10_000), (1, 5000, 20), (700, 2300, 300), (4990, 5000, 100)]
    points = [history.read(connection, id_, *some) for some in ranges]
    shown = [(part.n.tolist(), part.log10.tolist(), repr(part.p.tolist()), part.exact) for part in points]
    return [describe_stream(connection, name), stream, shown, _marks(connection, id_, 1, 5000)]


def overview(connection: sqlite3.Connection) -> Any:
    """What the server answers about all streams."""
    query = f"SELECT {SUMMARY_COLUMNS} FROM streams WHERE instr(name, '') > 0 ORDER BY alarm DESC, log10 DESC, name"
    return connection.execute(query).fetchall(), fleet.report(connection, 0.05, "adjusted", None)


def answers(path: Path) -> dict[str, Any]:
    """All answers; None where one is refused."""
    found: dict[str, Any] = dict.fromkeys([*STREAMS, "all"])
    try:
        opened = Store(path)
    except StoreError:
        return found
    with closing(opened):
        for name in found:
            try:
                with opened.read() as connection:
                    found[name] = overview(connection) if name == "all" else answer(connection, name)
            except (Problem, sqlite3.Error) as error:
                found[name] = "not found" if getattr(error, "status", 0) == 404 else None
            opened._readers.clear()
    return found


def flipped(made: Path, path: Path, rng: random.Random) -> Path:
    data = bytearray(made.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return path


def is_sound(path: Path) -> bool:
    try:
        return not verify.verify(path).damage
    except StoreError:
        return False


@pytest.mark.parametrize("flips", [200, pytest.param(5000, marks=pytest.mark.soak)])
def test_a_flipped_bit_never_changes_an_answer_silently(made: Path, tmp_path: Path, flips: int) -> None:
    """Whatever bit of the file flips, each answer is the same or refused; `verify` finds each flip that matters."""
    rng, right = random.Random(flips), answers(made)
    assert all(right.values())
    refused = 0
    for k in range(flips):
        now = answers(flipped(made, tmp_path / "s.db", rng))
        assert [name for name, value in now.items() if value not in (None, right[name])] == [], k
        if now != right:
            refused += 1
            assert not is_sound(tmp_path / "s.db"), k
    assert refused > flips // 10


def test_without_checksums_some_answers_change(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, right = random.Random(1), answers(made)
    monkeypatch.setattr(checksums, "install", lambda connection: None)
    found = [answers(flipped(made, tmp_path / "s.db", rng)) for _ in range(40)]
    assert sum(any(value not in (None, right[name]) for name, value in one.items()) for one in found) >= 4


# ------------------------------------------------------------------ damage in a server


def damage_row(path: Path, change: str) -> None:
    """Change stored rows behind the back of the checksums, as a disk does."""
    with closing(sqlite3.connect(path)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(change)
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE steps SET p = zeroblob(length(p)) WHERE stream = 1 AND first = 1001",
        "UPDATE steps SET extra = '{}' WHERE stream = 1 AND first = 1001",
        "UPDATE rollups SET high = high + 1 WHERE stream = 1 AND first = 1025",
        "UPDATE streams SET state = replace(state, '\"n\":5000', '\"n\":4999') WHERE id = 1",
        "UPDATE streams SET configuration = replace(configuration, '8', '9') WHERE id = 1",
        "DELETE FROM steps WHERE stream = 1 AND first = 2001",
        "DELETE FROM steps WHERE stream = 1 AND first = 4001",
        "DELETE FROM rollups WHERE stream = 1 AND first = 1025",
        "UPDATE snapshots SET data = CAST(data || x'00' AS BLOB) WHERE stream = 1",
    ],
)
def test_a_damaged_stream_is_refused_and_named_and_others_go_on(database: Path, change: str) -> None:
    damage_row(database, change)
    report = verify.verify(database, None)
    assert report.damage
    assert all("'frozen'" in found for found in report.damage)
    with served(database) as server:
        urls = (
            "/v1/streams/frozen",
            "/v1/streams/frozen/history?max_points=4",
            "/v1/streams/frozen/history?max_points=10000",
        )
        replies = [server.ask("GET", url) for url in urls]
        replies.append(server.send("frozen", numbered([0.5], 5001)))
        refused = [reply.json() for reply in replies if reply.status_code >= 500]
        assert refused
        assert all("stream 'frozen'" in reply["message"] for reply in refused)
        assert {reply["error"] for reply in refused} <= {"damaged", "storage"}
        assert server.ask("GET", "/v1/streams/restarting/history").status_code == 200
        assert server.take("restarting", numbered([0.5], 5001))["accepted"] == 1
        assert server.ask("GET", "/readyz").status_code == 200
        metrics = server.ask("GET", "/metrics").text
        if any(reply["error"] == "damaged" for reply in refused):
            assert 'exchangeable_rejects_total{reason="damaged"} 0.0' not in metrics
        assert server.ask("DELETE", "/v1/streams/frozen").status_code == 204
        listed = server.ask("GET", "/v1/streams")
        assert listed.status_code == 200, listed.text
        assert listed.json()["total"] == 2


def test_a_damaged_stream_does_not_fail_the_requests_of_its_group(database: Path) -> None:
    damage_row(database, "UPDATE snapshots SET data = CAST(data || x'00' AS BLOB) WHERE stream = 1")
    with closing(Store(database)) as opened:
        engine = Engine(opened, Settings(), lambda events, alerted: None)
        batches = [Batch(np.array([5001]), np.array([[0.5]]), Extras()) for _ in range(2)]
        bad, good = engine.observe("frozen", batches[0]), engine.observe("restarting", batches[1])
        engine.start()
        with pytest.raises(Problem, match="stream 'frozen' is damaged on the disk"):
            bad.result(60)
        assert good.result(60)["accepted"] == 1
        assert engine.failing is None
        engine.stop()


def test_every_table_has_a_checksum() -> None:
    with closing(open_database(":memory:")) as connection:
        query = "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        names = {table.name for table in checksums.tables(connection)}
        assert names == {name for (name,) in connection.execute(query)} > set(schema.TABLES_OF_STREAMS)


def test_rows_are_checked_whatever_an_index_is_used_for() -> None:
    """SQLite may replace a column by the constant it is compared with, and may read it from an index."""
    with closing(open_database(":memory:")) as connection:
        row = "INSERT INTO main.waiting (stream, seq, id, body) VALUES (?, ?, ?, ?)"
        connection.executemany(row, [(1, k, f"i{k}", "{}") for k in range(50)])
        for k in range(50):
            found = connection.execute("SELECT seq FROM waiting WHERE stream = ? AND id = ?", (1, f"i{k}")).fetchall()
            assert found == [(k,)]
        connection.execute("UPDATE main.waiting SET body = '[]' WHERE seq = 3")
        assert connection.execute("SELECT count(*) FROM waiting").fetchone() == (50,)


# ------------------------------------------------------------------ verify


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exited:
        program.run([*map(str, words)])
    out, err = capsys.readouterr()
    return int(exited.value.code or 0), out, err


def test_verify_command(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "verify", database, "--all", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out).items() >= {"streams": 3, "restored": 3, "replayed": 3, "damage": []}.items()
    out = run(capsys, "verify", database, "--streams", 1)[1]
    assert re.fullmatch(
        r".*: no damage \(3 streams, \d+ rows; 1 stream restored, 1 tested again from the start\)\.\n", out
    )
    damage_row(database, "UPDATE marks SET n = n + 1 WHERE kind = 'reset'")
    code, out, _ = run(capsys, "verify", database)
    assert (code, "DAMAGED" in out) == (1, True)
    assert "table marks: a row does not match its checksum, of stream 'restarting'" in out
    (tmp_path / "text.db").write_text("no database" * 1000)
    for path in (tmp_path / "missing.db", tmp_path / "text.db"):
        code, out, err = run(capsys, "verify", path)
        assert (code, out) == (3, "")
        assert err.startswith("exchangeable: database must be a")


def test_verify_tests_streams_again(database: Path) -> None:
    """A number that is wrong, although its checksum is right, is found by testing the stream again."""
    with closing(open_database(database)) as connection:
        (p,) = connection.execute("SELECT p FROM steps WHERE stream = 2 AND first = 2001").fetchone()
        wrong = np.frombuffer(p, "<f8").copy()
        wrong[7] = np.nextafter(wrong[7], 0.0)
        connection.execute("UPDATE main.steps SET p = ? WHERE stream = 2 AND first = 2001", (wrong.tobytes(),))
    assert verify.verify(database, 0).damage == []
    (found,) = verify.verify(database, None).damage
    assert found.startswith("stream 'restarting': p of step 2008 is ")


@pytest.mark.parametrize("kind", ["alarm", "reset"])
def test_a_missing_alarm_or_reset_is_damage(database: Path, kind: str) -> None:
    with closing(open_database(database)) as connection:
        query = "SELECT count(*), max(n) FROM marks WHERE stream = 2 AND kind = ?"
        count, n = connection.execute(query, (kind,)).fetchone()
        connection.execute("DELETE FROM main.marks WHERE stream = 2 AND kind = ? AND n = ?", (kind, n))
    (found,) = verify.verify(database, None).damage
    assert found == f"stream 'restarting': the number of marks of its {kind}s must be {count}, got {count - 1}"


def test_only_streams_that_were_tested_again_are_counted_as_such(tmp_path: Path) -> None:
    """Not those whose first steps were pruned, nor those that are empty or have no reference yet."""
    with served(tmp_path / "s.db", Settings(retention=Retention(observations=0), snapshot_every=500)) as server:
        server.create("pruned", **STREAMS["frozen"])
        for start in range(0, 20_000, 10_000):
            server.take("pruned", numbered(X[start : start + 10_000].tolist(), start + 1))
        server.create("short", **STREAMS["frozen"])
        server.take("short", numbered(X[:10].tolist(), 1))
        server.create("empty")
        server.create("table", measure={"kind": "table"})
    report = verify.verify(tmp_path / "s.db", None)
    assert (report.streams, report.restored, report.replayed, report.damage) == (4, 4, 1, [])


def test_streams_of_every_kind_are_tested_again(tmp_path: Path) -> None:
    """Tables with a reference, rates, risks and late labels, with resets in the middle of rows of steps."""
    table = [{"a": float(x), "c": "uv"[k % 2]} for k, x in enumerate(X[:160])]
    with served(tmp_path / "s.db") as server:
        server.create("table", measure={"kind": "table"}, seed=0)
        body = "\n".join(map(json.dumps, table[:60]))
        assert server.ask("PUT", "/v1/streams/table/reference", content=body, headers=JSON_LINES).status_code == 201
        server.create("rate", measure={"kind": "rate"})
        server.create("risk", measure={"kind": "risk", "limit": 0.3})
        server.create("late", measure={"kind": "nearest-neighbour"}, labels={"most": 50})
        for start in (0, 50):
            rows = table[60 + start : 110 + start]
            server.take("table", [{"seq": start + k, "row": row} for k, row in enumerate(rows, 1)])
            for name in ("rate", "risk"):
                server.take(name, numbered([0.0, 1.0] * 25, start + 1))
            server.take("late", [{"seq": start + k, "x": [float(k)], "id": f"{start + k}"} for k in range(1, 21)])
            server.label("late", [{"id": f"{start + k}", "y": "ab"[k % 2]} for k in range(1, 21)])
            if start == 0:
                for name in ("table", "rate", "risk", "rate"):
                    assert server.ask("POST", f"/v1/streams/{name}/reset").status_code == 200
                server.take("late", [{"seq": k, "x": [float(k)], "id": f"{k}"} for k in range(21, 51)])
                server.label("late", [{"id": f"{k}", "y": "ab"[k % 2]} for k in range(21, 51)])
    report = verify.verify(tmp_path / "s.db", None)
    assert (report.replayed, report.damage) == (4, [])


def test_verify_beside_a_server(tmp_path: Path) -> None:
    with served(tmp_path / "s.db", Settings(retention=Retention(observations=0), snapshot_every=500)) as server:
        server.create("a", **STREAMS["frozen"])
        for start in range(0, 40_000, 10_000):
            server.take("a", numbered(X[start : start + 10_000].tolist(), start + 1))
            report = verify.verify(tmp_path / "s.db", None)
            assert (report.damage, report.streams) == ([], 1)
        with server.app.state.store.read() as connection:
            assert connection.execute("SELECT kept FROM streams").fetchone()[0] > 10_000  # steps were pruned


# ------------------------------------------------------------------ backup and restore


def states(path: Path) -> Any:
    """The whole content of a database."""
    with closing(copying.read_only(path)) as connection:
        names = [table.name for table in checksums.tables(connection)]
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2, checksum").fetchall() for name in names}


def test_a_copy_is_one_committed_state_and_only_what_differs_is_written(tmp_path: Path) -> None:
    """A writer never rests while copies are made: of each, the two tables agree, whatever the log does meanwhile."""
    source, stop = tmp_path / "s.db", threading.Event()
    with closing(open_database(source)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 50")

        def write() -> None:
            k = 0
            while not stop.is_set():
                k += 1
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("INSERT INTO main.evidence VALUES (1, ?, ?, 0)", (k, "x" * (k % 9000)))
                connection.execute("DELETE FROM main.evidence WHERE n < ?", (k - 60,))
                connection.execute("UPDATE main.fleet_rule SET size = ?", (k,))
                connection.execute("COMMIT")
                if k % 70 == 0:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            sizes: list[int] = []
            while connection.total_changes < 1000:
                time.sleep(0.001)
            for _ in range(60):
                copying.copy_database(source, tmp_path / "copy.db")
                with closing(copying.read_only(tmp_path / "copy.db")) as copy:
                    assert copy.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                    newest, texts = copy.execute("SELECT max(n), total(length(log10)) FROM evidence").fetchone()
                    assert copy.execute("SELECT size FROM fleet_rule").fetchone()[0] == newest
                    count = copy.execute("SELECT count(*) FROM evidence").fetchone()[0]
                    first = max(newest - 60, 1)
                    assert (count, texts) == (newest - first + 1, sum(k % 9000 for k in range(first, newest + 1)))
                sizes.append(newest)
        finally:
            stop.set()
            thread.join()
        assert sizes[-1] > sizes[0]
    first = copying.copy_database(source, tmp_path / "copy.db")
    again = copying.copy_database(source, tmp_path / "copy.db")
    assert (again.pages, again.written) == (first.pages, 0)
    assert states(source) == states(tmp_path / "copy.db")


def test_a_damaged_log_is_not_copied(tmp_path: Path) -> None:
    with closing(open_database(tmp_path / "s.db")):
        log = bytearray(Path(tmp_path / "s.db-wal").read_bytes())
        log[32 + 8] ^= 1  # a salt of the first frame
        Path(tmp_path / "s.db-wal").write_bytes(log)
        with pytest.raises(sqlite3.DatabaseError, match="does not match its index"):
            copying.copy_database(tmp_path / "s.db", tmp_path / "copy.db")


def test_one_backup_at_a_time(database: Path, tmp_path: Path) -> None:
    part = tmp_path / "b.db.part"
    with part.open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another backup is writing"):
            backup(database, tmp_path / "b.db")
        assert part.exists()
    assert backup(database, tmp_path / "b.db").report.damage == []


def test_backup_of_a_real_server_under_load_killed_and_repeated(tmp_path: Path) -> None:
    """The backup is killed in the middle and goes on; a server on the result continues where the snapshot was."""
    command = ("-m", "exchangeable", "backup", str(tmp_path / "s.db"), str(tmp_path / "b.db"))
    with Server(tmp_path / "s.db") as server:
        assert server.ask("PUT", "/v1/streams/a", {"seed": 0, "bet": {"kind": "simple-mixture"}}).status == 201
        for start in range(0, 30_000, 10_000):
            body = lines(start + 1, X[start : start + 10_000])
            assert server.ask("POST", "/v1/streams/a/observations", body, kind=NDJSON).status == 200
        sent, stop = [30_000], threading.Event()

        def load() -> None:
            while not stop.is_set() and sent[0] < 60_000:
                body = lines(sent[0] + 1, X[sent[0] : sent[0] + 20])
                assert server.ask("POST", "/v1/streams/a/observations", body, kind=NDJSON).status == 200
                sent[0] += 20

        thread = threading.Thread(target=load)
        thread.start()
        try:
            before = sent[0]
            killed = killed_in_the_middle(command, tmp_path / "b.db.part")
            assert killed > 0
            assert not (tmp_path / "b.db").exists()
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=60, check=True)
            pages, written = (
                int(part.replace(",", "")) for part in re.findall("([0-9,]+) (?:pages|were)", done.stdout)
            )
            assert 0 < written < pages
        finally:
            stop.set()
            thread.join()
    with served(tmp_path / "b.db") as copy:
        shown = copy.show("a")
        n = shown["state"]["n"]
        assert before <= n <= sent[0]
        assert n % 20 == 0
        monitor = Monitor(measures.Value(), bets.SimpleMixture(), alarms.Ville(0.01), seed=0)
        monitor.extend(X[:n])
        assert copy.ask("GET", "/v1/streams/a/export").content == snapshot.encode(monitor)
        assert shown["state"]["log10_max"] == monitor.log_max / math.log(10.0)


def killed_in_the_middle(command: Sequence[str], part: Path) -> int:
    """Kill a backup once some pages are copied; return their bytes."""
    code = "import sys, os\nfrom exchangeable.service import copying\ncopying.CHUNK = 4\ndef stop(name, done, total):\n"
    code += "    if name == 'copying' and done * 2 > total: os.kill(os.getpid(), 9)\n"
    code += f"copying.copy_database(copying.Path({command[3]!r}), copying.Path({str(part)!r}), stop)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -9
    return part.stat().st_size


def test_backup_and_restore_commands(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy, before = tmp_path / "b.db", states(database)
    assert run(capsys, "backup", database, copy)[0] == 0
    with closing(open_database(database)) as connection:
        connection.execute("DELETE FROM main.marks")
        after = states(database)
        code, out, err = run(capsys, "restore", copy, database)
        assert (code, states(database)) == (0, before)
    (aside,) = tmp_path.glob("s.db.before-*Z")
    assert str(aside) in out
    assert states(aside) == after
    assert not list(tmp_path.glob("*.part"))
    with closing(Store(database)):
        code, _, err = run(capsys, "restore", copy, database)
        assert (code, "which another process serves" in err) == (3, True)
    assert run(capsys, "backup", database, database)[0] == 3
    assert run(capsys, "backup", tmp_path / "missing.db", copy)[0] == 3
    assert run(capsys, "backup", database, tmp_path / "none" / "b.db")[0] == 3
    code, _, err = run(capsys, "backup", database, tmp_path)
    assert (code, "must be a file, got the folder" in err) == (3, True)
    assert not list(tmp_path.parent.glob(f"{tmp_path.name}.part"))
    assert states(database) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_creates_belongs_to_the_user_of_the_server(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    for words in (
        ("token", "create", "--scope", "admin", "--db", folder / "new.db"),
        ("restore", database, folder / "s.db"),
        ("backup", folder / "s.db", folder / "copy.db"),
    ):
        assert run(capsys, *words)[0] == 0
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in folder.iterdir()}
    assert owners.keys() >= {"new.db", "s.db", "s.db.lock", "copy.db"}
    assert set(owners.values()) == {(65534, 65534)}


def test_damage_is_neither_backed_up_nor_restored(database: Path, tmp_path: Path) -> None:
    backup(database, tmp_path / "b.db")
    good = (tmp_path / "b.db").read_bytes()
    damage_row(database, "UPDATE steps SET p = zeroblob(length(p)) WHERE stream = 1 AND first = 1001")
    with pytest.raises(
        DamagedError, match=r"s\.db is damaged: table steps: a row does not match its checksum, of stream"
    ):
        backup(database, tmp_path / "b.db")
    assert (tmp_path / "b.db").read_bytes() == good
    shutil.copy(tmp_path / "b.db", tmp_path / "other.db")
    with pytest.raises(DamagedError):
        restore(database, tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == good


# ------------------------------------------------------------------ removed and replaced files


@pytest.mark.parametrize("how", ["log", "index", "moved", "replaced", "deleted"])
def test_removed_files_are_noticed_and_what_was_acknowledged_is_saved(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    db = tmp_path / "s.db"
    with served(db) as server:
        server.create("a", **STREAMS["frozen"])
        server.take("a", numbered(X[:50].tolist()))
        assert "exchangeable_database_in_place 1.0" in server.ask("GET", "/metrics").text
        if how == "log":
            Path(f"{db}-wal").unlink()
        elif how == "index":
            Path(f"{db}-shm").unlink()
        elif how == "moved":
            db.rename(tmp_path / "moved.db")
        elif how == "deleted":
            db.unlink()
        else:
            shutil.copy(db, tmp_path / "copy.db")
            (tmp_path / "copy.db").replace(db)
        ready = server.ask("GET", "/readyz")
        assert (ready.status_code, ready.json()["error"]) == (503, "storage")
        for _ in range(2):
            reply = server.send("a", numbered([0.5], 51))
            assert (reply.status_code, reply.json()["error"]) == (503, "storage")
        assert "exchangeable_database_in_place 0.0" in server.ask("GET", "/metrics").text
    (said,) = {record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"}
    assert "the database files were removed or replaced while the server was running" in said
    saved = [*tmp_path.glob("s.db.saved-*")]
    assert ("stop the server and start it again" in said) == (not saved) == (how == "log")
    if saved:
        restore(saved[0], db)
    with served(db) as server:
        assert server.show("a")["state"]["n"] == 50
        assert server.take("a", numbered([0.5], 51))["accepted"] == 1


# ------------------------------------------------------------------ migrations


def old_database(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database as release 0.2 could leave it: of the schema before the checksums, and without auto_vacuum."""
    make(path, count=3000)
    with closing(sqlite3.connect(path)) as connection:
        for name, kind, sql in connection.execute("SELECT name, type, sql FROM sqlite_master").fetchall():
            if kind == "trigger":
                connection.execute(f"DROP TRIGGER {name}")
            elif kind == "table" and "checksum" in sql:
                connection.execute(f"ALTER TABLE {name} DROP COLUMN checksum")
        connection.execute("ALTER TABLE streams DROP COLUMN configuration_checksum")
        connection.execute(f"PRAGMA user_version = {VERSION_BEFORE}")
        connection.commit()
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")
    return path


VERSION_BEFORE = schema.FIRST_VERSION + schema.MIGRATIONS.index(checksums.add_columns)


def test_only_the_server_migrates_and_it_keeps_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = old_database(tmp_path / "s.db", monkeypatch)
    before = path.read_bytes()
    code, _, err = run(capsys, "token", "create", "--scope", "read", "--db", path)
    assert (code, path.read_bytes()) == (3, before)
    assert f"must have schema version {schema.newest_version()}, got version {VERSION_BEFORE}" in err
    assert verify.verify(path, None).damage == []
    with served(path) as server:
        assert server.show("frozen")["state"]["n"] == 3000
        server.take("frozen", numbered([0.5], 3001))
    assert verify.verify(path, None).damage == []
    with closing(open_database(path)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    copy = tmp_path / f"s.db.v{VERSION_BEFORE}"
    assert verify.verify(copy, None) == (VERSION_BEFORE, 0, 3, 3, 3, [])
    path.unlink()  # rolling back: the copy in its place, which the earlier release opens
    copy.rename(path)
    assert store.earlier_version(path) == VERSION_BEFORE
    with served(path) as server:
        assert server.show("frozen")["state"]["n"] == 3000


def test_a_migration_without_room_for_a_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_database(tmp_path / "s.db", monkeypatch)
    before = path.read_bytes()
    monkeypatch.setattr(Store, "free_bytes", lambda self: 1 << 20)
    with pytest.raises(StoreError, match=r"the disk must have \d+ free bytes to migrate"):
        Store(path)
    assert path.read_bytes() == before


def test_a_damaged_database_is_not_migrated(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration computes the checksums anew, and must not make damage look right."""
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE steps ADD COLUMN later TEXT"))
    damaged = database.with_name("damaged.db")
    shutil.copy(database, damaged)
    damage_row(damaged, "UPDATE steps SET p = zeroblob(length(p)) WHERE stream = 1 AND first = 1001")
    before = damaged.read_bytes()
    with pytest.raises(StoreError, match="the database is damaged, so it is not migrated"):
        Store(damaged)
    assert damaged.read_bytes() == before
    with closing(Store(database)) as opened, opened.read() as connection:
        assert connection.execute("SELECT count(later), count(*) > 9 FROM steps").fetchone() == (0, 1)
    assert verify.verify(database).damage == []


# ------------------------------------------------------------------ space


def test_pruning_gives_space_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "EXCESS_PAGES", 8)
    monkeypatch.setattr("exchangeable.service.writer.EXCESS_EVERY", 2)
    path, count = tmp_path / "s.db", 60_000
    with closing(Store(path)) as opened:
        for settings in (Settings(), Settings(retention=Retention(observations=0), snapshot_every=100)):
            engine = Engine(opened, settings, lambda events, alerted: None)
            engine.start()
            if not settings.retention.observations:
                before = path.stat().st_size
                for start in range(count, count + 3000, 300):
                    observe(engine, "a", X[start : start + 300], start + 1)
            else:
                engine.create("a", parse_configuration(STREAMS["frozen"])).result(60)
                for start in range(0, count, 10_000):
                    observe(engine, "a", X[start : start + 10_000], start + 1)
                opened.checkpoint()
            engine.stop()
        opened.checkpoint()
        count_, free, _ = store.pages(opened._writer)
        assert path.stat().st_size < before / 2
        assert free <= max(8, count_ // 8)
