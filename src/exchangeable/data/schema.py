"""The schema step: turn data of any kind into a `Table`, by rules that all entry points share.

Let B be the bag of the rows. If the rows are exchangeable, so are the rows ``g(row, B)`` for every g that does not look
at their order. Medians, categories and kinds of columns come from B, and a row is left out for a value of its own. So
the schema step does not affect any guarantee. (See `exchangeable.data.roles` for the one rule that looks at the order.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.canonical import table_seed
from exchangeable.data.encode import encode, missing_indicators, missing_notes
from exchangeable.data.errors import ColumnError, DataError, check_known, naming
from exchangeable.data.frames import Frame, open_frame, take_rows
from exchangeable.data.labels import LabelKind, convert_labels, read_labels
from exchangeable.data.roles import SORTED, Roles, assign_roles
from exchangeable.data.table import Table, TableColumn, constant
from exchangeable.data.time_axis import index_times, time_columns, with_times
from exchangeable.data.times import SAMPLE, parse_times
from exchangeable.data.values import Column
from exchangeable.pvalues import thetas
from exchangeable.validation import format_value

ORDER_STREAM = 2**32 - 2  # the stream of random numbers that orders rows with equal times
_INTEGER = re.compile(r"[+-]?[0-9]{1,400}")
SHOWN_ROWS = 3  # invalid cells of a column that a message lists


class Preparation(NamedTuple):
    """How the columns of a table are chosen and read."""

    label: Any = None
    order: str | None = None
    features: Sequence[str] | str | None = None
    drop: Sequence[str] | str = ()
    keep: Sequence[str] | str = ()
    categorical: Sequence[str] | str = ()
    missing: str = "indicator"
    invalid: str = "error"

    def checked(self) -> Preparation:
        """Return the validated options, with tuples of names instead of single names."""
        for option, value, allowed in (
            ("missing", self.missing, ("indicator", "drop", "error")),
            ("invalid", self.invalid, ("error", "missing")),
        ):
            if value not in allowed:
                raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, got {format_value(value)}")
        if self.order is not None and not isinstance(self.order, (str, int)):
            raise ValueError(f"order must name a column, got {format_value(self.order)}")
        return self._replace(
            order=None if self.order is None else str(self.order),
            features=None if self.features is None else _names("features", self.features),
            drop=_names("drop", self.drop),
            keep=_names("keep", self.keep),
            categorical=_names("categorical", self.categorical),
        )

    def selection(self) -> dict[str, Any]:
        """Return the columns of a file that are needed, as arguments of `exchangeable.data.files.read_file`."""
        if self.features is None:
            return {"drop": self.drop}
        named = (label_name(self), self.order, *self.features, *self.keep, *self.categorical)
        return {"columns": [name for name in named if name is not None]}


class Prepared(NamedTuple):
    """A table, and functions that return the features as the user passed them, for a model that scores them."""

    table: Table
    library: str
    natives: Sequence[Callable[[], Any]]  # of each set: one, or two that are compared
    index: Any = None  # of a pandas frame


class Reading(NamedTuple):
    """The columns of a set, before rows are left out."""

    features: list[Column]
    label: Column | None
    order: Column | None
    rows: NDArray[np.intp]  # positions of the rows in the data
    notes: list[str]

    @property
    def all(self) -> list[Column]:
        """All columns: features, label and order."""
        return [*self.features, *(column for column in (self.label, self.order) if column is not None)]

    def take(self, rows: NDArray[np.intp]) -> Reading:
        """Return these rows only."""
        label, order = (None if column is None else column.take(rows) for column in (self.label, self.order))
        features = [column if column.kind == "other" else column.take(rows) for column in self.features]
        return self._replace(features=features, label=label, order=order, rows=self.rows[rows])


def prepare(
    data: Any,
    how: Preparation,
    *,
    labels: LabelKind | None = None,
    within_classes: bool = False,
    seed: int | None = None,
) -> Prepared:
    """Prepare a table for a test of its order, or of the order within classes. O(n d), and O(n log n) to sort.

    ``labels`` is the kind of labels that the measure needs, if any. Rows with equal values of ``how.order`` are put
    into a random order, by the seed.

    >>> table = prepare({"size": [1.0, None, 3.0], "coat": ["red", "grey", "red"]}, Preparation()).table
    >>> [(column.name, column.values.tolist()) for column in table.columns]
    [('size', [1.0, 2.0, 3.0]), ('coat', [1.0, 0.0, 1.0]), ('size is missing', [0.0, 1.0, 0.0])]
    """
    how = how.checked()
    frame = open_frame(data, selection=how.selection())
    with naming(frame.name):
        reading = leave_out(read_columns(frame, how), how)
    if reading.order is not None:
        reading = _sort(reading, how, seed)
    target = reading.label if within_classes else None
    classes = None if target is None or target.kind == "other" else target.values
    roles = assign_roles(reading.features, how.keep, ordered=True, classes=classes)
    table = build_table(reading, roles, how, labels, frame.name)
    index = index_times(frame.index, reading.rows)
    table = with_times(table, [*index, *time_columns(reading.features, reading.order, roles)], reading.order)
    return Prepared(table, frame.library, [partial(select_native, frame, how, reading.rows)], frame.index)


# ------------------------------------------------------------------------------------------------------- which columns


def _names(option: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Iterable):
        raise ValueError(f"{option} must be a column or a list of columns, got {format_value(names)}")
    return tuple(dict.fromkeys(str(name) for name in names))  # a name that is given twice is one column


def label_name(how: Preparation) -> str | None:
    """Return the name of the column of labels; None if there is no such column."""
    return str(how.label) if isinstance(how.label, (str, int)) and not isinstance(how.label, bool) else None


def read_columns(frame: Frame, how: Preparation, shared: Sequence[str] | None = None) -> Reading:
    """Read the columns that are used."""
    label = label_name(how)
    _check_roles(frame, how, label)
    left_out = {*how.drop, label, how.order}
    names = frame.names if shared is None else shared
    names = [name for name in (names if how.features is None else how.features) if name not in left_out]
    if not names:
        raise DataError(
            "the data must have a column to test besides the label and the columns that are left out, got none"
        )
    features = [frame.read(name, name in how.categorical) for name in names]
    target = None if label is None else frame.read(label, label in how.categorical)
    if how.label is not None and label is None:
        target = read_labels(how.label, set(frame.names))
        if len(target.values) != frame.rows:
            raise DataError(
                f"label must hold one label for each row, got {len(target.values):,} for {frame.rows:,} rows"
            )
    order = None if how.order is None else frame.read(how.order, False)
    notes = [
        *frame.notes,
        *(f"column {format_value(column.name)}: {column.note}" for column in features if column.note),
    ]
    return Reading(features, target, order, np.arange(frame.rows), notes)


def _check_roles(frame: Frame, how: Preparation, label: str | None) -> None:
    """Check that every named column exists and has only one use."""
    uses = {
        "label": () if label is None else (label,),
        "order": () if how.order is None else (how.order,),
        "drop": how.drop,
        "keep": how.keep,
        "categorical": how.categorical,
        "features": () if how.features is None else how.features,
    }
    for option, names in uses.items():
        check_known(option, names, frame.names, also=frame.unused)
    conflicts = (("drop", others) for others in ("label", "order", "keep", "categorical", "features"))
    for first, second in (*conflicts, ("order", "label"), ("order", "keep"), ("label", "keep")):
        if both := set(uses[first]) & set(uses[second]):
            raise ColumnError(f"column {format_value(min(both))} is named by {first} and {second}; choose one")
    for option in ("label", "order", "features"):  # these are read
        check_known(option, uses[option], frame.names)


# ----------------------------------------------------------------------------------------------------------- which rows


def leave_out(reading: Reading, how: Preparation, *, least: int = 2, tested: Collection[str] | None = None) -> Reading:
    """Leave out rows without a label or without a value to sort by, and on request those with missing values.

    Missing values count in the columns that are ``tested``; by default, those that the rules select.
    """
    _check_invalid(reading, how)
    notes = []
    for role in ("label", "value to sort by"):
        column = reading.label if role == "label" else reading.order
        if column is None or column.kind in ("empty", "other"):
            continue
        absent = column.missing
        if absent.any():
            reading = reading.take(np.flatnonzero(~absent))
            notes.append(f"{_rows(int(absent.sum()))} without a {role} {_were(absent)} left out")
    missing = {} if how.missing == "indicator" else _missing_values(reading, how, tested)
    if missing and how.missing == "error":
        raise DataError(
            f"values are missing in {_list_cells(missing, reading.rows)}; set missing to 'indicator' or 'drop'"
        )
    if missing and how.missing == "drop":
        absent = np.any(list(missing.values()), axis=0)
        reading = reading.take(np.flatnonzero(~absent))
        notes.append(f"{_rows(int(absent.sum()))} with missing values {_were(absent)} left out")
    if len(reading.rows) < least:
        left = " after rows were left out" if notes else ""
        raise DataError(f"the data must have at least {_rows(least)}, got {len(reading.rows)}{left}")
    return reading._replace(notes=[*reading.notes, *notes])


def _missing_values(reading: Reading, how: Preparation, tested: Collection[str] | None) -> dict[str, NDArray[np.bool_]]:
    if tested is None:
        tested = tested_names(reading.features, how)
    columns = [column for column in reading.features if column.name in tested]
    return {column.name: column.missing for column in columns if column.missing.any()}


def tested_names(columns: Sequence[Column], how: Preparation) -> set[str]:
    """Return the names of the columns that are tested, if the order of the rows does not matter."""
    return {column.name for column in assign_roles(columns, how.keep, ordered=False).tested}


def _rows(count: int) -> str:
    return f"{count:,} row{'s' if count > 1 else ''}"


def _were(absent: NDArray[np.bool_]) -> str:
    return "was" if absent.sum() == 1 else "were"


def _check_invalid(reading: Reading, how: Preparation) -> None:
    invalid = [column for column in reading.all if column.invalid]
    if not invalid or how.invalid == "missing":
        return
    cells = "; ".join(
        f"{format_value(column.name)} ({len(column.invalid):,}: "
        + ", ".join(f"{format_value(value)} in row {row + 1:,}" for row, value in column.invalid[:SHOWN_ROWS])
        + (", ..." if len(column.invalid) > SHOWN_ROWS else "")
        + ")"
        for column in invalid
    )
    raise DataError(
        f"some cells of numeric columns are not finite numbers, or are too large: {cells}; correct them, drop the "
        "columns, or set invalid to 'missing' to treat such cells as missing"
    )


def _list_cells(missing: dict[str, NDArray[np.bool_]], rows: NDArray[np.intp]) -> str:
    return "; ".join(
        f"{format_value(name)} ({int(absent.sum()):,}, first in row {int(rows[absent.argmax()]) + 1:,})"
        for name, absent in missing.items()
    )


def _sort(reading: Reading, how: Preparation, seed: int | None) -> Reading:
    """Sort the rows; those with equal values are put into a random order by the seed, since they have no order."""
    order = reading.order
    if order is None or order.kind in ("other", "empty"):
        raise DataError(f"order must name a column of times, numbers or text, got {format_value(how.order)}")
    if seed is None:  # a hash of the rows in the order of the data
        seed = table_seed(Table(encode(assign_roles(reading.features, how.keep, ordered=False).tested)))
    ties = thetas(seed, 0, len(reading.rows), ORDER_STREAM)
    sortable, notes = _sortable(order)
    keys = np.unique(sortable, return_inverse=True)[1]
    return reading.take(np.lexsort((ties, keys)))._replace(notes=[*reading.notes, *notes])


def _sortable(order: Column) -> tuple[Any, list[str]]:
    """Return the values to sort by, and a note if the order is alphabetical. Text that is mostly times is refused."""
    if order.kind != "text":
        return order.values, []
    if all(map(_INTEGER.fullmatch, order.values)):  # too large for a float
        return np.array([int(value) for value in order.values], object), []
    distinct, name = sorted(set(order.values)), format_value(order.name)
    sample = distinct[:: len(distinct) // SAMPLE + 1]
    if 2 * sum(parse_times([text]) is None for text in sample) < len(sample):
        others = [text for text in (*distinct[:SAMPLE], *distinct[-SAMPLE:]) if parse_times([text]) is None]
        such = f", such as {format_value(others[0])}" if others else ", or not in the same format"
        raise DataError(f"column {name}, by which the rows are sorted, must hold times only, got some others{such}")
    return order.values, [f"column {name} holds text, so the rows were sorted in alphabetical order"]


# ---------------------------------------------------------------------------------------------------------- the table


def build_table(reading: Reading, roles: Roles, how: Preparation, labels: LabelKind | None, name: str) -> Table:
    """Build the table from the columns that are tested."""
    if not roles.tested:
        aside = ", ".join(f"{format_value(column)} ({reason})" for column, reason in roles.aside.items())
        times = "".join(f", {format_value(column.name)} (times)" for column in roles.times)
        raise DataError(f"{name} must have a column that can be tested, got none: {(aside + times).removeprefix(', ')}")
    target = reading.label
    columns, table_notes = encode(roles.tested), [*reading.notes, *roles.notes(), *missing_notes(roles.tested)]
    marks = missing_indicators(roles.tested, {column.name for column in reading.all})
    indicators = list({column.name: column for column in marks.values()}.values())
    y = None if target is None else convert_labels(target, labels)
    if all(constant(column.values) for column in columns + indicators) and (y is None or len(set(y)) == 1):
        raise DataError(f"{name} must have rows that differ, got {_rows(len(reading.rows))} that are all equal")
    return Table(
        columns=columns + indicators,
        y=y,
        name=name,
        label=None if target is None else target.name,
        rows=None if np.array_equal(reading.rows, np.arange(len(reading.rows))) else reading.rows + 1,
        sorted_aside=sum(reason == SORTED for reason in roles.aside.values()),
        notes=tuple(table_notes),
        treatments=_treatments(reading, roles, how, columns, indicators),
        indicators={name: column.name for name, column in marks.items()},
    )


def _treatments(
    reading: Reading, roles: Roles, how: Preparation, tested: Sequence[TableColumn], added: Sequence[TableColumn]
) -> dict[str, str]:
    """Describe what was done with each column of the data."""
    kinds = {column.name: "categories" if column.categorical else "numbers" for column in tested}
    return {
        **{column.name: kinds.get(column.name, "time") for column in reading.features},
        **{name: f"set aside: {reason}" for name, reason in roles.aside.items()},
        **{column.name: "added: whether a value is missing" for column in added},
        **({} if reading.label is None else {reading.label.name: "label"}),
        **({} if reading.order is None else {reading.order.name: "order"}),
        **dict.fromkeys(how.drop, "left out"),
    }


def select_native(frame: Frame, how: Preparation, rows: NDArray[np.intp]) -> Any:
    """Return all features that are not left out, in the form in which the user passed them."""
    unused = {*how.drop, label_name(how), how.order}
    known = [*frame.names, *frame.unused] if how.features is None else how.features
    names = [name for name in known if name not in unused]
    if frame.select is None:
        columns = [frame.read(name, False).values for name in names]
        native = np.column_stack([np.asarray(values) for values in columns])
    else:
        native = frame.select(names)
    return native if len(rows) == frame.rows and np.array_equal(rows, np.arange(len(rows))) else take_rows(native, rows)
