"""Many monitors of one recipe."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.fleet import stream_seed
from exchangeable.keyed import events as event_columns
from exchangeable.keyed import keys as key_columns
from exchangeable.keyed import recipe as recipes
from exchangeable.keyed import storage
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged
from exchangeable.keyed.report import Rows
from exchangeable.keyed.step import Pipeline
from exchangeable.measures import Frozen
from exchangeable.measures.pools import Scored
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import draw_seed
from exchangeable.validation import check_integer, format_value

MAX_DENSE_BINS = 1024  # with more bins, only the counts of bins in use are stored
MAX_DISTINCT = 2**20  # the largest value of ``most``


class Status(NamedTuple):
    """The status of one key."""

    n: int  # events that were bet on
    order: int  # the latest sequence number
    log_value: float  # of the current test
    log_max: float  # the highest of the test that the latest step belongs to
    alarm_at: int | None
    changepoint: int | None
    test: int  # the number of the current test, from 1
    full: bool  # whether the test has ended because the pool is full


class Statuses(NamedTuple):
    """The status of all keys as columns; ``alarm_at`` and ``changepoint`` are -1 without an alarm."""

    n: Integers
    order: Integers
    log_value: Floats
    log_max: Floats
    alarm_at: Integers
    changepoint: Integers
    test: Integers
    full: NDArray[np.bool_]


class Monitors:
    """Many monitors of one recipe, one for each key, stored as columns: one call consumes the events of all keys.

    The monitor of a key is ``Monitor(measure, bet, alarm, seed=stream_seed(seed, key), on_alarm=..)`` with copies of
    the recipe's parts. The numbers are the same, bit for bit, however the events are split into calls, and wherever
    between two calls the state was stored. The measure is `Value`, `Frozen` with bins, or `Precomputed`, and the bet is
    any but `SleeperDrifter`, whose state grows, so memory is bounded.

    **Events** have a key (all text, all bytes, or all integers), a sequence number ``order`` and a number ``x``: the
    value for `Value`, the number of the bin for `Frozen` (see ``recipe.measure.scores(X, y)``), and the p-value for
    `Precomputed`. Within a call they may be in any order; they are consumed in the order of their numbers. Events that
    are duplicates, late, in conflict or ``refused`` by the caller are reported and never bet on: see `Rows`.

    - Sequence numbers are ``contiguous``: 7 followed by 10 is reported as a gap of two, and betting continues with 10.
      A key can start with any number. With ``contiguous=False`` (timestamps) nothing is ever missing. Every number
      below the latest is then late, and the latest again is a duplicate.
    - Events with the same number within a call are duplicates if they are equal, otherwise a conflict. Which of them is
      right is not known, and choosing one would make the bet depend on the data.
    - At most 16 ranges of missing numbers are remembered for a key. A number from before them is reported as late.

    **The pool of `Value`** grows by each number not seen before, up to ``most`` of them. The step that fills it ends
    the test of that key: later events are reported as "full". Leaving out only new numbers would select events by their
    values, and the p-values would not be uniform on exchangeable data.

    Time: for bets with a compiled loop over streams (the jumpers, the mixtures, `Histogram`, `Sentinel`,
    `SleeperStayer`; `Power` and `Idle`) 2 microseconds per key and 1 per event; for others 20 to 300 per key. Memory
    per key, with `CompositeJumper` and `Ville`: 282 bytes, the key itself, and its pool: 8 bytes per bin for `Frozen`,
    encoded in 1, 2 or 4; 16 per distinct number for `Value`, encoded in 9 or more. `Sentinel` needs 3.6 kB, `Adaptive`
    91 kB, and `Plugin` 3 MB.

    ``seed=None`` draws a seed from the operating system; an integer makes a run repeatable. The seed is
    ``monitors.seed``, shown in the ``repr`` and stored with the state. The seed of the recipe is ignored. ``extra`` is
    any text that belongs to the state, such as the number of buckets into which keys are divided.

    A call that raises an error changes nothing. `Monitors` must not be used by several threads at once.

    >>> from exchangeable import bets, measures
    >>> monitors = Monitors(Monitor(measures.Value(), bets.CompositeJumper()), seed=7)
    >>> rows = monitors.extend(["b", "a", "a", "a"], [1, 5, 1, 2], [0.1, 0.2, 0.3, 0.4])
    >>> rows.key.tolist(), rows.order.tolist(), rows.n.tolist(), rows.details().tolist()[2]
    (['a', 'a', 'a', 'a', 'b'], [1, 2, 3, 5, 1], [1, 2, -1, 3, 1], 'orders 3 to 4 are missing')
    >>> twin = monitors.like(monitors.encode())
    >>> twin.extend(["a"], [6], [0.5]).p == monitors.extend(["a"], [6], [0.5]).p
    array([ True])
    """

    def __init__(
        self,
        recipe: Monitor,
        *,
        seed: int | None = None,
        contiguous: bool = True,
        most: int = 4096,
        extra: str = "",
    ) -> None:
        self.recipe: Monitor = recipes.validate(recipe)
        self.seed: int = draw_seed() if seed is None else check_integer("seed", seed, 0, 2**64 - 1)
        if not isinstance(contiguous, bool):
            raise ValueError(f"contiguous must be True or False, got {format_value(contiguous)}")
        self.contiguous = contiguous
        self.most: int = check_integer("most", most, 2, MAX_DISTINCT)
        if not isinstance(extra, str):
            raise ValueError(f"extra must be text, got {format_value(extra)}")
        self.extra = extra
        self._pipeline = Pipeline(self.recipe)
        pool = _pool(self.recipe.measure, self.most)
        self._empty = self._columns = Columns.empty(self._pipeline.bet.fresh, self._pipeline.alarm.fresh, pool)
        settings = {"seed": self.seed, "contiguous": contiguous, "most": self.most, "extra": extra}
        described = recipes.fingerprint(self.recipe, self._pipeline.bet.fresh, self._pipeline.alarm.fresh)
        self._fingerprint = described | {name: str(value) for name, value in settings.items()}

    def __repr__(self) -> str:
        recipe = self.recipe
        parts = f"{recipe.measure!r}, {recipe.martingale.bet!r}, {recipe.alarm!r}, on_alarm={recipe.on_alarm!r}"
        return f"<Monitors of {len(self)} keys: {parts}, seed={self.seed}>"

    def __len__(self) -> int:
        return len(self._columns.integers)

    def __contains__(self, key: object) -> bool:
        return key_columns.find(key, self._columns.names) >= 0

    def keys(self) -> NDArray[Any]:
        """Return all keys, in the order in which they first appeared."""
        return np.empty(0, object) if self._columns.names is None else key_columns.to_numpy(self._columns.names)

    def status(self, key: str | int | bytes) -> Status:
        """Return the status of a key after its latest event. O(keys)."""
        position = key_columns.find(key, self._columns.names)
        if position < 0:
            raise ValueError(f"key must be one of the {len(self)} that have had events, got {format_value(key)}")
        row = self._columns.integers[position : position + 1], self._columns.reals[position : position + 1]
        fields: dict[str, Any] = {name: column.item() for name, column in _statuses(*row)._asdict().items()}
        if fields["alarm_at"] < 0:
            fields |= {"alarm_at": None, "changepoint": None}
        return Status(**fields)

    def statuses(self) -> Statuses:
        """Return the status of all keys, in the order of ``keys()``. O(keys)."""
        return _statuses(self._columns.integers, self._columns.reals)

    # -------------------------------------------------------------- events

    def extend(
        self,
        keys: Any,
        order: ArrayLike,
        x: ArrayLike,
        refused: ArrayLike | None = None,
        content: ArrayLike | None = None,
    ) -> Rows:
        """Consume a batch of events, in any order. If one is invalid and not ``refused``, none is consumed.

        ``keys`` is a list, an array, or a column of pandas or Arrow. If ``refused`` is true, the caller rejects the
        event: its number counts as used, and its x is not read. Events with the same number are equal if both their x
        and their ``content`` are. ``content`` holds integers, such as hashes of the data that x was computed from: two
        events in the same bin need not be equal.
        """
        column = key_columns.validate(keys)
        columns = event_columns.validate(len(column), order, x, refused, content)
        if not len(column):  # an empty list has no type
            column = column if self._columns.names is None else self._columns.names[:0]
        groups = key_columns.group(column, self._columns.names)
        recipes.check_x(self.recipe.measure, groups.names, groups.code, columns)
        events = columns.sort(groups.code, len(groups.names))
        new = groups.position < 0
        rows = self._rows(groups, np.diff(events.bounds))
        classified = event_columns.classify(events, new, self.contiguous, rows)
        accepted = np.flatnonzero(classified.kind == native.KEYED_STEP)
        ends = np.searchsorted(accepted, events.bounds)
        steps = self._pipeline.extend(rows, ends[:-1], ends[1:], events.x[accepted])
        report = event_columns.build_rows(groups.names, events, classified, accepted, steps)
        positions = np.where(new, len(self) + np.cumsum(new) - 1, groups.position)
        self._columns = self._columns.put(positions, rows)
        return report

    def _rows(self, groups: key_columns.KeyGroups, events: Integers) -> Columns:
        """Copy the rows of these keys, with fresh ones for new keys; states that were loaded are checked."""
        bet, alarm = self._pipeline.bet, self._pipeline.alarm
        rows = self._columns.take(groups.position, events, bet.fresh, alarm.fresh)
        names = groups.names.filter(groups.position < 0)
        seeds = np.array([stream_seed(self.seed, key) for key in names.to_pylist()], np.uint64)
        rows.integers[groups.position < 0, native.KEYED_SEED] = seeds.view(np.int64)
        if not rows.checked.all():
            bet.check(rows.bet[~rows.checked])
            alarm.check(rows.alarm[~rows.checked])
            rows.checked[:] = True
        return rows._replace(names=names)

    # -------------------------------------------------------------- bytes

    def encode(self) -> bytes:
        """Return the state of all keys as bytes. Equal states give equal bytes. O(size).

        It is a ZIP archive like those of `snapshot`, with a description of the recipe and the columns.
        """
        return storage.encode(self._columns, self.fingerprint())

    @classmethod
    def decode(
        cls,
        data: bytes,
        recipe: Monitor,
        *,
        seed: int | None = None,
        contiguous: bool = True,
        most: int = 4096,
        extra: str = "",
    ) -> Monitors:
        """Return the monitors that were encoded; raise ValueError unless the state has this recipe and settings.

        ``seed=None`` uses the stored seed; an integer must be equal to it. To decode many states, build `Monitors` once
        and call ``like``.
        """
        seed = storage.seed_of(data) if seed is None else seed
        return cls(recipe, seed=seed, contiguous=contiguous, most=most, extra=extra).like(data)

    def like(self, data: bytes | None = None) -> Monitors:
        """Return monitors of the same recipe and settings: without keys, or those that were encoded."""
        other = copy.copy(self)
        other._columns = (
            self._empty if data is None else self._checked(storage.decode(data, self._empty, self._fingerprint))
        )
        return other

    def _checked(self, columns: Columns) -> Columns:
        """Check the states of bet and alarm: now if that is fast, otherwise when they are first used."""
        parts = (self._pipeline.bet, columns.bet), (self._pipeline.alarm, columns.alarm)
        for part, states in parts:
            if part.checks_are_fast:
                part.check(states)
        return columns._replace(checked=np.full(len(columns.checked), all(part.checks_are_fast for part, _ in parts)))

    def fingerprint(self) -> dict[str, str]:
        """Describe the recipe and the settings; a stored state can only be used with the same ones."""
        return dict(self._fingerprint)


def _statuses(integers: Integers, reals: Floats) -> Statuses:
    return Statuses(
        n=integers[:, native.TRACK_N].copy(),
        order=integers[:, native.KEYED_LAST].copy(),
        log_value=reals[:, native.KEYED_SUM] + reals[:, native.KEYED_CARRY],
        log_max=reals[:, native.TRACK_HIGH].copy(),
        alarm_at=integers[:, native.TRACK_ALARM].copy(),
        changepoint=integers[:, native.TRACK_CHANGE].copy(),
        test=integers[:, native.TRACK_TEST].copy(),
        full=integers[:, native.KEYED_FLAGS] & native.KEYED_FLAG_FULL != 0,
    )


def _pool(measure: Any, most: int) -> Bins | Scores | None:
    """Return an empty table of pools for this measure; None if it has no pool."""
    if isinstance(measure, Frozen) and measure.edges is not None:
        bins = len(measure.edges) + 1
        if bins <= MAX_DENSE_BINS:
            return Bins(np.empty((0, bins), np.int64))
        most = bins + 1  # never full
    if not isinstance(measure, Scored):
        return None
    return Scores(most, Ragged.of(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)))
