"""Run the server: one process, one database, until it is told to stop."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from exchangeable.service import access, fleet, middleware
from exchangeable.service.app import application
from exchangeable.service.events import Feed
from exchangeable.service.page import missing
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store, StoreError

GRACE = 10  # seconds for requests under way when the server is told to stop
SWITCH = 0.0005  # seconds after which one thread lets another run: the engine and the network take turns
IDLE = 65  # seconds that a connection may stay without a request


class Refused(Exception):  # noqa: N818 - a refusal is no error of ours
    """The server cannot run like this; the message says why in one sentence."""


class Announced(uvicorn.Server):
    """Says where it listens once it does, and sends the readers of events home when it is told to stop."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self.feed = feed

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"exchangeable serves http://{shown}:{port}", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open event streams end first: they would else hold the server up."""
        self.feed.close()
        await super().shutdown(sockets)


def serve(db: Path, host: str, port: int, settings: Settings, *, page: bool = True) -> int:
    """Serve a database until SIGINT or SIGTERM; 0 after a graceful stop.

    What cannot be served is refused with one sentence: an address that others can reach while there is no token, a
    database that another process serves, a page without its chart library.
    """
    if page and missing():
        law = "the page must have its chart library, which npm brings: run 'make page' or install the wheel"
        raise Refused(f"{law}, or serve with --no-page; missing: {', '.join(missing())}")
    try:
        store = Store(db)
    except StoreError as error:
        raise Refused(str(error)) from error
    try:
        listener = _listener(store, host, port, settings)
        app = application(store, settings, loopback=not middleware.exposed(host, settings.trusted), page=page)
        logging.getLogger("exchangeable").setLevel(logging.INFO)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            ws="none",
            http="h11",  # bounds the head of a request, which httptools does not
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=IDLE,
            h11_max_incomplete_event_size=64 * 1024,
        )
        sys.setswitchinterval(SWITCH)
        server = Announced(config, app.state.feed)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it has stopped: that is enough
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
        return 0 if server.started else 3
    finally:
        store.close()


def _listener(store: Store, host: str, port: int, settings: Settings) -> socket.socket:
    try:
        with store.read() as connection:
            middleware.bindable(host, access.exist(connection), settings.trusted)
            fleet.check_size(connection, settings.fleet_size)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: only so asyncio sets NODELAY
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except ValueError as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(f"port must be free at {host}, got {port}: {error.strerror}") from error
    return listener
