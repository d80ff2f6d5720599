"""Where the streams stand after their latest events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats, Integers


class Status(NamedTuple):
    """The status of one key."""

    n: int  # events that were bet on
    order: int  # the latest sequence number
    log_value: float  # of the current test
    log_max: float  # the highest of the test that the latest step belongs to
    alarm_at: int | None
    changepoint: int | None
    test: int  # the number of the current test, from 1
    full: bool  # whether the test has ended because the pool is full


class Statuses(NamedTuple):
    """The status of all keys as columns; ``alarm_at`` and ``changepoint`` are -1 without an alarm."""

    n: Integers
    order: Integers
    log_value: Floats
    log_max: Floats
    alarm_at: Integers
    changepoint: Integers
    test: Integers
    full: NDArray[np.bool_]


class Standings(NamedTuple):
    """Where streams stand, as columns: ``pandas.DataFrame(standings._asdict())`` is a frame, and so in Polars.

    ``joined`` is the position of the key in the order of joining, from 1, for ``fleet.e_bh(.., joined=..)``; a position
    is never used again. ``alarm`` says whether there has been an alarm, the latest at step ``alarm_at`` after a change
    near ``changepoint``; both are -1 without one.
    """

    key: NDArray[Any]
    joined: Integers
    n: Integers  # events that were bet on
    order: Integers  # the latest sequence number
    log10_martingale: Floats  # of the current test
    log10_max: Floats  # the highest of the test that the latest step belongs to
    alarm: NDArray[np.bool_]
    alarm_at: Integers
    changepoint: Integers
    test: Integers  # the number of the current test, from 1
    full: NDArray[np.bool_]  # whether the test has ended because the pool is full
    version: Integers  # ``monitors.version`` after the last call with events of this key


def statuses(integers: Integers, reals: Floats) -> Statuses:
    """Return the status of each row."""
    return Statuses(
        n=integers[:, native.TRACK_N].copy(),
        order=integers[:, native.KEYED_LAST].copy(),
        log_value=reals[:, native.KEYED_SUM] + reals[:, native.KEYED_CARRY],
        log_max=reals[:, native.TRACK_HIGH].copy(),
        alarm_at=integers[:, native.TRACK_ALARM].copy(),
        changepoint=integers[:, native.TRACK_CHANGE].copy(),
        test=integers[:, native.TRACK_TEST].copy(),
        full=integers[:, native.KEYED_FLAGS] & native.KEYED_FLAG_FULL != 0,
    )


def standings(keys: NDArray[Any], integers: Integers, reals: Floats, version: Integers) -> Standings:
    """Return the standing of each row."""
    n, order, log_value, log_max, alarm_at, changepoint, test, full = statuses(integers, reals)
    alarm, joined = alarm_at >= 0, integers[:, native.KEYED_JOINED].copy()
    evidence = log_value / LN10, log_max / LN10
    changepoint[~alarm] = -1
    return Standings(keys, joined, n, order, *evidence, alarm, alarm_at, changepoint, test, full, version)
