"""Risk: how soon a mean loss above the limit is found, how often an alarm is false, and how wide the interval is.

Run as ``python bench_risk.py`` or ``make risk`` (seven minutes on one core); it writes RISK.md.
"""

from __future__ import annotations

import argparse
import itertools
import math
from functools import partial
from pathlib import Path

import numpy as np
from scipy import stats

from exchangeable import RateMonitor, Risk
from exchangeable.research import binomial
from risk_rules import ALPHA, KINDS, LIMIT, RHO, TUNED, Floats, knows_all, rules
from workloads import best, heading, table

GOOD, MEANS, BEFORE = 0.08, (0.12, 0.15, 0.2, 0.4), (0, 1_000, 10_000)
AFTER, QUIET, SIZES = 20_000, 10_000, (100, 1_000, 10_000, 100_000)


def delays(kind: str, runs: int) -> str:
    """The mean number of losses from the change to the alarm, in runs without an earlier alarm."""
    known, lines = rules(kind, BEFORE[-1] + AFTER), []
    for before, mean in itertools.product(BEFORE, MEANS):
        found: dict[str, list[float]] = {name: [] for name in ("knows all", *known)}
        for run in range(runs):
            rng = np.random.default_rng([run, before, round(100 * mean)])
            x = np.concatenate([KINDS[kind](rng, GOOD, before), KINDS[kind](rng, mean, AFTER)])
            alarms = {name: rule(x) for name, rule in known.items()}
            alarms["knows all"] = np.append(np.zeros(before, bool), knows_all(kind, mean)(x[before:]))
            for name, alarm in alarms.items():
                if not alarm[:before].any():
                    found[name].append(float(alarm[before:].argmax()) + 1.0 if alarm.any() else math.inf)
        lines.append([f"{before:,}", f"{mean:g}", *(mean_delay(np.array(values), runs) for values in found.values())])
    return table(["good losses before", "mean after", *found], lines)


def mean_delay(values: Floats, runs: int) -> str:
    """The mean; a lower bound if some runs have no alarm; and how many runs are left."""
    sign, left = "" if np.isfinite(values).all() else "> ", "" if len(values) == runs else f" ({len(values)} runs)"
    return f"{sign}{np.minimum(values, AFTER).mean():,.0f}{left}" if len(values) else "(0 runs)"


def false_alarms(runs: int) -> str:
    """The share of runs with an alarm at a mean that is equal to the limit."""
    cells: dict[str, list[str]] = {}
    for kind, draw in KINDS.items():
        every = {"knows all, mean after 0.2": knows_all(kind, 0.2), **rules(kind, QUIET)}
        streams = (draw(np.random.default_rng([run, 1]), LIMIT, QUIET) for run in range(runs))
        counts = np.sum([[rule(x).any() for rule in every.values()] for x in streams], axis=0)
        for name, count in zip(every, counts.tolist(), strict=True):
            low, high = binomial.interval(count, runs)
            cells.setdefault(name, []).append(f"{count / runs:.1%} ({low:.1%} to {high:.1%})")
    return table(["rule", *KINDS], [[name, *both] for name, both in cells.items()])


def widths(runs: int) -> str:
    """Mean widths of three intervals: of Risk, by Hoeffding's inequality, and the normal one."""
    rows = []
    for n, kind in itertools.product(SIZES, KINDS):
        v, found = n / 4.0 + RHO, []
        for run in range(runs):
            risk, x = Risk(0.5, alpha=ALPHA), KINDS[kind](np.random.default_rng([run, 2]), LIMIT, n)
            risk.extend(x)
            halves = math.sqrt(v * math.log(v / (RHO * ALPHA**2))) / n, stats.norm.isf(ALPHA / 2.0) * x.std() / n**0.5
            ends = [risk.interval, *((max(0.0, x.mean() - half), min(1.0, x.mean() + half)) for half in halves)]
            found.append([high - low for low, high in ends])
        rows.append([f"{n:,}", kind, *(f"{y:.4f}" for y in np.mean(found, axis=0))])
    return table(["losses", "kind", "Risk", "Hoeffding", "normal, for one n"], rows)


def speed() -> str:
    """Times as ratios, measured in turns."""
    x, times = KINDS["0 and 1"](np.random.default_rng(0), GOOD, 20_000), []
    for monitor in 7 * (Risk(LIMIT), RateMonitor()):
        one_by_one = best(partial(lambda m: [m.update(y) for y in x[:2_000].tolist()], monitor), repeats=1)
        times.append([one_by_one, best(partial(monitor.extend, x), repeats=1)])
    one, many = np.min(times[::2], axis=0) / np.min(times[1::2], axis=0)
    return f"Time per loss, in units of `RateMonitor`: {one:.2f} with `update`, {many:.2f} with `extend`.\n"


TEXT = f"""The limit is {LIMIT}. Losses have a mean of {GOOD}, then a larger one. They are 0 or 1, or have a Beta
distribution with little variance (standard deviation 0.021 at a mean of 0.1). All rules see the same losses.

- *Knows all* bets the fixed lambda that is best for the mean after the change, from the change on; alarm at 1/alpha.
- *Plug-in alone* bets one lambda that is learnt from all past losses.
- *Hoeffding* is a confidence sequence (a normal mixture, narrowest at {TUNED:,} losses).
- *Repeated test* must not be used: a one-sided test of all losses so far (binomial, or t) at 1 %, after each loss.

## Delay, losses that are 0 or 1

Mean number of losses from the change to the alarm, RUNS runs. Runs with an alarm before the change are left out.
`>`: some runs have no alarm within {AFTER:,} losses after the change. A period is a weaker promise (see below).

DELAYS
## Delay, losses with little variance

SMALL
## False alarms

Share of MANY runs with an alarm within {QUIET:,} losses with a mean that is equal to the limit, with its exact 99 %
interval. The promise is at most 1 % with alpha = {ALPHA}, and with a period of 1,000,000. With a period of 10,000 it is
a mean time to a false alarm of at least 10,000 losses: with false alarms at a constant rate, 63 % within 10,000.

FALSE
## Width of the interval

Mean of RUNS runs, mean loss {LIMIT}, confidence {1.0 - ALPHA:g}. The last column is for one look at one n.

WIDTHS
## Time

"""


def document(runs: int) -> str:
    """Measure, and fill in the text."""
    made = {"DELAYS": delays("0 and 1", runs), "SMALL": delays("Beta", runs), "FALSE": false_alarms(10 * runs)}
    text = TEXT.replace("RUNS", str(runs)).replace("MANY", f"{10 * runs:,}").replace("WIDTHS", widths(runs))
    for word, part in made.items():
        text = text.replace(word, part)
    return "\n".join([heading("Risk", "bench_risk.py", ["numpy", "scipy"]), text + speed()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How soon Risk finds harm; writes RISK.md")
    parser.add_argument("--runs", type=int, default=150, help="ten times as many for false alarms")
    Path(__file__).with_name("RISK.md").write_text(document(parser.parse_args().runs), encoding="utf-8")
