"""The state of many streams as columns, with a row for each stream."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed import keys
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged, with_rows
from exchangeable.protocols import Floats, Integers
from exchangeable.tracker import new_record


class Columns(NamedTuple):
    """The state of many streams. It is never changed in place: a call works on copies of the rows that it needs."""

    names: Any  # the keys, an Arrow column
    integers: Integers  # in the layout of native/keyed.c
    reals: Floats
    bet: Floats
    alarm: Floats
    spans: Ragged  # ranges of missing sequence numbers: the first and the last of each
    pool: Bins | Scores | None
    checked: NDArray[np.bool_]  # whether the states of bet and alarm have been validated since they were loaded

    @classmethod
    def empty(cls, bet: Floats, alarm: Floats, pool: Bins | Scores | None) -> Columns:
        """Return columns without streams; ``bet``, ``alarm`` and ``pool`` are fresh states."""
        integers, reals = np.empty((0, native.KEYED_INTEGERS), np.int64), np.empty((0, native.KEYED_REALS))
        states = np.empty((0, len(bet))), np.empty((0, len(alarm)))
        spans = Ragged.of(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(None, integers, reals, *states, spans, pool, np.empty(0, np.bool_))

    def take(self, positions: Integers, events: Integers, bet: Floats, alarm: Floats) -> Columns:
        """Copy the rows at these positions, with room for ``events[t]`` more events in the pool of row t.

        A position of -1 gives a new row, with these states of bet and alarm and the seed 0. O(size of these rows).
        """
        integers = np.zeros(native.KEYED_INTEGERS, np.int64)
        integers[: native.TRACK_INTEGERS] = new_record(0)[0]
        known = positions >= 0
        used = np.zeros(len(positions), np.int64)
        used[known] = self.spans.used[positions[known]]
        return Columns(
            None,
            _rows(self.integers, positions, integers),
            _rows(self.reals, positions, np.zeros(native.KEYED_REALS)),
            _rows(self.bet, positions, bet),
            _rows(self.alarm, positions, alarm),
            self.spans.take(positions, 2 * native.KEYED_SPANS - used),
            None if self.pool is None else self.pool.take(positions, events),
            _rows(self.checked, positions, np.True_),
        )

    def put(self, positions: Integers, rows: Columns) -> Columns:
        """Return a copy with these rows at the positions; those beyond the end are new, with ``rows.names``. O(all)."""
        return Columns(
            keys.concatenate(self.names, rows.names),
            with_rows(self.integers, positions, rows.integers),
            with_rows(self.reals, positions, rows.reals),
            with_rows(self.bet, positions, rows.bet),
            with_rows(self.alarm, positions, rows.alarm),
            self.spans.put(positions, rows.spans),
            None if self.pool is None else self.pool.put(positions, rows.pool),  # type: ignore[arg-type]
            with_rows(self.checked, positions, rows.checked),
        )


def _rows(table: NDArray[Any], positions: Integers, fresh: Any) -> NDArray[Any]:
    rows = np.empty((len(positions), *table.shape[1:]), table.dtype)
    known = positions >= 0
    rows[known], rows[~known] = table[positions[known]], fresh
    return rows
