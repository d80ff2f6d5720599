"""What a test found, as a record and in words."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from exchangeable import alarms
from exchangeable.analysis.columns import Line
from exchangeable.analysis.method import Method, asks
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Path

FEW = 30  # examples that can hardly carry evidence of 100
LONGEST = 60  # characters of a name
NAMED = 10  # alarms that are named in words

SHIFTS = {
    "label shift": "LABEL SHIFT: the order of the labels matters: their proportions change, or they come sorted or in "
    "a pattern. No convincing evidence that examples of a class change.",
    "concept shift": "CONCEPT SHIFT: examples of a class are not what they were before. No convincing evidence that "
    "the order of the labels matters.",
    "both": "LABEL SHIFT AND CONCEPT SHIFT: the order of the labels matters (their proportions change, or they come "
    "sorted or in a pattern), and examples of a class are not what they were before.",
    "neither found": "NEITHER FOUND: no convincing evidence that the order of the labels matters, or that examples of "
    "a class change.",
}


class Verdict(NamedTuple):
    """What a test found, with what it was made of; None is for what has no meaning there."""

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


def judge(path: Path, monitor: Monitor, n_features: int, name: str | None = None, scale: str = "none") -> Verdict:
    """Summarise a path: rejected as soon as the alarm has sounded once."""
    log10 = path.log_value / LN10
    sounds = path.alarm.nonzero()[0][: 1 if monitor.on_alarm == "latch" else None]
    return Verdict(
        file=name,
        n=len(path.n),
        n_features=n_features,
        threshold=monitor.alarm.threshold if isinstance(monitor.alarm, alarms.Ville) else None,  # of the capital
        log10_martingale=float(log10[-1]),
        log10_max=max(0.0, float(log10.max())),  # S_0 = 1
        rejected=len(sounds) > 0,
        rejected_at=int(path.n[sounds[0]]) if len(sounds) else None,
        changepoint=path.changepoint(),
        alarms=path.n[sounds].tolist(),
        changepoints=path.lowest[sounds].tolist(),
        guarantee=path.guarantee,
        scale=scale,
        **Method.of(monitor)._asdict(),
    )


def written(record: dict[str, Any]) -> str:
    """As JSON, which has no number that is not finite: there it is null.

    >>> written({"log10_martingale": -math.inf, "alarms": [3]})
    '{"log10_martingale": null, "alarms": [3]}'
    """
    return json.dumps(_finite(record), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def capital(log10: float) -> str:
    """An amount of evidence in words of a reader: 0, 0.013, 56, 1,240, 10^17.3."""
    if log10 == -math.inf:
        return "0"
    if -4.0 < log10 < 4.0:
        return f"{10.0**log10:.2g}" if log10 < 1.99 else f"{10.0**log10:,.0f}"
    return f"10^{log10:.1f}" if abs(log10) < 1e9 else f"10^{log10:.4g}"


def printable(name: str) -> str:
    """A name of the user's as it may stand in a sentence: no control characters, at most 60 characters."""
    text = name if name.isprintable() else repr(name)[1:-1]
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def words(verdict: Verdict, lines: Sequence[Line] = (), split: tuple[str, str] | None = None) -> str:
    """The verdict as a data scientist would want it said.

    ``lines`` are the martingales that had a say, if there are several; ``split`` names two sets, if they were compared.
    """
    return _of_order(verdict, lines) if split is None else _of_split(verdict, lines, *split)


def _of_split(verdict: Verdict, lines: Sequence[Line], first: str, second: str) -> str:
    """The verdict on two sets."""
    level = f"at level {100.0 * (verdict.alpha or 0.0):g} %"
    if verdict.rejected:
        return (
            f"REJECTED {level}: {second} does not look like a random part of {first} and {second} together.\n"
            f"{_figures(verdict, lines, 'split')}\n"
            f"Means: do not pool them without a thought; what was learnt on one may not hold on the other. "
            f"If the two were made by a random split, a rejection would have a chance of at most "
            f"{100.0 * (verdict.alpha or 0.0):g} %.\n"
            f"Does not mean: that every feature differs, or that the difference is large."
        )
    return (
        f"NOT REJECTED {level}: no convincing evidence that {first} and {second} differ.\n"
        f"{_figures(verdict, lines, 'split')}\n"
        f"{f'Means: this test did not find a difference between the two. {asks(verdict.measure)}'.rstrip()}\n"
        f"Does not mean: that there is none. Nor was the order within either set looked at: it was shuffled."
    )


