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
YEARS = (1500, 2200)  # numbers outside are not years, and text such as 1234-12 is not a month
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y"),
    *("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y"),
    *("%B %d, %Y", "%a %b %d %Y", "%b-%d-%Y", "%b %Y", "%Y %b", "%B %Y", "%b-%Y", "%Y-%m", "%Y/%m", "%Y-%b"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_LIKE_DATE = re.compile(r"[0-9]{1,4}[-/. Q]|Q[1-4]|[A-Z][a-z]{2,8}[- ][0-9]|[A-Z][a-z]{2} [A-Z][a-z]{2} [0-9]")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")
_SHORT_MONTH = re.compile(r"[0-9]{4}[-/][0-9]")  # 2000-1 is the first term of a year rather than January
_QUARTER = re.compile(r"(?P<year>[0-9]{4})[ -]?Q(?P<quarter>[1-4])|Q(?P<quarter2>[1-4])[ -]?(?P<year2>[0-9]{4})")
_DAY = re.compile(r"date|day", re.IGNORECASE)
_OFFSET = re.compile(r":[0-9.]+[+-](?!00:?00)[0-9]{2}:?[0-9]{2}\s*$")
CONVERTED = "the times were converted to UTC"
_EPOCH = re.compile(r"timestamp|epoch|unix", re.IGNORECASE)
_UNITS = ((1e8, 1e10, "s"), (1e11, 1e13, "ms"), (1e14, 1e16, "us"), (1e17, 1e19, "ns"))


class ParsedTimes(NamedTuple):
    """Times, NaT where the text is missing, and a note if they could be read in another way."""

    values: Times
    note: str = ""


def parse_times(values: Sequence[str | None]) -> ParsedTimes | None:
    """Parse text as dates or times, in ISO format or in another common format; None if some text does not fit.

    Times with a time zone are converted to UTC. If day and month could be swapped in all of them, the month is read
    first, and the note says so. O(n).

    >>> parse_times(["Jan 1 2000", None]).values
    array(['2000-01-01T00:00:00.000000',                        'NaT'],
          dtype='datetime64[us]')
    """
    distinct = sorted({value for value in values if value is not None})  # so that the order of rows does not matter
    if not distinct or not all(_LIKE_DATE.match(text.strip()) for text in distinct[:SAMPLE]):
        return None
    formats = list(islice(_formats(distinct), 2))
    if not formats:
        return None
    name, parsed = formats[0]
    known: dict[str | None, Any] = dict(zip(distinct, parsed, strict=True))
    swapped = len(formats) > 1 and {name[:5], formats[1][0][:5]} in ({"%m/%d", "%d/%m"}, {"%m-%d", "%d-%m"})
    note = f"dates such as {distinct[0]} were read with the month before the day" if swapped else ""
    note = CONVERTED if any(_OFFSET.search(text) for text in distinct) else note
    return ParsedTimes(np.array([known.get(value) for value in values], UNIT), note)


def numeric_times(name: str, values: NDArray[Any]) -> Times | None:
    """Convert numbers to times if the column name suggests it and all values are plausible; otherwise return None.

    A timestamp is in seconds (or ms, us, ns) since 1970; a date may be written as 20240131.

    >>> numeric_times("timestamp", np.array([1_700_000_000.0]))
    array(['2023-11-14T22:13:20.000000'], dtype='datetime64[us]')
    """
    convert = _from_epoch if _EPOCH.search(name) else _from_digits if _DAY.search(name) else None
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if convert is None or missing.all() or (converted := convert(values[~missing])) is None:
        return None
    times = np.full(len(values), np.datetime64("NaT"), UNIT)
    times[~missing] = converted
    return times


def _from_epoch(values: NDArray[Any]) -> Times | None:
    for low, high, unit in _UNITS:
        if low <= values.min() and values.max() < high:
            ticks = values // 1000 if unit == "ns" else values
            wide = ticks.astype(np.float64 if ticks.dtype.kind == "f" else np.int64)  # small integers would wrap around
            return (wide * {"s": 10**6, "ms": 10**3}.get(unit, 1)).astype(np.int64).view(UNIT)
    return None


def _from_digits(values: NDArray[Any]) -> Times | None:
    """Convert numbers such as 20240131."""
    if (values < YEARS[0] * 10**4).any() or (values > YEARS[1] * 10**4).any() or (values != np.floor(values)).any():
        return None
    year, month, day = (part.astype(np.int64) for part in (values // 10**4, values // 100 % 100, values % 100))
    if (month < 1).any() or (month > 12).any() or (day < 1).any():
        return None
    first = (12 * (year - 1970) + month - 1).view("datetime64[M]")
    days = first.astype("datetime64[D]") + (day - 1)
    return days.astype(UNIT) if (days.astype("datetime64[M]") == first).all() else None


def _formats(texts: Sequence[str]) -> Iterator[tuple[str, list[datetime]]]:
    """Yield the formats that fit all texts, with the parsed times."""
    for name, quick in (("ISO", _parse_iso), ("quarters", _parse_quarter)):
        if (parsed := _parse(texts, quick)) is not None:
            yield name, parsed
            return
    if any(_SHORT_MONTH.fullmatch(text.strip()) for text in texts):
        return
    for name in map("".join, product(_DATES, _CLOCKS)):
        parse = lambda text, name=name: datetime.strptime(text.strip(), name)  # noqa: E731
        if _parse(texts[:SAMPLE], parse) is not None and (parsed := _parse(texts, parse)) is not None:
            yield name, parsed


def _parse_iso(text: str) -> datetime:
    if not _ISO.fullmatch(text.strip()):
        raise ValueError
    return datetime.fromisoformat(text.strip())


def _parse_quarter(text: str) -> datetime:
    match = _QUARTER.fullmatch(text.strip())
    if match is None:
        raise ValueError
    year, quarter = int(match["year"] or match["year2"]), int(match["quarter"] or match["quarter2"])
    return datetime(year, 3 * quarter - 2, 1)


def _parse(texts: Sequence[str], parse: Callable[[str], datetime]) -> list[datetime] | None:
    try:
        times = [parse(text) for text in texts]
        times = [time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None) for time in times]
    except (ValueError, OverflowError):
        return None
    months = all(time.day == 1 for time in times)
    return None if months and not all(YEARS[0] <= time.year <= YEARS[1] for time in times) else times
