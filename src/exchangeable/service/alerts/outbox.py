"""The outbox: alerts in the database until they are delivered. Call these functions inside a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from exchangeable.service.alerts.apprise_target import Receiver
from exchangeable.service.alerts.message import STATUSES, Details, Status, build_alert
from exchangeable.service.clock import format_time
from exchangeable.service.problems import Problem
from exchangeable.service.schema import dump_json, load_json

MAX_SENT, MAX_DEAD = 1_000, 10_000  # how many of each are stored
MAX_PENDING = 100  # alerts that may wait for one receiver and stream
MAX_ERROR_LENGTH = 300
COLUMNS = ("id", "receiver", "stream", "status", "state", "attempts", "error", "created", "fingerprint")


class DueAlert(NamedTuple):
    """An alert that may be sent: the oldest one pending for its receiver and stream."""

    id: int
    receiver: str
    attempts: int
    stream: str


def enqueue(
    connection: sqlite3.Connection,
    webhooks: Iterable[Receiver],
    stream: str,
    status: Status,
    details: Details,
    now: float,
) -> int:
    """Add an alert to the outbox, once for each receiver, and return the number of receivers.

    Call this in the transaction that records the alarm, reset, restart or deletion, so that both are committed or
    neither is. If more than 100 alerts wait for one receiver and stream (it keeps raising alarms and restarting, and
    the receiver does not respond), the oldest of them become dead letters: the disk must not fill up, and the newest
    ones describe the current state.
    """
    if status not in STATUSES:
        raise ValueError(f"status must be firing or resolved, got {status!r}")
    webhooks = list(webhooks)
    if not webhooks:
        return 0
    started = now if details.started is None else details.started
    alert = build_alert(stream, status, details, started, now)
    if status == "resolved" and details.started is None:
        alert["startsAt"] = _start_time(connection, alert["fingerprint"]) or alert["startsAt"]
    text = dump_json(alert)
    connection.executemany(
        "INSERT INTO main.outbox (created, receiver, stream, status, fingerprint, alert, attempts, state, error)"
        " VALUES (?, ?, ?, ?, ?, ?, 0, 'pending', '')",
        [(now, webhook.name, stream, status, alert["fingerprint"], text) for webhook in webhooks],
    )
    for webhook in webhooks:
        _limit_pending(connection, webhook.name, stream)
    return len(webhooks)


def _limit_pending(connection: sqlite3.Connection, receiver: str, stream: str) -> None:
    pending = "state = 'pending' AND receiver = ? AND stream = ?"
    changed = connection.execute(
        "UPDATE main.outbox SET state = 'dead', error = 'too many alerts were waiting'"  # noqa: S608 - no input
        f" WHERE {pending} AND id <= (SELECT id FROM outbox WHERE {pending} ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (receiver, stream, receiver, stream, MAX_PENDING),
    ).rowcount
    if changed:
        _limit_dead(connection)


def _limit_dead(connection: sqlite3.Connection) -> None:
    """Delete the oldest dead letters if there are too many."""
    connection.execute(
        "DELETE FROM main.outbox WHERE id IN"
        " (SELECT id FROM outbox WHERE state = 'dead' ORDER BY id DESC LIMIT -1 OFFSET ?)",
        (MAX_DEAD,),
    )


def _start_time(connection: sqlite3.Connection, fingerprint: str) -> str | None:
    """Return when the alarm started, according to the newest firing alert."""
    row = connection.execute(
        "SELECT alert FROM outbox WHERE fingerprint = ? AND status = 'firing' ORDER BY id DESC LIMIT 1", (fingerprint,)
    ).fetchone()
    return str(load_json(row[0])["startsAt"]) if row else None


def due_alerts(connection: sqlite3.Connection) -> list[DueAlert]:
    """Return the alerts that may be sent now, oldest first.

    For each receiver and stream this is only the oldest pending alert, so that "resolved" never overtakes its "firing".
    A dead letter does not block the alerts after it.
    """
    rows = connection.execute(
        "SELECT id, receiver, attempts, stream FROM outbox WHERE id IN"
        " (SELECT min(id) FROM outbox WHERE state = 'pending' GROUP BY receiver, stream) ORDER BY id"
    )
    return [DueAlert(*row) for row in rows]


def read_alert(connection: sqlite3.Connection, id: int) -> dict[str, Any]:  # noqa: A002 - the column's name
    """Return the content of an alert."""
    row = connection.execute("SELECT alert FROM outbox WHERE id = ?", (id,)).fetchone()
    return dict(load_json(row[0]))


def mark_sent(connection: sqlite3.Connection, id: int) -> None:  # noqa: A002
    """Record that the receiver accepted an alert.

    If an older alert for the same receiver and stream has become pending again, this one is sent again after it.
    """
    older = (
        "SELECT 1 FROM outbox AS older WHERE older.receiver = outbox.receiver AND older.stream = outbox.stream"
        " AND older.id < outbox.id AND older.state"
    )
    connection.execute(
        "UPDATE main.outbox SET state = 'sent', error = '', attempts = attempts + 1"  # noqa: S608 - no input
        f" WHERE id = ? AND state = 'pending' AND NOT EXISTS ({older} = 'pending')",
        (id,),
    )
    connection.execute(  # alerts after a dead letter stay as long as it does: `retry` needs them
        f"DELETE FROM main.outbox WHERE id <= ? AND state = 'sent' AND NOT EXISTS ({older} = 'dead')",  # noqa: S608
        (id - MAX_SENT,),
    )


def mark_failed(connection: sqlite3.Connection, id: int, error: str, *, dead: bool) -> None:  # noqa: A002
    """Record a failed delivery: the alert stays pending, or becomes a dead letter that only `retry` sends again."""
    connection.execute(
        "UPDATE main.outbox SET state = ?, error = ?, attempts = attempts + 1 WHERE id = ? AND state = 'pending'",
        ("dead" if dead else "pending", error[:MAX_ERROR_LENGTH], id),
    )
    if dead:
        _limit_dead(connection)


def retry(connection: sqlite3.Connection, id: int) -> int:  # noqa: A002
    """Make a dead letter pending again, and return how many alerts will be sent.

    The receiver must not be left with an old "firing" as the last message: the newest alert for the same receiver and
    stream is sent again after it, and so is the newest that was delivered, in case the other one fails again.
    """
    row = connection.execute("SELECT state, receiver, stream FROM outbox WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise Problem(404, "not-found", f"there is no alert {id}")
    state, receiver, stream = row
    if state != "dead":
        raise Problem(409, "conflict", f"alert {id} must be a dead letter to be sent again, but it is {state}")
    later = "SELECT max(id) FROM outbox WHERE receiver = ? AND stream = ? AND id > ?"
    return connection.execute(
        "UPDATE main.outbox SET state = 'pending', attempts = 0 WHERE state != 'pending'"  # noqa: S608 - no input
        f" AND id IN (?, ({later}), ({later} AND state = 'sent'))",
        (id, *(receiver, stream, id) * 2),
    ).rowcount


def count_alerts(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return how many alerts are pending, and how many are dead."""
    pending, dead = (
        connection.execute(f"SELECT count(*) FROM outbox WHERE state = '{state}'").fetchone()[0]  # noqa: S608
        for state in ("pending", "dead")
    )
    return pending, dead


def list_alerts(connection: sqlite3.Connection, limit: int = 100) -> dict[str, Any]:
    """Return the outbox for display: dead letters, pending alerts (failed ones first), sent alerts; newest first."""
    pending, dead = count_alerts(connection)
    rows = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM outbox"  # noqa: S608 - no input
        " ORDER BY CASE state WHEN 'dead' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END, error = '', id DESC LIMIT ?",
        (limit,),
    )
    alerts = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    return {
        "pending": pending,
        "dead": dead,
        "alerts": [{**alert, "created": format_time(alert["created"])} for alert in alerts],
    }
