"""Alerts: what the operator's webhooks are told, by way of an outbox that forgets nothing.

The engine writes to the outbox in the very transaction that records an alarm or its end; the `Sender` empties it, at
least once for each alert, in order, in the shape of Alertmanager's webhooks, version 4.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import sqlite3
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

import httpcore2
import httpx2

from exchangeable.service.addresses import Checked, Resolve, resolve
from exchangeable.service.problems import Problem
from exchangeable.service.store import open_database
from exchangeable.validation import check_interval

__all__ = ["Access", "Details", "Outcome", "Sender", "Webhook", "enqueue", "listing", "payload", "retry", "test_alert"]
NAMED, SEVERITY = "ExchangeabilityAlarm", "warning"
AGENT = "exchangeable"
FOREVER = "0001-01-01T00:00:00Z"  # the end of what has not ended, as Alertmanager writes it
SENT, DEAD = 1_000, 10_000  # alerts kept of each
WAITING = 100  # alerts that may wait for one receiver and stream
ERROR = 300  # characters kept of what went wrong
ATTEMPTS = 12
PATIENCE = 3_600.0  # seconds at most that a receiver may ask us to wait
ANSWER = 1 << 14  # bytes read of an answer's body, of which nothing is used
AT_ONCE = 4  # requests to one receiver
FAREWELL = 1.0  # seconds for the rest of an answer
CURABLE = {408, 425, 429}  # refusals that time may cure
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SECRET = re.compile(r"[!-~]{1,4096}")
LAW = "url must be an http or https address without user, password and fragment, with a port from 1 to 65535 if any"
TEST = "TEST"  # no stream can have this name: the test alert must not end a real one

Status = Literal["firing", "resolved"]
STATUSES: tuple[Status, ...] = ("firing", "resolved")
T = TypeVar("T")
log: logging.Logger = logging.getLogger(__name__)


class Access(Protocol):
    """Runs work on a connection in a transaction, wherever that may happen, and returns what it returns."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Do it."""
        ...


@dataclass(frozen=True)
class Webhook:
    """A receiver of alerts, from the operator's settings. Its address and its token are secrets: no text shows them.

    >>> Webhook("pager", "https://example.org/hook?key=1", token="secret")
    Webhook(name='pager', allow_private=False, timeout=10.0)
    """

    name: str
    url: str = field(repr=False)
    allow_private: bool = False  # may lie on this machine or in a private network
    token: str | None = field(default=None, repr=False)  # for `Authorization: Bearer`
    timeout: float = 10.0  # seconds for the whole exchange

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise ValueError(f"name must match ^{NAME.pattern}$, got {self.name!r}")
        if not isinstance(self.allow_private, bool):
            raise ValueError(f"allow_private must be true or false, got {self.allow_private!r}")
        if self.token is not None and not (isinstance(self.token, str) and SECRET.fullmatch(self.token)):
            raise ValueError("token must be printable ASCII without spaces, of at most 4096 characters")
        check_interval("timeout", self.timeout, 0.0, 300.0, "(0, 300] seconds")
        if not isinstance(self.url, str) or set(self.url) & set("#\\ ") or not _lawful(self.url):
            raise ValueError(LAW)

    @property
    def target(self) -> httpcore2.URL:
        """The address in the parts that go on the wire."""
        url = httpx2.URL(self.url)
        return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _lawful(text: str) -> bool:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return False
    user = "@" in re.split("[/?]", text.partition("://")[2])[0]  # an empty one too
    port = url.port is None or 0 < url.port < 65_536
    return url.scheme in ("http", "https") and bool(url.host) and port and not user


class Details(NamedTuple):
    """What there is to tell about one alarm."""

    alarm: str  # its kind, "ville"
    guarantee: str
    alarm_at: int  # the example at which it sounded
    changepoint: int | None
    log10_martingale: float | None  # None is bankruptcy, as in JSON
    started: float | None = None  # unix time; None: now if firing, else when the newest firing alert of it said
    reason: str = ""  # of the end: "reset", "restart", "deleted"


