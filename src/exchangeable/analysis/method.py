"""What a test is made of, by name, and what its measure asks and cannot see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from exchangeable import bets, measures
from exchangeable.monitor import Monitor

ASKS: Mapping[str, str] = MappingProxyType(
    {
        "nearest-neighbour": "It asks whether examples lie nearer to their own class than to others as much as before; "
        "a shift of all classes together can escape it, and the measure nearest-distance may see it.",
        "nearest-distance": "It asks whether examples lie as near to their nearest neighbours as before; it looks at "
        "the features alone, so what happens to labels escapes it, and so can a change among examples that stay where "
        "others were.",
        "nearest-residual": "It asks whether labels differ from those of the most similar examples as before; a change "
        "of the features alone can escape it, and the measure nearest-distance may see it.",
        "value": "It asks whether the numbers of this one column are as large, and follow one another, as before; it "
        "sees no other column.",
        "conditional-nearest-neighbour": "It compares each example with its own class only, so how often each class "
        "comes plays no part, and a shift of all classes together can escape it.",
        "conditional-nearest-distance": "It asks whether examples lie as near to others of their own class as before; "
        "how often each class comes plays no part.",
        "frozen": "It asks whether the scores are as large, and follow one another, as before; it sees nothing but the "
        "score.",
    }
)


class Method(NamedTuple):
    """The parts of a monitor by name, with their parameters; None is for what has no meaning there."""

    measure: str
    neighbours: int | None
    bet: str
    epsilon: float | None
    alarm: str
    alpha: float | None
    period: float | None
    on_alarm: str
    seed: int

    @classmethod
    def of(cls, monitor: Monitor) -> Method:
        """The parts of this monitor.

        >>> Method.of(Monitor(measures.NearestDistance(3)))[:4]
        ('nearest-distance', 3, 'adaptive', None)
        """
        measure, bet, alarm = named(monitor.measure), monitor.martingale.bet, monitor.alarm
        return cls(
            measure=measure,
            neighbours=getattr(monitor.measure, "k", None) if measure.startswith("nearest-") else None,
            bet=named(bet),
            epsilon=bet.epsilon if isinstance(bet, bets.Power) else None,
            alarm=named(alarm),
            alpha=getattr(alarm, "alpha", None),
            period=getattr(alarm, "period", None),
            on_alarm=monitor.on_alarm,
            seed=monitor.seed,
        )


def named(part: object) -> str:
    """Its name as the command line has it: that of the class.

    >>> named(measures.Conditional(measures.NearestDistance()))
    'conditional-nearest-distance'
    """
    own = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(part).__name__).lower()
    return f"{own}-{named(part.measure)}" if isinstance(part, measures.Conditional) else own


def asks(measure: str) -> str:
    """What it asks and cannot see, in words; nothing of a measure that is not ours.

    >>> asks("value")[:42]
    'It asks whether the numbers of this one co'
    """
    return ASKS.get(measure, "")
