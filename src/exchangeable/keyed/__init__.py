"""Many monitors of one recipe, one for each key, as columns: one call takes the events of all keys at once.

For engines that bring events in batches and keep state as bytes, such as Apache Spark; nothing of them is in here.
"""

from exchangeable.keyed.engine import Monitors, Status, Statuses
from exchangeable.keyed.report import Rows
from exchangeable.keyed.sequence import BAD, CONFLICT, DUPLICATE, FULL, GAP, KINDS, LATE, STEP

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
    "Status",
    "Statuses",
]
