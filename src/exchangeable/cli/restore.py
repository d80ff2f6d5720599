"""The command `exchangeable restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exchangeable.cli.output import progress_bars, write
from exchangeable.cli.service import service_imports, storage_errors
from exchangeable.validation import printable


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup, or another database file.")],
    db: Annotated[
        Path, typer.Argument(metavar="DB", help="Where the server expects its database; it must be stopped.")
    ],
) -> None:
    """Restore a database from a backup.

    The backup is verified and copied. The old database is never overwritten: its files are renamed to
    DB.before-<time>. Clients continue from next_seq of each stream.

    Exit codes: 0 done, 1 the backup is damaged and DB is unchanged, 2 usage error, 3 it could not be restored, for
    example because a server uses DB.
    """
    with service_imports():
        from exchangeable.service.backup import restore as put_back
    with storage_errors(), progress_bars() as progress:
        aside = put_back(source, db, progress)
    write(f"{printable(db)} was restored from {printable(source)}.")
    if aside is not None:
        write(f"The old database was renamed to {printable(aside)}.")
