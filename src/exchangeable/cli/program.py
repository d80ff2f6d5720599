"""Build the Typer app and run it. Every error becomes one message on stderr and an exit code."""

from __future__ import annotations

import inspect
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated

import typer

import exchangeable as ex
from exchangeable.cli.errors import INTERRUPTED, REJECTED, UNDECIDED, USAGE, CommandError, RejectedError
from exchangeable.cli.output import write
from exchangeable.data.errors import ColumnError, DataError

COMMANDS = (
    "demo", "test", "compare", "shift", "streams", "watch", "serve", "fleet", "certify", "fetch", "reproduce",
    "verify", "backup", "restore",
)  # fmt: skip
GROUPS = ("token", "alert", "spark")  # the module of a group defines its Typer app as `commands`


def build_app(names: Sequence[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """Return an app with these commands. The modules of other commands are not imported."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Test whether data is exchangeable (for example i.i.d.), with a guarantee: on exchangeable data, the "
        "probability of a false alarm is at most alpha.",
        epilog="Exit codes: 0 not rejected, 1 rejected, 2 usage error, 3 undecided (invalid data, too little data, or "
        "an I/O error).",
    )
    app.callback()(_global_options)
    for name in names:
        module = import_module(f"exchangeable.cli.{name}")
        if name in GROUPS:
            app.add_typer(module.commands, name=name)
        else:
            command = getattr(module, name)
            app.command(help=join_lines(command.__doc__))(command)
    return app


def join_lines(docstring: str | None) -> str:
    """Remove the line breaks within each paragraph, so that the text fills the terminal."""
    paragraphs = inspect.cleandoc(docstring or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _print_version(value: bool) -> None:
    if value:
        write(f"exchangeable {ex.__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Declare the options that come before the command."""


def run(arguments: Sequence[str]) -> None:
    """Run a command and exit with its exit code."""
    signal.signal(signal.SIGINT, _raise_interrupted)
    message, code = _run(arguments)
    if message:
        with suppress(OSError):
            typer.echo(f"exchangeable: {message}", err=True)
    sys.exit(code)


def _run(arguments: Sequence[str]) -> tuple[str, int]:
    """Run a command and return the error message, which may be empty, and the exit code."""
    try:
        known = arguments and arguments[0] in (*COMMANDS, *GROUPS)
        app = build_app(arguments[:1]) if known else build_app()
        app(arguments, prog_name="exchangeable")
    except RejectedError:
        return "", REJECTED
    except SystemExit as exit_:  # raised by Click: 0, 2 for a usage error, 1 if it could not write
        return "", UNDECIDED if exit_.code == REJECTED else int(exit_.code or 0)
    except CommandError as error:
        return str(error), error.code
    except Interrupted:
        return "interrupted", INTERRUPTED
    except Exception as error:  # noqa: BLE001
        return _describe(error)
    return "", 0


class Interrupted(BaseException):
    """Ctrl-C: neither an `Exception`, which a library may catch, nor a `KeyboardInterrupt`, which Click catches."""


def _raise_interrupted(*_: object) -> None:
    raise Interrupted


def _describe(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code for an exception raised by the library."""
    if isinstance(error, ColumnError):
        return str(error), USAGE
    if isinstance(error, MemoryError):
        return "not enough memory", UNDECIDED
    if isinstance(error, (DataError, ex.research.datasets.DatasetError, ImportError, OSError)):
        return str(error), UNDECIDED
    if "EXCHANGEABLE_TRACEBACK" in os.environ:
        raise error
    name = type(error).__name__
    hint = "please report it with its traceback, which is shown if EXCHANGEABLE_TRACEBACK=1 is set"
    return f"internal error: {name}: {error}; {hint}", UNDECIDED
