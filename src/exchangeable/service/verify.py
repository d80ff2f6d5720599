"""Checking a database: its structure, the checksums, what the history must hold, and the numbers themselves."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exchangeable.martingale import LN10
from exchangeable.protocols import Floats
from exchangeable.service import checksums, copying, schema
from exchangeable.service.access import SCOPES
from exchangeable.service.history import replay, rollups
from exchangeable.service.history.rows import Steps, read_rows
from exchangeable.service.problems import Problem
from exchangeable.service.store import StoreError, check_file
from exchangeable.service.stream import LiveStream, p_values

__all__ = ["Report", "verify"]
MOST = 100  # findings of each kind that are reported
OUTBOX_STATES = ("pending", "sent", "dead")


class Report(NamedTuple):
    """What was checked, and the damage found, as sentences."""

    version: int  # of the schema
    rows: int
    streams: int
    restored: int  # streams
    replayed: int  # of these, tested again from the first step
    damage: list[str]


def verify(path: Path, replays: int | None = 0, progress: copying.Progress = lambda *_: None) -> Report:
    """Check a database, also while a server uses it; ``replays`` streams are restored, and tested again if
    all of their steps are stored (None: all streams).

    Raises `StoreError` if it cannot be checked: it is no database, or one of another release.
    """
    if not path.is_file():
        raise StoreError(f"database must be an existing file, got {str(path)!r}")
    try:
        with closing(copying.read_only(path)) as connection:
            check_file(connection, path)
            check = _Verification(connection, progress)
            return check.run(replays)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
            return Report(0, 0, 0, 0, 0, [f"the database cannot be read: {error}"])
        raise StoreError(f"database must be a readable SQLite file, got {str(path)!r}: {error}") from error


class _Verification:
    def __init__(self, connection: sqlite3.Connection, progress: copying.Progress) -> None:
        self.connection = connection
        self.progress = progress
        self.damage: list[str] = []
        self.rows = self.restored = self.replayed = 0
        self.names: dict[int, str] = {}

    def run(self, replays: int | None) -> Report:
        version = schema.version(self.connection)
        with self._reading("the database"):
            self.names = dict(self.connection.execute("SELECT id, name FROM streams ORDER BY id"))
        self._check_structure()
        self._check_checksums()
        self._check_access()
        for done, stream in enumerate(self.names, 1):
            self._check_stream(stream)
            self.progress("history", done, len(self.names))
        sample = [*self.names]
        if replays is not None:
            sample = random.Random(0).sample(sample, min(replays, len(sample)))  # noqa: S311 - not a secret
        for done, stream in enumerate(sample, 1):
            self._replay(stream)
            self.progress("restoring", done, len(sample))
        return Report(version, self.rows, len(self.names), self.restored, self.replayed, self.damage)

    def _found(self, what: str) -> None:
        if what not in self.damage:
            self.damage.append(what)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Check one committed state; what cannot be read is damage."""
        try:
            self.connection.execute("BEGIN")
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_IOERR,
                sqlite3.SQLITE_CANTOPEN,
            ):
                raise
            self._found(f"{what} cannot be read: {checksums.damage(self.connection, error)}")
        except (Problem, ValueError) as error:
            self._found(f"{what}: {error}")
        finally:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    # -------------------------------------------------------------- the file

    def _check_structure(self) -> None:
        with self._reading("the structure of the file"):
            for (found,) in self.connection.execute(f"PRAGMA integrity_check({MOST})"):
                if found != "ok":
                    self._found(f"the structure of the file: {found}")
            if schema.version(self.connection) == schema.newest_version():
                query = "SELECT sql FROM main.sqlite_master WHERE sql IS NOT NULL"
                stored = {sql for (sql,) in self.connection.execute(query)}
                for sql in sorted(_expected_schema() - stored):
                    self._found(f"the schema lacks: {' '.join(sql.split())[:80]}")

    def _check_checksums(self) -> None:
        tables = [*checksums.tables(self.connection)]
        checksums.install(self.connection)
        for done, table in enumerate(tables, 1):
            with self._reading(f"table {table.name}"):
                for stream in checksums.check_rows(self.connection, table):
                    self.rows += 1
                    if stream is not None:
                        of = f", of stream {self.names.get(stream, stream)!r}" if stream else ""
                        self._found(f"table {table.name}: a row does not match its checksum{of}")
            self.progress("checksums", done, len(tables))

    def _check_access(self) -> None:
        """Check the tokens and the outbox."""
        with self._reading("table tokens"):
            for name, scopes, size in self.connection.execute("SELECT id, scopes, length(digest) FROM tokens"):
                if size != 32 or not set(scopes.split(",")) <= set(SCOPES):
                    self._found(f"table tokens: token {name!r} has no valid hash or scope")
        with self._reading("table outbox"):
            for number, state, alert in self.connection.execute("SELECT id, state, alert FROM outbox"):
                schema.load_json(alert)
                if state not in OUTBOX_STATES:
                    self._found(f"table outbox: alert {number} is in no known state")

    # -------------------------------------------------------------- the history of a stream

    def _check_stream(self, stream: int) -> None:
        """Check that steps, alarms and resets are complete, and that roll-ups match the steps that are still stored."""
        what = f"stream {self.names[stream]!r}"
        with self._reading(what):
            query = "SELECT kept, n, alarms, resets FROM streams WHERE id = ?"
            kept, n, *counts = self.connection.execute(query, (stream,)).fetchone()
            stored = _Blocks(kept)
            for row in read_rows(self.connection, stream, 1):
                stored.add(row)
            if stored.first > kept or stored.next != n + 1:
                self._found(
                    f"{what}: its steps must be stored from {kept} to {n}, got {stored.first} to {stored.next - 1}"
                )
            if not self.connection.execute("SELECT 1 FROM fleet WHERE name = ?", (self.names[stream],)).fetchone():
                self._found(f"{what} has no position in the fleet")
            for kind, count in zip(("alarm", "reset"), counts, strict=True):
                if (marks := len(self._marks(stream, kind))) != count:
                    self._found(f"{what}: the number of marks of its {kind}s must be {count:,}, got {marks:,}")
            self._check_rollups(stream, what, stored, n)

    def _marks(self, stream: int, kind: str) -> list[int]:
        query = "SELECT n FROM marks WHERE stream = ? AND kind = ? ORDER BY n, rowid"
        return [n for (n,) in self.connection.execute(query, (stream, kind))]

    def _check_rollups(self, stream: int, what: str, stored: _Blocks, n: int) -> None:
        before: dict[int, dict[int, tuple[Any, ...]]] = {}
        for level, size in enumerate(rollups.SIZES):
            query = "SELECT first, low, low_at, high, high_at, last FROM rollups WHERE stream = ? AND level = ?"
            found = {row[0]: row for row in self.connection.execute(query, (stream, level))}
            expected = stored.rollups if level == 0 else _combined(before[level - 1], size)
            complete = set(range(1, n - size + 2, size)) if level else set(stored.rollups)
            wrong = [first for first, row in expected.items() if found.get(first) != row]
            wrong += complete - found.keys()
            if wrong:
                self._found(f"{what}: the roll-up of level {level} from step {min(wrong)} is not that of its steps")
            before[level] = found

    def _replay(self, stream: int) -> None:
        """Restore a stream as the server does; if all of its steps are stored, test them again, bit for bit."""
        name = self.names[stream]
        with self._reading(f"stream {name!r}"):
            live, resets = LiveStream.load(self.connection, name), self._marks(stream, "reset")
            self.restored += 1
            if live.kept > 1 or live.configuration.late_rows or len(resets) != live.resets or not live.tail.n:
                return  # steps are not stored, labels that came later are not kept, or there is nothing to test
            self._test_again(live, resets)
            self.replayed += 1

    def _test_again(self, live: LiveStream, resets: list[int]) -> None:
        labelled = live.configuration.needs_labels
        live.restart(self.connection, 0)
        for part in replay(self.connection, live.id, 0):
            cuts = [n - part.first + 1 for n in resets if part.first <= n < part.first + len(part.p)]
            for start, stop in zip([0, *cuts], [*cuts, len(part.p)], strict=True):
                if part.first + start - 1 in resets:
                    live.restart(self.connection, part.first + start - 1)
                if start < stop:
                    some = part.part(slice(start, stop))
                    path = live.extend(some.x, some.extra.get("y") if labelled else None, some.extra.get("row"))
                    _compare(some, p_values(path), path.log_value / LN10)


