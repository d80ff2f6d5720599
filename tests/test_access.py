"""Tokens and scopes: who gets in, who does not, and that the answer is never late."""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.testclient import TestClient

from exchangeable.service import tokens
from exchangeable.service.access import (
    SCOPES,
    Access,
    Allow,
    Grant,
    Token,
    allow,
    create,
    list_tokens,
    revoke,
    tokens_exist,
)
from exchangeable.service.problems import Problem
from exchangeable.service.store import Store, StoreError, open_database

ALLOWED = {  # by hand: scope of a token -> what it may do
    "read": {"read"},
    "ingest": {"ingest"},
    "admin": {"read", "ingest", "admin"},
}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "streams.db")
    yield connection
    connection.close()


def over(database: sqlite3.Connection, *, loopback: bool = True) -> Access:
    """Access that reads through a connection of its own, as the server does."""
    path = database.execute("PRAGMA database_list").fetchone()[2]

    @contextmanager
    def read() -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()

    return Access(read, loopback=loopback)


def refused(guard: Access, header: list[str], scope: str = "read") -> Problem:
    with pytest.raises(Problem) as raised:
        guard.check(header, scope)
    return raised.value


def test_a_token_has_an_id_and_256_random_bits(database: sqlite3.Connection) -> None:
    created = [create(database, ["read"]) for _ in range(50)]
    assert len(set(created)) == 50
    for token in created:
        assert tokens.TOKEN.fullmatch(token)
        assert len(token) == 3 + 8 + 1 + 43  # 43 characters of 6 bits hold 32 bytes


def test_only_the_hash_of_the_secret_is_stored(database: sqlite3.Connection, tmp_path: Path) -> None:
    token = create(database, ["read", "ingest"], "hall 3", now=12.5)
    _, name, secret = token.split("_", 2)
    rows = database.execute("SELECT id, digest, scopes, note, created, revoked FROM tokens").fetchall()
    assert rows == [(name, hashlib.sha256(secret.encode()).digest(), "read,ingest", "hall 3", 12.5, None)]
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()


def test_the_list_shows_all_but_the_secret(database: sqlite3.Connection) -> None:
    first = create(database, ["admin"], "me", now=2.0)
    second = create(database, ["ingest", "read", "read"], now=1.0)
    revoke(database, first[3:11], now=3.0)
    assert list_tokens(database) == [
        Token(second[3:11], ("read", "ingest"), "", 1.0, None),
        Token(first[3:11], ("admin",), "me", 2.0, 3.0),
    ]
    assert first[12:] not in repr(list_tokens(database))


def test_a_token_is_revoked_by_its_id_or_by_itself_and_once(database: sqlite3.Connection) -> None:
    by_id, by_itself = create(database, ["read"]), create(database, ["read"])
    revoke(database, by_id[3:11], now=1.0)
    revoke(database, by_itself, now=2.0)
    revoke(database, by_id, now=9.0)
    assert sorted(token.revoked or 0.0 for token in list_tokens(database)) == [1.0, 2.0]
    assert not tokens_exist(database)


def test_whom_nobody_knows_cannot_be_revoked(database: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match=r"^id must be that of a token in the list, got 'abcdefgh'$") as raised:
        revoke(database, "ex_abcdefgh_" + "s" * 43)
    assert "sss" not in str(raised.value)


