"""Copies of a database while a server writes to it: one committed state, page by page.

SQLite's own backup starts again whenever another connection commits, and a copy that was killed is lost. Here a read
transaction protects the state: as long as it is open, no checkpoint changes the database file beyond it. So the newest
version of a page is in the write-ahead log, up to the last commit that its index (``-shm``) names, or in the file. Both
formats are documented at https://sqlite.org/fileformat2.html and https://sqlite.org/walformat.html. A page that the
target already has is not written, so that a second run continues where the first was killed. What SQLite makes of the
copy is for the caller to verify.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["Copied", "Progress", "copy_database", "read_only", "sync_folder"]
Progress = Callable[[str, int, int], None]
ATTEMPTS = 5  # to read a log that is started again meanwhile
CHUNK = 256  # pages that are compared and written at a time
LOG_HEADER, FRAME_HEADER, INDEX_HEADER = 32, 24, 48  # bytes


class Copied(NamedTuple):
    """How many pages a copy has, and how many of them had to be written."""

    pages: int
    written: int


class _Log(NamedTuple):
    """The committed part of a write-ahead log."""

    salts: bytes  # of the current pass over the log; a frame with others was overwritten
    frames: dict[int, int]  # for each page, the offset of its newest frame
    pages: int  # of the database after the last commit


class _RestartedError(Exception):
    """The log was started again while it was read, which happens at most once in a read transaction."""


def read_only(path: Path, timeout: float = 60.0) -> sqlite3.Connection:
    """Open a connection that cannot change the database."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def copy_database(source: Path, target: Path, progress: Progress = lambda name, done, total: None) -> Copied:
    """Make a file equal to the committed state of a database, as a database without a log, and sync it."""
    with ExitStack() as files:  # closing a file drops the locks of this process on it, so they outlive the connection
        data = files.enter_context(source.open("rb"))
        copy = files.enter_context(os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT, 0o600), "r+b"))
        with closing(read_only(source)) as connection:
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the transaction starts here
            count, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
            paths = [path for path in (Path(f"{source}-wal"), Path(f"{source}-shm")) if path.exists()]
            opened = [files.enter_context(path.open("rb")).fileno() for path in paths]
            for _ in range(ATTEMPTS):
                with suppress(_RestartedError):
                    log = _read_log(opened[0], opened[1], size) if len(opened) == 2 else None
                    reader = _Reader(data.fileno(), opened[:1], log or _Log(b"", {}, count), size)
                    copied = _copy(reader, copy.fileno(), progress)
                    os.fsync(copy.fileno())
                    return copied
    raise sqlite3.DatabaseError(f"the log {source}-wal does not match its index")


def _read_log(log: int, index: int, size: int) -> _Log | None:
    """Return where the newest committed version of each page is in the log; None if the log holds none."""
    head = os.pread(index, INDEX_HEADER, 0)
    while head != os.pread(index, INDEX_HEADER, INDEX_HEADER):  # its two copies differ while a commit writes them
        head = os.pread(index, INDEX_HEADER, 0)
    last, pages = struct.unpack_from("=II", head, 16)
    salts, frames = head[32:40], {}
    for offset in range(LOG_HEADER, LOG_HEADER + last * (FRAME_HEADER + size), FRAME_HEADER + size):
        frame = os.pread(log, FRAME_HEADER, offset)
        if frame[8:16] != salts:
            raise _RestartedError
        frames[int.from_bytes(frame[:4], "big")] = offset
    return _Log(salts, frames, pages) if last else None


class _Reader(NamedTuple):
    """Reads the pages of one committed state."""

    data: int
    log_file: list[int]
    log: _Log
    size: int

    def read(self, first: int, stop: int) -> bytes:
        """Return the pages ``first`` to ``stop - 1``, counted from 1."""
        pages = bytearray(os.pread(self.data, (stop - first) * self.size, (first - 1) * self.size))
        pages.extend(bytes((stop - first) * self.size - len(pages)))  # these are in the log
        for number in range(first, stop):
            if number in self.log.frames:
                pages[(number - first) * self.size : (number - first + 1) * self.size] = self._frame(number)
        if first == 1:
            pages[18:20] = b"\x01\x01"  # the copy has no log
        return bytes(pages)

    def _frame(self, number: int) -> bytes:
        offset = self.log.frames[number]
        page = os.pread(self.log_file[0], self.size, offset + FRAME_HEADER)
        if os.pread(self.log_file[0], FRAME_HEADER, offset)[8:16] != self.log.salts:  # the header is written first
            raise _RestartedError
        return page


def _copy(reader: _Reader, target: int, progress: Progress) -> Copied:
    total, size, written = reader.log.pages, reader.size, 0
    for first in range(1, total + 1, CHUNK):
        stop = min(first + CHUNK, total + 1)
        pages, before = reader.read(first, stop), os.pread(target, (stop - first) * size, (first - 1) * size)
        for start in range(0, len(pages), size):
            page = pages[start : start + size]
            if page != before[start : start + size]:
                os.pwrite(target, page, (first - 1) * size + start)
                written += 1
        progress("copying", stop - 1, total)
    os.ftruncate(target, total * size)
    return Copied(total, written)


def sync_folder(path: Path) -> None:
    """Make the names of the files in a folder durable."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
