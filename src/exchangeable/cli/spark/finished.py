"""`exchangeable spark report`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.options import RESULT_PANEL, Format, FormatOption
from exchangeable.cli.spark.options import Conf, Master, Rate, Streams
from exchangeable.cli.spark.report import print_report
from exchangeable.cli.spark.running import check_input, spark_session

WRITTEN = {"alarm", "log10_martingale", "n", "seed"}  # columns of every output


class Evidence(StrEnum):
    """What is compared with the threshold."""

    current = "current"
    adjusted = "adjusted"


OutputPath = Annotated[str, typer.Argument(help="Output folder of `spark test` or `spark monitor`.")]
EvidenceOption = Annotated[
    Evidence | None,
    typer.Option(
        help="Compare the current capital, valid at a time fixed in advance, or the highest one, adjusted to be valid "
        "at any time. Default: adjusted for the output of `spark monitor`, otherwise current.",
        rich_help_panel=RESULT_PANEL,
    ),
]


def report(
    path: OutputPath,
    rate: Rate = 0.05,
    streams: Streams = None,
    evidence: EvidenceOption = None,
    format: FormatOption = Format.text,  # noqa: A002
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Report again which streams have changed, from a finished output, without testing anything.

    Choose the rate before you look: the smallest rate at which some stream is found has no guarantee. The exit code is
    0 if no stream has changed at this false discovery rate, and 1 if some have.
    """
    check_input("path", path, master, conf, parquet=True)
    with spark_session(master, conf) as spark:
        rows = spark.read.parquet(path)
        missing = sorted(WRITTEN - set(rows.columns))
        if missing:
            needed = "path must be the output of `spark test` or `spark monitor`"
            raise CommandError(f"{needed}, got {path!r} without the columns {', '.join(missing)}", USAGE)
        first = rows.select("seed").first()
        if first is None:
            raise CommandError(f"path must hold at least one stream, got {path!r} without rows", USAGE)
        streaming = rows.columns[-1] == "kind"  # `spark monitor` partitions its output by kind
        chosen = (Evidence.adjusted if streaming else Evidence.current) if evidence is None else evidence
        print_report(rows, rate, chosen.value, format, path, first[0], streams)
