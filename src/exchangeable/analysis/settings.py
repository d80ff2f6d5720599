"""How a table is tested: the arguments that `test` and `compare` share, and the parts of the test."""

from __future__ import annotations

from typing import NamedTuple

from exchangeable.alarms import Ville
from exchangeable.bets import Idle
from exchangeable.martingale import Martingale
from exchangeable.measures import Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure, is_measure
from exchangeable.validation import check_integer, format_value

DEFAULT_ALPHA = 0.01
MAX_ROWS = 50_000  # for nearest neighbours, whose time grows with the square of the rows
COLUMNS = ("auto", "each", "none")


class Parts(NamedTuple):
    """Measure and bets as they were before the first row."""

    measure: Measure
    bet: Bet
    column_bet: Bet  # for columns and views
    neighbours: Measure | None = None  # that of full rows with more neighbours, as a view of the table


class Settings(NamedTuple):
    """Measure, bet, alarm and options as the user gave them; None stands for the default."""

    measure: Measure | None = None
    bet: Bet | None = None
    alarm: Alarm | None = None
    on_alarm: str = "latch"
    alpha: float = DEFAULT_ALPHA
    seed: int | None = None
    scale: str = "auto"
    columns: str = "auto"
    max_rows: int = MAX_ROWS

    @property
    def used_alarm(self) -> Alarm:
        """The alarm: Ville's at ``alpha`` unless another one is given."""
        return Ville(self.alpha) if self.alarm is None else self.alarm

    @property
    def weighted(self) -> bool:
        """Whether several martingales can share alpha: only with Ville's alarm that stays on."""
        return isinstance(self.used_alarm, Ville) and self.on_alarm == "latch"

    def check(self) -> None:
        """Raise ValueError if an argument is invalid, before any data is read."""
        self._check_measure()
        if self.alarm is not None and self.alpha != DEFAULT_ALPHA:
            raise ValueError(f"alpha and alarm cannot both be given, got alpha={self.alpha} and alarm={self.alarm!r}")
        Ville(self.alpha)
        Martingale(Idle() if self.bet is None else self.bet)
        Monitor(Value(), Idle(), self.alarm, seed=self.seed or 0, on_alarm=self.on_alarm)
        check_integer("max_rows", self.max_rows, 2, 2**53)
        if self.columns not in COLUMNS:
            raise ValueError(f"columns must be 'auto', 'each' or 'none', got {format_value(self.columns)}")
        if self.columns == "each" and not self.weighted:
            raise ValueError(
                "columns must be 'auto' or 'none' unless the alarm is Ville and on_alarm is 'latch', got 'each'"
            )

    def _check_measure(self) -> None:
        if self.measure is not None and not is_measure(self.measure):
            expected = "measure must be a measure such as measures.NearestDistance()"
            raise ValueError(f"{expected}, got {format_value(self.measure)}")
        if seen := getattr(self.measure, "n", 0):
            raise ValueError(f"measure must be fresh, got one that has seen {seen} examples")
