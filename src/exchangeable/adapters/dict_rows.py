"""Examples that are dicts of numbers and text, as River has them, for measures that need rows of numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.measures.pools import Scored
from exchangeable.protocols import Floats, Measure, Rank, Ranks, is_measure
from exchangeable.validation import LARGEST, check_labels, format_value

Features = dict[Any, Any]
Flag = tuple[Hashable, str | None]


def measure_of_dicts(measure: Measure) -> Measure:
    """Return a measure that accepts dicts. Fixed scores do; other measures need rows."""
    if not is_measure(measure):
        raise ValueError(f"measure must be a measure (with update and extend of examples), got {format_value(measure)}")
    if getattr(measure, "n", 0):  # the monitor would not notice
        raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")  # type: ignore[attr-defined]
    return measure if isinstance(getattr(measure, "measure", measure), Scored) else DictMeasure(measure)


class _Example(NamedTuple):
    """The features of a dict, by kind."""

    numbers: dict[Hashable, float]
    texts: dict[Hashable, str]


class _Layout:
    """The positions of the coordinates in a row, for a bag of examples.

    ``numbers`` are the features that are numbers in some example, sorted by name. ``flags`` numbers the coordinates
    that are 0 or 1: ``(feature, text)`` for a category, ``(feature, None)`` for examples in which a feature of
    ``numbers`` is not a number.

    Flags are numbered in order of appearance, but the rank of an example must not depend on that, not even in the last
    bit. Their part of a squared distance is an integer, whatever their order, so they are placed where NumPy sums this
    part separately; rounding happens only when it is added to the rest. NumPy sums in eight partial sums, and adds up
    the first four and the last four of them; with more than 128 coordinates, it sums each half. The room for flags
    depends on their number only.
    """

    def __init__(self, numbers: Sequence[Hashable], flags: dict[Flag, int]) -> None:
        self.numbers, self.flags = tuple(numbers), flags
        self.room = 0 if not flags else max(4, 1 << (len(flags) - 1).bit_length())
        self.width, self.number_positions, self.flag_positions = _positions(len(self.numbers), self.room)

    def including(self, example: _Example, n: int) -> _Layout:
        """Return the layout after an example is added to n others."""
        new = example.numbers.keys() - set(self.numbers)
        numbers = sorted((*self.numbers, *new), key=_by_name) if new else self.numbers
        flags: list[Flag] = [(name, None) for name in new] if n else []  # the other examples do not have it
        flags += [flag for flag in _flags(example, numbers) if flag not in self.flags]
        if not new and not flags:
            return self
        added = {flag: len(self.flags) + i for i, flag in enumerate(dict.fromkeys(flags))}
        return _Layout(numbers, self.flags | added)

    def is_compatible(self, other: _Layout) -> bool:
        """Return whether rows of the other layout remain valid."""
        return self.numbers == other.numbers and self.room == other.room

    def row(self, example: _Example) -> Floats:
        """Return the example as a row."""
        row = np.zeros(self.width)
        row[self.number_positions] = [example.numbers.get(name, 0.0) for name in self.numbers]
        row[self.flag_positions[[self.flags[flag] for flag in _flags(example, self.numbers)]]] = 1.0
        return row


class DictMeasure:
    """A measure of dicts, which turns them into rows for another measure. O(n) memory besides that of the measure."""

    def __init__(self, measure: Measure) -> None:
        self.n: int = 0
        self._fresh = measure
        self._measure = copy.deepcopy(measure)
        self._layout = _Layout((), {})
        self._examples: list[_Example] = []
        self._labels: list[Any] = []

    def update(self, x: Features, y: Any = None) -> Rank:
        """Rank one example among those so far."""
        example = _read(x)
        layout = self._layout.including(example, self.n)
        measure = self._measure if layout.is_compatible(self._layout) else self._rebuild(layout)
        rank = measure.update(layout.row(example), y)
        self._layout, self._measure = layout, measure
        self._examples.append(example)
        self._labels.append(y)
        self.n += 1
        return rank

    def extend(self, X: Iterable[Features], y: Iterable[Any] | None = None) -> Ranks:
        """Rank many examples, one by one. If one of them is rejected, none is added."""
        examples, twin = list(X), copy.deepcopy(self)
        labels = [None] * len(examples) if y is None else list(y)
        check_labels(labels, len(examples))
        ranks = [twin.update(*pair) for pair in zip(examples, labels, strict=True)]
        vars(self).update(vars(twin))
        return Ranks(*np.array(ranks, np.int64).reshape(-1, 3).T)

    def _rebuild(self, layout: _Layout) -> Measure:
        """Return a measure that has seen the examples so far, with another layout."""
        measure = copy.deepcopy(self._fresh)
        if self.n:
            measure.extend(np.array([layout.row(example) for example in self._examples]), self._labels)
        return measure


def _positions(numbers: int, room: int) -> tuple[int, NDArray[np.intp], NDArray[np.intp]]:
    """Return the width of a row, and the positions of the numbers and of the flags in it."""
    if not numbers or not room:
        return numbers + room, np.arange(numbers), np.arange(room)
    most = max(numbers, room)
    fours = (8 * np.arange(-(-most // 4))[:, np.newaxis] + np.arange(4)).ravel()
    if 2 * len(fours) <= 128:
        return 2 * len(fours), fours[:numbers], 4 + fours[:room]
    half = -(-most // 8) * 8
    return 2 * half, np.arange(numbers), half + np.arange(room)


def _flags(example: _Example, numbers: Sequence[Hashable]) -> list[Flag]:
    return [*example.texts.items(), *((name, None) for name in numbers if name not in example.numbers)]


def _by_name(feature: Hashable) -> tuple[bool, str]:
    return isinstance(feature, str), str(feature)


def _read(x: Any) -> _Example:
    """Check a dict of numbers and texts; features that are None are missing."""
    if not isinstance(x, dict) or all(value is None for value in x.values()):
        raise ValueError(f"x must be a dict with at least one feature that is a number or text, got {format_value(x)}")
    example = _Example({}, {})
    for name, value in x.items():
        if isinstance(value, str):
            example.texts[name] = str(value)
        elif value is not None:
            example.numbers[name] = _number(name, value)
    return example


def _number(name: Hashable, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, np.integer, np.floating, np.bool_)) else math.nan
    except OverflowError:
        number = math.nan
    if not abs(number) <= LARGEST:
        raise ValueError(
            f"x must hold texts and finite numbers of magnitude at most {LARGEST:g}, got {format_value(value)} for "
            f"{format_value(name)}"
        )
    return number
