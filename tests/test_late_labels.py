"""Late labels in the library: who is used depends on the own delay only, in the order of observation."""

from __future__ import annotations

import copy
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import exchangeable as ex
import late
from contracts import state
from exchangeable import LateLabels, Monitor, alarms, bets, measures, snapshot
from exchangeable.late_labels import CLASSES, OTHER, LeftOut, seconds
from exchangeable.snapshot import archive

PROMISE = "On exchangeable data the chance that this alarm is ever raised is at most 0.01."


def queue(wait: Any = 10.0, most: int = 1000, measure: Any = None) -> LateLabels:
    return LateLabels(Monitor(measure or measures.Value(), bets.SimpleJumper(), seed=5), wait=wait, most=most)


def steps(x: list[Any], y: list[Any] | None = None) -> list[ex.Step]:
    monitor = Monitor(measures.Value(), bets.SimpleJumper(), seed=5)
    return [monitor.update(one, None if y is None else y[i]) for i, one in enumerate(x)]


# ------------------------------------------------------------------ validity


RUNS, ALPHA = 30, 0.05


def many(count: int, alpha: float = ALPHA, runs: int = RUNS) -> bool:
    """Whether so many false alarms have a chance below one in a million if each has at most alpha."""
    return bool(binom.sf(count - 1, runs, alpha) < 1e-6)


def monitor(seed: int) -> Monitor:
    return Monitor(measures.Value(), bets.SimpleJumper(), alarms.Ville(ALPHA), seed=seed)


@pytest.mark.parametrize(
    "wait",
    [1.02 * late.HOUR, "forever", *(pytest.param(hours * late.HOUR, marks=pytest.mark.soak) for hours in (0.5, 2.0))],
)
def test_traffic_does_not_decide_what_is_tested(wait: Any) -> None:
    """I.i.d. data, delays that depend on the class, traffic that rises: few false alarms."""
    false = 0
    for seed in range(RUNS):
        x, y, events = late.fraud(seed)
        done, _ = late.played(LateLabels(monitor(seed), wait=wait), x[:, 0], y, events)
        false += done.monitor.alarm_at is not None
        assert (done.left_out.expired > 100) == (wait != "forever" and wait < 2.0 * late.HOUR)
        assert done.left_out.undelivered == 0
    assert not many(false), false


def test_a_wait_that_counts_observations_would_be_caught() -> None:
    """The same streams with the rule of an earlier version."""
    false = 0
    for seed in range(RUNS):
        x, y, events = late.fraud(seed)
        false += late.counted(monitor(seed), x[:, 0], y, events, wait=1000).alarm_at is not None
    assert many(false), false


# ------------------------------------------------------------------ the rule


@given(st.data())
def test_the_used_are_those_with_short_delays_in_the_order_of_observation(data: st.DataObject) -> None:
    """Whatever the times are, as long as events are passed on in the order of their times."""
    numbers = st.integers(0, 40).map(float)
    observed = sorted(data.draw(st.lists(numbers, min_size=1, max_size=25)))
    delays = [data.draw(st.one_of(numbers, st.just(math.inf))) for _ in observed]
    wait = data.draw(st.integers(1, 30).map(float))
    x = np.random.default_rng(0).normal(size=len(observed) + 1).tolist()
    done, released = late.played(queue(wait), x, list(range(len(x))), late.in_order(observed, delays))
    released += done.observe("end", x[-1], "end", time=200.0)
    used = [i for i, delay in enumerate(delays) if delay <= wait]
    assert [name for name, _ in released] == [*used, "end"]
    assert [step for _, step in released] == steps([x[i] for i in used] + [x[-1]])
    counts = done.left_out
    assert (counts.expired, counts.undelivered) == (len(observed) - len(used), 0)
    assert sum(counts.classes.values()) == sum(wait < delay < math.inf for delay in delays)
    assert done.waiting == []


@given(st.permutations(range(8)))
def test_the_order_of_labels_plays_no_part(order: list[int]) -> None:
    x = np.random.default_rng(1).normal(size=8).tolist()
    patient = queue("forever")
    for i in range(8):
        assert patient.observe(i, x[i]) == []
    released = [pair for i in order for pair in patient.label(i, "a")]
    assert released == list(enumerate(steps(x)))


