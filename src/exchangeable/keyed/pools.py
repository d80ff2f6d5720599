"""The pools of many streams: each new number is ranked among those of its stream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed.ragged import Ragged
from exchangeable.protocols import Floats, Integers, Ranks


class Bins:
    """Pools for `Frozen`: the count of each bin. O(bins) time per event, and O(bins) memory per stream.

    >>> Bins(np.zeros((1, 4), np.int64)).rank(np.array([0]), np.array([0]), np.array([3]), np.array([2.0, 3.0, 2.0]))
    Ranks(greater=array([0, 0, 1]), equal=array([1, 1, 2]), n=array([1, 2, 3]))
    """

    def __init__(self, counts: Integers) -> None:
        self.counts = counts

    def rank(self, before: Integers, lo: Integers, hi: Integers, x: Floats) -> Ranks:
        """Add ``x[lo[t]:hi[t]]`` to pool t, which holds ``before[t]`` numbers, and rank each of them."""
        ranks = _first_ranks(len(x))
        native.keyed_rank_bins(self.counts, before, lo, hi, x, *ranks)
        return ranks

    def full(self) -> NDArray[np.bool_]:
        """Return which pools are full: none."""
        return np.zeros(len(self.counts), np.bool_)

    def clear(self, rows: Integers) -> None:
        """Empty these pools."""
        self.counts[rows] = 0

    def totals(self) -> Integers:
        """Return how many numbers each pool holds."""
        return np.asarray(self.counts.sum(axis=1))


class Scores:
    """Pools for `Value`: the m distinct numbers in order, with their counts. O(m) time per event, and O(m) memory.

    A pool with ``most`` distinct numbers is full and accepts no more.
    """

    def __init__(self, most: int, rows: Ragged) -> None:
        self.most = most
        self.rows = rows

    def rank(self, before: Integers, lo: Integers, hi: Integers, x: Floats) -> Ranks:
        """Add ``x[lo[t]:hi[t]]`` to pool t until it is full, and rank them; ``hi`` becomes the end of those added."""
        start, used, (score, count) = self.rows
        ranks = _first_ranks(len(x))
        native.keyed_rank_scores(score, count, start, used, self.most, before, lo, hi, x, *ranks)
        return ranks

    def full(self) -> NDArray[np.bool_]:
        """Return which pools are full."""
        return self.rows.used >= self.most

    def clear(self, rows: Integers) -> None:
        """Empty these pools."""
        self.rows.used[rows] = 0

    def totals(self) -> Integers:
        """Return how many numbers each pool holds."""
        ends = np.concatenate([[0], np.cumsum(self.rows.columns[1])])
        return np.asarray(ends[self.rows.start + self.rows.used] - ends[self.rows.start])


def _first_ranks(count: int) -> Ranks:
    """Return the rank of a first number for all, to be overwritten."""
    return Ranks(np.zeros(count, np.int64), np.ones(count, np.int64), np.ones(count, np.int64))
