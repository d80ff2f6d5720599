"""The result of a test of a table."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from exchangeable.analysis.change import CONFIDENCE, Change, locate, run_backwards
from exchangeable.analysis.columns import (
    FULL_ROWS,
    ColumnTest,
    Progress,
    SharedTests,
    TestedColumn,
    combine,
    is_weighted,
    log_evidence,
    ranked,
    rejecting,
)
from exchangeable.analysis.departure import Departure, classify
from exchangeable.analysis.formats import dump_json
from exchangeable.analysis.frame import to_frame
from exchangeable.analysis.notes import data_notes, note_copies, note_thinning
from exchangeable.analysis.record import path_columns, result_record
from exchangeable.analysis.sample import Sample, Split
from exchangeable.analysis.series import Subject, subject_of
from exchangeable.analysis.settings import Parts, Settings
from exchangeable.analysis.text import (
    Finding,
    describe_differences,
    describe_table,
    describe_verdict,
)
from exchangeable.analysis.timeline import Timeline
from exchangeable.analysis.verdict import COMPARE_GUARANTEE, SORTED_CLAUSE, TEST_GUARANTEE, Verdict, summarise
from exchangeable.data.table import constant
from exchangeable.martingale import LN10, amount
from exchangeable.measures import Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Path
from exchangeable.validation import check_interval, format_value

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from exchangeable.analysis.explain import Explanation
    from exchangeable.data.schema import Preparation
    from exchangeable.data.table import Table


class Result:
    """The result of `exchangeable.test` or `exchangeable.compare`.

    ``print(result)`` describes it in sentences; a notebook shows it as a card. The capital is stored as a logarithm
    (``log10_martingale``). Amounts are floats where float64 can hold them, and `decimal.Decimal` beyond.

    >>> import numpy as np, exchangeable as ex
    >>> X = np.random.default_rng(0).normal(size=300)
    >>> X[150:] += 1.0
    >>> result = ex.test(X)
    >>> result.rejected, result.rejected_at, result.changepoint
    (True, 212, 160)
    """

    def __init__(
        self,
        table: Table,
        sample: Sample,
        path: Path,
        monitor: Monitor,
        parts: Parts,
        *,
        shared: SharedTests | None = None,
        scale: str = "none",
        start: int = 0,
        split: Split | None = None,
        differences: Sequence[str] = (),
        same_columns: bool = True,
        how: Preparation | None = None,
        settings: Settings | None = None,
        library: str = "polars",
        index: Any = None,
    ) -> None:
        self.table = table
        self.sample = sample  # the input of the measure
        self.parts = parts
        shared = SharedTests() if shared is None else shared
        self.column_tests: list[ColumnTest] = list(shared.columns)
        self.view_tests: list[ColumnTest] = list(shared.views)
        self.view_columns: list[TestedColumn] = list(shared.view_columns)
        rows = ColumnTest(self._rows_name(), "rows", shared.rows_weight, path.log_value)
        self.tests: list[ColumnTest] = [rows, *self.column_tests, *self.view_tests]  # of the verdict
        self.path: Path = combine(path, self.tests, monitor.alarm) if is_weighted(self.tests) else path
        self.monitor = monitor
        self.start = start  # rows before the first bet
        self.split = split
        self.schema_differences: list[str] = list(differences)
        self.same_columns = same_columns  # of two sets: no column is missing from one, or of another kind
        self.how: Preparation | None = how  # the arguments, to reproduce the result
        self.settings: Settings | None = settings
        self.verdict: Verdict = summarise(self.path, monitor, len(table.features), table.name, scale)
        if self.alpha is not None and self.verdict.on_alarm == "latch":
            self.verdict = self.verdict._replace(guarantee=self._state_guarantee(self.alpha))
        if split is not None:
            self.verdict = self.verdict._replace(n=table.n, changepoint=None, changepoints=[])
        elif self.subject is not None and self.departure is not None:
            changes = self.departure.changes
            self.verdict = self.verdict._replace(
                changepoint=changes[0] if changes else self.subject.change, changepoints=changes
            )
        self._library, self._index = library, index
        self._explanations: dict[Any, Explanation] = {}
        self._backward: Floats | None = None

    def _rows_name(self) -> str:
        """Return the name of the test of full rows: that of the column, if it ranks a single one."""
        varying = [column.name for column in self.table.columns if not constant(column.values)]
        single = isinstance(self.parts.measure, Value) and len(varying) == 1 and not self.column_tests
        return varying[0] if single else FULL_ROWS

    def _state_guarantee(self, alpha: float) -> str:
        if self.split is not None:
            return COMPARE_GUARANTEE.format(alpha)
        checked = len(self.table.columns) + self.table.sorted_aside > 1  # a single column is never set aside
        return TEST_GUARANTEE.format(alpha, SORTED_CLAUSE if checked else "")

    # ------------------------------------------------------------------ the verdict

    @property
    def rejected(self) -> bool:
        """Whether the alarm was raised, which rejects exchangeability at level ``alpha``."""
        return self.verdict.rejected

    @property
    def rejected_at(self) -> int | None:
        """The row, counted from 1 in the order of the test, at which the alarm was first raised."""
        return self.verdict.rejected_at

    @property
    def changepoint(self) -> int | None:
        """An estimate of how many rows came before the change, without a guarantee; ``change`` has an interval.

        It is where a single change describes the column or view with the most evidence best, or the first of several
        changes; ``departure`` tells whether there is one. With restarts it is where the capital was lowest before the
        first alarm.
        """
        return self.verdict.changepoint

    @property
    def rejected_at_time(self) -> str | None:
        """The time of the row at which the alarm was first raised, as ISO 8601; None if it is unknown."""
        return self.timeline.iso(self.rejected_at)

    @property
    def changepoint_time(self) -> str | None:
        """The time of the last row before the estimated change, as ISO 8601; None if it is unknown."""
        return self.timeline.iso(self.changepoint)

    @cached_property
    def timeline(self) -> Timeline:
        """When the rows occurred, and where they stand in the data."""
        return Timeline() if self.split is not None else Timeline.of(self.table)

    @property
    def change(self) -> Change | None:
        """When the change occurred: the estimate ``changepoint``, and an interval with 95 % confidence.

        None if nothing was rejected, with restarts, or if two sets were compared. To compute it, the test with the
        most evidence is run once more, backwards.
        """
        return self.locate_change()

    def locate_change(self, confidence: float = CONFIDENCE, progress: Progress | None = None) -> Change | None:
        """Return ``change`` with another confidence, or with progress on the test that runs backwards."""
        confidence = check_interval("confidence", confidence, 0.0, math.nextafter(1.0, 0.0), "(0, 1)")
        if self.subject is None:
            return None
        if self._backward is None:
            self._backward = run_backwards(self, progress)
        return locate(self, self._backward, confidence)

    @cached_property
    def departure(self) -> Departure | None:
        """What kind of departure it is, without a guarantee; None if ``change`` is."""
        return None if self.subject is None else classify(self, self.subject)

    @cached_property
    def finding(self) -> Finding | None:
        """What describes the departure: its kind, the change, and how large it is; None without a rejection."""
        from exchangeable.analysis.explain import flagged_features

        if not self.rejected or self.verdict.on_alarm != "latch":
            return None
        return Finding(self.departure, self.change, flagged_features(self))

    @cached_property
    def subject(self) -> Subject | None:
        """The series that the change point and the kind of departure are read from."""
        unknown = self.split is not None or not self.rejected or self.verdict.on_alarm != "latch"
        return None if unknown else subject_of(self)

    @property
    def log10_martingale(self) -> float:
        """The log10 of the capital on full rows after the last row."""
        return self.verdict.log10_martingale

    @property
    def log10_max(self) -> float:
        """The log10 of the highest capital on full rows, at least 0."""
        return self.verdict.log10_max

    @property
    def e_value(self) -> float | Decimal:
        """The capital on full rows after the last row; on exchangeable data its mean is 1.

        It is not defined for tests with restarts, since the latest start depends on the data.
        """
        self._check_single("e_value")
        return amount(float(self.path.log_value[-1]))

    @property
    def log10_evidence(self) -> float:
        """The log10 of the highest evidence, at least 0: the weighted maximum of all martingales."""
        return max(0.0, float(self.log_evidence.max()) / LN10)

    @cached_property
    def log_evidence(self) -> Floats:
        """The log evidence after each row: the weighted maximum of all martingales."""
        return log_evidence(self.tests)

    @property
    def p_value(self) -> float | Decimal:
        """The p-value of the test: one over the highest evidence.

        On exchangeable data the probability of a p-value of at most a is at most a, for one table tested once. If
        columns were tested one by one, the evidence is the weighted maximum of all martingales. It is not defined for
        tests with restarts, since each start is another chance. For a p-value that may be read repeatedly, see
        `Monitor.anytime_p`.
        """
        self._check_single("p_value")
        return amount(-max(0.0, float(self.log_evidence.max())))

    def _check_single(self, name: str) -> None:
        if self.verdict.on_alarm == "restart":
            raise ValueError(f"{name} is not defined for a test with restarts: each start is another chance")

    @property
    def rejected_by(self) -> list[str]:
        """The tests that reject on their own, the most evidence first: "full rows", names of columns, and of views.

        A view is listed if it has more evidence than full rows and all columns; otherwise it shows their change once
        more.
        """
        if self.alpha is None:
            return [self.tests[0].name] * self.rejected
        return [test.name for test in rejecting(self.tests, -math.log(self.alpha))]

    @property
    def strongest(self) -> ColumnTest:
        """The test with the most evidence: of full rows, of a column or of a view."""
        return ranked(self.tests)[0]

    # ------------------------------------------------------------------ the data and the method

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.table.n

    @property
    def n_features(self) -> int:
        """The number of features of a row, after one-hot encoding."""
        return self.verdict.n_features

    @property
    def features(self) -> list[str]:
        """The names of the columns that were tested, without the label."""
        return [column.name for column in self.table.columns]

    @property
    def schema(self) -> Mapping[str, str]:
        """What was done with each column of the data, by its name."""
        return self.table.treatments

    @property
    def measure(self) -> str:
        """The name of the measure."""
        return self.verdict.measure

    @property
    def bet(self) -> str:
        """The name of the bet."""
        return self.verdict.bet

    @property
    def alpha(self) -> float | None:
        """The significance level; None if the alarm has none."""
        return self.verdict.alpha

    @property
    def seed(self) -> int:
        """The seed of the random choices, such as tie-breaking."""
        return self.verdict.seed

    @property
    def scale(self) -> str:
        """The scaling of the features: "none" or "deviation"."""
        return self.verdict.scale

    @property
    def sets(self) -> tuple[str, str] | None:
        """The names of the two sets that were compared; None for a test of one table."""
        return None if self.split is None else (self.split.first, self.split.second)

    @property
    def guarantee(self) -> str:
        """A sentence that states the guarantee of the test."""
        return self.verdict.guarantee

    @cached_property
    def notes(self) -> list[str]:
        """Notes on how the data was read, and on data that is valid but often a mistake."""
        tested = bool(self.column_tests)
        thinned = note_thinning(self.sample, self.n, tested, self.settings)
        asked = "none" if self.settings is None else self.settings.scale
        copies = note_copies(self.table, self.split, self.start)
        return [*self.table.notes, *copies, *thinned, *data_notes(self.table, self.scale, tested, asked)]

    def fresh_parts(self) -> Parts:
        """Return copies of the measure and the bets as they were before the first row."""
        return copy.deepcopy(self.parts)

    # ------------------------------------------------------------------ output

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"Note: {note}." for note in self.notes)])

    @property
    def text(self) -> str:
        """The result in sentences, without the notes."""
        differences = [describe_differences(self.schema_differences)] * bool(self.schema_differences)
        verdict = describe_verdict(self.verdict, self.tests, self.sets, self.timeline, finding=self.finding)
        return "\n".join([describe_table(self.table), *differences, str(verdict)])

    def __repr__(self) -> str:
        outcome = "rejected" if self.rejected else "not rejected"
        return f"<Result: {outcome}, log10_evidence={self.log10_evidence:.4g}, n={self.n}, measure={self.measure}>"

    def frame(self, library: str | None = None) -> Any:
        """Return a frame with one row for each row of the table: p-value, log10 of the capital, and the alarm.

        For two sets it has the rows of the second set. Rows that nearest neighbours did not use have no p-value (NaN).
        "row" is the number of the row in the data, from 1, if rows were reordered or left out; "time" is its time. If
        columns were tested one by one, ``log10_evidence`` is the weighted maximum of all martingales. The frame is of
        the same library as the data, with the index of a pandas frame; for arrays it is a Polars frame. ``library``
        selects another one: "pandas", "polars" or "pyarrow". O(n).
        """
        native = to_frame(path_columns(self), library, self._library)
        if self._index is not None and self.split is None and (library or self._library) == "pandas":
            native.index = self._index if self.table.rows is None else self._index[self.table.rows - 1]
        return native

    def plot(self, ax: Axes | None = None, *, kind: str = "evidence", column: str | None = None) -> Axes:
        """Draw a figure of the result, on these Axes or on new ones.

        - "evidence": the evidence over time, with the alarm level and the estimated change point.
        - "data": a column over time, by default the one with the most evidence, with the change that was found: its
          place, interval, and the mean before and after. Shares if it holds categories; two sets side by side.
        - "p-values": those of the strongest test, before and after the change.

        The axis shows the times of the rows if they are known and ascending, and row numbers otherwise.
        """
        from exchangeable.analysis.figures import plot

        return plot(self, kind, column, ax)

    def explain(
        self,
        *,
        confidence: float = 0.95,
        features: Sequence[str] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Explanation:
        """Explain the result: when the change occurred, which columns changed, label or concept shift.

        ``confidence`` is that of the interval of the change point. ``features`` names the columns to test (default:
        all); choose them before looking at the data: the fewer, the less evidence each of them needs. ``progress`` is
        called with (task, done, total). The cost is one more test, backwards, and if columns were not tested, a test of
        each. Explanations are cached.
        """
        from exchangeable.analysis.explain import explain

        if features is not None and (isinstance(features, str) or not isinstance(features, Collection)):
            raise ValueError(f"features must be a list of columns that were tested, got {format_value(features)}")
        key = (repr(confidence), None if features is None else tuple(map(str, features)))
        if key not in self._explanations:
            self._explanations[key] = explain(self, confidence, features, progress)
        return self._explanations[key]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data; an amount that float64 cannot hold is None."""
        return result_record(self)

    def to_json(self) -> str:
        """Return the result as JSON; numbers that are not finite are null, such as the log of a capital of 0."""
        return dump_json(self.to_dict())

    def save_html(self, path: str | os.PathLike[str], *, title: str | None = None, author: str | None = None) -> None:
        """Write a report as one self-contained HTML file: the verdict, pictures of the data, what changed, the method.

        ``title`` and ``author`` are shown in its head, with the date.
        """
        from exchangeable.analysis.report import save

        save(self, path, title=title, author=author)

    def _repr_html_(self) -> str:
        from exchangeable.analysis.report import result_card

        return result_card(self)
