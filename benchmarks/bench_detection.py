"""Detection: how long after a change, at one and the same rate of false alarms; and false alarms as the tools come.

Written into DETECTION.md by `make detection` (about ten minutes on two cores; DATA=folder with the paper's datasets
adds two streams). The streams are those of changes.py, the tools those of detectors.py.

Each tool is calibrated on runs without a change, so that five in a hundred raise an alarm within the first thousand
steps; the rate is then measured on fresh runs. The change comes at a random time in the steps that follow, since a tool
that checks only at multiples of a hundred, or whose statistic grows steadily, would gain from a change at a fixed time.
On runs with a change all tools see the same numbers. A run with an alarm before the change is left out; a run without
an alarm counts as the full time after the change.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path as File
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import detectors
import peers
from changes import HELD_OUT, changes
from detectors import ALARMS, DUMMY, OURS, PEERS, RIVER, Detector, Floats, Integers, crossing, own, p_values
from workloads import heading, table

BEFORE, AFTER = 1_000, 1_000  # steps for calibration, and steps after the change
JITTER = 128  # the change comes after BEFORE steps plus a random number below this
LONG, LONG_RUNS = 20_000, 400  # length and number of runs without a change, for the hazard of false alarms
RATE = 0.05  # of runs that sound before the change
UNIFORM = "uniform p-values"  # what martingales bet on before the change, whatever the stream
RESAMPLES = 2_000
CLOSE = 0.1  # longer than the best by no more than this part of its delay


class Runs(NamedTuple):
    """How many runs set the knob, measure the rate, and hold a change."""

    calibration: int
    fresh: int
    changed: int


FAMILIES = {
    "ours": Runs(1_000, 1_000, 200),
    "river": Runs(1_000, 1_000, 200),
    "peers": Runs(500, 500, 80),
    "slow peers": Runs(200, 200, 40),
}
Task = tuple[str | None, str, str, int, int, dict[str, tuple[float, float]]]


class Result(NamedTuple):
    """One tool on one stream."""

    level: float  # that keeps to the rate
    false: int  # alarms without a change, at that level
    false_default: int  # and at the default
    runs: int  # of those
    delay: Floats  # of each run with a change
    delay_default: Floats

    @property
    def mean(self) -> float:
        """Of the delay."""
        return average(self.delay)

    @property
    def default_mean(self) -> float:
        """Of the delay at the default."""
        return average(self.delay_default)

    @property
    def median(self) -> float:
        """Of the delay."""
        return float(np.nanmedian(self.delay)) if np.isfinite(self.delay).any() else math.nan

    @property
    def detected(self) -> float:
        """The share of the runs that saw the change in which the alarm came in time."""
        seen = self.delay[np.isfinite(self.delay)]
        return float((seen < AFTER).mean()) if seen.size else math.nan


def average(delay: Floats) -> float:
    """The mean over the runs that saw the change; NaN if none did."""
    return float(np.nanmean(delay)) if np.isfinite(delay).any() else math.nan


@cache
def tools(family: str) -> Mapping[str, Detector]:
    """The tools of a family other than ours, made once in each process."""
    chosen: Sequence[Detector] = [*RIVER, DUMMY]
    if family in PEERS:
        chosen = detectors.martingales(PEERS[family])
    return {tool.name: tool for tool in chosen}


def stream(folder: str | None, name: str, run: int, kind: int, before: int, after: int) -> Floats:
    """The numbers of one run; each kind of run has its own seeds."""
    rng = np.random.default_rng([run, kind, *name.encode()])
    return 1.0 - rng.random(before) if name == UNIFORM else changes(folder)[name](rng, before, after)


def change_time(name: str, run: int) -> int:
    """The number of steps before the change in this run."""
    return BEFORE + int(np.random.default_rng([run, 3, *name.encode()]).integers(JITTER))


def quiet(task: Task) -> dict[str, float]:
    """The peak of each tool on one run without a change."""
    folder, family, name, run, kind, _ = task
    x = stream(folder, name, run, kind, BEFORE, 0)
    if family == "ours":
        return {tool: float(path.max()) for tool, path in own(x, run).items()}
    return {name: tool.peak(x, run) for name, tool in tools(family).items()}


def loud(task: Task) -> dict[str, tuple[float, float]]:
    """The delay of each tool on one run with a change, at both of its levels."""
    folder, family, name, run, kind, levels = task
    change = change_time(name, run)
    x = stream(folder, name, run, kind, change, AFTER)
    found = alarmed(family, x, run, levels)
    return {tool: (delay(low, change), delay(high, change)) for tool, (low, high) in found.items()}


def alarmed(family: str, x: Floats, run: int, levels: Mapping[str, tuple[float, float]]) -> dict[str, tuple[int, int]]:
    """The first alarm of each tool, at both of its levels."""
    if family == "ours":
        paths = own(x, run)
        return {tool: (crossing(paths[tool], low), crossing(paths[tool], high)) for tool, (low, high) in levels.items()}
    watched = p_values(x, run) if family in PEERS else x
    found = {}
    for name, tool in tools(family).items():
        if isinstance(tool, detectors.Path):  # one pass for both levels
            path = tool.statistic(watched, run)
            found[name] = crossing(path, levels[name][0]), crossing(path, levels[name][1])
        else:
            found[name] = tool.first(watched, run, levels[name][0]), tool.first(watched, run, levels[name][1])
    return found


def columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """A list of rows as named columns."""
    collected: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            collected.setdefault(name, []).append(value)
    return {name: np.array(values) for name, values in collected.items()}


def calibrated(peaks: Floats, rate: float = RATE) -> float:
    """The level at which the share of peaks that reach it is nearest to the rate."""
    levels = np.append(np.unique(peaks), math.inf)
    shares = (peaks[:, np.newaxis] >= levels).mean(axis=0)
    shares[np.isinf(levels)] = 0.0  # nothing sounds there, even what sounds always
    return float(levels[np.abs(shares - rate).argmin()])


def exact(count: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a rate."""
    tail = 0.5 * (1.0 - level)
    low = float(stats.beta.ppf(tail, count, runs - count + 1)) if count else 0.0
    high = float(stats.beta.ppf(1.0 - tail, count + 1, runs - count)) if count < runs else 1.0
    return low, high


