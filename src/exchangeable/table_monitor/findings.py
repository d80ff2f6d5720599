"""What a table monitor says about its lines: when and how each has changed, and what has changed altogether."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable.data.errors import list_names
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats
from exchangeable.table_monitor.constants import LOWEST, ColumnConstants, Constants
from exchangeable.table_monitor.lines import VIEWS, Line, Plan, Rows

if TYPE_CHECKING:
    from exchangeable.risk import Risk

PARTS = {"label": "labels", "residual": "rows with labels", "labelled rows": "rows with labels"}  # "inputs" for others
NAMES = ("5 % quantile", "lower quartile", "median", "upper quartile", "95 % quantile")
MEDIAN = 2
WHAT = {"rows": "distance to the reference: ", "residual": "residual: ", "labelled rows": "residual: "}
LISTED = 6  # lines, if none has an alarm
STRANGEST = 3  # rows that are named
RARE = 0.01  # categories with a smaller share in the reference are strange


class Finding(NamedTuple):
    """What is known of one line: its evidence, times its weight, and when and how it changed."""

    name: str
    kind: str
    log10_evidence: float
    rejected: bool
    alarm_at: int | None  # the row that raised its alarm
    changepoint: int | None  # rows before the change, as estimated at its alarm
    description: str
    rows: tuple[int, ...] = ()  # the numbers of the strangest recent rows, the strangest first
    stopped: bool = False  # it holds max_rows rows, and does not bet any more

    def __str__(self) -> str:
        stopped = ", stopped at max_rows" * self.stopped
        evidence = f"{'ALARM, ' * self.rejected}evidence 10^{self.log10_evidence:.1f}{stopped}"
        since = "" if self.changepoint is None else f", since about row {self.changepoint + 1:,}"
        rows = f"; strangest rows {', '.join(map(str, self.rows))}" if self.rejected and self.rows else ""
        return f"{self.name}: {evidence}{since}{': ' * bool(self.description)}{self.description}{rows}."

    @property
    def is_view(self) -> bool:
        """Whether this is about several columns, not a single one."""
        return self.kind in VIEWS

    @property
    def part(self) -> str:
        """What has changed if this line rejects: "inputs", "labels", or "rows with labels", without saying which."""
        return PARTS.get(self.kind, "inputs")


class Explanation(list[Finding]):
    """The findings of all lines, and what follows from them.

    ``given_label`` is the evidence that rows with the same label look different, by a test beside the alarm: ranks
    among the rows with the same label, as in `shift_test`. It is None without classes.
    """

    def __init__(self, findings: Iterable[Finding] = (), given_label: Finding | None = None) -> None:
        super().__init__(findings)
        self.given_label = given_label
        self.risk: Risk | None = None

    @property
    def keep_from(self) -> int | None:
        """The first row to keep for retraining, after the latest change of a line with an alarm.

        It is an estimate, and often early.
        """
        changes = [one.changepoint for one in self if one.changepoint is not None]
        return max(changes) + 1 if changes else None

    @property
    def moved(self) -> str:
        """Sentences about what has changed: the inputs, the labels, or the inputs of rows with the same label."""
        parts = {one.part for one in self if one.rejected}
        given = self.given_label is not None and self.given_label.rejected
        found = [f"The {part} have changed." for part in ("inputs", "labels") if part in parts]
        if "rows with labels" in parts and not found:
            which = "it is not possible to say whether the inputs, the labels or the concept changed"
            found.append(f"The rows with their labels have changed: {which}.")
        if given:
            found.append(
                "Rows with the same label look different, so the change is not limited to the class proportions."
                " Changed inputs alone can do this, so this does not show that the concept has changed."
            )
        elif "labels" in parts and self.given_label is not None:
            found.append("There is no evidence that rows with the same label look different.")
        return " ".join(found) or "There is no evidence of a change."

    @property
    def harm(self) -> str:
        """Whether a loss is shown to exceed its limit, by the risk passed to ``explain``: see ``Risk.explain``."""
        if self.risk is None:
            return "Drift is not harm: use ex.Risk to test whether the model has become worse."
        return str(self.risk.explain())

    def dump(self) -> list[tuple[Any, ...]]:
        """Return the findings as plain data; the last is that given the label, which may be missing."""
        given = () if self.given_label is None else tuple(self.given_label)
        return [*map(tuple, self), given]

    def __str__(self) -> str:
        keep = "" if self.keep_from is None else f"Rows to keep for retraining: from about row {self.keep_from:,} on."
        named = [one for one in self if one.rejected] or self[:LISTED]
        stopped = [one.name for one in self if one.stopped]
        full = f"Stopped, since they hold max_rows rows: {list_names(stopped)}." if stopped else ""
        lines = [*map(str, named), full, self.moved, keep, self.harm]
        return "\n".join(line for line in lines if line)


def load_explanation(stored: Any, names: set[str]) -> Explanation:
    """Check an explanation from a snapshot; ``names`` are those of the lines."""
    *found, given = [Finding(*one) if one else None for one in stored]
    explanation = Explanation([one for one in found if one is not None], given)
    everything = [*explanation, *(() if given is None else (given,))]
    valid = all(type(one.description) is str and type(one.rejected) is type(one.stopped) is bool for one in everything)
    if {one.name for one in explanation} != names or not valid or len(found) != len(explanation):
        raise ValueError("the explanation of the latest alarm must be about the lines of the monitor, got another")
    return explanation


def find(plan: Plan, line: Line, constants: Constants, recent: Rows) -> Finding:
    """Describe a line; ``recent`` are the latest rows, for lines that need labels those with labels."""
    text, rows = _describe(plan, constants, recent) if len(recent.at) else ("", ())
    evidence, rejected = line.log_evidence / LN10, line.alarm_at is not None
    return Finding(line.name, line.kind, evidence, rejected, line.alarm_at, line.changepoint, text, rows, line.stopped)


def line_values(plan: Plan, constants: Constants, rows: Rows) -> Floats:
    """Return a number for each row that shows what the line is about."""
    if plan.kind == "rows":
        return constants.distances(rows.features)
    if plan.kind == "labelled rows":
        return constants.residuals(rows.features, rows.y)
    return np.asarray(plan.values(rows))


def summarise(values: Floats) -> tuple[float, ...]:
    """Return the quantiles of numbers."""
    return tuple(float(q) for q in np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95), method="inverted_cdf"))


def _describe(plan: Plan, constants: Constants, recent: Rows) -> tuple[str, tuple[int, ...]]:
    values = line_values(plan, constants, recent)
    column = constants.columns[plan.column] if plan.column is not None else None
    column = constants.label if plan.kind == "label" else column
    if column is not None:
        return describe_change(column, values), _strangest(_column_strangeness(column, values), recent)
    reference = dict(constants.summaries).get(plan.name)
    text = WHAT.get(plan.kind, "") + _describe_numbers(values, reference)
    return text, _strangest(_strangeness(values, reference), recent)


def describe_change(column: ColumnConstants, recent: Floats) -> str:
    """Compare the latest values of a column with the reference, if there was one.

    >>> describe_change(ColumnConstants("size", None, summary=(1.0, 2.0, 3.0, 4.0, 5.0)), np.array([8.0, 9.0, 10.0]))
    'median 9 (reference 3)'
    """
    known = sum(column.summary) + column.missing > 0.0 if column.categories else column.summary[0] == column.summary[0]
    missing = float((recent == column.missing_score).mean())
    before = f" (reference {column.missing:.0%})" if known else ""
    gone = f"; missing {missing:.0%}{before}" if abs(missing - column.missing) > 0.01 else ""
    if column.categories is None:
        present = recent[recent != column.missing_score]
        if not len(present):
            return f"all values are missing{before}"
        return _describe_numbers(present, column.summary if known else None) + gone
    shares = np.bincount(recent.astype(np.intp), minlength=len(column.categories) + 2) / len(recent)
    expected = np.append(column.summary, [0.0, column.missing])
    most = int(np.abs(shares - expected).argmax())
    reference = f" (reference {expected[most]:.0%})" if known else ""
    return f"{column.describe(most)}: {shares[most]:.0%}{reference}"


def _describe_numbers(values: Floats, reference: tuple[float, ...] | None) -> str:
    """Compare medians, or other quantiles if these differ much more."""
    now = (*summarise(values)[:MEDIAN], float(np.median(values)), *summarise(values)[MEDIAN + 1 :])
    if reference is None:
        return f"median {now[MEDIAN]:.4g}"
    moves = [abs(a / 2.0 - b / 2.0) for a, b in zip(now, reference, strict=True)]
    most = moves.index(max(moves))
    k = most if moves[most] > 4.0 * moves[MEDIAN] else MEDIAN
    return f"{NAMES[k]} {now[k]:.4g} (reference {reference[k]:.4g})"


def _column_strangeness(column: ColumnConstants, values: Floats) -> Floats:
    """Return how strange each value is; 0 if it is not."""
    if column.categories is None:
        known = column.summary[0] == column.summary[0]
        strange = _strangeness(values, column.summary if known else None)
        return np.where(values == LOWEST, 0.0, strange)
    shares = np.append(column.summary, [0.0, 1.0])[values.astype(np.intp)]
    return np.maximum(RARE - shares, 0.0) if sum(column.summary) > 0.0 else np.zeros(len(values))


def _strangeness(values: Floats, reference: tuple[float, ...] | None) -> Floats:
    """Return how far each number is outside the range of 90 % of the reference."""
    if reference is None:
        return np.zeros(len(values))
    return np.maximum(np.maximum(reference[0] - values, values - reference[-1]), 0.0)


def _strangest(strangeness: Floats, recent: Rows) -> tuple[int, ...]:
    order = np.argsort(-strangeness, kind="stable")[:STRANGEST]
    return tuple(int(recent.at[i]) for i in order if strangeness[i] > 0.0)
