"""The loop: examples to the monitor, steps to the output, and now and then the state to its file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from exchangeable.data.events import Batch, LineError, Reader
from exchangeable.keyed import sequence
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.watch.source import Block, Signals, Source, Stopped
from exchangeable.watch.state import StateFile

FEW = 8  # examples that are taken one by one: a monitor that restarts copies itself before each batch
REST = 10.0  # times as long as saving takes, there is no other saving


class Shown(NamedTuple):
    """Which steps are written: every so many, alarms alone, or none. An alarm that begins is always one of them."""

    every: int = 1
    alarms_only: bool = False
    quiet: bool = False


class Written(NamedTuple):
    """A step as it is written."""

    n: int
    p: float
    log_value: float
    alarm: bool
    alarm_at: int | None
    changepoint: int | None

    def line(self, identity: str | None) -> str:
        """One line of JSON; null is the logarithm of a capital of 0."""
        log10 = "null" if self.log_value == -math.inf else repr(self.log_value / LN10)
        known = "" if identity is None else f', "id": {json.dumps(identity)}'
        alarm = f', "alarm_at": {self.alarm_at}, "changepoint": {self.changepoint}' if self.alarm else ""
        said = "true" if self.alarm else "false"
        return f'{{"n": {self.n}, "p": {self.p!r}, "log10_martingale": {log10}, "alarm": {said}{alarm}{known}}}\n'


class Watch:
    """A monitor between lines and lines. Everything is written and flushed before the state is saved.

    ``save_every`` is in seconds; 0 saves after every batch, before the next is read.
    """

    def __init__(
        self,
        monitor: Monitor,
        reader: Reader,
        source: Source,
        out: BinaryIO,
        *,
        shown: Shown = Shown(),  # noqa: B008 (it cannot change)
        state: StateFile | None = None,
        save_every: float = 5.0,
    ) -> None:
        self.monitor = monitor
        self.reader = reader
        self.source = source
        self.out = out
        self.shown = shown
        self.state = state
        self.save_every = save_every
        self._sounded = False
        self._saved, self._cost, self._unsaved = time.monotonic(), 0.0, False

    def run(self, signals: Signals) -> bool:
        """Go on to the end of the input, or to a signal; is there an alarm?

        Raises ``LineError`` at a line that is no example, and ``Stopped`` after a signal, both with everything before
        written and saved.
        """
        patience = self.save_every if self.state is not None and self.save_every else None
        try:
            for block in self.source.blocks(signals, patience):
                if block is not None:
                    self._take(block)
                if self._due():
                    self._save()
        except LineError:
            self._save()
            raise
        self._save()
        if signals.caught is not None:
            raise Stopped(signals.caught)
        return self._sounded if self.monitor.on_alarm == "restart" else self.monitor.alarm_at is not None

    def _take(self, block: Block) -> None:
        """Bet on the examples of a block and write the steps; stop before a line that is none."""
        batch = self._new_examples(self.reader.read(block.lines, block.first))
        steps, fault = self._steps(batch)
        fault = fault or batch.fault
        self._write(steps, batch)
        self.source.taken(block, None if fault is None else fault.line)
        self._unsaved = True
        if fault is not None:
            raise fault

    def _new_examples(self, batch: Batch) -> Batch:
        """Drop the examples whose sequence number was seen before, and stop at a gap."""
        if batch.seq is None:
            return batch
        steps, _, fault = sequence.classify_in_turn(batch.seq, self.monitor.n + 1)
        new = batch.chosen(steps)
        if fault is None:
            return new
        message = f"seq must be {fault.expected}, got {fault.number}: the numbers between them are missing"
        return new._replace(fault=LineError(batch.line[fault.position], message))

    def _steps(self, batch: Batch) -> tuple[list[Written], LineError | None]:
        """The same numbers one by one or all at once; if the batch is refused, one by one finds the line."""
        if len(batch.x) > FEW:
            try:
                return self._many(batch.x, batch.y), None
            except ValueError:
                pass
        steps: list[Written] = []
        for i, x in enumerate(batch.x):
            try:
                n, p, log_value, alarm = self.monitor.update(x, None if batch.y is None else batch.y[i])
            except ValueError as error:
                return steps, LineError(batch.line[i], str(error))
            steps.append(Written(n, p, log_value, alarm, self.monitor.alarm_at, self.monitor.changepoint))
        return steps, None

    def _many(self, x: list[Any], y: list[Any] | None) -> list[Written]:
        path = self.monitor.extend(x, y)
        n = path.n.tolist()
        begun = n if self.monitor.on_alarm == "restart" else [self.monitor.alarm_at] * len(n)
        columns = (n, path.p.tolist(), path.log_value.tolist(), path.alarm.tolist(), begun, path.lowest.tolist())
        return list(map(Written._make, zip(*columns, strict=True)))

    def _write(self, steps: list[Written], batch: Batch) -> None:
        self._sounded = self._sounded or any(step.alarm for step in steps)
        if self.shown.quiet:
            return
        lines = [step.line(None if batch.id is None else batch.id[i]) for i, step in self._kept(steps)]
        if lines:
            left = memoryview("".join(lines).encode("utf-8"))
            while left:  # an output without a buffer (PYTHONUNBUFFERED) may take less at a signal
                left = left[self.out.write(left) :]
            self.out.flush()

    def _kept(self, steps: list[Written]) -> Iterator[tuple[int, Written]]:
        every, alarms_only, _ = self.shown
        for i, step in enumerate(steps):
            if (step.alarm and step.n == step.alarm_at) or (not alarms_only and step.n % every == 0):
                yield i, step

    def _due(self) -> bool:
        rest = max(self.save_every, REST * self._cost)
        return self._unsaved and time.monotonic() - self._saved >= rest

    def _save(self) -> None:
        if self.state is None or not self._unsaved:
            return
        begun = time.monotonic()
        self.state.save(self.monitor, self.reader.columns, self.source)
        self._saved = time.monotonic()
        self._cost, self._unsaved = self._saved - begun, False


def numbers(path: Path) -> list[float]:
    """All numbers of a file, one in each line: a table of reference scores."""
    batch = Reader().read(path.read_bytes().split(b"\n"), 1)
    if batch.fault is not None:
        raise batch.fault
    return batch.x
