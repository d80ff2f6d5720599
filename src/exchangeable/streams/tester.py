"""Testing the streams of a table: short ones together, on all cores, long ones one after the other."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from exchangeable.data.errors import ColumnError
from exchangeable.keyed.report import Steps
from exchangeable.keyed.standings import Statuses
from exchangeable.keyed.whole import WholeStreams, fresh_copy
from exchangeable.measures import Frozen, Value
from exchangeable.measures.neighbours import Neighbours
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.streams.rows import Streams
from exchangeable.streams.tables import extend_table, fresh_table
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import check_integer

LONG = 2048  # rows of a stream from which on a monitor of its own is faster
CHUNK_ROWS, CHUNK_STATES = 2**14, 2**19  # rows of a chunk, and numbers in the states of its streams (4 MB)
CHUNKS, LEAST_ROWS = 4, 2**11  # chunks for each thread, and rows of a chunk at least, unless the bet is slow
CURVES, POINTS = 60, 384  # streams whose evidence over time is kept, and points of each

Progress = Callable[[str, int, int], None]


class Curve(NamedTuple):
    """The log capital of a stream after some of its rows, with their numbers, and their orders if there are any."""

    n: Integers
    log_value: Floats
    x: Floats | None = None
    order: Any = None  # an Arrow column


class Outcome(NamedTuple):
    """What was found in each stream; ``alarm_at`` and ``changepoint`` are -1 without an alarm."""

    n: Integers
    log_value: Floats
    log_max: Floats
    alarm_at: Integers
    changepoint: Integers
    curves: dict[int, Curve]
    steps: Steps | None = None


class StreamTester:
    """Tests streams with one recipe."""

    def __init__(self, monitor: Monitor | TableMonitor, *, level: float, threads: int | None, steps: bool) -> None:
        self.monitor: Any = monitor
        self.level = level  # the log capital from which on the curve of a stream is kept
        self.threads: int = _cores() if threads is None else check_integer("threads", threads, 1, 1024)
        self.steps = steps
        together = None if isinstance(monitor, TableMonitor) else WholeStreams.create(monitor)
        self._together = together is not None
        self.costly: bool = together is not None and together.costly
        self._streams = 1 if together is None else max(1, CHUNK_STATES // together.width)
        self._local = threading.local()

    def test(self, streams: Streams, progress: Callable[[int], None]) -> Outcome:
        """Test all streams; ``progress`` is called with the number of rows that are done."""
        count = len(streams.seeds)
        lengths = np.diff(streams.bounds)
        table = np.zeros((3, count), np.int64)
        n, alarm_at, changepoint = table
        alarm_at[:], changepoint[:] = -1, -1
        log_value, log_max = np.zeros(count), np.zeros(count)
        parts: list[Steps] = []
        curves: dict[int, Curve] = {}
        for first, stop, steps, found, kept in self._results(streams, list(self._chunks(lengths))):
            at = first + np.flatnonzero(lengths[first:stop])
            n[at], log_value[at], log_max[at] = found.n, found.log_value, found.log_max
            alarm_at[at], changepoint[at] = found.alarm_at, found.changepoint
            curves = best_curves(curves | kept, log_value)
            parts += [steps] * self.steps
            progress(int(streams.bounds[stop]))
        steps = Steps(*map(np.concatenate, zip(*parts, strict=True))) if parts else None
        return Outcome(n, log_value, log_max, alarm_at, changepoint, curves, steps)

    def _chunks(self, lengths: Integers) -> Iterator[tuple[int, int]]:
        """Yield ranges of streams: a few for each thread, but none that are too small to be worth a call.

        A long stream is a range of its own, and so is each one that needs a monitor.
        """
        even = int(lengths.sum()) // (CHUNKS * self.threads)
        most, streams = min(max(even, LEAST_ROWS), CHUNK_ROWS), self._streams
        if self.costly:
            most, streams = max(even, 1), max(1, min(streams, len(lengths) // (CHUNKS * self.threads)))
        first = rows = 0
        for t, length in enumerate(lengths.tolist()):
            alone = length > LONG or not self._together
            if t > first and (alone or rows + length > most or t - first >= streams):
                yield first, t
                first, rows = t, 0
            rows = most if alone else rows + length
        if first < len(lengths):
            yield first, len(lengths)

    def _results(self, streams: Streams, chunks: list[tuple[int, int]]) -> Iterator[Any]:
        """Yield the results of the chunks in order; at most a few per thread wait in memory."""
        if self.threads == 1 or len(chunks) < 2:
            yield from (self._test(streams, *chunk) for chunk in chunks)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            waiting: list[Any] = []
            try:
                for chunk in chunks:
                    waiting.append(pool.submit(self._test, streams, *chunk))
                    if len(waiting) > 4 * self.threads:
                        yield waiting.pop(0).result()
                for future in waiting:
                    yield future.result()
            finally:
                for future in waiting:
                    future.cancel()

    def _test(self, streams: Streams, first: int, stop: int) -> tuple[int, int, Steps, Statuses, dict[int, Curve]]:
        bounds = streams.bounds[first : stop + 1]
        lengths = np.diff(bounds)
        present = np.flatnonzero(lengths)
        rows = slice(int(bounds[0]), int(bounds[-1]))
        if not self._together or lengths.max(initial=0) > LONG:
            steps, found = self._one_by_one(streams, (first + present).tolist())
        else:
            seeds = streams.seeds[first:stop][present]
            scores = self._scores(streams, bounds, rows)
            steps, found = self._whole().test(seeds, lengths[present], scores)
        return first, stop, steps, found, self._curves(streams, first + present, lengths[present], steps, found)

    def _whole(self) -> WholeStreams:
        """Return the tester of this thread."""
        if not hasattr(self._local, "whole"):
            self._local.whole = WholeStreams(self.monitor)
        whole: WholeStreams = self._local.whole
        return whole

    def _scores(self, streams: Streams, bounds: Integers, rows: slice) -> Floats:
        """Return the scores of some rows; a user's function is called on the rows of one stream."""
        measure: Any = self.monitor.measure
        if isinstance(measure, (Value, Precomputed)):
            return streams.X[rows]
        if measure.score is None:
            return np.asarray(measure.scores(streams.X[rows]))
        pairs = [(a, b) for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True) if a < b]
        parts = [measure.scores(*examples(streams, a, b, measure)) for a, b in pairs]
        return np.concatenate([np.empty(0), *parts])

    def _one_by_one(self, streams: Streams, chosen: list[int]) -> tuple[Steps, Statuses]:
        """Test each stream with a monitor of its own."""
        steps, last = [], []
        for t in chosen:
            monitor, part = self._alone(streams, t)
            steps.append(part)
            at, before = (-1 if value is None else value for value in (monitor.alarm_at, monitor.changepoint))
            last.append((monitor.n, part.log_value[-1], monitor.log_max, at, before))
        joined = Steps(*map(np.concatenate, zip(*steps, strict=True))) if steps else Steps.blank(0)
        n, value, highest, at_alarm, before_change = np.array(last, np.float64).reshape(-1, 5).T
        whole, raised, change = (column.astype(np.int64) for column in (n, at_alarm, before_change))
        none = np.zeros(len(whole), np.int64)
        return joined, Statuses(whole, none, value, highest, raised, change, none, none.astype(np.bool_))

    def _alone(self, streams: Streams, t: int) -> tuple[Monitor | TableMonitor, Steps]:
        """Test one stream."""
        first, stop, seed = int(streams.bounds[t]), int(streams.bounds[t + 1]), int(streams.seeds[t])
        if isinstance(self.monitor, TableMonitor):
            table = fresh_table(self.monitor, seed, self.monitor.on_alarm)
            found = extend_table(table, streams.X[first:stop], None if streams.y is None else streams.y[first:stop])
            known = -1 if table.changepoint is None or table.on_alarm == "restart" else table.changepoint
            none = np.full(len(found.n), np.nan)  # there are several p-values for each row
            return table, Steps(
                *(found.n, none, found.log_value, found.alarm, np.where(found.alarm, known, -1), found.test)
            )
        measure = copy.deepcopy(self.monitor.measure)
        monitor = fresh_copy(self.monitor, measure, seed)
        path = monitor.extend(*examples(streams, first, stop, measure))
        change = np.where(path.alarm, path.lowest, -1)
        return monitor, Steps(path.n, path.p, path.log_value, path.alarm, change, path.test)

    def _curves(
        self, streams: Streams, chosen: Integers, lengths: Integers, steps: Steps, found: Statuses
    ) -> dict[int, Curve]:
        """Return the curves of the streams with most evidence."""
        ends = np.cumsum(lengths)
        high = np.flatnonzero(found.log_value >= self.level)
        curves = {}
        for i in high[np.argsort(-found.log_value[high], kind="stable")][:CURVES].tolist():
            at = np.unique(np.linspace(0, lengths[i] - 1, POINTS).astype(np.int64))
            rows = streams.bounds[chosen[i]] + at
            x = streams.X[rows] if streams.X.ndim == 1 else None
            order = streams.take(rows)[1]
            curves[int(chosen[i])] = Curve(at + 1, steps.log_value[ends[i] - lengths[i] + at], x, order)
        return curves


def best_curves(curves: dict[Any, Curve], log_value: Any) -> dict[Any, Curve]:
    """Keep the curves of the streams with most evidence."""
    return {t: curves[t] for t in sorted(curves, key=lambda t: (-float(log_value[t]), t))[:CURVES]}


def examples(streams: Streams, first: int, stop: int, measure: Any) -> tuple[Any, Any]:
    """Return X and y of some rows, in the form that the measure reads."""
    X, y = streams.X[first:stop], None if streams.y is None else streams.y[first:stop]
    inner = getattr(measure, "measure", measure)
    rows = isinstance(inner, Neighbours) or (isinstance(inner, Frozen) and inner.score is not None)
    return X[:, np.newaxis] if rows and X.ndim == 1 else X, y


def check_measure(monitor: Monitor | TableMonitor, features: int) -> None:
    """Check that a measure of single numbers gets one column."""
    measure: Any = getattr(monitor, "measure", None)
    numbers = isinstance(measure, (Value, Precomputed)) or (isinstance(measure, Frozen) and measure.score is None)
    if numbers and features > 1:
        raise ColumnError(f"features must name one column for {measure!r}, got {features:,}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
