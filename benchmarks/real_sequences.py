"""Let both versions of `Adaptive` bet on the numeric columns of real tables, and write SEQUENCES.md.

``make sequences`` installs packages with tables inside, as ``make tables`` does. Every column of numbers in their files
is a sequence, in the order of the file, if it has at least 200 values, 10 of them distinct, and is not sorted. No
other sequence is left out. Of longer ones the first 20,000 values are used. The months of elnino.csv, one column each,
are one sequence.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

import exchangeable as ex
from exchangeable import bets, measures
from exchangeable.protocols import Floats
from first_version import first_version
from real_tables import installed
from workloads import heading, table

DOCUMENT = Path(__file__).with_name("SEQUENCES.md")
LEAST, DISTINCT, MOST = 200, 10, 20_000
LEVEL = 0.5  # of log10, by which the versions may differ and still be level
LN10 = math.log(10.0)
INTRODUCTION = """log10 of the final capital of `Adaptive` 0.1 and of the present `Adaptive`, on the p-values of the
measure `Value` with seed 0. The sequences are the numeric columns, in file order, of the tables that ship with some
Python packages. A column counts if it has at least 200 values, at least 10 distinct ones, and is not sorted; only its
first 20,000 values are used. The twelve monthly columns of elnino.csv are joined into one sequence. *Ahead* and
*behind* count the sequences on which the present log10 capital is at least 0.5 higher or lower; the others are *level*.
"""


class Sequence(NamedTuple):
    """A column of a file."""

    package: str
    file: str
    column: str
    values: Floats


class Outcome(NamedTuple):
    """log10 of the final capital of both versions."""

    of: Sequence
    first: float
    now: float

    @property
    def gain(self) -> float:
        return self.now - self.first


def sequences() -> Iterator[Sequence]:
    """Yield the sequences of all packages that are installed."""
    for package, files in installed().items():
        for path in files:
            try:
                frame = pl.DataFrame(ex.read(path))
            except (ValueError, OSError, ImportError):  # real_tables.py lists the files that have no verdict
                continue
            if path.name == "elnino.csv":  # a row for each year, a column for each month
                months = frame.drop("YEAR").to_numpy().ravel()
                frame = pl.DataFrame({"temperature, month by month": months})
            yield from (Sequence(package, path.name, name, x) for name, x in columns(frame))


def columns(frame: pl.DataFrame) -> Iterator[tuple[str, Floats]]:
    """Yield the columns of numbers that are long enough and not sorted."""
    for name in frame.columns:
        if frame[name].dtype.is_numeric():
            x = frame[name].drop_nulls().to_numpy().astype(np.float64)
            x = x[np.isfinite(x)][:MOST]
            steps = np.diff(x)
            if len(x) >= LEAST and len(np.unique(x)) >= DISTINCT and (steps > 0).any() and (steps < 0).any():
                yield name, x


def play(of: Sequence) -> Outcome:
    """Let both versions bet."""
    p = ex.PValues(measures.Value(), seed=0).extend(of.values)
    now = ex.Martingale(bets.Adaptive()).extend(p)[-1]
    return Outcome(of._replace(values=np.empty(0)), float(first_version(p)[-1]) / LN10, float(now) / LN10)


def summary(outcomes: list[Outcome]) -> str:
    """Count by package, and the worst and the best."""
    lines = []
    packages = list(dict.fromkeys(each.of.package for each in outcomes))
    for name in [*packages, "all"]:
        mine = [each for each in outcomes if name in (each.of.package, "all")]
        ahead, behind = sum(each.gain >= LEVEL for each in mine), sum(each.gain <= -LEVEL for each in mine)
        lowest = min(each.now for each in mine)
        lines.append(
            [name, *(f"{n:,}" for n in (len(mine), ahead, len(mine) - ahead - behind, behind)), f"{lowest:.1f}"]
        )
    found = [each for each in outcomes if each.first >= 2.0]
    ratio = math.exp(np.mean([math.log(each.now / each.first) for each in found]))
    return table(["package", "sequences", "ahead", "level", "behind", "lowest log10 capital"], lines) + (
        f"\nOn the {len(found)} sequences on which version 0.1 ends with a capital of at least 100, the present log10 "
        f"capital is {ratio:.2f} times as large (geometric mean of the ratios).\n"
    )


def by_file(outcomes: list[Outcome]) -> str:
    lines = []
    for package, file in dict.fromkeys((each.of.package, each.of.file) for each in outcomes):
        mine = [each for each in outcomes if (each.of.package, each.of.file) == (package, file)]
        ahead, behind = sum(each.gain >= LEVEL for each in mine), sum(each.gain <= -LEVEL for each in mine)
        most = max(mine, key=lambda each: abs(each.gain))
        cells = most.of.column, f"{most.first:,.1f}", f"{most.now:,.1f}"
        lines.append([f"{package}: {file}", f"{len(mine)}", f"{ahead}", f"{behind}", *cells])
    return table(["file", "sequences", "ahead", "behind", "column with the largest difference", "0.1", "now"], lines)


def main() -> str:
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        outcomes = list(pool.imap(play, sequences(), chunksize=4))
    parts = [
        heading("Real sequences", "make sequences", ("numpy", "statsmodels", "vega_datasets", "river", "scikit-learn")),
        INTRODUCTION,
        summary(outcomes),
        "## By file\n",
        by_file(outcomes),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    text = main()
    DOCUMENT.write_text(text, encoding="utf-8")
    print(text)
