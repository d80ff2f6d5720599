"""Read a user's table: numbers `X` and class labels `y`, or one clear sentence that says why not.

Nothing is guessed and nothing is repaired: a missing value, text among numbers, or a number that float64 cannot hold
is an error that names the data row (the first is 1) and the column. Text becomes numbers only where it is asked for.

Formats, by the end of the file name: `.csv`, `.tsv` (both also `.gz`), `.parquet`, and `.npz` with arrays `X` and `y`.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import re
import shlex
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import os

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".npz")
LARGEST = 1e150  # its square is still finite, and so is a sum of many such squares
WHOLE = 2**53  # float64 holds every whole number up to here
MAX_CATEGORIES = 1000
LONGEST = 16 << 20  # characters in a row of CSV
CELLS = 200_000  # of CSV that are held as text at a time

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_MISSING = re.compile(r"|na|n/a|[+-]?nan|null|none", re.IGNORECASE)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_ROW_INDEX = re.compile(r"|Unnamed: [0-9]+|__index_level_[0-9]+__")  # what pandas calls an index saved with the data

Batches = Generator[Any, None, None]


class Table(NamedTuple):
    """A table ready for a measure: `n x d` finite numbers, `n` labels, `d` names, and the file's name, printable."""

    X: NDArray[np.float64]
    y: list[object]
    features: list[str]
    name: str


class TableError(Exception):
    """The file cannot be opened, or what it holds is not a table that can be tested."""


class ColumnError(ValueError):
    """The request does not fit the file: no such column, two uses of one column, an unknown file type or encoding."""


def read(
    path: str | os.PathLike[str],
    *,
    label: str | None,
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    header: bool = True,
    encoding: str = "utf-8",
    max_rows: int = 100_000,
) -> Table:
    """Read the table in `path`: the column `label` holds the classes, every other column is a feature.

    Columns named in `categorical` are one-hot encoded, each value as it is written; those in `drop` are left out.
    `header` and `encoding` are for CSV and TSV: with `header=False` the columns are named `"1"`, `"2"`, ... In an NPZ
    file the columns of `X` have these names too, and `label` names the array of labels (`None` means `"y"`).

    CSV labels stay text, exactly as written. Reading stops after `max_rows`: memory is O(max_rows * d), however long
    the file. Raises `ColumnError` if the arguments do not fit the file, and `TableError` if the file is at fault.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "pets.csv")
    ...     _ = file.write_text("weight,coat,kind\\n4.5,red,cat\\n30,grey,dog\\n5,red,cat\\n")
    ...     table = read(file, label="kind", categorical=["coat"])
    >>> table.features, table.y
    (['weight', 'coat=red', 'coat=grey'], ['cat', 'dog', 'cat'])
    """
    name = _printable(Path(path).name)
    try:
        source = _open(Path(path), label, header, encoding, max_rows)
        X, features, y = _collect(source, categorical, drop, max_rows)
    except (TableError, ColumnError) as error:
        raise type(error)(f"{name}: {error}") from None
    except MemoryError:
        raise TableError(f"{name}: the table needs more memory than there is") from None
    except OSError as error:
        raise TableError(f"{name}: the file cannot be read: {_printable(error.strerror or str(error))}") from None
    return Table(X, y, features, name)


class _Source(NamedTuple):
    """An opened file: its columns with Arrow types, a way to iterate over some of them, the name of the labels."""

    schema: Any
    batches: Callable[[list[str]], Batches]
    label: str | None
    parse: bool = False  # is text allowed to be a number, as in CSV?


def _open(path: Path, label: str | None, header: bool, encoding: str, max_rows: int) -> _Source:
    """Check what can be checked from outside, then call the reader of this type of file."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise ColumnError(f"unknown type of file; the name must end in one of {', '.join(SUFFIXES)}")
    if "\0" in str(path):
        raise ColumnError("the path holds a NUL character, which no path may")
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise TableError("this is a directory or a device; a regular file is needed")
    if status.st_size == 0:
        raise TableError("the file is empty")
    if suffix == ".npz":
        return _npz(path, label or "y", max_rows)
    if suffix == ".parquet":
        return _parquet(path, label, max_rows)
    return _csv(_Dialect(path, "\t" if "tsv" in suffix else ",", header, encoding), label)


# ---------------------------------------------------------------------------------------------------------- sentences


def _printable(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _shown(value: object) -> str:
    """The value as it may be sent to a terminal: no control characters, at most 40 characters."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(_shown, names[:10])) + more


