"""Estimates of how long a request takes, in nanoseconds: heavy ones must not hold up other streams."""

from __future__ import annotations

import sqlite3

from exchangeable.service.parsing import Batch
from exchangeable.service.stream import LiveStream
from exchangeable.service.stream_config import Configuration, FrozenMeasure
from exchangeable.service.stream_summary import unknown_stream

HEAVY = 10_000_000
LOAD = 500_000  # to load the smallest stream
PER_LABEL = 20_000  # to decide on an observation that waits, or on its label
PER_ROW_LABEL = 500_000  # the same for a table, with the tests of the lines that use the label
PER_STATE_BYTE = 15  # to encode a state, or to copy and describe it
PER_REFERENCE, PER_BIN = 1_000, 50  # to build a measure from a reference score, and a bin
PER_TEXT_BYTE = 50  # to parse a configuration or a reference


def batch_cost(stream: LiveStream, batch: Batch) -> int:
    """Estimate the time of a batch, which may release the observations that wait."""
    cost = stream.cost(len(batch), batch.x.shape[1])
    if stream.configuration.needs_labels and (stream.waiting or not has_labels(batch)):
        cost = PER_LABEL * (len(batch) + stream.waiting) + stream.cost(len(batch) + stream.waiting)
    return cost


def labels_cost(stream: LiveStream, labels: int) -> int:
    """Estimate the time of late labels, which may release all observations that wait."""
    if not stream.configuration.takes_labels:
        return 0
    if stream.configuration.late_rows:
        return PER_ROW_LABEL * labels + stream.cost(stream.waiting)
    return PER_LABEL * (labels + stream.waiting) + stream.cost(stream.waiting)


def state_cost(stream: LiveStream) -> int:
    """Estimate the time to encode the state of a stream."""
    return PER_STATE_BYTE * stream.bytes


def reload_cost(stream: LiveStream) -> int:
    """Estimate the time to load a stream again that is in memory."""
    return LOAD + state_cost(stream) + stream.cost(stream.monitor.n - stream.snapshot_n)


def configuration_cost(configuration: Configuration) -> int:
    """Estimate the time to build the monitor of a configuration, and to encode the configuration."""
    measure = configuration.measure
    if not isinstance(measure, FrozenMeasure):
        return 0
    return PER_REFERENCE * len(measure.reference) + PER_BIN * measure.bins


def load_cost(connection: sqlite3.Connection, name: str) -> int:
    """Estimate the time to load a stream: to parse its configuration, decode its snapshot, and replay the rest."""
    row = connection.execute(
        "SELECT id, n, since, length(CAST(configuration AS BLOB)), json_extract(kinds, '$.measure') FROM main.streams"
        " WHERE name = ?",
        (name,),
    ).fetchone()
    if row is None:
        raise unknown_stream(name)
    id_, n, since, configuration, measure = row
    snapshot_n, snapshot_bytes = connection.execute(
        "SELECT coalesce(max(n), 0), coalesce(sum(length(data)), 0) FROM main.snapshots WHERE stream = ?", (id_,)
    ).fetchone()
    per_row = 1_000_000 if measure == "table" else 50 * (n - since) if "nearest" in measure else 5_000
    return int(PER_TEXT_BYTE * configuration + PER_STATE_BYTE * snapshot_bytes + per_row * (n - snapshot_n))


def reset_cost(connection: sqlite3.Connection, name: str) -> int:
    """Estimate the time to start a new test of a stream: to parse its configuration and its reference."""
    row = connection.execute(
        "SELECT length(CAST(configuration AS BLOB)) + (SELECT coalesce(sum(length(data)), 0) FROM main.reference"
        " WHERE stream = id) FROM main.streams WHERE name = ?",
        (name,),
    ).fetchone()
    return 0 if row is None else 10 * PER_TEXT_BYTE * int(row[0])


def has_labels(batch: Batch) -> bool:
    """Return whether every observation has its label."""
    return batch.extras.y is not None and None not in batch.extras.y
