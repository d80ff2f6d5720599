"""The certificate of validity: exchangeable data is simulated, and false alarms are held against the promise."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from exchangeable import catalogue
from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.martingale import Martingale
from exchangeable.monitor import default_bet
from exchangeable.protocols import Alarm, Floats, Integers, Measure
from exchangeable.pvalues import PValues
from exchangeable.validation import check_integer, check_interval

Progress = Callable[[str, int, int], object]  # what, how many done, of how many
Generator = np.random.Generator

CONFIDENCE = 0.99  # of the intervals; a promise is called broken at half of 1 - CONFIDENCE
EXCESS = 1.3  # times the promise: an excess that the runs should show ..
POWER = 0.9  # .. with this probability
LEAST = 1e-200  # alpha, so that steps / alpha is a lawful period
TINY = 8  # examples of the kind "tiny"
BLOCK = 25  # runs of one piece of work


# ------------------------------------------------------------------ exchangeable data


class Examples(NamedTuple):
    """One exchangeable sequence, in all the forms that measures take."""

    rows: Floats
    numbers: Floats
    labels: list[str]
    targets: Floats


def _continuous(rng: Generator, n: int) -> Examples:
    """Independent draws without ties, heavy-tailed numbers, two overlapping classes."""
    label = rng.integers(0, 2, n)
    rows: Floats = rng.normal(size=(n, 2)) + label[:, np.newaxis]
    targets: Floats = rows[:, 0] + rng.normal(size=n)
    return Examples(rows, rng.standard_t(2.0, n), _named(label), targets)


def _ties(rng: Generator, n: int) -> Examples:
    """Independent draws of few values, so that most scores are equal."""
    drawn = rng.integers(0, 3, (n, 3)).astype(np.float64)
    return Examples(drawn[:, :2], rng.geometric(0.5, n) / 2.0, _named(rng.integers(0, 2, n)), drawn[:, 2])


def _labelled(rng: Generator, n: int) -> Examples:
    """Five classes of unequal size around their own centres; a number and a target that depend on the class."""
    label = rng.choice(5, n, p=(0.5, 0.3, 0.15, 0.04, 0.01))
    rows = rng.normal(size=(5, 4))[label] * 2.0 + rng.normal(size=(n, 4))
    return Examples(rows, label + rng.normal(size=n), _named(label), 3.0 * label + rng.normal(size=n))


def _categorical(rng: Generator, n: int) -> Examples:
    """A shuffled deck: a fixed bag of categories, one-hot, drawn without replacement (so not independent)."""
    code = rng.permutation(np.arange(n) % 7 % 4)
    suit = rng.permutation(code)
    return Examples(np.eye(4)[code], code * 1.0, _named(suit), (code + suit) * 1.0)


def _tiny(rng: Generator, n: int) -> Examples:
    """A handful of examples, some of them repeated."""
    chosen = rng.integers(0, n, n)
    return Examples(*(_taken(column, chosen) for column in _continuous(rng, n)))


def _taken(column: Any, chosen: Integers) -> Any:
    return [column[i] for i in chosen] if isinstance(column, list) else column[chosen]


def _named(codes: Integers) -> list[str]:
    return [f"class {code}" for code in codes.tolist()]


DATA: Mapping[str, Callable[[Generator, int], Examples]] = {
    "continuous": _continuous,
    "ties": _ties,
    "labelled": _labelled,
    "categorical": _categorical,
    "tiny": _tiny,
}
FORMS: Mapping[str, Callable[[Examples], tuple[Any, Any]]] = {  # how an example may be handed to a measure
    "rows and labels": lambda examples: (examples.rows, examples.labels),
    "numbers": lambda examples: (examples.numbers, examples.labels),
    "rows and targets": lambda examples: (examples.rows, examples.targets),
}


def examples(data: str, n: int, *, seed: int, run: int) -> tuple[Examples, int]:
    """The exchangeable sequence of one run and its seed of theta; the same for every measure, bet and alarm.

    >>> examples("ties", 3, seed=0, run=0)[0].labels
    ['class 0', 'class 0', 'class 1']
    """
    rng = np.random.default_rng([seed, list(DATA).index(data), run])
    return DATA[data](rng, n), int(rng.integers(2**63))


# ------------------------------------------------------------------ the exact binomial


def interval(count: int, runs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Clopper-Pearson: the probabilities that an exact binomial test would not reject. O(runs).

    >>> [round(end, 4) for end in interval(200, 4000)]
    [0.0415, 0.0596]

    Reference: Clopper and Pearson (1934).
    """
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if count == 0 else _least_probability(count, runs, tail)
    high = 1.0 if count == runs else 1.0 - _least_probability(runs - count, runs, tail)
    return low, high


