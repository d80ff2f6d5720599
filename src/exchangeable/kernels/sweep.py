"""From the births and falls of nearest distances to the ranks of all examples, in the order of time.

The two nearest squared distances of example j (``side`` 0: own label, 1: others) have the place ``2 j + side``. They
are *born* when j arrives, and *fall* when a later example is nearer than all before it; between, its score stands
still.
"""

from __future__ import annotations

import numpy as np

from exchangeable.kernels.compilation import compiled
from exchangeable.kernels.nearest import ratio


@compiled()
def gather(order, place, time, distance, born, near, true):  # type: ignore[no-untyped-def]
    """Take distances found anywhere, ``order`` by time: the births and the nearest distances, and which are true falls.

    ``born`` and ``near`` are flat, by place. A distance found at the time of its own example belongs to its birth.
    """
    for e in order:
        at = place[e]
        birth = time[e] == at >> 1
        if birth and distance[e] < born[at]:
            born[at] = distance[e]
        true[e] = not birth and distance[e] < near[at]
        if distance[e] < near[at]:
            near[at] = distance[e]


@compiled()
def scores(born, place, distance):  # type: ignore[no-untyped-def]
    """The first score of each example, and its score after each decrease of a nearest distance (in time order).

    Scores are the ratios of squared distances in ``nearest.py``, which keep exact ties.
    """
    near = born.copy()
    first = np.empty(len(born) // 2)
    for j in range(len(first)):
        first[j] = ratio(born[2 * j], born[2 * j + 1])
    later = np.empty(len(place))
    for e in range(len(place)):
        near[place[e]] = distance[e]
        j = place[e] >> 1
        later[e] = ratio(near[2 * j], near[2 * j + 1])
    return first, later


@compiled()
def _add(tree, level, change):  # type: ignore[no-untyped-def]
    """Change the count of a level (from 1) of a Fenwick tree: O(log)."""
    while level < len(tree):
        tree[level] += change
        level += level & -level


@compiled()
def _up_to(tree, level):  # type: ignore[no-untyped-def]
    """How many are counted on the levels 1 .. level: O(log)."""
    total = 0
    while level > 0:
        total += tree[level]
        level -= level & -level
    return total


@compiled()
def sweep(levels, first, later, place, time, counts):  # type: ignore[no-untyped-def]
    """Rank every example at the time when it arrives: ``counts`` (3 x n) of the greater, the equal, and all.

    ``first`` and ``later`` are the scores' places (from 1) among ``levels`` distinct ones; a Fenwick tree counts how
    many examples stand on each: O((n + falls) log(n + falls)).
    """
    tree = np.zeros(levels + 1, np.int64)
    now = first.copy()
    e = 0
    for i in range(len(first)):
        while e < len(place) and time[e] == i:
            j = place[e] >> 1
            _add(tree, now[j], -1)
            _add(tree, later[e], 1)
            now[j] = later[e]
            e += 1
        _add(tree, first[i], 1)
        up_to = _up_to(tree, first[i])
        counts[0, i], counts[1, i], counts[2, i] = i + 1 - up_to, up_to - _up_to(tree, first[i] - 1), i + 1
