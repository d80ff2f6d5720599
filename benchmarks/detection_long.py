"""Long runs at the tools' defaults: false alarms by the thousand steps, and changes that come late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

import own_detectors
import river_binary
import river_paths
from changes import changes
from detection_runs import AFTER, JITTER, Bench, batches, change_time, joined, kind, rng
from detection_store import Arrays
from detection_verdicts import average, delay
from detectors import Detector, Floats, Integers, Path
from own_detectors import p_values

HAZARD_STEPS = 20_000
LATE_STREAMS = ("mean", "scale", "SEA, errors only", "counts")
LATE_TIMES = (1_000, 10_000, 100_000)
HAZARD, LATE = 4, 5  # the purposes of these runs: part of their seeds
RARELY = 1_000_000  # a period for which few runs are lost before a change after 100,000 steps
MODULES = ("detection_long", "own_detectors", "exchangeable", "river_paths", "river_binary", "river")


def rarely() -> Path:
    """Our default with a long period: at its own, most runs have a false alarm within 100,000 steps."""
    usual = next(tool for tool in own_detectors.RANKS if tool.name == own_detectors.DEFAULT)
    assert isinstance(usual, Path)
    return Path(f"{usual.name}, period = {RARELY:,}", math.log(RARELY), f"period = {RARELY:,}", usual.statistic)


def ranked() -> Sequence[Detector]:
    """Ours that see ranks."""
    return [*own_detectors.RANKS, rarely()]


def numeric(data: str) -> Sequence[Detector]:
    """Ours that see numbers, and river's, of those that can watch this kind of data."""
    every = [*own_detectors.RAW, *river_paths.TOOLS, *river_binary.TOOLS]
    return [tool for tool in every if tool.applies(data)]


class Long(NamedTuple):
    """A batch of long runs for one process; with a change or without."""

    folder: str | None
    name: str
    before: int
    is_changed: bool
    runs: range


def numbers(job: Long) -> Floats:
    """The numbers of these runs, one row each; the change comes at a random time, as in the other runs."""
    change, rows = changes(job.folder)[job.name], []
    for run in job.runs:
        time = change_time(job.name, run, job.before) if job.is_changed else job.before
        after = job.before + JITTER + AFTER - time if job.is_changed else 0
        rows.append(change(rng(run, LATE if job.is_changed else HAZARD, job.before, job.name), time, after))
    return np.array(rows)


def first_alarms(job: Long) -> Arrays:
    """The first alarm of each tool at its default, one row a run."""
    X, seeds = numbers(job), job.runs
    P = np.array([p_values(x, run) for x, run in zip(X, seeds, strict=True)])
    found = {tool.name: tool.firsts(P, seeds, [tool.default or 0.0])[:, 0] for tool in ranked()}
    return found | {
        tool.name: tool.firsts(X, seeds, [tool.default or 0.0])[:, 0] for tool in numeric(kind(job.folder, job.name))
    }


def run(bench: Bench, name: str, before: int, is_changed: bool, runs: int) -> Mapping[str, Integers]:
    """The first alarm of each tool on long runs of one stream."""
    size = 20 if before <= HAZARD_STEPS else 5
    jobs = [Long(bench.folder, name, before, is_changed, part) for part in batches(runs, size)]
    key = ("long runs", name, before, is_changed, runs, sorted(tool.name for tool in own_detectors.RAW))
    return bench.store.get(key, MODULES, lambda: joined(bench.pool.map(first_alarms, jobs, chunksize=1)))


def hazard(first: Integers) -> list[str]:
    """Of the runs still quiet at the beginning of each thousand steps, the percentage that raise an alarm in it."""
    cells = []
    for start in range(0, HAZARD_STEPS, 1_000):
        quiet_yet = first[first >= start]
        share = f"{100.0 * float((quiet_yet < start + 1_000).mean()):.0f}" if 20 * quiet_yet.size >= first.size else "-"
        cells.append(share)
    return cells


def hazards(bench: Bench, runs: int) -> list[list[str]]:
    """A row for each tool that watches numbers of any kind: how its false alarms are spread over N(0, 1)."""
    found = run(bench, "mean", HAZARD_STEPS, False, runs)
    return [[tool, *hazard(first)] for tool, first in found.items() if tool != rarely().name]


def late_cell(first: Integers, name: str, before: int) -> str:
    """The mean delay, and the percentage of runs that are left out because of an earlier alarm."""
    delays = np.array([delay(int(at), change_time(name, run, before)) for run, at in enumerate(first)])
    lost = f"{100.0 * float(np.isnan(delays).mean()):.0f}"
    return f"- ({lost})" if np.isfinite(delays).sum() < 5 else f"{average(delays):.0f} ({lost})"


def late(bench: Bench, runs: int) -> list[list[str]]:
    """A row for each stream and tool: the delays of changes after quiet times of different lengths."""
    rows = []
    for name in LATE_STREAMS:
        found = {before: run(bench, name, before, True, runs) for before in LATE_TIMES}
        for tool in found[LATE_TIMES[0]]:
            rows.append([name, tool, *(late_cell(first[tool], name, before) for before, first in found.items())])
    return rows
