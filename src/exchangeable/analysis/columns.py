"""Several martingales on one table: one on full rows, and one on each column.

They use different p-values, so their average need not be a martingale. But with weights w_k that sum to one

    P( max_k w_k S^k_n >= c for some n ) <= sum_k P( S^k_n >= c / w_k for some n ) <= sum_k w_k / c = 1 / c ,

whatever their dependence (Ville's inequality for each, and the union bound). So the weighted maximum is evidence of the
same strength as the capital of one martingale.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exchangeable.bets import Idle
from exchangeable.data.canonical import column_stream, constant
from exchangeable.data.table import Table, TableColumn
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import Value
from exchangeable.protocols import Bet, Floats
from exchangeable.pvalues import PValues
from exchangeable.validation import format_value

FULL_ROWS = "full rows"
COLUMN_SHARE = 0.5  # of alpha, for all columns together, if they are tested one by one
MAX_AUTO_COLUMNS = 64  # more columns are tested only on request: pixels and embeddings mean little one by one
NEAR_MINIMUM = 0.2  # in logs: a capital within a fifth of its minimum
Progress = Callable[[str, int, int], None]


class ColumnTest(NamedTuple):
    """One martingale, on a column or on full rows: its weight, its p-values, and its log capital after each."""

    name: str
    kind: str  # "examples" (full rows), "numbers", "categories" or "label"
    weight: float
    p: Floats
    log_value: Floats

    @property
    def log10_max(self) -> float:
        """The log10 of the highest capital, at least 0."""
        return max(0.0, float(self.log_value.max()) / LN10)

    @property
    def log_evidence(self) -> Floats:
        """The log of the weighted capital after each bet."""
        return self.log_value + math.log(self.weight)

    def first_reaching(self, log_level: float) -> int | None:
        """Return the number of bets after which the weighted capital first reaches a level; None if it never does."""
        return first_reaching(self.log_evidence, log_level)

    def rise_start(self, bets: int) -> int:
        """Estimate the change: where the rise to this bet started.

        That is the last number of bets after which the capital was within a fifth of its minimum. The minimum itself
        may lie anywhere in a long time without a change, in which the capital hardly moves.
        """
        capital = np.concatenate([[0.0], self.log_value[: bets - 1]])
        return int(np.flatnonzero(capital <= capital.min() + NEAR_MINIMUM)[-1])


def log_evidence(tests: Sequence[ColumnTest]) -> Floats:
    """Return the log evidence of all tests together, after each example: ``max_k log w_k + log S^k_n``.

    >>> p = np.array([0.5, 0.5])
    >>> a = ColumnTest("a", "examples", 0.5, p, np.array([0.0, 3.0]))
    >>> b = ColumnTest("b", "label", 0.5, p, np.array([1.0, 1.0]))
    >>> log_evidence([a, b])
    array([0.30685282, 2.30685282])
    """
    return np.asarray(np.max([test.log_evidence for test in tests], axis=0))


def first_reaching(log_value: Floats, log_level: float) -> int | None:
    """Return the number of steps after which the values first reach a level; None if they never do."""
    reached = log_value >= log_level
    return int(reached.argmax()) + 1 if reached.any() else None


def select_columns(table: Table, features: Sequence[str] | None = None) -> list[tuple[TableColumn, Floats]]:
    """Return the columns to test, each as numbers; also the label, unless ``features`` names the columns.

    Categories are numbered alphabetically, so the order of the rows does not matter. Constant columns are left out
    unless they are named: there is nothing to test.
    """
    known = {column.name: column for column in table.columns}
    if isinstance(features, str) or not all(isinstance(name, str) and name in known for name in features or ()):
        raise ValueError(f"features must be a list of columns that were tested, got {format_value(features)}")
    if features is not None:
        if not features:
            raise ValueError("features must name at least one column, got none")
        return [(known[name], _column_values(table, known[name])) for name in dict.fromkeys(features)]
    columns = [(column, _column_values(table, column)) for column in table.columns]
    if table.y is not None:
        columns.append((TableColumn(str(table.label), -1, -1, isinstance(table.y, list)), _label_values(table.y)))
    return [(column, values) for column, values in columns if not constant(values)]


def all_equal(values: Floats, y: list[object] | Floats | None) -> bool:
    """Return whether all examples are equal, labels included."""
    return constant(values) and (y is None or (len(set(y)) == 1 if isinstance(y, list) else constant(y)))


def _column_values(table: Table, column: TableColumn) -> Floats:
    if not column.categorical:
        return table.X[:, column.start]
    names = table.features[column.start : column.stop]
    return np.asarray(_ranks(names)[table.X[:, column.start : column.stop].argmax(axis=1)])


def _label_values(y: list[object] | Floats) -> Floats:
    if not isinstance(y, list):
        return y
    classes = list(dict.fromkeys(y))
    code = dict(zip(classes, _ranks(list(map(str, classes))).tolist(), strict=True))
    return np.array([code[label] for label in y])


def _ranks(names: list[str]) -> Floats:
    """Return the alphabetical rank of each name; equal names share one, whatever their order."""
    return np.asarray(np.unique(names, return_inverse=True)[1], np.float64)


def run_column_tests(
    columns: Sequence[tuple[TableColumn, Floats]],
    bet: Bet,
    *,
    share: float,
    seed: int,
    start: int = 0,
    backwards: bool = False,
    progress: Progress | None = None,
) -> list[ColumnTest]:
    """Test each column with a copy of the bet; the weights sum to ``share``.

    Betting starts after ``start`` examples; with ``backwards`` the columns are read from the end. The tie-breaking
    numbers of a column depend on its name, not on its position. No bets are placed on a constant column. O(n log n) for
    the ranks of each column, and n bets.
    """
    tests = []
    for i, (column, values) in enumerate(columns):
        if progress is not None:
            progress("each column backwards" if backwards else "each column", i, len(columns))
        stream = column_stream(column.name, backwards=backwards)
        p = PValues(Value(), seed=seed, stream=stream).extend(values[::-1] if backwards else values)[start:]
        column_bet = Idle() if constant(values) else copy.deepcopy(bet)
        kind = "label" if column.start < 0 else "categories" if column.categorical else "numbers"
        tests.append(ColumnTest(column.name, kind, share / len(columns), p, Martingale(column_bet).extend(p)))
    if progress is not None:
        progress("each column backwards" if backwards else "each column", len(columns), len(columns))
    return tests
