"""`exchangeable spark monitor`."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from exchangeable.cli.scores import ONE_NUMBER, read_reference, score_measure
from exchangeable.cli.spark.options import (
    CLUSTER_PANEL,
    INPUT_PANEL,
    Bad,
    Conf,
    Key,
    Master,
    OnBad,
    OrderAs,
    OrderType,
    Rate,
    ReaderOptions,
    Streams,
    parse_pairs,
)
from exchangeable.cli.spark.report import print_report
from exchangeable.cli.spark.running import check_new_output, monitor_arguments, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from exchangeable.spark.progress import MicroBatch

BINS = 64
DURATION = re.compile(r"(\d{1,6}) *(second|minute|hour|day)s?")


class SourceFormat(StrEnum):
    """The format of a streaming source."""

    auto = "auto"
    parquet = "parquet"
    csv = "csv"
    json = "json"
    kafka = "kafka"


StreamMeasure = StrEnum("StreamMeasure", {name: name for name in ONE_NUMBER})  # type: ignore[misc]
DEFAULT_MEASURE = StreamMeasure("value")

Source = Annotated[str, typer.Argument(help="Folder in which files appear, or the servers of Kafka.")]
Order = Annotated[
    str, typer.Option(help="Column of sequence numbers (1, 2, ...) or of times.", rich_help_panel=INPUT_PANEL)
]
Features = Annotated[
    str, typer.Option(metavar="A", help="Column of numbers, or of p-values.", rich_help_panel=INPUT_PANEL)
]
Output = Annotated[str, typer.Option(help="Folder for the rows, as Parquet.", rich_help_panel=RESULT_PANEL)]
Checkpoint = Annotated[
    str,
    typer.Option(help="Folder for Spark's checkpoint, from which a restart continues.", rich_help_panel=CLUSTER_PANEL),
]
Input = Annotated[SourceFormat, typer.Option(help="Format of the source.", rich_help_panel=INPUT_PANEL)]
Schema = Annotated[
    str | None,
    typer.Option(
        metavar="'A string, B long, ...'",
        help="Columns of the source; default: those of the files that exist. Kafka: columns of the JSON in a message.",
        rich_help_panel=INPUT_PANEL,
    ),
]
NoGaps = Annotated[
    bool,
    typer.Option(
        "--no-gaps",
        help="Sequence numbers may be skipped, like the offsets of Kafka: report no gaps.",
        rich_help_panel=INPUT_PANEL,
    ),
]
Measure = Annotated[
    StreamMeasure,
    typer.Option(
        metavar="NAME",
        help="Measure that scores how strange an example is: value, frozen (scores binned by the quantiles of "
        "--reference), p-values (computed elsewhere).",
        rich_help_panel=TEST_PANEL,
    ),
]
Reference = Annotated[
    Path | None,
    typer.Option(help="Measure frozen: file of reference scores, one per line.", rich_help_panel=TEST_PANEL),
]
Bins = Annotated[
    int | None,
    typer.Option(min=2, help=f"Measure frozen: number of bins; default {BINS}.", rich_help_panel=TEST_PANEL),
]
Bet = Annotated[
    BetName | None,
    typer.Option(
        metavar="NAME",
        help=f"How to bet on the p-values: {join_names(BetName)}. Default: sentinel with the alarms cusum and "
        "shiryaev-roberts, composite-jumper with the others. The state of a stream takes 0.3 kB with composite-jumper, "
        "3.6 kB with sentinel, 91 kB with adaptive.",
        rich_help_panel=TEST_PANEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed for random tie-breaking. Default: the one stored in the checkpoint, which is drawn at random at the "
        "first start.",
        rich_help_panel=TEST_PANEL,
    ),
]
Expire = Annotated[
    str | None,
    typer.Option(
        metavar="'30 days'",
        help="Remove keys without events for this long (seconds, minutes, hours or days), and report each as "
        "expired. A key that returns is a new stream; --streams must count it again.",
        rich_help_panel=TEST_PANEL,
    ),
]
Buckets = Annotated[
    int,
    typer.Option(
        min=1,
        help="Number of states that keys are divided into; fixed for a checkpoint.",
        rich_help_panel=CLUSTER_PANEL,
    ),
]
AvailableNow = Annotated[
    bool,
    typer.Option("--available-now", help="Process the data that exists, then exit.", rich_help_panel=CLUSTER_PANEL),
]
Every = Annotated[
    str | None, typer.Option(metavar="'10 seconds'", help="Time between micro-batches.", rich_help_panel=CLUSTER_PANEL)
]


def monitor(
    source: Source,
    key: Key,
    order: Order,
    features: Features,
    output: Output,
    checkpoint: Checkpoint,
    input: Input = SourceFormat.auto,  # noqa: A002
    schema: Schema = None,
    order_as: OrderAs = OrderType.bigint,
    option: ReaderOptions = None,
    no_gaps: NoGaps = False,
    bad: Bad = OnBad.fail,
    measure: Measure = DEFAULT_MEASURE,
    reference: Reference = None,
    bins: Bins = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Seed = None,
    rate: Rate = 0.05,
    streams: Streams = None,
    format: FormatOption = Format.text,  # noqa: A002
    buckets: Buckets = 128,
    expire: Expire = None,
    available_now: AvailableNow = False,
    every: Every = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Monitor many streams: write a row for each event exactly once, even after a crash.

    Each row has a `kind`: step, or one of duplicate, late, gap, conflict, bad and full, which were not bet on. Read the
    output with Spark, which knows what is committed. A second start with the same checkpoint continues where the first
    one ended. SIGINT and SIGTERM stop the query; the next start repeats the micro-batch that was interrupted. With
    --available-now the exit code is 1 if some stream has changed, by e-BH on the highest evidence, which is valid at
    any time. If new keys may appear between two runs, fix their number in advance (--streams).
    """
    chosen = MonitorOptions(
        measure.value, None, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed
    )
    scores = read_reference(chosen, reference, bins)
    arguments = monitor_arguments(chosen.build(score_measure(chosen, scores, bins or BINS)))
    if bet is None:
        arguments["bet"] = None  # monitor_streams has a smaller default
    trigger, duration = _trigger(available_now, every), _parse_expire(expire)
    check_new_output(output, checkpoint, master)
    options = parse_pairs("--option", option)
    with spark_session(master, conf) as spark:
        from exchangeable.spark import monitor_streams, sources
        from exchangeable.spark.seeds import SeedFile

        kind = sources.kind_of(source) if input is SourceFormat.auto else input.value
        frame = sources.stream(spark, source, kind, schema=schema, lenient=bad is OnBad.report, options=options)
        frame = sources.parse_order(frame, order, order_as.value)
        arguments |= {"bad": bad.value, "buckets": buckets, "gaps": not no_gaps, "expire": duration}
        rows = monitor_streams(frame, key, order, features, seed=seed, checkpoint=checkpoint, **arguments)
        used_seed = SeedFile(spark, checkpoint).choose(seed)
        if not available_now:
            print_notes([f"the seed is {used_seed}"])
        with _progress(spark):
            _wait(_start(rows, output, checkpoint, trigger))
        if available_now:
            print_report(spark.read.parquet(output), rate, "adjusted", format, output, used_seed, streams)


