"""`exchangeable serve`."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from exchangeable.cli.errors import UNDECIDED, CommandError
from exchangeable.cli.service import DEFAULT_DATABASE, Config, Database, read_config, service_imports


def serve(
    db: Database = DEFAULT_DATABASE,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Addresses other than the loopback need a token first.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free port.")] = 8000,
    config: Config = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve the API without the web page.")] = False,
) -> None:
    """Run the monitoring server: an HTTP API for streams, durable state and a live web page.

    The address is printed on stderr when the server is ready. The web page is at /, the API documentation at /docs.
    Until a token exists (`exchangeable token create`), every local user has full access. SIGINT and SIGTERM stop the
    server gracefully; SIGHUP reads the configuration file again.

    Exit codes: 0 stopped, 2 usage error, 3 the server could not start.
    """
    with service_imports():
        from exchangeable.service import run
    settings = read_config(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops gracefully, and then raises the signal again
        signal.signal(number, _exit)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server can reload its settings
    try:
        code = run.serve(db, host, port, settings, page=not no_page, config=config)
    except run.ServeError as error:
        raise CommandError(str(error), UNDECIDED) from error
    if code:
        raise CommandError("the server could not start", code)


def _exit(*_: object) -> None:
    sys.exit(0)
