"""The database: one SQLite file in WAL mode, written by one process. A commit is on disk when it returns."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from exchangeable.service import checksums, copying, schema

log: logging.Logger = logging.getLogger(__name__)

IDLE_READERS = 8  # connections for reading that are kept open
LOG_BYTES = 64 << 20  # size to which the write-ahead log is truncated
LOCK_TIMEOUT = 5.0  # seconds that a statement waits for another process, such as `exchangeable token`
FILES = ("", "-wal", "-shm")  # the suffixes of the files of a database
EXCESS_PAGES = 1024  # new steps soon use so many free pages
SPARE_BYTES = 16 << 20  # of free disk space beyond what a migration needs
# Queries find rows of these tables by their indexes, which have no checksums; they are small, so their structure is
# checked at each start. That of the others is known from these: each stream says which steps it has.
CHECKED_AT_START = ("streams", "rollups", "marks", "evidence", "fleet", "fleet_rule", "tokens")


class StoreError(Exception):
    """The database cannot be used; the message says why."""


class FilesReplacedError(sqlite3.OperationalError):
    """Another program removed or replaced the files of the database under the server."""


def open_database(path: Path | str, timeout: float = LOCK_TIMEOUT, *, migrate: bool = False) -> sqlite3.Connection:
    """Open a connection for writing. Create the file, readable by its owner only, if necessary.

    With ``migrate``, a database of an earlier release is migrated; no other process may use it then. Raises
    `StoreError`, and leaves the file unchanged, if it must not be migrated, is damaged, belongs to another
    application, or was written by a newer release or by one before 0.2.
    """
    if str(path) != ":memory:":
        _create_file(Path(path))
    try:
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    try:
        check_file(connection, path)
        before = schema.version(connection)
        if before and not migrate and before != schema.newest_version():
            rule = f"database must have schema version {schema.newest_version()}, got version {before} in {str(path)!r}"
            raise StoreError(f"{rule}: stop its server, then start `exchangeable serve` of this release to migrate it")
        if not connection.execute("PRAGMA page_count").fetchone()[0]:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        connection.execute("PRAGMA secure_delete = FAST")  # else every page that a deletion frees is written
        schema.migrate(connection)
        if before and before != schema.newest_version():
            _let_shrink(connection, path)
        checksums.install(connection)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise _unreadable(path, error) from error
    except StoreError:
        connection.close()
        raise
    return connection


def _let_shrink(connection: sqlite3.Connection, path: Path | str) -> None:
    """Let a migrated database give free pages back to the disk: releases before 0.2 could not."""
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:  # nothing has changed
        log.warning("%s cannot give space back to the disk until `VACUUM` succeeds: %s", path, error)


def _check_copy(path: Path) -> None:
    with closing(copying.read_only(path)) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        checksums.install(connection)
        damaged = (row for table in checksums.tables(connection) for row in checksums.check_rows(connection, table))
        if found != "ok" or any(row is not None for row in damaged):
            raise StoreError(f"the database is damaged, so it is not migrated; a copy is {path}: {checksums.ADVICE}")


def earlier_version(path: Path) -> int | None:
    """Return the schema version of a database that has to be migrated; None if there is nothing to migrate."""
    if not _size(path):
        return None
    try:
        with closing(copying.read_only(path, LOCK_TIMEOUT)) as connection:
            check_file(connection, path)
            version = schema.version(connection)
    except (StoreError, sqlite3.Error):  # opening it for writing will say why
        return None
    return version if 0 < version < schema.newest_version() else None


def _unreadable(path: Path | str, why: object) -> StoreError:
    return StoreError(f"database must be a readable SQLite file, got {str(path)!r}: {why}")


def _create_file(path: Path) -> None:
    """Create the file if it does not exist. An existing one is not opened: closing it would drop SQLite's locks."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        give_to_owner(path)
    except FileExistsError:
        return
    except OSError as error:
        raise StoreError(f"database must be a writable file, got {str(path)!r}: {error.strerror}") from error


