"""Read delimited text (CSV, TSV) with Polars, in chunks of complete rows.

A file is not read in one call, for four reasons. Memory should be proportional to the wanted columns only. Every row
must be checked: Polars pads short rows, and ignores fields beyond the wanted columns. Any encoding must be readable.
And the types must be inferred from all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from exchangeable.data.dialect import DELIMITERS, ONE_COLUMN, Dialect, find_dialect, sample_rows
from exchangeable.data.encoding import find_encoding, text_blocks
from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.opening import OpenFile
from exchangeable.data.rows import LONGEST, Chunk, chunks, too_long
from exchangeable.data.text_columns import MISSING, has_decimal_comma, parse_other, parse_plain
from exchangeable.validation import format_value

if TYPE_CHECKING:
    import polars as pl

SAMPLE = 1 << 18  # bytes from which the dialect is detected, or one row if it is longer
INDEX = "Unnamed: 0"  # the name that pandas gives to the column of a saved index

Choose = Callable[[list[str]], list[str]]


class Options(NamedTuple):
    """The format of a delimited file as the user specifies it; None is detected."""

    delimiter: str | None = None
    decimal: str | None = None
    header: bool | None = None
    encoding: str | None = None

    def check(self) -> Options:
        """Return the validated options; raise ColumnError if one of them is invalid."""
        delimiter = "\t" if self.delimiter == "\\t" else self.delimiter
        if delimiter is not None and (
            not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in "\0\n\r\"'"
        ):
            allowed = "one ASCII character other than a quotation mark or a line break"
            raise ColumnError(f"delimiter must be {allowed}, got {format_value(delimiter)}")
        if self.decimal not in (None, ".", ","):
            raise ColumnError(f"decimal must be '.' or ',', got {format_value(self.decimal)}")
        if delimiter is not None and delimiter == self.decimal:
            raise ColumnError(f"delimiter and decimal must differ, got {format_value(delimiter)} for both")
        return self._replace(delimiter=delimiter)


class _Source(NamedTuple):
    """A delimited file whose dialect and encoding are known."""

    file: OpenFile
    sample: str
    dialect: Dialect
    encoding: str
    progress: Callable[[int], None]  # called with the number of bytes read so far


def read_delimited(
    file: OpenFile, choose: Choose, options: Options, progress: Callable[[int], None]
) -> tuple[pl.DataFrame, list[str]]:
    """Read the columns that `choose` selects by name; return them, and notes on how the file was read."""
    import polars as pl

    encoding = find_encoding(file.content, options.encoding)
    sample = _sample(file, encoding)
    dialect = find_dialect(sample, file.suffix, options.delimiter, options.header)
    source = _Source(file, sample, dialect, encoding, progress)
    names = name_columns(dialect.names)
    wanted = set(choose([name for name in names if name]))
    columns = _read(source, [i for i, name in enumerate(names) if name in wanted or not name], ".")
    decimal = options.decimal or _find_decimal(source, list(columns.values()))
    if decimal == ",":
        columns = _read(source, list(columns), ",")
    notes = [*_describe(source, options, decimal), *drop_unnamed(columns, names)]
    typed = [parse_other(column.alias(names[i]), decimal) for i, column in columns.items()]
    return pl.DataFrame([column for column, _ in typed]), [*notes, *(note for _, note in typed if note)]


def name_columns(names: list[str]) -> list[str]:
    """Return the names of the columns, which must differ; a first column without a name is a saved index."""
    if len(names) > 1 and not names[0]:
        names = [f"{INDEX}.1" if INDEX in names else INDEX, *names[1:]]
    check_distinct(names)
    return names


def check_distinct(names: Sequence[str]) -> None:
    """Raise DataError if two columns have the same name."""
    seen: set[str] = set()
    for name in filter(None, names):
        if name in seen:
            raise DataError(f"two columns are named {format_value(name)}; the names must differ")
        seen.add(name)


def _sample(file: OpenFile, encoding: str) -> str:
    """Return complete lines from the start of the text: as many as fit into SAMPLE bytes, at least one."""
    text, end = b"", 0
    for block in text_blocks(file.content, encoding):
        text += block
        end = text.find(b"\n", len(text) - len(text.lstrip(b"\n"))) + 1  # of the first line that is not empty
        if (end and len(text) > SAMPLE) or len(text) > LONGEST:
            break
    if not end and len(text) > LONGEST:
        raise DataError(too_long(1))
    if len(text) > max(SAMPLE, end):
        text = text[: max(end, text.rfind(b"\n", 0, SAMPLE) + 1)]
    return text.decode()


def _read(source: _Source, columns: Sequence[int], decimal: str) -> dict[int, pl.Series]:
    """Return columns by their position, with their types.

    Each chunk is converted on its own, which saves memory. Columns of which only some chunks can be converted are read
    again as text and converted as a whole.
    """
    import polars as pl

    if not columns:
        return {}
    parts: dict[int, list[pl.Series]] = {i: [] for i in columns}
    for frame in _frames(source, columns):
        parsed = parse_plain(frame, decimal)
        for i in columns:
            parts[i].append(parsed[_key(i)])
    joined = {i: _join(parts.pop(i)) for i in columns}
    again = [i for i, column in joined.items() if column is None]
    if again:
        whole = parse_plain(pl.concat(_frames(source, again)), decimal)
        joined.update({i: whole[_key(i)] for i in again})
    return {i: column for i, column in joined.items() if column is not None}


def _join(parts: list[pl.Series]) -> pl.Series | None:
    """Concatenate the chunks of a column; None if their types do not agree."""
    import polars as pl

    kinds = {part.dtype for part in parts if part.null_count() < part.len()} or {pl.String()}
    if kinds == {pl.Int64(), pl.Float64()}:
        kinds = {pl.Float64()}
    if len(kinds) > 1:
        return None
    kind = kinds.pop()
    return pl.concat([pl.Series(dtype=kind), *(part.cast(kind) for part in parts)])


def _frames(source: _Source, columns: Sequence[int]) -> Iterator[pl.DataFrame]:
    """Yield the wanted columns of each chunk as text, with missing values; progress is reported."""
    blocks = text_blocks(source.file.content, source.encoding)
    for chunk in chunks(blocks, source.dialect):
        source.progress(source.file.content.tell())
        if chunk.rows:
            yield _parse(chunk, source.dialect, [_key(i) for i in columns])


def _key(i: int) -> str:
    """Return the name of a column in a chunk: Polars requires such names if there is no header."""
    return f"column_{i + 1}"


def _parse(chunk: Chunk, dialect: Dialect, columns: list[str]) -> pl.DataFrame:
    import polars as pl

    frame = pl.read_csv(
        chunk.text,
        has_header=False,
        schema={_key(i): pl.String for i in range(len(dialect.names))},
        columns=columns,
        separator=dialect.delimiter,
        quote_char=dialect.quote if dialect.quote.encode() in chunk.text else None,
        null_values=list(MISSING),
    )
    if frame.height != chunk.rows:
        raise DataError(f"the rows are ambiguous: expected {chunk.rows:,}, but Polars found {frame.height:,}")
    return frame


def _find_decimal(source: _Source, columns: Sequence[pl.Series]) -> str:
    """Return the decimal mark of the whole file, even if only some of its columns are wanted.

    It is a comma if some columns are numbers only with a decimal comma, and none only with a point.
    """
    import polars as pl

    dialect = source.dialect
    rows = sample_rows(source.sample, dialect.delimiter, dialect.quote, dialect.blanks)[
        dialect.above + dialect.header :
    ]
    sampled = [
        pl.Series([cell for cell in cells if cell.strip() not in MISSING], dtype=pl.String)
        for cells in zip(*rows, strict=False)
        if any("," in cell for cell in cells)
    ]
    texts = [*sampled, *(column for column in columns if column.dtype == pl.String)]
    if not any(has_decimal_comma(text, dialect.delimiter != ",") for text in texts):
        return "."
    everything = range(len(dialect.names))
    with_point = _read(source, everything, ".")
    if not any(
        column.dtype == pl.String and has_decimal_comma(column, dialect.delimiter != ",")
        for column in with_point.values()
    ):
        return "."
    with_comma = {i: parse_other(column, ",").column.dtype for i, column in _read(source, everything, ",").items()}
    contradicts = any(column.dtype == pl.Float64 and with_comma[i] == pl.String for i, column in with_point.items())
    return "." if contradicts else ","


def drop_unnamed(columns: dict[int, pl.Series], names: Sequence[str]) -> list[str]:
    """Remove the columns that have neither a name nor values, and return a note about them."""
    unnamed = [i for i in columns if not names[i]]
    for i in unnamed:
        if columns.pop(i).count():
            raise DataError(f"column {i + 1} has no name; give it one in the header")
    return [f"left out {len(unnamed)} empty column{'s' * (len(unnamed) > 1)} without a name"] if unnamed else []


def _describe(source: _Source, options: Options, decimal: str) -> list[str]:
    """Describe what was detected about the file, where it differs from the usual format."""
    dialect, found = source.dialect, []
    expected = "\t" if source.file.suffix in (".tsv", ".tab") else ","
    if options.delimiter is None and dialect.delimiter not in (expected, ONE_COLUMN):
        found.append(f"delimiter {DELIMITERS.get(dialect.delimiter, 'space')}")
    if options.decimal is None and decimal == ",":
        found.append("decimal comma")
    if dialect.quote == "'":
        found.append("single quotation marks")
    if options.encoding is None and source.encoding != "utf-8":
        found.append(f"encoding {source.encoding}")
    if options.header is None and not dialect.header:
        found.append("no header (the columns are named '1', '2', ...)")
    notes = [f"read with {', '.join(found)}"] if found else []
    if dialect.above:
        lines = f"the first {dialect.above} lines, which have" if dialect.above > 1 else "the first line, which has"
        notes.append(f"left out {lines} a different number of fields from the rest")
    return notes
