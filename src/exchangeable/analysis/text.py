"""Describe tables, verdicts and explanations in sentences."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable.analysis.columns import FULL_ROWS, ColumnTest, is_weighted, ranked, rejecting
from exchangeable.analysis.timeline import Timeline
from exchangeable.analysis.verdict import SORTED_CLAUSE, Verdict
from exchangeable.data.table import Table

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Change, Explanation, ExtremeRow, FeatureEvidence

FEW_ROWS = 30  # with fewer rows, evidence of 100 is hardly possible
MAX_NAME = 60  # characters of a column name
MAX_DIFFERENCE = 300  # characters of a sentence on how two tables differ
LISTED_DIFFERENCES = 20
LISTED_ALARMS = 10  # alarms or columns that a sentence lists

SHIFTS: Mapping[str, str] = MappingProxyType(
    {
        "label shift": "LABEL SHIFT: the order of the labels matters: their proportions change, or they come sorted "
        "or in a pattern. There is no convincing evidence that the rows of a class change.",
        "concept shift": "CONCEPT SHIFT: the rows of a class are not distributed as before. There is no convincing "
        "evidence that the order of the labels matters.",
        "both": "LABEL SHIFT AND CONCEPT SHIFT: the order of the labels matters (their proportions change, or they "
        "come sorted or in a pattern), and the rows of a class are not distributed as before.",
        "neither found": "NEITHER FOUND: there is no convincing evidence that the order of the labels matters, or that "
        "the rows of a class change.",
    }
)
MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "nearest-neighbour": "The measure compares the distance to the nearest row of the same class with the "
        "distance to the nearest one of another class. It can miss a shift of all classes together, which the measure "
        "nearest-distance may detect.",
        "nearest-distance": "The measure compares the distances between rows and their nearest neighbours. It uses "
        "features only, not labels, and it can miss a change among rows that stay close to earlier ones.",
        "nearest-residual": "The measure compares labels with the labels of the most similar rows. It can miss a "
        "change of the features alone, which the measure nearest-distance may detect.",
        "value": "The measure ranks the values of a single column. It ignores all other columns.",
        "conditional-nearest-neighbour": "The measure compares each row with its own class only. It ignores how "
        "frequent the classes are, and it can miss a shift of all classes together.",
        "conditional-nearest-distance": "The measure compares the distances between rows of the same class. It "
        "ignores how frequent the classes are.",
        "frozen": "The measure ranks the scores. It uses nothing else.",
    }
)
NameFormat = Callable[[str], str]


# ------------------------------------------------------------------------------------------------------------- formats


def format_evidence(log10: float) -> str:
    """Format an amount of evidence, given its log10: 0, 0.013, 56, 1,240, 10^17.3."""
    if log10 == -math.inf:
        return "0"
    if -4.0 < log10 < 4.0:
        return f"{10.0**log10:.2g}" if log10 < 1.99 else f"{10.0**log10:,.0f}"
    return f"10^{log10:.1f}" if abs(log10) < 1e9 else f"10^{log10:.4g}"


def format_name(name: str, limit: int = MAX_NAME) -> str:
    """Format a user's name for a sentence: control characters are escaped, and at most 60 characters are shown."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return text if len(text) <= limit else text[: limit - 3] + "..."


