"""`exchangeable demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import exchangeable as ex
from exchangeable.analysis.text import describe_verdict
from exchangeable.analysis.verdict import summarise
from exchangeable.cli.monitor_options import MonitorOptions
from exchangeable.cli.output import check_plot, save_plot, write
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.protocols import Floats


def demo(
    out: Annotated[Path, typer.Option(help="File for the plot.")] = Path("exchangeable-demo.png"),
) -> None:
    """Test the bundled handwritten digits, in their original order and shuffled. Needs no network and no options."""
    import numpy as np

    check_plot(out)
    X, y = ex.research.datasets.digits()
    orders = {"in their original order": np.arange(len(y)), "shuffled": np.random.default_rng(0).permutation(len(y))}
    paths: dict[str, Floats] = {}
    write(f"{len(y):,} handwritten digits of 64 pixels (from scikit-learn): does their order matter?")
    for name, order in orders.items():
        monitor = MonitorOptions(seed=0).build()
        path = monitor.extend(X[order], y[order])
        paths[f"digits {name}"] = path.log_value
        write(f"\nDigits {name}\n{describe_verdict(summarise(path, monitor, X.shape[1], 'digits'))}")
    save_plot(ex.plots.growth(paths, title="Evidence against exchangeability"), out)
    write(f"\nThe plot is in {printable(out)}")
