"""River: drift detectors for streams of numbers, of features, and of features with labels.

Three detectors with one set of parameters, and with the numbers of `exchangeable.Monitor`, bit for bit:

- `ExchangeabilityDetector`: ``update(x)`` of a number, wherever River expects a drift detector;
- `MultivariateDetector`: ``learn_one(x)`` of a dict; a step of a pipeline that monitors what passes through it;
- `LabelledDetector`: ``learn_one(x, y)``, the same with a class or a number as the label.

The guarantee holds for the input of a detector. A transformer that learns as it goes (``StandardScaler``) turns
exchangeable examples into values that are not exchangeable, and so are the errors of a model that is still learning: a
detector behind them rightly reports a drift, which may be the learning. To detect changes in the data alone, use the
features before they are transformed, or the errors of a model that does not learn any more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from exchangeable._extras import needed
from exchangeable.adapters.dict_rows import Features, measure_of_dicts
from exchangeable.alarms import ShiryaevRoberts, Ville
from exchangeable.martingale import LN10
from exchangeable.measures import NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure, Rank, Ranks
from exchangeable.validation import check_interval, check_labels, format_value

with needed("river", "the adapters of River"):
    from river import base

__all__ = ["ExchangeabilityDetector", "LabelledDetector", "MultivariateDetector"]


class _Detector:
    """The base class of the detectors: a monitor that restarts after each drift, and a second alarm for warnings.

    The parameters are stored under their own names and are never changed, because River clones by them.
    """

    def __init__(
        self,
        alpha: float | None = None,
        period: float | None = None,
        warning: float | None = None,
        measure: Measure | None = None,
        bet: Bet | None = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.period = period
        self.warning = warning
        self.measure = measure
        self.bet = bet
        self.seed = seed
        drift, self._warning_alarm = _alarms(alpha, period, warning)
        monitored = self._prepare_measure(copy.deepcopy(measure))
        self.monitor: Monitor = Monitor(monitored, copy.deepcopy(bet), drift, seed=seed, on_alarm="restart")
        self._drift_detected = False
        self._warning_detected = False

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        """Return the measure of the monitor."""
        raise NotImplementedError

    def _update(self, x: Any, y: Any = None) -> None:
        """Test one example. If it is rejected, the detector does not change."""
        step = self.monitor.update(x, y)
        warns = self._warning_alarm.update(step.log_value)
        if step.alarm:  # the capital restarts with 1
            self._warning_alarm = _alarms(self.alpha, self.period, self.warning)[1]
        self._drift_detected, self._warning_detected = step.alarm, warns and not step.alarm

    @property
    def drift_detected(self) -> bool:
        """Whether the latest example raised the alarm; the test restarts with the next one."""
        return self._drift_detected

    @property
    def warning_detected(self) -> bool:
        """Whether the evidence has reached the level of the warning, but not that of the alarm."""
        return self._warning_detected

    @property
    def n(self) -> int:
        """The number of examples so far, before and after drifts."""
        return self.monitor.n

    @property
    def p(self) -> float | None:
        """The p-value of the latest example; None before the first."""
        return None if self.monitor.last is None else self.monitor.last.p

    @property
    def log10_martingale(self) -> float:
        """The log10 of the capital after the latest example, since the start or the latest drift."""
        return 0.0 if self.monitor.last is None else self.monitor.last.log_value / LN10

    @property
    def changepoint(self) -> int | None:
        """The estimated number of examples before the change of the latest drift; None before the first drift."""
        return self.monitor.changepoint

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee for drifts."""
        return self.monitor.guarantee

    def __repr__(self) -> str:
        """Return the parameters; a measure or a bet is shown by its class, which is the same for a clone."""
        names = ("alpha", "period", "warning", "measure", "bet", "seed")
        values = {name: getattr(self, name) for name in names}
        shown = (f"{n}={type(v).__name__ if hasattr(v, 'update') else repr(v)}" for n, v in values.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Yield parameters for River's own checks."""
        yield {}
        yield {"period": 1000.0, "seed": 1}


class ExchangeabilityDetector(_Detector, base.DriftAndWarningDetector):  # type: ignore[misc]
    """Drift detector for a stream of numbers, such as errors or waiting times, with a guarantee on false alarms.

    ``update(x)`` tests a number; ``drift_detected`` and ``warning_detected`` are the outcome. After a drift the test
    restarts with the next number: a fresh pool, a fresh bet, a capital of 1. ``guarantee`` states the guarantee. It
    holds for any distribution, as long as the numbers are exchangeable:

    - with ``alpha`` (default 0.01), a drift is a capital of 1/alpha (`alarms.Ville`): the probability of a false alarm
      after any one start is at most alpha, however long the stream;
    - with ``period`` instead, `alarms.ShiryaevRoberts`: the mean time between false alarms is at least ``period``
      numbers. This finds a change sooner, especially after a long time without one.

    ``warning`` is the corresponding level of the first warning after a start: a probability between alpha and 1, or a
    period below ``period``. By default it is the square root of alpha, or a tenth of the period (its root, for a short
    one). An example that is a drift is not a warning.

    ``measure`` is `measures.Value` by default: O(log n) per step, memory O(distinct numbers since the start), so two
    counters for errors 0 and 1. `measures.Frozen` with ``bins`` and ``reference`` has constant memory for any numbers.
    ``bet`` is `bets.Adaptive` with alpha, `bets.Watchful` with a period. Both are copied.

    ``seed`` is the seed for random tie-breaking. River's ensembles replace a detector that has found a drift by a
    clone, and a clone with the same seed would draw the same numbers again; so by default every detector draws its own
    seed from the operating system (``monitor.seed``). Set it for reproducible results.

    Errors of a model that is still learning are not exchangeable: see the docstring of this module. A number that is
    not finite raises a ValueError, and nothing is changed.

    >>> import random
    >>> rng, detector = random.Random(1), ExchangeabilityDetector(alpha=0.001, seed=1)
    >>> for i in range(2000):
    ...     detector.update(rng.gauss(0.0 if i < 1000 else 1.0, 1.0))
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 1035

    Reference: Fedorova et al. (2012); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        return Value() if measure is None else measure

    def update(self, x: float) -> None:
        """Test one number."""
        self._update(x)


class MultivariateDetector(_Detector, base.Transformer):  # type: ignore[misc]
    """Drift detector for a stream of dicts of features; as a step of a pipeline it passes every example on unchanged.

    ``learn_one(x)`` tests a dict of numbers and text. Parameters, attributes and guarantees are those of
    `ExchangeabilityDetector`, with "example" for "number".

    ``measure`` is `measures.NearestDistance` by default: time O(n) for each example and memory O(n), where n counts
    from the start or the latest drift. For measures of nearest neighbours an example is a point, which depends on the
    example only:

    - a number (True is 1, False is 0) is a coordinate. Scale features beforehand, by factors fixed in advance and not
      by a transformer that learns;
    - text is a category: a coordinate for each, 1 if it is present and 0 if not. New categories may come at any time;
      when they need more room, it doubles, and all examples are ranked again in O(n^2). Do not use identifiers, which
      are new every time, as features;
    - a feature that is missing, or None, is 0 in its coordinates, and a further coordinate marks the examples in which
      a feature is not a number. Features may come and go.

    For `measures.Frozen` an example is the dict itself: ``score(X, y)`` is called with a list of one dict. With
    ``bins`` and ``reference`` this needs constant memory; a River model that does not learn any more is a good score.

    Anything else, including NaN and infinity, raises a ValueError, and nothing is changed.

    >>> import random
    >>> rng, detector = random.Random(1), MultivariateDetector(seed=1)
    >>> for i in range(400):
    ...     detector.learn_one({"size": rng.gauss(0.0, 1.0 if i < 200 else 3.0), "colour": rng.choice(["red", "blue"])})
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 224

    Reference: Fedorova et al. (2012), Algorithm 1; Laxhammar and Falkman (2010).
    """

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        return measure_of_dicts(NearestDistance() if measure is None else measure)

    def learn_one(self, x: Features) -> None:
        """Test one example."""
        self._update(x)

    def transform_one(self, x: Features) -> Features:
        """Return the example unchanged."""
        return x


class LabelledDetector(_Detector, base.SupervisedTransformer):  # type: ignore[misc]
    """Drift detector for a stream of features with labels: a drift of the features, the labels, or their relation.

    It is `MultivariateDetector` with ``learn_one(x, y)``. Without a ``measure`` the first label after a start decides:
    if it is a float, labels are numbers and the measure is `measures.NearestResidual`; if it is an integer, a boolean
    or text, labels are classes and the measure is `measures.NearestNeighbour`, as in the paper; a later float is then
    rejected. Set the measure if labels are integers but not classes.

    >>> from river.datasets import synth
    >>> detector = LabelledDetector(seed=1)
    >>> for variant in (0, 2):
    ...     for x, y in synth.STAGGER(classification_function=variant, seed=variant).take(300):
    ...         detector.learn_one(x, y)
    ...         if detector.drift_detected:
    ...             print(f"drift after {detector.n}, since about {detector.changepoint}")
    drift after 311, since about 300

    Reference: Fedorova et al. (2012), section 4.1.
    """

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        return measure_of_dicts(_MeasureByLabel() if measure is None else measure)

    def learn_one(self, x: Features, y: Hashable) -> None:
        """Test one example and its label."""
        self._update(x, y)

    def transform_one(self, x: Features) -> Features:
        """Return the example unchanged."""
        return x


def _alarms(alpha: float | None, period: float | None, warning: float | None) -> tuple[Alarm, Alarm]:
    """Return the alarm for drifts and the alarm for warnings."""
    if period is not None:
        if alpha is not None:
            raise ValueError(f"alpha must be None if period is given, got {alpha!r}")
        long = ShiryaevRoberts(period)
        short = max(long.period / 10.0, math.sqrt(long.period)) if warning is None else warning
        below = math.nextafter(long.period, 0.0)
        return long, ShiryaevRoberts(check_interval("warning", short, 1.0, below, f"(1, {long.period:g})"))
    rare = Ville() if alpha is None else Ville(alpha)
    probability = math.sqrt(rare.alpha) if warning is None else warning
    below = math.nextafter(1.0, 0.0)
    return rare, Ville(check_interval("warning", probability, rare.alpha, below, f"({rare.alpha:g}, 1)"))


class _MeasureByLabel:
    """Nearest neighbours, with the kind of labels decided by the first one: floats are numbers, others are classes."""

    def __init__(self) -> None:
        self.n = 0
        self._measure: NearestNeighbour | NearestResidual | None = None

    def update(self, x: Any, y: Any = None) -> Rank:
        """Rank one example among those so far."""
        measure = self._choose([y])
        rank = measure.update(x, y)
        self._measure, self.n = measure, measure.n
        return rank

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Rank many examples, one by one."""
        labels = check_labels(y)
        measure = self._choose(labels)
        ranks = measure.extend(X, labels)
        self._measure, self.n = measure if measure.n else None, measure.n  # without labels nothing is decided
        return ranks

    def _choose(self, labels: list[Any]) -> NearestNeighbour | NearestResidual:
        measure = self._measure
        if measure is None:
            measure = NearestResidual() if labels and _is_float(labels[0]) else NearestNeighbour()
        wrong = [y for y in labels if _is_float(y)] if isinstance(measure, NearestNeighbour) else []
        if wrong:
            raise ValueError(
                "y must be a class like the labels before (for numbers use measures.NearestResidual), got "
                f"{format_value(wrong[0])}"
            )
        return measure


def _is_float(y: Any) -> bool:
    return isinstance(y, (float, np.floating))
