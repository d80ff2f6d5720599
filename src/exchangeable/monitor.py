"""The full pipeline for one stream: example, p-value, capital, alarm."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.alarms import Cusum, ShiryaevRoberts, Ville
from exchangeable.bets import Adaptive, Sentinel
from exchangeable.martingale import Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Alarm, Bet, Floats, Measure, Path, Step, is_alarm
from exchangeable.pvalues import Precomputed, PValues
from exchangeable.tracker import Tracker

P = TypeVar("P", float, Floats)
MAX_BATCH, FIRST_BATCH = 1024, 16  # rows after a restart: few at first, since those after an alarm are ranked again


class BetWarning(UserWarning):
    """The bet does not suit the alarm."""


def default_bet(alarm: Alarm) -> Bet:
    """Return the default bet for an alarm: `Sentinel` for `ShiryaevRoberts` and `Cusum`, `Adaptive` for all others.

    >>> from exchangeable import alarms
    >>> default_bet(alarms.Ville()), default_bet(alarms.Cusum(1000))
    (Adaptive(), Sentinel())
    """
    return Sentinel() if isinstance(alarm, (Cusum, ShiryaevRoberts)) else Adaptive()


def bet_advice(bet: Bet, alarm: Alarm) -> str | None:
    """Return a sentence that explains why this bet does not suit this alarm; None if it does.

    `Adaptive` learns to bet about 1 on noise. The Shiryaev-Roberts statistic then counts the examples, and the alarm
    is raised after about ``period`` of them, whatever they are: the guarantee holds, but the alarm is useless.
    """
    if not (isinstance(bet, Adaptive) and isinstance(alarm, ShiryaevRoberts)):
        return None
    return (
        "the bet Adaptive learns to stay idle on noise, so with ShiryaevRoberts the alarm is raised after about "
        f"{alarm.period:,.6g} examples even if nothing changes; use Sentinel, which is the default for this alarm"
    )


class Monitor(Tracker):
    """Watches examples for departures from exchangeability.

    By default the measure is the paper's `NearestNeighbour`, the bet is the one that suits the alarm (`default_bet`),
    and the alarm is `Ville` at 1 %: on exchangeable data the probability that it is ever raised is at most 0.01. Time
    and memory are those of the measure and the bet; the history of the capital for ``plot`` takes 3.3 kB.

    The monitor copies the alarm, which must be fresh. It takes over the measure and the bet: do not use them elsewhere.

    ``on_alarm`` chooses what follows an alarm. With "latch" the alarm stays on. With "restart" the next example starts
    a new test with an empty pool, a fresh bet and a capital of 1 (copies of the measure, bet and alarm that were passed
    in), to find the next change. ``guarantee`` states what is guaranteed. ``start`` is the number of earlier examples
    of the stream that are not used: numbering continues after them, so that no random tie-breaking number is drawn
    twice.

    ``seed`` is for the random tie-breaking: None draws a seed from the operating system, an integer makes a run
    repeatable. The seed is stored as ``monitor.seed``, shown in the ``repr`` and saved with the monitor.

    A monitor must not be used by several threads at once.

    ``last`` is the latest step. ``alarm_at`` and ``changepoint`` describe the first alarm, or with restarts the latest.

    >>> monitor = Monitor(seed=1)
    >>> path = monitor.extend([[0.0], [1.0], [2.0], [3.0]], ["a", "b", "a", "b"])
    >>> path.alarm.any(), len(path.p), monitor.update([4.0], "a").n
    (np.False_, 4, 5)
    >>> monitor.guarantee
    'On exchangeable data the chance that this alarm is ever raised is at most 0.01.'

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
        self.pvalues: PValues | Precomputed = _p_value_source(measure, seed, start)
        self.alarm: Alarm = Ville() if alarm is None else _fresh_copy(alarm)
        self.martingale: Martingale = Martingale(default_bet(self.alarm) if bet is None else bet)
        advice = bet_advice(self.martingale.bet, self.alarm)
        if advice is not None:
            warnings.warn(advice, BetWarning, stacklevel=2)
        super().__init__(on_alarm, self.pvalues.n)
        self.last: Step | None = None
        self._interrupted = False
        self._fresh: tuple[PValues | Precomputed, Bet, Alarm] | None = None
        if on_alarm == "restart":
            if getattr(measure, "n", 0):
                rule = (
                    "measure must be fresh if the monitor restarts: its earlier examples would return with each restart"
                )
                raise ValueError(f"{rule}, got one that has seen {measure.n} examples")  # type: ignore[union-attr]
            self._fresh = copy.deepcopy((self.pvalues, self.martingale.bet, self.alarm))

    def __repr__(self) -> str:
        seed = "" if isinstance(self.pvalues, Precomputed) else f", seed={self.seed}"
        after = "" if self.on_alarm == "latch" else f", on_alarm={self.on_alarm!r}"
        return f"Monitor({self.measure!r}, {self.martingale.bet!r}, {self.alarm!r}{seed}{after})"

    @property
    def n(self) -> int:
        """The number of examples so far."""
        return self.pvalues.n

    @property
    def seed(self) -> int:
        """The seed of the tie-breaking."""
        return self.pvalues.seed

    @property
    def measure(self) -> Measure | Precomputed:
        """The measure that currently ranks the examples, or `Precomputed`."""
        return self.pvalues if isinstance(self.pvalues, Precomputed) else self.pvalues.measure

    @property
    def log_value(self) -> float:
        """The log capital of the current test: the evidence so far."""
        return self.martingale.log_value

    @property
    def capital_level(self) -> float | None:
        """The capital that raises the alarm; None if the alarm depends on more than the capital."""
        return self.alarm.threshold if isinstance(self.alarm, Ville) else None

    @property
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees on exchangeable data."""
        name = "guarantee" if self.on_alarm == "latch" else "guarantee_with_restarts"
        return str(getattr(self.alarm, name, "This alarm states no guarantee."))

    def update(self, x: Any, y: Any = None) -> Step:
        """Consume one example. If it is rejected, the monitor stays as it was."""
        p = self._rank(self.pvalues.update, x, y)
        log_value = self.martingale.update(p)
        raised, restart = bool(self.alarm.update(log_value)), self._fresh is not None
        alarm = bool(native.track_step(self._integers, self._reals, restart, log_value, raised))
        self._history.update(self._integers, log_value, restart)
        if raised and restart:
            self._restart()
        self._interrupted = False
        self.last = Step(self.pvalues.n, p, log_value, alarm)
        return self.last

    def extend(self, X: Any, y: Any = None) -> Path:
        """Consume many examples: the same numbers as one by one. If one of them is rejected, none is consumed."""
        y = list(y) if isinstance(y, Iterator) else y
        before = None if self._fresh is None else copy.deepcopy(vars(self))
        p = self._rank(self.pvalues.extend, X, y)
        try:
            return self._bet_on_all(p, X, y)
        except Exception:
            if before is not None:  # an example after a restart was rejected
                vars(self).update(before)
            raise

    def _bet_on_all(self, p: Floats, X: Any, y: Any) -> Path:
        """Bet on the p-values of all examples; after a restart the remaining examples are ranked again."""
        start = self.n - len(p)
        stop, parts, size = self.n, [self._bet(p)], FIRST_BATCH
        while self.n < stop:
            rest = slice(self.n - start, self.n - start + size)
            parts.append(self._bet(self.pvalues.extend(_rows(X, rest), None if y is None else _rows(y, rest))))
            size = FIRST_BATCH if parts[-1].alarm.any() else min(2 * size, MAX_BATCH)
        self._interrupted = False
        path = Path.join(parts)
        if len(path.n):
            self.last = Step(int(path.n[-1]), float(path.p[-1]), float(path.log_value[-1]), bool(path.alarm[-1]))
        return path

    def _bet(self, p: Floats) -> Path:
        """Bet on p-values: on all of them, or up to an alarm that is followed by a restart."""
        log_value = self.martingale.extend(p)
        n, lowest, test = np.empty((3, len(p)), np.int64)
        path = Path(n, p, log_value, np.empty(len(p), np.bool_), lowest, test, self.guarantee)
        first, end, restarted = np.array([0]), np.array([len(p)]), np.zeros(1, np.bool_)
        table = self._integers[np.newaxis], self._reals[np.newaxis]
        raised, restart = _raised(self.alarm, log_value), self._fresh is not None
        native.track(*table, restart, first, end, log_value, raised, restarted, n, path.alarm, lowest, test)
        path = path.first(int(end[0]))
        self._history.extend(self._integers, path.log_value, restart)
        if restarted[0]:
            self._restart()
        return path

    def _restart(self) -> None:
        """Replace the parts by fresh copies; the numbering of examples, and with it the tie-breaking, continues."""
        self.pvalues, bet, self.alarm = copy.deepcopy(self._fresh)  # type: ignore[misc]
        self.pvalues.n = int(self._integers[native.TRACK_N])
        self.martingale = Martingale(bet)

    def _rank(self, rank: Callable[[Any, Any], P], x: Any, y: Any) -> P:
        """Return the p-values of examples; from here until they are bet on, the monitor counts as interrupted.

        An error of the measure rejects the examples and changes nothing. Any other interruption leaves measure, bet and
        alarm at different examples.
        """
        if self._interrupted:
            raise ValueError("a monitor that was interrupted in the middle of an example cannot be used any more")
        self._interrupted = True
        try:
            return rank(x, y)
        except Exception:
            self._interrupted = False
            raise

    def _check_state(self) -> None:
        """Check the fields of a loaded monitor; its parts have been checked."""
        self._check_record()
        if self._integers[native.TRACK_N] != self.n:
            raise ValueError(f"n must be {self.n} as in pvalues, got {self._integers[native.TRACK_N]}")


def _p_value_source(measure: Measure | Precomputed, seed: int | None, start: int) -> PValues | Precomputed:
    if not isinstance(measure, Precomputed):
        return PValues(measure, seed=seed, start=start)
    if measure.n:
        raise ValueError(f"measure must be fresh, got p-values of which {measure.n} have been consumed")
    return Precomputed(start=start)


def _raised(alarm: Alarm, log_value: Floats) -> NDArray[np.bool_]:
    if hasattr(alarm, "extend"):
        return np.array(alarm.extend(log_value), np.bool_)
    return np.fromiter((alarm.update(value) for value in log_value.tolist()), np.bool_, len(log_value))


def _rows(table: Any, part: slice) -> Any:
    """Select rows of an array, list, frame or other collection; anything else is a label that the measure ignores."""
    if hasattr(table, "iloc"):
        return table.iloc[part]
    try:
        return table[part]
    except TypeError:
        return list(table)[part] if isinstance(table, Iterable) else table


def _fresh_copy(alarm: Alarm) -> Alarm:
    """Copy the alarm, so that monitors do not share it; values it has read before would count as this stream's."""
    if not is_alarm(alarm):
        raise ValueError(f"alarm must be an alarm (with update of a log value), got {alarm!r}")
    if getattr(alarm, "n", 0):
        raise ValueError(f"alarm must be fresh, got one that has read {alarm.n} values")  # type: ignore[attr-defined]
    return copy.deepcopy(alarm)
