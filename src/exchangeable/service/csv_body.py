"""Observations as CSV: a header, and one observation in each line."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.events.cells import read_cell
from exchangeable.data.events.delimited import BOOLEANS
from exchangeable.data.events.errors import LineError
from exchangeable.data.events.schema import LAST_SEQ, TEXT_LENGTH, TableRow, to_row
from exchangeable.data.values import is_code
from exchangeable.service import parsing
from exchangeable.service.parsing import Batch
from exchangeable.service.row_fields import RowFields
from exchangeable.validation import NUMBER, format_value

SEQ = re.compile("[0-9]{1,16}")
FIELDS = ("seq", "id", "time", "y")  # columns of a stream of numbers that are not part of x


class Table(NamedTuple):
    """The cells of a body, and the line in which each observation begins."""

    names: list[str]
    cells: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str] | None:
        """Return a column; None if there is none of this name."""
        return [row[self.names.index(name)] for row in self.cells] if name in self.names else None


def observations(
    body: bytes,
    *,
    fields: RowFields | None = None,
    labels: bool = True,
    batch: int = 10_000,
    width: int = 4096,
    text: int = TEXT_LENGTH,
) -> Batch:
    """Parse CSV with a header. ``fields`` is given for streams of tables, whose columns are found by their names.

    In other streams, the columns seq, id, time and y have this meaning, and all others are x, in their order.
    ``labels`` says whether the stream uses y: if not, a column y may be meant as a part of x, so it is refused.

    >>> batch = observations(b"seq,speed,y\\n1,2.5,red\\n2,3,blue")
    >>> batch.x.tolist(), batch.extras.y
    ([[2.5], [3.0]], ['red', 'blue'])
    """
    with parsing.as_problems():
        table = _read(body, batch, width)
        if fields is not None:
            fields.check(table.names, 1)
        elif "y" in table.names and not labels:
            advice = "rename it if it is part of x, or leave it out"
            raise LineError(1, f"must not name a column y, the label, since the stream uses no labels: {advice}")
    with parsing.as_problems(line=lambda position: table.lines[position - 1]):
        if fields is None:
            return _numbers(table, width, text)
        rows = [_row(table.names, cells, fields, i) for i, cells in enumerate(table.cells, 1)]
        return replace(parsing.rows(rows, width, text), lines=np.array(table.lines))


# ------------------------------------------------------------------ cells


def _read(body: bytes, batch: int, width: int) -> Table:
    """Split a body into cells; lines without any are skipped."""
    lines = _records(body)
    first, names = next(lines, (1, []))
    names = [name.strip() for name in names]
    _check_header(first, names, width)
    table = Table(names, [], [])
    for line, cells in lines:
        if len(cells) != len(names):
            raise LineError(line, f"the number of cells must be {len(names)}, as in the header, got {len(cells)}")
        if len(table.cells) == batch:
            raise parsing.too_long(batch, batch + 1)
        table.cells.append(cells)
        table.lines.append(line)
    parsing.check_any(table.cells, batch, "observation")
    return table


def _records(body: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each record that is not blank, and the line in which it begins."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LineError(body.count(b"\n", 0, error.start) + 1, "must be UTF-8 text", malformed=True) from None
    reader = csv.reader(_lines(text), strict=True)
    line = 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        rule = "a cell with a quotation mark or a line break must be quoted, and its quotation marks doubled"
        reason = str(error) if "limit" in str(error) else rule
        raise LineError(line, f"must be CSV: {reason}", malformed=True) from None


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text, with their ends; `io.StringIO` would take four bytes for each character."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


def _check_header(line: int, names: list[str], width: int) -> None:
    """Reject a first line that does not name the columns, or has another separator."""
    if not names:
        raise LineError(line, "must be a header with the names of the columns, got nothing")
    other = next((mark for mark in (";", "\t", "|") if len(names) == 1 and mark in names[0]), None)
    if other is not None:
        raise LineError(line, f"must separate columns by commas, and decimals by points, got {other!r}")
    if all(NUMBER.fullmatch(name) for name in names):
        raise LineError(line, f"must be a header with the names of the columns, got {format_value(names[0])}")
    if len(names) > width + len(FIELDS):
        raise LineError(line, f"must name at most {width} columns besides {', '.join(FIELDS)}, got {len(names)}")
    if "" in names or len(set(names)) < len(names):
        raise LineError(line, "must give each column a name of its own")


def _seqs(column: list[str] | None, count: int) -> list[int | None]:
    return [None] * count if column is None else [_seq(cell, i) for i, cell in enumerate(column, 1)]


def _seq(cell: str, position: int) -> int:
    """Return the number of an observation."""
    digits = cell.strip()
    if not (SEQ.fullmatch(digits) and 1 <= int(digits) <= LAST_SEQ):
        raise LineError(position, f"seq must be an integer from 1 to {LAST_SEQ}, got {format_value(cell)}")
    return int(digits)


def _value(cell: str, position: int, name: str) -> str | float | None:
    """Return a label or a time: a number, unless it is a code such as 007, or text; None for an empty cell."""
    bare = cell.strip()
    if not NUMBER.fullmatch(bare) or is_code(bare):
        return cell or None
    return int(bare) if bare.lstrip("+-").isdigit() else _finite(float(bare), position, name, cell)


def _finite(number: float, position: int, name: str, cell: str) -> float:
    if math.isinf(number):
        raise LineError(position, f"column {format_value(name)} must hold finite numbers, got {format_value(cell)}")
    return number


# ------------------------------------------------------------------ observations


def _numbers(table: Table, width: int, text: int) -> Batch:
    """Return observations of numbers."""
    names = [name for name in table.names if name not in FIELDS]
    if not names:
        raise LineError(1, f"x must have a column: all columns of the header are among {', '.join(FIELDS)}")
    places = [table.names.index(name) for name in names]
    x: list[Any] = [
        [_number(row[place], i, name) for place, name in zip(places, names, strict=True)]
        for i, row in enumerate(table.cells, 1)
    ]
    booleans = any(type(value) is bool for row in x for value in row)
    columns: dict[str, list[Any]] = {"id": [cell or None for cell in table.column("id") or []]}
    for name in ("y", "time"):
        columns[name] = [_value(cell, i, name) for i, cell in enumerate(table.column(name) or [], 1)]
    batch = parsing.numbers(_seqs(table.column("seq"), len(x)), x, columns, width, text)
    return replace(batch, has_booleans=booleans)


def _number(cell: str, position: int, name: str) -> float | bool:
    bare = cell.strip()
    if NUMBER.fullmatch(bare):
        return _finite(float(bare), position, name, cell)
    if bare.lower() in BOOLEANS:
        return bool(BOOLEANS[bare.lower()])
    raise LineError(position, f"column {format_value(name)} must hold a number, got {format_value(cell)}")


def _row(names: list[str], cells: list[str], fields: RowFields, position: int) -> TableRow:
    """Return a row of a table. What a cell means depends on the kind of its column."""
    given, row = {}, {}
    for name, cell in zip(names, cells, strict=True):
        if name in fields.categories:
            row[name] = _checked(read_cell(cell, fields.categories[name]), position, name, cell)
        elif name in fields.fields:
            given[name] = _field(name, cell, position)
        else:
            row[name] = cell
    return to_row(row, given, position)


def _checked(value: str | float | None, position: int, name: str, cell: str) -> str | float | None:
    return _finite(value, position, name, cell) if isinstance(value, float) else value


def _field(name: str, cell: str, position: int) -> Any:
    if name == "seq":
        return _seq(cell, position)
    return (cell or None) if name == "id" else _value(cell, position, name)
