"""Alerts: the message, the outbox, and the sender against real receivers on 127.0.0.1. Never the internet."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import shutil
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpcore2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import settled
from exchangeable.rate import RateChange
from exchangeable.service import alerts
from exchangeable.service.addresses import CheckedBackend, ForbiddenAddressError, is_public
from exchangeable.service.alerts import (
    Details,
    Sender,
    Status,
    Transact,
    Webhook,
    delivery,
    due_alerts,
    enqueue,
    fingerprint,
    list_alerts,
    mark_failed,
    mark_sent,
    outbox,
    payload,
    retry,
)
from exchangeable.service.alerts.message import RiskDetails, TableDetails
from exchangeable.service.alerts.sender import MAX_CONCURRENT
from exchangeable.service.alerts.trial import transact_on
from exchangeable.service.problems import Problem
from exchangeable.service.store import open_database

T = TypeVar("T")
PROMISE = "On exchangeable data the chance that this alarm is ever raised is at most 0.01."
DETAILS = Details("ville", PROMISE, alarm_at=120, changepoint=95, log10_martingale=2.3125)
NOW = 1_700_000_000.0


def play(scene: Coroutine[Any, Any, T]) -> T:
    """Run it; no test takes 20 seconds."""
    return asyncio.run(asyncio.wait_for(scene, 20.0))


# ---------------------------------------------------------------- webhooks


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org/hook",
        "//example.org/hook",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_",
        "javascript:alert(1)",
        "http://",
        "http:///hook",
        "http://user@example.org/",
        "http://user:secret@example.org/",
        "http://@example.org/",
        "http://example.org\\@127.0.0.1/",
        "http://example.org/#part",
        "http://example.org/#",
        "http://example.org:0/",
        "http://example.org:65536/",
        "http://example.org:-1/",
        "http://example.org:http/",
        "http://exa mple.org/",
        "http://example.org/\nHost: evil",
        "http://[::1/",
        "http://0177.0.0.1/",  # octal
        "http://999.1.1.1/",
        7,
        None,
        b"http://example.org/",
    ],
)
def test_unlawful_address(url: Any) -> None:
    with pytest.raises(ValueError, match="url must be an http or https address") as refusal:
        Webhook("ops", url)
    assert not url or len(str(url)) < 8 or str(url) not in str(refusal.value)  # an address may be a secret


@pytest.mark.parametrize(
    "url",
    ["http://example.org", "https://example.org:8443/a?b=c@d", "HTTP://[2001:4860:4860::8888]:80/", "http://h:1/"],
)
def test_lawful_address(url: str) -> None:
    assert Webhook("ops", url).url == url


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": ""}, "name must match"),
        ({"name": "Ops"}, "name must match"),
        ({"name": None}, "name must match"),
        ({"token": ""}, "token must be printable"),
        ({"token": "hush hush"}, "token must be printable"),
        ({"token": "hush\r\nX: y"}, "token must be printable"),
        ({"timeout": 0}, "timeout must lie in"),
        ({"timeout": float("nan")}, "timeout must"),
        ({"allow_private": 1}, "allow_private must be true or false"),
    ],
)
def test_invalid_webhook(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        Webhook(**{"name": "ops", "url": "http://example.org/", **changed})
    assert "hush" not in str(refusal.value)


def test_webhook_keeps_its_secrets() -> None:
    webhook = Webhook("ops", "https://example.org/services/T0/B0/s3cr3t", token="hush")
    for text in (repr(webhook), str(webhook), f"{[webhook]}"):
        assert "hush" not in text
        assert "s3cr3t" not in text


# ---------------------------------------------------------------- the message


@pytest.fixture
def box() -> Iterator[sqlite3.Connection]:
    with closing(open_database(":memory:")) as connection:
        yield connection


OPS = Webhook("ops", "http://example.org/")
CHAT = Webhook("chat", "http://example.org/")


def put(box: sqlite3.Connection, stream: str, status: Status, *webhooks: Webhook, now: float = NOW) -> list[int]:
    enqueue(box, webhooks or [OPS], stream, status, DETAILS, now)
    return [row[0] for row in box.execute("SELECT id FROM outbox ORDER BY id DESC LIMIT ?", (len(webhooks or [OPS]),))]


def stored(box: sqlite3.Connection) -> list[dict[str, Any]]:
    return [json.loads(row[0]) for row in box.execute("SELECT alert FROM outbox ORDER BY id")]


def states(box: sqlite3.Connection) -> list[tuple[str, str]]:
    return box.execute("SELECT status, state FROM outbox ORDER BY id").fetchall()


def test_firing_message(box: sqlite3.Connection) -> None:
    put(box, "payments", "firing")
    (alert,) = stored(box)
    labels = {"alertname": "ExchangeabilityAlarm", "stream": "payments", "alarm": "ville", "severity": "warning"}
    annotations = {
        "summary": "Stream payments is no longer exchangeable.",
        "description": "The alarm was raised at example 120, with a log10 capital of 2.3125. The change seems to "
        f"have started after example 95. {PROMISE}",
        "log10_martingale": "2.3125",
        "alarm_at": "120",
        "changepoint": "95",
    }
    assert payload(alert, "ops", "https://monitor.example.org/") == {
        "version": "4",
        "groupKey": '{}:{alertname="ExchangeabilityAlarm", stream="payments"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "ops",
        "groupLabels": {"alertname": "ExchangeabilityAlarm", "stream": "payments"},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "https://monitor.example.org",
        "alerts": [
            {
                "status": "firing",
                "labels": labels,
                "annotations": annotations,
                "startsAt": "2023-11-14T22:13:20.000Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "https://monitor.example.org/streams/payments",
                "fingerprint": fingerprint(labels),
                "keep_from": 96,
            }
        ],
    }


def test_firing_message_of_a_rate(box: sqlite3.Connection) -> None:
    details = DETAILS._replace(change=RateChange(1, 0.026, 0.179))
    enqueue(box, [OPS], "checkout", "firing", details, NOW)
    (alert,) = stored(box)
    assert alert["annotations"]["summary"] == "The rate of stream checkout has changed from 2.6 % to 17.9 %."
    description = alert["annotations"]["description"]
    assert description.startswith(
        f"The alarm was raised at example {DETAILS.alarm_at}; the rate is the share of values"
    )
    assert "capital" not in description
    assert DETAILS.guarantee in description


def test_firing_message_of_a_risk(box: sqlite3.Connection) -> None:
    enqueue(box, [OPS], "checkout", "firing", DETAILS._replace(risk=RiskDetails(0.1, 0.26)), NOW)
    (alert,) = stored(box)
    assert alert["annotations"]["summary"] == "The mean loss of stream checkout has exceeded the limit of 0.1."
    assert "the mean loss of the test so far is 0.26. The rise seems" in alert["annotations"]["description"]


def test_the_columns_of_a_table_have_a_field_of_their_own(box: sqlite3.Connection) -> None:
    details = DETAILS._replace(table=TableDetails(("size", "full rows"), 23, 97))
    enqueue(box, [OPS], "credit", "firing", details, NOW)
    enqueue(box, [OPS], "latency", "firing", DETAILS._replace(changepoint=None), NOW)
    table, other = (payload(alert, "ops")["alerts"][0] for alert in stored(box))
    assert (table["rejected_by"], table["rejected"], table["keep_from"]) == (["size", "full rows"], 23, 97)
    assert table["annotations"]["summary"].endswith("differ from its reference: size, full rows and 21 more.")
    assert other["keep_from"] is None
    assert "rejected_by" not in other


def test_resolved_message_is_about_the_same_alert(box: sqlite3.Connection) -> None:
    put(box, "payments", "firing")
    enqueue(box, [OPS], "payments", "resolved", DETAILS._replace(reason="reset"), NOW + 60)
    firing, resolved = (payload(alert, "ops") for alert in stored(box))
    assert (resolved["status"], resolved["alerts"][0]["status"]) == ("resolved", "resolved")
    for key in ("fingerprint", "labels", "startsAt"):
        assert resolved["alerts"][0][key] == firing["alerts"][0][key]
    assert resolved["groupKey"] == firing["groupKey"]
    assert resolved["alerts"][0]["endsAt"] == "2023-11-14T22:14:20.000Z"
    assert resolved["alerts"][0]["generatorURL"] == resolved["externalURL"] == ""
    assert resolved["commonAnnotations"]["summary"] == "Stream payments: the alarm is over (reset)."
    assert PROMISE in resolved["commonAnnotations"]["description"]


def test_start_that_is_told_counts_and_an_unknown_one_is_now(box: sqlite3.Connection) -> None:
    for details in (DETAILS._replace(started=NOW - 5), DETAILS):
        enqueue(box, [OPS], "a", "resolved", details, NOW)
    assert [alert["startsAt"][17:19] for alert in stored(box)] == ["15", "20"]


def test_bankrupt_and_without_a_changepoint(box: sqlite3.Connection) -> None:
    enqueue(box, [OPS], "a", "firing", DETAILS._replace(log10_martingale=None, changepoint=None), NOW)
    (alert,) = stored(box)
    assert alert["annotations"]["log10_martingale"] == "-inf"
    assert alert["annotations"]["changepoint"] == ""
    assert "None" not in json.dumps(alert)


def test_fingerprint_is_that_of_prometheus() -> None:
    """Numbers from the tests of prometheus/common, model/signature_test.go."""
    assert int(fingerprint({}), 16) == 14695981039346656037
    assert int(fingerprint({"name": "garland, briggs", "fear": "love is not enough"}), 16) == 5799056148416392346


def test_fingerprint_is_made_of_the_labels_alone() -> None:
    assert fingerprint({"a": "1", "b": "2"}) == fingerprint({"b": "2", "a": "1"})
    assert len({fingerprint(labels) for labels in ({"a": "bc"}, {"ab": "c"}, {"a": "b", "c": ""}, {"a": "b"}, {})}) == 5


# ---------------------------------------------------------------- the outbox


def test_one_row_a_receiver_in_the_callers_transaction(box: sqlite3.Connection) -> None:
    box.execute("BEGIN")
    assert enqueue(box, [OPS, CHAT], "a", "firing", DETAILS, NOW) == 2
    assert len(due_alerts(box)) == 2
    box.execute("ROLLBACK")  # the alarm could not be recorded
    assert due_alerts(box) == []
    put(box, "a", "firing", OPS, CHAT)
    assert [row.receiver for row in due_alerts(box)] == ["ops", "chat"]


def test_without_receivers_nothing_is_kept(box: sqlite3.Connection) -> None:
    assert enqueue(box, [], "a", "firing", DETAILS, NOW) == 0
    assert list_alerts(box) == {"pending": 0, "dead": 0, "alerts": []}


def test_unlawful_status(box: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="status must be firing or resolved, got 'on'"):
        enqueue(box, [OPS], "a", "on", DETAILS, NOW)  # type: ignore[arg-type]
    assert due_alerts(box) == []


def test_resolved_waits_for_its_firing(box: sqlite3.Connection) -> None:
    (first,), (second,), (other,) = put(box, "a", "firing"), put(box, "a", "resolved"), put(box, "b", "firing")
    assert [row.id for row in due_alerts(box)] == [first, other]
    mark_failed(box, first, "no luck", dead=False)
    assert [(row.id, row.attempts) for row in due_alerts(box)] == [(first, 1), (other, 0)]
    mark_sent(box, first)
    assert [row.id for row in due_alerts(box)] == [second, other]


def test_dead_firing_does_not_block(box: sqlite3.Connection) -> None:
    (first,), (second,) = put(box, "a", "firing"), put(box, "a", "resolved")
    mark_failed(box, first, "x" * 1_000, dead=True)
    assert [row.id for row in due_alerts(box)] == [second]
    shown = list_alerts(box)
    assert (shown["pending"], shown["dead"]) == (1, 1)
    assert shown["alerts"][0] == {
        "id": first,
        "receiver": "ops",
        "stream": "a",
        "status": "firing",
        "state": "dead",
        "attempts": 1,
        "error": "x" * 300,
        "created": "2023-11-14T22:13:20.000Z",
        "fingerprint": stored(box)[0]["fingerprint"],
    }


def test_listing_shows_the_dead_first_and_no_more_than_asked(box: sqlite3.Connection) -> None:
    (a,), (b,), (c,), (d,) = (put(box, stream, "firing") for stream in "abcd")
    mark_failed(box, b, "", dead=True)
    mark_sent(box, d)
    assert [row["id"] for row in list_alerts(box)["alerts"]] == [b, c, a, d]
    assert [row["id"] for row in list_alerts(box, limit=2)["alerts"]] == [b, c]
    mark_failed(box, a, "no", dead=False)
    # what is stuck comes before what waits behind it
    assert [row["id"] for row in list_alerts(box)["alerts"]] == [b, a, c, d]


def test_retried_firing_is_not_the_last_word(box: sqlite3.Connection) -> None:
    """Its "resolved" had gone out: it goes out again, after it."""
    (first,), (second,) = put(box, "a", "firing"), put(box, "a", "resolved")
    mark_failed(box, first, "no", dead=True)
    mark_sent(box, second)
    assert retry(box, first) == 2
    assert [(row.id, row.attempts) for row in due_alerts(box)] == [(first, 0)]
    mark_sent(box, first)
    assert [row.id for row in due_alerts(box)] == [second]


def test_retry_while_the_resolved_is_under_way(box: sqlite3.Connection) -> None:
    (first,), (second,) = put(box, "a", "firing"), put(box, "a", "resolved")
    mark_failed(box, first, "no", dead=True)
    assert retry(box, first) == 1  # the other one is pending, and on its way to the receiver
    mark_sent(box, second)  # it has arrived there, too early
    assert states(box) == [("firing", "pending"), ("resolved", "pending")]


def test_retry_leaves_other_streams_and_receivers_alone(box: sqlite3.Connection) -> None:
    first, other = put(box, "a", "firing", OPS, CHAT)[::-1]
    (third,) = put(box, "b", "firing")
    for row in (first, other, third):
        mark_failed(box, row, "no", dead=True)
    assert retry(box, first) == 1
    assert [row.id for row in due_alerts(box)] == [first]


@pytest.mark.parametrize(("state", "status", "code"), [("sent", 409, "conflict"), ("pending", 409, "conflict")])
def test_only_dead_letters_are_retried(box: sqlite3.Connection, state: str, status: int, code: str) -> None:
    (row,) = put(box, "a", "firing")
    if state == "sent":
        mark_sent(box, row)
    with pytest.raises(Problem, match=state) as refusal:
        retry(box, row)
    assert (refusal.value.status, refusal.value.code) == (status, code)
    with pytest.raises(Problem, match="there is no alert 77") as refusal:
        retry(box, 77)
    assert refusal.value.status == 404


def test_outbox_does_not_grow_for_ever(box: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_SENT", 10)
    monkeypatch.setattr(outbox, "MAX_DEAD", 5)
    for i in range(50):
        (row,) = put(box, "a", "firing")
        (letter,) = put(box, f"b{i}", "firing")
        mark_sent(box, row)
        mark_failed(box, letter, "no", dead=True)
    kept = dict(box.execute("SELECT state, count(*) FROM outbox GROUP BY state").fetchall())
    assert kept["dead"] == 5
    assert kept["sent"] <= 11
    assert [row["stream"] for row in list_alerts(box)["alerts"][:5]] == ["b49", "b48", "b47", "b46", "b45"]


def test_only_so_many_wait_for_one_receiver_and_stream(
    box: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_PENDING", 10)
    monkeypatch.setattr(outbox, "MAX_DEAD", 15)
    for i in range(40):
        put(box, "a", "resolved" if i % 2 else "firing", OPS, CHAT)
    put(box, "b", "firing")
    assert list_alerts(box)["pending"] == 21
    assert list_alerts(box)["dead"] == 15
    waiting = box.execute("SELECT id FROM outbox WHERE receiver = 'ops' AND stream = 'a' AND state = 'pending'")
    assert [row[0] for row in waiting] == list(range(61, 81, 2))  # the newest, in their order
    assert {row["error"] for row in list_alerts(box)["alerts"] if row["state"] == "dead"} == {
        "too many alerts were waiting"
    }


def test_what_followed_a_dead_letter_is_kept_with_it(box: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_SENT", 3)
    (first,), (second,) = put(box, "a", "firing"), put(box, "a", "resolved")
    mark_failed(box, first, "no", dead=True)
    mark_sent(box, second)
    for _ in range(20):
        (row,) = put(box, "b", "firing")
        mark_sent(box, row)
    assert retry(box, first) == 2


def test_retried_firing_is_not_the_last_word_if_the_newest_dies_again(box: sqlite3.Connection) -> None:
    (first,), (second,), (third,) = put(box, "a", "firing"), put(box, "a", "resolved"), put(box, "a", "firing")
    mark_failed(box, first, "no", dead=True)
    mark_sent(box, second)
    mark_failed(box, third, "no", dead=True)
    assert retry(box, first) == 3
    mark_sent(box, first)
    assert [row.id for row in due_alerts(box)] == [second]


STEPS = st.tuples(st.sampled_from("ab"), st.sampled_from(["put", "sent", "failed", "dead", "retry", "late"]))


@settled(150)
@given(st.lists(STEPS, max_size=40))
def test_any_history_ends_with_the_newest_word(steps: list[tuple[str, str]]) -> None:
    """Whatever fails, dies and is put back (while another one is under way, too): once nothing is pending, the last
    that a receiver heard of a stream is the newest that it ever heard, unless that is among the dead letters."""
    with closing(open_database(":memory:")) as box:
        heard: dict[str, list[int]] = {"a": [], "b": []}

        def ready(stream: str) -> int | None:
            (row,) = box.execute("SELECT min(id) FROM outbox WHERE stream=? AND state='pending'", (stream,)).fetchone()
            assert row in [None, *(row.id for row in due_alerts(box))]
            return None if row is None else int(row)

        def again(stream: str) -> None:
            (row,) = box.execute("SELECT min(id) FROM outbox WHERE stream=? AND state='dead'", (stream,)).fetchone()
            if row is not None:
                retry(box, row)

        for stream, step in steps:
            if step == "put":
                put(box, stream, "firing")
            elif step == "retry":
                again(stream)
            elif (row := ready(stream)) is not None:
                if step in ("sent", "late"):
                    heard[stream].append(row)
                    if step == "late":  # somebody retries between the receiver's answer and our note of it
                        again(stream)
                    mark_sent(box, row)
                else:
                    mark_failed(box, row, "no", dead=step == "dead")
        for stream, messages in heard.items():
            while (row := ready(stream)) is not None:
                messages.append(row)
                mark_sent(box, row)
            dead = {row for (row,) in box.execute("SELECT id FROM outbox WHERE stream=? AND state='dead'", (stream,))}
            assert not messages or messages[-1] == max({*messages} - dead | {messages[-1]})


# ---------------------------------------------------------------- the sender


class Heard(NamedTuple):
    """One request as the receiver saw it."""

    line: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def about(self) -> tuple[str, str]:
        return self.message["commonLabels"]["stream"], self.message["status"]


Reply = int | bytes | Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A receiver on 127.0.0.1 that sends the given replies in order, and then 200."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.heard: list[Heard] = []
        self.times: list[float] = []
        self.connections = 0
        self.busy = self.busiest = 0
        self.servername: str | None = None
        self.port = 0

    def webhook(self, name: str = "ops", host: str = "127.0.0.1", scheme: str = "http", **rest: Any) -> Webhook:
        return Webhook(name, f"{scheme}://{host}:{self.port}/hook?key=s3cr3t", **{"allow_private": True, **rest})

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.busy += 1
        self.busiest = max(self.busiest, self.busy)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.answer(reader, writer)
        finally:
            self.busy -= 1
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().rstrip().split("\r\n")
        headers = {key.lower(): value for key, value in (field.split(": ", 1) for field in fields)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.heard.append(Heard(line, headers, json.loads(body)))
        self.times.append(time.monotonic())
        reply = self.replies.pop(0) if self.replies else 200
        if isinstance(reply, int):
            reply = f"HTTP/1.1 {reply} So\r\nContent-Length: 2\r\n\r\nok".encode()
        if isinstance(reply, bytes):
            writer.write(reply)
            await writer.drain()
        else:
            await reply(reader, writer)

    @asynccontextmanager
    async def open(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self.meet, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                if "meet" in repr(task.get_coro()):
                    task.cancel()
            await asyncio.sleep(0.01)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        await writer.drain()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def dripping_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


def quick(webhooks: list[Webhook], access: Transact, **rest: Any) -> Sender:
    return Sender(webhooks, access, **{"first": 0.01, "longest": 0.04, "poll": 5.0, **rest})


async def until(wish: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not wish():
            await asyncio.sleep(0.005)


def test_delivers_and_remembers(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver:
            webhook = receiver.webhook(token="hush")
            put(box, "a", "firing", webhook)
            put(box, "a", "resolved", webhook)
            await quick([webhook], transact_on(box), external_url="https://monitor.example.org").drain()
        first, second = receiver.heard
        assert (first.about, second.about) == (("a", "firing"), ("a", "resolved"))
        assert first.line == "POST /hook?key=s3cr3t HTTP/1.1"
        assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
        assert first.headers["authorization"] == "Bearer hush"
        assert first.headers["content-type"] == "application/json"
        assert first.message["alerts"][0]["generatorURL"] == "https://monitor.example.org/streams/a"

    play(scene())
    assert states(box) == [("firing", "sent"), ("resolved", "sent")]


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408, 425])
def test_passing_trouble_is_tried_again(box: sqlite3.Connection, status: int) -> None:
    async def scene() -> None:
        async with Receiver(status, status).open() as receiver:
            put(box, "a", "firing")
            put(box, "a", "resolved")
            await quick([receiver.webhook()], transact_on(box)).drain()
        assert [heard.about[1] for heard in receiver.heard] == ["firing", "firing", "firing", "resolved"]
        assert len({heard.message["alerts"][0]["fingerprint"] for heard in receiver.heard}) == 1

    play(scene())
    assert [row["attempts"] for row in list_alerts(box)["alerts"]] == [1, 3]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413, 422, 301, 304])
def test_lasting_trouble_is_a_dead_letter_at_once(box: sqlite3.Connection, status: int) -> None:
    async def scene() -> None:
        async with Receiver(status).open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook()], transact_on(box)).drain()
        assert len(receiver.heard) == 1

    play(scene())
    (row,) = list_alerts(box)["alerts"]
    assert (row["state"], row["attempts"]) == ("dead", 1)
    assert row["error"].startswith(f"the receiver answered {status} ")


def test_redirects_are_not_followed(box: sqlite3.Connection) -> None:
    """To a private address, for one: 169.254.169.254 and its like."""

    async def scene() -> None:
        async with Receiver().open() as inner:
            reply = f"HTTP/1.1 307 On\r\nLocation: http://127.0.0.1:{inner.port}/\r\nContent-Length: 0\r\n\r\n"
            async with Receiver(reply.encode()).open() as outer:
                put(box, "a", "firing")
                await quick([outer.webhook()], transact_on(box)).drain()
        assert (outer.connections, inner.connections) == (1, 0)

    play(scene())
    assert list_alerts(box)["alerts"][0]["error"] == "the receiver answered 307 Temporary Redirect"


def test_gives_up_after_so_many_attempts_and_goes_on(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver(500, 500, 500).open() as receiver:
            put(box, "a", "firing")
            put(box, "a", "resolved")
            await quick([receiver.webhook()], transact_on(box), attempts=3).drain()
        assert [heard.about[1] for heard in receiver.heard] == ["firing"] * 3 + ["resolved"]

    play(scene())
    assert states(box) == [("firing", "dead"), ("resolved", "sent")]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (silence, "there was no answer within 0.2 s"),
        (dripping_head, "there was no answer within 0.2 s"),
        (b"", "the request failed: Server disconnected"),
        (b"220 smtp ready\r\n\r\n", "the request failed: "),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000, "the request failed: "),
        (b"HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n", "the receiver answered 999"),
    ],
    ids=["silence", "dripping", "hangs-up", "not-http", "endless-head", "strange-status"],
)
def test_bad_receivers(box: sqlite3.Connection, reply: Reply, error: str) -> None:
    async def scene() -> None:
        async with Receiver(reply).open() as receiver:
            put(box, "a", "firing")
            patience = 0.2 if "0.2 s" in error else 10.0
            await quick([receiver.webhook(timeout=patience, token="hush")], transact_on(box), attempts=1).drain()

    play(scene())
    (row,) = list_alerts(box)["alerts"]
    assert row["state"] == "dead"
    assert row["error"].startswith(error)
    assert "s3cr3t" not in row["error"]
    assert "hush" not in row["error"]


@pytest.mark.parametrize(("reply", "farewell"), [(endless, 10.0), (dripping, 0.1)], ids=["endless", "dripping"])
def test_body_of_an_answer_is_not_waited_for(
    box: sqlite3.Connection, reply: Reply, farewell: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a long one nor a slow one."""
    monkeypatch.setattr(delivery, "BODY_SECONDS", farewell)

    async def scene() -> None:
        async with Receiver(reply).open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook(timeout=15.0)], transact_on(box)).drain()

    start = time.monotonic()
    play(scene())
    assert time.monotonic() - start < 7.0
    assert states(box) == [("firing", "sent")]


