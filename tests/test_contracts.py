"""Every implementation x every contract."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import contracts
import exchangeable
from contracts import (
    ALARMS,
    BAD_EXAMPLES,
    BAD_P,
    BAD_P_COLUMNS,
    BAD_TABLES,
    BETS,
    CUTS,
    GOOD_X,
    GOOD_Y,
    HISTORIES,
    MEASURES,
    P_VALUES,
    SLY_P,
    SLY_P_COLUMNS,
    MeasureCase,
    check_each,
    settled,
)
from exchangeable import Martingale, Monitor, PValues, alarms, bets, measures
from exchangeable.protocols import Alarm, Bet, Measure, Rank

pytestmark = pytest.mark.quick
each_bet = pytest.mark.parametrize("name", BETS)
each_measure = pytest.mark.parametrize("name", MEASURES)
each_alarm = pytest.mark.parametrize("name", ALARMS)


# ------------------------------------------------------------------ nobody is forgotten


def test_every_exported_implementation_is_under_contract() -> None:
    assert {type(case.make()).__name__ for case in BETS.values()} == set(bets.__all__)
    assert {type(case.make()).__name__ for case in MEASURES.values()} == set(measures.__all__)
    assert {type(case.make()).__name__ for case in ALARMS.values()} == set(alarms.__all__)


def test_they_are_what_the_protocols_say() -> None:
    assert all(isinstance(case.make(), Bet) for case in BETS.values())
    assert all(isinstance(case.make(), Measure) for case in MEASURES.values())
    assert all(isinstance(case.make(), Alarm) for case in ALARMS.values())


# ------------------------------------------------------------------ bets


@each_bet
@settled(40)
@given(history=HISTORIES)
def test_a_bet_integrates_to_one_after_any_history(name: str, history: list[float]) -> None:
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_integrates_to_one(bet, BETS[name], history)


@each_bet
@pytest.mark.parametrize("shape", ["uniform", "small", "two atoms"])
def test_a_bet_integrates_to_one_after_a_long_history(name: str, shape: str) -> None:
    draws = 1.0 - np.random.default_rng(1).random(300)
    history = {"uniform": draws, "small": draws**4, "two atoms": np.where(draws < 0.5, 0.125, 1.0)}[shape]
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_integrates_to_one(bet, BETS[name], history.tolist())


def test_the_integral_contract_can_fail() -> None:
    for factor in (0.95, 1.05, 1.0 + 1e-6):
        density = Tilted(math.log(factor)).log_density
        with pytest.raises(AssertionError):
            contracts.check_integrates_to_one(Tilted(math.log(factor)), BETS["Power(0.5)"], [])
        assert abs(contracts.integral(density, BETS["Power(0.5)"], []) - factor) < 1e-9


class Tilted(bets.Power):
    """A power bet whose density has another integral than one."""

    def __init__(self, log_factor: float) -> None:
        super().__init__(0.5)
        self.log_factor = log_factor

    def log_density(self, p: float) -> float:
        return super().log_density(p) + self.log_factor


@each_bet
@settled(25)
@given(history=HISTORIES, probes=st.lists(P_VALUES, min_size=1, max_size=5))
def test_log_density_is_pure(name: str, history: list[float], probes: list[float]) -> None:
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_log_density_is_pure(bet, probes)


@each_bet
@settled(40)
@given(history=HISTORIES, p=P_VALUES)
def test_log_density_is_the_bet_that_extend_places(name: str, history: list[float], p: float) -> None:
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_log_density_is_the_bet_placed(bet, p)


@each_bet
@settled(40)
@given(history=HISTORIES, p=P_VALUES)
def test_capital_is_a_number_or_bankruptcy(name: str, history: list[float], p: float) -> None:
    bet = BETS[name].make()
    gains = bet.extend([*history, p])
    assert gains.dtype == np.float64
    assert len(gains) == len(history) + 1
    assert not np.isnan(gains).any()
    assert (gains < math.inf).all()


@each_bet
@settled(20)
@given(history=HISTORIES, future=st.lists(P_VALUES, min_size=1, max_size=8))
def test_a_copy_of_a_bet_learns_apart(name: str, history: list[float], future: list[float]) -> None:
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_copies_learn_apart(bet, future)


@each_bet
@settled(10)
@given(history=HISTORIES, future=st.lists(P_VALUES, min_size=1, max_size=8))
def test_a_bet_that_was_saved_continues(name: str, history: list[float], future: list[float]) -> None:
    bet = BETS[name].make()
    bet.extend(history)
    contracts.check_saved_and_loaded_it_continues(bet, lambda bet: bet.extend(future).tobytes())


@each_bet
def test_a_bet_that_was_saved_after_thousands_of_steps_continues(name: str) -> None:
    p = 1.0 - np.random.default_rng(7).random(8000)
    p[3000:] **= 2
    bet = BETS[name].make()
    bet.extend(p[:6000])
    contracts.check_saved_and_loaded_it_continues(bet, lambda bet: bet.extend(p[6000:]).tobytes())


@each_bet
@settled(40)
@given(history=HISTORIES, cuts=CUTS)
def test_a_bet_extends_as_it_updates(name: str, history: list[float], cuts: list[int]) -> None:
    whole, pieces, singly = (BETS[name].make() for _ in range(3))
    expected = whole.extend(history)
    assert contracts.same_bits(contracts.bet_in_pieces(pieces, history, cuts), expected)
    assert contracts.same_bits(contracts.bet_in_pieces(singly, history, [0]), expected)
    assert contracts.state(pieces) == contracts.state(whole) == contracts.state(singly)


@each_bet
def test_a_bet_extends_as_it_updates_over_thousands_of_steps(name: str) -> None:
    p = 1.0 - np.random.default_rng(5).random(6000)
    p[3000:] **= 2
    whole, pieces = BETS[name].make(), BETS[name].make()
    expected = whole.extend(p)
    assert contracts.same_bits(contracts.bet_in_pieces(pieces, p.tolist(), [0, 1, 0, 1000, 0, 3, 0, 37]), expected)
    assert contracts.state(pieces) == contracts.state(whole)


def _named(values: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(repr(value), value) for value in values]


@each_bet
def test_a_bet_refuses_a_bad_p(name: str) -> None:
    check_each(lambda bad: _bet_refuses(name, lambda bet: contracts.check_bet_refuses(bet, bad)), _named(BAD_P))


@each_bet
def test_a_bet_refuses_a_bad_column(name: str) -> None:
    check_each(
        lambda bad: _bet_refuses(name, lambda bet: contracts.check_bet_refuses_column(bet, bad)), _named(BAD_P_COLUMNS)
    )


@pytest.mark.parametrize("bad", SLY_P, ids=["complex128", "10**400"])
def test_a_bet_refuses_a_sly_p(bad: Any) -> None:
    # regression: ComplexWarning and the imaginary part dropped; OverflowError
    _bet_refuses("Plugin", lambda bet: contracts.check_bet_refuses(bet, bad))


@pytest.mark.parametrize("bad", SLY_P_COLUMNS, ids=["complex128", "10**400", "scalar"])
def test_a_bet_refuses_a_sly_column(bad: Any) -> None:
    # regression: the same, and a number passed for a column of one
    _bet_refuses("Plugin", lambda bet: contracts.check_bet_refuses_column(bet, bad))


def _bet_refuses(name: str, check: Callable[[Bet], None]) -> None:
    bet, untroubled = BETS[name].make(), BETS[name].make()
    check(bet)
    for p in (0.5, 0.001, 1.0):
        assert contracts.same_bits(bet.extend([p]), untroubled.extend([p]))
        check(bet)


@each_bet
def test_a_bet_takes_p_from_any_array(name: str) -> None:
    p = np.array([0.5, 0.25, 1.0, 0.125])
    expected = BETS[name].make().extend(p)
    wide = np.repeat(p, 2)
    for form in (
        p.tolist(),
        tuple(p),
        p.astype(np.float32),
        wide[::2],
        p[::-1][::-1],
        np.float64(1) * p,
    ):
        assert contracts.same_bits(BETS[name].make().extend(form), expected)
    assert BETS[name].make().extend([]).shape == (0,)
    assert p.tolist() == [0.5, 0.25, 1.0, 0.125]


# ------------------------------------------------------------------ measures


@each_measure
@settled(150)
@given(data=st.data(), examples=contracts.grid_examples(min_size=2), singly=st.booleans())
def test_the_order_of_earlier_examples_does_not_matter(
    name: str, data: st.DataObject, examples: list[tuple[list[float], str]], singly: bool
) -> None:
    order = data.draw(st.permutations(range(len(examples) - 1)))
    contracts.check_order_does_not_matter(MEASURES[name], examples, order, singly)


@each_measure
def test_the_order_does_not_matter_in_a_long_stream(name: str) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.integers(0, 6, (300, 2)).astype(float), rng.integers(0, 3, 300)
    examples = list(zip(X.tolist(), y.tolist(), strict=True))
    for _ in range(5):
        contracts.check_order_does_not_matter(MEASURES[name], examples, rng.permutation(299).tolist(), False)


def test_the_order_contract_can_fail() -> None:
    class Oldest(measures.NearestNeighbour):
        """Forgets to score the first example again."""

        def update(self, x: Any, y: Any = None) -> Any:
            rank = super().update(x, y)
            return rank._replace(greater=rank.greater + int(self.n > 1 and self._store.X[0, 0] > 0))

    examples = [([0.0], "a"), ([1.0], "b"), ([2.0], "a")]
    contracts.check_order_does_not_matter(MEASURES["NearestNeighbour"], examples, [1, 0], True)
    with pytest.raises(AssertionError):
        contracts.check_order_does_not_matter(MeasureCase(Oldest), examples, [1, 0], True)


@each_measure
@settled(100)
@given(examples=contracts.grid_examples(max_size=30), cuts=CUTS)
def test_a_measure_extends_as_it_updates(name: str, examples: list[tuple[list[float], str]], cuts: list[int]) -> None:
    X, y = [x for x, _ in examples], [label for _, label in examples]
    case = MEASURES[name]
    expected = case.ranks(case.make(), X, y)
    assert case.ranks(case.make(), X, y, cuts) == expected
    assert case.ranks(case.make(), X, y, [0]) == expected


@each_measure
@settled(30)
@given(seed=st.integers(0, 1000), cuts=CUTS)
def test_a_measure_extends_as_it_updates_on_continuous_data(name: str, seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 3)).tolist(), rng.integers(0, 3, 40).tolist()
    case = MEASURES[name]
    assert case.ranks(case.make(), X, y, cuts) == case.ranks(case.make(), X, y)


@each_measure
def test_a_rank_lies_among_all(name: str) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.integers(0, 4, (200, 2)), rng.integers(0, 2, 200).tolist()
    ranks = MEASURES[name].make().extend(*MEASURES[name].takes(X, y))
    assert ranks.n.tolist() == MEASURES[name].n(y)
    assert (ranks.equal >= 1).all()
    assert (ranks.greater >= 0).all()
    assert (ranks.greater + ranks.equal <= ranks.n).all()
    assert {column.dtype for column in ranks} == {np.dtype(np.int64)}


@each_measure
def test_a_single_rank_is_of_plain_numbers(name: str) -> None:
    X, y = MEASURES[name].takes(GOOD_X, GOOD_Y)
    rank = MEASURES[name].make().update(X[0], None if y is None else y[0])
    assert isinstance(rank, Rank)
    assert [type(part) for part in rank] == [int, int, int]
    assert rank == Rank(0, 1, 1)


@each_measure
def test_a_measure_leaves_its_arguments_alone(name: str) -> None:
    rng = np.random.default_rng(4)
    contracts.check_inputs_stay_the_callers(
        MEASURES[name], rng.normal(size=(30, 2)), rng.integers(0, 2, 30).tolist(), rng.normal(size=(30, 2))
    )


@each_measure
def test_a_copy_of_a_measure_learns_apart(name: str) -> None:
    rng = np.random.default_rng(5)
    contracts.check_copies_of_a_measure_learn_apart(
        MEASURES[name], rng.normal(size=(30, 2)), rng.integers(0, 2, 30).tolist(), rng.normal(size=(30, 2))
    )


@each_measure
@settled(15)
@given(examples=contracts.grid_examples(max_size=30, min_size=0), cuts=CUTS)
def test_a_measure_that_was_saved_continues(
    name: str, examples: list[tuple[list[float], str]], cuts: list[int]
) -> None:
    X, y = [x for x, _ in examples], [label for _, label in examples]
    case, half = MEASURES[name], len(X) // 2
    measure = case.make()
    if half:
        case.ranks(measure, X[:half], y[:half], cuts)
    contracts.check_saved_and_loaded_it_continues(
        measure, lambda measure: case.ranks(measure, X[half:], y[half:], cuts) if X[half:] else None
    )


@each_measure
def test_a_measure_that_was_saved_after_many_examples_continues(name: str) -> None:
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(900, 3)), rng.integers(0, 3, 900).tolist()
    case = MEASURES[name]
    measure = case.make()
    case.ranks(measure, X[:600], y[:600])
    contracts.check_saved_and_loaded_it_continues(measure, lambda measure: case.ranks(measure, X[600:], y[600:]))


@pytest.mark.parametrize("name", [name for name, case in MEASURES.items() if case.takes([[0.0]], ["a"])[1] is None])
def test_labels_play_no_part_where_they_may_be_left_out(name: str) -> None:
    rng = np.random.default_rng(6)
    X, _ = MEASURES[name].takes(rng.normal(size=(40, 2)), [0] * 40)
    with_labels, without = MEASURES[name].make(), MEASURES[name].make()
    for got, expected in zip(with_labels.extend(X, list("ab" * 20)), without.extend(X), strict=True):
        assert got.tolist() == expected.tolist()
    assert with_labels.update(X[0], ["no label"]) == without.update(X[0])


each_refusing = pytest.mark.parametrize("name", [name for name, case in MEASURES.items() if case.bad_tables])


def _fresh(bad: contracts.Bad) -> list[tuple[str, tuple[Any, Any, str]]]:
    return [item for item in bad.items() if item[0] not in contracts.GOOD_FRESH]


@each_refusing
def test_a_measure_refuses_a_bad_table(name: str) -> None:
    case = MEASURES[name]

    def check(bad: tuple[Any, Any, str]) -> None:
        X, y, argument = bad
        measure, untroubled = case.make(), case.make()
        for _ in range(3):
            assert case.ranks(measure, GOOD_X, GOOD_Y) == case.ranks(untroubled, GOOD_X, GOOD_Y)
            assert contracts.refused(lambda: measure.extend(X, y), measure).startswith(f"{argument} must")
        assert case.ranks(measure, [[1.0, 1.0]], ["c"], [0]) == case.ranks(untroubled, [[1.0, 1.0]], ["c"], [0])

    check_each(check, case.bad_tables.items())


@each_refusing
def test_a_measure_refuses_a_bad_example(name: str) -> None:
    case = MEASURES[name]

    def check(bad: tuple[Any, Any, str]) -> None:
        x, y, argument = bad
        measure, untroubled = case.make(), case.make()
        for good_x, good_y in zip(GOOD_X, GOOD_Y, strict=True):
            assert case.ranks(measure, [good_x], [good_y], [0]) == case.ranks(untroubled, [good_x], [good_y], [0])
            assert contracts.refused(lambda: measure.update(x, y), measure).startswith(f"{argument} must")
        assert case.ranks(measure, GOOD_X, GOOD_Y) == case.ranks(untroubled, GOOD_X, GOOD_Y)

    check_each(check, case.bad_examples.items())


@each_refusing
def test_a_fresh_measure_refuses_a_bad_table(name: str) -> None:
    case = MEASURES[name]

    def check(bad: tuple[Any, Any, str]) -> None:
        X, y, argument = bad
        measure = case.make()
        assert contracts.refused(lambda: measure.extend(X, y), measure).startswith(f"{argument} must")
        assert case.ranks(measure, [[1.0]], ["a"]) == [(0, 1, 1)]  # not even the width was learnt

    check_each(check, _fresh(case.bad_tables))


@each_refusing
def test_a_fresh_measure_refuses_a_bad_example(name: str) -> None:
    case = MEASURES[name]

    def check(bad: tuple[Any, Any, str]) -> None:
        x, y, argument = bad
        measure = case.make()
        assert contracts.refused(lambda: measure.update(x, y), measure).startswith(f"{argument} must")
        assert case.ranks(measure, [[1.0]], ["a"]) == [(0, 1, 1)]

    check_each(check, _fresh(case.bad_examples))


@each_measure
def test_no_examples_give_no_ranks(name: str) -> None:
    case = MEASURES[name]
    measure, untroubled = case.make(), case.make()
    for _ in range(2):
        assert case.ranks(measure, GOOD_X, GOOD_Y) == case.ranks(untroubled, GOOD_X, GOOD_Y)
        assert [column.tolist() for column in measure.extend(*case.takes(np.empty((0, 2)), []))] == [[], [], []]
    assert case.ranks(measure, [[1.0, 1.0]], ["c"], [0]) == case.ranks(untroubled, [[1.0, 1.0]], ["c"], [0])


@each_measure
def test_no_examples_give_no_ranks_at_the_start(name: str) -> None:
    # regression: a broadcasting error
    case = MEASURES[name]
    measure = case.make()
    ranks = measure.extend(*case.takes(np.empty((0, 2)), []))
    assert [column.tolist() for column in ranks] == [[], [], []]
    assert {column.dtype for column in ranks} == {np.dtype(np.int64)}
    assert [n for _, _, n in case.ranks(measure, GOOD_X, GOOD_Y)] == case.n(GOOD_Y)


# ------------------------------------------------------------------ the line: PValues, Martingale, Monitor


def _examples(seed: int, n: int) -> tuple[list[list[float]], list[int]]:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 9, (n, 2)) / 4 + np.arange(n)[:, None]).tolist(), rng.integers(0, 2, n).tolist()


@settled(30)
@given(seed=st.integers(0, 2**64 - 1), cuts=CUTS)
def test_p_values_extend_as_they_update(seed: int, cuts: list[int]) -> None:
    X, y = _examples(seed, 60)
    expected = PValues(measures.NearestNeighbour(), seed=seed).extend(X, y)
    pvalues = PValues(measures.NearestNeighbour(), seed=seed)
    got: list[float] = []
    for start, stop, single in contracts.in_pieces(60, cuts):
        got += [pvalues.update(X[start], y[start])] if single else pvalues.extend(X[start:stop], y[start:stop]).tolist()
    assert contracts.same_bits(got, expected)
    assert pvalues.n == 60


@each_bet
@settled(30)
@given(history=HISTORIES, cuts=CUTS)
def test_a_martingale_extends_as_it_updates(name: str, history: list[float], cuts: list[int]) -> None:
    whole, pieces = Martingale(BETS[name].make()), Martingale(BETS[name].make())
    expected = whole.extend(history)
    got: list[float] = []
    for start, stop, single in contracts.in_pieces(len(history), cuts):
        got += [pieces.update(history[start])] if single else pieces.extend(history[start:stop]).tolist()
        assert pieces.log_value == got[-1]
    assert contracts.same_bits(got, expected)
    assert contracts.state(pieces) == contracts.state(whole)
    assert pieces.n == len(history)


@each_bet
@settled(15)
@given(seed=st.integers(0, 10**6), cuts=CUTS)
def test_a_monitor_extends_as_it_updates(name: str, seed: int, cuts: list[int]) -> None:
    X, y = _examples(seed, 60)
    expected = Monitor(bet=BETS[name].make(), alarm=alarms.Ville(0.5), seed=seed).extend(X, y)
    monitor = Monitor(bet=BETS[name].make(), alarm=alarms.Ville(0.5), seed=seed)
    steps: list[tuple[int, float, float, bool]] = []
    for start, stop, single in contracts.in_pieces(60, cuts):
        if single:
            steps.append(monitor.update(X[start], y[start]))
        else:
            path = monitor.extend(X[start:stop], y[start:stop])
            steps += list(
                zip(*(column.tolist() for column in (path.n, path.p, path.log_value, path.alarm)), strict=True)
            )
    for column, got in zip(expected[:4], zip(*steps, strict=True), strict=True):
        assert contracts.same_bits(got, column)


def test_the_line_refuses_a_bad_table() -> None:
    def check(bad: tuple[Any, Any, str]) -> None:
        X, y, argument = bad
        monitor, untroubled = Monitor(seed=3), Monitor(seed=3)
        monitor.extend(GOOD_X, GOOD_Y)
        untroubled.extend(GOOD_X, GOOD_Y)
        assert contracts.refused(lambda: monitor.extend(X, y), monitor).startswith(f"{argument} must")
        assert contracts.refused(lambda: monitor.pvalues.extend(X, y), monitor).startswith(f"{argument} must")
        assert monitor.update([1.0, 1.0], "c") == untroubled.update([1.0, 1.0], "c")

    check_each(check, BAD_TABLES.items())


def test_the_line_refuses_a_bad_example() -> None:
    def check(bad: tuple[Any, Any, str]) -> None:
        x, y, argument = bad
        monitor, untroubled = Monitor(seed=3), Monitor(seed=3)
        monitor.update(GOOD_X[0], GOOD_Y[0])
        untroubled.update(GOOD_X[0], GOOD_Y[0])
        assert contracts.refused(lambda: monitor.update(x, y), monitor).startswith(f"{argument} must")
        assert contracts.refused(lambda: monitor.pvalues.update(x, y), monitor).startswith(f"{argument} must")
        assert monitor.update(GOOD_X[1], GOOD_Y[1]) == untroubled.update(GOOD_X[1], GOOD_Y[1])

    check_each(check, BAD_EXAMPLES.items())


def test_a_martingale_refuses_a_bad_p() -> None:
    def check(bad: Any) -> None:
        martingale = Martingale(bets.Plugin())
        martingale.extend([0.5, 0.25])
        assert contracts.refused(lambda: martingale.update(bad), martingale).startswith("p must")
        assert martingale.n == 2

    check_each(check, _named(BAD_P))


def test_a_martingale_refuses_a_bad_column() -> None:
    def check(bad: Any) -> None:
        martingale = Martingale(bets.SleepyJumper())
        martingale.extend([0.5, 0.25])
        assert contracts.refused(lambda: martingale.extend(bad), martingale).startswith("p must")
        assert martingale.n == 2

    check_each(check, _named(BAD_P_COLUMNS))


# ------------------------------------------------------------------ alarms

LOG_VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.floats(-2.0, 12.0), st.sampled_from([0.0, math.log(2.0), -700.0])), max_size=40
)


@each_alarm
@settled(60)
@given(values=LOG_VALUES)
def test_an_alarm_is_its_definition(name: str, values: list[float]) -> None:
    contracts.check_alarm_is_its_definition(ALARMS[name], values)


@each_alarm
@settled(40)
@given(values=LOG_VALUES, cuts=CUTS, end=st.sampled_from([0.0, math.inf, -math.inf]))
def test_an_alarm_extends_as_it_updates(name: str, values: list[float], cuts: list[int], end: float) -> None:
    values = [*values, end, end]
    whole, pieces, singly = (ALARMS[name].make() for _ in range(3))
    expected = whole.extend(values)  # type: ignore[attr-defined]
    assert expected.dtype == np.bool_
    got: list[bool] = []
    for start, stop, single in contracts.in_pieces(len(values), cuts):
        batch = [pieces.update(values[start])] if single else pieces.extend(values[start:stop]).tolist()  # type: ignore[attr-defined]
        got.extend(batch)
    assert got == expected.tolist() == [singly.update(value) for value in values]
    assert contracts.state(pieces) == contracts.state(whole) == contracts.state(singly)


@each_alarm
@settled(15)
@given(values=LOG_VALUES, end=st.sampled_from([0.0, math.inf, -math.inf]))
def test_an_alarm_that_was_saved_continues(name: str, values: list[float], end: float) -> None:
    alarm = ALARMS[name].make()
    alarm.extend(values)  # type: ignore[attr-defined]
    contracts.check_saved_and_loaded_it_continues(alarm, lambda alarm: alarm.extend([*values, end, 1.0]).tolist())


@each_alarm
def test_the_bankrupt_never_sound_and_the_infinitely_rich_always(name: str) -> None:
    bankrupt, rich = ALARMS[name].make(), ALARMS[name].make()
    assert [bankrupt.update(value) for value in (0.1, -math.inf, -math.inf)] == [False, False, False]
    assert [rich.update(value) for value in (0.1, math.inf, math.inf)] == [False, True, True]


@each_alarm
def test_an_alarm_refuses_what_is_no_number(name: str) -> None:
    def check(bad: Any) -> None:
        alarm = ALARMS[name].make()
        alarm.update(0.1)
        assert contracts.refused(lambda: alarm.update(bad), alarm).startswith("log_value must")
        assert contracts.refused(lambda: alarm.extend([0.2, bad]), alarm).startswith("log_values must")  # type: ignore[attr-defined]
        assert alarm.update(math.inf) is True

    check_each(check, _named([math.nan, np.float64("nan"), None, "a", "1", 1j, [1.0]]))


# ------------------------------------------------------------------ constructors

NOT_POSITIVE: list[Any] = [0, 0.0, -1, -0.5, math.nan, math.inf, -math.inf, "a", None, [0.5], 1j, True]
OUTSIDE: list[Any] = [*NOT_POSITIVE, 1.0000001, 2, -1e-310, -5e-324]
WRONG: list[tuple[Callable[[Any], object], str, list[Any]]] = [
    (bets.Power, "epsilon", [*NOT_POSITIVE, 1e308]),
    (lambda value: bets.SleepyJumper(waking=value), "waking", OUTSIDE),
    (
        lambda value: bets.SleepyJumper(jumping=value),
        "jumping",
        [value for value in OUTSIDE if value not in (0, False)],
    ),
    (lambda value: bets.SleepyJumper(grid=value), "grid", [0, -1, 1.5, 100.0, math.nan, "a", None, True, [3]]),
    (lambda value: bets.SleeperStayer(waking=value), "waking", [*OUTSIDE, 1, 1.0, 1e-101]),
    (lambda value: bets.SleeperStayer(grid=value), "grid", [0, 1, 2.0, 1001, None, "a", True]),
    (lambda value: bets.SleeperDrifter(waking=value), "waking", [*OUTSIDE, 1, 1.0, 1e-101]),
    (lambda value: bets.SleeperDrifter(every=value), "every", [0, -1, 1.5, 100.0, 2**53 + 1, None, "a", True]),
    (lambda value: bets.SleeperDrifter(grid=value), "grid", [0, 1, 2.0, 1001, None, "a", True]),
    (alarms.Ville, "alpha", [*OUTSIDE, 1, 1.0, 1e-320]),
    (alarms.Cusum, "period", [*NOT_POSITIVE, 1, 1.0, 1e301]),
    (alarms.ShiryaevRoberts, "period", [*NOT_POSITIVE, 1, 0.5]),
    (bets.Beta, "switching", [*OUTSIDE, 1e-101]),
    (lambda value: bets.Beta(size=value), "size", [0, 1, 2.0, 201, None, "a", True]),
    (lambda value: bets.Beta(reach=value), "reach", [*NOT_POSITIVE, 3.0]),
    (lambda value: Monitor(on_alarm=value), "on_alarm", ["", "stop", None, True, 3]),
    (
        lambda value: PValues(measures.NearestNeighbour(), seed=value),
        "seed",
        [-1, 1.5, 2**64, "a", True, math.nan],
    ),
    (lambda value: Monitor(seed=value), "seed", [-1, 1.5, 2**64, "a", True, math.nan]),
    (PValues, "measure", ["x", None, 3, alarms.Ville(), measures.NearestNeighbour]),
    (Martingale, "bet", ["x", None, 3, measures.NearestNeighbour(), bets.Plugin]),
    (Monitor, "measure", ["x", 3]),
    (lambda value: Monitor(bet=value), "bet", ["x", 3, alarms.Ville()]),
    (
        lambda value: Monitor(alarm=value),
        "alarm",
        ["x", 3, alarms.Ville, bets.Idle(), bets.Adaptive(), measures.Value(), measures.NearestNeighbour()],
    ),
    (lambda value: bets.Switching([bets.Idle()], value), "share", [*OUTSIDE, 1e-200]),
    (measures.Conditional, "measure", ["x", 3, measures.NearestNeighbour, measures.NearestResidual(), alarms.Cusum()]),
]


def test_a_constructor_names_the_argument() -> None:
    def check(wrong: tuple[Callable[[Any], object], str, Any]) -> None:
        make, argument, value = wrong
        with pytest.raises(ValueError, match=rf"^{argument} must"):
            make(value)

    check_each(check, [(f"{name}={value!r}", (make, name, value)) for make, name, values in WRONG for value in values])


def test_check_each_reports_every_failure() -> None:
    with pytest.raises(BaseExceptionGroup) as failures:
        check_each(lambda value: pytest.fail("no") if value == 1 else 1 / value, [("a", 0), ("b", 1), ("c", 2)])
    assert [failure.__notes__ for failure in failures.value.exceptions] == [["case: a"], ["case: b"]]


def test_constructors_store_arguments_under_their_names() -> None:
    assert bets.Power(np.float64(0.25)).epsilon == 0.25
    jumper = bets.SleepyJumper(waking=1, jumping=0, grid=7)
    assert (jumper.waking, jumper.jumping, jumper.grid) == (1.0, 0.0, 7)
    assert alarms.Ville(0.05).alpha == 0.05
    assert PValues(measures.NearestNeighbour(), seed=2**64 - 1).seed == 2**64 - 1
    measure, bet, alarm = measures.NearestNeighbour(), bets.Plugin(), alarms.Ville()
    monitor = Monitor(measure, bet, alarm, seed=9)
    assert (monitor.measure, monitor.martingale.bet, monitor.seed) == (measure, bet, 9)
    assert monitor.alarm is not alarm  # a copy, so that no two monitors speak to one alarm


# ------------------------------------------------------------------ the package


@pytest.mark.parametrize("module", [exchangeable, bets, measures], ids=lambda module: module.__name__)
def test_exported_members_exist_and_are_sorted(module: Any) -> None:
    assert module.__all__ == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_exported_members_are_documented() -> None:
    for module in (exchangeable, bets, measures):
        for name in module.__all__:
            assert getattr(module, name).__doc__, name


def test_unknown_members_are_missing() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = exchangeable.nothing


def test_importing_is_light() -> None:
    code = "import sys, exchangeable; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "exchangeable.monitor" in loaded
    assert {"matplotlib", "pyarrow", "sklearn", "typer", "rich", "pandas", "scipy"}.isdisjoint(loaded)
