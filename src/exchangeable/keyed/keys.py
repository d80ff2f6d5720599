"""Keys as an Arrow column of text, bytes or 64-bit integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.protocols import Integers
from exchangeable.validation import format_value

RULE = "keys must be all text, all bytes, or all 64-bit integers"
TYPE_NAMES = {"str": "text", "bytes": "bytes", "int": "integers"}
FEW = 8  # a call has few keys if there are more than this many times as many
MANY = 256  # columns of keys before they are joined


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

    if isinstance(keys, (str, bytes)):  # not a list of characters
        raise ValueError(f"keys must be a list of keys, got {format_value(keys)}: write [{format_value(keys)}] for one")
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


def group(column: Any, known: Keys) -> KeyGroups:
    """Group the keys of events. O(events), and O(known) in a call with many keys, or the second with few."""
    from pyarrow import compute

    coded = column.dictionary_encode()
    sorting = compute.sort_indices(coded.dictionary)
    names, rank = coded.dictionary.take(sorting), np.empty(len(sorting), np.int64)
    rank[sorting.to_numpy()] = np.arange(len(sorting))
    return KeyGroups(names, rank[coded.indices.to_numpy()], known.positions(names))


class Keys:
    """The known keys, in the order in which they joined.

    A few keys are found in a dict, which is built when it is needed for the second time; many by Arrow, without one.
    """

    def __init__(self, names: Any = None) -> None:
        self._count = 0 if names is None else len(names)
        self._chunks = [names] if self._count else []
        self._index: dict[Any, int] | None = None
        self._searches = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_index": None}

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> Any:
        """All keys as one column; None if there have been none."""
        import pyarrow as pa

        if len(self._chunks) > 1:
            self._chunks = [pa.concat_arrays(self._chunks)]
        return self._chunks[0] if self._chunks else None

    def at(self, positions: Integers) -> NDArray[Any]:
        """Return the keys at these positions as an array. O(their number)."""
        return to_numpy(self.names.take(positions)) if self._count else np.empty(0, object)

    def like(self, column: Any) -> Any:
        """Return an empty column of the type of the known keys, since an empty list has no type."""
        return self._chunks[0][:0] if self._chunks and not len(column) else column

    def check_type(self, column: Any) -> None:
        """Raise ValueError if the keys of a column are of another type than the known ones."""
        if self._count and self._chunks[0].type != column.type:
            before, now = TYPE_NAMES[key_type(self._chunks[0])], TYPE_NAMES[key_type(column)]
            raise ValueError(f"keys must be {before}, as before, got {now}")

    def positions(self, names: Any) -> Integers:
        """Return the positions of these keys; -1 for a new one."""
        from pyarrow import compute

        self.check_type(names)
        few = FEW * len(names) < self._count
        self._searches += few
        if self._index is None and few and self._searches > 1:
            self._index = dict(zip(to_numpy(self.names).tolist(), range(self._count), strict=True))
        if self._index is not None:
            found = (self._index.get(name, -1) for name in to_numpy(names).tolist())
            return np.fromiter(found, np.int64, len(names))
        if not self._count:
            return np.full(len(names), -1)
        at = compute.index_in(names, value_set=self.names).fill_null(-1)
        return np.asarray(at.to_numpy(), np.int64)

    def find(self, key: Any) -> int:
        """Return the position of a key, or -1."""
        try:
            return int(self.positions(validate([key]))[0])
        except ValueError:
            return -1

    def prepare(self, names: Any) -> Callable[[], None]:
        """Return a function that adds new keys; calling it twice has the same effect as calling it once."""
        first, new = self._count, [names] if len(names) else []
        count = first + len(names)
        chunks = [*([self.names] if len(self._chunks) > MANY else self._chunks), *new]
        added = [] if self._index is None else to_numpy(names).tolist()

        def write() -> None:
            if self._index is not None:
                self._index.update(zip(added, range(first, count), strict=True))
            self._chunks, self._count = chunks, count

        return write


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
