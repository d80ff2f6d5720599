"""Options and helpers shared by the commands `serve`, `token` and `alert`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable._extras import check, needed
from exchangeable.cli.errors import REJECTED, UNDECIDED, CommandError
from exchangeable.validation import printable

if TYPE_CHECKING:
    import sqlite3

    from exchangeable.service.server_config import Settings

DEFAULT_DATABASE = Path("exchangeable.db")
LOCK_TIMEOUT = 60.0  # seconds that a command waits for a server that writes
Database = Annotated[Path, typer.Option("--db", help="Database file of the server.")]
Config = Annotated[Path | None, typer.Option(help="Configuration file (TOML); see docs/operations.md.")]


@contextmanager
def service_imports() -> Iterator[None]:
    """Name the extra to install if a package that the server needs is missing, too old or too new."""
    check("service", "the server")  # all versions, since they matter for security
    with needed("service", "the server"):
        yield


def read_config(path: Path | None) -> Settings:
    """Read the server configuration from a file, or return the defaults."""
    from exchangeable.service.server_config import Settings

    try:
        return Settings() if path is None else Settings.read(path)
    except ValueError as error:
        raise CommandError(str(error), UNDECIDED) from error


@contextmanager
def database(path: Path, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the database, even while a server uses it. With ``create``, a missing file is created."""
    import sqlite3

    from exchangeable.service.store import StoreError, open_database

    if not create and not path.exists():
        message = f"{printable(path)} does not exist; --db names the database file of the server"
        raise CommandError(message, UNDECIDED)
    try:
        with closing(open_database(path, LOCK_TIMEOUT)) as connection:
            yield connection
    except (StoreError, sqlite3.Error) as error:
        raise CommandError(str(error), UNDECIDED) from error


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turn errors of `verify`, `backup` and `restore` into messages: damage exits with 1, all else with 3."""
    import sqlite3

    from exchangeable.service.backup import DamagedError
    from exchangeable.service.store import StoreError

    try:
        yield
    except DamagedError as error:
        raise CommandError(str(error), REJECTED) from error
    except (StoreError, sqlite3.Error) as error:
        raise CommandError(str(error), UNDECIDED) from error
