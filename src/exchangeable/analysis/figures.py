"""The pictures of a report: inline SVG whose text is text, and whose colours follow the page between light and dark.

Drawn by matplotlib, then stripped: no names, styles or metadata that could leak into the page or differ between runs.
Long curves are thinned to what a screen can show; every highest and lowest point stays.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree as ET

import numpy as np

from exchangeable import plots
from exchangeable._extras import needed
from exchangeable.analysis.columns import Line, joint
from exchangeable.martingale import LN10, Martingale
from exchangeable.protocols import Bet, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from exchangeable.analysis.explain import Change
    from exchangeable.analysis.result import Result

Steps = tuple[Floats, Floats]  # examples seen, and log10 of the evidence
COLUMNS = 1000  # of the widest picture; each keeps its lowest and its highest point
MARKED = 40  # change points that are drawn
DOTS = 120  # places for dots
BINS = 20  # of a histogram of p-values
EDGE = 0.01  # of the interval of p-values, whose height does not decide that of the picture
LINE, ALARM = plots.COLOURS[:2]
LINES = (LINE, "#8e5ea2", "#2e7d32", "#b8860b", "#555555")
BAND, GRID, INK, MUTED = "#e0a526", "#e3e5e8", "#333a42", "#666666"
PALETTE: Mapping[str, str] = MappingProxyType(  # as drawn, and the variable of the style sheet
    {
        **{colour: f"--xch-line{i}" for i, colour in enumerate(LINES)},
        ALARM: "--xch-alarm",
        BAND: "--xch-band",
        GRID: "--xch-grid",
        INK: "--xch-ink",
        MUTED: "--xch-muted",
        "#888888": "--xch-edge",  # levels and change points, as `plots` draws them
        "#cccccc": "--xch-rule",
        "#dddddd": "--xch-bars",
    }
)
STYLE: dict[str, Any] = {
    "axes.edgecolor": "#888888",
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "font.size": 12.5,
    "path.simplify": False,  # what is thinned is thinned here
    "svg.fonttype": "none",
    "svg.hashsalt": "exchangeable",
    "text.color": INK,
    "xtick.color": "#888888",
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
}
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


# ------------------------------------------------------------------------------------------------------------- pictures


def capital(
    result: Result,
    change: Change | None = None,
    *,
    size: tuple[float, float] = (12.0, 4.4),
    columns: int = COLUMNS,
) -> str:
    """The evidence against the examples seen: level of the alarm, alarms, change points, and the interval of one."""
    verdict, path = result.verdict, result.path
    together = joint(result.lines) / LN10
    with _style():
        level = () if verdict.threshold is None else (verdict.threshold,)
        steps = [_steps(result, line) for line in result.drawn().values()]
        ax = _growth(steps, level, verdict.changepoints[:MARKED], size, columns // len(steps) + columns // 4)
        if change is not None and change.low is not None and change.high is not None:
            ax.axvspan(change.low, change.high, color=BAND, alpha=0.3, linewidth=1.0, zorder=-1)
        sounds = np.asarray(verdict.alarms, np.int64)
        place = sounds * DOTS // (int(path.n[-1]) + 1)
        sounds = sounds[np.flatnonzero(np.diff(place, prepend=-1))]
        if len(sounds):
            heights = _within(ax, together[sounds - result.start - 1])
            ax.plot(sounds, heights, "o", color=ALARM, markersize=7.0, clip_on=False, zorder=5)
        alarms = "one alarm" if len(verdict.alarms) == 1 else f"{len(verdict.alarms) or 'no'} alarms"
        return svg(ax, f"Evidence after each of {len(path.n):,} examples, on a log scale, with {alarms}")


def curves(paths: Mapping[str, Floats], threshold: float, size: tuple[float, float] = (5.8, 3.0)) -> list[str]:
    """Several capitals, each in a picture of its own, on one scale."""
    with _style():
        pictures = []
        for log_value in paths.values():
            y = np.concatenate([[0.0], log_value]) / LN10
            pictures.append(_growth([(np.arange(len(y), dtype=np.float64), y)], (threshold,), (), size, COLUMNS // 2))
        limits = [ax.get_ylim() for ax in pictures]
        for ax in pictures:
            ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        return [
            svg(ax, f"Capital of the test for {name}, on a log scale") for name, ax in zip(paths, pictures, strict=True)
        ]


def histograms(periods: Mapping[str, Floats]) -> list[str]:
    """The densities of p-values, each in a picture of its own, on one scale; 1 is what exchangeable data would give."""
    with _style():
        pictures, highest = [], 2.0
        for p in periods.values():
            bins = min(BINS, max(4, math.isqrt(len(p))))
            density, edges = np.histogram(p, bins=bins, range=(0.0, 1.0), density=True)
            ax = plots.axes(11.6 / max(2, len(periods)), 2.8)
            ax.stairs(density, edges, fill=True, color=LINE, alpha=0.45)
            ax.axhline(1.0, color="#888888", linewidth=1.2, linestyle=(0, (4, 3)))
            pictures.append(ax)
            highest = max(highest, 1.05 * float(density.max()))
        for ax in pictures:
            _calm(ax)
            ax.set(xlabel="p-value", xlim=(0.0, 1.0), ylim=(0.0, highest))
        said = [f"Histogram of the p-values of {name}" for name, p in periods.items()]
        return [svg(ax, text) for ax, text in zip(pictures, said, strict=True)]


def betting(result: Result) -> str:
    """The betting function as it stands at the end, over the p-values that it has learnt from."""
    p = since(result)
    with _style():
        ax = plots.betting({result.bet: _bet(result)}, p=p if len(p) else None, ax=plots.axes(12, 3.4))
        curve, no_bet = ax.get_lines()
        x, f = (np.asarray(values) for values in curve.get_data())
        no_bet.set_zorder(2.0)
        inner = f[(x > EDGE) & (x < 1.0 - EDGE) & np.isfinite(f)]
        bars = [bar.get_height() for bar in ax.patches]  # type: ignore[attr-defined]
        if bars:  # in one piece, so that there are no seams
            for bar in [*ax.patches]:
                bar.remove()
            ax.stairs(bars, np.linspace(0.0, 1.0, len(bars) + 1), fill=True, color="#dddddd")
        _calm(ax)
        ax.set(xlabel="p-value", ylabel="", ylim=(0.0, 1.15 * max([2.0, *inner.tolist(), *bars])))
        return svg(ax, "Betting function at the end, against the p-value, over a histogram of the p-values so far")


def since(result: Result) -> Floats:
    """The p-values of the loudest line since the start, or since the last restart."""
    restarted = result.verdict.on_alarm == "restart" and result.verdict.alarms
    p = result.loudest.p
    return p[result.path.n > result.verdict.alarms[-1]] if restarted else p


def _bet(result: Result) -> Bet:
    """The bet of the loudest line as it stands at the end."""
    line = result.loudest
    if line is result.lines[0]:
        return result.monitor.martingale.bet
    martingale = Martingale(result.fresh().bet)
    martingale.extend(line.p)
    return martingale.bet


def _steps(result: Result, line: Line) -> Steps:
    """A whole curve from its weight on, in log10; a restart leads it back there."""
    verdict, path = result.verdict, result.path
    x = np.concatenate([[result.start], path.n]).astype(np.float64)
    y = np.concatenate([[0.0], line.log_value]) / LN10 + math.log10(line.weight)
    if verdict.on_alarm == "restart":
        sounds = np.asarray(verdict.alarms, np.int64)
        after = sounds - result.start + 1
        x, y = np.insert(x, after, sounds), np.insert(y, after, 0.0)
    return x, y


def _growth(
    steps: Sequence[Steps],
    thresholds: Sequence[float],
    changepoints: Sequence[int],
    size: tuple[float, float],
    columns: int = COLUMNS,
) -> Axes:
    """`plots.growth` of thinned curves, in the dress of the report."""
    finite = {f"{i}": np.where(np.isfinite(y), y, math.nan) * LN10 for i, (_, y) in enumerate(steps)}
    ax = plots.growth(finite, thresholds=thresholds, changepoints=changepoints, ax=plots.axes(*size))
    for i, (line, step) in enumerate(zip(ax.get_lines(), steps, strict=False)):
        x, y = thinned(*step, columns)
        line.set(data=(x, _within(ax, y)), color=LINES[i], linewidth=1.6, zorder=3.0 - 0.1 * i)
    for line in ax.get_lines()[len(steps) : len(steps) + len(changepoints)]:
        line.set(linewidth=1.3, linestyle=(0, (1.0, 2.0)))
    _calm(ax, counts=True)
    ax.set(xlim=(steps[0][0][0], steps[0][0][-1]), ylabel="")
    ax.yaxis.set_major_formatter(lambda value, _: power(value, ax.get_ylim()[1]))
    for text in ax.texts:
        text.set_fontsize(12.0)
    return ax


def _within(ax: Axes, y: Floats) -> Floats:
    """A capital of nothing, whose log is minus infinity, is drawn at the lower edge."""
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    return np.where(np.isneginf(y), low, np.where(np.isposinf(y), high, y))


def _calm(ax: Axes, counts: bool = False) -> None:
    """Few lines, and numbers as people write them; ``counts`` says whether examples are counted from left to right."""
    from matplotlib.ticker import MaxNLocator

    legend, figure = ax.get_legend(), cast("Figure", ax.figure)
    if legend is not None:  # the page has it
        legend.remove()
    ax.spines["left"].set_visible(False)
    ax.tick_params(left=False, bottom=False)
    ax.grid(axis="y", color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    if counts:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(2, int(figure.get_figwidth() * 0.9))))
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def power(exponent: float, highest: float) -> str:
    """The label of a power of ten, on an axis that goes so high.

    >>> power(2.0, 3.0), power(2.0, 20.0), power(-13.0, 2.0), power(0.0, 9.0)
    ('100', '10²', '10⁻¹³', '1')
    """
    if exponent == 0.0 or (highest < 4.0 and exponent >= -2.0):
        return f"{10.0**exponent:,.12g}"
    return "10" + f"{exponent:.0f}".translate(SUPERSCRIPTS)


def thinned(x: Floats, y: Floats, columns: int) -> tuple[Floats, Floats]:
    """The lowest and the highest point in each of so many columns of a curve, in their order, with both ends. O(n).

    >>> thinned(np.arange(8), np.array([0.0, 5.0, 1.0, 2.0, -7.0, 3.0, 1.0, 0.0]), 2)
    (array([0, 1, 4, 5, 7]), array([ 0.,  5., -7.,  3.,  0.]))
    """
    if len(y) <= 2 * columns:
        return x, y
    place = np.minimum((x - x[0]) * columns // (x[-1] - x[0]), columns - 1)
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    kept = {0, len(y) - 1}
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(y)], strict=True):
        kept |= {start + int(y[start:stop].argmin()), start + int(y[start:stop].argmax())}
    chosen = sorted(kept)
    return x[chosen], y[chosen]


# ------------------------------------------------------------------------------------------------------------------ SVG


@contextmanager
def _style() -> Iterator[None]:
    """Our own settings of matplotlib, whatever the user's are; a clear error where it is missing."""
    with needed("report", "figures"):
        plots.axes()
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield


