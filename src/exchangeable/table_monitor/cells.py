"""Cells of rows that arrive: the same value gives the same number, whether it comes alone or in a frame."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.errors import DataError
from exchangeable.data.files import read_file
from exchangeable.data.values import is_missing, number_text
from exchangeable.validation import LARGEST, NUMBER, format_value


class InvalidCellError(ValueError):
    """A cell that is not of the kind of its column."""


TYPES = {"number": "a number", "boolean": "true or false", "text": "text"}  # of cells
_NUMBERS = (int, float, np.integer, np.floating, Decimal)


def cell_type(value: Any) -> str | None:
    """Return the type of a cell; None if it is of no type that a column may have."""
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    return "text" if isinstance(value, str) else "number" if isinstance(value, _NUMBERS) else None


def cell_types(cells: Any) -> tuple[str, ...]:
    """Return the types of the cells of a column, without those that are missing."""
    if isinstance(cells, np.ndarray):
        return ("number",)
    found = {cell_type(cell) for cell in cells if not is_missing(cell)}
    return tuple(name for name in TYPES if name in found)


def check_type(value: Any, types: tuple[str, ...]) -> None:
    """Raise an error if a cell has another type than those of its column had. 0 and 1 are booleans too.

    >>> check_type(2, ("boolean",))
    Traceback (most recent call last):
    ...
    exchangeable.table_monitor.cells.InvalidCellError: must be true or false, got 2
    """
    found = cell_type(value)
    if found is None or found in types or (found == "number" and "boolean" in types and value in (0, 1)):
        return
    expected = " or ".join(TYPES[name] for name in types)
    raise InvalidCellError(
        not_finite(value) if types == ("number",) else f"must be {expected}, got {format_value(value)}"
    )


def to_number(value: Any) -> float:
    """Convert a cell to a number; NaN if it is missing.

    >>> to_number("1.5"), to_number(True), to_number(None)
    (1.5, 1.0, nan)
    """
    if type(value) is float and abs(value) <= LARGEST:
        return value
    if is_missing(value):
        return math.nan
    number = math.nan
    if isinstance(value, (bool, np.bool_, int, float, np.integer, np.floating, Decimal)):
        number = _float(value)
    elif isinstance(value, str) and NUMBER.fullmatch(value.strip()):
        number = float(value)
    if not abs(number) <= LARGEST:
        raise InvalidCellError(not_finite(value))
    return number


def not_finite(value: Any) -> str:
    """Return what is wrong with a cell that is not a number."""
    return f"must be a finite number of magnitude at most {LARGEST:g}, got {format_value(value)}"


def to_category(value: Any) -> str | None:
    """Convert a cell to the text of a category; None if it is missing. Numbers that are integers lose their point.

    >>> to_category("red"), to_category(3.0), to_category(None)
    ('red', '3', None)
    """
    if isinstance(value, str):
        return value
    if is_missing(value):
        return None
    if isinstance(value, (float, np.floating)):
        return number_text(float(value))
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(value.item() if isinstance(value, np.generic) else value)
    raise InvalidCellError(f"must be text, a number or a boolean, got {format_value(value)}")


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


class _Absent:
    """The type of ABSENT."""

    def __repr__(self) -> str:
        return "no cell"


ABSENT = _Absent()  # stands where a row does not have a column that another row has


class Cells(NamedTuple):
    """Rows as columns of cells, by name."""

    columns: dict[str, Any]  # lists of cells, or arrays of numbers with NaN for missing values
    n: int
    ragged: bool = False  # whether rows have different columns; see ABSENT
    inferred: bool = False  # whether types were inferred from text, so that those of a part may differ

    def take(self, rows: NDArray[np.intp]) -> Cells:
        """Return the rows at these positions."""
        at = rows.tolist()
        taken = {
            name: column[rows] if isinstance(column, np.ndarray) else [column[i] for i in at]
            for name, column in self.columns.items()
        }
        return self._replace(columns=taken, n=len(at))

    def native(self) -> dict[str, Any]:
        """Return the columns as data that the schema step reads."""
        if not self.ragged:
            return dict(self.columns)
        return {name: [None if cell is ABSENT else cell for cell in cells] for name, cells in self.columns.items()}

    def has(self, i: int) -> list[str]:
        """Return the names of the columns that row ``i`` has."""
        return [name for name, cells in self.columns.items() if not (self.ragged and cells[i] is ABSENT)]


def open_cells(data: Any) -> Cells:
    """Open rows of any kind: a file, a frame, an array (columns x0, x1, ...), a mapping of columns, or mappings.

    >>> open_cells([{"a": 1, "b": "u"}, {"a": 2}]).columns
    {'a': [1, 2], 'b': ['u', no cell]}
    """
    import narwhals as nw

    data = data.frame if hasattr(data, "frame") and hasattr(data, "notes") else data
    if isinstance(data, str) or hasattr(data, "__fspath__"):
        return _open_file(data)
    if isinstance(data, Mapping):
        return _equal_lengths({name: _column(values) for name, values in _with_text_names(data).items()})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _rows(list(data))
    if isinstance(data, np.ndarray):
        X = data[:, np.newaxis] if data.ndim == 1 else data
        if X.ndim != 2:
            raise DataError(f"data must have one or two dimensions, got {data.ndim}")
        return _equal_lengths({f"x{i}": _column(X[:, i]) for i in range(X.shape[1])})
    if hasattr(data, "collect"):
        raise DataError("data must be in memory, got a lazy frame; collect() it first")
    _check_distinct(getattr(data, "columns", ()))
    frame = nw.from_native(data, pass_through=True, eager_only=True)
    if frame is data:
        raise DataError(
            f"data must be a frame, an array, a mapping of columns or a list of rows, got {format_value(data)}"
        )
    return _equal_lengths({str(name): _series(frame.get_column(name)) for name in frame.columns})


def _open_file(file: Any) -> Cells:
    contents = read_file(file)
    return open_cells(contents.frame)._replace(inferred=contents.format == "delimited")


def _with_text_names(data: Mapping[Any, Any]) -> dict[str, Any]:
    named = {str(name): value for name, value in data.items()}
    if len(named) < len(data):
        _check_distinct(data)
    return named


def _check_distinct(names: Any) -> None:
    twice = [name for name, count in Counter(map(str, names)).items() if count > 1] if _is_many(names) else []
    if twice:
        raise DataError(f"data must have distinct column names, got {format_value(twice[0])} twice")


def _is_many(names: Any) -> bool:
    return isinstance(names, Iterable) and not isinstance(names, (str, bytes))


def _rows(rows: list[Any]) -> Cells:
    others = [row for row in rows if not isinstance(row, Mapping)]
    if others and len(others) == len(rows):
        return open_cells(_array(rows))
    if others:
        raise DataError(f"data must be a list of mappings if one row is a mapping, got {format_value(others[0])} too")
    named = [_with_text_names(row) for row in rows]
    names = dict.fromkeys(name for row in named for name in row)
    columns = {name: [row.get(name, ABSENT) for row in named] for name in names}
    return Cells(columns, len(rows), any(len(row) < len(names) for row in named))


def _array(rows: list[Any]) -> NDArray[Any]:
    try:
        return np.array(rows)
    except ValueError:  # ragged
        raise DataError(f"data must have rows of one length, got {format_value(rows)}") from None


def _column(values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and not np.ma.isMaskedArray(values):
        return values
    if hasattr(values, "dtype") and not isinstance(values, np.ndarray):
        return _series(values)
    if np.ma.isMaskedArray(values):
        return values.tolist()
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise DataError(f"data must hold a column of cells for each name, got {format_value(values)}")
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def _series(series: Any) -> Any:
    """Return the cells of a series: an array of numbers if it can be one, integers only if none is missing."""
    import narwhals as nw

    column: Any = nw.from_native(series, series_only=True, pass_through=True)
    if column.dtype.is_float() or (column.dtype.is_integer() and not column.is_null().any()):
        values = np.asarray(column.to_numpy())
        if values.dtype.kind in "iuf":
            return values
    return column.to_list()


def _equal_lengths(columns: dict[str, Any]) -> Cells:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise DataError(f"data must hold columns of the same length, got lengths {sorted(lengths)}")
    return Cells(columns, next(iter(lengths), 0))
