"""Readers of formats other than delimited text: Parquet, Arrow, JSON, NumPy and Excel."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.data import opening
from exchangeable.data.delimited import Choose, check_distinct, drop_unnamed, name_columns
from exchangeable.data.encoding import find_encoding, text_blocks
from exchangeable.data.errors import DataError, list_names
from exchangeable.data.opening import OpenFile, copy_limited, damaged
from exchangeable.data.text_columns import parse_other, parse_plain
from exchangeable.validation import format_value

if TYPE_CHECKING:
    import polars as pl

Contents = tuple["pl.DataFrame", list[str]]
GROWTH = 1000  # a table in a compressed format may be that many times as large as its file, or `opening.LARGE`


def _readable(kind: str) -> AbstractContextManager[None]:
    return damaged(
        f"the file cannot be read as {kind}: it is truncated, damaged or in another format, or it has columns that "
        "Polars cannot read"
    )


def _retyped(columns: list[pl.Series]) -> Contents:
    """Return a frame in which text has the types that it would have in a delimited file."""
    import polars as pl

    frame = pl.DataFrame(columns)
    frame = frame.with_columns(parse_plain(frame.select(pl.col(pl.String))).get_columns())
    typed = [parse_other(column, ".") for column in frame.get_columns()]
    return pl.DataFrame([column for column, _ in typed]), [note for _, note in typed if note]


def _parquet(file: OpenFile, choose: Choose) -> Contents:
    import polars as pl

    with _readable("Parquet"):
        names = list(pl.read_parquet_schema(file.content))
    wanted = choose(names)
    with _readable("Parquet"):
        file.content.seek(0)
        _check_growth(pl.scan_parquet(file.content), wanted, file)
        file.content.seek(0)
        return pl.read_parquet(file.content, columns=wanted), []


def _check_growth(table: pl.LazyFrame, wanted: list[str], file: OpenFile) -> None:
    """Reject a table that is much larger than its file, as equal values can be. They compress better than text."""
    import polars as pl

    size = 8 * len(wanted) * table.select(pl.len()).collect().item()
    if size > max(opening.LARGE, GROWTH * file.size):
        raise DataError(
            f"the table is larger than {opening.LARGE >> 20:,} MiB and more than {GROWTH:,} times as large as the "
            "file; if you trust the file, read fewer columns, or read it yourself and pass the frame"
        )


def _arrow(file: OpenFile, choose: Choose) -> Contents:
    import polars as pl

    with _readable("Arrow or Feather"):
        content = io.BytesIO(file.content.read())
        if content.getvalue()[:6] == b"ARROW1":
            _check_growth(pl.scan_ipc(content), list(pl.read_ipc_schema(content)), file)
            content.seek(0)
        frame = pl.read_ipc(content) if content.getvalue()[:6] == b"ARROW1" else pl.read_ipc_stream(content)
    return frame.select(choose(frame.columns)), []


# --------------------------------------------------------------------------------------------------------------- JSON


def _json(file: OpenFile, choose: Choose) -> Contents:
    """Read a list of records, or an object of columns; several values are read as JSON lines."""
    text = b"".join(text_blocks(file.content, find_encoding(file.content)))
    try:
        data = _load(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise DataError(f"line {error.lineno:,}: invalid JSON: {error.msg}") from None
        return _json_lines(file, choose)
    return _frame(_records(data) if isinstance(data, list) else _json_columns(data), choose)


def _json_lines(file: OpenFile, choose: Choose) -> Contents:
    return _frame(_records(_lines(file)), choose)


def _lines(file: OpenFile) -> Iterator[Any]:
    rest, line = b"", 0
    for block in (*text_blocks(file.content, find_encoding(file.content)), b"\n"):
        *lines, rest = (rest + block).split(b"\n")
        for text in lines:
            line += 1
            if text.strip():
                try:
                    yield _load(text)
                except json.JSONDecodeError as error:
                    raise DataError(f"line {line:,}: invalid JSON: {error.msg}") from None


def _load(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), object_pairs_hook=_distinct)
    except RecursionError:
        raise DataError("the JSON is nested too deeply") from None
    except (json.JSONDecodeError, DataError):
        raise
    except ValueError:  # an integer with too many digits
        raise DataError("the JSON contains an integer with too many digits") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, whose names must differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise DataError(f"an object of the JSON has the name {format_value(twice)} twice; the names must differ")
    return found


def _records(records: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the values of each name; None where a record lacks it."""
    columns: dict[str, list[Any]] = {}
    count = 0
    for count, record in enumerate(records, 1):
        if not isinstance(record, dict):
            rule = 'every record must be an object such as {"a": 1}'
            raise DataError(f"record {count:,}: {rule}, got {format_value(record)}")
        for name, value in record.items():
            column = columns.setdefault(name, [])
            column.extend([None] * (count - 1 - len(column)))
            column.append(value)
    for column in columns.values():
        column.extend([None] * (count - len(column)))
    return columns