def _option(option: str, name: str) -> str:
    """An option as it is typed in a shell."""
    return f"{option} {shlex.quote(name) if name.isprintable() and len(name) <= 40 else _shown(name)}"


def _check_length(rows: int, max_rows: int) -> None:
    if rows > max_rows:
        law = "the time grows with the square of the number of rows; --max-rows N raises the limit"
        raise TableError(f"there are more than {max_rows} rows, the limit, and {law}")


def _refuse(row: int, name: str, value: object, among_numbers: bool = True) -> NoReturn:
    """Say what is wrong with this value: it is missing, not a number, not finite, or beyond what float64 can bear."""
    word = value.strip() if isinstance(value, str) else str(value)
    drop = f"leave it out with {_option('--drop', name)}"
    encode = f"name it with {_option('--categorical', name)} to one-hot encode it, or {drop}"
    if not among_numbers and word and value is not None:
        raise TableError(f"column {_shown(name)} holds text ({_shown(value)} in data row {row}); {encode}")
    if _MISSING.fullmatch(word):
        fault = f"the value is missing ({_shown(value)}); every value must be present, in every column that is used"
    elif _INFINITE.fullmatch(word):
        fault = f"{_shown(value)} is not finite; every number must be"
    elif not _NUMBER.fullmatch(word):
        fault = f"{_shown(value)} is not a number; correct it, or if the column is text, {encode}"
    elif abs(float(word)) > LARGEST:
        fault = f"{_shown(value)} is beyond {LARGEST:g}, where squared distances overflow; rescale the column"
    else:
        fault = f"{_shown(value)} is beyond 2**53, where float64 loses digits; rescale the column, or {drop}"
    raise TableError(f"data row {row}, column {_shown(name)}: {fault}")


# ------------------------------------------------------------------------------------------------------ which columns


def _choose(names: list[str], label: str | None, categorical: Sequence[str], drop: Sequence[str]) -> list[str]:
    """The features and, last, the label, after every name of the request was found and found to be used once."""
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise TableError(f"two columns are named {_shown(twice)}; names must differ")
    if label is None:
        raise ColumnError(f"the column of class labels must be named with --label; the columns are {_listed(names)}")
    _check_known("--label", [label], names)
    _check_known("--categorical", categorical, names)
    _check_known("--drop", drop, names)
    for name in (*categorical, *drop):
        if name == label or (name in categorical and name in drop):
            uses = "--label, --categorical and --drop"
            raise ColumnError(f"column {_shown(name)} is named by two of {uses}; at most one is allowed")
    left_out = {label, *drop}
    features = [name for name in names if name not in left_out]
    _check_features(features)
    return [*features, label]


def _check_known(option: str, wanted: Sequence[str], names: list[str]) -> None:
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names[:1000], n=1)
            hint = f"did you mean {_shown(near[0])}? " if near else ""
            raise ColumnError(f"{option} {_shown(name)} is not a column; {hint}the columns are {_listed(names)}")


def _check_features(features: list[str]) -> None:
    if not features:
        raise TableError("no feature column is left; at least one besides the label is needed")
    for name in filter(_ROW_INDEX.fullmatch, features):  # a row number is no feature: it always looks like a drift
        law = f"give it a name, or leave it out with {_option('--drop', name)}"
        raise TableError(f"column {_shown(name)} has no name of its own, as a saved row index has; {law}")


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_string, types.is_large_string, types.is_string_view, types.is_dictionary)
    return any(test(kind) for test in tests)


def _check_type(name: str, kind: Any, remedy: str) -> None:
    from pyarrow import types

    inner = kind.value_type if types.is_dictionary(kind) else kind
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    if not (_is_text(inner) or any(test(inner) for test in numeric)):
        law = f"only numbers, booleans and text are allowed: convert it, or {remedy}"
        raise TableError(f"column {_shown(name)} is of type {_shown(str(kind))}; {law}")


# --------------------------------------------------------------------------------------------------- columns of values


