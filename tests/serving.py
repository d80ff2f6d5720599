"""A real server on 127.0.0.1 for the tests: in a thread of this process, on a database in a temporary folder."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI

from exchangeable.service.app import create_app
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store

JSON, NDJSON = {"Content-Type": "application/json"}, {"Content-Type": "application/x-ndjson"}


class Served:
    """A server that runs, and a client that speaks to it."""

    def __init__(self, app: FastAPI, url: str) -> None:
        self.app = app
        self.url = url
        self.http = httpx2.Client(base_url=url, timeout=60.0, trust_env=False)

    def ask(self, method: str, path: str, **more: Any) -> httpx2.Response:
        return self.http.request(method, path, **more)

    def create(self, name: str, **configuration: Any) -> dict[str, Any]:
        reply = self.ask("PUT", f"/v1/streams/{name}", json=configuration)
        assert reply.status_code in (200, 201), reply.text
        return dict(reply.json())

    def send(self, name: str, lines: Iterable[dict[str, Any]]) -> httpx2.Response:
        body = "\n".join(map(json.dumps, lines))
        return self.ask("POST", f"/v1/streams/{name}/observations", content=body, headers=NDJSON)

    def take(self, name: str, lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
        reply = self.send(name, lines)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def label(self, name: str, lines: Iterable[dict[str, Any]]) -> httpx2.Response:
        body = "\n".join(map(json.dumps, lines))
        return self.ask("POST", f"/v1/streams/{name}/labels", content=body, headers=NDJSON)

    def show(self, name: str) -> dict[str, Any]:
        reply = self.ask("GET", f"/v1/streams/{name}")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())


@contextmanager
def served(database: Path, settings: Settings | None = None, *, page: bool = False) -> Iterator[Served]:
    """A server on this database, stopped gracefully at the end."""
    store = Store(database)
    try:
        app = create_app(store, settings, page=page)
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        running = Served(app, f"http://127.0.0.1:{listener.getsockname()[1]}")
        try:
            yield running
        finally:
            running.http.close()
            app.state.feed.close()
            server.should_exit = True
            thread.join()
            listener.close()
    finally:
        store.close()


def numbered(x: Iterable[Any], start: int = 1, **columns: Iterable[Any]) -> list[dict[str, Any]]:
    """Observations from a list of x, and of y, id or time."""
    lines: list[dict[str, Any]] = [{"seq": seq, "x": value} for seq, value in enumerate(x, start)]
    for key, values in columns.items():
        for line, value in zip(lines, values, strict=True):
            line[key] = value
    return lines
