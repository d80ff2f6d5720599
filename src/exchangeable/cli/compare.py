"""The command `exchangeable compare`: compare two tables."""

from __future__ import annotations

from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError, RejectedError, usage_errors
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    FORMATS,
    MAX_ROWS,
    TEST_PANEL,
    Bet,
    Columns,
    ColumnsOption,
    Epsilon,
    MaxRows,
    Neighbours,
    OptionalMeasure,
    Scale,
    ScaleName,
    Seed,
)
from exchangeable.cli.output import progress_bars
from exchangeable.cli.table_options import ColumnOptions, FileOptions, ResultOptions, option_groups

Reference = Annotated[
    str, typer.Argument(metavar="REFERENCE", help=f"The first table: {FORMATS} - for standard input.")
]
Current = Annotated[str, typer.Argument(metavar="CURRENT", help="Second table, for example a new batch of data.")]

CompareAlpha = Annotated[
    float,
    typer.Option(metavar="X", help="Largest acceptable probability of a false alarm.", rich_help_panel=TEST_PANEL),
]


@option_groups
def compare(
    reference: Reference,
    current: Current,
    *,
    table: ColumnOptions,
    reading: FileOptions,
    measure: OptionalMeasure = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alpha: CompareAlpha = 0.01,
    columns: ColumnsOption = Columns.auto,
    scale: Scale = ScaleName.auto,
    max_rows: MaxRows = MAX_ROWS,
    seed: Seed = None,
    output: ResultOptions,
) -> None:
    """Test whether two tables can be pooled: whether they are a random split of one table.

    The result is that of `exchangeable.compare(REFERENCE, CURRENT)` in Python. Differences between the columns are
    reported first. If a column is missing from one of the tables, or holds numbers in one and text in the other, the
    tables are compared on the other columns, and the exit code is 3 unless the test rejects; use --drop COLUMN to
    accept the difference.

    Options for several columns take lists such as A,B and can be repeated. Put a name that contains a comma in quotes,
    as in CSV: --drop 'a,"b,c"'.
    """
    output.check()
    if reference == current == "-":
        raise CommandError("only one of the two tables can be standard input", USAGE)
    options = MonitorOptions(measure, neighbours, bet, epsilon, alpha=alpha, seed=seed)
    arguments = options.arguments() | {"columns": columns.value, "scale": scale.value, "max_rows": max_rows}
    chosen = table.arguments()
    with usage_errors(), progress_bars() as progress:
        first, second = (reading.read(file, chosen, progress) for file in (reference, current))
        result = ex.compare(first, second, **chosen, **arguments, progress=progress)
    output.write(result)
    if result.rejected:
        raise RejectedError
    if not result.same_columns:
        raise CommandError(
            "the tables do not have the same columns, so they were compared on those that they share; --drop the "
            "others to accept this",
            UNDECIDED,
        )
