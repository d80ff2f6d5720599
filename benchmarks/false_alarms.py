"""False alarms of entry points, counted on exchangeable data at three levels, and compared with these levels."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from decimal import Decimal
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from exchangeable.research import binomial, certificate
from workloads import table

LEVELS = (0.05, 0.1, 0.3)  # nominal
AGAIN = 4  # an entry point that looks broken is run again on fresh data, with this many times the runs ..
AGAIN_CONFIDENCE = 0.999  # .. and is broken if that exact interval also lies above a level
PIECE = 20  # runs per task

Outcome = float | Decimal | Mapping[float, bool]  # a p-value, or whether there was an alarm at each level


class Scenario(NamedTuple):
    """What a user calls, on exchangeable data. One run is used for all levels."""

    entry: str
    data: str
    play: Callable[[np.random.Generator], Outcome]
    runs: int = 2000

    @property
    def name(self) -> str:
        """The entry point and its data, in words."""
        return f"{self.entry}, {self.data}"


class Counted(NamedTuple):
    """How many runs had a false alarm at each of the levels."""

    scenario: Scenario
    runs: int
    alarms: tuple[int, ...]

    def broken(self, confidence: float = binomial.CONFIDENCE) -> bool:
        """Whether the exact interval lies above a level."""
        return any(
            binomial.interval(count, self.runs, confidence)[0] > level
            for count, level in zip(self.alarms, LEVELS, strict=True)
        )


class Found(NamedTuple):
    """The counts of all scenarios, and of those that looked broken and were run again."""

    counted: list[Counted]
    again: list[Counted]

    @property
    def broken(self) -> list[Counted]:
        """Those whose interval also lies above a level in the second run."""
        return [one for one in self.again if one.broken(AGAIN_CONFIDENCE)]


def alarms(outcome: Outcome) -> list[bool]:
    """Whether there was a false alarm at each of the levels.

    >>> alarms(0.07), alarms({0.05: False, 0.1: True, 0.3: True})
    ([False, True, True], [False, True, True])
    """
    if isinstance(outcome, Mapping):
        return [bool(outcome[level]) for level in LEVELS]
    return [bool(outcome <= level) for level in LEVELS]


def judge(
    scenarios: Sequence[Scenario],
    seed: int = 0,
    *,
    share: float = 1.0,
    processes: int = 1,
    progress: certificate.Progress | None = None,
) -> Found:
    """Count all scenarios, and those that look broken again on fresh data. ``share`` scales the number of runs."""
    first = count(scenarios, seed, share, processes, progress)
    suspects = [one.scenario for one in first if one.broken()]
    return Found(first, count(suspects, seed + 1, AGAIN * share, processes, progress))


def count(
    scenarios: Sequence[Scenario],
    seed: int,
    share: float = 1.0,
    processes: int = 1,
    progress: certificate.Progress | None = None,
) -> list[Counted]:
    """Count false alarms. The same seed gives the same counts on any number of processes."""
    runs = [max(1, round(share * one.runs)) for one in scenarios]
    totals = [np.zeros(len(LEVELS), np.int64) for _ in scenarios]
    work = [
        (i, one, range(lo, min(lo + PIECE, runs[i])), seed)
        for i, one in enumerate(scenarios)
        for lo in range(0, runs[i], PIECE)
    ]
    for done, (i, sums) in enumerate(_done(work, processes), start=1):
        totals[i] += sums
        if progress is not None:
            progress("entry points", done, len(work))
    return [Counted(one, n, tuple(sums.tolist())) for one, n, sums in zip(scenarios, runs, totals, strict=True)]


Work = tuple[int, Scenario, range, int]


def _done(work: list[Work], processes: int) -> Iterator[tuple[int, Any]]:
    if processes == 1 or not work:
        yield from map(_piece, work)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_piece, one) for one in work]):
            yield future.result()


def _piece(work: Work) -> tuple[int, Any]:
    i, scenario, runs, seed = work
    key = zlib.crc32(scenario.name.encode())  # adding a scenario does not change the others
    return i, np.sum([alarms(scenario.play(np.random.default_rng([seed, key, run]))) for run in runs], axis=0)


# ------------------------------------------------------------------ as text


def percent(value: float) -> str:
    return f"{100.0 * value:.1f}"


def cell(count: int, runs: int, level: float) -> str:
    """A rate with its interval in percent; bold where even the lower end is above the level."""
    low, high = binomial.interval(count, runs)
    text = f"{percent(count / runs)} ({percent(low)} to {percent(high)})"
    return f"**{text}**" if low > level else text


def rates(counted: Sequence[Counted], first: str) -> str:
    """A Markdown table."""
    columns = [first, "data", "runs", *(f"at {100.0 * level:g} %" for level in LEVELS)]
    rows = [
        [
            one.scenario.entry,
            one.scenario.data,
            f"{one.runs:,}",
            *(cell(count, one.runs, level) for count, level in zip(one.alarms, LEVELS, strict=True)),
        ]
        for one in counted
    ]
    return table(columns, rows)


def noticed(sizes: Sequence[int]) -> str:
    """With which probability a rate above its level would be suspected, for these numbers of runs."""
    excesses = [(excess, level) for excess in (binomial.EXCESS, 2.0) for level in LEVELS]
    columns = ["runs", *(f"{excess:g} x {100.0 * level:g} %" for excess, level in excesses)]
    powers = [[binomial.power(level, runs, excess=excess) for excess, level in excesses] for runs in sizes]
    return table(columns, [[f"{n:,}", *(f"{p:.2f}" for p in row)] for n, row in zip(sizes, powers, strict=True)])


ENTRY_POINTS = (
    "## Entry points",
    "What users call, run on exchangeable data (`benchmarks/entry_points.py`) on {date}. {verdict} A cell is the share"
    " of runs with a false alarm in %, with its exact 99 % interval, at nominal levels of 5, 10 and 30 %. Rates below"
    " the level are expected: the default bet is cautious, runs are short, and a table divides its level among"
    " full rows and columns. Fair gamblers, who aim at exactly what a rule needs, use nearly all of it. Seeds"
    " are drawn afresh for each run; where none is given, it is the hash of the table. *Untidy* tables have missing"
    " values, dates, identifiers and free text. A row is suspected if an"
    " interval lies above its level, and broken if {again} times the runs on fresh data give a"
    " {confidence:g} % interval above it as well. Suspected this time: {suspected}.",
    "What users may be tempted to do with the same entry points, on the same kind of data."
    " **Bold** where the interval lies above the level. A stratified split is not a random one, since the shares of"
    " the classes agree better than by chance; the default bet does not notice, but a bet that looks for it does"
    " (`tests/test_entry_points.py`).",
)
LIVE_MONITORS = (
    "## Live tables and losses",
    "The same for `TableMonitor`, on rows that are exchangeable with its reference, and for `Risk`, on losses with a"
    " mean of at most the limit given the past, on {date}. {verdict} `Risk.interval`: the share of runs in which the"
    " interval misses the mean risk at any time. Suspected this time: {suspected}.",
    "The same rows for constants and for pools; an interval that is valid for a constant mean only. **Bold** where the"
    " interval lies above the level.",
)
Words = tuple[str, str, str]  # the heading, and the introductions of what is promised and of what is not


def section(words: Words, found: Found, tempting: Sequence[Counted]) -> str:
    """A part of VALIDITY.md."""
    heading, promised, not_promised = words
    broken = "; ".join(one.scenario.name for one in found.broken)
    text = promised.format(
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        verdict=f"**BROKEN: {broken}.**" if broken else "No level was exceeded.",
        again=AGAIN,
        confidence=100.0 * AGAIN_CONFIDENCE,
        suspected=len(found.again),
    )
    return (
        f"{heading}\n\n{text}\n\n"
        + rates(found.counted, "entry point")
        + "\nThe probability that such a rate would have been suspected, by the number of runs:\n\n"
        + noticed(sorted({one.runs for one in found.counted}))
        + f"\n### Not promised\n\n{not_promised}\n\n"
        + rates(tempting, "recipe")
    )
