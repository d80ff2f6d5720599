"""Keys as an Arrow column: text, bytes, or integers of 64 bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.protocols import Integers
from exchangeable.validation import format_value

LAW = "keys must be all text, all bytes, or all integers of 64 bits"
WORDS = {"str": "text", "bytes": "bytes", "int": "integers"}


class Grouped(NamedTuple):
    """The keys of some events: each once, in order; the number of each event's; where each stands among the known."""

    names: Any
    code: Integers
    place: Integers  # -1 for a new one


def admitted(keys: Any) -> Any:
    """Admit a column of keys: a list, an array, a column of pandas or Arrow. O(events).

    >>> admitted(["b", "a"]).type
    DataType(large_string)
    >>> admitted([1, None])
    Traceback (most recent call last):
    ...
    ValueError: keys must be all text, all bytes, or all integers of 64 bits, got a missing one at position 1
    """
    with needed("files", "many streams at once"):
        import pyarrow as pa

    given = keys.to_numpy() if type(keys).__module__.startswith("pandas") else keys
    try:
        column = _typed(given if isinstance(given, (pa.Array, pa.ChunkedArray)) else _listed(given))
    except (pa.ArrowException, OverflowError, TypeError, UnicodeError, ValueError):
        column = None
    if column is None:
        raise ValueError(f"{LAW}, got {format_value(keys)}")
    if column.null_count:
        raise ValueError(f"{LAW}, got a missing one at position {column.is_null().to_numpy(False).argmax()}")
    return column


def _listed(keys: Any) -> Any:
    """A list or an array as a column, in which text among bytes does not become bytes."""
    import pyarrow as pa

    column = pa.array(keys)
    if pa.types.is_binary(column.type) and not all(issubclass(kind, bytes) for kind in set(map(type, keys))):
        raise ValueError
    return column


def _typed(column: Any) -> Any:
    """As one of the three types, or None."""
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


def kind_of(column: Any) -> str:
    """What the keys of a column are: "str", "bytes" or "int"."""
    from pyarrow import types

    if types.is_integer(column.type):
        return "int"
    return "str" if types.is_large_string(column.type) else "bytes"


def grouped(column: Any, known: Any) -> Grouped:
    """Group the keys of events; ``known`` is a column or None. O(events + known), without work in Python."""
    from pyarrow import compute

    if known is not None and len(known) and known.type != column.type:
        was, now = WORDS[kind_of(known)], WORDS[kind_of(column)]
        raise ValueError(f"keys must be {was}, as before, got {now}")
    coded = column.dictionary_encode()
    sorting = compute.sort_indices(coded.dictionary)
    names, rank = coded.dictionary.take(sorting), np.empty(len(sorting), np.int64)
    rank[sorting.to_numpy()] = np.arange(len(sorting))
    place = np.full(len(names), -1)
    if known is not None and len(known):
        found = compute.index_in(names, value_set=known)
        place = found.fill_null(-1).to_numpy().astype(np.int64)
    return Grouped(names, rank[coded.indices.to_numpy()], place)


def place_of(key: Any, known: Any) -> int:
    """Where a key stands among the known, or -1. O(known)."""
    from pyarrow import compute

    try:
        column = admitted([key])
    except ValueError:
        return -1
    if known is None or column.type != known.type:
        return -1
    return int(compute.index(known, column[0]).as_py())


def joined(known: Any, new: Any) -> Any:
    """The known keys and the new ones."""
    import pyarrow as pa

    return new if known is None or not len(known) else pa.concat_arrays([known, new])


def objects(names: Any) -> NDArray[Any]:
    """The keys as an array: of int64, or of objects."""
    found: NDArray[Any] = names.to_numpy(zero_copy_only=False)
    return found


def taken_apart(names: Any) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The keys as plain arrays: integers and nothing; or how long each is in bytes, and all bytes end to end."""
    if kind_of(names) == "int":
        return names.to_numpy(), np.empty(0, np.uint8)
    _, offsets, data = names.buffers()
    ends = np.frombuffer(offsets, np.int64)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.empty(0, np.uint8)
    return np.diff(ends), text


def put_together(kind: str, numbers: NDArray[Any], text: NDArray[np.uint8]) -> Any:
    """The column again; what makes none is refused.

    >>> put_together("str", np.array([1, 2]), np.frombuffer(b"abc", np.uint8)).to_pylist()
    ['a', 'bc']
    """
    with needed("files", "many streams at once"):
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
        raise ValueError(f"keys must be {WORDS[kind]}, got others: {error}") from None
    if len(names.unique()) != len(names):
        raise ValueError("keys must come once each, got one twice")
    return names
