"""Which columns of a table are tested, and which are set aside: times, identifiers, free text, sorted columns.

All rules but one look at the values of a column without their order, so they do not affect any guarantee. The one that
looks at the order sets sorted columns aside. Ten different values or more are sorted by chance with probability at most
2 / 10! = 6e-7; `exchangeable.analysis.columns` accounts for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.errors import list_names
from exchangeable.data.values import Column

MAX_CATEGORIES = 1000  # of one column
MIN_SORTED = 10  # different values of a sorted column, so that it is not sorted by chance
MIN_IDENTIFIERS = 20  # values, all of them different: fewer may well be a coincidence
DISTINCT = 0.9  # of the values of an identifier
SORTED = "sorted"
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_IDENTIFIER = re.compile(r"ids?|identifier|uuid|guid|key|index|idx|rows?|rowid|rownames?|pid|seq|serial|obs|nr|no|code")
_INDEX = re.compile(
    r"|Unnamed: [0-9]+|__index_level_[0-9]+__|rownames|level_0"
)  # an index that was saved with the data
_REASONS: Mapping[str, tuple[str, str, str]] = {  # the verb for one column and for several, and what follows it
    "row index": ("looks", "look", "like a saved row index"),
    "identifiers": ("holds", "hold", "a different value in nearly every row, like identifiers"),
    "text": ("holds", "hold", "text with too many different values for categories"),
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
                subject, verb, was = ("column", one, "it was") if len(names) == 1 else ("columns", many, "they were")
                keep = "" if reason in ("nested values", "no values") else " (name it in keep to test it)"
                notes.append(f"{subject} {list_names(names)} {verb} {rest}, so {was} set aside{keep}")
        return notes


def assign_roles(columns: Sequence[Column], keep: Sequence[str], *, ordered: bool) -> Roles:
    """Decide what is done with each column.

    Columns in ``keep`` are tested in any case. Sorted columns are set aside if ``ordered``: if the order of the rows is
    what is tested. If nothing else is left, sorted columns and identifiers are tested after all.
    """
    times = [column for column in columns if column.kind == "times" and column.name not in keep]
    others = [column for column in columns if column.kind != "times" or column.name in keep]
    reasons = {column.name: _reason(column, ordered, column.name in keep) for column in others}
    spared: set[str | None] = {None}
    if None not in reasons.values():  # nothing else is left
        spared |= {SORTED} if SORTED in reasons.values() else {"identifiers", "row index"}
    tested = [column for column in others if reasons[column.name] in spared]
    return Roles(tested, times, {name: reason for name, reason in reasons.items() if reason and reason not in spared})


def _reason(column: Column, ordered: bool, kept: bool) -> str | None:
    """Return why a column is set aside; None if it is tested."""
    if column.kind in ("empty", "other"):
        return "no values" if column.kind == "empty" else "nested values"
    if kept or column.kind == "booleans":
        return None
    present = _present(column)
    distinct = len(set(present)) if isinstance(present, list) else len(np.unique(present))
    if _INDEX.fullmatch(column.name) and distinct >= DISTINCT * len(present):
        return "row index"
    if ordered and distinct >= MIN_SORTED and is_sorted(present):
        return SORTED
    if isinstance(present, list):
        many = distinct > MAX_CATEGORIES or (distinct >= MIN_SORTED and 2 * distinct > len(present))
        return "text" if many else None
    return "identifiers" if distinct >= DISTINCT * len(present) and _like_identifiers(column.name, present) else None


def _like_identifiers(name: str, values: Any) -> bool:
    """Return whether distinct numbers are identifiers: integers in a column that is named so.

    The values alone do not tell: populations, votes and ranks are distinct integers too.
    """
    words = _WORDS.findall(name)
    named = bool(words) and _IDENTIFIER.fullmatch(words[-1].lower()) is not None
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
