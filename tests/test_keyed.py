"""Many monitors as columns: the numbers of one monitor a key, bit for bit, whatever the calls; and nothing unlawful."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts import settled
from exchangeable import Monitor, Precomputed, alarms, bets, measures, native, pvalues
from exchangeable.catalogue import ALARMS, BETS
from exchangeable.fleet import stream_seed
from exchangeable.keyed import KINDS, Monitors, Rows
from exchangeable.keyed.vectorised import Vectorised
from exchangeable.measures import Frozen, Value
from exchangeable.snapshot import archive

REFERENCE = np.random.default_rng(5).normal(size=400)
LOUD: dict[str, Callable[[], Any]] = {  # alarms that are raised within a few steps
    "ville": lambda: alarms.Ville(0.5),
    "cusum": lambda: alarms.Cusum(2.0),
    "shiryaev-roberts": lambda: alarms.ShiryaevRoberts(6.0),
}
MEASURES: dict[str, Callable[[], Any]] = {
    "value": Value,
    "frozen": lambda: Frozen(bins=8, reference=REFERENCE),
    "many bins": lambda: Frozen(bins=1100, reference=np.arange(2000.0)),
    "given": Precomputed,
}
FIXED = [bet for bet in BETS if bet != "sleeper-drifter"]  # whose state does not grow
Make = Callable[[], Monitor]


def made(measure: str, bet: str, alarm: Callable[[], Any], on_alarm: str) -> Make:
    return lambda: Monitor(MEASURES[measure](), BETS[bet](), alarm(), on_alarm=on_alarm)


def composite(alarm: Callable[[], Any] = alarms.Ville, **options: Any) -> Monitor:
    return Monitor(Value(), bets.CompositeJumper(), alarm(), **options)


# ------------------------------------------------------------------ the oracle: sets of numbers, and one monitor a key


class One:
    """What is known of a key, by the definition."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.first: int | None = None
        self.last = 0
        self.passed = False
        self.missing: set[int] = set()  # that are remembered
        self.forgotten: set[int] = set()
        self.full = False
        self.tests = 1

    def runs(self) -> list[list[int]]:
        found: list[list[int]] = []
        for number in sorted(self.missing):
            if found and found[-1][-1] + 1 == number:
                found[-1].append(number)
            else:
                found.append([number])
        return found

    def note(self, numbers: range) -> None:
        self.missing |= set(numbers)
        while len(runs := self.runs()) > 16:
            self.missing -= set(runs[0])
            self.forgotten |= set(range(self.first or 0, runs[0][-1] + 1))


PLACES = {KINDS.index("duplicate"): 1, KINDS.index("bad"): 2}  # of rows of one number: these come last


class Oracle:
    """Monitors, slowly."""

    def __init__(self, make: Make, *, seed: int = 0, contiguous: bool = True, most: int = 4096) -> None:
        self.make, self.seed, self.contiguous, self.most = make, seed, contiguous, most
        self.ones: dict[Any, One] = {}

    def extend(self, keys: Any, order: Any, x: Any, refused: Any = None) -> list[tuple[Any, ...]]:
        bad = [False] * len(keys) if refused is None else list(refused)
        rows: list[tuple[Any, ...]] = []
        for key in sorted(set(keys)):
            if key not in self.ones:
                fresh = self.make()
                parts = fresh.measure, fresh.martingale.bet, fresh.alarm
                self.ones[key] = One(Monitor(*parts, seed=stream_seed(self.seed, key), on_alarm=fresh.on_alarm))
            mine = [i for i in range(len(keys)) if keys[i] == key]
            found = list(self._of(self.ones[key], mine, order, x, bad))
            rows += [(key, *row) for row in sorted(found, key=lambda row: (row[0], PLACES.get(row[1], 0), row[-2]))]
        return rows

    def _of(self, one: One, mine: list[int], order: Any, x: Any, bad: list[bool]) -> Iterator[tuple[Any, ...]]:
        repeats: list[int] = []
        for number in sorted({int(order[i]) for i in mine}):
            same = [i for i in mine if order[i] == number]
            lawful = [i for i in same if not bad[i]]
            yield from (side(number, "bad", 1, i) for i in same if bad[i])
            if one.first is not None and number <= one.last:
                kind = self._known(one, number)
                if kind == "duplicate":
                    repeats += lawful
                else:
                    yield from (side(number, "late", 1, i, kind == "unsure") for i in lawful)
                continue
            yield from self._advance(one, number)
            if len({float(x[i]) for i in lawful}) != 1 or len(lawful) < len(same):
                if lawful:
                    yield side(number, "conflict", len(lawful), lawful[0])
                one.passed = True
                if self.contiguous:
                    one.note(range(number, number + 1))
                continue
            repeats += lawful[1:]
            if one.full:
                yield side(number, "full", 1, lawful[0])
            else:
                yield self._step(one, number, x[lawful[0]], lawful[0])
        if repeats:
            yield side(int(order[repeats[0]]), "duplicate", len(repeats), repeats[0])

    def _known(self, one: One, number: int) -> str:
        if not self.contiguous:
            return "duplicate" if number == one.last and not one.passed else "late"
        if number in one.missing or number < (one.first or 0):
            return "late"
        return "unsure" if number in one.forgotten else "duplicate"

    def _advance(self, one: One, number: int) -> Iterator[tuple[Any, ...]]:
        if one.first is None:
            one.first = number
        elif self.contiguous and number > one.last + 1:
            one.note(range(one.last + 1, number))
            yield side(one.last + 1, "gap", number - one.last - 1, -1)
        one.last, one.passed = number, False

    def _step(self, one: One, number: int, x: Any, i: int) -> tuple[Any, ...]:
        monitor, test = one.monitor, one.tests
        step = monitor.update(x)
        change = monitor.changepoint if step.alarm else -1
        one.tests += step.alarm and monitor.on_alarm == "restart"
        one.full = isinstance(monitor.measure, Value) and monitor.measure._pool.distinct >= self.most
        return number, 0, step.n, step.p.hex(), step.log_value.hex(), step.alarm, change, 1, test, i, False


def side(order: int, kind: str, count: int, source: int, unsure: bool = False) -> tuple[Any, ...]:
    return order, KINDS.index(kind), -1, "nan", "nan", False, -1, count, 0, source, unsure


def listed(rows: Rows) -> list[tuple[Any, ...]]:
    """Rows as the oracle has them: floats by their bits."""
    columns = [column.tolist() for column in rows]
    columns[4], columns[5] = ([value.hex() for value in column] for column in columns[4:6])
    return list(zip(*columns, strict=True))


