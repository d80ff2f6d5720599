"""What the runs of bench_detection.py say: delays, rates with exact intervals, and verdicts of ours against others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

import own_detectors
from detection_runs import AFTER, RATE, Found, change_time
from detectors import Floats

RESAMPLES = 2_000
STEADY = 2.0  # times the rate: more false alarms after the time for which a tool was calibrated are a growing rate
CLOSE = 0.1  # longer than the other by no more than this part of its delay
WORDS = ("first", "level", "close", "behind")
LIMITS = ("limit", "limit by ranks")
OURS = tuple(tool.name for tool in (*own_detectors.RANKS, *own_detectors.RAW))


class Result(NamedTuple):
    """One tool on one stream."""

    level: float  # that keeps to the rate
    false: int  # runs without a change that have an alarm at that level before the time of a change
    false_default: int | None  # and at the default, if there is one
    runs: int  # of those
    later: float  # of the runs without such an alarm, the share with one in the steps that follow
    delay: Floats  # of each run with a change, NaN if the alarm came before it
    delay_default: Floats
    setting: str = ""  # how the tool comes

    @property
    def mean(self) -> float:
        """Of the delay."""
        return average(self.delay)

    @property
    def median(self) -> float:
        """Of the delay."""
        return float(np.nanmedian(self.delay)) if np.isfinite(self.delay).any() else math.nan

    @property
    def detected(self) -> float:
        """The share of the runs that saw the change in which the alarm came in time."""
        seen = self.delay[np.isfinite(self.delay)]
        return float((seen < AFTER).mean()) if seen.size else math.nan


Results = Mapping[str, Result]  # by tool


def average(delay: Floats) -> float:
    """The mean over the runs that saw the change; NaN if none did."""
    return float(np.nanmean(delay)) if np.isfinite(delay).any() else math.nan


def delay(first: int, change: int) -> float:
    """Steps from the change to the alarm, 1 at best; NaN if it came before the change; AFTER if never."""
    return math.nan if first < change else float(min(first - change + 1, AFTER))


def result(found: Found, name: str, before: int) -> Result:
    """The delays and the rates of a tool on a stream."""
    times = [change_time(name, run, before) for run in range(len(found.firsts))]
    delays = np.array(
        [[delay(first, time) for first in row] for row, time in zip(found.firsts.tolist(), times, strict=True)]
    )
    tool, (at_level, at_default) = found.tool, found.fresh.T
    false_default = None if tool.default is None else int((at_default < before).sum())
    quiet = at_level[at_level >= before]
    later = float((quiet < before + AFTER).mean()) if quiet.size else math.nan
    false = int((at_level < before).sum())
    return Result(found.level, false, false_default, len(at_level), later, delays[:, 0], delays[:, 1], tool.setting)


def exact(count: int, runs: int, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a rate."""
    tail = 0.5 * (1.0 - level)
    low = float(stats.beta.ppf(tail, count, runs - count + 1)) if count else 0.0
    high = float(stats.beta.ppf(1.0 - tail, count + 1, runs - count)) if count < runs else 1.0
    return low, high


def resampled(values: Floats) -> tuple[float, float]:
    """The bootstrap's 95 % interval of a mean; NaN if there is nothing."""
    if not len(values):
        return math.nan, math.nan
    which = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.quantile(values[which].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


class Verdict(NamedTuple):
    """One of ours against another tool: how much longer it takes, with the interval of the mean."""

    other: str
    low: float
    high: float
    ratio: float  # of the mean delays, ours over the other's

    @property
    def word(self) -> str:
        """First, level, close or behind."""
        if self.high < 0.0:
            return "first"
        return "level" if self.low <= 0.0 else "close" if self.ratio <= 1.0 + CLOSE else "behind"


def others(results: Results) -> list[str]:
    """All but ours and the limits, if they saw a change at all."""
    return [tool for tool in results if tool not in (*OURS, *LIMITS) and math.isfinite(results[tool].mean)]


def best_other(results: Results, *, steady: bool = False) -> str:
    """The one with the least mean delay; if ``steady``, of those whose false alarms do not become more frequent."""
    candidates = others(results)
    if steady:
        candidates = [tool for tool in candidates if is_steady(results[tool])] or candidates
    return min(candidates, key=lambda tool: results[tool].mean)


def is_steady(result: Result) -> bool:
    """Whether its false alarms do not become more frequent with time."""
    return result.later <= STEADY * RATE


def verdict(results: Results, tool: str, other: str | None = None, *, steady: bool = False) -> Verdict:
    """On the runs that both saw through to the change; against the best of the others if none is named."""
    other = other or best_other(results, steady=steady)
    runs = min(len(results[tool].delay), len(results[other].delay))
    longer = results[tool].delay[:runs] - results[other].delay[:runs]
    longer = longer[np.isfinite(longer)]
    return Verdict(other, *resampled(longer), results[tool].mean / results[other].mean)


def counted(words: Sequence[str]) -> list[int]:
    """How often each word was said."""
    return [words.count(word) for word in WORDS]


def share(words: Sequence[str]) -> float:
    """Of rows on which ours is first or level."""
    return (words.count("first") + words.count("level")) / len(words) if words else math.nan


def first_or_level(words: Sequence[str]) -> str:
    """The same as text."""
    if not words:
        return "-"
    return f"{words.count('first') + words.count('level')} of {len(words)} ({100.0 * share(words):.0f} %)"


def geometric_mean(ratios: Sequence[float]) -> float:
    """Of ratios of delays."""
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else math.nan
