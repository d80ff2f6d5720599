"""The work of an executor in `test_streams`: test the streams of sorted rows, one after the other.

The executor receives Arrow batches, sorted by key and order, which may end anywhere, and returns Arrow batches. Only
the monitor of the current stream and a few rows of its latest order are in memory, so the length of a stream matters
only to its measure. Short streams that start and end within a batch are tested in one call (see `ShortStreams`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable.fleet import stream_seed
from exchangeable.keyed.report import Steps
from exchangeable.keyed.sequence import CONFLICT, DUPLICATE, GAP, STEP, Unfolded, describe
from exchangeable.keyed.whole import fresh_copy
from exchangeable.monitor import Monitor
from exchangeable.protocols import Integers
from exchangeable.spark import arrow
from exchangeable.spark.arrow import Examples, format_order
from exchangeable.spark.columns import RefusedError, row_error
from exchangeable.spark.output import Layout, Output
from exchangeable.spark.short_streams import SHORT, ShortStreams, StreamStatus
from exchangeable.spark.sorted_rows import Pending, SortedRows


class Recipe(NamedTuple):
    """How every stream is tested, and what is reported."""

    monitor: Monitor  # fresh; each stream gets a copy
    seed: int
    fail: bool  # at the first bad row
    gaps: bool  # whether missing numbers are reported
    layout: Layout

    def start(self, key: Any) -> Monitor:
        """Return the monitor of a new stream."""
        return fresh_copy(self.monitor, copy.deepcopy(self.monitor.measure), stream_seed(self.seed, key))


class Stream:
    """The stream that is being tested."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.monitor: Monitor | None = None
        self.status: StreamStatus = StreamStatus()
        self.width: int | None = None  # of its rows of features
        self.last_number: int | None = None  # the latest sequence number, if orders are integers
        self.refused = 0
        self.repeats = 0
        self.first_repeat: Any = None  # its order, an array of length 1


def run_partition(recipe: Recipe, batches: Iterable[Any]) -> Iterator[Any]:
    """Test rows ``key, order, x, [y], bad`` and yield summaries or steps: for ``mapInArrow``."""
    tester = PartitionTester(recipe)
    for batch in batches:
        if batch.num_rows:
            yield from tester.extend(batch)
    yield from tester.finish()


