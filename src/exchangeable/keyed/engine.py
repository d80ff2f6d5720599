"""Many monitors of one recipe."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.fleet import stream_seeds
from exchangeable.keyed import events as event_columns
from exchangeable.keyed import keys as key_columns
from exchangeable.keyed import recipe as recipes
from exchangeable.keyed import storage
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged
from exchangeable.keyed.report import Rows
from exchangeable.keyed.standings import Standings, Status, Statuses, standings, statuses
from exchangeable.keyed.step import Pipeline
from exchangeable.keyed.store import Store
from exchangeable.measures import Frozen
from exchangeable.measures.pools import Scored
from exchangeable.monitor import Monitor
from exchangeable.protocols import Integers
from exchangeable.pvalues import draw_seed
from exchangeable.validation import check_integer, format_value

MAX_DENSE_BINS = 1024  # with more bins, only the counts of bins in use are stored
MAX_DISTINCT = 2**20  # the largest value of ``most``


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

    **Time.** The cost of a call depends on its events and their keys, not on how many other keys there are: for bets
    with a compiled loop over streams (the jumpers, the mixtures, `Histogram`, `Sentinel`, `SleeperStayer`; `Power` and
    `Idle`) a millisecond, and 2 microseconds per key and 1 per event; for others 20 to 300 per key.

    **Memory** per key, with `CompositeJumper` and `Ville`: 320 to 480 bytes (290 encoded), the key itself, 100 bytes to
    find it in calls with few keys, and its pool: 8 bytes per bin for `Frozen`, encoded in 1, 2 or 4; 16 to 40 per
    distinct number for `Value`, encoded in 9 or more. The state of `Sentinel` is 3.6 kB, of `Plugin` 3 MB, and of
    `Adaptive` 91 kB: 25 for the tree, 42 for the sums of 39 periods (21 each for the p-values and their spread), 7 for
    the tables of the Markov bets, 6 for the kernels, and 11 for the others. These fill up within hundreds of steps, and
    narrower numbers would change every result. In memory there is room for more keys, so it may take up to 1.5 times as
    much: 5.1 kB and 123 kB with 1,000 keys.

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
        pool = new_pool(self.recipe.measure, self.most)
        self._empty = Columns.empty(self._pipeline.bet.fresh, self._pipeline.alarm.fresh, pool)
        self._store = Store(self._empty)
        settings = {"seed": self.seed, "contiguous": contiguous, "most": self.most, "extra": extra}
        described = recipes.fingerprint(self.recipe, self._pipeline.bet.fresh, self._pipeline.alarm.fresh)
        self._fingerprint = described | {name: str(value) for name, value in settings.items()}

    def __repr__(self) -> str:
        recipe = self.recipe
        parts = f"{recipe.measure!r}, {recipe.martingale.bet!r}, {recipe.alarm!r}, on_alarm={recipe.on_alarm!r}"
        return f"<Monitors of {len(self)} keys: {parts}, seed={self.seed}>"

    def __len__(self) -> int:
        return len(self._store.keys)

    def __contains__(self, key: object) -> bool:
        return self._store.keys.find(key) >= 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys().tolist())

    def __copy__(self) -> Monitors:
        return self._with(copy.deepcopy(self._store))

    @property
    def joined(self) -> int:
        """How many keys there have ever been: a deleted key stays in the count, and counts again if it returns."""
        return self._store.joined

    @property
    def version(self) -> int:
        """A number that grows with every event received and every key deleted."""
        return self._store.version

    def keys(self) -> NDArray[Any]:
        """Return all keys, in the order in which they first appeared."""
        names = self._store.keys.names
        return np.empty(0, object) if names is None else key_columns.to_numpy(names)

    def status(self, key: str | int | bytes) -> Status:
        """Return the status of a key after its latest event."""
        position = self._store.keys.find(key)
        if position < 0:
            raise ValueError(f"key must be one of the {len(self)} that have had events, got {format_value(key)}")
        at = slice(position, position + 1)
        row = statuses(self._store.integers.rows[at], self._store.reals.rows[at])
        fields: dict[str, Any] = {name: column.item() for name, column in row._asdict().items()}
        if fields["alarm_at"] < 0:
            fields |= {"alarm_at": None, "changepoint": None}
        return Status(**fields)

    def statuses(self) -> Statuses:
        """Return the status of all keys, in the order of ``keys()``. O(keys)."""
        return statuses(self._store.integers.rows, self._store.reals.rows)

    def standings(self, keys: Any = None) -> Standings:
        """Return where all keys stand, or only ``keys``: one row for each, in this order. O(their number).

        To find the keys that have changed, see ``fleet.e_bh``:

        >>> from exchangeable import bets, measures
        >>> monitors = Monitors(Monitor(measures.Value(), bets.CompositeJumper()), seed=7)
        >>> _ = monitors.extend(["a"] * 40 + ["b"] * 40, [*range(40)] * 2, [float(i) for i in range(40)] + [0.0] * 40)
        >>> now = monitors.standings()
        >>> now.key.tolist(), now.n.tolist(), now.log10_martingale.round(1).tolist(), now.alarm.tolist()
        (['a', 'b'], [40, 40], [5.6, -0.2], [True, False])
        >>> from exchangeable import fleet
        >>> fleet.e_bh(dict(zip(now.key, now.log10_martingale)), 0.05, base=10, joined=now.joined).names
        ['a']
        """
        return self._standings(np.arange(len(self)) if keys is None else self._positions(keys))

    def _standings(self, at: Integers) -> Standings:
        store = self._store
        rows = store.integers.rows[at], store.reals.rows[at], store.changed.rows[at]
        return standings(store.keys.at(at), *rows)

    def _positions(self, keys: Any) -> Integers:
        column = self._store.keys.like(key_columns.validate(keys))
        if not len(column):
            return np.empty(0, np.int64)
        groups = key_columns.group(column, self._store.keys)
        for i in np.flatnonzero(groups.position < 0)[:1].tolist():
            unknown = format_value(groups.names[i].as_py())
            raise ValueError(f"keys must be among the {len(self)} that have had events, got {unknown}")
        return groups.position[groups.code]

    # -------------------------------------------------------------- deletion

    def delete(self, keys: Any) -> Standings:
        """Delete keys, and return where they stood. O(size of all keys), so delete many at once.

        **A deleted key stays in the count.** A key that returns is a new stream: it starts with fresh evidence and with
        any sequence number, and takes the next position in the order of ``joined`` (new keys of one call join in
        sorted order). The guarantee of its alarm is for each such life. So never delete keys because of their evidence:
        a quiet stream that is deleted and starts again gets another chance of a false alarm. Delete keys that have no
        more events (see ``expire``).

        For the false discovery rate of the fleet, K must be the number of streams that there will ever be, deleted ones
        and every return included, fixed in advance: ``fleet.e_bh(.., streams=K)``; or pass ``joined``, as shown in
        ``standings``. The evidence that is returned may be kept and given to ``e_bh`` with that of the other keys.
        Leaving it out is valid too. Counting only the keys that are present is not.
        """
        positions = np.unique(self._positions(keys))
        deleted = self._standings(positions)
        if len(positions):
            self._store = self._store.without(positions)
        return deleted

    def expire(self, before: int) -> Standings:
        """Delete the keys whose latest sequence number is below ``before``, and return where they stood.

        For numbers that are times. If they only count events, use the version: keep ``monitors.version`` of an hour ago
        in ``then``, and call ``delete(now.key[now.version <= then])`` with ``now = monitors.standings()``.
        """
        limit = check_integer("before", before, -(2**63), 2**63 - 1)
        latest = self._store.integers.rows[:, native.KEYED_LAST]
        return self.delete(self._store.keys.at(np.flatnonzero(latest < limit)))

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
        groups = key_columns.group(self._store.keys.like(column), self._store.keys)
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
        self._store.write(positions, rows, self.version + len(column))
        return report

    def _rows(self, groups: key_columns.KeyGroups, events: Integers) -> Columns:
        """Copy the rows of these keys, with fresh ones for new keys; states that were loaded are checked."""
        bet, alarm, new = self._pipeline.bet, self._pipeline.alarm, groups.position < 0
        rows = self._store.take(groups.position, events, bet.fresh, alarm.fresh)
        names = groups.names.filter(new)
        seeds = stream_seeds(self.seed, names.to_pylist())
        rows.integers[new, native.KEYED_SEED] = seeds.view(np.int64)
        rows.integers[new, native.KEYED_JOINED] = self.joined + np.arange(1, len(names) + 1)
        if not rows.checked.all():
            bet.check(rows.bet[~rows.checked])
            alarm.check(rows.alarm[~rows.checked])
            rows.checked[:] = True
        return rows._replace(names=names)

    # -------------------------------------------------------------- bytes

    def encode(self, since: int | None = None) -> bytes:
        """Return the state of all keys as bytes. Equal states give equal bytes. O(size).

        With ``since``, an earlier value of ``version``, only the keys that have had events since then: O(their size).
        Pass these bytes to ``like`` or ``decode`` after the earlier ones. If keys were deleted since then, or if it was
        before this state was loaded, all keys are encoded.

        The bytes are a ZIP archive like those of `snapshot`, with a description of the recipe and the columns.
        """
        store, start = self._store, -1
        at = np.arange(len(self))
        if since is not None and check_integer("since", since, 0, self.version) >= store.known_since:
            start, at = since, np.flatnonzero(store.changed.rows > since)
        progress = storage.Progress(store.joined, store.version, start)
        return storage.encode(store.select(at), progress, self.fingerprint())

    @classmethod
    def decode(
        cls,
        data: bytes,
        recipe: Monitor,
        *changes: bytes,
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
        return cls(recipe, seed=seed, contiguous=contiguous, most=most, extra=extra).like(data, *changes)

    def like(self, data: bytes | None = None, *changes: bytes) -> Monitors:
        """Return monitors of the same recipe and settings: without keys, or those that were encoded.

        ``changes`` were encoded with ``since``, in this order. Raise ValueError if one that lies between is missing.
        They must come from the monitors that ``data`` came from: changes of a copy that went on with other events
        cannot be recognised if their versions fit.
        """
        store = Store(self._empty) if data is None else self._load(data)
        for change in changes:
            store = self._follow(store, change)
        return self._with(store)

    def _with(self, store: Store) -> Monitors:
        other = object.__new__(type(self))
        vars(other).update(vars(self), _store=store)
        return other

    def _load(self, data: bytes) -> Store:
        columns, progress = storage.decode(data, self._empty, self._fingerprint)
        if progress.since >= 0:
            raise ValueError(f"data must be the state of all keys, got what changed since version {progress.since}")
        return Store(self._checked(columns), progress.joined, progress.version)

    def _follow(self, store: Store, data: bytes) -> Store:
        """Return the state after these changes; ``store`` is used up."""
        columns, progress = storage.decode(data, self._empty, self._fingerprint)
        if progress.since < 0:
            return self._load(data)
        if not progress.since <= store.version <= progress.version:
            span = f"they go from version {progress.since} to {progress.version}"
            raise ValueError(f"changes must continue the state before them: {span}, got version {store.version}")
        store.follow(self._checked(columns), progress.joined, progress.version)
        return store

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


def new_pool(measure: Any, most: int) -> Bins | Scores | None:
    """Return an empty table of pools for this measure; None if it has no pool."""
    if isinstance(measure, Frozen) and measure.edges is not None:
        bins = len(measure.edges) + 1
        if bins <= MAX_DENSE_BINS:
            return Bins(np.empty((0, bins), np.int64))
        most = bins + 1  # never full
    if not isinstance(measure, Scored):
        return None
    return Scores(most, Ragged.of(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)))
