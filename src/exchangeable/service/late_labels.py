"""Labels that come late: observations wait for them in order, because order is data."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
import time as system
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.events.schema import LateLabel
from exchangeable.late_labels import LeftOut, check_near, decided, delay, seconds
from exchangeable.protocols import Floats, Integers
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.stream import Live
from exchangeable.service.stream_config import Labels
from exchangeable.validation import LARGEST

Label = LateLabel


class Ready(NamedTuple):
    """Observations that can be ranked, in order."""

    seq: Integers
    x: Floats
    y: list[Any] | None  # for the measure: None where labels play no part
    columns: dict[str, list[Any]]  # what they carry: y, id, time; late: whether the label came after the observation

    def extra(self) -> str | None:
        """The columns as they are stored."""
        return json.dumps(self.columns, separators=(",", ":")) if self.columns else None


class Row(NamedTuple):
    """An observation in the queue, as it is stored."""

    seq: int
    id: str | None
    body: str
    y: str | None  # a label that came in time, as JSON
    time: float | None  # on the clock of the stream

    @property
    def used(self) -> bool | None:
        """True once it has a label."""
        return None if self.y is None else True


class Known(NamedTuple):
    """In which table an id was found, when it was observed, and its label as JSON."""

    table: str  # waiting; labels: tested; expired: left out
    time: float | None  # also None if the current test does not count it as expired
    y: str | None


class Waiting:
    """The queue of one stream: whatever stands behind an observation without a label waits as well.

    The rules are those of `exchangeable.late_labels`. Times are the clients' or the server's; ``now`` is when the
    server received the request. Decisions are stored, with the times they depend on, and are final.
    """

    def __init__(self, connection: sqlite3.Connection, live: Live, now: float) -> None:
        self.connection = connection
        self.live = live
        self.labels: Labels = live.configuration.labels
        # for the server's clock, which never goes back
        self.now: float = now if live.clock is None else max(now, live.clock)

    # -------------------------------------------------------------- observations

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
        self._check_room(new, self._times(new))

    def _check(self, label: Any) -> None:
        if self.live.configuration.measure.kind != "nearest-residual" or label is None:
            return
        if isinstance(label, str) or not abs(label) <= LARGEST:
            law = f"y must be a number of magnitude at most {LARGEST:g} for nearest-residual"
            raise Problem(422, "bad-observation", f"{law}, got {label!r}")

    def _check_room(self, new: Batch, times: list[float | None]) -> None:
        """Reject new observations if too many would wait. Waiting ones are never dropped for them."""
        count, most = self.live.waiting + len(new), self.labels.most
        if count <= most:
            return
        gone = self._decided(_rows(new, times))
        if count - len(gone) > most:
            room = most - self.live.waiting + sum(row.seq < new.seq[0] for row, _ in gone)
            law = f"at most {most} observations of stream {self.live.name!r} may wait for their labels"
            advice = "send this again when labels have come (skipping it would break the promise of the alarm)"
            raise Problem(429, "too-many-waiting", f"{law}: {advice}", retry_after=5, room=int(max(room, 0)))

    def _times(self, new: Batch) -> list[float | None]:
        """When these were observed, on the clock of the stream."""
        y, _, times = (column or [None] * len(new) for column in new.extras)
        if self.labels.wait == "forever":
            return [None] * len(new)
        return [
            self._time(time, f"at seq {seq}", needed=label is None)
            for seq, label, time in zip(new.seq.tolist(), y, times, strict=True)
        ]

    def _time(self, time: str | float | None, where: str, *, needed: bool = True) -> float | None:
        """When something happened on the clock of the stream; None if that does not matter."""
        if self.labels.wait == "forever" or (time is None and not needed and self.labels.clock == "client"):
            return None
        if self.labels.clock == "server":
            return self.now
        if time is None:
            law = f"time must be given with every label, and with every observation without one, {where}"
            why = f"stream {self.live.name!r} waits {self.labels.wait:g} seconds on the clock of its clients"
            raise Problem(422, "bad-observation", f"{law}: {why}")
        try:
            return check_near(seconds(time), self.live.clock)
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error} {where}") from error

    def _latest(self, times: Iterable[float | None]) -> float | None:
        """The latest time seen on the clock, these included."""
        return max((time for time in (self.live.clock, *times) if time is not None), default=None)

    def join(self, new: Batch) -> Ready:
        """Add new observations; return what can be ranked now."""
        if not self.live.configuration.needs_labels:
            return _ready(new, None)
        times, y = self._times(new), new.extras.y
        self.live.clock = self._latest(times)
        if not self.live.waiting and len(new) and y is not None and None not in y:
            self._remember(zip(new.seq.tolist(), new.extras.id or [], map(json.dumps, y)))  # noqa: B905 (no ids at all)
            return _ready(new, y)
        self.connection.executemany(
            "INSERT INTO waiting (stream, seq, id, body, y, time) VALUES (?, ?, ?, ?, ?, ?)",
            [(self.live.id, *row) for row in _rows(new, times)],
        )
        self.live.waiting += len(new)
        return self.release()

    # -------------------------------------------------------------- labels

    def label(self, labels: list[LateLabel]) -> dict[str, int]:
        """Give labels to waiting observations; count how many were new, repeated, or came too late.

        Either all are accepted or none: on failure the request is rolled back, and the stream changes only at the end.
        """
        counts = {"accepted": 0, "duplicates": 0, "late": 0}
        left_out, times, gone = copy.deepcopy(self.live.left_out), [], 0
        unknown: list[str] = []
        for label in labels:
            self._check(label.y)
            times.append(None if label.never else self._label_time(label))
            found = self._find(label.id)
            if found is None:
                unknown.append(label.id)
                continue
            outcome = self._take(label, times[-1], found, left_out)
            counts[outcome] += 1
            gone += found.table == "waiting" and outcome == ("accepted" if label.never else "late")
        if unknown:
            message = f"id must be that of an observation that waits in stream {self.live.name!r}, got {unknown[0]!r}"
            raise Problem(404, "unknown-id", message, ids=unknown[:100])
        self.live.left_out, self.live.clock = left_out, self._latest(times)
        self.live.waiting -= gone
        return counts

    def _label_time(self, label: LateLabel) -> float | None:
        if label.time is not None and self.labels.clock == "server":
            law = f"time must be left out of labels in stream {self.live.name!r}, which uses the server's clock"
            raise Problem(422, "bad-observation", f"{law}, got {label.time!r} for id {label.id!r}", id=label.id)
        return self._time(label.time, f"for id {label.id!r}")

    def _take(self, label: LateLabel, time: float | None, found: Known, left_out: LeftOut) -> str:
        """Decide on an observation by its label; return the name of the count to increase."""
        y = None if label.never else json.dumps(label.y)
        if found.y is not None:
            if label.never or json.loads(found.y) != label.y:
                raise Problem(422, "different", f"id {label.id!r} already has another label", id=label.id)
            return "duplicates"
        key = (self.live.id, label.id)
        if label.never:
            if found.table == "expired":
                return "duplicates"
            self._leave_out("id = ?2", [label.id], timed=False)
            left_out.never += 1
            return "accepted"
        in_time = self._delay(label, found.time, time) <= self.labels.seconds
        if found.table == "waiting" and in_time:
            self.connection.execute("UPDATE waiting SET y = ?3 WHERE stream = ?1 AND id = ?2", (*key, y))
            return "accepted"
        if found.table == "waiting":
            self._leave_out("id = ?2", [label.id])
            left_out.expired += 1
        self.connection.execute("UPDATE expired SET y = ?3 WHERE stream = ?1 AND id = ?2", (*key, y))
        if found.time is not None:
            left_out.count(label.y, in_time=in_time)
        return "late"

    def _delay(self, label: LateLabel, observed: float | None, labelled: float | None) -> float:
        try:
            return delay(observed, labelled)
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error} for id {label.id!r}", id=label.id) from error

    def _find(self, name: str) -> Known | None:
        """What is known about an id."""
        for table, time in (("waiting", "time"), ("labels", "NULL"), ("expired", "time")):
            query = f"SELECT {time}, y FROM {table} WHERE stream = ? AND id = ?"  # noqa: S608
            row = self.connection.execute(query, (self.live.id, name)).fetchone()
            if row is not None:
                return Known(table, *row)
        return None

    # -------------------------------------------------------------- out of the queue

    def release(self) -> Ready:
        """Remove all observations before the first whose label may still come in time."""
        found = self._decided()
        if found:
            self._leave_out("seq = ?2", [row.seq for row, used in found if not used])
            last = found[-1][0].seq
            self.connection.execute("DELETE FROM waiting WHERE stream = ? AND seq <= ?", (self.live.id, last))
        rows = [row for row, used in found if used]
        self.live.waiting -= len(found)
        self.live.left_out.expired += len(found) - len(rows)
        self._remember((row.seq, row.id, row.y) for row in rows)
        return _released(rows)

    def _decided(self, new: Sequence[Row] = ()) -> list[tuple[Row, bool]]:
        """The first observations of the queue, with new ones at its end, that need not wait any longer."""
        query = "SELECT seq, id, body, y, time FROM waiting WHERE stream = ? ORDER BY seq"
        cursor = self.connection.execute(query, (self.live.id,))
        latest = self._latest(row.time for row in new)
        found = list(decided(chain(map(Row._make, cursor), new), latest, self.labels.seconds))
        cursor.close()
        return found

    def _leave_out(self, which: str, keys: Sequence[int | str], *, timed: bool = True) -> None:
        """Move observations to the table of those left out; without their times they are not counted as expired."""
        time = "time" if timed else "NULL"
        parameters = [(self.live.id, key) for key in keys]
        self.connection.executemany(
            f"INSERT INTO expired (stream, seq, id, body, time) SELECT stream, seq, id, body, {time}"  # noqa: S608
            f" FROM waiting WHERE stream = ?1 AND {which}",
            parameters,
        )
        self.connection.executemany(f"DELETE FROM waiting WHERE stream = ?1 AND {which}", parameters)  # noqa: S608

    def clear(self) -> None:
        """Remove all waiting observations: a new test begins with what is sent from now on, and counts from zero."""
        self._leave_out("seq >= ?2", [0], timed=False)
        self.connection.execute("UPDATE expired SET time = NULL WHERE stream = ?", (self.live.id,))
        self.live.waiting, self.live.left_out = 0, LeftOut()
        if self.labels.clock == "client":
            self.live.clock = None

    def _remember(self, rows: Iterable[tuple[int, str | None, str | None]]) -> None:
        """Labels, by id, so that one sent twice is known again."""
        self.connection.executemany(
            "INSERT OR REPLACE INTO labels (stream, id, y, seq) VALUES (?, ?, ?, ?)",
            [(self.live.id, name, y, seq) for seq, name, y in rows if name is not None],
        )


def server_clock(connection: sqlite3.Connection) -> Callable[[], float]:
    """The server's clock, in seconds since 1970; never earlier than a time that it gave before a restart.

    The system clock is read only once, so later jumps of it do not matter.
    """
    (last,) = connection.execute(
        "SELECT max(clock) FROM streams WHERE CASE WHEN clock IS NULL THEN 0"
        " ELSE json_extract(configuration, '$.labels.clock') = 'server' END"
    ).fetchone()
    start = max(system.time(), -math.inf if last is None else last) - system.monotonic()
    return lambda: start + system.monotonic()


def _rows(new: Batch, times: list[float | None]) -> list[Row]:
    """New observations as they will be stored."""
    rows = []
    for place, (seq, at) in enumerate(zip(new.seq.tolist(), times, strict=True)):
        given = {key: column[place] if column else None for key, column in new.extras._asdict().items()}
        y, name, body = given["y"], given["id"], {"x": new.x[place].tolist(), **given}
        rows.append(Row(seq, name, json.dumps(body), None if y is None else json.dumps(y), at))
    return rows


def _ready(new: Batch, y: list[Any] | None) -> Ready:
    columns = {key: column for key, column in new.extras._asdict().items() if column is not None}
    return Ready(new.seq, new.x, y, columns)


def _released(rows: Sequence[Row]) -> Ready:
    if not rows:
        return Ready(np.empty(0, np.int64), np.empty((0, 1)), [], {})
    bodies = [json.loads(row.body) for row in rows]
    y = [json.loads(row.y or "null") for row in rows]
    columns = {
        "y": y,
        "id": [row.id for row in rows],
        "time": [body["time"] for body in bodies],
        "late": [body["y"] is None or None for body in bodies],
    }
    held = {key: column for key, column in columns.items() if any(value is not None for value in column)}
    x = np.array([body["x"] for body in bodies], np.float64)
    return Ready(np.array([row.seq for row in rows], np.int64), x, y, {**held, "y": y})
