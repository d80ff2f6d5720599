"""The matrix of features in which distances are measured.

Columns are sorted by name, since a sum of floats depends on its order in the last digit. Features in different units
are scaled by deviations over the *entire* table. Those do not depend on the order of the rows, so scaled data is as
exchangeable as before, and every guarantee holds.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.canonical import by_name
from exchangeable.data.table import Table, constant
from exchangeable.protocols import Floats

SCALES = ("auto", "none", "deviation")
WIDE = 10.0  # times the typical deviation: such a column dominates the distances
CATEGORY_DEVIATION = 0.5  # the deviation of a category that half of the examples have


def design_matrix(table: Table, scale: str = "none", rows: NDArray[np.intp] | None = None) -> Floats:
    """Return the features of all rows, or of some.

    "deviation" divides each numeric column by its standard deviation over the entire table; categories become columns
    of 0 and 1. Constant columns are left out, unless all are constant. O(n d).

    >>> from exchangeable.data.table import TableColumn
    >>> table = Table([TableColumn("b", np.array([10.0, 30.0])), TableColumn("a", np.array([0.0, 1.0]), ("u", "v"))])
    >>> design_matrix(table, "deviation")
    array([[1., 0., 1.],
           [0., 1., 3.]])
    """
    columns = by_name([column for column in table.columns if not constant(column.values)] or table.columns)
    count = table.n if rows is None else len(rows)
    X, end = np.zeros((count, sum(len(column.features) for column in columns))), 0
    for column in columns:
        values, start, end = column.values if rows is None else column.values[rows], end, end + len(column.features)
        if column.categorical:
            X[np.arange(count), start + values.astype(np.intp)] = 1.0
        else:
            X[:, start] = values / ((scale == "deviation" and _deviation(column.values)) or 1.0)
    return X


def resolve_scale(table: Table, scale: str) -> str:
    """Return "none" or "deviation"; "auto" is "deviation" if the widest column would dominate the distances.

    A column dominates if its deviation is more than ten times that of a typical column: the lower median, with 1/2 for
    a categorical column.
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    if scale == "auto":
        return "none" if widest(table) is None else "deviation"
    return scale


def widest(table: Table) -> str | None:
    """Return the column whose deviation is more than ten times that of a typical one; None if there is none."""
    spread = [CATEGORY_DEVIATION if column.categorical else _deviation(column.values) for column in table.columns]
    typical = sorted(filter(None, spread)) or [1.0]  # the lower median of those that vary
    most = int(np.argmax(spread))
    return table.columns[most].name if spread[most] > WIDE * typical[(len(typical) - 1) // 2] else None


def _deviation(values: Floats) -> float:
    """Return the standard deviation, whatever the order of the rows and however large the values.

    Values are sorted first, since a sum of floats depends on their order in the last digit, and divided by the largest
    one, since squares would overflow.
    """
    largest = max(float(np.abs(values).max(initial=0.0)), float(np.finfo(np.float64).tiny))
    return float((np.sort(values) / largest).std() * largest)
