"""Tables whose rows have different lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Integers


class Ragged(NamedTuple):
    """Rows of different lengths: row t is items ``start[t] .. start[t] + used[t] - 1`` of each column.

    The columns are of int64 or float64.

    >>> ragged = Ragged.of(np.array([2, 1]), np.array([7, 8, 9]))
    >>> few = ragged.take(np.array([1, -1]), np.array([1, 1]))  # the second row and a new one, with room for one more
    >>> few
    Ragged(start=array([0, 2]), used=array([1, 0]), columns=(array([9, 0, 0]),))
    >>> few.columns[0][few.start[1]], few.used[1] = 5, 1
    >>> ragged.put(np.array([1, 2]), few)
    Ragged(start=array([0, 2, 3]), used=array([2, 1, 1]), columns=(array([7, 8, 9, 5]),))
    """

    start: Integers
    used: Integers
    columns: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, lengths: Integers, *columns: NDArray[Any]) -> Ragged:
        """Return a table whose rows have these lengths and lie end to end."""
        return cls(np.cumsum(lengths) - lengths, lengths, columns)

    def take(self, positions: Integers, room: Integers) -> Ragged:
        """Copy the rows at these positions, with room to grow; a position of -1 gives a new row. O(their lengths)."""
        known = positions >= 0
        used = np.zeros(len(positions), np.int64)
        used[known] = self.used[positions[known]]
        start, total = np.cumsum(used + room) - (used + room), int((used + room).sum())
        columns = tuple(np.zeros(total, column.dtype) for column in self.columns)
        for column, copy in zip(self.columns, columns, strict=True):
            native.keyed_take_rows(_bits(column), self.start, self.used, positions[known], start[known], _bits(copy))
        return Ragged(start, used, columns)

    def put(self, positions: Integers, rows: Ragged) -> Ragged:
        """Return a copy of all rows, end to end, with these at the positions, which may be beyond the end. O(all)."""
        old, count = len(self.used), max(len(self.used), int(positions.max(initial=-1)) + 1)
        changed, used, start = np.full(count, -1), np.zeros(count, np.int64), np.zeros(count, np.int64)
        changed[positions] = np.arange(len(positions))
        used[:old], start[:old] = self.used, self.start
        used[positions] = rows.used
        columns = tuple(np.empty(used.sum(), column.dtype) for column in self.columns)
        for column, new, out in zip(self.columns, rows.columns, columns, strict=True):
            native.keyed_put_rows(_bits(column), start, changed, _bits(new), rows.start, used, _bits(out))
        return Ragged.of(used, *columns)


def _bits(column: NDArray[Any]) -> Integers:
    """View a column as int64, since rows are copied bit by bit, whatever their type."""
    return column.view(np.int64)


def with_rows(table: NDArray[Any], positions: Integers, rows: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of the table with these rows at the positions, which may be beyond the end.

    >>> with_rows(np.array([1, 2]), np.array([1, 2]), np.array([3, 4]))
    array([1, 3, 4])
    """
    out = np.empty((max(len(table), int(positions.max(initial=-1)) + 1), *table.shape[1:]), table.dtype)
    out[: len(table)] = table
    out[positions] = rows
    return out
