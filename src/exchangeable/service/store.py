"""The database: one SQLite file in WAL mode, written by one process. A commit is on disk when it returns."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exchangeable.service import schema

IDLE_READERS = 8  # connections for reading that are kept open
LOG_BYTES = 64 << 20  # size to which the write-ahead log is truncated
LOCK_TIMEOUT = 5.0  # seconds that a statement waits for another process, such as `exchangeable token`


class StoreError(Exception):
    """The database cannot be used; the message says why."""


def open_database(path: Path | str) -> sqlite3.Connection:
    """Open a connection for writing. Create the file, readable by its owner only, or migrate it if necessary.

    Raises `StoreError`, and leaves the file unchanged, if it is damaged, belongs to another application, or was written
    by a newer release or by one before 0.2.
    """
    if str(path) != ":memory:":
        _create_file(Path(path))
    try:
        connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    try:
        _check_file(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        schema.migrate(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _unreadable(path, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _unreadable(path: Path | str, why: object) -> StoreError:
    return StoreError(f"database must be a readable SQLite file, got {str(path)!r}: {why}")


def _create_file(path: Path) -> None:
    """Create the file if it does not exist. An existing one is not opened: closing it would drop SQLite's locks."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"database must be a writable file, got {str(path)!r}: {error.strerror}") from error


def _check_file(connection: sqlite3.Connection, path: Path | str) -> None:
    application, version, tables = (
        connection.execute(query).fetchone()[0]
        for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if tables and application != schema.APPLICATION:
        raise StoreError(
            f"database must be an exchangeable database, got {str(path)!r}, which belongs to another application"
        )
    newest, oldest = schema.newest_version(), schema.FIRST_VERSION
    got = f"got version {version} in {str(path)!r}"
    if version > newest:
        rule = f"database must have schema version {newest} or older"
        raise StoreError(f"{rule}, {got}: it was written by a newer release")
    if tables and version < oldest:
        rule = f"database must have schema version {oldest} or newer"
        advice = "it was written before exchangeable 0.2, which can export its history; start with a new database"
        raise StoreError(f"{rule}, {got}: {advice}")
    if str(path) != ":memory:" and not _size(f"{path}-wal"):
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        if _size(path) != pages * size:
            raise _unreadable(path, "it is truncated")


def _size(path: Path | str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


class Store:
    """The only writer of a database, and any number of readers, which never wait for it.

    It locks ``<database>.lock`` until it is closed, so that no second process serves the same file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path: Path = Path(path).resolve()  # one file has one lock, even if there are links to it
        self._lock = _acquire_lock(self.path)
        try:
            self._writer = open_database(self.path)
        except BaseException:
            os.close(self._lock)
            raise
        self._readers: list[sqlite3.Connection] = []  # idle ones
        self._guard = threading.Lock()
        self._closed = self._lost = False

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction. It is committed, and on disk, at the end of the block, or rolled back if it raises."""
        if self._lost:
            self._writer, self._lost = open_database(self.path), False
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        try:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error:  # the next transaction opens a new connection, which sees what is committed
            self._lost = True
            self._writer.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Open a read-only connection that sees one committed state, for one thread at a time."""
        connection = self._reader()
        try:
            connection.execute("BEGIN")
            yield connection
        finally:
            self._release(connection)

    def _reader(self) -> sqlite3.Connection:
        with self._guard:
            if self._closed:
                raise StoreError("the database is closed")
            if self._readers:
                return self._readers.pop()
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode=ro",
            uri=True,
            timeout=LOCK_TIMEOUT,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("PRAGMA query_only = ON")
        return connection

    def _release(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            return
        with self._guard:
            if not self._closed and len(self._readers) < IDLE_READERS:
                self._readers.append(connection)
                return
        connection.close()

    def bytes(self) -> int:
        """Return the size of the database and its log."""
        return sum(_size(f"{self.path}{suffix}") for suffix in ("", "-wal"))

    def free_bytes(self) -> int:
        """Return the free space on the disk."""
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def close(self) -> None:
        """Close all connections and release the lock."""
        with self._guard:
            self._closed = True
            for connection in self._readers:
                connection.close()
            self._readers.clear()
        self._writer.close()
        os.close(self._lock)


def _acquire_lock(path: Path) -> int:
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(f"database must be in a writable folder, got {str(path)!r}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StoreError(
            f"database must be served by one process, got {str(path)!r}, which another process serves"
        ) from error
    return lock