def _of_order(verdict: Verdict, lines: Sequence[Line]) -> str:
    level = None if verdict.alpha is None else f"at level {100.0 * verdict.alpha:g} %"
    if verdict.rejected:
        said = (
            f"ALARM of {verdict.alarm}." if level is None else f"REJECTED {level}: the order of these examples matters."
        )
        maybe = "unless it is a false alarm, something" if level is None else "something"
        return (
            f"{said} {_when(verdict, lines)}\n{_figures(verdict, lines)}\n"
            f"Means: {maybe} drifted, changed, is sorted or comes in batches: random splits and cross-validation may "
            f"promise too much. {_promise(verdict, lines)}\n"
            f"Does not mean: that the change began where the alarm sounded; nor {_unsaid(lines)}."
        )
    said = f"NO ALARM of {verdict.alarm}" if level is None else f"NOT REJECTED {level}"
    return (
        f"{said}: no convincing evidence that the order of the {verdict.n:,} examples matters.\n"
        f"{_figures(verdict, lines)}\n"
        f"{f'Means: this test did not find a departure from exchangeability. {asks(verdict.measure)}'.rstrip()}\n"
        f"Does not mean: that there is none. A test can only ever refute exchangeability, never confirm it."
        + ("" if verdict.alpha is not None else f"\nPromised: {verdict.guarantee}")
        + ("\nSo few examples could hardly have given enough evidence." if verdict.n < FEW else "")
    )


def _when(verdict: Verdict, lines: Sequence[Line]) -> str:
    """Where the alarm sounded, and what is known of the change."""
    if len(verdict.alarms) > 1:
        return (
            f"The alarm sounded {len(verdict.alarms):,} times in {verdict.n:,} examples, at {_several(verdict.alarms)}."
            f"\nBefore them the evidence was lowest after examples {_several(verdict.changepoints)}: the changes began "
            "about there or later (estimates, without a guarantee)."
        )
    began = f"after example {verdict.changepoint:,}" if verdict.changepoint else "at the very start"
    if len(lines) > 1:
        return (
            f"The alarm sounded at example {verdict.rejected_at:,} of {verdict.n:,}.\n"
            f"The evidence began to rise {began}: the change came about there (a quick estimate, without a guarantee)."
        )
    return (
        f"The alarm sounded at example {verdict.rejected_at:,} of {verdict.n:,}.\n"
        f"The evidence was lowest {began}: the change began about there or later (an estimate, without a guarantee)."
    )


def _several(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
    return ", ".join(f"{number:,}" for number in numbers[:NAMED]) + more


def _figures(verdict: Verdict, lines: Sequence[Line], what: str = "order") -> str:
    if len(lines) > 1 and verdict.threshold is not None:
        return _of_lines(verdict.threshold, lines, what)
    since = " (since the last restart)" if verdict.on_alarm == "restart" and verdict.alarms else ""
    alarm = f"; the alarm is at {verdict.threshold:g}" if verdict.threshold is not None else ""
    return (
        f"Evidence against a random {what}: peak {capital(verdict.log10_max)}, "
        f"at the end {capital(verdict.log10_martingale)}{since}{alarm}."
    )


def _of_lines(threshold: float, lines: Sequence[Line], what: str) -> str:
    """The highest capital of each line that had enough, or the most, beside what it needs."""
    whole, *columns = lines
    peaks = {line.name: max(0.0, float(line.log_value.max()) / LN10) for line in columns}
    ranked = sorted(columns, key=lambda line: -peaks[line.name])
    enough = [line for line in ranked if line.reached(math.log(threshold)) is not None]
    told = enough[:NAMED] or ranked[:1]
    said = ", ".join(f"{printable(line.name)} {capital(peaks[line.name])}" for line in told)
    more = f" and {len(enough) - NAMED:,} more" if len(enough) > NAMED else ""
    peak = capital(max(0.0, float(whole.log_value.max()) / LN10))
    every = f"{len(columns):,} column{'s' if len(columns) > 1 else ''}"
    return (
        f"Evidence against a random {what}: peak {peak} of whole examples (the alarm is at "
        f"{threshold / whole.weight:,.6g}); of {every} looked at one by one (each at "
        f"{threshold / columns[0].weight:,.6g}) {said}{more}{'' if enough else ' at most'}."
    )


def _unsaid(lines: Sequence[Line]) -> str:
    return "which feature changed" if len(lines) < 2 else "that a column which brought less evidence stayed the same"


def _promise(verdict: Verdict, lines: Sequence[Line]) -> str:
    """How sure one may be of the alarm."""
    if len(lines) > 1 and verdict.alpha is not None:
        return (
            "If the examples were exchangeable (in random order, as i.i.d. data are), a rejection, by any of "
            f"these, would come with probability at most {100.0 * verdict.alpha:g} %."
        )
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        return (
            f"If the examples were exchangeable (in random order, as i.i.d. data are), evidence of "
            f"{verdict.threshold:g} would be reached with probability at most {100.0 * verdict.alpha:g} %."
        )
    if verdict.period is None:
        return verdict.guarantee
    if verdict.on_alarm == "restart":
        return f"{verdict.guarantee} For {verdict.n:,} examples that is {verdict.n / verdict.period:.2g}."
    chance = 100.0 * verdict.n / verdict.period
    here = f"{chance:.2g} %" if chance < 100.0 else "no bound, so a false alarm would be no surprise"
    return f"{verdict.guarantee} For {verdict.n:,} examples that is {here}."
