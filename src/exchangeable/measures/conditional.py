"""Label-conditional ranks: each example is ranked among those of its own label."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.measures.distance import NearestResidual
from exchangeable.measures.nearest import NearestNeighbour
from exchangeable.measures.pools import MAX_COUNT, Pool, Scored
from exchangeable.protocols import Measure, Rank, Ranks, is_measure
from exchangeable.validation import (
    call_repr,
    check_distinct_labels,
    check_integer,
    check_labels,
    encode_labels,
    format_value,
)


class Conditional:
    """Ranks each example among those of its own label only, so that label frequencies have no influence.

    The p-values are independent and uniform whenever the examples *given their labels* are exchangeable, whatever the
    labels do. So they test for a change of the examples given the labels (concept shift), as `exchangeable.shift_test`
    does. Also known as Mondrian.

    - `NearestNeighbour` (any measure with ``update_within`` and ``extend_within``): scores depend on all examples.
    - `Value` and `Frozen`: one pool of scores for each label.
    - Others, such as `NearestDistance`: one copy of the measure for each label, so that scores too depend only on
      examples of the same label.

    The measure must be fresh, and must not be used elsewhere afterwards. Labels are hashable and equal to themselves.
    Time and memory are those of the measure. Where it is copied, a batch with several labels needs the memory of the
    copies twice, because it is added completely or not at all.

    >>> from exchangeable.measures.value import Value
    >>> Conditional(Value()).extend([1.0, 10.0, 2.0, 5.0], ["a", "b", "a", "b"])
    Ranks(greater=array([0, 0, 0, 1]), equal=array([1, 1, 1, 1]), n=array([1, 1, 2, 2]))

    Reference: Vovk, Gammerman, Shafer (2005), section 4.5; Vovk (2020), Testing for concept shift online.
    """

    def __init__(self, measure: Measure) -> None:
        if not is_measure(measure):
            raise ValueError(f"measure must be a measure (with update and extend of examples), got {measure!r}")
        if getattr(measure, "n", 0):
            raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")  # type: ignore[attr-defined]
        if isinstance(measure, NearestResidual):
            raise ValueError(
                "measure must not be NearestResidual: if labels are numbers, few examples share a label to be ranked by"
            )
        self.n: int = 0
        self._within: Any = measure
        if not (hasattr(measure, "update_within") and hasattr(measure, "extend_within")):
            self._within = LabelPools(measure) if isinstance(measure, Scored) else LabelCopies(measure)

    def __repr__(self) -> str:
        return call_repr(self)

    @property
    def measure(self) -> Measure:
        """The measure passed to the constructor."""
        within = self._within
        measure: Measure = within.measure if isinstance(within, (LabelPools, LabelCopies)) else within
        return measure

    def update(self, x: Any, y: Hashable = None) -> Rank:
        """Add one example and return its rank."""
        rank: Rank = self._within.update_within(x, y)
        self.n += 1
        return rank

    def extend(self, X: Any, y: Iterable[Any] | None = None) -> Ranks:
        """Add many examples: the same ranks as one by one. If one of them is rejected, none is added."""
        ranks: Ranks = self._within.extend_within(X, y)
        self.n += len(ranks.n)
        return ranks

    def _get_state(self) -> dict[str, Any]:
        return {"n": self.n, "within": self._within}

    @classmethod
    def _from_state(cls, *, n: Any, within: Any) -> Conditional:
        conditional = cls(within.measure if isinstance(within, (LabelPools, LabelCopies)) else NearestNeighbour())
        if type(within) is not type(conditional._within):
            raise ValueError(f"within must hold the state of the labels, got {format_value(within)}")
        conditional.n, conditional._within = check_integer("n", n, 0, MAX_COUNT), within
        return conditional


class LabelPools:
    """One pool of scores for each label, for scores fixed in advance."""

    def __init__(self, measure: Scored) -> None:
        self.measure = measure
        self._codes: dict[Hashable, int] = {}
        self._pools: list[Pool] = []

    def update_within(self, x: Any, y: Hashable) -> Rank:
        """Add one example and rank it among those of its label."""
        coded, codes = encode_labels([y], self._codes)
        score = self.measure.one_score(x, y)
        if len(codes) > len(self._pools):
            self._codes, self._pools = codes, [*self._pools, self.measure.pool()]
        return self._pools[int(coded[0])].add_one(score)

    def extend_within(self, X: Any, y: Iterable[Any] | None) -> Ranks:
        """Add many examples, each ranked among those of its label."""
        labels = check_labels(y)
        coded, codes = encode_labels(labels, self._codes)
        scores = self.measure.scores(X, y if hasattr(y, "__len__") else labels)
        check_labels(labels, len(scores))
        new = len(codes) - len(self._pools)
        pools = [*self._pools, *(self.measure.pool() for _ in range(new))] if new else self._pools
        groups, ranks = _groups(coded), _empty_ranks(len(coded))
        for code, positions in groups:  # only this can fail
            pools[code].reserve(len(positions))
        for code, positions in groups:
            _set_ranks(ranks, positions, pools[code].add(scores[positions]))
        self._codes, self._pools = codes, pools
        return ranks

    def _get_state(self) -> dict[str, Any]:
        return {
            "measure": self.measure,
            "labels": list(self._codes),
            "pools": [pool.contents() for pool in self._pools],
        }

    @classmethod
    def _from_state(cls, *, measure: Any, labels: Any, pools: Any) -> LabelPools:
        if not isinstance(measure, Scored):
            raise ValueError(f"measure must have scores that are fixed in advance, got {format_value(measure)}")
        within = cls(measure)
        within._codes = check_distinct_labels(labels)
        max_distinct = measure.pool().max_distinct
        within._pools = [
            Pool.from_contents(*pair, max_distinct=max_distinct) for pair in _check_one_each("pools", pools, labels)
        ]
        return within


class LabelCopies:
    """One copy of a measure for each label."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self._codes: dict[Hashable, int] = {}
        self._copies: list[Measure] = []
        self._shape: tuple[int, ...] = ()  # of an example

    def update_within(self, x: Any, y: Hashable) -> Rank:
        """Add one example and rank it among those of its label."""
        coded, codes = encode_labels([y], self._codes)
        shape = self._check_shape("x", _array("x", x).shape)
        measure = self._copy(int(coded[0]), intact=False)
        rank = measure.update(x, y)
        self._store({int(coded[0]): measure}, codes, shape)
        return rank

    def extend_within(self, X: Any, y: Iterable[Any] | None) -> Ranks:
        """Add many examples, each ranked among those of its label."""
        rows, labels = _array("X", X), check_labels(y)
        if rows.ndim == 0:
            raise ValueError(f"X must hold one row for each example, got {format_value(X)}")
        check_labels(labels, len(rows))
        coded, codes = encode_labels(labels, self._codes)
        if not labels:
            return copy.deepcopy(self.measure).extend(X, labels)  # to validate X
        shape = self._check_shape("X", rows.shape[1:])
        groups, changed, ranks = _groups(coded), {}, _empty_ranks(len(rows))
        for k, (code, positions) in enumerate(groups):
            changed[code] = self._copy(code, intact=k < len(groups) - 1)  # the last one can be changed in place
            group = [labels[i] for i in positions.tolist()]
            try:
                _set_ranks(ranks, positions, changed[code].extend(rows[positions], group))
            except ValueError as error:
                raise ValueError(f"{error}, among the rows with label {format_value(group[0])}") from error
        self._store(changed, codes, shape)
        return ranks

    def _copy(self, code: int, *, intact: bool) -> Measure:
        """Return the measure of a label; a copy of it if the original must stay intact until all labels are done."""
        if code >= len(self._copies):
            return copy.deepcopy(self.measure)
        return copy.deepcopy(self._copies[code]) if intact else self._copies[code]

    def _store(self, changed: dict[int, Measure], codes: dict[Hashable, int], shape: tuple[int, ...]) -> None:
        for code in sorted(changed):
            self._copies[code : code + 1] = [changed[code]]  # new labels follow the others
        self._codes, self._shape = codes, shape

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Check that the examples of all labels have the same shape: each copy sees only those of its label."""
        if self._copies and shape != self._shape:
            new, before = (" x ".join(map(str, s)) if s else "no" for s in (shape, self._shape))
            raise ValueError(f"{name} must have {before} features like the examples before, got {new}")
        return shape

    def _get_state(self) -> dict[str, Any]:
        fixed = {"measure": self.measure, "labels": list(self._codes)}
        return {**fixed, "copies": self._copies, "shape": self._shape}

    @classmethod
    def _from_state(cls, *, measure: Any, labels: Any, copies: Any, shape: Any) -> LabelCopies:
        within = cls(measure)
        within._codes = check_distinct_labels(labels)
        within._copies = _check_one_each("copies", copies, labels)
        if not all(type(one) is type(measure) for one in within._copies):
            raise ValueError(f"copies must be of the type of the measure, got {format_value(copies)}")
        if not isinstance(shape, tuple):
            raise ValueError(f"shape must be a tuple of integers, got {format_value(shape)}")
        within._shape = tuple(check_integer("shape", length, 0, MAX_COUNT) for length in shape)
        return within


def _check_one_each(name: str, values: Any, labels: list[Any]) -> list[Any]:
    if not isinstance(values, list) or len(values) != len(labels):
        raise ValueError(f"{name} must be a list of {len(labels)}, one for each label, got {format_value(values)}")
    return values


def _array(name: str, values: Any) -> NDArray[Any]:
    """Convert to an array; a masked array stays masked, so that the measure can reject it."""
    try:
        array: NDArray[Any] = np.asanyarray(values)
    except ValueError:
        raise ValueError(f"{name} must be an array with rows of one length, got {format_value(values)}") from None
    return array


def _groups(coded: NDArray[np.int32]) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the code of each label, and the positions of its examples, in order."""
    order = np.argsort(coded, kind="stable")
    starts = np.flatnonzero(np.diff(coded[order], prepend=-1))
    return [(int(coded[positions[0]]), positions) for positions in np.split(order, starts)[1:]]


def _empty_ranks(n: int) -> Ranks:
    return Ranks(*(np.empty(n, np.int64) for _ in range(3)))


def _set_ranks(ranks: Ranks, positions: NDArray[np.intp], group: Ranks) -> None:
    for column, values in zip(ranks, group, strict=True):
        column[positions] = values
