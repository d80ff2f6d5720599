"""The state of many streams as bytes: a ZIP archive of plain columns, all of which are checked when they are read.

state.json   {"format": "exchangeable monitors", "version": 5, "package": .., "recipe": {..}, "keys": "str",
              "progress": [joined, version, since]}  # since: -1 for the state of all keys, else of those changed since
*.npy        the columns, one-dimensional; counts in the narrowest integers that hold them
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exchangeable import native
from exchangeable.keyed import keys
from exchangeable.keyed.columns import Columns
from exchangeable.keyed.pools import Bins, Scores
from exchangeable.keyed.ragged import Ragged
from exchangeable.snapshot import archive
from exchangeable.tracker import check_records
from exchangeable.validation import format_value

FORMAT, VERSION = "exchangeable monitors", 5
HEAD = {"format", "keys", "package", "progress", "recipe", "version"}
COUNTS = ("|u1", "<u2", "<u4", "<u8")  # dtypes of counts
INTEGERS, REALS, BYTES = ("<i8",), ("<f8",), ("|u1",)
ANY = (*COUNTS, *INTEGERS, *REALS)
MAX_COUNT, MAX_LOG_VALUE = 2**53, 1e300
FLAGS = native.KEYED_FLAG_PASSED | native.KEYED_FLAG_FORGOT | native.KEYED_FLAG_FULL
MAX_SHOWN = 200  # characters of a recipe that a message shows

Arrays = dict[str, NDArray[Any]]


class Progress(NamedTuple):
    """How far the streams of a state have come; the changes after ``since``, or everything if that is -1."""

    joined: int
    version: int
    since: int


def encode(columns: Columns, progress: Progress, recipe: Mapping[str, str]) -> bytes:
    """Return the columns, their progress, and the description of their recipe, as bytes."""
    kind = "str" if columns.names is None else keys.key_type(columns.names)
    package = sys.modules["exchangeable"].__version__
    head = {"format": FORMAT, "version": VERSION, "package": package, "recipe": dict(recipe), "keys": kind}
    head["progress"] = list(progress)
    return write_state(head, _arrays(columns, kind))


def decode(data: Any, empty: Columns, recipe: Mapping[str, str]) -> tuple[Columns, Progress]:
    """Return the encoded columns and their progress.

    Raise ValueError unless they have this recipe and the shapes of the empty columns.
    """
    members, head = open_state(data)
    _check_recipe(head["recipe"], recipe)
    kind = head["keys"]
    arrays = {name: read_column(members, name, *dtypes) for name, dtypes in _expected(empty, kind).items()}
    if len(members) != 1 + len(arrays):
        raise ValueError(f"data must hold state.json and {', '.join(arrays)}, got {format_value(list(members))}")
    try:
        progress, columns = _progress(head["progress"]), _columns(arrays, empty, kind)
        _check_joined(columns.integers[:, native.KEYED_JOINED], progress)
    except ValueError as error:
        raise ValueError(f"data must be the state of monitors: {error}") from error
    return columns, progress


def seed_of(data: Any) -> int:
    """Return the seed of an encoded state."""
    stored = open_state(data)[1]["recipe"].get("seed")
    try:
        return int(stored)
    except (TypeError, ValueError):
        raise ValueError(f"data must hold the seed of its monitors, got {format_value(stored)}") from None


# ------------------------------------------------------------------ columns and arrays


def _expected(empty: Columns, kind: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the arrays that a state must hold, and the dtypes that each may have."""
    dtypes: dict[str, tuple[str, ...]] = {"keys": INTEGERS if kind == "int" else COUNTS, "text": BYTES}
    dtypes |= {"integers": INTEGERS, "reals": REALS, "bet": REALS, "alarm": REALS}
    dtypes |= {"spans": INTEGERS, "spans_used": COUNTS}
    if isinstance(empty.pool, Scores):
        dtypes |= {"pool_used": COUNTS, "scores": REALS}
    return dtypes | ({} if empty.pool is None else {"counts": COUNTS})


