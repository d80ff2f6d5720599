"""Rules that raise an alarm when the mean of losses is above a limit: `Risk`, and what it is compared with.

The losses have a limit of 0.1, and are 0 or 1, or have a Beta distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from exchangeable import Risk

Floats = NDArray[np.float64]
Rule = Callable[[Floats], NDArray[np.bool_]]  # whether there is an alarm, after each loss
LIMIT, ALPHA = 0.1, 0.01
TUNED = 1_000  # the number of losses at which the interval by Hoeffding's inequality is narrowest
RHO = TUNED / 4.0 / (math.log(ALPHA**-2) + math.log1p(math.log(ALPHA**-2)))
KINDS: Mapping[str, Callable[[np.random.Generator, float, int], Floats]] = {
    "0 and 1": lambda rng, mean, n: (rng.random(n) < mean).astype(np.float64),
    "Beta": lambda rng, mean, n: rng.beta(200.0 * mean, 200.0 * (1.0 - mean), n),
}


def knows_all(kind: str, mean: float) -> Rule:
    """The capital of the fixed lambda that grows fastest at this mean."""
    chosen = 1.0 / LIMIT if kind == "Beta" else (mean - LIMIT) / (LIMIT * (1.0 - LIMIT))
    return lambda x: np.cumsum(np.log1p(chosen * (x - LIMIT))) >= -math.log(ALPHA)


def plug_in(x: Floats) -> NDArray[np.bool_]:
    """The capital of one lambda, learnt from the past: mean/mean square of x - limit, at most 1/(2 limit)."""
    z = x - LIMIT
    first, second = (np.append(0.0, np.cumsum(y)[:-1]) for y in (z, z * z))
    chosen = np.clip(first / (second + LIMIT * (1.0 - LIMIT)), 0.0, 0.5 / LIMIT)
    return np.asarray(np.cumsum(np.log1p(chosen * z)) >= -math.log(ALPHA))


def hoeffding(x: Floats) -> NDArray[np.bool_]:
    """The half-normal mixture over l of exp(l sum(x - limit) - l^2 n/8)."""
    z, v = np.cumsum(x - LIMIT), np.arange(1, len(x) + 1) / 4.0 + RHO
    mixture = 0.5 * np.log(4.0 * RHO / v) + z * z / (2.0 * v) + special.log_ndtr(z / np.sqrt(v))
    return np.asarray(mixture >= -math.log(ALPHA))


def repeated_test(kind: str, longest: int) -> Rule:
    """A one-sided test of all losses so far, repeated after each loss: binomial, or Student's t from 10 losses on."""
    n = np.arange(1, longest + 1)
    critical = stats.t.isf(ALPHA, np.maximum(n - 1, 1)) if kind == "Beta" else stats.binom.isf(ALPHA, n, LIMIT)

    def rule(x: Floats) -> NDArray[np.bool_]:
        m, total = n[: len(x)], np.cumsum(x)
        if kind != "Beta":
            return np.asarray(total > critical[: len(x)])
        variance = (np.cumsum(x * x) - total * total / m) / np.maximum(m - 1, 1)
        return np.asarray((total - m * LIMIT > critical[: len(x)] * np.sqrt(m * variance)) & (m >= 10))

    return rule


def rules(kind: str, longest: int) -> dict[str, Rule]:
    """The rules that know neither the mean after the change nor its time, for at most ``longest`` losses."""
    options: list[dict[str, Any]] = [{"alpha": ALPHA}, {"period": 10_000}, {"period": 1_000_000}]
    own = {
        f"Risk, {k} {v:,}": partial(lambda o, x: Risk(LIMIT, **o).extend(x).alarm, o)
        for o in options
        for k, v in o.items()
    }
    return {**own, "plug-in alone": plug_in, "Hoeffding": hoeffding, "repeated test": repeated_test(kind, longest)}
