"""Certificates of validity: false alarms on simulated exchangeable data, compared with the promised rate."""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, NamedTuple

import numpy as np

from exchangeable import catalogue
from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.martingale import Martingale
from exchangeable.monitor import default_bet
from exchangeable.protocols import Alarm, Floats, Integers
from exchangeable.pvalues import PValues
from exchangeable.research.binomial import EXCESS, interval, power
from exchangeable.research.simulated import DATA, FORMS, TINY, accepted_form, simulate
from exchangeable.validation import check_integer, check_interval

Progress = Callable[[str, int, int], object]  # task, done, total

POWER = 0.9  # the probability with which the runs should detect an excess
MIN_ALPHA = 1e-200  # so that steps / alpha is a valid period
BLOCK = 25  # runs of one task


class Certificate(NamedTuple):
    """The promised and the counted false alarms of a measure, bet and alarm on one kind of exchangeable data."""

    measure: str
    bet: str
    alarm: str
    data: str
    runs: int
    steps: int
    promise: float  # the largest probability of an alarm within these steps
    false_alarms: int
    mean_time: float  # steps to the first alarm, or to the end if there is none; at most the true mean
    mean_time_error: float  # its standard error

    @property
    def rate(self) -> float:
        """The share of runs with an alarm."""
        return self.false_alarms / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 99 % interval of the probability of a false alarm."""
        return interval(self.false_alarms, self.runs)

    @property
    def power(self) -> float:
        """The probability that 1.3 times the promised rate would have counted as broken."""
        return power(self.promise, self.runs)

    @property
    def verdict(self) -> str:
        """Whether the promise is "kept", "BROKEN" (the interval lies above it) or "undecided".

        Undecided means too few runs: 1.3 times the promised rate lies in the interval, and would have counted as broken
        with a probability of less than 0.9.
        """
        low, high = self.interval
        if low > self.promise:
            return "BROKEN"
        return "kept" if high < EXCESS * self.promise or self.power >= POWER else "undecided"

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data."""
        low, high = self.interval
        more = {"rate": self.rate, "low": low, "high": high, "power": self.power, "verdict": self.verdict}
        return self._asdict() | more


Factory = str | Callable[[], Any]  # a name of the catalogue, or a function that returns a fresh object


class Survey(NamedTuple):
    """What to simulate: every measure x bet x alarm on one kind of data."""

    measures: Sequence[Factory]
    bets: Sequence[Factory]
    alarms: Sequence[Factory]
    data: str
    runs: int
    steps: int
    alpha: float
    seed: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of measures, bets and alarms."""
        return len(self.measures), len(self.bets), len(self.alarms)


def certify(
    measure: Factory = "nearest-neighbour",
    bet: Factory | None = None,
    alarm: Factory = "ville",
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

    Each is a name of the catalogue or a function that returns a fresh object; the default bet is the one that suits the
    alarm (`monitor.default_bet`). A named alarm is set up so that the probability of an alarm within the steps is
    promised to be at most ``alpha`` (`named_alarm`). The same seed gives the same numbers on any number of processes;
    lambdas need ``processes=1``. Time is that of ``runs`` runs, memory that of one.

    >>> from exchangeable import alarms, bets, measures
    >>> make = measures.NearestNeighbour, bets.SimpleMixture, lambda: alarms.Ville(0.2)
    >>> certify(*make, runs=50, steps=20).verdict
    'kept'
    """
    if bet is None:
        if isinstance(alarm, str):
            bet = catalogue.default_bet(alarm) if alarm in catalogue.ALARMS else "adaptive"  # rejected below
        else:
            bet = type(default_bet(alarm()))
    survey = Survey([measure], [bet], [alarm], data, runs, steps, alpha, seed)
    return certify_all([survey], processes=processes, progress=progress)[0]


def certify_all(
    surveys: Sequence[Survey], *, processes: int = 1, progress: Progress | None = None
) -> list[Certificate]:
    """Return the certificates of all measures x bets x alarms of all surveys, in that order.

    A run's p-values are computed once for each measure, and its capital once for each bet, so that a table costs
    little more than its bets.
    """
    surveys = [_check_survey(survey) for survey in surveys]
    processes = check_integer("processes", processes, 1, 1024)
    if processes > 1 and not all(
        _importable(factory) for s in surveys for factory in (*s.measures, *s.bets, *s.alarms)
    ):
        raise ValueError(
            f"processes must be 1 unless measure, bet and alarm are names or functions of a module, got {processes}"
        )
    tallies = [np.zeros((3, *survey.shape), np.int64) for survey in surveys]
    work = [(i, survey, lo) for i, survey in enumerate(surveys) for lo in range(0, survey.runs, BLOCK)]
    for done, (i, tally) in enumerate(_run_tasks(work, processes), start=1):
        tallies[i] += tally
        if progress is not None:
            progress("runs", done, len(work))
    parts = zip(surveys, tallies, strict=True)
    return [certificate for survey, tally in parts for certificate in _certificates(survey, tally)]


Task = tuple[int, Survey, int]  # the position of the survey, the survey, its first run


