"""Access control: tokens with scopes, and `allow`, the dependency of every route.

Nothing is cached: a check is one query by primary key in SQLite (about 10 us, far less than the rest of a request), so
a token that another process creates or revokes takes effect with the next request.
"""

from __future__ import annotations

import hmac
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple
from urllib.parse import unquote_plus

from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import HTTPConnection

from exchangeable.service.budgets import Rates
from exchangeable.service.logs import REQUEST
from exchangeable.service.problems import Problem
from exchangeable.service.server_config import Limits
from exchangeable.service.store import StoreError
from exchangeable.service.tokens import (
    SCOPES,
    TOKEN,
    Names,
    Token,
    check_scopes,
    create,
    digest,
    list_tokens,
    names_of,
    revoke,
)

__all__ = ["SCOPES", "Access", "Allow", "Grant", "Token", "allow", "create", "list_tokens", "revoke", "tokens_exist"]
UNKNOWN_DIGEST = bytes(32)  # compared for an unknown id, so that both cases take the same time
Read = Callable[[], AbstractContextManager[sqlite3.Connection]]


class Grant(NamedTuple):
    """What the sender of a request may do: everything, without a token."""

    token: str | None = None
    scopes: tuple[str, ...] = ("admin",)
    names: Names | None = None  # of the streams that the token is for; None for all

    def require(self, scope: str, stream: str | None = None, *, filtered: bool = False) -> None:
        """Raise ``Problem`` without the scope, or if the request concerns other streams than those of the token.

        A request without a stream concerns all of them, unless its reply is ``filtered``.
        """
        if scope not in self.scopes and "admin" not in self.scopes:
            message = f"this token has the scope {', '.join(self.scopes)}; the request needs {scope}"
            raise Problem(403, "forbidden", message)
        if self.names is None or (stream is None and filtered):
            return
        if stream is None or not self.names.cover(stream):
            what = "all streams" if stream is None else "another"
            patterns = ", ".join(self.names.patterns)
            raise Problem(403, "forbidden", f"this token is for the streams {patterns}; the request concerns {what}")


def tokens_exist(connection: sqlite3.Connection) -> bool:
    """Return whether there is a token that is not revoked. One that has expired counts: the server must not open."""
    row = connection.execute("SELECT EXISTS (SELECT 1 FROM tokens WHERE revoked IS NULL)").fetchone()
    return bool(row[0])


class Access:
    """Checks the tokens of requests.

    ``read`` opens a connection. ``loopback`` states that only this machine can reach the server.

    While there is no valid token in the database, requests without a token are accepted over loopback, and only there.
    If a token is sent, it must be valid. If the tokens cannot be read, requests are rejected.
    """

    def __init__(self, read: Read, *, loopback: bool, limits: Limits | None = None) -> None:
        self._read = read
        self.loopback = loopback
        self.configure(limits or Limits())

    def configure(self, limits: Limits) -> None:
        """Take over new limits. The counts of what was used start again."""
        self._wrong_tokens = Rates(limits.wrong_tokens / 60.0, burst=limits.wrong_tokens)
        self._requests = Rates(limits.requests_per_second)
        self._observations = Rates(limits.observations_per_second)

    def authenticate_request(self, authorization: Sequence[str], address: str) -> Grant:
        """Return what a request may do, as `authenticate` does, with a limit on wrong tokens.

        Wrong tokens get 429 instead of 401 above a rate. A valid token is always accepted, so that one sender with an
        old token cannot lock out the others behind the same proxy.
        """
        try:
            return self.authenticate(authorization)
        except Problem as problem:
            if problem.status == 401 and authorization:
                _wait(self._wrong_tokens, address, 1.0, "too many requests with a wrong token come from this address")
            raise

    def count_request(self, grant: Grant, address: str) -> None:
        """Count a request for the rate limit of its token, or of its address without one."""
        rule = f"{_sender(grant.token)} has reached its limit of requests a second"
        _wait(self._requests, grant.token or address, 1.0, rule)

    def count_observations(self, token: str | None, address: str, count: int) -> None:
        """Count observations or labels for the rate limit of a token, or of an address without one."""
        rule = f"{_sender(token)} has reached its limit of observations and labels a second"
        _wait(self._observations, token or address, count, rule)

    def check(self, authorization: Sequence[str], scope: str, stream: str | None = None) -> Grant:
        """Return what a request may do, or raise ``Problem`` if it may not do this. See `authenticate`."""
        grant = self.authenticate(authorization)
        grant.require(scope, stream)
        return grant

    def authenticate(self, authorization: Sequence[str]) -> Grant:
        """Return what a request may do, or raise ``Problem``. ``authorization`` holds all headers of that name.

        Event streams outlive their first check, so they call this again with every heartbeat. O(log tokens).
        """
        try:
            with self._read() as connection:
                if authorization:
                    return _find_token(connection, authorization)
                if self.loopback and not tokens_exist(connection):
                    return Grant()
        except (sqlite3.Error, StoreError):
            raise Problem(503, "storage", "the tokens cannot be read, so the request is rejected") from None
        raise _unauthorised("a token is needed, in a header Authorization: Bearer ex_...")


