"""`exchangeable certify`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.failures import UNDECIDED, Failure, RejectedError, usage
from exchangeable.cli.options import Format
from exchangeable.cli.output import progress_bars, write


def certify(
    measure: Annotated[str, typer.Option(help="Name of the measure.")] = "nearest-neighbour",
    bet: Annotated[str | None, typer.Option(help="Name of the bet; default: the one that suits the alarm.")] = None,
    alarm: Annotated[str, typer.Option(help="Name of the alarm.")] = "ville",
    data: Annotated[
        str, typer.Option(help="Exchangeable data: continuous, ties, labelled, categorical, tiny, or all of them.")
    ] = "all",
    alpha: Annotated[float, typer.Option(help="Promised chance of an alarm within the steps.")] = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="How many sequences to simulate.")] = 4000,
    steps: Annotated[int, typer.Option(min=1, help="Examples of each (tiny: 8 at most).")] = 250,
    seed: Annotated[int, typer.Option(help="Of the data and of the tie-breaking.")] = 0,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: the cores, at most 8.")] = None,
    format: Annotated[Format, typer.Option(help="Of the result.")] = Format.text,  # noqa: A002
) -> None:
    """Count false alarms on simulated exchangeable data and hold them against the promise.

    Exit codes: 0 promise kept, 1 BROKEN, 2 wrong usage, 3 too few runs to see 1.3 times the promised rate.
    """
    from exchangeable import catalogue
    from exchangeable.research import certificate, simulated

    kinds = list(simulated.DATA) if data == "all" else [data]
    if bet is None:
        bet = (
            catalogue.default_bet(alarm) if alarm in catalogue.ALARMS else "adaptive"
        )  # an invalid alarm is rejected below
    surveys = [certificate.Survey([measure], [bet], [alarm], kind, runs, steps, alpha, seed) for kind in kinds]
    workers = processes or min(os.cpu_count() or 1, 8)
    with progress_bars() as progress:
        found = usage(lambda: certificate.certify_all(surveys, processes=workers, progress=progress))
    write(json.dumps([one.to_dict() for one in found]) if format is Format.json else _certificate_words(found))
    if any(one.verdict == "BROKEN" for one in found):
        raise RejectedError
    if any(one.verdict == "undecided" for one in found):
        raise Failure(f"{runs:,} runs are too few to see 1.3 times the promised rate; use more --runs", UNDECIDED)


def _certificate_words(found: Sequence[ex.research.certificate.Certificate]) -> str:
    """One line for each kind of data, and what was promised."""
    first = found[0]
    lines = [f"{first.measure}, {first.bet}, {first.alarm}: {first.runs:,} runs of exchangeable data of each kind"]
    for one in found:
        low, high = one.interval
        lines.append(
            f"  {one.data:<12} {one.steps:>5,} steps: {one.false_alarms:>5,} false alarms, {100.0 * one.rate:5.2f} % "
            f"(99 % interval {100.0 * low:.2f} to {100.0 * high:.2f}), promised {100.0 * one.promise:g}: {one.verdict}"
        )
    lines.append(
        f"Means: BROKEN if the exact interval lies above the promise, which a kept promise does once in 200 at most. "
        f"A rate of 1.3 times the promise would be found with probability {min(one.power for one in found):.2f}."
    )
    return "\n".join(lines)
