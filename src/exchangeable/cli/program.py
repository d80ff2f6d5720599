"""The program: its options, and how every failure becomes one sentence and the right exit code."""

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
from exchangeable.cli.failures import INTERRUPTED, REJECTED, UNDECIDED, USAGE, Failure, RejectedError
from exchangeable.cli.output import write

COMMANDS = ("demo", "test", "watch", "serve", "shift", "fleet", "certify", "fetch", "reproduce")
GROUPS = ("token", "alert", "spark")  # of commands; the module of each holds them as ``commands``


def parser(names: Sequence[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """The parser of these commands: the modules of the others are not imported."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Is this data still exchangeable (i.i.d.)? A test with a guarantee: on exchangeable data the chance of "
        "a false alarm is at most alpha.",
        epilog="Exit codes: 0 not rejected, 1 rejected, 2 wrong usage, 3 could not decide (bad or too little data, "
        "I/O).",
    )
    app.callback()(_options)
    for name in names:
        module = import_module(f"exchangeable.cli.{name}")
        if name in GROUPS:
            app.add_typer(module.commands, name=name)
        else:
            command = getattr(module, name)
            app.command(help=flowed(command.__doc__))(command)
    return app


def flowed(text: str | None) -> str:
    """The paragraphs of a docstring, each without line breaks, so that they fill the terminal."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _version(value: bool) -> None:
    if value:
        write(f"exchangeable {ex.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Options of all commands."""


def _interrupted(*_: object) -> None:
    raise Failure("interrupted", INTERRUPTED)


def run(words: Sequence[str]) -> None:
    """Run a command, and turn every failure into one sentence and the right exit code."""
    signal.signal(signal.SIGINT, _interrupted)
    sentence, code = "", 0
    try:
        app = parser(words[:1]) if words and words[0] in (*COMMANDS, *GROUPS) else parser()
        app(words, prog_name="exchangeable")
    except RejectedError:
        code = REJECTED
    except SystemExit as done:  # of the parser: 0, 2 for wrong usage, and 1 where it could not write
        code = UNDECIDED if done.code == REJECTED else int(done.code or 0)
    except Failure as error:
        sentence, code = str(error), error.code
    except Exception as error:  # noqa: BLE001
        sentence, code = _explained(error)
    if sentence:
        with suppress(OSError):
            typer.echo(f"exchangeable: {sentence}", err=True)
    sys.exit(code)


def _explained(error: Exception) -> tuple[str, int]:
    """A sentence and the exit code for what the library raised."""
    from exchangeable.data import files as tables

    if isinstance(error, tables.ColumnError):
        return str(error), USAGE
    if isinstance(error, MemoryError):
        return "not enough memory", UNDECIDED
    if isinstance(error, (tables.TableError, ex.research.datasets.DatasetError, ImportError, OSError)):
        return str(error), UNDECIDED
    if "EXCHANGEABLE_TRACEBACK" in os.environ:
        raise error
    name = type(error).__name__
    return f"internal error, please report it with EXCHANGEABLE_TRACEBACK=1 set: {name}: {error}", UNDECIDED
