"""The lines that need labels, as one monitor behind a queue of late labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats, Path, Step
from exchangeable.table_monitor.constants import Constants, check_places
from exchangeable.table_monitor.given_label import GivenLabel
from exchangeable.table_monitor.lines import LineState, Rows
from exchangeable.table_monitor.martingales import Lines
from exchangeable.validation import check_integer, check_stored

RECENT = 256  # rows with labels that are kept


class LabelledLines:
    """The lines of the label, its residual and full rows with labels; an example is (scores, number).

    Their tests are divided into runs. If ``complete``, the pools hold rows of the reference, all with labels. New rows
    can be compared with them only as long as no row is left out, since the rows whose labels come may differ from the
    others. With the first row that is left out a run begins with empty pools, new capital and a smaller weight.
    ``fresh`` returns lines that start after a row, as those of a run. ``next`` is the number of the first row that has
    not been decided yet.
    """

    def __init__(
        self,
        lines: Lines,
        fresh: Callable[[int, int], list[LineState]],
        *,
        constants: Constants,
        given: GivenLabel | None,
        complete: bool,
        next: int,  # noqa: A002
    ) -> None:
        self.lines = lines
        self.fresh = fresh
        self.constants = constants
        self.given = given
        self.complete = complete
        self.next = next
        size = 0 if constants.label is None else RECENT
        self.recent: Floats = np.zeros(
            (size, len(constants.columns) + 2)
        )  # scores, label and number of the latest rows
        self.count: int = 0  # of rows with labels

    def remember(self, rows: Rows) -> None:
        """Keep the latest of the rows with labels that have been used, and test their inputs given the label."""
        with_label = rows.y == rows.y
        if not with_label.any():
            return
        rows = rows if with_label.all() else rows.take(with_label)
        if self.given is not None:
            self.given.extend(rows)
        self.count += len(rows.y)
        kept = np.column_stack([rows.scores, rows.y, rows.at])[-RECENT:]
        self.recent[np.arange(self.count - len(kept), self.count) % RECENT] = kept

    def since(self, n: int) -> Rows:
        """Return the latest rows with labels after row n, at most 256."""
        size = min(self.count, len(self.recent))
        rows = self.recent[np.arange(self.count - size, self.count) % RECENT]
        rows = rows[rows[:, -1] > n]
        scores = np.ascontiguousarray(rows[:, :-2])
        return Rows(scores, self.constants.features(scores), rows[:, -2], rows[:, -1].astype(np.int64))

    def fill(self, pool: Rows) -> None:
        """Let the test given the label start with rows of the reference."""
        if self.given is not None:
            self.given.fill(pool.take(np.flatnonzero(pool.y == pool.y)))

    def dump(self) -> tuple[Any, ...]:
        """Return the state, besides that of the lines."""
        given = None if self.given is None else self.given.dump()
        return self.complete, self.next, self.recent, self.count, given

    def load(self, state: Any, n: int) -> None:
        """Take over a saved state; ``n`` is the number of rows."""
        complete, first, recent, count, given = state
        self.complete, self.next = bool(complete), check_integer("next", first, 1, n + 1)
        self.recent = check_stored("recent", recent, np.float64, *self.recent.shape)
        self.count = check_integer("count", count, 0, n)
        label = () if self.constants.label is None else (self.constants.label,)
        for column, scores in zip((*self.constants.columns, *label), self.recent.T, strict=False):
            check_places(column, scores)
        if self.given is not None:
            self.given.load(given, self.lines.run, n)

    def start_run(self, start: int) -> None:
        """Begin a run after row ``start``, with empty pools."""
        run = self.lines.run + 1
        self.lines.start_run(self.fresh(start, run), run)
        self.complete = False
        if self.given is not None:
            self.given.start_run(run, start)

    def update(self, x: Any, y: float) -> Step:
        """Consume one example."""
        path = self.extend([x], [y])
        return Step(1, 1.0, float(path.log_value[-1]), bool(path.alarm[-1]))

    def extend(self, X: Any, y: Any) -> Path:
        """Consume examples. There are no p-values of all lines together, so those of the path are 1."""
        found, at = zip(*X, strict=True)
        scores = np.array(found)
        rows = Rows(scores, self.constants.features(scores), np.asarray(y, np.float64), np.array(at, np.int64))
        evidence, alarm = self._extend_runs(rows)
        count = np.arange(1, len(evidence) + 1)
        return Path(count, np.ones(len(evidence)), evidence, alarm, count, count, "")

    def _extend_runs(self, rows: Rows) -> tuple[Floats, NDArray[np.bool_]]:
        """Consume rows whose numbers may have gaps: the rows that were left out."""
        expected = self.next + np.arange(len(rows.at))
        gaps = np.flatnonzero(rows.at != expected)
        self.next = int(rows.at[-1]) + 1
        if not self.complete or not len(gaps):
            return self.extend_rows(rows)
        whole = int(gaps[0])
        before = self.extend_rows(rows.take(slice(0, whole)))
        self.start_run(int(expected[whole]) - 1)
        after = self.extend_rows(rows.take(slice(whole, None)))
        return np.append(before[0], after[0]), np.append(before[1], after[1])

    def extend_rows(self, rows: Rows) -> tuple[Floats, NDArray[np.bool_]]:
        """Consume rows with labels; return the largest log evidence after each, and where an alarm is on."""
        self.remember(rows)
        evidence, on = self.lines.extend(rows, self.lines.labelled)
        return evidence.max(axis=0, initial=-np.inf), np.asarray(on.any(axis=0))
