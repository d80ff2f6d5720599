"""Divide delimited text into chunks of complete rows, and check the number of fields of every row."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.dialect import Dialect, csv_line
from exchangeable.data.errors import DataError

LONGEST = 1 << 24  # bytes of a row
NEWLINE = 10
_WRITTEN = 1 << 22  # characters of each block that is written again
_QUOTES = "a quotation mark must be closed, and doubled within a quoted field"


class Chunk(NamedTuple):
    """Complete rows: their text, with valid quotation marks, and their number."""

    text: bytes
    rows: int


class _Layout(NamedTuple):
    """Where the complete rows of a text end, and how many delimiters each has, not counting those within quotes."""

    ends: NDArray[np.intp]
    delimiters: NDArray[np.intp]
    valid: bool  # whether every quotation mark opens or closes a field, or is doubled
    open: bool  # whether a quotation mark is not closed at the end of the text


def chunks(blocks: Iterable[bytes], dialect: Dialect) -> Iterator[Chunk]:
    """Yield the rows below the header, without blank lines. O(size), in memory of a few blocks."""
    above, width = dialect.above + dialect.header, len(dialect.names)  # above: rows that are not data
    for line, text, layout in _complete_rows(blocks, dialect):
        starts = np.concatenate([[0], layout.ends[:-1] + 1])
        left_out = layout.ends == starts
        not_data = np.flatnonzero(~left_out)[:above]
        left_out[not_data] = True
        above -= len(not_data)
        for i in np.flatnonzero((layout.delimiters != width - 1) & ~left_out):
            if text[starts[i] : layout.ends[i]].strip():
                raise DataError(_ragged(line + text.count(b"\n", 0, starts[i]), dialect, int(layout.delimiters[i]) + 1))
            left_out[i] = True
        yield _leave_out(text, starts, layout.ends, left_out)


def _ragged(line: int, dialect: Dialect, found: int) -> str:
    as_in = "in the header" if dialect.header else "in the first row"
    fields = f"expected {len(dialect.names):,} field{'s' * (len(dialect.names) > 1)} as {as_in}, got {found:,}"
    return f"line {line:,}: {fields}; every row must have the same number of fields"


def _leave_out(text: bytes, starts: NDArray[np.intp], ends: NDArray[np.intp], left_out: NDArray[np.bool_]) -> Chunk:
    rows = len(ends) - int(left_out.sum())
    if rows == len(ends):
        return Chunk(text, rows)
    if not left_out[1:].any():  # the header alone
        return Chunk(text[ends[0] + 1 :], rows)
    change = np.zeros(len(text) + 1, np.int8)
    change[starts[left_out]] += 1
    change[ends[left_out] + 1] -= 1
    return Chunk(np.frombuffer(text, np.uint8)[np.cumsum(change[:-1], dtype=np.int8) == 0].tobytes(), rows)


def _complete_rows(blocks: Iterable[bytes], dialect: Dialect) -> Iterator[tuple[int, bytes, _Layout]]:
    """Yield the number of the first line, the text and the layout of complete rows."""
    rest, line, source = b"", 1, iter(blocks)
    if dialect.blanks:
        source = _written_again(source, dialect, line)
    for block in source:
        text = rest + block
        layout = _layout(text, dialect)
        if not layout.valid:
            yield from _complete_rows_again(chain([text], source), dialect, line)
            return
        end = int(layout.ends[-1]) + 1 if len(layout.ends) else 0
        if len(text) - end > LONGEST:
            raise DataError(too_long(line + text.count(b"\n", 0, end)))
        if end:
            yield line, text[:end], layout
        line += text.count(b"\n", 0, end)
        rest = text[end:]
    if rest:
        layout = _layout(rest + b"\n", dialect)
        if not layout.valid:
            yield from _complete_rows_again(iter([rest]), dialect, line)
            return
        if layout.open:
            raise DataError(f"line {line:,}: {_QUOTES}")
        yield line, rest + b"\n", layout


def _complete_rows_again(blocks: Iterator[bytes], dialect: Dialect, line: int) -> Iterator[tuple[int, bytes, _Layout]]:
    for first, text, layout in _complete_rows(_written_again(blocks, dialect, line), dialect._replace(blanks=False)):
        yield first + line - 1, text, layout


def _layout(text: bytes, dialect: Dialect) -> _Layout:
    data = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero((data == ord(dialect.delimiter)) | (data == NEWLINE))
    quotes = np.flatnonzero(data == ord(dialect.quote)) if dialect.quote.encode() in text else marks[:0]
    if len(quotes):
        marks = marks[np.searchsorted(quotes, marks) % 2 == 0]
    found = np.flatnonzero(data[marks] == NEWLINE)
    delimiters = np.diff(found, prepend=-1) - 1
    return _Layout(marks[found], delimiters, _valid_quotes(data, quotes, dialect), len(quotes) % 2 == 1)


def _valid_quotes(data: NDArray[np.uint8], quotes: NDArray[np.intp], dialect: Dialect) -> bool:
    """Return whether each first, third, ... quotation mark starts a field, and each second one ends it.

    Doubled marks within a field count as one that ends it and one that starts it.
    """
    edges = np.array([ord(dialect.delimiter), NEWLINE, ord(dialect.quote)], np.uint8)
    before, after = quotes[0::2] - 1, quotes[1::2] + 1
    before, after = before[before >= 0], after[after < len(data)]
    return bool(np.isin(data[before], edges).all() and np.isin(data[after], edges).all())


def too_long(line: int) -> str:
    """Describe a row that is longer than the limit."""
    return (
        f"line {line:,}: the row is longer than the limit of {LONGEST >> 20} MiB; check for an unclosed quotation mark"
    )


def _written_again(blocks: Iterator[bytes], dialect: Dialect, line: int) -> Iterator[bytes]:
    """Parse the text with `csv.reader`, which is slower, and write it again in the regular form.

    This is for quotation marks within fields, and for spaces before them.
    """
    form: dict[str, Any] = {"delimiter": dialect.delimiter, "quotechar": dialect.quote}
    reader = csv.reader(_lines(blocks, dialect, line), **form, skipinitialspace=dialect.blanks, strict=True)
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, **form, lineterminator="\n")
    start = 0
    try:
        for row in reader:
            writer.writerow(row)
            start = reader.line_num
            if buffer.tell() > _WRITTEN:
                yield buffer.getvalue().encode()
                buffer.seek(0)
                buffer.truncate()
    except csv.Error:
        limit = f"and a field may have at most {csv.field_size_limit():,} characters"
        raise DataError(f"line {line + start:,}: {_QUOTES}, {limit}") from None
    yield buffer.getvalue().encode()


def _lines(blocks: Iterable[bytes], dialect: Dialect, line: int) -> Iterator[str]:
    """Yield lines for `csv.reader`."""
    rest = b""
    for block in chain(blocks, [b"\n"]):
        *lines, rest = (rest + block).split(b"\n")
        line += len(lines)
        if len(rest) > LONGEST:
            raise DataError(too_long(line))
        yield from (csv_line(text.decode(), dialect.delimiter) for text in lines)
