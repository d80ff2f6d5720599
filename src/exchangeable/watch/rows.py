"""Reading rows with named columns, from lines of JSON or CSV, for a monitor of tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, NoReturn

from exchangeable.data.delimited import name_columns
from exchangeable.data.dialect import DELIMITERS
from exchangeable.data.errors import ColumnError, DataError, list_names
from exchangeable.data.events.cells import read_cell
from exchangeable.data.events.delimited import split_line
from exchangeable.data.events.errors import LineError, UsageError
from exchangeable.data.events.schema import LAST_SEQ, TEXT_LENGTH, unique_keys
from exchangeable.table_monitor import TableMonitor
from exchangeable.table_monitor.constants import ColumnConstants
from exchangeable.validation import format_value

Format = Literal["auto", "jsonl", "csv", "tsv"]
SEQ = "seq"  # the key of the number of a row
_BOM = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """A row: its cells by column, its id and time if its label may come later, and its number if it has one."""

    cells: dict[str, Any]
    id: str | int | None = None
    time: Any = None
    seq: int | None = None


class LateLabel(NamedTuple):
    """The label of an earlier row."""

    id: str | int
    y: Any
    time: Any = None


class RowBatch(NamedTuple):
    """Rows and late labels with their line numbers; ``fault`` is set if the next line is invalid."""

    line: list[int]
    items: list[Row | LateLabel]
    fault: LineError | None = None


class RowReader:
    """Reads the rows that a monitor consumes.

    JSONL: each line is an object with a value for each column: a number, text, true, false or null. If labels come
    later, each row also has an ``id`` and, unless the monitor waits forever, a ``time``; the label comes as an object
    with that id, the label and its time, and nothing else. Unless the reference has a column ``seq``, a row may have
    its number there, from 1.

    CSV and TSV have a header, unless ``header`` is False, which names the columns 1, 2, ... The delimiter of CSV is the
    one of comma, tab, semicolon and bar with which the header names the most columns of the reference.

    >>> monitor = TableMonitor(schema={"size": "number", "colour": ["red", "blue"]})
    >>> RowReader(monitor).read([b"size;colour", b"1,5;red", b";n/a"], 1).items[0].cells
    {'size': 1.5, 'colour': 'red'}
    >>> RowReader(monitor).read([b"5"], 1).fault.line
    1
    """

    columns: list[str] | None = None  # the header is read again at each start

    def __init__(
        self,
        monitor: TableMonitor,
        format: Format = "auto",  # noqa: A002
        *,
        header: bool = True,
        id: str = "id",  # noqa: A002
        time: str = "time",
    ) -> None:
        self.monitor = monitor
        self.format = format
        self.header = header
        self.id = id
        self.time = time
        schema = monitor.schema
        self._label = None if schema.label is None else schema.label.name
        known = [*schema.columns, *(() if schema.label is None else (schema.label,))]
        self._kinds = {column.name: _kind(column) for column in known}
        self._texts = {column.name for column in known if column.categories and column.types == ("text",)}
        self._numbered = SEQ not in {*schema.allowed, *((id, time) if monitor.wait is not None else ())}
        self._names: list[str] | None = None
        self._delimiter = ","
        for name in (id, time) if monitor.wait is not None else ():
            if name in self._kinds:
                raise UsageError(
                    f"{format_value(name)} is a column of the reference that is tested, so it cannot be the id or the "
                    "time of a row whose label comes later: name other keys with --id and --time"
                )

    def start(self, line: bytes) -> bool:
        """Detect the format from the first line that is not blank, and return whether this line is a header."""
        return self._start(1, _decode(1, line.removeprefix(_BOM)))

    def read(self, lines: Sequence[bytes], first: int) -> RowBatch:
        """Return the rows in lines numbered from ``first``, up to the first line that is invalid."""
        batch = RowBatch([], [])
        for number, line in enumerate(lines, first):
            if not line.strip():
                continue
            try:
                item = self._parse(number, line)
            except LineError as error:
                return batch._replace(fault=error)
            if item is not None:
                batch.line.append(number)
                batch.items.append(item)
        return batch

    def _parse(self, number: int, line: bytes) -> Row | LateLabel | None:
        started = self.format == "jsonl" or self._names is not None
        text = _decode(number, line if started else line.removeprefix(_BOM))
        if not started and self._start(number, text):
            return None
        return self._object(number, text.removeprefix("\ufeff")) if self._names is None else self._cells(number, text)

    def _start(self, number: int, text: str) -> bool:
        if self.format == "auto":
            self.format = "jsonl" if text.lstrip()[:1] in ("{", "[") else "csv"
        if self.format == "jsonl":
            return False
        if self.monitor.wait is not None:
            raise UsageError(
                "--wait needs JSONL: a late label is a line with an id and the label, which CSV cannot hold"
            )
        self._delimiter = (
            "\t" if self.format == "tsv" else max(DELIMITERS, key=lambda d: self._matches(number, text, d))
        )
        cells = split_line(number, text, self._delimiter)
        self._names = [name.strip() for name in cells] if self.header else [str(i + 1) for i in range(len(cells))]
        self._check_header(number)
        return self.header

    def _matches(self, number: int, text: str, delimiter: str) -> int:
        """Return how many columns of the reference a delimiter finds in the header; without one, how many columns."""
        try:
            cells = split_line(number, text, delimiter)
        except LineError:
            return -1
        return sum(name.strip() in self._kinds for name in cells) if self.header else len(cells)

    def _check_header(self, number: int) -> None:
        """Reject a header without a column of the reference; the monitor checks the columns with the first row."""
        names = self._names or []
        try:
            self._names = name_columns(names)
            if not set(self._names) & {column.name for column in self.monitor.schema.columns}:
                expected = list_names([column.name for column in self.monitor.schema.columns])
                raise ColumnError(
                    f"the header must name columns of the reference ({expected}), got {list_names(names)}"
                )
        except (ColumnError, DataError) as error:
            raise LineError(number, str(error)) from None

    def _cells(self, number: int, text: str) -> Row:
        assert self._names is not None  # noqa: S101
        cells = split_line(number, text, self._delimiter)
        if len(cells) != len(self._names):
            where = "header" if self.header else "first line"
            rule = f"the number of cells must be {len(self._names)}, as in the {where}"
            raise LineError(number, f"{rule}, got {len(cells)}")
        comma = self._delimiter != ","
        kinds, row = self._kinds, {}
        for name, cell in zip(self._names, cells, strict=True):
            if name in kinds:
                categories = [cell] if name in self._texts else kinds[name]
                row[name] = read_cell(cell, categories, decimal_comma=comma)
            elif name:
                row[name] = cell
        return Row(row)

    def _object(self, number: int, text: str) -> Row | LateLabel:
        try:
            cells = _JSON.decode(text)
        except RecursionError:
            raise LineError(number, "must be JSON: nested too deeply", malformed=True) from None
        except json.JSONDecodeError as error:
            reason = f"{error.msg[0].lower()}{error.msg[1:]} (character {error.pos + 1})"
            raise LineError(number, f"must be JSON: {reason}", malformed=True) from None
        except ValueError as error:
            raise LineError(number, str(error), malformed=True) from None
        if not isinstance(cells, dict):
            raise LineError(number, f"must be an object with a value for each column, got {format_value(cells)}")
        seq = cells.pop(SEQ, None) if self._numbered else None
        if seq is not None and not (type(seq) is int and 1 <= seq <= LAST_SEQ):
            raise LineError(number, f"{SEQ} must be an integer from 1 to {LAST_SEQ}, got {format_value(seq)}")
        return Row(cells, seq=seq) if self.monitor.wait is None else self._with_id(number, cells, seq)

    def _with_id(self, number: int, cells: dict[str, Any], seq: int | None) -> Row | LateLabel:
        """Return a row whose label may come later, or such a label."""
        id, time = cells.pop(self.id, None), cells.pop(self.time, None)  # noqa: A001
        integer = isinstance(id, int) and not isinstance(id, bool) and abs(id) <= LAST_SEQ
        if not integer and not (isinstance(id, str) and 1 <= len(id) <= TEXT_LENGTH and id.isprintable()):
            rule = f"a string of 1 to {TEXT_LENGTH} printable characters or an integer"
            raise LineError(number, f"must have {format_value(self.id)}, {rule}, since labels come later")
        if cells.keys() != {self._label}:
            return Row(cells, id, time, seq)
        if seq is not None:
            raise LineError(number, f"{SEQ} is the number of a row, so a label must have none, got {seq}")
        return LateLabel(id, next(iter(cells.values())), time)


def _kind(column: ColumnConstants) -> frozenset[str] | None:
    """Return the categories that are read as they are written; None for numbers and booleans."""
    if column.categories is None or column.types == ("boolean",):
        return None
    return frozenset() if column.types == ("number",) else frozenset(column.categories)


def _decode(number: int, line: bytes) -> str:
    try:
        return line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError:
        raise LineError(number, "must be UTF-8 text; decompress or convert the input first") from None


def _constant(name: str) -> NoReturn:
    raise ValueError(f"must be JSON, which has no {name}: write null for a missing value")


_JSON = json.JSONDecoder(object_pairs_hook=unique_keys, parse_constant=_constant)
