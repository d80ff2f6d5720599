"""Reading the capital over a range of steps, thinned so that its lows and highs remain."""

from __future__ import annotations

import sqlite3
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable.protocols import Floats, Integers
from exchangeable.service.checksums import damaged
from exchangeable.service.history import rollups
from exchangeable.service.history.rows import Extent, extent

MIN_POINTS = 4  # the first and the last step, a low and a high

Range = tuple[int, int]  # the first and the last step


class Points(NamedTuple):
    """Steps of a range: all of them (``exact``), or the lowest and the highest of every ``width`` steps."""

    n: Integers
    log10: Floats
    p: Floats  # NaN if it was not read or is no longer stored; never NaN if exact
    exact: bool
    width: int  # steps per bucket; buckets start at 1 + a multiple of it


class Part(NamedTuple):
    """The points of one source that cover the steps ``first`` to ``last``."""

    n: Integers
    log10: Floats
    p: Floats
    first: int
    last: int


def read(connection: sqlite3.Connection, stream: int, start: int, stop: int, max_points: int = 1000) -> Points:
    """Return the steps ``start`` to ``stop`` (both included): all of them if they are few, else thinned.

    The range is divided into buckets of ``width`` steps. Each bucket gives its lowest and its highest log10 capital
    (the first of equal ones); the first and the last step of the range are always included. The result has at most
    ``max_points`` points. ``width`` is the smallest that allows this, rounded up to a multiple of the largest roll-up
    that is no wider. The two ends of the range, which roll-ups do not cover, are read from lower levels and from the
    rows.

    Where rows or lower roll-ups have been pruned, coarser roll-ups are used. All points are then still correct and
    within the range, but there are fewer, and a low or a high is missing if the roll-up that covers it has a lower or
    higher value outside the range.

    O(BLOCK * max_points) time at worst, for any length, since at most FACTOR roll-ups fall into a bucket.
    """
    if max_points < MIN_POINTS:
        raise ValueError(f"max_points must be at least {MIN_POINTS}, got {max_points}")
    known = extent(connection, stream)
    start, stop = max(start, 1), min(stop, known.n)
    steps = stop - start + 1
    if steps <= 0:
        return Points(np.empty(0, np.int64), np.empty(0), np.empty(0), True, 1)
    width = 1 if steps <= max_points else bucket_width(start, stop, (max_points - 2) // 2)
    ends = [stored_points(connection, stream, n, n, known) for n in (start, stop)] if width > 1 else []
    parts = ends + _collect(connection, stream, start, stop, width, known)
    n, log10, p = (np.concatenate([getattr(part, name) for part in parts]) for name in ("n", "log10", "p"))
    order = n.argsort(kind="stable")
    points = _thin(n[order], log10[order], p[order], width)
    return Points(*points, len(points[0]) == steps, width)


def thin(n: Integers, log10: Floats, p: Floats, max_points: int) -> Points:
    """Thin consecutive steps in memory as ``read`` does."""
    width = 1 if len(n) <= max_points else bucket_width(int(n[0]), int(n[-1]), (max_points - 2) // 2)
    points = _thin(n, log10, p, width)
    return Points(*points, len(points[0]) == len(n), width)


def bucket_width(start: int, stop: int, buckets: int) -> int:
    """Return the smallest suitable width of a bucket, in steps, with which ``buckets`` of them cover the range."""
    width = -(-(stop - start + 1) // buckets)
    while True:
        unit = max((size for size in rollups.SIZES if size <= width), default=1)
        width = -(-width // unit) * unit
        if (stop - 1) // width - (start - 1) // width < buckets:
            return width
        width += unit


# ------------------------------------------------------------------ sources


def _collect(
    connection: sqlite3.Connection, stream: int, start: int, stop: int, width: int, known: Extent
) -> list[Part]:
    """Return points that describe a range at a resolution of ``width`` steps, from the coarsest suitable sources."""
    levels = range(len(rollups.SIZES))
    inside = [level for level in reversed(levels) if rollups.SIZES[level] <= width]
    sources = [
        *(partial(_rolled_up, connection, stream, level, known=known, overlapping=False) for level in inside),
        partial(stored_points, connection, stream, known=known),
        *(partial(_rolled_up, connection, stream, level, known=known, overlapping=True) for level in levels),  # pruned
    ]
    parts: list[Part] = []
    gaps = [(start, stop)]
    for source in sources:
        results = [source(*gap) for gap in gaps]
        parts += results
        gaps = [rest for gap, part in zip(gaps, results, strict=True) for rest in _uncovered(gap, part)]
    return parts


def _uncovered(gap: Range, part: Part) -> list[Range]:
    """Return the ranges of a gap that a part does not cover."""
    start, stop = gap
    if part.first > part.last:
        return [gap]
    return [(a, b) for a, b in ((start, part.first - 1), (part.last + 1, stop)) if a <= b]


def _rolled_up(
    connection: sqlite3.Connection, stream: int, level: int, start: int, stop: int, *, known: Extent, overlapping: bool
) -> Part:
    """Return the lows, highs and ends of the roll-ups of one level that lie inside a range, or that overlap it."""
    length = rollups.SIZES[level] - 1
    low, high = (start - length, stop) if overlapping else (start, stop - length)
    rows = connection.execute(
        "SELECT low_at, low, high_at, high, first, last FROM rollups"
        " WHERE stream = ? AND level = ? AND first >= ? AND first <= ? ORDER BY first",
        (stream, level, low, high),
    ).fetchall()
    if not _complete([row[4] for row in rows], low, high, level, known):
        raise damaged(connection, "rollups", stream)
    if not rows:
        return Part(np.empty(0, np.int64), np.empty(0), np.empty(0), 1, 0)
    table = np.array(rows, np.float64)  # exact, since no stream has 2**53 steps
    table[:, 4] += length
    pairs = table.reshape(-1, 2)
    pairs = pairs[(pairs[:, 0] >= start) & (pairs[:, 0] <= stop)]
    n, log10, p = pairs[:, 0].astype(np.int64), pairs[:, 1], np.full(len(pairs), np.nan)
    return Part(n, log10, p, max(rows[0][4], start), min(rows[-1][4] + length, stop))


def _complete(found: list[int], start: int, stop: int, level: int, known: Extent) -> bool:
    """Return whether these are all roll-ups of a level that start in a range; the first of level 0 may be pruned."""
    size = rollups.SIZES[level]
    first, last = (max(start, 1) + size - 2) // size, min((stop - 1) // size, known.n // size - 1)
    expected = [1 + size * k for k in range(first, last + 1)]
    pruned = len(expected) - len(found)
    if pruned <= 0 or level > 0:
        return found == expected
    covered = (expected[pruned] if found else expected[-1] + size) - 1
    return found == expected[pruned:] and covered < known.kept and (not found or covered % rollups.SIZES[1] == 0)


def stored_points(
    connection: sqlite3.Connection, stream: int, start: int, stop: int, known: Extent | None = None
) -> Part:
    """Return the steps of a range that are stored one by one; raise if one is missing of those that must be."""
    rows = connection.execute(
        "SELECT first, p, log10, count FROM steps WHERE stream = ? AND first <= ? AND first >="
        " coalesce((SELECT max(first) FROM steps WHERE stream = ? AND first <= ?), ?) ORDER BY first",
        (stream, stop, stream, start, start),
    ).fetchall()
    first = rows[0][0] if rows else stop + 1
    p, log10 = (np.frombuffer(b"".join(row[column] for row in rows), "<f8") for column in (1, 2))
    part = slice(max(start - first, 0), max(stop - first + 1, 0))
    n = np.arange(first, first + len(p))[part]
    missing = any(row[0] + row[3] != later[0] for row, later in pairwise(rows))
    if known is not None:
        wanted = min(stop, known.n) - max(start, known.kept) + 1
        missing |= wanted > 0 and len(n) < wanted
    if missing:
        raise damaged(connection, "steps", stream)
    return Part(n, log10[part], p[part], *((int(n[0]), int(n[-1])) if len(n) else (1, 0)))


# ------------------------------------------------------------------ thinning


def _thin(n: Integers, log10: Floats, p: Floats, width: int) -> tuple[Integers, Floats, Floats]:
    """Select, of points in order, the first low and the first high of each bucket, the first point and the last."""
    if len(n) == 0:
        return n, log10, p
    buckets = (n - 1) // width
    starts = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    sizes = np.diff(starts, append=len(n))
    lows = log10 == np.repeat(np.minimum.reduceat(log10, starts), sizes)
    highs = log10 == np.repeat(np.maximum.reduceat(log10, starts), sizes)
    selected = np.unique(np.concatenate([[0], _firsts(lows, buckets), _firsts(highs, buckets), [len(n) - 1]]))
    selected = selected[np.diff(n[selected], prepend=0) > 0]  # a step may be known from a row and from a roll-up
    return n[selected], log10[selected], p[selected]


def _firsts(mask: NDArray[np.bool_], buckets: Integers) -> Integers:
    """Return the first position in each bucket where the mask is set."""
    positions = np.flatnonzero(mask)
    return positions[np.diff(buckets[positions], prepend=buckets[0] - 1) > 0]
