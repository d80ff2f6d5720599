"""The events of a call: admitted, brought in order, and told apart by their sequence numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.keyed import keys as names_of
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.report import FULL, Rows, Steps
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_numbers, format_value


class Call(NamedTuple):
    """The columns of a call as they were given."""

    order: Integers
    x: Floats
    content: Integers
    bad: NDArray[np.bool_]


class Events(NamedTuple):
    """Events sorted by key, number, whether they are bad, and position; those of key t end at ``bounds[t + 1]``."""

    bounds: Integers
    order: Integers
    x: Floats
    content: Integers  # events of one number are alike if this and x are
    bad: NDArray[np.bool_]
    source: Integers  # their positions in the call

    @classmethod
    def sorted(cls, code: Integers, keys: int, given: Call) -> Events:
        """From columns in any order, with the number of the key of each."""
        source = np.lexsort((given.bad, given.order, code))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=keys))])
        return cls(bounds, given.order[source], given.x[source], given.content[source], given.bad[source], source)


class Told(NamedTuple):
    """What each event is by its number, and how many numbers are missing before it: see native/keyed.c."""

    kind: NDArray[np.int8]
    count: Integers  # type: ignore[assignment]
    missing: NDArray[np.uint64]
    unsure: NDArray[np.bool_]


def admitted(count: int, order: ArrayLike, x: ArrayLike, refused: ArrayLike | None, content: ArrayLike | None) -> Call:
    """Admit the columns of so many events."""
    values = _column("x", check_numbers("x", x, "be a one-dimensional array of numbers"), "f", "numbers", count)
    bad = np.zeros(count, np.bool_) if refused is None else _column("refused", refused, "b", "truth values", count)
    alike = np.zeros(count, np.int64) if content is None else _whole("content", content, count)
    return Call(_whole("order", order, count), values, alike, bad.astype(np.bool_))


def _whole(name: str, values: ArrayLike, count: int) -> Integers:
    given = _column(name, values, "iu", "integers of 64 bits", count)
    if given.dtype.kind == "u" and given.max(initial=0) >= 2**63:
        raise ValueError(f"{name} must be integers of 64 bits, with a sign, got {given.max()}")
    return given.astype(np.int64)


def _column(name: str, values: ArrayLike, kinds: str, law: str, count: int) -> NDArray[Any]:
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in kinds):
        raise ValueError(f"{name} must be a one-dimensional array of {law}, got {format_value(values)}")
    if len(given) != count:
        raise ValueError(f"{name} must be as long as keys, {count}, got {len(given)}")
    return given


def told(events: Events, fresh: NDArray[np.bool_], contiguous: bool, rows: Columns) -> Told:
    """What the events are, given what the rows, one for each key, have seen before; the rows learn it."""
    count = len(events.order)
    found = Told(
        np.empty(count, np.int8), np.ones(count, np.int64), np.zeros(count, np.uint64), np.zeros(count, np.bool_)
    )
    spans, used = rows.spans.columns[0], rows.spans.used // 2
    bounds, order, x, content, bad, _ = events
    native.keyed_sequence(bounds, order, x, content, bad, fresh, contiguous, rows.integers, spans, used, *found)
    rows.spans.used[:] = 2 * used
    return found


def reported(names: Any, events: Events, found: Told, accepted: Integers, steps: Steps) -> Rows:
    """The rows: of the events, where the ``accepted`` ones became these steps, and of gaps."""
    row = np.empty(len(events.order), np.int64)
    kind, count, missing, unsure = found
    room = 2 * len(events.order) + len(events.bounds)
    key, event, orders, counts = (np.empty(room, np.int64) for _ in range(4))
    kinds = np.empty(room, np.int8)
    end = native.keyed_unfold(events.bounds, events.order, kind, count, missing, row, key, event, kinds, orders, counts)
    key, event, kinds, orders, counts = key[:end], event[:end], kinds[:end], orders[:end], counts[:end]
    full, at = Steps.blank(len(key)), row[accepted]
    full.put(at, steps, np.arange(len(at)))
    kinds[at[steps.n < 0]] = FULL
    n, p, log_value, alarm, changepoint, test = full
    source, doubt = np.append(events.source, -1)[event], np.append(unsure, False)[event]
    named = names_of.objects(names)[key]
    return Rows(named, orders, kinds, n, p, log_value, alarm, changepoint, counts, test, source, doubt)
