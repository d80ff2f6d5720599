"""Streams of rows with named columns: each is watched by a `TableMonitor` of its own."""

from __future__ import annotations

from typing import Any

import numpy as np

from exchangeable.data.errors import ColumnError
from exchangeable.protocols import Floats
from exchangeable.streams.source import Wanted
from exchangeable.table_monitor import TableMonitor, TablePath
from exchangeable.table_monitor.lines import Rows
from exchangeable.validation import format_value


def fresh_table(model: TableMonitor, seed: int, on_alarm: str) -> TableMonitor:
    """Return a monitor with the constants of another one, and empty pools."""
    if model.has_reference or model.wait is not None:
        rule = "measure must be a TableMonitor with a schema and without wait"
        found = "a reference" if model.has_reference else "wait"
        advice = "TableMonitor(schema=monitor.schema) compares each stream with its own past"
        raise ValueError(f"{rule}, got one with {found}: {advice}")
    if model.n:
        raise ValueError(f"measure must be fresh, got a TableMonitor that has seen {model.n} rows")
    settings = {name: getattr(model, name) for name in ("alpha", "period", "columns", "max_rows", "invalid")}
    return TableMonitor(schema=model.schema, on_alarm=on_alarm, seed=seed, **settings)


def table_columns(wanted: Wanted, monitor: TableMonitor) -> Wanted:
    """Check that the columns of a call are those of the schema; by default they are."""
    label = None if monitor.schema.label is None else monitor.schema.label.name
    names = tuple(column.name for column in monitor.schema.columns)
    if wanted.label not in (None, label):
        held = "none" if label is None else format_value(label)
        raise ColumnError(f"label must be that of the schema, {held}, got {format_value(wanted.label)}")
    if wanted.features is not None and set(wanted.features) != set(names):
        raise ColumnError(f"features must be the columns of the schema, {', '.join(map(format_value, names))}")
    return wanted._replace(features=names, label=label).check()


def extend_table(monitor: TableMonitor, scores: Floats, y: Any) -> TablePath:
    """Consume rows whose cells have been converted to scores, as ``extend`` does."""
    labels = np.full(len(scores), np.nan) if y is None else y
    return monitor._consume(Rows(scores, monitor.schema.features(scores), labels, np.arange(1, len(scores) + 1)))
