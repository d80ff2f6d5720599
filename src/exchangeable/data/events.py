"""From lines to examples: JSONL, CSV or TSV, each line one example or refused with its number."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

LAST_SEQ = 2**53 - 1  # the last integer that every JSON reader keeps exactly
LONGEST_TEXT = 256  # characters of an id or a label
SHOWN = 40  # characters of a value in a message
Format = Literal["auto", "jsonl", "csv", "tsv"]
Labels = Literal["classes", "numbers", "none"]

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NUMBERS = re.compile(rb"([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\r?(\n|\Z))*+")
_KEYS = frozenset({"x", "y", "seq", "id", "time"})
_BOM = b"\xef\xbb\xbf"


class LineError(Exception):
    """A line that is no example: its number, and what is wrong with it."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(f"line {line}: {sentence}")
        self.line = line


class UsageError(ValueError):
    """The options do not fit the input."""


class Batch(NamedTuple):
    """Examples as columns: the number of the line, x, and what else came; a fault is at the line after the last."""

    line: Sequence[int]
    x: list[Any]
    y: list[Any] | None = None
    id: list[str | None] | None = None
    seq: list[int | None] | None = None
    fault: LineError | None = None

    def chosen(self, positions: Sequence[int]) -> Batch:
        """The examples at some positions."""
        return Batch(
            [self.line[i] for i in positions],
            [self.x[i] for i in positions],
            None if self.y is None else [self.y[i] for i in positions],
            None if self.id is None else [self.id[i] for i in positions],
            None if self.seq is None else [self.seq[i] for i in positions],
            self.fault,
        )


class _Example(NamedTuple):
    x: Any
    y: Any = None
    id: str | None = None
    seq: int | None = None


