"""From the options of a test to its monitor."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import exchangeable as ex
from exchangeable import bets, catalogue
from exchangeable.cli.failures import USAGE, Failure, usage
from exchangeable.cli.notes import note
from exchangeable.cli.options import ALARM, MEASURE
from exchangeable.monitor import BetWarning

if TYPE_CHECKING:
    from exchangeable.data.files import LabelKind
    from exchangeable.protocols import Alarm, Bet, Measure
    from exchangeable.pvalues import Precomputed


class Reading(NamedTuple):
    """What a measure makes of a table: the kind of labels, how many rows before it takes long, how many features."""

    labels: LabelKind
    max_rows: int = 100_000
    width: int | None = None


READINGS: Mapping[str, Reading] = {
    "nearest-neighbour": Reading("classes"),
    "nearest-distance": Reading("none"),
    "nearest-residual": Reading("numbers"),
    "value": Reading("none", max_rows=10_000_000, width=1),
    "conditional-nearest-neighbour": Reading("classes"),
    "conditional-nearest-distance": Reading("classes"),
}


class Choice(NamedTuple):
    """The options of a test; None is the default of what they belong to."""

    measure: str = MEASURE.value
    neighbours: int | None = None
    bet: str | None = None
    epsilon: float | None = None
    alarm: str = ALARM.value
    alpha: float | None = None
    period: float | None = None
    on_alarm: str = "latch"
    seed: int | None = None

    def monitor(self, measure: Measure | Precomputed | None = None, *, advise: bool = True) -> ex.Monitor:
        """The monitor, with the given measure or the named one; invalid options are a usage error.

        With ``advise``, a bet that does not suit the alarm is reported on stderr.
        """
        parts = self._measure() if measure is None else measure, self._bet(), self._alarm()
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", BetWarning)
            monitor: ex.Monitor = usage(lambda: ex.Monitor(*parts, seed=self.seed, on_alarm=self.on_alarm))
        note(str(warning.message) for warning in raised if advise)
        return monitor

    def _measure(self) -> Measure:
        make: Callable[..., Measure] = catalogue.MEASURES[self.measure]
        if self.neighbours is None:
            return make()
        if not self.measure.startswith("nearest-"):
            raise Failure(f"--neighbours goes with the measures nearest-..., got it with {self.measure}", USAGE)
        measure: Measure = usage(lambda: make(self.neighbours))
        return measure

    def _bet(self) -> Bet | None:
        if self.epsilon is None:
            return None if self.bet is None else catalogue.BETS[self.bet]()
        if self.bet != "power" or not 0.0 < self.epsilon < 1.0:
            law = "--epsilon must lie in (0, 1) and goes with --bet power"
            raise Failure(f"{law}, got {self.epsilon} with {self.bet or 'the default bet'}", USAGE)
        return bets.Power(self.epsilon)

    def _alarm(self) -> Alarm:
        make: Callable[..., Alarm] = catalogue.ALARMS[self.alarm]
        own, other = (self.alpha, self.period) if self.alarm == "ville" else (self.period, self.alpha)
        if other is not None:
            law = "--alpha goes with --alarm ville, and --period with the other alarms"
            raise Failure(f"{law}, got --{'period' if self.alarm == 'ville' else 'alpha'} with {self.alarm}", USAGE)
        alarm: Alarm = make() if own is None else usage(lambda: make(own))
        return alarm
