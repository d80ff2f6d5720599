"""Alarms reach a receiver through Prometheus and Alertmanager themselves, with the rules in deploy/."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from chromium import CALM, Server, until
from test_deploy import DEPLOY, receiver

pytest.importorskip("fastapi", reason="the service's extra is not installed")
from exchangeable.service import access
from exchangeable.service.engine import Engine
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import Store, open_database
from exchangeable.service.stream_config import parse_configuration

PATIENCE = 60.0  # seconds for an alert from the server to the receiver


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(program: str, folder: Path, config: dict[str, Any], *options: str) -> Iterator[int]:
    """Run a program of Prometheus with a configuration, until the block ends; yield its port."""
    folder.mkdir()
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    port, log = free_port(), folder / "log"
    command = [program, f"--config.file={folder / 'config.yml'}", f"--web.listen-address=127.0.0.1:{port}", *options]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as process:
        try:
            until(lambda: ready(port) or process.poll() is not None, PATIENCE)
            assert process.poll() is None, log.read_text()
            yield port
        finally:
            process.kill()


def ready(port: int) -> bool:
    try:
        return bool(get(f"http://127.0.0.1:{port}/-/ready").strip())
    except OSError:
        return False


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return bytes(reply.read())


def query(port: int, expression: str) -> list[Any]:
    """Return the samples of an instant query: their labels and values."""
    text = get(f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    return [(one["metric"], float(one["value"][1])) for one in json.loads(text)["data"]["result"]]


def fill(db: Path, count: int) -> str:
    """Create many streams, one of which had an alarm two hours ago and started a new test; return a token."""
    store = Store(db)
    engine = Engine(store, Settings(limits=Limits(streams=20_000, queue_requests=20_000)), lambda events, alerted: None)
    engine.start()
    try:
        configurations = [("latch", f"s{k:05}") for k in range(count)] + [("latch", "latched"), ("restart", "again")]
        given = {"measure": {"kind": "p-values"}}
        results = [engine.create(name, parse_configuration({**given, "on_alarm": on})) for on, name in configurations]
        for result in results:
            result.result(120)
    finally:
        engine.stop()
        store.close()
    with closing(open_database(db)) as connection:
        return access.create(connection, ["admin"])


@pytest.fixture
def alarms(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Server, int, list[Any]]]:
    """A server with many streams, watched by Prometheus; its port; and what Alertmanager has told a receiver."""
    programs = [shutil.which(name) for name in ("prometheus", "prometheus-alertmanager")]
    prometheus, alertmanager = programs
    if prometheus is None or alertmanager is None:
        pytest.skip("Prometheus and Alertmanager, Debian's prometheus and prometheus-alertmanager, are not installed")
    with ExitStack() as stack:
        token = fill(tmp_path / "streams.db", request.param)
        server = Server(tmp_path / "streams.db")
        stack.callback(server.stop)
        server.token = token
        url, got = stack.enter_context(receiver())
        route = {"receiver": "hook", "group_by": ["alertname", "stream"], "group_wait": "1s", "group_interval": "1s"}
        config = {"route": route, "receivers": [{"name": "hook", "webhook_configs": [{"url": url}]}]}
        options = ["--cluster.listen-address=", f"--storage.path={tmp_path / 'alertmanager' / 'data'}"]
        manager = stack.enter_context(running(alertmanager, tmp_path / "alertmanager", config, *options))
        ours = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        (tmp_path / "token").write_text(token)
        ours["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        ours["rule_files"] = [str(DEPLOY / "prometheus" / "rules.yml")]
        ours["scrape_configs"][0]["authorization"]["credentials_file"] = str(tmp_path / "token")
        ours["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{server.port}"]}]
        ours["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{manager}"]}]}]}
        options = [f"--storage.tsdb.path={tmp_path / 'prometheus' / 'data'}"]
        yield server, stack.enter_context(running(prometheus, tmp_path / "prometheus", ours, *options)), got


def told(got: list[Any], status: str) -> set[tuple[str, str]]:
    """Return the alerts of a status that the receiver was told of, by name and stream."""
    alerts = [alert for message in got for alert in message["alerts"] if alert["status"] == status]
    return {(alert["labels"]["alertname"], alert["labels"].get("stream", "")) for alert in alerts}


LIMIT = Settings().metrics_streams
MANY = [pytest.param(LIMIT + 500, id="thousands"), pytest.param(10_000, id="ten thousand", marks=pytest.mark.soak)]


@pytest.mark.parametrize("alarms", MANY, indirect=True)
def test_alarms_reach_a_receiver_through_prometheus(alarms: tuple[Server, int, list[Any]]) -> None:
    server, prometheus, got = alarms
    total = server.call("GET", "/v1/streams?limit=1")["total"]
    until(lambda: query(prometheus, "exchangeable_streams"), PATIENCE)
    assert [value for _, value in query(prometheus, "exchangeable_streams")] == [total]
    assert [value for _, value in query(prometheus, "count(exchangeable_stream_alarm)")] == [LIMIT]
    assert [value for _, value in query(prometheus, "exchangeable_streams_left_out")] == [total - LIMIT]

    server.send("again", *CALM, *[1e-6] * 5, *CALM)  # an alarm between two scrapes
    began = server.state("again")["alarms"]
    assert began > 0
    server.send("latched", *CALM, *[1e-6] * 20)
    expected = {("ExchangeabilityAlarm", "latched"), ("ExchangeabilityAlarmRestarted", "again")}
    until(lambda: told(got, "firing") >= expected, PATIENCE)
    assert told(got, "firing") == expected

    with closing(open_database(server.db, 30)) as connection:  # that was two hours ago
        connection.execute(
            "UPDATE main.marks SET time = time - 7200 WHERE stream = (SELECT id FROM streams WHERE name = 'again')"
        )
    server.call("POST", "/v1/streams/latched/reset")
    until(lambda: told(got, "resolved") >= expected, PATIENCE)
    before = len(got)
    server.send("again", *[1e-6] * 5, *CALM)  # the same stream again: a counter that rises between two scrapes
    assert server.state("again")["alarms"] > began
    until(lambda: ("ExchangeabilityAlarmRestarted", "again") in told(got[before:], "firing"), PATIENCE)
    assert [value for _, value in query(prometheus, "up")] == [1]
