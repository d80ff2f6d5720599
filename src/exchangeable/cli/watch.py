"""`exchangeable watch`."""

from __future__ import annotations

import csv
import hashlib
import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable import catalogue
from exchangeable.analysis.verdict import Method
from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.monitor_options import MonitorOptions, check_unused, rate_monitor, risk_monitor
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    TEST_PANEL,
    AlarmName,
    Alpha,
    Bet,
    Epsilon,
    Invalid,
    Neighbours,
    OnAlarm,
    OnAlarmOption,
    Period,
    Seed,
    join_names,
)
from exchangeable.cli.output import print_notes
from exchangeable.cli.scores import ONE_NUMBER, read_reference, score_measure
from exchangeable.cli.table_options import split_names
from exchangeable.cli.watch_run import run_watch
from exchangeable.cli.watch_table import TableOptions, watch_table
from exchangeable.evidence import EvidenceMonitor
from exchangeable.monitor import Monitor
from exchangeable.rate import DIRECTIONS, RateMonitor

if TYPE_CHECKING:
    from exchangeable.data.events.delimited import Labels
    from exchangeable.watch import StateFile

INPUT_PANEL, OUTPUT_PANEL, STATE_PANEL = "Input", "Output", "State"
ROW_MEASURES = [name for name in catalogue.MEASURES if name not in ONE_NUMBER]
WatchMeasure = StrEnum("WatchMeasure", {name: name for name in (*ONE_NUMBER, *ROW_MEASURES)})  # type: ignore[misc]
BINS = 1024
LABELS: dict[str, Labels] = {  # the kind of labels that a measure needs, if any
    "nearest-neighbour": "classes",
    "nearest-residual": "numbers",
    "conditional-nearest-neighbour": "classes",
    "conditional-nearest-distance": "classes",
}


DirectionName = StrEnum("DirectionName", {name: name for name in DIRECTIONS})  # type: ignore[misc]


class InputFormat(StrEnum):
    """The format of the input lines."""

    auto = "auto"
    jsonl = "jsonl"
    csv = "csv"
    tsv = "tsv"


File = Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is standard input.")]
Input = Annotated[
    InputFormat,
    typer.Option(
        help="Format of the lines. auto decides by the first line that is not blank: jsonl if it starts with { or [ or "
        "is a single number, tsv if it has a tab and no comma, otherwise csv.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Features = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="CSV, TSV: columns of numbers; default: all columns with a number in the first row, except the label.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Label = Annotated[
    str | None,
    typer.Option(help="CSV, TSV, and with a reference table: column of labels.", rich_help_panel=INPUT_PANEL),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="CSV, TSV: the input has no header row; columns are named 1, 2, ...",
        rich_help_panel=INPUT_PANEL,
    ),
]
Measure = Annotated[
    WatchMeasure | None,
    typer.Option(
        metavar="NAME",
        help="Measure that scores how strange an example is: value, frozen (scores binned by the quantiles of "
        f"--reference), p-values (computed elsewhere), {join_names(ROW_MEASURES)}. The first three "
        "use one number. The others use rows and store all of them, so the time per row grows with the stream. "
        "Default: value.",
        rich_help_panel=TEST_PANEL,
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Without --measure: a table, such as training data, with which each row that arrives is compared. With "
        "--measure frozen: reference scores, one per line.",
        rich_help_panel=TEST_PANEL,
    ),
]
Bins = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Reference table: rank values in this many bins, in constant memory; default: exactly, and memory grows. "
        f"Measure frozen: number of bins; default {BINS}.",
        rich_help_panel=TEST_PANEL,
    ),
]
InvalidRows = Annotated[
    Invalid | None,
    typer.Option(
        metavar="HOW",
        help="Reference table: what to do with a row that has a missing or unknown column, or an invalid value. "
        "error (default): end the watch. missing: treat the value as missing, and count it.",
        rich_help_panel=INPUT_PANEL,
    ),
]
KeepColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B,...",
        help="Reference table: columns to test even if they would be set aside, such as identifiers.",
        rich_help_panel=INPUT_PANEL,
    ),
]
CategoricalColumns = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B,...",
        help="Reference table: numeric columns to treat as categories.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Wait = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="Reference table with --label, JSONL: labels come later, as lines with an id and the label. A row whose "
        "label takes longer is left out; forever waits for all.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="--wait: column of the reference with the seconds until its label came. New labels are then compared with "
        "those of the reference that came in time, even after a row has been left out.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Id = Annotated[
    str | None, typer.Option(metavar="KEY", help="--wait: key of the id; default id.", rich_help_panel=INPUT_PANEL)
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="--wait: key of the time of a row or label, in seconds or as ISO 8601 text with a UTC offset; default "
        "time.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Rate = Annotated[
    bool,
    typer.Option(
        "--rate",
        help="Monitor the rate of ones among zeros and ones instead of ranking the values: finds a change in the rate "
        "much sooner. The alarm is set by --period (default 10,000) or --alpha; there are no p-values.",
        rich_help_panel=TEST_PANEL,
    ),
]
Values = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="--rate: the numbers that can occur, in order, such as 1,2,3,4,5; default 0,1.",
        rich_help_panel=TEST_PANEL,
    ),
]
Direction = Annotated[
    DirectionName,
    typer.Option(
        help="--rate: detect a rate that rises (up), one that falls (down), or both.", rich_help_panel=TEST_PANEL
    ),
]
RiskLimit = Annotated[
    float | None,
    typer.Option(
        "--risk",
        metavar="LIMIT",
        help="Monitor losses, such as errors or scores from 0 to 1: has their mean passed this limit? They need not be "
        "exchangeable or independent. The alarm is set by --alpha (default 0.01) or --period; there are no p-values.",
        rich_help_panel=TEST_PANEL,
    ),
]
Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,HIGH",
        help="--risk: the smallest and the largest possible loss; default 0,1.",
        rich_help_panel=TEST_PANEL,
    ),
]
WatchAlarm = Annotated[
    AlarmName | None,
    typer.Option(
        metavar="NAME",
        help=f"When to raise an alarm: {join_names(catalogue.ALARMS)}. Default: ville; with --rate shiryaev-roberts, "
        "unless there is an --alpha; with --risk shiryaev-roberts, if there is a --period.",
        rich_help_panel=TEST_PANEL,
    ),
]
Every = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Write a line for every N-th example, and for every new alarm; default 1. Default with a reference table: "
        "a line for every new alarm, and one at the end.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