def fingerprint(labels: Mapping[str, str]) -> str:
    """The name of an alert: the same for equal labels, today and after a restart.

    It is Prometheus' own: 64-bit FNV-1a over names and values in the order of the names, each followed by a byte 255.

    >>> fingerprint({})
    'cbf29ce484222325'
    """
    value = 0xCBF29CE484222325
    for key in sorted(labels):
        for byte in key.encode() + b"\xff" + labels[key].encode() + b"\xff":
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def payload(alert: Mapping[str, Any], receiver: str, external_url: str = "") -> dict[str, Any]:
    """The message for one alert of the outbox: Alertmanager's webhook, version 4.

    Reference: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
    """
    labels, home = alert["labels"], external_url.rstrip("/")
    group = {"alertname": labels["alertname"], "stream": labels["stream"]}
    key = ", ".join(f'{name}="{value}"' for name, value in group.items())
    source = f"{home}/streams/{labels['stream']}" if home else ""
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{key}}}",
        "truncatedAlerts": 0,
        "status": alert["status"],
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": alert["annotations"],
        "externalURL": home,
        "alerts": [{**alert, "generatorURL": source}],
    }


def _alert(stream: str, status: Status, details: Details, started: float, now: float) -> dict[str, Any]:
    labels = {"alertname": NAMED, "stream": stream, "alarm": details.alarm, "severity": SEVERITY}
    return {
        "status": status,
        "labels": labels,
        "annotations": _annotations(stream, status, details),
        "startsAt": _time(started),
        "endsAt": _time(now) if status == "resolved" else FOREVER,
        "fingerprint": fingerprint(labels),
    }


def _annotations(stream: str, status: Status, details: Details) -> dict[str, str]:
    capital = "-inf" if details.log10_martingale is None else f"{details.log10_martingale:.6g}"
    change = "" if details.changepoint is None else str(details.changepoint)
    if status == "firing":
        summary = f"Stream {stream} is no longer exchangeable."
        story = f"The alarm sounded at example {details.alarm_at}, the log10 of the capital being {capital}."
        story += f" The change seems to have begun after example {change}." * bool(change)
    else:
        summary = story = f"Stream {stream}: the alarm is over" + f" ({details.reason})" * bool(details.reason) + "."
    return {
        "summary": summary,
        "description": f"{story} {details.guarantee}",
        "log10_martingale": capital,
        "alarm_at": str(details.alarm_at),
        "changepoint": change,
    }


def _time(moment: float) -> str:
    """RFC 3339, in UTC.

    >>> _time(0)
    '1970-01-01T00:00:00.000Z'
    """
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# The outbox: functions on a connection, to be called inside a transaction.


def enqueue(
    connection: sqlite3.Connection,
    webhooks: Iterable[Webhook],
    stream: str,
    status: Status,
    details: Details,
    now: float,
) -> int:
    """Put an alert into the outbox, once for each receiver; returns how many that are.

    To be called in the transaction that records the alarm, reset, restart or deletion: both happen or neither. If more
    than 100 wait for one receiver and stream (it alarms and restarts all the time, and nobody answers), the oldest of
    them become dead letters: the disk must not fill with them, and the newest tell how things stand.
    """
    if status not in STATUSES:
        raise ValueError(f"status must be firing or resolved, got {status!r}")
    webhooks = list(webhooks)
    if not webhooks:
        return 0
    started = now if details.started is None else details.started
    alert = _alert(stream, status, details, started, now)
    if status == "resolved" and details.started is None:
        alert["startsAt"] = _started(connection, alert["fingerprint"]) or alert["startsAt"]
    text = json.dumps(alert)
    connection.executemany(
        "INSERT INTO outbox (created, receiver, stream, status, fingerprint, alert, attempts, state, error)"
        " VALUES (?, ?, ?, ?, ?, ?, 0, 'pending', '')",
        [(now, webhook.name, stream, status, alert["fingerprint"], text) for webhook in webhooks],
    )
    for webhook in webhooks:
        _crowd_out(connection, webhook.name, stream)
    return len(webhooks)


