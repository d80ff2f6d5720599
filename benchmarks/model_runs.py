"""One run of bench_models.py: a model of river with a drift detector inside, which predicts and then learns."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from river import drift, forest, naive_bayes, tree

from exchangeable import bets
from exchangeable.adapters.river import ExchangeabilityDetector
from model_streams import Example

Make = Callable[[int], Any]  # a detector for a seed
WINDOW, TREES = 100, 3


class RisingADWIN(drift.ADWIN):  # type: ignore[misc]
    """ADWIN that shortens its window after any change, but reports a drift only if the mean has risen."""

    def update(self, x: float) -> None:
        """Read the next number."""
        before = self.estimation
        super().update(x)
        self._drift_detected = self.drift_detected and self.estimation > before


@dataclass(frozen=True)
class Detector:
    """How to make the detector of drifts, and the one that starts a new tree of a forest in the background."""

    drift: Make
    warning: Make
    background: bool = False
    in_forest: Make | None = None  # if it is not as elsewhere


def ours(warning: Mapping[str, Any], background: bool = False, **parameters: Any) -> Detector:
    both: dict[str, Any] = {name: parameters[name] for name in ("direction", "rate") if name in parameters}

    def make(given: Mapping[str, Any]) -> Make:
        return lambda seed: ExchangeabilityDetector(seed=seed, **given)

    return Detector(make(parameters), make({**warning, **both}), background)


def period(length: int, **parameters: Any) -> Detector:
    return ours({"period": length / 10}, period=length, **parameters)


DDM = Detector(lambda seed: drift.binary.DDM(), lambda seed: drift.binary.DDM(drift_threshold=2.0))
DETECTORS: Mapping[str, Detector] = {
    "none": Detector(lambda seed: drift.NoDrift(), lambda seed: drift.NoDrift()),
    "ADWIN": Detector(
        lambda seed: drift.ADWIN(),
        lambda seed: drift.ADWIN(delta=0.01),
        in_forest=lambda seed: drift.ADWIN(delta=0.001),
    ),
    "ADWIN, rises": Detector(lambda seed: RisingADWIN(), lambda seed: RisingADWIN(delta=0.01)),
    "DDM": DDM,
    "PageHinkley": Detector(lambda seed: drift.PageHinkley(), lambda seed: drift.PageHinkley(threshold=25.0)),
    "alpha": ours({"alpha": 0.1}, alpha=0.01),
    "alpha, up": ours({"alpha": 0.1}, alpha=0.01, direction="up"),
    "1,000": period(1_000),
    "1,000, up": period(1_000, direction="up"),
    "10,000": period(10_000),
    "10,000, up": period(10_000, direction="up"),
    "100,000": period(100_000),
    "100,000, up": period(100_000, direction="up"),
    "rate": period(10_000, rate=True),
    "rate, up": period(10_000, rate=True, direction="up"),
    "DDM, background": Detector(DDM.drift, DDM.warning, background=True),
    "10,000, background": period(10_000, background=True),
    "10,000, up, background": period(10_000, direction="up", background=True),
    "Sentinel, Ville": ours({}, alpha=0.01, bet=bets.Sentinel(), direction="up"),
    "Adaptive, Ville, 0.1": ours({}, alpha=0.1, direction="up"),
    "Adaptive, ShiryaevRoberts": ours({}, period=10_000, bet=bets.Adaptive(), direction="up"),
}


@dataclass
class Log:
    """Where the signals of all detectors of a model are noted, and where their seeds come from."""

    seeds: Iterator[int]
    now: int = 0
    signals: list[int] = field(default_factory=list)


class Noted:
    """A detector that notes its signals; a clone has another seed."""

    def __init__(self, make: Make, log: Log) -> None:
        self.make, self.log = make, log
        self.detector = make(next(log.seeds))

    def clone(self) -> Noted:
        """Return a fresh one with the same log."""
        return Noted(self.make, self.log)

    def update(self, x: float) -> None:
        """Read the next number."""
        self.detector.update(x)
        if self.detector.drift_detected:
            self.log.signals.append(self.log.now)

    @property
    def drift_detected(self) -> bool:
        """Whether it signals a drift."""
        return bool(self.detector.drift_detected)

    @property
    def warning_detected(self) -> bool:
        """Whether it signals a warning."""
        return bool(self.detector.warning_detected)


def retrained(model: Any, detector: Detector, log: Log, seed: int) -> Any:
    return drift.DriftRetrainingClassifier(model, Noted(detector.drift, log), train_in_background=detector.background)


def adaptive_tree(detector: Detector, log: Log, seed: int) -> Any:
    return tree.HoeffdingAdaptiveTreeClassifier(drift_detector=Noted(detector.drift, log), seed=seed)


def adaptive_forest(detector: Detector, log: Log, seed: int) -> Any:
    inside: dict[str, Any] = {"drift_detector": drift.NoDrift(), "warning_detector": drift.NoDrift()}
    if detector is not DETECTORS["none"]:
        warning = Noted(detector.warning, Log(count(10**6 * seed + 5 * 10**5)))
        inside = {"drift_detector": Noted(detector.in_forest or detector.drift, log), "warning_detector": warning}
    return forest.ARFClassifier(n_models=TREES, seed=seed, **inside)


MODELS: Mapping[str, Callable[[Detector, Log, int], Any]] = {
    "naive Bayes": lambda *given: retrained(naive_bayes.GaussianNB(), *given),
    "Hoeffding tree": lambda *given: retrained(tree.HoeffdingTreeClassifier(), *given),
    "adaptive tree": adaptive_tree,
    "adaptive forest": adaptive_forest,
}
RETRAINED = ("naive Bayes", "Hoeffding tree")


@dataclass(frozen=True)
class Run:
    """What one model did on one stream."""

    accuracy: float
    length: int
    seconds: float
    signals: list[int]
    falls: int  # signals at which the error rate had fallen
    capital: list[float]  # log10 of the capital before each change, of our detectors


def play(model: str, name: str, examples: Sequence[Example], changes: Sequence[int], seed: int) -> Run:
    """Predict each example, then learn it."""
    warnings.simplefilter("ignore")  # Adaptive does not suit Shiryaev-Roberts: shown on purpose
    log = Log(count(10**6 * seed))
    learner = MODELS[model](DETECTORS[name], log, seed)
    errors, capital = [], []
    start = time.process_time()
    for log.now, (x, y) in enumerate(examples):
        if log.now in changes:
            capital.append(held(learner))
        errors.append(learner.predict_one(x) != y)
        learner.learn_one(x, y)
    seconds = time.process_time() - start
    return Run(1.0 - sum(errors) / len(errors), len(errors), seconds, log.signals, falls(errors, log.signals), capital)


def held(model: Any) -> float:
    noted = getattr(model, "drift_detector", None)
    return float(getattr(getattr(noted, "detector", None), "log10_martingale", float("nan")))


def falls(errors: Sequence[bool], signals: Sequence[int]) -> int:
    """Count the signals at which the last examples had fewer errors than those before, since the signal before."""
    found, start = 0, 0
    for signal in signals:
        middle = signal + 1 - min(WINDOW, (signal + 1 - start) // 2)
        before, after = errors[start:middle], errors[middle : signal + 1]
        found += bool(before) and sum(after) * len(before) < sum(before) * len(after)
        start = signal + 1
    return found
