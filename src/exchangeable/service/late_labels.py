"""The queue of a stream whose labels arrive late. Observations wait in order, since the test depends on the order."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.events.schema import LateLabel
from exchangeable.late_labels import LeftOut, check_near, decide, delay, seconds
from exchangeable.protocols import Floats, Integers
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.schema import dump_json, load_json
from exchangeable.service.stream import LiveStream
from exchangeable.service.stream_config import Labels
from exchangeable.validation import LARGEST


class Ready(NamedTuple):
    """Observations that can be tested, in order."""

    seq: Integers
    x: Floats
    y: list[Any] | None  # for the measure; None if it does not use labels
    columns: dict[str, list[Any]]  # what is stored with them: y, id, time, and late (the label arrived later)


class QueuedRow(NamedTuple):
    """An observation in the queue, as it is stored."""

    seq: int
    id: str | None
    body: str
    y: str | None  # a label that arrived in time, as JSON
    time: float | None  # on the clock of the stream

    @property
    def used(self) -> bool | None:
        """True if it has a label, else None: not yet decided."""
        return None if self.y is None else True


class KnownId(NamedTuple):
    """The stored data of an id: its table, the time of its observation, and its label as JSON."""

    table: str  # "waiting", "labels" if it was tested, or "expired" if it was left out
    time: float | None  # also None if the current test does not count it as expired
    y: str | None


class LabelQueue:
    """The queue of one stream: all observations behind one without a label wait too.

    The rules are those of `exchangeable.late_labels`. Times are the clients' or the server's; ``now`` is when the
    server received the request. Decisions are stored, with the times they depend on, and are final.
    """

    def __init__(self, connection: sqlite3.Connection, stream: LiveStream, now: float) -> None:
        self.connection = connection
        self.stream = stream
        self.labels: Labels = stream.configuration.labels
        self.now: float = now if stream.clock is None else max(now, stream.clock)  # the server's clock never goes back

    # -------------------------------------------------------------- observations

    def check(self, new: Batch) -> None:
        """Raise if an observation could not be tested later, if an id was used before, or if the queue is full."""
        if not self.stream.configuration.needs_labels:
            return
        labels, ids = new.extras.y or [None] * len(new), new.extras.id or [None] * len(new)
        earlier: set[str] = set()
        for seq, label, id_ in zip(new.seq.tolist(), labels, ids, strict=True):
            if label is None and id_ is None:
                rule = "y must be given, or an id under which the observation waits for it"
                raise Problem(422, "bad-observation", f"{rule}, got neither at seq {seq}", seq=seq)
            self._check_label(label)
            if id_ is not None:
                if id_ in earlier or self._find(id_) is not None:
                    message = f"id must be new in stream {self.stream.name!r}, got {id_!r} again"
                    raise Problem(422, "bad-observation", message, seq=seq)
                earlier.add(id_)
        self._check_room(new, self._times(new))

    def _check_label(self, label: Any) -> None:
        if self.stream.configuration.measure.kind != "nearest-residual" or label is None:
            return
        if isinstance(label, str) or not abs(label) <= LARGEST:
            rule = f"y must be a number of magnitude at most {LARGEST:g} for nearest-residual"
            raise Problem(422, "bad-observation", f"{rule}, got {label!r}")

    def _check_room(self, new: Batch, times: list[float | None]) -> None:
        """Reject new observations if too many would wait. Waiting ones are never dropped for them."""
        count, limit = self.stream.waiting + len(new), self.labels.most
        if count <= limit:
            return
        released = self._decided(_rows(new, times))
        if count - len(released) > limit:
            room = limit - self.stream.waiting + sum(row.seq < new.seq[0] for row, _ in released)
            rule = f"at most {limit} observations of stream {self.stream.name!r} may wait for their labels"
            advice = (
                "send this again when labels have arrived (skipping it would invalidate the guarantee of the alarm)"
            )
            raise Problem(429, "too-many-waiting", f"{rule}: {advice}", retry_after=5, room=int(max(room, 0)))

    def _times(self, new: Batch) -> list[float | None]:
        """Return when the observations were made, on the clock of the stream."""
        labels, _, times = (column or [None] * len(new) for column in new.extras)
        if self.labels.wait == "forever":
            return [None] * len(new)
        return [
            self._time(time, f"at seq {seq}", needed=label is None)
            for seq, label, time in zip(new.seq.tolist(), labels, times, strict=True)
        ]

    def _time(self, time: str | float | None, where: str, *, needed: bool = True) -> float | None:
        """Return the time of an observation or label on the clock of the stream; None if it does not matter."""
        if self.labels.wait == "forever" or (time is None and not needed and self.labels.clock == "client"):
            return None
        if self.labels.clock == "server":
            return self.now
        if time is None:
            rule = f"time must be given with every label, and with every observation without one, {where}"
            why = f"stream {self.stream.name!r} waits {self.labels.wait:g} seconds on the clock of its clients"
            raise Problem(422, "bad-observation", f"{rule}: {why}")
        try:
            return check_near(seconds(time), self.stream.clock)
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error} {where}") from error

    def _latest(self, times: Iterable[float | None]) -> float | None:
        """Return the latest time seen on the clock, these times included."""
        return max((time for time in (self.stream.clock, *times) if time is not None), default=None)

    def add(self, new: Batch) -> Ready:
        """Add new observations; return those that can be tested now."""
        if not self.stream.configuration.needs_labels:
            return _ready(new, None)
        times, y = self._times(new), new.extras.y
        self.stream.clock = self._latest(times)
        if not self.stream.waiting and len(new) and y is not None and None not in y:
            if new.extras.id is not None:
                self._store_labels(zip(new.seq.tolist(), new.extras.id, map(dump_json, y), strict=True))
            return _ready(new, y)
        self.connection.executemany(
            "INSERT INTO waiting (stream, seq, id, body, y, time) VALUES (?, ?, ?, ?, ?, ?)",
            [(self.stream.id, *row) for row in _rows(new, times)],
        )
        self.stream.waiting += len(new)
        return self.release()

    # -------------------------------------------------------------- labels

    def label(self, labels: list[LateLabel]) -> dict[str, int]:
        """Give labels to waiting observations; count how many were new, repeated, or too late.

        Either all are accepted or none: on failure the request is rolled back, and the stream changes only at the end.
        """
        counts = {"accepted": 0, "duplicates": 0, "late": 0}
        left_out, times, removed = copy.deepcopy(self.stream.left_out), [], 0
        unknown: list[str] = []
        for label in labels:
            self._check_label(label.y)
            times.append(None if label.never else self._label_time(label))
            known = self._find(label.id)
            if known is None:
                unknown.append(label.id)
                continue
            outcome = self._apply(label, times[-1], known, left_out)
            counts[outcome] += 1
            removed += known.table == "waiting" and outcome == ("accepted" if label.never else "late")
        if unknown:
            message = f"id must be that of an observation that waits in stream {self.stream.name!r}, got {unknown[0]!r}"
            raise Problem(404, "unknown-id", message, ids=unknown[:100])
        self.stream.left_out, self.stream.clock = left_out, self._latest(times)
        self.stream.waiting -= removed
        return counts

    def _label_time(self, label: LateLabel) -> float | None:
        if label.time is not None and self.labels.clock == "server":
            rule = f"time must be left out of labels in stream {self.stream.name!r}, which uses the server's clock"
            raise Problem(422, "bad-observation", f"{rule}, got {label.time!r} for id {label.id!r}", id=label.id)
        return self._time(label.time, f"for id {label.id!r}")

    def _apply(self, label: LateLabel, time: float | None, known: KnownId, left_out: LeftOut) -> str:
        """Decide on an observation by its label; return the name of the count to increase."""
        if known.y is not None:
            if label.never or load_json(known.y) != label.y:
                raise Problem(422, "different", f"id {label.id!r} already has another label", id=label.id)
            return "duplicates"
        if label.never:
            if known.table == "expired":
                return "duplicates"
            self._leave_out("id = ?2", [label.id], timed=False)
            left_out.never += 1
            return "accepted"
        in_time = self._delay(label, known.time, time) <= self.labels.seconds
        if known.table == "waiting" and in_time:
            self._set_label("waiting", label)
            return "accepted"
        if known.table == "waiting":
            self._leave_out("id = ?2", [label.id])
            left_out.expired += 1
        self._set_label("expired", label)
        if known.time is not None:
            left_out.count(label.y, in_time=in_time)
        return "late"

    def _set_label(self, table: str, label: LateLabel) -> None:
        query = f"UPDATE {table} SET y = ? WHERE stream = ? AND id = ?"  # noqa: S608
        self.connection.execute(query, (dump_json(label.y), self.stream.id, label.id))

    def _delay(self, label: LateLabel, observed: float | None, labelled: float | None) -> float:
        try:
            return delay(observed, labelled)
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error} for id {label.id!r}", id=label.id) from error

    def _find(self, name: str) -> KnownId | None:
        """Return the stored data of an id, or None if it is unknown."""
        for table, time in (("waiting", "time"), ("labels", "NULL"), ("expired", "time")):
            query = f"SELECT {time}, y FROM {table} WHERE stream = ? AND id = ?"  # noqa: S608
            row = self.connection.execute(query, (self.stream.id, name)).fetchone()
            if row is not None:
                return KnownId(table, *row)
        return None

    # -------------------------------------------------------------- leaving the queue

    def release(self) -> Ready:
        """Remove all observations before the first whose label may still arrive in time."""
        decided_rows = self._decided()
        if decided_rows:
            self._leave_out("seq = ?2", [row.seq for row, used in decided_rows if not used])
            last = decided_rows[-1][0].seq
            self.connection.execute("DELETE FROM waiting WHERE stream = ? AND seq <= ?", (self.stream.id, last))
        used_rows = [row for row, used in decided_rows if used]
        self.stream.waiting -= len(decided_rows)
        self.stream.left_out.expired += len(decided_rows) - len(used_rows)
        self._store_labels((row.seq, row.id, row.y) for row in used_rows)
        return _released(used_rows)

    def _decided(self, new: Sequence[QueuedRow] = ()) -> list[tuple[QueuedRow, bool]]:
        """Return the first observations of the queue, and of new ones behind it, that need not wait any longer.

        Each comes with whether it is used, or left out because its label did not arrive in time.
        """
        query = "SELECT seq, id, body, y, time FROM waiting WHERE stream = ? ORDER BY seq"
        cursor = self.connection.execute(query, (self.stream.id,))
        latest = self._latest(row.time for row in new)
        rows = list(decide(chain(map(QueuedRow._make, cursor), new), latest, self.labels.seconds))
        cursor.close()
        return rows

    def _leave_out(self, condition: str, keys: Sequence[int | str], *, timed: bool = True) -> None:
        """Move observations to the table of those left out; without their times they are not counted as expired."""
        time = "time" if timed else "NULL"
        parameters = [(self.stream.id, key) for key in keys]
        self.connection.executemany(
            f"INSERT INTO expired (stream, seq, id, body, time) SELECT stream, seq, id, body, {time}"  # noqa: S608
            f" FROM waiting WHERE stream = ?1 AND {condition}",
            parameters,
        )
        self.connection.executemany(f"DELETE FROM waiting WHERE stream = ?1 AND {condition}", parameters)  # noqa: S608

    def clear(self) -> None:
        """Leave out all waiting observations and count from zero: a new test starts with what is sent from now on."""
        self._leave_out("seq >= ?2", [0], timed=False)
        self.connection.execute("UPDATE expired SET time = NULL WHERE stream = ?", (self.stream.id,))
        self.stream.waiting, self.stream.left_out = 0, LeftOut()
        if self.labels.clock == "client":
            self.stream.clock = None

    def _store_labels(self, rows: Iterable[tuple[int, str | None, str | None]]) -> None:
        """Store labels by id, so that one that is sent twice is recognised."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO labels (stream, id, y, seq) VALUES (?, ?, ?, ?)",
            [(self.stream.id, name, y, seq) for seq, name, y in rows if name is not None],
        )


