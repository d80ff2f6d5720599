"""The recipe that many monitors share: what is lawful, and how it is told from others."""

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


def admitted(recipe: Any) -> Monitor:
    """A copy of a lawful recipe: a fresh monitor of constant memory, all of whose parts are exchangeable's own."""
    if not isinstance(recipe, Monitor):
        raise ValueError(f"recipe must be a monitor, got {format_value(recipe)}")
    if recipe.n or recipe.martingale.n or getattr(recipe.measure, "n", 0):
        raise ValueError(f"recipe must be fresh, got a monitor that has seen {recipe.n} examples")
    measure, bet, alarm = recipe.measure, recipe.martingale.bet, recipe.alarm
    constant = type(measure) in (Value, Precomputed) or (type(measure) is Frozen and measure.edges is not None)
    if not constant:
        law = "recipe must have a measure of bounded memory: Value, Frozen with bins, or Precomputed"
        raise ValueError(f"{law}, got {format_value(measure)}")
    for name, part in (("bet", bet), ("alarm", alarm)):
        if type(part) not in objects.names():
            raise ValueError(f"recipe must have one of exchangeable's own for its {name}, got {format_value(part)}")
    return copy.deepcopy(recipe)


def described(recipe: Monitor, *begin: Floats) -> dict[str, str]:
    """A recipe in words that tell it from all others; its bet and its alarm begin with these numbers.

    >>> from exchangeable import bets, measures
    >>> described(Monitor(measures.Value(), bets.Power(0.5)))["bet"]
    'Power(epsilon=0.5)'
    """
    digests = [_digest(numbers.astype(np.float32).tobytes()) for numbers in begin]  # a log may differ in its last bit
    return {
        "measure": _measure(recipe.measure),
        "bet": _words(recipe.martingale.bet),
        "alarm": _words(recipe.alarm),
        "on_alarm": recipe.on_alarm,
        "the digest of what bet and alarm begin with": " and ".join(digests),
    }


def _measure(measure: Any) -> str:
    if not isinstance(measure, Frozen) or measure.edges is None:
        return f"{type(measure).__name__}()"
    edges = f"{len(measure.edges)} edges of digest {_digest(measure.edges.tobytes())}"
    scale = "" if measure.score is None else f"scale={measure.scale!r}, "
    return f"Frozen({measure.score_kind}, {scale}bins={measure.bins}, {edges})"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _words(value: Any) -> str:
    """A bet or an alarm as its constructor is called."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_words, value))}]"
    if type(value) not in objects.names():
        return repr(value)
    given = [name for name in signature(type(value)).parameters if name in vars(value)]
    return f"{type(value).__name__}({', '.join(f'{name}={_words(getattr(value, name))}' for name in given)})"


def check_x(measure: Any, names: Any, code: Integers, given: events.EventColumns) -> None:
    """Admit the numbers of events that are not refused: values, numbers of bins, or p-values."""
    order, x, _, refused = given
    if isinstance(measure, Precomputed):
        law, lawful = "lie in (0, 1]", (x > 0.0) & (x <= 1.0)
    elif isinstance(measure, Frozen) and measure.edges is not None:
        last = len(measure.edges)
        law, lawful = f"be the number of a bin, 0 to {last}", (x >= 0.0) & (x <= last) & (x == np.floor(x))
    else:
        law, lawful = "be a finite number", np.isfinite(x)
    for i in np.flatnonzero(~(lawful | refused))[:1].tolist():
        raise ValueError(f"key {format_value(names[code[i]].as_py())}, order {order[i]}: x must {law}, got {x[i]}")
