"""When the keys of a bucket had their first and their latest events, so that keys without events can be removed.

A key that is removed and returns is a new stream: it has another life. Times are those of micro-batches, which Spark
stores before it processes them, so an attempt that is repeated removes the same keys.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exchangeable.keyed import Monitors, Standings
from exchangeable.protocols import Integers
from exchangeable.validation import format_value

EXPIRED = "expired"  # the kind of the row that reports it
SHORTEST = timedelta(seconds=1)


def check_expire(expire: timedelta | None) -> int | None:
    """Return a duration in milliseconds; None if keys are never removed.

    >>> check_expire(timedelta(days=30))
    2592000000
    """
    if expire is None:
        return None
    if not isinstance(expire, timedelta) or expire < SHORTEST:
        raise ValueError(f"expire must be a timedelta of at least a second, got {format_value(expire)}")
    return expire // timedelta(milliseconds=1)


class Lives:
    """When the life of each key began, and when it last had an event: milliseconds, in the order of the monitors."""

    def __init__(self, data: bytes | None = None) -> None:
        stored = np.frombuffer(data or b"", np.int64).reshape(2, -1)
        self.began: Integers = stored[0].copy()
        self.seen: Integers = stored[1].copy()

    def encode(self) -> bytes:
        """Return the times as bytes."""
        return np.stack([self.began, self.seen]).tobytes()

    def expire(self, monitors: Monitors, before: int) -> tuple[Standings, Integers]:
        """Remove the keys without events since ``before``; return where they stood, and when their lives began."""
        gone = self.seen < before
        began = self.began[gone]
        expired = (
            monitors.delete(pa.array(monitors.keys()).filter(pa.array(gone))) if gone.any() else monitors.standings([])
        )
        self.began, self.seen = self.began[~gone], self.seen[~gone]
        return expired, began

    def note(self, monitors: Monitors, keys: Any, now: int) -> None:
        """Note that these keys had events now; new keys of the monitors begin their lives."""
        new = np.full(len(monitors) - len(self.seen), now)
        self.began, self.seen = np.concatenate([self.began, new]), np.concatenate([self.seen, new])
        self.seen[_positions(monitors, keys.unique())] = now

    def of(self, monitors: Monitors, keys: Any) -> Integers:
        """Return when the lives of these keys began."""
        return self.began[_positions(monitors, keys)]


def _positions(monitors: Monitors, keys: Any) -> Integers:
    known = pa.array(monitors.keys()).cast(keys.type)
    return np.asarray(pc.index_in(keys, value_set=known).to_numpy(zero_copy_only=False), np.int64)
