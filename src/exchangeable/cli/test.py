"""`exchangeable test`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.choice import READINGS, Choice
from exchangeable.cli.failures import USAGE, Failure, RejectedError
from exchangeable.cli.notes import note
from exchangeable.cli.options import (
    ALARM,
    BET,
    MEASURE,
    TABLE,
    AfterAlarm,
    Alarm,
    Alpha,
    Bet,
    Categorical,
    Columns,
    Drop,
    EachColumn,
    Encoding,
    Epsilon,
    File,
    Format,
    Label,
    Measure,
    Neighbours,
    NoHeader,
    OnAlarm,
    Period,
    Plot,
    Printed,
    Report,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import check_picture, check_report, draw, progress_bars, save_report, write
from exchangeable.cli.walk import walk

if TYPE_CHECKING:
    from exchangeable.results.lines import Line
    from exchangeable.results.result import Parts
    from exchangeable.tables import Table


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
    measure: Measure = MEASURE,
    neighbours: Neighbours = None,
    bet: Bet = BET,
    epsilon: Epsilon = None,
    alarm: Alarm = ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: AfterAlarm = OnAlarm.latch,
    columns: EachColumn = Columns.none,
    scale: Scale = ScaleName.auto,
    seed: Seed = 0,
    plot: Plot = None,
    report: Report = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Test whether the order of a table's rows matters."""
    from exchangeable import tables
    from exchangeable.results.notes import described, notes
    from exchangeable.results.result import Parts, Result
    from exchangeable.results.scaling import scaled
    from exchangeable.results.verdict import words

    check_picture(plot)
    check_report(report)
    given = (neighbours, bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed)
    choice = Choice(measure.value, *given)
    monitor, reading = choice.monitor(), READINGS[choice.measure]
    if columns is Columns.each and (choice.alarm, choice.on_alarm) != ("ville", "latch"):
        raise Failure("--columns each goes with --alarm ville and --on-alarm latch only", USAGE)
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
    X, done = scaled(table, scale.value)
    note(notes(table, done))
    parts = Parts.of(monitor)
    ranked = X[:, 0] if reading.width == 1 else X
    path = walk(monitor, ranked, table.y, table.name)
    result = Result(table, X, ranked, path, monitor, parts, columns=_lines(columns, table, parts, seed), scale=done)
    if plot is not None:
        draw(result.plot(), plot)
    if report is not None:
        save_report(result, report)
    verdict = result.verdict
    write(
        json.dumps(verdict._asdict())
        if format is Format.json
        else f"{described(table)}\n{words(verdict, result.lines)}"
    )
    if result.rejected:
        raise RejectedError


def _lines(columns: Columns, table: Table, parts: Parts, seed: int) -> list[Line]:
    """The martingales of the columns, if they are to have a say."""
    from exchangeable.results.call import HALF
    from exchangeable.results.lines import columns as every_column
    from exchangeable.results.lines import lines_of

    if columns is Columns.none:
        return []
    with progress_bars() as progress:
        return lines_of(every_column(table), parts.bet, share=HALF, seed=seed, progress=progress)