def _numbered(data: Any) -> bool:
    return isinstance(data, dict) and list(data) == [str(i) for i in range(len(data))]


def _json_columns(data: Any) -> dict[str, list[Any]]:
    """Return the columns of an object of lists, or of objects with the same keys, as pandas writes them."""
    columns = list(data.values()) if isinstance(data, dict) else []
    if all(isinstance(column, dict) and not {*column} & {*data} for column in columns) and _numbered(data):
        return _records(columns)  # rows by their number
    if columns and all(isinstance(column, dict) and list(column) == list(columns[0]) for column in columns):
        columns = [list(column.values()) for column in columns]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns) or not columns:
        raise DataError("the JSON must be a list of records, or an object of columns: lists of the same length")
    return dict(zip(data, columns, strict=True))


def _frame(columns: dict[str, list[Any]], choose: Choose) -> Contents:
    if not columns:
        raise DataError("there are no columns")
    return _retyped([_series(name, columns[name]) for name in choose(list(columns))])


def _series(name: str, values: list[Any]) -> pl.Series:
    """Return a column of JSON values: numbers, booleans, text, or nested values as they are."""
    import polars as pl

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pl.Series(name, values, pl.Int64)
    if kinds <= {int, float} and float in kinds:
        return pl.Series(name, [None if value is None else _float(value) for value in values], pl.Float64)
    if kinds == {bool}:
        return pl.Series(name, values, pl.Boolean)
    if kinds & {list, dict}:
        try:
            return pl.Series(name, values)
        except Exception:  # noqa: BLE001  values of different types, for which Polars raises many errors
            return pl.Series(name, values, pl.Object)
    return pl.Series(name, [json.dumps(x) if type(x) in (bool, int, float) else x for x in values], pl.String)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


# -------------------------------------------------------------------------------------------------------------- NumPy


def _npz(file: OpenFile, choose: Choose) -> Contents:
    """Read the arrays of an archive with the same number of rows: 2-D ones as columns x0, x1, ..., 1-D ones as one."""
    arrays = {}
    with ExitStack() as stack, _readable("NPZ"):
        archive = stack.enter_context(zipfile.ZipFile(file.content))
        for member in archive.namelist():
            with archive.open(member) as content:
                copy = copy_limited(content, file.size, stack)
            arrays[member.removesuffix(".npy")] = _load_array(copy, member.removesuffix(".npy"))
    lengths = {name: array.shape[:1] for name, array in arrays.items()}
    if not arrays:
        raise DataError("there are no arrays")
    if len(set(lengths.values())) != 1:
        raise DataError(f"the arrays must have the same number of rows; the arrays are {list_names(list(arrays))}")
    columns: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        parts = _array_columns("x" if name == "X" or len(arrays) == 1 else name, array)
        check_distinct([*columns, *parts])
        columns |= parts
    return _array_frame(columns, choose)


def _npy(file: OpenFile, choose: Choose) -> Contents:
    with _readable("NPY"):
        array = _load_array(file.content, "")
    return _array_frame(_array_columns("x", array), choose)


