"""Metrics for Prometheus: the state of every stream and of the server.

The capital is reported as its log10, since the capital itself would overflow; that of a bankrupt stream is -Inf.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from exchangeable.service.alerts import count_alerts
from exchangeable.service.problems import Problem
from exchangeable.service.schema import load_json
from exchangeable.service.store import StoreError

__all__ = ["DatabaseStatus", "Load", "Metrics", "read_status"]
LAST_ALARM = (  # from the index of marks
    "(SELECT time FROM main.marks WHERE stream = streams.id AND kind = 'alarm' AND alarms > 0 ORDER BY n DESC LIMIT 1)"
)
REASONS = (
    "bad-configuration", "bad-json", "bad-observation", "bad-reference", "bad-request", "conflict", "damaged",
    "different", "forbidden", "full", "gap", "internal", "not-found", "not-ready", "out-of-memory", "overload",
    "rate-limit", "storage", "storage-full", "too-large", "too-many-streams", "too-many-waiting", "too-slow",
    "unauthorised", "unknown-id", "unsupported-media-type", "untrusted-host",
)  # fmt: skip
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Load(NamedTuple):
    """What the engine does at the moment."""

    rows: int = 0  # in the queue
    requests: int = 0
    busy_seconds: float = 0.0
    live_streams: int = 0
    live_bytes: int = 0


class StreamStatus(NamedTuple):
    """The state of a stream; the fields are named like the metrics."""

    name: str
    log10_capital: float
    log10_capital_max: float
    alarm: int
    observations: int
    duplicates: int
    alarms: int
    waiting_labels: int
    last_observation: float | None
    expired: int = 0
    last_alarm: float | None = None
    classes: str | None = None  # how many expired observations whose label arrived later had each label, as JSON
    rejected_columns: int | None = None  # of a table
    rejected_by: str | None = None  # the strongest of them, as JSON


class DatabaseStatus(NamedTuple):
    """The metrics that come from the database."""

    streams: list[StreamStatus]  # at most as many as were asked for
    total: int  # of all streams
    pending: int  # alerts in the outbox
    dead: int


def read_status(connection: sqlite3.Connection, limit: int = 2_000) -> DatabaseStatus:
    """Read the metrics from the database, of at most ``limit`` streams: those with an alarm, then the latest alarms.

    O(streams) time, O(limit) memory.
    """
    rows = connection.execute(
        "SELECT name, log10, json_extract(state, '$.log10_max'), alarm, observations, duplicates, alarms, waiting,"  # noqa: S608
        " observed_at, expired, last_alarm, json_extract(left_out, '$.classes'),"
        " json_extract(state, '$.table.rejected'), json_extract(state, '$.table.rejected_by')"
        f" FROM (SELECT id, {LAST_ALARM} AS last_alarm FROM main.streams"
        " ORDER BY alarm DESC, last_alarm DESC, name LIMIT ?) JOIN streams USING (id)"
        " ORDER BY alarm DESC, last_alarm DESC, name",
        (limit,),
    )
    streams = [StreamStatus(*row) for row in rows]
    total = connection.execute("SELECT count(*) FROM main.streams").fetchone()[0]
    return DatabaseStatus(streams, total, *count_alerts(connection))


_GAUGES = {
    "log10_capital": "Log10 of the capital that bets against exchangeability; for rates, of the evidence of a change.",
    "log10_capital_max": "Highest log10 of the capital since the test of the stream started.",
    "alarm": "Whether the alarm of the stream is raised, 1 or 0.",
    "waiting_labels": "Observations that wait for their labels.",
}
_COUNTERS = {
    "observations": "Observations accepted.",
    "duplicates": "Observations that were sent again; each is counted once in observations.",
    "alarms": "Alarms raised.",
    "expired": "Observations left out since the last reset, because their label did not arrive within the wait.",
}


class _Streams(Collector):
    """The metrics that come from the database, read for each scrape."""

    def __init__(self, read: Callable[[], DatabaseStatus]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        try:
            status: DatabaseStatus | None = self._read()
        except (sqlite3.Error, StoreError, Problem):  # the other metrics matter most in this case
            status = None
        yield _gauge("database_readable", "Whether this scrape could read the database, 1 or 0.", status is not None)
        if status is not None:
            left_out = status.total - len(status.streams)
            yield _gauge("streams", "Number of streams.", status.total)
            yield _gauge("streams_left_out", "Streams without their own metrics, because there are too many.", left_out)
            yield _gauge("outbox_pending", "Alerts that are yet to be delivered.", status.pending)
            yield _gauge("outbox_dead", "Alerts whose delivery was given up, until someone retries them.", status.dead)
            yield from _families(status.streams)


def _families(streams: list[StreamStatus]) -> Iterable[Metric]:
    """Yield one family for each column, with one sample for each stream."""
    for kind, texts in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for field, text in texts.items():
            family = kind(f"exchangeable_stream_{field}", text, labels=["stream"])
            for stream in streams:
                family.add_metric([stream.name], getattr(stream, field))
            yield family
    late = CounterMetricFamily(
        "exchangeable_stream_expired_labelled",
        "Expired observations whose label arrived later, by label: the first ten labels, and all others together.",
        labels=["stream", "label"],
    )
    for stream in streams:
        for label, expired in load_json(stream.classes or "{}").items():
            late.add_metric([stream.name, label], expired)
    yield late
    yield from _table_families([stream for stream in streams if stream.rejected_columns is not None])
    last = GaugeMetricFamily(
        "exchangeable_stream_last_observation_timestamp_seconds",
        "When the last observation was accepted, in seconds since 1970; missing before the first.",
        labels=["stream"],
    )
    alarm = GaugeMetricFamily(
        "exchangeable_stream_last_alarm_timestamp_seconds",
        "When the last alarm was raised, in seconds since 1970; missing before the first.",
        labels=["stream"],
    )
    for stream in streams:
        if stream.last_observation is not None:
            last.add_metric([stream.name], stream.last_observation)
        if stream.last_alarm is not None:
            alarm.add_metric([stream.name], stream.last_alarm)
    yield last
    yield alarm


def _table_families(tables: list[StreamStatus]) -> Iterable[Metric]:
    """Yield how many columns and views of each table have rejected, and the names of the 20 strongest."""
    name = "exchangeable_stream_rejected"
    text = "Columns and views of a table with enough evidence of their own"
    count = GaugeMetricFamily(f"{name}_columns", f"{text}.", labels=["stream"])
    names = GaugeMetricFamily(f"{name}_by", f"{text}: always 1, for at most 20 of them.", labels=["stream", "column"])
    for table in tables:
        count.add_metric([table.name], table.rejected_columns or 0)
        for column in load_json(table.rejected_by or "[]"):
            names.add_metric([table.name, column], 1)
    yield count
    yield names


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"exchangeable_{name}", text, value=value)


class _Server(Collector):
    """The load of the engine, the size of the database, and the installed version."""

    def __init__(
        self, load: Callable[[], Load], database_bytes: Callable[[], int], in_place: Callable[[], bool]
    ) -> None:
        self._load = load
        self._bytes = database_bytes
        self._in_place = in_place

    def collect(self) -> Iterable[Metric]:
        load = self._load()
        yield _gauge("queue_rows", "Observations in the queue, not yet committed.", load.rows)
        yield _gauge("queue_requests", "Requests in the queue, not yet committed.", load.requests)
        yield _gauge("writer_busy_seconds", "How long the current transaction has taken so far.", load.busy_seconds)
        yield _gauge("live_streams", "Streams in memory.", load.live_streams)
        yield _gauge("live_bytes", "Approximate memory of these streams.", load.live_bytes)
        yield _gauge("database_bytes", "Size of the database and its log.", self._bytes())
        text = "Whether the files of the database are those that the server opened, 1 or 0."
        yield _gauge("database_in_place", text, self._in_place())
        build = GaugeMetricFamily(
            "exchangeable_build_info", "The installed version; always 1.", labels=["version", "python"]
        )
        build.add_metric([sys.modules["exchangeable"].__version__, ".".join(map(str, sys.version_info[:3]))], 1)
        yield build


class _WithoutCreated(Collector):
    """Metrics without the times of their creation, which prometheus_client adds and which are not needed."""

    def __init__(self, *inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for collector in self._inner:
            for metric in collector.collect():
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric


class Metrics:
    """All metrics of one server, in a separate registry.

    ``read`` reads the database (with `read_status`), ``load`` returns what the engine does, ``database_bytes`` the size
    on disk, and ``in_place`` whether its files are those that were opened. The server updates ``ingest_seconds`` and
    ``commit_seconds`` (with ``.time()`` or ``.observe(seconds)``) and calls ``count_rejected`` with the code of each
    problem.

    >>> metrics = Metrics(lambda: DatabaseStatus([], 0, 0, 0))
    >>> metrics.count_rejected("gap")
    >>> [line for line in metrics.text().decode().splitlines() if "gap" in line]
    ['exchangeable_rejects_total{reason="gap"} 1.0']
    """

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(
        self,
        read: Callable[[], DatabaseStatus],
        *,
        load: Callable[[], Load] = Load,
        database_bytes: Callable[[], int] = lambda: 0,
        in_place: Callable[[], bool] = lambda: True,
    ) -> None:
        self.rejects: Counter = Counter(
            "exchangeable_rejects", "Requests rejected, by reason.", ["reason"], registry=None
        )
        self.ingest_seconds: Histogram = Histogram(
            "exchangeable_ingest_seconds",
            "Time from a request with observations or labels to its commit.",
            buckets=SECONDS,
            registry=None,
        )
        self.commit_seconds: Histogram = Histogram(
            "exchangeable_commit_seconds", "Duration of a transaction.", buckets=SECONDS, registry=None
        )
        for reason in REASONS:  # Prometheus only sees an increase if the counter exists before
            self.rejects.labels(reason=reason)
        self.registry: CollectorRegistry = CollectorRegistry()  # registering a collector does not read the database
        self.registry.register(_Streams(read))
        self.registry.register(_Server(load, database_bytes, in_place))
        self.registry.register(_WithoutCreated(self.rejects, self.ingest_seconds, self.commit_seconds))
        ProcessCollector(registry=self.registry)

    def count_rejected(self, reason: str) -> None:
        """Count a rejected request."""
        self.rejects.labels(reason=reason).inc()

    def text(self) -> bytes:
        """Return the response to a scrape. This reads the database, so do not call it on the event loop."""
        return generate_latest(self.registry)
