"""`exchangeable spark pvalues`."""

from __future__ import annotations

from typing import Annotated

import typer

from exchangeable.cli.options import Seed
from exchangeable.cli.output import print_notes
from exchangeable.cli.spark.options import (
    CLUSTER,
    INPUT,
    Conf,
    Features,
    Kind,
    Master,
    Option,
    Order,
    OrderAs,
    OrderKind,
    Output,
    Place,
    columns,
    pairs,
)
from exchangeable.cli.spark.running import cluster, stages
from exchangeable.pvalues import draw_seed


def pvalues(
    place: Place,
    order: Order,
    features: Features,
    label: Annotated[str, typer.Option(help="Column of classes.", rich_help_panel=INPUT)],
    output: Output,
    input: Annotated[Kind, typer.Option(help="Kind of files.", rich_help_panel=INPUT)] = Kind.auto,  # noqa: A002
    order_as: OrderAs = OrderKind.bigint,
    option: Option = None,
    seed: Seed = None,
    block: Annotated[
        int | None, typer.Option(min=1, help="Rows of a block; default: by memory.", rich_help_panel=CLUSTER)
    ] = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Compute the paper's nearest-neighbour p-values of one huge table, in tiles.

    The output has the order column, p (the same numbers as on one machine) and the seed; bet on p with
    `exchangeable watch --measure p-values` or `exchangeable.Martingale`.
    """
    seed = draw_seed() if seed is None else seed
    read = pairs("--option", option)
    with cluster(master, conf) as spark:
        from exchangeable.spark import pvalues as computed
        from exchangeable.spark import sources

        kind = sources.kind_of(place) if input is Kind.auto else input.value
        frame = sources.table(spark, place, kind, options=read)
        frame = sources.ordered(frame, order, order_as.value)
        with stages(spark):
            computed(frame, order, columns(features), label, seed=seed, block=block).write.parquet(output)
    print_notes([f"the seed is {seed}"])
