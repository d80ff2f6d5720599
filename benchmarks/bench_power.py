"""Power: what the bets make of the same p-values, against one another and against ideal bets that know the law.

Written into POWER.md by `make power` (about ten minutes; DATA=folder with the paper's datasets, else the cache of
`exchangeable fetch`; without them that part is left out). All streams are those of streams.py, one realisation per
seed.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exchangeable import Martingale, bets, measures
from exchangeable.protocols import Bet, Ranks
from exchangeable.pvalues import from_ranks
from exchangeable.research import datasets
from exchangeable.research.datasets import Dataset, DatasetError
from first_version import first_version
from streams import HELD_OUT, STREAMS, Floats
from workloads import best, heading, mark, table

N, SEEDS = 5_000, 20
SINGLE: Mapping[str, Callable[[], Bet]] = {
    "SimpleMixture": bets.SimpleMixture,
    "Plugin": bets.Plugin,
    "SimpleJumper": bets.SimpleJumper,
    "CompositeJumper": bets.CompositeJumper,
    "Tree": lambda: bets.Tree(10),
}
FIRST = "Adaptive 0.1"
REACH: Mapping[str, float] = {  # least fraction of the log capital of the true law
    **dict.fromkeys(("bimodal", "drift", "abrupt", "N(0,1) to N(.5,1)", "AR copula", "AR series"), 0.90),
    **dict.fromkeys(("season 7", "lag 2", "seasonal AR"), 0.90),
    "switching": 0.87,
}
SLACK = 0.5  # what it may lose against the first version, in log10
QUIET = -0.6, -0.3  # where it is to end, in the mean, where there is nothing to find
SHUFFLES = 5
SIZES = (1_000, 10_000, 100_000, 1_000_000)
CHUNK, REPEATS = 10_000, 7
LN10 = math.log(10.0)


class Row(NamedTuple):
    """One stream: log10 of the final capital of each bet, mean over the seeds, and of the two ideal bets."""

    stream: str
    log10: dict[str, float]
    truth: float = math.nan
    untimed: float = math.nan

    @property
    def own(self) -> float:
        return self.log10["Adaptive"]

    @property
    def is_quiet(self) -> bool:
        return self.stream == "uniform" or self.stream.endswith("shuffled")

    @property
    def is_ahead(self) -> bool:
        """Whether Adaptive is ahead of the single bets and of its first version."""
        return all(self.own > value for name, value in self.log10.items() if name != "Adaptive")

    def targets(self) -> list[tuple[str, bool]]:
        """What the row has to show, and whether it does."""
        if self.is_quiet:
            low, high = QUIET
            return [(f"{low} to {high}", low <= round(self.own, 1) <= high)]
        wanted = [(f"at most {SLACK} below {FIRST}", self.own >= self.log10[FIRST] - SLACK)]
        if self.stream in REACH:
            wanted.append((f"{REACH[self.stream]:.0%} of the truth", self.own >= REACH[self.stream] * self.truth))
        return wanted


def finals(p: Floats) -> list[float]:
    """log10 of the final capital of each bet."""
    single = [float(Martingale(make()).extend(p)[-1]) / LN10 for make in SINGLE.values()]
    return [*single, float(first_version(p)[-1]) / LN10, float(Martingale(bets.Adaptive()).extend(p)[-1]) / LN10]


def named(values: Iterable[float]) -> dict[str, float]:
    return dict(zip((*SINGLE, FIRST, "Adaptive"), values, strict=True))


def one(task: tuple[str, int]) -> list[float]:
    """Every bet on one stream of one seed, and the ideal ones."""
    name, seed = task
    stream = {**STREAMS, **HELD_OUT}[name](np.random.default_rng([seed, *name.encode()]), N)
    return [*finals(stream.p), stream.log_ratio / LN10, stream.untimed / LN10]


def synthetic(names: Iterable[str]) -> list[Row]:
    """A row a stream, the seeds shared out over the cores."""
    rows = []
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for name in names:
            means = np.mean(pool.map(one, [(name, seed) for seed in range(SEEDS)]), axis=0).tolist()
            rows.append(Row(name, named(means[:-2]), *means[-2:]))
    return rows


def on_ranks(name: str, ranks: Callable[[int], Ranks], seeds: int) -> Row:
    """A row for real data: ``ranks(seed)``, and the tie-breaking of that seed."""
    means = np.mean([finals(from_ranks(ranks(seed), seed=seed)) for seed in range(seeds)], axis=0)
    return Row(name, named(means.tolist()))


def shuffled(data: Dataset, seed: int) -> Ranks:
    order = np.random.default_rng(seed).permutation(len(data.y))
    return measures.NearestNeighbour().extend(data.X[order], data.y[order])


def real(folder: str | None) -> list[Row]:
    """The paper's two datasets by their nearest neighbours, in the original order and shuffled."""
    rows = []
    for name, data in {
        "USPS raw": datasets.usps(folder, flavour="raw"),
        "Satellite": datasets.satellite(folder),
    }.items():
        original = measures.NearestNeighbour().extend(data.X, data.y)
        rows.append(on_ranks(name, lambda seed, ranks=original: ranks, SEEDS))  # type: ignore[misc]
        rows.append(on_ranks(f"{name}, shuffled", lambda seed, data=data: shuffled(data, seed), SHUFFLES))  # type: ignore[misc]
    return rows


