"""The lines of a table monitor: one martingale for each column, component, residual and for full rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from exchangeable.alarms import ShiryaevRoberts, Ville
from exchangeable.fleet import stream_seed
from exchangeable.history import History
from exchangeable.martingale import Martingale
from exchangeable.measures import Frozen, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import default_bet
from exchangeable.protocols import Floats, Integers, Measure
from exchangeable.pvalues import PValues
from exchangeable.table_monitor.constants import Component, Constants
from exchangeable.validation import check_integer, format_value

SHARES = {"column": 0.4, "component": 0.15, "rows": 0.2, "residual": 0.1, "labelled rows": 0.15}
LABELLED = ("label", "residual", "labelled rows")
VIEWS = ("component", "rows", "residual", "labelled rows")  # kinds of lines that are about several columns
EXACT = (NearestDistance, NearestNeighbour, NearestResidual)


class Rows(NamedTuple):
    """Rows as scores of columns, features, labels (NaN where there is none), and their numbers."""

    scores: Floats
    features: Floats
    y: Floats
    at: Integers

    def take(self, rows: Any) -> Rows:
        """Return some of the rows."""
        return Rows(*(part[rows] for part in self))


class Plan(NamedTuple):
    """A line before it starts: its name, its kind, what it ranks, as a function of rows, and an empty measure."""

    name: str
    kind: str
    values: Callable[[Rows], Any]
    fresh: Measure
    column: int | None = None  # the scores that it ranks, if it is about a column


class Line(NamedTuple):
    """What is known of one martingale: evidence about one column or view, whose alarm has a share of the table's."""

    name: str
    kind: str
    log_evidence: float  # the log capital times the weight
    alarm_at: int | None
    changepoint: int | None
    stopped: bool = False  # it holds as many rows as it may, and does not bet any more


class LineState(NamedTuple):
    """The parts of a martingale, as they start and as they are stored; `Lines` holds them side by side."""

    pvalues: PValues
    martingale: Martingale
    alarm: Ville | ShiryaevRoberts
    low: float  # the lowest log capital before the alarm
    lowest: int  # the row after which it was
    alarm_at: int | None
    changepoint: int | None
    history: History  # of the log evidence after each row of the table


class Level(NamedTuple):
    """The level of the alarm of a table: alpha, or a period. A line has a share of it, its weight."""

    alpha: float
    period: float | None

    def alarm(self, weight: float) -> Ville | ShiryaevRoberts:
        """Return the alarm of a line with this weight."""
        return Ville(self.alpha * weight) if self.period is None else ShiryaevRoberts(2.0 * self.period / weight)


def measure_size(measure: Any) -> int:
    """Return how many rows a measure holds."""
    return int(measure.n)


def plan_lines(
    constants: Constants, each: bool, bins: int | None, fixed: Rows | None, fresh: Sequence[Measure] | None = None
) -> list[Plan]:
    """Return the lines. Edges of bins are quantiles of ``fixed``, the rows that chose the constants.

    ``fresh`` holds the empty measures of a saved monitor, to use instead.
    """
    views = _views(constants, each, bins)
    if fresh is None:
        fresh = [
            _scalar_measure(bins, None if fixed is None else values(outside(constants, kind, fixed)))
            if exact is None
            else exact()
            for _, kind, values, exact in views
        ]
    tested = len(constants.columns) if each else 0  # they come first
    columns = [*range(tested), *(None for _ in views[tested:])]
    return [
        Plan(name, kind, values, one, column)
        for (name, kind, values, _), one, column in zip(views, fresh, columns, strict=True)
    ]


def outside(constants: Constants, kind: str, fixed: Rows) -> Rows:
    """Return the rows that edges of bins are computed from: distances of rows of the sample to itself are 0."""
    return fixed.take(slice(len(constants.sample), None)) if kind == "rows" else usable(kind, fixed)


def usable(kind: str, rows: Rows) -> Rows:
    """Return the rows that a line of this kind can rank: those with a label, if it needs one."""
    return rows.take(np.flatnonzero(~np.isnan(rows.y))) if kind in LABELLED else rows


View = tuple[str, str, Callable[[Rows], Any], Callable[[], Measure] | None]


def _views(constants: Constants, each: bool, bins: int | None) -> list[View]:
    """Return the name and kind of each line, what it ranks, and its measure unless it ranks numbers."""
    columns = list(enumerate(constants.columns)) if each else []
    views: list[View] = [(column.name, "column", partial(_scores, j), None) for j, column in columns]
    for component in constants.components if each else ():
        views.append((component.name, "component", partial(_projections, constants, component), None))
    if constants.has_features:
        views += _row_views(constants, bins)
    if constants.label is not None and each:
        views.append((f"label {constants.label.name}", "label", _labels, None))
        if constants.has_features:
            views.append((f"residual of {constants.label.name}", "residual", partial(_residuals, constants), None))
    return _distinct(views)


def _row_views(constants: Constants, bins: int | None) -> list[View]:
    """Return the lines of full rows: exact nearest neighbours, or with bins the distance to fixed rows."""
    if bins is not None:
        return [("full rows", "rows", partial(_distances, constants), None)]
    scaled = partial(_scaled_features, constants)
    views: list[View] = [("full rows", "rows", scaled, NearestDistance)]
    if constants.label is not None:
        numbers = constants.label.categories is None
        views.append(("full rows and label", "labelled rows", scaled, NearestResidual if numbers else NearestNeighbour))
    return views


def _scores(column: int, rows: Rows) -> Floats:
    return rows.scores[:, column]


