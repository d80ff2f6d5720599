"""Options of the commands on Spark."""

from __future__ import annotations

import csv
from enum import StrEnum
from typing import Annotated

import typer

from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.options import RESULT_PANEL
from exchangeable.cli.scores import ONE_NUMBER

INPUT, CLUSTER = "The input", "The cluster"  # parts of the help pages


class Kind(StrEnum):
    """Of a batch's files."""

    auto = "auto"
    parquet = "parquet"
    csv = "csv"
    json = "json"


class Source(StrEnum):
    """Of a stream."""

    auto = "auto"
    parquet = "parquet"
    csv = "csv"
    json = "json"
    kafka = "kafka"


class OrderKind(StrEnum):
    """Of an order that is written as text."""

    bigint = "bigint"
    double = "double"
    timestamp = "timestamp"
    date = "date"


class Bad(StrEnum):
    """What becomes of rows that are no examples."""

    fail = "fail"
    report = "report"


Live = StrEnum("Live", {name: name for name in ONE_NUMBER})  # type: ignore[misc]
VALUE = Live("value")

Place = Annotated[
    str, typer.Argument(metavar="INPUT", help="File or folder, as Spark reads it (also s3a://, hdfs://).")
]
Key = Annotated[str, typer.Option(help="Column that names the stream: text or integers.", rich_help_panel=INPUT)]
Order = Annotated[str, typer.Option(help="Column that orders the rows of a stream.", rich_help_panel=INPUT)]
OrderAs = Annotated[
    OrderKind, typer.Option(help="How to read an order that is text, as all of a CSV is.", rich_help_panel=INPUT)
]
Features = Annotated[
    str, typer.Option(metavar="A,B,...", help="Columns of numbers, or one of arrays.", rich_help_panel=INPUT)
]
Label = Annotated[str | None, typer.Option(help="Column of labels.", rich_help_panel=INPUT)]
OnBad = Annotated[
    Bad,
    typer.Option(help="Rows that are no examples: end the job, or go to the output as such.", rich_help_panel=INPUT),
]
Option = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Of Spark's reader; repeat for more.", rich_help_panel=INPUT),
]
Output = Annotated[
    str, typer.Option(help="Folder for the result, in Parquet; must be new.", rich_help_panel=RESULT_PANEL)
]
Rate = Annotated[
    float,
    typer.Option(help="Largest acceptable rate of false discoveries among all streams.", rich_help_panel=RESULT_PANEL),
]
Streams = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="With --available-now: the largest number of streams there will ever be, fixed before the first look; "
        "default: the streams so far, which is valid if no more will come.",
        rich_help_panel=RESULT_PANEL,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        help="spark://..., yarn, k8s://..., local[4]; default: as spark-submit says, else local[*].",
        rich_help_panel=CLUSTER,
    ),
]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="Setting of Spark; repeat.", rich_help_panel=CLUSTER)
]


def columns(features: str) -> str | list[str]:
    """One name, or several."""
    names = next(csv.reader([features]), [])
    return names[0] if len(names) == 1 else names


def pairs(name: str, given: list[str] | None) -> dict[str, str]:
    """What NAME=VALUE was given, by name."""
    pairs = [text.partition("=") for text in given or ()]
    for key, middle, _ in pairs:
        if not key or not middle:
            raise CommandError(f"{name} must be NAME=VALUE, got {key!r}", USAGE)
    return {key: value for key, _, value in pairs}
