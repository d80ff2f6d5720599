"""The result of a call: one row for each step, and for everything that was not bet on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.keyed.sequence import KINDS, describe
from exchangeable.protocols import Floats, Integers


class Rows(NamedTuple):
    """The result of one call as columns, sorted by key and order.

    ``kind`` is an index into ``KINDS``. ``n``, ``p``, ``log_value``, ``alarm`` and ``test`` belong to step rows; in
    side rows (all others) they are -1, NaN, NaN, False and 0. ``changepoint`` is -1 where the alarm is off.

    - step: an event that was bet on. ``test`` counts the tests of its key, from 1 (above 1 only with restarts).
    - duplicate: numbers that were used before, or several equal events. One row for each key: ``order`` is the first
      number, ``count`` the number of events.
    - late: a number that was skipped before. One row for each event; with ``unsure`` it may be a duplicate.
    - gap: ``order`` is the first missing number, ``count`` the number of missing ones (above 2^63 - 1: two rows).
    - conflict: ``count`` different events with the same number (bad ones not counted). None is bet on.
    - bad: an event that the caller rejected. One row for each event.
    - full: an event after the end of the test of its key. One row for each event.

    ``source`` is the position of the (first) event among those of the call; -1 for a gap.
    """

    key: NDArray[Any]  # of int64, or of objects: str or bytes
    order: Integers
    kind: NDArray[np.int8]
    n: Integers
    p: Floats
    log_value: Floats
    alarm: NDArray[np.bool_]
    changepoint: Integers
    count: Integers  # type: ignore[assignment]  # hides tuple.count, which is not needed
    test: Integers
    source: Integers
    unsure: NDArray[np.bool_]

    def detail(self, i: int, show: Callable[[Any], str] = str) -> str | None:
        """Return a sentence about a side row; None for a step. ``show`` formats a sequence number."""
        kind, unsure = KINDS[self.kind[i]], bool(self.unsure[i])
        return describe(kind, int(self.order[i]), int(self.count[i]), unsure=unsure, show=show)

    def details(self) -> NDArray[Any]:
        """Return ``detail`` of every row as an array of objects. Steps, which are the most frequent, cost nothing."""
        sentences = np.full(len(self.kind), None, object)
        for i in np.flatnonzero(self.kind).tolist():
            sentences[i] = self.detail(i)
        return sentences


class Steps(NamedTuple):
    """The steps of accepted events. An event that came after the end of its test has n = -1."""

    n: Integers
    p: Floats
    log_value: Floats
    alarm: NDArray[np.bool_]
    changepoint: Integers
    test: Integers

    @classmethod
    def blank(cls, count: int) -> Steps:
        """Return empty steps, to be filled in."""
        nan, none = np.full(count, np.nan), np.full(count, -1)
        return cls(none, nan, nan.copy(), np.zeros(count, np.bool_), none.copy(), np.zeros(count, np.int64))

    def put(self, at: Integers, steps: Steps, chosen: Integers) -> None:
        """Set the steps at these positions to the chosen ones of ``steps``."""
        for column, new in zip(self, steps, strict=True):
            column[at] = new[chosen]
