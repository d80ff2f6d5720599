"""When the rows of a table occurred and where they stand in the data: for sentences, records and axes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import cached_property
from typing import Literal

import numpy as np

from exchangeable.data.table import Table, Times
from exchangeable.protocols import Integers

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
Unit = Literal["Y", "M", "D", "auto"]
FIRST_YEAR, LAST_YEAR = np.datetime64("0002"), np.datetime64("9998")  # that matplotlib can draw


class Timeline:
    """The time of each row and its number in the data, as far as they are known. Rows are counted from 1.

    >>> timeline = Timeline(np.array(["2024-03-13", "2024-03-14"], "datetime64[D]"))
    >>> f"row 2{timeline.describe(2)}", timeline.iso(2)
    ('row 2 (14 March 2024)', '2024-03-14')
    """

    def __init__(self, times: Times | None = None, rows: Integers | None = None) -> None:
        self.times = times
        self.rows = rows  # row numbers in the data; None if they are 1 to n

    @classmethod
    def of(cls, table: Table) -> Timeline:
        """Return the timeline of a table."""
        return cls(table.times, table.rows)

    @cached_property
    def axis(self) -> Times | None:
        """The times, if they can be the axis of a chart: in ascending order, not all equal, and none is missing."""
        times = self.times
        if times is None or not (FIRST_YEAR <= times[0] < times[-1] < LAST_YEAR):  # false if one of them is missing
            return None
        return times if bool((times[1:] >= times[:-1]).all()) else None

    @cached_property
    def unit(self) -> Unit:
        """The largest unit that holds all times: "Y", "M" or "D"; "auto" for times of the day."""
        times = np.zeros(0, "datetime64[D]") if self.times is None else self.times[~np.isnat(self.times)]
        units: tuple[Unit, ...] = ("Y", "M", "D")
        return next((unit for unit in units if (times == times.astype(f"datetime64[{unit}]")).all()), "auto")

    def describe(self, n: int, *more: str) -> str:
        """Return a parenthesis with the number of row ``n`` in the data, its time, and more; empty without any."""
        number = "" if self.rows is None or n < 1 else f"row {self.rows[n - 1]:,} of the data"
        parts = [part for part in (number, self.format(n), *more) if part]
        return f" ({', '.join(parts)})" if parts else ""

    def format(self, n: int) -> str:
        """Return the time of row ``n`` as text; empty if it is unknown."""
        return "" if self.times is None else format_time(self.times[max(n, 1) - 1], self.unit)

    def iso(self, n: int | None) -> str | None:
        """Return the time of row ``n`` as ISO 8601; None if it is unknown."""
        if n is None or self.times is None or np.isnat(time := self.times[max(n, 1) - 1]):
            return None
        return str(np.datetime_as_string(time, unit=self.unit))

    def list_rows(self, numbers: Sequence[int]) -> str:
        """List row numbers with their times."""
        return ", ".join(f"{number:,}{self.describe(number)}" for number in numbers)


def format_time(time: np.datetime64, unit: Unit) -> str:
    """Format a year, a month, a day, or a day with the time.

    >>> format_time(np.datetime64("2024-03-14T09:30"), "auto"), format_time(np.datetime64("2024-03-14"), "M")
    ('14 March 2024, 09:30', 'March 2024')
    """
    moment = time.astype("datetime64[us]").item()
    if not isinstance(moment, dt.datetime):  # missing, or beyond the years that Python knows
        return "" if np.isnat(time) else str(time)
    month = f"{MONTHS[moment.month - 1]} {moment.year}"
    clock = moment.strftime(f"%H:%M{':%S' if moment.second else ''}")
    return {"Y": str(moment.year), "M": month, "D": f"{moment.day} {month}"}.get(unit, f"{moment.day} {month}, {clock}")
