"""The stages of `monitor_streams`: events are packed by bucket, a state function processes them, rows are unpacked.

Spark passes rows to and from a state function in Python one by one, at several microseconds each. So events are
gathered by bucket before the shuffle, and one binary value holds many of them, in Arrow's format; output rows are
packed in the same way. Scores are computed before the shuffle, so that a number is sent instead of a row of features.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from exchangeable.keyed import BAD, CONFLICT, KINDS, STEP, Monitors, Rows, Standings
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.spark.arrow import Examples, Flags, flags, is_row_error, lacks_key, lacks_order
from exchangeable.spark.columns import RefusedError, row_error
from exchangeable.spark.lives import EXPIRED, Lives
from exchangeable.validation import check_p_array

PACKED_EVENTS, PACKED_ROWS = "bucket int, events binary", "rows binary"  # schemas between the stages
QUERY_BUCKET = -1  # has no events; its state identifies the query
EVENTS, BYTES = 2**17, 2**24  # gathered before they are packed
ROWS = 2**16  # packed into one value
LARGEST_STATE = 2**25  # bytes of a bucket: Java holds about ten copies of it while it is read and written
STATE = T.StructType([T.StructField("data", T.BinaryType())])


def events_schema(key: Any) -> Any:
    """Return the schema of packed events; only ``bad`` may be null."""
    columns = {"order": pa.int64(), "x": pa.float64(), "content": pa.int64(), "bad": pa.large_string()}
    return pa.schema({"key": _large(key)} | columns)


def rows_schema(key: Any, *, tests: bool, lives: bool = False) -> Any:
    """Return the schema of the output; ``tests`` adds the number of the test, ``lives`` the start of a key's life."""
    integer, real, text = pa.int64(), pa.float64(), pa.string()
    columns = {"key": key, "order": integer, "kind": text, "n": integer, "p": real, "log10_martingale": real}
    columns |= {"alarm": pa.bool_(), "changepoint": integer, "count": integer, "detail": text}
    columns |= {"test": integer} if tests else {}
    return pa.schema(columns | ({"life": pa.timestamp("us", "UTC")} if lives else {}))


def order_text(order: int, kind: str) -> str:
    """Return an order as its column displays it: ``kind`` is "" for integers, else "date" or a timestamp.

    >>> order_text(1, "date"), order_text(1, "timestamp"), order_text(1, "")
    ('1970-01-02', '1970-01-01T00:00:00.000001', '1')
    """
    return str(np.datetime64(order, "D" if kind == "date" else "us")) if kind else str(order)


# ------------------------------------------------------------------ first stage: score and pack events


