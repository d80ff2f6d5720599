"""The monitor is its pieces composed, and nothing else."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from numpy.typing import NDArray

import contracts
import naive
from exchangeable import Martingale, Monitor, PValues, Step, thetas
from exchangeable.alarms import Ville
from exchangeable.bets import Plugin, Power, SimpleMixture, SleepyJumper
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Bet


def stream(seed: int, n: int, change: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Two classes that exchange their names."""
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    return rng.normal(size=(n, 2)) + 2.0 * side[:, None], np.where(np.arange(n) < change, side, 1 - side)


@pytest.mark.parametrize("bet", [Plugin, SimpleMixture, SleepyJumper, lambda: Power(0.5)])
def test_a_monitor_is_its_pieces(bet: type[Bet]) -> None:
    X, y = stream(1, 200, 100)
    path = Monitor(bet=bet(), alarm=Ville(0.2), seed=5).extend(X, y)
    p = PValues(NearestNeighbour(), seed=5).extend(X, y)
    log_value = Martingale(bet()).extend(p)
    assert path.n.tolist() == list(range(1, 201))
    assert contracts.same_bits(path.p, p)
    assert contracts.same_bits(path.log_value, log_value)
    assert path.alarm.tolist() == naive.ville(log_value.tolist(), 0.2)
    assert path.alarm.dtype == np.bool_


def test_the_whole_line_against_the_paper() -> None:
    X, y = stream(2, 150, 75)
    path = Monitor(seed=3).extend(X, y)
    p = naive.p_values(naive.ranks(X, y), thetas(3, 0, 150))
    log_value = np.cumsum(naive.plugin(p))
    assert contracts.same_bits(path.p, p)
    assert np.abs(path.log_value - log_value).max() < 1e-10
    assert path.alarm.tolist() == naive.ville(path.log_value.tolist(), 0.01)


def test_the_defaults_are_the_papers() -> None:
    monitor = Monitor()
    assert isinstance(monitor.pvalues.measure, NearestNeighbour)
    assert isinstance(monitor.martingale.bet, Plugin)
    assert isinstance(monitor.alarm, Ville)
    assert (monitor.alarm.alpha, monitor.seed) == (0.01, 0)


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
    assert [column.tolist() for column in monitor.extend(np.empty((0, 2)), [])] == [[], [], [], []]
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
    """An alarm with a memory: sounds at the third value in a row above zero."""

    def __init__(self) -> None:
        self.row = 0

    def update(self, log_value: float) -> bool:
        self.row = self.row + 1 if log_value > 0.0 else 0
        return self.row >= 3


def test_any_alarm_reads_each_value_once_and_in_order() -> None:
    X, y = stream(7, 300, 100)
    path = Monitor(alarm=Cautious(), bet=SimpleMixture(), seed=4).extend(X, y)
    judge = Cautious()
    assert path.alarm.tolist() == [judge.update(value) for value in path.log_value.tolist()]
    monitor = Monitor(alarm=Cautious(), bet=SimpleMixture(), seed=4)
    assert [monitor.update(x, label).alarm for x, label in zip(X, y, strict=True)] == path.alarm.tolist()


def test_bankruptcy_never_sounds_the_alarm() -> None:
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
