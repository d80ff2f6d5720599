"""Rows sorted by key and order, in batches that may end anywhere, classified by the rules for sequence numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable import native
from exchangeable.keyed import sequence
from exchangeable.keyed.sequence import Classified, Events, History, Unfolded
from exchangeable.protocols import Integers
from exchangeable.spark import arrow
from exchangeable.spark.arrow import Flags


class Pending(NamedTuple):
    """The last rows of equal key and order, to which the next batch may add. At most three are stored."""

    rows: Any  # up to two valid rows, which differ if any two of the group do, and a bad row
    more: int  # further valid rows


class SortedRows:
    """The rows of a batch, after those that were pending, by stream.

    The last group of rows of equal key and order stays pending unless the input ends. Bad rows without an order belong
    to a stream, but have no position in it: they are not classified.
    """

    def __init__(self, batch: Any, pending: Pending | None, *, end: bool) -> None:
        self.rows: Any = batch if pending is None else arrow.concatenate(pending.rows, batch)
        self.bad: Flags = arrow.flags(self.rows["bad"].is_valid())
        same_key = arrow.equals_previous(self.rows["key"])
        unordered = arrow.lacks_order(self.rows["bad"])
        self._check_sorted(same_key, unordered)
        same = same_key & arrow.equals_previous(self.rows["order"]) & (unordered[1:] == unordered[:-1])
        self.starts: Integers = np.flatnonzero(np.concatenate([[True], ~same_key]))  # the first row of each stream
        self._group = np.cumsum(np.concatenate([[False], ~same]))
        self._more = 0 if pending is None else pending.more  # of group 0
        events = self._sort_events(np.flatnonzero(~unordered))
        done = len(events.order) if end else int(self._group[events.source].searchsorted(self._group[-1]))
        self.events: Events = events.slice(0, done)
        self._last_group = events.slice(done, len(events.order))

    @property
    def has_integer_orders(self) -> bool:
        """Whether orders are integers, of which some may be missing."""
        return bool(pa.types.is_integer(self.rows["order"].type))

    def classify(self, last: int | None, *, contiguous: bool) -> tuple[Unfolded, int | None]:
        """Return the rows of events and gaps, and the latest number of the last stream.

        ``last`` is the latest number of the first stream if it has had events before.
        """
        history = History.empty(len(self.starts))
        if last is not None and self.has_integer_orders:
            history.new[0], history.numbers[0, native.KEYED_LAST] = False, last
        classified = sequence.classify(self.events, history, contiguous=contiguous and self.has_integer_orders)
        if self._more and len(classified.kind):
            self._count_more(classified)
        seen = self.events.bounds[-1] > self.events.bounds[-2] or not history.new[-1]
        return sequence.unfold(self.events, classified), int(history.numbers[-1, native.KEYED_LAST]) if seen else None

    def _count_more(self, classified: Classified) -> None:
        """Add the valid rows that were not stored to the conflict or the duplicates of the first group."""
        classified.count[0 if classified.kind[0] == sequence.CONFLICT else 1] += self._more

    def pending(self) -> Pending:
        """Return what must be stored of the last group."""
        source, content, bad = self._last_group.source, self._last_group.content, self._last_group.bad
        valid = np.flatnonzero(~bad)
        different = valid[content[valid] != content[0]] if valid.size else valid
        stored = [*valid[:1], *(different if different.size else valid[1:])[:1], *np.flatnonzero(bad)[:1]]
        at = source[stored] if stored else [self.rows.num_rows - 1]  # a row without an order
        rows = self.rows.take(pa.array(at))
        more = self._more if self._group[-1] == 0 else 0
        return Pending(rows, more + len(valid) - min(len(valid), 2))

    def _sort_events(self, ordered: Integers) -> Events:
        """Return the rows that have an order as events, bad ones last in each group.

        ``content`` increases where a row differs from the one before it. If orders are not integers, the events have
        the numbers of their groups.
        """
        bad, group = self.bad, self._group
        source = ordered[np.lexsort((bad[ordered], group[ordered]))] if bad.any() else ordered
        repeated = np.flatnonzero(group[source[1:]] == group[source[:-1]]) + 1
        differs = np.zeros(len(source), np.int64)
        if repeated.size:
            differs[repeated] = ~arrow.rows_equal(self.rows, source[repeated], source[repeated - 1])
        integers = self.rows["order"].cast(pa.int64()).to_numpy() if self.has_integer_orders else group
        bounds = np.sort(source).searchsorted([*self.starts, self.rows.num_rows])
        return Events(bounds, integers[source], np.zeros(len(source)), np.cumsum(differs), bad[source], source)

    def _check_sorted(self, same_key: Flags, unordered: Flags) -> None:
        """Check that Spark has sorted the rows: otherwise the numbers would be wrong."""
        backwards = arrow.below_previous(self.rows["key"]) | (same_key & (unordered[1:] < unordered[:-1]))
        backwards |= same_key & ~unordered[1:] & arrow.below_previous(self.rows["order"])
        if backwards.any():
            raise RuntimeError("rows must be sorted by key and order, but are not: please report this as a bug")
