"""What became of the events of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers

KINDS = ("step", "duplicate", "late", "gap", "conflict", "bad", "full")
STEP, DUPLICATE, LATE, GAP = native.KEYED_STEP, native.KEYED_DUPLICATE, native.KEYED_LATE, native.KEYED_GAP
CONFLICT, BAD, FULL = native.KEYED_CONFLICT, native.KEYED_BAD, native.KEYED_FULL


class Rows(NamedTuple):
    """What became of the events of one call: columns, sorted by key and order.

    ``kind`` is a place in ``KINDS``. ``n``, ``p``, ``log_value``, ``alarm`` and ``test`` are those of step rows; in
    side rows (all others) they are -1, NaN, NaN, False and 0. ``changepoint`` is -1 where the alarm is off.

    - step: an event that was bet on; ``test`` counts the tests of its key, from 1 (above 1 with restarts only).
    - duplicate: numbers that came before, or several times alike; one row a key, ``order`` the first, ``count`` all.
    - late: a number that was passed over before; one row an event. With ``unsure`` it may be a repeat.
    - gap: ``order`` is the first missing number, ``count`` how many are missing (more than int64 holds: two rows).
    - conflict: several different events of one number, ``count`` of them (bad ones aside); none is bet on.
    - bad: an event that the caller refused; one row an event.
    - full: an event after the test of its key has ended; one row an event.

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
    count: Integers  # type: ignore[assignment]  # of tuples, which is not needed
    test: Integers
    source: Integers
    unsure: NDArray[np.bool_]

    def detail(self, i: int) -> str | None:
        """A sentence on a side row; None for a step."""
        order, count = int(self.order[i]), int(self.count[i])
        match KINDS[self.kind[i]]:
            case "duplicate":
                return f"{count} repeated event{'s' * (count > 1)}, the first of order {order}: dropped"
            case "late" if self.unsure[i]:
                return f"order {order} lies before the numbers that are remembered: late, or a repeat; not bet on"
            case "late":
                return f"order {order} was passed over before: late, not bet on"
            case "gap" if count == 1:
                return f"order {order} is missing"
            case "gap":
                return f"orders {order} to {order + count - 1} are missing"
            case "conflict" if count == 1:
                return f"an event of order {order} beside bad ones of the same order: not bet on"
            case "conflict":
                return f"{count} different events of order {order}: none is bet on"
            case "bad":
                return f"order {order} was refused: not bet on"
            case "full":
                return f"order {order} came after the pool of its key was full, which ended the test: not bet on"
        return None

    def details(self) -> NDArray[Any]:
        """``detail`` of every row, as objects: no work for steps, which are the many."""
        found = np.full(len(self.kind), None, object)
        for i in np.flatnonzero(self.kind).tolist():
            found[i] = self.detail(i)
        return found


class Steps(NamedTuple):
    """What became of the events that were to be bet on; an event that was not, ``full``, has n = -1."""

    n: Integers
    p: Floats
    log_value: Floats
    alarm: NDArray[np.bool_]
    changepoint: Integers
    test: Integers

    @classmethod
    def blank(cls, count: int) -> Steps:
        """None of them yet."""
        nan, none = np.full(count, np.nan), np.full(count, -1)
        return cls(none, nan, nan.copy(), np.zeros(count, np.bool_), none.copy(), np.zeros(count, np.int64))

    def put(self, at: Integers, steps: Steps, those: Integers) -> None:
        """Set what stands at these places to those of the steps."""
        for column, new in zip(self, steps, strict=True):
            column[at] = new[those]
