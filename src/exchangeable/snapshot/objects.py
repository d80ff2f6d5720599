"""The objects: which there are, what is saved of each, and how they are built again.

A class that is exported by ``measures``, ``bets`` or ``alarms`` is in the table. Its constructor gets what was saved
under the names of its arguments; its other attributes must have the types, dtypes and shapes of a fresh one's. If
compiled loops find their way by these numbers, the class says in ``_check_state`` what they must satisfy. A class that
holds more than it needs in order to go on (spare room, what can be made again), or that grows, says in ``_saved`` what
is to be kept, and is built from that, checked, by ``_restored``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

from exchangeable import alarms, bets, measures
from exchangeable.late_labels import LateLabels
from exchangeable.martingale import Martingale
from exchangeable.measures.conditional import LabelCopies, LabelPools
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Path, Step, is_alarm
from exchangeable.pvalues import Precomputed, PValues
from exchangeable.validation import check_integer, check_stored, format_value

PARTS = "_"  # how the names of classes begin that only stand within others
MOST = 2**53  # the largest count
MISFITS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError)  # what nonsense does to a constructor


@cache
def classes() -> dict[str, Any]:
    """All classes whose objects a snapshot may hold, by name."""
    kinds: dict[str, Any] = {kind.__name__: kind for kind in (Precomputed, LateLabels, Martingale, Monitor, PValues)}
    for module in (alarms, bets, measures):
        prefix = module.__name__.rpartition(".")[2]
        kinds |= {f"{prefix}.{name}": getattr(module, name) for name in module.__all__}
    return kinds | {"_LabelCopies": LabelCopies, "_LabelPools": LabelPools, "_Path": Path, "_Step": Step}


@cache
def names() -> dict[type, str]:
    """Their names."""
    return {kind: name for name, kind in classes().items()}


def fields(thing: Any) -> dict[str, Any]:
    """What is saved of an object: what it says by ``_saved``, or else its attributes."""
    if hasattr(thing, "_saved"):
        return dict(thing._saved())
    return dict(thing._asdict()) if hasattr(thing, "_asdict") else _attributes(thing)


def built(kind: Any, held: dict[str, Any], where: str) -> Any:
    """The object of this class with these ``fields``, all of which are checked; ``where`` it stands is for messages."""
    try:
        if kind is Monitor:
            return _monitor(held)
        if issubclass(kind, tuple):
            return _record(kind, held)
        if hasattr(kind, "_restored"):
            _check_names(held, _parameters(kind._restored))
            return kind._restored(**held)
        return _constructed(kind, held)
    except ValueError as error:
        raise ValueError(f"{where}: {_line(error)}") from error
    except MISFITS as error:
        raise ValueError(
            f"{where} must be the state of {names()[kind]}, got what makes none: {_line(error)}"
        ) from error


def _line(error: Exception) -> str:
    return " ".join(str(error)[:300].split())


def _constructed(kind: Any, held: dict[str, Any]) -> Any:
    """Made by its constructor from what was given; what it has learnt must look like what a fresh one knows."""
    given = held.keys() & _parameters(kind)
    thing = kind(**{name: held[name] for name in given})
    counts = {name for name in held.keys() - given if type(getattr(kind, name, None)) is int}  # set when they are used
    _check_names(held, _attributes(thing), counts)
    for name in held.keys() - given:
        setattr(thing, name, _alike(name, getattr(thing, name), held[name]))
    if isinstance(thing, Bet):
        thing.log_density(0.5)  # the compiled loops check the numbers that they use as indices
    return thing


def _monitor(held: dict[str, Any]) -> Monitor:
    """Its parts have been checked, each by itself; the rest must look like what a fresh one holds."""
    on_alarm = "latch" if held.get("_fresh") is None else "restart"
    model = _idle_monitor(on_alarm)
    _check_names(held, _attributes(model))
    laws: dict[str, Callable[[Any], bool]] = {
        "pvalues": lambda part: isinstance(part, (Precomputed, PValues)),
        "martingale": lambda part: isinstance(part, Martingale),
        "alarm": is_alarm,
        "on_alarm": lambda part: bool(part == on_alarm),
        "_fresh": _is_fresh,
    }
    for name, law in laws.items():
        if not law(held[name]):
            raise ValueError(f"{name} must be that of a monitor with {on_alarm!r}, got {format_value(held[name])}")
    learnt = {name: _alike(name, getattr(model, name), held[name]) for name in held if name not in laws}
    monitor = copy.copy(model)
    vars(monitor).update({**learnt, **{name: held[name] for name in laws}})
    monitor._check_state()
    return monitor


@cache
def _idle_monitor(on_alarm: str) -> Monitor:
    return Monitor(Precomputed(), bets.Idle(), on_alarm=on_alarm)


def _is_fresh(parts: Any) -> bool:
    """Whether a monitor can begin again with these."""
    if parts is None:
        return True
    if not isinstance(parts, tuple) or len(parts) != 3 or not isinstance(parts[0], (Precomputed, PValues)):
        return False
    seen = getattr(getattr(parts[0], "measure", None), "n", 0) or getattr(parts[2], "n", 0)
    return isinstance(parts[1], Bet) and is_alarm(parts[2]) and not seen


def _record(kind: Any, held: dict[str, Any]) -> Any:
    _check_names(held, kind._fields)
    model: Any = Step(1, 1.0, 0.0, False)
    if kind is Path:
        count = len(check_stored("n", held["n"], np.int64, None))
        integers, floats = np.zeros(count, np.int64), np.zeros(count)
        model = Path(integers, floats, floats, np.zeros(count, np.bool_), integers, integers, guarantee="")
    return kind(**{name: _alike(name, getattr(model, name), held[name]) for name in kind._fields})


# ------------------------------------------------------------------ attributes


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(function).parameters)


def _attributes(thing: Any) -> dict[str, Any]:
    """All that it holds, in ``__dict__`` and in ``__slots__``."""
    slots = [name for kind in type(thing).__mro__ for name in _several(vars(kind).get("__slots__", ()))]
    held = {name: getattr(thing, name) for name in slots if name[:2] != "__" and hasattr(thing, name)}
    return held | getattr(thing, "__dict__", {})


def _several(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _check_names(held: Mapping[str, Any], required: Iterable[str], allowed: Iterable[str] = ()) -> None:
    must = set(required)
    if not must <= held.keys() <= must | set(allowed):
        law = f"it must have {', '.join(sorted(must)) or 'no attributes'}"
        raise ValueError(f"{law}, got {', '.join(sorted(held)) or 'none'}")


def _alike(name: str, model: Any, value: Any) -> Any:
    """Admit a value that may take the place of the model: of its kind, dtype and shape, and not NaN."""
    if isinstance(model, np.ndarray):
        return check_stored(name, value, model.dtype.type, *model.shape)
    if type(model) is int:
        return check_integer(name, value, 0, MOST)
    lawful = type(value) is type(model)
    if type(model) is float:
        lawful = lawful and not math.isnan(value)
    elif model is None:
        lawful = value is None or type(value) is Step or (type(value) is int and 0 <= value <= MOST)
    elif type(model) in (list, tuple):
        lawful = lawful and len(value) == len(model)
        for i in range(len(model) if lawful else 0):
            _alike(f"{name}[{i}]", model[i], value[i])
    elif type(model) in names() and lawful:
        for part, held in _attributes(model).items():
            _alike(f"{name}.{part}", held, getattr(value, part))
    if not lawful:
        raise ValueError(f"{name} must be like {format_value(model)}, got {format_value(value)}")
    return value
