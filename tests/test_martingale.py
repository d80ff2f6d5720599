"""The martingale: sums that do not drift, and bankruptcy that stays."""

from __future__ import annotations

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

import contracts
import naive
from contracts import P_VALUES, settled
from exchangeable import Martingale, native
from exchangeable.bets import Plugin, Power, SimpleMixture, SleepyJumper

MILLION = 10**6


class Scripted:
    """A bet that gains what it is told to, whatever the p-values."""

    def __init__(self, gains: list[float]) -> None:
        self.gains = gains
        self.n = 0

    def log_density(self, p: float) -> float:
        return self.gains[self.n % len(self.gains)]

    def update(self, p: float) -> None:
        self.n += 1

    def extend(self, p: ArrayLike) -> NDArray[np.float64]:
        out = []
        for value in np.asarray(p, dtype=np.float64).tolist():
            out.append(self.log_density(value))
            self.update(value)
        return np.array(out)


def test_it_starts_with_capital_one() -> None:
    martingale = Martingale(Plugin())
    assert martingale.log_value == 0.0
    assert martingale.n == 0
    assert martingale.extend([]).shape == (0,)
    assert martingale.log_value == 0.0


@settled(60)
@given(st.lists(P_VALUES, min_size=1, max_size=50), st.sampled_from([0.01, 0.3, 1.0, 2.5]))
def test_it_is_the_sum_of_what_the_bet_gains(p: list[float], epsilon: float) -> None:
    values = Martingale(Power(epsilon)).extend(p)
    gains = Power(epsilon).extend(p).tolist()
    for n, value in enumerate(values.tolist(), 1):
        exact = float(sum((Fraction(gain) for gain in gains[:n]), Fraction(0)))
        assert math.isclose(value, exact, rel_tol=1e-15, abs_tol=1e-13)


@pytest.mark.parametrize("gain", [0.1, -0.1, 1.0 / 3.0, 1e-17, -7.3e5])
def test_a_million_equal_terms(gain: float) -> None:
    martingale = Martingale(Scripted([gain]))
    value = martingale.extend(np.full(MILLION, 0.5))[-1]
    assert value == math.fsum([gain] * MILLION) == martingale.log_value


def test_a_plain_sum_would_drift() -> None:
    assert abs(np.cumsum(np.full(MILLION, 0.1))[-1] - 1e5) > 1e-7
    assert Martingale(Scripted([0.1])).extend(np.full(MILLION, 0.5))[-1] == 1e5


def test_terms_that_cancel() -> None:
    gains = [1e16, 1.0, -1e16, 1.0, 1e-8, -1e300, 1e300]
    exact = float(sum(map(Fraction, gains[:5])))
    assert Martingale(Scripted(gains[:5])).extend([0.5] * 5)[-1] == exact
    state = np.array([1e16, 0.0])
    assert native.accumulate(state, 1.0, None) == 1e16
    assert state.tolist() == [1e16, 1.0]


def test_the_sum_of_a_million_power_bets() -> None:
    p = 1.0 - np.random.default_rng(0).random(MILLION)
    gains = Power(0.4).extend(p)
    assert math.isclose(Martingale(Power(0.4)).extend(p)[-1], math.fsum(gains), rel_tol=1e-15)
    assert math.isclose(math.fsum(gains[:1000]), math.fsum(naive.power(p[:1000].tolist(), 0.4)), rel_tol=1e-12)


def test_bankruptcy_stays() -> None:
    gains = [0.5, -math.inf, 3.0, 700.0, -math.inf, 1.0]
    expected = [0.5] + [-math.inf] * 5
    whole, pieces = Martingale(Scripted(gains)), Martingale(Scripted(gains))
    assert whole.extend([0.5] * 6).tolist() == expected
    assert [pieces.update(0.5) for _ in range(6)] == expected
    assert whole.log_value == pieces.log_value == -math.inf
    assert whole.n == 6
    assert whole.update(0.5) == -math.inf  # and once more, the script starting again


@pytest.mark.parametrize("make", [Plugin, SimpleMixture, SleepyJumper])
def test_a_copy_goes_its_own_way(make: type[Plugin] | type[SimpleMixture] | type[SleepyJumper]) -> None:
    martingale = Martingale(make())
    martingale.extend([0.1, 0.2, 0.05])
    before, twin = contracts.state(martingale), copy.deepcopy(martingale)
    twin.extend([0.3, 0.9])
    assert contracts.state(martingale) == before
    assert contracts.same_bits(martingale.extend([0.3, 0.9]), Martingale(make()).extend([0.1, 0.2, 0.05, 0.3, 0.9])[3:])


def test_the_last_value_is_log_value() -> None:
    martingale = Martingale(SimpleMixture())
    for p in (0.3, 0.001, 1.0):
        assert martingale.update(p) == martingale.log_value
    assert martingale.extend([0.5, 0.25])[-1] == martingale.log_value
    assert martingale.n == 5
