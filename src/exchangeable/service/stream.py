"""A stream in memory: its monitor, its counters, and how both are stored and restored."""

from __future__ import annotations

import logging
import math
import sqlite3
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from exchangeable import snapshot
from exchangeable.late_labels import LeftOut
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers, Path, Step
from exchangeable.rate import RateMonitor, RatePath
from exchangeable.service import history
from exchangeable.service.problems import Problem
from exchangeable.service.schema import dump_json, load_json
from exchangeable.service.stream_config import Configuration, load_configuration
from exchangeable.service.stream_summary import kinds, summarize, unknown_stream, with_configuration

AnyPath = Path | RatePath
log: logging.Logger = logging.getLogger(__name__)
COMPARED = (
    "n",
    "p",
    "log10_martingale",
    "log10_max",
    "alarm",
    "alarm_at",
    "changepoint",
)  # not the wording of the guarantee
BINS = 20  # of the histogram of p-values
CURVE_POINTS = 101  # points of a betting function
PART_BYTES = 64 << 20  # bytes of a snapshot in one row, since the size of SQLite's values is limited
STORED_ATTRIBUTES = (
    "observed_at", "next_seq", "since", "resets", "waiting", "observations", "duplicates", "alarms", "carried", "total",
    "peak", "kept", "clock",
)  # fmt: skip


