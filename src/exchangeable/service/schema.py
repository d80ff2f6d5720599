"""The tables of the database, and the migrations that lead from one schema version to the next."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from exchangeable.late_labels import LeftOut

APPLICATION = 0x45584348  # "EXCH": distinguishes our files from other SQLite databases

FIRST = """
CREATE TABLE streams(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, configuration TEXT NOT NULL, kinds TEXT NOT NULL,
  created REAL NOT NULL, state TEXT NOT NULL, observed_at REAL, next_seq INTEGER NOT NULL, n INTEGER NOT NULL,
  since INTEGER NOT NULL, resets INTEGER NOT NULL, waiting INTEGER NOT NULL, expired INTEGER NOT NULL,
  observations INTEGER NOT NULL, duplicates INTEGER NOT NULL, alarms INTEGER NOT NULL, alarm INTEGER NOT NULL,
  log10 REAL NOT NULL, carried REAL NOT NULL, total REAL NOT NULL, peak REAL NOT NULL, histogram BLOB NOT NULL,
  kept INTEGER NOT NULL) STRICT;
CREATE INDEX streams_by_alarm ON streams(alarm DESC, log10 DESC, name);
CREATE TABLE steps(
  stream INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, p BLOB NOT NULL, log10 BLOB NOT NULL,
  seq BLOB, x BLOB NOT NULL, extra TEXT) STRICT;
CREATE UNIQUE INDEX steps_by_n ON steps(stream, first);
CREATE TABLE rollups(
  stream INTEGER NOT NULL, level INTEGER NOT NULL, first INTEGER NOT NULL, low REAL NOT NULL, low_at INTEGER NOT NULL,
  high REAL NOT NULL, high_at INTEGER NOT NULL, last REAL NOT NULL, PRIMARY KEY(stream, level, first)
) STRICT, WITHOUT ROWID;
CREATE TABLE marks(
  stream INTEGER NOT NULL, n INTEGER NOT NULL, kind TEXT NOT NULL, changepoint INTEGER, time REAL NOT NULL) STRICT;
CREATE INDEX marks_by_n ON marks(stream, n);
CREATE TABLE snapshots(
  stream INTEGER NOT NULL, part INTEGER NOT NULL, n INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY(stream, part)
) STRICT;
CREATE TABLE waiting(
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, y TEXT, PRIMARY KEY(stream, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waiting_by_id ON waiting(stream, id);
CREATE TABLE labels(
  stream INTEGER NOT NULL, id TEXT NOT NULL, y TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(stream, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_seq ON labels(stream, seq);
CREATE TABLE expired(
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, PRIMARY KEY(stream, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX expired_by_id ON expired(stream, id);
CREATE TABLE outbox(
  id INTEGER PRIMARY KEY, created REAL NOT NULL, receiver TEXT NOT NULL, stream TEXT NOT NULL, status TEXT NOT NULL,
  fingerprint TEXT NOT NULL, alert TEXT NOT NULL, attempts INTEGER NOT NULL, state TEXT NOT NULL, error TEXT) STRICT;
CREATE INDEX outbox_by_state ON outbox(state, receiver, stream, id);
CREATE INDEX outbox_by_fingerprint ON outbox(fingerprint, status, id);
CREATE TABLE tokens(
  id TEXT PRIMARY KEY, digest BLOB NOT NULL, scopes TEXT NOT NULL, note TEXT NOT NULL, created REAL NOT NULL,
  revoked REAL) STRICT, WITHOUT ROWID;
"""
# Ids increase with creation and only the highest is ever reused, so gaps below it are deleted streams. Other deleted
# streams, and earlier tests of reused names, left no trace: ``complete`` is 0.
FLEET = """
CREATE TABLE fleet(joined INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, tests INTEGER NOT NULL) STRICT;
CREATE TABLE fleet_rule(size INTEGER, complete INTEGER NOT NULL) STRICT;
INSERT INTO fleet SELECT id, name, 0 FROM streams;
INSERT INTO fleet_rule SELECT NULL, count(*) = 0 FROM streams;
"""
LATE_LABELS = """
ALTER TABLE streams ADD COLUMN clock REAL;
ALTER TABLE streams ADD COLUMN left_out TEXT NOT NULL DEFAULT '{}';
ALTER TABLE waiting ADD COLUMN time REAL;
ALTER TABLE expired ADD COLUMN time REAL;
ALTER TABLE expired ADD COLUMN y TEXT;
"""


def _late_labels(connection: sqlite3.Connection) -> None:
    """Make the wait for labels a time. It was a number of observations, which is now the most that may wait."""
    _execute(connection, LATE_LABELS)
    streams = connection.execute("SELECT id, expired FROM streams").fetchall()
    for stream, expired in streams:
        row = connection.execute("SELECT configuration, state FROM streams WHERE id = ?", (stream,)).fetchone()
        configuration, state = map(load_json, row)
        most = configuration["labels"]["wait"]
        most = 10_000 if most == 1000 else most  # the defaults of this version and of the earlier one
        configuration["labels"] = {"wait": "forever", "clock": "client", "most": most}
        left_out = LeftOut(expired=expired, crowded=expired)
        state["guarantee"] = left_out.guarantee(state["guarantee"], math.inf)
        texts = json.dumps(configuration, sort_keys=True, separators=(",", ":")), dump_json(state)
        connection.execute(
            "UPDATE streams SET configuration = ?, state = ?, left_out = ? WHERE id = ?",
            (*texts, dump_json(asdict(left_out)), stream),
        )


STATES = ""  # exchangeable 0.2 has the same tables, but other states in the snapshots
# Entry k leads from version k to version k + 1.
MIGRATIONS: Sequence[str | Callable[[sqlite3.Connection], None]] = (FIRST, _late_labels, FLEET, STATES)
OLDEST = 4  # earlier versions hold snapshots of exchangeable 0.1, which cannot be loaded
TABLES_OF_STREAMS = ("steps", "rollups", "marks", "snapshots", "waiting", "labels", "expired")


def migrate(connection: sqlite3.Connection) -> int:
    """Migrate to the newest schema version, in one transaction, and return it."""
    if connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS):
        return len(MIGRATIONS)  # without writing, so that the server starts even if the disk is full
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for step in MIGRATIONS[version:]:
            if callable(step):
                step(connection)
            else:
                _execute(connection, step)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(MIGRATIONS)


def _execute(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script; unlike ``executescript`` this does not commit first."""
    for statement in filter(str.strip, script.split(";")):
        connection.execute(statement)


def dump_json(value: Any) -> str:
    """Encode a value for a JSON column."""
    return json.dumps(value, separators=(",", ":"))


def load_json(text: str) -> Any:
    """Decode a value of a JSON column."""
    return json.loads(text)
