"""A bet, or an alarm, played for many streams: its state is a row of numbers for each of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exchangeable import alarms, bets, native
from exchangeable.bets.learner import check_counts
from exchangeable.bets.power import check_mixture
from exchangeable.protocols import Bet, Floats, Integers
from exchangeable.snapshot import objects

Loop = tuple[Callable[..., None], tuple[Any, ...]]  # a compiled loop over streams, and its parameters


class Player:
    """Plays one part of a recipe for many streams, each with its own state.

    What a part learns is found in its arrays, so that any bet or alarm of exchangeable's can be played: one worker,
    whose arrays are views of one buffer, takes the streams one after the other. What learns nothing is asked once for
    all. For those of ``LOOPS`` one compiled loop over all streams calls the same recursion.

    >>> player = Player(bets.SimpleJumper())
    >>> states = np.tile(player.fresh, (2, 1))
    >>> player.play(states, np.array([0, 1]), np.array([1, 3]), np.array([0.5, 0.01, 0.01])).round(3)
    array([0.   , 0.   , 0.147])
    """

    def __init__(self, part: Any) -> None:
        self._part = copy.deepcopy(part)
        self._bets = isinstance(part, Bet)
        arrays = _arrays(self._part)
        self.fresh: Floats = np.concatenate([np.empty(0), *(array.ravel() for array in arrays)])
        self._buffer, ends = self.fresh.copy(), np.cumsum([array.size for array in arrays], dtype=np.int64)
        parts = iter(np.split(self._buffer, ends[:-1]))
        _rebuilt(self._part, lambda array: next(parts).reshape(array.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles get a buffer of their own: the arrays of a copy would not be views of one."""
        self._buffer[:] = self.fresh
        return Player, (copy.deepcopy(self._part),)

    def play(self, states: Floats, lo: Integers, hi: Integers, values: Floats) -> NDArray[Any]:
        """What the part says to ``values[lo[t]:hi[t]]`` in state t, which learns: log densities, or alarms."""
        if not len(self.fresh):
            return np.asarray(self._part.extend(values))
        if type(self._part) not in LOOPS:
            return self._one_by_one(states, lo, hi, values)
        loop, parameters = LOOPS[type(self._part)](self._part)
        out = np.zeros(len(values))
        loop(*parameters, states, lo, hi, values, out)
        return out if self._bets else np.asarray(out >= self._part._level())

    def _one_by_one(self, states: Floats, lo: Integers, hi: Integers, values: Floats) -> NDArray[Any]:
        out: NDArray[Any] = np.zeros(len(values), np.float64 if self._bets else np.bool_)
        for t in np.flatnonzero(lo < hi).tolist():
            mine = slice(lo[t], hi[t])
            self._buffer[:] = states[t]
            out[mine] = self._part.extend(values[mine])
            states[t] = self._buffer
        return out

    @property
    def quick(self) -> bool:
        """Whether states are checked all at once, in no time."""
        return not len(self.fresh) or type(self._part) in CHECKS

    def check(self, states: Floats) -> None:
        """Admit states that were stored, by the laws that hold for a snapshot of the part."""
        if np.isnan(states).any():
            raise ValueError("a state must hold numbers, got NaN")
        with np.errstate(all="ignore"):  # nonsense is refused
            if type(self._part) in CHECKS:
                CHECKS[type(self._part)](states)
                return
            for state in states if len(self.fresh) else ():
                self._buffer[:] = state
                _rebuilt(self._part, lambda array: array, _check_one)


def _arrays(thing: Any) -> list[Floats]:
    """All its arrays, in the order of ``_rebuilt``."""
    found: list[Floats] = []

    def note(array: Floats) -> Floats:
        found.append(array)
        return array

    _rebuilt(thing, note)
    return found


def _rebuilt(thing: Any, view: Callable[[Floats], Any], seen: Callable[[Any], None] | None = None) -> Any:
    """The same with other arrays, in an order that is always the same; all its parts are ``seen``."""
    if isinstance(thing, np.ndarray):
        return view(thing)
    if type(thing) in (list, tuple):
        return type(thing)([_rebuilt(part, view, seen) for part in thing])
    if type(thing) in objects.names():
        for name in sorted(vars(thing)):
            setattr(thing, name, _rebuilt(getattr(thing, name), view, seen))
        if seen is not None:
            seen(thing)
    return thing


def _check_one(thing: Any) -> None:
    if hasattr(thing, "_check_state"):
        thing._check_state()
    if isinstance(thing, alarms.Difference):
        objects._check_ring(*thing._state)


LOOPS: dict[type, Callable[[Any], Loop]] = {
    bets.CompositeJumper: lambda bet: (native.keyed_composite_jumper, ()),
    bets.GammaMixture: lambda bet: (native.keyed_gamma_mixture, (bet.shape, bet.rate)),
    bets.Histogram: lambda bet: (native.keyed_histogram, ()),
    bets.SimpleJumper: lambda bet: (native.keyed_simple_jumper, (bet.rate,)),
    bets.SimpleMixture: lambda bet: (native.keyed_simple_mixture, ()),
    bets.SleepyJumper: lambda bet: (native.keyed_sleepy_jumper, (bet.waking, bet.jumping)),
    alarms.Cusum: lambda alarm: (native.keyed_cusum, ()),
    alarms.ShiryaevRoberts: lambda alarm: (native.keyed_shiryaev_roberts, ()),
}


# ------------------------------------------------------------------ states of many streams, checked at once


def _check_shares(shares: Floats) -> None:
    """Shares of a capital, along the last axis."""
    totals = shares.sum(axis=-1)
    bad = totals[~((shares >= 0.0).all(axis=-1) & (np.abs(totals - 1.0) <= 1e-6))]
    if bad.size:
        raise ValueError(f"shares must be numbers of at least 0 that sum to 1, got a sum of {bad.flat[0]:g}")


def _check_composite(states: Floats) -> None:
    jumpers = native.COMPOSITE_JUMPERS
    _check_shares(np.exp(states[:, :jumpers]))
    _check_shares(states[:, jumpers:].reshape(len(states), jumpers, 3))


CHECKS: dict[type, Callable[[Floats], None]] = {
    bets.CompositeJumper: _check_composite,
    bets.GammaMixture: check_mixture,
    bets.Histogram: lambda states: check_counts("counts", states),
    bets.SimpleJumper: _check_shares,
    bets.SimpleMixture: check_mixture,
    bets.SleepyJumper: _check_shares,
    alarms.Cusum: lambda states: None,
    alarms.ShiryaevRoberts: lambda states: None,
}
