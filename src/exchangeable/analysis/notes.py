"""Notes on the data of a test, besides those on how it was read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from exchangeable.analysis.columns import MAX_AUTO_COLUMNS
from exchangeable.analysis.formats import format_name, more
from exchangeable.analysis.sample import Sample, Split
from exchangeable.analysis.text import FEW_ROWS
from exchangeable.data.canonical import row_hashes
from exchangeable.data.design import WIDE, widest
from exchangeable.data.table import Table, constant

if TYPE_CHECKING:
    from exchangeable.analysis.settings import Settings

LISTED_COLUMNS = 5  # constant columns that a note names
COPIES = 0.1  # the share of rows that two sets may have in common
SMALL_CLASS = 5  # if a typical class has fewer rows, the label may well be a number


def data_notes(table: Table, scale: str, columns_tested: bool = True, asked: str = "none") -> Iterator[str]:
    """Yield notes on data that is valid but often a mistake, such as constant columns, and on scaling.

    ``scale`` is the scaling that was used, and ``asked`` the one that was asked for.
    """
    if isinstance(table.y, list) and len(table.y) >= FEW_ROWS and SMALL_CLASS * len(set(table.y)) > len(table.y):
        yield f"there are {len(set(table.y)):,} classes; test a numeric label with the measure nearest-residual instead"
    fixed = [format_name(column.name) for column in table.columns if constant(column.values)]
    if fixed:
        names = ", ".join(map(repr, fixed[:LISTED_COLUMNS])) + more(fixed, LISTED_COLUMNS)
        yield (
            f"column {names} is constant, so it was not tested"
            if len(fixed) == 1
            else f"columns {names} are constant, so they were not tested"
        )
    if not columns_tested and len(table.columns) + table.sorted_aside + (table.y is not None) > MAX_AUTO_COLUMNS:
        yield (
            f"there are more than {MAX_AUTO_COLUMNS} columns, so they were not tested one by one "
            "(set columns to 'each' to test them all)"
        )
    dominant = None if (asked, scale) == ("auto", "none") else widest(table)
    if dominant is not None:
        remedy = "so numeric columns were divided by their standard deviation over the entire table"
        if scale == "none":
            remedy = "and dominates all distances; set scale to 'deviation', or drop the column"
        yield f"column {format_name(dominant)!r} varies more than {WIDE:g} times as much as a typical one, {remedy}"


def note_copies(table: Table, split: Split | None, start: int) -> Iterator[str]:
    """Yield a note if many rows of one set also occur in the other, although rows hardly ever occur twice in a set."""
    if split is None:
        return
    keys = row_hashes(table.columns)
    first, second = keys[:start], keys[start:]
    copies, repeated = np.isin(second, first), 1.0 - len(np.unique(first)) / len(first)
    if copies.mean() > COPIES + 2.0 * repeated:
        yield (
            f"{int(copies.sum()):,} of {len(copies):,} rows of {split.second} are also in {split.first}; sets that "
            "share rows are not a random split, so a rejection is no surprise: remove the copies"
        )


def note_thinning(sample: Sample, n: int, columns_tested: bool, settings: Settings | None) -> Iterator[str]:
    """Yield a note if nearest neighbours use only some of the n rows."""
    if sample.rows is None:
        return
    used, reason = len(sample.rows), "the features of more rows would need too much memory"
    if settings is not None and used >= settings.max_rows:
        reason = "the time of nearest neighbours grows with the square of the rows; max_rows sets the limit"
    columns = "; columns were tested on all rows" if columns_tested else ""
    yield f"full rows were tested on {used:,} of {n:,} rows, chosen at random by the seed ({reason}){columns}"
