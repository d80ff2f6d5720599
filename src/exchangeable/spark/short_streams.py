"""Many short streams tested in one call: faster than one monitor after the other, with the same numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exchangeable.fleet import stream_seeds
from exchangeable.keyed import Statuses
from exchangeable.keyed.report import Steps
from exchangeable.keyed.whole import WholeStreams
from exchangeable.measures import Value
from exchangeable.monitor import Monitor
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

    def __init__(self, streams: WholeStreams, measure: Any, seed: int) -> None:
        self.streams = streams
        self.measure = measure
        self.seed = seed

    @classmethod
    def create(cls, monitor: Monitor, seed: int) -> ShortStreams | None:
        """Build from a monitor; return None if its streams have to be tested one after the other."""
        streams = WholeStreams.create(monitor)
        return None if streams is None else cls(streams, monitor.measure, seed)

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
        seeds = stream_seeds(self.seed, keys)
        steps, statuses = self.streams.test(seeds, lengths, scores)
        return steps, _statuses(statuses)


def _statuses(last: Statuses) -> list[StreamStatus]:
    """Return the status of each stream after its last step."""
    columns = last.n, last.log_value, last.log_max, last.alarm_at, last.changepoint, last.test
    return [
        StreamStatus(n, value, highest, at if at >= 0 else None, change if at >= 0 else None, number)
        for n, value, highest, at, change, number in zip(*(column.tolist() for column in columns), strict=True)
    ]
