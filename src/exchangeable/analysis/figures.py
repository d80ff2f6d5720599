"""The figures of a result, for `Result.plot`, the report and the card: evidence, data and p-values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exchangeable import plots
from exchangeable.analysis import column_plots
from exchangeable.analysis.column_plots import Marks
from exchangeable.analysis.columns import COLUMN_KINDS, FULL_ROWS, ColumnTest, column_p_values, ranked, rejecting
from exchangeable.analysis.explain import FeatureEvidence
from exchangeable.analysis.formats import format_name
from exchangeable.analysis.series import columns_of
from exchangeable.analysis.shares import strongest_ranked
from exchangeable.analysis.text import FEW_ROWS, describe_test, figure_title
from exchangeable.analysis.views import neighbours_p_values
from exchangeable.data.encode import MISSING
from exchangeable.data.table import TableColumn
from exchangeable.protocols import Floats
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from exchangeable.analysis.result import Result

MAX_PLOTTED = 4  # columns and views in a figure of the evidence
MAX_PICTURES = 6
MAX_MARKED = 50  # rows
FEW_VALUES = 6  # a column with so few different numbers is drawn as categories
MIN_PERIOD = 20  # p-values of a histogram
Known = dict[tuple[str, str], TableColumn]
VIEWS = ("component", "residual")  # views with one number for each row


def plot(result: Result, kind: str, column: str | None, ax: Axes | None) -> Axes:
    """Draw a figure of a result: see `Result.plot`."""
    figures = {"evidence": evidence, "p-values": p_value_histograms}
    if kind != "data" and kind not in figures:
        raise ValueError(f"kind must be 'evidence', 'data' or 'p-values', got {format_value(kind)}")
    if column is not None and kind != "data":
        raise ValueError(f"column must be left out unless kind is 'data', got {format_value(column)}")
    return data(result, column, ax) if kind == "data" else figures[kind](result, ax)


# ------------------------------------------------------------------------------------------------------------- evidence


def evidence(result: Result, ax: Axes | None = None) -> Axes:
    """Plot the evidence over time."""
    tests = plotted_tests(result)
    ax = plots.growth(
        {name: test.log_evidence for name, test in tests.items()},
        thresholds=() if result.verdict.threshold is None else (result.verdict.threshold,),
        changepoints=result.verdict.changepoints,
        title=figure_title(result.table.name),
        start=result.start,
        times=result.timeline.axis,
        initial={name: math.log(test.weight) for name, test in tests.items()},
        ax=ax,
    )
    ax.set_xlabel("rows seen" if result.timeline.axis is None else "time")
    return ax


def plotted_tests(result: Result) -> dict[str, ColumnTest]:
    """Return the tests to plot, by name: full rows, and the other tests that reject, or else the strongest one."""
    rows, *others = result.tests
    if not others:
        return {result.bet: rows}
    level = math.inf if result.alpha is None else -math.log(result.alpha)
    chosen = [test for test in rejecting(result.tests, level) if test is not rows] or ranked(others)[:1]
    names = [describe_test(test) for test in chosen[:MAX_PLOTTED]]
    unique = [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names, 1)]
    return {FULL_ROWS: rows, **dict(zip(unique, chosen, strict=False))}


# ------------------------------------------------------------------------------------------------------------- the data


def mark(result: Result) -> Marks:
    """Return what is marked in each picture, by the kind of the departure."""
    departure, change = result.departure, result.change
    if departure is None:
        return Marks()
    changes = [before for before in departure.changes if 0 < before < result.n]
    if departure.kind in ("one change", "last part"):
        known = change is not None and change.low is not None and change.high is not None
        return Marks(changes[:1], (change.low, change.high) if known else None)  # type: ignore[union-attr,arg-type]
    if departure.kind == "several changes":
        return Marks(changes)
    if departure.kind in ("outliers", "repeated rows"):
        return Marks(rows=[row for row in departure.rows if 0 < row <= result.n][:MAX_MARKED])
    return Marks(smooth=True)


def known_columns(result: Result) -> Known:
    """Return the columns and views with one value for each row, by the kind and the name of their tests."""
    return {key: column for key, column in columns_of(result).items() if key[0] in (*COLUMN_KINDS, *VIEWS, "rows")}


def find_column(known: Known, name: str, kind: str = "") -> TableColumn | None:
    """Return the column that a test is about; of a view "... of c" that is not known, c; None if there is none."""
    by_name = {key[1]: column for key, column in reversed(known.items())}
    return known.get((kind, name)) or by_name.get(name) or by_name.get(name.partition(" of ")[2] or name)


def tested_features(result: Result) -> list[FeatureEvidence]:
    """Return the columns and views that reject, with their effects, and then all tests; an explanation has more."""
    rest = [FeatureEvidence(test.name, test.kind, test.log10_evidence, False, None, None) for test in result.tests]
    return [*(() if result.finding is None else result.finding.effects), *rest]


def pictured(result: Result, features: Sequence[FeatureEvidence]) -> list[tuple[FeatureEvidence, TableColumn]]:
    """Return the columns to draw, the most evidence first: those that are flagged, or else the strongest one.

    Components and residuals are drawn only if no column is flagged.
    """
    known, flagged = known_columns(result), [one for one in features if one.flagged and one.kind not in VIEWS]
    for group, limit in ((flagged, MAX_PICTURES), (features, 1)):
        found: dict[str, tuple[FeatureEvidence, TableColumn]] = {}
        for feature in sorted(group, key=lambda feature: -feature.log10_evidence):
            column = find_column(known, feature.name, feature.kind)
            if column is not None:
                found.setdefault(column.name, (feature, column))
        if found:
            return list(found.values())[:limit]
    return []


def data(result: Result, name: str | None, ax: Axes | None = None) -> Axes:
    """Draw one column, by default the strongest one."""
    features = tested_features(result)
    if name is None:
        drawn = pictured(result, features) or pictured(result, result.explain().features)
    else:
        named = {key[1]: column for key, column in reversed(known_columns(result).items())}
        drawn = [(features[0], named[name])] if name in named else []
    if not drawn:
        raise ValueError(f"column must be a column or a view that was tested, got {format_value(name)}")
    column = drawn[0][1]
    ax = draw_column(result, column, mark(result), ax)
    ax.set_title(format_name(column.name).replace("$", r"\$"), pad=14.0)
    return ax


def draw_column(
    result: Result,
    column: TableColumn,
    marks: Marks,
    ax: Axes | None = None,
    name: Callable[[str], str] = format_name,
) -> Axes:
    """Draw a column over time, or in the two sets that were compared; ``name`` formats the names of categories."""
    missing = result.table.missing(column.name)
    column = _few_values(column, missing)
    categories = None if column.categories is None else [name(category) for category in column.categories]
    if result.split is not None:
        parts = [slice(result.start), slice(result.start, None)]
        sets = sorted(zip(result.split[:2], parts, strict=True), reverse=True)  # the reference first
        if categories is not None:
            return column_plots.share_bars({which: column.values[rows] for which, rows in sets}, categories, ax=ax)
        there = np.ones(result.n, np.bool_) if missing is None else ~missing
        ax = column_plots.histograms({which: column.values[rows][there[rows]] for which, rows in sets}, ax=ax)
        ax.set_yticks([])  # densities
        return ax
    times = result.timeline.axis
    if categories is not None:
        return column_plots.shares(column.values, categories, marks, times=times, ax=ax)
    return column_plots.series(column.values, marks, times=times, missing=missing, ax=ax)


def _few_values(column: TableColumn, missing: NDArray[np.bool_] | None) -> TableColumn:
    """Return a column of few different numbers as categories, others as they are."""
    values = column.values
    there = values if missing is None else values[~missing]
    if column.categorical or len(values) < FEW_ROWS or len(np.unique(values[: 10 * FEW_ROWS])) > 2 * FEW_VALUES:
        return column
    distinct, codes = np.unique(there, return_inverse=True)
    if len(distinct) > FEW_VALUES:
        return column
    every = np.full(len(values), float(len(distinct)))
    every[slice(None) if missing is None else ~missing] = codes
    names = [f"{number:.6g}" for number in distinct.tolist()] + [MISSING] * (missing is not None)
    return TableColumn(column.name, every, tuple(names))


# ------------------------------------------------------------------------------------------------------------- p-values


def strongest_p_values(result: Result) -> tuple[ColumnTest, Floats]:
    """Return the strongest test that has p-values, and these: NaN where there is none."""
    test = strongest_ranked(result.tests)
    if test.kind == "rows":
        return test, result.path.p
    if test.kind == "neighbours":
        return test, neighbours_p_values(result.parts, result.sample, result.n, seed=result.seed)[result.start :]
    column = columns_of(result)[test.kind, test.name]
    return test, np.concatenate(list(column_p_values(column, result.seed, start=result.start)))


def periods(result: Result, p: Floats) -> dict[str, Floats]:
    """Split p-values at the change, and at a restart; not at all if there is none, or few rows on one side."""
    path, verdict, cuts = result.path, result.verdict, [0, len(result.path.n)]
    before = (verdict.changepoints or [0])[0]
    if result.split is None and MIN_PERIOD <= before <= len(path.n) - MIN_PERIOD:
        cuts = sorted({*cuts, before, *(verdict.alarms[:1] if verdict.on_alarm == "restart" else [])})
    names = {2: ["all"], 3: ["before the change", "after it"]}.get(
        len(cuts), ["before the change", "up to the alarm", "after the restart"]
    )
    first = int(path.n[0])
    return {
        f"{name}: rows {first + a:,} to {first + b - 1:,}": p[a:b][~np.isnan(p[a:b])]
        for name, (a, b) in zip(names, pairwise(cuts), strict=True)
    }


def p_value_histograms(result: Result, ax: Axes | None = None, found: tuple[ColumnTest, Floats] | None = None) -> Axes:
    """Draw the p-values of the strongest test, before and after the change; exchangeable data has density 1."""
    test, p = found or strongest_p_values(result)
    parts = periods(result, p)
    count = min(map(len, parts.values()))
    ax = column_plots.histograms(parts, bins=min(20, max(4, math.isqrt(count))), limits=(0.0, 1.0), ax=ax)
    ax.axhline(1.0, color=column_plots.GREY, linewidth=1.2, linestyle=(0, (4, 3)))
    ax.set(xlabel="p-value", xlim=(0.0, 1.0), title=format_name(test.name).replace("$", r"\$"))
    ax.set_ylim(top=max(2.0, ax.get_ylim()[1]))
    return ax
