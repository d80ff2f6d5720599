"""The martingales of a table monitor, side by side: one native call bets on rows with all of them."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from threading import Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.alarms import ShiryaevRoberts
from exchangeable.bets.adaptive import adaptive_tables
from exchangeable.bets.sentinel import sentinel_tables
from exchangeable.history import History
from exchangeable.martingale import Martingale
from exchangeable.measures import Frozen
from exchangeable.monitor import default_bet
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import PValues
from exchangeable.table_monitor.lines import (
    EXACT,
    LABELLED,
    Line,
    LineState,
    Plan,
    Rows,
    label_argument,
    line_weights,
    measure_size,
)

MANY = 20_000  # steps of all lines together that are worth a second thread
MAX_THREADS = 8

Bools = NDArray[np.bool_]


class Lines:
    """The martingales of a table monitor: row k of each array belongs to line k (see ``native/lines.c``).

    Each does what a `Monitor` does, numbers its steps as the rows of the table, and leaves out rows without a label if
    it needs one. Pools of bins are rows of counts; other pools are in the ``measures``, which are asked one by one.
    """

    def __init__(self, plans: Sequence[Plan], states: Sequence[LineState], max_rows: int, run: int = 0) -> None:
        self.plans: list[Plan] = list(plans)
        self.run = run  # of the lines that need labels
        self.max_rows = max_rows  # that an exact line of full rows may hold
        self.start: int = states[0].history.start  # rows before the test
        self.labelled: int = sum(plan.kind not in LABELLED for plan in plans)  # the lines from here on need labels
        self._columns: list[int] = [plan.column for plan in plans if plan.column is not None]  # they come first
        self._alarms = [state.alarm for state in states]
        measures = [state.pvalues.measure for state in states]
        self._edges, self._counts = _bins(measures)
        self.measures: list[Any] = measures if not self._edges.size else [plan.fresh for plan in plans]
        self._exact: list[int] = [k for k, measure in enumerate(measures) if isinstance(measure, EXACT)]
        self._integers, self._reals = _numbers(states, self._counts), _reals(states, line_weights(plans, run))
        self._bets: Floats = np.stack([state.martingale.bet._state[0] for state in states])  # type: ignore[attr-defined]
        statistics = [alarm._state[0] if isinstance(alarm, ShiryaevRoberts) else np.empty(0) for alarm in self._alarms]
        self._statistics: Floats = np.stack(statistics)
        self._points: NDArray[np.float32] = np.stack([state.history.points for state in states])
        self._marks: Bools = np.stack([state.history.marks for state in states])

    def __len__(self) -> int:
        return len(self.plans)

    def __iter__(self) -> Iterator[Line]:
        numbers = self._integers[:, [native.LINE_ALARM, native.LINE_CHANGE]].tolist()
        for k, (plan, evidence, (alarm, change)) in enumerate(zip(self.plans, self.log_evidence, numbers, strict=True)):
            found, changed = (None, None) if alarm < 0 else (alarm, change)
            stopped = k in self._exact and not self._room(k)
            yield Line(plan.name, plan.kind, float(evidence), found, changed, stopped)

    def _room(self, k: int) -> int:
        """Return how many more rows an exact line of full rows may hold."""
        return self.max_rows - measure_size(self.measures[k])

    @property
    def log_evidence(self) -> Floats:
        """The log capital of each line times its weight."""
        columns = self._reals.T
        evidence = columns[native.LINE_SUM] + columns[native.LINE_CARRY] + columns[native.LINE_WEIGHT]
        return np.asarray(evidence)

    @property
    def on(self) -> Bools:
        """Where the alarm is on."""
        return np.asarray(self._integers[:, native.LINE_ALARM] >= 0)

    def changepoint(self, k: int) -> int:
        """Return the change point of the alarm of a line."""
        return int(self._integers[k, native.LINE_CHANGE])

    def history(self, k: int) -> History:
        """Return the history of the log evidence of a line."""
        history = History(self.start)
        history.points, history.marks = self._points[k].copy(), self._marks[k].copy()
        return history

    def states(self) -> list[LineState]:
        """Return the parts of each line."""
        return [self._state(k) for k in range(len(self))]

    def _state(self, k: int) -> LineState:
        seed, n, _, lowest, alarm_at, change = self._integers[k].tolist()
        measure, martingale, alarm = self.measures[k], Martingale(default_bet(self._alarms[k])), self._alarms[k]
        if self._edges.size:
            used = np.flatnonzero(self._counts[k])
            measure = measure.with_contents(used.astype(np.float64), self._counts[k, used])
        martingale.bet._state = (self._bets[k].copy(),)  # type: ignore[attr-defined]
        martingale._sum, martingale.n = self._reals[k, : native.LINE_LOW].copy(), n - self.start
        if isinstance(alarm, ShiryaevRoberts) and martingale.n:
            alarm = copy.copy(alarm)
            alarm._state, alarm.n = (self._statistics[k].copy(),), martingale.n
        low, pvalues = float(self._reals[k, native.LINE_LOW]), PValues(measure, seed=seed % 2**64, start=n)
        found, changed = (None, None) if alarm_at < 0 else (alarm_at, change)
        return LineState(pvalues, martingale, alarm, low, lowest, found, changed, self.history(k))

    def start_run(self, fresh: Sequence[LineState], run: int) -> None:
        """Replace the lines that need labels by fresh ones; their alarms, if they are raised, and histories stay.

        Their positions go on, so that no random number is used twice.
        """
        states = self.states()
        for k in range(self.labelled, len(self)):
            old, new = states[k], fresh[k]
            pvalues = PValues(new.pvalues.measure, seed=new.pvalues.seed, start=old.pvalues.n)
            states[k] = old._replace(
                pvalues=pvalues, martingale=new.martingale, alarm=new.alarm, low=new.low, lowest=new.lowest
            )
        vars(self).update(vars(Lines(self.plans, states, self.max_rows, run)))

    # ---------------------------------------------------------------------------------------------------------- rows

    def extend(self, rows: Rows, first: int = 0) -> tuple[Floats, Bools]:
        """Consume rows with the lines from ``first`` on; return their log evidence after each, and where alarms are on.

        A large batch is divided among threads by lines, which know nothing of each other.
        """
        used = self._used(rows.y)
        evidence, on = np.empty(used.shape), np.empty(used.shape, np.bool_)
        values, ranks = np.zeros(used.shape), np.zeros((3, *used.shape), np.int64)
        if self._edges.size:
            self._values(rows, used, values, first)
        else:
            self._ranks(rows, used, ranks, first)
        tables = sentinel_tables() if self._statistics.size else adaptive_tables()

        def run(part: slice) -> None:
            greater, equal, n = (column[part] for column in ranks)
            pool = values[part], self._edges[part], self._counts[part], greater, equal, n
            state = self._integers[part], self._reals[part], self._bets[part], self._statistics[part]
            native.lines_extend(tables, rows.at, used[part], *pool, *state, evidence[part], on[part])

        count = len(self) - first
        threads = min(count, MAX_THREADS, _cores()) if count * len(rows.at) >= MANY else 1
        bounds = [first + count * k // threads for k in range(threads + 1)]
        _run_together(run, [slice(lo, hi) for lo, hi in pairwise(bounds)])
        return evidence[first:], on[first:]

    def record(
        self, integers: Integers, reals: Floats, history: History, restart: bool, evidence: Floats, on: Bools
    ) -> tuple[Floats, Bools, Integers]:
        """Add rows to the record of the table and to all histories; with restarts only up to the first alarm.

        Return the log evidence of the strongest line after each, whether the alarm is on, and the number of its test.
        """
        n = evidence.shape[1]
        columns = np.empty(n), np.empty(n, np.bool_), np.empty(n, np.int64)
        table = integers, reals, history.points, history.marks, history.start
        lines = evidence, on, self._points, self._marks, self.start
        count = native.lines_record(*table, restart, *lines, *columns)
        log_value, alarm, test = columns
        return log_value[:count], alarm[:count], test[:count]

    def _used(self, y: Floats) -> Bools:
        """Return which rows each line uses: those with a label, if it needs one, and as many as it has room for."""
        used = np.ones((len(self), len(y)), np.bool_)
        if self.labelled < len(self):
            used[self.labelled :] = y == y
        for k in self._exact:
            used[k] &= np.cumsum(used[k]) <= self._room(k)
        return used

    def _values(self, rows: Rows, used: Bools, values: Floats, first: int) -> None:
        """Write what the lines rank, where they use it."""
        columns = len(self._columns)
        if first < columns:
            values[:columns] = rows.scores.T[self._columns]
        for k in range(max(columns, first), len(self)):
            if used[k].all():
                values[k] = self.plans[k].values(rows)
            elif used[k].any():
                values[k, used[k]] = self.plans[k].values(rows.take(used[k]))

    def _ranks(self, rows: Rows, used: Bools, ranks: Integers, first: int) -> None:
        """Add what the lines rank to their pools, and write the ranks."""
        for k in range(first, len(self)):
            plan, measure, some = self.plans[k], self.measures[k], rows if used[k].all() else rows.take(used[k])
            values, y = plan.values(some), label_argument(plan.kind, measure, some.y)
            if len(values) == 1:  # without the cost of many small arrays
                value = values[0] if values.ndim > 1 else float(values[0])
                ranks[:, k, used[k]] = np.array([measure.update(value, None if y is None else y[0])]).T
            elif len(values):
                ranks[:, k, used[k]] = measure.extend(values, y)


# ------------------------------------------------------------------------------------------------------------- tables


def _bins(measures: Sequence[Any]) -> tuple[Floats, Integers]:
    """Return the edges of all pools of bins, followed by infinity, and the counts; both are empty for other pools."""
    binned = all(isinstance(measure, Frozen) for measure in measures)
    width = max(len(measure.edges) for measure in measures) if binned else -1
    edges, counts = np.full((len(measures), max(width, 0)), np.inf), np.zeros((len(measures), width + 1), np.int64)
    for k, measure in enumerate(measures if binned else ()):
        edges[k, : len(measure.edges)] = measure.edges
        scores, seen = measure.contents()
        counts[k, scores.astype(np.intp)] = seen
    return edges, counts


def _numbers(states: Sequence[LineState], counts: Integers) -> Integers:
    integers = np.zeros((len(states), native.LINE_INTEGERS), np.int64)
    integers[:, native.LINE_SEED] = np.array([state.pvalues.seed for state in states], np.uint64).view(np.int64)
    integers[:, native.LINE_POOL] = counts.sum(axis=1)
    for row, state in zip(integers, states, strict=True):
        row[native.LINE_N], row[native.LINE_LOWEST] = state.pvalues.n, state.lowest
        row[native.LINE_ALARM] = -1 if state.alarm_at is None else state.alarm_at
        row[native.LINE_CHANGE] = -1 if state.changepoint is None else state.changepoint
    return integers


def _reals(states: Sequence[LineState], weights: Sequence[float]) -> Floats:
    rows = [
        (*state.martingale._sum, state.low, native.log(weight, None), state.alarm.log_threshold)
        for state, weight in zip(states, weights, strict=True)
    ]
    return np.array(rows)


def _run_together(run: Callable[[slice], None], parts: Sequence[slice]) -> None:
    """Run all parts at the same time: the last one here, like those for which no thread can be started."""
    errors: list[Exception] = []

    def guarded(part: slice) -> None:
        try:
            run(part)
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)

    started = [thread for thread in [Thread(target=guarded, args=(part,)) for part in parts[:-1]] if _starts(thread)]
    guarded(parts[-1])
    for thread in started:
        thread.join()
    for error in errors:
        raise error


def _starts(thread: Thread) -> bool:
    """Start a thread; return False if that is not possible, after running it here."""
    try:
        thread.start()
    except RuntimeError:  # the system allows no more of them
        thread.run()
        return False
    return True


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
