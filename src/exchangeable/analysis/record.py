"""A result as plain data: a record, and columns with one value for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exchangeable.analysis.columns import is_weighted
from exchangeable.martingale import LN10

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result


def path_columns(result: Result) -> dict[str, Any]:
    """Return the columns of `Result.frame`."""
    rows = result.timeline.rows if result.split is None else result.split.rows
    times = result.timeline.times
    return {
        **({} if rows is None else {"row": rows}),
        **({} if times is None else {"time": times}),
        "n": result.path.n,
        "p": result.path.p,
        "log10_martingale": result.path.log_value / LN10,
        "alarm": result.path.alarm,
        **({"log10_evidence": result.log_evidence / LN10} if is_weighted(result.tests) else {}),
    }


def result_record(result: Result) -> dict[str, Any]:
    """Return the record of `Result.to_dict`."""
    restarts, change = result.verdict.on_alarm == "restart", result.change
    amounts = {name: None if restarts else getattr(result, name) for name in ("e_value", "p_value")}
    return {
        **result.verdict._asdict(),
        **{name: value if isinstance(value, float) else None for name, value in amounts.items()},
        "features": result.features,
        "label": result.table.label,
        "time_column": result.table.time_name,
        "rejected_at_time": result.rejected_at_time,
        "changepoint_time": result.changepoint_time,
        "schema": dict(result.schema),
        "schema_differences": result.schema_differences,
        "same_columns": result.same_columns,
        "columns_tested": len(result.column_tests),
        "views_tested": len(result.view_tests),
        "log10_evidence": result.log10_evidence,
        "rejected_by": result.rejected_by,
        "departure": None if result.departure is None else result.departure._asdict(),
        "change": None if change is None else change._asdict(),
        "notes": result.notes,
    }
