"""Plots of evidence and bets. Each function draws on the given Axes (or on new ones) and returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from exchangeable._extras import needed
from exchangeable.martingale import LN10
from exchangeable.protocols import Bet, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THRESHOLDS = (20.0, 100.0)
PIXELS = 5000  # columns of a picture that long paths are thinned to
COLOURS = ("#0b6e99", "#c0392b", "#2e7d32", "#8e5ea2", "#b8860b", "#555555")


def axes(width: float = 7.0, height: float = 4.2) -> Axes:
    """Return new axes that need no display; raise ImportError if matplotlib is missing."""
    with needed("plots", "plots"):
        from matplotlib.figure import Figure
    ax = Figure(figsize=(width, height), layout="constrained", dpi=150).add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def growth(
    paths: Mapping[str, ArrayLike],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    changepoints: Sequence[int] = (),
    title: str = "",
    start: int = 0,
    initial: Mapping[str, float] | None = None,
    times: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the capital against the number of examples, on a log scale, with the thresholds; ``paths`` holds log S.

    A vertical line marks each of the ``changepoints``, which are numbers of examples before a change. ``start`` is the
    number of examples before the first bet, and ``initial`` the log capital of each path before it, 0 by default. If
    ``times`` holds the time of each example, in ascending order, the axis shows times instead of numbers. Long paths
    are thinned to what a picture can show.

    >>> ax = growth({"a quiet stream": [0.1, -0.2, 0.3]}, title="Evidence against exchangeability")
    >>> ax.get_xlabel()
    'examples seen'
    """
    longest = max((len(np.asarray(log_value)) for log_value in paths.values()), default=0)
    x = np.arange(start + longest + 1, dtype=np.float64) if times is None else positions(times)
    lines = {}
    for name, log_value in paths.items():
        values = np.concatenate([[(initial or {}).get(name, 0.0)], np.asarray(log_value, np.float64)])
        lines[name] = thin(x[start : start + len(values)], values, PIXELS)
    at = [changepoint if times is None else float(x[changepoint]) for changepoint in changepoints]
    ax = curves(lines, thresholds=thresholds, changepoints=at, title=title, ax=ax)
    if times is not None:
        date_axis(ax)
        ax.set_xlabel("time")
    return ax


def curves(
    lines: Mapping[str, tuple[Floats, Floats]],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    changepoints: Sequence[float] = (),
    alarms: tuple[Floats, Floats] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Plot curves as `growth` does, each given by its points: numbers of examples, and log S. ``alarms`` are dots.

    >>> curves({"a quiet stream": (np.array([0.0, 10.0]), np.array([0.0, -0.3]))}).get_ylabel()
    'capital $S_n$ (log scale)'
    """
    ax = ax or axes()
    drawn = []
    for (name, (x, y)), colour in zip(lines.items(), COLOURS * (1 + len(lines) // len(COLOURS)), strict=False):
        drawn += ax.plot(x, y / LN10, label=name, color=colour, linewidth=1.6)
        ax.update_datalim([(x[0], 0.0), (x[-1], 0.0)])  # matplotlib ignores points that are not finite
    for i, changepoint in enumerate(changepoints):
        name = "_" if i else "estimated change point"  # one entry of the legend for all
        ax.axvline(changepoint, color="#888888", linewidth=1.2, linestyle=":", zorder=0, label=name)
    _thresholds(ax, thresholds)
    if alarms is not None and len(alarms[0]):
        name = "alarm" if len(alarms[0]) == 1 else "alarms"
        drawn += ax.plot(alarms[0], alarms[1] / LN10, "o", color=COLOURS[1], markersize=5.0, zorder=3, label=name)
    for line in drawn:
        line.set_ydata(finite_heights(ax, np.asarray(line.get_ydata(), np.float64)))
    _decades(ax)
    ax.margins(x=0.0)
    ax.set(xlabel="examples seen", ylabel="capital $S_n$ (log scale)", title=title)
    ax.legend(edgecolor="none", framealpha=0.9, loc="best")
    return ax


def finite_heights(ax: Axes, y: Floats) -> Floats:
    """Return heights at which values can be drawn: the log of a capital of 0 is at the lower edge of the axes."""
    if not np.isinf(y).any():
        return y
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    return np.where(np.isneginf(y), low, np.where(np.isposinf(y), high, y))


def positions(times: ArrayLike) -> Floats:
    """Return where the times are on an axis of dates, in days, after 0, 1, ... examples."""
    from matplotlib.dates import date2num

    days = np.asarray(date2num(np.asarray(times)), np.float64)  # type: ignore[no-untyped-call]
    return np.concatenate([days[:1], days])


def risk_band(
    band: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike],
    limit: float,
    *,
    alarm_at: int | None = None,
    alpha: float = 0.01,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean loss with its confidence band and the limit; ``band`` holds n, mean, low and high.

    >>> risk_band(([1, 2], [0.0, 0.5], [0.0, 0.0], [1.0, 1.0]), 0.1).get_xlabel()
    'losses seen'
    """
    ax = axes() if ax is None else ax
    n, mean, low, high = (np.asarray(column, np.float64) for column in band)
    ax.fill_between(n, low, high, color=COLOURS[0], alpha=0.18, linewidth=0, label=f"{1.0 - alpha:.3g} interval")
    ax.plot(n, mean, color=COLOURS[0], linewidth=1.2, label="mean loss")
    ax.axhline(limit, color="#666666", linestyle="--", linewidth=1.0, label="limit")
    if alarm_at is not None:
        ax.axvline(alarm_at, color=COLOURS[1], linewidth=1.0, label="alarm")
    ax.set(xlabel="losses seen", ylabel="mean loss", title="Risk so far, with an interval that holds at all times")
    ax.legend(frameon=False, fontsize="small")
    return ax


def thin(x: Floats, y: Floats, pixels: int) -> tuple[Floats, Floats]:
    """Reduce a curve to the lowest and the highest point of each column of pixels, in order, with both ends. O(n).

    >>> thin(np.arange(8), np.array([0.0, 5.0, 1.0, 2.0, -7.0, 3.0, 1.0, 0.0]), 2)
    (array([0, 1, 4, 5, 7]), array([ 0.,  5., -7.,  3.,  0.]))
    """
    if len(y) <= 2 * pixels or x[0] == x[-1]:
        return x, y
    pixel = np.minimum((x - x[0]) * pixels // (x[-1] - x[0]), pixels - 1)
    starts = np.flatnonzero(np.diff(pixel, prepend=-1))
    selected = {0, len(y) - 1}
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(y)], strict=True):
        selected |= {start + int(y[start:stop].argmin()), start + int(y[start:stop].argmax())}
    chosen = sorted(selected)
    return x[chosen], y[chosen]


