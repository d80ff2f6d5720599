"""The values of one column: numbers, booleans, text or times, each with its missing values.

What a column holds is decided by all of its values together, never by their order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.errors import DataError
from exchangeable.data.times import CONVERTED, UNIT, numeric_times, parse_times
from exchangeable.protocols import Floats
from exchangeable.validation import LARGEST, NUMBER, format_value

Kind = Literal["numbers", "booleans", "text", "times", "empty", "other"]
MAX_EXACT_INTEGER = 2**53  # float64 holds every integer up to here
MAX_DIGITS = 16  # an integer of more digits is larger, and Python does not parse thousands of them
CODES = "integers beyond 2**53 were read as codes, not as numbers"
MAX_MIXED, MIN_WORDS = 20, 2  # up to 20 different numbers and words are categories, if each word occurs twice
MOSTLY = 0.9  # of the values that are present: a column with that many numbers is meant to hold numbers


class Column(NamedTuple):
    """A column as it was read; all kinds but "other" have one value for each row.

    Numbers and booleans are floats, NaN if missing; times are datetime64, NaT if missing; text is a list with None for
    missing values, and so is "empty". "other" is anything that cannot be compared, such as lists.
    """

    name: str
    kind: Kind
    values: Any
    invalid: tuple[tuple[int, str], ...] = ()  # positions and values of cells among numbers that are not numbers
    note: str = ""
    written: bool = False  # whether the values were read from text, which may hold numbers, times or categories

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which values are missing."""
        if self.kind == "times":
            return np.asarray(np.isnat(self.values))
        if isinstance(self.values, list):
            return np.array([value is None for value in self.values], bool)
        return np.asarray(np.isnan(self.values))

    def take(self, rows: NDArray[np.intp]) -> Column:
        """Return the column with these rows only."""
        values = [self.values[i] for i in rows.tolist()] if isinstance(self.values, list) else self.values[rows]
        return self._replace(values=values)

    def split(self, n: int) -> tuple[Column, Column]:
        """Return the first n rows and the others."""
        before = tuple((row, value) for row, value in self.invalid if row < n)
        after = tuple((row - n, value) for row, value in self.invalid if row >= n)
        return (
            self._replace(values=self.values[:n], invalid=before),
            self._replace(values=self.values[n:], invalid=after),
        )

    def as_text(self) -> Column:
        """Return the values as text; integers are written without a decimal point."""
        if self.kind in ("text", "empty"):
            return self._replace(kind="text")
        show = {"booleans": lambda value: str(bool(value)), "numbers": number_text}.get(self.kind, str)
        items = self.values.astype("datetime64[us]").tolist() if self.kind == "times" else self.values.tolist()
        missing = self.missing.tolist()
        texts = [None if absent else show(value) for value, absent in zip(items, missing, strict=True)]
        return Column(self.name, "text", texts)


def read_series(name: str, series: Any, categorical: bool) -> Column:
    """Read a narwhals series."""
    import narwhals as nw

    kind = series.dtype
    if kind in (nw.Boolean,) or (kind.is_numeric() and kind != nw.Decimal):
        column = _read_array(name, *_numeric_arrays(name, series))
    elif kind in (nw.Datetime, nw.Date):
        zone = getattr(kind, "time_zone", None)
        column = Column(name, "times", _series_times(series), note="" if zone in (None, "UTC") else CONVERTED)
    elif kind in (nw.String, nw.Categorical, nw.Enum):
        texts = [None if value is None else str(value) for value in _present(series)]
        column = read_objects(name, texts, categorical)
        if kind != nw.String and column.kind not in ("times", "empty"):  # categories stay so, whatever their names
            column = Column(name, "text", texts)
    elif kind in (nw.List, nw.Array, nw.Struct, nw.Binary):
        column = Column(name, "other", str(kind).partition("(")[0].lower())
    else:
        column = read_objects(name, series.to_list(), categorical)
    return column.as_text() if categorical and column.kind != "other" else column


