"""What the commands around the server have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable._extras import check, needed
from exchangeable.cli.failures import UNDECIDED, Failure
from exchangeable.cli.output import shown

if TYPE_CHECKING:
    import sqlite3

    from exchangeable.service.server_config import Settings

DATABASE = Path("exchangeable.db")
Database = Annotated[Path, typer.Option("--db", help="The database of the server: one file.")]
Config = Annotated[Path | None, typer.Option(help="The operator's settings (TOML); see docs/operations.md.")]


@contextmanager
def installed() -> Iterator[None]:
    """Name the extra where what the server needs is missing, too old or too new."""
    check("service", "the server")  # whose versions matter for its safety
    with needed("service", "the server"):
        yield


def settings_in(path: Path | None) -> Settings:
    """The settings of a file, or the defaults."""
    from exchangeable.service.server_config import Settings

    try:
        return Settings() if path is None else Settings.read(path)
    except ValueError as error:
        raise Failure(str(error), UNDECIDED) from error


@contextmanager
def opened(path: Path, *, made: bool = False) -> Iterator[sqlite3.Connection]:
    """The database, open beside a server that may run; ``made``: if it is not there."""
    import sqlite3

    from exchangeable.service.store import StoreError, open_database

    if not made and not path.exists():
        raise Failure(f"{shown(path)} does not exist; --db names the database of the server", UNDECIDED)
    try:
        with closing(open_database(path)) as connection:
            yield connection
    except (StoreError, sqlite3.Error) as error:
        raise Failure(str(error), UNDECIDED) from error
