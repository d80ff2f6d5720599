"""`exchangeable serve`, `token` and `alert` as an operator meets them: real processes, real requests."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

import httpx2

import absent
from conftest import Run

PROGRAM = [sys.executable, "-m", "exchangeable"]


@contextmanager
def serving(place: Path, *words: object) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    """A server on a port of its choice, in a folder of its own."""
    command = [*PROGRAM, "serve", "--port", "0", "--no-page", *map(str, words)]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("exchangeable serves http://"), line + process.stderr.read()
            address = line.removeprefix("exchangeable serves ").strip().replace("0.0.0.0", "127.0.0.1")
            with httpx2.Client(base_url=address, trust_env=False, timeout=30.0) as http:
                yield process, http
        finally:
            process.kill()


def done(place: Path, *words: object) -> tuple[int, str, str]:
    """A command that ends."""
    command = [*PROGRAM, *map(str, words)]
    end = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=120)
    return end.returncode, end.stdout, end.stderr


# ------------------------------------------------------------------ serve


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_starts_answers_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as (process, http):
        assert http.get("/readyz").json() == {"status": "ok"}
        assert http.put("/v1/streams/a", json={}).status_code == 201
        assert stat.S_IMODE(os.stat(tmp_path / "exchangeable.db").st_mode) == 0o600
        heard: list[str] = []

        def listen() -> None:
            with http.stream("GET", "/v1/streams/a/events") as events:
                heard.extend(events.iter_lines())

        reader = threading.Thread(target=listen)
        reader.start()
        time.sleep(0.3)
        began = time.monotonic()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
        said = [json.loads(line)["logger"] for line in err.splitlines() if "the server listens on" not in line]
        assert said == ["exchangeable.audit"]
        assert time.monotonic() - began < 8.0  # a reader of events does not hold it up
        reader.join(10)
        assert "event: state" in heard
    with serving(tmp_path) as (_, http):
        assert http.get("/v1/streams/a").json()["state"]["n"] == 0


def test_sighup_reads_the_settings_again(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[limits]\nbatch = 2\n")
    three = "x\n1\n2\n3\n"
    with serving(tmp_path, "--config", "c.toml") as (process, http):
        assert http.put("/v1/streams/a", json={}).status_code == 201
        place, media = "/v1/streams/a/observations", {"Content-Type": "text/csv"}
        assert http.post(place, content=three, headers=media).status_code == 413
        assert process.stderr is not None
        started = json.loads(process.stderr.readline())
        assert (started["level"], started["message"]) == ("info", f"the server listens on {http.base_url}")
        (tmp_path / "c.toml").write_text("[limits]\nbatch = 3\n")
        process.send_signal(signal.SIGHUP)
        while "reloaded" not in (line := process.stderr.readline()):
            assert line
        assert json.loads(line)["message"] == "the settings were reloaded; changed: limits.batch"
        assert http.post(place, content=three, headers=media).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with serving(tmp_path) as (process, http):
        process.send_signal(signal.SIGHUP)
        assert process.stderr is not None
        while "SIGHUP" not in (line := process.stderr.readline()):
            assert line
        assert "SIGHUP is ignored" in json.loads(line)["message"]
        assert http.get("/readyz").status_code == 200


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "--db", "s.db") as (_, http):
        code, out, err = done(tmp_path, "serve", "--db", "s.db", "--port", 0, "--no-page")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "another process serves" in err
        assert http.get("/healthz").status_code == 200


def test_an_address_for_others_needs_a_token(tmp_path: Path) -> None:
    code, _, err = done(tmp_path, "serve", "--host", "0.0.0.0", "--port", 0, "--no-page")
    assert (code, "while there is no token" in err) == (3, True)
    token = done(tmp_path, "token", "create", "--scope", "read")[1].strip()
    (tmp_path / "c.toml").write_text('hosts = ["127.0.0.1"]\n')
    with serving(tmp_path, "--host", "0.0.0.0", "--config", "c.toml") as (_, http):
        assert http.get("/v1/streams").status_code == 401
        assert http.get("/v1/streams", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_what_cannot_be_served(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[limits]\nbatch = 0\n")
    (tmp_path / "text.db").write_text("this is no database, and long enough to be looked at as one " * 20)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for words, clue in (
            (["--config", "bad.toml"], "bad.toml: limits.batch must be an integer from 1"),
            (["--config", "missing.toml"], "missing.toml"),
            (["--db", "no/where/s.db"], "no/where"),
            (["--db", "text.db"], "text.db"),
            (["--port", port], "port must be free"),
        ):
            if "--port" in words:  # leaves a socket open, which only the end of its process closes
                code, out, err = done(tmp_path, "serve", "--no-page", *words)
            else:
                code, out, err = run("serve", "--no-page", *words)
            assert (code, out, err.count("\n")) == (3, "", 1), err
            assert clue in err
    assert run("serve", "--port", 99999).code == 2


HEAVY = ("scipy", "pyarrow", "fastapi", "uvicorn", "httpx2", "exchangeable.service")


@pytest.mark.parametrize(
    "words", [["serve", "--help"], ["watch", "--help"], ["token", "create", "--help"], ["alert", "test", "--help"]]
)
def test_help_is_light(words: list[str]) -> None:
    code = (
        "import sys\nfrom exchangeable import cli\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    end = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert end.stderr == "[]\n"
    assert f"exchangeable {words[0]}" in end.stdout


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["serve"], "fastapi"),
        (["serve"], "uvicorn"),
        (["serve"], "prometheus-client"),
        (["alert", "test", "--config", "x"], "httpcore2"),
    ],
)
def test_a_missing_extra_is_named(tmp_path: Path, words: list[str], missing: str) -> None:
    end = absent.run(f"{absent.without(missing)}\nfrom exchangeable import cli\ncli.main()", *words, folder=tmp_path)
    message = f"exchangeable: {missing} is not installed; for the server: pip install 'exchangeable[service]'\n"
    assert (end.returncode, end.stdout, end.stderr) == (3, "", message)


def test_the_extra_of_the_client_is_named() -> None:
    end = absent.run(f"{absent.without('httpx2')}\nimport exchangeable.client")
    message = "ImportError: httpx2 is not installed; for the client: pip install 'exchangeable[client]'\n"
    assert end.stderr.endswith(message)
    end = absent.run(f"{absent.without(versions={'httpx2': '2.4.0'})}\nimport exchangeable.client")
    assert "ImportError: httpx2 is too old: needs httpx2>=2.5, found 2.4.0; for the client: " in end.stderr


# ------------------------------------------------------------------ token


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, http):
        assert http.get("/v1/streams").status_code == 200  # open while there is no token
        code, token, err = done(tmp_path, "token", "create", "--scope", "read", "--scope", "ingest", "--note", "hall 3")
        assert (code, err, token.count("\n"), token[:3]) == (0, "", 1, "ex_")
        shown = {"Authorization": f"Bearer {token.strip()}"}
        assert http.get("/v1/streams").status_code == 401
        assert http.get("/v1/streams", headers=shown).status_code == 200
        assert http.put("/v1/streams/a", json={}, headers=shown).status_code == 403
        code, listed, _ = done(tmp_path, "token", "list", "--format", "json")
        (record,) = json.loads(listed)
        assert (record["scopes"], record["note"], record["revoked"]) == (["read", "ingest"], "hall 3", None)
        assert token.split("_")[1] == record["id"]
        assert token.split("_", 2)[2].strip() not in listed
        assert done(tmp_path, "token", "revoke", record["id"]) == (0, "", "")
        assert http.get("/v1/streams", headers=shown).status_code == 401
        code, text, _ = done(tmp_path, "token", "list")
        assert (code, record["id"] in text, "revoked 20" in text, "hall 3" in text) == (0, True, True, True)


def test_tokens_for_some_streams_expire_and_are_rotated(run: Run, tmp_path: Path) -> None:
    words = ["--scope", "ingest", "--stream", "hall-3", "--prefix", "line-", "--prefix", "test.", "--db", "s.db"]
    first = run("token", "create", *words, "--expires", "30d").out.strip()
    name = first[3:11]
    second = run("token", "rotate", name, "--grace", "2h", "--db", "s.db").out.strip()
    assert (second[:12], second != first) == (first[:12], True)
    (record,) = json.loads(run("token", "list", "--db", "s.db", "--format", "json").out)
    assert record["streams"] == ["hall-3", "line-*", "test.*"]
    created, expires, until = (datetime.fromisoformat(record[key]) for key in ("created", "expires", "replaced_until"))
    assert timedelta(days=30) <= expires - created <= timedelta(days=30, minutes=5)
    assert timedelta(hours=2) <= until - created <= timedelta(hours=2, minutes=5)
    assert f"expires {record['expires']}  hall-3,line-*,test.*" in run("token", "list", "--db", "s.db").out
    assert run("token", "rotate", first, "--expires", "2099-01-31", "--db", "s.db").code == 0
    (record,) = json.loads(run("token", "list", "--db", "s.db", "--format", "json").out)
    assert record["expires"] == "2099-01-31T00:00:00Z"
    assert run("token", "revoke", name, "--db", "s.db").code == 0
    entries = json.loads(run("token", "log", "--db", "s.db", "--format", "json").out)
    assert [(entry["action"], entry["token"]) for entry in entries] == [
        ("create", name), ("rotate", name), ("rotate", name), ("revoke", name)
    ]  # fmt: skip
    assert all(entry["user"] for entry in entries)
    text = run("token", "log", "--db", "s.db").out
    assert (text.count("\n"), "ingest; streams hall-3,line-*,test.*" in text) == (4, True)
    assert not {first[12:], second[12:]} & set(text.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "--scope", "read", "--expires", "soon"], "expires must be a duration such as 30d, or a date"),
        (["create", "--scope", "read", "--expires", "2020-01-01"], "expires must lie in the future"),
        (["create", "--scope", "read", "--expires", "99999999d"], "expires must lie in the future, at most 100 years"),
        (["create", "--scope", "read", "--prefix", "*"], "streams must be names of streams, or prefixes of names"),
        (["create", "--scope", "read", "--stream", "A"], "streams must be names of streams, or prefixes of names"),
        (["rotate", "nobody", "--grace", "1w"], "grace must be a number followed by s, m, h or d, such as 30d"),
        (["rotate", "nobody"], "id must be that of a token that is not revoked, got 'nobody'"),
    ],
)
def test_wrong_words_about_streams_and_times(run: Run, tmp_path: Path, words: list[str], message: str) -> None:
    assert run("token", "create", "--scope", "read", "--db", "s.db").code == 0
    refused = run("token", *words, "--db", "s.db")
    assert (refused.code, refused.out, refused.err.count("\n"), message in refused.err) == (2, "", 1, True), refused.err
    assert len(json.loads(run("token", "list", "--db", "s.db", "--format", "json").out)) == 1


def test_a_first_token_is_created_only_without_another(run: Run, tmp_path: Path) -> None:
    words = ("token", "create", "--scope", "admin", "--if-none", "--db", "s.db")
    first = run(*words).out.strip()
    assert first.startswith("ex_")
    assert (run(*words).code, run(*words).out) == (0, "")
    assert run("token", "revoke", first, "--db", "s.db").code == 0
    assert run(*words).out.startswith("ex_")
    assert len(json.loads(run("token", "list", "--db", "s.db", "--format", "json").out)) == 2


def test_wrong_words_about_tokens(run: Run, tmp_path: Path) -> None:
    assert run("token", "create").code == 2
    assert run("token", "create", "--scope", "all").code == 2
    assert not (tmp_path / "exchangeable.db").exists()
    missing = run("token", "list")
    assert (missing.code, "exchangeable.db does not exist" in missing.err) == (3, True)
    assert run("token", "create", "--scope", "read", "--note", "x" * 201).code == 2
    assert run("token", "create", "--scope", "admin", "--db", "s.db").code == 0
    assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600
    unknown = run("token", "revoke", "nobody", "--db", "s.db")
    assert (unknown.code, "id must be that of a token" in unknown.err) == (2, True)


# ------------------------------------------------------------------ alert


class Receiver(BaseHTTPRequestHandler):
    taken: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@contextmanager
def receiver() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    taken: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Taking", (Receiver,), {"taken": taken}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1], taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_test_alerts(run: Run, tmp_path: Path) -> None:
    with receiver() as (port, taken):
        (tmp_path / "c.toml").write_text(
            f'[[webhooks]]\nname = "ops"\nurl = "http://127.0.0.1:{port}/alert"\nallow_private = true\n'
            f'[[webhooks]]\nname = "guarded"\nurl = "http://127.0.0.1:{port}/alert"\n'
        )
        one = run("alert", "test", "--config", "c.toml", "--receiver", "ops")
        assert (one.code, one.out, one.err) == (0, "ops: delivered\n", "")
        assert [alert["status"] for alert in taken] == ["firing", "resolved"]
        both = run("alert", "test", "--config", "c.toml", "--format", "json")
        outcomes = {outcome["receiver"]: outcome for outcome in json.loads(both.out)}
        assert (both.code, outcomes["ops"]["delivered"], outcomes["guarded"]["delivered"]) == (3, True, False)
        assert outcomes["guarded"]["error"]
        assert "not delivered to guarded" in both.err
    text = run("alert", "test", "--config", "c.toml", "--receiver", "ops")
    assert (text.code, text.out.startswith("ops: NOT delivered: ")) == (3, True)
    assert run("alert", "test", "--config", "c.toml", "--receiver", "nobody").code == 2
    (tmp_path / "empty.toml").write_text("")
    assert run("alert", "test", "--config", "empty.toml").code == 2
    assert run("alert", "test").code == 2
