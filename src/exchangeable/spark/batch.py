"""What an executor does: walk over sorted rows of many streams, one stream after the other. Arrow in, Arrow out.

Rows come sorted by key and order, in batches that end anywhere. Of a stream no more is held than its monitor and one
row of its latest order; so memory is the measure's, however long the stream. Streams that begin and end within a batch
are many if they are short: where their numbers can be had from `Monitors`, all of them are taken in one call.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable.fleet import stream_seed
from exchangeable.keyed import Monitors
from exchangeable.keyed.report import Steps
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import BetWarning, Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.spark import batches as of
from exchangeable.spark.batches import Examples, Flags, Groups, Held, of_the_row
from exchangeable.spark.columns import RefusedError
from exchangeable.spark.output import Form, Output
from exchangeable.validation import check_p_array, format_value

LARGEST = 2**63 - 1
SHORT = 512  # examples of a stream; with more it is as fast by itself


class Recipe(NamedTuple):
    """What every stream of a frame is tested with, and what is told of it."""

    monitor: Monitor  # fresh, to be copied
    seed: int
    fail: bool  # at the first row that is not lawful
    gaps: bool  # whether numbers that are missing are told
    form: Form

    def begin(self, key: Any) -> Monitor:
        """The monitor of a stream."""
        return _like(self.monitor, copy.deepcopy(self.monitor.measure), stream_seed(self.seed, key))


class Standing(NamedTuple):
    """Where a stream stands."""

    n: int = 0
    log_value: float = 0.0
    log_max: float = 0.0
    alarm_at: int | None = None
    changepoint: int | None = None


class Stream:
    """One stream, on its way."""

    def __init__(self, key: Any) -> None:
        self.key = key
        self.monitor: Monitor | None = None
        self.standing: Standing = Standing()
        self.refused = 0
        self.test: int = 1  # the number of the latest test
        self.tests: int = 1  # and of that of the next example
        self.width: int | None = None  # of its rows of features
        self.repeats = 0
        self.first_repeat: Any = None  # its order, an array of one


def test_partition(recipe: Recipe, batches: Iterable[Any]) -> Iterator[Any]:
    """Rows ``key, order, x, [y], bad`` in, summaries or steps out: for ``mapInArrow``."""
    walker = Walker(recipe)
    for batch in batches:
        if batch.num_rows:
            yield from walker.take(batch)
    yield from walker.finish()


class Walker:
    """The walk over one partition."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.crowd: Crowd | None = Crowd.of(recipe)
        self.stream: Stream | None = None
        self.last: tuple[Any, int] | None = None  # the latest key and order, where orders are integers
        self.held: Held | None = None
        self.keyless: int = 0
        self.out: Any = None

    def take(self, batch: Any) -> Iterator[Any]:
        """The next rows."""
        self.out = Output(self.recipe.form, batch.schema) if self.out is None else self.out
        batch = self._with_keys(batch)
        if batch.num_rows:
            self._rows(batch, end=False)
        return self.out.ready()  # type: ignore[no-any-return]

    def finish(self) -> Iterator[Any]:
        """No more rows."""
        if self.held is not None:
            self._rows(self.held.row.slice(0, 0), end=True)
        self._close()
        if self.keyless:
            self.out.summary(None, 0, None, None, None, None, self.keyless, None)
        return iter(()) if self.out is None else self.out.ready(all_of_it=True)

    def _with_keys(self, batch: Any) -> Any:
        """Rows that have no key belong to no stream."""
        keyless = of.starts(batch["bad"], "key ")
        if not keyless.any():
            return batch
        rows = batch.filter(pa.array(keyless))
        orders = of.orders_of(rows, "key and order ")
        if self.recipe.fail:
            raise RefusedError(f"{rows['bad'][0]}{f' (order {of.text(orders[0])})' if orders[0].is_valid else ''}")
        self.keyless += rows.num_rows
        self.out.side("bad", pa.nulls(rows.num_rows, rows["key"].type), orders, None, rows["bad"])
        return batch.filter(pa.array(~keyless))

    def _rows(self, batch: Any, *, end: bool) -> None:
        """Take the rows, but hold those of the last order, unless it is the end."""
        held, self.held = self.held, None
        rows = batch if held is None else of.joined(held.row, batch)
        same_key = of.same_as_before(rows["key"])
        groups = of.grouped(rows, same_key, held)
        bad = of.flags(rows["bad"].is_valid())
        bad[0] &= held is None  # told before
        self._bad(rows, bad)
        done = groups if end else groups.first(len(groups.start) - 1)
        firsts = np.flatnonzero(np.concatenate([[True], ~same_key]))
        self._gaps(rows, done, same_key)
        self._conflicts(rows, done)
        self._streams(rows, firsts, done, np.add.reduceat(bad.astype(np.int64), firsts), end)
        if not end:
            self.held = of.last_of(rows, groups)

    # -------------------------------------------------------------- what is not bet on

    def _bad(self, rows: Any, bad: Flags) -> None:
        """What the door did not let in."""
        if not bad.any():
            return
        found = rows.filter(pa.array(bad))
        orders = of.orders_of(found, "order ")
        if self.recipe.fail:
            raise _refused(found["key"][0].as_py(), orders[0], str(found["bad"][0]))
        self.out.side("bad", found["key"], orders, None, found["bad"])

    def _conflicts(self, rows: Any, groups: Groups) -> None:
        """Rows of one order that differ."""
        differ = np.flatnonzero(groups.contested)
        if not differ.size:
            return
        at, counts = pa.array(groups.start[differ]), groups.contested[differ]
        keys, orders = rows["key"].take(at), rows["order"].take(at)
        if self.recipe.fail:
            law = "rows of one key and order must be alike, or only one"
            raise _refused(keys[0].as_py(), orders[0], f"{law}, got {counts[0]} that differ")
        details = [
            f"an event of order {of.text(order)} beside bad ones of the same order: not bet on"
            if count == 1
            else f"{count} different events of order {of.text(order)}: none is bet on"
            for count, order in zip(counts.tolist(), orders, strict=True)
        ]
        self.out.side("conflict", keys, orders, counts, details)

    def _gaps(self, rows: Any, groups: Groups, same_key: Flags) -> None:
        """Numbers that are missing; of orders that are integers."""
        places = np.flatnonzero(groups.ordered)
        told = self.recipe.gaps and self.recipe.form.steps
        orders = of.whole_orders(rows, groups.start[places]) if told else None
        if orders is None or not len(orders):
            return
        at = groups.start[places]
        number = np.concatenate([[0], np.cumsum(~same_key)])[at]  # of the stream within the batch
        key, before = rows["key"][int(at[0])].as_py(), self.last
        known = before is not None and before[0] == key
        self.last = rows["key"][int(at[-1])].as_py(), int(orders[-1])
        new = np.concatenate([[not known], np.diff(number) > 0])
        earlier = np.concatenate([[before[1] if before is not None and known else 0], orders[:-1]])
        missing = np.where(new, 1, orders.view(np.uint64) - earlier.view(np.uint64)) - np.uint64(1)  # cannot overflow
        self._tell_gaps(rows, at, earlier, missing)

    def _tell_gaps(self, rows: Any, at: Integers, before: Integers, missing: Any) -> None:
        found: list[tuple[int, int, int]] = []
        for i in np.flatnonzero(missing).tolist():
            start, count = int(before[i]) + 1, int(missing[i])
            found.append((i, start, min(count, LARGEST)))
            if count > LARGEST:  # more than a column of numbers holds
                found.append((i, start + LARGEST, count - LARGEST))
        if found:
            where, starts, counts = np.array(found, np.int64).T
            details = [
                f"order {start} is missing" if count == 1 else f"orders {start} to {start + count - 1} are missing"
                for _, start, count in found
            ]
            self.out.side("gap", rows["key"].take(pa.array(at[where])), pa.array(starts), counts, details)

    # -------------------------------------------------------------- what is

    def _streams(self, rows: Any, firsts: Integers, groups: Groups, bad: Integers, end: bool) -> None:
        """Each stream takes its rows: those from ``firsts`` on, to the next stream's."""
        keys = rows["key"].take(pa.array(firsts)).to_pylist()
        ends = groups.start.searchsorted([*firsts[1:].tolist(), rows.num_rows])
        bounds = np.concatenate([[0], ends])
        examples = Examples(rows, groups.start[groups.taken])
        taken = np.concatenate([[0], np.cumsum(groups.taken)])[bounds]
        refused = bad + np.diff(np.concatenate([[0], np.cumsum(groups.contested)])[bounds])
        repeats = np.diff(np.concatenate([[0], np.cumsum(groups.repeats)])[bounds])
        played = self._together(keys, taken, examples, end)
        for i, key in enumerate(keys):
            stream = self._turn(key)
            stream.refused += int(refused[i])
            if repeats[i]:
                self._repeated(stream, rows, groups, slice(bounds[i], bounds[i + 1]), int(repeats[i]))
            if i in played:
                stream.standing, stream.test = played[i]
            elif taken[i + 1] > taken[i]:
                self._offer(stream, examples, int(taken[i]), int(taken[i + 1]))
        self.out.steps_done(rows)

    def _turn(self, key: Any) -> Stream:
        """To the stream of this key."""
        if self.stream is None or self.stream.key != key:
            self._close()
            self.stream = Stream(key)
        return self.stream

    def _close(self) -> None:
        stream, self.stream = self.stream, None
        if stream is None:
            return
        self.out.summary(stream.key, *stream.standing, stream.refused, stream.test)
        if stream.repeats:
            count, order = stream.repeats, of.text(stream.first_repeat[0])
            detail = f"{count} repeated event{'s' * (count > 1)}, the first of order {order}: dropped"
            self.out.side("duplicate", [stream.key], stream.first_repeat, np.array([count]), [detail])

    def _repeated(self, stream: Stream, rows: Any, groups: Groups, part: slice, count: int) -> None:
        """Rows of one order that are alike: one is enough."""
        if not stream.repeats:
            first = groups.start[part][groups.repeats[part] > 0][0]
            stream.first_repeat = rows["order"].slice(first, 1)
        stream.repeats += count

    def _offer(self, stream: Stream, examples: Examples, first: int, stop: int) -> None:
        """Let the stream's monitor take the examples ``first .. stop - 1`` of the batch."""
        if stream.monitor is None:
            stream.monitor, stream.width = self.recipe.begin(stream.key), examples.width(first)
        for part in examples.fitting(stream.width, first, stop):
            if isinstance(part, slice):
                self._extend(stream, stream.monitor, examples, part.start, part.stop)
            else:
                self._refuse(stream, examples, *part)
        monitor = stream.monitor
        if monitor.last is not None:
            standing = monitor.last.log_value, monitor.log_max, monitor.alarm_at, monitor.changepoint
            stream.standing = Standing(monitor.n, *standing)

    def _extend(self, stream: Stream, monitor: Monitor, examples: Examples, first: int, stop: int) -> None:
        """In one piece; if one of them is refused, none is taken, and the halves are tried."""
        X, y = examples.piece(first, stop)
        try:
            path = monitor.extend(X, y)
        except ValueError as error:
            if not of_the_row(error):
                raise
            if stop - first == 1:
                self._refuse(stream, examples, first, str(error))
                return
            middle = (first + stop) // 2
            self._extend(stream, monitor, examples, first, middle)
            self._extend(stream, monitor, examples, middle, stop)
            return
        test = np.full(len(path.n), 1)
        if monitor.on_alarm == "restart":
            test = stream.tests + np.cumsum(path.alarm) - path.alarm
            stream.tests, stream.test = int(test[-1] + path.alarm[-1]), int(test[-1])
        change = np.where(path.alarm, path.lowest, -1)
        self.out.steps(examples.at[first:stop], Steps(path.n, path.p, path.log_value, path.alarm, change, test))

    def _refuse(self, stream: Stream, examples: Examples, at: int, sentence: str) -> None:
        order = examples.order(at)
        if self.recipe.fail:
            raise _refused(stream.key, order[0], sentence)
        stream.refused += 1
        self.out.side("bad", [stream.key], order, None, [" ".join(sentence.split())])

    def _together(
        self, keys: list[Any], taken: Integers, examples: Examples, end: bool
    ) -> dict[int, tuple[Standing, int]]:
        """Streams that begin and end within the batch, in one call: where each stands, by its place among the keys."""
        first = int(self.stream is not None and self.stream.key == keys[0])
        bounds = taken[first : len(keys) + end]
        lengths = np.diff(bounds)
        short = (lengths > 0) & (lengths <= SHORT)
        if self.crowd is None or short.sum() < 2:
            return {}
        at = bounds[0] + np.flatnonzero(np.repeat(short, lengths))
        scores = self.crowd.scores(examples, at, bounds[:-1][short], lengths[short])
        if scores is None:
            return {}
        places = (np.flatnonzero(short) + first).tolist()
        steps, standings = self.crowd.play([keys[i] for i in places], lengths[short], scores)
        self.out.steps(examples.at[at], steps)
        return dict(zip(places, standings, strict=True))