def svg(ax: Axes, said: str) -> str:
    """A picture as one element of a page; ``said`` is for those who do not see it."""
    figure: Any = ax.figure
    for ground in (ax.patch, figure.patch):
        ground.set_visible(False)
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    drawn = ET.fromstring(written.getvalue())  # noqa: S314  # our own
    _strip(drawn)
    drawn.attrib = {"viewBox": drawn.attrib["viewBox"], "role": "img", "aria-label": said}
    text = ET.tostring(drawn, encoding="unicode")
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]  # several pictures may stand in one page
    names = dict.fromkeys(re.findall(r' id="([^"]*)"', text))
    for i, name in enumerate(names):
        text = text.replace(f' id="{name}"', f' id="x{mark}-{i}"').replace(f"#{name}", f"#x{mark}-{i}")
    return text


def _strip(drawn: ET.Element) -> None:
    """No namespaces, no metadata, no style sheet of its own, no ids but those referred to, and no needless digits."""
    for parent in drawn.iter():
        for child in [*parent]:
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    referred = set(re.findall(r"#([\w-]+)", " ".join(value for node in drawn.iter() for value in node.attrib.values())))
    for node in drawn.iter():
        node.tag, node.tail = node.tag.rpartition("}")[2], None
        node.text = node.text if node.tag == "text" else None
        kept = {name.rpartition("}")[2]: _brief(name, value) for name, value in node.attrib.items()}
        node.attrib = {name: value for name, value in kept.items() if value and (name != "id" or value in referred)}


def _brief(name: str, value: str) -> str:
    if name == "style":
        value = re.sub(r"font-family:[^;]*(; |$)", "", value)  # the font is the page's
        value = re.sub(r"font: (?:[a-z]+ )*([\d.]+px)[^;]*", r"font-size: \1", value)
        return re.sub(r"#[0-9a-f]{6}\b", lambda colour: _variable(colour[0]), value).replace("; ", ";")
    if name == "d":
        return " ".join(re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", value).split())
    if name == "transform":
        return re.sub(r"rotate\(-?0 [^)]*\)", "", value).strip()
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", value)


def _variable(colour: str) -> str:
    return f"var({PALETTE[colour]},{colour})" if colour in PALETTE else colour