def kinds(rows: Rows) -> list[tuple[Any, ...]]:
    return [(key, order, KINDS[kind], count) for key, order, kind, count in zip(*rows[:3], rows.count, strict=True)]


# ------------------------------------------------------------------ bit for bit

KEYS: dict[str, list[Any]] = {
    "str": ["", "a", "a\0", "ä", "日本", "\U0001f600", "z" * 10_000, "a b", "\0"],
    "int": [-(2**63), -1, 0, 7, 2**63 - 1],
    "bytes": [b"", b"\0", b"\xff\xfe", b"a", b"ab" * 5000],
}


class Traffic:
    """Calls with events of many keys: most in order, some twice, late, missing, contradictory or refused."""

    def __init__(self, keys: list[Any], measure: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.keys, self.measure = keys, measure
        self.next = {key: int(self.rng.integers(-5, 5)) for key in keys}
        self.n = dict.fromkeys(keys, 0)

    def x(self, key: Any) -> float:
        self.n[key] += 1
        if self.measure == "given":
            return float((1.0 - self.rng.random()) ** (1.0 if self.n[key] < 8 else 3.0))
        if self.measure == "many bins":
            return float(self.rng.integers(0 if self.n[key] < 8 else 1700, 2000))
        return float(np.round(self.rng.normal(0.0 if self.n[key] < 8 else 2.0), 1))

    def call(self, events: int) -> tuple[list[Any], list[int], list[float], list[bool]]:
        found: list[tuple[Any, int, float, bool]] = []
        for _ in range(events):
            key = self.keys[int(self.rng.integers(len(self.keys)))]
            number, what = self.next[key], self.rng.random()
            if what < 0.1:
                number -= int(self.rng.integers(1, 12))  # late, or a duplicate
            elif what < 0.2:
                number += int(self.rng.integers(1, 4))  # a gap
            self.next[key] = max(self.next[key], number + 1)
            event = key, number, self.x(key), bool(self.rng.random() < 0.04)
            found.append(event)
            if what > 0.95:
                found.append(event)
            elif what > 0.92:
                found.append((key, number, self.x(key), False))  # a conflict
        self.rng.shuffle(found)
        return tuple(map(list, zip(*found, strict=True))) if found else ([], [], [], [])  # type: ignore[return-value]


def scored(make: Make, x: list[float], refused: list[bool]) -> NDArray[np.float64]:
    measure = make().measure
    if isinstance(measure, Frozen):
        return measure.scores(np.array(x))
    return np.where(refused, np.nan, np.array(x))


def compared(make: Make, traffic: Traffic, sizes: list[int], **options: Any) -> set[str]:
    """Play the same calls to both, storing the state in between; which kinds of rows there were."""
    oracle, monitors, met = Oracle(make, seed=9, **options), Monitors(make(), seed=9, **options), set()
    for i, size in enumerate(sizes):
        keys, order, x, refused = traffic.call(size)
        rows = monitors.extend(keys, order, scored(make, x, refused), refused, np.array(x).view(np.int64))
        assert listed(rows) == oracle.extend(keys, order, x, refused)
        met |= {KINDS[kind] for kind in rows.kind} | {"alarm" for raised in rows.alarm if raised}
        if i % 2:
            monitors = Monitors.decode(monitors.encode(), make(), seed=9, **options)
    statuses = monitors.statuses()
    for i, key in enumerate(monitors.keys().tolist()):
        one, status = oracle.ones[key], monitors.status(key)
        monitor = one.monitor
        assert status[:2] == (monitor.n, one.last)
        assert status[2:6] == (
            monitor.martingale.log_value,
            monitor.log_max,
            monitor.alarm_at,
            monitor.changepoint,
        )
        assert status[6:] == (monitor.test, one.full) == (one.tests, one.full)
        assert [-1 if field is None else field for field in status] == [column[i] for column in statuses]
    return met


@pytest.mark.quick
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("alarm", LOUD)
@pytest.mark.parametrize("measure", MEASURES)
def test_numbers_are_those_of_one_monitor_a_key(measure: str, alarm: str, on_alarm: str) -> None:
    make = made(measure, "composite-jumper", LOUD[alarm], on_alarm)
    traffic = Traffic(KEYS["str"], measure, seed=len(measure + alarm))
    met = compared(make, traffic, [40, 0, 90, 1, 60, 120])
    assert met >= {"step", "duplicate", "late", "gap", "conflict", "bad"}
    assert "alarm" in met


def test_every_alarm_of_the_catalogue_is_among_them() -> None:
    assert LOUD.keys() == ALARMS.keys()


@pytest.mark.filterwarnings("ignore::exchangeable.monitor.BetWarning")
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("bet", FIXED)
def test_every_bet_gives_the_same_numbers(bet: str, on_alarm: str) -> None:
    make = made("value", bet, LOUD["shiryaev-roberts"], on_alarm)
    compared(make, Traffic(["a", "b", "c"], "value", seed=2), [30, 20, 40])


@pytest.mark.parametrize("bet", ["composite-jumper", "simple-jumper", "simple-mixture", "histogram", "sleeper-stayer"])
def test_every_bet_gives_the_same_numbers_over_many_steps(bet: str) -> None:
    """As one call, as many, and as one monitor."""
    x = np.random.default_rng(1).normal(size=600).round(2)
    recipe = Monitor(Value(), BETS[bet]())
    path = Monitor(Value(), BETS[bet](), seed=stream_seed(4, "k")).extend(x)
    once = Monitors(recipe, seed=4).extend(["k"] * 600, np.arange(600), x)
    several = Monitors(recipe, seed=4)
    parts = [several.extend(["k"] * len(part), part, x[part]) for part in np.split(np.arange(600), [1, 2, 5, 77, 300])]
    for found in (once, Rows(*map(np.concatenate, zip(*parts, strict=True)))):
        assert np.array_equal(found.n, path.n)
        assert found.p.tobytes() == path.p.tobytes()
        assert found.log_value.tobytes() == path.log_value.tobytes()


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("contiguous", [True, False])
def test_keys_of_every_kind(kind: str, contiguous: bool) -> None:
    make = made("frozen", "simple-jumper", LOUD["cusum"], "restart")
    met = compared(make, Traffic(KEYS[kind], "frozen", 3), [50, 80, 80], contiguous=contiguous)
    assert ("gap" in met) == contiguous
    assert "late" in met


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("most", [2, 5, 11])
def test_full_pools(most: int, on_alarm: str) -> None:
    make = made("value", "simple-jumper", LOUD["cusum"], on_alarm)
    met = compared(make, Traffic(["a", "b"], "value", 4), [20, 20, 60, 60, 60], most=most)
    assert "full" in met


@settled(40)
@given(
    calls=st.lists(st.lists(st.tuples(st.integers(0, 45), st.integers(0, 1), st.booleans()), max_size=25), max_size=8),
    contiguous=st.booleans(),
)
def test_sequence_numbers(calls: list[list[tuple[int, int, bool]]], contiguous: bool) -> None:
    """Small numbers at random: more ranges are missing than are remembered."""
    make = made("given", "idle", alarms.Ville, "latch")
    oracle, monitors = Oracle(make, contiguous=contiguous), Monitors(make(), contiguous=contiguous)
    for call in calls:
        order, x = [2 * number for number, _, _ in call], [0.5 + 0.25 * value for _, value, _ in call]
        refused = [bad for _, _, bad in call]
        rows = monitors.extend([0] * len(call), order, x, refused)
        assert listed(rows) == oracle.extend([0] * len(call), order, x, refused)
        monitors = monitors.like(monitors.encode())


def test_a_restart_does_not_disturb_other_keys() -> None:
    """Many alarms of one key in one call, among keys without."""
    make = made("given", "simple-mixture", lambda: alarms.Ville(0.3), "restart")
    p = np.concatenate([np.full(200, 0.001), np.full(200, 0.6)])
    keys, order = ["loud"] * 200 + ["quiet"] * 200, np.tile(np.arange(200), 2)
    rows = Monitors(make()).extend(keys, order, p)
    assert listed(rows) == Oracle(make).extend(keys, order, p)
    assert rows.test.max() > 50
    assert not rows.alarm[rows.key == "quiet"].any()


# ------------------------------------------------------------------ theta and seeds


def test_theta_is_that_of_pvalues() -> None:
    rng = np.random.default_rng(0)
    seeds = np.concatenate([rng.integers(0, 2**64, 30, dtype=np.uint64), np.array([0, 1, 2**64 - 1], np.uint64)])
    start = np.concatenate([np.arange(12), rng.integers(0, 10**6, 10), rng.integers(2**60, 2**61, 11)])
    count = rng.integers(0, 11, len(seeds))
    hi = np.cumsum(count)
    numbers, theta = np.zeros((len(seeds), native.KEYED_INTEGERS), np.int64), np.zeros(hi[-1])
    numbers[:, native.KEYED_SEED], numbers[:, native.TRACK_N] = seeds.view(np.int64), start
    native.keyed_thetas(numbers, hi - count, hi, theta)
    for seed, begin, many, end in zip(seeds.tolist(), start.tolist(), count.tolist(), hi.tolist(), strict=True):
        assert theta[end - many : end].tobytes() == pvalues.thetas(seed, begin, begin + many).tobytes()


@pytest.mark.parametrize(
    ("key", "tagged"), [("ä", b"s\xc3\xa4"), (-12, b"i-12"), (np.int64(3), b"i3"), (b"\xff", b"b\xff"), ("", b"s")]
)
def test_stream_seed_is_the_digest_of_the_tagged_key(key: Any, tagged: bytes) -> None:
    seed = 2**64 - 3
    digest = hashlib.blake2b(tagged, digest_size=8, key=seed.to_bytes(8, "little")).digest()
    assert stream_seed(seed, key) == int.from_bytes(digest, "little")


def test_stream_seeds_stay_what_they_are() -> None:
    """Streams that were checked must be checkable for ever."""
    assert [stream_seed(0, key) for key in ("a", 1, b"a")] == [
        407051513869225531,
        985782949270644111,
        15630822722683843445,
    ]


@pytest.mark.parametrize("key", [True, None, 1.0, 2**63, -(2**63) - 1, "\ud800", ("a",)])
def test_other_keys_have_no_seed(key: Any) -> None:
    with pytest.raises(ValueError, match="key must be text"):
        stream_seed(0, key)


@pytest.mark.usefixtures("system_seeds")
def test_a_seed_that_is_left_out_is_drawn_kept_and_stored() -> None:
    keys, order, x = ["a"] * 30, np.arange(30), np.zeros(30)  # all ties: p is theta
    one, other = Monitors(composite()), Monitors(composite())
    assert one.seed != other.seed
    assert max(one.seed, other.seed) < 2**53
    assert f"seed={one.seed}>" in repr(one)
    assert one.fingerprint()["seed"] == str(one.seed)
    p = one.extend(keys, order, x).p
    assert not np.array_equal(p, other.extend(keys, order, x).p)
    assert np.array_equal(p, Monitors(composite(), seed=one.seed).extend(keys, order, x).p)
    assert np.array_equal(p, Monitor(Value(), seed=stream_seed(one.seed, "a")).extend(x).p)
    again = Monitors.decode(one.encode(), composite())
    assert again.seed == one.seed
    assert np.array_equal(again.extend(["b"] * 30, order, x).p, one.extend(["b"] * 30, order, x).p)
    with pytest.raises(ValueError, match=f"seed must be what it was when the state was stored, {one.seed}, got "):
        other.like(one.encode())


@pytest.mark.parametrize("stored", [None, "", "x", "-1", str(2**64), "9" * 5000, [], " 9", "1_0"])
def test_an_invalid_stored_seed_is_refused(stored: Any) -> None:
    members = arrays_of(busy(composite).encode())
    members["state.json"]["recipe"]["seed"] = stored
    with pytest.raises(ValueError, match=r"^(data must hold the seed of its monitors|seed must be)") as error:
        Monitors.decode(packed(members), composite())
    assert len(str(error.value)) < 200


def test_the_bet_of_a_recipe_follows_its_alarm() -> None:
    """Left to `Monitor`, it is the one that suits the alarm; of 3.6 kB a key, where `Adaptive` takes 91."""
    for alarm in (alarms.Cusum(100.0), alarms.ShiryaevRoberts(100.0)):
        monitors = Monitors(Monitor(Value(), alarm=alarm), seed=9)
        assert monitors.fingerprint()["bet"] == "Sentinel()"
        rows = monitors.extend(np.arange(40).repeat(2), np.tile([1, 2], 40), np.zeros(80))
        own = Monitor(Value(), bets.Sentinel(), alarm, seed=stream_seed(9, 0)).extend([0.0, 0.0])
        assert rows.log_value[:2].tobytes() == own.log_value.tobytes()
        assert 3500 < len(monitors.encode()) / 40 < 3900
    assert Monitors(Monitor(Value())).fingerprint()["bet"] == "Adaptive()"


@pytest.mark.parametrize("seed", [-1, 2**64, True, 0.0])
def test_other_seeds_are_rejected(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be an integer"):
        stream_seed(seed, "a")


# ------------------------------------------------------------------ sequence numbers, one by one


def test_a_gap_is_reported_and_betting_goes_on() -> None:
    monitors = Monitors(composite())
    assert kinds(monitors.extend(["a"], [7], [0.5])) == [("a", 7, "step", 1)]
    rows = monitors.extend(["a"], [10], [0.6])
    assert kinds(rows) == [("a", 8, "gap", 2), ("a", 10, "step", 1)]
    assert rows.n.tolist() == [-1, 2]
    assert rows.details().tolist() == ["orders 8 to 9 are missing", None]
    late = monitors.extend(["a", "a", "a"], [9, 9, 7], [0.1, 0.1, 0.5])
    assert kinds(late) == [("a", 7, "duplicate", 1), ("a", 9, "late", 1), ("a", 9, "late", 1)]
    assert late.details().tolist()[0] == "1 repeated event, the first with order 7: dropped"
    assert late.details().tolist()[1] == "order 9 came after a higher one: late, not bet on"
    assert monitors.status("a").n == 2


def test_numbers_at_the_ends_of_int64() -> None:
    low, high = -(2**63), 2**63 - 1
    monitors = Monitors(composite())
    rows = monitors.extend(["a", "a", "b", "b"], [low, high, low, low + 1], [1.0, 2.0, 1.0, 2.0])
    assert kinds(rows) == [
        ("a", low, "step", 1),
        ("a", low + 1, "gap", 2**63 - 1),
        ("a", 0, "gap", 2**63 - 1),
        ("a", high, "step", 1),
        ("b", low, "step", 1),
        ("b", low + 1, "step", 1),
    ]
    again = monitors.extend(["a"] * 3, [0, low, high], [0.0, 0.0, 0.0])
    assert kinds(again) == [("a", low, "duplicate", 2), ("a", 0, "late", 1)]
    assert kinds(monitors.extend(["b"], [high], [3.0])) == [
        ("b", low + 2, "gap", 2**63 - 1),
        ("b", 1, "gap", 2**63 - 2),
        ("b", high, "step", 1),
    ]


def test_forgotten_numbers_are_reported_as_unsure() -> None:
    monitors = Monitors(composite())
    monitors.extend(["a"] * 20, np.arange(20) * 3, np.arange(20.0))  # 19 ranges are missing: 1 to 2, 4 to 5, 7 to 8, ..
    rows = monitors.extend(["a"] * 5, [-1, 3, 8, 9, 10], np.zeros(5))
    assert [kind[1:3] for kind in kinds(rows)] == [
        (-1, "late"),
        (3, "late"),
        (8, "late"),
        (9, "duplicate"),
        (10, "late"),
    ]
    assert rows.unsure.tolist() == [False, True, True, False, False]
    assert rows.detail(1) == "order 3 is older than the remembered numbers: late or a duplicate, not bet on"


def test_a_conflict_is_not_bet_on_and_counts_as_passed() -> None:
    monitors = Monitors(composite())
    rows = monitors.extend(["a"] * 4, [1, 2, 2, 3], [0.1, 0.2, 0.3, 0.4])
    assert kinds(rows) == [("a", 1, "step", 1), ("a", 2, "conflict", 2), ("a", 3, "step", 1)]
    assert rows.detail(1) == "2 different events with order 2: none is bet on"
    assert kinds(monitors.extend(["a"], [2], [0.2])) == [("a", 2, "late", 1)]


def test_minus_zero_is_no_conflict() -> None:
    assert kinds(Monitors(composite()).extend(["a"] * 2, [1, 1], [0.0, -0.0]))[1] == ("a", 1, "duplicate", 1)


def test_refused_events_pass() -> None:
    """They are no gap, are not looked at, and give their key a state."""
    monitors = Monitors(composite())
    rows = monitors.extend(["a", "b", "a"], [5, 1, 6], [math.nan, math.inf, 0.5], [True, True, False])
    assert kinds(rows) == [("a", 5, "bad", 1), ("a", 6, "step", 1), ("b", 1, "bad", 1)]
    assert rows.source.tolist() == [0, 2, 1]
    assert monitors.status("b")[:2] == (0, 1)
    both = monitors.extend(["b", "b"], [2, 2], [0.0, 0.1], [True, False])
    assert kinds(both) == [("b", 2, "conflict", 1), ("b", 2, "bad", 1)]
    assert both.details().tolist() == [
        "one valid event with order 2 beside bad ones: not bet on",
        "order 2 was rejected: not bet on",
    ]
    assert kinds(monitors.extend(["b"], [2], [0.1])) == [("b", 2, "late", 1)]


def test_numbers_that_are_not_contiguous() -> None:
    monitors = Monitors(composite(), contiguous=False)
    rows = monitors.extend(["a"] * 3, [10, 20, 20], [0.1, 0.2, 0.2])
    assert kinds(rows) == [("a", 10, "step", 1), ("a", 20, "step", 1), ("a", 20, "duplicate", 1)]
    assert kinds(monitors.extend(["a"] * 3, [10, 15, 20], [0.1, 0.2, 0.2])) == [
        ("a", 10, "late", 1),
        ("a", 15, "late", 1),
        ("a", 20, "duplicate", 1),
    ]
    monitors.extend(["a"], [30], [0.0], [True])
    assert kinds(monitors.extend(["a"], [30], [0.1])) == [("a", 30, "late", 1)]


def test_the_step_that_fills_the_pool_is_the_last() -> None:
    monitors = Monitors(composite(), most=3)
    rows = monitors.extend(["a"] * 6, range(6), [1.0, 2.0, 1.0, 3.0, 1.0, 4.0])
    assert [KINDS[kind] for kind in rows.kind] == ["step"] * 4 + ["full"] * 2
    assert rows.detail(4) == "order 4 came after the pool of its key was full, which ended the test: not bet on"
    assert monitors.status("a").full
    assert kinds(monitors.extend(["a"] * 3, [4, 6, 8], [1.0, 1.0, 1.0])) == [
        ("a", 4, "duplicate", 1),
        ("a", 6, "full", 1),
        ("a", 7, "gap", 1),
        ("a", 8, "full", 1),
    ]


# ------------------------------------------------------------------ validation


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (np.array(["b", "a"]), "str"),
        (np.array(["b", "a"], object), "str"),
        (pd.Series(["b", "a"]), "str"),
        (pd.Series(["b", "a"], dtype="category"), "str"),
        (pa.array(["b", "a"]), "str"),
        (pa.chunked_array([["b"], ["a"]]), "str"),
        (pa.array(["b", "a"]).dictionary_encode(), "str"),
        (np.array([2, 1], np.int8), "int"),
        (pd.Series([2, 1]), "int"),
        (pa.array([2, 1], pa.uint64()), "int"),
        (pa.array([b"b", b"a"]), "bytes"),
        (np.array([b"b", b"a"]), "bytes"),
        (pa.array([b"b", b"a"], pa.binary(1)), "bytes"),
    ],
)
def test_columns_of_keys(keys: Any, kind: str) -> None:
    rows = Monitors(composite()).extend(keys, [1, 1], [0.5, 0.6])
    assert rows.key.tolist() == {"str": ["a", "b"], "int": [1, 2], "bytes": [b"a", b"b"]}[kind]
    assert rows.source.tolist() == [1, 0]


