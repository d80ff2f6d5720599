"""`exchangeable certify`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.errors import UNDECIDED, CommandError, RejectedError, usage_errors
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import progress_bars, write


def certify(
    measure: Annotated[str, typer.Option(help="Name of the measure.")] = "nearest-neighbour",
    bet: Annotated[str | None, typer.Option(help="Name of the bet; default: the default of the alarm.")] = None,
    alarm: Annotated[str, typer.Option(help="Name of the alarm.")] = "ville",
    data: Annotated[
        str, typer.Option(help="Kind of exchangeable data: continuous, ties, labelled, categorical, tiny, or all.")
    ] = "all",
    alpha: Annotated[float, typer.Option(help="Promised probability of an alarm within the steps.")] = 0.05,
    runs: Annotated[int, typer.Option(min=1, help="Number of sequences to simulate.")] = 4000,
    steps: Annotated[int, typer.Option(min=1, help="Examples in each sequence (tiny: at most 8).")] = 250,
    seed: Annotated[int, typer.Option(help="Seed for the data and for random tie-breaking.")] = 0,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; default: the number of cores, at most 8.")
    ] = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Count false alarms on simulated exchangeable data and compare their rate with the promise.

    Exit codes: 0 promise kept, 1 BROKEN, 2 usage error, 3 too few runs to detect 1.3 times the promised rate.
    """
    from exchangeable import catalogue
    from exchangeable.research import certificate, simulated

    if bet is None:  # an invalid alarm is rejected below
        bet = catalogue.default_bet(alarm) if alarm in catalogue.ALARMS else "adaptive"
    kinds = list(simulated.DATA) if data == "all" else [data]
    surveys = [certificate.Survey([measure], [bet], [alarm], kind, runs, steps, alpha, seed) for kind in kinds]
    workers = processes or min(os.cpu_count() or 1, 8)
    with progress_bars() as progress, usage_errors():
        certificates = certificate.certify_all(surveys, processes=workers, progress=progress)
    if format is Format.json:
        write(json.dumps([one.to_dict() for one in certificates]))
    else:
        write(_text(certificates))
    verdicts = {one.verdict for one in certificates}
    if "BROKEN" in verdicts:
        raise RejectedError
    if "undecided" in verdicts:
        message = f"{runs:,} runs are too few to detect 1.3 times the promised rate; increase --runs"
        raise CommandError(message, UNDECIDED)


def _text(certificates: Sequence[ex.research.certificate.Certificate]) -> str:
    first = certificates[0]
    lines = [f"{first.measure}, {first.bet}, {first.alarm}: {first.runs:,} runs on each kind of exchangeable data"]
    for one in certificates:
        low, high = one.interval
        lines.append(
            f"  {one.data:<12} {one.steps:>5,} steps: {one.false_alarms:>5,} false alarms, {100.0 * one.rate:5.2f} % "
            f"(99 % interval {100.0 * low:.2f} to {100.0 * high:.2f}), promised {100.0 * one.promise:g}: {one.verdict}"
        )
    lines.append(
        "Means: BROKEN if the exact interval lies above the promise, which happens in at most 1 of 200 cases if the "
        f"promise holds. A rate of 1.3 times the promise is detected with probability "
        f"{min(one.power for one in certificates):.2f}."
    )
    return "\n".join(lines)
