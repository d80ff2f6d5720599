"""The command `exchangeable fleet`: find the streams that have changed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import exchangeable as ex
from exchangeable.analysis.formats import format_evidence
from exchangeable.cli.errors import RejectedError, usage_errors
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import write
from exchangeable.data.errors import ColumnError, DataError, check_known, list_names, naming
from exchangeable.martingale import LN10
from exchangeable.validation import format_value, printable

if TYPE_CHECKING:
    import polars as pl

DEFAULTS = (("--log-value", "log_value", 1.0), ("--log10-value", "log10_martingale", LN10))
LISTED = 20  # streams named in the text output


def fleet(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Table with one row for each stream: CSV, Parquet, ...")],
    alpha: Annotated[float, typer.Option(help="Largest acceptable false discovery rate.")] = 0.05,
    stream: Annotated[str, typer.Option(help="Column with the names of the streams.")] = "stream",
    log_value: Annotated[
        str | None,
        typer.Option(help="Column with the natural logarithms of the current martingale values; default log_value."),
    ] = None,
    log10_value: Annotated[
        str | None, typer.Option(help="Column with their base-10 logarithms instead; default log10_martingale.")
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The largest number of streams there will ever be, including deleted ones, fixed before the first "
            "analysis. Default: the number of streams in the file.",
        ),
    ] = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Find the streams that have changed among many, from the current evidence of each (e-BH).

    The default is valid if the file holds all streams there will ever be. If streams appear or disappear between
    analyses, fix their number in advance (--streams).
    """
    from exchangeable.data.files import read_file

    with usage_errors():
        ex.fleet.e_bh([0.0], alpha)  # rejects an invalid alpha before the file is read
    contents = read_file(file)
    with naming(contents.name):
        values = _log_values(contents.frame, stream, log_value, log10_value)
    with usage_errors():
        discoveries = ex.fleet.e_bh(values, alpha, streams=streams)
    if format is Format.json:
        write(json.dumps(_record(discoveries)))
    else:
        write(f"{printable(Path(file.name))}: {_text(discoveries)}")
    if discoveries.names:
        raise RejectedError


def _log_values(frame: pl.DataFrame, stream: str, log_value: str | None, log10_value: str | None) -> dict[Any, float]:
    """Return the natural log of the value of each stream, by its name; -inf is allowed."""
    import polars as pl

    column, unit = _choose_values(frame.columns, log_value, log10_value)
    check_known("--stream", [stream], frame.columns)
    if column == stream:
        raise ColumnError(f"column {format_value(stream)} cannot hold both the names and the values; name two columns")
    names, cells = frame[stream], frame[column]
    if names.dtype.is_nested():
        raise DataError(f"column {format_value(stream)} must hold names, got type {names.dtype}")
    if not (cells.dtype.is_numeric() or cells.dtype == pl.String):
        raise DataError(f"column {format_value(column)} must hold numbers, got type {cells.dtype}")
    values = unit * cells.cast(float, strict=False)
    for row in (~(values < math.inf)).fill_null(True).arg_true().head(1):
        rule = f"column {format_value(column)} must hold finite numbers or -inf"
        raise DataError(f"row {row + 1}: {rule}, got {format_value(cells[row])}")
    for row in names.is_null().arg_true().head(1):
        raise DataError(f"row {row + 1}: the name of the stream is missing in column {format_value(stream)}")
    for row in (~names.is_first_distinct()).arg_true().head(1):
        rule = "each stream must have one row, with its current value; of a history, keep the last row"
        raise DataError(f"row {row + 1}: stream {format_value(names[row])} occurs twice; {rule}")
    if not len(names):
        raise DataError("the table must have at least one row, got none")
    return dict(zip(names, values, strict=True))


def _choose_values(names: list[str], log_value: str | None, log10_value: str | None) -> tuple[str, float]:
    """Return the column of the values, and the factor that converts them to natural logs."""
    chosen = [("--log-value", log_value, 1.0), ("--log10-value", log10_value, LN10)]
    if log_value is None and log10_value is None:
        chosen = [(option, name, unit) for option, name, unit in DEFAULTS if name in names]
    named = [(option, name, unit) for option, name, unit in chosen if name is not None]
    if len(named) != 1:
        rule = "the column of martingale values must be named with --log-value (natural logs) or --log10-value"
        raise ColumnError(f"{rule}, got {'both' if named else 'neither'}; the columns are {list_names(names)}")
    option, name, unit = named[0]
    check_known(option, [name], names)
    return name, unit


def _record(discoveries: ex.fleet.Discoveries) -> dict[str, Any]:
    log10 = (discoveries.log_values / LN10).tolist()
    return {
        "n_streams": discoveries.streams,
        "rule": discoveries.rule,
        "n_rejected": len(discoveries.names),
        "alpha": discoveries.alpha,
        "log10_threshold": discoveries.log_threshold / LN10,
        "rejected": [
            {"stream": name, "log10_martingale": value} for name, value in zip(discoveries.names, log10, strict=True)
        ],
    }


def _text(discoveries: ex.fleet.Discoveries) -> str:
    """Describe the discoveries. Names are quoted, so that none can send control characters to the terminal."""
    level, needed = f"{100.0 * discoveries.alpha:g} %", format_evidence(discoveries.log_threshold / LN10)
    if not discoveries.names:
        return (
            f"NONE of {discoveries.streams:,} streams is flagged as changed, at a false discovery rate of {level}.\n"
            f"A single stream would need evidence of {needed}; several streams together need less each."
        )
    rejected = _record(discoveries)["rejected"]
    rows = [f"  {row['stream']!r}: evidence {format_evidence(row['log10_martingale'])}" for row in rejected[:LISTED]]
    more = [f"  and {len(rejected) - LISTED:,} more; --format json lists all of them"] * (len(rejected) > LISTED)
    return "\n".join(
        [
            f"{len(rejected):,} of {discoveries.streams:,} streams CHANGED, at a false discovery rate of {level}: "
            f"evidence of at least {needed} each.",
            *rows,
            *more,
            f"Means: of the streams named here, at most {level} on average have not changed. Needs: current values, "
            "not the highest so far; independent streams, or a time of analysis not chosen by looking at the others; "
            f"and {_assumption(discoveries)}.",
        ]
    )


def _assumption(discoveries: ex.fleet.Discoveries) -> str:
    if discoveries.rule == "given":
        return "no streams that appear or disappear between analyses (otherwise use --streams)"
    return f"a number of streams, {discoveries.streams:,}, that was fixed before the first analysis"
