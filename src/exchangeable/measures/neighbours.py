"""The base class of the nearest-neighbour measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.measures.neighbour_store import BLOCK, NeighbourStore, Products
from exchangeable.protocols import Integers, Rank, Ranks
from exchangeable.validation import call_repr, check_finite, check_integer, check_numbers

MAX_NEIGHBOURS = 1000  # each costs up to 16 bytes per example

NO_CODES, NO_LABELS = np.empty(0, np.int32), np.empty(0)

Labels = tuple[NDArray[Any], dict[Hashable, int]]  # labels as numbers, and the codes of labels that are not numbers


class Neighbours(ABC):
    """A measure whose scores depend on the k nearest neighbours of every example.

    A subclass defines how labels are used. A batch is added completely or not at all: after an interrupt, the
    neighbours are computed again from the examples before the next one is added.
    """

    _sides = 1
    _tagged = False

    def __init__(self, k: int) -> None:
        self.k: int = check_integer("k", k, 1, MAX_NEIGHBOURS)
        self.n: int = 0
        self._store = NeighbourStore(0, 0, sides=self._sides, k=self.k, tagged=self._tagged)

    def __repr__(self) -> str:
        return call_repr(self)

    @abstractmethod
    def _label(self, y: Any) -> Labels:
        """Check and encode the label of one example."""

    @abstractmethod
    def _labels(self, y: Any, count: int) -> Labels:
        """Check and encode the labels of ``count`` examples."""

    def _join(
        self, store: NeighbourStore, start: int, products: Products, within: bool, counts: Integers, at: int
    ) -> None:
        """Add the examples from ``start`` on, with these inner products; write their ranks to ``counts[:, at:]``."""
        code, label = (NO_CODES, store.label) if store.tagged else (store.label, NO_LABELS)
        examples = (store.X, code, store.low, label, store.alpha)
        lists = (store.near, store.tags, store.ceil)
        native.neighbours_extend(start, products, store.scale, *examples, *lists, within, counts, at)

    def update(self, x: ArrayLike, y: Any = None) -> Rank:
        """Add one example and return its rank: O(n d)."""
        return self._update(x, y, within=False)

    def extend(self, X: ArrayLike, y: Any = None) -> Ranks:
        """Add many examples: the same ranks as one by one, at the speed of a matrix product."""
        return self._extend(X, y, within=False)

    def _update(self, x: ArrayLike, y: Any, *, within: bool) -> Rank:
        row = check_numbers("x", x)
        if row.ndim != 1:
            raise ValueError(f"x must be one-dimensional, got {row.ndim} dimensions")
        greater, equal, n = self._add("x", row[np.newaxis], self._label(y), within)
        return Rank(int(greater[0]), int(equal[0]), int(n[0]))

    def _extend(self, X: ArrayLike, y: Any, *, within: bool) -> Ranks:
        rows = check_numbers("X", X)
        if rows.ndim != 2:
            raise ValueError(f"X must be two-dimensional (examples x features), got {rows.ndim} dimensions")
        return self._add("X", rows, self._labels(y, len(rows)), within)

    def _add(self, name: str, examples: NDArray[np.float64], labels: Labels, within: bool) -> Ranks:
        self._check_width(name, examples.shape[1])
        check_finite(name, examples)
        start, stop = self.n, self.n + len(examples)
        if start == stop:
            return Ranks(*np.empty((3, 0), np.int64))
        try:
            if self._store.inconsistent:
                self._recompute()
            store = self._store.with_room(stop, examples.shape[1])
            buffer = np.empty((min(BLOCK, len(examples)), stop), np.float32)
        except MemoryError:
            size = f"{stop} examples of {examples.shape[1]} features"
            raise ValueError(f"{name} must fit in memory, got {size}") from None
        store.inconsistent = True
        store.X[start:stop] = examples
        store.label[start:stop], store.codes = labels
        counts = self._join_blocks(store, start, stop, buffer, within)
        self._store, self.n = store, stop
        store.inconsistent = False
        return Ranks(*counts)

    def _join_blocks(self, store: NeighbourStore, start: int, stop: int, buffer: Products, within: bool) -> Integers:
        store.prepare(start, stop)
        counts = np.empty((3, stop - start), np.int64)
        for lo, products in store.products(start, stop, buffer):
            self._join(store, lo, products, within, counts, lo - start)
        return counts

    def _recompute(self) -> None:
        """Find all neighbours again, from the examples."""
        old, n = self._store, self.n
        store = old.empty(len(old.alpha), old.X.shape[1])
        store.X[:n], store.label[:n] = old.X[:n], old.label[:n]
        self._join_blocks(store, 0, n, np.empty((min(BLOCK, n), n), np.float32), within=False)
        self._store = store

    def _get_state(self) -> dict[str, Any]:
        if self._store.inconsistent:
            self._recompute()
        return {"k": self.k, "labels": list(self._store.codes), **self._store.get_state(self.n)}

    @classmethod
    def _from_state(
        cls,
        *,
        k: Any,
        labels: Any,
        X: Any,
        label: Any,
        alpha: Any,
        near: Any,
        tags: Any,
        centre: Any,
        scale: Any,
        centred_at: Any,
    ) -> Self:
        measure = cls(k)
        measure._store.set_state(labels, X, label, alpha, near, tags)
        measure._store.set_filter(centre, scale, centred_at)
        measure.n = len(X)
        return measure

    def _check_width(self, name: str, width: int) -> None:
        before = self._store.X.shape[1]
        if width == 0:
            raise ValueError(f"{name} must have at least one feature, got 0")
        if self.n and width != before:
            raise ValueError(f"{name} must have {before} features like the examples before, got {width}")
