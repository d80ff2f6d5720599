"""The recipe that many monitors share: its validation, and its fingerprint."""

from __future__ import annotations

import copy
import hashlib
from inspect import signature
from typing import Any

import numpy as np

from exchangeable.keyed import events
from exchangeable.measures import Frozen, Value
from exchangeable.monitor import Monitor
from exchangeable.protocols import Floats, Integers
from exchangeable.pvalues import Precomputed
from exchangeable.snapshot import objects
from exchangeable.validation import format_value


def validate(recipe: Any) -> Monitor:
    """Return a copy of the recipe: a fresh monitor with bounded memory, a bet and an alarm of exchangeable."""
    if not isinstance(recipe, Monitor):
        raise ValueError(f"recipe must be a monitor, got {format_value(recipe)}")
    if recipe.n or recipe.martingale.n or getattr(recipe.measure, "n", 0):
        raise ValueError(f"recipe must be fresh, got a monitor that has seen {recipe.n} examples")
    measure, bet, alarm = recipe.measure, recipe.martingale.bet, recipe.alarm
    bounded = type(measure) in (Value, Precomputed) or (type(measure) is Frozen and measure.edges is not None)
    if not bounded:
        rule = "recipe must have a measure of bounded memory: Value, Frozen with bins, or Precomputed"
        raise ValueError(f"{rule}, got {format_value(measure)}")
    for name, part in (("bet", bet), ("alarm", alarm)):
        if type(part) not in objects.names():
            raise ValueError(f"{name} of the recipe must be one of exchangeable.{name}s, got {format_value(part)}")
    if _grows(bet):
        raise ValueError(
            f"bet of the recipe must have a state of fixed size, got {format_value(bet)}, whose state grows"
        )
    return copy.deepcopy(recipe)


def _grows(bet: Any) -> bool:
    """Return whether the state of a bet, or of one of its parts, grows with the number of steps."""
    if isinstance(bet, list):
        return any(map(_grows, bet))
    return type(bet) in objects.names() and (hasattr(bet, "_get_state") or any(map(_grows, vars(bet).values())))


def fingerprint(recipe: Monitor, *states: Floats) -> dict[str, str]:
    """Describe a recipe so that different ones differ; ``states`` are the fresh states of its bet and alarm.

    >>> from exchangeable import bets, measures
    >>> fingerprint(Monitor(measures.Value(), bets.Power(0.5)))["bet"]
    'Power(epsilon=0.5)'
    """
    digests = [_digest(numbers.astype(np.float32).tobytes()) for numbers in states]  # a log may differ in its last bit
    return {
        "measure": _measure_repr(recipe.measure),
        "bet": _call_repr(recipe.martingale.bet),
        "alarm": _call_repr(recipe.alarm),
        "on_alarm": recipe.on_alarm,
        "digest of the fresh states of bet and alarm": " and ".join(digests),
    }


def _measure_repr(measure: Any) -> str:
    if not isinstance(measure, Frozen) or measure.edges is None:
        return f"{type(measure).__name__}()"
    edges = f"{len(measure.edges)} edges of digest {_digest(measure.edges.tobytes())}"
    scale = "" if measure.score is None else f"scale={measure.scale!r}, "
    return f"Frozen({measure.score_kind}, {scale}bins={measure.bins}, {edges})"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _call_repr(value: Any) -> str:
    """Write a bet or an alarm as a call of its constructor, with all arguments."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_call_repr, value))}]"
    if type(value) not in objects.names():
        return repr(value)
    names = [name for name in signature(type(value)).parameters if name in vars(value)]
    return f"{type(value).__name__}({', '.join(f'{name}={_call_repr(getattr(value, name))}' for name in names)})"


def check_x(measure: Any, names: Any, code: Integers, columns: events.EventColumns) -> None:
    """Check the numbers of events that the caller has not rejected: values, numbers of bins, or p-values."""
    order, x, _, refused = columns
    if isinstance(measure, Precomputed):
        rule, valid = "lie in (0, 1]", (x > 0.0) & (x <= 1.0)
    elif isinstance(measure, Frozen) and measure.edges is not None:
        last = len(measure.edges)
        rule, valid = f"be the number of a bin, 0 to {last}", (x >= 0.0) & (x <= last) & (x == np.floor(x))
    else:
        rule, valid = "be a finite number", np.isfinite(x)
    for i in np.flatnonzero(~(valid | refused))[:1].tolist():
        raise ValueError(f"key {format_value(names[code[i]].as_py())}, order {order[i]}: x must {rule}, got {x[i]}")
