"""Monitor of the rate of events, such as errors, clicks or defects, and of the shares of a few ordered values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.alarms import Ville
from exchangeable.bets.learner import shared_table
from exchangeable.evidence import EvidenceMonitor, new_columns
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_interval, format_value, is_masked

DIRECTIONS = {"up": 1, "down": 2, "both": 3}  # as native/rate.c numbers them
PERIOD = 10_000.0
MISSED = 1.0 / 32.0  # bounds the probability that the observed rate is ever far from the rate (docs/promises.md)
MAX_VALUES = 64
EVENTS = (0, 1)


class RateChange(NamedTuple):
    """The change, as estimated at the alarm: the share of values that are at least ``value``, before and after."""

    value: Any
    before: float
    after: float


class RatePath(NamedTuple):
    """Many steps as columns, and the guarantee of the alarm.

    ``lowest`` is the number of values before the change, as estimated after each value (named as in the path of
    `Monitor`; here it is the most likely start of the change). It does not change once an alarm has latched. ``test``
    is the number of the test that a step belongs to: 1, and one more after each restart. ``changes`` has an estimate
    for each alarm that was raised in these steps.
    """

    n: Integers
    log_value: Floats
    statistic: Floats
    alarm: NDArray[np.bool_]
    lowest: Integers
    test: Integers
    changes: list[RateChange]
    guarantee: str

    def changepoint(self) -> int | None:
        """Return the number of values before the change, estimated at the first alarm; None without an alarm."""
        return int(self.lowest[self.alarm.argmax()]) if self.alarm.any() else None


class RateMonitor(EvidenceMonitor):
    """Watches zeros and ones for a change in their rate: errors, clicks, defects. The rate need not be known.

    `Monitor` ranks values, and ranks of zeros and ones are mostly ties, so it detects a change in a rate late. This
    monitor uses the counts themselves. The guarantee is for independent values with the same, unknown rate (and for
    mixtures of such sequences), not for a finite table in random order:

    - with ``period`` (default 10,000), the mean time to a false alarm is at least ``period`` values;
    - with ``alpha`` instead, the probability that the alarm is ever raised falsely is at most alpha.

    ``log_value`` is the log evidence that the rate has changed at some time. With ``alpha`` the alarm is raised when
    the evidence reaches 1/alpha. With a period another statistic, whose logarithm is ``statistic`` in a step, is
    compared with a constant ``threshold``. docs/promises.md explains both.

    ``values`` are the values that can occur, in order. For more than two, such as ratings of 1 to 5 stars, the shares
    of values that are at least the second, at least the third and so on are monitored as rates, with one alarm for all.
    ``direction="up"`` detects only rises, and ``"down"`` only falls, a little sooner.
    ``on_alarm``, ``start`` and the attributes are those of `Monitor`; ``change`` is the estimated change of the rate.
    Time per value and memory are O(len(values)): 0.5 microseconds and 4.5 kB for 0 and 1.

    >>> rng = np.random.default_rng(1)
    >>> monitor = RateMonitor(period=1000)
    >>> path = monitor.extend(np.append(rng.random(2000) < 0.01, rng.random(400) < 0.05))
    >>> monitor.alarm_at, monitor.changepoint, monitor.change
    (2102, 2001, RateChange(value=1, before=0.008995502248875561, after=0.06930693069306931))

    Reference: Krichevsky and Trofimov (1981) for the mixture; Ramdas et al. (2022) for its use as evidence.
    """

    _title = "Evidence of a change in the rate"
    claim = "the rate has changed"

    def __init__(
        self,
        period: float | None = None,
        *,
        alpha: float | None = None,
        values: Sequence[Any] = EVENTS,
        direction: str = "both",
        on_alarm: str = "latch",
        start: int = 0,
    ) -> None:
        super().__init__(on_alarm, start)
        if period is not None and alpha is not None:
            raise ValueError(f"alpha must be None if period is given, got {alpha!r}")
        self.alpha: float | None = None if alpha is None else Ville(alpha).alpha
        wanted = PERIOD if period is None else period
        self.period: float | None = (
            None if alpha is not None else check_interval("period", wanted, 1.0, 1e300, "(1, 1e300]")
        )
        self.values: tuple[Any, ...] = _check_possible(values)
        self.direction: str = check_direction(direction)
        self._states: Floats = np.empty((len(self.values) - 1, native.RATE_STATE))
        native.rate_fresh(self._states)
        self._found: Floats = np.zeros(3)  # the cut, and the rates before and after the change

    @property
    def threshold(self) -> float:
        """The level that raises the alarm: of the evidence with alpha, and of the statistic with a period."""
        if self.alpha is not None:
            return 1.0 / self.alpha
        return 2.0 * self.period / (1.0 - MISSED) ** 2  # type: ignore[operator]

    @property
    def shares(self) -> dict[Any, float]:
        """The share of each value in the current test; empty before the first value."""
        events, ones = self._states[:, 0], self._states[:, 1]
        if not events[0]:
            return {}
        above = np.concatenate([[1.0], ones / events, [0.0]])
        return dict(zip(self.values, (above[:-1] - above[1:]).tolist(), strict=True))

    @property
    def change(self) -> RateChange | None:
        """The estimated change at the alarm, with restarts the latest one; None without an alarm."""
        if self.alarm_at is None:
            return None
        cut, before, after = self._found.tolist()
        return RateChange(self.values[int(cut) + 1], before, after)

    def describe_change(self, where: str) -> str:
        """Return a sentence about the change of the rate at the alarm."""
        if self.change is None:
            return "The rate has not changed."
        value, before, after = self.change
        what = "The rate" if self.values == EVENTS else f"The share of values from {value!r} on"
        change = f"{what} changed from {100.0 * before:.3g} % to {100.0 * after:.3g} %"
        return f"{change}, {where} (estimates, without a guarantee)."

    @property
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees on independent values with the same distribution."""
        restarts = self.on_alarm == "restart"
        if self.alpha is not None:
            alarm = Ville(self.alpha)
            sentence = alarm.guarantee_with_restarts if restarts else alarm.guarantee
            return sentence.replace("exchangeable data", "independent, identically distributed values")
        time = "between false alarms" if restarts else "to a false alarm"
        return (
            f"On independent, identically distributed values the mean time {time} is at least {self.period:g} values."
        )

    def extend(self, X: Any) -> RatePath:
        """Consume many values: the same numbers as one by one. If one of them is rejected, none is consumed."""
        path: RatePath = self._extend(X)
        return path

    def _new_path(self, size: int) -> RatePath:
        return RatePath(*new_columns(size), [], self.guarantee)

    def _run(self, values: NDArray[Any], columns: list[Any], path: RatePath) -> int:
        before = self.alarm_at
        used = native.rate(*self._arguments(), values, *columns)
        if self.change is not None and self.alarm_at != before:
            path.changes.append(self.change)
        return used

    def _run_one(self, value: int) -> tuple[float, float, int]:
        return native.rate_step(*self._arguments(), value)

    def _arguments(self) -> tuple[Floats, Floats, Integers, Floats, Floats, bool, bool, float]:
        record = self._states, _tables(self.direction), self._integers, self._reals, self._found
        return *record, self.on_alarm == "restart", self.period is not None, self.log_threshold

    def _check_value(self, x: Any) -> int:
        """Return the rank of a value among ``values``."""
        try:
            return _ranks(self.values)[x]
        except (KeyError, TypeError):  # TypeError: x is not hashable
            raise ValueError(f"x must be one of {format_value(list(self.values))}, got {format_value(x)}") from None

    def _check_values(self, X: Any) -> Integers:
        """Return the rank of each of many values among ``values``."""
        column = _check_many(X)
        if self.values == EVENTS and _holds_events(column):
            return np.asarray(column).astype(np.int64)  # the usual case, without a loop
        codes = []
        for position, value in enumerate(column):
            try:
                codes.append(self._check_value(value))
            except ValueError as error:
                raise ValueError(f"{error} at position {position}") from None
        return np.array(codes, np.int64)

    def _check_state(self) -> None:
        """Check the fields of a loaded monitor."""
        self._check_record()
        events, ones = self._states[:, 0], self._states[:, 1]
        count = self._integers[native.TRACK_N] - self._integers[native.TRACK_START]
        if (events != count).any() or (ones < 0.0).any() or (ones > events).any() or (ones != np.floor(ones)).any():
            raise ValueError(f"states must be consistent with the {count} values of the test, got other counts")
        if not (self._states >= 0.0).all() or not np.isfinite(self._states).all():
            raise ValueError("states must contain only finite, nonnegative numbers, got others")
        if int(self._found[0]) not in range(len(self.values) - 1):
            raise ValueError(f"found must name one of {len(self.values) - 1} cuts, got {self._found[0]}")


