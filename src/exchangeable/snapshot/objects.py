"""The classes whose objects a snapshot may hold, the fields that are saved, and how objects are rebuilt.

All classes that ``measures``, ``bets`` and ``alarms`` export can be saved. On loading, the constructor gets the saved
fields that are its arguments. The other fields must have the types, dtypes and shapes that a new object has. Numbers
that compiled loops use as indices are checked by these loops. A class that grows, or holds more than it needs to
continue, defines ``_get_state``, which returns the fields to save, and the class method ``_from_state``, which checks
them and builds the object.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np

from exchangeable import alarms, bets, measures
from exchangeable.evidence import EvidenceMonitor, EvidenceStep
from exchangeable.history import History
from exchangeable.late_labels import LateLabels
from exchangeable.martingale import Martingale
from exchangeable.measures.conditional import LabelCopies, LabelPools
from exchangeable.monitor import Monitor
from exchangeable.protocols import Bet, Step, is_alarm
from exchangeable.pvalues import Precomputed, PValues
from exchangeable.rate import RateMonitor
from exchangeable.risk import Risk
from exchangeable.validation import check_integer, check_stored, format_value

INNER = "_"  # the names of classes that only occur within others start with it
MAX_COUNT = 2**53
STEPS = (EvidenceStep, Step)
ERRORS = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError)  # of constructors with invalid fields


@cache
def classes() -> dict[str, Any]:
    """Return all classes whose objects a snapshot may hold, by name."""
    kinds: dict[str, Any] = {
        kind.__name__: kind for kind in (Precomputed, LateLabels, Martingale, Monitor, PValues, RateMonitor, Risk)
    }
    for module in (alarms, bets, measures):
        prefix = module.__name__.rpartition(".")[2]
        kinds |= {f"{prefix}.{name}": getattr(module, name) for name in module.__all__}
    return kinds | {f"{INNER}{kind.__name__}": kind for kind in (History, LabelCopies, LabelPools, *STEPS)}


@cache
def names() -> dict[type, str]:
    """Return the name of each of these classes."""
    return {kind: name for name, kind in classes().items()}


LATER = {"TableMonitor": "exchangeable.table_monitor"}  # classes built on top of this package, imported when needed


def find_class(name: str) -> Any:
    """Return the class with this name; None if there is none."""
    return getattr(import_module(LATER[name]), name) if name in LATER else classes().get(name)


def class_name(kind: type) -> str | None:
    """Return the name of a class whose objects can be saved; None for any other."""
    if kind.__module__.startswith(LATER.get(kind.__name__, "?")):
        return kind.__name__
    return names().get(kind)


def saved_fields(thing: Any) -> dict[str, Any]:
    """Return the fields of an object to save: the result of ``_get_state`` if it has one, otherwise its attributes."""
    if hasattr(thing, "_get_state"):
        return dict(thing._get_state())
    return dict(thing._asdict()) if isinstance(thing, STEPS) else dict(vars(thing))


def build(kind: Any, fields: dict[str, Any], where: str) -> Any:
    """Check the fields of an object, and build it; messages start with ``where``."""
    try:
        if kind is Monitor:
            return _build_monitor(fields)
        if kind in STEPS:
            return _build_step(kind, fields)
        thing = _from_state(kind, fields) if hasattr(kind, "_from_state") else _construct(kind, fields)
        if isinstance(thing, Bet):
            check_state(thing)
        if isinstance(thing, EvidenceMonitor):
            thing._check_state()
        return thing
    except ValueError as error:
        raise ValueError(f"{where}: {_one_line(error)}") from error
    except ERRORS as error:
        message = f"{where} must be the state of {class_name(kind)}, got invalid fields: {_one_line(error)}"
        raise ValueError(message) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error)[:300].split())


def _construct(kind: Any, fields: dict[str, Any]) -> Any:
    """Call the constructor with its arguments, and set the other fields."""
    arguments = fields.keys() & _parameters(kind)
    thing = kind(**{name: fields[name] for name in arguments})
    rest = fields.keys() - arguments
    counts = {name for name in rest if type(getattr(kind, name, None)) is int}  # attributes of the class until used
    _check_names(fields, vars(thing), counts)
    for name in rest:
        setattr(thing, name, _check_like(name, getattr(thing, name), fields[name]))
    return thing


def _from_state(kind: Any, fields: dict[str, Any]) -> Any:
    _check_names(fields, _parameters(kind._from_state))
    return kind._from_state(**fields)


def check_state(bet: Bet) -> None:
    """Check that a bet can continue. The compiled loops check the numbers that they use as indices."""
    log_density = float(bet.log_density(0.5))
    if not log_density < math.inf:
        raise ValueError(f"its numbers must give a finite density at p = 0.5, got log density {log_density}")


def _build_monitor(fields: dict[str, Any]) -> Monitor:
    """Build a monitor from its parts, which have been checked; the other fields must be like those of a new one."""
    on_alarm = "latch" if fields.get("_fresh") is None else "restart"
    model = _idle_monitor(on_alarm)
    _check_names(fields, vars(model))
    parts: dict[str, Callable[[Any], bool]] = {
        "pvalues": lambda part: isinstance(part, (Precomputed, PValues)),
        "martingale": lambda part: isinstance(part, Martingale),
        "alarm": is_alarm,
        "on_alarm": lambda part: bool(part == on_alarm),
        "_fresh": _is_fresh,
    }
    for name, is_valid in parts.items():
        if not is_valid(fields[name]):
            raise ValueError(f"{name} must be that of a monitor with {on_alarm!r}, got {format_value(fields[name])}")
    rest = {name: _check_like(name, getattr(model, name), fields[name]) for name in fields if name not in parts}
    monitor = copy.copy(model)
    vars(monitor).update({**rest, **{name: fields[name] for name in parts}})
    monitor._check_state()
    return monitor


@cache
def _idle_monitor(on_alarm: str) -> Monitor:
    return Monitor(Precomputed(), bets.Idle(), on_alarm=on_alarm)


def _is_fresh(parts: Any) -> bool:
    """Return whether a monitor can restart with these parts."""
    if parts is None:
        return True
    if not isinstance(parts, tuple) or len(parts) != 3 or not isinstance(parts[0], (Precomputed, PValues)):
        return False
    seen = getattr(getattr(parts[0], "measure", None), "n", 0) or getattr(parts[2], "n", 0)
    return isinstance(parts[1], Bet) and is_alarm(parts[2]) and not seen


def _build_step(kind: type[Step | EvidenceStep], fields: dict[str, Any]) -> Step | EvidenceStep:
    _check_names(fields, kind._fields)
    model = kind(1, 1.0, 0.0, False)
    return kind(**{name: _check_like(name, getattr(model, name), fields[name]) for name in kind._fields})


# ------------------------------------------------------------------ fields


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(function).parameters)


def _check_names(fields: Mapping[str, Any], required: Iterable[str], allowed: Iterable[str] = ()) -> None:
    expected_names = set(required)
    if not expected_names <= fields.keys() <= expected_names | set(allowed):
        expected = f"it must have {', '.join(sorted(expected_names)) or 'no attributes'}"
        raise ValueError(f"{expected}, got {', '.join(sorted(fields)) or 'none'}")


def _check_like(name: str, model: Any, value: Any) -> Any:
    """Check that a value has the type, dtype and shape of the model, and no NaN."""
    if isinstance(model, np.ndarray):
        return check_stored(name, value, model.dtype.type, *model.shape)
    if type(model) is int:
        return check_integer(name, value, 0, MAX_COUNT)
    valid = type(value) is type(model)
    if type(model) is float:
        valid = valid and not math.isnan(value)
    elif model is None:
        valid = value is None or type(value) in STEPS or (type(value) is int and 0 <= value <= MAX_COUNT)
    elif type(model) in (list, tuple):
        valid = valid and len(value) == len(model)
        for i in range(len(model) if valid else 0):
            _check_like(f"{name}[{i}]", model[i], value[i])
    elif type(model) in names() and valid:
        for part, field in vars(model).items():
            _check_like(f"{name}.{part}", field, getattr(value, part))
    if not valid:
        raise ValueError(f"{name} must be like {format_value(model)}, got {format_value(value)}")
    return value
