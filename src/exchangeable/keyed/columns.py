"""What is known of many streams, as columns: a row for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed import keys
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged, placed
from exchangeable.protocols import Floats, Integers


class Columns(NamedTuple):
    """The state of many streams. It is never changed in place: a call works on copies of the rows that it needs."""

    names: Any  # the keys, an Arrow column
    whole: Integers  # whole and real numbers: see native/keyed.c
    real: Floats
    bet: Floats
    alarm: Floats
    spans: Ragged  # ranges of missing numbers: the first and the last of each
    pool: Bins | Scores | None
    checked: NDArray[np.bool_]  # whether the states of bet and alarm obey their laws, if they were stored

    @classmethod
    def empty(cls, bet: Floats, alarm: Floats, pool: Bins | Scores | None) -> Columns:
        """No streams, of a recipe with such states of bet and alarm."""
        whole, real = np.empty((0, native.KEYED_INTEGERS), np.int64), np.empty((0, native.KEYED_REALS))
        states = np.empty((0, len(bet))), np.empty((0, len(alarm)))
        spans = Ragged.of(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(None, whole, real, *states, spans, pool, np.empty(0, np.bool_))

    def take(self, places: Integers, events: Integers, bet: Floats, alarm: Floats) -> Columns:
        """Copies of the rows at these places, to which so many events may come. O(their size).

        A place of -1 is a new row, with these states of bet and alarm, and a seed yet to be set.
        """
        whole = np.zeros(native.KEYED_INTEGERS, np.int64)
        whole[[native.KEYED_ALARM, native.KEYED_CHANGE, native.KEYED_TEST]] = -1, -1, 1
        known = places >= 0
        used = np.zeros(len(places), np.int64)
        used[known] = self.spans.used[places[known]]
        return Columns(
            None,
            _rows(self.whole, places, whole),
            _rows(self.real, places, np.zeros(native.KEYED_REALS)),
            _rows(self.bet, places, bet),
            _rows(self.alarm, places, alarm),
            self.spans.take(places, 2 * native.KEYED_SPANS - used),
            None if self.pool is None else self.pool.take(places, events),
            _rows(self.checked, places, np.True_),
        )

    def put(self, places: Integers, rows: Columns) -> Columns:
        """All rows with those in these places, some of them beyond the end: their names are new. O(all), a copy."""
        return Columns(
            keys.joined(self.names, rows.names),
            placed(self.whole, places, rows.whole),
            placed(self.real, places, rows.real),
            placed(self.bet, places, rows.bet),
            placed(self.alarm, places, rows.alarm),
            self.spans.put(places, rows.spans),
            None if self.pool is None else self.pool.put(places, rows.pool),  # type: ignore[arg-type]
            placed(self.checked, places, rows.checked),
        )


def _rows(table: NDArray[Any], places: Integers, fresh: Any) -> NDArray[Any]:
    rows = np.empty((len(places), *table.shape[1:]), table.dtype)
    known = places >= 0
    rows[known], rows[~known] = table[places[known]], fresh
    return rows
