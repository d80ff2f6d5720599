"""Capital shared among several bets on one sequence of p-values."""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.compilation import compiled

LOG2 = math.log(2.0)
EVERY = 16  # steps after which a portfolio brings its log shares up to date
EXTREME = 1e8  # densities beyond it, or below its inverse, make it do so at once


@compiled()
def blend(log_shares, gains, out):  # type: ignore[no-untyped-def]
    """Bayes: each share grows by its own bet. ``gains`` are log densities, steps x bets."""
    for i in range(len(gains)):
        top = -math.inf
        for k in range(len(log_shares)):
            top = max(top, log_shares[k] + gains[i, k])
        if top == -math.inf:  # every bet with a share is bankrupt
            out[i] = -math.inf
            log_shares[:] = -math.inf
            continue
        total = 0.0
        for k in range(len(log_shares)):
            total += math.exp(log_shares[k] + gains[i, k] - top)
        out[i] = top + math.log(total)
        for k in range(len(log_shares)):
            log_shares[k] += gains[i, k] - out[i]


@compiled()
def switching(shares, rate, gains, out):  # type: ignore[no-untyped-def]
    """Fixed share: before each bet the part ``rate`` of all capital is spread evenly. ``shares`` sum to one."""
    m = len(shares)
    for i in range(len(gains)):
        top = gains[i].max()
        if top == -math.inf:
            out[i] = -math.inf
            continue
        total = 0.0
        for k in range(m):
            shares[k] = ((1.0 - rate) * shares[k] + rate / m) * math.exp(gains[i, k] - top)
            total += shares[k]
        if total == 0.0:  # all capital was where the density is nought
            out[i] = -math.inf
            shares[:] = 1.0 / m
            continue
        out[i] = top + math.log(total)
        for k in range(m):
            shares[k] /= total


@compiled()
def _to_date(log_shares, linear, products, state):  # type: ignore[no-untyped-def]
    """Bring the log shares up to date, and take the linear ones from them."""
    for k in range(len(linear)):
        log_shares[k] += math.log(products[k]) - state[1]
        linear[k] = math.exp(log_shares[k])
        products[k] = 1.0
    state[0] = state[1] = 0.0


@compiled()
def portfolio(log_shares, linear, products, state, shares, log_parts, rate, densities, units, out):  # type: ignore[no-untyped-def]
    """A Bayes blend, a fixed share and idleness, blended: on densities (steps x bets) in units of ``exp(units)``.

    The shares of the Bayes blend are kept twice: in ``log_shares``, which never underflow, as they were some steps ago,
    and in ``linear``, as they are now. The ``products`` of the densities since then bring the first up to date every
    few steps (``state``: how many, and the log of what the blend gained in them), or when a density is extreme.
    """
    m = len(shares)
    parts = np.zeros(3)
    for i in range(len(densities)):
        f = densities[i]
        blended, switched, least, most = 0.0, 0.0, math.inf, 0.0
        for k in range(m):
            least = min(least, f[k])
            most = max(most, f[k])
            linear[k] *= f[k]
            products[k] *= f[k]
            shares[k] = ((1.0 - rate) * shares[k] + rate / m) * f[k]
            blended += linear[k]
            switched += shares[k]
        for k in range(m):
            linear[k] /= blended
            shares[k] /= switched
        log_blended = math.log(blended)
        parts[0], parts[1] = log_blended + units[i], math.log(switched) + units[i]
        state[0] += 1.0
        state[1] += log_blended
        if state[0] == EVERY or most > EXTREME or least < 1.0 / EXTREME:
            _to_date(log_shares, linear, products, state)
        top = max(log_parts[0] + parts[0], log_parts[1] + parts[1], log_parts[2])
        total = 0.0
        for k in range(3):
            total += math.exp(log_parts[k] + parts[k] - top)
        out[i] = top + math.log(total)
        for k in range(3):
            log_parts[k] += parts[k] - out[i]


@compiled()
def cautious(state, window, gains, out, threshold):  # type: ignore[no-untyped-def]
    """Take the gain of a step only if the shadow's log capital had risen by ``threshold`` over its least recent value.

    ``state = (steps, shadow, first, last)``; ``window`` (2 x (W + 1)) holds the steps and values that may yet become
    the minimum of the last W + 1 values, in a ring: values increase from first to last.
    """
    size = window.shape[1]
    for i in range(len(gains)):
        steps, shadow, first, last = state[0], state[1], int(state[2]), int(state[3])
        out[i] = gains[i] if shadow - window[1, first % size] >= threshold else 0.0
        steps += 1.0
        shadow += gains[i]
        while first < last and window[0, first % size] < steps - (size - 1):
            first += 1
        while first < last and window[1, (last - 1) % size] >= shadow:
            last -= 1
        window[0, last % size], window[1, last % size] = steps, shadow
        last += 1
        state[0], state[1], state[2], state[3] = steps, shadow, first, last


@compiled()
def simple_jumper(weights, rate, p, out):  # type: ignore[no-untyped-def]
    """Three gamblers, ``f = 1 + e (p - 1/2)`` with e = -1, 0, 1, who change places at the given rate."""
    for i in range(len(p)):
        total = 0.0
        for k in range(3):
            weights[k] = ((1.0 - rate) * weights[k] + rate / 3.0) * (1.0 + (k - 1.0) * (p[i] - 0.5))
            total += weights[k]
        for k in range(3):
            weights[k] /= total
        out[i] = math.log(total)


@compiled()
def histogram(counts, p, out):  # type: ignore[no-untyped-def]
    """Krichevsky-Trofimov: ``f = B (c_b + 1/2) / (n + B/2)``."""
    bins = len(counts)
    n = counts.sum()
    for i in range(len(p)):
        b = min(int(p[i] * bins), bins - 1)
        out[i] = math.log(bins * (counts[b] + 0.5) / (n + 0.5 * bins))
        counts[b] += 1.0
        n += 1.0


@compiled()
def tree_step(counts, log_own, log_mixed, depth, smooth, p, learn):  # type: ignore[no-untyped-def]
    """Context-tree weighting over dyadic intervals: ``W = 1/2 + 1/2 KT W_left W_right``, W = 1 at the leaves.

    Node 1 is [0, 1], nodes 2 s and 2 s + 1 are the halves of s. ``counts[s]`` p-values in s; ``log_own`` is the
    Krichevsky-Trofimov gain of splitting s, with pseudo-counts ``(d + 1)^2`` at depth d if smooth, else 1/2;
    ``log_mixed`` is log W. Returns the log density at p, and learns p if it is to.
    """
    before = log_mixed[1]
    node = min(int(p * 2.0**depth), 2**depth - 1) + 2**depth
    mixed = 0.0
    for d in range(depth - 1, -1, -1):
        parent = node >> 1
        a = (d + 1.0) ** 2 if smooth else 0.5
        own = log_own[parent] + math.log(2.0 * (counts[node] + a) / (counts[parent] + 2.0 * a))
        split = own + (mixed + log_mixed[node ^ 1])
        mixed = max(split, 0.0) + math.log1p(math.exp(-abs(split))) - LOG2
        if learn:
            counts[node] += 1.0
            log_own[parent] = own
            log_mixed[parent] = mixed
        node = parent
    if learn:
        counts[1] += 1.0
    return mixed - before


@compiled()
def tree(counts, log_own, log_mixed, depth, smooth, p, out):  # type: ignore[no-untyped-def]
    """Bet on each p, then learn it."""
    for i in range(len(p)):
        out[i] = tree_step(counts, log_own, log_mixed, depth, smooth, p[i], True)