def _projections(constants: Constants, component: Component, rows: Rows) -> Floats:
    return constants.project(rows.features, component)


def _distances(constants: Constants, rows: Rows) -> Floats:
    return constants.distances(rows.features)


def _scaled_features(constants: Constants, rows: Rows) -> Floats:
    return rows.features * constants.scales


def _labels(rows: Rows) -> Floats:
    return rows.y


def _residuals(constants: Constants, rows: Rows) -> Floats:
    return constants.residuals(rows.features, rows.y)


def _distinct(views: Sequence[View]) -> list[View]:
    """Rename views that have the name of a column, since evidence, seeds and descriptions go by name."""
    found: dict[str, View] = {}
    for name, *others in views:
        while name in found:
            name += " (view)"
        found[name] = (name, *others)  # type: ignore[assignment]
    return list(found.values())


def _scalar_measure(bins: int | None, reference: Floats | None) -> Measure:
    if bins is None or reference is None:
        return Value()
    present = reference[~np.isnan(reference)]
    distinct = np.unique(present)
    if len(distinct) < 2:  # so that smaller and larger values are apart
        middle = float(distinct[0]) if len(distinct) else 0.0
        margin = 1e-6 * max(1.0, abs(middle))
        present = np.array([middle - margin, middle, middle + margin])
    return Frozen(reference=present, bins=bins)


def start_lines(
    plans: Sequence[Plan],
    pool: Rows | None,
    *,
    level: Level,
    seed: int,
    max_rows: int,
    start: int,
    run: int = 0,
) -> list[LineState]:
    """Return lines whose pools hold the rows of the reference that are left, without bets."""
    lines = []
    for plan, weight in zip(plans, line_weights(plans, run), strict=True):
        measure, exact = copy.deepcopy(plan.fresh), isinstance(plan.fresh, EXACT)
        if pool is not None:
            rows = usable(plan.kind, pool)
            rows = rows.take(slice(0, max_rows // 2)) if exact else rows
            if len(rows.scores):
                measure.extend(plan.values(rows), label_argument(plan.kind, measure, rows.y))
        alarm = level.alarm(weight)
        pvalues = PValues(measure, seed=stream_seed(seed, plan.name), start=start)
        martingale = Martingale(default_bet(alarm))
        lines.append(LineState(pvalues, martingale, alarm, 0.0, start, None, None, History(start)))
    return lines


def fresh_lines(plans: Sequence[Plan], level: Level, seed: int, max_rows: int, start: int, run: int) -> list[LineState]:
    """Return lines with empty pools."""
    return start_lines(plans, None, level=level, seed=seed, max_rows=max_rows, start=start, run=run)


def label_argument(kind: str, measure: Any, y: Floats) -> Any:
    """Return the labels as a measure needs them; None if it needs none."""
    if kind != "labelled rows":
        return None
    return y if isinstance(measure, NearestResidual) else y.astype(np.int64).tolist()


def line_weights(plans: Sequence[Plan], run: int) -> list[float]:
    """Return the weights of lines, which sum to 1: the share of each kind, split evenly; a label is a column.

    The lines with the label have this weight over all their runs, and part of it in each.
    """
    kinds = ["column" if plan.kind == "label" else plan.kind for plan in plans]
    total = sum(SHARES[kind] for kind in sorted(set(kinds)))
    weights = [SHARES[kind] / total / kinds.count(kind) for kind in kinds]
    part = run_share(run)
    return [w * part if plan.kind in LABELLED else w for w, plan in zip(weights, plans, strict=True)]


def run_share(run: int) -> float:
    """Return the part of the weight of a line with the label that a run has; these sum to 1 over all runs.

    >>> [run_share(run) for run in (0, 1, 8)]
    [0.5, 0.16666666666666666, 0.011111111111111112]
    """
    return 1.0 / ((run + 1.0) * (run + 2.0))


# ------------------------------------------------------------------------------------------------------ snapshots


def load_line(name: str, fresh: LineState, state: Any, n: int) -> LineState:
    """Check a saved line, which must be like a fresh one; ``n`` is the number of rows."""
    pvalues, martingale, alarm, low, lowest, alarm_at, changepoint, history = state
    like = repr((fresh.pvalues, fresh.martingale.bet, fresh.alarm))
    same = isinstance(pvalues, PValues) and isinstance(martingale, Martingale)
    if not same or repr((pvalues, martingale.bet, alarm)) != like:
        raise ValueError(f"the line {format_value(name)} must be like {like:.200}, got another")
    if getattr(pvalues.measure, "score", None) is not None:
        raise ValueError(f"the line {format_value(name)} must rank numbers, got another score")
    edges, others = (getattr(one.measure, "edges", None) for one in (fresh.pvalues, pvalues))
    if not np.array_equal(edges, others):  # type: ignore[arg-type]
        raise ValueError(f"the line {format_value(name)} must have the edges of its empty measure, got others")
    if not isinstance(history, History) or history.start != fresh.history.start:
        raise ValueError(f"the line {format_value(name)} must have a history, got another")
    if type(low) is not float or not low <= 0.0 or pvalues.n > n or pvalues.n - martingale.n != history.start:
        raise ValueError(f"the line {format_value(name)} must have valid numbers, got others")
    lowest = check_integer("lowest", lowest, 0, n)
    alarm_at = None if alarm_at is None else check_integer("alarm_at", alarm_at, 1, n)
    changepoint = None if alarm_at is None else check_integer("changepoint", changepoint, 0, n)
    return LineState(pvalues, martingale, alarm, low, lowest, alarm_at, changepoint, history)
