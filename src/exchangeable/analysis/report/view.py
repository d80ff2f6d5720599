"""The data of the report: what the templates show, in the order of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable.analysis.advice import describe_departure, describe_interval
from exchangeable.analysis.columns import ALPHA_SHARES, FULL_ROWS, is_weighted
from exchangeable.analysis.figures import mark, pictured, plotted_tests, strongest_p_values, tested_features
from exchangeable.analysis.formats import format_evidence, more
from exchangeable.analysis.report import charts
from exchangeable.analysis.report.method import method_facts, package_version, reproduction
from exchangeable.analysis.report.names import MAX_SENTENCE, clip, isolate
from exchangeable.analysis.report.tables import MAX_FEATURES, difference, extremes, feature_row, schema, width
from exchangeable.analysis.text import (
    SHIFTS,
    VerdictText,
    describe_columns,
    describe_differences,
    describe_smallest_p,
    describe_table,
    describe_test,
    describe_verdict,
)
from exchangeable.analysis.timeline import Timeline
from exchangeable.martingale import LN10

if TYPE_CHECKING:
    from exchangeable.analysis.change import Change
    from exchangeable.analysis.departure import Departure
    from exchangeable.analysis.explain import Explanation
    from exchangeable.analysis.result import Result
    from exchangeable.shift import Shift

MAX_NOTES = 20
LISTED, LISTED_SIZES = 6, 3  # columns that the summary names, and those whose change it describes
BEFORE_AFTER = ("before", "after")
SYMBOLS: Mapping[str, str] = MappingProxyType(  # entry of a legend -> class of its symbol
    {
        "value of a row": "point",
        "all values": "all",
        "middle 80 %": "middle",
        "mean of each part": "mean",
        "running mean": "mean",
        "estimated change": "split",
        "where the change may be": "band",
        "row to look at": "ring",
        "share of missing values": "missing",
        "reference": "block",
    }
)


class Heading(NamedTuple):
    """The head of a report."""

    title: str
    author: str
    date: str


class Chart(NamedTuple):
    """A chart with its title and caption."""

    title: str
    svg: str
    caption: str = ""


def document_view(result: Result, explanation: Explanation, heading: Heading) -> dict[str, Any]:
    """Return the data of the report. O(n)."""
    change = explanation.change if len(result.verdict.changepoints) == 1 else None
    return {
        "result": result,
        "heading": heading,
        "table": describe_table(result.table),
        "version": package_version(),
        "differences": _differences(result),
        "verdict": _verdict_text(result),
        "summary": summary(result),
        "data": _data(result, explanation),
        "key_figures": key_figures(result),
        "legend": legend(result, change),
        "evidence": _evidence_lines(result),
        "evidence_chart": charts.evidence_chart(result, change),
        "evidence_notes": _evidence_notes(result),
        "changes": _changes(explanation, result),
        "extremes": extremes(explanation, result),
        "smallest_p": describe_smallest_p(explanation.n),
        "shift": _shift(explanation.shift, result.timeline),
        "p_values": _p_values(result),
        "method": method_facts(result),
        "reproduction": reproduction(result),
        "schema": schema(result),
        "interpretation": _interpretation(result),
        "notes": [_capitalise(clip(note, MAX_SENTENCE)) for note in result.notes[:MAX_NOTES]],
        "more_notes": max(0, len(result.notes) - MAX_NOTES),
    }


def result_view(result: Result) -> dict[str, Any]:
    """Return the data of the card of a result: a picture of the strongest column, or else of the evidence."""
    drawn, missing = pictured(result, tested_features(result))[:1], ""
    try:
        chart, entries = charts.evidence_chart(result, pixels=400) if not drawn else "", legend(result, None)
        for _, column in drawn:
            chart, labels = charts.data_chart(result, column, mark(result))
            entries = _data_legend(labels)
    except ImportError as error:
        chart, entries, missing = "", [], str(error)
    return {
        "result": result,
        "differences": _differences(result),
        "verdict": _verdict_text(result),
        "summary": summary(result),
        "evidence": _evidence_lines(result),
        "name": drawn[0][1].name if drawn else "",
        "legend": entries,
        "chart": chart,
        "missing": missing,
    }


def explanation_view(explanation: Explanation) -> dict[str, Any]:
    """Return the data of the card of an explanation."""
    shift = explanation.shift
    return {
        "departure": _capitalise(_describe_departure(explanation.departure, explanation.change, explanation.timeline)),
        "changes": _changes(explanation, None),
        "shift": None if shift is None else SHIFTS[shift.verdict],
        "extremes": extremes(explanation, None),
    }


# ---------------------------------------------------------------------------------------------------------- the verdict


def _verdict_text(result: Result) -> VerdictText:
    return describe_verdict(result.verdict, result.tests, result.sets, result.timeline, isolate, result.finding)


def _differences(result: Result) -> str:
    return describe_differences(result.schema_differences) if result.schema_differences else ""


def summary(result: Result) -> list[tuple[str, str]]:
    """Return what the reader needs first: what happened, where, how large it is, and what to do."""
    text, finding, departure = _verdict_text(result), result.finding, result.departure
    if not result.rejected:
        rows = {"What it means": text.means, "What it does not mean": text.does_not_mean, "What to do": text.advice}
        return [(title, _capitalise(words)) for title, words in rows.items() if words]
    effects = [] if finding is None else list(finding.effects)
    effects = [one for one in effects if one.kind not in ALPHA_SHARES] or effects
    names, sized = [one.name for one in effects], [one for one in effects if one.effect is not None]
    rows = {
        "What happened": _describe_departure(departure, result.change, result.timeline),
        "Where": ", ".join(map(isolate, names[:LISTED])) + more(names, LISTED) or _full_rows(result),
        "How large": "; ".join(f"{isolate(one.name)}: {difference(one)}" for one in sized[:LISTED_SIZES]),
        "What to do": text.advice or text.means,
    }
    return [(title, _capitalise(words) if title != "Where" else words) for title, words in rows.items() if words]


def _full_rows(result: Result) -> str:
    """Say that no single column is to blame, unless there is only one."""
    name = result.tests[0].name
    return "in full rows, but in no single column" if name == FULL_ROWS else isolate(name)


def _describe_departure(departure: Departure | None, change: Change | None, timeline: Timeline) -> str:
    return "" if departure is None else describe_departure(departure, change, timeline, isolate)


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


def _evidence_lines(result: Result) -> list[str]:
    """Return the details of the verdict, without those of the departure, which the summary has."""
    return [line for line in _verdict_text(result).details if not line.startswith(("Kind: ", "Size: "))]


def _evidence_notes(result: Result) -> list[str]:
    notes, verdict = [], result.verdict
    aside = result.table.sorted_aside
    unspent = f" The share of {aside:,} sorted column{'s' if aside > 1 else ''}, set aside, stays unspent." * bool(
        aside
    )
    if result.column_tests:
        rows, column = (_percent(test.weight) for test in result.tests[:2])
        views = _percent(sum(test.weight for test in result.view_tests))
        several = f"the {len(result.view_tests):,} views have {views} together"
        one = f"the view has {views}" if len(result.view_tests) == 1 else several
        beside = f", and {one}" if result.view_tests else ""
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
        for i, test in enumerate(plotted_tests(result).values())
    ]
    if verdict.threshold is not None:
        entries.append(("level", f"alarm level {verdict.threshold:,.6g}"))
    if verdict.alarms:
        first = f"row {verdict.alarms[0]:,}{timeline.describe(verdict.alarms[0])}"
        several = f"{len(verdict.alarms):,} alarms, the first at {first}"
        entries.append(("dot", f"alarm at {first}" if len(verdict.alarms) == 1 else several))
    changes = verdict.changepoints
    what = "lowest evidence before each alarm" if result.departure is None else "estimated changes"
    if len(changes) > charts.MAX_CHANGEPOINTS:
        entries.append(("change", f"{what}, the first {charts.MAX_CHANGEPOINTS}"))
    elif len(changes) > 1:
        entries.append(("change", what))
    elif changes:
        when = timeline.describe(changes[0]) if changes[0] else ""
        entries.append(("change", f"estimated change, after {changes[0]:,} rows{when}"))
    if change is not None and change.low is not None and change.high is not None:
        rows = describe_interval(change.low, change.high, timeline)
        entries.append(("band", f"a single change came after {rows} ({_percent(change.confidence)} confidence)"))
    return entries


# ------------------------------------------------------------------------------------------------------- data, changes


def _data(result: Result, explanation: Explanation) -> dict[str, Any]:
    """Return the pictures of the columns that are flagged, or of the strongest one."""
    drawn, marks = pictured(result, [*explanation.features, *explanation.views]), mark(result)
    before_after = result.split is not None or len(marks.changes) == 1
    found, labels = list[Chart](), list[str]()
    for feature, column in drawn:
        svg, names = charts.data_chart(result, column, marks, charts.WIDE if len(drawn) == 1 else charts.HALF)
        found.append(Chart(isolate(column.name), svg, difference(feature) if before_after else ""))
        labels += names
    hidden = len(explanation.changed) - len(drawn)
    lead = [f"{hidden:,} more column{'s are' if hidden > 1 else ' is'} flagged."] if hidden > 0 else []
    if not explanation.changed and drawn:
        most = f"The picture shows {isolate(drawn[0][1].name)}, which has the most evidence."
        lead = [describe_columns(explanation) if result.rejected else "No column is flagged.", most]
    return {
        "charts": found,
        "legend": _data_legend(labels),
        "sentences": [_capitalise(text) for text in lead if text],
    }


def _data_legend(labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return the entries of a legend, each once: the class of the symbol, and the text."""
    return [(SYMBOLS.get(label, "line0"), label) for label in dict.fromkeys(labels)]


