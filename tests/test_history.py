"""The history of a stream, compared with brute force: roll-ups, thinning, merged rows, retention and speed."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts import settled
from exchangeable.service import history, schema
from exchangeable.service.history import Points, Tail, reading, rollups, rows
from exchangeable.service.history.points import bucket_width

Floats = NDArray[np.float64]
TABLES = """
CREATE TABLE streams(id INTEGER PRIMARY KEY, kept INTEGER NOT NULL, n INTEGER NOT NULL) STRICT;
    CREATE TABLE steps (stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, p BLOB NOT NULL,
      log10 BLOB NOT NULL, seq BLOB, x BLOB NOT NULL, extra TEXT, UNIQUE (stream, first)) STRICT;
    CREATE TABLE rollups (stream INTEGER NOT NULL, level INTEGER NOT NULL, first INTEGER NOT NULL, low REAL NOT NULL,
      low_at INTEGER NOT NULL, high REAL NOT NULL, high_at INTEGER NOT NULL, last REAL NOT NULL,
      PRIMARY KEY (stream, level, first)) STRICT, WITHOUT ROWID;
"""
VALUES = st.one_of(st.integers(-3, 3).map(float), st.floats(-400.0, 400.0), st.just(-math.inf))
SIZES = st.lists(st.one_of(st.integers(1, 3), st.integers(1, 40), st.just(300)), min_size=1, max_size=40)


@contextmanager
def small() -> Iterator[None]:
    """Blocks of 8, 32, 128 and 512 steps, and small rows of fewer than 4: all levels within a few hundred steps."""
    sizes: dict[str, Any] = {"BLOCK": 8, "FACTOR": 4, "SIZES": (8, 32, 128, 512)}
    with mock.patch.multiple(rollups, **sizes), mock.patch.object(rows, "SMALL", 4):
        yield


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(TABLES)
        yield connection


class Stored:
    """A stream as it is stored, and the same in plain lists."""

    def __init__(self, connection: sqlite3.Connection, stream: int = 1) -> None:
        self.connection = connection
        self.stream = stream
        self.tail = Tail()
        self.p: list[float] = []
        self.log10: list[float] = []
        self.seq: list[int] = []
        self.x: list[list[float]] = []
        self.extra: list[dict[str, Any]] = []

    def append(self, log10: Any, *, width: int = 1, skip: int = 0, extra: dict[str, list[Any]] | None = None) -> None:
        """Append steps that can be recognised by their p and x; ``skip`` seqs before them have no step."""
        n, count = len(self.p), len(log10)
        p = [(i % 997 + 1) / 998 for i in range(n, n + count)]
        x = np.arange(n * 10.0, n * 10.0 + count * width).reshape(count, width)
        start = (self.seq[-1] if self.seq else 0) + skip + 1
        seq = list(range(start, start + count))
        self.tail = history.append(
            self.connection,
            self.stream,
            self.tail,
            p,
            log10,
            x=x,
            seq=None if start == n + 1 else seq,
            extra=extra,
        )
        self.p += p
        self.log10 += list(log10)
        self.seq += seq
        self.x += x.tolist()
        self.extra += [{name: values[i] for name, values in (extra or {}).items()} for i in range(count)]

    def read(self, start: int, stop: int, max_points: int) -> Points:
        return history.read(self.connection, self.stream, start, stop, max_points)

    def rows(self) -> list[tuple[int, int]]:
        return self.connection.execute(
            "SELECT first, count FROM steps WHERE stream = ? ORDER BY first", (self.stream,)
        ).fetchall()


def random_walk(count: int, seed: int = 0) -> Floats:
    """Return a capital that goes up and down, with ties."""
    steps: Floats = np.random.default_rng(seed).normal(size=count)
    return np.cumsum(steps).round(1)


def filled(connection: sqlite3.Connection, sizes: list[int], seed: int = 0, stream: int = 1) -> Stored:
    stored, values = Stored(connection, stream), random_walk(sum(sizes), seed)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes, strict=True):
        stored.append(values[stop - size : stop])
    return stored


def thinned(log10: list[float], start: int, stop: int, width: int) -> list[int]:
    """Thin by definition: the first low and the first high of each bucket, and both ends."""
    buckets: dict[int, list[int]] = {}
    for n in range(start, stop + 1):
        buckets.setdefault((n - 1) // width, []).append(n)
    lows = [min(bucket, key=lambda n: log10[n - 1]) for bucket in buckets.values()]
    highs = [max(bucket, key=lambda n: log10[n - 1]) for bucket in buckets.values()]
    return sorted({start, stop, *lows, *highs})


def fits(start: int, stop: int, width: int, max_points: int) -> bool:
    return len({(n - 1) // width for n in range(start, stop + 1)}) * 2 + 2 <= max_points


def check_points(points: Points, stored: Stored, start: int, stop: int) -> None:
    """Check that every point is a step of the range, in order."""
    assert np.all(np.diff(points.n) > 0)
    assert all(start <= n <= stop for n in points.n.tolist())
    assert points.log10.tolist() == [stored.log10[n - 1] for n in points.n]
    known = ~np.isnan(points.p)
    assert points.p[known].tolist() == [stored.p[n - 1] for n in points.n[known]]


# ------------------------------------------------------------------ roll-ups


def rollups_of(log10: list[float]) -> list[tuple[Any, ...]]:
    """Compute the roll-ups of all complete blocks by definition."""
    rows = []
    for level, size in enumerate(rollups.SIZES):
        for first in range(1, len(log10) - size + 2, size):
            steps = range(first, first + size)
            low, high = min(steps, key=lambda n: log10[n - 1]), max(steps, key=lambda n: log10[n - 1])
            rows.append((level, first, log10[low - 1], low, log10[high - 1], high, log10[first + size - 2]))
    return rows


def stored_rollups(stored: Stored) -> list[tuple[Any, ...]]:
    return stored.connection.execute(
        "SELECT level, first, low, low_at, high, high_at, last FROM rollups WHERE stream = ? ORDER BY level, first",
        (stored.stream,),
    ).fetchall()


@settled(60)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=90), min_size=1, max_size=30))
def test_rollups_of_every_level_by_definition(batches: list[list[float]]) -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        for batch in batches:
            stored.append(batch)
        assert stored_rollups(stored) == rollups_of(stored.log10)


def test_rollups_of_the_real_sizes() -> None:
    with database() as connection:
        stored = filled(connection, [1, 1022, 1, 1, 5000, 10_000, 300, 20_000, 40_000])
        assert stored_rollups(stored) == rollups_of(stored.log10)
        assert sum(level == 1 for level, *_ in stored_rollups(stored)) == 2


def test_a_missing_rollup_is_an_error() -> None:
    with small(), database() as connection:
        stored = filled(connection, [24])
        connection.execute("DELETE FROM rollups WHERE first = 9")
        with pytest.raises(ValueError, match="stream 1 must have 4 roll-ups of level 0 from 1, got 3"):
            stored.append([0.0] * 8)


# ------------------------------------------------------------------ thinning


@settled(200)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=90), min_size=1, max_size=12), st.data())
def test_thinned_by_definition(batches: list[list[float]], data: st.DataObject) -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        for batch in batches:
            stored.append(batch)
        total = len(stored.p)
        start = data.draw(st.integers(1, total))
        stop = data.draw(st.integers(start, total))
        max_points = data.draw(st.integers(4, 60))
        points = stored.read(start, stop, max_points)
        check_points(points, stored, start, stop)
        assert len(points.n) <= max_points
        if stop - start < max_points:
            assert points.exact
            assert points.n.tolist() == list(range(start, stop + 1))
            assert not np.isnan(points.p).any()
        else:
            assert points.n.tolist() == thinned(stored.log10, start, stop, points.width)
            assert points.exact == (len(points.n) == stop - start + 1)


@settled(200)
@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(4, 5000))
def test_the_width_is_the_smallest_multiple_of_a_rollup_that_fits(start: int, length: int, max_points: int) -> None:
    stop, buckets = start + length, (max_points - 2) // 2
    width = bucket_width(start, stop, buckets)

    def count(width: int) -> int:
        return (stop - 1) // width - (start - 1) // width + 1

    def unit(width: int) -> int:
        return max((size for size in rollups.SIZES if size <= width), default=1)

    assert width % unit(width) == 0
    assert count(width) <= buckets
    before = width - 1 if width == unit(width) else width - unit(width)
    if before >= 1:
        before -= before % unit(before)
        assert count(before) > buckets or before * buckets < length + 1


@pytest.mark.parametrize("max_points", [4, 100, 1000])
def test_thinned_with_the_real_sizes(max_points: int) -> None:
    with database() as connection:
        stored = filled(connection, [1, 3000, 10_000, 255, 60_000, 7])
        total = len(stored.p)
        for start, stop in [
            (1, total),
            (2, total - 1),
            (1024, 1025),
            (1025, 40_000),
            (33_000, 66_000),
            (70_000, total),
        ]:
            points = stored.read(start, stop, max_points)
            check_points(points, stored, start, stop)
            if stop - start + 1 > max_points:
                assert points.n.tolist() == thinned(stored.log10, start, stop, points.width)
                assert fits(start, stop, points.width, max_points)


def test_bankruptcy_is_a_low_and_stays_one() -> None:
    with database() as connection:
        stored = Stored(connection)
        values = random_walk(5000)
        values[3000:] = -math.inf
        stored.append(values[:2500])
        stored.append(values[2500:])
        points = stored.read(1, 5000, 12)
        assert points.log10.min() == -math.inf
        assert points.n.tolist() == thinned(stored.log10, 1, 5000, points.width)
        assert points.log10[-1] == -math.inf


def test_a_reset_in_the_middle_is_a_step_like_any_other() -> None:
    """The capital starts at 1 again and n goes on: nothing here depends on the test to which a step belongs."""
    with small(), database() as connection:
        stored = Stored(connection)
        stored.append([float(i) for i in range(70)])
        stored.append([0.1 * i for i in range(70)])
        assert stored_rollups(stored) == rollups_of(stored.log10)
        assert stored.read(1, 140, 20).n.tolist() == thinned(stored.log10, 1, 140, stored.read(1, 140, 20).width)


def test_arguments_of_read() -> None:
    with database() as connection:
        stored = Stored(connection)
        assert [len(column) for column in stored.read(1, 10, 10)[:3]] == [0, 0, 0]
        stored.append(random_walk(50))
        assert stored.read(-5, 10**9, 50).n.tolist() == list(range(1, 51))
        assert stored.read(51, 60, 50).n.tolist() == []
        assert stored.read(9, 8, 50).n.tolist() == []
        with pytest.raises(ValueError, match="max_points must be at least 4, got 3"):
            stored.read(1, 50, 3)


def test_streams_do_not_mix() -> None:
    with small(), database() as connection:
        one, two = Stored(connection, 1), Stored(connection, 2)
        for i in range(80):
            one.append(random_walk(i % 5 + 1, i))
            two.append(random_walk(i % 7 + 1, -i % 97))
        for stored in (one, two):
            total = len(stored.p)
            assert stored_rollups(stored) == rollups_of(stored.log10)
            assert stored.read(1, total, 10**6).log10.tolist() == stored.log10
            assert np.concatenate([part.x[:, 0] for part in history.replay(connection, stored.stream, 0)]).tolist() == [
                x for (x,) in stored.x
            ]


@settled(60)
@given(st.lists(VALUES, min_size=1, max_size=300), st.integers(1, 3000), st.integers(4, 60))
def test_steps_in_memory_are_thinned_in_the_same_way(values: list[float], first: int, max_points: int) -> None:
    n = np.arange(first, first + len(values))
    log10 = np.array(values)
    points = history.thin(n, log10, log10, max_points)
    assert len(points.n) <= max_points
    width = points.width if len(values) > max_points else 1
    assert points.n.tolist() == thinned([0.0] * (first - 1) + values, first, first + len(values) - 1, width)


# ------------------------------------------------------------------ the tail, restarts and failed transactions


def same_tail(a: Tail, b: Tail) -> None:
    held = a.n % rollups.BLOCK
    assert (a.n, a.rows, a.steps) == (b.n, b.rows, b.steps)
    assert a.width == b.width or not a.rows
    assert a.block[:held].tolist() == b.block[:held].tolist()


@settled(100)
@given(SIZES, st.lists(st.integers(0, 3), max_size=40))
def test_a_loaded_tail_equals_the_one_in_memory(sizes: list[int], widths: list[int]) -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        for i, size in enumerate(sizes):
            stored.append(random_walk(size, i), width=widths[i] if i < len(widths) else 1)
            same_tail(Tail.load(connection, 1, stored.tail.n), stored.tail)


def test_a_tail_must_match_what_is_stored() -> None:
    with database() as connection:
        stored = filled(connection, [30, 20])
        with pytest.raises(ValueError, match="the steps of stream 1 must end at n = 51, got 50"):
            Tail.load(connection, 1, 51)
        with pytest.raises(ValueError, match="the steps of stream 2 must end at n = 1, got 0"):
            Tail.load(connection, 2, 1)
        assert Tail.load(connection, 3, 0) == Tail()
        assert stored.tail.n == 50


@settled(60)
@given(SIZES, SIZES, SIZES)
def test_a_tail_stays_valid_if_the_transaction_fails(before: list[int], lost: list[int], after: list[int]) -> None:
    with small(), database() as connection:
        stored = filled(connection, before)
        tail, memory = stored.tail, {name: list(value) for name, value in vars(stored).items() if type(value) is list}
        connection.execute("BEGIN")
        for i, size in enumerate(lost):
            stored.append(random_walk(size, 1000 + i))
        connection.execute("ROLLBACK")
        vars(stored).update(memory, tail=tail)
        for i, size in enumerate(after):
            stored.append(random_walk(size, 2000 + i))
        assert stored_rollups(stored) == rollups_of(stored.log10)
        assert stored.read(1, len(stored.p), 10**6).log10.tolist() == stored.log10
        same_tail(Tail.load(connection, 1, stored.tail.n), stored.tail)


def test_appending_no_steps_stores_nothing() -> None:
    with database() as connection:
        stored = filled(connection, [3])
        assert history.append(connection, 1, stored.tail, [], [], x=np.empty((0, 1))) is stored.tail
        assert stored.rows() == [(1, 3)]


# ------------------------------------------------------------------ merged rows


def replayed(stored: Stored, after: int) -> list[tuple[Any, ...]]:
    """Return each replayed step: n, seq, x, extra, p, log10."""
    return [
        (part.first + i, seq, part.x[i].tolist(), {name: v[i] for name, v in part.extra.items()}, p, log10)
        for part in history.replay(stored.connection, stored.stream, after)
        for i, (seq, p, log10) in enumerate(zip(part.seq.tolist(), part.p.tolist(), part.log10.tolist(), strict=True))
    ]


def remembered(stored: Stored, after: int) -> list[tuple[Any, ...]]:
    columns = zip(stored.seq, stored.x, stored.extra, stored.p, stored.log10, strict=True)
    return [(n, *row) for n, row in enumerate(columns, start=1) if n > after]


def without_nulls(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Drop None from the extras: a merged row has it for steps without such a value."""
    return [(*row[:3], {name: v for name, v in row[3].items() if v is not None}, *row[4:]) for row in rows]


