"""The rule for late labels, shared by `LateLabels` and the monitoring server.

An example is used if its own delay, the time of its label minus the time of its observation, is at most ``wait``. This
is valid if pairs of example and delay are exchangeable. A rule that depends on the number of waiting examples is not
valid: it lets traffic decide which examples are tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, TypeVar

import numpy as np

CLASSES, OTHER = 10, "other"  # labels that are counted separately, and the name for all others
MAX_NAME = 64  # characters of a counted label
MAX_GAP = 10 * 366 * 86_400  # seconds between two events of a stream: more is a mistake, such as milliseconds


class QueuedObservation(Protocol):
    """An observation in the queue."""

    @property
    def time(self) -> float | None:
        """When it was observed, in seconds."""

    @property
    def used(self) -> bool | None:
        """True if it has a label that came in time, False if it is left out, None if undecided."""


Queued = TypeVar("Queued", bound=QueuedObservation)


def decide(queue: Iterable[Queued], latest: float | None, wait: float) -> Iterator[tuple[Queued, bool]]:
    """Yield the head of a queue, up to the first observation whose label may still come, and whether each is used.

    ``latest`` is the latest time so far. An observation without a label expires only here, at the head of the queue,
    where others wait for it.
    """
    for observation in queue:
        used, time = observation.used, observation.time
        if used is None and latest is not None and time is not None and latest - time > wait:
            used = False
        if used is None:
            return
        yield observation, used


def delay(observed: float | None, labelled: float | None) -> float:
    """Return the seconds from an observation to its label; 0 if times are missing because none are needed."""
    if observed is None or labelled is None:
        return 0.0
    if labelled < observed:
        raise ValueError(f"time of a label must not be before that of its observation, {observed!r}, got {labelled!r}")
    return labelled - observed


def seconds(time: Any) -> float:
    """Convert a time to seconds: since 1970 for a ``datetime`` or ISO 8601 text, both with a UTC offset.

    >>> seconds(12), seconds("1970-01-01T01:00:05+01:00")
    (12.0, 5.0)
    """
    number = math.nan
    with suppress(ValueError, OverflowError):
        value: Any = datetime.fromisoformat(time) if isinstance(time, str) else time
        if isinstance(value, datetime) and value.tzinfo is not None:
            number = value.timestamp()
        elif is_number(value):
            number = float(value)
    if not math.isfinite(number):
        expected = "a finite number of seconds, or a date and time with a UTC offset"
        raise ValueError(f"time must be {expected}, got {time!r:.80}")
    return number


def check_near(time: float, latest: float | None) -> float:
    """Check that a time does not lie years from the latest one: that would make everything else seem late.

    >>> check_near(1.7e12, 1.7e9)
    Traceback (most recent call last):
    ...
    ValueError: time must be within 10 years of the latest, 1.7e+09, got 1.7e+12: give seconds of one clock
    """
    if latest is not None and abs(time - latest) > MAX_GAP:
        raise ValueError(
            f"time must be within 10 years of the latest, {latest:g}, got {time:g}: give seconds of one clock"
        )
    return time


def is_number(value: Any) -> bool:
    """Return whether a value is a Python or NumPy number, and not a boolean."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


@dataclass
class LeftOut:
    """Counts of observations that were left out of the test."""

    expired: int = 0
    """Their label did not come within the wait."""
    undelivered: int = 0
    """Of these: the label came within the wait, but was delivered after later events had ended the wait."""
    never: int = 0
    """Their label will never come, as stated by the caller."""
    classes: dict[str, int] = field(default_factory=dict)
    """Of the expired ones whose label came after all: how many had each label, for the first ten labels."""

    def count(self, y: Any, *, in_time: bool) -> None:
        """Count a label that came after its observation had expired."""
        self.undelivered += in_time
        name = _class_name(y)
        name = name if name in self.classes or len(self.classes) < CLASSES else OTHER
        self.classes[name] = self.classes.get(name, 0) + 1

    def guarantee(self, guarantee: str, wait: float, *, server_clock: bool = False) -> str:
        """Return the guarantee, with the conditions under which leaving these observations out is valid."""
        conditions = []
        if self.expired:
            conditions.append("the delay of a label depends on its own example only, not on time or traffic")
        if server_clock and wait < math.inf:
            conditions.append("delays were not changed by outages or by a full queue")
        if self.undelivered:
            late = f"later than their observation plus {wait:g} seconds"
            conditions.append(f"labels are delivered before events that are {late} (not true for {self.undelivered})")
        if self.never:
            conditions.append("whether a label never comes depends on its own example only")
        return f"{guarantee} This holds if {', and if '.join(conditions)}." if conditions else guarantee


def _class_name(y: Any) -> str:
    """Return the name under which a label is counted; numbers with a fraction are not classes."""
    if isinstance(y, (float, np.floating)):
        return str(int(y)) if math.isfinite(y) and y == int(y) else OTHER
    return str(y)[:MAX_NAME]
