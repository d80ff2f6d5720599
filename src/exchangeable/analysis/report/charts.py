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
from exchangeable.analysis.columns import ColumnTest, column_p_values, select_columns
from exchangeable.analysis.report.svg import ALARM, BAND, GRID, INK, LINE, LINES, MUTED, to_svg
from exchangeable.analysis.views import neighbours_p_values
from exchangeable.data.table import Times
from exchangeable.martingale import LN10, Martingale
from exchangeable.protocols import Bet, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from exchangeable.analysis.explain import Change
    from exchangeable.analysis.result import Result

Curve = tuple[Floats, Floats]  # rows seen, or their times in days, and log10 of the evidence
PIXELS = 1000  # columns of the widest chart; each keeps its lowest and its highest point
MAX_CHANGEPOINTS = 40
MAX_DOTS = 120  # alarms
BINS = 20  # of a histogram of p-values, at most
EDGE = 0.01  # a betting function may be very high this close to 0 and 1: the axis ignores it
STYLE: dict[str, Any] = {
    "axes.edgecolor": "#888888",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "font.size": 12.5,
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
    result: Result, change: Change | None = None, *, size: tuple[float, float] = (12.0, 4.4), pixels: int = PIXELS
) -> str:
    """Draw the evidence over time: alarm level, alarms, change points, and the interval of a single change."""
    verdict = result.verdict
    with _style():
        level = () if verdict.threshold is None else (verdict.threshold,)
        place = _places(result)
        curves = [_curve(result, test, place) for test in result.plotted_tests().values()]
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
        heights = _finite_heights(ax, result.log_evidence[raised - result.start - 1] / LN10)
        ax.plot(place(raised), heights, "o", color=ALARM, markersize=7.0, clip_on=False, zorder=5)


def shift_charts(
    paths: Mapping[str, Floats], threshold: float, times: Times | None = None, size: tuple[float, float] = (5.8, 3.0)
) -> list[str]:
    """Draw each capital in its own chart, all on the same scale."""
    with _style():
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


def p_value_charts(periods: Mapping[str, Floats]) -> list[str]:
    """Draw a histogram of the p-values of each period, all on the same scale; exchangeable data has density 1."""
    with _style():
        charts, highest = [], 2.0
        for p in periods.values():
            bins = min(BINS, max(4, math.isqrt(len(p))))
            density, edges = np.histogram(p, bins=bins, range=(0.0, 1.0), density=True)
            ax = plots.axes(11.6 / max(2, len(periods)), 2.8)
            ax.stairs(density, edges, fill=True, color=LINE, alpha=0.45)
            ax.axhline(1.0, color="#888888", linewidth=1.2, linestyle=(0, (4, 3)))
            charts.append(ax)
            highest = max(highest, 1.05 * float(density.max()))
        for ax in charts:
            _simplify(ax)
            ax.set(xlabel="p-value", xlim=(0.0, 1.0), ylim=(0.0, highest))
        return [to_svg(ax, f"Histogram of the p-values of {name}") for name, ax in zip(periods, charts, strict=True)]


def betting_chart(result: Result, p: Floats) -> str:
    """Draw the final betting function of the strongest test over those of its p-values that it has learnt from."""
    learnt = learnt_p_values(result, p)
    with _style():
        shown = learnt if len(learnt) else None
        ax = plots.betting({result.bet: _final_bet(result, p)}, p=shown, ax=plots.axes(12, 3.4))
        curve, no_bet = ax.get_lines()
        x, f = (np.asarray(values) for values in curve.get_data())
        no_bet.set_zorder(2.0)
        inner = f[(x > EDGE) & (x < 1.0 - EDGE) & np.isfinite(f)]
        bars = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
        if bars:  # as one shape, so that there are no seams
            for bar in [*ax.patches]:
                bar.remove()
            ax.stairs(bars, np.linspace(0.0, 1.0, len(bars) + 1), fill=True, color="#dddddd")
        _simplify(ax)
        ax.set(xlabel="p-value", ylabel="", ylim=(0.0, 1.15 * max([2.0, *inner.tolist(), *bars])))
        return to_svg(ax, "Final betting function against the p-value, over a histogram of the p-values so far")


def strongest_p_values(result: Result) -> Floats:
    """Return the p-values of the strongest test, one for each row; NaN where there is none."""
    name, kind = result.strongest[:2]
    if kind == "rows":
        return result.path.p
    if kind == "neighbours":
        return neighbours_p_values(result.parts, result.sample, result.n, seed=result.seed)[result.start :]
    tested = [*select_columns(result.table), *result.view_columns]
    column = next(one.column for one in tested if (one.column.name, one.kind) == (name, kind))
    return np.concatenate(list(column_p_values(column, result.seed, start=result.start)))


def learnt_p_values(result: Result, p: Floats) -> Floats:
    """Return those of the p-values that came since the start, or since the last restart."""
    if result.verdict.on_alarm == "restart" and result.verdict.alarms:
        p = p[result.path.n > result.verdict.alarms[-1]]
    return p[~np.isnan(p)]


def _final_bet(result: Result, p: Floats) -> Bet:
    """Return the bet of the strongest test after the last row, given its p-values."""
    if result.strongest is result.tests[0]:
        return result.monitor.martingale.bet
    martingale = Martingale(result.fresh_parts().column_bet)
    martingale.extend(p[~np.isnan(p)])
    return martingale.bet


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
        line.set(data=(x, _finite_heights(ax, y)), color=LINES[i], linewidth=1.6, zorder=3.0 - 0.1 * i)
    for line in ax.get_lines()[len(curves) : len(curves) + len(changepoints)]:
        line.set(linewidth=1.3, linestyle=(0, (1.0, 2.0)))
    _simplify(ax, counts=times is None)
    ax.set(xlabel="rows seen" if times is None else "", ylabel="")
    if curves[0][0][0] < curves[0][0][-1]:
        ax.set_xlim(curves[0][0][0], curves[0][0][-1])
    ax.yaxis.set_major_formatter(lambda value, _: format_power(value, ax.get_ylim()[1]))
    for text in ax.texts:
        text.set_fontsize(12.0)
    return ax


def _range(y: Floats) -> Floats:
    """Return the lowest and the highest finite value."""
    finite = y[np.isfinite(y)]
    return np.array([finite.min(), finite.max()]) if len(finite) else np.zeros(2)


def _finite_heights(ax: Axes, y: Floats) -> Floats:
    """Move infinite values to the edge of the chart: the log of a capital of 0 is drawn at the lower edge."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    return np.where(np.isneginf(y), low, np.where(np.isposinf(y), high, y))


def _simplify(ax: Axes, counts: bool = False) -> None:
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
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(2, int(figure.get_figwidth() * 0.9))))
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
def _style() -> Iterator[None]:
    """Use the matplotlib settings of the report, whatever the user's are."""
    with needed("report", "figures"):
        plots.axes()
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield
