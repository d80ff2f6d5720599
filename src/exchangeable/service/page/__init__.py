"""The page: which path is answered with which file. The table is written out: no path of a client becomes a file's.

``vendor/`` is made from npm's packages by ``scripts/build_page.py`` when the project is built or installed, and is part
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
REVALIDATE = "no-cache"  # kept, but asked about each time: after an upgrade no old module meets a new one


class PageFile(NamedTuple):
    """A file, and the headers it goes out with."""

    path: Path
    media_type: str
    cache_control: str = REVALIDATE


def _scripts(*names: str) -> dict[str, PageFile]:
    return {f"/page/{name}": PageFile(HERE / name, SCRIPT) for name in names}


# what a person's browser opens; {name} is the name of a stream, which the page asks the API about
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
        **_scripts("api.js", "charts.js", "csv.js", "docs.js", "dom.js", "format.js"),
        **_scripts("new.js", "overview.js", "shell.js", "spark.js", "sse.js", "stream.js"),
        **_scripts("vendor/uPlot.esm.js", "vendor/swagger-ui-bundle.js"),
        "/page/vendor/uPlot.min.css": PageFile(HERE / "vendor" / "uPlot.min.css", STYLE),
        "/page/vendor/swagger-ui.css": PageFile(HERE / "vendor" / "swagger-ui.css", STYLE),
    }
)


def page_files() -> dict[str, PageFile]:
    """Every path of the page and what is answered there; all are open, because none holds data.

    >>> page_files()["/page/api.js"].media_type
    'text/javascript; charset=utf-8'
    """
    return {**DOCUMENTS, **ASSETS}


def missing() -> list[str]:
    """The files that are not there: without npm, ``vendor/`` could not be made."""
    return sorted({str(file.path.relative_to(HERE)) for file in page_files().values() if not file.path.is_file()})
