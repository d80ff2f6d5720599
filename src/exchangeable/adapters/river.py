"""River: drift detectors for streams of numbers, of features, and of features with labels.

Three detectors with the same parameters (the first also has ``rate``). Their numbers are exactly those of
`exchangeable.Monitor`, or of `exchangeable.RateMonitor` with ``rate=True``:

- `ExchangeabilityDetector`: ``update(x)`` of a number, wherever River expects a drift detector;
- `MultivariateDetector`: ``learn_one(x)`` of a dict; a step of a pipeline that monitors what passes through it;
- `LabelledDetector`: ``learn_one(x, y)``, the same with a class or a number as the label.

The guarantee holds for the input of a detector. A transformer that learns as it goes (``StandardScaler``) turns
exchangeable examples into values that are not exchangeable, and the errors of a model that is still learning are not
exchangeable either. A detector that receives them is right to report a drift, but the drift may just be the learning.
To detect changes in the data alone, use the features before they are transformed, or the errors of a model that no
longer learns. In a model that is replaced after a drift use ``direction="up"``: then errors that become rarer, because
the model learns, are not a drift.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from exchangeable import snapshot
from exchangeable._extras import needed
from exchangeable.adapters.dict_rows import Features, measure_of_dicts
from exchangeable.alarms import ShiryaevRoberts, Ville
from exchangeable.martingale import LN10
from exchangeable.measures import NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure, Rank, Ranks
from exchangeable.rate import RateMonitor, check_direction
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import check_interval, check_labels, format_value

with needed("river", "the adapters of River"):
    from river import base

__all__ = ["ExchangeabilityDetector", "LabelledDetector", "MultivariateDetector"]


class _Detector:
    """The base class of the detectors: a monitor that restarts after each alarm, and a second alarm for warnings.

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
        direction: str = "both",
    ) -> None:
        check_direction(direction)
        self.alpha = alpha
        self.period = period
        self.warning = warning
        self.measure = measure
        self.bet = bet
        self.seed = seed
        self.direction = direction
        drift, self._warning_alarm = _alarms(alpha, period, warning)
        self._trend = _Trend()
        monitored = self._prepare_measure(copy.deepcopy(measure))
        self.monitor: Monitor | RateMonitor | TableMonitor = Monitor(
            monitored, copy.deepcopy(bet), drift, seed=seed, on_alarm="restart"
        )
        self._drift_detected = False
        self._warning_detected = False
        self._changepoint: int | None = None

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        """Return the measure of the monitor."""
        raise NotImplementedError

    def _update(self, x: Any, y: Any = None) -> None:
        """Rank one example and test its p-value. If it is rejected, the detector does not change."""
        assert isinstance(self.monitor, Monitor)  # noqa: S101
        step = self.monitor.update(x, y)
        warns = self._warning_alarm.update(step.log_value)
        matches = self._trend.update(step.p) == self.direction or self.direction == "both"
        self._drift_detected, self._warning_detected = step.alarm and matches, warns and not step.alarm and matches
        if self._drift_detected:
            self._changepoint = self.monitor.changepoint
        if step.alarm:  # the monitor restarts, with or without a drift
            self._warning_alarm, self._trend = _alarms(self.alpha, self.period, self.warning)[1], _Trend()

    @property
    def drift_detected(self) -> bool:
        """Whether the latest example raised the alarm, in the wanted direction; the test restarts after it."""
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
        """The p-value of the latest example; None before the first, and where events are counted."""
        return getattr(self.monitor.last, "p", None)

    @property
    def log10_martingale(self) -> float:
        """The log10 of the capital after the latest example, since the start or the latest alarm."""
        return 0.0 if self.monitor.last is None else self.monitor.last.log_value / LN10

    @property
    def changepoint(self) -> int | None:
        """The estimated number of examples before the change of the latest drift; None before the first drift."""
        return self._changepoint

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee for drifts."""
        return self.monitor.guarantee

    def __repr__(self) -> str:
        """Return the parameters; measures, bets and references are shown by their class, the same for a clone."""
        values = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        plain = (type(None), float, int, str, bool)
        shown = (f"{n}={v!r}" if isinstance(v, plain) else f"{n}={type(v).__name__}" for n, v in values.items())
        return f"{type(self).__name__}({', '.join(shown)})"

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """Yield parameters for River's own checks."""
        yield {}
        yield {"alpha": 0.05, "seed": 1, "direction": "up"}


