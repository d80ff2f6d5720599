"""The detectors for River: River's own checks, River's own ensembles, and the numbers of a monitor bit for bit."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import exchangeable as ex
from contracts import settled
from exchangeable import alarms, bets, measures

pytest.importorskip("river")

from river import base, checks, compose, drift, evaluate, forest, linear_model, metrics, preprocessing, stats, tree
from river.datasets import synth

from exchangeable.adapters import dict_rows
from exchangeable.adapters import river as adapter
from exchangeable.adapters.dict_rows import DictMeasure
from exchangeable.adapters.river import ExchangeabilityDetector, LabelledDetector, MultivariateDetector

Example = dict[Any, Any]
DETECTORS = (ExchangeabilityDetector, MultivariateDetector, LabelledDetector)


def gaussian(n: int, seed: int, mean: float = 0.0) -> list[float]:
    return [float(value) for value in np.random.default_rng(seed).normal(mean, 1.0, n)]


# ------------------------------------------------------------------ River's own checks


def models() -> Iterator[Any]:
    for kind in DETECTORS:
        yield pytest.param(kind(), id=kind.__name__)
    yield pytest.param(ExchangeabilityDetector(period=1000.0, seed=1), id="with a period")
    yield pytest.param(ExchangeabilityDetector(alpha=0.05, direction="up"), id="with alpha and a direction")
    yield pytest.param(ExchangeabilityDetector(rate=True), id="of a rate")
    yield pytest.param(ExchangeabilityDetector(bet=bets.Plugin(), measure=measures.Value()), id="with a bet")
    yield pytest.param(
        LabelledDetector(measure=measures.NearestNeighbour(), period=1000.0),
        id="with a measure",
        marks=pytest.mark.soak,
    )


@pytest.mark.parametrize("model", list(models()))
def test_rivers_checks(model: Any) -> None:
    """All that there are, but for tags where the base class is none of River's estimators and has no tags."""
    skipped = set() if isinstance(model, base.Estimator) else {"check_tags"}
    names = set()
    random.seed(1)  # some of the checks choose features at random
    for check in checks.yield_checks(model):
        names.add(check.__name__)
        if check.__name__ not in skipped:
            check(model.clone())
    assert len(names) >= 10  # as many as there are in River 0.22


def test_rivers_detectors_have_no_tags_either() -> None:
    assert not hasattr(drift.KSWIN(), "_tags")


@pytest.mark.parametrize("model", list(models()))
def test_a_clone_is_fresh_and_the_original_keeps_its_parameters(model: Any) -> None:
    bet, measure = model.bet, model.measure
    for i in range(30):
        feed(model, float(i % 2))
    assert (model.bet, model.measure) == (bet, measure)
    assert getattr(measure, "n", 0) == 0
    clone = model.clone()
    assert (model.n, clone.n, clone.p, clone.log10_martingale) == (30, 0, None, 0.0)
    assert repr(clone) == repr(model)


def feed(model: Any, value: float) -> None:
    if isinstance(model, ExchangeabilityDetector):
        model.update(value)
    elif isinstance(model, MultivariateDetector):
        model.learn_one({"a": value})
    else:
        model.learn_one({"a": value}, value)


def test_without_river_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, adapter.__name__)
    with pytest.raises(
        ImportError, match=r"^river cannot be used .*; for the adapters of River: pip install '.*\[river\]'$"
    ):
        importlib.import_module(adapter.__name__)


# ------------------------------------------------------------------ numbers