def _rows(new: Batch, times: list[float | None]) -> list[QueuedRow]:
    """Return new observations as they are stored in the queue."""
    rows = []
    for i, (seq, at) in enumerate(zip(new.seq.tolist(), times, strict=True)):
        extras = {key: column[i] if column else None for key, column in new.extras._asdict().items()}
        body, y = {"x": new.x[i].tolist(), **extras}, extras["y"]
        rows.append(QueuedRow(seq, extras["id"], dump_json(body), None if y is None else dump_json(y), at))
    return rows


def _ready(new: Batch, y: list[Any] | None) -> Ready:
    columns = {key: column for key, column in new.extras._asdict().items() if column is not None}
    return Ready(new.seq, new.x, y, columns)


def _released(rows: Sequence[QueuedRow]) -> Ready:
    if not rows:
        return Ready(np.empty(0, np.int64), np.empty((0, 1)), [], {})
    bodies = [load_json(row.body) for row in rows]
    y = [load_json(row.y or "null") for row in rows]
    columns = {
        "y": y,
        "id": [row.id for row in rows],
        "time": [body["time"] for body in bodies],
        "late": [body["y"] is None or None for body in bodies],
    }
    columns = {key: column for key, column in columns.items() if any(value is not None for value in column)}
    x = np.array([body["x"] for body in bodies], np.float64)
    return Ready(np.array([row.seq for row in rows], np.int64), x, y, {**columns, "y": y})
