"""Rows of different lengths, stored end to end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Integers


class Ragged(NamedTuple):
    """Rows of different lengths: row t is items ``start[t] .. start[t] + used[t] - 1`` of each column.

    The columns are of int64 or float64.

    >>> ragged = Ragged.of(np.array([2, 1]), np.array([7, 8, 9])).copy(np.array([0, 1]))  # room for one more
    >>> ragged
    Ragged(start=array([0, 2]), used=array([2, 1]), columns=(array([7, 8, 9, 0]),))
    """

    start: Integers
    used: Integers
    columns: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, lengths: Integers, *columns: NDArray[Any]) -> Ragged:
        """Return a table whose rows have these lengths and lie end to end."""
        return cls(np.cumsum(lengths) - lengths, lengths, columns)

    def copy(self, room: Integers, total: int | None = None) -> Ragged:
        """Copy the rows end to end, with room to grow, into columns of at least ``total`` items. O(their lengths)."""
        size = self.used + room
        copied = Ragged(np.cumsum(size) - size, self.used.copy(), self._blank(max(int(size.sum()), total or 0)))
        self.write(copied.start, copied.columns)
        return copied

    def _blank(self, total: int) -> tuple[NDArray[Any], ...]:
        return tuple(np.zeros(total, column.dtype) for column in self.columns)

    def write(self, start: Integers, columns: tuple[NDArray[Any], ...]) -> None:
        """Write row t to ``start[t]`` of other columns."""
        rows = np.arange(len(self.used))
        for mine, other in zip(self.columns, columns, strict=True):
            native.keyed_take_rows(_bits(mine), self.start, self.used, rows, start, _bits(other))


def _bits(column: NDArray[Any]) -> Integers:
    """View a column as int64, since rows are copied bit by bit, whatever their type."""
    return column.view(np.int64)