class Crowd:
    """Many short streams at once, if their measure ranks scores that are fixed, or they are p-values already."""

    def __init__(self, monitors: Monitors, measure: Any) -> None:
        self.monitors = monitors
        self.measure = measure
        self.restarts: bool = monitors.recipe.on_alarm == "restart"

    @classmethod
    def of(cls, recipe: Recipe) -> Crowd | None:
        """None where it has to be one stream after the other."""
        measure = recipe.monitor.measure
        if type(measure) not in (Value, Frozen, Precomputed):  # not one of the user's own that is like them
            return None
        fixed = (
            Precomputed() if isinstance(measure, Precomputed) else Value()
        )  # to rank scores, or bins, is to rank numbers
        try:
            return cls(Monitors(_like(recipe.monitor, fixed, 0), seed=recipe.seed, most=2 * SHORT), measure)
        except ValueError:  # a bet or an alarm of the user's own
            return None

    def scores(self, examples: Examples, at: Integers, first: Integers, lengths: Integers) -> Floats | None:
        """Of the examples at these places, so many of a stream; None where one is refused: it is found one by one."""
        try:
            if isinstance(self.measure, Precomputed):
                return check_p_array(examples.numbers[at])
            if isinstance(self.measure, Value) or self.measure.score is None:
                return np.asarray(self.measure.scores(examples.numbers[at]))
            return np.concatenate([self._scored(examples, *part) for part in zip(first, first + lengths, strict=True)])
        except ValueError:
            return None

    def _scored(self, examples: Examples, first: int, stop: int) -> Floats:
        """By the user's function, which sees one stream at a time, as it would by itself."""
        if not examples.even(first, stop):
            raise ValueError("x must hold rows of one width")
        return np.asarray(self.measure.scores(*examples.piece(first, stop)))

    def play(self, keys: list[Any], lengths: Integers, scores: Floats) -> tuple[Steps, list[tuple[Standing, int]]]:
        """The steps of streams of these lengths, and where each stands in the end."""
        ends = np.cumsum(lengths)
        place = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        events = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(keys)), lengths), pa.array(keys))
        rows = self.monitors.like().extend(events, place, scores)
        steps = Steps(rows.n, rows.p, rows.log_value, rows.alarm, rows.changepoint, rows.test)
        return steps, _standings(steps, ends - lengths, ends - 1, self.restarts)


