"""What measures with scores fixed in advance have in common: a pool of scores that grows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers, Rank, Ranks
from exchangeable.validation import call_repr, check_stored

MOST = 2**53  # scores of a pool that was stored: so far floats count exactly


State = tuple[NDArray[np.int64], NDArray[np.int32], Floats, NDArray[np.int64], NDArray[np.int32]]


class Pool:
    """Counts of the distinct scores so far, in order; finds the rank of each new one among them all.

    One score costs O(log m) and memory is O(m), with m the number of distinct scores, at most ``most``: see
    ``native/pools.c``.

    >>> Pool().add(np.array([3.0, 1.0, 3.0, 2.0]))
    Ranks(greater=array([0, 1, 0, 2]), equal=array([1, 1, 2, 1]), n=array([1, 2, 3, 4]))
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self._state = _empty(1)

    @property
    def n(self) -> int:
        """How many scores it has seen."""
        return int(self._state[0][native.POOL_TOTAL])

    @property
    def distinct(self) -> int:
        """How many of them differ."""
        return int(self._state[0][native.POOL_DISTINCT])

    def reserve(self, more: int) -> None:
        """Make room for so many more scores, at least twice the room if there is not enough; changes no rank."""
        distinct = self.distinct + more if self.most is None else min(self.distinct + more, self.most)
        nodes, room = native.pool_nodes(distinct), len(self._state[1])
        if nodes <= room:
            return
        try:
            larger = _empty(max(nodes, 2 * room))
        except MemoryError:
            raise ValueError(f"X must fit in memory, got {self.n + more} examples") from None
        self._state = _moved(self._state, larger)

    def contents(self) -> tuple[Floats, Integers]:
        """The distinct scores in increasing order, and how often each was seen: O(m).

        >>> pool = Pool()
        >>> _ = pool.add(np.array([3.0, 1.0, 3.0]))
        >>> pool.contents()
        (array([1., 3.]), array([1, 2]))
        """
        head, size, score, count, child = self._state
        nodes: NDArray[Any] = head[native.POOL_ROOT : native.POOL_ROOT + 1]
        for _ in range(head[native.POOL_HEIGHT]):
            nodes = child[nodes][_used(size[nodes])]
        used = _used(size[nodes])
        return score[nodes][used], count[nodes][used]

    @classmethod
    def holding(cls, scores: Any, counts: Any, *, most: int | None = None) -> Pool:
        """A pool with such ``contents``: O(m). It ranks as the other would, whatever the shape of its tree.

        >>> Pool.holding(np.array([1.0, 3.0]), np.array([1, 2])).add_one(2.0)
        Rank(greater=2, equal=1, n=4)
        """
        pool = cls(most)
        _check_contents(scores, counts, most)
        pool._state = _planted(scores, counts)
        return pool

    def add_one(self, score: float) -> Rank:
        """Let one score join, and rank it."""
        rank = native.pool_add(score, self.most or MOST, *self._state)
        if not rank[2]:  # no room
            self.reserve(1)
            rank = native.pool_add(score, self.most or MOST, *self._state)
        return Rank(*rank)

    def add(self, scores: Floats) -> Ranks:
        """Let the scores join one by one, and rank each."""
        self.reserve(len(scores))
        n = np.arange(self.n + 1, self.n + 1 + len(scores))
        ranks = Ranks(np.empty(len(scores), np.int64), np.empty(len(scores), np.int64), n)
        native.pool_extend(np.ascontiguousarray(scores), *self._state, ranks.greater, ranks.equal)
        return ranks


def _empty(nodes: int) -> State:
    """An empty pool with room for this many nodes: head, and the size, scores, counts and children of each node."""
    head, shape = np.array([0, 1, 0, 0, 0]), (nodes, native.POOL_WIDTH)
    state = head, np.zeros(nodes, np.int32), np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int32)
    for array in state[2:]:
        array.fill(0)  # np.zeros would get small pages, in which finding a node is slow
    return state


def _moved(state: State, larger: State) -> State:
    """Copy everything from a state into a larger one, which is returned."""
    used = state[0][native.POOL_NODES]
    larger[0][:] = state[0]
    larger[1][:used], larger[2][:used], larger[3][:used], larger[4][:used] = (array[:used] for array in state[1:])
    return larger


def _used(size: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which entries of nodes of these sizes are in use."""
    return np.arange(native.POOL_WIDTH) < size[:, np.newaxis]


def _check_contents(scores: Any, counts: Any, most: int | None) -> None:
    check_stored("scores", scores, np.float64, None)
    check_stored("counts", counts, np.int64, len(scores))
    if not (np.isfinite(scores).all() and (scores[:-1] < scores[1:]).all()):
        raise ValueError("scores must be finite numbers in increasing order, got others")
    if most is not None and not ((scores >= 0) & (scores < most) & (scores == np.floor(scores))).all():
        raise ValueError(f"scores must be numbers of bins, 0 to {most - 1}, got others")  # there is room for no others
    if not ((counts >= 1) & (counts <= MOST)).all() or counts.sum(dtype=np.float64) > MOST:
        raise ValueError(f"counts must be integers from 1 on, {MOST} in all at most, got others")


def _planted(scores: Floats, counts: Integers) -> State:
    """A tree that holds these, level by level from the leaves; nodes but the root are at least half full."""
    levels = [_spread(len(scores))]
    while len(levels[-1]) > 1:
        levels.append(_spread(len(levels[-1])))
    state = _empty(sum(map(len, levels)))
    head, first, child = state[0], 0, np.zeros(len(scores), np.int32)
    head[:] = len(state[1]) - 1, len(state[1]), len(levels) - 1, len(scores), counts.sum()
    for sizes in levels:
        ends = np.cumsum(sizes)
        starts, nodes = ends - sizes, first + np.arange(len(sizes))
        at = np.repeat(nodes, sizes), np.arange(len(scores)) - np.repeat(starts, sizes)
        state[1][nodes] = sizes
        state[2][at], state[3][at], state[4][at] = scores, counts, child
        first += len(sizes)
        if len(sizes) > 1:
            scores, counts, child = scores[ends - 1], np.add.reduceat(counts, starts), nodes.astype(np.int32)
    return state


def _spread(entries: int) -> Integers:
    """Sizes of nodes that share so many entries evenly: one node, or as many as are three quarters full at most."""
    width = native.POOL_WIDTH
    nodes = 1 if entries <= width else -(-4 * entries // (3 * width))
    return np.diff(np.arange(nodes + 1) * entries // nodes)


class Scored(ABC):
    """A measure whose score is a fixed function of the example; its rank is among all scores so far.

    A subclass says what the scores are, and how many distinct ones there can be.
    """

    def __init__(self, most: int | None = None) -> None:
        self._pool = Pool(most)

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def n(self) -> int:
        """How many examples it has seen."""
        return self._pool.n

    @abstractmethod
    def scores(self, X: Any, y: Any = None) -> Floats:
        """The scores of many examples; changes nothing."""

    @abstractmethod
    def one_score(self, x: Any, y: Any = None) -> float:
        """The score of one example; changes nothing."""

    def pool(self) -> Pool:
        """A new pool for its scores."""
        return Pool(self._pool.most)

    def update(self, x: Any, y: Any = None) -> Rank:
        """Take one example."""
        return self._pool.add_one(self.one_score(x, y))

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Take many examples: the same numbers as one by one."""
        return self._pool.add(self.scores(X, y))
