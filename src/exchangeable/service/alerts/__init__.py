"""Alerts to the operator's webhooks, and through apprise to e-mail, Slack and Teams.

The engine writes alerts to an outbox in the same transaction that records an alarm or its end, so none is lost. The
``Sender`` delivers each at least once, in order: to webhooks in the format of Alertmanager's, version 4, and to others
as a title and a text.
"""

from exchangeable.service.alerts.apprise_target import AppriseTarget, Receiver
from exchangeable.service.alerts.message import Details, RiskDetails, Status, TableDetails, fingerprint, payload
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
    "AppriseTarget",
    "Details",
    "Outcome",
    "Receiver",
    "RiskDetails",
    "Sender",
    "Status",
    "TableDetails",
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
