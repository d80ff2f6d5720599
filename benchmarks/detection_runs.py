"""The runs of bench_detection.py: which streams, how long, with which seeds, by which tools, shared out over the cores.

Runs without a change come in two lots: one sets each tool's level, the other measures the rate at that level. P-values
of exact ranks are independent and uniform before a change whatever the stream, so tools that see ranks only are
calibrated once for all streams. Streams whose numbers before the change are the same share theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing.pool import Pool
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import conformal_detectors
import frouros_paths
import glr
import limits
import own_detectors
import river_binary
import river_paths
from changes import Change, changes
from detection_store import Arrays, Store
from detectors import BINARY, NUMBERS, STARS, UNIT, Detector, Floats
from own_detectors import p_values

AFTER = 1_000  # steps after the change; a run without an alarm counts as this many
JITTER = 128  # the change comes after ``before`` steps plus a random number below this
RATE = 0.05  # of runs with an alarm within the first ``before`` steps
CALIBRATION, FRESH, CHANGED = range(3)  # what a run is for: part of its seed
UNIFORM = "uniform p-values"


class Runs(NamedTuple):
    """How many runs set the level, measure the rate, and hold a change."""

    calibration: int
    fresh: int
    changed: int


class Setting(NamedTuple):
    """How long all is quiet, how many runs each family of tools has, and how many runs a process takes at once."""

    label: str
    before: int
    runs: Mapping[str, Runs]
    batch: int


class Family(NamedTuple):
    """Tools that are run together; ``tools`` may depend on the stream, and then ``is_specific``."""

    tools: Callable[[Change], Sequence[Detector]]
    sees_ranks: bool
    modules: tuple[str, ...]  # whose text decides whether results in the store are still good
    is_specific: bool = False


FAMILIES: Mapping[str, Family] = {
    "ours": Family(lambda _: own_detectors.RANKS, True, ("own_detectors", "exchangeable")),
    "ours, on numbers": Family(lambda _: own_detectors.RAW, False, ("own_detectors", "exchangeable")),
    "river": Family(
        lambda _: [*river_paths.TOOLS, *river_binary.TOOLS], False, ("river_paths", "river_binary", "river")
    ),
    "river HDDM": Family(lambda _: river_binary.HDDM, False, ("river_binary", "river")),
    "others on numbers": Family(lambda _: [*frouros_paths.TOOLS, *glr.TOOLS], False, ("frouros_paths", "glr")),
    "martingales": Family(lambda _: conformal_detectors.QUICK, True, ("conformal_detectors", "peers", "ranks")),
    "martingales with alarms": Family(
        lambda _: conformal_detectors.WITH_ALARMS, True, ("conformal_detectors", "peers", "exchangeable")
    ),
    "slow martingales": Family(lambda _: conformal_detectors.SLOW, True, ("conformal_detectors", "peers", "ranks")),
    "limit": Family(lambda change: [limits.knows_both(change)], False, ("limits",), True),
    "limit by ranks": Family(lambda change: [limits.by_ranks(change)], True, ("limits", "ranks"), True),
}
SHORT = Setting(
    "a",
    1_000,
    {
        "ours": Runs(2_000, 2_000, 200),
        "ours, on numbers": Runs(1_000, 1_000, 200),
        "river": Runs(1_000, 1_000, 200),
        "river HDDM": Runs(1_000, 1_000, 200),
        "others on numbers": Runs(1_000, 1_000, 200),
        "martingales": Runs(1_000, 1_000, 200),
        "martingales with alarms": Runs(1_000, 1_000, 200),
        "slow martingales": Runs(200, 200, 80),
        "limit": Runs(1_000, 500, 200),
        "limit by ranks": Runs(400, 200, 100),
    },
    20,
)
LONG = Setting(
    "b",
    10_000,
    {
        "ours": Runs(600, 400, 60),
        "ours, on numbers": Runs(300, 100, 60),
        "river": Runs(300, 100, 60),
        "river HDDM": Runs(300, 100, 60),
        "others on numbers": Runs(300, 100, 60),
        "martingales": Runs(200, 100, 40),
        "martingales with alarms": Runs(300, 100, 60),
        "limit": Runs(300, 100, 60),
        "limit by ranks": Runs(200, 100, 40),
    },
    20,
)


class Job(NamedTuple):
    """A batch of runs for one process."""

    folder: str | None
    family: str
    name: str  # of the stream
    purpose: int
    before: int
    runs: range
    levels: Mapping[str, tuple[float, ...]]  # of each tool; without a change, those to search between, if any


# ------------------------------------------------------------------ streams


def rng(run: int, purpose: int, before: int, name: str) -> np.random.Generator:
    """The random numbers of one run."""
    return np.random.default_rng([run, purpose, before, *name.encode()])


@cache
def law(folder: str | None, name: str) -> str:
    """The first stream with the same numbers before the change."""
    numbers = {other: change(np.random.default_rng(0), 200, 0) for other, change in changes(folder).items()}
    return next(other for other, x in numbers.items() if np.array_equal(x, numbers[name]))


@cache
def kind(folder: str | None, name: str) -> str:
    """The kind of data of a stream, from a few thousand numbers."""
    x = changes(folder)[name](np.random.default_rng(1), 2_000, 2_000)
    if np.isin(x, (0.0, 1.0)).all():
        return BINARY
    if np.isin(x, (1.0, 2.0, 3.0, 4.0, 5.0)).all():
        return STARS
    return UNIT if ((x >= 0.0) & (x <= 1.0)).all() else NUMBERS


@cache
def tools(folder: str | None, family: str, name: str) -> list[Detector]:
    """The tools of a family that can watch this stream."""
    members = FAMILIES[family]
    if members.is_specific and name in limits.VARYING:
        return []
    return [tool for tool in members.tools(changes(folder)[name]) if tool.applies(kind(folder, name))]


def change_time(name: str, run: int, before: int) -> int:
    """The number of steps before the change in this run."""
    return before + int(rng(run, 3, before, name).integers(JITTER))


def without_change(job: Job, steps: int) -> Floats:
    """The numbers, or the p-values, of runs without a change: one row each."""
    if FAMILIES[job.family].sees_ranks:
        return np.array([1.0 - rng(run, job.purpose, job.before, UNIFORM).random(steps) for run in job.runs])
    source = law(job.folder, job.name)
    change = changes(job.folder)[source]
    return np.array([change(rng(run, job.purpose, job.before, source), steps, 0) for run in job.runs])


def with_change(job: Job) -> Floats:
    """The numbers, or their p-values, of runs with a change, all of one length: one row each."""
    change, length = changes(job.folder)[job.name], job.before + JITTER + AFTER
    times = [change_time(job.name, run, job.before) for run in job.runs]
    rows = [
        change(rng(run, job.purpose, job.before, job.name), time, length - time)
        for run, time in zip(job.runs, times, strict=True)
    ]
    if FAMILIES[job.family].sees_ranks:
        return np.array([p_values(x, run) for x, run in zip(rows, job.runs, strict=True)])
    return np.array(rows)


# ------------------------------------------------------------------ what a process does


def quiet(job: Job) -> Arrays:
    """What each tool keeps of runs without a change."""
    X = without_change(job, job.before)
    found = tools(job.folder, job.family, job.name)
    return {tool.name: tool.between(job.levels.get(tool.name)).quiet(X, job.runs) for tool in found}


def loud(job: Job) -> Arrays:
    """The first alarms of each tool at its levels: of runs with a change, or of equally long ones without."""
    X = with_change(job) if job.purpose == CHANGED else without_change(job, job.before + AFTER)
    found = tools(job.folder, job.family, job.name)
    return {tool.name: tool.firsts(X, job.runs, job.levels[tool.name]) for tool in found}


def joined(parts: Sequence[Mapping[str, NDArray[Any]]]) -> Arrays:
    """The batches one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def batches(runs: int, size: int) -> list[range]:
    """All runs, in batches."""
    return [range(start, min(start + size, runs)) for start in range(0, runs, size)]


