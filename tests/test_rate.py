"""`RateMonitor`: its numbers against a plain transcription, its guarantees, and everything it refuses."""

from __future__ import annotations

import copy
import itertools
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats

import naive_rate
from exchangeable import RateMonitor, snapshot
from exchangeable.evidence import EvidenceStep
from exchangeable.history import History
from exchangeable.rate import MISSED, RateChange, RatePath

LEVEL = 2.0 / (1.0 - 1.0 / 32.0) ** 2  # times the period


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng([19, *seed])


def events(*parts: tuple[float, int], seed: int = 0) -> NDArray[np.bool_]:
    draw = rng(seed)
    return np.concatenate([draw.random(n) < rate for rate, n in parts])


# ------------------------------------------------------------------ numbers


@pytest.mark.quick
@pytest.mark.parametrize("direction", ["both", "up", "down"])
@pytest.mark.parametrize("rates", [((0.3, 50), (0.8, 20)), ((0.0, 40),), ((1.0, 40),), ((0.05, 60),)])
def test_numbers_are_those_of_the_plain_transcription(rates: Any, direction: str) -> None:
    y = events(*rates)
    evidence, statistic, change = naive_rate.paths(y.astype(int).tolist(), direction)
    path = RateMonitor(direction=direction).extend(y)
    np.testing.assert_allclose(path.log_value, evidence, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(path.statistic, statistic, rtol=1e-12, atol=1e-11)
    if np.isfinite(statistic).all():
        assert (path.lowest == change).mean() > 0.95  # ties may be broken otherwise
    assert path.n.tolist() == list(range(1, len(y) + 1))


def test_values_are_averages_over_their_cuts() -> None:
    x = rng(1).choice([1, 2, 3, 5], 90, p=[0.1, 0.2, 0.3, 0.4])
    path = RateMonitor(values=[1, 2, 3, 5]).extend(x)
    parts = [naive_rate.paths((x >= v).astype(int).tolist(), cuts=3) for v in (2, 3, 5)]
    evidence, statistic, _ = (
        np.logaddexp.reduce(np.array(column)) - math.log(3.0) for column in zip(*parts, strict=True)
    )
    np.testing.assert_allclose(path.log_value, evidence, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(path.statistic, statistic, rtol=1e-12, atol=1e-11)


def test_one_by_one_and_in_any_batches() -> None:
    for on_alarm, values in itertools.product(("latch", "restart"), ((0, 1), ("a", "b", "c"))):
        draw = rng(2)
        x = [values[i] for i in np.append(draw.integers(0, len(values), 700), np.zeros(300, int)).tolist()] * 2
        whole, single, split = (RateMonitor(500, values=values, on_alarm=on_alarm) for _ in range(3))
        path = whole.extend(x)
        steps = [single.update(value) for value in x]
        assert steps == [EvidenceStep(*(c.item() for c in row)) for row in zip(*path[:4], strict=True)]
        assert path.alarm.any()
        cuts = [0, *sorted(draw.integers(0, len(x), 7).tolist()), len(x)]
        parts = [split.extend(x[a:b]) for a, b in itertools.pairwise(cuts)]
        for name in RatePath._fields[:6]:
            assert np.concatenate([getattr(part, name) for part in parts]).tolist() == getattr(path, name).tolist()
        assert [change for part in parts for change in part.changes] == path.changes
        assert len(path.changes) == (path.alarm.sum() if on_alarm == "restart" else 1)
        assert path.changes[-1] == whole.change
        for other in (single, split):
            assert snapshot.encode(other) == snapshot.encode(whole)
        assert (whole.test > 2) == (on_alarm == "restart")


def test_successes_and_failures_are_mirror_images() -> None:
    y = events((0.1, 300), (0.3, 100), seed=3)
    for direction, mirrored in (("both", "both"), ("up", "down")):
        one, other = RateMonitor(direction=direction).extend(y), RateMonitor(direction=mirrored).extend(~y)
        np.testing.assert_allclose(one.log_value, other.log_value, rtol=1e-11)
        np.testing.assert_allclose(one.statistic, other.statistic, rtol=1e-11)


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_an_interrupted_batch_was_not_consumed(on_alarm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = RateMonitor(on_alarm=on_alarm)
    monitor.extend(events((0.2, 100)))
    before = snapshot.encode(monitor)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(History, "extend", interrupt)
        with pytest.raises(KeyboardInterrupt):
            monitor.extend(events((0.9, 50)))
    assert snapshot.encode(monitor) == before
    monitor.extend(events((0.9, 50)))
    assert monitor.n == 150


def test_a_copy_counts_on_its_own() -> None:
    monitor = RateMonitor()
    monitor.extend(events((0.2, 100)))
    twin = copy.deepcopy(monitor)
    before = snapshot.encode(monitor)
    twin.extend(events((0.9, 50)))
    assert snapshot.encode(monitor) == before != snapshot.encode(twin)


def test_nothing_overflows_and_the_watch_goes_on() -> None:
    """Long after an alarm the evidence is far beyond the range of floats."""
    y = np.concatenate([events((0.01, 20_000)), events((0.9, 20_000)), events((0.01, 400_000), seed=1)])
    path = RateMonitor().extend(y)
    assert np.isfinite(path.log_value).all()
    assert np.isfinite(path.statistic).all()
    assert path.log_value[39_999] > 5_000.0


@pytest.mark.parametrize(
    ("before", "after", "direction"),
    [(0.01, 0.3, "down"), (0.05, 0.2, "down"), (0.9, 0.5, "up"), (0.02, 0.06, "both")],
)
def test_numbers_are_those_of_logarithms_also_where_parts_of_the_sums_vanish(
    before: float, after: float, direction: str
) -> None:
    """Sums of the other direction shrink beyond the range of floats, and must not grow again from there."""
    y = events((before, 10_000), (after, 3_000), seed=12)
    evidence, statistic = naive_rate.long_paths(y.astype(int), direction)
    monitor = RateMonitor(alpha=1e-300, direction=direction)
    path = monitor.extend(y)
    np.testing.assert_allclose(path.log_value, evidence, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(path.statistic, statistic, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("parts", [((0.02, 5_000), (0.95, 1_500), (0.02, 6_000)), ((0.99, 10_000), (0.3, 3_000))])
def test_evidence_that_vanished_and_returns_is_never_overstated(parts: Any) -> None:
    y = events(*parts, seed=14)
    for direction in ("both", "up", "down"):
        evidence, statistic = naive_rate.long_paths(y.astype(int), direction)
        path = RateMonitor(direction=direction).extend(y)
        assert np.isfinite(path.log_value).all()
        assert (path.log_value <= evidence + 1e-6).all()
        assert (path.statistic <= statistic + 1e-6).all()


# ------------------------------------------------------------------ what it finds


@pytest.mark.parametrize(
    ("before", "after", "direction"), [(0.01, 0.05, "both"), (0.3, 0.1, "down"), (0.5, 0.7, "up"), (0.97, 0.9, "both")]
)
def test_a_change_is_found_near_its_place(before: float, after: float, direction: str) -> None:
    found = [RateMonitor(20_000, direction=direction) for _ in range(20)]
    for seed, monitor in enumerate(found):
        monitor.extend(events((before, 2_000), (after, 1_000), seed=seed))
    late = [m for m in found if m.alarm_at is not None and m.alarm_at > 2_000]
    assert len(late) >= 18
    errors = [abs(m.changepoint - 2_000) for m in late if m.changepoint is not None]
    assert np.median(errors) < 40
    assert all(isinstance(m.change, RateChange) and m.change.value == 1 for m in late)
    assert np.median([abs(m.change.before - before) for m in late if m.change]) < 0.02
    assert np.median([abs(m.change.after - after) for m in late if m.change]) < 0.1


def test_only_the_chosen_direction_raises_an_alarm() -> None:
    y = events((0.3, 2_000), (0.1, 3_000))
    assert RateMonitor(1000, direction="up").extend(y).alarm.sum() == 0
    assert RateMonitor(1000, direction="down").extend(y).alarm.any()


@pytest.mark.parametrize(
    ("before", "after", "direction"), [(0.05, 0.2, "down"), (0.01, 0.3, "down"), (0.9, 0.5, "up"), (0.99, 0.3, "up")]
)
def test_overwhelming_evidence_of_the_other_direction_is_none(before: float, after: float, direction: str) -> None:
    monitor = RateMonitor(1e6, direction=direction)
    monitor.extend(events((before, 20_000), (after, 10_000), seed=13))
    assert monitor.alarm_at is None
    assert monitor.log_max < 5.0


@pytest.mark.parametrize("direction", ["both", "up", "down"])
@pytest.mark.parametrize(("values", "value"), [((0, 1), 0), ((0, 1), 1), ((1, 2, 3, 4, 5), 4)])
@pytest.mark.parametrize("bound", [{"period": 20}, {"period": 1_000}, {"alpha": 0.5}])
def test_equal_values_raise_no_alarm(direction: str, values: Any, value: int, bound: dict[str, Any]) -> None:
    monitor = RateMonitor(**bound, values=values, direction=direction)
    monitor.extend([value] * 100_000)
    assert monitor.alarm_at is None


def test_a_long_time_without_events_brings_the_alarm_no_nearer() -> None:
    """The statistic does not grow steadily while nothing happens."""
    monitor = RateMonitor(1_000)
    path = monitor.extend(np.zeros(500_000))
    assert path.statistic[-1] < path.statistic[100_000] + 0.2 < math.log(0.2 * monitor.threshold)


def test_a_change_has_values_before_it() -> None:
    """Even where the first values are unlike the rest."""
    for seed in range(20):
        monitor = RateMonitor(5, on_alarm="restart")
        path = monitor.extend(events((0.5, 2_000), seed=seed))
        assert all(start >= 1 for start in path.lowest[path.alarm] - np.append(0, path.n[path.alarm][:-1]))
        assert all(change.before != change.after for change in path.changes)


def test_one_direction_finds_it_sooner() -> None:
    delays = np.zeros((30, 2))
    for seed in range(30):
        y = events((0.1, 1_000), (0.2, 2_000), seed=seed)
        delays[seed] = [RateMonitor(direction=d).extend(y).alarm.argmax() for d in ("both", "up")]
    assert delays[:, 1].mean() < delays[:, 0].mean()


def test_ratings_tell_which_share_changed() -> None:
    draw = rng(5)
    x = np.append(
        draw.choice([1, 2, 3, 4, 5], 3_000), draw.choice([1, 2, 3, 4, 5], 1_000, p=[0.4, 0.15, 0.15, 0.15, 0.15])
    )
    monitor = RateMonitor(values=[1, 2, 3, 4, 5])
    monitor.extend(x)
    change = monitor.change
    assert change is not None
    assert change.value == 2
    assert change.before == pytest.approx(0.8, abs=0.05)
    assert change.after == pytest.approx(0.6, abs=0.1)
    assert list(monitor.shares) == [1, 2, 3, 4, 5]
    assert sum(monitor.shares.values()) == pytest.approx(1.0)


def test_the_evidence_is_better_than_that_of_ranks() -> None:
    """log10 of the final capital on 5,000 events at 0.1 and 5,000 at 0.4; the best published martingale has 257.7."""
    found = [
        RateMonitor(alpha=0.01).extend(events((0.1, 5_000), (0.4, 5_000), seed=s)).log_value[-1] for s in range(10)
    ]
    assert 235.0 < np.mean(found) / math.log(10.0) < 275.0


# ------------------------------------------------------------------ guarantees


@pytest.mark.quick
def test_the_evidence_is_at_most_a_martingale_whatever_the_rate_and_the_stopping_rule() -> None:
    """All 2^10 sequences: the best stopping rule gains nothing on average, by backward induction."""
    depth = 10
    value: dict[tuple[int, ...], float] = {(): 1.0}
    for n in range(1, depth + 1):
        for y in itertools.product((0, 1), repeat=n):
            value[y] = math.exp(RateMonitor(alpha=0.01).extend(list(y)).log_value[-1])
    for q in (0.0, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0):
        best = {y: value[y] for y in itertools.product((0, 1), repeat=depth)}
        for n in range(depth - 1, -1, -1):
            go_on = {y: (1 - q) * best[(*y, 0)] + q * best[(*y, 1)] for y in itertools.product((0, 1), repeat=n)}
            best = {y: max(value[y], go_on[y]) for y in go_on}
        assert best[()] <= 1.0 + 1e-12
    assert RateMonitor(alpha=0.01).extend([0] * 20 + [1] * 10).log_value[-1] > 1.0  # it does gain on some


def bound(steps: int, period: float) -> float:
    return MISSED + steps / (LEVEL * period)


@pytest.mark.parametrize("values", [(0, 1), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_false_alarms_within_a_time_are_as_rare_as_proved(rate: float, values: tuple[int, ...]) -> None:
    """With a short period, so that there are some."""
    runs, steps, period = 300, 300, 400.0
    draw, alarms = rng(7, int(100 * rate), len(values)), 0
    shares = np.array([1.0 - rate, rate]) if len(values) == 2 else np.array([1 - rate, *[rate / 4] * 4])
    for _ in range(runs):
        monitor = RateMonitor(period, values=values)
        alarms += bool(monitor.extend(draw.choice(values, steps, p=shares)).alarm.any())
    assert stats.binom.sf(alarms - 1, runs, bound(steps, period)) > 1e-6


def test_this_test_can_fail() -> None:
    """A level that is a hundredth of ours raises more alarms than were proved."""
    runs, steps, period = 300, 300, 4.0
    draw = rng(8)
    alarms = sum(RateMonitor(period).extend(draw.random(steps) < 0.1).alarm.any() for _ in range(runs))
    assert stats.binom.sf(alarms - 1, runs, bound(steps, 400.0)) < 1e-6


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_the_alarm_with_alpha_is_ever_raised_as_rarely_as_stated(rate: float) -> None:
    runs, alpha, draw = 400, 0.3, rng(9, int(100 * rate))
    alarms = sum(RateMonitor(alpha=alpha).extend(draw.random(2_000) < rate).alarm.any() for _ in range(runs))
    assert stats.binom.sf(alarms - 1, runs, alpha) > 1e-6


def ladder(end: int, ratio: float) -> list[int]:
    """Each number from 32 on to 300, then steps by a ratio."""
    numbers = list(range(32, 300))
    while numbers[-1] < end:
        numbers.append(min(math.ceil(numbers[-1] * ratio), end))
    return numbers


def check_weights(end: int, ratio: float, cuts: int) -> None:
    """s_i KT(T_i) <= 1 for all starts up to ``end``, where T_i shrinks with i: see docs/promises.md."""
    for m, following in itertools.pairwise(ladder(end, ratio)):
        assert naive_rate.start_weight(following, cuts) * naive_rate.mass(m, MISSED / cuts) <= 0.995


@pytest.mark.parametrize("cuts", [1, 4, 63])
def test_the_weights_of_starts_are_those_that_the_proof_needs(cuts: int) -> None:
    check_weights(2_000, 1.05, cuts)
    assert naive_rate.mass(10, MISSED) > 0.7  # so larger weights would not do
    assert naive_rate.start_weight(1_000) * naive_rate.mass(1_000, MISSED) > 0.9


@pytest.mark.soak
@pytest.mark.parametrize(("cuts", "end"), [(1, 2**20), (2, 100_000), (4, 100_000), (63, 100_000)])
def test_the_weights_of_all_starts_are_those_that_the_proof_needs(cuts: int, end: int) -> None:
    check_weights(end, 1.05, cuts)


@pytest.mark.soak
@pytest.mark.parametrize("rate", [0.003, 0.03, 0.5])
def test_the_mean_time_to_a_false_alarm_is_at_least_the_period(rate: float) -> None:
    period, runs, draw = 100.0, 200, rng(10, int(1000 * rate))
    times = []
    for _ in range(runs):
        monitor = RateMonitor(period)
        while monitor.alarm_at is None and monitor.n < 200_000:
            monitor.extend(draw.random(2_000) < rate)
        times.append(monitor.alarm_at or monitor.n)
    assert np.mean(times) > period


# ------------------------------------------------------------------ arguments


def test_guarantees_name_what_is_guaranteed() -> None:
    assert "mean time to a false alarm is at least 10000 values" in RateMonitor().guarantee
    assert "mean time between false alarms is at least 50 values" in RateMonitor(50, on_alarm="restart").guarantee
    assert "ever raised is at most 0.05" in RateMonitor(alpha=0.05).guarantee
    assert "identically distributed values" in RateMonitor(alpha=0.05, on_alarm="restart").guarantee


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"period": 1.0}, "period must lie in"),
        ({"period": math.nan}, "period must lie"),
        ({"period": 10, "alpha": 0.1}, "alpha must be None if period is given, got 0.1"),
        ({"alpha": 1.0}, "alpha must lie"),
        ({"direction": "left"}, "direction must be 'up', 'down' or 'both', got 'left'"),
        ({"on_alarm": "stop"}, "on_alarm must be 'latch' or 'restart', got 'stop'"),
        ({"values": [1]}, "values must be 2 to 64 different numbers or strings, in order, got [1]"),
        ({"values": [1, 1]}, "values must be 2 to 64"),
        ({"values": [1, math.nan]}, "values must be 2 to 64"),
        ({"values": [1, None]}, "values must be 2 to 64"),
        ({"values": "ab"}, "values must be 2 to 64"),
        ({"values": 7}, "values must be 2 to 64"),
        ({"values": range(65)}, "values must be 2 to 64"),
        ({"values": {1, 2, 3}}, "values must be 2 to 64"),
        ({"values": {1: 2, 3: 4}}, "values must be 2 to 64"),
        ({"direction": ["up"]}, "direction must be 'up', 'down' or 'both', got ['up']"),
        ({"start": -1}, "start must be an integer from 0 to 4503599627370496, got -1"),
        ({"start": 1.5}, "start must be an integer from 0 to 4503599627370496, got 1.5"),
        ({"start": True}, "start must be an integer"),
        ({"start": None}, "start must be an integer"),
        ({"start": 2**53}, "start must be an integer"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RateMonitor(**arguments)


@pytest.mark.parametrize("x", [2, -1, 0.5, math.nan, None, "1", [1], {}, np.array([1, 0])])
def test_what_is_no_event_is_refused_and_changes_nothing(x: Any) -> None:
    monitor = RateMonitor()
    monitor.extend([0, 1, True, np.float64(1.0), np.int8(0)])
    before = snapshot.encode(monitor)
    with pytest.raises(ValueError, match=r"x must be one of \[0, 1\], got"):
        monitor.update(x)
    with pytest.raises(ValueError, match=r"x must be one of \[0, 1\], got .* at position 1"):
        monitor.extend([1, x, 0])
    assert snapshot.encode(monitor) == before


def test_events_of_any_kind() -> None:
    y = events((0.3, 50))
    expected = RateMonitor().extend(y).log_value.tolist()
    import pandas as pd
    import polars as pl

    kinds = [y.tolist(), y.astype(int), y.astype(np.float32), tuple(y.tolist()), pd.Series(y), pl.Series(y), iter(y)]
    for column in kinds:
        assert RateMonitor().extend(column).log_value.tolist() == expected
    empty = RateMonitor().extend([])
    assert len(empty.n) == 0
    assert RateMonitor().shares == {}


def test_a_new_monitor_has_no_evidence() -> None:
    monitor = RateMonitor(start=7)
    assert (monitor.n, monitor.log_value, monitor.alarm_at, monitor.change, monitor.last) == (7, 0.0, None, None, None)
    assert monitor.update(1).n == 8
    assert repr(RateMonitor(50, direction="up")) == "RateMonitor(period=50.0, direction='up')"


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (pd.DataFrame({0: [0, 1], 1: [0, 1]}), "got 2 dimensions"),
        (np.zeros((2, 2)), "got 2 dimensions"),
        (np.array(1), "got array(1)"),
        (np.ma.masked_array([0, 1], mask=[True, False]), "got masked_array"),
        ({0: 1, 1: 0}, "got {0: 1, 1: 0}"),
        ({0, 1}, "got {0, 1}"),
        ("01", "got '01'"),
        (5, "got 5"),
        (None, "got None"),
    ],
)
def test_what_are_not_many_values_is_refused(X: Any, message: str) -> None:
    monitor = RateMonitor()
    with pytest.raises(ValueError, match=r"^X must be a one-dimensional array or a list of values, ") as refusal:
        monitor.extend(X)
    assert message in str(refusal.value)
    assert monitor.n == 0


def test_many_values_in_any_container() -> None:
    y = events((0.3, 50))
    plain = [int(value) for value in y]
    expected = RateMonitor().extend(y).log_value.tolist()
    columns = [
        plain, tuple(plain), iter(plain), y.astype(np.float32), pd.Series(y), pd.Series(plain, dtype="Int64"),
        pl.Series(plain), pl.Series(y.tolist()), pa.array(plain), y.astype(object),
    ]  # fmt: skip
    for column in columns:
        assert RateMonitor().extend(column).log_value.tolist() == expected, type(column)
    ratings = RateMonitor(values=pd.Index(["bad", "fair", "good"])).extend(pd.Series(["good", "bad", "fair"]))
    assert ratings.n.tolist() == [1, 2, 3]


def test_a_late_start_can_be_stored() -> None:
    monitor = RateMonitor(start=2**52)
    monitor.extend([0, 1, 0])
    assert snapshot.encode(snapshot.decode(snapshot.encode(monitor))) == snapshot.encode(monitor)
