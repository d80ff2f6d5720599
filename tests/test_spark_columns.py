"""Validation of a Spark frame: which columns are accepted, and the sentences about invalid rows."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

import sparks

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from exchangeable.spark.columns import RefusedError, lacks_key, lacks_order, refusal, validate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAN, INF = math.nan, math.inf
NUMBER = "x must be a finite number, got {} in column 'x'"
ROW = "x must be finite numbers of magnitude at most 1e+150, got "


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


ROLES: dict[str, Any] = {"key": "k", "order": "o", "features": "x", "label": None}


def collect(df: DataFrame, features: Any = "x", **more: Any) -> list[Any]:
    frame = validate(df, **{**ROLES, "features": features, **more})
    return frame.sort("order").collect()


def frame(spark: SparkSession, kind: str, values: list[Any]) -> DataFrame:
    """A column x of some kind, in streams of key a, ordered as given."""
    return spark.createDataFrame([("a", i, value) for i, value in enumerate(values)], f"k string, o int, x {kind}")


# ------------------------------------------------------------------ numbers


NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "double": ([1.5, None, NAN, INF, -INF, 1e308], [1.5, "null", "NaN", "Infinity", "-Infinity", 1e308]),
    "float": ([0.1, NAN], [float.fromhex("0x1.99999ap-4"), "NaN"]),
    "tinyint": ([-128, None], [-128.0, "null"]),
    "bigint": ([2**53 + 1, -(2**63)], [float(2**53), -(2.0**63)]),
    "decimal(38,10)": ([Decimal("0.1"), None], [0.1, "null"]),
    "boolean": ([True, False, None], [1.0, 0.0, "null"]),
}


def test_numbers_of_every_kind(spark: SparkSession) -> None:
    parts = [validate(frame(spark, kind, values), **ROLES) for kind, (values, _) in NUMBERS.items()]
    rows = iter(reduce(DataFrame.union, parts).collect())
    for _, expected in NUMBERS.values():
        for one in expected:
            row = next(rows)
            valid = isinstance(one, float)
            assert (row.x, row.bad) == ((one, None) if valid else (0.0, NUMBER.format(one)))


def test_text_is_a_number_only_if_it_is_written_as_one(spark: SparkSession) -> None:
    good = ["1", "+1.5", "-.5e-3", "1.", "007", "1E5", "0.1", "4.9e-324", "179769313486231570e291"]
    bad = [
        "",
        " 1",
        "1 ",
        "1\n",
        "1d",
        "1f",
        "NaN",
        "inf",
        "Infinity",
        "0x10",
        "1_0",
        "1,5",
        "١",
        "e5",
        ".",
        "1e",
        "--1",
    ]
    rows = collect(frame(spark, "string", [*good, *bad, None, "1e999"]))
    assert [row.x for row in rows[: len(good)]] == [float(text) for text in good]
    assert all(row.bad is None for row in rows[: len(good)])
    displayed = [text.replace("\n", " ") for text in bad]
    assert [row.bad for row in rows[len(good) : -2]] == [NUMBER.format(f"'{text}'") for text in displayed]
    assert [row.bad for row in rows[-2:]] == [NUMBER.format("null"), NUMBER.format("'1e999'")]


def test_long_and_hostile_text_is_shown_in_part_and_on_one_line(spark: SparkSession) -> None:
    digits = "1" * 200_000 + "x"  # a careless pattern would take hours
    hostile = "a\r\n\x00\u2028\x1b[31m" + "\U0001f600" * 100
    rows = collect(frame(spark, "string", [digits, hostile]))
    assert rows[0].bad == NUMBER.format("'" + "1" * 55 + "...'")
    assert rows[1].bad == NUMBER.format("'a     [31m" + "\U0001f600" * 45 + "...'")
    garbled = frame(spark, "binary", [b"ok\xff\xfe"]).withColumn("x", F.col("x").cast("string"))
    assert collect(garbled)[0].bad.startswith("x must be a finite number, got 'ok")


# ------------------------------------------------------------------ rows of numbers


def test_a_list_of_columns_is_a_row(spark: SparkSession) -> None:
    large = 2**53 - 1  # more than float32 holds
    data = [("a", 0, 1.5, "2", large), ("a", 1, None, "x", None), ("a", 2, 1.0, "1d", 3), ("a", 3, 2e150, "1", 1)]
    df = spark.createDataFrame(data, "k string, o int, x double, `a.b` string, `c``d` long")
    df = df.withColumns({"f": F.lit(0.5).cast("float"), "t": F.lit(True), "m": F.lit(Decimal("0.1"))})
    rows = collect(df, ["x", "a.b", "c`d", "f", "t", "m"])
    assert [list(row.x) for row in rows] == [[1.5, 2.0, float(large), 0.5, 1.0, 0.1], [], [], []]
    assert [row.bad for row in rows] == [
        None,
        f"{ROW}null in column 'x'",
        f"{ROW}'1d' in column 'a.b'",
        f"{ROW}2.0E150 in column 'x'",
    ]
    assert collect(df, ["x"])[0].x == [1.5]


ARRAYS: dict[str, Any] = {
    "array<double>": float,
    "array<float>": float,
    "array<int>": int,
    "array<decimal(5,2)>": Decimal,
}


def test_an_array_is_a_row(spark: SparkSession) -> None:
    values = {kind: [[of(1), of(2)], [of(3)], [], None, [of(1), None]] for kind, of in ARRAYS.items()}
    parts = [validate(frame(spark, kind, own), **ROLES) for kind, own in values.items()]
    more = validate(frame(spark, "array<double>", [[1.0, NAN, INF]]), **{**ROLES, "features": ["x"]})
    *rows, last = reduce(DataFrame.union, [*parts, more]).collect()
    assert [list(row.x) for row in rows] == [[1.0, 2.0], [3.0], [], [], []] * len(ARRAYS)
    sentences = [
        None,
        None,
        "x must hold at least one number, got none in column 'x'",
        "x must not be null, got null in column 'x'",
        f"{ROW}null at position 1 in column 'x'",
    ]
    assert [row.bad for row in rows] == sentences * len(ARRAYS)
    assert last.bad == f"{ROW}NaN at position 1 in column 'x'"


def test_a_vector_is_a_row(spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    data = [("a", 0, Vectors.dense(1.0, 2.0)), ("a", 1, Vectors.sparse(3, [1], [5.0])), ("a", 2, None)]
    df = spark.createDataFrame([*data, ("a", 3, Vectors.dense(NAN))], ["k", "o", "x"])
    rows = collect(df)
    assert [list(row.x) for row in rows] == [[1.0, 2.0], [0.0, 5.0, 0.0], [], []]
    assert [row.bad for row in rows] == [
        None,
        None,
        "x must not be null, got null in column 'x'",
        f"{ROW}NaN at position 0 in column 'x'",
    ]


# ------------------------------------------------------------------ keys, orders, labels


@pytest.mark.parametrize(
    ("kind", "value", "instead"),
    [
        ("string", "Ä", ""),
        ("binary", b"\xff", b""),
        ("tinyint", 5, 0),
        ("smallint", 5, 0),
        ("int", 5, 0),
        ("bigint", 2**60, 0),
    ],
)
def test_keys_keep_their_type_and_must_not_be_null(spark: SparkSession, kind: str, value: Any, instead: Any) -> None:
    df = spark.createDataFrame([(value, 1, 1.0), (None, 2, 1.0)], f"`the key` {kind}, o int, x double")
    frame = validate(df, key="the key", order="o", features="x", label=None)
    assert frame.schema["key"].dataType == df.schema["the key"].dataType
    assert [tuple(row) for row in frame.sort("order").collect()] == [
        (value, 1, 1.0, None),
        (instead, 2, 0.0, "key must not be null, got null in column 'the key'"),
    ]


def test_text_that_is_no_text_is_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([(b"\xff", 1, 1.0)], "k binary, o int, x double").withColumn(
        "k", F.col("k").cast("string")
    )
    (row,) = collect(df)
    assert (row.key, row.bad) == ("", "key must be text in UTF-8, got other bytes in column 'k'")
    (row,) = collect(df.withColumn("y", F.col("k")).withColumn("k", F.lit("a")), label="y")
    assert (row.y, row.bad) == ("", "y must be text in UTF-8, got other bytes in column 'y'")


ORDERS: dict[str, tuple[str, str, int | None]] = {  # as text, a placeholder, and as a sequence
    "smallint": ("-7", "0", -7),
    "bigint": (str(2**62), "0", 2**62),
    "date": ("2024-01-01", "1970-01-01", 19723),
    "timestamp": ("2024-05-06 07:08:09.123456", "1970-01-01 00:00:00", 1714979289123456),
    "timestamp_ntz": ("2024-05-06 07:08:09.123456", "1970-01-01 00:00:00", 1714979289123456),
    "double": ("1.5", "0.0", None),
    "decimal(10,2)": ("1.25", "0.00", None),
}
NO_ORDER = "order must not be null, got null in column 'o'"


def test_orders_keep_their_type_or_are_counted(spark: SparkSession) -> None:
    own, counted = [], []
    for kind, (value, _, count) in ORDERS.items():
        select = f"select k, cast(o as {kind}) as o, 1.0D as x from values ('a', '{value}'), ('b', null) as t(k, o)"
        df = spark.sql(select)
        validated = validate(df, **ROLES)
        assert validated.schema["order"].dataType == df.schema["o"].dataType
        own.append(validated.select(F.col("order").cast("string"), "bad"))
        if count is None:
            with pytest.raises(ValueError, match=r"^order must be a column of integers, dates or timestamps"):
                validate(df, **ROLES, sequence=True)
        else:
            counted.append(validate(df, **ROLES, sequence=True).select("order", "bad"))
    expected = [row for value, instead, _ in ORDERS.values() for row in ((value, None), (instead, NO_ORDER))]
    assert [tuple(row) for row in reduce(DataFrame.union, own).collect()] == expected
    numbers = [count for _, _, count in ORDERS.values() if count is not None]
    expected_counts = [row for count in numbers for row in ((count, None), (0, NO_ORDER))]
    assert [tuple(row) for row in reduce(DataFrame.union, counted).collect()] == expected_counts


def test_an_order_that_is_no_number_is_bad(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", NAN), ("b", INF), ("c", -0.0)], "k string, o double").withColumn("x", F.lit(1.0))
    rows = sorted(collect(df), key=lambda row: row.key)
    assert [row.bad for row in rows] == [
        "order must be a finite number, got NaN in column 'o'",
        "order must be a finite number, got Infinity in column 'o'",
        None,
    ]
    assert math.copysign(1.0, rows[2].order) == 1.0


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("string", ["a", None], ["a", ""]),
        ("int", [3, None], [3, 0]),
        ("boolean", [True, None], [True, False]),
        ("float", [0.5, None, NAN, INF], [0.5, 0.0, 0.0, INF]),
    ],
)
def test_labels(spark: SparkSession, kind: str, values: list[Any], expected: list[Any]) -> None:
    df = spark.createDataFrame([("a", i, 1.0, y) for i, y in enumerate(values)], f"k string, o int, x double, l {kind}")
    rows = collect(df, label="l")
    assert [row.y for row in rows] == expected
    assert rows[0].bad is None
    assert rows[1].bad == "y must not be null, got null in column 'l'"
    assert [row.bad for row in rows[2:]] == ["y must not be NaN, got NaN in column 'l'", None][: len(values) - 2]


def test_the_sentence_tells_what_is_a_placeholder(spark: SparkSession) -> None:
    data = [(None, None, NAN), ("a", None, NAN), (None, 5, NAN), ("b", 6, NAN)]
    frame = validate(spark.createDataFrame(data, "k string, o int, x double"), **ROLES)
    rows = frame.withColumn("no_key", lacks_key()).withColumn("no_order", lacks_order()).collect()
    lacking = {(row.key, row.order): (row.no_key, row.no_order) for row in rows}
    assert lacking == {("", 0): (True, True), ("a", 0): (False, True), ("", 5): (True, False), ("b", 6): (False, False)}
    assert all(row.x == 0.0 for row in rows)


# ------------------------------------------------------------------ columns by name


NAMES = ["key", "x", "n", "p", "kind", "a.b", "a`b", "`", " ", "Ä ö", "bad", "c0", "place", "N", "'", "\\"]


def test_any_name_will_do(spark: SparkSession) -> None:
    base = spark.sql("select 'a', 1, 1.5D, 'l'")
    frames = []
    for i, name in enumerate(NAMES):
        names = ["k", "o", "f", "l"]
        names[i % 4] = name
        more: dict[str, Any] = dict(zip(ROLES, names, strict=True))
        assert validate(base.toDF(*names), **more).columns == ["key", "order", "x", "y", "bad"]
        wrong = base.toDF("k", "o", "f", name)
        frames.append(validate(wrong, key="k", order="o", features=["f", name], label=None))
    rows = reduce(DataFrame.union, frames).collect()
    assert [row.bad for row in rows] == [f"{ROW}'l' in column {name!r}" for name in NAMES]


def test_names_are_told_apart_by_case_and_may_come_twice_if_unused(spark: SparkSession) -> None:
    df = spark.range(1).select(F.lit("a"), F.lit(1), F.lit(1.0), F.lit(2.0), F.lit(3.0)).toDF("k", "o", "x", "X", "X")
    assert collect(df)[0].x == 1.0
    with pytest.raises(
        ValueError, match=r"^features must name one of the columns .*, got 'X', which occurs more than once$"
    ):
        collect(df, "X")


def test_nested_columns_may_stand_beside(spark: SparkSession) -> None:
    df = spark.range(1).select(
        F.lit("a").alias("k"),
        F.lit(1).alias("o"),
        F.struct(F.lit(1.0).alias("x")).alias("s"),
        F.create_map(F.lit("a"), F.lit(1)).alias("m"),
        F.lit(2.0).alias("s.x"),
    )
    assert collect(df, "s.x")[0].x == 2.0
    with pytest.raises(ValueError, match=r"^features must be columns of numbers.*got 's' of type struct<x:double>$"):
        collect(df, "s")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"key": "q"},
            "key must name one of the columns ['k', 'o', 'x', 't', 'd', 'e', 'w'], got 'q'",
        ),
        (
            {"key": "x"},
            "key must be a column of text, integers or binary: cast it to string, got 'x' of type double",
        ),
        (
            {"key": "d"},
            "key must be a column of text, integers or binary: cast it to string, got 'd' of type date",
        ),
        ({"key": 3}, "key must be the name of a column, got 3"),
        (
            {"order": "t"},
            "order must be a column of integers, numbers, dates or timestamps: cast it (text would be sorted by"
            " its letters), got 't' of type string",
        ),
        (
            {"order": "x", "sequence": True},
            "order must be a column of integers, dates or timestamps: cast it to bigint or timestamp, got 'x' of"
            " type double",
        ),
        (
            {"features": "d"},
            "features must be columns of numbers, decimals, booleans or text that holds numbers, an array of numbers"
            " or a vector, got 'd' of type date",
        ),
        (
            {"features": ["x", "w"]},
            "features must be columns of numbers, decimals, booleans or text that holds numbers, got 'w' of type"
            " array<string>",
        ),
        ({"features": []}, "features must name at least one column, got none"),
        ({"features": ["x", "x"]}, "features must name each column once, got ['x', 'x']"),
        (
            {"label": "e"},
            "label must be a column of text, integers, numbers or booleans: cast it to string or double, got 'e'"
            " of type decimal(5,2)",
        ),
    ],
)
def test_columns_that_cannot_be_used_are_refused_at_once(
    spark: SparkSession, change: dict[str, Any], sentence: str
) -> None:
    df = spark.createDataFrame([], "k string, o int, x double, t string, d date, e decimal(5,2), w array<string>")
    with pytest.raises(ValueError) as error:  # noqa: PT011
        validate(df, **{**ROLES, **change})
    assert str(error.value) == sentence


def test_text_of_another_collation_is_refused(spark: SparkSession) -> None:
    df = spark.sql("select 'a' collate UTF8_LCASE as k, 1 as o, 1.0D as x")
    with pytest.raises(ValueError, match=r"^key must be .* got 'k' of type string collate UTF8_LCASE$"):
        collect(df)


def test_an_empty_frame_and_a_streaming_one(spark: SparkSession, tmp_path: Any) -> None:
    empty = spark.createDataFrame([], "k string, o int, x double, y string")
    assert collect(empty, label="y") == []
    empty.write.parquet(str(tmp_path / "in"))
    live = spark.readStream.schema(empty.schema).parquet(str(tmp_path / "in"))
    frame = validate(live, key="k", order="o", features=["x"], label="y", sequence=True)
    assert frame.isStreaming
    assert dict(frame.dtypes) == {
        "key": "string",
        "order": "bigint",
        "x": "array<double>",
        "y": "string",
        "bad": "string",
    }


def test_without_a_key(spark: SparkSession) -> None:
    frame = validate(spark.range(2).withColumn("x", F.lit(1.0)), key=None, order="id", features="x", label=None)
    assert frame.columns == ["order", "x", "bad"]


def test_a_wide_row_is_planned_in_time(spark: SparkSession) -> None:
    names = [f"f{i}" for i in range(200)]
    df = spark.sql(f"select 'a' as k, id as o, {', '.join(f'id + {i}.5D as f{i}' for i in range(200))} from range(3)")
    assert [row.x == [row.order + i + 0.5 for i in range(200)] for row in collect(df, names)] == [True] * 3


# ------------------------------------------------------------------ refusals


def test_a_refusal_is_found_again(spark: SparkSession) -> None:
    def fail(batches: Any) -> Any:
        for _ in batches:
            raise RefusedError(
                "key 'a', order 1:\nx must be a finite number, got 'exchangeable.spark.columns.RefusedError: no'"
            )
        yield from ()

    with pytest.raises(Exception, match="RefusedError") as error:
        spark.range(1).mapInArrow(fail, "id long").collect()
    sentence = "key 'a', order 1: x must be a finite number, got 'exchangeable.spark.columns.RefusedError: no'"
    assert refusal(error.value) == sentence
    outer = RuntimeError("the query has failed")
    outer.__cause__ = error.value
    assert refusal(outer) == sentence
    assert refusal(ValueError("another")) is None
    assert refusal(None) is None
