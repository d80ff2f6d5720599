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
MAX_MESSAGES = 1_000  # different messages that are counted apart in a period
PARTIES = ("token", "client", "receiver")  # fields of a record that tell apart whom it concerns
FIELDS = ("request", "stream", *PARTIES, "method", "path", "status", "seconds", "created_streams", "names", "left_out")
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
    """Lets each message pass a few times in a minute. After that minute, one line says how many were left out.

    Messages are the same if their logger, level and text before formatting are, and if they concern the same token,
    address and receiver of alerts. So one sender cannot hide what is logged of another. Messages beyond
    `MAX_MESSAGES` different ones are counted together for each logger. O(1) for each record.
    """

    def __init__(self, repeats: int = REPEATS, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._repeats, self._clock = repeats, clock
        self._lock = threading.Lock()
        self._started = clock()
        self._counts: dict[tuple[Any, ...], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        with self._lock:
            before = self._next_period() if self._clock() - self._started >= PERIOD else {}
            passes = record.levelno < logging.WARNING or hasattr(record, "left_out") or self._count(record)
        for key, count in before.items():
            if count > self._repeats:
                logging.getLogger(key[0]).handle(_left_out(count - self._repeats, *key))
        return passes

    def _next_period(self) -> dict[tuple[Any, ...], int]:
        self._started, before, self._counts = self._clock(), self._counts, {}
        return before

    def _count(self, record: logging.LogRecord) -> bool:
        parties = (getattr(record, name, None) for name in PARTIES)
        key = (record.name, record.levelno, str(record.msg)[:200], *parties)
        if len(self._counts) >= MAX_MESSAGES and key not in self._counts:
            key = (record.name, logging.WARNING, "other messages")
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key] <= self._repeats


def _left_out(count: int, logger: str, level: int, message: str, *parties: str | None) -> logging.LogRecord:
    """Return the record that stands for those that were left out. It does not concern the current request."""
    fields = {**dict.fromkeys(FIELDS), **dict(zip(PARTIES, parties, strict=False)), "left_out": count}
    text = f"left out in the minute before: {message}"
    named = {"name": logger, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
    return logging.makeLogRecord({**named, **fields})


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