def delay(first: int, change: int) -> float:
    """Steps from the change to the alarm, 1 at best; NaN if it came before the change; AFTER if never."""
    return math.nan if first < change else float(min(first - change + 1, AFTER))


def long_quiet(task: tuple[str, int]) -> dict[str, int]:
    """The first false alarm of each tool at its default, on one long run without a change."""
    family, run = task
    x = np.random.default_rng([run, 4]).normal(size=LONG)
    usual = defaults(family)
    return {tool: first for tool, (first, _) in alarmed(family, x, run, {t: (v, v) for t, v in usual.items()}).items()}


def hazard(first: Integers) -> list[str]:
    """Of the runs still quiet at the beginning of each thousand steps, the percentage that raise an alarm in it."""
    cells = []
    for start in range(0, LONG, 1_000):
        quiet_yet = first[first >= start]
        share = f"{100.0 * float((quiet_yet < start + 1_000).mean()):.0f}" if quiet_yet.size >= LONG_RUNS // 20 else "-"
        cells.append(share)
    return cells


def defaults(family: str) -> dict[str, float]:
    """The level of each tool as it comes."""
    if family == "ours":
        return {tool: ALARMS[alarm][1] for tool, (_, alarm) in OURS.items()}
    return {name: tool.level for name, tool in tools(family).items()}


