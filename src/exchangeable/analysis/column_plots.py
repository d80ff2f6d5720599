"""Pictures of columns: numbers or shares of categories over time, or in two sets.

Each function draws on the given Axes (or on new ones) and returns them. Long columns are thinned to what a screen can
show, without losing the lowest and the highest values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import plots
from exchangeable.protocols import Floats, Integers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

BLUE, RED, _, _, GOLD, _ = plots.COLOURS
GREY, BAND, INK = "#888888", "#e0a526", "#333a42"  # marks are dark, data is coloured
MAX_POINTS = 1000  # more values are drawn as a band from the lowest to the highest of each bin
BINS, BIN_ROWS = 200, 15  # of such a band at most, and rows of a bin on average at least
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)  # of the values of a bin
FAR = 0.6  # of the range of the middle 99 %: values farther from it are drawn at the edge
SMOOTH = 20  # the window of a running mean is one part in so many of the rows
MIN_ROWS, MAX_BINS = 25, 40  # rows of a bin from which a share is computed, and such bins
EDGE = 0.08  # of the width of a picture
MAX_CATEGORIES = 6  # the others are one category
FILLS = (  # neighbours differ in brightness, so that they are told apart without colours
    (BLUE, 0.95), (GOLD, 0.5), ("#8e5ea2", 0.9), (BLUE, 0.4), ("#555555", 0.9), (GOLD, 0.85), (GREY, 0.3),
)  # fmt: skip
BARS = ((GREY, 0.55), (BLUE, 0.95))


class Marks(NamedTuple):
    """What is marked in a picture of a column over time."""

    changes: Sequence[int] = ()  # numbers of rows before a change: they divide the rows into parts
    interval: tuple[int, int] | None = None  # the first and the last such number that the data allow
    smooth: bool = False  # whether a running mean is drawn through points
    rows: Sequence[int] = ()  # rows to look at, from 1


NO_MARKS = Marks()


def series(
    values: ArrayLike,
    marks: Marks = NO_MARKS,
    *,
    times: ArrayLike | None = None,
    missing: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot numbers against their row, from 1, or against ``times`` in ascending order.

    Up to 1,000 values are drawn as points, more as a band from the lowest to the highest of each bin of rows, darker
    for the middle 80 %, with the median. Values far from all others are triangles at the edge. The mean of each part is
    drawn. Where ``missing`` is true there is no value; a strip at the bottom shows the share of these rows.

    >>> ax = series([20.0, 21.0, 20.5, 24.0, 25.0], Marks([3]))
    >>> [text.get_text() for text in ax.texts]
    ['20.5', '24.5']
    """
    ax, y = ax or plots.axes(), np.asarray(values, np.float64)
    x = _rows(len(y), times)
    there = np.ones(len(y), np.bool_) if missing is None else ~np.asarray(missing, np.bool_)
    _values(ax, x[there], y[there], everything=len(marks.rows) > 0)
    if marks.smooth and there.sum() <= MAX_POINTS:
        ax.plot(x[there], running_mean(y[there]), color=INK, linewidth=2.0, label="running mean")
    _changes(ax, x, marks)
    if marks.changes:
        _means(ax, x, y, there, marks.changes)
    if rows := [row - 1 for row in marks.rows]:
        ax.plot(x[rows], y[rows], "o", mfc="none", mec=RED, mew=1.4, markersize=9.0, label="row to look at")
    if not there.all():
        _missing_strip(ax, x, ~there)
    _thousands(ax.yaxis)
    return _finish(ax, times)


