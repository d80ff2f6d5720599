"""User-supplied text in a page: shortened, and without characters that could change how the page is displayed."""

from __future__ import annotations

MAX_NAME = 60  # characters of a name
MAX_SENTENCE = 400  # characters of a sentence with a name in it
ISOLATE_START, ISOLATE_END = "\u2068", "\u2069"  # the template turns what is between them into a <bdi> element


def clip(text: str, limit: int = MAX_NAME) -> str:
    r"""Shorten a long text in the middle, and escape characters that are not printable.

    >>> clip("<b>\u202e"), clip("x" * 99, 9)
    ('<b>\\u202e', 'xxxxxx…xx')
    """
    if len(text) > limit:
        text = text[: limit - limit // 4 - 1] + "…" + text[len(text) - limit // 4 :]
    return spell_out(text)


def spell_out(text: str) -> str:
    """Replace characters that are not printable by their escape sequences."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def isolate(name: str) -> str:
    """Mark a name in a sentence, so that right-to-left text does not affect the text around it."""
    return f"{ISOLATE_START}{clip(name)}{ISOLATE_END}"