AlarmsOnly = Annotated[bool, typer.Option("--alarms-only", help="Write only new alarms.", rich_help_panel=OUTPUT_PANEL)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Write nothing.", rich_help_panel=OUTPUT_PANEL)]
State = Annotated[
    Path | None,
    typer.Option(help="State file: resume from it if it exists, and keep it up to date.", rich_help_panel=STATE_PANEL),
]
SaveEvery = Annotated[
    float,
    typer.Option(
        min=0.0, help="Seconds between saves of the state; 0 saves after every batch.", rich_help_panel=STATE_PANEL
    ),
]


def watch(
    file: File = "-",
    input: Input = InputFormat.auto,  # noqa: A002
    features: Features = None,
    label: Label = None,
    no_header: NoHeader = False,
    measure: Measure = None,
    rate: Rate = False,
    values: Values = None,
    direction: Direction = DirectionName("both"),  # noqa: B008 (a constant)
    risk: RiskLimit = None,
    bounds: Bounds = None,
    reference: Reference = None,
    bins: Bins = None,
    keep: KeepColumns = None,
    categorical: CategoricalColumns = None,
    invalid: InvalidRows = None,
    wait: Wait = None,
    delay: Delay = None,
    id: Id = None,  # noqa: A002
    time: Time = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: WatchAlarm = None,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Seed = None,
    every: Every = None,
    alarms_only: AlarmsOnly = False,
    quiet: Quiet = False,
    state: State = None,
    save_every: SaveEvery = 5.0,
) -> None:
    """Monitor a stream of lines: read JSONL, CSV or TSV and write one line of JSON for each example.

    A line of JSONL is an object such as {"x": 1.5}, a number, or a list of numbers. "x" may be a list; "y", "seq", "id"
    and "time" are optional. Each output line has n, p, log10_martingale (null if the capital is 0) and alarm; while the
    alarm is on, also alarm_at and changepoint; "id" is copied. Each line is processed as soon as it is read. An invalid
    line ends the watch. With --rate there is no p, true and false are 1 and 0, and a new alarm also has rate_before and
    rate_after, the shares of values of at least "value". With --risk there is no p either, and each line has mean, low
    and high: the mean loss so far, and an interval that covers the mean risk with probability 1 - alpha at all times.
    With --period and --rate or --risk, the alarm compares log10_statistic, not log10_martingale, with a level.

    With --reference TABLE and no --measure, each row with named columns (an object of JSON, or CSV with a header) is
    compared with the table, by ex.TableMonitor. There is one line of output for each new alarm, one for every N-th row
    with --every N, and one at the end: n, log10_evidence, alarm, alarm_at, changepoint, rejected_by (the columns and
    views that raised the alarm) and columns (the log10 evidence of each that is above 0 or has rejected). With --wait,
    a row has an "id", and its label follows as a line such as {"id": "a7", "defaulted": 1}.

    With --state, a resumed watch gives exactly the numbers of an uninterrupted one. The state is saved after the
    output, so after a crash or kill -9 some examples may have to be sent again; they are then written again with the
    same n. Lines of JSON with "seq" (1, 2, ...) can safely be sent twice: known ones are skipped, and a gap is an
    error. With --reference, "seq" counts rows, not labels, unless it is a column of the table.
    Standard input is assumed to continue where it ended; a FILE is continued where reading stopped. The options must be
    those that the state was created with, and only one process can use a state file. SIGINT and SIGTERM save the state.

    Exit codes: 0 no alarm, 1 alarm (with latch also one from before the resume), 2 usage error, 3 invalid line or an
    error of input, output or state, 130 SIGINT, 143 SIGTERM, 141 the reader of the output went away.
    """
    from exchangeable import watch as watching

    kind = _evidence_kind(rate, risk, values, str(direction), bounds)
    lists: dict[str, Any] = {"keep": keep, "categorical": categorical}
    lists = {name: None if value is None else split_names(value) for name, value in lists.items()}
    only_table = {**lists, "invalid": invalid, "wait": wait, "delay": delay, "id": id, "time": time}
    if reference is not None and measure is None and kind is None:
        unused = {"features": features, "neighbours": neighbours, "bet": bet, "epsilon": epsilon, "alarm": alarm}
        table = TableOptions(reference, label, alpha, period, bins, str(on_alarm), seed, **only_table)
        watch_table(
            table.checked(unused), file, input.value, not no_header, every, alarms_only, quiet, state, save_every
        )
        return
    for option, value in only_table.items():
        if value is not None:
            raise CommandError(f"--{option} requires --reference TABLE, without --measure, --rate or --risk", USAGE)
    name, chosen = str(alarm or DEFAULT_ALARM), measure or WatchMeasure("value")
    options = MonitorOptions(str(chosen), neighbours, bet, epsilon, name, alpha, period, on_alarm, seed)
    scores = None if kind else read_reference(options, reference, bins)
    monitor: Monitor | EvidenceMonitor
    if kind is not None:
        check_unused(kind, options, alarm, {"reference": reference, "bins": bins, "label": label, "seed": seed})
    if risk is not None:
        monitor = risk_monitor(options, alarm, risk, bounds)
    elif rate:
        monitor = rate_monitor(options, alarm, values, str(direction))
    else:
        monitor = options.build(score_measure(options, scores, bins or BINS))
    reader = watching.Reader(
        input.value,
        rows=chosen not in ONE_NUMBER,
        events=kind is not None,
        labels=LABELS.get(chosen, "none"),
        header=not no_header,
        features=None if features is None else next(csv.reader([features])),
        label=label,
        notify=None if quiet else lambda message: print_notes([message]),
    )
    state_file = None
    if state is not None:
        record = _record(monitor, options, scores, bins or BINS) | {"features": features, "label": label}
        state_file = watching.StateFile(state, record, free=_free_fields(options))
    elif seed is None and not quiet and chosen != "p-values" and isinstance(monitor, Monitor):
        print_notes([f"the seed is {monitor.seed}: --seed {monitor.seed} repeats this run"])

    def resume(file: StateFile | None) -> tuple[Monitor | EvidenceMonitor, watching.Reader]:
        saved = None if file is None else file.load((Monitor, EvidenceMonitor), reader)
        return saved or monitor, reader

    output = watching.OutputOptions(every or 1, alarms_only, quiet)
    loop = partial(watching.Watch, options=output, state=state_file, save_every=save_every)
    run_watch(file, state_file, resume, loop)


def _evidence_kind(
    rate: bool, risk: float | None, values: str | None, direction: str, bounds: str | None
) -> str | None:
    """Return whether the rate or the risk is monitored; None stands for a test with p-values."""
    if rate and risk is not None:
        raise CommandError("--rate and --risk cannot be combined: one monitor watches one of them", USAGE)
    if not rate and (values is not None or direction != "both"):
        raise CommandError("--values and --direction require --rate", USAGE)
    if risk is None and bounds is not None:
        raise CommandError("--bounds requires --risk", USAGE)
    return "rate" if rate else None if risk is None else "risk"


def _record(
    monitor: Monitor | EvidenceMonitor, options: MonitorOptions, scores: list[float] | None, bins: int
) -> dict[str, Any]:
    """Return the options that a state file is created with; a resumed watch must have the same."""
    if not isinstance(monitor, Monitor):
        kinds = {"rate": isinstance(monitor, RateMonitor) or None, "risk": getattr(monitor, "limit", None)}
        lists = {name: [*getattr(monitor, name, ())] or None for name in ("values", "bounds")}
        names = ("alpha", "period", "direction", "on_alarm")
        return {**kinds, **lists, **{name: getattr(monitor, name, None) for name in names}}
    method = Method.of(monitor)
    return {
        "rate": None,
        "risk": None,
        "alarm": method.alarm,  # first, since the default bet depends on it
        **method._asdict(),
        "measure": options.measure,
        "reference": None if scores is None else hashlib.sha256(json.dumps(scores).encode("ascii")).hexdigest(),
        "bins": None if scores is None else bins,
    }


def _free_fields(options: MonitorOptions) -> list[str]:
    """Return the fields that a state file may decide, because no option sets them."""
    return [*(["seed"] * (options.seed is None)), *(["bet", "epsilon"] * (options.bet is None))]
