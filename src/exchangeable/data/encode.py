"""Encode columns as numbers, or as codes of categories, without missing values."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from exchangeable.data.errors import DataError
from exchangeable.data.roles import MAX_CATEGORIES
from exchangeable.data.table import TableColumn
from exchangeable.data.values import Column
from exchangeable.validation import format_value

TRUE = ("true", "yes")
WORDS = ({"true", "false"}, {"yes", "no"})  # text columns with these two words are booleans
MISSING = "(missing)"  # the category of missing values


def encode(columns: Sequence[Column]) -> list[TableColumn]:
    """Encode columns as numbers or codes of categories; missing numbers become the median over the table."""
    return [_encode_text(column) if column.kind == "text" else _encode_numbers(column) for column in columns]


def _encode_numbers(column: Column) -> TableColumn:
    missing = column.missing
    if column.kind == "booleans" and missing.any():
        return _encode_text(column.as_text())
    values = column.values
    if column.kind == "times":
        values = np.where(missing, np.nan, values.astype(np.int64) / 1e6)
    if missing.any():
        values = np.where(missing, np.median(values[~missing]), values)
    return TableColumn(column.name, np.asarray(values, np.float64))


def _encode_text(column: Column) -> TableColumn:
    """Encode categories in alphabetical order; missing values are the last category."""
    present = sorted({value for value in column.values if value is not None})
    if len(present) > MAX_CATEGORIES:
        raise DataError(
            f"column {format_value(column.name)} must hold at most {MAX_CATEGORIES:,} categories, got "
            f"{len(present):,}; drop it"
        )
    if {value.lower() for value in present} in WORDS and None not in column.values:
        return TableColumn(column.name, np.array([value.lower() in TRUE for value in column.values], np.float64))
    codes: dict[Any, int] = {value: i for i, value in enumerate(present)}
    values = np.array([codes.get(value, len(present)) for value in column.values], np.float64)
    return TableColumn(column.name, values, (*present, *([MISSING] * bool(values.max() == len(present)))))


def missing_indicators(columns: Sequence[Column], names: Collection[str]) -> dict[str, TableColumn]:
    """Return for each column of numbers with missing values one that marks them; equal ones are shared.

    ``names`` are those that the columns of the data have already.
    """
    patterns: dict[bytes, list[Column]] = {}
    for column in columns:
        if column.kind != "text" and column.kind != "booleans" and column.missing.any():
            patterns.setdefault(column.missing.tobytes(), []).append(column)
    result: dict[str, TableColumn] = {}
    for group in patterns.values():
        others = f" (and {len(group) - 1:,} more)" if len(group) > 1 else ""
        name = f"{min(column.name for column in group)}{others} is missing"  # whatever the order of the columns
        while name in names:
            name += "'"
        marks = TableColumn(name, group[0].missing.astype(np.float64), ("no", "yes"))
        result |= {column.name: marks for column in group}
    return result


def missing_notes(columns: Sequence[Column]) -> list[str]:
    """Return a note on missing values, if there are any."""
    counts = {column.name: int(column.missing.sum()) for column in columns}
    named = [f"{format_value(name)} ({count:,})" for name, count in counts.items() if count]
    if not named:
        return []
    listed = ", ".join(named[:10]) + (f" and {len(named) - 10:,} more" if len(named) > 10 else "")
    kinds = {column.kind in ("text", "booleans") for column in columns if counts[column.name]}
    numbers = ["missing numbers were replaced by the median, and a column that marks them was added"]
    done = "; ".join(numbers * (False in kinds) + ["missing categories are a category of their own"] * (True in kinds))
    return [f"values are missing in {listed}: {done}"]
