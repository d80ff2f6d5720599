"""`exchangeable spark monitor`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    RESULT_PANEL,
    TEST_PANEL,
    Alarm,
    Alpha,
    BetName,
    Epsilon,
    Format,
    FormatOption,
    OnAlarm,
    OnAlarmOption,
    Period,
    join_names,
)
from exchangeable.cli.output import print_notes
from exchangeable.cli.scores import read_reference, score_measure
from exchangeable.cli.spark.options import (
    CLUSTER,
    INPUT,
    VALUE,
    Bad,
    Conf,
    Key,
    Live,
    Master,
    OnBad,
    Option,
    OrderAs,
    OrderKind,
    Rate,
    Source,
    Streams,
    pairs,
)
from exchangeable.cli.spark.report import report
from exchangeable.cli.spark.running import cluster, parts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from exchangeable.spark.progress import Batch

BINS = 64


def monitor(
    source: Annotated[str, typer.Argument(help="Folder in which files appear, or the servers of Kafka.")],
    key: Key,
    order: Annotated[
        str, typer.Option(help="Column of sequence numbers (1, 2, ...) or of times.", rich_help_panel=INPUT)
    ],
    features: Annotated[
        str, typer.Option(metavar="A", help="Column of numbers, or of p-values.", rich_help_panel=INPUT)
    ],
    output: Annotated[str, typer.Option(help="Folder for the rows, in Parquet.", rich_help_panel=RESULT_PANEL)],
    checkpoint: Annotated[
        str, typer.Option(help="Folder for Spark's checkpoint: what a restart goes on from.", rich_help_panel=CLUSTER)
    ],
    input: Annotated[Source, typer.Option(help="Kind of source.", rich_help_panel=INPUT)] = Source.auto,  # noqa: A002
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="'A string, B long, ...'",
            help="Columns of the source; default: those of the files that are there. Kafka: of the JSON in a message.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    order_as: OrderAs = OrderKind.bigint,
    option: Option = None,
    no_gaps: Annotated[
        bool,
        typer.Option("--no-gaps", help="Numbers only rise (offsets of Kafka): none is missed.", rich_help_panel=INPUT),
    ] = False,
    bad: OnBad = Bad.fail,
    measure: Annotated[
        Live,
        typer.Option(
            metavar="NAME",
            help="value, frozen (scores between quantiles of --reference), p-values (brought along).",
            rich_help_panel=TEST_PANEL,
        ),
    ] = VALUE,
    reference: Annotated[
        Path | None, typer.Option(help="Of frozen: a file of scores, one in a line.", rich_help_panel=TEST_PANEL)
    ] = None,
    bins: Annotated[
        int | None, typer.Option(min=2, help=f"Of frozen: default {BINS}.", rich_help_panel=TEST_PANEL)
    ] = None,
    bet: Annotated[
        BetName | None,
        typer.Option(
            metavar="NAME",
            help=f"How to bet on the p-values: {join_names(BetName)}. Default: watchful with the alarms cusum and "
            "shiryaev-roberts, composite-jumper with the others. A stream keeps 0.3 kB with composite-jumper, 2.5 with "
            "watchful, 73 with adaptive.",
            rich_help_panel=TEST_PANEL,
        ),
    ] = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for random tie-breaking. Default: the one stored in the checkpoint, which is drawn at random at "
            "the first start.",
            rich_help_panel=TEST_PANEL,
        ),
    ] = None,
    rate: Rate = 0.05,
    streams: Streams = None,
    format: FormatOption = Format.text,  # noqa: A002
    buckets: Annotated[
        int, typer.Option(min=1, help="That keys are kept in; fixed for a checkpoint.", rich_help_panel=CLUSTER)
    ] = 128,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Take what is there, then end.", rich_help_panel=CLUSTER)
    ] = False,
    every: Annotated[
        str | None, typer.Option(metavar="'10 seconds'", help="Time between micro-batches.", rich_help_panel=CLUSTER)
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Monitor many streams without end: a row for each event into the output, exactly once, also after a crash.

    Rows have a `kind`: step; or duplicate, late, gap, conflict, bad, full, which were not bet on. Read the output by
    Spark, which knows what is committed. A second start with the same checkpoint goes on where the first one ended.
    SIGINT and SIGTERM stop it; a micro-batch that was not over is done again by the next start. With --available-now
    the exit code is 1 if some stream has changed, by e-BH on the highest evidence, which is valid whenever you look.
    If new keys may appear between looks, fix their number in advance (--streams).
    """
    options = MonitorOptions(
        measure.value, None, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed
    )
    scores = read_reference(options, reference, bins)
    recipe = parts(options.build(score_measure(options, scores, bins or BINS)))
    if bet is None:
        recipe["bet"] = None  # so monitor_streams uses its own default, which is small
    if available_now and every is not None:
        raise CommandError("--available-now and --every exclude each other", USAGE)
    read = pairs("--option", option)
    with cluster(master, conf) as spark:
        from exchangeable.spark import monitor_streams, sources
        from exchangeable.spark.progress import counted
        from exchangeable.spark.seeds import SeedFile

        kind = sources.kind_of(source) if input is Source.auto else input.value
        frame = sources.stream(spark, source, kind, schema=schema, lenient=bad is Bad.report, options=read)
        frame = sources.ordered(frame, order, order_as.value)
        rows = monitor_streams(
            frame, key, order, features, **recipe, seed=seed, checkpoint=checkpoint, bad=bad.value, buckets=buckets,
            gaps=not no_gaps,
        )  # fmt: skip
        used = SeedFile(spark, checkpoint).choose(seed)
        if not available_now:
            print_notes([f"the seed is {used}"])
        writer = counted(rows).writeStream.format("parquet").partitionBy("kind")
        writer = writer.option("path", output).option("checkpointLocation", checkpoint)
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif every is not None:
            writer = writer.trigger(processingTime=every)
        with _progress(spark):
            _wait(writer.start())
        if available_now:
            report(spark.read.parquet(output), rate, "adjusted", format, output, used, streams)


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    """A line on stderr for what Spark's listener tells, where that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from exchangeable.spark.progress import Listener

    with Console(stderr=True).status("waiting for the first micro-batch") as status:
        listener = Listener(lambda batch: status.update(_told(batch)))
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            spark.streams.removeListener(listener)


def _told(batch: Batch) -> str:
    """One micro-batch in a line."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in batch.counts.items() if count and kind != "step")
    speed = f"{batch.rows / batch.seconds:,.0f} rows/s" if batch.seconds else "no time"
    return f"micro-batch {batch.number}: {batch.rows:,} rows, {speed}" + (f"; {kinds}" if kinds else "")


def _wait(query: StreamingQuery) -> None:
    """Until the query ends, or a signal stops it."""
    stopped: list[int] = []
    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda number, _: stopped.append(number)) for number in signals}
    try:
        while not stopped and not query.awaitTermination(1):
            pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        query.stop()
    if stopped:
        raise CommandError("interrupted" if stopped[0] == signal.SIGINT else "terminated", 128 + stopped[0])
