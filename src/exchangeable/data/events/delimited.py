"""Parsing of CSV and TSV lines: which columns are features, and the numbers in them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Literal

from exchangeable.data.events.errors import LineError, UsageError
from exchangeable.validation import NUMBER, format_value

Labels = Literal["classes", "numbers", "none"]
BOOLEANS = {"true": 1.0, "false": 0.0}


class DelimitedParser:
    """Parses rows of CSV or TSV, one row in each line, after the first line has defined the columns.

    ``columns`` holds the names of the features. Unless they are given, they are chosen by the first row: all columns
    that hold a number in it, without the label.
    """

    def __init__(
        self,
        *,
        rows: bool,
        events: bool,
        labels: Labels,
        header: bool,
        features: Sequence[str] | None,
        label: str | None,
        notify: Callable[[str], None] | None,
    ) -> None:
        self.rows = rows
        self.events = events
        self.labels = labels
        self.header = header
        self.label = label
        self.columns: list[str] | None = None if features is None else list(features)
        self._notify = notify
        self._delimiter = ","
        self._names: list[str] = []
        self._positions: list[int] | None = None

    def start(self, first_line: str, delimiter: str) -> None:
        """Read the names of the columns from the first line, or number the columns if there is no header."""
        self._delimiter = delimiter
        cells = split_line(1, first_line, delimiter)
        self._names = cells if self.header else [str(i + 1) for i in range(len(cells))]
        if self.header:
            _check_header(self._names, [self._parse(name) for name in self._names])
        self._check_names()

    def parse(self, number: int, text: str) -> tuple[Any, str | float | None]:
        """Return the features and the label in a line."""
        cells = split_line(number, text, self._delimiter)
        if len(cells) != len(self._names):
            where = "header" if self.header else "first line"
            rule = f"the number of cells must be {len(self._names)}, as in the {where}"
            raise LineError(number, f"{rule}, got {len(cells)}")
        if self._positions is None:
            self._positions = self._choose_features(cells)
        row = [self._number(number, position, cells[position]) for position in self._positions]
        return row if self.rows else row[0], self._label(number, cells)

    def _choose_features(self, cells: list[str]) -> list[int]:
        chosen = self.columns is None
        if self.columns is None:
            numeric = [name for name, cell in zip(self._names, cells, strict=True) if self._parse(cell) is not None]
            self.columns = [name for name in numeric if name != self.label]
        if not self.columns:
            raise UsageError(f"no column but the label holds a number in the first row, of {_join(self._names)}")
        if not self.rows and len(self.columns) != 1:
            advice = "this measure needs exactly one column: choose it with --features"
            raise UsageError(f"there are {len(self.columns)} columns of numbers ({_join(self.columns)}); {advice}")
        if chosen and self._notify is not None:
            self._notify(f"the features are {_join(self.columns)}; --features chooses others")
        return [self._names.index(name) for name in self.columns]

    def _number(self, number: int, position: int, cell: str) -> float:
        value = self._parse(cell)
        if value is None:
            column = format_value(self._names[position])
            raise LineError(number, f"column {column} must hold a number, got {format_value(cell)}")
        return value

    def _parse(self, cell: str) -> float | None:
        """Return the number in a cell; None if there is none."""
        text = cell.strip()
        if NUMBER.fullmatch(text):
            return float(text)
        return BOOLEANS.get(text.lower()) if self.events else None

    def _label(self, number: int, cells: list[str]) -> str | float | None:
        if self.labels == "none" or self.label is None:
            return None
        position = self._names.index(self.label)
        return self._number(number, position, cells[position]) if self.labels == "numbers" else cells[position]

    def _check_names(self) -> None:
        wanted = [*(self.columns or ()), *(() if self.label is None else (self.label,))]
        for name in wanted:
            if name not in self._names:
                raise UsageError(f"there is no column {format_value(name)}; the columns are {_join(self._names)}")
        if len(set(wanted)) < len(wanted):
            raise UsageError(f"--features and --label must name a column once, got {_join(wanted)}")
        if self.labels != "none" and self.label is None:
            message = "this measure needs labels: name their column with --label"
            raise UsageError(f"{message}; the columns are {_join(self._names)}")


def split_line(number: int, text: str, delimiter: str) -> list[str]:
    """Return the cells in a line, which may be quoted."""
    if '"' not in text:
        return text.split(delimiter)
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except csv.Error:
        message = "a quotation mark must be closed in its line, and doubled within quotes"
        raise LineError(number, message) from None


def _check_header(names: list[str], numbers: list[float | None]) -> None:
    """Reject a first line that is not a header, or that has another separator."""
    if len(names) == 1 and ";" in names[0]:
        raise UsageError("the fields seem to be separated by ';'; CSV needs commas, and TSV tabs")
    if None not in numbers:
        raise UsageError("the first line holds only numbers, so it is not a header; add --no-header")
    if len(set(names)) < len(names):
        raise UsageError(f"the columns must have different names, got {_join(names)}")


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(format_value, names[:10])) + more
