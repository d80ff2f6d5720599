"""One stream of a server: sending observations to it, and querying it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from exchangeable import snapshot
from exchangeable.client.buffer import Buffer
from exchangeable.client.errors import ClientError, TransientError
from exchangeable.client.rows import encode_row, encode_rows, is_table, table_rows
from exchangeable.client.transport import Event, Transport, retry_delay, stream_path
from exchangeable.data.events.schema import LAST_SEQ, encode_example, encode_label
from exchangeable.monitor import Monitor
from exchangeable.rate import RateMonitor
from exchangeable.risk import Risk
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import check_integer, check_interval

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
TOO_MANY_WAITING = "too-many-waiting"  # error code: too many observations wait for their labels


class Stream:
    """Sends observations in order to one stream of a server. Each stream must have one writer only.

    ``send`` numbers an observation and adds it to a buffer. When the buffer holds ``batch`` pending observations, or
    the oldest is ``age`` seconds old, they are sent in one request. There is no thread: the age is checked when
    something is sent, so end with ``flush``, or use the stream in a ``with`` block, which flushes at its end. Every
    query flushes first.

    Transient failures (no connection, a timeout, overload, a restart, a full disk, too many observations waiting
    for labels) do not stop ``send``: it buffers the observations and retries after a growing delay. When ``capacity``
    observations are pending, ``send`` blocks, as ``flush`` does, for the client's patience, and then raises
    ``ClientError``. Observations are sent again under the same numbers, and the server counts none twice. Accepted
    observations are retained while there is room: a server that was restored from a backup gets them again.

    A permanent rejection (an invalid observation, another writer, an unknown stream) is raised at once, and again by
    every later call; pending observations stay in the buffer until ``discard`` returns them. Numbers continue from the
    server's ``next_seq``: use it to find how much of your source has been accepted.
    """

    def __init__(
        self, transport: Transport, name: str, *, batch: int = 1000, age: float = 1.0, capacity: int = 100_000
    ) -> None:
        self.name = name
        self.batch: int = check_integer("batch", batch, 1, 10_000)
        self.age: float = check_interval("age", age, 0.0, math.inf, "(0, inf]")
        self._transport = transport
        self._path = stream_path(name)
        self._buffer = Buffer(check_integer("capacity", capacity, self.batch, 10**9))
        self._max_rows = self.batch  # in a request; fewer if requests are too large
        self._retry_at, self._attempts = 0.0, 0  # after transient failures
        self._failure: ClientError | None = None

    @property
    def capacity(self) -> int:
        """How many observations the buffer may hold."""
        return self._buffer.capacity

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
        """The number of the next observation to be sent. The first access asks the server."""
        self._check()
        return self._transport.retry(self._first_seq) + len(self._buffer)

    @property
    def pending(self) -> int:
        """How many observations were not yet accepted by the server."""
        return self._buffer.pending

    def send(self, x: Any, y: Any = None, id: str | None = None, time: Any = None) -> None:  # noqa: A002
        """Send one observation: a number, a list of numbers, or a row of a table, with an optional id and time.

        A row is a mapping from columns to cells, its label among them. Otherwise ``y`` is the label, if there is one.
        """
        self._add([_encode(x, y, id, time)])

    def extend(
        self,
        X: Any,
        y: Iterable[Any] | None = None,
        *,
        ids: Iterable[str | None] | None = None,
        times: Iterable[Any] | None = None,
    ) -> None:
        """Send many observations; if one of them is invalid, none is sent.

        For a stream of the measure ``table`` these are a frame, a mapping of columns, or a list of rows.
        """
        self._add(encode_examples(X, y, ids, times))

    def set_reference(self, data: Any) -> dict[str, Any]:
        """Give a stream of the measure ``table`` its reference, before its first row; return its description.

        ``data`` is a frame, a mapping of columns, a list of rows, or a file (CSV, Parquet, JSONL). Sending the same
        reference again changes nothing.
        """
        body = encode_rows(table_rows(data))
        return self._transport.json("PUT", f"{self._path}/reference", content=body, headers=NDJSON)

    def flush(self) -> dict[str, Any] | None:
        """Send all pending observations, with retries; return the state afterwards, or None if none was pending."""
        return self._flush()

    def discard(self) -> list[dict[str, Any]]:
        """Drop the pending observations and return them; the next one gets the number that the server expects then."""
        self._failure = None
        return self._buffer.clear()

    def _flush(self, until: str | None = None) -> dict[str, Any] | None:
        """Send all pending observations; retry until the patience ends or the server's error code is ``until``."""
        self._check()
        state = None
        end = time.monotonic() + self._transport.patience
        while self.pending:
            try:
                state = self._post()
            except TransientError as failure:
                self._back_off(failure)
                if self._retry_at > end or failure.error.code == until:
                    raise failure.error from failure
                time.sleep(max(0.0, self._retry_at - time.monotonic()))
        return state

    def _add(self, lines: Sequence[bytes]) -> None:
        buffered = 0
        try:
            self._check()
            for line in lines:
                if self.pending >= self.capacity:
                    self.flush()
                self._buffer.add(line)
                buffered += 1
                self._post_due()
        except ClientError as error:
            error.buffered = buffered
            raise

    def _post_due(self) -> None:
        """Send full batches and old observations, unless a recent failure asks to wait."""
        if time.monotonic() < self._retry_at:
            return
        try:
            while self.pending >= self.batch or self._buffer.age >= self.age:
                self._post()
        except TransientError as failure:
            self._back_off(failure)

    def _back_off(self, failure: TransientError) -> None:
        self._retry_at = time.monotonic() + max(failure.retry_after, retry_delay(self._attempts))
        self._attempts += 1

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _post(self, limit: int | None = None) -> dict[str, Any]:
        """Send one request with pending observations, as many as fit; return the state of the stream afterwards."""
        count = 0
        try:
            body, count = self._buffer.body(self._first_seq(), limit or self._max_rows)
            reply = self._transport.request("POST", f"{self._path}/observations", content=body, headers=NDJSON).json()
        except ClientError as error:
            self._recover(error)
            return self._post()
        except TransientError as failure:
            room = failure.error.body.get("room", 0)
            if failure.error.code == TOO_MANY_WAITING and 0 < room < count:  # the server has room for some of them
                return self._post(room)
            raise
        self._buffer.mark_delivered(count)
        self._retry_at, self._attempts = 0.0, 0
        return dict(reply["state"])

    def _first_seq(self) -> int:
        """Return the number of the first observation in the buffer; the server is asked once."""
        if self._buffer.first_seq is None:
            self._buffer.first_seq = self._ask_next_seq()
        return self._buffer.first_seq

    def _ask_next_seq(self) -> int:
        try:
            return int(self._transport.request("GET", self._path).json()["next_seq"])
        except ClientError as error:
            if error.status != 403:
                raise
        try:  # a token that may not read gets the number from the gap error
            return self._probe('"x": 0')
        except ClientError as error:
            if error.status != 422:
                raise
        return self._probe('"row": {}')  # of a table

    def _probe(self, content: str) -> int:
        body = f'{{"seq": {LAST_SEQ}, {content}}}'
        try:
            self._transport.request("POST", f"{self._path}/observations", content=body, headers=NDJSON)
        except ClientError as error:
            if error.code != "gap":
                raise
            return int(error.body["expected_seq"])
        raise ClientError(None, "full", f"stream {self.name!r} has used all numbers up to {LAST_SEQ}")

    def _recover(self, error: ClientError) -> None:
        """Adapt the next request to a rejection, or store the rejection and raise it."""
        waiting = min(self.pending, self._max_rows)
        if error.code == "too-large" and waiting > 1:
            self._max_rows = waiting // 2
            return
        if error.code == "gap":
            if self._buffer.rewind(error.body["expected_seq"]):  # the server was restored from a backup
                return
            error = error.with_note(", which this client no longer has")
        if error.code == "different":
            error = error.with_note(": another writer sends to this stream, but it must have one only")
        self._failure = error
        raise error

    # ------------------------------------------------------------------ labels

    def label(self, id: str, y: str | float, time: Any = None) -> dict[str, Any]:  # noqa: A002
        """Send the label of a waiting observation, by its id; return the server's reply.

        ``time`` is when the label arrived, by the same clock as the times of the observations: a number of seconds, or
        a date and time with a UTC offset. Omit it if the stream waits forever, or uses the server's clock.
        """
        return self._label(encode_label(id, y, time))

    def never(self, id: str) -> dict[str, Any]:  # noqa: A002
        """State that the label of an observation will never arrive.

        For the guarantee to hold, this may depend on that observation only.
        """
        return self._label(encode_label(id, never=True))

    def _label(self, body: bytes) -> dict[str, Any]:
        """Send the pending observations, then this label; if too many wait for their labels, the label goes first."""
        full: ClientError | None = None
        try:
            self._flush(until=TOO_MANY_WAITING)
        except ClientError as error:
            if error.code != TOO_MANY_WAITING:
                raise
            full = error
        try:
            return self._transport.json("POST", f"{self._path}/labels", content=body, headers=JSON)
        except ClientError as error:
            if full is not None and error.code == "unknown-id":  # its observation has not been accepted yet
                raise full from error
            raise

    # ------------------------------------------------------------------ queries

    @property
    def state(self) -> dict[str, Any]:
        """The state of the stream: n, p, log10_martingale, log10_max, alarm, alarm_at, changepoint, guarantee."""
        return dict(self.show()["state"])

    def show(self) -> dict[str, Any]:
        """Return the description of the stream: configuration, state, next_seq and more."""
        self.flush()
        return self._transport.json("GET", self._path)

    def history(self, start: int = 1, stop: int | None = None, max_points: int = 1000) -> dict[str, Any]:
        """Return the capital between two steps as columns, thinned to ``max_points`` so that extremes are kept."""
        self.flush()
        params = {"from": start, "max_points": max_points} | ({} if stop is None else {"to": stop})
        return self._transport.json("GET", f"{self._path}/history", params=params)

    def reset(self) -> dict[str, Any]:
        """Start a new test with the next observation. This is not retried: a second reset would start another test."""
        self.flush()
        return dict(self._transport.request_once("POST", f"{self._path}/reset").json())

    def columns(self) -> dict[str, Any]:
        """Describe the columns and views of a table: evidence, since when they have changed, and values over time."""
        self.flush()
        return self._transport.json("GET", f"{self._path}/columns")

    def export(self) -> Monitor | RateMonitor | Risk | TableMonitor:
        """Return the monitor of the stream, to continue locally; ``exchangeable.save`` writes it to a file."""
        self.flush()
        response = self._transport.retry(lambda: self._transport.request("GET", f"{self._path}/export"))
        monitor = snapshot.decode(response.content)
        if not isinstance(monitor, (Monitor, RateMonitor, Risk, TableMonitor)):
            raise ClientError(None, "bad-export", f"the export must be a monitor, got {type(monitor).__name__}")
        return monitor

    def events(self, last: int | None = None) -> Iterator[Event]:
        """Yield the events of the stream, from now on or after step ``last``, until the stream is deleted.

        A broken connection is opened again and continues after the last event: nothing is missed, though steps may be
        thinned. The iteration ends only after the event "gone"; leave the loop to stop earlier.
        """
        attempt = 0
        while True:
            try:
                for event in self._transport.events(f"{self._path}/events", last):
                    attempt = 0
                    last = last if event.id is None else event.id
                    yield event
                    if event.kind == "gone":
                        return
                failure = TransientError(ClientError(None, "ended", "the server ended the events"))
            except TransientError as error:
                failure = error
            time.sleep(max(failure.retry_after, retry_delay(attempt)))
            attempt += 1


def encode_examples(
    X: Any, y: Iterable[Any] | None, ids: Iterable[str | None] | None = None, times: Iterable[Any] | None = None
) -> list[bytes]:
    """Encode observations without their numbers, or raise ``ValueError``."""
    rows = list(table_rows(X) if is_table(X) else X)
    more = [_aligned(name, values, len(rows)) for name, values in (("y", y), ("ids", ids), ("times", times))]
    return [_encode(*parts) for parts in zip(rows, *more, strict=True)]


def _encode(x: Any, y: Any, id: str | None, time: Any) -> bytes:  # noqa: A002
    """Encode an observation without its number."""
    if not isinstance(x, Mapping):
        return encode_example(x, y, id, time)
    if y is not None:
        raise ValueError(f"y must be left out with a row, which contains its label, got {y!r:.80}")
    return encode_row(x, id, time)


def _aligned(name: str, values: Iterable[Any] | None, count: int) -> list[Any]:
    """Return one value for each row."""
    column = [None] * count if values is None else list(values)
    if len(column) != count:
        noun = "label" if name == "y" else name[:-1]
        raise ValueError(f"{name} must hold one {noun} for each row of X, got {len(column)} {noun}s for {count} rows")
    return column
