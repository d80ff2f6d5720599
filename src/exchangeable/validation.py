"""Validation of arguments, and formatting of values for error messages.

A check returns the value in the form that the package uses, or raises a ValueError with a message of the form
``name must be .., got ..``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable.protocols import Floats

LARGEST = 1e150  # the square of a larger number could overflow
BLOCK = 256  # rows that are checked at a time
PLAIN = (bool, int, float, str)
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # in text: neither nan nor inf, no spaces


def format_value(value: object) -> str:
    """Return the repr of a value on one line, shortened to 60 characters, for a message."""
    try:
        text = " ".join(repr(value).split("\n"))
    except ValueError:  # an integer with more digits than Python converts to text
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def printable(text: object) -> str:
    r"""Return a text or a path with its unprintable characters escaped, for a message.

    >>> printable("a\tb\u202e.csv")
    'a\\tb\\u202e.csv'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def call_repr(thing: object) -> str:
    """Return the constructor call of an object, with the parameters that differ from their defaults, as its repr.

    >>> from exchangeable import bets
    >>> call_repr(bets.Histogram(8)), call_repr(bets.Switching([bets.Plugin(), bets.Idle()]))
    ('Histogram(bins=8)', 'Switching(bets=[Plugin(), Idle()])')
    """
    arguments = []
    for name, parameter in signature(type(thing)).parameters.items():
        value = getattr(thing, name, parameter.default)
        if value is not parameter.default and not (type(value) in PLAIN and value == parameter.default):
            arguments.append(f"{name}={getattr(value, '__name__', None) or repr(value)}")
    return f"{type(thing).__name__}({', '.join(arguments)})"


def check_p(p: Any) -> float:
    """Check that p is a p-value: a real number in (0, 1].

    >>> check_p(0.5)
    0.5
    """
    if type(p) is float and 0.0 < p <= 1.0:  # the usual case, without further checks
        return p
    try:
        value = math.nan if isinstance(p, (str, bytes, complex, np.complexfloating)) else float(p)
    except (OverflowError, TypeError, ValueError):
        value = math.nan
    if not 0.0 < value <= 1.0:
        raise ValueError(f"p must be a number in (0, 1], got {p!r}")
    return value


def check_p_array(p: ArrayLike) -> Floats:
    """Check that p is a one-dimensional array of p-values, each in (0, 1].

    >>> check_p_array([0.5, 1])
    array([0.5, 1. ])
    """
    try:
        array = np.asarray(p)
    except ValueError:  # ragged
        array = np.empty(0, object)
    if (array.dtype.kind not in "biuf" and array.size) or array.dtype.kind == "O" or is_masked(p):
        raise ValueError("p must be a one-dimensional array of numbers in (0, 1]")
    values = np.ascontiguousarray(array, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"p must be one-dimensional, got {array.ndim} dimensions")
    bad = np.flatnonzero(~((values > 0.0) & (values <= 1.0)))
    if bad.size:
        raise ValueError(f"p must lie in (0, 1], got {values[bad[0]]} at position {bad[0]}")
    return values


def check_integer(name: str, value: int, low: int, high: int) -> int:
    """Check that a value is an integer from ``low`` to ``high``.

    >>> check_integer("depth", 0, 1, 24)
    Traceback (most recent call last):
    ...
    ValueError: depth must be an integer from 1 to 24, got 0
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r}")
    return int(value)


def check_interval(name: str, value: float, low: float, high: float, interval: str) -> float:
    """Check that ``low < value <= high``; ``interval`` is the interval as written in the message.

    >>> check_interval("rate", 2.0, 0.0, 1.0, "(0, 1]")
    Traceback (most recent call last):
    ...
    ValueError: rate must lie in (0, 1], got 2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{name} must be a number in {interval}, got {value!r}")
    if not low < value <= high:
        raise ValueError(f"{name} must lie in {interval}, got {value}")
    return float(value)


def check_numbers(
    name: str, values: ArrayLike, expected: str = "be an array of numbers with rows of one length"
) -> Floats:
    """Check that values are an array of real numbers: not text, and not masked."""
    try:
        array = np.asarray(values)
        text = array.dtype.kind == "O" and any(isinstance(value, (str, bytes)) for value in array.flat)
        if text or array.dtype.kind not in "biufO" or is_masked(values):
            raise ValueError
        return np.ascontiguousarray(array, dtype=np.float64) if array.ndim else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must {expected}, got {format_value(values)}") from None


def check_column(name: str, values: Any, verb: str = "be") -> Floats:
    """Check that values are a one-dimensional array of finite numbers.

    >>> check_column("X", [1, math.nan])
    Traceback (most recent call last):
    ...
    ValueError: X must be a one-dimensional array of finite numbers, got nan at position 1
    """
    expected = f"{verb} a one-dimensional array of finite numbers"
    with np.errstate(over="ignore"):  # of numbers longer than float64
        column = check_numbers(name, values, expected)
    if column.ndim != 1:
        got = f"{column.ndim} dimensions" if column.ndim else format_value(values)
        raise ValueError(f"{name} must {expected}, got {got}")
    bad = np.flatnonzero(~np.isfinite(column))
    if bad.size:
        raise ValueError(f"{name} must {expected}, got {column[bad[0]]} at position {bad[0]}")
    return column


