"""`exchangeable fetch`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.errors import USAGE, CommandError, usage_errors
from exchangeable.cli.output import progress_bars, write
from exchangeable.validation import printable


class DatasetName(StrEnum):
    """The datasets of the paper."""

    usps = "usps"
    satellite = "satellite"


def fetch(
    name: Annotated[DatasetName, typer.Argument(help="Dataset of the paper.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="Copy the files from this folder instead of downloading them.")
    ] = None,
    to: Annotated[Path | None, typer.Option(help="Folder for the files; default: the user's cache folder.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Base URL to use instead of the public sources.")] = None,
) -> None:
    """Download USPS or Satellite from its public source and verify its SHA-256."""
    if source is not None and mirror is not None:
        raise CommandError("--from and --mirror exclude each other: use a folder or the network", USAGE)
    with progress_bars() as progress, usage_errors():
        paths = ex.research.datasets.fetch(name.value, to, mirror=mirror, source=source, progress=progress)
    for path in paths:
        write(printable(path))
