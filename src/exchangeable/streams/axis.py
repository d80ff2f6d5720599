"""Orders as numbers on the axis of a chart."""

from __future__ import annotations

from typing import Any

import numpy as np

from exchangeable import plots
from exchangeable.protocols import Floats


def is_dated(column: Any) -> bool:
    """Return whether a column holds dates or times."""
    from pyarrow import types

    return bool(types.is_temporal(column.type))


def axis_values(column: Any) -> Floats:
    """Return the numbers of a column; of dates and times the microseconds since 1970."""
    values = column.to_numpy(zero_copy_only=False)
    return np.asarray(values.astype("datetime64[us]").view(np.int64) if is_dated(column) else values, np.float64)


def axis_days(values: Floats) -> Floats:
    """Return microseconds since 1970 as positions on an axis of dates."""
    return plots.positions(values.astype(np.int64).view("datetime64[us]"))[1:]
