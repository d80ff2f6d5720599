"""The ranks of `NearestNeighbour` for a table that is too big for one machine: found in tiles, anywhere, in any order.

The table is cut into *blocks* of consecutive examples. A *tile* lets every example of a block meet the earlier examples
of a block and finds where nearest distances fall; from all of them follow the ranks (``native/sweep.c``). Nothing
else is needed: the score of an example stands still while its nearest distances do.

Tiles are worked on in rounds, each of which joins neighbours to twice their length: first every block by itself, then
the two blocks of every pair, the two pairs of every four blocks, and so on. All that a block has met before is then
next to it in time, so that its nearest distances are known to the round as *bounds*, and only what falls below them
is reported: on exchangeable data O(1) distances an example and round, O(n log n) in all. The second of two parts comes
after all of the first, so that the falls of a round never meddle with those of another.

Work O(n^2 d) at the speed of a matrix product, and nothing but numbers in arrays: who runs the tiles does not matter.

>>> X, code = np.array([[0.0], [1.0], [5.0], [5.5]]), np.array([0, 0, 1, 0], np.int32)
>>> tiles = Tiles(4, size=2)
>>> for segments in plan(tiles.n, tiles.size):
...     bounds = tiles.bounds()
...     block = lambda b: Block(X[2 * b : 2 * b + 2], code[2 * b : 2 * b + 2])
...     tiles.settle([search(each, 2, block, lambda b: bounds[2 * b : 2 * b + 2]) for each in segments])
>>> tiles.ranks()
Ranks(greater=array([0, 0, 0, 1]), equal=array([1, 2, 1, 1]), n=array([1, 2, 3, 4]))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.measures.neighbour_store import BLOCK, Products, middle, multiply, sample, scaling
from exchangeable.protocols import Floats, Ranks
from exchangeable.validation import check_integer

MOST = 2**31 - 1  # examples: their numbers, and twice these, are written in 32 bits
LONGEST = 32  # tiles in a segment, so that not much is lost with a machine
LEAST = 2048  # rows in a block, so that the product of two outweighs what it takes to begin
MEMORY = 200_000_000  # bytes that a tile may take
FEWEST = 8  # blocks, where the table is large enough

Codes = NDArray[np.int32]
Places = NDArray[np.uint32]


class Block(NamedTuple):
    """Consecutive examples: features, and labels as numbers."""

    X: Floats
    code: Codes

    def encode(self) -> bytearray:
        """As bytes.

        >>> data = Block(np.array([[0.5, 1.5]]), np.array([7], np.int32)).encode()
        >>> Block.decode(data, width=2)
        Block(X=array([[0.5, 1.5]]), code=array([7], dtype=int32))
        """
        return bytearray().join((np.ascontiguousarray(self.X).data, self.code.data))

    @classmethod
    def decode(cls, data: bytearray, width: int) -> Self:
        """From bytes, without a copy."""
        rows = len(data) // (8 * width + 4)
        X = np.frombuffer(data, np.float64, rows * width).reshape(rows, width)
        return cls(X, np.frombuffer(data, np.int32, rows, 8 * rows * width))


class Segment(NamedTuple):
    """Some tiles: the examples of block ``rows`` meet those of the blocks ``first .. last - 1``, or of their own."""

    rows: int
    first: int
    last: int


class Falls(NamedTuple):
    """At the ``time`` of an example a nearest squared distance was found to be as low as ``distance``.

    Its place is ``2 j + side`` with j the number of the example whose it is, and side 0 for the own label, 1 for
    others. Where ``time`` is j itself, it is the distance with which j begins.
    """

    distance: Floats
    place: Places
    time: Places

    def encode(self) -> bytes:
        """As bytes.

        >>> falls = Falls(np.array([0.5]), np.array([2], np.uint32), np.array([1], np.uint32))
        >>> Falls.decode(falls.encode())
        Falls(distance=array([0.5]), place=array([2], dtype=uint32), time=array([1], dtype=uint32))
        """
        return b"".join(column.tobytes() for column in self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From bytes, without a copy."""
        m = len(data) // 16
        distance = np.frombuffer(data, np.float64, m)
        return cls(distance, np.frombuffer(data, np.uint32, m, 8 * m), np.frombuffer(data, np.uint32, m, 12 * m))


