"""Monitor of a risk: has the mean loss of a model passed what is acceptable?"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable import native
from exchangeable.alarms import MIN_ALPHA, Ville
from exchangeable.bets.learner import shared_table
from exchangeable.evidence import EvidenceMonitor, new_columns
from exchangeable.protocols import Floats, Integers
from exchangeable.validation import check_column, check_interval, check_number, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNIT = (0.0, 1.0)
MARGIN = 1e-9  # how near to a bound the limit may be, relative to the distance of the bounds
STEPS = 60  # of the bisection for the bound of a reference


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


class RiskChange(NamedTuple):
    """The rise, as estimated at the alarm: the mean loss before it (None if there was no loss before it) and after."""

    before: float | None
    after: float

    def __str__(self) -> str:
        before = "" if self.before is None else f", and {self.before:.3g} before"
        return f"The mean loss was {self.after:.3g} from there to the alarm{before}"


class RiskFinding(NamedTuple):
    """What the losses say about harm: whether it is shown, since when, and how large it is; ``str`` says it in words.

    ``harm`` is "shown" after an alarm, or if the interval lies above the limit; "none so far" if the interval lies
    below the limit, without an alarm; and "open" otherwise. The alarm and the interval each have their own guarantee.
    """

    harm: str
    limit: float
    alarm_at: int | None
    changepoint: int | None
    change: RiskChange | None
    losses: int  # of the test that the latest loss belongs to: mean and interval are about these
    mean: float
    interval: Interval
    alpha: float

    def __str__(self) -> str:
        return " ".join(filter(None, [self._describe_harm(), self.describe_mean()]))

    def _describe_harm(self) -> str:
        if self.harm == "none so far":
            return f"No harm so far: the mean risk is below the limit of {self.limit:g}."
        if self.harm == "open":
            return (
                f"Harm is neither shown nor ruled out: the mean risk may be below or above the limit of {self.limit:g}."
            )
        if self.alarm_at is None or self.change is None:
            return f"Harm is shown: the mean risk is above the limit of {self.limit:g}."
        since = f"since about loss {(self.changepoint or 0) + 1:,} (an estimate; alarm at loss {self.alarm_at:,})"
        shown = f"Harm is shown, unless this is a false alarm: the risk has exceeded the limit of {self.limit:g}"
        return f"{shown}, {since}. {self.change}."

    def describe_mean(self) -> str:
        """Return a sentence about the mean loss and the interval; empty before the first loss."""
        if not self.losses:
            return ""
        low, high = self.interval
        level = f"confidence {100.0 * (1.0 - self.alpha):.4g} %, at all times at once"
        mean = f"The mean of {self.losses:,} loss{'es' * (self.losses > 1)} is {self.mean:.3g}"
        risk = "their mean risk" if self.losses > 1 else "its risk"
        return f"{mean}; {risk} lies between {low:.3g} and {high:.3g} ({level})."


class RiskPath(NamedTuple):
    """Many steps as columns, and the guarantee of the alarm.

    ``lowest`` is the number of losses before the rise, as estimated after each loss; it does not change once an alarm
    has latched. ``test`` is the number of the test that a step belongs to: 1, and one more after each restart.
    ``mean``, ``low`` and ``high`` are the mean loss so far and the interval of the risk, within that test: what the
    attributes ``mean`` and ``interval`` were after that step.
    """

    n: Integers
    log_value: Floats
    statistic: Floats
    alarm: NDArray[np.bool_]
    lowest: Integers
    test: Integers
    mean: Floats
    low: Floats
    high: Floats
    guarantee: str

    def changepoint(self) -> int | None:
        """Return the number of losses before the rise, estimated at the first alarm; None without an alarm."""
        return int(self.lowest[self.alarm.argmax()]) if self.alarm.any() else None


class Risk(EvidenceMonitor):
    """Watches the losses of a model: has their mean passed a limit?

    Use it for errors (0 or 1), misses of a prediction interval, a capped squared error, or the score of a judge: any
    loss with known ``bounds``. The hypothesis is that the mean of each loss, given all that happened before, is at most
    ``limit``. Nothing else is assumed: the losses need not be exchangeable, independent or stationary.

    - With ``alpha`` (default 0.01), the probability that the alarm is ever raised is at most alpha while the hypothesis
      is true.
    - With ``period`` as well, the alarm is one for watching without end: the mean time to a false alarm is at least
      ``period`` losses, and a rise after a long period without harm is found sooner.

    ``log_value`` is the log evidence that the limit was exceeded at some time: a mixture of bets with the capital
    prod (1 + lambda_t (loss_t - limit)), over fixed and adaptive lambda and over all starts. ``interval`` covers the
    mean risk so far, at all times at once, with probability at least 1 - alpha. An alarm and an interval below the
    limit do not contradict each other: the risk may have risen lately, and the interval is about the mean of all
    losses so far. docs/promises.md has the formulas.

    ``Risk.against`` sets the limit by the losses of a reference. ``on_alarm``, ``start`` and the attributes are those
    of `Monitor`; ``changepoint`` is the estimated start of the rise, and ``change`` the mean losses before and after.
    ``explain`` says whether harm is shown, since when, and how large it is. ``reference_alpha`` is the part of alpha
    that ``against`` spends on the reference. O(1) time and memory: 0.7 microseconds per loss, 12 kB.

    >>> rng = np.random.default_rng(1)
    >>> risk = Risk(limit=0.1)
    >>> path = risk.extend(np.append(rng.random(1000) < 0.08, rng.random(500) < 0.2))
    >>> risk.alarm_at, risk.changepoint, round(risk.mean, 3)
    (1348, 1141, 0.111)
    >>> [round(end, 3) for end in risk.interval]
    [0.076, 0.147]

    Reference: Waudby-Smith and Ramdas (2024) for betting; Howard et al. (2021) for the interval.
    """

    _title = "Evidence that the risk is above the limit"
    claim = "the risk has exceeded the limit"

    def __init__(
        self,
        limit: float,
        *,
        alpha: float = 0.01,
        period: float | None = None,
        bounds: tuple[float, float] = UNIT,
        reference_alpha: float = 0.0,
        on_alarm: str = "latch",
        start: int = 0,
    ) -> None:
        super().__init__(on_alarm, start)
        self.bounds: tuple[float, float] = _check_bounds(bounds)
        self.limit: float = self._check_limit(limit)
        self.alpha: float = Ville(alpha).alpha
        self.period: float | None = (
            None if period is None else check_interval("period", period, 1.0, 1e300, "(1, 1e300]")
        )
        self.reference_alpha: float = _check_spent(reference_alpha, self.alpha, period is not None)
        self._state: Floats = np.zeros(native.RISK_STATE)
        self._band: Floats = np.zeros(native.RISK_HISTORY)
        self._band[1] = 1.0  # a row of the history of the interval for each loss, at first

    @classmethod
    def against(
        cls,
        reference: ArrayLike,
        tolerance: float = 0.02,
        *,
        alpha: float = 0.01,
        period: float | None = None,
        bounds: tuple[float, float] = UNIT,
        on_alarm: str = "latch",
        start: int = 0,
    ) -> Self:
        """Return a monitor of a rise by more than ``tolerance`` over the risk of a reference.

        ``reference`` are independent losses of the model on data that it was not trained on, such as the test set. The
        limit is an upper confidence bound of their mean, plus the tolerance. Half of alpha is spent on that bound, and
        all of it with a period: then the guarantee of the period holds unless the bound is too low, which has a
        probability of at most alpha. O(n) time.

        >>> errors = np.random.default_rng(1).random(2000) < 0.08
        >>> Risk.against(errors).limit
        0.12310...
        """
        lower, upper = _check_bounds(bounds)
        tolerance = check_interval("tolerance", tolerance, -MARGIN * (upper - lower), upper - lower, "[0, the bounds]")
        losses = (check_losses("reference", reference, (lower, upper)) - lower) / (upper - lower)
        if not len(losses):
            raise ValueError("reference must have at least one loss, got none")
        spent = Ville(alpha).alpha * (0.5 if period is None else 1.0)
        limit = lower + (upper - lower) * _upper_bound(losses, spent) + tolerance
        if limit >= upper - MARGIN * (upper - lower):
            raise ValueError(
                f"reference must show that the risk is below {upper - tolerance:g} (the upper bound less the "
                f"tolerance), got {len(losses)} losses with a mean of {lower + (upper - lower) * losses.mean():g}; use "
                "more losses, or a smaller tolerance"
            )
        more: dict[str, Any] = {"bounds": (lower, upper), "reference_alpha": spent, "on_alarm": on_alarm}
        return cls(limit, alpha=alpha, period=period, start=start, **more)

    @property
    def threshold(self) -> float:
        """The level that raises the alarm: of the evidence with alpha, and of the statistic with a period."""
        return 1.0 / (self.alpha - self.reference_alpha) if self.period is None else self.period

    @property
    def mean(self) -> float:
        """The mean loss of the test that the latest loss belongs to; NaN before the first loss."""
        if self._has_ended:
            return float(self._loss(self._at_alarm[1]))
        return float(self._loss(self._state[1] / self._state[0])) if self._state[0] else math.nan

    @property
    def interval(self) -> Interval:
        """An interval that covers the mean risk of a test, with probability 1 - alpha at all times at once.

        The risk of a loss is its mean given all that happened before. It may change over time. With restarts, the
        interval is about the test that the latest loss belongs to: the next one starts with the loss after the alarm.
        """
        if self._has_ended:
            return Interval(*self._loss(self._at_alarm[2:4]).tolist())
        _, low, high = native.risk_interval(self._state, _tables(), self._log_interval)
        return Interval(float(self._loss(low)), float(self._loss(high)))

    @property
    def change(self) -> RiskChange | None:
        """The estimated rise at the alarm, with restarts the latest one; None without an alarm."""
        if self.alarm_at is None:
            return None
        before, after = self._at_alarm[4:].tolist()
        return RiskChange(None if before < 0.0 else float(self._loss(before)), float(self._loss(after)))

    def explain(self) -> RiskFinding:
        """Say whether harm is shown, since when, and how large it is.

        >>> risk = Risk(limit=0.1)
        >>> path = risk.extend([0] * 200 + [0, 1] * 40)
        >>> print(risk.explain())
        Harm is shown, unless this is a false alarm: the risk has exceeded the limit of 0.1, since about loss 202 ...
        >>> risk.explain().harm, risk.explain().change
        ('shown', RiskChange(before=0.0, after=0.51...))
        """
        low, high = self.interval
        shown = self.alarm_at is not None or low > self.limit
        harm = "shown" if shown else "none so far" if high < self.limit else "open"
        losses = int(self._at_alarm[0] if self._has_ended else self._state[0])
        about = self.alarm_at, self.changepoint, self.change, losses
        return RiskFinding(harm, self.limit, *about, self.mean, self.interval, self.alpha)

    def findings(self) -> list[str]:
        """Return a sentence about the mean risk, if there is one."""
        return [sentence for sentence in [self.explain().describe_mean()] if sentence]

    def describe_change(self, where: str) -> str:
        """Return a sentence about the rise at the alarm."""
        return f"The risk rose {where}. {self.change} (estimates, without a guarantee)."

    @property
    def guarantee(self) -> str:
        """A sentence that states what the alarm guarantees."""
        by = "that of the reference by more than the tolerance" if self.reference_alpha else f"{self.limit:g}"
        restarts = self.on_alarm == "restart"
        unless = f", unless the limit is too low, which has a chance of at most {self.reference_alpha:g}."
        if self.period is None:
            alarm = Ville(self.alpha - self.reference_alpha if restarts else self.alpha)
            sentence = alarm.guarantee_with_restarts if restarts else alarm.guarantee
            sentence = sentence.replace(
                "On exchangeable data", f"If the mean loss, given the past, never exceeds {by},"
            )
            return sentence[:-1] + unless if restarts and self.reference_alpha else sentence
        time = "between false alarms" if restarts else "to a false alarm"
        sentence = f"While the mean loss, given the past, does not exceed {by}, the mean time {time} is at least "
        return f"{sentence}{self.period:g} losses{unless if self.reference_alpha else '.'}"

    @property
    def anytime_p(self) -> float | Decimal:
        """One over the highest evidence so far, plus the part of alpha that was spent on a reference; at most 1.

        If the limit is not too low, the chance that it is ever at most a is at most a; the sum also covers a limit that
        is. See `Monitor`.
        """
        p = super().anytime_p
        return min(1.0, float(p) + self.reference_alpha) if self.reference_alpha else p

    def extend(self, X: Any) -> RiskPath:
        """Consume many losses: the same numbers as one by one. If one of them is rejected, none is consumed."""
        path: RiskPath = self._extend(X)
        return path._replace(mean=self._loss(path.mean), low=self._loss(path.low), high=self._loss(path.high))

    @property
    def band(self) -> RiskBand:
        """The mean loss and the interval at up to 256 numbers of losses, evenly spaced: for plots."""
        rows = self._band[native.RISK_ROWS :].reshape(native.RISK_BAND, 4)[: int(self._band[0])]
        n, mean, low, high = rows.T
        return RiskBand(n.astype(np.int64), self._loss(mean), self._loss(low), self._loss(high))

    def plot_interval(self, ax: Axes | None = None) -> Axes:
        """Plot the mean loss, the interval as a band, and the limit. Needs the extra ``plots``.

        >>> risk = Risk(0.1)
        >>> _ = risk.extend([0, 1, 0])
        >>> risk.plot_interval().get_ylabel()
        'mean loss'
        """
        from exchangeable import plots

        return plots.risk_band(self.band, self.limit, alarm_at=self.alarm_at, alpha=self.alpha, ax=ax)

    @property
    def _at_alarm(self) -> Floats:
        """The losses, the mean, the ends of the interval, and the means before and after the rise, at the alarm."""
        return self._band[2 : native.RISK_ROWS]

    @property
    def _has_ended(self) -> bool:
        """Whether the latest loss has ended its test with an alarm."""
        return self._is_new_test and self.alarm_at is not None

    def _new_path(self, size: int) -> RiskPath:
        mean, low, high = np.empty((3, size))
        return RiskPath(*new_columns(size), mean, low, high, self.guarantee)

    def _run(self, values: NDArray[Any], columns: list[Any], path: RiskPath) -> int:
        return native.risk(*self._arguments(), values, *columns)

    def _run_one(self, value: float) -> tuple[float, float, int]:
        return native.risk_step(*self._arguments(), value)

    def _arguments(self) -> tuple[Floats, Floats, Floats, Integers, Floats, bool, bool, float, float, float]:
        arrays = self._state, _tables(), self._band, self._integers, self._reals
        alarm = self.on_alarm == "restart", self.period is not None, self.log_threshold
        return *arrays, *alarm, self._log_interval, self._scale(self.limit)

    @property
    def _log_interval(self) -> float:
        return native.log(2.0 / self.alpha, None)

    def _scale(self, loss: Any) -> Any:
        return (loss - self.bounds[0]) / (self.bounds[1] - self.bounds[0])

    def _loss(self, x: Any) -> Any:
        return self.bounds[0] + (self.bounds[1] - self.bounds[0]) * x

    def _check_limit(self, limit: Any) -> float:
        lower, upper = self.bounds
        number = check_number("limit", limit)
        if not MARGIN <= self._scale(number) <= 1.0 - MARGIN:
            raise ValueError(f"limit must lie between the bounds of the loss, {lower:g} and {upper:g}, got {limit}")
        return number

    def _check_value(self, x: Any) -> float:
        number = check_number("x", x)
        if not self.bounds[0] <= number <= self.bounds[1]:
            raise ValueError(f"x must be a loss from {self.bounds[0]:g} to {self.bounds[1]:g}, got {number:g}")
        return float(self._scale(number))

    def _check_values(self, X: Any) -> Floats:
        return np.ascontiguousarray(self._scale(check_losses("X", X, self.bounds)))

    def _check_state(self) -> None:
        self._check_record()
        count = self._integers[native.TRACK_N] - self._integers[native.TRACK_START]
        losses, total = self._state[:2]
        if losses != count or not 0.0 <= total <= losses * (1.0 + 1e-9):
            raise ValueError(f"state must be consistent with the {count} losses of the test, got other counts")
        memories = slice(4, 4 + 2 * 4)  # which may hold negative numbers
        if not np.isfinite(self._state).all() or (np.delete(self._state, memories) < 0.0).any():
            raise ValueError("state must contain only finite, nonnegative numbers, got others")
        rows, stride = self._band[:2]
        spaced = stride >= 1.0 and math.frexp(stride)[0] == 0.5  # a power of two
        if not 0.0 <= rows < native.RISK_BAND or rows != int(rows) or not spaced:
            raise ValueError(f"band must have fewer than {native.RISK_BAND} rows, got {rows}")
        means = self._at_alarm[1:]
        if not (np.isfinite(self._band).all() and (means >= -1.0).all() and (means <= 1.0 + 1e-9).all()):
            raise ValueError("band must hold means of losses, got other numbers")


class RiskBand(NamedTuple):
    """The mean loss and the interval after some numbers of losses."""

    n: Integers
    mean: Floats
    low: Floats
    high: Floats


def check_losses(name: str, losses: Any, bounds: tuple[float, float]) -> Floats:
    """Check that values are losses within the bounds.

    >>> check_losses("X", [0.5, 1.5], (0.0, 1.0))
    Traceback (most recent call last):
    ...
    ValueError: X must contain only losses from 0 to 1, got 1.5 at position 1
    """
    column = check_column(name, losses)
    bad = np.flatnonzero((column < bounds[0]) | (column > bounds[1]))
    if bad.size:
        allowed = f"{name} must contain only losses from {bounds[0]:g} to {bounds[1]:g}"
        raise ValueError(f"{allowed}, got {column[bad[0]]:g} at position {bad[0]}")
    return column


def _check_bounds(bounds: Any) -> tuple[float, float]:
    try:
        lower, upper = (check_number("bounds", end) for end in bounds)
    except (TypeError, ValueError):
        lower, upper = 0.0, -1.0
    if not lower < upper or not math.isfinite(upper - lower):
        raise ValueError(f"bounds must be the smallest and the largest possible loss, got {format_value(bounds)}")
    return UNIT if (lower, upper) == UNIT else (lower, upper)


def _check_spent(spent: Any, alpha: float, all_of_it: bool) -> float:
    number = check_number("reference_alpha", spent)
    if not 0.0 <= number <= alpha or (alpha - number < MIN_ALPHA and not all_of_it):
        raise ValueError(f"reference_alpha must be at least 0 and less than alpha ({alpha:g}), got {spent}")
    return number


def _upper_bound(losses: Floats, alpha: float) -> float:
    """Return a bound that is below the mean of independent losses with probability at most ``alpha``.

    It is the largest limit against which the evidence that the mean is smaller does not reach 1/alpha. The evidence
    does not depend on the order of the losses, but for rounding.
    """
    ordered = np.sort(losses)
    low, high = float(ordered.mean()), 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        enough = native.risk_bound(ordered, _tables(), middle) >= -native.log(alpha, None)
        low, high = (low, middle) if enough else (middle, high)
    return high


@cache
def _tables() -> Floats:
    return shared_table(native.RISK_TABLES, native.risk_tables)
