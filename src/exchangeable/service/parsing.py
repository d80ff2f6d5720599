"""Parsing of request bodies: JSON, NDJSON and CSV become columns, or a ``Problem`` that names the line and the rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from exchangeable.data.events.errors import LineError
from exchangeable.data.events.schema import (
    LABELS,
    OBSERVATIONS,
    PLAIN_ROWS,
    ROWS,
    TEXT_LENGTH,
    DuplicateKeyError,
    Event,
    Label,
    LateLabel,
    Observation,
    TableRow,
    check_lengths,
    check_unique_keys,
    decode_line,
    decode_lines,
    has_rows,
    split_array,
    unique_keys,
)
from exchangeable.protocols import Floats, Integers
from exchangeable.service.problems import Problem
from exchangeable.service.row_fields import RowFields

__all__ = ["CSV", "JSON", "NDJSON", "Batch", "Extras", "Form", "LateLabel", "json_object", "labels", "observations"]
JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
Form = Literal["json", "ndjson"]


class Extras(NamedTuple):
    """The optional fields of observations as columns; a column is None if no observation has the field."""

    y: list[Label | None] | None = None
    id: list[str | None] | None = None
    time: list[str | float | None] | None = None
    row: list[dict[str, Any]] | None = None  # in place of x, in streams of tables


@dataclass(frozen=True, eq=False)
class Batch:
    """Observations as columns; ``x`` has one row for each."""

    seq: Integers
    x: Floats
    extras: Extras
    has_booleans: bool = False  # in x
    numbered: bool = True  # by the client; else ``seq`` counts from 1, until the stream numbers the batch
    lines: Integers | None = None  # of rows of a table: the line or the item of the body that holds each
    noun: str = "line"  # or "item"
    created: float | None = None  # of the stream whose columns decided how the rows were read

    def __len__(self) -> int:
        return len(self.seq)

    def select(self, positions: list[int]) -> Batch:
        """Return the observations at these positions."""
        selected: dict[str, Any] = {
            name: column and [column[i] for i in positions] for name, column in self.extras._asdict().items()
        }
        lines = None if self.lines is None else self.lines[positions]
        return replace(self, seq=self.seq[positions], x=self.x[positions], extras=Extras(**selected), lines=lines)

    def at(self, next_seq: int) -> Batch:
        """Return the batch with numbers: its own, or those from ``next_seq`` on."""
        return self if self.numbered else replace(self, seq=np.arange(next_seq, next_seq + len(self)))

    def place(self, i: int) -> str:
        """Name an observation in an error message."""
        return f"at seq {self.seq[i]}" if self.numbered else f"in observation {i + 1} of the request"


def observations(
    body: bytes,
    form: Form = "ndjson",
    *,
    fields: RowFields | None = None,
    batch: int = 10_000,
    width: int = 4096,
    text: int = TEXT_LENGTH,
) -> Batch:
    """Parse one observation, or an array or lines of at most ``batch`` of them, each with at most ``width`` numbers.

    ``fields`` is given for streams of tables: their observations are objects from columns to cells, or hold such an
    object as ``row``.

    >>> observations(b'{"seq": 1, "x": 0.5}\\n{"seq": 2, "x": 3}').x
    array([[0.5],
           [3. ]])
    >>> observations(b'[{"x": 0.5}, {"x": 3}]', "json").numbered
    False
    >>> observations(b'{"seq": 1, "x": NaN}')
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: line 1 must be JSON: invalid character (byte 16); numbers must be finite
    """
    with as_problems(noun := _item(body, form)):
        lines, many = _split(body, form, batch)
        keys = lines if many else _one_line(lines)
        if has_rows(keys):
            events = _decode(ROWS, lines, many, batch, "observation")
            return replace(_rows(events, keys, width, text), noun=noun)
        if fields is not None:
            plain = _decode(PLAIN_ROWS, lines, many, batch, "observation")
            events = [fields.separate(row, i) for i, row in enumerate(plain, 1)]
            return replace(_rows(events, keys, width, text), noun=noun)
        observed = _decode(OBSERVATIONS, lines, many, batch, "observation")
        columns: dict[str, list[Any]] = {
            "y": [event.y for event in observed],
            "id": [event.id for event in observed],
            "time": [event.time for event in observed],
        }
        seqs, values = _given_seqs(observed), [event.x for event in observed]
        counts = {name: len(column) - column.count(None) for name, column in {"seq": seqs, **columns}.items()}
        check_unique_keys(keys, {"x": len(observed), **counts})
        return numbers(seqs, values, columns, width, text)


def numbers(
    seqs: Sequence[int | None], values: Sequence[Any], columns: dict[str, list[Any]], width: int, text: int
) -> Batch:
    """Return observations of numbers; ``columns`` holds y, id and time."""
    x, given = _matrix(values, width), {}
    for name, column in columns.items():
        if any(value is not None for value in column):
            check_lengths(name, column, text)
            given[name] = column
    return Batch(_seq(seqs), x, Extras(**given), bool in set(map(type, values)), _is_numbered(seqs))


def _given_seqs(events: Sequence[Observation | TableRow]) -> list[int | None]:
    return [None if event.seq is msgspec.UNSET else event.seq for event in events]


def _is_numbered(seqs: Sequence[int | None]) -> bool:
    """Return whether all observations have a number; raise if only some have one."""
    missing = seqs.count(None)
    if 0 < missing < len(seqs):
        rule = "seq must be given for all observations of a request, or for none"
        raise LineError(list(seqs).index(None) + 1, f"{rule}, got none")
    return not missing


def _seq(seqs: Sequence[int | None]) -> Integers:
    return np.array(seqs, np.int64) if _is_numbered(seqs) else np.arange(1, len(seqs) + 1)


def _rows(events: list[TableRow], body: bytes, width: int, text: int) -> Batch:
    check_unique_keys(body, {"seq": -1})  # columns may be named like fields, so their counts say nothing
    return rows(events, width, text)


def rows(events: Sequence[TableRow], width: int, text: int) -> Batch:
    """Return observations that are rows of a table; there is no x."""
    for number, event in enumerate(events, 1):
        if len(event.row) > width:
            raise LineError(number, f"row must have at most {width} columns, got {len(event.row)}")
        for strings in (event.row, event.row.values()):
            check_lengths("row", list(strings), text, first=number)
        check_lengths("id", [event.id], text, first=number)
        check_lengths("time", [event.time], text, first=number)
    ids, times, seqs = [event.id for event in events], [event.time for event in events], _given_seqs(events)
    extras = Extras(
        id=ids if any(id is not None for id in ids) else None,  # noqa: A001
        time=times if any(time is not None for time in times) else None,
        row=[event.row for event in events],
    )
    lines = np.arange(1, len(events) + 1)
    return Batch(_seq(seqs), np.empty((len(events), 0)), extras, numbered=_is_numbered(seqs), lines=lines)


def labels(body: bytes, form: Form = "ndjson", *, batch: int = 10_000, text: int = TEXT_LENGTH) -> list[LateLabel]:
    """Parse one late label, or an array or lines of at most ``batch`` of them."""
    with as_problems(_item(body, form)):
        lines, many = _split(body, form, batch)
        events = _decode(LABELS, lines, many, batch, "label")
        counts = {"id": len(events), "never": sum(event.never for event in events)}
        counts |= {name: sum(getattr(event, name) is not None for event in events) for name in ("y", "time")}
        check_unique_keys(lines if many else _one_line(lines), counts)
        for name in ("id", "y", "time"):
            check_lengths(name, [getattr(event, name) for event in events], text)
        for number, event in enumerate(events, 1):
            if event.never == (event.y is not None):
                raise LineError(number, "either y or never: true must be given, not both")
            if event.never and event.time is not None:
                raise LineError(number, "time must be left out if the label will never arrive")
    return events


def json_object(body: bytes, depth: int = 8) -> dict[str, Any]:
    """Parse one JSON object without NaN, infinities or repeated keys, and not nested deeper than ``depth``.

    >>> json_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: the body must not repeat a key, got 'a'
    """
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=unique_keys, parse_constant=_reject_constant)
    except UnicodeDecodeError as error:
        message = f"the body must be UTF-8, got an invalid byte at {error.start}"
        raise Problem(400, "bad-json", message) from error
    except DuplicateKeyError as error:
        raise Problem(400, "bad-json", f"the body {error}") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, "bad-json", f"the body must be a JSON object: {reason}") from error
    if not isinstance(value, dict):
        raise Problem(422, "bad-request", f"the body must be a JSON object, got {type(value).__name__}")
    if _depth(value, depth) > depth:
        raise Problem(422, "bad-request", f"the body must not be nested deeper than {depth}")
    return value


def _reject_constant(name: str) -> float:
    raise Problem(422, "bad-request", f"numbers must be finite, got {name}")


def _depth(value: Any, limit: int) -> int:
    if limit < 0 or not isinstance(value, (dict, list)):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(part, limit - 1) for part in parts if isinstance(part, (dict, list))), default=0)


@contextmanager
def as_problems(name: str = "line", line: Callable[[int], int] = lambda position: position) -> Iterator[None]:
    """Turn the error of an observation into the reply to the request; ``line`` finds its line by its position."""
    try:
        yield
    except LineError as error:
        status, code = (400, "bad-json") if error.malformed else (422, "bad-observation")
        number = line(error.line)
        message = f"{name} {number}{'' if error.message.startswith('must') else ':'} {error.message}"
        raise Problem(status, code, message, line=number) from None


def too_long(limit: int, got: int) -> Problem:
    """Return the reply to a request with too many observations."""
    return Problem(413, "too-large", f"a batch must have at most {limit} lines, got {got}")


def check_any(events: Sequence[Any], limit: int, noun: str) -> None:
    """Raise unless there is an observation or a label, and not more than the limit."""
    if len(events) > limit:
        raise too_long(limit, len(events))
    if not events:
        raise Problem(422, "bad-observation", f"the body must hold at least one {noun}, got none")


def _item(body: bytes, form: Form) -> str:
    """Return what errors call an observation."""
    return "item" if form == "json" and body.lstrip()[:1] == b"[" else "line"


def _split(body: bytes, form: Form, limit: int) -> tuple[bytes, bool]:
    """Return lines, or one object, and whether they are lines. An array becomes lines."""
    if _item(body, form) == "item":
        return b"\n".join(split_array(body, limit + 1)), True
    return body, form == "ndjson"


def _decode(decoder: msgspec.json.Decoder[Event], body: bytes, many: bool, limit: int, noun: str) -> list[Event]:
    if many and body.count(b"\n") > 2 * limit:  # counts blank lines too, before anything is parsed
        raise too_long(limit, body.count(b"\n"))
    events = decode_lines(decoder, body) if many else [decode_line(decoder, body)]
    check_any(events, limit, noun)
    return events


def _one_line(body: bytes) -> bytes:
    """Return a JSON document without line breaks, which can only occur between its tokens."""
    return body.replace(b"\n", b" ")


def _matrix(x: Sequence[float | list[float]], width: int) -> Floats:
    """Return one row for each observation, all of one width."""
    if any(type(row) is list for row in x):
        x = [row if isinstance(row, list) else [row] for row in x]
    try:
        matrix = np.array(x, np.float64)
    except ValueError:
        matrix = np.empty(0)
    if matrix.ndim == 1 and len(matrix) == len(x):
        return matrix.reshape(-1, 1)
    if matrix.ndim != 2 or matrix.shape[1] > width:
        raise _width_error(x, width)
    return matrix


def _width_error(x: Sequence[Any], width: int) -> LineError:
    first = len(x[0])
    for number, got in enumerate(map(len, x), 1):
        if got > width:
            return LineError(number, f"x must hold from 1 to {width} numbers, got {got}")
        if got != first:
            return LineError(number, f"x must be of one width in a batch, {first} here, got {got}")
    return LineError(1, "x must be a number or a list of numbers")
