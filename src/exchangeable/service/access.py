"""Access control: tokens with scopes, stored as hashes, and `allow`, the dependency of every route.

A token is ``ex_<id>_<secret>``: the id finds its row, and the secret is compared. Nothing is cached: a check is one
query by primary key in SQLite (about 10 us, far less than the rest of a request), so a token that another process
creates or revokes takes effect with the next request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple
from urllib.parse import unquote_plus

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection

from exchangeable.service.problems import Problem
from exchangeable.service.store import StoreError

__all__ = ["SCOPES", "Access", "Allow", "Token", "allow", "create", "list_tokens", "revoke", "tokens_exist"]
SCOPES = ("read", "ingest", "admin")  # admin implies the others; ingest does not imply read
TOKEN = re.compile(r"ex_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
ID_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
UNKNOWN_DIGEST = bytes(32)  # compared for an unknown id, so that both cases take the same time
Read = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Token(NamedTuple):
    """A token without its secret."""

    id: str
    scopes: tuple[str, ...]
    note: str
    created: float
    revoked: float | None


def create(connection: sqlite3.Connection, scopes: Iterable[str], note: str = "", now: float | None = None) -> str:
    """Create a token and return it. It cannot be read again later. The caller commits.

    The database stores the SHA-256 of the secret. A slow hash (scrypt, argon2) protects passwords, which can
    be guessed. This secret has 256 random bits, which cannot, and a slow hash would slow down every request.

    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE tokens (id, digest, scopes, note, created, revoked)")
    >>> token = create(connection, ["ingest"], "the sensors in hall 3")
    >>> [one.scopes for one in list_tokens(connection)], len(token)
    ([('ingest',)], 55)
    """
    scopes = _check_scopes(scopes)
    if not isinstance(note, str) or not note.isprintable() or len(note) > 200:
        raise ValueError(f"note must be at most 200 printable characters, got {note!r:.100}")
    name, secret = "".join(secrets.choice(ID_CHARACTERS) for _ in range(8)), secrets.token_urlsafe(32)
    row = (name, _digest(secret), ",".join(scopes), note, time.time() if now is None else now)
    connection.execute("INSERT INTO tokens (id, digest, scopes, note, created) VALUES (?, ?, ?, ?, ?)", row)
    return f"ex_{name}_{secret}"


def list_tokens(connection: sqlite3.Connection) -> list[Token]:
    """Return all tokens that were ever created, oldest first."""
    rows = connection.execute("SELECT id, scopes, note, created, revoked FROM tokens ORDER BY created, id")
    return [
        Token(name, tuple(scopes.split(",")), note, created, revoked) for name, scopes, note, created, revoked in rows
    ]


def revoke(connection: sqlite3.Connection, id: str, now: float | None = None) -> None:  # noqa: A002
    """Revoke a token, by its id or the full token, from the next request on; the caller commits."""
    token = TOKEN.fullmatch(id)
    name, when = token[1] if token else id, time.time() if now is None else now
    cursor = connection.execute("UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE id = ?", (when, name))
    if not cursor.rowcount:
        raise ValueError(f"id must be that of a token in the list, got {name!r:.40}")


def tokens_exist(connection: sqlite3.Connection) -> bool:
    """Return whether there is a token that is not revoked."""
    row = connection.execute("SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked IS NULL)").fetchone()
    return bool(row[0])


def _check_scopes(scopes: Iterable[str]) -> list[str]:
    names = [scopes] if isinstance(scopes, str) else list(scopes)
    if not names or not set(names) <= set(SCOPES):
        raise ValueError(f"scopes must be among {', '.join(SCOPES)}, got {', '.join(map(str, names)) or 'none'}")
    return [scope for scope in SCOPES if scope in names]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


class Access:
    """Checks the tokens of requests.

    ``read`` opens a connection. ``loopback`` states that only this machine can reach the server.

    While there is no valid token in the database, requests without a token are accepted over loopback, and only there.
    If a token is sent, it must be valid. If the tokens cannot be read, requests are rejected.
    """

    def __init__(self, read: Read, *, loopback: bool) -> None:
        self._read = read
        self.loopback = loopback

    def check(self, authorization: Sequence[str], scope: str) -> str | None:
        """Return the id of the request's token, or raise ``Problem``. ``authorization`` holds all headers of that name.

        Event streams outlive their first check, so they call this again with every heartbeat. O(log tokens).
        """
        try:
            with self._read() as connection:
                if authorization:
                    return self._check_token(connection, authorization, scope)
                if self.loopback and not tokens_exist(connection):
                    return None
        except (sqlite3.Error, StoreError):
            raise Problem(503, "storage", "the tokens cannot be read, so the request is rejected") from None
        raise _unauthorised("a token is needed, in a header Authorization: Bearer ex_...")

    def _check_token(self, connection: sqlite3.Connection, authorization: Sequence[str], scope: str) -> str:
        name, secret = _parse(authorization)
        query = "SELECT digest, scopes FROM tokens WHERE id = ? AND revoked IS NULL"
        digest, scopes = connection.execute(query, (name,)).fetchone() or (UNKNOWN_DIGEST, "")
        if not hmac.compare_digest(digest, _digest(secret)):
            raise _unauthorised("this token is unknown or was revoked")
        granted = scopes.split(",")
        if scope not in granted and "admin" not in granted:
            raise Problem(403, "forbidden", f"this token has the scope {', '.join(granted)}; the request needs {scope}")
        return name


def _parse(authorization: Sequence[str]) -> tuple[str, str]:
    if len(authorization) > 1:
        raise _unauthorised("the header Authorization must be sent once")
    scheme, _, credentials = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorised("the header Authorization must have the scheme Bearer")
    match = TOKEN.fullmatch(credentials.strip(" "))
    if match is None:
        raise _unauthorised("a token must have the form ex_<8 characters>_<43 characters>")
    return match[1], match[2]


def _unauthorised(message: str) -> Problem:
    return Problem(401, "unauthorised", message)


class Allow(SecurityBase):
    """The dependency of a route that needs a scope (401 or 403 without it), and the security scheme in OpenAPI."""

    def __init__(self, scope: str) -> None:
        self.scope: str = _check_scopes([scope])[0]
        self.scheme_name = "token"
        self.model: HTTPBearer = HTTPBearer(
            description="A token from `exchangeable token`; not needed while there is none."
        )

    async def __call__(self, request: HTTPConnection) -> str | None:
        """Return the id of the token; None if the server needs none."""
        if TOKEN.search(unquote_plus(request.scope["query_string"].decode("latin-1"))):
            raise _unauthorised("a token must be sent in the header Authorization, because URLs are written to logs")
        access: Access = request.app.state.access
        return access.check(request.headers.getlist("authorization"), self.scope)


def allow(scope: str) -> Allow:
    """Return the dependency of a route: ``Depends(allow("read"))``.

    >>> allow("read").scope
    'read'
    """
    return Allow(scope)
