"""A table in a line, and what is lawful about it and yet seldom meant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exchangeable.analysis.columns import MANY
from exchangeable.analysis.verdict import FEW, printable
from exchangeable.data.canonical import constant
from exchangeable.data.files import Table
from exchangeable.data.scaling import WIDE, widest

LISTED = 5  # columns named in a note
SMALL = 5  # examples in a typical class; where there are fewer, the label may well be a number


def notes(table: Table, scale: str, looked_at: bool = True) -> Iterator[str]:
    """What is lawful and yet seldom meant: row numbers among the features, a number as class; and what was scaled."""
    for group in table.groups:
        column = table.X[:, group.start]
        if not group.categorical and len(column) >= FEW and (np.diff(column) > 0.0).all():
            remedy = "; drop it unless it is meant" if len(table.groups) > 1 else ""
            yield f"column {printable(group.name)!r} only ever rises, as a row number does{remedy}"
        kinds = group.stop - group.start
        if group.categorical and len(column) >= FEW and 2 * kinds > len(column):
            found = f"{kinds:,} different values in {len(column):,} rows, as identifiers and dates do"
            yield f"column {printable(group.name)!r} holds {found}; drop it unless it is meant"
    if isinstance(table.y, list) and len(table.y) >= FEW and SMALL * len(set(table.y)) > len(table.y):
        yield f"there are {len(set(table.y)):,} classes; if the label is a number, the measure nearest-residual fits it"
    still = [printable(group.name) for group in table.groups if constant(table.X[:, group.start : group.stop])]
    if still:
        named = ", ".join(map(repr, still[:LISTED])) + (f" and {len(still) - LISTED:,} more" * (len(still) > LISTED))
        yield f"{'columns' if len(still) > 1 else 'column'} {named} held one value only, so there was nothing to test"
    if not looked_at and len(table.groups) > MANY:
        yield f"there are more than {MANY} columns, so no single one has a say in the verdict (columns 'each' gives it)"
    outweighs = widest(table)
    if outweighs is not None:
        remedy = "so numeric columns were divided by their deviation over the whole table"
        if scale == "none":
            remedy = "and decides all distances; scale by deviation, or drop it"
        yield f"column {printable(outweighs)!r} spreads over {WIDE:g} times as far as most, {remedy}"


def described(table: Table) -> str:
    """The table in one line."""
    n, d = table.X.shape
    labels = f", labels {table.label!r}" if table.label is not None and not isinstance(table.y, list) else ""
    classes = f", {len(set(table.y)):,} classes" if isinstance(table.y, list) else labels
    return f"{table.name}: {n:,} examples, {d:,} feature{'s' if d > 1 else ''}{classes}"


def title(name: str) -> str:
    """Of its figure."""
    return f"{name}: evidence against exchangeability".replace("$", r"\$")  # no formulas