def dump_json(record: dict[str, Any]) -> str:
    """Encode a record as JSON. Numbers that are not finite become null.

    >>> dump_json({"log10_martingale": -math.inf, "alarms": [3]})
    '{"log10_martingale": null, "alarms": [3]}'
    """
    return json.dumps(_finite(record), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _percent(share: float) -> str:
    return f"{100.0 * share:g} %"


def _list_rows(numbers: Sequence[int], timeline: Timeline) -> str:
    return timeline.list_rows(numbers[:LISTED_ALARMS]) + more(numbers, LISTED_ALARMS)


def more(items: Sequence[object], limit: int) -> str:
    """Return the end of a list of which only ``limit`` items are shown; empty if all of them are."""
    return f" and {len(items) - limit:,} more" if len(items) > limit else ""


# ------------------------------------------------------------------------------------------------- tables and measures


def describe_table(table: Table) -> str:
    """Describe a table in one line, after one-hot encoding."""
    d, labels = len(table.features), ""
    if isinstance(table.y, list):
        labels = f", {len(set(table.y)):,} classes"
    elif table.label is not None:
        labels = f", labels '{format_name(table.label)}'"
    return f"{format_name(table.name)}: {table.n:,} rows, {d:,} feature{'s' if d > 1 else ''}{labels}"


def describe_differences(differences: Sequence[str]) -> str:
    """Describe in one line how the columns of two tables differ."""
    listed = [format_name(difference, MAX_DIFFERENCE) for difference in differences[:LISTED_DIFFERENCES]]
    return f"Columns: {'; '.join(listed)}{more(differences, LISTED_DIFFERENCES)}."


def figure_title(name: str) -> str:
    """Return the title of a figure; dollar signs are escaped, since matplotlib would read them as formulas."""
    return f"{name}: evidence against exchangeability".replace("$", r"\$")


def describe_measure(measure: str) -> str:
    """Describe what a measure compares and what it can miss; empty for a measure that is not part of this package."""
    return MEASURES.get(measure, "")


# ------------------------------------------------------------------------------------------------------------- verdicts


class VerdictText(NamedTuple):
    """A verdict in sentences; ``str`` puts one part on each line."""

    headline: str
    details: list[str]
    means: str
    does_not_mean: str
    guarantee: str = ""  # if it is not part of what the verdict means

    def __str__(self) -> str:
        lines = [self.headline, *self.details, f"Means: {self.means}", f"Does not mean: {self.does_not_mean}"]
        return "\n".join(lines + [f"Guarantee: {self.guarantee}"] * bool(self.guarantee))


def describe_verdict(
    verdict: Verdict,
    tests: Sequence[ColumnTest] = (),
    sets: tuple[str, str] | None = None,
    timeline: Timeline | None = None,
    name: NameFormat = format_name,
) -> VerdictText:
    """Describe a verdict.

    ``tests`` are the martingales behind it; ``sets`` names the two sets, if two were compared; ``timeline`` has the
    times of the rows; ``name`` formats the names of columns.
    """
    if sets is not None:
        return _describe_comparison(verdict, tests, sets, name)
    if verdict.rejected:
        return _describe_rejection(verdict, tests, timeline or Timeline(), name)
    return _describe_no_rejection(verdict, tests, name)


def _describe_comparison(
    verdict: Verdict, tests: Sequence[ColumnTest], sets: tuple[str, str], name: NameFormat
) -> VerdictText:
    (first, second), level = sets, _percent(verdict.alpha or 0.0)
    evidence = _describe_evidence(verdict, tests, "split", name)
    if verdict.rejected:
        return VerdictText(
            f"REJECTED at level {level}: {second} does not look like a random sample of {first} and {second} combined.",
            [evidence],
            "the two sets should not be pooled without further checks: what is learnt on one may not hold on the "
            f"other. If they were a random split, the probability of a rejection would be at most {level}.",
            "that every feature differs, or that the difference is large.",
        )
    return VerdictText(
        f"NOT REJECTED at level {level}: no convincing evidence that {first} and {second} differ.",
        [evidence],
        f"this test found no difference between the two sets. {describe_measure(verdict.measure)}".rstrip(),
        "that there is none. The order within each set was not tested: both were shuffled.",
    )


def _describe_rejection(
    verdict: Verdict, tests: Sequence[ColumnTest], timeline: Timeline, name: NameFormat
) -> VerdictText:
    headline, subject = f"ALARM of {verdict.alarm}.", "unless this is a false alarm, something"
    if verdict.alpha is not None:
        headline = f"REJECTED at level {_percent(verdict.alpha)}: the order of these rows matters."
        subject = "something"
    unchanged = ", or that every feature changed" if verdict.n_features > 1 else ""
    if len(tests) > 1:
        unchanged = ", or that a column with less evidence did not change"
    return VerdictText(
        headline,
        [_describe_alarms(verdict, tests, timeline), _describe_evidence(verdict, tests, "order", name)],
        f"{subject} drifted, changed, is sorted or comes in batches, so random splits and cross-validation may be too "
        f"optimistic. {_describe_error_rate(verdict, tests)}",
        f"that the change occurred where the alarm was raised{unchanged}.",
    )


def _describe_no_rejection(verdict: Verdict, tests: Sequence[ColumnTest], name: NameFormat) -> VerdictText:
    outcome = f"NO ALARM of {verdict.alarm}"
    if verdict.alpha is not None:
        outcome = f"NOT REJECTED at level {_percent(verdict.alpha)}"
    few = ["With so few rows, enough evidence for a rejection is hardly possible."] * (verdict.n < FEW_ROWS)
    return VerdictText(
        f"{outcome}: no convincing evidence that the order of the {verdict.n:,} rows matters.",
        [_describe_evidence(verdict, tests, "order", name), *few],
        f"this test found no departure from exchangeability. {describe_measure(verdict.measure)}".rstrip(),
        "that there is none. A test can refute exchangeability, but never confirm it.",
        verdict.guarantee if verdict.alpha is None else "",
    )


def _describe_alarms(verdict: Verdict, tests: Sequence[ColumnTest], timeline: Timeline) -> str:
    """Describe when the alarm was raised, and where the change may be."""
    if len(verdict.alarms) > 1:
        return (
            f"The alarm was raised {len(verdict.alarms):,} times in {verdict.n:,} rows, at rows "
            f"{_list_rows(verdict.alarms, timeline)}. Before these alarms the evidence was lowest after rows "
            f"{_list_rows(verdict.changepoints, timeline)}: the changes occurred around there or later (estimates, "
            "without a guarantee)."
        )
    at, before = verdict.rejected_at or 0, verdict.changepoint or 0
    raised = f"The alarm was raised at row {at:,} of {verdict.n:,}{timeline.describe(at)}."
    where = f"after row {before:,}{timeline.describe(before)}" if before else "at the very start"
    if is_weighted(tests):
        return (
            f"{raised} The evidence started to rise {where}: the change occurred around there (a quick estimate, "
            "without a guarantee)."
        )
    return (
        f"{raised} The evidence was lowest {where}: the change occurred around there or later (an estimate, without a "
        "guarantee)."
    )


def _describe_evidence(verdict: Verdict, tests: Sequence[ColumnTest], what: str, name: NameFormat) -> str:
    if len(tests) > 1 and verdict.threshold is not None:
        return _describe_tests(verdict, tests, name)
    since = " (since the last restart)" if verdict.on_alarm == "restart" and verdict.alarms else ""
    level = "" if verdict.threshold is None else f"; the alarm is at {_alarm_level(verdict)}"
    column = f" ({name(tests[0].name)})" if tests and tests[0].name != FULL_ROWS else ""
    share = math.log10(tests[0].weight) if tests else 0.0
    return (
        f"Evidence against a random {what}{column}: peak {format_evidence(max(0.0, verdict.log10_max + share))}, "
        f"at the end {format_evidence(verdict.log10_martingale + share)}{since}{level}."
    )


def _alarm_level(verdict: Verdict) -> str:
    level = verdict.threshold or 0.0
    return f"{level:,.0f}" if level >= 100.0 else f"{level:.4g}"


def _describe_tests(verdict: Verdict, tests: Sequence[ColumnTest], name: NameFormat) -> str:
    """Describe the highest evidence, and the other tests that reach the alarm level."""
    first, *others = rejecting(tests, math.log(verdict.threshold or 1.0)) or ranked(tests)[:1]
    peaks = [f"{describe_test(test, name)} {format_evidence(test.log10_evidence)}" for test in others]
    also = f" Also: {', '.join(peaks[:LISTED_ALARMS])}{more(peaks, LISTED_ALARMS)}." if peaks else ""
    return (
        f"Strongest of {len(tests):,} tests: {describe_test(first, name)}, evidence "
        f"{format_evidence(max(0.0, first.log10_evidence))} (alarm at {_alarm_level(verdict)}).{also}"
    )


def describe_test(test: ColumnTest, name: NameFormat = format_name) -> str:
    """Return what a test is about: full rows, a column or a view."""
    return f"column {name(test.name)}" if test.is_column else name(test.name)


def _describe_error_rate(verdict: Verdict, tests: Sequence[ColumnTest]) -> str:
    """Describe how probable a false alarm is."""
    exchangeable = "If the rows were exchangeable (in random order, as i.i.d. data are), the probability"
    level = _percent(verdict.alpha or 0.0) + (SORTED_CLAUSE if SORTED_CLAUSE in verdict.guarantee else "")
    if len(tests) > 1 and verdict.alpha is not None:
        return f"{exchangeable} of a rejection by any of these tests would be at most {level}."
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        return f"{exchangeable} of evidence of {_alarm_level(verdict)} would be at most {level}."
    if verdict.period is None:
        return verdict.guarantee
    rate = verdict.n / verdict.period
    if verdict.on_alarm == "restart":
        return f"{verdict.guarantee} For {verdict.n:,} rows that is {rate:.2g}."
    bound = (
        f"that is {100.0 * rate:.2g} %"
        if rate < 1.0
        else "this bound exceeds 100 %, so a false alarm would be no surprise"
    )
    return f"{verdict.guarantee} For {verdict.n:,} rows {bound}."


# --------------------------------------------------------------------------------------------------------- explanations


def describe_change(change: Change, timeline: Timeline) -> str:
    """Describe when the change occurred."""
    where = "at the very start (an estimate without a guarantee)"
    if change.estimate:
        rows = f"{change.estimate:,} row{'s' if change.estimate > 1 else ''}"
        where = f"after about {rows}{timeline.describe(change.estimate, 'an estimate without a guarantee')}"
    confidence = f"{_percent(change.confidence)} confidence, over all data, with and without an alarm"
    if change.low is None or change.high is None:
        return (
            f"{where}. A single change between two parts that are each exchangeable "
            f"is rejected ({confidence}): the data drift, or there are several changes."
        )
    return (
        f"{where}. If there was a single change, and the rows on each side of it "
        f"are exchangeable given the other side, it came after row {change.low:,}{timeline.describe(change.low)} at "
        f"the earliest and {change.high:,}{timeline.describe(change.high)} at the latest ({confidence})."
    )


def describe_columns(explanation: Explanation) -> str:
    """Describe whether columns changed, without their names; empty if there is one column that did not change."""
    if explanation.changed:
        return f"these columns {'differ' if explanation.compared else 'changed'}, each tested separately."
    kinds = {view.kind for view in explanation.views if view.flagged}
    if kinds:
        what = "several columns together do" if "component" in kinds else "the relation of the label to them does"
        return f"no single column gives convincing evidence, but {what} (see the views)."
    if len(explanation.features) > 1:
        return "no single column gives convincing evidence; a change may lie in how the columns relate to each other."
    return ""


def describe_explanation(explanation: Explanation) -> str:
    """Describe an explanation: when, which columns, labels, and extreme rows."""
    lines = [] if explanation.change is None else [f"When: {describe_change(explanation.change, explanation.timeline)}"]
    if columns := describe_columns(explanation):
        lines.append(f"What: {columns}")
    lines += [*_list_columns(explanation), *_list_views(explanation), f"Guarantee: {explanation.guarantee}"]
    if explanation.shift is not None:
        lines.append(f"Labels: {SHIFTS[explanation.shift.verdict]}")
    if not explanation.compared:  # there the numbers are those of a shuffled order
        lines.append(_describe_extremes(explanation))
    return "\n".join(lines)


def _list_columns(explanation: Explanation) -> Iterator[str]:
    flagged = [feature for feature in explanation.features if feature.flagged]
    for i, feature in enumerate(flagged[:LISTED_ALARMS], 1):
        yield f"  {i}. {_describe_feature(feature, explanation)}"
    if len(flagged) > LISTED_ALARMS:
        yield f" {more(flagged, LISTED_ALARMS)}"
    rest = [feature for feature in explanation.features if not feature.flagged][:3]
    if rest and len(explanation.features) > 1:
        peaks = ", ".join(
            f"{format_name(feature.name)} (peak {format_evidence(feature.log10_evidence)})" for feature in rest
        )
        yield f"{'Not enough evidence' if flagged else 'The most evidence'}: {peaks}."


def _list_views(explanation: Explanation) -> Iterator[str]:
    """List the flagged views with more evidence than any column."""
    most = max((feature.log10_evidence for feature in explanation.features), default=-math.inf)
    for view in explanation.views:
        if view.flagged and view.log10_evidence > most:
            yield f"View: {_describe_feature(view, explanation)}"


def _describe_feature(feature: FeatureEvidence, explanation: Explanation) -> str:
    where = ""
    if feature.rejected_at is not None and not explanation.compared:
        where = f", at row {feature.rejected_at:,}{explanation.timeline.describe(feature.rejected_at)}"
    difference = f"; {feature.difference}" if feature.difference else ""
    return f"{format_name(feature.name)}: evidence {format_evidence(feature.log10_evidence)}{where}{difference}"


def _describe_extremes(explanation: Explanation) -> str:
    strangest = ", ".join(_describe_extreme(row, ".2g", explanation.timeline) for row in explanation.smallest_p)
    typical = ", ".join(_describe_extreme(row, ".4g", explanation.timeline) for row in explanation.largest_p)
    return f"Strangest rows: {strangest}. Most typical: {typical}. {describe_smallest_p(explanation.n)}"


def _describe_extreme(row: ExtremeRow, digits: str, timeline: Timeline) -> str:
    return f"{row.n:,}{timeline.describe(row.n, f'p = {row.p:{digits}}')}"


def describe_smallest_p(n: int) -> str:
    """Describe how small the smallest of n p-values is even without a change."""
    return f"The smallest of {n:,} p-values is about {1.0 / n:.1g} even if nothing changes."
