"""The tables of the database, and the migrations that lead from one schema version to the next."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from exchangeable.service import checksums

APPLICATION = 0x45584348  # "EXCH": distinguishes our files from other SQLite databases

TABLES = """
CREATE TABLE streams(
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, configuration TEXT NOT NULL, kinds TEXT NOT NULL,
  created REAL NOT NULL, state TEXT NOT NULL, observed_at REAL, next_seq INTEGER NOT NULL, n INTEGER NOT NULL,
  since INTEGER NOT NULL, resets INTEGER NOT NULL, waiting INTEGER NOT NULL, expired INTEGER NOT NULL,
  observations INTEGER NOT NULL, duplicates INTEGER NOT NULL, alarms INTEGER NOT NULL, alarm INTEGER NOT NULL,
  log10 REAL NOT NULL, carried REAL NOT NULL, total REAL NOT NULL, peak REAL NOT NULL, histogram BLOB NOT NULL,
  kept INTEGER NOT NULL, clock REAL, left_out TEXT NOT NULL DEFAULT '{}') STRICT;
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
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, y TEXT, time REAL,
  PRIMARY KEY(stream, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX waiting_by_id ON waiting(stream, id);
CREATE TABLE labels(
  stream INTEGER NOT NULL, id TEXT NOT NULL, y TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(stream, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_seq ON labels(stream, seq);
CREATE TABLE expired(
  stream INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT, body TEXT NOT NULL, time REAL, y TEXT,
  PRIMARY KEY(stream, seq)
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
CREATE TABLE fleet(joined INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, tests INTEGER NOT NULL) STRICT;
CREATE TABLE fleet_rule(size INTEGER, complete INTEGER NOT NULL) STRICT;
INSERT INTO fleet_rule (size, complete) VALUES (NULL, 1);
"""
FIRST_VERSION = 7  # earlier versions hold snapshots that cannot be loaded
# Each entry leads to the next version, as SQL or as a function: the first one from FIRST_VERSION to FIRST_VERSION + 1.
MIGRATIONS: Sequence[str | Callable[[sqlite3.Connection], None]] = (
    """
CREATE TABLE reference(
  stream INTEGER NOT NULL, part INTEGER NOT NULL, media TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY(stream, part)
) STRICT;
CREATE TABLE evidence(
  stream INTEGER NOT NULL, n INTEGER NOT NULL, log10 TEXT NOT NULL, PRIMARY KEY(stream, n)) STRICT, WITHOUT ROWID;
""",
    """
CREATE TABLE times(
  stream INTEGER NOT NULL, n INTEGER NOT NULL, arrived REAL NOT NULL, own REAL, PRIMARY KEY(stream, n)
) STRICT, WITHOUT ROWID;
DROP INDEX streams_by_alarm;
CREATE INDEX streams_by_alarm ON streams(alarm DESC, carried != 0.0 DESC, log10 DESC, name);
""",
    """
ALTER TABLE tokens ADD COLUMN streams TEXT;
ALTER TABLE tokens ADD COLUMN expires REAL;
ALTER TABLE tokens ADD COLUMN replaced BLOB;
ALTER TABLE tokens ADD COLUMN replaced_until REAL;
CREATE TABLE audit(
  id INTEGER PRIMARY KEY, time REAL NOT NULL, action TEXT NOT NULL, token TEXT NOT NULL, user TEXT NOT NULL,
  detail TEXT NOT NULL) STRICT;
ALTER TABLE streams ADD COLUMN retention TEXT;
""",
    """
CREATE TABLE label_events(
  at INTEGER PRIMARY KEY, stream INTEGER NOT NULL, n INTEGER NOT NULL, id TEXT NOT NULL, y TEXT NOT NULL, time REAL,
  never INTEGER NOT NULL) STRICT;
CREATE INDEX label_events_by_stream ON label_events(stream, at);
""",
    checksums.add_columns,
)
TABLES_OF_STREAMS = (
    "steps", "rollups", "marks", "snapshots", "waiting", "labels", "expired", "reference", "evidence", "times",
    "label_events",
)  # fmt: skip


def newest_version() -> int:
    """Return the schema version that this release reads and writes."""
    return FIRST_VERSION + len(MIGRATIONS)


def migrate(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database, or migrate it to the newest schema version, in one transaction."""
    if version(connection) == newest_version():
        return  # without writing, so that the server starts even if the disk is full
    connection.execute("BEGIN IMMEDIATE")
    try:
        before = version(connection)
        steps = [TABLES, *MIGRATIONS] if before == 0 else MIGRATIONS[before - FIRST_VERSION :]
        for step in steps:
            if callable(step):
                step(connection)
            else:
                _execute(connection, step)
        checksums.seal(connection)
        connection.execute(f"PRAGMA user_version = {newest_version()}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version(connection: sqlite3.Connection) -> int:
    """Return the schema version of a database; 0 if it is empty."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


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
