"""The three roles (Measure, Bet, Alarm) and the records that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from inspect import signature
from types import MethodType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Rank(NamedTuple):
    """Where the newest score stands among all ``n`` scores, itself included (so ``equal >= 1``)."""

    greater: int
    equal: int
    n: int


class Ranks(NamedTuple):
    """Many ranks as columns."""

    greater: Integers
    equal: Integers
    n: Integers


class Step(NamedTuple):
    """One example seen: its number (from 1), p-value, log capital, and whether the alarm sounds."""

    n: int
    p: float
    log_value: float
    alarm: bool


class Path(NamedTuple):
    """Many steps as columns, and what the alarm promises.

    ``lowest`` is the number of examples after which the capital, up to the step before, stood lowest since the start or
    restart: ``argmin_{i<n} S_i``, the last if there are several. Once an alarm has latched it stays. ``test`` is the
    number of the test that a step belongs to: 1, and one more after each restart.
    """

    n: Integers
    p: Floats
    log_value: Floats
    alarm: NDArray[np.bool_]
    lowest: Integers
    test: Integers
    guarantee: str

    def changepoint(self) -> int | None:
        """Where the change began: the number of examples before it, judged at the first alarm; None without an alarm.

        So ``X[changepoint:]`` came after the change. With restarts, ``lowest[alarm]`` gives it for every alarm.
        """
        return int(self.lowest[self.alarm.argmax()]) if self.alarm.any() else None

    @staticmethod
    def join(parts: Sequence[Path]) -> Path:
        """One path from consecutive ones (at least one)."""
        return Path(
            n=np.concatenate([part.n for part in parts]),
            p=np.concatenate([part.p for part in parts]),
            log_value=np.concatenate([part.log_value for part in parts]),
            alarm=np.concatenate([part.alarm for part in parts]),
            lowest=np.concatenate([part.lowest for part in parts]),
            test=np.concatenate([part.test for part in parts]),
            guarantee=parts[-1].guarantee,
        )

    def first(self, steps: int) -> Path:
        """The first so many steps."""
        n, p, log_value, alarm, lowest, test, guarantee = self
        return Path(n[:steps], p[:steps], log_value[:steps], alarm[:steps], lowest[:steps], test[:steps], guarantee)


@runtime_checkable
class Measure(Protocol):
    """Turns examples into ranks. The rank of the newest must not depend on the order of the earlier ones."""

    def update(self, x: Any, y: Any = None) -> Rank:
        """Take one example and rank its score among all scores so far."""
        ...

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Take many examples, the same as one by one."""
        ...


@runtime_checkable
class Bet(Protocol):
    """A density on (0, 1] that may depend on the past p-values and on nothing else."""

    def log_density(self, p: float) -> float:
        """Log of the betting function at p; changes nothing."""
        ...

    def update(self, p: float) -> None:
        """Learn p."""
        ...

    def extend(self, p: ArrayLike) -> Floats:
        """Log f_i(p_i), each bet placed before its p is learnt."""
        ...


@runtime_checkable
class Alarm(Protocol):
    """Reads the log martingale, one value after the other."""

    def update(self, log_value: float) -> bool:
        """Take the next log value; does the alarm sound?"""
        ...


METHODS: dict[Any, tuple[str, ...]] = {
    Measure: ("update", "extend"),
    Bet: ("log_density", "update", "extend"),
    Alarm: ("update",),
}


def has_role(thing: object, role: Any) -> bool:
    """Whether it is an object with the methods of `Measure`, `Bet` or `Alarm`.

    >>> from exchangeable import bets
    >>> has_role(bets.Idle(), Bet), has_role(bets.Idle, Bet)
    (True, False)
    """
    return not isinstance(thing, type) and all(callable(getattr(thing, name, None)) for name in METHODS[role])


def is_measure(thing: object) -> bool:
    """Whether it is a measure: bets and alarms too have ``update`` and ``extend``, but take no labels.

    >>> is_measure("a measure")
    False
    """
    measure = has_role(thing, Measure) and not has_role(thing, Bet)
    return measure and _takes(thing.update, 2)  # type: ignore[attr-defined]


def is_alarm(thing: object) -> bool:
    """Whether it is an alarm, and not a bet or a measure.

    >>> is_alarm("an alarm")
    False
    """
    alarm = has_role(thing, Alarm) and not has_role(thing, Bet)
    return alarm and _takes(thing.update, 1) and not _takes(thing.update, 2)  # type: ignore[attr-defined]


def _takes(method: Callable[..., object], arguments: int) -> bool:
    """Whether a method can be called with so many arguments."""
    if isinstance(method, MethodType):  # known for the class, once it has been found out
        return _accepts(method.__func__, arguments + 1)
    return _accepts.__wrapped__(method, arguments)


@lru_cache(maxsize=1024)
def _accepts(function: Callable[..., object], arguments: int) -> bool:
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True
