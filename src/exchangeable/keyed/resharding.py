"""The encoded state of many keys taken apart into one row for each key, and put together again for other buckets.

The recipe is not needed: columns are divided and joined as bytes. They are checked when the state is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed import keys, storage
from exchangeable.protocols import Integers

INTEGERS, REALS = np.dtype(np.int64), np.dtype(np.float64)
DTYPES = {"integers": INTEGERS, "reals": REALS, "bet": REALS, "alarm": REALS}  # as many numbers for each key
DTYPES |= {"spans": INTEGERS, "scores": REALS, "counts": INTEGERS}
LENGTHS = {"spans": "spans_used", "scores": "pool_used", "counts": "pool_used"}  # where numbers of a key are counted


def to_rows(data: bytes) -> Any:
    """Return an encoded state of `Monitors` as a batch with one row for each key: ``key``, and its part of each column.

    Equal states of a key give equal rows: its position in the order of joining is set to 0.
    """
    members, head = storage.open_state(data)
    arrays = {name: storage.read_column(members, name) for name in storage.columns_of(members)}
    names = keys.from_arrays(head["keys"], arrays["keys"], arrays["text"])
    integers = arrays["integers"].reshape(len(names), -1).copy() if len(names) else arrays["integers"]
    if len(names):
        integers[:, native.KEYED_JOINED] = 0
    arrays["integers"] = integers.ravel()
    parts = {name: _divide(arrays, name, len(names)) for name in DTYPES}
    return pa.RecordBatch.from_pydict({"key": names, **parts})


def from_rows(rows: Any, like: bytes, extra: str) -> bytes:
    """Encode rows of `to_rows` (a batch or a table) as a state with the recipe of another, but another ``extra``."""
    rows = rows.sort_by("key")
    names, count = keys.validate(rows["key"]), rows.num_rows
    arrays = {name: np.frombuffer(b"".join(rows[name].to_pylist()), dtype).copy() for name, dtype in DTYPES.items()}
    if count:
        arrays["integers"].reshape(count, -1)[:, native.KEYED_JOINED] = np.arange(1, count + 1)
    lengths = {used: _lengths(rows[name]) // 8 for name, used in LENGTHS.items()}
    members, head = storage.open_state(like)
    present = storage.columns_of(members)
    head = head | {"progress": [count, count, -1], "recipe": head["recipe"] | {"extra": extra}}
    numbers, text = keys.to_arrays(names)
    columns = {"keys": numbers, "text": text, **arrays, **lengths}
    return storage.write_state(head, {name: columns[name] for name in present})


def extra_of(data: bytes) -> str:
    """Return the ``extra`` of an encoded state."""
    return str(storage.open_state(data)[1]["recipe"].get("extra"))


def _divide(arrays: Mapping[str, NDArray[Any]], name: str, count: int) -> Any:
    """Return the part of a column that belongs to each key, as bytes; empty if there is no such column."""
    column = np.ascontiguousarray(arrays.get(name, np.empty(0)), DTYPES[name])
    used = arrays.get(LENGTHS.get(name, ""))
    lengths = np.full(count, len(column) // max(count, 1)) if used is None else used.astype(np.int64)
    ends = np.concatenate([[0], 8 * np.cumsum(lengths, dtype=np.int64)])
    if ends[-1] != column.nbytes:
        raise ValueError(f"{name} must hold {ends[-1] // 8} numbers, got {len(column)}")
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(column)])


def _lengths(column: Any) -> Integers:
    return np.fromiter(map(len, column.to_pylist()), np.int64, len(column))