class _Numbers:
    """One numeric feature, batch after batch."""

    def __init__(self, name: str, parse: bool) -> None:
        self.name, self.parse = name, parse
        self.parts: list[NDArray[np.float64]] = []

    def extend(self, column: Any, start: int) -> None:
        """Take the rows after row `start`, or refuse the first that will not do."""
        text = _is_text(column.type)
        if text and not self.parse:
            _refuse(start + 1, self.name, column[0].as_py(), among_numbers=False)
        values = self._parsed(column, start) if text else self._typed(column, start)
        self._check(~(np.abs(values) <= LARGEST), column, start)  # the comparison is false for NaN
        self.parts.append(values)

    def names(self) -> list[str]:
        return [self.name]

    def fill(self, X: NDArray[np.float64]) -> None:
        X[:, 0] = np.concatenate(self.parts)

    def _check(self, bad: NDArray[np.bool_], column: Any, start: int, among_numbers: bool = True) -> None:
        if bad.any():
            at = int(bad.argmax())
            _refuse(start + at + 1, self.name, column[at].as_py(), among_numbers)

    def _typed(self, column: Any, start: int) -> NDArray[np.float64]:
        from pyarrow import types

        self._check(column.is_null().to_numpy(zero_copy_only=False), column, start)
        if types.is_decimal(column.type):
            return _to_floats(column.cast("string"))  # by way of text, since that is rounded correctly
        values = column.to_numpy(zero_copy_only=False)
        if types.is_integer(column.type):
            self._check((values > WHOLE) | (values < -WHOLE), column, start)
        return np.asarray(values, dtype=np.float64)

    def _parsed(self, column: Any, start: int) -> NDArray[np.float64]:
        from pyarrow import ArrowInvalid

        try:
            values = _to_floats(column)
        except ArrowInvalid:  # then some value is no number, unless pyarrow is stricter than Python
            texts = column.to_pylist()
            plain = np.array([_NUMBER.fullmatch(text.strip()) is not None for text in texts])
            self._check(~plain, column, start, among_numbers=start > 0 or bool(plain.any()))
            values = np.array([float(text) for text in texts])
        large = np.flatnonzero((np.abs(values) >= WHOLE) & (np.abs(values) <= LARGEST))
        for at in map(int, large):
            digits = column[at].as_py().strip().lstrip("+-0")
            if digits.isdecimal() and int(digits) > WHOLE:
                _refuse(start + at + 1, self.name, column[at].as_py())
        return values


def _to_floats(column: Any) -> NDArray[np.float64]:
    """Text to numbers, correctly rounded as by Python's `float`; blanks around a number are allowed."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid:
        numbers = compute.utf8_trim_whitespace(column).cast(pa.float64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


class _Categories:
    """One categorical feature: a column of 0 and 1 for each value, in order of first appearance."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: dict[object, int] = {}
        self.rows: list[int] = []

    def extend(self, column: Any, start: int) -> None:
        """Take the rows after row `start`."""
        values = _scalars(column, self.name, start)
        self.rows += [self.codes.setdefault(value, len(self.codes)) for value in values]
        if len(self.codes) > MAX_CATEGORIES:
            law = f"more than {MAX_CATEGORIES} categories, the limit; leave it out with {_option('--drop', self.name)}"
            raise TableError(f"column {_shown(self.name)} holds {law}")

    def names(self) -> list[str]:
        return [f"{self.name}={value}" for value in self.codes]

    def fill(self, X: NDArray[np.float64]) -> None:
        X[np.arange(len(self.rows)), self.rows] = 1


def _scalars(column: Any, name: str, start: int) -> list[object]:
    """Labels or categories as Python scalars. Only null, NaN and blanks are missing here: `NA` may well be a name."""
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    values: list[Any] = column.to_pylist()
    if types.is_floating(column.type) or types.is_decimal(column.type):
        values = [value if value is None else float(value) for value in values]
    for row, value in enumerate(values, start + 1):
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            _refuse(row, name, value)
    return values


# ---------------------------------------------------------------------------------------------------- the whole table


def _collect(
    source: _Source, categorical: Sequence[str], drop: Sequence[str], max_rows: int
) -> tuple[NDArray[np.float64], list[str], list[object]]:
    """Read all batches; every column sees its rows once and keeps only what it makes of them."""
    used = _choose(source.schema.names, source.label, categorical, drop)
    for name in used:
        remedy = "choose another --label" if name == source.label else f"leave it out with {_option('--drop', name)}"
        _check_type(name, source.schema.field(name).type, remedy)
    encoded = set(categorical)
    columns = [_Categories(name) if name in encoded else _Numbers(name, source.parse) for name in used[:-1]]
    y: list[object] = []
    with closing(source.batches(used)) as batches:
        for batch in batches:
            _check_length(len(y) + batch.num_rows, max_rows)
            if batch.num_rows:
                for column, values in zip(columns, batch.columns[:-1], strict=True):
                    column.extend(values, len(y))
                y += _scalars(batch.columns[-1], used[-1], len(y))
    _check_classes(y, used[-1])
    return *_assemble(columns, len(y)), y


