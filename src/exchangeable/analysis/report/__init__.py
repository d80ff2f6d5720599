"""The HTML report of a result, as one self-contained file, and its cards for notebooks.

The pages have no scripts and load nothing. The templates escape all text; names are also shortened, and their control
characters and direction marks are written as escape sequences.
"""

from __future__ import annotations

import datetime as dt
import errno
import html
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from exchangeable import plots
from exchangeable._extras import needed
from exchangeable.analysis.report import view
from exchangeable.analysis.report.monitor_card import describe_monitor
from exchangeable.analysis.report.monitor_card import view as monitor_view
from exchangeable.analysis.report.names import spell_out
from exchangeable.analysis.timeline import format_time
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Explanation
    from exchangeable.analysis.result import Result
    from exchangeable.tracker import Tracker

SUFFIXES = (".html", ".htm")
MAX_HEADING = 200  # characters of a title or an author
T = TypeVar("T")


def save(result: Result, path: str | os.PathLike[str], *, title: str | None = None, author: str | None = None) -> None:
    """Write the report to a temporary file, then rename it, so that a failure leaves no partial report."""
    target = Path(path)
    check_heading("title", title)
    check_heading("author", author)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {format_value(str(path))}")
    check_packages()
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(target.parent))
    part = target.with_name(f".{target.name}.part")
    part.touch()  # fails early if the folder is read-only
    try:
        part.write_bytes(document(result, result.explain(), title, author).encode())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def check_packages() -> None:
    """Raise ImportError if a package for reports is missing."""
    with needed("report", "the report"):
        import jinja2  # noqa: F401

        plots.axes()


def check_heading(name: str, text: object) -> None:
    """Raise ValueError unless a title or an author is a line of text; None stands for no text."""
    if text is not None and not (isinstance(text, str) and text.strip() and len(text) <= MAX_HEADING):
        raise ValueError(f"{name} must be a text of 1 to {MAX_HEADING} characters, got {format_value(text)}")


def today() -> dt.date:
    """Return the date of a report."""
    return dt.datetime.now().astimezone().date()


def document(result: Result, explanation: Explanation, title: str | None = None, author: str | None = None) -> str:
    """Return the report as HTML. O(n), and under 300 KB whatever the data."""
    from exchangeable.analysis.report.environment import render

    heading = view.Heading(title or "", author or "", format_time(np.datetime64(today()), "D"))
    return render("report.html.j2", view.document_view(result, explanation, heading))


def result_card(result: Result) -> str:
    """Return a card for notebooks: the verdict, what to do, and a picture of the data."""
    return _card("result_card.html.j2", result, view.result_view)


def explanation_card(explanation: Explanation) -> str:
    """Return a card for notebooks: the change point, the columns by evidence, labels, and extreme rows."""
    return _card("explanation_card.html.j2", explanation, view.explanation_view)


def monitor_card(monitor: Tracker) -> str:
    """Return a card for notebooks: the verdict so far, key figures, a chart of the evidence, and the method."""
    return _card("monitor_card.html.j2", describe_monitor(monitor), monitor_view)


def _card(template: str, content: T, make_view: Callable[[T], dict[str, Any]]) -> str:
    """Render a card, or its plain text if Jinja is not installed."""
    try:
        with needed("report", "a card with figures"):
            from exchangeable.analysis.report.environment import render
    except ImportError as error:
        text = "\n".join(spell_out(line) for line in str(content).split("\n"))
        return f"<pre>{html.escape(text)}</pre><p>{html.escape(str(error))}</p>"
    return render(template, make_view(content))
