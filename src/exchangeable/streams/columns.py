"""The columns of data that arrives in tables, read cell by cell: the result does not depend on how it is divided."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from exchangeable.data.errors import DataError
from exchangeable.data.labels import MAX_CLASSES, LabelKind, check_classes, looks_real
from exchangeable.data.times import parse_times
from exchangeable.data.values import MAX_EXACT_INTEGER, MOSTLY, is_code, read_series
from exchangeable.protocols import Floats
from exchangeable.streams.source import Wanted
from exchangeable.table_monitor import TableMonitor
from exchangeable.table_monitor.cells import open_cells
from exchangeable.table_monitor.constants import table_scores
from exchangeable.table_monitor.monitor import label_scores
from exchangeable.validation import LARGEST, NUMBER, format_value

KEYS = "text, integers, dates or times"
ORDERS = "integers, numbers, dates or times"
_YEAR_FIRST = re.compile(r"\s*[0-9]{4}-")  # such times can be read one by one


class ColumnReader:
    """Converts the columns of each table to the types of their uses.

    Keys become int64, text, bytes, dates or times; orders int64, float64, dates or times; features float64; labels
    text, booleans or float64. What is decided over all data is what kind of labels there are, and whether columns of
    text hold numbers. ``whole`` says that there is one table only: then times may be written in any format.
    """

    def __init__(self, wanted: Wanted, measure: Any, *, whole: bool) -> None:
        self.wanted = wanted
        self.whole = whole
        self.table = measure if isinstance(measure, TableMonitor) else None
        self.labels = None if wanted.label is None or self.table else Labels(wanted.label, chosen=measure is not None)
        self.rows = 0  # read so far
        self.complete = False  # whether these are all
        self.span: Any = None  # an Arrow array of the first and the last order so far
        self._types: dict[str, Any] = {}
        self._untyped: set[str] = set()  # columns without a value in the first table
        self._text: dict[str, _TextNumbers] = {}

    def read(self, table: Any) -> Any:
        """Return the wanted columns of the next table."""
        import pyarrow as pa

        wanted, columns = self.wanted, {}
        columns[wanted.key] = self._same_type(wanted.key, _key(wanted.key, table[wanted.key], self.rows))
        if wanted.order is not None:
            order = self._same_type(wanted.order, self._order(wanted.order, table[wanted.order]))
            columns[wanted.order] = order
            self._widen(order)
        columns |= self._numbers(table) if self.table is None else self._scores(self.table, table)
        if self.labels is not None:
            columns[self.labels.name] = self._same_type(self.labels.name, self.labels.read(table[self.labels.name]))
        self.rows += len(table)
        return pa.table(columns)

    def check(self) -> None:
        """Check what can be known after the last table only."""
        self.complete = True
        for text in self._text.values():
            text.check()
        if self.labels is not None:
            self.labels.check()

    def _same_type(self, name: str, column: Any) -> Any:
        """Give a column the type that it has in the first table."""
        import pyarrow as pa

        if name not in self._types and column.null_count == len(column):
            self._untyped.add(name)
        kind = self._types.setdefault(name, column.type)
        with suppress(pa.ArrowInvalid):  # a value would change
            if _family(kind) == _family(column.type):
                return column.cast(kind)
        rule = f"must have one type in all of the data, got {column.type} after {kind}"
        if name in self._untyped:
            rule = f"must have a value in the first part of the data, which decides its type, got {column.type} later"
        raise DataError(f"column {format_value(name)} {rule}")

    def _widen(self, order: Any) -> None:
        import pyarrow as pa
        from pyarrow import compute

        found = compute.min_max(order if self.span is None else pa.chunked_array([*order.chunks, self.span]))
        if found["min"].is_valid:
            self.span = pa.array([found["min"], found["max"]], order.type)

    def _numbers(self, table: Any) -> dict[str, Any]:
        import pyarrow as pa

        features = self.wanted.features or ()
        return {name: pa.array(self._feature("features", name, table[name])) for name in features}

    def _feature(self, role: str, name: str, column: Any) -> Floats:
        """Return a column as floats, NaN where a value is missing or text is not a number."""
        from pyarrow import types

        column = _decoded(column)
        kind = column.type
        if types.is_null(kind):
            return np.full(len(column), np.nan)
        if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
            return _floats(name, column)
        if _is_text(kind):
            return self._text.setdefault(name, _TextNumbers(role, name)).read(column, self.rows)
        if types.is_duration(kind) or types.is_time(kind):  # in seconds
            return np.asarray(_read(name, column).values, np.float64)
        raise DataError(f"features must be columns of numbers, got {format_value(name)} of type {kind}")

    def _order(self, name: str, column: Any) -> Any:
        """Return the orders as integers, numbers, dates or times."""
        import pyarrow as pa
        from pyarrow import types

        column = _decoded(column)
        kind = column.type
        if types.is_integer(kind):
            return _integers("order", name, column)
        if types.is_date(kind) or types.is_timestamp(kind):
            return column
        if types.is_null(kind) and self._types.get(name) is not None:
            return column.cast(self._types[name])
        if types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
            numbers = np.asarray(column.cast("float64", safe=False).to_numpy(), np.float64) + 0.0  # -0.0 equals 0.0
            return pa.chunked_array([pa.array(numbers, mask=~np.isfinite(numbers))])
        if _is_text(kind):
            return self._text_order(name, column)
        raise DataError(f"order must be a column of {ORDERS}, got {format_value(name)} of type {kind}")

    def _text_order(self, name: str, column: Any) -> Any:
        import pyarrow as pa

        texts = column.to_pylist()
        times = parse_times(texts)
        other = next((text for text in texts if text is not None and not _YEAR_FIRST.match(text)), None)
        if times is not None and other is not None and not self.whole:
            rule = "order must be a column of times, or of text in ISO format, if the data arrives in parts"
            raise DataError(f"{rule}, got {format_value(name)} with {format_value(other)}")
        if times is not None:
            return pa.chunked_array([pa.array(times.values)])
        numbers = self._feature("order", name, column)
        if np.isnan(numbers).all() and column.null_count < len(column):
            raise DataError(f"order must be a column of {ORDERS}, got {format_value(name)}, which holds text")
        return pa.chunked_array([pa.array(numbers, mask=~np.isfinite(numbers))])

    def _scores(self, monitor: TableMonitor, table: Any) -> dict[str, Any]:
        """Return the scores of the cells, which a table monitor ranks, and of the labels; NaN is a missing label."""
        import pyarrow as pa

        schema, first = monitor.schema, self.rows + 1
        cells = open_cells(table.select(list(self.wanted.features or ())))
        scores, _ = table_scores(schema, cells, invalid=monitor.invalid, first=first)
        columns = {column.name: pa.array(scores[:, j]) for j, column in enumerate(schema.columns)}
        if schema.label is not None:
            name = schema.label.name
            values = open_cells(table.select([name])).columns[name]
            columns[name] = pa.array(label_scores(schema.label, values, monitor.invalid, first)[0])
        return columns


class Labels:
    """The labels of all tables: are they classes or numbers?"""

    def __init__(self, name: str, *, chosen: bool) -> None:
        self.name = name
        self.chosen = chosen  # whether the measure was chosen; otherwise it depends on the labels
        self._count = 0
        self._distinct: set[Any] = set()  # only as many as are needed for the decision
        self.numeric = False
        self._repeated = self._real = self._decided = False

    @property
    def undecided(self) -> bool:
        """Whether the next tables may change the kind of the labels."""
        return self.numeric and not self.chosen and not self._decided

    def decide(self) -> None:
        """Check the labels of all tables; those that are read from now on are the same ones again."""
        self.check()
        self._decided = True

    def kind(self) -> LabelKind:
        """Return what the labels are, as far as they are known; if the measure was chosen, by their type alone."""
        real = self.numeric and (self.chosen or self._real or looks_real(np.array(list(self._distinct)), self._count))
        return "numbers" if real else "classes"

    def read(self, column: Any) -> Any:
        """Return the labels of a table as text, booleans or floats; those that are missing are null."""
        import pyarrow as pa
        from pyarrow import types

        column = _decoded(column)
        kind = column.type
        if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind):
            self.numeric = True
            numbers = _floats(self.name, column)
            column = pa.chunked_array([pa.array(numbers, mask=~(np.abs(numbers) <= LARGEST))])
        elif _is_text(kind):
            column = column.cast("large_string")
        elif not types.is_boolean(kind):
            held = "times" if types.is_temporal(kind) else f"values of type {kind}"
            raise DataError(f"label {format_value(self.name)} must hold classes or numbers, got {held}")
        self._add(column)
        return column

    def _add(self, column: Any) -> None:
        if self._decided:
            return
        count = len(column) - column.null_count
        self._count += count
        if self._real or (not self.numeric and self._repeated and len(self._distinct) > 1):
            return  # nothing can change
        distinct = set(column.unique().drop_null().to_pylist())
        self._repeated |= len(distinct) < count or bool(distinct & self._distinct)
        self._distinct |= distinct
        if self.numeric:
            self._real = len(self._distinct) > MAX_CLASSES or not all(map(float.is_integer, self._distinct))

    def check(self) -> None:
        """Check that the labels of all tables are valid, and that classes occur more than once."""
        if not self._distinct:
            raise DataError(f"label {format_value(self.name)} must hold classes or numbers, got no values")
        if not self.chosen and self.kind() == "classes":
            check_classes(format_value(self.name), self._distinct, self._count, chosen=False)


class _TextNumbers:
    """A column of text that holds numbers, and how many cells are none. 007 is an order, but no feature: see `read`."""

    def __init__(self, role: str, name: str) -> None:
        self.role = role
        self.name = name
        self._present = self._good = 0
        self._bad = self._code = ""

    def read(self, column: Any, before: int) -> Floats:
        """Return the numbers, NaN for cells that are none; ``before`` rows were read earlier.

        A feature with a code such as 007 holds text, as for `read_text`. Integers above 2**53 are no numbers, since as
        floats they would be ties.
        """
        coded = column.cast("large_string").combine_chunks().dictionary_encode()
        texts = coded.dictionary.to_pylist()
        known = np.array([_number(text) for text in texts] + [np.nan])
        at = coded.indices.fill_null(len(texts)).to_numpy()
        numbers, present = known[at], at < len(texts)
        bad = np.flatnonzero(present & np.isnan(numbers))
        if bad.size and not self._bad:
            self._bad = f"{format_value(texts[at[bad[0]]])} in row {before + bad[0] + 1:,}"
        self._present += int(present.sum())
        self._good += int(present.sum() - bad.size)
        if self.role == "features" and not self._code:
            codes = [i for i, text in enumerate(texts) if NUMBER.fullmatch(text.strip()) and is_code(text)]
            rows = np.flatnonzero(np.isin(at, codes))[:1].tolist()
            self._code = "".join(f"{format_value(texts[at[row]])} in row {before + row + 1:,}" for row in rows)
        return np.asarray(numbers)

    def check(self) -> None:
        """Check that most cells are numbers, and that those of a feature are no codes."""
        rule = "features must be columns of numbers" if self.role == "features" else "order must be a column of numbers"
        if self._good < MOSTLY * self._present:
            most = f"must hold numbers in at least {MOSTLY:.0%} of the rows with a value"
            found = f"got {self._present - self._good:,} others among {self._present:,}, such as {self._bad}"
            raise DataError(f"{rule}: {format_value(self.name)} {most}, {found}")
        if self._code:
            advice = "convert the column to numbers, or leave it out of features"
            raise DataError(f"{rule}: {format_value(self.name)} holds text with codes, such as {self._code}: {advice}")


def _number(text: str) -> float:
    number = text.strip()
    return float(number) if NUMBER.fullmatch(number) and not is_code(number.lstrip("+-0")) else np.nan


# ------------------------------------------------------------------ types


def _key(name: str, column: Any, before: int) -> Any:
    """Return the keys as integers, text, bytes, dates or times; none is missing."""
    from pyarrow import types

    if column.null_count:
        row = before + int(np.flatnonzero(column.is_null().to_numpy())[0]) + 1
        rule = f"key {format_value(name)} must be present in every row"
        raise DataError(f"{rule}, got none in row {row:,}: fill in or drop such rows")
    column = _decoded(column)
    kind = column.type
    if types.is_integer(kind):
        return _integers("key", name, column)
    if _is_text(kind) or not len(column):
        return column.cast("large_string")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return column.cast("large_binary")
    if types.is_date(kind) or types.is_timestamp(kind) or types.is_time(kind):
        return column
    hint = ": write its keys as integers, or as text" if types.is_floating(kind) else ""
    raise DataError(f"key must be a column of {KEYS}, got {format_value(name)} of type {kind}{hint}")


def _integers(role: str, name: str, column: Any) -> Any:
    from pyarrow import ArrowInvalid

    try:
        return column.cast("int64")
    except ArrowInvalid:
        raise DataError(f"{role} must be integers below 2^63, got larger ones in {format_value(name)}") from None


def _floats(name: str, column: Any) -> Floats:
    from pyarrow import types

    numbers = np.array(column.cast("float64", safe=False).to_numpy(), np.float64)
    if types.is_integer(column.type) and np.nanmax(np.abs(numbers), initial=0.0) > MAX_EXACT_INTEGER:
        rule = "must hold integers of at most 2**53, which float64 holds exactly"
        raise DataError(f"column {format_value(name)} {rule}, got larger ones")
    return numbers


def _decoded(column: Any) -> Any:
    from pyarrow import types

    kind = column.type
    return column.cast(kind.value_type) if types.is_dictionary(kind) else column


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _family(kind: Any) -> str:
    """Return which types may replace each other if no value changes."""
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind):
        return "numbers"
    return "timestamp" + str(kind.tz) if types.is_timestamp(kind) else str(kind)


def _read(name: str, column: Any) -> Any:
    import narwhals as nw

    return read_series(name, nw.from_native(column, series_only=True), False)
