"""The file that a watch is resumed from: the monitor, what it was made with, and how far files have been read."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from exchangeable.data.events import Reader, UsageError
from exchangeable.monitor import Monitor
from exchangeable.watch.source import Place, Source, shown

KIND = "exchangeable watch"
VERSION = 2  # version 1, of exchangeable 0.1, holds snapshots that cannot be continued
LONGEST = 64 << 20  # bytes of the first line


class StateError(Exception):
    """The file cannot be used as a state."""


class StateFile:
    """A state on disk, for one process at a time: a lock on ``<file>.lock`` keeps others out.

    ``configuration`` is what the monitor is made from; a state made from another one is rejected. Settings named in
    ``free`` were left out by the user, so their stored values are used. A first line of
    JSON (configuration, columns, places in files) is followed by a snapshot of the monitor. The file is replaced as a
    whole, so whoever reads it finds the old state or the new one. O(size of the monitor).
    """

    def __init__(self, path: Path, configuration: Mapping[str, Any], *, free: Collection[str] = ()) -> None:
        self.path = path
        self.configuration: dict[str, Any] = dict(configuration)
        self.free = free
        self._places: dict[str, Place] = {}

    def __enter__(self) -> StateFile:
        self._lock = _locked(self.path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._lock)

    def load(self, reader: Reader) -> Monitor | None:
        """The monitor as it was saved, if there is a file; the reader is told the columns."""
        try:
            head, _, body = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        record = self._record(head)
        self._check(record["configuration"])
        self._places = {path: Place(*place) for path, place in record["files"].items()}
        reader.columns = reader.columns or record["columns"]
        return self._monitor(body)

    def resume(self, source: Source, reader: Reader) -> None:
        """Go to where a file was left, if it was read before."""
        if source.path in self._places:
            source.resume(self._places[source.path], reader)

    def save(self, monitor: Monitor, columns: list[str] | None, source: Source) -> None:
        """Replace the file; on disk when this returns."""
        from exchangeable import snapshot

        if source.path is not None:
            self._places[source.path] = source.place
        record = {
            "kind": KIND,
            "version": VERSION,
            "configuration": self.configuration,
            "columns": columns,
            "files": self._places,
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
            raise StateError(f"--state must be a file written by exchangeable watch, got {shown(self.path)}")
        version = record.get("version")
        if version != VERSION:
            old = type(version) is int and version < VERSION
            cure = (
                "it was written before exchangeable 0.2, begin with another --state"
                if old
                else "it is of a newer release"
            )
            raise StateError(f"{shown(self.path)} must be of version {VERSION}, got {version}: {cure}")
        return dict(record)

    def _check(self, configuration: dict[str, Any]) -> None:
        self.configuration |= {name: configuration.get(name) for name in self.free}
        for name, ours in self.configuration.items():
            if configuration.get(name) != ours:
                option = f"--{name.replace('_', '-')}"
                law = f"{shown(self.path)} was made with {option} {_option(configuration.get(name))}"
                raise UsageError(f"{law}, got {_option(ours)}: use the same options, or another --state")

    def _monitor(self, body: bytes) -> Monitor:
        from exchangeable import snapshot

        try:
            monitor = snapshot.decode(body)
        except ValueError as error:
            raise StateError(f"{shown(self.path)} cannot be resumed from: {error}") from error
        if not isinstance(monitor, Monitor):
            raise StateError(f"{shown(self.path)} must hold a monitor, got {type(monitor).__name__}")
        return monitor


def _option(value: object) -> str:
    return "left out" if value is None else str(value)


def _locked(path: Path) -> int:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:
        raise StateError("--state needs a system with file locks as POSIX has them") from None
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        flock(lock, LOCK_EX | LOCK_NB)
    except OSError:
        os.close(lock)
        raise StateError(f"{shown(path)} must be used by one process at a time, and another one uses it") from None
    return lock


def _replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; it is on the disk when this returns."""
    fresh = path.with_name(f".{path.name}.new")  # the lock keeps others from it
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the name too is on the disk
    finally:
        os.close(folder)
