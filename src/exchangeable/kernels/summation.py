"""Compensated running sums."""

from __future__ import annotations

import math

from exchangeable.kernels.compilation import compiled


@compiled()
def add(total, carry, term):  # type: ignore[no-untyped-def]
    """One step of Neumaier's summation: the sum is ``total + carry``, its error does not grow with the steps."""
    larger = total + term
    if abs(total) >= abs(term):
        carry += (total - larger) + term
    else:
        carry += (term - larger) + total
    return larger, carry


@compiled()
def accumulate(state, terms, out):  # type: ignore[no-untyped-def]
    """Running sums of ``terms`` after ``state = (total, carry)``; minus infinity, once reached, stays."""
    for i in range(len(terms)):
        if state[0] == -math.inf or terms[i] == -math.inf:
            state[0], state[1] = -math.inf, 0.0
        else:
            state[0], state[1] = add(state[0], state[1], terms[i])
        out[i] = state[0] + state[1]
