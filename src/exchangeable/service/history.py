"""The history of a stream: every step, in rows of columns, and roll-ups with which any stretch opens quickly.

Step n (from 1) has a p-value and a log10 capital. The table ``steps`` holds them, with the observations, in rows of
consecutive steps; ``rollups`` holds, for blocks of ``SIZES[level]`` steps (1 to 1,024, 1,025 to 2,048, .. at level 0),
the lowest, the highest and the last log10 capital and where they stood. Both are written in the transaction that takes
the observations. Readers should stand in one transaction, so that what they see is of one moment.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exchangeable.protocols import Floats, Integers

BLOCK, FACTOR = 1024, 32
SIZES = tuple(BLOCK * FACTOR**level for level in range(4))  # steps to a roll-up: 1,024, 32,768, 1,048,576, 33,554,432
SMALL = 256  # a row of fewer steps is small, and so many small rows in a run are made one
LEAST = 4  # points: the first and the last step, and a low and a high

Gap = tuple[int, int]


class Tail(NamedTuple):
    """The newest end of a stream: what ``append`` must know and would else have to read back.

    It is never changed: ``append`` gives the next one, and where the transaction fails the one before is still right.
    """

    n: int = 0
    block: Floats = np.empty(0)  # room for a block, filled up to n % BLOCK with log10; what follows may be written to
    rows: int = 0  # small rows of one width at the end of the table,
    steps: int = 0  # the steps in them,
    width: int = 0  # and the bytes of x in each step

    @staticmethod
    def load(connection: sqlite3.Connection, stream: int, n: int) -> Tail:
        """The end of a stream of n steps, from what is stored. O(BLOCK)."""
        if n == 0:
            return Tail()
        stored = _last(connection, stream)
        if stored != n:
            raise ValueError(f"the steps of stream {stream} must end at n = {n}, got {stored}")
        block, held = np.empty(BLOCK), n % BLOCK
        if held:
            block[:held] = _raw(connection, stream, n - held + 1, n).log10
        return Tail(n, block, *_run(connection, stream))


class Points(NamedTuple):
    """Steps of a stretch: all of them (``exact``), or the lowest and the highest of every ``width`` steps."""

    n: Integers
    log10: Floats
    p: Floats  # NaN where it was not looked up or is no longer stored; never so if exact
    exact: bool
    width: int  # the steps to a bucket; buckets begin at 1 + a multiple of it


class Stretch(NamedTuple):
    """Consecutive steps with their observations, as they were stored."""

    first: int
    seq: Integers
    x: Floats  # one row a step
    extra: dict[str, list[Any]]
    p: Floats
    log10: Floats


class Observations(NamedTuple):
    """What is stored under consecutive seqs: columns with one place for each."""

    stored: NDArray[np.bool_]  # False: pruned, expired, or not taken yet
    width: Integers  # numbers in x; -1 where nothing is stored
    x: Floats  # as wide as the widest; NaN where there is none
    extra: dict[str, list[Any]]  # None where there is none


# ------------------------------------------------------------------ writing


def append(
    connection: sqlite3.Connection,
    stream: int,
    tail: Tail,
    p: ArrayLike,
    log10: ArrayLike,
    *,
    x: bytes,
    seq: ArrayLike | None = None,
    extra: str | None = None,
) -> Tail:
    """Store the next steps and return the new tail, to be kept once the transaction has been committed.

    ``x`` holds the observations as little-endian float64, equally wide for each step. ``seq`` is left out where each
    observation's seq is its n. ``extra`` is a JSON object of lists (``y``, ``id``, ``time``), one place a step.
    O(steps), and every ``SMALL`` rows a merge of them.
    """
    values = np.asarray(log10, "<f8")
    count = len(values)
    if count == 0:
        return tail
    numbers = None if seq is None else np.asarray(seq, "<i8").tobytes()
    row = (stream, tail.n + 1, count, numbers, x, extra, np.asarray(p, "<f8").tobytes(), values.tobytes())
    _insert(connection, row)
    rows, steps, width = _longer(connection, stream, tail, count, len(x) // count)
    return Tail(tail.n + count, _roll(connection, stream, tail, values), rows, steps, width)


def _insert(connection: sqlite3.Connection, row: Sequence[Any]) -> None:
    connection.execute(
        "INSERT INTO steps (stream, first, count, seq, x, extra, p, log10) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
    )


def _roll(connection: sqlite3.Connection, stream: int, tail: Tail, values: Floats) -> Floats:
    """Make the roll-ups that are complete, and return the block that is not."""
    held = tail.n % BLOCK
    if held > 0 and held + len(values) < BLOCK:
        tail.block[held : held + len(values)] = values
        return tail.block
    joined = np.concatenate([tail.block[:held], values])
    whole = len(joined) - len(joined) % BLOCK
    if whole:
        _complete(connection, stream, 0, _rollups(tail.n - held + 1, joined[:whole].reshape(-1, BLOCK)))
    block = np.empty(BLOCK)  # another one: the tail before must stay right
    block[: len(joined) - whole] = joined[whole:]
    return block


def _rollups(first: int, blocks: Floats) -> list[tuple[Any, ...]]:
    """First, low and where, high and where, and last of whole blocks, one a row."""
    starts = first + BLOCK * np.arange(len(blocks))
    low, high = blocks.argmin(axis=1), blocks.argmax(axis=1)
    rows = np.arange(len(blocks))
    columns = (starts, blocks[rows, low], starts + low, blocks[rows, high], starts + high, blocks[:, -1])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _complete(connection: sqlite3.Connection, stream: int, level: int, rows: list[tuple[Any, ...]]) -> None:
    """Store roll-ups, and those of the levels above that they complete."""
    connection.executemany(
        "INSERT INTO rollups (stream, level, first, low, low_at, high, high_at, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(stream, level, *row) for row in rows],
    )
    if level + 1 < len(SIZES):
        ends = (row[0] - 1 + SIZES[level] for row in rows)
        starts = [end - SIZES[level + 1] + 1 for end in ends if end % SIZES[level + 1] == 0]
        if starts:
            _complete(connection, stream, level + 1, [_above(connection, stream, level, start) for start in starts])


def _above(connection: sqlite3.Connection, stream: int, level: int, first: int) -> tuple[Any, ...]:
    """The roll-up made of those of one level from ``first`` on."""
    parts = connection.execute(
        "SELECT low, low_at, high, high_at, last FROM rollups"
        " WHERE stream = ? AND level = ? AND first >= ? AND first < ? ORDER BY first",
        (stream, level, first, first + SIZES[level + 1]),
    ).fetchall()
    if len(parts) != FACTOR:
        raise ValueError(f"stream {stream} must have {FACTOR} roll-ups of level {level} from {first}, got {len(parts)}")
    low, high = min(parts, key=lambda part: part[0]), max(parts, key=lambda part: part[2])
    return first, low[0], low[1], high[2], high[3], parts[-1][4]


# ------------------------------------------------------------------ small rows made one


def _longer(connection: sqlite3.Connection, stream: int, tail: Tail, count: int, width: int) -> tuple[int, int, int]:
    """The run of small rows with a row more: how many, their steps, their width. A long run is merged."""
    if count >= SMALL:
        return 0, 0, 0
    rows, steps = (tail.rows, tail.steps) if width == tail.width else (0, 0)
    rows, steps = rows + 1, steps + count
    if rows < SMALL and steps < BLOCK:
        return rows, steps, width
    _merge(connection, stream, tail.n + count - steps + 1)
    return 0, 0, 0


def _run(connection: sqlite3.Connection, stream: int) -> tuple[int, int, int]:
    """The run of small rows at the end: how many, their steps, their width."""
    rows, steps, width = 0, 0, 0
    for count, length in connection.execute(
        "SELECT count, length(x) FROM steps WHERE stream = ? ORDER BY first DESC", (stream,)
    ):
        if count >= SMALL or (rows and length // count != width):
            break
        rows, steps, width = rows + 1, steps + count, length // count
    return rows, steps, width


def _merge(connection: sqlite3.Connection, stream: int, first: int) -> None:
    """Make one row of those from ``first`` on."""
    where = "FROM steps WHERE stream = ? AND first >= ?"
    rows = connection.execute(
        f"SELECT first, count, seq, x, extra, p, log10 {where} ORDER BY first",
        (stream, first),
    ).fetchall()
    firsts, counts, seqs, xs, extras, ps, log10s = zip(*rows, strict=True)
    connection.execute(f"DELETE {where}", (stream, first))
    seq = None
    if any(part is not None for part in seqs):
        seq = b"".join(_seq(*row[:3]).tobytes() for row in rows)
    extra = _joined(extras, counts)
    _insert(connection, (stream, firsts[0], sum(counts), seq, b"".join(xs), extra, b"".join(ps), b"".join(log10s)))


def _seq(first: int, count: int, seq: bytes | None) -> Integers:
    """The seqs of a row; without any they are the numbers of the steps."""
    return np.arange(first, first + count) if seq is None else np.frombuffer(seq, "<i8")


def _joined(extras: Iterable[str | None], counts: Iterable[int]) -> str | None:
    """JSON objects of lists end to end; where one lacks a list there is a null for each of its steps."""
    parts = [({} if extra is None else json.loads(extra), count) for extra, count in zip(extras, counts, strict=True)]
    names = dict.fromkeys(name for part, _ in parts for name in part)
    if not names:
        return None
    lists = {name: [value for part, count in parts for value in part.get(name, [None] * count)] for name in names}
    return json.dumps(lists, separators=(",", ":"))


# ------------------------------------------------------------------ reading


def read(connection: sqlite3.Connection, stream: int, start: int, stop: int, max_points: int = 1000) -> Points:
    """Steps ``start`` to ``stop``, both included: all of them if they are few, else thinned keeping lows and highs.

    The steps are cut into buckets of ``width`` steps; each gives its lowest and its highest log10 capital, each at its
    own n (the first of equals), and the first and the last step of the stretch are given too; at most ``max_points``.
    ``width`` is the least for which they fit, rounded up to whole roll-ups of the coarsest level that is no wider; what
    sticks out at both ends is read from the lower levels and from the rows.

    Where rows or lower roll-ups have been pruned the coarser ones answer: the points are true and lie in the stretch,
    but they are fewer, and a low or a high may be missing if the roll-up it belongs to has a lower or higher outside.

    O(BLOCK * max_points) time at the worst and whatever the length, because at most FACTOR roll-ups meet in a bucket.
    """
    if max_points < LEAST:
        raise ValueError(f"max_points must be at least {LEAST}, got {max_points}")
    start, stop = max(start, 1), min(stop, _last(connection, stream))
    steps = stop - start + 1
    width = 1 if steps <= max_points else _width(start, stop, (max_points - 2) // 2)
    if steps <= 0:
        return Points(np.empty(0, np.int64), np.empty(0), np.empty(0), True, width)
    ends = [_raw(connection, stream, n, n) for n in (start, stop)] if width > 1 else []
    parts = ends + _parts(connection, stream, start, stop, width)
    n, log10, p = (np.concatenate(column) for column in list(zip(*parts, strict=True))[:3])
    order = n.argsort(kind="stable")
    points = _thin(n[order], log10[order], p[order], width)
    return Points(*points, len(points[0]) == steps, width)


def _width(start: int, stop: int, buckets: int) -> int:
    """The steps to a bucket: few, but so many that the stretch has at most so many buckets."""
    width = -(-(stop - start + 1) // buckets)
    while True:
        unit = max((size for size in SIZES if size <= width), default=1)
        width = -(-width // unit) * unit
        if (stop - 1) // width - (start - 1) // width < buckets:
            return width
        width += unit


class _Part(NamedTuple):
    """Points known of the steps ``first`` to ``last``."""

    n: Integers
    log10: Floats
    p: Floats
    first: int
    last: int


def _parts(connection: sqlite3.Connection, stream: int, start: int, stop: int, width: int) -> list[_Part]:
    """Points that say what is known of a stretch, to within a width."""
    parts: list[_Part] = []
    gaps = [(start, stop)]

    def fill(source: Callable[[int, int], _Part]) -> None:
        found = [source(*gap) for gap in gaps]
        parts.extend(found)
        gaps[:] = [rest for gap, part in zip(gaps, found, strict=True) for rest in _around(gap, part)]

    within = [level for level, size in enumerate(SIZES) if size <= width]
    for level in reversed(within):
        fill(lambda a, b, level=level: _rolled(connection, stream, level, (a, b), (a, b - SIZES[level] + 1)))  # type: ignore[misc]
    fill(lambda a, b: _raw(connection, stream, a, b))
    for level in range(len(SIZES)):  # what has been pruned, from roll-ups that may stick out
        fill(lambda a, b, level=level: _rolled(connection, stream, level, (a, b), (a - SIZES[level] + 1, b)))  # type: ignore[misc]
    return parts


def _around(gap: Gap, part: _Part) -> list[Gap]:
    """What a part leaves open of a gap."""
    start, stop = gap
    if part.first > part.last:
        return [gap]
    return [(a, b) for a, b in ((start, part.first - 1), (part.last + 1, stop)) if a <= b]


def _rolled(connection: sqlite3.Connection, stream: int, level: int, gap: Gap, firsts: Gap) -> _Part:
    """The lows, highs and ends, if within a gap, of the roll-ups that begin within ``firsts``."""
    rows = connection.execute(
        "SELECT low_at, low, high_at, high, first, last FROM rollups"
        " WHERE stream = ? AND level = ? AND first >= ? AND first <= ? ORDER BY first",
        (stream, level, *firsts),
    ).fetchall()
    if not rows:
        return _Part(np.empty(0, np.int64), np.empty(0), np.empty(0), 1, 0)
    table = np.array(rows, np.float64)  # exact: no stream is 2**53 steps long
    table[:, 4] += SIZES[level] - 1
    pairs = table.reshape(-1, 2)
    pairs = pairs[(pairs[:, 0] >= gap[0]) & (pairs[:, 0] <= gap[1])]
    last = min(rows[-1][4] + SIZES[level] - 1, gap[1])
    return _Part(pairs[:, 0].astype(np.int64), pairs[:, 1], np.full(len(pairs), np.nan), max(rows[0][4], gap[0]), last)


def _raw(connection: sqlite3.Connection, stream: int, start: int, stop: int) -> _Part:
    """The steps of a stretch that are stored."""
    rows = connection.execute(
        "SELECT first, p, log10 FROM steps WHERE stream = ? AND first <= ? AND first >="
        " coalesce((SELECT max(first) FROM steps WHERE stream = ? AND first <= ?), ?) ORDER BY first",
        (stream, stop, stream, start, start),
    ).fetchall()
    first = rows[0][0] if rows else stop + 1
    p, log10 = (np.frombuffer(b"".join(row[column] for row in rows), "<f8") for column in (1, 2))
    part = slice(max(start - first, 0), max(stop - first + 1, 0))
    n = np.arange(first, first + len(p))[part]
    return _Part(n, log10[part], p[part], *((int(n[0]), int(n[-1])) if len(n) else (1, 0)))


def _last(connection: sqlite3.Connection, stream: int) -> int:
    """The number of the newest step, 0 if there is none."""
    row = connection.execute(
        "SELECT first + count - 1 FROM steps WHERE stream = ? ORDER BY first DESC LIMIT 1", (stream,)
    ).fetchone()
    return int(row[0]) if row else 0


def thin(n: Integers, log10: Floats, p: Floats, max_points: int) -> Points:
    """Consecutive steps thinned as ``read`` thins them, with buckets of equal width."""
    width = 1 if len(n) <= max_points else _width(int(n[0]), int(n[-1]), (max_points - 2) // 2)
    points = _thin(n, log10, p, width)
    return Points(*points, len(points[0]) == len(n), width)


def _thin(n: Integers, log10: Floats, p: Floats, width: int) -> tuple[Integers, Floats, Floats]:
    """Of points in order: the first low and the first high of each bucket, the first point and the last."""
    if len(n) == 0:
        return n, log10, p
    buckets = (n - 1) // width
    starts = np.flatnonzero(np.diff(buckets, prepend=buckets[0] - 1))
    sizes = np.diff(starts, append=len(n))
    lows = log10 == np.repeat(np.minimum.reduceat(log10, starts), sizes)
    highs = log10 == np.repeat(np.maximum.reduceat(log10, starts), sizes)
    kept = np.unique(np.concatenate([[0], _firsts(lows, buckets), _firsts(highs, buckets), [len(n) - 1]]))
    kept = kept[np.diff(n[kept], prepend=0) > 0]  # a step may be known from a row and from a roll-up
    return n[kept], log10[kept], p[kept]


def _firsts(mask: NDArray[np.bool_], buckets: Integers) -> Integers:
    """The first place in each bucket where the mask is set."""
    places = np.flatnonzero(mask)
    return places[np.diff(buckets[places], prepend=buckets[0] - 1) > 0]


# ------------------------------------------------------------------ observations


def observations(connection: sqlite3.Connection, stream: int, first_seq: int, last_seq: int) -> Observations:
    """What is stored under the seqs ``first_seq`` to ``last_seq``, to compare a repeat with it.

    Steps are in the order of seq, and a seq may have no step (its label never came), so ``n <= seq``; the row is found
    by halving. O(log n) rows looked at, and those that hold the answer.
    """
    count = last_seq - first_seq + 1
    parts = [part for part in _holding(connection, stream, first_seq, last_seq) if len(part.seq)]
    stored, width = np.zeros(count, np.bool_), np.full(count, -1, np.int64)
    x = np.full((count, max((part.x.shape[1] for part in parts), default=0)), np.nan)
    extra: dict[str, list[Any]] = {}
    for part in parts:
        places = part.seq - first_seq
        stored[places], width[places] = True, part.x.shape[1]
        x[places, : part.x.shape[1]] = part.x
        for name, values in part.extra.items():
            column = extra.setdefault(name, [None] * count)
            for place, value in zip(places.tolist(), values, strict=True):
                column[place] = value
    return Observations(stored, width, x, extra)


def _holding(connection: sqlite3.Connection, stream: int, first_seq: int, last_seq: int) -> Iterator[Stretch]:
    for stretch in _stretches(connection, stream, _sought(connection, stream, first_seq)):
        if stretch.seq[0] > last_seq:
            return
        places = np.searchsorted(stretch.seq, [first_seq, last_seq + 1])
        yield _cut(stretch, slice(*places.tolist()))


def _sought(connection: sqlite3.Connection, stream: int, seq: int) -> int:
    """The first step of the last row that begins at or before a seq (1 if there is none)."""
    low, high, probe = 1, seq, seq  # probed where n = seq, which is nearly always right
    while low < high:
        row = connection.execute(
            "SELECT first, count, seq FROM steps WHERE stream = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (stream, probe),
        ).fetchone()
        if row is None or _seq(*row)[0] <= seq:
            low = probe
        else:
            high = row[0] - 1
        probe = (low + high + 1) // 2
    return low


def replay(connection: sqlite3.Connection, stream: int, after: int) -> Iterator[Stretch]:
    """The steps after step ``after``, in order, with their observations: what a snapshot of that moment lacks."""
    for stretch in _stretches(connection, stream, after + 1):
        later = _cut(stretch, slice(max(after + 1 - stretch.first, 0), None))
        if len(later.p):
            yield later


def _stretches(connection: sqlite3.Connection, stream: int, n: int) -> Iterator[Stretch]:
    """Rows, from the one that holds step n on."""
    for first, count, seq, x, extra, p, log10 in connection.execute(
        "SELECT first, count, seq, x, extra, p, log10 FROM steps WHERE stream = ? AND first >="
        " coalesce((SELECT max(first) FROM steps WHERE stream = ? AND first <= ?), 0) ORDER BY first",
        (stream, stream, n),
    ):
        table = np.frombuffer(x, "<f8").reshape(count, -1) if x else np.empty((count, 0))
        lists = {} if extra is None else json.loads(extra)
        yield Stretch(
            first, _seq(first, count, seq), table, lists, np.frombuffer(p, "<f8"), np.frombuffer(log10, "<f8")
        )


def _cut(stretch: Stretch, part: slice) -> Stretch:
    first, seq, x, extra, p, log10 = stretch
    lists = {name: values[part] for name, values in extra.items()}
    return Stretch(first + part.start, seq[part], x[part], lists, p[part], log10[part])


# ------------------------------------------------------------------ retention


def prune(connection: sqlite3.Connection, stream: int, keep_from: int, level0_from: int) -> int:
    """Delete the rows wholly before step ``keep_from`` and the lowest roll-ups before ``level0_from``.

    Nothing that a restart needs may lie before ``keep_from``: a snapshot must cover it. The newest block, while it is
    incomplete, and the newest row stay in any case; a lowest roll-up goes only if one above it covers it and its rows
    are gone. Returns the first step that is still stored.
    """
    last = _last(connection, stream)
    if last == 0:
        return 1
    keep_from = min(keep_from, last - last % BLOCK + 1)
    connection.execute(
        "DELETE FROM steps WHERE stream = ?1 AND first < ?2 AND first + count <= min(?2, ?3)", (stream, keep_from, last)
    )
    (first,) = connection.execute("SELECT min(first) FROM steps WHERE stream = ?", (stream,)).fetchone()
    covered = min(level0_from, first) - 1
    covered -= covered % SIZES[1]
    connection.execute("DELETE FROM rollups WHERE stream = ? AND level = 0 AND first <= ?", (stream, covered))
    return int(first)
