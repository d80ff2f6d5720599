"""Choices that do not depend on the order of columns: the order for distances, the seed, and the streams of columns.

So the same table gives the same result, bit for bit, whatever the order of its columns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.table import Table, TableColumn
from exchangeable.protocols import Floats
from exchangeable.pvalues import SEED_BITS

COLUMN_STREAMS = 16  # streams of random numbers below this are for full rows
BACKWARD_STREAMS = 2**31  # streams from here on are for columns read backwards


def column_order(table: Table) -> NDArray[np.intp]:
    """Return the positions of the features, sorted by the names of their columns; digits in names compare as numbers.

    Distances are sums over features, and a sum of floats depends on its order in the last digit. Constant columns are
    left out, unless all are constant.

    >>> columns = [TableColumn("x10", 0, 1, False), TableColumn("x2", 1, 2, False)]
    >>> column_order(Table(np.eye(2), None, ["x10", "x2"], "t", columns)).tolist()
    [1, 0]
    """
    columns = _by_name(table)
    varying = [column for column in columns if not constant(table.X[:, column.start : column.stop])]
    return np.concatenate([np.arange(column.start, column.stop) for column in varying or columns])


def table_seed(table: Table) -> int:
    """Return the default seed of a table: a hash of its rows *in order*, with columns sorted by name.

    Given the bag of rows, the seed still varies with their order. A hash of the bag alone would make the tie-breaking
    a constant given the data, but the guarantee is an average over the tie-breaking. Equal values have equal hashes:
    ``-0.0`` counts as ``0.0``, and a category as its text. Constant columns are ignored. O(n d).
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts(table):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return int.from_bytes(digest.digest(), "little") >> (64 - SEED_BITS)


def column_stream(name: str, *, backwards: bool = False) -> int:
    """Return the stream of random numbers of a column: a hash of its name, so its position does not matter.

    Two names may share a stream (one pair in 2^31). This is valid: the tests of columns may depend on one another.
    """
    digest = hashlib.blake2b(_text(name), digest_size=8).digest()
    number = int.from_bytes(digest, "little") % (BACKWARD_STREAMS - 2 * COLUMN_STREAMS)
    return COLUMN_STREAMS + number + (BACKWARD_STREAMS if backwards else 0)


def constant(values: Floats) -> bool:
    """Return whether all rows are equal. Their p-values then depend on the tie-breaking only, not on the data.

    >>> constant(np.array([2.0, 2.0])), constant(np.array([[1.0, 2.0], [1.0, 3.0]]))
    (True, False)
    """
    return bool((values == values[:1]).all())


def _parts(table: Table) -> Iterator[bytes]:
    """Yield the values, column by column, without the constant ones; the label comes last."""
    for column in _by_name(table):
        X = table.X[:, column.start : column.stop]
        if constant(X):
            continue
        if column.categorical:
            names = [name.removeprefix(f"{column.name}=") for name in table.features[column.start : column.stop]]
            yield b"categories"
            yield from (_text(names[i]) for i in X.argmax(axis=1).tolist())
        else:
            yield b"numbers"
            yield _bytes(X[:, 0])
    if isinstance(table.y, list):
        yield b"label: classes"
        yield from (_text(str(label)) for label in table.y)
    elif table.y is not None:
        yield b"label: numbers"
        yield _bytes(table.y)


def _bytes(values: Floats) -> bytes:
    return (np.ascontiguousarray(values, "<f8") + 0.0).tobytes()  # turns -0.0 into 0.0


def _text(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _by_name(table: Table) -> list[TableColumn]:
    return sorted(table.columns, key=lambda column: _natural(column.name))


def _natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """Return a sort key: text alphabetically, digits as numbers; then the name itself."""
    parts = [(part.isdecimal(), part.lstrip("0")) for part in re.findall(r"[0-9]+|[^0-9]+", name)]
    return [(digits, len(part) if digits else 0, part) for digits, part in parts], name
