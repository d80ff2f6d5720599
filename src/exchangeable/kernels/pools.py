"""A growing pool of scores, and where each new one stands in it: a counted B-tree in flat arrays.

Row k of the arrays is node k, of at most ``WIDTH`` entries in increasing order. An entry of a leaf is a distinct score
and how often it was seen; an entry of an inner node is a child, how many scores are below it, and a bound: all of them
are at most the bound, and all that follow are greater (the bound of the last child is not used). A full node is split
in two halves on the way down, so that there is always room for what comes up from below.

One score costs O(log m) with m the number of distinct scores: at each level one pass over a node, without branches,
counts the entries to the left and the scores to the right. Nodes but the root are at least half full: memory O(m).

Reference: Bayer and McCreight (1972); Comer (1979).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exchangeable.kernels.compilation import compiled

WIDTH = 64  # entries of a node

# head: the root, how many nodes are in use, levels of inner nodes, how many distinct scores, and how many in all
ROOT, NODES, HEIGHT, DISTINCT, TOTAL = range(5)

State = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.int64], NDArray[np.int32]]


def fresh(nodes: int) -> State:
    """An empty pool with room for so many nodes: head, and of each node its size, scores, counts and children."""
    head, shape = np.array([0, 1, 0, 0, 0]), (nodes, WIDTH)
    state = head, np.zeros(nodes, np.int32), np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int32)
    for array in state[2:]:
        array.fill(0)  # np.zeros would get small pages, which are slow to find one's way in
    return state


def moved(state: State, larger: State) -> State:
    """The larger one, with everything that is in the other."""
    used = state[0][NODES]
    larger[0][:] = state[0]
    larger[1][:used], larger[2][:used], larger[3][:used], larger[4][:used] = (array[:used] for array in state[1:])
    return larger


def nodes_for(distinct: int) -> int:
    """As many nodes as that many distinct scores can need."""
    if distinct < WIDTH:
        return 1
    leaves = 2 * distinct // WIDTH
    return leaves + leaves // 16 + 16  # inner nodes are half full as well, and one on each level may be less


@compiled()
def _split(parent, i, head, size, score, count, child):  # type: ignore[no-untyped-def]
    """Move the right half of the parent's full i-th child into a new node, its neighbour to the right."""
    left, right = child[parent, i], head[NODES]
    head[NODES] += 1
    half = WIDTH // 2
    moved = 0
    for j in range(half):
        score[right, j] = score[left, half + j]
        count[right, j] = count[left, half + j]
        child[right, j] = child[left, half + j]
        moved += count[left, half + j]
    size[left] = size[right] = half
    for j in range(size[parent], i + 1, -1):
        score[parent, j] = score[parent, j - 1]
        count[parent, j] = count[parent, j - 1]
        child[parent, j] = child[parent, j - 1]
    size[parent] += 1
    score[parent, i + 1], count[parent, i + 1], child[parent, i + 1] = score[parent, i], moved, right
    score[parent, i] = score[left, half - 1]
    count[parent, i] -= moved


@compiled()
def _grow(head, size, score, count, child):  # type: ignore[no-untyped-def]
    """A new root above the old one, which is full and split in two."""
    root = head[NODES]
    size[root], score[root, 0], count[root, 0], child[root, 0] = 1, np.inf, head[TOTAL], head[ROOT]
    head[ROOT] = root
    head[NODES] += 1
    head[HEIGHT] += 1
    _split(root, 0, head, size, score, count, child)
    return root


@compiled()
def _look(x, size, score, count):  # type: ignore[no-untyped-def]
    """Over the first entries of a node: how many scores (or bounds) are less than x, and the counts of the others."""
    less, right = 0, 0
    for j in range(size):
        less += score[j] < x
        right += 0 if score[j] < x else count[j]
    return less, right


@compiled()
def _insert(i, size, score, count, x):  # type: ignore[no-untyped-def]
    """Make x the i-th score of a leaf."""
    for j in range(size, i, -1):
        score[j] = score[j - 1]
        count[j] = count[j - 1]
    score[i], count[i] = x, 1


@compiled()
def add(x, head, size, score, count, child):  # type: ignore[no-untyped-def]
    """Let x join: how many scores are greater, and how many equal, itself included."""
    node = head[ROOT]
    if size[node] == WIDTH:
        node = _grow(head, size, score, count, child)
    head[TOTAL] += 1
    greater = 0
    for _ in range(head[HEIGHT]):
        i, right = _look(x, size[node] - 1, score[node], count[node])
        right += count[node, size[node] - 1]
        if size[child[node, i]] == WIDTH:
            _split(node, i, head, size, score, count, child)
            if score[node, i] < x:
                right -= count[node, i]
                i += 1
        greater += right - count[node, i]
        count[node, i] += 1
        node = child[node, i]
    i, right = _look(x, size[node], score[node], count[node])
    if i < size[node] and score[node, i] == x:
        count[node, i] += 1
        return greater + right - count[node, i] + 1, count[node, i]
    _insert(i, size[node], score[node], count[node], x)
    size[node] += 1
    head[DISTINCT] += 1
    return greater + right, 1


@compiled()
def extend(head, size, score, count, child, x, greater, equal):  # type: ignore[no-untyped-def]
    """Let the scores x join one by one; there must be nodes enough for them."""
    for k in range(len(x)):
        greater[k], equal[k] = add(x[k], head, size, score, count, child)
