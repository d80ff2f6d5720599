"""SciPy sparse matrices, with columns x0, x1, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CELLS = 2**28  # of the dense array: 2 GiB
PROJECTIONS = 256  # columns of a matrix that is too large for a dense array
BLOCK = 16  # projections computed at a time


def is_sparse(data: Any) -> bool:
    """Return whether data is a SciPy sparse matrix, without importing SciPy."""
    return type(data).__module__.split(".")[0] == "scipy" and hasattr(data, "tocsc")


def to_dense(data: Any, beside: Any = None) -> tuple[NDArray[Any], list[str], tuple[str, ...]]:
    """Return the columns that have an entry as a dense array, their names, and notes.

    The other columns would affect distances only by rounding. Columns of ``beside``, the data with which this will be
    compared, are needed too. A matrix that is too large is projected at random, see `project`.
    """
    if data.ndim != 2 or data.dtype.kind not in "biuf" or 0 in data.shape:
        raise ValueError(f"data must be a matrix of real numbers, got {data.dtype} of shape {data.shape}")
    matrix, width, rows = data.tocsc(), data.shape[1], data.shape[0]
    used = _nonempty(matrix)
    if beside is not None:
        used = np.union1d(
            used, _nonempty(beside.tocsc()) if is_sparse(beside) and beside.ndim == 2 else np.arange(width)
        )
        used, rows = used[used < width], rows + _length(beside)
    used = used if len(used) else np.zeros(1, np.intp)
    if rows * len(used) <= MAX_CELLS:
        return matrix[:, used].toarray(), [f"x{i}" for i in used.tolist()], ()
    note = f"the matrix has {width:,} columns, so its rows were projected at random to {PROJECTIONS} dimensions"
    return project(matrix), [f"projection {i + 1}" for i in range(PROJECTIONS)], (note,)


def project(matrix: Any) -> NDArray[np.float64]:
    """Multiply by random signs, the same for every matrix of this width: a projection that nearly preserves distances.

    The signs do not depend on the data, and each row is a sum over its own entries, in the order of the columns. So
    equal rows have equal projections, bit for bit, and the rows stay exchangeable. O(256 x entries).

    Reference: Achlioptas, *Database-friendly random projections* (2003).
    """
    rows = matrix.tocsr().astype(np.float64)
    rows.sum_duplicates()  # and sorts the entries of each row
    random = np.random.default_rng(0)
    blocks = []
    for _ in range(0, PROJECTIONS, BLOCK):
        signs = random.integers(0, 2, (matrix.shape[1], BLOCK), np.int8)
        blocks.append(rows @ (2.0 * signs - 1.0))
    return np.concatenate(blocks, axis=1)


def select(data: Any, names: Sequence[str]) -> Any:
    """Return the matrix with these columns only, in its own order; all of it if it was projected."""
    positions = sorted(int(name[1:]) for name in names if name[0] == "x")
    return data.tocsr()[:, positions] if positions else data


def _length(data: Any) -> int:
    return int(data.shape[0]) if hasattr(data, "shape") else len(data)


def _nonempty(matrix: Any) -> NDArray[np.intp]:
    """Return the columns that have an entry."""
    return np.flatnonzero(np.diff(matrix.indptr))
