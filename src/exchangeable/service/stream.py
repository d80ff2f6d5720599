"""A stream in memory: its monitor, its place in the order of observations, and what is said of it."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from exchangeable import snapshot
from exchangeable.late_labels import LeftOut
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers, Path, Step
from exchangeable.service import history
from exchangeable.service.problems import Problem
from exchangeable.service.stream_config import Configuration, Once, stored

log: logging.Logger = logging.getLogger(__name__)
COMPARED = ("n", "p", "log10_martingale", "log10_max", "alarm", "alarm_at", "changepoint")  # words may change
BINS = 20  # of the histogram of p-values
PART = 64 << 20  # bytes of a snapshot in one row
CHANGING = (
    "state", "observed_at", "next_seq", "n", "since", "resets", "waiting", "expired", "observations", "duplicates",
    "alarms", "alarm", "log10", "carried", "total", "peak", "histogram", "kept", "clock", "left_out",
)  # fmt: skip
SAID = ", ".join(("name", "kinds", "created", *CHANGING))  # the columns that ``summary`` wants


@dataclass
class Live:
    """One stream. The monitor is what a snapshot and the steps after it give; the rest is a row of ``streams``."""

    id: int
    name: str
    configuration: Configuration
    monitor: Monitor
    tail: history.Tail
    created: float
    histogram: Integers
    observed_at: float | None = None
    next_seq: int = 1
    since: int = 0
    resets: int = 0
    waiting: int = 0
    observations: int = 0
    duplicates: int = 0
    alarms: int = 0
    carried: float = 0.0  # log capital of the tests that have restarted since the last reset, one after the other
    total: float = 0.0  # the same with the test that runs: the capital of one gambler who never begins again
    peak: float = 0.0  # the highest total
    kept: int = 1  # the first step that is still stored one by one
    clock: float | None = None  # the latest relevant time of an observation or label, in seconds
    width: int | None = None  # numbers in an observation, once there has been one
    snapshot_n: int = -1
    snapshot_bytes: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)  # in the current test

    @classmethod
    def fresh(cls, id: int, name: str, configuration: Configuration, now: float) -> Live:  # noqa: A002
        """A stream that has seen nothing."""
        monitor = configuration.monitor()
        return cls(id, name, configuration, monitor, history.Tail(), now, np.zeros(BINS, np.int64))

    @classmethod
    def load(cls, connection: sqlite3.Connection, name: str) -> Live:
        """A stream as of its last commit: the snapshot, and what came after it, replayed."""
        try:
            live = cls.row(connection, name)
            live._resume(connection)
        except ValueError as error:  # of the steps, the snapshot, or the replay
            raise _damaged(name, str(error)) from error
        (text,) = connection.execute("SELECT state FROM streams WHERE id = ?", (live.id,)).fetchone()
        live._check(json.loads(text))
        return live

    def _resume(self, connection: sqlite3.Connection) -> None:
        """Bring the monitor back."""
        self.snapshot_n, data = _snapshot(connection, self.id)
        self.snapshot_bytes = len(data)
        monitor = snapshot.decode(data)
        if not isinstance(monitor, Monitor):
            raise ValueError("its snapshot is not a monitor")
        labelled = self.configuration.needs_labels
        for part in history.replay(connection, self.id, self.snapshot_n):
            monitor.extend(examples(self.configuration, part.x), part.extra.get("y") if labelled else None)
        self.monitor = monitor

    def _check(self, committed: dict[str, Any]) -> None:
        """Refuse to go on from another state than the committed one; another version may round the last digits."""
        state = self.state()
        for key in ("log10_martingale", "log10_max"):
            was, now = committed[key], state[key]
            if (
                was != now
                and was is not None
                and now is not None
                and math.isclose(was, now, rel_tol=1e-9, abs_tol=1e-9)
            ):
                log.warning("stream %s resumes with %s = %r, committed was %r", self.name, key, now, was)
                committed[key] = now
        for key in COMPARED:
            if committed[key] != state[key]:
                law = f"{key} is {state[key]!r} after replay and was {committed[key]!r} when it was committed"
                raise _damaged(self.name, law)

    @classmethod
    def row(cls, connection: sqlite3.Connection, name: str) -> Live:
        """What the row says of a stream; its monitor knows where it stands, but nothing of the past."""
        row = connection.execute(
            f"SELECT id, configuration, created, {', '.join(CHANGING)} FROM streams WHERE name = ?",  # noqa: S608
            (name,),
        ).fetchone()
        if row is None:
            raise unknown(name)
        id_, text, created, state, observed_at, next_seq, n, since, resets, waiting, _ = row[:11]
        observations, duplicates, alarms, _, _, carried, total, peak, histogram, kept, clock, left_out = row[11:]
        configuration = stored(text)
        monitor, said = configuration.monitor(start=n), json.loads(state)
        last = None
        if said["p"] is not None:
            log_value = -math.inf if said["log10_martingale"] is None else said["log10_martingale"] * LN10
            last = Step(n, said["p"], log_value, said["alarm"])
        monitor.restore_status(last, said["log10_max"] * LN10, said["alarm_at"], said["changepoint"])
        return cls(
            id_, name, configuration, monitor, history.Tail.load(connection, id_, n), created,
            np.frombuffer(histogram, "<i8").copy(), observed_at, next_seq, since, resets, waiting,
            observations, duplicates, alarms, carried, total, peak, kept, clock, _width(connection, id_),
            left_out=LeftOut(**json.loads(left_out)),
        )  # fmt: skip

    def values(self) -> tuple[Any, ...]:
        """What changes of the row, in the order of ``CHANGING``."""
        state = self.state()
        return (
            json.dumps(state), self.observed_at, self.next_seq, self.monitor.n, self.since, self.resets, self.waiting,
            self.left_out.expired, self.observations, self.duplicates, self.alarms, int(state["alarm"]), self.log10,
            self.carried, self.total, self.peak, self.histogram.astype("<i8").tobytes(), self.kept,
            self.clock, json.dumps(asdict(self.left_out)),
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        """The stream without its configuration."""
        return summary((self.name, kinds(self.configuration), self.created, *self.values()))

    def whole(self) -> dict[str, Any]:
        """The stream with its configuration."""
        made = self.configuration
        return {**self.summary(), "configuration": made.model_dump(mode="json"), "notes": made.notes}

    @property
    def log10(self) -> float:
        """The capital of the test that runs, as a power of ten; -inf is bankruptcy."""
        return self.monitor.last.log_value / LN10 if self.monitor.last is not None else 0.0

    def state(self) -> dict[str, Any]:
        """What the world is told. A capital of 0 has no logarithm: there ``log10_martingale`` is None."""
        last, log10 = self.monitor.last, self.log10
        return {
            "n": self.monitor.n,
            "p": None if last is None else last.p,
            "log10_martingale": log10 if math.isfinite(log10) else None,
            "log10_max": self.monitor.log_max / LN10,
            "alarm": last is not None and last.alarm,
            "alarm_at": self.monitor.alarm_at,
            "changepoint": self.monitor.changepoint,
            "guarantee": self.guarantee,
        }

    @property
    def guarantee(self) -> str:
        """What the alarm promises, with the conditions if labels come late."""
        labels = self.configuration.labels
        if not self.configuration.needs_labels:
            return self.monitor.guarantee
        return self.left_out.guarantee(self.monitor.guarantee, labels.seconds, server_clock=labels.clock == "server")

    def count(self, p: Floats) -> None:
        """Put p-values into the histogram."""
        self.histogram += binned(p)

    def gain(self, path: Path) -> None:
        """Carry the capital over restarts: the product over all tests since the last reset is one martingale.

        The capital of the test that runs is none: a restart may lift it.
        """
        ends = np.flatnonzero(path.alarm).tolist() if self.monitor.on_alarm == "restart" else []
        for start, stop in zip([0, *(end + 1 for end in ends)], [*(end + 1 for end in ends), len(path.n)], strict=True):
            totals = self.carried + path.log_value[start:stop]
            if len(totals):
                self.total, self.peak = float(totals[-1]), max(self.peak, float(totals.max()))
            if stop - 1 in ends:
                self.carried = self.total

    def in_pool(self) -> int:
        """How many examples the measure remembers."""
        return int(getattr(self.monitor.measure, "n", self.monitor.n - self.since))


def binned(p: Floats) -> Integers:
    """How many p-values lie in (k/20, (k + 1)/20], for each k.

    >>> binned(np.array([0.01, 0.05, 0.06, 1.0])).tolist()[:2]
    [2, 1]
    """
    return np.bincount(np.maximum(np.ceil(p * BINS).astype(np.int64) - 1, 0), minlength=BINS)


def keep(connection: sqlite3.Connection, live: Live) -> None:
    """Store a snapshot in the place of the one before; in parts, because SQLite's values have an end."""
    data = snapshot.encode(live.monitor)
    n = live.monitor.n
    connection.execute("DELETE FROM snapshots WHERE stream = ?", (live.id,))
    connection.executemany(
        "INSERT INTO snapshots (stream, part, n, data) VALUES (?, ?, ?, ?)",
        ((live.id, part, n, data[start : start + PART]) for part, start in enumerate(range(0, len(data), PART))),
    )
    live.snapshot_n, live.snapshot_bytes = n, len(data)


