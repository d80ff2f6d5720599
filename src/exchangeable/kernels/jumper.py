"""The sleepy jumper: a hidden Markov mixture over power bets."""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.compilation import compiled


@compiled()
def _bet(weights, waking, jumping, p, moved):  # type: ignore[no-untyped-def]
    """Move the capital, bet it on p, and leave the shares in ``moved`` (to a common factor); log of the density at p.

    ``weights = (A, w_1 .. w_G)`` sum to one. The factor ``p^(1/G - 1)`` of the boldest bet is taken out, so that
    nothing overflows however small p is.
    """
    G = len(weights) - 1
    asleep = weights[0]
    awake = 0.0
    for j in range(1, G + 1):
        awake += weights[j]
    log_p = math.log(p)
    boldest = (1.0 / G - 1.0) * log_p
    moved[0] = ((1.0 - waking) * asleep + waking * awake) * math.exp(-boldest)
    total = moved[0]
    fresh = waking * asleep / G + (1.0 - waking) * jumping * awake / G
    stay = (1.0 - waking) * (1.0 - jumping)
    power, ratio = 1.0, math.exp(log_p / G)
    for j in range(1, G + 1):
        moved[j] = (fresh + stay * weights[j]) * (j / G) * power
        total += moved[j]
        power *= ratio
    return math.log(total) + boldest


@compiled()
def extend(weights, waking, jumping, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then let the capital be shared anew."""
    moved = np.empty(len(weights))
    for i in range(len(p)):
        out[i] = _bet(weights, waking, jumping, p[i], moved)
        total = moved.sum()
        for j in range(len(weights)):
            weights[j] = moved[j] / total
