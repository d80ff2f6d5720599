"""Power: what the bets make of the same p-values, against one another and against who knows the truth.

Written into POWER.md by `make power` (about two minutes; DATA=folder with the paper's datasets, else the cache of
`exchangeable fetch`; without them that part is left out). All streams are those of workloads.py, each seed a new one.
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
BETS: Mapping[str, Callable[[], Bet]] = {**SINGLE, "Adaptive": bets.Adaptive}
AHEAD = ("bimodal", "drift", "switching", "AR copula")  # where Adaptive is to win outright
PAPER = {"USPS raw": 24.0, "Satellite": 1300.0}  # where it is to stand at the end of the original order
SHUFFLES = 5
QUIET = -0.7  # what it may lose, in the mean, where there is nothing to find
SIZES = (1_000, 10_000, 100_000, 1_000_000)
CHUNK, REPEATS = 10_000, 7
LN10 = math.log(10.0)


class Row(NamedTuple):
    """One stream: log10 of the final capital of each bet, mean over the seeds, and of the true law."""

    stream: str
    log10: dict[str, float]
    truth: float = math.nan

    @property
    def single(self) -> str:
        """The best of the single bets."""
        return max(SINGLE, key=lambda name: self.log10[name])

    @property
    def level(self) -> bool:
        """Whether Adaptive is within 5 % or 3 decades of it."""
        target, own = self.log10[self.single], self.log10["Adaptive"]
        return own >= min(0.95 * target, target - 3.0)

    @property
    def ahead(self) -> bool:
        """Whether it is ahead of all."""
        return self.log10["Adaptive"] > self.log10[self.single]


def finals(p: Floats) -> list[float]:
    """log10 of the final capital of each bet."""
    return [float(Martingale(make()).extend(p)[-1]) / LN10 for make in BETS.values()]


def one(task: tuple[str, int]) -> list[float]:
    """Every bet on one stream of one seed, and the truth."""
    name, seed = task
    stream = {**STREAMS, **HELD_OUT}[name](np.random.default_rng([seed, *name.encode()]), N)
    return [*finals(stream.p), stream.log_ratio / LN10]


def synthetic(names: Iterable[str]) -> list[Row]:
    """A row a stream, the seeds shared out over the cores."""
    rows = []
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for name in names:
            means = np.mean(pool.map(one, [(name, seed) for seed in range(SEEDS)]), axis=0)
            rows.append(Row(name, dict(zip(BETS, means[:-1].tolist(), strict=True)), float(means[-1])))
    return rows


def on_ranks(name: str, ranks: Callable[[int], Ranks], seeds: int) -> Row:
    """A row for real data: ``ranks(seed)``, and the tie-breaking of that seed."""
    means = np.mean([finals(from_ranks(ranks(seed), seed=seed)) for seed in range(seeds)], axis=0)
    return Row(name, dict(zip(BETS, means.tolist(), strict=True)))


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


def targets(row: Row) -> list[tuple[str, bool]]:
    """What the row has to show, and whether it does."""
    own = row.log10["Adaptive"]
    if row.stream == "uniform" or row.stream.endswith("shuffled"):
        return [(f"> {QUIET}", own > QUIET)]
    wanted = [("level", row.level)]
    if row.stream in AHEAD:
        wanted.append(("ahead", row.ahead))
    if row.stream in PAPER:
        wanted.append((f">= {PAPER[row.stream]:,.0f}", own >= PAPER[row.stream]))
    return wanted


def shown(rows: Iterable[Row]) -> str:
    lines = []
    for row in rows:
        cells = [f"{value:,.1f}" for value in row.log10.values()]
        own = f"**{cells[-1]}**" if row.ahead else cells[-1]
        truth = "" if math.isnan(row.truth) else f"{row.truth:,.1f}"
        verdict = ", ".join(f"{what}: {mark(kept)}" for what, kept in targets(row))
        lines.append([row.stream, *cells[:-1], own, truth, verdict])
    return table(["stream", *BETS, "knows the truth", "target"], lines)


def summary(rows: list[Row]) -> str:
    kept = [kept for row in rows for _, kept in targets(row)]
    found = [row for row in rows if row.stream != "uniform" and not row.stream.endswith("shuffled")]
    return (
        f"Targets kept: {sum(kept)} of {len(kept)}. Adaptive is ahead of every single bet on "
        f"{sum(row.ahead for row in found)} of {len(found)} streams that are not exchangeable, and level or ahead on "
        f"{sum(row.level or row.ahead for row in found)}.\n"
    )


def speed() -> str:
    """Microseconds a step after n steps, beside the simple jumper as the unit; and of ``update``."""
    p = 1.0 - np.random.default_rng(0).random(SIZES[-1] + CHUNK)
    grown: dict[tuple[str, int], Bet] = {}
    for name in ("Adaptive", "SimpleJumper"):
        bet = BETS[name]()
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
    live = Martingale(BETS["Adaptive"]())
    one_by_one = min(1e6 * best(lambda value=value: live.update(value), repeats=1) for value in p[:2_000].tolist())  # type: ignore[misc]
    columns = ["after n steps", "Adaptive, us a step", "SimpleJumper, us a step", "ratio"]
    return (
        f"## Speed of `extend`, by {CHUNK:,} steps\n\n"
        + table(columns, rows)
        + f"\nAfter a million steps one more costs "
        f"{flat:.2f} times what it costs after a thousand. One `Martingale.update` takes {one_by_one:.0f} us.\n"
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
        f"log10 of the final capital after n = {N:,} steps, mean of {SEEDS} seeds. *Level*: Adaptive is within 5 % or "
        "3 decades of the best single bet. *Ahead*: it beats them all, and is in bold.\n",
        summary(known + unseen + paper),
        "## Streams that the portfolio was built on\n",
        shown(known),
        "## Streams held out\n\nWritten down before any bet had played on them, and never used to choose anything.\n",
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
