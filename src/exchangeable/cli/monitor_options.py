"""Build a monitor from the options of a command."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import exchangeable as ex
from exchangeable import bets, catalogue
from exchangeable.alarms import Ville
from exchangeable.cli.errors import USAGE, CommandError, usage_errors
from exchangeable.cli.options import DEFAULT_ALARM
from exchangeable.cli.output import print_notes
from exchangeable.monitor import BetWarning
from exchangeable.rate import EVENTS, PERIOD
from exchangeable.risk import UNIT

if TYPE_CHECKING:
    from exchangeable.protocols import Alarm, Bet, Measure
    from exchangeable.pvalues import Precomputed

EVIDENCE_ALARMS = ("ville", "shiryaev-roberts")  # the alarms of ``--rate`` and ``--risk``


class MonitorOptions(NamedTuple):
    """The options that define a monitor. None stands for the default of the part that an option belongs to."""

    measure: str | None = None
    neighbours: int | None = None
    bet: str | None = None
    epsilon: float | None = None
    alarm: str = DEFAULT_ALARM.value
    alpha: float | None = None
    period: float | None = None
    on_alarm: str = "latch"
    seed: int | None = None

    def build(self, measure: Measure | Precomputed | None = None) -> ex.Monitor:
        """Build the monitor with ``measure``, by default the named one. Invalid options are a usage error.

        A bet that does not suit the alarm is reported on stderr.
        """
        parts = self._measure() if measure is None else measure, self._bet(), self._alarm()
        with warnings.catch_warnings(record=True) as caught, usage_errors():
            warnings.simplefilter("always", BetWarning)
            monitor = ex.Monitor(*parts, seed=self.seed, on_alarm=str(self.on_alarm))
        print_notes(str(warning.message) for warning in caught)
        return monitor

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `exchangeable.test` that these options set. Invalid options are a usage error."""
        self.build()
        alarm = {"alarm": self._alarm()} if self.alarm != "ville" else {}
        alpha = {} if self.alpha is None else {"alpha": self.alpha}
        return {"measure": self._measure(), "bet": self._bet(), "seed": self.seed, **alarm, **alpha}

    def _measure(self) -> Measure | None:
        """Return the named measure; None stands for the default."""
        if self.neighbours is None:
            return None if self.measure is None else catalogue.MEASURES[self.measure]()
        if not (self.measure or "").startswith("nearest-"):
            given = self.measure or "the default measure"
            raise CommandError(f"--neighbours applies only to the measures nearest-..., got {given}", USAGE)
        make: Callable[..., Measure] = catalogue.MEASURES[str(self.measure)]
        with usage_errors():
            return make(self.neighbours)

    def _bet(self) -> Bet | None:
        if self.epsilon is None:
            return None if self.bet is None else catalogue.BETS[self.bet]()
        if self.bet != "power" or not 0.0 < self.epsilon < 1.0:
            rule = "--epsilon must lie in (0, 1) and requires --bet power"
            raise CommandError(f"{rule}, got {self.epsilon} with {self.bet or 'the default bet'}", USAGE)
        return bets.Power(self.epsilon)

    def _alarm(self) -> Alarm:
        make: Callable[..., Alarm] = catalogue.ALARMS[self.alarm]
        value, other = (self.alpha, self.period) if self.alarm == "ville" else (self.period, self.alpha)
        if other is not None:
            rule = "--alpha requires --alarm ville, and --period requires another alarm"
            name = "period" if self.alarm == "ville" else "alpha"
            raise CommandError(f"{rule}, got --{name} with {self.alarm}", USAGE)
        with usage_errors():
            return make() if value is None else make(value)


def rate_monitor(options: MonitorOptions, alarm: str | None, values: str | None, direction: str) -> ex.RateMonitor:
    """Build the monitor of ``--rate``; ``alarm`` is that of the command line."""
    if options.alpha is not None and options.period is not None:
        raise CommandError("--rate needs --alpha or --period, got both", USAGE)
    alpha = Ville().alpha if alarm == "ville" and options.alpha is None else options.alpha
    numbers = EVENTS if values is None else _numbers("values", values)
    with usage_errors():
        return ex.RateMonitor(
            options.period, alpha=alpha, values=numbers, direction=direction, on_alarm=str(options.on_alarm)
        )


def risk_monitor(options: MonitorOptions, alarm: str | None, limit: float, bounds: str | None) -> ex.Risk:
    """Build the monitor of ``--risk``; ``alarm`` is that of the command line. Alpha is also that of the interval."""
    alpha = Ville().alpha if options.alpha is None else options.alpha
    period = PERIOD if alarm == "shiryaev-roberts" and options.period is None else options.period
    ends: Any = UNIT if bounds is None else _numbers("bounds", bounds)
    with usage_errors():
        return ex.Risk(limit, alpha=alpha, period=period, bounds=ends, on_alarm=str(options.on_alarm))


def check_unused(name: str, options: MonitorOptions, alarm: str | None, unused: Mapping[str, object]) -> None:
    """Check that no option is given that does not apply to ``--rate`` or ``--risk``, which ``name`` names."""
    given = {"neighbours": options.neighbours, "bet": options.bet, "epsilon": options.epsilon, **unused}
    given |= {"measure": None if options.measure == "value" else options.measure}
    for option, value in given.items():
        if value is not None:
            raise CommandError(f"--{option} does not apply to --{name}, got {value}", USAGE)
    if alarm not in (None, *EVIDENCE_ALARMS):
        raise CommandError(f"--alarm must be {' or '.join(EVIDENCE_ALARMS)} with --{name}, got {alarm}", USAGE)
    if alarm is not None:
        options._alarm()  # checks that alpha and period suit it


def _numbers(option: str, text: str) -> tuple[float | int, ...]:
    """Read the numbers of ``--values`` or ``--bounds``."""
    return tuple(_number(option, part) for part in text.split(","))


def _number(option: str, text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise CommandError(f"--{option} must be numbers separated by commas, got {text!r}", USAGE) from None
    return int(value) if value.is_integer() else value
