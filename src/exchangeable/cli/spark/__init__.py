"""`exchangeable spark test`, `monitor`, `report`, `reshard` and `pvalues`."""

from __future__ import annotations

import typer

from exchangeable.cli.program import join_lines
from exchangeable.cli.spark import finished, monitor, pvalues, reshard, test

__all__ = ["commands"]
commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Many streams, or one huge table, on Apache Spark.")
for _command in (test.test, monitor.monitor, finished.report, reshard.reshard, pvalues.pvalues):
    commands.command(help=join_lines(_command.__doc__))(_command)
