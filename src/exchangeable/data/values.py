"""The values of one column: checked, and converted to numbers or categories.

A missing value, or one that float64 cannot hold, is a `ValueError` that names the row (the first is 0) and the column.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Set
from decimal import Decimal
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.table import MAX_CATEGORIES, MAX_EXACT_INTEGER
from exchangeable.protocols import Floats
from exchangeable.validation import LARGEST, format_value

INEXACT = "is beyond 2**53, where float64 loses digits; rescale the column"
REAL: Any = (bool, int, float, np.bool_, np.integer, np.floating)


class Column(NamedTuple):
    """A column with its name: numbers, or categories as a list of scalars."""

    name: str
    values: Floats | list[Any]

    @property
    def categorical(self) -> bool:
        """Whether it holds categories."""
        return isinstance(self.values, list)


def read_series(name: str, series: Any, categorical: bool) -> Column:
    """Read a narwhals series: numbers or categories, according to its type."""
    import narwhals as nw

    kind = series.dtype
    if categorical or kind in (nw.String, nw.Categorical, nw.Enum):
        return Column(name, read_categories(name, series.to_list()))
    if kind == nw.Object:
        return Column(name, _read_objects(name, series.to_list()))
    if not (kind.is_numeric() or kind == nw.Boolean):
        raise ValueError(f"column {format_value(name)} is of type {kind}; {_allowed_types(name)}")
    try:
        missing, values = series.is_null().to_numpy(), series.to_numpy()
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"column {format_value(name)} of type {kind} must be readable as numbers, got: {reason}"
        ) from error
    if missing.any():
        reject_value(int(missing.argmax()), name, None)
    if values.dtype.kind == "O":  # decimals
        values = np.array([float(value) for value in values])
    return _read_numbers(name, values)


def read_sequence(name: str, values: Any, categorical: bool) -> Column:
    """Read an array, or any other ordered collection."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf" and not categorical:
        return _read_numbers(name, values)
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set)):
        raise ValueError(f"column {format_value(name)} must hold one value for each row, got {format_value(values)}")
    method = next((method for method in ("tolist", "to_pylist") if hasattr(values, method)), None)
    items = list(values) if method is None else getattr(values, method)()
    if categorical:
        return Column(name, read_categories(name, items))
    if any(isinstance(value, str) for value in items):
        return Column(name, _read_objects(name, items))
    if set(map(type, items)) != {float}:
        _check_numbers(name, items)
    return _read_numbers(name, np.array([float(value) for value in items]))


def _check_numbers(name: str, values: list[Any]) -> None:
    for row, value in enumerate(values):
        if is_missing(value):
            reject_value(row, name, value)
        if is_inexact(value):
            reject_value(row, name, value, INEXACT)
        if not isinstance(value, (*REAL, Decimal)):
            raise ValueError(
                f"row {row}, column {format_value(name)}: {_allowed_types(name)}, got {format_value(value)}"
            )


def _allowed_types(name: str) -> str:
    return f"only numbers, booleans and text are allowed: convert it, or leave it out with drop=[{name!r}]"


def _read_numbers(name: str, values: NDArray[Any]) -> Column:
    """Convert to float64, which must hold each number exactly."""
    if values.dtype.kind in "iu":
        inexact = (values > MAX_EXACT_INTEGER) | (values < -MAX_EXACT_INTEGER)
        if inexact.any():
            reject_value(int(inexact.argmax()), name, values[int(inexact.argmax())], INEXACT)
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    bad = ~(np.abs(numbers) <= LARGEST)
    if bad.any():
        reject_value(int(bad.argmax()), name, values[int(bad.argmax())])
    return Column(name, numbers)


def _read_objects(name: str, values: list[Any]) -> list[Any]:
    """Read Python objects as categories; only text and booleans are allowed."""
    for row, value in enumerate(values):
        if isinstance(value, (str, bool, np.bool_)):
            continue
        if is_missing(value):
            reject_value(row, name, value)
        raise ValueError(
            f"row {row}, column {format_value(name)}: Python objects must be text; name the column in "
            f"categorical=[{name!r}], or convert it to numbers, got {format_value(value)}"
        )
    return read_categories(name, values)


def read_categories(name: str, values: list[Any]) -> list[Any]:
    """Check categories: none may be missing, and there may be at most 1000 different ones."""
    for row, value in enumerate(values):
        if is_missing(value):
            reject_value(row, name, value)
        if not isinstance(value, Hashable):
            raise ValueError(
                f"row {row}, column {format_value(name)}: a category must be one value, got {format_value(value)}"
            )
    values = canonical_categories(values)
    if len(set(values)) > MAX_CATEGORIES:
        raise ValueError(
            f"column {format_value(name)} must hold at most {MAX_CATEGORIES} categories; leave it out with "
            f"drop=[{name!r}], got {len(set(values)):,}"
        )
    return values


def canonical_categories(values: list[Any]) -> list[Any]:
    """Write equal values in the same form (1 and 1.0 as 1), so that no category depends on the order of the rows."""
    if all(isinstance(value, str) for value in values) or all(isinstance(value, (bool, np.bool_)) for value in values):
        return values
    return [
        integer_if_possible(float(value))
        if isinstance(value, REAL) and -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER
        else value
        for value in values
    ]


def integer_if_possible(value: float) -> object:
    """Return an integer if the value is one; -0.0 becomes 0."""
    return int(value) if value.is_integer() else value


def is_inexact(value: Any) -> bool:
    """Return whether this is an integer that float64 may not hold."""
    return isinstance(value, (int, np.integer)) and not -MAX_EXACT_INTEGER <= int(value) <= MAX_EXACT_INTEGER


def is_missing(value: Any) -> bool:
    """Return whether this is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA is neither equal nor unequal to itself
        return True


def reject_value(row: int, name: str, value: Any, fault: str | None = None) -> NoReturn:
    """Raise ValueError for a value; without ``fault``, because it is missing, infinite or too large."""
    if fault is None and is_missing(value):
        fault = "is missing; leave out such rows, drop the column, or fill in a constant"
    elif fault is None and abs(float(value)) == math.inf:
        fault = "is not finite; every number must be"
    elif fault is None:
        fault = f"is beyond {LARGEST:g}, where squared distances overflow; rescale the column"
    value = value.item() if isinstance(value, np.generic) else value
    raise ValueError(f"row {row}, column {format_value(name)}: {format_value(value)} {fault}")
