"""A real web server in a thread on 127.0.0.1, and words with it over a plain socket."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import uvicorn


class Reply(NamedTuple):
    """What came back over a socket."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        return json.loads(self.body)


PARSERS = [name for name in ("h11", "httptools") if importlib.util.find_spec(name)]  # uvicorn takes either


@contextmanager
def serving(app: Any, http: str = "auto") -> Iterator[int]:
    """The port of the app under uvicorn, set up as ours is."""
    options = {"access_log": False, "server_header": False, "proxy_headers": False, "ws": "none"}
    config = uvicorn.Config(app, log_config=None, http=http, timeout_graceful_shutdown=2, **options)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                time.sleep(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def talk(port: int, *parts: bytes, wait: float = 0.0, timeout: float = 10.0) -> Reply:
    """Say the parts one after the other, ``wait`` seconds apart, and read until the server closes or has answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as line:
        with suppress(ConnectionError):  # it may have heard enough
            for part in parts:
                line.sendall(part)
                time.sleep(wait)
        return read(line)


def read(line: socket.socket) -> Reply:
    """One response with a Content-Length, or until the end; of an event stream the head."""
    said = b""
    while b"\r\n\r\n" not in said:
        piece = line.recv(65_536)
        if not piece:
            raise ConnectionError(f"closed after {said!r}")
        said += piece
    head, _, body = said.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    pairs = [(key.lower(), value) for key, _, value in (one.partition(": ") for one in rest)]
    length, endless = dict(pairs).get("content-length"), "text/event-stream" in dict(pairs).get("content-type", "")
    while not endless and (length is None or len(body) < int(length)):
        piece = line.recv(65_536)
        if not piece:
            break
        body += piece
    return Reply(int(first.split()[1]), pairs, body)
