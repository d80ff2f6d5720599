"""A stream in memory: its monitor, its counters, and how both are stored and restored."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from exchangeable import snapshot
from exchangeable.evidence import EvidenceMonitor
from exchangeable.late_labels import LeftOut
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers, Path, Step
from exchangeable.rate import RateMonitor, RatePath
from exchangeable.risk import Risk, RiskPath
from exchangeable.service import history
from exchangeable.service.memory import memory_of
from exchangeable.service.problems import Problem, invalid
from exchangeable.service.reference import parse_reference, read_reference
from exchangeable.service.row_fields import RowFields
from exchangeable.service.schema import dump_json, load_json
from exchangeable.service.server_config import Limits
from exchangeable.service.stream_config import Configuration, NeighbourMeasure, TableMeasure, load_configuration
from exchangeable.service.stream_summary import kinds, summarize, unknown_stream, with_configuration
from exchangeable.service.table_test import LabelEvent, LateRows, RowPath, TableTest
from exchangeable.table_monitor.constants import ColumnConstants

AnyPath = Path | RatePath | RiskPath | RowPath
AnyMonitor = Monitor | EvidenceMonitor | TableTest
T = TypeVar("T")
Slices = Generator[None, None, T]  # work in slices, so that many can take turns in one thread
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
SLICE = 50_000_000  # nanoseconds of work, as estimated, after which others have their turn


@dataclass
class LiveStream:
    """A stream in memory. Its monitor is restored from a snapshot and the steps after it, the rest from its row.

    The attributes listed in ``STORED_ATTRIBUTES`` are columns of the table ``streams``.
    """

    id: int
    name: str
    configuration: Configuration
    monitor: AnyMonitor
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
    label_events: int = 0  # since the last snapshot: labels that came later than their rows
    left_out: LeftOut = field(default_factory=LeftOut)  # in the current test
    retention: dict[str, int] = field(default_factory=dict)  # in place of those of the settings
    _unstored: list[LabelEvent] = field(default_factory=list)  # of these, those that are to be stored
    _measured: tuple[int, int] | None = None  # the step at which the memory was measured, and its bytes

    # -------------------------------------------------------------- storing and restoring

    @classmethod
    def new(cls, name: str, configuration: Configuration, now: float) -> LiveStream:
        """Return a stream that is not stored yet."""
        return cls(0, name, configuration, configuration.monitor(), history.Tail(), now, np.zeros(BINS, np.int64))

    def store(self, connection: sqlite3.Connection, configuration: str) -> None:
        """Store a new stream; ``configuration`` is its canonical JSON."""
        columns = {
            "name": self.name,
            "configuration": configuration,
            "kinds": dump_json(kinds(self.configuration)),
            "created": self.created,
            **self._columns(),
        }
        names, placeholders = ", ".join(columns), ", ".join("?" * len(columns))
        cursor = connection.execute(f"INSERT INTO main.streams ({names}) VALUES ({placeholders})", [*columns.values()])  # noqa: S608
        self.id = cursor.lastrowid or 0
        if isinstance(self.monitor, TableTest):
            self.save_snapshot(connection)
        else:
            self.snapshot_n = 0  # an empty stream has no snapshot: its steps are replayed from the first

    @classmethod
    def load(cls, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Restore a stream as of its last commit: load its snapshot and replay the steps after it."""
        return finish(cls.loading(connection, name))

    @classmethod
    def loading(cls, connection: sqlite3.Connection, name: str) -> Slices[LiveStream]:
        """Restore a stream in slices, each in the same transaction."""
        try:
            row = read_row(connection, name)
            configuration = load_configuration(row["configuration"])
            monitor, snapshot_n, snapshot_bytes = _read_monitor(connection, row, configuration)
            stream = cls._from_row(connection, row, configuration, monitor)
            stream.snapshot_n, stream.snapshot_bytes = snapshot_n, snapshot_bytes
            yield from stream._replaying(connection)
            stream._compare(row["state"])
        except ValueError as error:
            raise _damaged(name, error) from error
        return stream

    @classmethod
    def load_reset(cls, connection: sqlite3.Connection, name: str) -> LiveStream:
        """Start a new test of a stream; this does not need its snapshot, which may be damaged."""
        try:
            row = read_row(connection, name)
            configuration = load_configuration(row["configuration"])
            monitor = _new_monitor(connection, row["id"], configuration, row["n"])
            stream = cls._from_row(connection, row, configuration, monitor)
        except ValueError as error:
            raise _damaged(name, error) from error
        stream.since, stream.resets, stream.histogram = stream.monitor.n, stream.resets + 1, np.zeros(BINS, np.int64)
        stream.carried = stream.total = stream.peak = 0.0
        return stream

    @classmethod
    def _from_row(
        cls, connection: sqlite3.Connection, row: dict[str, Any], configuration: Configuration, monitor: AnyMonitor
    ) -> LiveStream:
        """Restore all but the monitor."""
        return cls(
            id=row["id"],
            name=row["name"],
            configuration=configuration,
            monitor=monitor,
            tail=history.Tail.load(connection, row["id"], row["n"]),
            created=row["created"],
            histogram=np.frombuffer(row["histogram"], "<i8").copy(),
            width=_width(connection, row["id"]),
            left_out=LeftOut(**row["left_out"]),
            retention=load_json(row["retention"] or "{}"),
            **{name: row[name] for name in STORED_ATTRIBUTES},
        )

    def restart(self, connection: sqlite3.Connection, start: int) -> None:
        """Replace the monitor by a new one that counts from step ``start``, as the stream had after a reset."""
        self.monitor = _new_monitor(connection, self.id, self.configuration, start)

    def _replaying(self, connection: sqlite3.Connection) -> Slices[None]:
        """Bring the monitor from its snapshot up to the last commit."""
        events = self._read_label_events(connection)
        for part in history.replay(connection, self.id, self.snapshot_n):
            if self.configuration.late_rows:
                late = late_rows(part.seq, part.extra.get("id"), part.extra.get("clock"))
                self.table.replay(part.extra["row"], late, events)
                yield
            else:
                y = part.extra.get("y") if self.configuration.needs_labels else None
                yield from self.extending(part.x, y, part.extra.get("row"))
        for event in events:
            self.table.label(event)

    def _read_label_events(self, connection: sqlite3.Connection) -> deque[LabelEvent]:
        query = "SELECT n, id, y, time, never FROM label_events WHERE stream = ? ORDER BY at"
        rows = connection.execute(query, (self.id,)).fetchall()
        self.label_events = len(rows)
        return deque(LabelEvent(n, id_, load_json(y), time, bool(never)) for n, id_, y, time, never in rows)

    def store_label_events(self, connection: sqlite3.Connection) -> None:
        """Store the labels that were consumed since the last call, until a snapshot contains them."""
        connection.executemany(
            "INSERT INTO main.label_events (stream, n, id, y, time, never) VALUES (?, ?, ?, ?, ?, ?)",
            [(self.id, e.n, e.id, dump_json(e.y), e.time, int(e.never)) for e in self._unstored],
        )
        self._unstored.clear()

    def encode(self) -> bytes:
        """Encode the monitor as it is stored."""
        return self.monitor.encode() if isinstance(self.monitor, TableTest) else snapshot.encode(self.monitor)

    def export(self) -> bytes:
        """Encode the monitor as ``exchangeable.load`` reads it."""
        monitor = self.monitor.monitor if isinstance(self.monitor, TableTest) else self.monitor
        if monitor is None:
            raise Problem(409, "conflict", f"stream {self.name!r} has no reference yet, so there is nothing to export")
        return snapshot.encode(monitor)

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
            "retention": dump_json(self.retention) if self.retention else None,
            **{name: getattr(self, name) for name in STORED_ATTRIBUTES},
        }

    def update_row(self, connection: sqlite3.Connection) -> None:
        """Store the counters and the state."""
        columns = self._columns()
        names = ", ".join(f"{name} = ?" for name in columns)
        connection.execute(f"UPDATE main.streams SET {names} WHERE id = ?", [*columns.values(), self.id])  # noqa: S608

    def save_snapshot(self, connection: sqlite3.Connection, data: bytes | None = None) -> None:
        """Replace the stored snapshot of the monitor, unless there is one of this step; ``data`` is it, if encoded."""
        if self.monitor.n == self.snapshot_n and not self.label_events:
            return
        data, n = data or self.encode(), self.monitor.n
        for table in ("snapshots", "label_events"):
            connection.execute(f"DELETE FROM main.{table} WHERE stream = ?", (self.id,))  # noqa: S608
        connection.executemany(
            "INSERT INTO main.snapshots (stream, part, n, data) VALUES (?, ?, ?, ?)",
            (
                (self.id, part, n, data[start : start + PART_BYTES])
                for part, start in enumerate(range(0, len(data), PART_BYTES))
            ),
        )
        self.snapshot_n, self.snapshot_bytes, self.label_events = n, len(data), 0

    # -------------------------------------------------------------- describing

    def describe(self) -> dict[str, Any]:
        """Return the summary with the configuration."""
        return with_configuration(self.summary(), self.configuration, self.retention)

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
            **self._more_state(),
        }

    def _more_state(self) -> dict[str, Any]:
        """Return the shares of values and their change, the mean loss and its interval, or the rejected columns."""
        if isinstance(self.monitor, TableTest):
            return {"table": self.monitor.state()}
        if isinstance(self.monitor, RateMonitor):
            change = self.monitor.change
            shares = list(self.monitor.shares.values())
            return {"rate": {"shares": shares, "change": None if change is None else change._asdict()}}
        if isinstance(self.monitor, Risk):
            mean = None if math.isnan(self.monitor.mean) else self.monitor.mean
            rise = None if self.monitor.change is None else self.monitor.change._asdict()
            interval = self.monitor.interval._asdict()
            return {"risk": {"limit": self.monitor.limit, "mean": mean, **interval, "change": rise}}
        return {}

    @property
    def guarantee(self) -> str:
        """The guarantee of the alarm, with its conditions if labels arrive late."""
        labels = self.configuration.labels
        if labels is None or not self.configuration.takes_labels:
            return self.monitor.guarantee
        if self.configuration.late_rows:  # the monitor knows which rows it has left out
            on_server = labels.clock == "server" and self.table.monitor is not None
            return LeftOut().guarantee(self.monitor.guarantee, labels.seconds, server_clock=on_server)
        return self.left_out.guarantee(self.monitor.guarantee, labels.seconds, server_clock=labels.clock == "server")

    def describe_bet(self, connection: sqlite3.Connection) -> dict[str, Any]:
        """Return the betting function for the next p-value, and histograms of the p-values of the current test."""
        if not isinstance(self.monitor, Monitor):
            kind = self.configuration.measure.kind
            raise Problem(409, "conflict", f"stream {self.name!r} does not bet on p-values: its measure is {kind}")
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

    def describe_band(self, start: int, to: int) -> dict[str, Any] | None:
        """Return the mean loss and its interval at up to 256 steps between two; None unless the risk is monitored."""
        if not isinstance(self.monitor, Risk):
            return None
        band = self.monitor.band
        shown = (band.n >= start) & (band.n <= to)
        return {name: column[shown].tolist() for name, column in band._asdict().items()}

    def describe_columns(self) -> tuple[int, dict[str, Any], list[ColumnConstants]]:
        """Describe the columns and views of a table; return also the number of rows, and the constants."""
        if not isinstance(self.monitor, TableTest):
            kind = self.configuration.measure.kind
            raise Problem(409, "conflict", f"stream {self.name!r} has no columns: its measure is {kind}")
        return self.monitor.describe()

    # -------------------------------------------------------------- counting

    @property
    def table(self) -> TableTest:
        """The test of a stream of rows."""
        if not isinstance(self.monitor, TableTest):
            raise TypeError(f"stream {self.name!r} is not a table")
        return self.monitor

    def extend(
        self, x: Floats, y: Any = None, rows: list[dict[str, Any]] | None = None, late: LateRows | None = None
    ) -> AnyPath:
        """Let the monitor consume rows of numbers, which it may expect as single numbers, or rows of a table."""
        if isinstance(self.monitor, TableTest):
            return self.monitor.extend(rows or [], late)
        examples = x[:, 0] if self.configuration.scalar else x
        path: AnyPath = self.monitor.extend(*((examples, y) if isinstance(self.monitor, Monitor) else (examples,)))
        return path

    def extending(
        self, x: Floats, y: Any = None, rows: list[dict[str, Any]] | None = None, late: LateRows | None = None
    ) -> Slices[AnyPath]:
        """Let the monitor consume rows in slices: the same steps as in one call."""
        size = max(1, len(x) * SLICE // max(self.cost(len(x), x.shape[1]), SLICE))
        parts: list[AnyPath] = []
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            labels, cells = (None if column is None else column[part] for column in (y, rows))
            parts.append(self.extend(x[part], labels, cells, None if late is None else late.part(part)))
            yield
        return parts[0] if len(parts) == 1 else join_paths(parts)

    def cost(self, rows: int, width: int | None = None) -> int:
        """Estimate how many nanoseconds the monitor takes to consume rows."""
        if isinstance(self.configuration.measure, NeighbourMeasure):
            return rows * (width or self.width or 1) * (self.pool_size() + rows) * 5
        return rows * 5_000 * self.width_of_steps

    @property
    def bytes(self) -> int:
        """About how much memory the stream takes; measured again when it has grown by a quarter."""
        n = self.monitor.n
        if self._measured is None or n - self._measured[0] > 256 + self._measured[0] // 4:
            self._measured = n, memory_of(self)
        return self._measured[1]

    @property
    def clean(self) -> bool:
        """Whether the monitor has consumed nothing that is not stored."""
        return self.monitor.n == self.tail.n and not self._unstored

    @property
    def width_of_steps(self) -> int:
        """How many values a step is about; a table has one for each column, and takes longer to replay."""
        return max(1, self.monitor.columns) if isinstance(self.monitor, TableTest) else 1

    @property
    def row_fields(self) -> RowFields | None:
        """The columns of the reference of a table; None without one."""
        if not isinstance(self.monitor, TableTest) or self.monitor.monitor is None:
            return None
        return RowFields.of(self.monitor.monitor.schema, self.created)

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

    def label(self, event: LabelEvent) -> RowPath | None:
        """Let the test consume a label that came later than its row; return an alarm that it has raised."""
        self._unstored.append(event)
        self.label_events += 1
        return self._count_label(self.table.label(event))

    def _count_label(self, raised: bool) -> RowPath | None:
        """Update the counters after a label that belongs to the latest row; return an alarm that it has raised."""
        step = self.table.last
        if step is None:
            return None
        self.total = self.carried + (step.log_value if raised else self.table.log_value)
        self.peak = max(self.peak, self.total)
        if not raised:
            return None
        self.alarms += 1
        if self.table.on_alarm == "restart":
            self.carried, self.since = self.total, self.table.n
        columns = np.array([self.table.n]), np.array([step.log_value]), np.ones(1, np.bool_)
        return RowPath(*columns, [self.table.changepoint], {})


def finish(slices: Slices[T]) -> T:
    """Do all slices of some work at once, and return its result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: T = end.value
            return result


def join_paths(parts: Sequence[AnyPath]) -> AnyPath:
    """Concatenate consecutive paths (at least one) of a monitor."""
    joined: AnyPath = type(parts[0])(*map(_join, zip(*parts, strict=True)))
    return joined


def _join(values: tuple[Any, ...]) -> Any:
    """Concatenate arrays, lists and mappings; of texts, such as the guarantee, the last one counts."""
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    if isinstance(values[0], dict):
        return {key: item for value in values for key, item in value.items()}
    return values[-1]


def _read_monitor(
    connection: sqlite3.Connection, row: dict[str, Any], configuration: Configuration
) -> tuple[AnyMonitor, int, int]:
    """Return the monitor from its snapshot, the number of steps in it, and its size; a new one for a new stream."""
    query = "SELECT n, data FROM snapshots WHERE stream = ? ORDER BY part"
    rows = connection.execute(query, (row["id"],)).fetchall()
    if rows:
        data = b"".join(part for _, part in rows)
        return _decode(data, configuration), rows[0][0], len(data)
    if row["resets"] or row["kept"] > 1 or isinstance(configuration.measure, TableMeasure):
        raise ValueError("it has no snapshot")
    return configuration.monitor(), 0, 0


def _decode(data: bytes, configuration: Configuration) -> AnyMonitor:
    if isinstance(configuration.measure, TableMeasure):
        return TableTest.decode(data, configuration.on_alarm)
    monitor: Monitor | EvidenceMonitor = snapshot.decode(data)
    if type(monitor) is not configuration.monitor_type:
        raise ValueError("its snapshot is of another kind of monitor")
    return monitor


def _new_monitor(connection: sqlite3.Connection, stream: int, configuration: Configuration, start: int) -> AnyMonitor:
    """Return the monitor of a new test that counts from step ``start``."""
    if isinstance(configuration.measure, TableMeasure):
        return _from_reference(connection, stream, configuration, start)
    return configuration.monitor(start=start)


def _from_reference(connection: sqlite3.Connection, stream: int, configuration: Configuration, start: int) -> TableTest:
    """Return a new test of a table against its stored reference, if it has one."""
    stored = read_reference(connection, stream)
    if stored is None:
        return TableTest(None, configuration.on_alarm, start)
    media, body = stored
    everything = Limits(reference=10_000_000, reference_cells=10**9, width=1_000_000, string=65_536)  # as accepted once
    return configuration.table_test(parse_reference(body, media, everything), start)


def late_rows(seq: Integers, ids: list[str | None] | None, times: list[float | None] | None) -> LateRows:
    """Return the ids of rows, their numbers for those without, and their times."""
    numbers = seq.tolist()
    named = (
        numbers if ids is None else [number if id_ is None else id_ for number, id_ in zip(numbers, ids, strict=True)]
    )
    return LateRows(named, [None] * len(numbers) if times is None else times)


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
    return invalid(error, "storage", f"stream {name!r} cannot be resumed: {error}", 503)
