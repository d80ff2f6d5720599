"""The JSON schema of events, for the server, its client and ``exchangeable watch``.

The types below define which JSON is accepted; msgspec decodes it, and derives the schema for the OpenAPI document. Two
things that msgspec does not do are done here: repeated keys are rejected, and errors name the line and the rule.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from exchangeable.data.events.errors import LineError

LAST_SEQ = 2**53 - 1  # the last integer that every JSON reader keeps exactly
TEXT_LENGTH = 256  # characters of a label, an id or a time; the operator of a server may set another limit
_LENGTH = {"maxLength": TEXT_LENGTH}

Text = Annotated[str, Meta(extra_json_schema=_LENGTH)]
Name = Annotated[str, Meta(min_length=1, extra_json_schema=_LENGTH)]
Seq = Annotated[int, Meta(ge=1, le=LAST_SEQ)]
ExactInteger = Annotated[int, Meta(ge=-LAST_SEQ, le=LAST_SEQ)]
Row = Annotated[list[float], Meta(min_length=1)]
Label = str | int | float
Cell = str | int | float | bool | None
Event = TypeVar("Event")


class Example(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True, gc=False):
    """An observation whose ``seq`` is optional: a line of ``exchangeable watch``. Rates accept true and false."""

    x: bool | float | Row
    y: Text | ExactInteger | float | None = None
    id: Name | None = None
    time: Text | float | None = None
    seq: Seq | None = None


class Observation(Example, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An observation sent to a server. ``seq`` counts from 1 and defines the order.

    Without it, the server numbers observations in the order of their arrival; null is refused, since it is a mistake.
    """

    seq: Seq | msgspec.UnsetType = msgspec.UNSET  # type: ignore[assignment]


class TableRow(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An observation that is a row of a table, sent to a server. ``seq`` is as in `Observation`."""

    row: dict[str, Cell]
    seq: Seq | msgspec.UnsetType = msgspec.UNSET
    id: Name | None = None
    time: Text | float | None = None


class LateLabel(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The label of an observation that waits for it under an id, or the statement that it will never arrive."""

    id: Name
    y: Text | ExactInteger | float | None = None
    time: Text | float | None = None
    never: bool = False


OBSERVATIONS = msgspec.json.Decoder(Observation)
ROWS = msgspec.json.Decoder(TableRow)
PLAIN_ROWS = msgspec.json.Decoder(dict[str, Cell])
LABELS = msgspec.json.Decoder(LateLabel)
_EXAMPLES: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Example | bool | float | Row)

_FIELD_RULES = {
    "seq": f"must be an integer from 1 to {LAST_SEQ}",
    "x": "must be a finite number, true, false, or a list of finite numbers",
    "y": f"must be a string or a finite number (an integer must be at most {LAST_SEQ} in magnitude)",
    "id": "must be a string that is not empty",
    "time": "must be a string or a finite number",
    "never": "must be true or false",
    "row": "must be an object from columns to numbers, strings, booleans or nulls",
}
_LINE_RULES: dict[Any, str] = {
    Observation: "must be an object with x, and optionally y, seq, id and time",
    TableRow: "must be an object with row, and optionally seq, id and time",
    dict[str, Cell]: "must be an object from columns to numbers, strings, booleans or nulls",
    LateLabel: "must be an object with id, and optionally y, time and never",
}
_ANY_LINE = "must be a number, a list of numbers, or an object with x, and optionally y, seq, id and time"
_QUOTED = {name: f'"{name}"'.encode() for name in _FIELD_RULES}
_UNKNOWN = "Object contains unknown field "
_NOT_FINITE = re.compile(rb"(?i)(?<![a-z])(nan|inf|infinity)(?![a-z])")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


# ------------------------------------------------------------------ decoding


def decode_line(decoder: msgspec.json.Decoder[Event], line: bytes, number: int = 1) -> Event:
    """Decode one line, or raise ``LineError``.

    >>> decode_line(OBSERVATIONS, b'{"seq": 1, "x": 0.5}').x
    0.5
    >>> decode_line(OBSERVATIONS, b'{"seq": 0, "x": 0.5}')
    Traceback (most recent call last):
    ...
    exchangeable.data.events.errors.LineError: line 1: seq must be an integer from 1 to 9007199254740991: expected ...
    """
    try:
        return decoder.decode(line)
    except _FAULTS as error:
        raise _line_error(number, line, error, decoder) from None