def _check_classes(y: list[object], label: str) -> None:
    if len(y) < 2:
        raise TableError(f"there {'is only one data row' if y else 'are no data rows'}; at least two are needed")
    distinct = len(set(y))
    if distinct == 1:
        law = "the nearest-neighbour measure compares classes and needs at least two"
        raise TableError(f"label column {_shown(label)} holds one class only ({_shown(y[0])}); {law}")
    if distinct == len(y) or (len(y) >= 10 and distinct > 0.8 * len(y)):
        law = "it looks like a continuous number or an identifier, and class labels are needed"
        raise TableError(f"label column {_shown(label)} holds {distinct} different values in {len(y)} rows; {law}")


def _assemble(columns: Sequence[_Numbers | _Categories], rows: int) -> tuple[NDArray[np.float64], list[str]]:
    names = [column.names() for column in columns]
    X = np.zeros((rows, sum(map(len, names))))
    end = 0
    for column, own in zip(columns, names, strict=True):
        column.fill(X[:, end : end + len(own)])
        end += len(own)
    return X, [name for own in names for name in own]


# ---------------------------------------------------------------------------------------------------------------- CSV


class _Lines:
    """The lines of a text file, for `csv.reader`, with a limit to their length and our own words for bad bytes.

    pyarrow's CSV stream is not used: it reads ahead in a thread, which blocks the exit of a program that stops early.
    """

    def __init__(self, text: TextIO) -> None:
        self.text = text
        self.count = 0  # lines so far
        self.pending = 0  # characters since the last whole row

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._line()
        if not line:
            raise StopIteration
        self.count += 1
        self.pending += len(line)
        if self.pending > LONGEST:
            raise TableError(f"line {self.count}: the row is longer than {LONGEST >> 20} million characters, the limit")
        if "\0" in line:
            raise TableError(f"line {self.count}: there is a NUL character; if this is UTF-16, try --encoding utf-16")
        return line.removeprefix("\ufeff") if self.count == 1 else line

    def _line(self) -> str:
        try:
            line = self.text.readline(LONGEST + 1)
            line.encode()  # fails for half a surrogate pair, which some codecs let through
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise TableError("the gzip data is truncated or damaged, or not gzip at all") from None
        except UnicodeError as error:
            law = "name its encoding with --encoding, such as latin-1 or utf-16"
            raise TableError(f"the text is not {self.text.encoding}{self._place(error)}; {law}") from None
        return line

    def _place(self, error: UnicodeError) -> str:
        """Where the decoder failed: its input ends where the file has been read to, and begins in the present line."""
        if not isinstance(error, UnicodeDecodeError):
            return ""
        offset = self.text.buffer.tell() - len(error.object) + error.start
        line = self.count + 1 + error.object[: error.start].count(b"\n")
        return f" (byte 0x{error.object[error.start]:02x} at offset {offset}, line {line})"


class _Dialect(NamedTuple):
    path: Path
    delimiter: str
    header: bool
    encoding: str