CHOICES: dict[str, tuple[dict[str, Any], Callable[[], ex.Monitor]]] = {
    "default": (
        {},
        lambda: ex.Monitor(
            measures.Value(), bets.Sentinel(), alarms.ShiryaevRoberts(10_000), seed=5, on_alarm="restart"
        ),
    ),
    "alpha": (
        {"alpha": 0.05},
        lambda: ex.Monitor(measures.Value(), bets.Adaptive(), alarms.Ville(0.05), seed=5, on_alarm="restart"),
    ),
    "period": (
        {"period": 500},
        lambda: ex.Monitor(measures.Value(), bets.Sentinel(), alarms.ShiryaevRoberts(500), seed=5, on_alarm="restart"),
    ),
    "bet and measure": (
        {"bet": bets.Plugin(), "measure": measures.Frozen(bins=8, reference=[-2.0, -1.0, 0.0, 1.0, 2.0])},
        lambda: ex.Monitor(
            measures.Frozen(bins=8, reference=[-2.0, -1.0, 0.0, 1.0, 2.0]),
            bets.Plugin(),
            alarms.ShiryaevRoberts(10_000),
            seed=5,
            on_alarm="restart",
        ),
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_numbers_are_the_monitors(name: str) -> None:
    """Through several drifts, so that after each the thetas go on and are not drawn again."""
    parameters, make = CHOICES[name]
    values = [*gaussian(300, 1), *gaussian(300, 2, 3.0), *gaussian(300, 3, -3.0)]
    detector, monitor = ExchangeabilityDetector(seed=5, **parameters), make()
    drifts = 0
    for value in values:
        detector.update(value)
        step = monitor.update(value)
        assert (detector.n, detector.p, detector.drift_detected) == (step.n, step.p, step.alarm)
        assert detector.log10_martingale == step.log_value / math.log(10.0)
        assert detector.changepoint == monitor.changepoint
        drifts += step.alarm
    assert drifts >= 2
    assert detector.guarantee == monitor.guarantee


def test_promises_in_words() -> None:
    assert ExchangeabilityDetector().guarantee == (
        "On exchangeable data the mean time between false alarms is at least 10000 examples, and their expected number "
        "within n examples at most n/10000."
    )
    assert ExchangeabilityDetector(alpha=0.01).guarantee == (
        "On exchangeable data the chance of a false alarm after any one start is at most 0.01, and the expected number "
        "of false alarms, however long one watches, at most 0.0101."
    )
    assert "between false alarms is at least 2000 examples" in MultivariateDetector(period=2000).guarantee


@pytest.mark.parametrize(
    ("parameters", "lowest"),
    [({"alpha": 0.001, "warning": 0.2}, 5.0), ({"alpha": 0.0001}, 100.0), ({"alpha": 0.25}, 2.0)],
)
def test_warnings_are_a_capital_too(parameters: dict[str, Any], lowest: float) -> None:
    detector = ExchangeabilityDetector(seed=0, **parameters)
    warned = drifts = 0
    for value in [*gaussian(200, 4), *gaussian(60, 5, 1.5), *gaussian(60, 6, -1.5)]:
        detector.update(value)
        capital = 10.0**detector.log10_martingale
        assert detector.drift_detected == (capital >= 1.0 / parameters["alpha"])
        assert detector.warning_detected == (capital >= lowest and not detector.drift_detected)
        warned, drifts = warned + detector.warning_detected, drifts + detector.drift_detected
    assert warned
    assert drifts


def test_warnings_of_a_period_are_the_alarm_of_another_period_and_restart_with_each_drift() -> None:
    detector = ExchangeabilityDetector(period=1000.0, warning=20.0, seed=3)
    monitor = ex.Monitor(measures.Value(), bets.Sentinel(), alarms.ShiryaevRoberts(1000.0), seed=3, on_alarm="restart")
    warner, warned, drifts = alarms.ShiryaevRoberts(20.0), 0, 0
    for value in [*gaussian(200, 7), *gaussian(200, 8, 3.0), *gaussian(200, 9, -3.0)]:
        detector.update(value)
        step = monitor.update(value)
        warns = warner.update(step.log_value)
        assert detector.warning_detected == (warns and not step.alarm)
        warned, drifts = warned + detector.warning_detected, drifts + step.alarm
        warner = alarms.ShiryaevRoberts(20.0) if step.alarm else warner
    assert warned
    assert drifts >= 2


def test_a_tenth_of_the_period_warns_by_default() -> None:
    given_, default = (
        ExchangeabilityDetector(period=1000.0, warning=100.0, seed=3),
        ExchangeabilityDetector(period=1000.0, seed=3),
    )
    for value in [*gaussian(100, 7), *gaussian(30, 8, 3.0)]:
        given_.update(value)
        default.update(value)
        assert given_.warning_detected == default.warning_detected


# ------------------------------------------------------------------ directions


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.01}])
def test_every_drift_and_every_warning_has_one_direction(parameters: dict[str, Any]) -> None:
    both, up, down = (
        ExchangeabilityDetector(seed=2, direction=direction, **parameters) for direction in ("both", "up", "down")
    )
    drifts: list[str] = []
    changepoints: dict[str, int | None] = {"up": None, "down": None}
    for value in [*gaussian(200, 1), *gaussian(200, 2, 2.0), *gaussian(200, 3, -1.0), *gaussian(200, 4, 1.0)]:
        for detector in (both, up, down):
            detector.update(value)
        assert (up.p, up.log10_martingale, up.n) == (both.p, both.log10_martingale, both.n)
        assert up.drift_detected + down.drift_detected == both.drift_detected
        assert up.warning_detected + down.warning_detected == both.warning_detected
        if both.drift_detected:
            drifts.append("up" if up.drift_detected else "down")
            changepoints[drifts[-1]] = both.changepoint
    assert drifts == ["up", "down", "up"]
    assert (up.changepoint, down.changepoint) == (changepoints["up"], changepoints["down"])


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=40))
def test_the_direction_is_that_of_the_richer_of_two_shiryaev_roberts_statistics(p: list[float]) -> None:
    trend = adapter._Trend()
    found = [trend.update(value) for value in p]

    def statistic(sign: int) -> float:
        """By the definition: the sum over all starts of the product of the bets."""
        gains = [1.0 + sign * (0.5 - value) for value in p]
        return sum(math.prod(gains[start:]) for start in range(len(p)))

    up, down = statistic(1), statistic(-1)
    assert found[-1] == ("up" if up > down else "down") or up == pytest.approx(down)


def test_the_direction_is_right_after_any_number_of_equal_p_values() -> None:
    trend = adapter._Trend()
    assert {trend.update(0.1) for _ in range(5_000)} == {"up"}
    assert [trend.update(0.9) for _ in range(10_000)][-1] == "down"


def test_what_happened_long_before_the_alarm_does_not_matter() -> None:
    """Errors that become rarer, slowly, and then suddenly frequent: the drift is a rise."""
    rng, detector, found = random.Random(4), ExchangeabilityDetector(seed=4, direction="up"), []
    for i in range(2000):
        rate = max(0.1, 0.5 - 0.0008 * i) if i < 1000 else 0.6
        detector.update(rng.random() < rate)
        found += [i] if detector.drift_detected else []
    assert len(found) == 1
    assert 1000 <= found[0] < 1050


