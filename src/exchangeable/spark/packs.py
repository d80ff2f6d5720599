"""Events on their way to the buckets of `monitor_streams`, and rows on their way back: many in one, as Arrow in bytes.

Spark hands rows to a state function in Python one by one, and takes them back so, at several microseconds each. So
before the shuffle events are gathered by bucket, and one binary value holds all of a bucket; likewise on the way back.
Scores are computed here, before the shuffle: what travels is a number, not a row of features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.spark.batches import Examples, flags, of_the_row, starts
from exchangeable.spark.columns import RefusedError
from exchangeable.validation import check_p_array, format_value

PACKED = "bucket int, events binary"
QUERY = -1  # a bucket without events, whose state tells what query it belongs to
ROWS, BYTES = 2**17, 2**24  # that are gathered before they are packed


def large(kind: Any) -> Any:
    """The same type of text or bytes without a limit of 2 GB for a column."""
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def events_schema(key: Any) -> Any:
    """What is packed: no value but ``bad`` is ever null."""
    columns = {"order": pa.int64(), "x": pa.float64(), "content": pa.int64(), "bad": pa.large_string()}
    return pa.schema([pa.field("key", large(key)), *(pa.field(name, kind) for name, kind in columns.items())])


class Packer:
    """The first stage: rows ``bucket, key, order, x, [y], [content], bad`` in, a few rows for each bucket out."""

    def __init__(self, measure: Any, schema: Any, *, order: str, fail: bool) -> None:
        self.measure = measure
        self.schema = schema
        self.order = order
        self.fail = fail

    def packed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For ``mapInArrow``."""
        held: list[Any] = []
        begun = False
        for batch in batches:
            if batch.num_rows:
                if not begun:
                    yield _packs([QUERY], [b""])
                begun = True
                held.append(self._events(batch))
            if sum(part.num_rows for part in held) >= ROWS or sum(part.nbytes for part in held) >= BYTES:
                yield _by_bucket(held)
                held = []
        if held:
            yield _by_bucket(held)

    def _events(self, batch: Any) -> Any:
        """The bucket and the event of each row, with its score."""
        x, found = np.zeros(batch.num_rows), dict[int, str]()
        lawful = np.flatnonzero(flags(batch["bad"].is_null()))
        for at in _of_one_width(batch["x"], lawful):
            self._score(batch, at, x, found)
        bad = _with(batch["bad"].cast(pa.large_string()), found)
        if self.fail and bad.null_count < len(bad):
            raise self._refusal(batch, bad)
        content = batch["content"] if "content" in batch.schema.names else np.zeros(batch.num_rows, np.int64)
        columns = [batch["key"].cast(self.schema.field("key").type), batch["order"], pa.array(x), content, bad]
        return pa.RecordBatch.from_arrays([batch["bucket"], *columns], ["bucket", *self.schema.names])

    def _score(self, batch: Any, at: Integers, x: Floats, found: dict[int, str]) -> None:
        """In one call; if one of the rows is refused, the halves are tried, so that it is told from the others."""
        try:
            x[at] = self._scores(*Examples(batch, at).piece(0, len(at)))
        except ValueError as error:
            if not of_the_row(error):
                raise
            if len(at) == 1:
                found[int(at[0])] = " ".join(str(error).removesuffix(" at position 0").split())
                return
            for half in (at[: len(at) // 2], at[len(at) // 2 :]):
                self._score(batch, half, x, found)

    def _scores(self, X: Any, y: Any) -> Floats:
        if isinstance(self.measure, Precomputed):
            return check_p_array(X)
        self._check_width(X)
        scores: Floats = self.measure.scores(X, y)
        return scores

    def _check_width(self, X: Floats) -> None:
        width = getattr(getattr(self.measure, "score", None), "n_features_in_", None)
        if X.ndim == 2 and width not in (None, X.shape[1]):
            raise ValueError(f"x must hold {width} numbers, as many as the score was fitted on, got {X.shape[1]}")

    def _refusal(self, batch: Any, bad: Any) -> RefusedError:
        """Of the first bad row."""
        at = int(flags(bad.is_valid()).argmax())
        sentence = bad[at].as_py()
        order = None if orderless(bad)[at] else written(batch["order"][at].as_py(), self.order)
        if keyless(bad)[at]:
            return RefusedError(f"{sentence}{'' if order is None else f' (order {order})'}")
        return refused(batch["key"][at].as_py(), order, sentence)


def _of_one_width(x: Any, at: Integers) -> list[Integers]:
    """The places of rows of features by how many there are; of numbers all at once."""
    if not len(at):
        return []
    if pa.types.is_floating(x.type):
        return [at]
    widths = pc.list_value_length(x).to_numpy()[at]
    return [at[widths == width] for width in np.unique(widths)]


def _with(bad: Any, found: dict[int, str]) -> Any:
    """The sentences, and those of rows whose score was refused."""
    if not found:
        return bad
    sentences = bad.to_pylist()
    for place, sentence in found.items():
        sentences[place] = sentence
    return pa.array(sentences, pa.large_string())


def refused(key: Any, order: str | None, sentence: str) -> RefusedError:
    """An error that names the row."""
    return RefusedError(f"key {format_value(key)}{'' if order is None else f', order {order}'}: {sentence}")


def written(order: int, kind: str) -> str:
    """An order as its own column writes it: of integers, or counted days or microseconds.

    >>> written(1, "date"), written(1, "timestamp"), written(1, "")
    ('1970-01-02', '1970-01-01T00:00:00.000001', '1')
    """
    return str(np.datetime64(order, "D" if kind == "date" else "us")) if kind else str(order)


def keyless(bad: Any) -> Any:
    """Which rows have no key."""
    return starts(bad, "key ")


def orderless(bad: Any) -> Any:
    """Which rows have no order."""
    return starts(bad, "order ") | starts(bad, "key and order ")


def _by_bucket(parts: list[Any]) -> Any:
    """Rows ``bucket, events``, one for each bucket."""
    events = _one(pa.Table.from_batches(parts))
    bucket = events["bucket"].to_numpy()
    by = np.argsort(bucket, kind="stable")
    events, bucket = events.drop_columns(["bucket"]).take(pa.array(by)), bucket[by]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(bucket)) + 1, [len(bucket)]])
    packs = [packed(events.slice(start, stop - start)) for start, stop in pairwise(bounds)]
    return _packs(bucket[bounds[:-1]], packs)


