"""`exchangeable token create`, `list` and `revoke`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exchangeable.cli.failures import USAGE, Failure, usage
from exchangeable.cli.options import Format
from exchangeable.cli.output import write
from exchangeable.cli.service import DATABASE, Database, installed, opened

if TYPE_CHECKING:
    from exchangeable.service.access import Token

commands: typer.Typer = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke tokens: who may speak to the server."
)


class Scope(StrEnum):
    """What a token allows."""

    read = "read"
    ingest = "ingest"
    admin = "admin"


@commands.command()
def create(
    scope: Annotated[
        list[Scope], typer.Option(help="What it allows; repeat for more. admin allows all, ingest no reading.")
    ],
    note: Annotated[str, typer.Option(help="What it is for: at most 200 characters.")] = "",
    db: Database = DATABASE,
) -> None:
    """Make a token and write it, alone, to stdout: this once, since only its hash is kept."""
    with installed():
        from exchangeable.service import access
    with opened(db, made=True) as connection:
        write(usage(lambda: access.create(connection, [one.value for one in scope], note)))


@commands.command(name="list")
def listing(
    db: Database = DATABASE,
    format: Annotated[Format, typer.Option(help="Of the list.")] = Format.text,  # noqa: A002
) -> None:
    """List all tokens ever made, without their secrets."""
    with installed():
        from exchangeable.service import access
    with opened(db) as connection:
        tokens = [_record(token) for token in access.listing(connection)]
    if format is Format.json:
        write(json.dumps(tokens))
    else:
        for token in tokens:
            ended = f"revoked {token['revoked']}" if token["revoked"] else "valid"
            write(f"{token['id']}  {','.join(token['scopes']):<17}  made {token['created']}  {ended}  {token['note']}")


@commands.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id in the list, or the token itself.")],  # noqa: A002
    db: Database = DATABASE,
) -> None:
    """Make a token void for good, from the next request on."""
    with installed():
        from exchangeable.service import access
    with opened(db) as connection:
        try:
            access.revoke(connection, id)
        except ValueError as error:
            raise Failure(str(error), USAGE) from error


def _record(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "scopes": list(token.scopes),
        "note": token.note,
        "created": _moment(token.created),
        "revoked": None if token.revoked is None else _moment(token.revoked),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
