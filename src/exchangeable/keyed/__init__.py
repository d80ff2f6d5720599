"""Many monitors of one recipe, one for each key, stored as columns: one call consumes the events of all keys.

For engines that deliver events in batches and store state as bytes, such as Apache Spark. It does not depend on them.
"""

from exchangeable.keyed.engine import Monitors
from exchangeable.keyed.report import Rows
from exchangeable.keyed.sequence import BAD, CONFLICT, DUPLICATE, FULL, GAP, KINDS, LATE, STEP
from exchangeable.keyed.standings import Standings, Status, Statuses

__all__ = [
    "BAD",
    "CONFLICT",
    "DUPLICATE",
    "FULL",
    "GAP",
    "KINDS",
    "LATE",
    "STEP",
    "Monitors",
    "Rows",
    "Standings",
    "Status",
    "Statuses",
]