def test_learning_is_no_drift_with_rises_only() -> None:
    """Two-sided detectors, ADWIN too, replace a tree again and again while it learns."""
    stream = list(synth.LED(noise_percentage=0.1, irrelevant_features=True, seed=1).take(1000))
    drifts = {}
    for direction in ("both", "up"):
        detector = ExchangeabilityDetector(seed=1, direction=direction)
        model = drift.DriftRetrainingClassifier(
            tree.HoeffdingTreeClassifier(), drift_detector=detector, train_in_background=False
        )
        drifts[direction] = 0
        for x, y in stream:
            model.learn_one(x, y)
            drifts[direction] += detector.drift_detected
    assert drifts["up"] == 0
    assert drifts["both"] >= 3


# ------------------------------------------------------------------ rates


def events(*rates: float) -> list[bool]:
    rng = np.random.default_rng(11)
    return [bool(event) for rate in rates for event in rng.random(400) < rate]


@pytest.mark.parametrize("kind", [bool, np.bool_, int, float])
@pytest.mark.parametrize("direction", ["both", "up", "down"])
@pytest.mark.parametrize(
    "limit", [{}, {"period": 500, "warning": 30}, {"alpha": 0.01}, {"alpha": 0.01, "warning": 0.3}]
)
def test_the_numbers_of_a_rate_are_the_rate_monitors(kind: Any, direction: str, limit: dict[str, Any]) -> None:
    """By the argument, and where the first value is a boolean."""
    rate = None if kind in (bool, np.bool_) else True
    detector = ExchangeabilityDetector(direction=direction, rate=rate, **limit)
    bounds = {name: value for name, value in limit.items() if name != "warning"}
    monitor = ex.RateMonitor(**bounds, direction=direction, on_alarm="restart")
    if "alpha" in limit:
        level = ex.RateMonitor(alpha=limit.get("warning", 0.1)).log_threshold
    else:
        level = ex.RateMonitor(limit.get("warning", 1000)).log_threshold
    drifts = warned = 0
    for event in events(0.1, 0.6, 0.05, 0.5):
        detector.update(kind(event))
        step = monitor.update(event)
        assert (detector.n, detector.p, detector.drift_detected) == (step.n, None, step.alarm)
        assert detector.log10_martingale == step.log_value / math.log(10.0)
        assert detector.changepoint == monitor.changepoint
        evidence = step.log_value if "alpha" in limit else step.statistic
        assert detector.warning_detected == (evidence >= level and not step.alarm)
        drifts, warned = drifts + step.alarm, warned + detector.warning_detected
    assert drifts == {"both": 3, "up": 2, "down": 1}[direction]
    assert warned
    assert detector.guarantee == monitor.guarantee
    assert detector.guarantee.startswith("On independent, identically distributed values")


