"""Cells of CSV whose column is known: the same values as when the whole file is read."""

from __future__ import annotations

import re
from collections.abc import Collection

from exchangeable.data.events.delimited import BOOLEANS
from exchangeable.data.text_columns import MISSING
from exchangeable.data.values import is_code
from exchangeable.validation import NUMBER

_DECIMAL_COMMA = re.compile(r"[+-]?([0-9]+,?[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?")


def read_cell(
    text: str, categories: Collection[str] | None = None, *, decimal_comma: bool = False
) -> str | float | None:
    """Return the value of a cell: None if it is missing, otherwise a number, or text if it is a category or no number.

    ``categories`` are those of a column of categories; a number is written in more than one way, so 2.0 is the
    category 2 unless there is a category 2.0. ``decimal_comma`` allows 1,5 besides 1.5.

    >>> read_cell(" 1.50 "), read_cell("n/a"), read_cell("TRUE"), read_cell("1,5", decimal_comma=True), read_cell("1,5")
    (1.5, None, 1.0, 1.5, '1,5')
    >>> read_cell("red", ["red"]), read_cell("2.0", ["1", "2"]), read_cell("02", ["1", "2"])
    ('red', 2.0, '02')
    """
    bare = text.strip()
    if bare in _MISSING:
        return None
    if categories is not None:
        plain = text in categories or not NUMBER.fullmatch(bare) or is_code(bare)
        return text if plain else float(bare)
    if NUMBER.fullmatch(bare):
        return float(bare)
    if decimal_comma and _DECIMAL_COMMA.fullmatch(bare):
        return float(bare.replace(",", "."))
    return BOOLEANS.get(bare.lower(), text)


_MISSING = frozenset(MISSING)
