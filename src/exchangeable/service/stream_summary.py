"""Summaries of streams for replies and events, from their rows in the table ``streams``."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from exchangeable.service.clock import format_time
from exchangeable.service.problems import Problem
from exchangeable.service.schema import load_json
from exchangeable.service.stream_config import Configuration, VilleAlarm, load_configuration

COLUMNS = (
    "name", "kinds", "created", "state", "observed_at", "next_seq", "since", "resets", "waiting", "expired", "alarms",
    "left_out", "carried",
)  # fmt: skip
RETENTION = ("observations", "rollups")
JSON_COLUMNS = ("kinds", "state", "left_out")
SUMMARY_COLUMNS = ", ".join(COLUMNS)  # for a query whose rows `summarize_row` reads


def unknown_stream(name: str) -> Problem:
    """Return the reply to a request for a stream that does not exist."""
    return Problem(404, "not-found", f"there is no stream {name!r}")


def read_summary(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """Read the summary of a stream."""
    row = connection.execute(f"SELECT {SUMMARY_COLUMNS} FROM streams WHERE name = ?", (name,)).fetchone()  # noqa: S608
    if row is None:
        raise unknown_stream(name)
    return summarize_row(row)


def describe_stream(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """Read a stream: its summary, its configuration and remarks on it."""
    query = f"SELECT configuration, retention, {SUMMARY_COLUMNS} FROM streams WHERE name = ?"  # noqa: S608
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        raise unknown_stream(name)
    return with_configuration(summarize_row(row[2:]), load_configuration(row[0]), load_json(row[1] or "{}"))


def with_configuration(
    summary: dict[str, Any], configuration: Configuration, retention: dict[str, int]
) -> dict[str, Any]:
    """Add the configuration of a stream, remarks on it, and its own retention to its summary."""
    described = {"configuration": configuration.model_dump(mode="json"), "notes": configuration.notes}
    return {**summary, **described, "retention": {key: retention.get(key) for key in RETENTION}}


def summarize_row(values: Sequence[Any]) -> dict[str, Any]:
    """Summarize a stream without its configuration, which may be long, from its ``SUMMARY_COLUMNS``."""
    row = dict(zip(COLUMNS, values, strict=True))
    return summarize({**row, **{name: load_json(row[name]) for name in JSON_COLUMNS}})


def summarize(row: Mapping[str, Any]) -> dict[str, Any]:
    """Summarize a stream from a row whose JSON columns are decoded."""
    return {
        "name": row["name"],
        "state": row["state"],
        **{key: row[key] for key in ("next_seq", "since", "resets", "waiting", "expired", "alarms")},
        "restarted": row["carried"] != 0.0,
        "left_out": row["left_out"],
        "created": format_time(row["created"]),
        "observed_at": None if row["observed_at"] is None else format_time(row["observed_at"]),
        **row["kinds"],
    }


def kinds(configuration: Configuration) -> dict[str, Any]:
    """Return the fields of a summary that come from the configuration."""
    alarm = configuration.alarm
    return {
        "measure": configuration.measure.kind,
        "bet": None if configuration.bet is None else configuration.bet.kind,
        "alarm_kind": alarm.kind,
        "threshold_log10": -math.log10(alarm.alpha) if isinstance(alarm, VilleAlarm) else None,
    }
