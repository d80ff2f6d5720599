"""Metrics: what a scrape returns, and that rules and dashboard use only these; checked by Prometheus' own tool."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from exchangeable.service.alerts import Details, Webhook, due_alerts, enqueue, mark_failed
from exchangeable.service.metrics import REASONS, DatabaseStatus, Load, Metrics, StreamStatus, read_status
from exchangeable.service.store import StoreError, open_database

DEPLOY = Path(__file__).parents[1] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
DASHBOARD = DEPLOY / "grafana" / "exchangeable.json"
OURS = re.compile(r"\b(?:exchangeable|process)_[a-z0-9_]+\b")
DOCUMENTED = {
    "exchangeable_stream_log10_capital": "gauge",
    "exchangeable_stream_log10_capital_max": "gauge",
    "exchangeable_stream_alarm": "gauge",
    "exchangeable_stream_observations_total": "counter",
    "exchangeable_stream_duplicates_total": "counter",
    "exchangeable_stream_alarms_total": "counter",
    "exchangeable_stream_last_observation_timestamp_seconds": "gauge",
    "exchangeable_stream_last_alarm_timestamp_seconds": "gauge",
    "exchangeable_stream_waiting_labels": "gauge",
    "exchangeable_stream_expired_total": "counter",
    "exchangeable_stream_expired_labelled_total": "counter",
    "exchangeable_rejects_total": "counter",
    "exchangeable_streams": "gauge",
    "exchangeable_streams_left_out": "gauge",
    "exchangeable_outbox_pending": "gauge",
    "exchangeable_outbox_dead": "gauge",
    "exchangeable_ingest_seconds": "histogram",
    "exchangeable_commit_seconds": "histogram",
    "exchangeable_queue_rows": "gauge",
    "exchangeable_queue_requests": "gauge",
    "exchangeable_database_bytes": "gauge",
    "exchangeable_database_readable": "gauge",
    "exchangeable_build_info": "gauge",
    "process_resident_memory_bytes": "gauge",
    "process_cpu_seconds_total": "counter",
}
QUIET = StreamStatus("quiet", 0.0, 0.0, 0, 0, 0, 0, 0, None)
LOUD = StreamStatus("loud", 2.5, 3.25, 1, 1_000, 7, 2, 3, 1_700_000_000.25, 4, 1_699_999_999.5, '{"fraud":3}')
BANKRUPT = StreamStatus("bankrupt", -math.inf, 0.5, 0, 12, 0, 0, 0, 1_600_000_000.0)


def metrics_of(*streams: StreamStatus, total: int | None = None, pending: int = 0, dead: int = 0) -> Metrics:
    fleet = DatabaseStatus(list(streams), len(streams) if total is None else total, pending, dead)
    return Metrics(lambda: fleet, load=lambda: Load(20_000, 3), database_bytes=lambda: 4_096)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((f"exchangeable_{name}", tuple(sorted(labels.items()))))


def promtool(*words: str | Path, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool, of Debian's package prometheus, is not installed")
    return subprocess.run([tool, *map(str, words)], input=text, capture_output=True, check=False)


# ---------------------------------------------------------------- what a scrape says


def test_streams() -> None:
    metrics = metrics_of(QUIET, LOUD, BANKRUPT, total=5, pending=4, dead=1)
    assert value(metrics, "stream_log10_capital", stream="loud") == 2.5
    assert value(metrics, "stream_log10_capital_max", stream="loud") == 3.25
    assert value(metrics, "stream_log10_capital", stream="bankrupt") == -math.inf
    assert value(metrics, "stream_alarm", stream="loud") == 1
    assert value(metrics, "stream_alarm", stream="quiet") == 0
    assert value(metrics, "stream_observations_total", stream="loud") == 1_000
    assert value(metrics, "stream_duplicates_total", stream="loud") == 7
    assert value(metrics, "stream_alarms_total", stream="loud") == 2
    assert value(metrics, "stream_waiting_labels", stream="loud") == 3
    assert value(metrics, "stream_expired_total", stream="loud") == 4
    assert value(metrics, "stream_expired_labelled_total", stream="loud", label="fraud") == 3
    assert value(metrics, "stream_last_observation_timestamp_seconds", stream="loud") == 1_700_000_000.25
    assert value(metrics, "stream_last_observation_timestamp_seconds", stream="quiet") is None
    assert value(metrics, "stream_last_alarm_timestamp_seconds", stream="loud") == 1_699_999_999.5
    assert value(metrics, "stream_last_alarm_timestamp_seconds", stream="quiet") is None
    assert value(metrics, "streams") == 5
    assert value(metrics, "streams_left_out") == 2
    assert value(metrics, "outbox_pending") == 4
    assert value(metrics, "outbox_dead") == 1


def test_server() -> None:
    metrics = metrics_of()
    metrics.rejects.labels(reason="gap").inc()
    metrics.ingest_seconds.observe(0.02)
    with metrics.commit_seconds.time():
        pass
    assert value(metrics, "rejects_total", reason="gap") == 1
    assert value(metrics, "ingest_seconds_count") == 1
    assert value(metrics, "ingest_seconds_sum") == 0.02
    assert value(metrics, "ingest_seconds_bucket", le="0.01") == 0
    assert value(metrics, "ingest_seconds_bucket", le="0.025") == 1
    assert value(metrics, "commit_seconds_count") == 1
    assert value(metrics, "queue_rows") == 20_000
    assert value(metrics, "queue_requests") == 3
    assert value(metrics, "database_bytes") == 4_096
    assert value(metrics, "database_readable") == 1


def test_every_documented_metric_has_its_type_and_a_description() -> None:
    text = metrics_of(LOUD).text().decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    assert {name: types.get(name) for name in DOCUMENTED} == DOCUMENTED
    assert set(types) == set(re.findall(r"^# HELP (\S+) \S.*$", text, re.M))


def test_counters_of_rejected_requests_start_at_zero() -> None:
    """A counter whose first value is 1 is never seen to rise."""
    metrics = metrics_of()
    assert [value(metrics, "rejects_total", reason=reason) for reason in REASONS] == [0.0] * len(REASONS)


def test_no_times_of_creation() -> None:
    assert b"_created" not in metrics_of(LOUD).text()


def test_servers_do_not_share_a_registry() -> None:
    one, other = metrics_of(), metrics_of()
    one.rejects.labels(reason="gap").inc()
    assert value(other, "rejects_total", reason="gap") == 0
    assert not any(metric.name.startswith("exchangeable") for metric in REGISTRY.collect())


def test_nothing_is_read_before_the_scrape() -> None:
    def read() -> DatabaseStatus:
        raise AssertionError("not yet")

    Metrics(read)


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), StoreError("the database is closed")])
def test_other_metrics_are_reported_when_the_database_cannot_be_read(error: Exception) -> None:
    def read() -> DatabaseStatus:
        raise error

    metrics = Metrics(read)
    metrics.rejects.labels(reason="storage").inc()
    assert value(metrics, "database_readable") == 0
    assert value(metrics, "rejects_total", reason="storage") == 1
    assert value(metrics, "streams") is None


def test_a_time_of_zero_is_reported() -> None:
    metrics = metrics_of(LOUD._replace(last_observation=0.0))
    assert value(metrics, "stream_last_observation_timestamp_seconds", stream="loud") == 0.0


def test_names_are_escaped() -> None:
    """No stream can have such a name; if one had, it could not forge a metric."""
    name = 'a"} 1\nexchangeable_streams 99\\'
    metrics = metrics_of(LOUD._replace(name=name))
    assert value(metrics, "stream_alarm", stream=name) == 1
    assert value(metrics, "streams") == 1


# ---------------------------------------------------------------- from the database


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(open_database(":memory:")) as connection:
        yield connection


def insert(database: sqlite3.Connection, name: str, **columns: Any) -> None:
    """Insert a row into streams; columns that are not given get a value of the right type."""
    plain = {"TEXT": "{}", "INTEGER": 0, "REAL": 0.0, "BLOB": b""}
    wanted = {"name": name, "state": json.dumps({"log10_max": columns.pop("log10_max", 0.0)}), **columns}
    row = {
        column: wanted.get(column, plain[kind])
        for _, column, kind, needed, _, key in database.execute("PRAGMA main.table_info(streams)")
        if not key and (needed or column in wanted)
    }
    assert wanted.keys() <= row.keys()
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO main.streams ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def test_the_status_of_a_database(database: sqlite3.Connection) -> None:
    insert(database, "quiet")
    insert(
        database, "loud", log10=2.5, log10_max=3.25, alarm=1, observations=1_000, duplicates=7, alarms=2, waiting=3,
        observed_at=1_700_000_000.25, expired=4, left_out='{"expired": 4, "classes": {"fraud": 3}}',
    )  # fmt: skip
    insert(database, "bankrupt", log10=-math.inf, log10_max=0.5, observations=12, observed_at=1_600_000_000.0)
    marks = "INSERT INTO main.marks (stream, n, kind, time) SELECT id, ?, ?, ? FROM streams WHERE name = 'loud'"
    for n, kind, moment in ((5, "alarm", 1.6e9), (9, "alarm", 1_699_999_999.5), (12, "reset", 1.7e9)):
        database.execute(marks, (n, kind, moment))
    webhooks = [Webhook(name, "http://example.org/") for name in ("one", "two", "three")]
    enqueue(database, webhooks, "loud", "firing", Details("ville", "", 1, 0, 2.5), 0.0)
    mark_failed(database, due_alerts(database)[0].id, "no", dead=True)
    assert read_status(database) == DatabaseStatus([LOUD, BANKRUPT, QUIET], total=3, pending=2, dead=1)


def test_streams_beyond_the_limit_are_counted_and_none_with_an_alarm_is_left_out(database: sqlite3.Connection) -> None:
    for i in range(20):
        insert(database, f"s{i:02}", alarm=int(i >= 17))
    fleet = read_status(database, limit=5)
    assert [stream.name for stream in fleet.streams] == ["s17", "s18", "s19", "s00", "s01"]
    assert value(Metrics(lambda: fleet), "streams_left_out") == 15


def test_the_latest_alarms_of_streams_that_restart_are_never_left_out(database: sqlite3.Connection) -> None:
    for i in range(20):
        insert(database, f"s{i:02}", alarms=int(i >= 10))
    database.execute(
        "INSERT INTO main.marks (stream, n, kind, time) SELECT id, 7, 'alarm', 1.7e9 + id FROM streams WHERE alarms"
    )
    assert [stream.name for stream in read_status(database, limit=3).streams] == ["s19", "s18", "s17"]


def test_empty_database(database: sqlite3.Connection) -> None:
    assert read_status(database) == DatabaseStatus([], 0, 0, 0)


def test_a_full_scrape_is_fast(database: sqlite3.Connection) -> None:
    for i in range(4_000):
        insert(database, f"s{i}", observed_at=1.7e9, log10=0.123456789)
    metrics = Metrics(lambda: read_status(database, limit=1_500))
    start = time.perf_counter()
    text = metrics.text()
    assert time.perf_counter() - start < 5.0  # a tenth of this on an idle machine
    assert text.count(b"exchangeable_stream_alarm{") == 1_500


# ---------------------------------------------------------------- Prometheus


def test_promtool_accepts_the_metrics() -> None:
    metrics = metrics_of(QUIET, LOUD, BANKRUPT, LOUD._replace(name='odd "name"\n'), total=9, dead=1)
    metrics.rejects.labels(reason="gap").inc()
    metrics.ingest_seconds.observe(0.02)
    said = promtool("check", "metrics", text=metrics.text())
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def test_promtool_rejects_wrong_metrics() -> None:
    said = promtool("check", "metrics", text=metrics_of(LOUD).text().replace(b"observations_total", b"observations"))
    assert said.returncode != 0


@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "--lint-fatal", RULES],
        ["check", "config", "--syntax-only", RULES.with_name("prometheus.yml")],
        ["test", "rules", RULES.with_name("rules_test.yml")],
    ],
    ids=["rules", "configuration", "tests-of-rules"],
)
def test_promtool_accepts_what_we_ship(words: list[str | Path]) -> None:
    said = promtool(*words)
    assert said.returncode == 0, said.stdout.decode() + said.stderr.decode()


def test_every_rule_has_a_test() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", RULES.with_name("rules_test.yml").read_text())
    silent = re.findall(r"alertname: (\w+)\n\s+exp_alerts: \[\]", RULES.with_name("rules_test.yml").read_text())
    assert set(alerts) == set(tested) == set(silent)


def exported() -> set[str]:
    """Every name that a query can use."""
    families = text_string_to_metric_families(metrics_of(LOUD).text().decode())
    return {sample.name for family in families for sample in family.samples}


def test_rules_use_our_metrics_only() -> None:
    named = set(OURS.findall(RULES.read_text()))
    assert len(named) >= 7
    assert named <= exported()


# ---------------------------------------------------------------- Grafana


def dashboard() -> dict[str, Any]:
    found = json.loads(DASHBOARD.read_text())
    assert isinstance(found, dict)
    return found


def queries() -> list[str]:
    """Every query, with values in place of Grafana's variables."""
    shown = dashboard()
    found = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", [])]
    found += [note["expr"] for note in shown["annotations"]["list"] if "expr" in note]
    return [query.replace("$__rate_interval", "1m") for query in found]


