"""What a detector of a change in a stream of numbers is: all have one way to be calibrated and to be called.

A detector has one knob, its level: the higher, the rarer its alarms. Runs are the rows of a matrix. ``quiet(X, seeds)``
keeps of runs without a change what calibration needs; ``firsts(X, seeds, levels)`` are the steps (from 0) of the first
alarm of each run at each level, or the number of steps. The detectors stand in the modules ``own_detectors``,
``conformal_detectors``, ``river_paths``, ``river_binary``, ``frouros_paths``, ``glr`` and ``limits``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

NUMBERS, UNIT, BINARY, STARS = "numbers", "in [0, 1]", "0 or 1", "1 to 5"  # kinds of data
SPECIAL = {NUMBERS: (NUMBERS, UNIT, BINARY, STARS), UNIT: (UNIT, BINARY), BINARY: (BINARY,), STARS: (STARS,)}


class Detector(ABC):
    """One that watches numbers; ``default`` is its level as it comes, None if it has none; ``needs`` a kind of data."""

    def __init__(self, name: str, default: float | None, setting: str, needs: str = NUMBERS) -> None:
        self.name, self.default, self.setting, self.needs = name, default, setting, needs

    def applies(self, kind: str) -> bool:
        """Whether it can watch data of this kind."""
        return kind in SPECIAL[self.needs]

    @abstractmethod
    def quiet(self, X: Floats, seeds: Sequence[int]) -> NDArray[Any]:
        """What is kept of runs without a change, one row each."""

    @abstractmethod
    def sounded(self, kept: NDArray[Any], level: float) -> Bools:
        """Which of these runs have an alarm at this level."""

    @abstractmethod
    def levels(self, kept: NDArray[Any]) -> Floats:
        """The levels between which calibration chooses."""

    @abstractmethod
    def firsts(self, X: Floats, seeds: Sequence[int], levels: Sequence[float]) -> Integers:
        """The first alarm of each run (row) at each level (column)."""

    def bracket(self, kept: NDArray[Any], rate: float) -> tuple[float, float] | None:
        """Two levels to search again between, if there are too few to meet the rate."""
        return None

    def between(self, bounds: tuple[float, ...] | None) -> Detector:
        """The same with its levels between these two, if there are any."""
        return self

    def calibrated(self, kept: NDArray[Any], rate: float) -> float:
        """The level at which the share of runs with an alarm is nearest to the rate; infinite: no alarm at all."""
        levels = np.append(self.levels(kept), math.inf)
        shares = np.array([self.sounded(kept, level).mean() for level in levels[:-1]] + [0.0])
        return float(levels[np.abs(shares - rate).argmin()])


class Path(Detector):
    """One that compares a statistic with a threshold: ``statistic(x, seed)`` after each step of one run."""

    def __init__(
        self,
        name: str,
        default: float | None,
        setting: str,
        statistic: Callable[[Floats, int], Floats],
        needs: str = NUMBERS,
    ) -> None:
        super().__init__(name, default, setting, needs)
        self.statistic = statistic

    def paths(self, X: Floats, seeds: Sequence[int]) -> Floats:
        """The statistics of all runs."""
        with np.errstate(divide="ignore", invalid="ignore"):  # 0/0 is no evidence, x/0 is all
            return np.array([self.statistic(x, seed) for x, seed in zip(X, seeds, strict=True)])

    def quiet(self, X: Floats, seeds: Sequence[int]) -> Floats:
        """The maximum of the statistic; NaN is no evidence."""
        return np.asarray(np.fmax.reduce(self.paths(X, seeds), axis=1, initial=-np.inf))

    def sounded(self, kept: NDArray[Any], level: float) -> Bools:
        """Those whose statistic has been there; none at an infinite level."""
        return np.asarray((kept >= level) & np.isfinite(level))

    def levels(self, kept: NDArray[Any]) -> Floats:
        """The maxima themselves; an infinite one cannot be a threshold."""
        return np.unique(kept[np.isfinite(kept)])

    def firsts(self, X: Floats, seeds: Sequence[int], levels: Sequence[float]) -> Integers:
        """The first time that the statistic is there."""
        return np.array([[crossing(path, level) for level in levels] for path in self.paths(X, seeds)])


class Together(Path):
    """One whose statistic is computed for all runs at once, because a loop over steps costs the same for many."""

    def __init__(self, name: str, default: float | None, setting: str, together: Callable[[Floats], Floats]) -> None:
        super().__init__(name, default, setting, lambda x, seed: together(x[np.newaxis])[0])
        self.together = together

    def paths(self, X: Floats, seeds: Sequence[int]) -> Floats:
        """The statistics of all runs."""
        return self.together(X)


class Scan(Detector):
    """One whose state depends on its level, so it is tried at each level of a grid, and then of a finer one.

    ``alarms(X, levels)`` are the first alarms. Nothing is assumed of how the alarms at different levels are nested.
    """

    def __init__(
        self,
        name: str,
        default: float,
        setting: str,
        alarms: Callable[[Floats, Floats], Integers],
        needs: str = UNIT,
        bounds: tuple[float, ...] = (0.02, 60.0),
    ) -> None:
        super().__init__(name, default, setting, needs)
        self.alarms, self.grid = alarms, np.geomspace(bounds[0], bounds[1], 32)

    def bracket(self, kept: NDArray[Any], rate: float) -> tuple[float, float] | None:
        """The last level with at least this rate, and the next one."""
        last = np.flatnonzero(np.append(True, kept.mean(axis=0) >= rate))[-1]
        low, high = self.grid[max(0, last - 1)], self.grid[min(last, len(self.grid) - 1)]
        return (float(low), float(high)) if low < high else None

    def between(self, bounds: tuple[float, ...] | None) -> Detector:
        """The same with a grid between these two levels."""
        if bounds is None or self.default is None:
            return self
        return Scan(self.name, self.default, self.setting, self.alarms, self.needs, bounds)

    def quiet(self, X: Floats, seeds: Sequence[int]) -> Bools:
        """Whether there is an alarm, by level."""
        return np.asarray(self.alarms(X, self.grid) < X.shape[1])

    def sounded(self, kept: NDArray[Any], level: float) -> Bools:
        """The column of the level, which must be on the grid; none at an infinite level."""
        return np.asarray(kept[:, np.flatnonzero(self.grid == level)[0]]) if math.isfinite(level) else kept[:, 0] < 0

    def levels(self, kept: NDArray[Any]) -> Floats:
        """The grid."""
        return self.grid

    def firsts(self, X: Floats, seeds: Sequence[int], levels: Sequence[float]) -> Integers:
        """Its own alarms; none at an infinite level."""
        first = self.alarms(X, np.minimum(levels, 1e300))
        return np.where(np.isinf(levels), X.shape[1], first)


def crossing(statistic: Floats, level: float) -> int:
    """The first step with ``statistic >= level``, or the number of steps; NaN is below everything."""
    above = (statistic >= level) & math.isfinite(level)
    return int(above.argmax()) if above.any() else len(above)


def from_step(n: int, statistic: Floats) -> Floats:
    """The statistic from the n-th step on, where a detector begins to judge; minus infinity before."""
    return np.where(np.arange(1, len(statistic) + 1) >= n, statistic, -np.inf)
