"""The verdict of a test as plain data, with the method that was used."""

from __future__ import annotations

import re
from typing import NamedTuple

from exchangeable import alarms, bets, measures
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Path

COMPARE_GUARANTEE = "If the two sets are a random split of one, the probability of a rejection is at most {:g}."
TEST_GUARANTEE = "On exchangeable data the probability that one test of this table rejects is at most {:g}{}."
SORTED_CLAUSE = ", plus at most 6e-7 for each column that was checked for being sorted"  # 2 / 10!: see `columns`


class Method(NamedTuple):
    """The parts of a monitor by name, with their parameters; None for a parameter that a part does not have."""

    measure: str
    neighbours: int | None
    bet: str
    epsilon: float | None
    alarm: str
    alpha: float | None
    period: float | None
    on_alarm: str
    seed: int

    @classmethod
    def of(cls, monitor: Monitor) -> Method:
        """Describe the parts of this monitor.

        >>> Method.of(Monitor(measures.NearestDistance(3)))[:4]
        ('nearest-distance', 3, 'adaptive', None)
        """
        measure, bet, alarm = part_name(monitor.measure), monitor.martingale.bet, monitor.alarm
        return cls(
            measure=measure,
            neighbours=getattr(monitor.measure, "k", None) if measure.startswith("nearest-") else None,
            bet=part_name(bet),
            epsilon=bet.epsilon if isinstance(bet, bets.Power) else None,
            alarm=part_name(alarm),
            alpha=getattr(alarm, "alpha", None),
            period=getattr(alarm, "period", None),
            on_alarm=monitor.on_alarm,
            seed=monitor.seed,
        )


class Verdict(NamedTuple):
    """The outcome of a test and the method used; None for what the method does not define."""

    file: str | None
    n: int
    n_features: int
    measure: str
    neighbours: int | None
    bet: str
    epsilon: float | None
    alarm: str
    alpha: float | None
    threshold: float | None
    period: float | None
    on_alarm: str
    scale: str
    log10_martingale: float
    log10_max: float
    rejected: bool
    rejected_at: int | None
    changepoint: int | None
    alarms: list[int]
    changepoints: list[int]
    seed: int
    guarantee: str


def summarise(path: Path, monitor: Monitor, n_features: int, name: str | None = None, scale: str = "none") -> Verdict:
    """Summarise the path of a monitor: exchangeability is rejected if the alarm was raised at least once."""
    log10 = path.log_value / LN10
    raised = path.alarm.nonzero()[0][: 1 if monitor.on_alarm == "latch" else None]
    return Verdict(
        file=name,
        n=len(path.n),
        n_features=n_features,
        threshold=monitor.alarm.threshold if isinstance(monitor.alarm, alarms.Ville) else None,  # of the capital
        log10_martingale=float(log10[-1]),
        log10_max=max(0.0, float(log10.max())),  # S_0 = 1
        rejected=len(raised) > 0,
        rejected_at=int(path.n[raised[0]]) if len(raised) else None,
        changepoint=path.changepoint(),
        alarms=path.n[raised].tolist(),
        changepoints=path.lowest[raised].tolist(),
        guarantee=path.guarantee,
        scale=scale,
        **Method.of(monitor)._asdict(),
    )


def part_name(part: object) -> str:
    """Return the name of a measure, bet or alarm as the command line spells it.

    >>> part_name(measures.Conditional(measures.NearestDistance()))
    'conditional-nearest-distance'
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(part).__name__).lower()
    return f"{name}-{part_name(part.measure)}" if isinstance(part, measures.Conditional) else name