@pytest.mark.parametrize("scopes", [[], [""], ["write"], ["read", "Admin"], ["read,admin"], "root"])
def test_scopes_are_three(database: sqlite3.Connection, scopes: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^scopes must be among read, ingest, admin, got "):
        create(database, scopes)
    assert list_tokens(database) == []


@pytest.mark.parametrize("note", ["a\nb", "\x1b[2J", "x" * 201, 7])
def test_a_note_is_short_and_printable(database: sqlite3.Connection, note: Any) -> None:
    with pytest.raises(ValueError, match=r"^note must be at most 200 printable characters, got "):
        create(database, ["read"], note)


@pytest.mark.parametrize("held", SCOPES)
@pytest.mark.parametrize("wanted", SCOPES)
def test_the_matrix_of_scopes(database: sqlite3.Connection, held: str, wanted: str) -> None:
    token = create(database, [held])
    guard = over(database)
    if wanted in ALLOWED[held]:
        assert guard.check([f"Bearer {token}"], wanted).token == token[3:11]
    else:
        problem = refused(guard, [f"Bearer {token}"], wanted)
        assert (problem.status, problem.code) == (403, "forbidden")
        assert problem.message == f"this token has the scope {held}; the request needs {wanted}"


def test_two_scopes_give_both(database: sqlite3.Connection) -> None:
    header = [f"Bearer {create(database, ['read', 'ingest'])}"]
    guard = over(database)
    assert guard.check(header, "read")
    assert guard.check(header, "ingest")
    assert refused(guard, header, "admin").status == 403


def test_without_tokens_the_server_is_open_on_loopback_and_closed_elsewhere(database: sqlite3.Connection) -> None:
    for scope in SCOPES:
        assert over(database).check([], scope) == Grant()
        assert refused(over(database, loopback=False), [], scope).status == 401


def test_with_a_token_the_server_is_closed_to_all_without(database: sqlite3.Connection) -> None:
    create(database, ["read"])
    for loopback in (True, False):
        for scope in SCOPES:
            assert refused(over(database, loopback=loopback), [], scope).status == 401


def test_a_token_that_is_shown_must_be_good_even_where_none_is_needed(database: sqlite3.Connection) -> None:
    revoked = create(database, ["admin"])
    revoke(database, revoked)
    assert over(database).check([], "admin") == Grant()
    assert refused(over(database), [f"Bearer {revoked}"], "read").status == 401


def _changed(secret: str) -> str:
    return secret[:-1] + ("A" if secret[-1] != "A" else "B")


def test_what_is_not_a_good_token_is_401(database: sqlite3.Connection) -> None:
    token = create(database, ["admin"])
    other = create(database, ["admin"])
    name, secret = token[3:11], token[12:]
    headers = [
        "",
        "Bearer",
        "Bearer ",
        token,
        f"Basic {token}",
        f"Token {token}",
        f"Bearer{token}",
        f"Bearer\t{token}",
        f"Bearer {token} {token}",
        f"Bearer {token},",
        f"Bearer {token}\n",
        f"Bearer {_changed(token)}",
        f"Bearer {token[:-1]}",
        f"Bearer {token}A",
        f"Bearer EX_{name}_{secret}",
        f"Bearer ex_{name.upper()}_{secret}",
        f"Bearer ex_{other[3:11]}_{secret}",  # a good secret of another id
        f"Bearer ex_{name}_{hashlib.sha256(secret.encode()).hexdigest()[:43]}",
        f"Bearer ex_' OR 1=1 --_{secret}",
        f"Bearer ex_{name}_{'é' * 43}",
        "Bearer ex_\u0661\u0661\u0661\u0661\u0661\u0661\u0661\u0661_" + secret,
        "Bearer null",
    ]
    guard = over(database)
    for header in headers:
        problem = refused(guard, [header])
        assert (problem.status, problem.code) == (401, "unauthorised"), header
        assert secret not in problem.message
    assert guard.check([f"bearer  {token}"], "read").token == name  # the scheme has no case


def test_two_headers_are_401_even_if_both_are_good(database: sqlite3.Connection) -> None:
    header = f"Bearer {create(database, ['admin'])}"
    assert refused(over(database), [header, header]).message == "the header Authorization must be sent once"


def test_the_answer_does_not_tell_unknown_from_wrong_from_revoked(database: sqlite3.Connection) -> None:
    token, revoked = create(database, ["read"]), create(database, ["read"])
    revoke(database, revoked)
    wrong = [_changed(token), revoked, "ex_00000000_" + "A" * 43]
    assert len({refused(over(database), [f"Bearer {token}"]).message for token in wrong}) == 1


def test_secrets_are_compared_in_constant_time_and_for_unknown_ids_too(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    honest = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return honest(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    token = create(database, ["read"])
    for shown in (token, _changed(token), "ex_00000000_" + token[12:]):
        try:
            over(database).check([f"Bearer {shown}"], "read")
        except Problem as problem:
            assert problem.status == 401  # noqa: PT017
    assert [len(digest) for pair in compared for digest in pair] == [32] * 12  # with that before a rotation
    assert compared[4][0] == bytes(32)


def test_a_token_made_or_revoked_by_another_process_holds_at_once(database: sqlite3.Connection) -> None:
    path = database.execute("PRAGMA database_list").fetchone()[2]

    def elsewhere(code: str) -> str:
        lines = "import sys; from exchangeable.service.access import *; "
        lines += "from exchangeable.service.store import open_database; "
        lines += "c = open_database(sys.argv[1]); c.execute('BEGIN'); "
        words = [sys.executable, "-c", lines + code + "; c.commit()", path]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    guard = over(database)
    assert guard.check([], "read").token is None
    token = elsewhere("print(create(c, ['read']))")
    assert refused(guard, []).status == 401
    assert guard.check([f"Bearer {token}"], "read").token == token[3:11]
    elsewhere(f"revoke(c, '{token[3:11]}')")
    assert refused(guard, [f"Bearer {token}"]).status == 401


def test_through_the_store_while_it_writes(tmp_path: Path) -> None:
    store = Store(tmp_path / "streams.db")
    try:
        guard = Access(store.read, loopback=True)
        assert guard.check([], "admin").token is None
        with store.write() as connection:
            token = create(connection, ["read"])
            assert guard.check([], "admin").token is None  # not committed yet
        assert guard.check([f"Bearer {token}"], "read").token == token[3:11]
        with store.write() as connection:
            revoke(connection, token)
        assert refused(guard, [f"Bearer {token}"]).status == 401
    finally:
        store.close()


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error at /secret"), StoreError("closed")])
def test_what_cannot_be_read_is_refused(error: Exception) -> None:
    def read() -> AbstractContextManager[sqlite3.Connection]:
        raise error

    problem = refused(Access(read, loopback=True), [])
    assert (problem.status, problem.code) == (503, "storage")
    assert "/secret" not in problem.message


# ------------------------------------------------------------------ streams, expiry, rotation


def test_a_token_for_some_streams_is_for_no_others(database: sqlite3.Connection) -> None:
    header = [f"Bearer {create(database, ['read', 'ingest'], streams=['hall-3', 'line-*', 'hall-3'])}"]
    guard = over(database)
    assert list_tokens(database)[0].streams == ("hall-3", "line-*")
    for name in ("hall-3", "line-", "line-7", "line-x.y"):
        assert guard.check(header, "ingest", name).names is not None
    others: list[str | None] = ["hall-33", "hall-", "lin", "xline-7", "line", None]
    for other in others:
        with pytest.raises(
            Problem, match=r"^this token is for the streams hall-3, line-\*; the request concerns "
        ) as no:
            guard.check(header, "read", other)
        assert no.value.status == 403
    assert refused(guard, header, "admin").message.startswith("this token has the scope read, ingest")


@pytest.mark.parametrize(
    "streams", [[], [""], ["*"], ["A"], ["a b"], ["a,b"], ["a*b"], ["a?"], ["[a]"], ["a"] * 101, ["x" * 65]]
)
def test_streams_of_a_token_are_names_or_their_beginnings(database: sqlite3.Connection, streams: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^streams must "):
        create(database, ["read"], streams=streams)
    assert list_tokens(database) == []
    assert tokens.log(database) == []


def test_an_expired_token_opens_nothing_not_even_the_server(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    token = create(database, ["read"], expires=1060.0)
    guard = over(database)
    assert guard.check([f"Bearer {token}"], "read").token == token[3:11]
    monkeypatch.setattr(time, "time", lambda: 1060.0)
    assert refused(guard, [f"Bearer {token}"]).status == 401
    assert refused(guard, []).status == 401  # or the server would open by itself
    for expires in (1060.0, 5.0, float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match=r"^expires must lie in the future, at most 100 years ahead$"):
            create(database, ["read"], expires=expires)
    with pytest.raises(ValueError, match=r"^expires must lie in the future"):
        tokens.rotate(database, token)
    renewed = tokens.rotate(database, token, expires=2000.0)
    assert guard.check([f"Bearer {renewed}"], "read").token == token[3:11]


def test_a_rotated_token_has_two_secrets_until_the_grace_ends(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    guard = over(database)
    first = create(database, ["ingest"], "hall 3", streams=["a"], expires=5000.0)
    second = tokens.rotate(database, first[3:11], 60.0)
    assert first[:12] == second[:12]
    assert first != second

    def valid(token: str) -> bool:
        try:
            return guard.check([f"Bearer {token}"], "ingest", "a").names == tokens.Names(("a",))
        except Problem as problem:
            if problem.status != 401:
                raise
            return False

    assert (valid(first), valid(second)) == (True, True)
    now[0] = 1059.9
    assert (valid(first), valid(second)) == (True, True)
    now[0] = 1060.0
    assert (valid(first), valid(second)) == (False, True)
    third = tokens.rotate(database, second)
    assert [valid(token) for token in (first, second, third)] == [False, False, True]
    fourth = tokens.rotate(database, third, 60.0)
    assert [valid(token) for token in (first, second, third, fourth)] == [False, False, True, True]
    revoke(database, third)
    assert [valid(token) for token in (third, fourth)] == [False, False]
    with pytest.raises(ValueError, match=r"^id must be that of a token that is not revoked"):
        tokens.rotate(database, fourth)
    (listed,) = list_tokens(database)
    assert (listed.note, listed.streams, listed.expires, listed.replaced_until) == ("hall 3", ("a",), 5000.0, 1120.0)


def test_what_is_done_to_tokens_is_recorded_without_secrets(database: sqlite3.Connection) -> None:
    token = create(database, ["read"], now=1.0, user="ada", streams=["a"])
    other = tokens.rotate(database, token, 3600.0, now=2.0, user="bob")
    revoke(database, other, now=3.0, user="ada")
    name = token[3:11]
    assert tokens.log(database) == [
        (1.0, "create", name, "ada", "read; streams a"),
        (2.0, "rotate", name, "bob", "the previous secret is valid for 3600 s"),
        (3.0, "revoke", name, "ada", ""),
    ]
    assert token[12:] not in str(tokens.log(database))


# ------------------------------------------------------------------ the dependency


@pytest.fixture
def client(database: sqlite3.Connection) -> Iterator[TestClient]:
    app = FastAPI()
    app.state.access = over(database)

    @app.exception_handler(Problem)
    def answer(_: Request, problem: Problem) -> JSONResponse:
        return JSONResponse(problem.body, problem.status)

    @app.get("/read")
    def reading(grant: Annotated[Grant, Depends(allow("read"))]) -> str | None:
        return grant.token

    @app.get("/streams/{name}", dependencies=[Depends(allow("read"))])
    def one(name: str) -> str:
        return name

    @app.get("/some")
    def some(grant: Annotated[Grant, Depends(allow("read", filtered=True))]) -> list[str]:
        return [] if grant.names is None else [*grant.names.patterns]

    @app.post("/admin", dependencies=[Depends(allow("admin"))])
    def admin(number: int) -> int:
        return number

    with TestClient(app, base_url="http://localhost") as client:
        yield client


def test_the_dependency_carries_its_scope() -> None:
    assert [allow(scope).scope for scope in SCOPES] == list(SCOPES)
    assert isinstance(allow("read"), Allow)
    with pytest.raises(ValueError, match=r"^scopes must be among read, ingest, admin, got write$"):
        allow("write")


def test_a_route_asks_for_its_scope(client: TestClient, database: sqlite3.Connection) -> None:
    assert client.get("/read").json() is None
    token = create(database, ["read"])
    bearer = {"Authorization": f"Bearer {token}"}
    assert client.get("/read").status_code == 401
    assert client.get("/read", headers=bearer).json() == token[3:11]
    assert client.post("/admin?number=1", headers=bearer).status_code == 403
    bearer = {"Authorization": f"Bearer {create(database, ['admin'])}"}
    assert client.post("/admin?number=1", headers=bearer).json() == 1


def test_a_token_for_some_streams_is_accepted_where_they_are_named_or_filtered(
    client: TestClient, database: sqlite3.Connection
) -> None:
    assert client.get("/some").json() == []
    bearer = {"Authorization": f"Bearer {create(database, ['admin'], streams=['a*'])}"}
    assert client.get("/some", headers=bearer).json() == ["a*"]
    assert client.get("/streams/ab", headers=bearer).status_code == 200
    assert client.get("/streams/b", headers=bearer).status_code == 403
    for method, path in (("GET", "/read"), ("POST", "/admin?number=1")):  # they concern all streams
        assert client.request(method, path, headers=bearer).status_code == 403


def test_the_token_comes_before_the_law_of_the_arguments(client: TestClient, database: sqlite3.Connection) -> None:
    create(database, ["read"])
    assert client.post("/admin?number=one").status_code == 401


def test_headers_that_come_twice_are_refused(client: TestClient, database: sqlite3.Connection) -> None:
    token = create(database, ["read"])
    twice = [("Authorization", f"Bearer {token}"), ("Authorization", f"Bearer {token}")]
    assert client.get("/read", headers=twice).status_code == 401


@pytest.mark.parametrize("way", ["token={}", "access_token={}", "authorization=Bearer%20{}", "q={}", "a=%65x_{}"])
def test_a_token_in_the_address_is_refused_even_a_good_one(
    client: TestClient, database: sqlite3.Connection, way: str
) -> None:
    token = create(database, ["read"])
    query = way.format(token if "%65" not in way else token[3:])
    for headers in ({}, {"Authorization": f"Bearer {token}"}):
        reply = client.get(f"/read?{query}", headers=headers)
        assert reply.status_code == 401
        assert token not in reply.text


def test_a_token_in_a_cookie_or_a_body_is_none(client: TestClient, database: sqlite3.Connection) -> None:
    token = create(database, ["admin"])
    client.cookies.set("authorization", f"Bearer {token}")
    assert client.get("/read", headers={"X-Authorization": f"Bearer {token}"}).status_code == 401
    assert client.post("/admin?number=1", json={"token": token}).status_code == 401


def test_openapi_knows_the_scheme(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert schema["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert schema["paths"]["/read"]["get"]["security"] == [{"token": []}]
    assert schema["paths"]["/admin"]["post"]["security"] == [{"token": []}]