def _like(own: Monitor, measure: Any, seed: int) -> Monitor:
    """A fresh monitor with another measure and seed. If the bet does not suit the alarm, the driver has warned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetWarning)
        return Monitor(measure, copy.deepcopy(own.martingale.bet), own.alarm, seed=seed, on_alarm=own.on_alarm)


def _standings(steps: Steps, first: Integers, last: Integers, restarts: bool) -> list[tuple[Standing, int]]:
    """Of the streams whose steps lie from ``first`` to ``last``: the latest test, and its first or the latest alarm."""
    n, _, log_value, alarm, change, test = steps
    latest = test == np.repeat(test[last], last - first + 1)
    highest = np.maximum.reduceat(np.where(latest, np.maximum(log_value, 0.0), 0.0), first)
    places, none = np.arange(len(n)), -1 if restarts else len(n)
    at = (np.maximum if restarts else np.minimum).reduceat(np.where(alarm, places, none), first)
    found = [(None, None) if i == none else (int(n[i]), int(change[i])) for i in at.tolist()]
    columns = zip(n[last].tolist(), log_value[last].tolist(), highest.tolist(), found, test[last].tolist(), strict=True)
    return [(Standing(n, value, high, *alarmed), number) for n, value, high, alarmed, number in columns]


def _refused(key: Any, order: Any, sentence: str) -> RefusedError:
    where = f", order {of.text(order)}" if order.is_valid else ""
    return RefusedError(f"key {format_value(key)}{where}: {sentence}")