def _csv(dialect: _Dialect, label: str | None) -> _Source:
    """Every column is text, and whether it holds numbers is decided when it is converted."""
    import pyarrow as pa

    with closing(_csv_rows(dialect)) as rows:
        first = next(rows, None)
    if first is None:
        raise TableError("the file is empty")
    names = first if dialect.header else [str(i + 1) for i in range(len(first))]
    if dialect.header:
        _check_header(names)

    def batches(used: list[str]) -> Batches:
        place = {name: i for i, name in enumerate(names)}
        with closing(_csv_rows(dialect)) as rows:
            checked = _csv_checked(rows, len(names), dialect.header)
            while part := list(islice(checked, max(1, CELLS // len(names)))):
                columns = list(zip(*part, strict=True))
                yield pa.RecordBatch.from_arrays([pa.array(columns[place[name]], pa.string()) for name in used], used)

    return _Source(pa.schema([(name, pa.string()) for name in names]), batches, label, parse=True)


def _check_header(names: list[str]) -> None:
    """Is the first line a header at all, and cut at the right places?"""
    if len(names) == 1 and ";" in names[0]:
        raise ColumnError("the fields seem to be separated by ';'; CSV needs commas, and TSV tabs")
    # numbered columns are what pandas makes of nameless ones
    numbered = [[str(i + start) for i in range(len(names))] for start in (0, 1)]
    if names not in numbered and all(_NUMBER.fullmatch(name.strip()) for name in names):
        raise ColumnError("the first line holds numbers only, so it is no header; add --no-header")


def _csv_rows(dialect: _Dialect) -> Generator[list[str], None, None]:
    """All rows, the header too, but for blank lines. One is read at a time, and is forgotten."""
    with _csv_text(dialect) as text:
        lines, begin = _Lines(text), 1
        try:
            for row in csv.reader(lines, delimiter=dialect.delimiter, strict=True):
                if row:
                    yield row
                lines.pending, begin = 0, lines.count + 1
        except csv.Error:
            law = f"and a field may have at most {csv.field_size_limit()} characters"
            raise TableError(
                f"line {begin}: a quotation mark must be closed, and doubled within quotes, {law}"
            ) from None


def _csv_text(dialect: _Dialect) -> TextIO:
    try:
        "a".encode(dialect.encoding)
    except (LookupError, ValueError):
        known = "utf-8, latin-1 and utf-16 are some that are known"
        raise ColumnError(f"unknown encoding {_shown(dialect.encoding)}; {known}") from None
    return io.TextIOWrapper(_binary(dialect.path), dialect.encoding, newline="")


def _binary(path: Path) -> Any:
    return gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb")


def _csv_checked(rows: Iterator[list[str]], width: int, header: bool) -> Iterator[list[str]]:
    """The data rows, each as long as the first."""
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
                yield batch.select(used)

    return _Source(schema, batches, label)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
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


def _npz(path: Path, label: str, max_rows: int) -> _Source:
    """The shapes are looked at first, so that an array with too many rows is never loaded."""
    import pyarrow as pa

    with _npz_errors():
        archive = zipfile.ZipFile(path)
    with archive:
        X, y = (_npz_load(archive, name) for name in _npz_names(archive, label, max_rows))
    names = [str(i + 1) for i in range(X.shape[1])]
    try:
        table = pa.RecordBatch.from_arrays([pa.array(values) for values in (*X.T, y)], [*names, label])
        table.validate(full=True)
    except (UnicodeError, pa.ArrowInvalid):
        raise TableError(f"the array {_shown(label)} holds text that is not Unicode") from None

    def batches(used: list[str]) -> Batches:
        yield table.select(used)

    return _Source(table.schema, batches, label)


@contextmanager
def _npz_errors() -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, ArithmeticError, RuntimeError):
        raise TableError("this is not an NPZ file that can be read: truncated, damaged or of another type") from None


def _npz_names(archive: zipfile.ZipFile, label: str, max_rows: int) -> tuple[str, str]:
    """The names of the two arrays, after their types and shapes were found to be right."""
    arrays = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if label not in arrays:
        raise ColumnError(f"there is no array {_shown(label)} of labels; --label may name any of {_listed(arrays)}")
    headers = {name: _npz_header(archive, name) for name in arrays}
    others = [name for name in arrays if name != label]
    tables = [name for name in others if name == "X"] or [name for name in others if len(headers[name][0]) == 2]
    if len(tables) != 1:
        raise TableError(f"one 2-D array of features is needed, best named X; the arrays are {_listed(arrays)}")
    rows = [_npz_check(tables[0], *headers[tables[0]], 2, "biuf"), _npz_check(label, *headers[label], 1, "biufU")]
    if rows[0] != rows[1]:
        raise TableError(f"there are {rows[0]} rows of features and {rows[1]} labels; they must be as many")
    _check_length(rows[0], max_rows)
    return tables[0], label


def _npz_check(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dimensions: int, kinds: str) -> int:
    """The number of rows."""
    if len(shape) != dimensions or dtype.kind not in kinds:
        allowed = f"must be {dimensions}-D and hold numbers or booleans{' or text' if 'U' in kinds else ''}"
        pickled = " (which only pickle could load, and pickle may run code)" if dtype.hasobject else ""
        raise TableError(f"array {_shown(name)} {allowed}, got {len(shape)}-D of {dtype.name}{pickled}")
    return shape[0]


def _npz_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with _npz_errors(), archive.open(name + ".npy") as member:
        shape, _, dtype = readers[np.lib.format.read_magic(member)](member)
        return shape, dtype


def _npz_load(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """The array, in a type that Arrow knows: native byte order, floats as float64."""
    with _npz_errors(), archive.open(name + ".npy") as member:
        values = np.lib.format.read_array(member, allow_pickle=False)
    with np.errstate(over="ignore"):  # a long double may become infinite, and is refused later, by its row
        return values.astype(np.float64 if values.dtype.kind == "f" else values.dtype.newbyteorder("="))