def _crowd_out(connection: sqlite3.Connection, receiver: str, stream: str) -> None:
    mine = "state = 'pending' AND receiver = ? AND stream = ?"
    crowded = connection.execute(
        "UPDATE outbox SET state = 'dead', error = 'too many alerts were waiting'"  # noqa: S608 - all of it is ours
        f" WHERE {mine} AND id <= (SELECT id FROM outbox WHERE {mine} ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (receiver, stream, receiver, stream, WAITING),
    ).rowcount
    if crowded:
        _bury(connection)


def _bury(connection: sqlite3.Connection) -> None:
    """Forget the oldest dead letters, if there are too many."""
    connection.execute(
        "DELETE FROM outbox WHERE id IN"
        " (SELECT id FROM outbox WHERE state = 'dead' ORDER BY id DESC LIMIT -1 OFFSET ?)",
        (DEAD,),
    )


def _started(connection: sqlite3.Connection, mark: str) -> str | None:
    """When the alarm began, by the newest alert that said so."""
    found = connection.execute(
        "SELECT alert FROM outbox WHERE fingerprint = ? AND status = 'firing' ORDER BY id DESC LIMIT 1", (mark,)
    ).fetchone()
    return str(json.loads(found[0])["startsAt"]) if found else None


class Due(NamedTuple):
    """An alert that may go out: the oldest one pending for its receiver and stream."""

    id: int
    receiver: str
    attempts: int


def due(connection: sqlite3.Connection) -> list[Due]:
    """What may go out now, oldest first.

    For each receiver and stream that is the oldest pending alert alone, so that "resolved" never overtakes its
    "firing". A dead letter no longer stands in the way: what follows it goes out.
    """
    rows = connection.execute(
        "SELECT id, receiver, attempts FROM outbox WHERE id IN"
        " (SELECT min(id) FROM outbox WHERE state = 'pending' GROUP BY receiver, stream) ORDER BY id"
    )
    return [Due(*row) for row in rows]


def sent(connection: sqlite3.Connection, id: int) -> None:  # noqa: A002 - the column's name
    """The receiver has said yes.

    Unless an older alert for the same receiver and stream was put back meanwhile: this one goes out again after it.
    """
    older = (
        "SELECT 1 FROM outbox AS older WHERE older.receiver = outbox.receiver AND older.stream = outbox.stream"
        " AND older.id < outbox.id AND older.state"
    )
    connection.execute(
        "UPDATE outbox SET state = 'sent', error = '', attempts = attempts + 1"  # noqa: S608 - all of it is ours
        f" WHERE id = ? AND state = 'pending' AND NOT EXISTS ({older} = 'pending')",
        (id,),
    )
    connection.execute(  # what followed a dead letter stays as long as that: `retry` needs it
        f"DELETE FROM outbox WHERE id <= ? AND state = 'sent' AND NOT EXISTS ({older} = 'dead')",  # noqa: S608
        (id - SENT,),
    )


def failed(connection: sqlite3.Connection, id: int, error: str, *, dead: bool) -> None:  # noqa: A002
    """It did not arrive: it stays, or, if dead, waits for somebody to `retry` it. Only the newest dead letters stay."""
    connection.execute(
        "UPDATE outbox SET state = ?, error = ?, attempts = attempts + 1 WHERE id = ? AND state = 'pending'",
        ("dead" if dead else "pending", error[:ERROR], id),
    )
    if dead:
        _bury(connection)


