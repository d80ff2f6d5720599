"""Whole streams, from their first example to their last, tested together: no sequence numbers, no state afterwards."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed import recipe as recipes
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.engine import new_pool
from exchangeable.keyed.report import Steps
from exchangeable.keyed.standings import Statuses, statuses
from exchangeable.keyed.step import Pipeline
from exchangeable.keyed.store import Store
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import BetWarning, Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed, smoothed

MOST = 2**20  # distinct scores of a pool: longer streams are tested one after the other
COMPARED = 2048  # scores of a stream up to which comparing all pairs is faster than a pool that is kept in order


class WholeStreams:
    """Tests whole streams of scores, or of p-values, in one call: the numbers of one `Monitor` for each, bit for bit.

    The time is O(n^2) for a stream of n scores, with a small constant (8 ns per score of a stream of 200); memory
    is that of the states of all streams.

    >>> streams = WholeStreams(Monitor(Value()))
    >>> _, status = streams.test(np.array([7, 8], np.uint64), np.array([2, 3]), np.array([0.1, 0.2, 0.3, 0.1, 0.2]))
    >>> status.n
    array([2, 3])
    """

    def __init__(self, monitor: Monitor) -> None:
        fixed = Precomputed() if isinstance(monitor.measure, Precomputed) else Value()  # scores are ranked as numbers
        self._pipeline = Pipeline(recipes.validate(fresh_copy(monitor, fixed, 0)))
        bet, alarm = self._pipeline.bet.fresh, self._pipeline.alarm.fresh
        self._empty = Store(Columns.empty(bet, alarm, new_pool(fixed, MOST)))
        self._without_pools = Store(Columns.empty(bet, alarm, None))
        self._ranked = not isinstance(fixed, Precomputed)
        self.width: int = len(bet) + len(alarm) + native.KEYED_INTEGERS + native.KEYED_REALS + 2 * native.KEYED_SPANS

    @property
    def costly(self) -> bool:
        """Whether the bet has no compiled loop over streams, and takes most of the time."""
        return not self._pipeline.bet.checks_are_fast

    @classmethod
    def create(cls, monitor: Monitor) -> WholeStreams | None:
        """Build from a monitor; return None if its streams have to be tested one after the other."""
        if type(monitor.measure) not in (Value, Frozen, Precomputed):  # a subclass may do something else
            return None
        try:
            return cls(monitor)
        except ValueError:  # a custom bet or alarm, or one whose state grows
            return None

    def test(self, seeds: NDArray[np.uint64], lengths: Integers, scores: Floats) -> tuple[Steps, Statuses]:
        """Test streams of these lengths, at least 1, that lie end to end: return all steps and the last statuses."""
        bet, alarm = self._pipeline.bet, self._pipeline.alarm
        compared = not self._pipeline.restart and int(lengths.max(initial=0)) <= COMPARED
        store = self._without_pools if compared else self._empty
        rows = store.take(np.full(len(lengths), -1), lengths, bet.fresh, alarm.fresh)
        rows.integers[:, native.KEYED_SEED] = seeds.view(np.int64)
        ends = np.cumsum(lengths)
        if compared:
            p = self._p_values(rows.integers, ends - lengths, ends, scores)
            steps, _ = self._pipeline.bet_on(rows, ends - lengths, ends, p)
        else:
            steps = self._pipeline.extend(rows, ends - lengths, ends, scores)
        last = statuses(rows.integers, rows.reals)
        return steps, last._replace(log_value=steps.log_value[ends - 1], test=steps.test[ends - 1])

    def _p_values(self, integers: Integers, lo: Integers, hi: Integers, scores: Floats) -> Floats:
        """Return the p-values of streams from their first scores on."""
        if not self._ranked:
            return scores
        greater, equal = np.empty((2, len(scores)), np.int64)
        theta = np.empty(len(scores))
        native.whole_ranks(lo, hi, scores, greater, equal)
        native.keyed_thetas(integers, lo, hi, theta)
        n = np.arange(1.0, len(scores) + 1.0) - np.repeat(lo, hi - lo)
        return smoothed(greater.astype(np.float64), theta, equal.astype(np.float64), n)


def fresh_copy(monitor: Monitor, measure: Any, seed: int) -> Monitor:
    """Return a monitor like this one with another measure and seed; its `BetWarning` has been issued already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetWarning)
        bet = copy.deepcopy(monitor.martingale.bet)
        return Monitor(measure, bet, monitor.alarm, seed=seed, on_alarm=monitor.on_alarm)
