"""`exchangeable token create`, `list`, `rotate`, `revoke` and `log`."""

from __future__ import annotations

import getpass
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.errors import usage_errors
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import write
from exchangeable.cli.service import DEFAULT_DATABASE, Database, database, service_imports

if TYPE_CHECKING:
    import sqlite3

    from exchangeable.service.tokens import Token

commands: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Create, list, rotate and revoke access tokens of the server."
)


class Scope(StrEnum):
    """What a token allows."""

    read = "read"
    ingest = "ingest"
    admin = "admin"


Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="When the token expires: a duration such as 30d, or a date such as 2030-01-31."),
]


@commands.command()
def create(
    scope: Annotated[
        list[Scope],
        typer.Option(
            help="What the token allows. Can be repeated. admin allows everything; ingest does not allow read."
        ),
    ],
    note: Annotated[str, typer.Option(help="What the token is for; at most 200 characters.")] = "",
    stream: Annotated[
        list[str] | None,
        typer.Option(help="A stream that the token is for. Can be repeated. By default it is for all."),
    ] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="The token is for streams with this prefix. Can be repeated.")
    ] = None,
    expires: Expires = None,
    if_none: Annotated[
        bool,
        typer.Option(
            "--if-none",
            help="Do nothing if there is an unrevoked token, or if the server must first migrate the database.",
        ),
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Create a token and print it. It is shown only once: the database stores its hash."""
    with service_imports():
        from exchangeable.service import access, store, tokens
    names = [*(stream or []), *(f"{start}*" for start in prefix or [])] or None
    now = time.time()
    with usage_errors():
        end = _expiry(expires, now)
    if if_none and store.earlier_version(db) is not None:
        return
    with database(db, create=True) as connection, usage_errors(), _transaction(connection):
        if if_none and access.tokens_exist(connection):
            return
        scopes = [one.value for one in scope]
        write(tokens.create(connection, scopes, note, now, streams=names, expires=end, user=_user()))


@commands.command()
def rotate(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token in the list, or the token.")],  # noqa: A002
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the previous secret stays valid, such as 0s, 1h or 2d.")
    ] = "1h",
    expires: Expires = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Give a token a new secret and print it. Its id, scopes and streams stay, as does its expiry by default."""
    with service_imports():
        from exchangeable.service import tokens
    now = time.time()
    with usage_errors():
        seconds, end = _duration("grace", grace), _expiry(expires, now)
    with database(db) as connection, usage_errors(), _transaction(connection):
        write(tokens.rotate(connection, id, seconds, now, expires=end, user=_user()))


@commands.command(name="list")
def list_tokens(db: Database = DEFAULT_DATABASE, format: FormatOption = Format.text) -> None:  # noqa: A002
    """List all tokens, including revoked ones, without their secrets."""
    with service_imports():
        from exchangeable.service import tokens
    with database(db) as connection:
        listed = [_record(token) for token in tokens.list_tokens(connection)]
    if format is Format.json:
        write(json.dumps(listed))
    else:
        for token in listed:
            scopes, streams = ",".join(token["scopes"]), ",".join(token["streams"] or ["all streams"])
            write(
                f"{token['id']}  {scopes:<17}  created {token['created']}  {_status(token)}  {streams}  {token['note']}"
            )


@commands.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token in the list, or the token.")],  # noqa: A002
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Revoke a token. This takes effect with the next request and cannot be undone."""
    with service_imports():
        from exchangeable.service import tokens
    with database(db) as connection, usage_errors(), _transaction(connection):
        tokens.revoke(connection, id, user=_user())


@commands.command()
def log(db: Database = DEFAULT_DATABASE, format: FormatOption = Format.text) -> None:  # noqa: A002
    """List the changes of tokens, and which user of this machine made them, oldest first."""
    with service_imports():
        from exchangeable.service import tokens
    with database(db) as connection:
        entries = [{**entry._asdict(), "time": _format_time(entry.time)} for entry in tokens.log(connection)]
    if format is Format.json:
        write(json.dumps(entries))
    else:
        for entry in entries:
            write(f"{entry['time']}  {entry['action']:<6}  {entry['token']}  {entry['user']}  {entry['detail']}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit at the end of the block, unless it raises."""
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("COMMIT")


def _user() -> str:
    """Return the account that runs this command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # without an entry in the list of users
        return str(os.getuid())


def _duration(option: str, text: str) -> float:
    """Return a duration in seconds."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if match is None:
        raise ValueError(f"{option} must be a number followed by s, m, h or d, such as 30d, got {text!r:.40}")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[match[2]]


def _expiry(text: str | None, now: float) -> float | None:
    """Return when a token expires: after a duration from now on, or at a date."""
    if text is None:
        return None
    if re.fullmatch("[0-9]+[a-z]", text):
        return now + _duration("expires", text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        rule = "expires must be a duration such as 30d, or a date such as 2030-01-31, in UTC unless it has an offset"
        raise ValueError(f"{rule}, got {text!r:.40}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _status(token: dict[str, Any]) -> str:
    if token["revoked"]:
        return f"revoked {token['revoked']}"
    if token["expires"] is None:
        return "valid"
    return f"{'expired' if token['expires'] <= _format_time(time.time()) else 'expires'} {token['expires']}"


def _record(token: Token) -> dict[str, Any]:
    times = ("created", "revoked", "expires", "replaced_until")
    return {**token._asdict(), **{name: _format_time(getattr(token, name)) for name in times}}


def _format_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
