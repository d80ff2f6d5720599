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
from exchangeable.service.schema import load_json
from exchangeable.service.store import StoreError

__all__ = ["DatabaseStatus", "Metrics", "read_status"]
LIMIT = 2_000  # streams that have their own metrics
REASONS = (
    "bad-configuration", "bad-json", "bad-observation", "bad-request", "conflict", "different", "forbidden", "full",
    "gap", "internal", "not-found", "not-ready", "overload", "storage", "storage-full", "too-large", "too-many-streams",
    "too-many-waiting", "too-slow", "unauthorised", "unknown-id", "unsupported-media-type", "untrusted-host",
)  # fmt: skip
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


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
    classes: str | None = None  # how many expired observations whose label arrived later had each label, as JSON


class DatabaseStatus(NamedTuple):
    """The metrics that come from the database."""

    streams: list[StreamStatus]  # at most ``LIMIT``
    total: int  # of all streams
    pending: int  # alerts in the outbox
    dead: int


def read_status(connection: sqlite3.Connection, limit: int = LIMIT) -> DatabaseStatus:
    """Read the metrics from the database, of at most ``limit`` streams; those with an alarm come first.

    O(streams) time, O(limit) memory.
    """
    rows = connection.execute(
        "SELECT name, log10, json_extract(state, '$.log10_max'), alarm, observations, duplicates, alarms, waiting,"
        " observed_at, expired, json_extract(left_out, '$.classes') FROM streams ORDER BY alarm DESC, name LIMIT ?",
        (limit,),
    )
    streams = [StreamStatus(*row) for row in rows]
    total = connection.execute("SELECT count(*) FROM streams").fetchone()[0]
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
        except (sqlite3.Error, StoreError):  # the other metrics matter most in this case
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
    last = GaugeMetricFamily(
        "exchangeable_stream_last_observation_timestamp_seconds",
        "When the last observation was accepted, in seconds since 1970; missing before the first.",
        labels=["stream"],
    )
    for stream in streams:
        if stream.last_observation is not None:
            last.add_metric([stream.name], stream.last_observation)
    yield last


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"exchangeable_{name}", text, value=value)


class _Server(Collector):
    """The sizes of the queue and of the database, and the installed version."""

    def __init__(self, queue: Callable[[], tuple[int, int]], database_bytes: Callable[[], int]) -> None:
        self._queue = queue
        self._bytes = database_bytes

    def collect(self) -> Iterable[Metric]:
        rows, requests = self._queue()
        yield _gauge("queue_rows", "Observations in the queue, not yet committed.", rows)
        yield _gauge("queue_requests", "Requests in the queue, not yet committed.", requests)
        yield _gauge("database_bytes", "Size of the database and its log.", self._bytes())
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

    ``read`` reads the database (with `read_status`), ``queue`` returns the numbers of queued rows and requests, and
    ``database_bytes`` the size on disk. The server updates ``ingest_seconds`` and ``commit_seconds`` (with ``.time()``
    or ``.observe(seconds)``) and calls ``count_rejected`` with the code of each problem.

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
        queue: Callable[[], tuple[int, int]] = lambda: (0, 0),
        database_bytes: Callable[[], int] = lambda: 0,
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
        self.registry.register(_Server(queue, database_bytes))
        self.registry.register(_WithoutCreated(self.rejects, self.ingest_seconds, self.commit_seconds))
        ProcessCollector(registry=self.registry)

    def count_rejected(self, reason: str) -> None:
        """Count a rejected request."""
        self.rejects.labels(reason=reason).inc()

    def text(self) -> bytes:
        """Return the response to a scrape. This reads the database, so do not call it on the event loop."""
        return generate_latest(self.registry)
