"""Code blocks in Markdown pages, and how to run them from top to bottom.

A block is one of

- ``python`` with ``>>>``: an example whose output is compared (``...`` stands for anything);
- ``python`` without: executed; all blocks of a page share their names;
- ``console``: commands after ``$ ``, each followed by what it must print, loosely: ``...`` stands for anything, and
  blanks and line breaks for one another. A command without output may say what it likes. One that does not end with 0
  must be followed by ``$ echo $?``;
- ``sh``: a script, which must end with 0.

A block after the comment ``<!-- not run: reason -->`` is for reading only. Everything else runs in one folder a page.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: (\S[^>]*) -->\s*\Z")
RUN = ("python", "console", "sh")
READ = ("toml", "json", "yaml", "sql", "text", "html", "dockerfile", "bibtex")  # never run
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PATIENCE = 120.0  # seconds for a command


class Block(NamedTuple):
    """One block of code of a page."""

    language: str
    code: str
    line: int
    excuse: str | None  # why it is not run


class Command(NamedTuple):
    """A command of a console, and its expected output."""

    line: str
    output: str


def pages() -> list[Path]:
    """Return all pages."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order.

    >>> list(blocks("A\\n\\n```python\\n1 + 1\\n```\\n"))
    [Block(language='python', code='1 + 1\\n', line=3, excuse=None)]
    """
    for found in FENCE.finditer(text):
        before = text[: found.start()]
        excuse = NOT_RUN.search(before)
        code = "".join(line.removeprefix(found[1]) for line in found[3].splitlines(keepends=True))
        yield Block(found[2], code, before.count("\n") + 1, excuse[1] if excuse else None)


def commands(console: str) -> Iterator[Command]:
    """Yield the commands of a console block, each with its expected output.

    >>> list(commands("$ echo a\\na\\n$ true \\\\\\n    && false\\n"))
    [Command(line='echo a', output='a\\n'), Command(line='true \\\\\\n    && false', output='')]
    """
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        found = re.match(r"((?:[^\n]*\\\n)*[^\n]*)\n?(.*)", part, re.DOTALL)
        assert found is not None
        yield Command(found[1], found[2])


class Reader:
    """Runs the blocks of a page from top to bottom in one folder."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.ran = 0

    def read(self) -> None:
        """Run every block that is not excused."""
        for block in blocks(self.page.read_text(encoding="utf-8")):
            if block.language in RUN and block.excuse is None:
                getattr(self, f"_{block.language}")(block)
                self.ran += 1

    def _python(self, block: Block) -> None:
        if re.search(r"^ *>>> ", block.code, re.MULTILINE):
            self._example(block)
        else:
            lines = "\n" * block.line + block.code  # so that a traceback tells the line of the page
            exec(compile(lines, str(self.page), "exec"), self.names)

    def _example(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.code, {}, self.page.name, str(self.page), block.line)
        test.globs = self.names
        said: list[str] = []
        doctest.DocTestRunner(optionflags=LOOSELY | doctest.FAIL_FAST).run(test, out=said.append, clear_globs=False)
        assert not said, "".join(said)

    def _console(self, block: Block) -> None:
        code = 0
        typed = list(commands(block.code))
        assert typed, f"{self._where(block)} shows no command"
        for i, command in enumerate(typed):
            asked = i + 1 < len(typed) and typed[i + 1].line == "echo $?"
            code, said = self._shell(f"(exit {code})\n{command.line}")
            assert code == 0 or asked, f"{self._where(block)}: {command.line} ended with {code} unsaid:\n{said}"
            if command.output.strip():
                agrees = doctest.OutputChecker().check_output(command.output, said, LOOSELY)
                assert agrees, f"{self._where(block)}: {command.line} printed\n{said}\nin place of\n{command.output}"

    def _sh(self, block: Block) -> None:
        code, said = self._shell(f"set -e\n{block.code}")
        assert code == 0, f"{self._where(block)} ended with {code}:\n{said}"

    def _shell(self, script: str) -> tuple[int, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "COLUMNS": "200", "NO_COLOR": "1"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environment, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _where(self, block: Block) -> str:
        return f"{self.page.relative_to(ROOT)}, line {block.line}"


INDENTED = re.compile(r"^ {4}(?:[^#\n]*\| *)?(exchangeable (?:[^\n\\]|\\\n)*)", re.MULTILINE)
SPAN = re.compile(r"(?<!`)`(exchangeable [a-z][^`]*)`(?!`)")
SHELL = re.compile(r"^(?:\$ )?(?:[^#\n]*\| *)?(exchangeable (?:[^\n\\]|\\\n)*)", re.MULTILINE)


def find_commands(text: str) -> list[str]:
    """Return every `exchangeable` command on a page: in blocks, indented, or inline."""
    prose = FENCE.sub("", text)
    fenced = [block.code for block in blocks(text) if block.language in ("console", "sh")]
    found = INDENTED.findall(prose) + SPAN.findall(prose) + [line for code in fenced for line in SHELL.findall(code)]
    return [re.sub(r"\s+#.*|\s*[|>]\s.*|\s*&&.*|\s+2>.*", "", line.replace("\\\n", " ")).strip() for line in found]
