"""The client of one server."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

from exchangeable.client.stream import NDJSON, Stream, encode_examples
from exchangeable.client.transport import Transport, stream_path
from exchangeable.validation import check_interval

PART = 10_000  # streams that are created by one request


class Client:
    """The client of one server. Transient failures are retried with growing delays, for ``patience`` seconds.

    A client is not thread-safe: use one for each thread.
    """

    def __init__(
        self, base_url: str, token: str | None = None, timeout: float = 30.0, *, patience: float = 60.0
    ) -> None:
        self.patience: float = check_interval("patience", patience, 0.0, math.inf, "(0, inf]")
        self._transport = Transport(base_url, token, timeout, self.patience)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def create(self, name: str, configuration: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Create a stream, or check that it exists with the same configuration; return its description.

        A stream of a table needs a reference before its first row: ``stream(name).set_reference(data)``.
        """
        return self._transport.json("PUT", stream_path(name), json=dict(configuration or {}))

    def create_many(self, streams: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
        """Create streams, or check that they exist with the same configuration; return how many are new.

        ``streams`` maps names to configurations. They are sent in parts of at most 10,000 streams. If some are
        rejected, the others of the part are created; the error has them in ``body["errors"]``.
        """
        lines = [json.dumps({"name": name, **(configuration or {})}) for name, configuration in streams.items()]
        counts: Counter[str] = Counter(created=0, existing=0)
        for start in range(0, len(lines), PART):
            body = "\n".join(lines[start : start + PART]).encode()
            counts.update(self._transport.json("POST", "/v1/streams", content=body, headers=NDJSON))
        return dict(counts)

    def delete(self, name: str) -> None:
        """Delete a stream and its history; its position in the fleet and the number of its tests are kept."""
        self._transport.request_once("DELETE", stream_path(name))

    def stream(self, name: str, *, batch: int = 1000, age: float = 1.0, capacity: int = 100_000) -> Stream:
        """Return a stream, to send observations to it and to query it; see ``Stream``."""
        return Stream(self._transport, name, batch=batch, age=age, capacity=capacity)

    def append(self, name: str, X: Iterable[Any], y: Iterable[Any] | None = None) -> dict[str, Any]:
        """Send observations to the end of a stream that others send to as well, all or none; return the reply.

        The server numbers them: ``first_seq`` and ``last_seq`` of the reply. This is one request, which is not
        repeated, since observations that are sent twice count twice. Use ``stream`` if a stream has one sender only.
        """
        body = b"\n".join(encode_examples(X, y))
        path = f"{stream_path(name)}/observations"
        return dict(self._transport.request_once("POST", path, content=body, headers=NDJSON).json())

    def set_retention(
        self, name: str, *, observations: int | None = None, rollups: int | None = None
    ) -> dict[str, Any]:
        """Change how much history of a stream is kept; None is what the server's settings say. Return the stream."""
        chosen = {"observations": observations, "rollups": rollups}
        return self._transport.json("PUT", f"{stream_path(name)}/retention", json=chosen)

    def streams(self, q: str = "", *, page: int = 500) -> Iterator[dict[str, Any]]:
        """Yield all streams whose name contains ``q``, sorted by name."""
        offset = 0
        while True:
            params = {"q": q, "offset": offset, "limit": page, "order": "name"}
            streams = self._transport.json("GET", "/v1/streams", params=params)["streams"]
            yield from streams
            offset += len(streams)
            if len(streams) < page:
                return

    def fleet(self, alpha: float = 0.05, method: str = "adjusted") -> dict[str, Any]:
        """Return which streams have changed, with a false discovery rate of at most alpha, and what is guaranteed."""
        return self._transport.json("GET", "/v1/fleet", params={"alpha": alpha, "method": method})
