"""The k nearest neighbours of every example, kept exact while examples arrive; scores made of them.

The filter is that of ``nearest.py``: float32 inner products decide which distances are computed, in float64.

Every example has, on each *side*, a sorted list of its k least squared distances (infinite where there are fewer).
Labelled examples have two sides, the own label (0) and the others (1); unlabelled ones have one. Where the neighbours'
labels enter the score the list is sorted by (distance, label), so that it is the same for every order of arrival.
"""

from __future__ import annotations

import math

import numpy as np

from exchangeable.kernels.compilation import compiled
from exchangeable.kernels.nearest import ceiling, limit, quotient, rank, reach, squared_distance, survey

CHUNK = 32  # smaller than for one neighbour: lists of k change more often


@compiled(fastmath={"nnan", "nsz"})
def _survey_all(g, low_i, low, ceil):  # type: ignore[no-untyped-def]
    """``survey`` for one side: the least ``low_j - 2 f_i.f_j``, and whether a list of one of the columns may change."""
    least = np.float32(math.inf)
    hits = 0
    for j in range(len(g)):
        twice = np.float32(2.0) * g[j]
        hits += low_i - twice < ceil[j]
        value = low[j] - twice
        least = value if value < least else least
    return least, hits > 0


@compiled()
def _kth_least(i, g, side, sides, least, label, low, best):  # type: ignore[no-untyped-def]
    """The k-th least finite ``low_j - 2 f_i.f_j`` of a side; ``best`` is scratch space for k numbers."""
    best[:] = np.float32(math.inf)
    for c in range((i + CHUNK - 1) // CHUNK):
        if least[c, side] >= best[-1]:
            continue
        for j in range(c * CHUNK, min((c + 1) * CHUNK, i)):
            value = low[j] - np.float32(2.0) * g[j]
            if not -math.inf < value < best[-1] or (sides == 2 and (label[j] == label[i]) != (side == 0)):
                continue
            at = len(best) - 1
            while at > 0 and value < best[at - 1]:
                best[at] = best[at - 1]
                at -= 1
            best[at] = value
    return best[-1]


@compiled()
def place(near, tags, distance, tag):  # type: ignore[no-untyped-def]
    """Enter a distance (and its tag, if tags are kept) into a sorted list of k; whether the list has changed."""
    tied = len(tags) > 0
    at = len(near)
    while at > 0 and (distance < near[at - 1] or (tied and distance == near[at - 1] and tag < tags[at - 1])):
        at -= 1
    if at == len(near):
        return False
    for m in range(len(near) - 1, at, -1):
        near[m] = near[m - 1]
        if tied:
            tags[m] = tags[m - 1]
    near[at] = distance
    if tied:
        tags[at] = tag
    return True


@compiled()
def absorb(i, g, bounds, X, label, low, near, tags, ceil, changed):  # type: ignore[no-untyped-def]
    """Let example ``i`` (inner products ``g`` with all earlier ones) join: update every list of neighbours.

    Returns how many examples have another list than before; ``changed`` begins with their numbers. The tag that
    ``tags`` may keep with a distance is the neighbour's label. ``bounds`` as in ``nearest.py``.
    """
    scale2, low_i, label_i, sides, tied = bounds[3], low[i], label[i], len(ceil), tags.shape[2] > 0
    chunks = (i + CHUNK - 1) // CHUNK
    least = np.empty((chunks, 2), np.float32)
    fall = np.empty(chunks, np.bool_)
    for c in range(chunks):
        at = slice(c * CHUNK, min((c + 1) * CHUNK, i))
        if sides == 1:
            least[c, 0], fall[c] = _survey_all(g[at], low_i, low[at], ceil[0, at])
            least[c, 1] = math.inf
        else:
            least[c, 0], least[c, 1], fall[c] = survey(
                g[at], low_i, label_i, label[at], low[at], ceil[0, at], ceil[1, at]
            )
    own = np.full(2, math.inf, np.float32)
    best = np.empty(near.shape[2], np.float32)
    for side in range(sides):
        near[side, i] = math.inf
        own[side] = reach(low_i, _kth_least(i, g, side, sides, least, label, low, best), bounds)
    count = 0
    eight = np.empty(8)
    for c in range(chunks):
        # (not >=, so that minus infinity less minus infinity counts as a hit)
        close = not low_i + least[c, 0] >= own[0] or not low_i + least[c, 1] >= own[1]
        if not (fall[c] or close):
            continue
        for j in range(c * CHUNK, min((c + 1) * CHUNK, i)):
            side = 0 if sides == 1 or label[j] == label_i else 1
            value = low_i - np.float32(2.0) * g[j]
            # (a tagged list that is full of duplicates has room for lesser tags only)
            theirs = value < ceil[side, j] and (not tied or near[side, j, -1] > 0.0 or label_i < tags[side, j, -1])
            mine = value < own[side] - low[j] and (not tied or near[side, i, -1] > 0.0 or label[j] < tags[side, i, -1])
            if not (theirs or mine):
                continue
            distance = squared_distance(X[i], X[j], eight)
            if mine and place(near[side, i], tags[side, i], distance, label[j]):
                own[side] = min(own[side], ceiling(limit(near[side, i], tied), scale2, np.float32(0.0)))
            if theirs and place(near[side, j], tags[side, j], distance, label_i):
                ceil[side, j] = ceiling(limit(near[side, j], tied), scale2, low[j])
                changed[count] = j
                count += 1
    for side in range(sides):
        ceil[side, i] = ceiling(limit(near[side, i], tied), scale2, low_i)
    changed[count] = i
    return count + 1


@compiled()
def mean_distance(near):  # type: ignore[no-untyped-def]
    """Mean distance to the neighbours there are, added from the nearest on; infinite if there is none."""
    total = 0.0
    count = 0
    while count < len(near) and near[count] < math.inf:
        total += math.sqrt(near[count])
        count += 1
    return total / count if count else math.inf


@compiled()
def residual(label, near, tags):  # type: ignore[no-untyped-def]
    """The label less the mean of the neighbours' labels, added from the nearest on; 0 if there is none."""
    total = 0.0
    count = 0
    while count < len(near) and near[count] < math.inf:
        total += tags[count]
        count += 1
    return label - total / count if count else 0.0


@compiled()
def ratios(start, G, bounds, X, label, low, alpha, near, tags, ceil, within, counts):  # type: ignore[no-untyped-def]
    """Absorb the rows ``start ..``: mean distance to the own label over mean distance to the others."""
    changed = np.empty(start + G.shape[0], np.int64)
    for r in range(G.shape[0]):
        for j in changed[: absorb(start + r, G[r], bounds, X, label, low, near, tags, ceil, changed)]:
            alpha[j] = quotient(mean_distance(near[0, j]), mean_distance(near[1, j]))
        counts[0, r], counts[1, r], counts[2, r] = rank(alpha, label, start + r + 1, within)


@compiled()
def distances(start, G, bounds, X, label, low, alpha, near, tags, ceil, within, counts):  # type: ignore[no-untyped-def]
    """Absorb the rows ``start ..``: mean distance."""
    changed = np.empty(start + G.shape[0], np.int64)
    for r in range(G.shape[0]):
        for j in changed[: absorb(start + r, G[r], bounds, X, label, low, near, tags, ceil, changed)]:
            alpha[j] = mean_distance(near[0, j])
        counts[0, r], counts[1, r], counts[2, r] = rank(alpha, label, start + r + 1, within)


@compiled()
def residuals(start, G, bounds, X, label, low, alpha, near, tags, ceil, within, counts):  # type: ignore[no-untyped-def]
    """Absorb the rows ``start ..``: label less mean label of the neighbours."""
    changed = np.empty(start + G.shape[0], np.int64)
    for r in range(G.shape[0]):
        for j in changed[: absorb(start + r, G[r], bounds, X, label, low, near, tags, ceil, changed)]:
            alpha[j] = residual(label[j], near[0, j], tags[0, j])
        counts[0, r], counts[1, r], counts[2, r] = rank(alpha, label, start + r + 1, within)
