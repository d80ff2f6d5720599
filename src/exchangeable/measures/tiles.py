"""The ranks of `NearestNeighbour` for a table that is too big for one machine, computed in tiles.

The table is cut into *blocks* of consecutive examples. A *tile* compares every example of a block with the earlier
examples of a block and finds where nearest distances fall. The ranks follow from these falls (``native/sweep.c``),
because the score of an example changes only when one of its nearest distances does.

Tiles are processed in rounds. The first round compares every block with itself, the next one the two blocks of every
pair, then the two pairs of every four blocks, and so on. In each round the nearest distances so far serve as *bounds*,
and only what falls below them is reported: on exchangeable data O(1) distances per example and round, O(n log n) in
total. The second of two parts comes after all of the first, so the falls of one round never interfere with those of
another.

Work is O(n^2 d) at the speed of a matrix product. Within a round, tiles may run anywhere and in any order.

>>> X, code = np.array([[0.0], [1.0], [5.0], [5.5]]), np.array([0, 0, 1, 0], np.int32)
>>> tiles = Tiles(4, size=2)
>>> for segments in plan(tiles.n, tiles.size):
...     bounds = tiles.bounds()
...     block = lambda b: Block(X[2 * b : 2 * b + 2], code[2 * b : 2 * b + 2])
...     tiles.end_round([search(each, 2, block, lambda b: bounds[2 * b : 2 * b + 2]) for each in segments])
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
from exchangeable.measures.neighbour_store import (
    BLOCK,
    Products,
    filter_centre,
    filter_scale,
    inner_products,
    sample_rows,
)
from exchangeable.protocols import Floats, Ranks
from exchangeable.validation import check_integer

MAX_EXAMPLES = 2**31 - 1  # twice the number of an example must fit in 32 bits
MAX_SEGMENT = 32  # tiles, so that little work is lost with a machine
MIN_ROWS = 2048  # of a block, so that the product of two outweighs the overhead
MEMORY = 200_000_000  # bytes that a tile may use
MIN_BLOCKS = 8  # if the table is large enough

Codes = NDArray[np.int32]
Uint32s = NDArray[np.uint32]


class Block(NamedTuple):
    """Consecutive examples: their features, and their labels as numbers."""

    X: Floats
    code: Codes

    def encode(self) -> bytearray:
        """Return the data as bytes.

        >>> data = Block(np.array([[0.5, 1.5]]), np.array([7], np.int32)).encode()
        >>> Block.decode(data, width=2)
        Block(X=array([[0.5, 1.5]]), code=array([7], dtype=int32))
        """
        return bytearray().join((np.ascontiguousarray(self.X).data, self.code.data))

    @classmethod
    def decode(cls, data: bytearray, width: int) -> Self:
        """Read the data from bytes, without a copy."""
        rows = len(data) // (8 * width + 4)
        X = np.frombuffer(data, np.float64, rows * width).reshape(rows, width)
        return cls(X, np.frombuffer(data, np.int32, rows, 8 * rows * width))


class Segment(NamedTuple):
    """Some tiles: block ``rows`` is compared with the blocks ``first`` to ``last - 1``, or with itself."""

    rows: int
    first: int
    last: int


class Falls(NamedTuple):
    """Nearest squared distances that fell to ``distance`` when example number ``time`` arrived.

    ``slot`` is ``2 j + side``, where j is the example that the distance belongs to, and side is 0 for its own label
    and 1 for others. If ``time`` is j itself, this is the first distance of j.
    """

    distance: Floats
    slot: Uint32s
    time: Uint32s

    def encode(self) -> bytes:
        """Return the data as bytes.

        >>> falls = Falls(np.array([0.5]), np.array([2], np.uint32), np.array([1], np.uint32))
        >>> Falls.decode(falls.encode())
        Falls(distance=array([0.5]), slot=array([2], dtype=uint32), time=array([1], dtype=uint32))
        """
        return b"".join(column.tobytes() for column in self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the data from bytes, without a copy."""
        m = len(data) // 16
        distance = np.frombuffer(data, np.float64, m)
        return cls(distance, np.frombuffer(data, np.uint32, m, 8 * m), np.frombuffer(data, np.uint32, m, 12 * m))


