"""What a test of a whole table found."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from exchangeable import plots
from exchangeable._extras import needed
from exchangeable.analysis.columns import WHOLE, Line, joint
from exchangeable.analysis.notes import described, notes, title
from exchangeable.analysis.verdict import Verdict, judge, printable, words, written
from exchangeable.martingale import LN10, amount
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Floats, Measure, Path
from exchangeable.pvalues import Precomputed
from exchangeable.validation import format_value

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from exchangeable.analysis.explain import Explanation
    from exchangeable.data.files import Table

DRAWN = 4  # columns in a figure, at most
SPLIT = "If the two sets are a random split of one, the chance of a rejection is at most {:g}."
ORDER = "On exchangeable data the chance that one test of this table rejects is at most {:g}."


class Parts(NamedTuple):
    """Measure and bet as they were before the first example."""

    measure: Measure
    bet: Bet

    @classmethod
    def of(cls, monitor: Monitor) -> Parts:
        """Copies of those of a monitor that has seen nothing yet."""
        measure, bet = copy.deepcopy((monitor.measure, monitor.martingale.bet))
        if isinstance(measure, Precomputed):
            raise ValueError("a result is made of examples, got p-values that were brought along")
        return cls(measure, bet)


class Split(NamedTuple):
    """Two sets that were put behind one another: which rows came in which order."""

    first: str  # the name of the set that fills the pool
    second: str  # the name of the set that is bet on
    rows: Any  # of the second set, in the order of the bets


class Result:
    """The verdict on a table, and the way to it.

    Made by `exchangeable.test` and `exchangeable.compare`. ``print(result)`` says it in words; a notebook shows it
    as a card. The capital lives in logs (``log10_martingale``); amounts are given as numbers where float64 can hold
    them, and as `decimal.Decimal` beyond.

    >>> import exchangeable as ex
    >>> X = np.random.default_rng(0).normal(size=300)
    >>> X[150:] += 1.0
    >>> result = ex.test(X)
    >>> result.rejected, result.rejected_at, result.changepoint
    (True, 220, 149)
    """

    def __init__(
        self,
        table: Table,
        X: Floats,
        given: Floats,
        path: Path,
        monitor: Monitor,
        parts: Parts,
        *,
        columns: Sequence[Line] = (),
        scale: str = "none",
        start: int = 0,
        split: Split | None = None,
        library: str = "pyarrow",
        index: Any = None,
    ) -> None:
        self.table = table
        self.X = X  # scaled, if so
        self.given = given  # what the measure was given: X, one column of numbers, or scores
        self.columns: list[Line] = list(columns)  # that have a say in the verdict
        whole = Line(WHOLE, "examples", 1.0 - sum(line.weight for line in columns), path.p, path.log_value)
        self.lines: list[Line] = [whole, *columns]
        self.path: Path = _together(path, self.lines, monitor) if columns else path
        self.monitor = monitor
        self.parts = parts
        self.start = start  # examples at the beginning that nothing was bet on
        self.split = split
        self.verdict: Verdict = judge(self.path, monitor, X.shape[1], table.name, scale)
        if self.alpha is not None and self.verdict.on_alarm == "latch":
            promise = (ORDER if split is None else SPLIT).format(self.alpha)
            self.verdict = self.verdict._replace(guarantee=promise)
        if split is not None:
            self.verdict = self.verdict._replace(n=len(X), changepoint=None, changepoints=[])
        self._library, self._index = library, index
        self._explained: dict[Any, Explanation] = {}

    # ------------------------------------------------------------------ figures

    @property
    def rejected(self) -> bool:
        """Whether the alarm sounded: exchangeability is rejected at level ``alpha``."""
        return self.verdict.rejected

    @property
    def rejected_at(self) -> int | None:
        """The example (from 1) at which the alarm sounded first."""
        return self.verdict.rejected_at

    @property
    def changepoint(self) -> int | None:
        """How many examples came before the change: a quick estimate; that of ``explain().change`` has an interval.

        Where the capital of whole examples stood lowest before the alarm, as in `Monitor`; where columns have a say,
        where the rise of the martingale that sounded it began.
        """
        return self.verdict.changepoint

    @property
    def log10_martingale(self) -> float:
        """Log of the capital after the last example: of the martingale of whole examples."""
        return self.verdict.log10_martingale

    @property
    def log10_max(self) -> float:
        """Log of its highest capital so far, at least 0."""
        return self.verdict.log10_max

    @property
    def e_value(self) -> float | Decimal:
        """The capital of that martingale after the last example: on exchangeable data it is 1 on average.

        It is not defined with restarts: the latest start is not chosen independently of the data.
        """
        self._check_single("e_value")
        return amount(float(self.path.log_value[-1]))

    @property
    def log10_evidence(self) -> float:
        """Log of the highest evidence that the alarm has read, at least 0: of all martingales that have a say."""
        return max(0.0, float(joint(self.lines).max()) / LN10)

    @property
    def p_value(self) -> float | Decimal:
        """One over the highest evidence: the p-value of the verdict on this table.

        On exchangeable data the chance that it is at most a is at most a, for one table tested once. Where columns
        are tested, the evidence is the weighted maximum of all martingales. It is not defined with restarts, since
        each start is another chance. For a p-value that may be looked at repeatedly, see `Monitor.anytime_p`.
        """
        self._check_single("p_value")
        return amount(-max(0.0, float(joint(self.lines).max())))

    def _check_single(self, name: str) -> None:
        if self.verdict.on_alarm == "restart":
            raise ValueError(f"{name} is not defined for a test with restarts: each start is another chance")

    @property
    def rejected_by(self) -> list[str]:
        """What alone brings enough evidence to reject, the most first: "whole examples", or columns by their names."""
        if self.alpha is None:
            return [WHOLE] * self.rejected
        level = -math.log(self.alpha)
        found = [line for line in self.lines if line.reached(level) is not None]
        ranked = sorted(found, key=lambda line: -float(line.log_value.max()) - math.log(line.weight))
        return [line.name for line in ranked]

    @property
    def n(self) -> int:
        """How many examples there are."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """How many numbers an example has, categories written out."""
        return int(self.X.shape[1])

    @property
    def features(self) -> list[str]:
        """The columns of the data that were looked at."""
        return [group.name for group in self.table.groups]

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
        """The level of the alarm, where it has one."""
        return self.verdict.alpha

    @property
    def seed(self) -> int:
        """The seed of the tie-breaking."""
        return self.verdict.seed

    @property
    def scale(self) -> str:
        """What was done to the features: "none" or "deviation"."""
        return self.verdict.scale

    @property
    def guarantee(self) -> str:
        """What is promised, in words."""
        return self.verdict.guarantee

    @cached_property
    def notes(self) -> list[str]:
        """What is lawful about the data and yet seldom meant."""
        return list(notes(self.table, self.scale, looked_at=bool(self.columns)))

    # ------------------------------------------------------------------ in other forms

    def __str__(self) -> str:
        noted = [f"Note: {sentence}." for sentence in self.notes]
        return "\n".join([described(self.table), words(self.verdict, self.lines, self.sets), *noted])

    def __repr__(self) -> str:
        said = "rejected" if self.rejected else "not rejected"
        return f"<Result: {said}, log10_evidence={self.log10_evidence:.4g}, n={self.n}, measure={self.measure}>"

    def frame(self, library: str | None = None) -> Any:
        """One row an example bet on: p-value, log10 of the capital, and whether the alarm is on.

        Where columns have a say, ``log10_evidence`` is what the alarm reads: the weighted maximum of all martingales.
        In the library of the data, with the index of a pandas frame; of arrays an Arrow table. ``library`` may name
        another: "pandas", "polars" or "pyarrow". O(n).
        """
        import narwhals as nw

        chosen: Any = library or self._library
        law = "library must be 'pandas', 'polars' or 'pyarrow', and installed"
        if library not in (None, "pandas", "polars", "pyarrow"):
            raise ValueError(f"{law}, got {library!r}")
        if chosen == "pyarrow":
            with needed("files", "frames of Arrow (or name another library)"):
                import_module("pyarrow")
        columns: dict[str, Any] = {
            "n": self.path.n,
            "p": self.path.p,
            "log10_martingale": self.path.log_value / LN10,
            "alarm": self.path.alarm,
        }
        if self.columns:
            columns["log10_evidence"] = joint(self.lines) / LN10
        if self.split is not None:
            columns = {"row": np.asarray(self.split.rows), **columns}
        try:
            native = nw.from_dict(columns, backend=chosen).to_native()
        except (ModuleNotFoundError, ValueError, TypeError) as error:
            raise ValueError(f"{law}, got {chosen!r}") from error
        if chosen == "pandas" and self._index is not None and self.split is None:
            native.index = self._index
        return native

    def plot(self, ax: Axes | None = None) -> Axes:
        """The growth of the evidence, with the level of the alarm and where a change seems to begin."""
        level = () if self.verdict.threshold is None else (self.verdict.threshold,)
        lines = self.drawn()
        weights = {name: math.log(line.weight) for name, line in lines.items()}
        return plots.growth(
            {name: line.log_value + weights[name] for name, line in lines.items()},
            thresholds=level,
            changepoints=self.verdict.changepoints,
            title=title(self.table.name),
            start=self.start,
            initial=weights,
            ax=ax,
        )

    def explain(
        self,
        *,
        confidence: float = 0.95,
        features: Sequence[str] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Explanation:
        """What changed, and when: the change point with an interval, each feature by itself, labels, odd examples.

        ``confidence`` is that of the interval; ``features`` names the columns to look at (all), chosen before looking:
        the fewer, the less evidence each must bring. ``progress`` is told what is done of how much. A test for each
        feature and one more of the whole table, backwards; what was asked before is kept.
        """
        from exchangeable.analysis.explain import explain

        if features is not None and (isinstance(features, str) or not isinstance(features, Collection)):
            raise ValueError(f"features must be a list of columns that were tested, got {format_value(features)}")
        key = (repr(confidence), None if features is None else tuple(map(str, features)))
        if key not in self._explained:
            self._explained[key] = explain(self, confidence, features, progress or _silent)
        return self._explained[key]

    def record(self) -> dict[str, Any]:
        """All that is in ``to_json``, as plain data."""
        restarts = self.verdict.on_alarm == "restart"
        amounts = {name: None if restarts else getattr(self, name) for name in ("e_value", "p_value")}
        return {
            **self.verdict._asdict(),
            **{name: value if isinstance(value, float) else None for name, value in amounts.items()},
            "features": self.features,
            "label": self.table.label,
            "columns_tested": len(self.columns),
            "log10_evidence": self.log10_evidence,
            "rejected_by": self.rejected_by,
            "notes": self.notes,
        }

    def to_json(self) -> str:
        """The verdict as JSON; an amount that float64 cannot hold is null, and so is the log of no capital at all."""
        return written(self.record())

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report, one file that needs no other: verdict, figures, what changed, method, how to cite."""
        from exchangeable.analysis.report import save

        save(self, path)

    def _repr_html_(self) -> str:
        from exchangeable.analysis.report import card

        return card(self)

    @property
    def loudest(self) -> Line:
        """The martingale that brought the most evidence: of whole examples, or of a column."""
        return max(self.lines, key=lambda line: float(line.log_value.max()) + math.log(line.weight))

    @property
    def sets(self) -> tuple[str, str] | None:
        """The names of the two sets that were compared, if so."""
        return None if self.split is None else (self.split.first, self.split.second)

    def drawn(self) -> dict[str, Line]:
        """The lines of a picture: whole examples and, where columns have a say, the strongest and those that reject."""
        if not self.columns:
            return {self.bet: self.lines[0]}
        ranked = sorted(self.columns, key=lambda line: -float(line.log_value.max()))
        rejecting = set(self.rejected_by)
        chosen = [line for line in ranked if line.name in rejecting] or ranked[:1]
        return {WHOLE: self.lines[0], **{f"column {printable(line.name)}": line for line in chosen[:DRAWN]}}

    def fresh(self) -> Parts:
        """Measure and bet as before the first example."""
        return copy.deepcopy(self.parts)


def _together(path: Path, lines: Sequence[Line], monitor: Monitor) -> Path:
    """The path with the alarm of all lines, and where the rise of the one that sounded it began."""
    alarm = monitor.alarm.extend(joint(lines))  # type: ignore[attr-defined]
    if not alarm.any():
        return path._replace(alarm=alarm)
    at = int(alarm.argmax()) + 1
    loudest = max(lines, key=lambda line: float(line.log_value[at - 1]) + math.log(line.weight))
    lowest = path.lowest.copy()
    alarm[at - 1 :] = True
    lowest[at - 1 :] = path.n[0] - 1 + loudest.rise(at)
    return path._replace(alarm=alarm, lowest=lowest)


def _silent(what: str, done: int, total: int) -> None:
    """Nobody watches the progress."""
