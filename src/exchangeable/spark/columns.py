"""Validation of a Spark frame by Spark SQL, for batch and streaming frames.

The result has no null and no NaN for Python to handle. Invalid rows are not dropped: they carry a message that says
what is wrong, and the reader of the rows raises or counts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from exchangeable.validation import LARGEST, format_value

MAX_CHARACTERS = 60  # of a value in a message
NUMBER = r"\A[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+\z"  # possessive: linear in the length
EPOCH = "1970-01-01"
NO_KEY, NO_ORDER, NEITHER = "key ", "order ", "key and order "  # how a message starts if key or order is missing

INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
FLOATS = (T.FloatType, T.DoubleType)
TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
KEYS = "text, integers or binary: cast it to string"
ORDERS = "integers, numbers, dates or timestamps: cast it (text would be sorted by its letters)"
SEQUENCES = "integers, dates or timestamps: cast it to bigint or timestamp"
SCALARS = "numbers, decimals, booleans or text that holds numbers"
FEATURES = f"{SCALARS}, an array of numbers or a vector"
ROW = f"x must be finite numbers of magnitude at most {LARGEST:g}"
LABELS = "text, integers, numbers or booleans: cast it to string or double"


class RefusedError(ValueError):
    """An invalid row, or a stream that cannot be tested. `refusal` finds its message, one line, in an error of Spark.

    >>> str(RefusedError("two\\nlines"))
    'two lines'
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


REFUSED = re.compile(rf"{re.escape(RefusedError.__module__)}\.{RefusedError.__name__}: (.*)")


