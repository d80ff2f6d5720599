"""The sender: delivers the alerts of the outbox, with retries."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sqlite3
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol, Self, TypeVar

import httpcore2

from exchangeable.service.addresses import Resolve, resolve
from exchangeable.service.alerts import delivery, outbox
from exchangeable.service.alerts.apprise_target import AppriseTarget, Receiver, notify
from exchangeable.service.alerts.delivery import Result
from exchangeable.service.alerts.message import payload
from exchangeable.service.alerts.outbox import DueAlert
from exchangeable.service.alerts.webhook import Webhook

MAX_ATTEMPTS = 12
MAX_CONCURRENT = 4  # requests to one receiver
T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)


class Transact(Protocol):
    """Runs a function on a connection in a transaction, in any thread, and returns its result."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run the function."""
        ...


class Backoff(NamedTuple):
    """When the next attempt for an alert may start, and how many there were."""

    until: float  # on the monotonic clock
    attempts: int


class Sender:
    """Delivers the alerts of the outbox, in an asyncio task that runs after `wake` and every ``poll`` seconds.

    An alert counts as sent after a 2xx response. Until then it is repeated after 1, 2, 4, .. seconds (randomly reduced
    by up to a half, at most ``longest``; longer if ``Retry-After`` says so). It becomes a dead letter after
    ``attempts`` requests, or after a rejection that is permanent (3xx, since redirects are not followed, and 4xx except
    408, 425 and 429). These delays are stored in memory, on the monotonic clock: changes of the wall clock have no
    effect, and after a restart every pending alert is due at once.

    ``write`` runs a function on a connection in a transaction; ``read`` does the same for reading, if that is
    different. If the database fails, the result of a request is remembered until it can be stored. A receiver may get
    an alert twice, after a crash between its response and that write, but it always gets it.

    O(alerts due) for each wake-up. At most 4 requests to one receiver run at once; a slow one does not delay others.

        async with Sender(webhooks, write) as sender:
            ...
            sender.wake()  # from any thread, after a commit with an alert in it
    """

    def __init__(
        self,
        webhooks: Iterable[Receiver],
        write: Transact,
        *,
        read: Transact | None = None,
        external_url: str = "",
        attempts: int = MAX_ATTEMPTS,
        first: float = 1.0,
        longest: float = 300.0,
        poll: float = 30.0,
        resolve: Resolve = resolve,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._context = context
        self.configure(webhooks, external_url)
        self.attempts = attempts
        self.first = first
        self.longest = longest
        self.poll = poll
        self._write = write
        self._read = read or write
        self._resolve = resolve
        self._backoffs: dict[int, Backoff] = {}
        self._unwritten: dict[int, Result] = {}  # results that could not be stored
        self._requests: dict[int, tuple[str, asyncio.Task[None]]] = {}  # the receiver and the task of each alert
        self._woken = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, webhooks: Iterable[Receiver], external_url: str) -> None:
        """Take over new receivers, for the requests that start from now on."""
        self.webhooks: dict[str, Receiver] = {webhook.name: webhook for webhook in webhooks}
        self.external_url = external_url
        self._context = self._context or self._default_context()

    def _default_context(self) -> ssl.SSLContext | None:
        """Load the system's certificate authorities, which takes a while, only if a webhook needs them."""
        secure = any(
            isinstance(webhook, Webhook) and webhook.target.scheme == b"https" for webhook in self.webhooks.values()
        )
        return httpcore2.default_ssl_context() if secure else None

    def wake(self) -> None:
        """Look for new alerts. May be called from any thread; has no effect while the sender does not run."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has just ended
                loop.call_soon_threadsafe(self._woken.set)

    async def __aenter__(self) -> Self:
        self._stopping, self._woken = False, asyncio.Event()  # of this loop
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def stop(self, grace: float = 5.0) -> None:
        """Start no new requests, and cancel those still running after ``grace`` seconds; their alerts stay pending."""
        self._stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task
        tasks = [task for _, task in self._requests.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = self._task = None

    async def drain(self) -> None:
        """Send until no alert is pending. Use this, instead of the task, in a program that exits afterwards."""
        while await self._send_due():
            pass

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if not await self._send_due():
                    await self._wait(self.poll)
            except Exception:  # the database may fail for a while
                log.exception("the outbox cannot be read")
                await asyncio.sleep(self.first)

    async def _send_due(self) -> bool:
        """Start the requests that are due, then wait for something to happen; return False if nothing was pending."""
        self._woken.clear()  # before reading, so that no later wake-up is missed
        alerts = await self._read(outbox.due_alerts)
        self._backoffs = {alert.id: self._backoffs[alert.id] for alert in alerts if alert.id in self._backoffs}
        now, pause = time.monotonic(), self.poll
        for alert in alerts:
            if alert.id in self._requests or self._is_busy(alert.receiver) or self._stopping:
                continue  # the end of a request wakes us
            delay = self._backoffs[alert.id].until - now if alert.id in self._backoffs else 0.0
            if delay > 0.0:
                pause = min(pause, delay)
            else:
                self._requests[alert.id] = alert.receiver, asyncio.create_task(self._deliver(alert))
        if alerts and not self._stopping:
            await self._wait(pause)
        return bool(alerts)

    def _is_busy(self, receiver: str) -> bool:
        return sum(name == receiver for name, _ in self._requests.values()) >= MAX_CONCURRENT

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _deliver(self, alert: DueAlert) -> None:
        """Send one alert and store the result."""
        backoff = self._backoffs.get(alert.id)
        attempts = max(alert.attempts, backoff.attempts if backoff else 0)
        delay = self._delay(attempts)
        try:
            result = self._unwritten.pop(alert.id, None) or await self._post(alert)
            self._unwritten[alert.id] = result
            delay = max(delay, result.retry_after)
            await self._write(lambda connection: self._store(connection, alert, result))
            del self._unwritten[alert.id]
        except Exception:  # whatever the database raises, the alert is still pending
            log.exception("the result of alert %d cannot be stored", alert.id, extra={"stream": alert.stream})
        finally:
            self._backoffs[alert.id] = Backoff(time.monotonic() + delay, attempts + 1)
            del self._requests[alert.id]
            self._woken.set()

    def _store(self, connection: sqlite3.Connection, alert: DueAlert, result: Result) -> None:
        if not result.error:
            return outbox.mark_sent(connection, alert.id)
        dead = result.permanent or alert.attempts + 1 >= self.attempts
        level = logging.ERROR if dead else logging.WARNING
        extra = {"stream": alert.stream, "receiver": alert.receiver}
        log.log(level, "alert %d to %s: %s", alert.id, alert.receiver, result.error, extra=extra)
        return outbox.mark_failed(connection, alert.id, result.error, dead=dead)

    def _delay(self, attempts: int) -> float:
        """Return the seconds until the next request: doubled each time, and randomised against synchronisation."""
        return min(self.longest, self.first * 2.0 ** min(attempts, 60)) * random.uniform(0.5, 1.0)  # noqa: S311

    async def _post(self, due: DueAlert) -> Result:
        webhook = self.webhooks.get(due.receiver)
        if webhook is None:
            return Result("the receiver is not in the settings", permanent=True)
        alert = await self._read(lambda connection: outbox.read_alert(connection, due.id))
        message = payload(alert, due.receiver, self.external_url)
        if isinstance(webhook, AppriseTarget):
            return await notify(webhook, alert, message["alerts"][0]["generatorURL"])
        body = json.dumps(message).encode()
        return await delivery.post(webhook, body, self._resolve, self._context)
