"""Reading of tables from files: numbers `X` and labels `y`.

Nothing is guessed or repaired: a missing value, text among numbers, or a number that float64 cannot hold is an error
that names the data row (the first is 1) and the column. Text becomes numbers only on request.

Formats, by the end of the file name: `.csv`, `.tsv` (both also `.gz`), `.npz` with arrays `X` and `y`, and `.parquet`,
which needs pyarrow.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import math
import re
import shlex
import stat
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.data.table import MAX_CATEGORIES, MAX_EXACT_INTEGER, Table, TableColumn
from exchangeable.martingale import LN10
from exchangeable.validation import LARGEST, NUMBER

if TYPE_CHECKING:
    import os

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz")
MAX_ROW_LENGTH = 16 << 20  # characters in a row of CSV
BATCH_CELLS = 200_000  # of CSV, read as text at a time

_MISSING = re.compile(r"|na|n/a|[+-]?nan|null|none", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_ROW_INDEX = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")  # what pandas calls an index saved with the data

Values = NDArray[Any] | Sequence[Any]  # a batch of a column: an array of numbers, or text, decimals and None
Batches = Generator[list[Values], None, None]
LabelKind = Literal["classes", "numbers", "none"]


class TableError(Exception):
    """The file cannot be opened, or its content is not a table that can be tested."""


class ColumnError(ValueError):
    """The request does not fit the file: no such column, two uses of one column, an unknown file type or encoding."""


def read_table(
    path: str | os.PathLike[str],
    *,
    label: str | None,
    labels: LabelKind = "classes",
    width: int | None = None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool = True,
    encoding: str = "utf-8",
    max_rows: int = 100_000,
) -> Table:
    """Read the table in `path`: the column `label` holds the labels, every other column is a feature.

    `labels` is the kind of labels: "classes", at least two, and fewer than there are rows; "numbers", with the same
    rules as features; or "none", with which the column `label`, if named, is ignored.
    Columns named in `categorical` are one-hot encoded, each value as it is written; those in `drop` are left out.
    `width` is the required number of feature columns. `header` and `encoding` are for CSV and TSV: with `header=False`
    the columns are named `"1"`, `"2"`, ... In an NPZ file the columns of `X` have these names too (a 1-D `X` is one
    column, allowed if `width` is 1), and `label` names the array of labels (`None` means `"y"`).

    CSV classes stay text, exactly as written. Reading stops after `max_rows`: memory is O(max_rows * d), however long
    the file. Raises `ColumnError` if the arguments do not fit the file, and `TableError` if the file is at fault.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "pets.csv")
    ...     _ = file.write_text("weight,coat,kind\\n4.5,red,cat\\n30,grey,dog\\n5,red,cat\\n")
    ...     table = read_table(file, label="kind", categorical=["coat"])
    >>> table.features, table.y
    (['weight', 'coat=grey', 'coat=red'], ['cat', 'dog', 'cat'])
    """
    name, wanted = _printable(Path(path).name), _Wanted(labels, width, categorical, drop)
    with _prefix_errors(name):
        source = _open(Path(path), label, header, encoding, max_rows, wanted)
        X, features, columns, y = _collect(source, wanted, max_rows)
    return Table(X, y, features, name, columns, None if y is None else _printable(str(source.label)))


def read_fleet(
    path: str | os.PathLike[str],
    *,
    stream: str = "stream",
    log_value: str | None = None,
    log10_value: str | None = None,
) -> dict[object, float]:
    """Read the streams of a fleet, one row each (CSV, TSV, Parquet): names, and natural logs of martingale values.

    The values are in the column `log_value` (natural logs) or `log10_value`; if neither is named, in the column
    `log_value` or `log10_martingale`, whichever there is. `-inf` is allowed. CSV names stay text, exactly as written.
    Memory is O(rows). Raises `ColumnError` and `TableError` as `read_table` does.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "fleet.csv")
    ...     _ = file.write_text("stream,log_value\\npump,7.5\\nfan,-inf\\n")
    ...     read_fleet(file)
    {'pump': 7.5, 'fan': -inf}
    """
    with _prefix_errors(_printable(Path(path).name)):
        if str(path).lower().endswith(".npz"):
            raise ColumnError("a fleet is a table with a column of names: CSV, TSV or Parquet, not NPZ")
        source = _open(Path(path), None, True, "utf-8", sys.maxsize)
        column, unit = _choose_logs(source.names, stream, log_value, log10_value)
        return _collect_fleet(source, stream, column, unit)


@contextmanager
def _prefix_errors(name: str) -> Iterator[None]:
    """Start every error message with the name of the file."""
    try:
        yield
    except (TableError, ColumnError) as error:
        raise type(error)(f"{name}: {error}") from None
    except MemoryError:
        raise TableError(f"{name}: the table does not fit in memory") from None
    except OSError as error:
        raise TableError(f"{name}: the file cannot be read: {_printable(error.strerror or str(error))}") from None


class _Wanted(NamedTuple):
    """What the caller wants: the kind of labels, the number of features, and special columns."""

    labels: LabelKind = "classes"
    width: int | None = None
    categorical: Sequence[str] = ()
    drop: Sequence[str] = ()


_PLAIN = _Wanted()


class _Source(NamedTuple):
    """An open file: its column names, a function that yields batches of some columns, and the name of the label."""

    names: list[str]
    batches: Callable[[list[str]], Batches]
    label: str | None
    parse: bool = False  # whether numbers are written as text, as in CSV
    types: Mapping[str, Any] = MappingProxyType({})  # Arrow types of the columns, if the file has types


def _open(
    path: Path, label: str | None, header: bool, encoding: str, max_rows: int, wanted: _Wanted = _PLAIN
) -> _Source:
    """Check the path and the file, then call the reader for this type of file."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise ColumnError(f"unknown type of file; the name must end in one of {', '.join(SUFFIXES)}")
    if "\0" in str(path):
        raise ColumnError("the path contains a NUL character, which is not allowed")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise TableError("this is a directory or a device; a regular file is needed")
    if status.st_size == 0:
        raise TableError("the file is empty")
    if suffix == ".npz":
        return _npz(path, label, wanted, max_rows)
    if suffix == ".parquet":
        return _parquet(path, label, max_rows)
    return _csv(_Dialect(path, "\t" if "tsv" in suffix else ",", header, encoding), label)