BATCH = st.tuples(
    st.integers(1, 9),  # steps
    st.sampled_from([1, 1, 1, 0, 3]),  # width
    st.sampled_from([0, 0, 0, 0, 5]),  # seqs without a step
    st.sampled_from([None, None, ("y",), ("y", "id", "time"), ("id",)]),
)


def append_batches(stored: Stored, batches: list[tuple[int, int, int, tuple[str, ...] | None]]) -> None:
    for i, (size, width, skip, names) in enumerate(batches):
        extra = (
            None if names is None else {name: [f"{name}{i}ü", 1.5, None][:size] + [i] * (size - 3) for name in names}
        )
        stored.append(random_walk(size, i), width=width, skip=skip, extra=extra)


@settled(150)
@given(st.lists(BATCH, min_size=1, max_size=40), st.data())
def test_replay_gives_every_step_as_it_came(batches: list[Any], data: st.DataObject) -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        append_batches(stored, batches)
        after = data.draw(st.integers(0, len(stored.p)))
        assert without_nulls(replayed(stored, after)) == without_nulls(remembered(stored, after))


def timed(batches: list[tuple[int, float]], own: bool) -> Iterator[tuple[sqlite3.Connection, list[float]]]:
    """Store the arrivals of batches of some sizes; the time of step n is its square."""
    with database() as connection:
        connection.executescript(str(schema.MIGRATIONS[1]).partition("DROP INDEX")[0])
        first, arrived = 1, []
        for size, time in batches:
            steps = range(first, first + size)
            history.record(connection, 1, steps, time, [float(n * n) for n in steps] if own else None)
            arrived += [time] * size
            first += size
        yield connection, arrived


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([0.0, 0.25, 1.5, 3600.0])), min_size=1, max_size=12))
def test_arrivals_are_known_to_the_second(batches: list[tuple[int, float]]) -> None:
    """Some batches are of the same second, and others an hour apart."""
    moments = np.cumsum([pause for _, pause in batches]) + 1e9
    for connection, arrived in timed(
        [(size, t) for (size, _), t in zip(batches, moments.tolist(), strict=True)], False
    ):
        n = np.arange(1, len(arrived) + 1)
        found, own = history.times_at(connection, 1, n)
        assert np.abs(found - arrived).max() < 1
        assert np.isnan(own).all()
        assert np.isnan(history.times_at(connection, 2, n)[0]).all()


