"""The files of the server's page, and the small build that brings the parts from npm."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from exchangeable.service import page as the_page

ROOT = Path(__file__).parent.parent
HERE = Path(the_page.__file__).parent


def test_every_file_of_the_page_is_in_the_table_and_there() -> None:
    files = the_page.page_files()
    assert the_page.missing() == [], "run 'make page'"
    kept = {path for path in HERE.rglob("*") if path.suffix in {".html", ".js", ".css", ".svg"}}
    assert kept == {file.path for file in files.values()}
    assert all(path == "/" or re.fullmatch(r"(/[A-Za-z0-9._{}-]+)+", path) for path in files)


def test_without_vendor_the_missing_files_are_named(tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "page", ignore=shutil.ignore_patterns("vendor", "__pycache__"))
    bare = runpy.run_path(str(tmp_path / "page" / "__init__.py"))
    assert bare["missing"]() == [
        "vendor/swagger-ui-bundle.js",
        "vendor/swagger-ui.css",
        "vendor/uPlot.esm.js",
        "vendor/uPlot.min.css",
    ]


class Strict(HTMLParser):
    """Fails on what the content security policy would block, and on addresses elsewhere."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert name != "style", (tag, value)
            assert not name.startswith("on"), (tag, name)
            assert "//" not in (value or ""), (tag, name, value)
        assert tag != "style"
        assert tag != "script" or dict(attrs).get("src"), "inline script"


@pytest.mark.parametrize("name", ["index", "new", "stream", "docs"])
def test_the_html_has_nothing_inline_and_nothing_from_elsewhere(name: str) -> None:
    Strict().feed((HERE / f"{name}.html").read_text())


def test_no_module_writes_markup() -> None:
    for script in HERE.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script.read_text()
        )


@pytest.mark.skipif(not (ROOT / "package-lock.json").is_file(), reason="the lock is not part of this distribution")
def test_the_lock_names_no_place_to_download_from() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert packages
    assert all("integrity" in one and "resolved" not in one for one in packages.values())
    assert "://" not in (ROOT / "package-lock.json").read_text()


NPM = """#!/bin/sh
# stands in for npm: packages appear as if they had been downloaded
[ "$1" = ci ] || exit 9
case "$*" in *--ignore-scripts*) ;; *) exit 8 ;; esac
mkdir -p node_modules/uplot/dist node_modules/swagger-ui-dist
for f in uplot/LICENSE uplot/dist/uPlot.esm.js uplot/dist/uPlot.min.css swagger-ui-dist/LICENSE swagger-ui-dist/NOTICE \
  swagger-ui-dist/swagger-ui-bundle.js swagger-ui-dist/swagger-ui-bundle.js.LICENSE.txt swagger-ui-dist/swagger-ui.css
do printf 'content\\n/*# sourceMappingURL=map*/' > node_modules/$f; done
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the build needs of the project, and an empty folder for programs."""
    if not (ROOT / "scripts" / "build_page.py").is_file():
        pytest.skip("the build is not part of this distribution")
    for name in ("scripts/build_page.py", "package.json", "package-lock.json", ".npmrc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "src/exchangeable/service/page").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    return tmp_path


def build(tree: Path) -> tuple[int, str]:
    tools = (
        os.pathsep.join([str(tree / "bin"), "/usr/bin", "/bin"]) if any((tree / "bin").iterdir()) else str(tree / "bin")
    )
    command = [sys.executable, str(tree / "scripts/build_page.py")]
    done = subprocess.run(command, env={"PATH": tools}, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def npm(tree: Path, script: str) -> None:
    (tree / "bin/npm").write_text(script)
    (tree / "bin/npm").chmod(0o755)


def test_without_npm_the_build_warns_once_and_goes_on(tree: Path) -> None:
    code, output = build(tree)
    assert code == 1
    assert output.count("\n") == 1
    assert "npm is not installed" in output
    assert not runpy.run_path(str(tree / "scripts/build_page.py"))["fresh"]()


def test_the_build_copies_what_the_page_uses_and_is_idle_while_the_lock_fits(tree: Path) -> None:
    npm(tree, NPM)
    assert build(tree) == (0, "")
    vendor = tree / "src/exchangeable/service/page/vendor"
    assert {path.name for path in vendor.iterdir()} >= {
        "uPlot.esm.js",
        "uPlot.min.css",
        "swagger-ui-bundle.js",
        "swagger-ui.css",
    }
    assert (vendor / "uPlot.esm.js").read_text() == "content\n"
    npm(tree, "#!/bin/sh\necho broken >&2\nexit 1\n")
    assert build(tree) == (0, "")  # not called
    lock = tree / "package-lock.json"
    lock.write_text(lock.read_text() + "\n")
    code, output = build(tree)
    assert code == 1
    assert "npm failed: broken" in output
