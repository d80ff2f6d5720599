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
