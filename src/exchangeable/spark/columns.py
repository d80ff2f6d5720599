"""The door of a Spark frame: columns by role, lawful or told why not. Purely Spark SQL, for batch and streaming alike.

Python sees no null and no NaN behind it. A row that is not lawful is not dropped: it carries a sentence, and whoever
reads the rows fails with it, or counts it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from exchangeable.validation import LARGEST, format_value

SHOWN = 60  # characters of a value in a sentence
NUMBER = r"\A[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+\z"  # possessive: linear in the length
LEAST_TIME = "1970-01-01"

WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
REAL = (T.FloatType, T.DoubleType)
TIMES = (T.DateType, T.TimestampType, T.TimestampNTZType)
KEYS = "text, integers or binary: cast it to string"
ORDERS = "integers, numbers, dates or timestamps: cast it (text would stand in the order of its letters)"
SEQUENCES = "integers, dates or timestamps: cast it to bigint or timestamp"
SCALARS = "numbers, decimals, booleans or text that holds numbers"
FEATURES = f"{SCALARS}, an array of numbers or a vector"
ROW = f"x must be finite numbers of magnitude at most {LARGEST:g}"
LABELS = "text, integers, numbers or booleans: cast it to string or double"


class RefusedError(ValueError):
    """A row that was not lawful, or a stream that could not be tested: one sentence, which `refusal` finds again.

    >>> str(RefusedError("two\\nlines"))
    'two lines'
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(" ".join(sentence.split()))


REFUSED = re.compile(rf"{re.escape(RefusedError.__module__)}\.{RefusedError.__name__}: (.*)")


def refusal(error: BaseException | None) -> str | None:
    """Our sentence in an error of Spark, or None where it is another error.

    What is raised in an executor comes back as text, in a traceback within another exception, or several.

    >>> refusal(RefusedError("key 'a', order 1: x must be a finite number, got NaN"))
    "key 'a', order 1: x must be a finite number, got NaN"
    >>> refusal(ValueError("something else"))
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, RefusedError):
            return str(error)
        found = REFUSED.search(str(error))
        if found:
            return found[1].strip()
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


class Part(NamedTuple):
    """One of the columns behind the door: the value, what stands in its place in a bad row, and what is wrong."""

    value: Column
    instead: Column
    fault: Column  # a sentence, or null


def admitted(
    df: DataFrame,
    *,
    key: str | None,
    order: str,
    features: str | Sequence[str],
    label: str | None,
    sequence: bool = False,
) -> DataFrame:
    """The columns ``key``, ``order``, ``x``, ``y`` and ``bad`` of a frame, batch or streaming; no value is ever null.

    ``key`` (where one is named) is text, an integer or binary, of its own type. ``order`` is of its own type; with
    ``sequence`` it is a long: the integer itself, days of a date, microseconds of a timestamp. ``x`` is a double
    if ``features`` names one scalar column, else an array of doubles: of a list of scalar columns, or of one column of
    arrays or vectors. ``y`` (where one is named) is a string, long, double or boolean.

    ``bad`` is null in a lawful row, else one sentence; then ``x`` and ``y`` are placeholders, and so are a key and an
    order that are null themselves, which `keyless` and `orderless` tell from ``bad``. Columns that cannot be used at
    all are refused here and now.
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
    bad = source.keep("bad", F.coalesce(*faults))
    values = [
        F.coalesce(F.when(part.fault.isNull() if name in ("key", "order") else bad.isNull(), part.value), part.instead)
        for name, part in parts.items()
    ]
    return source.frame.select(*(value.alias(name) for name, value in zip(parts, values, strict=True)), bad)


def keyless(bad: str) -> bool:
    """Whether the sentence says that there is no key, so that ``key`` holds a placeholder.

    >>> keyless("key must not be null, got null in column 'device'")
    True
    """
    return bad.startswith("key ")


def orderless(bad: str) -> bool:
    """Whether the sentence says that there is no order, so that ``order`` holds a placeholder.

    >>> orderless("key and order must not be null, got null in column 'time'")
    True
    """
    return bad.startswith(("order ", "key and order "))


