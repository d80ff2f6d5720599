"""Observations that come again: the same is counted and has no effect, another under a used seq is refused."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import numpy as np

from exchangeable.protocols import Floats
from exchangeable.service import history
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.stream import LiveStream


class Repeats:
    """Which observations of a batch are new, and whether the others are what was taken before."""

    def __init__(self, connection: sqlite3.Connection, live: LiveStream) -> None:
        self.connection = connection
        self.live = live

    def split(self, batch: Batch) -> tuple[Batch, int]:
        """The new observations, and how many repeats there were."""
        expected, seq = self.live.next_seq, batch.seq
        if len(seq) > 1 and not (np.diff(seq) == 1).all():
            return self._scattered(batch)
        old = max(min(expected - int(seq[0]), len(seq)), 0)
        if seq[old:].size and seq[old] != expected:
            raise self._gap(int(seq[old]), expected)
        if old:
            self._compare(batch.part(0, old))
        return batch.part(old, len(seq)), old

    def _scattered(self, batch: Batch) -> tuple[Batch, int]:
        """A batch with repeats of its own, or in another order: each stands in its turn."""
        expected = self.live.next_seq
        new: list[int] = []
        old: dict[int, int] = {}
        for place, seq in enumerate(batch.seq.tolist()):
            if seq == expected + len(new):
                new.append(place)
            elif seq > expected + len(new):
                raise self._gap(seq, expected + len(new))
            elif seq < expected:
                if seq in old and not _alike(batch, place, batch, old[seq]):
                    raise self._different(seq)
                old[seq] = place
            elif not _alike(batch, place, batch, new[seq - expected]):
                raise self._different(seq)
        known = sorted(old)
        starts = [i for i, seq in enumerate(known) if i == 0 or seq != known[i - 1] + 1]
        for start, stop in zip(starts, [*starts[1:], len(known)], strict=True):  # runs of consecutive seqs
            self._compare(batch.taken([old[seq] for seq in known[start:stop]]))
        return batch.taken(new), len(batch) - len(new)

    def _compare(self, batch: Batch) -> None:
        """Hold repeats of consecutive seqs against what is stored; what has been pruned can only be believed."""
        first, last = int(batch.seq[0]), int(batch.seq[-1])
        found = history.observations(self.connection, self.live.id, first, last)
        x = _fitted(found.x, batch.x.shape[1])
        same = ~found.stored | ((found.width == batch.x.shape[1]) & _bits(x, batch.x))
        late = found.extra.get("late")
        for key in ("y", "id", "time"):
            was, given = found.extra.get(key), getattr(batch.extras, key)
            if was is None and given is None:
                continue
            for place in np.flatnonzero(found.stored).tolist():
                before = was[place] if was else None
                if key == "y" and late and late[place]:
                    before = None if given is None or given[place] is None else before
                same[place] &= _equal(before, given[place] if given else None)
        for seq, body in self._set_aside(first, last):
            same[seq - first] = _told(batch, seq - first, body)
        if not same.all():
            raise self._different(first + int(np.flatnonzero(~same)[0]))

    def _set_aside(self, first: int, last: int) -> list[tuple[int, dict[str, Any]]]:
        """Observations that wait, or that waited in vain."""
        if not self.live.configuration.needs_labels:
            return []
        between = (self.live.id, first, last)
        rows = self.connection.execute(
            "SELECT seq, body FROM waiting WHERE stream = ? AND seq BETWEEN ? AND ?"
            " UNION ALL SELECT seq, body FROM expired WHERE stream = ? AND seq BETWEEN ? AND ?",
            between + between,
        )
        return [(seq, json.loads(body)) for seq, body in rows]

    def _gap(self, seq: int, expected: int) -> Problem:
        message = f"seq must go on with {expected} in stream {self.live.name!r}, got {seq}"
        return Problem(409, "gap", message, expected_seq=expected, seq=seq)

    def _different(self, seq: int) -> Problem:
        message = f"seq {seq} of stream {self.live.name!r} was used for a different observation"
        return Problem(422, "different", message, seq=seq, expected_seq=self.live.next_seq)


def _fitted(x: Floats, width: int) -> Floats:
    if x.shape[1] >= width:
        return np.ascontiguousarray(x[:, :width])
    return np.full((len(x), width), np.nan)


def _bits(left: Floats, right: Floats) -> Any:
    """Which rows are the same numbers; -0.0 is 0.0, as for every measure."""
    return (left == right).all(axis=1)


def _equal(left: Any, right: Any) -> bool:
    """Whether two labels, ids or times are the same; a text is never a number."""
    return bool(left == right) and isinstance(left, str) == isinstance(right, str)


def _alike(left: Batch, i: int, right: Batch, k: int) -> bool:
    rows = bool((left.x[i] == right.x[k]).all())
    columns = zip(left.extras, right.extras, strict=True)
    return rows and all(_equal(a[i] if a else None, b[k] if b else None) for a, b in columns)


def _told(batch: Batch, place: int, body: dict[str, Any]) -> bool:
    """Whether an observation is the one that was set aside; its label may have come since."""
    row = batch.x[place].tolist()
    given = {key: column[place] if column else None for key, column in batch.extras._asdict().items()}
    return row == body["x"] and all(_equal(body.get(key), given[key]) for key in ("y", "id", "time"))
