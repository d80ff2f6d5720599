"""Metrics for Prometheus: where every stream stands, and how the server fares.

The capital is told as its log10, since the capital itself overflows; a bankrupt stream stands at -Inf.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from exchangeable.service.alerts import counts
from exchangeable.service.store import StoreError

__all__ = ["Fleet", "Metrics", "rows"]
LIMIT = 2_000  # streams told of one by one
REASONS = (
    "bad-configuration", "bad-json", "bad-observation", "bad-request", "conflict", "different", "forbidden", "full",
    "gap", "internal", "not-found", "not-ready", "overload", "storage", "storage-full", "too-large", "too-many-streams",
    "too-many-waiting", "too-slow", "unauthorised", "unknown-id", "unsupported-media-type", "untrusted-host",
)  # fmt: skip
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Stream(NamedTuple):
    """A stream as its row says; the names are those of the metrics."""

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
    classes: str | None = None  # of the expired whose label came after all: how many had each label, as JSON


class Fleet(NamedTuple):
    """All that the database knows."""

    streams: list[Stream]
    total: int  # of which ``streams`` may be the first few
    pending: int
    dead: int


def rows(connection: sqlite3.Connection, limit: int = LIMIT) -> Fleet:
    """What there is to tell; of at most so many streams, those with an alarm first, so that none of these is left out.

    O(streams) time, O(limit) memory.
    """
    found = connection.execute(
        "SELECT name, log10, json_extract(state, '$.log10_max'), alarm, observations, duplicates, alarms, waiting,"
        " observed_at, expired, json_extract(left_out, '$.classes') FROM streams ORDER BY alarm DESC, name LIMIT ?",
        (limit,),
    )
    streams = [Stream(*row) for row in found]
    total = connection.execute("SELECT count(*) FROM streams").fetchone()[0]
    return Fleet(streams, total, *counts(connection))


_GAUGES = {
    "log10_capital": "Log10 of the capital that bets against exchangeability, since the test of the stream began.",
    "log10_capital_max": "Highest log10 of the capital since the test of the stream began.",
    "alarm": "Whether the alarm of the stream sounds, 1 or 0.",
    "waiting_labels": "Observations that wait for their labels.",
}
_COUNTERS = {
    "observations": "Observations taken in.",
    "duplicates": "Observations sent again, and not counted again.",
    "alarms": "Alarms that sounded.",
    "expired": "Observations left out since the last reset, because their label did not come within the wait.",
}


class _Streams(Collector):
    """The fleet, read again for each scrape."""

    def __init__(self, read: Callable[[], Fleet]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        try:
            fleet: Fleet | None = self._read()
        except (sqlite3.Error, StoreError):  # the other metrics are wanted now more than ever
            fleet = None
        yield _gauge("database_readable", "Whether this scrape could read the database, 1 or 0.", fleet is not None)
        if fleet is not None:
            yield from self._told(fleet)

    def _told(self, fleet: Fleet) -> Iterable[Metric]:
        yield _gauge("streams", "Streams that exist.", fleet.total)
        left = fleet.total - len(fleet.streams)
        yield _gauge("streams_left_out", "Streams without metrics of their own, because there are too many.", left)
        yield _gauge("outbox_pending", "Alerts that wait to be delivered.", fleet.pending)
        yield _gauge("outbox_dead", "Alerts given up, which wait for somebody to retry them.", fleet.dead)
        yield from _families(fleet.streams)


def _families(streams: list[Stream]) -> Iterable[Metric]:
    """One family a column, one sample a stream."""
    for field, text in _GAUGES.items():
        gauge = GaugeMetricFamily(f"exchangeable_stream_{field}", text, labels=["stream"])
        for stream in streams:
            gauge.add_metric([stream.name], getattr(stream, field))
        yield gauge
    for field, text in _COUNTERS.items():
        counter = CounterMetricFamily(f"exchangeable_stream_{field}", text, labels=["stream"])
        for stream in streams:
            counter.add_metric([stream.name], getattr(stream, field))
        yield counter
    late = CounterMetricFamily(
        "exchangeable_stream_expired_labelled",
        "Expired observations whose label came after all, by label: the first ten labels, and all others together.",
        labels=["stream", "label"],
    )
    for stream in streams:
        for label, expired in json.loads(stream.classes or "{}").items():
            late.add_metric([stream.name, label], expired)
    yield late
    last = GaugeMetricFamily(
        "exchangeable_stream_last_observation_timestamp_seconds",
        "When the last observation was taken in, in seconds since 1970; missing before the first.",
        labels=["stream"],
    )
    for stream in streams:
        if stream.last_observation is not None:
            last.add_metric([stream.name], stream.last_observation)
    yield last


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"exchangeable_{name}", text, value=value)


class _Server(Collector):
    """How full the queue and the disk are, and which build this is."""

    def __init__(self, queue: Callable[[], tuple[int, int]], database_bytes: Callable[[], int]) -> None:
        self._queue = queue
        self._bytes = database_bytes

    def collect(self) -> Iterable[Metric]:
        rows, requests = self._queue()
        yield _gauge("queue_rows", "Observations taken in, but not committed yet.", rows)
        yield _gauge("queue_requests", "Requests that wait for their commit.", requests)
        yield _gauge("database_bytes", "Size of the database and its log.", self._bytes())
        build = GaugeMetricFamily("exchangeable_build_info", "This build; always 1.", labels=["version", "python"])
        build.add_metric([sys.modules["exchangeable"].__version__, ".".join(map(str, sys.version_info[:3]))], 1)
        yield build


class _Plain(Collector):
    """Metrics without the times of their creation, which are no metrics of ours and only swell the text."""

    def __init__(self, *inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterable[Metric]:
        for collector in self._inner:
            for metric in collector.collect():
                metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
                yield metric


class Metrics:
    """All metrics of one server, in a registry of its own.

    ``read`` looks into the database (``rows`` on a connection), ``queue`` tells the rows and requests that wait for a
    commit, ``database_bytes`` the size on disk. Counting is up to the server: ``ingest_seconds`` and ``commit_seconds``
    (``.time()`` or ``.observe(seconds)``) and ``rejects.labels(reason=problem.code).inc()``.

    >>> metrics = Metrics(lambda: Fleet([], 0, 0, 0))
    >>> metrics.rejects.labels(reason="gap").inc()
    >>> [line for line in metrics.text().decode().splitlines() if "gap" in line]
    ['exchangeable_rejects_total{reason="gap"} 1.0']
    """

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(
        self,
        read: Callable[[], Fleet],
        *,
        queue: Callable[[], tuple[int, int]] = lambda: (0, 0),
        database_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self.rejects: Counter = Counter(
            "exchangeable_rejects", "Requests refused, by reason.", ["reason"], registry=None
        )
        self.ingest_seconds: Histogram = Histogram(
            "exchangeable_ingest_seconds",
            "Time from a request with observations or labels to its commit.",
            buckets=SECONDS,
            registry=None,
        )
        self.commit_seconds: Histogram = Histogram(
            "exchangeable_commit_seconds", "Time of a transaction.", buckets=SECONDS, registry=None
        )
        for reason in REASONS:  # a counter that begins at 0 can be seen to rise
            self.rejects.labels(reason=reason)
        self.registry: CollectorRegistry = CollectorRegistry()  # reads nothing when a collector is registered
        self.registry.register(_Streams(read))
        self.registry.register(_Server(queue, database_bytes))
        self.registry.register(_Plain(self.rejects, self.ingest_seconds, self.commit_seconds))
        ProcessCollector(registry=self.registry)

    def refused(self, reason: str) -> None:
        """Count a refusal."""
        self.rejects.labels(reason=reason).inc()

    def text(self) -> bytes:
        """The answer to a scrape. It reads the database: not for the event loop's own thread."""
        return generate_latest(self.registry)
