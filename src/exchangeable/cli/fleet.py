"""`exchangeable fleet`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import exchangeable as ex
from exchangeable.analysis.text import format_evidence
from exchangeable.cli.errors import RejectedError, usage_errors
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import write
from exchangeable.martingale import LN10
from exchangeable.validation import printable

LISTED = 20  # streams named in the text output


def fleet(
    file: Annotated[Path, typer.Argument(help="CSV, TSV (also .gz) or Parquet with one row for each stream.")],
    alpha: Annotated[float, typer.Option(help="Largest acceptable false discovery rate.")] = 0.05,
    stream: Annotated[str, typer.Option(help="Column with the names of the streams.")] = "stream",
    log_value: Annotated[
        str | None,
        typer.Option(help="Column with the current martingale values as natural logarithms; default log_value."),
    ] = None,
    log10_value: Annotated[
        str | None, typer.Option(help="The same as base-10 logarithms; default log10_martingale.")
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The largest number of streams there will ever be, including deleted ones, fixed before the first "
            "analysis; default: the number in the file.",
        ),
    ] = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Find the streams that have changed among many, from the current evidence of each (e-BH).

    The default is valid if the file holds all streams there will ever be. If streams appear or disappear between
    analyses, fix their number in advance (--streams).
    """
    from exchangeable.data import files

    with usage_errors():
        ex.fleet.e_bh([0.0], alpha)  # rejects an invalid alpha before the file is read
    values = files.read_fleet(file, stream=stream, log_value=log_value, log10_value=log10_value)
    with usage_errors():
        discoveries = ex.fleet.e_bh(values, alpha, streams=streams)
    if format is Format.json:
        write(json.dumps(_record(discoveries)))
    else:
        write(f"{printable(Path(file.name))}: {_text(discoveries)}")
    if discoveries.names:
        raise RejectedError


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
            f"NONE of {discoveries.streams:,} streams has changed, as far as the evidence goes, at a false discovery "
            f"rate of {level}.\nA single stream would need evidence of {needed}; several together need less each."
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
