"""The command `exchangeable backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exchangeable.analysis.formats import count_of
from exchangeable.cli.output import progress_bars, write
from exchangeable.cli.service import service_imports, storage_errors
from exchangeable.validation import printable


def backup(
    db: Annotated[Path, typer.Argument(metavar="DB", help="Database file of the server.")],
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="File to write; an earlier backup is replaced.")],
) -> None:
    """Copy a database to a file, also while a server writes to it.

    The copy is one committed state. It is written to DEST.part, verified, and renamed to DEST. If it is interrupted,
    repeat the command: only pages that DEST.part lacks, or that have changed since, are written.

    Exit codes: 0 done, 1 the database is damaged and DEST is unchanged, 2 usage error, 3 it could not be copied.
    """
    with service_imports():
        from exchangeable.service.backup import backup as copy
    with storage_errors(), progress_bars() as progress:
        copied, report = copy(db, dest, progress)
    write(
        f"{printable(dest)}: {count_of(report.streams, 'stream')}, {count_of(copied.pages, 'page')}, of which"
        f" {copied.written:,} were written; no damage."
    )