def _arrays(columns: Columns, kind: str) -> Arrays:
    names, text = np.empty(0, np.int64), np.empty(0, np.uint8)
    if columns.names is not None:
        names, text = keys.to_arrays(columns.names)
    arrays: Arrays = {"keys": names, "text": text}
    arrays |= {"integers": columns.integers, "reals": columns.reals, "bet": columns.bet, "alarm": columns.alarm}
    arrays |= {"spans": columns.spans.columns[0], "spans_used": columns.spans.used}
    if isinstance(columns.pool, Scores):
        scores, counts = columns.pool.rows.columns
        arrays |= {"pool_used": columns.pool.rows.used, "scores": scores, "counts": counts}
    elif columns.pool is not None:
        arrays["counts"] = columns.pool.counts
    return arrays


def _narrowed(counts: NDArray[Any]) -> NDArray[Any]:
    """Convert counts to the narrowest integers that hold them."""
    most = int(counts.max(initial=0))
    return counts.astype(next(dtype for dtype in COUNTS if most <= np.iinfo(dtype).max))


def _columns(arrays: Arrays, empty: Columns, kind: str) -> Columns:
    names = keys.from_arrays(kind, arrays["keys"], arrays["text"])
    count = len(names)
    columns = Columns(
        names if count else None,
        _table("integers", arrays["integers"], count, empty.integers),
        _table("reals", arrays["reals"], count, empty.reals),
        _table("bet", arrays["bet"], count, empty.bet),
        _table("alarm", arrays["alarm"], count, empty.alarm),
        _ragged(count, arrays["spans_used"], arrays["spans"]),
        _pool(arrays, empty.pool, count),
        np.zeros(count, np.bool_),
    )
    _check(columns)
    return columns


def _progress(stored: Any) -> Progress:
    numbers = stored if isinstance(stored, list) and len(stored) == 3 else [None] * 3
    if not all(type(number) is int and -1 <= number <= MAX_COUNT for number in numbers) or min(numbers[:2]) < 0:
        raise ValueError(f"progress must be joined, version and since, got {format_value(stored)}")
    return Progress(*numbers)


def _pool(arrays: Arrays, empty: Bins | Scores | None, count: int) -> Bins | Scores | None:
    if empty is None:
        return None
    counts = _counts("counts", arrays["counts"])
    if isinstance(empty, Bins):
        return Bins(_table("counts", counts, count, empty.counts))
    return Scores(empty.most, _ragged(count, arrays["pool_used"], arrays["scores"], counts))


def _table(name: str, array: NDArray[Any], count: int, like: NDArray[Any]) -> NDArray[Any]:
    width = like.shape[1]
    if array.size != count * width:
        raise ValueError(f"{name} must hold {width} numbers for each of {count} keys, got {array.size}")
    return array.reshape(count, width)


def _ragged(count: int, used: NDArray[Any], *columns: NDArray[Any]) -> Ragged:
    lengths = _counts("lengths", used)
    if len(lengths) != count or any(lengths.sum() != len(column) for column in columns):
        raise ValueError(
            f"lengths must be those of {count} rows that fill {format_value([len(column) for column in columns])}"
        )
    return Ragged.of(lengths, *(column.copy() for column in columns))  # aligned, and writable


def _counts(name: str, array: NDArray[Any]) -> NDArray[np.int64]:
    if array.max(initial=0) > MAX_COUNT:
        raise ValueError(f"{name} must be at most {MAX_COUNT}, got {array.max()}")
    return array.astype(np.int64)


# ------------------------------------------------------------------ checks


def _check(columns: Columns) -> None:
    """Check stored columns; the states of bet and alarm are checked by `Vectorised`."""
    check_records(columns.integers, columns.reals)
    integers, reals = columns.integers.T, columns.reals.T
    total, carry = reals[native.KEYED_SUM], reals[native.KEYED_CARRY]
    rules = {
        "order": integers[native.KEYED_FIRST] <= integers[native.KEYED_LAST],
        "flags": (integers[native.KEYED_FLAGS] >= 0) & (integers[native.KEYED_FLAGS] <= FLAGS),
        "log_value": ((np.abs(total) < MAX_LOG_VALUE) | (total == -np.inf)) & (np.abs(carry) < MAX_LOG_VALUE),
    }
    if columns.pool is not None:
        rules["pool"] = columns.pool.totals() == integers[native.TRACK_N] - integers[native.TRACK_START]
    for name, valid in rules.items():
        if not valid.all():
            raise ValueError(f"{name} of every stream must be valid, got an invalid one")
    _check_spans(columns)
    if isinstance(columns.pool, Scores):
        _check_scores(columns.pool)


