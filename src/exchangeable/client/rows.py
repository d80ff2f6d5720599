"""Rows of tables as the server expects them: JSON objects from columns to plain cells."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from exchangeable.data.events.schema import encode_example
from exchangeable.data.values import is_missing
from exchangeable.table_monitor.cells import ABSENT, open_cells
from exchangeable.validation import format_value


def encode_row(row: Mapping[Any, Any], id: str | None = None, time: Any = None) -> bytes:  # noqa: A002
    """Encode a row without its number, or raise ``ValueError``.

    >>> encode_row({"size": 1.5, "colour": None}, id="a")
    b'{"row":{"size":1.5,"colour":null},"id":"a"}'
    """
    rest = json.loads(encode_example(0, id=id, time=time))  # the rules of id and time
    del rest["x"]
    return _dump({"row": {str(name): plain_cell(str(name), cell) for name, cell in row.items()}, **rest})


def is_table(data: Any) -> bool:
    """Return whether this is a table, not numbers or rows of numbers: a frame, a mapping of columns, or mappings.

    >>> is_table({"a": [1, 2]}), is_table([{"a": 1}]), is_table([[1.0, 2.0]])
    (True, True, False)
    """
    if isinstance(data, Sequence) and len(data):
        return isinstance(data[0], Mapping)
    return isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")


def table_rows(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table with plain cells: a frame, a mapping of columns, mappings, or a file.

    >>> list(table_rows({"a": [1.0, float("nan")], "b": ["u", "v"]}))
    [{'a': 1.0, 'b': 'u'}, {'a': None, 'b': 'v'}]
    """
    cells = open_cells(data)
    columns = {name: column.tolist() if hasattr(column, "tolist") else column for name, column in cells.columns.items()}
    for i in range(cells.n):
        row = {name: column[i] for name, column in columns.items()}
        yield {name: plain_cell(name, cell) for name, cell in row.items() if cell is not ABSENT}


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode rows as NDJSON."""
    return b"\n".join(map(_dump, rows))


def plain_cell(name: str, cell: Any) -> str | int | float | bool | None:
    """Return a cell as JSON can hold it: missing values become None, dates and times ISO 8601 text."""
    value = cell.item() if hasattr(cell, "item") and hasattr(cell, "dtype") else cell
    if is_missing(value):
        return None
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    rule = "must be text, a finite number, a boolean, a date, a time, or missing"
    raise ValueError(f"column {format_value(name)} of a row {rule}, got {format_value(cell)}")


def _dump(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ValueError(f"strings must be valid Unicode, got {format_value(value)}") from None
