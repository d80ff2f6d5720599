"""The history of a stream: every step in rows of columns, and roll-ups, from which any range is read quickly.

Step n (counted from 1) has a p-value and a log10 capital. The table ``steps`` holds them with their observations, in
rows of consecutive steps (`rows`). The table ``rollups`` holds the lowest, highest and last log10 capital of blocks of
steps on several levels (`rollups`), and the table ``times`` when steps arrived (`times`). All are written in the
transaction that accepts the observations. Call readers within one transaction, so that they see a single committed
state.
"""

from exchangeable.service.history.points import MIN_POINTS, Points, read, thin
from exchangeable.service.history.reading import Observations, observations, read_column, replay
from exchangeable.service.history.rollups import BLOCK
from exchangeable.service.history.times import prune_times, record, times_at
from exchangeable.service.history.writing import Tail, append, prune

__all__ = [
    "BLOCK",
    "MIN_POINTS",
    "Observations",
    "Points",
    "Tail",
    "append",
    "observations",
    "prune",
    "prune_times",
    "read",
    "read_column",
    "record",
    "replay",
    "thin",
    "times_at",
]
