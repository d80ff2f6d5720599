"""`exchangeable watch`."""

from __future__ import annotations

import csv
import hashlib
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable import catalogue
from exchangeable.analysis.verdict import Method
from exchangeable.cli.errors import BROKEN_PIPE, UNDECIDED, USAGE, CommandError, RejectedError
from exchangeable.cli.monitor_options import MonitorOptions, rate_monitor
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    TEST_PANEL,
    AlarmName,
    Alpha,
    Bet,
    Epsilon,
    Neighbours,
    OnAlarm,
    OnAlarmOption,
    Period,
    Seed,
    join_names,
)
from exchangeable.cli.output import print_notes, silence_stdout
from exchangeable.cli.scores import ONE_NUMBER, read_reference, score_measure
from exchangeable.monitor import Monitor
from exchangeable.rate import DIRECTIONS, RateMonitor

if TYPE_CHECKING:
    from exchangeable.data.events.delimited import Labels
    from exchangeable.watch import OutputOptions, Reader, StateFile

INPUT_PANEL, OUTPUT_PANEL, STATE_PANEL = "Input", "Output", "State"
ROW_MEASURES = [name for name in catalogue.MEASURES if name not in ONE_NUMBER]
WatchMeasure = StrEnum("WatchMeasure", {name: name for name in (*ONE_NUMBER, *ROW_MEASURES)})  # type: ignore[misc]
DEFAULT_MEASURE = WatchMeasure("value")
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
Label = Annotated[str | None, typer.Option(help="CSV, TSV: column of labels.", rich_help_panel=INPUT_PANEL)]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="CSV, TSV: the input has no header row; columns are named 1, 2, ...",
        rich_help_panel=INPUT_PANEL,
    ),
]
Measure = Annotated[
    WatchMeasure,
    typer.Option(
        metavar="NAME",
        help="Measure that scores how strange an example is: value, frozen (scores binned by the quantiles of "
        f"--reference), p-values (computed elsewhere), {join_names(ROW_MEASURES)}. The first three "
        "use one number. The others use rows and store all of them, so the time per row grows with the stream.",
        rich_help_panel=TEST_PANEL,
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(help="Measure frozen: file of reference scores, one per line.", rich_help_panel=TEST_PANEL),
]
Bins = Annotated[
    int | None,
    typer.Option(min=2, help=f"Measure frozen: number of bins; default {BINS}.", rich_help_panel=TEST_PANEL),
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
WatchAlarm = Annotated[
    AlarmName | None,
    typer.Option(
        metavar="NAME",
        help=f"When to raise an alarm: {join_names(catalogue.ALARMS)}. Default: ville; with --rate shiryaev-roberts, "
        "unless there is an --alpha.",
        rich_help_panel=TEST_PANEL,
    ),
]
Every = Annotated[
    int,
    typer.Option(
        min=1, help="Write a line for every N-th example, and for every new alarm.", rich_help_panel=OUTPUT_PANEL
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
    measure: Measure = DEFAULT_MEASURE,
    rate: Rate = False,
    values: Values = None,
    direction: Direction = DirectionName("both"),  # noqa: B008 (a constant)
    reference: Reference = None,
    bins: Bins = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: WatchAlarm = None,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Seed = None,
    every: Every = 1,
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
    rate_after, the shares of values of at least "value". With --rate and --period, the alarm compares log10_statistic,
    not log10_martingale, with a level.

    With --state, a resumed watch gives exactly the numbers of an uninterrupted one. The state is saved after the
    output, so after a crash or kill -9 some examples may have to be sent again; they are then written again with the
    same n. Lines with "seq" (1, 2, ...) can safely be sent twice: known ones are skipped, and a gap is an error.
    Standard input is assumed to continue where it ended; a FILE is continued where reading stopped. The options must be
    those that the state was created with, and only one process can use a state file. SIGINT and SIGTERM save the state.

    Exit codes: 0 no alarm, 1 alarm (with latch also one from before the resume), 2 usage error, 3 invalid line or an
    error of input, output or state, 130 SIGINT, 143 SIGTERM, 141 the reader of the output went away.
    """
    from exchangeable import watch as watching

    name = str(alarm or DEFAULT_ALARM)
    options = MonitorOptions(str(measure), neighbours, bet, epsilon, name, alpha, period, on_alarm, seed)
    scores = None if rate else read_reference(options, reference, bins)
    monitor: Monitor | RateMonitor
    if rate:
        unused = {"reference": reference, "bins": bins, "label": label, "seed": seed}
        monitor = rate_monitor(options, alarm, values, str(direction), unused)
    elif values is not None or direction != "both":
        raise CommandError("--values and --direction require --rate", USAGE)
    else:
        monitor = options.build(score_measure(options, scores, bins or BINS))
    reader = watching.Reader(
        input.value,
        rows=measure not in ONE_NUMBER,
        events=rate,
        labels=LABELS.get(measure, "none"),
        header=not no_header,
        features=None if features is None else next(csv.reader([features])),
        label=label,
        notify=None if quiet else lambda message: print_notes([message]),
    )
    state_file = None
    if state is not None:
        record = _record(monitor, options, scores, bins or BINS) | {"features": features, "label": label}
        state_file = watching.StateFile(state, record, free=_free_fields(options))
    elif seed is None and not quiet and measure != "p-values" and isinstance(monitor, Monitor):
        print_notes([f"the seed is {monitor.seed}: --seed {monitor.seed} repeats this run"])
    with _command_errors():
        if _run(file, monitor, reader, state_file, watching.OutputOptions(every, alarms_only, quiet), save_every):
            raise RejectedError


def _record(
    monitor: Monitor | RateMonitor, options: MonitorOptions, scores: list[float] | None, bins: int
) -> dict[str, Any]:
    """Return the options that a state file is created with; a resumed watch must have the same."""
    if isinstance(monitor, RateMonitor):
        names = ("alpha", "period", "direction", "on_alarm")
        return {"rate": True, "values": list(monitor.values), **{name: getattr(monitor, name) for name in names}}
    method = Method.of(monitor)
    return {
        "rate": None,
        "alarm": method.alarm,  # first, since the default bet depends on it
        **method._asdict(),
        "measure": options.measure,
        "reference": None if scores is None else hashlib.sha256(json.dumps(scores).encode("ascii")).hexdigest(),
        "bins": None if scores is None else bins,
    }


def _free_fields(options: MonitorOptions) -> list[str]:
    """Return the fields that a state file may decide, because no option sets them."""
    return [*(["seed"] * (options.seed is None)), *(["bet", "epsilon"] * (options.bet is None))]


def _run(
    file: str,
    monitor: Monitor | RateMonitor,
    reader: Reader,
    state: StateFile | None,
    output: OutputOptions,
    save_every: float,
) -> bool:
    """Resume from the state, watch until the input ends, and return whether there is an alarm."""
    from exchangeable.watch import Signals, Source, Watch

    if file == "-" and sys.stdin is None:  # its file descriptor may soon belong to another file
        raise CommandError("standard input is closed", UNDECIDED)
    with ExitStack() as stack:
        if state is not None:
            stack.enter_context(state)
            monitor = state.load(reader) or monitor
        source = stack.enter_context(Source(file))
        if state is not None:
            state.resume(source, reader)
            state.save(monitor, reader.columns, source)  # before any output, so that a drawn seed is never drawn again
        signals = stack.enter_context(Signals())
        out = sys.stdout.buffer
        alarm = Watch(monitor, reader, source, out, options=output, state=state, save_every=save_every).run(signals)
        if not monitor.n:
            raise CommandError("there must be at least one example, got none", UNDECIDED)
        return alarm


@contextmanager
def _command_errors() -> Iterator[None]:
    """Turn the exceptions of a watch into messages with exit codes."""
    from exchangeable import watch as watching

    try:
        yield
    except watching.UsageError as error:
        raise CommandError(str(error), USAGE) from error
    except (watching.LineError, watching.StateError) as error:
        raise CommandError(str(error), UNDECIDED) from error
    except watching.Stopped as error:
        silence_stdout()
        message = "interrupted" if error.number == signal.SIGINT else "terminated"
        raise CommandError(message, 128 + error.number) from error
    except BrokenPipeError as error:
        silence_stdout()
        raise CommandError("", BROKEN_PIPE) from error
