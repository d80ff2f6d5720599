"""The data of the report: what the templates show, in the order of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable.analysis.columns import is_weighted
from exchangeable.analysis.report import charts
from exchangeable.analysis.report.method import method_facts, package_version, reproduction
from exchangeable.analysis.report.names import MAX_SENTENCE, clip, isolate
from exchangeable.analysis.report.tables import MAX_FEATURES, extremes, feature_row, schema, width
from exchangeable.analysis.text import (
    FEW_ROWS,
    SHIFTS,
    VerdictText,
    describe_change,
    describe_columns,
    describe_differences,
    describe_smallest_p,
    describe_table,
    describe_test,
    describe_verdict,
    format_evidence,
)
from exchangeable.analysis.timeline import Timeline
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Change, Explanation
    from exchangeable.analysis.result import Result
    from exchangeable.shift import Shift

MAX_NOTES = 20
MIN_PERIOD = 20  # p-values of a histogram
BEFORE_AFTER = ("before", "after")


class Chart(NamedTuple):
    """A chart with its title and caption."""

    title: str
    svg: str
    caption: str = ""


def document_view(result: Result, explanation: Explanation) -> dict[str, Any]:
    """Return the data of the report. O(n)."""
    p = charts.strongest_p_values(result)
    return {
        "result": result,
        "table": describe_table(result.table),
        "version": package_version(),
        "differences": _differences(result),
        "verdict": _verdict_text(result),
        "key_figures": key_figures(result),
        "legend": legend(result, explanation.change),
        "evidence_chart": charts.evidence_chart(result, explanation.change),
        "evidence_notes": _evidence_notes(result),
        "changes": _changes(explanation, result),
        "shift": _shift(explanation.shift, result.timeline),
        "p_values": _p_values(result, p),
        "bet": _bet(result, p),
        "extremes": extremes(explanation, result),
        "smallest_p": describe_smallest_p(explanation.n),
        "method": method_facts(result),
        "reproduction": reproduction(result),
        "schema": schema(result),
        "interpretation": _interpretation(result),
        "notes": [_capitalise(clip(note, MAX_SENTENCE)) for note in result.notes[:MAX_NOTES]],
        "more_notes": max(0, len(result.notes) - MAX_NOTES),
    }


def result_view(result: Result) -> dict[str, Any]:
    """Return the data of the card of a result."""
    try:
        chart, missing = charts.evidence_chart(result, size=(8.4, 3.1), pixels=400), ""
    except ImportError as error:
        chart, missing = "", str(error)
    return {
        "result": result,
        "differences": _differences(result),
        "verdict": _verdict_text(result),
        "key_figures": key_figures(result),
        "legend": legend(result, None),
        "evidence_chart": chart,
        "missing": missing,
    }


def explanation_view(explanation: Explanation) -> dict[str, Any]:
    """Return the data of the card of an explanation."""
    shift = explanation.shift
    return {
        "changes": _changes(explanation, None),
        "shift": None if shift is None else SHIFTS[shift.verdict],
        "extremes": extremes(explanation, None),
    }


# ---------------------------------------------------------------------------------------------------------- the verdict


def _verdict_text(result: Result) -> VerdictText:
    return describe_verdict(result.verdict, result.tests, result.sets, result.timeline, isolate)


def _differences(result: Result) -> str:
    return describe_differences(result.schema_differences) if result.schema_differences else ""


def key_figures(result: Result) -> list[tuple[str, str]]:
    """Return the most important figures, each with its title."""
    verdict = result.verdict
    peak = result.log10_evidence
    since = ", since the last restart" if verdict.on_alarm == "restart" and verdict.alarms else ""
    figures = [
        ("peak evidence, weighted" if is_weighted(result.tests) else "peak evidence", format_evidence(peak)),
        (f"final evidence{since}", format_evidence(float(result.log_evidence[-1]) / LN10)),
    ]
    if verdict.threshold is not None:
        figures.append(("alarm level", f"{verdict.threshold:,.6g}"))
    if verdict.alpha is not None:
        figures.append(("significance level", _percent(verdict.alpha)))
    if verdict.period is not None:
        figures.append(("mean rows to a false alarm, at least", f"{verdict.period:,.6g}"))
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        figures.append(("p-value of this test", format_evidence(-peak)))
    if result.split is None:
        figures.append(("rows", f"{result.n:,}"))
    else:
        figures.append((f"rows, {result.split.first}", f"{result.start:,}"))
        figures.append((f"rows, {result.split.second}", f"{len(result.path.n):,}"))
    return [*figures, ("features", f"{result.n_features:,}")]


def _interpretation(result: Result) -> list[tuple[str, str]]:
    text = _verdict_text(result)
    return [
        ("Guarantee", _capitalise(text.guarantee or result.guarantee)),
        ("Means", _capitalise(text.means)),
        ("Does not mean", _capitalise(text.does_not_mean)),
    ]


# ------------------------------------------------------------------------------------------------------------- evidence


def _evidence_notes(result: Result) -> list[str]:
    notes, verdict = [], result.verdict
    aside = result.table.sorted_aside
    unspent = f" The share of {aside:,} sorted column{'s' if aside > 1 else ''}, set aside, stays unspent." * bool(
        aside
    )
    if result.column_tests:
        rows, column = (_percent(test.weight) for test in result.tests[:2])
        views = _percent(sum(test.weight for test in result.view_tests))
        beside = f", and {len(result.view_tests):,} views have {views} together" if result.view_tests else ""
        notes.append(
            f"Several martingales share the significance level: full rows have {rows} of the weight, each of the "
            f"{len(result.column_tests):,} tests of columns has {column}{beside}.{unspent} Evidence is the capital of "
            "a martingale times its weight."
        )
    elif result.tests[0].weight != 1.0:
        notes.append(
            f"This test has {_percent(result.tests[0].weight)} of the significance level.{unspent} Evidence is the "
            "capital times this weight."
        )
    bankrupt = np.isneginf(result.path.log_value)
    if bankrupt.any():
        notes.append(f"The capital was lost at row {int(result.path.n[bankrupt.argmax()]):,} and is 0 from there on.")
    if verdict.threshold is None:
        notes.append("This alarm depends on the growth of the capital, not on its level, so no level is drawn.")
    if verdict.on_alarm == "restart" and verdict.alarms:
        notes.append("After each alarm the test starts again with a capital of 1.")
    return notes


def legend(result: Result, change: Change | None) -> list[tuple[str, str]]:
    """Return the entries of the legend: the class of the symbol, and the text."""
    verdict, timeline, capital = result.verdict, result.timeline, f"capital, by the bet {clip(result.bet)}"
    entries = [
        (f"line{i}", isolate(test.name) if len(result.tests) > 1 else capital)
        for i, test in enumerate(result.plotted_tests().values())
    ]
    if verdict.threshold is not None:
        entries.append(("level", f"alarm level {verdict.threshold:,.6g}"))
    if verdict.alarms:
        first = f"row {verdict.alarms[0]:,}{timeline.describe(verdict.alarms[0])}"
        several = f"{len(verdict.alarms):,} alarms, the first at {first}"
        entries.append(("dot", f"alarm at {first}" if len(verdict.alarms) == 1 else several))
    if len(verdict.changepoints) > charts.MAX_CHANGEPOINTS:
        entries.append(("change", f"lowest before each alarm, the first {charts.MAX_CHANGEPOINTS}"))
    elif len(verdict.changepoints) > 1:
        entries.append(("change", "lowest before each alarm"))
    elif verdict.changepoints:
        what = "rise started" if is_weighted(result.tests) else "lowest before the alarm,"
        before = verdict.changepoints[0]
        entries.append(("change", f"{what} after {before:,} rows{timeline.describe(before) if before else ''}"))
    if change is not None and change.low is not None and change.high is not None:
        low, high = (f"{n:,}{timeline.describe(n)}" for n in (change.low, change.high))
        interval = f"after row {low} to {high}"
        entries.append(("band", f"a single change, {_percent(change.confidence)} confidence: {interval}"))
    return entries


# ------------------------------------------------------------------------------------------------------------- changes


def _changes(explanation: Explanation, result: Result | None) -> dict[str, Any]:
    features, level = [*explanation.features, *explanation.views], -math.log10(explanation.alpha)
    widest = max([level, *(feature.log10_evidence for feature in features)])
    shown = sorted(
        [*explanation.features[:MAX_FEATURES], *explanation.views], key=lambda feature: -feature.log10_evidence
    )
    change = explanation.change
    sentences = [] if change is None else [f"the change occurred {describe_change(change, explanation.timeline)}"]
    compared = result is not None and result.sets is not None
    title = "Column by column"
    if explanation.changed:
        title = "What differs" if compared else "What changed"
    elif change is not None:
        title = "What changed"
    return {
        "title": title,
        "sentences": [_capitalise(text) for text in [*sentences, describe_columns(explanation)] if text],
        "sides": (result.sets if result is not None else None) or BEFORE_AFTER,
        "rows": [feature_row(feature, widest, explanation) for feature in shown],
        "level": width(level, widest),
        "more": len(features) - len(shown),
        "guarantee": explanation.guarantee,
        "restarts": result is not None and result.verdict.on_alarm == "restart",
    }


def _shift(shift: Shift | None, timeline: Timeline) -> dict[str, Any] | None:
    if shift is None:
        return None
    tests = {"label shift": shift.label, "concept shift": shift.concept}
    paths = {name: test.log_value for name, test in tests.items()}
    pictures = charts.shift_charts(paths, 1.0 / shift.alpha, timeline.axis)
    titles = ("Order of the labels", "Rows within their class")
    captions = []
    for test in tests.values():
        peak = format_evidence(max(0.0, float(test.log_value.max())) / LN10)
        at = test.alarm_at
        alarm = "no alarm" if at is None else f"alarm at row {at:,}{timeline.describe(at)}"
        captions.append(f"Peak {peak}; {alarm}.")
    return {
        "text": SHIFTS[shift.verdict],
        "charts": [Chart(*parts) for parts in zip(titles, pictures, captions, strict=True)],
        "guarantee": shift.guarantee,
    }


# ------------------------------------------------------------------------------------------------- p-values and the bet


def periods(result: Result, p: Floats) -> dict[str, Floats]:
    """Split the p-values of the strongest test at the change, or in thirds; not at all if they are few."""
    path, verdict = result.path, result.verdict
    if result.split is not None or len(path.n) < FEW_ROWS:
        cuts = [0, len(path.n)]
    elif not verdict.changepoints or not MIN_PERIOD <= verdict.changepoints[0] <= len(path.n) - MIN_PERIOD:
        cuts = [0, *(round(len(path.n) * i / 3) for i in (1, 2)), len(path.n)]
    else:
        restart = verdict.alarms[:1] if verdict.on_alarm == "restart" else []
        cuts = sorted({0, verdict.changepoints[0], *restart, len(path.n)})
    first = int(path.n[0])
    return {f"rows {first + a:,} to {first + b - 1:,}": p[a:b][~np.isnan(p[a:b])] for a, b in pairwise(cuts)}


def _p_values(result: Result, p: Floats) -> dict[str, Any]:
    parts = periods(result, p)
    titles = _period_titles(result, parts)
    pictures = charts.p_value_charts(parts)
    return {
        "subject": _subject(result),
        "meaning": _p_value_meaning(result),
        "charts": [Chart(title, picture) for title, picture in zip(titles, pictures, strict=True)],
    }


def _period_titles(result: Result, parts: dict[str, Floats]) -> list[str]:
    titles = list(parts)
    restarted = result.verdict.on_alarm == "restart" and bool(result.verdict.alarms)
    prefixes: Sequence[str] = ()
    if len(parts) == 2:
        prefixes = ("Before the change", "After it")
    elif restarted and titles[0].endswith(f" to {result.changepoint:,}"):
        prefixes = ("Before the change", "Up to the alarm", "After the restart")[: len(titles)]
    if not prefixes:
        return [_capitalise(title) for title in titles]
    return [f"{prefix}: {title}" for prefix, title in zip(prefixes, titles, strict=True)]


def _p_value_meaning(result: Result) -> str:
    """Describe what small and large p-values mean."""
    kind = result.strongest.kind
    if kind == "categories" or (kind == "label" and isinstance(result.table.y, list)):
        return "near 0 if its category comes late in the alphabet, near 1 if early"
    if kind in ("numbers", "label", "component", "residual") or result.measure == "value":
        return "near 0 if it is larger than most, near 1 if smaller"
    if result.measure == "nearest-residual":
        return "near 0 if its label is higher than those of its neighbours, near 1 if lower"
    return "near 0 if it is stranger than most, near 1 if more typical"


def _subject(result: Result) -> str:
    """Return which of several tests the charts show; empty if there is only one."""
    if not result.column_tests:
        return ""
    test = result.strongest
    return describe_test(test, clip)


def _bet(result: Result, p: Floats) -> dict[str, Any]:
    return {
        "subject": _subject(result),
        "learnt": len(charts.learnt_p_values(result, p)),
        "chart": charts.betting_chart(result, p),
    }


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