def check_number(name: str, value: Any) -> float:
    """Check that a value is one finite number.

    >>> check_number("x", [1.0])
    Traceback (most recent call last):
    ...
    ValueError: x must be one finite number, got [1.0]
    """
    if type(value) is float and math.isfinite(value):  # the usual case, without the cost of an array
        return value
    try:
        array = np.asarray(value)
        numeric = array.ndim == 0 and array.dtype.kind in "biufO" and not is_masked(value)
        number = float(array.item()) if numeric and not isinstance(value, bytes) else math.nan
    except (OverflowError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be one finite number, got {format_value(value)}")
    return number


def is_masked(values: object) -> bool:
    """Return whether an array has masked values, as ``numpy.ma.is_masked`` does, without that slow import.

    >>> is_masked(np.ma.masked_greater([1.0, 9.0], 5.0)), is_masked(np.ma.array([1.0])), is_masked([1.0])
    (True, False, False)
    """
    mask = getattr(values, "_mask", None)
    return mask is not None and bool(np.any(mask))


def check_finite(name: str, values: Floats) -> None:
    """Check that all values are finite, of magnitude at most 1e150."""
    for lo in range(0, len(values), BLOCK):  # in blocks, so that the data is not copied as a whole
        good = np.abs(values[lo : lo + BLOCK]) <= LARGEST
        if not good.all():
            at = np.argwhere(~good)[0]
            at[0] += lo
            raise ValueError(
                f"{name} must hold finite numbers of magnitude at most {LARGEST:g},"
                f" got {values[tuple(at)]} at [{', '.join(map(str, at))}]"
            )


def check_stored(name: str, value: Any, dtype: type[np.generic], *shape: int | None) -> NDArray[Any]:
    """Check that a stored value is an array of this dtype and shape (None: any length) without NaN.

    >>> check_stored("alpha", np.zeros(3), np.float64, 2)
    Traceback (most recent call last):
    ...
    ValueError: alpha must be an array of float64 and shape (2), got float64 and shape (3)
    """
    fits = isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == len(shape)
    if not fits or not all(n in (None, length) for n, length in zip(shape, value.shape, strict=True)):
        expected = (
            f"an array of {np.dtype(dtype)} and shape ({', '.join('any' if n is None else str(n) for n in shape)})"
        )
        got = format_value(value)
        if isinstance(value, np.ndarray):
            got = f"{value.dtype} and shape ({', '.join(map(str, value.shape))})"
        raise ValueError(f"{name} must be {expected}, got {got}")
    if value.dtype.kind == "f" and np.isnan(value).any():
        raise ValueError(f"{name} must hold numbers, got nan")
    array: NDArray[Any] = value
    return array


def check_labels(y: Any, count: int | None = None) -> list[Any]:
    """Check that y is a column of labels, of this length if one is given, and return it as a list.

    >>> check_labels(["a"], 2)
    Traceback (most recent call last):
    ...
    ValueError: y must hold one label for each row of X, got 1 labels for 2 rows
    """
    expected = "y must hold one label for each row of X"
    try:
        labels = list(y.tolist() if isinstance(y, np.ndarray) else y)
    except TypeError:
        raise ValueError(f"{expected}, got {format_value(y)}") from None
    if count not in (None, len(labels)):
        raise ValueError(f"{expected}, got {len(labels)} labels for {count} rows")
    return labels


def check_distinct_labels(labels: Any) -> dict[Hashable, int]:
    """Check that a stored list holds each label once, and return the number of each label.

    >>> check_distinct_labels(["a", "b", "a"])
    Traceback (most recent call last):
    ...
    ValueError: labels must be a list of labels, each once, got ['a', 'b', 'a']
    """
    codes = encode_labels(labels, {})[1] if isinstance(labels, list) else {}
    if not isinstance(labels, list) or len(codes) != len(labels):
        raise ValueError(f"labels must be a list of labels, each once, got {format_value(labels)}")
    return codes


def encode_labels(labels: list[Any], known: dict[Hashable, int]) -> tuple[NDArray[np.int32], dict[Hashable, int]]:
    """Number the labels in order of appearance, after the known ones; return the numbers and the new table.

    The table ``known`` is not changed.
    """
    codes, coded = known, np.empty(len(labels), np.int32)
    for i, label in enumerate(labels):
        try:
            code = codes.get(label)
            equal = bool(label == label)  # NaN is not equal to itself
        except (TypeError, ValueError):
            equal = False
        if label is None:
            raise ValueError(f"y must hold a label for each example, got None at position {i}")
        if not equal:
            raise ValueError(
                f"y must hold hashable labels equal to themselves, got {format_value(label)} at position {i}"
            )
        if code is None:
            codes = dict(codes) if codes is known else codes
            code = codes[label] = len(codes)
        coded[i] = code
    return coded, codes
