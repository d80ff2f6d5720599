"""Shares of Sentinel: could other shares of its families of bets be first or level on more streams of DETECTION.md?

Run as ``python bench_shares.py --data folder`` (ten minutes on one core); it writes SHARES.md. The families run in
the compiled loop of `Sentinel`, with other weights. Its statistic is linear in the weights, so the statistics of the
families alone give that of every choice of shares.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from changes import changes
from detection_runs import AFTER, CALIBRATION, CHANGED, RATE, SHORT, Job, change_time, with_change, without_change
from detectors import Floats, Integers
from exchangeable import native
from exchangeable.bets.sentinel import Sentinel, sentinel_tables
from own_detectors import shiryaev_roberts
from workloads import heading, table

FAMILIES = ["shift", "wider", "narrower", "power", "tails", "spikes", "blocks", "octaves", "serial", "learners"]
BETS = np.repeat([*FAMILIES[:8], "", *FAMILIES[8:]], [14, 5, 4, 16, 18, 45, 34, 30, 2, 8, 32])  # native/sentinel.c
OWN = sentinel_tables()[: len(BETS)]  # weights
SHARES = np.array([OWN[family == BETS].sum() for family in FAMILIES])
TRIALS = 6_000  # choices of shares that are tried; for one row alone, a fifth
COLUMNS = ["stream", "best other", "still level", "Sentinel", "best family", "its delay", "share needed", "best shares"]
METHOD = """Each family of bets of `Sentinel` was run alone, with the whole weight, on the p-values of DETECTION.md (a):
{:,} runs without a change set its level, {} have a change. With the share x, and nothing from the others, the alarm is
at 1/x times that level. *Still level*: the delay of the best other tool and half the width of the interval of the
difference in DETECTION.md, in place of its paired test. *Share needed*: the smallest, in steps of 0.01, with which the
best family is still level; inf: none. *Best shares*: the delay with the best of {:,} mixtures for this row alone."""


class Row(NamedTuple):
    """A known stream in DETECTION.md, setting (a): our tool and its delay, and the best of the others with its own."""

    tool: str
    ours: str
    best: str
    target: float  # the other delay, and half the width of the interval of the difference: this is still level
    is_level: bool  # or first


class Paths(NamedTuple):
    """The statistics of each family (first index) in all runs (second) after each step, and the times of the change."""

    psi: NDArray[np.float32]
    times: Integers

    def delay(self, shares: Floats, level: float) -> float:
        """The mean delay with these shares at this level, as in DETECTION.md."""
        above = np.tensordot(shares.astype(np.float32), self.psi, 1) >= level
        first = np.where(above.any(axis=1), above.argmax(axis=1), above.shape[1])
        return float(np.minimum(first - self.times + 1, AFTER)[first >= self.times].mean())

    def level(self, shares: Floats) -> float:
        """The level with the rate of false alarms, from runs without a change."""
        highest = np.tensordot(shares.astype(np.float32), self.psi, 1).max(axis=1)
        return float(np.sort(highest)[-round(RATE * len(highest))])


def known_rows() -> dict[str, Row]:
    """What DETECTION.md says of our choice."""
    text = Path(__file__).with_name("DETECTION.md").read_text(encoding="utf-8")
    lines = text.split("| stream | our choice | delay | best of the others |")[1].split("\n\n")[0].splitlines()[2:]
    found = {}
    for name, tool, ours, best, between, word, *_ in ([cell.strip() for cell in x.split("|")[1:]] for x in lines):
        half = 0.5 * float(np.ptp([float(end) for end in between.split(" to ")]))
        found[name] = Row(tool, ours, best, float(best.rsplit(": ", 1)[1]) + half, word in ("first", "level"))
    return {name: row for name, row in found.items() if not name.endswith("(held out)")}


def statistics(P: Floats) -> NDArray[np.float32]:
    """The Shiryaev-Roberts statistics of each family with the whole weight; p-values have a row for each run."""
    tables, gains, found = sentinel_tables().copy(), np.empty(P.shape[1]), np.empty((len(FAMILIES), *P.shape), "f4")
    for family, run in np.ndindex(found.shape[:2]):
        tables[: len(BETS)] = OWN * (FAMILIES[family] == BETS) / SHARES[family]
        native.sentinel(Sentinel()._state[0], tables, P[run], gains)
        found[family, run] = np.exp(np.minimum(shiryaev_roberts(np.cumsum(gains)), 60.0))
    return found


def searched(quiet: Paths, loud: Mapping[str, Paths], rows: Mapping[str, Row], start: Floats, trials: int) -> Floats:
    """Shares with as many rows at their targets as a random search finds; near misses count a little."""
    rng, best, found = np.random.default_rng(0), -math.inf, start
    for trial in range(trials):
        step = np.exp(rng.choice([0.1, 0.3, 1.0, 2.0]) * rng.normal(size=len(start))) * (rng.random(len(start)) < 0.9)
        shares = found * step + rng.choice([1e-6, 0.2, 1.0]) * rng.dirichlet(np.full(len(start), 0.2))
        level = quiet.level(shares := shares / shares.sum() if trial else start)
        over = np.array([paths.delay(shares, level) / rows[name].target for name, paths in loud.items()]) - 1.0
        score = (over <= 0.0).sum() - (over / (1.0 + np.abs(over))).mean()
        best, found = (score, shares) if score > best else (best, found)
    return found


def at_once(needs: Sequence[Mapping[str, float]], left: float = 1.0) -> set[str]:
    """The most streams that the families can serve at once: each serves all that need no more than its share."""
    choices = {0.0, *(need for need in needs[0].values() if need <= left + 1e-9)} if needs else ()
    tried = ({x for x, need in needs[0].items() if need <= own} | at_once(needs[1:], left - own) for own in choices)
    return max(tried, key=len, default=set())


def document(data: str | None, runs: int) -> str:
    """Measure, and say what was found."""
    every, before, alone, loud, lines = known_rows(), SHORT.before, np.eye(len(FAMILIES)), {}, []
    rows = {name: row for name, row in every.items() if row.tool.startswith("Sentinel") and name in changes(data)}
    P = without_change(Job(data, "ours", "mean", CALIBRATION, before, range(10 * runs), {}), before)
    quiet = Paths(statistics(P), np.zeros(10 * runs, np.int64))
    levels, needs = [quiet.level(shares) for shares in alone], [dict[str, float]() for _ in FAMILIES]
    for name, row in rows.items():
        P = with_change(Job(data, "ours", name, CHANGED, before, range(runs), {}))
        loud[name] = Paths(statistics(P), np.array([change_time(name, run, before) for run in range(runs)]))
        if row.is_level:
            continue
        delays = [loud[name].delay(shares, level) for shares, level in zip(alone, levels, strict=True)]
        for need, shares, level in zip(needs, alone, levels, strict=True):
            enough = (x for x in range(1, 101) if loud[name].delay(shares, 100 * level / x) <= row.target)
            need[name] = next(enough, math.inf) / 100
        one = searched(quiet, {name: loud[name]}, rows, alone[k := int(np.argmin(delays))], TRIALS // 5)
        lines.append([name, row.best, f"{row.target:.1f}", row.ours, FAMILIES[k], f"{delays[k]:.1f}"])
        lines[-1] += [f"{needs[k][name]:.2f}", f"{loud[name].delay(one, quiet.level(one)):.1f}"]
    best = [{line[0]: needs[k][line[0]] for line in lines if line[4] == own} for k, own in enumerate(FAMILIES)]
    now, few, many = sum(row.is_level for row in every.values()), at_once(best), at_once(needs)
    never = [line[0] for line in lines if float(line[7]) > float(line[2])]
    new = searched(quiet, loud, rows, SHARES, TRIALS)
    kept, got = ({x for x in rows if loud[x].delay(y, quiet.level(y)) <= rows[x].target} for y in (SHARES, new))
    text = f"""Each row by one family: at most {len(few)} of these {len(lines)} rows are level at once, each by its best
        family ({"; ".join(sorted(few))}), or {len(many)}, each by any one family ({"; ".join(sorted(many))}); with the
        {now} of {len(every)} known rows that are first or level now, and need shares too, {now + len(few)} and
        {now + len(many)}; 75 % are {math.ceil(0.75 * len(every))}. Several families may gain from one change, so this
        is no bound for mixtures. No shares tried suffice, even for the row alone, for {"; ".join(never)}: this leaves
        {now + len(lines) - len(never)}. Of {TRIALS:,} mixtures tried for all rows, on the runs that judge them, the
        best is still level or better on {len(got)} of the {len(rows)} known rows of `Sentinel` (with its own shares:
        {len(kept)}). Won: {"; ".join(sorted(got - kept))}. Lost: {"; ".join(sorted(kept - got)) or "none"}. Shares:
        {", ".join(f"{family} {share:.2f}" for family, share in zip(FAMILIES, new, strict=True))}."""
    first, last = (" ".join(part.split()) + "\n" for part in (METHOD.format(10 * runs, runs, TRIALS // 5), text))
    return "\n".join([heading("Shares of Sentinel", "make shares", ["numpy"]), first, table(COLUMNS, lines), last])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Shares of the families of Sentinel; writes SHARES.md")
    parser.add_argument("--data", help="folder with the paper's datasets: adds USPS and Satellite")
    parser.add_argument("--runs", type=int, default=200, help="with a change, and ten times as many without")
    Path(__file__).with_name("SHARES.md").write_text(document(**vars(parser.parse_args())), encoding="utf-8")