def test_nobody_there(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver:
            pass
        put(box, "a", "firing")
        await quick([receiver.webhook()], transact_on(box), attempts=2).drain()

    play(scene())
    (row,) = list_alerts(box)["alerts"]
    assert (row["state"], row["attempts"]) == ("dead", 2)
    assert "the request failed" in row["error"]


def test_name_that_does_not_resolve(box: sqlite3.Connection) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    put(box, "a", "firing")
    play(quick([OPS], transact_on(box), attempts=1, resolve=nowhere).drain())
    assert list_alerts(box)["alerts"][0]["error"] == "the request failed: the host's name cannot be resolved"


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("Retry-After: 0.3", 0.0, 0.9),  # not an integer: invalid, so ignored
        ("Retry-After: 1", 1.0, 9.0),
        ("Date: Tue, 14 Nov 2023 22:13:20 GMT\r\nRetry-After: Tue, 14 Nov 2023 22:13:21 GMT", 1.0, 9.0),
        ("Retry-After: Tue, 14 Nov 2023 22:13:21 GMT", 0.0, 0.9),  # long ago
        ("Retry-After: soon", 0.0, 0.9),
        ("Retry-After: -5", 0.0, 0.9),
        ("X: y", 0.0, 0.9),
    ],
)
def test_retry_after(box: sqlite3.Connection, header: str, least: float, most: float) -> None:
    async def scene() -> float:
        reply = f"HTTP/1.1 503 Later\r\n{header}\r\nContent-Length: 0\r\n\r\n".encode()
        async with Receiver(reply).open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook()], transact_on(box)).drain()
        return receiver.times[1] - receiver.times[0]

    assert least <= play(scene()) <= most


