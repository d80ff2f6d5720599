"""`exchangeable alert test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError
from exchangeable.cli.options import Format, FormatOption
from exchangeable.cli.output import write
from exchangeable.cli.service import read_config, service_imports
from exchangeable.validation import printable

if TYPE_CHECKING:
    from exchangeable.service.alerts import Receiver

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="Test the delivery of alerts.")


@commands.callback()
def _commands() -> None:
    """Keep `test` a subcommand: without a callback, Typer would drop the name of the only command."""


@commands.command()
def test(
    config: Annotated[Path, typer.Option(help="Configuration file (TOML) with the receivers of alerts.")],
    receiver: Annotated[str | None, typer.Option(help="Name of the only receiver to test; default: all.")] = None,
    format: FormatOption = Format.text,  # noqa: A002
) -> None:
    """Send a test alert to every receiver, first as firing and then as resolved, without retries.

    Exit codes: 0 all delivered, 2 usage error, 3 not all delivered.
    """
    import asyncio

    with service_imports():
        from exchangeable.service import alerts
    settings = read_config(config)
    receivers = _select(settings.receivers, receiver, config)
    outcomes = asyncio.run(alerts.test_alert(receivers, settings.external_url or ""))
    if format is Format.json:
        write(json.dumps([outcome._asdict() for outcome in outcomes]))
    else:
        for outcome in outcomes:
            write(f"{outcome.receiver}: {'delivered' if outcome.delivered else f'NOT delivered: {outcome.error}'}")
    failed = [outcome.receiver for outcome in outcomes if not outcome.delivered]
    if failed:
        raise CommandError(f"the test alert was not delivered to {', '.join(failed)}", UNDECIDED)


def _select(receivers: tuple[Receiver, ...], receiver: str | None, config: Path) -> list[Receiver]:
    names = [one.name for one in receivers]
    if receiver is not None and receiver not in names:
        raise CommandError(f"--receiver must be one of {', '.join(names) or 'none'}, got {receiver!r}", USAGE)
    if not names:
        sections = "no [[webhooks]] or [[apprise]] section"
        raise CommandError(f"{printable(config)} has no receivers: it has {sections}", USAGE)
    return [one for one in receivers if receiver in (None, one.name)]
