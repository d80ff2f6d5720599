"""The rows that nearest neighbours are computed on: all of them, or as many as time and memory allow.

The rows are chosen by the seed alone, whatever their values and their order. So a choice from exchangeable rows is
exchangeable too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from exchangeable.analysis.columns import CHUNK, Progress
from exchangeable.data.table import Labels, Table
from exchangeable.protocols import Floats, Integers, Path
from exchangeable.pvalues import thetas
from exchangeable.shift import Evidence, Shift

MAX_CELLS = 2**28  # of the matrix of features: 2 GiB
MATRIX_CHUNK = 2048  # rows between two reports of progress
THIN_STREAM = 2**32 - 3  # the stream of random numbers that chooses rows
Rows = NDArray[np.intp]
T = TypeVar("T")


class Sample(NamedTuple):
    """The input of the measure: rows of features, numbers or scores, and their labels."""

    measured: Floats
    y: Labels | None = None
    rows: Rows | None = None  # positions in the table; None for all

    def backwards(self) -> Sample:
        """Return the same rows in reverse order."""
        return self._replace(measured=self.measured[::-1], y=None if self.y is None else self.y[::-1])


class Split(NamedTuple):
    """Two sets that were compared: their names, and the order of the bets."""

    first: str  # the set that fills the pool of the measure
    second: str  # the set that is bet on
    rows: Integers  # row numbers of the second set, from 1, in the order of the bets


def extend_in_parts(
    extend: Callable[[Floats, Any], T], sample: Sample, task: str, progress: Progress | None
) -> list[T]:
    """Extend by the sample, some rows at a time; the progress accounts for the quadratic cost of full rows."""
    X, y, parts = sample.measured, sample.y, []
    size = CHUNK if X.ndim == 1 else MATRIX_CHUNK
    for start in range(0, len(X), size):
        if progress is not None:
            progress(task, start**X.ndim, len(X) ** X.ndim)
        rows = slice(start, start + size)
        parts.append(extend(X[rows], None if y is None else y[rows]))
    if progress is not None:
        progress(task, len(X) ** X.ndim, len(X) ** X.ndim)
    return parts


def row_limit(table: Table, max_rows: int) -> int:
    """Return how many rows nearest neighbours may use: ``max_rows``, or fewer if the table is very wide."""
    return max(2, min(max_rows, MAX_CELLS // max(1, len(table.features))))


def choose_rows(n: int, limit: int, seed: int) -> Rows | None:
    """Choose at most ``limit`` of n rows, in their order; None if all of them can be used.

    >>> choose_rows(10, 3, seed=0), choose_rows(10, 10, seed=0)
    (array([1, 4, 9]), None)
    """
    if n <= limit:
        return None
    return np.sort(np.argpartition(thetas(seed, 0, n, THIN_STREAM), limit)[:limit])


def choose_rows_of_two(start: int, n: int, limit: int) -> Rows | None:
    """Choose at most ``limit`` of n rows of two shuffled sets, the first with ``start`` rows; None for all.

    The second set, which is bet on, keeps up to half of them, and the first set gets the remainder. The order within
    each set is random, so the first rows of each are a random choice.

    >>> choose_rows_of_two(8, 10, 6)
    array([0, 1, 2, 3, 8, 9])
    """
    if n <= limit:
        return None
    second = min(n - start, max(1, limit // 2))
    return np.concatenate([np.arange(min(start, limit - second)), np.arange(start, start + second)])


def expand(log_value: Floats, rows: Rows, n: int) -> Floats:
    """Return the log capital after each of n rows, if bets are placed at ``rows`` only.

    >>> expand(np.array([0.5, 0.7]), np.array([1, 3]), 5)
    array([0. , 0.5, 0.5, 0.7, 0.7])
    """
    return np.concatenate([[0.0], log_value])[_bets_placed(rows, n)]


def expand_path(path: Path, rows: Rows, start: int, n: int, *, latch: bool = True) -> Path:
    """Return the path after each of the rows ``start`` to n - 1, given that of some of them.

    Between them the capital stays as it is, and with ``latch`` so does the alarm. These rows have no p-values (NaN).
    """
    rows, earlier = rows[rows >= start] - start, int(path.n[0]) - 1
    placed = _bets_placed(rows, n - start)
    p = np.full(n - start, np.nan)
    p[rows] = path.p
    alarm = np.concatenate([[False], path.alarm])[placed]
    reached = np.concatenate([[start], start + rows + 1])  # by the number of bets before
    return Path(
        n=np.arange(start + 1, n + 1),
        p=p,
        log_value=np.concatenate([[0.0], path.log_value])[placed],
        alarm=alarm if latch else alarm & ~np.isnan(p),
        lowest=reached[np.concatenate([[earlier], path.lowest]) - earlier][placed],
        test=np.concatenate([[1], path.test])[placed],
        guarantee=path.guarantee,
    )


def expand_shift(shift: Shift, rows: Rows, n: int) -> Shift:
    """Return the evidence after each of n rows, given that of some rows."""
    label, concept = (
        Evidence(
            one.p, expand(one.log_value, rows, n), None if one.alarm_at is None else int(rows[one.alarm_at - 1]) + 1
        )
        for one in (shift.label, shift.concept)
    )
    return shift._replace(label=label, concept=concept)


def _bets_placed(rows: Rows, n: int) -> Rows:
    """Return the number of bets after each of n rows."""
    placed = np.zeros(n, np.intp)
    placed[rows] = 1
    return np.cumsum(placed, out=placed)
