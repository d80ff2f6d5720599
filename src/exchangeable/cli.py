"""The command line: parse, call, print.

Exit codes: 0 not rejected, 1 rejected, 2 wrong usage, 3 could not decide (bad or too little data, input or output).
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

import exchangeable as ex
from exchangeable import alarms, bets, catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from exchangeable.protocols import Alarm, Bet, Floats, Measure
    from exchangeable.shift import Evidence
    from exchangeable.tables import Labels, Table

REJECTED, USAGE, UNDECIDED, INTERRUPTED = 1, 2, 3, 130
PICTURES = (".png", ".svg", ".pdf")
CHUNK = 1024  # examples between two movements of the progress bar
FEW = 30  # examples that can hardly carry evidence of 100
NAMED = 10  # alarms that are named in words
SMALL = 5  # examples in a typical class; where there are fewer, the label may well be a number
LISTED = 20  # streams of a fleet that are named in words
WIDE = 100.0  # times the typical spread: a feature that decides all distances

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Is this data still exchangeable (i.i.d.)? A test with a guarantee: on exchangeable data the chance of ever "
    "a false alarm is at most alpha.",
    epilog="Exit codes: 0 not rejected, 1 rejected, 2 wrong usage, 3 could not decide (bad or too little data, I/O).",
)


MeasureName = StrEnum("MeasureName", {name: name for name in catalogue.MEASURES})  # type: ignore[misc]
BetName = StrEnum("BetName", {name: name for name in catalogue.BETS})  # type: ignore[misc]
AlarmName = StrEnum("AlarmName", {name: name for name in catalogue.ALARMS})  # type: ignore[misc]
MEASURE, BET, ALARM = MeasureName("nearest-neighbour"), BetName("adaptive"), AlarmName("ville")  # the defaults


class OnAlarm(StrEnum):
    """What follows an alarm."""

    latch = "latch"
    restart = "restart"


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


class Names(StrEnum):
    """The paper's datasets."""

    usps = "usps"
    satellite = "satellite"


class Experiments(StrEnum):
    """What of the paper to run."""

    usps = "usps"
    satellite = "satellite"
    all = "all"


class Reading(NamedTuple):
    """What a measure makes of a table: the kind of labels, what it asks and cannot see, and when it takes long."""

    labels: Labels
    asks: str
    max_rows: int = 100_000
    width: int | None = None


READINGS: Mapping[str, Reading] = {
    "nearest-neighbour": Reading(
        "classes",
        "It asks whether examples lie nearer to their own class than to others as much as before; a shift of all "
        "classes together can escape it, and --measure nearest-distance may see it.",
    ),
    "nearest-distance": Reading(
        "none",
        "It asks whether examples lie as near to their nearest neighbours as before; it looks at the features alone, "
        "so what happens to labels escapes it, and so can a change among examples that stay where others were.",
    ),
    "nearest-residual": Reading(
        "numbers",
        "It asks whether labels differ from those of the most similar examples as before; a change of the features "
        "alone can escape it, and --measure nearest-distance may see it.",
    ),
    "value": Reading(
        "none",
        "It asks whether the numbers of this one column are as large, and follow one another, as before; it sees no "
        "other column.",
        max_rows=10_000_000,
        width=1,
    ),
    "conditional-nearest-neighbour": Reading(
        "classes",
        "It compares each example with its own class only, so how often each class comes plays no part, and a shift of "
        "all classes together can escape it.",
    ),
    "conditional-nearest-distance": Reading(
        "classes",
        "It asks whether examples lie as near to others of their own class as before; how often each class comes plays "
        "no part.",
    ),
}


