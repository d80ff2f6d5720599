"""The tables of the report: columns by evidence, extreme rows, and how columns were read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable.analysis.report.names import MAX_SENTENCE, clip, isolate
from exchangeable.analysis.text import format_evidence
from exchangeable.analysis.timeline import Timeline

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Explanation, ExtremeRow, FeatureEvidence
    from exchangeable.analysis.result import Result

MAX_FEATURES = 50  # rows of a table of columns


class FeatureRow(NamedTuple):
    """A row of the table of features; widths are in percent of the bar."""

    feature: FeatureEvidence
    kind: str
    evidence: str
    flag: str
    when: str
    width: str
    difference: str


def feature_row(feature: FeatureEvidence, widest: float, explanation: Explanation) -> FeatureRow:
    """Return the row of a column in the table of columns; ``widest`` is the log10 that fills the bar."""
    at = None if explanation.compared else feature.rejected_at
    return FeatureRow(
        feature,
        feature.kind if feature.kind in ("categories", "label") and feature.kind != feature.name else "",
        format_evidence(feature.log10_evidence),
        ("yes" if at is None else f"at row {at:,}") if feature.flagged else "",
        "" if at is None else explanation.timeline.describe(at)[2:-1],
        width(feature.log10_evidence, widest),
        _difference(feature.difference),
    )


def _difference(text: str) -> str:
    """Mark the name of a category in the text, since right-to-left names could reorder the numbers."""
    share = re.fullmatch(r"share of (.*): (\S+ %) -> (\S+ %)", text, re.DOTALL)
    if share is None:
        return clip(text, MAX_SENTENCE).replace(" -> ", " → ")
    name, before, after = share.groups()
    return f"share of {isolate(name)}: {before} → {after}"


def width(log10: float, widest: float) -> str:
    """Return the width of a bar in percent."""
    return f"{100.0 * min(1.0, max(0.0, log10) / widest) if widest > 0.0 else 0.0:.1f}%"


def extremes(explanation: Explanation, result: Result | None) -> dict[str, Any]:
    """Return the table of the strangest and the most typical rows."""
    split, timeline = (None if result is None else result.split), explanation.timeline
    groups = (("strangest", explanation.smallest_p), ("most typical", explanation.largest_p))
    row_of = "of the data" if timeline.rows is not None else None if split is None else f"of {split.second}"
    return {
        "row_of": row_of,
        "timed": timeline.times is not None,
        "labelled": result is not None and result.table.y is not None,
        "rows": [
            _extreme_row(title if i == 0 else "", row, timeline, result)
            for title, rows in groups
            for i, row in enumerate(rows)
        ],
    }


def _extreme_row(title: str, row: ExtremeRow, timeline: Timeline, result: Result | None) -> dict[str, Any]:
    number, label = None, ""
    if timeline.rows is not None:
        number = int(timeline.rows[row.n - 1])
    if result is not None and result.split is not None:
        number = int(result.split.rows[row.n - result.start - 1])
    if result is not None and result.table.y is not None:
        value = result.table.y[row.n - 1]
        label = f"{value:.6g}" if isinstance(value, float) else str(value)
    p = f"{row.p:{'.4g' if row.p < 0.5 else '.6g'}}"
    return {"title": title, "n": row.n, "p": p, "row": number, "time": timeline.format(row.n), "label": label}


def schema(result: Result) -> dict[str, Any] | None:
    """Return how columns were read; None if all of them are plain numbers."""
    treatments = list(result.schema.items())
    if all(treatment == "numbers" for _, treatment in treatments):
        return None
    return {"rows": treatments[:MAX_FEATURES], "more": max(0, len(treatments) - MAX_FEATURES)}
