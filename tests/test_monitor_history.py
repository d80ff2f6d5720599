"""The history of a monitor: a thinned copy of its path, whatever the batches were, and the plot of it."""

from __future__ import annotations

import copy
import math
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import contracts
from exchangeable import Monitor, Precomputed, alarms, bets, measures, native, snapshot
from exchangeable.history import History

Floats = NDArray[np.float64]
BUCKETS = native.HISTORY_BUCKETS
LN10 = math.log(10.0)
LENGTHS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 5_000, 100_000]


class Doubling:
    """Doubles the capital if p is at most a half, and loses it otherwise."""

    def log_density(self, p: float) -> float:
        return math.log(2.0) if p <= 0.5 else -math.inf

    def update(self, p: float) -> None:
        pass

    def extend(self, p: Any) -> Floats:
        return np.array([self.log_density(one) for one in np.asarray(p).tolist()])


def transcribed(log_values: Floats, alarm_at: set[int], start: int, restart: bool) -> History:
    """The history by its definition: buckets of equal length, cut from the full path."""
    history, size = History(start), 1
    while size * BUCKETS < len(log_values):
        size *= 2
    rounded = log_values.astype(np.float32).tolist()
    for b, first in enumerate(range(0, len(rounded), size)):
        values = []
        for n, value in enumerate(rounded[first : first + size], start + first + 1):
            values.append(value)
            if n in alarm_at:
                history.marks[b], history.points[b, 2] = True, value
                values += [0.0] * restart
        extremes = sorted([values.index(min(values)), values.index(max(values))])
        history.points[b, :2] = [values[i] for i in extremes]
    return history


def fed(monitor: Monitor, p: Floats, seed: int, largest: int = 700) -> tuple[Floats, set[int]]:
    """Pass p-values in a random mixture of single ones and batches; return the log capitals and the alarms."""
    rng, log_values, raised, i = np.random.default_rng(seed), [], set(), 0
    while i < len(p):
        if rng.random() < 0.3:
            for one in p[i : i + 20].tolist():
                step = monitor.update(one)
                log_values.append(step.log_value)
                raised |= {step.n} if step.alarm else set()
            i += 20
        size = int(rng.integers(0, largest))
        path = monitor.extend(p[i : i + size])
        log_values += path.log_value.tolist()
        raised |= set(path.n[path.alarm].tolist())
        i += size
    return np.array(log_values), raised if monitor.on_alarm == "restart" else {min(raised)} if raised else set()


def same(one: History, other: History) -> bool:
    return bool(contracts.state(one) == contracts.state(other))


