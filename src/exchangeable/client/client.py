"""The client of one server."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from exchangeable.client.stream import Stream
from exchangeable.client.transport import Transport, stream_path
from exchangeable.validation import check_interval


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
        """Create a stream, or check that it exists with the same configuration; return its description."""
        return self._transport.json("PUT", stream_path(name), json=dict(configuration or {}))

    def delete(self, name: str) -> None:
        """Delete a stream and its history; its position in the fleet and the number of its tests are kept."""
        self._transport.request_once("DELETE", stream_path(name))

    def stream(self, name: str, *, batch: int = 1000, age: float = 1.0, capacity: int = 100_000) -> Stream:
        """Return a stream, to send observations to it and to query it; see ``Stream``."""
        return Stream(self._transport, name, batch=batch, age=age, capacity=capacity)

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
