"""How large a change is: a column before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from exchangeable.data.table import TableColumn
from exchangeable.protocols import Floats

SIZES = ((0.8, "large"), (0.5, "medium"), (0.2, "small"), (0.0, "very small"))  # the conventions of Cohen (1988)
WIDER = 1.25  # standard deviations are shown if their ratio exceeds this
LISTED = 3  # new or vanished categories


class Effect(NamedTuple):
    """A column before and after a change: means and deviations of numbers, or shares of the category that changed most.

    ``size`` is the difference of the means in (pooled) standard deviations, Cohen's d; for shares it is Cohen's h.
    """

    before: float
    after: float
    size: float
    deviations: tuple[float, float] | None = None  # None for categories
    category: str | None = None
    new: tuple[str, ...] = ()  # categories that occur only after the change
    vanished: tuple[str, ...] = ()  # and only before it
    parts: str = ""  # which rows are compared, if not all before and after the change

    @property
    def magnitude(self) -> str:
        """The size in a word: very small, small, medium or large."""
        return next(word for least, word in SIZES if abs(self.size) >= least)


def effect_of(column: TableColumn, boundary: int) -> Effect:
    """Compare the rows of a column before and after the boundary; both parts must have rows."""
    return _compare(column, column.values[:boundary], column.values[boundary:])


def drift_of(column: TableColumn) -> Effect:
    """Compare the first and the last fifth of the rows: a drift has no boundary."""
    part = max(1, len(column.values) // 5)
    effect = _compare(column, column.values[:part], column.values[-part:])
    return effect._replace(parts="first and last fifth of the rows")


def _compare(column: TableColumn, before: Floats, after: Floats) -> Effect:
    return _means(before, after) if column.categories is None else _shares(before, after, column.categories)


def _means(before: Floats, after: Floats) -> Effect:
    unit = max(float(np.abs(before).max()), float(np.abs(after).max())) or 1.0  # squares could overflow
    first, second = before / unit, after / unit
    freedom = max(1, len(before) + len(after) - 2)
    pooled = math.sqrt((len(before) * first.var() + len(after) * second.var()) / freedom)
    difference = float(second.mean() - first.mean())
    size = difference / pooled if pooled else math.copysign(math.inf, difference) if difference else 0.0
    deviations = float(first.std() * unit), float(second.std() * unit)
    return Effect(float(first.mean() * unit), float(second.mean() * unit), size, deviations)


def _shares(before: Floats, after: Floats, categories: tuple[str, ...]) -> Effect:
    first, second = (
        np.bincount(part.astype(np.intp), minlength=len(categories)) / len(part) for part in (before, after)
    )
    sizes = 2.0 * (np.arcsin(np.sqrt(second)) - np.arcsin(np.sqrt(first)))
    most = len(sizes) - 1 - int(np.abs(sizes).round(9)[::-1].argmax())  # of "no" and "yes", "yes"
    return Effect(
        float(first[most]),
        float(second[most]),
        float(sizes[most]),
        category=categories[most],
        new=tuple(categories[k] for k in np.flatnonzero((first == 0.0) & (second > 0.0)).tolist()),
        vanished=tuple(categories[k] for k in np.flatnonzero((first > 0.0) & (second == 0.0)).tolist()),
    )


def describe_effect(effect: Effect, name: Callable[[str], str]) -> str:
    """Describe an effect; ``name`` formats the names of categories.

    >>> column = TableColumn("x", np.array([1.0, 2.0, 3.0, 2.0, 3.0, 4.0]))
    >>> describe_effect(effect_of(column, 3), str)
    'mean 2 -> 3 (+1.00 sd, large)'
    """
    if effect.deviations is None:
        return _describe_shares(effect, name)
    size = f"{effect.size:+.2f} sd, {effect.magnitude}" if math.isfinite(effect.size) else effect.magnitude
    size += f"; {effect.parts}" if effect.parts else ""
    means = f"mean {effect.before:.4g} -> {effect.after:.4g} ({size})"
    low, high = sorted(effect.deviations)
    first, second = effect.deviations
    return means if high <= WIDER * low else f"{means}, sd {first:.3g} -> {second:.3g}"


def _describe_shares(effect: Effect, name: Callable[[str], str]) -> str:
    size = f"{effect.magnitude}; {effect.parts}" if effect.parts else effect.magnitude
    shares = f"{100.0 * effect.before:.3g} % -> {100.0 * effect.after:.3g} % ({size})"
    words = [f"share of {name(effect.category or '')} {shares}"]
    for title, categories in (("new", effect.new), ("gone", effect.vanished)):
        if categories:
            more = f" and {len(categories) - LISTED:,} more" if len(categories) > LISTED else ""
            words.append(f"{title}: {', '.join(map(name, categories[:LISTED]))}{more}")
    return "; ".join(words)
