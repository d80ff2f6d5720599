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
DEFAULT_ALARM = AlarmName("ville")
MAX_ROWS = 50_000


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


class Missing(StrEnum):
    """What is done with missing values."""

    indicator = "indicator"
    drop = "drop"
    error = "error"


class Invalid(StrEnum):
    """What is done with cells that are infinite or cannot be parsed."""

    error = "error"
    missing = "missing"


def join_names(names: Iterable[str]) -> str:
    """Join names for a help text. Click breaks long names in its own list of choices in two."""
    return ", ".join(names)


# Headings of the help pages.
COLUMNS_PANEL, FILE_PANEL, TEST_PANEL, RESULT_PANEL = "Columns", "File", "Test", "Result"
NAME, NAMES = "COLUMN", "A,B,..."
FORMATS = "CSV, TSV, Parquet, Feather, JSON, JSON lines, NPZ, NPY or Excel file, also compressed;"

File = Annotated[str, typer.Argument(metavar="FILE", help=f"{FORMATS} - for standard input.")]
Label = Annotated[
    str | None,
    typer.Option(
        metavar=NAME,
        help="Column of labels. Text, and integers with few different values, are classes; other numbers are "
        "real-valued.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
Order = Annotated[
    str | None,
    typer.Option(
        metavar=NAME,
        help="Sort the rows by this column, for example a date. Rows with equal values are put into random order.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(metavar=NAMES, help="Columns to test; default: all.", rich_help_panel=COLUMNS_PANEL),
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar=NAMES, help="Columns to leave out.", rich_help_panel=COLUMNS_PANEL)
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar=NAMES,
        help="Columns to test even if they would be set aside: times, sorted columns, row numbers, identifiers, text.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar=NAMES, help="Numeric columns to treat as categories.", rich_help_panel=COLUMNS_PANEL),
]
MissingOption = Annotated[
    Missing,
    typer.Option(
        metavar="HOW",
        help="What to do with missing values. indicator: fill in the median, and also test where values are missing. "
        "drop: leave out the rows. error: reject the data.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
InvalidOption = Annotated[
    Invalid,
    typer.Option(
        metavar="HOW",
        help="What to do with cells that are infinite or cannot be parsed. error: reject the data. missing: treat "
        "them as missing values.",
        rich_help_panel=COLUMNS_PANEL,
    ),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="CSV: delimiter, one character or the word tab. Default: detected.",
        rich_help_panel=FILE_PANEL,
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="CSV: the decimal mark, a point or a comma. Default: detected.",
        rich_help_panel=FILE_PANEL,
    ),
]
Header = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="CSV: whether the first row holds the names of the columns. Default: detected.",
        rich_help_panel=FILE_PANEL,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="CSV: character encoding. Default: detected.", rich_help_panel=FILE_PANEL),
]
MaxRows = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=2,
        help="Nearest neighbours use at most this many rows, chosen at random, since their time grows with the square "
        "of the rows. Tests of single columns use all rows.",
        rich_help_panel=TEST_PANEL,
    ),
]
Scale = Annotated[
    ScaleName,
    typer.Option(
        metavar="HOW",
        help="deviation: divide each numeric column by its standard deviation over the entire table. none: do not "
        "scale. auto: scale if one column would dominate all distances.",
        rich_help_panel=TEST_PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Seed of all random choices, such as tie-breaking. Default: a hash of the rows of a table; a random "
        "seed for a stream.",
        rich_help_panel=TEST_PANEL,
    ),
]
MEASURE_HELP = (
    f"Measure that scores how strange an example is: {join_names(catalogue.MEASURES)}. nearest-residual needs numeric "
    "labels; nearest-distance and value use no labels; the others need classes. value needs exactly one column of "
    "numbers."
)
OptionalMeasure = Annotated[
    MeasureName | None,
    typer.Option(
        metavar="NAME", help=f"{MEASURE_HELP} Default: chosen by the kind of labels.", rich_help_panel=TEST_PANEL
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of neighbours of the measures nearest-...; default 1.",
        rich_help_panel=TEST_PANEL,
    ),
]
Bet = Annotated[
    BetName | None,
    typer.Option(
        metavar="NAME",
        help=f"How to bet on the p-values: {join_names(catalogue.BETS)}. Default: sentinel with the alarms cusum and "
        "shiryaev-roberts, adaptive with the others.",
        rich_help_panel=TEST_PANEL,
    ),
]
Epsilon = Annotated[
    float | None,
    typer.Option(metavar="X", help="Parameter of the power bet, in (0, 1); default 0.92.", rich_help_panel=TEST_PANEL),
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
        metavar="X",
        help="Alarm ville: largest acceptable probability of a false alarm, on a stream at any time; default 0.01.",
        rich_help_panel=TEST_PANEL,
    ),
]
Period = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Other alarms: smallest acceptable mean number of examples until a false alarm; default 10,000.",
        rich_help_panel=TEST_PANEL,
    ),
]
OnAlarmOption = Annotated[
    OnAlarm,
    typer.Option(
        metavar="HOW",
        help="latch: the alarm stays on. restart: start a new test to find the next change.",
        rich_help_panel=TEST_PANEL,
    ),
]
ColumnsOption = Annotated[
    Columns,
    typer.Option(
        metavar="WHICH",
        help="each: also test every column, the label, and views of the table; all tests share alpha. none: test "
        "full rows only. auto: each for up to 64 columns with the default measure and alarm, otherwise none.",
        rich_help_panel=TEST_PANEL,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Plot the growth of the evidence (.png, .svg, .pdf).", rich_help_panel=RESULT_PANEL
    ),
]
Report = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write a report with the verdict, charts and the columns that changed (.html).",
        rich_help_panel=RESULT_PANEL,
    ),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the report.", rich_help_panel=RESULT_PANEL)]
Author = Annotated[str | None, typer.Option(metavar="TEXT", help="Author of the report.", rich_help_panel=RESULT_PANEL)]
FormatOption = Annotated[Format, typer.Option(help="Output format.", rich_help_panel=RESULT_PANEL)]