@pytest.mark.parametrize(
    ("first", "parameters"),
    [
        (1, {}),
        (1.0, {}),
        (True, {"rate": False}),
        (True, {"bet": bets.Sentinel()}),
        (True, {"measure": measures.Value()}),
    ],
)
def test_what_is_ranked_and_not_counted(first: Any, parameters: dict[str, Any]) -> None:
    detector = ExchangeabilityDetector(seed=0, **parameters)
    for value in (first, False, 0.5):
        detector.update(value)
    assert isinstance(detector.monitor, ex.Monitor)
    assert detector.p is not None


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"rate": True}, "rate=True accepts only these"),
        ({}, "the first was a bool, so they are counted; rate=False ranks"),
    ],
)
def test_a_rate_is_of_zeros_and_ones(parameters: dict[str, Any], reason: str) -> None:
    detector = ExchangeabilityDetector(**parameters)
    detector.update(True)
    before = pickle.dumps(detector)
    with pytest.raises(ValueError, match=rf"^x must be one of \[0, 1\], got 0.5 \({reason}\)$"):
        detector.update(0.5)
    assert pickle.dumps(detector) == before


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rate": "yes"}, "rate must be True, False or None, got 'yes'"),
        (
            {"rate": True, "measure": measures.Value()},
            "measure must be None with rate=True, which does not rank, got Va",
        ),
        (
            {"rate": True, "bet": bets.Sentinel()},
            "bet must be None with rate=True, which does not rank, got Sentinel()",
        ),
    ],
)
def test_parameters_of_rates_are_checked(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        ExchangeabilityDetector(**parameters)
    assert str(refusal.value).startswith(message)


def test_a_model_with_the_detector_of_a_rate() -> None:
    """Errors of a rate that rises are found sooner than by ranks, and learning is no drift."""
    stream = [
        example
        for variant in (0, 2)
        for example in synth.STAGGER(classification_function=variant, seed=variant).take(1000)
    ]
    found: dict[bool, list[int]] = {}
    for rate in (False, True):
        detector = ExchangeabilityDetector(seed=1, direction="up", rate=rate)
        model = drift.DriftRetrainingClassifier(
            tree.HoeffdingTreeClassifier(), drift_detector=detector, train_in_background=False
        )
        found[rate] = []
        for i, (x, y) in enumerate(stream):
            model.learn_one(x, y)
            found[rate] += [i] if detector.drift_detected else []
    assert len(found[True]) == len(found[False]) == 1
    assert 1000 < found[True][0] < found[False][0] < 1100


# ------------------------------------------------------------------ seeds and memory


@pytest.mark.usefixtures("system_seeds")
def test_seeds() -> None:
    one: Any = ExchangeabilityDetector()
    other: Any = ExchangeabilityDetector()
    assert one.monitor.seed != other.monitor.seed  # so that clones in an ensemble do not draw the same numbers
    assert one.clone().monitor.seed != one.monitor.seed
    assert ExchangeabilityDetector(seed=4).clone().monitor.seed == 4
    assert ExchangeabilityDetector()._is_stochastic


def test_errors_zero_and_one_take_constant_memory() -> None:
    rng, detector = random.Random(0), ExchangeabilityDetector(seed=0)
    for _ in range(200):
        detector.update(int(rng.random() < 0.2))
    before = detector._raw_memory_usage
    for _ in range(1500):
        detector.update(int(rng.random() < 0.2))
    assert abs(detector._raw_memory_usage - before) < 1000


@pytest.mark.parametrize("value", [True, np.bool_(True), 1, np.int64(1), np.float32(1.0), 1.0])
def test_numbers_of_any_type(value: Any) -> None:
    detector = ExchangeabilityDetector(seed=0, rate=False)
    detector.update(value)
    detector.update(1.0)
    assert detector.p == float(ex.thetas(0, 1, 2)[0])  # equal to the one before


# ------------------------------------------------------------------ false alarms


def false_alarms(runs: int, length: int, make: Callable[[int], Any], draw: Callable[[random.Random], float]) -> int:
    count = 0
    for seed in range(runs):
        rng, detector = random.Random(seed), make(seed)
        for _ in range(length):
            detector.update(draw(rng))
            if detector.drift_detected:
                count += 1
                break
    return count


@pytest.mark.parametrize("draw", [random.Random.random, lambda rng: float(rng.random() < 0.3)], ids=["any", "0 or 1"])
def test_false_alarms_are_as_rare_as_promised(draw: Callable[[random.Random], float]) -> None:
    count = false_alarms(150, 100, lambda seed: ExchangeabilityDetector(alpha=0.1, seed=seed), draw)
    assert binomtest(count, 150, 0.1, alternative="greater").pvalue > 1e-4


def test_that_test_can_fail() -> None:
    """A detector behind a transformer that learns: what the head of the module warns of."""
    count = 0
    for seed in range(40):
        rng, detector, mean = random.Random(seed), ExchangeabilityDetector(alpha=0.1, seed=seed), stats.Mean()
        for _ in range(100):
            value = rng.random()
            mean.update(value)
            detector.update(mean.get())
            if detector.drift_detected:
                count += 1
                break
    assert binomtest(count, 40, 0.1, alternative="greater").pvalue < 1e-4


# ------------------------------------------------------------------ at the door


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "1", None, [1.0], 10**400, 1j])
def test_what_is_no_number_is_refused_and_changes_nothing(value: Any) -> None:
    detector = ExchangeabilityDetector(alpha=0.3, seed=0)
    for number in gaussian(50, 1):
        detector.update(number)
    before = pickle.dumps(detector)
    with pytest.raises(ValueError, match=r"^x must be one finite number, got "):
        detector.update(value)
    assert pickle.dumps(detector) == before
    detector.update(0.5)


@pytest.mark.parametrize("kind", DETECTORS)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 2}, "alpha must lie in (0, 1), got 2"),
        ({"alpha": 0.1, "period": 100}, "alpha must be None if period is given, got 0.1"),
        ({"period": 0.5}, "period must lie in (1, 1e300], got 0.5"),
        ({"alpha": 0.1, "warning": 0.1}, "warning must lie in (0.1, 1), got 0.1"),
        ({"warning": 1.0}, "warning must lie in (1, 10000), got 1.0"),
        ({"warning": "often"}, "warning must be a number in (1, 10000), got 'often'"),
        ({"alpha": 0.01, "warning": 1.0}, "warning must lie in (0.01, 1), got 1.0"),
        ({"direction": "left"}, "direction must be 'up', 'down' or 'both', got 'left'"),
        ({"period": 100, "warning": 100}, "warning must lie in (1, 100), got 100"),
        ({"seed": -1}, "seed must be an integer from 0 to 18446744073709551615, got -1"),
        ({"bet": 3}, "bet must have log_density, update and extend, got 3"),
        ({"measure": "value"}, "measure must be a measure (with update and extend of examples), got 'value'"),
    ],
)
def test_parameters_are_checked(kind: Callable[..., Any], parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        kind(**parameters)
    assert str(refusal.value) == message


@pytest.mark.parametrize("kind", [MultivariateDetector, LabelledDetector])
def test_a_measure_must_be_fresh(kind: Callable[..., Any]) -> None:
    measure = measures.NearestDistance()
    measure.update([1.0])
    with pytest.raises(ValueError, match=r"^measure must be fresh, got one that has seen 1 examples$"):
        kind(measure=measure)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"a": math.nan, "b": "red"}, "got nan for 'a'"),
        ({"a": math.inf}, "got inf for 'a'"),
        ({"a": 1e151}, "magnitude at most 1e+150, got 1e+151 for 'a'"),
        ({"a": 10**400}, "for 'a'"),
        ({"a": [1.0]}, r"got [1.0] for 'a'"),
        ({"a": b"red"}, "got b'red' for 'a'"),
        ({}, "x must be a dict with at least one feature that is a number or text, got {}"),
        ({"a": None}, "got {'a': None}"),
        ([1.0], "x must be a dict"),
    ],
)
@pytest.mark.parametrize("started", [False, True])
def test_what_is_no_example_is_refused_and_changes_nothing(x: Any, message: str, started: bool) -> None:
    detector = LabelledDetector(seed=0)
    for i in range(20 if started else 0):
        detector.learn_one({"a": i / 7, "b": "red" if i % 3 else "blue"}, i % 2)
    before = pickle.dumps(detector)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        detector.learn_one(x, 1)
    assert message in str(refusal.value)
    assert pickle.dumps(detector) == before
    detector.learn_one({"a": 1}, 1)


