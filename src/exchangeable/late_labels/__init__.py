"""Late labels: examples wait for their labels, and are tested in the order in which they were observed."""

from exchangeable.late_labels.queue import LateLabels
from exchangeable.late_labels.rule import CLASSES, OTHER, LeftOut, check_near, decide, delay, seconds

__all__ = ["CLASSES", "OTHER", "LateLabels", "LeftOut", "check_near", "decide", "delay", "seconds"]
