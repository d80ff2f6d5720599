"""Messages to systemd, if it started the server: that it is ready, that it stops, and that it is alive."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from exchangeable.service.problems import Problem

BEATS = 4  # in the time after which systemd takes the server for dead


def notify(state: str) -> None:
    """Send a state, such as ``READY=1``; do nothing unless systemd waits for it (sd_notify(3))."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


class Watchdog:
    """Tells systemd that the server is alive, each time that its writer thread has answered a question."""

    def __init__(self, ask: Callable[[], Future[Any]]) -> None:
        self._ask = ask
        self._pause = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 / BEATS
        self._asked: Future[Any] | None = None
        self._next = 0.0

    def tick(self) -> None:
        """Ask the writer if it is time, or report its answer; called often, and never waits."""
        if not self._pause:
            return
        if self._asked is not None and self._asked.done():
            self._asked = None
            notify("WATCHDOG=1")
        if self._asked is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + self._pause
            try:
                self._asked = self._ask()
            except Problem:  # the server is stopping
                return
