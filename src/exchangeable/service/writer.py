"""The writer thread: it serves queued requests in groups, with one transaction for each group.

A request is answered after its commit. If a commit fails, all streams are dropped from memory and loaded again from the
database, so that memory is never ahead of what is on disk.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from exchangeable.service.announcements import Announcements, StreamEvent
from exchangeable.service.lookahead import Lookahead
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.schema import APPLICATION
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_cache import StreamCache

log: logging.Logger = logging.getLogger(__name__)
GROUP = 64  # requests that share a commit
MIN_FREE_BYTES = 1 << 20  # free disk space required before the server is ready again

Work = Callable[[sqlite3.Connection], Any]
Publish = Callable[[list[StreamEvent], bool], None]


@dataclass
class Job:
    """A request in the queue. One with a batch of observations names its stream, so that it can be tested ahead."""

    work: Work
    rows: int = 0
    writes: bool = True
    stream: str | None = None
    batch: Batch | None = None
    future: Future[Any] = field(default_factory=Future)


@dataclass
class Outcome:
    """The result of a job, or the error that it raised."""

    job: Job
    result: Any = None
    error: Exception | None = None

    def deliver(self) -> None:
        """Answer the request."""
        if self.error is None:
            self.job.future.set_result(self.result)
        else:
            self.job.future.set_exception(self.error)


class Writer:
    """The queue of requests and the thread that serves them. No other thread changes the database or a stream.

    ``publish`` is called after a commit, with its events and whether alerts were put into the outbox.
    """

    def __init__(self, store: Store, settings: Settings, publish: Publish) -> None:
        self.store = store
        self.settings = settings
        self.publish = publish
        self.commit_seconds: Callable[[float], None] = lambda seconds: None
        self.failing: Problem | None = None  # why the last commit failed, if it did
        self.queued_rows: int = 0
        self.queued_requests: int = 0
        self.streams: StreamCache = StreamCache(settings.live_streams)
        self.lookahead: Lookahead = Lookahead(self.streams)
        self.announcements: Announcements = Announcements(settings.webhooks)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the counts of queued work, and ``_stopping``
        self._stopping = self._ended = False
        self._probe: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="exchangeable-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Serve what is queued, save snapshots of the streams in memory, and end the thread."""
        with self._lock:
            self._stopping = True
        self._jobs.put(None)
        self._thread.join()
        self.lookahead.close()

    # -------------------------------------------------------------- called from any thread

    def write(self, work: Work) -> Future[Any]:
        """Run a function in a transaction of the writer thread."""
        return self.submit(Job(work), limited=False)

    def probe(self) -> Future[None]:
        """Try to write, if the disk has some free space; a failure is reported by ``failing``. One at a time."""
        if self._probe is None or self._probe.done():
            self._probe = self.write(self._write_something)
        return self._probe

    def _write_something(self, connection: sqlite3.Connection) -> None:
        if self.store.free_bytes() < MIN_FREE_BYTES:  # this small write may fit where no batch does
            raise disk_full()
        connection.execute(f"PRAGMA application_id = {APPLICATION}")

    def submit(self, job: Job, *, limited: bool = True) -> Future[Any]:
        """Queue a job, unless the server is stopping or its queue is full."""
        limits = self.settings.limits
        with self._lock:
            if self._stopping:
                raise Problem(503, "not-ready", "the server is stopping; try again later", retry_after=5)
            too_many_rows = self.queued_rows > 0 and self.queued_rows + job.rows > limits.queue_rows
            if limited and (too_many_rows or self.queued_requests >= limits.queue_requests):
                rule = f"at most {limits.queue_rows} observations and {limits.queue_requests} requests may be queued"
                raise Problem(429, "overload", f"the server is busy, {rule}: try again in a second", retry_after=1)
            self.queued_requests += 1
            self.queued_rows += job.rows
            self._jobs.put(job)
        return job.future

    # -------------------------------------------------------------- the thread

    def _run(self) -> None:
        group: list[Job] = []
        while not self._ended or group:
            group = self._serve(group or self._next_jobs(wait=True))
        try:
            with self.store.write() as connection:
                self.streams.save_snapshots(connection)
        except sqlite3.Error as error:  # nothing is lost: the steps are stored and will be replayed
            log.warning("snapshots could not be written: %s", error)

    def _next_jobs(self, *, wait: bool) -> list[Job]:
        """Remove a group of jobs from the queue and return those that were not cancelled."""
        queued: list[Job | None] = [self._jobs.get()] if wait else []
        while len(queued) < GROUP and not self._jobs.empty():
            queued.append(self._jobs.get())
        self._ended |= None in queued
        jobs = [job for job in queued if job is not None]
        with self._lock:
            self.queued_requests -= len(jobs)
            self.queued_rows -= sum(job.rows for job in jobs)
        return [job for job in jobs if job.future.set_running_or_notify_cancel()]

    def _serve(self, group: list[Job]) -> list[Job]:
        """Serve a group of jobs; return the next one, which may have been started ahead."""
        following = self._commit([job for job in group if job.writes])
        reads = [job for job in group if not job.writes]
        self._read([job for job in reads if job.stream not in self.lookahead.names])
        return [job for job in reads if job.stream in self.lookahead.names] + following

    def _commit(self, jobs: list[Job]) -> list[Job]:
        """Run jobs in one transaction and answer them after the commit; return jobs that were queued meanwhile."""
        following: list[Job] = []
        if not jobs:
            return following
        self.announcements.clear()
        started = time.perf_counter()
        try:
            with self.store.write() as connection:
                self._look_ahead(connection, jobs, following)
                outcomes = [self._attempt(connection, job) for job in jobs]
                self.streams.evict(self.lookahead.names, connection)
        except Exception as error:  # noqa: BLE001 - all requests of the group are answered with it
            self._fail(jobs, error)
            return following
        if any(outcome.error is None for outcome in outcomes):
            self.failing = None
        self._announce(time.perf_counter() - started)
        for outcome in outcomes:
            outcome.deliver()
        return following

    def _look_ahead(self, connection: sqlite3.Connection, jobs: list[Job], following: list[Job]) -> None:
        """Let other threads test the batches of this group, and of the next one if no other request intervenes."""
        if len(jobs) > 1:
            self.lookahead.start(connection, [(job.stream, job.batch) for job in jobs])
        if all(job.batch is not None for job in jobs):
            following += self._next_jobs(wait=False)
            busy = {job.stream for job in jobs}
            self.lookahead.start(connection, [(job.stream, job.batch) for job in following], busy)

    def _attempt(self, connection: sqlite3.Connection, job: Job) -> Outcome:
        """Run a job. If it is rejected, only its own changes are rolled back; errors of the database are raised."""
        if not connection.in_transaction:  # some errors end it; releasing a savepoint would then commit
            raise sqlite3.OperationalError("the transaction was rolled back")
        connection.execute("SAVEPOINT request")
        events = len(self.announcements.events)
        try:
            return Outcome(job, job.work(connection))
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001 - the request is answered with it
            connection.execute("ROLLBACK TO request")
            del self.announcements.events[events:]
            if not isinstance(error, Problem):
                self._forget()
            return Outcome(job, error=error)
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE request")

    def _announce(self, seconds: float) -> None:
        """Publish the events of a commit. The commit remains valid even if that fails."""
        try:
            self.commit_seconds(seconds)
            if self.announcements.events:
                self.publish(self.announcements.events, self.announcements.alerted)
        except Exception:
            log.exception("events could not be published")

    def _fail(self, jobs: list[Job], error: Exception) -> None:
        """Answer all jobs of a group that could not be committed."""
        self._forget()
        if isinstance(error, sqlite3.Error):
            log.error("a commit failed: %s", error)
            self.failing = storage_problem(error)
        else:
            log.error("a group of requests failed", exc_info=error)
        for job in jobs:
            job.future.set_exception(storage_problem(error) if isinstance(error, sqlite3.Error) else error)

    def _forget(self) -> None:
        """Drop all streams from memory: any of them may be ahead of the database."""
        self.streams.clear()
        self.lookahead.clear()

    def _read(self, jobs: list[Job]) -> None:
        """Answer requests that only read."""
        for job in jobs:
            try:
                with self.store.read() as connection:
                    outcome = Outcome(job, job.work(connection))
            except sqlite3.Error as error:
                outcome = Outcome(job, error=storage_problem(error))
            except Exception as error:  # noqa: BLE001 - the request is answered with it
                outcome = Outcome(job, error=error)
            outcome.deliver()
        if jobs:
            self.streams.evict(self.lookahead.names)


def storage_problem(error: sqlite3.Error) -> Problem:
    """Return the reply to a request that failed because of the disk or the database."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
        return disk_full()
    message = f"the database could not be written, nothing was accepted: {error}"
    return Problem(503, "storage", message, retry_after=5)


def disk_full() -> Problem:
    """Return the reply to a request that failed because the disk is full."""
    return Problem(507, "storage-full", "the disk is full: nothing was accepted; free some space and send it again")
