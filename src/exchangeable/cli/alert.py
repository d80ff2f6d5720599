"""`exchangeable alert test`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from exchangeable.cli.failures import UNDECIDED, USAGE, Failure
from exchangeable.cli.options import Format
from exchangeable.cli.output import shown, write
from exchangeable.cli.service import installed, settings_in

commands: typer.Typer = typer.Typer(no_args_is_help=True, help="See whether alerts arrive.")


@commands.callback()
def _commands() -> None:
    """So that `test` stays a word of its own, though it is the only one."""


@commands.command()
def test(
    config: Annotated[Path, typer.Option(help="The operator's settings (TOML), and in it its webhooks.")],
    receiver: Annotated[str | None, typer.Option(help="Only this one, by its name; default: all.")] = None,
    format: Annotated[Format, typer.Option(help="Of the outcomes.")] = Format.text,  # noqa: A002
) -> None:
    """Send every receiver a test alert, firing and then resolved, the way a real one goes, but once only.

    Exit codes: 0 all delivered, 2 wrong usage, 3 one was not.
    """
    import asyncio

    with installed():
        from exchangeable.service import alerts
    settings = settings_in(config)
    names = [webhook.name for webhook in settings.webhooks]
    if receiver is not None and receiver not in names:
        raise Failure(f"--receiver must be one of {', '.join(names) or 'none'}, got {receiver!r}", USAGE)
    if not names:
        raise Failure(f"{shown(config)} names no receiver: there is no [[webhooks]] in it", USAGE)
    chosen = [webhook for webhook in settings.webhooks if receiver in (None, webhook.name)]
    outcomes = asyncio.run(alerts.test_alert(chosen, settings.external_url or ""))
    if format is Format.json:
        write(json.dumps([outcome._asdict() for outcome in outcomes]))
    else:
        for outcome in outcomes:
            write(f"{outcome.receiver}: {'delivered' if outcome.delivered else f'NOT delivered: {outcome.error}'}")
    missed = [outcome.receiver for outcome in outcomes if not outcome.delivered]
    if missed:
        raise Failure(f"the test alert was not delivered to {', '.join(missed)}", UNDECIDED)
