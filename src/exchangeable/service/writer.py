"""The writer thread: it serves queued requests in groups, with one transaction for each group.

What takes long is prepared in other threads, so that no stream holds up the others: see `Task`. A request is answered
after its commit. If a commit fails, all streams are dropped from memory and loaded again from the database, so that
memory is never ahead of what is on disk.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exchangeable.service import checksums, costs
from exchangeable.service.announcements import Announcements, StreamEvent
from exchangeable.service.logs import REQUEST
from exchangeable.service.lookahead import Lookahead, TakingTurns
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.reserve import Reserve
from exchangeable.service.schema import APPLICATION
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store, pages
from exchangeable.service.stream import LiveStream, Slices
from exchangeable.service.stream_cache import StreamCache

log: logging.Logger = logging.getLogger(__name__)
VACUUM_PAGES = 512  # given back at a time, between groups of requests
EXCESS_EVERY = 64  # commits between two looks for space that pruning has freed
GROUP = 64  # requests that share a commit
MIN_FREE_BYTES = 1 << 20  # free disk space required before the server is ready again

Work = Callable[[sqlite3.Connection], Any]
Publish = Callable[[list[StreamEvent], bool], None]


@dataclass
class Task:
    """A request of one stream in parts. If it is heavy, all but the last part run in other threads.

    Meanwhile the stream is not in the cache, and later requests for it wait: nothing else sees or changes it.
    """

    cost: Callable[[Any], int]  # nanoseconds, estimated from the stream
    plan: Callable[[sqlite3.Connection, Any], Any]  # reads the database and the stream, and changes neither
    finish: Callable[[sqlite3.Connection, Any], Any]  # runs in the transaction, with the plan; returns the result
    compute: Callable[[Any], Slices[Any]] | None = None  # advances the monitor as planned, and returns the plan
    loads: bool = True  # the stream is needed in memory; else it is None


@dataclass
class Job:
    """A request in the queue. It names its stream, so that it waits for the requests before it."""

    work: Work
    rows: int = 0
    writes: bool = True
    stream: str | None = None
    batch: Batch | None = None
    now: float = 0.0  # when it arrived, on the server's clock
    task: Task | None = None
    aside: bool = False  # another thread has prepared it, or does
    prepared: Future[Any] | None = None  # the plan that was made there
    held: LiveStream | None = None  # the stream, while it is not in the cache
    grows: bool = False  # needs space: it is rejected above the quota, and while the reserve is used
    frees: bool = False  # gives space back: on a full disk, the reserve is used for it
    context: dict[str, Any] | None = field(default_factory=REQUEST.get)  # of the log lines of the request
    future: Future[Any] = field(default_factory=Future)

    def run(self, connection: sqlite3.Connection) -> Any:
        """Do the work, or what remains of it, with log lines that name its request."""
        token = REQUEST.set(self.context)
        try:
            if self.prepared is not None and self.task is not None:
                return self.task.finish(connection, self.prepared.result())
            return self.work(connection)
        finally:
            REQUEST.reset(token)


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
        self.streams: StreamCache = StreamCache(settings.live_streams, settings.live_bytes)
        self.lookahead: Lookahead = Lookahead(self.streams)
        self._heavy = TakingTurns()
        self.announcements: Announcements = Announcements(settings.receivers)
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the counts of queued work, and ``_stopping``
        self._stopping = self._ended = False
        self._probe: Future[None] | None = None
        self.reserve: Reserve = Reserve(Path(f"{store.path}.reserve"), settings.limits.reserve_bytes)
        self._reserve_used = False
        self._aside: dict[str | None, list[Job]] = {}  # by stream: jobs behind a batch that is computed aside
        self._commits = 0
        self._busy_since: float | None = None
        self._freeing = 0  # attempts to make room for the jobs that are run now
        self._thread = threading.Thread(target=self._run, name="exchangeable-writer", daemon=True)

    def start(self) -> None:
        """Fill the reserve and start the thread."""
        if not self.reserve.fill():
            self._reserve_used = self.reserve.path.exists()
            log.warning("the disk has too little space for the reserve of %d bytes", self.reserve.size)
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
        self._heavy.close()

    # -------------------------------------------------------------- called from any thread

    @property
    def busy_seconds(self) -> float:
        """How long the thread has been serving the current group of requests; 0 if it waits for one."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def write(self, work: Work) -> Future[Any]:
        """Run a function in a transaction of the writer thread."""
        return self.submit(Job(work), limited=False)

    def probe(self) -> Future[None]:
        """Try to write, if the disk has some free space; a failure is reported by ``failing``. One at a time."""
        if self._probe is None or self._probe.done():
            self._probe = self.write(self._write_something)
        return self._probe

    def _write_something(self, connection: sqlite3.Connection) -> None:
        # this small write may fit where no batch does
        if self.store.free_bytes() < MIN_FREE_BYTES or not self._reserve_refilled():
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
        while not self._ended or group or self._aside:
            group = group or self._next_jobs(wait=True)
            self._busy_since = time.monotonic()
            group = self._serve(group)
            self._busy_since = None
        for name in [*self.lookahead.names]:
            self.lookahead.discard(name)
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
        return [job for job in jobs if job.aside or job.future.set_running_or_notify_cancel()]

    def _serve(self, group: list[Job]) -> list[Job]:
        """Serve a group of jobs; return the next one, which may have been started ahead."""
        group, later = self._set_aside(group)
        busy = {job.stream for job in (*group, *later)}
        following = self._commit([job for job in group if job.writes], busy)
        reads = [job for job in group if not job.writes]
        self._read([job for job in reads if job.stream not in self.lookahead.names])
        waiting = [job for job in reads if job.stream in self.lookahead.names]
        return waiting + later + self._release(group) + following

    # -------------------------------------------------------------- batches that take long

    def _set_aside(self, group: list[Job]) -> tuple[list[Job], list[Job]]:
        """Let other threads prepare the requests that take long; return the jobs to serve now, and those after them.

        Later jobs of the same stream wait until it has been served, and other streams do not wait at all. A stream has
        one such job at a time.
        """
        now: list[Job] = []
        later: list[Job] = []
        for job in group:
            if job.stream in self._aside and not job.aside:
                self._aside[job.stream].append(job)
                self._count(job, 1)
            elif job.stream is not None and job.stream in {one.stream for one in later}:
                later.append(job)
            elif not self._is_heavy(job):
                now.append(job)
            elif job.stream in {one.stream for one in now}:  # which have to be served first
                later.append(job)
            else:
                self._prepare_aside(job)
        return now, later

    def _is_heavy(self, job: Job) -> bool:
        """Return whether other streams must not wait for a job; a stream that is loaded quickly is loaded for this."""
        name, task = job.stream, job.task
        if name is None or task is None or job.aside or self.lookahead.has_started(job):
            return False
        stream = self.streams.peek(name)
        try:
            if stream is None and task.loads:
                with self.store.read() as connection:
                    if costs.load_cost(connection, name) > costs.HEAVY:
                        return True
                    stream = self.streams.get(connection, name)
            return task.cost(stream) > costs.HEAVY
        except Exception:  # noqa: BLE001 - the job is served now, and answered with the error of its transaction
            return False

    def _prepare_aside(self, job: Job) -> None:
        """Start to prepare a job; it comes back into the queue when that is done."""
        assert job.stream is not None  # noqa: S101
        self._aside[job.stream] = []
        self._count(job, 1)
        job.held, job.aside, job.prepared = self.streams.pop(job.stream), True, Future()
        self._heavy.start(self._preparing(job), job.prepared, lambda: self._jobs.put(job))

    def _preparing(self, job: Job) -> Slices[Any]:
        """Load the stream of a job, plan what changes, and compute it."""
        task = job.task
        assert task is not None and job.stream is not None  # noqa: S101, PT018
        try:
            with self.store.read() as connection:
                if task.loads and job.held is None:
                    job.held = yield from LiveStream.loading(connection, job.stream)
                plan = task.plan(connection, job.held)
        except sqlite3.Error as error:
            raise storage_problem(error) from error
        return plan if task.compute is None else (yield from task.compute(plan))

    def _park(self, names: list[str]) -> None:
        """Let other threads encode the snapshots of streams that are to leave the memory, and drop them then."""
        task = Task(lambda stream: 0, lambda _, stream: (stream, stream.encode()), self._finish_parking)
        for name in names:
            self._prepare_aside(Job(lambda connection: None, stream=name, task=task))

    def _finish_parking(self, connection: sqlite3.Connection, parked: tuple[LiveStream, bytes]) -> None:
        stream, data = parked
        stream.save_snapshot(connection, data)
        self.streams.drop(stream.name)

    def serve_now(self, connection: sqlite3.Connection, name: str, task: Task) -> Any:
        """Do all parts of a task in this thread."""
        stream = self.streams.get(connection, name) if task.loads else None
        plan = task.plan(connection, stream)
        return task.finish(connection, plan)

    def _work(self, connection: sqlite3.Connection, job: Job) -> Any:
        """Do what remains of a job."""
        if job.prepared is not None and job.held is not None and (job.prepared.exception() is None or job.held.clean):
            self.streams.put(job.held)
        return job.run(connection)

    def _release(self, group: list[Job]) -> list[Job]:
        """Return the jobs that have waited for the batches of this group."""
        released = [job for one in group if one.aside for job in self._aside.pop(one.stream, [])]
        for job in released:
            self._count(job, -1)
        return released

    def _count(self, job: Job, sign: int) -> None:
        """Count a job that waits aside as queued."""
        with self._lock:
            self.queued_requests += sign
            self.queued_rows += sign * job.rows

    # -------------------------------------------------------------- transactions

    def _commit(self, jobs: list[Job], busy: Set[str | None] = frozenset()) -> list[Job]:
        """Run jobs in one transaction and answer them after the commit; return jobs that were queued meanwhile.

        Batches of ``busy`` streams are not computed ahead, because other requests for them have to be served first.
        """
        following: list[Job] = []
        if not jobs:
            return following
        self.announcements.clear()
        started = time.perf_counter()
        try:
            with self.store.write() as connection:
                jobs = self._reject_growing(connection, jobs)
                self._look_ahead(connection, jobs, following, busy)
                outcomes = [self._attempt(connection, job) for job in jobs]
                large = self.streams.evict(self.lookahead.names | self._aside.keys(), connection)
        except Exception as error:  # noqa: BLE001 - all requests of the group are answered with it
            self._fail(self._free_space(jobs, error), error)
            return following
        if any(outcome.error is None for outcome in outcomes):
            self.failing = disk_full() if self._reserve_used else None
        self._announce(time.perf_counter() - started)
        for outcome in outcomes:
            outcome.deliver()
        self._park(large)
        self._commits += 1
        freed = any(job.frees for job in jobs)
        if freed or self._commits % EXCESS_EVERY == 0:
            self._tidy(freed)
        return following

    # -------------------------------------------------------------- space on the disk

    def _reject_growing(self, connection: sqlite3.Connection, jobs: list[Job]) -> list[Job]:
        """Reject the jobs that need space if there is none for them; return the others."""
        problem = self._no_space(connection) if any(job.grows for job in jobs) else None
        if problem is None:
            return jobs
        for job in jobs:
            if job.grows:
                self.lookahead.discard(job.stream)
                job.future.set_exception(problem)
        return [job for job in jobs if not job.grows]

    def _no_space(self, connection: sqlite3.Connection) -> Problem | None:
        if not self._reserve_refilled():
            return disk_full()
        quota = self.settings.limits.database_bytes
        count, free, size = pages(connection)
        if quota and (count - free) * size >= quota:
            rule = f"at most {quota} bytes may be stored (limits.database_bytes)"
            return Problem(507, "storage-full", f"{rule}: nothing was accepted; delete streams and send it again")
        return None

    def _reserve_refilled(self) -> bool:
        """Return whether the reserve is unused, or was filled again now."""
        self._reserve_used = self._reserve_used and not self.reserve.fill()
        return not self._reserve_used

    def _free_space(self, jobs: list[Job], error: Exception) -> list[Job]:
        """If the disk is full, run the jobs that give space back with the space in reserve; return the others."""
        freeing = [job for job in jobs if job.frees]
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        if not freeing or not full or self._freeing == 2:
            return jobs
        self._forget()
        for job in freeing:
            job.prepared = job.held = None  # it is planned again, since its plan was carried out
        make_room = (self._use_reserve, self.store.checkpoint)[self._freeing]
        self._freeing += 1
        try:
            with suppress(sqlite3.Error):
                make_room()
            self._commit(freeing)
        finally:
            self._freeing -= 1
        return [job for job in jobs if not job.frees]

    def _use_reserve(self) -> None:
        self._reserve_used = True
        self.reserve.empty()

    def _tidy(self, freed: bool) -> None:
        """Give some free pages back to the disk, and queue the rest as a job behind the requests of clients.

        If nothing was deleted, pages are free because old steps were pruned: new steps use them, unless there are many.
        """
        try:
            if not freed and not self.store.has_excess():
                return
            before, free = self.store.shrink(VACUUM_PAGES)
            if self._reserve_used or (before and not free):
                self.store.checkpoint()
                self._reserve_refilled()
        except sqlite3.Error as error:
            log.warning("free space could not be given back: %s", error)
            return
        if 0 < free < before and not self._stopping:
            with suppress(Problem):  # the server may have begun to stop
                self.submit(Job(lambda connection: None, frees=True), limited=False)

    def _look_ahead(
        self, connection: sqlite3.Connection, jobs: list[Job], following: list[Job], busy: Set[str | None]
    ) -> None:
        """Let other threads test the batches of this group, and of the next one if no other request intervenes."""
        if len(jobs) > 1:
            self.lookahead.start(connection, jobs, {job.stream for job in jobs if job.aside})
        if all(job.batch is not None for job in jobs):
            following += self._next_jobs(wait=False)
            busy = {*busy, *self._aside, *(job.stream for job in jobs)}
            self.lookahead.start(connection, following, busy)

    def _attempt(self, connection: sqlite3.Connection, job: Job) -> Outcome:
        """Run a job. If it is rejected, only its own changes are rolled back; errors of the database are raised."""
        if not connection.in_transaction:  # some errors end it; releasing a savepoint would then commit
            raise sqlite3.OperationalError("the transaction was rolled back")
        connection.execute("SAVEPOINT request")
        events = len(self.announcements.events)
        try:
            return Outcome(job, self._work(connection, job))
        except Exception as found:
            error = checksums.damage(connection, found) if isinstance(found, sqlite3.Error) else found
            if isinstance(error, sqlite3.Error):
                raise
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
                    outcome = Outcome(job, self._work(connection, job))
            except sqlite3.Error as error:
                outcome = Outcome(job, error=storage_problem(error))
            except Exception as error:  # noqa: BLE001 - the request is answered with it
                outcome = Outcome(job, error=error)
            outcome.deliver()
        if jobs:
            self.streams.evict(self.lookahead.names)


def storage_problem(error: sqlite3.Error) -> Problem:
    """Return the reply to a request that failed because of the disk or the database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return disk_full()
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Problem(500, "damaged", f"the database is damaged on the disk ({error}): {checksums.ADVICE}")
    message = f"the database could not be written, nothing was accepted: {error}"
    return Problem(503, "storage", message, retry_after=5)


def disk_full() -> Problem:
    """Return the reply to a request that failed because the disk is full."""
    return Problem(507, "storage-full", "the disk is full: nothing was accepted; free some space and send it again")
