"""The pictures: what stands on the axes."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from exchangeable import bets, plots


def test_growth_starts_at_one_and_draws_the_thresholds() -> None:
    log_value = np.array([1.0, -2.0, 500.0])
    ax = plots.growth({"some stream": log_value}, title="T")
    first, *others = ax.get_lines()
    np.testing.assert_allclose(np.asarray(first.get_ydata()), [0.0, *(log_value / math.log(10.0))])
    levels = {round(float(np.asarray(line.get_ydata())[0]), 6) for line in others}
    assert {round(math.log10(20.0), 6), 2.0} <= levels
    assert ax.get_title() == "T"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["some stream"]  # type: ignore[union-attr]


def test_growth_of_values_beyond_floating_point() -> None:
    """Capital of 10^4000 is drawn: the axis is in powers of ten."""
    ax = plots.growth({"huge": np.linspace(0.0, 4000.0 * math.log(10.0), 50)})
    ax.figure.canvas.draw()
    assert any("4000" in tick.get_text() for tick in ax.get_yticklabels())


def test_many_streams_get_lines() -> None:
    assert len(plots.growth({str(k): [0.0] for k in range(20)}).get_lines()) == 20 + 3


def test_times_on_the_axis() -> None:
    from matplotlib.dates import num2date

    times = np.datetime64("2024-02-28") + np.arange(4)
    ax = plots.growth({"a": [1.0, 2.0, 3.0, 4.0], "b": [1.0]}, times=times, changepoints=[2], thresholds=())
    days = [[f"{date:%m-%d}" for date in num2date(line.get_xdata())] for line in ax.get_lines()[:3]]  # type: ignore[no-untyped-call]
    assert days == [["02-28", "02-28", "02-29", "03-01", "03-02"], ["02-28", "02-28"], ["02-29", "02-29"]]
    ax.figure.canvas.draw()
    assert any("Mar" in tick.get_text() for tick in ax.get_xticklabels())
    late = plots.growth({"a": [1.0, 2.0]}, times=times, start=2).get_lines()[0]
    assert np.asarray(late.get_xdata()).tolist() == plots.positions(times)[2:].tolist()


def test_long_paths_are_thinned_without_losing_extremes() -> None:
    log_value = np.zeros(1_000_000)
    log_value[[123_456, 654_321]] = 7.0, -9.0
    x, y = (np.asarray(values) for values in plots.growth({"a": log_value}).get_lines()[0].get_data())
    assert len(x) < 25_000
    assert (x[y.argmax()], x[y.argmin()], x[-1]) == (123_457.0, 654_322.0, 1_000_000.0)


def test_betting_draws_the_function() -> None:
    ax = plots.betting({"p": bets.Power(0.5)}, p=[0.1, 0.9])
    x, y = ax.get_lines()[0].get_data()
    np.testing.assert_allclose(np.asarray(y), 0.5 * np.asarray(x) ** -0.5)
    assert len(ax.patches) == 40


def test_given_axes_are_used() -> None:
    ax = plots.axes()
    assert plots.growth({"a": [0.0]}, ax=ax) is ax
    assert plots.betting({"b": bets.Power(0.5)}, ax=ax) is ax


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"exchangeable\[plots\]"):
        plots.axes()