def refusal(error: BaseException | None) -> str | None:
    """Return the message of a `RefusedError` in an error of Spark, or None if it is another error.

    What is raised in an executor comes back as text: a traceback within one or more other exceptions.

    >>> refusal(RefusedError("key 'a', order 1: x must be a finite number, got NaN"))
    "key 'a', order 1: x must be a finite number, got NaN"
    >>> refusal(ValueError("something else"))
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RefusedError):
            return str(error)
        match = REFUSED.search(str(error))
        if match:
            return match[1].strip()
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def row_error(key: object, order: str | None, message: str) -> RefusedError:
    """Return an error that names the row."""
    return RefusedError(f"key {format_value(key)}{'' if order is None else f', order {order}'}: {message}")


class Part(NamedTuple):
    """One column of the result."""

    value: Column
    placeholder: Column  # in a bad row
    fault: Column  # a message, or null


def validate(
    df: DataFrame,
    *,
    key: str | None,
    order: str,
    features: str | Sequence[str],
    label: str | None,
    sequence: bool = False,
) -> DataFrame:
    """Return the columns ``key``, ``order``, ``x``, ``y`` and ``bad`` of a frame. Only ``bad`` may be null.

    ``key`` (if one is named) keeps its type: text, integer or binary. ``order`` keeps its type, but with ``sequence``
    it becomes a long: the integer itself, the days of a date, the microseconds of a timestamp. ``x`` is a double if
    ``features`` names one scalar column, else an array of doubles, from a list of scalar columns or from one column of
    arrays or vectors. ``y`` (if one is named) is a string, long, double or boolean.

    ``bad`` is null in a valid row, else a message that says what is wrong. Then ``x`` and ``y`` are placeholders, and
    so are a missing key and a missing order (see `lacks_key` and `lacks_order`). Columns of unsuitable types raise a
    ValueError at once.
    """
    source = Source(df)
    parts: dict[str, Part] = {}
    if key is not None:
        parts["key"] = source.key(key)
    parts["order"] = source.sequence(order) if sequence else source.order(order)
    parts["x"] = source.features(features)
    if label is not None:
        parts["y"] = source.label(label)
    faults = [part.fault for part in parts.values()]
    if key is not None:
        both = faults[0].isNotNull() & faults[1].isNotNull()
        faults.insert(0, F.when(both, F.concat(F.lit("key and "), faults[1])))
    bad = source.add("bad", F.coalesce(*faults))
    columns = []
    for name, part in parts.items():
        valid = part.fault.isNull() if name in ("key", "order") else bad.isNull()
        columns.append(F.coalesce(F.when(valid, part.value), part.placeholder).alias(name))
    return source.frame.select(*columns, bad)


def lacks_key(bad: str = "bad") -> Column:
    """Return whether a row has no key, so that ``key`` is a placeholder."""
    return F.coalesce(F.startswith(bad, F.lit(NO_KEY)), F.lit(False))


def lacks_order(bad: str = "bad") -> Column:
    """Return whether a row has no order, so that ``order`` is a placeholder."""
    return F.coalesce(F.startswith(bad, F.lit(NO_ORDER)) | F.startswith(bad, F.lit(NEITHER)), F.lit(False))


class Source:
    """A frame whose columns are found by position, so that names may hold dots and backticks, or occur twice."""

    def __init__(self, df: DataFrame) -> None:
        self.fields: list[T.StructField] = df.schema.fields
        self.names: list[str] = [field.name for field in self.fields]
        self.frame: DataFrame = df.toDF(*(f"c{i}" for i in range(len(self.names))))

    def find(self, role: str, name: str) -> tuple[Column, T.DataType]:
        """Return the column of this name, and its type."""
        i = self._position(role, name)
        return F.col(f"c{i}"), self.fields[i].dataType

    def _position(self, role: str, name: str) -> int:
        if not isinstance(name, str):
            raise ValueError(f"{role} must be the name of a column, got {format_value(name)}")
        if self.names.count(name) != 1:
            got = f"{format_value(name)}{', which occurs more than once' if name in self.names else ''}"
            raise ValueError(f"{role} must name one of the columns {format_value(self.names)}, got {got}")
        return self.names.index(name)

    def add(self, name: str, value: Column) -> Column:
        """Add a column that is computed from others, so that it is computed once."""
        self.frame = self.frame.withColumn(name, value)
        return F.col(name)

    def key(self, name: str) -> Part:
        """Validate the keys, which keep their type."""
        column, kind = self.find("key", name)
        if not (_is_text(kind) or isinstance(kind, (*INTEGERS, T.BinaryType))):
            raise ValueError(f"key must be a column of {KEYS}, got {_name_and_type(name, kind)}")
        placeholder = F.lit("0" if isinstance(kind, INTEGERS) else "").cast(kind)
        fault = F.coalesce(_null_fault("key", column, name), _encoding_fault("key", column, kind, name))
        return Part(column, placeholder, fault)

    def order(self, name: str) -> Part:
        """Validate the orders, which keep their type."""
        column, kind = self.find("order", name)
        if not isinstance(kind, (*INTEGERS, *FLOATS, *TIMES, T.DecimalType)):
            raise ValueError(f"order must be a column of {ORDERS}, got {_name_and_type(name, kind)}")
        fault = _null_fault("order", column, name)
        if isinstance(kind, FLOATS):
            fault = F.coalesce(
                fault, _fault_unless(_finite(column), "order must be a finite number", column, kind, name)
            )
            column = column + F.lit(0.0).cast(kind)  # -0.0 equals 0.0
        return Part(column, F.lit(EPOCH if isinstance(kind, TIMES) else "0").cast(kind), fault)

    def sequence(self, name: str) -> Part:
        """Validate the orders and turn them into longs."""
        column, kind = self.find("order", name)
        if not isinstance(kind, (*INTEGERS, *TIMES)):
            raise ValueError(f"order must be a column of {SEQUENCES}, got {_name_and_type(name, kind)}")
        return Part(_as_long(column, kind), F.lit(0).cast("long"), _null_fault("order", column, name))

    def features(self, features: str | Sequence[str]) -> Part:
        """Validate the examples: numbers, or rows of numbers."""
        names = [features] if isinstance(features, str) else list(features)
        if not names:
            raise ValueError("features must name at least one column, got none")
        if len(set(names)) < len(names):
            raise ValueError(f"features must name each column once, got {format_value(names)}")
        fields = [self.fields[self._position("features", name)] for name in names]
        if len(names) == 1 and _is_row(fields[0].dataType):
            return self._row(*self.find("features", names[0]), names[0])
        for field in fields:
            if not _is_scalar(field.dataType):
                expected = SCALARS if len(names) > 1 else FEATURES
                raise ValueError(
                    f"features must be columns of {expected}, got {_name_and_type(field.name, field.dataType)}"
                )
        if isinstance(features, str):
            return self._number(*self.find("features", features), features)
        return self._array_of(fields)

    def label(self, name: str) -> Part:
        """Validate the labels: text, integers, floating-point numbers or Booleans."""
        column, kind = self.find("label", name)
        if not (_is_text(kind) or isinstance(kind, (*INTEGERS, *FLOATS, T.BooleanType))):
            raise ValueError(f"label must be a column of {LABELS}, got {_name_and_type(name, kind)}")
        fault = F.coalesce(_null_fault("y", column, name), _encoding_fault("y", column, kind, name))
        if isinstance(kind, FLOATS):
            fault = F.coalesce(fault, _fault_unless(~F.isnan(column), "y must not be NaN", column, kind, name))
        wide = "long" if isinstance(kind, INTEGERS) else "double" if isinstance(kind, FLOATS) else kind.simpleString()
        return Part(column.cast(wide), F.lit("" if _is_text(kind) else "0").cast(wide), fault)

    def _number(self, column: Column, kind: T.DataType, name: str) -> Part:
        value = self.add("x", _double(column, kind))
        return Part(value, F.lit(0.0), _fault_unless(_finite(value), "x must be a finite number", column, kind, name))

    def _array_of(self, fields: list[T.StructField]) -> Part:
        """Gather scalar columns into rows; the message names the first invalid value.

        This is written in SQL, so that it needs one call to Java for any number of columns.
        """
        columns = {f"c{self.names.index(field.name)}": _is_text(field.dataType) for field in fields}
        numbers = (f"if({c} rlike r'{NUMBER}', {c}, null)" if text else c for c, text in columns.items())
        x = self.add("x", _array(f"try_cast({number} as double)" for number in numbers))
        position = self.add("position", _first_invalid(x))
        text = F.element_at(_array(f"cast({c} as string)" for c in columns), position)
        is_text = F.element_at(_array(map(str, columns.values())), position)
        names = (f"cast(X'{format_value(field.name).encode().hex()}' as string)" for field in fields)
        where = F.element_at(_array(names), position)
        got = F.when(is_text, _quoted(text)).otherwise(F.coalesce(text, F.lit("null")))
        return Part(
            x, _empty_row(), F.when(position > 0, F.concat(F.lit(f"{ROW}, got "), got, F.lit(" in column "), where))
        )

    def _row(self, column: Column, kind: T.DataType, name: str) -> Part:
        """Validate arrays of numbers or vectors. Their lengths may differ: the measure checks them."""
        x = self.add("x", column.cast("array<double>") if isinstance(kind, T.ArrayType) else _from_vector(column))
        position = self.add("position", _first_invalid(x))
        got = F.coalesce(F.get(x, position - 1).cast("string"), F.lit("null"))
        where = F.concat(
            F.lit(" at position "), (position - 1).cast("string"), F.lit(f" in column {format_value(name)}")
        )
        none = F.lit(f"x must hold at least one number, got none in column {format_value(name)}")
        fault = F.when(position > 0, F.concat(F.lit(f"{ROW}, got "), got, where))
        return Part(x, _empty_row(), F.coalesce(_null_fault("x", column, name), F.when(F.size(x) == 0, none), fault))


# ------------------------------------------------------------------ the examples


def _first_invalid(x: Column) -> Column:
    """Return the position, from 1, of the first invalid number of a row; 0 if all are valid."""
    invalid = F.transform(x, lambda value: ~F.coalesce(F.abs(value) <= LARGEST, F.lit(False)))
    return F.array_position(invalid, True).cast("int")


def _array(expressions: Iterable[str]) -> Column:
    return F.expr(f"array({', '.join(expressions)})")


def _from_vector(column: Column) -> Column:
    from pyspark.ml.functions import vector_to_array

    return F.when(column.isNotNull(), vector_to_array(column))


def _empty_row() -> Column:
    return F.array().cast("array<double>")


def _double(column: Column, kind: T.DataType) -> Column:
    """Return the value as a double, null where it is not a number."""
    if _is_text(kind):
        return F.when(column.rlike(NUMBER), column.try_cast("double"))
    return column.cast("double")


def _finite(value: Column) -> Column:
    """Return whether a value is finite; False for null. In Spark, NaN is greater than all numbers."""
    return F.coalesce(F.abs(value) < float("inf"), F.lit(False))


# ------------------------------------------------------------------ types and messages


def _is_text(kind: T.DataType) -> bool:
    """Return whether a column is text compared by its bytes; other collations may treat 'a' and 'A' as equal."""
    return isinstance(kind, T.StringType) and kind.isUTF8BinaryCollation()


def _is_scalar(kind: T.DataType) -> bool:
    return _is_text(kind) or isinstance(kind, (*INTEGERS, *FLOATS, T.DecimalType, T.BooleanType))


def _is_row(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return isinstance(kind.elementType, (*INTEGERS, *FLOATS, T.DecimalType))
    return isinstance(kind, T.UserDefinedType) and type(kind).__name__ == "VectorUDT"


def _as_long(column: Column, kind: T.DataType) -> Column:
    """Return days or microseconds since 1970; a timestamp without a time zone counts as UTC."""
    if isinstance(kind, T.DateType):
        return F.unix_date(column).cast("long")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.TimestampNTZType):
        return F.unix_micros(F.concat(column.cast("string"), F.lit("+00:00")).cast("timestamp"))  # in no other zone
    return column.cast("long")


def _null_fault(role: str, column: Column, name: str) -> Column:
    return F.when(column.isNull(), F.lit(f"{role} must not be null, got null in column {format_value(name)}"))


def _encoding_fault(role: str, column: Column, kind: T.DataType, name: str) -> Column:
    """Report text that is not UTF-8, which Spark allows and Python does not."""
    if not _is_text(kind):
        return F.lit(None).cast("string")
    message = F.lit(f"{role} must be text in UTF-8, got other bytes in column {format_value(name)}")
    return F.when(~F.is_valid_utf8(column), message)


def _fault_unless(valid: Column, expected: str, column: Column, kind: T.DataType, name: str) -> Column:
    message = F.concat(F.lit(f"{expected}, got "), _format(column, kind), F.lit(f" in column {format_value(name)}"))
    return F.when(~valid, message)


def _format(column: Column, kind: T.DataType) -> Column:
    """Format a value for a message: on one line, and not too long."""
    return _quoted(column) if _is_text(kind) else F.coalesce(column.cast("string"), F.lit("null"))


def _quoted(column: Column) -> Column:
    text = F.regexp_replace(F.make_valid_utf8(F.substring(column, 1, MAX_CHARACTERS)), r"[\p{Cntrl}\p{Zl}\p{Zp}]", " ")
    cut = F.when(
        F.length(column) > MAX_CHARACTERS - 2, F.concat(F.substring(text, 1, MAX_CHARACTERS - 5), F.lit("..."))
    ).otherwise(text)
    return F.coalesce(F.concat(F.lit("'"), cut, F.lit("'")), F.lit("null"))


def _name_and_type(name: str, kind: T.DataType) -> str:
    return f"{format_value(name)} of type {kind.simpleString()}"
