"""River: drift detectors for streams of numbers, of features, and of features with labels.

Three detectors with one set of parameters, and with the numbers of `exchangeable.Monitor`, bit for bit:

- `ExchangeabilityDetector`: ``update(x)`` of a number, wherever River takes a drift detector;
- `MultivariateDetector`: ``learn_one(x)`` of a dict; a step of a pipeline that watches what passes through it;
- `LabelledDetector`: ``learn_one(x, y)``, the same with a class or a number as the label.

The promise is about what a detector is given. A transformer that learns as it goes (``StandardScaler``) makes values
that are not exchangeable of examples that are, and so does a model that still learns of its errors: a detector behind
them rightly notices, and what it notices may be the learning. Watch the features before they are transformed, or the
errors of a model that learns no more, to hear of changes in the data alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable._extras import needed
from exchangeable.alarms import ShiryaevRoberts, Ville
from exchangeable.martingale import LN10
from exchangeable.measures import NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.pools import Scored
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Floats, Measure, Rank, Ranks, is_measure
from exchangeable.validation import LARGEST, check_interval, check_labels, format_value

with needed("river", "the adapters of River"):
    from river import base

__all__ = ["ExchangeabilityDetector", "LabelledDetector", "MultivariateDetector"]

Features = dict[Any, Any]
Mark = tuple[Hashable, str | None]


class _Detector:
    """What the detectors have in common: a monitor that begins again after each drift, and a second alarm, to warn.

    The parameters stand under their own names and are never changed: River clones by them.
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
        drift, self._warner = _alarms(alpha, period, warning)
        ranking = self._ranking(copy.deepcopy(measure))
        self.monitor: Monitor = Monitor(ranking, copy.deepcopy(bet), drift, seed=seed, on_alarm="restart")
        self._drift_detected = False
        self._warning_detected = False

    def _ranking(self, measure: Measure | None) -> Measure:
        """The measure of the monitor."""
        raise NotImplementedError

    def _take(self, x: Any, y: Any = None) -> None:
        """One example. If it is refused, the detector stays as it was."""
        step = self.monitor.update(x, y)
        warns = self._warner.update(step.log_value)
        if step.alarm:  # the capital that comes next begins with 1 again
            self._warner = _alarms(self.alpha, self.period, self.warning)[1]
        self._drift_detected, self._warning_detected = step.alarm, warns and not step.alarm

    @property
    def drift_detected(self) -> bool:
        """Whether the latest example raised the alarm; the next one begins again."""
        return self._drift_detected

    @property
    def warning_detected(self) -> bool:
        """Whether the evidence has come as far as the warning, and not as far as the alarm."""
        return self._warning_detected

    @property
    def n(self) -> int:
        """How many examples have been seen, before and after drifts."""
        return self.monitor.n

    @property
    def p(self) -> float | None:
        """The p-value of the latest example; None before the first."""
        return None if self.monitor.last is None else self.monitor.last.p

    @property
    def log10_martingale(self) -> float:
        """The capital after the latest example, since the start or the latest drift, as a power of ten."""
        return 0.0 if self.monitor.last is None else self.monitor.last.log_value / LN10

    @property
    def changepoint(self) -> int | None:
        """How many examples came before the change that the latest drift is about; None before the first drift."""
        return self.monitor.changepoint

    @property
    def guarantee(self) -> str:
        """What is promised of drifts, in words."""
        return self.monitor.guarantee

    def __repr__(self) -> str:
        """The parameters; of a measure or bet its kind, which is the same for a clone."""
        given = ((name, getattr(self, name)) for name in ("alpha", "period", "warning", "measure", "bet", "seed"))
        said = (f"{name}={type(value).__name__ if hasattr(value, 'update') else repr(value)}" for name, value in given)
        return f"{type(self).__name__}({', '.join(said)})"

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        """For River's own checks."""
        yield {}
        yield {"period": 1000.0, "seed": 1}


