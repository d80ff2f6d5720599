"""Requests to the server, with retries."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2

from exchangeable.client.errors import ClientError, TransientError, error_from

if TYPE_CHECKING:
    from httpx2 import Response

FIRST_DELAY, LONGEST_DELAY = 0.2, 30.0  # seconds before the first retry, and before any later one
EVENT_TIMEOUT = 45.0  # seconds: three heartbeats
T = TypeVar("T")


class Event(NamedTuple):
    """Something that happened in a stream: "state", "steps", "reset" or "gone"; ``id`` is the number of the step."""

    kind: str
    id: int | None
    data: dict[str, Any]


class Transport:
    """Sends requests to one server. Transient failures raise ``TransientError``, all others ``ClientError``."""

    def __init__(self, base_url: str, token: str | None, timeout: float, patience: float) -> None:
        self.patience = patience
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=base_url, headers=headers, timeout=timeout, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> Response:
        """Send one request and return its response, if that is a success."""
        try:
            response = self._http.request(method, path, **options)
        except httpx2.TransportError as error:
            raise TransientError(self._unreachable(error)) from error
        if not response.is_success:
            raise error_from(response)
        return response

    def request_once(self, method: str, path: str, **options: Any) -> Response:
        """Send a request that must not be repeated: every failure raises ``ClientError``."""
        try:
            return self.request(method, path, **options)
        except TransientError as failure:
            raise failure.error from failure

    def json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Send a request, with retries, and return the JSON object of the response."""
        return dict(self.retry(lambda: self.request(method, path, **options)).json())

    def retry(self, action: Callable[[], T]) -> T:
        """Repeat an action while its failures are transient and the patience lasts."""
        end = time.monotonic() + self.patience
        attempt = 0
        while True:
            try:
                return action()
            except TransientError as failure:
                delay = max(failure.retry_after, retry_delay(attempt))
                if time.monotonic() + delay > end:
                    raise failure.error from failure
                time.sleep(delay)
                attempt += 1

    def events(self, path: str, last: int | None) -> Iterator[Event]:
        """Yield the events of one connection; ``last`` is the id of the last event that was received before."""
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        timeout = httpx2.Timeout(self._http.timeout.connect, read=EVENT_TIMEOUT)
        try:
            with self._http.sse(path, headers=headers, timeout=timeout) as source:
                if not source.response.is_success:
                    source.response.read()
                    raise error_from(source.response)
                for event in source:
                    if event.data:
                        yield Event(event.event, int(event.id) if event.id else None, json.loads(event.data))
        except httpx2.TransportError as error:
            raise TransientError(self._unreachable(error)) from error

    def _unreachable(self, error: Exception) -> ClientError:
        reason = " ".join(f"{type(error).__name__} {error}".split())
        return ClientError(None, "unreachable", f"{self._http.base_url} cannot be reached: {reason}")


def retry_delay(attempt: int) -> float:
    """Return the seconds before the next attempt: doubled each time, and random, so that clients do not synchronise."""
    longest = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 20))
    return longest * (0.5 + 0.5 * random.random())  # noqa: S311 (not a secret)


def stream_path(name: str) -> str:
    """Return the path of a stream on the server."""
    return f"/v1/streams/{quote(name, safe='')}"
