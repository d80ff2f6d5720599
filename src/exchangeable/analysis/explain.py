"""What changed, and when: behind the verdict of a test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.alarms import Ville
from exchangeable.analysis.columns import Line, Progress, columns, first, joint, lines_of
from exchangeable.analysis.verdict import SHIFTS, capital, printable, written
from exchangeable.data.canonical import column_order
from exchangeable.data.files import Group, Table
from exchangeable.martingale import LN10, Martingale
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Floats
from exchangeable.pvalues import PValues
from exchangeable.shift import Shift, shift_test
from exchangeable.validation import check_interval

if TYPE_CHECKING:
    from exchangeable.analysis.result import Result

BACKWARDS = 2  # the stream of tie-breaking numbers of the table backwards
ODD = 5  # examples with the smallest and with the largest p-values
LISTED = 10  # features that are named in words


class Change(NamedTuple):
    """When: how many examples came before the change.

    ``low`` to ``high`` has a promise. Suppose that there is a single change, that the examples before it are
    exchangeable given those after it, and that those after it are exchangeable given those before (as with two
    independent i.i.d. samples). Then the interval contains the true number with probability at least ``confidence``.
    This probability is over all data, including data without an alarm, for which no interval is shown. The condition is
    on each part given the other, because scales and categories are those of the whole table. After a false alarm, or if
    the change was barely detected, the interval may well miss it. If it is empty (None), the assumption of a single
    change is rejected: there is a drift, or there are several changes. ``estimate`` has no promise. It is where the
    capital of the strongest martingale was lowest within the interval, or the quick estimate ``Result.changepoint`` if
    the interval is empty.
    """

    estimate: int
    low: int | None
    high: int | None
    confidence: float

    @property
    def single(self) -> bool:
        """Whether one change between two exchangeable parts may explain the data."""
        return self.low is not None


class FeatureEvidence(NamedTuple):
    """One column by itself: its own martingale, whether it is named as changed, and what it was before and after."""

    name: str
    kind: str  # "numbers", "categories" or "label"
    log10_max: float
    log10_martingale: float
    named: bool
    rejected_at: int | None
    changepoint: int | None
    difference: str  # in words; empty where nothing is named


class Odd(NamedTuple):
    """An example with an extreme p-value: its number (from 1), and p."""

    n: int
    p: float


class Explanation(NamedTuple):
    """What `Result.explain` finds; ``print`` says it in words.

    - ``change``: when, with an interval; None where nothing was rejected, or two sets were compared.
    - ``features``: each column by itself, and the label, the most evidence first. A column is ``named`` if its capital
      ever reached ``level``: K / alpha with K columns, twice that where half of alpha went to whole examples. The
      chance that *any* column that is exchangeable by itself is named is at most alpha, whatever their dependence.
    - ``shift``: label shift and concept shift told apart, where there are classes.
    - ``small`` and ``large``: the examples with the smallest and the largest p-values.
    """

    change: Change | None
    features: list[FeatureEvidence]
    shift: Shift | None
    small: list[Odd]
    large: list[Odd]
    alpha: float
    level: float  # the capital at which a column is named
    n: int  # examples bet on
    compared: bool = False  # whether two sets were compared

    @property
    def guarantee(self) -> str:
        """What is promised of the features, in words."""
        if not self.features:
            return "All columns are constant, so none was tested."
        each = f"each of the {len(self.features):,}" if len(self.features) > 1 else "it"
        return (
            f"The chance that any column which is exchangeable by itself is named is at most {self.alpha:g}: for "
            f"that {each} must reach evidence of {self.level:,.6g}."
        )

    @property
    def changed(self) -> list[str]:
        """The columns that are named, the most evidence first."""
        return [feature.name for feature in self.features if feature.named]

    def __str__(self) -> str:
        return "\n".join([*when(self), *what(self), *_labels(self), *_odd(self)])

    def record(self) -> dict[str, Any]:
        """All that is in ``to_json``, as plain data."""
        shift = None
        if self.shift is not None:
            both = {"label": self.shift.label, "concept": self.shift.concept}
            shift = {"verdict": self.shift.verdict, **{name: _summary(one.log_value) for name, one in both.items()}}
        return {
            "change": None if self.change is None else self.change._asdict(),
            "features": [feature._asdict() for feature in self.features],
            "shift": shift,
            "small": [odd._asdict() for odd in self.small],
            "large": [odd._asdict() for odd in self.large],
            "alpha": self.alpha,
            "level": self.level,
            "guarantee": self.guarantee,
        }

    def to_json(self) -> str:
        """As JSON."""
        return written(self.record())

    def _repr_html_(self) -> str:
        from exchangeable.analysis.report import explained

        return explained(self)


def explain(result: Result, confidence: float, features: Sequence[str] | None, progress: Progress) -> Explanation:
    """Look behind the verdict: n bets for each column, forwards and backwards, and the measure once more, backwards."""
    confidence = check_interval("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
    alpha = result.alpha if result.alpha is not None else Ville().alpha
    found = columns(result.table, features)
    lines = result.columns
    if features is not None or not lines:  # they were not tested for the verdict, so they get all of alpha
        bet, seed, start = result.parts.bet, result.seed, result.start
        lines = lines_of(found, bet, share=1.0, seed=seed, start=start, progress=progress)
    evidence = [_feature(result, *one, line, alpha) for one, line in zip(found, lines, strict=True)]
    order = np.argsort(result.path.p, kind="stable").tolist()
    return Explanation(
        change=_change(result, confidence, progress),
        features=sorted(evidence, key=lambda feature: -feature.log10_max),
        shift=_shift(result, alpha),
        small=[_odd_one(result, i) for i in order[:ODD]],
        large=[_odd_one(result, i) for i in order[: -ODD - 1 : -1]],
        alpha=alpha,
        level=1.0 / (alpha * (lines[0].weight if lines else 1.0)),
        n=len(result.path.n),
        compared=result.split is not None,
    )


def _odd_one(result: Result, i: int) -> Odd:
    return Odd(int(result.path.n[i]), float(result.path.p[i]))


# ---------------------------------------------------------------------------------------------------------------- when


def _change(result: Result, confidence: float, progress: Progress) -> Change | None:
    """The estimate, and the interval.

    A change after t examples is refuted if the examples up to t, forwards, or those after t, backwards, bring evidence
    of 2 / (1 - confidence) against their own exchangeability. For the true t each has probability at most half of
    1 - confidence, by Ville's inequality: given one part, all orders of the other are equally likely, so a scale or a
    category taken from both does not depend on that order.
    """
    if result.changepoint is None or result.verdict.on_alarm != "latch":
        return None
    level, n = math.log(2.0 / (1.0 - confidence)), result.n
    forwards = first(joint(result.lines), level)
    backwards = first(joint(_backwards(result, progress)), level)
    low, high = (1 if backwards is None else n - backwards + 1), (n - 1 if forwards is None else forwards - 1)
    if low > high:
        return Change(result.changepoint, None, None, confidence)
    loudest = np.concatenate([[0.0], result.loudest.log_value])[low : high + 1]
    return Change(high - int(loudest[::-1].argmin()), low, high, confidence)


def _backwards(result: Result, progress: Progress) -> list[Line]:
    """The same test on the table from its end."""
    measure, bet = result.fresh()
    y = None if result.table.y is None else result.table.y[::-1]
    p = PValues(measure, seed=result.seed, stream=BACKWARDS).extend(result.given[::-1], y)
    whole = result.lines[0]._replace(log_value=Martingale(bet).extend(p))
    if not result.columns:
        return [whole]
    share = sum(line.weight for line in result.columns)
    found = columns(result.table)
    return [whole, *lines_of(found, result.parts.bet, share=share, seed=result.seed, back=True, progress=progress)]


# ---------------------------------------------------------------------------------------------------------------- what


def _feature(result: Result, group: Group, values: Floats, line: Line, alpha: float) -> FeatureEvidence:
    """The column's own martingale, judged at its share of alpha."""
    bets = line.reached(-math.log(alpha))
    at = None if bets is None else result.start + bets
    low = None if bets is None or result.split is not None else line.rise(bets)
    where = result.start if result.split is not None else low
    return FeatureEvidence(
        name=line.name,
        kind=line.kind,
        log10_max=max(0.0, float(line.log_value.max()) / LN10),
        log10_martingale=float(line.log_value[-1]) / LN10,
        named=bets is not None,
        rejected_at=at,
        changepoint=low,
        difference=_difference(result.table, group, values, where) if bets is not None and where else "",
    )


