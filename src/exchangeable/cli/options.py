"""Options that several commands have, and the names that they may take."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from exchangeable import catalogue

MeasureName = StrEnum("MeasureName", {name: name for name in catalogue.MEASURES})  # type: ignore[misc]
BetName = StrEnum("BetName", {name: name for name in catalogue.BETS})  # type: ignore[misc]
AlarmName = StrEnum("AlarmName", {name: name for name in catalogue.ALARMS})  # type: ignore[misc]
MEASURE, ALARM = MeasureName("nearest-neighbour"), AlarmName("ville")  # the defaults


class OnAlarm(StrEnum):
    """What follows an alarm."""

    latch = "latch"
    restart = "restart"


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


class Columns(StrEnum):
    """Whether each column has a say in the verdict."""

    auto = "auto"
    each = "each"
    none = "none"


class ScaleName(StrEnum):
    """What is done to the features before they are compared."""

    auto = "auto"
    none = "none"
    deviation = "deviation"


def listed(names: Iterable[str]) -> str:
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
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed for random tie-breaking. Default: for a table, a hash of its rows; for a stream, drawn at random.",
        rich_help_panel=HOW,
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Draw the growth of the evidence (.png, .svg, .pdf).", rich_help_panel=RESULT)
]
Report = Annotated[
    Path | None,
    typer.Option(help="Write a report of verdict, figures and what changed (.html).", rich_help_panel=RESULT),
]
EachColumn = Annotated[
    Columns,
    typer.Option(
        help="each: look at every column, and the label, by itself too; half of alpha is shared by them. auto: so for "
        "up to 64 columns, unless a measure is chosen or the alarm is not ville with latch.",
        rich_help_panel=HOW,
    ),
]
Scale = Annotated[
    ScaleName,
    typer.Option(
        help="Divide each numeric column by its deviation over the whole table; auto: where one outweighs the rest.",
        rich_help_panel=TABLE,
    ),
]
Printed = Annotated[Format, typer.Option(help="How to print it.", rich_help_panel=RESULT)]
MEASURES = (
    f"What makes an example strange: {listed(catalogue.MEASURES)}. nearest-residual needs a label that is a number, "
    "nearest-distance and value none, the others classes; value takes one column."
)
Measure = Annotated[MeasureName, typer.Option(metavar="NAME", help=MEASURES, rich_help_panel=HOW)]
ChosenMeasure = Annotated[
    MeasureName | None,
    typer.Option(metavar="NAME", help=f"{MEASURES} Default nearest-neighbour.", rich_help_panel=HOW),
]
Neighbours = Annotated[
    int | None, typer.Option(min=1, help="Of the measures nearest-...; default 1.", rich_help_panel=HOW)
]
Bet = Annotated[
    BetName | None,
    typer.Option(
        metavar="NAME",
        help=f"How to bet on the p-values: {listed(catalogue.BETS)}. Default: watchful with the alarms cusum and "
        "shiryaev-roberts, adaptive with the others.",
        rich_help_panel=HOW,
    ),
]
Epsilon = Annotated[float | None, typer.Option(help="Of the power bet, in (0, 1); default 0.92.", rich_help_panel=HOW)]
Alarm = Annotated[
    AlarmName, typer.Option(metavar="NAME", help=f"When to speak up: {listed(catalogue.ALARMS)}.", rich_help_panel=HOW)
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="Of ville: largest acceptable chance of a false alarm (on a stream: ever); default 0.01.",
        rich_help_panel=HOW,
    ),
]
Period = Annotated[
    float | None,
    typer.Option(
        help="Of the other alarms: how many examples should pass before a false one; default 10,000.",
        rich_help_panel=HOW,
    ),
]
AfterAlarm = Annotated[
    OnAlarm, typer.Option(help="Stay on, or begin again to find the next change.", rich_help_panel=HOW)
]