class Choice(NamedTuple):
    """The options of a test; None is the default of what they belong to."""

    measure: str = MEASURE.value
    neighbours: int | None = None
    bet: str = BET.value
    epsilon: float | None = None
    alarm: str = ALARM.value
    alpha: float | None = None
    period: float | None = None
    on_alarm: str = "latch"
    seed: int = 0

    def monitor(self) -> ex.Monitor:
        """The monitor, or wrong usage."""
        parts = self._measure(), self._bet(), self._alarm()
        monitor: ex.Monitor = _usage(lambda: ex.Monitor(*parts, seed=self.seed, on_alarm=self.on_alarm))
        return monitor

    def _measure(self) -> Measure:
        make: Callable[..., Measure] = catalogue.MEASURES[self.measure]
        if self.neighbours is None:
            return make()
        if not self.measure.startswith("nearest-"):
            raise Failure(f"--neighbours goes with the measures nearest-..., got it with {self.measure}", USAGE)
        measure: Measure = _usage(lambda: make(self.neighbours))
        return measure

    def _bet(self) -> Bet:
        if self.epsilon is None:
            return catalogue.BETS[self.bet]()
        if self.bet != "power" or not 0.0 < self.epsilon < 1.0:
            law = "--epsilon must lie in (0, 1) and goes with --bet power"
            raise Failure(f"{law}, got {self.epsilon} with {self.bet}", USAGE)
        return bets.Power(self.epsilon)

    def _alarm(self) -> Alarm:
        make: Callable[..., Alarm] = catalogue.ALARMS[self.alarm]
        own, other = (self.alpha, self.period) if self.alarm == "ville" else (self.period, self.alpha)
        if other is not None:
            law = "--alpha goes with --alarm ville, and --period with the other alarms"
            raise Failure(f"{law}, got --{'period' if self.alarm == 'ville' else 'alpha'} with {self.alarm}", USAGE)
        alarm: Alarm = make() if own is None else _usage(lambda: make(own))
        return alarm


class Verdict(NamedTuple):
    """What `exchangeable test --format json` prints; None is for what has no meaning there."""

    file: str
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
    log10_martingale: float
    log10_max: float
    rejected: bool
    rejected_at: int | None
    changepoint: int | None
    alarms: list[int]
    changepoints: list[int]
    seed: int
    guarantee: str


class RejectedError(Exception):
    """The verdict whose exit code is 1; nothing else ends with it."""