def shares(
    codes: ArrayLike,
    categories: Sequence[str],
    marks: Marks = NO_MARKS,
    *,
    times: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the shares of categories in bins of rows, stacked: the six largest, and all others combined.

    ``codes`` are the positions of the categories; the other arguments are those of `series`.

    >>> ax = shares([0, 1, 1, 1], ["blue", "red"])
    >>> [text.get_text() for text in ax.texts]
    ['blue', 'red']
    """
    ax, codes = ax or plots.axes(), np.asarray(codes, np.intp)
    x = _rows(len(codes), times)
    edges, starts = _bins(x, max(1, min(MAX_BINS, len(x) // MIN_ROWS)))
    counts = np.array([np.bincount(part, minlength=len(categories)) for part in np.split(codes, starts)], np.float64)
    rows = counts.sum(axis=1, keepdims=True)
    share, names = largest(np.divide(counts, rows, out=np.full_like(counts, np.nan), where=rows > 0), categories)
    above = np.cumsum(share, axis=1)
    for k, (colour, alpha) in enumerate(FILLS[: len(names)]):
        top, base = (np.where(np.isnan(line), 0.0, line) for line in (above[:, k], above[:, k] - share[:, k]))
        ax.stairs(top, edges, baseline=base, fill=True, color=colour, alpha=alpha, linewidth=0.0)
    _label_shares(ax, above[-1] - share[-1] / 2.0, names)
    _changes(ax, x, marks, ymin=1.015, ymax=1.055, clip_on=False)  # above the shares, which fill the axes
    ax.set_ylim(0.0, 1.0)
    ax.yaxis.set_major_formatter(_percent)
    return _finish(ax, times)


def histograms(
    groups: Mapping[str, ArrayLike],
    *,
    bins: int = 40,
    limits: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the distributions of numbers on one scale, each with an area of 1: the first filled, the others as lines.

    Values far from all others are left out, with a note, unless ``limits`` are given.

    >>> len(histograms({"before": [1.0, 2.0], "after": [2.0, 3.0]}).patches)
    2
    """
    ax, parts = ax or plots.axes(), [np.asarray(values, np.float64) for values in groups.values()]
    pooled = np.concatenate(parts)
    low, high = limits or _limits(pooled)
    for i, (name, values) in enumerate(zip(groups, parts, strict=True)):
        counts, edges = np.histogram(values, bins, (low, high))
        line: dict[str, Any] = {"color": BLUE if i == 1 else GOLD, "linewidth": 2.0}
        style = line if i else {"fill": True, "color": GREY, "alpha": 0.35}
        ax.stairs(counts / (max(1, len(values)) * (edges[1] - edges[0])), edges, label=name, **style)
    _note_beyond(ax, int(((pooled < low) | (pooled > high)).sum()), pooled)
    _thousands(ax.xaxis)
    ax.set_ylim(bottom=0.0)
    ax.legend(edgecolor="none", framealpha=0.9, loc="best")
    return ax


def share_bars(groups: Mapping[str, ArrayLike], categories: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Plot the shares of categories in several groups of rows side by side; ``groups`` holds their codes.

    >>> ax = share_bars({"reference": [0, 0, 1, 1], "current": [1, 1]}, ["blue", "red"])
    >>> [float(bar.get_width()) for bar in ax.patches]
    [0.5, 0.5, 0.0, 1.0]
    """
    ax, parts = ax or plots.axes(), [np.asarray(codes, np.intp) for codes in groups.values()]
    counts = np.array([np.bincount(codes, minlength=len(categories)) / max(1, len(codes)) for codes in parts])
    share, names = largest(counts, categories)
    height = 0.8 / len(parts)
    for i, name in enumerate(groups):
        places, (colour, alpha) = np.arange(len(names)) + (i - (len(parts) - 1) / 2.0) * height, BARS[min(i, 1)]
        drawn = ax.barh(places, share[i], 0.92 * height, label=name, color=colour, alpha=alpha)
        ax.bar_label(drawn, [f"{100.0 * one:.3g} %" for one in share[i]], padding=3, fontsize="small")
    ax.set_yticks(np.arange(len(names)), names)
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.invert_yaxis()
    ax.set_xlim(0.0, 1.12 * max(float(share.max()), 0.05))
    ax.xaxis.set_major_formatter(_percent)
    ax.legend(edgecolor="none", framealpha=0.9, loc="best")
    return ax


def running_mean(y: Floats) -> Floats:
    """Return the mean of each value and its neighbours, a twentieth of all values together.

    >>> running_mean(np.array([1.0, 2.0, 6.0]))
    array([1.5, 3. , 4. ])
    """
    half, rows = max(1, len(y) // SMOOTH // 2), np.arange(len(y))
    total = np.concatenate([[0.0], np.cumsum(y)])
    first, last = np.maximum(rows - half, 0), np.minimum(rows + half + 1, len(y))
    return np.asarray((total[last] - total[first]) / (last - first))


def largest(share: Floats, names: Sequence[str]) -> tuple[Floats, list[str]]:
    """Return the shares of the categories that are ever the largest, in their order, and the sum of the others.

    >>> largest(np.array([[0.1] * 10]), "abcdefghij")[1]
    ['a', 'b', 'c', 'd', 'e', 'f', 'other (4)']
    """
    if len(names) <= MAX_CATEGORIES + 1:
        return share, list(names)
    order = np.argsort(-np.nanmax(share, axis=0), kind="stable")
    kept, others = np.sort(order[:MAX_CATEGORIES]), order[MAX_CATEGORIES:]
    rest = share[:, others].sum(axis=1, keepdims=True)
    return np.hstack([share[:, kept], rest]), [*(names[k] for k in kept.tolist()), f"other ({len(others):,})"]


def _rows(n: int, times: ArrayLike | None) -> Floats:
    """Return where rows are on the x-axis."""
    return np.arange(1.0, n + 1.0) if times is None else plots.positions(times)[1:]


def _bins(x: Floats, count: int) -> tuple[Floats, Integers]:
    """Return the edges of equal parts of the axis, and the first row of each part but the first."""
    edges = np.linspace(x[0], x[-1], count + 1)
    return edges, np.searchsorted(x, edges[1:-1])


def _limits(y: Floats) -> tuple[float, float]:
    """Return the lowest and the highest value, except for those far from nearly all others."""
    low, bottom, top, high = np.quantile(y, [0.0, 0.005, 0.995, 1.0]).tolist()
    far = FAR * (top - bottom) if top > bottom else math.inf
    return max(low, bottom - far), min(high, top + far)


def _values(ax: Axes, x: Floats, y: Floats, everything: bool) -> None:
    """Draw points, or bands and the median of many; values beyond the axis as triangles."""
    low, high = (float(y.min()), float(y.max())) if everything else _limits(y)
    if len(y) <= MAX_POINTS:
        inside, name = (y >= low) & (y <= high), "value of a row"
        ax.plot(x[inside], y[inside], ".", color=BLUE, alpha=0.7, mew=0.0, markersize=7.0, label=name)
        place, lowest, highest = x, y, y
    else:
        place, lowest, highest = _bands(ax, x, y, low, high)
    for beyond, level, shape in ((highest > high, high, "^"), (lowest < low, low, "v")):
        ax.plot(place[beyond], np.full(int(beyond.sum()), level), shape, color=RED, markersize=5.0)
    _note_beyond(ax, int(((y < low) | (y > high)).sum()), y)


def _bands(ax: Axes, x: Floats, y: Floats, low: float, high: float) -> tuple[Floats, Floats, Floats]:
    """Draw the range and the median of each bin within limits; return the middles, lowest and highest values."""
    edges, starts = _bins(x, min(BINS, len(x) // BIN_ROWS))
    parts = [np.quantile(part, QUANTILES) if len(part) else np.full(5, np.nan) for part in np.split(y, starts)]
    quantiles, place = np.transpose(parts), (edges[1:] + edges[:-1]) / 2.0
    lowest, ten, median, ninety, highest = np.clip(quantiles, low, high)
    for base, top, alpha, name in ((lowest, highest, 0.18, "all values"), (ten, ninety, 0.4, "middle 80 %")):
        bottom, height = np.nan_to_num(base, nan=low), np.nan_to_num(top, nan=low)
        ax.stairs(height, edges, baseline=bottom, fill=True, color=BLUE, alpha=alpha, linewidth=0.0, label=name)
    ax.plot(place, median, color=BLUE, linewidth=1.6, label="median")
    return place, quantiles[0], quantiles[-1]


def _note_beyond(ax: Axes, count: int, y: Floats) -> None:
    if count:
        text = f"{count:,} beyond the axis (all: {_number(float(y.min()))} to {_number(float(y.max()))})"
        ax.text(0.99, 1.0, text, transform=ax.transAxes, ha="right", va="bottom", fontsize="small", color="#666666")


def _changes(ax: Axes, x: Floats, marks: Marks, **band: Any) -> None:
    """Draw a line between the last row before each change and the first one after it, and a band for the interval."""
    if marks.interval is not None:
        low, high = (_between(x, before) for before in marks.interval)
        name = "where the change may be"
        ax.axvspan(low, high, color=BAND, alpha=0.9 if band else 0.3, linewidth=1.0, zorder=-1, label=name, **band)
    for i, before in enumerate(marks.changes):
        name = "_" if i else "estimated change"
        ax.axvline(_between(x, before), color=INK, linewidth=1.4, linestyle=(0, (4, 2)), label=name)


def _between(x: Floats, before: int) -> float:
    """Return the place between this number of rows and the next row."""
    return float(x[max(0, before - 1)] + x[min(before, len(x) - 1)]) / 2.0


def _means(ax: Axes, x: Floats, y: Floats, there: NDArray[np.bool_], changes: Sequence[int]) -> None:
    """Draw the mean of the values between two changes, with its number."""
    name = "mean of each part"
    for first, last in pairwise([0, *changes, len(y)]):
        if not there[first:last].any():
            continue
        mean, left, right = float(y[first:last][there[first:last]].mean()), _between(x, first), _between(x, last)
        ax.plot([left, right], [mean, mean], color=INK, linewidth=2.4, solid_capstyle="butt", label=name)
        centre = (left + right) / 2.0
        side = (centre - x[0]) / (x[-1] - x[0])  # text at an edge is written inwards
        align = "left" if side < EDGE else "right" if side > 1.0 - EDGE else "center"
        box = {"facecolor": "#ffffff", "alpha": 0.75, "linewidth": 0.0, "pad": 1.5}
        ax.annotate(
            _number(mean), (centre, mean), (0, 5), textcoords="offset points", ha=align, va="bottom",
            color=INK, fontweight="bold", bbox=box,
        )  # fmt: skip
        name = "_"


def _missing_strip(ax: Axes, x: Floats, missing: NDArray[np.bool_]) -> None:
    """Draw the share of missing values below the data, on a scale of its own."""
    edges, starts = _bins(x, max(1, min(MAX_BINS, len(x) // MIN_ROWS)))
    share = np.array([part.mean() if len(part) else 0.0 for part in np.split(missing, starts)])
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.22 * (high - low), high)
    where, name = ax.get_xaxis_transform(), "share of missing values"
    ax.stairs(0.1 * share / share.max(), edges, fill=True, color="#666666", transform=where, label=name)
    ax.text(
        0.005, 0.11, f"missing: {100.0 * missing.mean():.3g} %, up to {100.0 * share.max():.3g} %",
        transform=ax.transAxes, va="bottom", fontsize="small", color="#666666",
    )  # fmt: skip


def _label_shares(ax: Axes, heights: Floats, names: Sequence[str]) -> None:
    """Write the names of the categories at the right, with their colours, in their order and without overlaps."""
    gap, placed = 0.085, list[float]()
    for height in np.nan_to_num(heights).tolist():
        placed.append(max(height, placed[-1] + gap) if placed else max(height, gap / 2.0))
    limit = 1.0
    for k in range(len(placed) - 1, -1, -1):
        placed[k] = limit = min(placed[k], limit)
        limit -= gap
    where = ax.get_yaxis_transform()
    for height, name, (colour, alpha) in zip(placed, names, FILLS, strict=False):
        ax.plot([1.03], [height], "s", color=colour, alpha=alpha, markersize=7.0, transform=where, clip_on=False)
        ax.text(1.06, height, name, transform=where, va="center", parse_math=False)


def _thousands(axis: Axis, integer: bool = False) -> None:
    """Label an axis with few numbers, in full."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=6, integer=integer))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def _percent(value: float, _: object = None) -> str:
    return f"{100.0 * value:.3g} %"


def _finish(ax: Axes, times: ArrayLike | None) -> Axes:
    """Label the axes of a plot of data, and add a legend of what is drawn."""
    if times is not None:
        plots.date_axis(ax)
    else:
        _thousands(ax.xaxis, integer=True)
        ax.set_xlabel("row")
    ax.margins(x=0.01)
    if ax.get_legend_handles_labels()[0]:  # below the axes, where it hides nothing
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, fontsize="small")
    return ax