@dataclass
class LiveStream:
    """A stream in memory. Its monitor is restored from a snapshot and the steps after it, the rest from its row.

    The attributes listed in ``STORED_ATTRIBUTES`` are columns of the table ``streams``.
    """

    id: int
    name: str
    configuration: Configuration
    monitor: Monitor | RateMonitor
    tail: history.Tail
    created: float
    histogram: Integers  # of the p-values of the current test
    observed_at: float | None = None  # when the last observation was received
    next_seq: int = 1
    since: int = 0  # the number of steps before the current test
    resets: int = 0
    waiting: int = 0  # observations that wait for their labels
    observations: int = 0
    duplicates: int = 0
    alarms: int = 0
    carried: float = 0.0  # log capital of the tests before the last restart, multiplied, since the last reset
    total: float = 0.0  # the same including the current test: the capital of a gambler who never restarts
    peak: float = 0.0  # the highest total
    kept: int = 1  # the first step that is still stored one by one
    clock: float | None = None  # the latest relevant time of an observation or label, in seconds
    width: int | None = None  # numbers in an observation, once there has been one
    snapshot_n: int = -1
    snapshot_bytes: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)  # in the current test

    # -------------------------------------------------------------- storing and restoring

    @classmethod
    def create(cls, connection: sqlite3.Connection, name: str, configuration: Configuration, now: float) -> LiveStream:
        """Store a new stream."""
        stream = cls(0, name, configuration, configuration.monitor(), history.Tail(), now, np.zeros(BINS, np.int64))
        columns = {
            "name": name,
            "configuration": configuration.canonical(),
            "kinds": dump_json(kinds(configuration)),
            "created": now,
            **stream._columns(),
        }
        names, placeholders = ", ".join(columns), ", ".join("?" * len(columns))
        cursor = connection.execute(f"INSERT INTO streams ({names}) VALUES ({placeholders})", [*columns.values()])  # noqa: S608
        stream.id = cursor.lastrowid or 0
        stream.save_snapshot(connection)
        return stream

    @classmethod
    def load(cls, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Restore a stream as of its last commit: load its snapshot and replay the steps after it."""
        try:
            row = read_row(connection, name)
            stream = cls._from_row(connection, row)
            stream._restore_monitor(connection)
            stream._compare(row["state"])
        except ValueError as error:
            raise _damaged(name, error) from error
        return stream

    @classmethod
    def load_reset(cls, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Start a new test of a stream; this does not need its snapshot, which may be damaged."""
        try:
            stream = cls._from_row(connection, read_row(connection, name))
        except ValueError as error:
            raise _damaged(name, error) from error
        stream.since, stream.resets, stream.histogram = stream.monitor.n, stream.resets + 1, np.zeros(BINS, np.int64)
        stream.carried = stream.total = stream.peak = 0.0
        return stream

    @classmethod
    def _from_row(cls, connection: sqlite3.Connection, row: dict[str, Any]) -> LiveStream:
        """Restore all but the monitor, which is new and continues the count of steps."""
        configuration = load_configuration(row["configuration"])
        return cls(
            id=row["id"],
            name=row["name"],
            configuration=configuration,
            monitor=configuration.monitor(start=row["n"]),
            tail=history.Tail.load(connection, row["id"], row["n"]),
            created=row["created"],
            histogram=np.frombuffer(row["histogram"], "<i8").copy(),
            width=_width(connection, row["id"]),
            left_out=LeftOut(**row["left_out"]),
            **{name: row[name] for name in STORED_ATTRIBUTES},
        )

    def _restore_monitor(self, connection: sqlite3.Connection) -> None:
        query = "SELECT n, data FROM snapshots WHERE stream = ? ORDER BY part"
        rows = connection.execute(query, (self.id,)).fetchall()
        if not rows:
            raise ValueError("it has no snapshot")
        data = b"".join(part for _, part in rows)
        self.snapshot_n, self.snapshot_bytes = rows[0][0], len(data)
        monitor = snapshot.decode(data)
        if type(monitor) is not type(self.monitor):
            raise ValueError("its snapshot is not its monitor")
        self.monitor = monitor
        labelled = self.configuration.needs_labels
        for part in history.replay(connection, self.id, self.snapshot_n):
            self.extend(part.x, part.extra.get("y") if labelled else None)

    def _compare(self, committed: dict[str, Any]) -> None:
        """Raise if the restored state is not the committed one; another version may round the last digits."""
        state = self.state()
        for key in COMPARED:
            before, now = committed[key], state[key]
            if before == now:
                continue
            if not (key.startswith("log10") and _close(before, now)):
                raise ValueError(f"{key} is {now!r} after replay and was {before!r} when it was committed")
            log.warning("stream %s resumes with %s = %r, but %r was committed", self.name, key, now, before)

    def _columns(self) -> dict[str, Any]:
        """Return the columns of the row that change."""
        state = self.state()
        return {
            "state": dump_json(state),
            "n": self.monitor.n,
            "alarm": int(state["alarm"]),
            "log10": self.log10,
            "histogram": self.histogram.astype("<i8").tobytes(),
            "expired": self.left_out.expired,
            "left_out": dump_json(asdict(self.left_out)),
            **{name: getattr(self, name) for name in STORED_ATTRIBUTES},
        }

    def update_row(self, connection: sqlite3.Connection) -> None:
        """Store the counters and the state."""
        columns = self._columns()
        names = ", ".join(f"{name} = ?" for name in columns)
        connection.execute(f"UPDATE streams SET {names} WHERE id = ?", [*columns.values(), self.id])  # noqa: S608

    def save_snapshot(self, connection: sqlite3.Connection) -> None:
        """Replace the stored snapshot of the monitor, unless there is one of this step."""
        if self.monitor.n == self.snapshot_n:
            return
        data, n = snapshot.encode(self.monitor), self.monitor.n
        connection.execute("DELETE FROM snapshots WHERE stream = ?", (self.id,))
        connection.executemany(
            "INSERT INTO snapshots (stream, part, n, data) VALUES (?, ?, ?, ?)",
            (
                (self.id, part, n, data[start : start + PART_BYTES])
                for part, start in enumerate(range(0, len(data), PART_BYTES))
            ),
        )
        self.snapshot_n, self.snapshot_bytes = n, len(data)

    # -------------------------------------------------------------- describing

    def describe(self) -> dict[str, Any]:
        """Return the summary with the configuration."""
        return with_configuration(self.summary(), self.configuration)

    def summary(self) -> dict[str, Any]:
        """Return the description of the stream for replies, without its configuration."""
        decoded = {
            "state": self.state(),
            "left_out": asdict(self.left_out),
            "expired": self.left_out.expired,
            "kinds": kinds(self.configuration),
        }
        return summarize({**vars(self), **decoded})

    @property
    def log10(self) -> float:
        """The log10 capital of the current test; -inf is bankruptcy."""
        return self.monitor.last.log_value / LN10 if self.monitor.last is not None else 0.0

    def state(self) -> dict[str, Any]:
        """Return the state of the test. ``log10_martingale`` is None if the capital is 0."""
        last, log10 = self.monitor.last, self.log10
        return {
            "n": self.monitor.n,
            "p": last.p if isinstance(last, Step) else None,
            "log10_martingale": log10 if math.isfinite(log10) else None,
            "log10_max": self.monitor.log_max / LN10,
            "alarm": last is not None and last.alarm,
            "alarm_at": self.monitor.alarm_at,
            "changepoint": self.monitor.changepoint,
            "guarantee": self.guarantee,
            **self._rate(),
        }

    def _rate(self) -> dict[str, Any]:
        """Return the shares of the values so far, and the change at the alarm, if the rate is monitored."""
        if not isinstance(self.monitor, RateMonitor):
            return {}
        change = self.monitor.change
        shares = list(self.monitor.shares.values())
        return {"rate": {"shares": shares, "change": None if change is None else change._asdict()}}

    @property
    def guarantee(self) -> str:
        """The guarantee of the alarm, with its conditions if labels arrive late."""
        labels = self.configuration.labels
        if not self.configuration.needs_labels:
            return self.monitor.guarantee
        return self.left_out.guarantee(self.monitor.guarantee, labels.seconds, server_clock=labels.clock == "server")

    def describe_bet(self, connection: sqlite3.Connection) -> dict[str, Any]:
        """Return the betting function for the next p-value, and histograms of the p-values of the current test."""
        if isinstance(self.monitor, RateMonitor):
            raise Problem(409, "conflict", f"stream {self.name!r} does not bet on p-values: its measure is rate")
        n, points = self.monitor.n, ((np.arange(CURVE_POINTS) + 0.5) / CURVE_POINTS).tolist()
        recent = history.read(connection, self.id, max(n - history.BLOCK, self.since) + 1, n, history.BLOCK).p
        log_density = self.monitor.martingale.bet.log_density
        return {
            "n": n,
            "p": points,
            "density": [float(np.exp(log_density(p))) for p in points],
            "histogram": self.histogram.tolist(),
            "recent": count_in_bins(recent[np.isfinite(recent)]).tolist(),  # those that are still stored
        }

    # -------------------------------------------------------------- counting

    def extend(self, x: Floats, y: Any = None) -> AnyPath:
        """Let the monitor consume rows of numbers; it may expect them as single numbers."""
        examples = x[:, 0] if self.configuration.scalar else x
        return (
            self.monitor.extend(examples) if isinstance(self.monitor, RateMonitor) else self.monitor.extend(examples, y)
        )

    def pool_size(self) -> int:
        """Return how many examples the measure remembers."""
        return int(getattr(getattr(self.monitor, "measure", None), "n", self.monitor.n - self.since))

    def new_alarms(self, path: AnyPath) -> Integers:
        """Return the positions of the alarms in a path: all with restarts, else that of the latched alarm, if any."""
        restarts = self.monitor.on_alarm == "restart"
        return np.flatnonzero(path.alarm if restarts else path.n == self.monitor.alarm_at)

    def count_steps(self, path: AnyPath) -> None:
        """Update the counters of the test after these steps.

        The capital is carried over restarts: the product of the capitals of all tests since the last reset is a
        martingale. The capital of the current test alone is not, since a restart may raise it.
        """
        alarms = self.new_alarms(path)
        self.alarms += len(alarms)
        gained = np.zeros(len(path.n) + 1)
        gained[0] = self.carried
        if self.monitor.on_alarm == "restart" and len(alarms):
            gained[alarms + 1] = path.log_value[alarms]
            self.since = int(path.n[alarms[-1]])
            self.histogram[:] = 0
        carried = np.cumsum(gained)  # before each step, and after the last one
        totals = carried[:-1] + path.log_value
        self.carried, self.total, self.peak = carried[-1].item(), totals[-1].item(), max(self.peak, totals.max().item())
        if isinstance(path, Path):
            self.histogram += count_in_bins(path.p[path.n > self.since])


def p_values(path: AnyPath) -> Floats:
    """Return the p-values of a path; NaN where there are none."""
    return path.p if isinstance(path, Path) else np.full(len(path.n), np.nan)


def read_row(connection: sqlite3.Connection, name: str) -> dict[str, Any]:
    """Read the row of a stream; its state and counts are decoded, its configuration is not."""
    cursor = connection.execute("SELECT * FROM streams WHERE name = ?", (name,))
    values = cursor.fetchone()
    if values is None:
        raise unknown_stream(name)
    row = dict(zip((column for column, *_ in cursor.description), values, strict=True))
    return {**row, "state": load_json(row["state"]), "left_out": load_json(row["left_out"])}


def count_in_bins(p: Floats) -> Integers:
    """Count the p-values in (k/20, (k + 1)/20], for each k.

    >>> count_in_bins(np.array([0.01, 0.05, 0.06, 1.0])).tolist()[:2]
    [2, 1]
    """
    return np.bincount(np.maximum(np.ceil(p * BINS).astype(np.int64) - 1, 0), minlength=BINS)


def _width(connection: sqlite3.Connection, stream: int) -> int | None:
    """Return how many numbers the stream's observations have, from one that is stored."""
    row = connection.execute(
        "SELECT length(x) / (8 * count) FROM steps WHERE stream = ? ORDER BY first DESC LIMIT 1", (stream,)
    ).fetchone()
    if row is not None:
        return int(row[0])
    row = connection.execute("SELECT body FROM waiting WHERE stream = ? LIMIT 1", (stream,)).fetchone()
    return None if row is None else len(load_json(row[0])["x"])


def _close(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)


def _damaged(name: str, error: ValueError) -> Problem:
    return Problem(503, "storage", f"stream {name!r} cannot be resumed: {error}")
