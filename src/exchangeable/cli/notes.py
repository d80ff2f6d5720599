"""A table in a line, and what is lawful about it and yet seldom meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from exchangeable.cli.verdict import FEW

if TYPE_CHECKING:
    from exchangeable.tables import Table

SMALL = 5  # examples in a typical class; where there are fewer, the label may well be a number
WIDE = 100.0  # times the typical spread: a feature that decides all distances


def note(table: Table) -> None:
    """Say it on stderr."""
    for sentence in _notes(table):
        typer.echo(f"exchangeable: note: {sentence}", err=True)


def _notes(table: Table) -> Iterator[str]:
    """What is lawful and yet seldom meant: row numbers among the features, or one feature that outweighs the rest."""
    import numpy as np

    for name, column in zip(table.features, table.X.T, strict=True):
        if len(column) >= FEW and (np.diff(column) > 0.0).all():
            remedy = "; --drop leaves it out" if len(table.features) > 1 else ""
            yield f"column {name!r} only ever rises, as a row number does{remedy}"
    if isinstance(table.y, list) and len(table.y) >= FEW and SMALL * len(set(table.y)) > len(table.y):
        yield f"there are {len(set(table.y)):,} classes; if the label is a number, --measure nearest-residual fits it"
    spread = table.X.std(axis=0)
    typical = float(np.median(spread))
    if table.X.shape[1] > 2 and 0.0 < WIDE * typical < spread.max():
        name = table.features[int(spread.argmax())]
        yield f"column {name!r} spreads over {WIDE:g} times as far as most and decides all distances; scale the table"


def described(table: Table) -> str:
    """The table in one line."""
    n, d = table.X.shape
    classes = f", {len(set(table.y)):,} classes" if isinstance(table.y, list) else ""
    return f"{table.name}: {n:,} examples, {d:,} feature{'s' if d > 1 else ''}{classes}"


def title(table: Table) -> str:
    """Of its figure."""
    return f"{table.name}: evidence against exchangeability".replace("$", r"\$")  # no formulas
