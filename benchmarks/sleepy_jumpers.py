"""The Sleepy Jumper of 2003 on USPS, with different rules for its capital and on different p-values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from exchangeable import measures
from exchangeable.protocols import Floats, Ranks
from exchangeable.pvalues import from_ranks
from exchangeable.research import datasets

SEEDS = 5
RATES = (1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1)  # of waking, and of jumping
GRID = np.arange(1, 101) / 100
KINDS = {"kept eps": True, "new eps": False}  # with which capital wakes up: that of `SleepyJumper`, and of version 0.1
COLUMNS = ["what differs", *(f"{kind}: {of}" for kind in KINDS for of in ("default", "highest", "best", "R, J"))]


class Rule(NamedTuple):
    """How capital moves between asleep and awake, and between the eps."""

    falls: bool = True  # capital that is awake falls asleep
    dreams: bool = False  # eps jumps in sleep, too
    near: bool = False  # eps jumps to one of its two neighbours on the grid
    grid: Floats = GRID


RULES = {
    "nothing": Rule(),
    "never asleep again": Rule(falls=False),
    "jumps in sleep, too": Rule(dreams=True),
    "jumps to neighbours only": Rule(near=True),
    "grid 0.1, 0.2, .., 1": Rule(grid=np.arange(1, 11) / 10),
    "grid 0.01, .., 0.99": Rule(grid=GRID[:-1]),
}


def rows(folder: Path | None) -> Iterator[list[str]]:
    """Yield the rows of the table: other rules, then other p-values."""
    smoothed = datasets.usps(folder)
    ranks = measures.NearestNeighbour().extend(*smoothed)
    for name, rule in RULES.items():
        yield row(name, p_values(ranks), rule)
    yield row("capital moves after the bet", p_values(ranks)[:, 1:])  # so nothing is awake in the first step
    yield row("theta = 1", ((ranks.greater + ranks.equal) / ranks.n)[np.newaxis])
    yield row("training file only", p_values(ranks)[:, :7291])
    raw = datasets.usps(folder, flavour="raw")
    yield row("raw digits", p_values(measures.NearestNeighbour().extend(*raw)))
    yield row("`NearestNeighbour(3)`", p_values(measures.NearestNeighbour(3).extend(*smoothed)))
    yield row("`NearestDistance()`", p_values(measures.NearestDistance().extend(smoothed.X)))
    within = measures.Conditional(measures.NearestNeighbour())
    yield row("`Conditional(NearestNeighbour())`", p_values(within.extend(*smoothed)))


def p_values(ranks: Ranks) -> Floats:
    """Return a row of p-values for each seed."""
    return np.array([from_ranks(ranks, seed=seed) for seed in range(SEEDS)])


def row(name: str, p: Floats, rule: Rule | None = None) -> list[str]:
    """Return the final and the highest capital with the default rates, and the best final one with its rates."""
    cells, rates = [name], list(product(RATES, RATES))
    for keeps in KINDS.values():
        finals, highest = (found.mean(axis=1) for found in play(p, rates, rule or Rule(), keeps))
        default, best = rates.index((0.01, 0.001)), int(finals.argmax())
        cells += [f"{finals[default]:.1f}", f"{highest[default]:.1f}", f"{finals[best]:.1f}"]
        cells.append(", ".join(f"{rate:g}" for rate in rates[best]))
    return cells


def play(p: Floats, rates: list[tuple[float, float]], rule: Rule, keeps: bool) -> tuple[Floats, Floats]:
    """Return log10 of the final and of the highest capital: rates x seeds."""
    R, J = np.array(rates).T.reshape(2, -1, 1, 1)
    asleep = np.full((len(R), len(p), len(rule.grid)), 1.0 / len(rule.grid))
    awake, log_value, highest = np.zeros_like(asleep), np.zeros(asleep.shape[:2]), np.zeros(asleep.shape[:2])

    def jump(w: Floats) -> Floats:
        beside = np.pad(w, ((0, 0), (0, 0), (1, 1)), "edge") if rule.near else w
        around = 0.5 * (beside[..., :-2] + beside[..., 2:]) if rule.near else w.mean(-1, keepdims=True)
        return (1.0 - J) * w + J * around

    for column in p.T:
        awake, asleep = jump(awake), jump(asleep) if rule.dreams else asleep
        woken, fallen = R * asleep, R * awake if rule.falls else 0.0
        awake, asleep = awake + woken - fallen, asleep + fallen - woken
        asleep = asleep if keeps else np.broadcast_to(asleep.mean(-1, keepdims=True), asleep.shape)
        awake = awake * rule.grid * column[:, np.newaxis] ** (rule.grid - 1.0)
        total = (awake + asleep).sum(-1, keepdims=True)
        awake, asleep, log_value = awake / total, asleep / total, log_value + np.log10(total[..., 0])
        highest = np.maximum(highest, log_value)
    return log_value, highest
