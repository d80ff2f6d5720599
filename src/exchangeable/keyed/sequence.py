"""The rules for sequence numbers: which events continue their stream, and what is reported about the others.

The number of an event decides its kind, one of `KINDS`:

- step: the event continues its stream and is bet on.
- duplicate: its number was used before, and its content is equal. It is dropped.
- late: its number was skipped before. It is not bet on.
- gap: a range of missing numbers. It is reported before the event that follows it.
- conflict: events with the same number have different content. None of them is bet on, because choosing one would make
  the bet depend on the data.
- bad: the caller rejected the event. Its number counts as used.
- full: the event came after the end of its test (see `Monitors`).

`classify` reports all of these for sorted events of many streams. With ``contiguous=False`` numbers only increase, as
timestamps do: nothing is missing, and every number up to the last one is late. `classify_in_turn` is for one stream
whose events arrive one after the other and must not have gaps: it stops at the first gap or conflict. The caller
decides when two events are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers

KINDS = ("step", "duplicate", "late", "gap", "conflict", "bad", "full")
STEP, DUPLICATE, LATE, GAP = native.KEYED_STEP, native.KEYED_DUPLICATE, native.KEYED_LATE, native.KEYED_GAP
CONFLICT, BAD, FULL = native.KEYED_CONFLICT, native.KEYED_BAD, native.KEYED_FULL


def describe(
    kind: str, order: Any, count: int = 1, *, unsure: bool = False, show: Callable[[Any], str] = str
) -> str | None:
    """Return a sentence about a row that was not bet on; None for a step. ``show`` formats a sequence number.

    >>> describe("gap", 3, 2)
    'orders 3 to 4 are missing'
    """
    match kind:
        case "duplicate":
            return f"{count} repeated event{'s' * (count > 1)}, the first with order {show(order)}: dropped"
        case "late" if unsure:
            return f"order {show(order)} is older than the remembered numbers: late or a duplicate, not bet on"
        case "late":
            return f"order {show(order)} came after a higher one: late, not bet on"
        case "gap" if count == 1:
            return f"order {show(order)} is missing"
        case "gap":
            return f"orders {show(order)} to {show(order + count - 1)} are missing"
        case "conflict" if count == 1:
            return f"one valid event with order {show(order)} beside bad ones: not bet on"
        case "conflict":
            return f"{count} different events with order {show(order)}: none is bet on"
        case "bad":
            return f"order {show(order)} was rejected: not bet on"
        case "full":
            return f"order {show(order)} came after the pool of its key was full, which ended the test: not bet on"
    return None


# ------------------------------------------------------------------ many streams, sorted


class Events(NamedTuple):
    """Events sorted by stream, number, and whether they are bad; those of stream t end at ``bounds[t + 1]``.

    Two events with the same number are equal if both ``x`` and ``content`` are.
    """

    bounds: Integers
    order: Integers
    x: Floats
    content: Integers
    bad: NDArray[np.bool_]
    source: Integers  # the position of each event in the caller's columns

    def slice(self, start: int, stop: int) -> Events:
        """Return the events at positions start to stop - 1, of the same streams."""
        at = slice(start, stop)
        bounds = self.bounds.clip(start, stop) - start
        return Events(bounds, self.order[at], self.x[at], self.content[at], self.bad[at], self.source[at])


class History(NamedTuple):
    """The numbers that each stream has used before, in the layout of native/keyed.c. `classify` updates it."""

    new: NDArray[np.bool_]  # whether the stream has had no event
    numbers: Integers  # a row of KEYED_INTEGERS for each stream
    spans: Integers  # ranges of missing numbers, with room for KEYED_SPANS of them in each stream
    used: Integers  # the number of ranges of each stream

    @classmethod
    def empty(cls, streams: int) -> History:
        """Return the history of streams without events."""
        numbers = np.zeros((streams, native.KEYED_INTEGERS), np.int64)
        spans = np.zeros(2 * native.KEYED_SPANS * streams, np.int64)
        return cls(np.ones(streams, np.bool_), numbers, spans, np.zeros(streams, np.int64))


class Classified(NamedTuple):
    """The kind of each event, and how many numbers are missing just before it.

    Duplicates of one stream share one row, that of the first, and so do the events of a conflict: ``count`` is the
    number of events in the row, and the kind of the others is KEYED_NONE.
    """

    kind: NDArray[np.int8]
    count: Integers  # type: ignore[assignment]  # hides tuple.count, which is not needed
    missing: NDArray[np.uint64]
    unsure: NDArray[np.bool_]  # late events that may be duplicates: their numbers are no longer remembered


class Unfolded(NamedTuple):
    """Rows of events and gaps, in order of stream and number. A gap has no event (-1)."""

    stream: Integers
    event: Integers
    kind: NDArray[np.int8]
    order: Integers
    count: Integers  # type: ignore[assignment]
    row: Integers  # for each event, its row, or -1


def classify(events: Events, history: History, *, contiguous: bool) -> Classified:
    """Classify the events of all streams, and update the history. O(events)."""
    count = len(events.order)
    result = Classified(
        np.empty(count, np.int8), np.ones(count, np.int64), np.zeros(count, np.uint64), np.zeros(count, np.bool_)
    )
    bounds, order, x, content, bad, _ = events
    new, numbers, spans, used = history
    native.keyed_sequence(bounds, order, x, content, bad, new, contiguous, numbers, spans, used, *result)
    return result


def unfold(events: Events, classified: Classified) -> Unfolded:
    """Return the rows to report. A gap of more numbers than int64 can count becomes two rows."""
    row = np.empty(len(events.order), np.int64)
    room = 2 * len(events.order) + len(events.bounds)
    stream, event, order, count = (np.empty(room, np.int64) for _ in range(4))
    kind = np.empty(room, np.int8)
    kinds, counts, missing, _ = classified
    end = native.keyed_unfold(
        events.bounds, events.order, kinds, counts, missing, row, stream, event, kind, order, count
    )
    return Unfolded(stream[:end], event[:end], kind[:end], order[:end], count[:end], row)


# ------------------------------------------------------------------ one stream, in order of arrival


class Fault(NamedTuple):
    """The first event that breaks the rules: a gap before it, or different content under a used number."""

    kind: int  # GAP or CONFLICT
    position: int
    number: int
    expected: int  # the next number of the stream at that point


class InTurn(NamedTuple):
    """The events of one stream up to the first fault."""

    steps: list[int]  # positions of the events that continue the stream
    known: dict[int, int]  # numbers used before the call, with a position for each: the caller compares the content
    fault: Fault | None


def classify_in_turn(
    numbers: Iterable[int | None], expected: int, equal: Callable[[int, int], bool] | None = None
) -> InTurn:
    """Classify events in order of arrival, where ``expected`` is the next number. O(events).

    An event without a number (None) is the next one. ``equal`` compares the events at two positions; without it all
    repeats count as duplicates.

    >>> classify_in_turn([3, 4, 3, 5, 7], expected=4)
    InTurn(steps=[1, 3], known={3: 0}, fault=Fault(kind=3, position=4, number=7, expected=6))
    """
    steps: list[int] = []
    known: dict[int, int] = {}
    for position, number in enumerate(numbers):
        following = expected + len(steps)
        if number is None or number == following:
            steps.append(position)
            continue
        if number > following:
            return InTurn(steps, known, Fault(GAP, position, number, following))
        earlier = known.setdefault(number, position) if number < expected else steps[number - expected]
        if equal is not None and not equal(earlier, position):
            return InTurn(steps, known, Fault(CONFLICT, position, number, following))
    return InTurn(steps, known, None)
