"""Alarms against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import settled
from exchangeable import Martingale
from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.bets import SimpleJumper


def test_the_default_is_one_percent() -> None:
    alarm = Ville()
    assert alarm.alpha == 0.01
    assert alarm.threshold == 100.0
    assert math.isclose(alarm.log_threshold, math.log(100.0))


@settled(100)
@given(st.floats(min_value=1e-300, max_value=1.0, exclude_max=True))
def test_the_threshold_is_one_over_alpha(alpha: float) -> None:
    alarm = Ville(alpha)
    assert alarm.threshold == 1.0 / alpha
    assert math.isclose(alarm.log_threshold, math.log(1.0 / alpha), rel_tol=1e-12, abs_tol=1e-15)
    assert alarm.log_threshold > 0.0


@pytest.mark.parametrize("alpha", [0.5, 0.05, 0.01, 1e-6, 1e-300])
def test_it_is_raised_at_the_threshold_and_above(alpha: float) -> None:
    alarm = Ville(alpha)
    level = alarm.log_threshold
    assert alarm.update(level) is True
    assert alarm.update(math.nextafter(level, math.inf)) is True
    assert alarm.update(math.nextafter(level, -math.inf)) is False
    assert alarm.update(0.0) is False
    assert alarm.update(-math.inf) is False
    assert alarm.update(math.inf) is True


def test_it_has_no_memory() -> None:
    alarm = Ville(0.1)
    assert [alarm.update(value) for value in (0.0, 5.0, 1.0, 2.4, -3.0)] == [False, True, False, True, False]


def test_log_value_must_be_a_number() -> None:
    with pytest.raises(ValueError, match=r"^log_value must be a number, got nan$"):
        Ville().update(math.nan)


@pytest.mark.parametrize("millions", [5, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("make", [Cusum, ShiryaevRoberts])
def test_a_change_is_found_after_millions_of_quiet_steps(make: type[Cusum], millions: int) -> None:
    # capital of 10^-4,343,000 after 100 million: its own value underflows, the increments do not
    alarm, quiet = make(1e9), -0.1 * np.arange(1, 10**6 + 1)
    for block in range(millions):
        assert not alarm.extend(quiet - 1e5 * block).any()
    rise = -1e5 * millions + 0.7 * np.arange(1, 201)
    sounds = alarm.extend(rise)
    assert 0 < int(sounds.argmax()) < 120


def test_a_jumper_that_has_lost_everything_still_alarms_by_its_increments() -> None:
    rng = np.random.default_rng(4)
    p = 1.0 - rng.random(200_000)
    p[-500:] **= 4
    log_value = Martingale(SimpleJumper()).extend(p)
    assert log_value[-501] < -300.0
    assert not Ville(0.01).extend(log_value).any()
    for alarm in (Cusum(1e6), ShiryaevRoberts(1e6)):
        sounds = alarm.extend(log_value)
        assert not sounds[:-500].any()
        assert sounds[-500:].any()


@settled(50)
@given(st.lists(st.floats(-3.0, 3.0), max_size=60))
def test_cusum_is_raised_no_earlier_than_shiryaev_roberts(increments: list[float]) -> None:
    log_value = np.cumsum(increments)
    cusum, roberts = Cusum(20.0).extend(log_value), ShiryaevRoberts(20.0).extend(log_value)
    assert (roberts | ~cusum).all()


def test_false_alarms_come_no_sooner_than_promised() -> None:
    rng = np.random.default_rng(5)
    times = []
    for _ in range(400):
        log_value = Martingale(SimpleJumper(0.1)).extend(1.0 - rng.random(4000))
        sounds = ShiryaevRoberts(200.0).extend(log_value)
        times.append(int(sounds.argmax()) + 1 if sounds.any() else 4000)
    assert np.mean(times) > 200.0  # restricted to 4,000, so even more in truth
    within = np.mean([time <= 100 for time in times])
    assert within <= 100.0 / 200.0


def test_every_alarm_states_its_promise() -> None:
    assert Ville(0.05).guarantee.endswith("is ever raised is at most 0.05.")
    assert "0.0526" in Ville(0.05).guarantee_with_restarts  # 0.05 / 0.95
    for alarm in (Cusum(500.0), ShiryaevRoberts(500.0)):
        assert "at least 500 examples" in alarm.guarantee
        assert "mean time between false alarms is at least 500" in alarm.guarantee_with_restarts
