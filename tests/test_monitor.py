"""The monitor is its pieces composed, and nothing else."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import contracts
import naive
from exchangeable import Martingale, Monitor, Precomputed, PValues, Step, thetas
from exchangeable.alarms import Cusum, Ville
from exchangeable.bets import Adaptive, Plugin, Power, SimpleJumper, SimpleMixture, SleepyJumper
from exchangeable.measures import Frozen, NearestNeighbour, Value
from exchangeable.protocols import Bet
from exchangeable.pvalues import from_ranks


def stream(seed: int, n: int, change: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Two classes that exchange their names."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) + 2.0 * side[:, None], np.where(np.arange(n) < change, side, 1 - side)


def latched(raised: list[bool]) -> list[bool]:
    """On from the first time on."""
    return list(accumulate(raised, max))


@pytest.mark.parametrize("bet", [Plugin, SimpleMixture, SleepyJumper, lambda: Power(0.5)])
def test_a_monitor_is_its_pieces(bet: type[Bet]) -> None:
    X, y = stream(1, 200, 100)
    path = Monitor(bet=bet(), alarm=Ville(0.2), seed=5).extend(X, y)
    p = PValues(NearestNeighbour(), seed=5).extend(X, y)
    log_value = Martingale(bet()).extend(p)
    assert path.n.tolist() == list(range(1, 201))
    assert contracts.same_bits(path.p, p)
    assert contracts.same_bits(path.log_value, log_value)
    assert path.alarm.tolist() == latched(naive.ville(log_value.tolist(), 0.2))
    assert path.alarm.dtype == np.bool_


def test_the_full_pipeline_against_the_paper() -> None:
    X, y = stream(2, 150, 75)
    path = Monitor(bet=Plugin(), seed=3).extend(X, y)
    p = naive.p_values(naive.ranks(X, y), thetas(3, 0, 150))
    log_value = np.cumsum(naive.plugin(p))
    assert contracts.same_bits(path.p, p)
    assert np.abs(path.log_value - log_value).max() < 1e-10
    assert path.alarm.tolist() == latched(naive.ville(path.log_value.tolist(), 0.01))


def test_the_defaults() -> None:
    monitor = Monitor()
    assert isinstance(monitor.measure, NearestNeighbour)
    assert isinstance(monitor.martingale.bet, Adaptive)
    assert isinstance(monitor.alarm, Ville)
    assert (monitor.alarm.alpha, monitor.seed, monitor.on_alarm) == (0.01, 0, "latch")


def test_a_change_is_found_and_its_absence_is_not() -> None:
    changed = Monitor(seed=1).extend(*stream(3, 600, 300))
    assert not changed.alarm[:300].any()
    assert changed.alarm[300:].any()
    assert not Monitor(seed=1).extend(*stream(3, 600, 600)).alarm.any()


def test_update_gives_steps() -> None:
    X, y = stream(4, 30, 15)
    path = Monitor(seed=2).extend(X, y)
    monitor = Monitor(seed=2)
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        step = monitor.update(x, label)
        assert isinstance(step, Step)
        assert step == (i + 1, path.p[i], path.log_value[i], path.alarm[i])
        assert [type(value) for value in step] == [int, float, float, bool]


def test_no_examples_give_an_empty_path() -> None:
    monitor = Monitor()
    monitor.update([0.0, 1.0], "a")
    empty = monitor.extend(np.empty((0, 2)), [])
    assert [len(column) for column in empty[:5]] == [0] * 5
    assert empty.changepoint() is None
    assert monitor.update([1.0, 1.0], "b").n == 2


def test_two_monitors_share_nothing() -> None:
    X, y = stream(5, 40, 20)
    one, two = Monitor(seed=1), Monitor(seed=1)
    expected = one.extend(X, y)
    assert contracts.same_bits(two.extend(X, y).log_value, expected.log_value)
    twin = copy.deepcopy(one)
    before = contracts.state(one)
    twin.extend(X, y)
    assert contracts.state(one) == before


def test_seeds_move_p_within_its_ties_only() -> None:
    X, y = stream(6, 100, 100)
    greater, equal, n = NearestNeighbour().extend(X, y)
    for seed in (0, 1, 2):
        p = Monitor(seed=seed).extend(X, y).p
        assert (p > greater / n).all()
        assert (p <= (greater + equal) / n).all()


class Cautious:
    """An alarm with a memory: raised at the third value in a row above zero."""

    def __init__(self) -> None:
        self.row = 0

    def update(self, log_value: float) -> bool:
        self.row = self.row + 1 if log_value > 0.0 else 0
        return self.row >= 3


def test_any_alarm_reads_each_value_once_and_in_order() -> None:
    X, y = stream(7, 300, 100)
    path = Monitor(alarm=Cautious(), bet=SimpleMixture(), seed=4).extend(X, y)
    judge = Cautious()
    assert path.alarm.tolist() == latched([judge.update(value) for value in path.log_value.tolist()])
    assert 0 < path.alarm.sum() < 300
    monitor = Monitor(alarm=Cautious(), bet=SimpleMixture(), seed=4)
    assert [monitor.update(x, label).alarm for x, label in zip(X, y, strict=True)] == path.alarm.tolist()


def test_bankruptcy_never_raises_the_alarm() -> None:
    class AllOrNothing(Power):
        def extend(self, p: object) -> NDArray[np.float64]:
            return np.full(len(super().extend(p)), -math.inf)  # type: ignore[arg-type]

    path = Monitor(bet=AllOrNothing(0.5)).extend([[0.0], [1.0]], "ab")
    assert path.log_value.tolist() == [-math.inf, -math.inf]
    assert not path.alarm.any()


def test_a_bet_is_no_measure() -> None:
    with pytest.raises(ValueError, match="measure must be a measure"):
        Monitor(Plugin())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label for each example"):
        Monitor().update([1.0])


# ------------------------------------------------------------------ after an alarm

Line = tuple[NDArray[np.float64], NDArray[np.int64]]


def changing() -> Line:
    """Names are exchanged twice."""
    X, y = stream(8, 1500, 1500)
    return X, np.where((np.arange(1500) >= 400) & (np.arange(1500) < 1000), 1 - y, y)


def naive_restarts(X: Any, y: Any, make: Callable[[], Any], seed: int) -> list[tuple[int, float, float, bool, int]]:
    """One by one, by the definition: a new measure, bet and alarm after each alarm; theta by position."""
    theta = thetas(seed, 0, len(y))
    steps: list[tuple[int, float, float, bool, int]] = []
    start = 0
    while start < len(y):
        measure, martingale, alarm = NearestNeighbour(), Martingale(SimpleMixture()), make()
        capital = [0.0]
        for i in range(start, len(y)):
            rank = measure.update(X[i], y[i])
            p = (rank.greater + theta[i] * rank.equal) / rank.n
            lowest = max(k for k in range(len(capital)) if capital[k] == min(capital))
            capital.append(martingale.update(p))
            steps.append((i + 1, p, capital[-1], alarm.update(capital[-1]), start + lowest))
            if steps[-1][3]:
                break
        start = len(steps)
    return steps


@pytest.mark.parametrize("make", [lambda: Ville(0.05), lambda: Cusum(30.0)])
def test_a_restart_starts_a_new_test(make: Callable[[], Any]) -> None:
    X, y = changing()
    expected = naive_restarts(X, y, make, 3)
    monitor = Monitor(bet=SimpleMixture(), alarm=make(), seed=3, on_alarm="restart")
    path = monitor.extend(X, y)
    for column, naively in zip(path[:5], zip(*expected, strict=True), strict=True):
        assert contracts.same_bits(column, naively)
    assert path.alarm.sum() >= 2
    last = int(np.flatnonzero(path.alarm)[-1])
    assert (monitor.alarm_at, monitor.changepoint) == (last + 1, path.lowest[last])
    assert path.changepoint() == path.lowest[path.alarm][0]
    assert path.test.tolist() == (1 + np.cumsum(path.alarm) - path.alarm).tolist()
    assert monitor.test == 1 + path.alarm.sum()


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_any_mixture_of_update_and_extend_is_the_same(on_alarm: str) -> None:
    X, y = changing()
    expected = Monitor(alarm=Ville(0.05), seed=3, on_alarm=on_alarm).extend(X, y)
    monitor = Monitor(alarm=Ville(0.05), seed=3, on_alarm=on_alarm)
    for start, stop, single in contracts.in_pieces(1500, [0, 1, 0, 333, 2, 0, 90]):
        if single:
            step = monitor.update(X[start], y[start])
            assert step == tuple(column[start] for column in expected[:4])
        else:
            path = monitor.extend(X[start:stop], y[start:stop])
            for column, whole in zip(path[:5], expected[:5], strict=True):
                assert contracts.same_bits(column, whole[start:stop])
    assert monitor.n == 1500
    assert monitor.alarm_at is not None


def test_a_latched_alarm_stays_and_so_does_its_change_point() -> None:
    X, y = changing()
    monitor = Monitor(alarm=Ville(0.01), seed=3)
    assert (monitor.alarm_at, monitor.changepoint) == (None, None)
    path = monitor.extend(X, y)
    first = int(path.alarm.argmax())
    capital = [0.0, *path.log_value[:first].tolist()]
    assert path.alarm[first:].all()
    assert monitor.alarm_at == first + 1
    assert monitor.changepoint == path.changepoint() == capital.index(min(capital))
    assert abs(path.lowest[-1] - 400) < 100  # where the names are first exchanged
    assert monitor.extend(X[:5], y[:5]).changepoint() == path.changepoint()


def test_the_guarantee_is_stated() -> None:
    assert "is ever raised is at most 0.05" in Monitor(alarm=Ville(0.05)).guarantee
    restarting = Monitor(alarm=Ville(0.05), on_alarm="restart")
    assert "expected number of false alarms" in restarting.guarantee
    assert restarting.extend([[0.0]], ["a"]).guarantee == restarting.guarantee
    assert "mean time between false alarms" in Monitor(alarm=Cusum(500), on_alarm="restart").guarantee
    assert Monitor(alarm=Cautious()).guarantee == "This alarm states no guarantee."


def test_labels_may_come_from_an_iterator_when_the_monitor_restarts() -> None:
    X, y = changing()
    whole = Monitor(alarm=Ville(0.05), on_alarm="restart").extend(X, y)
    again = Monitor(alarm=Ville(0.05), on_alarm="restart").extend(X.tolist(), iter(y.tolist()))
    assert contracts.same_bits(again.log_value, whole.log_value)


# ------------------------------------------------------------------ interruptions


class Failing(SimpleMixture):
    """Fails at the fifth p-value."""

    def extend(self, p: Any) -> NDArray[np.float64]:
        gains = super().extend(p)
        if self._state[0][0] >= 5:
            raise KeyError("bet")
        return gains


class Interrupted(NearestNeighbour):
    """The user presses Ctrl-C at the fifth example."""

    def extend(self, X: Any, y: Any = None) -> Any:
        ranks = super().extend(X, y)
        if self.n >= 5:
            raise KeyboardInterrupt
        return ranks


@pytest.mark.parametrize(
    ("monitor", "error"),
    [(lambda: Monitor(bet=Failing()), KeyError), (lambda: Monitor(Interrupted()), KeyboardInterrupt)],
)
def test_an_interrupted_monitor_cannot_be_used_any_more(
    monitor: Callable[[], Monitor], error: type[BaseException]
) -> None:
    X, y = stream(9, 20, 20)
    watching = monitor()
    watching.extend(X[:4], y[:4])
    with pytest.raises(error):
        watching.extend(X[4:6], y[4:6])
    for call in (lambda: watching.update(X[6], y[6]), lambda: watching.extend(X[6:8], y[6:8])):
        with pytest.raises(ValueError, match="interrupted in the middle of an example"):
            call()


class Refusing(NearestNeighbour):
    """Refuses, with an error of its own, before anything has changed."""

    def update(self, x: Any, y: Any = None) -> Any:
        if y == "bad":
            raise LookupError("no such label")
        return super().update(x, y)


def test_after_a_refusal_the_monitor_goes_on() -> None:
    X, y = stream(9, 20, 20)
    monitor, untroubled = Monitor(Refusing(), seed=2), Monitor(seed=2)
    for x, label in zip(X, y, strict=True):
        with pytest.raises(LookupError):
            monitor.update(x, "bad")
        with pytest.raises(ValueError, match="finite"):
            monitor.extend([[1.0, math.nan]], ["a"])
        assert monitor.update(x, label) == untroubled.update(x, label)


# ------------------------------------------------------------------ regressions


def test_one_alarm_for_many_monitors_is_copied_and_a_used_one_refused() -> None:
    # regression: the second monitor's first increment was counted from the end of the first one's stream
    alarm = Cusum(10_000.0)
    for run in range(5):
        x = np.random.default_rng(run).normal(size=3000)
        monitor = Monitor(Value(), SimpleJumper(), alarm, seed=run)
        assert not monitor.extend(x).alarm[:5].any()
    alarm.update(0.5)
    with pytest.raises(ValueError, match=r"^alarm must be fresh, got one that has read 1 values$"):
        Monitor(alarm=alarm)


def test_a_restart_needs_a_fresh_measure() -> None:
    # regression: what a measure had seen before returned at each start, like a frozen calibration set
    measure = Value()
    measure.extend([1.0, 2.0])
    with pytest.raises(ValueError, match=r"^measure must be fresh if the monitor restarts"):
        Monitor(measure, on_alarm="restart")
    assert Monitor(measure).n == 0  # without restarts it may have seen the beginning


@pytest.mark.parametrize("form", [deque, list, tuple, lambda x: 5])
def test_labels_of_any_collection_survive_a_restart(form: Callable[[Any], Any]) -> None:
    # regression: TypeError in mid-batch, and a monitor that was lost
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=300), rng.normal(size=300) + 5.0])
    expected = Monitor(Value(), alarm=Ville(0.05), on_alarm="restart").extend(x)
    monitor = Monitor(Value(), alarm=Ville(0.05), on_alarm="restart")
    assert contracts.same_bits(monitor.extend(x, form(range(600))).log_value, expected.log_value)
    assert expected.alarm.any()
    assert monitor.update(0.1).n == 601


def test_a_score_that_fails_after_a_restart_rejects_the_entire_batch() -> None:
    calls = []

    def moody(X: Any, y: Any) -> Any:
        if len(X) > 8:  # fewer are scored only to compare them with what they are alone
            calls.append(len(X))
        if len(calls) == 3:
            raise ConnectionError("the model is gone")
        return X[:, 0]

    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(300, 1)), rng.normal(size=(300, 1)) + 5.0])
    monitor, untroubled = (Monitor(Frozen(score), on_alarm="restart") for score in (moody, lambda X, y: X[:, 0]))
    for watching in (monitor, untroubled):
        watching.extend(X[:50])
    before = contracts.state(monitor)
    with pytest.raises(ValueError, match="the model is gone"):
        monitor.extend(X[50:])
    assert contracts.state(monitor) == before
    assert contracts.same_bits(monitor.extend(X[50:]).log_value, untroubled.extend(X[50:]).log_value)
    assert monitor.alarm_at is not None


# ------------------------------------------------------------------ precomputed p-values, a start in mid-stream


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_precomputed_p_values_are_bet_on_as_they_are(on_alarm: str) -> None:
    p = 1.0 - np.random.default_rng(3).beta(4.0, 1.0, 400)
    monitor = Monitor(Precomputed(), SimpleMixture(), Ville(0.05), on_alarm=on_alarm)
    path = monitor.extend(p[:250])
    steps = [monitor.update(value) for value in p[250:].tolist()]
    assert contracts.same_bits(np.concatenate([path.p, [step.p for step in steps]]), p)
    assert monitor.n == 400
    assert path.alarm.sum() > 1
    if on_alarm == "latch":
        assert contracts.same_bits(path.log_value, Martingale(SimpleMixture()).extend(p[:250]))
    for bad in (0.0, 1.5, math.nan, "x"):
        assert contracts.refused(lambda bad=bad: monitor.update(bad), monitor).startswith("p must")  # type: ignore[misc]


def test_precomputed_p_values_must_be_fresh_and_are_not_ranked() -> None:
    used = Precomputed()
    used.update(0.5)
    with pytest.raises(ValueError, match="measure must be fresh, got p-values of which 1 "):
        Monitor(used)
    with pytest.raises(ValueError, match="measure must be a measure"):
        PValues(Precomputed())  # type: ignore[arg-type]


def test_a_monitor_that_starts_in_mid_stream_draws_the_thetas_of_its_positions() -> None:
    x = np.zeros(40)  # all tied: theta is all there is
    path = Monitor(Value(), seed=4, start=1000).extend(x)
    expected = from_ranks(Value().extend(x), seed=4, start=1000)
    assert contracts.same_bits(path.p, expected)
    assert path.n.tolist() == list(range(1001, 1041))
    assert path.lowest[0] == 1000


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_the_latest_step_and_the_highest_capital_are_kept(on_alarm: str) -> None:
    x = np.concatenate([np.random.default_rng(8).normal(size=100), np.arange(100.0)])
    one, many = (Monitor(Value(), SimpleMixture(), Ville(0.05), on_alarm=on_alarm) for _ in range(2))
    assert (one.last, one.log_max) == (None, 0.0)
    steps: list[Step] = []
    high = 0.0
    for i, value in enumerate(x.tolist()):
        begins = on_alarm == "restart" and bool(steps) and steps[-1].alarm
        steps.append(one.update(value))
        high = max(0.0 if begins else high, steps[-1].log_value)
        assert (one.last, one.log_max) == (steps[-1], high)
        if i % 7 == 6:
            many.extend(x[i - 6 : i + 1])
            assert (many.last, many.log_max) == (one.last, one.log_max)
    assert sum(step.alarm for step in steps) > 1