class _Blocks:
    """The roll-ups of the lowest level, computed from rows that come in order."""

    def __init__(self, kept: int) -> None:
        self.first = kept  # the first step that is stored; there may be none
        self.next = 1
        self.rollups: dict[int, tuple[Any, ...]] = {}
        self._rest = np.empty(0)
        self._any = False

    def add(self, row: Steps) -> None:
        """Add the steps of a row."""
        if not self._any:
            self.first, self.next, self._any = row.first, row.first, True
        values = np.concatenate([self._rest, row.log10])
        start, size = self.next - len(self._rest), rollups.BLOCK
        skipped = min(-(start - 1) % size, len(values))
        for first in range(skipped, len(values) - size + 1, size):
            self.rollups[start + first] = rollups.of_block(start + first, values[first : first + size])
        used = skipped + (len(values) - skipped) // size * size
        self._rest, self.next = values[used:], row.first + len(row.p)


def _combined(parts: dict[int, tuple[Any, ...]], size: int) -> dict[int, tuple[Any, ...]]:
    """Combine the roll-ups of one level into those of the next, where they are complete."""
    step, found = size // rollups.FACTOR, {}
    for first in (first for first in parts if first % size == 1):
        group = [parts.get(first + step * k) for k in range(rollups.FACTOR)]
        if None not in group:
            found[first] = rollups.combine(first, [row[1:] for row in group if row is not None])
    return found


def _compare(steps: Steps, p: Floats, log10: Floats) -> None:
    for name, stored, computed in (("p", steps.p, p), ("log10", steps.log10, log10)):
        different = stored.astype("<f8").view("<u8") != np.asarray(computed, "<f8").view("<u8")
        different &= ~(np.isnan(stored) & np.isnan(computed))
        if different.any():
            k = int(different.argmax())
            raise ValueError(
                f"{name} of step {steps.first + k} is {stored[k]!r}, but {computed[k]!r} when tested again"
            )


def _expected_schema() -> set[str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection)
        return {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
