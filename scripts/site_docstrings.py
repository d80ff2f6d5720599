"""An extension for griffe: turns the examples in docstrings into fenced Markdown blocks.

Markdown would parse ``>>>`` as nested quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*\n(?:\1\S.*\n)*", re.MULTILINE)


class Examples(griffe.Extension):
    """Turn every example into a fenced block."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return the text with its examples, up to the next empty line, as fenced blocks.

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


def _block(match: re.Match[str]) -> str:
    return f"{match[1]}```pycon\n{match[0]}{match[1]}```\n"
