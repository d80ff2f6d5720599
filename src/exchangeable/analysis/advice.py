"""Describe what kind of departure was found, and say what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from exchangeable.analysis.formats import count_of, format_name, list_words, percent
from exchangeable.analysis.timeline import Timeline

if TYPE_CHECKING:
    from exchangeable.analysis.change import Change
    from exchangeable.analysis.departure import Departure

LISTED = 5  # changes or rows in a sentence
NameFormat = Callable[[str], str]
NOTHING_TO_DO = "nothing: this test gives no reason to avoid random splits."
MORE = "See 'After an alarm' in the documentation."


def describe_departure(
    departure: Departure, change: Change | None, timeline: Timeline, name: NameFormat = format_name
) -> str:
    """Describe what kind of departure it is, and when."""
    subject, count = name(departure.subject), len(departure.changes)
    if departure.kind in ("one change", "last part"):
        return _describe_change(departure, change, timeline)
    such_as = "such as " * (len(departure.rows) > LISTED)
    return {
        "several changes": f"{count:,} changes, after about {_list_rows(departure.changes, timeline)} rows.",
        "drift": f"a drift: {subject} changes gradually.",
        "seasonal pattern": f"a seasonal pattern in {subject}, which repeats about every {departure.period or 0:,} "
        f"rows ({departure.size}).",
        "serial dependence": f"serial dependence in {subject}: each value depends on those just before it"
        f"{f' ({departure.size})' if departure.size else ''}.",
        "sorted rows": f"sorted rows: the table is sorted, or nearly sorted, by {subject}.",
        "repeated rows": f"repeated rows: {departure.size}, most of them "
        f"{count_of(departure.period or 0, 'row')} after the original.",
        "outliers": f"outliers: values of {subject} far from the rest, in {departure.size} ({such_as}"
        f"{_list_rows(departure.rows[:LISTED], timeline)}); without them, no pattern is found.",
    }.get(departure.kind, f"unclear{f': it may be {_article(departure.size)}' if departure.size else ''}.")


def _describe_change(departure: Departure, change: Change | None, timeline: Timeline) -> str:
    at = departure.changes[0]
    where = f"one change, after about {at:,} rows{timeline.describe(at)}."
    if departure.kind == "last part":
        where = f"the last part: the rows from about {at + 1:,}{timeline.describe(at + 1)} on differ from those before."
    if change is None:
        return where
    confidence = f"{percent(change.confidence)} confidence"
    if change.low is None or change.high is None:
        alone = "wherever the rows are split, at least one of the two parts is not exchangeable by itself"
        return f"{where} This is not the only change: {alone} ({confidence})."
    rows = describe_interval(change.low, change.high, timeline)
    return f"{where} If nothing else changed, the change came after {rows} ({confidence})."


def describe_interval(low: int, high: int, timeline: Timeline) -> str:
    """Describe the rows after one of which a change came.

    >>> describe_interval(283, 311, Timeline()), describe_interval(300, 300, Timeline())
    ('one of rows 283 to 311', 'row 300')
    """
    first, last = (f"{row:,}{timeline.describe(row)}" for row in (low, high))
    return f"row {first}" if low == high else f"one of rows {first} to {last}"


def _article(kinds: str) -> str:
    """Return "one change or a drift" for "one change or drift"."""
    articles = {"drift": "a drift", "seasonal pattern": "a seasonal pattern"}
    return " or ".join(articles.get(kind, kind) for kind in kinds.split(" or "))


def _list_rows(rows: list[int], timeline: Timeline) -> str:
    words = [f"{row:,}{timeline.describe(row)}" for row in rows[:LISTED]]
    return list_words([*words, f"{len(rows) - LISTED:,} more"] if len(rows) > LISTED else words)


def advise(departure: Departure, timeline: Timeline, name: NameFormat = format_name) -> str:
    """Say what to do about a departure of this kind."""
    subject = name(departure.subject)
    first = departure.changes[-1] + 1 if departure.changes else 0
    row = f"{first:,}{timeline.describe(first)}" if first else ""
    return {
        "one change": f"find out what changed around row {row}, such as a unit, a data source, a version or the "
        "population. Split by time (TimeSeriesSplit), not at random. To predict new rows, train on the rows after the "
        "change.",
        "last part": f"check the rows from {row} on: are they complete, from the same source and in the same units? "
        "Validate on them separately, and do not mix them into random splits.",
        "several changes": "find out what the parts correspond to, such as batches, machines, days or versions. Split "
        f"by time or by part (GroupKFold), not at random. To predict new rows, train on the rows from {row} on.",
        "drift": "split by time (TimeSeriesSplit), not at random. Expect a model to become outdated: retrain it "
        f"regularly, or model the trend in {subject}.",
        "seasonal pattern": f"split by time, in multiples of {departure.period or 0:,} rows, or add the position in "
        "the cycle as a feature. To look for other changes, subtract the pattern first.",
        "serial dependence": "split by time with a gap (TimeSeriesSplit(gap=...)) or in blocks. Error bars for i.i.d. "
        "data are usually too small. To look for other changes, test the errors of a forecasting model.",
        "sorted rows": f"if the table was sorted by {subject} on purpose, the rejection only reflects that. Sort it by "
        "time (order=...) and test again. Before cross-validation, shuffle the rows, or stratify.",
        "repeated rows": "remove the copies (drop_duplicates) before you split: otherwise, rows of the test set have "
        "copies in the training set.",
        "outliers": "look at these rows. If they are errors, correct or remove them. If not, it is up to you whether "
        "to keep them: the other rows may well be exchangeable.",
    }.get(departure.kind, "plot the data in row order (result.plot(kind='data')), and split by time to be safe.")
