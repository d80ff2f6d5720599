"""Running the server: one process for one database, until it receives a signal."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from exchangeable.service import access, fleet, logs, origins, systemd
from exchangeable.service.app import create_app
from exchangeable.service.connections import allowed_connections, limited_protocol
from exchangeable.service.engine import Engine
from exchangeable.service.events import Feed
from exchangeable.service.page import missing
from exchangeable.service.server_config import Limits, Settings
from exchangeable.service.store import Store, StoreError

GRACE = 10  # seconds for open requests when the server stops
SWITCH_INTERVAL = 0.0005  # seconds: lets the engine and the network alternate often
KEEP_ALIVE = 65  # seconds that a connection may stay open without a request


LOG = logging.getLogger("exchangeable.service")


class ServeError(Exception):
    """The server cannot start; the message says why in one sentence."""


class Server(uvicorn.Server):
    """A uvicorn server that reports when it listens and whether it is alive, and closes event streams when it stops.

    ``reload`` is called after SIGHUP.
    """

    def __init__(self, config: uvicorn.Config, feed: Feed, engine: Engine, reload: Callable[[], None]) -> None:
        super().__init__(config)
        self.feed = feed
        self.watchdog = systemd.Watchdog(engine.answer)
        self.reload = reload

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and print the address: as plain text for scripts that wait for it, and to the log."""
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.reload)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
            print(f"exchangeable serves {url}", file=sys.stderr, flush=True)
            LOG.info("the server listens on %s", url)
            systemd.notify("READY=1")

    async def on_tick(self, counter: int) -> bool:
        """Report to the watchdog, ten times a second."""
        self.watchdog.tick()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the event streams first, because the server would wait for them."""
        systemd.notify("STOPPING=1")
        self.feed.close()
        await super().shutdown(sockets)


def serve(db: Path, host: str, port: int, settings: Settings, *, page: bool = True, config: Path | None = None) -> int:
    """Serve a database until SIGINT or SIGTERM, and return 0 after a graceful stop.

    ``config`` is the file of the settings, which SIGHUP reads again.

    Raises ``ServeError`` if other machines can reach the address while there is no token, if another process serves the
    database, or if the page lacks its chart library.
    """
    if page and missing():
        rule = "the page needs its chart library, which comes from npm: run 'make page' or install the wheel"
        raise ServeError(f"{rule}, or serve with --no-page; missing: {', '.join(missing())}")
    logs.configure()
    try:
        store = Store(db)
    except StoreError as error:
        raise ServeError(str(error)) from error
    try:
        listener = _bind(store, host, port, settings)
        app = create_app(store, settings, loopback=not origins.is_exposed(host, settings.trusted), page=page)
        sys.setswitchinterval(SWITCH_INTERVAL)
        gc.collect()
        gc.freeze()  # what exists now lives as long as the process: full collections, which stop all threads, skip it
        reload = _reloader(app, host, config)
        server = Server(_uvicorn_config(app, settings.limits), app.state.feed, app.state.engine, reload)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again after it has stopped
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
        return 0 if server.started else 3
    finally:
        store.close()


def _reloader(app: FastAPI, host: str, config: Path | None) -> Callable[[], None]:
    """Return a function that reads the settings again. Names for others need a token, as at the start."""
    access_, live = app.state.access, app.state.live

    def check(settings: Settings) -> None:
        with app.state.store.read() as connection:
            origins.check_bindable(host, access.tokens_exist(connection), settings.trusted)

    def configure(settings: Settings) -> None:
        access_.loopback = not origins.is_exposed(host, settings.trusted)

    live.subscribe(configure)
    return lambda: live.reload(config, check)


def _bind(store: Store, host: str, port: int, settings: Settings) -> socket.socket:
    try:
        with store.read() as connection:
            origins.check_bindable(host, access.tokens_exist(connection), settings.trusted)
            fleet.check_size(connection, settings.fleet_size)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio sets NODELAY only if the protocol is given
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except ValueError as error:
        raise ServeError(str(error)) from error
    except OSError as error:
        raise ServeError(f"port must be free at {host}, got {port}: {error.strerror}") from error
    return listener


def _uvicorn_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        ws="none",
        # h11 limits the size of the headers, which httptools does not
        http=limited_protocol(allowed_connections(limits.connections), limits.head_seconds, limits.body_seconds),
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=KEEP_ALIVE,
        h11_max_incomplete_event_size=64 * 1024,
    )
