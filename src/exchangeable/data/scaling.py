"""Scaling of features in different units, so that no single column dominates the distances.

The deviations are those of the *entire* table. They do not depend on the order of the rows, so scaled data is as
exchangeable as before, and every guarantee holds.
"""

from __future__ import annotations

import numpy as np

from exchangeable.data.table import Table
from exchangeable.protocols import Floats

SCALES = ("auto", "none", "deviation")
WIDE = 10.0  # times the typical deviation: such a column dominates the distances
CATEGORY_DEVIATION = 0.5  # of a category that half of the examples have


def scaled(table: Table, scale: str) -> tuple[Floats, str]:
    """Return the scaled features, and what was done: "none" or "deviation".

    "deviation" divides each numeric column by its standard deviation over the entire table (constant columns stay);
    categories stay 0 and 1. "auto" does so if the widest column has more than ten times the deviation of a typical one
    (the lower median; a categorical column counts as 1/2). O(n d).

    >>> from exchangeable.data.table import TableColumn
    >>> X = np.array([[1.0, 1000.0], [2.0, 3000.0]])
    >>> columns = [TableColumn("a", 0, 1, False), TableColumn("b", 1, 2, False)]
    >>> scaled(Table(X, None, ["a", "b"], "t", columns), "auto")
    (array([[2., 1.],
           [4., 3.]]), 'deviation')
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    if scale == "none" or (scale == "auto" and widest(table) is None):
        return table.X, "none"
    numeric = [column.start for column in table.columns if not column.categorical]
    deviation = _deviations(table.X[:, numeric])
    X = table.X.copy()
    X[:, numeric] /= np.where(deviation > 0.0, deviation, 1.0)
    return X, "deviation"


def widest(table: Table) -> str | None:
    """Return the column with more than ten times the deviation of a typical one; None if there is none."""
    numeric = [column.start for column in table.columns if not column.categorical]
    deviation = iter(_deviations(table.X[:, numeric]).tolist())
    spread = [CATEGORY_DEVIATION if column.categorical else next(deviation) for column in table.columns]
    typical = sorted(filter(None, spread)) or [1.0]  # the lower median of those that vary
    most = int(np.argmax(spread))
    return table.columns[most].name if spread[most] > WIDE * typical[(len(typical) - 1) // 2] else None


def _deviations(X: Floats) -> Floats:
    """Return the standard deviation of each column, whatever the order of the rows and however large the values.

    Values are sorted first, since a sum of floats depends on their order in the last digit, and divided by the largest
    one, since squares would overflow.
    """
    largest = np.maximum(np.abs(X).max(axis=0, initial=0.0), np.finfo(np.float64).tiny)
    return np.asarray((np.sort(X, axis=0) / largest).std(axis=0) * largest)
