"""Computing steps in other threads while the database is written: light batches ahead, heavy requests in slices."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from exchangeable.service import checksums, costs
from exchangeable.service.batch import Plan, plan_batch
from exchangeable.service.parsing import Batch
from exchangeable.service.stream import AnyPath, Slices
from exchangeable.service.stream_cache import StreamCache

if TYPE_CHECKING:
    from exchangeable.service.writer import Job

MAX_THREADS = 8
TURN = 0.05  # seconds after which the next heavy request has its turn


class Lookahead:
    """Extends the monitors of several streams at a time, since the compiled loops release the interpreter lock.

    A monitor that is extended ahead of the database must not be read by anything else until its batch is served.
    """

    def __init__(self, streams: StreamCache) -> None:
        self._streams = streams
        self._started: dict[str, tuple[Batch, Plan]] = {}
        self._pool = ThreadPoolExecutor(thread_count(), "exchangeable-bets")

    @property
    def names(self) -> Set[str]:
        """The streams whose monitors are extended ahead."""
        return self._started.keys()

    def has_started(self, job: Job) -> bool:
        """Return whether a job is the batch of its stream that is computed ahead."""
        return job.batch is not None and self._started.get(job.stream or "", (None,))[0] is job.batch

    def start(
        self,
        connection: sqlite3.Connection,
        jobs: Iterable[Job],
        busy: Set[str | None] = frozenset(),
    ) -> None:
        """Start on the first batch of each stream that is not busy.

        A job without a batch may concern any stream, so it and all after it are left for later.
        """
        skipped = {*busy, *self._started}
        for job in jobs:
            if job.stream is None or job.batch is None:
                return
            if job.stream not in skipped:
                skipped.add(job.stream)
                plan = self._plan(connection, job)
                if plan is not None:
                    self._submit(plan, job.batch)

    def _plan(self, connection: sqlite3.Connection, job: Job) -> Plan | None:
        """Plan a batch; return None if it cannot be computed ahead: it is rejected, repeated, heavy, or has to wait."""
        name, batch, task = job.stream, job.batch, job.task
        if name is None or batch is None or task is None:
            return None
        try:
            if self._streams.peek(name) is None and costs.load_cost(connection, name) > costs.HEAVY:
                return None
            stream = self._streams.get(connection, name)
            if task.cost(stream) > costs.HEAVY:
                return None
            if stream.configuration.needs_labels and (stream.waiting or not costs.has_labels(batch)):
                return None
            plan = plan_batch(connection, stream, batch, job.now)
        except sqlite3.Error as error:
            if checksums.damage(connection, error) is error:
                raise
            return None
        except Exception:  # noqa: BLE001 - the request is rejected when it is served
            return None
        return plan if len(plan.ready.seq) else None

    def _submit(self, plan: Plan, batch: Batch) -> None:
        ready = plan.ready
        rows = ready.columns.get("row")
        path: Future[AnyPath] = self._pool.submit(plan.stream.extend, ready.x, ready.y, rows, ready.late)
        plan.path = path.result
        self._started[plan.stream.name] = batch, plan

    def take(self, connection: sqlite3.Connection, name: str, batch: Batch, now: float) -> Plan:
        """Return the plan of a batch, with its steps if they were computed ahead."""
        started, plan = self._started.pop(name, (None, None))
        stream = self._streams.get(connection, name)
        if plan is not None and plan.stream is stream:
            if started is batch and plan.new is not None and plan.new.seq[0] == stream.next_seq:
                return plan
            self._streams.drop(name)  # its monitor was extended by another batch, or at another place
            stream = self._streams.get(connection, name)
        return plan_batch(connection, stream, batch, now)

    def discard(self, name: str | None) -> None:
        """Discard what was started for a stream, and load the stream again when it is needed next."""
        if name is not None and self._started.pop(name, None) is not None:
            self._streams.drop(name)  # its monitor is ahead of the database

    def clear(self) -> None:
        """Discard everything that was started."""
        self._started.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class TakingTurns:
    """Threads for work that takes long, in slices. After some slices the next work has its turn, so none waits long."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max(thread_count() - 1, 1), "exchangeable-heavy")  # one core is left for others

    def start(self, work: Slices[Any], future: Future[Any], done: Callable[[], None]) -> None:
        """Start some work; its result goes to the future, and then ``done`` is called."""
        future.add_done_callback(lambda _: done())
        self._pool.submit(self._turn, work, future)

    def _turn(self, work: Slices[Any], future: Future[Any]) -> None:
        end = time.monotonic() + TURN
        try:
            while time.monotonic() < end:
                next(work)
        except StopIteration as last:
            future.set_result(last.value)
        except BaseException as error:  # noqa: BLE001 - whoever waits for the work gets it
            future.set_exception(error)
        else:
            self._pool.submit(self._turn, work, future)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def thread_count() -> int:
    """Return how many threads compute."""
    return min(os.cpu_count() or 1, MAX_THREADS)