class PartitionTester:
    """Tests the streams of one partition."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.short_streams: ShortStreams | None = ShortStreams.create(recipe.monitor, recipe.seed)
        self.stream: Stream | None = None
        self.pending: Pending | None = None
        self.without_key: int = 0
        self.out: Any = None

    def extend(self, batch: Any) -> Iterator[Any]:
        """Process the next rows, and return the output that is ready."""
        self.out = Output(self.recipe.layout, batch.schema) if self.out is None else self.out
        batch = self._drop_without_key(batch)
        if batch.num_rows:
            self._process(batch, end=False)
        return self.out.ready()  # type: ignore[no-any-return]

    def finish(self) -> Iterator[Any]:
        """Process what is pending after the last batch, and return the rest of the output."""
        if self.pending is not None:
            self._process(self.pending.rows.slice(0, 0), end=True)
        self._close_stream()
        if self.without_key:
            self.out.summary(None, 0, None, None, None, None, self.without_key, None)
        return iter(()) if self.out is None else self.out.ready(everything=True)

    def _drop_without_key(self, batch: Any) -> Any:
        """Report the rows without a key, which belong to no stream, and return the others."""
        no_key = arrow.lacks_key(batch["bad"])
        if not no_key.any():
            return batch
        rows = batch.filter(pa.array(no_key))
        orders = arrow.known_orders(rows)
        if self.recipe.fail:
            raise RefusedError(f"{rows['bad'][0]}{f' (order {format_order(orders[0])})' if orders[0].is_valid else ''}")
        self.without_key += rows.num_rows
        self.out.side("bad", pa.nulls(rows.num_rows, rows["key"].type), orders, None, rows["bad"])
        return batch.filter(pa.array(~no_key))

    def _process(self, batch: Any, *, end: bool) -> None:
        """Test the rows, but leave those of the last order pending, unless the input ends."""
        known = 0 if self.pending is None else self.pending.rows.num_rows
        data = SortedRows(batch, self.pending, end=end)
        unreported = data.bad.copy()
        unreported[:known] = False
        self._report_bad(data.rows.filter(pa.array(unreported)))
        keys = data.rows["key"].take(pa.array(data.starts)).to_pylist()
        stream = self._stream_of(keys[0])
        contiguous = self.recipe.gaps and self.recipe.layout.steps
        report, last = data.classify(stream.last_number, contiguous=contiguous)
        self._report_gaps(data, report)
        self._report_conflicts(data, report)
        self._test_streams(data, keys, report, np.add.reduceat(unreported.astype(np.int64), data.starts), end=end)
        if self.stream is not None:
            self.stream.last_number = last
        self.pending = None if end else data.pending()

    # -------------------------------------------------------------- rows that are not bet on

    def _report_bad(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        orders = arrow.known_orders(rows)
        if self.recipe.fail:
            raise _row_error(rows["key"][0].as_py(), orders[0], str(rows["bad"][0]))
        self.out.side("bad", rows["key"], orders, None, rows["bad"])

    def _report_conflicts(self, data: SortedRows, report: Unfolded) -> None:
        at = np.flatnonzero(report.kind == CONFLICT)
        if not at.size:
            return
        chosen, counts = pa.array(data.events.source[report.event[at]]), report.count[at]
        keys, orders = data.rows["key"].take(chosen), data.rows["order"].take(chosen)
        if self.recipe.fail:
            expected = "rows with the same key and order must be equal"
            raise _row_error(keys[0].as_py(), orders[0], f"{expected}, got {counts[0]} that differ")
        details = [
            describe("conflict", order, count, show=format_order)
            for order, count in zip(orders, counts.tolist(), strict=True)
        ]
        self.out.side("conflict", keys, orders, counts, details)

    def _report_gaps(self, data: SortedRows, report: Unfolded) -> None:
        at = np.flatnonzero(report.kind == GAP)
        orders, counts = report.order[at], report.count[at]
        details = [describe("gap", *gap) for gap in zip(orders.tolist(), counts.tolist(), strict=True)]
        keys = data.rows["key"].take(pa.array(data.starts[report.stream[at]]))
        self.out.side("gap", keys, pa.array(orders), counts, details)

    # -------------------------------------------------------------- rows that are bet on

    def _test_streams(self, data: SortedRows, keys: list[Any], report: Unfolded, bad: Integers, *, end: bool) -> None:
        """Test the rows of each stream; ``bad`` counts the bad rows of each."""
        steps = np.flatnonzero(report.kind == STEP)
        examples = Examples(data.rows, data.events.source[report.event[steps]])
        bounds = report.stream[steps].searchsorted(np.arange(len(keys) + 1))
        conflicts = np.where(report.kind == CONFLICT, report.count, 0)
        refused = bad + np.bincount(report.stream, conflicts, len(keys)).astype(np.int64)
        repeats = {int(report.stream[i]): i for i in np.flatnonzero(report.kind == DUPLICATE).tolist()}
        tested = self._test_together(keys, bounds, examples, end)
        for i, key in enumerate(keys):
            stream = self._stream_of(key)
            stream.refused += int(refused[i])
            if i in repeats:
                self._count_repeats(stream, data, report, repeats[i])
            if i in tested:
                stream.status = tested[i]
            elif bounds[i + 1] > bounds[i]:
                self._test(stream, examples, int(bounds[i]), int(bounds[i + 1]))
        self.out.steps_done(data.rows)

    def _stream_of(self, key: Any) -> Stream:
        """Return the stream of this key, and close the one before it."""
        if self.stream is None or self.stream.key != key:
            self._close_stream()
            self.stream = Stream(key)
        return self.stream

    def _close_stream(self) -> None:
        stream, self.stream = self.stream, None
        if stream is None:
            return
        *status, test = stream.status
        self.out.summary(stream.key, *status, stream.refused, test)
        if stream.repeats:
            count, order = stream.repeats, stream.first_repeat
            detail = describe("duplicate", order[0], count, show=format_order)
            self.out.side("duplicate", [stream.key], order, np.array([count]), [detail])

    @staticmethod
    def _count_repeats(stream: Stream, data: SortedRows, report: Unfolded, row: int) -> None:
        if not stream.repeats:
            stream.first_repeat = data.rows["order"].slice(data.events.source[report.event[row]], 1)
        stream.repeats += int(report.count[row])

    def _test(self, stream: Stream, examples: Examples, first: int, stop: int) -> None:
        """Test the examples ``first .. stop - 1`` of the batch with the monitor of the stream."""
        if stream.monitor is None:
            stream.monitor, stream.width = self.recipe.start(stream.key), examples.width(first)
        for part in examples.split_by_width(stream.width, first, stop):
            if isinstance(part, slice):
                self._extend(stream, stream.monitor, examples, part.start, part.stop)
            else:
                self._reject(stream, examples, *part)

    def _extend(self, stream: Stream, monitor: Monitor, examples: Examples, first: int, stop: int) -> None:
        """Process examples in one call. If one of them is invalid, none is processed, and each half is tried."""
        X, y = examples.arrays(first, stop)
        try:
            path = monitor.extend(X, y)
        except ValueError as error:
            if not arrow.is_row_error(error):
                raise
            if stop - first == 1:
                self._reject(stream, examples, first, str(error))
                return
            middle = (first + stop) // 2
            self._extend(stream, monitor, examples, first, middle)
            self._extend(stream, monitor, examples, middle, stop)
            return
        change = np.where(path.alarm, path.lowest, -1)
        self.out.steps(examples.at[first:stop], Steps(path.n, path.p, path.log_value, path.alarm, change, path.test))
        latest = monitor.n, float(path.log_value[-1]), monitor.log_max, monitor.alarm_at, monitor.changepoint
        stream.status = StreamStatus(*latest, int(path.test[-1]))

    def _reject(self, stream: Stream, examples: Examples, i: int, message: str) -> None:
        order = examples.order(i)
        if self.recipe.fail:
            raise _row_error(stream.key, order[0], message)
        stream.refused += 1
        self.out.side("bad", [stream.key], order, None, [" ".join(message.split())])

    def _test_together(
        self, keys: list[Any], bounds: Integers, examples: Examples, end: bool
    ) -> dict[int, StreamStatus]:
        """Test the short streams that start and end within the batch; return their status by position in ``keys``."""
        first = int(self.stream is not None and self.stream.key == keys[0] and self.stream.monitor is not None)
        bounds = bounds[first : len(keys) + end]
        lengths = np.diff(bounds)
        short = (lengths > 0) & (lengths <= SHORT)
        if self.short_streams is None or short.sum() < 2:
            return {}
        at = bounds[0] + np.flatnonzero(np.repeat(short, lengths))
        scores = self.short_streams.scores(examples, at, bounds[:-1][short], lengths[short])
        if scores is None:
            return {}
        positions = (np.flatnonzero(short) + first).tolist()
        steps, statuses = self.short_streams.test([keys[i] for i in positions], lengths[short], scores)
        self.out.steps(examples.at[at], steps)
        return dict(zip(positions, statuses, strict=True))


def _row_error(key: Any, order: Any, message: str) -> RefusedError:
    return row_error(key, format_order(order) if order.is_valid else None, message)