class Source:
    """A frame whose columns are reached by place, so that any name will do: dots, backticks, twice the same."""

    def __init__(self, df: DataFrame) -> None:
        self.fields: list[T.StructField] = df.schema.fields
        self.names: list[str] = [field.name for field in self.fields]
        self.frame: DataFrame = df.toDF(*(f"c{place}" for place in range(len(self.names))))

    def find(self, role: str, name: str) -> tuple[Column, T.DataType]:
        """The column of this name, and its type."""
        place = self._place(role, name)
        return F.col(f"c{place}"), self.fields[place].dataType

    def _place(self, role: str, name: str) -> int:
        if not isinstance(name, str):
            raise ValueError(f"{role} must be the name of a column, got {format_value(name)}")
        if self.names.count(name) != 1:
            law = f"{role} must name one of the columns {format_value(self.names)}, each of another name"
            raise ValueError(f"{law}, got {format_value(name)}{' twice' if name in self.names else ''}")
        return self.names.index(name)

    def keep(self, name: str, value: Column) -> Column:
        """A column made of others, computed once."""
        self.frame = self.frame.withColumn(name, value)
        return F.col(name)

    def key(self, name: str) -> Part:
        """Of its own type."""
        column, kind = self.find("key", name)
        if not (_is_text(kind) or isinstance(kind, (*WHOLE, T.BinaryType))):
            raise ValueError(f"key must be a column of {KEYS}, got {_typed(name, kind)}")
        instead = F.lit("0" if isinstance(kind, WHOLE) else "").cast(kind)
        return Part(column, instead, F.coalesce(_null("key", column, name), _garbled("key", column, kind, name)))

    def order(self, name: str) -> Part:
        """Of its own type."""
        column, kind = self.find("order", name)
        if not isinstance(kind, (*WHOLE, *REAL, *TIMES, T.DecimalType)):
            raise ValueError(f"order must be a column of {ORDERS}, got {_typed(name, kind)}")
        fault = _null("order", column, name)
        if isinstance(kind, REAL):
            fault = F.coalesce(fault, _unless(_finite(column), "order must be a finite number", column, kind, name))
            column = column + F.lit(0.0).cast(kind)  # -0.0 and 0.0 are one place
        return Part(column, F.lit(LEAST_TIME if isinstance(kind, TIMES) else "0").cast(kind), fault)

    def sequence(self, name: str) -> Part:
        """As a long."""
        column, kind = self.find("order", name)
        if not isinstance(kind, (*WHOLE, *TIMES)):
            raise ValueError(f"order must be a column of {SEQUENCES}, got {_typed(name, kind)}")
        return Part(_counted(column, kind), F.lit(0).cast("long"), _null("order", column, name))

    def features(self, features: str | Sequence[str]) -> Part:
        """A number, or a row of numbers."""
        names = [features] if isinstance(features, str) else list(features)
        if not names:
            raise ValueError("features must name at least one column, got none")
        if len(set(names)) < len(names):
            raise ValueError(f"features must name each column once, got {format_value(names)}")
        fields = [self.fields[self._place("features", name)] for name in names]
        if len(names) == 1 and _is_row(fields[0].dataType):
            return self._row(*self.find("features", names[0]), names[0])
        for field in fields:
            if not _is_scalar(field.dataType):
                law = SCALARS if len(names) > 1 else FEATURES
                raise ValueError(f"features must be columns of {law}, got {_typed(field.name, field.dataType)}")
        if isinstance(features, str):
            return self._number(*self.find("features", features), features)
        return self._gathered(fields)

    def label(self, name: str) -> Part:
        """Of its own kind."""
        column, kind = self.find("label", name)
        if not (_is_text(kind) or isinstance(kind, (*WHOLE, *REAL, T.BooleanType))):
            raise ValueError(f"label must be a column of {LABELS}, got {_typed(name, kind)}")
        fault = F.coalesce(_null("y", column, name), _garbled("y", column, kind, name))
        if isinstance(kind, REAL):
            fault = F.coalesce(fault, _unless(~F.isnan(column), "y must not be NaN", column, kind, name))
        wide = "long" if isinstance(kind, WHOLE) else "double" if isinstance(kind, REAL) else kind.simpleString()
        return Part(column.cast(wide), F.lit("" if _is_text(kind) else "0").cast(wide), fault)

    def _number(self, column: Column, kind: T.DataType, name: str) -> Part:
        value = self.keep("x", _double(column, kind))
        return Part(value, F.lit(0.0), _unless(_finite(value), "x must be a finite number", column, kind, name))

    def _gathered(self, fields: list[T.StructField]) -> Part:
        """A row of scalar columns; the sentence tells the first that is not lawful.

        Written in SQL, which is one call to Java however many columns there are.
        """
        places = {f"c{self.names.index(field.name)}": _is_text(field.dataType) for field in fields}
        lawful = (f"if({c} rlike r'{NUMBER}', {c}, null)" if text else c for c, text in places.items())
        x = self.keep("x", _array(f"try_cast({column} as double)" for column in lawful))
        place = self.keep("place", _first_bad(x))
        text = F.element_at(_array(f"cast({c} as string)" for c in places), place)
        words = F.element_at(_array(map(str, places.values())), place)
        names = (f"cast(X'{format_value(field.name).encode().hex()}' as string)" for field in fields)
        where = F.element_at(_array(names), place)
        got = F.when(words, _quoted(text)).otherwise(F.coalesce(text, F.lit("null")))
        return Part(x, _nothing(), F.when(place > 0, F.concat(F.lit(f"{ROW}, got "), got, F.lit(" in column "), where)))

    def _row(self, column: Column, kind: T.DataType, name: str) -> Part:
        """An array of numbers or a vector, of one length or another: what fits together is the measure's to say."""
        x = self.keep("x", column.cast("array<double>") if isinstance(kind, T.ArrayType) else _from_vector(column))
        place = self.keep("place", _first_bad(x))
        got = F.coalesce(F.get(x, place - 1).cast("string"), F.lit("null"))
        where = F.concat(F.lit(" at position "), (place - 1).cast("string"), F.lit(f" in column {format_value(name)}"))
        none = F.lit(f"x must hold at least one number, got none in column {format_value(name)}")
        fault = F.when(place > 0, F.concat(F.lit(f"{ROW}, got "), got, where))
        return Part(x, _nothing(), F.coalesce(_null("x", column, name), F.when(F.size(x) == 0, none), fault))


