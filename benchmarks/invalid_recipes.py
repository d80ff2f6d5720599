"""How often tempting shortcuts raise a false alarm: measured, and written into docs/invalid-recipes.md.

``python benchmarks/invalid_recipes.py`` takes a few minutes on two cores.
"""

from __future__ import annotations

import argparse
import math
import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binomtest

from exchangeable import Martingale, bets
from exchangeable.alarms import Ville
from exchangeable.fleet import adjusted, e_bh
from exchangeable.protocols import Bet

Floats = NDArray[np.float64]
Rng = np.random.Generator

RUNS, STEPS, ALPHA = 2000, 1000, 0.05
LEVELS = 10  # that coarse scores have
SEVERAL = 5  # thetas or measures from which one chooses
STREAMS, LATE = 1024, 8  # of a fleet, and the time at which it is looked at
PARTS = 16  # of the runs, for the cores to share
DOCUMENT = Path(__file__).parents[1] / "docs" / "invalid-recipes.md"

BETS: Mapping[str, Callable[[], Bet]] = {
    name: getattr(bets, name) for name in ("SimpleJumper", "Plugin", "Adaptive") if hasattr(bets, name)
}


# ------------------------------------------------------------------ p-values, right and wrong


def ranked(scores: Floats, theta: Floats, width: int = STEPS) -> Floats:
    """``(#greater + theta #equal) / n`` of each score among the last ``width``, itself included."""
    values, pool, p = scores.tolist(), list[float](), np.empty(len(scores))
    for i, score in enumerate(values):
        if i >= width:
            del pool[bisect_left(pool, values[i - width])]
        insort(pool, score)
        low, high = bisect_left(pool, score), bisect_right(pool, score)
        p[i] = (len(pool) - high + theta[i] * (high - low)) / len(pool)
    return p


def thetas(rng: Rng) -> Floats:
    return 1.0 - rng.random(STEPS)


def coarse(rng: Rng) -> Floats:
    return rng.integers(0, LEVELS, STEPS).astype(np.float64)


def growing(rng: Rng) -> Floats:
    return ranked(rng.normal(size=STEPS), thetas(rng))


def growing_coarse(rng: Rng) -> Floats:
    return ranked(coarse(rng), thetas(rng))


def frozen(rng: Rng, m: int) -> Floats:
    """Each score among the same m, drawn once, and itself."""
    calibration = np.sort(rng.normal(size=m))
    scores = rng.normal(size=STEPS)
    greater = m - np.searchsorted(calibration, scores, side="right")
    return np.asarray((greater + thetas(rng)) / (m + 1.0))


def window(rng: Rng, width: int) -> Floats:
    return ranked(rng.normal(size=STEPS), thetas(rng), width)


