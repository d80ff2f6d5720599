"""Describe tables, verdicts and explanations in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from exchangeable.analysis.advice import MORE, NOTHING_TO_DO, advise, describe_departure
from exchangeable.analysis.columns import FULL_ROWS, ColumnTest, ranked, rejecting
from exchangeable.analysis.effects import describe_effect
from exchangeable.analysis.formats import format_evidence, format_name, more, percent
from exchangeable.analysis.timeline import Timeline
from exchangeable.analysis.verdict import SORTED_CLAUSE, Verdict
from exchangeable.data.table import Table

if TYPE_CHECKING:
    from exchangeable.analysis.change import Change
    from exchangeable.analysis.departure import Departure
    from exchangeable.analysis.explain import Explanation, ExtremeRow, FeatureEvidence

FEW_ROWS = 30  # with fewer rows, evidence of 100 is hardly possible
MAX_DIFFERENCE = 300  # characters of a sentence on how two tables differ
LISTED_DIFFERENCES = 20
LISTED_ALARMS = 10  # alarms or columns that a sentence lists
LISTED_EFFECTS = 3
LISTED_TESTS = 5

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
DESCRIPTION = " The kind, the estimates and the sizes are descriptions without a guarantee."


# ------------------------------------------------------------------------------------------------- tables and measures


def describe_table(table: Table) -> str:
    """Describe a table in one line."""
    count, label = len(table.columns), ""
    if table.y is not None:
        classes = f" ({len(set(table.y)):,} classes)" if isinstance(table.y, list) else ""
        label = f", label {format_name(table.label)}{classes}" if table.label else f", labels{classes}"
    return f"{format_name(table.name)}: {table.n:,} rows, {count:,} column{'s' if count > 1 else ''}{label}"


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


class Finding(NamedTuple):
    """What is known about a departure beyond the verdict, without a guarantee except for the interval of the change."""

    departure: Departure | None  # None if two sets were compared
    change: Change | None
    effects: Sequence[FeatureEvidence]  # the columns and views that changed, the most evidence first


class VerdictText(NamedTuple):
    """A verdict in sentences; ``str`` puts one part on each line."""

    headline: str
    details: list[str]
    means: str
    does_not_mean: str
    guarantee: str = ""  # if it is not part of what the verdict means
    advice: str = ""  # what to do
    brief: bool = False  # whether ``str`` leaves out the meaning

    def __str__(self) -> str:
        meaning = [] if self.brief else [f"Means: {self.means}", f"Does not mean: {self.does_not_mean}"]
        lines = [self.headline, *self.details, *meaning, *([f"What to do: {self.advice}"] * bool(self.advice))]
        return "\n".join(lines + [f"Guarantee: {self.guarantee}"] * bool(self.guarantee))


def describe_verdict(
    verdict: Verdict,
    tests: Sequence[ColumnTest] = (),
    sets: tuple[str, str] | None = None,
    timeline: Timeline | None = None,
    name: NameFormat = format_name,
    finding: Finding | None = None,
) -> VerdictText:
    """Describe a verdict.

    ``tests`` are the martingales behind it; ``sets`` names the two sets, if two were compared; ``timeline`` has the
    times of the rows; ``name`` formats the names of columns; ``finding`` describes the departure.
    """
    if sets is not None:
        return _describe_comparison(verdict, tests, sets, name, finding)
    if verdict.rejected:
        return _describe_rejection(verdict, tests, timeline or Timeline(), name, finding)
    return _describe_no_rejection(verdict, tests, name)


def _describe_comparison(
    verdict: Verdict, tests: Sequence[ColumnTest], sets: tuple[str, str], name: NameFormat, finding: Finding | None
) -> VerdictText:
    (first, second), level = sets, percent(verdict.alpha or 0.0)
    evidence = _describe_evidence(verdict, tests, "split", name)
    if verdict.rejected:
        return VerdictText(
            f"REJECTED ({level}): {second} does not look like a random sample of {first} and {second} combined.",
            [evidence, *_describe_effects(finding, name)],
            "the two sets should not be pooled without further checks: what is learnt from one may not hold for "
            f"the other. If they were a random split, the probability of a rejection would be at most {level}.",
            "that every feature differs, or that the difference is large.",
        )
    return VerdictText(
        f"NOT REJECTED ({level}): no convincing evidence that {first} and {second} differ.",
        [evidence],
        f"this test found no difference between the two sets. {describe_measure(verdict.measure)}".rstrip(),
        "that there is none. The order within each set was not tested: both were shuffled.",
    )


def _describe_rejection(
    verdict: Verdict, tests: Sequence[ColumnTest], timeline: Timeline, name: NameFormat, finding: Finding | None
) -> VerdictText:
    headline, subject = f"ALARM of {verdict.alarm}.", "unless this is a false alarm, something"
    if verdict.alpha is not None:
        headline = f"REJECTED ({percent(verdict.alpha)}): the order of these rows matters."
        subject = "something"
    details = [_describe_evidence(verdict, tests, "order", name, timeline)]
    departure = None if finding is None else finding.departure
    if finding is None or departure is None:
        details.insert(0, _describe_alarms(verdict, timeline))
    else:
        details.append(f"Kind: {describe_departure(departure, finding.change, timeline, name)}")
        details += _describe_effects(finding, name)
    return VerdictText(
        headline,
        details,
        f"{subject} drifted, changed, is sorted or comes in batches, so random splits and cross-validation may be too "
        "optimistic.",
        "that the change occurred where the alarm was raised, or that a column with less evidence did not change.",
        f"{_describe_error_rate(verdict, tests)}{DESCRIPTION if departure else ''}",
        "" if departure is None else f"{advise(departure, timeline, name)} {MORE}",
        brief=departure is not None,
    )


def _describe_effects(finding: Finding | None, name: NameFormat) -> list[str]:
    """Describe how large the change is in the columns with the most evidence."""
    shown = [one for one in (finding.effects if finding else ()) if one.effect is not None]
    words = [f"{name(one.name)}: {describe_effect(one.effect, name)}" for one in shown[:LISTED_EFFECTS] if one.effect]
    return [f"Size: {'; '.join(words)}{more(shown, LISTED_EFFECTS)}."] if words else []


def _describe_no_rejection(verdict: Verdict, tests: Sequence[ColumnTest], name: NameFormat) -> VerdictText:
    outcome = f"NO ALARM of {verdict.alarm}"
    if verdict.alpha is not None:
        outcome = f"NOT REJECTED ({percent(verdict.alpha)})"
    few = ["With so few rows, enough evidence for a rejection is hardly possible."] * (verdict.n < FEW_ROWS)
    return VerdictText(
        f"{outcome}: no convincing evidence that the order of the {verdict.n:,} rows matters.",
        [_describe_evidence(verdict, tests, "order", name), *few],
        f"this test found no departure from exchangeability. {describe_measure(verdict.measure)}".rstrip(),
        "that there is none. A test can refute exchangeability, but never confirm it.",
        verdict.guarantee if verdict.alpha is None else "",
        NOTHING_TO_DO,
    )


def _describe_alarms(verdict: Verdict, timeline: Timeline) -> str:
    """Describe when alarms were raised, and where the changes may be."""
    if len(verdict.alarms) > 1:
        return (
            f"The alarm was raised {len(verdict.alarms):,} times in {verdict.n:,} rows, at rows "
            f"{_list_rows(verdict.alarms, timeline)}. Before these alarms the evidence was lowest after rows "
            f"{_list_rows(verdict.changepoints, timeline)}: the changes occurred around there or later (estimates, "
            "without a guarantee)."
        )
    at, before = verdict.rejected_at or 0, verdict.changepoint or 0
    where = f"after row {before:,}{timeline.describe(before)}" if before else "at the very start"
    return (
        f"The alarm was raised at row {at:,} of {verdict.n:,}{timeline.describe(at)}. The evidence was lowest {where}: "
        "the change occurred around there or later (an estimate, without a guarantee)."
    )


def _list_rows(numbers: Sequence[int], timeline: Timeline) -> str:
    return timeline.list_rows(numbers[:LISTED_ALARMS]) + more(numbers, LISTED_ALARMS)


def _describe_evidence(
    verdict: Verdict, tests: Sequence[ColumnTest], what: str, name: NameFormat, timeline: Timeline | None = None
) -> str:
    at = verdict.rejected_at
    reached = f", raised at row {at:,}{timeline.describe(at)}" if at and timeline and len(verdict.alarms) == 1 else ""
    if len(tests) > 1 and verdict.threshold is not None:
        return _describe_tests(verdict, tests, name, reached)
    since = " (since the last restart)" if verdict.on_alarm == "restart" and verdict.alarms else ""
    level = f" (alarm {reached[2:]})" if reached else ""
    if verdict.threshold is not None:
        level = f" (alarm at {_alarm_level(verdict)}{reached})"
    column = f" ({name(tests[0].name)})" if tests and tests[0].name != FULL_ROWS else ""
    share = math.log10(tests[0].weight) if tests else 0.0
    return (
        f"Evidence against a random {what}{column}: peak {format_evidence(max(0.0, verdict.log10_max + share))}, "
        f"at the end {format_evidence(verdict.log10_martingale + share)}{since}{level}."
    )


def _alarm_level(verdict: Verdict) -> str:
    level = verdict.threshold or 0.0
    return f"{level:,.0f}" if level >= 100.0 else f"{level:.4g}"


def _describe_tests(verdict: Verdict, tests: Sequence[ColumnTest], name: NameFormat, reached: str) -> str:
    """Describe the highest evidence, and the other tests that reach the alarm level."""
    first, *others = rejecting(tests, math.log(verdict.threshold or 1.0)) or ranked(tests)[:1]
    peaks = [f"{describe_test(test, name)} ({format_evidence(test.log10_evidence)})" for test in others]
    also = f" Also: {', '.join(peaks[:LISTED_TESTS])}{more(peaks, LISTED_TESTS)}." if peaks else ""
    return (
        f"Strongest of {len(tests):,} tests: {describe_test(first, name)}, evidence "
        f"{format_evidence(max(0.0, first.log10_evidence))} (alarm at {_alarm_level(verdict)}{reached}).{also}"
    )


def describe_test(test: ColumnTest, name: NameFormat = format_name) -> str:
    """Return what a test is about: full rows, a column or a view."""
    return f"column {name(test.name)}" if test.is_column else name(test.name)


def _describe_error_rate(verdict: Verdict, tests: Sequence[ColumnTest]) -> str:
    """Describe how probable a false alarm is."""
    exchangeable = "If the rows were exchangeable (in random order, as i.i.d. data are), the probability"
    level = percent(verdict.alpha or 0.0) + (SORTED_CLAUSE if SORTED_CLAUSE in verdict.guarantee else "")
    if len(tests) > 1 and verdict.alpha is not None:
        return f"{exchangeable} of a rejection by any of these tests would be at most {level}."
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        return f"{exchangeable} of reaching evidence of {_alarm_level(verdict)} would be at most {level}."
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


def describe_columns(explanation: Explanation) -> str:
    """Describe whether columns changed, without their names; empty if there is one column that did not change."""
    if explanation.changed:
        count, one = len(explanation.changed), len(explanation.changed) == 1
        verb = f"differ{'s' * one}" if explanation.compared else f"depart{'s' * one} from exchangeability"
        return f"{count:,} column{'s' * (not one)} {verb}; each column was tested separately."
    kinds = {view.kind for view in explanation.views if view.flagged}
    if "shares" in kinds:
        verb = "differ" if explanation.compared else "changed"
        return f"the shares of categories {verb} (see the views); no column gives convincing evidence by its ranks."
    if kinds:
        what = "several columns together do" if "component" in kinds else "their relation to the label does"
        return f"no single column gives convincing evidence, but {what} (see the views)."
    if len(explanation.features) > 1:
        return "no single column gives convincing evidence; a change may lie in how the columns relate to each other."
    return ""


def describe_explanation(explanation: Explanation) -> str:
    """Describe an explanation: when, which columns, labels, and extreme rows."""
    departure, timeline = explanation.departure, explanation.timeline
    lines = []
    if departure is not None:
        lines = [f"Kind: {describe_departure(departure, explanation.change, timeline)}"]
    if columns := describe_columns(explanation):
        lines.append(f"What: {columns}")
    lines += [*_list_columns(explanation), *_list_views(explanation), f"Guarantee: {explanation.guarantee}"]
    if explanation.shift is not None:
        lines.append(f"Labels: {SHIFTS[explanation.shift.verdict]}")
    if not explanation.compared:  # there the numbers are those of a shuffled order
        lines.append(_describe_extremes(explanation))
    if departure is not None:
        lines.append(f"What to do: {advise(departure, timeline)} {MORE}")
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
        where = f", alarm at row {feature.rejected_at:,}{explanation.timeline.describe(feature.rejected_at)}"
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