def _snapshot(connection: sqlite3.Connection, stream: int) -> tuple[int, bytes]:
    """After how many examples the snapshot was taken, and the snapshot."""
    query = "SELECT n, data FROM snapshots WHERE stream = ? ORDER BY part"
    rows = connection.execute(query, (stream,)).fetchall()
    if not rows:
        raise ValueError("it has no snapshot")
    return rows[0][0], b"".join(data for _, data in rows)


def examples(configuration: Configuration, x: Floats) -> Floats:
    """Rows as the measure wants them: numbers, or rows of numbers."""
    return x[:, 0] if configuration.scalar else x


def _width(connection: sqlite3.Connection, stream: int) -> int | None:
    """How wide the stream's observations are, from one that is stored."""
    row = connection.execute(
        "SELECT length(x) / (8 * count) FROM steps WHERE stream = ? ORDER BY first DESC LIMIT 1", (stream,)
    ).fetchone()
    if row is not None:
        return int(row[0])
    row = connection.execute("SELECT body FROM waiting WHERE stream = ? LIMIT 1", (stream,)).fetchone()
    return None if row is None else len(json.loads(row[0])["x"])


def unknown(name: str) -> Problem:
    """What is said of a stream that is not there."""
    return Problem(404, "not-found", f"there is no stream {name!r}")