@pytest.mark.parametrize(
    "keys",
    [
        ["a", None],
        ["a", 1],
        [1, True],
        [True, False],
        [1.0, 2.0],
        [2**63, 1],
        ["a", "\ud800"],
        ["a", b"a"],
        [["a"], ["b"]],
        pd.Series(["a", None]),
        pa.array([1, None]),
        pa.array([2**63, 1], pa.uint64()),
        np.array([["a", "b"]]),
        5,
        None,
    ],
)
def test_other_keys_are_refused(keys: Any) -> None:
    monitors = Monitors(composite())
    with pytest.raises(ValueError, match="keys must be all text, all bytes, or all 64-bit integers, got"):
        monitors.extend(keys, [1, 1], [0.5, 0.6])
    assert len(monitors) == 0


@pytest.mark.parametrize("keys", ["ab", b"ab"])
def test_one_key_is_not_a_list_of_its_characters(keys: Any) -> None:
    monitors = Monitors(composite())
    monitors.extend(list(keys), [1, 1], [0.5, 0.6])
    for call in (monitors.delete, monitors.standings, lambda keys: monitors.extend(keys, [2, 2], [0.5, 0.6])):
        with pytest.raises(ValueError, match=r"keys must be a list of keys, got b?'ab': write \[b?'ab'\] for one"):
            call(keys)
    assert monitors.version == len(monitors) == 2


