"""Exit codes, and the exceptions that lead to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from exchangeable.data.errors import DataError

REJECTED, USAGE, UNDECIDED = 1, 2, 3
INTERRUPTED, BROKEN_PIPE = 130, 141  # 128 + signal number, as shells report SIGINT and SIGPIPE


class RejectedError(Exception):
    """The test rejected, or a database is damaged, so the exit code is 1. Nothing else exits with 1."""


class CommandError(Exception):
    """A command failed: a message for the user, and the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a `ValueError` about the value of an option into a usage error. A `DataError` is not a usage error."""
    try:
        yield
    except DataError:
        raise
    except ValueError as error:
        raise CommandError(str(error), USAGE) from error
