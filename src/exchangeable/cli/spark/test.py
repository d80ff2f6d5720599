"""`exchangeable spark test`."""

from __future__ import annotations

from typing import Annotated

import typer

from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.options import (
    DEFAULT_ALARM,
    RESULT_PANEL,
    TEST_PANEL,
    Alarm,
    Alpha,
    Bet,
    Epsilon,
    Format,
    FormatOption,
    MeasureName,
    Neighbours,
    OnAlarm,
    OnAlarmOption,
    Period,
    Seed,
    join_names,
)
from exchangeable.cli.spark.options import (
    CLUSTER_PANEL,
    Bad,
    Conf,
    Features,
    FileFormat,
    Input,
    InputPath,
    Key,
    Label,
    Master,
    OnBad,
    Order,
    OrderAs,
    OrderType,
    Output,
    Rate,
    ReaderOptions,
    parse_pairs,
    split_names,
)
from exchangeable.cli.spark.report import print_report
from exchangeable.cli.spark.running import (
    check_input,
    check_output,
    monitor_arguments,
    progress_bar,
    read_table,
    spark_session,
)
from exchangeable.pvalues import draw_seed

Measure = Annotated[
    MeasureName | None,
    typer.Option(
        metavar="NAME",
        help=f"Measure that scores how strange an example is: {join_names(MeasureName)}. Default: nearest-neighbour "
        "with a label, otherwise value for one column and nearest-distance for several.",
        rich_help_panel=TEST_PANEL,
    ),
]
Steps = Annotated[
    bool,
    typer.Option("--steps", help="Write a row for each step instead of each stream.", rich_help_panel=RESULT_PANEL),
]
Partitions = Annotated[
    int | None, typer.Option(min=1, help="Number of tasks for the streams.", rich_help_panel=CLUSTER_PANEL)
]


def test(
    path: InputPath,
    key: Key,
    order: Order,
    features: Features,
    output: Output,
    label: Label = None,
    input: Input = FileFormat.auto,  # noqa: A002
    order_as: OrderAs = OrderType.bigint,
    option: ReaderOptions = None,
    bad: Bad = OnBad.fail,
    measure: Measure = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Seed = None,
    steps: Steps = False,
    rate: Rate = 0.05,
    format: FormatOption = Format.text,  # noqa: A002
    partitions: Partitions = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Test many streams: write one row for each stream, and report which of them have changed (e-BH).

    The numbers of a stream are those of the library with the seed that `exchangeable.spark.stream_seed` gives for its
    key and the seed of the run, which is a column of the output. The exit code is 0 if no stream has changed at this
    false discovery rate, and 1 if some have.
    """
    name = measure.value if measure is not None else _default_measure(label, features)
    seed = draw_seed() if seed is None else seed
    chosen = MonitorOptions(
        name, neighbours, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed
    )
    arguments, options = monitor_arguments(chosen.build()), parse_pairs("--option", option)
    if measure is None and neighbours is None:
        arguments["measure"] = None  # test_streams chooses by the types of the columns
    check_output(output, master)
    check_input("path", path, master, conf)
    with spark_session(master, conf) as spark:
        from exchangeable.spark import test_streams

        frame = read_table(spark, path, input, order, order_as, options, lenient=bad is OnBad.report)
        arguments |= {"seed": seed, "bad": bad.value, "steps": steps, "partitions": partitions}
        rows = test_streams(frame, key, order, split_names(features), label, **arguments)
        with progress_bar(spark):
            rows.write.parquet(output)
        print_report(spark.read.parquet(output), rate, "current", format, output, seed)


def _default_measure(label: str | None, features: str) -> str:
    if label is not None:
        return "nearest-neighbour"
    return "value" if isinstance(split_names(features), str) else "nearest-distance"
