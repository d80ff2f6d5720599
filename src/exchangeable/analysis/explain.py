"""What changed, and when: an explanation of the verdict of a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable.alarms import Ville
from exchangeable.analysis.columns import (
    ColumnTest,
    Progress,
    TestedColumn,
    first_reaching,
    log_evidence,
    run_column_tests,
    select_columns,
)
from exchangeable.analysis.sample import choose_rows, expand, expand_shift, row_limit
from exchangeable.analysis.settings import MAX_ROWS
from exchangeable.analysis.text import describe_explanation, dump_json, format_name
from exchangeable.analysis.timeline import Timeline
from exchangeable.analysis.views import run_neighbours_test
from exchangeable.data.design import design_matrix
from exchangeable.data.table import TableColumn, take_labels
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.pvalues import PValues
from exchangeable.shift import Shift, shift_test
from exchangeable.validation import check_interval

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

BACKWARDS = 2  # the stream of tie-breaking numbers for the table read backwards
EXTREMES = 5  # rows that are listed with the smallest and with the largest p-values


class Change(NamedTuple):
    """A change point, as the number of rows before the change.

    The interval from ``low`` to ``high`` has a guarantee. Suppose that there is a single change, that the rows
    before it are exchangeable given those after it, and that those after it are exchangeable given those before (as
    with two independent i.i.d. samples). Then the interval contains the true number with probability at least
    ``confidence``. This probability is over all data, including data without an alarm, for which no interval is shown.
    The condition is on each part given the other, because scales and categories are those of the entire table. After a
    false alarm, or if the change was barely detected, the interval may well miss it. If it is empty (None), a single
    change is rejected: there is a drift, or there are several changes.

    ``estimate`` has no guarantee. It is where the capital of the strongest martingale was lowest within the interval,
    or the quick estimate ``Result.changepoint`` if the interval is empty.
    """

    estimate: int
    low: int | None
    high: int | None
    confidence: float

    @property
    def single(self) -> bool:
        """Whether one change between two exchangeable parts may explain the data."""
        return self.low is not None


class FeatureEvidence(NamedTuple):
    """The test of a column or a view: its evidence, whether it is flagged, and how it differs before and after."""

    name: str
    kind: str  # "numbers", "categories" or "label"; of a view "component", "residual" or "neighbours"
    log10_evidence: float  # the highest, on the scale of the verdict
    flagged: bool
    rejected_at: int | None
    changepoint: int | None
    difference: str  # a description; empty if the column is not flagged


class ExtremeRow(NamedTuple):
    """A row with an extreme p-value: its number, counted from 1 in the order of the test, and its p-value."""

    n: int
    p: float


class Explanation(NamedTuple):
    """The result of `Result.explain`; ``print`` describes it in sentences.

    - ``change``: the change point with an interval; None if nothing was rejected, or if two sets were compared.
    - ``features``: the test of each column and of the label, sorted by evidence. A column is ``flagged`` if its
      evidence, its capital times its share of alpha, ever reached 1 / alpha. The probability that *any* exchangeable
      column is flagged is at most alpha, whatever their dependence.
    - ``views``: the same for the views of the table that were tested: components, residuals, more neighbours.
    - ``shift``: label shift or concept shift, if there are classes.
    - ``smallest_p`` and ``largest_p``: the strangest and the most typical rows.
    """

    change: Change | None
    features: list[FeatureEvidence]
    views: list[FeatureEvidence]
    shift: Shift | None
    smallest_p: list[ExtremeRow]
    largest_p: list[ExtremeRow]
    alpha: float
    n: int  # rows with a p-value
    compared: bool = False  # whether two sets were compared
    timeline: Timeline = Timeline()

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee for the columns."""
        if not self.features:
            return "All columns are constant, so none was tested."
        return (
            f"The probability that any exchangeable column is flagged is at most {self.alpha:g}: a column is flagged "
            f"only if its evidence, which is weighted by its share of that level, reaches {1.0 / self.alpha:,.6g}."
        )

    @property
    def changed(self) -> list[str]:
        """The names of the flagged columns, the most evidence first."""
        return [feature.name for feature in self.features if feature.flagged]

    def __str__(self) -> str:
        return describe_explanation(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "change": None if self.change is None else self._with_times(self.change, "estimate", "low", "high"),
            "features": [self._with_times(feature, "rejected_at", "changepoint") for feature in self.features],
            "views": [self._with_times(view, "rejected_at", "changepoint") for view in self.views],
            "shift": None if self.shift is None else _shift_record(self.shift),
            "smallest_p": [self._with_times(row, "n") for row in self.smallest_p],
            "largest_p": [self._with_times(row, "n") for row in self.largest_p],
            "alpha": self.alpha,
            "guarantee": self.guarantee,
        }

    def _with_times(self, record: Change | FeatureEvidence | ExtremeRow, *names: str) -> dict[str, Any]:
        """Return a record as plain data, with the times of the rows that it names if they are known."""
        times = {f"{name}_time": self.timeline.iso(getattr(record, name)) for name in names}
        return {**record._asdict(), **({} if self.timeline.times is None else times)}

    def to_json(self) -> str:
        """Return the explanation as JSON."""
        return dump_json(self.to_dict())

    def _repr_html_(self) -> str:
        from exchangeable.analysis.report import explanation_card

        return explanation_card(self)