class ExchangeabilityDetector(_Detector, base.DriftAndWarningDetector):  # type: ignore[misc]
    """Drift detector for a stream of numbers, such as errors or waiting times, with a guarantee on false alarms.

    ``update(x)`` tests a number; ``drift_detected`` and ``warning_detected`` are the outcome. After a drift the test
    restarts with the next number: a fresh pool, a fresh bet, a capital of 1. ``guarantee`` states the guarantee. It
    holds for exchangeable numbers with any distribution (with ``rate=True``: for independent ones):

    - with ``period`` (default 10,000), the alarm is `alarms.ShiryaevRoberts`: the mean time between false alarms is at
      least ``period`` numbers;
    - with ``alpha`` instead, a drift is a capital of 1/alpha (`alarms.Ville`): the probability of a false alarm after
      any one start is at most alpha, however long the stream. This finds a change later.

    ``direction`` is "both" (any change is a drift), "up" or "down". With "up" a drift is reported only if the latest
    numbers are larger than those before; after any other alarm the test restarts without a drift (with ``rate=True``
    the test itself is one-sided, so there is no such alarm). Use "up" for the errors of a model that is replaced after
    a drift: its errors become rarer as it learns, which is a change, but no reason to replace it. The guarantee is the
    same, since "up" reports fewer drifts.

    ``warning`` is the level of warnings, in the same unit: a period shorter than ``period``, or a probability between
    alpha and 1. By default it is a tenth of the period (or its square root, if that is larger), or the square root of
    alpha. An example that is a drift is not a warning.

    ``rate=True`` is for numbers that are all 0 or 1, such as errors: then `RateMonitor` counts them, and detects a
    change in their rate sooner than ranks do. ``measure`` and ``bet`` must not be given, and ``seed`` is not used. By
    default (None), if neither a measure nor a bet is given, the type of the first number decides: booleans are counted,
    other numbers are ranked. River's models report errors as the integers 0 and 1, so set ``rate=True`` there.

    ``measure`` is `measures.Value` by default: O(log n) per step, memory O(distinct numbers since the start), so two
    counters for errors 0 and 1. `measures.Frozen` with ``bins`` and ``reference`` has constant memory for any numbers.
    ``bet`` is `bets.Sentinel` with a period, `bets.Adaptive` with alpha. Both are copied.

    ``seed`` is the seed for random tie-breaking. River's ensembles replace a detector that has found a drift by a
    clone, and a clone with the same seed would draw the same numbers again; so by default every detector draws its own
    seed from the operating system (``monitor.seed``). Set it for reproducible results.

    Errors of a model that is still learning are not exchangeable: see the docstring of this module. MODELS.md in
    ``benchmarks`` compares detectors inside River's models. A number that is not finite raises a ValueError, and
    nothing is changed.

    >>> import random
    >>> rng, detector = random.Random(2), ExchangeabilityDetector(seed=2)
    >>> for i in range(2000):
    ...     detector.update(rng.gauss(0.0 if i < 1000 else 1.0, 1.0))
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 1016

    Reference: Fedorova et al. (2012); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    def __init__(
        self,
        alpha: float | None = None,
        period: float | None = None,
        warning: float | None = None,
        measure: Measure | None = None,
        bet: Bet | None = None,
        seed: int | None = None,
        direction: str = "both",
        rate: bool | None = None,
    ) -> None:
        super().__init__(alpha, period, warning, measure, bet, seed, direction)
        self.rate = rate
        if rate not in (None, False, True):
            raise ValueError(f"rate must be True, False or None, got {rate!r}")
        if rate:
            for name, given in (("measure", measure), ("bet", bet)):
                if given is not None:
                    raise ValueError(f"{name} must be None with rate=True, which does not rank, got {given!r}")
            self._count()

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        return Value() if measure is None else measure

    def _count(self) -> None:
        """Count events from now on."""
        limit = self._warning_alarm
        alpha, period = getattr(limit, "alpha", None), getattr(limit, "period", None)
        self._log_warning = RateMonitor(period, alpha=alpha).log_threshold
        self.monitor = RateMonitor(self.period, alpha=self.alpha, direction=self.direction, on_alarm="restart")

    def update(self, x: float) -> None:
        """Test one number."""
        is_free = self.n == 0 and self.rate is None and self.measure is None and self.bet is None
        if is_free and isinstance(x, (bool, np.bool_)):
            self._count()
        if not isinstance(self.monitor, RateMonitor):
            self._update(x)
            return
        try:
            step = self.monitor.update(x)
        except ValueError as error:
            counted = "the first was a bool, so they are counted; rate=False ranks"
            reason = "rate=True accepts only these" if self.rate else counted
            raise ValueError(f"{error} ({reason})") from None
        evidence = step.statistic if self.alpha is None else step.log_value
        self._drift_detected = step.alarm
        self._warning_detected = evidence >= self._log_warning and not step.alarm
        if step.alarm:
            self._changepoint = self.monitor.changepoint


class MultivariateDetector(_Detector, base.Transformer):  # type: ignore[misc]
    """Drift detector for a stream of dicts of features; as a step of a pipeline it passes every example on unchanged.

    ``learn_one(x)`` tests a dict of numbers and text. Parameters (except ``rate``), attributes and guarantees are those
    of `ExchangeabilityDetector`, with "example" for "number"; "up" means that examples become stranger.

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

    ``reference`` is earlier data, such as the training data: a frame, a list of dicts or a file. Then the examples are
    compared with it, by `exchangeable.TableMonitor`: each feature is tested on its own too, features are scaled by
    constants from the reference, and ``bins`` keeps memory constant. ``measure`` and ``bet`` must not be given,
    ``direction`` must be "both", there is no ``p``, and with a period there are no warnings. An example must have the
    features of the reference; None is a missing value. After a drift the test restarts without the reference.

    >>> import random
    >>> rng, detector = random.Random(1), MultivariateDetector(seed=1)
    >>> for i in range(400):
    ...     detector.learn_one({"size": rng.gauss(0.0, 1.0 if i < 200 else 3.0), "colour": rng.choice(["red", "blue"])})
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 209

    Reference: Fedorova et al. (2012), Algorithm 1; Laxhammar and Falkman (2010).
    """

    def __init__(
        self,
        alpha: float | None = None,
        period: float | None = None,
        warning: float | None = None,
        measure: Measure | None = None,
        bet: Bet | None = None,
        seed: int | None = None,
        direction: str = "both",
        reference: Any = None,
        bins: int | None = None,
    ) -> None:
        super().__init__(alpha, period, warning, measure, bet, seed, direction)
        self.reference = reference
        self.bins = bins
        if reference is not None:
            self.monitor = self._compare()
        elif bins is not None:
            raise ValueError(f"bins must be None without a reference, got {bins!r:.80}")

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles; a monitor with a reference is saved as ``ex.save`` does."""
        stored = {"monitor": snapshot.encode(self.monitor)} if isinstance(self.monitor, TableMonitor) else {}
        return {**vars(self), **stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.__dict__.update(state)
        if isinstance(state["monitor"], bytes):
            self.monitor = snapshot.decode(state["monitor"])

    def _compare(self) -> TableMonitor:
        """Return the monitor that compares examples with the reference."""
        for name, given in (("measure", self.measure), ("bet", self.bet)):
            if given is not None:
                raise ValueError(f"{name} must be None if there is a reference, got {given!r:.80}")
        if self.direction != "both":
            raise ValueError(f"direction must be 'both' if there is a reference, got {self.direction!r}")
        period = None
        if self.alpha is None:
            period = ShiryaevRoberts().period if self.period is None else self.period
            if self.warning is not None:
                raise ValueError(f"warning must be None if there is a reference and no alpha, got {self.warning!r}")
        level = Ville().alpha if self.alpha is None else self.alpha
        return TableMonitor(
            self.reference, alpha=level, period=period, bins=self.bins, seed=self.seed, on_alarm="restart"
        )

    def _prepare_measure(self, measure: Measure | None) -> Measure:
        return measure_of_dicts(NearestDistance() if measure is None else measure)

    def learn_one(self, x: Features) -> None:
        """Test one example."""
        if not isinstance(self.monitor, TableMonitor):
            self._update(x)
            return
        step = self.monitor.update(x)
        self._drift_detected = step.alarm
        warns = self.alpha is not None and self._warning_alarm.update(step.log_value)
        self._warning_detected = warns and not step.alarm
        if step.alarm:
            self._changepoint = self.monitor.changepoint

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
    drift after 308, since about 300

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
    if alpha is None:
        long = ShiryaevRoberts() if period is None else ShiryaevRoberts(period)
        short = max(long.period / 10.0, math.sqrt(long.period)) if warning is None else warning
        below = math.nextafter(long.period, 0.0)
        return long, ShiryaevRoberts(check_interval("warning", short, 1.0, below, f"(1, {long.period:g})"))
    if period is not None:
        raise ValueError(f"alpha must be None if period is given, got {alpha!r}")
    rare = Ville(alpha)
    probability = math.sqrt(rare.alpha) if warning is None else warning
    below = math.nextafter(1.0, 0.0)
    return rare, Ville(check_interval("warning", probability, rare.alpha, below, f"({rare.alpha:g}, 1)"))


class _Trend:
    """Whether the latest values rise or fall, by two statistics of Shiryaev-Roberts on their p-values.

    One bets on small p-values, with the density 1 + (1 - 2p) / 2, and one on large p-values, with 1 - (1 - 2p) / 2. The
    larger statistic gives the direction. Since a new bet starts before every example, what happened long before the
    alarm does not matter. O(1) time and memory.
    """

    def __init__(self) -> None:
        self._up = self._down = 0.0

    def update(self, p: float) -> str:
        """Read the next p-value; return "up" or "down"."""
        gain = 0.5 - p
        self._up = (1.0 + self._up) * (1.0 + gain)
        self._down = (1.0 + self._down) * (1.0 - gain)
        if max(self._up, self._down) > 1e100:  # only their ratio matters from there on
            self._up, self._down = self._up * 1e-100, self._down * 1e-100
        return "up" if self._up > self._down else "down"


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
                "y must be a class, like the labels before (for numbers use measures.NearestResidual), got "
                f"{format_value(wrong[0])}"
            )
        return measure


def _is_float(y: Any) -> bool:
    return isinstance(y, (float, np.floating))
