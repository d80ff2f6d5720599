"""`exchangeable token create`, `list` and `revoke`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.errors import usage_errors
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import write
from exchangeable.cli.service import DEFAULT_DATABASE, Database, database, service_imports

if TYPE_CHECKING:
    from exchangeable.service.access import Token

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Create, list and revoke access tokens of the server.")


class Scope(StrEnum):
    """What a token allows."""

    read = "read"
    ingest = "ingest"
    admin = "admin"


@commands.command()
def create(
    scope: Annotated[
        list[Scope],
        typer.Option(
            help="What the token allows. Can be repeated. admin allows everything; ingest does not allow read."
        ),
    ],
    note: Annotated[str, typer.Option(help="What the token is for; at most 200 characters.")] = "",
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Create a token and print it. It is shown only once: the database stores its hash."""
    with service_imports():
        from exchangeable.service import access
    with database(db, create=True) as connection, usage_errors():
        write(access.create(connection, [one.value for one in scope], note))


@commands.command(name="list")
def list_tokens(db: Database = DEFAULT_DATABASE, format: FormatOption = Format.text) -> None:  # noqa: A002
    """List all tokens, including revoked ones, without their secrets."""
    with service_imports():
        from exchangeable.service import access
    with database(db) as connection:
        tokens = [_record(token) for token in access.list_tokens(connection)]
    if format is Format.json:
        write(json.dumps(tokens))
    else:
        for token in tokens:
            status = f"revoked {token['revoked']}" if token["revoked"] else "valid"
            scopes = ",".join(token["scopes"])
            write(f"{token['id']}  {scopes:<17}  created {token['created']}  {status}  {token['note']}")


@commands.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the token in the list, or the token.")],  # noqa: A002
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Revoke a token. This takes effect with the next request and cannot be undone."""
    with service_imports():
        from exchangeable.service import access
    with database(db) as connection, usage_errors():
        access.revoke(connection, id)


def _record(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "scopes": list(token.scopes),
        "note": token.note,
        "created": _format_time(token.created),
        "revoked": None if token.revoked is None else _format_time(token.revoked),
    }


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
