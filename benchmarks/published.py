"""Compare bets with the values that were published for them, and write PUBLISHED.md: ``make published DATA=folder``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import exchangeable as ex
import sleepy_jumpers
from exchangeable import bets, measures
from exchangeable.protocols import Floats
from workloads import heading, table

DOCUMENT = Path(__file__).with_name("PUBLISHED.md")
BINARY = {"SimpleJumper": 94.7, "SleeperStayer": 197.4, "SleeperDrifter": 257.7}
SEEDS = 100
BINARY_TEXT = f"""
log10 of the final capital.

## Binary data with a change

Each of 5,000 numbers is 1 with probability 0.1, otherwise 0; each of the next 5,000 is 1 with probability 0.4. p-values
of `Value`, data and ties with the seeds 0 to {SEEDS - 1}. The published values are one draw (Vovk, Gammerman and
Shafer, 2022, chapter 9). The two lengths are our guess.

"""
JUMPER_TEXT = f"""
## The Sleepy Jumper on USPS

Published: above 18 (Vovk, Nouretdinov and Gammerman, 2003). Ours: all 9,298 digits in the original order, smoothed,
with the measure `NearestNeighbour`, mean of the seeds 0 to {sleepy_jumpers.SEEDS - 1}; the first column says what
differs. R is the rate of waking and of falling asleep, J that of jumping; by default R = 0.01 and J = 0.001. *Highest*:
the highest capital on the way. *Best*: the largest mean for R and J among
{", ".join(f"{rate:g}" for rate in sleepy_jumpers.RATES)}. Capital that wakes up has *kept* the *eps* with
which it fell asleep, as in `SleepyJumper`, or it draws a *new eps*, as in that of version 0.1.
`benchmarks/sleepy_jumpers.py` has the rules.

"""


def binary(seeds: int = SEEDS) -> dict[str, Floats]:
    """Return log10 of the final capital on binary data with a change, for each seed."""
    found = {name: np.empty(seeds) for name in BINARY}
    for seed in range(seeds):
        x = np.random.default_rng(seed).random(10_000) < np.repeat([0.1, 0.4], 5000)
        p = ex.PValues(measures.Value(), seed=seed).extend(x.astype(np.float64))
        for name, finals in found.items():
            finals[seed] = ex.Martingale(getattr(bets, name)()).extend(p)[-1] / math.log(10.0)
    return found


def binary_row(name: str, log10: Floats) -> list[str]:
    """Return the published value, and ours over the seeds."""
    return [name, *(f"{x:.1f}" for x in (BINARY[name], log10.mean(), log10.std(ddof=1), log10.min(), log10.max()))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, help="folder with the files of USPS")
    jumpers = list(sleepy_jumpers.rows(parser.parse_args().data))
    ours = [binary_row(name, log10) for name, log10 in binary().items()]
    text = heading("Published values", "make published", ["numpy"]) + BINARY_TEXT
    text += table(["bet", "published", "our mean", "deviation", "lowest", "highest"], ours)
    DOCUMENT.write_text(text + JUMPER_TEXT + table(sleepy_jumpers.COLUMNS, jumpers), encoding="utf-8")


if __name__ == "__main__":
    main()
