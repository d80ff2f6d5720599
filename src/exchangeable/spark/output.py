"""What an executor hands back: a row for each stream, or for each step and what was not bet on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable.keyed.report import Steps
from exchangeable.martingale import LN10
from exchangeable.protocols import Integers

ROWS, BYTES = 4096, 1 << 24  # of a batch of summaries; keys may be long
SUMMARY = ("n", "log10_martingale", "log10_max", "alarm", "alarm_at", "changepoint", "refused")
STEPS = ("kind", "n", "p", "log10_martingale", "alarm", "changepoint", "count", "detail")
REAL = ("p", "log10_martingale", "log10_max")


class Form(NamedTuple):
    """What the rows are like."""

    steps: bool  # a row for each step, or one for each stream
    tests: bool  # with the number of the test
    key: str  # what the columns of key and order are called
    order: str

    @property
    def columns(self) -> list[str]:
        """All columns."""
        own = [self.key, self.order, *STEPS] if self.steps else [self.key, *SUMMARY]
        return own + ["test"] * self.tests


class Output:
    """Rows on their way out, in batches of bounded size."""

    def __init__(self, form: Form, schema: Any) -> None:
        self._form = form
        self._key, self._order, self._text = (schema.field(name).type for name in ("key", "order", "bad"))
        self._size = 0
        self._summaries: list[tuple[Any, ...]] = []
        self._steps: list[tuple[Integers, Steps]] = []
        self._batches: list[Any] = []

    def ready(self, *, all_of_it: bool = False) -> Iterator[Any]:
        """The batches so far; of summaries those that are worth a batch."""
        if self._summaries and (all_of_it or len(self._summaries) >= ROWS):
            self._flush()
        batches, self._batches = self._batches, []
        return iter(batches)

    # -------------------------------------------------------------- a row for each stream

    def summary(self, *row: Any) -> None:
        """The row of one stream: key, n, logs of capital and highest, alarm at, changepoint, refused, test."""
        if self._form.steps:
            return
        self._summaries.append(row)
        self._size += len(row[0]) if isinstance(row[0], (str, bytes)) else 8
        if self._size >= BYTES:
            self._flush()

    def _flush(self) -> None:
        key, n, value, highest, alarm_at, *more = zip(*self._summaries, strict=True)
        logs = [[None if log is None else log / LN10 for log in column] for column in (value, highest)]
        alarm = [None if log is None else at is not None for log, at in zip(value, alarm_at, strict=True)]
        whole = [pa.array(column, pa.int64()) for column in (alarm_at, *more)]
        real = [pa.array(column, pa.float64()) for column in logs]
        columns = [pa.array(key, self._key), pa.array(n, pa.int64()), *real, pa.array(alarm, pa.bool_()), *whole]
        names = self._form.columns
        self._batches.append(pa.RecordBatch.from_arrays(columns[: len(names)], names))
        self._summaries, self._size = [], 0

    # -------------------------------------------------------------- a row for each step

    def steps(self, at: Integers, steps: Steps) -> None:
        """Steps of the rows at these places."""
        if self._form.steps:
            self._steps.append((at, steps))

    def steps_done(self, rows: Any) -> None:
        """All steps of these rows are there."""
        found, self._steps = self._steps, []
        if not found:
            return
        at = pa.array(np.concatenate([places for places, _ in found]))
        columns = zip(*(steps for _, steps in found), strict=True)
        n, p, log_value, alarm, change, test = (np.concatenate(column) for column in columns)
        told = (n, p, log_value / LN10, alarm, pa.array(change, mask=~alarm))
        ones, nothing = pa.repeat(1, len(at)), pa.nulls(len(at), self._text)
        self._batch("step", rows["key"].take(at), rows["order"].take(at), told, ones, nothing, test)

    def side(self, kind: str, keys: Any, orders: Any, counts: Integers | None, details: Any) -> None:
        """Rows that were not bet on; without counts one each. Keys may be a list."""
        count = len(keys)
        if not self._form.steps or not count:
            return
        whole, real = pa.nulls(count, pa.int64()), pa.nulls(count, pa.float64())
        nothing = (whole, real, real, pa.nulls(count, pa.bool_()), whole)
        counts = np.ones(count, np.int64) if counts is None else counts
        keys, details = self._column(keys, self._key), self._column(details, self._text)
        self._batch(kind, keys, orders, nothing, counts, details, whole)

    @staticmethod
    def _column(values: Any, kind: Any) -> Any:
        return pa.array(values, kind) if isinstance(values, list) else values

    def _batch(self, kind: str, keys: Any, orders: Any, told: Any, counts: Any, details: Any, tests: Any) -> None:
        kinds = pa.repeat(pa.scalar(kind, self._text), len(keys))
        parts = [keys, orders.cast(self._order), kinds, *told, counts, details, tests]
        arrays = [part if isinstance(part, pa.Array) else pa.array(part) for part in parts]
        names = self._form.columns
        self._batches.append(pa.RecordBatch.from_arrays(arrays[: len(names)], names))