def test_keys_stay_of_one_kind() -> None:
    monitors = Monitors(composite())
    monitors.extend([1], [1], [0.5])
    with pytest.raises(ValueError, match="keys must be integers, as before, got text"):
        monitors.extend(["1"], [1], [0.5])
    assert monitors.extend([], [], []).key.tolist() == []
    assert 1 in monitors
    assert "1" not in monitors
    assert True not in monitors
    assert "\ud800" not in monitors
    assert len(monitors) == 1
    assert monitors.keys().tolist() == [1]


@pytest.mark.parametrize(
    ("measure", "x", "message"),
    [
        ("value", math.nan, "be a finite number, got nan"),
        ("value", -math.inf, "be a finite number, got -inf"),
        ("frozen", 8.0, "be the number of a bin, 0 to 7, got 8.0"),
        ("frozen", 0.5, "be the number of a bin, 0 to 7, got 0.5"),
        ("frozen", -1.0, "be the number of a bin, 0 to 7, got -1.0"),
        ("frozen", math.nan, "be the number of a bin, 0 to 7, got nan"),
        ("given", 0.0, r"lie in \(0, 1\], got 0.0"),
        ("given", 1.5, r"lie in \(0, 1\], got 1.5"),
        ("given", math.nan, r"lie in \(0, 1\], got nan"),
    ],
)
def test_invalid_numbers_are_named_and_nothing_changes(measure: str, x: float, message: str) -> None:
    monitors = Monitors(made(measure, "simple-jumper", alarms.Ville, "latch")())
    monitors.extend(["a", "b"], [1, 1], [1.0, 1.0])
    before = monitors.encode()
    with pytest.raises(ValueError, match=f"key 'b', order 3: x must {message}"):
        monitors.extend(["a", "b", "c"], [2, 3, 9], [1.0, x, 1.0])
    assert monitors.encode() == before


