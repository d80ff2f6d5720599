"""`exchangeable demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import exchangeable as ex
from exchangeable.analysis.text import describe_verdict
from exchangeable.analysis.verdict import summarise
from exchangeable.cli.choice import Choice
from exchangeable.cli.output import check_picture, draw, shown, write
from exchangeable.cli.walk import walk

if TYPE_CHECKING:
    from exchangeable.protocols import Floats


def demo(
    out: Annotated[Path, typer.Option(help="Where to draw the figure.")] = Path("exchangeable-demo.png"),
) -> None:
    """Test the bundled handwritten digits, in their original order and shuffled. No network, no options needed."""
    import numpy as np

    check_picture(out)
    X, y = ex.research.datasets.digits()
    orders = {"in their original order": np.arange(len(y)), "shuffled": np.random.default_rng(0).permutation(len(y))}
    paths: dict[str, Floats] = {}
    choice = Choice(seed=0)
    write(f"{len(y):,} handwritten digits of 64 pixels (scikit-learn's): does their order matter?")
    for name, order in orders.items():
        monitor = choice.monitor()
        path = walk(monitor, X[order], y[order], f"digits {name}")
        paths[f"digits {name}"] = path.log_value
        write(f"\nDigits {name}\n{describe_verdict(summarise(path, monitor, X.shape[1], 'digits'))}")
    draw(ex.plots.growth(paths, title="Evidence against exchangeability"), out)
    write(f"\nThe figure is in {shown(out)}")