def test_times_of_observations_are_interpolated_and_pruned_to_one_a_block() -> None:
    for connection, _ in timed([(5000, 10.0), (1, 20.0), (1, 20.1), (1, 20.2)], True):
        found, own = history.times_at(connection, 1, np.array([1, 64, 96, 5000, 5001, 5003]))
        assert found.tolist() == [10, 10, 10, 10, 20, 20.2]
        assert own.tolist() == [1, 64**2, (64**2 + 128**2) / 2, 5000**2, 5001**2, 5003**2]
        history.prune_times(connection, 1, 1, 4097)
        kept = connection.execute("SELECT n FROM times WHERE n < 4200").fetchall()
        assert kept == [(1024,), (2048,), (3072,), (4096,), (4160,)]
        found, own = history.times_at(connection, 1, np.array([1, 1536, 5003]))
        assert np.isnan(found[0])
        assert (found[1], own[1]) == (10, (1024**2 + 2048**2) / 2)
        history.record(connection, 1, range(5004, 5006), 30.0, ["2026-01-01T00:00:00Z", "at noon"])
        found, own = history.times_at(connection, 1, np.array([5004, 5005]))
        assert found.tolist() == [30, 30]
        assert own[0] == 1767225600.0
        assert np.isnan(own[1])


def test_a_number_of_each_observation_is_read_from_the_newest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with database() as connection:
        stored = Stored(connection)
        for width, count in ((2, 300), (1, 400), (2, 1000), (2, 3)):
            stored.append(random_walk(count), width=width)
        x = stored.x
        for start, stop in ((1, 1703), (250, 900), (900, 1700), (1703, 2000), (2000, 3000)):
            for column in (0, 1, 2):
                n, values, width = history.read_column(connection, 1, column, start, stop)
                expected = [i for i in range(start, min(stop, 1703) + 1) if len(x[i - 1]) > column]
                assert n.tolist() == expected
                assert values.tolist() == [x[i - 1][column] for i in expected]
                assert width == len(x[min(stop, 1703) - 1])
        monkeypatch.setattr(reading, "MAX_BYTES", 16)
        assert history.read_column(connection, 1, 1, 1, 1703)[0].tolist() == [1701, 1702, 1703]


