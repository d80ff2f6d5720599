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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from exchangeable import snapshot
from exchangeable._extras import check, needed
from exchangeable.monitor import Monitor
from exchangeable.validation import check_integer, check_interval

check("client", "the client")
with needed("client", "the client"):
    import httpx2

if TYPE_CHECKING:
    from httpx2 import Response

__all__ = ["Client", "ClientError", "Event", "Stream"]
AGAIN = frozenset({429, 502, 503, 504, 507})  # refusals that pass: overload, restart, a full disk
FIRST_REST, LONGEST_REST = 0.2, 30.0  # seconds before the first new attempt, and at most
LAST_SEQ = 2**53 - 1
LONGEST_WAIT = 300.0  # seconds, however long the server asks to wait
SILENCE = 45.0  # seconds: three heartbeats of events
T = TypeVar("T")
NDJSON = {"Content-Type": "application/x-ndjson"}
FULL = "too-many-waiting"  # too many observations wait for their labels


class ClientError(Exception):
    """What the server refused, or that it could not be reached.

    ``status`` is None where there was no answer; ``code`` is a word for programs, ``message`` a sentence, and ``body``
    all that the server said. Raised by ``send`` or ``extend``, ``taken`` is how many of their observations were taken
    into the buffer: these must not be sent again.
    """

    def __init__(self, status: int | None, code: str, message: str, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(message if status is None else f"{message} ({status} {code})")
        self.status = status
        self.code = code
        self.message = message
        self.body: dict[str, Any] = dict(body or {})
        self.taken = 0


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
        self.patience: float = check_interval("patience", patience, 0.0, math.inf, "(0, inf]")
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
        """Remove a stream and its history; its place in the fleet and the number of its tests are kept."""
        self._once("DELETE", _path(name))

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
        """Which streams have changed, at a false discovery rate of at most alpha; ``promise`` explains it in words."""
        return self._json("GET", "/v1/fleet", params={"alpha": alpha, "method": method})

    def _json(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        return dict(self._persist(lambda: self._request(method, path, **more)).json())

    def _persist(self, work: Callable[[], T]) -> T:
        """Do it again while its failures may pass and patience lasts."""
        end = time.monotonic() + self.patience
        attempt = 0
        while True:
            try:
                return work()
            except _Passing as failure:
                rest = max(failure.wait, _rest(attempt))
                if time.monotonic() + rest > end:
                    raise failure.error from failure
                time.sleep(rest)
                attempt += 1

    def _once(self, method: str, path: str) -> Response:
        """For what must not be done twice."""
        try:
            return self._request(method, path)
        except _Passing as failure:
            raise failure.error from failure

    def _request(self, method: str, path: str, **more: Any) -> Response:
        try:
            response = self._http.request(method, path, **more)
        except httpx2.TransportError as error:
            raise _Passing(self._unreachable(error)) from error
        if not response.is_success:
            raise _refusal(response)
        return response

    def _unreachable(self, error: Exception) -> ClientError:
        reason = " ".join(f"{type(error).__name__} {error}".split())
        return ClientError(None, "unreachable", f"{self._http.base_url} cannot be reached: {reason}")


class Stream:
    """Observations in order, to one stream of a server. One writer for each stream.

    ``send`` numbers an observation and keeps it in a buffer; when ``batch`` of them wait, or the oldest has waited for
    ``age`` seconds, they go out in one request. There is no thread: age is looked at when something is sent, so end
    with ``flush``, or use the stream in a ``with`` block, which flushes. Whatever else asks the server flushes first.

    Failures that may pass (no connection, a timeout, overload, a restart, a full disk, too many observations waiting
    for labels) do not stop ``send``: it keeps the observations, and tries again after a rest that grows. When ``room``
    of them wait, ``send`` blocks, as ``flush`` does, for the client's patience, and then raises ``ClientError``. The
    same observations are sent again under the same numbers, of which the server counts none twice. Those that have
    arrived are kept while there is room: if the server goes back (restored from a backup), it gets them again.

    A refusal that will not pass (a wrong observation, another writer, no such stream) is raised at once, and again by
    every later call; what waits stays in the buffer, until ``discard`` gives it back. Numbers go on from the server's
    ``next_seq``: whoever resumes a source of their own finds there how much of it has arrived.
    """

    def __init__(self, client: Client, name: str, *, batch: int = 1000, age: float = 1.0, room: int = 100_000) -> None:
        self.name = name
        self.batch: int = check_integer("batch", batch, 1, 10_000)
        self.age: float = check_interval("age", age, 0.0, math.inf, "(0, inf]")
        self.room: int = check_integer("room", room, self.batch, 10**9)
        self._client = client
        self._path = _path(name)
        self._lines: list[str] = []  # observations without their numbers; the first _arrived of them have arrived
        self._arrived = 0
        self._first: int | None = None  # the number of the first line, once the server has been asked
        self._most = self.batch  # lines in a request; fewer if these are too large
        self._oldest = math.inf  # when the oldest that waits was taken
        self._resting, self._attempts = 0.0, 0  # until when, after how many failures
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
        """The number of the next observation to be sent; asks the server at first."""
        self._check()
        return self._client._persist(self._begin) + len(self._lines)

    @property
    def pending(self) -> int:
        """How many observations wait to be sent, or for the reply."""
        return len(self._lines) - self._arrived

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
        """Send all that waits; the state of the stream after it, or None if nothing waited. Blocks, and tries again."""
        return self._flush()

    def _flush(self, until: str | None = None) -> dict[str, Any] | None:
        """Send all buffered observations; retry until the patience ends or the server's error code is ``until``."""
        self._check()
        state = None
        end = time.monotonic() + self._client.patience
        while self.pending:
            try:
                state = self._post()
            except _Passing as failure:
                self._rest(failure)
                if self._resting > end or failure.error.code == until:
                    raise failure.error from failure
                time.sleep(max(0.0, self._resting - time.monotonic()))
        return state

    def discard(self) -> list[dict[str, Any]]:
        """Give up what waits, and return it; the next observation gets the number that the server then expects."""
        waiting = [json.loads(line) for line in self._lines[self._arrived :]]
        self._lines, self._arrived, self._first = [], 0, None
        self._oldest, self._failure = math.inf, None
        return waiting

    def _take(self, lines: Sequence[str]) -> None:
        taken = 0
        try:
            self._check()
            for line in lines:
                if self.pending >= self.room:
                    self.flush()
                self._lines.append(line)
                taken += 1
                self._oldest = min(self._oldest, time.monotonic())
                self._go()
        except ClientError as error:
            error.taken = taken
            raise

    def _go(self) -> None:
        """Send what is due, unless the last failure was a moment ago."""
        now = time.monotonic()
        if now < self._resting or not self._is_due(now):
            return
        try:
            while self._is_due(now):
                self._post()
        except _Passing as failure:
            self._rest(failure)

    def _is_due(self, now: float) -> bool:
        return self.pending >= self.batch or (self.pending > 0 and now - self._oldest >= self.age)

    def _rest(self, failure: _Passing) -> None:
        self._resting = time.monotonic() + max(failure.wait, _rest(self._attempts))
        self._attempts += 1

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _post(self, most: int | None = None) -> dict[str, Any]:
        """One request with what waits, as much as fits; the state of the stream after it."""
        try:
            first = self._begin() + self._arrived
            lines = self._lines[self._arrived : self._arrived + (most or self._most)]
            body = "\n".join(f'{{"seq": {seq}, {line[1:]}' for seq, line in enumerate(lines, first))
            reply = self._client._request("POST", f"{self._path}/observations", content=body, headers=NDJSON).json()
        except ClientError as error:
            self._settle(error)
            return self._post()
        except _Passing as failure:
            room = failure.error.body.get("room", 0)
            if failure.error.code == FULL and 0 < room < len(lines):  # there is room for some of them
                return self._post(room)
            raise
        self._arrive(len(lines))
        return dict(reply["state"])

    def _begin(self) -> int:
        """The number of the first line; the server is asked once."""
        if self._first is None:
            self._first = self._asked()
        return self._first

    def _asked(self) -> int:
        try:
            return int(self._client._request("GET", self._path).json()["next_seq"])
        except ClientError as error:
            if error.status != 403:
                raise
        probe = f'{{"seq": {LAST_SEQ}, "x": 0}}'  # a token that may not read learns it from the refusal of a gap
        try:
            self._client._request("POST", f"{self._path}/observations", content=probe, headers=NDJSON)
        except ClientError as error:
            if error.code != "gap":
                raise
            return int(error.body["expected_seq"])
        raise ClientError(None, "full", f"stream {self.name!r} has used all numbers up to {LAST_SEQ}")

    def _settle(self, error: ClientError) -> None:
        """Put right what a refusal asks for, or keep the refusal and raise it."""
        first, waiting = self._first or 0, min(self.pending, self._most)
        if error.code == "too-large" and waiting > 1:
            self._most = waiting // 2
            return
        if error.code == "gap" and first <= error.body["expected_seq"] < first + self._arrived:
            self._arrived = error.body["expected_seq"] - first  # the server has gone back
            return
        if error.code == "gap":
            said = f"{error.message}, which this client no longer has"
            error = ClientError(error.status, error.code, said, error.body)
        if error.code == "different":
            said = f"{error.message}: another writer sends to this stream, and it must have one only"
            error = ClientError(error.status, error.code, said, error.body)
        self._failure = error
        raise error

    def _arrive(self, count: int) -> None:
        self._arrived += count
        surplus = min(self._arrived, len(self._lines) - self.room)
        if surplus > 0:
            del self._lines[:surplus]
            self._arrived -= surplus
            self._first = (self._first or 0) + surplus
        self._oldest = time.monotonic() if self.pending else math.inf
        self._resting, self._attempts = 0.0, 0

    # ------------------------------------------------------------------ looking, and the rest

    @property
    def state(self) -> dict[str, Any]:
        """Where the stream stands: n, p, log10_martingale, log10_max, alarm, alarm_at, changepoint, guarantee."""
        return dict(self.show()["state"])

    def show(self) -> dict[str, Any]:
        """The stream as the server shows it: configuration, state, next_seq and more."""
        self.flush()
        return self._client._json("GET", self._path)

    def history(self, start: int = 1, stop: int | None = None, max_points: int = 1000) -> dict[str, Any]:
        """The capital from one step to another, thinned to ``max_points``, which keeps lows and highs, as columns."""
        self.flush()
        given = {"from": start, "max_points": max_points} | ({} if stop is None else {"to": stop})
        return self._client._json("GET", f"{self._path}/history", params=given)

    def label(self, id: str, y: str | float, time: Any = None) -> dict[str, Any]:  # noqa: A002
        """Send the label of a waiting observation, by its id; return the server's reply.

        ``time`` is when the label came, by the clock that gave the times of the observations: a number of seconds, or a
        date and time with a UTC offset. Leave it out if the stream waits forever, or uses the server's clock.
        """
        return self._label({"id": id, "y": _plain(y)} | ({} if time is None else {"time": _time(time)}))

    def never(self, id: str) -> dict[str, Any]:  # noqa: A002
        """State that the label of an observation will never come. This may depend on that observation only."""
        return self._label({"id": id, "never": True})

    def _label(self, line: dict[str, Any]) -> dict[str, Any]:
        """Send the buffered observations, then this; if too many wait for their labels, this goes first."""
        full: ClientError | None = None
        try:
            self._flush(until=FULL)
        except ClientError as error:
            if error.code != FULL:
                raise
            full = error
        try:
            return self._client._json("POST", f"{self._path}/labels", json=line)
        except ClientError as error:
            if full is not None and error.code == "unknown-id":  # its observation has not been accepted yet
                raise full from error
            raise

    def reset(self) -> dict[str, Any]:
        """Begin a new test with the next observation. Not tried again by itself: doing it twice is not the same."""
        self.flush()
        return dict(self._client._once("POST", f"{self._path}/reset").json())

    def export(self) -> Monitor:
        """The monitor of the stream, to go on with it here; ``exchangeable.save`` keeps it in a file."""
        self.flush()
        path = f"{self._path}/export"
        monitor = snapshot.decode(self._client._persist(lambda: self._client._request("GET", path)).content)
        if not isinstance(monitor, Monitor):
            raise ClientError(None, "bad-export", f"the export must be a monitor, got {type(monitor).__name__}")
        return monitor

    def events(self, last: int | None = None) -> Iterator[Event]:
        """What happens in the stream, from now on or from after step ``last``, until it is removed.

        A connection that breaks is made again and goes on after the last event: nothing is missed, though steps may
        come thinned. Ends by itself only with "gone"; leave the loop to end it earlier.
        """
        attempt = 0
        while True:
            try:
                for event in self._listen(last):
                    attempt = 0
                    last = last if event.id is None else event.id
                    yield event
                    if event.kind == "gone":
                        return
                failure = _Passing(ClientError(None, "ended", "the server ended the events"))
            except _Passing as error:
                failure = error
            time.sleep(max(failure.wait, _rest(attempt)))
            attempt += 1

    def _listen(self, last: int | None) -> Iterator[Event]:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        http = self._client._http
        timeout = httpx2.Timeout(http.timeout.connect, read=SILENCE)
        try:
            with http.sse(f"{self._path}/events", headers=headers, timeout=timeout) as source:
                if not source.response.is_success:
                    source.response.read()
                    raise _refusal(source.response)
                for event in source:
                    if event.data:
                        yield Event(event.event, int(event.id) if event.id else None, json.loads(event.data))
        except httpx2.TransportError as error:
            raise _Passing(self._client._unreachable(error)) from error


# ------------------------------------------------------------------ details


def _path(name: str) -> str:
    return f"/v1/streams/{quote(name, safe='')}"


def _rest(attempt: int) -> float:
    """Seconds before the next attempt: twice as long each time, and at random, so that clients do not come together."""
    longest = min(LONGEST_REST, FIRST_REST * 2.0 ** min(attempt, 20))
    return longest * (0.5 + 0.5 * random.random())  # noqa: S311 (no secret)


def _refusal(response: Response) -> ClientError | _Passing:
    """What the server said, in its words."""
    try:
        body = dict(response.json())
        error = ClientError(response.status_code, str(body["error"]), str(body["message"]), body)
    except (ValueError, TypeError, KeyError):  # a proxy's page, perhaps
        error = ClientError(response.status_code, "http", f"the server answered {response.reason_phrase!r}")
    if response.status_code not in AGAIN:
        return error
    wait = response.headers.get("retry-after", "")
    return _Passing(error, min(float(wait), LONGEST_WAIT) if wait.isascii() and wait.isdigit() else 0.0)


def _observation(x: Any, y: Any = None, id: str | None = None, time: Any = None) -> str:  # noqa: A002
    """An observation as JSON, without its number."""
    line = {"x": _x(x)}
    for key, value in (("y", _plain(y)), ("id", id), ("time", _time(time))):
        if value is not None:
            line[key] = value
    try:
        return json.dumps(line, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError(f"an observation must hold numbers and text that JSON can hold, got {line!r:.80}") from None


def _time(time: Any) -> Any:
    """Dates and times as ISO 8601 text; other values unchanged."""
    value = _plain(time)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _x(x: Any) -> Any:
    """A finite number, or a list of them."""
    value = _plain(x)
    row = list(value) if isinstance(value, (list, tuple)) else [value]
    lawful = all(isinstance(one, (int, float)) and not isinstance(one, bool) and math.isfinite(one) for one in row)
    if not row or not lawful:
        raise ValueError(f"x must be a finite number or a list of them, got {x!r:.80}")
    return row if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value
