"""The straight line: example, p-value, capital, alarm."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.bets import Adaptive, Watchful
from exchangeable.martingale import Martingale, amount
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Alarm, Bet, Floats, Integers, Measure, Path, Step, is_alarm
from exchangeable.pvalues import Precomputed, PValues

P = TypeVar("P", float, Floats)
BLOCK, FEW = 1024, 16  # examples taken at a time after a restart: few at first, since what follows an alarm is redone


class BetWarning(UserWarning):
    """The bet does not suit the alarm."""


def default_bet(alarm: Alarm) -> Bet:
    """The default bet for an alarm: `Watchful` for `ShiryaevRoberts` and `Cusum`, `Adaptive` for all others.

    >>> from exchangeable import alarms
    >>> default_bet(alarms.Ville()), default_bet(alarms.Cusum(1000))
    (Adaptive(), Watchful())
    """
    return Watchful() if isinstance(alarm, (Cusum, ShiryaevRoberts)) else Adaptive()


def bet_advice(bet: Bet, alarm: Alarm) -> str | None:
    """Why this bet does not suit this alarm, in a sentence; None if it does.

    `Adaptive` learns to bet about 1 on noise. The Shiryaev-Roberts statistic then counts the examples, and the alarm
    sounds after about ``period`` of them, whatever they are: the promise holds, but the alarm is useless.
    """
    if not (isinstance(bet, Adaptive) and isinstance(alarm, ShiryaevRoberts)):
        return None
    return (
        "the bet Adaptive learns to stay idle on noise, so with ShiryaevRoberts the alarm sounds after about "
        f"{alarm.period:,.6g} examples even if nothing changes; use Watchful, which is the default for this alarm"
    )


class Monitor:
    """Watches examples for departures from exchangeability.

    By default: the paper's nearest-neighbour measure, the bet that suits the alarm (`default_bet`), and the alarm at
    1 %: on exchangeable data the chance that it ever sounds is at most one in a hundred. Time and memory are those of
    the measure and the bet.

    The monitor takes a copy of the alarm, which must be fresh; measure and bet are its own from then on.

    What follows an alarm is chosen by ``on_alarm``: with "latch" the alarm stays on; with "restart" the next example
    begins a fresh pool, a fresh bet and a capital of 1 (copies of the measure, bet and alarm as they were given), to
    find the next change. ``guarantee`` says what is promised. ``start`` is how many examples of the stream came before
    and are forgotten: they are counted on, and theta with them, so that a monitor made again never draws one again.

    ``seed`` is for the random tie-breaking: None draws a seed from the operating system, an integer makes a run
    repeatable. The seed is stored as ``monitor.seed``, shown in the ``repr`` and saved with the monitor.

    A monitor, like its parts, is for one thread at a time.

    ``last`` is the latest step; ``alarm_at`` and ``changepoint`` tell of the first alarm, or with restarts the latest.

    >>> monitor = Monitor(seed=1)
    >>> path = monitor.extend([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"])
    >>> path.alarm.any(), len(path.p), monitor.update([4.0], "a").n
    (np.False_, 4, 5)
    >>> monitor.guarantee
    'On exchangeable data the chance that this alarm ever sounds is at most 0.01.'

    Reference: Fedorova et al. (2012), sections 2 and 3.
    """

    def __init__(
        self,
        measure: Measure | Precomputed | None = None,
        bet: Bet | None = None,
        alarm: Alarm | None = None,
        *,
        seed: int | None = None,
        on_alarm: str = "latch",
        start: int = 0,
    ) -> None:
        measure = NearestNeighbour() if measure is None else measure
        self.pvalues = _stage(measure, seed, start)
        self.alarm: Alarm = Ville() if alarm is None else _own(alarm)
        self.martingale: Martingale = Martingale(default_bet(self.alarm) if bet is None else bet)
        advice = bet_advice(self.martingale.bet, self.alarm)
        if advice is not None:
            warnings.warn(advice, BetWarning, stacklevel=2)
        if on_alarm not in ("latch", "restart"):
            raise ValueError(f"on_alarm must be 'latch' or 'restart', got {on_alarm!r}")
        self.on_alarm = on_alarm
        self.alarm_at: int | None = None
        self.changepoint: int | None = None
        self.last: Step | None = None
        self._low, self._lowest = 0.0, self.n  # the least log capital since the start, and after how many examples
        self._high = 0.0  # the most
        self._broken = False
        self._fresh: tuple[PValues | Precomputed, Bet, Alarm] | None = None
        if on_alarm == "restart":
            if getattr(measure, "n", 0):
                law = "measure must be fresh where the monitor restarts: what it has seen would return at each start"
                raise ValueError(f"{law}, got one that has seen {measure.n} examples")  # type: ignore[union-attr]
            self._fresh = copy.deepcopy((self.pvalues, self.martingale.bet, self.alarm))

    def __repr__(self) -> str:
        seed = "" if isinstance(self.pvalues, Precomputed) else f", seed={self.seed}"
        after = "" if self.on_alarm == "latch" else f", on_alarm={self.on_alarm!r}"
        return f"Monitor({self.measure!r}, {self.martingale.bet!r}, {self.alarm!r}{seed}{after})"

    @property
    def n(self) -> int:
        """How many examples have been seen."""
        return self.pvalues.n

    @property
    def seed(self) -> int:
        """The seed of the tie-breaking."""
        return self.pvalues.seed

    @property
    def measure(self) -> Measure | Precomputed:
        """What ranks the examples now, or the p-values brought along."""
        return self.pvalues if isinstance(self.pvalues, Precomputed) else self.pvalues.measure

    @property
    def log_max(self) -> float:
        """The highest log capital of the test that the latest step belongs to; at least 0, since S_0 = 1."""
        return self._high

    @property
    def anytime_p(self) -> float | Decimal:
        """One over the highest capital so far: a p-value that may be looked at after every example.

        On exchangeable data the chance that it is *ever* at most a, however long one watches, is at most a. It is a
        `Decimal` where float64 cannot hold it. It is not defined with restarts, since each start is another chance.
        """
        if self.on_alarm == "restart":
            raise ValueError("anytime_p is not defined for a monitor that restarts: each start is another chance")
        return amount(-self._high)

    @property
    def guarantee(self) -> str:
        """What the alarm promises on exchangeable data, in words."""
        name = "guarantee" if self.on_alarm == "latch" else "guarantee_with_restarts"
        return str(getattr(self.alarm, name, "This alarm states no guarantee."))

    def update(self, x: Any, y: Any = None) -> Step:
        """Take one example. If it is refused, the monitor stays as it was."""
        p = self._ranked(self.pvalues.update, x, y)
        n = self.n
        log_value = self.martingale.update(p)
        sounds, lowest = bool(self.alarm.update(log_value)), self._lowest
        if log_value <= self._low:
            self._low, self._lowest = log_value, n
        self._high = max(self._high if self.martingale.n > 1 else 0.0, log_value)
        if sounds and (self.alarm_at is None or self._fresh is not None):
            self.alarm_at, self.changepoint = n, lowest
        if sounds and self._fresh is not None:
            self._restart(self._fresh, n)
        self._broken = False
        self.last = Step(n, p, log_value, sounds if self._fresh is not None else self.alarm_at is not None)
        return self.last

    def extend(self, X: Any, y: Any = None) -> Path:
        """Take many examples: the same numbers as one by one. If one of them is refused, none is taken."""
        y = list(y) if isinstance(y, Iterator) else y
        before = None if self._fresh is None else copy.deepcopy(vars(self))
        start = self.n
        p = self._ranked(self.pvalues.extend, X, y)
        try:
            return self._line(start, p, X, y)
        except Exception:
            if before is not None:  # the rest was refused after a restart
                vars(self).update(before)
            raise

    def _line(self, start: int, p: Floats, X: Any, y: Any) -> Path:
        """Bet on the examples after ``start``; after a restart the rest is ranked again."""
        stop = start + len(p)
        parts, size = [self._bet(start, p)], FEW
        while self.n < stop:
            rest = slice(self.n - start, self.n - start + size)
            p = self.pvalues.extend(_rows(X, rest), None if y is None else _rows(y, rest))
            parts.append(self._bet(self.n - len(p), p))
            size = FEW if parts[-1].alarm.any() else min(2 * size, BLOCK)
        self._broken = False
        path = Path.join(parts)
        if len(path.n):
            self.last = Step(int(path.n[-1]), float(path.p[-1]), float(path.log_value[-1]), bool(path.alarm[-1]))
        return path

    def _bet(self, start: int, p: Floats) -> Path:
        """Bet on the p-values after example ``start``: on all, or up to an alarm that is followed by a restart."""
        peak = self._high if self.martingale.n else 0.0
        log_value = self.martingale.extend(p)
        alarm = _sounds(self.alarm, log_value)
        n = np.arange(start + 1, start + 1 + len(p))
        path = Path(n, p, log_value, alarm, self._minima(n, log_value), self.guarantee)
        if self._fresh is not None and alarm.any():
            path = path.first(int(alarm.argmax()) + 1)
        self._high = float(path.log_value.max(initial=peak)) if len(p) else self._high
        if self._fresh is None:
            return self._latch(path)
        if alarm.any():
            self._note(path)
            self._restart(self._fresh, int(path.n[-1]))
        return path

    def _minima(self, n: Integers, log_value: Floats) -> Integers:
        """After how many examples the capital was lowest, up to the step before each."""
        lows = np.minimum.accumulate(np.concatenate([[self._low], log_value]))
        places = np.concatenate([[self._lowest], np.where(log_value <= lows[1:], n, 0)])
        lowest = np.maximum.accumulate(places)
        self._low, self._lowest = float(lows[-1]), int(lowest[-1])
        return lowest[:-1]

    def _latch(self, path: Path) -> Path:
        """Leave the alarm on from where it first sounds."""
        if self.alarm_at is None:
            self._note(path)
        if self.alarm_at is not None and self.changepoint is not None:
            since = path.n >= self.alarm_at
            path.alarm[since] = True
            path.lowest[since] = self.changepoint
        return path

    def _note(self, path: Path) -> None:
        if path.alarm.any():
            self.alarm_at, self.changepoint = int(path.n[path.alarm.argmax()]), path.changepoint()

    def _restart(self, fresh: tuple[PValues | Precomputed, Bet, Alarm], n: int) -> None:
        """Begin again with example n + 1; the tie-breaking goes on."""
        self.pvalues, bet, self.alarm = copy.deepcopy(fresh)
        self.pvalues.n = n
        self.martingale = Martingale(bet)
        self._low, self._lowest = 0.0, n

    def _ranked(self, rank: Callable[[Any, Any], P], x: Any, y: Any) -> P:
        """The p-values of examples; from here until they are bet on, the monitor counts as broken.

        An error of the measure is a refusal and changes nothing. Any other interruption leaves measure, bet and alarm
        at different examples.
        """
        if self._broken:
            raise ValueError("a monitor that was interrupted in the middle of an example must not be used any more")
        self._broken = True
        try:
            return rank(x, y)
        except Exception:
            self._broken = False
            raise


def _stage(measure: Measure | Precomputed, seed: int | None, start: int) -> PValues | Precomputed:
    """What turns examples into p-values, or p-values that are brought along."""
    if not isinstance(measure, Precomputed):
        return PValues(measure, seed=seed, start=start)
    if measure.n:
        raise ValueError(f"measure must be fresh, got p-values of which {measure.n} have been taken")
    return Precomputed(start=start)


def _sounds(alarm: Alarm, log_value: Floats) -> NDArray[np.bool_]:
    if hasattr(alarm, "extend"):
        return np.array(alarm.extend(log_value), np.bool_)
    return np.fromiter((alarm.update(value) for value in log_value.tolist()), np.bool_, len(log_value))


def _rows(table: Any, part: slice) -> Any:
    """Some rows of an array, list, frame or other collection; what is none of these is a label that plays no part."""
    if hasattr(table, "iloc"):
        return table.iloc[part]
    try:
        return table[part]
    except TypeError:
        return list(table)[part] if isinstance(table, Iterable) else table


def _own(alarm: Alarm) -> Alarm:
    """A copy, so that no other monitor speaks to it; what an alarm has read before would count as this stream's."""
    if not is_alarm(alarm):
        raise ValueError(f"alarm must be an alarm (with update of a log value), got {alarm!r}")
    if getattr(alarm, "n", 0):
        raise ValueError(f"alarm must be fresh, got one that has read {alarm.n} values")  # type: ignore[attr-defined]
    return copy.deepcopy(alarm)