@pytest.mark.parametrize("wish", ["99999", "9" * 4_000, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_is_bounded(wish: str) -> None:
    response = httpcore2.Response(503, headers=[(b"Retry-After", wish.encode())])
    assert delivery.result_of(response).retry_after == delivery.MAX_RETRY_AFTER


def test_pauses_grow_and_are_not_in_step(box: sqlite3.Connection) -> None:
    sender = Sender([], transact_on(box))
    for tries, full in [(0, 1.0), (1, 2.0), (5, 32.0), (8, 256.0), (9, 300.0), (11, 300.0), (10_000, 300.0)]:
        pauses = [sender._delay(tries) for _ in range(200)]
        assert full / 2 <= min(pauses) < 0.6 * full
        assert 0.9 * full < max(pauses) <= full


def test_pauses_grow_in_earnest(box: sqlite3.Connection) -> None:
    async def scene() -> list[float]:
        async with Receiver(500, 500, 500).open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook()], transact_on(box), first=0.1, longest=10.0).drain()
        return [later - earlier for earlier, later in zip(receiver.times, receiver.times[1:], strict=False)]

    for pause, full in zip(play(scene()), [0.1, 0.2, 0.4], strict=True):
        assert full / 2 <= pause <= full + 2.0


def test_slow_receiver_does_not_hold_up_the_others(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver(*[silence] * 40).open() as slow, Receiver().open() as fast:
            webhooks = [slow.webhook("slow", timeout=30.0), fast.webhook("fast")]
            for i in range(20):
                put(box, f"s{i}", "firing", *webhooks)
            async with quick(webhooks, transact_on(box)) as sender:
                await until(lambda: len(fast.heard) == 20)
                await until(lambda: len(slow.heard) == MAX_CONCURRENT)
                await sender.stop(grace=0.0)
            assert slow.busiest == MAX_CONCURRENT

    start = time.monotonic()
    play(scene())
    assert time.monotonic() - start < 10.0
    assert {state for _, state in states(box)} == {"sent", "pending"}


def test_bad_stream_does_not_hold_up_the_others(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver(500, *[200] * 5, 500).open() as receiver:
            for stream in "abcdef":
                put(box, stream, "firing")
            await quick([receiver.webhook()], transact_on(box), first=0.2, longest=0.2).drain()
        assert [heard.about[0] for heard in receiver.heard].count("a") >= 1
        assert len(receiver.heard) == 8

    play(scene())
    assert {state for _, state in states(box)} == {"sent"}


def test_wakes_when_told_from_another_thread(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver, quick([receiver.webhook()], transact_on(box), poll=60.0) as sender:
            await asyncio.sleep(0.05)
            put(box, "a", "firing")
            await asyncio.sleep(0.05)
            assert not receiver.heard
            thread = threading.Thread(target=sender.wake)
            thread.start()
            await until(lambda: len(receiver.heard) == 1)
            thread.join()

    play(scene())


def test_wakes_by_itself(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver, quick([receiver.webhook()], transact_on(box), poll=0.05):
            await asyncio.sleep(0.02)
            put(box, "a", "firing")
            await until(lambda: len(receiver.heard) == 1)

    play(scene())


def test_waking_a_sender_that_does_not_run(box: sqlite3.Connection) -> None:
    sender = quick([], transact_on(box))
    sender.wake()

    async def scene() -> None:
        async with sender:
            sender.wake()

    play(scene())
    sender.wake()


def test_runs_again_in_another_loop(box: sqlite3.Connection) -> None:
    async def scene(sender: Sender, receiver: Receiver, stream: str) -> None:
        async with receiver.open():
            sender.webhooks = {"ops": receiver.webhook()}
            async with sender:
                await asyncio.sleep(0.02)
                put(box, stream, "firing")
                sender.wake()
                await until(lambda: len(receiver.heard) == 1)

    sender = quick([], transact_on(box))
    play(scene(sender, Receiver(), "a"))
    play(scene(sender, Receiver(), "b"))


def test_stop_leaves_what_is_under_way_pending_and_the_next_run_sends_it(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver(silence).open() as receiver:
            webhook = receiver.webhook()
            put(box, "a", "firing")
            async with quick([webhook], transact_on(box)) as sender:
                await until(lambda: len(receiver.heard) == 1)
                await sender.stop(grace=0.05)
            assert states(box) == [("firing", "pending")]
            await quick([webhook], transact_on(box)).drain()  # after the restart
            assert len(receiver.heard) == 2

    play(scene())
    assert states(box) == [("firing", "sent")]


def test_stop_lets_a_request_finish(box: sqlite3.Connection) -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.2)
        writer.write(b"HTTP/1.1 204 Fine\r\n\r\n")
        await writer.drain()

    async def scene() -> None:
        async with Receiver(slow).open() as receiver:
            put(box, "a", "firing")
            put(box, "a", "resolved")
            async with quick([receiver.webhook()], transact_on(box)):
                await until(lambda: len(receiver.heard) == 1)
        assert len(receiver.heard) == 1

    play(scene())
    assert states(box) == [("firing", "sent"), ("resolved", "pending")]


def test_everything_pending_is_due_after_a_restart(box: sqlite3.Connection) -> None:
    """Long pauses of the last run are forgotten; the attempts are not."""

    async def scene() -> None:
        async with Receiver(500).open() as receiver:
            put(box, "a", "firing")
            async with quick([receiver.webhook()], transact_on(box), first=60.0, longest=60.0):
                await until(lambda: due_alerts(box)[0].attempts == 1)
            await quick([receiver.webhook()], transact_on(box), first=60.0).drain()

    play(scene())
    assert list_alerts(box)["alerts"][0]["attempts"] == 2


def test_clock_jumps_do_not_matter(box: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Receiver(500, 500).open() as receiver:
            put(box, "a", "firing", now=4e9)  # written in the year 2096
            put(box, "b", "firing", now=0.0)
            monkeypatch.setattr(time, "time", lambda: 1e9)
            await quick([receiver.webhook()], transact_on(box)).drain()

    play(scene())
    assert {state for _, state in states(box)} == {"sent"}


def flaky(box: sqlite3.Connection, failures: list[bool]) -> Transact:
    """Storage that fails when the next of the failures is true."""
    honest = transact_on(box)

    async def access(work: Callable[[sqlite3.Connection], T], /) -> T:
        if failures and failures.pop(0):
            raise sqlite3.OperationalError("database or disk is full")
        return await honest(work)

    return access


def test_outcome_that_cannot_be_written_is_remembered(
    box: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver:
            put(box, "a", "firing")
            sender = quick([receiver.webhook()], flaky(box, [True] * 5), read=transact_on(box))
            await sender.drain()
        assert len(receiver.heard) == 1  # once, though storage failed five times

    with caplog.at_level(logging.CRITICAL, "exchangeable.service.alerts"):
        play(scene())
    assert states(box) == [("firing", "sent")]


def test_outlives_a_storage_that_cannot_be_read(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver:
            put(box, "a", "firing")
            reader = flaky(box, [True, True, False, True, True, False])
            async with quick([receiver.webhook()], transact_on(box), read=reader):
                await until(lambda: states(box) == [("firing", "sent")])

    play(scene())


def test_receiver_that_left_the_settings(box: sqlite3.Connection) -> None:
    put(box, "a", "firing")
    play(quick([CHAT], transact_on(box)).drain())
    (row,) = list_alerts(box)["alerts"]
    assert (row["state"], row["error"]) == ("dead", "the receiver is not in the settings")


def test_no_alert_is_lost_over_random_trouble(box: sqlite3.Connection) -> None:
    """A hundred alerts, one answer in two bad, the sender stopped again and again: all arrive, each stream in order."""
    kinds: list[Reply] = [500, b"", 200, 429, 200, b"junk\r\n\r\n", 200]
    replies = [kinds[i * i % 7] for i in range(400)]

    async def scene() -> Receiver:
        async with Receiver(*replies).open() as receiver:
            for i in range(50):
                put(box, f"s{i % 5}", "resolved" if i // 5 % 2 else "firing", now=NOW + i)
            while due_alerts(box):
                async with quick([receiver.webhook()], transact_on(box), attempts=1_000) as sender:
                    await asyncio.sleep(0.03)
                    await sender.stop(grace=0.0)
        return receiver

    receiver = play(scene())
    assert {state for _, state in states(box)} == {"sent"}
    for stream in {heard.about[0] for heard in receiver.heard}:
        mine = [heard for heard in receiver.heard if heard.about[0] == stream]
        once = [
            this
            for this, last in zip(mine, [None, *mine], strict=False)
            if last is None or this.message != last.message
        ]
        assert [heard.about[1] for heard in once] == ["firing", "resolved"] * 5


def test_nothing_secret_is_logged(box: sqlite3.Connection, caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with Receiver(500, 400).open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook(token="hush")], transact_on(box)).drain()

    with caplog.at_level(logging.DEBUG):
        play(scene())
    assert "the receiver answered 400 Bad Request" in caplog.text
    assert "hush" not in caplog.text
    assert "s3cr3t" not in caplog.text


def test_proxies_of_the_environment_are_ignored(box: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with Receiver().open() as proxy, Receiver().open() as receiver:
            for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"):
                monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            put(box, "a", "firing")
            await quick([receiver.webhook()], transact_on(box)).drain()
        assert (proxy.connections, len(receiver.heard)) == (0, 1)

    play(scene())


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:100.64.0.1",
        "::ffff:0.0.0.0",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:0a00:1::",
        "2002:a9fe:a9fe::",
        "2002:6440:1::",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%1",
        "fec0::1",
        "ff02::1",
        "4000::1",
    ],
)
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.43.8",
        "223.255.255.255",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_is_public(address: str) -> None:
    assert is_public(address)


@settled(500)
@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_nothing_that_python_calls_special_is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """The standard library is an independent opinion: what it refuses, we refuse (but for IPv4 inside IPv6)."""
    carries = address.version == 6 and (address.ipv4_mapped or address in ipaddress.ip_network("64:ff9b::/96"))
    special = not address.is_global or address.is_multicast or address.is_reserved or address.is_link_local
    assert carries or not (is_public(str(address)) and special)


TRICKS = {
    "loopback": "127.0.0.1",
    "decimal": "2130706433",
    "hexadecimal": "0x7f000001",
    "hexadecimal, short": "0x7f.1",
    "octal": "0177.0.0.1",
    "octal, long": "0000000177.0.0.01",
    "short": "127.1",
    "another loopback": "127.9.9.9",
    "this network": "0.0.0.0",
    "zero": "0",
    "localhost": "localhost",
    "localhost, rooted": "localhost.",
    "localhost, in capitals": "LOCALHOST",
    "ipv6 loopback": "[::1]",
    "ipv6 unspecified": "[::]",
    "mapped": "[::ffff:127.0.0.1]",
    "mapped, in hexadecimal": "[::ffff:7f00:1]",
    "compatible": "[::127.0.0.1]",
    "6to4": "[2002:7f00:1::]",
    "nat64": "[64:ff9b::7f00:1]",
    "cloud metadata": "169.254.169.254",
    "cloud metadata, decimal": "2852039166",
    "private": "10.0.0.1",
    "carrier's": "100.64.0.1",
    "link-local": "[fe80::1]",
    "multicast": "224.0.0.1",
    "broadcast": "255.255.255.255",
}


@pytest.mark.parametrize("host", TRICKS.values(), ids=TRICKS)
def test_trick_is_refused_at_connect(box: sqlite3.Connection, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real server listens, and nobody comes. Spellings that no URL may hold are tried on the connection itself."""
    reached: list[str] = []
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", lambda self, host, *rest: reached.append(host))

    async def scene() -> None:
        async with Receiver().open() as receiver:
            with pytest.raises((ForbiddenAddressError, httpcore2.ConnectError)) as refusal:
                await CheckedBackend(allow_private=False).connect_tcp(host.strip("[]"), receiver.port)
            resolves = "resolved" not in str(refusal.value)  # a system without IPv6 may not know its spellings
            assert isinstance(refusal.value, ForbiddenAddressError) or not resolves
            with suppress(ValueError):
                webhook = receiver.webhook(host=host, allow_private=False)
                put(box, "a", "firing")
                await quick([webhook], transact_on(box), attempts=1).drain()
                assert "must have public addresses only" in list_alerts(box)["alerts"][0]["error"] or not resolves
        assert receiver.connections == 0

    play(scene())
    assert not reached


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f.1", "2130706433"])
def test_same_hosts_are_reached_when_the_operator_allows(box: sqlite3.Connection, host: str) -> None:
    """So that the tests above can fail."""

    async def scene() -> None:
        async with Receiver().open() as receiver:
            put(box, "a", "firing")
            await quick([receiver.webhook(host=host)], transact_on(box), attempts=1).drain()
        assert len(receiver.heard) == 1

    play(scene())
    assert states(box) == [("firing", "sent")]


class Changing:
    """A name server whose mind changes: the answers one after the other, then the last for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_rebinding_between_check_and_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is asked for once, and the connection goes to the very address that was judged."""
    reached: list[str] = []

    async def connect(self: object, host: str, *rest: object) -> None:
        reached.append(host)
        raise httpcore2.ConnectError("not in a test")

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
    names = Changing(["192.0.43.8"], ["127.0.0.1"])

    async def scene() -> None:
        network = CheckedBackend(allow_private=False, resolve=names)
        with pytest.raises(httpcore2.ConnectError, match="not in a test"):
            await network.connect_tcp("rebind.example.org", 80)
        with pytest.raises(ForbiddenAddressError, match=r"got 127\.0\.0\.1"):
            await network.connect_tcp("rebind.example.org", 80)

    play(scene())
    assert reached == ["192.0.43.8"]
    assert names.asked == ["rebind.example.org"] * 2


def test_rebinding_between_attempts(box: sqlite3.Connection) -> None:
    """A real server, a name that is public first and then leads to it: no attempt arrives."""

    async def scene() -> None:
        async with Receiver().open() as receiver:
            put(box, "a", "firing")
            names = Changing([], ["127.0.0.1"])
            webhook = receiver.webhook(host="rebind.example.org", allow_private=False)
            await quick([webhook], transact_on(box), attempts=4, resolve=names).drain()
        assert receiver.connections == 0
        assert len(names.asked) == 4

    play(scene())
    assert list_alerts(box)["alerts"][0]["error"].endswith("got 127.0.0.1")


@pytest.mark.parametrize("answer", [["192.0.43.8", "127.0.0.1"], ["10.0.0.1", "192.0.43.8"], ["192.0.43.8", "::1"]])
def test_one_private_address_among_several_spoils_them_all(answer: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", lambda self, host, *rest: reached.append(host))
    with pytest.raises(ForbiddenAddressError):
        play(CheckedBackend(allow_private=False, resolve=Changing(answer)).connect_tcp("mixed.example.org", 80))
    assert not reached


def test_next_address_is_tried_when_one_does_not_answer(box: sqlite3.Connection) -> None:
    async def scene() -> None:
        async with Receiver().open() as receiver:
            put(box, "a", "firing")
            names = Changing(["127.0.0.77", "127.0.0.1"])
            await quick([receiver.webhook(host="two.example.org")], transact_on(box), attempts=1, resolve=names).drain()
        assert receiver.heard[0].headers["host"] == f"two.example.org:{receiver.port}"

    play(scene())
    assert states(box) == [("firing", "sent")]


def test_sockets_of_this_machine_are_not_connected_to() -> None:
    with pytest.raises(ForbiddenAddressError):
        play(CheckedBackend(allow_private=True).connect_unix_socket("/run/docker.sock"))


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for hook.example.org, with its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate for this test, and is not installed")
    folder = tmp_path_factory.mktemp("tls")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=hook.example.org"
    words += " -addext subjectAltName=DNS:hook.example.org -keyout key.pem -out certificate.pem"
    subprocess.run([openssl, *words.split()], cwd=folder, check=True, capture_output=True)
    return folder


def secure(receiver: Receiver, certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
    context.sni_callback = lambda connection, name, _: setattr(receiver, "servername", name)
    return context


@pytest.mark.parametrize(
    ("host", "trusted", "arrives"),
    [("hook.example.org", True, True), ("hook.example.org", False, False), ("other.example.org", True, False)],
)
def test_tls_is_verified_against_the_name(
    box: sqlite3.Connection, certificate: Path, host: str, trusted: bool, arrives: bool
) -> None:
    context = ssl.create_default_context(cafile=str(certificate / "certificate.pem")) if trusted else None
    receiver = Receiver()

    async def scene() -> None:
        async with receiver.open(secure(receiver, certificate)):
            put(box, "a", "firing")
            webhook = receiver.webhook(host=host, scheme="https", token="hush")
            names = Changing(["127.0.0.1"])
            await quick([webhook], transact_on(box), attempts=1, resolve=names, context=context).drain()

    play(scene())
    assert receiver.servername == host
    assert bool(receiver.heard) == arrives
    if arrives:
        assert receiver.heard[0].headers["host"] == f"{host}:{receiver.port}"
    else:
        assert "CERTIFICATE_VERIFY_FAILED" in list_alerts(box)["alerts"][0]["error"]


# ---------------------------------------------------------------- the test alert


def test_test_alert_goes_the_same_way() -> None:
    async def scene() -> None:
        async with Receiver().open() as good, Receiver(404).open() as bad:
            webhooks = [good.webhook("good"), bad.webhook("bad"), good.webhook("shy", allow_private=False)]
            outcomes = await alerts.test_alert(webhooks, "https://monitor.example.org")
            assert [(outcome.receiver, outcome.delivered) for outcome in outcomes] == [
                ("good", True),
                ("bad", False),
                ("shy", False),
            ]
            assert [outcome.error for outcome in outcomes][:2] == ["", "the receiver answered 404 Not Found"]
            assert "allow_private" in outcomes[2].error
        assert [heard.about for heard in good.heard] == [("TEST", "firing"), ("TEST", "resolved")]
        assert "This is a test" in good.heard[0].message["commonAnnotations"]["description"]

    play(scene())


def test_test_alert_without_receivers() -> None:
    assert play(alerts.test_alert([])) == []