def _check_joined(joined: NDArray[np.int64], progress: Progress) -> None:
    """Check the positions in the order of joining."""
    bounded = joined.min(initial=1) >= 1 and joined.max(initial=0) <= progress.joined
    if not bounded or not (joined[:-1] < joined[1:]).all():
        raise ValueError(f"joined must increase from 1 to at most {progress.joined}, got other numbers")


def _check_spans(columns: Columns) -> None:
    """Check that the ranges of missing numbers are in order, and lie within the numbers of their stream."""
    used, spans = columns.spans.used, columns.spans.columns[0]
    if (used % 2).any() or (used > 2 * native.KEYED_SPANS).any():
        raise ValueError(f"spans must be at most {native.KEYED_SPANS} ranges for each key, got other lengths")
    numbers = columns.integers[np.repeat(np.arange(len(used)), used)]
    within = (numbers[:, native.KEYED_FIRST] <= spans) & (spans <= numbers[:, native.KEYED_LAST])
    if not within.all() or not _is_sorted(columns.spans, spans[:-1] <= spans[1:]):
        raise ValueError("spans must be ranges of missing numbers in order, got other numbers")


def _check_scores(pool: Scores) -> None:
    scores, counts = pool.rows.columns
    if not np.isfinite(scores).all() or not _is_sorted(pool.rows, scores[:-1] < scores[1:]):
        raise ValueError("scores must be finite numbers in increasing order, got other numbers")
    if (counts < 1).any():
        raise ValueError("counts must be at least 1, got 0")


def _is_sorted(rows: Ragged, rises: NDArray[np.bool_]) -> bool:
    """Return whether every item of a row ``rises`` above the one before; the first item of a row has none."""
    first = np.zeros(len(rises) + 1, np.bool_)
    first[rows.start[rows.used > 0]] = True
    return bool((rises | first[1:]).all()) if len(rises) else True


# ------------------------------------------------------------------ the archive


def open_state(data: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the members of an archive, and its parsed header."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise ValueError(f"data must be bytes, got {format_value(data)}")
    members = archive.read_members(bytes(data))
    return members, _read_head(members)


def write_state(head: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return an archive with this header and these columns; counts are narrowed."""
    narrowed = {"spans_used", "pool_used", "counts"} | ({"keys"} if head["keys"] != "int" else set())
    members = {"state.json": json.dumps(head, separators=(",", ":")).encode()}
    for name, array in arrays.items():
        members[f"{name}.npy"] = archive.write_array((_narrowed(array) if name in narrowed else array).ravel())
    return archive.write_members(members)


def read_column(members: Mapping[str, bytes], name: str, *dtypes: str) -> NDArray[Any]:
    """Return a column of an archive, of one of these dtypes if any are given."""
    return archive.read_array(f"{name}.npy", members.get(f"{name}.npy", b""), *(dtypes or ANY))


def columns_of(members: Mapping[str, bytes]) -> list[str]:
    """Return the names of the columns of an archive."""
    return [name.removesuffix(".npy") for name in members if name.endswith(".npy")]


def _read_head(members: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        head = json.loads(bytes(members["state.json"]))
    except (KeyError, ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError(f"state.json must be of the format {FORMAT!r}, got {format_value(head)}")
    version = head.get("version")
    if version != VERSION:
        raise ValueError(archive.version_message(version, head.get("package"), VERSION, VERSION))
    if head.keys() != HEAD or head["keys"] not in tuple(keys.TYPE_NAMES) or not isinstance(head["recipe"], dict):
        raise ValueError(f"state.json must have {', '.join(sorted(HEAD))}, got {format_value(head)}")
    return head


def _check_recipe(stored: dict[str, Any], recipe: Mapping[str, str]) -> None:
    """Check that a state belongs to this recipe; the message shows the first difference."""
    for name in recipe:
        was, now = str(stored.get(name)), recipe[name]
        if was != now:
            skip = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now)))
            start = max(skip - 40, 0) if max(len(was), len(now)) > MAX_SHOWN else 0
            was, now = was[start : start + MAX_SHOWN], now[start : start + MAX_SHOWN]
            raise ValueError(f"{name} must be what it was when the state was stored, {was}, got {now}")
    if stored.keys() != recipe.keys():
        raise ValueError(f"recipe must have {', '.join(recipe)}, got {format_value(list(stored))}")
