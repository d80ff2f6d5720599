"""What the nearest-neighbour measures have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.measures.neighbour_store import BLOCK, Products, Rows
from exchangeable.protocols import Integers, Rank, Ranks
from exchangeable.validation import call_repr, check_finite, check_integer, check_numbers

MOST = 1000  # neighbours: each costs 16 bytes an example at most

NO_CODES, NO_LABELS = np.empty(0, np.int32), np.empty(0)

Column = tuple[NDArray[Any], dict[Hashable, int]]  # labels as numbers, and the numbers' meaning


class Neighbours(ABC):
    """A measure whose scores are made of the k nearest neighbours of every example.

    A subclass says what it makes of labels. A batch joins wholly or not at all: what an
    interrupt may have left half done is recomputed from the examples before the next one joins.
    """

    _sides = 1
    _tagged = False

    def __init__(self, k: int) -> None:
        self.k: int = check_integer("k", k, 1, MOST)
        self.n: int = 0
        self._rows = Rows(0, 0, sides=self._sides, k=self.k, tagged=self._tagged)

    def __repr__(self) -> str:
        return call_repr(self)

    @abstractmethod
    def _label(self, y: Any) -> Column:
        """The label of one example."""

    @abstractmethod
    def _labels(self, y: Any, count: int) -> Column:
        """The labels of many examples."""

    def _play(self, rows: Rows, start: int, products: Products, within: bool, counts: Integers, at: int) -> None:
        """Let the examples from start on join, whose inner products are given; rank each in the columns from at on."""
        code, label = (NO_CODES, rows.label) if rows.tagged else (rows.label, NO_LABELS)
        examples = (rows.X, code, rows.low, label, rows.alpha)
        lists = (rows.near, rows.tags, rows.ceil)
        native.neighbours_extend(start, products, rows.scale, *examples, *lists, within, counts, at)

    def update(self, x: ArrayLike, y: Any = None) -> Rank:
        """Take one example: O(n d)."""
        return self._update(x, y, within=False)

    def extend(self, X: ArrayLike, y: Any = None) -> Ranks:
        """Take many examples: the same numbers as one by one, at the speed of a matrix product."""
        return self._extend(X, y, within=False)

    def _update(self, x: ArrayLike, y: Any, *, within: bool) -> Rank:
        row = check_numbers("x", x)
        if row.ndim != 1:
            raise ValueError(f"x must be one-dimensional, got {row.ndim} dimensions")
        greater, equal, n = self._take("x", row[np.newaxis], self._label(y), within)
        return Rank(int(greater[0]), int(equal[0]), int(n[0]))

    def _extend(self, X: ArrayLike, y: Any, *, within: bool) -> Ranks:
        rows = check_numbers("X", X)
        if rows.ndim != 2:
            raise ValueError(f"X must be two-dimensional (examples x features), got {rows.ndim} dimensions")
        return self._take("X", rows, self._labels(y, len(rows)), within)

    def _take(self, name: str, examples: NDArray[np.float64], column: Column, within: bool) -> Ranks:
        self._check_width(name, examples.shape[1])
        check_finite(name, examples)
        start, stop = self.n, self.n + len(examples)
        if start == stop:
            return Ranks(*np.empty((3, 0), np.int64))
        try:
            if self._rows.torn:
                self._mend()
            rows = self._rows.with_room(stop, examples.shape[1])
            buffer = np.empty((min(BLOCK, len(examples)), stop), np.float32)
        except MemoryError:
            law = f"{name} must fit in memory"
            raise ValueError(f"{law}, got {stop} examples of {examples.shape[1]} features") from None
        rows.torn = True
        rows.X[start:stop] = examples
        rows.label[start:stop], rows.codes = column
        counts = self._absorb(rows, start, stop, buffer, within)
        self._rows, self.n = rows, stop
        rows.torn = False
        return Ranks(*counts)

    def _absorb(self, rows: Rows, start: int, stop: int, buffer: Products, within: bool) -> Integers:
        rows.prepare(start, stop)
        counts = np.empty((3, stop - start), np.int64)
        for lo, products in rows.products(start, stop, buffer):
            self._play(rows, lo, products, within, counts, lo - start)
        return counts

    def _mend(self) -> None:
        old, n = self._rows, self.n
        rows = old.empty(len(old.alpha), old.X.shape[1])
        rows.X[:n], rows.label[:n] = old.X[:n], old.label[:n]
        self._absorb(rows, 0, n, np.empty((min(BLOCK, n), n), np.float32), within=False)
        self._rows = rows

    def _saved(self) -> dict[str, Any]:
        """For a snapshot: the examples, their neighbours and scores."""
        if self._rows.torn:
            self._mend()
        return {"k": self.k, "labels": list(self._rows.codes), **self._rows.kept(self.n)}

    @classmethod
    def _restored(
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
        """From a snapshot; the filter's copies of the examples are made again."""
        measure = cls(k)
        measure._rows.fill(labels, X, label, alpha, near, tags)
        measure._rows.centre_at(centre, scale, centred_at)
        measure.n = len(X)
        return measure

    def _check_width(self, name: str, given: int) -> None:
        width = self._rows.X.shape[1]
        if given == 0:
            raise ValueError(f"{name} must have at least one feature, got 0")
        if self.n and given != width:
            raise ValueError(f"{name} must have {width} features like the examples before, got {given}")
