"""The report of many streams: one self-contained HTML page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from exchangeable import plots
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report import check_heading, check_packages, today
from exchangeable.analysis.report.charts import report_style
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats, Integers
from exchangeable.streams import single, text
from exchangeable.streams.axis import axis_days, axis_values, is_dated
from exchangeable.streams.summary import RESTARTED, FleetTest
from exchangeable.streams.tester import Curve

WIDTH, HEIGHT, MARGIN = 240.0, 64.0, 4.0
LOWEST = -4.0  # log10 of the evidence below which a chart is cut off
POINTS, SMALL = 2000, 96  # of the chart of all streams, and of the small charts


def save_report(
    result: FleetTest,
    path: str | os.PathLike[str],
    *,
    name: str = "",
    title: str | None = None,
    author: str | None = None,
) -> None:
    """Write the report, and next to it a folder with a report of each stream that has a chart.

    Each file is written to a temporary one first and renamed, so that a failure leaves no partial file.
    """
    check_heading("title", title)
    check_heading("author", author)
    check_packages()
    if result.restarts:
        raise ValueError(f"a report needs on_alarm='latch', got 'restart': {RESTARTED}")
    target = Path(path)
    folder = target.with_name(f"{target.stem}_files")
    links = single.file_names(result, shown_streams(result))
    if links:
        folder.mkdir(exist_ok=True)
    for earlier in folder.glob(single.PATTERN):
        if earlier.name not in links.values():
            earlier.unlink()
    for t, file in links.items():
        _write(folder / file, single.document(result, t, target.name, title, author))
    links = {t: f"{folder.name}/{file}" for t, file in links.items()}
    _write(target, document(result, name, title, author, links))


def _write(target: Path, text: str) -> None:
    part = target.with_name(f".{target.name}.part")
    try:
        part.write_bytes(text.encode())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def shown_streams(result: FleetTest) -> list[int]:
    """Return the discovered streams whose evidence over time is known."""
    return [t for t in result.discovered.tolist() if t in result.curves]


def document(
    result: FleetTest,
    name: str = "",
    title: str | None = None,
    author: str | None = None,
    links: Mapping[int, str] | None = None,
) -> str:
    """Return the report as HTML, under 300 KB whatever the data; ``links`` are the addresses of single reports."""
    from exchangeable.analysis.report.environment import render

    shown = shown_streams(result)
    changed = _changes(result)
    with report_style():
        rank = _rank_chart(result)
        change = None if changed is None else _change_chart(changed, result.wanted.order)
    view: dict[str, Any] = {
        "heading": {"title": title or "Test of many streams", "author": author or "", "date": today().isoformat()},
        "data": name,
        "headline": text.headline(result),
        "lead": text.lead(result),
        "streams": [_stream(result, t) | {"link": quote((links or {}).get(t, ""))} for t in shown],
        "hidden": len(result.discovered) - len(shown),
        "rank": rank,
        "change": change,
        "together": "" if changed is None else text.together(changed.counts.tolist(), timed=changed.timed),
        "method": text.method(result),
    }
    return render("fleet.html.j2", view)


# ------------------------------------------------------------------ small charts


def _stream(result: FleetTest, t: int) -> dict[str, Any]:
    curve, columns = result.curves[t], result.columns
    name = str(columns[result.wanted.key][t].as_py())
    n, evidence = int(columns["n"][t]), format_evidence(columns["log10_martingale"][t])
    change = columns["changepoint"][t].as_py()
    when = cell(columns.get("change_time"), t) or (None if change is None else f"row {change + 1:,} of the stream")
    points, zero = _polyline(curve, n)
    return {
        "name": name,
        "label": f"evidence of {name} over {n} rows, at the end {evidence}",
        "points": points,
        "zero": f"{zero:.1f}",
        "change": None if change is None else f"{WIDTH * change / n:.1f}",
        "text": f"evidence {evidence} after {n:,} rows" + ("" if when is None else f"; changed near {when}"),
    }


def cell(column: Any, t: int) -> str | None:
    """Return a cell of the result as text; None if it is missing."""
    value = None if column is None else column[t].as_py()
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _polyline(curve: Curve, n: int) -> tuple[str, float]:
    """Return the points of a curve in the picture, and the height of evidence 1."""
    few = np.unique(np.linspace(0, len(curve.n) - 1, SMALL).astype(np.int64))
    x = np.concatenate([[0.0], WIDTH * curve.n[few] / n])
    y = np.maximum(np.concatenate([[0.0], curve.log_value[few]]) / LN10, LOWEST)
    low, high = min(float(y.min()), 0.0), max(float(y.max()), 1.0)
    height = HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * (np.append(y, 0.0) - low) / (high - low)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), height.tolist(), strict=False))
    return points, float(height[-1])


# ------------------------------------------------------------------ charts of all streams


def _rank_chart(result: FleetTest) -> Any:
    from markupsafe import Markup

    from exchangeable.analysis.report.svg import ALARM, LINE, MUTED, to_svg

    ordered = np.sort(np.maximum(result.columns["log10_martingale"], LOWEST))[::-1]
    count, found = len(ordered), len(result.discovered)
    at = np.unique(np.concatenate([np.arange(min(found, POINTS)), np.geomspace(1, count, POINTS).astype(np.int64) - 1]))
    ax = plots.axes(8.0, 3.0)
    for chosen, colour in ((at[at < found], ALARM), (at[at >= found], LINE)):
        ax.plot(chosen + 1, ordered[chosen], "o", markersize=3.0, color=colour)
    ax.axhline(result.log_threshold / LN10, color=MUTED, linestyle="--", linewidth=1.0)
    ax.set(xscale="log" if count > 100 else "linear", xlabel="rank of the stream", ylabel="log10 of the evidence")
    ax.xaxis.set_major_formatter(lambda rank, _: f"{rank:,.0f}" if rank == round(rank) else "")
    return Markup(to_svg(ax, f"evidence of {count} streams by rank; {found} are discovered"))  # noqa: S704


class Changes(NamedTuple):
    """How many discovered streams changed in each part of the time of the data, or of the rows of their streams."""

    counts: Integers
    edges: Floats  # of the parts
    timed: bool
    dated: bool


def _changes(result: FleetTest) -> Changes | None:
    """Count the changes of discovered streams; None if fewer than three are known."""
    columns, at = result.columns, result.discovered
    at = at[columns["changepoint"].is_valid().to_numpy(zero_copy_only=False)[at]]
    if len(at) < text.LEAST:
        return None
    if result.span is None:
        places = columns["changepoint"].to_numpy(zero_copy_only=False)[at] / columns["n"][at]
        return Changes(*np.histogram(places, np.linspace(0.0, 1.0, text.PARTS + 1)), timed=False, dated=False)
    times = axis_values(columns["change_time"].take(_arrow(at)))
    low, high = axis_values(result.span).tolist()
    edges = np.linspace(low, high if low < high else low + 1.0, text.PARTS + 1)
    return Changes(np.histogram(times, edges)[0], edges, timed=True, dated=is_dated(result.span))


def _change_chart(changes: Changes, order: str | None) -> Any:
    from markupsafe import Markup

    from exchangeable.analysis.report.svg import LINE, to_svg

    ax = plots.axes(8.0, 2.6)
    x = axis_days(changes.edges) if changes.dated else changes.edges
    ax.bar(x[:-1], changes.counts, np.diff(x), align="edge", color=LINE, linewidth=0.0)
    if changes.dated:
        plots.date_axis(ax)
    ax.set(xlabel=single.plain(order or "place in the stream (0: first row, 1: last row)"), ylabel="streams")
    ax.locator_params(axis="y", integer=True)
    return Markup(to_svg(ax, "how many discovered streams changed in each part of the time"))  # noqa: S704


def _arrow(values: Any) -> Any:
    import pyarrow as pa

    return pa.array(values)
