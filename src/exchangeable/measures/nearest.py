"""The paper's nonconformity measure: nearest neighbour of the own label against nearest of another label."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import kernels
from exchangeable.protocols import Floats, Integers, Rank, Ranks

BLOCK = 256  # examples whose distances are filtered by one matrix product
LARGEST = 1e150  # beyond it a squared distance could overflow
SAMPLE = 256  # examples that the filter's centre is the median of
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
    One example costs O(n d), n examples O(n^2 d) at the speed of a matrix product (less where nearest distances are
    below 1e-3 of the typical distance between examples, and float32 cannot tell them apart); memory O(n d).

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
        try:
            labels = list(y.tolist() if isinstance(y, np.ndarray) else y)
        except TypeError:
            raise ValueError(f"y must hold one label for each row of X, got {_shown(y)}") from None
        if len(labels) != len(rows):
            raise ValueError(f"y must hold one label for each row of X, got {len(labels)} labels for {len(rows)} rows")
        return self._take(rows, labels, "X", "y")

    def _take(self, rows: Floats, labels: list[Any], name_x: str, name_y: str) -> Ranks:
        self._check(rows, name_x)
        coded, codes = _encode(labels, self._codes, name_y)
        start, stop = self.n, self.n + len(rows)
        if start == stop:
            return Ranks(*(np.empty(0, np.int64) for _ in range(3)))
        try:
            room = self._rows.with_room(stop, rows.shape[1])
            product = np.empty((min(BLOCK, len(rows)), stop), np.float32)
        except MemoryError:
            raise ValueError(f"{name_x} must fit in memory, got {stop} examples of {rows.shape[1]} features") from None
        room.X[start:stop] = rows
        room.code[start:stop] = coded
        room.prepare(start, stop)
        greater, equal = room.absorb(start, stop, product)
        self._rows, self._codes, self.n = room, codes, stop
        return Ranks(greater, equal, np.arange(start + 1, stop + 1))

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


class _Rows:
    """What is kept of each example, in arrays that grow by doubling; and where the filter has its centre.

    The filter works on float32 copies of centred and scaled rows. Centre and scale are the median of some examples,
    taken anew whenever their number has doubled: they decide how many distances are computed, never their values.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.centred_at = 0
        self.scale = 1.0
        self.centre = np.zeros(width)
        self.X = np.empty((capacity, width))
        self.F = np.empty((capacity, width), np.float32)
        self.code = np.empty(capacity, np.int32)
        self.same, self.other, self.alpha = (np.empty(capacity) for _ in range(3))
        self.low, self.ceil_same, self.ceil_other = (np.empty(capacity, np.float32) for _ in range(3))

    def with_room(self, n: int, width: int) -> _Rows:
        """Itself, or a copy with at least twice the room."""
        used = len(self.code)
        if n <= used:
            return self
        larger = _Rows(max(n, 2 * used), width)
        if used:
            larger.centred_at, larger.scale, larger.centre = self.centred_at, self.scale, self.centre
            for name in ("X", "F", "code", "same", "other", "alpha", "low", "ceil_same", "ceil_other"):
                getattr(larger, name)[:used] = getattr(self, name)
        return larger

    def prepare(self, start: int, stop: int) -> None:
        """Make the float32 copies of the rows start .. stop - 1, of all rows if the centre moves."""
        if stop >= 2 * self.centred_at:
            self.centred_at = stop
            self.centre, self.scale = _centre(self.X[:: max(1, stop // SAMPLE)][: min(stop, SAMPLE)])
            self._copy(0, start)
            if start:
                kernels.nearest.refresh(start, *self._bounds())
        self._copy(start, stop)

    def _copy(self, start: int, stop: int) -> None:
        """Float32 copies, and lower bounds of their squared norms (see ``kernels/nearest.py``)."""
        slack, tiny = self._error()
        for lo in range(start, stop, BLOCK):
            part = slice(lo, min(lo + BLOCK, stop))
            centred = (self.X[part] - self.centre) * self.scale
            with np.errstate(over="ignore"):
                large = (centred * centred).sum(axis=1) > FLOAT32_NORM
            centred[large] = 0.0
            self.F[part] = centred
            squares = (self.F[part].astype(np.float64) ** 2).sum(axis=1)
            squares -= slack * squares + tiny
            squares -= np.abs(squares) * 2.0**-22
            self.low[part] = np.where(large, -math.inf, squares)

    def _error(self) -> tuple[float, float]:
        """Bounds of the filter's error: relative to the squared norms, and absolute."""
        d = self.X.shape[1]
        return (2 * d + 64) * 2.0**-24, (d + 8) * TINY

    def _bounds(self) -> tuple[Any, ...]:
        return self.scale**2, self.same, self.other, self.low, self.ceil_same, self.ceil_other

    def absorb(self, start: int, stop: int, product: NDArray[np.float32]) -> tuple[Integers, Integers]:
        """Let the rows start .. stop - 1 join one by one, and rank each: greater and equal."""
        greater, equal = np.empty(stop - start, np.int64), np.empty(stop - start, np.int64)
        for lo in range(start, stop, BLOCK):
            hi = min(lo + BLOCK, stop)
            G = product[: hi - lo, :hi]
            with np.errstate(all="ignore"):  # some BLAS raise flags from lanes that they do not use
                np.matmul(self.F[lo:hi], self.F[:hi].T, out=G)
            done = slice(lo - start, hi - start)
            arrays = (self.X, self.code, self.alpha, *self._bounds())
            highest = max(float(self.low[:hi].max()), 0.0)
            kernels.nearest.extend(lo, G, *self._error(), highest, *arrays, greater[done], equal[done])
        return greater, equal


def _centre(rows: Floats) -> tuple[Floats, float]:
    """The median of each feature, and the power of two that brings the median distance from it near one."""
    centre = np.median(rows, axis=0)
    distances = np.abs(rows - centre).max(axis=1)
    typical = np.median(distances[distances > 0.0]) if distances.any() else 1.0
    exponent = math.frexp(typical)[1]
    return centre, 2.0 ** -min(max(exponent, -400), 400)  # so that its square stays within float64


def _numbers(name: str, values: ArrayLike) -> Floats:
    """Admit an array of real numbers; text is not a number, and a masked value is none."""
    try:
        array = np.asarray(values)
        text = array.dtype.kind == "O" and any(isinstance(value, (str, bytes)) for value in array.flat)
        if text or array.dtype.kind not in "biufO" or np.ma.is_masked(values):
            raise ValueError
        return np.ascontiguousarray(array, dtype=np.float64) if array.ndim else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be an array of numbers with rows of one length, got {_shown(values)}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _encode(labels: list[Any], known: dict[Hashable, int], name: str) -> tuple[NDArray[np.int32], dict[Hashable, int]]:
    """Number the labels in order of appearance; the known numbers are copied, not changed."""
    codes, coded = known, np.empty(len(labels), np.int32)
    for i, label in enumerate(labels):
        try:
            code = codes.get(label)
            lawful = bool(label == label)  # NaN is not equal to itself
        except (TypeError, ValueError):
            lawful = False
        if label is None:
            raise ValueError(f"{name} must hold a label for each example, got None at position {i}")
        if not lawful:
            raise ValueError(
                f"{name} must hold hashable labels equal to themselves, got {_shown(label)} at position {i}"
            )
        if code is None:
            codes = dict(codes) if codes is known else codes
            code = codes[label] = len(codes)
        coded[i] = code
    return coded, codes