def _run_tasks(work: list[Task], processes: int) -> Iterator[tuple[int, Integers]]:
    """Run the tasks and yield their counts, in any order: sums of integers do not depend on it."""
    if processes == 1:
        yield from map(_run_task, work)
        return
    # spawned: a forked copy of a process with threads (of the linear algebra) may hang
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _ignore_interrupts) as pool:
        try:
            for future in as_completed([pool.submit(_run_task, task) for task in work]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _ignore_interrupts() -> None:
    """Leave keyboard interrupts to the main process, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_task(task: Task) -> tuple[int, Integers]:
    """Run a block of runs: count those with an alarm, and sum the times of the first alarm and their squares."""
    i, survey, start = task
    tally = np.zeros((3, *survey.shape), np.int64)
    measures = [_factory(factory, catalogue.MEASURES) for factory in survey.measures]
    bets = [_factory(factory, catalogue.BETS) for factory in survey.bets]
    forms = [FORMS[accepted_form(make)] for make in measures]
    for run in range(start, min(start + BLOCK, survey.runs)):
        drawn, theta = simulate(survey.data, survey.steps, seed=survey.seed, run=run)
        for m, measure in enumerate(measures):
            p = PValues(measure(), seed=theta).extend(*forms[m](drawn))
            for b, bet in enumerate(bets):
                path = Martingale(bet()).extend(p)
                for a, alarm in enumerate(survey.alarms):
                    first = _first_alarm(_alarm(alarm, survey), path)
                    time = first or survey.steps
                    tally[:, m, b, a] += (first > 0, time, time * time)
    return i, tally


def _first_alarm(alarm: Alarm, path: Floats) -> int:
    """Return the step, counted from 1, of the first alarm; 0 without one."""
    if hasattr(alarm, "extend"):
        raised = alarm.extend(path)
        return int(raised.argmax()) + 1 if raised.any() else 0
    return next((n for n, value in enumerate(path.tolist(), start=1) if alarm.update(value)), 0)


def named_alarm(name: str, alpha: float, steps: int) -> Alarm:
    """Return the alarm of this name that is raised within the steps with a probability of at most alpha.

    >>> named_alarm("ville", 0.05, 250).threshold
    20.0
    """
    return NAMED_ALARMS[name](alpha, steps)


NAMED_ALARMS: Mapping[str, Callable[[float, int], Alarm]] = {
    "ville": lambda alpha, steps: Ville(alpha),
    "cusum": lambda alpha, steps: Cusum(steps / alpha),
    "shiryaev-roberts": lambda alpha, steps: ShiryaevRoberts(steps / alpha),
}


def promised_rate(alarm: Alarm, steps: int) -> float:
    """Return the largest probability of an alarm within these steps of exchangeable data.

    It is ``steps / period`` for an alarm with a period, and alpha, whatever the steps, for one with an alpha.

    >>> promised_rate(Ville(0.05), 250)
    0.05
    """
    if hasattr(alarm, "period"):
        return min(1.0, steps / float(alarm.period))
    if hasattr(alarm, "alpha"):
        return float(alarm.alpha)
    raise ValueError(f"alarm must promise an alpha or a period, got {alarm!r}")


def _check_survey(survey: Survey) -> Survey:
    """Check names and numbers, and limit the steps of tiny data."""
    if survey.data not in DATA:
        raise ValueError(f"data must be one of {', '.join(DATA)}, got {survey.data!r}")
    for role, factories, names in (
        ("measure", survey.measures, catalogue.MEASURES),
        ("bet", survey.bets, catalogue.BETS),
        ("alarm", survey.alarms, NAMED_ALARMS),
    ):
        for factory in factories:
            if isinstance(factory, str) and factory not in names:
                raise ValueError(f"{role} must be one of {', '.join(names)}, got {factory!r}")
    steps = check_integer("steps", survey.steps, 1, 10**7)
    return survey._replace(
        runs=check_integer("runs", survey.runs, 1, 10**7),
        steps=min(steps, TINY) if survey.data == "tiny" else steps,
        alpha=check_interval("alpha", survey.alpha, MIN_ALPHA, math.nextafter(1.0, 0.0), f"({MIN_ALPHA:g}, 1)"),
        seed=check_integer("seed", survey.seed, 0, 2**64 - 1),
    )


def _certificates(survey: Survey, tally: Integers) -> Iterator[Certificate]:
    for m, b, a in np.ndindex(survey.shape):
        count, time, squares = tally[:, m, b, a].tolist()
        yield Certificate(
            measure=display_name(survey.measures[m]),
            bet=display_name(survey.bets[b]),
            alarm=display_name(survey.alarms[a]),
            data=survey.data,
            runs=survey.runs,
            steps=survey.steps,
            promise=promised_rate(_alarm(survey.alarms[a], survey), survey.steps),
            false_alarms=count,
            mean_time=time / survey.runs,
            mean_time_error=math.sqrt((survey.runs * squares - time * time) / survey.runs) / survey.runs,
        )


def _importable(factory: Factory) -> bool:
    """Return whether another process can import a factory: a name, or a function of a module (no lambda, not local)."""
    return isinstance(factory, str) or "<" not in getattr(factory, "__qualname__", "<")


def display_name(factory: Factory) -> str:
    """Return the name shown in a certificate.

    >>> display_name("ville"), display_name(Ville)
    ('ville', 'Ville')
    """
    return factory if isinstance(factory, str) else getattr(factory, "__name__", type(factory).__name__)


def _alarm(factory: Factory, survey: Survey) -> Alarm:
    alarm: Alarm = named_alarm(factory, survey.alpha, survey.steps) if isinstance(factory, str) else factory()
    return alarm


def _factory(factory: Factory, names: Mapping[str, Callable[[], Any]]) -> Callable[[], Any]:
    return names[factory] if isinstance(factory, str) else factory