# ---------------------------------------------------------------------------------------------------------- sentences


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _format(value: object) -> str:
    """Format a value for a terminal: no control characters, at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(_format, names[:10])) + more


def _option(option: str, name: str) -> str:
    """Format an option as it is typed in a shell."""
    return f"{option} {shlex.quote(name) if name.isprintable() and len(name) <= 40 else _format(name)}"


def _check_length(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        rule = "the time of nearest-neighbour measures grows with the square of the number of rows"
        raise TableError(f"there are more than {max_rows} rows, the limit; --max-rows N raises it ({rule})")


def _reject(row: int, name: str, value: object, among_numbers: bool = True, label: bool = False) -> NoReturn:
    """Raise TableError for a value that is missing, not a number, not finite, or beyond what float64 can hold."""
    word = value.strip() if isinstance(value, str) else str(value)
    drop = f"leave it out with {_option('--drop', name)}"
    encode = f"name it with {_option('--categorical', name)} to one-hot encode it, or {drop}"
    if label:
        drop = "choose another --label"
        encode = f"{drop} that holds numbers, or for classes --measure nearest-neighbour"
    if not among_numbers and word and value is not None:
        raise TableError(f"column {_format(name)} holds text ({_format(value)} in data row {row}); {encode}")
    if _MISSING.fullmatch(word):
        fault = f"the value is missing ({_format(value)}); every value must be present, in every column that is used"
    elif _INFINITE.fullmatch(word):
        fault = f"{_format(value)} is not finite; every number must be"
    elif not NUMBER.fullmatch(word):
        fault = f"{_format(value)} is not a number; correct it, or if the column is text, {encode}"
    elif abs(float(word)) > LARGEST:
        fault = f"{_format(value)} is beyond {LARGEST:g}, where squared distances overflow; rescale the column"
    else:
        fault = f"{_format(value)} is beyond 2**53, where float64 loses digits; rescale the column, or {drop}"
    raise TableError(f"data row {row}, column {_format(name)}: {fault}")


# ------------------------------------------------------------------------------------------------------ which columns


UNLABELLED = "exchangeable test --measure nearest-distance needs no labels"
NAMELESS = {
    "classes": f"the column of class labels must be named with --label COLUMN ({UNLABELLED})",
    "numbers": "the column of numbers to be compared with the neighbours' must be named with --label COLUMN",
}


def _choose_features(names: list[str], label: str | None, wanted: _Wanted) -> list[str]:
    """Return the features, after checking that every requested name exists and is used once."""
    _check_distinct(names)
    if label is None and wanted.labels != "none":
        raise ColumnError(f"{NAMELESS[wanted.labels]}; the columns are {_list_names(names)}")
    _check_known("--label", [label] if label is not None else [], names)
    _check_known("--categorical", wanted.categorical, names)
    _check_known("--drop", wanted.drop, names)
    for name in (*wanted.categorical, *wanted.drop):
        if name == label or (name in wanted.categorical and name in wanted.drop):
            uses = "--label, --categorical and --drop"
            raise ColumnError(f"column {_format(name)} is named by two of {uses}; at most one is allowed")
    left_out = {label, *wanted.drop}
    features = [name for name in names if name not in left_out]
    _check_features(features, label, wanted.width)
    return features


def _check_distinct(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise TableError(f"two columns are named {_format(twice)}; names must differ")


def _check_known(option: str, wanted: Sequence[str], names: list[str]) -> None:
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names[:1000], n=1)
            hint = f"did you mean {_format(near[0])}? " if near else ""
            raise ColumnError(f"{option} {_format(name)} is not a column; {hint}the columns are {_list_names(names)}")


def _check_features(features: list[str], label: str | None, width: int | None) -> None:
    if not features:
        besides = " besides the label" if label is not None else ""
        raise TableError(f"no feature column is left; at least one{besides} is needed")
    for name in filter(_ROW_INDEX.fullmatch, features):  # a row number is not a feature: it always looks like a drift
        rule = f"give it a name, or leave it out with {_option('--drop', name)}"
        raise TableError(f"column {_format(name)} has no name, like a saved row index; {rule}")
    if width is not None and len(features) != width:
        rule = f"the measure needs exactly {width}, so leave the others out with --drop"
        raise ColumnError(f"there are {len(features)} feature columns ({_list_names(features)}); {rule}")


def _is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text or categories; the type is None if the file has no types."""
    if kind is None:
        return False
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_dictionary)
    return any(test(kind) for test in tests)


