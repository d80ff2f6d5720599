"""Storage for the nearest-neighbour measures: the examples, their neighbours, and the data of the filter."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.protocols import Floats
from exchangeable.validation import check_distinct_labels, check_finite, check_integer, check_stored, format_value

BLOCK = 256  # examples per matrix product of the filter
SAMPLE = 256  # examples whose median is the centre of the filter

Products = NDArray[np.float32]


class NeighbourStore:
    """The examples and their neighbours, in arrays that grow by doubling, and the centre of the filter.

    ``near`` (sides x n x k) holds the sorted squared distances of ``native/neighbours.c``, and ``tags`` the labels of
    the neighbours if these are used. ``ceil`` (sides x n) holds the bounds of the filter, and ``alpha`` the scores.
    A label is stored as a number: itself, or its number in ``codes``.

    The filter works on float32 copies of centred and scaled rows. Centre and scale are medians of some examples, and
    are computed again whenever the number of examples has doubled. They affect how many distances are computed, never
    their values.
    """

    def __init__(self, capacity: int, width: int, *, sides: int, k: int, tagged: bool) -> None:
        self.sides = sides
        self.k = k
        self.tagged = tagged
        self.inconsistent = False  # whether an interrupt may have left some neighbours not updated
        self.centred_at: int = 0
        self.scale: float = 1.0
        self.centre: Floats = np.zeros(width)
        self.codes: dict[Hashable, int] = {}
        self.X: Floats = np.empty((capacity, width))
        self.F: NDArray[np.float32] = np.empty((capacity, width), np.float32)
        self.label: NDArray[Any] = np.empty(capacity, np.float64 if tagged else np.int32)
        self.low: NDArray[np.float32] = np.empty(capacity, np.float32)
        self.alpha: Floats = np.empty(capacity)
        self.near: Floats = np.empty((sides, capacity, k))
        self.tags: Floats = np.empty((sides, capacity, k if tagged else 0))
        self.ceil: NDArray[np.float32] = np.empty((sides, capacity), np.float32)

    def with_room(self, n: int, width: int) -> NeighbourStore:
        """Return this store if it has room for n examples, otherwise a copy with at least twice the room."""
        used = len(self.alpha)
        if n <= used:
            return self
        larger = self.empty(max(n, 2 * used), width)
        if used:
            larger.centred_at, larger.scale, larger.centre = self.centred_at, self.scale, self.centre
            for name in ("X", "F", "label", "low", "alpha"):
                getattr(larger, name)[:used] = getattr(self, name)
            for name in ("near", "tags", "ceil"):
                getattr(larger, name)[:, :used] = getattr(self, name)
        return larger

    def empty(self, capacity: int, width: int) -> NeighbourStore:
        """Return an empty store of the same kind, with the same codes."""
        store = NeighbourStore(capacity, width, sides=self.sides, k=self.k, tagged=self.tagged)
        store.codes = self.codes
        return store

    def prepare(self, start: int, stop: int) -> None:
        """Make the float32 copies of the rows ``start`` to ``stop - 1``, and of all rows if the centre moves."""
        if stop >= 2 * self.centred_at:
            self.centred_at = stop
            rows = sample_rows(self.X[:stop])
            self.centre = filter_centre(rows)
            self.scale = filter_scale(rows, self.centre)
            self._copy(0, start)
            if start:
                native.nearest_refresh(start, self.scale, self.low, self.near, self.ceil, self.tagged)
        self._copy(start, stop)

    def _copy(self, start: int, stop: int) -> None:
        part = slice(start, stop)
        native.nearest_copy(self.X[part], self.centre, self.scale, self.F[part], self.low[part])

    def products(self, start: int, stop: int, buffer: Products) -> Iterator[tuple[int, Products]]:
        """Yield, for each block, the number of its first row, and its inner products with all rows up to its end."""
        for lo in range(start, stop, BLOCK):
            hi = min(lo + BLOCK, stop)
            yield lo, inner_products(self.F[lo:hi], self.F[:hi], buffer[: hi - lo, :hi])

    def get_state(self, n: int) -> dict[str, Any]:
        """Return the state of the first n examples for a snapshot, without spare room and copies for the filter."""
        near, tags = self.near[:, :n], self.tags[:, :n]
        rows = {"X": self.X[:n], "label": self.label[:n], "alpha": self.alpha[:n], "near": near}
        rows["tags"] = (
            np.where(near < math.inf, tags, 0.0) if self.tagged else tags
        )  # 0 where there is no neighbour yet
        return {**rows, "centre": self.centre, "scale": self.scale, "centred_at": self.centred_at}

    def set_state(self, labels: list[Any], X: Any, label: Any, alpha: Any, near: Any, tags: Any) -> None:
        """Check and set the state of an empty store: O(n (d + k))."""
        n, width = check_stored("X", X, np.float64, None, None).shape
        if bool(n) != bool(width):
            raise ValueError(f"X must have at least one feature for each example, got shape {X.shape}")
        check_finite("X", X)
        self.codes = check_distinct_labels(labels)
        self._set_labels(check_stored("label", label, np.float64 if self.tagged else np.int32, n))
        check_stored("near", near, np.float64, self.sides, n, self.k)
        if (near < 0.0).any() or not (near[:, :, :-1] <= near[:, :, 1:]).all():
            raise ValueError("near must hold squared distances in increasing order")
        check_finite("tags", check_stored("tags", tags, np.float64, self.sides, n, self.k if self.tagged else 0))
        self.X, self.near, self.tags, self.alpha = X, near, tags, check_stored("alpha", alpha, np.float64, n)

    def _set_labels(self, label: NDArray[Any]) -> None:
        if self.tagged:
            check_finite("label", label)
        elif not ((label >= 0) & (label < (len(self.codes) if self.sides == 2 else 1))).all():
            raise ValueError("label must hold indices of the list of labels")
        if self.sides == 1 and self.codes:
            raise ValueError(f"labels must be an empty list if they are not used, got {len(self.codes)} labels")
        self.label = label

    def set_filter(self, centre: Any, scale: Any, centred_at: Any) -> None:
        """Check and set the centre and scale of the filter, and make its copies of all rows: O(n (d + k))."""
        n, width = self.X.shape
        check_finite("centre", check_stored("centre", centre, np.float64, width))
        if type(scale) is not float or not 2.0**-400 <= scale <= 2.0**400 or math.frexp(scale)[0] != 0.5:
            raise ValueError(f"scale must be a power of two from 2^-400 to 2^400, got {format_value(scale)}")
        self.centre, self.scale, self.centred_at = centre, scale, check_integer("centred_at", centred_at, 0, n)
        self.F, self.low = np.empty((n, width), np.float32), np.empty(n, np.float32)
        self.ceil = np.empty((self.sides, n), np.float32)
        self._copy(0, n)
        native.nearest_refresh(n, self.scale, self.low, self.near, self.ceil, self.tagged)


def sample_rows(rows: Floats) -> Floats:
    """Return some of the rows, evenly spaced, for the centre and scale of the filter."""
    return rows[:: max(1, len(rows) // SAMPLE)][:SAMPLE]


def filter_centre(rows: Floats) -> Floats:
    """Return the median of each feature."""
    return np.asarray(np.median(rows, axis=0))


def filter_scale(rows: Floats, centre: Floats) -> float:
    """Return the power of two that brings the median distance from the centre near one."""
    distances = np.abs(rows - centre).max(axis=1)
    typical = np.median(distances[distances > 0.0]) if distances.any() else 1.0
    exponent = math.frexp(typical)[1]
    return 2.0 ** -min(max(exponent, -400), 400)  # so that its square stays within float64


def inner_products(F: Products, columns: Products, out: Products) -> Products:
    """Write the inner products of rows with other rows to ``out``, and return it."""
    with np.errstate(all="ignore"):  # some BLAS raise flags from lanes that they do not use
        return np.matmul(F, columns.T, out=out)
