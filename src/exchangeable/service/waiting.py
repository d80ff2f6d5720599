"""Labels that come late: observations wait for them in order, because order is data."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, NamedTuple

import numpy as np

from exchangeable.measures.rows import LARGEST
from exchangeable.protocols import Floats, Integers
from exchangeable.service.live import Live
from exchangeable.service.problems import Problem
from exchangeable.service.wire import Batch, LateLabel

Label = LateLabel
KEYS = ("y", "id", "time", "late")


class Ready(NamedTuple):
    """Observations that can be ranked, in order."""

    seq: Integers
    x: Floats
    y: list[Any] | None  # for the measure: None where labels play no part
    columns: dict[str, list[Any]]  # what they carry: y, id, time; late: whether the label came after the observation

    def extra(self) -> str | None:
        """The columns as they are stored."""
        return json.dumps(self.columns, separators=(",", ":")) if self.columns else None


class Waiting:
    """The queue of one stream: whatever stands behind an observation without a label waits as well.

    At most ``labels.wait`` observations wait. When more do, the first is set aside: it is never bet on, and ``expired``
    counts it. That is lawful as long as whether a label comes in time depends on the observation alone.
    """

    def __init__(self, connection: sqlite3.Connection, live: Live) -> None:
        self.connection = connection
        self.live = live

    def join(self, new: Batch) -> Ready:
        """Take new observations in; what can be ranked now."""
        configuration = self.live.configuration
        if not configuration.needs_labels:
            return _ready(new, None)
        y = new.extras.y
        if not self.live.waiting and len(new) and y is not None and None not in y:
            names = new.extras.id or []
            labels = [(seq, name, "", json.dumps(label)) for seq, name, label in zip(new.seq.tolist(), names, y)]  # noqa: B905
            self._remember(labels)
            return _ready(new, y)
        self._enqueue(new)
        return self.release()

    def admit(self, new: Batch) -> None:
        """Refuse what could not be ranked when its turn comes, and ids that are known, before anything moves."""
        if not self.live.configuration.needs_labels:
            return
        y, names, _ = new.extras
        taken: set[str] = set()
        for place, seq in enumerate(new.seq.tolist()):
            label, name = y[place] if y else None, names[place] if names else None
            if label is None and name is None:
                law = "y must be given, or an id under which the observation waits for it"
                raise Problem(422, "bad-observation", f"{law}, got neither at seq {seq}", seq=seq)
            self._check(label)
            if name is not None and (name in taken or self._find(name) is not None):
                message = f"id must be unlike those before it in stream {self.live.name!r}, got {name!r} again"
                raise Problem(422, "bad-observation", message, seq=seq)
            taken |= {name} if name is not None else set()

    def _check(self, label: Any) -> None:
        if self.live.configuration.measure.kind != "nearest-residual" or label is None:
            return
        if isinstance(label, str) or not abs(label) <= LARGEST:
            law = f"y must be a number of magnitude at most {LARGEST:g} for nearest-residual"
            raise Problem(422, "bad-observation", f"{law}, got {label!r}")

    def clear(self) -> None:
        """Set aside all that waits: a new test begins with what is sent from now on."""
        self.connection.execute(
            "INSERT INTO expired (stream, seq, id, body) SELECT stream, seq, id, body FROM waiting WHERE stream = ?",
            (self.live.id,),
        )
        self.connection.execute("DELETE FROM waiting WHERE stream = ?", (self.live.id,))
        self.live.expired, self.live.waiting = self.live.expired + self.live.waiting, 0

    def _enqueue(self, new: Batch) -> None:
        rows = []
        for place, seq in enumerate(new.seq.tolist()):
            y, name, time = (column[place] if column else None for column in new.extras)
            body = {"x": new.x[place].tolist(), "y": y, "id": name, "time": time}
            rows.append((self.live.id, seq, name, json.dumps(body), None if y is None else json.dumps(y)))
        self.connection.executemany("INSERT INTO waiting (stream, seq, id, body, y) VALUES (?, ?, ?, ?, ?)", rows)
        self.live.waiting += len(rows)

    def label(self, labels: list[LateLabel]) -> dict[str, int]:
        """Give labels to observations that wait: how many were new, repeated, or came too late."""
        counts = {"accepted": 0, "duplicates": 0, "late": 0}
        unknown: list[str] = []
        for label in labels:
            self._check(label.y)
            found = self._find(label.id)
            if found is None:
                unknown.append(label.id)
            elif found == "expired":
                counts["late"] += 1
            elif found == "waiting":
                self.connection.execute(
                    "UPDATE waiting SET y = ? WHERE stream = ? AND id = ?",
                    (json.dumps(label.y), self.live.id, label.id),
                )
                counts["accepted"] += 1
            elif json.loads(found) == label.y:
                counts["duplicates"] += 1
            else:
                raise Problem(422, "different", f"id {label.id!r} has another label already", id=label.id)
        if unknown:
            message = f"id must be that of an observation that waits in stream {self.live.name!r}, got {unknown[0]!r}"
            raise Problem(404, "unknown-id", message, ids=unknown[:100])
        return counts

    def _find(self, name: str) -> str | None:
        """ "waiting", "expired", the label that an observation has as JSON, or None."""
        key = (self.live.id, name)
        row = self.connection.execute("SELECT y FROM waiting WHERE stream = ? AND id = ?", key).fetchone()
        if row is not None:
            return "waiting" if row[0] is None else str(row[0])
        row = self.connection.execute("SELECT y FROM labels WHERE stream = ? AND id = ?", key).fetchone()
        if row is not None:
            return str(row[0])
        row = self.connection.execute("SELECT 1 FROM expired WHERE stream = ? AND id = ?", key).fetchone()
        return None if row is None else "expired"

    def release(self) -> Ready:
        """Take out all that stand before the first without a label; set the first aside while too many wait."""
        rows: list[tuple[int, str | None, str, str]] = []
        while self.live.waiting:
            taken = self._labelled()
            rows += taken
            if self.live.waiting <= self.live.configuration.labels.wait:
                break
            self._expire()
        self._remember(rows)
        return _released(rows)

    def _labelled(self) -> list[tuple[int, str | None, str, str]]:
        """Remove the labelled ones at the head of the queue."""
        where = (
            "FROM waiting WHERE stream = ?1 AND seq < coalesce("
            "(SELECT min(seq) FROM waiting WHERE stream = ?1 AND y IS NULL), 9223372036854775807)"
        )
        rows = self.connection.execute(f"SELECT seq, id, body, y {where} ORDER BY seq", (self.live.id,)).fetchall()
        self.connection.execute(f"DELETE {where}", (self.live.id,))
        self.live.waiting -= len(rows)
        return rows

    def _expire(self) -> None:
        """Set aside the observation at the head of the queue."""
        head = "(SELECT min(seq) FROM waiting WHERE stream = ?1)"
        self.connection.execute(
            f"INSERT INTO expired (stream, seq, id, body) SELECT stream, seq, id, body FROM waiting"  # noqa: S608
            f" WHERE stream = ?1 AND seq = {head}",
            (self.live.id,),
        )
        self.connection.execute(f"DELETE FROM waiting WHERE stream = ?1 AND seq = {head}", (self.live.id,))  # noqa: S608
        self.live.waiting -= 1
        self.live.expired += 1

    def _remember(self, rows: list[tuple[int, str | None, str, str]]) -> None:
        """Labels, by id, so that one sent twice is known again."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO labels (stream, id, y, seq) VALUES (?, ?, ?, ?)",
            [(self.live.id, name, y, seq) for seq, name, _, y in rows if name is not None],
        )


def _ready(new: Batch, y: list[Any] | None) -> Ready:
    columns = {key: column for key, column in new.extras._asdict().items() if column is not None}
    return Ready(new.seq, new.x, y, columns)


def _released(rows: list[tuple[int, str | None, str, str]]) -> Ready:
    if not rows:
        return Ready(np.empty(0, np.int64), np.empty((0, 1)), [], {})
    bodies = [json.loads(body) for _, _, body, _ in rows]
    y = [json.loads(label) for *_, label in rows]
    columns = {
        "y": y,
        "id": [name for _, name, _, _ in rows],
        "time": [body["time"] for body in bodies],
        "late": [body["y"] is None for body in bodies],
    }
    held = {key: column for key, column in columns.items() if any(value not in (None, False) for value in column)}
    x = np.array([body["x"] for body in bodies], np.float64)
    return Ready(np.array([row[0] for row in rows], np.int64), x, y, {**held, "y": y})
