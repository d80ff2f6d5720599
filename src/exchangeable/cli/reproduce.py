"""`exchangeable reproduce`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import exchangeable as ex
from exchangeable.cli.options import Format
from exchangeable.cli.output import progress_bars, shown, write

if TYPE_CHECKING:
    from exchangeable.research import paper


class Experiments(StrEnum):
    """What of the paper to run."""

    usps = "usps"
    satellite = "satellite"
    all = "all"


def reproduce(
    name: Annotated[Experiments, typer.Argument(help="Which experiments.")] = Experiments.all,
    data: Annotated[Path | None, typer.Option(help="Folder with the datasets; default: the cache of fetch.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures (PNG, SVG) and the table.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of theta.")] = 20,
    format: Annotated[Format, typer.Option(help="Of the table.")] = Format.text,  # noqa: A002
) -> None:
    """Run the experiments of Fedorova et al. (2012) and set the published values beside ours."""
    if out is not None:
        ex.plots.axes()  # fails now, not after the work, where matplotlib is missing
        out.mkdir(parents=True, exist_ok=True)
    with progress_bars() as progress:
        rows = ex.research.paper.reproduce(name.value, data=data, out=out, seeds=seeds, progress=progress)
    if format is Format.json:
        write(json.dumps([row._asdict() for row in rows], indent=1))
    else:
        _table(rows)
    if out is not None:
        typer.echo(f"Figures and table.md are in {shown(out)}", err=True)


def _table(rows: Sequence[paper.Row]) -> None:
    """The paper's table for a reader, and what it shows in one sentence."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"log10 of the capital: published, and ours over {rows[0].seeds} seeds")
    for column in ("data", "order", "n", "martingale", "published", "our median", "our range", "published inside?"):
        table.add_column(column, justify="left" if column in ("data", "order", "martingale") else "right")
    said = {True: "yes", False: "no", None: ""}
    for row in rows:
        published = "" if row.published_log10 is None else f"{row.published_log10:.2f}"
        span = f"{row.min_log10:.2f} to {row.max_log10:.2f}"
        first = (row.dataset, row.order, f"{row.n:,}", row.martingale)
        table.add_row(*first, published, f"{row.median_log10:.2f}", span, said[row.inside])
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as captured:
        console.print(table)
    write(captured.get().rstrip("\n"))
    judged = [row for row in rows if row.inside is not None]
    write(
        f"{sum(row.inside is True for row in judged)} of {len(judged)} published values lie inside the range of our "
        f"{rows[0].seeds} draw(s) of theta; a published value is itself one draw."
    )
