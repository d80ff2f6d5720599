"""How a command ends: exit codes, and the one sentence that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REJECTED, USAGE, UNDECIDED = 1, 2, 3
INTERRUPTED, UNREAD = 130, 141  # as shells have it for SIGINT and SIGPIPE


class RejectedError(Exception):
    """The verdict whose exit code is 1; nothing else ends with it."""


class Failure(Exception):  # noqa: N818
    """One sentence for the user, and the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def usage(make: Callable[[], Any]) -> Any:
    """Build an object from options: a refused value is wrong usage."""
    try:
        return make()
    except ValueError as error:
        raise Failure(str(error), USAGE) from error
