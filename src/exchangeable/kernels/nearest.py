"""Nearest same-label and other-label distances, kept exact while examples arrive.

A float32 matrix product gives every inner product at BLAS speed; with the error bound below it is only a *filter*:
wherever it cannot rule out that a nearest distance falls, the distance is computed directly in float64. What is stored
and compared is therefore always the direct float64 value, whatever the filter said.

**The bound.** Let ``u = 2**-24``, ``f_i`` the float32 copy of the centred and scaled row, ``N_i = |f_i|**2``. The inner
product of ``d`` terms is off by at most ``d u |f_i| |f_j|`` in any order of summation, the copies by ``u`` a
coordinate, the three float32 operations of the test by a few ``u``; all of it is below ``(d + 32) u (N_i + N_j)``
plus an underflow term. ``slack = (2 d + 64) u`` is twice that. With ``low_i = (1 - slack) N_i - tiny``,

    low_i + low_j - 2 f_i.f_j  <=  scale**2 |x_i - x_j|**2 ,

and the difference of the two sides is at most ``2 slack (N_i + N_j) + 4 tiny``.

Rows too large for float32 have ``low = -inf``: they always go to the direct distance.
"""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.compilation import compiled

CHUNK = 128
UP = 2.0**-22  # more than float32 rounding takes away
FAR = 2.0**512  # ratios beyond it, or below its inverse, could overflow or underflow


@compiled()
def _leaf(a, b, eight):  # type: ignore[no-untyped-def]
    """Sum of squared differences over at most 128 coordinates, added in the order in which NumPy adds them."""
    whole = len(a) - len(a) % 8
    eight = eight[:8]
    eight[:] = 0.0
    for start in range(0, whole, 8):
        left = a[start : start + 8]
        right = b[start : start + 8]
        for k in range(len(eight)):
            difference = left[k] - right[k]
            eight[k] += difference * difference
    total = ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]))
    for k in range(whole, len(a)):
        total += (a[k] - b[k]) * (a[k] - b[k])
    return total


@compiled()
def squared_distance(a, b, eight):  # type: ignore[no-untyped-def]
    """``((a - b) ** 2).sum()`` in float64, bit for bit as NumPy sums a contiguous row; ``eight`` is scratch space.

    NumPy sums pairwise: it halves the row, at a multiple of 8, until at most 128 coordinates are left.
    """
    if len(a) <= 128:
        return _leaf(a, b, eight)
    half = len(a) // 2
    half -= half % 8
    return squared_distance(a[:half], b[:half], eight) + squared_distance(a[half:], b[half:], eight)


@compiled(error_model="numpy")
def quotient(same, other):  # type: ignore[no-untyped-def]
    """``same / other``, where 0/0 and inf/inf are 1, x/inf is 0, x/0 and inf/x are inf."""
    if same == other and (same == 0.0 or same == math.inf):
        return 1.0
    return same / other


