"""Evidence beside the alarm of a table: do rows with the same label look as before?"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from exchangeable.fleet import stream_seed
from exchangeable.martingale import LN10
from exchangeable.measures import Conditional, Frozen, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Measure
from exchangeable.table_monitor.constants import Constants
from exchangeable.table_monitor.findings import Finding
from exchangeable.table_monitor.lines import Level, Plan, Rows, run_share
from exchangeable.validation import check_integer, format_value


class GivenLabel:
    """A test of the inputs given the label, which a change of the shares of the classes does not affect.

    It ranks the residual of the label among rows with the same label; given the label, that is a linear function of the
    inputs. It has its own level, equal to that of the table, and runs like those of the lines with the label. The
    p-values of a run that starts after row ``start`` have higher positions than those of earlier runs and tests, so
    that no random number is used twice.
    """

    def __init__(self, constants: Constants, level: Level, seed: int, residual: Measure, start: int) -> None:
        assert constants.label is not None  # noqa: S101
        self.constants = constants
        self.name: str = f"inputs given {constants.label.name}"
        self.level = level
        self.fresh: Measure = residual
        self.seed: int = stream_seed(seed, self.name)
        self.alarm_at: int | None = None
        self.monitor: Monitor = self._start(0, start)

    def _start(self, run: int, start: int, pool: Rows | None = None) -> Monitor:
        measure = Conditional(copy.deepcopy(self.fresh))
        if pool is not None and len(pool.y):
            measure.extend(*self._examples(pool))
        return Monitor(measure, alarm=self.level.alarm(run_share(run)), seed=self.seed, start=start)

    def _examples(self, rows: Rows) -> tuple[Any, list[int]]:
        return self.constants.residuals(rows.features, rows.y), rows.y.astype(np.int64).tolist()

    def fill(self, pool: Rows) -> None:
        """Fill the pools with rows of the reference."""
        self.monitor = self._start(0, 0, pool)

    def start_run(self, run: int, start: int) -> None:
        """Begin a run after row ``start``, with empty pools; an alarm stays raised."""
        self.monitor = self._start(run, start)

    def extend(self, rows: Rows) -> None:
        """Consume rows with labels."""
        if not len(rows.y):
            return
        residuals, labels = self._examples(rows)
        if len(labels) == 1:  # without the cost of many small arrays
            raised = np.array([self.monitor.update(float(residuals[0]), labels[0]).alarm])
        else:
            raised = self.monitor.extend(residuals, labels).alarm
        if self.alarm_at is None and raised.any():
            self.alarm_at = int(rows.at[raised.argmax()])

    @property
    def finding(self) -> Finding:
        """What is known."""
        evidence = self.monitor.martingale.log_value / LN10
        return Finding(self.name, "given label", evidence, self.alarm_at is not None, self.alarm_at, None, "")

    def dump(self) -> tuple[Any, ...]:
        """Return the state."""
        return self.fresh, self.monitor, self.alarm_at

    def load(self, state: Any, run: int, n: int) -> None:
        """Take over a saved state, which must be like this one."""
        fresh, monitor, alarm_at = state
        if type(fresh) is not type(self.fresh) or fresh.n:  # type: ignore[attr-defined]
            raise ValueError(f"the measure given the label must be an empty one, got {format_value(fresh)}")
        self.fresh, like = fresh, repr(self._start(run, 0))
        if not isinstance(monitor, Monitor) or not isinstance(monitor.measure, Conditional):
            raise ValueError(f"the monitor given the label must be like {like:.200}, got {format_value(monitor)}")
        self.monitor = monitor
        self.alarm_at = None if alarm_at is None else check_integer("alarm_at", alarm_at, 1, n)


def given_label(constants: Constants, plans: list[Plan], level: Level, seed: int, start: int) -> GivenLabel | None:
    """Return the test of the rows after row ``start``, if the label has classes and there is a residual."""
    residual = next((plan.fresh for plan in plans if plan.kind == "residual"), None)
    classes = constants.label is not None and constants.label.categories is not None
    if not classes or not isinstance(residual, (Frozen, Value)):
        return None
    return GivenLabel(constants, level, seed, copy.deepcopy(residual), start)
