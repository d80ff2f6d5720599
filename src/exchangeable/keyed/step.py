"""The straight line for many streams at once: number, p-value, capital, alarm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.report import Steps
from exchangeable.keyed.vectorised import Player
from exchangeable.monitor import BLOCK, FEW, Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import smoothed


class Line:
    """What `Monitor` does to the numbers of one stream, for many streams, in the rows of a table each."""

    def __init__(self, recipe: Monitor) -> None:
        self.bet: Player = Player(recipe.martingale.bet)
        self.alarm: Player = Player(recipe.alarm)
        self.restart: bool = recipe.on_alarm == "restart"

    def extend(self, rows: Columns, lo: Integers, hi: Integers, x: Floats) -> Steps:
        """Bet on ``x[lo[t]:hi[t]]`` in row t, which learns; what comes after the end of a test is not bet on.

        After an alarm that is followed by a restart the rest is ranked again, few at first, as `Monitor` does.
        """
        steps = Steps.blank(len(x))
        at, size = lo.copy(), np.full(len(lo), len(x))
        while True:
            ended = rows.whole[:, native.KEYED_FLAGS] & native.KEYED_FLAG_FULL != 0
            todo = np.where(ended, 0, np.minimum(hi - at, size))
            if not todo.any():
                return steps
            taken, begun = self._some(rows, at, todo, x, steps)
            at += taken
            size = np.where(begun, FEW, np.minimum(2 * size, BLOCK))

    def _some(
        self, rows: Columns, at: Integers, todo: Integers, x: Floats, steps: Steps
    ) -> tuple[Integers, NDArray[np.bool_]]:
        """Bet on so many numbers of each row; how many were taken, and which rows begin a new test."""
        index, lo, hi = _spread(at, todo)
        p = self._p(rows, lo, hi, x[index])
        gains = self.bet.play(rows.bet, lo, hi, p)
        local, begun = Steps.blank(len(index)), np.zeros(len(lo), np.bool_)
        local.p[:] = p
        local.log_value[:] = 0.0
        native.keyed_accumulate(rows.real, lo, hi, gains, local.log_value)
        sounds = self.alarm.play(rows.alarm, lo, hi, local.log_value)
        told = local.n, local.alarm, local.changepoint, local.test
        native.keyed_settle(rows.whole, rows.real, self.restart, lo, hi, local.log_value, sounds, begun, *told)
        self._renew(rows, begun)
        those, _, _ = _spread(lo, hi - lo)
        steps.put(index[those], local, those)
        return hi - lo, begun

    def _p(self, rows: Columns, lo: Integers, hi: Integers, x: Floats) -> Floats:
        """The p-values of numbers that join the pools; ``hi`` becomes the end of those that do."""
        if rows.pool is None:
            return x
        ranks = rows.pool.rank(rows.whole[:, native.KEYED_N] - rows.whole[:, native.KEYED_SINCE], lo, hi, x)
        theta = np.ones(len(x))
        native.keyed_thetas(rows.whole, lo, hi, theta)
        return smoothed(*(np.asarray(column, np.float64) for column in (ranks.greater, theta, ranks.equal, ranks.n)))

    def _renew(self, rows: Columns, begun: NDArray[np.bool_]) -> None:
        """Fresh parts where a test begins; elsewhere it ends when its pool is full."""
        again = np.flatnonzero(begun)
        rows.bet[again], rows.alarm[again] = self.bet.fresh, self.alarm.fresh
        if rows.pool is not None:
            rows.pool.clear(again)
            rows.whole[rows.pool.full(), native.KEYED_FLAGS] |= native.KEYED_FLAG_FULL


def _spread(start: Integers, count: Integers) -> tuple[Integers, Integers, Integers]:
    """The places of so many numbers from each start on; and where those of each lie among them, from and to."""
    hi = np.cumsum(count)
    lo = hi - count
    return np.arange(count.sum()) + np.repeat(start - lo, count), lo, hi
