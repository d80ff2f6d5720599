"""A test of a table that distinguishes label shift from concept shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from exchangeable import plots, shift
from exchangeable.analysis.formats import dump_json, format_evidence
from exchangeable.analysis.notes import data_notes
from exchangeable.analysis.run import choose_measure
from exchangeable.analysis.sample import choose_rows, expand_shift, row_limit
from exchangeable.analysis.settings import DEFAULT_ALPHA, MAX_ROWS, Settings
from exchangeable.analysis.text import SHIFTS, describe_table, figure_title
from exchangeable.analysis.timeline import Timeline
from exchangeable.analysis.verdict import SORTED_CLAUSE
from exchangeable.data.canonical import table_seed
from exchangeable.data.design import design_matrix, resolve_scale
from exchangeable.data.errors import ColumnError, DataError
from exchangeable.data.schema import Preparation, prepare
from exchangeable.data.table import Table, take_labels
from exchangeable.martingale import LN10
from exchangeable.measures import NearestNeighbour
from exchangeable.protocols import Bet, Measure
from exchangeable.shift import Evidence, Shift
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Names = str | Sequence[str]
LIMITS = "Does not mean: that there is no shift if none was found. A test can only ever refute exchangeability."


class ShiftResult(Shift):
    """The result of `exchangeable.shift_test`: a `Shift`, and the table that it is about.

    ``print(result)`` describes it in sentences.
    """

    table: Table
    scale: str
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"Note: {note}." for note in self.notes)])

    @property
    def timeline(self) -> Timeline:
        """When the rows occurred, and where they stand in the data."""
        return Timeline.of(self.table)

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee."""
        checked = len(self.table.columns) + self.table.sorted_aside > 1  # a single column is never set aside
        return super().guarantee.removesuffix(".") + (SORTED_CLAUSE if checked else "") + "."

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
            reached = f"reached {level} at row {evidence.alarm_at:,}{self.timeline.describe(evidence.alarm_at)}"
        peak, end = format_evidence(record["log10_max"]), format_evidence(record["log10_martingale"])
        return f"Evidence {name}: peak {peak}, at the end {end}; {reached}."

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "file": self.table.name,
            "n": self.table.n,
            "n_features": len(self.table.features),
            "n_classes": len(set(self.table.y or ())),
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
        paths = {"labels": self.label.log_value, "rows given their labels": self.concept.log_value}
        title, times = figure_title(self.table.name), self.timeline.axis
        ax = plots.growth(paths, thresholds=(1.0 / self.alpha,), title=title, times=times, ax=ax)
        ax.set_xlabel("rows seen" if times is None else "time")
        return ax


def shift_test(
    data: Any,
    label: Any,
    *,
    order: str | None = None,
    features: Names | None = None,
    drop: Names = (),
    keep: Names = (),
    categorical: Names = (),
    missing: str = "indicator",
    invalid: str = "error",
    measure: Measure | None = None,
    bet: Bet | None = None,
    alpha: float = DEFAULT_ALPHA,
    seed: int | None = None,
    scale: str = "auto",
    max_rows: int = MAX_ROWS,
    progress: Callable[[str, int, int], None] | None = None,
) -> ShiftResult:
    """Test whether the label frequencies have changed, or the examples given their labels, or both.

    There are two sequences of p-values, which are jointly independent and uniform if the examples are exchangeable:

    - for the labels: each is ranked among all labels so far, in numerical or alphabetical order;
    - for the examples given their labels: each is ranked among those of its own label, ``Conditional(measure)``.

    A copy of ``bet`` bets on each sequence. A shift is reported when the capital reaches 1/alpha, which has probability
    at most alpha on data without that shift (for concept shift, plus 6e-7 for each column that is checked for being
    sorted). A change of frequencies does not affect the ranks within labels, so it is not mistaken for concept shift.

    ``data``, ``label`` and the other arguments are those of `exchangeable.test`; the labels are classes. By default the
    measure is `NearestNeighbour` and the bet `Adaptive`; time and memory are theirs. If there are more than
    ``max_rows`` rows, nearest neighbours use that many, chosen by the seed.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(400) < np.repeat([0.2, 0.8], 200)
    >>> shift_test(rng.normal(size=(400, 1)) + 3.0 * y[:, np.newaxis], y, seed=0).verdict
    'label shift'

    Reference: Vovk (2020), Testing for concept shift online; Vovk, Gammerman, Shafer (2005), section 4.5.
    """
    Settings(measure, bet, alpha=alpha, scale=scale, columns="none", max_rows=max_rows).check()
    if label is None:
        raise ColumnError("label must be given: the name of the column of classes, or one class for each row")
    how = Preparation(label, order, features, drop, keep, categorical, missing, invalid)
    prepared = prepare(data, how, labels="classes", within_classes=True, seed=seed)
    table, scale = prepared.table, resolve_scale(prepared.table, scale)
    classes = len(set(table.y or ()))
    if classes == table.n:
        raise DataError(
            f"label {format_value(table.label)} must hold classes, some of which occur more than once, got "
            f"{classes:,} different ones in {table.n:,} rows"
        )
    seed = table_seed(table) if seed is None else seed
    fresh, values = choose_measure(prepared, NearestNeighbour() if measure is None else measure)
    rows = None if values is not None else choose_rows(table.n, row_limit(table, max_rows), seed)
    X = design_matrix(table, scale, rows) if values is None else values
    notes = [*table.notes, *data_notes(table, scale)]
    if rows is not None:
        notes.append(
            f"{len(rows):,} of {table.n:,} rows were used, chosen at random by the seed (the time of nearest "
            "neighbours grows with the square of the rows; max_rows sets the limit)"
        )
    y = table.y if rows is None else take_labels(table.y, rows)
    options: dict[str, Any] = {"bet": bet, "alpha": alpha, "seed": seed, "progress": progress}
    found = shift.shift_test(X, y or (), measure=fresh, **options)
    result = ShiftResult(*(found if rows is None else expand_shift(found, rows, table.n)))
    result.table, result.scale, result.notes = table, scale, notes
    return result


def _record(evidence: Evidence) -> dict[str, Any]:
    log10 = evidence.log_value / LN10
    return {
        "log10_martingale": float(log10[-1]),
        "log10_max": max(0.0, float(log10.max())),  # S_0 = 1
        "rejected": evidence.rejected,
        "rejected_at": evidence.alarm_at,
    }