@pytest.mark.parametrize(("y", "message"), [(None, "got None"), (0.5, "got 0.5"), ([1], r"got \[1\]")])
def test_a_refused_label_changes_nothing_even_where_the_table_would_have_grown(y: Any, message: str) -> None:
    detector = LabelledDetector(seed=0)
    for i in range(20):
        detector.learn_one({"a": i / 7, "b": "red" if i % 3 else "blue"}, i % 2)
    before = pickle.dumps(detector)
    with pytest.raises(ValueError, match=rf"^y must .*{message}"):
        detector.learn_one({"a": 1.0, "c": 2.0, "b": "green", "d": "e"}, y)
    assert pickle.dumps(detector) == before


# ------------------------------------------------------------------ inside River


def abrupt(first: Any, second: Any, n: int) -> list[tuple[Example, Any]]:
    return [*first.take(n), *second.take(n)]


def stagger(n: int, seed: int = 0) -> list[tuple[Example, Any]]:
    first = synth.STAGGER(classification_function=0, seed=seed)
    return abrupt(first, synth.STAGGER(classification_function=2, seed=seed + 1), n)


def sea(n: int, seed: int = 0) -> list[tuple[Example, Any]]:
    return abrupt(synth.SEA(variant=0, seed=seed), synth.SEA(variant=3, seed=seed + 1), n)


@pytest.mark.parametrize("parameters", [{}, {"direction": "up"}, {"alpha": 1e-4}])
@pytest.mark.parametrize(("stream", "within"), [(stagger, 50), (sea, 600)])  # on SEA few labels change
def test_errors_of_a_model_that_learns_no_more(
    stream: Callable[..., Any], within: int, parameters: dict[str, Any]
) -> None:
    """A drift soon after the change, and none before."""
    model = tree.HoeffdingTreeClassifier()
    for x, y in stream(1000, 7)[:1000]:
        model.learn_one(x, y)
    detector, found = ExchangeabilityDetector(seed=1, **parameters), []
    for i, (x, y) in enumerate(stream(1000)):
        detector.update(model.predict_one(x) != y)
        found += [i] if detector.drift_detected else []
    assert 1000 <= found[0] < 1000 + within


@pytest.mark.parametrize("parameters", [{}, {"direction": "up"}, {"alpha": 0.01}])
def test_retraining(parameters: dict[str, Any]) -> None:
    accuracy = {}
    for detector in (ExchangeabilityDetector(seed=1, **parameters), drift.binary.DDM(drift_threshold=1e9)):
        model = drift.DriftRetrainingClassifier(tree.HoeffdingTreeClassifier(), drift_detector=detector)
        found = []
        score = metrics.Accuracy()
        for i, (x, y) in enumerate(stagger(600)):
            prediction = model.predict_one(x)
            if prediction is not None:
                score.update(y, prediction)
            model.learn_one(x, y)
            found += [i] if model.drift_detector.drift_detected else []
        accuracy[type(detector)] = score.get()
        assert not found or 600 <= found[0] < 660
        assert bool(found) == (type(detector) is ExchangeabilityDetector)
    assert accuracy[ExchangeabilityDetector] > accuracy[drift.binary.DDM] + 0.1


def test_progressive_validation_of_a_retrained_pipeline() -> None:
    model = preprocessing.StandardScaler() | drift.DriftRetrainingClassifier(
        linear_model.LogisticRegression(), drift_detector=ExchangeabilityDetector(seed=1)
    )
    score = evaluate.progressive_val_score(iter(sea(300)), model, metrics.Accuracy())
    assert score.get() > 0.8
    assert model["DriftRetrainingClassifier"].drift_detector.n == 600


def test_a_forest() -> None:
    model = forest.ARFClassifier(
        n_models=3,
        seed=1,
        drift_detector=ExchangeabilityDetector(alpha=0.01),
        warning_detector=ExchangeabilityDetector(alpha=0.1),
    )
    before = 0
    for i, (x, y) in enumerate(stagger(400)):
        model.learn_one(x, y)
        before = model.n_drifts_detected() if i == 399 else before
    assert model.n_drifts_detected() - before >= 2
    assert model.n_warnings_detected() >= 3


@pytest.mark.parametrize("detector", [MultivariateDetector(seed=2), LabelledDetector(seed=2)], ids=repr)
def test_a_pipeline_passes_everything_on(detector: Any) -> None:
    """Watched or not, the model is the same; and the detector is that which was fed by hand."""
    stream = sea(150)
    watched = detector.clone() | preprocessing.StandardScaler() | linear_model.LogisticRegression()
    bare = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    scores = [evaluate.progressive_val_score(iter(stream), model, metrics.LogLoss()) for model in (watched, bare)]
    assert scores[0].get() == scores[1].get()
    inside = watched[type(detector).__name__]
    alone = detector.clone()
    for x, y in stream:
        alone.learn_one(*((x, y) if isinstance(alone, LabelledDetector) else (x,)))
    assert (inside.n, inside.p, inside.log10_martingale) == (300, alone.p, alone.log10_martingale)


