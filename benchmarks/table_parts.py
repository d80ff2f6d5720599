"""What a table monitor says has changed, on pure shifts of the inputs, the labels and the concept, and late labels.

Run by ``make table-parts``; writes benchmarks/TABLE_PARTS.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import exchangeable as ex
from exchangeable.protocols import Floats

Generator = np.random.Generator
RUNS, TRAIN, ROWS = 100, 1000, 600
OUT = Path(__file__).with_name("TABLE_PARTS.md")

INTRODUCTION = (
    "# Live tables: what has changed, and labels that are left out\n\nWritten by `make table-parts`, never by hand.\n\n"
    '## What has changed\n\n`TableMonitor(reference, "y", bins=32)`, {train:,} rows of reference, {rows:,} rows'
    " of which the second half has changed, {runs} runs each. A cell is the number of runs in which a part has an alarm"
    ": the lines of the inputs, of the label, of rows with labels, and the test of the inputs given the label"
    " (`explain().given_label`), with alpha = 0.01.\n\n"
)
LATE = (
    "\n## Rows that are left out\n\nAs long as no row is left out, labels are compared with those of the reference."
    " Afterwards they are compared with each other. The rate of a label with two values rises from 30 to 60 % after a"
    " number of rows. A cell is the median number of rows from the change to the alarm, in {runs} runs; - where fewer"
    " than half raise it within 2,000 rows. With `delay`, the reference is used throughout.\n\n"
)


def inputs(rng: Generator, n: int, shift: float = 0.0) -> Floats:
    x = rng.normal(size=(n, 3))
    x[:, 0] += shift
    return x


def with_labels(rng: Generator, x: Floats, turned: float = 0.0) -> pd.DataFrame:
    """Return rows whose label depends on the first column, or if the concept has turned on the second."""
    score = (1.0 - turned) * x[:, 0] + turned * x[:, 1]
    y = np.where(score + 0.7 * rng.normal(size=len(x)) > 0.0, "yes", "no")
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})


def of_classes(rng: Generator, n: int, share: float) -> pd.DataFrame:
    """Return rows whose inputs depend on their class, with a share of one of two classes."""
    y = rng.random(n) < share
    x = rng.normal(size=(n, 3))
    x[:, 0] += 1.5 * y
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": np.where(y, "yes", "no")})


def unchanged(rng: Generator, n: int, after: bool) -> pd.DataFrame:
    return with_labels(rng, inputs(rng, n))


def covariate(rng: Generator, n: int, after: bool) -> pd.DataFrame:
    return with_labels(rng, inputs(rng, n, 1.5 * after))


def irrelevant(rng: Generator, n: int, after: bool) -> pd.DataFrame:
    x = inputs(rng, n)
    x[:, 2] += 1.5 * after
    return with_labels(rng, x)


def label(rng: Generator, n: int, after: bool) -> pd.DataFrame:
    return of_classes(rng, n, 0.85 if after else 0.5)


def concept(rng: Generator, n: int, after: bool) -> pd.DataFrame:
    return with_labels(rng, inputs(rng, n), 1.0 * after)


KINDS: dict[str, Callable[[Generator, int, bool], pd.DataFrame]] = {
    "none": unchanged,
    "inputs only: P(y given x) as before": covariate,
    "an input that the label does not depend on": irrelevant,
    "shares of the classes only: P(x given y) as before": label,
    "concept only: P(x) and P(y) as before": concept,
}
PARTS = ("inputs", "labels", "rows with labels", "inputs given the label")


def parts(kind: str, seed: int) -> set[str]:
    """Return the parts that have an alarm in one run."""
    rng, make = np.random.default_rng([seed, len(kind)]), KINDS[kind]
    monitor = ex.TableMonitor(make(rng, TRAIN, False), "y", bins=32, seed=seed)
    monitor.extend(make(rng, ROWS // 2, False))
    monitor.extend(make(rng, ROWS - ROWS // 2, True))
    found = monitor.explain()
    given = found.given_label
    named = {one.part for one in found if one.rejected}
    return named | ({PARTS[-1]} if given is not None and given.rejected else set())


def delays(before: int, settings: dict[str, Any], missing: float, seed: int) -> float:
    """Return the rows from a change of the label to the alarm; infinity if there is none within 2,000."""
    rng = np.random.default_rng([seed, before])
    n = before + 2000
    rate = np.repeat([0.3, 0.6], [before, 2000])
    reference = {"a": rng.normal(size=1000), "y": (rng.random(1000) < 0.3) * 1}
    late = np.where(rng.random(1000) < missing, np.nan, 1.0)
    monitor = ex.TableMonitor(
        reference | ({"delay": late} if "delay" in settings else {}), "y", bins=32, seed=seed, **settings
    )
    y, x = (rng.random(n) < rate) * 1, rng.normal(size=n)
    never = rng.random(n) < missing
    for i in range(n):
        if "wait" not in settings:
            monitor.update({"a": x[i], "y": None if never[i] else int(y[i])})
        else:
            monitor.update({"a": x[i]} | ({} if never[i] else {"y": int(y[i])}), id=i, time=float(i))
            if never[i]:
                monitor.never(i)
        if monitor.alarm_at is not None:
            return float(i + 1 - before) if i >= before else float("inf")
    return float("inf")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) + ("---:",) * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def part_rows(runs: int) -> Iterator[tuple[str, ...]]:
    for kind in KINDS:
        found = [parts(kind, seed) for seed in range(runs)]
        yield (kind, *(str(sum(part in one for one in found)) for part in PARTS))


def delay_rows(runs: int) -> Iterator[tuple[str, ...]]:
    ways: list[tuple[str, dict[str, Any], float]] = [
        ("no label is missing", {}, 0.0),
        ("1 % missing", {}, 0.01),
        ("1 % missing, `delay`", {"wait": 100.0, "delay": "delay"}, 0.01),
    ]
    for name, settings, missing in ways:
        medians = [
            np.median([delays(before, settings, missing, s) for s in range(runs)]) for before in (0, 100, 500, 2000)
        ]
        yield (name, *("-" if np.isinf(median) else f"{median:.0f}" for median in medians))


def main(runs: int = RUNS) -> None:
    few = max(1, runs // 5)
    text = INTRODUCTION.format(train=TRAIN, rows=ROWS, runs=runs) + table(("change", *PARTS), part_rows(runs))
    text += LATE.format(runs=few)
    text += table(("labels", "at once", "after 100 rows", "after 500", "after 2,000"), delay_rows(few))
    OUT.write_text(text)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
