"""Output of the commands: text, notes, progress bars, plots and reports."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import exchangeable as ex
from exchangeable.cli.errors import UNDECIDED, USAGE, CommandError, usage_errors
from exchangeable.validation import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from exchangeable.analysis import Result

PLOT_SUFFIXES = (".png", ".svg", ".pdf")
REPORT_SUFFIXES = (".html", ".htm")


def write(text: str) -> None:
    """Write text to stdout. If the pipe is closed, the exit code is 3, which is not a verdict."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        silence_stdout()
        raise CommandError("the output cannot be written: the pipe is closed", UNDECIDED) from None


def silence_stdout() -> None:
    """Discard all further output to stdout, including what is flushed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_notes(notes: Iterable[str]) -> None:
    """Print each note on stderr."""
    for note in notes:
        typer.echo(f"exchangeable: note: {note}", err=True)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function ``(name, done, total)`` that updates progress bars on stderr if that is a terminal.

    A total of 0 is unknown.
    """
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=None)
            bars.update(tasks[name], completed=done, total=total or None)

        yield update


def check_plot(path: Path | None) -> None:
    """Check, before the work starts, that a plot can be drawn and written to this path."""
    if path is not None:
        _check_writable(path, PLOT_SUFFIXES)
        ex.plots.axes()


def check_report(path: Path | None, **heading: str | None) -> None:
    """Check, before the work starts, that a report with this title and author can be written to this path."""
    if path is None:
        for name in (name for name, text in heading.items() if text is not None):
            raise CommandError(f"--{name} is for a report, so it needs --report", USAGE)
        return
    from exchangeable.analysis.report import check_heading, check_packages

    with usage_errors():
        for name, text in heading.items():
            check_heading(name, text)
    _check_writable(path, REPORT_SUFFIXES)
    check_packages()


def _check_writable(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        allowed = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise CommandError(f"the name of the file must end in {allowed}, got {printable(path)}", USAGE)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        message = f"{printable(path)} cannot be written: its folder does not exist or is read-only"
        raise CommandError(message, UNDECIDED)


def save_report(result: Result, path: Path, **heading: str | None) -> None:
    """Write the report, with a progress bar for the explanation of each column."""
    with progress_bars() as progress:
        result.explain(progress=progress)
    result.save_html(path, **heading)


def save_plot(ax: Axes, path: Path) -> None:
    """Write the plot to a temporary file and rename it, so that an error leaves no partial file."""
    part = path.with_name(f".{path.name}.part")
    try:
        ax.figure.savefig(part, format=path.suffix[1:].lower())  # type: ignore[union-attr]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
