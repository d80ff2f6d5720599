"""The main loop of a watch: examples go to the monitor, steps to the output, and the state to its file."""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from exchangeable.data.events.errors import LineError
from exchangeable.data.events.reader import Batch, Reader
from exchangeable.evidence import EvidenceMonitor
from exchangeable.keyed import sequence
from exchangeable.martingale import LN10
from exchangeable.monitor import Monitor
from exchangeable.protocols import Path as Steps
from exchangeable.rate import RateChange, RatePath
from exchangeable.risk import RiskPath
from exchangeable.tracker import Tracker
from exchangeable.watch.source import Block, LineReader, Signals, Source, Stopped
from exchangeable.watch.state import StateFile

FEW = 8  # examples that are tested one by one: a monitor that restarts copies itself before each batch
SAVE_SHARE = 0.1  # the largest share of the time that is spent on saving


class OutputOptions(NamedTuple):
    """Which steps are written: every N-th, only new alarms, or none. New alarms are always written unless ``quiet``."""

    every: int = 1
    alarms_only: bool = False
    quiet: bool = False


class OutputStep(NamedTuple):
    """A step with the fields that are written."""

    n: int
    p: float | None  # None if the rate or the risk is monitored, without p-values
    log_value: float
    alarm: bool
    alarm_at: int | None
    changepoint: int | None
    statistic: float | None = None  # its log, if it is compared with a level instead of the capital
    change: RateChange | None = None  # at a new alarm, if the rate is monitored
    risk: tuple[float, float, float] | None = None  # the mean loss and the interval, if the risk is monitored

    def to_json(self, id: str | None) -> str:  # noqa: A002
        """Return one line of JSON. The logarithm of a capital of 0 is null."""
        log10 = json_log10(self.log_value)
        suffix = "" if id is None else f', "id": {json.dumps(id)}'
        alarm = f', "alarm_at": {self.alarm_at}, "changepoint": {self.changepoint}' if self.alarm else ""
        if self.change is not None:
            value, before, after = self.change
            alarm += f', "value": {json.dumps(value)}, "rate_before": {before!r}, "rate_after": {after!r}'
        flag = "true" if self.alarm else "false"
        p = "" if self.p is None else f'"p": {self.p!r}, '
        capital = f'"log10_martingale": {log10}, '
        if self.statistic is not None:
            capital += f'"log10_statistic": {json_log10(self.statistic)}, '
        if self.risk is not None:
            capital += '"mean": {!r}, "low": {!r}, "high": {!r}, '.format(*self.risk)
        return f'{{"n": {self.n}, {p}{capital}"alarm": {flag}{alarm}{suffix}}}\n'


class Loop(ABC):
    """Reads blocks of lines, and saves the state. Output is flushed before the state is saved.

    ``save_every`` is in seconds; 0 saves after every batch, before the next one is read.
    """

    def __init__(
        self,
        monitor: Tracker,
        reader: LineReader,
        source: Source,
        out: BinaryIO,
        *,
        state: StateFile | None = None,
        save_every: float = 5.0,
    ) -> None:
        self.tracker = monitor
        self.lines = reader
        self.source = source
        self.out = out
        self.state = state
        self.save_every = save_every
        self._alarm_raised = False
        self._saved_at, self._save_seconds, self._unsaved = time.monotonic(), 0.0, False

    def run(self, signals: Signals) -> bool:
        """Run to the end of the input or to a signal, and return whether there is an alarm.

        Raises ``LineError`` at an invalid line and ``Stopped`` after a signal; everything before is written and saved.
        """
        patience = self.save_every if self.state is not None and self.save_every else None
        try:
            for block in self.source.blocks(signals, patience):
                if block is not None:
                    self._process(block)
                if self._due():
                    self._save()
        except LineError:
            self._save()
            raise
        self._save()
        if signals.caught is not None:
            raise Stopped(signals.caught)
        return self._alarm_raised if self.tracker.on_alarm == "restart" else self.tracker.alarm_at is not None

    def _process(self, block: Block) -> None:
        """Test the examples of a block and write the steps; stop before an invalid line."""
        fault = self._test(block)
        self.source.mark_processed(block, None if fault is None else fault.line)
        self._unsaved = True
        if fault is not None:
            raise fault

    @abstractmethod
    def _test(self, block: Block) -> LineError | None:
        """Test the examples of a block and write the steps, up to an invalid line, whose error is returned."""

    def _new_numbers(self, seq: Sequence[int | None], line: Sequence[int]) -> tuple[list[int], LineError | None]:
        """Return the positions of the examples that were not seen before, up to a gap, and the error about that."""
        steps, _, fault = sequence.classify_in_turn(seq, self.tracker.n + 1)
        if fault is None:
            return steps, None
        message = f"seq must be {fault.expected}, got {fault.number}: the numbers between them are missing"
        return steps, LineError(line[fault.position], message)

    def _emit(self, lines: list[str]) -> None:
        if not lines:
            return
        remaining = memoryview("".join(lines).encode("utf-8"))
        while remaining:  # an unbuffered output (PYTHONUNBUFFERED) may write less at a signal
            remaining = remaining[self.out.write(remaining) :]
        self.out.flush()

    def _due(self) -> bool:
        pause = max(self.save_every, self._save_seconds / SAVE_SHARE)
        return self._unsaved and time.monotonic() - self._saved_at >= pause

    def _save(self) -> None:
        if self.state is None or not self._unsaved:
            return
        start = time.monotonic()
        self.state.save(self.tracker, self.lines.columns, self.source)
        self._saved_at = time.monotonic()
        self._save_seconds, self._unsaved = self._saved_at - start, False


