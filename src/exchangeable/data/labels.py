"""The labels of a table: classes or numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Any, Literal

import numpy as np

from exchangeable.data.errors import DataError
from exchangeable.data.table import Labels
from exchangeable.data.values import Column, read_values
from exchangeable.protocols import Floats
from exchangeable.validation import format_value

MAX_CLASSES = 20  # integers with more different values are real-valued labels
MIN_PER_CLASS = 5  # so are integers with fewer examples for each value, on average
LabelKind = Literal["classes", "numbers"]


def read_labels(label: Any, names: Set[str]) -> Column:
    """Read labels from a sequence; ``names`` are those of the other columns."""
    if isinstance(label, (Mapping, Set, bytes)) or hasattr(label, "columns") or not hasattr(label, "__iter__"):
        raise DataError(f"label must name a column, or hold one label for each row, got {format_value(label)}")
    name = getattr(label, "name", None)
    name = "label" if name is None or str(name) in names else str(name)
    while name in names:
        name += "'"
    values = np.asarray(label) if hasattr(label, "dtype") and np.asarray(label).dtype.kind in "biuf" else label
    return read_values(name or "label", values, categorical=False)


def convert_labels(column: Column, kind: LabelKind | None) -> Labels:
    """Convert labels, none of which is missing, to a list of classes or an array of numbers.

    By default, text and booleans are classes, and so are integers with few different values: two, or at most 20 with
    five examples each on average.
    """
    name, values = format_value(column.name), column.values
    if column.kind not in ("numbers", "booleans", "text"):
        held = {"times": "times", "empty": "no values"}.get(column.kind, "values that cannot be compared")
        raise DataError(f"label {name} must hold classes or numbers, got {held}")
    chosen = kind is not None
    if kind is None:
        kind = "numbers" if column.kind == "numbers" and looks_real(np.unique(values), len(values)) else "classes"
    if kind == "numbers":
        if column.kind == "text":
            raise DataError(f"label {name} must hold numbers, got {format_value(values[0])}")
        return np.asarray(values, np.float64)
    classes = _classes(column)
    check_classes(name, set(classes), len(classes), chosen=chosen)
    return classes


def _classes(column: Column) -> list[object]:
    if column.kind == "text":
        return list(column.values)
    if column.kind == "booleans":
        return [bool(value) for value in column.values.tolist()]
    return [int(value) if value.is_integer() else value for value in column.values.tolist()]


def check_classes(name: str, distinct: Collection[object], count: int, *, chosen: bool) -> None:
    """Check that these distinct classes of ``count`` labels are at least two, and that some occur more than once."""
    if len(distinct) == 1:
        raise DataError(
            f"label {name} must hold at least two classes, got only {format_value(next(iter(distinct)))}; omit the "
            "label to test the features alone"
        )
    if len(distinct) == count and not chosen:
        raise DataError(
            f"label {name} must hold classes, some of which occur more than once, got {count:,} different ones in "
            f"{count:,} rows"
        )


def looks_real(distinct: Floats, count: int) -> bool:
    """Return whether labels are real-valued: not integers, or integers with many different values."""
    kinds = len(distinct)
    if bool((distinct != np.floor(distinct)).any()) or kinds > MAX_CLASSES:
        return True
    return kinds > 2 and MIN_PER_CLASS * kinds > count
