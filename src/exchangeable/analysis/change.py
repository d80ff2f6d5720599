"""When the change occurred: an interval with a guarantee around an estimate without one.

A change after t rows is refuted if the rows up to t, forwards, or those after t, backwards, give evidence of
2 / (1 - confidence) against their exchangeability. For the true t each has probability at most half of 1 - confidence,
by Ville's inequality: given one part, all orders of the other are equally likely, so a scale or a category that comes
from both does not depend on that order. Backwards only the test with the most evidence is run (for shares of categories
that of the column, since shares are tested only after all rows), with its weight in the union of all tests. Fewer tests
refute less, so this choice may depend on the data.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from exchangeable.analysis.columns import (
    FULL_ROWS,
    ColumnTest,
    Progress,
    TestedColumn,
    first_reaching,
    run_column_tests,
)
from exchangeable.analysis.sample import expand, extend_in_parts
from exchangeable.analysis.series import columns_of
from exchangeable.analysis.shares import strongest_ranked
from exchangeable.analysis.views import run_neighbours_test
from exchangeable.martingale import Martingale
from exchangeable.protocols import Floats
from exchangeable.pvalues import PValues

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

CONFIDENCE = 0.95
BACKWARDS = 2  # the stream of tie-breaking numbers for the table read backwards


class Change(NamedTuple):
    """A change point, as the number of rows before the change.

    The interval from ``low`` to ``high`` has a guarantee. Suppose that there is a single change, that the rows
    before it are exchangeable given those after it, and that those after it are exchangeable given those before (as
    with two independent i.i.d. samples). Then the interval contains the true number with probability at least
    ``confidence``. This probability is over all data, including data without an alarm, for which no interval is shown.
    The condition is on each part given the other, because scales and categories are those of the entire table. After a
    false alarm, or if the change was barely detected, the interval may well miss it. If it is empty (None), a single
    change is rejected: there is a drift, or there are several changes.

    ``estimate`` has no guarantee. It is where a single change describes the column or view with the most evidence best,
    or the first of several changes. It may lie outside the interval.
    """

    estimate: int
    low: int | None
    high: int | None
    confidence: float

    @property
    def single(self) -> bool:
        """Whether one change between two exchangeable parts may explain the data."""
        return self.low is not None


def locate(result: Result, backward_evidence: Floats, confidence: float) -> Change:
    """Return the estimate of the change point with its interval, given the log evidence of the rows backwards."""
    level, n = math.log(2.0 / (1.0 - confidence)), result.n
    forwards = first_reaching(result.log_evidence, level)
    backwards = first_reaching(backward_evidence, level)
    low, high = (1 if backwards is None else n - backwards + 1), (n - 1 if forwards is None else forwards - 1)
    estimate = result.changepoint or 0
    return Change(estimate, None, None, confidence) if low > high else Change(estimate, low, high, confidence)


def run_backwards(result: Result, progress: Progress | None) -> Floats:
    """Run the test with the most evidence on the table read from its end; return its log evidence after each row."""
    test = strongest_ranked(result.tests)
    if test.kind == "neighbours":
        again = run_neighbours_test(
            result.parts, result.sample, result.n, seed=result.seed, backwards=True, progress=progress
        )
    elif test.kind == "rows":
        again = _run_rows_backwards(result, test, progress)
    else:
        column = TestedColumn(test.kind, columns_of(result)[test.kind, test.name], test.weight)
        (again,) = run_column_tests(
            [column], result.parts.column_bet, seed=result.seed, backwards=True, task=test.name, progress=progress
        )
    return again.log_evidence


def _run_rows_backwards(result: Result, test: ColumnTest, progress: Progress | None) -> ColumnTest:
    measure, bet, *_ = copy.deepcopy(result.parts)
    sample, rows = result.sample.backwards(), result.sample.rows
    extend = PValues(measure, seed=result.seed, stream=BACKWARDS).extend
    p = np.concatenate(extend_in_parts(extend, sample, f"{FULL_ROWS} backwards", progress))
    log_value = Martingale(bet).extend(p)
    if rows is not None:
        log_value = expand(log_value, result.n - 1 - rows[::-1], result.n)
    return test._replace(log_value=log_value)
