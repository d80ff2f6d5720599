"""Simulated exchangeable data of several kinds, on which false alarms are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from exchangeable.protocols import Floats, Integers, Measure

Generator = np.random.Generator
TINY = 8  # examples of the kind "tiny", at most


class SimulatedExamples(NamedTuple):
    """One exchangeable sequence, in every form that a measure may need."""

    rows: Floats
    numbers: Floats
    labels: list[str]
    targets: Floats


def _continuous(rng: Generator, n: int) -> SimulatedExamples:
    """Draw independently, without ties: heavy-tailed numbers and two overlapping classes."""
    label = rng.integers(0, 2, n)
    rows: Floats = rng.normal(size=(n, 2)) + label[:, np.newaxis]
    targets: Floats = rows[:, 0] + rng.normal(size=n)
    return SimulatedExamples(rows, rng.standard_t(2.0, n), _class_names(label), targets)


def _ties(rng: Generator, n: int) -> SimulatedExamples:
    """Draw independently from few values, so that most scores are equal."""
    drawn = rng.integers(0, 3, (n, 3)).astype(np.float64)
    return SimulatedExamples(
        drawn[:, :2], rng.geometric(0.5, n) / 2.0, _class_names(rng.integers(0, 2, n)), drawn[:, 2]
    )


def _labelled(rng: Generator, n: int) -> SimulatedExamples:
    """Draw five classes of unequal size around their centres, with a number and a target that depend on the class."""
    label = rng.choice(5, n, p=(0.5, 0.3, 0.15, 0.04, 0.01))
    rows = rng.normal(size=(5, 4))[label] * 2.0 + rng.normal(size=(n, 4))
    return SimulatedExamples(rows, label + rng.normal(size=n), _class_names(label), 3.0 * label + rng.normal(size=n))


def _categorical(rng: Generator, n: int) -> SimulatedExamples:
    """Shuffle a deck: a fixed bag of categories, one-hot, drawn without replacement (so not independent)."""
    code = rng.permutation(np.arange(n) % 7 % 4)
    suit = rng.permutation(code)
    return SimulatedExamples(np.eye(4)[code], code * 1.0, _class_names(suit), (code + suit) * 1.0)


def _tiny(rng: Generator, n: int) -> SimulatedExamples:
    """Draw a handful of examples, some of them repeated."""
    chosen = rng.integers(0, n, n)
    return SimulatedExamples(*(_select(column, chosen) for column in _continuous(rng, n)))


def _select(column: Any, chosen: Integers) -> Any:
    return [column[i] for i in chosen] if isinstance(column, list) else column[chosen]


def _class_names(codes: Integers) -> list[str]:
    return [f"class {code}" for code in codes.tolist()]


DATA: Mapping[str, Callable[[Generator, int], SimulatedExamples]] = {
    "continuous": _continuous,
    "ties": _ties,
    "labelled": _labelled,
    "categorical": _categorical,
    "tiny": _tiny,
}
FORMS: Mapping[str, Callable[[SimulatedExamples], tuple[Any, Any]]] = {  # the input of a measure
    "rows and labels": lambda examples: (examples.rows, examples.labels),
    "numbers": lambda examples: (examples.numbers, examples.labels),
    "rows and targets": lambda examples: (examples.rows, examples.targets),
}


def simulate(data: str, n: int, *, seed: int, run: int) -> tuple[SimulatedExamples, int]:
    """Draw the exchangeable sequence of one run and its seed of theta; the same for every measure, bet and alarm.

    >>> simulate("ties", 3, seed=0, run=0)[0].labels
    ['class 0', 'class 0', 'class 1']
    """
    rng = np.random.default_rng([seed, list(DATA).index(data), run])
    return DATA[data](rng, n), int(rng.integers(2**63))


def accepted_form(make: Callable[[], Measure]) -> str:
    """Return the form of examples that a measure accepts: the first of ``FORMS`` that a fresh one does not reject.

    >>> from exchangeable.measures import NearestNeighbour
    >>> accepted_form(NearestNeighbour)
    'rows and labels'
    """
    drawn, _ = simulate("continuous", 4, seed=0, run=0)
    for name, select in FORMS.items():
        try:
            make().extend(*select(drawn))
        except ValueError as error:
            rejection = error
        else:
            return name
    raise ValueError(f"measure must accept {', or '.join(FORMS)}") from rejection
