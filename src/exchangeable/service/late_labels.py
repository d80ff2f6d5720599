"""The queue of a stream whose labels arrive late. Observations wait in order, since the test depends on the order."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.events.schema import LateLabel
from exchangeable.late_labels import LeftOut, check_near, decide, delay, seconds
from exchangeable.protocols import Floats, Integers
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.schema import dump_json, load_json
from exchangeable.service.stream import LiveStream, late_rows
from exchangeable.service.stream_config import Labels
from exchangeable.service.table_test import LateRows
from exchangeable.validation import LARGEST

IDS = 1_000  # looked up with one query


class Ready(NamedTuple):
    """Observations that can be tested, in order."""

    seq: Integers
    x: Floats
    y: list[Any] | None  # for the measure; None if it does not use labels
    columns: dict[str, list[Any]]  # what is stored with them: y, id, time, and late (the label arrived later)
    late: LateRows | None = None  # of rows of a table, whose labels may come later


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

    One request is decided by one queue, which only reads the database, so that this can be done in any thread; `store`
    then writes the decisions. In between, nothing else may change the stream.
    """

    def __init__(self, connection: sqlite3.Connection, stream: LiveStream, now: float) -> None:
        self.connection = connection
        self.stream = stream
        self.labels: Labels = stream.configuration.labels or Labels()
        self.now: float = now if stream.clock is None else max(now, stream.clock)  # the server's clock never goes back
        # what the stream has after the request
        self.clock: float | None = stream.clock
        self.waiting: int = stream.waiting
        self.left_out: LeftOut = copy.deepcopy(stream.left_out)
        # what is to be written
        self._labelled: dict[str, str] = {}  # waiting observations, by id: their label as JSON
        self._withdrawn: dict[str, bool] = {}  # the same that are left out: whether their time is kept
        self._labelled_late: dict[str, str] = {}  # the same among those that have been left out
        self._expired: list[QueuedRow] = []  # they leave the queue without being tested
        self._tested: list[tuple[int, str | None, str | None]] = []  # seq, id and label
        self._added: list[QueuedRow] = []
        self._last = -1  # seq of the last observation that leaves the queue

    # -------------------------------------------------------------- observations

    def check(self, new: Batch) -> None:
        """Raise if an observation could not be tested later, if an id was used before, or if the queue is full."""
        if not self.stream.configuration.takes_labels:
            return
        late_rows = self.stream.configuration.late_rows
        new = self._labelled_rows(new) if late_rows else new
        labels, ids = new.extras.y or [None] * len(new), new.extras.id or [None] * len(new)
        earlier = set(self._find(id_ for id_ in ids if id_ is not None))
        for i, (seq, label, id_) in enumerate(zip(new.seq.tolist(), labels, ids, strict=True)):
            if label is None and id_ is None:
                name = "the label" if late_rows else "y"
                rule = f"{name} must be given, or an id under which the observation waits for it"
                raise Problem(422, "bad-observation", f"{rule}, got neither {new.place(i)}", seq=seq)
            self._check_label(label)
            if id_ is not None:
                if id_ in earlier:
                    message = f"id must be new in stream {self.stream.name!r}, got {id_!r} again"
                    raise Problem(422, "bad-observation", message, seq=seq)
                earlier.add(id_)
        times = self._times(new)
        if not late_rows:  # a full queue must not stop the test of the columns
            self._check_room(new, times)

    def _labelled_rows(self, new: Batch) -> Batch:
        """Return rows of a table with their labels as y, and without their cells, which the test has already."""
        return replace(new, extras=new.extras._replace(y=self.stream.table.labels(new.extras.row or []), row=None))

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
        labels, _, times = (column or [None] * len(new) for column in new.extras[:3])
        if self.labels.wait == "forever":
            return [None] * len(new)
        return [
            self._time(time, new.place(i), needed=label is None)
            for i, (label, time) in enumerate(zip(labels, times, strict=True))
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
        return max((time for time in (self.clock, *times) if time is not None), default=None)

    def add(self, new: Batch) -> Ready:
        """Add new observations; return those that can be tested now."""
        if self.stream.configuration.late_rows and len(new):
            return self._add_rows(new)
        if not self.stream.configuration.needs_labels:
            return _ready(new, None)
        times, y = self._times(new), new.extras.y
        self.clock = self._latest(times)
        if not self.waiting and len(new) and y is not None and None not in y:
            if new.extras.id is not None:
                self._tested = list(zip(new.seq.tolist(), new.extras.id, map(dump_json, y), strict=True))
            return _ready(new, y)
        return self._release(_rows(new, times))

    def _add_rows(self, new: Batch) -> Ready:
        """Add rows of a table: all are tested now, and wait for their labels as the queue of the test says."""
        labelled = self._labelled_rows(new)
        late = late_rows(new.seq, new.extras.id, self._times(labelled))
        self._added, ready = _rows(labelled, late.times), _ready(new, None)
        self.waiting += len(new)
        clock = {"clock": late.times} if any(time is not None for time in late.times) else {}
        return ready._replace(columns=ready.columns | clock, late=late)

    # -------------------------------------------------------------- labels

    def label(self, labels: list[LateLabel]) -> tuple[dict[str, int], Ready]:
        """Give labels to waiting observations; count how many were new, repeated, or too late.

        Either all are accepted or none. Returns also the observations that can be tested now.
        """
        return self.mark(labels), self._release()

    def mark(self, labels: list[LateLabel]) -> dict[str, int]:
        """Give labels to waiting observations; those whose labels were not too late stay in the queue."""
        counts, known = {"accepted": 0, "duplicates": 0, "late": 0}, self.find(labels)
        for label in labels:
            counts[self.apply(label, known)] += 1
        return counts

    def find(self, labels: list[LateLabel]) -> dict[str, KnownId]:
        """Return the stored data of the ids of labels; raise if one of them is unknown."""
        known = self._find(label.id for label in labels)
        unknown = [label.id for label in labels if label.id not in known]
        if unknown:
            message = f"id must be that of an observation that waits in stream {self.stream.name!r}, got {unknown[0]!r}"
            raise Problem(404, "unknown-id", message, ids=unknown[:100])
        return known

    def apply(self, label: LateLabel, known: dict[str, KnownId]) -> str:
        """Give a label to an observation, and update what is known of it; return the name of the count to increase."""
        self._check_label(label.y)
        time, before = None if label.never else self.label_time(label), known[label.id]
        outcome, known[label.id] = self._apply(label, time, before)
        self.waiting -= before.table == "waiting" and known[label.id].table == "expired"
        self.clock = self._latest([time])
        return outcome

    def leave_out(self, id_: str, known: KnownId, *, timed: bool) -> KnownId:
        """Take a waiting observation without a label out of the queue; return what is known of it then."""
        self._withdrawn[id_] = timed
        self.waiting -= 1
        return KnownId("expired", known.time if timed else None, None)

    def label_time(self, label: LateLabel) -> float | None:
        """Return the time of a label on the clock of the stream; None if it does not matter."""
        if label.time is not None and self.labels.clock == "server":
            rule = f"time must be left out of labels in stream {self.stream.name!r}, which uses the server's clock"
            raise Problem(422, "bad-observation", f"{rule}, got {label.time!r} for id {label.id!r}", id=label.id)
        return self._time(label.time, f"for id {label.id!r}")

    def _apply(self, label: LateLabel, time: float | None, known: KnownId) -> tuple[str, KnownId]:
        """Decide on an observation by its label; return the name of the count to increase, and what is known then."""
        if known.y is not None:
            if label.never or load_json(known.y) != label.y:
                raise Problem(422, "different", f"id {label.id!r} already has another label", id=label.id)
            return "duplicates", known
        if label.never:
            if known.table == "expired":
                return "duplicates", known
            self._withdrawn[label.id] = False
            self.left_out.never += 1
            return "accepted", KnownId("expired", None, None)
        y, in_time = dump_json(label.y), self._delay(label, known.time, time) <= self.labels.seconds
        if known.table == "waiting" and in_time:
            self._labelled[label.id] = y
            return "accepted", known._replace(y=y)
        if known.table == "waiting":
            self._withdrawn[label.id] = True
            self.left_out.expired += 1
        self._labelled_late[label.id] = y
        if known.time is not None:
            self.left_out.count(label.y, in_time=in_time)
        return "late", KnownId("expired", known.time, y)

    def _delay(self, label: LateLabel, observed: float | None, labelled: float | None) -> float:
        try:
            return delay(observed, labelled)
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error} for id {label.id!r}", id=label.id) from error

    def _find(self, ids: Iterable[str]) -> dict[str, KnownId]:
        """Return the stored data of those ids that are known."""
        listed, known = list(ids), dict[str, KnownId]()
        for table, time in (("expired", "time"), ("labels", "NULL"), ("waiting", "time")):  # the last one counts
            for start in range(0, len(listed), IDS):
                some = listed[start : start + IDS]
                places = ", ".join("?" * len(some))
                query = f"SELECT id, {time}, y FROM {table} WHERE stream = ? AND id IN ({places})"  # noqa: S608
                rows = self.connection.execute(query, (self.stream.id, *some)).fetchall()
                known.update({id_: KnownId(table, at, y) for id_, at, y in rows})
        return known

    # -------------------------------------------------------------- leaving the queue

    def _release(self, new: Sequence[QueuedRow] = ()) -> Ready:
        """Remove all observations before the first whose label may still arrive in time; new ones are behind them."""
        decided_rows = self._decided(new)
        self._last = decided_rows[-1][0].seq if decided_rows else -1
        self._expired = [row for row, used in decided_rows if not used]
        used_rows = [row for row, used in decided_rows if used]
        self._tested = [(row.seq, row.id, row.y) for row in used_rows]
        self._added = [row for row in new if row.seq > self._last]
        self.waiting += len(new) - len(decided_rows)
        self.left_out.expired += len(self._expired)
        return _released(used_rows)

    def _decided(self, new: Sequence[QueuedRow] = ()) -> list[tuple[QueuedRow, bool]]:
        """Return the first observations of the queue, and of new ones behind it, that need not wait any longer.

        Each comes with whether it is used, or left out because its label did not arrive in time.
        """
        query = "SELECT seq, id, body, y, time FROM waiting WHERE stream = ? ORDER BY seq"
        cursor = self.connection.execute(query, (self.stream.id,))
        latest = self._latest(row.time for row in new)
        queued = self._with_labels(map(QueuedRow._make, cursor))
        rows = list(decide(chain(queued, new), latest, self.labels.seconds))
        cursor.close()
        return rows

    def _with_labels(self, rows: Iterable[QueuedRow]) -> Iterator[QueuedRow]:
        """Yield waiting observations as the labels of this request leave them."""
        for row in rows:
            if row.id in self._labelled:
                yield row._replace(y=self._labelled[row.id])
            elif row.id not in self._withdrawn:
                yield row

    # -------------------------------------------------------------- writing

    def store(self, connection: sqlite3.Connection) -> None:
        """Write the decisions on a request, and update the stream."""
        if not self.stream.configuration.takes_labels:
            return
        key = self.stream.id
        tested = {id_ for _, id_, _ in self._tested}
        many = connection.executemany
        set_label = "UPDATE main.{} SET y = ? WHERE stream = ? AND id = ?"
        many(set_label.format("waiting"), [(y, key, id_) for id_, y in self._labelled.items() if id_ not in tested])
        for timed in (True, False):
            ids = [id_ for id_, kept in self._withdrawn.items() if kept is timed]
            move_to_expired(connection, key, "id = ?2", ids, timed=timed)
        many(
            "INSERT INTO main.expired (stream, seq, id, body, time) VALUES (?, ?, ?, ?, ?)",
            [(key, row.seq, row.id, row.body, row.time) for row in self._expired],
        )
        many(set_label.format("expired"), [(y, key, id_) for id_, y in self._labelled_late.items()])
        connection.execute("DELETE FROM main.waiting WHERE stream = ? AND seq <= ?", (key, self._last))
        many(
            "INSERT INTO main.waiting (stream, seq, id, body, y, time) VALUES (?, ?, ?, ?, ?, ?)",
            [(key, *row) for row in self._added],
        )
        many(  # by id, so that a label that is sent twice is recognised
            "INSERT OR REPLACE INTO main.labels (stream, id, y, seq) VALUES (?, ?, ?, ?)",
            [(key, id_, y, seq) for seq, id_, y in self._tested if id_ is not None],
        )
        self.stream.waiting, self.stream.left_out, self.stream.clock = self.waiting, self.left_out, self.clock


def clear_queue(connection: sqlite3.Connection, stream: LiveStream) -> None:
    """Leave out all waiting observations and count from zero: a new test starts with what is sent from now on."""
    move_to_expired(connection, stream.id, "seq >= ?2", [0], timed=False)
    connection.execute("UPDATE main.expired SET time = NULL WHERE stream = ? AND time IS NOT NULL", (stream.id,))
    stream.waiting, stream.left_out = 0, LeftOut()
    if stream.configuration.labels is not None and stream.configuration.labels.clock == "client":
        stream.clock = None


def move_to_expired(
    connection: sqlite3.Connection, stream: int, condition: str, keys: Sequence[int | str], *, timed: bool
) -> None:
    """Move observations to the table of those left out; without their times they are not counted as expired."""
    time = "time" if timed else "NULL"
    parameters = [(stream, key) for key in keys]
    connection.executemany(
        f"INSERT INTO main.expired (stream, seq, id, body, time) SELECT stream, seq, id, body, {time}"  # noqa: S608
        f" FROM waiting WHERE stream = ?1 AND {condition}",
        parameters,
    )
    connection.executemany(f"DELETE FROM main.waiting WHERE stream = ?1 AND {condition}", parameters)  # noqa: S608


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
