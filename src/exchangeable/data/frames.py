"""Data of any kind as columns: files, frames and series of any library, arrays, sparse matrices, mappings, rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data import sparse
from exchangeable.data.errors import UNNAMED, DataError
from exchangeable.data.values import Column, read_series, read_values
from exchangeable.validation import format_value


class Frame(NamedTuple):
    """Data with named columns, which are read on demand."""

    names: list[str]
    read: Callable[[str, bool], Column]  # name, and whether it is declared categorical
    rows: int
    library: str = "polars"
    name: str = UNNAMED
    notes: tuple[str, ...] = ()
    index: Any = None  # of a pandas frame
    unused: Set[str] = frozenset()  # columns that were not read: of a file, or of a sparse matrix without an entry
    select: Callable[[Sequence[str]], Any] | None = None  # some columns, in the form in which the user passed them


def open_frame(
    data: Any, *, name: str = UNNAMED, beside: Any = None, selection: Mapping[str, Any] = MappingProxyType({})
) -> Frame:
    """Return data as a `Frame`.

    ``beside`` is the data with which this will be compared: columns of a sparse matrix that are empty here may be
    needed there. ``selection`` is which columns of a file are read.

    >>> open_frame({"a": [1.0, 2.0], "b": ["u", "v"]}).names
    ['a', 'b']
    """
    if isinstance(data, (str, PurePath)) or (hasattr(data, "read") and not hasattr(data, "columns")):
        from exchangeable.data.files import read_file

        data = read_file(data, **selection)
    frame = _open(data, beside)
    frame = frame._replace(name=name) if frame.name == UNNAMED else frame
    name = frame.name
    if twice := [column for column, count in Counter(frame.names).items() if count > 1]:
        raise DataError(f"{name} must have distinct column names, got {format_value(twice[0])} twice")
    if not frame.names and not frame.unused:
        raise DataError(f"{name} must have at least one column, got none")
    return frame


def take_rows(data: Any, rows: NDArray[np.intp]) -> Any:
    """Return these rows of a frame of any library, an array or a sparse matrix."""
    import narwhals as nw

    if hasattr(data, "iloc"):
        return data.iloc[rows]
    frame = nw.from_native(data, pass_through=True, eager_only=True)
    return data[rows] if frame is data else frame[rows].to_native()


def _open(data: Any, beside: Any) -> Frame:
    if hasattr(data, "frame") and hasattr(data, "notes"):  # contents of a file
        return _open(data.frame, beside)._replace(name=data.name, notes=tuple(data.notes), unused=data.unused)
    if sparse.is_sparse(data):
        return _sparse(data, beside)
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        data = _transpose(data)
    if isinstance(data, Mapping):
        return _mapping(data)
    if isinstance(data, (list, tuple)):
        return _rows(data)
    return _array(data) if isinstance(data, np.ndarray) else _frame(data)


# -------------------------------------------------------------------------------------------------------------- frames


def _frame(data: Any) -> Frame:
    """Open a frame or a series that narwhals can read; anything else is read as an array."""
    import narwhals as nw

    named = _with_text_names(data)
    try:
        frame = nw.from_native(named, pass_through=True, allow_series=True)
    except Exception as error:
        raise DataError(f"data must be a frame that narwhals can read, got: {' '.join(str(error).split())}") from error
    if isinstance(frame, nw.LazyFrame):
        raise DataError("data must be in memory, got a lazy frame; collect() it first")
    if isinstance(frame, nw.Series):
        frame = frame.alias(frame.name if frame.name not in (None, "") else "value").to_frame()
    if not isinstance(frame, nw.DataFrame):
        return _array(_as_array(data))
    columns = list(frame.columns)

    def select(names: Sequence[str]) -> Any:
        if hasattr(data, "iloc") and hasattr(data, "columns"):  # keeps names that are not text
            return data.iloc[:, [columns.index(name) for name in names]]
        return frame.select(list(names)).to_native()

    return Frame(
        columns,
        lambda name, categorical: read_series(name, frame.get_column(name), categorical),
        len(frame),
        str(frame.implementation).lower(),
        index=getattr(data, "index", None) if frame.implementation.is_pandas() else None,
        select=select,
    )


def _with_text_names(data: Any) -> Any:
    """Return a pandas frame or series with names that are text; in pandas they may be anything."""
    if hasattr(data, "set_axis") and hasattr(data, "columns"):
        names = [name if isinstance(name, str) else str(name) for name in data.columns]
        if duplicated := [name for name, count in Counter(names).items() if count > 1]:
            raise DataError(f"data must have distinct column names, got {format_value(duplicated[0])} twice")
        return data if names == list(data.columns) else data.set_axis(names, axis=1)
    if hasattr(data, "set_axis") and getattr(data, "name", None) is not None and not isinstance(data.name, str):
        return data.rename(str(data.name))
    return data


def _mapping(data: Mapping[Any, Any]) -> Frame:
    """Open a mapping of names to columns: series of any library, arrays, or lists of numbers and text."""
    import narwhals as nw

    columns = {
        str(name): nw.from_native(values, pass_through=True, allow_series=True, series_only=False)
        for name, values in data.items()
    }
    if len(columns) < len(data):
        raise DataError("data must have distinct column names, got one of them twice")

    def read(name: str, categorical: bool) -> Column:
        values = columns[name]
        return (read_series if isinstance(values, nw.Series) else read_values)(name, values, categorical)

    lengths = {_length(name, values): name for name, values in columns.items()}
    if len(lengths) > 1:
        different = ", ".join(f"{length} in {format_value(name)}" for length, name in lengths.items())
        raise DataError(f"data must hold columns of the same length, got {different}")
    return Frame(list(columns), read, next(iter(lengths), 0))


def _length(name: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise DataError(
            f"column {format_value(name)} must hold one value for each row, got {format_value(values)}"
        ) from None


def _transpose(rows: list[Any]) -> dict[Any, list[Any]]:
    """Turn rows that are dictionaries into columns; a value that a row does not have is missing."""
    if not all(isinstance(row, Mapping) for row in rows):
        raise DataError("data must hold a mapping for every row, got other values in some rows")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


# -------------------------------------------------------------------------------------------------------------- arrays


def _rows(data: Sequence[Any]) -> Frame:
    """Open a list of rows, or a list of values, which is one column."""
    if not any(isinstance(row, Iterable) and not isinstance(row, (str, bytes)) for row in data):
        return _mapping({"x0": data}) if data else _array(np.zeros((0, 1)))
    try:
        array = np.array(data)
    except ValueError:
        array = None
    if array is not None and array.dtype.kind in "biuf":
        return _array(array)
    if len({len(row) if isinstance(row, Sized) else -1 for row in data}) > 1:
        raise DataError("data must have rows of the same length, got rows of different lengths")
    return _mapping({f"x{i}": list(values) for i, values in enumerate(zip(*data, strict=True))})


def _as_array(data: Any) -> NDArray[Any]:
    if data is None or np.ndim(data) == 0:
        raise DataError(
            f"data must be a file, a frame, or an array with one or two dimensions, got {format_value(data)}"
        )
    return np.asarray(data)


def _array(data: NDArray[Any]) -> Frame:
    """Open the columns x0, x1, ... of an array; the fields of a structured array have names."""
    if data.dtype.names is not None and data.ndim == 1:
        return _mapping({name: data[name] for name in data.dtype.names})
    if data.ndim not in (1, 2) or (data.ndim == 2 and data.shape[1] == 0):
        raise DataError(f"data must have one or two dimensions and at least one column, got shape {data.shape}")
    if data.dtype.kind not in "biufMOUSm":
        raise DataError(f"data must hold numbers, text or times, got an array of {data.dtype}")
    X = data[:, np.newaxis] if data.ndim == 1 else data
    names = [f"x{i}" for i in range(X.shape[1])]
    positions = {name: i for i, name in enumerate(names)}
    return Frame(
        names,
        lambda name, categorical: read_values(name, X[:, positions[name]], categorical),
        len(X),
        select=lambda chosen: X[:, [positions[name] for name in chosen]],
    )


def _sparse(data: Any, beside: Any) -> Frame:
    matrix, names, notes = sparse.to_dense(data, beside)
    frame = _array(matrix)
    positions = {name: i for i, name in enumerate(names)}
    return frame._replace(
        names=names,
        read=lambda name, categorical: read_values(name, matrix[:, positions[name]], categorical),
        notes=notes,
        unused=frozenset(f"x{i}" for i in range(data.shape[1])) - set(names),
        select=lambda chosen: sparse.select(data, chosen),
    )
