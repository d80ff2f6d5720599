"""The HTML report of a result, as one self-contained file, and its cards for notebooks.

The pages have no scripts and load nothing. The templates escape all text; names are also shortened, and their control
characters and direction marks are written as escape sequences.
"""

from __future__ import annotations

import errno
import html
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from exchangeable import plots
from exchangeable._extras import needed
from exchangeable.analysis.report import view
from exchangeable.analysis.report.names import spell_out
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from exchangeable.analysis.explain import Explanation
    from exchangeable.analysis.result import Result

SUFFIXES = (".html", ".htm")
T = TypeVar("T")


def save(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the report to a temporary file, then rename it, so that a failure leaves no partial report."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"path must end in {' or '.join(SUFFIXES)}, got {format_value(str(path))}")
    check_packages()
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(target.parent))
    part = target.with_name(f".{target.name}.part")
    part.touch()  # fails early if the folder is read-only
    try:
        part.write_bytes(document(result, result.explain()).encode())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def check_packages() -> None:
    """Raise ImportError if a package for reports is missing."""
    with needed("report", "the report"):
        import jinja2  # noqa: F401

        plots.axes()


def document(result: Result, explanation: Explanation) -> str:
    """Return the report as HTML. O(n), and under 300 KB whatever the data."""
    from exchangeable.analysis.report.environment import render

    return render("report.html.j2", view.document_view(result, explanation))


def result_card(result: Result) -> str:
    """Return a card for notebooks: the verdict, key figures and a chart of the evidence."""
    return _card("result_card.html.j2", result, view.result_view)


def explanation_card(explanation: Explanation) -> str:
    """Return a card for notebooks: the change point, the columns by evidence, labels, and extreme rows."""
    return _card("explanation_card.html.j2", explanation, view.explanation_view)


def _card(template: str, content: T, make_view: Callable[[T], dict[str, Any]]) -> str:
    """Render a card, or its plain text if Jinja is not installed."""
    try:
        with needed("report", "a card with figures"):
            from exchangeable.analysis.report.environment import render
    except ImportError as error:
        text = "\n".join(spell_out(line) for line in str(content).split("\n"))
        return f"<pre>{html.escape(text)}</pre><p>{html.escape(str(error))}</p>"
    return render(template, make_view(content))