def test_a_union_and_the_end_of_a_pipeline() -> None:
    union = compose.Select("0") | (MultivariateDetector(seed=1) + preprocessing.MinMaxScaler())
    end = compose.Select("0") | MultivariateDetector(seed=1)
    for x in ({"0": 0.5, "1": 3.0}, {"0": 1.5, "1": 4.0}):
        union.learn_one(x)
        end.learn_one(x)
    assert end["MultivariateDetector"].p == union["TransformerUnion"]["MultivariateDetector"].p is not None


# ------------------------------------------------------------------ examples with many features


def rows_of(stream: Sequence[tuple[Example, Any]]) -> np.ndarray[Any, Any]:
    return np.array([[x[name] for name in sorted(x)] for x, _ in stream], float)


MEASURES: dict[str, tuple[Callable[[], Any], bool]] = {
    "NearestDistance": (measures.NearestDistance, False),
    "NearestDistance(3)": (lambda: measures.NearestDistance(3), False),
    "NearestNeighbour": (measures.NearestNeighbour, True),
    "NearestResidual": (measures.NearestResidual, True),
    "Conditional(NearestNeighbour)": (lambda: measures.Conditional(measures.NearestNeighbour()), True),
    "Conditional(NearestDistance)": (lambda: measures.Conditional(measures.NearestDistance()), True),
}


@pytest.mark.parametrize("name", MEASURES)
def test_of_numbers_the_detector_is_the_monitor_of_rows(name: str) -> None:
    make, labelled = MEASURES[name]
    stream = sea(150)
    monitor = ex.Monitor(make(), alarm=alarms.ShiryaevRoberts(10_000), seed=4, on_alarm="restart")
    path = monitor.extend(rows_of(stream), [int(y) for _, y in stream] if labelled else None)
    detector: Any = (LabelledDetector if labelled else MultivariateDetector)(measure=make(), seed=4)
    shuffled = random.Random(1)
    for (x, y), p, log_value, alarm in zip(stream, path.p, path.log_value, path.alarm, strict=True):
        names = shuffled.sample(sorted(x), len(x))  # the order in a dict means nothing
        detector.learn_one({key: x[key] for key in names}, *([int(y)] if labelled else []))
        assert (detector.p, detector.drift_detected) == (p, alarm)
        assert detector.log10_martingale == log_value / math.log(10.0)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(["a", "b"], measures.NearestNeighbour), ([True, False], measures.NearestNeighbour), ([0, 1], None)],
)
def test_the_first_label_decides(labels: list[Any], kind: Any) -> None:
    stream = [({"a": value}, labels[i % 3 % 2]) for i, value in enumerate(gaussian(40, 1))]
    assert p_values(LabelledDetector(seed=1), stream) == p_values(
        LabelledDetector(seed=1, measure=(kind or measures.NearestNeighbour)()), stream
    )
    numbers = [({"a": value}, value * 0.5 if i else 1.0) for i, value in enumerate(gaussian(40, 1))]
    assert p_values(LabelledDetector(seed=1), numbers) == p_values(
        LabelledDetector(seed=1, measure=measures.NearestResidual()), numbers
    )


def p_values(detector: Any, stream: Sequence[tuple[Example, Any]]) -> list[float]:
    found = []
    for x, y in stream:
        detector.learn_one(*((x, y) if isinstance(detector, LabelledDetector) else (x,)))
        found.append(detector.p)
    return found


@pytest.mark.parametrize("parameters", [{}, {"alpha": 0.01}])
def test_drift_of_the_concept(parameters: dict[str, Any]) -> None:
    detector, found = LabelledDetector(seed=1, **parameters), []
    for i, (x, y) in enumerate(stagger(300)):
        detector.learn_one({**x, "shape": "abc"[x["shape"]]}, y)
        found += [i] if detector.drift_detected else []
    assert 300 <= found[0] < 350


def test_drift_of_the_features() -> None:
    rng, detector, found = random.Random(3), MultivariateDetector(seed=1), []
    for i in range(500):
        detector.learn_one(
            {"size": rng.gauss(0.0, 1.0), "colour": rng.choice(["red", "blue"] if i < 250 else "xyzuvw")}
        )
        found += [i] if detector.drift_detected else []
    assert 250 <= found[0] < 350


def test_frozen_scores_take_the_dict_itself_and_constant_memory() -> None:
    def score(X: list[Example], y: Any) -> list[float]:
        return [abs(x["a"]) + len(x["b"]) for x in X]

    reference = [{"a": value, "b": "w" * (i % 4)} for i, value in enumerate(gaussian(200, 8))]
    detector = MultivariateDetector(measure=measures.Frozen(score, bins=16, reference=reference), seed=1)
    frozen = measures.Frozen(score, bins=16, reference=reference)
    monitor = ex.Monitor(frozen, alarm=alarms.ShiryaevRoberts(10_000), seed=1, on_alarm="restart")
    stream = [{"a": value, "b": "w" * (i % 3)} for i, value in enumerate(gaussian(600, 9))]
    for x in stream[:300]:
        detector.learn_one(x)
        assert detector.p == monitor.update(x).p
    before = len(pickle.dumps(detector.monitor.pvalues.measure._pool))  # type: ignore[union-attr]
    for x in stream[300:]:
        detector.learn_one(x)
    assert len(pickle.dumps(detector.monitor.pvalues.measure._pool)) == before  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"^score must return one finite number for each example, but raised KeyError"):
        detector.learn_one({"a": 1.0})