def _packs(buckets: Any, packs: list[bytes]) -> Any:
    return pa.record_batch([pa.array(buckets, pa.int32()), pa.array(packs, pa.binary())], ["bucket", "events"])


# ------------------------------------------------------------------ bytes


def packed(batch: Any) -> bytes:
    """A batch as bytes: a message of Arrow's stream format, whose schema the reader knows."""
    return batch.serialize().to_pybytes()  # type: ignore[no-any-return]


def opened(packs: Iterable[bytes], schema: Any) -> Any:
    """The batches as one."""
    batches = [pa.ipc.read_record_batch(pa.py_buffer(pack), schema) for pack in packs]
    return _one(pa.Table.from_batches(batches, schema))


def _one(table: Any) -> Any:
    """All rows as one batch. Arrow may leave several where a column is too large for one: never take only the first."""
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        raise RuntimeError(f"the {table.num_rows} events of a bucket must fit in one batch, got {len(batches)} batches")
    return batches[0]


class Unpacker:
    """The last stage: rows ``rows``, each of which holds many, in; those out."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.packed: Any = pa.schema([field.with_type(large(field.type)) for field in schema])

    def unpacked(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For ``mapInArrow``."""
        for batch in batches:
            for pack in batch["rows"]:
                yield pa.ipc.read_record_batch(pack.as_buffer(), self.packed).cast(self.schema)
