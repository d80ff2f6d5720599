"""Options that the commands on Spark share."""

from __future__ import annotations

import csv
from enum import StrEnum
from typing import Annotated

import typer

from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.options import RESULT_PANEL

INPUT_PANEL, CLUSTER_PANEL = "Input", "Cluster"


class FileFormat(StrEnum):
    """The format of input files."""

    auto = "auto"
    parquet = "parquet"
    csv = "csv"
    json = "json"


class OrderType(StrEnum):
    """The type of an order that is written as text."""

    bigint = "bigint"
    double = "double"
    timestamp = "timestamp"
    date = "date"


class OnBad(StrEnum):
    """What to do with invalid rows."""

    fail = "fail"
    report = "report"


InputPath = Annotated[str, typer.Argument(metavar="INPUT", help="File or folder; Spark also reads s3a:// and hdfs://.")]
Input = Annotated[FileFormat, typer.Option(help="Format of the files.", rich_help_panel=INPUT_PANEL)]
Key = Annotated[str, typer.Option(help="Column of stream names: text or integers.", rich_help_panel=INPUT_PANEL)]
Order = Annotated[
    str, typer.Option(help="Column that the rows of a stream are sorted by.", rich_help_panel=INPUT_PANEL)
]
OrderAs = Annotated[
    OrderType, typer.Option(help="Type of the order column if it is text, as in CSV.", rich_help_panel=INPUT_PANEL)
]
Features = Annotated[
    str,
    typer.Option(metavar="A,B,...", help="Columns of numbers, or one column of arrays.", rich_help_panel=INPUT_PANEL),
]
Label = Annotated[str | None, typer.Option(help="Column of labels.", rich_help_panel=INPUT_PANEL)]
Bad = Annotated[
    OnBad,
    typer.Option(help="Invalid rows: fail the job, or report them in the output.", rich_help_panel=INPUT_PANEL),
]
ReaderOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option", metavar="NAME=VALUE", help="Option of Spark's reader; repeatable.", rich_help_panel=INPUT_PANEL
    ),
]
Output = Annotated[
    str, typer.Option(help="Folder for the result, as Parquet; it must not exist.", rich_help_panel=RESULT_PANEL)
]
Rate = Annotated[
    float,
    typer.Option(
        help="Largest acceptable false discovery rate among all streams; --alpha, where there is one, is for the alarm "
        "of a single stream.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Streams = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The largest number of streams there will ever be, fixed before the first report (of spark monitor: with "
        "--available-now). Default: the streams so far, which is valid if no more will appear.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master: spark://..., yarn, k8s://..., local[4]. Default: that of spark-submit, else local[*].",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Setting of Spark; repeatable.", rich_help_panel=CLUSTER_PANEL),
]


def split_names(features: str) -> str | list[str]:
    """Return one name, or a list of several."""
    names = next(csv.reader([features]), [])
    return names[0] if len(names) == 1 else names


def parse_pairs(option: str, values: list[str] | None) -> dict[str, str]:
    """Parse the values NAME=VALUE of an option."""
    pairs = [text.partition("=") for text in values or ()]
    for name, separator, _ in pairs:
        if not name or not separator:
            raise CommandError(f"{option} must be NAME=VALUE, got {name!r}", USAGE)
    return {name: value for name, _, value in pairs}