class Failure(Exception):  # noqa: N818
    """One sentence for the user, and the exit code."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def judge(path: ex.Path, monitor: ex.Monitor, choice: Choice, name: str, n_features: int) -> Verdict:
    """Summarise a path: rejected as soon as the alarm has sounded once."""
    log10 = path.log_value / math.log(10.0)
    alarm, bet = monitor.alarm, monitor.martingale.bet
    sounds = path.alarm.nonzero()[0][: 1 if choice.on_alarm == "latch" else None]
    return Verdict(
        file=name,
        n=len(path.n),
        n_features=n_features,
        measure=choice.measure,
        neighbours=choice.neighbours or (1 if choice.measure.startswith("nearest-") else None),
        bet=choice.bet,
        epsilon=bet.epsilon if isinstance(bet, bets.Power) else None,
        alarm=choice.alarm,
        alpha=getattr(alarm, "alpha", None),
        threshold=alarm.threshold if isinstance(alarm, alarms.Ville) else None,  # of the capital
        period=getattr(alarm, "period", None),
        on_alarm=choice.on_alarm,
        log10_martingale=float(log10[-1]),
        log10_max=max(0.0, float(log10.max())),  # S_0 = 1
        rejected=len(sounds) > 0,
        rejected_at=int(path.n[sounds[0]]) if len(sounds) else None,
        changepoint=path.changepoint(),
        alarms=path.n[sounds].tolist(),
        changepoints=path.lowest[sounds].tolist(),
        seed=choice.seed,
        guarantee=path.guarantee,
    )


def capital(log10: float) -> str:
    """An amount of evidence in words of a reader: 0.013, 56, 1,240, 10^17.3."""
    if -4.0 < log10 < 4.0:
        return f"{10.0**log10:.2g}" if log10 < 1.99 else f"{10.0**log10:,.0f}"
    return f"10^{log10:.1f}" if abs(log10) < 1e9 else f"10^{log10:.4g}"


def words(verdict: Verdict) -> str:
    """The verdict as a data scientist would want it said."""
    level = None if verdict.alpha is None else f"at level {100.0 * verdict.alpha:g} %"
    if verdict.rejected:
        said = (
            f"ALARM of {verdict.alarm}." if level is None else f"REJECTED {level}: the order of these examples matters."
        )
        maybe = "unless it is a false alarm, something" if level is None else "something"
        return (
            f"{said} {_when(verdict)}\n{_figures(verdict)}\n"
            f"Means: {maybe} drifted, changed, is sorted or comes in batches: random splits and cross-validation may "
            f"promise too much. {_promise(verdict)}\n"
            f"Does not mean: that the change began where the alarm sounded; nor does it say which feature changed."
        )
    said = f"NO ALARM of {verdict.alarm}" if level is None else f"NOT REJECTED {level}"
    return (
        f"{said}: no convincing evidence that the order of the {verdict.n:,} examples matters.\n"
        f"{_figures(verdict)}\n"
        f"Means: this test did not find a departure from exchangeability. {READINGS[verdict.measure].asks}\n"
        f"Does not mean: that there is none. A test can only ever refute exchangeability, never confirm it."
        + ("" if verdict.alpha is not None else f"\nPromised: {verdict.guarantee}")
        + ("\nSo few examples could hardly have given enough evidence." if verdict.n < FEW else "")
    )


def _when(verdict: Verdict) -> str:
    """Where the alarm sounded, and what is known of the change."""
    if len(verdict.alarms) > 1:
        return (
            f"The alarm sounded {len(verdict.alarms):,} times in {verdict.n:,} examples, at {_several(verdict.alarms)}."
            f"\nBefore them the evidence was lowest after examples {_several(verdict.changepoints)}: the changes began "
            "about there or later (estimates, without a guarantee)."
        )
    began = f"after example {verdict.changepoint:,}" if verdict.changepoint else "at the very start"
    return (
        f"The alarm sounded at example {verdict.rejected_at:,} of {verdict.n:,}.\n"
        f"The evidence was lowest {began}: the change began about there or later (an estimate, without a guarantee)."
    )


def _several(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - NAMED:,} more" if len(numbers) > NAMED else ""
    return ", ".join(f"{number:,}" for number in numbers[:NAMED]) + more


def _figures(verdict: Verdict) -> str:
    since = " (since the last restart)" if verdict.on_alarm == "restart" and verdict.alarms else ""
    alarm = f"; the alarm is at {verdict.threshold:g}" if verdict.threshold is not None else ""
    return (
        f"Evidence against a random order: peak {capital(verdict.log10_max)}, "
        f"at the end {capital(verdict.log10_martingale)}{since}{alarm}."
    )


def _promise(verdict: Verdict) -> str:
    """How sure one may be of the alarm."""
    if verdict.alpha is not None and verdict.on_alarm == "latch":
        return (
            f"If the examples were exchangeable (in random order, as i.i.d. data are), evidence of "
            f"{verdict.threshold:g} would ever be reached with probability at most {100.0 * verdict.alpha:g} %."
        )
    if verdict.period is None:
        return verdict.guarantee
    if verdict.on_alarm == "restart":
        return f"{verdict.guarantee} For {verdict.n:,} examples that is {verdict.n / verdict.period:.2g}."
    chance = 100.0 * verdict.n / verdict.period
    here = f"{chance:.2g} %" if chance < 100.0 else "no bound, so a false alarm would be no surprise"
    return f"{verdict.guarantee} For {verdict.n:,} examples that is {here}."


def _names(names: Mapping[str, object]) -> str:
    """For a help page, where the parser's own list breaks names in two."""
    return ", ".join(names)


HOW, TABLE, RESULT = "The test", "The table", "The result"  # parts of the help pages
File = Annotated[Path, typer.Argument(help="CSV, TSV (also .gz), Parquet, or NPZ with arrays X and y.")]
Label = Annotated[
    str | None, typer.Option(help="Column of labels (NPZ: array of labels, default y).", rich_help_panel=TABLE)
]
Categorical = Annotated[
    list[str] | None, typer.Option(help="Column to one-hot encode; repeat for more.", rich_help_panel=TABLE)
]
Drop = Annotated[list[str] | None, typer.Option(help="Column to leave out; repeat for more.", rich_help_panel=TABLE)]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="CSV, TSV: columns are called 1, 2, ...", rich_help_panel=TABLE)
]
Encoding = Annotated[str, typer.Option(help="CSV, TSV: character encoding.", rich_help_panel=TABLE)]
Seed = Annotated[int, typer.Option(help="Of the random tie-breaking.", rich_help_panel=HOW)]
Plot = Annotated[
    Path | None, typer.Option(help="Draw the growth of the evidence (.png, .svg, .pdf).", rich_help_panel=RESULT)
]
Printed = Annotated[Format, typer.Option(help="How to print it.", rich_help_panel=RESULT)]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to draw the figure.")] = Path("exchangeable-demo.png"),
) -> None:
    """Test the bundled handwritten digits, in their original order and shuffled. No network, no options needed."""
    import numpy as np

    _check_picture(out)
    X, y = ex.datasets.digits()
    orders = {"in their original order": np.arange(len(y)), "shuffled": np.random.default_rng(0).permutation(len(y))}
    paths: dict[str, Floats] = {}
    choice = Choice()
    _print(f"{len(y):,} handwritten digits of 64 pixels (scikit-learn's): does their order matter?")
    for name, order in orders.items():
        monitor = choice.monitor()
        path = _watch(monitor, X[order], y[order], f"digits {name}")
        paths[f"digits {name}"] = path.log_value
        _print(f"\nDigits {name}\n{words(judge(path, monitor, choice, 'digits', X.shape[1]))}")
    _draw(ex.plots.growth(paths, title="Evidence against exchangeability"), out)
    _print(f"\nThe figure is in {_shown(out)}")