def _shift_record(shift: Shift) -> dict[str, Any]:
    record: dict[str, Any] = {"verdict": shift.verdict}
    for name, test in (("label", shift.label), ("concept", shift.concept)):
        log10 = test.log_value / LN10
        record[name] = {"log10_max": max(0.0, float(log10.max())), "log10_martingale": float(log10[-1])}
    return record


def explain(
    result: Result, confidence: float, features: Sequence[str] | None, progress: Progress | None
) -> Explanation:
    """Explain a result: test each column, forwards and backwards, and the table once more, backwards."""
    confidence = check_interval("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    alpha = result.alpha if result.alpha is not None else Ville().alpha
    columns = select_columns(result.table, features)
    tests, views = result.column_tests, result.view_tests
    if features is not None or not tests:  # they were not part of the verdict, so they get all of alpha
        total = len(columns) + (result.table.sorted_aside if features is None else 0)
        alone = [column._replace(weight=1.0 / max(1, total)) for column in columns]
        run = partial(run_column_tests, seed=result.seed, start=result.start, progress=progress)
        tests, views = run(alone, result.parts.column_bet), []
    evidence = [_feature(result, column, test, alpha) for column, test in zip(columns, tests, strict=True)]
    columns_of = {(one.kind, one.column.name): one for one in result.view_columns}
    viewed = [_feature(result, columns_of.get((test.kind, test.name)), test, alpha) for test in views]
    ranked = np.flatnonzero(~np.isnan(result.path.p))
    order = ranked[np.argsort(result.path.p[ranked], kind="stable")].tolist()
    return Explanation(
        change=_change(result, confidence, progress),
        features=sorted(evidence, key=lambda feature: -feature.log10_evidence),
        views=sorted(viewed, key=lambda view: -view.log10_evidence),
        shift=_shift(result, alpha),
        smallest_p=[_extreme(result, i) for i in order[:EXTREMES]],
        largest_p=[_extreme(result, i) for i in order[: -EXTREMES - 1 : -1]],
        alpha=alpha,
        n=len(ranked),
        compared=result.split is not None,
        timeline=result.timeline,
    )


def _extreme(result: Result, i: int) -> ExtremeRow:
    return ExtremeRow(int(result.path.n[i]), float(result.path.p[i]))


# --------------------------------------------------------------------------------------------------------- change point


def _change(result: Result, confidence: float, progress: Progress | None) -> Change | None:
    """Estimate the change point and its interval.

    A change after t rows is refuted if the rows up to t, forwards, or those after t, backwards, give evidence
    of 2 / (1 - confidence) against their exchangeability. For the true t each has probability at most half of
    1 - confidence, by Ville's inequality: given one part, all orders of the other are equally likely, so a scale or a
    category that comes from both does not depend on that order.
    """
    if result.changepoint is None or result.verdict.on_alarm != "latch":
        return None
    level, n = math.log(2.0 / (1.0 - confidence)), result.n
    forwards = first_reaching(result.log_evidence, level)
    backwards = first_reaching(log_evidence(_backward_tests(result, progress)), level)
    low, high = (1 if backwards is None else n - backwards + 1), (n - 1 if forwards is None else forwards - 1)
    if low > high:
        return Change(result.changepoint, None, None, confidence)
    capital = np.concatenate([[0.0], result.strongest.log_value])[low : high + 1]
    return Change(high - int(capital[::-1].argmin()), low, high, confidence)


def _backward_tests(result: Result, progress: Progress | None) -> list[ColumnTest]:
    """Run the same tests on the table read from its end."""
    measure, bet, *_ = result.fresh_parts()
    X, y, rows = result.sample
    p = PValues(measure, seed=result.seed, stream=BACKWARDS).extend(X[::-1], None if y is None else y[::-1])
    log_value = Martingale(bet).extend(p)
    if rows is not None:
        log_value = expand(log_value, result.n - 1 - rows[::-1], result.n)
    tests = [result.tests[0]._replace(log_value=log_value)]
    if result.column_tests:
        weight = result.column_tests[0].weight
        columns = [column._replace(weight=weight) for column in select_columns(result.table)]
        run = partial(run_column_tests, bet=result.parts.column_bet, seed=result.seed, backwards=True)
        tests += run(columns, progress=progress) + run(result.view_columns)
    if result.column_tests and result.parts.neighbours is not None:
        tests.append(
            run_neighbours_test(
                result.parts, result.sample, result.n, seed=result.seed, backwards=True, progress=progress
            )
        )
    return tests


# ----------------------------------------------------------------------------------------------------- columns, labels


def _feature(result: Result, tested: TestedColumn | None, test: ColumnTest, alpha: float) -> FeatureEvidence:
    """Evaluate the test of a column, or of a view, at its share of alpha."""
    bets = test.first_reaching(-math.log(alpha))
    changepoint = None if bets is None or result.split is not None else test.rise_start(bets)
    boundary = result.start if result.split is not None else changepoint
    return FeatureEvidence(
        name=test.name,
        kind=test.kind,
        log10_evidence=test.log10_evidence,
        flagged=bets is not None,
        rejected_at=None if bets is None else result.start + bets,
        changepoint=changepoint,
        difference=_difference(tested.column, boundary) if tested and bets is not None and boundary else "",
    )


def _difference(column: TableColumn, boundary: int) -> str:
    """Describe a column before and after the boundary."""
    before, after = column.values[:boundary], column.values[boundary:]
    if column.categories is None:
        means = f"mean {before.mean():.4g} -> {after.mean():.4g}"
        return f"{means}, deviation {before.std():.3g} -> {after.std():.3g}"
    shares = np.array(
        [np.bincount(part.astype(np.intp), minlength=len(column.categories)) / len(part) for part in (before, after)]
    )
    largest = int(np.abs(shares[1] - shares[0]).argmax())
    first, second = (100.0 * shares[:, largest]).tolist()
    return f"share of {format_name(column.categories[largest])}: {first:.0f} % -> {second:.0f} %"


def _shift(result: Result, alpha: float) -> Shift | None:
    """For classes: test whether their frequencies change, or the rows of each class."""
    y = result.table.y
    if not isinstance(y, list) or result.split is not None:
        return None
    kinds = {isinstance(label, str) for label in y}
    if len(kinds) > 1 or not all(isinstance(label, (str, int, float, bool)) for label in y):
        return None
    measure, bet, *_ = result.fresh_parts()
    X, labels, rows = result.sample
    if X.ndim == 1:  # the measure ranks scores
        limit = row_limit(result.table, MAX_ROWS if result.settings is None else result.settings.max_rows)
        rows = choose_rows(result.n, limit, result.seed)
        X, labels = design_matrix(result.table, result.scale, rows), y if rows is None else take_labels(y, rows)
    chosen = measure if isinstance(measure, NearestNeighbour) else None
    shift = shift_test(X, labels or (), measure=chosen, bet=bet, alpha=alpha, seed=result.seed)
    return shift if rows is None else expand_shift(shift, rows, result.n)
