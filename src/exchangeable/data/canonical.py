"""Choices that do not depend on the order of columns: the seed of a table, and the streams of its columns.

So the same table gives the same result, bit for bit, whatever the order of its columns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.table import Table, TableColumn, constant
from exchangeable.protocols import Floats
from exchangeable.pvalues import SEED_BITS

COLUMN_STREAMS = 16  # streams of random numbers below this are for full rows
BACKWARD_STREAMS = 2**31  # streams from here on are for columns read backwards
CHUNK = 2**16  # values that are hashed at a time


def table_seed(table: Table) -> int:
    """Return the default seed of a table: a hash of its rows *in order*, with columns sorted by name.

    Given the bag of rows, the seed still varies with their order. A hash of the bag alone would make the tie-breaking
    a constant given the data, but the guarantee is an average over the tie-breaking. Equal values have equal hashes:
    ``-0.0`` counts as ``0.0``, and a category as its text. Constant columns are ignored. O(n d).
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts(table):
        digest.update(part)
    return int.from_bytes(digest.digest(), "little") >> (64 - SEED_BITS)


def column_stream(name: str, *, backwards: bool = False) -> int:
    """Return the stream of random numbers of a column: a hash of its name, so its position does not matter.

    Two names may share a stream (one pair in 2^31). This is valid: the tests of columns may depend on one another.
    """
    digest = hashlib.blake2b(_text(name), digest_size=8).digest()
    number = int.from_bytes(digest, "little") % (BACKWARD_STREAMS - 2 * COLUMN_STREAMS)
    return COLUMN_STREAMS + number + (BACKWARD_STREAMS if backwards else 0)


def row_hashes(columns: Sequence[TableColumn]) -> NDArray[np.uint64]:
    """Return a hash of each row of these columns. Few columns are in memory at a time, however wide the table is.

    >>> row_hashes([TableColumn("x", np.array([0.0, 1.0, -0.0]))])[[0, 2]].tolist()
    [0, 0]
    """
    keys = np.zeros(len(columns[0].values), np.uint64)
    for column in columns:
        keys = (keys ^ (column.values + 0.0).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)  # + 0.0: -0.0 is 0.0
        keys ^= keys >> np.uint64(32)
    return keys


def by_name(columns: Sequence[TableColumn]) -> list[TableColumn]:
    """Return the columns sorted by name; digits in names compare as numbers.

    >>> [column.name for column in by_name([TableColumn("x10", np.zeros(1)), TableColumn("x2", np.zeros(1))])]
    ['x2', 'x10']
    """
    return sorted(columns, key=lambda column: _natural(column.name))


def _parts(table: Table) -> Iterator[bytes]:
    """Yield the values, column by column, without the constant ones; the label comes last."""
    for column in by_name(table.columns):
        if constant(column.values):
            continue
        if column.categories is None:
            yield _framed(b"numbers") + _framed(_bytes(column.values))
        else:
            yield _framed(b"categories")
            yield from _texts(column.categories, column.values.astype(np.intp).tolist())
    if isinstance(table.y, list):
        classes = {label: i for i, label in enumerate(dict.fromkeys(table.y))}
        yield _framed(b"label: classes")
        yield from _texts(list(map(str, classes)), [classes[label] for label in table.y])
    elif table.y is not None:
        yield _framed(b"label: numbers") + _framed(_bytes(table.y))


def _texts(categories: Sequence[str], codes: Sequence[int]) -> Iterator[bytes]:
    framed = [_framed(_text(category)) for category in categories]
    for start in range(0, len(codes), CHUNK):
        yield b"".join([framed[code] for code in codes[start : start + CHUNK]])


def _framed(part: bytes) -> bytes:
    return len(part).to_bytes(8, "little") + part


def _bytes(values: Floats) -> bytes:
    return (np.ascontiguousarray(values, "<f8") + 0.0).tobytes()  # turns -0.0 into 0.0


def _text(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a sort key: text alphabetically, digits as numbers; then the name itself."""
    parts = [(part.isdecimal(), part.lstrip("0")) for part in re.findall(r"[0-9]+|[^0-9]+", name)]
    return [(digits, len(part) if digits else 0, part) for digits, part in parts], name
