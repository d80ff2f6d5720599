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
    """The rank of the newest score among all ``n`` scores, itself included (so ``equal >= 1``)."""

    greater: int
    equal: int
    n: int


class Ranks(NamedTuple):
    """Many ranks as columns."""

    greater: Integers
    equal: Integers
    n: Integers


class Step(NamedTuple):
    """One example seen: its number (from 1), p-value, log capital, and whether the alarm is raised."""

    n: int
    p: float
    log_value: float
    alarm: bool


class Path(NamedTuple):
    """Many steps as columns, and the guarantee of the alarm.

    ``lowest`` is the number of examples after which the capital, up to the step before, was lowest since the start or
    restart: ``argmin_{i<n} S_i``, the last if there are several. It does not change once an alarm has latched. ``test``
    is the number of the test that a step belongs to: 1, and one more after each restart.
    """

    n: Integers
    p: Floats
    log_value: Floats
    alarm: NDArray[np.bool_]
    lowest: Integers
    test: Integers
    guarantee: str

    def changepoint(self) -> int | None:
        """Return the number of examples before the change, estimated at the first alarm; None without an alarm.

        So ``X[changepoint:]`` came after the change. With restarts, ``lowest[alarm]`` holds it for every alarm.
        """
        return int(self.lowest[self.alarm.argmax()]) if self.alarm.any() else None

    @staticmethod
    def join(parts: Sequence[Path]) -> Path:
        """Concatenate consecutive paths (at least one)."""
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
        """Return the path of the first ``steps`` steps."""
        n, p, log_value, alarm, lowest, test, guarantee = self
        return Path(n[:steps], p[:steps], log_value[:steps], alarm[:steps], lowest[:steps], test[:steps], guarantee)


@runtime_checkable
class Measure(Protocol):
    """Turns examples into ranks. The rank of the newest must not depend on the order of the earlier ones."""

    def update(self, x: Any, y: Any = None) -> Rank:
        """Add one example and rank its score among all scores so far."""
        ...

    def extend(self, X: Any, y: Any = None) -> Ranks:
        """Add many examples: the same ranks as one by one."""
        ...


@runtime_checkable
class Bet(Protocol):
    """A density on (0, 1] that may depend on the past p-values and on nothing else."""

    def log_density(self, p: float) -> float:
        """Return the log of the betting function at p, without learning p."""
        ...

    def update(self, p: float) -> None:
        """Learn p."""
        ...

    def extend(self, p: ArrayLike) -> Floats:
        """Return log f_i(p_i), each bet placed before its p is learnt."""
        ...


@runtime_checkable
class Alarm(Protocol):
    """Reads the log martingale, one value after the other."""

    def update(self, log_value: float) -> bool:
        """Read the next log value; return whether the alarm is raised."""
        ...


METHODS: dict[Any, tuple[str, ...]] = {
    Measure: ("update", "extend"),
    Bet: ("log_density", "update", "extend"),
    Alarm: ("update",),
}


def has_role(thing: object, role: Any) -> bool:
    """Return whether an object has the methods of `Measure`, `Bet` or `Alarm`.

    >>> from exchangeable import bets
    >>> has_role(bets.Idle(), Bet), has_role(bets.Idle, Bet)
    (True, False)
    """
    return not isinstance(thing, type) and all(callable(getattr(thing, name, None)) for name in METHODS[role])


def is_measure(thing: object) -> bool:
    """Return whether an object is a measure. Bets and alarms have ``update`` and ``extend`` too, but without labels.

    >>> is_measure("a measure")
    False
    """
    measure = has_role(thing, Measure) and not has_role(thing, Bet)
    return measure and _accepts_arguments(thing.update, 2)  # type: ignore[attr-defined]


def is_alarm(thing: object) -> bool:
    """Return whether an object is an alarm, and not a bet or a measure.

    >>> is_alarm("an alarm")
    False
    """
    alarm = has_role(thing, Alarm) and not has_role(thing, Bet)
    return alarm and _accepts_arguments(thing.update, 1) and not _accepts_arguments(thing.update, 2)  # type: ignore[attr-defined]


def _accepts_arguments(method: Callable[..., object], arguments: int) -> bool:
    """Return whether a method can be called with this many arguments."""
    if isinstance(method, MethodType):  # cached for its class
        return _can_bind(method.__func__, arguments + 1)
    return _can_bind.__wrapped__(method, arguments)


@lru_cache(maxsize=1024)
def _can_bind(function: Callable[..., object], arguments: int) -> bool:
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True
