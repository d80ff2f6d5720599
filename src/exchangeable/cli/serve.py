"""`exchangeable serve`."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from exchangeable.cli.failures import UNDECIDED, Failure
from exchangeable.cli.service import DATABASE, Config, Database, installed, settings_in


def serve(
    db: Database = DATABASE,
    host: Annotated[
        str, typer.Option(help="Where to listen; any address but this machine's own needs a token first.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    config: Config = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="The API alone, without the page.")] = False,
) -> None:
    """Run the monitoring server: streams over HTTP, a live page, nothing lost.

    The address is said on stderr once the server listens; the page is there, and the API at /docs. Without a token
    (`exchangeable token create`) whoever is on this machine may do all. SIGINT and SIGTERM stop it gracefully.

    Exit codes: 0 stopped, 2 wrong usage, 3 could not serve.
    """
    with installed():
        from exchangeable.service import run
    settings = settings_in(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops gracefully at these, and then raises them again
        signal.signal(number, _stop)
    try:
        code = run.serve(db, host, port, settings, page=not no_page)
    except run.ServeError as error:
        raise Failure(str(error), UNDECIDED) from error
    if code:
        raise Failure("the server could not start", code)


def _stop(*_: object) -> None:
    sys.exit(0)