class EventPacker:
    """Turns rows ``bucket, key, order, x, [y], [content], bad`` into a few packed rows for each bucket."""

    def __init__(self, measure: Any, schema: Any, *, order: str, fail: bool) -> None:
        self.measure = measure
        self.schema = schema
        self.order = order
        self.fail = fail

    def pack(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pack the events of a partition: for ``mapInArrow``."""
        gathered: list[Any] = []
        started = False
        for batch in batches:
            if batch.num_rows:
                if not started:
                    yield _packed_events([QUERY_BUCKET], [b""])
                started = True
                gathered.append(self._events(batch))
            if sum(part.num_rows for part in gathered) >= EVENTS or sum(part.nbytes for part in gathered) >= BYTES:
                yield _pack_by_bucket(gathered)
                gathered = []
        if gathered:
            yield _pack_by_bucket(gathered)

    def _events(self, batch: Any) -> Any:
        """Return the bucket and the event of each row, with its score."""
        x, faults = np.zeros(batch.num_rows), dict[int, str]()
        valid = np.flatnonzero(flags(batch["bad"].is_null()))
        for at in _split_by_width(batch["x"], valid):
            self._score(batch, at, x, faults)
        bad = _add_faults(batch["bad"].cast(pa.large_string()), faults)
        if self.fail and bad.null_count < len(bad):
            raise self._first_fault(batch, bad)
        content = batch["content"] if "content" in batch.schema.names else np.zeros(batch.num_rows, np.int64)
        columns = [batch["key"].cast(self.schema.field("key").type), batch["order"], pa.array(x), content, bad]
        return pa.RecordBatch.from_arrays([batch["bucket"], *columns], ["bucket", *self.schema.names])

    def _score(self, batch: Any, at: Integers, x: Floats, faults: dict[int, str]) -> None:
        """Score rows in one call. If one of them is invalid, each half is tried, until it is found."""
        try:
            x[at] = self._scores(*Examples(batch, at).arrays(0, len(at)))
        except ValueError as error:
            if not is_row_error(error):
                raise
            if len(at) == 1:
                faults[int(at[0])] = " ".join(str(error).removesuffix(" at position 0").split())
                return
            for half in (at[: len(at) // 2], at[len(at) // 2 :]):
                self._score(batch, half, x, faults)

    def _scores(self, X: Any, y: Any) -> Floats:
        if isinstance(self.measure, Precomputed):
            return check_p_array(X)
        width = getattr(getattr(self.measure, "score", None), "n_features_in_", None)
        if X.ndim == 2 and width not in (None, X.shape[1]):
            raise ValueError(f"x must hold {width} numbers, as many as the score was fitted on, got {X.shape[1]}")
        scores: Floats = self.measure.scores(X, y)
        return scores

    def _first_fault(self, batch: Any, bad: Any) -> RefusedError:
        i = int(flags(bad.is_valid()).argmax())
        message = bad[i].as_py()
        order = None if lacks_order(bad)[i] else order_text(batch["order"][i].as_py(), self.order)
        if lacks_key(bad)[i]:
            return RefusedError(f"{message}{'' if order is None else f' (order {order})'}")
        return row_error(batch["key"][i].as_py(), order, message)


def _split_by_width(x: Any, at: Integers) -> list[Integers]:
    """Return the positions of rows of features by width; numbers all together."""
    if not len(at):
        return []
    if pa.types.is_floating(x.type):
        return [at]
    widths = pc.list_value_length(x).to_numpy()[at]
    return [at[widths == width] for width in np.unique(widths)]


def _add_faults(bad: Any, faults: dict[int, str]) -> Any:
    if not faults:
        return bad
    messages = bad.to_pylist()
    for position, message in faults.items():
        messages[position] = message
    return pa.array(messages, pa.large_string())


def _pack_by_bucket(parts: list[Any]) -> Any:
    """Return rows ``bucket, events``, one for each bucket."""
    events = _single_batch(pa.Table.from_batches(parts))
    bucket = events["bucket"].to_numpy()
    by = np.argsort(bucket, kind="stable")
    events, bucket = events.drop_columns(["bucket"]).take(pa.array(by)), bucket[by]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(bucket)) + 1, [len(bucket)]])
    packs = [to_bytes(events.slice(start, stop - start)) for start, stop in pairwise(bounds)]
    return _packed_events(bucket[bounds[:-1]], packs)


def _packed_events(buckets: Any, packs: list[bytes]) -> Any:
    return pa.record_batch([pa.array(buckets, pa.int32()), pa.array(packs, pa.binary())], ["bucket", "events"])


# ------------------------------------------------------------------ second stage: the state function


class BucketFormat(NamedTuple):
    """The format of a bucket's input and output."""

    events: Any  # schema
    rows: Any  # schema
    order: str  # the type of orders that are dates or timestamps, else ""
    fail: bool  # at conflicts
    expire: int | None = None  # milliseconds without events after which a key is removed


class Bucket(StatefulProcessor):
    """One bucket of keys, whose state is one binary value: that of its `Monitors`; a second one is that of `Lives`."""

    def __init__(self, monitors: Monitors, form: BucketFormat) -> None:
        self.fresh = monitors
        self.form: BucketFormat = form._replace(rows=_large_schema(form.rows))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state, once in each task."""
        self._state = handle.getValueState("monitors", STATE)
        self._lives = None if self.form.expire is None else handle.getValueState("lives", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        """Process the events of a micro-batch."""
        if key[0] == QUERY_BUCKET:
            self._check_query()
            return
        packed = list(rows)
        events = from_bytes((bytes(row.events) for row in packed), self.form.events)
        if events["bad"].null_count < events.num_rows:
            no_key, no_order = lacks_key(events["bad"]), lacks_order(events["bad"])
            lost = no_key | no_order
            yield from self._pack(self._lost_rows(events, no_key, no_order).filter(pa.array(lost)))
            events = events.filter(pa.array(~lost))
        if events.num_rows:
            yield from self._extend(int(key[0]), events, packed[0])

    def close(self) -> None:
        """Release nothing: Spark closes the state."""

    def _check_query(self) -> None:
        """Check that the checkpoint was started by this query.

        This happens in every micro-batch, because a bucket without a state does not know the query.
        """
        stored = self._state.get()
        if stored is None:
            self._state.update((self.fresh.like().encode(),))
        else:
            self._decode(stored[0])

    @staticmethod
    def _pack(batch: Any) -> Iterator[Row]:
        for start in range(0, batch.num_rows, ROWS):
            yield Row(rows=to_bytes(batch.slice(start, ROWS)))

    def _extend(self, bucket: int, events: Any, packed: Row) -> Iterator[Row]:
        """Extend the monitors by the events, store their state, and return the rows."""
        stored = self._state.get()
        monitors = self._decode(None if stored is None else stored[0])
        lives = None
        if self._lives is not None and self.form.expire is not None:
            lives = Lives(*(bytes(value) for value in self._lives.get() or ()))
            yield from self._pack(self._expired_rows(*lives.expire(monitors, packed.now - self.form.expire)))
        order, x, content = (events[name].to_numpy() for name in ("order", "x", "content"))
        rows = monitors.extend(events["key"], order, x, flags(events["bad"].is_valid()), content)
        if self.form.fail:
            self._check_conflicts(rows)
        if lives is not None and self._lives is not None:
            lives.note(monitors, events["key"], packed.now)
            self._lives.update((lives.encode(),))
        self._store(bucket, monitors)
        yield from self._pack(
            self._output(
                rows, events, None if lives is None else lives.of(monitors, pa.array(rows.key, events["key"].type))
            )
        )

    def _store(self, bucket: int, monitors: Monitors) -> None:
        state = monitors.encode()
        if len(state) > LARGEST_STATE:
            expected = f"the state of a bucket must be at most {LARGEST_STATE >> 20} MiB"
            got = f"{len(state) >> 20} MiB for {len(monitors)} keys in bucket {bucket}"
            remedy = "use more buckets (exchangeable spark reshard), fewer bins, a smaller `most` or a smaller bet"
            raise RefusedError(f"{expected}, got {got}: {remedy}")
        self._state.update((state,))

    def _decode(self, state: Any) -> Monitors:
        try:
            return self.fresh.like(None if state is None else bytes(state))
        except ValueError as error:
            expected = "a checkpoint can be used only by the query that started it"
            raise RefusedError(f"{expected}: {error} (another query needs its own checkpoint)") from error

    def _check_conflicts(self, rows: Rows) -> None:
        for i in np.flatnonzero(rows.kind == CONFLICT)[:1].tolist():
            order = order_text(int(rows.order[i]), self.form.order)
            expected = "rows with the same key and order must be equal"
            raise row_error(rows.key[i], order, f"{expected}, got {rows.count[i]} that differ")

    def _output(self, rows: Rows, events: Any, began: Integers | None) -> Any:
        side, schema = rows.kind != STEP, self.form.rows
        columns = {
            "key": pa.array(rows.key, schema.field("key").type),
            "order": rows.order,
            "kind": pa.DictionaryArray.from_arrays(pa.array(rows.kind), pa.array(KINDS)).cast(pa.large_string()),
            "n": pa.array(rows.n, mask=side),
            "p": pa.array(rows.p, mask=side),
            "log10_martingale": pa.array(rows.log_value / LN10, mask=side),
            "alarm": pa.array(rows.alarm, mask=side),
            "changepoint": pa.array(rows.changepoint, mask=~rows.alarm),
            "count": rows.count,
            "detail": self._details(rows, events["bad"]),
            "test": pa.array(rows.test, mask=side),
            "life": None if began is None else _life(began),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _details(self, rows: Rows, bad: Any) -> Any:
        """Return a message about each side row; for a bad one, what is wrong with it."""

        def show(order: int) -> str:
            return order_text(order, self.form.order)

        messages: list[str | None] = [None] * len(rows.kind)
        for i in np.flatnonzero(rows.kind != STEP).tolist():
            messages[i] = bad[int(rows.source[i])].as_py() if rows.kind[i] == BAD else rows.detail(i, show)
        return pa.array(messages, pa.large_string())

    def _expired_rows(self, stood: Standings, began: Integers) -> Any:
        """Return output rows of keys that were removed; their evidence is in the rows of their steps."""
        best, count = stood.log10_max, len(stood.key)
        last = (f"{n} examples, highest log10 capital {high:.2f}" for n, high in zip(stood.n, best, strict=True))
        columns = {
            "key": pa.array(stood.key, self.form.rows.field("key").type),
            "order": stood.order,
            "kind": pa.repeat(pa.scalar(EXPIRED, pa.large_string()), count),
            "count": stood.n,
            "detail": pa.array([f"no events for too long: removed after {text}" for text in last], pa.large_string()),
            "life": _life(began),
        }
        return self._side_rows(columns, count)

    def _lost_rows(self, events: Any, no_key: Flags, no_order: Flags) -> Any:
        """Return output rows of events without a key or an order, which belong to no stream."""
        schema, count = self.form.rows, events.num_rows
        columns: dict[str, Any] = {
            "key": pc.if_else(pa.array(no_key), pa.scalar(None, schema.field("key").type), events["key"]),
            "order": pc.if_else(pa.array(no_order), pa.scalar(None, pa.int64()), events["order"]),
            "kind": pa.repeat(pa.scalar("bad", pa.large_string()), count),
            "count": np.ones(count, np.int64),
            "detail": events["bad"],
        }
        return self._side_rows(columns, count)

    def _side_rows(self, columns: dict[str, Any], count: int) -> Any:
        """Return output rows with these columns; the others are null."""
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in self.form.rows]
        return pa.RecordBatch.from_arrays(arrays, schema=self.form.rows)


def _life(began: Integers) -> Any:
    """Return the start of lives, in milliseconds, as a column of times."""
    return pa.array(1000 * began, pa.int64()).cast(pa.timestamp("us", "UTC"))


# ------------------------------------------------------------------ third stage: unpack rows


class RowUnpacker:
    """Turns packed rows into the rows of the output."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._packed = _large_schema(schema)

    def unpack(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Unpack the rows of a partition: for ``mapInArrow``."""
        for batch in batches:
            for pack in batch["rows"]:
                yield pa.ipc.read_record_batch(pack.as_buffer(), self._packed).cast(self.schema)


# ------------------------------------------------------------------ bytes


def to_bytes(batch: Any) -> bytes:
    """Return a batch as a message of Arrow's stream format, without its schema."""
    return batch.serialize().to_pybytes()  # type: ignore[no-any-return]


def from_bytes(packs: Iterable[bytes], schema: Any) -> Any:
    """Return the rows of all packed batches as one batch."""
    batches = [pa.ipc.read_record_batch(pa.py_buffer(pack), schema) for pack in packs]
    return _single_batch(pa.Table.from_batches(batches, schema))


def _single_batch(table: Any) -> Any:
    """Return all rows as one batch; Arrow leaves several where a column is too large for one."""
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:
        raise RuntimeError(f"the {table.num_rows} events of a bucket must fit in one batch, got {len(batches)} batches")
    return batches[0]


def _large(kind: Any) -> Any:
    """Return the type of text or bytes that has no limit of 2 GB for a column."""
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def _large_schema(schema: Any) -> Any:
    return pa.schema([field.with_type(_large(field.type)) for field in schema])