def _least_probability(count: int, runs: int, tail: float) -> float:
    """The probability p with ``P(Bin(runs, p) >= count) = tail``, by bisection."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2.0) < high:
        low, high = (middle, high) if _at_least(runs, middle)[count] < tail else (low, middle)
    return high


def _at_least(runs: int, p: float) -> Floats:
    """``P(Bin(runs, p) >= k)`` for ``k = 0, ..., runs``, with p in (0, 1), the smallest terms added first. O(runs)."""
    k = np.arange(runs + 1)
    chances: Floats = np.exp(_log_binomials(runs) + k * math.log(p) + (runs - k) * math.log1p(-p))
    sums: Floats = np.cumsum(chances[::-1])[::-1]
    return sums


@lru_cache(maxsize=16)
def _log_binomials(runs: int) -> Floats:
    """``ln(runs over k)`` for ``k = 0, ..., runs``."""
    logs: Floats = np.array([math.lgamma(k + 1.0) for k in range(runs + 1)])
    binomials: Floats = logs[-1] - logs - logs[::-1]
    return binomials


def power(promise: float, runs: int, *, excess: float = EXCESS, confidence: float = CONFIDENCE) -> float:
    """The chance that a rate of ``excess`` times the promise would be called broken, exactly.

    That is ``P(Bin(runs, excess * promise) >= k)`` for the least k with ``P(Bin(runs, promise) >= k) <= tail``.

    >>> round(power(0.05, 4000), 3)
    0.936
    """
    if promise >= 1.0:
        return 0.0
    broken = np.flatnonzero(_at_least(runs, promise) <= (1.0 - confidence) / 2.0)
    if not len(broken):  # every run may raise an alarm without that being called broken
        return 0.0
    return 1.0 if excess * promise >= 1.0 else float(_at_least(runs, excess * promise)[broken[0]])


# ------------------------------------------------------------------ the certificate


class Certificate(NamedTuple):
    """What was promised and what was counted, for one measure, bet and alarm on one kind of exchangeable data."""

    measure: str
    bet: str
    alarm: str
    data: str
    runs: int
    steps: int
    promise: float  # of the chance of an alarm within these steps
    false_alarms: int
    mean_time: float  # steps to the first alarm, or to the end where there is none: at most the true mean
    mean_time_error: float  # its standard error

    @property
    def rate(self) -> float:
        """Runs with an alarm, as a part of all."""
        return self.false_alarms / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Exact 99 % interval of the probability of a false alarm."""
        return interval(self.false_alarms, self.runs)

    @property
    def power(self) -> float:
        """The chance that 1.3 times the promise would have been called broken."""
        return power(self.promise, self.runs)

    @property
    def verdict(self) -> str:
        """Is it "kept", "BROKEN" (the whole interval lies above the promise) or "undecided"?

        Undecided where there are too few runs: 1.3 times the promise lies in the interval, and would not have been
        called broken with probability 0.9.
        """
        low, high = self.interval
        if low > self.promise:
            return "BROKEN"
        return "kept" if high < EXCESS * self.promise or self.power >= POWER else "undecided"

    def record(self) -> dict[str, Any]:
        """All of it as plain data."""
        low, high = self.interval
        more = {"rate": self.rate, "low": low, "high": high, "power": self.power, "verdict": self.verdict}
        return self._asdict() | more


Made = str | Callable[[], Any]  # a name of the catalogue, or what makes a fresh object


