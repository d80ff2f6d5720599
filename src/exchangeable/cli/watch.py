"""`exchangeable watch`."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable import catalogue
from exchangeable.analysis.verdict import Method
from exchangeable.cli.choice import READINGS, Choice
from exchangeable.cli.failures import UNDECIDED, UNREAD, USAGE, Failure, RejectedError
from exchangeable.cli.notes import note
from exchangeable.cli.options import (
    ALARM,
    HOW,
    AfterAlarm,
    Alarm,
    Alpha,
    Bet,
    Epsilon,
    Neighbours,
    OnAlarm,
    Period,
    Seed,
    listed,
)
from exchangeable.cli.scores import ONE_NUMBER, reference_scores, uncatalogued

if TYPE_CHECKING:
    from exchangeable.monitor import Monitor
    from exchangeable.watch import Reader, Shown, StateFile

INPUT, OUTPUT, STATE = "The input", "The output", "The state"  # parts of the help page
ROWS = [name for name in catalogue.MEASURES if name not in ONE_NUMBER]
Watched = StrEnum("Watched", {name: name for name in (*ONE_NUMBER, *ROWS)})  # type: ignore[misc]
VALUE = Watched("value")
BINS = 1024


class Input(StrEnum):
    """Formats of lines."""

    auto = "auto"
    jsonl = "jsonl"
    csv = "csv"
    tsv = "tsv"


def watch(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="Where the lines are; - is standard input.")] = "-",
    input: Annotated[  # noqa: A002
        Input,
        typer.Option(
            help="auto looks at the first line that is not blank: if it begins with { or [, or is one number, jsonl; "
            "else tsv if it holds a tab and no comma; else csv.",
            rich_help_panel=INPUT,
        ),
    ] = Input.auto,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="CSV, TSV: columns of numbers; default: all but the label that hold a number in the first row.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    label: Annotated[str | None, typer.Option(help="CSV, TSV: column of labels.", rich_help_panel=INPUT)] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV, TSV: columns are called 1, 2, ...", rich_help_panel=INPUT)
    ] = False,
    measure: Annotated[
        Watched,
        typer.Option(
            metavar="NAME",
            help=f"What makes an example strange: value, frozen (scores between quantiles of --reference), p-values "
            f"(brought along: nothing is ranked), {listed(ROWS)}. The first "
            "three take one number, the others rows, and keep every row: their time a row grows with the stream.",
            rich_help_panel=HOW,
        ),
    ] = VALUE,
    reference: Annotated[
        Path | None, typer.Option(help="Of frozen: a file of scores, one in a line.", rich_help_panel=HOW)
    ] = None,
    bins: Annotated[int | None, typer.Option(min=2, help=f"Of frozen: default {BINS}.", rich_help_panel=HOW)] = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: AfterAlarm = OnAlarm.latch,
    seed: Seed = None,
    every: Annotated[
        int, typer.Option(min=1, help="Write each N-th example, and where an alarm begins.", rich_help_panel=OUTPUT)
    ] = 1,
    alarms_only: Annotated[
        bool, typer.Option("--alarms-only", help="Write only where an alarm begins.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Write nothing.", rich_help_panel=OUTPUT)] = False,
    state: Annotated[
        Path | None,
        typer.Option(help="Resume from this file if it is there, and keep it up to date.", rich_help_panel=STATE),
    ] = None,
    save_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds; 0: after every batch of lines.", rich_help_panel=STATE)
    ] = 5.0,
) -> None:
    """Watch lines as they come: JSONL, CSV or TSV in, one line of JSON out for each example.

    A line of JSONL is {"x": 1.5} (or a list of numbers; "y", "seq", "id" and "time" may be there), a bare number or a
    bare list. Out come n, p, log10_martingale (null: the capital is 0), alarm, and where it is on alarm_at and
    changepoint; "id" is repeated. Lines are answered as they come. A line that is no example ends the watch.

    --state: a resumed watch goes on bit for bit as an unbroken one. The state is saved after its output was written,
    so after a crash or kill -9 some examples may have to come again, and are then written again, the same: n tells.
    Lines with "seq" (1, 2, ...) are safe to send again: those seen are skipped, and a gap is refused. Standard input is
    taken to go on where it ended; a FILE that was read before is taken up where it was left. Other options than those
    that the state was made with are refused, as is a second process. SIGINT and SIGTERM save the state.

    Exit codes: 0 no alarm, 1 alarm (of this watch; with latch also of those resumed), 2 wrong usage, 3 a line that is
    no example, or input, output or state fail, 130 and 143 SIGINT and SIGTERM, 141 the reader of the output went away.
    """
    from exchangeable import watch as watching

    given = (neighbours, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed)
    choice = Choice(measure.value, *given)
    scores = reference_scores(choice, reference, bins)
    monitor = choice.monitor(uncatalogued(choice, scores, bins or BINS))
    reader = watching.Reader(
        input.value,
        rows=measure.value not in ONE_NUMBER,
        labels=READINGS[measure.value].labels if measure.value in READINGS else "none",
        header=not no_header,
        features=None if features is None else next(csv.reader([features])),
        label=label,
        tell=None if quiet else lambda said: typer.echo(f"exchangeable: note: {said}", err=True),
    )
    kept = None
    if seed is None and state is None and not quiet and choice.measure != "p-values":
        note([f"the seed is {monitor.seed}: --seed {monitor.seed} repeats this run"])
    if state is not None:
        table = {"reference": _digest(scores), "bins": None if scores is None else bins or BINS}
        made = Method.of(monitor)
        record = {
            "alarm": made.alarm,  # first, since the default bet depends on it
            **made._asdict(),
            "measure": choice.measure,
            **table,
            "features": features,
            "label": label,
        }
        free = [*(["seed"] if seed is None else []), *(["bet", "epsilon"] if bet is None else [])]
        kept = watching.StateFile(state, record, free=free)
    with _told():
        if _run(file, monitor, reader, kept, watching.Shown(every, alarms_only, quiet), save_every):
            raise RejectedError


def _run(file: str, monitor: Monitor, reader: Reader, state: StateFile | None, shown: Shown, save_every: float) -> bool:
    """Open what is needed, take up what was left, and go on to the end; is there an alarm?"""
    from exchangeable.watch import Signals, Source, Watch

    if file == "-" and sys.stdin is None:  # and its number may soon be that of another file
        raise Failure("standard input is closed", UNDECIDED)
    with ExitStack() as stack:
        if state is not None:
            stack.enter_context(state)
            monitor = state.load(reader) or monitor
        source = stack.enter_context(Source(file))
        if state is not None:
            state.resume(source, reader)
            state.save(monitor, reader.columns, source)  # before any output: a drawn seed is never drawn again
        signals = stack.enter_context(Signals())
        out = sys.stdout.buffer
        return Watch(monitor, reader, source, out, shown=shown, state=state, save_every=save_every).run(signals)


@contextmanager
def _told() -> Iterator[None]:
    """Turn what the watch raises into a sentence and an exit code."""
    from exchangeable import watch as watching

    try:
        yield
    except watching.UsageError as error:
        raise Failure(str(error), USAGE) from error
    except (watching.LineError, watching.StateError) as error:
        raise Failure(str(error), UNDECIDED) from error
    except watching.Stopped as error:
        _mute()
        said = "interrupted" if error.number == signal.SIGINT else "terminated"
        raise Failure(said, 128 + error.number) from error
    except BrokenPipeError as error:
        _mute()
        raise Failure("", UNREAD) from error


def _mute() -> None:
    """Write nothing more, not at exit either: nobody may be there to read it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _digest(scores: list[float] | None) -> str | None:
    """What tells one table of scores from another."""
    if scores is None:
        return None
    return hashlib.sha256(json.dumps(scores).encode("ascii")).hexdigest()