def decode_lines(decoder: msgspec.json.Decoder[Event], body: bytes) -> list[Event]:
    """Decode all lines, or raise ``LineError`` at the first that is wrong. Blank lines are skipped."""
    try:
        return decoder.decode_lines(body)
    except _FAULTS as error:
        for number, line in enumerate(body.split(b"\n"), 1):
            if line.strip():
                decode_line(decoder, line, number)
        raise _line_error(1, body, error, decoder) from None


def split_array(body: bytes, most: int) -> list[bytes]:
    """Return the elements of a JSON array, each without line breaks; no more than ``most``, for a bound on memory.

    >>> split_array(b' [{"x": 1},\\n [2]] ', 9)
    [b'{"x": 1}', b'[2]']
    """
    items: list[bytes] = []
    try:
        text = body.decode()
        place, mark = _skip(text, _skip(text, 0) + 1), ","
        if text[place : place + 1] == "]":
            mark, place = "]", _skip(text, place + 1)
        while mark == "," and len(items) < most:
            _, end = _UNIQUE_KEYS.raw_decode(text, place)
            items.append(text[place:end].replace("\n", " ").encode())
            end = _skip(text, end)
            mark, place = text[end : end + 1], _skip(text, end + 1)
        if mark == "," or (mark == "]" and place == len(text)):
            return items
        reason = "the array is not closed" if mark != "]" else "there is text after the array"
    except RecursionError:
        reason = "nested too deeply"
    except DuplicateKeyError as error:
        raise LineError(len(items) + 1, str(error), malformed=True) from None
    except ValueError as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error).lower()
    raise LineError(len(items) + 1, f"must be JSON: {reason}", malformed=True)


def _skip(text: str, place: int) -> int:
    """Return where the next token begins."""
    return _BLANK.match(text, place).end()  # type: ignore[union-attr]  # it matches anywhere


class _Kind(msgspec.Struct):
    row: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_KIND = msgspec.json.Decoder(_Kind)


def has_rows(body: bytes) -> bool:
    """Return whether the first observation has a row in place of x. A column of a table may be named row, too.

    >>> has_rows(b'{"seq": 1, "row": {"a": 1}}'), has_rows(b'{"seq": 1, "x": 1, "id": "row"}'), has_rows(b'{"row": 1}')
    (True, False, False)
    """
    if b'"row"' not in body:
        return False
    first = body if b"\n" not in body.strip() else body.lstrip().partition(b"\n")[0]
    try:
        row = _KIND.decode(first).row
        return row is not msgspec.UNSET and bytes(row)[:1] == b"{"
    except (*_FAULTS, msgspec.ValidationError):
        return False


def decode_example(line: bytes, number: int = 1) -> Example:
    """Decode a line of ``exchangeable watch``: an object, or x alone as a bare number or list.

    >>> decode_example(b"[1, 2]").x
    [1.0, 2.0]
    """
    event = decode_line(_EXAMPLES, line, number)
    if not isinstance(event, Example):
        return Example(x=event)
    fields = {"x": event.x, "y": event.y, "id": event.id, "time": event.time, "seq": event.seq}
    check_unique_keys(line, {name: value is not None for name, value in fields.items()}, number)
    for name, value in fields.items():
        if isinstance(value, str):
            check_lengths(name, [value], first=number)
    return event


def check_unique_keys(body: bytes, counts: Mapping[str, int], first: int = 1) -> None:
    """Raise ``LineError`` at a line in which a key occurs twice: msgspec would keep the last value.

    ``counts`` says for each key how many decoded events have a value for it. If the key is written exactly that often
    in the body, it occurs once in each; only otherwise are the events, which msgspec has decoded, parsed again.
    """
    exact = all(body.count(_QUOTED[key]) == count for key, count in counts.items())
    if exact and b"\\" not in body:  # a key may be written with escapes
        return
    text = body.decode()
    start = _skip(text, 0)
    while start < len(text):
        try:
            _, end = _UNIQUE_KEYS.raw_decode(text, start)
        except DuplicateKeyError as error:
            raise LineError(first + text.count("\n", 0, start), str(error), malformed=True) from None
        start = _BLANK.match(text, end).end()  # type: ignore[union-attr]


class DuplicateKeyError(ValueError):
    """A JSON object in which a key occurs twice."""


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dictionary from the pairs of a JSON object: an ``object_pairs_hook`` that rejects repeated keys."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise DuplicateKeyError(f"must not repeat a key, got {repeated[:80]!r}")
    return values