# ------------------------------------------------------------------ the examples


def _first_bad(x: Column) -> Column:
    """The place, from 1, of the first number of a row that is not lawful; 0 where all are."""
    wrong = F.transform(x, lambda value: ~F.coalesce(F.abs(value) <= LARGEST, F.lit(False)))
    return F.array_position(wrong, True).cast("int")


def _array(expressions: Iterable[str]) -> Column:
    return F.expr(f"array({', '.join(expressions)})")


def _from_vector(column: Column) -> Column:
    from pyspark.ml.functions import vector_to_array

    return F.when(column.isNotNull(), vector_to_array(column))


def _nothing() -> Column:
    return F.array().cast("array<double>")


def _double(column: Column, kind: T.DataType) -> Column:
    """As a double, null where it is none."""
    if _is_text(kind):
        return F.when(column.rlike(NUMBER), column.try_cast("double"))
    return column.cast("double")


def _finite(value: Column) -> Column:
    """Not null where the value is null: NaN is above all numbers in Spark."""
    return F.coalesce(F.abs(value) < float("inf"), F.lit(False))


# ------------------------------------------------------------------ kinds and sentences


def _is_text(kind: T.DataType) -> bool:
    """Text whose letters differ wherever their bytes do; of other collations Spark would not tell 'a' from 'A'."""
    return isinstance(kind, T.StringType) and kind.isUTF8BinaryCollation()


def _is_scalar(kind: T.DataType) -> bool:
    return _is_text(kind) or isinstance(kind, (*WHOLE, *REAL, T.DecimalType, T.BooleanType))


def _is_row(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return isinstance(kind.elementType, (*WHOLE, *REAL, T.DecimalType))
    return isinstance(kind, T.UserDefinedType) and type(kind).__name__ == "VectorUDT"


def _counted(column: Column, kind: T.DataType) -> Column:
    """Days or microseconds since 1970; of a timestamp without a time zone as if it were UTC."""
    if isinstance(kind, T.DateType):
        return F.unix_date(column).cast("long")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.TimestampNTZType):
        return F.unix_micros(F.concat(column.cast("string"), F.lit("+00:00")).cast("timestamp"))  # in no other zone
    return column.cast("long")


def _null(role: str, column: Column, name: str) -> Column:
    return F.when(column.isNull(), F.lit(f"{role} must not be null, got null in column {format_value(name)}"))


def _garbled(role: str, column: Column, kind: T.DataType, name: str) -> Column:
    """Spark's text may be any bytes, Python's may not."""
    if not _is_text(kind):
        return F.lit(None).cast("string")
    sentence = F.lit(f"{role} must be text in UTF-8, got other bytes in column {format_value(name)}")
    return F.when(~F.is_valid_utf8(column), sentence)


def _unless(lawful: Column, law: str, column: Column, kind: T.DataType, name: str) -> Column:
    sentence = F.concat(F.lit(f"{law}, got "), _shown(column, kind), F.lit(f" in column {format_value(name)}"))
    return F.when(~lawful, sentence)


def _shown(column: Column, kind: T.DataType) -> Column:
    """The value as a sentence shows it: on one line, and not too long."""
    return _quoted(column) if _is_text(kind) else F.coalesce(column.cast("string"), F.lit("null"))


def _quoted(column: Column) -> Column:
    text = F.regexp_replace(F.make_valid_utf8(F.substring(column, 1, SHOWN)), r"[\p{Cntrl}\p{Zl}\p{Zp}]", " ")
    cut = F.when(F.length(column) > SHOWN - 2, F.concat(F.substring(text, 1, SHOWN - 5), F.lit("..."))).otherwise(text)
    return F.coalesce(F.concat(F.lit("'"), cut, F.lit("'")), F.lit("null"))


def _typed(name: str, kind: T.DataType) -> str:
    return f"{format_value(name)} of type {kind.simpleString()}"
