"""What all commands write with: lines, progress bars, pictures."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import exchangeable as ex
from exchangeable.cli.failures import UNDECIDED, USAGE, Failure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from exchangeable.analysis import Result

PICTURES = (".png", ".svg", ".pdf")
REPORTS = (".html", ".htm")


def write(text: str) -> None:
    """Data to stdout; a reader that went away is not a verdict."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that nothing more is written at exit
        raise Failure("the reader of the output went away", UNDECIDED) from None


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A function (what, how much done, of how much) that moves progress bars on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield show


def check_picture(path: Path | None) -> None:
    """Before the work: can the picture be drawn, and is there a place for it?"""
    if path is not None:
        _check_place(path, PICTURES)
        ex.plots.axes()


def check_report(path: Path | None) -> None:
    """The same for a report."""
    if path is not None:
        _check_place(path, REPORTS)
        from exchangeable.analysis.report import check_packages

        check_packages()


def _check_place(path: Path, suffixes: tuple[str, ...]) -> None:
    if path.suffix.lower() not in suffixes:
        law = f"end in one of {', '.join(suffixes)}" if len(suffixes) > 2 else f"end in {' or '.join(suffixes)}"
        raise Failure(f"{shown(path)} must {law}", USAGE)
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise Failure(f"{shown(path)} cannot be written: its folder does not exist or is read-only", UNDECIDED)


def save_report(result: Result, path: Path) -> None:
    """Write the report, with a progress bar: it looks at each feature."""
    with progress_bars() as progress:
        result.explain(progress=progress)
    result.save_html(path)


def draw(ax: Axes, path: Path) -> None:
    """Write the picture beside its name first, so that a failure leaves no half of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        ax.figure.savefig(part, format=path.suffix[1:].lower())  # type: ignore[union-attr]
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def shown(path: Path) -> str:
    """A path without control characters."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))
