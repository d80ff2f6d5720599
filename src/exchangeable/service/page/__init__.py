"""The web page: the files and the paths they are served under. No request can name a file that is not listed.

``vendor/`` is built from npm packages by ``scripts/build_page.py`` when the project is built or installed, and is part
of the wheel.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["DOCUMENTS", "PageFile", "missing", "page_files"]
HERE = Path(__file__).parent
HTML, SCRIPT, STYLE = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "text/css; charset=utf-8"
REVALIDATE = "no-cache"  # cached, but checked each time: after an upgrade, old and new modules must not mix


class PageFile(NamedTuple):
    """A file, and the headers it is served with."""

    path: Path
    media_type: str
    cache_control: str = REVALIDATE


def _scripts(*names: str) -> dict[str, PageFile]:
    return {f"/page/{name}": PageFile(HERE / name, SCRIPT) for name in names}


# the pages that a browser opens; {name} is the name of a stream, whose data the page gets from the API
DOCUMENTS: Mapping[str, PageFile] = MappingProxyType(
    {
        "/": PageFile(HERE / "index.html", HTML),
        "/new": PageFile(HERE / "new.html", HTML),
        "/streams/{name}": PageFile(HERE / "stream.html", HTML),
        "/docs": PageFile(HERE / "docs.html", HTML),
    }
)
ASSETS: Mapping[str, PageFile] = MappingProxyType(
    {
        "/favicon.ico": PageFile(HERE / "icon.svg", "image/svg+xml"),
        "/page/icon.svg": PageFile(HERE / "icon.svg", "image/svg+xml"),
        "/page/style.css": PageFile(HERE / "style.css", STYLE),
        **_scripts("api.js", "axis.js", "charts.js", "columns.js", "csv.js", "docs.js", "dom.js", "format.js"),
        **_scripts("new.js", "overview.js", "shell.js", "spark.js", "sse.js", "stream.js", "words.js"),
        **_scripts("vendor/uPlot.esm.js", "vendor/swagger-ui-bundle.js"),
        "/page/vendor/uPlot.min.css": PageFile(HERE / "vendor" / "uPlot.min.css", STYLE),
        "/page/vendor/swagger-ui.css": PageFile(HERE / "vendor" / "swagger-ui.css", STYLE),
    }
)


def page_files() -> dict[str, PageFile]:
    """Return all paths of the page and their files. They need no token, because they hold no data.

    >>> page_files()["/page/api.js"].media_type
    'text/javascript; charset=utf-8'
    """
    return {**DOCUMENTS, **ASSETS}


def missing() -> list[str]:
    """Return the files that do not exist: without npm, ``vendor/`` cannot be built."""
    return sorted({str(file.path.relative_to(HERE)) for file in page_files().values() if not file.path.is_file()})
