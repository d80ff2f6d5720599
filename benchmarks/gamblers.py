"""Fair gamblers against e-BH on a changing fleet: streams join between looks, or quiet ones are deleted.

A gambler who aims at the capital c reaches it with probability 1/c, and is bankrupt otherwise: as fair as a martingale
on exchangeable data, and the worst case for a rule whose threshold is c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from exchangeable.fleet import adjusted, e_bh
from exchangeable.protocols import Floats

JOINING, DELETED = 100, 1000  # streams that join one by one; streams of which the quiet ones are deleted
ABOVE = 1e-9  # so that rounding does not leave a log capital below its threshold


class Rule(NamedTuple):
    """The arguments of e-BH that fix K, and the e-value that the j-th stream needs to be found alone at alpha = 1."""

    options: Callable[[int, NDArray[np.int64]], dict[str, Any]]  # of K and the positions in the order of joining
    needs: Callable[[int, int], float]  # of K and j


RULES: Mapping[str, Rule] = {
    "so far": Rule(lambda K, places: {}, lambda K, j: float(j)),  # not valid
    "fixed": Rule(lambda K, places: {"streams": K}, lambda K, j: float(K)),
    "joined": Rule(lambda K, places: {"joined": places}, lambda K, j: j * (j + 1.0)),
}


def winners(rng: np.random.Generator, targets: Floats) -> NDArray[np.int64]:
    """Indices of the gamblers who have reached their targets."""
    return np.flatnonzero(rng.random(len(targets)) * targets < 1.0)


def found_while_growing(rule: str, alpha: float, rng: np.random.Generator) -> bool:
    """Does any of 100 looks find any of 100 gamblers, who join one by one and play immediately?"""
    options, needs = RULES[rule]
    targets = np.array([needs(JOINING, j) for j in range(1, JOINING + 1)]) / alpha
    won = winners(rng, targets)
    for joined in (won + 1).tolist():  # other looks repeat one of these, or come when more streams have joined
        capital = np.full(joined, -math.inf)
        here = won[won < joined]
        capital[here] = np.log(targets[here]) + ABOVE
        if e_bh(capital, alpha, **options(JOINING, np.arange(1, joined + 1))).names:
            return True
    return False


def found_after_deletion(rule: str, alpha: float, rng: np.random.Generator, *, peaks: bool = False) -> bool:
    """Is any of 1,000 gamblers found once the losers are deleted? With ``peaks``, by ``adjusted`` running maxima."""
    options, _ = RULES[rule]
    targets = deletion_targets(rule, alpha, peaks)
    left = winners(rng, targets)
    if not len(left):
        return False
    logs = np.log(targets[left]) + ABOVE
    return bool(e_bh(adjusted(logs) if peaks else logs, alpha, **options(DELETED, left + 1)).names)


@cache
def deletion_targets(rule: str, alpha: float, peaks: bool) -> Floats:
    """The target of each gambler. If nobody else is left, K so far is 1."""
    needs = [1.0 if rule == "so far" else RULES[rule].needs(DELETED, j) for j in range(1, DELETED + 1)]
    return np.array([_peak(need / alpha) if peaks else need / alpha for need in needs])


@cache
def _peak(e: float) -> float:
    """The running maximum whose ``adjusted`` value is e."""
    return math.exp(float(brentq(lambda x: float(adjusted([x])[0]) - math.log(e), 0.0, 100.0)) + ABOVE)