class Survey(NamedTuple):
    """What to simulate, as plain data wherever all are named: every measure x bet x alarm on one kind of data."""

    measures: Sequence[Made]
    bets: Sequence[Made]
    alarms: Sequence[Made]
    data: str
    runs: int
    steps: int
    alpha: float
    seed: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many of each."""
        return len(self.measures), len(self.bets), len(self.alarms)


def certify(
    measure: Made = "nearest-neighbour",
    bet: Made | None = None,
    alarm: Made = "ville",
    *,
    data: str = "continuous",
    runs: int = 4000,
    steps: int = 250,
    alpha: float = 0.05,
    seed: int = 0,
    processes: int = 1,
    progress: Progress | None = None,
) -> Certificate:
    """Count the false alarms of one measure, bet and alarm on exchangeable data.

    Each is a name of the catalogue or a function that makes a fresh object; the default bet is the one that suits the
    alarm (`monitor.default_bet`). A named alarm is set so that the chance of an alarm within the steps is promised to
    be at most ``alpha`` (`level`). The same seed gives the same numbers on any number of processes; lambdas run in this
    process only. Time is that of ``runs`` runs, memory that of one.

    >>> from exchangeable import alarms, bets, measures
    >>> make = measures.NearestNeighbour, bets.SimpleMixture, lambda: alarms.Ville(0.2)
    >>> certify(*make, runs=50, steps=20).verdict
    'kept'
    """
    if bet is None:
        if isinstance(alarm, str):
            bet = catalogue.default_bet(alarm) if alarm in catalogue.ALARMS else "adaptive"  # refused below
        else:
            bet = type(default_bet(alarm()))
    survey = Survey([measure], [bet], [alarm], data, runs, steps, alpha, seed)
    return certify_all([survey], processes=processes, progress=progress)[0]


def certify_all(
    surveys: Sequence[Survey], *, processes: int = 1, progress: Progress | None = None
) -> list[Certificate]:
    """The certificates of all measures x bets x alarms of all surveys, in that order.

    A run's p-values are computed once for each measure, and its capital once for each bet, so that a table costs
    little more than its bets.
    """
    surveys = [_admitted(survey) for survey in surveys]
    processes = check_integer("processes", processes, 1, 1024)
    if processes > 1 and not all(_importable(made) for s in surveys for made in (*s.measures, *s.bets, *s.alarms)):
        raise ValueError(
            f"processes must be 1 unless measure, bet and alarm are names or functions of a module, got {processes}"
        )
    tallies = [np.zeros((3, *survey.shape), np.int64) for survey in surveys]
    work = [(i, survey, lo) for i, survey in enumerate(surveys) for lo in range(0, survey.runs, BLOCK)]
    for done, (i, tally) in enumerate(_done(work, processes), start=1):
        tallies[i] += tally
        if progress is not None:
            progress("runs", done, len(work))
    parts = zip(surveys, tallies, strict=True)
    return [certificate for survey, tally in parts for certificate in _certificates(survey, tally)]


Work = tuple[int, Survey, int]


def _done(work: list[Work], processes: int) -> Iterator[tuple[int, Integers]]:
    """The pieces of work in any order: sums of integers do not depend on it."""
    if processes == 1:
        yield from map(_piece, work)
        return
    # spawned: a forked copy of a process with threads (of the linear algebra) may hang
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _undisturbed) as pool:
        try:
            for future in as_completed([pool.submit(_piece, piece) for piece in work]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _undisturbed() -> None:
    """Leave an interrupt from the keyboard to the first process, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _piece(work: Work) -> tuple[int, Integers]:
    """A block of runs: how many had an alarm, the sum of the first times, and that of their squares."""
    i, survey, start = work
    tally = np.zeros((3, *survey.shape), np.int64)
    measures = [_maker(made, catalogue.MEASURES) for made in survey.measures]
    bets = [_maker(made, catalogue.BETS) for made in survey.bets]
    forms = [FORMS[form(make)] for make in measures]
    for run in range(start, min(start + BLOCK, survey.runs)):
        drawn, theta = examples(survey.data, survey.steps, seed=survey.seed, run=run)
        for m, measure in enumerate(measures):
            p = PValues(measure(), seed=theta).extend(*forms[m](drawn))
            for b, bet in enumerate(bets):
                path = Martingale(bet()).extend(p)
                for a, alarm in enumerate(survey.alarms):
                    first = _first(_alarm(alarm, survey), path)
                    time = first or survey.steps
                    tally[:, m, b, a] += (first > 0, time, time * time)
    return i, tally


def _first(alarm: Alarm, path: Floats) -> int:
    """The step (from 1) of the first alarm, or 0."""
    if hasattr(alarm, "extend"):
        sounds = alarm.extend(path)
        return int(sounds.argmax()) + 1 if sounds.any() else 0
    return next((n for n, value in enumerate(path.tolist(), start=1) if alarm.update(value)), 0)