def test_labels_with_their_observations_and_waiting_in_between() -> None:
    waits = queue()
    assert waits.observe("a", 1.0, "y", time=0) == [("a", steps([1.0])[0])]
    assert waits.observe("b", 2.0, time=1) == []
    assert waits.observe("c", 3.0, "y") == []  # it has its label, and needs no time
    assert waits.waiting == ["b", "c"]
    assert [name for name, _ in waits.label("b", "y", time=11.0)] == ["b", "c"]  # just in time
    assert waits.left_out == LeftOut()
    assert waits.guarantee == PROMISE


def test_a_late_label_and_the_passing_of_time_both_end_the_wait() -> None:
    waits = queue()
    waits.observe("a", 1.0, time=0.0)
    waits.observe("b", 2.0, "y", time=0.5)
    assert [name for name, _ in waits.label("a", "fraud", time=10.5)] == ["b"]
    assert waits.left_out == LeftOut(expired=1, classes={"fraud": 1})
    waits.observe("c", 3.0, time=11.0)
    waits.observe("d", 4.0, "y", time=21.0)
    assert waits.waiting == ["c", "d"]  # the label may come yet, at 21
    assert [name for name, _ in waits.observe("e", 5.0, "y", time=21.5)] == ["d", "e"]
    assert waits.label("c", "fraud", time=30.0) == []
    assert waits.left_out == LeftOut(expired=2, classes={"fraud": 2})
    assert waits.guarantee == (
        f"{PROMISE} This holds if the delay of a label depends on its own example only, not on time or traffic."
    )


def test_a_label_in_time_that_is_passed_on_too_late_is_counted_apart() -> None:
    waits = queue()
    waits.observe("a", 1.0, time=0.0)
    waits.observe("b", 2.0, time=1.0)
    waits.observe("c", 3.0, "y", time=12.0)
    assert waits.left_out.expired == 2
    waits.label("a", "no", time=9.0)
    assert waits.left_out == LeftOut(expired=2, undelivered=1, classes={"no": 1})
    assert waits.guarantee.endswith(
        ", and if labels are delivered before events that are later than their observation plus 10 seconds "
        "(not true for 1)."
    )


def test_it_is_given_up_only_where_others_wait_for_it() -> None:
    """Its label came in time and is passed on while it stands in the queue: there is no reason to lose it."""
    waits = queue()
    waits.observe("a", 1.0, time=5.0)
    waits.observe("b", 2.0, time=0.0)  # another sender's clock is behind
    waits.observe("c", 3.0, "y", time=12.0)
    waits.label("b", "y", time=3.0)
    assert [name for name, _ in waits.label("a", "y", time=6.0)] == ["a", "b", "c"]
    assert waits.left_out == LeftOut()


def test_a_label_that_never_comes() -> None:
    waits = queue("forever")
    waits.observe("a", 1.0)
    waits.observe("b", 2.0)
    waits.observe("c", 3.0, "y")
    assert waits.never("b") == []
    assert waits.waiting == ["a", "c"]
    assert [name for name, _ in waits.never("a")] == ["c"]
    assert waits.left_out == LeftOut(never=2)
    assert waits.guarantee == f"{PROMISE} This holds if whether a label never comes depends on its own example only."
    for name in ("a", "b", "c"):
        with pytest.raises(ValueError, match="id must be that of a waiting example"):
            waits.never(name)


def test_a_full_queue_refuses_new_ones_and_keeps_the_old() -> None:
    waits = queue(most=2)
    waits.observe("a", 1.0, time=0.0)
    waits.observe("b", 2.0, "y", time=0.0)
    before = snapshot.encode(waits)
    with pytest.raises(ValueError, match=r"the queue must hold at most 2 waiting examples.* observe 'c' again"):
        waits.observe("c", 3.0, "y", time=9.0)
    assert snapshot.encode(waits) == before
    assert [name for name, _ in waits.observe("c", 3.0, "y", time=11.0)] == ["b", "c"]  # by then "a" is given up
    assert waits.waiting == []


# ------------------------------------------------------------------ times


