"""An extension of griffe: docstrings as the house writes them, as Markdown.

Examples (``>>>``) become fenced blocks, which Markdown would take for quotations of quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*\n(?:\1\S.*\n)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Puts every example between fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was found."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its examples, up to the next empty line, as blocks of code.

    >>> print(fenced("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nFast."))
    Adds.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    <BLANKLINE>
    Fast.
    """
    return EXAMPLE.sub(_block, text + "\n").removesuffix("\n")


def _block(found: re.Match[str]) -> str:
    return f"{found[1]}```pycon\n{found[0]}{found[1]}```\n"