def joined(parts: Iterable[Falls]) -> Falls:
    """One after another."""
    columns = list(zip(*parts, strict=True))
    if not columns:
        return Falls(np.empty(0), np.empty(0, np.uint32), np.empty(0, np.uint32))
    return Falls(*(np.concatenate(column) for column in columns))


def _some(falls: Falls, which: NDArray[Any]) -> Falls:
    return Falls(falls.distance[which], falls.place[which], falls.time[which])


# ------------------------------------------------------------------ the plan


def rows_within(memory: int, width: int) -> int:
    """How many rows a block may have so that a tile takes at most so many bytes; at least 1.

    A tile holds two blocks in float64 and float32 (24 bytes a feature and row), a row of products for each of 256
    examples (1,024 bytes a column), and some 160 bytes a row for labels, bounds and falls.

    >>> rows_within(200_000_000, 256)
    27077
    """
    return max(1, (memory - 24 * BLOCK * width) // (24 * width + 4 * BLOCK + 160))


def block_size(n: int, width: int, cores: int) -> int:
    """Rows in a block: as many as memory admits, but a block for each core and 8 at least, unless they are small.

    With as many blocks as cores all but the first rounds have several tiles for each of them.

    >>> block_size(10_000_000, 256, cores=1600), block_size(20_000, 256, cores=2), block_size(500, 256, cores=2)
    (6250, 2500, 500)
    """
    wanted = max(LEAST, math.ceil(n / max(cores, FEWEST)))
    return max(1, min(n, wanted, rows_within(MEMORY, width)))


def plan(n: int, size: int, cores: int = 1) -> list[list[Segment]]:
    """The segments of all rounds for n examples in blocks of ``size``: four for each core, where there are so many.

    A round must be over before the next one begins; within it the order does not matter.

    >>> plan(5, size=2)
    [[Segment(rows=0, first=0, last=1), Segment(rows=1, first=1, last=2), Segment(rows=2, first=2, last=3)], \
[Segment(rows=1, first=0, last=1)], [Segment(rows=2, first=0, last=1), Segment(rows=2, first=1, last=2)]]
    """
    blocks = math.ceil(n / size)
    rounds = [[Segment(b, b, b + 1) for b in range(blocks)]]
    half = 1
    while half < blocks:
        rounds.append(list(_joining(blocks, half, cores)))
        half *= 2
    return rounds if n else []


def _joining(blocks: int, half: int, cores: int) -> Iterator[Segment]:
    """The round that joins the parts of ``half`` blocks each, two by two."""
    pairs = [(b, b // half * half) for b in range(blocks) if b // half % 2]
    length = min(max(1, len(pairs) * half // (4 * cores)), LONGEST, half)
    for b, stop in pairs:
        for first in range(stop - half, stop, length):
            yield Segment(b, first, min(first + length, stop))


# ------------------------------------------------------------------ the tiles


class _Side(NamedTuple):
    """A block, made ready for the filter."""

    X: Floats
    code: Codes
    low: Products
    F: Products

    @classmethod
    def of(cls, block: Block, centre: Floats, scale: float) -> Self:
        X = np.ascontiguousarray(block.X)
        F, low = np.empty(X.shape, np.float32), np.empty(len(X), np.float32)
        native.nearest_copy(X, centre, scale, F, low)
        return cls(X, block.code, low, F)


def search(segment: Segment, size: int, block: Callable[[int], Block], bounds: Callable[[int], Floats]) -> Falls:
    """The tiles of a segment: whatever falls below the bounds (rows x 2) of the examples' blocks.

    ``block`` and ``bounds`` give what belongs to the block of a number; the last block asked for may be asked again.

    Distances are those of `NearestNeighbour`, bit for bit: the filter's centre and scale, which here are taken from the
    blocks, decide how many are computed and never their values. The centre is that of the arriving examples: blocks
    that lie far from it have large norms, but as large distances too, and float32 tells these apart as well.
    """
    mine = block(segment.rows)
    some = sample(mine.X)
    centre = middle(some)
    scale = scaling(np.concatenate([some, sample(block(segment.first).X)]), centre)
    rows = _Side.of(mine, centre, scale)
    before = _fitting(bounds(segment.rows), rows)
    born = before.copy()
    found = []
    for b in range(segment.first, segment.last):
        columns = rows if b == segment.rows else _Side.of(block(b), centre, scale)
        near = np.array(_fitting(bounds(b), columns).T, order="C")
        found += [
            Falls(distance, place + np.uint32(2 * size * b), time + np.uint32(size * segment.rows))
            for distance, place, time in _tile(rows, born, columns, near, scale)
        ]
        del columns  # before the next ones come
    place = np.flatnonzero(born < before)
    time = (place // 2 + size * segment.rows).astype(np.uint32)
    found.append(Falls(born.ravel()[place], (place + 2 * size * segment.rows).astype(np.uint32), time))
    return joined(found)


def _fitting(bounds: Floats, side: _Side) -> Floats:
    if bounds.shape != (len(side.X), 2):
        raise ValueError(f"bounds must have the shape {(len(side.X), 2)}, as their block has, got {bounds.shape}")
    return bounds


def _tile(rows: _Side, born: Floats, columns: _Side, near: Floats, scale: float) -> Iterator[Falls]:
    """The falls of the columns, by places and times within the blocks.

    ``born`` (rows x 2) and ``near`` (2 x columns) are brought up to date.
    """
    within, m = columns is rows, len(columns.X)
    ceil = np.empty((2, m), np.float32)
    native.nearest_refresh(m, scale, columns.low, near[:, :, np.newaxis], ceil, False)
    buffer = np.empty((min(BLOCK, len(rows.X)), m), np.float32)
    found = np.empty(m + BLOCK, np.uint32), np.empty(m + BLOCK, np.uint32), np.empty(m + BLOCK)
    for lo in range(0, len(rows.X), BLOCK):
        hi = min(lo + BLOCK, len(rows.X))
        seen = hi if within else m
        G = multiply(rows.F[lo:hi], columns.F[:seen], buffer[: hi - lo, :seen])
        while lo < hi:
            met = (*rows[:3], born, *columns[:3], near, ceil)
            done, used = native.nearest_tile(lo, G, scale, *met, within, *found)
            yield Falls(found[2][:used].copy(), found[0][:used].copy(), found[1][:used].copy())
            lo += done
            G = G[done:]


# ------------------------------------------------------------------ all together


class Tiles:
    """What the tiles have found so far of n examples in blocks of ``size``: births, falls and nearest distances.

    Memory 32 bytes an example and 16 a fall; on exchangeable data two or three falls an example are true, and a round
    brings about two more that are not. To rank them takes some 100 bytes for each example and fall.
    """

    def __init__(self, n: int, size: int) -> None:
        self.n: int = check_integer("n", n, 0, MOST)
        self.size: int = check_integer("size", size, 1, MOST)
        self.round: int = 0
        self._born, self._near = np.full((2, self.n, 2), math.inf)
        self._falls = joined([])

    def bounds(self) -> Floats:
        """Of the present round: what a nearest distance must be below in order to matter, n x 2 by example and side.

        For an example of a first part this is what it knows of its part, for one of a second what it is born with.
        """
        half = 2 ** max(self.round - 1, 0)
        second = np.arange(self.n) // self.size // half % 2 == 1
        return np.where(second[:, np.newaxis], self._born, self._near)

    def settle(self, found: Iterable[Falls]) -> None:
        """Take what all segments of the present round have found, in any order: O(m log m)."""
        distance, place, time = joined(found)
        order = np.argsort(time, kind="stable")
        true = np.empty(len(order), np.bool_)
        born = self._born.reshape(-1)
        native.sweep_gather(order, place, time, distance, born, self._near.reshape(-1), true)
        falls = joined([self._falls, _some(Falls(distance, place, time), true)])
        self._falls = _some(falls, falls.distance < born[falls.place])
        self.round += 1

    def ranks(self) -> Ranks:
        """The ranks of all examples, after the last round: O(m log m) for m births and falls."""
        born, falls = self._born.reshape(-1), self._falls
        order = np.argsort(falls.time, kind="stable")
        distance, place, time = _some(falls, order)
        first, later = np.empty(self.n), np.empty(len(place))
        native.sweep_scores(born.copy(), place, distance, first, later)
        levels, level = np.unique(np.concatenate([first, later]), return_inverse=True)
        level += 1
        counts = np.empty((3, self.n), np.int64)
        native.sweep_ranks(len(levels), level[: self.n], level[self.n :], place, time, counts)
        return Ranks(*counts)
