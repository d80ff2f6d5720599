"""SciPy sparse matrices, with columns x0, x1, ..."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_CELLS = 2**28  # of the dense array: 2 GiB


def is_sparse(data: Any) -> bool:
    """Return whether data is a SciPy sparse matrix, without an import of SciPy."""
    return type(data).__module__.split(".")[0] == "scipy" and hasattr(data, "tocsc")


def to_dense(data: Any, beside: Any, named: Set[str]) -> tuple[NDArray[Any], list[str]]:
    """Return the columns that have an entry or are in ``named``, as a dense array, and their names.

    The others would affect distances only by rounding. Columns of ``beside``, the data with which this will be
    concatenated, are needed too.
    """
    if data.ndim != 2 or data.dtype.kind not in "biuf" or 0 in data.shape:
        raise ValueError(f"data must be a matrix of real numbers, got {data.dtype} of shape {data.shape}")
    matrix, width = data.tocsc(), data.shape[1]
    used = np.union1d(_nonempty(matrix), _positions(named, width))
    if beside is not None:
        used = np.union1d(used, _nonempty(beside) if is_sparse(beside) and beside.ndim == 2 else np.arange(width))
        used = used[used < width]  # ``beside`` may be wider; it is rejected later
    used = used if len(used) else np.zeros(1, np.intp)
    if matrix.shape[0] * len(used) > MAX_CELLS:
        raise ValueError(
            f"a sparse matrix must have at most {MAX_CELLS:,} cells as a dense array, got {matrix.shape[0]:,} x "
            f"{len(used):,}; reduce its columns first"
        )
    return matrix[:, used].toarray(), [f"x{i}" for i in used.tolist()]


def without(data: Any, names: Set[str]) -> Any:
    """Return the matrix without these columns."""
    return data.tocsr()[:, np.setdiff1d(np.arange(data.shape[1]), _positions(names, data.shape[1]))] if names else data


def _nonempty(data: Any) -> NDArray[np.intp]:
    """Return the columns that have an entry."""
    return np.flatnonzero(np.diff(data.tocsc().indptr))


def _positions(names: Set[str], width: int) -> NDArray[np.intp]:
    """Return the positions of these names among the columns x0, x1, ..."""
    positions = [int(name[1:]) for name in names if name[:1] == "x" and name[1:].isdecimal()]
    return np.array([position for position in positions if position < width], np.intp)