def read_values(name: str, values: Any, categorical: bool) -> Column:
    """Read an array, or any other ordered collection."""
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes, Mapping, Set)):
        raise DataError(f"column {format_value(name)} must hold one value for each row, got {format_value(values)}")
    array = values if isinstance(values, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in "biuf":
        column = _read_array(name, np.ma.getdata(array), np.ma.getmaskarray(array))
        return column.as_text() if categorical else column
    if array is not None and array.ndim == 1 and array.dtype.kind == "M":
        return Column(name, "times", np.ma.filled(array, np.datetime64("NaT")).astype(UNIT))
    method = next((method for method in ("tolist", "to_pylist", "to_list") if hasattr(values, method)), None)
    return read_objects(name, list(values) if method is None else getattr(values, method)(), categorical)


def read_objects(name: str, values: Sequence[Any], categorical: bool = False) -> Column:
    """Read Python objects: text, numbers, booleans, times, or a mixture of them. O(n)."""
    items = [None if is_missing(value) else value for value in values]
    types = {type(value) for value in items} - {type(None)}
    if not types:
        return Column(name, "empty", items)
    if all(hasattr(type_, "to_timestamp") for type_ in types):  # periods of pandas
        items, types = [None if value is None else value.to_timestamp() for value in items], {datetime}
    if categorical and types == {str}:
        return Column(name, "text", items)
    for kind, allowed in _TYPES.items():
        if all(issubclass(type_, allowed) for type_ in types):
            column: Column = _READERS[kind](name, items)
            return column.as_text() if categorical else column
    if any(issubclass(type_, _NESTED) for type_ in types):
        return Column(name, "other", "nested values")
    texts = [value if value is None else _object_text(value) for value in items]
    return Column(name, "text", texts) if categorical else read_text(name, texts)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or NA."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, ArithmeticError):  # pandas.NA or a signalling NaN; an array has no truth value
        return not isinstance(value, np.ndarray)


# ------------------------------------------------------------------------------------------------------------- numbers


def _numeric_arrays(name: str, series: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the values of a numeric series, and which of them are missing."""
    import narwhals as nw

    try:
        missing = series.is_null().to_numpy()
        if missing.any():
            series = series.fill_null(False if series.dtype == nw.Boolean else 0)
        values = series.to_numpy()
        return (values.astype(bool) if series.dtype == nw.Boolean else values), missing
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"column {format_value(name)} of type {series.dtype} must be readable as numbers, got: {reason}"
        ) from error


def _read_array(name: str, values: NDArray[Any], missing: NDArray[np.bool_]) -> Column:
    """Read an array of numbers or booleans. Integers that float64 cannot hold are codes, so they are read as text."""
    with np.errstate(over="ignore"):  # a long double may become infinite
        numbers = np.array(values, np.float64)
    numbers[missing] = math.nan
    if values.dtype.kind == "b":
        return _checked(name, "booleans", numbers)
    if (times := numeric_times(name, numbers if missing.any() else values)) is not None:
        return Column(name, "times", times)
    if values.dtype.kind in "iu" and (np.abs(numbers) > MAX_EXACT_INTEGER).any():
        texts = [
            None if absent else str(value) for value, absent in zip(values.tolist(), missing.tolist(), strict=True)
        ]
        return Column(name, "text", texts, note=CODES)
    return _checked(name, "numbers", numbers)


def _checked(name: str, kind: Kind, numbers: Floats) -> Column:
    """Return a column of numbers, without those that are infinite or too large for squared distances."""
    if np.isnan(numbers).all():
        return Column(name, "empty", [None] * len(numbers))
    bad = np.flatnonzero(np.abs(numbers) > LARGEST)
    invalid = tuple((i, f"{numbers[i]:g}") for i in bad.tolist())
    numbers[bad] = math.nan
    return Column(name, kind, numbers, invalid)


def _read_numbers(name: str, items: list[Any]) -> Column:
    numbers = np.array([math.nan if value is None else _to_float(value) for value in items])
    if (times := numeric_times(name, numbers)) is not None:
        return Column(name, "times", times)
    if any(isinstance(value, (int, np.integer)) and abs(int(value)) > MAX_EXACT_INTEGER for value in items):
        return Column(name, "text", [None if value is None else str(value) for value in items], note=CODES)
    return _checked(name, "numbers", numbers)


def _to_float(value: Any) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read_booleans(name: str, items: list[Any]) -> Column:
    return Column(name, "booleans", np.array([math.nan if value is None else float(value) for value in items]))


def number_text(value: float) -> str:
    """Return a number as text: integers without a decimal point, 32-bit numbers with as few digits as they need.

    >>> number_text(3.0), number_text(0.1), number_text(float(np.float32(0.1)))
    ('3', '0.1', '0.1')
    """
    if value.is_integer():
        return str(int(value))
    single = np.float32(value) if abs(value) < 1e38 else np.float32(0.0)
    return str(single) if float(single) == value else str(value)


# ------------------------------------------------------------------------------------------------------ text and times


def _present(series: Any) -> list[Any]:
    return [None if is_missing(value) else value for value in series.to_list()]


def read_text(name: str, items: list[Any]) -> Column:
    """Read text, as numbers or times if it holds those."""
    counts = Counter(text for text in items if text is not None)
    numeric = {text: float(text) for text in counts if NUMBER.fullmatch(text.strip())}
    mostly = sum(counts[text] for text in numeric) >= MOSTLY * counts.total() and not any(map(is_code, numeric))
    others = sorted(set(counts) - set(numeric))
    if mostly and others and len(counts) <= MAX_MIXED and min(counts[text] for text in others) >= MIN_WORDS:
        note = f"the values were read as categories, since some are not numbers, such as {format_value(others[0])}"
        return Column(name, "text", items, note=note, written=True)
    if mostly:
        numbers = np.array([math.nan if text is None else numeric.get(text, math.nan) for text in items])
        invalid = [(i, text) for i, text in enumerate(items) if text is not None and text not in numeric]
        column = _checked(name, "numbers", numbers)
        return column._replace(invalid=tuple(sorted((*column.invalid, *invalid))), written=True)
    times = parse_times(items)
    if times is None:
        return Column(name, "text", items, written=True)
    return Column(name, "times", times.values, note=times.note, written=True)


def is_code(number: str) -> bool:
    """Return whether digits are a code rather than a number: 007, or an integer that float64 cannot hold."""
    digits = number.strip().lstrip("+-")
    if not digits.isdecimal():
        return False
    return (len(digits) > 1 and digits[0] == "0") or len(digits) > MAX_DIGITS or int(digits) > MAX_EXACT_INTEGER


def _read_dates(name: str, items: list[Any]) -> Column:
    shifted = any(isinstance(value, datetime) and value.utcoffset() for value in items)
    values = np.array([None if value is None else _naive(value) for value in items], UNIT)
    return Column(name, "times", values, note=CONVERTED if shifted else "")


def _naive(value: date) -> date:
    """Convert to UTC, without a time zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - (value.utcoffset() or timedelta())).replace(tzinfo=None)
    return value


def _read_clock(name: str, items: list[Any]) -> Column:
    """Read times of the day as seconds."""
    seconds = [
        math.nan
        if value is None
        else 3600.0 * value.hour + 60.0 * value.minute + value.second + value.microsecond / 1e6
        for value in items
    ]
    return Column(name, "numbers", np.array(seconds))


def _series_times(series: Any) -> NDArray[np.datetime64]:
    import narwhals as nw

    if series.dtype == nw.Datetime and series.dtype.time_zone is not None:
        series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return np.asarray(series.to_numpy()).astype(UNIT)


def _object_text(value: Any) -> str:
    return number_text(float(value)) if isinstance(value, float) else str(value)


_NESTED = (list, tuple, dict, set, frozenset, bytes, bytearray, np.ndarray)
_TYPES: dict[str, Any] = {
    "booleans": (bool, np.bool_),
    "numbers": (int, float, np.integer, np.floating, Decimal, timedelta),
    "text": str,
    "times": (date, np.datetime64),
    "clock": time,
}
_READERS: dict[str, Any] = {
    "booleans": _read_booleans,
    "numbers": _read_numbers,
    "text": read_text,
    "times": _read_dates,
    "clock": _read_clock,
}
