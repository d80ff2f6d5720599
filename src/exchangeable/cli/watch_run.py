"""Run a watch: open the input and the state, and turn its exceptions into messages with exit codes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from exchangeable.cli.errors import BROKEN_PIPE, UNDECIDED, USAGE, CommandError, RejectedError
from exchangeable.cli.output import silence_stdout

if TYPE_CHECKING:
    from exchangeable.tracker import Tracker
    from exchangeable.watch import StateFile
    from exchangeable.watch.loop import Loop
    from exchangeable.watch.source import LineReader

Monitored = TypeVar("Monitored", bound="Tracker")
Lines = TypeVar("Lines", bound="LineReader")


def run_watch(
    file: str,
    state: StateFile | None,
    prepare: Callable[[StateFile | None], tuple[Monitored, Lines]],
    make_loop: Callable[[Monitored, Lines, Any, Any], Loop],
) -> None:
    """Watch until the input ends; an alarm is raised as ``RejectedError``.

    ``prepare`` returns the monitor, resumed from the state if there is one, and the reader of lines.
    """
    if file == "-" and sys.stdin is None:  # its file descriptor may soon belong to another file
        raise CommandError("standard input is closed", UNDECIDED)
    with _command_errors():
        if _run(file, state, prepare, make_loop):
            raise RejectedError


def _run(
    file: str,
    state: StateFile | None,
    prepare: Callable[[StateFile | None], tuple[Monitored, Lines]],
    make_loop: Callable[[Monitored, Lines, Any, Any], Loop],
) -> bool:
    from exchangeable.watch import Signals, Source

    with ExitStack() as stack:
        if state is not None:
            stack.enter_context(state)
        monitor, reader = prepare(state)
        source = stack.enter_context(Source(file))
        if state is not None:
            state.resume(source, reader)
            state.save(monitor, reader.columns, source)  # before any output, so that a drawn seed is never drawn again
        signals = stack.enter_context(Signals())
        loop = make_loop(monitor, reader, source, sys.stdout.buffer)
        alarm = loop.run(signals)
        if not loop.tracker.n:
            raise CommandError("there must be at least one example, got none", UNDECIDED)
        return alarm


@contextmanager
def _command_errors() -> Iterator[None]:
    """Turn the exceptions of a watch into messages with exit codes."""
    from exchangeable import watch as watching

    try:
        yield
    except watching.UsageError as error:
        raise CommandError(str(error), USAGE) from error
    except (watching.LineError, watching.StateError) as error:
        raise CommandError(str(error), UNDECIDED) from error
    except watching.Stopped as error:
        silence_stdout()
        message = "interrupted" if error.number == signal.SIGINT else "terminated"
        raise CommandError(message, 128 + error.number) from error
    except BrokenPipeError as error:
        silence_stdout()
        raise CommandError("", BROKEN_PIPE) from error
