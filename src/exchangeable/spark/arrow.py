"""Arrow record batches as an executor receives them: functions of columns, and examples as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from exchangeable.protocols import Floats, Integers
from exchangeable.spark.columns import NEITHER, NO_KEY, NO_ORDER

ROW_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)  # raised by a score because of the row

Flags = NDArray[np.bool_]


class Examples:
    """The examples at some rows of a batch: numbers, or rows of numbers, and their labels."""

    def __init__(self, rows: Any, at: Integers) -> None:
        self.at = at
        self._orders = rows["order"]
        x, where = rows["x"], pa.array(at)
        chosen = x if len(at) == len(x) else x.take(where)
        has_lists = pa.types.is_list(x.type) or pa.types.is_large_list(x.type)
        numbers = chosen.flatten() if has_lists else chosen
        self.numbers: Floats = numbers.to_numpy().copy()  # a score function may write into its rows
        self._ends = np.concatenate([[0], np.cumsum(_lengths(chosen))]) if has_lists else None
        self._labels = _labels(rows["y"].take(where)) if "y" in rows.schema.names else None

    def order(self, i: int) -> Any:
        """Return the order of example i as an array of length 1."""
        return self._orders.slice(self.at[i], 1)

    def split_by_width(self, width: int | None, first: int, stop: int) -> Iterator[slice | tuple[int, str]]:
        """Yield runs of examples of this width (None: that of the first), and the position and fault of all others."""
        if self._ends is None:
            yield slice(first, stop)
            return
        widths = np.diff(self._ends[first : stop + 1])
        width = int(widths[0]) if width is None else width
        for i in (np.flatnonzero(widths != width) + first).tolist():
            if i > first:
                yield slice(first, i)
            expected = f"x must hold {width} numbers, as many as the first row of its stream"
            yield i, f"{expected}, got {widths[i - stop]}"
            first = i + 1
        if first < stop:
            yield slice(first, stop)

    def have_one_width(self, first: int, stop: int) -> bool:
        """Return whether the examples ``first .. stop - 1`` have the same width."""
        return self._ends is None or bool((np.diff(self._ends[first : stop + 1]) == self.width(first)).all())

    def width(self, i: int) -> int | None:
        """Return the width of example i; None if it is a single number."""
        return None if self._ends is None else int(self._ends[i + 1] - self._ends[i])

    def arrays(self, first: int, stop: int) -> tuple[Floats, Any]:
        """Return X and y of the examples ``first .. stop - 1``, which must have the same width."""
        y = None if self._labels is None else self._labels[first:stop]
        if self._ends is None:
            return self.numbers[first:stop], y
        return self.numbers[self._ends[first] : self._ends[stop]].reshape(stop - first, -1), y


def is_row_error(error: ValueError) -> bool:
    """Return whether the row is at fault. Other errors of a score, such as a lost connection, may not occur again.

    >>> is_row_error(ValueError("x must be a finite number"))
    True
    """
    return error.__cause__ is None or isinstance(error.__cause__, ROW_ERRORS)


def flags(column: Any) -> Flags:
    """Return a Boolean column as a writable array."""
    return np.array(column.to_numpy(zero_copy_only=False), np.bool_)


def concatenate(first: Any, second: Any) -> Any:
    """Return one batch with the rows of both. It holds a copy, so the originals can be freed."""
    columns = [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, first.schema.names)


def equals_previous(column: Any) -> Flags:
    """Return whether each value, from the second on, equals the one before it."""
    return flags(pc.equal(column[1:], column[:-1]))


def below_previous(column: Any) -> Flags:
    """Return whether each value, from the second on, is less than the one before it."""
    return flags(pc.less(column[1:], column[:-1]))


def rows_equal(rows: Any, left: Integers, right: Integers) -> Flags:
    """Return whether the examples and labels at positions ``left`` and ``right`` are equal, pair by pair."""
    one, other = rows.take(pa.array(left)), rows.take(pa.array(right))
    if pa.types.is_floating(one["x"].type):
        equal = flags(pc.equal(one["x"], other["x"]))
    else:
        pairs = zip(one["x"].to_pylist(), other["x"].to_pylist(), strict=True)
        equal = np.fromiter((a == b for a, b in pairs), np.bool_, len(left))
    return equal & flags(pc.equal(one["y"], other["y"])) if "y" in rows.schema.names else equal


# ------------------------------------------------------------------ the column "bad": see `columns.validate`


def lacks_key(bad: Any) -> Flags:
    """Return which rows have no key."""
    return _starts_with(bad, NO_KEY)


def lacks_order(bad: Any) -> Flags:
    """Return which rows have no order."""
    return _starts_with(bad, NO_ORDER) | _starts_with(bad, NEITHER)


def _starts_with(bad: Any, prefix: str) -> Flags:
    if bad.null_count == len(bad):
        return np.zeros(len(bad), np.bool_)
    return flags(pc.starts_with(bad, prefix).fill_null(False))


def known_orders(rows: Any) -> Any:
    """Return the orders, null where a row has none."""
    none = pa.scalar(None, rows["order"].type)
    return pc.if_else(pa.array(lacks_order(rows["bad"])), none, rows["order"])


def format_order(order: Any) -> str:
    """Return an order, an Arrow scalar, as text."""
    return str(order.cast(pa.string()).as_py())


def _lengths(lists: Any) -> Integers:
    lengths: Integers = pc.list_value_length(lists).to_numpy().astype(np.int64)
    return lengths


def _labels(labels: Any) -> Any:
    """Return text as a list, numbers as an array."""
    if pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type):
        return labels.to_pylist()
    return labels.to_numpy(zero_copy_only=False).copy()
