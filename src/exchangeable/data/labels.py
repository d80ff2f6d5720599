"""The labels of a table in memory: a column of it, or a sequence; classes or numbers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np

from exchangeable.data.values import (
    Column,
    canonical_categories,
    integer_if_possible,
    is_inexact,
    is_missing,
    reject_value,
)
from exchangeable.protocols import Floats
from exchangeable.validation import LARGEST, format_value

MAX_CLASSES = 20  # integers with more different values are numbers
MIN_PER_CLASS = 5  # integers with fewer examples for each value, on average, are numbers
LabelKind = Literal["classes", "numbers"]


def read_labels(label: Any, names: set[str]) -> Column:
    """Read labels from a sequence; ``names`` are those of the feature columns."""
    values = _to_list(label)
    for row, value in enumerate(values):
        if is_missing(value):
            reject_value(row, "label", value)
        if np.ndim(value) or not isinstance(value, Hashable):
            raise ValueError(f"label must hold one label for each row, got {format_value(value)} at row {row}")
    name = getattr(label, "name", None)
    name = "label" if name is None or str(name) in names else name
    return Column(str(name) or "label", _numbers_or_categories(values))


def _to_list(label: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(label, method):
            label = getattr(label, method)()
            break
    if not isinstance(label, Iterable) or isinstance(label, (Mapping, Set, bytes)) or hasattr(label, "columns"):
        raise ValueError(f"label must name a column, or hold one label for each row, got {format_value(label)}")
    return list(label)


def _numbers_or_categories(values: list[Any]) -> Floats | list[Any]:
    """Convert to an array if all labels are numbers; booleans, text and very large integers are categories."""
    real = all(isinstance(value, (int, float, np.integer, np.floating)) for value in values)
    boolean = any(isinstance(value, (bool, np.bool_)) for value in values)
    if not real or boolean or not values or any(is_inexact(value) for value in values):
        return canonical_categories(values)
    array = np.array(values, np.float64)
    bad = ~(np.abs(array) <= LARGEST)
    if bad.any():
        reject_value(int(bad.argmax()), "label", values[int(bad.argmax())])
    return array


def convert_labels(column: Column, kind: LabelKind | None, declared: bool) -> list[object] | Floats:
    """Convert labels to a list of classes or an array of numbers; they are classes if ``declared`` categorical."""
    values = column.values
    if (kind or ("classes" if declared or not _looks_real(values) else "numbers")) == "numbers":
        if isinstance(values, list):
            raise ValueError(f"label {format_value(column.name)} must hold numbers, got {format_value(values[0])}")
        return values
    classes = values if isinstance(values, list) else [integer_if_possible(value) for value in values.tolist()]
    _check_classes(column.name, classes, kind)
    return classes


def _check_classes(name: str, classes: list[Any], kind: LabelKind | None) -> None:
    if len(set(classes)) == 1:
        raise ValueError(
            f"label {format_value(name)} must hold at least two classes, since they are compared; leave it out to "
            f"test the features alone, got only {format_value(classes[0])}"
        )
    if len(set(classes)) == len(classes) and kind is None:
        raise ValueError(
            f"label {format_value(name)} must hold classes, some of them more than once, got {len(classes)} different "
            f"ones in {len(classes)} rows"
        )


def _looks_real(values: Floats | list[Any]) -> bool:
    """Return whether labels are real-valued: not integers, or integers with many different values."""
    if isinstance(values, list):
        return False
    kinds = len(np.unique(values))
    if bool((values != np.floor(values)).any()) or kinds > MAX_CLASSES:
        return True
    return kinds > 2 and MIN_PER_CLASS * kinds > len(values)
