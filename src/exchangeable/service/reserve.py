"""Disk space kept free, so that streams can be deleted and reset when the disk is full."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["Reserve"]
log: logging.Logger = logging.getLogger(__name__)


class Reserve:
    """A file beside the database that holds space; it is emptied for deletions when the disk is full.

    Until it is filled again, nothing that needs space is accepted.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size

    @property
    def filled(self) -> bool:
        """Whether the space is held."""
        if self.size == 0 or not self.path.exists():
            return self.size == 0
        found = self.path.stat()  # a copy of the file may have holes, which hold nothing
        return found.st_size >= self.size and found.st_blocks * 512 >= self.size

    def fill(self) -> bool:
        """Hold the space if there is enough; return whether it is held."""
        if self.filled:
            return True
        existed = self.path.exists()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        try:
            os.posix_fallocate(file, 0, self.size)
        except OSError:
            os.ftruncate(file, 0)
            if not existed:  # an empty file would mean that the reserve was used
                self.path.unlink()
            return False
        finally:
            os.close(file)
        return True

    def empty(self) -> None:
        """Give the space back to the disk."""
        log.warning("the disk is full: the space in reserve is used for deletions and resets")
        with suppress(OSError):
            os.truncate(self.path, 0)