@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
@pytest.mark.parametrize("n", LENGTHS)
def test_the_history_is_that_of_the_path_for_any_batches(n: int, on_alarm: str) -> None:
    p = 1.0 - np.random.default_rng(n).random(n)
    p[n // 2 :] **= 1.3
    one_batch = Monitor(Precomputed(), bets.SimpleJumper(), alarms.Ville(0.3), on_alarm=on_alarm, start=7)
    path = one_batch.extend(p)
    raised = set(path.n[path.alarm].tolist()) if on_alarm == "restart" else {one_batch.alarm_at or 0} - {0}
    assert same(one_batch._history, transcribed(path.log_value, raised, 7, on_alarm == "restart"))
    assert bool(raised) == (n >= 255)
    for seed in range(2):
        monitor = Monitor(Precomputed(), bets.SimpleJumper(), alarms.Ville(0.3), on_alarm=on_alarm, start=7)
        log_values, alarm_at = fed(monitor, p, seed)
        assert contracts.same_bits(log_values, path.log_value)
        assert alarm_at == raised
        assert same(monitor._history, one_batch._history)


@pytest.mark.parametrize("n", [40, 300, 3_000])
def test_restarts_and_a_lost_capital(n: int) -> None:
    """An alarm at every fourth example, and from some point on a capital of 0."""
    p = np.where(np.arange(n) < 2 * n // 3, 0.3, 0.9)
    monitor = Monitor(Precomputed(), Doubling(), alarms.Ville(0.1), on_alarm="restart")
    log_values, alarm_at = fed(monitor, p, n, largest=50)
    assert len(alarm_at) == 2 * n // 3 // 4
    assert log_values[-1] == -math.inf
    assert same(monitor._history, transcribed(log_values, alarm_at, 0, restart=True))
    assert (monitor._history.points.min(), monitor._history.points.max()) == (-math.inf, np.float32(math.log(16.0)))


@contracts.settled(60)
@given(
    values=st.lists(st.sampled_from([-math.inf, -2.0, -1.0, -0.0, 0.0, 0.1, 1.0, 2.0, math.inf]), max_size=1_400),
    cuts=st.lists(st.integers(0, 1_400), max_size=5),
    restart=st.booleans(),
    alarm=st.integers(0, 1_400),
)
def test_values_that_tie_and_infinite_ones(values: list[float], cuts: list[int], restart: bool, alarm: int) -> None:
    history, log_values = History(3), np.array(values, np.float64)
    edges = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    for first, stop in pairwise(edges):
        record = np.array([3 + stop, 0, 0, 3 + alarm if 0 < alarm <= stop else -1, 0, 1])
        history.extend(record, log_values[first:stop], restart)
    assert same(history, transcribed(log_values, {3 + alarm} if alarm else set(), 3, restart))


def test_a_saved_monitor_continues_its_history() -> None:
    p = 1.0 - np.random.default_rng(1).random(3_000) ** 1.2
    for cut in (0, 1, 256, 257, 2_000):
        monitor = Monitor(Precomputed(), bets.SimpleJumper(), alarms.Ville(0.3), on_alarm="restart")
        monitor.extend(p[:cut])
        loaded, copied = snapshot.decode(snapshot.encode(monitor)), copy.deepcopy(monitor)
        before = contracts.state(copied)
        monitor.extend(p[cut:])
        loaded.extend(p[cut:])
        assert contracts.state(loaded) == contracts.state(monitor)
        assert contracts.state(copied) == before
        assert snapshot.encode(loaded) == snapshot.encode(monitor)


def test_a_rejected_batch_leaves_the_history() -> None:
    monitor = Monitor(Precomputed(), Doubling(), alarms.Ville(0.1), on_alarm="restart")
    monitor.extend(np.full(10, 0.3))
    assert contracts.refused(lambda: monitor.extend([0.3] * 20 + [2.0]), monitor)
    nearest = Monitor(measures.Value(), bets.Idle())
    assert contracts.refused(lambda: nearest.extend([1.0, math.nan]), nearest)


def test_the_history_is_small() -> None:
    monitor = Monitor(Precomputed(), bets.Idle())
    empty = len(snapshot.encode(monitor))
    monitor.extend(np.full(100_000, 0.5))
    assert len(snapshot.encode(monitor)) < empty + 100
    assert sum(array.nbytes for array in (monitor._history.points, monitor._history.marks)) <= 4_500


# ------------------------------------------------------------------ the plot


def labelled(ax: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in ax.get_lines() if not line.get_label().startswith("_")}


def levels(ax: Any) -> list[float]:
    """The heights of dashed lines."""
    return [float(line.get_ydata()[0]) for line in ax.get_lines() if line.get_linestyle() == "--"]


def changed(n: int, **arguments: Any) -> Monitor:
    """A change after half of the examples."""
    monitor = Monitor(measures.Value(), seed=0, **arguments)
    rng = np.random.default_rng(0)
    monitor.extend(np.concatenate([rng.normal(size=n // 2), rng.normal(2.0, 1.0, n // 2)]))
    return monitor


@pytest.mark.parametrize("n", [200, 2_000])
def test_the_plot_shows_level_alarm_and_change_point(n: int) -> None:
    monitor = changed(n, alarm=alarms.Ville(0.002))
    assert monitor.alarm_at is not None
    ax = monitor.plot()
    lines = labelled(ax)
    assert list(lines) == ["capital", "estimated change point", "alarm"]
    assert levels(ax) == [pytest.approx(math.log10(500.0))]
    x, y = lines["alarm"].get_data()
    assert x.tolist() == [monitor.alarm_at]
    assert math.log10(500.0) <= y[0] < math.log10(500.0) + 1.0
    assert list(lines["estimated change point"].get_xdata()) == [monitor.changepoint] * 2
    assert lines["estimated change point"].get_linestyle() == ":"
    x, y = lines["capital"].get_data()
    assert (x[0], y[0], x[-1]) == (0.0, 0.0, n)
    assert y[-1] == monitor.martingale.log_value / LN10
    assert (np.diff(x) >= 0.0).all()
    assert y.max() == pytest.approx(monitor.log_max / LN10, rel=1e-6)
    assert ax.get_xlabel() == "examples seen"
    assert ax.get_xlim() == (0.0, n)


def test_a_short_plot_is_exact() -> None:
    monitor = Monitor(Precomputed(), bets.Power(0.5), start=100)
    path = monitor.extend(1.0 - np.random.default_rng(2).random(256))
    x, y = labelled(monitor.plot())["capital"].get_data()
    assert x.tolist() == [100.0, *np.repeat(path.n, 2).tolist(), 356.0]
    np.testing.assert_allclose(y, [0.0, *np.repeat(path.log_value / LN10, 2), y[-1]], rtol=1e-7)


@pytest.mark.parametrize("alarm", [alarms.Cusum(50), alarms.ShiryaevRoberts(50)])
def test_other_alarms_have_no_level(alarm: Any) -> None:
    monitor = changed(400, alarm=alarm)
    ax = monitor.plot()
    assert levels(ax) == []
    assert labelled(ax)["alarm"].get_xdata().tolist() == [monitor.alarm_at]


def test_each_restart_is_a_dot_where_the_alarm_was() -> None:
    p = np.full(200, 0.3)
    monitor = Monitor(Precomputed(), Doubling(), alarms.Ville(0.1), on_alarm="restart")
    path = monitor.extend(p)
    x, y = labelled(monitor.plot())["alarms"].get_data()
    assert x.tolist() == path.n[path.alarm].tolist() == list(range(4, 201, 4))
    np.testing.assert_allclose(y, math.log10(16.0), rtol=1e-6)
    drawn = labelled(monitor.plot())["capital"].get_data()
    assert [(a, b) for a, b in zip(*drawn, strict=True) if a == 4.0][-1] == (4.0, 0.0)  # the capital starts again at 1
    monitor.extend(p)
    monitor.extend(p)
    dots = labelled(monitor.plot())["alarms"].get_data()
    assert len(dots[0]) == 150  # 600 examples in buckets of four, each with an alarm
    assert dots[0][-1] == 600.0
    np.testing.assert_allclose(dots[1], math.log10(16.0), rtol=1e-6)


def test_dots_of_alarms_below_the_restart() -> None:
    """With `Cusum` the capital at an alarm may be below 1, and the restart is the highest point of the bucket."""
    monitor = Monitor(Precomputed(), bets.Power(0.5), alarms.Cusum(20), on_alarm="restart")
    path = monitor.extend(np.tile([*[1.0] * 9, 1e-4], 200))
    heights = labelled(monitor.plot())["alarms"].get_ydata()
    assert path.log_value[path.alarm].max() < 0.0
    expected = path.log_value[path.alarm] / LN10
    np.testing.assert_allclose([heights.min(), heights.max()], [expected.min(), expected.max()], rtol=1e-6)


def test_a_lost_capital_is_drawn_at_the_lower_edge() -> None:
    monitor = Monitor(Precomputed(), Doubling())
    monitor.extend([0.3, 0.3, 0.9, *[0.3] * 7])
    ax = monitor.plot()
    y = labelled(ax)["capital"].get_ydata()
    assert np.isfinite(y).all()
    assert y[-1] == ax.get_ylim()[0] < 0.0
    assert ax.get_xlim() == (0.0, 10.0)


def test_a_monitor_without_examples_has_an_empty_plot() -> None:
    ax = Monitor(start=5).plot()
    assert "no examples yet" in [text.get_text() for text in ax.texts]
    assert levels(ax) == [2.0]
    assert ax.get_xlim() == (5.0, 6.0)


def test_given_axes_are_used_and_nothing_changes() -> None:
    from exchangeable import plots

    monitor, ax = changed(100), plots.axes()
    before = contracts.state(monitor)
    assert monitor.plot(ax) is ax
    assert monitor.plot(ax=ax) is ax
    assert contracts.state(monitor) == before


def test_without_matplotlib_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"^matplotlib .* pip install 'exchangeable\[plots\]'$"):
        Monitor().plot()
