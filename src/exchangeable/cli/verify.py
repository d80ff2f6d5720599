"""The command `exchangeable verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.analysis.formats import count_of
from exchangeable.cli.errors import RejectedError
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import progress_bars, write
from exchangeable.cli.service import service_imports, storage_errors
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.service.verify import Report

LISTED = 50  # findings in the text output


def verify(
    db: Annotated[Path, typer.Argument(metavar="DB", help="Database file of the server, or a backup.")],
    streams: Annotated[
        int, typer.Option(min=0, help="How many streams, chosen at random, are restored and tested again.")
    ] = 10,
    all_streams: Annotated[bool, typer.Option("--all", help="Restore and test all streams again.")] = False,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Check a database for damage, also while a server uses it.

    Checks the structure of the file, the checksums of all rows, that no step, alarm or reset is missing, and that the
    roll-ups match the steps. Some streams are also restored, as the server does. Those whose steps are all still
    stored are tested again: each p-value and capital must equal the stored one, bit for bit.

    Exit codes: 0 no damage, 1 damage, 2 usage error, 3 the database cannot be checked.
    """
    with service_imports():
        from exchangeable.service.verify import verify as check
    with storage_errors(), progress_bars() as progress:
        report = check(db, None if all_streams else streams, progress)
    write(json.dumps(report._asdict()) if format is Format.json else _text(db, report))
    if report.damage:
        raise RejectedError


def _text(db: Path, report: Report) -> str:
    again = f"{count_of(report.restored, 'stream')} restored, {report.replayed:,} tested again from the start"
    checked = f"{count_of(report.streams, 'stream')}, {count_of(report.rows, 'row')}; {again}"
    if not report.damage:
        return f"{printable(db)}: no damage ({checked})."
    listed = [f"  {printable(Path(found))}" for found in report.damage[:LISTED]]
    more = [f"  and {len(report.damage) - LISTED:,} more; --format json lists all of them"]
    advice = "Stop the server and restore a backup (`exchangeable restore`). A damaged stream can also be deleted."
    return "\n".join([f"{printable(db)}: DAMAGED ({checked}):", *listed, *more * (len(report.damage) > LISTED), advice])