def _difference(table: Table, group: Group, values: Floats, where: int) -> str:
    """Of the column before and after."""
    if group.categorical:
        name, *shares = _moved(_names(table, group), where)
        return f"share of {printable(name)}: {100.0 * shares[0]:.0f} % -> {100.0 * shares[1]:.0f} %"
    before, after = values[:where], values[where:]
    means = f"mean {before.mean():.4g} -> {after.mean():.4g}"
    return f"{means}, deviation {before.std():.3g} -> {after.std():.3g}"


def _names(table: Table, group: Group) -> NDArray[np.str_]:
    """The category of each example, or its class."""
    if group.start < 0:
        return np.array([str(label) for label in table.y or ()])
    names = np.array([name.removeprefix(f"{group.name}=") for name in table.features[group.start : group.stop]])
    return np.asarray(names[table.X[:, group.start : group.stop].argmax(axis=1)])


def _moved(names: NDArray[np.str_], where: int) -> tuple[str, float, float]:
    """The category whose share differs most, and its shares before and after."""
    shares = [((names[:where] == name).mean(), (names[where:] == name).mean(), name) for name in np.unique(names)]
    before, after, name = max(shares, key=lambda share: abs(share[1] - share[0]))
    return str(name), float(before), float(after)


def _shift(result: Result, alpha: float) -> Shift | None:
    """For classes: did their frequencies change, or the examples given the class?"""
    y = result.table.y
    if not isinstance(y, list) or result.split is not None:
        return None
    kinds = {isinstance(label, str) for label in y}
    if len(kinds) > 1 or not all(isinstance(label, (str, int, float, bool)) for label in y):
        return None
    measure = result.fresh().measure
    chosen = measure if isinstance(measure, NearestNeighbour) else None
    X = result.X[:, column_order(result.table)]
    return shift_test(X, y, measure=chosen, bet=result.fresh().bet, alpha=alpha, seed=result.seed)


