"""Several martingales on one table: on full rows, on each column, and on views of the table (see `views`).

They use different p-values, so their average need not be a martingale. But with weights w_k that sum to at most one

    P( max_k w_k S^k_n >= c for some n ) <= sum_k P( S^k_n >= c / w_k for some n ) <= sum_k w_k / c <= 1 / c ,

whatever their dependence (Ville's inequality for each, and the union bound). So the weighted maximum is evidence of the
same strength as the capital of one martingale.

A column that is sorted is set aside, which looks at the order. Weights are therefore allotted before that: the sorted
columns count, and their weights stay unspent, so the sum above can only lose terms. Full rows then leave the column
out, so their martingale is a different one if the column is sorted. On exchangeable data a column with ten distinct
values is sorted, upwards or downwards, with probability at most 2 / 10! < 6e-7. Each column adds at most this much.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from exchangeable.bets import Idle
from exchangeable.data.canonical import column_stream
from exchangeable.data.table import Labels, Table, TableColumn, constant
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import Value
from exchangeable.protocols import Alarm, Bet, Floats, Path
from exchangeable.pvalues import PValues
from exchangeable.validation import format_value

FULL_ROWS = "full rows"
ALPHA_SHARES: Mapping[str, float] = MappingProxyType(  # of alpha; full rows have the remainder
    {"columns": 0.35, "component": 0.1, "residual": 0.1, "neighbours": 0.1, "shares": 0.1}
)
COLUMN_KINDS = ("numbers", "categories", "label")
MAX_AUTO_COLUMNS = 64  # more columns are tested only on request: pixels and embeddings mean little one by one
CHUNK = 2**16  # values that are ranked at a time: the p-values of a long column would need as much memory as the column
Progress = Callable[[str, int, int], None]


class ColumnTest(NamedTuple):
    """One martingale, on full rows, a column or a view: its weight, and its log capital after each row."""

    name: str
    kind: str  # "rows", "numbers", "categories", "label"; of a view "component", "residual", "neighbours", "shares"
    weight: float
    log_value: Floats

    @property
    def is_column(self) -> bool:
        """Whether this is the test of a column or of the label."""
        return self.kind in COLUMN_KINDS

    @property
    def is_view(self) -> bool:
        """Whether this is the test of a view."""
        return self.kind in ALPHA_SHARES

    @property
    def log_evidence(self) -> Floats:
        """The log of the weighted capital after each row."""
        return self.log_value + math.log(self.weight)

    @property
    def log_peak(self) -> float:
        """The log of the highest weighted capital, from before the first bet on."""
        return max(0.0, float(self.log_value.max())) + math.log(self.weight)

    @property
    def log10_evidence(self) -> float:
        """The log10 of the highest weighted capital."""
        return self.log_peak / LN10

    def first_reaching(self, log_level: float) -> int | None:
        """Return the number of rows after which the weighted capital first reaches a level; None if it never does."""
        return first_reaching(self.log_evidence, log_level)


def log_evidence(tests: Sequence[ColumnTest]) -> Floats:
    """Return the log evidence of all tests together, after each row: ``max_k log w_k + log S^k_n``.

    >>> a = ColumnTest("a", "rows", 0.5, np.array([0.0, 3.0]))
    >>> b = ColumnTest("b", "label", 0.5, np.array([1.0, 1.0]))
    >>> log_evidence([a, b])
    array([0.30685282, 2.30685282])
    """
    evidence = tests[0].log_evidence
    for test in tests[1:]:
        np.maximum(evidence, test.log_evidence, out=evidence)
    return evidence


def ranked(tests: Sequence[ColumnTest]) -> list[ColumnTest]:
    """Return the tests, the most evidence first; equal ones by name, so that the order of columns does not matter."""
    return sorted(tests, key=lambda test: (-test.log_peak, test.kind != "rows", test.is_view, test.name))


def rejecting(tests: Sequence[ColumnTest], log_level: float) -> list[ColumnTest]:
    """Return the tests whose evidence reaches a level, the most evidence first.

    Views are left out if full rows or a column have at least as much evidence: they show the same change once more.
    """
    reached = [test for test in ranked(tests) if test.log_peak >= log_level]
    most = max((test.log_peak for test in reached if not test.is_view), default=-math.inf)
    return [test for test in reached if not test.is_view or test.log_peak > most]


def is_weighted(tests: Sequence[ColumnTest]) -> bool:
    """Return whether the evidence is not just the capital of one martingale."""
    return any(test.weight != 1.0 for test in tests)


def combine(path: Path, tests: Sequence[ColumnTest], alarm: Alarm) -> Path:
    """Replace the alarm of full rows by that of all tests."""
    raised = alarm.extend(log_evidence(tests))  # type: ignore[attr-defined]
    return path._replace(alarm=np.logical_or.accumulate(raised))


def first_reaching(log_value: Floats, log_level: float) -> int | None:
    """Return the number of steps after which the values first reach a level; None if they never do."""
    reached = log_value >= log_level
    return int(reached.argmax()) + 1 if reached.any() else None


class SharedTests(NamedTuple):
    """The tests that share alpha with that of full rows."""

    rows_weight: float = 1.0  # of full rows
    columns: Sequence[ColumnTest] = ()
    views: Sequence[ColumnTest] = ()
    view_columns: Sequence[TestedColumn] = ()  # the values of the views, except for those of neighbours


class TestedColumn(NamedTuple):
    """A column that is tested on its own: a feature, the label or a view."""

    kind: str  # as in `ColumnTest`
    column: TableColumn
    weight: float = 1.0


def select_columns(table: Table, features: Sequence[str] | None = None) -> list[TestedColumn]:
    """Return the columns to test; also the label, unless ``features`` names the columns.

    Constant columns are left out unless they are named: there is nothing to test.
    """
    known = {column.name: column for column in table.columns}
    if isinstance(features, str) or not all(isinstance(name, str) and name in known for name in features or ()):
        raise ValueError(f"features must be a list of columns that were tested, got {format_value(features)}")
    if features is not None:
        if not features:
            raise ValueError("features must name at least one column, got none")
        return [_feature(known[name]) for name in dict.fromkeys(features)]
    tested = [_feature(column) for column in table.columns]
    if table.y is not None:
        tested.append(TestedColumn("label", label_column(table.label or "label", table.y)))
    return [one for one in tested if not constant(one.column.values)]


def all_equal(values: Floats, y: Labels | None) -> bool:
    """Return whether all rows are equal, labels included."""
    return constant(values) and (y is None or (len(set(y)) == 1 if isinstance(y, list) else constant(y)))


def _feature(column: TableColumn) -> TestedColumn:
    return TestedColumn("categories" if column.categorical else "numbers", column)


def share_weights(columns: Sequence[TestedColumn], count: int | None = None) -> list[TestedColumn]:
    """Return columns or views with their weights: the share of their kind, divided evenly.

    ``count`` is the number of columns that share, if it is larger: those that were set aside do not spend theirs.
    """
    kinds = [one.kind if one.kind in ALPHA_SHARES else "columns" for one in columns]
    totals = {kind: kinds.count(kind) if count is None else count for kind in kinds}
    return [one._replace(weight=ALPHA_SHARES[kind] / totals[kind]) for one, kind in zip(columns, kinds, strict=True)]


def label_column(name: str, y: Labels) -> TableColumn:
    """Return the labels as a column; classes are numbered alphabetically, so the order of the rows does not matter."""
    if not isinstance(y, list):
        return TableColumn(name, y)
    names = {label: str(label) for label in dict.fromkeys(y)}
    categories = sorted(set(names.values()))
    position = {category: float(i) for i, category in enumerate(categories)}
    code = {label: position[text] for label, text in names.items()}
    return TableColumn(name, np.fromiter((code[label] for label in y), np.float64, len(y)), tuple(categories))


def column_p_values(column: TableColumn, seed: int, *, start: int = 0, backwards: bool = False) -> Iterator[Floats]:
    """Yield the p-values of a column after the first ``start`` rows, in parts; ``backwards`` from its end.

    The tie-breaking numbers depend on the name of the column, not on its position. O(n log n).
    """
    pvalues = PValues(Value(), seed=seed, stream=column_stream(column.name, backwards=backwards))
    values = column.values[::-1] if backwards else column.values
    for first in range(0, len(values), CHUNK):
        yield pvalues.extend(values[first : first + CHUNK])[max(0, start - first) :]


def run_column_tests(
    columns: Sequence[TestedColumn],
    bet: Bet,
    *,
    seed: int,
    start: int = 0,
    backwards: bool = False,
    task: str = "each column",
    progress: Progress | None = None,
) -> list[ColumnTest]:
    """Test each column with a copy of the bet.

    Betting starts after ``start`` rows; with ``backwards`` the columns are read from the end. No bets are placed on a
    constant column. O(n log n) for the ranks of each column, and n bets.
    """
    tests, task = [], f"{task} backwards" if backwards else task
    for i, (kind, column, weight) in enumerate(columns):
        if progress is not None:
            progress(task, i, len(columns))
        martingale = Martingale(Idle() if constant(column.values) else copy.deepcopy(bet))
        parts = [martingale.extend(p) for p in column_p_values(column, seed, start=start, backwards=backwards)]
        tests.append(ColumnTest(column.name, kind, weight, np.concatenate(parts)))
    if progress is not None:
        progress(task, len(columns), len(columns))
    return tests