class ExchangeabilityDetector(_Detector, base.DriftAndWarningDetector):  # type: ignore[misc]
    """Drift in a stream of numbers, such as errors or waiting times, with a promise about false alarms.

    ``update(x)`` takes a number; ``drift_detected`` and ``warning_detected`` tell what it has led to. After a drift the
    next number begins again: a fresh pool, a fresh bet, a capital of 1. ``guarantee`` is the promise in words; it holds
    whatever the distribution, as long as the numbers are exchangeable:

    - with ``alpha`` (0.01 if nothing is said), a drift is a capital of 1/alpha (`alarms.Ville`): the chance of a false
      alarm after any one start is at most alpha, however long the stream;
    - with ``period`` in its place, `alarms.ShiryaevRoberts`: the mean time between false alarms is at least ``period``
      numbers. Finds a change sooner, above all after a long quiet time.

    ``warning`` is the same for warnings, of which it bounds the first after a start: a chance between alpha and 1, or a
    period below ``period``; if it is left out, the square root of alpha, or a tenth
    of the period (of a short one, its root). The example that
    is a drift is no warning.

    ``measure`` is `measures.Value` by default: O(log n) a step, memory O(distinct numbers since the start), so two
    counters for errors 0 and 1. `measures.Frozen` with ``bins`` and ``reference`` has constant memory for any numbers.
    ``bet`` is `bets.Adaptive` with alpha, `bets.Watchful` with a period. Both are copied.

    ``seed`` determines how ties are broken. River's ensembles put a clone in the place of a detector that has found a
    drift, and a clone with the same seed would draw the same numbers once more; so by default, None, every detector
    draws a seed of its own from the operating system (``monitor.seed``). Give one for numbers that can be repeated.

    Errors of a model that is still learning are not exchangeable: see the head of this module. A number that is not
    finite is refused with a ValueError, and nothing is changed.

    >>> import random
    >>> rng, detector = random.Random(1), ExchangeabilityDetector(alpha=0.001, seed=1)
    >>> for i in range(2000):
    ...     detector.update(rng.gauss(0.0 if i < 1000 else 1.0, 1.0))
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 1042

    Reference: Fedorova et al. (2012); Vovk, Gammerman, Shafer (2022), section 8.3.
    """

    def _ranking(self, measure: Measure | None) -> Measure:
        return Value() if measure is None else measure

    def update(self, x: float) -> None:
        """Take one number."""
        self._take(x)


class MultivariateDetector(_Detector, base.Transformer):  # type: ignore[misc]
    """Drift in a stream of dicts of features; a step of a pipeline that passes everything on as it is.

    ``learn_one(x)`` takes a dict of numbers and texts. Parameters, attributes and promises are those of
    `ExchangeabilityDetector`, with "example" for "number".

    ``measure`` is `measures.NearestDistance` by default: time O(n) an example and memory O(n), n counted from the start
    or the latest drift. Measures of nearest neighbours see an example as a point, and this point depends on nothing but
    the example:

    - a number (True is 1, False 0) is a coordinate, as it is: bring features to one scale beforehand, by factors fixed
      in advance and not by a transformer that learns;
    - a text is a category: a coordinate of its own, 1 if it is there and 0 if not. New ones may come at any time, and
      widen the table; the room doubles, and all is then ranked again in O(n^2). An identifier, new every time, has no
      business among the features;
    - a feature that is missing, or None, is 0 in its coordinates; and a coordinate tells examples in which a feature is
      a number from those in which it is not. Features may come and go.

    To `measures.Frozen` an example is the dict itself: ``score(X, y)`` is called with a list of one dict. With ``bins``
    and ``reference`` this takes constant memory; a River model that learns no more makes a good score.

    Anything else, NaN and infinity too, is refused with a ValueError, and nothing is changed.

    >>> import random
    >>> rng, detector = random.Random(1), MultivariateDetector(seed=1)
    >>> for i in range(400):
    ...     detector.learn_one({"size": rng.gauss(0.0, 1.0 if i < 200 else 3.0), "colour": rng.choice(["red", "blue"])})
    ...     if detector.drift_detected:
    ...         print(f"drift after {detector.n}")
    drift after 230

    Reference: Fedorova et al. (2012), Algorithm 1; Laxhammar and Falkman (2010).
    """

    def _ranking(self, measure: Measure | None) -> Measure:
        return _of_dicts(NearestDistance() if measure is None else measure)

    def learn_one(self, x: Features) -> None:
        """Take one example."""
        self._take(x)

    def transform_one(self, x: Features) -> Features:
        """The example, as it is."""
        return x


