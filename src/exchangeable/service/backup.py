"""Backups of a database that is in use, and restoring them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from exchangeable.service.copying import Copied, Progress, copy_database, sync_folder
from exchangeable.service.store import FILES, StoreError, acquire_lock, give_to_owner
from exchangeable.service.verify import Report, verify

__all__ = ["Backup", "DamagedError", "backup", "restore"]


class DamagedError(Exception):
    """A database is damaged, so it is neither backed up nor restored; the message says what was found."""


class Backup(NamedTuple):
    """A verified copy."""

    copied: Copied
    report: Report


def backup(source: Path, target: Path, progress: Progress = lambda *_: None) -> Backup:
    """Copy the committed state of a database to a file, which is replaced only once its copy is complete and verified.

    The copy grows in ``<target>.part``. If it is killed, the next backup to the same target writes only the pages that
    this file lacks, or that have changed since.
    """
    if source.exists() and target.exists() and source.samefile(target):
        raise StoreError(f"the backup must be another file than the database, got {str(target)!r} for both")
    if target.is_dir():
        raise StoreError(f"the backup must be a file, got the folder {str(target)!r}: name a file in it")
    part = Path(f"{target}.part")
    with _working_on(source, part):
        made = _verified_copy(source, part, progress)
        part.replace(target)
        sync_folder(target.parent)
    return made


def _verified_copy(source: Path, part: Path, progress: Progress) -> Backup:
    size, found = source.stat().st_size, part.stat().st_size
    disk = os.statvfs(part.parent)
    if disk.f_bavail * disk.f_frsize < size - found:
        raise StoreError(f"the disk must have {size - found} free bytes for {str(part)!r}, got too little")
    copied = copy_database(source, part, progress)
    report = verify(part, progress=progress)
    if report.damage:
        more = f" and {len(report.damage) - 1} more" if len(report.damage) > 1 else ""
        raise DamagedError(f"{source} is damaged: {report.damage[0]}{more}; the copy is {part}")
    return Backup(copied, report)


@contextmanager
def _working_on(source: Path, part: Path) -> Iterator[None]:
    """Lock the file in which a copy grows; SQLite's locks are of another kind."""
    if not source.is_file():
        raise StoreError(f"database must be an existing file, got {str(source)!r}")
    try:
        existed = os.path.lexists(part)
        file = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
        if not existed:
            give_to_owner(part)
    except OSError as error:
        raise StoreError(
            f"the backup must be a file in a writable folder, got {str(part)!r}: {error.strerror}"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise StoreError(f"another backup is writing {str(part)!r}") from None
    try:
        yield
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()
        os.close(file)


def restore(source: Path, target: Path, progress: Progress = lambda *_: None) -> Path | None:
    """Replace a database that no server uses by a backup; return where the old database is now.

    The backup is verified first. The old files are renamed to ``<database>.before-<time>``, with their suffixes.
    """
    target = target.resolve()
    lock = acquire_lock(target)
    try:
        part = Path(f"{target}.part")
        with _working_on(source, part):
            _verified_copy(source, part, progress)
            aside = _move_aside(target)
            part.replace(target)
            sync_folder(target.parent)
    finally:
        os.close(lock)
    return aside


def _move_aside(path: Path) -> Path | None:
    """Rename the files of a database. A log without its database is moved, too: it must not meet the restored one."""
    aside = Path(f"{path}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    while aside.exists():
        aside = Path(f"{aside}-")
    found = [suffix for suffix in FILES if Path(f"{path}{suffix}").exists()]
    for suffix in found:
        Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    return aside if found else None