def shown(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        cells = [f"{value:,.1f}" for value in row.log10.values()]
        own = f"**{cells[-1]}**" if row.is_ahead else cells[-1]
        ideal = ["" if math.isnan(value) else f"{value:,.1f}" for value in (row.untimed, row.truth)]
        part = "" if math.isnan(row.truth) or not row.truth else f"{row.own / row.truth:.0%}"
        verdict = ", ".join(f"{what}: {mark(kept)}" for what, kept in row.targets())
        lines.append([row.stream, *cells[:-1], own, *ideal, part, verdict])
    columns = ["stream", *SINGLE, FIRST, "Adaptive", "not the times", "the truth", "% of the truth", "target"]
    return table(columns, lines)


def summary(rows: list[Row]) -> str:
    kept = [kept for row in rows for _, kept in row.targets()]
    found = [row for row in rows if not row.is_quiet]
    more = sum(row.own > row.log10[FIRST] for row in found)
    return (
        f"Targets met: {sum(kept)} of {len(kept)}. On the {len(found)} streams that are not exchangeable, Adaptive is "
        f"ahead of its first version on {more}, and ahead of that and of every single bet on "
        f"{sum(row.is_ahead for row in found)}.\n"
    )


def speed() -> str:
    """Microseconds a step after n steps, beside the simple jumper as the unit; and of ``update``."""
    p = 1.0 - np.random.default_rng(0).random(SIZES[-1] + CHUNK)
    grown: dict[tuple[str, int], Bet] = {}
    for name, make in {"Adaptive": bets.Adaptive, "SimpleJumper": bets.SimpleJumper}.items():
        bet: Bet = make()
        for start, stop in pairwise((0, *SIZES)):
            bet.extend(p[start:stop])
            grown[name, stop] = copy.deepcopy(bet)
    costs = dict.fromkeys(grown, math.inf)
    for _ in range(REPEATS):  # in turns, so that all meet the same noise, which only ever adds
        for (name, n), bet in grown.items():
            fresh = copy.deepcopy(bet)
            time = 1e6 / CHUNK * best(lambda fresh=fresh, n=n: fresh.extend(p[n : n + CHUNK]), repeats=1)  # type: ignore[misc]
            costs[name, n] = min(costs[name, n], time)
    rows = []
    for n in SIZES:
        own, unit = costs["Adaptive", n], costs["SimpleJumper", n]
        rows.append([f"{n:,}", f"{own:.2f}", f"{unit:.3f}", f"{own / unit:.0f}"])
    flat = costs["Adaptive", SIZES[-1]] / costs["Adaptive", SIZES[0]]
    live = Martingale(bets.Adaptive())
    one_by_one = min(1e6 * best(lambda value=value: live.update(value), repeats=1) for value in p[:2_000].tolist())  # type: ignore[misc]
    columns = ["after n steps", "Adaptive, us a step", "SimpleJumper, us a step", "ratio"]
    return (
        f"## Speed of `extend`, in chunks of {CHUNK:,} steps\n\n"
        + table(columns, rows)
        + f"\nAfter a million steps one more costs "
        f"{flat:.2f} times what it costs after a thousand. One `Martingale.update` takes {one_by_one:.1f} us.\n"
    )


def definitions() -> str:
    lines = [f"- {name}: {(make.__doc__ or '').strip()}" for name, make in {**STREAMS, **HELD_OUT}.items()]
    return "## The streams\n\n" + "\n".join(lines) + "\n"


def main(folder: str | None = None) -> str:
    known, unseen = synthetic(STREAMS), synthetic(HELD_OUT)
    try:
        paper = real(folder)
    except DatasetError as error:
        print(f"the paper's data is left out: {error}", flush=True)
        paper = []
    parts = [
        heading("Power", "make power", ("numpy", "scipy")),
        f"log10 of the final capital after n = {N:,} steps, mean of {SEEDS} seeds. *{FIRST}* is the portfolio of "
        "version 0.1 (`benchmarks/first_version.py`). The table also shows two ideal bets: *the truth* knows the "
        "distribution of each p-value; *not the times* knows the distributions and how often they change, but not "
        "when. For rank p-values both use the densities that hold in the limit of a long stream. Bold: ahead of all "
        f"single bets and of the first version. Targets: at most {SLACK} below the first version; on some streams, at "
        "least a given percentage of *the truth*; where there is nothing to find, a final value from "
        f"{QUIET[0]} to {QUIET[1]}.\n",
        summary(known + unseen + paper),
        "## Streams used to design the portfolio\n",
        shown(known),
        "## Streams held out\n\nWritten down before any bet of the present version had been run on them, and never "
        "used to choose anything.\n",
        shown(unseen),
    ]
    if paper:
        parts += [
            "## The paper's data\n\nNearest-neighbour p-values, all examples; "
            f"{SEEDS} seeds of the tie-breaking, {SHUFFLES} shuffled orders.\n",
            shown(paper),
        ]
    return "\n".join([*parts, speed(), definitions()])


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Power of the bets, written into POWER.md")
    options.add_argument("--data", help="folder with the paper's datasets (default: the cache of `exchangeable fetch`)")
    text = main(options.parse_args().data)
    Path(__file__).with_name("POWER.md").write_text(text, encoding="utf-8")
    print(text)
