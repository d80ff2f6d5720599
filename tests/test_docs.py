"""Documentation pages: the code runs and prints what the page shows, commands exist, links are valid."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer

import pages
from exchangeable import catalogue
from exchangeable.cli.program import build_app

for library in (
    "crepes",
    "mapie",
    "matplotlib",
    "pandas",
    "polars",
    "river",
    "sklearn",
):  # the pages show how to use them
    pytest.importorskip(library)

PAGES = pages.pages()
NAMES = [str(page.relative_to(pages.ROOT)) for page in PAGES]
by_page = pytest.mark.parametrize("page", PAGES, ids=NAMES)
ELSEWHERE = {"measure": {"frozen", "p-values"}, "bet": set(), "alarm": set()}  # names that only some commands know


@by_page
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = pages.Reader(page, tmp_path)
    reader.read()
    text = page.read_text(encoding="utf-8")
    there = len(re.findall(r"^ *```(?:python|console|sh)\b", text, re.MULTILINE))
    excused = len(re.findall(r"^ *<!-- not run: ", text, re.MULTILINE))
    assert reader.ran == there - excused


@by_page
def test_blocks_say_their_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = list(pages.blocks(text))
    assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(found)
    for block in found:
        assert block.language in pages.RUN + pages.READ, f"{page.name}, line {block.line}: {block.language!r}"
        if block.language == "toml":
            tomllib.loads(block.code)
        if block.language == "json":
            json.loads(block.code)


@by_page
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    for line in pages.find_commands(page.read_text(encoding="utf-8")):
        understood(line)


def understood(line: str) -> None:
    """Parse a command with the program's own parser, without running it."""
    words = [word for word in shlex.split(line)[1:] if word not in ("...", "…")]
    command: Any = typer.main.get_command(build_app())
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{line}: there is no command {words[0]}"
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        return  # the program alone, or a group: `exchangeable --help`
    try:
        values, rest, _ = command.make_parser(command.context_class(command)).parse_args(words)
    except Exception as error:
        raise AssertionError(f"{line}: {error}") from error
    assert not rest, f"{line}: {rest} is too much"
    for option, names in (("measure", catalogue.MEASURES), ("bet", catalogue.BETS), ("alarm", catalogue.ALARMS)):
        value = values.get(option)
        assert not isinstance(value, str) or value in set(names) | ELSEWHERE[option], f"{line}: {value}"


@pytest.mark.parametrize("line", ["exchangeable test a.csv --lable y", "exchangeable tets a", "exchangeable test a b",
                                  "exchangeable test a --bet best"])  # fmt: skip
def test_a_wrong_command_is_noticed(line: str) -> None:
    with pytest.raises(AssertionError):
        understood(line)


def test_commands_are_found_everywhere() -> None:
    text = "Say `exchangeable fetch usps`.\n\n    x | exchangeable watch -\n\n```console\n$ exchangeable demo\n```\n"
    assert pages.find_commands(text) == ["exchangeable watch -", "exchangeable fetch usps", "exchangeable demo"]


@pytest.mark.parametrize("code", ["```python\n>>> 1\n2\n```\n", "```python\n1 / 0\n```\n", "```sh\nfalse\n```\n",
                                  "```console\n$ false\n```\n", "```console\n$ echo a\nb\n```\n",
                                  "```console\n$ false\n$ echo $?\n0\n```\n"])  # fmt: skip
def test_a_wrong_page_is_noticed(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(code)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        pages.Reader(page, tmp_path).read()


def test_a_right_page_is_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\n\n```python\n>>> a\n1\n```\n\n```console\n$ (exit 3)\n$ echo $?\n3\n```\n"
                    "\n<!-- not run: false -->\n```sh\nfalse\n```\n")  # fmt: skip
    reader = pages.Reader(page, tmp_path)
    reader.read()
    assert reader.ran == 3


# ------------------------------------------------------------------ the site


