"""The result of a test of many streams as columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.errors import DataError
from exchangeable.fleet import e_bh
from exchangeable.keyed.report import Steps
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.streams.rows import Streams, unsorted_message
from exchangeable.streams.source import Wanted
from exchangeable.streams.tester import Curve, Outcome, best_curves
from exchangeable.table_monitor import TableMonitor

RESTARTED = "the capital after a restart is not evidence that the stream has changed"


class FleetTest(NamedTuple):
    """The result of a test of many streams: ``columns`` with a row for each, sorted by key."""

    wanted: Wanted
    library: str
    monitor: Monitor | TableMonitor
    seed: int
    alpha: float
    log_threshold: float  # the log capital that a discovery must have reached
    fleet_size: int  # the number of streams that e-BH counts
    columns: dict[str, Any]
    curves: dict[int, Curve]  # of the streams with most evidence, by their row
    rows: int  # of the data
    span: Any = None  # an Arrow array of the first and the last order of the data
    steps: dict[str, Any] | None = None

    @property
    def restarts(self) -> bool:
        """Whether tests start again after an alarm: then the capital is no evidence, and nothing is discovered."""
        return bool(self.monitor.on_alarm == "restart")

    @property
    def changed(self) -> bool:
        """Whether a stream is discovered; if tests restart, whether there was an alarm."""
        return bool(self.steps["alarm"].any()) if self.restarts and self.steps else len(self.discovered) > 0

    @property
    def discovered(self) -> Integers:
        """The rows of the discovered streams, those with most evidence first; none if tests restart."""
        at = np.flatnonzero(self.columns["discovered"])
        return at[np.argsort(-self.columns["log10_martingale"][at], kind="stable")]


class Tested(NamedTuple):
    """The result of one block."""

    streams: Streams  # without their numbers
    outcome: Outcome
    marks: dict[str, tuple[Integers, Any]]  # the positions of rows in the data, and their orders, at alarms and changes
    rows: tuple[Integers, Any] | None  # the same for all rows, if the steps are wanted


def tested(streams: Streams, outcome: Outcome) -> Tested:
    """Keep what the result needs."""
    start, raised = streams.bounds[:-1], outcome.alarm_at > 0
    alarm = np.where(raised, start + outcome.alarm_at - 1, -1)
    change = np.where(raised, start + np.maximum(outcome.changepoint, 0), -1)
    marks = {"alarm": streams.take(alarm), "change": streams.take(change)}
    rows = None if outcome.steps is None else streams.take(np.arange(len(streams.at)))
    none = np.empty(0, np.int64)
    return Tested(streams._replace(X=np.empty(0), y=None, at=none, order=None), outcome, marks, rows)


def join(
    parts: list[Tested], wanted: Wanted, alpha: float, streams: int | None, *, steps: bool, restarts: bool
) -> dict[str, Any]:
    """Return the fields of `FleetTest` that hold numbers."""
    import pyarrow as pa

    names = pa.concat_arrays([part.streams.names for part in parts])
    if len(parts) > 1 and len(names.unique()) < len(names):
        raise DataError(
            unsorted_message(next(key["values"] for key in names.value_counts().to_pylist() if key["counts"] > 1))
        )
    columns = _columns(wanted, names, parts, steps=steps)
    found = e_bh(columns["log_value"], alpha, streams=streams)
    columns["discovered"] = np.zeros_like(found.rejected) if restarts else found.rejected
    sorting = np.arange(len(names)) if len(parts) == 1 else pa.compute.sort_indices(names).to_numpy().astype(np.int64)
    if len(parts) > 1:
        columns = {name: _take(column, sorting) for name, column in columns.items()}
    first = np.cumsum([0, *(len(part.outcome.n) for part in parts)])
    curves = {int(first[i]) + t: curve for i, part in enumerate(parts) for t, curve in part.outcome.curves.items()}
    place = np.argsort(sorting)
    log_value = columns.pop("log_value")
    curves = best_curves({int(place[t]): curve for t, curve in curves.items()}, log_value)
    rows = _steps(wanted, parts, place) if steps else None
    head = _head(columns, log_value)
    numbers = {"log_threshold": found.log_threshold, "fleet_size": found.streams}
    return {**numbers, "columns": head, "curves": curves, "steps": rows}


def _columns(wanted: Wanted, names: Any, parts: list[Tested], *, steps: bool) -> dict[str, Any]:

    tested = [part.outcome for part in parts]
    n, log_value, log_max, alarm_at, changepoint = (
        np.concatenate([getattr(one, name) for one in tested])
        for name in ("n", "log_value", "log_max", "alarm_at", "changepoint")
    )
    columns: dict[str, Any] = {wanted.key: names, "n": n, "log_value": log_value, "log10_max": log_max / LN10}
    columns["p_value"] = p_values(log_max)
    raised = alarm_at > 0
    columns |= {"alarm_at": _masked(alarm_at, raised), "changepoint": _masked(changepoint, raised)}
    for name in ("alarm", "change"):
        rows = np.concatenate([part.marks[name][0] for part in parts]) + 1
        columns[f"{name}_row"] = _masked(rows, raised)
        if wanted.order is not None:
            columns[f"{name}_time"] = _joined([part.marks[name][1] for part in parts])
    columns["refused"] = np.concatenate([part.streams.refused for part in parts])
    return columns


def p_values(log_max: Floats) -> Floats:
    """Return one over the highest capital, a p-value that is valid at any time.

    One below the smallest float is rounded up to it, since a p-value must not be understated.

    >>> p_values(np.array([0.0, 1e4])).tolist()
    [1.0, 5e-324]
    """
    with np.errstate(under="ignore"):
        p = np.exp(-log_max)
    return np.where(p > 0.0, p, np.nextafter(0.0, 1.0))


def _head(columns: dict[str, Any], log_value: Floats) -> dict[str, Any]:
    """Return the columns in the order of the result."""
    key, n, *others = columns
    first = {key: columns[key], n: columns[n], "log10_martingale": log_value / LN10}
    middle = {name: columns[name] for name in others if name not in ("discovered", "refused")}
    return {**first, **middle, "discovered": columns["discovered"], "refused": columns["refused"]}


def _steps(wanted: Wanted, parts: list[Tested], place: Integers) -> dict[str, Any]:
    """Return one row for each example that was bet on; ``place`` is the row of each stream in the result."""
    import pyarrow as pa

    chunks = [
        part.streams.names.take(_arrow(np.repeat(np.arange(len(part.outcome.n)), part.outcome.n))) for part in parts
    ]
    columns: dict[str, Any] = {wanted.key: pa.concat_arrays(chunks)}
    if wanted.order is not None:
        columns[wanted.order] = _joined([part.rows[1] for part in parts if part.rows])
    columns["row"] = np.concatenate([part.rows[0] for part in parts if part.rows]) + 1
    steps = Steps(*map(np.concatenate, zip(*(part.outcome.steps or Steps.blank(0) for part in parts), strict=True)))
    change = _masked(steps.changepoint, steps.changepoint >= 0)
    p = steps.p if not np.isnan(steps.p).any() else _masked(steps.p, ~np.isnan(steps.p))
    columns |= {"n": steps.n, "p": p, "log10_martingale": steps.log_value / LN10, "alarm": steps.alarm}
    columns |= {"changepoint": change, "test": steps.test}
    if len(parts) == 1:
        return columns
    at = np.argsort(np.repeat(place, np.concatenate([part.outcome.n for part in parts])), kind="stable")
    return {name: _take(column, at) for name, column in columns.items()}


def _joined(columns: list[Any]) -> Any:
    """Join parts of a column, some of which may be in chunks."""
    import pyarrow as pa

    chunks = [chunk for column in columns for chunk in getattr(column, "chunks", [column])]
    return pa.chunked_array(chunks, columns[0].type).combine_chunks()


def _masked(values: NDArray[Any], present: NDArray[np.bool_]) -> Any:
    return _arrow(values, ~present)


def _arrow(values: Any, missing: Any = None) -> Any:
    import pyarrow as pa

    return pa.array(values, mask=missing)


def _take(column: Any, at: Integers) -> Any:
    return column[at] if isinstance(column, np.ndarray) else column.take(_arrow(at))
