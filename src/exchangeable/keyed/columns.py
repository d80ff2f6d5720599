"""The state of some streams as columns, with a row for each stream."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged
from exchangeable.protocols import Floats, Integers


class Columns(NamedTuple):
    """The state of some streams: copies of rows of a `Store`."""

    names: Any  # the keys, an Arrow column
    integers: Integers  # in the layout of native/keyed.c
    reals: Floats
    bet: Floats
    alarm: Floats
    spans: Ragged  # ranges of missing sequence numbers: the first and the last of each
    pool: Bins | Scores | None
    checked: NDArray[np.bool_]  # whether the states of bet and alarm have been validated since they were loaded

    @classmethod
    def empty(cls, bet: Floats, alarm: Floats, pool: Bins | Scores | None) -> Columns:
        """Return columns without streams; ``bet``, ``alarm`` and ``pool`` are fresh states."""
        integers, reals = np.empty((0, native.KEYED_INTEGERS), np.int64), np.empty((0, native.KEYED_REALS))
        states = np.empty((0, len(bet))), np.empty((0, len(alarm)))
        spans = Ragged.of(np.empty(0, np.int64), np.empty(0, np.int64))
        return cls(None, integers, reals, *states, spans, pool, np.empty(0, np.bool_))