_UNIQUE_KEYS = json.JSONDecoder(object_pairs_hook=unique_keys)
_BLANK = re.compile(r"[ \t\r\n]*")


def check_lengths(name: str, values: Sequence[object], limit: int = TEXT_LENGTH, first: int = 1) -> None:
    """Raise ``LineError`` at a string with more characters than the limit."""
    for number, value in enumerate(values, first):
        if isinstance(value, str) and len(value) > limit:
            raise LineError(number, f"{name} must have at most {limit} characters, got {len(value)}")


def _line_error(number: int, line: bytes, error: Exception, decoder: msgspec.json.Decoder[Any]) -> LineError:
    if isinstance(error, msgspec.ValidationError):
        return LineError(number, _describe(error, _LINE_RULES.get(decoder.type, _ANY_LINE)))
    if isinstance(error, RecursionError):
        reason = "nested too deeply"
    elif isinstance(error, UnicodeDecodeError):
        reason = "not UTF-8 text"
    else:
        reason = str(error).removeprefix("JSON is malformed: ").lower()
    if _has_half_pair(line):
        reason = "a string must not hold half of a surrogate pair"
    if _NOT_FINITE.search(line):
        reason += "; numbers must be finite"
    return LineError(number, f"must be JSON: {reason}", malformed=True)


def _has_half_pair(line: bytes) -> bool:
    """Return whether a line is JSON apart from half of a surrogate pair in a string."""
    with suppress(ValueError, RecursionError):
        return _HALF_PAIR.search(json.dumps(json.loads(line), ensure_ascii=False)) is not None
    return False


def _describe(error: msgspec.ValidationError, line_rule: str) -> str:
    """Return the rule that was broken, after the name of the field if there is one, and the message of msgspec."""
    text = str(error)
    if text.startswith(_UNKNOWN):  # the sender chose the name, so it may hold anything
        return f"{line_rule}: unknown field {text.removeprefix(_UNKNOWN)[1:-1]!r:.80}"
    detail, _, path = text.partition(" - at `$")
    field = path.strip("`.").partition("[")[0]
    rule = f"{field} {_FIELD_RULES[field]}" if field else line_rule
    return f"{rule}: {detail[0].lower()}{detail[1:]}"


def to_row(cells: Mapping[str, Any], fields: Mapping[str, Any], number: int = 1) -> TableRow:
    """Return a row of a table with its seq, id and time, or raise ``LineError``.

    >>> to_row({"size": 1.5}, {"seq": 7}).seq
    7
    """
    try:
        return msgspec.convert({"row": cells, **fields}, TableRow)
    except msgspec.ValidationError as error:
        raise LineError(number, _describe(error, _LINE_RULES[TableRow])) from None


# ------------------------------------------------------------------ encoding


def encode_example(x: Any, y: Any = None, id: str | None = None, time: Any = None) -> bytes:  # noqa: A002
    """Encode an observation without its number, or raise ``ValueError``.

    Numbers and arrays of NumPy become plain ones; dates and times become ISO 8601 text.

    >>> encode_example((1, 2.5), y="cat")
    b'{"x":[1.0,2.5],"y":"cat"}'
    """
    return _encode(Example, {"x": _plain(x), "y": _plain(y), "id": id, "time": _time(time)})


def encode_label(id: str, y: Any = None, time: Any = None, *, never: bool = False) -> bytes:  # noqa: A002
    """Encode a late label, or raise ``ValueError``.

    >>> encode_label("a", 1)
    b'{"id":"a","y":1}'
    """
    return _encode(LateLabel, {"id": id, "y": _plain(y), "time": _time(time), "never": never})


def _encode(kind: type[Any], values: dict[str, Any]) -> bytes:
    try:
        event = msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValueError(_describe(error, "an event must have the fields of the documentation")) from None
    for name, value in values.items():
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise ValueError(f"{name} {_FIELD_RULES[name]}, got {value!r:.80}")
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        raise ValueError(f"strings must be valid Unicode, got {values!r:.80}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _time(time: Any) -> Any:
    value = _plain(time)
    return value.isoformat() if hasattr(value, "isoformat") else value


# ------------------------------------------------------------------ JSON Schema


def json_schema(kind: type[Observation] | type[TableRow] | type[LateLabel]) -> dict[str, Any]:
    """Return the JSON Schema of a type, for the OpenAPI document.

    >>> json_schema(LateLabel)["required"]
    ['id']
    """
    _, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = components[kind.__name__]
    return schema
