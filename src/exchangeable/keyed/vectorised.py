"""One bet or alarm for many streams: its state is a row of numbers for each stream."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import alarms, bets, native
from exchangeable.bets.sentinel import sentinel_tables
from exchangeable.protocols import Bet, Floats, Integers
from exchangeable.snapshot import objects

Loop = tuple[Callable[..., None], tuple[Any, ...]]  # a compiled loop over streams, and its parameters


class Vectorised:
    """A bet or an alarm that many streams use, each with its own state.

    The state of a part is the content of its arrays, so any bet or alarm of exchangeable works: one object, whose
    arrays are views of one buffer, processes the streams one after the other. A part without state processes all of
    them at once. For the classes in ``LOOPS``, one compiled loop over all streams calls the same recursion.

    >>> bet = Vectorised(bets.SimpleJumper())
    >>> states = np.tile(bet.fresh, (2, 1))
    >>> bet.extend(states, np.array([0, 1]), np.array([1, 3]), np.array([0.5, 0.01, 0.01])).round(3)
    array([0.   , 0.   , 0.147])
    """

    def __init__(self, part: Any) -> None:
        self._part = copy.deepcopy(part)
        self._is_bet = isinstance(part, Bet)
        arrays = _arrays(self._part)
        self.fresh: Floats = np.concatenate([np.empty(0), *(array.ravel() for array in arrays)])
        self._buffer, ends = self.fresh.copy(), np.cumsum([array.size for array in arrays], dtype=np.int64)
        parts = iter(np.split(self._buffer, ends[:-1]))
        _replace_arrays(self._part, lambda array: next(parts).reshape(array.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        """Give copies and pickles their own buffer: the arrays of a plain copy would not be views of one."""
        self._buffer[:] = self.fresh
        return Vectorised, (copy.deepcopy(self._part),)

    def extend(self, states: Floats, lo: Integers, hi: Integers, values: Floats) -> NDArray[Any]:
        """Let stream t consume ``values[lo[t]:hi[t]]``; return all log densities, or where the alarm is raised."""
        if not len(self.fresh):
            return np.asarray(self._part.extend(values))
        if type(self._part) not in LOOPS:
            return self._extend_one_by_one(states, lo, hi, values)
        loop, parameters = LOOPS[type(self._part)](self._part)
        out = np.zeros(len(values))
        loop(*parameters, states, lo, hi, values, out)
        return out if self._is_bet else np.asarray(out >= self._part.log_threshold)

    def _extend_one_by_one(self, states: Floats, lo: Integers, hi: Integers, values: Floats) -> Floats:
        out = np.zeros(len(values))
        for t in np.flatnonzero(lo < hi).tolist():
            part = slice(lo[t], hi[t])
            self._buffer[:] = states[t]
            out[part] = self._part.extend(values[part])
            states[t] = self._buffer
        return out

    @property
    def checks_are_fast(self) -> bool:
        """Whether all states are checked at once, and not one by one."""
        return not len(self.fresh) or type(self._part) in LOOPS

    def check(self, states: Floats) -> None:
        """Check stored states: they must hold numbers, and indices must be in range."""
        if np.isnan(states).any():
            raise ValueError("a state must hold numbers, got NaN")
        for state in () if self.checks_are_fast else states:
            self._buffer[:] = state
            objects.check_state(self._part)


def _arrays(thing: Any) -> list[Floats]:
    """Return all arrays of an object, in the order of ``_replace_arrays``."""
    arrays: list[Floats] = []

    def collect(array: Floats) -> Floats:
        arrays.append(array)
        return array

    _replace_arrays(thing, collect)
    return arrays


def _replace_arrays(thing: Any, replace: Callable[[Floats], Any]) -> Any:
    """Replace all arrays of an object and its parts, always in the same order."""
    if isinstance(thing, np.ndarray):
        return replace(thing)
    if type(thing) in (list, tuple):
        return type(thing)([_replace_arrays(part, replace) for part in thing])
    if type(thing) in objects.names():
        for name in sorted(vars(thing)):
            setattr(thing, name, _replace_arrays(getattr(thing, name), replace))
    return thing


LOOPS: dict[type, Callable[[Any], Loop]] = {
    bets.CompositeJumper: lambda bet: (native.keyed_composite_jumper, ()),
    bets.GammaMixture: lambda bet: (native.keyed_gamma_mixture, (bet.shape, bet.rate)),
    bets.Histogram: lambda bet: (native.keyed_histogram, ()),
    bets.Sentinel: lambda bet: (native.keyed_sentinel, (sentinel_tables(),)),
    bets.SimpleJumper: lambda bet: (native.keyed_simple_jumper, (bet.rate,)),
    bets.SimpleMixture: lambda bet: (native.keyed_simple_mixture, ()),
    bets.SleeperStayer: lambda bet: (native.keyed_sleeper_stayer, (bet.waking, bet.grid)),
    bets.SleepyJumper: lambda bet: (native.keyed_sleepy_jumper, (bet.waking, bet.jumping)),
    alarms.Cusum: lambda alarm: (native.keyed_cusum, ()),
    alarms.ShiryaevRoberts: lambda alarm: (native.keyed_shiryaev_roberts, ()),
}
