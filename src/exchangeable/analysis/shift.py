"""A test of a table that distinguishes label shift from concept shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from exchangeable import plots, shift
from exchangeable.analysis.text import SHIFTS, describe_table, dump_json, figure_title, format_evidence
from exchangeable.data.canonical import table_seed
from exchangeable.data.design import design_matrix, resolve_scale
from exchangeable.data.schema import Preparation, prepare
from exchangeable.data.table import Table
from exchangeable.martingale import LN10
from exchangeable.protocols import Bet, Measure
from exchangeable.shift import Evidence, Shift

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIMITS = "Does not mean: that there is no shift if none was found. A test can only ever refute exchangeability."


class ShiftResult(Shift):
    """The result of `exchangeable.shift_test`: a `Shift`, and the table that it is about.

    ``print(result)`` describes it in sentences.
    """

    table: Table
    scale: str
    n_features: int
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"Note: {note}." for note in self.notes)])

    @property
    def text(self) -> str:
        """The result in sentences, without the notes."""
        parts = {"of label shift": self.label, "of concept shift": self.concept}
        evidence = [self._describe(name, part) for name, part in parts.items()]
        return "\n".join(
            [describe_table(self.table), SHIFTS[self.verdict], *evidence, f"Guarantee: {self.guarantee}", LIMITS]
        )

    def _describe(self, name: str, evidence: Evidence) -> str:
        record, level = _record(evidence), f"{1.0 / self.alpha:g}"
        reached = f"never reached {level}"
        if evidence.alarm_at is not None:
            reached = f"reached {level} at example {evidence.alarm_at:,}"
        peak, end = format_evidence(record["log10_max"]), format_evidence(record["log10_martingale"])
        return f"Evidence {name}: peak {peak}, at the end {end}; {reached}."

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "file": self.table.name,
            "n": self.table.n,
            "n_features": self.n_features,
            "n_classes": len(set(self.table.y or ())),  # type: ignore[arg-type]
            "scale": self.scale,
            "alpha": self.alpha,
            "threshold": 1.0 / self.alpha,
            "verdict": self.verdict,
            "rejected": self.rejected,
            "label": _record(self.label),
            "concept": _record(self.concept),
            "seed": self.seed,
            "guarantee": self.guarantee,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return dump_json(self.to_dict())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the growth of both martingales."""
        paths = {"labels": self.label.log_value, "examples given their labels": self.concept.log_value}
        return plots.growth(paths, thresholds=(1.0 / self.alpha,), title=figure_title(self.table.name), ax=ax)


def _record(evidence: Evidence) -> dict[str, Any]:
    log10 = evidence.log_value / LN10
    return {
        "log10_martingale": float(log10[-1]),
        "log10_max": max(0.0, float(log10.max())),  # S_0 = 1
        "rejected": evidence.rejected,
        "rejected_at": evidence.alarm_at,
    }
