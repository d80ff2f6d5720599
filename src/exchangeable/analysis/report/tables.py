"""The tables of the report: columns by evidence, extreme rows, and how columns were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable.analysis.effects import describe_effect
from exchangeable.analysis.formats import format_evidence
from exchangeable.analysis.report.names import clip, isolate
from exchangeable.analysis.timeline import Timeline
from exchangeable.data.table import TableColumn

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Explanation, ExtremeRow, FeatureEvidence
    from exchangeable.analysis.result import Result

MAX_FEATURES = 50  # rows of a table of columns
MAX_VALUES = 6  # columns of a table of rows
MAX_CELL = 30  # characters of a category there


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
        difference(feature),
    )


def difference(feature: FeatureEvidence) -> str:
    """Describe the effect; names of categories are marked, since right-to-left names could reorder the numbers."""
    return "" if feature.effect is None else describe_effect(feature.effect, isolate).replace(" -> ", " → ")


def width(log10: float, widest: float) -> str:
    """Return the width of a bar in percent."""
    return f"{100.0 * min(1.0, max(0.0, log10) / widest) if widest > 0.0 else 0.0:.1f}%"


def extremes(explanation: Explanation, result: Result | None) -> dict[str, Any]:
    """Return the table of the strangest and the most typical rows, with their values if the result is given."""
    split, timeline = (None if result is None else result.split), explanation.timeline
    groups = (("strangest", explanation.smallest_p), ("most typical", explanation.largest_p))
    row_of = "of the data" if timeline.rows is not None else None if split is None else f"of {split.second}"
    columns = [] if result is None else _shown_columns(result, explanation)
    return {
        "row_of": row_of,
        "timed": timeline.times is not None,
        "labelled": result is not None and result.table.y is not None,
        "columns": [column.name for column, _ in columns],
        "rows": [
            {**_extreme_row(row, timeline, result), "title": title if i == 0 else "",
             "values": [_cell(column, missing, row.n - 1) for column, missing in columns]}
            for title, rows in groups
            for i, row in enumerate(rows)
        ],
    }  # fmt: skip


def _shown_columns(result: Result, explanation: Explanation) -> list[tuple[TableColumn, Any]]:
    """Return the columns with the most evidence, and which of their values are missing."""
    added = set(result.table.indicators.values())
    known = {column.name: column for column in result.table.columns if column.name not in added}
    tested = [feature.name for feature in explanation.features if feature.kind != "label"]
    names = [name for name in dict.fromkeys([*tested, *known]) if name in known][:MAX_VALUES]
    return [(known[name], result.table.missing(name)) for name in names]


def _cell(column: TableColumn, missing: Any, row: int) -> str:
    """Return a value of a column as text."""
    if missing is not None and missing[row]:
        return "missing"
    value = float(column.values[row])
    return f"{value:.6g}" if column.categories is None else clip(column.categories[int(value)], MAX_CELL)


def _extreme_row(row: ExtremeRow, timeline: Timeline, result: Result | None) -> dict[str, Any]:
    number, label = None, ""
    if timeline.rows is not None:
        number = int(timeline.rows[row.n - 1])
    if result is not None and result.split is not None:
        number = int(result.split.rows[row.n - result.start - 1])
    if result is not None and result.table.y is not None:
        value = result.table.y[row.n - 1]
        label = f"{value:.6g}" if isinstance(value, float) else str(value)
    p = f"{row.p:{'.4g' if row.p < 0.5 else '.6g'}}"
    return {"n": row.n, "p": p, "row": number, "time": timeline.format(row.n), "label": label}


def schema(result: Result) -> dict[str, Any] | None:
    """Return how columns were read; None if all of them are plain numbers."""
    treatments = list(result.schema.items())
    if all(treatment == "numbers" for _, treatment in treatments):
        return None
    return {"rows": treatments[:MAX_FEATURES], "more": max(0, len(treatments) - MAX_FEATURES)}
