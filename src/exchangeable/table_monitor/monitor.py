"""`TableMonitor`: rows with named columns, compared with a reference, one by one."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.alarms import Ville
from exchangeable.analysis.views import MAX_FEATURES
from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.values import is_missing
from exchangeable.history import Curve, History
from exchangeable.late_labels import LateLabels, LeftOut
from exchangeable.late_labels.queue import QueueFullError, _check_id, _duration, _stored_counts
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import FIRST_BATCH, MAX_BATCH
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import draw_seed, thetas
from exchangeable.table_monitor.cells import ABSENT, Cells, open_cells
from exchangeable.table_monitor.constants import (
    ColumnConstants,
    Constants,
    check_places,
    dump_constants,
    given_constants,
    invalid_notes,
    learn_constants,
    load_constants,
    row_scores,
    split_delays,
    table_scores,
)
from exchangeable.table_monitor.findings import Explanation, find, line_values, load_explanation, summarise
from exchangeable.table_monitor.given_label import given_label
from exchangeable.table_monitor.labels import LabelledLines
from exchangeable.table_monitor.lines import (
    EXACT,
    LABELLED,
    VIEWS,
    Level,
    Line,
    LineState,
    Plan,
    Rows,
    fresh_lines,
    load_line,
    measure_size,
    outside,
    plan_lines,
    start_lines,
)
from exchangeable.table_monitor.martingales import Lines
from exchangeable.tracker import MAX_COUNT, Tracker
from exchangeable.validation import check_integer, check_interval, check_stored, format_value

if TYPE_CHECKING:
    from exchangeable.risk import Risk

MAX_FIXED = 5_000  # rows of the reference that fix the constants, at most a third of it
MIN_REFERENCE = 30
LISTED = 6  # lines in a card
REMEMBERED = 10  # full queues of ids that were dropped
RECENT = 512  # rows whose scores are kept, to describe what has changed
SETTINGS = (
    *("alpha", "period", "columns", "bins", "on_alarm", "max_rows", "seed", "invalid"),
    *("invalid_cells", "ignored_labels", "has_reference", "delay"),
)
DIVISION_STREAM = 2**32 - 3  # the stream of random numbers that divides the reference


class TableStep(NamedTuple):
    """One row seen: its number (from 1), the log evidence, and whether the alarm is raised."""

    n: int
    log_value: float
    alarm: bool


class TablePath(NamedTuple):
    """Many steps as columns. ``test`` is the number of the test that a step belongs to: one more after each restart."""

    n: Integers
    log_value: Floats
    alarm: NDArray[np.bool_]
    test: Integers
    guarantee: str


class TableMonitor(Tracker):
    """Watches rows with named columns: is this still the data of the reference, and which columns have changed?

    ``reference`` is the table that a model was trained on, or any earlier data: a file, a frame, an array, a mapping of
    columns, or a list of mappings. It is divided at random, by the seed. A third of it, at most 5,000 rows, fixes the
    constants: columns and their kinds, categories, scales, principal components and a ridge regression of the label.
    The other rows fill the pools with which new rows are compared. Then each new row is bet on. If the new rows are
    exchangeable with those of the reference, the probability that the alarm is *ever* raised is at most ``alpha``,
    however long one watches. With ``period``, the mean time to a false alarm is at least ``period`` rows instead.

    There is one martingale for each column, for up to four principal components and for full rows, and with a
    ``label`` also for the label, its residual and full rows with labels. Each has a fixed weight; the weights sum to 1.
    ``log_value`` is the log of the largest product of weight and capital, and the alarm is raised when that reaches
    1/alpha. ``rejected_by`` names the columns and views whose own evidence is enough, and ``explain`` describes all.

    - ``schema``: constants to use instead of a reference: the ``schema`` of another monitor, or a mapping of columns,
      to "number" or to a list of categories. Pools then start empty, and the alarm is about changes since the start.
    - ``columns``: "each" tests everything, "none" full rows only.
    - ``bins``: None ranks values exactly, in memory that grows with the stream, and compares full rows with at most
      ``max_rows`` others, after which their line stops (``stopped``); with ``columns="none"`` nothing is tested then.
      An integer, such as 256, ranks values in that many bins, and
      full rows by their distance to 256 rows of the reference: memory is constant.
    - ``wait``: None expects the label in each row; the lines with the label leave out rows without one. A number of
      seconds, a timedelta or "forever" lets labels come later (``label``), and ``never`` says that one will not: see
      `LateLabels`. Columns are tested at once. If more than ``most`` rows wait, the lines with the label begin again
      with the next row. ``ignored_labels`` counts labels that came again.
    - ``delay`` names a column of the reference: the seconds until the label came, missing if it never did. Rows whose
      labels come in time may differ from the others, so the lines with the label compare with the reference only as
      long as no row is left out, and then with each other; with ``delay``, always with the rows of the reference whose
      labels came in time.
    - ``invalid``: "error" rejects a row with a missing or unknown column or an invalid cell; "missing" counts it in
      ``invalid_cells`` and treats the cell as missing. Missing values themselves are always allowed.
    - ``on_alarm="restart"`` starts a new test after an alarm, with empty pools: the reference is not used again.
    - ``categorical`` names columns of numbers that are categories, and ``keep`` those to test in any case.

    Time per row in ``extend`` with ``bins``: little more than that of the bets of all lines, which one native call
    places, and with a period, whose bets are cheap, a few times as much; a large batch is divided among threads
    (benchmarks/TABLE_MONITOR.md). Without ``bins``, that of the nearest neighbours of full rows is added, which grows
    with the rows so far, up to ``max_rows``.

    >>> rng = np.random.default_rng(0)
    >>> train = {"size": rng.normal(size=600), "colour": rng.choice(["red", "blue"], 600).tolist()}
    >>> monitor = TableMonitor(train, seed=1)
    >>> path = monitor.extend({"size": rng.normal(1.0, 1.0, 100), "colour": ["red"] * 100})
    >>> monitor.alarm_at is not None, monitor.rejected_by
    (True, ['colour', 'size'])
    >>> monitor.update({"size": 1.0, "colour": "green"}).n
    101
    """

    _title = "Evidence that the rows are not exchangeable with the reference"
    claim = "the rows are not exchangeable with those of the reference"

    def __init__(
        self,
        reference: Any = None,
        label: str | None = None,
        *,
        schema: Constants | Mapping[str, Any] | None = None,
        alpha: float = 0.01,
        period: float | None = None,
        columns: str = "each",
        bins: int | None = None,
        wait: float | timedelta | str | None = None,
        most: int = 10_000,
        delay: str | None = None,
        on_alarm: str = "latch",
        max_rows: int = 50_000,
        seed: int | None = None,
        invalid: str = "error",
        categorical: Sequence[str] | str = (),
        keep: Sequence[str] | str = (),
    ) -> None:
        super().__init__(on_alarm, 0)
        self.alpha: float = Ville(alpha).alpha
        self.period: float | None = (
            None if period is None else check_interval("period", period, 1.0, 1e300, "(1, 1e300]")
        )
        self.columns: str = _check_choice("columns", columns, ("each", "none"))
        self.invalid: str = _check_choice("invalid", invalid, ("error", "missing"))
        self.bins: int | None = None if bins is None else check_integer("bins", bins, 2, 2**20)
        self.max_rows: int = check_integer("max_rows", max_rows, 4, 10_000_000)
        self.seed: int = draw_seed() if seed is None else check_integer("seed", seed, 0, 2**64 - 1)
        if wait is not None and label is None and not isinstance(schema, Constants):
            raise ValueError(f"wait requires a label, got {format_value(wait)} without one")
        if delay is not None and (wait is None or reference is None):
            raise ValueError(f"delay requires a reference and wait, got {format_value(delay)} without them")
        self.delay: str | None = delay
        self.wait: float | timedelta | str | None = wait
        self.invalid_cells: int = 0
        self.ignored_labels: int = 0
        self.last: TableStep | None = None
        self.schema: Constants
        fixed, pool = self._learn(reference, label, schema, categorical, keep)
        self._plans: list[Plan] = plan_lines(self.schema, columns == "each", self.bins, fixed)
        if fixed is not None:
            self.schema = replace(self.schema, summaries=tuple(self._summaries(fixed)))
        if not self._plans:
            rule = "with a schema of columns only" if fixed is None else f"with more than {MAX_FEATURES} features"
            raise ValueError(f"columns must be 'each' {rule}, got 'none'")
        self._lines: Lines = Lines(self._plans, self._start(pool), self.max_rows)
        self._recent: Floats = np.zeros((RECENT, len(self.schema.columns)))
        complete = pool is not None and delay is None and not np.isnan(pool.y).all()
        self._labelled: LabelledLines = self._labelled_lines(complete=complete, next=1)
        self._queue: LateLabels | None = None if wait is None else LateLabels(self._labelled, wait=wait, most=most)
        self._left_out: LeftOut = LeftOut()  # without a queue
        if pool is not None and label is not None:
            self._labelled.fill(pool)
        self._ended: Explanation | None = None  # of the latest alarm, before a restart
        self._dropped: dict[str | int, None] = {}  # rows that do not wait any more, since a new run or test began
        self._interrupted = False

    def _learn(
        self, reference: Any, label: str | None, schema: Any, categorical: Any, keep: Any
    ) -> tuple[Rows | None, Rows | None]:
        """Set the constants; return the rows that fixed them, and those that fill the pools."""
        if (reference is None) == (schema is None):
            raise ValueError(
                "TableMonitor needs a reference or a schema, got " + ("neither" if schema is None else "both")
            )
        if schema is not None:
            for name, value in (("bins", self.bins), ("categorical", categorical), ("keep", keep)):
                if value not in (None, (), []):
                    raise ValueError(f"{name} requires a reference, got {format_value(value)} with a schema")
            self.has_reference: bool = False
            self.schema = schema if isinstance(schema, Constants) else given_constants(schema, label)
            _check_label(self.schema, label)
            return None, None
        self.has_reference = True
        cells = open_cells(reference)
        if cells.n < MIN_REFERENCE:
            raise DataError(f"reference must have at least {MIN_REFERENCE} rows, got {cells.n}")
        if label is not None and label not in cells.columns:
            raise DataError(f"label must be a column of the reference, got {format_value(label)}")
        in_time = None
        if self.delay is not None:
            cells, in_time = split_delays(cells, self.delay, label, _duration(self.wait))
        order = np.argsort(thetas(self.seed, 0, cells.n, DIVISION_STREAM), kind="stable")
        first = min(cells.n // 3, MAX_FIXED)
        categorical, keep = _check_names("categorical", categorical), _check_names("keep", keep)
        for name in (name for name in (*categorical, *keep) if name not in cells.columns):
            raise ColumnError(f"categorical and keep must name columns of the reference, got {format_value(name)}")
        self.schema = learn_constants(cells.take(order[:first]), label, categorical, keep)
        rows, wrong = self._rows(cells, "missing")
        fixed, pool = rows.take(order[:first]), rows.take(order[first:])
        if wrong:
            self.schema = replace(self.schema, notes=(*self.schema.notes, *invalid_notes(self.schema, cells)))
        if in_time is not None:
            pool.y[~in_time[order[first:]]] = np.nan
        elif label is not None and np.isnan(pool.y).any():
            pool.y[:] = np.nan  # rows with labels may differ from those without
            note = f"label {format_value(label)} is missing in the reference: new labels are compared with each other"
            self.schema = replace(self.schema, notes=(*self.schema.notes, note))
        return fixed, pool

    def _summaries(self, fixed: Rows) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the name of each view, and quantiles of what it is about."""
        for plan in self._plans:
            kind = "residual" if plan.kind == "labelled rows" else plan.kind
            rows = outside(self.schema, kind, fixed)
            if plan.kind in VIEWS and len(rows.y):
                yield plan.name, summarise(line_values(plan, self.schema, rows))

    @property
    def _level(self) -> Level:
        return Level(self.alpha, self.period)

    def _start(self, pool: Rows | None, start: int = 0, run: int = 0) -> list[LineState]:
        return start_lines(
            self._plans, pool, level=self._level, seed=self.seed, max_rows=self.max_rows, start=start, run=run
        )

    def __repr__(self) -> str:
        parts = f"{len(self.schema.columns)} columns, {len(self._lines)} lines, n={self.n:,}"
        level = f"alpha={self.alpha:g}" if self.period is None else f"period={self.period:g}"
        return f"<TableMonitor of {parts}, {level}, seed={self.seed}>"

    # ------------------------------------------------------------------------------------------------------ evidence

    @property
    def log_value(self) -> float:
        """The log of the largest product of weight and capital."""
        return 0.0 if self.last is None or self._is_new_test else self.last.log_value

    @property
    def capital_level(self) -> float | None:
        """The evidence that raises the alarm, 1/alpha; None with a period."""
        return 1.0 / self.alpha if self.period is None else None

    @property
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees."""
        rows = f"If the rows are exchangeable{' with those of the reference' * self.has_reference},"
        if self.period is None:
            alarm = Ville(self.alpha)
            sentence = alarm.guarantee_with_restarts if self.on_alarm == "restart" else alarm.guarantee
            sentence = sentence.replace("On exchangeable data", rows)
        else:
            time = "between false alarms" if self.on_alarm == "restart" else "to a false alarm"
            sentence = f"{rows} the mean time {time} is at least {self.period:g} rows."
        return self.left_out.guarantee(sentence, math.inf if self._queue is None else self._queue.wait)

    @property
    def left_out(self) -> LeftOut:
        """Counts of the rows that the lines with the label have left out, as in `LateLabels`.

        Without ``wait``, ``never`` counts the rows without a label.
        """
        return self._left_out if self._queue is None else self._queue.left_out

    @property
    def rejected_by(self) -> list[str]:
        """The names of the columns, and then of the views, whose own alarm has been raised, the strongest first.

        After a restart they are those of the latest alarm, like ``alarm_at`` and ``changepoint``.
        """
        found = _sorted_lines(self._lines)
        return [line.name for line in found if line.alarm_at is not None] or [
            finding.name for finding in self._ended or () if finding.rejected
        ]

    @property
    def stopped(self) -> list[str]:
        """The names of the lines of full rows that hold ``max_rows`` rows, and do not bet any more."""
        return [line.name for line in self._lines if line.stopped]

    def explain(self, risk: Risk | None = None) -> Explanation:
        """Describe each line: its evidence, when it changed, and how the rows after it differ from the reference.

        Lines with an alarm come first, and of these columns before views, each the strongest first. ``changepoint`` is
        an estimate. ``description`` is about the rows after it, without a change about all, and at most about the
        latest 512, or 256 with labels; ``rows`` are the numbers of the strangest ones. ``part`` says what has changed.

        The `Explanation` also says what has changed altogether (``moved``), which rows to keep for retraining
        (``keep_from``) and, with a `Risk` of the model's loss, whether harm is shown (``harm``).
        """
        if risk is not None and not hasattr(risk, "explain"):
            raise ValueError(f"risk must be a Risk, got {format_value(risk)}")
        found = self._explain(_sorted_lines(self._lines))
        found.risk = risk
        return found

    @property
    def alarm_explanation(self) -> Explanation | None:
        """The explanation of the latest alarm: after a restart as it was then, otherwise that of now."""
        if any(line.alarm_at is not None for line in self._lines):
            return self.explain()
        return self._ended

    def _explain(self, lines: Sequence[Line]) -> Explanation:
        plans = {plan.name: plan for plan in self._plans}
        found = []
        for line in lines:
            since = line.changepoint or self._lines.start
            rows = self._labelled.since(since) if line.kind in LABELLED else self._since(since)
            found.append(find(plans[line.name], line, self.schema, rows))
        given = self._labelled.given
        return Explanation(found, None if given is None else given.finding)

    def _since(self, n: int) -> Rows:
        """Return the latest rows after row n, at most 512."""
        at = np.arange(max(n, self.n - RECENT), self.n)
        scores = self._recent[at % RECENT]
        return Rows(scores, self.schema.features(scores), np.full(len(at), np.nan), at + 1)

    @property
    def curves(self) -> dict[str, Curve]:
        """The log evidence of each line over the rows of the current test, thinned for plots."""
        lines = self._lines
        return {line.name: lines.history(k).curve(self.n, line.log_evidence) for k, line in enumerate(lines)}

    def findings(self) -> list[str]:
        """Return a sentence about each of the strongest lines."""
        return [str(finding) for finding in self.explain()[:LISTED]]

    def parts(self) -> list[tuple[str, str]]:
        """Return the parts that the monitor is made of, by name."""
        settings = {"label": self.schema.label and self.schema.label.name, "bins": self.bins, "wait": self.wait}
        given = [(name, str(value)) for name, value in settings.items() if value is not None]
        if self.schema.label is not None and self.has_reference:
            given.append(("labels compared with", "the reference" if self.compares_labels else "earlier rows"))
        if self.stopped:
            given.append(("stopped at max_rows", ", ".join(self.stopped)))
        return [
            ("monitor", f"{len(self.schema.columns)} columns, {len(self._lines)} lines"),
            *given,
            ("seed", f"{self.seed}"),
        ]

    @property
    def compares_labels(self) -> bool:
        """Whether labels are compared with the reference: until a row is left out, or with ``delay`` always."""
        return self._labelled.complete or (self.delay is not None and self._lines.run == 0 and self.test == 1)

    @property
    def waiting(self) -> list[str | int]:
        """The ids of the rows that wait for their labels, in order."""
        return [] if self._queue is None else self._queue.waiting

    # ---------------------------------------------------------------------------------------------------------- rows

    def update(self, row: Mapping[str, Any], id: str | int | None = None, time: Any = None) -> TableStep:  # noqa: A002
        """Consume one row. If it is invalid, an error is raised and the monitor stays as it was."""
        if self._queue is None and (id is not None or time is not None):
            raise ValueError(f"id and time require a monitor with wait, got {format_value(time if id is None else id)}")
        if not isinstance(row, Mapping):
            raise ValueError(f"row must be a mapping from columns to values, got {format_value(row)}")
        path = self._extend(*self._read([row]), [id], [time])
        return TableStep(int(path.n[0]), float(path.log_value[0]), bool(path.alarm[0]))

    def extend(
        self, data: Any, ids: Iterable[str | int] | None = None, times: Iterable[Any] | None = None
    ) -> TablePath:
        """Consume many rows: the same numbers as one by one. If one of them is rejected, none is consumed."""
        if self._queue is None and (ids is not None or times is not None):
            given = times if ids is None else ids
            raise ValueError(f"ids and times require a monitor with wait, got {format_value(given)}")
        path = self._extend(*self._read(data), ids, times)
        return path._replace(guarantee=self.guarantee)

    def label(self, id: str | int, y: Any, *, time: Any = None) -> list[str | int]:  # noqa: A002
        """Add the label of an earlier row; return the ids of the rows whose labels were used as a result.

        A label that comes again, or for a row that is no longer remembered, changes nothing: ``ignored_labels`` counts
        it.
        """
        if self._queue is None:
            raise ValueError("label requires a monitor with wait, such as wait='forever'")
        if self.schema.label is None or is_missing(y):
            raise ValueError(f"y must be the label of row {id!r:.80}, got {format_value(y)}")
        (score,), _ = label_scores(self.schema.label, [y], "error", None)
        if self._is_decided(_check_id(id), self._queue):
            self.ignored_labels += 1
            return []
        return self._used(self._queue.label(id, float(score), time=time))

    def _is_decided(self, id: str | int, queue: LateLabels) -> bool:  # noqa: A002
        """Return whether a row has had its label or is no longer remembered; False if no row has had this id."""
        if queue.knows(id):
            return not queue.lacks_label(id)
        return id in self._dropped or self.n > queue.known + len(self._dropped)

    def never(self, id: str | int) -> list[str | int]:  # noqa: A002
        """Leave out a waiting row whose label will never come; return the ids of the rows used as a result.

        This is valid if it depends on that row only, for instance on what kind of row it is.
        """
        if self._queue is None:
            raise ValueError("never requires a monitor with wait, such as wait='forever'")
        return [] if _check_id(id) in self._dropped else self._used(self._queue.never(id))

    def _used(self, released: Sequence[tuple[str | int, Any]]) -> list[str | int]:
        if released:
            self._update_evidence()
        return [key for key, _ in released]

    def _extend(self, rows: Rows, wrong: int, ids: Any, times: Any) -> TablePath:
        """Consume rows, of which ``wrong`` cells are invalid."""
        path = self._consume(rows) if self._queue is None else self._extend_with_queue(rows, ids, times)
        self.invalid_cells += wrong
        return path

    def _extend_with_queue(self, rows: Rows, ids: Any, times: Any) -> TablePath:
        """Bet on rows, and before each on the rows whose labels it releases.

        All is checked first. Only an id that is known may be rejected later, since ids are forgotten as rows come.
        """
        assert self._queue is not None  # noqa: S101
        n, missing = len(rows.y), np.isnan(rows.y)
        ids = [_check_id(one) for one in _listed("ids", ids, n)]
        times = self._queue.check_times([None] * n if times is None else _listed("times", times, n), missing.tolist())
        known = len(set(ids)) < n or any(one in self._dropped or self._queue.knows(one) for one in ids)
        before = copy.deepcopy(vars(self)) if known and n > 1 else {}
        paths: list[TablePath] = []
        done = 0
        try:
            while done < n:
                stop = self._observe_rows(rows, ids, times, done)
                some = rows.take(slice(done, stop))
                paths.append(self._consume(some._replace(y=np.full(stop - done, np.nan))))
                done = stop
        except BaseException:
            vars(self).update(before or {"_interrupted": self._interrupted or done > 0})
            raise
        return _join(paths)

    def _observe_rows(self, rows: Rows, ids: list[str | int], times: list[float | None], first: int) -> int:
        """Add a row to the queue of late labels, and those behind it that only wait; return where they end.

        After a restart, rows belong to a new queue, so they are added one by one if there may be one.
        """
        for i in range(first, len(ids)):
            assert self._queue is not None  # noqa: S101
            y = None if np.isnan(rows.y[i]) else float(rows.y[i])
            if i > first and (self.on_alarm == "restart" or not self._queue.only_waits(y, times[i])):
                return i
            self._observe((rows.scores[i].tolist(), int(rows.at[i])), ids[i], y, times[i])
        return len(ids)

    def _observe(self, example: tuple[list[float], int], id: str | int, y: float | None, time: float | None) -> None:  # noqa: A002
        """Add a row to the queue of late labels; if that is full, leave out the rows that wait."""
        assert self._queue is not None  # noqa: S101
        if id in self._dropped:
            raise ValueError(f"id must differ from those of earlier rows, got {format_value(id)} again")
        try:
            self._queue.observe(id, example, y, time=time)
        except QueueFullError:
            self._labelled.start_run(self.n)
            self._labelled.next = self.n + 1
            self._drop_waiting()
            self._queue.observe(id, example, y, time=time)

    def _consume(self, rows: Rows) -> TablePath:
        """Bet on rows; after a restart the remaining ones are ranked again, in small batches at first."""
        self._check_not_interrupted()
        self._interrupted = True
        n, done, size, parts = len(rows.y), 0, MAX_BATCH * 4, []
        while done < n:
            stop = self._next(rows, done, done + size)
            parts.append(self._bet(rows if n == 1 else rows.take(slice(done, stop))))
            done += len(parts[-1].n)
            size = FIRST_BATCH if self._is_new_test else min(2 * size, MAX_BATCH * 4)
        path = _join(parts)
        if self.schema.label is not None and self._queue is None:
            self._left_out.never += int(np.isnan(rows.y).sum())
        if n:
            self.last = TableStep(int(path.n[-1]), float(path.log_value[-1]), bool(path.alarm[-1]))
        self._interrupted = False
        return path

    def _check_not_interrupted(self) -> None:
        if self._interrupted:
            raise ValueError("a monitor that was interrupted in the middle of a row cannot be used any more")

    def _next(self, rows: Rows, first: int, stop: int) -> int:
        """Return where the next part ends: before the first row without a label that begins a new run."""
        if not self._labelled.complete or self._queue is not None:
            return stop
        missing = np.flatnonzero(np.isnan(rows.y[first:stop]))
        if len(missing) and not missing[0]:
            self._labelled.start_run(int(rows.at[first]) - 1)
        return stop if not len(missing) or not missing[0] else first + int(missing[0])

    def _bet(self, rows: Rows) -> TablePath:
        """Bet on rows with all lines, up to an alarm that is followed by a restart."""
        evidence, on = self._lines.extend(rows)
        restart, known = self.on_alarm == "restart", self.alarm_at
        record = self._integers, self._reals, self._history, restart
        log_value, alarm, test = self._lines.record(*record, evidence, on)
        count = len(alarm)
        at, scores = rows.at[:count], rows.scores[:count]
        self._recent[(at[-RECENT:] - 1) % RECENT] = scores[-RECENT:]
        if self._queue is None and self.schema.label is not None:
            self._labelled.remember(rows if count == len(rows.y) else rows.take(slice(0, count)))
        if self.alarm_at is not None and self.alarm_at != known:
            first = self.alarm_at - int(at[0])
            self._integers[native.TRACK_CHANGE] = self._changepoint(evidence[:, first], on[:, first])
            if restart:
                self._restart(evidence[:, first], on[:, first])
        return TablePath(at, log_value, alarm, test, "")

    def _changepoint(self, evidence: Floats, on: NDArray[np.bool_]) -> int:
        """Return the change point of the strongest line whose alarm is on."""
        return self._lines.changepoint(int(np.where(on, evidence, -np.inf).argmax()))

    def _update_evidence(self) -> None:
        """Record the evidence after a label, which belongs to the latest row."""
        evidence, on = self._lines.log_evidence, self._lines.on
        log_value, restart = float(evidence.max()), self.on_alarm == "restart"
        self.last = TableStep(self.n, log_value, bool(on.any()))
        self._reals[native.TRACK_HIGH] = max(self._reals[native.TRACK_HIGH], log_value)
        if not on.any() or (self.alarm_at is not None and not restart):
            return
        self._integers[native.TRACK_ALARM] = self.n
        self._integers[native.TRACK_CHANGE] = self._changepoint(evidence, on)
        self._history.mark(self.n, log_value)
        if restart:
            self._integers[[native.TRACK_START, native.TRACK_LOWEST]] = self.n
            self._integers[native.TRACK_TEST] += 1
            self._reals[native.TRACK_LOW] = 0.0
            self._restart(evidence, on)

    def _restart(self, evidence: Floats, on: NDArray[np.bool_]) -> None:
        """Start new lines. Rows that wait for a label belong to the test that has ended: they are left out."""
        lines = []  # as they were at the alarm
        for line, value, raised in zip(self._lines, evidence.tolist(), on, strict=True):
            quiet = line._replace(alarm_at=None, changepoint=None)
            lines.append((line if raised else quiet)._replace(log_evidence=value))
        self._ended = self._explain(_sorted_lines(lines))
        self._lines = Lines(self._plans, self._start(None, self.n), self.max_rows)
        self._labelled = self._labelled_lines(complete=False, next=self.n + 1)
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        if self._queue is not None:
            dropped = [*self._dropped, *self._queue.waiting][-REMEMBERED * self._queue.most :]
            self._dropped = dict.fromkeys(dropped)
            self._queue = self._queue.restart(self._labelled)

    def _labelled_lines(self, *, complete: bool, next: int) -> LabelledLines:  # noqa: A002
        fresh = partial(fresh_lines, self._plans, self._level, self.seed, self.max_rows)
        given = given_label(self.schema, self._plans, self._level, self.seed, next - 1)
        return LabelledLines(self._lines, fresh, constants=self.schema, given=given, complete=complete, next=next)

    def _read(self, data: Any) -> tuple[Rows, int]:
        """Convert rows, a single one quickly; return them and the number of invalid cells."""
        single = isinstance(data, list) and len(data) == 1 and isinstance(data[0], Mapping)
        found = row_scores(self.schema, data[0]) if single else None
        if found is None:
            return self._rows(open_cells(data), self.invalid, self.n + 1)
        scores = np.array([found[0]])
        return Rows(scores, self.schema.features(scores), np.array([found[1]]), np.array([self.n + 1])), 0

    def _rows(self, cells: Cells, invalid: str, first: int = 1) -> tuple[Rows, int]:
        """Convert rows; return them and the number of invalid cells."""
        scores, wrong = table_scores(self.schema, cells, invalid=invalid, first=first)
        label = self.schema.label
        y, at = np.full(cells.n, np.nan), np.arange(first, first + cells.n)
        if label is not None and label.name in cells.columns:
            labels = cells.columns[label.name]
            labels = [None if cell is ABSENT else cell for cell in labels] if cells.ragged else labels
            y, bad = label_scores(label, labels, invalid, first, cells.inferred)
            wrong += bad
        return Rows(scores, self.schema.features(scores), y, at), wrong

    # ------------------------------------------------------------------------------------------------------ snapshots

    def _get_state(self) -> dict[str, Any]:
        self._check_not_interrupted()
        queue = None if self._queue is None else self._queue._get_state()
        return {
            "settings": {name: getattr(self, name) for name in SETTINGS}
            | {"wait": None if queue is None else queue["wait"]},
            "schema": dump_constants(self.schema),
            "fresh": [plan.fresh for plan in self._plans],
            "lines": [tuple(state) for state in self._lines.states()],
            "record": (self._integers, self._reals, self._recent),
            "history": self._history,
            "last": None if self.last is None else tuple(self.last),
            "queue": None if queue is None else {k: v for k, v in queue.items() if k not in ("monitor", "wait")},
            "ended": None if self._ended is None else self._ended.dump(),
            "dropped": list(self._dropped),
            "labelled": (self._lines.run, self._labelled.dump(), asdict(self._left_out)),
        }

    @classmethod
    def _from_state(
        cls,
        *,
        settings: Any,
        schema: Any,
        fresh: Any,
        lines: Any,
        record: Any,
        history: Any,
        last: Any,
        queue: Any,
        ended: Any,
        dropped: Any,
        labelled: Any,
    ) -> TableMonitor:
        given = dict(settings)
        counts = {name: given.pop(name) for name in ("invalid_cells", "ignored_labels", "has_reference")}
        bins, wait, delay = given.pop("bins"), given.pop("wait"), given.pop("delay")
        monitor = cls(schema=load_constants(schema), **given)
        monitor.bins = None if bins is None else check_integer("bins", bins, 2, 2**20)
        monitor.invalid_cells = check_integer("invalid_cells", counts["invalid_cells"], 0, MAX_COUNT)
        monitor.ignored_labels = check_integer("ignored_labels", counts["ignored_labels"], 0, MAX_COUNT)
        monitor.has_reference = bool(counts["has_reference"])
        monitor._load_record(record, history, last)
        run, state, left_out = labelled
        monitor._load_lines(fresh, lines, check_integer("run", run, 0, monitor.n))
        monitor._labelled = monitor._labelled_lines(complete=False, next=1)
        monitor._labelled.load(state, monitor.n)
        monitor._left_out = _stored_counts(left_out)
        monitor.delay = None if delay is None else str(delay)
        if wait is not None:
            if monitor.schema.label is None:
                raise ValueError("wait requires a label, got a schema without one")
            monitor.wait = "forever" if wait == math.inf else wait
            monitor._queue = LateLabels._from_state(monitor=monitor._labelled, wait=wait, **queue)
        names = {line.name for line in monitor._lines}
        monitor._ended = None if ended is None else load_explanation(ended, names)
        monitor._dropped = {_check_id(one): None for one in dropped}
        return monitor

    def _load_record(self, record: Any, history: Any, last: Any) -> None:
        for name, array in zip(("_integers", "_reals", "_recent"), record, strict=True):
            model = getattr(self, name)
            setattr(self, name, check_stored(name, array, model.dtype.type, *model.shape))
        if not isinstance(history, History):
            raise ValueError(f"history must be a History, got {format_value(history)}")
        self._history = history
        self._check_record()
        self.last = None if last is None else _stored_step(last, self.n)
        for column, scores in zip(self.schema.columns, self._recent.T, strict=True):
            check_places(column, scores)

    def _load_lines(self, fresh: Any, lines: Any, run: int) -> None:
        """Replace the lines by saved ones, which must be like them."""
        self._plans = plan_lines(self.schema, self.columns == "each", self.bins, None, fresh)
        for plan in self._plans:
            if not self._is_empty_measure(plan):
                raise ValueError(f"the measure of {format_value(plan.name)} must be an empty one, got {plan.fresh!r}")
        like = self._start(None, int(self._integers[native.TRACK_START]), run)
        if not isinstance(lines, list) or len(lines) != len(like):
            raise ValueError(f"lines must hold {len(like)} lines, got {format_value(lines)}")
        pairs = zip(self._plans, like, lines, strict=True)
        states = [load_line(plan.name, one, state, self.n) for plan, one, state in pairs]
        self._lines = Lines(self._plans, states, self.max_rows, run)

    def _is_empty_measure(self, plan: Plan) -> bool:
        """Return whether this is a measure that a line of this plan can start with."""
        if measure_size(plan.fresh):
            return False
        if self.bins is not None:
            return isinstance(plan.fresh, Frozen) and plan.fresh.edges is not None and len(plan.fresh.edges) < MAX_FIXED
        return isinstance(plan.fresh, EXACT if plan.kind in ("rows", "labelled rows") else Value)

    @property
    def _is_new_test(self) -> bool:
        return bool(self._integers[native.TRACK_N] == self._integers[native.TRACK_START])


def label_scores(
    label: ColumnConstants,
    cells: Any,
    invalid: str,
    first: int | None,
    inferred: bool = False,
) -> tuple[Floats, int]:
    """Return the scores of labels, NaN where there is none, and how many were invalid."""
    y, wrong = label.scores(cells, inferred)
    if wrong and invalid == "error":
        row = "" if first is None else f" in row {first + wrong[0][0]:,}"
        raise DataError(f"label {format_value(label.name)} {wrong[0][1]}{row}")
    return np.where(y == label.missing_score, np.nan, y), len(wrong)


def _sorted_lines(lines: Iterable[Line]) -> list[Line]:
    """Return lines with an alarm first, and of these columns before views, each the strongest first."""

    def key(line: Line) -> tuple[bool, bool, float]:
        rejected = line.alarm_at is not None
        return not rejected, rejected and line.kind in VIEWS, -line.log_evidence

    return sorted(lines, key=key)


def _check_label(schema: Constants, label: str | None) -> None:
    found = None if schema.label is None else schema.label.name
    if label is not None and label != found:
        has = "no label" if found is None else f"the label {format_value(found)}"
        raise ValueError(f"label must be that of the schema, which has {has}, got {format_value(label)}")


def _stored_step(last: Any, n: int) -> TableStep:
    count, log_value, alarm = last
    valid = type(count) is int and count == n and type(log_value) is float and type(alarm) is bool
    if not valid or log_value != log_value:
        raise ValueError(f"last must be the step of row {n}, got {format_value(last)}")
    return TableStep(count, log_value, alarm)


def _check_names(name: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name} must be the name of a column or a list of names, got {format_value(value)}")
    return names


def _listed(name: str, values: Any, n: int) -> list[Any]:
    """Return one value for each row, in their order: a series is not read by its index."""
    found = None if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") else list(values)
    if found is None or len(found) != n:
        raise ValueError(f"{name} must hold one item for each of the {n} rows, got {format_value(values)}")
    return found


def _join(parts: Sequence[TablePath]) -> TablePath:
    """Return many paths as one; their guarantee is filled in at the end."""
    if len(parts) == 1:
        return parts[0]
    empty = TablePath(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_), np.empty(0, np.int64), "")
    n, log_value, alarm, test = (np.concatenate([part[k] for part in (empty, *parts)]) for k in range(4))
    return TablePath(n, log_value, alarm, test, "")


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {format_value(value)}")
    return str(value)