def check_direction(direction: Any) -> str:
    """Check that this is the name of a direction."""
    if not isinstance(direction, str) or direction not in DIRECTIONS:
        raise ValueError(f"direction must be 'up', 'down' or 'both', got {direction!r}")
    return direction


def _check_many(values: Any) -> Any:
    """Check that these are many values, in order, and return them as an array or a list."""
    if isinstance(values, (list, tuple, range, Iterator)):
        return values if isinstance(values, list) else list(values)
    column = np.asarray(values) if hasattr(values, "__array__") and not is_masked(values) else np.array(None)
    if column.ndim != 1:
        got = f"{column.ndim} dimensions" if column.ndim else format_value(values)
        raise ValueError(f"X must be a one-dimensional array or a list of values, got {got}")
    return column


def _holds_events(column: Any) -> bool:
    """Return whether this is an array of zeros and ones."""
    if not isinstance(column, np.ndarray) or column.dtype.kind not in "biuf":
        return False
    return bool(((column == 0) | (column == 1)).all())


def _check_possible(values: Any) -> tuple[Any, ...]:
    """Check the values that can occur, in order, and return them as plain numbers or text."""
    rule = f"values must be 2 to {MAX_VALUES} different numbers or strings, in order"
    if isinstance(values, (str, Set, Mapping)) or not isinstance(values, Iterable):
        raise ValueError(f"{rule}, got {format_value(values)}")
    plain = tuple(value.item() if isinstance(value, np.generic) else value for value in values)
    wrong = [v for v in plain if not isinstance(v, (str, bool, int, float)) or v != v or v in (math.inf, -math.inf)]
    if wrong or not 2 <= len(plain) <= MAX_VALUES or len(set(plain)) < len(plain):
        raise ValueError(f"{rule}, got {format_value(wrong[0] if wrong else list(plain))}")
    return EVENTS if plain == EVENTS else plain


@lru_cache(maxsize=256)
def _ranks(values: tuple[Any, ...]) -> dict[Any, int]:
    return {value: rank for rank, value in enumerate(values)}


@cache
def _tables(direction: str) -> Floats:
    """Return the constants that all instances share: the rates, and their weights by the rate so far."""
    return shared_table(native.RATE_TABLES, lambda table: native.rate_tables(table, DIRECTIONS[direction]))
