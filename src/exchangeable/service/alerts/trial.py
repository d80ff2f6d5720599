"""The test alert, with which an operator checks that alerts arrive."""

from __future__ import annotations

import sqlite3
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

from exchangeable.service.addresses import Resolve, resolve
from exchangeable.service.alerts.apprise_target import Receiver
from exchangeable.service.alerts.message import STATUSES, Details
from exchangeable.service.alerts.outbox import enqueue
from exchangeable.service.alerts.sender import Sender, Transact
from exchangeable.service.store import open_database

TEST_STREAM = "TEST"  # no real stream can have this name, so the test alert resolves no real alert
T = TypeVar("T")


class Outcome(NamedTuple):
    """Whether a receiver accepted the test alert."""

    receiver: str
    delivered: bool
    error: str


async def test_alert(
    webhooks: Sequence[Receiver],
    external_url: str = "",  # noqa: PT028 - this is not a pytest function
    *,
    resolve: Resolve = resolve,  # noqa: PT028
    context: ssl.SSLContext | None = None,  # noqa: PT028
) -> list[Outcome]:
    """Send a test alert to every receiver, firing and then resolved, as a real one is sent, but without retries."""
    details = Details("test", "This is a test: no data was analysed.", 1, 0, 0.0, reason="test")
    with closing(open_database(":memory:")) as connection:
        for status in STATUSES:
            enqueue(connection, webhooks, TEST_STREAM, status, details, time.time())
        transact = transact_on(connection)
        await Sender(
            webhooks, transact, external_url=external_url, attempts=1, resolve=resolve, context=context
        ).drain()
        errors = dict(connection.execute("SELECT receiver, max(error) FROM outbox GROUP BY receiver").fetchall())
    return [Outcome(webhook.name, not errors[webhook.name], errors[webhook.name]) for webhook in webhooks]


def transact_on(connection: sqlite3.Connection) -> Transact:
    """Return a function that runs transactions on a connection in autocommit mode, in the calling thread."""

    async def transact(work: Callable[[sqlite3.Connection], T], /) -> T:
        with connection:
            connection.execute("BEGIN")
            return work(connection)

    return transact
