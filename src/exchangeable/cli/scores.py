"""Measures of one number that are in no catalogue: scores between quantiles of a reference, p-values brought along."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from exchangeable import catalogue
from exchangeable.cli.choice import Choice
from exchangeable.cli.failures import UNDECIDED, USAGE, Failure, usage
from exchangeable.cli.output import shown

if TYPE_CHECKING:
    from exchangeable.measures import Frozen
    from exchangeable.protocols import Measure
    from exchangeable.pvalues import Precomputed

ONE_NUMBER = ("value", "frozen", "p-values")


def reference_scores(choice: Choice, reference: Path | None, bins: int | None) -> list[float] | None:
    """The reference scores of a frozen measure."""
    if choice.measure != "frozen":
        if reference is not None or bins is not None:
            raise Failure(f"--reference and --bins go with --measure frozen, got them with {choice.measure}", USAGE)
        return None
    if reference is None:
        raise Failure("--measure frozen needs --reference FILE: scores that are not part of the stream", USAGE)
    from exchangeable import watch as watching

    try:
        return watching.read_numbers(reference)
    except (watching.LineError, watching.UsageError) as error:
        raise Failure(f"{shown(reference)}: {error}", UNDECIDED) from error


def uncatalogued(choice: Choice, scores: list[float] | None, bins: int) -> Measure | Precomputed | None:
    """The measure of this name, or None if it is in the catalogue."""
    from exchangeable.measures import Frozen
    from exchangeable.pvalues import Precomputed

    if choice.measure not in catalogue.MEASURES and choice.neighbours is not None:
        raise Failure(f"--neighbours goes with the measures nearest-..., got it with {choice.measure}", USAGE)
    if choice.measure == "p-values":
        return Precomputed()
    if scores is not None:
        frozen: Frozen = usage(lambda: Frozen(reference=scores, bins=bins))
        return frozen
    return None
