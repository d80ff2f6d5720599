"""The stages of `monitor_streams` without Spark: pack events, process them in buckets, unpack rows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from exchangeable import Monitor, alarms, bets, measures
from exchangeable.fleet import stream_seed
from exchangeable.keyed import Monitors
from exchangeable.pvalues import Precomputed
from exchangeable.spark import state
from exchangeable.spark.columns import RefusedError
from exchangeable.spark.state import Bucket, BucketFormat, EventPacker, RowUnpacker, events_schema, rows_schema

SEED, BUCKETS = 7, 4
NAN = "x must be a finite number, got NaN in column 'x'"
NO_KEY = "key must not be null, got null in column 'k'"
NO_ORDER = "order must not be null, got null in column 'o'"
NEITHER = "key and order must not be null, got null in column 'o'"


class Event(NamedTuple):
    key: Any
    order: int
    x: Any
    bad: str | None = None
    y: Any = None
    content: int = 0


def monitor(measure: Any = None, **more: Any) -> Monitor:
    measure = measures.Value() if measure is None else measure
    return Monitor(measure, more.pop("bet", None) or bets.CompositeJumper(), alarms.Ville(0.05), **more)


class Query:
    """The stages one after the other, as Spark runs them, with states in memory."""

    def __init__(
        self,
        recipe: Monitor,
        *,
        key: Any = None,
        order: str = "",
        fail: bool = False,
        expire: int | None = None,
        **more: Any,
    ) -> None:
        key = key or pa.string()
        tests = recipe.on_alarm == "restart"
        self.events, rows = events_schema(key), rows_schema(key, tests=tests, lives=expire is not None)
        self.packer = EventPacker(recipe.measure, self.events, order=order, fail=fail)
        self.unpacker = RowUnpacker(rows)
        self.monitors = Monitors(recipe, seed=SEED, **more)
        self.form = BucketFormat(self.events, rows, order, fail, expire)
        self.states = TwsTester(Bucket(self.monitors, self.form))

    def batches(self, events: Sequence[Event], size: int) -> Iterator[Any]:
        """Return validated rows, with their buckets."""
        x = [event.x for event in events]
        columns = {
            "bucket": pa.array([zlib.crc32(repr(event.key).encode()) % BUCKETS for event in events], pa.int32()),
            "key": pa.array([event.key for event in events], self.events.field("key").type),
            "order": pa.array([event.order for event in events], pa.int64()),
            "x": pa.array(x, pa.float64() if isinstance(x[0], float) else pa.list_(pa.float64())),
            "content": pa.array([event.content for event in events], pa.int64()),
            "bad": pa.array([event.bad for event in events], pa.string()),
        }
        if events[0].y is not None:
            columns["y"] = pa.array([event.y for event in events])
        yield from pa.table(columns).to_batches(max_chunksize=size)

    def run(self, events: Sequence[Event], size: int = 10_000, now: int = 0) -> list[dict[str, Any]]:
        """A micro-batch."""
        packed: dict[int, list[Row]] = {}
        for batch in self.packer.pack(self.batches(events, size)):
            for row in batch.to_pylist():
                packed.setdefault(row["bucket"], []).append(Row(**row, now=now))
        found = []
        for bucket, rows in packed.items():
            packed_rows = pa.array([row.rows for row in self.states.test(bucket, rows)], pa.binary())
            for batch in self.unpacker.unpack([pa.record_batch({"rows": packed_rows})]):
                assert batch.schema == self.unpacker.schema
                batch.validate(full=True)
                found += batch.to_pylist()
        return sorted(found, key=lambda row: (repr(row["key"]), row["order"] is None, row["order"]))


def library(recipe: Callable[[], Monitor], key: Any, X: Any, y: Any = None) -> list[dict[str, Any]]:
    """The step rows of one stream, on one machine."""
    fresh = recipe()
    twin = Monitor(
        fresh.measure, fresh.martingale.bet, fresh.alarm, seed=stream_seed(SEED, key), on_alarm=fresh.on_alarm
    )
    path = twin.extend(X, y)
    tests = 1 + np.cumsum(path.alarm) - path.alarm
    return [
        {
            "key": key,
            "kind": "step",
            "n": int(path.n[i]),
            "p": float(path.p[i]),
            "log10_martingale": float(path.log_value[i]) / math.log(10.0),
            "alarm": bool(path.alarm[i]),
            "changepoint": int(path.lowest[i]) if path.alarm[i] else None,
            "count": 1,
            "detail": None,
            **({"test": int(tests[i])} if fresh.on_alarm == "restart" else {}),
        }
        for i in range(len(path.n))
    ]


def steps(rows: list[dict[str, Any]], key: Any) -> list[dict[str, Any]]:
    mine = [row for row in rows if row["key"] == key and row["kind"] == "step"]
    return [{name: value for name, value in row.items() if name != "order"} for row in mine]


def sides(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["key"], row["order"], row["kind"], row["count"]) for row in rows if row["kind"] != "step"]


def streams(keys: Sequence[Any], length: int, seed: int = 1) -> dict[Any, Any]:
    """Numbers that move upwards in the middle, with ties."""
    rng = np.random.default_rng(seed)
    found = {key: rng.normal(size=length).round(1) for key in keys}
    for x in found.values():
        x[length // 2 :] += 2.0
    return found


def shuffled(data: dict[Any, Any], first: int, stop: int, seed: int = 0) -> list[Event]:
    """Events first .. stop - 1 of each stream, in any order."""
    events = [Event(key, i + 1, float(x)) for key, xs in data.items() for i, x in enumerate(xs[first:stop], first)]
    return [events[i] for i in np.random.default_rng(seed).permutation(len(events))]


# ------------------------------------------------------------------ the numbers of the library


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["a", "", "é😀", "a\x00b", "'; drop table", "long " * 1000]),
        (pa.int16(), [-32768, -1, 0, 7, 32767]),
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.binary(), [b"", b"\x00", b"\xff" * 300]),
    ],
)
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_steps_are_those_of_the_library_whatever_the_batches(kind: Any, keys: list[Any], on_alarm: str) -> None:
    data = streams(keys, 40)
    query = Query(monitor(on_alarm=on_alarm), key=kind)
    rows: list[dict[str, Any]] = []
    for first, stop, size in ((0, 1, 3), (1, 25, 7), (25, 40, 1000)):
        rows += query.run(shuffled(data, first, stop, seed=stop), size)
    assert len(rows) == 40 * len(keys)
    assert any(row["alarm"] for row in rows)
    for key, x in data.items():
        assert steps(rows, key) == library(lambda: monitor(on_alarm=on_alarm), key, x)
        assert [row["order"] for row in rows if row["key"] == key] == list(range(1, 41))


def test_a_hot_key_comes_in_many_packs_and_goes_out_in_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EVENTS", 64)
    monkeypatch.setattr(state, "ROWS", 100)
    data = streams(["hot"], 1000) | streams(["once"], 1)
    rows = Query(monitor()).run(shuffled(data, 0, 1000), 50)
    for key, x in data.items():
        assert steps(rows, key) == library(monitor, key, x)


def test_p_values_that_are_brought_along() -> None:
    p = np.random.default_rng(0).uniform(size=30)
    rows = Query(monitor(Precomputed())).run([Event("a", i, float(value)) for i, value in enumerate(p)])
    assert steps(rows, "a") == library(lambda: monitor(Precomputed()), "a", p)


# ------------------------------------------------------------------ scores


def strangeness(X: Any, y: Any) -> Any:
    if np.any(X == 13.0):
        raise ValueError("thirteen")
    if np.any(X == 99.0):
        raise MemoryError
    return np.abs(X).sum(axis=1) + np.array([len(label) for label in y])


def frozen(score: Any = strangeness, width: int = 2) -> measures.Frozen:
    rng = np.random.default_rng(9)
    reference = rng.normal(size=(200, width)), ["a"] * 200
    return measures.Frozen(score, bins=8, reference=reference)


def test_scores_are_computed_before_the_events_travel() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 2)), [("a", "bb")[i] for i in rng.integers(0, 2, 60)]
    events = [Event("k", i, X[i].tolist(), y=y[i]) for i in range(60)]
    query = Query(monitor(frozen()))
    rows = query.run(events[:35], 11) + query.run(events[:34:-1], 1000)
    assert steps(rows, "k") == library(lambda: monitor(frozen()), "k", X, y)


def test_scores_that_are_rounded_by_batches_fall_into_the_same_bins() -> None:
    def unsteady(X: Any, y: Any) -> Any:
        return np.abs(X[:, 0]) * (1.0 + 2.0**-52 * (len(X) % 3 - 1.0))

    X = np.random.default_rng(4).choice([0.1, 0.7, 1.3], (90, 1))
    measure = measures.Frozen(unsteady, bins=8, reference=X[:8])
    events = [Event("k", i, X[i].tolist()) for i in range(90)]
    query = Query(monitor(measure))
    rows = query.run(events[:40], 1) + query.run(events[40:60], 8) + query.run(events[60:])
    assert steps(rows, "k") == library(lambda: monitor(measure), "k", X, None)


def test_a_row_that_the_score_refuses_is_bad_and_only_that() -> None:
    X = np.random.default_rng(3).normal(size=(50, 2))
    X[17, 0] = 13.0
    events = [Event("k", i, X[i].tolist(), y="a") for i in range(50)]
    events[30] = events[30]._replace(x=[1.0, 2.0, 3.0])  # of another width, which this function takes
    events[31] = events[31]._replace(x=[13.0])
    rows = Query(monitor(frozen())).run(events)
    expected = "score must return one finite number for each example, but raised ValueError: thirteen"
    assert [(row["order"], row["detail"]) for row in rows if row["kind"] == "bad"] == [(17, expected), (31, expected)]
    scored = frozen()
    bins = [scored.scores(np.array([event.x]), ["a"])[0] for i, event in enumerate(events) if i not in (17, 31)]
    assert [row["n"] for row in rows if row["kind"] == "step"] == list(range(1, 49))
    twin = measures.Frozen(bins=8, reference=np.arange(8.0))
    p = Monitor(twin, seed=stream_seed(SEED, "k")).extend(np.array(bins)).p
    assert [row["p"] for row in rows if row["kind"] == "step"] == p.tolist()
    with pytest.raises(RefusedError, match=r"^key 'k', order 17: score must return .*: thirteen$"):
        Query(monitor(frozen()), fail=True).run(events)


def test_an_error_of_the_machine_is_no_refusal_of_the_row() -> None:
    with pytest.raises(ValueError, match="MemoryError"):
        Query(monitor(frozen())).run([Event("k", 1, [99.0, 1.0], y="a")])


class Fitted:
    """Like a regressor that was fitted on two columns, and does not check."""

    n_features_in_ = 2

    def predict(self, X: Any) -> Any:
        return X.sum(axis=1)


def test_a_row_of_another_width_than_the_model_was_fitted_on_is_bad() -> None:
    rng = np.random.default_rng(9)
    measure = measures.Frozen(Fitted(), bins=4, reference=(rng.normal(size=(50, 2)), rng.normal(size=50)))
    query = Query(monitor(measure))
    rows = query.run([Event("k", 1, [1.0, 2.0], y=0.5), Event("k", 2, [1.0], y=0.5), Event("k", 3, [1.0, 3.0], y=0.5)])
    expected = "x must hold 2 numbers, as many as the score was fitted on, got 1"
    assert [(row["order"], row["kind"], row["detail"]) for row in rows] == [
        (1, "step", None), (2, "bad", expected), (3, "step", None),
    ]  # fmt: skip


def test_rows_of_one_bin_that_differ_are_a_conflict() -> None:
    query = Query(monitor(measures.Frozen(bins=2, reference=[0.0, 1.0])))
    rows = query.run([Event("k", 1, 5.0, content=1), Event("k", 1, 6.0, content=2), Event("k", 2, 5.0, content=1)])
    assert sides(rows) == [("k", 1, "conflict", 2)]
    same = query.run([Event("k", 3, 5.0, content=1), Event("k", 3, 5.0, content=1)])
    assert sides(same) == [("k", 3, "duplicate", 1)]


def test_p_values_that_are_none_are_bad() -> None:
    rows = Query(monitor(Precomputed())).run(
        [Event("a", 1, 0.5), Event("a", 2, 1.5), Event("a", 3, 0.0), Event("a", 4, 1.0)]
    )
    assert [row["detail"] for row in rows] == [
        None,
        "p must lie in (0, 1], got 1.5",
        "p must lie in (0, 1], got 0.0",
        None,
    ]


# ------------------------------------------------------------------ what is not bet on


def test_duplicates_gaps_late_events_and_conflicts_over_batches() -> None:
    query = Query(monitor())
    first = query.run([Event("a", 3, 0.3), Event("a", 1, 0.1), Event("a", 1, 0.1), Event("b", 9, 1.0)])
    second = query.run([Event("a", 2, 0.2), Event("a", 3, 0.3), Event("a", 1, 0.1), Event("a", 6, 0.6)])
    third = query.run([Event("a", 7, 0.7), Event("a", 7, 0.8), Event("a", 8, math.pi, NAN), Event("a", 9, 0.9)])
    assert sides(first) == [("a", 1, "duplicate", 1), ("a", 2, "gap", 1)]
    assert sides(second) == [("a", 1, "duplicate", 2), ("a", 2, "late", 1), ("a", 4, "gap", 2)]
    assert sides(third) == [("a", 7, "conflict", 2), ("a", 8, "bad", 1)]
    assert [row["detail"] for row in third if row["kind"] != "step"] == [
        "2 different events with order 7: none is bet on",
        NAN,
    ]
    assert steps(first + second + third, "a") == library(monitor, "a", [0.1, 0.3, 0.6, 0.9])
    assert steps(first, "b") == library(monitor, "b", [1.0])


def test_keys_without_events_expire_and_return_as_new_streams() -> None:
    bucket = {zlib.crc32(repr(f"k{i}").encode()) % BUCKETS: f"k{i}" for i in range(50)}
    key = bucket[zlib.crc32(repr("a").encode()) % BUCKETS]  # of the bucket of "a"
    query, x = Query(monitor(), expire=1000), np.random.default_rng(1).normal(size=9).tolist()
    rows = query.run([Event("a", i, x[i]) for i in range(3)] + [Event(key, 7, 1.0)], now=5000)
    assert {row["life"].timestamp() for row in rows} == {5.0}
    assert [row["kind"] for row in query.run([Event(key, 8, 1.0)], now=6000)] == ["step"]  # exactly as long as allowed
    rows += (expired := query.run([Event(key, 9, 1.0)], now=6001))
    (gone,) = (row for row in expired if row["kind"] == "expired")
    assert (gone["key"], gone["order"], gone["count"], gone["life"].timestamp(), gone["n"]) == ("a", 2, 3, 5.0, None)
    assert gone["detail"].startswith("no events for too long: removed after 3 examples, highest log10 capital 0.")
    assert [row["kind"] for row in query.run([Event(key, 10, 1.0)], now=6500)] == ["step"]  # reported once
    again = query.run([Event("a", i, x[i]) for i in range(3)], now=7000)  # the same numbers: not late, but a new stream
    numbers = [[row | {"life": None} for row in steps(part, "a")] for part in (again, rows)]
    assert numbers[0] == numbers[1]
    assert {row["life"].timestamp() for row in again} == {7.0}
    returned = query.run([Event("a", 3, x[3])], now=9000)  # its own event does not save it
    assert [(row["kind"], row["n"]) for row in sorted(returned, key=lambda row: row["kind"])] == [
        ("expired", None), ("expired", None), ("step", 1),
    ]  # fmt: skip


def test_rows_without_key_or_order_are_told_and_touch_no_stream() -> None:
    query = Query(monitor())
    rows = query.run([Event("", 5, 0.0, NO_KEY), Event("", 0, 0.0, NEITHER), Event("a", 0, 0.0, NO_ORDER)])
    reported = [(row["key"], row["order"], row["kind"], row["count"], row["detail"]) for row in rows]
    assert reported == [("a", None, "bad", 1, NO_ORDER), (None, 5, "bad", 1, NO_KEY), (None, None, "bad", 1, NEITHER)]
    assert all(row[name] is None for row in rows for name in ("n", "p", "log10_martingale", "alarm", "changepoint"))
    assert steps(query.run([Event("a", 1, 0.5), Event("", 1, 0.5)]), "") == library(monitor, "", [0.5])


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event("it's", 17, 0.0, NAN), f'key "it\'s", order 17: {NAN}'),
        (Event("", 17, 0.0, NO_KEY), f"{NO_KEY} (order 17)"),
        (Event("a", 0, 0.0, NO_ORDER), f"key 'a': {NO_ORDER}"),
        (Event("", 0, 0.0, NEITHER), NEITHER),
        (
            Event("a", 1, 0.7),
            "key 'a', order 1: rows with the same key and order must be equal, got 2 that differ",
        ),
    ],
)
def test_a_query_that_shall_fail_fails_with_one_sentence(event: Event, expected: str) -> None:
    with pytest.raises(RefusedError) as failure:
        Query(monitor(), fail=True).run([Event("a", 1, 0.5), event, Event("b", 1, 0.5, NAN)][: 3 if event.bad else 2])
    assert str(failure.value) == expected


def test_times_are_told_as_times() -> None:
    query = Query(monitor(), order="timestamp", contiguous=False)
    noon = 1_763_294_400_000_000
    query.run([Event("a", noon, 0.5)])
    rows = query.run([Event("a", noon - 1, 0.4), Event("a", noon, 0.5), Event("a", noon + 10**9, 0.4)])
    assert [row["detail"] for row in rows][:2] == [
        "order 2025-11-16T11:59:59.999999 came after a higher one: late, not bet on",
        "1 repeated event, the first with order 2025-11-16T12:00:00.000000: dropped",
    ]
    failing = Query(monitor(), order="date", fail=True)
    with pytest.raises(RefusedError, match=r"^key 'a', order 1970-01-02: x must be"):
        failing.run([Event("a", 1, 0.0, NAN)])


def test_a_full_pool_ends_the_test_of_its_key() -> None:
    query = Query(monitor(), most=3)
    rows = query.run([Event("a", i, float(i)) for i in range(1, 6)])
    assert [row["kind"] for row in rows] == ["step"] * 3 + ["full"] * 2
    assert steps(rows, "a") == library(monitor, "a", [1.0, 2.0, 3.0])


# ------------------------------------------------------------------ state


@pytest.mark.parametrize(
    ("recipe", "more", "expected"),
    [
        (monitor(), {"extra": "8 buckets"}, "4 buckets, got 8 buckets"),
        (monitor(), {"most": 5}, "most must be .* 4096, got 5"),
        (monitor(bet=bets.Power(0.5)), {}, r"bet must be .*, got Power\(epsilon=0.5\)"),
        (monitor(on_alarm="restart"), {}, "on_alarm must be .*, latch, got restart"),
        (monitor(Precomputed()), {}, r"measure must be .* Value\(\), got Precomputed\(\)"),
        (monitor(), {"contiguous": False}, "contiguous must be .* True, got False"),
    ],
)
def test_a_state_of_another_query_is_refused(recipe: Monitor, more: dict[str, Any], expected: str) -> None:
    first = Query(monitor(), extra="4 buckets")
    first.run([Event("a", 1, 0.5)])
    second = Query(recipe, **{"extra": "4 buckets", **more})
    second.states.handle.value_states = first.states.handle.value_states
    second.states.processor.init(second.states.handle)
    message = "a checkpoint can be used only by the query that started it"
    for key in ("a", "a key of a bucket that has no state yet"):
        with pytest.raises(RefusedError, match=f"^{message}: .*{expected}.* needs its own checkpoint"):
            second.run([Event(key, 2, 0.5)])


def test_a_state_that_is_too_large_is_refused_before_spark_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "LARGEST_STATE", 1 << 20)
    query = Query(monitor(measures.Frozen(bins=1000, reference=np.arange(2000.0))))
    assert len(query.run([Event(f"key {i}", 1, 0.5) for i in range(1000)])) == 1000
    message = "the state of a bucket must be at most 1 MiB, got 1 MiB for [0-9]+ keys in bucket [0-3]"
    with pytest.raises(RefusedError, match=f"^{message}: use more buckets"):
        query.run([Event(f"other {i}", 1, 0.5) for i in range(4000)])


def test_no_event_is_lost_where_arrow_needs_several_batches() -> None:
    """Plain text columns are cut at 2 GB, and the rest would be lost without a word; large ones are not."""
    schema = events_schema(pa.string())
    assert schema.field("key").type == pa.large_string()
    assert schema.field("bad").type == pa.large_string()
    cut = pa.table({"key": pa.chunked_array([["a"], ["b"]])})
    with pytest.raises(RuntimeError, match="2 events of a bucket must fit in one batch, got 2"):
        state._single_batch(_Cut(cut))


class _Cut:
    """A table that does not combine."""

    def __init__(self, table: Any) -> None:
        self.table, self.num_rows = table, table.num_rows

    def combine_chunks(self) -> Any:
        return self.table
