"""Budgets: the bytes of bodies and long replies in memory, and how often a client may call."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from exchangeable.service.problems import Problem

__all__ = ["BodyBudget", "Rates"]
MAX_CLIENTS = 10_000  # whose rates are remembered
BURST = 5  # seconds of the permitted rate that may be used at once


class BodyBudget:
    """Bytes of requests and long replies in progress, in all and for each client. O(1) for each part of a body.

    >>> budget = BodyBudget(total=100, each=60)
    >>> budget.take("a", 50), budget.take("a", 20).status, budget.take("b", 60).status
    (None, 429, 503)
    """

    def __init__(self, total: int, each: int) -> None:
        self.total, self.each = total, each
        self.used: int = 0
        self._clients: Counter[str] = Counter()

    def take(self, client: str, count: int) -> Problem | None:
        """Reserve some bytes; return why not, if there is no room for them."""
        if self._clients[client] + count > self.each:
            rule = f"the requests and replies of one client in progress must hold at most {self.each} bytes together"
            return Problem(429, "overload", f"{rule}: send fewer at a time", retry_after=1)
        if self.used + count > self.total:
            rule = f"the requests and replies in progress must hold at most {self.total} bytes together"
            return Problem(503, "overload", f"the server is busy, {rule}: try again in a second", retry_after=1)
        self.used += count
        self._clients[client] += count
        return None

    def release(self, client: str, count: int) -> None:
        """Return reserved bytes."""
        self.used -= count
        self._clients[client] -= count
        if not self._clients[client]:
            del self._clients[client]


class Rates:
    """How much each client may use a second, with bursts of some seconds (a token bucket for each client).

    A single use may be larger than a burst; the client then has to wait until it is paid for. O(1) for each use.

    >>> now = [0.0]
    >>> rates = Rates(10, clock=lambda: now[0])
    >>> rates.wait("a", 80), rates.wait("a", 1), rates.wait("b", 1)
    (0, 4, 0)
    >>> now[0] = 4.0
    >>> rates.wait("a", 1)
    0
    """

    def __init__(
        self, per_second: float, *, burst: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._clock = per_second, clock
        self._burst = BURST * per_second if burst is None else burst
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was
        self._lock = threading.Lock()

    def wait(self, client: str, amount: float = 1.0) -> int:
        """Use an amount and return 0, or return after how many seconds to try again."""
        if not self._rate:
            return 0
        now = self._clock()
        with self._lock:
            level, before = self._levels.pop(client, (self._burst, now))
            level = min(level + (now - before) * self._rate, self._burst)
            allowed = level > 0.0
            self._levels[client] = (level - amount if allowed else level, now)
            if len(self._levels) > MAX_CLIENTS:
                self._levels.popitem(last=False)
        return 0 if allowed else max(math.ceil((0.01 - level) / self._rate), 1)
