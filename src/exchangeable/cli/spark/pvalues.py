"""`exchangeable spark pvalues`."""

from __future__ import annotations

from typing import Annotated

import typer

from exchangeable.cli.options import Seed
from exchangeable.cli.output import print_notes
from exchangeable.cli.spark.options import (
    CLUSTER_PANEL,
    INPUT_PANEL,
    Conf,
    Features,
    FileFormat,
    Input,
    InputPath,
    Master,
    Order,
    OrderAs,
    OrderType,
    Output,
    ReaderOptions,
    parse_pairs,
    split_names,
)
from exchangeable.cli.spark.running import check_input, check_output, progress_bar, read_table, spark_session
from exchangeable.pvalues import draw_seed

Label = Annotated[str, typer.Option(help="Column of classes.", rich_help_panel=INPUT_PANEL)]
Block = Annotated[
    int | None,
    typer.Option(min=1, help="Rows in a block; by default chosen by memory.", rich_help_panel=CLUSTER_PANEL),
]


def pvalues(
    path: InputPath,
    order: Order,
    features: Features,
    label: Label,
    output: Output,
    input: Input = FileFormat.auto,  # noqa: A002
    order_as: OrderAs = OrderType.bigint,
    option: ReaderOptions = None,
    seed: Seed = None,
    block: Block = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Compute the paper's nearest-neighbour p-values of one huge table, in tiles.

    The output has the order column, p (the same numbers as on one machine) and the seed. Bet on p with
    `exchangeable watch --measure p-values` or `exchangeable.Martingale`.
    """
    seed = draw_seed() if seed is None else seed
    options = parse_pairs("--option", option)
    check_output(output, master)
    check_input("path", path, master, conf)
    with spark_session(master, conf) as spark:
        from exchangeable.spark import pvalues as compute

        frame = read_table(spark, path, input, order, order_as, options)
        with progress_bar(spark):
            compute(frame, order, split_names(features), label, seed=seed, block=block).write.parquet(output)
    print_notes([f"the seed is {seed}"])
