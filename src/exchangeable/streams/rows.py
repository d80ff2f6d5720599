"""The rows of a table, sorted into streams: keys, examples, and which rows are refused."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.data.errors import DataError
from exchangeable.data.labels import LabelKind
from exchangeable.data.schema import ORDER_STREAM
from exchangeable.fleet import stream_seeds
from exchangeable.keyed import keys as key_columns
from exchangeable.protocols import Floats, Integers
from exchangeable.streams.source import Wanted
from exchangeable.validation import LARGEST, format_value


class Streams(NamedTuple):
    """The streams of a table, sorted by key: stream t has the rows ``bounds[t] .. bounds[t + 1] - 1``."""

    names: Any  # the keys, an Arrow column
    seeds: NDArray[np.uint64]
    bounds: Integers
    X: Floats  # one number for each row, or a row of numbers
    y: Any  # labels: a list, an array, or None
    at: Integers  # the position of each row in the table
    first_row: Integers | int  # the position of the first row of the table in the data, or of each
    order: Any  # an Arrow column of the table; None without one
    refused: Integers  # rows of each stream that are not tested

    def take(self, rows: Integers) -> tuple[Integers, Any]:
        """Return the positions of some rows in the data, and their orders; a row of -1 is none."""
        at = self.at[rows] if len(self.at) else rows
        first = self.first_row
        source = at + first if isinstance(first, int) else first[at] if len(first) else at
        return source, None if self.order is None else self.order.take(_indices(at, rows < 0))


class Use(NamedTuple):
    """How the columns are used. ``labels`` is "scores" for a table monitor, which uses rows without a label."""

    wanted: Wanted
    labels: LabelKind | Literal["scores"] | None = None
    p_values: bool = False
    distances: bool = False  # whether the measure squares differences, which may overflow
    presorted: bool = False  # whether the rows of each stream must be together


def sort_rows(table: Any, use: Use, seed: int, first_row: Integers | int = 0) -> Streams:
    """Sort the rows of a table into streams. ``first_row`` is the position of its first row, or of each, in the data.

    A row is refused if a number or its label is missing, if a number is infinite (for p-values, not in (0, 1]; for
    distances, beyond 1e150), or if its order is missing: for its own values alone, so this affects no guarantee.
    O(n log n).
    """
    wanted = use.wanted
    names, code = _keys(table[wanted.key], presorted=use.presorted)
    numbers = _features(table, use)
    good = _accepted(table, numbers, use)
    at = np.flatnonzero(good)
    refused = np.bincount(code[~good], minlength=len(names))
    code = code if len(at) == len(good) else code[at]
    order = None if wanted.order is None else _order(table[wanted.order], at)
    moved = _sorting(code, None if order is None else _as_integers(order))
    bounds = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(names)))])
    if moved is not None:
        at, order = at[moved], None if order is None else order[moved]
    X = numbers if len(at) == len(good) and moved is None else numbers[at]
    y = None if wanted.label is None else _labels(table[wanted.label], at, use.labels)
    seeds = stream_seeds(seed, _seed_keys(names))
    tied = None if order is None else _shuffle_ties(bounds, order, X, y, seeds)
    if tied is not None:
        at, X = at[tied], X[tied]
        y = None if wanted.label is None else _labels(table[wanted.label], at, use.labels)
    orders = None if wanted.order is None else table[wanted.order]
    return Streams(names, seeds, bounds, np.ascontiguousarray(X), y, at, first_row, orders, refused)


def _features(table: Any, use: Use) -> Floats:
    """Return one number for each row, or a row of numbers."""
    columns = [table[name].to_numpy() for name in use.wanted.features or ()]
    return np.column_stack(columns) if len(columns) > 1 or use.labels == "scores" else columns[0]


def _accepted(table: Any, numbers: Floats, use: Use) -> NDArray[np.bool_]:
    """Return which rows are tested."""
    valid = np.abs(numbers) <= LARGEST if use.distances else np.isfinite(numbers)
    good = np.asarray(valid if numbers.ndim == 1 else valid.all(axis=1))
    if use.p_values and numbers.ndim == 1:
        good &= (numbers > 0.0) & (numbers <= 1.0)
    required = [use.wanted.order, None if use.labels == "scores" else use.wanted.label]
    for column in (table[name] for name in required if name is not None):
        good &= column.is_valid().to_numpy()
    return good


def _keys(column: Any, *, presorted: bool) -> tuple[Any, Integers]:
    """Return each key once, sorted, and the position of the key of each row."""
    from pyarrow import compute, types

    kind = column.type
    whole = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which would copy it
    integers = f"int{kind.bit_width}" if types.is_temporal(kind) else None
    keys = key_columns.validate(whole if integers is None else whole.cast(integers))
    changes = compute.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(np.append(True, changes))
    groups = key_columns.group(keys.take(_indices(starts)), key_columns.Keys())
    if presorted and len(starts) > len(groups.names):
        _, first = np.unique(groups.code, return_index=True)
        again = np.setdiff1d(np.arange(len(starts)), first)[0]
        raise DataError(unsorted_message(column[int(starts[again])].as_py()))
    code = np.repeat(groups.code, np.diff(starts, append=len(keys)))
    return groups.names if integers is None else groups.names.cast(integers).cast(kind), code


def unsorted_message(name: Any) -> str:
    """Return what is wrong with rows that are said to be sorted by key."""
    return f"data must be sorted by key, got key {format_value(name)} again after others"


def _seed_keys(names: Any) -> list[Any]:
    """Return the keys as `stream_seed` accepts them: dates and times as text in ISO format, whatever their unit.

    >>> import pyarrow as pa
    >>> _seed_keys(pa.array([0, 1_500], pa.timestamp("ms")))
    ['1970-01-01T00:00:00', '1970-01-01T00:00:01.500000']
    """
    from pyarrow import types

    kind = names.type
    if not types.is_temporal(kind):
        return list(names.to_pylist())
    utc = names.cast(f"timestamp[{kind.unit}]") if types.is_timestamp(kind) else names
    return [_iso(text) for text in utc.cast("string").to_pylist()]


def _iso(text: str) -> str:
    """Write the fraction of a second as ``isoformat`` does: with no digits if it is 0, else 6, or 9 if needed."""
    whole, _, fraction = text.replace(" ", "T").partition(".")
    digits = fraction.ljust(9, "0")
    digits = digits[:6] if digits.endswith("000") else digits
    return f"{whole}.{digits}" if int(digits) else whole


def _order(column: Any, at: Integers) -> NDArray[Any]:
    """Return the orders of some rows, none of which is missing, as integers or floats."""
    from pyarrow import types

    chosen = column if len(at) == len(column) else column.take(_indices(at))
    kind = chosen.type
    if types.is_date(kind):
        chosen, kind = chosen.cast("timestamp[s]"), None
    if kind is None or types.is_timestamp(kind):
        chosen = chosen.cast("int64")
    return np.asarray(chosen.to_numpy())


def _labels(column: Any, at: Integers, kind: Any) -> Any:
    """Return labels as the measure reads them: a list of classes, or an array of numbers."""
    chosen = column.take(_indices(at))
    if kind != "classes":
        return chosen.to_numpy()
    classes = chosen.to_pylist()
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in classes]


# ------------------------------------------------------------------ sorting


def _as_integers(values: NDArray[Any]) -> Integers:
    """Return integers in the same order as these numbers."""
    return values if values.dtype.kind == "i" else np.unique(values, return_inverse=True)[1].astype(np.int64)


def _sorting(code: Integers, order: Integers | None) -> Integers | None:
    """Return the stable sorting by stream and order; None if the rows are sorted."""
    if order is None:
        return None if _increases(code) else _argsort(code)
    same = code[1:] == code[:-1]
    if _increases(code) and bool((~same | (order[1:] >= order[:-1])).all()):
        return None
    low, high = int(order.min()), int(order.max())
    if (int(code.max()) + 1) * (high - low + 1) >= 2**63:
        return np.lexsort((order, code))
    return _argsort(code * (high - low + 1) + (order - low))


def _argsort(values: Integers) -> Integers:
    """Return the stable sorting of integers from 0 on: of pairs with their positions if they fit, which is faster."""
    bits = len(values).bit_length()
    if int(values.max()) >> (63 - bits):
        return np.argsort(values, kind="stable")
    pairs = (values << bits) | np.arange(len(values))
    pairs.sort()
    return pairs & ((1 << bits) - 1)


def _increases(values: Integers) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _shuffle_ties(
    bounds: Integers, order: NDArray[Any], X: Floats, y: Any, seeds: NDArray[np.uint64]
) -> Integers | None:
    """Put the rows of a stream with equal orders into a random order, by the seed of the stream; None without ties.

    They are first sorted by their values, so that the result does not depend on the order of the rows in the data.
    """
    tied = np.append(order[1:] == order[:-1], False)
    tied[bounds[1:][bounds[1:] > 0] - 1] = False  # the last row of a stream
    if not tied.any():
        return None
    last = np.append(False, tied[:-1]) & ~tied
    first, at = np.flatnonzero(tied & ~np.append(False, tied[:-1])), np.flatnonzero(tied | last)
    sizes = np.flatnonzero(last) - first + 1
    labels = np.zeros(len(order), np.int64)
    if y is not None:
        labels[at] = np.unique([str(y[i]) for i in at.tolist()], return_inverse=True)[1]
    random = np.empty(len(order))
    for t in np.unique(np.searchsorted(bounds, first, "right") - 1).tolist():
        native.thetas(int(seeds[t]), ORDER_STREAM, 0, random[bounds[t] : bounds[t + 1]])
    moved = np.arange(len(order))
    for size in np.unique(sizes).tolist():
        rows = first[sizes == size, np.newaxis] + np.arange(size)
        columns = [X[rows]] if X.ndim == 1 else np.moveaxis(X[rows], -1, 0)
        values = np.take_along_axis(rows, np.lexsort((*columns, labels[rows])), 1)
        moved[rows] = np.take_along_axis(values, np.argsort(random[rows], 1, kind="stable"), 1)
    return moved


def _indices(at: Integers, missing: NDArray[np.bool_] | None = None) -> Any:
    import pyarrow as pa

    return pa.array(at, mask=missing)
