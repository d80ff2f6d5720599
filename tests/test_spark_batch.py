"""The work of an executor on sorted rows, without Spark: Arrow in, Arrow out, the numbers of `Monitor`."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'exchangeable[spark]'")

from exchangeable import Monitor, alarms, bets, measures
from exchangeable.fleet import stream_seed
from exchangeable.keyed import KINDS, Rows
from exchangeable.pvalues import Precomputed
from exchangeable.spark.batch import Recipe, run_partition
from exchangeable.spark.columns import RefusedError
from exchangeable.spark.output import Layout

SEED = 7
NO_KEY = "key must not be null, got null in column 'k'"
NO_ORDER = "order must not be null, got null in column 'o'"
NAN = "x must be a finite number, got NaN in column 'x'"


class Event(NamedTuple):
    key: Any
    order: Any
    x: Any
    bad: str | None = None
    y: Any = None


def recipe(**more: Any) -> Recipe:
    parts = {"measure": measures.Value(), "bet": bets.CompositeJumper(), "alarm": alarms.Ville(0.05)}
    monitor = Monitor(**{**parts, **{name: more.pop(name) for name in [*parts, "on_alarm"] if name in more}})
    layout = Layout(more.get("steps", False), monitor.on_alarm == "restart", "k", "o")
    return Recipe(monitor, SEED, more.get("fail", False), more.get("gaps", True), layout)


def batches(
    events: Sequence[Event], size: int = 10_000, key: Any = None, order: Any = None, y: Any = None
) -> Iterator[Any]:
    """As Spark hands them over: sorted by key, then those without an order last, then by order."""
    unordered = [event.bad is not None and event.bad.startswith("order ") for event in events]
    ranks = sorted(range(len(events)), key=lambda i: (events[i].key, unordered[i], events[i].order))
    events = [events[i] for i in ranks]
    many = bool(events) and not isinstance(events[0].x, float)
    columns = {
        "key": pa.array([event.key for event in events], key or pa.string()),
        "order": pa.array([event.order for event in events], order or pa.int64()),
        "x": pa.array([event.x for event in events], pa.list_(pa.float64()) if many else pa.float64()),
        "bad": pa.array([event.bad for event in events], pa.string()),
    }
    if y is not None:
        columns["y"] = pa.array([event.y for event in events], y)
    yield from pa.table(columns).to_batches(max_chunksize=size)


def rows_of(tested: Recipe, events: Sequence[Event], size: int = 10_000, **kinds: Any) -> list[dict[str, Any]]:
    return [row for batch in run_partition(tested, batches(events, size, **kinds)) for row in batch.to_pylist()]


def library(tested: Recipe, key: Any, X: Any, y: Any = None) -> tuple[Monitor, Any]:
    """The same stream on one machine, in one call."""
    own = tested.monitor
    fresh, seed = copy.deepcopy(own), stream_seed(SEED, key)
    monitor = Monitor(fresh.measure, fresh.martingale.bet, fresh.alarm, seed=seed, on_alarm=own.on_alarm)
    return monitor, monitor.extend(X, y)


def summary(tested: Recipe, key: Any, X: Any, y: Any = None, refused: int = 0) -> dict[str, Any]:
    monitor, path = library(tested, key, X, y)
    return {
        "k": key,
        "n": len(path.n),
        "log10_martingale": float(path.log_value[-1]) / math.log(10.0) if len(path.n) else 0.0,
        "log10_max": monitor.log_max / math.log(10.0),
        "alarm": monitor.alarm_at is not None,
        "alarm_at": monitor.alarm_at,
        "changepoint": monitor.changepoint,
        "refused": refused,
    }


def mixed(rng: np.random.Generator, streams: int = 30, most: int = 60) -> dict[str, Any]:
    """Streams of many lengths, some of which change."""
    return {
        f"stream {i}": rng.normal(size=n).round(1) + 4.0 * (np.arange(n) > n // 2) * (i % 3 == 0)
        for i, n in enumerate(rng.integers(1, most, streams).tolist())
    }


def events_of(streams: dict[str, Any]) -> list[Event]:
    return [Event(key, i, float(x)) for key, values in streams.items() for i, x in enumerate(values)]


# ------------------------------------------------------------------ the numbers


@pytest.mark.parametrize(
    ("size", "bet"), [(1, bets.SimpleJumper), (7, bets.Adaptive), (64, bets.CompositeJumper), (10_000, bets.Adaptive)]
)
def test_every_stream_has_the_numbers_of_a_monitor(size: int, bet: Any) -> None:
    streams = mixed(np.random.default_rng(0), 15 if size == 1 else 40)
    tested = recipe(bet=bet())
    expected = [summary(tested, key, streams[key]) for key in sorted(streams)]
    assert rows_of(tested, events_of(streams), size) == expected
    assert sum(row["alarm"] for row in expected) > 1


def test_streams_short_and_long_in_one_batch() -> None:
    rng = np.random.default_rng(5)
    streams = {f"{i}": rng.normal(size=n).round(1) for i, n in enumerate([3, 600, 2, 512, 513, 1, 900, 40, 511])}
    for tested in (recipe(), recipe(measure=measures.Frozen(lambda X, y: -X)), recipe(measure=measures.Frozen())):
        expected = [summary(tested, key, streams[key]) for key in sorted(streams)]
        for size in (700, 10_000):
            assert rows_of(tested, events_of(streams), size) == expected


def test_a_score_that_rounds_by_batches() -> None:
    # as matrix products do: 700 rows at a time, whole streams, and one by one had different ties
    def unsteady(X: Any, y: Any) -> Any:
        return np.abs(X) * (1.0 + 2.0**-52 * (len(X) % 3 - 1.0))

    rng = np.random.default_rng(6)
    streams = {f"{i}": rng.choice([0.1, 0.7, 1.3], n) for i, n in enumerate([3, 600, 2, 1, 900, 40])}
    tested = recipe(measure=measures.Frozen(unsteady))
    expected = [summary(recipe(measure=measures.Frozen(lambda X, y: np.abs(X))), key, streams[key]) for key in streams]
    for size in (1, 700, 10_000):
        assert rows_of(tested, events_of(streams), size) == expected


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("size", [3, 50, 10_000])
def test_every_step_has_the_numbers_of_a_monitor(size: int, on_alarm: str) -> None:
    streams = mixed(np.random.default_rng(1), 12, most=150)
    tested = recipe(steps=True, on_alarm=on_alarm)
    found = rows_of(tested, events_of(streams), size)
    expected = []
    for key in sorted(streams):
        path = library(tested, key, streams[key])[1]
        tests = 1 + np.cumsum(path.alarm) - path.alarm
        for i in range(len(path.n)):
            row = {"k": key, "o": i, "kind": "step", "n": int(path.n[i]), "p": float(path.p[i])}
            row |= {"log10_martingale": float(path.log_value[i]) / math.log(10.0), "alarm": bool(path.alarm[i])}
            row |= {"changepoint": int(path.lowest[i]) if path.alarm[i] else None, "count": 1, "detail": None}
            expected.append(row | ({"test": int(tests[i])} if on_alarm == "restart" else {}))
    assert found == expected
    assert any(row["alarm"] for row in expected)


def test_the_summary_names_its_test() -> None:
    x = np.concatenate([np.arange(60.0), -np.arange(100.0, 140.0)])
    tested = recipe(on_alarm="restart")
    (row,) = rows_of(tested, events_of({"a": x}))
    monitor, path = library(tested, "a", x)
    assert row["alarm_at"] == monitor.alarm_at
    assert row["changepoint"] == monitor.changepoint
    assert row["log10_max"] == monitor.log_max / math.log(10.0)
    assert row["test"] == 1 + path.alarm[:-1].sum() > 1


@pytest.mark.parametrize(
    ("measure", "y"),
    [
        (measures.NearestNeighbour(), pa.string()),
        (measures.NearestNeighbour(), pa.int64()),
        (measures.NearestNeighbour(3), pa.bool_()),
        (measures.NearestResidual(), pa.float64()),
        (measures.NearestDistance(2), None),
        (measures.Frozen(lambda X, y: X.sum(axis=1)), None),
        (
            measures.Frozen(
                lambda X, y: X[:, 0] * y, reference=(np.arange(27.0).reshape(9, 3) - 9.0, np.ones(9)), bins=4
            ),
            pa.int64(),
        ),
    ],
)
def test_rows_of_features_and_labels_of_every_kind(measure: Any, y: Any) -> None:
    rng = np.random.default_rng(2)
    label = {pa.string(): str, pa.int64(): int, pa.bool_(): bool, pa.float64(): float}.get(y, lambda value: None)
    streams = {key: (rng.normal(size=(40, 3)), [label(v) for v in rng.integers(0, 2, 40).tolist()]) for key in "abc"}
    events = [
        Event(key, i, x.tolist(), None, own)
        for key, (X, labels) in streams.items()
        for i, (x, own) in enumerate(zip(X, labels, strict=True))
    ]
    tested = recipe(measure=measure)
    expected = [
        summary(tested, key, X, None if y is None else np.array(labels)) for key, (X, labels) in streams.items()
    ]
    for size in (7, 10_000):
        assert rows_of(tested, events, size, y=y) == expected


def test_given_p_values_are_bet_on_and_others_refused() -> None:
    p = np.random.default_rng(3).uniform(size=50)
    tested = recipe(measure=Precomputed())
    events = [Event("a", i, float(value)) for i, value in enumerate(p)]
    assert rows_of(tested, events) == [summary(tested, "a", p)]
    wrong = [*events, Event("a", 10.5, 0.0), Event("a", 20.5, 2.0)]
    for size in (3, 100):
        assert rows_of(tested, wrong, size, order=pa.float64()) == [summary(tested, "a", p, refused=2)]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["", "a", "a\x00b", "a\nb", "'; DROP TABLE streams; --", "Ä", "\U0001f600", "z" * 100_000]),
        (pa.large_string(), ["", "a", "ß"]),
        (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff\xfe"]),
        (pa.int8(), [-128, 0, 127]),
        (pa.int16(), [-5, 5]),
        (pa.int32(), [-1, 2**31 - 1]),
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    ],
)
@pytest.mark.parametrize("steps", [False, True])
def test_keys_of_every_type_keep_it(kind: Any, keys: list[Any], steps: bool) -> None:
    events = [Event(key, i, float(i % 3)) for key in keys for i in range(5)]
    tested = recipe(steps=steps)
    for size in (4, 100):
        out = list(run_partition(tested, batches(events, size, key=kind)))
        assert {batch.schema.field("k").type for batch in out} == {kind}
        if not steps:
            rows = [row for batch in out for row in batch.to_pylist()]
            assert rows == [summary(tested, key, np.arange(5.0) % 3) for key in sorted(keys)]


def test_long_keys_make_small_batches() -> None:
    events = [Event(f"{i:05d}" + "x" * 100_000, 0, 1.0) for i in range(400)]
    out = list(run_partition(recipe(), batches(events, 50)))
    assert sum(batch.num_rows for batch in out) == 400
    assert max(batch.nbytes for batch in out) < 2e7


def test_no_rows_no_output() -> None:
    assert not list(run_partition(recipe(), []))
    assert not list(run_partition(recipe(), batches([])))


# ------------------------------------------------------------------ what is not bet on


def naive(events: Sequence[Event]) -> tuple[list[Event], Counter[str]]:
    """What is taken of one stream, and how many rows are not, by kind: the rules of the contract, one by one."""
    taken, counts = [], Counter[str]()
    unordered = [event for event in events if event.bad is not None and event.bad.startswith("order ")]
    counts["bad"] = sum(event.bad is not None for event in events)
    for order in sorted({event.order for event in events if event not in unordered}):
        same = [event for event in events if event.order == order and event not in unordered]
        valid = [event for event in same if event.bad is None]
        if len(set(same)) == 1 and valid:
            taken.append(valid[0])
            counts["duplicate"] += len(valid) - 1
        elif valid:
            counts["conflict"] += len(valid)
    return taken, counts


def disorder(rng: np.random.Generator) -> list[Event]:
    """Streams in which everything happens: repeats, conflicts, invalid rows, rows without order, rows without key."""
    events = [Event("", 0, 0.0, NO_KEY), Event("", 5, 0.0, "key and " + NO_ORDER)]
    for i in range(12):
        for _ in range(int(rng.integers(1, 60))):
            order, x = int(rng.integers(-3, 12)), float(rng.integers(0, 3))
            kind = rng.choice(["valid", "bad", "unordered"], p=[0.8, 0.15, 0.05])
            event = Event(f"s{i}" if i else "", order, x)
            event = event._replace(x=0.0, bad=NAN) if kind == "bad" else event
            events.append(event._replace(x=0.0, order=0, bad=NO_ORDER) if kind == "unordered" else event)
    return [events[i] for i in rng.permutation(len(events))]


@pytest.mark.parametrize("seed", range(20))
def test_disorder_is_reported_and_never_bet_on(seed: int) -> None:
    rng = np.random.default_rng(seed)
    events = disorder(rng)
    tested, steps = recipe(), recipe(steps=True)
    size = int(rng.integers(1, 40))
    summaries = rows_of(tested, events, size)
    rows = rows_of(steps, events, size)
    assert summaries.pop()["refused"] == sum(row["count"] for row in rows if row["k"] is None) == 2
    streams = sorted({event.key for event in events})
    for key, found in zip(streams, summaries, strict=True):
        own = [event for event in events if event.key == key and not (event.bad or "").startswith("key ")]
        taken, counts = naive(own)
        refused = counts["bad"] + counts["conflict"]
        assert found == summary(tested, key, np.array([event.x for event in taken]), refused=refused)
        reported = Counter[str]()
        for row in rows:
            if row["k"] == key:
                reported[row["kind"]] += row["count"]
        assert +reported - Counter({"gap": reported["gap"]}) == +counts + Counter({"step": len(taken)})
        _check_gaps(key, own, rows)


def _check_gaps(key: str, own: list[Event], rows: list[dict[str, Any]]) -> None:
    orders = {event.order for event in own if not (event.bad or "").startswith("order ")}
    gaps = [row for row in rows if row["k"] == key and row["kind"] == "gap"]
    missing = {row["o"] + i for row in gaps for i in range(row["count"])}
    assert missing == (set(range(min(orders), max(orders) + 1)) - orders if orders else set())


def test_sentences_are_those_of_monitors() -> None:
    events = [Event("a", i, float(x)) for i, x in [(1, 1), (1, 1), (1, 1), (2, 2), (2, 3), (4, 1), (8, 1), (8, 1)]]
    found = {(row["kind"], row["o"]): row["detail"] for row in rows_of(recipe(steps=True), events, 3)}
    one = dict.fromkeys(Rows._fields, np.zeros(4, np.int64))
    kinds = [KINDS.index(kind) for kind in ("duplicate", "conflict", "gap", "gap")]
    orders, counts = [1, 2, 3, 5], [3, 2, 1, 3]
    reported = Rows(**{**one, "kind": np.array(kinds), "order": np.array(orders), "count": np.array(counts)})
    expected = {("duplicate", 1): 0, ("conflict", 2): 1, ("gap", 3): 2, ("gap", 5): 3}
    assert {at: found[at] for at in expected} == {at: reported.detail(i) for at, i in expected.items()}


def test_a_gap_may_be_wider_than_a_number_of_64_bits() -> None:
    events = [Event("a", -(2**63), 1.0), Event("a", 2**63 - 1, 1.0)]
    gaps = [(row["o"], row["count"]) for row in rows_of(recipe(steps=True), events) if row["kind"] == "gap"]
    assert gaps == [(-(2**63) + 1, 2**63 - 1), (0, 2**63 - 1)]
    assert sum(count for _, count in gaps) == 2**64 - 2


def test_gaps_are_told_only_if_they_are_asked_for() -> None:
    events = [Event("a", order, 1.0) for order in (1, 5, 9)]
    assert {row["kind"] for row in rows_of(recipe(steps=True, gaps=False), events)} == {"step"}


def test_orders_that_are_not_integers_have_no_gaps() -> None:
    events = [Event("a", order, 1.0) for order in (0.5, 7.25, 9.0)]
    assert {row["kind"] for row in rows_of(recipe(steps=True), events, order=pa.float64())} == {"step"}


def test_a_row_of_another_width_is_refused() -> None:
    events = [Event("a", i, [float(i), 1.0]) for i in range(9)] + [Event("b", i, [float(i)]) for i in range(9)]
    events[4] = events[4]._replace(x=[1.0, 2.0, 3.0])
    events[-1] = events[-1]._replace(x=[1.0, 2.0])
    tested = recipe(measure=measures.NearestDistance())
    X = np.array([[float(i), 1.0] for i in range(9) if i != 4])
    for size in (1, 4, 100):
        assert rows_of(tested, events, size) == [
            summary(tested, "a", X, refused=1),
            summary(tested, "b", np.arange(8.0)[:, np.newaxis], refused=1),
        ]
    reported = [
        row for row in rows_of(recipe(measure=measures.NearestDistance(), steps=True), events) if row["kind"] == "bad"
    ]
    assert [(row["k"], row["o"], row["detail"]) for row in reported] == [
        ("a", 4, "x must hold 2 numbers, as many as the first row of its stream, got 3"),
        ("b", 8, "x must hold 1 numbers, as many as the first row of its stream, got 2"),
    ]


def test_examples_that_the_measure_rejects_are_reported_with_the_reason() -> None:
    def score(X: Any, y: Any) -> Any:
        return np.log(X[:, 0])

    events = [Event("a", i, [float(i % 5)]) for i in range(50)]  # the logarithm of 0 is no score
    tested = recipe(measure=measures.Frozen(score), steps=True)
    with np.errstate(divide="ignore"):
        rows = rows_of(tested, events, 17)
    assert [row["o"] for row in rows if row["kind"] == "bad"] == list(range(0, 50, 5))
    assert {row["detail"] for row in rows if row["kind"] == "bad"} == {
        "score must return a one-dimensional array of finite numbers, got -inf at position 0"
    }
    path = library(tested, "a", np.array([[float(i % 5)] for i in range(50) if i % 5]))[1]
    assert [row["p"] for row in rows if row["kind"] == "step"] == path.p.tolist()


def test_a_million_rows_of_one_order_need_little_memory() -> None:
    same = pa.table({"key": ["a"] * 50_000, "order": [1] * 50_000, "x": [1.0] * 50_000})
    same = same.append_column("bad", pa.nulls(50_000, pa.string()))
    end = pa.table({"key": ["a"], "order": [1], "x": [2.0], "bad": pa.nulls(1, pa.string())})
    many = [batch for _ in range(20) for batch in same.to_batches(max_chunksize=10_000)]
    rows = [row for batch in run_partition(recipe(steps=True), many) for row in batch.to_pylist()]
    assert [(row["kind"], row["count"]) for row in rows] == [("step", 1), ("duplicate", 999_999)]
    rows = [row for batch in run_partition(recipe(steps=True), [*many, *end.to_batches()]) for row in batch.to_pylist()]
    assert [(row["kind"], row["count"]) for row in rows] == [("conflict", 1_000_001)]


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([Event("a", 17, 0.0, NAN)], f"key 'a', order 17: {NAN}"),
        ([Event("a", 0, 0.0, NO_ORDER)], f"key 'a': {NO_ORDER}"),
        ([Event("", 3, 0.0, NO_KEY)], f"{NO_KEY} (order 3)"),
        ([Event("", 0, 0.0, f"key and {NO_ORDER}")], f"key and {NO_ORDER}"),
        (
            [Event("a", 1, 1.0), Event("a", 1, 2.0)],
            "key 'a', order 1: rows with the same key and order must be equal, got 2 that differ",
        ),
        ([Event("a\nb", 1, 0.0, NAN)], f"key 'a\\nb', order 1: {NAN}"),
        ([Event("x" * 1000, 1, 0.0, NAN)], f"key '{'x' * 56}..., order 1: {NAN}"),
    ],
)
def test_the_first_invalid_row_fails_the_job(events: list[Event], sentence: str) -> None:
    with pytest.raises(RefusedError) as error:
        rows_of(recipe(fail=True), [Event("", -9, 1.0), *events])
    assert str(error.value) == sentence


def test_a_refusal_by_the_measure_names_the_row() -> None:
    events = [Event("a", i, 0.5 + (i == 13)) for i in range(30)]
    with pytest.raises(RefusedError, match=r"^key 'a', order 13: p must lie in \(0, 1\], got 1.5 at position 0$"):
        rows_of(recipe(measure=Precomputed(), fail=True), events)


def test_repeats_do_not_fail_the_job() -> None:
    events = [Event("a", i // 2, float(i // 2)) for i in range(20)]
    tested = recipe(fail=True)
    assert rows_of(tested, events, 3) == [summary(tested, "a", np.arange(10.0))]


@pytest.mark.parametrize("columns", [{"key": ["b", "a"]}, {"key": ["a", "b", "a"]}, {"order": [2, 1]}])
@pytest.mark.parametrize("size", [1, 10])
def test_rows_that_are_not_sorted_are_an_internal_error(columns: dict[str, Any], size: int) -> None:
    rows = len(next(iter(columns.values())))
    valid = {"key": ["a"] * rows, "order": list(range(rows)), "x": [1.0] * rows, "bad": pa.nulls(rows, pa.string())}
    table = pa.table({**valid, **columns})
    with pytest.raises(RuntimeError, match="must be sorted"):
        list(run_partition(recipe(), table.to_batches(max_chunksize=size)))


def test_a_failure_of_the_machine_is_not_a_bad_row() -> None:
    """Another attempt may have more luck, and must give the same rows."""

    def score(X: Any, y: Any) -> Any:
        if X[0, 0] == 2.0:
            raise ConnectionError("the server of the model is away")
        return X[:, 0]

    events = [Event("a", i, [float(i)]) for i in range(4)]
    with pytest.raises(ValueError, match="the server of the model is away"):
        rows_of(recipe(measure=measures.Frozen(score), fail=False), events, size=1)


def test_rows_without_a_key_alone_have_the_types_of_the_others() -> None:
    (batch,) = run_partition(recipe(), batches([Event("", 0, 0.0, "key must not be null, got null in column 'k'")]))
    assert batch.schema.field("log10_martingale").type == pa.float64()
    assert batch.schema.field("alarm").type == pa.bool_()
