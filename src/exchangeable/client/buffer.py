"""The buffer of a stream: observations that wait to be sent, and those that may have to be sent again."""

from __future__ import annotations

import json
import math
import time
from typing import Any


class Buffer:
    """Encoded observations in order, without their sequence numbers; the first ``_delivered`` of them were accepted.

    Accepted observations are retained while there is room, in case the server loses them (restored from a backup).
    ``first_seq`` is the sequence number of the first observation in the buffer, once it is known.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.first_seq: int | None = None
        self._lines: list[bytes] = []
        self._delivered = 0
        self._oldest = math.inf  # when the oldest pending observation was added

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def pending(self) -> int:
        """How many observations were not yet accepted."""
        return len(self._lines) - self._delivered

    @property
    def age(self) -> float:
        """The seconds that the oldest pending observation has waited; negative infinity if none waits."""
        return time.monotonic() - self._oldest

    def add(self, line: bytes) -> None:
        """Append an observation."""
        self._lines.append(line)
        self._oldest = min(self._oldest, time.monotonic())

    def body(self, first_seq: int, limit: int) -> tuple[bytes, int]:
        """Return the next pending observations, numbered, as NDJSON, and their number."""
        lines = self._lines[self._delivered : self._delivered + limit]
        numbered = (b'{"seq":%d,%s' % (seq, line[1:]) for seq, line in enumerate(lines, first_seq + self._delivered))
        return b"\n".join(numbered), len(lines)

    def mark_delivered(self, count: int) -> None:
        """Record that the next pending observations were accepted, and drop the oldest beyond the capacity."""
        self._delivered += count
        surplus = min(self._delivered, len(self._lines) - self.capacity)
        if surplus > 0:
            del self._lines[:surplus]
            self._delivered -= surplus
            self.first_seq = (self.first_seq or 0) + surplus
        self._oldest = time.monotonic() if self.pending else math.inf

    def rewind(self, seq: int) -> bool:
        """Continue from this sequence number; return False if its observation was never accepted, or was dropped."""
        first = self.first_seq or 0
        if not first <= seq < first + self._delivered:
            return False
        self._delivered = seq - first
        return True

    def clear(self) -> list[dict[str, Any]]:
        """Empty the buffer and return the pending observations."""
        pending = [json.loads(line) for line in self._lines[self._delivered :]]
        self._lines, self._delivered, self.first_seq, self._oldest = [], 0, None, math.inf
        return pending
