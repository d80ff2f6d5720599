"""A table ready for tests: every column is numbers or categories, without missing values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats

Times = NDArray[np.datetime64]
Labels = list[object] | Floats


class TableColumn(NamedTuple):
    """A column: numbers, or categories by their codes."""

    name: str
    values: Floats  # finite numbers, or the codes 0, 1, ... of the categories
    categories: tuple[str, ...] | None = None  # sorted; None for numbers

    @property
    def categorical(self) -> bool:
        """Whether it holds categories."""
        return self.categories is not None

    @property
    def features(self) -> list[str]:
        """The names of its features: the column itself, or one feature of 0 and 1 for each category."""
        return [self.name] if self.categories is None else [f"{self.name}={category}" for category in self.categories]


class Table(NamedTuple):
    """Columns and labels of n examples, in the order in which they are tested.

    Classes are a list of scalars, real-valued labels an array; without labels ``y`` is None.
    """

    columns: list[TableColumn]
    y: Labels | None = None
    name: str = "the data"
    label: str | None = None  # the name of the labels
    times: Times | None = None  # the time of each example
    time_name: str | None = None  # the column that the times come from
    rows: NDArray[np.int64] | None = None  # row numbers in the data, from 1; None if they are 1 to n
    sorted_aside: int = 0  # columns that were set aside because they are sorted: their share of alpha stays unspent
    notes: tuple[str, ...] = ()
    treatments: Mapping[str, str] = MappingProxyType({})  # what was done with each column of the data, by its name
    indicators: Mapping[str, str] = MappingProxyType({})  # column of numbers -> the one that marks its missing values

    @property
    def n(self) -> int:
        """The number of examples."""
        return len(self.columns[0].values)

    @property
    def features(self) -> list[str]:
        """The names of all features, after one-hot encoding."""
        return [feature for column in self.columns for feature in column.features]

    def missing(self, name: str) -> NDArray[np.bool_] | None:
        """Return where the values of a column of numbers are missing, and filled in; None if none are."""
        indicator = self.indicators.get(name)
        return next((column.values == 1.0 for column in self.columns if column.name == indicator), None)

    def take(self, rows: NDArray[np.intp]) -> Table:
        """Return the examples at these positions, in this order."""
        return self._replace(
            columns=[column._replace(values=column.values[rows]) for column in self.columns],
            y=take_labels(self.y, rows),
            times=None if self.times is None else self.times[rows],
            rows=(np.arange(1, self.n + 1) if self.rows is None else self.rows)[rows],
        )


def take_labels(y: Labels | None, rows: NDArray[np.intp]) -> Labels | None:
    """Return the labels at these positions."""
    if isinstance(y, list):
        return [y[i] for i in rows.tolist()]
    return None if y is None else y[rows]


def constant(values: Floats) -> bool:
    """Return whether all rows are equal. Their p-values then depend on the tie-breaking only, not on the data.

    >>> constant(np.array([2.0, 2.0])), constant(np.array([[1.0, 2.0], [1.0, 3.0]]))
    (True, False)
    """
    return bool((values == values[:1]).all())
