"""Parsing of request bodies: JSON and NDJSON become columns, or a ``Problem`` that names the line and the rule."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import numpy as np

from exchangeable.data.events.errors import LineError
from exchangeable.data.events.schema import (
    LABELS,
    OBSERVATIONS,
    TEXT_LENGTH,
    DuplicateKeyError,
    Event,
    Label,
    LateLabel,
    check_lengths,
    check_unique_keys,
    decode_line,
    decode_lines,
    unique_keys,
)
from exchangeable.protocols import Floats, Integers
from exchangeable.service.problems import Problem

__all__ = ["JSON", "NDJSON", "Batch", "Extras", "LateLabel", "json_object", "labels", "observations"]
JSON, NDJSON = "application/json", "application/x-ndjson"


class Extras(NamedTuple):
    """The optional fields of observations as columns; a column is None if no observation has the field."""

    y: list[Label | None] | None = None
    id: list[str | None] | None = None
    time: list[str | float | None] | None = None


class Batch(NamedTuple):
    """Observations as columns; ``x`` has one row for each."""

    seq: Integers
    x: Floats
    extras: Extras
    has_booleans: bool = False  # in x

    def __len__(self) -> int:
        return len(self.seq)

    def select(self, positions: list[int]) -> Batch:
        """Return the observations at these positions."""
        y, ids, times = self.extras
        extras = Extras(
            y and [y[i] for i in positions],
            ids and [ids[i] for i in positions],
            times and [times[i] for i in positions],
        )
        return Batch(self.seq[positions], self.x[positions], extras, self.has_booleans)


def observations(body: bytes, *, many: bool, batch: int = 10_000, width: int = 4096, text: int = TEXT_LENGTH) -> Batch:
    """Parse one observation, or lines of at most ``batch`` of them, each with at most ``width`` numbers.

    >>> observations(b'{"seq": 1, "x": 0.5}\\n{"seq": 2, "x": 3}', many=True).x
    array([[0.5],
           [3. ]])
    >>> observations(b'{"seq": 1, "x": NaN}', many=True)
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: line 1 must be JSON: invalid character (byte 16); numbers must be finite
    """
    with _problems():
        events = _decode(OBSERVATIONS, body, many, batch, "observation")
        columns: dict[str, list[Any]] = {
            "y": [event.y for event in events],
            "id": [event.id for event in events],
            "time": [event.time for event in events],
        }
        counts = {name: len(column) - column.count(None) for name, column in columns.items()}
        check_unique_keys(body if many else _one_line(body), {"seq": len(events), "x": len(events), **counts})
        for name, column in columns.items():
            if counts[name]:
                check_lengths(name, column, text)
        values = [event.x for event in events]
        x = _matrix(values, width)
    seq = np.array([event.seq for event in events], np.int64)
    extras = Extras(**{name: column if counts[name] else None for name, column in columns.items()})
    return Batch(seq, x, extras, bool in set(map(type, values)))


def labels(body: bytes, *, many: bool, batch: int = 10_000, text: int = TEXT_LENGTH) -> list[LateLabel]:
    """Parse one late label, or lines of at most ``batch`` of them."""
    with _problems():
        events = _decode(LABELS, body, many, batch, "label")
        counts = {"id": len(events), "never": sum(event.never for event in events)}
        counts |= {name: sum(getattr(event, name) is not None for event in events) for name in ("y", "time")}
        check_unique_keys(body if many else _one_line(body), counts)
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
    return 1 + max((_depth(part, limit - 1) for part in parts), default=0)


@contextmanager
def _problems() -> Iterator[None]:
    """Turn the error of a line into the reply to the request."""
    try:
        yield
    except LineError as error:
        status, code = (400, "bad-json") if error.malformed else (422, "bad-observation")
        raise Problem(status, code, str(error), line=error.line) from None


def _decode(decoder: msgspec.json.Decoder[Event], body: bytes, many: bool, limit: int, noun: str) -> list[Event]:
    if many and body.count(b"\n") > 2 * limit:  # counts blank lines too, before anything is parsed
        raise Problem(413, "too-large", f"a batch must have at most {limit} lines, got {body.count(10)}")
    events = decode_lines(decoder, body) if many else [decode_line(decoder, body)]
    if len(events) > limit:
        raise Problem(413, "too-large", f"a batch must have at most {limit} lines, got {len(events)}")
    if not events:
        raise Problem(422, "bad-observation", f"the body must hold at least one {noun}, got none")
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
