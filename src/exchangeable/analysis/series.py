"""The series that the kind of a departure is read from: the column or view with the most evidence, or neighbours."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from exchangeable.analysis.columns import ColumnTest, ranked, select_columns
from exchangeable.analysis.patterns import Pattern, Series, best_change, serial_neighbours
from exchangeable.analysis.sample import Rows
from exchangeable.analysis.shares import tested_column
from exchangeable.data.table import Labels, TableColumn
from exchangeable.protocols import Floats

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

PREFERRED = 0.5  # the part of the log evidence of a view that a column must have to be preferred
GRID = 2048  # quantiles of the normal distribution between which is interpolated
MAX_CATEGORIES = 20  # rarer ones are left out
MAX_NEIGHBOUR_ROWS = 2000
BLOCK = 250  # rows whose distances are computed at a time
NEIGHBOURS = 15  # whose labels are compared
POSITIONS = 5  # neighbours whose positions are averaged
APART = 3  # rows between a row and its neighbours, so that serial dependence does not look like a drift


class Subject(NamedTuple):
    """What the kind of a departure is read from."""

    name: str  # of the test, or of the column if its shares are tested
    series: Series
    rows: Rows | None = None  # the rows of the series; None for all
    column: TableColumn | None = None
    further: Pattern | None = None  # what the series cannot show

    def position(self, count: int) -> int:
        """Return the number of rows of the table, given a number of values of the series."""
        return count if self.rows is None or count == 0 else int(self.rows[count - 1]) + 1

    @property
    def change(self) -> int:
        """The number of rows before the change, if there is one."""
        return self.position(best_change(self.series))


def subject_of(result: Result) -> Subject:
    """Return the series with the most evidence: a column or a view that rejects, or else the neighbours of the rows.

    A column is preferred to a view if it has at least half of its log evidence, since it can be looked at.
    """
    columns, level = columns_of(result), -math.log(result.alpha or 1.0)
    tests = [test for test in ranked(result.tests) if (test.kind, test.name) in columns]
    reached = [test for test in tests if test.log_peak >= level or not result.column_tests]
    if not reached:
        return _neighbours_subject(result)
    good = [test for test in reached if test.is_column and test.log_peak >= PREFERRED * reached[0].log_peak]
    chosen = (good or reached)[0]
    column = columns[chosen.kind, chosen.name]
    return Subject(tested_column(chosen), column_series(column), column=column)


def columns_of(result: Result) -> dict[tuple[str, str], TableColumn]:
    """Return the columns that tests read, by the kind and the name of the test."""
    tested = [*select_columns(result.table), *result.view_columns]
    found = {(one.kind, one.column.name): one.column for one in tested}
    rows = result.tests[0]
    if result.sample.measured.ndim == 1:  # a single column, or scores
        found[rows.kind, rows.name] = TableColumn(rows.name, result.sample.measured)
    return found


# -------------------------------------------------------------------------------------------------------------- columns


def column_series(column: TableColumn) -> Series:
    """Return a column as a series."""
    return _number_series(column.values) if column.categories is None else _category_series(column.values)


def _number_series(values: Floats) -> Series:
    scores = normal_scores(values)
    return Series(np.stack([scores, normal_scores(np.abs(scores).round(9))]))  # pairs at both sides are ties


def _category_series(codes: Floats) -> Series:
    """Return indicators of the categories, standardised so that their squares add up to the chi-squared statistic."""
    counts = np.bincount(codes.astype(np.intp))
    largest = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
    shares = counts[largest] / len(codes)
    indicators = [(codes == code) - share for code, share in zip(largest.tolist(), shares.tolist(), strict=True)]
    return Series(np.stack(indicators) / np.sqrt(shares)[:, np.newaxis], discrete=True)


def normal_scores(values: Floats) -> Floats:
    """Return normal quantiles of the ranks, with mean 0 and variance 1; ties share their mean rank.

    >>> normal_scores(np.array([10.0, 30.0, 20.0, 30.0])).round(2)
    array([-1.47,  0.92, -0.38,  0.92])
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    shares = (np.cumsum(counts) - 0.5 * counts) / len(values)
    scores = np.interp(shares, *_normal_grid())[inverse]
    scores -= scores.mean()
    return np.asarray(scores / (scores.std() or 1.0))


@cache
def _normal_grid() -> tuple[Floats, Floats]:
    shares = (np.arange(GRID) + 0.5) / GRID
    return shares, np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])


# ----------------------------------------------------------------------------------------------------------- neighbours


def _neighbours_subject(result: Result) -> Subject:
    """Compare each row with its nearest neighbours in the table, of which at most 2,000 rows are used.

    With labels: how much the label differs from those of the neighbours. Without: the mean position of the neighbours,
    which rises where later rows resemble each other.
    """
    sample = result.sample
    chosen = np.unique(np.linspace(0, len(sample.measured) - 1, MAX_NEIGHBOUR_ROWS).astype(np.intp))
    k, apart = (POSITIONS, APART) if sample.y is None else (NEIGHBOURS, 0)
    nearest = nearest_rows(sample.measured[chosen], k, apart)
    y = None if sample.y is None else _label_numbers(sample.y)[chosen]
    further = None
    if y is None:
        further = serial_neighbours(nearest_rows(sample.measured[chosen], 1, 0)[:, 0])
        values = nearest.mean(axis=1)
    elif isinstance(sample.y, list):
        values = (y[nearest] != y[:, np.newaxis]).mean(axis=1)
    else:
        values = y - y[nearest].mean(axis=1)
    rows = chosen if sample.rows is None else sample.rows[chosen]
    return Subject(_rows_test(result).name, _number_series(values), rows, further=further)


def _rows_test(result: Result) -> ColumnTest:
    """Return the stronger one of the tests of full rows."""
    return ranked([test for test in result.tests if test.kind in ("rows", "neighbours")])[0]


def _label_numbers(y: Labels) -> Floats:
    return np.unique(np.array(list(map(str, y))), return_inverse=True)[1].astype(float) if isinstance(y, list) else y


def nearest_rows(X: Floats, k: int, apart: int) -> Rows:
    """Return the positions of the k nearest rows of each row, among those more than ``apart`` rows away. O(n^2 d)."""
    n, X = len(X), X - X.mean(axis=0)  # squares of values far from 0 would cancel
    count, nearest, positions, squares = min(k, max(1, n - 2 * apart - 1)), [], np.arange(n), (X**2).sum(axis=1)
    for rows in np.array_split(positions, n // BLOCK + 1):
        distances = squares - 2.0 * (X[rows] @ X.T)
        distances[np.abs(rows[:, np.newaxis] - positions) <= apart] = np.inf
        nearest.append(np.argpartition(distances, count - 1, axis=1)[:, :count])
    return np.concatenate(nearest)
