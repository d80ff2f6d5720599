"""Repeated observations: an equal one is counted and has no effect, a different one under a used seq is rejected."""

from __future__ import annotations

import sqlite3
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from exchangeable.keyed import sequence
from exchangeable.protocols import Floats
from exchangeable.service import history
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.schema import load_json
from exchangeable.service.stream import LiveStream


class Deduplicator:
    """Splits the observations of a stream into new ones and repeats of those that were accepted before."""

    def __init__(self, connection: sqlite3.Connection, stream: LiveStream) -> None:
        self.connection = connection
        self.stream = stream

    def split(self, batch: Batch) -> tuple[Batch, int]:
        """Return the new observations and the number of repeats. A gap or a different repeat is rejected."""
        steps, known, fault = sequence.classify_in_turn(
            batch.seq.tolist(), self.stream.next_seq, partial(_equal_observations, batch)
        )
        if fault is not None and fault.kind == sequence.GAP:
            raise self._gap(fault.number, fault.expected)
        if fault is not None:
            raise self._different(fault.number)
        for _, run in groupby(enumerate(sorted(known)), lambda pair: pair[1] - pair[0]):  # consecutive seqs
            self._compare(batch.select([known[seq] for _, seq in run]))
        return batch.select(steps), len(batch) - len(steps)

    def _compare(self, batch: Batch) -> None:
        """Compare repeats of consecutive seqs with what is stored; pruned observations are not compared."""
        first, last = int(batch.seq[0]), int(batch.seq[-1])
        stored = history.observations(self.connection, self.stream.id, first, last)
        x = _with_width(stored.x, batch.x.shape[1])
        same = ~stored.stored | ((stored.width == batch.x.shape[1]) & (x == batch.x).all(axis=1))  # -0.0 equals 0.0
        late = stored.extra.get("late")
        for field in ("y", "id", "time", "row"):
            before, now = stored.extra.get(field), getattr(batch.extras, field)
            if before is None and now is None:
                continue
            for i in np.flatnonzero(stored.stored).tolist():
                value, repeated = before[i] if before else None, now[i] if now else None
                if field == "y" and late and late[i] and repeated is None:
                    value = None  # the label arrived later
                same[i] &= _equal(value, repeated)
        for seq, body in self._set_aside(first, last):
            same[seq - first] = _equal_to_body(batch, seq - first, body)
        if not same.all():
            raise self._different(first + int(np.flatnonzero(~same)[0]))

    def _set_aside(self, first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
        """Return the observations that wait for a label, or whose label never arrived."""
        if not self.stream.configuration.needs_labels:
            return []
        between = (self.stream.id, first, last)
        rows = self.connection.execute(
            "SELECT seq, body FROM waiting WHERE stream = ? AND seq BETWEEN ? AND ?"
            " UNION ALL SELECT seq, body FROM expired WHERE stream = ? AND seq BETWEEN ? AND ?",
            between + between,
        )
        return [(seq, load_json(body)) for seq, body in rows]

    def _gap(self, seq: int, expected: int) -> Problem:
        message = f"seq must be {expected}, the next of stream {self.stream.name!r}, got {seq}"
        return Problem(409, "gap", message, expected_seq=expected, seq=seq)

    def _different(self, seq: int) -> Problem:
        message = f"seq {seq} of stream {self.stream.name!r} was used for a different observation"
        return Problem(422, "different", message, seq=seq, expected_seq=self.stream.next_seq)


def _with_width(x: Floats, width: int) -> Floats:
    if x.shape[1] >= width:
        return np.ascontiguousarray(x[:, :width])
    return np.full((len(x), width), np.nan)


def _equal(left: Any, right: Any) -> bool:
    """Return whether two labels, ids or times are equal; a string never equals a number."""
    return bool(left == right) and isinstance(left, str) == isinstance(right, str)


def _equal_observations(batch: Batch, i: int, k: int) -> bool:
    rows = bool((batch.x[i] == batch.x[k]).all())
    return rows and all(column is None or _equal(column[i], column[k]) for column in batch.extras)


def _equal_to_body(batch: Batch, i: int, body: dict[str, Any]) -> bool:
    """Return whether an observation equals the one that was set aside, whose label may have arrived since."""
    row = batch.x[i].tolist()
    repeated = {field: column[i] if column else None for field, column in batch.extras._asdict().items()}
    return row == body["x"] and all(_equal(body.get(field), repeated[field]) for field in ("y", "id", "time"))
