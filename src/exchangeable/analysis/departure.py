"""What kind of departure from exchangeability a test has found: a description, without a guarantee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.analysis.columns import label_column
from exchangeable.analysis.formats import count_of
from exchangeable.analysis.patterns import Pattern, Series, patterns
from exchangeable.analysis.series import Subject, column_series
from exchangeable.data.canonical import row_hashes
from exchangeable.data.table import Table, TableColumn
from exchangeable.protocols import Floats

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

LEAST = 1.0  # nats of evidence of a kind
MARGIN = 1.0  # nats by which it must be ahead of the next kind
STRICT = 0.99  # the share of the variance from which on a cycle is strict, although rows before it predict it too
LAST_PART = 0.85  # of the rows: a change after that concerns the last part only
TREND = 0.7  # the least correlation with the position for a trend: half of the variance
SORTED = 0.9  # the share of successive values that are in order
LISTED = 20  # rows that are listed
FEW_COPIES = 5
COPIES = 0.02  # the share of rows that are copies, at least
CHANCE = 5.0  # times the pairs of equal rows that are expected if columns are independent
ONE_LAG = 0.5  # the share of copies that follow at the same distance, at least
FAR = 4.5  # robust deviations from the median
GOLDEN = 0.6180339887498949  # its multiples fill the unit interval evenly
OUTLIERS = 0.05  # of the rows, at most


class Departure(NamedTuple):
    """The kind of a departure, as far as the data show it. It is a description and has no guarantee.

    ``kind`` is "one change", "last part" (one change near the end), "several changes", "drift", "seasonal pattern",
    "serial dependence", "sorted rows", "repeated rows", "outliers", or "unclear".
    """

    kind: str
    subject: str  # the name of the test that it was read from: "full rows", a column or a view
    changes: list[int] = []  # noqa: RUF012  # the numbers of rows before each change; empty for the other kinds
    period: float | None = None  # of a seasonal pattern in rows, or the distance of repeated rows
    rows: list[int] = []  # noqa: RUF012  # rows to look at, from 1: outliers, or repeated rows
    size: str = ""  # how large it is, if there is no before and after, such as "autocorrelation 0.31"


def classify(result: Result, subject: Subject) -> Departure:
    """Describe what kind of departure a rejected result shows. O(n log n)."""
    return (
        _repeated_rows(result.table)
        or _sorted_rows(subject)
        or _outliers(subject)
        or _pattern(subject, patterns(subject.series))
    )


def _pattern(subject: Subject, found: list[Pattern]) -> Departure:
    """Return the kind with the most evidence, or "unclear" if another one is nearly as good."""
    found = sorted([*found, *filter(None, [subject.further])], key=lambda one: (one.share < STRICT, -one.evidence))
    if not found or found[0].evidence < LEAST:
        return Departure("unclear", subject.name)
    best, second = found[0], next(pattern for pattern in found[1:] if pattern.kind != found[0].kind)
    if best.share < STRICT and best.evidence - max(0.0, second.evidence) < MARGIN:
        return Departure("unclear", subject.name, size=f"{best.kind} or {second.kind}")
    kind, changes = best.kind, [subject.position(change) for change in best.changes]
    if kind == "serial dependence" and not subject.series.discrete and abs(_trend(subject.series)) >= TREND:
        kind = "drift"
    if kind == "one change" and best.changes[0] >= LAST_PART * subject.series.n:
        kind = "last part"
    return Departure(kind, subject.name, changes, best.period, size=_size(kind, subject, best.share))


def _size(kind: str, subject: Subject, share: float) -> str:
    """Describe the size of a pattern for which there is no before and after."""
    series, column = subject.series, subject.column
    if kind == "serial dependence" and series.discrete and column is not None:
        shares = np.bincount(column.values.astype(np.intp)) / series.n
        return (
            f"the next row has the same category in {100.0 * (np.diff(column.values) == 0.0).mean():.0f} % of the "
            f"cases; by chance {100.0 * (shares**2).sum():.0f} %"
        )
    if kind == "serial dependence":
        level, *spread = (float((x[1:] * x[:-1]).mean()) for x in series.channels)
        if abs(level) < spread[0]:
            return f"autocorrelation {spread[0]:.2f} of the distance from the median"
        return f"autocorrelation {level:.2f}"
    return f"{100.0 * share:.0f} % of the variance" if kind == "seasonal pattern" else ""


def _trend(series: Series) -> float:
    """Return the correlation of the values with their positions."""
    time = np.arange(series.n) - 0.5 * (series.n - 1)
    return float((series.channels[0] * time).mean() / time.std())


def _sorted_rows(subject: Subject) -> Departure | None:
    """Return whether a column is sorted, or nearly so; classes are if each of them comes in one piece."""
    column = subject.column
    if column is None:
        return None
    steps = np.diff(column.values)
    moves = steps[steps != 0.0]
    if column.categories is not None:
        ordered = len(moves) == len(np.unique(column.values)) - 1
    else:
        ordered = len(moves) > 0 and max((moves > 0.0).mean(), (moves < 0.0).mean()) >= SORTED
        ordered = ordered and abs(_trend(subject.series)) >= TREND  # a sawtooth is not sorted
    return Departure("sorted rows", subject.name) if ordered else None


def _repeated_rows(table: Table) -> Departure | None:
    """Return whether rows occur again, mostly at the same distance, although equal rows are rare by chance."""
    label = [] if table.y is None else [label_column("label", table.y)]
    keys = row_hashes([*table.columns, *label])
    order = np.argsort(keys, kind="stable")
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1])
    if len(again) < max(FEW_COPIES, COPIES * table.n, CHANCE * _chance_pairs([*table.columns, *label])):
        return None
    lags, counts = np.unique(order[again + 1] - order[again], return_counts=True)
    if counts.max() < ONE_LAG * len(again):
        return None
    lag = int(lags[counts.argmax()])
    rows = np.sort(order[again + 1][order[again + 1] - order[again] == lag])
    return Departure("repeated rows", "full rows", [], lag, (rows[:LISTED] + 1).tolist(), f"{len(again):,} copies")


def _chance_pairs(columns: Sequence[TableColumn]) -> float:
    """Return how many pairs of rows are equal on average, in random order of each column."""
    n = len(columns[0].values)
    counts = (np.unique(column.values, return_counts=True)[1] / n for column in columns)
    return 0.5 * n**2 * math.prod(float((shares**2).sum()) for shares in counts)


def _outliers(subject: Subject) -> Departure | None:
    """Return whether a few rows far away explain everything: without them, no kind has evidence."""
    column = subject.column
    if column is None or column.categories is not None:
        return None
    distance = np.abs(column.values - np.median(column.values))
    far = distance > FAR * 1.4826 * np.median(distance)
    if not 0 < far.sum() <= OUTLIERS * len(far) or np.median(distance) == 0.0:
        return None
    rest = patterns(column_series(TableColumn(column.name, _replaced(column.values, far))))
    if not rest or rest[0].evidence >= LEAST:
        return None
    rows = np.flatnonzero(far)
    strangest = np.sort(rows[np.argsort(-distance[rows], kind="stable")[:LISTED]]) + 1
    return Departure("outliers", subject.name, rows=strangest.tolist(), size=count_of(len(rows), "row"))


def _replaced(values: Floats, far: NDArray[np.bool_]) -> Floats:
    """Replace some values by typical other ones, evenly spread over their distribution."""
    typical, replaced = np.sort(values[~far]), values.copy()
    shares = np.arange(1, int(far.sum()) + 1) * GOLDEN % 1.0
    replaced[far] = typical[(shares * len(typical)).astype(np.intp)]
    return replaced