def _damaged(name: str, why: str) -> Problem:
    return Problem(503, "storage", f"stream {name!r} cannot be resumed: {why}")


# ------------------------------------------------------------------ what is said of streams


def moment(time: float | None) -> str | None:
    """A time as RFC 3339 writes it."""
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stream(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """A stream with its configuration, as its row says."""
    query = f"SELECT configuration, {SAID} FROM streams WHERE name = ?"  # noqa: S608
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        raise unknown(name)
    return {**summary(row[1:]), "configuration": json.loads(row[0]), "notes": stored(row[0]).notes}


def summary(values: Sequence[Any]) -> dict[str, Any]:
    """A stream without its configuration, from the columns ``SAID`` of its row."""
    row = dict(zip(SAID.split(", "), values, strict=True))
    return {
        "name": row["name"],
        "state": json.loads(row["state"]),
        **{key: row[key] for key in ("next_seq", "since", "resets", "waiting", "expired", "alarms")},
        "left_out": json.loads(row["left_out"]),
        "created": moment(row["created"]),
        "observed_at": moment(row["observed_at"]),
        **json.loads(row["kinds"]),
    }


def kinds(configuration: Configuration) -> str:
    """What a summary says of a configuration, which may be long."""
    alarm = configuration.alarm
    return json.dumps(
        {
            "measure": configuration.measure.kind,
            "bet": configuration.bet.kind,
            "alarm_kind": alarm.kind,
            "threshold_log10": -math.log10(alarm.alpha) if isinstance(alarm, Once) else None,
        }
    )
