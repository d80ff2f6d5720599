"""Many short streams tested in one call: faster than one monitor after the other, with the same numbers."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exchangeable.keyed import Monitors, Statuses
from exchangeable.keyed.report import Steps
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import BetWarning, Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.spark.arrow import Examples
from exchangeable.validation import check_p_array

SHORT = 512  # the maximum length of a stream for which this is faster


class StreamStatus(NamedTuple):
    """The status of a stream after its latest step."""

    n: int = 0
    log_value: float = 0.0
    log_max: float = 0.0
    alarm_at: int | None = None
    changepoint: int | None = None
    test: int = 1  # the test that the latest step belongs to


class ShortStreams:
    """Tests streams whose measure gives fixed scores, or whose numbers are p-values already."""

    def __init__(self, monitors: Monitors, measure: Any) -> None:
        self.monitors = monitors
        self.measure = measure

    @classmethod
    def create(cls, monitor: Monitor, seed: int) -> ShortStreams | None:
        """Build from a monitor; return None if its streams have to be tested one after the other."""
        measure = monitor.measure
        if type(measure) not in (Value, Frozen, Precomputed):  # a subclass may do something else
            return None
        fixed = Precomputed() if isinstance(measure, Precomputed) else Value()  # scores are ranked as numbers
        try:
            return cls(Monitors(fresh_copy(monitor, fixed, 0), seed=seed, most=2 * SHORT), measure)
        except ValueError:  # a custom bet or alarm
            return None

    def scores(self, examples: Examples, at: Integers, first: Integers, lengths: Integers) -> Floats | None:
        """Return the scores of the examples at ``at``: of each stream ``lengths`` examples, from ``first`` on.

        Returns None if an example is invalid: the monitor of each stream then reports which.
        """
        try:
            if isinstance(self.measure, Precomputed):
                return check_p_array(examples.numbers[at])
            if isinstance(self.measure, Value) or self.measure.score is None:
                return np.asarray(self.measure.scores(examples.numbers[at]))
            return np.concatenate([self._score(examples, *part) for part in zip(first, first + lengths, strict=True)])
        except ValueError:
            return None

    def _score(self, examples: Examples, first: int, stop: int) -> Floats:
        """Call the user's function on the examples of one stream."""
        if not examples.have_one_width(first, stop):
            raise ValueError("x must hold rows of one width")
        return np.asarray(self.measure.scores(*examples.arrays(first, stop)))

    def test(self, keys: list[Any], lengths: Integers, scores: Floats) -> tuple[Steps, list[StreamStatus]]:
        """Return the steps of streams of these lengths, and the status of each after its last step."""
        ends = np.cumsum(lengths)
        order = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        events = pa.DictionaryArray.from_arrays(np.repeat(np.arange(len(keys)), lengths), pa.array(keys))
        monitors = self.monitors.like()
        rows = monitors.extend(events, order, scores)
        steps = Steps(rows.n, rows.p, rows.log_value, rows.alarm, rows.changepoint, rows.test)
        return steps, _statuses(monitors.statuses(), steps.log_value[ends - 1], steps.test[ends - 1])


def fresh_copy(monitor: Monitor, measure: Any, seed: int) -> Monitor:
    """Return a monitor like this one with another measure and seed; the driver has already issued any `BetWarning`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetWarning)
        bet = copy.deepcopy(monitor.martingale.bet)
        return Monitor(measure, bet, monitor.alarm, seed=seed, on_alarm=monitor.on_alarm)


def _statuses(all_keys: Statuses, log_value: Floats, test: Integers) -> list[StreamStatus]:
    """Return the status of each stream, with the capital and the number of the test at its last step."""
    columns = all_keys.n, log_value, all_keys.log_max, all_keys.alarm_at, all_keys.changepoint, test
    return [
        StreamStatus(n, value, highest, at if at >= 0 else None, change if at >= 0 else None, number)
        for n, value, highest, at, change, number in zip(*(column.tolist() for column in columns), strict=True)
    ]
