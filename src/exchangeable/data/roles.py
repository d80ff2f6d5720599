"""Which columns of a table are tested, and which are set aside: times, identifiers, free text, sorted columns.

All rules but one look at the values of a column without their order, so they do not affect any guarantee. The one that
looks at the order sets sorted columns aside. Ten different values or more are sorted by chance with probability at most
2 / 10! = 6e-7; `exchangeable.analysis.columns` accounts for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.errors import list_names
from exchangeable.data.times import YEARS
from exchangeable.data.values import Column

MAX_CATEGORIES = 1000  # of one column
MIN_SORTED = 10  # different values of a sorted column, so that it is not sorted by chance
MIN_IDENTIFIERS = 20  # values, all of them different: fewer may well be a coincidence
MIN_NAMES = 5  # different values of text, if no value occurs twice
DISTINCT = 0.9  # the share of different values in a column of identifiers
SORTED = "sorted"
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_IDENTIFIER = re.compile(r"ids?|identifier|uuid|guid|key|index|idx|rows?|rowid|rownames?|pid|seq|serial|obs|nr|no|code")
_INDEX = re.compile(
    r"|Unnamed: [0-9]+|__index_level_[0-9]+__|rownames|level_0"
)  # an index that was saved with the data
_PARTS = {
    **dict.fromkeys(("month", "mnth"), (1, 12)),
    **dict.fromkeys(("quarter", "qtr"), (1, 4)),
    "week": (1, 53),
    "day": (1, 31),
    **dict.fromkeys(("hour", "hr"), (0, 24)),
    "minute": (0, 59),
}  # parts of a date: the last word of the name, and the range of the values
_REASONS: Mapping[str, tuple[str, str, str]] = {  # the verb for one column and for several, and what follows it
    "row index": ("looks", "look", "like a saved row index"),
    "identifiers": ("holds", "hold", "a different value in nearly every row, like identifiers"),
    "text": ("holds", "hold", "text with a different value in most rows"),
    "many categories": ("holds", "hold", f"more than {MAX_CATEGORIES:,} categories"),
    "part of a date": ("is", "are", "part of a date"),
    "nested values": ("holds", "hold", "lists or other values that cannot be compared"),
    "no values": ("has", "have", "no values"),
    SORTED: ("is", "are", "sorted, which shows how the rows are arranged, not that something changed"),
}


class Roles(NamedTuple):
    """The columns that are tested, those that hold times, and those that are set aside, with the reason."""

    tested: list[Column]
    times: list[Column]
    aside: dict[str, str]

    def notes(self) -> list[str]:
        """Return a note for each reason to set columns aside."""
        notes = []
        for reason, (one, many, rest) in _REASONS.items():
            if names := [name for name, why in self.aside.items() if why == reason]:
                single = len(names) == 1
                subject, verb, was = ("column", one, "it was") if single else ("columns", many, "they were")
                keep = f" (add {'it' if single else 'them'} to keep to test {'it' if single else 'them'})"
                keep = "" if reason in ("many categories", "nested values", "no values") else keep
                notes.append(f"{subject} {list_names(names)} {verb} {rest}, so {was} set aside{keep}")
        return notes


def assign_roles(
    columns: Sequence[Column], keep: Sequence[str], *, ordered: bool, classes: Sequence[Any] | None = None
) -> Roles:
    """Decide what is done with each column.

    Columns in ``keep`` are always tested. Sorted columns are set aside if ``ordered``: if the order of the rows is
    tested. If it is the order within ``classes``, ten different values of one class are required. If nothing else is
    left, sorted columns and identifiers are tested after all.
    """
    times = [column for column in columns if column.kind == "times" and column.name not in keep]
    others = [column for column in columns if column.kind != "times" or column.name in keep]
    reasons = {column.name: _reason(column, ordered, classes, column.name in keep) for column in others}
    if times or any(is_year(column) for column in others):
        parts = [column.name for column in others if _is_part_of_date(column) and column.name not in keep]
        reasons.update(dict.fromkeys(parts, "part of a date"))
    spared: set[str | None] = {None}
    if not any(reasons[column.name] is None and _varies(column) for column in others):  # nothing else is left
        spared |= {SORTED} if SORTED in reasons.values() else {"identifiers", "row index"}
    tested = [column for column in others if reasons[column.name] in spared]
    return Roles(tested, times, {name: reason for name, reason in reasons.items() if reason and reason not in spared})


def _varies(column: Column) -> bool:
    """Return whether not all values are equal; missing values differ from others."""
    present = _present(column)
    return 0 < len(present) < len(column.values) or any(value != present[0] for value in present)


def _reason(column: Column, ordered: bool, classes: Sequence[Any] | None, kept: bool) -> str | None:
    """Return why a column is set aside; None if it is tested."""
    if column.kind in ("empty", "other"):
        return "no values" if column.kind == "empty" else "nested values"
    if kept or column.kind == "booleans":
        return None
    present = _present(column)
    distinct = len(set(present)) if isinstance(present, list) else len(np.unique(present))
    if _INDEX.fullmatch(column.name) and distinct >= DISTINCT * len(present):
        return "row index"
    if isinstance(present, list) and _is_free_text(distinct, len(present)):
        return "many categories" if distinct > MAX_CATEGORIES else "text"
    if ordered and _is_arranged(column, present, distinct, classes):
        return SORTED
    identifiers = distinct >= DISTINCT * len(present) and _like_identifiers(column.name, present)
    return "identifiers" if identifiers else None


def _is_free_text(distinct: int, n: int) -> bool:
    """Return whether text has too many different values for categories: names, codes, sentences."""
    return distinct > MAX_CATEGORIES or (distinct >= MIN_SORTED and 2 * distinct > n) or distinct == n >= MIN_NAMES


def _is_arranged(column: Column, present: Any, distinct: int, classes: Sequence[Any] | None) -> bool:
    """Return whether values are sorted, and there are so many different ones that this is no coincidence.

    Fewer different years are enough if they are repeated: n values with counts n_i are sorted by chance with
    probability 2 / (n! / prod_i n_i!).
    """
    if distinct < 2 or not is_sorted(present):
        return False
    if classes is not None:
        return _distinct_within(column, classes) >= MIN_SORTED
    if distinct >= MIN_SORTED or not is_year(column):
        return distinct >= MIN_SORTED
    counts = np.unique(present, return_counts=True)[1].tolist()
    log_orders = math.lgamma(len(present) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return log_orders >= math.lgamma(MIN_SORTED + 1)


def is_year(column: Column) -> bool:
    """Return whether a column of numbers holds years, according to its name and its values."""
    if column.kind != "numbers" or _last_word(column.name) not in ("year", "years", "yr"):
        return False
    present = _present(column)
    return bool((present == np.floor(present)).all() and present.min() >= YEARS[0] and present.max() <= YEARS[1])


def _is_part_of_date(column: Column) -> bool:
    """Return whether a column of numbers is the month, the hour, ... of a date, by its name and its values."""
    low, high = _PARTS.get(_last_word(column.name), (1, 0))
    if column.kind != "numbers" or low > high:
        return False
    present = _present(column)
    return bool((present == np.floor(present)).all() and present.min() >= low and present.max() <= high)


def _last_word(name: str) -> str:
    words = _WORDS.findall(name)
    return words[-1].lower() if words else ""


def _distinct_within(column: Column, classes: Sequence[Any]) -> int:
    """Return the number of different values in the class that has most of them."""
    values: dict[Any, set[Any]] = {}
    for value, kind, missing in zip(column.values, classes, column.missing, strict=True):
        if not missing:
            values.setdefault(kind, set()).add(value)
    return max(map(len, values.values()))


def _like_identifiers(name: str, values: Any) -> bool:
    """Return whether distinct numbers are identifiers: integers in a column with such a name.

    The values alone are not enough: populations, votes and ranks are distinct integers too.
    """
    named = _IDENTIFIER.fullmatch(_last_word(name)) is not None
    return named and len(values) >= MIN_IDENTIFIERS and bool((values == np.floor(values)).all())


def _present(column: Column) -> Any:
    if isinstance(column.values, list):
        return [value for value in column.values if value is not None]
    return column.values[~column.missing]


def is_sorted(values: Any) -> bool:
    """Return whether values are in ascending or in descending order.

    >>> is_sorted([3, 2, 2]), is_sorted(["b", "a", "c"])
    (True, False)
    """
    if isinstance(values, list):
        return all(a <= b for a, b in pairwise(values)) or all(a >= b for a, b in pairwise(values))
    steps = np.diff(values)
    zero = np.zeros((), steps.dtype)
    return bool((steps >= zero).all() or (steps <= zero).all())
