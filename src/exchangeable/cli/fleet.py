"""`exchangeable fleet`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import exchangeable as ex
from exchangeable.analysis.text import format_evidence
from exchangeable.cli.failures import RejectedError, usage
from exchangeable.cli.options import Format
from exchangeable.cli.output import shown, write
from exchangeable.martingale import LN10

LISTED = 20  # streams of a fleet that are named in words


def fleet(
    file: Annotated[Path, typer.Argument(help="CSV, TSV (also .gz) or Parquet, one row for each stream.")],
    alpha: Annotated[float, typer.Option(help="Largest acceptable rate of false discoveries.")] = 0.05,
    stream: Annotated[str, typer.Option(help="Column of the streams' names.")] = "stream",
    log_value: Annotated[
        str | None, typer.Option(help="Column of current martingale values, natural logs; default log_value.")
    ] = None,
    log10_value: Annotated[
        str | None, typer.Option(help="The same as logs to base 10; default log10_martingale.")
    ] = None,
    streams: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The largest number of streams there will ever be, deleted ones included, fixed before the first look"
            "; default: the number in the file.",
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="Of the result.")] = Format.text,  # noqa: A002
) -> None:
    """Find the streams that have changed among many, from the current evidence of each (e-BH).

    The default is valid if the file holds all streams there will ever be. If streams come or go between looks, fix
    their number in advance (--streams).
    """
    from exchangeable.data import files as tables

    usage(lambda: ex.fleet.e_bh([0.0], alpha))  # is alpha lawful? Before the work
    values = tables.read_fleet(file, stream=stream, log_value=log_value, log10_value=log10_value)
    found = usage(lambda: ex.fleet.e_bh(values, alpha, streams=streams))
    if format is Format.json:
        write(json.dumps(_fleet_record(found)))
    else:
        write(f"{shown(Path(file.name))}: {_fleet_words(found)}")
    if found.names:
        raise RejectedError


def _fleet_record(found: ex.fleet.Discoveries) -> dict[str, Any]:
    """What `exchangeable fleet --format json` prints."""
    log10 = (found.log_values / LN10).tolist()
    return {
        "n_streams": found.streams,
        "rule": found.rule,
        "n_rejected": len(found.names),
        "alpha": found.alpha,
        "log10_threshold": found.log_threshold / LN10,
        "rejected": [
            {"stream": name, "log10_martingale": value} for name, value in zip(found.names, log10, strict=True)
        ],
    }


def _needed(found: ex.fleet.Discoveries) -> str:
    if found.rule == "given":
        return "no streams that come or go between looks (otherwise use --streams)"
    return f"a number of streams, {found.streams:,}, that was fixed before the first look"


def _fleet_words(found: ex.fleet.Discoveries) -> str:
    """The discoveries as an operator would want them said; names are quoted, so that none can command a terminal."""
    level, needed = f"{100.0 * found.alpha:g} %", format_evidence(found.log_threshold / LN10)
    if not found.names:
        return (
            f"NONE of {found.streams:,} streams has changed, as far as the evidence goes, at a false discovery rate of "
            f"{level}.\nA stream alone would need evidence of {needed}; several together need less each."
        )
    record = _fleet_record(found)["rejected"]
    rows = [f"  {row['stream']!r}: evidence {format_evidence(row['log10_martingale'])}" for row in record[:LISTED]]
    more = [f"  and {len(record) - LISTED:,} more; --format json names them all"] * (len(record) > LISTED)
    return "\n".join(
        [
            f"{len(record):,} of {found.streams:,} streams CHANGED, at a false discovery rate of {level}: "
            f"evidence of at least {needed} each.",
            *rows,
            *more,
            f"Means: of the streams named so, at most {level} on average have not changed. Needs: current values, not "
            "the highest so far; independent streams, or a time to look not chosen by looking at the others; and "
            f"{_needed(found)}.",
        ]
    )