def _find_token(connection: sqlite3.Connection, authorization: Sequence[str]) -> Grant:
    """Return what a token allows. After a rotation, the previous secret is valid for a while."""
    name, secret = _parse(authorization)
    query = (
        "SELECT digest, CASE WHEN replaced_until > ?1 THEN replaced END, scopes, streams FROM tokens"
        " WHERE id = ?2 AND revoked IS NULL AND (expires IS NULL OR expires > ?1)"
    )
    row = connection.execute(query, (time.time(), name)).fetchone() or (UNKNOWN_DIGEST, None, "", None)
    current, replaced, scopes, streams = row
    known = [hmac.compare_digest(stored or UNKNOWN_DIGEST, digest(secret)) for stored in (current, replaced)]
    if not any(known):
        raise _unauthorised("this token is unknown, has expired or was revoked")
    patterns = names_of(streams)
    return Grant(name, tuple(scopes.split(",")), None if patterns is None else Names(patterns))


def _sender(token: str | None) -> str:
    return "this address" if token is None else "this token"


def _wait(rates: Rates, client: str, amount: float, rule: str) -> None:
    seconds = rates.wait(client, amount)
    if seconds:
        raise Problem(429, "rate-limit", f"{rule}: try again in {seconds} s", retry_after=seconds)


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
    """The dependency of a route that needs a scope (401 or 403 without it), and the security scheme in OpenAPI.

    A token for some streams is accepted by routes of one of these streams, and by routes whose reply is ``filtered``.
    """

    def __init__(self, scope: str, *, filtered: bool = False) -> None:
        self.scope: str = check_scopes([scope])[0]
        self.filtered = filtered
        self.scheme_name = "token"
        self.model: HTTPBearer = HTTPBearer(
            description="A token from `exchangeable token`; not needed while there is none."
        )

    async def __call__(self, request: HTTPConnection) -> Grant:
        """Return what the request may do, and write it into the context of its log lines."""
        context = REQUEST.get() or {}
        context["scope"] = self.scope
        if TOKEN.search(unquote_plus(request.scope["query_string"].decode("latin-1"))):
            raise _unauthorised("a token must be sent in the header Authorization, because URLs are written to logs")
        access: Access = request.app.state.access
        address = "?" if request.client is None else request.client.host
        grant = access.authenticate_request(request.headers.getlist("authorization"), address)
        context["token"] = grant.token
        access.count_request(grant, address)
        grant.require(self.scope, request.path_params.get("name"), filtered=self.filtered)
        context["granted"] = True
        return grant


def allow(scope: str, *, filtered: bool = False) -> Allow:
    """Return the dependency of a route: ``Depends(allow("read"))``.

    >>> allow("read").scope
    'read'
    """
    return Allow(scope, filtered=filtered)
