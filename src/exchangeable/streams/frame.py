"""The result as a frame of the library of the data."""

from __future__ import annotations

from typing import Any

from exchangeable.streams.summary import FleetTest
from exchangeable.validation import format_value


def to_frame(result: FleetTest) -> Any:
    """Return a Polars frame, an Arrow table, or for any other library a pandas frame."""
    import pyarrow as pa

    table = pa.table(result.columns if result.steps is None else result.steps)
    if result.library == "pyarrow":
        return table
    if result.library == "polars":
        import polars as pl

        return pl.from_arrow(table)
    frame = table.to_pandas()
    for name in ("alarm_at", "changepoint", "alarm_row", "change_row"):
        if name in frame:
            frame[name] = frame[name].astype("Int64")
    return frame


def check_names(key: str, order: str | None, *, steps: bool) -> None:
    """Check that the key, and for steps the order, are not named like a column of the result."""
    ours = STEPS if steps else SUMMARY
    for role, name in (("key", key), ("order", order if steps else None)):
        if name in ours:
            raise ValueError(f"{role} must not be named {format_value(name)}, like a column of the result: rename it")


SUMMARY = frozenset(
    (
        *("n", "log10_martingale", "log10_max", "p_value", "alarm_at", "changepoint", "alarm_row", "alarm_time"),
        *("change_row", "change_time", "discovered", "refused", "seed", "log_value"),
    )
)
STEPS = frozenset(["row", "n", "p", "log10_martingale", "alarm", "changepoint", "test"])
