"""`Risk`: its numbers against a plain transcription, its guarantees, and everything it refuses."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import naive_risk
from entry_points import plays_against
from exchangeable import RateMonitor, Risk, TableMonitor, fleet, snapshot
from exchangeable.evidence import EvidenceStep
from exchangeable.history import History
from exchangeable.risk import RiskPath


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng([20, *seed])


def errors(*parts: tuple[float, int], seed: int = 0) -> NDArray[np.bool_]:
    draw = rng(seed)
    return np.concatenate([draw.random(n) < rate for rate, n in parts])


# ------------------------------------------------------------------ numbers


@pytest.mark.quick
@pytest.mark.parametrize("limit", [0.001, 0.1, 0.5, 0.98])
@pytest.mark.parametrize("kind", ["errors", "uniform", "zeros", "ones"])
def test_numbers_are_those_of_the_plain_transcription(kind: str, limit: float) -> None:
    draw = rng(1)
    x = {
        "errors": (draw.random(70) < limit).astype(float),
        "uniform": draw.random(70),
        "zeros": np.zeros(50),
        "ones": np.ones(50),
    }[kind]
    path = Risk(limit, alpha=0.05).extend(x)
    evidence, statistic = naive_risk.paths(x.tolist(), limit)
    np.testing.assert_allclose(path.log_value, evidence, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(path.statistic, statistic, rtol=1e-11, atol=1e-11)
    for n in (1, 2, 7, len(x)):
        reach, mean = naive_risk.radius(x[:n].tolist(), 0.05), x[:n].mean()
        assert path.mean[n - 1] == pytest.approx(mean, abs=1e-14)
        assert path.low[n - 1] == pytest.approx(max(mean - reach, 0.0), abs=1e-6)
        assert path.high[n - 1] == pytest.approx(min(mean + reach, 1.0), abs=1e-6)


def test_the_interval_is_the_root_also_after_many_losses() -> None:
    x = rng(2).random(3_000) * 0.3
    risk = Risk(0.5)
    risk.extend(x)
    reach = naive_risk.radius(x.tolist(), 0.01)
    assert risk.interval.high - risk.mean == pytest.approx(reach, rel=1e-3)
    assert risk.interval.high - risk.mean >= reach * (1.0 - 1e-9)  # never narrower than what was proved


@pytest.mark.quick
def test_one_by_one_and_in_any_batches() -> None:
    for on_alarm, period in itertools.product(("latch", "restart"), (None, 300.0)):
        draw = rng(3)
        x = np.concatenate([draw.random(800) ** 3, draw.random(400)] * 2) * 3.0 - 1.0
        whole, single, split = (Risk(0.0, bounds=(-1.0, 2.0), on_alarm=on_alarm, period=period) for _ in range(3))
        path = whole.extend(x)
        steps, intervals = [], []
        for loss in x.tolist():
            steps.append(single.update(loss))
            intervals.append((single.mean, *single.interval))
        assert steps == [EvidenceStep(*(c.item() for c in row)) for row in zip(*path[:4], strict=True)]
        assert intervals == list(zip(*(column.tolist() for column in (path.mean, path.low, path.high)), strict=True))
        assert path.alarm.any()
        cuts = [0, *sorted(draw.integers(0, len(x), 7).tolist()), len(x)]
        parts = [split.extend(x[a:b]) for a, b in itertools.pairwise(cuts)]
        for name in RiskPath._fields[:9]:
            assert np.concatenate([getattr(part, name) for part in parts]).tolist() == getattr(path, name).tolist()
        for other in (single, split):
            assert snapshot.encode(other) == snapshot.encode(whole)
        assert (whole.test > 2) == (on_alarm == "restart")


def test_bounds_only_scale_the_losses() -> None:
    x = rng(4).integers(0, 65, 400) / 64.0  # exact under this scaling
    unit, scaled = Risk(0.25), Risk(-6.0, bounds=(-8.0, 0.0))
    one, other = unit.extend(x), scaled.extend(8.0 * x - 8.0)
    assert one.log_value.tolist() == other.log_value.tolist()
    np.testing.assert_allclose(other.high, 8.0 * one.high - 8.0, rtol=1e-14)
    assert scaled.mean == pytest.approx(8.0 * unit.mean - 8.0)


def test_nothing_overflows_and_small_limits_work() -> None:
    x = np.concatenate([np.zeros(5_000), np.ones(3_000), np.zeros(200_000), np.ones(50)])
    for limit in (1e-9, 1e-4, 0.1, 0.9, 1.0 - 1e-9):
        path = Risk(limit).extend(x)
        assert np.isfinite(path.log_value).all()
        assert np.isfinite(path.statistic).all()
        assert np.isfinite(path.low).all()
    assert Risk(1e-9).extend([0.0] * 10 + [1.0]).alarm[-1]


def test_the_history_of_the_interval_is_bounded_and_evenly_spaced() -> None:
    risk = Risk(0.5)
    for n in (1, 255, 256, 1_000, 100_000):
        path = risk.extend(rng(5, n).random(n - risk.n))
        band = risk.band
        assert len(band.n) < 256
        assert (np.diff(band.n, prepend=0) == band.n[0]).all()
        at = band.n > n - len(path.n)
        assert band.low[at].tolist() == path.low[band.n[at] - 1 - (n - len(path.n))].tolist()
    assert len(band.n) > 120


def test_an_interrupted_batch_was_not_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    risk = Risk(0.1)
    risk.extend(errors((0.05, 100)))
    before = snapshot.encode(risk)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(History, "extend", interrupt)
        with pytest.raises(KeyboardInterrupt):
            risk.extend(errors((0.9, 50)))
    assert snapshot.encode(risk) == before


# ------------------------------------------------------------------ what it finds


@pytest.mark.parametrize("period", [None, 10_000.0])
def test_a_rise_is_found_near_its_place(period: float | None) -> None:
    found = [Risk(0.1, period=period) for _ in range(20)]
    for seed, risk in enumerate(found):
        risk.extend(errors((0.07, 2_000), (0.2, 1_000), seed=seed))
    late = [risk for risk in found if risk.alarm_at is not None and risk.alarm_at > 2_000]
    assert len(late) >= 18
    assert np.median([abs(risk.changepoint - 2_000) for risk in late if risk.changepoint is not None]) < 60


def test_small_but_certain_harm_is_found_in_losses_with_little_variance() -> None:
    x = np.clip(0.12 + 0.02 * rng(6).normal(size=400), 0.0, 1.0)
    risk = Risk(0.1)
    risk.extend(x)
    assert risk.alarm_at is not None
    assert risk.alarm_at < 60


def test_a_lower_risk_is_no_alarm() -> None:
    risk = Risk(0.1)
    risk.extend(errors((0.09, 5_000), (0.01, 5_000)))
    assert risk.alarm_at is None
    assert risk.interval.high < 0.1
    assert risk.explain().harm == "none so far"
    assert str(risk.explain()).startswith("No harm so far: the mean risk is below the limit of 0.1. The mean of 10,000")


@pytest.mark.quick
@pytest.mark.parametrize("on_alarm", ["latch", "restart"])
def test_whether_harm_is_shown_since_when_and_how_large(on_alarm: str) -> None:
    x = errors((0.07, 700), (0.4, 300)).astype(float)
    risk = Risk(1.0, bounds=(0.0, 10.0), on_alarm=on_alarm)
    assert (risk.explain().harm, risk.change, risk.explain().losses) == ("open", None, 0)
    assert str(risk.explain()).startswith("Harm is neither shown nor ruled out:")
    for loss in (10.0 * x).tolist():
        if risk.update(loss).alarm:
            break
    assert risk.alarm_at is not None
    assert risk.changepoint is not None
    change, found = risk.change, risk.explain()
    assert change is not None
    assert change.before == pytest.approx(10.0 * x[: risk.changepoint].mean())
    assert change.after == pytest.approx(10.0 * x[risk.changepoint : risk.alarm_at].mean())
    assert (found.harm, found.change, found.losses) == ("shown", change, risk.alarm_at)
    assert found.mean == risk.mean == pytest.approx(10.0 * x[: risk.alarm_at].mean())
    assert f"since about loss {risk.changepoint + 1:,} (an estimate; alarm at loss {risk.alarm_at:,})" in str(found)
    risk.extend([0.0] * 5)
    assert risk.change == change  # that of the alarm
    assert risk.explain().losses == (5 if on_alarm == "restart" else risk.n)
    assert snapshot.decode(snapshot.encode(risk)).explain() == risk.explain()


@pytest.mark.quick
def test_a_rise_from_the_first_loss_has_no_mean_before_it() -> None:
    risk = Risk(0.1)
    risk.update(1.0)
    assert "The mean of 1 loss is 1; its risk lies" in str(risk.explain())
    risk.extend([1.0] * 4)
    assert risk.change == (None, 1.0)
    assert "; their mean risk lies" in str(risk.explain())
    assert "before" not in str(risk.explain())


def test_an_interval_above_the_limit_shows_harm_too() -> None:
    risk = Risk(0.5, period=1e9)
    risk.extend(errors((0.6, 1_500)))
    assert risk.explain().harm == "shown"
    assert (risk.alarm_at is None) == str(risk.explain()).startswith("Harm is shown: the mean risk is above")


def test_it_fits_into_a_fleet_with_other_monitors() -> None:
    draw = rng(11)
    fixed = {"a": draw.normal(size=200)}
    monitors: dict[str, Any] = {name: Risk(0.1) for name in "abc"}
    monitors |= {"rate": RateMonitor(alpha=0.05), "quiet rate": RateMonitor(1_000)}
    monitors |= {"table": TableMonitor(fixed, seed=1), "quiet table": TableMonitor(fixed, seed=1, period=1_000)}
    for k, name in enumerate("abc"):
        monitors[name].extend(errors((0.05 + 0.2 * (k == 1), 500), seed=k))
    monitors["rate"].extend(errors((0.05, 300), (0.6, 100)))
    monitors["quiet rate"].extend(errors((0.05, 300)))
    monitors["table"].extend({"a": draw.normal(2.0, 1.0, 100)})
    monitors["quiet table"].extend({"a": draw.normal(size=100)})
    found = fleet.e_bh({name: monitor.log_value for name, monitor in monitors.items()}, 0.05)
    assert set(found.names) == {"b", "rate", "table"}


# ------------------------------------------------------------------ guarantees


@pytest.mark.quick
@pytest.mark.parametrize("limit", [0.1, 0.5, 0.8])
def test_the_best_stopping_rule_and_the_worst_losses_gain_nothing(limit: float) -> None:
    """All sequences of three losses: backward induction over stopping, and over every mean up to the limit."""
    depth, levels = 4, (0.0, 0.5, 1.0)
    value: dict[tuple[float, ...], float] = {(): 1.0}
    for n in range(1, depth + 1):
        for x in itertools.product(levels, repeat=n):
            value[x] = math.exp(Risk(limit).extend(list(x)).log_value[-1])
    best = {x: value[x] for x in itertools.product(levels, repeat=depth)}
    for n in range(depth - 1, -1, -1):
        now = {}
        for x in itertools.product(levels, repeat=n):
            none, half, one = (best[(*x, level)] for level in levels)
            ends = [none, limit * one + (1.0 - limit) * none]  # the extreme points of laws with a mean up to the limit
            ends.append(2.0 * limit * half + (1.0 - 2.0 * limit) * none if limit <= 0.5 else half)
            if limit > 0.5:
                ends.append((2.0 * limit - 1.0) * one + (2.0 - 2.0 * limit) * half)
            now[x] = max(value[x], *ends)
        best = now
    assert best[()] <= 1.0 + 1e-12
    assert value[(1.0,) * depth] > 1.0  # it does gain on some


@pytest.mark.parametrize("period", [None, 300.0])
def test_an_adversary_who_sees_the_bets_does_not_exceed_the_level(period: float | None) -> None:
    """It plays for the smallest loss that raises the alarm: the probability of that is the largest possible."""
    draw, runs, limit, alpha, plays, waits = rng(14), 150, 0.4, 0.3, 60, 3_000 if period is None else 30
    raised = 0
    for _ in range(runs):
        risk = Risk(limit, alpha=alpha, period=period)
        risk.extend(np.full(waits, limit))
        raised += plays_against(risk, draw, plays)
    promised = alpha if period is None else (plays + waits) / period
    assert stats.binom.sf(raised - 1, runs, promised) > 1e-6
    assert raised > 0


def adversarial(draw: np.random.Generator, steps: int, limit: float) -> NDArray[np.float64]:
    """Losses whose size depends on the past: long shots after a bad streak, small losses otherwise."""
    x = np.zeros(steps)
    streak = 0
    for t in range(steps):
        size = 1.0 if streak > 3 else max(limit, 0.5)
        x[t] = size * (draw.random() < limit / size)
        streak = 0 if x[t] else streak + 1
    return x


def autocorrelated(draw: np.random.Generator, steps: int, limit: float) -> NDArray[np.float64]:
    """Losses with a slowly moving conditional mean, never above the limit."""
    mean, x = limit, np.zeros(steps)
    for t in range(steps):
        mean = min(max(mean + 0.1 * limit * draw.normal(), 0.2 * limit), limit)
        x[t] = draw.random() < mean
    return x


DEPENDENT = {
    "independent": lambda draw, steps, limit: (draw.random(steps) < limit).astype(float),
    "autocorrelated": autocorrelated,
    "adversarial": adversarial,
}


@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize("limit", [0.05, 0.4])
def test_false_alarms_are_as_rare_as_stated(kind: str, limit: float) -> None:
    runs, alpha, steps, draw = 300, 0.2, 400, rng(7)
    losses = [DEPENDENT[kind](draw, steps, limit) for _ in range(runs)]
    ever = sum(Risk(limit, alpha=alpha).extend(x).alarm.any() for x in losses)
    assert stats.binom.sf(ever - 1, runs, alpha) > 1e-6
    within = sum(Risk(limit, period=4.0 * steps).extend(x).alarm.any() for x in losses)
    assert stats.binom.sf(within - 1, runs, 0.25) > 1e-6
    assert ever + within > 0  # not for want of betting


def test_this_test_can_fail() -> None:
    runs, alpha, draw = 300, 0.2, rng(8)
    ever = sum(Risk(0.05, alpha=alpha).extend(draw.random(400) < 0.075).alarm.any() for _ in range(runs))
    assert stats.binom.sf(ever - 1, runs, alpha) < 1e-6


@pytest.mark.parametrize("kind", ["constant", "falling", "autocorrelated"])
def test_the_interval_covers_the_mean_risk_at_all_times(kind: str) -> None:
    runs, alpha, steps, draw, missed = 300, 0.2, 1_000, rng(9), 0
    for _ in range(runs):
        means = {
            "constant": np.full(steps, 0.3),
            "falling": np.where(np.arange(steps) < 500, 0.3, 0.1),
            "autocorrelated": 0.2 + 0.15 * np.sin(np.cumsum(draw.normal(size=steps)) / 20.0),
        }[kind]
        path = Risk(0.9, alpha=alpha).extend(draw.random(steps) < means)
        truth = np.cumsum(means) / np.arange(1, steps + 1)
        missed += bool(((truth < path.low) | (truth > path.high)).any())
    assert stats.binom.sf(missed - 1, runs, alpha) > 1e-6
    assert path.high[-1] - path.low[-1] < 0.2


@pytest.mark.parametrize("loss", ["errors", "uniform", "tiny"])
def test_the_bound_of_a_reference_is_above_its_risk(loss: str) -> None:
    draw, alpha, runs = rng(10), 0.2, 300
    make: tuple[Callable[[], Any], float] = {
        "errors": (lambda: draw.random(200) < 0.1, 0.1),
        "uniform": (lambda: draw.random(200), 0.5),
        "tiny": (lambda: draw.random(200) ** 9, 0.1),
    }[loss]
    bounds = [Risk.against(make[0](), 0.0, alpha=alpha).limit for _ in range(runs)]
    low = sum(bound < make[1] for bound in bounds)
    assert stats.binom.sf(low - 1, runs, alpha / 2.0) > 1e-6
    assert np.mean(bounds) < make[1] + 0.1


def test_against_a_reference() -> None:
    reference = errors((0.08, 3_000))
    risk = Risk.against(reference, 0.02, alpha=0.05)
    assert 0.1 < risk.limit < 0.13
    assert risk.threshold == pytest.approx(1.0 / 0.025)
    assert risk.reference_alpha == 0.025
    assert Risk.against(rng(1).permutation(reference), 0.02, alpha=0.05).limit == risk.limit  # the order is ignored
    watching = Risk.against(reference, 0.02, alpha=0.05, period=500)
    assert watching.reference_alpha == 0.05
    assert watching.threshold == 500.0
    assert "unless the limit is too low, which has a chance of at most 0.05" in watching.guarantee
    risk.extend(errors((0.08, 2_000), (0.25, 400), seed=2))
    assert risk.alarm_at is not None
    assert risk.alarm_at > 2_000
    with pytest.raises(ValueError, match=r"reference must show that the risk is below 0\.98 .* got 3 losses"):
        Risk.against([1, 1, 1])
    with pytest.raises(ValueError, match="reference must have at least one loss"):
        Risk.against([])
    with pytest.raises(ValueError, match="tolerance must"):
        Risk.against(reference, -0.1)


def test_guarantees_are_stated() -> None:
    assert Risk(0.1).guarantee == (
        "If the mean loss, given the past, never exceeds 0.1, the chance that this alarm is ever raised is at most "
        "0.01."
    )
    assert Risk(0.1, period=500).guarantee == (
        "While the mean loss, given the past, does not exceed 0.1, the mean time to a false alarm is at least 500 "
        "losses."
    )
    assert "after any one start is at most 0.01" in Risk(0.1, on_alarm="restart").guarantee


@pytest.mark.quick
def test_a_limit_that_may_be_too_low_is_part_of_every_guarantee() -> None:
    """With restarts, false alarms never stop if it is: their expected number is bounded only if it is not."""
    reference = errors((0.05, 500))
    restarting = Risk.against(reference, on_alarm="restart")
    assert restarting.guarantee == (
        "If the mean loss, given the past, never exceeds that of the reference by more than the tolerance, the chance "
        "of a false alarm after any one start is at most 0.005, and the expected number of false alarms, however long "
        "one watches, at most 0.00503, unless the limit is too low, which has a chance of at most 0.005."
    )
    assert "unless" in Risk.against(reference, on_alarm="restart", period=100).guarantee
    too_low = Risk(0.05, on_alarm="restart", reference_alpha=0.005).extend(errors((0.08, 20_000)))
    assert too_low.alarm.sum() > 5
    latched = Risk.against(reference)
    assert latched.guarantee.endswith("the chance that this alarm is ever raised is at most 0.01.")
    latched.extend(errors((0.3, 200)))
    assert latched.anytime_p == min(1.0, 0.005 + math.exp(-latched.log_max))
    assert Risk.against(reference).anytime_p == 1.0


def test_the_p_value_at_the_alarm_is_alpha() -> None:
    risk = Risk.against(errors((0.05, 500)), alpha=0.02)
    p = [risk.anytime_p for _ in map(risk.update, errors((0.3, 400)).tolist())]
    first = next(i for i, value in enumerate(p, 1) if value <= 0.02)
    assert risk.alarm_at == first


# ------------------------------------------------------------------ what it refuses


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0.0}, "limit must lie between the bounds of the loss, 0 and 1, got 0.0"),
        ({"limit": 1}, "limit must lie between the bounds of the loss, 0 and 1, got 1"),
        ({"limit": "a"}, "limit must be one finite number, got 'a'"),
        ({"limit": 0.1, "alpha": 2}, "alpha must lie in (0, 1), got 2"),
        ({"limit": 0.1, "period": 1}, "period must lie in (1, 1e300], got 1"),
        ({"limit": 0.1, "bounds": (1, 0)}, "bounds must be the smallest and the largest possible loss, got (1, 0)"),
        ({"limit": 0.1, "bounds": 3}, "bounds must be the smallest and the largest possible loss, got 3"),
        ({"limit": 0.1, "bounds": (0, math.inf)}, "bounds must be the smallest and the largest possible loss"),
        ({"limit": 0.1, "reference_alpha": 0.01}, "reference_alpha must be at least 0 and less than alpha (0.01)"),
        ({"limit": 0.1, "on_alarm": "stop"}, "on_alarm must be 'latch' or 'restart', got 'stop'"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Risk(**arguments)


@pytest.mark.quick
@pytest.mark.parametrize("loss", [-0.1, 1.1, math.nan, math.inf, "a", None, [0.5]])
def test_an_invalid_loss_changes_nothing(loss: Any) -> None:
    risk = Risk(0.1)
    risk.extend(errors((0.1, 20)))
    before = snapshot.encode(risk)
    with pytest.raises(ValueError, match=r"^x must be"):
        risk.update(loss)
    with pytest.raises(ValueError, match=r"^X must"):
        risk.extend([0.5, loss])
    assert snapshot.encode(risk) == before


def test_columns_of_frames_are_losses() -> None:
    x = errors((0.2, 50))
    want = Risk(0.1).extend(x).log_value.tolist()
    for column in (pd.Series(x), x.tolist(), x.astype(np.float32), x.astype(np.int8)):
        assert Risk(0.1).extend(column).log_value.tolist() == want
    empty = Risk(0.1)
    assert len(empty.extend([]).n) == 0
    assert empty.interval == (0.0, 1.0)
    assert math.isnan(empty.mean)


def test_the_plot_of_the_interval() -> None:
    risk = Risk(0.1)
    risk.extend(errors((0.08, 500), (0.3, 200)))
    ax = risk.plot_interval()
    legend = ax.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["0.99 interval", "mean loss", "limit", "alarm"]
    assert risk.plot().get_title() == "Evidence that the risk is above the limit"
