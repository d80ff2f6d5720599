"""What arrives: JSON and NDJSON, turned into columns or refused with the line and the law."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from exchangeable.protocols import Floats, Integers
from exchangeable.service.problems import Problem

LAST_SEQ = 2**53 - 1  # the last integer that every JSON reader keeps exactly
JSON, NDJSON = "application/json", "application/x-ndjson"
TEXT = 256  # characters of a label, an id or a time, unless the operator allows more or fewer
Text = str
Name = Annotated[str, msgspec.Meta(min_length=1)]
Label = str | int | float


class Observation(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One line of a batch."""

    seq: Annotated[int, msgspec.Meta(ge=1, le=LAST_SEQ)]
    x: float | list[float]
    y: Text | int | float | None = None
    id: Name | None = None
    time: Text | float | None = None


class LateLabel(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A label and the id of the observation that waits for it, or the statement that it will never come."""

    id: Name
    y: Text | int | float | None = None
    time: Text | float | None = None
    never: bool = False


class Extras(NamedTuple):
    """What observations carry beside seq and x: columns, each None where no observation has it."""

    y: list[Label | None] | None = None
    id: list[str | None] | None = None
    time: list[str | float | None] | None = None


class Batch(NamedTuple):
    """Observations as columns; ``x`` has one row for each."""

    seq: Integers
    x: Floats
    extras: Extras

    def __len__(self) -> int:
        return len(self.seq)

    def part(self, start: int, stop: int) -> Batch:
        """The observations at positions start to stop - 1."""
        y, names, times = self.extras
        extras = Extras(y and y[start:stop], names and names[start:stop], times and times[start:stop])
        return Batch(self.seq[start:stop], self.x[start:stop], extras)

    def taken(self, places: list[int]) -> Batch:
        """The observations at these positions."""
        y, names, times = self.extras
        extras = Extras(
            y and [y[i] for i in places], names and [names[i] for i in places], times and [times[i] for i in places]
        )
        return Batch(self.seq[places], self.x[places], extras)


Line = TypeVar("Line", Observation, LateLabel)
OBSERVATIONS = msgspec.json.Decoder(Observation)
LABELS = msgspec.json.Decoder(LateLabel)


def observations(body: bytes, *, many: bool, batch: int = 10_000, width: int = 4096, text: int = TEXT) -> Batch:
    """Admit one observation, or lines of them: at most ``batch``, each with at most ``width`` numbers.

    >>> observations(b'{"seq": 1, "x": 0.5}\\n{"seq": 2, "x": 3}', many=True).x
    array([[0.5],
           [3. ]])
    >>> observations(b'{"seq": 1, "x": NaN}', many=True)
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: line 1 must be a JSON object: JSON is malformed...
    """
    lines = _lines(OBSERVATIONS, body, many, batch, "observation")
    extras = _extras(lines, text)
    if _repeated(body, len(lines), extras):
        _refuse_repeated(body, many)
    seq = np.array([line.seq for line in lines], np.int64)
    return Batch(seq, _rows([line.x for line in lines], width), extras)


def _repeated(body: bytes, lines: int, extras: Extras) -> bool:
    """Whether a line may have a key twice: False where the number of times that keys are written rules it out."""
    written = {key: body.count(b'"%s"' % key.encode()) for key in Observation.__struct_fields__}
    once = [written["seq"], written["x"]] == [lines, lines]
    for key, column in extras._asdict().items():
        once &= written[key] == (0 if column is None else lines) and (column is None or None not in column)
    return not once or b"\\" in body  # a key may be written with escapes


def _refuse_repeated(body: bytes, many: bool) -> None:
    """Refuse a line that has a key twice: which of the two would be meant?"""
    for number, line in enumerate(body.split(b"\n") if many else [body], 1):
        if line.strip():
            try:
                json.loads(line, object_pairs_hook=_unique)
            except Problem as problem:
                raise _bad(number, problem.message.removeprefix("the body "), 400, "bad-json") from None
            except ValueError:  # several objects on one line
                continue


def labels(body: bytes, *, many: bool, batch: int = 10_000, text: int = TEXT) -> list[LateLabel]:
    """Admit one late label, or lines of them."""
    lines = _lines(LABELS, body, many, batch, "label")
    _refuse_repeated(body, many)
    for number, line in enumerate(lines, 1):
        _short(number, text, y=line.y, id=line.id, time=line.time)
        if line.never == (line.y is not None):
            raise _bad(number, "either y or never: true must be given, not both")
        if line.never and line.time is not None:
            raise _bad(number, "time must be left out if the label never comes")
    return lines


def _short(line: int, text: int, **values: object) -> None:
    """Refuse long texts, and numbers that are labels but would not stay themselves."""
    for key, value in values.items():
        if isinstance(value, str) and len(value) > text:
            raise _bad(line, f"{key} must have at most {text} characters, got {len(value)}")
    y = values.get("y")
    if isinstance(y, int) and abs(y) > LAST_SEQ:
        raise _bad(
            line, f"y must be a text, or a number that a float holds exactly, got one of {len(str(abs(y)))} digits"
        )


def json_object(body: bytes, depth: int = 8) -> dict[str, Any]:
    """Admit one JSON object without NaN, infinities or repeated keys, and not nested deeper than ``depth``.

    >>> json_object(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: the body must not have a key twice, got 'a'
    """
    try:
        value = json.loads(_text(body), object_pairs_hook=_unique, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        law = "nested less deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, "bad-json", f"the body must be a JSON object: {law}") from error
    if not isinstance(value, dict):
        raise Problem(422, "bad-request", f"the body must be a JSON object, got {type(value).__name__}")
    if _depth(value, depth) > depth:
        raise Problem(422, "bad-request", f"the body must not be nested deeper than {depth}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise Problem(400, "bad-json", f"the body must not have a key twice, got {key[:80]!r}")
        made[key] = value
    return made


def _constant(name: str) -> float:
    raise Problem(422, "bad-request", f"numbers must be finite, got {name}")


def _depth(value: Any, limit: int) -> int:
    if limit < 0 or not isinstance(value, (dict, list)):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(part, limit - 1) for part in parts), default=0)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(400, "bad-json", f"the body must be UTF-8, got another byte at {error.start}") from error


def _lines(decoder: msgspec.json.Decoder[Line], body: bytes, many: bool, most: int, noun: str) -> list[Line]:
    if many and body.count(b"\n") > 2 * most:  # blank lines count here too, before anything is parsed
        raise Problem(413, "too-large", f"a batch must have at most {most} lines, got {body.count(10)}")
    try:
        lines = decoder.decode_lines(body) if many else [decoder.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _malformed(decoder, body, many, error) from error
    if len(lines) > most:
        raise Problem(413, "too-large", f"a batch must have at most {most} lines, got {len(lines)}")
    if not lines:
        raise Problem(422, "bad-observation", f"the body must hold at least one {noun}, got none")
    return lines


def _malformed(decoder: msgspec.json.Decoder[Line], body: bytes, many: bool, error: Exception) -> Problem:
    """The first line at fault, found by reading them one by one."""
    for number, line in enumerate(body.split(b"\n") if many else [body], 1):
        try:
            if line.strip() or not many:
                decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            return _bad(number, *_law(fault))
    return _bad(1, *_law(error))


def _law(fault: Exception) -> tuple[str, int, str]:
    """What is wrong with a line, in our words; whether it is JSON at all decides the status."""
    if not isinstance(fault, msgspec.ValidationError):
        said = "nested too deeply" if isinstance(fault, RecursionError) else str(fault)
        return f"must be a JSON object: {said}", 400, "bad-json"
    said, _, where = str(fault).partition(" - at `$")
    key = where.strip("`.").partition("[")[0]
    law = LAWS.get(key, "must have the keys of the documentation")
    return f"{key} {law}: {said}".lstrip(), 422, "bad-observation"


LAWS = {
    "seq": f"must be an integer from 1 to {LAST_SEQ}",
    "x": "must be a finite number or a list of them",
    "y": "must be a text or a finite number",
    "id": "must be a text, and not empty",
    "time": "must be a text or a finite number",
    "never": "must be true or false",
}


def _bad(line: int, law: str, status: int = 422, code: str = "bad-observation") -> Problem:
    return Problem(status, code, f"line {line}{'' if law.startswith('must') else ':'} {law}", line=line)


def _rows(x: Sequence[float | list[float]], width: int) -> Floats:
    """One row for each observation, all of one width."""
    if any(type(row) is list for row in x):
        x = [row if isinstance(row, list) else [row] for row in x]
    try:
        made = np.array(x, np.float64)
    except ValueError:
        made = np.empty(0)
    if made.ndim == 1 and len(made) == len(x):
        return made.reshape(-1, 1)
    if made.ndim != 2 or not 1 <= made.shape[1] <= width:
        raise _ragged(x, width)
    return made


def _ragged(x: Sequence[Any], width: int) -> Problem:
    first = len(x[0])
    for number, got in enumerate(map(len, x), 1):
        if not 1 <= got <= width:
            return _bad(number, f"x must hold from 1 to {width} numbers, got {got}")
        if got != first:
            return _bad(number, f"x must be of one width in a batch, {first} here, got {got}")
    return _bad(1, "x must be a number or a list of numbers")


def _extras(lines: Sequence[Observation], text: int) -> Extras:
    if all(line.y is None and line.id is None and line.time is None for line in lines):
        return Extras()
    for number, line in enumerate(lines, 1):
        _short(number, text, y=line.y, id=line.id, time=line.time)
    return Extras(*(_held([getattr(line, key) for line in lines]) for key in Extras._fields))


def _held(column: list[Any]) -> list[Any] | None:
    return column if any(value is not None for value in column) else None
