"""Which streams have changed, over all that ever joined: e-BH with weights that deletion does not free.

A name joins once. Its position j, and the number of tests that ended when a stream of this name was deleted, stay in
the table ``fleet`` for good. At any time only the latest test of a name counts, say the k-th, with weight

    w_j / (k (k + 1)) ,   w_j = 1/K if the fleet was fixed at K names before the first one joined, else 1/(j (j + 1)) .

These weights are set before a test begins, and their sum over all j and k that there may ever be is at most 1. So the
proof in ``exchangeable.fleet.e_bh`` holds whatever is reset, deleted or created again, and whoever has looked before.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np

from exchangeable.fleet import adjusted, e_bh
from exchangeable.martingale import LN10
from exchangeable.service.problems import Problem

PROMISES = {
    "adjusted": "Of the streams found, on average at most a share alpha has not changed since its latest test began, "
    "whenever you look, however the streams depend on one another, and whichever you reset, delete or create.",
    "current": "Of the streams found, on average at most a share alpha has not changed since its latest test began, "
    "if the time to look was fixed in advance, or if the streams are independent and have different seeds.",
}
WEIGHTS = {
    "joined": " The j-th stream that ever joined counts 1/(j (j + 1)), the k-th test of a name 1/(k (k + 1)).",
    "fixed": " The fleet was fixed in advance at {size} names, deleted ones included; the k-th test of a name counts "
    "1/(k (k + 1)).",
}
INCOMPLETE = (
    " Streams that an older release deleted are counted only where they left a gap between those that remained."
)


def check_size(connection: sqlite3.Connection, wanted: int | None) -> None:
    """Refuse to change the size of a fleet after the first stream has joined."""
    size, _ = _rule(connection)
    if wanted is None or wanted == size or not _ever(connection):
        return
    fixed = "without a size" if size is None else f"with fleet_size = {size}"
    raise ValueError(
        f"fleet_size cannot be changed after the first stream has joined: this database began {fixed}, got {wanted}; "
        "restore the setting or begin a new database"
    )


def join(connection: sqlite3.Connection, name: str, size: int | None) -> None:
    """Give a name the next position, unless it has one; the first to join fixes the size of the fleet."""
    if connection.execute("SELECT 1 FROM fleet WHERE name = ?", (name,)).fetchone():
        return
    ever = _ever(connection)
    if not ever:
        connection.execute("UPDATE fleet_rule SET size = ?", (size,))
    fixed, _ = _rule(connection)
    if fixed is not None and ever >= fixed:
        law = f"the fleet was fixed at {fixed} names, deleted ones included"
        raise Problem(409, "too-many-streams", f"{law}: reuse one of these names, or begin a new database")
    connection.execute("INSERT INTO fleet (name, tests) VALUES (?, 0)", (name,))


def leave(connection: sqlite3.Connection, name: str, tests: int) -> None:
    """Store the number of tests of a stream that is deleted."""
    connection.execute("UPDATE fleet SET tests = tests + ? WHERE name = ?", (tests, name))


def changed(connection: sqlite3.Connection, alpha: float, method: str, size: int | None) -> dict[str, Any]:
    """The reply of ``/v1/fleet``; ``size`` is the operator's setting, used until the first stream joins."""
    rows = connection.execute(
        "SELECT name, joined, tests + resets + 1, log10, total, peak FROM fleet JOIN streams USING (name) ORDER BY 2"
    ).fetchall()
    ever, (fixed, complete) = _ever(connection), _rule(connection)
    fixed = fixed if ever else size
    rule = "joined" if fixed is None else "fixed"
    promise = PROMISES[method] + WEIGHTS[rule].format(size=fixed) + ("" if complete else INCOMPLETE)
    counts = {"rule": rule, "streams": len(rows), "deleted": ever - len(rows), "fleet_size": fixed}
    return {"alpha": alpha, "method": method, **counts, **_found(rows, alpha, method, fixed), "promise": promise}


def _found(rows: list[tuple[Any, ...]], alpha: float, method: str, fixed: int | None) -> dict[str, Any]:
    if not rows:
        return {"found": [], "log10_threshold": None}
    names, places, tests, log10, totals, peaks = (list(column) for column in zip(*rows, strict=True))
    k = np.array(tests, dtype=np.float64)
    values = (adjusted(peaks) if method == "adjusted" else np.array(totals)) - np.log(k * (k + 1.0))
    found = e_bh(values, alpha, joined=places) if fixed is None else e_bh(values, alpha, streams=fixed)
    told = [
        {
            "name": names[i],
            "joined": places[i],
            "test": tests[i],
            "log10_e": value / LN10,
            "log10_martingale": log10[i],
        }
        for i, value in zip(found.names, found.log_values.tolist(), strict=True)
    ]
    return {"found": told, "log10_threshold": found.log_threshold / LN10}


def _ever(connection: sqlite3.Connection) -> int:
    """How many streams have joined, deleted ones included."""
    return int(connection.execute("SELECT coalesce(max(joined), 0) FROM fleet").fetchone()[0])


def _rule(connection: sqlite3.Connection) -> tuple[int | None, bool]:
    """The size that was fixed, if one was; and whether every deletion is known."""
    size, complete = connection.execute("SELECT size, complete FROM fleet_rule").fetchone()
    return size, bool(complete)
