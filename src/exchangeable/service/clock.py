"""Times: the server's clock, and how times are formatted in replies and alerts."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime


def server_clock(connection: sqlite3.Connection) -> Callable[[], float]:
    """Return the server's clock, in seconds since 1970. It is never earlier than a time it gave before a restart.

    The system clock is read only once, so later jumps of it do not matter.
    """
    (last,) = connection.execute(
        "SELECT max(clock) FROM streams WHERE CASE WHEN clock IS NULL THEN 0"
        " ELSE json_extract(configuration, '$.labels.clock') = 'server' END"
    ).fetchone()
    start = max(time.time(), -math.inf if last is None else last) - time.monotonic()
    return lambda: start + time.monotonic()


def format_time(seconds: float) -> str:
    """Format a time in seconds since 1970 as in RFC 3339, in UTC.

    >>> format_time(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