def retry(connection: sqlite3.Connection, id: int) -> int:  # noqa: A002
    """Put a dead letter back; returns how many rows will go out.

    An old "firing" must not be the last word: the newest alert for the same receiver and stream goes out again after
    it, and so does the newest that had arrived, in case the other one dies once more.
    """
    row = connection.execute("SELECT state, receiver, stream FROM outbox WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise Problem(404, "not-found", f"there is no alert {id}")
    state, receiver, stream = row
    if state != "dead":
        raise Problem(409, "conflict", f"alert {id} must be a dead letter to be put back, but it is {state}")
    later = "SELECT max(id) FROM outbox WHERE receiver = ? AND stream = ? AND id > ?"
    return connection.execute(
        "UPDATE outbox SET state = 'pending', attempts = 0 WHERE state != 'pending'"  # noqa: S608 - all of it is ours
        f" AND id IN (?, ({later}), ({later} AND state = 'sent'))",
        (id, *(receiver, stream, id) * 2),
    ).rowcount


def counts(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many alerts are pending, and how many dead."""
    pending, dead = (
        connection.execute(f"SELECT count(*) FROM outbox WHERE state = '{state}'").fetchone()[0]  # noqa: S608
        for state in ("pending", "dead")
    )
    return pending, dead


def listing(connection: sqlite3.Connection, limit: int = 100) -> dict[str, Any]:
    """The outbox for people: dead letters, then what is pending, trouble first, then what was sent; newest first."""
    pending, dead = counts(connection)
    names = ("id", "receiver", "stream", "status", "state", "attempts", "error", "created", "fingerprint")
    rows = connection.execute(
        f"SELECT {', '.join(names)} FROM outbox"  # noqa: S608 - our own names
        " ORDER BY CASE state WHEN 'dead' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END, error = '', id DESC LIMIT ?",
        (limit,),
    )
    alerts = [dict(zip(names, row, strict=True)) for row in rows]
    return {"pending": pending, "dead": dead, "alerts": [{**row, "created": _time(row["created"])} for row in alerts]}


# The sender.


class Answer(NamedTuple):
    """What came of one request."""

    error: str = ""  # empty: the receiver said yes
    permanent: bool = False  # no use in asking again
    wait: float = 0.0  # seconds that the receiver asked us to wait


class Rest(NamedTuple):
    """An alert that did not arrive, until its next attempt."""

    until: float  # on the monotonic clock
    tries: int


class Sender:
    """Empties the outbox: an asyncio task that wakes when told, or by itself every ``poll`` seconds.

    An alert counts as sent after a 2xx, and is repeated until then, after 1, 2, 4, .. seconds (up to halved at random,
    at most ``longest``; longer if ``Retry-After`` says so). After ``attempts`` requests, or on a refusal that time does
    not cure (3xx, since redirects are not followed, and 4xx but 408, 425, 429), it is a dead letter. These pauses live
    in memory on the monotonic clock: the wall clock may jump, and after a restart everything pending is due at once.

    ``write`` runs a function on a connection in a transaction (``read`` likewise, if reading goes another way). If
    storage fails, the outcome of a request is remembered until it can be written. The receiver may hear an alert twice,
    after a crash between its answer and that write; it never hears it not at all.

    O(alerts due) for each wake, at most 4 requests at once to one receiver; a slow one does not hold up the others.

        async with Sender(webhooks, write) as sender:
            ...
            sender.wake()  # from any thread, after a commit with an alert in it
    """

    def __init__(
        self,
        webhooks: Iterable[Webhook],
        write: Access,
        *,
        read: Access | None = None,
        external_url: str = "",
        attempts: int = ATTEMPTS,
        first: float = 1.0,
        longest: float = 300.0,
        poll: float = 30.0,
        resolve: Resolve = resolve,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.webhooks: dict[str, Webhook] = {webhook.name: webhook for webhook in webhooks}
        self.external_url = external_url
        self.attempts = attempts
        self.first = first
        self.longest = longest
        self.poll = poll
        self._write = write
        self._read = read or write
        self._resolve = resolve
        self._context = context or self._trust()
        self._resting: dict[int, Rest] = {}
        self._unwritten: dict[int, Answer] = {}  # outcomes that storage did not take
        self._flying: dict[int, tuple[str, asyncio.Task[None]]] = {}  # the receiver and the request
        self._woken = asyncio.Event()
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def _trust(self) -> ssl.SSLContext | None:
        """The system's authorities, which take a while to load, if they are needed."""
        secure = any(webhook.target.scheme == b"https" for webhook in self.webhooks.values())
        return httpcore2.default_ssl_context() if secure else None

    def wake(self) -> None:
        """There may be something to send. From any thread; does nothing while the sender does not run."""
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
        """Send nothing new, give requests under way ``grace`` seconds, then cut them off: their alerts stay pending."""
        self._stopping = True
        self._woken.set()
        if self._task is not None:
            await self._task
        tasks = [task for _, task in self._flying.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop = self._task = None

    async def drain(self) -> None:
        """Send until nothing is pending: for programs that wait for the end, in place of the task."""
        while await self._turn():
            pass

    async def _run(self) -> None:
        while not self._stopping:
            try:
                if not await self._turn():
                    await self._wait(self.poll)
            except Exception:  # alerts outlive a storage that fails for a while
                log.exception("the outbox cannot be read")
                await asyncio.sleep(self.first)

    async def _turn(self) -> bool:
        """Start what is due, then wait for something to happen; False if nothing was pending."""
        self._woken.clear()  # before reading: what is told from here on is not missed
        rows = await self._read(due)
        self._resting = {row.id: self._resting[row.id] for row in rows if row.id in self._resting}
        now, pause = time.monotonic(), self.poll
        for row in rows:
            if row.id in self._flying or self._full(row.receiver) or self._stopping:
                continue  # the end of a request wakes us
            rest = self._resting[row.id].until - now if row.id in self._resting else 0.0
            if rest > 0.0:
                pause = min(pause, rest)
            else:
                self._flying[row.id] = row.receiver, asyncio.create_task(self._deliver(row))
        if rows and not self._stopping:
            await self._wait(pause)
        return bool(rows)

    def _full(self, receiver: str) -> bool:
        return sum(name == receiver for name, _ in self._flying.values()) >= AT_ONCE

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    async def _deliver(self, row: Due) -> None:
        """One request and its consequences."""
        tries = max(row.attempts, self._resting[row.id].tries if row.id in self._resting else 0)
        pause = self._pause(tries)
        try:
            answer = self._unwritten.pop(row.id, None) or await self._try(row)
            self._unwritten[row.id] = answer
            pause = max(pause, answer.wait)
            await self._write(lambda connection: self._settle(connection, row, answer))
            del self._unwritten[row.id]
        except Exception:  # whatever storage raises: the alert is pending still
            log.exception("storage failed on alert %d", row.id)
        finally:
            self._resting[row.id] = Rest(time.monotonic() + pause, tries + 1)
            del self._flying[row.id]
            self._woken.set()

    def _settle(self, connection: sqlite3.Connection, row: Due, answer: Answer) -> None:
        if not answer.error:
            return sent(connection, row.id)
        dead = answer.permanent or row.attempts + 1 >= self.attempts
        log.log(logging.ERROR if dead else logging.INFO, "alert %d to %s: %s", row.id, row.receiver, answer.error)
        return failed(connection, row.id, answer.error, dead=dead)

    def _pause(self, tries: int) -> float:
        """Seconds until the next request: doubled each time, and up to halved at random, not to come in step."""
        return min(self.longest, self.first * 2.0 ** min(tries, 60)) * random.uniform(0.5, 1.0)  # noqa: S311

    async def _try(self, row: Due) -> Answer:
        webhook = self.webhooks.get(row.receiver)
        if webhook is None:
            return Answer("the receiver is not in the settings", permanent=True)
        alert = json.loads(await self._read(lambda connection: _alert_of(connection, row.id)))
        return await self._post(webhook, json.dumps(payload(alert, row.receiver, self.external_url)).encode())

    async def _post(self, webhook: Webhook, body: bytes) -> Answer:
        """One request on a connection of its own: no redirects, no proxy, no cookies, and no more time than allowed."""
        headers: list[tuple[bytes | str, bytes | str]] = [("Content-Type", "application/json"), ("User-Agent", AGENT)]
        if webhook.token is not None:
            headers.append(("Authorization", f"Bearer {webhook.token}"))
        network = Checked(webhook.allow_private, self._resolve)
        pool = httpcore2.AsyncConnectionPool(self._context, max_keepalive_connections=0, network_backend=network)
        answer = None
        try:
            async with asyncio.timeout(webhook.timeout) as limit:
                async with pool, pool.stream("POST", webhook.target, headers=headers, content=body) as response:
                    answer = _judged(response)
                    limit.reschedule(asyncio.get_running_loop().time() + FAREWELL)
                    await _drained(response)
        except (TimeoutError, httpcore2.TimeoutException):
            return answer or Answer(f"there was no answer within {webhook.timeout:g} s")
        except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            return answer or Answer(f"the request failed: {error}")
        return answer


def _alert_of(connection: sqlite3.Connection, id: int) -> str:  # noqa: A002
    return str(connection.execute("SELECT alert FROM outbox WHERE id = ?", (id,)).fetchone()[0])


def _judged(response: httpcore2.Response) -> Answer:
    """What an answer means, by its head alone: of its body nothing is shown to anybody."""
    status = response.status
    if 200 <= status < 300:
        return Answer()
    permanent = 300 <= status < 500 and status not in CURABLE
    said = f"the receiver answered {status} {responses.get(status, '')}".rstrip()
    return Answer(said, permanent, _wished(response))


def _wished(response: httpcore2.Response) -> float:
    """The seconds of ``Retry-After``, which may be a number or a date (by the receiver's own clock), within reason."""
    fields = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    wish = fields.get(b"retry-after", "").strip()
    try:
        if wish.isdigit():
            seconds = float(wish)
        else:
            seconds = _date(wish) - (_date(fields[b"date"]) if b"date" in fields else time.time())
    except (OverflowError, TypeError, ValueError):  # no wish, or none that makes sense
        return 0.0
    return min(max(seconds, 0.0), PATIENCE)


def _date(text: str) -> float:
    return parsedate_to_datetime(text).timestamp()


async def _drained(response: httpcore2.Response) -> None:
    """Let the receiver finish what it has to say, if that is short: it need not see its connection reset."""
    size = 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > ANSWER:
            return


def direct(connection: sqlite3.Connection) -> Access:
    """Access to a connection that commits by itself, right here and in this thread."""

    async def access(work: Callable[[sqlite3.Connection], T], /) -> T:
        with connection:
            connection.execute("BEGIN")
            return work(connection)

    return access


class Outcome(NamedTuple):
    """What a receiver made of the test alert."""

    receiver: str
    delivered: bool
    error: str


async def test_alert(
    webhooks: Sequence[Webhook],
    external_url: str = "",  # noqa: PT028 - not a test of ours, but the operator's
    *,
    resolve: Resolve = resolve,  # noqa: PT028
    context: ssl.SSLContext | None = None,  # noqa: PT028
) -> list[Outcome]:
    """Send every receiver a test alert, firing and then resolved, the way a real one goes, but each only once.

    Its stream is called TEST, which no real stream can be, so that it ends nobody's alarm.
    """
    details = Details("test", "This is a test: no data was looked at.", 1, 0, 0.0, reason="test")
    with closing(open_database(":memory:")) as connection:
        for status in STATUSES:
            enqueue(connection, webhooks, TEST, status, details, time.time())
        await Sender(
            webhooks, direct(connection), external_url=external_url, attempts=1, resolve=resolve, context=context
        ).drain()
        errors = dict(connection.execute("SELECT receiver, max(error) FROM outbox GROUP BY receiver").fetchall())
    return [Outcome(webhook.name, not errors[webhook.name], errors[webhook.name]) for webhook in webhooks]
