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
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import progress_bars, write
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.research import paper


class Experiment(StrEnum):
    """The experiments of the paper."""

    usps = "usps"
    satellite = "satellite"
    all = "all"


def reproduce(
    name: Annotated[Experiment, typer.Argument(help="Experiments to run.")] = Experiment.all,
    data: Annotated[Path | None, typer.Option(help="Folder with the datasets; default: the cache of fetch.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures (PNG, SVG) and the table.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds for random tie-breaking.")] = 20,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Run the experiments of Fedorova et al. (2012) and compare our values with the published ones."""
    if out is not None:
        ex.plots.axes()  # fails now, not after the work, if matplotlib is missing
        out.mkdir(parents=True, exist_ok=True)
    with progress_bars() as progress:
        rows = ex.research.paper.reproduce(name.value, data=data, out=out, seeds=seeds, progress=progress)
    if format is Format.json:
        write(json.dumps([row._asdict() for row in rows], indent=1))
    else:
        _write_table(rows)
    if out is not None:
        typer.echo(f"Figures and table.md are in {printable(out)}", err=True)


def _write_table(rows: Sequence[paper.Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"log10 of the capital: published, and ours over {rows[0].seeds} seeds")
    for column in ("data", "order", "n", "martingale", "published", "our median", "our range", "published inside?"):
        table.add_column(column, justify="left" if column in ("data", "order", "martingale") else "right")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(width=None if sys.stdout.isatty() else 120)
    with console.capture() as captured:
        console.print(table)
    write(captured.get().rstrip("\n"))
    compared = [row for row in rows if row.inside is not None]
    write(
        f"{sum(row.inside is True for row in compared)} of {len(compared)} published values lie inside the range over "
        f"our {rows[0].seeds} seed(s); a published value is itself the result of one random draw."
    )


def _cells(row: paper.Row) -> list[str]:
    return [
        row.dataset,
        row.order,
        f"{row.n:,}",
        row.martingale,
        "" if row.published_log10 is None else f"{row.published_log10:.2f}",
        f"{row.median_log10:.2f}",
        f"{row.min_log10:.2f} to {row.max_log10:.2f}",
        {True: "yes", False: "no", None: ""}[row.inside],
    ]
