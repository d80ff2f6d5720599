"""The pools of many streams: where each new number stands among those of its own stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed.ragged import Ragged, with_rows
from exchangeable.protocols import Floats, Integers, Ranks


class Bins:
    """Counts of the numbers of bins, for `Frozen`: O(bins) an event, though a short pass, and O(bins) memory.

    >>> Bins(np.zeros((1, 4), np.int64)).rank(np.array([0]), np.array([0]), np.array([3]), np.array([2.0, 3.0, 2.0]))
    Ranks(greater=array([0, 0, 1]), equal=array([1, 1, 2]), n=array([1, 2, 3]))
    """

    def __init__(self, counts: Integers) -> None:
        self.counts = counts

    def take(self, places: Integers, events: Integers) -> Bins:
        """Copies of the pools at these places, -1 for a new one, to which so many events may come."""
        counts = np.zeros((len(places), self.counts.shape[1]), np.int64)
        counts[places >= 0] = self.counts[places[places >= 0]]
        return Bins(counts)

    def put(self, places: Integers, pools: Bins) -> Bins:
        """All pools, with those in these places."""
        return Bins(with_rows(self.counts, places, pools.counts))

    def rank(self, before: Integers, lo: Integers, hi: Integers, x: Floats) -> Ranks:
        """Let ``x[lo[t]:hi[t]]`` join pool t, which holds so many before."""
        ranks = _alone(len(x))
        native.keyed_rank_bins(self.counts, before, lo, hi, x, *ranks)
        return ranks

    def full(self) -> NDArray[np.bool_]:
        """None is ever."""
        return np.zeros(len(self.counts), np.bool_)

    def clear(self, rows: Integers) -> None:
        """Empty these pools."""
        self.counts[rows] = 0

    def totals(self) -> Integers:
        """How many numbers each holds."""
        return np.asarray(self.counts.sum(axis=1))


class Scores:
    """The distinct numbers, m of them, in order, with their counts, for `Value`: O(m) memory, and time, an event.

    A pool with ``most`` of them is full: it takes no more.
    """

    def __init__(self, most: int, rows: Ragged) -> None:
        self.most = most
        self.rows = rows

    def take(self, places: Integers, events: Integers) -> Scores:
        """Copies of the pools at these places, -1 for a new one, to which so many events may come."""
        return Scores(self.most, self.rows.take(places, events))

    def put(self, places: Integers, pools: Scores) -> Scores:
        """All pools, with those in these places."""
        return Scores(self.most, self.rows.put(places, pools.rows))

    def rank(self, before: Integers, lo: Integers, hi: Integers, x: Floats) -> Ranks:
        """Let ``x[lo[t]:hi[t]]`` join pool t, which holds so many before; ``hi`` becomes the end of those that did."""
        start, used, (score, count) = self.rows
        ranks = _alone(len(x))
        native.keyed_rank_scores(score, count, start, used, self.most, before, lo, hi, x, *ranks)
        return ranks

    def full(self) -> NDArray[np.bool_]:
        """Which of them are."""
        return self.rows.used >= self.most

    def clear(self, rows: Integers) -> None:
        """Empty these pools."""
        self.rows.used[rows] = 0

    def totals(self) -> Integers:
        """How many numbers each holds."""
        ends = np.concatenate([[0], np.cumsum(self.rows.columns[1])])
        return np.asarray(ends[self.rows.start + self.rows.used] - ends[self.rows.start])


def _alone(count: int) -> Ranks:
    """The rank of a first number, for those that do not join."""
    return Ranks(np.zeros(count, np.int64), np.ones(count, np.int64), np.ones(count, np.int64))