def test_times_are_seconds_or_dates_with_an_offset() -> None:
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    waits = queue(timedelta(hours=1))
    assert waits.wait == 3600.0
    waits.observe("a", 1.0, time=start)
    waits.observe("b", 2.0, time="2026-01-01T14:00:00+02:00")
    assert [name for name, _ in waits.label("a", "y", time=start + timedelta(minutes=60))] == ["a"]
    assert waits.label("b", "y", time=start.timestamp() + 3600.5) == []
    assert waits.left_out.expired == 1


@pytest.mark.parametrize(
    "time", [None, True, math.nan, math.inf, 10**400, "soon", "2026-01-01T12:00:00", datetime(2026, 1, 1), [1.0]]
)
def test_other_times_are_refused_and_change_nothing(time: Any) -> None:
    waits = queue()
    waits.observe("a", 1.0, time=0.0)
    before = snapshot.encode(waits)
    with pytest.raises(ValueError, match="time must be a finite number of seconds, or a date and time with a UTC off"):
        waits.observe("b", 2.0, time=time)
    with pytest.raises(ValueError, match="time must be a finite number of seconds, or a date and time with a UTC off"):
        waits.label("a", "y", time=time)
    assert snapshot.encode(waits) == before


def test_forever_needs_no_times() -> None:
    waits = queue("forever")
    waits.observe("a", 1.0)
    waits.observe("b", 2.0, time=1e9)
    waits.observe("c", 3.0, "y", time=2e9)
    assert waits.waiting == ["a", "b", "c"]
    assert [name for name, _ in waits.label("a", "y", time=5.0)] == ["a"]
    with pytest.raises(ValueError, match="time of a label must not be before"):
        waits.label("b", "y", time=5.0)


# ------------------------------------------------------------------ refusals


def test_a_label_before_its_observation_is_refused() -> None:
    waits = queue()
    waits.observe("a", 1.0, time=5.0)
    with pytest.raises(ValueError, match=r"time of a label must not be before that of its observation, 5.0, got 4.5"):
        waits.label("a", "y", time=4.5)
    assert waits.waiting == ["a"]
    waits.observe("b", 1.0, "y", time=20.0)
    with pytest.raises(ValueError, match="time of a label must not be before"):
        waits.label("a", "y", time=4.5)
    assert waits.left_out == LeftOut(expired=1)


@pytest.mark.parametrize(
    ("options", "law"),
    [
        ({"wait": 0}, "wait must be a number of seconds above 0, a timedelta, or 'forever', got 0"),
        ({"wait": -1.0}, "wait must be"),
        ({"wait": math.inf}, "wait must be"),
        ({"wait": "an hour"}, "wait must be"),
        ({"wait": True}, "wait must be"),
        ({"wait": timedelta(0)}, "wait must be"),
        ({"most": 0}, "most must be an integer from 1"),
        ({"monitor": "none"}, "monitor must be a Monitor, got 'none'"),
    ],
)
def test_bad_arguments(options: dict[str, Any], law: str) -> None:
    with pytest.raises(ValueError, match=law):
        LateLabels(**{"monitor": Monitor(measures.Value()), **options})


def test_bad_ids_and_labels() -> None:
    waits = queue("forever")
    waits.observe("a", 1.0)
    waits.observe(np.int64(3), 1.0)  # type: ignore[arg-type]
    for bad in (True, 1.5, None, ("a",)):
        with pytest.raises(ValueError, match="id must be a string or an integer"):
            waits.observe(bad, 1.0)  # type: ignore[arg-type]
    for known in ("a", 3):
        with pytest.raises(ValueError, match="id must differ from those of other examples"):
            waits.observe(known, 1.0)
    with pytest.raises(ValueError, match="id must be that of a waiting example, got 'b'"):
        waits.label("b", "y")
    with pytest.raises(ValueError, match="y must be the label of example 'a', got None"):
        waits.label("a", None)
    waits.label(3, "y")
    with pytest.raises(ValueError, match="id must be that of an example without a label, got 3"):
        waits.label(3, "z")


