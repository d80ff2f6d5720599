"""The examples run, and say what their documentation says."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from exchangeable.client import Client
from exchangeable.service.alerts import Webhook
from exchangeable.service.server_config import Settings
from serving import numbered, served

EXAMPLES = Path(__file__).parents[1] / "examples"
PROMISE = "On exchangeable data the chance that this alarm is ever raised is at most 0.01."
NEEDS = {
    "crepes_pvalues": "crepes",
    "mapie_scores": "mapie",
    "nonconformist_scores": "nonconformist",
    "online_cp_pvalues": "online_cp",
}
CHANGES = {"crepes_pvalues": 500, "mapie_scores": 600, "nonconformist_scores": 400, "online_cp_pvalues": 200}
STRICT = ("UserWarning", "RuntimeWarning", "FutureWarning")  # those of other kinds are the peers' own


def test_every_script_is_here() -> None:
    assert {script.stem for script in EXAMPLES.glob("*.py")} == {*NEEDS, "retrain_on_alarm"}


@pytest.mark.parametrize("name", NEEDS)
def test_a_script_finds_the_change_and_nothing_else(name: str, tmp_path: Path) -> None:
    for library in (NEEDS[name], "sklearn"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    strict = [f"-Werror::{kind}" for kind in STRICT]
    done = subprocess.run(
        [sys.executable, *strict, str(EXAMPLES / f"{name}.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, promise = done.stdout.splitlines()
    assert promise == PROMISE
    assert len(lines) >= 2
    for line in lines:
        if line.startswith("quiet"):
            assert ": not rejected" in line
        else:
            found = re.search(r"after (\d+).*: REJECTED at example (\d+); change after (\d+) or later", line)
            assert found is not None, line
            change, alarm, began = map(int, found.groups())
            assert change == CHANGES[name] < alarm
            assert abs(began - change) < 50
    assert list(tmp_path.iterdir()) == []


JOB = "import json, pathlib, sys; pathlib.Path('ran').open('a').write(json.dumps(sys.argv[1:]) + chr(10))"


@contextmanager
def receiver(folder: Path, *job: str) -> Iterator[str]:
    """Run the receiver that starts jobs; the value is its address."""
    command = [sys.executable, str(EXAMPLES / "retrain_on_alarm.py"), "--port", "0", "--", *job]
    environment = {**os.environ, "RETRAIN_TOKEN": "hush"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.kill()


def test_an_alarm_of_the_real_server_starts_one_job(tmp_path: Path) -> None:
    """Also if the alert is delivered twice; and none for its end."""
    with receiver(tmp_path, sys.executable, "-c", JOB) as url:
        hook = Webhook("retrain", url, allow_private=True, token="hush")
        with served(tmp_path / "s.db", Settings(webhooks=(hook,))) as server:
            server.create("latency", seed=0)
            state = server.take("latency", numbered([*range(40), *range(1000, 1060)]))["state"]
            assert state["alarm"]
            _wait(lambda: _lines(tmp_path / "ran"))
            assert server.ask("POST", "/v1/streams/latency/reset").status_code == 200
            _wait(lambda: not server.ask("GET", "/v1/alerts").json()["pending"])
        message = {"alerts": [json.loads(next(tmp_path.glob("jobs/*.json")).read_text())]}
        with served(tmp_path / "other.db") as client:
            again = client.http.post(url, json=message, headers={"Authorization": "Bearer hush"})
            stranger = client.http.post(url, json=message)
            nonsense = client.http.post(url, json=[], headers={"Authorization": "Bearer hush"})
    assert [reply.status_code for reply in (again, stranger, nonsense)] == [200, 401, 400]
    jobs = [json.loads(line) for line in _lines(tmp_path / "ran")]
    change = state["changepoint"]
    assert jobs == [["latency", str(state["alarm_at"]), str(change), str(change + 1), "[]"]]


def test_the_job_of_a_table_is_told_its_columns_and_bad_requests_are_refused(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    sizes = draw.normal(size=100).tolist()
    rows = [{"size": size, "b, c": "red" if i < 50 else "blue"} for i, size in enumerate(sizes)]
    with receiver(tmp_path, sys.executable, "-c", JOB) as url:
        hook = Webhook("retrain", url, allow_private=True, token="hush")
        with served(tmp_path / "s.db", Settings(webhooks=(hook,))) as server:
            with Client(server.url) as client:
                client.create("credit", {"measure": {"kind": "table", "bins": 8}, "seed": 1})
                stream = client.stream("credit")
                stream.set_reference(rows)
                stream.extend([{"size": 5.0 + size, "b, c": "green"} for size in sizes[:60]])
                state = stream.state
            _wait(lambda: _lines(tmp_path / "ran"))
        refused = [
            _refused(url, "Authorization: Bearer h\xfcsh\r\nContent-Length: 2\r\n\r\n{}"),
            *(
                _refused(url, f"Authorization: Bearer hush\r\nContent-Length: {length}\r\n\r\n{{}}")
                for length in ("two", "-1", "\xb2", "9" * 5_000, "2")
            ),
            _refused(url, "Authorization: Bearer hush\r\n\r\n"),
        ]
    assert refused == [401, 411, 411, 411, 413, 400, 411]
    ((name, at, change, keep, columns),) = (json.loads(line) for line in _lines(tmp_path / "ran"))
    assert (name, at, change) == ("credit", str(state["alarm_at"]), str(state["changepoint"]))
    assert int(keep) > state["changepoint"]
    assert {"size", "b, c"} & set(json.loads(columns))
    alert = json.loads(next(tmp_path.glob("jobs/*.json")).read_text())
    assert alert["rejected_by"] == json.loads(columns)
    assert (alert["rejected"], str(alert["keep_from"])) == (len(alert["rejected_by"]), keep)


def _refused(url: str, rest: str) -> int:
    """Send a request as it is, and return the status of the reply."""
    with socket.create_connection(("127.0.0.1", int(url.strip("/").rpartition(":")[2])), timeout=20.0) as connection:
        connection.sendall(f"POST / HTTP/1.1\r\nHost: x\r\n{rest}".encode("latin-1"))
        return int(connection.recv(100).split()[1])


def test_a_job_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    with receiver(tmp_path, "./train") as url:
        hook = Webhook("retrain", url, allow_private=True, token="hush")
        with served(tmp_path / "s.db", Settings(webhooks=(hook,))) as server:
            server.create("latency", seed=0)
            server.take("latency", numbered([*range(40), *range(1000, 1060)]))
            _wait(lambda: server.ask("GET", "/v1/alerts").json()["alerts"][0]["attempts"])
            (tmp_path / "train").write_text(f"#!{sys.executable}\n{JOB}\n")
            (tmp_path / "train").chmod(0o755)
            _wait(lambda: _lines(tmp_path / "ran"))


def _wait(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
