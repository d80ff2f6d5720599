"""Keys as an Arrow column of text, bytes or 64-bit integers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.protocols import Integers
from exchangeable.validation import format_value

RULE = "keys must be all text, all bytes, or all 64-bit integers"
TYPE_NAMES = {"str": "text", "bytes": "bytes", "int": "integers"}


class KeyGroups(NamedTuple):
    """The keys of some events."""

    names: Any  # each key once, sorted
    code: Integers  # for each event, the position of its key in ``names``
    position: Integers  # for each name, its position among the known keys; -1 for a new one


def validate(keys: Any) -> Any:
    """Convert keys (a list, an array, or a column of pandas or Arrow) to an Arrow column. O(events).

    >>> validate(["b", "a"]).type
    DataType(large_string)
    >>> validate([1, None])
    Traceback (most recent call last):
    ...
    ValueError: keys must be all text, all bytes, or all 64-bit integers, got a missing one at position 1
    """
    with needed("arrow", "many streams at once"):
        import pyarrow as pa

    values = keys.to_numpy() if type(keys).__module__.startswith("pandas") else keys
    try:
        column = _cast(values if isinstance(values, (pa.Array, pa.ChunkedArray)) else _from_list(values))
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError, ValueError):
        column = None
    if column is None:
        raise ValueError(f"{RULE}, got {format_value(keys)}")
    if column.null_count:
        raise ValueError(f"{RULE}, got a missing one at position {column.is_null().to_numpy(False).argmax()}")
    return column


def _from_list(keys: Any) -> Any:
    """Convert a list or an array to a column; a mixture of text and bytes is an error."""
    import pyarrow as pa

    column = pa.array(keys)
    if pa.types.is_binary(column.type) and not all(issubclass(kind, bytes) for kind in set(map(type, keys))):
        raise ValueError
    return column


def _cast(column: Any) -> Any:
    """Convert a column to one of the three types; None if that is not possible."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if types.is_integer(kind):
        column = column.cast(pa.int64())
    elif types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        column = column.cast(pa.large_string())
    elif types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
    elif len(column):
        return None
    else:
        column = pa.array([], pa.large_string())
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def key_type(column: Any) -> str:
    """Return the type of the keys of a column: "str", "bytes" or "int"."""
    from pyarrow import types

    if types.is_integer(column.type):
        return "int"
    return "str" if types.is_large_string(column.type) else "bytes"


def group(column: Any, known: Any) -> KeyGroups:
    """Group the keys of events; ``known`` is a column or None. O(events + known)."""
    from pyarrow import compute

    if known is not None and len(known) and known.type != column.type:
        before, now = TYPE_NAMES[key_type(known)], TYPE_NAMES[key_type(column)]
        raise ValueError(f"keys must be {before}, as before, got {now}")
    coded = column.dictionary_encode()
    sorting = compute.sort_indices(coded.dictionary)
    names, rank = coded.dictionary.take(sorting), np.empty(len(sorting), np.int64)
    rank[sorting.to_numpy()] = np.arange(len(sorting))
    position = np.full(len(names), -1)
    if known is not None and len(known):
        position = compute.index_in(names, value_set=known).fill_null(-1).to_numpy().astype(np.int64)
    return KeyGroups(names, rank[coded.indices.to_numpy()], position)


def find(key: Any, known: Any) -> int:
    """Return the position of a key among the known ones, or -1. O(known)."""
    from pyarrow import compute

    try:
        column = validate([key])
    except ValueError:
        return -1
    if known is None or column.type != known.type:
        return -1
    return int(compute.index(known, column[0]).as_py())


def concatenate(known: Any, new: Any) -> Any:
    """Return the known keys followed by the new ones."""
    import pyarrow as pa

    return new if known is None or not len(known) else pa.concat_arrays([known, new])


def to_numpy(names: Any) -> NDArray[Any]:
    """Return the keys as an array of int64 or of objects."""
    array: NDArray[Any] = names.to_numpy(zero_copy_only=False)
    return array


def to_arrays(names: Any) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the keys as two arrays: integers and nothing, or lengths in bytes and all bytes end to end."""
    if key_type(names) == "int":
        return names.to_numpy(), np.empty(0, np.uint8)
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, np.int64)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    return np.diff(ends), text


def from_arrays(kind: str, numbers: NDArray[Any], text: NDArray[np.uint8]) -> Any:
    """Build the column from its arrays; raise ValueError if they are invalid.

    >>> from_arrays("str", np.array([1, 2]), np.frombuffer(b"abc", np.uint8)).to_pylist()
    ['a', 'bc']
    """
    with needed("arrow", "many streams at once"):
        import pyarrow as pa

    if kind == "int":
        names = pa.array(numbers.astype(np.int64))
    else:
        ends = np.concatenate([[0], np.cumsum(numbers, dtype=np.int64)])
        if ends[-1] != len(text):
            raise ValueError(f"keys must be {len(text)} bytes long, got {ends[-1]}")
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
        names = pa.Array.from_buffers(pa.large_string() if kind == "str" else pa.large_binary(), len(numbers), buffers)
    try:
        names.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"keys must be {TYPE_NAMES[kind]}, got invalid ones: {error}") from None
    if len(names.unique()) != len(names):
        raise ValueError("keys must be unique, got a duplicate")
    return names
