"""Many monitors that live on: standings, deletion, expiry, changes since, and calls that cost their own events."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exchangeable as ex
from contracts import settled
from exchangeable import Monitor, Monitors, alarms, bets, fleet
from exchangeable.fleet import stream_seed
from exchangeable.keyed import store
from exchangeable.martingale import LN10
from exchangeable.measures import Frozen, Value

RECIPES: dict[str, Callable[..., Monitor]] = {
    "value": lambda **options: Monitor(Value(), bets.SimpleJumper(), alarms.Cusum(2.0), **options),
    "bins": lambda **options: Monitor(
        Frozen(bins=3, reference=np.arange(9.0)), bets.CompositeJumper(), alarms.Ville(0.5), **options
    ),
    "many bins": lambda **options: Monitor(
        Frozen(bins=1100, reference=np.arange(2000.0)), bets.SimpleMixture(), alarms.Ville(0.5), **options
    ),
    "slow": lambda **options: Monitor(ex.Precomputed(), bets.Cautious(bets.SimpleMixture()), **options),
}


class Naive:
    """A dict of monitors, with the positions in the order of joining."""

    def __init__(self, make: Callable[..., Monitor], on_alarm: str) -> None:
        self.make, self.on_alarm = make, on_alarm
        self.monitors: dict[Any, Monitor] = {}
        self.joined: dict[Any, int] = {}
        self.last: dict[Any, int] = {}
        self.ever = 0

    def extend(self, keys: list[str], order: list[int], x: list[float]) -> list[tuple[Any, ...]]:
        rows = []
        for key in sorted(set(keys)):
            if key not in self.monitors:
                self.ever += 1
                self.monitors[key] = self.make(seed=stream_seed(3, key), on_alarm=self.on_alarm)
                self.joined[key] = self.ever
            for number, value in sorted((order[i], x[i]) for i in range(len(keys)) if keys[i] == key):
                step = self.monitors[key].update(value)
                self.last[key] = number
                rows.append((key, step.n, step.p, step.log_value, step.alarm))
        return rows

    def standings(self) -> list[tuple[Any, ...]]:
        return [
            (key, self.joined[key], one.n, self.last[key], one.martingale.log_value / LN10, one.log_max / LN10)
            + ((True, one.alarm_at, one.changepoint) if one.alarm_at is not None else (False, -1, -1))
            for key, one in sorted(self.monitors.items(), key=lambda item: self.joined[item[0]])
        ]

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            del self.monitors[key], self.joined[key], self.last[key]


def fed(rows: Any) -> list[tuple[Any, ...]]:
    steps = rows.kind == 0
    return list(
        zip(*(column[steps].tolist() for column in (rows.key, rows.n, rows.p, rows.log_value, rows.alarm)), strict=True)
    )


def numbers(name: str, rng: np.random.Generator, count: int) -> tuple[list[float], list[float]]:
    """Values as a single monitor takes them, and as the columns take them."""
    if name == "slow":
        p = (1.0 - rng.random(count)) ** 2
        return p.tolist(), p.tolist()
    x = rng.integers(0, 9 if name == "bins" else 40, count).astype(float)
    measure = RECIPES[name]().measure
    return x.tolist(), np.asarray(measure.scores(x) if isinstance(measure, Frozen) else x).tolist()


def refuse(monitors: Monitors, rng: np.random.Generator) -> None:
    """Calls that raise in the middle change nothing."""
    before = monitors.encode()
    known = monitors.keys().tolist()[:2]
    wrong: list[Callable[[], object]] = [
        lambda: monitors.extend([*known, "new"], np.full(len(known) + 1, 10**9), [0.5] * len(known) + [math.nan]),
        lambda: monitors.extend([1], [1], [0.5]),
        lambda: monitors.delete([*known, "missing"]),
        lambda: monitors.standings(["missing"]),
        lambda: monitors.encode(monitors.version + 1),
        lambda: monitors.expire(0.5),  # type: ignore[arg-type]
    ]
    if not known:
        del wrong[1]
    for call in rng.permutation(np.array(wrong, object)).tolist():
        with pytest.raises(ValueError, match=r"^(key '|keys|since|before)"):
            call()
    assert monitors.encode() == before


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("name", RECIPES)
def test_a_life_is_that_of_a_dict_of_monitors(name: str, on_alarm: str) -> None:
    """Few and many keys a call, refused calls, deletions, returns, and a twin fed by what has changed."""
    rng, make = np.random.default_rng(len(name)), RECIPES[name]
    naive, monitors = Naive(make, on_alarm), Monitors(make(on_alarm=on_alarm), seed=3)
    base, at, changes, clock = monitors.encode(), 0, list[bytes](), 0
    for call in range(60):
        count = int(rng.choice([0, 1, 3, 60]))
        keys = [f"k{i}" for i in rng.integers(0, 60, count).tolist()]
        order, clock = list(range(clock, clock + count)), clock + count
        x, scores = numbers(name, rng, count)
        assert fed(monitors.extend(keys, order, scores)) == naive.extend(keys, order, x)
        if call % 7 == 3:
            gone = rng.permutation(sorted(naive.monitors))[: int(rng.integers(0, 8))].tolist()
            left = monitors.delete(gone)
            assert sorted(left.key.tolist()) == sorted(gone)
            naive.delete(gone)
        if call % 11 == 5:
            left = monitors.expire(clock - 150)
            assert sorted(left.key.tolist()) == sorted(k for k, last in naive.last.items() if last < clock - 150)
            naive.delete(left.key.tolist())
        if call % 5 == 2:
            refuse(monitors, rng)
            changes.append(monitors.encode(at))
            at = monitors.version
            assert Monitors(make(on_alarm=on_alarm), seed=3).like(base, *changes).encode() == monitors.encode()
        if call % 13 == 7:
            monitors, changes = monitors.like(base, *changes, monitors.encode(at)), []
            base, at = monitors.encode(), monitors.version
        assert list(zip(*(column.tolist() for column in monitors.standings()[:9]), strict=True)) == naive.standings()
        assert list(monitors) == list(monitors.keys()) == [row[0] for row in naive.standings()]
        assert (len(monitors), monitors.joined) == (len(naive.monitors), naive.ever)
        assert all((f"k{i}" in monitors) == (f"k{i}" in naive.monitors) for i in range(60))
    assert naive.ever > len(naive.monitors) + 20


@settled(40)
@given(
    calls=st.lists(
        st.tuples(st.lists(st.integers(0, 6), max_size=12), st.integers(0, 2), st.lists(st.integers(0, 6), max_size=2)),
        max_size=12,
    )
)
def test_any_split_and_any_storage_in_between(calls: list[tuple[list[int], int, list[int]]]) -> None:
    """The same events and deletions, in one object and in one that is stored, changed and loaded."""
    recipe = RECIPES["value"](on_alarm="restart")
    whole, parts, n = Monitors(recipe, seed=1), Monitors(recipe, seed=1), 0
    base, at = parts.encode(), 0
    for keys, store_as, gone in calls:
        order = range(n, n + len(keys))
        x = [float(key % 3 + number % 2) for key, number in zip(keys, order, strict=True)]
        rows = whole.extend(keys, order, x)
        found = parts.extend(keys, order, x)
        assert [column.tobytes() for column in rows] == [column.tobytes() for column in found]
        n += len(keys)
        present = [key for key in dict.fromkeys(gone) if key in whole]
        assert whole.delete(present).joined.tolist() == parts.delete(present).joined.tolist()
        if store_as == 1:
            parts = parts.like(base, parts.encode(at))
        if store_as:
            base, at = parts.encode(), parts.version
        assert parts.encode() == whole.encode()


def test_rows_that_outgrow_their_places_stay_whole() -> None:
    """One key grows for long among many: it moves, places are left behind, and the columns are packed again."""
    rng, recipe = np.random.default_rng(1), RECIPES["value"]()
    monitors, ones = Monitors(recipe, seed=3), [RECIPES["value"](seed=stream_seed(3, key)) for key in range(40)]
    for call in range(150):
        keys = np.unique(np.append(rng.integers(0, 40, 2), call % 5))
        x = rng.normal(size=len(keys))
        found = monitors.extend(keys, np.full(len(keys), call + 10_000 * (call % 2)), x)
        steps = [ones[key].update(value) for key, value, kind in zip(keys, x, found.kind[found.kind != 3], strict=True)
                 if kind == 0]  # fmt: skip
        assert found.p[found.kind == 0].tolist() == [step.p for step in steps]
    twin = monitors.like(monitors.encode())
    assert twin.encode() == monitors.encode()
    size = len(monitors._store.pool._columns[0])  # type: ignore[union-attr]
    assert size < 4 * sum(one.n for one in ones)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("name", RECIPES)
def test_an_interrupt_while_rows_are_written(name: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds all rows written, never some."""
    rng, make = np.random.default_rng(0), RECIPES[name]
    _, scores = numbers(name, rng, 6)
    keys = ["a", "b", "c"]
    for fails_at in range(12):
        monitors = Monitors(make(), seed=3)
        monitors.extend(keys if known else ["a"], [0] * 3 if known else [0], scores[:3] if known else scores[:1])
        expected = monitors.like(monitors.encode())
        expected.extend(keys, [1] * 3, scores[3:])
        calls = [0]
        plain = store.Store._prepare

        def interrupting(self: Any, *arguments: Any, plain: Any = plain, calls: Any = calls, at: int = fails_at) -> Any:
            return interrupted(plain(self, *arguments), calls, at)

        monkeypatch.setattr(store.Store, "_prepare", interrupting)
        with pytest.raises(KeyboardInterrupt):
            monitors.extend(keys, [1] * 3, scores[3:])
        monkeypatch.undo()
        assert monitors.encode() == expected.encode()