class LabelledDetector(_Detector, base.SupervisedTransformer):  # type: ignore[misc]
    """Drift in a stream of features with labels: of the features, the labels, or of how they belong together.

    As `MultivariateDetector`, with ``learn_one(x, y)``. Without a ``measure`` the first label after a start decides: if
    it is a float, labels are numbers and the measure is `measures.NearestResidual`; if it is an integer, a truth
    value or text they are classes, and it is `measures.NearestNeighbour`, the paper's, to which a later float is
    refused. Name the measure where labels are integers that are no classes.

    >>> from river.datasets import synth
    >>> detector = LabelledDetector(seed=1)
    >>> for variant in (0, 2):
    ...     for x, y in synth.STAGGER(classification_function=variant, seed=variant).take(300):
    ...         detector.learn_one(x, y)
    ...         if detector.drift_detected:
    ...             print(f"drift after {detector.n}, since about {detector.changepoint}")
    drift after 315, since about 300

    Reference: Fedorova et al. (2012), section 4.1.
    """

    def _ranking(self, measure: Measure | None) -> Measure:
        return _of_dicts(_ByLabel() if measure is None else measure)

    def learn_one(self, x: Features, y: Hashable) -> None:
        """Take one example and its label."""
        self._take(x, y)

    def transform_one(self, x: Features) -> Features:
        """The example, as it is."""
        return x


def _alarms(alpha: float | None, period: float | None, warning: float | None) -> tuple[Alarm, Alarm]:
    """Of drifts, and of warnings."""
    if period is not None:
        if alpha is not None:
            raise ValueError(f"alpha must be None where period is given, got {alpha!r}")
        long = ShiryaevRoberts(period)
        short = max(long.period / 10.0, math.sqrt(long.period)) if warning is None else warning
        below = math.nextafter(long.period, 0.0)
        return long, ShiryaevRoberts(check_interval("warning", short, 1.0, below, f"(1, {long.period:g})"))
    rare = Ville() if alpha is None else Ville(alpha)
    chance = math.sqrt(rare.alpha) if warning is None else warning
    below = math.nextafter(1.0, 0.0)
    return rare, Ville(check_interval("warning", chance, rare.alpha, below, f"({rare.alpha:g}, 1)"))


class _ByLabel:
    """Nearest neighbours for labels of the kind that comes first: floats are numbers, all others classes."""

    def __init__(self) -> None:
        self.n = 0
        self._measure: NearestNeighbour | NearestResidual | None = None

    def update(self, x: Any, y: Any = None) -> Rank:
        """Take one example."""
        measure = self._for([y])
        rank = measure.update(x, y)
        self._measure, self.n = measure, measure.n
        return rank

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Take many examples."""
        labels = check_labels(y)
        measure = self._for(labels)
        ranks = measure.extend(X, labels)
        self._measure, self.n = measure if measure.n else None, measure.n  # where there is no label none has decided
        return ranks

    def _for(self, labels: list[Any]) -> NearestNeighbour | NearestResidual:
        measure = self._measure
        if measure is None:
            measure = NearestResidual() if labels and _is_float(labels[0]) else NearestNeighbour()
        wrong = [y for y in labels if _is_float(y)] if isinstance(measure, NearestNeighbour) else []
        if wrong:
            law = "y must be a class like the labels before (for numbers take measures.NearestResidual)"
            raise ValueError(f"{law}, got {format_value(wrong[0])}")
        return measure


def _is_float(y: Any) -> bool:
    return isinstance(y, (float, np.floating))


# ------------------------------------------------------------------ dicts as rows


def _of_dicts(measure: Measure) -> Measure:
    """A measure that takes dicts: scores fixed in advance do, other measures want rows."""
    if not is_measure(measure):
        raise ValueError(f"measure must be a measure (with update and extend of examples), got {format_value(measure)}")
    if getattr(measure, "n", 0):  # which the monitor would not see
        raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")  # type: ignore[attr-defined]
    return measure if isinstance(getattr(measure, "measure", measure), Scored) else _Rows(measure)


class _Example(NamedTuple):
    """What a dict says."""

    numbers: dict[Hashable, float]
    texts: dict[Hashable, str]


class _Columns:
    """Where the coordinates of examples stand in a row, for a given bag of examples.

    ``numbers`` are the features that are numbers somewhere, by name; ``marks`` numbers the coordinates that are 0 or 1:
    ``(feature, text)`` for a category, ``(feature, None)`` where a feature of ``numbers`` is no number.

    The marks are numbered as they came, and the rank of an example must not depend on that, to the last bit. Their part
    of a squared distance is an integer, whatever their order; so they are placed where this part is summed on its
    own, and rounding is met only where it joins the rest. Distances are summed as NumPy does: in eight sums, of which
    the first four are added up and the last four, or in two halves if there are more than 128 coordinates. The room
    for marks is a function of how many there are.
    """

    def __init__(self, numbers: Sequence[Hashable], marks: dict[Mark, int]) -> None:
        self.numbers, self.marks = tuple(numbers), marks
        self.room = 0 if not marks else max(4, 1 << (len(marks) - 1).bit_length())
        self.width, self.first, self.second = _places(len(self.numbers), self.room)

    def joined(self, example: _Example, n: int) -> _Columns:
        """The columns when an example joins n others."""
        new = example.numbers.keys() - set(self.numbers)
        numbers = sorted((*self.numbers, *new), key=_by_name) if new else self.numbers
        marks: list[Mark] = [(name, None) for name in new] if n else []  # none of the others has it
        marks += [mark for mark in _marks(example, numbers) if mark not in self.marks]
        if not new and not marks:
            return self
        return _Columns(
            numbers, self.marks | {mark: len(self.marks) + i for i, mark in enumerate(dict.fromkeys(marks))}
        )

    def alike(self, other: _Columns) -> bool:
        """Whether rows made by the other can stay as they are."""
        return self.numbers == other.numbers and self.room == other.room

    def row(self, example: _Example) -> Floats:
        """The example as a point."""
        row = np.zeros(self.width)
        row[self.first] = [example.numbers.get(name, 0.0) for name in self.numbers]
        row[self.second[[self.marks[mark] for mark in _marks(example, self.numbers)]]] = 1.0
        return row


class _Rows:
    """Examples that are dicts, as rows for a measure that takes rows. O(n) memory besides the measure's."""

    def __init__(self, measure: Measure) -> None:
        self.n = 0
        self._fresh = measure
        self._measure = copy.deepcopy(measure)
        self._columns = _Columns((), {})
        self._examples: list[_Example] = []
        self._labels: list[Any] = []

    def update(self, x: Features, y: Any = None) -> Rank:
        """Take one example."""
        example = _read(x)
        columns = self._columns.joined(example, self.n)
        measure = self._measure if columns.alike(self._columns) else self._again(columns)
        rank = measure.update(columns.row(example), y)
        self._columns, self._measure = columns, measure
        self._examples.append(example)
        self._labels.append(y)
        self.n += 1
        return rank

    def extend(self, X: Iterable[Features], y: Iterable[Any] | None = None) -> Ranks:
        """Take many examples, the same as one by one. If one of them is refused, none is taken."""
        examples, twin = list(X), copy.deepcopy(self)
        labels = [None] * len(examples) if y is None else list(y)
        check_labels(labels, len(examples))
        ranks = [twin.update(*pair) for pair in zip(examples, labels, strict=True)]
        vars(self).update(vars(twin))
        return Ranks(*np.array(ranks, np.int64).reshape(-1, 3).T)

    def _again(self, columns: _Columns) -> Measure:
        """A measure that has seen the examples so far, with other columns."""
        measure = copy.deepcopy(self._fresh)
        if self.n:
            measure.extend(np.array([columns.row(example) for example in self._examples]), self._labels)
        return measure


