"""Settings that are read again while the server runs: all of them take effect or are named, and none by halves."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra 'service' is not installed")

from exchangeable.service import live_settings, run, tokens
from exchangeable.service.server_config import Limits, Retention, Settings
from exchangeable.service.store import open_database
from serving import Served, numbered, served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "streams.db") as running:
        yield running


def reload(server: Served, path: Path, text: str, caplog: pytest.LogCaptureFixture) -> str:
    """Reload the settings; return the line of the log."""
    path.write_text(text)
    caplog.clear()
    with caplog.at_level(logging.INFO, "exchangeable"):
        server.app.state.live.reload(path)
    (record,) = [record for record in caplog.records if record.name == "exchangeable.service"]
    return f"{record.levelname} {record.getMessage()}"


def test_each_setting_takes_effect(server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server.create("a")
    assert server.take("a", numbered(range(3)))["accepted"] == 3
    path, state = tmp_path / "c.toml", server.app.state
    line = reload(server, path, "[limits]\nbatch = 2\nqueue_requests = 7\nevents_readers = 0\n", caplog)
    assert line == (
        "INFO the settings were reloaded; changed: limits.batch, limits.queue_requests, limits.events_readers"
    )
    assert server.send("a", numbered(range(3), 4)).status_code == 413
    assert server.ask("GET", "/v1/events").status_code == 429
    assert state.engine.settings.limits.queue_requests == 7
    assert "limits.body_bytes" in reload(server, path, "[limits]\nbody_bytes = 1024\n", caplog)
    assert server.send("a", [{"x": 1, "time": "t" * 2000}]).status_code == 413
    reload(server, path, "[limits]\nstreams = 1\n", caplog)
    assert server.ask("PUT", "/v1/streams/b", json={}).json()["error"] == "too-many-streams"
    reload(server, path, "[limits]\nrequests_per_second = 1\n", caplog)
    assert 429 in [server.ask("GET", "/v1/streams").status_code for _ in range(20)]
    reload(server, path, "", caplog)
    assert server.ask("GET", "/v1/streams").status_code == 200
    reload(server, path, 'hosts = ["monitor.example.org"]\nmetrics_hosts = ["10.0.0.0/8"]', caplog)
    for host, path_, status in (("monitor.example.org", "/v1/streams", 200), ("10.1.2.3", "/metrics", 200)):
        assert server.ask("GET", path_, headers={"Host": host}).status_code == status
    reload(server, path, "access_log = true", caplog)
    with caplog.at_level(logging.INFO, "exchangeable"):
        server.ask("GET", "/v1/streams")
        server.ask("GET", "/v1/streams")  # the line of the first request is written after its reply
    assert "exchangeable.access" in {record.name for record in caplog.records}
    reload(server, path, "live_streams = 3\nsnapshot_every = 5\n[retention]\nobservations = 9\n", caplog)
    assert state.engine.streams.capacity == 3
    assert state.engine.ingest._settings == state.settings == state.engine.lifecycle._settings
    hook = '[[webhooks]]\nname = "w"\nurl = "https://alerts.example.org"\n'
    assert reload(server, path, hook, caplog).endswith("access_log") is False
    assert [one.name for one in state.engine.announcements.webhooks] == ["w"] == [*state.sender.webhooks]


def test_settings_that_need_a_restart_are_named_and_stay(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "fleet_size = 5\nsnapshot_every = 9\n[limits]\nconnections = 9\nreserve_bytes = 0\n"
    line = reload(server, tmp_path / "c.toml", text, caplog)
    assert line == (
        "INFO the settings were reloaded; changed: snapshot_every; a restart is needed for limits.reserve_bytes, "
        "limits.connections, fleet_size"
    )
    now = server.app.state.settings
    assert (now.fleet_size, now.limits.connections, now.snapshot_every) == (None, 1000, 9)
    assert server.ask("GET", "/v1/fleet").json()["fleet_size"] is None


@pytest.mark.parametrize("text", ["[limits]\nbatch = 0\n", "no toml", 'hosts = ["a b"]', "[limits]\nunknown = 1\n"])
def test_a_broken_file_changes_nothing(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    before = server.app.state.settings
    line = reload(server, tmp_path / "c.toml", f"snapshot_every = 7\n{text}", caplog)
    assert line.startswith("ERROR the settings were not reloaded, and the previous ones stay in force: ")
    assert "c.toml" in line
    assert server.app.state.settings is before is server.app.state.engine.settings


def test_names_that_may_not_be_set_without_a_token_change_nothing(tmp_path: Path) -> None:
    def check(settings: Settings) -> None:
        raise ValueError("hosts must not be set while there is no token")

    live = live_settings.LiveSettings(Settings())
    (tmp_path / "c.toml").write_text("access_log = true")
    live.reload(tmp_path / "c.toml", check)
    assert live.settings == Settings()


def test_a_name_for_others_needs_a_token_and_closes_the_server(
    server: Served, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c.toml"
    path.write_text('hosts = ["monitor.example.org"]')
    reload_again = run._reloader(server.app, "127.0.0.1", path)
    reload_again()
    assert "hosts and external_url must not be set while there is no token" in caplog.text
    assert server.ask("GET", "/v1/streams").status_code == 200
    with closing(open_database(tmp_path / "streams.db")) as connection:
        token = tokens.create(connection, ["admin"])
    reload_again()
    assert server.ask("GET", "/v1/streams", headers={"Host": "monitor.example.org"}).status_code == 401
    with closing(open_database(tmp_path / "streams.db")) as connection:
        tokens.revoke(connection, token)
    assert server.ask("GET", "/v1/streams").status_code == 401  # others can reach it, so it does not open


def test_every_setting_is_compared() -> None:
    parts = {"limits": Limits, "retention": Retention}
    expected = [
        f"{item.name}.{part.name}" if item.name in parts else item.name
        for item in dataclasses.fields(Settings)
        for part in (dataclasses.fields(parts[item.name]) if item.name in parts else (item,))
    ]
    assert live_settings._names() == expected
    assert set(live_settings.RESTART) <= set(expected)
