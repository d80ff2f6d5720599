"""What a group of requests announces once it is committed: events for readers, and alerts for their receivers."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from exchangeable.martingale import LN10
from exchangeable.rate import RatePath
from exchangeable.risk import Risk, RiskPath
from exchangeable.service import alerts, history
from exchangeable.service.schema import load_json
from exchangeable.service.stream import AnyPath, LiveStream
from exchangeable.service.table_test import TableTest


class StreamEvent(NamedTuple):
    """A change of a stream: its new steps, if there are any, and its summary."""

    name: str
    points: history.Points | None
    stream: dict[str, Any]
    kind: str = "steps"  # or "created", "reset", "gone"


class Announcements:
    """The events of the current group of requests, and whether it has put alerts into the outbox."""

    def __init__(self, webhooks: Sequence[alerts.Receiver]) -> None:
        self.webhooks = webhooks
        self.events: list[StreamEvent] = []
        self.alerted: bool = False

    def clear(self) -> None:
        """Start a new group."""
        self.events, self.alerted = [], False

    def add(self, stream: LiveStream, points: history.Points | None = None, kind: str = "steps") -> dict[str, Any]:
        """Announce a change of a stream, and return its summary."""
        event = StreamEvent(stream.name, points, stream.summary(), kind)
        self.events.append(event)
        return event.stream

    def record_alarms(self, connection: sqlite3.Connection, stream: LiveStream, path: AnyPath) -> None:
        """Store the alarms of these steps. Several alarms in one batch make one alert, about the last of them."""
        positions = stream.new_alarms(path).tolist()
        for position in positions:
            mark(connection, stream, int(path.n[position]), "alarm", _lowest(path, position))
        if positions:
            last = positions[-1]
            log10 = float(path.log_value[last]) / LN10
            details = alerts.Details(
                alarm=stream.configuration.alarm.kind,
                guarantee=stream.guarantee,
                alarm_at=int(path.n[last]),
                changepoint=_lowest(path, last),
                log10_martingale=log10 if math.isfinite(log10) else None,
                change=path.changes[-1] if isinstance(path, RatePath) else None,
                risk=_risk(stream, path, last),
                table=_table(stream),
            )
            self._alert(connection, stream.name, "firing", details)
            if stream.monitor.on_alarm == "restart":
                self._alert(connection, stream.name, "resolved", details._replace(reason="restart"))

    def resolve(self, connection: sqlite3.Connection, row: dict[str, Any], reason: str) -> None:
        """Resolve the alert of a stream that is reset or deleted, if its alarm has latched."""
        configuration, state = load_json(row["configuration"]), row["state"]  # parsing might fail in another release
        if configuration["on_alarm"] == "latch" and state["alarm_at"] is not None:
            details = alerts.Details(
                alarm=configuration["alarm"]["kind"],
                guarantee=state["guarantee"],
                alarm_at=state["alarm_at"],
                changepoint=state["changepoint"],
                log10_martingale=state["log10_martingale"],
                reason=reason,
            )
            self._alert(connection, row["name"], "resolved", details)

    def _alert(self, connection: sqlite3.Connection, name: str, status: alerts.Status, details: alerts.Details) -> None:
        self.alerted |= alerts.enqueue(connection, self.webhooks, name, status, details, time.time()) > 0


def _risk(stream: LiveStream, path: AnyPath, position: int) -> alerts.RiskDetails | None:
    """Return the limit and the mean loss at a position of a path, if the risk is monitored."""
    if not isinstance(path, RiskPath) or not isinstance(stream.monitor, Risk):
        return None
    return alerts.RiskDetails(stream.monitor.limit, float(path.mean[position]))


def _lowest(path: AnyPath, position: int) -> int | None:
    lowest = path.lowest[position]
    return None if lowest is None else int(lowest)


def _table(stream: LiveStream) -> alerts.TableDetails | None:
    """Return the columns and views that have rejected, if the stream is a table."""
    if not isinstance(stream.monitor, TableTest):
        return None
    state = stream.monitor.state()
    return alerts.TableDetails(tuple(state["rejected_by"]), state["rejected"], stream.monitor.keep_from)


def mark(connection: sqlite3.Connection, stream: LiveStream, n: int, kind: str, changepoint: int | None = None) -> None:
    """Store an alarm or a reset, to be shown in charts of the history."""
    connection.execute(
        "INSERT INTO main.marks (stream, n, kind, changepoint, time) VALUES (?, ?, ?, ?, ?)",
        (stream.id, n, kind, changepoint, time.time()),
    )
