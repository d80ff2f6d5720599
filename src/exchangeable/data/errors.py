"""Errors about tables. Both are subclasses of `ValueError`; the command line has a different exit code for each."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager

from exchangeable.validation import format_value

LISTED = 10  # names in a message
UNNAMED = "the data"  # the name of data that has no name of its own


class DataError(ValueError):
    """The data cannot be read or tested."""


class ColumnError(ValueError):
    """The request does not fit the data: there is no such column, or a column has two uses."""


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Start the messages of both errors with the name of a file, or of one of two sets."""
    try:
        yield
    except (DataError, ColumnError) as error:
        raise error if name == UNNAMED else type(error)(f"{name}: {error}") from None


def check_known(option: str, wanted: Iterable[str], names: Sequence[str], also: Set[str] = frozenset()) -> None:
    """Raise ColumnError, with the most similar name, if a wanted column is neither in ``names`` nor in ``also``."""
    known = set(names)
    for name in wanted:
        if name not in known and name not in also:
            listed = [*names, *sorted(also)]
            near = difflib.get_close_matches(name, listed[:1000], n=1)
            hint = f"did you mean {format_value(near[0])}? The" if near else "the"
            raise ColumnError(
                f"{option} must name a column of the data, got {format_value(name)}; {hint} columns are "
                f"{list_names(listed)}"
            )


def list_names(names: Sequence[str]) -> str:
    """List names for a message, at most ten of them."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(map(format_value, names[:LISTED])) + more