def date_axis(ax: Axes) -> None:
    """Label the x-axis with dates, or with times of day if the axis is short."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=8)  # type: ignore[no-untyped-call]
    ax.xaxis_date()
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _thresholds(ax: Axes, thresholds: Sequence[float]) -> None:
    """Draw dashed lines with their values at the right (one text for all if they would overlap), and a line at 1."""
    ax.axhline(0.0, color="#cccccc", linewidth=0.8, zorder=0)
    for threshold in thresholds:
        ax.axhline(math.log10(threshold), color="#888888", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    low, high = ax.get_ylim()
    together = [thresholds] if high - low > 20.0 else [[threshold] for threshold in thresholds]
    for group in together:
        ax.annotate(
            ", ".join(f"{threshold:g}" for threshold in group),
            (1.0, math.log10(max(group, default=1.0))),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            fontsize=8,
            color="#666666",
            va="center",
        )


def _decades(ax: Axes) -> None:
    """Label a log10 axis with powers of ten (the capital itself would overflow)."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=9, min_n_ticks=3))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$10^{{{value:.0f}}}$" if value else "1"))


def betting(bets: Mapping[str, Bet], *, p: ArrayLike | None = None, title: str = "", ax: Axes | None = None) -> Axes:
    """Plot the current betting functions; with ``p``, also a histogram of those p-values.

    >>> from exchangeable.bets import Power
    >>> betting({"power 0.5": Power(0.5)}).get_ylabel()
    'betting function'
    """
    ax = ax or axes()
    if p is not None:
        ax.hist(np.asarray(p), bins=40, range=(0.0, 1.0), density=True, color="#dddddd", label="p-values")
    grid = np.linspace(0.002, 0.998, 499)  # at the very ends a density may be unbounded
    for (name, bet), colour in zip(bets.items(), COLOURS * (1 + len(bets) // len(COLOURS)), strict=False):
        ax.plot(grid, density(bet, grid), label=name, color=colour, linewidth=1.8)
    ax.axhline(1.0, color="#888888", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    ax.set(xlabel="p-value", ylabel="betting function", title=title, xlim=(0.0, 1.0))
    ax.set_ylim(bottom=0.0)
    ax.legend(frameon=False)
    return ax


def density(bet: Bet, grid: ArrayLike) -> Floats:
    """Return the betting function on a grid of p-values.

    >>> from exchangeable.bets import Power
    >>> density(Power(0.5), [0.25, 1.0])
    array([1. , 0.5])
    """
    return np.exp([bet.log_density(p) for p in np.asarray(grid, np.float64).tolist()])
