"""The events of one call: validation and sorting of their columns, and the rows that report on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable.keyed import keys as key_columns
from exchangeable.keyed import sequence
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.report import Rows, Steps
from exchangeable.keyed.sequence import FULL, Classified, Events, History
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_numbers, format_value


class EventColumns(NamedTuple):
    """The columns of a call, in the order of the caller."""

    order: Integers
    x: Floats
    content: Integers
    bad: NDArray[np.bool_]

    def sort(self, code: Integers, keys: int) -> Events:
        """Sort the events by the number of their key, their own number, and whether they are bad."""
        source = np.lexsort((self.bad, self.order, code))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=keys))])
        return Events(bounds, self.order[source], self.x[source], self.content[source], self.bad[source], source)


def validate(
    count: int, order: ArrayLike, x: ArrayLike, refused: ArrayLike | None, content: ArrayLike | None
) -> EventColumns:
    """Validate the columns of ``count`` events."""
    values = _column("x", check_numbers("x", x, "be a one-dimensional array of numbers"), "f", "numbers", count)
    bad = np.zeros(count, np.bool_) if refused is None else _column("refused", refused, "b", "booleans", count)
    contents = np.zeros(count, np.int64) if content is None else _integers("content", content, count)
    return EventColumns(_integers("order", order, count), values, contents, bad.astype(np.bool_))


def _integers(name: str, values: ArrayLike, count: int) -> Integers:
    column = _column(name, values, "iu", "64-bit integers", count)
    if column.dtype.kind == "u" and column.max(initial=0) >= 2**63:
        raise ValueError(f"{name} must be signed 64-bit integers, got {column.max()}")
    return column.astype(np.int64)


def _column(name: str, values: ArrayLike, kinds: str, expected: str, count: int) -> NDArray[Any]:
    column = np.asarray(values)
    if column.ndim != 1 or (column.size and column.dtype.kind not in kinds):
        raise ValueError(f"{name} must be a one-dimensional array of {expected}, got {format_value(values)}")
    if len(column) != count:
        raise ValueError(f"{name} must be as long as keys, {count}, got {len(column)}")
    return column


def classify(events: Events, new: NDArray[np.bool_], contiguous: bool, rows: Columns) -> Classified:
    """Classify the events by the numbers that the rows, one for each key, have seen before; the rows are updated."""
    used = rows.spans.used // 2
    history = History(new, rows.integers, rows.spans.columns[0], used)
    classified = sequence.classify(events, history, contiguous=contiguous)
    rows.spans.used[:] = 2 * used
    return classified


def build_rows(names: Any, events: Events, classified: Classified, accepted: Integers, steps: Steps) -> Rows:
    """Return the rows of events and gaps. The events at ``accepted`` became these steps."""
    key, event, kind, order, count, row = sequence.unfold(events, classified)
    full, at = Steps.blank(len(key)), row[accepted]
    full.put(at, steps, np.arange(len(at)))
    kind[at[steps.n < 0]] = FULL
    n, p, log_value, alarm, changepoint, test = full
    source, unsure = np.append(events.source, -1)[event], np.append(classified.unsure, False)[event]
    named = key_columns.to_numpy(names)[key]
    return Rows(named, order, kind, n, p, log_value, alarm, changepoint, count, test, source, unsure)
