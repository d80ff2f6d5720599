"""Bytes as they come, cut into lines; signals that end the reading; files that are taken up where they were left."""

from __future__ import annotations

import hashlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from exchangeable.data.events import LineError, Reader, UsageError

READ = 1 << 16  # bytes at a time: some thousand numbers, which are one batch
LINES = 4096  # at most in a block, so that a signal is answered soon
LONGEST = 16 << 20  # bytes in a line


class Stopped(Exception):  # noqa: N818
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """SIGINT and SIGTERM, noted and not obeyed at once, so that no example is left half done.

    The first wakes whoever waits for input; the second does not wait any longer, and raises ``Stopped``.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self.wake: int = -1
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self.wake, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self.wake)
        os.close(self._write)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise Stopped(number)
        self.caught = number


class Block(NamedTuple):
    """Whole lines, and the number of the first; ``open``: the last line has no end, since it is the last of all."""

    lines: list[bytes]
    first: int
    open: bool = False


class Place(NamedTuple):
    """How far a file has been read: bytes and lines, and the SHA-256 of these bytes."""

    offset: int
    lines: int
    sha256: str


class Source:
    """Where lines come from: standard input (``-``) or a file. What is there is taken at once, without waiting.

    A file that was read before is taken up at the place where it was left, if it still begins with the same bytes.
    """

    def __init__(self, path: str = "-", fd: int = 0) -> None:
        self.path: str | None = None if path == "-" else os.path.realpath(path)
        self._fd = fd if self.path is None else os.open(self.path, os.O_RDONLY)
        self._digest = hashlib.sha256()
        self._offset, self._line = 0, 0

    @property
    def place(self) -> Place:
        """Behind the last line that was taken."""
        return Place(self._offset, self._line, self._digest.hexdigest())

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.path is not None:
            os.close(self._fd)

    def resume(self, place: Place, reader: Reader) -> None:
        """Go to a place of the file where it was left; the reader is shown its first line."""
        begun = not place.offset
        parts: list[bytes] = []
        while self._offset < place.offset:
            data = os.read(self._fd, min(READ, place.offset - self._offset))
            if not data:
                break
            self._digest.update(data)
            self._offset, self._line = self._offset + len(data), self._line + data.count(b"\n")
            if not begun:
                parts.append(data)
                begun = _begin(b"".join(parts), reader)
        if self.place != place or not self._at_line_end():
            law = f"{shown(self.path)} must still begin with the {place.offset} bytes that were read before"
            raise UsageError(f"{law}; to watch it as new data use: exchangeable watch - < FILE")

    def _at_line_end(self) -> bool:
        """Was the last line whole? If it was the end of the file then, it may have been continued since."""
        size = os.fstat(self._fd).st_size
        around = os.pread(self._fd, 2, self._offset - 1) if self._offset else b"\n"
        return self._offset == size or b"\n" in around

    def blocks(self, signals: Signals, patience: float | None = None) -> Iterator[Block | None]:
        """What is there, as soon as there is something; None after ``patience`` seconds without any."""
        for data in self._reads(signals, patience):
            if data is None:
                yield None
                continue
            lines = data.split(b"\n")
            whole = data.endswith(b"\n")
            lines = lines[:-1] if whole else lines
            first = self._line + 1
            for lo in range(0, len(lines), LINES):
                if signals.caught is not None:
                    return
                yield Block(lines[lo : lo + LINES], first + lo, open=not whole and lo + LINES >= len(lines))

    def _reads(self, signals: Signals, patience: float | None) -> Iterator[bytes | None]:
        """Bytes up to the end of a line, or of all."""
        parts: list[bytes] = []
        while signals.caught is None:
            ready, _, _ = select.select([self._fd, signals.wake], [], [], patience)
            if signals.caught is None and not ready:
                yield None
            elif signals.caught is None:
                data = os.read(self._fd, READ)
                whole, newline, rest = data.rpartition(b"\n")
                if newline or (not data and any(parts)):
                    yield b"".join([*parts, whole, newline])
                    parts = []
                parts.append(rest)
                if not data:
                    return
                if sum(map(len, parts)) > LONGEST:
                    raise LineError(self._line + 1, f"a line must have at most {LONGEST} bytes")

    def taken(self, block: Block, before: int | None = None) -> None:
        """The lines of a block have been dealt with: all of them, or those before a line."""
        lines = block.lines if before is None else block.lines[: before - block.first]
        data = b"".join(line + b"\n" for line in lines)
        if block.open and len(lines) == len(block.lines):
            data = data[:-1]
        self._offset, self._line = self._offset + len(data), self._line + data.count(b"\n")
        if self.path is not None:
            self._digest.update(data)


def _begin(data: bytes, reader: Reader) -> bool:
    """Show the reader the first line that is not blank, if it is there."""
    for line in data.split(b"\n")[:-1]:
        if line.strip():
            reader.begin(line)
            return True
    return False


def shown(path: str | Path | None) -> str:
    """A path without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))
