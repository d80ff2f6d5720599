"""`exchangeable fetch`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.failures import USAGE, Failure
from exchangeable.cli.output import progress_bars, shown, write


class Names(StrEnum):
    """The paper's datasets."""

    usps = "usps"
    satellite = "satellite"


def fetch(
    name: Annotated[Names, typer.Argument(help="Which of the paper's datasets.")],
    source: Annotated[Path | None, typer.Option("--from", help="Take the files from this folder, no network.")] = None,
    to: Annotated[Path | None, typer.Option(help="Where to keep them; default: the user's cache folder.")] = None,
    mirror: Annotated[str | None, typer.Option(help="Web address to use instead of the files' public homes.")] = None,
) -> None:
    """Download USPS or Satellite from its public home, checked against its SHA-256."""
    if source is not None and mirror is not None:
        raise Failure("--from and --mirror exclude one another: files come from a folder or from the network", USAGE)
    with progress_bars() as progress:
        try:
            paths = ex.research.datasets.fetch(name.value, to, mirror=mirror, source=source, progress=progress)
        except ValueError as error:
            raise Failure(str(error), USAGE) from error
    for path in paths:
        write(shown(path))
