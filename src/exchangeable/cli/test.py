"""`exchangeable test`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import exchangeable as ex
from exchangeable.cli.choice import READINGS, Choice
from exchangeable.cli.failures import USAGE, Failure, RejectedError
from exchangeable.cli.notes import note
from exchangeable.cli.options import (
    ALARM,
    MEASURE,
    TABLE,
    AfterAlarm,
    Alarm,
    Alpha,
    Bet,
    Categorical,
    ChosenMeasure,
    Columns,
    Drop,
    EachColumn,
    Encoding,
    Epsilon,
    File,
    Format,
    Label,
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
    from exchangeable.analysis.columns import ColumnTest
    from exchangeable.data.table import Table


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
    measure: ChosenMeasure = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: AfterAlarm = OnAlarm.latch,
    columns: EachColumn = Columns.auto,
    scale: Scale = ScaleName.auto,
    seed: Seed = None,
    plot: Plot = None,
    report: Report = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Test whether the order of a table's rows matters."""
    from exchangeable.analysis.columns import all_equal
    from exchangeable.analysis.result import Parts, Result
    from exchangeable.analysis.text import data_notes, describe_table, describe_verdict
    from exchangeable.data import files as tables
    from exchangeable.data.canonical import column_order, table_seed
    from exchangeable.data.scaling import scaled

    check_picture(plot)
    check_report(report)
    given = (neighbours, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed)
    choice = Choice((measure or MEASURE).value, *given)
    choice.monitor()  # rejects invalid options before the file is read
    reading = READINGS[choice.measure]
    columns = _columns(columns, choice, unasked=measure is None)
    if reading.width == 1 and categorical:
        raise Failure(f"--categorical does not go with --measure {choice.measure}: it takes a column of numbers", USAGE)
    table = tables.read_table(
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
    ranked = X[:, 0] if reading.width == 1 else X[:, column_order(table)]
    choice = choice._replace(seed=table_seed(table) if seed is None else seed)
    choice = choice._replace(bet="idle", epsilon=None) if all_equal(ranked, table.y) else choice
    monitor = choice.monitor(advise=False)
    lines = _lines(columns, table, monitor)
    note(data_notes(table, done, columns_tested=bool(lines) or columns is Columns.none))
    parts = Parts.of(monitor)
    path = walk(monitor, ranked, table.y, table.name)
    result = Result(table, X, ranked, path, monitor, parts, column_tests=lines, scale=done)
    if plot is not None:
        draw(result.plot(), plot)
    if report is not None:
        save_report(result, report)
    said = f"{describe_table(table)}\n{describe_verdict(result.verdict, result.tests)}"
    write(result.to_json() if format is Format.json else said)
    if result.rejected:
        raise RejectedError


def _columns(columns: Columns, choice: Choice, *, unasked: bool) -> Columns:
    """Whether columns have a say: asked for, or where no measure was chosen and the alarm is the usual one."""
    usual = (choice.alarm, choice.on_alarm) == ("ville", "latch")
    if columns is Columns.each and not usual:
        raise Failure("--columns each goes with --alarm ville and --on-alarm latch only", USAGE)
    return Columns.none if columns is Columns.auto and not (unasked and usual) else columns


def _lines(columns: Columns, table: Table, monitor: ex.Monitor) -> list[ColumnTest]:
    """The martingales of the columns, if they are to have a say."""
    from exchangeable.analysis.columns import COLUMN_SHARE, MAX_AUTO_COLUMNS, run_column_tests, select_columns

    if columns is Columns.none:
        return []
    found = select_columns(table)
    if columns is Columns.auto and len(found) > MAX_AUTO_COLUMNS:
        return []
    with progress_bars() as progress:
        return run_column_tests(found, monitor.martingale.bet, share=COLUMN_SHARE, seed=monitor.seed, progress=progress)
