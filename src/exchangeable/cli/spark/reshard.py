"""`exchangeable spark reshard`."""

from __future__ import annotations

from typing import Annotated

import typer

from exchangeable.cli.output import write
from exchangeable.cli.spark.options import CLUSTER_PANEL, Conf, Master
from exchangeable.cli.spark.running import check_input, check_output, progress_bar, spark_session

Checkpoint = Annotated[str, typer.Argument(help="Checkpoint folder of a stopped `spark monitor`.")]
Target = Annotated[str, typer.Argument(help="New checkpoint folder; it must not exist.")]
Buckets = Annotated[
    int, typer.Option(min=1, help="Number of states that keys are divided into.", rich_help_panel=CLUSTER_PANEL)
]


def reshard(checkpoint: Checkpoint, target: Target, buckets: Buckets, master: Master = None, conf: Conf = None) -> None:
    """Copy a checkpoint, with its keys divided into another number of buckets, to continue with it.

    Stop the query first. Every key is compared after the copy. Then start `spark monitor` with the new checkpoint, this
    number of --buckets and the same --output: it continues where the query stopped, with the same numbers. Do not use
    the old checkpoint again.
    """
    check_input("checkpoint", checkpoint, master, conf)
    check_output(target, master, "target")
    with spark_session(master, conf) as spark:
        from exchangeable.spark import reshard as copy

        with progress_bar(spark):
            done = copy(spark, checkpoint, target, buckets)
        write(f"{target}: {done.keys:,} keys in {done.after} buckets (before: {done.before}), all compared")
