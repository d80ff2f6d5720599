"""Read a table from a file into a Polars frame.

Polars parses the formats: of the readers compared, it is the fastest, needs no other package, and reports what it
cannot read. DuckDB needs pyarrow for frames, and its sniffer reads a table with rows of different lengths as one
column. This package adds what Polars does not do: it detects the dialect of a delimited file, and limits decompression.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable._extras import needed
from exchangeable.data.delimited import Options, check_distinct, read_delimited
from exchangeable.data.errors import ColumnError, DataError, check_known, naming
from exchangeable.data.opening import open_source, source_name
from exchangeable.validation import printable

if TYPE_CHECKING:
    import polars as pl

Progress = Callable[[str, int, int], None]


class FileContents(NamedTuple):
    """A table read from a file, the name of the file, notes on how it was read, and the columns that were not read.

    ``format`` is that of the file; the types of columns of "delimited" text are inferred from the text.
    """

    frame: pl.DataFrame
    name: str
    notes: tuple[str, ...] = ()
    unused: frozenset[str] = frozenset()
    format: str = ""


def read(
    source: Any,
    *,
    columns: str | Sequence[str] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Read a table from a file: CSV, TSV, Parquet, Arrow, JSON, NumPy or Excel, also compressed.

    `source` is a path, ``-`` for standard input, or an open file. `columns` names the columns to read, by default all;
    for delimited text and Parquet, memory is proportional to these columns, not to the file. The following arguments
    apply to delimited text, and are detected if they are not given: `delimiter`, `decimal` (``"."`` or ``","``),
    `header` (whether the first row holds the names) and `encoding`. Unusual formats are logged by the logger
    ``exchangeable``. A column gets a type if every cell fits it. `progress` is called with a description, the number of
    bytes read so far, and the total.

    >>> import io, exchangeable as ex
    >>> ex.read(io.StringIO("weight;kind\\n4,5;cat\\n30;dog\\n")).to_dicts()
    [{'weight': 4.5, 'kind': 'cat'}, {'weight': 30.0, 'kind': 'dog'}]
    """
    contents = read_file(
        source,
        columns=columns,
        delimiter=delimiter,
        decimal=decimal,
        header=header,
        encoding=encoding,
        progress=progress,
    )
    wanted = [columns] if isinstance(columns, str) else columns or ()
    with _prefix_errors(contents.name):
        check_known("columns", wanted, [*contents.frame.columns, *sorted(contents.unused)])
    for note in contents.notes:
        logging.getLogger("exchangeable").info("%s: %s", contents.name, note)
    return contents.frame


def read_file(
    source: Any,
    *,
    columns: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    delimiter: str | None = None,
    decimal: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    progress: Progress | None = None,
) -> FileContents:
    """Read a table as `read` does, without the columns in `drop`, and return the notes with it.

    Names in `columns` and `drop` that are not in the file are ignored: the caller knows which option to name. Raises
    `DataError` if the file is invalid, and `ColumnError` if the arguments do not fit the file.
    """
    from exchangeable.data import formats

    with needed("files", "reading files"):
        import polars as pl  # noqa: F401

    name = source_name(source)
    with _prefix_errors(name):
        options = Options(delimiter, decimal, header, encoding).check()
        choose = _Chooser(columns, drop)
        with open_source(source) as file:

            def report(done: int, size: int = file.size) -> None:
                if progress is not None:
                    progress(f"reading {name}", done, size)

            if file.format != "delimited" and options != Options():
                raise ColumnError("delimiter, decimal, header and encoding are for delimited text, such as CSV, only")
            if file.format == "delimited":
                frame, notes = read_delimited(file, choose, options, report)
            else:
                frame, notes = formats.READERS[file.format](file, choose)
            report(file.size)
    return FileContents(frame, name, (*file.notes, *notes), choose.unused, file.format)


class _Chooser:
    """A function that selects the wanted columns by name, and remembers the others."""

    def __init__(self, columns: str | Sequence[str] | None, drop: str | Sequence[str]) -> None:
        self.wanted = {columns} if isinstance(columns, str) else None if columns is None else set(columns)
        self.unwanted = {drop} if isinstance(drop, str) else set(drop)
        self.unused: frozenset[str] = frozenset()

    def __call__(self, names: list[str]) -> list[str]:
        check_distinct(names)
        chosen = [name for name in names if (self.wanted is None or name in self.wanted) and name not in self.unwanted]
        self.unused = frozenset(names) - set(chosen)
        return chosen


@contextmanager
def _prefix_errors(name: str) -> Iterator[None]:
    """Start every error message with the name of the file."""
    try:
        with naming(name):
            yield
    except MemoryError:
        raise DataError(f"{name}: the table does not fit in memory") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(
                f"{name}: there is no space left for a temporary copy; set TMPDIR to another folder"
            ) from None
        kind = next((kind for kind in (FileNotFoundError, PermissionError) if isinstance(error, kind)), OSError)
        raise kind(f"{name}: the file cannot be read: {printable(error.strerror or error)}") from None
