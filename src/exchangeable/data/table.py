"""A table ready for a measure."""

from __future__ import annotations

from typing import NamedTuple

from exchangeable.protocols import Floats

MAX_CATEGORIES = 1000  # of one column
MAX_EXACT_INTEGER = 2**53  # float64 holds every integer up to here


class TableColumn(NamedTuple):
    """A column of the data; the features ``start`` to ``stop - 1`` come from it, several if it is categorical."""

    name: str
    start: int
    stop: int
    categorical: bool


class Table(NamedTuple):
    """Features and labels of n examples, with the columns that they come from.

    Classes are a list of scalars, real-valued labels an array; without labels ``y`` is None.
    """

    X: Floats  # n x d, finite
    y: list[object] | Floats | None
    features: list[str]  # d names
    name: str  # of the table
    columns: list[TableColumn]
    label: str | None = None  # the name of the labels