def renewed(rng: Rng, width: int) -> Floats:
    """Each score among the ``width`` ones of the block before, and itself."""
    blocks = rng.normal(size=(STEPS // width + 1, width))
    greater = (blocks[:-1, None, :] > blocks[1:, :, None]).sum(axis=2).ravel()
    return np.asarray((greater + thetas(rng)) / (width + 1.0))


def lagging(rng: Rng, width: int) -> Floats:
    """Each score among the ``width`` ones that are ``width`` to ``2 width - 1`` steps old, and itself."""
    scores = rng.normal(size=STEPS + 2 * width - 1)
    old = np.lib.stride_tricks.sliding_window_view(scores, width)[:STEPS]
    greater = (old > scores[2 * width - 1 :, None]).sum(axis=1)
    return np.asarray((greater + thetas(rng)) / (width + 1.0))


def reservoir(rng: Rng, size: int) -> Floats:
    """Each score among a uniform sample of the earlier ones (Vitter's algorithm R), and itself."""
    scores, theta, p = rng.normal(size=STEPS).tolist(), thetas(rng), np.empty(STEPS)
    kept: list[float] = []
    for i, score in enumerate(scores):
        p[i] = (sum(other > score for other in kept) + theta[i]) / (len(kept) + 1.0)
        place = int(rng.integers(i + 1))
        if i < size:
            kept.append(score)
        elif place < size:
            kept[place] = score
    return p


def residuals(rng: Rng, features: int) -> Floats:
    """Absolute residuals of least squares, each predicted from the past and stored as it was then."""
    X = rng.normal(size=(STEPS, features))
    y = X @ rng.normal(size=features) + rng.normal(size=STEPS)
    weights, inverse, scores = np.zeros(features), np.eye(features), np.empty(STEPS)
    for i, x in enumerate(X):
        error = y[i] - x @ weights
        scores[i] = abs(error)
        gain = inverse @ x / (1.0 + x @ inverse @ x)
        weights += gain * error
        inverse -= np.outer(gain, x @ inverse)
    return ranked(scores, thetas(rng))


def without_theta(rng: Rng) -> Floats:
    return ranked(coarse(rng), np.ones(STEPS))


def half_ties(rng: Rng) -> Floats:
    return ranked(coarse(rng), np.full(STEPS, 0.5))


def own_rank(rng: Rng) -> Floats:
    """``(1 + #greater + theta #equal) / n``, the counts among the earlier ones; scores that never tie."""
    return ranked(rng.normal(size=STEPS), np.ones(STEPS))


def several_thetas(rng: Rng) -> Floats:
    scores = coarse(rng)
    return np.array([ranked(scores, thetas(rng)) for _ in range(SEVERAL)])


def several_measures(rng: Rng) -> Floats:
    """Each example has several features, and each measure looks at one of them."""
    return np.array([growing(rng) for _ in range(SEVERAL)])


def changing(rng: Rng) -> Floats:
    """A real change: the scores grow by one standard deviation after half the time."""
    return rng.normal(size=STEPS) + (np.arange(STEPS) >= STEPS // 2)


def in_order(rng: Rng) -> Floats:
    return ranked(changing(rng), thetas(rng))


def shuffled(rng: Rng) -> Floats:
    return ranked(rng.permutation(changing(rng)), thetas(rng))


# ------------------------------------------------------------------ recipes


def highest(logs: Floats) -> Floats:
    """The greatest of several log capitals; of one, itself."""
    greatest: Floats = logs.max(axis=0)
    return greatest


def average(logs: Floats) -> Floats:
    return np.asarray(logsumexp(logs, axis=0)) - math.log(len(logs))


def split(logs: Floats) -> Floats:
    """The greatest of several, each of which began with its share of the capital."""
    return highest(logs) - math.log(len(logs))


class Recipe(NamedTuple):
    """A way from exchangeable data to one or several rows of p-values, and from log capitals to one."""

    p_values: Callable[[Rng], Floats]
    join: Callable[[Floats], Floats] = highest


EXACT: Mapping[str, Recipe] = {
    "growing ranks": Recipe(growing),
    "growing ranks, coarse scores, theta": Recipe(growing_coarse),
    f"the best of {SEVERAL} thetas, each with a share of 1/{SEVERAL}": Recipe(several_thetas, split),
    f"the best of {SEVERAL} measures, each with a share of 1/{SEVERAL}": Recipe(several_measures, split),
}
INVALID: Mapping[str, Recipe] = {
    "one frozen calibration set of 200": Recipe(lambda rng: frozen(rng, 200)),
    "one frozen calibration set of 1,000": Recipe(lambda rng: frozen(rng, 1000)),
    "sliding window: the last 2": Recipe(lambda rng: window(rng, 2)),
    "sliding window: the last 100": Recipe(lambda rng: window(rng, 100)),
    "sliding window: 100, and 100 steps behind": Recipe(lambda rng: lagging(rng, 100)),
    "window of 100, renewed every 100 steps": Recipe(lambda rng: renewed(rng, 100)),
    "reservoir of 50": Recipe(lambda rng: reservoir(rng, 50)),
    "stored residuals, 10 features": Recipe(lambda rng: residuals(rng, 10)),
    "no theta: ties count in full": Recipe(without_theta),
    "no theta: ties count by half": Recipe(half_ties),
    "own rank not randomised": Recipe(own_rank),
    f"the best of {SEVERAL} thetas": Recipe(several_thetas),
    f"the best of {SEVERAL} measures": Recipe(several_measures),
    f"the average over {SEVERAL} thetas": Recipe(several_thetas, average),
}
POWER: Mapping[str, Recipe] = {"in the order of arrival": Recipe(in_order), "shuffled first": Recipe(shuffled)}
RECIPES = {**EXACT, **INVALID, **POWER}


def together(name: str) -> list[str]:
    """The recipes that differ from this one only in what they make of the same capitals."""
    return [other for other, recipe in RECIPES.items() if recipe.p_values is RECIPES[name].p_values]


def alarms(name: str, run: int) -> list[list[bool]]:
    """Does the capital ever reach 1/alpha? For each recipe ``together`` with this one, and each bet.

    The run's number seeds everything.
    """
    rows = np.atleast_2d(RECIPES[name].p_values(np.random.default_rng([run, 2012])))
    capitals = [np.array([Martingale(make()).extend(p) for p in rows]) for make in BETS.values()]
    joins = [RECIPES[other].join for other in together(name)]
    return [[Ville(ALPHA).update(float(join(logs).max())) for logs in capitals] for join in joins]


# ------------------------------------------------------------------ fleets: running maxima


def doublings(rng: Rng) -> Floats:
    """How often the capital of each stream doubles before it is lost, dependent in the worst way.

    Each capital is fair: it doubles or is lost, so that P(doublings >= j) = 2^-j from the height on where it matters.
    But just so many streams reach the same height together as e-BH needs there to name them all.
    """
    j = np.arange(math.ceil(-math.log2(ALPHA)), 64)
    needed = np.ceil(STREAMS / (ALPHA * 2.0**j)).astype(np.int64)
    chances = 0.5 ** (j + 1.0) * STREAMS / needed
    reached = np.zeros(STREAMS)
    drawn = int(np.searchsorted(np.cumsum(chances), rng.random(), side="right"))
    if drawn < len(j):
        reached[rng.permutation(STREAMS)[: needed[drawn]]] = j[drawn]
    return reached


FLEETS: Mapping[str, Callable[[Floats], Floats]] = {
    f"current values at time {LATE}": lambda n: np.where(n >= LATE, LATE * math.log(2.0), -math.inf),
    "adjusted running maxima": lambda n: adjusted(n * math.log(2.0)),
    "running maxima": lambda n: n * math.log(2.0),
}


def false_discoveries(name: str, run: int) -> list[list[bool]]:
    """Is any stream named? All of them are fair, so each is a false discovery."""
    return [[bool(e_bh(FLEETS[name](doublings(np.random.default_rng([run, 2022]))), ALPHA).names)]]


# ------------------------------------------------------------------ the measurement

Outcome = Callable[[str, int], list[list[bool]]]
Counts = NDArray[np.int64]


def counted(outcome: Outcome, name: str, runs: Iterable[int]) -> Counts:
    """In how many of the runs: a row for each recipe, a column for each bet."""
    return np.asarray(np.sum([outcome(name, run) for run in runs], axis=0))


def measured(pool: Executor, outcome: Outcome, name: str, runs: int) -> Counts:
    """The same, on all cores."""
    parts = [range(lo, runs, PARTS) for lo in range(min(PARTS, runs))]
    total: Counts = np.array(list(pool.map(counted, repeat(outcome), repeat(name), parts))).sum(axis=0)
    print(f"{name}: {(total / runs).tolist()}", flush=True)
    return total


def all_alarms(pool: Executor, runs: int) -> dict[str, Counts]:
    """The false alarms of every recipe, a column a bet."""
    found: dict[str, Counts] = {}
    for name in RECIPES:
        if name not in found:
            found |= dict(zip(together(name), measured(pool, alarms, name, runs), strict=True))
    return found


def interval(count: int, runs: int) -> tuple[float, float]:
    """Clopper and Pearson's exact 99 % interval."""
    low, high = binomtest(count, runs).proportion_ci(0.99, "exact")
    return float(low), float(high)


def cell(count: int, runs: int) -> str:
    """A rate with its interval, bold where even the lower end is more than was promised."""
    low, high = interval(count, runs)
    said = f"{100.0 * count / runs:.1f} % ({100.0 * low:.1f} to {100.0 * high:.1f})"
    return f"**{said}**" if low > ALPHA else said


def table(first: str, columns: Iterable[str], rows: Mapping[str, Counts], runs: int) -> str:
    """A Markdown table of rates."""
    names = list(columns)
    lines = [f"| {first} | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    return "\n".join(lines + [f"| {row} | {' | '.join(cell(int(c), runs) for c in cs)} |" for row, cs in rows.items()])


def document(runs: int = RUNS) -> str:
    """Measure everything, and put it into words."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = all_alarms(pool, runs)
        fleets = {name: measured(pool, false_discoveries, name, runs)[0] for name in FLEETS}
    tables = {
        "exact": table("exact recipe", BETS, {name: found[name] for name in EXACT}, runs),
        "invalid": table("invalid recipe", BETS, {name: found[name] for name in INVALID}, runs),
        "power": table("a stream that changes", BETS, {name: found[name] for name in POWER}, runs).replace("**", ""),
        "fleets": table("e-BH on", ["false discovery rate"], fleets, runs),
    }
    numbers = {"runs": f"{runs:,}", "steps": f"{STEPS:,}", "streams": f"{STREAMS:,}", "level": f"{100.0 * ALPHA:g} %"}
    return TEMPLATE.format(**numbers, **tables, several=SEVERAL, levels=LEVELS)


TEMPLATE = """\
# Recipes that look right and are not

Written by `python benchmarks/invalid_recipes.py`, never by hand.

The promise of this library, that the probability of ever raising a false alarm is at most alpha, rests on one fact: on
exchangeable data the p-values are independent and uniform. Each invalid recipe below saves memory, time or trouble,
and loses that fact.

Measured: exchangeable data, {steps} steps, alarm when the capital reaches 1/alpha at alpha = {level}, {runs} runs.
A cell is the share of runs with a false alarm, with its exact (Clopper-Pearson) 99 % interval; **bold** where even
the lower end of the interval is more than the {level} promised. A strong bet such as `Adaptive` finds a departure in
the data, and just as well one that a recipe has put into the p-values. A bet that finds nothing proves nothing: the
recipe has no guarantee, and the next bet or the next stream may find something.

{exact}

{invalid}

## Why, and what to do instead

**One frozen calibration set.** Each score is ranked among the same m scores, drawn once. Every p-value is then
uniform on its own, but all of them share the luck of one draw: where the m scores are too sparse or too dense,
p-values are rare or frequent for ever, and a bet learns where. The longer the stream compared with m, the worse; a
larger m delays it. *Instead*: keep the score frozen and let the pool grow: `measures.Frozen` ranks each score among
all so far. Let the calibration examples be the first of the stream.

**Sliding windows.** Neighbouring p-values are ranked among nearly the same scores, so they depend on one another,
and a window that lags behind or is renewed in blocks is a frozen calibration set for a while. The window just
behind the newest score is not caught by these bets, but nothing proves that it never is; of a window of 2, a bet on
pairs of p-values wins in every run. *Instead*: let the pool grow, and forget in the bet, where it is valid
(`bets.Adaptive`, or `bets.Kernel` with `forgetting`); after an alarm start again with `Monitor(on_alarm="restart")`.

**A reservoir.** A uniform sample of the past looks like a fair summary of it. But it hardly changes from step to
step: it is a frozen calibration set of its own size, exchanged slowly. *Instead*: `measures.Frozen(score,
bins=1000, reference=...)` ranks among all scores so far in constant memory, with ties between scores of one bin
broken by theta. It is exact.

**Residuals that are stored and never recomputed.** The first residuals come from a model that had learnt little,
the later ones from a better one. They shrink although nothing changed, and that is a drift which the bet finds.
*Instead*: a model fitted before the stream and then left alone (`measures.Frozen`), or a measure that scores all
examples again whenever one arrives (`measures.NearestNeighbour`, `measures.NearestResidual`).

**No theta.** With ties ({levels} levels of score here) the p-value without theta takes few values. Counting ties in
full is "conservative" for a single test; here large p-values are as suspicious as small ones, and a bet on large
ones wins. Counting them by half repairs the mean only. *Instead*: break ties at random, as `PValues` does; theta is
drawn from the seed and the position, so that results can be repeated.

**Own rank not randomised**, `(1 + #greater + theta #equal) / n` with counts among the earlier scores: again
"conservative" for one test. The first p-value is always 1, the second 1/2 or 1: the error is of the size 1/n and
fades, but the martingale remembers, and a bold bet takes all of it in the first steps. *Instead*: the newest score
is one of those that are equal to it, so that theta multiplies it too: `(#greater + theta #equal) / n`.

**The best of several.** If you look at {several} seeds or {several} measures and reports the highest capital has
{several} chances. This holds for a seed that was changed after a look at the result, too. *Instead*: choose one
beforehand; or give each a share of 1/{several} of the capital (compare the highest with {several}/alpha), as in the
table of exact recipes; or mix *bets* on one sequence of p-values, which is always valid (`bets.Blend`).

**The average over several p-value sequences.** Each capital is a martingale in its own history. Who knows all of
them knows more, and then the p-values of one are no longer uniform given the past of the others. The average has
mean 1 at each fixed time, but a time chosen by looking at it can be unfair. It does little harm in this example,
and is not proved to do little in yours. *Instead*: as before, shares and the highest.

## The opposite error

Shuffling makes any data exchangeable: what remains are the few alarms that alpha allows, and none of them is about
the data. Here the scores rise by one standard deviation after half of the time, and a cell is the share of runs with
an alarm.

{power}

*Instead*: test in the order of arrival. Shuffle only to see what the test does if there is nothing to find.

## Many streams: the running maximum

For one stream it makes no difference to Ville's alarm whether the capital stands at 1/alpha now or stood there
once. For e-BH over many streams it does: the value at a time fixed in advance has mean at most 1, the running
maximum has not. Here are {streams} streams, all fair, dependent in an unlucky way: as many reach the same height
together as e-BH needs there. A cell is the share of runs in which e-BH at alpha = {level} names any stream.

{fleets}

*Instead*: give `fleet.e_bh` current values. If the streams depend on one another *and* the time to look is chosen
by looking at all of them, give it `fleet.adjusted` maxima, which hold at any time whatever.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    DOCUMENT.write_text(document(parser.parse_args().runs), encoding="utf-8")


if __name__ == "__main__":
    main()