def join(parts: Iterable[Falls]) -> Falls:
    """Concatenate falls."""
    columns = list(zip(*parts, strict=True))
    if not columns:
        return Falls(np.empty(0), np.empty(0, np.uint32), np.empty(0, np.uint32))
    return Falls(*(np.concatenate(column) for column in columns))


def _select(falls: Falls, which: NDArray[Any]) -> Falls:
    return Falls(falls.distance[which], falls.slot[which], falls.time[which])


# ------------------------------------------------------------------ the plan


def rows_within(memory: int, width: int) -> int:
    """Return how many rows a block may have so that a tile fits in this many bytes; at least 1.

    A tile holds two blocks in float64 and float32 (24 bytes per feature and row), a row of products for each of 256
    examples (1,024 bytes per column), and some 160 bytes per row for labels, bounds and falls.

    >>> rows_within(200_000_000, 256)
    27077
    """
    return max(1, (memory - 24 * BLOCK * width) // (24 * width + 4 * BLOCK + 160))


def block_size(n: int, width: int, cores: int) -> int:
    """Return the number of rows in a block: as many as fit in memory, with a block per core and at least 8 if possible.

    With a block for each core, all rounds but the first have several tiles for each core.

    >>> block_size(10_000_000, 256, cores=1600), block_size(20_000, 256, cores=2), block_size(500, 256, cores=2)
    (6250, 2500, 500)
    """
    wanted = max(MIN_ROWS, math.ceil(n / max(cores, MIN_BLOCKS)))
    return max(1, min(n, wanted, rows_within(MEMORY, width)))


def plan(n: int, size: int, cores: int = 1) -> list[list[Segment]]:
    """Return the segments of each round for n examples in blocks of ``size``: up to four for each core.

    A round must end before the next one starts; within it the order does not matter.

    >>> plan(5, size=2)
    [[Segment(rows=0, first=0, last=1), Segment(rows=1, first=1, last=2), Segment(rows=2, first=2, last=3)], \
[Segment(rows=1, first=0, last=1)], [Segment(rows=2, first=0, last=1), Segment(rows=2, first=1, last=2)]]
    """
    blocks = math.ceil(n / size)
    rounds = [[Segment(b, b, b + 1) for b in range(blocks)]]
    half = 1
    while half < blocks:
        rounds.append(list(_round(blocks, half, cores)))
        half *= 2
    return rounds if n else []


def _round(blocks: int, half: int, cores: int) -> Iterator[Segment]:
    """Yield the segments of the round that compares neighbouring parts of ``half`` blocks each."""
    pairs = [(b, b // half * half) for b in range(blocks) if b // half % 2]
    length = min(max(1, len(pairs) * half // (4 * cores)), MAX_SEGMENT, half)
    for b, stop in pairs:
        for first in range(stop - half, stop, length):
            yield Segment(b, first, min(first + length, stop))


# ------------------------------------------------------------------ the tiles


class _Side(NamedTuple):
    """A block with its copies for the filter."""

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
    """Compute the tiles of a segment: return all nearest distances that fall below the bounds of the blocks.

    ``block`` and ``bounds`` return the data and the bounds (rows x 2) of a block number; they may be called again with
    the last number.

    Distances are those of `NearestNeighbour`, bit for bit. The centre and scale of the filter, which here come from the
    blocks, affect how many distances are computed, never their values. The centre is that of the arriving examples:
    blocks far from it have large norms, but equally large distances, which float32 resolves as well.
    """
    arriving = block(segment.rows)
    sample = sample_rows(arriving.X)
    centre = filter_centre(sample)
    scale = filter_scale(np.concatenate([sample, sample_rows(block(segment.first).X)]), centre)
    rows = _Side.of(arriving, centre, scale)
    before = _check_bounds(bounds(segment.rows), rows)
    initial = before.copy()
    falls = []
    for b in range(segment.first, segment.last):
        columns = rows if b == segment.rows else _Side.of(block(b), centre, scale)
        near = np.array(_check_bounds(bounds(b), columns).T, order="C")
        falls += [
            Falls(distance, slot + np.uint32(2 * size * b), time + np.uint32(size * segment.rows))
            for distance, slot, time in _tile(rows, initial, columns, near, scale)
        ]
        del columns  # frees memory before the next block is loaded
    slot = np.flatnonzero(initial < before)
    time = (slot // 2 + size * segment.rows).astype(np.uint32)
    falls.append(Falls(initial.ravel()[slot], (slot + 2 * size * segment.rows).astype(np.uint32), time))
    return join(falls)


def _check_bounds(bounds: Floats, side: _Side) -> Floats:
    if bounds.shape != (len(side.X), 2):
        raise ValueError(f"bounds must have the shape {(len(side.X), 2)}, got {bounds.shape}")
    return bounds


def _tile(rows: _Side, initial: Floats, columns: _Side, near: Floats, scale: float) -> Iterator[Falls]:
    """Yield the falls of the columns, with slots and times relative to the blocks.

    ``initial`` (rows x 2) and ``near`` (2 x columns) are updated.
    """
    within, m = columns is rows, len(columns.X)
    ceil = np.empty((2, m), np.float32)
    native.nearest_refresh(m, scale, columns.low, near[:, :, np.newaxis], ceil, False)
    buffer = np.empty((min(BLOCK, len(rows.X)), m), np.float32)
    buffers = np.empty(m + BLOCK, np.uint32), np.empty(m + BLOCK, np.uint32), np.empty(m + BLOCK)
    for lo in range(0, len(rows.X), BLOCK):
        hi = min(lo + BLOCK, len(rows.X))
        seen = hi if within else m
        G = inner_products(rows.F[lo:hi], columns.F[:seen], buffer[: hi - lo, :seen])
        while lo < hi:
            state = (*rows[:3], initial, *columns[:3], near, ceil)
            done, used = native.nearest_tile(lo, G, scale, *state, within, *buffers)
            yield Falls(buffers[2][:used].copy(), buffers[0][:used].copy(), buffers[1][:used].copy())
            lo += done
            G = G[done:]


# ------------------------------------------------------------------ the ranks


class Tiles:
    """Collects the results of tiles for n examples in blocks of ``size``: first distances, falls, nearest distances.

    Memory is 32 bytes per example and 16 per fall. On exchangeable data there are two or three true falls per example,
    and each round adds about two false ones. Ranking takes some 100 bytes per example and fall.
    """

    def __init__(self, n: int, size: int) -> None:
        self.n: int = check_integer("n", n, 0, MAX_EXAMPLES)
        self.size: int = check_integer("size", size, 1, MAX_EXAMPLES)
        self.round: int = 0
        self._initial, self._near = np.full((2, self.n, 2), math.inf)
        self._falls = join([])

    def bounds(self) -> Floats:
        """Return the bounds of the current round (n x 2): only nearest distances below them matter.

        For an example of a first part this is its nearest distance so far, for one of a second its first distance.
        """
        half = 2 ** max(self.round - 1, 0)
        second = np.arange(self.n) // self.size // half % 2 == 1
        return np.where(second[:, np.newaxis], self._initial, self._near)

    def end_round(self, results: Iterable[Falls]) -> None:
        """End a round with the results of all its segments, in any order: O(m log m)."""
        distance, slot, time = join(results)
        order = np.argsort(time, kind="stable")
        true = np.empty(len(order), np.bool_)
        initial = self._initial.reshape(-1)
        native.sweep_gather(order, slot, time, distance, initial, self._near.reshape(-1), true)
        falls = join([self._falls, _select(Falls(distance, slot, time), true)])
        self._falls = _select(falls, falls.distance < initial[falls.slot])
        self.round += 1

    def ranks(self) -> Ranks:
        """Return the ranks of all examples after the last round: O(m log m) for m first distances and falls."""
        initial, falls = self._initial.reshape(-1), self._falls
        order = np.argsort(falls.time, kind="stable")
        distance, slot, time = _select(falls, order)
        first, later = np.empty(self.n), np.empty(len(slot))
        native.sweep_scores(initial.copy(), slot, distance, first, later)
        levels, level = np.unique(np.concatenate([first, later]), return_inverse=True)
        level += 1
        counts = np.empty((3, self.n), np.int64)
        native.sweep_ranks(len(levels), level[: self.n], level[self.n :], slot, time, counts)
        return Ranks(*counts)