@pytest.mark.parametrize(
    ("order", "x", "refused", "content", "message"),
    [
        ([1.0], [0.5], None, None, "order must be a one-dimensional array of 64-bit integers"),
        ([True], [0.5], None, None, "order must be a one-dimensional array of 64-bit integers"),
        ([2**63], [0.5], None, None, "order must be signed 64-bit integers, got 9223372036854775808"),
        ([2**64], [0.5], None, None, "order must be a one-dimensional array of 64-bit integers"),
        ([[1]], [0.5], None, None, "order must be a one-dimensional array of 64-bit integers"),
        ([1, 2], [0.5], None, None, "order must be as long as keys, 1, got 2"),
        ([1], [0.5, 0.5], None, None, "x must be as long as keys, 1, got 2"),
        ([1], ["0.5"], None, None, "x must be a one-dimensional array of numbers, got"),
        ([1], 0.5, None, None, "x must be a one-dimensional array of numbers, got"),
        ([1], [0.5], [1], None, "refused must be a one-dimensional array of booleans"),
        ([1], [0.5], [True, False], None, "refused must be as long as keys"),
        ([1], [0.5], None, [0.5], "content must be a one-dimensional array of 64-bit integers"),
    ],
)
def test_other_columns_are_refused(order: Any, x: Any, refused: Any, content: Any, message: str) -> None:
    monitors = Monitors(composite())
    with pytest.raises(ValueError, match=message):
        monitors.extend(["a"], order, x, refused, content)
    assert len(monitors) == 0


class Custom(bets.Idle):
    """Not exchangeable's own."""


def used() -> Monitor:
    monitor = composite()
    monitor.update(0.5)
    return monitor


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            lambda: Monitor(),
            "recipe must have a measure of bounded memory: Value, Frozen with bins, or Precomputed, got",
        ),
        (lambda: Monitor(Frozen(lambda X, y: X)), "recipe must have a measure of bounded memory"),
        (lambda: Monitor(Value(), Custom()), "bet of the recipe must be one of exchangeable.bets, got"),
        (
            lambda: Monitor(Value(), bets.SleeperDrifter()),
            r"^bet of the recipe must have a state of fixed size, got SleeperDrifter\(\), whose state grows$",
        ),
        (
            lambda: Monitor(Value(), bets.Blend([bets.Idle(), bets.Cautious(bets.SleeperDrifter(every=7))])),
            "bet of the recipe must have a state of fixed size, got Blend",
        ),
        (used, "recipe must be fresh, got a monitor that has seen 1 examples"),
        (lambda: composite(start=3), "recipe must be fresh"),
        (lambda: Value(), "recipe must be a monitor, got"),
    ],
)
def test_other_recipes_are_refused(recipe: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Monitors(recipe())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"contiguous": 1}, "contiguous must be True or False, got 1"),
        ({"most": 1}, "most must be an integer from 2"),
        ({"extra": 5}, "extra must be text, got 5"),
    ],
)
def test_other_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Monitors(composite(), **options)