def built(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a repository. Not with --quiet: mkdocs counts only the warnings that it prints."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    alone = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=alone, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    done = built(pages.ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("link", ["other.md", "index.md#nowhere", "../benchmarks/NOTHING.md"])
def test_a_broken_link_is_noticed(link: str, tmp_path: Path) -> None:
    pytest.importorskip("material")
    settings = (pages.ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "scripts").mkdir()
    shutil.copy(pages.ROOT / "scripts" / "site_files.py", tmp_path / "scripts")
    (tmp_path / "mkdocs.yml").write_text(re.sub(r"^(nav|plugins|extra_css):\n(?:[ ]+.*\n)+", "", settings, flags=re.M))
    for text, code in (("[here](index.md#a-page)", 0), (f"[there]({link})", 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
        done = built(tmp_path, tmp_path / "site")
        assert done.returncode == code, done.stderr


class Loaded(HTMLParser):
    """Collects the addresses that a browser loads when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        wanted = [given.get("src"), given.get("srcset"), given.get("poster"), given.get("data")]
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            wanted.append(given.get("href"))
        if tag == "style" or given.get("style"):
            wanted.append(given.get("style"))
        self.found += [value for value in wanted if value]


def loads(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return [value for value in parser.found if re.search(r"(^|[\s(\"'])(https?:)?//", value)]


def test_nothing_comes_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not loads(page.read_text(encoding="utf-8")), page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_what_comes_from_other_hosts_is_noticed() -> None:
    assert loads('<script src="https://a.example/x.js"></script><link rel="stylesheet" href="//b.example/c">')
    assert not loads('<a href="https://a.example">a</a><img src="b.png">')


def reference_pages(site: Path) -> str:
    return "".join(page.read_text(encoding="utf-8") for page in sorted((site / "reference").glob("*.html")))


def test_every_page_and_every_name_is_in_the_site(site: Path) -> None:
    import exchangeable as ex

    for page in PAGES[1:]:
        assert (site / page.relative_to(pages.ROOT / "docs")).with_suffix(".html").exists(), page.name
    reference = reference_pages(site)
    spaces = [f"{space}.{name}" for space in ("alarms", "bets", "measures") for name in getattr(ex, space).__all__]
    for name in [*ex.__all__, *spaces]:
        assert f'id="exchangeable.{name}"' in reference or f'id="exchangeable.{name}.' in reference, name


def test_examples_of_docstrings_are_code(site: Path) -> None:
    reference = reference_pages(site)
    assert "<blockquote>" not in reference  # what Markdown makes of >>>
    assert reference.count('class="gp"') > 100  # prompts


# ------------------------------------------------------------------ figures


WRITTEN_BY_COMMANDS = (
    "DETECTION",
    "DETECTION_LONG",
    "DRIFT_TOOLS",
    "LONG_STREAMS",
    "MODELS",
    "PAPER",
    "POWER",
    "PUBLISHED",
    "RESULTS",
    "RISK",
    "SEQUENCES",
    "VALIDITY",
)
MEASURED = [f"benchmarks/{name}.md" for name in WRITTEN_BY_COMMANDS]


def numbers(cells: str) -> set[str]:
    return set(re.findall(r"\d[\d,]*(?:\.\d+)?", cells))


def rows(text: str) -> list[str]:
    """Return the rows of tables that have a right-aligned column."""
    tables = re.findall(r"^\|[^\n]*\n\|[-:|]*-:[-:|]*\n((?:\|[^\n]*\n?)+)", text, re.MULTILINE)
    return [row for table in tables for row in table.splitlines()]


@pytest.mark.parametrize("name", ["choosing", "coming-from", "comparison", "paper"])
def test_figures_were_measured(name: str) -> None:
    """All figures of a row are in one row of a file that a command has written."""
    known = [
        numbers(line) for file in MEASURED for line in (pages.ROOT / file).read_text(encoding="utf-8").splitlines()
    ]
    found = rows((pages.ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    assert found
    for row in found:
        wanted = numbers(row.split("|", 2)[2])
        assert any(wanted <= figures for figures in known), row


def test_a_figure_that_nobody_measured_is_noticed() -> None:
    assert rows("| a | b |\n|---|---:|\n| c | 1,234.5 |\n") == ["| c | 1,234.5 |"]
    assert numbers(" **1,234.5** | 7 (2 to 3.5) |") == {"1,234.5", "7", "2", "3.5"}


def test_pictures_are_small() -> None:
    for picture in (pages.ROOT / "docs" / "pictures").iterdir():
        assert picture.stat().st_size < 60_000, picture.name
