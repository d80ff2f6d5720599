"""Creating many streams with one request: each line is the name of a stream, with its configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from exchangeable.service import parsing
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Limits
from exchangeable.service.stream import LiveStream
from exchangeable.service.stream_config import NAME, parse_configuration
from exchangeable.validation import format_value

GROUP = 50  # streams that are created in one transaction
MAX_ERRORS = 100  # that a reply describes


class NewStream(NamedTuple):
    """A line of the request. ``template`` is an empty stream of its configuration, shared by equal configurations."""

    line: int
    name: str
    template: LiveStream


def parse_streams(body: bytes, limits: Limits) -> list[NewStream]:
    """Parse the lines of a request; raise `Problem` with all invalid lines if there are any.

    >>> [one.name for one in parse_streams(b'{"name": "a"}\\n{"name": "b", "seed": 1}', Limits())]
    ['a', 'b']
    """
    parse, streams, errors = _parser(limits), list[NewStream](), list[dict[str, Any]]()
    for number, line in enumerate(body.split(b"\n"), 1):
        if line.strip():
            try:
                streams.append(NewStream(number, *parse(line)))
            except Problem as problem:
                errors.append({"line": number, **problem.body})
    _check_names(streams, errors)
    if errors:
        raise rejected(422, "nothing was created", errors, created=0, existing=0)
    return streams


def _parser(limits: Limits) -> Callable[[bytes], tuple[str, LiveStream]]:
    """Return a function that parses a line; equal configurations are parsed once."""
    known: dict[str, LiveStream] = {}

    def parse(line: bytes) -> tuple[str, LiveStream]:
        values = parsing.json_object(line, limits.json_depth)
        name = values.pop("name", None)
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            rule = "name must have 1 to 64 characters of a-z, 0-9, '.', '_' and '-'"
            raise Problem(422, "bad-request", f"{rule}, got {format_value(name)}")
        key = json.dumps(values, sort_keys=True)
        if key not in known:
            configuration = parse_configuration(
                values, cap=limits.nearest, waiting=limits.waiting, reference=limits.reference
            )
            known[key] = LiveStream.new("", configuration, 0.0)
        return name, known[key]

    return parse


def _check_names(streams: list[NewStream], errors: list[dict[str, Any]]) -> None:
    first: dict[str, int] = {}
    for line, name, _ in streams:
        if first.setdefault(name, line) != line:
            message = f"name must occur once in a request, got {name!r} in line {first[name]} too"
            errors.append({"line": line, "error": "bad-request", "message": message})
    errors.sort(key=lambda error: int(error["line"]))


def rejected(status: int, outcome: str, errors: list[dict[str, Any]], *, created: int, existing: int) -> Problem:
    """Return the reply to a request with lines that were rejected.

    >>> error = {"line": 2, "error": "bad-request", "message": "name must be given"}
    >>> rejected(422, "nothing was created", [error], created=0, existing=0).message
    '1 line was rejected, nothing was created; the first is line 2: name must be given'
    """
    first = errors[0]
    lines = "1 line was" if len(errors) == 1 else f"{len(errors)} lines were"
    message = f"{lines} rejected, {outcome}; the first is line {first['line']}: {first['message']}"
    counts = {"created": created, "existing": existing}
    return Problem(status, first["error"], message, **counts, rejected=len(errors), errors=errors[:MAX_ERRORS])
