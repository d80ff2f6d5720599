"""Reading examples from lines of JSON, CSV or TSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from exchangeable._extras import needed
from exchangeable.data.events.delimited import DelimitedParser, Labels
from exchangeable.data.events.errors import LineError, UsageError
from exchangeable.validation import NUMBER

if TYPE_CHECKING:
    from exchangeable.data.events.schema import Example

Format = Literal["auto", "jsonl", "csv", "tsv"]
_NUMBERS = re.compile(rb"(%s\r?(\n|\Z))*+" % NUMBER.pattern.encode())  # one in each line
_BOM = b"\xef\xbb\xbf"


class Batch(NamedTuple):
    """Examples as columns: line numbers, x and the optional fields; ``fault`` is set if the next line is invalid."""

    line: Sequence[int]
    x: list[Any]
    y: list[Any] | None = None
    id: list[str | None] | None = None
    seq: list[int | None] | None = None
    fault: LineError | None = None

    def select(self, positions: Sequence[int]) -> Batch:
        """Return the examples at these positions."""
        return Batch(
            [self.line[i] for i in positions],
            [self.x[i] for i in positions],
            None if self.y is None else [self.y[i] for i in positions],
            None if self.id is None else [self.id[i] for i in positions],
            None if self.seq is None else [self.seq[i] for i in positions],
            self.fault,
        )


class _Line(NamedTuple):
    x: Any
    y: Any = None
    id: str | None = None
    seq: int | None = None


class Reader:
    """Reads lines in a given format, or in the one detected from the first line that is not blank.

    ``auto``: a line that begins with ``{`` or ``[``, or is one number, true or false, is JSONL; any other is CSV, or
    TSV if it holds a tab and no comma. A line of JSONL is ``{"x": number or list, "y", "seq", "id", "time"}`` (only x
    is required), a bare number or a bare list. CSV and TSV have a header unless ``header`` is False, which names the
    columns 1, 2, ...; the features are the columns ``features``, or all columns except the label that hold a number in
    the first row. Each row is one line. Blank lines are skipped.

    ``rows``: the measure needs rows of numbers, not single numbers. ``events``: true and false, in small or capital
    letters, are the numbers 1 and 0 in CSV and TSV too. ``labels``: the kind of labels that it needs.
    ``notify`` is called with a message that names the features, if they were not given.

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
        events: bool = False,
        labels: Labels = "none",
        header: bool = True,
        features: Sequence[str] | None = None,
        label: str | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> None:
        self.format = format
        self.rows = rows
        self.events = events
        self.labels = labels
        self._delimited = DelimitedParser(
            rows=rows,
            events=events,
            labels=labels,
            header=header,
            features=features,
            label=label,
            notify=notify,
        )
        self._columns_named = features is not None or label is not None
        self._started = False

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, once they are known. Set them to continue with the columns of an earlier run."""
        return self._delimited.columns

    @columns.setter
    def columns(self, names: list[str] | None) -> None:
        self._delimited.columns = names

    def start(self, line: bytes) -> bool:
        """Detect the format from the first line that is not blank, and return whether this line is a header."""
        text = line.removeprefix(_BOM).decode("utf-8", "replace").strip("\r\n")
        self.format = _detect_format(text) if self.format == "auto" else self.format
        self._started = True
        if self.format != "jsonl":
            self._delimited.start(text, "," if self.format == "csv" else "\t")
            return self._delimited.header
        if self._columns_named:
            raise UsageError("--features and --label name columns of CSV or TSV, got them with JSONL")
        return False

    def read(self, lines: Sequence[bytes], first: int) -> Batch:
        """Return the examples in lines numbered from ``first``, up to the first line that is invalid."""
        if self._started and self.format == "jsonl" and not self.rows:
            block = b"\n".join(lines)
            x = list(map(float, block.split())) if _NUMBERS.fullmatch(block) else []
            if len(x) == len(lines):  # the usual case, which is fast; otherwise there are blank lines
                return Batch(range(first, first + len(lines)), x)
        numbers, parsed, fault = [], [], None
        for number, line in enumerate(lines, first):
            try:
                example = self._parse(number, line)
            except LineError as error:
                fault = error
                break
            if example is not None:
                numbers.append(number)
                parsed.append(example)
        return _as_columns(numbers, parsed, self.labels)._replace(fault=fault)

    def _parse(self, number: int, line: bytes) -> _Line | None:
        if not line.strip():
            return None
        if not self._started:
            line = line.removeprefix(_BOM)
            if self.start(line):
                return None
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            raise LineError(number, "must be UTF-8 text") from None
        return (
            self._jsonl(number, line, text) if self.format == "jsonl" else _Line(*self._delimited.parse(number, text))
        )

    def _jsonl(self, number: int, line: bytes, text: str) -> _Line:
        if NUMBER.fullmatch(text.strip()):
            return _Line(self._x(number, float(text)))
        event = _decoder()(line, number)
        return _Line(self._x(number, event.x), event.y, event.id, event.seq)

    def _x(self, number: int, value: bool | float | list[float]) -> Any:
        """Return x in the form that the measure needs: a row of numbers, or one number."""
        if isinstance(value, bool) and not self.events:
            raise LineError(number, "x must be a number, got true or false, which only --rate and --risk accept")
        row = value if isinstance(value, list) else [float(value)]
        if self.rows:
            return row
        if len(row) != 1:
            raise LineError(number, f"x must be one number for this measure, got a list of {len(row)}")
        return row[0]


@cache
def _decoder() -> Callable[[bytes, int], Example]:
    with needed("cli", "lines of JSON"):
        from exchangeable.data.events.schema import decode_example
    return decode_example


def _detect_format(text: str) -> Format:
    if text.strip()[:1] in ("{", "[") or text.strip() in ("true", "false") or NUMBER.fullmatch(text.strip()):
        return "jsonl"
    return "tsv" if "\t" in text and "," not in text else "csv"


def _as_columns(numbers: list[int], lines: list[_Line], labels: Labels) -> Batch:
    if not lines:
        return Batch([], [])
    x, y, ids, seq = (list(column) for column in zip(*lines, strict=True))
    return Batch(
        numbers,
        x,
        None if labels == "none" else y,
        ids if any(value is not None for value in ids) else None,
        seq if any(value is not None for value in seq) else None,
    )
