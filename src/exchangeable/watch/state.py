"""The state file of a watch: the monitor, the options it was built with, and how far files have been read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from exchangeable.data.events.errors import UsageError
from exchangeable.tracker import Tracker
from exchangeable.validation import printable
from exchangeable.watch.source import LineReader, Position, Source

KIND = "exchangeable watch"
VERSION = 5  # earlier versions hold snapshots that cannot be loaded


class StateError(Exception):
    """The state file cannot be used."""


class StateFile:
    """A state file, used by one process at a time: a lock on ``<file>.lock`` excludes others.

    ``configuration`` holds the options that define the monitor; a state with other options is rejected. For the options
    named in ``free``, which the user omitted, the stored values are used. The first line of the file is JSON
    (configuration, columns, positions in files); a snapshot of the monitor follows. The file is replaced atomically, so
    a reader sees either the old state or the new one. O(size of the monitor).
    """

    def __init__(self, path: Path, configuration: Mapping[str, Any], *, free: Collection[str] = ()) -> None:
        self.path = path
        self.configuration: dict[str, Any] = dict(configuration)
        self.free = free
        self._positions: dict[str, Position] = {}

    def __enter__(self) -> StateFile:
        self._lock = _lock(self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)

    def load(self, kinds: tuple[type[Tracker], ...], reader: LineReader | None = None) -> Any:
        """Return the saved monitor, which must be of one of these kinds; None if there is no file.

        The reader gets the saved columns.
        """
        try:
            head, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        record = self._record(head)
        self._check(record["configuration"])
        self._positions = {path: Position(*position) for path, position in record["files"].items()}
        if reader is not None:
            reader.columns = reader.columns or record["columns"]
        return self._monitor(body, kinds)

    def resume(self, source: Source, reader: LineReader) -> None:
        """Continue a file where reading ended, if it was read before."""
        if source.path in self._positions:
            source.resume(self._positions[source.path], reader)

    def save(self, monitor: Tracker, columns: list[str] | None, source: Source) -> None:
        """Replace the file. The new state is on disk when this returns."""
        from exchangeable import snapshot

        if source.path is not None:
            self._positions[source.path] = source.position
        record = {
            "kind": KIND,
            "version": VERSION,
            "configuration": self.configuration,
            "columns": columns,
            "files": self._positions,
            "n": monitor.n,
        }
        _replace(self.path, json.dumps(record).encode("ascii") + b"\n" + snapshot.encode(monitor))

    def _record(self, head: bytes) -> dict[str, Any]:
        try:
            record = json.loads(head)
            known = record["kind"] == KIND
        except (ValueError, RecursionError, TypeError, KeyError):
            known = False
        if not known:
            raise StateError(f"--state must be a file written by exchangeable watch, got {printable(self.path)}")
        version = record.get("version")
        if version != VERSION:
            old = type(version) is int and version < VERSION
            reason = (
                "it was written by an earlier release; start with another --state"
                if old
                else "it was written by a newer release"
            )
            raise StateError(f"{printable(self.path)} must be of version {VERSION}, got {version}: {reason}")
        return dict(record)

    def _check(self, configuration: dict[str, Any]) -> None:
        self.configuration |= {name: configuration.get(name) for name in self.free}
        for name, value in self.configuration.items():
            if configuration.get(name) != value:
                option = f"--{name.replace('_', '-')}"
                rule = f"{printable(self.path)} was created with {option} {_option(configuration.get(name))}"
                raise UsageError(f"{rule}, got {_option(value)}: use the same options, or another --state")

    def _monitor(self, body: bytes, kinds: tuple[type[Tracker], ...]) -> Tracker:
        from exchangeable import snapshot

        try:
            monitor = snapshot.decode(body)
        except ValueError as error:
            raise StateError(f"{printable(self.path)} cannot be resumed: {error}") from error
        if not isinstance(monitor, kinds):
            raise StateError(f"{printable(self.path)} must hold a monitor, got {type(monitor).__name__}")
        return monitor


def _option(value: object) -> str:
    return "left out" if value is None else str(value)


def _lock(path: Path) -> int:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:
        raise StateError("--state needs POSIX file locks, which this system does not have") from None
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(lock)
        raise StateError(
            f"{printable(path)} must be used by one process at a time, but another process uses it"
        ) from None
    return lock


def _replace(path: Path, data: bytes) -> None:
    """Replace a file atomically; the data is on disk when this returns."""
    temporary = path.with_name(f".{path.name}.new")  # the lock prevents other processes from using it
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the new name is on disk too
    finally:
        os.close(folder)
