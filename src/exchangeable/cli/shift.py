"""The command `exchangeable shift`: test a table for label shift and concept shift."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import exchangeable as ex
from exchangeable.cli.errors import RejectedError, usage_errors
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    MAX_ROWS,
    TEST_PANEL,
    File,
    Format,
    FormatOption,
    MaxRows,
    Order,
    Plot,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import check_plot, print_notes, progress_bars, save_plot, write
from exchangeable.cli.table_options import ColumnOptions, FileOptions, option_groups

ShiftAlpha = Annotated[
    float,
    typer.Option(
        metavar="X",
        help="Largest acceptable probability of a false alarm, for each kind of shift.",
        rich_help_panel=TEST_PANEL,
    ),
]


@option_groups
def shift(
    file: File,
    *,
    table: ColumnOptions,
    order: Order = None,
    reading: FileOptions,
    alpha: ShiftAlpha = 0.01,
    scale: Scale = ScaleName.auto,
    max_rows: MaxRows = MAX_ROWS,
    seed: Seed = None,
    plot: Plot = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Test whether the proportions of the classes change (label shift), or the rows of a class (concept shift).

    The result is that of `exchangeable.shift_test(FILE, label)` in Python, with the same defaults.
    """
    check_plot(plot)
    MonitorOptions(alpha=alpha, seed=seed).build()  # rejects invalid options before the file is read
    arguments: dict[str, Any] = {"alpha": alpha, "seed": seed, "scale": scale.value, "max_rows": max_rows}
    chosen = table.arguments() | {"order": order}
    with usage_errors(), progress_bars() as progress:
        contents = reading.read(file, chosen, progress)
        result = ex.shift_test(contents, **chosen, **arguments, progress=progress)
    print_notes(result.notes)
    if plot is not None:
        save_plot(result.plot(), plot)
    write(result.to_json() if format is Format.json else result.text)
    if result.rejected:
        raise RejectedError
