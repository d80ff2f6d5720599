"""Alerts to the operator's webhooks.

The engine writes alerts to an outbox in the same transaction that records an alarm or its end, so none is lost. The
``Sender`` delivers each at least once, in order, in the format of Alertmanager's webhooks, version 4.
"""

from exchangeable.service.alerts.message import Details, Status, fingerprint, payload
from exchangeable.service.alerts.outbox import (
    count_alerts,
    due_alerts,
    enqueue,
    list_alerts,
    mark_failed,
    mark_sent,
    retry,
)
from exchangeable.service.alerts.sender import Sender, Transact
from exchangeable.service.alerts.trial import Outcome, test_alert
from exchangeable.service.alerts.webhook import Webhook

__all__ = [
    "Details",
    "Outcome",
    "Sender",
    "Status",
    "Transact",
    "Webhook",
    "count_alerts",
    "due_alerts",
    "enqueue",
    "fingerprint",
    "list_alerts",
    "mark_failed",
    "mark_sent",
    "payload",
    "retry",
    "test_alert",
]