def test_what_the_monitor_refuses_changes_nothing_and_can_be_left_out() -> None:
    waits = queue("forever", measure=measures.NearestResidual())
    waits.observe("a", [1.0])
    for name, y in (("b", 2.0), ("c", "a text"), ("d", 3.0)):
        waits.observe(name, [1.0], y)
    before = snapshot.encode(waits)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"example 'c' cannot be tested, and never\('c'\) leaves it out: y must"):
            waits.label("a", 1.0)
        assert snapshot.encode(waits) == before
    waits.never("c")
    assert [name for name, _ in waits.label("a", 1.0)] == ["a", "b", "d"]
    with pytest.raises(ValueError, match="example 'e' cannot be tested"):
        waits.observe("e", [1.0], "a text")
    assert waits.waiting == []


def test_an_example_is_kept_as_it_was() -> None:
    row = np.array([1.0, 2.0])
    waits = LateLabels(Monitor(seed=2))
    waits.observe("a", row)
    row[:] = 7.0
    twin = LateLabels(Monitor(seed=2))
    twin.observe("a", [1.0, 2.0])
    for one in (waits, twin):
        one.observe("b", [0.0, 0.0], "y")
        one.label("a", "y")
    assert state(waits.monitor) == state(twin.monitor)


# ------------------------------------------------------------------ counts


def test_labels_are_counted_by_class_and_only_so_many() -> None:
    counts = LeftOut()
    for y in ["a", "a", 3, 3.0, np.float64(3.0), True, 2.5, math.nan, math.inf]:
        counts.count(y, in_time=False)
    assert counts.classes == {"a": 2, "3": 3, "True": 1, OTHER: 3}
    for k in range(100):
        counts.count(f"{k}" * 100, in_time=False)
    assert len(counts.classes) <= CLASSES + 1
    assert max(map(len, counts.classes)) <= 64
    assert sum(counts.classes.values()) == 109


def test_memory_of_expired_ones_is_bounded() -> None:
    waits = queue(1.0, most=5)
    for i in range(50):
        waits.observe(i, 1.0, time=2.0 * i)
    assert waits.left_out.expired == 49
    assert len(waits._expired) == 5
    with pytest.raises(ValueError, match="id must be that of a waiting example, got 3"):
        waits.label(3, "y", time=100.0)
    waits.label(48, "y", time=100.0)
    assert waits.left_out.classes == {"y": 1}


@pytest.mark.parametrize(
    ("counts", "server", "words"),
    [
        (LeftOut(), False, "P."),
        (LeftOut(), True, "P. This holds if delays were not changed by outages or by a full queue."),
        (
            LeftOut(expired=1),
            True,
            "not on time or traffic, and if delays were not changed by outages or by a full queue.",
        ),
    ],
)
def test_the_conditions_are_stated(counts: LeftOut, server: bool, words: str) -> None:
    assert words in counts.guarantee("P.", 60.0, server_clock=server)


# ------------------------------------------------------------------ snapshots


@pytest.mark.parametrize("wait", [1.02 * late.HOUR, "forever"])
def test_a_snapshot_in_the_middle_goes_on_identically(tmp_path: Path, wait: Any) -> None:
    x, y, events = late.fraud(3, slow=60, fast=120)

    def reloaded(one: LateLabels) -> LateLabels:
        if rng.random() > 0.2:
            return one
        ex.save(one, tmp_path / "queue.zip")
        twin: LateLabels = ex.load(tmp_path / "queue.zip")
        assert snapshot.encode(twin) == snapshot.encode(one)
        assert (twin.waiting, twin.left_out, twin.guarantee) == (one.waiting, one.left_out, one.guarantee)
        return twin

    rng = np.random.default_rng(0)
    whole, expected = late.played(LateLabels(Monitor(seed=1), wait=wait), x, y, events)
    parts, released = late.played(LateLabels(Monitor(seed=1), wait=wait), x, y, events, reloaded)
    assert released == expected
    assert len(released) > 100
    assert snapshot.encode(parts) == snapshot.encode(whole)
    assert copy.deepcopy(whole).guarantee == whole.guarantee