TRAIN = [{"size": x, "colour": "red" if x > 0.2 else "blue"} for x in gaussian(200, 5)]


@pytest.mark.parametrize("given", [{"alpha": 0.05}, {"period": 500.0, "bins": 16}])
def test_with_a_reference_it_is_the_table_monitor(given: dict[str, Any]) -> None:
    """Drifts are its alarms, a copy or a pickle continues identically, a clone starts with the reference again."""
    rows = [{"size": x, "colour": "red" if i % 3 else None} for i, x in enumerate([*gaussian(60, 6), *gaussian(60, 7)])]
    detector = MultivariateDetector(reference=TRAIN, seed=2, **given)
    monitor = ex.TableMonitor(TRAIN, seed=2, on_alarm="restart", **given)
    drifts = 0
    for i, row in enumerate(rows):
        if i == 30:
            twin = pickle.loads(pickle.dumps(detector))
        detector.learn_one(row)
        step = monitor.update(row)
        assert (detector.drift_detected, detector.changepoint) == (step.alarm, monitor.changepoint)
        warns = "alpha" in given and step.log_value >= -0.5 * math.log(0.05) and not step.alarm
        assert (detector.n, detector.log10_martingale, detector.p) == (step.n, step.log_value / math.log(10.0), None)
        assert detector.warning_detected == warns
        drifts += step.alarm
    assert drifts
    assert detector.transform_one(rows[0]) is rows[0]
    for row in rows[30:]:
        twin.learn_one(row)
    assert (twin.n, twin.log10_martingale, twin.changepoint) == (120, detector.log10_martingale, detector.changepoint)
    fresh = copy.deepcopy(detector).clone()
    assert (fresh.n, repr(fresh)) == (0, repr(detector))
    with pytest.raises(ValueError, match="column 'size' must be a finite number"):
        detector.learn_one({"size": "x", "colour": "red"})
    assert detector.n == 120


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"measure": measures.Value()}, "measure must be None if there is a reference"),
        ({"direction": "up"}, "direction must be 'both' if there is a reference"),
        ({"warning": 9.0}, "warning must be None if there is a reference and no alpha"),
        ({"reference": None, "bins": 9}, "bins must be None without a reference"),
    ],
)
def test_what_does_not_go_with_a_reference(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultivariateDetector(**{"reference": TRAIN, **given})


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("kind", DETECTORS)
def test_a_copy_goes_on_alike(kind: Callable[..., Any], again: Callable[[Any], Any]) -> None:
    detector = kind(seed=3, alpha=0.2)
    for value in gaussian(40, 1):
        feed(detector, value)
    twin = again(detector)
    for value in gaussian(60, 2, 3.0):
        feed(detector, value)
        feed(twin, value)
        assert (twin.n, twin.p, twin.drift_detected, twin.warning_detected) == (
            detector.n,
            detector.p,
            detector.drift_detected,
            detector.warning_detected,
        )


# ------------------------------------------------------------------ dicts as points


def point(x: Example, name: Any) -> dict[Any, Fraction]:
    """The coordinates of a feature that are not 0: the number and that it is one, or the text."""
    value = x.get(name)
    if isinstance(value, (int, float)):
        return {"value": Fraction(value), "is a number": Fraction(1)}
    return {} if value is None else {("text", value): Fraction(1)}


def squared(one: Example, other: Example) -> Fraction:
    """The squared distance by definition, without rounding."""
    total = Fraction(0)
    for name in one.keys() | other.keys():
        a, b = point(one, name), point(other, name)
        total += sum(
            ((a.get(key, Fraction(0)) - b.get(key, Fraction(0))) ** 2 for key in a.keys() | b.keys()), Fraction(0)
        )
    return total


def naive_rank(examples: Sequence[Example]) -> tuple[int, int, int]:
    """Of the last one, by the distance to the nearest other."""
    n = len(examples)
    others = [[squared(examples[i], examples[j]) for j in range(n) if j != i] for i in range(n)]
    scores = [min(row, default=Fraction(0)) for row in others]
    return sum(score > scores[-1] for score in scores), scores.count(scores[-1]), n


coarse = st.one_of(st.sampled_from(["red", "blue", "green", "x", "y", "z"]), st.integers(-8, 8).map(lambda k: k / 4))
dicts = st.dictionaries(st.sampled_from([*"abcd", 1, 2]), st.one_of(coarse, coarse, st.none()), min_size=1, max_size=4)
valid_dicts = dicts.filter(lambda x: any(value is not None for value in x.values()))


@settled(60)
@given(st.lists(valid_dicts, min_size=1, max_size=12))
def test_ranks_are_those_of_the_definition(examples: list[Example]) -> None:
    measure = DictMeasure(measures.NearestDistance())
    for n, x in enumerate(examples, start=1):
        assert tuple(measure.update(x)) == naive_rank(examples[:n])


fine = st.one_of(st.sampled_from(["red", "blue", "green", "x", "y", "z"]), st.floats(-2.0, 2.0))


@settled(100)
@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), fine, min_size=1), min_size=2, max_size=10), st.data())
def test_the_order_of_earlier_examples_does_not_matter(examples: list[Example], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(examples) - 1)))
    shuffled = [*(examples[i] for i in order), examples[-1]]
    ranks = [DictMeasure(measures.NearestDistance()).extend(stream) for stream in (examples, shuffled)]
    assert [column[-1] for column in ranks[0]] == [column[-1] for column in ranks[1]]


