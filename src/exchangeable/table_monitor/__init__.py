"""Monitor of rows that arrive one by one: do they still look like the reference, and which columns have changed?"""

from exchangeable.table_monitor.findings import Explanation, Finding
from exchangeable.table_monitor.monitor import TableMonitor, TablePath, TableStep

__all__ = ["Explanation", "Finding", "TableMonitor", "TablePath", "TableStep"]
