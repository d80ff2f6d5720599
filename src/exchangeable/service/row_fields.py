"""Which keys of a plain row are columns of its table, and which are the number, the id and the time of the row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from exchangeable.data.errors import list_names
from exchangeable.data.events.errors import LineError
from exchangeable.data.events.schema import TableRow, to_row
from exchangeable.table_monitor.constants import Constants

FIELDS = ("seq", "id", "time")


class RowFields(NamedTuple):
    """The columns of the table of a stream. A column of the reference is always a column; other keys may be fields.

    >>> fields = RowFields({"size": None, "id": frozenset({"a", "b"})}, frozenset({"size", "id"}), created=0.0)
    >>> fields.separate({"size": 1.5, "id": "a", "seq": 7}, 1)
    TableRow(row={'size': 1.5, 'id': 'a'}, seq=7, id=None, time=None)
    """

    categories: Mapping[str, frozenset[str] | None]  # of the columns that are tested and of the label; None: numbers
    columns: frozenset[str]  # all of the reference
    created: float  # when the stream was created

    @classmethod
    def of(cls, schema: Constants, created: float) -> RowFields:
        """Return the columns of a reference."""
        known = [*schema.columns, *(() if schema.label is None else (schema.label,))]
        categories = {c.name: None if c.categories is None else frozenset(c.categories) for c in known}
        return cls(categories, schema.allowed, created)

    @property
    def fields(self) -> list[str]:
        """The keys that are not columns."""
        return [name for name in FIELDS if name not in self.columns]

    def check(self, names: Collection[str], number: int) -> None:
        """Raise unless one of the names is a column: a row of other things would be a row of missing values."""
        if self.columns.isdisjoint(names):
            rule = f"must name columns of the reference ({list_names(sorted(self.columns))})"
            raise LineError(number, f"{rule}, got {list_names([*names]) if names else 'none'}")

    def separate(self, cells: dict[str, Any], number: int) -> TableRow:
        """Return a row with its fields; ``number`` is its position in the request."""
        self.check(cells, number)
        fields = {name: cells[name] for name in self.fields if name in cells}
        if not fields:
            return TableRow(row=cells)
        return to_row({name: cell for name, cell in cells.items() if name not in fields}, fields, number)
