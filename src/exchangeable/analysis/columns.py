"""Several martingales on one table: of whole examples, and of each column by itself.

They live on different p-values, so their average need not be a martingale. But with weights w_k that sum to one

    P( max_k w_k S^k_n >= c for some n ) <= sum_k P( S^k_n >= c / w_k for some n ) <= sum_k w_k / c = 1 / c ,

whatever their dependence (Ville's inequality for each, and the union of the events). So the weighted maximum is read as
evidence like the capital of one martingale.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from exchangeable.bets import Idle
from exchangeable.data.canonical import column_stream, constant
from exchangeable.data.files import Group, Table
from exchangeable.martingale import Martingale
from exchangeable.measures import Value
from exchangeable.protocols import Bet, Floats
from exchangeable.pvalues import PValues
from exchangeable.validation import format_value

WHOLE = "whole examples"
HALF = 0.5  # of alpha is for the columns, where they have a say
MANY = 64  # columns that have one unasked: pixels and embeddings are more, and mean little one by one
NEAR = 0.2  # in logs: a capital within a fifth of its lowest
Progress = Callable[[str, int, int], None]


class Line(NamedTuple):
    """One martingale: what it looks at, its weight among the others, its p-values and its log capital after each."""

    name: str
    kind: str  # "examples", "numbers", "categories" or "label"
    weight: float
    p: Floats
    log_value: Floats

    def reached(self, log_level: float) -> int | None:
        """After how many bets the weighted capital first stood at this level; None if it never did."""
        return first(self.log_value + math.log(self.weight), log_level)

    def rise(self, bets: int) -> int:
        """Where the rise to this bet began: after how many bets the capital last stood within a fifth of its lowest.

        An estimate of the change. In a long quiet time the capital hardly moves, and its very lowest may lie anywhere.
        """
        capital = np.concatenate([[0.0], self.log_value[: bets - 1]])
        return int(np.flatnonzero(capital <= capital.min() + NEAR)[-1])


def joint(lines: Sequence[Line]) -> Floats:
    """The log evidence of all lines together, after each example: ``max_k log w_k + log S^k_n``.

    >>> p = np.array([0.5, 0.5])
    >>> joint([Line("a", "examples", 0.5, p, np.array([0.0, 3.0])), Line("b", "label", 0.5, p, np.array([1.0, 1.0]))])
    array([0.30685282, 2.30685282])
    """
    return np.asarray(np.max([line.log_value + math.log(line.weight) for line in lines], axis=0))


def first(log_value: Floats, log_level: float) -> int | None:
    """How many steps it takes to reach the level."""
    reached = log_value >= log_level
    return int(reached.argmax()) + 1 if reached.any() else None


def columns(table: Table, features: Sequence[str] | None = None) -> list[tuple[Group, Floats]]:
    """The columns to look at and, if none is named, the label: each as numbers, a category as its place among them.

    Categories are numbered alphabetically, so the order of the rows does not matter. A constant column is left out
    unless it is named: there is nothing to test.
    """
    groups = {group.name: group for group in table.groups}
    if isinstance(features, str) or not all(isinstance(name, str) and name in groups for name in features or ()):
        raise ValueError(f"features must be a list of columns that were tested, got {format_value(features)}")
    chosen = list(groups.values()) if features is None else [groups[name] for name in dict.fromkeys(features)]
    if not chosen:
        raise ValueError("features must name at least one column, got none")
    found = [(group, _values(table, group)) for group in chosen]
    if table.y is not None and features is None:
        found.append((Group(str(table.label), -1, -1, isinstance(table.y, list)), _labels(table.y)))
    return found if features is not None else [(group, values) for group, values in found if not constant(values)]


def all_equal(given: Floats, y: list[object] | Floats | None) -> bool:
    """Whether all examples are equal, labels included."""
    return constant(given) and (y is None or (len(set(y)) == 1 if isinstance(y, list) else constant(y)))


def _values(table: Table, group: Group) -> Floats:
    if not group.categorical:
        return table.X[:, group.start]
    names = table.features[group.start : group.stop]
    return np.asarray(_places(names)[table.X[:, group.start : group.stop].argmax(axis=1)])


def _labels(y: list[object] | Floats) -> Floats:
    if not isinstance(y, list):
        return y
    classes = list(dict.fromkeys(y))
    code = dict(zip(classes, _places(list(map(str, classes))).tolist(), strict=True))
    return np.array([code[label] for label in y])


def _places(names: list[str]) -> Floats:
    """Equal names share a place, so that not even they are told apart by which came first."""
    return np.asarray(np.unique(names, return_inverse=True)[1], np.float64)


def lines_of(
    found: Sequence[tuple[Group, Floats]],
    bet: Bet,
    *,
    share: float,
    seed: int,
    start: int = 0,
    back: bool = False,
    progress: Progress | None = None,
) -> list[Line]:
    """A martingale for each column, with copies of one bet; the weights sum to ``share``.

    Bets begin after ``start`` examples; with ``back`` the columns are read from their end. O(n log n) ranks and n bets
    for each. The tie-breaking numbers of a column depend on its name, not on its position. No bets are placed
    on a constant column.
    """
    lines = []
    for i, (group, values) in enumerate(found):
        if progress is not None:
            progress("each column backwards" if back else "each column", i, len(found))
        stream = column_stream(group.name, back=back)
        p = PValues(Value(), seed=seed, stream=stream).extend(values[::-1] if back else values)[start:]
        own = Idle() if constant(values) else copy.deepcopy(bet)
        kind = "label" if group.start < 0 else "categories" if group.categorical else "numbers"
        lines.append(Line(group.name, kind, share / len(found), p, Martingale(own).extend(p)))
    if progress is not None:
        progress("each column backwards" if back else "each column", len(found), len(found))
    return lines