def _load_array(content: IO[bytes], name: str) -> NDArray[Any]:
    """Load an array whose data has the size that its header states. Objects would need pickle, which may run code."""
    size = content.seek(0, os.SEEK_END)
    content.seek(0)
    version = np.lib.format.read_magic(content)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, dtype = read(content)
    if dtype.hasobject:
        which = f"the array {format_value(name)}" if name else "the array"
        raise DataError(f"{which} holds Python objects, which only pickle could load")
    if math.prod(shape) * dtype.itemsize != size - content.tell() or min(shape, default=0) < 0:
        raise ValueError
    content.seek(0)
    return np.lib.format.read_array(content, allow_pickle=False)


def _array_columns(name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    if array.dtype.names and array.ndim == 1:
        return {field: array[field] for field in array.dtype.names}
    if array.ndim == 1:
        return {"x0" if name == "x" else name: array}
    if array.ndim != 2:
        raise DataError(f"arrays must be 1-D or 2-D, got {array.ndim}-D")
    return {f"{name}{i}": array[:, i] for i in range(array.shape[1])}


def _array_frame(columns: dict[str, NDArray[Any]], choose: Choose) -> Contents:
    if not columns:
        raise DataError("there are no columns")
    return _retyped([_array_series(name, columns[name]) for name in choose(list(columns))])


def _array_series(name: str, values: NDArray[Any]) -> pl.Series:
    """Return a column of native byte order, with floats as float64."""
    import polars as pl

    kind = values.dtype.kind
    if kind not in "biufUSM":
        raise DataError(f"column {format_value(name)} must hold numbers, text or times, got {values.dtype.name}")
    if kind in "US":
        try:
            texts = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
            return pl.Series(name, texts, pl.String)
        except ValueError:  # half a surrogate pair, for example
            raise DataError(f"column {format_value(name)} contains text that is not valid Unicode") from None
    native: Any = {"f": "f8", "M": "datetime64[us]"}.get(kind) or values.dtype.newbyteorder("=")
    with np.errstate(over="ignore"):  # a long double may become infinite
        return pl.Series(name, np.ascontiguousarray(values.astype(native)))


# -------------------------------------------------------------------------------------------------------------- Excel


def _excel(file: OpenFile, choose: Choose) -> Contents:
    """Read the first sheet of a workbook. Columns of text are converted as in delimited text."""
    with needed("excel", "Excel files"):
        import fastexcel
    logging.getLogger("fastexcel").setLevel(logging.ERROR)  # it warns of empty columns
    with _readable("Excel"):
        _check_archive(file)
        book = fastexcel.read_excel(file.content.read())
        header = book.load_sheet(0, header_row=None, n_rows=1, dtypes="string").to_polars()
        frame = book.load_sheet(0, header_row=0, schema_sample_rows=None).to_polars() if header.height else header
    if not header.height:
        raise DataError(f"the sheet {format_value(book.sheet_names[0])} is empty")
    names = name_columns([(name or "").strip() for name in header.row(0)])
    wanted = set(choose([name for name in names if name]))
    columns = {i: column for i, column in enumerate(frame.get_columns()) if names[i] in wanted or not names[i]}
    notes = drop_unnamed(columns, names)
    if len(book.sheet_names) > 1:
        notes.append(f"read {format_value(book.sheet_names[0])}, the first of {len(book.sheet_names)} sheets")
    frame, more = _retyped([column.alias(names[i]) for i, column in columns.items()])
    return frame, notes + more


def _check_archive(file: OpenFile) -> None:
    """Reject a workbook whose parts are much larger than the file."""
    if zipfile.is_zipfile(file.content):
        with ExitStack() as stack, zipfile.ZipFile(file.content) as archive:
            for member in archive.namelist():
                with archive.open(member) as content:
                    copy_limited(content, file.size, stack)
    file.content.seek(0)


READERS: dict[str, Callable[[OpenFile, Choose], Contents]] = {
    "parquet": _parquet,
    "arrow": _arrow,
    "json": _json,
    "json lines": _json_lines,
    "npz": _npz,
    "npy": _npy,
    "excel": _excel,
}
