"""Batches of sorted rows, as an executor gets them: what belongs together, and the examples that are lawful."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exchangeable.protocols import Floats, Integers

ROW_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)  # of a score: the row's fault, not the machine's

Flags = NDArray[np.bool_]


class Groups(NamedTuple):
    """The rows of a batch by key and order: where each group starts, and what it holds."""

    start: Integers
    lawful: Integers  # rows
    conflict: Flags  # the lawful rows differ, or one is not lawful
    ordered: Flags

    def first(self, count: int) -> Groups:
        """The first so many."""
        return Groups(self.start[:count], self.lawful[:count], self.conflict[:count], self.ordered[:count])

    @property
    def taken(self) -> Flags:
        """Where one row is bet on."""
        return (self.lawful > 0) & ~self.conflict

    @property
    def repeats(self) -> Integers:
        """Rows that are like another that is bet on."""
        return np.where(self.taken, self.lawful - 1, 0)

    @property
    def contested(self) -> Integers:
        """Lawful rows that are not bet on."""
        return np.where(self.conflict, self.lawful, 0)


class Held(NamedTuple):
    """The rows of the last key and order so far, to which the next batch may add."""

    row: Any  # a batch of one row
    lawful: int
    conflict: bool


def grouped(rows: Any, same_key: Flags, held: Held | None) -> Groups:
    """The groups of sorted rows, the first of which may stand for those that were held."""
    bad = rows["bad"]
    unordered = starts(bad, "order ")
    _check_sorted(rows, same_key, unordered)
    same = same_key & same_as_before(rows["order"]) & (unordered[1:] == unordered[:-1])
    lawful = flags(bad.is_null()).astype(np.int64)
    conflict = lawful == 0
    again = np.flatnonzero(same) + 1
    if again.size:
        conflict[again] |= ~_alike(rows, again)
    if held is not None:
        lawful[0], conflict[0] = held.lawful, held.conflict
    start = np.flatnonzero(np.concatenate([[True], ~same]))
    return Groups(start, np.add.reduceat(lawful, start), np.logical_or.reduceat(conflict, start), ~unordered[start])


def last_of(rows: Any, groups: Groups) -> Held:
    """The last group. Of several lawful rows one will do: either they are alike, or none of them is taken."""
    start = int(groups.start[-1])
    row = rows.slice(start + int(flags(rows["bad"].slice(start).is_null()).argmax()), 1)
    return Held(joined(row, row.slice(0, 0)), int(groups.lawful[-1]), bool(groups.conflict[-1]))


def _check_sorted(rows: Any, same_key: Flags, unordered: Flags) -> None:
    """What Spark has been asked for; without it numbers would be wrong."""
    backwards = _less(rows["key"]) | (same_key & (unordered[1:] < unordered[:-1]))
    backwards |= same_key & ~unordered[1:] & _less(rows["order"])
    if backwards.any():
        raise RuntimeError("rows must come sorted by key and order, got others: please report this as a bug")


def _alike(rows: Any, at: Integers) -> Flags:
    """Whether the rows at these places have the example of the row before."""
    here, before = rows.take(pa.array(at)), rows.take(pa.array(at - 1))
    x, other = here["x"], before["x"]
    if pa.types.is_floating(x.type):
        alike = flags(pc.equal(x, other))
    else:
        pairs = zip(x.to_pylist(), other.to_pylist(), strict=True)
        alike = np.fromiter((one == two for one, two in pairs), np.bool_, len(at))
    return alike & flags(pc.equal(here["y"], before["y"])) if "y" in rows.schema.names else alike


class Examples:
    """The examples of a batch that are bet on, in order: numbers, or rows of numbers; and their labels."""

    def __init__(self, rows: Any, at: Integers) -> None:
        self.at = at
        self._orders = rows["order"]
        x, where = rows["x"], pa.array(at)
        chosen = x if len(at) == len(x) else x.take(where)
        many = pa.types.is_list(x.type) or pa.types.is_large_list(x.type)
        numbers = chosen.flatten() if many else chosen
        self.numbers: Floats = numbers.to_numpy().copy()  # a score function may write into its rows
        self._ends = np.concatenate([[0], np.cumsum(_lengths(chosen))]) if many else None
        self._labels = _labels(rows["y"].take(where)) if "y" in rows.schema.names else None

    def order(self, at: int) -> Any:
        """Of one example, as an array of one."""
        return self._orders.slice(self.at[at], 1)

    def fitting(self, width: int | None, first: int, stop: int) -> Iterator[slice | tuple[int, str]]:
        """The examples as pieces of this width, or the first's; those that are not of it, by place and sentence."""
        if self._ends is None:
            yield slice(first, stop)
            return
        widths = np.diff(self._ends[first : stop + 1])
        width = int(widths[0]) if width is None else width
        wrong = np.flatnonzero(widths != width) + first
        for at in wrong.tolist():
            if at > first:
                yield slice(first, at)
            law = f"x must hold {width} numbers, as many as the first row of its stream"
            yield at, f"{law}, got {widths[at - stop]}"
            first = at + 1
        if first < stop:
            yield slice(first, stop)

    def even(self, first: int, stop: int) -> bool:
        """Whether the examples ``first .. stop - 1`` are of one width."""
        return self._ends is None or bool((np.diff(self._ends[first : stop + 1]) == self.width(first)).all())

    def width(self, at: int) -> int | None:
        """Of one example that is a row of numbers."""
        return None if self._ends is None else int(self._ends[at + 1] - self._ends[at])

    def piece(self, first: int, stop: int) -> tuple[Floats, Any]:
        """X and y of the examples ``first .. stop - 1``, which are of one width."""
        y = None if self._labels is None else self._labels[first:stop]
        if self._ends is None:
            return self.numbers[first:stop], y
        return self.numbers[self._ends[first] : self._ends[stop]].reshape(stop - first, -1), y


