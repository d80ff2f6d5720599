"""The state function of `monitor_streams`: all keys of a bucket take their events of a micro-batch in one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from exchangeable.keyed import CONFLICT, KINDS, STEP, Monitors, Rows
from exchangeable.martingale import LN10
from exchangeable.spark.batches import flags
from exchangeable.spark.columns import RefusedError
from exchangeable.spark.packs import QUERY, keyless, large, opened, orderless, packed, refused, written

PACKED = "rows binary"
LARGEST = 2**25  # bytes of a bucket's state: Java holds some ten copies of it while it is read and written
ROWS = 2**16  # that are packed as one
STATE = T.StructType([T.StructField("data", T.BinaryType())])


def rows_schema(key: Any, *, tests: bool) -> Any:
    """What comes out in the end; a bucket's own rows have text and bytes of any length, see `packs.large`."""
    whole, real, text = pa.int64(), pa.float64(), pa.string()
    columns = {"key": key, "order": whole, "kind": text, "n": whole, "p": real, "log10_martingale": real}
    columns |= {"alarm": pa.bool_(), "changepoint": whole, "count": whole, "detail": text}
    return pa.schema(columns | ({"test": whole} if tests else {}))


class Form(NamedTuple):
    """How events come in, and rows go out."""

    events: Any  # schema
    rows: Any
    order: str  # of times: what they were before they were counted; else ""
    fail: bool  # at events of one number that differ


class Bucket(StatefulProcessor):
    """One bucket of keys, whose state is one binary value: that of its `Monitors`."""

    def __init__(self, monitors: Monitors, form: Form) -> None:
        self.fresh = monitors
        rows = pa.schema([field.with_type(large(field.type)) for field in form.rows])
        self.form: Form = form._replace(rows=rows)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Once for each task."""
        self._state = handle.getValueState("monitors", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802
        """The events of a micro-batch."""
        if key[0] == QUERY:
            self._check_query()
            return
        events = opened((bytes(row.events) for row in rows), self.form.events)
        known = events
        if events["bad"].null_count < events.num_rows:
            lost = keyless(events["bad"]) | orderless(events["bad"])
            known = events.filter(pa.array(~lost))
            yield from self._packs(self._lost(events.filter(pa.array(lost))))
        if known.num_rows:
            yield from self._packs(self._taken(int(key[0]), known))

    def close(self) -> None:
        """Nothing is held."""

    def _check_query(self) -> None:
        """Whether the query is the one that the checkpoint was begun with.

        It is asked in every micro-batch, since a bucket that has no state yet would know of no other query.
        """
        held = self._state.get()
        if held is None:
            self._state.update((self.fresh.like().encode(),))
        else:
            self._begun(held[0])

    def _packs(self, batch: Any) -> Iterator[Row]:
        for start in range(0, batch.num_rows, ROWS):
            yield Row(rows=packed(batch.slice(start, ROWS)))

    # -------------------------------------------------------------- events that have a key and an order

    def _taken(self, bucket: int, events: Any) -> Any:
        """Let the monitors take the events, and store them."""
        held = self._state.get()
        monitors = self._begun(None if held is None else held[0])
        order, x, content = (events[name].to_numpy() for name in ("order", "x", "content"))
        found = monitors.extend(events["key"], order, x, flags(events["bad"].is_valid()), content)
        if self.form.fail:
            self._check_alike(found)
        state = monitors.encode()
        if len(state) > LARGEST:
            law = f"the state of a bucket must not be larger than {LARGEST >> 20} MiB"
            cure = "a new checkpoint with more buckets, fewer bins, a smaller `most` or a smaller bet is needed"
            raise RefusedError(f"{law}, got {len(state) >> 20} for {len(monitors)} keys of bucket {bucket}: {cure}")
        self._state.update((state,))
        return self._told(found, events)

    def _begun(self, state: Any) -> Monitors:
        try:
            return self.fresh.like(None if state is None else bytes(state))
        except ValueError as error:
            law = "a checkpoint can be used only by the query that it was begun with"
            raise RefusedError(f"{law}: {error} (another query needs a checkpoint of its own)") from error

    def _check_alike(self, rows: Rows) -> None:
        for i in np.flatnonzero(rows.kind == CONFLICT)[:1].tolist():
            law = "rows of one key and order must be alike, or only one"
            order = written(int(rows.order[i]), self.form.order)
            raise refused(rows.key[i], order, f"{law}, got {rows.count[i]} that differ")

    def _told(self, rows: Rows, events: Any) -> Any:
        """The rows as they go out."""
        side, schema = rows.kind != STEP, self.form.rows
        kinds = pa.DictionaryArray.from_arrays(pa.array(rows.kind), pa.array(KINDS)).cast(pa.large_string())
        columns = {
            "key": pa.array(rows.key, schema.field("key").type),
            "order": rows.order,
            "kind": kinds,
            "n": pa.array(rows.n, mask=side),
            "p": pa.array(rows.p, mask=side),
            "log10_martingale": pa.array(rows.log_value / LN10, mask=side),
            "alarm": pa.array(rows.alarm, mask=side),
            "changepoint": pa.array(rows.changepoint, mask=~rows.alarm),
            "count": rows.count,
            "detail": self._details(rows, side, events["bad"]),
            "test": pa.array(rows.test, mask=side),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _details(self, rows: Rows, side: Any, bad: Any) -> Any:
        """A sentence on each side row: what was wrong with a bad one, else what it is."""
        found: list[str | None] = [None] * len(side)
        for i in np.flatnonzero(side).tolist():
            if KINDS[rows.kind[i]] == "bad":
                found[i] = bad[int(rows.source[i])].as_py()
            else:
                order = int(rows.order[i])
                found[i] = str(rows.detail(i)).replace(f"order {order}", f"order {written(order, self.form.order)}", 1)
        return pa.array(found, pa.large_string())

    # -------------------------------------------------------------- events that have not

    def _lost(self, events: Any) -> Any:
        """Rows that belong to no stream, or to no place in theirs."""
        nameless, unordered = pa.array(keyless(events["bad"])), pa.array(orderless(events["bad"]))
        schema, count = self.form.rows, events.num_rows
        columns = {
            "key": pa.compute.if_else(nameless, pa.scalar(None, schema.field("key").type), events["key"]),
            "order": pa.compute.if_else(unordered, pa.scalar(None, pa.int64()), events["order"]),
            "kind": pa.repeat(pa.scalar("bad", pa.large_string()), count),
            "count": np.ones(count, np.int64),
            "detail": events["bad"],
        }
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