@app.command()
def test(
    file: File,
    label: Label = None,
    categorical: Categorical = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    max_rows: Annotated[
        int | None,
        typer.Option(
            min=2, help="Refuse longer tables; default 100,000, with value 10,000,000.", rich_help_panel=TABLE
        ),
    ] = None,
    measure: Annotated[
        MeasureName,
        typer.Option(
            metavar="NAME",
            help=f"What makes an example strange: {_names(catalogue.MEASURES)}. nearest-residual needs a label that is "
            "a number, nearest-distance and value none, the others classes; value takes one column.",
            rich_help_panel=HOW,
        ),
    ] = MEASURE,
    neighbours: Annotated[
        int | None, typer.Option(min=1, help="Of the measures nearest-...; default 1.", rich_help_panel=HOW)
    ] = None,
    bet: Annotated[
        BetName,
        typer.Option(
            metavar="NAME", help=f"How to bet on the p-values: {_names(catalogue.BETS)}.", rich_help_panel=HOW
        ),
    ] = BET,
    epsilon: Annotated[
        float | None, typer.Option(help="Of the power bet, in (0, 1); default 0.92.", rich_help_panel=HOW)
    ] = None,
    alarm: Annotated[
        AlarmName,
        typer.Option(metavar="NAME", help=f"When to speak up: {_names(catalogue.ALARMS)}.", rich_help_panel=HOW),
    ] = ALARM,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Of ville: largest acceptable chance of ever a false alarm; default 0.01.", rich_help_panel=HOW
        ),
    ] = None,
    period: Annotated[
        float | None,
        typer.Option(
            help="Of the other alarms: how many examples should pass before a false one; default 10,000.",
            rich_help_panel=HOW,
        ),
    ] = None,
    on_alarm: Annotated[
        OnAlarm, typer.Option(help="Stay on, or begin anew to find the next change.", rich_help_panel=HOW)
    ] = OnAlarm.latch,
    seed: Seed = 0,
    plot: Plot = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Test whether the order of a table's rows matters."""
    from exchangeable import tables

    _check_picture(plot)
    given = (neighbours, bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed)
    choice = Choice(measure.value, *given)
    monitor, reading = choice.monitor(), READINGS[choice.measure]
    if reading.width == 1 and categorical:
        raise Failure(f"--categorical does not go with --measure {choice.measure}: it takes a column of numbers", USAGE)
    table = tables.read(
        file,
        label=label,
        labels=reading.labels,
        width=reading.width,
        categorical=categorical or (),
        drop=drop or (),
        header=not no_header,
        encoding=encoding,
        max_rows=reading.max_rows if max_rows is None else max_rows,
    )
    _note(table)
    path = _watch(monitor, table.X[:, 0] if reading.width == 1 else table.X, table.y, table.name)
    verdict = judge(path, monitor, choice, table.name, table.X.shape[1])
    if plot is not None:
        lines = () if verdict.threshold is None else (verdict.threshold,)
        paths, changes = {choice.bet: path.log_value}, verdict.changepoints
        _draw(ex.plots.growth(paths, thresholds=lines, changepoints=changes, title=_title(table)), plot)
    _print(json.dumps(verdict._asdict()) if format is Format.json else f"{_described(table)}\n{words(verdict)}")
    if verdict.rejected:
        raise RejectedError