def _places(numbers: int, room: int) -> tuple[int, NDArray[np.intp], NDArray[np.intp]]:
    """The width of a row, and the places of the numbers and of the marks in it."""
    if not numbers or not room:
        return numbers + room, np.arange(numbers), np.arange(room)
    most = max(numbers, room)
    fours = (8 * np.arange(-(-most // 4))[:, np.newaxis] + np.arange(4)).ravel()
    if 2 * len(fours) <= 128:
        return 2 * len(fours), fours[:numbers], 4 + fours[:room]
    half = -(-most // 8) * 8
    return 2 * half, np.arange(numbers), half + np.arange(room)


def _marks(example: _Example, numbers: Sequence[Hashable]) -> list[Mark]:
    return [*example.texts.items(), *((name, None) for name in numbers if name not in example.numbers)]


def _by_name(feature: Hashable) -> tuple[bool, str]:
    return isinstance(feature, str), str(feature)


def _read(x: Any) -> _Example:
    """Admit a dict of numbers and texts; None is nothing."""
    law = "x must be a dict with at least one feature that is a number or text"
    if not isinstance(x, dict) or all(value is None for value in x.values()):
        raise ValueError(f"{law}, got {format_value(x)}")
    example = _Example({}, {})
    for name, value in x.items():
        if isinstance(value, str):
            example.texts[name] = str(value)
        elif value is not None:
            example.numbers[name] = _number(name, value)
    return example


def _number(name: Hashable, value: Any) -> float:
    try:
        number = float(value) if isinstance(value, (int, float, np.integer, np.floating, np.bool_)) else math.nan
    except OverflowError:
        number = math.nan
    if not abs(number) <= LARGEST:
        law = f"x must hold texts and finite numbers of magnitude at most {LARGEST:g}"
        raise ValueError(f"{law}, got {format_value(value)} for {format_value(name)}")
    return number