def interrupted(write: Callable[[], None], calls: list[int], at: int) -> Callable[[], None]:
    """The first call stops between two of its parts; a later one is whole."""

    def once() -> None:
        calls[0] += 1
        if calls[0] > 1:
            return write()
        parts = next(cell.cell_contents for cell in write.__closure__ or () if isinstance(cell.cell_contents, list))
        for part in parts[:at]:
            part()
        raise KeyboardInterrupt

    return once


def test_no_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monitors = Monitors(RECIPES["value"](), seed=3)
    monitors.extend(["a"], [0], [1.0])
    before = monitors.encode()

    def fails(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("exchangeable.keyed.growing.Table._with_room", fails)
    with pytest.raises(MemoryError):
        monitors.extend(["a", "b"], [1, 1], [1.0, 2.0])
    monkeypatch.undo()
    assert monitors.encode() == before
    assert monitors.extend(["a"], [1], [2.0]).n.tolist() == [2]


def test_changes_in_the_wrong_place_are_refused() -> None:
    monitors = Monitors(RECIPES["value"](), seed=3)
    states, parts = [monitors.encode()], list[bytes]()
    for call in range(3):
        since = monitors.version
        monitors.extend(["a", f"k{call}"], [call, call], [1.0, 2.0])
        parts.append(monitors.encode(since))
        states.append(monitors.encode())
    assert monitors.like(states[1], *parts[1:]).encode() == states[3]
    assert monitors.like(states[1], parts[0], parts[1]).encode() == states[2]  # known already, and no harm
    with pytest.raises(ValueError, match="changes must continue the state before them: they go from version 2 to 4, "):
        monitors.like(states[0], parts[1])
    with pytest.raises(ValueError, match="changes must continue the state before them"):
        monitors.like(states[3], parts[0])
    with pytest.raises(ValueError, match="data must be the state of all keys, got what changed since version 0"):
        monitors.like(parts[0])
    other = Monitors(RECIPES["value"](), seed=3)
    other.extend(["x", "y"], [1, 1], [1.0, 1.0])
    with pytest.raises(ValueError, match="changes must be those of the state before them, got other streams"):
        monitors.like(other.encode(), parts[1])
    assert Monitors.decode(states[0], RECIPES["value"](), *parts).encode() == states[3]


def test_a_deletion_or_an_older_version_encodes_everything() -> None:
    monitors = Monitors(RECIPES["value"](), seed=3)
    monitors.extend(["a", "b"], [1, 1], [1.0, 2.0])
    version = monitors.version
    monitors.delete(["a"])
    assert monitors.encode(version) == monitors.encode()
    assert len(monitors.encode(monitors.version)) < len(monitors.encode())
    loaded = monitors.like(monitors.encode())
    assert loaded.encode(version) == monitors.encode()
    loaded.delete(["b"])
    assert (len(loaded), loaded.joined, list(loaded)) == (0, 2, [])
    loaded.extend([7], [1], [1.0])  # of any type, since none is left
    assert loaded.standings().joined.tolist() == [3]
    assert loaded.like(loaded.encode()).encode() == loaded.encode()


def test_standings_are_a_frame_and_evidence_of_a_fleet() -> None:
    rng, monitors = np.random.default_rng(0), Monitors(RECIPES["value"](), seed=3)
    keys, order = np.repeat(np.arange(20), 200), np.tile(np.arange(200), 20)
    monitors.extend(keys, order, rng.normal(size=4000) + 4.0 * (keys == 7) * (order > 100))
    now = monitors.standings()
    assert pd.DataFrame(now._asdict()).shape == pl.DataFrame(now._asdict()).shape == (20, 12)
    evidence = dict(zip(now.key.tolist(), now.log10_martingale.tolist(), strict=True))
    assert fleet.e_bh(evidence, 0.05, base=10, streams=1000).names == [7]
    some = monitors.standings([7, 3, 7])
    assert [column.tolist() for column in some] == [column[[7, 3, 7]].tolist() for column in now]
    assert some.alarm[0]
    assert [len(column) for column in monitors.standings([])] == [0] * 12
    then = monitors.version
    monitors.extend([1, 2], [200, 200], [0.0, 0.0])
    now = monitors.standings()
    assert now.key[now.version > then].tolist() == [1, 2]
    assert sorted(monitors.delete(now.key[now.version <= then]).key.tolist()) == [0, *range(3, 20)]


def test_a_call_costs_its_events_and_not_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array as long as the keys is made by a small call, once there is room."""
    monitors = Monitors(RECIPES["value"](), seed=3)
    keys = np.arange(20_000)
    for call in range(3):
        monitors.extend(keys, np.full(len(keys), call), np.full(len(keys), float(call)))
    for call in range(3, 40):
        monitors.extend(keys[:20], np.full(20, call), np.zeros(20))
    import tracemalloc

    tracemalloc.start()
    monitors.extend(keys[:20], np.full(20, 40), np.zeros(20))
    assert 20_000 < tracemalloc.get_traced_memory()[1] < 160_000  # one column of 20,000 numbers takes 160,000 bytes
    tracemalloc.stop()


def test_the_public_name_is_light() -> None:
    code = "import sys, exchangeable as ex; before = set(sys.modules); ex.Monitors; print(*before, *sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pyarrow", "pandas", "pyspark", "scipy"}.isdisjoint(loaded)
