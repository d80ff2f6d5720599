"""What changed, and when: an explanation of the verdict of a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable.alarms import Ville
from exchangeable.analysis.change import Change
from exchangeable.analysis.columns import ColumnTest, Progress, rejecting, run_column_tests, select_columns
from exchangeable.analysis.departure import Departure
from exchangeable.analysis.effects import Effect, describe_effect, drift_of, effect_of
from exchangeable.analysis.formats import dump_json, format_name
from exchangeable.analysis.patterns import best_change
from exchangeable.analysis.sample import choose_rows, expand_shift, row_limit
from exchangeable.analysis.series import column_series, columns_of
from exchangeable.analysis.settings import MAX_ROWS
from exchangeable.analysis.shares import without_repeats
from exchangeable.analysis.text import describe_explanation
from exchangeable.analysis.timeline import Timeline
from exchangeable.data.design import design_matrix
from exchangeable.data.table import TableColumn, take_labels
from exchangeable.martingale import LN10
from exchangeable.measures import NearestNeighbour
from exchangeable.shift import Shift, shift_test
from exchangeable.validation import check_interval

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

EXTREMES = 5  # rows that are listed with the smallest and with the largest p-values


class FeatureEvidence(NamedTuple):
    """The test of a column or a view: its evidence, whether it is flagged, and how it differs before and after."""

    name: str
    kind: str  # "numbers", "categories" or "label"; of a view "component", "residual", "neighbours" or "shares"
    log10_evidence: float  # the highest, on the scale of the verdict
    flagged: bool
    rejected_at: int | None
    changepoint: int | None
    effect: Effect | None = None  # before and after; None if the column is not flagged

    @property
    def difference(self) -> str:
        """The effect in words; empty if there is none."""
        return "" if self.effect is None else describe_effect(self.effect, format_name)


class ExtremeRow(NamedTuple):
    """A row with an extreme p-value: its number, counted from 1 in the order of the test, and its p-value."""

    n: int
    p: float


class Explanation(NamedTuple):
    """The result of `Result.explain`; ``print`` describes it in sentences.

    - ``change``: the change point with an interval; None if nothing was rejected, or if two sets were compared.
    - ``departure``: what kind of departure it is, such as one change, a drift or a seasonal pattern; None if
      ``change`` is. It is a description without a guarantee.
    - ``features``: the test of each column and of the label, sorted by evidence. A column is ``flagged`` if its
      evidence, its capital times its share of alpha, ever reached 1 / alpha. The probability that *any* exchangeable
      column is flagged is at most alpha, whatever their dependence.
    - ``views``: the same for the views of the table that were tested: components, residuals, more neighbours, and
      shares of categories.
    - ``shift``: label shift or concept shift, if there are classes.
    - ``smallest_p`` and ``largest_p``: the strangest and the most typical rows.
    """

    change: Change | None
    departure: Departure | None
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
            "departure": None if self.departure is None else self.departure._asdict(),
            "features": [self._feature_record(feature) for feature in self.features],
            "views": [self._feature_record(view) for view in self.views],
            "shift": None if self.shift is None else _shift_record(self.shift),
            "smallest_p": [self._with_times(row, "n") for row in self.smallest_p],
            "largest_p": [self._with_times(row, "n") for row in self.largest_p],
            "alpha": self.alpha,
            "guarantee": self.guarantee,
        }

    def _feature_record(self, feature: FeatureEvidence) -> dict[str, Any]:
        effect = None if feature.effect is None else feature.effect._asdict()
        record = self._with_times(feature, "rejected_at", "changepoint")
        return {**record, "effect": effect, "difference": feature.difference}

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
    """Explain a result: when, what kind of departure, which columns, labels, and extreme rows."""
    confidence = check_interval("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    alpha = result.alpha if result.alpha is not None else Ville().alpha
    columns = select_columns(result.table, features)
    tests, views = result.column_tests, result.view_tests
    if features is not None or not tests:  # they were not part of the verdict, so they get all of alpha
        total = len(columns) + (result.table.sorted_aside if features is None else 0)
        alone = [column._replace(weight=1.0 / max(1, total)) for column in columns]
        run = partial(run_column_tests, seed=result.seed, start=result.start, progress=progress)
        tests, views = run(alone, result.parts.column_bet), []
    evidence = [_feature(result, one.column, test, alpha) for one, test in zip(columns, tests, strict=True)]
    known = columns_of(result)
    viewed = [_feature(result, known.get((test.kind, test.name)), test, alpha) for test in views]
    ranked = np.flatnonzero(~np.isnan(result.path.p))
    order = ranked[np.argsort(result.path.p[ranked], kind="stable")].tolist()
    return Explanation(
        change=result.locate_change(confidence, progress),
        departure=result.departure,
        features=sorted(evidence, key=lambda feature: (-feature.log10_evidence, feature.name)),
        views=sorted(viewed, key=lambda view: (-view.log10_evidence, view.name)),
        shift=_shift(result, alpha),
        smallest_p=[_extreme(result, i) for i in order[:EXTREMES]],
        largest_p=[_extreme(result, i) for i in order[: -EXTREMES - 1 : -1]],
        alpha=alpha,
        n=len(ranked),
        compared=result.split is not None,
        timeline=result.timeline,
    )


def flagged_features(result: Result) -> list[FeatureEvidence]:
    """Return the columns and then the views that reject on their own, the most evidence first."""
    columns, level = columns_of(result), -math.log(result.alpha or 1.0)
    rejected = without_repeats(rejecting(result.tests, level))
    tests = [test for test in rejected if (test.kind, test.name) in columns]
    tests.sort(key=lambda test: test.is_view)  # columns first: they can be looked at
    return [_feature(result, columns[test.kind, test.name], test, result.alpha or 1.0) for test in tests]


def _extreme(result: Result, i: int) -> ExtremeRow:
    return ExtremeRow(int(result.path.n[i]), float(result.path.p[i]))


# ----------------------------------------------------------------------------------------------------- columns, labels


def _feature(result: Result, column: TableColumn | None, test: ColumnTest, alpha: float) -> FeatureEvidence:
    """Evaluate the test of a column, or of a view, at its share of alpha."""
    bets = test.first_reaching(-math.log(alpha))
    flagged, changepoint = bets is not None, None
    changes = None if result.departure is None else result.departure.changes
    if flagged and result.split is None and changes != []:  # a departure of another kind has no change point
        changepoint = result.changepoint if column is None else best_change(column_series(column))
    boundary = result.start if result.split is not None else changepoint
    if changes is not None:  # all columns are compared at the same change; of several, none
        boundary = changes[0] if len(changes) == 1 else None
    return FeatureEvidence(
        name=test.name,
        kind=test.kind,
        log10_evidence=test.log10_evidence,
        flagged=flagged,
        rejected_at=None if bets is None else result.start + bets,
        changepoint=changepoint,
        effect=_effect(result, column, boundary) if column is not None and flagged else None,
    )


def _effect(result: Result, column: TableColumn, boundary: int | None) -> Effect | None:
    """Compare a column before and after a change, or at both ends for a drift, without missing values."""
    missing = result.table.missing(column.name)
    if missing is not None and not (missing[:boundary].all() or missing[boundary:].all()):
        column = column._replace(values=column.values[~missing])
        boundary = None if boundary is None else int((~missing[:boundary]).sum())
    if result.departure is not None and result.departure.kind in ("drift", "unclear"):
        return drift_of(column)
    return effect_of(column, boundary) if boundary else None


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
