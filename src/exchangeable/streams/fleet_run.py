"""The test of all streams of a data set."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from exchangeable.data.errors import ColumnError, DataError, naming
from exchangeable.data.labels import LabelKind
from exchangeable.fleet import e_bh
from exchangeable.measures import Conditional, NearestDistance, NearestNeighbour, NearestResidual, Value
from exchangeable.measures.neighbours import Neighbours
from exchangeable.monitor import Monitor
from exchangeable.protocols import Alarm, Bet, Measure
from exchangeable.pvalues import Precomputed, draw_seed
from exchangeable.streams.blocks import Block, sorted_blocks, unsorted_blocks
from exchangeable.streams.columns import ColumnReader, Labels
from exchangeable.streams.frame import check_names
from exchangeable.streams.rows import Use, sort_rows
from exchangeable.streams.source import Source, Wanted, open_source
from exchangeable.streams.summary import RESTARTED, FleetTest, Tested, join, tested
from exchangeable.streams.tables import fresh_table, table_columns
from exchangeable.streams.tester import Progress, StreamTester, check_measure
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import check_integer, format_value


class Options(NamedTuple):
    """How the streams are tested; see `test_streams`."""

    alpha: float = 0.05
    measure: Measure | Precomputed | TableMonitor | None = None
    bet: Bet | None = None
    alarm: Alarm | None = None
    on_alarm: str = "latch"
    seed: int | None = None
    streams: int | None = None
    presorted: bool = False
    steps: bool = False
    threads: int | None = None
    progress: Progress | None = None

    def check(self, wanted: Wanted) -> None:
        """Check what can be checked before anything is read."""
        e_bh([0.0], self.alpha)
        for name in ("presorted", "steps"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {format_value(getattr(self, name))}")
        for name in ("measure", "bet", "alarm"):
            if isinstance(part := getattr(self, name), type):
                raise ValueError(f"{name} must be an object, such as {part.__name__}(), got the class {part.__name__}")
        if self.progress is not None and not callable(self.progress):
            raise ValueError(f"progress must be a function or None, got {format_value(self.progress)}")
        check_names(wanted.key, wanted.order, steps=self.steps)
        if self.on_alarm == "restart" and not self.steps:
            raise ValueError(f"on_alarm='restart' requires steps=True: {RESTARTED}")


def run(data: Any, wanted: Wanted, options: Options) -> FleetTest:
    """Test every stream."""
    wanted.check()
    options.check(wanted)
    seed = draw_seed() if options.seed is None else check_integer("seed", options.seed, 0, 2**64 - 1)
    monitor = None if options.measure is None else _monitor(options.measure, options)
    source = open_source(data, table_columns(wanted, monitor) if isinstance(monitor, TableMonitor) else wanted)
    reader = ColumnReader(source.wanted, options.measure, whole=source.in_memory)
    parts: list[Tested] = []
    tester: StreamTester | None = None
    done = 0
    for block in _blocks(source, reader, options):
        if monitor is None or tester is None:
            monitor = _monitor(_default_measure(reader), options) if monitor is None else monitor
            check_measure(monitor, len(source.wanted.features or ()))
            use = _use(source.wanted, reader.labels, monitor, options)
            level = -math.log(options.alpha)
            tester = StreamTester(monitor, level=level, threads=options.threads, steps=options.steps)
        streams = sort_rows(block.table, use, seed, block.first_row)
        total = reader.rows if reader.complete else source.rows
        found = tester.test(streams, partial(_report, options.progress, done, total or 0))
        parts.append(tested(streams, found))
        done += len(block.table)
        del block, streams
    if monitor is None or not done:
        raise DataError("data must have at least one row, got none")
    restarts = monitor.on_alarm == "restart"
    fields = join(parts, source.wanted, options.alpha, options.streams, steps=options.steps, restarts=restarts)
    fields["columns"]["seed"] = np.full(len(fields["columns"]["n"]), seed, np.uint64)
    return FleetTest(source.wanted, source.library, monitor, seed, options.alpha, rows=done, span=reader.span, **fields)


# ------------------------------------------------------------------ reading


def _blocks(source: Source, reader: ColumnReader, options: Options) -> Iterator[Block]:
    if options.presorted and reader.labels is not None and options.measure is None:
        _survey(source, reader.labels)
    tables = (table for table in _tables(source, reader) if len(table))
    if options.presorted:
        return _decided(sorted_blocks(tables, source.wanted.key), reader)
    done: Callable[[int], None] = partial(_divided, options.progress, source.rows or 0)
    return unsorted_blocks(tables, source.wanted.key, in_memory=source.in_memory, done=done)


def _tables(source: Source, reader: ColumnReader) -> Iterator[Any]:
    for part in source.read(source.wanted.names):
        with naming(part.name):
            table = reader.read(part.table)
        yield table
    reader.check()


def _survey(source: Source, labels: Labels) -> None:
    """Decide what the labels are before the first stream is tested, if the data can be read twice."""
    if source.again:
        for part in source.read([labels.name]):
            with naming(part.name):
                labels.read(part.table[labels.name])
        labels.decide()


def _decided(blocks: Iterator[Block], reader: ColumnReader) -> Iterator[Block]:
    """Check that labels that follow cannot change the measure."""
    for block in blocks:
        if reader.labels is not None and reader.labels.undecided and not reader.complete:
            kinds = "NearestNeighbour() for classes or NearestResidual() for numbers"
            raise ValueError(
                f"measure must be given if labels in presorted batches are numbers, which may be classes: {kinds}"
            )
        yield block


def _divided(progress: Progress | None, rows: int, done: int) -> None:
    if progress is not None:
        progress("dividing the data by key", done, rows)


def _report(progress: Progress | None, before: int, rows: int, done: int) -> None:
    if progress is not None:
        progress("testing streams", before + done, rows)


# ------------------------------------------------------------------ the recipe


def _monitor(measure: Any, options: Options) -> Monitor | TableMonitor:
    if isinstance(measure, TableMonitor):
        for name in (name for name in ("bet", "alarm") if getattr(options, name) is not None):
            raise ValueError(f"{name} must not be given with a TableMonitor, which has its own")
        return fresh_table(measure, 0, options.on_alarm)
    if getattr(measure, "n", 0):
        raise ValueError(f"measure must be fresh, got one that has seen {measure.n} examples")
    return Monitor(measure, options.bet, options.alarm, seed=0, on_alarm=options.on_alarm)


def _default_measure(reader: ColumnReader) -> Measure:
    if reader.labels is not None:
        return NearestResidual() if reader.labels.kind() == "numbers" else NearestNeighbour()
    return Value() if len(reader.wanted.features or ()) == 1 else NearestDistance()


def _use(wanted: Wanted, labels: Labels | None, monitor: Any, options: Options) -> Use:
    measure = getattr(monitor, "measure", None)
    kind: LabelKind | Literal["scores"] | None = None if labels is None else labels.kind()
    if isinstance(measure, (NearestNeighbour, Conditional)):
        kind = None if labels is None else "classes"
    if isinstance(measure, NearestResidual) and labels is not None and not labels.numeric:
        raise ColumnError(f"label must name a column of numbers for {measure!r}, got {format_value(labels.name)}")
    scores = isinstance(monitor, TableMonitor)
    p_values = isinstance(measure, Precomputed)
    distances = isinstance(getattr(measure, "measure", measure), Neighbours)
    kind = "scores" if scores else kind
    return Use(wanted, kind, p_values=p_values, distances=distances, presorted=options.presorted)
