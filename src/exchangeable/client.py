"""A client of the monitoring server that numbers, batches and retries, so that nothing is lost or counted twice.

>>> client = Client("http://127.0.0.1:8000", token="ex_...")  # doctest: +SKIP
>>> client.create("pump", {"alarm": {"kind": "ville", "alpha": 0.05}})  # doctest: +SKIP
>>> with client.stream("pump") as stream:  # doctest: +SKIP
...     for reading in readings:
...         stream.send(reading)
>>> stream.state["alarm"]  # doctest: +SKIP
False
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable import snapshot
from exchangeable.monitor import Monitor
from exchangeable.protocols import in_interval, whole

try:
    import httpx2
except ImportError as missing:
    raise ImportError("the client needs httpx2: pip install 'exchangeable[client]'") from missing

if TYPE_CHECKING:
    from httpx2 import Response

__all__ = ["Client", "ClientError", "Event", "Stream"]
AGAIN = frozenset({429, 502, 503, 504, 507})  # refusals that pass: overload, restart, a full disk
FIRST_REST, LONGEST_REST = 0.2, 30.0  # seconds before the first new attempt, and at most
LAST_SEQ = 2**53 - 1
SILENCE = 45.0  # seconds: three heartbeats of events
NDJSON = {"Content-Type": "application/x-ndjson"}


class ClientError(Exception):
    """What the server refused, or that it could not be reached.

    ``status`` is None where there was no answer; ``code`` is a word for programs, ``message`` a sentence, and ``body``
    all that the server said.
    """

    def __init__(self, status: int | None, code: str, message: str, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(message if status is None else f"{message} ({status} {code})")
        self.status = status
        self.code = code
        self.message = message
        self.body = dict(body or {})


class _Passing(Exception):  # noqa: N818
    """A failure that may pass: the error it would be, and how long the server asks to wait."""

    def __init__(self, error: ClientError, wait: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait


class Event(NamedTuple):
    """What happened in a stream: "state", "steps", "reset" or "gone"; ``id`` is the number of the step."""

    kind: str
    id: int | None
    data: dict[str, Any]


class Client:
    """Speaks to a server. Failures that may pass are tried again with growing rests, for ``patience`` seconds.

    Not for several threads at once: each takes a client of its own.
    """

    def __init__(
        self, base_url: str, token: str | None = None, timeout: float = 30.0, *, patience: float = 60.0
    ) -> None:
        self.patience = in_interval("patience", patience, -1.0, math.inf, "[0, inf]")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx2.Client(base_url=base_url, headers=headers, timeout=timeout, follow_redirects=False)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up the connection."""
        self._http.close()

    def create(self, name: str, configuration: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make a stream, or find that it is there with the same configuration; the stream as the server shows it."""
        return self._json("PUT", _path(name), json=dict(configuration or {}))

    def delete(self, name: str) -> None:
        """Remove a stream and all that is known of it."""
        self._request("DELETE", _path(name), patience=0.0)

    def stream(self, name: str, *, batch: int = 1000, age: float = 1.0, room: int = 100_000) -> Stream:
        """A stream to send to and to look at; see ``Stream``."""
        return Stream(self, name, batch=batch, age=age, room=room)

    def streams(self, q: str = "", *, page: int = 500) -> Iterator[dict[str, Any]]:
        """All streams whose name contains ``q``, by name."""
        offset = 0
        while True:
            given = {"q": q, "offset": offset, "limit": page, "order": "name"}
            found = self._json("GET", "/v1/streams", params=given)["streams"]
            yield from found
            offset += len(found)
            if len(found) < page:
                return

    def fleet(self, alpha: float = 0.05, method: str = "adjusted") -> dict[str, Any]:
        """Which streams have changed, at a false discovery rate of at most alpha."""
        return self._json("GET", "/v1/fleet", params={"alpha": alpha, "method": method})

    def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        return dict(self._request(method, path, **more).json())

    def _request(self, method: str, path: str, *, patience: float | None = None, **more: Any) -> Response:
        """A request, tried again while its failures may pass and patience lasts."""
        end = time.monotonic() + (self.patience if patience is None else patience)
        attempt = 0
        while True:
            try:
                return self._attempt(method, path, **more)
            except _Passing as failure:
                rest = max(failure.wait, _rest(attempt))
                if time.monotonic() + rest > end:
                    raise failure.error from failure.error.__cause__
                time.sleep(rest)
                attempt += 1

    def _attempt(self, method: str, path: str, **more: Any) -> Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx2.TransportError as error:
            raise _Passing(_unreachable(self._http, error)) from error
        if response.is_success:
            return response
        raise _refused(response)


class Stream:
    """Observations in order, to one stream of a server. One writer for each stream.

    ``send`` numbers an observation and keeps it in a buffer; when ``batch`` of them wait, or the oldest has waited for
    ``age`` seconds, they go out in one request. There is no thread: age is looked at when something is sent, so end
    with ``flush``, or use the stream in a ``with`` block, which flushes. Whatever else asks the server flushes first.

    Failures that may pass (no connection, a timeout, overload, a restart) do not stop ``send``: it keeps the
    observations, and tries again after a rest that grows. When ``room`` of them wait, ``send`` blocks, as ``flush``
    does, for the client's patience, and then raises ``ClientError``: this observation was not taken. The same batch is
    sent again under the same numbers, and the server counts no number twice.

    A refusal that will not pass (a wrong observation, another writer, no such stream) is raised at once, and again by
    every later call; what waits stays in the buffer, until ``discard`` gives it back. Numbers go on from the server's
    ``next_seq``: whoever resumes a source of their own finds there how much of it has arrived.
    """

    def __init__(self, client: Client, name: str, *, batch: int = 1000, age: float = 1.0, room: int = 100_000) -> None:
        self.name = name
        self.batch = whole("batch", batch, 1, 10_000)
        self.age = in_interval("age", age, -1.0, math.inf, "[0, inf]")
        self.room = whole("room", room, self.batch, 10**9)
        self._client = client
        self._path = _path(name)
        self._lines: list[bytes] = []  # observations from number _first on; those before _due have arrived
        self._first = self._due = 0  # 0: the server has not been asked yet
        self._oldest = math.inf  # when the oldest that waits was sent
        self._rested, self._attempts = 0.0, 0
        self._failure: ClientError | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.flush()
        except ClientError:
            if error is None:
                raise

    # ------------------------------------------------------------------ sending

    @property
    def next_seq(self) -> int:
        """The number of the next observation to be sent."""
        self._begin()
        return self._first + len(self._lines)

    @property
    def pending(self) -> int:
        """How many observations wait to be sent, or to be acknowledged."""
        return self._first + len(self._lines) - self._due

    def send(self, x: Any, y: Any = None, id: str | None = None, time: Any = None) -> None:  # noqa: A002
        """Take one observation: a number or a list of numbers, and what belongs to it."""
        self._take([_observation(x, y, id, time)])

    def extend(self, X: Iterable[Any], y: Iterable[Any] | None = None) -> None:
        """Take many observations; if one of them is no observation, none is taken."""
        rows = list(X)
        labels = [None] * len(rows) if y is None else list(y)
        if len(labels) != len(rows):
            raise ValueError(f"y must hold one label for each row of X, got {len(labels)} labels for {len(rows)} rows")
        self._take([_observation(row, label) for row, label in zip(rows, labels, strict=True)])

    def flush(self) -> dict[str, Any] | None:
        """Send all that waits, and wait for the reply; the state of the stream then, or None if nothing waited."""
        self._check()
        state = None
        end = time.monotonic() + self._client.patience
        while self.pending:
            try:
                state = self._post()
            except _Passing as failure:
                if self._rest(failure) > end:
                    raise failure.error from failure.error.__cause__
                time.sleep(max(0.0, self._rested - time.monotonic()))
        return state

    def discard(self) -> list[dict[str, Any]]:
        """Give up what waits, and return it; the next observation is numbered as the server says then."""
        waiting = [json.loads(line) for line in self._lines[self._due - self._first :]]
        self._lines, self._failure, self._oldest = [], None, math.inf
        self._first = self._due = 0
        return waiting