# --------------------------------------------------------------------------------------------------------------- words


def _summary(log_value: Floats) -> dict[str, float]:
    return {
        "log10_max": max(0.0, float(log_value.max()) / LN10),
        "log10_martingale": float(log_value[-1]) / LN10,
    }


def when(explanation: Explanation) -> list[str]:
    """When it changed, in words."""
    change = explanation.change
    if change is None:
        return []
    began = (
        f"after about {change.estimate:,} example{'s' if change.estimate > 1 else ''}"
        if change.estimate
        else "at the very start"
    )
    sentence = f"When: {began} (an estimate without a guarantee)."
    surely = f"{100.0 * change.confidence:g} % confidence, over all data, with and without an alarm"
    if change.low is None or change.high is None:
        return [
            f"{sentence} A single change between two parts that are each exchangeable is rejected ({surely}): there is "
            "a drift, or there are several changes."
        ]
    return [
        f"{sentence} If there was one change, and the examples on either side of it are exchangeable given the other "
        f"side, it came after example {change.low:,} at the earliest and {change.high:,} at the latest ({surely})."
    ]


def what(explanation: Explanation) -> list[str]:
    """What changed, in words."""
    named = [feature for feature in explanation.features if feature.named]
    several = len(explanation.features) > 1
    lines = []
    if named:
        lines.append(
            f"What: these columns {'differ' if explanation.compared else 'changed'}, each looked at by itself."
        )
        lines += [f"  {i}. {_said(feature, explanation.compared)}" for i, feature in enumerate(named[:LISTED], 1)]
        lines += [f"  and {len(named) - LISTED:,} more"] * (len(named) > LISTED)
    elif several:
        lines.append("What: no column by itself is convincing; a change may lie in how they go together.")
    rest = [feature for feature in explanation.features if not feature.named][:3]
    if rest and several:
        said = ", ".join(f"{printable(feature.name)} (peak {capital(feature.log10_max)})" for feature in rest)
        lines.append(f"{'Not convincing' if named else 'The most evidence'}: {said}.")
    return [*lines, f"Promised: {explanation.guarantee}"]


def _said(feature: FeatureEvidence, compared: bool) -> str:
    where = f", at example {feature.rejected_at:,}" if feature.rejected_at is not None and not compared else ""
    difference = f"; {feature.difference}" if feature.difference else ""
    return f"{printable(feature.name)}: evidence {capital(feature.log10_max)}{where}{difference}"


def _labels(explanation: Explanation) -> list[str]:
    return [] if explanation.shift is None else [f"Labels: {SHIFTS[explanation.shift.verdict]}"]


def _odd(explanation: Explanation) -> list[str]:
    if explanation.compared:  # their numbers are those of a shuffled order
        return []
    small = ", ".join(f"{odd.n:,} (p = {odd.p:.2g})" for odd in explanation.small)
    large = ", ".join(f"{odd.n:,} (p = {odd.p:.4g})" for odd in explanation.large)
    return [
        f"Strangest examples: {small}. Most typical: {large}. Among {explanation.n:,} examples the smallest p-value is "
        f"about {1.0 / explanation.n:.1g} even if nothing happens."
    ]
