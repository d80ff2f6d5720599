"""Who may do what: tokens with scopes, stored as hashes, and `allow`, the dependency that every route carries.

A token is ``ex_<id>_<secret>``: the id finds its row, the secret proves it. Nothing is cached: a check is one look-up
by key in SQLite (some 10 us, far less than the rest of a request), so that what another process makes or revokes holds
from the next request on.
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

__all__ = ["SCOPES", "Access", "Allow", "Token", "allow", "create", "exist", "listing", "revoke"]
SCOPES = ("read", "ingest", "admin")  # admin implies the others; ingest does not imply read
FORM = re.compile(r"ex_([a-z0-9]{8})_([A-Za-z0-9_-]{43})")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
NOBODY = bytes(32)  # the digest that an unknown id is compared with, so that both ways take the same time
Read = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Token(NamedTuple):
    """What may be shown of a token: all but its secret."""

    id: str
    scopes: tuple[str, ...]
    note: str
    created: float
    revoked: float | None


def create(connection: sqlite3.Connection, scopes: Iterable[str], note: str = "", now: float | None = None) -> str:
    """A new token, shown this once; the caller commits.

    The database keeps the SHA-256 of the secret. A slow hash (scrypt, argon2) is for passwords, which people choose
    and others guess; this secret is 256 random bits, and nobody guesses 2^256 of them at any speed. Its slowness would
    be paid with every request.

    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE tokens (id, digest, scopes, note, created, revoked)")
    >>> token = create(connection, ["ingest"], "the sensors in hall 3")
    >>> [shown.scopes for shown in listing(connection)], len(token)
    ([('ingest',)], 55)
    """
    wanted = _scopes(scopes)
    if not isinstance(note, str) or not note.isprintable() or len(note) > 200:
        raise ValueError(f"note must be at most 200 printable characters, got {note!r:.100}")
    name, secret = "".join(secrets.choice(LETTERS) for _ in range(8)), secrets.token_urlsafe(32)
    row = (name, _digest(secret), ",".join(wanted), note, time.time() if now is None else now)
    connection.execute("INSERT INTO tokens (id, digest, scopes, note, created) VALUES (?, ?, ?, ?, ?)", row)
    return f"ex_{name}_{secret}"


def listing(connection: sqlite3.Connection) -> list[Token]:
    """All tokens ever made, oldest first, without their secrets, which nobody has."""
    rows = connection.execute("SELECT id, scopes, note, created, revoked FROM tokens ORDER BY created, id")
    return [Token(name, tuple(scopes.split(",")), note, made, ended) for name, scopes, note, made, ended in rows]


def revoke(connection: sqlite3.Connection, id: str, now: float | None = None) -> None:  # noqa: A002 - its name
    """Make a token void for good, from the next request on; the caller commits. The whole token names itself too."""
    whole = FORM.fullmatch(id)
    name, when = whole[1] if whole else id, time.time() if now is None else now
    done = connection.execute("UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE id = ?", (when, name))
    if not done.rowcount:
        raise ValueError(f"id must be that of a token in the list, got {name!r:.40}")


def exist(connection: sqlite3.Connection) -> bool:
    """Is there a token that is not revoked?"""
    row = connection.execute("SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked IS NULL)").fetchone()
    return bool(row[0])


def _scopes(scopes: Iterable[str]) -> list[str]:
    given = [scopes] if isinstance(scopes, str) else list(scopes)
    if not given or not set(given) <= set(SCOPES):
        raise ValueError(f"scopes must be among {', '.join(SCOPES)}, got {', '.join(map(str, given)) or 'none'}")
    return [scope for scope in SCOPES if scope in given]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("ascii")).digest()


class Access:
    """Decides on requests. ``read`` gives a connection; ``loopback``: only this machine gets here (not `exposed`).

    While there is no token that is not revoked, whoever comes without one is let in over loopback, and nobody
    elsewhere. Whoever shows a token must show a good one. What cannot be read is refused.
    """

    def __init__(self, read: Read, *, loopback: bool) -> None:
        self._read = read
        self.loopback = loopback

    def check(self, authorization: Sequence[str], scope: str) -> str | None:
        """Let a request pass, by the id of its token, or raise; ``authorization``: all headers of this name.

        Event streams outlive their first check: call this again with every heartbeat. O(log tokens).
        """
        try:
            with self._read() as connection:
                if authorization:
                    return self._known(connection, authorization, scope)
                if self.loopback and not exist(connection):
                    return None
        except (sqlite3.Error, StoreError):
            raise Problem(503, "storage", "the tokens cannot be read: the request is refused") from None
        raise _unauthorised("a token is needed, in a header Authorization: Bearer ex_...")

    def _known(self, connection: sqlite3.Connection, authorization: Sequence[str], scope: str) -> str:
        name, secret = _parse(authorization)
        query = "SELECT digest, scopes FROM tokens WHERE id = ? AND revoked IS NULL"
        digest, scopes = connection.execute(query, (name,)).fetchone() or (NOBODY, "")
        if not hmac.compare_digest(digest, _digest(secret)):
            raise _unauthorised("this token is not known here, or was revoked")
        held = scopes.split(",")
        if scope not in held and "admin" not in held:
            raise Problem(403, "forbidden", f"this token has the scope {', '.join(held)}; the request needs {scope}")
        return name


def _parse(authorization: Sequence[str]) -> tuple[str, str]:
    if len(authorization) > 1:
        raise _unauthorised("the header Authorization must come once")
    scheme, _, credentials = authorization[0].partition(" ")
    if scheme.lower() != "bearer":
        raise _unauthorised("the header Authorization must be of the scheme Bearer")
    form = FORM.fullmatch(credentials.strip(" "))
    if form is None:
        raise _unauthorised("a token must have the form ex_<8 characters>_<43 characters>")
    return form[1], form[2]


def _unauthorised(message: str) -> Problem:
    return Problem(401, "unauthorised", message)


class Allow(SecurityBase):
    """The dependency of a route: this scope or more, else 401 or 403. Also the security scheme in OpenAPI."""

    def __init__(self, scope: str) -> None:
        self.scope: str = _scopes([scope])[0]
        self.scheme_name = "token"
        self.model: HTTPBearer = HTTPBearer(
            description="A token made by `exchangeable token`; not needed while there is none."
        )

    async def __call__(self, request: HTTPConnection) -> str | None:
        """The id of the token; None on an open server."""
        if FORM.search(unquote_plus(request.scope["query_string"].decode("latin-1"))):
            raise _unauthorised("a token must come in the header Authorization: an address is kept in logs")
        access: Access = request.app.state.access
        return access.check(request.headers.getlist("authorization"), self.scope)


def allow(scope: str) -> Allow:
    """What a route depends on: ``Depends(allow("read"))``.

    >>> allow("read").scope
    'read'
    """
    return Allow(scope)
