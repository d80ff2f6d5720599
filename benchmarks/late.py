"""Streams whose labels come late, as events in time order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exchangeable import LateLabels, Monitor, Step
from exchangeable.protocols import Floats

HOUR = 3600.0


class Event(NamedTuple):
    """Something that happens to example ``i``; ``kind`` is "observe" or "label"."""

    time: float
    kind: str
    i: int


def in_order(observed: Any, delays: Any) -> list[Event]:
    """Observations and labels in time order, observations first among equal times. A delay of inf is no label."""
    rows = list(zip(np.asarray(observed, float).tolist(), np.asarray(delays, float).tolist(), strict=True))
    made = [Event(time, "observe", i) for i, (time, _) in enumerate(rows)]
    made += [Event(time + late, "label", i) for i, (time, late) in enumerate(rows) if late < np.inf]
    return sorted(made, key=lambda event: (event.time, event.kind != "observe", event.i))


def fraud(seed: int | np.random.Generator, slow: int = 800, fast: int = 2200) -> tuple[Floats, list[str], list[Event]]:
    """I.i.d. examples, 200 an hour and then 3,000 an hour. Fraud is confirmed an hour later than "no fraud" is."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(HOUR, slow + fast)
    gaps /= np.where(np.arange(slow + fast) < slow, 200.0, 3000.0)
    is_fraud = rng.random(slow + fast) < 0.2
    x = rng.normal(size=(slow + fast, 2)) + 3.0 * is_fraud[:, None]
    delays = rng.exponential(0.05 * HOUR, slow + fast) + HOUR * is_fraud
    return x, np.where(is_fraud, "fraud", "none").tolist(), in_order(np.cumsum(gaps), delays)


def played(
    queue: LateLabels, x: Any, y: list[Any], events: list[Event], each: Callable[[LateLabels], LateLabels] = lambda q: q
) -> tuple[LateLabels, list[tuple[Any, Step]]]:
    """Pass events to a queue; return the queue and what it released. ``each`` may replace the queue after an event."""
    released: list[tuple[Any, Step]] = []
    for time, kind, i in events:
        if kind == "observe":
            released += queue.observe(i, x[i], time=time)
        else:
            released += queue.label(i, y[i], time=time)
        queue = each(queue)
    return queue, released


def counted(monitor: Monitor, x: Any, y: list[Any], events: list[Event], wait: int) -> Monitor:
    """The rule of an earlier version, which is not valid: if more than ``wait`` observations wait, the first is left
    out."""
    queue: deque[int] = deque()
    labelled: set[int] = set()
    for _, kind, i in events:
        if kind == "observe":
            queue.append(i)
        else:
            labelled.add(i)
        while queue and (queue[0] in labelled or len(queue) > wait):
            if queue[0] in labelled:
                monitor.update(x[queue[0]], y[queue[0]])
            queue.popleft()
    return monitor