def form(make: Callable[[], Measure]) -> str:
    """Which form of examples a measure takes: the first of ``FORMS`` that a fresh one admits.

    >>> from exchangeable.measures import NearestNeighbour
    >>> form(NearestNeighbour)
    'rows and labels'
    """
    drawn, _ = examples("continuous", 4, seed=0, run=0)
    for name, given in FORMS.items():
        try:
            make().extend(*given(drawn))
        except ValueError as error:
            refusal = error
        else:
            return name
    raise ValueError(f"measure must take {', or '.join(FORMS)}") from refusal


def level(name: str, alpha: float, steps: int) -> Alarm:
    """The alarm of that name with a promised chance of at most alpha to sound within the steps.

    >>> level("ville", 0.05, 250).threshold
    20.0
    """
    return LEVELS[name](alpha, steps)


LEVELS: Mapping[str, Callable[[float, int], Alarm]] = {
    "ville": lambda alpha, steps: Ville(alpha),
    "cusum": lambda alpha, steps: Cusum(steps / alpha),
    "shiryaev-roberts": lambda alpha, steps: ShiryaevRoberts(steps / alpha),
}


def promised(alarm: Alarm, steps: int) -> float:
    """The chance of an alarm within that many steps of exchangeable data is promised to be at most this.

    That is ``steps / period`` of an alarm with a period, and alpha, whatever the steps, of one with an alpha.

    >>> promised(Ville(0.05), 250)
    0.05
    """
    if hasattr(alarm, "period"):
        return min(1.0, steps / float(alarm.period))
    if hasattr(alarm, "alpha"):
        return float(alarm.alpha)
    raise ValueError(f"alarm must promise an alpha or a period, got {alarm!r}")


def _admitted(survey: Survey) -> Survey:
    """Lawful numbers, known names, and the few steps of tiny data."""
    if survey.data not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}, got {survey.data!r}")
    for what, given, names in (
        ("measure", survey.measures, catalogue.MEASURES),
        ("bet", survey.bets, catalogue.BETS),
        ("alarm", survey.alarms, LEVELS),
    ):
        for made in given:
            if isinstance(made, str) and made not in names:
                raise ValueError(f"{what} must be one of {', '.join(names)}, got {made!r}")
    steps = check_integer("steps", survey.steps, 1, 10**7)
    return survey._replace(
        runs=check_integer("runs", survey.runs, 1, 10**7),
        steps=min(steps, TINY) if survey.data == "tiny" else steps,
        alpha=check_interval("alpha", survey.alpha, LEAST, math.nextafter(1.0, 0.0), f"({LEAST:g}, 1)"),
        seed=check_integer("seed", survey.seed, 0, 2**64 - 1),
    )


def _certificates(survey: Survey, tally: Integers) -> Iterator[Certificate]:
    for m, b, a in np.ndindex(survey.shape):
        count, time, squares = tally[:, m, b, a].tolist()
        yield Certificate(
            measure=name(survey.measures[m]),
            bet=name(survey.bets[b]),
            alarm=name(survey.alarms[a]),
            data=survey.data,
            runs=survey.runs,
            steps=survey.steps,
            promise=promised(_alarm(survey.alarms[a], survey), survey.steps),
            false_alarms=count,
            mean_time=time / survey.runs,
            mean_time_error=math.sqrt((survey.runs * squares - time * time) / survey.runs) / survey.runs,
        )


def _importable(made: Made) -> bool:
    """Whether another process can find it: a name, or a function of a module (not a lambda, nor local)."""
    return isinstance(made, str) or "<" not in getattr(made, "__qualname__", "<")


def name(made: Made) -> str:
    """What a certificate calls it.

    >>> name("ville"), name(Ville)
    ('ville', 'Ville')
    """
    return made if isinstance(made, str) else getattr(made, "__name__", type(made).__name__)


def _alarm(made: Made, survey: Survey) -> Alarm:
    alarm: Alarm = level(made, survey.alpha, survey.steps) if isinstance(made, str) else made()
    return alarm


def _maker(made: Made, names: Mapping[str, Callable[[], Any]]) -> Callable[[], Any]:
    return names[made] if isinstance(made, str) else made
