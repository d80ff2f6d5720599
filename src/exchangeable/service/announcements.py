"""What a group of requests announces once it is committed: events for readers, and alerts for webhooks."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from exchangeable.martingale import LN10
from exchangeable.rate import RatePath
from exchangeable.service import alerts, history
from exchangeable.service.schema import load_json
from exchangeable.service.stream import AnyPath, LiveStream


class StreamEvent(NamedTuple):
    """A change of a stream: its new steps, if there are any, and its summary."""

    name: str
    points: history.Points | None
    stream: dict[str, Any]
    kind: str = "steps"  # or "created", "reset", "gone"


class Announcements:
    """The events of the current group of requests, and whether it has put alerts into the outbox."""

    def __init__(self, webhooks: Sequence[alerts.Webhook]) -> None:
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
            mark(connection, stream, int(path.n[position]), "alarm", int(path.lowest[position]))
        if positions:
            last = positions[-1]
            log10 = float(path.log_value[last]) / LN10
            details = alerts.Details(
                alarm=stream.configuration.alarm.kind,
                guarantee=stream.guarantee,
                alarm_at=int(path.n[last]),
                changepoint=int(path.lowest[last]),
                log10_martingale=log10 if math.isfinite(log10) else None,
                change=path.changes[-1] if isinstance(path, RatePath) else None,
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


def mark(connection: sqlite3.Connection, stream: LiveStream, n: int, kind: str, changepoint: int | None = None) -> None:
    """Store an alarm or a reset, to be shown in charts of the history."""
    connection.execute(
        "INSERT INTO marks (stream, n, kind, changepoint, time) VALUES (?, ?, ?, ?, ?)",
        (stream.id, n, kind, changepoint, time.time()),
    )
