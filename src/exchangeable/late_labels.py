"""Labels that come late: examples wait for them, and are tested in the order in which they were observed.

An example is used if its own delay, the time of its label minus the time of its observation, is at most ``wait``. This
is valid if pairs of example and delay are exchangeable. A rule that looks at the number of waiting examples is not: it
lets traffic decide which examples are tested. `LateLabels` and the monitoring server share the code below.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Protocol, TypeVar

import numpy as np

from exchangeable.monitor import Monitor
from exchangeable.protocols import Step
from exchangeable.validation import check_integer

CLASSES, OTHER = 10, "other"  # labels that are counted separately, and the name for all others
LONGEST = 64  # characters of a counted label
MOST = 2**53  # the largest count
FAR = 10 * 366 * 86_400  # seconds between two events of a stream, at most: more is a mistake, such as milliseconds

# ------------------------------------------------------------------ the rule


class Waiter(Protocol):
    """An observation in the queue."""

    @property
    def time(self) -> float | None:
        """When it was observed, in seconds."""

    @property
    def used(self) -> bool | None:
        """True if it has a label that came in time, False if it is left out, None if undecided."""


W = TypeVar("W", bound=Waiter)


def decided(queue: Iterable[W], latest: float | None, wait: float) -> Iterator[tuple[W, bool]]:
    """The first observations of a queue, up to the first whose label may still come in time, and whether each is used.

    ``latest`` is the latest time seen on the clock. An observation without a label is given up only here, at the head
    of the queue, where others would wait for it.
    """
    for one in queue:
        used = one.used
        if used is None and latest is not None and one.time is not None and latest - one.time > wait:
            used = False
        if used is None:
            return
        yield one, used


def delay(observed: float | None, labelled: float | None) -> float:
    """How many seconds after the observation its label came; 0 if times are missing because none are needed."""
    if observed is None or labelled is None:
        return 0.0
    if labelled < observed:
        raise ValueError(f"time of a label must not be before that of its observation, {observed!r}, got {labelled!r}")
    return labelled - observed


def seconds(time: Any) -> float:
    """A time as a number of seconds: since 1970 for a ``datetime`` or ISO 8601 text, both with a UTC offset.

    >>> seconds(12), seconds("1970-01-01T01:00:05+01:00")
    (12.0, 5.0)
    """
    number = math.nan
    with suppress(ValueError, OverflowError):
        value: Any = datetime.fromisoformat(time) if isinstance(time, str) else time
        if isinstance(value, datetime) and value.tzinfo is not None:
            number = value.timestamp()
        elif _is_number(value):
            number = float(value)
    if not math.isfinite(number):
        law = "a finite number of seconds, or a date and time with a UTC offset"
        raise ValueError(f"time must be {law}, got {time!r:.80}")
    return number


def check_near(time: float, latest: float | None) -> float:
    """Reject a time that lies years from the latest one: it would make everything else seem late.

    >>> check_near(1.7e12, 1.7e9)
    Traceback (most recent call last):
    ...
    ValueError: time must be within 10 years of the latest, 1.7e+09, got 1.7e+12: give seconds of one clock
    """
    if latest is not None and abs(time - latest) > FAR:
        raise ValueError(
            f"time must be within 10 years of the latest, {latest:g}, got {time:g}: give seconds of one clock"
        )
    return time


def _is_number(value: Any) -> bool:
    """Whether it is a Python or NumPy number, and not a boolean."""
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
    crowded: int = 0
    """Left out by an earlier version of the server, because too many observations were waiting."""
    classes: dict[str, int] = field(default_factory=dict)
    """Of the expired ones whose label came after all: how many had each label, for the first ten labels."""

    def count(self, y: Any, *, in_time: bool) -> None:
        """Count a label that came after its observation had expired."""
        self.undelivered += in_time
        name = _class(y)
        name = name if name in self.classes or len(self.classes) < CLASSES else OTHER
        self.classes[name] = self.classes.get(name, 0) + 1

    def guarantee(self, promise: str, wait: float, *, server_clock: bool = False) -> str:
        """What is promised, with the conditions under which leaving these observations out is valid."""
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
        if self.crowded:
            which = f"which {self.crowded} observations an earlier version left out, because too many waited"
            conditions.append(f"{which}, had nothing to do with their labels or values")
        return f"{promise} This holds if {', and if '.join(conditions)}." if conditions else promise


def _class(y: Any) -> str:
    """The name under which a label is counted; numbers with a fraction are not classes."""
    if isinstance(y, (float, np.floating)):
        return str(int(y)) if math.isfinite(y) and y == int(y) else OTHER
    return str(y)[:LONGEST]


# ------------------------------------------------------------------ the queue in front of a monitor


@dataclass
class _Waiting:
    """An observation in the queue of a `LateLabels`."""

    id: str | int
    x: Any
    y: Any
    time: float | None
    used: bool | None


class LateLabels:
    """A queue in front of a monitor, for examples whose labels come later.

    ``observe`` takes an example when it is observed, and ``label`` takes its label when it arrives, under the same id.
    Each returns the examples that were tested as a result, as pairs of id and `Step`. Examples are tested in the order
    in which they were observed: all examples behind one without a label wait too.

    An example whose label comes more than ``wait`` after its observation is left out. ``wait`` is a number of seconds,
    a ``timedelta``, or "forever", with which nothing is left out. Times are numbers of seconds, or dates and times with
    a UTC offset (``datetime`` or ISO 8601 text). They must come from one clock, and are required with each observation
    and label unless ``wait`` is "forever". Pass events in time order: an example is given up once it is first in the
    queue and an event has come that is more than ``wait`` later. A label that came within ``wait`` but is passed after
    that cannot be used; ``left_out.undelivered`` counts it.

    The promise of the alarm holds if the delay of a label depends on its own example only. If delays lengthen with
    traffic or in an outage, it does not. ``guarantee`` states the condition as soon as an example has been left out.
    ``left_out`` counts these examples (``expired``, ``undelivered``, ``never``), and ``left_out.classes`` counts the
    labels of expired examples that came after all.

    At most ``most`` examples wait. When the queue is full, ``observe`` raises ``ValueError``: observe the example again
    when labels have come. Skipping it is not valid, since traffic would decide which examples are tested.

    A call that raises ``ValueError`` changes nothing. ``ex.save`` saves the queue together with its monitor. O(1) in
    addition to the monitor's time; memory for the waiting examples and the ids of the ``most`` latest tested and
    expired ones.

    >>> from exchangeable import Monitor, measures
    >>> queue = LateLabels(Monitor(measures.NearestNeighbour(), seed=1), wait=3600)
    >>> queue.observe("a", [0.5, 1.0], time=0), queue.observe("b", [2.5, 0.0], time=60)
    ([], [])
    >>> queue.label("b", "fraud", time=600)  # "a" comes first
    []
    >>> [(id, step.n) for id, step in queue.label("a", "no fraud", time=1800)]
    [('a', 1), ('b', 2)]
    """

    def __init__(self, monitor: Monitor, *, wait: float | timedelta | str = "forever", most: int = 10_000) -> None:
        if not isinstance(monitor, Monitor):
            raise ValueError(f"monitor must be a Monitor, got {monitor!r:.80}")
        self.monitor = monitor
        self.wait: float = _duration(wait)
        self.most: int = check_integer("most", most, 1, MOST)
        self.left_out: LeftOut = LeftOut()
        self._latest: float | None = None
        self._queue: OrderedDict[str | int, _Waiting] = OrderedDict()
        self._tested: OrderedDict[str | int, None] = OrderedDict()  # the latest, so that none is tested twice
        self._expired: OrderedDict[str | int, float | None] = OrderedDict()  # times of observation, no label yet

    @property
    def waiting(self) -> list[str | int]:
        """The ids of the waiting examples, in order."""
        return list(self._queue)

    @property
    def guarantee(self) -> str:
        """What the alarm promises on exchangeable data, in words, with the condition if examples were left out."""
        return self.left_out.guarantee(self.monitor.guarantee, self.wait)

    def observe(self, id: str | int, x: Any, y: Any = None, *, time: Any = None) -> list[tuple[str | int, Step]]:  # noqa: A002
        """Add an example, with or without its label; return the examples that were tested as a result."""
        id = _plain_id(id)  # noqa: A001
        if id in self._queue or id in self._expired or id in self._tested:
            raise ValueError(f"id must differ from those of other examples, got {id!r:.80} again")
        at = self._time(time, needed=y is None)
        new = _Waiting(id, copy.deepcopy(x), y, at, None if y is None else True)
        self._check_room(new)
        self._queue[id] = new
        try:
            return self._release(at)
        except Exception:
            del self._queue[id]
            raise

    def label(self, id: str | int, y: Any, *, time: Any = None) -> list[tuple[str | int, Step]]:  # noqa: A002
        """Add the label of an observed example; return the examples that were tested as a result."""
        if y is None:
            raise ValueError(f"y must be the label of example {id!r:.80}, got None; call never(id) if none will come")
        id = _plain_id(id)  # noqa: A001
        at = self._time(time, needed=True)
        if id in self._expired:
            in_time = delay(self._expired[id], at) <= self.wait
            released = self._release(at)
            self._expired.pop(id, None)
            self.left_out.count(y, in_time=in_time)
            return released
        one = self._find(id)
        if one.used is not None:
            raise ValueError(f"id must be that of an example without a label, got {id!r:.80}, which has one")
        in_time = delay(one.time, at) <= self.wait
        released = self._decide(one, y, in_time, at)
        if not in_time:
            self.left_out.expired += 1
            self.left_out.count(y, in_time=False)
        return released

    def never(self, id: str | int) -> list[tuple[str | int, Step]]:  # noqa: A002
        """Leave out a waiting example whose label will never come; return the examples that were tested as a result.

        This is valid if it depends on that example only, for instance on what kind of example it is.
        """
        released = self._decide(self._find(id), None, False, None)
        self.left_out.never += 1
        return released

    # -------------------------------------------------------------- details

    def _time(self, time: Any, *, needed: bool) -> float | None:
        if time is None and (not needed or self.wait == math.inf):
            return None
        return seconds(time) if self.wait == math.inf else check_near(seconds(time), self._latest)

    def _find(self, id: str | int) -> _Waiting:  # noqa: A002
        id = _plain_id(id)  # noqa: A001
        if id not in self._queue:
            raise ValueError(f"id must be that of an example that waits, got {id!r:.80}")
        return self._queue[id]

    def _check_room(self, new: _Waiting) -> None:
        if len(self._queue) < self.most:
            return
        queue = chain(self._queue.values(), [new])
        if len(self._queue) + 1 - sum(1 for _ in decided(queue, self._later(new.time), self.wait)) > self.most:
            law = f"the queue must hold at most {self.most} examples that wait for labels"
            raise ValueError(f"{law}, and is full: observe {new.id!r:.80} again when labels have come")

    def _later(self, time: float | None) -> float | None:
        """The latest time seen, this one included."""
        return self._latest if time is None else time if self._latest is None else max(self._latest, time)

    def _decide(self, one: _Waiting, y: Any, used: bool, time: float | None) -> list[tuple[str | int, Step]]:
        """Use an example, or leave it out."""
        before = one.y, one.used
        one.y, one.used = y, used
        try:
            released = self._release(time)
        except Exception:
            one.y, one.used = before
            raise
        if not used:
            self._queue.pop(one.id, None)
        return released

    def _release(self, time: float | None) -> list[tuple[str | int, Step]]:
        """Test the decided examples at the head of the queue."""
        latest = self._later(time)
        found = list(decided(self._queue.values(), latest, self.wait))
        used = [one for one, used in found if used]
        steps = self._test(used)
        for one, tested in found:
            del self._queue[one.id]
            if tested:
                _remember(self._tested, one.id, None, self.most)
            elif one.used is None:
                self.left_out.expired += 1
                _remember(self._expired, one.id, one.time, self.most)
        self._latest = latest
        return [(one.id, step) for one, step in zip(used, steps, strict=True)]

    def _test(self, examples: list[_Waiting]) -> list[Step]:
        """Test all of them, or none if the monitor rejects one."""
        if not examples:
            return []
        try:
            if len(examples) == 1:
                return [self.monitor.update(examples[0].x, examples[0].y)]
            path = self.monitor.extend([one.x for one in examples], [one.y for one in examples])
        except ValueError as error:
            refused = self._refused(examples)
            law = f"example {refused.id!r:.80} cannot be tested"
            raise ValueError(f"{law}, and never({refused.id!r:.80}) leaves it out: {error}") from error
        columns = (path.n.tolist(), path.p.tolist(), path.log_value.tolist(), path.alarm.tolist())
        return [Step(*row) for row in zip(*columns, strict=True)]

    def _refused(self, examples: list[_Waiting]) -> _Waiting:
        """The first example that the monitor rejects."""
        twin = copy.deepcopy(self.monitor)
        for one in examples:
            try:
                twin.update(one.x, one.y)
            except ValueError:
                break
        return one

    # -------------------------------------------------------------- snapshots

    def _get_state(self) -> dict[str, Any]:
        return {
            "monitor": self.monitor,
            "wait": self.wait,
            "most": self.most,
            "latest": self._latest,
            "queue": [(one.id, one.x, one.y, one.time) for one in self._queue.values()],
            "tested": list(self._tested),
            "expired": list(self._expired.items()),
            "left_out": asdict(self.left_out),
        }

    @classmethod
    def _from_state(
        cls, *, monitor: Any, wait: Any, most: Any, latest: Any, queue: Any, tested: Any, expired: Any, left_out: Any
    ) -> LateLabels:
        if type(wait) is not float:
            raise ValueError(f"wait must be a number of seconds, or inf, got {wait!r:.80}")
        made = cls(monitor, wait="forever" if wait == math.inf else wait, most=most)
        made._latest = _stored_time("latest", latest, made.wait)
        for one in _rows("queue", queue, 4, made.most):
            time = _stored_time("time", one[3], made.wait if one[2] is None else math.inf)
            made._queue[one[0]] = _Waiting(one[0], one[1], one[2], time, None if one[2] is None else True)
        for one in _rows("expired", expired, 2, made.most):
            made._expired[one[0]] = _stored_time("time", one[1], made.wait)
        if type(tested) is not list or len(tested) > made.most:
            raise ValueError(f"tested must be a list of at most {made.most} ids")
        made._tested = OrderedDict.fromkeys(_plain_id(one) for one in tested)
        made.left_out = _stored_counts(left_out)
        made._check_restored(len(queue) + len(tested) + len(expired))
        return made

    def _check_restored(self, ids: int) -> None:
        """Reject a state that no sequence of calls could produce."""
        known = [*self._queue, *self._tested, *self._expired]
        if len(set(known)) != ids or any(type(name) not in (str, int) for name in known):
            raise ValueError("queue, tested and expired must have different ids, each a string or an integer")
        times = [one.time for one in self._queue.values()] + list(self._expired.values())
        if any(time is not None and (self._latest is None or time > self._latest) for time in times):
            raise ValueError(f"latest must be no earlier than any other time, got {self._latest!r}")
        if any(decided(self._queue.values(), self._latest, self.wait)):
            raise ValueError("queue must begin with an example that waits for its label")
        if len(self._expired) > self.left_out.expired or (self.wait == math.inf and self.left_out.expired):
            raise ValueError("left_out must count the examples that expired, and none if they wait forever")


def _plain_id(id: Any) -> str | int:  # noqa: A002
    """An id of a plain type, which can be saved."""
    if isinstance(id, bool) or not isinstance(id, (str, int, np.integer)):
        raise ValueError(f"id must be a string or an integer, got {id!r:.80}")
    return str(id) if isinstance(id, str) else int(id)


V = TypeVar("V")


def _remember(known: OrderedDict[str | int, V], key: str | int, value: V, most: int) -> None:
    """Add to what is known, and forget the oldest if that is too many."""
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)


def _duration(wait: Any) -> float:
    """A wait in seconds; inf means forever."""
    if isinstance(wait, str) and wait == "forever":
        return math.inf
    value = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if not _is_number(value) or not 0.0 < value < math.inf:
        raise ValueError(f"wait must be a number of seconds above 0, a timedelta, or 'forever', got {wait!r:.80}")
    return float(value)


def _rows(name: str, rows: Any, width: int, most: int) -> list[tuple[Any, ...]]:
    if type(rows) is not list or len(rows) > most:
        raise ValueError(f"{name} must be a list of at most {most} items")
    if any(type(row) is not tuple or len(row) != width for row in rows):
        raise ValueError(f"{name} must hold tuples of length {width}")
    return rows


def _stored_time(name: str, time: Any, wait: float) -> float | None:
    """A time in a snapshot; it may be missing if none is needed."""
    if time is None and (wait == math.inf or name == "latest"):
        return None
    if type(time) is not float or not math.isfinite(time):
        raise ValueError(f"{name} must be a number of seconds, got {time!r:.80}")
    return time


def _stored_counts(held: Any) -> LeftOut:
    """The counts in a snapshot."""
    if type(held) is not dict or held.keys() != {one.name for one in fields(LeftOut)}:
        raise ValueError("left_out must hold the counts of examples that were left out")
    classes = held["classes"]
    if type(classes) is not dict or len(classes) > CLASSES + 1 or not all(type(name) is str for name in classes):
        raise ValueError(f"left_out.classes must count at most {CLASSES + 1} labels")
    for name, count in [*held.items(), *classes.items()]:
        if count is not classes:
            check_integer(f"left_out {name!r:.80}", count, 0, MOST)
    if not max(sum(classes.values()), held["undelivered"]) <= held["expired"]:
        raise ValueError("left_out must count no more labels than expired examples")
    return LeftOut(**{**held, "classes": dict(classes)})
