"""The times of the rows: from the index of a pandas frame, from columns of times, or from years."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.roles import SORTED, Roles, is_sorted, is_year
from exchangeable.data.table import Table
from exchangeable.data.times import UNIT
from exchangeable.data.values import Column, read_series
from exchangeable.validation import format_value


def index_times(index: Any, rows: NDArray[np.intp]) -> list[Column]:
    """Return the index of a pandas frame, if it holds times."""
    kind = str(getattr(index, "dtype", ""))
    if not kind.startswith(("datetime64", "period")):
        return []
    import narwhals as nw

    index = index.to_timestamp() if kind.startswith("period") else index
    name = str(index.name) if index.name is not None else "the index"
    return [read_series(name, nw.from_native(index.to_series(), series_only=True), False).take(rows)]


def time_columns(features: Sequence[Column], order: Column | None, roles: Roles) -> list[Column]:
    """Return the columns of times; if there are none, years by which the rows are sorted."""
    if roles.times:
        return roles.times
    columns = [order] if order is not None else []
    columns += [column for column in features if roles.aside.get(column.name) == SORTED]
    return [_years_as_times(column) for column in columns if is_year(column)]


def _years_as_times(column: Column) -> Column:
    years = np.where(column.missing, np.nan, column.values - 1970.0).astype("datetime64[Y]")
    return Column(column.name, "times", years.astype(UNIT))


def with_times(table: Table, columns: Sequence[Column], order: Column | None) -> Table:
    """Add the times of the rows, from the first column that is in ascending order, or else from the first one."""
    if order is not None and order.kind == "times":
        columns = [order]
    if not columns:
        return table
    chosen = next((column for column in columns if _ascending(column)), columns[0])
    notes: tuple[str, ...] = ()
    if order is None and not _ascending(chosen):
        arranged = "in descending order" if is_sorted(chosen.values[~chosen.missing]) else "not sorted"
        notes = (
            f"the times in {format_value(chosen.name)} are {arranged}; the rows were tested in the order of the data "
            "(set order to this column to sort them)",
        )
    return table._replace(times=chosen.values, time_name=chosen.name, notes=table.notes + notes)


def _ascending(column: Column) -> bool:
    present = column.values[~column.missing]
    return bool((present[1:] >= present[:-1]).all())
