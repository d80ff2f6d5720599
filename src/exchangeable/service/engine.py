"""The engine: all that changes goes through one thread, which commits a group of requests at a time.

A request is answered after its commit. If a commit fails, the streams it touched are forgotten and come back from what
is on disk, so that memory never runs ahead of the database. The bets of different streams are computed side by side,
those of the next group while this one is written, since the compiled loops let the interpreter go; everything else
happens in the order of arrival.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import snapshot
from exchangeable.martingale import LN10
from exchangeable.protocols import Path
from exchangeable.pvalues import draw_seed
from exchangeable.service import alerts, fleet, history
from exchangeable.service.deduplication import Deduplicator
from exchangeable.service.late_labels import Label, Ready, Waiting, server_clock
from exchangeable.service.parsing import Batch
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Settings
from exchangeable.service.store import APPLICATION, PER_STREAM, Store
from exchangeable.service.stream import BINS, CHANGING, Live, binned, examples, keep, kinds, stream
from exchangeable.service.stream_config import Configuration, stored
from exchangeable.validation import LARGEST

log: logging.Logger = logging.getLogger(__name__)
MOST_THREADS = 8
WIDE = 8  # numbers that count as one row in the queue
ROOM = 1 << 20  # bytes that the disk must have before the server is ready again
GROUP = 64  # requests that share a commit
BYTES_A_STEP = 32  # a snapshot may cost this much writing for each step since the one before
CURVE = 101  # points of a betting function
PRUNED = 16 * history.BLOCK  # steps to prune at a time
UPDATE = f"UPDATE streams SET {', '.join(f'{column} = ?' for column in CHANGING)} WHERE id = ?"  # noqa: S608


class Steps(NamedTuple):
    """What readers of events are told after a commit: new steps, and the stream as it stands."""

    name: str
    points: history.Points | None
    stream: dict[str, Any]
    kind: str = "steps"  # or "reset", "gone"


@dataclass
class Job:
    """A request in the queue; a batch of observations says of which stream it is."""

    work: Callable[[sqlite3.Connection], Any]
    rows: int = 0
    writes: bool = True
    stream: str | None = None
    batch: Batch | None = None
    future: Future[Any] = field(default_factory=Future)


class Admitted(NamedTuple):
    """Observations that a stream takes, the repeats among them, and the bets if they are computed ahead."""

    live: Live
    batch: Batch
    new: Batch
    repeats: int
    path: Future[Path] | None = None


class Engine:
    """Streams in memory and the thread that moves them."""

    def __init__(self, store: Store, settings: Settings, publish: Callable[[list[Steps], bool], None]) -> None:
        self.store = store
        self.settings = settings
        self.publish = publish
        self.failing: Problem | None = None  # what the last commit met, if it failed
        with store.read() as connection:
            self.clock: Callable[[], float] = server_clock(connection)
        self.commit_seconds: Callable[[float], None] = lambda seconds: None
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lives: OrderedDict[str, Live] = OrderedDict()
        self._news: list[Steps] = []
        self._alerted = False  # whether the group has put alerts into the outbox
        self._ahead: dict[str, Admitted] = {}
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "exchangeable-bets")
        self._queued = threading.Lock()
        self.queued_rows: int = 0
        self.queued_requests: int = 0
        self._stopping = self._ended = False
        self._probe: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="exchangeable-engine", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Finish what is queued, put every stream to rest, and end."""
        with self._queued:
            self._stopping = True
        self._jobs.put(None)
        self._thread.join()
        self._pool.shutdown()

    # -------------------------------------------------------------- requests, from any thread

    def create(self, name: str, configuration: Configuration) -> Future[tuple[bool, dict[str, Any]]]:
        """Make a stream; whether it is new, and the stream."""
        return self._submit(lambda connection: self._create(connection, name, configuration))

    def delete(self, name: str) -> Future[None]:
        """Remove a stream and its history; its place in the fleet and the number of its tests are kept."""
        return self._submit(lambda connection: self._delete(connection, name))

    def reset(self, name: str) -> Future[dict[str, Any]]:
        """Begin a new test with the next observation; the stream."""
        return self._submit(lambda connection: self._reset(connection, name))

    def observe(self, name: str, batch: Batch) -> Future[dict[str, Any]]:
        """Take observations; what became of them."""
        now = self.clock()
        work = lambda connection: self._observe(connection, name, batch, now)  # noqa: E731
        rows = max(len(batch), batch.x.size // WIDE)
        return self._submit(work, rows=rows, stream=name, batch=batch)

    def label(self, name: str, labels: list[Label]) -> Future[dict[str, Any]]:
        """Take labels that come late; what became of them."""
        now = self.clock()
        return self._submit(lambda connection: self._label(connection, name, labels, now), rows=len(labels))

    def export(self, name: str) -> Future[bytes]:
        """The monitor of a stream as plain data."""
        work = lambda connection: snapshot.encode(self._live(connection, name).monitor)  # noqa: E731
        return self._submit(work, writes=False, stream=name)

    def bet(self, name: str) -> Future[dict[str, Any]]:
        """The betting function for the next p-value, and the p-values of this test."""
        return self._submit(lambda connection: self._bet(connection, name), writes=False, stream=name)

    def write(self, work: Callable[[sqlite3.Connection], Any]) -> Future[Any]:
        """Do something else with the database, in its turn."""
        return self._submit(work, limited=False)

    def probe(self) -> Future[None]:
        """Write something harmless, if the disk has some room; a refusal shows in ``failing``. One at a time."""
        if self._probe is None or self._probe.done():
            self._probe = self._submit(self._touch, limited=False)
        return self._probe

    def _submit(
        self,
        work: Callable[[sqlite3.Connection], Any],
        *,
        rows: int = 0,
        writes: bool = True,
        limited: bool = True,
        stream: str | None = None,
        batch: Batch | None = None,
    ) -> Future[Any]:
        job = Job(work, rows, writes, stream, batch)
        limits = self.settings.limits
        with self._queued:
            if self._stopping:
                raise Problem(503, "not-ready", "the server is stopping; try again later", retry_after=5)
            crowded = self.queued_rows > 0 and self.queued_rows + rows > limits.queue_rows
            if limited and (crowded or self.queued_requests >= limits.queue_requests):
                law = f"at most {limits.queue_rows} observations and {limits.queue_requests} requests may be queued"
                raise Problem(429, "overload", f"the server is busy, {law}: try again in a second", retry_after=1)
            self.queued_requests += 1
            self.queued_rows += rows
            self._jobs.put(job)
        return job.future

    # -------------------------------------------------------------- the thread

    def _run(self) -> None:
        group: list[Job] = []
        while not self._ended or group:
            group = self._turn(group or self._take(wait=True))
        self._rest()

    def _turn(self, group: list[Job]) -> list[Job]:
        """Serve a group of requests; the next one, whose bets may have begun."""
        following = self._serve([job for job in group if job.writes])
        looks = [job for job in group if not job.writes]
        self._answer([job for job in looks if job.stream not in self._ahead])
        return [job for job in looks if job.stream in self._ahead] + following  # a monitor in motion is not looked at

    def _take(self, *, wait: bool) -> list[Job]:
        """What is queued, some requests at a time."""
        taken: list[Job | None] = [self._jobs.get()] if wait else []
        while len(taken) < GROUP and not self._jobs.empty():
            taken.append(self._jobs.get())
        self._ended |= None in taken
        jobs = [job for job in taken if job is not None]
        with self._queued:
            self.queued_requests -= len(jobs)
            self.queued_rows -= sum(job.rows for job in jobs)
        return [job for job in jobs if job.future.set_running_or_notify_cancel()]  # others have given up

    def _serve(self, jobs: list[Job]) -> list[Job]:
        """One transaction for all; each is undone alone if it is refused. What was taken from the queue since."""
        following: list[Job] = []
        if not jobs:
            return following
        outcomes: list[tuple[Job, Any, Exception | None]] = []
        self._news, self._alerted = [], False
        began = time.perf_counter()
        try:
            with self.store.write() as connection:
                self._begin(connection, jobs if len(jobs) > 1 else [], set())
                if all(job.batch is not None for job in jobs):
                    following = self._take(wait=False)
                    self._begin(connection, following, {job.stream for job in jobs})
                for job in jobs:
                    outcomes.append((job, *self._one(connection, job)))
                self._shed(connection)
        except sqlite3.Error as error:
            self._fail(jobs, error)
            return following
        except Exception as error:
            self._forget()
            log.exception("a group of requests failed")
            for job in jobs:
                job.future.set_exception(error)
            return following
        if any(refusal is None for _, _, refusal in outcomes):
            self.failing = None
        self._announce(time.perf_counter() - began)
        for job, result, refusal in outcomes:
            if refusal is None:
                job.future.set_result(result)
            else:
                job.future.set_exception(refusal)
        return following

    def _announce(self, seconds: float) -> None:
        """Tell of a commit. Whatever goes wrong in that, the commit stands and its requests are answered."""
        try:
            self.commit_seconds(seconds)
            if self._news:
                self.publish(self._news, self._alerted)
        except Exception:
            log.exception("events could not be told")

    def _begin(self, connection: sqlite3.Connection, jobs: list[Job], busy: set[str | None]) -> None:
        """Let the bets on the first batch of each stream that is not busy be computed, if nothing comes before it."""
        touched = busy | set(self._ahead)
        for job in jobs:
            if job.batch is None or job.stream is None:
                break  # it may touch any stream
            if job.stream in touched:
                continue
            touched.add(job.stream)
            try:
                live = self._live(connection, job.stream)
                if live.configuration.needs_labels:
                    continue  # it may have to wait
                admitted = self._admitted(connection, live, job.batch, 0.0)
            except sqlite3.Error:
                raise
            except Exception:  # noqa: BLE001, S112 - it is refused in its turn
                continue
            if len(admitted.new):
                x = examples(live.configuration, admitted.new.x)
                self._ahead[job.stream] = admitted._replace(path=self._pool.submit(live.monitor.extend, x))

    def _one(self, connection: sqlite3.Connection, job: Job) -> tuple[Any, Exception | None]:
        if not connection.in_transaction:  # some errors undo it: a savepoint would then be a commit of its own
            raise sqlite3.OperationalError("the transaction was undone")
        connection.execute("SAVEPOINT request")
        news = len(self._news)
        try:
            return job.work(connection), None
        except sqlite3.Error:
            raise
        except Exception as refusal:  # noqa: BLE001 - its sender is told
            connection.execute("ROLLBACK TO request")
            del self._news[news:]
            if not isinstance(refusal, Problem):
                self._forget()
            return None, refusal
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE request")

    def _answer(self, jobs: list[Job]) -> None:
        """Requests that only look."""
        for job in jobs:
            try:
                with self.store.read() as connection:
                    job.future.set_result(job.work(connection))
            except sqlite3.Error as error:
                job.future.set_exception(storage(error))
            except Exception as refusal:  # noqa: BLE001 - its sender is told
                job.future.set_exception(refusal)
        while len(self._lives) > self.settings.live_streams and not self._ahead:
            self._lives.popitem(last=False)  # it comes back from the database, by replay

    def _fail(self, jobs: list[Job], error: sqlite3.Error) -> None:
        self._forget()
        self.failing = storage(error)
        log.error("the database refused a commit: %s", error)
        for job in jobs:
            job.future.set_exception(storage(error))

    def _forget(self) -> None:
        """Any stream may have moved without being written: all come back from the database."""
        self._lives.clear()
        self._ahead.clear()

    def _live(self, connection: sqlite3.Connection, name: str) -> Live:
        live = self._lives.get(name)
        if live is None:
            live = self._lives[name] = Live.load(connection, name)
        self._lives.move_to_end(name)
        return live

    def _shed(self, connection: sqlite3.Connection) -> None:
        """Put the streams to rest that were not used for longest, if there are too many."""
        still = [name for name in self._lives if name not in self._ahead]
        for name in still[: max(len(self._lives) - self.settings.live_streams, 0)]:
            self._settle(connection, self._lives[name])
            del self._lives[name]

    def _rest(self) -> None:
        try:
            with self.store.write() as connection:
                for live in self._lives.values():
                    self._settle(connection, live)
        except sqlite3.Error as error:  # nothing is lost: the steps are there, and will be replayed
            log.warning("snapshots could not be written: %s", error)

    # -------------------------------------------------------------- streams

    def _create(
        self, connection: sqlite3.Connection, name: str, configuration: Configuration
    ) -> tuple[bool, dict[str, Any]]:
        row = connection.execute("SELECT configuration FROM streams WHERE name = ?", (name,)).fetchone()
        if row is not None:
            kept = stored(row[0])
            if kept.canonical() != configuration.like(kept).canonical():
                raise Problem(409, "conflict", f"stream {name!r} exists with another configuration")
            return False, stream(connection, name)
        most = self.settings.limits.streams
        if connection.execute("SELECT count(*) FROM streams").fetchone()[0] >= most:
            raise Problem(409, "too-many-streams", f"there must be at most {most} streams; delete one first")
        configuration = configuration.with_seed(draw_seed())
        fleet.join(connection, name, self.settings.fleet_size)
        live = Live.fresh(0, name, configuration, time.time())
        columns = ("name", "configuration", "kinds", "created", *CHANGING)
        live.id = (
            connection.execute(
                f"INSERT INTO streams ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",  # noqa: S608
                (name, configuration.canonical(), kinds(configuration), live.created, *live.values()),
            ).lastrowid
            or 0
        )
        keep(connection, live)
        self._lives[name] = live
        self._news.append(Steps(name, None, live.summary(), "made"))
        return True, live.whole()

    def _delete(self, connection: sqlite3.Connection, name: str) -> None:
        live = self._known(connection, name)
        self._resolve(connection, live, "deleted")
        for table in PER_STREAM:
            connection.execute(f"DELETE FROM {table} WHERE stream = ?", (live.id,))  # noqa: S608
        connection.execute("DELETE FROM streams WHERE id = ?", (live.id,))
        fleet.leave(connection, name, live.resets + 1)
        self._lives.pop(name, None)
        self._news.append(Steps(name, None, {"name": name}, "gone"))

    def _reset(self, connection: sqlite3.Connection, name: str) -> dict[str, Any]:
        live = self._known(connection, name)
        self._resolve(connection, live, "reset")
        n = live.monitor.n
        with self._moving(live):
            Waiting(connection, live, 0.0).clear()
            live.monitor = live.configuration.monitor(start=n)
            live.since, live.resets, live.histogram = n, live.resets + 1, np.zeros(BINS, np.int64)
            live.carried = live.total = live.peak = 0.0
            self._mark(connection, live, n, "reset", None)
            keep(connection, live)
            self._update(connection, live)
        self._lives[name] = live
        self._news.append(Steps(name, None, live.summary(), "reset"))
        return live.whole()

    def _known(self, connection: sqlite3.Connection, name: str) -> Live:
        """A stream that is to be deleted or begun again; one that cannot be resumed is known by its row."""
        try:
            return self._live(connection, name)
        except Problem as problem:
            if problem.status != 503:
                raise
            return Live.row(connection, name)

    def _bet(self, connection: sqlite3.Connection, name: str) -> dict[str, Any]:
        live = self._live(connection, name)
        n, places = live.monitor.n, (np.arange(CURVE) + 0.5) / CURVE
        recent = history.read(connection, live.id, max(n - history.BLOCK, live.since) + 1, n, history.BLOCK).p
        log_density = live.monitor.martingale.bet.log_density
        return {
            "n": n,
            "p": places.tolist(),
            "density": [float(np.exp(log_density(p))) for p in places.tolist()],
            "histogram": live.histogram.tolist(),
            "recent": binned(recent[np.isfinite(recent)]).tolist(),  # what was pruned is not there
        }

    # -------------------------------------------------------------- observations

    def _observe(self, connection: sqlite3.Connection, name: str, batch: Batch, now: float) -> dict[str, Any]:
        admitted = self._ahead.pop(name, None)
        live = self._live(connection, name)
        if admitted is None or admitted.live is not live or admitted.batch is not batch:
            if admitted is not None and admitted.live is live:  # it has moved for a batch that never came
                del self._lives[name]
                live = self._live(connection, name)
            admitted = self._admitted(connection, live, batch, now)
        _, _, new, repeats, path = admitted
        with self._moving(live):
            live.duplicates += repeats
            self._clean(connection, live, live.next_seq + len(new))
            live.next_seq += len(new)
            live.observations += len(new)
            if len(new):
                live.observed_at, live.width = time.time(), new.x.shape[1]
            ready = Waiting(connection, live, now).join(new)
            points = self._play(connection, live, ready, path)
        return self._said(connection, live, points, accepted=len(new), duplicates=repeats)

    def _admitted(self, connection: sqlite3.Connection, live: Live, batch: Batch, now: float) -> Admitted:
        new, repeats = Deduplicator(connection, live).split(batch)
        if len(new):
            self._admit(live, new)
            Waiting(connection, live, now).admit(new)
        return Admitted(live, batch, new, repeats)

    def _label(self, connection: sqlite3.Connection, name: str, labels: list[Label], now: float) -> dict[str, Any]:
        live = self._live(connection, name)
        if not live.configuration.needs_labels:
            kind = live.configuration.measure.kind
            raise Problem(409, "conflict", f"labels play no part in stream {name!r}, whose measure is {kind}")
        waiting = Waiting(connection, live, now)
        counts = waiting.label(labels)
        with self._moving(live):
            points = self._play(connection, live, waiting.release())
        return self._said(connection, live, points, **counts)

    def _said(
        self, connection: sqlite3.Connection, live: Live, points: history.Points | None, **counts: int
    ) -> dict[str, Any]:
        self._update(connection, live)
        stream = live.summary()
        self._news.append(Steps(live.name, points, stream))
        return {**counts, **{key: stream[key] for key in ("next_seq", "state", "waiting", "expired")}}

    def _admit(self, live: Live, new: Batch) -> None:
        """Refuse what the stream cannot take, before anything moves."""
        width = new.x.shape[1]
        if live.configuration.scalar and width != 1:
            raise Problem(422, "bad-observation", f"x must be one number in stream {live.name!r}, got {width}")
        if live.width is not None and width != live.width:
            raise Problem(
                422, "bad-observation", f"x must hold {live.width} numbers in stream {live.name!r}, got {width}"
            )
        if live.configuration.measure.kind == "p-values":
            self._lawful(live, new, (new.x > 0.0) & (new.x <= 1.0), "lie in (0, 1]")
        elif not live.configuration.scalar:
            self._lawful(live, new, np.abs(new.x) <= LARGEST, f"be of magnitude at most {LARGEST:g}")
        cap = live.configuration.cap
        if cap is not None and live.in_pool() + live.waiting + len(new) > cap:
            law = f"stream {live.name!r} holds at most {cap} examples and has {live.in_pool() + live.waiting}"
            raise Problem(409, "full", f"{law}: reset it, or make one with a higher cap")

    def _lawful(self, live: Live, new: Batch, good: NDArray[np.bool_], law: str) -> None:
        rows = good.all(axis=1)
        if not rows.all():
            seq = int(new.seq[rows.argmin()])
            message = f"x must {law} in stream {live.name!r}, but does not at seq {seq}"
            raise Problem(422, "bad-observation", message, seq=seq)

    def _play(
        self, connection: sqlite3.Connection, live: Live, ready: Ready, ahead: Future[Path] | None = None
    ) -> history.Points | None:
        """Bet on what is ready, unless that is done; store the steps and what a restart needs."""
        if not len(ready.seq):
            return None
        first = live.tail.n + 1
        try:
            path = (
                live.monitor.extend(examples(live.configuration, ready.x), ready.y) if ahead is None else ahead.result()
            )
        except ValueError as error:
            raise Problem(422, "bad-observation", f"{error}") from error
        log10 = path.log_value / LN10
        seq = None if ready.seq[0] == first and ready.seq[-1] == first + len(ready.seq) - 1 else ready.seq
        x = np.ascontiguousarray(ready.x, "<f8").tobytes()
        live.tail = history.append(connection, live.id, live.tail, path.p, log10, x=x, seq=seq, extra=ready.extra())
        live.gain(path)
        self._alarms(connection, live, path)
        self._keep(connection, live)
        return history.Points(path.n, log10, path.p, True, 1)

    def _alarms(self, connection: sqlite3.Connection, live: Live, path: Path) -> None:
        """Note the alarms of these steps: each with restarts; else the one that latched, if it was in one of them."""
        restarts = live.monitor.on_alarm == "restart"
        sounded = np.flatnonzero(path.alarm if restarts else path.n == live.monitor.alarm_at)
        for place in sounded.tolist():
            n, changepoint = int(path.n[place]), int(path.lowest[place])
            live.alarms += 1
            self._mark(connection, live, n, "alarm", changepoint)
            if place == sounded[-1]:  # of several in one batch the last is told: they are one alert
                value = float(path.log_value[place])
                self._alert(connection, live, "firing", n, changepoint, value)
                if restarts:
                    self._alert(connection, live, "resolved", n, changepoint, value, "restart")
        if restarts and len(sounded):
            live.since = int(path.n[sounded[-1]])
            live.histogram[:] = 0
        live.count(path.p[path.n > live.since])

    def _resolve(self, connection: sqlite3.Connection, live: Live, reason: str) -> None:
        """The alarm of a stream that is reset or deleted is over."""
        monitor = live.monitor
        if monitor.on_alarm == "latch" and monitor.alarm_at is not None and monitor.last is not None:
            n, changepoint = monitor.alarm_at, monitor.changepoint or 0
            self._alert(connection, live, "resolved", n, changepoint, monitor.last.log_value, reason)

    def _alert(
        self,
        connection: sqlite3.Connection,
        live: Live,
        status: alerts.Status,
        n: int,
        changepoint: int,
        value: float,
        reason: str = "",
    ) -> None:
        details = alerts.Details(
            alarm=live.configuration.alarm.kind,
            guarantee=live.guarantee,
            alarm_at=n,
            changepoint=changepoint,
            log10_martingale=value / LN10 if math.isfinite(value) else None,
            reason=reason,
        )
        self._alerted |= alerts.enqueue(connection, self.settings.webhooks, live.name, status, details, time.time()) > 0

    def _mark(self, connection: sqlite3.Connection, live: Live, n: int, kind: str, changepoint: int | None) -> None:
        connection.execute(
            "INSERT INTO marks (stream, n, kind, changepoint, time) VALUES (?, ?, ?, ?, ?)",
            (live.id, n, kind, changepoint, time.time()),
        )

    # -------------------------------------------------------------- what a restart needs

    def _touch(self, connection: sqlite3.Connection) -> None:
        if self.store.room() < ROOM:  # a few bytes may fit where no batch does
            raise full()
        connection.execute(f"PRAGMA application_id = {APPLICATION}")

    def _update(self, connection: sqlite3.Connection, live: Live) -> None:
        connection.execute(UPDATE, (*live.values(), live.id))

    def _keep(self, connection: sqlite3.Connection, live: Live) -> None:
        """A snapshot now and then, and no more old steps than wanted."""
        since = live.monitor.n - live.snapshot_n
        if since >= max(self.settings.snapshot_every, live.snapshot_bytes // BYTES_A_STEP):
            keep(connection, live)
        retention = self.settings.retention
        keep_from = min(live.monitor.n - retention.observations, live.snapshot_n) + 1
        if keep_from - live.kept >= PRUNED:
            rolled_from = live.monitor.n - retention.rollups + 1
            live.kept = history.prune(connection, live.id, min(keep_from, live.kept + 4 * PRUNED), rolled_from)

    def _clean(self, connection: sqlite3.Connection, live: Live, next_seq: int) -> None:
        """Now and then: no more old labels, and observations that waited in vain, than wanted."""
        if live.configuration.needs_labels and next_seq // PRUNED != live.next_seq // PRUNED:
            seq = next_seq - self.settings.retention.observations
            for table in ("labels", "expired"):
                connection.execute(f"DELETE FROM {table} WHERE stream = ? AND seq < ?", (live.id, seq))  # noqa: S608

    def _settle(self, connection: sqlite3.Connection, live: Live) -> None:
        if live.monitor.n != live.snapshot_n:
            keep(connection, live)

    @contextmanager
    def _moving(self, live: Live) -> Iterator[None]:
        """What is refused half-way leaves no trace: the stream comes back from the database."""
        try:
            yield
        except BaseException:
            self._lives.pop(live.name, None)
            raise


def storage(error: sqlite3.Error) -> Problem:
    """What is said when the disk or the database fails."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL:
        return full()
    return Problem(503, "storage", f"the database could not be written, nothing was taken: {error}", retry_after=5)


def full() -> Problem:
    """What is said when there is no more room."""
    return Problem(507, "storage-full", "the disk is full: nothing was taken; make room and send it again")