def test_single_observations_become_long_rows() -> None:
    with database() as connection:
        stored = Stored(connection)
        for i in range(2000):
            stored.append(random_walk(1, i), extra={"y": [i]} if i % 3 else None)
        counts = [count for _, count in stored.rows()]
        assert counts == [256] * 7 + [1] * (2000 - 7 * 256)
        assert without_nulls(replayed(stored, 0)) == without_nulls(remembered(stored, 0))


def test_rows_of_hundreds_are_merged_up_to_a_limit() -> None:
    with database() as connection:
        stored = filled(connection, [100] * 50)
        assert [count for _, count in stored.rows()] == [1100] * 4 + [100] * 6


def test_rows_of_another_width_are_not_merged() -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        for i in range(12):
            stored.append([0.0], width=1 + i // 3)
        assert stored.rows() == [(n, 1) for n in range(1, 13)]
        stored.append([0.0], width=5)
        for _ in range(4):
            stored.append([0.0], width=6)
        assert stored.rows() == [*((n, 1) for n in range(1, 14)), (14, 4)]
        assert replayed(stored, 0) == remembered(stored, 0)


def test_large_batches_stay_as_they_are() -> None:
    with database() as connection:
        stored = filled(connection, [1, 1, 256, 1000, 1, 10_000])
        assert stored.rows() == [(1, 1), (2, 1), (3, 256), (259, 1000), (1259, 1), (1260, 10_000)]


# ------------------------------------------------------------------ observations by seq


def instructions(connection: sqlite3.Connection, work: Callable[[], object]) -> int:
    """Count the instructions of SQLite's virtual machine, in hundreds: the same on every computer."""
    count = [0]

    def tick() -> None:
        count[0] += 1

    connection.set_progress_handler(tick, 100)
    work()
    connection.set_progress_handler(None, 0)
    return count[0]


@settled(150)
@given(st.lists(BATCH, min_size=1, max_size=40), st.data())
def test_observations_by_seq(batches: list[Any], data: st.DataObject) -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        append_batches(stored, batches)
        kept = history.prune(connection, 1, data.draw(st.integers(0, len(stored.p))), 0)
        first = data.draw(st.integers(1, stored.seq[-1] + 3))
        last = data.draw(st.integers(first, stored.seq[-1] + 3))
        found = history.observations(connection, 1, first, last)
        for place, seq in enumerate(range(first, last + 1)):
            n = stored.seq.index(seq) + 1 if seq in stored.seq else 0
            assert found.stored[place] == (n >= kept)
            extra = {name: values[place] for name, values in found.extra.items() if values[place] is not None}
            if n < kept:
                assert found.width[place] == -1
                assert not extra
                assert np.isnan(found.x[place]).all()
            else:
                width = found.width[place]
                assert found.x[place, :width].tolist() == stored.x[n - 1]
                assert np.isnan(found.x[place, width:]).all()
                assert extra == {name: value for name, value in stored.extra[n - 1].items() if value is not None}


def test_a_seq_is_found_by_bisection() -> None:
    """Half of all seqs have no step, so n is far from seq; still only a few rows are read."""
    with database() as connection:
        stored = Stored(connection)
        for i in range(300):
            stored.append(random_walk(300, i), skip=300)
        found: list[Any] = []
        for seq in (301, 90_450, 150_050, 179_901):
            found.clear()
            work = instructions(connection, lambda seq=seq: found.append(history.observations(connection, 1, seq, seq)))  # type: ignore[misc]
            assert found[0].stored.tolist() == [seq in stored.seq]
            assert work <= 5


# ------------------------------------------------------------------ retention


@settled(150)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.data())
def test_pruned_history_stays_correct_and_goes_on(sizes: list[int], data: st.DataObject) -> None:
    with small(), database() as connection:
        stored, kept, lowest = Stored(connection), 1, 1
        for i, size in enumerate(sizes):
            stored.append(random_walk(size, i))
            if data.draw(st.booleans()):
                total = len(stored.p)
                keep_from, level0_from = data.draw(st.integers(0, total + 9)), data.draw(st.integers(0, total + 9))
                before = kept
                kept = history.prune(connection, 1, keep_from, level0_from)
                lowest = max(lowest, 1 + (min(level0_from, kept) - 1) // 32 * 32)
                assert kept <= max(before, keep_from)
            same_tail(Tail.load(connection, 1, stored.tail.n), stored.tail)
        total = len(stored.p)
        start = data.draw(st.integers(1, total))
        stop = data.draw(st.integers(start, total))
        max_points = data.draw(st.integers(4, 60))
        points = stored.read(start, stop, max_points)
        check_points(points, stored, start, stop)
        assert len(points.n) <= max_points
        assert points.exact == (len(points.n) == stop - start + 1)
        if start >= kept:
            whole = thinned(stored.log10, start, stop, points.width)
            assert points.n.tolist() == whole
        if start == 1 and stop == total:  # no low or high is lost for the whole
            assert points.log10.min() == min(stored.log10)
            assert points.log10.max() == max(stored.log10)
        expected = [row for row in rollups_of(stored.log10) if row[0] > 0 or row[1] >= lowest]
        assert stored_rollups(stored) == expected
        assert without_nulls(replayed(stored, kept - 1)) == without_nulls(remembered(stored, kept - 1))


def test_lows_and_highs_remain_when_the_rows_are_pruned() -> None:
    with database() as connection:
        stored = filled(connection, [10_000] * 12)
        assert history.prune(connection, 1, 10**9, 10**9) == 110_001
        points = stored.read(1, 120_000, 100)
        check_points(points, stored, 1, 120_000)
        assert points.log10.min() == min(stored.log10)
        assert points.log10.max() == max(stored.log10)
        assert not points.exact
        assert {level for level, first, *_ in stored_rollups(stored) if first < 98_000} == {1}


def test_a_pruned_range_inside_one_block_shows_the_lows_and_highs_of_the_block() -> None:
    with small(), database() as connection:
        stored = Stored(connection)
        stored.append([0.0, 1.0, 2.0, 9.0, 3.0, -7.0, 1.0, 4.0])
        for i in range(5):
            stored.append(random_walk(8, i))
        assert history.prune(connection, 1, 41, 0) == 41
        assert stored.read(2, 7, 10).n.tolist() == [4, 6]  # the high and the low of the block
        assert stored.read(5, 8, 10).n.tolist() == [6, 8]  # its low and its last
        assert stored.read(1, 3, 10).n.tolist() == []  # nothing of these is stored any more
        assert not stored.read(1, 3, 10).exact


def test_an_incomplete_block_is_not_pruned() -> None:
    with small(), database() as connection:
        stored = filled(connection, [8, 5, 1, 1])
        assert history.prune(connection, 1, 10**9, 10**9) == 9
        same_tail(Tail.load(connection, 1, 15), stored.tail)


def test_an_exactly_full_block_may_be_pruned_but_the_newest_row_stays() -> None:
    with database() as connection:
        stored = filled(connection, [512, 512])
        assert history.prune(connection, 1, 10**9, 10**9) == 513
        assert history.prune(connection, 2, 10**9, 10**9) == 1
        stored.append(random_walk(1024))
        assert stored_rollups(stored) == rollups_of(stored.log10)


# ------------------------------------------------------------------ speed, as ratios


@pytest.fixture(scope="module")
def long() -> Iterator[sqlite3.Connection]:
    """Ten million steps (stream 1), and a hundred thousand (stream 2)."""
    with database() as connection:
        connection.execute("BEGIN")
        for stream, steps in ((1, 10_000_000), (2, 100_000)):
            tail, values = Tail(), random_walk(steps)
            for start in range(0, steps, 10_000):
                part = values[start : start + 10_000]
                tail = history.append(connection, stream, tail, part, part, x=np.empty((len(part), 0)))
        connection.execute("COMMIT")
        yield connection


def seconds(work: Callable[[], object]) -> float:
    """Return the shortest of five durations, since noise only adds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def test_ten_million_steps_open_in_a_fraction_of_reading_them(long: sqlite3.Connection) -> None:
    def all_rows() -> Floats:
        rows = long.execute("SELECT p, log10 FROM steps WHERE stream = 1 ORDER BY first").fetchall()
        return np.frombuffer(b"".join(log10 for _, log10 in rows))

    everything = seconds(all_rows)
    for start, stop in ((1, 10_000_000), (7, 9_999_990), (2_345_678, 8_000_000), (5_000_000, 5_400_000)):
        assert seconds(lambda a=start, b=stop: history.read(long, 1, a, b, 1000)) < everything / 3  # type: ignore[misc]


@pytest.mark.parametrize("max_points", [200, 1000])
def test_work_does_not_grow_with_the_length(long: sqlite3.Connection, max_points: int) -> None:
    """At most FACTOR roll-ups fall into a bucket, for any length; each takes about ten instructions."""
    for start, stop in ((1, 10_000_000), (3_000_000, 9_000_000), (1, 2_000_000), (9_990_000, 10_000_000)):
        work = instructions(long, lambda a=start, b=stop: history.read(long, 1, a, b, max_points))  # type: ignore[misc]
        assert 100 * work <= 15 * (max_points / 2 * rollups.FACTOR + 4 * rollups.FACTOR) + 20_000


def test_batches_cost_little_for_each_step(long: sqlite3.Connection) -> None:
    """A batch of a thousand costs far less than a thousand batches of one, and those do not grow with the stream."""
    values = random_walk(1000)

    def one_by_one(stream: int, n: int) -> float:
        tail = Tail.load(long, stream, n)
        long.execute("BEGIN")
        start = time.perf_counter()
        for i in range(1000):
            tail = history.append(long, stream, tail, values[i : i + 1], values[i : i + 1], x=np.empty((1, 0)))
        spent = time.perf_counter() - start
        long.execute("ROLLBACK")
        return spent

    def at_once() -> float:
        tail = Tail.load(long, 1, 10_000_000)
        long.execute("BEGIN")
        start = time.perf_counter()
        history.append(long, 1, tail, values, values, x=np.empty((1000, 0)))
        spent = time.perf_counter() - start
        long.execute("ROLLBACK")
        return spent

    singles = min(one_by_one(1, 10_000_000) for _ in range(3))
    assert min(at_once() for _ in range(3)) < singles / 10
    assert singles < 5 * min(one_by_one(2, 100_000) for _ in range(3))