def test_an_unknown_key_has_no_status() -> None:
    with pytest.raises(ValueError, match="key must be one of the 0 that have had events, got 'a'"):
        Monitors(composite()).status("a")


def test_the_recipe_is_not_touched() -> None:
    recipe = Monitor(measures.Value(), bets.Cautious(bets.SimpleMixture(), factor=2.0, window=9), alarms.Cusum())
    Monitors(recipe).extend(["a"] * 9, range(9), np.arange(9.0))
    assert recipe.n == 0
    assert not recipe.martingale.bet._state[:2].any()  # type: ignore[attr-defined]


def test_bins_alone_hide_a_conflict_and_content_shows_it() -> None:
    recipe = made("frozen", "simple-jumper", alarms.Ville, "latch")()
    assert kinds(Monitors(recipe).extend(["a"] * 2, [1, 1], [3.0, 3.0]))[1][2] == "duplicate"
    assert kinds(Monitors(recipe).extend(["a"] * 2, [1, 1], [3.0, 3.0], content=[5, 6]))[0][2] == "conflict"


# ------------------------------------------------------------------ bytes


def busy(make: Make, keys: list[Any] | None = None, **options: Any) -> Monitors:
    """Monitors in the middle of it, with gaps and late events."""
    monitors = Monitors(make(), seed=9, **options)
    measure = make().measure
    kind = "given" if isinstance(measure, Precomputed) else "frozen"
    traffic = Traffic(keys or ["a", "bb", "ä"], kind, seed=1)
    for size in (60, 60):
        names, order, x, refused = traffic.call(size)
        monitors.extend(names, order, scored(make, x, refused), refused)
    return monitors


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", KEYS)
def test_equal_states_are_equal_bytes(measure: str, kind: str) -> None:
    monitors = busy(made(measure, "composite-jumper", LOUD["cusum"], "restart"), KEYS[kind])
    data = monitors.encode()
    assert monitors.like(data).encode() == data
    assert monitors.like(data).keys().tolist() == monitors.keys().tolist()


def test_a_state_without_keys() -> None:
    monitors = Monitors(composite())
    again = monitors.like(monitors.encode())
    assert len(again) == 0
    assert kinds(again.extend([3], [1], [0.5])) == [(3, 1, "step", 1)]
    assert len(again.like()) == 0


def test_it_is_an_archive_of_plain_arrays() -> None:
    with zipfile.ZipFile(io.BytesIO(busy(composite).encode())) as archived:
        head = json.loads(archived.read("state.json"))
        integers = np.load(io.BytesIO(archived.read("integers.npy")), allow_pickle=False)
    assert (head["format"], head["version"], head["keys"]) == ("exchangeable monitors", 5, "str")
    assert head["recipe"]["bet"] == "CompositeJumper()"
    assert len(integers) == 3 * native.KEYED_INTEGERS


def test_a_call_leaves_other_keys_alone() -> None:
    monitors = busy(composite)
    twin = monitors.like(monitors.encode())
    twin.extend(["a", "new"], [10**6, 0], [0.5, 0.5])
    for key in ("bb", "ä"):
        assert twin.status(key) == monitors.status(key)
    x = [0.1, 0.2]
    assert listed(twin.extend(["bb", "ä"], [10**6] * 2, x)) == listed(monitors.extend(["bb", "ä"], [10**6] * 2, x))


@pytest.mark.parametrize("events", [200, 300, 70_000])
def test_counts_are_stored_in_the_narrowest_integers(events: int) -> None:
    recipe = Monitor(Frozen(bins=2, reference=[0.0, 1.0]), bets.Idle())
    monitors = Monitors(recipe)
    monitors.extend(np.zeros(events, np.int64), np.arange(events), np.zeros(events))
    with zipfile.ZipFile(io.BytesIO(monitors.encode())) as archived:
        counts = np.load(io.BytesIO(archived.read("counts.npy")))
    assert counts.tolist() == [events, 0]
    assert counts.dtype.itemsize == (1 if events < 256 else 2 if events < 65_536 else 4)
    twin = monitors.like(monitors.encode())
    assert listed(twin.extend([0], [events], [1.0])) == listed(monitors.extend([0], [events], [1.0]))


@pytest.mark.parametrize("bet", ["composite-jumper", "cautious"])
def test_copies_go_their_own_way(bet: str) -> None:
    make = made("value", bet, LOUD["cusum"], "latch")
    monitors = busy(make)
    x, data = np.arange(20.0), monitors.encode()
    for twin in (copy.deepcopy(monitors), pickle.loads(pickle.dumps(monitors)), copy.copy(monitors)):
        assert twin.encode() == data
        twin.extend(["a"] * 20, np.arange(1000, 1020), x)
        assert monitors.encode() == data
        fresh = monitors.like(data)
        fresh.extend(["a"] * 20, np.arange(1000, 1020), x)
        assert fresh.encode() == twin.encode()


OTHERS: list[tuple[str, Callable[[], Monitor], dict[str, Any]]] = [
    (
        "measure must be what it was when the state was stored, Value\\(\\), got Precomputed\\(\\)",
        lambda: Monitor(Precomputed(), bets.CompositeJumper()),
        {},
    ),
    (
        "bet must be what it was .*, CompositeJumper\\(\\), got SimpleJumper\\(rate=0.01\\)",
        lambda: Monitor(Value(), bets.SimpleJumper()),
        {},
    ),
    (
        "alarm must be what it was .*, Ville\\(alpha=0.01\\), got Ville\\(alpha=0.02\\)",
        lambda: composite(lambda: alarms.Ville(0.02)),
        {},
    ),
    ("on_alarm must be what it was .*, latch, got restart", lambda: composite(on_alarm="restart"), {}),
    ("seed must be what it was .*, 9, got 8", composite, {"seed": 8}),
    ("contiguous must be what it was .*, True, got False", composite, {"contiguous": False}),
    ("most must be what it was .*, 4096, got 4095", composite, {"most": 4095}),
    ("extra must be what it was .*, 512 buckets, got 64 buckets", composite, {"extra": "64 buckets"}),
]


