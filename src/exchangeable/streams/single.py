"""The report of one discovered stream, to which the report of all streams links."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from exchangeable import plots
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report import today
from exchangeable.analysis.report.charts import report_style
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats
from exchangeable.streams import text
from exchangeable.streams.axis import axis_days, axis_values, is_dated
from exchangeable.streams.summary import FleetTest
from exchangeable.streams.tester import Curve

PATTERN = "[0-9][0-9][0-9]-*.html"  # names of files in the folder of a report
LONGEST = 60  # characters of a key in a name
FACTS = (
    ("rows", "n"),
    ("refused rows", "refused"),
    ("p-value", "p_value"),
    ("alarm at row of the stream", "alarm_at"),
    ("alarm at row of the data", "alarm_row"),
    ("alarm at", "alarm_time"),
    ("rows before the change, about", "changepoint"),
    ("change near row of the data", "change_row"),
    ("change near", "change_time"),
)


def file_names(result: FleetTest, streams: list[int]) -> dict[int, str]:
    """Return a name for each stream that every file system accepts; a number makes it unique."""
    keys = (str(result.columns[result.wanted.key][t].as_py()) for t in streams)
    safe = (re.sub(r"[^A-Za-z0-9_-]+", "-", key)[:LONGEST].strip("-") or "stream" for key in keys)
    return {t: f"{i:03d}-{name}.html" for i, (t, name) in enumerate(zip(streams, safe, strict=True), 1)}


def document(result: FleetTest, t: int, back: str, title: str | None = None, author: str | None = None) -> str:
    """Return the report of a stream as HTML; ``back`` is the name of the file of the report of all streams."""
    from exchangeable.analysis.report.environment import render

    columns, curve = result.columns, result.curves[t]
    evidence, highest = (format_evidence(columns[name][t]) for name in ("log10_martingale", "log10_max"))
    facts = [("evidence", evidence), ("highest evidence", highest), *_facts(columns, t)]
    with report_style():
        pictures = _evidence(result, t), None if curve.x is None else _numbers(result, t, curve.x)
    view: dict[str, Any] = {
        "heading": {"title": title or "Test of many streams", "author": author or "", "date": today().isoformat()},
        "key": result.wanted.key,
        "name": str(columns[result.wanted.key][t].as_py()),
        "back": f"../{back}",
        "facts": facts,
        "evidence": pictures[0],
        "numbers": pictures[1],
        "sampled": len(curve.n) < int(columns["n"][t]) and len(curve.n),
        "method": [f"{text.recipe(result.monitor)}, seed {result.seed}.", result.monitor.guarantee],
    }
    return render("stream.html.j2", view)


def _facts(columns: dict[str, Any], t: int) -> list[tuple[str, str]]:
    cells = [(label, columns[name][t]) for label, name in FACTS if name in columns]
    values = [(label, one.as_py() if hasattr(one, "as_py") else one.item()) for label, one in cells]
    return [(label, _shown(value)) for label, value in values if value is not None]


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _evidence(result: FleetTest, t: int) -> Any:
    """Draw the evidence over the rows, or over the time."""
    from exchangeable.analysis.report.svg import LINE, MUTED

    curve = result.curves[t]
    ax = plots.axes(8.0, 3.0)
    ax.plot(_x(curve), curve.log_value / LN10, color=LINE, linewidth=1.6)
    ax.axhline(result.log_threshold / LN10, color=MUTED, linestyle="--", linewidth=1.0)
    return _finish(ax, result, t, "log10 of the evidence", "the evidence of the stream over its rows")


def _numbers(result: FleetTest, t: int, x: Floats) -> Any:
    from exchangeable.analysis.report.svg import LINE

    ax = plots.axes(8.0, 3.0)
    ax.plot(_x(result.curves[t]), x, "o", color=LINE, markersize=2.5)
    name = (result.wanted.features or ("number",))[0]
    return _finish(ax, result, t, name, "the numbers of the stream over its rows")


def _x(curve: Curve) -> Floats:
    if curve.order is None:
        return curve.n.astype(np.float64)
    return axis_days(axis_values(curve.order)) if is_dated(curve.order) else axis_values(curve.order)


def _finish(ax: Any, result: FleetTest, t: int, label: str, description: str) -> Any:
    """Add the change point and labels, and return the chart as markup."""
    from markupsafe import Markup

    from exchangeable.analysis.report.svg import ALARM, to_svg

    curve, change = result.curves[t], result.columns["changepoint"][t].as_py()
    if change is not None:
        ax.axvline(float(np.interp(change + 1, curve.n, _x(curve))), color=ALARM, linestyle=":", linewidth=1.4)
    if curve.order is not None and is_dated(curve.order):
        plots.date_axis(ax)
    ax.set(xlabel=plain(result.wanted.order or "rows of the stream"), ylabel=plain(label))
    return Markup(to_svg(ax, description))  # noqa: S704


def plain(label: str) -> str:
    """Return a name that matplotlib does not read as a formula, shortened."""
    return label.replace("$", r"\$")[:LONGEST]
