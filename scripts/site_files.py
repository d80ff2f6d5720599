"""A hook for mkdocs: adds files outside docs/ that the pages link to.

``[POWER.md](../benchmarks/POWER.md)`` works in the repository. In the site, the same file is a page (or, if it is not
Markdown, a download) under its own path, and the link is rewritten.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every file that a page links to, including links from the added pages."""
    pending = list(files.documentation_pages())
    while pending:
        page = pending.pop()
        for target in _targets(page, Path(str(page.abs_src_path)).read_text(encoding="utf-8")):
            if target not in files.src_uris and (ROOT / target).is_file():
                file = File.generated(config, target, abs_src_path=str(ROOT / target))
                files.append(file)
                pending += [file] if file.is_documentation_page() else []
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links to the added files."""
    here = page.file.src_uri

    def rewrite(link: re.Match[str]) -> str:
        target = _target(page.file, link[2])
        return f"{link[1]}{posixpath.relpath(target, posixpath.dirname(here) or '.')}" if target else link[0]

    return LINK.sub(rewrite, markdown)


def _targets(page: File, text: str) -> list[str]:
    return [target for link in LINK.finditer(text) if (target := _target(page, link[2]))]


def _target(page: File, link: str) -> str | None:
    """Return the target of a link relative to the root of the repository, or None if it is inside docs/."""
    home = Path(str(page.abs_src_path)).relative_to(ROOT).parent
    path = posixpath.normpath(posixpath.join(home.as_posix(), link))
    return None if path.startswith(("docs/", "..")) else path
