"""Tokens in the database: creating, rotating, revoking and listing them. Each change is recorded in the table audit.

A token is ``ex_<id>_<secret>``: the id finds its row, and the secret is compared.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

__all__ = ["SCOPES", "TOKEN", "Entry", "Names", "Token", "create", "digest", "list_tokens", "log", "revoke", "rotate"]
SCOPES = ("read", "ingest", "admin")  # admin implies the others; ingest does not imply read
TOKEN = re.compile(r"ex_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\*?")  # of a stream, or the start of a name and *
ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MAX_NAMES = 100
MAX_SECONDS = 100 * 365.25 * 86_400


class Names(NamedTuple):
    """The streams that a token is for: names, and prefixes of names, which end with ``*``.

    >>> names = Names(("hall-3", "line-*"))
    >>> names.cover("line-7"), names.cover("hall-33"), names.condition
    (True, False, '(name GLOB ? OR name GLOB ?)')
    """

    patterns: tuple[str, ...]

    def cover(self, name: str) -> bool:
        """Return whether a stream is among them."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)

    @property
    def condition(self) -> str:
        """The same as a condition in SQL, whose parameters are the patterns."""
        return f"({' OR '.join(['name GLOB ?'] * len(self.patterns))})"


class Token(NamedTuple):
    """A token without its secret."""

    id: str
    scopes: tuple[str, ...]
    note: str
    created: float
    revoked: float | None
    streams: tuple[str, ...] | None = None  # as in `Names`; None for all
    expires: float | None = None
    replaced_until: float | None = None  # how long the previous secret is valid


class Entry(NamedTuple):
    """A change of a token: ``user`` is the account that ran the command."""

    time: float
    action: str
    token: str
    user: str
    detail: str