def _changes(explanation: Explanation, result: Result | None) -> dict[str, Any]:
    features, level = [*explanation.features, *explanation.views], -math.log10(explanation.alpha)
    widest = max([level, *(feature.log10_evidence for feature in features)])
    shown = sorted(
        [*explanation.features[:MAX_FEATURES], *explanation.views], key=lambda feature: -feature.log10_evidence
    )
    return {
        "sentence": _capitalise(describe_columns(explanation)),
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


# ------------------------------------------------------------------------------------------------------------- p-values


def _p_values(result: Result) -> dict[str, Any]:
    test, p = strongest_p_values(result)
    chart, labels = charts.p_value_chart(result, (test, p))
    return {
        "subject": describe_test(test, clip) if result.column_tests else "",  # of several
        "meaning": _p_value_meaning(result, test.kind),
        "chart": chart,
        "legend": [*zip(("block", "line0", "line3"), labels, strict=False), ("level", "exchangeable data")],
    }


def _p_value_meaning(result: Result, kind: str) -> str:
    """Describe what small and large p-values mean."""
    if kind == "categories" or (kind == "label" and isinstance(result.table.y, list)):
        return "near 0 if its category comes late in the alphabet, near 1 if early"
    if kind in ("numbers", "label", "component", "residual") or result.measure == "value":
        return "near 0 if its value is larger than most, near 1 if smaller"
    if result.measure == "nearest-residual":
        return "near 0 if its label is higher than those of its neighbours, near 1 if lower"
    return "near 0 if it is stranger than most, near 1 if more typical"


def _percent(share: float) -> str:
    return f"{100.0 * share:.4g} %"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]