class Reader:
    """Reads lines in a format that is given, or found in the first line that is not blank.

    ``auto``: a line that begins with ``{`` or ``[``, or is one number, is JSONL; any other is CSV, or TSV if it holds a
    tab and no comma. A line of JSONL is ``{"x": number or list, "y", "seq", "id", "time"}`` (all but x may be left
    out), a bare number or a bare list. CSV and TSV have a header unless ``header`` is False, which names the columns
    1, 2, ...; features are the columns ``features``, or all but the label that hold a number in the first row. A row is
    one line. Blank lines are skipped.

    ``rows``: the measure takes rows of numbers, not single numbers; ``labels``: the kind of labels it takes; ``tell``
    is told which columns were chosen, where that was left to the reader.

    >>> Reader().read([b"a,b", b"1,x", b"2,y", b"three,z"], 1).x
    [1.0, 2.0]
    >>> Reader(rows=True, labels="classes").read([b'{"x": [1, 2], "y": "cat"}'], 1)[1:3]
    ([[1.0, 2.0]], ['cat'])
    """

    def __init__(
        self,
        format: Format = "auto",  # noqa: A002
        *,
        rows: bool = False,
        labels: Labels = "none",
        header: bool = True,
        features: Sequence[str] | None = None,
        label: str | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.format = format
        self.rows = rows
        self.labels = labels
        self.header = header
        self.label = label
        self.features: list[str] | None = None if features is None else list(features)
        self._tell = tell
        self.columns = self.features  # once they are known; who resumes sets them to what they were
        self._names: list[str] = []
        self._places: list[int] | None = None
        self._begun = False

    def begin(self, line: bytes) -> bool:
        """Find the format in the first line that is not blank; is this line a header, and so no example?"""
        text = line.removeprefix(_BOM).decode("utf-8", "replace").strip("\r\n")
        self.format = _found(text) if self.format == "auto" else self.format
        self._begun = True
        if self.format == "jsonl":
            if self.features is not None or self.label is not None:
                raise UsageError("--features and --label name columns of CSV or TSV, got them with JSONL")
            return False
        cells = self._cells(1, text)
        self._names = cells if self.header else [str(i + 1) for i in range(len(cells))]
        if self.header:
            _check_header(self._names)
        _check_names(self._names, self.columns, self.label, self.labels)
        return self.header

    def read(self, lines: Sequence[bytes], first: int) -> Batch:
        """The examples in lines numbered from ``first``, up to the first that is none."""
        if self._begun and self.format == "jsonl" and not self.rows:
            block = b"\n".join(lines)
            x = list(map(float, block.split())) if _NUMBERS.fullmatch(block) else []
            if len(x) == len(lines):  # the usual case, fast; otherwise there are blank lines
                return Batch(range(first, first + len(lines)), x)
        numbers, examples, fault = [], [], None
        for number, line in enumerate(lines, first):
            try:
                example = self._example(number, line)
            except LineError as error:
                fault = error
                break
            if example is not None:
                numbers.append(number)
                examples.append(example)
        return _columns(numbers, examples, self.labels)._replace(fault=fault)

    def _example(self, number: int, line: bytes) -> _Example | None:
        if not line.strip():
            return None
        if not self._begun:
            line = line.removeprefix(_BOM)
            if self.begin(line):
                return None
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            raise LineError(number, "it must be UTF-8 text") from None
        return self._jsonl(number, text) if self.format == "jsonl" else self._row(number, text)

    # -------------------------------------------------------------------------------------------------------- JSONL

    def _jsonl(self, number: int, text: str) -> _Example:
        if _NUMBER.fullmatch(text.strip()):
            return _Example(self._x(number, float(text)))
        try:
            value = json.loads(text, parse_constant=_constant)
        except (ValueError, RecursionError) as error:
            raise LineError(number, _malformed(error)) from None
        if not isinstance(value, dict):
            return _Example(self._x(number, value))
        if not value.keys() <= _KEYS or "x" not in value:
            got = ", ".join(map(_shown, value)) or "none"
            raise LineError(number, f"an object must have x, and may have y, seq, id and time, got {got}")
        return _Example(
            self._x(number, value["x"]),
            _label(number, value.get("y")),
            _identity(number, value.get("id")),
            _sequence(number, value.get("seq")),
        )

    def _x(self, number: int, value: Any) -> Any:
        """A number or a row of them, as the measure takes it."""
        given = value if isinstance(value, list) else [value]
        if not given or any(type(one) is not float and type(one) is not int for one in given):
            raise LineError(number, f"x must be a number or a list of numbers, got {_shown(value)}")
        try:
            row = [float(one) for one in given]
        except OverflowError:
            raise LineError(number, f"x must be finite, got {_shown(value)}") from None
        if self.rows:
            return row
        if len(row) != 1:
            raise LineError(number, f"x must be one number for this measure, got a list of {len(row)}")
        return row[0]

    # -------------------------------------------------------------------------------------------------- CSV and TSV

    def _cells(self, number: int, text: str) -> list[str]:
        delimiter = "," if self.format == "csv" else "\t"
        if '"' not in text:
            return text.split(delimiter)
        try:
            return next(csv.reader([text], delimiter=delimiter, strict=True))
        except csv.Error:
            law = "a quotation mark must be closed in its line, and doubled within quotes"
            raise LineError(number, law) from None

    def _row(self, number: int, text: str) -> _Example:
        cells = self._cells(number, text)
        if len(cells) != len(self._names):
            what = "header" if self.header else "first line"
            raise LineError(number, f"expected {len(self._names)} columns as in the {what}, got {len(cells)}")
        if self._places is None:
            self._places = self._choose(cells)
        row = [self._number(number, place, cells[place]) for place in self._places]
        return _Example(row if self.rows else row[0], self._class(number, cells))

    def _choose(self, cells: list[str]) -> list[int]:
        """The places of the features; by default all columns but the label that hold a number in the first row."""
        found = self.columns is None
        if self.columns is None:
            numeric = [name for name, cell in zip(self._names, cells, strict=True) if _NUMBER.fullmatch(cell.strip())]
            self.columns = [name for name in numeric if name != self.label]
        if not self.columns:
            raise UsageError(f"no column but the label holds a number in the first row, of {_listed(self._names)}")
        if not self.rows and len(self.columns) != 1:
            law = "this measure takes one column, so choose it with --features"
            raise UsageError(f"there are {len(self.columns)} columns of numbers ({_listed(self.columns)}); {law}")
        if found and self._tell is not None:
            self._tell(f"the features are {_listed(self.columns)}; --features chooses others")
        return [self._names.index(name) for name in self.columns]

    def _number(self, number: int, place: int, cell: str) -> float:
        text = cell.strip()
        if not _NUMBER.fullmatch(text):
            raise LineError(number, f"column {_shown(self._names[place])} must hold a number, got {_shown(cell)}")
        return float(text)

    def _class(self, number: int, cells: list[str]) -> str | float | None:
        if self.labels == "none" or self.label is None:
            return None
        place = self._names.index(self.label)
        return self._number(number, place, cells[place]) if self.labels == "numbers" else cells[place]


# ------------------------------------------------------------------------------------------------------------- details


def _found(text: str) -> Format:
    """The format of a line."""
    if text.strip()[:1] in ("{", "[") or _NUMBER.fullmatch(text.strip()):
        return "jsonl"
    return "tsv" if "\t" in text and "," not in text else "csv"


def _columns(numbers: list[int], examples: list[_Example], labels: Labels) -> Batch:
    if not examples:
        return Batch([], [])
    x, y, ids, seq = (list(column) for column in zip(*examples, strict=True))
    return Batch(
        numbers,
        x,
        None if labels == "none" else y,
        ids if any(one is not None for one in ids) else None,
        seq if any(one is not None for one in seq) else None,
    )


def _label(number: int, y: Any) -> Any:
    if y is not None and type(y) not in (str, int, float):
        raise LineError(number, f"y must be a text or a number, got {_shown(y)}")
    if isinstance(y, str) and len(y) > LONGEST_TEXT:
        raise LineError(number, f"y must have at most {LONGEST_TEXT} characters, got {len(y)}")
    return y


def _identity(number: int, given: Any) -> str | None:
    if given is not None and not (isinstance(given, str) and 1 <= len(given) <= LONGEST_TEXT):
        raise LineError(number, f"id must be a text of 1 to {LONGEST_TEXT} characters, got {_shown(given)}")
    return given


def _sequence(number: int, seq: Any) -> int | None:
    if seq is not None and not (type(seq) is int and 1 <= seq <= LAST_SEQ):
        raise LineError(number, f"seq must be an integer from 1 to {LAST_SEQ}, got {_shown(seq)}")
    return seq


def _constant(name: str) -> float:
    raise ValueError(f"numbers must be finite, got {name}")


def _malformed(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"it must be JSON: {error.msg[0].lower()}{error.msg[1:]} at character {error.pos + 1}"
    return "it must not be nested that deeply" if isinstance(error, RecursionError) else str(error)


def _check_header(names: list[str]) -> None:
    """Is the first line a header at all, and cut at the right places?"""
    if len(names) == 1 and ";" in names[0]:
        raise UsageError("the fields seem to be separated by ';'; CSV needs commas, and TSV tabs")
    if all(_NUMBER.fullmatch(name.strip()) for name in names):
        raise UsageError("the first line holds numbers only, so it is no header; add --no-header")
    if len(set(names)) < len(names):
        raise UsageError(f"the columns must have different names, got {_listed(names)}")


def _check_names(names: list[str], features: list[str] | None, label: str | None, labels: Labels) -> None:
    wanted = [*(features or ()), *(() if label is None else (label,))]
    for name in wanted:
        if name not in names:
            raise UsageError(f"there is no column {_shown(name)}; the columns are {_listed(names)}")
    if len(set(wanted)) < len(wanted):
        raise UsageError(f"--features and --label must name a column once, got {_listed(wanted)}")
    if labels != "none" and label is None:
        raise UsageError(f"this measure needs labels: name their column with --label; the columns are {_listed(names)}")


def _shown(value: object) -> str:
    """The value as it may be sent to a terminal: no control characters, not long."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(map(_shown, names[:10])) + more
