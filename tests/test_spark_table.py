"""`spark.pvalues` against `PValues(NearestNeighbour()).extend` on one machine: the same numbers, bit for bit."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import sparks
from exchangeable import PValues
from exchangeable.measures import NearestNeighbour
from exchangeable.measures.tiles import Segment
from exchangeable.protocols import Floats

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from exchangeable.spark import pvalues as of_spark  # noqa: E402
from exchangeable.spark import table as tables  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def spark() -> SparkSession:
    return sparks.local()


def pvalues(frame: DataFrame, *columns: Any, **more: Any) -> DataFrame:
    """With a seed that is fixed, unless another is given, and without its column."""
    found = of_spark(frame, *columns, **{"seed": 0, **more})
    assert (found.columns[-1], found.dtypes[-1][1]) == ("seed", "bigint")
    return found.drop("seed")


def examples(n: int, d: int, seed: int = 0) -> tuple[Floats, list[str]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = np.round(rng.normal(size=(n, d)) + y[:, None] / 2.0, 1)
    return np.asarray(X, np.float64), [f"class {label}" for label in y]


def alone(X: Floats, y: Iterable[Any], seed: int = 0) -> list[Any]:
    return list(PValues(NearestNeighbour(), seed=seed).extend(X, y).tolist())


def rows(spark: SparkSession, X: Any, y: Iterable[Any], order: Any = None) -> DataFrame:
    """A frame (t, x, y), its rows in no order."""
    places = range(len(X)) if order is None else order
    columns = {"t": pa.array(places), "x": pa.array(list(map(list, X)), pa.list_(pa.float64())), "y": pa.array(list(y))}
    mixed = np.random.default_rng(1).permutation(len(X))
    return spark.createDataFrame(pa.table(columns).take(pa.array(mixed, pa.int64())))


def lists(frame: DataFrame) -> list[list[Any]]:
    """The columns, as they come."""
    return [list(column) for column in zip(*frame.collect(), strict=True)]


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("block", [None, 170])
def test_as_on_one_machine(spark: SparkSession, block: int | None) -> None:
    X, y = examples(1500, 5)
    found = pvalues(rows(spark, X, y).repartition(7), "t", "x", "y", seed=3, block=block)
    assert found.columns == ["t", "p"]
    assert lists(found) == [list(range(1500)), alone(X, y, 3)]


@pytest.mark.parametrize(("n", "block"), [(1, 2**31 - 1), (5, 2)])
def test_few_rows(spark: SparkSession, n: int, block: int) -> None:
    X, y = examples(n, 2)
    assert lists(pvalues(rows(spark, X, y), "t", "x", "y", block=block)) == [list(range(n)), alone(X, y)]


def test_no_rows(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], "when timestamp, x array<double>, y string")
    found = pvalues(nothing, "when", "x", "y")
    assert found.dtypes == [("when", "timestamp"), ("p", "double")]
    assert found.collect() == []


@pytest.mark.usefixtures("system_seeds")
def test_a_seed_that_is_left_out_is_drawn_and_told(spark: SparkSession) -> None:
    X, y = examples(40, 2)
    given = rows(spark, X, y)
    seeds = set()
    for _ in range(2):
        order, p, seed = lists(of_spark(given, "t", "x", "y"))
        assert order == list(range(40))
        assert len(set(seed)) == 1
        assert p == alone(X, y, seed[0])
        seeds.add(seed[0])
    assert len(seeds) == 2
    assert max(seeds) < 2**53
    nothing = spark.createDataFrame([], "t int, x array<double>, y string")
    assert of_spark(nothing, "t", "x", "y").columns == ["t", "p", "seed"]


def test_columns_of_numbers(spark: SparkSession) -> None:
    X, y = np.random.default_rng(2).integers(0, 9, (60, 4)), [i % 3 == 0 for i in range(60)]
    kinds = "`the order` int, `a.b` short, B decimal(9,2), c string, d boolean, `p` boolean"
    given = [
        (-i, int(x[0]), Decimal(int(x[1])), str(x[2]), bool(x[3] > 4), label)
        for i, (x, label) in enumerate(zip(X, y, strict=True))
    ]
    found = pvalues(spark.createDataFrame(given, kinds), "the order", ["a.b", "B", "c", "d"], "p", block=25)
    plain = np.column_stack([X[:, :3], X[:, 3] > 4])[::-1].astype(float)
    assert lists(found) == [[-i for i in range(60)][::-1], alone(plain, y[::-1])]
    one = pvalues(spark.createDataFrame(given, kinds), "the order", "c", "p")
    assert lists(one)[1] == alone(plain[:, 2:3], y[::-1])


def test_vectors(spark: SparkSession) -> None:
    from pyspark.ml.linalg import Vectors

    X, y = examples(30, 3)
    vectors = [Vectors.dense(x) if i % 2 else Vectors.sparse(3, enumerate(x)) for i, x in enumerate(X.tolist())]
    frame = spark.createDataFrame(list(zip(range(30), vectors, y, strict=True)), ["t", "x", "y"])
    assert lists(pvalues(frame, "t", "x", "y", block=10))[1] == alone(X, y)


START = datetime(2024, 10, 26, 23, 0, tzinfo=UTC)  # a night with an hour that clocks show twice
ORDERS = [
    ("timestamp", [START + timedelta(minutes=7 * i, microseconds=i) for i in range(40)]),
    ("timestamp_ntz", [datetime(2024, 3, 31) + timedelta(minutes=7 * i) for i in range(40)]),
    ("date", [date(1990, 1, 1) + timedelta(days=i) for i in range(40)]),
    ("double", [-1e9, -0.5, *(i / 7 for i in range(38))]),
    ("float", [i / 4 for i in range(40)]),
    ("decimal(20,3)", [Decimal(10**15 + i) / 8 for i in range(40)]),
    ("smallint", list(range(-20, 20))),
]


@pytest.mark.parametrize(("kind", "order"), [pytest.param(*case, id=case[0]) for case in ORDERS])
def test_orders_keep_their_type(spark: SparkSession, kind: str, order: list[Any]) -> None:
    from pyspark.sql import functions as F

    X, y = examples(40, 2)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        given = spark.createDataFrame(
            list(zip(order, X.tolist(), y, strict=True)), f"t {kind}, x array<double>, y string"
        )
        found = pvalues(given.orderBy(F.rand(1)), "t", "x", "y")
        assert found.dtypes == [("t", kind), ("p", "double")]
        assert found.select("t").collect() == given.select("t").orderBy("t").collect()
        assert lists(found.select("p")) == [alone(X, y)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_the_result_is_an_ordinary_frame(spark: SparkSession) -> None:
    X, y = examples(50, 2)
    given = rows(spark, X, y)
    joined = given.join(pvalues(given, "t", "x", "y"), "t").orderBy("t")
    assert [row.p for row in joined.collect()] == alone(X, y)


def test_workers_do_not_keep_what_was_broadcast(spark: SparkSession) -> None:
    sent, received = spark.sparkContext.broadcast(bytearray(b"block")), tables._value

    def twice(_: int) -> tuple[bytes, bytes, bool]:
        return bytes(received(sent)), bytes(received(sent)), hasattr(sent, "_value")

    assert spark.sparkContext.parallelize([0], 1).map(twice).collect() == [(b"block", b"block", False)]
    sent.destroy()


# ------------------------------------------------------------------ refusals


@contextmanager
def nothing_left(spark: SparkSession) -> Iterator[None]:
    """No broadcast variable stays on disk, nothing is kept."""
    folder = Path(str(spark.sparkContext._temp_dir))
    before = set(folder.iterdir())
    yield
    assert set(folder.iterdir()) <= before
    assert spark.sparkContext._jsc.getPersistentRDDs().isEmpty()


def refused(frame: DataFrame, sentence: str) -> None:
    with nothing_left(frame.sparkSession), pytest.raises(ValueError, match=r".") as caught:
        pvalues(frame, "t", "x", "y", block=10)
    assert str(caught.value) == sentence


def test_nothing_is_left_behind(spark: SparkSession) -> None:
    with nothing_left(spark):
        pvalues(rows(spark, *examples(50, 2)), "t", "x", "y", block=10)


def test_invalid_rows(spark: SparkSession) -> None:
    X, y = examples(60, 2)
    X[41, 1], X[17, 0] = math.inf, math.nan
    message = "x must be finite numbers of magnitude at most 1e+150"
    refused(rows(spark, X, y), f"order 17: {message}, got NaN at position 0 in column 'x'")
    X[17, 0] = 0.0
    refused(rows(spark, X, y), f"order 41: {message}, got Infinity at position 1 in column 'x'")
    X[41, 1] = 1e151
    refused(rows(spark, X, y), f"order 41: {message}, got 1.0E151 at position 1 in column 'x'")
    X[41, 1] = 0.0
    refused(rows(spark, X, [*y[:59], None]), "order 59: y must not be null, got null in column 'y'")
    times = [None if i == 30 else i for i in range(60)]
    refused(rows(spark, X, y, times), "order must not be null, got null in column 't'")


def test_rows_of_other_widths(spark: SparkSession) -> None:
    X, y = examples(60, 2)
    message = "x must hold 2 numbers, as many as the first row"
    refused(rows(spark, [*X[:33].tolist(), [1.0], *X[34:].tolist()], y), f"order 33: {message}, got 1")
    refused(rows(spark, [*X[:59].tolist(), [1.0, 2.0, 3.0]], y), f"order 59: {message}, got 3")
    none = "x must hold at least one number, got none in column 'x'"
    refused(rows(spark, [[] for _ in X], y), f"order 0: {none}")


@pytest.mark.parametrize("again", [1, 59])
def test_two_rows_of_one_order(spark: SparkSession, again: int) -> None:
    X, y = examples(60, 2)
    order = [i - (i == again) for i in range(60)]
    refused(
        rows(spark, X, y, order), f"order {again - 1}: each row must have a different order, got two rows with this one"
    )


def test_arguments(spark: SparkSession) -> None:
    frame = rows(spark, *examples(5, 2))
    refusals: list[tuple[Any, dict[str, Any], str]] = [
        (("p", "x", "y"), {}, "order must not be named 'p', like a column of the result: rename it$"),
        (("Seed", "x", "y"), {}, "order must not be named 'Seed', like a column of the result: rename it$"),
        (("nobody", "x", "y"), {}, "order must name one of the columns"),
        (("t", "x", None), {}, "label must be the name of a column, got None"),
        (("t", [], "y"), {}, "features must name at least one column"),
        (("t", "x", "y"), {"seed": -1}, "seed must be an integer"),
        (("t", "x", "y"), {"seed": 2**63}, "seed must be an integer from 0 to 9223372036854775807"),
        (("t", "x", "y"), {"block": 0}, "block must be an integer from 1"),
        (("t", "x", "y"), {"block": 2.5}, "block must be an integer from 1"),
    ]
    for arguments, options, message in refusals:
        with pytest.raises(ValueError, match=f"^{message}"):
            pvalues(frame, *arguments, **options)
    with pytest.raises(ValueError, match=r"^df must be a batch frame, got a streaming frame"):
        pvalues(spark.readStream.format("rate").load(), "timestamp", "value", "value")


# ------------------------------------------------------------------ pieces, without Spark


def batch(order: list[int], x: list[list[float]], y: list[str], bad: list[str | None]) -> Any:
    kinds = (pa.int64(), pa.list_(pa.float64()), pa.string(), pa.string())
    columns = [pa.array(column, kind) for column, kind in zip((order, x, y, bad), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, ["order", "x", "y", "bad"])


def unpacked(batches: list[Any]) -> list[Any]:
    texts = [text for packed in tables._pack(batches) for text in packed["piece"].to_pylist()]
    pieces = [pa.ipc.open_stream(base64.b64decode(text)).read_all() for text in texts]
    return [[column.to_pylist() for column in piece.columns] for piece in pieces]


def test_pieces_are_cut_by_width_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PIECE", 48)
    x = [[1.0], [2.0], [3.0, 4.0], [], *([[float(i)] for i in range(9)])]
    first = batch(list(range(13)), x, list("abcdefghijklm"), [None] * 13)
    pieces = unpacked([first, first.slice(5, 3)])
    assert [len(order) for order, *_ in pieces] == [2, 1, 1, 6, 3, 3]
    assert [row for _, rows, *_ in pieces for row in rows] == [*x, *x[5:8]]
    assert "".join(label for *_, labels, _ in pieces for label in labels) == "abcdefghijklmfgh"
    assert pieces[-1][0] == [5, 6, 7]


def test_blocks_of_one_size() -> None:
    parts = [(np.arange(float(2 * n)).reshape(n, 2), np.arange(n, dtype=np.int32)) for n in (3, 1, 8, 2)]
    blocks = [(block.X.copy(), block.code.copy()) for block in tables._blocks(parts, 4, 2)]
    assert [len(X) for X, _ in blocks] == [4, 4, 4, 2]
    assert np.concatenate([X for X, _ in blocks]).tolist() == np.concatenate([X for X, _ in parts]).tolist()
    assert np.concatenate([code for _, code in blocks]).tolist() == [0, 1, 2, 0, *range(8), 0, 1]


def test_labels_are_numbered_in_order_of_appearance() -> None:
    codes, known = tables._encode(pa.array(["b", "a", "b"]), {"z": 0})
    assert (codes.tolist(), known) == ([1, 2, 1], {"z": 0, "b": 1, "a": 2})
    assert tables._encode(pa.array([0.0, -0.0, 1.5]), {})[0].tolist() == [0, 0, 1]


# ------------------------------------------------------------------ processes of their own, that die


@pytest.mark.soak
def test_a_worker_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    spark, honest = sparks.cluster(), tables._search

    def dying(shelf: Any, segment: Segment) -> bytes:
        from pyspark import TaskContext

        found, task = honest(shelf, segment), TaskContext.get()
        if task is not None and segment == Segment(1, 0, 1) and task.attemptNumber() == 0:
            os._exit(1)  # after the work, before it is told
        return found

    monkeypatch.setattr(tables, "_search", dying)
    monkeypatch.setattr(tables, "PAGE", 500)  # several pages of bounds
    monkeypatch.setattr(tables, "LOT", 10_000)
    X, y = examples(1200, 3)
    with nothing_left(spark):
        assert lists(pvalues(rows(spark, X, y), "t", "x", "y", seed=1, block=250)) == [
            list(range(1200)),
            alone(X, y, 1),
        ]
