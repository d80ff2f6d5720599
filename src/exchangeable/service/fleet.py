"""Which streams have changed: e-BH over all streams that ever joined, with weights that a deletion does not free.

A name joins once. Its position j, and the number of tests that ended when a stream of this name was deleted, stay in
the table ``fleet`` forever. At any time only the latest test of a name counts, say the k-th, with weight

    w_j / (k (k + 1)) ,   w_j = 1/K if the fleet was fixed at K names before the first one joined, else 1/(j (j + 1)) .

The weights are fixed before a test starts, and their sum over all possible j and k is at most 1. So the proof in
``exchangeable.fleet.e_bh`` holds whatever is reset, deleted or created again, and however often results were read.
"""

from __future__ import annotations

import math
import sqlite3
from typing import Any

import numpy as np

from exchangeable.fleet import adjusted, e_bh, log_threshold
from exchangeable.martingale import LN10
from exchangeable.protocols import Floats
from exchangeable.service.problems import Problem

MAX_MISSED = 100  # streams with an alarm that are not found, in a reply
FALSE_DISCOVERIES = (
    "On average, at most a fraction alpha of the streams found have not changed since their latest test started."
)
CONDITIONS = {
    "adjusted": (
        " This holds at any time, however the streams depend on one another, and whichever you reset, delete or create."
    ),
    "current": (
        " This holds if the time of the request was fixed in advance, or if the streams are independent and have "
        "different seeds."
    ),
}
WEIGHTS = {
    "joined": " The j-th stream that ever joined has weight 1/(j (j + 1)), the k-th test of a name 1/(k (k + 1)).",
    "fixed": (
        " The fleet was fixed in advance at {size} names, deleted ones included; the k-th test of a name has weight "
        "1/(k (k + 1))."
    ),
}


def check_size(connection: sqlite3.Connection, wanted: int | None) -> None:
    """Raise if the size of the fleet would change after the first stream has joined."""
    size = _fixed_size(connection)
    if wanted is None or wanted == size or not _count_joined(connection):
        return
    fixed = "without a size" if size is None else f"with fleet_size = {size}"
    raise ValueError(
        f"fleet_size cannot be changed after the first stream has joined: this database was started {fixed}, got "
        f"{wanted}; restore the setting or start a new database"
    )


def join(connection: sqlite3.Connection, name: str, size: int | None) -> None:
    """Give a name the next position, unless it has one. The first name fixes the size of the fleet."""
    if connection.execute("SELECT 1 FROM fleet WHERE name = ?", (name,)).fetchone():
        return
    joined = _count_joined(connection)
    if not joined:
        connection.execute("UPDATE main.fleet_rule SET size = ?", (size,))
    fixed = _fixed_size(connection)
    if fixed is not None and joined >= fixed:
        rule = f"the fleet was fixed at {fixed} names, deleted ones included"
        raise Problem(409, "too-many-streams", f"{rule}: reuse one of these names, or start a new database")
    connection.execute("INSERT INTO main.fleet (name, tests) VALUES (?, 0)", (name,))


def leave(connection: sqlite3.Connection, name: str, tests: int) -> None:
    """Add the number of tests of a stream that is deleted to the count of its name."""
    connection.execute("UPDATE main.fleet SET tests = tests + ? WHERE name = ?", (tests, name))


def report(connection: sqlite3.Connection, alpha: float, method: str, size: int | None) -> dict[str, Any]:
    """Return the reply of ``/v1/fleet``; ``size`` is the operator's setting, used until the first stream joins."""
    rows = connection.execute(
        "SELECT name, joined, tests + resets + 1, log10, total, peak, alarm OR carried != 0.0"
        " FROM fleet JOIN streams USING (name) ORDER BY 2"
    ).fetchall()
    joined = _count_joined(connection)
    fixed = _fixed_size(connection) if joined else size
    rule = "joined" if fixed is None else "fixed"
    promise = FALSE_DISCOVERIES + CONDITIONS[method] + WEIGHTS[rule].format(size=fixed)
    counts = {"rule": rule, "streams": len(rows), "deleted": joined - len(rows), "fleet_size": fixed}
    return {"alpha": alpha, "method": method, **counts, **_find_changed(rows, alpha, method, fixed), "promise": promise}


def _find_changed(rows: list[tuple[Any, ...]], alpha: float, method: str, fixed: int | None) -> dict[str, Any]:
    if not rows:
        return {"found": [], "missed": [], "missed_count": 0, "log10_threshold": None}
    names, positions, tests, log10, totals, peaks, raised = (list(column) for column in zip(*rows, strict=True))
    k = np.array(tests, dtype=np.float64)
    values = (adjusted(peaks) if method == "adjusted" else np.array(totals)) - np.log(k * (k + 1.0))
    result = e_bh(values, alpha, joined=positions) if fixed is None else e_bh(values, alpha, streams=fixed)
    found = [
        {
            "name": names[i],
            "joined": positions[i],
            "test": tests[i],
            "log10_e": value / LN10,
            "log10_martingale": log10[i],
        }
        for i, value in zip(result.names, result.log_values.tolist(), strict=True)
    ]
    joined = np.array(positions, np.float64)
    weights = -np.log(joined * (joined + 1.0)) if fixed is None else np.full(len(names), -math.log(fixed))
    missed = np.flatnonzero(np.array(raised, np.bool_) & ~result.rejected)
    missed = missed[np.argsort(-(values + weights)[missed], kind="stable")]
    shown = [
        {
            "name": names[i],
            "joined": positions[i],
            "test": tests[i],
            "log10_e": values[i].item() / LN10,
            "log10_needed": (_level(np.delete(values + weights, i), alpha) - weights[i].item()) / LN10,
        }
        for i in missed[:MAX_MISSED].tolist()
    ]
    counts = {"missed": shown, "missed_count": len(missed)}
    return {"found": found, **counts, "log10_threshold": result.log_threshold / LN10}


def _level(others: Floats, alpha: float) -> float:
    """Return the least weighted log evidence with which one more stream would be found beside others."""
    strongest = -np.sort(-others)
    levels = log_threshold(1, np.arange(1, len(others) + 2), alpha)
    enough = np.flatnonzero(strongest >= levels[1:])
    return float(levels[enough[-1] + 1 if enough.size else 0])


def _count_joined(connection: sqlite3.Connection) -> int:
    """Count the names that have joined, those of deleted streams included."""
    return int(connection.execute("SELECT coalesce(max(joined), 0) FROM fleet").fetchone()[0])


def _fixed_size(connection: sqlite3.Connection) -> int | None:
    """Return the size that was fixed when the first stream joined, or None."""
    size: int | None = connection.execute("SELECT size FROM fleet_rule").fetchone()[0]
    return size