class Found(NamedTuple):
    """One tool on one stream: its level, and its first alarms at that level and at its default."""

    tool: Detector
    level: float
    fresh: NDArray[np.int64]  # a row for each run without a change
    firsts: NDArray[np.int64]  # a row for each run with a change


class Bench:
    """The runs, shared out over the cores; the same numbers whatever the number of cores and the size of batches."""

    def __init__(self, pool: Pool, folder: str | None, store: Store) -> None:
        self.pool, self.folder, self.store = pool, folder, store

    def found(self, setting: Setting, family: str, name: str) -> dict[str, Found]:
        """Every tool of a family on one stream."""
        members = tools(self.folder, family, name)
        if not members:
            return {}
        owner = self._owner(family, name)
        kept = self._run(quiet, setting, family, name, CALIBRATION, {}, owner)
        brackets = {tool.name: tool.bracket(kept[tool.name], RATE) for tool in members}
        finer = {name: bounds for name, bounds in brackets.items() if bounds is not None}
        if finer:
            kept = self._run(quiet, setting, family, name, CALIBRATION, finer, owner)
        chosen = {tool.name: tool.between(finer.get(tool.name)).calibrated(kept[tool.name], RATE) for tool in members}
        levels = {tool.name: (chosen[tool.name], np.inf if tool.default is None else tool.default) for tool in members}
        fresh = self._run(loud, setting, family, name, FRESH, levels, owner)
        first = self._run(loud, setting, family, name, CHANGED, levels, name)
        return {tool.name: Found(tool, chosen[tool.name], fresh[tool.name], first[tool.name]) for tool in members}

    def _owner(self, family: str, name: str) -> str:
        """What runs without a change belong to."""
        members = FAMILIES[family]
        if members.is_specific:
            return name
        return "every stream" if members.sees_ranks else law(self.folder, name)

    def _run(
        self,
        work: Callable[[Job], Arrays],
        setting: Setting,
        family: str,
        name: str,
        purpose: int,
        levels: Mapping[str, tuple[float, ...]],
        owner: str,
    ) -> Arrays:
        runs = setting.runs[family][purpose]
        jobs = [
            Job(self.folder, family, name, purpose, setting.before, part, levels)
            for part in batches(runs, setting.batch)
        ]
        members = sorted(tool.name for tool in tools(self.folder, family, name))
        key = (setting.before, family, owner, work.__name__, purpose, runs, members, sorted(levels.items()))
        return self.store.get(key, FAMILIES[family].modules, lambda: joined(self.pool.map(work, jobs, chunksize=1)))
