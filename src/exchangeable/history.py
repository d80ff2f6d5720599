"""The capital of a monitor over time, in constant memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers

BITS = native.HISTORY_BUCKETS.bit_length() - 1


class Curve(NamedTuple):
    """Points of a curve: numbers of examples, and log capitals."""

    n: Floats
    log_value: Floats


class History:
    """The log capital after each example, thinned for plots: see ``native/history.c``.

    Up to 256 examples are stored one by one, and more in 128 to 256 buckets of equal length. A bucket has its lowest
    and its highest log capital, in the order in which they occurred, and that of its latest alarm, all as float32.
    ``start`` is the number of examples before the history. O(1) time per example, constant memory (3.3 kB).

    >>> record = np.array([3, 0, 0, -1, -1, 1])  # that of a monitor after three examples
    >>> history = History()
    >>> history.extend(record, np.array([0.5, -1.0, 2.0]), restart=False)
    >>> history.curve(3, 2.0).log_value
    array([ 0. ,  0.5,  0.5, -1. , -1. ,  2. ,  2. ,  2. ])
    """

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.points: NDArray[np.float32] = np.zeros((native.HISTORY_BUCKETS, native.HISTORY_POINTS), np.float32)
        self.marks: NDArray[np.bool_] = np.zeros(native.HISTORY_BUCKETS, np.bool_)

    def update(self, record: Integers, log_value: float, restart: bool) -> None:
        """Add the log capital after an example; ``record`` is that of the monitor after it."""
        native.history_step(record, self.points, self.marks, self.start, restart, log_value)

    def extend(self, record: Integers, log_values: Floats, restart: bool) -> None:
        """Add the log capital after each of many examples: the same history as one by one."""
        native.history(record, self.points, self.marks, self.start, restart, log_values)

    def mark(self, n: int, log_value: float) -> None:
        """Mark an alarm at the latest example, ``n``, that was raised after it had been added."""
        bucket = (n - self.start - 1) // self._size(n)
        self.marks[bucket], self.points[bucket, 2] = True, log_value

    def curve(self, n: int, log_value: float) -> Curve:
        """Return a curve from the start to example ``n``, where the log capital is ``log_value``."""
        at = self._positions(n)
        y = self.points[: len(at), :2].astype(np.float64).ravel()
        return Curve(np.concatenate([[self.start], at.ravel(), [n]]), np.concatenate([[0.0], y, [log_value]]))

    def alarms(self, n: int, alarm_at: int | None) -> Curve:
        """Return the latest alarm of each bucket that has one; only the very latest is at its exact place."""
        marked = np.flatnonzero(self.marks)
        first, second, y = self.points[marked].T
        left, right = self._positions(n)[marked].T
        x = np.where(y == first, left, np.where(y == second, right, (left + right) / 2.0))
        x[-1:] = alarm_at
        return Curve(x, y.astype(np.float64))

    def check(self, n: int, alarm_at: int | None) -> None:
        """Check a history that was loaded against the number of examples and the latest alarm."""
        if self.start > (n if alarm_at is None else alarm_at - 1):
            raise ValueError(f"start of the history must be before the alarm, and at most {n}, got {self.start}")
        latest = -1 if alarm_at is None else (alarm_at - self.start - 1) // self._size(n)
        if np.flatnonzero(self.marks).max(initial=-1) != latest:
            raise ValueError(f"marks of the history must end with the alarm at {alarm_at}, got others")
        if self.points[len(self._positions(n)) :].any() or self.points[~self.marks, 2].any():
            raise ValueError(f"points of the history must be those of {n - self.start} examples, got others")

    def _size(self, n: int) -> int:
        """Return how many examples a bucket has."""
        return 1 << max(0, (n - self.start - 1).bit_length() - BITS)

    def _positions(self, n: int) -> Floats:
        """Return where the two points of each bucket are drawn: after a quarter and three quarters of its examples."""
        first = np.arange(self.start + 1, n + 1, self._size(n), dtype=np.float64)
        margin = (np.minimum(first + self._size(n) - 1, n) - first) / 4
        return np.stack([first + margin, first + 3 * margin], axis=1)
