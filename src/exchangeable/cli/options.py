"""Options that several commands share."""

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
DEFAULT_MEASURE, DEFAULT_ALARM = MeasureName("nearest-neighbour"), AlarmName("ville")


class OnAlarm(StrEnum):
    """What the test does after an alarm."""

    latch = "latch"
    restart = "restart"


class Format(StrEnum):
    """The format of the result on stdout."""

    text = "text"
    json = "json"


class Columns(StrEnum):
    """Whether each column is also tested on its own."""

    auto = "auto"
    each = "each"
    none = "none"


class ScaleName(StrEnum):
    """How numeric columns are scaled."""

    auto = "auto"
    none = "none"
    deviation = "deviation"


def join_names(names: Iterable[str]) -> str:
    """Join names for a help text. Click's own list of choices breaks names in two."""
    return ", ".join(names)


# Headings of the help pages.
TEST_PANEL, TABLE_PANEL, RESULT_PANEL = "Test", "Table", "Result"

File = Annotated[Path, typer.Argument(help="CSV, TSV (also .gz), Parquet, or NPZ with arrays X and y.")]
Label = Annotated[
    str | None,
    typer.Option(help="Column of labels. NPZ: array of labels, by default y.", rich_help_panel=TABLE_PANEL),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="Column to one-hot encode. Can be repeated.", rich_help_panel=TABLE_PANEL),
]
Drop = Annotated[
    list[str] | None, typer.Option(help="Column to leave out. Can be repeated.", rich_help_panel=TABLE_PANEL)
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="CSV, TSV: the file has no header row; columns are named 1, 2, ...",
        rich_help_panel=TABLE_PANEL,
    ),
]
Encoding = Annotated[str, typer.Option(help="CSV, TSV: character encoding.", rich_help_panel=TABLE_PANEL)]
Scale = Annotated[
    ScaleName,
    typer.Option(
        help="deviation: divide each numeric column by its standard deviation over the whole table. auto: do so if one "
        "column would dominate all distances.",
        rich_help_panel=TABLE_PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed for random tie-breaking. Default: for a table, a hash of its rows; for a stream, drawn at random.",
        rich_help_panel=TEST_PANEL,
    ),
]
MEASURE_HELP = (
    f"Measure that scores how strange an example is: {join_names(catalogue.MEASURES)}. nearest-residual needs numeric "
    "labels; nearest-distance and value use no labels; the others need classes. value needs exactly one column."
)
OptionalMeasure = Annotated[
    MeasureName | None,
    typer.Option(metavar="NAME", help=f"{MEASURE_HELP} Default: nearest-neighbour.", rich_help_panel=TEST_PANEL),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of neighbours of the measures nearest-...; default 1.", rich_help_panel=TEST_PANEL
    ),
]
Bet = Annotated[
    BetName | None,
    typer.Option(
        metavar="NAME",
        help=f"How to bet on the p-values: {join_names(catalogue.BETS)}. Default: watchful with the alarms cusum and "
        "shiryaev-roberts, adaptive with the others.",
        rich_help_panel=TEST_PANEL,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(help="Parameter of the power bet, in (0, 1); default 0.92.", rich_help_panel=TEST_PANEL),
]
Alarm = Annotated[
    AlarmName,
    typer.Option(
        metavar="NAME", help=f"When to raise an alarm: {join_names(catalogue.ALARMS)}.", rich_help_panel=TEST_PANEL
    ),
]
Alpha = Annotated[
    float | None,
    typer.Option(
        help="Alarm ville: largest acceptable probability of a false alarm, on a stream at any time; default 0.01.",
        rich_help_panel=TEST_PANEL,
    ),
]
Period = Annotated[
    float | None,
    typer.Option(
        help="Other alarms: smallest acceptable mean number of examples until a false alarm; default 10,000.",
        rich_help_panel=TEST_PANEL,
    ),
]
OnAlarmOption = Annotated[
    OnAlarm,
    typer.Option(
        help="latch: the alarm stays on. restart: start a new test to find the next change.",
        rich_help_panel=TEST_PANEL,
    ),
]
ColumnsOption = Annotated[
    Columns,
    typer.Option(
        help="each: also test every column, and the label, on its own; they share half of alpha. auto: each for up to "
        "64 columns, unless a measure is chosen or the alarm is not ville with latch.",
        rich_help_panel=TEST_PANEL,
    ),
]
Plot = Annotated[
    Path | None, typer.Option(help="Plot the growth of the evidence (.png, .svg, .pdf).", rich_help_panel=RESULT_PANEL)
]
Report = Annotated[
    Path | None,
    typer.Option(
        help="Write a report with the verdict, figures and what changed (.html).", rich_help_panel=RESULT_PANEL
    ),
]
FormatOption = Annotated[Format, typer.Option(help="Output format.", rich_help_panel=RESULT_PANEL)]
