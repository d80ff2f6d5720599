"""The database: one SQLite file in WAL mode, written by one process, every commit on disk before it is answered."""

from __future__ import annotations

import fcntl
import json
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from exchangeable.late_labels import LeftOut

APPLICATION = 0x45584348  # "EXCH": tells our files from other SQLite databases
IDLE = 8  # connections for readers that are kept open
LOG_BYTES = 64 << 20  # what the log may keep of the disk after it was longer
WAIT = 5.0  # seconds that a statement waits for another process, such as `exchangeable token`

FIRST = """
CREATE TABLE streams(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, configuration TEXT NOT NULL, kinds TEXT NOT NULL,
  created REAL NOT NULL, state TEXT NOT NULL, observed_at REAL, next_seq INTEGER NOT NULL, n INTEGER NOT NULL,
  since INTEGER NOT NULL, resets INTEGER NOT NULL, waiting INTEGER NOT NULL, expired INTEGER NOT NULL,
  observations INTEGER NOT NULL, duplicates INTEGER NOT NULL, alarms INTEGER NOT NULL, alarm INTEGER NOT NULL,
  log10 REAL NOT NULL, carried REAL NOT NULL, total REAL NOT NULL, peak REAL NOT NULL, histogram BLOB NOT NULL,
  kept INTEGER NOT NULL) STRICT;
CREATE INDEX streams_by_alarm ON streams(alarm DESC, log10 DESC, name);
CREATE TABLE steps(
  stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, p BLOB NOT NULL, log10 BLOB NOT NULL,
  seq BLOB, x BLOB NOT NULL, extra TEXT) STRICT;
CREATE UNIQUE INDEX steps_by_n ON steps(stream, first);
CREATE TABLE rollups(
  stream INTEGER NOT NULL, level INTEGER NOT NULL, first INTEGER NOT NULL, low REAL NOT NULL, low_at INTEGER NOT NULL,
  high REAL NOT NULL, high_at INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY(stream, level, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE marks(
  stream INTEGER NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL, changepoint INTEGER, time REAL NOT NULL) STRICT;
CREATE INDEX marks_by_n ON marks(stream, n);
CREATE TABLE snapshots(
  stream INTEGER NOT NULL, part INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(stream, part)
) STRICT;
CREATE TABLE waiting(
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, y TEXT, PRIMARY KEY(stream, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waiting_by_id ON waiting(stream, id);
CREATE TABLE labels(
  stream INTEGER NOT NULL, id TEXT NOT NULL, y TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(stream, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_seq ON labels(stream, seq);
CREATE TABLE expired(
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, PRIMARY KEY(stream, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX expired_by_id ON expired(stream, id);
CREATE TABLE outbox(
  id INTEGER PRIMARY KEY, created REAL NOT NULL, receiver TEXT NOT NULL, stream TEXT NOT NULL, status TEXT NOT NULL,
  fingerprint TEXT NOT NULL, alert TEXT NOT NULL, attempts INTEGER NOT NULL, state TEXT NOT NULL, error TEXT) STRICT;
CREATE INDEX outbox_by_state ON outbox(state, receiver, stream, id);
CREATE INDEX outbox_by_fingerprint ON outbox(fingerprint, status, id);
CREATE TABLE tokens(
  id TEXT PRIMARY KEY, digest BLOB NOT NULL, scopes TEXT NOT NULL, note TEXT NOT NULL, created REAL NOT NULL,
  revoked REAL) STRICT, WITHOUT ROWID;
"""
# Ids increase with creation and are reused only at the top, so gaps below the highest id are deleted streams. Others
# that were deleted earlier, and tests of reused names, left no trace: ``complete`` is 0.
FLEET = """
CREATE TABLE fleet(joined INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, tests INTEGER NOT NULL) STRICT;
CREATE TABLE fleet_rule(size INTEGER, complete INTEGER NOT NULL) STRICT;
INSERT INTO fleet SELECT id, name, 0 FROM streams;
INSERT INTO fleet_rule SELECT NULL, count(*) = 0 FROM streams;
"""
LATE_LABELS = """
ALTER TABLE streams ADD COLUMN clock REAL;
ALTER TABLE streams ADD COLUMN left_out TEXT NOT NULL DEFAULT '{}';
ALTER TABLE waiting ADD COLUMN time REAL;
ALTER TABLE expired ADD COLUMN time REAL;
ALTER TABLE expired ADD COLUMN y TEXT;
"""


def _late_labels(connection: sqlite3.Connection) -> None:
    """The wait for labels becomes a time. It was a number of observations, which is now the most that may wait."""
    for statement in filter(str.strip, LATE_LABELS.split(";")):
        connection.execute(statement)
    streams = connection.execute("SELECT id, expired FROM streams").fetchall()
    for stream, expired in streams:
        row = connection.execute("SELECT configuration, state FROM streams WHERE id = ?", (stream,)).fetchone()
        configuration, state = map(json.loads, row)
        most = configuration["labels"]["wait"]
        most = 10_000 if most == 1000 else most  # the defaults of this version and of the earlier one
        configuration["labels"] = {"wait": "forever", "clock": "client", "most": most}
        left_out = LeftOut(expired=expired, crowded=expired)
        state["guarantee"] = left_out.guarantee(state["guarantee"], math.inf)
        texts = json.dumps(configuration, sort_keys=True, separators=(",", ":")), json.dumps(state)
        connection.execute(
            "UPDATE streams SET configuration = ?, state = ?, left_out = ? WHERE id = ?",
            (*texts, json.dumps(asdict(left_out)), stream),
        )