class Watch(Loop):
    """Reads examples, tests them and writes the steps."""

    def __init__(
        self,
        monitor: Monitor | EvidenceMonitor,
        reader: Reader,
        source: Source,
        out: BinaryIO,
        *,
        options: OutputOptions = OutputOptions(),  # noqa: B008 (it cannot change)
        state: StateFile | None = None,
        save_every: float = 5.0,
    ) -> None:
        super().__init__(monitor, reader, source, out, state=state, save_every=save_every)
        self.monitor = monitor
        self.reader = reader
        self.options = options

    def _test(self, block: Block) -> LineError | None:
        batch = self._new_examples(self.reader.read(block.lines, block.first))
        steps, fault = self._steps(batch)
        self._write(steps, batch)
        return fault or batch.fault

    def _new_examples(self, batch: Batch) -> Batch:
        """Drop the examples whose sequence number was seen before, and stop at a gap."""
        if batch.seq is None:
            return batch
        steps, fault = self._new_numbers(batch.seq, batch.line)
        new = batch.select(steps)
        return new if fault is None else new._replace(fault=fault)

    def _steps(self, batch: Batch) -> tuple[list[OutputStep], LineError | None]:
        """Test the examples at once; if the batch is rejected, test them one by one to find the invalid line."""
        if len(batch.x) > FEW:
            try:
                return self._extend(batch.x, batch.y), None
            except ValueError:
                pass
        steps: list[OutputStep] = []
        for i, x in enumerate(batch.x):
            try:
                steps.append(self._update(x) if batch.y is None else self._update(x, batch.y[i]))
            except ValueError as error:
                return steps, LineError(batch.line[i], str(error))
        return steps, None

    def _update(self, *example: Any) -> OutputStep:
        if isinstance(self.monitor, EvidenceMonitor):
            try:
                return self._extend([*example], None)[0]  # a path has more numbers than a step
            except ValueError:
                self.monitor.update(*example)  # its message is about one value
                raise
        step, raised, began = self.monitor.update(*example), self.monitor.alarm_at, self.monitor.changepoint
        return OutputStep(step.n, step.p, step.log_value, step.alarm, raised, began)

    def _extend(self, x: list[Any], y: list[Any] | None) -> list[OutputStep]:
        path = self.monitor.extend(*((x,) if y is None else (x, y)))
        n = path.n.tolist()
        p = path.p.tolist() if isinstance(path, Steps) else [None] * len(n)
        alarm_at = n if self.monitor.on_alarm == "restart" else [self.monitor.alarm_at] * len(n)
        statistic: list[Any] = [None] * len(n)
        if not isinstance(path, Steps) and self.monitor.capital_level is None:  # the alarm compares it with a level
            statistic = path.statistic.tolist()
        columns = (n, p, path.log_value.tolist(), path.alarm.tolist(), alarm_at, path.lowest.tolist(), statistic)
        steps = list(map(OutputStep, *columns))
        if isinstance(path, RatePath) and path.changes:
            new = [i for i, step in enumerate(steps) if step.alarm and step.alarm_at == step.n]
            for i, change in zip(new, path.changes, strict=True):
                steps[i] = steps[i]._replace(change=change)
        if isinstance(path, RiskPath):
            risks = zip(path.mean.tolist(), path.low.tolist(), path.high.tolist(), strict=True)
            steps = [step._replace(risk=risk) for step, risk in zip(steps, risks, strict=True)]
        return steps

    def _write(self, steps: list[OutputStep], batch: Batch) -> None:
        self._alarm_raised = self._alarm_raised or any(step.alarm for step in steps)
        if self.options.quiet:
            return
        self._emit([step.to_json(None if batch.id is None else batch.id[i]) for i, step in self._selected(steps)])

    def _selected(self, steps: list[OutputStep]) -> Iterator[tuple[int, OutputStep]]:
        every, alarms_only, _ = self.options
        for i, step in enumerate(steps):
            if (step.alarm and step.n == step.alarm_at) or (not alarms_only and step.n % every == 0):
                yield i, step


def json_log10(log_value: float) -> str:
    """Return a log in JSON, to the base 10; null for the log of 0."""
    return "null" if log_value == -math.inf else repr(log_value / LN10)


def read_numbers(path: Path) -> list[float]:
    """Return all numbers of a file with one number in each line, such as reference scores."""
    batch = Reader().read(path.read_bytes().split(b"\n"), 1)
    if batch.fault is not None:
        raise batch.fault
    return batch.x