@pytest.mark.parametrize(("message", "recipe", "options"), OTHERS)
def test_another_recipe_is_rejected(message: str, recipe: Callable[[], Monitor], options: dict[str, Any]) -> None:
    data = busy(composite, extra="512 buckets").encode()
    with pytest.raises(ValueError, match=message):
        Monitors.decode(data, recipe(), **{"seed": 9, "extra": "512 buckets", **options})


def test_other_edges_are_rejected() -> None:
    data = Monitors(Monitor(Frozen(bins=4, reference=np.arange(9.0)), bets.Idle())).encode()
    with pytest.raises(
        ValueError, match=r"measure must be .* Frozen\(numbers, bins=4, 3 edges of digest .*, got Frozen"
    ):
        Monitors.decode(data, Monitor(Frozen(bins=4, reference=np.arange(10.0)), bets.Idle()))


def test_a_bet_that_has_learnt_is_rejected() -> None:
    """A bet may begin with what it learnt elsewhere: another beginning is another recipe."""
    learnt = bets.Histogram(4)
    learnt.extend([0.1, 0.2])
    assert Monitors(Monitor(Value(), learnt)).extend(["a"], [1], [0.5]).log_value[0] != 0.0
    data = Monitors(Monitor(Value(), learnt)).encode()
    with pytest.raises(ValueError, match="digest of the fresh states of bet and alarm must be"):
        Monitors.decode(data, Monitor(Value(), bets.Histogram(4)))


# ------------------------------------------------------------------ hostile bytes


def arrays_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archived:
        members = {name: archived.read(name) for name in archived.namelist()}
    return {
        name: json.loads(body) if name == "state.json" else np.load(io.BytesIO(body)) for name, body in members.items()
    }


def packed(members: dict[str, Any]) -> bytes:
    """An archive with right checksums, whatever is in it."""
    return archive.write_members(
        {
            name: json.dumps(body).encode() if name == "state.json" else archive.write_array(body)
            for name, body in members.items()
        }
    )


def forged(data: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    members = arrays_of(data)
    change(members)
    return packed(members)


def put(name: str, at: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(members: dict[str, Any]) -> None:
        members[f"{name}.npy"][at] = value

    return change


def integer(column: int, value: int) -> Callable[[dict[str, Any]], None]:
    return put("integers", column, value)


def cut(name: str) -> Callable[[dict[str, Any]], None]:
    def change(members: dict[str, Any]) -> None:
        members[f"{name}.npy"] = members[f"{name}.npy"][:-1]

    return change


def head(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda members: members["state.json"].update(changes)


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "format": (head(format="exchangeable snapshot"), "state.json must be of the format 'exchangeable monitors'"),
    "version": (head(version=6), "version must be 5 for this release to read it, got 6, written by exchangeable"),
    "old version": (head(version=1), "got 1, .*: start with a new state"),
    "true version": (head(version="5"), "version must be 5"),
    "keys": (head(keys="float"), "state.json must have format, keys"),
    "recipe": (head(recipe=5), "state.json must have"),
    "no recipe": (head(recipe={}), "measure must be what it was"),
    "more": (head(more=1), "state.json must have"),
    "other kind": (head(keys="int"), "keys.npy must be a one-dimensional array of <i8"),
    "one less": (cut("reals"), "reals must hold 4 numbers for each of 3 keys, got 11"),
    "no bet": (lambda members: members.pop("bet.npy"), "bet.npy must be a one-dimensional array of <f8"),
    "one more": (lambda members: members.update({"x.npy": np.zeros(1)}), "data must hold state.json and keys, text"),
    "dtype": (lambda members: members.update({"reals.npy": np.zeros(12, np.float32)}), "reals.npy must be"),
    "n": (integer(native.TRACK_N, -1), "n of every stream must be valid"),
    "large n": (integer(native.TRACK_N, 2**60), "n of every stream must be valid"),
    "since": (integer(native.TRACK_START, -1), "n of every stream must be valid"),
    "pool": (integer(native.TRACK_N, 1), "pool of every stream must be valid|lowest of every stream must be"),
    "order": (integer(native.KEYED_FIRST, 2**62), "order of every stream must be valid"),
    "lowest": (integer(native.TRACK_LOWEST, 2**40), "lowest of every stream must be valid"),
    "alarm": (integer(native.TRACK_ALARM, 0), "alarm_at of every stream must be valid"),
    "change": (integer(native.TRACK_CHANGE, -2), "changepoint of every stream must be valid"),
    "test": (integer(native.TRACK_TEST, 0), "test of every stream must be valid"),
    "flags below": (integer(native.KEYED_FLAGS, -1), "flags of every stream must be valid"),
    "flags": (integer(native.KEYED_FLAGS, 8), "flags of every stream must be valid"),
    "low": (put("reals", native.TRACK_LOW, 0.5), "log_max of every stream must be valid"),
    "nan": (put("reals", native.TRACK_HIGH, math.nan), "log_max of every stream must be valid"),
    "sum": (put("reals", native.KEYED_SUM, math.nan), "log_value of every stream must be valid"),
    "bet": (put("bet", 0, math.nan), "a state must hold numbers, got NaN"),
    "lengths": (put("spans_used", 0, 255), "lengths must be those of 3 rows that fill"),
    "spans": (put("spans", 0, 2**62), "spans must be ranges of missing numbers in order"),
    "text": (put("text", 0, 255), "keys must be text, got invalid"),
    "long text": (put("keys", 0, 200), "keys must be .* bytes long"),
    "scores": (put("scores", 0, math.inf), "scores must be finite numbers in increasing order"),
    "order of scores": (put("scores", 0, 1e9), "scores must be finite numbers in increasing order"),
    "no count": (put("counts", 0, 0), "pool of every stream|counts must be integers from 1"),
    "pool lengths": (put("pool_used", 0, 200), "lengths must be those of 3 rows"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_state_is_refused(name: str) -> None:
    change, message = FORGERIES[name]
    data = busy(composite).encode()
    with pytest.raises(ValueError, match=message) as caught:
        Monitors(composite(), seed=9).like(forged(data, change))
    assert "\n" not in str(caught.value)


def test_the_same_key_twice_is_refused() -> None:
    data = busy(composite, ["a", "b"]).encode()
    with pytest.raises(ValueError, match="keys must be unique, got a duplicate"):
        Monitors(composite(), seed=9).like(forged(data, put("text", 1, ord("a"))))


def test_too_many_ranges_are_refused() -> None:
    def change(members: dict[str, Any]) -> None:
        used, spans = members["spans_used.npy"], members["spans.npy"]
        members["spans_used.npy"] = np.array([34, 0, 0], np.uint8)
        members["spans.npy"] = np.zeros(34, np.int64)
        assert used.sum() == len(spans)

    with pytest.raises(ValueError, match="spans must be at most 16 ranges for each key"):
        Monitors(composite(), seed=9).like(forged(busy(composite).encode(), change))


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 1000, [], "text", 5])
def test_other_bytes_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="data must be"):
        Monitors.decode(data, composite())


def test_a_snapshot_of_a_monitor_is_rejected() -> None:
    from exchangeable import snapshot

    with pytest.raises(ValueError, match=r"state\.json must be of the format 'exchangeable monitors'"):
        Monitors(composite()).like(snapshot.encode(composite()))


def test_every_truncation_and_every_flipped_bit_is_refused() -> None:
    monitors = busy(composite)
    data = monitors.encode()
    rng = np.random.default_rng(0)
    for stop in {*rng.integers(0, len(data), 40).tolist(), len(data) - 1}:
        with pytest.raises(ValueError, match="data must be"):
            monitors.like(data[:stop])
    for bit in rng.integers(0, 8 * len(data), 60).tolist():
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="data must be"):
            monitors.like(bytes(wrong))


