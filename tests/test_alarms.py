"""Alarms against their definitions."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import settled
from exchangeable.alarms import Ville


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
def test_it_sounds_at_the_threshold_and_above(alpha: float) -> None:
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
