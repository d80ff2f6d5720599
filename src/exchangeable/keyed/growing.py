"""Tables that are changed in place: a change costs its own rows, not all rows.

A change has two parts. ``prepare`` makes room, which may fail, and changes no row. It returns a function that writes
the rows; calling it twice has the same effect as calling it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.keyed.ragged import Ragged
from exchangeable.protocols import Integers

Write = Callable[[], None]


class Table:
    """Rows of one width. Adding a row costs O(1) on average.

    >>> table = Table(np.array([1.0, 2.0]))
    >>> table.take(np.array([1, -1]), 7.0)
    array([2., 7.])
    >>> table.prepare(np.array([0, 2]), np.array([5.0, 3.0]))()
    >>> table.rows
    array([5., 2., 3.])
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self._buffer = rows
        self._count = len(rows)

    @property
    def rows(self) -> NDArray[Any]:
        """All rows: a view."""
        return self._buffer[: self._count]

    def take(self, positions: Integers, fresh: Any) -> NDArray[Any]:
        """Copy the rows at these positions; where there is no row (-1, or beyond the end), it is ``fresh``."""
        unknown = (positions < 0) | (positions >= self._count)
        if self._count and not unknown.any():
            return self._buffer.take(positions, axis=0)
        rows = np.empty((len(positions), *self._buffer.shape[1:]), self._buffer.dtype)
        rows[~unknown], rows[unknown] = self._buffer[positions[~unknown]], fresh
        return rows

    def prepare(self, positions: Integers, rows: NDArray[Any]) -> Write:
        """Make room, and return a function that writes these rows; positions beyond the end are new rows."""
        count = max(self._count, int(positions.max(initial=-1)) + 1)
        if count > len(self._buffer) or not self._buffer.flags.writeable:
            self._buffer = self._with_room(count)
        buffer = self._buffer

        def write() -> None:
            buffer[positions] = rows
            self._count = count

        return write

    def _with_room(self, count: int) -> NDArray[Any]:
        room = count if count == self._count else max(count, 3 * self._count // 2)
        buffer = np.empty((room, *self._buffer.shape[1:]), self._buffer.dtype)
        buffer[: self._count] = self.rows
        return buffer


class RaggedTable:
    """Rows of different lengths. A row that has outgrown its place moves to the end, and gets room for half as much."""

    def __init__(self, rows: Ragged) -> None:
        self._places = Table(np.stack([rows.start, rows.used, rows.used], axis=1))  # start, used, room
        self._columns = rows.columns
        self._end = len(rows.columns[0])

    def rows(self) -> Ragged:
        """Copy all rows, end to end."""
        return self.take(np.arange(len(self._places.rows)), np.int64(0))

    def take(self, positions: Integers, room: Integers | np.int64) -> Ragged:
        """Copy the rows at these positions, with room to grow; -1 gives an empty row."""
        start, used, _ = np.ascontiguousarray(self._places.take(positions, 0).T)
        return Ragged(start, used, self._columns).copy(np.broadcast_to(room, used.shape))

    def lengths(self, positions: Integers) -> Integers:
        """Return the lengths of the rows at these positions."""
        return np.ascontiguousarray(self._places.take(positions, 0)[:, 1])

    def with_room(self, positions: Integers, used: Integers) -> RaggedTable:
        """Return a table with room for rows of these lengths: this one, or a copy without the places left behind."""
        room = self._rooms(positions, used)[1]
        if self._end + room <= len(self._columns[0]):
            return self
        start, lengths, rooms = np.ascontiguousarray(self._places.rows.T)
        total = int(rooms.sum()) + room
        spare = total // 2 if len(rooms) else 0
        copied = Ragged(start, lengths, self._columns).copy(rooms - lengths, total + spare)
        other = RaggedTable(copied)
        other._places = Table(np.stack([copied.start, lengths, rooms], axis=1))
        other._end = int(rooms.sum())
        return other

    def _rooms(self, positions: Integers, used: Integers) -> tuple[Integers, int]:
        """Return the room of each row, and the total of those that move to the end."""
        room = np.ascontiguousarray(self._places.take(positions, 0)[:, 2])
        moved = used > room
        room[moved] = np.where(room > 0, used + used // 2, used)[moved]
        return room, int(room[moved].sum())

    def prepare(self, positions: Integers, rows: Ragged) -> Write:
        """Return a function that writes these rows, for which there must be room (see ``with_room``)."""
        places = self._places.take(positions, 0)
        room, total = self._rooms(positions, rows.used)
        moved, end, columns = room > places[:, 2], self._end + total, self._columns
        places[moved, 0] = self._end + np.cumsum(room[moved]) - room[moved]
        places[:, 1], places[:, 2] = rows.used, room
        start, write_places = np.ascontiguousarray(places[:, 0]), self._places.prepare(positions, places)

        def write() -> None:
            rows.write(start, columns)
            write_places()
            self._end = end

        return write