def _parse_expire(text: str | None) -> timedelta | None:
    """Parse a duration such as "30 days"."""
    if text is None:
        return None
    found = DURATION.fullmatch(text.strip())
    duration = timedelta(**{f"{found[2]}s": int(found[1])}) if found else timedelta()
    if not duration:
        raise CommandError(f"--expire must be a number of seconds, minutes, hours or days, got {text!r}", USAGE)
    return duration


def _trigger(available_now: bool, every: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's ``trigger``; empty for the default, as fast as possible."""
    if available_now and every is not None:
        raise CommandError("--available-now and --every exclude each other", USAGE)
    if available_now:
        return {"availableNow": True}
    return {} if every is None else {"processingTime": every}


def _start(rows: DataFrame, output: str, checkpoint: str, trigger: dict[str, Any]) -> StreamingQuery:
    from exchangeable.spark.progress import with_counts

    writer = with_counts(rows).writeStream.format("parquet").partitionBy("kind")
    writer = writer.option("path", output).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


@contextmanager
def _progress(spark: SparkSession) -> Iterator[None]:
    """Show the latest micro-batch on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    from exchangeable.spark.progress import Listener

    with Console(stderr=True).status("waiting for the first micro-batch") as status:
        listener = Listener(lambda batch: status.update(_describe(batch)))
        spark.streams.addListener(listener)
        try:
            yield
        finally:
            spark.streams.removeListener(listener)


def _describe(batch: MicroBatch) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in batch.counts.items() if count and kind != "step")
    speed = f", {batch.rows / batch.seconds:,.0f} rows/s" if batch.seconds else ""
    return f"micro-batch {batch.number}: {batch.rows:,} rows{speed}" + (f"; {kinds}" if kinds else "")


def _wait(query: StreamingQuery) -> None:
    """Wait until the query ends or a signal stops it."""
    caught: list[int] = []
    signals = signal.SIGINT, signal.SIGTERM
    handlers = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in signals}
    try:
        while not caught and not query.awaitTermination(1):
            pass
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        query.stop()
    if caught:
        raise CommandError("interrupted" if caught[0] == signal.SIGINT else "terminated", 128 + caught[0])
