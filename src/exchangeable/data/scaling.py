"""Features of different units brought to one, so that no single one decides all distances.

The deviations are those of the *whole* table. They do not depend on its order, so given the rows in any order the
table is as exchangeable as before, and every promise holds.
"""

from __future__ import annotations

import numpy as np

from exchangeable.data.files import Table
from exchangeable.protocols import Floats

SCALES = ("auto", "none", "deviation")
WIDE = 10.0  # times the typical deviation: a feature that outweighs the rest
HALF = 0.5  # the deviation of a category that half the examples have


def scaled(table: Table, scale: str) -> tuple[Floats, str]:
    """The features as they are to be compared, and what was done: "none" or "deviation".

    "deviation" divides each numeric column by its standard deviation over the whole table (a constant one stays);
    categories stay 0 and 1. "auto" does so if the widest column has more than ten times the deviation of a typical one
    (the lower median; a categorical column counts as 1/2). O(n d).

    >>> from exchangeable.data.files import Group
    >>> X = np.array([[1.0, 1000.0], [2.0, 3000.0]])
    >>> scaled(Table(X, None, ["a", "b"], "t", [Group("a", 0, 1, False), Group("b", 1, 2, False)]), "auto")
    (array([[2., 1.],
           [4., 3.]]), 'deviation')
    """
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(map(repr, SCALES))}, got {scale!r}")
    if scale == "none" or (scale == "auto" and widest(table) is None):
        return table.X, "none"
    numeric = [group.start for group in table.groups if not group.categorical]
    deviation = _deviations(table.X[:, numeric])
    X = table.X.copy()
    X[:, numeric] /= np.where(deviation > 0.0, deviation, 1.0)
    return X, "deviation"


def widest(table: Table) -> str | None:
    """The column that outweighs the rest: of more than ten times the deviation of a typical one; None without one."""
    numeric = [group.start for group in table.groups if not group.categorical]
    deviation = iter(_deviations(table.X[:, numeric]).tolist())
    spread = [HALF if group.categorical else next(deviation) for group in table.groups]
    typical = sorted(filter(None, spread)) or [1.0]  # the lower median of those that vary
    most = int(np.argmax(spread))
    return table.groups[most].name if spread[most] > WIDE * typical[(len(typical) - 1) // 2] else None


def _deviations(X: Floats) -> Floats:
    """Of each column, sorted first: sums of floats depend on their order in the last digit, and these must not.

    By way of the largest magnitude, since squares would overflow.
    """
    largest = np.maximum(np.abs(X).max(axis=0, initial=0.0), np.finfo(np.float64).tiny)
    return np.asarray((np.sort(X, axis=0) / largest).std(axis=0) * largest)