@app.command()
def shift(
    file: File,
    label: Label = None,
    categorical: Categorical = None,
    drop: Drop = None,
    no_header: NoHeader = False,
    encoding: Encoding = "utf-8",
    max_rows: Annotated[
        int, typer.Option(min=2, help="Refuse longer tables: time grows with the square.", rich_help_panel=TABLE)
    ] = 100_000,
    alpha: Annotated[
        float,
        typer.Option(help="Largest acceptable chance of ever a false report, for either shift.", rich_help_panel=HOW),
    ] = 0.01,
    seed: Seed = 0,
    plot: Plot = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Tell apart whether the classes come in other proportions (label shift) or look different (concept shift)."""
    from exchangeable import tables

    _check_picture(plot)
    Choice(alpha=alpha, seed=seed).monitor()  # are they lawful? Before the work
    table = tables.read(
        file,
        label=label,
        categorical=categorical or (),
        drop=drop or (),
        header=not no_header,
        encoding=encoding,
        max_rows=max_rows,
    )
    _note(table)
    found = ex.shift_test(table.X, table.y or (), alpha=alpha, seed=seed)
    if plot is not None:
        paths = {"labels": found.label.log_value, "examples given their labels": found.concept.log_value}
        _draw(ex.plots.growth(paths, thresholds=(1.0 / alpha,), title=_title(table)), plot)
    record = _shift_record(found, table, seed)
    _print(json.dumps(record) if format is Format.json else f"{_described(table)}\n{_shift_words(found)}")
    if record["rejected"]:
        raise RejectedError


def _shift_record(found: ex.Shift, table: Table, seed: int) -> dict[str, Any]:
    """What `exchangeable shift --format json` prints."""
    return {
        "file": table.name,
        "n": len(table.X),
        "n_features": table.X.shape[1],
        "n_classes": len(set(table.y or ())),
        "alpha": found.alpha,
        "threshold": 1.0 / found.alpha,
        "verdict": found.verdict,
        "rejected": found.label.rejected or found.concept.rejected,
        "label": _evidence_record(found.label),
        "concept": _evidence_record(found.concept),
        "seed": seed,
        "guarantee": found.guarantee,
    }


def _evidence_record(evidence: Evidence) -> dict[str, Any]:
    log10 = evidence.log_value / math.log(10.0)
    return {
        "log10_martingale": float(log10[-1]),
        "log10_max": max(0.0, float(log10.max())),  # S_0 = 1
        "rejected": evidence.rejected,
        "rejected_at": evidence.alarm_at,
    }


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


def _shift_words(found: ex.Shift) -> str:
    """The verdict and its figures."""
    lines = [SHIFTS[found.verdict]]
    for name, evidence in (("of label shift", found.label), ("of concept shift", found.concept)):
        record, level = _evidence_record(evidence), f"{1.0 / found.alpha:g}"
        reached = f"reached {level} at example {evidence.alarm_at:,}" if evidence.rejected else f"never reached {level}"
        lines.append(
            f"Evidence {name}: peak {capital(record['log10_max'])}, at the end {capital(record['log10_martingale'])}; "
            f"{reached}."
        )
    return "\n".join(
        [
            *lines,
            f"Promised: {found.guarantee}",
            "Does not mean: that what was not found is not there. A test can only ever refute exchangeability.",
        ]
    )


@app.command()
def fetch(
    name: Annotated[Names, typer.Argument(help="Which of the paper's datasets.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take the files from this folder, no network.")] = None,
    to: Annotated[Path | None, typer.Option(help="Where to keep them; default: the user's cache folder.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Web address to use instead of the files' public homes.")] = None,
) -> None:
    """Download USPS or Satellite from its public home, checked against its SHA-256."""
    if source is not None and mirror is not None:
        raise Failure("--from and --mirror exclude one another: files come from a folder or from the network", USAGE)
    with _progress() as progress:
        try:
            paths = ex.datasets.fetch(name.value, to, mirror=mirror, source=source, progress=progress)
        except ValueError as error:
            raise Failure(str(error), USAGE) from error
    for path in paths:
        _print(_shown(path))


@app.command()
def reproduce(
    name: Annotated[Experiments, typer.Argument(help="Which experiments.")] = Experiments.all,
    data: Annotated[Path | None, typer.Option(help="Folder with the datasets; default: the cache of fetch.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures (PNG, SVG) and the table.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of theta.")] = 20,
    format: Annotated[Format, typer.Option(help="Of the table.")] = Format.text,  # noqa: A002
) -> None:
    """Run the experiments of Fedorova et al. (2012) and set the published values beside ours."""
    if out is not None:
        ex.plots.axes()  # fails now, not after the work, where matplotlib is missing
        out.mkdir(parents=True, exist_ok=True)
    with _progress() as progress:
        rows = ex.paper.reproduce(name.value, data=data, out=out, seeds=seeds, progress=progress)
    if format is Format.json:
        _print(json.dumps([row._asdict() for row in rows], indent=1))
    else:
        _table(rows)
    if out is not None:
        typer.echo(f"Figures and table.md are in {_shown(out)}", err=True)


@app.command()
def fleet(
    file: Annotated[Path, typer.Argument(help="CSV, TSV (also .gz) or Parquet, one row for each stream.")],
    alpha: Annotated[float, typer.Option(help="Largest acceptable rate of false discoveries.")] = 0.05,
    stream: Annotated[str, typer.Option(help="Column of the streams' names.")] = "stream",
    log_value: Annotated[
        str | None, typer.Option(help="Column of current martingale values, natural logs; default log_value.")
    ] = None,
    log10_value: Annotated[
        str | None, typer.Option(help="The same as logs to base 10; default log10_martingale.")
    ] = None,
    format: Annotated[Format, typer.Option(help="Of the result.")] = Format.text,  # noqa: A002
) -> None:
    """Find the streams that have changed among many, from the current evidence of each (e-BH)."""
    from exchangeable import tables

    _usage(lambda: ex.fleet.e_bh([0.0], alpha))  # is alpha lawful? Before the work
    found = ex.fleet.e_bh(tables.read_fleet(file, stream=stream, log_value=log_value, log10_value=log10_value), alpha)
    if format is Format.json:
        _print(json.dumps(_fleet_record(found)))
    else:
        _print(f"{_shown(Path(file.name))}: {_fleet_words(found)}")
    if found.names:
        raise RejectedError


def _fleet_record(found: ex.fleet.Discoveries) -> dict[str, Any]:
    """What `exchangeable fleet --format json` prints."""
    log10 = (found.log_values / math.log(10.0)).tolist()
    return {
        "n_streams": found.streams,
        "n_rejected": len(found.names),
        "alpha": found.alpha,
        "log10_threshold": found.log_threshold / math.log(10.0),
        "rejected": [
            {"stream": name, "log10_martingale": value} for name, value in zip(found.names, log10, strict=True)
        ],
    }


def _fleet_words(found: ex.fleet.Discoveries) -> str:
    """The discoveries as an operator would want them said; names are quoted, so that none can command a terminal."""
    level, needed = f"{100.0 * found.alpha:g} %", capital(found.log_threshold / math.log(10.0))
    if not found.names:
        return (
            f"NONE of {found.streams:,} streams has changed, as far as the evidence goes, at a false discovery rate of "
            f"{level}.\nA stream alone would need evidence of {needed}; several together need less each."
        )
    record = _fleet_record(found)["rejected"]
    rows = [f"  {row['stream']!r}: evidence {capital(row['log10_martingale'])}" for row in record[:LISTED]]
    more = [f"  and {len(record) - LISTED:,} more; --format json names them all"] * (len(record) > LISTED)
    return "\n".join(
        [
            f"{len(record):,} of {found.streams:,} streams CHANGED, at a false discovery rate of {level}: "
            f"evidence of at least {needed} each.",
            *rows,
            *more,
            f"Means: of the streams named so, at most {level} on average have not changed. Needs: current values, not "
            "the highest so far; and independent streams, or a time to look not chosen by looking at the others.",
        ]
    )


@app.command()
def certify(
    measure: Annotated[str, typer.Option(help="Name of the measure.")] = "nearest-neighbour",
    bet: Annotated[str, typer.Option(help="Name of the bet.")] = "adaptive",
    alarm: Annotated[str, typer.Option(help="Name of the alarm.")] = "ville",
    data: Annotated[
        str, typer.Option(help="Exchangeable data: continuous, ties, labelled, categorical, tiny, or all of them.")
    ] = "all",
    alpha: Annotated[float, typer.Option(help="Promised chance of an alarm within the steps.")] = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="How many sequences to simulate.")] = 4000,
    steps: Annotated[int, typer.Option(min=1, help="Examples of each (tiny: 8 at most).")] = 250,
    seed: Annotated[int, typer.Option(help="Of the data and of the tie-breaking.")] = 0,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: the cores, at most 8.")] = None,
    format: Annotated[Format, typer.Option(help="Of the result.")] = Format.text,  # noqa: A002
) -> None:
    """Count false alarms on simulated exchangeable data and hold them against the promise.

    Exit codes: 0 promise kept, 1 BROKEN, 2 wrong usage, 3 too few runs to see 1.3 times the promised rate.
    """
    from exchangeable import certificate

    kinds = list(certificate.DATA) if data == "all" else [data]
    surveys = [certificate.Survey([measure], [bet], [alarm], kind, runs, steps, alpha, seed) for kind in kinds]
    workers = processes or min(os.cpu_count() or 1, 8)
    with _progress() as progress:
        found = _usage(lambda: certificate.certify_all(surveys, processes=workers, progress=progress))
    _print(json.dumps([one.record() for one in found]) if format is Format.json else _certificate_words(found))
    if any(one.verdict == "BROKEN" for one in found):
        raise RejectedError
    if any(one.verdict == "undecided" for one in found):
        raise Failure(f"{runs:,} runs are too few to see 1.3 times the promised rate; use more --runs", UNDECIDED)


def _certificate_words(found: Sequence[ex.certificate.Certificate]) -> str:
    """One line for each kind of data, and what was promised."""
    first = found[0]
    lines = [f"{first.measure}, {first.bet}, {first.alarm}: {first.runs:,} runs of exchangeable data of each kind"]
    for one in found:
        low, high = one.interval
        lines.append(
            f"  {one.data:<12} {one.steps:>5,} steps: {one.false_alarms:>5,} false alarms, {100.0 * one.rate:5.2f} % "
            f"(99 % interval {100.0 * low:.2f} to {100.0 * high:.2f}), promised {100.0 * one.promise:g}: {one.verdict}"
        )
    lines.append(
        f"Means: BROKEN if the exact interval lies above the promise, which a kept promise does once in 200 at most. "
        f"A rate of 1.3 times the promise would be found with probability {min(one.power for one in found):.2f}."
    )
    return "\n".join(lines)


def _table(rows: Sequence[ex.paper.Row]) -> None:
    """The paper's table for a reader, and what it shows in one sentence."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"log10 of the capital: published, and ours over {rows[0].seeds} seeds")
    for column in ("data", "order", "n", "martingale", "published", "our median", "our range", "published inside?"):
        table.add_column(column, justify="left" if column in ("data", "order", "martingale") else "right")
    said = {True: "yes", False: "no", None: ""}
    for row in rows:
        published = "" if row.published_log10 is None else f"{row.published_log10:.2f}"
        span = f"{row.min_log10:.2f} to {row.max_log10:.2f}"
        first = (row.dataset, row.order, f"{row.n:,}", row.martingale)
        table.add_row(*first, published, f"{row.median_log10:.2f}", span, said[row.inside])
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as captured:
        console.print(table)
    _print(captured.get().rstrip("\n"))
    judged = [row for row in rows if row.inside is not None]
    _print(
        f"{sum(row.inside is True for row in judged)} of {len(judged)} published values lie inside the range of our "
        f"{rows[0].seeds} draw(s) of theta; a published value is itself one draw."
    )


def _note(table: Table) -> None:
    for note in _notes(table):
        typer.echo(f"exchangeable: note: {note}", err=True)


def _notes(table: Table) -> Iterator[str]:
    """What is lawful and yet seldom meant: row numbers among the features, or one feature that outweighs the rest."""
    import numpy as np

    for name, column in zip(table.features, table.X.T, strict=True):
        if len(column) >= FEW and (np.diff(column) > 0.0).all():
            remedy = "; --drop leaves it out" if len(table.features) > 1 else ""
            yield f"column {name!r} only ever rises, as a row number does{remedy}"
    if isinstance(table.y, list) and len(table.y) >= FEW and SMALL * len(set(table.y)) > len(table.y):
        yield f"there are {len(set(table.y)):,} classes; if the label is a number, --measure nearest-residual fits it"
    spread = table.X.std(axis=0)
    typical = float(np.median(spread))
    if table.X.shape[1] > 2 and 0.0 < WIDE * typical < spread.max():
        name = table.features[int(spread.argmax())]
        yield f"column {name!r} spreads over {WIDE:g} times as far as most and decides all distances; scale the table"


def _described(table: Table) -> str:
    """The table in one line."""
    n, d = table.X.shape
    classes = f", {len(set(table.y)):,} classes" if isinstance(table.y, list) else ""
    return f"{table.name}: {n:,} examples, {d:,} feature{'s' if d > 1 else ''}{classes}"


def _title(table: Table) -> str:
    return f"{table.name}: evidence against exchangeability".replace("$", r"\$")  # no formulas


def _watch(monitor: ex.Monitor, X: Floats, y: Any, name: str) -> ex.Path:
    """Extend the monitor in chunks, with a progress bar in proportion to the work (quadratic in examples of rows)."""
    parts = []
    with _progress() as progress:
        for lo in range(0, len(X), CHUNK):
            progress(name, lo**X.ndim, len(X) ** X.ndim)
            chunk = slice(lo, lo + CHUNK)
            parts.append(monitor.extend(X[chunk], None if y is None else y[chunk]))
    return ex.Path.join(parts)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function (what, how much done, of how much) that moves progress bars on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield show


def _print(text: str) -> None:
    """Data to stdout; a reader that went away is not a verdict."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing more is written at exit
        raise Failure("the reader of the output went away", UNDECIDED) from None


def _usage(make: Callable[[], Any]) -> Any:
    """Build an object from options: a refused value is wrong usage."""
    try:
        return make()
    except ValueError as error:
        raise Failure(str(error), USAGE) from error


def _check_picture(path: Path | None) -> None:
    """Before the work: can the picture be drawn, and is there a place for it?"""
    if path is None:
        return
    if path.suffix.lower() not in PICTURES:
        raise Failure(f"{_shown(path)} must end in one of {', '.join(PICTURES)}", USAGE)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Failure(f"{_shown(path)} cannot be written: its folder does not exist or is read-only", UNDECIDED)
    ex.plots.axes()


def _draw(ax: Axes, path: Path) -> None:
    """Write the picture beside its name first, so that a failure leaves no half of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        ax.figure.savefig(part, format=path.suffix[1:].lower())  # type: ignore[union-attr]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _shown(path: Path) -> str:
    """A path without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def _version(value: bool) -> None:
    if value:
        _print(f"exchangeable {ex.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options of all commands."""


def _interrupted(*_: object) -> None:
    raise Failure("interrupted", INTERRUPTED)


def main() -> None:
    """Run, and turn every failure into one sentence and the right exit code."""
    signal.signal(signal.SIGINT, _interrupted)
    sentence, code = "", 0
    try:
        app(prog_name="exchangeable")
    except RejectedError:
        code = REJECTED
    except SystemExit as done:  # of the parser: 0, 2 for wrong usage, and 1 where it could not write
        code = UNDECIDED if done.code == REJECTED else int(done.code or 0)
    except Failure as error:
        sentence, code = str(error), error.code
    except Exception as error:  # noqa: BLE001
        sentence, code = _explained(error)
    if sentence:
        with suppress(OSError):
            typer.echo(f"exchangeable: {sentence}", err=True)
    sys.exit(code)


def _explained(error: Exception) -> tuple[str, int]:
    """A sentence and the exit code for what the library raised."""
    from exchangeable import tables

    if isinstance(error, tables.ColumnError):
        return str(error), USAGE
    if isinstance(error, MemoryError):
        return "not enough memory", UNDECIDED
    if isinstance(error, (tables.TableError, ex.datasets.DatasetError, ImportError, OSError)):
        return str(error), UNDECIDED
    if "EXCHANGEABLE_TRACEBACK" in os.environ:
        raise error
    name = type(error).__name__
    return f"internal error, please report it with EXCHANGEABLE_TRACEBACK=1 set: {name}: {error}", UNDECIDED
