"""One delivery: a request to a webhook, and the meaning of its response."""

from __future__ import annotations

import asyncio
import ssl
import time
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import NamedTuple

import httpcore2

from exchangeable.service.addresses import CheckedBackend, Resolve
from exchangeable.service.alerts.webhook import Webhook

USER_AGENT = "exchangeable"
MAX_RETRY_AFTER = 3_600.0  # seconds that a receiver may ask us to wait
MAX_BODY = 1 << 14  # bytes read of a response's body, which is not used
BODY_SECONDS = 1.0  # for the rest of a response
TRANSIENT = {408, 425, 429}  # 4xx statuses that are worth another attempt


class Result(NamedTuple):
    """The outcome of one request."""

    error: str = ""  # empty: the receiver accepted the alert
    permanent: bool = False  # another attempt would fail too
    retry_after: float = 0.0  # seconds that the receiver asked us to wait


async def post(webhook: Webhook, body: bytes, resolve: Resolve, context: ssl.SSLContext | None) -> Result:
    """Send one request on a new connection: no redirects, no proxy, no cookies, and within the timeout."""
    headers: list[tuple[bytes | str, bytes | str]] = [("Content-Type", "application/json"), ("User-Agent", USER_AGENT)]
    if webhook.token is not None:
        headers.append(("Authorization", f"Bearer {webhook.token}"))
    network = CheckedBackend(webhook.allow_private, resolve)
    pool = httpcore2.AsyncConnectionPool(context, max_keepalive_connections=0, network_backend=network)
    result = None
    try:
        async with asyncio.timeout(webhook.timeout) as limit:
            async with pool, pool.stream("POST", webhook.target, headers=headers, content=body) as response:
                result = result_of(response)
                limit.reschedule(asyncio.get_running_loop().time() + BODY_SECONDS)
                await _read_body(response)
    except (TimeoutError, httpcore2.TimeoutException):
        return result or Result(f"there was no answer within {webhook.timeout:g} s")
    except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        return result or Result(f"the request failed: {error}")
    return result


def result_of(response: httpcore2.Response) -> Result:
    """Return the result that a response stands for, from its status and headers only; its body is never shown."""
    status = response.status
    if 200 <= status < 300:
        return Result()
    permanent = 300 <= status < 500 and status not in TRANSIENT
    message = f"the receiver answered {status} {responses.get(status, '')}".rstrip()
    return Result(message, permanent, _retry_after(response))


def _retry_after(response: httpcore2.Response) -> float:
    """Return the seconds of ``Retry-After``: a number, or a date by the receiver's clock; limited to an hour."""
    fields = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    text = fields.get(b"retry-after", "").strip()
    try:
        if text.isdigit():
            seconds = float(text)
        else:
            seconds = _timestamp(text) - (_timestamp(fields[b"date"]) if b"date" in fields else time.time())
    except (OverflowError, TypeError, ValueError):  # missing or invalid
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def _timestamp(text: str) -> float:
    return parsedate_to_datetime(text).timestamp()


async def _read_body(response: httpcore2.Response) -> None:
    """Read the body if it is short, so that the receiver does not see its connection reset."""
    size = 0
    async for part in response.aiter_stream():
        size += len(part)
        if size > MAX_BODY:
            return
