"""The paper's nonconformity measure: nearest neighbour of the own label against nearest of another label."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import kernels
from exchangeable.protocols import Floats, Rank, Ranks

BLOCK = 256  # examples whose distances are filtered by one matrix product
LARGEST = 1e150  # beyond it a squared distance could overflow
TINY = 2.0**-120  # covers float32 underflow, a coordinate
FLOAT32_NORM = 1e37  # squared norms beyond it could overflow in float32


class NearestNeighbour:
    """1-nearest-neighbour ratio, equation (1) of the paper; the default for labelled examples.

    With the Euclidean distance, and all scores recomputed whenever an example arrives,

        alpha_i = min{|x_i - x_j| : y_j = y_i, j != i} / min{|x_i - x_j| : y_j != y_i} ,

    an empty minimum being infinite, ``0/0 = inf/inf = 1``, ``x/inf = 0``, ``inf/x = x/0 = inf``. A large score is a
    strange example: it lies nearer to another class than to its own.

    Scores are those of direct float64 distances, ``sqrt(((x_i - x_j) ** 2).sum())``, bit for bit as NumPy sums them; a
    single-precision matrix product only decides which of them need computing (see ``kernels/nearest.py``).
    One example costs O(n d), n examples O(n^2 d) at the speed of a matrix product; memory O(n d).

    Labels are any hashables equal to themselves, features finite numbers of magnitude at most 1e150.

    >>> measure = NearestNeighbour()
    >>> measure.extend([[0.0], [1.0], [5.0], [5.5]], ["a", "a", "b", "a"])
    Ranks(greater=array([0, 0, 0, 1]), equal=array([1, 2, 1, 1]), n=array([1, 2, 3, 4]))
    >>> measure.update([5.1], "b")
    Rank(greater=2, equal=1, n=5)

    Reference: Fedorova et al. (2012), section 4.1, equation (1).
    """

    def __init__(self) -> None:
        self.n = 0
        self._codes: dict[Hashable, int] = {}
        self._scale = 0.0  # power of two that brings the first distance near one; 0 until two examples differ
        self._rows = _Rows(0, 0)

    def update(self, x: ArrayLike, y: Hashable = None) -> Rank:
        """Take one example: O(n d).

        >>> NearestNeighbour().update([0.5, 1.0], "cat")
        Rank(greater=0, equal=1, n=1)
        """
        row = _numbers("x", x)
        if row.ndim != 1:
            raise ValueError(f"x must be one-dimensional, got {row.ndim} dimensions")
        ranks = self._take(row[np.newaxis], [y], "x", "y")
        return Rank(int(ranks.greater[0]), int(ranks.equal[0]), int(ranks.n[0]))

    def extend(self, X: ArrayLike, y: Iterable[Any] | None = None) -> Ranks:
        """Take many examples: the same numbers as one by one, at the speed of a matrix product."""
        rows = _numbers("X", X)
        if rows.ndim != 2:
            raise ValueError(f"X must be two-dimensional (examples x features), got {rows.ndim} dimensions")
        if y is None:
            raise ValueError("y must hold one label for each row of X, got None")
        labels = y.tolist() if isinstance(y, np.ndarray) else list(y)
        if len(labels) != len(rows):
            raise ValueError(f"y must hold one label for each row of X, got {len(labels)} labels for {len(rows)} rows")
        return self._take(rows, labels, "X", "y")

    def _take(self, rows: Floats, labels: list[Any], name_x: str, name_y: str) -> Ranks:
        self._check(rows, name_x)
        coded, codes = _encode(labels, self._codes, name_y)
        start, stop = self.n, self.n + len(rows)
        try:
            room = self._rows.with_room(stop, rows.shape[1])
            product = np.empty((min(BLOCK, len(rows)), stop), np.float32)
        except MemoryError:
            raise ValueError(f"{name_x} must fit in memory, got {stop} examples of {rows.shape[1]} features") from None
        self._rows, self._codes, self.n = room, codes, stop
        room.X[start:stop] = rows
        room.code[start:stop] = coded
        self._filter(start, stop)
        return self._rank(start, stop, product)

    def _check(self, rows: Floats, name: str) -> None:
        width = self._rows.X.shape[1]
        if rows.shape[1] == 0:
            raise ValueError(f"{name} must have at least one feature, got 0")
        if self.n and rows.shape[1] != width:
            raise ValueError(f"{name} must have {width} features like the examples before, got {rows.shape[1]}")
        for lo in range(0, len(rows), BLOCK):  # in blocks, to need no second copy of the data
            lawful = np.abs(rows[lo : lo + BLOCK]) <= LARGEST
            if not lawful.all():
                i, k = np.argwhere(~lawful)[0]
                raise ValueError(
                    f"{name} must hold finite numbers of magnitude at most {LARGEST:g},"
                    f" got {rows[lo + i, k]} at [{lo + i}, {k}]"
                )

    def _filter(self, start: int, stop: int) -> None:
        """Prepare the float32 copies and the lower bounds of their squared norms."""
        rows, d = self._rows, self._rows.X.shape[1]
        for lo in range(start, stop, BLOCK):
            part = slice(lo, min(lo + BLOCK, stop))
            centred = rows.X[part] - rows.X[0]
            if not self._scale and centred.any():
                self._scale = _scale(centred)
            centred *= self._scale
            norms = (centred * centred).sum(axis=1)
            centred[norms > FLOAT32_NORM] = 0.0
            rows.F[part] = centred
            squares = (rows.F[part].astype(np.float64) ** 2).sum(axis=1)
            squares -= (2 * d + 64) * 2.0**-24 * squares + (d + 8) * TINY
            squares -= np.abs(squares) * 2.0**-22
            rows.low[part] = np.where(norms > FLOAT32_NORM, -math.inf, squares)

    def _rank(self, start: int, stop: int, product: NDArray[np.float32]) -> Ranks:
        rows = self._rows
        greater, equal = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
        for lo in range(start, stop, BLOCK):
            hi = min(lo + BLOCK, stop)
            G = product[: hi - lo, :hi]
            np.matmul(rows.F[lo:hi], rows.F[:hi].T, out=G)
            done = slice(lo - start, hi - start)
            kernels.nearest.extend(lo, G, self._scale**2, *rows.arrays(), greater[done], equal[done])
        return Ranks(greater, equal, np.arange(start + 1, stop + 1))


class _Rows:
    """What is kept of each example, in arrays that grow by doubling."""

    def __init__(self, capacity: int, width: int) -> None:
        self.X = np.empty((capacity, width))
        self.F = np.empty((capacity, width), np.float32)
        self.code = np.empty(capacity, np.int32)
        self.same, self.other, self.alpha = (np.empty(capacity) for _ in range(3))
        self.low, self.ceil_same, self.ceil_other = (np.empty(capacity, np.float32) for _ in range(3))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """In the order in which the kernel takes them."""
        return self.X, self.code, self.same, self.other, self.alpha, self.low, self.ceil_same, self.ceil_other

    def with_room(self, n: int, width: int) -> _Rows:
        """Itself, or a copy with at least twice the room."""
        used = len(self.code)
        if n <= used:
            return self
        larger = _Rows(max(n, 2 * used), width)
        if used:
            for name, column in vars(self).items():
                getattr(larger, name)[:used] = column
        return larger


def _numbers(name: str, values: ArrayLike) -> Floats:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biuf" and not (array.dtype.kind == "O" and array.size):
            raise ValueError
        return np.ascontiguousarray(array, dtype=np.float64) if array.ndim else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be an array of numbers with rows of one length, got {_shown(values)}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _scale(centred: Floats) -> float:
    """The power of two that brings the first row unlike the very first example to a largest coordinate in [1, 2)."""
    largest = np.abs(centred).max(axis=1)
    return 2.0 ** -math.frexp(largest[np.flatnonzero(largest)[0]])[1]


def _encode(labels: list[Any], known: dict[Hashable, int], name: str) -> tuple[NDArray[np.int32], dict[Hashable, int]]:
    """Number the labels in order of appearance; the known numbers are copied, not changed."""
    codes, coded = known, np.empty(len(labels), np.int32)
    for i, label in enumerate(labels):
        try:
            code = codes.get(label)
            lawful = label is not None and bool(label == label)  # NaN is not equal to itself
        except (TypeError, ValueError):
            lawful = False
        if not lawful:
            raise ValueError(
                f"{name} must hold hashable labels equal to themselves, got {_shown(label)} at position {i}"
            )
        if code is None:
            codes = dict(codes) if codes is known else codes
            code = codes[label] = len(codes)
        coded[i] = code
    return coded, codes