# ------------------------------------------------------------------ columns of Arrow


def of_the_row(error: ValueError) -> bool:
    """Whether a refusal is the row's fault; what a score raised may be the machine's, and another attempt's luck.

    >>> of_the_row(ValueError("x must be a finite number"))
    True
    """
    return error.__cause__ is None or isinstance(error.__cause__, ROW_ERRORS)


def flags(column: Any) -> Flags:
    """As an array that can be written."""
    return np.array(column.to_numpy(zero_copy_only=False), np.bool_)


def joined(first: Any, second: Any) -> Any:
    """One batch of two, in memory of its own."""
    columns = [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, first.schema.names)


def same_as_before(column: Any) -> Flags:
    """Whether each value, from the second on, is the one before."""
    return flags(pc.equal(column[1:], column[:-1]))


def _less(column: Any) -> Flags:
    return flags(pc.less(column[1:], column[:-1]))


def starts(bad: Any, words: str) -> Flags:
    """Which rows have a sentence that starts with these words."""
    if bad.null_count == len(bad):
        return np.zeros(len(bad), np.bool_)
    return flags(pc.starts_with(bad, words).fill_null(False))


def orders_of(rows: Any, words: str) -> Any:
    """The orders, null where the sentence starts with these words: there is none."""
    return pc.if_else(pa.array(starts(rows["bad"], words)), pa.scalar(None, rows["order"].type), rows["order"])


def whole_orders(rows: Any, at: Integers) -> Integers | None:
    """Orders that are integers; None where they are others."""
    orders = rows["order"]
    return orders.take(pa.array(at)).cast(pa.int64()).to_numpy() if pa.types.is_integer(orders.type) else None


def text(order: Any) -> str:
    """An order as it is told."""
    return str(order.cast(pa.string()).as_py())


def _lengths(lists: Any) -> Integers:
    lengths: Integers = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


def _labels(labels: Any) -> Any:
    """Text as a list, numbers as an array."""
    if pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
        return labels.to_pylist()
    return labels.to_numpy(zero_copy_only=False).copy()
