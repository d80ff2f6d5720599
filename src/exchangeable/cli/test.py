"""`exchangeable test`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.choice import READINGS, Choice
from exchangeable.cli.failures import USAGE, Failure, RejectedError
from exchangeable.cli.notes import described, note, title
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
    Drop,
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
    Seed,
)
from exchangeable.cli.output import check_picture, draw, write
from exchangeable.cli.verdict import judge, words
from exchangeable.cli.walk import walk


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
    seed: Seed = 0,
    plot: Plot = None,
    format: Printed = Format.text,  # noqa: A002
) -> None:
    """Test whether the order of a table's rows matters."""
    from exchangeable import tables

    check_picture(plot)
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
    note(table)
    path = walk(monitor, table.X[:, 0] if reading.width == 1 else table.X, table.y, table.name)
    verdict = judge(path, monitor, choice, table.name, table.X.shape[1])
    if plot is not None:
        lines = () if verdict.threshold is None else (verdict.threshold,)
        paths, changes = {choice.bet: path.log_value}, verdict.changepoints
        draw(ex.plots.growth(paths, thresholds=lines, changepoints=changes, title=title(table)), plot)
    write(json.dumps(verdict._asdict()) if format is Format.json else f"{described(table)}\n{words(verdict)}")
    if verdict.rejected:
        raise RejectedError