def _check_type(name: str, kind: Any, remedy: str) -> None:
    if kind is None:
        return
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not (_is_text(inner) or any(test(inner) for test in numeric)):
        rule = f"only numbers, booleans and text are allowed: convert it, or {remedy}"
        raise TableError(f"column {_format(name)} is of type {_format(str(kind))}; {rule}")


# --------------------------------------------------------------------------------------------------- columns of values


class _Numbers:
    """One numeric column, batch after batch."""

    def __init__(self, name: str, source: _Source, label: bool = False) -> None:
        self.name, self.parse, self.label = name, source.parse, label
        self.text = _is_text(source.types.get(name))
        self.parts: list[NDArray[np.float64]] = []

    def extend(self, column: Values, start: int) -> None:
        """Add the rows after row `start`, or reject the first invalid value."""
        if self.text:
            _reject(start + 1, self.name, column[0], among_numbers=False, label=self.label)
        if isinstance(column, np.ndarray):
            values = self._typed(column, start)
        elif self.parse:
            values = self._parsed(column, start)
        else:
            values = self._decimals(column, start)
        self._check(~(np.abs(values) <= LARGEST), column, start)  # the comparison is false for NaN
        self.parts.append(values)

    def names(self) -> list[str]:
        return [self.name]

    def fill(self, X: NDArray[np.float64]) -> None:
        X[:, 0] = self.values()

    def values(self) -> NDArray[np.float64]:
        return np.concatenate(self.parts)

    def _check(self, bad: NDArray[np.bool_], column: Values, start: int, among_numbers: bool = True) -> None:
        if bad.any():
            at = int(bad.argmax())
            _reject(start + at + 1, self.name, _plain(column[at]), among_numbers, self.label)

    def _typed(self, column: NDArray[Any], start: int) -> NDArray[np.float64]:
        if column.dtype.kind in "iu":
            self._check((column > MAX_EXACT_INTEGER) | (column < -MAX_EXACT_INTEGER), column, start)
        return np.asarray(column, dtype=np.float64)

    def _decimals(self, column: Sequence[Any], start: int) -> NDArray[np.float64]:
        self._check(np.array([value is None for value in column]), column, start)
        return np.array([float(value) for value in column])  # correctly rounded

    def _parsed(self, column: Sequence[str], start: int) -> NDArray[np.float64]:
        values = _to_floats(column)
        if values is None:  # some value is not a number, or is written in an unusual way
            plain = np.array([NUMBER.fullmatch(text.strip()) is not None for text in column])
            self._check(~plain, column, start, among_numbers=start > 0 or bool(plain.any()))
            values = np.array([float(text) for text in column])
        large = np.flatnonzero((np.abs(values) >= MAX_EXACT_INTEGER) & (np.abs(values) <= LARGEST))
        for at in map(int, large):
            digits = column[at].strip().lstrip("+-0")
            if digits.isdecimal() and int(digits) > MAX_EXACT_INTEGER:
                _reject(start + at + 1, self.name, column[at], label=self.label)
        return values


