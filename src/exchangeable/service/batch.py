"""Checking a batch of observations against its stream, before anything changes."""

from __future__ import annotations

import sqlite3
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.service.deduplication import Deduplicator
from exchangeable.service.late_labels import LabelQueue
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.stream import AnyPath, LiveStream
from exchangeable.service.stream_config import RateMeasure
from exchangeable.validation import LARGEST, format_value


class CheckedBatch(NamedTuple):
    """A batch that its stream accepts: the new observations, and how many were duplicates."""

    stream: LiveStream
    batch: Batch
    new: Batch
    duplicates: int
    path: Future[AnyPath] | None = None  # the steps of the new observations, if they are computed ahead


def check_batch(connection: sqlite3.Connection, stream: LiveStream, batch: Batch, now: float) -> CheckedBatch:
    """Separate new observations from duplicates; raise `Problem` if the stream cannot accept the batch."""
    new, duplicates = Deduplicator(connection, stream).split(batch)
    if len(new):
        _check_width(stream, new)
        _check_values(stream, new)
        _check_cap(stream, new)
        LabelQueue(connection, stream, now).check(new)
    return CheckedBatch(stream, batch, new, duplicates)


def _check_width(stream: LiveStream, new: Batch) -> None:
    width = new.x.shape[1]
    if stream.configuration.scalar and width != 1:
        raise Problem(422, "bad-observation", f"x must be one number in stream {stream.name!r}, got {width}")
    if stream.width is not None and width != stream.width:
        message = f"x must hold {stream.width} numbers in stream {stream.name!r}, got {width}"
        raise Problem(422, "bad-observation", message)


def _check_values(stream: LiveStream, new: Batch) -> None:
    measure = stream.configuration.measure
    if new.has_booleans and not isinstance(measure, RateMeasure):
        message = (
            f"x must hold numbers in stream {stream.name!r}, got true or false, which only streams of rates accept"
        )
        raise Problem(422, "bad-observation", message)
    if isinstance(measure, RateMeasure):
        _check_all(stream, new, np.isin(new.x, measure.values), f"be one of {format_value(measure.values)}")
    elif measure.kind == "p-values":
        _check_all(stream, new, (new.x > 0.0) & (new.x <= 1.0), "lie in (0, 1]")
    elif not stream.configuration.scalar:
        _check_all(stream, new, np.abs(new.x) <= LARGEST, f"be of magnitude at most {LARGEST:g}")


def _check_all(stream: LiveStream, new: Batch, valid: NDArray[np.bool_], rule: str) -> None:
    rows = valid.all(axis=1)
    if not rows.all():
        row = rows.argmin()
        seq, got = int(new.seq[row]), new.x[row][~valid[row]][0]
        message = f"x must {rule} in stream {stream.name!r}, got {got:g} at seq {seq}"
        raise Problem(422, "bad-observation", message, seq=seq)


def _check_cap(stream: LiveStream, new: Batch) -> None:
    cap, size = stream.configuration.cap, stream.pool_size() + stream.waiting
    if cap is not None and size + len(new) > cap:
        rule = f"stream {stream.name!r} holds at most {cap} examples and has {size}"
        raise Problem(409, "full", f"{rule}: reset it, or create one with a higher cap")
