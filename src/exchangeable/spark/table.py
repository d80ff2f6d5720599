"""`pvalues`: the p-values of one huge table, computed in tiles.

Every pair of examples is compared in some executor, and only what lowers a nearest distance comes back. The driver
reads the table once, a piece at a time, and cuts it into blocks, which are sent as broadcast variables. It stores the
orders of the examples and the state of `Tiles`.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from exchangeable.measures.tiles import MAX_EXAMPLES, Block, Codes, Falls, Segment, Tiles, block_size, plan, search
from exchangeable.protocols import Floats, Ranks
from exchangeable.pvalues import from_ranks
from exchangeable.spark import seeds
from exchangeable.spark.columns import NO_ORDER, RefusedError, validate
from exchangeable.validation import check_integer, encode_labels, format_value

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.core.broadcast import Broadcast

PIECE = 2**21  # bytes of features that are sent together
LOT = 2**24  # bytes that the driver reads at a time
PAGE = 2**20  # examples whose bounds are sent together

Part = tuple[Floats, Codes]


def pvalues(
    df: DataFrame,
    order: str,
    features: str | Sequence[str],
    label: str,
    *,
    seed: int | None = None,
    block: int | None = None,
) -> DataFrame:
    """Return the paper's p-values of a labelled table, for tables that take too long on one machine.

    The scores are those of `NearestNeighbour`, and the numbers those of
    ``PValues(NearestNeighbour(), seed=seed).extend`` on one machine, bit for bit. ``features`` names columns of
    numbers, or one column of arrays or vectors of the same width. The result, sorted, has the order column, with its
    name and type, ``p`` and ``seed``. The work is done in this call. Tasks are pure, so retries and speculation change
    nothing. Invalid rows, and two rows with the same order, are rejected. ``seed=None`` draws a seed from the operating
    system; pass an integer below 2^63 to make a run repeatable.

    The work is O(n^2 d), spread over all cores as matrix products. Each executor receives the table once (8 d bytes per
    example, as files) and 16 bytes per example in each of 1 + log2(n / block) rounds; on exchangeable data about 25
    bytes per example and round return to the driver. The driver needs about 0.5 kB per example. A Python worker needs
    200 MB with the default ``block``, in general 24 d + 1200 bytes for each row of a block.

    >>> pvalues(table, "time", ["length", "width"], "species").show()  # doctest: +SKIP

    Reference: Fedorova et al. (2012), Algorithm 1 and equation (1).
    """
    context = _context(df)
    kind = _kind(df, order, label)
    seed = seeds.choose(seed)
    if block is not None:
        check_integer("block", block, 1, MAX_EXAMPLES)
    rows = validate(df, key=None, order=order, features=_as_list(features), label=label)
    with ExitStack() as cleanup:
        n, orders = check_integer("the number of rows", rows.count(), 0, MAX_EXAMPLES), list[Any]()
        parts = _parts(_pieces(rows, n, cleanup), orders)
        first = next(parts, None)
        if first is None:
            return seeds.add_column(_frame(df, order, kind, [], np.empty(0)), seed)
        width = first[0].shape[1]
        size = min(n, block or block_size(n, width, context.defaultParallelism))
        blocks = [_broadcast(context, each.encode(), cleanup) for each in _blocks(chain([first], parts), size, width)]
        ranks = _ranks(context, blocks, sum(map(len, orders)), width, size)
    return seeds.add_column(_frame(df, order, kind, orders, from_ranks(ranks, seed=seed)), seed)


# ------------------------------------------------------------------ validation


def _context(df: DataFrame) -> SparkContext:
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a streaming frame: its scores could not all be stored")
    try:
        return df.sparkSession.sparkContext
    except AttributeError:  # PySpark's own message only mentions the JVM
        raise ValueError(
            "df must belong to a classic Spark session, got one of Spark Connect, which cannot broadcast"
        ) from None


def _kind(df: DataFrame, order: str, label: str) -> T.DataType:
    """Return the type of the order column; `validate` reports a column that does not exist."""
    if isinstance(order, str) and order.lower() in ("p", seeds.COLUMN):
        raise ValueError(f"order must not be named {order!r}, like a column of the result: rename it")
    if not isinstance(label, str):
        raise ValueError(f"label must be the name of a column, got {format_value(label)}")
    return next((field.dataType for field in df.schema.fields if field.name == order), T.NullType())


def _as_list(features: str | Sequence[str]) -> Sequence[str]:
    """Return the names as a list, so that a single number becomes a row too."""
    return [features] if isinstance(features, str) else features


# ------------------------------------------------------------------ from the frame to blocks


def _pieces(rows: DataFrame, n: int, cleanup: ExitStack) -> RDD[bytes]:
    """Return the rows in pieces, sorted, on the executors' disks; if some rows are bad, only the pieces with these.

    It is an RDD because ``toLocalIterator`` of a frame is slow and never frees its memory. The pieces become text on
    the way there because PySpark passes text twice as fast as bytes.
    """
    first = rows.select(F.size("x")).first()
    lots = math.ceil(n * 8 * (0 if first is None else first[0]) / LOT)
    ordered = rows.repartitionByRange(max(1, lots), "order").sortWithinPartitions("order")
    pieces = ordered.mapInArrow(_pack, "piece string").rdd.map(_unpack).persist(StorageLevel.DISK_ONLY)
    cleanup.callback(_ignore_errors, pieces.unpersist)
    bad = pieces.map(_is_bad).sum()  # this computes the pieces on all cores
    return pieces.filter(_is_bad) if bad else pieces


def _pack(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for part in _cut(batch):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as stream:
                stream.write_batch(part)
            text = b64encode(sink.getvalue()).decode("ascii")
            yield pa.RecordBatch.from_arrays([pa.array([text])], ["piece"])


def _unpack(row: Any) -> bytes:
    return b64decode(row.piece)


def _read(piece: bytes) -> Any:
    with pa.ipc.open_stream(piece) as stream:
        return stream.read_next_batch()


def _is_bad(piece: bytes) -> bool:
    rows = _read(piece)
    return bool(rows["bad"].null_count < len(rows))


def _cut(batch: Any) -> Iterator[Any]:
    """Cut a batch into parts with rows of one width and a limited number of bytes."""
    widths = pc.list_value_length(batch["x"]).to_numpy()
    start = 0
    while start < batch.num_rows:
        most = start + max(1, PIECE // (8 * max(1, widths[start])))
        other = np.flatnonzero(widths[start:most] != widths[start])
        stop = start + int(other[0]) if other.size else min(most, batch.num_rows)
        yield batch.slice(start, stop - start)
        start = stop


def _parts(pieces: RDD[bytes], orders: list[Any]) -> Iterator[Part]:
    """Yield features and label codes, piece by piece, and append the orders to the list."""
    known: dict[Hashable, int] = {}
    width = None
    for piece in pieces.toLocalIterator(prefetchPartitions=True):
        rows = _read(piece)
        order = pc.take(rows["order"], pa.array(np.arange(len(rows))))  # a copy, so that the piece can be freed
        X = rows["x"].flatten().to_numpy().reshape(len(rows), -1)
        width = X.shape[1] if width is None else width
        _check(rows, orders[-1][-1:] if orders else order[:0], X.shape[1], width)
        orders.append(order)
        codes, known = _encode(rows["y"], known)
        yield X, codes


def _check(rows: Any, last: Any, width: int, expected_width: int) -> None:
    """Reject bad rows, two rows with the same order, and rows of another width."""
    bad = np.flatnonzero(rows["bad"].is_valid().to_numpy(zero_copy_only=False))
    if bad.size:
        raise _row_error(rows["order"][int(bad[0])], rows["bad"][int(bad[0])].as_py())
    order = pa.concat_arrays([last, rows["order"]])
    same = np.flatnonzero(pc.equal(order[1:], order[:-1]).to_numpy(zero_copy_only=False))
    if same.size:
        raise _row_error(order[int(same[0])], "each row must have a different order, got two rows with this one")
    if not pc.all(pc.less(order[:-1], order[1:]), min_count=0).as_py():
        raise RuntimeError("rows must be sorted by order, but are not: please report this as a bug")
    if width != expected_width:
        raise _row_error(
            rows["order"][0], f"x must hold {expected_width} numbers, as many as the first row, got {width}"
        )


def _row_error(order: Any, message: str) -> RefusedError:
    where = "" if message.startswith(NO_ORDER) else f"order {order.cast(pa.string()).as_py()}: "
    return RefusedError(f"{where}{message}")


def _blocks(parts: Iterable[Part], size: int, width: int) -> Iterator[Block]:
    """Yield blocks of ``size`` examples, and the rest. A block is overwritten by the next one."""
    X, code, used = np.empty((size, width)), np.empty(size, np.int32), 0
    for part, codes in parts:
        done = 0
        while done < len(part):
            more = min(len(part) - done, size - used)
            X[used : used + more], code[used : used + more] = part[done : done + more], codes[done : done + more]
            done, used = done + more, used + more
            if used == size:
                yield Block(X, code)
                used = 0
    if used:
        yield Block(X[:used], code[:used])


def _encode(labels: Any, known: dict[Hashable, int]) -> tuple[Codes, dict[Hashable, int]]:
    """Return the labels as codes, in order of appearance."""
    coded = pc.dictionary_encode(labels)
    codes, known = encode_labels(coded.dictionary.to_pylist(), known)
    return codes[coded.indices.to_numpy()], known


# ------------------------------------------------------------------ broadcast variables


def _broadcast(context: SparkContext, data: bytearray, cleanup: ExitStack) -> Broadcast[bytearray]:
    """Broadcast bytes; the variable is destroyed at the end."""
    variable = context.broadcast(data)
    cleanup.callback(_ignore_errors, variable.destroy)
    return variable


def _ignore_errors(release: Callable[[], object]) -> None:
    """Release a resource; an error here would hide the one before it."""
    with suppress(Py4JError, OSError):
        release()


def _value(variable: Broadcast[bytearray]) -> bytearray:
    """Return the bytes in a worker. PySpark would cache them forever, and a worker may need all blocks."""
    data = variable.value
    if getattr(variable, "_path", None) is not None:  # it can be read again
        vars(variable).pop("_value", None)
    return data


class _RoundData(NamedTuple):
    """The data that the tasks of a round need: blocks, and the bounds of their examples, several blocks on a page."""

    blocks: list[Broadcast[bytearray]]
    pages: list[Broadcast[bytearray]]
    per_page: int
    size: int
    width: int

    def block(self, number: int) -> Block:
        return Block.decode(_value(self.blocks[number]), self.width)

    def bounds(self, number: int) -> Floats:
        page, position = divmod(number, self.per_page)
        start = 2 * self.size * position
        return np.frombuffer(_value(self.pages[page]))[start : start + 2 * self.size].reshape(-1, 2).copy()


# ------------------------------------------------------------------ tiles


def _ranks(context: SparkContext, blocks: list[Broadcast[bytearray]], n: int, width: int, size: int) -> Ranks:
    tiles = Tiles(n, size)
    rounds = plan(n, size, context.defaultParallelism)
    per_page = max(1, PAGE // size)
    rows = per_page * size
    for number, segments in enumerate(rounds):
        with (
            _job_description(context, f"nearest neighbours, round {number + 1} of {len(rounds)}"),
            ExitStack() as cleanup,
        ):
            bounds = tiles.bounds()
            pages = [_broadcast(context, bytearray(bounds[lo : lo + rows].data), cleanup) for lo in range(0, n, rows)]
            tiles.end_round(_search_all(context, _RoundData(blocks, pages, per_page, size, width), segments, cleanup))
    return tiles.ranks()


def _search_all(
    context: SparkContext, data: _RoundData, segments: list[Segment], cleanup: ExitStack
) -> Iterator[Falls]:
    """Search the segments on all cores, and pass the results to the driver, a lot at a time."""
    results = context.parallelize(segments, len(segments)).map(partial(_search, data)).persist(StorageLevel.DISK_ONLY)
    cleanup.callback(_ignore_errors, results.unpersist)
    lots = math.ceil(results.map(len).sum() / LOT)
    return map(Falls.decode, results.coalesce(max(1, lots)).toLocalIterator(prefetchPartitions=True))


def _search(data: _RoundData, segment: Segment) -> bytes:
    return search(segment, data.size, data.block, data.bounds).encode()


@contextmanager
def _job_description(context: SparkContext, text: str) -> Iterator[None]:
    """Set the description of Spark's jobs."""
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]  # None removes it


def _frame(df: DataFrame, order: str, kind: T.DataType, orders: list[Any], p: Floats) -> DataFrame:
    schema = T.StructType([T.StructField(order, kind, False), T.StructField("p", T.DoubleType(), False)])
    if not orders:
        return df.sparkSession.createDataFrame([], schema)
    table = pa.Table.from_arrays([pa.chunked_array(orders), pa.array(p)], names=[order, "p"])
    return df.sparkSession.createDataFrame(table, schema)
