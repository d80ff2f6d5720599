"""Dates and times written as text or as numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.table import Times

UNIT = "datetime64[us]"
SAMPLE = 100  # different texts on which a format is tried before it is tried on all
YEARS = (1500, 2200)  # text such as 1234-12 is not a date
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%a %b %d %Y", "%b %Y", "%B %Y", "%b-%Y", "%Y-%m", "%Y/%m", "%Y-%b"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_LIKE_DATE = re.compile(r"[0-9]{1,4}[-/. ]|[A-Z][a-z]{2,8}[- ][0-9]|[A-Z][a-z]{2} [A-Z][a-z]{2} [0-9]")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")
_EPOCH = re.compile(r"timestamp|epoch|unix", re.IGNORECASE)
_UNITS = ((1e8, 1e10, "s"), (1e11, 1e13, "ms"), (1e14, 1e16, "us"), (1e17, 1e19, "ns"))


class ParsedTimes(NamedTuple):
    """Times, NaT where the text is missing, and a note if they could be read in another way."""

    values: Times
    note: str = ""


def parse_times(values: Sequence[str | None]) -> ParsedTimes | None:
    """Parse text as dates or times, in ISO format or in another common format; None if some text does not fit.

    Times with a time zone are converted to UTC. If day and month can be exchanged in all of them, the month comes
    first, and the note says so. O(n).

    >>> parse_times(["Jan 1 2000", None]).values
    array(['2000-01-01T00:00:00.000000',                        'NaT'],
          dtype='datetime64[us]')
    """
    distinct = list(dict.fromkeys(value for value in values if value is not None))
    if not distinct or not _LIKE_DATE.match(distinct[0].strip()):
        return None
    formats = list(islice(_formats(distinct), 2))
    if not formats:
        return None
    name, parsed = formats[0]
    known: dict[str | None, Any] = dict(zip(distinct, parsed, strict=True))
    swapped = len(formats) > 1 and {name[:5], formats[1][0][:5]} in ({"%m/%d", "%d/%m"}, {"%m-%d", "%d-%m"})
    note = f"dates such as {distinct[0]} were read with the month before the day" if swapped else ""
    return ParsedTimes(np.array([known.get(value) for value in values], UNIT), note)


def epoch_times(name: str, values: NDArray[Any]) -> Times | None:
    """Convert numbers in a column named as a timestamp, with plausible values, from seconds (or ms, us, ns) to times.

    >>> epoch_times("timestamp", np.array([1_700_000_000.0]))
    array(['2023-11-14T22:13:20.000000'], dtype='datetime64[us]')
    """
    if not _EPOCH.search(name):
        return None
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    present = values[~missing]
    for low, high, unit in _UNITS:
        if len(present) and low <= present.min() and present.max() < high:
            times = np.full(len(values), np.datetime64("NaT"), UNIT)
            factor = {"s": 10**6, "ms": 10**3, "us": 1}.get(unit)
            ticks = present * factor if factor else present // 1000
            times[~missing] = ticks.astype(np.int64).view(UNIT)
            return times
    return None


def _formats(texts: Sequence[str]) -> Iterator[tuple[str, list[datetime]]]:
    """Yield the formats that fit all texts, with the parsed times."""
    if all(_ISO.fullmatch(text.strip()) for text in texts[:SAMPLE]):
        if (parsed := _parse(texts, lambda text: datetime.fromisoformat(text.strip()))) is not None:
            yield "ISO", parsed
        return
    for name in map("".join, product(_DATES, _CLOCKS)):
        parse = lambda text, name=name: datetime.strptime(text.strip(), name)  # noqa: E731
        if _parse(texts[:SAMPLE], parse) is not None and (parsed := _parse(texts, parse)) is not None:
            yield name, parsed


def _parse(texts: Sequence[str], parse: Callable[[str], datetime]) -> list[datetime] | None:
    try:
        times = [parse(text) for text in texts]
    except ValueError:
        return None
    if not all(YEARS[0] <= time.year <= YEARS[1] for time in times):
        return None
    return [time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None) for time in times]
