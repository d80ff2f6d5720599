"""The state of all streams, which is changed in place."""

from __future__ import annotations

import numpy as np

from exchangeable import native
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.growing import RaggedTable, Table, Write
from exchangeable.keyed.keys import Keys
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.protocols import Floats, Integers
from exchangeable.tracker import new_record


class Store:
    """The state of all streams. A call takes copies of the rows that it needs, and writes them back at its end.

    ``joined`` counts the streams that there have ever been. ``version`` grows with every event and every deletion; what
    changed before ``known_since`` is not known.
    """

    def __init__(self, columns: Columns, joined: int = 0, version: int = 0) -> None:
        self.keys = Keys(columns.names)
        self.joined, self.version, self.known_since = joined, version, version
        self.integers, self.reals = Table(columns.integers), Table(columns.reals)
        self.bet, self.alarm, self.checked = Table(columns.bet), Table(columns.alarm), Table(columns.checked)
        self.changed = Table(np.full(len(columns.integers), version))  # the version after the latest change of a row
        self.spans = RaggedTable(columns.spans)
        self.pool = _pool_table(columns.pool)
        self._most = columns.pool.most if isinstance(columns.pool, Scores) else 0

    def take(self, positions: Integers, events: Integers | np.int64, bet: Floats, alarm: Floats) -> Columns:
        """Copy the rows at these positions, with room for ``events[t]`` more events in the pool of row t.

        A position of -1 gives a new row, with these states of bet and alarm and the seed 0. O(size of these rows).
        """
        integers = np.zeros(native.KEYED_INTEGERS, np.int64)
        integers[: native.TRACK_INTEGERS] = new_record(0)[0]
        spans_room = 2 * native.KEYED_SPANS - self.spans.lengths(positions)
        return Columns(
            None,
            self.integers.take(positions, integers),
            self.reals.take(positions, 0.0),
            self.bet.take(positions, bet),
            self.alarm.take(positions, alarm),
            self.spans.take(positions, spans_room),
            self._take_pool(positions, events),
            self.checked.take(positions, np.True_),
        )

    def select(self, positions: Integers) -> Columns:
        """Copy the rows at these positions, end to end, with their names."""
        return Columns(
            None if self.keys.names is None else self.keys.names.take(positions),
            self.integers.take(positions, 0),
            self.reals.take(positions, 0.0),
            self.bet.take(positions, 0.0),
            self.alarm.take(positions, 0.0),
            self.spans.take(positions, np.int64(0)),
            self._take_pool(positions, np.int64(0)),
            self.checked.take(positions, np.True_),
        )

    def _take_pool(self, positions: Integers, events: Integers | np.int64) -> Bins | Scores | None:
        if isinstance(self.pool, RaggedTable):
            return Scores(self._most, self.pool.take(positions, events))
        return None if self.pool is None else Bins(self.pool.take(positions, 0))

    def write(self, positions: Integers, rows: Columns, version: int) -> None:
        """Write the rows back; positions beyond the end are new streams, with ``rows.names``. O(size of these rows).

        Nothing changes if there is not enough memory. An interrupt, which can come at any time, finds all rows written.
        """
        write = self._prepare(positions, rows, version)
        try:
            write()
        except BaseException:
            write()
            raise

    def _prepare(self, positions: Integers, rows: Columns, version: int) -> Write:
        changed = np.full(len(positions), version)
        tables = [
            (self.integers, rows.integers),
            (self.reals, rows.reals),
            (self.bet, rows.bet),
            (self.alarm, rows.alarm),
            (self.checked, rows.checked),
            (self.changed, changed),
        ]
        self.spans = self.spans.with_room(positions, rows.spans.used)
        writes = [table.prepare(positions, new) for table, new in tables] + [self.spans.prepare(positions, rows.spans)]
        if isinstance(self.pool, RaggedTable) and isinstance(rows.pool, Scores):
            self.pool = self.pool.with_room(positions, rows.pool.rows.used)
            writes.append(self.pool.prepare(positions, rows.pool.rows))
        elif isinstance(self.pool, Table) and isinstance(rows.pool, Bins):
            writes.append(self.pool.prepare(positions, rows.pool.counts))
        writes.append(self.keys.prepare(rows.names))
        joined = max(self.joined, int(rows.integers[:, native.KEYED_JOINED].max(initial=0)))

        def write() -> None:
            for each in writes:
                each()
            self.joined, self.version = joined, version

        return write

    def follow(self, changes: Columns, joined: int, version: int) -> None:
        """Write the rows of streams that have changed since an earlier state, which is this one."""
        if len(changes.integers):
            positions = self.keys.positions(changes.names)
            new = positions < 0
            was, now = self.integers.rows[positions[~new]], changes.integers
            same = np.array_equal(was[:, native.KEYED_JOINED], now[~new, native.KEYED_JOINED])
            if not same or not np.array_equal(now[new, native.KEYED_JOINED], np.arange(self.joined, joined) + 1):
                raise ValueError("changes must be those of the state before them, got other streams")
            positions[new] = len(self.keys) + np.arange(new.sum())
            self.write(positions, changes._replace(names=changes.names.filter(new)), version)
        elif joined != self.joined:
            raise ValueError("changes must be those of the state before them, got other streams")
        self.version = version

    def without(self, positions: Integers) -> Store:
        """Return a copy without these streams. O(size)."""
        kept = np.ones(len(self.keys), np.bool_)
        kept[positions] = False
        at = np.flatnonzero(kept)
        other = Store(self.select(at), self.joined, self.version + len(positions))
        other.changed = Table(self.changed.rows[at])
        return other


def _pool_table(pool: Bins | Scores | None) -> Table | RaggedTable | None:
    if isinstance(pool, Scores):
        return RaggedTable(pool.rows)
    return None if pool is None else Table(pool.counts)
