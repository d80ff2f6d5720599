"""Measures of one number that are not in the catalogue: frozen scores and precomputed p-values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from exchangeable import catalogue
from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError, usage_errors
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.protocols import Measure
    from exchangeable.pvalues import Precomputed

ONE_NUMBER = ("value", "frozen", "p-values")


def read_reference(options: MonitorOptions, reference: Path | None, bins: int | None) -> list[float] | None:
    """Read the reference scores if the measure is frozen. The options of another measure are a usage error."""
    if options.measure != "frozen":
        if reference is not None or bins is not None:
            message = f"--reference and --bins require --measure frozen, got them with {options.measure}"
            raise CommandError(message, USAGE)
        return None
    if reference is None:
        raise CommandError("--measure frozen needs --reference FILE: scores that are not part of the stream", USAGE)
    from exchangeable import watch as watching

    try:
        return watching.read_numbers(reference)
    except (watching.LineError, watching.UsageError) as error:
        raise CommandError(f"{printable(reference)}: {error}", UNDECIDED) from error


def score_measure(options: MonitorOptions, scores: list[float] | None, bins: int) -> Measure | Precomputed | None:
    """Return the measure for scores or p-values, or None if the measure is in the catalogue."""
    from exchangeable.measures import Frozen
    from exchangeable.pvalues import Precomputed

    if options.measure not in catalogue.MEASURES and options.neighbours is not None:
        raise CommandError(
            f"--neighbours applies only to the measures nearest-..., got it with {options.measure}", USAGE
        )
    if options.measure == "p-values":
        return Precomputed()
    if scores is None:
        return None
    with usage_errors():
        return Frozen(reference=scores, bins=bins)
