"""Statistics of the log martingale's increments; ``state`` begins with the last log value, which may be infinite."""

from __future__ import annotations

import math

from exchangeable.kernels.compilation import compiled


@compiled()
def cusum(state, log_values, out):  # type: ignore[no-untyped-def]
    """``log gamma_n = g_n + max(log gamma_{n-1}, 0)``; state = (last log value, log gamma)."""
    for i in range(len(log_values)):
        if not math.isinf(state[0]):
            state[1] = (log_values[i] - state[0]) + max(state[1], 0.0)
            state[0] = log_values[i]
        out[i] = state[1]


@compiled()
def shiryaev_roberts(state, log_values, out):  # type: ignore[no-untyped-def]
    """``log psi_n = g_n + log(1 + psi_{n-1})``; state = (last log value, log psi)."""
    for i in range(len(log_values)):
        if not math.isinf(state[0]):
            more = max(state[1], 0.0) + math.log1p(math.exp(-abs(state[1])))
            state[1] = (log_values[i] - state[0]) + more
            state[0] = log_values[i]
        out[i] = state[1]


@compiled()
def difference(state, ring, log_values, bound, out):  # type: ignore[no-untyped-def]
    """Sums of the last W of ``d_i = min(f_i, bound) - 1``; state = (last log value, sum, place in the ring of W).

    The sum is taken anew at each round of the ring, so that its rounding errors do not gather.
    """
    for i in range(len(log_values)):
        if not math.isinf(state[0]):
            place, gain = int(state[2]), log_values[i] - state[0]
            new = (math.exp(gain) if gain < math.log(bound) else bound) - 1.0
            state[1] += new - ring[place]
            ring[place] = new
            state[2] = (place + 1) % len(ring)
            if state[2] == 0.0:
                state[1] = ring.sum()
            state[0] = log_values[i]
            if math.isinf(state[0]):
                state[1] = state[0]
        out[i] = state[1]