def create(
    connection: sqlite3.Connection,
    scopes: Iterable[str],
    note: str = "",
    now: float | None = None,
    *,
    streams: Sequence[str] | None = None,
    expires: float | None = None,
    user: str = "",
) -> str:
    """Create a token and return it. It cannot be read again later. The caller commits.

    ``streams`` restricts it to some streams: names, and prefixes, which end with ``*``. The database stores the
    SHA-256 of the secret. A slow hash (scrypt, argon2) protects passwords, which can be guessed. This secret has 256
    random bits, which cannot, and a slow hash would slow down every request.

    >>> from exchangeable.service.store import open_database
    >>> connection = open_database(":memory:")
    >>> token = create(connection, ["ingest"], "the sensors in hall 3", streams=["hall-3", "line-*"])
    >>> [(one.scopes, one.streams) for one in list_tokens(connection)], len(token)
    ([(('ingest',), ('hall-3', 'line-*'))], 55)
    """
    now = time.time() if now is None else now
    scopes, patterns = check_scopes(scopes), _check_streams(streams)
    _check_expiry(expires, now)
    if not isinstance(note, str) or not note.isprintable() or len(note) > 200:
        raise ValueError(f"note must be at most 200 printable characters, got {note!r:.100}")
    name, secret = "".join(secrets.choice(ID_CHARACTERS) for _ in range(8)), secrets.token_urlsafe(32)
    row = (name, digest(secret), ",".join(scopes), note, now, patterns, expires)
    connection.execute(
        "INSERT INTO main.tokens (id, digest, scopes, note, created, streams, expires) VALUES (?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    _record(connection, now, "create", name, user, f"{','.join(scopes)}; streams {patterns or 'all'}")
    return f"ex_{name}_{secret}"


def rotate(
    connection: sqlite3.Connection,
    id: str,  # noqa: A002
    grace: float = 0.0,
    now: float | None = None,
    *,
    expires: float | None = None,
    user: str = "",
) -> str:
    """Give a token a new secret and return it; the one before stays valid for ``grace`` seconds. The caller commits.

    ``expires`` is the new time of expiry; by default it stays as it is.
    """
    name, now, secret = _id(id), time.time() if now is None else now, secrets.token_urlsafe(32)
    token = next((one for one in list_tokens(connection) if one.id == name), None)
    if token is None or token.revoked is not None:
        raise ValueError(f"id must be that of a token that is not revoked, got {name!r:.40}")
    if not 0.0 <= grace <= MAX_SECONDS:
        raise ValueError(f"grace must be at least 0 seconds and at most 100 years, got {grace:g} s")
    expires = token.expires if expires is None else expires
    _check_expiry(expires, now)
    connection.execute(
        "UPDATE main.tokens SET replaced = digest, replaced_until = ?, digest = ?, expires = ? WHERE id = ?",
        (now + grace, digest(secret), expires, name),
    )
    _record(connection, now, "rotate", name, user, f"the previous secret is valid for {grace:g} s")
    return f"ex_{name}_{secret}"


def revoke(connection: sqlite3.Connection, id: str, now: float | None = None, *, user: str = "") -> None:  # noqa: A002
    """Revoke a token, by its id or the full token, from the next request on; the caller commits."""
    name, when = _id(id), time.time() if now is None else now
    cursor = connection.execute("UPDATE main.tokens SET revoked = coalesce(revoked, ?) WHERE id = ?", (when, name))
    if not cursor.rowcount:
        raise ValueError(f"id must be that of a token in the list, got {name!r:.40}")
    _record(connection, when, "revoke", name, user, "")


def list_tokens(connection: sqlite3.Connection) -> list[Token]:
    """Return all tokens that were ever created, oldest first."""
    rows = connection.execute(
        "SELECT id, scopes, note, created, revoked, streams, expires, replaced_until FROM tokens ORDER BY created, id"
    )
    return [
        Token(name, tuple(scopes.split(",")), note, created, revoked, names_of(streams), *times)
        for name, scopes, note, created, revoked, streams, *times in rows
    ]


def log(connection: sqlite3.Connection) -> list[Entry]:
    """Return the changes of tokens, oldest first."""
    return [
        Entry(*row) for row in connection.execute("SELECT time, action, token, user, detail FROM audit ORDER BY id")
    ]


def names_of(streams: str | None) -> tuple[str, ...] | None:
    """Decode the column of streams."""
    return None if streams is None else tuple(streams.split(","))


def check_scopes(scopes: Iterable[str]) -> list[str]:
    """Return the scopes in order; raise if one is unknown, or if there is none."""
    names = [scopes] if isinstance(scopes, str) else list(scopes)
    if not names or not set(names) <= set(SCOPES):
        raise ValueError(f"scopes must be among {', '.join(SCOPES)}, got {', '.join(map(str, names)) or 'none'}")
    return [scope for scope in SCOPES if scope in names]


def digest(secret: str) -> bytes:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("ascii")).digest()


def _check_streams(streams: Sequence[str] | None) -> str | None:
    if streams is None:
        return None
    for name in streams:
        if not NAME.fullmatch(name):
            rule = "streams must be names of streams, or prefixes of names (a-z, 0-9, '.', '_', '-')"
            raise ValueError(f"{rule}, got {name!r:.100}")
    if not 1 <= len(streams) <= MAX_NAMES:
        raise ValueError(f"streams must hold 1 to {MAX_NAMES} names, got {len(streams)}")
    return ",".join(dict.fromkeys(streams))


def _check_expiry(expires: float | None, now: float) -> None:
    if expires is not None and not now < expires <= now + MAX_SECONDS:
        raise ValueError("expires must lie in the future, at most 100 years ahead")


def _id(text: str) -> str:
    token = TOKEN.fullmatch(text)
    return token[1] if token else text


def _record(connection: sqlite3.Connection, *values: Any) -> None:
    connection.execute("INSERT INTO main.audit (time, action, token, user, detail) VALUES (?, ?, ?, ?, ?)", values)
