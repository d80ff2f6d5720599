"""Errors in lines, and in the options that say how to read them."""

from __future__ import annotations


class LineError(Exception):
    """A line that cannot be used: its number and what is wrong with it.

    ``malformed`` is True if the line is not JSON at all.

    >>> str(LineError(3, "x must be a number, got 'a'")), str(LineError(3, "must be JSON"))
    ("line 3: x must be a number, got 'a'", 'line 3 must be JSON')
    """

    def __init__(self, line: int, message: str, *, malformed: bool = False) -> None:
        super().__init__(f"line {line}{'' if message.startswith('must') else ':'} {message}")
        self.line = line
        self.message = message
        self.malformed = malformed


class UsageError(ValueError):
    """The options do not fit the input."""
