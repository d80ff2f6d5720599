"""The files in deploy/: valid by their schemas, and the server runs under the restrictions of the systemd unit."""

from __future__ import annotations

import http.server
import json
import os
import platform
import random
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import restricted
from chromium import Server, until

pytest.importorskip("fastapi", reason="the service's extra is not installed")
from exchangeable.service import checksums, schema
from exchangeable.service.server_config import Settings

DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = DEPLOY / "systemd" / "exchangeable.service"


def systemd_analyze(*words: str | Path) -> str:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze, of Debian's package systemd, is not installed")
    done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def receiver() -> Iterator[tuple[str, list[Any]]]:
    """A webhook on this machine: its address, and the alerts that it got."""
    got: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/hook", got
        running.shutdown()


# ------------------------------------------------------------------ systemd


def test_the_unit_is_valid_and_exposes_little(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/exchangeable/bin/exchangeable", "/bin/true"))
    assert systemd_analyze("verify", unit) == ""
    said = systemd_analyze("security", "--offline=true", "--no-pager", UNIT)
    level = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert level
    assert float(level[1]) < 2.5


@pytest.fixture
def filtered(tmp_path: Path) -> Iterator[tuple[Server, list[Any]]]:
    """A server under the unit's filter of system calls, and the alerts that it sends."""
    if platform.machine() != "x86_64" or not restricted.HEADER.exists() or not shutil.which("systemd-analyze"):
        pytest.skip("needs x86-64 Linux, the kernel's headers and systemd-analyze")
    with receiver() as (url, got):
        config = tmp_path / "settings.toml"
        config.write_text(f'[[webhooks]]\nname = "ops"\nurl = "{url}"\nallow_private = true\n')
        under = [sys.executable, restricted.__file__, str(UNIT)]
        server = Server(tmp_path / "streams.db", "--config", str(config), under=under)
        yield server, got
        server.stop()


def test_the_server_runs_under_the_system_call_filter_of_the_unit(filtered: tuple[Server, list[Any]]) -> None:
    server, got = filtered
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
    rng = random.Random(1)
    for kind in ("value", "nearest-distance", "rate", "p-values"):
        server.create(kind, measure={"kind": kind}, seed=1)
        server.send(kind, *([rng.random(), 0.5] if kind == "nearest-distance" else 1 for _ in range(300)))
    labelled = [{"x": [rng.random()] * 16, "y": "ab"[k % 2]} for k in range(300)]
    server.create("nearest-neighbour", measure={"kind": "nearest-neighbour"})
    server.send("nearest-neighbour", *labelled)
    server.create("rows", measure={"kind": "table", "bins": 16}, seed=1)
    rows = [{"size": rng.random(), "colour": rng.choice("ab")} for _ in range(300)]
    server.call("PUT", "/v1/streams/rows/reference", rows, lines=True)
    server.send("rows", *[{"row": row} for row in rows])
    server.create("alarm", measure={"kind": "p-values"})
    server.send("alarm", *[1e-6] * 40)
    until(lambda: "alarm" in {alert["labels"]["stream"] for message in got for alert in message["alerts"]})
    assert server.call("GET", "/v1/streams/rows/columns")["columns"]
    server.call("DELETE", "/v1/streams/rows")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert "Operation not permitted" not in server.log.read_text()


def test_systemd_is_told_that_the_server_is_ready_and_alive(tmp_path: Path) -> None:
    """While a transaction waits for the lock of another process, the writer thread does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"}
        server = Server(tmp_path / "streams.db", environment=environment)
        try:
            assert [manager.recv(100) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
            server.create("a", measure={"kind": "p-values"})
            with closing(sqlite3.connect(server.db, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                sent = threading.Thread(target=server.send, args=("a", 0.5))
                sent.start()
                time.sleep(0.5)
                manager.setblocking(False)
                drain(manager)
                time.sleep(1)
                assert drain(manager) == []
                other.execute("ROLLBACK")
            sent.join()
            manager.settimeout(20)
            assert manager.recv(100) == b"WATCHDOG=1"
            server.process.send_signal(signal.SIGTERM)
            assert b"STOPPING=1" in iter(lambda: manager.recv(100), b"")
        finally:
            server.stop()


def drain(manager: socket.socket) -> list[bytes]:
    """Return the messages that have arrived."""
    got = []
    while True:
        try:
            got.append(manager.recv(100))
        except BlockingIOError:
            return got


# ------------------------------------------------------------------ Kubernetes and Compose


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "exchangeable.yaml").read_text()))


def manifest(kind: str, name: str = "exchangeable") -> dict[str, Any]:
    (found,) = (one for one in manifests() if one["kind"] == kind and one["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize("version", ["1.27", "1.31"])
def test_the_manifests_fit_the_schemas_of_kubernetes(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for one in manifests():
        if one["apiVersion"].startswith("monitoring.coreos.com/"):
            continue  # a resource of the Prometheus operator, which Kubernetes has no schema of
        validate.validate(one, version, strict=True)
        spoilt = {**one, "metadata": {**one["metadata"], "lables": {}}}
        with pytest.raises(validate.ValidationError):
            validate.validate(spoilt, version, strict=True)


def test_the_parts_of_the_manifests_refer_to_one_another(tmp_path: Path) -> None:
    pod = manifest("StatefulSet")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"].items()
    for kind, selector in (("Service", "selector"), ("NetworkPolicy", "podSelector"), ("ServiceMonitor", "selector")):
        spec = manifest(kind)["spec"][selector]
        assert spec.get("matchLabels", spec).items() <= labels
    assert (
        manifest("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()
        <= manifest("Service")["metadata"]["labels"].items()
    )
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000}
    assert f"--port={ports['http']}" in container["args"]
    (endpoint,) = manifest("ServiceMonitor")["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["key"] in manifest("Secret", credentials["name"])["stringData"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    declared = {volume["name"] for volume in pod["spec"]["volumes"]}
    assert mounted.keys() == declared | {
        one["metadata"]["name"] for one in manifest("StatefulSet")["spec"]["volumeClaimTemplates"]
    }
    text = manifest("ConfigMap")["data"]["settings.toml"]
    for name in manifest("Secret")["stringData"]:
        (tmp_path / name).write_text("secret")
        text = text.replace(f"{mounted['secrets']}/{name}", str(tmp_path / name))
    (tmp_path / "settings.toml").write_text(text)
    (webhook,) = Settings.read(tmp_path / "settings.toml").webhooks
    assert webhook.token == "secret"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz")


def test_the_first_token_is_created_once(tmp_path: Path) -> None:
    (init,) = manifest("StatefulSet")["spec"]["template"]["spec"]["initContainers"]
    script = init["args"][0].replace("/data", str(tmp_path))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    tokens = []
    for _ in range(2):
        subprocess.run([*init["command"], script], env={**os.environ, "PATH": path}, check=True, timeout=60)
        tokens.append((tmp_path / "first-token").read_text().strip())
    assert tokens[0] == tokens[1]
    assert (tmp_path / "first-token").stat().st_mode & 0o777 == 0o600
    server = Server(tmp_path / "streams.db", "--host", "127.0.0.1")
    try:
        server.token = tokens[0]
        server.create("a")
    finally:
        server.stop()
    (tmp_path / "first-token").unlink()  # as the manifest advises
    for change in (
        "UPDATE main.tokens SET expires = 4e9",  # `token list` calls such a token not valid, but expiring
        f"PRAGMA user_version = {schema.newest_version() - 1}",  # only the server migrates, after this container
    ):
        with closing(sqlite3.connect(tmp_path / "streams.db", isolation_level=None)) as connection:
            checksums.install(connection)
            connection.execute(change)
        subprocess.run([*init["command"], script], env={**os.environ, "PATH": path}, check=True, timeout=60)
        assert not (tmp_path / "first-token").exists()
    (tmp_path / "streams.db").write_bytes(b"no database" * 1000)
    failed = subprocess.run([*init["command"], script], env={**os.environ, "PATH": path}, check=False, timeout=60)
    assert (failed.returncode, (tmp_path / "first-token").exists()) == (3, False)


def test_the_compose_file_fits_its_schema() -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    package = find_spec("check_jsonschema")
    if package is None or package.origin is None:
        pytest.skip("check-jsonschema, which has the schema, is not installed")
    vendored = Path(package.origin).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    validator = Draft202012Validator(json.loads(vendored.read_text("utf-8")))
    validator.validate(compose)
    compose["services"]["server"]["port"] = ["8000:8000"]
    assert not validator.is_valid(compose)
    dockerfile = Path(compose["services"]["server"]["build"]["dockerfile"])
    assert (DEPLOY.parent / dockerfile).is_file()