@compiled()
def ratio(same, other):  # type: ignore[no-untyped-def]
    """The square of equation (1) of the paper, from squared distances: an increasing function of it, rounded once.

    Equal ratios have equal scores, because a correctly rounded quotient depends on the ratio alone. Where the quotient
    ``q`` might overflow or underflow, the score is ``2**384 * q**0.25`` (above ``2**512``) or ``2**-384 * q**0.25``
    (below ``2**-512``), from fractions and exponents: it increases with ``q``, and resolves 50 bits instead of 53.
    """
    q = quotient(same, other)
    if 1.0 / FAR <= q <= FAR or same == 0.0 or other == 0.0 or same == math.inf or other == math.inf:
        return q
    top, above = math.frexp(same)
    bottom, below = math.frexp(other)
    power = above - below  # q = top / bottom * 2**power
    root = math.sqrt(math.sqrt(math.ldexp(top / bottom, power % 4)))
    return math.ldexp(root, power // 4 + (384 if q > 1.0 else -384))


@compiled()
def scores(near):  # type: ignore[no-untyped-def]
    """The scores of all examples, from their nearest squared distances (2 x n x 1)."""
    alpha = np.empty(near.shape[1])
    for j in range(len(alpha)):
        alpha[j] = ratio(near[0, j, 0], near[1, j, 0])
    return alpha


@compiled()
def ceiling(squared, scale2, low):  # type: ignore[no-untyped-def]
    """The largest ``low_i - 2 f_i.f_j`` at which the distance might still be below ``squared``, rounded up."""
    if squared == 0.0:
        return np.float32(-math.inf)  # nothing is nearer than a duplicate
    if squared == math.inf or low == -math.inf:
        return np.float32(math.inf)
    bound = squared * scale2 - low
    return np.float32(bound + abs(bound) * UP)


@compiled(fastmath={"nnan", "nsz"})
def survey(g, low_i, code_i, code, low, ceil_same, ceil_other):  # type: ignore[no-untyped-def]
    """One look at a chunk of columns, written so that the compiler vectorises it.

    The least ``low_j - 2 f_i.f_j`` among the same label and among the others, and whether a nearest distance of one of
    the columns may fall.
    """
    same = other = np.float32(math.inf)
    hits = 0
    for j in range(len(g)):
        alike = code[j] == code_i
        twice = np.float32(2.0) * g[j]
        if_alike, if_not = ceil_same[j], ceil_other[j]
        hits += low_i - twice < (if_alike if alike else if_not)
        value = low[j] - twice
        if_same = value if alike else np.float32(math.inf)
        if_other = np.float32(math.inf) if alike else value
        same = if_same if if_same < same else same
        other = if_other if if_other < other else other
    return same, other, hits > 0


@compiled()
def reach(low_i, lowest, bounds):  # type: ignore[no-untyped-def]
    """An upper bound of a scaled squared distance from its lower bound ``low_i + lowest`` and the bounds' width."""
    if not -math.inf < low_i + lowest < math.inf:
        return np.float32(math.inf)
    slack, tiny, highest, _ = bounds
    bound = np.float64(low_i) + np.float64(lowest) + 2.1 * slack * (max(low_i, 0.0) + highest) + 8.0 * tiny
    return np.float32(bound + abs(bound) * UP)


@compiled()
def meet(g, x, low_i, code_i, own, bounds, X, code, low, near, ceil):  # type: ignore[no-untyped-def]
    """Let an example meet the rows of a table: its nearest distances and theirs are brought up to date.

    ``g`` are its inner products with them, ``own`` its two nearest squared distances so far (what is not below them
    does not matter), ``near`` and ``ceil`` (each 2 x rows) those of the rows and what the filter knows of them.
    ``bounds`` are the filter's ``(slack, tiny, highest low, scale**2)``. Returns the rows whose distances fell.
    """
    scale2, rows = bounds[3], len(g)
    same, other, ceil_same, ceil_other = near[0], near[1], ceil[0], ceil[1]
    chunks = (rows + CHUNK - 1) // CHUNK
    least = np.empty((chunks, 2), np.float32)
    fall = np.empty(chunks, np.bool_)
    for c in range(chunks):
        at = slice(c * CHUNK, min((c + 1) * CHUNK, rows))
        least[c, 0], least[c, 1], fall[c] = survey(
            g[at], low_i, code_i, code[at], low[at], ceil_same[at], ceil_other[at]
        )
    own_same, own_other = ceiling(own[0], scale2, np.float32(0.0)), ceiling(own[1], scale2, np.float32(0.0))
    if chunks:
        own_same = min(own_same, reach(low_i, least[:, 0].min(), bounds))
        own_other = min(own_other, reach(low_i, least[:, 1].min(), bounds))
    fallen = np.empty(rows, np.int64)
    count = 0
    eight = np.empty(8)
    for c in range(chunks):
        # (not >=, so that minus infinity less minus infinity counts as a hit)
        close = not low_i + least[c, 0] >= own_same or not low_i + least[c, 1] >= own_other
        if not (fall[c] or close):
            continue
        for j in range(c * CHUNK, min((c + 1) * CHUNK, rows)):
            value = low_i - np.float32(2.0) * g[j]
            if code[j] == code_i:
                if not (value < ceil_same[j] or value < own_same - low[j]):
                    continue
                distance = squared_distance(x, X[j], eight)
                if distance < own[0]:
                    own[0] = distance
                    own_same = min(own_same, ceiling(distance, scale2, np.float32(0.0)))
                if distance < same[j]:
                    same[j] = distance
                    ceil_same[j] = ceiling(distance, scale2, low[j])
                    fallen[count] = j
                    count += 1
            else:
                if not (value < ceil_other[j] or value < own_other - low[j]):
                    continue
                distance = squared_distance(x, X[j], eight)
                if distance < own[1]:
                    own[1] = distance
                    own_other = min(own_other, ceiling(distance, scale2, np.float32(0.0)))
                if distance < other[j]:
                    other[j] = distance
                    ceil_other[j] = ceiling(distance, scale2, low[j])
                    fallen[count] = j
                    count += 1
    return fallen[:count]


@compiled()
def settle(i, own, near, ceil, scale2, low):  # type: ignore[no-untyped-def]
    """Write the nearest distances that row ``i`` begins with, and what the filter knows of them."""
    for side in range(2):
        near[side, i] = own[side]
        ceil[side, i] = ceiling(own[side], scale2, low[i])


@compiled()
def absorb(i, g, bounds, X, code, low, alpha, near, ceil):  # type: ignore[no-untyped-def]
    """Let example ``i`` (inner products ``g`` with all earlier ones) join: update every nearest distance and score."""
    own = np.full(2, math.inf)
    fallen = meet(g[:i], X[i], low[i], code[i], own, bounds, X, code, low, near, ceil)
    settle(i, own, near, ceil, bounds[3], low)
    for j in fallen:
        alpha[j] = ratio(near[0, j], near[1, j])
    alpha[i] = ratio(own[0], own[1])


@compiled()
def rank(alpha, code, n, within):  # type: ignore[no-untyped-def]
    """How many of the first ``n`` scores are greater than the last of them, equal to it, and ranked with it at all.

    These are all ``n``, or those of the same label only (``within``).
    """
    newest, own = alpha[n - 1], code[n - 1]
    greater = 0
    equal = 0
    if not within:
        for j in range(n):
            greater += alpha[j] > newest
            equal += alpha[j] == newest
        return greater, equal, n
    among = 0
    for j in range(n):
        alike = code[j] == own
        greater += alike and alpha[j] > newest
        equal += alike and alpha[j] == newest
        among += alike
    return greater, equal, among


@compiled()
def extend(start, G, bounds, X, code, low, alpha, near, ceil, within, counts):  # type: ignore[no-untyped-def]
    """Absorb the rows ``start ..`` whose inner products are the rows of ``G``, ranking each as it comes.

    ``near[0]`` and ``near[1]`` (each n x 1) are the nearest squared distances of the same and of other labels.
    """
    nearest = near[:, :, 0]
    for r in range(G.shape[0]):
        i = start + r
        absorb(i, G[r], bounds, X, code, low, alpha, nearest, ceil)
        counts[0, r], counts[1, r], counts[2, r] = rank(alpha, code, i + 1, within)


@compiled()
def tile(start, G, bounds, rows, born, columns, near, ceil, within, found):  # type: ignore[no-untyped-def]
    """Let the rows ``start ..`` of a block, whose inner products are the rows of ``G``, meet the rows of a block.

    ``rows`` and ``columns`` are the two blocks as ``(X, code, low)``: of all columns if they are from an earlier block,
    of those before the row if they are from the same one (``within``). ``born`` (rows x 2) are the nearest squared
    distances of the rows among all that they have met, ``near`` (2 x columns) those of the columns at that time.
    Every fall of a column is written to ``found``: place ``2 column + side``, row, distance. Where ``found`` might
    overflow the work stops: returns how many rows are done, and how many falls were found.
    """
    X, code, low = columns
    place, time, distance = found
    used = 0
    for r in range(len(G)):
        i = start + r
        g = G[r, :i] if within else G[r]
        if used + len(g) > len(place):
            return r, used
        x, code_i, own = rows[0][i], rows[1][i], born[i]
        for j in meet(g, x, rows[2][i], code_i, own, bounds, X, code, low, near, ceil):
            side = 0 if code[j] == code_i else 1
            place[used], time[used], distance[used] = 2 * j + side, i, near[side, j]
            used += 1
        if within:
            settle(i, own, near, ceil, bounds[3], low)
    return len(G), used


@compiled()
def limit(near, tied):  # type: ignore[no-untyped-def]
    """What a squared distance must be below to enter the sorted list ``near``; where ties may enter too, just above."""
    return np.nextafter(near[-1], math.inf) if tied else near[-1]


@compiled()
def refresh(n, scale2, low, near, ceil, tied):  # type: ignore[no-untyped-def]
    """Express what is known of the first ``n`` rows in the filter's new scale."""
    for side in range(len(ceil)):
        for j in range(n):
            ceil[side, j] = ceiling(limit(near[side, j], tied), scale2, low[j])