def _to_floats(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """Convert text to numbers; None if some of it is not a number, or has underscores or digits that are not ASCII."""
    joined = "".join(texts)
    if "_" in joined or not joined.isascii():
        return None
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None


def _plain(value: Any) -> object:
    return value.item() if isinstance(value, np.generic) else value


class _Categories:
    """One categorical feature: a column of 0 and 1 for each value, sorted by name.

    In order of appearance, distances would depend on the order of the rows in the last digit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: dict[object, int] = {}
        self.rows: list[int] = []

    def extend(self, column: Values, start: int) -> None:
        """Add the rows after row `start`."""
        values = _scalars(column, self.name, start)
        self.rows += [self.codes.setdefault(value, len(self.codes)) for value in values]
        if len(self.codes) > MAX_CATEGORIES:
            rule = f"more than {MAX_CATEGORIES} categories, the limit; leave it out with {_option('--drop', self.name)}"
            raise TableError(f"column {_format(self.name)} holds {rule}")

    def names(self) -> list[str]:
        return [f"{self.name}={value}" for value in self._ordered()]

    def fill(self, X: NDArray[np.float64]) -> None:
        column = np.empty(len(self.codes), np.intp)
        column[[self.codes[value] for value in self._ordered()]] = np.arange(len(self.codes))
        X[np.arange(len(self.rows)), column[self.rows]] = 1

    def _ordered(self) -> list[object]:
        return sorted(self.codes, key=lambda value: (type(value).__name__, str(value)))


class _Classes:
    """The class labels."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.y: list[object] = []

    def extend(self, column: Values, start: int) -> None:
        """Add the rows after row `start`."""
        self.y += _scalars(column, self.name, start)

    def values(self) -> list[object]:
        """Return all labels, after checking that they can be classes."""
        distinct = len(set(self.y))
        if distinct == 1:
            rule = f"classes are compared, so at least two are needed ({UNLABELLED})"
            raise TableError(f"label column {_format(self.name)} holds one class only ({_format(self.y[0])}); {rule}")
        if distinct == len(self.y) or (len(self.y) >= 10 and distinct > 0.8 * len(self.y)):
            rule = "it looks like a continuous number or an identifier, and class labels are needed"
            way = "for numbers, use exchangeable test --measure nearest-residual"
            content = f"{distinct} different values in {len(self.y)} rows"
            raise TableError(f"label column {_format(self.name)} holds {content}; {rule} ({way})")
        return self.y


def _scalars(column: Values, name: str, start: int) -> list[object]:
    """Return labels or categories as Python scalars. Only null, NaN and blanks are missing: `NA` may well be a name."""
    values: list[Any] = column.tolist() if isinstance(column, np.ndarray) else list(column)
    values = [
        float(value) + 0.0 if isinstance(value, (float, Decimal)) else value for value in values
    ]  # turns -0.0 into 0.0
    for row, value in enumerate(values, start + 1):
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            _reject(row, name, value)
    return values


# ---------------------------------------------------------------------------------------------------- the full table


def _collect(
    source: _Source, wanted: _Wanted, max_rows: int
) -> tuple[NDArray[np.float64], list[str], list[TableColumn], list[object] | NDArray[np.float64] | None]:
    """Read all batches and return the features, their names, their columns and the labels."""
    features = _choose_features(source.names, source.label, wanted)
    encoded = set(wanted.categorical)
    columns = [_Categories(name) if name in encoded else _Numbers(name, source) for name in features]
    target = _target(source, wanted.labels)
    every = [*columns, target] if target else columns
    for column in every:
        remedy = "choose another --label" if column is target else f"leave it out with {_option('--drop', column.name)}"
        _check_type(column.name, source.types.get(column.name), remedy)
    rows = _fill(every, source, max_rows)
    y = target.values() if target else None
    return *_assemble(columns, rows), y


def _target(source: _Source, labels: LabelKind) -> _Classes | _Numbers | None:
    """Return the column that collects the labels; None without labels."""
    if labels == "none" or source.label is None:
        return None
    return _Classes(source.label) if labels == "classes" else _Numbers(source.label, source, label=True)


def _fill(columns: Sequence[_Numbers | _Categories | _Classes], source: _Source, max_rows: int) -> int:
    """Pass every batch to the columns, and return the number of rows."""
    rows = 0
    with closing(source.batches([column.name for column in columns])) as batches:
        for batch in batches:
            count = len(batch[0])
            _check_length(rows + count, max_rows)
            if count:
                for column, values in zip(columns, batch, strict=True):
                    column.extend(values, rows)
            rows += count
    if rows < 2:
        raise TableError(f"there {'is only one data row' if rows else 'are no data rows'}; at least two are needed")
    return rows


def _assemble(
    columns: Sequence[_Numbers | _Categories], rows: int
) -> tuple[NDArray[np.float64], list[str], list[TableColumn]]:
    names = [column.names() for column in columns]
    X = np.zeros((rows, sum(map(len, names))))
    table_columns: list[TableColumn] = []
    end = 0
    for column, features in zip(columns, names, strict=True):
        start, end = end, end + len(features)
        column.fill(X[:, start:end])
        table_columns.append(TableColumn(column.name, start, end, isinstance(column, _Categories)))
    return X, [name for features in names for name in features], table_columns


# ---------------------------------------------------------------------------------------------------------- the fleet


def _choose_logs(names: list[str], stream: str, natural: str | None, decimal: str | None) -> tuple[str, float]:
    """Return the column of log values, and the factor that converts it to natural logs."""
    _check_distinct(names)
    _check_known("--stream", [stream], names)
    units = {"--log-value": (natural, 1.0), "--log10-value": (decimal, LN10)}
    choices = [(option, name, unit) for option, (name, unit) in units.items() if name is not None]
    if not choices:
        usual = (("--log-value", "log_value", 1.0), ("--log10-value", "log10_martingale", LN10))
        choices = [choice for choice in usual if choice[1] in names]
    if len(choices) != 1:
        rule = "one column of log values must be named with --log-value (natural logs) or --log10-value"
        raise ColumnError(f"{rule}, got {'both' if choices else 'neither'}; the columns are {_list_names(names)}")
    option, name, unit = choices[0]
    _check_known(option, [name], names)
    if name == stream:
        raise ColumnError(f"column {_format(name)} is named by both --stream and {option}; use two columns")
    return name, unit


def _collect_fleet(source: _Source, stream: str, column: str, unit: float) -> dict[object, float]:
    """Return the streams in the order of the file; each may occur once."""
    for used in (stream, column):
        _check_type(used, source.types.get(used), "choose another column")
    _check_logs(column, source.types.get(column))
    fleet: dict[object, float] = {}
    with closing(source.batches([stream, column])) as batches:
        for batch in batches:
            names = _scalars(batch[0], stream, len(fleet))
            values = _logs(batch[1], unit, column, len(fleet))
            for name, value in zip(names, values.tolist(), strict=True):
                if name in fleet:
                    rule = "each stream must have one row, with its current value: the last row of a longer history"
                    raise TableError(f"data row {len(fleet) + 1}: stream {_format(name)} occurs twice; {rule}")
                fleet[name] = value
    if not fleet:
        raise TableError("there are no data rows; at least one stream is needed")
    return fleet


def _check_logs(name: str, kind: Any) -> None:
    if _is_text(kind) or str(kind) == "bool":
        raise TableError(f"column {_format(name)} must hold numbers, got type {_format(str(kind))}")


def _logs(column: Values, unit: float, name: str, start: int) -> NDArray[np.float64]:
    """Convert to natural logs, which must be numbers below infinity, or -inf."""
    if isinstance(column, np.ndarray):
        values = column.astype(np.float64)
    else:
        texts = all(isinstance(value, str) for value in column)
        parsed = _to_floats(column) if texts else None
        values = np.array([_log(str(value)) for value in column]) if parsed is None else parsed
    with np.errstate(over="ignore"):
        values = unit * values
    for at in map(int, np.flatnonzero(~(values < math.inf))[:1]):  # the comparison is false for NaN
        rule = "it must be a number below infinity, or -inf"
        raise TableError(f"data row {start + at + 1}, column {_format(name)}: {_format(_plain(column[at]))}; {rule}")
    return values


def _log(text: str) -> float:
    """Parse a number; NaN for other text."""
    word = text.strip()
    return float(word) if NUMBER.fullmatch(word) or _INFINITE.fullmatch(word) else math.nan


# ---------------------------------------------------------------------------------------------------------------- CSV


class _Lines:
    """The lines of a text file, for `csv.reader`, with a limit to their length and clear errors for invalid bytes.

    pyarrow's CSV stream is not used: it reads ahead in a thread, which blocks the exit of a program that stops early.
    """

    def __init__(self, text: TextIO) -> None:
        self.text = text
        self.count = 0  # lines so far
        self.pending = 0  # characters since the last complete row

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._line()
        if not line:
            raise StopIteration
        self.count += 1
        self.pending += len(line)
        if self.pending > MAX_ROW_LENGTH:
            raise TableError(
                f"line {self.count}: the row is longer than {MAX_ROW_LENGTH >> 20} million characters, the limit"
            )
        if "\0" in line:
            raise TableError(f"line {self.count}: there is a NUL character; if this is UTF-16, try --encoding utf-16")
        return line.removeprefix("\ufeff") if self.count == 1 else line

    def _line(self) -> str:
        try:
            line = self.text.readline(MAX_ROW_LENGTH + 1)
            line.encode()  # fails for half a surrogate pair, which some codecs accept
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise TableError("the gzip data is truncated or damaged, or not gzip at all") from None
        except UnicodeError as error:
            rule = "name its encoding with --encoding, such as latin-1 or utf-16"
            raise TableError(f"the text is not {self.text.encoding}{self._position(error)}; {rule}") from None
        return line

    def _position(self, error: UnicodeError) -> str:
        """Describe where decoding failed. The input of the decoder ends at the current position of the file."""
        if not isinstance(error, UnicodeDecodeError):
            return ""
        offset = self.text.buffer.tell() - len(error.object) + error.start
        line = self.count + 1 + error.object[: error.start].count(b"\n")
        return f" (byte 0x{error.object[error.start]:02x} at offset {offset}, line {line})"


class _Dialect(NamedTuple):
    """A CSV or TSV file, and how it is written."""

    path: Path
    delimiter: str
    header: bool
    encoding: str


def _csv(dialect: _Dialect, label: str | None) -> _Source:
    """Open a CSV file. Every column is text; it is converted to numbers later."""
    with closing(_csv_rows(dialect)) as rows:
        first = next(rows, None)
    if first is None:
        raise TableError("the file is empty")
    names = first if dialect.header else [str(i + 1) for i in range(len(first))]
    if dialect.header:
        _check_header(names)

    def batches(used: list[str]) -> Batches:
        position = {name: i for i, name in enumerate(names)}
        with closing(_csv_rows(dialect)) as rows:
            checked = _csv_checked(rows, len(names), dialect.header)
            while part := list(islice(checked, max(1, BATCH_CELLS // len(names)))):
                columns = list(zip(*part, strict=True))
                yield [columns[position[name]] for name in used]

    return _Source(names, batches, label, parse=True)


def _check_header(names: list[str]) -> None:
    """Check that the first line is a header, with the right separator."""
    if len(names) == 1 and ";" in names[0]:
        raise ColumnError("the fields seem to be separated by ';'; CSV needs commas, and TSV tabs")
    # pandas numbers columns that have no name
    numbered = [[str(i + start) for i in range(len(names))] for start in (0, 1)]
    if names not in numbered and all(NUMBER.fullmatch(name.strip()) for name in names):
        raise ColumnError("the first line holds only numbers, so it is not a header; add --no-header")


def _csv_rows(dialect: _Dialect) -> Generator[list[str], None, None]:
    """Yield all rows including the header, without blank lines."""
    with _csv_text(dialect) as text:
        lines, first_line = _Lines(text), 1
        try:
            for row in csv.reader(lines, delimiter=dialect.delimiter, strict=True):
                if row:
                    yield row
                lines.pending, first_line = 0, lines.count + 1
        except csv.Error:
            rule = f"and a field may have at most {csv.field_size_limit()} characters"
            raise TableError(
                f"line {first_line}: a quotation mark must be closed, and doubled within quotes, {rule}"
            ) from None


def _csv_text(dialect: _Dialect) -> TextIO:
    try:
        "a".encode(dialect.encoding)
    except (LookupError, ValueError):
        known = "utf-8, latin-1 and utf-16 are known, among others"
        raise ColumnError(f"unknown encoding {_format(dialect.encoding)}; {known}") from None
    return io.TextIOWrapper(_open_binary(dialect.path), dialect.encoding, newline="")


def _open_binary(path: Path) -> Any:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def _csv_checked(rows: Iterator[list[str]], width: int, header: bool) -> Iterator[list[str]]:
    """Yield the data rows; each must be as long as the first."""
    for number, row in enumerate(rows, 1 - header):
        if len(row) != width:
            first = "header" if header else "first row"
            raise TableError(f"data row {number}: expected {width} columns as in the {first}, got {len(row)}")
        if number > 0:
            yield row


# ---------------------------------------------------------------------------------------------------- Parquet and NPZ


def _parquet(path: Path, label: str | None, max_rows: int) -> _Source:
    with _parquet_file(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    _check_length(rows, max_rows)

    def batches(used: list[str]) -> Batches:
        with _parquet_file(path) as file:
            for batch in file.iter_batches(batch_size=8192, columns=used, use_threads=False):
                batch.validate(full=True)
                yield [_from_arrow(batch.column(name)) for name in used]

    return _Source(schema.names, batches, label, types=dict(zip(schema.names, schema.types, strict=True)))


def _from_arrow(column: Any) -> Values:
    """Convert an Arrow column to an array if it holds numbers, otherwise to a list."""
    from pyarrow import types

    numeric = any(test(column.type) for test in (types.is_integer, types.is_floating, types.is_boolean))
    if numeric and not column.null_count:
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    return list(column.to_pylist())


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    with needed("files", "Parquet"):
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

    with path.open("rb") as raw:
        try:
            yield ParquetFile(raw, pre_buffer=False)
        except MemoryError:
            raise
        except (ArrowException, OSError, UnicodeError):
            fault = "truncated, damaged or of another type"
            raise TableError(f"this is not a Parquet file that can be read: {fault}") from None


def _npz(path: Path, label: str | None, wanted: _Wanted, max_rows: int) -> _Source:
    """Open an NPZ file. Shapes are checked first, so that an array with too many rows is never loaded."""
    label = "y" if label is None and wanted.labels != "none" else label
    with _npz_errors():
        archive = zipfile.ZipFile(path)
    with archive:
        X, *y = (_npz_load(archive, name) for name in _npz_names(archive, label, wanted, max_rows))
    X = X.reshape(len(X), -1) if X.ndim == 1 else X
    target = [label] if label is not None and y else []
    names = [*(str(i + 1) for i in range(X.shape[1])), *target]
    columns: list[Values] = [*X.T, *(_npz_labels(str(label), values) for values in y)]

    def batches(used: list[str]) -> Batches:
        yield [columns[names.index(name)] for name in used]

    return _Source(names, batches, label if target else None)


def _npz_labels(name: str, y: NDArray[Any]) -> Values:
    if y.dtype.kind != "U":
        return y
    try:
        texts: list[str] = y.tolist()
        "".join(texts).encode()
    except (UnicodeError, ValueError):  # half a surrogate pair, or beyond all characters
        raise TableError(f"the array {_format(name)} holds text that is not Unicode") from None
    return texts


@contextmanager
def _npz_errors() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, ArithmeticError, RuntimeError):
        raise TableError("this is not an NPZ file that can be read: truncated, damaged or of another type") from None


def _npz_names(archive: zipfile.ZipFile, label: str | None, wanted: _Wanted, max_rows: int) -> list[str]:
    """Return the names of the arrays to load, features and labels, after checking types and shapes."""
    arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if label is not None and label not in arrays:
        way = f" ({UNLABELLED})" if wanted.labels == "classes" else ""
        raise ColumnError(
            f"there is no array {_format(label)} of labels{way}; --label may name any of {_list_names(arrays)}"
        )
    headers = {name: _npz_header(archive, name) for name in arrays}
    others = [name for name in arrays if name != label]
    table = _npz_table(others, headers, "12" if wanted.width == 1 else "2")
    rows = _npz_check(table, *headers[table], "12" if wanted.width == 1 else "2", "biuf")
    _check_length(rows, max_rows)
    if label is None or wanted.labels == "none":
        return [table]
    count = _npz_check(label, *headers[label], "1", "biufU" if wanted.labels == "classes" else "biuf")
    if rows != count:
        raise TableError(f"there are {rows} rows of features and {count} labels; the numbers must be equal")
    return [table, label]


def _npz_table(arrays: list[str], headers: dict[str, Any], dimensions: str) -> str:
    """Return the name of the array of features: X, or the only array with the right number of dimensions."""
    candidates = [name for name in arrays if name == "X"]
    candidates = candidates or [name for name in arrays if str(len(headers[name][0])) in dimensions]
    if len(candidates) != 1:
        rule = f"one {_dimensions(dimensions)} array of features is needed, best named X"
        raise TableError(f"{rule}; the arrays are {_list_names(list(headers))}")
    return candidates[0]


def _dimensions(allowed: str) -> str:
    return " or ".join(f"{digit}-D" for digit in allowed)


def _npz_check(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dimensions: str, kinds: str) -> int:
    """Return the number of rows; `dimensions` holds the allowed digits, `kinds` the letters of allowed types."""
    if str(len(shape)) not in dimensions or dtype.kind not in kinds:
        allowed = f"must be {_dimensions(dimensions)} and hold numbers or booleans{' or text' if 'U' in kinds else ''}"
        pickled = " (which only pickle could load, and pickle may run code)" if dtype.hasobject else ""
        raise TableError(f"array {_format(name)} {allowed}, got {len(shape)}-D of {dtype.name}{pickled}")
    return shape[0]


def _npz_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with _npz_errors(), archive.open(name + ".npy") as member:
        shape, _, dtype = readers[np.lib.format.read_magic(member)](member)
        return shape, dtype


def _npz_load(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Load an array, in native byte order, floats as float64."""
    with _npz_errors(), archive.open(name + ".npy") as member:
        values = np.lib.format.read_array(member, allow_pickle=False)
    with np.errstate(over="ignore"):  # a long double may become infinite; it is rejected later
        return values.astype(np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("="))