class Bench:
    """Runs, shared out over the cores; the same numbers whatever the number of cores."""

    def __init__(self, pool: Pool, folder: str | None, runs: Mapping[str, Runs]) -> None:
        self.pool, self.folder, self.runs = pool, folder, runs
        self._uniform: dict[tuple[str, int], dict[str, NDArray[Any]]] = {}

    def peaks(self, family: str, name: str, kind: int) -> dict[str, NDArray[Any]]:
        """Runs without a change. Exact p-values are uniform then, so one lot serves the peers on every stream."""
        if (family, kind) in self._uniform:
            return self._uniform[family, kind]
        source = UNIFORM if family in PEERS else name
        tasks: list[Task] = [(self.folder, family, source, run, kind, {}) for run in range(self.runs[family][kind])]
        found = columns(self.pool.imap(quiet, tasks, chunksize=10))
        if family in PEERS:
            self._uniform[family, kind] = found
        return found

    def results(self, family: str, name: str) -> dict[str, Result]:
        """Every tool of a family on one stream."""
        before, fresh, usual = self.peaks(family, name, 0), self.peaks(family, name, 1), defaults(family)
        levels = {tool: (calibrated(before[tool]), usual[tool]) for tool in before}
        tasks = [(self.folder, family, name, run, 2, levels) for run in range(self.runs[family].changed)]
        first = columns(self.pool.imap(loud, tasks, chunksize=5))  # delays
        return {
            tool: Result(
                level,
                int((fresh[tool] >= level).sum()),
                int((fresh[tool] >= default).sum()),
                len(fresh[tool]),
                first[tool][:, 0],
                first[tool][:, 1],
            )
            for tool, (level, default) in levels.items()
        }

    def hazards(self) -> str:
        """A table of how false alarms are spread over long runs without a change, at the defaults."""
        rows = []
        for family in ("ours", "river"):
            tasks = [(family, run) for run in range(LONG_RUNS)]
            found = columns(self.pool.imap(long_quiet, tasks, chunksize=5))
            rows += [[tool, *hazard(first)] for tool, first in found.items() if tool != DUMMY.name]
        return table(["tool", *(str(i + 1) for i in range(LONG // 1_000))], rows)


def resampled(values: Floats) -> tuple[float, float]:
    """The bootstrap's 95 % interval of a mean."""
    which = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[which].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


class Verdict(NamedTuple):
    """One of our alarms against the best of the others: how much longer it takes, with the interval of the mean."""

    other: str
    difference: float
    low: float
    high: float
    part: float  # how much longer, as a part of what the other takes

    @property
    def word(self) -> str:
        """First, level, close or behind."""
        if self.high < 0.0:
            return "first"
        return "level" if self.low <= 0.0 else "close" if self.part <= CLOSE else "**behind**"


def others(results: Mapping[str, Result]) -> list[str]:
    """All but ours and the dummy."""
    return [tool for tool in results if tool not in (*OURS, DUMMY.name)]


def verdict(results: Mapping[str, Result], tool: str, other: str | None = None) -> Verdict:
    """On the runs that both saw through to the change; the best of the others is the one with the least mean delay."""
    other = other or min(others(results), key=lambda name: results[name].mean)
    runs = min(len(results[tool].delay), len(results[other].delay))
    longer = results[tool].delay[:runs] - results[other].delay[:runs]
    longer = longer[np.isfinite(longer)]
    return Verdict(other, float(longer.mean()), *resampled(longer), results[tool].mean / results[other].mean - 1.0)


def one_by_one(all_results: Mapping[str, Mapping[str, Result]], tool: str) -> str:
    """On how many streams a tool of ours is first, level or close, against each of the others alone."""
    rows = []
    for other in others(next(iter(all_results.values()))):
        said = [verdict(results, tool, other).word for results in all_results.values()]
        rows.append([other, *(str(said.count(word)) for word in ("first", "level", "close", "**behind**"))])
    return f"{tool} against each of the others alone:\n\n" + table(["", "first", "level", "close", "behind"], rows)


def matrix(all_results: Mapping[str, Mapping[str, Result]], cell: Callable[[Result], str]) -> str:
    """A row a stream, a column a tool."""
    names = list(next(iter(all_results.values())))
    rows = [[stream, *(cell(results[tool]) for tool in names)] for stream, results in all_results.items()]
    return table(["stream", *names], rows)


def headline(all_results: Mapping[str, Mapping[str, Result]]) -> str:
    rows: list[list[str]] = []
    words: dict[str, list[str]] = {tool: [] for tool in OURS}
    for name, results in all_results.items():
        best = min(others(results), key=lambda tool: results[tool].mean)
        rows.append([f"{name} (held out)" if name in HELD_OUT else name, f"{best}: {results[best].mean:.0f}"])
        for tool in OURS:
            found = verdict(results, tool)
            words[tool].append(found.word.strip("*"))
            rows[-1].append(f"{results[tool].mean:.0f} ({found.low:+.0f} to {found.high:+.0f}): {found.word}")
    counted = "".join(
        f"- {tool}: first on {said.count('first')}, level on {said.count('level')}, close on {said.count('close')}, "
        "behind on "
        f"{said.count('behind')} of {len(said)} streams.\n"
        for tool, said in words.items()
    )
    alone = one_by_one(all_results, "Watchful, ShiryaevRoberts")
    return table(["stream", "best of the others", *OURS], rows) + "\n" + counted + "\n" + alone


def number(value: float) -> str:
    """Whole, or a dash where there is none: who sounds before the change in every run has no delay."""
    return "-" if math.isnan(value) else f"{value:.0f}"


def percent(count: int, runs: int) -> str:
    low, high = exact(count, runs)
    return f"{100.0 * count / runs:.1f} ({100.0 * low:.1f}-{100.0 * high:.1f})"


def sections(all_results: Mapping[str, Mapping[str, Result]], hazards: str) -> list[str]:
    usual = {tool: ALARMS[alarm][2] for tool, (_, alarm) in OURS.items()}
    usual |= {name: tool.default for family in FAMILIES if family != "ours" for name, tool in tools(family).items()}
    return [
        f"## Mean delay at {100 * RATE:.0f} % false alarms: ours against the best of the others\n\n"
        "In brackets: how much longer ours takes than that best one, 95 % interval of the mean over the runs that both "
        "saw through to the change (bootstrap). *First*: the interval is below 0; *level*: it holds 0; "
        "*close*: it is above 0, and ours takes at most a tenth longer. Streams held out were written down last "
        "and never used to choose anything; the others were looked at when `Watchful` was made.\n",
        headline(all_results),
        f"## Mean delay of all\n\nA run that never sounds counts with {AFTER:,}.\n",
        matrix(all_results, lambda result: number(result.mean)),
        "## Median delay\n",
        matrix(all_results, lambda result: number(result.median)),
        "## Share detected, %\n",
        matrix(all_results, lambda result: number(100 * result.detected)),
        "## False alarms at the levels set, %\n\n"
        "On fresh runs, with the exact 95 % interval; a knob with few steps cannot meet 5 %.\n",
        matrix(all_results, lambda result: percent(result.false, result.runs)),
        "## As the tools come\n\n"
        f"False alarms within {BEFORE:,} steps, %, and the mean delay, at the defaults: "
        + "; ".join(f"{tool} {default}" for tool, default in usual.items())
        + ".\n",
        matrix(
            all_results, lambda result: f"{100 * result.false_default / result.runs:.1f}; {number(result.default_mean)}"
        ),
        "## Share of false alarms per 1,000 steps, by thousand, %\n\n"
        f"At the defaults, on {LONG_RUNS} runs of independent N(0, 1): of the runs that are still quiet at the "
        "beginning of each thousand steps, the share that raise an alarm in it (- if fewer than a twentieth are left). "
        "A detector for endless monitoring should have a flat row. `Adaptive` learns to stay idle on noise, so with it "
        "the Shiryaev-Roberts statistic counts the steps, and the alarm sounds after about one period, like a clock. "
        "That is why it is not the default there, and why its delays above look better than they are (the statistic "
        "is already near its threshold when the change comes).\n",
        hazards,
    ]


def introduction(runs: Mapping[str, Runs]) -> str:
    counts = "; ".join(f"{name} {lot.calibration}, {lot.fresh} and {lot.changed}" for name, lot in runs.items())
    return (
        f"The change comes at a random time, after {BEFORE:,} to {BEFORE + JITTER - 1:,} steps, the same for all "
        f"tools, and the run goes on for {AFTER:,} more. Every tool sees the same numbers, and "
        "the martingales, ours and the peers', the same exact p-values of `measures.Value`. Each tool's knob is set on "
        f"runs without a change so that {100 * RATE:.0f} % sound within {BEFORE:,} steps. Runs that set the knob, "
        f"measure the rate and hold a change: {counts}. The kernel plug-ins of MAPIE and online-cp are left out, as "
        "hundreds of runs would take hours; so are peers that are not installed.\n"
    )


def definitions(folder: str | None) -> str:
    lines = [f"- {name}: {' '.join((change.__doc__ or '').split())}" for name, change in changes(folder).items()]
    return "## The streams\n\n" + "\n".join(lines) + "\n"


def warm(folder: str | None) -> None:
    """Fit the classifiers and compile, once in each process."""
    own(changes(folder)["mean"](np.random.default_rng(0), BEFORE, 0), 0)


def main(folder: str | None = None, only: Sequence[str] = (), runs: Mapping[str, Runs] = FAMILIES) -> str:
    chosen = [name for name in changes(folder) if not only or name in only]
    for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # of the processes to come: one each
        os.environ.setdefault(threads, "1")
    for name in chosen:
        detectors.check(changes(folder)[name](np.random.default_rng(3), 500, 300))
    all_results: dict[str, dict[str, Result]] = {}
    with get_context("spawn").Pool(os.cpu_count(), warm, (folder,)) as pool:
        bench = Bench(pool, folder, runs)
        for name in chosen:
            start = time.perf_counter()
            all_results[name] = {}
            for family in runs:
                all_results[name] |= bench.results(family, name)
            print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        hazards = bench.hazards()
    libraries = ("numpy", "scipy", "river", *(name for name in peers.LIBRARIES if peers.version(name)))
    return "\n".join(
        [
            heading("Detection", "make detection", libraries),
            introduction(runs),
            *sections(all_results, hazards),
            definitions(folder),
        ]
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="Delay of detection at one rate of false alarms, into DETECTION.md")
    options.add_argument("--data", help="folder with the paper's datasets: adds USPS and Satellite")
    options.add_argument("--only", nargs="*", default=[], help="these streams only; prints, writes nothing")
    options.add_argument("--quick", action="store_true", help="a fifth of the runs, no peers; prints, writes nothing")
    given = options.parse_args()
    fewer = {name: Runs(*(n // 5 for n in lot)) for name, lot in FAMILIES.items() if name not in PEERS}
    text = main(given.data, given.only, fewer if given.quick else FAMILIES)
    if not given.only and not given.quick:
        File(__file__).with_name("DETECTION.md").write_text(text, encoding="utf-8")
    print(text)