@pytest.mark.parametrize("bet", FIXED)
def test_noise_with_right_checksums_never_reaches_the_loops(bet: str) -> None:
    """Refused when read, or at the first use of the key, and then nothing has changed; or else harmless."""
    make = made("frozen", bet, LOUD["cusum"], "restart")
    monitors, rng = busy(make), np.random.default_rng(3)
    members = arrays_of(monitors.encode())
    for trial in range(10 if bet == "plugin" else 30):
        name = rng.choice([name for name in members if name != "state.json" and members[name].size])
        noisy = {**members, name: members[name].copy()}
        raw = noisy[name].view(np.uint8)
        for place in rng.integers(0, len(raw), 1 + trial % 3):
            raw[place] = rng.integers(256)
        twin = one_line(lambda noisy=noisy: monitors.like(packed(noisy)))  # type: ignore[misc]
        if twin is None:
            continue
        before, keys = twin.encode(), twin.keys().tolist() * 3
        order, x = np.repeat(10**6 + np.arange(3), len(twin)), rng.integers(0, 8, len(keys)).astype(float)
        if one_line(lambda: twin.extend(keys, order, x)) is None:  # noqa: B023
            assert twin.encode() == before


def one_line(call: Callable[[], Any]) -> Any:
    """What it returns, or None if it was refused in one sentence."""
    try:
        return call()
    except ValueError as error:
        sentence = str(error)
    assert "\n" not in sentence
    return None


# ------------------------------------------------------------------ vectorised bets and alarms


@pytest.mark.parametrize("name", FIXED)
def test_a_state_is_all_that_a_bet_learns(name: str) -> None:
    """What a worker has seen of one stream does not reach another."""
    part, p = Vectorised(BETS[name]()), np.random.default_rng(0).random(40)
    states = np.tile(part.fresh, (2, 1))
    lo, hi = np.array([0, 20]), np.array([20, 40])
    found = part.extend(states, lo, hi, p)
    assert found[:20].tobytes() == BETS[name]().extend(p[:20]).tobytes()
    assert found[20:].tobytes() == BETS[name]().extend(p[20:]).tobytes()
    part.check(states)


@pytest.mark.parametrize(
    ("bet", "place", "value"),
    [
        ("cautious", -1, math.nan),
        ("cautious", 2 * 5001 + 3, 1e18),
        ("plugin", 7, 17.0),
        ("volatility", 0, -1.0),
    ],
)
def test_a_forged_index_is_refused(bet: str, place: int, value: float) -> None:
    part = Vectorised(BETS[bet]())
    states = np.tile(part.fresh, (3, 1))
    part.check(states)
    states[1, place] = value
    with pytest.raises(ValueError, match=r"must hold|must give a finite density"):
        part.check(states)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_stored_state_goes_on(measure: str, kind: Any) -> None:
    """The arrays of a decoded state are views of bytes that cannot be written to, unless they are copied."""
    monitors = busy(made(measure, "composite-jumper", LOUD["cusum"], "restart"))
    twin = monitors.like(kind(monitors.encode()))
    events: Any = ["a", "new"], [10**6 + 1, 1], [1.0, 1.0]
    assert listed(twin.extend(*events)) == listed(monitors.extend(*events))
    assert twin.encode() == monitors.encode()


def test_importing_is_light() -> None:
    code = "import sys, exchangeable.keyed; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pyarrow", "pandas", "pyspark", "scipy"}.isdisjoint(loaded)


@pytest.mark.parametrize("streams", [1, 7, 8, 30])
def test_composite_jumpers_side_by_side_have_the_bits_of_single_ones(streams: int) -> None:
    rng = np.random.default_rng(streams)
    lengths = rng.integers(0, 40, streams)
    ends, p = np.cumsum(lengths), rng.uniform(size=lengths.sum()) ** 3
    together, alone = Vectorised(bets.CompositeJumper()), [bets.CompositeJumper() for _ in lengths]
    states = np.tile(together.fresh, (streams, 1))
    for _ in range(2):  # the second time from the states after the first
        found = together.extend(states, ends - lengths, ends, p)
        for lo, hi, bet in zip((ends - lengths).tolist(), ends.tolist(), alone, strict=True):
            assert np.array_equal(found[lo:hi], bet.extend(p[lo:hi]))


@pytest.mark.parametrize("lengths", [[1], [5, 0, 3], [200, 7, 64]])
def test_ranks_of_whole_streams(lengths: list[int]) -> None:
    ends = np.cumsum(np.array(lengths, np.int64))
    x = np.random.default_rng(0).normal(size=ends[-1]).round(1)
    greater, equal = np.empty((2, len(x)), np.int64)
    starts = ends - np.array(lengths, np.int64)
    native.whole_ranks(starts, ends, x, greater, equal)
    for lo, hi in zip(starts.tolist(), ends.tolist(), strict=True):
        ranks = measures.Value().extend(x[lo:hi])
        assert np.array_equal(greater[lo:hi], ranks.greater)
        assert np.array_equal(equal[lo:hi], ranks.equal)