STATES = ""  # of exchangeable 0.2: the tables stay, the states in snapshots are those of the compiled kernels
# Entry k leads from version k to k + 1.
MIGRATIONS: Sequence[str | Callable[[sqlite3.Connection], None]] = (FIRST, _late_labels, FLEET, STATES)
OLDEST = 4  # schema versions before this one hold states of exchangeable 0.1, which cannot be continued
PER_STREAM = ("steps", "rollups", "marks", "snapshots", "waiting", "labels", "expired")


class StoreError(Exception):
    """The database cannot be used; the message says why in one sentence."""


def open_database(path: Path | str) -> sqlite3.Connection:
    """A connection for writing; the file is made (for the owner's eyes only) or brought to the newest version.

    A file that is no database of ours, that is damaged, or that a newer version or one before 0.2 has written, is
    refused unchanged.
    """
    if str(path) != ":memory:":
        _make(Path(path))
    try:
        connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    try:
        _ours(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        migrate(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _unreadable(path, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _unreadable(path: Path | str, why: object) -> StoreError:
    return StoreError(f"database must be a readable SQLite file, got {str(path)!r}: {why}")


def _make(path: Path) -> None:
    """Make the file if there is none. One that is there is not opened: closing it again would drop SQLite's locks."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"database must be a file that can be written, got {str(path)!r}: {error.strerror}") from error


def _ours(connection: sqlite3.Connection, path: Path | str) -> None:
    application, version, tables = (
        connection.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if tables and application != APPLICATION:
        raise StoreError(f"database must be one of exchangeable's, got {str(path)!r}, which belongs to something else")
    if version > len(MIGRATIONS):
        law = f"database must have schema version {len(MIGRATIONS)} or older"
        raise StoreError(f"{law}, got version {version} in {str(path)!r}: it was written by a newer release")
    if tables and version < OLDEST:
        law = f"database must have schema version {OLDEST} or newer"
        cure = "it was written before exchangeable 0.2, which can export its history; start with a new database"
        raise StoreError(f"{law}, got version {version} in {str(path)!r}: {cure}")
    if str(path) != ":memory:" and not _size(f"{path}-wal"):
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if _size(path) != pages * size:
            raise _unreadable(path, "it is cut short")


def _size(path: Path | str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def migrate(connection: sqlite3.Connection) -> int:
    """Bring the schema forward, all steps in one transaction; the version reached."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS):
        return len(MIGRATIONS)  # nothing is written: a full disk does not keep the server from starting
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for step in MIGRATIONS[version:]:
            if callable(step):
                step(connection)
            else:
                for statement in filter(str.strip, step.split(";")):
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(MIGRATIONS)


class Store:
    """The one writer of a database, and readers beside it that never wait for it.

    Holds a lock on ``<database>.lock`` as long as it lives: a second process on the same file is refused.
    """

    def __init__(self, path: Path | str) -> None:
        self.path: Path = Path(path).resolve()  # one file has one lock, whatever links lead to it
        self._lock = _locked(self.path)
        try:
            self._writer = open_database(self.path)
        except BaseException:
            os.close(self._lock)
            raise
        self._readers: list[sqlite3.Connection] = []  # that nobody uses just now
        self._guard = threading.Lock()
        self._closed = self._lost = False

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed and on disk at the end, or undone."""
        if self._lost:
            self._writer, self._lost = open_database(self.path), False
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:  # a connection that cannot even undo: the next one starts from what is committed
            self._lost = True
            self._writer.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one committed state and cannot write; for one thread at a time."""
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            self._done(connection)

    def _reader(self) -> sqlite3.Connection:
        with self._guard:
            if self._closed:
                raise StoreError("the database is closed")
            if self._readers:
                return self._readers.pop()
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=ro", uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _done(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            return
        with self._guard:
            if not self._closed and len(self._readers) < IDLE:
                self._readers.append(connection)
                return
        connection.close()

    def bytes(self) -> int:
        """The size of the database and its log."""
        return sum(_size(f"{self.path}{ending}") for ending in ("", "-wal"))

    def room(self) -> int:
        """How many more bytes the disk can take."""
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        """Give up all connections and the lock."""
        with self._guard:
            self._closed = True
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        self._writer.close()
        os.close(self._lock)


def _locked(path: Path) -> int:
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"database must lie in a folder that can be written, got {str(path)!r}: {error.strerror}"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(
            f"database must be served by one process, got {str(path)!r}, which another one serves"
        ) from error
    return lock
