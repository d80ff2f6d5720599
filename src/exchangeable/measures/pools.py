"""A growing pool of scores, and the base class of measures whose scores are fixed in advance."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats, Integers, Rank, Ranks
from exchangeable.validation import call_repr, check_stored

MAX_COUNT = 2**53  # floats count exactly up to here

State = tuple[NDArray[np.int64], NDArray[np.int32], Floats, NDArray[np.int64], NDArray[np.int32]]


class Pool:
    """The distinct scores so far in order, with their counts; ranks each new score among all of them.

    One score costs O(log m) time, and memory is O(m), where m is the number of distinct scores (at most
    ``max_distinct``): see ``native/pools.c``.

    >>> Pool().add(np.array([3.0, 1.0, 3.0, 2.0]))
    Ranks(greater=array([0, 1, 0, 2]), equal=array([1, 1, 2, 1]), n=array([1, 2, 3, 4]))
    """

    def __init__(self, max_distinct: int | None = None) -> None:
        self.max_distinct = max_distinct
        self._state = _empty(1)

    @property
    def n(self) -> int:
        """The number of scores so far."""
        return int(self._state[0][native.POOL_TOTAL])

    @property
    def distinct(self) -> int:
        """The number of distinct scores so far."""
        return int(self._state[0][native.POOL_DISTINCT])

    def reserve(self, more: int) -> None:
        """Make room for this many more scores, at least doubling the room if there is not enough."""
        distinct = self.distinct + more if self.max_distinct is None else min(self.distinct + more, self.max_distinct)
        nodes, room = native.pool_nodes(distinct), len(self._state[1])
        if nodes <= room:
            return
        try:
            larger = _empty(max(nodes, 2 * room))
        except MemoryError:
            raise ValueError(f"X must fit in memory, got {self.n + more} examples") from None
        self._state = _copy_into(self._state, larger)

    def contents(self) -> tuple[Floats, Integers]:
        """Return the distinct scores in increasing order, and their counts: O(m).

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
    def from_contents(cls, scores: Any, counts: Any, *, max_distinct: int | None = None) -> Pool:
        """Return a pool with these ``contents``; it ranks like the original. O(m).

        >>> Pool.from_contents(np.array([1.0, 3.0]), np.array([1, 2])).add_one(2.0)
        Rank(greater=2, equal=1, n=4)
        """
        pool = cls(max_distinct)
        _check_contents(scores, counts, max_distinct)
        pool._state = _build_tree(scores, counts)
        return pool

    def add_one(self, score: float) -> Rank:
        """Add one score and return its rank."""
        rank = native.pool_add(score, self.max_distinct or MAX_COUNT, *self._state)
        if not rank[2]:  # no room
            self.reserve(1)
            rank = native.pool_add(score, self.max_distinct or MAX_COUNT, *self._state)
        return Rank(*rank)

    def add(self, scores: Floats) -> Ranks:
        """Add the scores one by one and return the rank of each."""
        self.reserve(len(scores))
        n = np.arange(self.n + 1, self.n + 1 + len(scores))
        ranks = Ranks(np.empty(len(scores), np.int64), np.empty(len(scores), np.int64), n)
        native.pool_extend(np.ascontiguousarray(scores), *self._state, ranks.greater, ranks.equal)
        return ranks


def _empty(nodes: int) -> State:
    """Return an empty pool with room for this many nodes: head; sizes, scores, counts and children of the nodes."""
    head, shape = np.array([0, 1, 0, 0, 0]), (nodes, native.POOL_WIDTH)
    state = head, np.zeros(nodes, np.int32), np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int32)
    for array in state[2:]:
        array.fill(0)  # np.zeros would get small memory pages, in which finding a node is slow
    return state


def _copy_into(state: State, larger: State) -> State:
    """Copy a state into a larger one, and return that."""
    used = state[0][native.POOL_NODES]
    larger[0][:] = state[0]
    larger[1][:used], larger[2][:used], larger[3][:used], larger[4][:used] = (array[:used] for array in state[1:])
    return larger


def _used(size: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which entries of nodes of these sizes are in use."""
    return np.arange(native.POOL_WIDTH) < size[:, np.newaxis]


def _check_contents(scores: Any, counts: Any, max_distinct: int | None) -> None:
    check_stored("scores", scores, np.float64, None)
    check_stored("counts", counts, np.int64, len(scores))
    if not (np.isfinite(scores).all() and (scores[:-1] < scores[1:]).all()):
        raise ValueError("scores must be finite numbers in increasing order")
    if max_distinct is not None and not ((scores >= 0) & (scores < max_distinct) & (scores == np.floor(scores))).all():
        raise ValueError(f"scores must be numbers of bins, 0 to {max_distinct - 1}")  # the tree has no room for others
    if not ((counts >= 1) & (counts <= MAX_COUNT)).all() or counts.sum(dtype=np.float64) > MAX_COUNT:
        raise ValueError(f"counts must be positive integers with a sum of at most {MAX_COUNT}")


def _build_tree(scores: Floats, counts: Integers) -> State:
    """Build the tree level by level, from the leaves up; all nodes but the root are at least half full."""
    levels = [_node_sizes(len(scores))]
    while len(levels[-1]) > 1:
        levels.append(_node_sizes(len(levels[-1])))
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


def _node_sizes(entries: int) -> Integers:
    """Return the sizes of nodes that share the entries evenly: one, or enough that all are at most 3/4 full."""
    width = native.POOL_WIDTH
    nodes = 1 if entries <= width else -(-4 * entries // (3 * width))
    return np.diff(np.arange(nodes + 1) * entries // nodes)


class Scored(ABC):
    """A measure whose score is a fixed function of the example, ranked among all scores so far.

    A subclass defines the scores, and passes the largest number of distinct ones, if that is limited.
    """

    def __init__(self, max_distinct: int | None = None) -> None:
        self._pool = Pool(max_distinct)

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def n(self) -> int:
        """The number of examples so far."""
        return self._pool.n

    @abstractmethod
    def scores(self, X: Any, y: Any = None) -> Floats:
        """Return the scores of many examples; nothing is added."""

    @abstractmethod
    def one_score(self, x: Any, y: Any = None) -> float:
        """Return the score of one example; it is not added."""

    def pool(self) -> Pool:
        """Return a new pool for scores of this measure."""
        return Pool(self._pool.max_distinct)

    def contents(self) -> tuple[Floats, Integers]:
        """Return the distinct scores so far in increasing order, and their counts."""
        return self._pool.contents()

    def with_contents(self, scores: Floats, counts: Integers) -> Self:
        """Return a copy that has seen these distinct scores this many times, and nothing else."""
        twin = copy.copy(self)
        twin._pool = Pool.from_contents(scores, counts, max_distinct=self._pool.max_distinct)
        return twin

    def update(self, x: Any, y: Any = None) -> Rank:
        """Add one example and return its rank."""
        return self._pool.add_one(self.one_score(x, y))

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Add many examples: the same ranks as one by one."""
        return self._pool.add(self.scores(X, y))
