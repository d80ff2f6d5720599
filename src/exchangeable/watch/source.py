"""Input of a watch: bytes cut into lines as they arrive, signals that end the reading, and files that are resumed."""

from __future__ import annotations

import hashlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Protocol

from exchangeable.data.events.errors import LineError, UsageError
from exchangeable.validation import printable

READ_BYTES = 1 << 16  # bytes at a time: a few thousand numbers, which form one batch
BLOCK_LINES = 4096  # at most in a block, so that a signal is handled soon
MAX_LINE_BYTES = 16 << 20


class Stopped(Exception):  # noqa: N818
    """A signal asked the watch to stop; ``number`` is the signal number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Records SIGINT and SIGTERM, so that the watch stops between two examples, never within one.

    The first signal interrupts the wait for input. The second one raises ``Stopped`` at once.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self.wake: int = -1
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self.wake, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._record) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd)
        os.close(self.wake)
        os.close(self._write)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.caught is not None:
            raise Stopped(number)
        self.caught = number


class LineReader(Protocol):
    """What reads the lines: ``columns`` are the names of the features that it has chosen, which the state keeps."""

    columns: list[str] | None

    def start(self, line: bytes) -> bool:
        """Detect the format from the first line that is not blank, and return whether this line is a header."""
        ...


class Block(NamedTuple):
    """Complete lines and the number of the first. ``open``: the input ended without a newline after the last one."""

    lines: list[bytes]
    first: int
    open: bool = False


class Position(NamedTuple):
    """How far a file has been read: bytes and lines, and the SHA-256 of these bytes."""

    offset: int
    lines: int
    sha256: str


class Source:
    """The input: standard input (``-``) or a file. Available lines are returned at once, without waiting for more.

    A file that was read before is resumed at its last position, if it still starts with the same bytes.
    """

    def __init__(self, path: str = "-", fd: int = 0) -> None:
        self.path: str | None = None if path == "-" else os.path.realpath(path)
        self._fd = fd if self.path is None else os.open(self.path, os.O_RDONLY)
        self._digest = hashlib.sha256()
        self._offset, self._line = 0, 0

    @property
    def position(self) -> Position:
        """The position after the last line that was processed."""
        return Position(self._offset, self._line, self._digest.hexdigest())

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.path is not None:
            os.close(self._fd)

    def resume(self, position: Position, reader: LineReader) -> None:
        """Go to the position where reading ended before; the reader is started with the first line of the file."""
        started = not position.offset
        parts: list[bytes] = []
        while self._offset < position.offset:
            data = os.read(self._fd, min(READ_BYTES, position.offset - self._offset))
            if not data:
                break
            self._advance(data)
            if not started:
                parts.append(data)
                started = _start(b"".join(parts), reader)
        if self.position != position or not self._at_line_end():
            rule = f"{printable(self.path)} must still start with the {position.offset} bytes that were read before"
            raise UsageError(f"{rule}; to watch it as new data use: exchangeable watch - < FILE")

    def _at_line_end(self) -> bool:
        """Return whether the last line was complete; if it ended the file, more may have been appended to it since."""
        size = os.fstat(self._fd).st_size
        around = os.pread(self._fd, 2, self._offset - 1) if self._offset else b"\n"
        return self._offset == size or b"\n" in around

    def blocks(self, signals: Signals, patience: float | None = None) -> Iterator[Block | None]:
        """Yield blocks of lines as soon as they are available, and None after ``patience`` seconds without input."""
        for data in self._read_lines(signals, patience):
            if data is None:
                yield None
                continue
            lines = data.split(b"\n")
            complete = data.endswith(b"\n")
            lines = lines[:-1] if complete else lines
            first = self._line + 1
            for lo in range(0, len(lines), BLOCK_LINES):
                if signals.caught is not None:
                    return
                yield Block(
                    lines[lo : lo + BLOCK_LINES], first + lo, open=not complete and lo + BLOCK_LINES >= len(lines)
                )

    def _read_lines(self, signals: Signals, patience: float | None) -> Iterator[bytes | None]:
        """Yield bytes up to the end of a line, or of the input."""
        parts: list[bytes] = []
        while signals.caught is None:
            ready, _, _ = select.select([self._fd, signals.wake], [], [], patience)
            if signals.caught is None and not ready:
                yield None
            elif signals.caught is None:
                data = os.read(self._fd, READ_BYTES)
                complete, newline, rest = data.rpartition(b"\n")
                if newline or (not data and any(parts)):
                    yield b"".join([*parts, complete, newline])
                    parts = []
                parts.append(rest)
                if not data:
                    return
                if sum(map(len, parts)) > MAX_LINE_BYTES:
                    raise LineError(self._line + 1, f"a line must have at most {MAX_LINE_BYTES} bytes")

    def mark_processed(self, block: Block, before: int | None = None) -> None:
        """Move the position past the lines of a block, or past those before a line number."""
        lines = block.lines if before is None else block.lines[: before - block.first]
        data = b"".join(line + b"\n" for line in lines)
        if block.open and len(lines) == len(block.lines):
            data = data[:-1]
        self._advance(data)

    def _advance(self, data: bytes) -> None:
        self._offset, self._line = self._offset + len(data), self._line + data.count(b"\n")
        if self.path is not None:
            self._digest.update(data)


def _start(data: bytes, reader: LineReader) -> bool:
    """Start the reader with the first line that is not blank; return whether there is one."""
    for line in data.split(b"\n")[:-1]:
        if line.strip():
            reader.start(line)
            return True
    return False
