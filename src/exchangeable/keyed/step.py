"""The full pipeline for many streams at once: number, p-value, capital, alarm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.report import Steps
from exchangeable.keyed.vectorised import Vectorised
from exchangeable.monitor import FIRST_BATCH, MAX_BATCH, Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import smoothed


class Pipeline:
    """Does for many streams what `Monitor` does for one: stream t is row t of the tables."""

    def __init__(self, recipe: Monitor) -> None:
        self.bet: Vectorised = Vectorised(recipe.martingale.bet)
        self.alarm: Vectorised = Vectorised(recipe.alarm)
        self.restart: bool = recipe.on_alarm == "restart"

    def extend(self, rows: Columns, lo: Integers, hi: Integers, x: Floats) -> Steps:
        """Consume ``x[lo[t]:hi[t]]`` in row t, which is updated; numbers after the end of a test are not bet on.

        After a restart the remaining numbers are ranked again, in small batches at first, as in `Monitor`.
        """
        steps = Steps.blank(len(x))
        at, size = lo.copy(), np.full(len(lo), len(x))
        while True:
            ended = rows.integers[:, native.KEYED_FLAGS] & native.KEYED_FLAG_FULL != 0
            count = np.where(ended, 0, np.minimum(hi - at, size))
            if not count.any():
                return steps
            consumed, restarted = self._extend_once(rows, at, count, x, steps)
            at += consumed
            size = np.where(restarted, FIRST_BATCH, np.minimum(2 * size, MAX_BATCH))

    def _extend_once(
        self, rows: Columns, at: Integers, count: Integers, x: Floats, steps: Steps
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Consume up to ``x[at[t]:at[t] + count[t]]``; return how many were consumed, and which rows restarted."""
        index, lo, hi = _ranges(at, count)
        part, restarted = self.bet_on(rows, lo, hi, self._p_values(rows, lo, hi, x[index]))
        self._start_tests(rows, restarted)
        consumed, _, _ = _ranges(lo, hi - lo)
        steps.put(index[consumed], part, consumed)
        return hi - lo, restarted

    def bet_on(self, rows: Columns, lo: Integers, hi: Integers, p: Floats) -> tuple[Steps, NDArray[np.bool_]]:
        """Bet on the p-values ``p[lo[t]:hi[t]]`` in row t; with restarts ``hi`` becomes the end of the test.

        Return the steps, and in which rows a test starts after them. The ranges must cover all p-values.
        """
        part, restarted = Steps.blank(len(p)), np.zeros(len(lo), np.bool_)
        part.p[:] = p
        part.log_value[:] = 0.0
        native.keyed_accumulate(rows.reals, lo, hi, self.bet.extend(rows.bet, lo, hi, p), part.log_value)
        raised = self.alarm.extend(rows.alarm, lo, hi, part.log_value)
        native.track(
            *(rows.integers, rows.reals, self.restart, lo, hi, part.log_value, raised, restarted),
            *(part.n, part.alarm, part.changepoint, part.test),
        )
        part.changepoint[~part.alarm] = -1
        return part, restarted

    def _p_values(self, rows: Columns, lo: Integers, hi: Integers, x: Floats) -> Floats:
        """Return the p-values of numbers that join the pools; ``hi`` becomes the end of those that do."""
        if rows.pool is None:
            return x
        ranks = rows.pool.rank(rows.integers[:, native.TRACK_N] - rows.integers[:, native.TRACK_START], lo, hi, x)
        theta = np.ones(len(x))
        native.keyed_thetas(rows.integers, lo, hi, theta)
        return smoothed(*(np.asarray(column, np.float64) for column in (ranks.greater, theta, ranks.equal, ranks.n)))

    def _start_tests(self, rows: Columns, restarted: NDArray[np.bool_]) -> None:
        """Reset the parts where a new test starts; elsewhere a test ends when its pool is full."""
        new = np.flatnonzero(restarted)
        rows.bet[new], rows.alarm[new] = self.bet.fresh, self.alarm.fresh
        rows.reals[new, native.KEYED_SUM : native.KEYED_CARRY + 1] = 0.0
        if rows.pool is not None:
            rows.pool.clear(new)
            rows.integers[rows.pool.full(), native.KEYED_FLAGS] |= native.KEYED_FLAG_FULL


def _ranges(start: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
    """Return the positions of ``count[t]`` items from ``start[t]`` on, and the start and end of those of each t."""
    hi = np.cumsum(count)
    lo = hi - count
    return np.arange(count.sum()) + np.repeat(start - lo, count), lo, hi