def forged(change: dict[str, Any]) -> bytes:
    """A queue in the middle of its work with other values, and right checksums."""
    waits = queue()
    waits.observe("a", 1.0, time=0.0)
    waits.observe("b", 2.0, time=5.0)
    waits.observe("c", 3.0, "y", time=11.0)
    tree, arrays = archive.unpack(snapshot.encode(waits))
    assert tree["with"].keys() >= change.keys()
    tree["with"].update(change)
    return archive.pack(tree, arrays)


def rows(*tuples: list[Any]) -> list[Any]:
    return [{"tuple": row} for row in tuples]


COUNTS = {"expired": 1, "undelivered": 0, "never": 0, "classes": {"dict": []}}


def counts(**change: Any) -> dict[str, Any]:
    return {"dict": [[key, value] for key, value in (COUNTS | change).items()]}


@pytest.mark.parametrize(
    "change",
    [
        {"monitor": None},
        {"monitor": {"class": "bets.Idle", "with": {}}},
        {"wait": 0.0},
        {"wait": "forever"},
        {"wait": {"float": "nan"}},
        {"most": 1},
        {"most": -1},
        {"latest": {"float": "nan"}},
        {"latest": "11"},
        {"queue": rows(["b", 2.0, None, None])},
        {"queue": rows(["b", 2.0, None, {"float": "inf"}])},
        {"queue": rows(["b", 2.0, None])},
        {"queue": rows([2.5, 2.0, None, 5.0])},
        {"queue": rows([[], 2.0, None, 5.0])},
        {"queue": rows([True, 2.0, None, 5.0])},
        {"queue": {"dict": []}},
        {"queue": [["b", 2.0, None, 5.0]]},
        {"expired": rows(["a", None])},
        {"left_out": counts(expired=-1)},
        {"left_out": counts(expired=0.5)},
        {"left_out": counts(classes={"dict": [[1, 1]]})},
        {"left_out": counts(classes=[])},
        {"left_out": counts(expired=99, classes={"dict": [[f"{k}", 1] for k in range(12)]})},
        {"left_out": counts(more=1)},
        {"left_out": None},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_forged_snapshots_are_refused(change: dict[str, Any]) -> None:
    assert snapshot.decode(forged({})).waiting == ["b", "c"]
    with pytest.raises(ValueError, match="state"):
        snapshot.decode(forged(change))


def test_seconds_keep_their_order() -> None:
    given = ["2026-01-01T00:00:00Z", "2026-01-01T01:30:00+01:00", "2026-01-01T00:30:00.5Z"]
    assert [seconds(one) - seconds(given[0]) for one in given] == [0.0, 1800.0, 1800.5]


def test_an_example_is_tested_once() -> None:
    queue = LateLabels(Monitor(measures.Value(), seed=0), wait="forever", most=2)
    queue.observe("a", 1.0, "u")
    again = snapshot.decode(snapshot.encode(queue))
    for one in (queue, again):
        with pytest.raises(ValueError, match="id must differ from those of other examples, got 'a' again"):
            one.observe("a", 1.0, "u")
        assert one.monitor.n == 1
    for name in ("b", "c"):
        queue.observe(name, 2.0, "u")
    queue.observe("a", 1.0, "u")  # only the latest ids are remembered
    assert queue.monitor.n == 4


@pytest.mark.parametrize("id_", [[1], {}, None, True, 1.5])
def test_ids_are_plain(id_: Any) -> None:
    queue = LateLabels(Monitor(measures.Value(), seed=0), wait="forever")
    queue.observe(1, 2.0)
    for call, more in ((queue.observe, [1.0]), (queue.label, ["u"]), (queue.never, [])):
        with pytest.raises(ValueError, match="id must be a string or an integer"):
            call(id_, *more)
    assert queue.waiting == [1]


def test_a_time_in_other_units_is_refused() -> None:
    """One such time would make all that wait seem late."""
    queue = LateLabels(Monitor(measures.Value(), seed=0), wait=3600)
    queue.observe("a", 1.0, time=1.7e9)
    with pytest.raises(ValueError, match="time must be within 10 years of the latest"):
        queue.observe("b", 1.0, time=1.7e12)
    with pytest.raises(ValueError, match="time must be within 10 years of the latest"):
        queue.label("a", "u", time=12)
    assert [name for name, _ in queue.label("a", "u", time="2023-11-14T22:13:21+00:00")] == ["a"]
