"""The p-values of one huge table, in tiles: every example meets every other in some executor, and only falls come back.

The driver sees the table once, a piece at a time, and cuts it into blocks, which travel as broadcast variables: from
executor to executor, to files. What it keeps of n examples is their places in the order, and what `Tiles` says.
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
from exchangeable.spark.columns import RefusedError, admitted, orderless
from exchangeable.validation import check_integer, encode_labels, format_value

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.core.broadcast import Broadcast

PIECE = 2**21  # bytes of features that travel together
LOT = 2**24  # bytes that the driver takes at a time
PAGE = 2**20  # examples whose bounds travel together

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
    """The paper's p-values of a labelled table in the order of a column: for tables that one machine cannot do in time.

    Scores are those of `NearestNeighbour`, and the numbers those of `PValues(NearestNeighbour(), seed=seed).extend` on
    one machine, bit for bit. ``features`` names columns of numbers, or one of arrays or vectors of one width. Returns
    the column of the order, under its own name and of its own type, ``p`` and ``seed``, sorted. Runs at once; tasks are
    pure, so that retries and speculation change nothing. Invalid rows, and two rows of the same order, are rejected.
    ``seed=None`` draws a seed from the operating system, which is in the column ``seed``; an integer below 2^63 makes
    a run repeatable.

    Work O(n^2 d) spread over all cores, by a matrix product in each. To every executor go the table once (8 d bytes an
    example, as files) and 16 bytes an example in each of 1 + log2(n / block) rounds; back to the driver come on
    exchangeable data some 25 bytes an example and round. The driver needs about 0.5 kB an example, a Python worker
    200 MB, if ``block`` is left to `block_size`: 24 d + 1200 bytes for each of its rows.

    >>> pvalues(table, "time", ["length", "width"], "species").show()  # doctest: +SKIP

    Reference: Fedorova et al. (2012), Algorithm 1 and equation (1).
    """
    context = _context(df)
    kind = _kind(df, order, label)
    seed = seeds.chosen(seed)
    if block is not None:
        check_integer("block", block, 1, MAX_EXAMPLES)
    rows = admitted(df, key=None, order=order, features=_listed(features), label=label)
    with ExitStack() as held:
        n, places = check_integer("the number of rows", rows.count(), 0, MAX_EXAMPLES), list[Any]()
        parts = _parts(_packed(rows, n, held), places)
        first = next(parts, None)
        if first is None:
            return seeds.told(_frame(df, order, kind, [], np.empty(0)), seed)
        width = first[0].shape[1]
        size = min(n, block or block_size(n, width, context.defaultParallelism))
        blocks = [_sent(context, each.encode(), held) for each in _blocks(chain([first], parts), size, width)]
        ranks = _ranks(context, blocks, sum(map(len, places)), width, size)
    return seeds.told(_frame(df, order, kind, places, from_ranks(ranks, seed=seed)), seed)


# ------------------------------------------------------------------ the door


def _context(df: DataFrame) -> SparkContext:
    if df.isStreaming:
        raise ValueError("df must be a batch frame, got a streaming one: scores of a stream without end cannot be kept")
    try:
        return df.sparkSession.sparkContext
    except AttributeError:  # PySpark's own sentence speaks of the JVM
        raise ValueError(
            "df must belong to a session with a driver of its own, got one of Spark Connect, which cannot broadcast"
        ) from None


def _kind(df: DataFrame, order: str, label: str) -> T.DataType:
    """The type of the order column; where there is none of this name, `admitted` will say so."""
    if isinstance(order, str) and order.lower() in ("p", seeds.COLUMN):
        raise ValueError(f"order must not be called {order!r}, as a column of the result is: rename it")
    if not isinstance(label, str):
        raise ValueError(f"label must be the name of a column, got {format_value(label)}")
    return next((field.dataType for field in df.schema.fields if field.name == order), T.NullType())


def _listed(features: str | Sequence[str]) -> Sequence[str]:
    """Names of columns as a list, so that one number is a row too."""
    return [features] if isinstance(features, str) else features


# ------------------------------------------------------------------ from the frame to blocks


def _packed(rows: DataFrame, n: int, held: ExitStack) -> RDD[bytes]:
    """The rows in pieces, by order; kept on the executors' disks. Where some are bad, only pieces that hold such.

    As an RDD: what comes out of a frame's ``toLocalIterator`` is never given back by Spark, and much slower. As text on
    the way there: PySpark hands over text twice as fast as bytes.
    """
    one = rows.select(F.size("x")).first()
    lots = math.ceil(n * 8 * (0 if one is None else one[0]) / LOT)
    ordered = rows.repartitionByRange(max(1, lots), "order").sortWithinPartitions("order")
    pieces = ordered.mapInArrow(_pack, "piece string").rdd.map(_unpack).persist(StorageLevel.DISK_ONLY)
    held.callback(_quietly, pieces.unpersist)
    bad = pieces.map(_is_bad).sum()  # all cores make them here
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
    """Parts whose rows are of one width, and not too many bytes."""
    widths = pc.list_value_length(batch["x"]).to_numpy()
    start = 0
    while start < batch.num_rows:
        most = start + max(1, PIECE // (8 * max(1, widths[start])))
        other = np.flatnonzero(widths[start:most] != widths[start])
        stop = start + int(other[0]) if other.size else min(most, batch.num_rows)
        yield batch.slice(start, stop - start)
        start = stop


def _parts(pieces: RDD[bytes], places: list[Any]) -> Iterator[Part]:
    """Features and numbered labels, piece by piece; their places in the order are added to the list."""
    known: dict[Hashable, int] = {}
    width = None
    for piece in pieces.toLocalIterator(prefetchPartitions=True):
        rows = _read(piece)
        place = pc.take(rows["order"], pa.array(np.arange(len(rows))))  # in memory of its own
        X = rows["x"].flatten().to_numpy().reshape(len(rows), -1)
        width = X.shape[1] if width is None else width
        _check(rows, places[-1][-1:] if places else place[:0], X.shape[1], width)
        places.append(place)
        codes, known = _numbered(rows["y"], known)
        yield X, codes


def _check(rows: Any, last: Any, width: int, wanted: int) -> None:
    """Refuse a row that is not lawful, two of one place, which have no order, and rows of another width."""
    bad = np.flatnonzero(rows["bad"].is_valid().to_numpy(zero_copy_only=False))
    if bad.size:
        raise _refused(rows["order"][int(bad[0])], rows["bad"][int(bad[0])].as_py())
    place = pa.concat_arrays([last, rows["order"]])
    same = np.flatnonzero(pc.equal(place[1:], place[:-1]).to_numpy(zero_copy_only=False))
    if same.size:
        raise _refused(place[int(same[0])], "rows must each have an order of their own, got two of this")
    if not pc.all(pc.less(place[:-1], place[1:]), min_count=0).as_py():
        raise RuntimeError("Spark must hand over the rows in their order, but did not")
    if width != wanted:
        raise _refused(rows["order"][0], f"x must hold {wanted} numbers, as many as the first row, got {width}")


def _refused(place: Any, sentence: str) -> RefusedError:
    where = "" if orderless(sentence) else f"order {place.cast(pa.string()).as_py()}: "
    return RefusedError(f"{where}{sentence}")


def _blocks(parts: Iterable[Part], size: int, width: int) -> Iterator[Block]:
    """Blocks of ``size`` examples, the last one of what is left; each good until the next."""
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


def _numbered(labels: Any, known: dict[Hashable, int]) -> tuple[Codes, dict[Hashable, int]]:
    """Labels as numbers, in order of appearance."""
    coded = pc.dictionary_encode(labels)
    codes, known = encode_labels(coded.dictionary.to_pylist(), known)
    return codes[coded.indices.to_numpy()], known


# ------------------------------------------------------------------ broadcast variables


def _sent(context: SparkContext, data: bytearray, held: ExitStack) -> Broadcast[bytearray]:
    """A broadcast variable of bytes, which is destroyed in the end."""
    sent = context.broadcast(data)
    held.callback(_quietly, sent.destroy)
    return sent


def _quietly(end: Callable[[], object]) -> None:
    """Tidy up; where even that fails, the error before it says more."""
    with suppress(Py4JError, OSError):
        end()


def _received(sent: Broadcast[bytearray]) -> bytearray:
    """The bytes, in a worker; PySpark would keep them for ever, and a worker may come to see all blocks."""
    data = sent.value
    if getattr(sent, "_path", None) is not None:  # they can be read again
        vars(sent).pop("_value", None)
    return data


class _Shelf(NamedTuple):
    """What the tasks of a round need: blocks, and the bounds of their examples on pages of several blocks each."""

    blocks: list[Broadcast[bytearray]]
    pages: list[Broadcast[bytearray]]
    per_page: int
    size: int
    width: int

    def block(self, number: int) -> Block:
        return Block.decode(_received(self.blocks[number]), self.width)

    def bounds(self, number: int) -> Floats:
        page, place = divmod(number, self.per_page)
        start = 2 * self.size * place
        return np.frombuffer(_received(self.pages[page]))[start : start + 2 * self.size].reshape(-1, 2).copy()


# ------------------------------------------------------------------ tiles


def _ranks(context: SparkContext, blocks: list[Broadcast[bytearray]], n: int, width: int, size: int) -> Ranks:
    tiles = Tiles(n, size)
    rounds = plan(n, size, context.defaultParallelism)
    per_page = max(1, PAGE // size)
    rows = per_page * size
    for number, segments in enumerate(rounds):
        with _described(context, f"nearest neighbours, round {number + 1} of {len(rounds)}"), ExitStack() as held:
            bounds = tiles.bounds()
            pages = [_sent(context, bytearray(bounds[lo : lo + rows].data), held) for lo in range(0, n, rows)]
            tiles.settle(_found(context, _Shelf(blocks, pages, per_page, size, width), segments, held))
    return tiles.ranks()


def _found(context: SparkContext, shelf: _Shelf, segments: list[Segment], held: ExitStack) -> Iterator[Falls]:
    """What the segments have found. All cores search, and keep it; then the driver takes it, a lot at a time."""
    found = context.parallelize(segments, len(segments)).map(partial(_search, shelf)).persist(StorageLevel.DISK_ONLY)
    held.callback(_quietly, found.unpersist)
    lots = math.ceil(found.map(len).sum() / LOT)
    return map(Falls.decode, found.coalesce(max(1, lots)).toLocalIterator(prefetchPartitions=True))


def _search(shelf: _Shelf, segment: Segment) -> bytes:
    return search(segment, shelf.size, shelf.block, shelf.bounds).encode()


@contextmanager
def _described(context: SparkContext, text: str) -> Iterator[None]:
    """What is seen of the work from outside."""
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(text)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", before)  # type: ignore[arg-type]  # None takes it away


def _frame(df: DataFrame, order: str, kind: T.DataType, places: list[Any], p: Floats) -> DataFrame:
    schema = T.StructType([T.StructField(order, kind, False), T.StructField("p", T.DoubleType(), False)])
    if not places:
        return df.sparkSession.createDataFrame([], schema)
    table = pa.Table.from_arrays([pa.chunked_array(places), pa.array(p)], names=[order, "p"])
    return df.sparkSession.createDataFrame(table, schema)
