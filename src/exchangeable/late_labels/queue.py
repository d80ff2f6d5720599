"""The queue in front of a monitor, for examples whose labels come later."""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from exchangeable.late_labels.rule import CLASSES, LeftOut, check_near, decide, delay, is_number, seconds
from exchangeable.monitor import Monitor
from exchangeable.protocols import Step
from exchangeable.validation import check_integer

MAX_COUNT = 2**53


@dataclass
class _Waiting:
    """An observation in the queue of a `LateLabels`."""

    id: str | int
    x: Any
    y: Any
    time: float | None
    used: bool | None


class QueueFullError(ValueError):
    """The queue holds as many examples as it may."""


class LateLabels:
    """A queue in front of a monitor, for examples whose labels come later.

    Call ``observe`` when an example is observed, and ``label`` with the same id when its label arrives.
    Each returns the examples that were tested as a result, as pairs of id and `Step`. Examples are tested in the order
    in which they were observed: all examples behind one without a label wait too.

    An example whose label comes more than ``wait`` after its observation is left out. ``wait`` is a number of seconds,
    a ``timedelta``, or "forever", with which nothing is left out. Times are numbers of seconds, or dates and times with
    a UTC offset (``datetime`` or ISO 8601 text). They must come from one clock, and are required with each observation
    and label unless ``wait`` is "forever". Pass events in time order: an example expires once it is first in the queue
    and an event has come that is more than ``wait`` later. A label that came within ``wait`` but is passed after
    that cannot be used; ``left_out.undelivered`` counts it.

    The guarantee of the alarm holds if the delay of a label depends on its own example only. If delays lengthen with
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

    def __init__(self, monitor: Any, *, wait: float | timedelta | str = "forever", most: int = 10_000) -> None:
        if not isinstance(monitor, Monitor) and not hasattr(monitor, "start_run"):  # or the lines of a TableMonitor
            raise ValueError(f"monitor must be a Monitor, got {monitor!r:.80}")
        self.monitor = monitor
        self.wait: float = _duration(wait)
        self.most: int = check_integer("most", most, 1, MAX_COUNT)
        self.left_out: LeftOut = LeftOut()
        self._latest: float | None = None
        self._queue: OrderedDict[str | int, _Waiting] = OrderedDict()
        self._tested: OrderedDict[str | int, None] = OrderedDict()  # the latest, so that none is tested twice
        self._expired: OrderedDict[str | int, float | None] = OrderedDict()  # times of observation, no label yet

    def __repr__(self) -> str:
        wait = "forever" if self.wait == math.inf else self.wait
        return f"LateLabels({self.monitor!r}, wait={wait!r}, most={self.most})"

    @property
    def waiting(self) -> list[str | int]:
        """The ids of the waiting examples, in order."""
        return list(self._queue)

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee of the alarm, with its conditions if examples were left out."""
        return self.left_out.guarantee(self.monitor.guarantee, self.wait)

    def observe(self, id: str | int, x: Any, y: Any = None, *, time: Any = None) -> list[tuple[str | int, Step]]:  # noqa: A002
        """Add an example, with or without its label; return the examples that were tested as a result."""
        id = _check_id(id)  # noqa: A001
        if self.knows(id):
            raise ValueError(f"id must differ from those of other examples, got {id!r:.80} again")
        at = self._time(time, self._latest, needed=y is None)
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
            raise ValueError(f"y must be the label of example {id!r:.80}, got None; call never(id) if it never comes")
        id = _check_id(id)  # noqa: A001
        at = self._time(time, self._latest, needed=True)
        if id in self._expired:
            in_time = delay(self._expired[id], at) <= self.wait
            released = self._release(at)
            self._expired.pop(id, None)
            self.left_out.count(y, in_time=in_time)
            return released
        example = self._find(id)
        if example.used is not None:
            raise ValueError(f"id must be that of an example without a label, got {id!r:.80}, which has one")
        in_time = delay(example.time, at) <= self.wait
        released = self._decide(example, y, in_time, at)
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

    def restart(self, monitor: Any) -> LateLabels:
        """Return a queue in front of another monitor that knows the ids and counts of this one; no example waits."""
        queue = copy.copy(self)
        queue.monitor, queue._queue = monitor, OrderedDict()
        return queue

    # -------------------------------------------------------------- details

    def knows(self, id: str | int) -> bool:  # noqa: A002
        """Return whether an example has this id, as far as it is remembered."""
        return id in self._queue or id in self._expired or id in self._tested

    def lacks_label(self, id: str | int) -> bool:  # noqa: A002
        """Return whether the label of an example can be added, even if only to be counted."""
        return id in self._expired or (id in self._queue and self._queue[id].used is None)

    @property
    def known(self) -> int:
        """The number of ids that are remembered."""
        return len(self._queue) + len(self._expired) + len(self._tested)

    def check_times(self, times: Sequence[Any], needed: Sequence[bool]) -> list[float | None]:
        """Check the times of examples that are to be observed in this order; return them in seconds."""
        found, latest = [], self._latest
        for time, need in zip(times, needed, strict=True):
            found.append(self._time(time, latest, needed=need))
            latest = _later(latest, found[-1])
        return found

    def only_waits(self, y: Any, time: float | None) -> bool:
        """Return whether the next example would be added to the queue, and nothing else would happen."""
        queue = chain(self._queue.values(), [_Waiting("", None, y, time, None if y is None else True)])
        decided = next(decide(queue, _later(self._latest, time), self.wait), None)
        return decided is None and len(self._queue) < self.most

    def _time(self, time: Any, latest: float | None, *, needed: bool) -> float | None:
        if time is None and (not needed or self.wait == math.inf):
            return None
        return seconds(time) if self.wait == math.inf else check_near(seconds(time), latest)

    def _find(self, id: str | int) -> _Waiting:  # noqa: A002
        id = _check_id(id)  # noqa: A001
        if id not in self._queue:
            raise ValueError(f"id must be that of a waiting example, got {id!r:.80}")
        return self._queue[id]

    def _check_room(self, new: _Waiting) -> None:
        if len(self._queue) < self.most:
            return
        queue = chain(self._queue.values(), [new])
        if len(self._queue) + 1 - sum(1 for _ in decide(queue, _later(self._latest, new.time), self.wait)) > self.most:
            expected = f"the queue must hold at most {self.most} waiting examples"
            raise QueueFullError(f"{expected}, and is full: observe {new.id!r:.80} again when labels have come")

    def _decide(self, example: _Waiting, y: Any, used: bool, time: float | None) -> list[tuple[str | int, Step]]:
        """Use an example, or leave it out."""
        before = example.y, example.used
        example.y, example.used = y, used
        try:
            released = self._release(time)
        except Exception:
            example.y, example.used = before
            raise
        if not used:
            self._queue.pop(example.id, None)
        return released

    def _release(self, time: float | None) -> list[tuple[str | int, Step]]:
        """Test the decided examples at the head of the queue."""
        latest = _later(self._latest, time)
        decisions = list(decide(self._queue.values(), latest, self.wait))
        used = [example for example, used in decisions if used]
        steps = self._test(used)
        for example, tested in decisions:
            del self._queue[example.id]
            if tested:
                _remember(self._tested, example.id, None, self.most)
            elif example.used is None:
                self.left_out.expired += 1
                _remember(self._expired, example.id, example.time, self.most)
        self._latest = latest
        return [(example.id, step) for example, step in zip(used, steps, strict=True)]

    def _test(self, examples: list[_Waiting]) -> list[Step]:
        """Test all of them, or none if the monitor rejects one."""
        if not examples:
            return []
        try:
            if len(examples) == 1:
                return [self.monitor.update(examples[0].x, examples[0].y)]
            path = self.monitor.extend([example.x for example in examples], [example.y for example in examples])
        except ValueError as error:
            rejected = self._first_rejected(examples).id
            message = f"example {rejected!r:.80} cannot be tested, and never({rejected!r:.80}) leaves it out: {error}"
            raise ValueError(message) from error
        columns = (path.n.tolist(), path.p.tolist(), path.log_value.tolist(), path.alarm.tolist())
        return [Step(*row) for row in zip(*columns, strict=True)]

    def _first_rejected(self, examples: list[_Waiting]) -> _Waiting:
        twin = copy.deepcopy(self.monitor)
        for example in examples:
            try:
                twin.update(example.x, example.y)
            except ValueError:
                break
        return example

    # -------------------------------------------------------------- snapshots

    def _get_state(self) -> dict[str, Any]:
        return {
            "monitor": self.monitor,
            "wait": self.wait,
            "most": self.most,
            "latest": self._latest,
            "queue": [(example.id, example.x, example.y, example.time) for example in self._queue.values()],
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
        labels = cls(monitor, wait="forever" if wait == math.inf else wait, most=most)
        labels._latest = _stored_time("latest", latest, math.inf)
        for id, x, y, time in _rows("queue", queue, 4, labels.most):  # noqa: A001
            observed = _stored_time("time", time, labels.wait if y is None else math.inf)
            labels._queue[_check_id(id)] = _Waiting(id, x, y, observed, None if y is None else True)
        for id, time in _rows("expired", expired, 2, labels.most):  # noqa: A001
            labels._expired[_check_id(id)] = _stored_time("time", time, labels.wait)
        if type(tested) is not list or len(tested) > labels.most:
            raise ValueError(f"tested must be a list of at most {labels.most} ids")
        labels._tested = OrderedDict.fromkeys(map(_check_id, tested))
        labels.left_out = _stored_counts(left_out)
        return labels


def _check_id(id: Any) -> str | int:  # noqa: A002
    """Check an id, and return it as a plain string or integer, which can be saved."""
    if isinstance(id, bool) or not isinstance(id, (str, int, np.integer)):
        raise ValueError(f"id must be a string or an integer, got {id!r:.80}")
    return str(id) if isinstance(id, str) else int(id)


def _later(latest: float | None, time: float | None) -> float | None:
    """Return the later of two times, of which either may be missing."""
    return latest if time is None else time if latest is None else max(latest, time)


V = TypeVar("V")


def _remember(known: OrderedDict[str | int, V], key: str | int, value: V, most: int) -> None:
    """Add an item, and drop the oldest if there are more than ``most``."""
    known[key] = value
    if len(known) > most:
        known.popitem(last=False)


def _duration(wait: Any) -> float:
    """Convert a wait to seconds; inf means forever."""
    if isinstance(wait, str) and wait == "forever":
        return math.inf
    value = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if not is_number(value) or not 0.0 < value < math.inf:
        raise ValueError(f"wait must be a number of seconds above 0, a timedelta, or 'forever', got {wait!r:.80}")
    return float(value)


def _rows(name: str, rows: Any, width: int, most: int) -> list[tuple[Any, ...]]:
    if type(rows) is not list or len(rows) > most:
        raise ValueError(f"{name} must be a list of at most {most} items")
    if any(type(row) is not tuple or len(row) != width for row in rows):
        raise ValueError(f"{name} must hold tuples of length {width}")
    return rows


def _stored_time(name: str, time: Any, wait: float) -> float | None:
    """Check a time from a snapshot; it may be missing if the wait is infinite."""
    if time is None and wait == math.inf:
        return None
    if type(time) is not float or not math.isfinite(time):
        raise ValueError(f"{name} must be a number of seconds, got {time!r:.80}")
    return time


def _stored_counts(counts: Any) -> LeftOut:
    """Check the counts from a snapshot."""
    if type(counts) is not dict or counts.keys() != {field.name for field in fields(LeftOut)}:
        raise ValueError("left_out must hold the counts of examples that were left out")
    classes = counts["classes"]
    if type(classes) is not dict or len(classes) > CLASSES + 1 or not all(type(name) is str for name in classes):
        raise ValueError(f"left_out.classes must count at most {CLASSES + 1} labels")
    for name, count in [*counts.items(), *classes.items()]:
        if count is not classes:
            check_integer(f"left_out {name!r:.80}", count, 0, MAX_COUNT)
    return LeftOut(**{**counts, "classes": dict(classes)})