def layouts(numbers: int, texts: int, seed: int) -> tuple[list[Example], Callable[[Sequence[Example]], Any]]:
    """Examples whose distances differ by roundings, and their distances after they came in some order."""
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(texts)]
    examples = [
        {**{f"n{i}": value for i, value in enumerate(rng.normal(size=numbers).tolist())}, "t": word, "u": word[::-1]}
        for word in words
    ]

    def distances(stream: Sequence[Example]) -> dict[tuple[str, str], float]:
        measure = DictMeasure(measures.NearestDistance())
        measure.extend(stream)
        rows = {x["t"]: measure._layout.row(read) for x, read in zip(stream, measure._examples, strict=True)}
        return {(a, b): float(((rows[a] - rows[b]) ** 2).sum()) for a in words for b in words}

    return examples, distances


@pytest.mark.parametrize(
    ("numbers", "texts"), [(1, 3), (3, 9), (5, 20), (30, 16), (64, 30), (65, 5), (9, 40), (200, 9)]
)
def test_distances_do_not_depend_on_the_order_in_which_texts_came_to_the_last_bit(numbers: int, texts: int) -> None:
    examples, distances = layouts(numbers, texts, numbers)
    assert distances(examples) == distances(examples[::-1])


def test_that_test_of_layouts_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(numbers: int, room: int) -> Any:
        return numbers + room, np.arange(numbers), numbers + np.arange(room)

    monkeypatch.setattr(dict_rows, "_positions", plain)
    examples, distances = layouts(5, 20, 5)
    assert distances(examples) != distances(examples[::-1])


def test_the_table_is_widened_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    widened = []
    again = DictMeasure._rebuild

    def noted(self: DictMeasure, columns: dict_rows._Layout) -> Any:
        widened.append(self.n)
        return again(self, columns)

    monkeypatch.setattr(DictMeasure, "_rebuild", noted)
    measure = DictMeasure(measures.NearestDistance())
    for i in range(100):
        measure.update({"a": i / 3, "b": f"text {i}"})
    assert widened == [0, 4, 8, 16, 32, 64]


def test_many_examples_are_the_same_as_one_by_one_and_all_or_none() -> None:
    stream = [{**x, "shape": "abc"[x["shape"]]} for x, _ in stagger(30)]
    one, many = DictMeasure(measures.NearestDistance()), DictMeasure(measures.NearestDistance())
    ranks = np.array([one.update(x) for x in stream])
    assert np.array_equal(np.array(many.extend(stream)).T, ranks)
    before = pickle.dumps(many)
    with pytest.raises(ValueError, match="got nan for 'a'"):
        many.extend([{"a": 1.0, "q": "new"}, {"a": math.nan}])
    with pytest.raises(ValueError, match=r"^y must hold one label for each row of X, got 1 labels for 2 rows$"):
        many.extend(stream[:2], [1])
    assert pickle.dumps(many) == before
    assert [len(column) for column in many.extend([])] == [0, 0, 0]


def test_labels_too_may_come_many_at_a_time() -> None:
    one, many = adapter._MeasureByLabel(), adapter._MeasureByLabel()
    X, y = np.array(gaussian(30, 1)).reshape(-1, 1), [i % 3 for i in range(30)]
    assert [len(column) for column in many.extend(np.empty((0, 1)), [])] == [0, 0, 0]
    assert copy.deepcopy(many).extend(X, [0.5] * 30).n[-1] == 30  # none has decided yet
    ranks = np.array([one.update(*pair) for pair in zip(X, y, strict=True)])
    assert np.array_equal(np.array(many.extend(X, y)).T, ranks)
    with pytest.raises(ValueError, match=r"^y must be a class, like the labels before .* got 0.5$"):
        many.extend(X[:2], [1, 0.5])
    assert many.n == 30


def test_every_p_value_is_uniform_whatever_comes() -> None:
    """At each position, with ties, new texts and missing features: a count of p below 1/4 by an exact test."""
    runs, below = 400, np.zeros(8, int)
    for seed in range(runs):
        rng, detector = random.Random(seed), MultivariateDetector(seed=seed, bet=bets.Idle())
        for i in range(8):
            x: Example = {"a": rng.choice([0.0, 0.5, 2.0]), "b": rng.choice("uvwxyz")}
            if rng.random() < 0.3:
                del x["a"]
            detector.learn_one(x)
            below[i] += detector.p is not None and detector.p <= 0.25
    assert all(binomtest(int(count), runs, 0.25).pvalue > 1e-4 for count in below), below


def test_what_the_documentation_shows() -> None:
    model = LabelledDetector(seed=1) | preprocessing.StandardScaler() | linear_model.LogisticRegression()
    detector, drifts = model["LabelledDetector"], []
    for variant in (0, 2):
        for x, y in synth.STAGGER(classification_function=variant, seed=variant).take(300):
            model.learn_one(x, y)
            drifts += [(detector.n, detector.changepoint)] if detector.drift_detected else []
    assert drifts == [(308, 300)]
