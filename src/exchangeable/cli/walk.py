"""A monitor's way through a table, with a progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import exchangeable as ex
from exchangeable.cli.output import progress_bars

if TYPE_CHECKING:
    from exchangeable.protocols import Floats

CHUNK = 1024  # examples between two movements of the progress bar


def walk(monitor: ex.Monitor, X: Floats, y: Any, name: str) -> ex.Path:
    """Extend the monitor in chunks, with a progress bar in proportion to the work (quadratic in examples of rows)."""
    parts = []
    with progress_bars() as progress:
        for lo in range(0, len(X), CHUNK):
            progress(name, lo**X.ndim, len(X) ** X.ndim)
            chunk = slice(lo, lo + CHUNK)
            parts.append(monitor.extend(X[chunk], None if y is None else y[chunk]))
    return ex.Path.join(parts)