def give_to_owner(path: Path | str) -> None:
    """Give a file that root has just created to the owner of its folder: the server, another user, must open it."""
    if os.geteuid() == 0:
        folder = os.stat(Path(path).absolute().parent)
        with suppress(PermissionError):  # in a sandbox, where root may not give files away
            os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def check_file(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raise `StoreError` unless a file is a database of a version that this release reads or migrates."""
    queries = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    try:
        application, version, tables = (connection.execute(query).fetchone()[0] for query in queries)
    except UnicodeDecodeError as error:  # SQLite's message quotes the damaged schema
        raise _unreadable(path, "its schema is damaged") from error
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
        advice = "it was written by an earlier release, which can export its history; start with a new database"
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
        self._lock = acquire_lock(self.path)
        try:
            self._keep_copy(earlier_version(self.path))
            self._writer = open_database(self.path, migrate=True)
            self._shrinks: bool = self._writer.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
            self._check_structure()
        except BaseException:
            os.close(self._lock)
            raise
        self._files: tuple[tuple[int, int] | None, ...] = ()  # those that are open, once there was a transaction
        self._replaced: str | None = None  # why nothing more can be written
        self._readers: list[sqlite3.Connection] = []  # idle ones
        self._guard = threading.Lock()
        self._closed = self._lost = False

    def _keep_copy(self, version: int | None) -> None:
        """Copy a database before it is migrated, to ``<database>.v<version>``."""
        if version is None:
            return
        copy, size = Path(f"{self.path}.v{version}"), self.bytes()
        if self.free_bytes() < 2 * size + SPARE_BYTES:
            rule = f"the disk must have {2 * size + SPARE_BYTES} free bytes to migrate {str(self.path)!r}"
            raise StoreError(f"{rule} and to keep a copy of it, got {self.free_bytes()}; the database is unchanged")
        part = Path(f"{copy}.part")
        copying.copy_database(self.path, part)
        _check_copy(part)  # a migration computes the checksums again, so they must be right before it
        part.replace(copy)
        copying.sync_folder(copy.parent)
        log.warning("the database of schema version %d is kept as %s", version, copy)

    def _check_structure(self) -> None:
        try:
            queries = (f"PRAGMA main.integrity_check({table})" for table in CHECKED_AT_START)
            found = next((row[0] for one in queries for row in self._writer.execute(one) if row[0] != "ok"), None)
        except sqlite3.DatabaseError as error:
            found = error
        if found is not None:
            self._writer.close()
            raise StoreError(f"the database {str(self.path)!r} is damaged ({found}): {checksums.ADVICE}")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction. It is committed, and on disk, at the end of the block, or rolled back if it raises.

        A commit to files that another program has removed or replaced would be lost, so it raises, too.
        """
        self._check_files()
        if self._lost:
            self._writer, self._lost, self._files = open_database(self.path), False, ()
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            self._files = self._files or _identities(self.path)
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            self._rollback()
            raise
        self._check_files()

    @property
    def in_place(self) -> bool:
        """Whether the files that are open are still those at the path of the database."""
        return self._replaced is None and self._files in ((), _identities(self.path))

    def _check_files(self) -> None:
        """Raise if the files have been removed or replaced; the first time, save what only the open ones hold."""
        if self.in_place:
            return
        if self._replaced is None:
            self._replaced = "the database files were removed or replaced while the server was running"
            log.critical("%s, so nothing more is accepted: %s", self._replaced, self._save_committed())
        raise FilesReplacedError(f"{self._replaced}; see the server's log")

    def _save_committed(self) -> str:
        """Save the committed state, which may be in deleted files only; return what to do next."""
        saved = Path(f"{self.path}.saved-{time.time_ns()}")
        try:
            if self._files[0] == _identity(self.path) and not _size(f"{self.path}-wal"):  # nobody else can have written
                with suppress(sqlite3.Error):
                    _, frames, moved = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    if frames == moved:
                        return "the database file has all that was acknowledged: stop the server and start it again"
            with closing(sqlite3.connect(saved)) as copy:
                self._writer.backup(copy)
        except sqlite3.Error as error:
            return f"what was acknowledged could not be saved ({error}): restore a backup"
        return f"stop the server; `exchangeable restore` the file {saved}, which has all that was acknowledged"

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
        except sqlite3.Error as error:
            raise checksums.damage(connection, error) from error
        finally:
            self._release(connection)

    def _reader(self) -> sqlite3.Connection:
        with self._guard:
            if self._closed:
                raise StoreError("the database is closed")
            if self._readers:
                return self._readers.pop()
        if not self.in_place:
            raise FilesReplacedError("the database files were removed or replaced; see the server's log")
        connection = copying.read_only(self.path, LOCK_TIMEOUT)
        checksums.install(connection)
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

    def checkpoint(self) -> None:
        """Move the log into the database and truncate it, as far as readers allow; only between transactions."""
        self._writer.execute("PRAGMA busy_timeout = 0")  # rather than wait for readers
        try:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            self._writer.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT * 1000:.0f}")

    def shrink(self, most: int) -> tuple[int, int]:
        """Give at most so many free pages back to the disk; return how many were free before and after."""
        self._check_files()
        before = pages(self._writer)[1]
        self._writer.executescript(f"PRAGMA incremental_vacuum({most})")  # `execute` would give back a single page
        return before, pages(self._writer)[1]

    def has_excess(self) -> bool:
        """Return whether so many pages are free, after old steps were pruned, that the disk should get them back."""
        count, free, _ = pages(self._writer) if self._shrinks else (0, 0, 0)
        return free > max(EXCESS_PAGES, count // 8)

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


def _identities(path: Path) -> tuple[tuple[int, int] | None, ...]:
    return tuple(_identity(f"{path}{suffix}") for suffix in FILES)


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def pages(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return how many pages the database has, how many of them are free, and the bytes of a page. O(1)."""
    names = ("page_count", "freelist_count", "page_size")
    count, free, size = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return count, free, size


def acquire_lock(path: Path) -> int:
    """Lock a database for this process, and return the file to close; raise `StoreError` if another one serves it."""
    try:
        existed = os.path.lexists(f"{path}.lock")
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if not existed:
            give_to_owner(f"{path}.lock")
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
