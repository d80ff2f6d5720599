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
    CLUSTER,
    INPUT,
    Bad,
    Conf,
    Features,
    Key,
    Kind,
    Label,
    Master,
    OnBad,
    Option,
    Order,
    OrderAs,
    OrderKind,
    Output,
    Place,
    Rate,
    columns,
    pairs,
)
from exchangeable.cli.spark.report import report
from exchangeable.cli.spark.running import cluster, parts, stages
from exchangeable.pvalues import draw_seed


def test(
    place: Place,
    key: Key,
    order: Order,
    features: Features,
    output: Output,
    label: Label = None,
    input: Annotated[Kind, typer.Option(help="Kind of files.", rich_help_panel=INPUT)] = Kind.auto,  # noqa: A002
    order_as: OrderAs = OrderKind.bigint,
    option: Option = None,
    bad: OnBad = Bad.fail,
    measure: Annotated[
        MeasureName | None,
        typer.Option(
            metavar="NAME",
            help=f"What makes an example strange: {join_names(MeasureName)}. Default: nearest-neighbour with a label, "
            "without one value for one column and nearest-distance for several.",
            rich_help_panel=TEST_PANEL,
        ),
    ] = None,
    neighbours: Neighbours = None,
    bet: Bet = None,
    epsilon: Epsilon = None,
    alarm: Alarm = DEFAULT_ALARM,
    alpha: Alpha = None,
    period: Period = None,
    on_alarm: OnAlarmOption = OnAlarm.latch,
    seed: Seed = None,
    steps: Annotated[
        bool,
        typer.Option(
            "--steps", help="One row for each step in place of one for each stream.", rich_help_panel=RESULT_PANEL
        ),
    ] = False,
    rate: Rate = 0.05,
    format: FormatOption = Format.text,  # noqa: A002
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Tasks that the streams are spread over.", rich_help_panel=CLUSTER)
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Test many streams at once: one row for each stream into the output, and which of them have changed (e-BH).

    The numbers of a stream are those of the library with the seed that `exchangeable.spark.stream_seed` gives for the
    key and the seed of the run, which is a column of the output. Exit codes: 0 if no stream was found to have changed
    at this false discovery rate, 1 if some were.
    """
    named = measure.value if measure is not None else _usual(label, features)
    seed = draw_seed() if seed is None else seed
    options = MonitorOptions(
        named, neighbours, bet and bet.value, epsilon, alarm.value, alpha, period, on_alarm.value, seed
    )
    recipe, read = parts(options.build()), pairs("--option", option)
    if measure is None and neighbours is None:
        recipe["measure"] = None  # as it is with the columns that there are
    with cluster(master, conf) as spark:
        from exchangeable.spark import sources, test_streams

        kind = sources.kind_of(place) if input is Kind.auto else input.value
        frame = sources.table(spark, place, kind, lenient=bad is Bad.report, options=read)
        frame = sources.ordered(frame, order, order_as.value)
        rows = test_streams(
            frame, key, order, columns(features), label, **recipe, seed=seed, bad=bad.value, steps=steps,
            partitions=partitions,
        )  # fmt: skip
        with stages(spark):
            rows.write.parquet(output)
        report(spark.read.parquet(output), rate, "current", format, output, seed)


def _usual(label: str | None, features: str) -> str:
    """The measure where none is named."""
    if label is not None:
        return "nearest-neighbour"
    return "value" if isinstance(columns(features), str) else "nearest-distance"
