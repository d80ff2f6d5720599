"""Logs: one JSON object in each line, and repeated messages only a few times a minute."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

__all__ = ["REQUEST", "JsonLines", "Repetitions", "Stderr", "configure"]
REPEATS = 5  # lines of the same message in a period
PERIOD = 60.0  # seconds
MAX_MESSAGES = 1_000  # different messages that are counted in a period
FIELDS = ("request", "stream", "token", "method", "path", "status", "seconds")
# What is known about the request that the current task serves; `Allow` adds the id of the token.
REQUEST: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("request", default=None)


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON, with the request, stream and token that it concerns, if any.

    >>> record = logging.LogRecord("exchangeable", logging.INFO, "", 0, "ready on port %d", (8000,), None)
    >>> record.created = 0.0
    >>> JsonLines().format(record)
    '{"time":"1970-01-01T00:00:00.000Z","level":"info","logger":"exchangeable","message":"ready on port 8000"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = {**(REQUEST.get() or {}), **vars(record)}
        line |= {name: known[name] for name in FIELDS if known.get(name) is not None}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, separators=(",", ":"))


class Repetitions(logging.Filter):
    """Lets each message pass a few times in a minute; the first one of the next minute says how many were left out.

    Messages are the same if their logger and their text before formatting are. O(1) for each record.
    """

    def __init__(self, repeats: int = REPEATS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeats, self._clock = repeats, clock
        self._lock = threading.Lock()
        self._started = clock()
        self._counts: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if record.levelno < logging.WARNING:
            return True
        key = (record.name, str(record.msg)[:200])
        with self._lock:
            if self._clock() - self._started >= PERIOD:
                self._started, self._left_out = self._clock(), _excess(self._counts, self._repeats)
                self._counts = {}
            if len(self._counts) >= MAX_MESSAGES and key not in self._counts:
                return False
            self._counts[key] = self._counts.get(key, 0) + 1
            before = self._left_out.pop(key, 0)
            passes = self._counts[key] <= self._repeats
        if before and passes:
            record.msg, record.args = f"{record.getMessage()} (and {before} times more in the minute before)", ()
        return passes


def _excess(counts: dict[tuple[str, str], int], repeats: int) -> dict[tuple[str, str], int]:
    return {key: count - repeats for key, count in counts.items() if count > repeats}


class Stderr(logging.StreamHandler[TextIO]):
    """Writes to stderr as it is at the time of the record."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.stream = sys.stderr
        super().emit(record)


def configure(stream: TextIO | None = None) -> None:
    """Write the logs of this process to stderr: ours from INFO on, those of others from WARNING on."""
    handler = Stderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    handler.addFilter(Repetitions())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("exchangeable").setLevel(logging.INFO)
