"""The straight line: example, p-value, capital, alarm."""

from __future__ import annotations

from typing import Any

import numpy as np

from exchangeable.alarms import Ville
from exchangeable.bets import Plugin
from exchangeable.martingale import Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Alarm, Bet, Measure, Path, Step
from exchangeable.pvalues import PValues


class Monitor:
    """Watches examples for departures from exchangeability.

    By default: the paper's nearest-neighbour measure, the paper's plug-in bet, and the alarm at 1 %: on exchangeable
    data the chance of ever an alarm is at most one in a hundred. Time and memory are those of the measure and the bet.

    >>> monitor = Monitor(seed=1)
    >>> path = monitor.extend([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"])
    >>> path.alarm.any(), len(path.p), monitor.update([4.0], "a").n
    (np.False_, 4, 5)

    Reference: Fedorova et al. (2012), sections 2 and 3.
    """

    def __init__(
        self, measure: Measure | None = None, bet: Bet | None = None, alarm: Alarm | None = None, *, seed: int = 0
    ) -> None:
        self.pvalues = PValues(NearestNeighbour() if measure is None else measure, seed=seed)
        self.martingale = Martingale(Plugin() if bet is None else bet)
        self.alarm: Alarm = Ville() if alarm is None else alarm
        if isinstance(self.alarm, type) or not isinstance(self.alarm, Alarm):
            raise ValueError(f"alarm must have update, got {alarm!r}")

    @property
    def seed(self) -> int:
        """The seed of the tie-breaking."""
        return self.pvalues.seed

    def update(self, x: Any, y: Any = None) -> Step:
        """Take one example."""
        p = self.pvalues.update(x, y)
        log_value = self.martingale.update(p)
        return Step(self.martingale.n, p, log_value, self.alarm.update(log_value))

    def extend(self, X: Any, y: Any = None) -> Path:
        """Take many examples: the same numbers as one by one."""
        start = self.martingale.n
        p = self.pvalues.extend(X, y)
        log_value = self.martingale.extend(p)
        alarm = np.fromiter((self.alarm.update(value) for value in log_value.tolist()), np.bool_, len(log_value))
        return Path(np.arange(start + 1, start + 1 + len(p)), p, log_value, alarm)