def test_dashboard_uses_our_metrics_only() -> None:
    named = set(OURS.findall(DASHBOARD.read_text()))
    assert named <= exported()
    parts = {re.sub("_bucket$", "", name) for name in named}
    unused = {  # for the rules
        "exchangeable_database_readable",
        "exchangeable_stream_last_alarm_timestamp_seconds",
        "exchangeable_streams_left_out",
    }
    assert {name for name in DOCUMENTED if name not in parts} <= unused


def test_dashboard_has_queries_that_prometheus_understands(tmp_path: Path) -> None:
    rules = [{"record": f"q{i}", "expr": query} for i, query in enumerate(queries())]
    path = tmp_path / "queries.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    said = promtool("check", "rules", path)
    assert said.returncode == 0, said.stderr.decode()
    assert len(rules) >= 20


def test_dashboard_is_complete() -> None:
    shown = dashboard()
    assert shown["schemaVersion"] >= 39
    assert shown["uid"]
    names = [variable["name"] for variable in shown["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "stream"]
    assert shown["templating"]["list"][0]["type"] == "datasource"
    used = set(re.findall(r"\$\{?([a-z]\w+)", DASHBOARD.read_text()))
    assert used <= set(names)
    panels = shown["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"]
        for part in [panel, *panel.get("targets", [])]:
            assert panel["type"] == "row" or part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_overlap() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    for place in places:
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
    for a, b in combinations(places, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
