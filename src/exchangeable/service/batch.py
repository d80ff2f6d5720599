"""Deciding on observations and labels before anything changes: what a stream accepts, and what it can test now."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable.data.events.schema import LateLabel
from exchangeable.service.deduplication import Deduplicator
from exchangeable.service.late_labels import LabelQueue, Ready
from exchangeable.service.late_rows import RowLabels, plan_row_labels
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem, invalid
from exchangeable.service.stream import AnyPath, LiveStream, Slices
from exchangeable.service.stream_config import RateMeasure, RiskMeasure, TableMeasure
from exchangeable.service.table_test import RowPath, TableTest
from exchangeable.validation import LARGEST, format_value

NOTHING = Ready(np.empty(0, np.int64), np.empty((0, 1)), None, {})


@dataclass
class Plan:
    """What a request changes in its stream. It is decided, and its steps may be computed, before the transaction."""

    stream: LiveStream
    queue: LabelQueue
    ready: Ready  # what is tested
    counts: dict[str, int]  # for the reply
    new: Batch | None = None  # observations that were accepted
    path: Callable[[], AnyPath] | None = None  # returns the steps, if they were computed ahead
    columns: str | None = None  # of `ready` as they are stored, if they were encoded ahead
    snapshot: bytes | None = None  # of the monitor after the steps, if one is due and was encoded ahead
    labels: RowLabels | None = None  # of rows of a table
    alarms: list[RowPath] | None = None  # that these labels raise, if they were consumed ahead


def plan_batch(connection: sqlite3.Connection, stream: LiveStream, batch: Batch, now: float) -> Plan:
    """Decide on a batch; raise `Problem` if the stream cannot accept it. Nothing changes."""
    new, duplicates = Deduplicator(connection, stream).split(batch.at(stream.next_seq))
    queue = LabelQueue(connection, stream, now)
    if len(new):
        _check_rows(stream, new)
        _check_width(stream, new)
        _check_values(stream, new)
        _check_cap(stream, new)
        queue.check(new)
    return Plan(stream, queue, queue.add(new), {"accepted": len(new), "duplicates": duplicates}, new)


def plan_labels(connection: sqlite3.Connection, stream: LiveStream, labels: list[LateLabel], now: float) -> Plan:
    """Decide on late labels; raise `Problem` if the stream cannot accept them. Nothing changes."""
    queue = LabelQueue(connection, stream, now)
    if stream.configuration.late_rows:
        none = {"accepted": 0, "duplicates": 0, "late": 0}
        return Plan(stream, queue, NOTHING, none, labels=plan_row_labels(queue, labels))
    if not stream.configuration.needs_labels:
        kind = stream.configuration.measure.kind
        advice = ", and its labels are columns of the rows" if kind == "table" else ""
        raise Problem(
            409, "conflict", f"stream {stream.name!r} does not use late labels: its measure is {kind}{advice}"
        )
    counts, ready = queue.label(labels)
    return Plan(stream, queue, ready, counts)


def steps_of(stream: LiveStream, ready: Ready) -> Slices[AnyPath]:
    """Test observations, in slices."""
    try:
        return (yield from stream.extending(ready.x, ready.y, ready.columns.get("row"), ready.late))
    except ValueError as error:
        raise invalid(error, "bad-observation", f"{error}") from error


def _check_rows(stream: LiveStream, new: Batch) -> None:
    """Check that a table gets rows, which fit its columns, and that others get x."""
    rows, test = new.extras.row, stream.monitor
    if not isinstance(test, TableTest):
        if rows is not None:
            kind = stream.configuration.measure.kind
            message = f"x must be given in stream {stream.name!r}, whose measure is {kind}, got row"
            raise Problem(422, "bad-observation", message)
        return
    if rows is None:
        raise Problem(422, "bad-observation", f"row must be given in stream {stream.name!r}, a table, got x")
    if test.monitor is None:
        raise no_reference(stream.name)
    if new.created not in (None, stream.created):
        raise Problem(409, "conflict", f"stream {stream.name!r} was replaced meanwhile: send the rows again")
    try:
        test.check(rows)
    except ValueError as error:
        i = next((i for i, row in enumerate(rows) if _is_rejected(test, row)), None)
        if i is None or new.lines is None:
            raise invalid(error, "bad-observation", f"stream {stream.name!r}: {error}") from error
        number = int(new.lines[i])
        problem = invalid(error, "bad-observation", f"{new.noun} {number}, stream {stream.name!r}: {error}")
        problem.extra |= {"line": number} if problem.status == 422 else {}
        raise problem from error


def _is_rejected(test: TableTest, row: dict[str, Any]) -> bool:
    try:
        test.check([row])
    except ValueError:
        return True
    return False


def no_reference(name: str) -> Problem:
    """Return the reply to rows of a stream that has no reference."""
    advice = f"send it with PUT /v1/streams/{name}/reference"
    return Problem(409, "conflict", f"stream {name!r} has no reference yet: {advice}")


def _check_width(stream: LiveStream, new: Batch) -> None:
    width = new.x.shape[1]
    if stream.configuration.scalar and width != 1:
        raise Problem(422, "bad-observation", f"x must be one number in stream {stream.name!r}, got {width}")
    if stream.width is not None and width != stream.width:
        message = f"x must hold {stream.width} numbers in stream {stream.name!r}, got {width}"
        raise Problem(422, "bad-observation", message)


def _check_values(stream: LiveStream, new: Batch) -> None:
    measure = stream.configuration.measure
    if isinstance(measure, TableMeasure):
        return
    if new.has_booleans and not isinstance(measure, (RateMeasure, RiskMeasure)):
        rule = f"x must hold numbers in stream {stream.name!r}"
        message = f"{rule}, got true or false, which only streams of rates and risks accept"
        raise Problem(422, "bad-observation", message)
    if isinstance(measure, RateMeasure):
        _check_all(stream, new, np.isin(new.x, measure.values), f"be one of {format_value(measure.values)}")
    elif isinstance(measure, RiskMeasure):
        lower, upper = measure.bounds
        _check_all(stream, new, (new.x >= lower) & (new.x <= upper), f"be a loss from {lower:g} to {upper:g}")
    elif measure.kind == "p-values":
        _check_all(stream, new, (new.x > 0.0) & (new.x <= 1.0), "lie in (0, 1]")
    elif not stream.configuration.scalar:
        _check_all(stream, new, np.abs(new.x) <= LARGEST, f"be of magnitude at most {LARGEST:g}")


def _check_all(stream: LiveStream, new: Batch, valid: NDArray[np.bool_], rule: str) -> None:
    rows = valid.all(axis=1)
    if not rows.all():
        row = int(rows.argmin())
        seq, got = int(new.seq[row]), new.x[row][~valid[row]][0]
        message = f"x must {rule} in stream {stream.name!r}, got {got:g} {new.place(row)}"
        raise Problem(422, "bad-observation", message, seq=seq)


def _check_cap(stream: LiveStream, new: Batch) -> None:
    cap, size = stream.configuration.cap, stream.pool_size() + stream.waiting
    if cap is not None and size + len(new) > cap:
        rule = f"stream {stream.name!r} holds at most {cap} examples and has {size}"
        raise Problem(409, "full", f"{rule}: reset it, or create one with a higher cap")
