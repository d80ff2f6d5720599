"""The charts of a report, drawn by matplotlib as inline SVG.

Long curves are thinned to what a screen can show, without losing any highest or lowest point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from exchangeable import plots
from exchangeable._extras import needed
from exchangeable.analysis.column_plots import Marks
from exchangeable.analysis.columns import ColumnTest
from exchangeable.analysis.figures import draw_column, p_value_histograms, plotted_tests
from exchangeable.analysis.report.names import clip
from exchangeable.analysis.report.svg import ALARM, BAND, GRID, INK, LINES, MUTED, to_svg
from exchangeable.data.table import TableColumn, Times
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from exchangeable.analysis.change import Change
    from exchangeable.analysis.result import Result

Curve = tuple[Floats, Floats]  # rows seen, or their times in days, and log10 of the evidence
WIDE, HALF = (6.6, 2.9), (5.2, 2.7)  # inches: a chart of its own, and one of two side by side
PIXELS = 600  # columns of the widest chart; each keeps its lowest and its highest point
MAX_CATEGORY = 18  # characters
DASHES = ("-", (0, (5, 1)), (0, (1.6, 1)), (0, (9, 1.5)), "-")  # so that lines are told apart without colours
MAX_CHANGEPOINTS = 40
MAX_DOTS = 120  # alarms
STYLE: dict[str, Any] = {
    "axes.edgecolor": "#888888",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "font.size": 11.0,
    "path.simplify": False,  # curves are thinned here
    "svg.fonttype": "none",
    "svg.hashsalt": "exchangeable",
    "text.color": INK,
    "xtick.color": "#888888",
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def evidence_chart(
    result: Result, change: Change | None = None, *, size: tuple[float, float] = WIDE, pixels: int = PIXELS
) -> str:
    """Draw the evidence over time: alarm level, alarms, change points, and the interval of a single change."""
    verdict = result.verdict
    with report_style():
        level = () if verdict.threshold is None else (verdict.threshold,)
        place = _places(result)
        curves = [_curve(result, test, place) for test in plotted_tests(result).values()]
        changepoints = verdict.changepoints[:MAX_CHANGEPOINTS]
        ax = _growth(curves, level, size, pixels // len(curves) + pixels // 4, changepoints, result.timeline.axis)
        if change is not None and change.low is not None and change.high is not None:
            ax.axvspan(place(change.low), place(change.high), color=BAND, alpha=0.3, linewidth=1.0, zorder=-1)
        _mark_alarms(ax, result, place)
        alarms = "one alarm" if len(verdict.alarms) == 1 else f"{len(verdict.alarms) or 'no'} alarms"
        return to_svg(ax, f"Evidence after each of {len(result.path.n):,} rows, on a log scale, with {alarms}")


def _places(result: Result) -> Callable[[Any], Any]:
    """Return the function from numbers of rows to places on the x-axis: the numbers, or the times in days."""
    times = result.timeline.axis
    if times is None:
        return lambda rows: np.asarray(rows, np.float64)
    days = plots.positions(times)
    return lambda rows: days[rows]


def _mark_alarms(ax: Axes, result: Result, place: Callable[[Any], Any]) -> None:
    """Draw a dot at each alarm; only one where many would overlap."""
    raised = np.asarray(result.verdict.alarms, np.int64)
    cell = raised * MAX_DOTS // (int(result.path.n[-1]) + 1)
    raised = raised[np.flatnonzero(np.diff(cell, prepend=-1))]
    if len(raised):
        heights = plots.finite_heights(ax, result.log_evidence[raised - result.start - 1] / LN10)
        ax.plot(place(raised), heights, "o", color=ALARM, markersize=7.0, mew=0.0, clip_on=False, zorder=5)


def shift_charts(
    paths: Mapping[str, Floats], threshold: float, times: Times | None = None, size: tuple[float, float] = HALF
) -> list[str]:
    """Draw each capital in its own chart, all on the same scale."""
    with report_style():
        charts = []
        for log_value in paths.values():
            y = np.concatenate([[0.0], log_value]) / LN10
            x = np.arange(len(y), dtype=np.float64) if times is None else plots.positions(times)
            charts.append(_growth([(x, y)], (threshold,), size, PIXELS // 2, times=times))
        limits = [ax.get_ylim() for ax in charts]
        for ax in charts:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        return [
            to_svg(ax, f"Capital of the test for {name}, on a log scale")
            for name, ax in zip(paths, charts, strict=True)
        ]


def data_chart(
    result: Result, column: TableColumn, marks: Marks, size: tuple[float, float] = WIDE
) -> tuple[str, list[str]]:
    """Draw a column by `draw_column`; also return the entries of its legend."""
    with report_style():
        ax = draw_column(result, column, marks, plots.axes(*size), lambda name: clip(name, MAX_CATEGORY))
        labels = ax.get_legend_handles_labels()[1]
        simplify(ax)
        where = "over time" if result.split is None else "in the two sets"
        return to_svg(ax, f"{clip(column.name)} {where}"), labels


def p_value_chart(result: Result, found: tuple[ColumnTest, Floats]) -> tuple[str, list[str]]:
    """Draw histograms of the p-values of a test; also return the entries of the legend."""
    with report_style():
        ax = p_value_histograms(result, plots.axes(*WIDE), found)
        labels = ax.get_legend_handles_labels()[1]
        simplify(ax)
        ax.set_title("")
        return to_svg(ax, "Histogram of the p-values"), labels


def _curve(result: Result, test: ColumnTest, place: Callable[[Any], Any]) -> Curve:
    """Return the weighted capital in log10, from before the first bet; a restart resets it."""
    verdict, path = result.verdict, result.path
    rows = np.concatenate([[result.start], path.n])
    y = np.concatenate([[0.0], test.log_value]) / LN10 + math.log10(test.weight)
    if verdict.on_alarm == "restart":
        raised = np.asarray(verdict.alarms, np.int64)
        after = raised - result.start + 1
        rows, y = np.insert(rows, after, raised), np.insert(y, after, 0.0)
    return place(rows), y


def _growth(
    curves: Sequence[Curve],
    thresholds: Sequence[float],
    size: tuple[float, float],
    pixels: int,
    changepoints: Sequence[int] = (),
    times: Times | None = None,
) -> Axes:
    """Draw thinned curves by `plots.growth`, in the style of the report."""
    ranges = {f"{i}": LN10 * _range(y) for i, (_, y) in enumerate(curves)}  # for the limits of the y-axis
    ax = plots.growth(ranges, thresholds=thresholds, changepoints=changepoints, times=times, ax=plots.axes(*size))
    for i, (line, curve) in enumerate(zip(ax.get_lines(), curves, strict=False)):
        x, y = plots.thin(*curve, pixels)
        style = {"color": LINES[i], "linestyle": DASHES[i], "linewidth": 1.6, "zorder": 3.0 - 0.1 * i}
        line.set(data=(x, plots.finite_heights(ax, y)), **style)
    for line in ax.get_lines()[len(curves) : len(curves) + len(changepoints)]:
        line.set(linewidth=1.3, linestyle=(0, (1.0, 2.0)))
    simplify(ax, counts=times is None)
    ax.set(xlabel="rows seen" if times is None else "", ylabel="")
    if curves[0][0][0] < curves[0][0][-1]:
        ax.set_xlim(curves[0][0][0], curves[0][0][-1])
    ax.yaxis.set_major_formatter(lambda value, _: format_power(value, ax.get_ylim()[1]))
    for text in ax.texts:
        text.set_fontsize(10.5)
    return ax


def _range(y: Floats) -> Floats:
    """Return the lowest and the highest finite value."""
    finite = y[np.isfinite(y)]
    return np.array([finite.min(), finite.max()]) if len(finite) else np.zeros(2)


def simplify(ax: Axes, counts: bool = False) -> None:
    """Remove the legend, ticks and spines; with ``counts`` the x-axis has integers with thousands separators."""
    from matplotlib.ticker import MaxNLocator

    legend, figure = ax.get_legend(), cast("Figure", ax.figure)
    if legend is not None:  # the page has its own
        legend.remove()
    ax.spines["left"].set_visible(False)
    ax.tick_params(left=False, bottom=False)
    ax.grid(axis="y", color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    if counts:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(2, int(figure.get_figwidth()))))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def format_power(exponent: float, highest: float) -> str:
    """Return the label of a power of ten, on an axis up to ``10**highest``.

    >>> format_power(2.0, 3.0), format_power(2.0, 20.0), format_power(-13.0, 2.0), format_power(0.0, 9.0)
    ('100', '10²', '10⁻¹³', '1')
    """
    if exponent == 0.0 or (highest < 4.0 and exponent >= -2.0):
        return f"{10.0**exponent:,.12g}"
    return "10" + f"{exponent:.0f}".translate(SUPERSCRIPTS)


@contextmanager
def report_style() -> Iterator[None]:
    """Use the matplotlib settings of the report, whatever the user's are."""
    with needed("report", "figures"):
        plots.axes()
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield
