"""The output of an executor: a row for each stream, or for each step and everything that was not bet on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable.keyed.report import Steps
from exchangeable.martingale import LN10
from exchangeable.protocols import Integers

ROWS, BYTES = 4096, 1 << 24  # size of a batch of summaries; keys may be long
SUMMARY = ("n", "log10_martingale", "log10_max", "alarm", "alarm_at", "changepoint", "refused")
STEPS = ("kind", "n", "p", "log10_martingale", "alarm", "changepoint", "count", "detail")
REAL = ("p", "log10_martingale", "log10_max")


class Layout(NamedTuple):
    """The columns of the output."""

    steps: bool  # a row for each step instead of one for each stream
    tests: bool  # with the number of the test
    key: str  # the names of the columns of keys and orders
    order: str

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        names = [self.key, self.order, *STEPS] if self.steps else [self.key, *SUMMARY]
        return names + ["test"] * self.tests


class Output:
    """Collects rows and returns them in batches of bounded size."""

    def __init__(self, layout: Layout, schema: Any) -> None:
        self._layout = layout
        self._key, self._order, self._text = (schema.field(name).type for name in ("key", "order", "bad"))
        self._size = 0
        self._summaries: list[tuple[Any, ...]] = []
        self._steps: list[tuple[Integers, Steps]] = []
        self._batches: list[Any] = []

    def ready(self, *, everything: bool = False) -> Iterator[Any]:
        """Return the batches so far; summaries only if they fill a batch, or with ``everything``."""
        if self._summaries and (everything or len(self._summaries) >= ROWS):
            self._flush()
        batches, self._batches = self._batches, []
        return iter(batches)

    # -------------------------------------------------------------- a row for each stream

    def summary(self, *row: Any) -> None:
        """Add one stream: key, n, log capital, highest log capital, alarm_at, changepoint, refused, test."""
        if self._layout.steps:
            return
        self._summaries.append(row)
        self._size += len(row[0]) if isinstance(row[0], (str, bytes)) else 8
        if self._size >= BYTES:
            self._flush()

    def _flush(self) -> None:
        key, n, value, highest, alarm_at, *more = zip(*self._summaries, strict=True)
        logs = [[None if log is None else log / LN10 for log in column] for column in (value, highest)]
        alarm = [None if log is None else at is not None for log, at in zip(value, alarm_at, strict=True)]
        integers = [pa.array(column, pa.int64()) for column in (alarm_at, *more)]
        reals = [pa.array(column, pa.float64()) for column in logs]
        columns = [pa.array(key, self._key), pa.array(n, pa.int64()), *reals, pa.array(alarm, pa.bool_()), *integers]
        names = self._layout.columns
        self._batches.append(pa.RecordBatch.from_arrays(columns[: len(names)], names))
        self._summaries, self._size = [], 0

    # -------------------------------------------------------------- a row for each step

    def steps(self, at: Integers, steps: Steps) -> None:
        """Add the steps of the rows at these positions."""
        if self._layout.steps:
            self._steps.append((at, steps))

    def steps_done(self, rows: Any) -> None:
        """Turn the steps of these rows into a batch."""
        added, self._steps = self._steps, []
        if not added:
            return
        at = pa.array(np.concatenate([positions for positions, _ in added]))
        columns = zip(*(steps for _, steps in added), strict=True)
        n, p, log_value, alarm, change, test = (np.concatenate(column) for column in columns)
        values = (n, p, log_value / LN10, alarm, pa.array(change, mask=~alarm))
        ones, nothing = pa.repeat(1, len(at)), pa.nulls(len(at), self._text)
        self._batch("step", rows["key"].take(at), rows["order"].take(at), values, ones, nothing, test)

    def side(self, kind: str, keys: Any, orders: Any, counts: Integers | None, details: Any) -> None:
        """Add rows that were not bet on; without ``counts`` each stands for one. ``keys`` may be a list."""
        count = len(keys)
        if not self._layout.steps or not count:
            return
        integers, reals = pa.nulls(count, pa.int64()), pa.nulls(count, pa.float64())
        values = (integers, reals, reals, pa.nulls(count, pa.bool_()), integers)
        counts = np.ones(count, np.int64) if counts is None else counts
        keys, details = self._column(keys, self._key), self._column(details, self._text)
        self._batch(kind, keys, orders, values, counts, details, integers)

    @staticmethod
    def _column(values: Any, kind: Any) -> Any:
        return pa.array(values, kind) if isinstance(values, list) else values

    def _batch(self, kind: str, keys: Any, orders: Any, values: Any, counts: Any, details: Any, tests: Any) -> None:
        kinds = pa.repeat(pa.scalar(kind, self._text), len(keys))
        parts = [keys, orders.cast(self._order), kinds, *values, counts, details, tests]
        arrays = [part if isinstance(part, pa.Array) else pa.array(part) for part in parts]
        names = self._layout.columns
        self._batches.append(pa.RecordBatch.from_arrays(arrays[: len(names)], names))
